//! Merges that give space back: tombstones go down to what they hide, and end at the bottom.
//!
//! Sizes of levels alone leave deleted records where they are: once everything is deleted, a few
//! tables of tombstones lie over all the data, no level is too large, and no merge is due. So a
//! merge is also worth it where it frees a share of what it rewrites ([`GAIN_SHARE`]):
//!
//! ```text
//!   tables over others    a tombstone may hide one record below:  min(tombstones, records below)
//!   tables over nothing   the tombstones themselves
//! ```
//! How many of the records below are hidden is not known before they are read. A wrong guess costs
//! one merge: each takes the tombstones a level down, and at the bottom they end. (RocksDB marks
//! tables with many deletions in a row; Pebble weighs the share of tombstones in blocks and ends
//! those of the bottom level.)
//!
//! Only tables that every reader sees whole are merged for this: a tombstone that is newer than a
//! snapshot stays, and would be merged again and again. Where that is the reason to wait, the end
//! of the snapshot wakes the planner.

use crate::compaction::leveled::{choose_level0, complete};
use crate::compaction::selection::Selection;
use crate::compaction::targets::targets;
use crate::compaction::view::View;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::table::{Table, TableMeta};
use std::sync::Arc;

/// A merge frees one in so many of the bytes that it rewrites, or it is not worth it.
const GAIN_SHARE: u64 = 4;

/// What a look for space comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    /// The merge that frees most for each byte that it rewrites.
    pub selection: Option<Selection>,
    /// A merge would be worth it once a snapshot is gone.
    pub waits_for_snapshot: bool,
}

/// Bytes that a merge may free, and those that it rewrites.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gain {
    pub freed: u64,
    pub rewritten: u64,
}

impl Gain {
    /// It frees the share of what it rewrites that is asked of a merge.
    pub fn is_worth_it(self) -> bool {
        self.freed > 0 && self.freed.saturating_mul(GAIN_SHARE) >= self.rewritten
    }

    /// Bytes freed for each thousand that are rewritten.
    pub fn per_mille(self) -> u64 {
        self.freed.saturating_mul(1000) / self.rewritten.max(1)
    }
}

/// Looks for a merge that gives space back. It is meant for when no other merge is due.
pub(crate) fn reclaim(view: &View<'_>) -> Reclaim {
    let levels = view.levels;
    let (deepest, base) = (levels.deepest(), targets(levels, view.settings).base);
    let mut found = Reclaim::default();
    let mut worthy: Vec<(u64, usize, Option<&Arc<Table>>)> = Vec::new();
    let mut look = |level: usize, tables: &[Arc<Table>], one: Option<_>| {
        if !gain(levels, level, deepest.max(base), tables).is_some_and(Gain::is_worth_it) {
            return;
        }
        if tables.iter().all(|table| is_seen_whole(&table.meta, view)) {
            let gain = gain(levels, level, deepest.max(base), tables);
            worthy.push((gain.map_or(0, Gain::per_mille), level, one));
        } else {
            found.waits_for_snapshot = true;
        }
    };
    look(0, levels.level(0), None);
    for level in 1..=deepest {
        for table in levels.level(level).iter().filter(|table| table.meta.deletes > 0) {
            look(level, std::slice::from_ref(table), Some(table));
        }
    }
    worthy.sort_by_key(|(gain, ..)| std::cmp::Reverse(*gain));
    found.selection = worthy.into_iter().find_map(|(_, level, table)| match table {
        None => choose_level0(view, base),
        Some(table) if level == deepest => at_bottom(view, level, table),
        Some(table) => complete(view, level, level + 1, vec![Arc::clone(table)]),
    });
    found
}

/// Every reader sees all of the table, so what it hides is hidden from all of them.
fn is_seen_whole(meta: &TableMeta, view: &View<'_>) -> bool {
    meta.ingested_at.unwrap_or(meta.largest_sequence) <= view.oldest_read
}

/// What a merge of these tables of a level with what lies below them would free; none where they
/// have no tombstones.
fn gain(levels: &Levels, level: usize, bottom: usize, tables: &[Arc<Table>]) -> Option<Gain> {
    let sum = |of: fn(&TableMeta) -> u64| tables.iter().map(|table| of(&table.meta)).sum::<u64>();
    let (bytes, entries) = (sum(|meta| meta.bytes), sum(|meta| meta.entries));
    let deletes = sum(|meta| meta.deletes);
    if deletes == 0 {
        return None;
    }
    let first = tables.iter().map(|table| table.meta.smallest_key.as_slice()).min()?;
    let last = tables.iter().map(|table| table.meta.largest_key.as_slice()).max()?;
    let below = |level: usize| levels.overlapping(level, Some(first), Some(last));
    let (mut hidden_bytes, mut hidden_entries, mut next_bytes) = (0, 0, 0);
    for deeper in level + 1..=bottom.max(level) {
        let tables = below(deeper);
        let bytes = tables.iter().map(|table| table.meta.bytes).sum::<u64>();
        hidden_bytes += bytes;
        hidden_entries += tables.iter().map(|table| table.meta.entries).sum::<u64>();
        if next_bytes == 0 {
            next_bytes = bytes;
        }
    }
    if may_overlap(level) {
        // Tables of level 0 may hide records of each other.
        hidden_entries += entries - deletes;
        hidden_bytes += bytes * (entries - deletes) / entries.max(1);
    }
    let freed = match hidden_entries {
        0 => bytes * deletes / entries.max(1),
        entries => deletes.min(entries).saturating_mul(hidden_bytes / entries),
    };
    Some(Gain { freed, rewritten: bytes + next_bytes })
}

/// A table of the deepest level by itself: its tombstones hide nothing any more.
fn at_bottom(view: &View<'_>, level: usize, table: &Arc<Table>) -> Option<Selection> {
    let range = KeyRange::spanning(&table.meta.smallest_key, &table.meta.largest_key);
    let is_free = view.is_free(table) && !view.claims.meet(level, &range);
    let inputs = vec![(level, Arc::clone(table))];
    is_free.then_some(Selection { inputs, output_level: level, range })
}

#[cfg(test)]
mod tests;
