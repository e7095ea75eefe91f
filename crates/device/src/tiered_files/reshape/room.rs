//! Room for the files that a change of the tiers moves or copies: what capacities leave, and what
//! devices have free.
//!
//! 1. Tables and slabs keep to the watermark, as they do everywhere.
//! 2. The tier that becomes the fastest keeps what logs and journals may come to there: without
//!    them nothing opens the database. Those that move there take it from that.
//! 3. A device that tiers share is counted once. A file that moves from one of them to another
//!    leaves the device as full as it was, but both copies are there for a moment.
//!
//! Threads: a value of the caller's.

use crate::context::FileKind;
use crate::placement::{FileInfo, WATERMARK_PERCENT};
use crate::tier::Tier;
use std::collections::BTreeMap;
use std::sync::Arc;

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
            let others = used.iter().filter(|(kind, _)| !is_data(**kind));
            let has: u64 = others.map(|(_, bytes)| bytes).sum();
            let kept_bytes = if at == fastest { kept_bytes.saturating_sub(has) } else { 0 };
            free_bytes[device] = free_bytes[device].saturating_sub(kept_bytes);
            let used_bytes = used.values().sum();
            Room { capacity_bytes: tier.spec().capacity.0, used_bytes, kept_bytes, device }
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

    /// The tier at `to` has room for the file, which the one at `from` gives up where there is one.
    /// The room is taken.
    pub fn take(&mut self, to: usize, from: Option<usize>, info: &FileInfo) -> bool {
        let giving = from.map(|from| self.rooms[from].device);
        let room = &mut self.rooms[to];
        let free_bytes = &mut self.free_bytes[room.device];
        let (percent, of_kept) = match is_data(info.kind) {
            true => (WATERMARK_PERCENT, 0),
            false => (100, room.kept_bytes.min(info.bytes)),
        };
        let most = u128::from(room.capacity_bytes) * u128::from(percent) / 100;
        let kept_bytes = room.kept_bytes - of_kept;
        let used_bytes = room.used_bytes.saturating_add(info.bytes);
        let fits = u128::from(used_bytes) <= most
            && used_bytes.saturating_add(kept_bytes) <= room.capacity_bytes
            && info.bytes <= free_bytes.saturating_add(of_kept);
        if fits {
            (room.used_bytes, room.kept_bytes) = (used_bytes, kept_bytes);
            *free_bytes = free_bytes.saturating_add(of_kept);
            if giving != Some(room.device) {
                *free_bytes -= info.bytes;
            }
        }
        fits
    }
}

fn is_data(kind: FileKind) -> bool {
    matches!(kind, FileKind::Table { .. } | FileKind::Slab)
}
