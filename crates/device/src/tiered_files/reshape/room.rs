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
//!
//! Threads: a value of the caller's.

use crate::context::FileKind;
use crate::placement::{FileInfo, WATERMARK_PERCENT};
use crate::tier::Tier;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a change leaves beside the files that it copies or moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spared {
    /// What logs and journals may come to on the fastest tier.
    pub logs_bytes: u64,
    /// What a flush writes.
    pub flush_bytes: u64,
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
    /// Room on `tiers`, which have files of so many bytes by kind. The one at `fastest` keeps
    /// `kept_bytes` for logs and journals.
    pub fn new(
        tiers: &[(Arc<Tier>, BTreeMap<FileKind, u64>)],
        fastest: usize,
        kept_bytes: u64,
    ) -> Self {
        let mut ids: Vec<Option<u64>> = Vec::new();
        let mut free_bytes: Vec<u64> = Vec::new();
        let rooms = tiers.iter().enumerate().map(|(at, (tier, used))| {
            let id = tier.driver().directory_id().map(|id| id.device);
            let shared = ids.iter().position(|other| id.is_some() && *other == id);
            let device = shared.unwrap_or_else(|| {
                let space = tier.driver().space().ok();
                free_bytes.push(space.map_or(u64::MAX, |space| space.free_bytes));
                ids.push(id);
                ids.len() - 1
            });
            let is_kept = |kind| matches!(kind, FileKind::Log | FileKind::Manifest | FileKind::Map);
            let has: u64 = used.iter().filter(|(kind, _)| is_kept(**kind)).map(|it| it.1).sum();
            let kept_bytes = if at == fastest { kept_bytes.saturating_sub(has) } else { 0 };
            let kept_free_bytes = kept_bytes.min(free_bytes[device]);
            free_bytes[device] -= kept_free_bytes;
            let has_tables = used.keys().any(|kind| matches!(kind, FileKind::Table { .. }));
            Room {
                capacity_bytes: tier.spec().capacity.0,
                used_bytes: used.values().sum(),
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
    pub fn of_device(tier: &Arc<Tier>, bytes: u64, kept_bytes: u64) -> Self {
        let kept_bytes = kept_bytes.min(tier.spec().capacity.0.saturating_sub(bytes));
        let mut rooms = Self::new(&[(Arc::clone(tier), BTreeMap::new())], 0, kept_bytes);
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
