//! The files of a change of the tiers, before `CHANGING`: copies in a new directory, or moves off a
//! tier that goes.
//!
//! 1. Room for all of them is found before the first one is copied.
//! 2. The database is valid after each move; copies in a new directory count for nothing yet.
//! 3. What a cache has on the tier that goes is dropped with it. Elsewhere it gives way
//!    (`room.rs`).
//!
//! Threads: the caller's alone.

use super::room::{Going, Rooms, Spared};
use super::{Copied, TierChange};
use crate::context::FileKind;
use crate::error::{Error, ErrorKind, Result};
use crate::migration;
use crate::placement::FileInfo;
use crate::tier::{Tier, TierIndex};
use crate::tiered_files::{TieredFiles, file_name};
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_foundation::{ByteSize, FileNumber, sync_site};

impl TieredFiles {
    /// Has each file in a directory that stays or comes.
    pub(super) fn fill(
        &self,
        tiers: &[Arc<Tier>],
        change: &TierChange,
        spared: Spared,
        progress: Copied<'_>,
    ) -> Result<()> {
        match change {
            // Slots belong on the fastest tier.
            TierChange::Add(0, _) => {
                let files = self.published(|info| info.kind == FileKind::Slab);
                let new = [(Arc::clone(&tiers[0]), BTreeMap::new())];
                let rooms =
                    |going: Option<Going<'_>>| Rooms::new(&new, 0, spared.logs_bytes, going);
                self.copy_to(&tiers[0], &files, rooms, progress)
            }
            TierChange::Add(..) => Ok(()),
            TierChange::Remove(at) => self.drain(*at, spared, progress),
            TierChange::Replace(at, _) => {
                let files = self.published(|info| info.tier.position() == *at);
                let bytes = files.iter().map(|info| info.bytes).sum();
                let kept_bytes = if *at == 0 { spared.logs_bytes } else { 0 };
                let to = &tiers[*at];
                let rooms =
                    |going: Option<Going<'_>>| Rooms::of_device(to, bytes, kept_bytes, going);
                self.copy_to(to, &files, rooms, progress)
            }
        }
    }

    fn published(&self, wants: impl Fn(&FileInfo) -> bool) -> Vec<FileInfo> {
        let mut files = self.files();
        files.retain(|info| info.published && wants(info));
        files
    }

    /// Copies the files to the new tier `to`, which has `rooms` alone.
    fn copy_to(
        &self,
        to: &Arc<Tier>,
        files: &[FileInfo],
        rooms: impl Fn(Option<Going<'_>>) -> Rooms,
        progress: Copied<'_>,
    ) -> Result<()> {
        let total: u64 = files.iter().map(|info| info.bytes).sum();
        self.beside_copies_or_instead(|going| {
            let mut rooms = rooms(going);
            let Some(info) = files.iter().find(|info| !rooms.take(0, None, info)) else {
                return Ok(());
            };
            let text = format!(
                "{} has no room for {}: {} are to go there, and logs and journals need some; give \
                 it more, or name another",
                to.spec().path.display(),
                file_name(info.number, info.kind),
                ByteSize(total)
            );
            Err(Error::new(ErrorKind::OutOfSpace, text))
        })?;
        let mut done = 0;
        for info in files {
            let (file, name) = (self.open_file(info.number)?, file_name(info.number, info.kind));
            let copy = || migration::copy(&file, to, &name, &mut |now| progress(done + now, total));
            sync_site("reshape/copy", copy)?;
            done += info.bytes;
        }
        sync_site("reshape/copies", || to.sync_directory())
    }

    /// Moves all files of the tier at `at` to others, see [`TieredFiles::moves_off`].
    fn drain(&self, at: usize, spared: Spared, progress: Copied<'_>) -> Result<()> {
        let mut moves = self.beside_copies_or_instead(|going| self.moves_off(at, spared, going))?;
        // Slabs last: where another move fails, they are on the fastest tier still.
        moves.reverse();
        let total = moves.iter().map(|(.., bytes)| bytes).sum();
        let mut done = 0;
        for (number, to, bytes) in moves {
            self.relocate(number, to, &mut |now| progress(done + now, total))?;
            done += bytes;
        }
        Ok(())
    }

    /// Where all files of the tier at `at` go, slabs first: slabs to the fastest that stays, and
    /// where they were not on the fastest as others do: to the next slower tier that has room, or
    /// else to a faster one.
    fn moves_off(
        &self,
        at: usize,
        spared: Spared,
        going: Option<Going<'_>>,
    ) -> Result<Vec<(FileNumber, TierIndex, u64)>> {
        let leaving = TierIndex(at as u8);
        let mut files = self.published(|info| info.tier == leaving);
        files.sort_by_key(|info| (info.kind != FileKind::Slab, std::cmp::Reverse(info.bytes)));
        let used = self.usage().into_iter().map(|usage| usage.used_by_kind);
        let tiers: Vec<_> = self.tiers.iter().cloned().zip(used).collect();
        let fastest = [usize::from(at == 0)];
        let mut rooms = Rooms::new(&tiers, fastest[0], spared.logs_bytes, going);
        let order: Vec<_> = (at + 1..tiers.len()).chain((0..at).rev()).collect();
        let mut moves = Vec::new();
        for info in &files {
            let (first, next, others) = match info.kind {
                FileKind::Slab if at == 0 => {
                    (&fastest[..], &order[..0], "the tier that becomes the fastest has")
                }
                // One that had no room on the fastest tier may find none still.
                FileKind::Slab => (&fastest[..], &order[..], "the others have"),
                _ => (&order[..], &order[..0], "the others have"),
            };
            let mut places = first.iter().chain(next);
            let Some(to) = places.find(|place| rooms.take(**place, Some(at), info)) else {
                let (name, bytes) = (file_name(info.number, info.kind), ByteSize(info.bytes));
                let lacking = format!("{others} no room for {name}, {bytes},");
                return Err(self.no_room(at, &lacking, spared));
            };
            moves.push((info.number, TierIndex(*to as u8), info.bytes));
        }
        if !order.iter().any(|place| rooms.has_for_table(*place, spared.flush_bytes)) {
            let bytes = ByteSize(spared.flush_bytes);
            let lacking = format!("no other would have room for what a flush writes, {bytes},");
            return Err(self.no_room(at, &lacking, spared));
        }
        Ok(moves)
    }

    fn no_room(&self, at: usize, lacking: &str, spared: Spared) -> Error {
        let text = format!(
            "cannot remove {} at {}: {lacking} beside {} for logs and journals; add a tier, raise \
             a capacity, or free space on a device, first",
            TierIndex(at as u8),
            self.tiers[at].spec().path.display(),
            ByteSize(spared.logs_bytes)
        );
        Error::new(ErrorKind::OutOfSpace, text)
    }
}
