//! What the index takes of the region, and what it leaves.
//!
//! 1. The first chunks are for memtables: one more of them than there may be, for one is made at an
//!    opening before those of the life before are freed.
//! 2. Behind them the index takes what it needs. A sixty-fourth of the region, and of a small one
//!    some chunks, is not for new keys, but for deletes and merges (`shared/index_room.rs`). What
//!    was acknowledged and turns out to need more may take half of that.
//! 3. Where entering finds no room the index is stuck: tables wait, and new records are refused. It
//!    is tried again when there is more room, and other tables are, one by one, those with the most
//!    tombstones first. Merges of what is not live go on until one finds no room: they make some.

use super::TableIndex;
use crate::limits::MEMTABLES;
use crate::table_set::table::Table;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_pmem::{Geometry, TreeCounts};

/// The part of a region that is for deletes, and for merges that make room; and in chunks, for keys
/// of many lengths take a chunk each.
const OF_CHANGES: u64 = 64;
const CHUNKS_OF_CHANGES: u64 = 32;
/// What an entry takes beside its key where there are too few to tell, and how many are enough.
const ENTRY_BYTES: u64 = 96;
const ENTRIES_MIN: u64 = 1 << 10;

/// Chunks of a region that the index leaves to memtables.
pub(super) fn chunks_of_arenas(geometry: &Geometry, memtable_bytes: u64) -> u64 {
    let arena_bytes = memtable_bytes.min(geometry.bytes / 8);
    let chunks = (MEMTABLES + 1) * arena_bytes.div_ceil(geometry.chunk_bytes);
    chunks.min(geometry.chunks() / 2)
}

/// Free chunks behind those that entering new keys leaves to changes: half of what writers leave.
/// Keys that were acknowledged may need more chunks than they were taken to, for those of each
/// length take some.
pub(super) fn chunks_left_by_entering(geometry: &Geometry) -> u64 {
    chunks_of_changes(geometry) / 2
}

/// Free chunks behind those that new keys leave to changes.
fn chunks_of_changes(geometry: &Geometry) -> u64 {
    let least = CHUNKS_OF_CHANGES.min(geometry.chunks() / 4);
    (geometry.chunks() / OF_CHANGES).max(least)
}

/// Entering has found no room.
#[derive(Clone, Debug)]
struct Refusal {
    /// Room that there was.
    bytes: u64,
    /// Tables that did not go in.
    tried: BTreeSet<FileNumber>,
    /// What a merge made was among them.
    is_of_merge: bool,
}

/// Whether entering goes on, and what has been merged for order.
#[derive(Debug, Default)]
pub(super) struct Course {
    refusal: Mutex<Option<Refusal>>,
    /// Bytes of tables that were merged for the order of their keys.
    pub ordered_bytes: AtomicU64,
}

impl TableIndex {
    /// Looks how much room there is, and tells writers. Says it.
    pub fn measure_room(&self) -> u64 {
        let (region, counts) = (self.tree.region(), self.tree.counts());
        let geometry = region.identity().geometry;
        let free_bytes = region.chunks().free_beside_arenas() * geometry.chunk_bytes;
        let bytes = free_bytes + counts.free_bytes;
        let left = bytes.saturating_sub(chunks_of_changes(&geometry) * geometry.chunk_bytes);
        let left = if self.is_stuck() { 0 } else { left };
        self.shared.index_room.measured(left, self.entry_bytes(&counts));
        bytes
    }

    /// Bytes that an entry takes.
    fn entry_bytes(&self, counts: &TreeCounts) -> u64 {
        if counts.objects >= ENTRIES_MIN {
            return counts.bytes.div_ceil(counts.objects);
        }
        let tables = self.tables.load();
        let longest = tables.waiting.iter().map(|table| table.meta.largest_key.len()).max();
        ENTRY_BYTES + longest.unwrap_or(0) as u64
    }

    /// There is no room for entries of what waits.
    pub fn is_stuck(&self) -> bool {
        self.course.refusal.lock().is_some()
    }

    /// What is in the index can change its place, as a merge has it.
    pub fn takes_changes(&self) -> bool {
        self.course.refusal.lock().as_ref().is_none_or(|refusal| !refusal.is_of_merge)
    }

    /// Whether what was refused is tried again, now that there is room for `bytes`.
    pub(super) fn review(&self, bytes: u64) {
        let tables = self.tables.load();
        let waits = |number: &FileNumber| tables.waiting.iter().any(|it| it.meta.number == *number);
        let is_over = {
            let mut refusal = self.course.refusal.lock();
            let is_over = |known: &Refusal| bytes > known.bytes || !known.tried.iter().any(waits);
            let is_over = refusal.as_ref().is_some_and(is_over);
            if is_over {
                *refusal = None;
            }
            is_over
        };
        if is_over {
            self.measure_room();
            self.tell_writers();
        }
    }

    /// The tables that are entered next, of those that are `free` and wait, the oldest of which
    /// comes first.
    pub(super) fn chosen(&self, free: Vec<Arc<Table>>, pass_tables: usize) -> Vec<Arc<Table>> {
        let refusal = self.course.refusal.lock();
        let Some(known) = refusal.as_ref() else {
            return free.into_iter().take(pass_tables).collect();
        };
        let is_new = |table: &Arc<Table>| !known.tried.contains(&table.meta.number);
        let tombstones = |table: &Arc<Table>| table.meta.deletes * 1000 / table.meta.entries.max(1);
        free.into_iter().filter(is_new).rev().max_by_key(tombstones).into_iter().collect()
    }

    /// Entering these `tables` has found no room.
    pub(super) fn note_refusal(&self, tables: impl Iterator<Item = FileNumber>) {
        let bytes = self.measure_room();
        {
            let mut refusal = self.course.refusal.lock();
            let none = Refusal { bytes, tried: BTreeSet::new(), is_of_merge: false };
            let known = refusal.get_or_insert(none);
            known.bytes = bytes;
            known.tried.extend(tables);
        }
        self.measure_room();
        self.tell_writers();
    }

    /// What a merge has made found no room: none begins before there is more.
    pub fn note_refused_merge(&self) {
        if let Some(known) = self.course.refusal.lock().as_mut() {
            known.is_of_merge = true;
        }
    }

    /// Tables of so many bytes are merged for the order of their keys.
    pub fn note_ordered(&self, bytes: u64) {
        self.course.ordered_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
