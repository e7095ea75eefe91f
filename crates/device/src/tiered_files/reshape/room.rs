//! Room for the files that a change of the tiers moves or copies: what capacities leave, and what
//! devices have free.
//!
//! 1. Tables and slabs keep to the watermark, as they do everywhere; slabs alone on the tier that
//!    becomes the fastest may fill it, beside what it keeps.
//! 2. The tier that becomes the fastest keeps what logs and journals may come to there: without
//!    them nothing opens the database. Those that move there take it from that.
//! 3. A removal leaves room for the table of a flush below the watermark of a tier that stays, or
//!    the store would open and take no more than its logs do.
//! 4. A device that tiers share is counted once. A file that moves from one of them to another
//!    leaves the device as full as it was, but both copies are there for a moment.
//! 5. Copies of a cache are in the way of nothing. Where there is no room beside them, but in their
//!    place, they go before the first file needs it; where there is none either way, they stay.
//!
//! Threads: a value of the caller's.

use crate::context::{FileKind, Keeping};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::placement::{FileInfo, WATERMARK_PERCENT};
use crate::tier::Tier;
use crate::tiered_files::TieredFiles;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_foundation::sync_site;

/// What a change leaves beside the files that it copies or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// What logs and journals may come to on the fastest tier.
    pub logs_bytes: u64,
    /// What a flush writes.
    pub flush_bytes: u64,
}

/// The copies of a cache that go: all those on the tier that was the fastest.
#[derive(Clone, Copy)]
pub(super) struct Going<'a> {
    driver: &'a dyn Driver,
    bytes: u64,
}

impl Going<'_> {
    /// What the device of `driver` gets back.
    pub fn bytes_on(&self, driver: &dyn Driver) -> u64 {
        let device_of = |driver: &dyn Driver| driver.directory_id().map(|id| id.device);
        let is_shared = || device_of(driver).is_some_and(|id| device_of(self.driver) == Some(id));
        let is_there = std::ptr::addr_eq(driver, self.driver) || is_shared();
        if is_there { self.bytes } else { 0 }
    }
}

impl TieredFiles {
    /// What `plan` gives, which finds room beside the copies of a cache, or in place of those that
    /// are `Going`. Then they go, and it counts what that has left.
    pub(super) fn beside_copies_or_instead<T>(
        &self,
        plan: impl Fn(Option<Going<'_>>) -> Result<T>,
    ) -> Result<T> {
        let beside = plan(None);
        let is_full = |error: &Error| error.kind() == ErrorKind::OutOfSpace;
        if !beside.as_ref().is_err_and(is_full) {
            return beside;
        }
        let going = Going { driver: &**self.tiers[0].driver(), bytes: self.left_copies_bytes() };
        if plan(Some(going)).is_err() || !self.delete_left_copies() {
            return beside;
        }
        // Names that come back have their room back: what ends the change would lack it.
        sync_site("reshape/room", || self.tiers[0].sync_directory())?;
        tracing::info!(bytes = going.bytes, "copies of a cache made room for a change of tiers");
        plan(None)
    }
}

/// See the module's header.
pub(super) struct Rooms {
    rooms: Vec<Room>,
    free_bytes: Vec<u64>,
}

struct Room {
    capacity_bytes: u64,
    used_bytes: u64,
    /// What logs and journals may take beside what they have.
    kept_bytes: u64,
    /// What of it the device has, taken off its free bytes.
    kept_free_bytes: u64,
    /// Slabs may take what tables leave below the watermark.
    is_for_slabs: bool,
    /// Its place in `free_bytes`.
    device: usize,
}

impl Rooms {
    /// Room on `tiers`, which have files of so many bytes by kind, once the copies that are `going`
    /// have gone. The one at `fastest` keeps `kept_bytes` for logs and journals.
    pub fn new(
        tiers: &[(Arc<Tier>, BTreeMap<FileKind, u64>)],
        fastest: usize,
        kept_bytes: u64,
        going: Option<Going<'_>>,
    ) -> Self {
        let mut ids: Vec<Option<u64>> = Vec::new();
        let mut free_bytes: Vec<u64> = Vec::new();
        let rooms = tiers.iter().enumerate().map(|(at, (tier, used))| {
            let id = tier.driver().directory_id().map(|id| id.device);
            let shared = ids.iter().position(|other| id.is_some() && *other == id);
            let device = shared.unwrap_or_else(|| {
                let space = tier.driver().space().ok();
                let free = space.map_or(u64::MAX, |space| space.free_bytes);
                let given = going.map_or(0, |going| going.bytes_on(&**tier.driver()));
                free_bytes.push(free.saturating_add(given));
                ids.push(id);
                ids.len() - 1
            });
            let is_kept = |kind| matches!(kind, FileKind::Log | FileKind::Manifest | FileKind::Map);
            let has: u64 = used.iter().filter(|(kind, _)| is_kept(**kind)).map(|it| it.1).sum();
            let kept_bytes = if at == fastest { kept_bytes.saturating_sub(has) } else { 0 };
            let kept_free_bytes = kept_bytes.min(free_bytes[device]);
            free_bytes[device] -= kept_free_bytes;
            let stays = |kind: FileKind| going.is_none() || kind.keeping() != Keeping::Cache;
            let has_tables = used.keys().any(|kind| matches!(kind, FileKind::Table { .. }));
            Room {
                capacity_bytes: tier.spec().capacity.0,
                used_bytes: used.iter().filter(|(kind, _)| stays(**kind)).map(|it| it.1).sum(),
                kept_bytes,
                kept_free_bytes,
                is_for_slabs: at == fastest && !has_tables,
                device,
            }
        });
        Self { rooms: rooms.collect(), free_bytes }
    }

