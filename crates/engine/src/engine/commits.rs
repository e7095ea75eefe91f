//! Writes, with and without conditions: what is sent to the front, and what is sent again.

use super::Engine;
use crate::error::{Error, Result};
use crate::front::Submission;
use crate::settings::Durability;
use crate::transaction::{Check, Footprint, Recent, Refused};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::Sequence;

/// Entries of ranges that the leader looks at while others wait, at most.
const ENTRIES_MAX: u64 = 4096;
/// After so many looks at everything the leader goes through larger ranges all the same: what came
/// after the last look is little, but for what is written meanwhile.
const LOOKS_MAX: u32 = 2;

impl Engine {
    /// Applies the `count` records of an encoded batch, all of them or none. Says the sequence of
    /// the last one.
    pub fn write(&self, encoded: Bytes, count: u32, durability: Durability) -> Result<Sequence> {
        let submission = Submission { encoded, count, durability, check: None };
        self.front.write(submission).map_err(|refused| match refused {
            Refused::Failed(error) => error,
            Refused::LookAgain => Error::invalid("a write without a condition was asked to check"),
        })
    }

    /// As [`Engine::write`], if nothing has changed of what the batch builds on; an error of kind
    /// `Conflict` where something has.
    pub fn write_if(
        &self,
        (encoded, count): (Bytes, u32),
        durability: Durability,
        footprint: Footprint,
    ) -> Result<Sequence> {
        let footprint = Arc::new(footprint);
        let mut looked = footprint.oldest_base().unwrap_or_else(|| self.versions.visible());
        let mut looks = 0;
        if !Recent::new(&self.versions).has_all_after(looked) {
            looked = self.reader.look(&footprint)?;
        }
        loop {
            let entries_max = if looks < LOOKS_MAX { ENTRIES_MAX } else { u64::MAX };
            let footprint = &footprint;
            let check = Check { footprint: Arc::clone(footprint), looked, entries_max };
            let check = Some(Arc::new(check));
            let submission = Submission { encoded: encoded.clone(), count, durability, check };
            match self.front.write(submission) {
                Ok(sequence) => return Ok(sequence),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::LookAgain) => {
                    looked = self.reader.look(footprint)?;
                    looks += 1;
                }
            }
        }
    }
}
