//! Another physical copy of some of the files, as a database of its own.
//!
//! 1. The copy keeps the database's identity, because the checksums in its files are bound to it,
//!    and gets an instance identity of its own, so that its tiers are never taken for the
//!    original's.
//! 2. Only tables and slabs are taken. Tables never change again, so a hard link is as good as a
//!    copy where the file system can share a file; slabs do change, so they are copied, without
//!    what the caller knows to be no part of the moment. Every copy is verified.
//! 3. Its file numbers go on after the original's.
//!
//! Threads: any; the original stays in use. The caller keeps the files from being deleted
//! meanwhile.

use super::creation::Texts;
use super::devices::Devices;
use super::{TieredFiles, file_name, unknown};
use crate::context::FileKind;
use crate::error::{Error, ErrorKind, Result};
use crate::file_map::{MapEntry, MapState};
use crate::migration;
use crate::tier::{Tier, TierSpec};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, sync_site};

/// Clears what a copy of a slab is not to have: gets its bytes from an offset on.
pub(super) type Clear<'a> = &'a dyn Fn(FileNumber, u64, &mut [u8]);

impl TieredFiles {
    /// Makes a database at `target_home`, with one tier below it (`tier-0`, `tier-1` ...) for each
    /// tier here, that has the published tables and slabs `numbers` and the `texts` beside
    /// `DATABASE`; everything else is the caller's to add. Slabs are copied as `clear` leaves them.
    /// Both may be used at once.
    pub fn create_checkpoint(
        &self,
        devices: &dyn Devices,
        target_home: &Path,
        numbers: &[FileNumber],
        texts: Texts<'_>,
        clear: Clear<'_>,
    ) -> Result<Self> {
        let specs = self.tiers.iter().enumerate().map(|(index, tier)| TierSpec {
            path: target_home.join(format!("tier-{index}")),
            ..tier.spec().clone()
        });
        let specs: Vec<_> = specs.collect();
        let fill = |tiers: &[Arc<Tier>]| {
            let mut state = MapState::default();
            for number in numbers {
                let entry = self.import(*number, tiers, clear)?;
                state.files.insert(*number, entry);
            }
            state.reserved = self.map.lock().next();
            Ok(state)
        };
        let placement = Arc::clone(&self.placement);
        Self::create_filled(devices, target_home, &specs, placement, self.database, texts, &fill)
    }

    /// Puts a file on the tier of `tiers` that has the place its tier has here.
    fn import(
        &self,
        number: FileNumber,
        tiers: &[Arc<Tier>],
        clear: Clear<'_>,
    ) -> Result<MapEntry> {
        let (kind, published) = {
            let state = self.state.lock();
            let entry = state.get(&number).ok_or_else(|| unknown(number))?;
            (entry.kind, entry.published)
        };
        let is_table = matches!(kind, FileKind::Table { .. });
        if !published || !is_table && kind != FileKind::Slab {
            let text = format!("cannot take file {number} along: only tables and slabs are");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let file = self.open_file(number)?;
        let name = file_name(number, kind);
        let source = Arc::clone(&file.location().tier);
        let target = &tiers[source.index().position()];
        // The file may be moving away: then there is no name to link, and the copy reads it where
        // it is.
        let linked =
            is_table && source.driver().try_link(&name, &**target.driver(), &name).unwrap_or(false);
        if !linked {
            let change = |offset, bytes: &mut [u8]| {
                if !is_table {
                    clear(number, offset, bytes);
                }
            };
            let copy = || migration::copy_changed(&file, target, &name, &change, &mut |_| {});
            sync_site("checkpoint", copy)?;
        }
        Ok(MapEntry { kind, tier: target.index(), bytes: file.len()? })
    }
}
