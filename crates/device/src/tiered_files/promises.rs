//! What files may come to, in the account of their tiers.
//!
//! A file counts with the bytes that were announced for it, or that it has where they are more. So
//! what grows asks before it does: then all that is on a tier keeps to its capacity. A device that
//! has refused anything is asked, too, for what a table grows by: it may have less than the
//! capacity.
//!
//! Threads: shared freely.

use super::{TieredFiles, is_table, unknown};
use crate::error::{Error, ErrorKind, Result};
use thermocline_foundation::{ByteSize, FileNumber};

impl TieredFiles {
    /// Has a file count as `bytes` long from now on, where its tier has room for that by its
    /// capacity. A device that may have less keeps the room of a table.
    ///
    /// Errors: `OutOfSpace` where there is none; nothing has changed.
    pub fn promise_bytes(&self, number: FileNumber, bytes: u64) -> Result<()> {
        let (before, file) = self.with_state(|state| {
            let entry = state.get(&number).ok_or_else(|| unknown(number))?;
            let (has, tier) = (entry.bytes(), entry.tier);
            if bytes > has {
                let room = &self.tier_states(state)[tier.position()];
                if room.used_bytes.saturating_add(bytes - has) > room.capacity_bytes {
                    let text = format!(
                        "{} uses {} of {}, too much for file {number} to have {}",
                        self.tiers[tier.position()].describe(),
                        ByteSize(room.used_bytes),
                        ByteSize(room.capacity_bytes),
                        ByteSize(bytes)
                    );
                    return Err(Error::new(ErrorKind::OutOfSpace, text));
                }
            }
            let entry = state.get_mut(&number).ok_or_else(|| unknown(number))?;
            let before = entry.expected_bytes;
            entry.expected_bytes = before.max(bytes);
            Ok((before, entry.unpublished.clone()))
        })?;
        let kept = match file {
            Some(file) if is_table(file.kind()) => self.ask_for_room(&file, bytes, false),
            _ => Ok(()),
        };
        kept.inspect_err(|_| self.announce_bytes(number, before))
    }

    /// Has a file count as `bytes` long, or as it is where that is more, whatever room its tier
    /// has: for what must be written.
    pub fn announce_bytes(&self, number: FileNumber, bytes: u64) {
        self.with_state(|state| {
            if let Some(entry) = state.get_mut(&number) {
                entry.expected_bytes = bytes;
            }
        });
    }
}
