//! What one reader sees: memtables and tables of one moment.

use crate::generations::Frozen;
use crate::generations::memtable::Memtable;
use crate::limits::MEMTABLES;
use crate::table_set::levels::Levels;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::Trailer;

/// What a reader needs, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub frozen: Vec<Arc<Frozen>>,
    pub levels: Arc<Levels>,
    /// The sequence of the newest bulk load whose tables are gone, and of whose records the index
    /// may still have the older versions; zero where there is none.
    pub ended_load: Sequence,
}

impl Version {
    /// The state with other levels, which have what was in `flushed`, and what the load that has
    /// ended with this had.
    pub(super) fn with_levels(
        &self,
        levels: &Arc<Levels>,
        flushed: Option<&Arc<Frozen>>,
        ended_load: Sequence,
    ) -> Self {
        let is_left =
            |frozen: &&Arc<Frozen>| !flushed.is_some_and(|flushed| Arc::ptr_eq(frozen, flushed));
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.iter().filter(is_left).cloned().collect(),
            levels: Arc::clone(levels),
            ended_load,
        }
    }

    /// The state once all have left the index that a load which has ended replaced.
    pub(super) fn without_ended_load(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.clone(),
            levels: Arc::clone(&self.levels),
            ended_load: Sequence::ZERO,
        }
    }

    /// Records of the fast tier may be older than what a bulk load has of their keys.
    pub fn has_loads(&self) -> bool {
        self.ended_load.max(self.levels.newest_ingest_of_all()) > Sequence::ZERO
    }

    /// Nothing has been written since everything was flushed, or the store `rests`.
    pub fn is_calm(&self, rests: bool) -> bool {
        self.frozen.is_empty() && (rests || self.active.count() == 0)
    }

    /// There may be one memtable more beside the active one, which has `active_bytes`, where each
    /// is meant to have `memtable_bytes`. Of memtables that are far larger, since a record or a
    /// batch is, one is flushed while the next is filled, and no other waits beside it.
    pub fn has_room_for_memtable(&self, active_bytes: u64, memtable_bytes: u64) -> bool {
        let frozen_bytes: u64 = self.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum();
        self.frozen.is_empty()
            || (self.frozen.len() as u64) < MEMTABLES - 1
                && frozen_bytes + active_bytes <= MEMTABLES * memtable_bytes
    }

    /// The oldest sequence that a memtable has; none where all are empty. Flushes take the oldest
    /// memtable first, and a bulk load begins when all are flushed: what is newer is in memtables.
    pub fn oldest_in_memory(&self) -> Option<Sequence> {
        let memtables = self.frozen.iter().rev().map(|frozen| &frozen.memtable);
        memtables.chain([&self.active]).find_map(|memtable| memtable.first_sequence())
    }

    /// The newest version of `key` at or before `snapshot` in a memtable.
    pub fn get_in_memory(&self, key: &[u8], snapshot: Sequence) -> Option<(Trailer, Bytes)> {
        let oldest_first = planted(Planted::FrozenReadOldestFirst);
        let oldest = oldest_first.then(|| self.frozen.last()).flatten();
        let oldest = || oldest?.memtable.get(key, snapshot);
        self.active
            .get(key, snapshot)
            .or_else(oldest)
            .or_else(|| self.frozen.iter().find_map(|frozen| frozen.memtable.get(key, snapshot)))
    }
}