    /// Room on `tier` alone, whose capacity has it already: files of `bytes` come from one that had
    /// the same.
    pub fn of_device(
        tier: &Arc<Tier>,
        bytes: u64,
        kept_bytes: u64,
        going: Option<Going<'_>>,
    ) -> Self {
        let kept_bytes = kept_bytes.min(tier.spec().capacity.0.saturating_sub(bytes));
        let mut rooms = Self::new(&[(Arc::clone(tier), BTreeMap::new())], 0, kept_bytes, going);
        rooms.rooms[0].capacity_bytes = u64::MAX;
        rooms
    }

    /// A table of so many bytes has room on the tier at `on`, when logs and journals have all that
    /// is kept for them.
    pub fn has_for_table(&self, on: usize, bytes: u64) -> bool {
        let room = &self.rooms[on];
        let most = u128::from(room.capacity_bytes) * u128::from(WATERMARK_PERCENT) / 100;
        let used_bytes = room.used_bytes.saturating_add(room.kept_bytes).saturating_add(bytes);
        u128::from(used_bytes) <= most && bytes <= self.free_bytes[room.device]
    }

    /// The tier at `to` has room for the file, which the one at `from` gives up where there is one.
    /// The room is taken.
    pub fn take(&mut self, to: usize, from: Option<usize>, info: &FileInfo) -> bool {
        let giving = from.map(|from| self.rooms[from].device);
        let room = &mut self.rooms[to];
        let free_bytes = &mut self.free_bytes[room.device];
        let (percent, of_kept) = match info.kind {
            FileKind::Slab if room.is_for_slabs => (100, 0),
            FileKind::Slab | FileKind::Table { .. } => (WATERMARK_PERCENT, 0),
            _ => (100, room.kept_bytes.min(info.bytes)),
        };
        let of_free = of_kept.min(room.kept_free_bytes);
        let most = u128::from(room.capacity_bytes) * u128::from(percent) / 100;
        let kept_bytes = room.kept_bytes - of_kept;
        let used_bytes = room.used_bytes.saturating_add(info.bytes);
        let fits = u128::from(used_bytes) <= most
            && used_bytes.saturating_add(kept_bytes) <= room.capacity_bytes
            && info.bytes <= free_bytes.saturating_add(of_free);
        if fits {
            (room.used_bytes, room.kept_bytes) = (used_bytes, kept_bytes);
            room.kept_free_bytes -= of_free;
            *free_bytes = free_bytes.saturating_add(of_free);
            if giving != Some(room.device) {
                *free_bytes -= info.bytes;
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drivers::{MemoryDriver, PosixDriver};

    #[test]
    fn copies_that_go_give_their_bytes_to_all_directories_of_their_device() {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let posix = directories.each_ref().map(|at| PosixDriver::open(at.path()).unwrap());
        let memory = [(); 2].map(|()| MemoryDriver::new());
        let going = Going { driver: &posix[0], bytes: 7 };
        assert_eq!(posix.each_ref().map(|driver| going.bytes_on(driver)), [7, 7]);
        assert_eq!(going.bytes_on(&memory[0]), 0);
        let going = Going { driver: &memory[0], bytes: 7 };
        assert_eq!(memory.each_ref().map(|driver| going.bytes_on(driver)), [7, 0]);
        assert_eq!(going.bytes_on(&posix[0]), 0);
    }
}
