//! Merges that give space back: tombstones go down to what they hide, and end at the bottom.
//!
//! Sizes of levels alone leave deleted records where they are: once everything is deleted, a few
//! tables of tombstones lie over all the data, no level is too large, and no merge is due. So a
//! merge is also worth it where it frees a share of what it rewrites ([`GAIN_SHARE`]):
//!
//! ```text
//!   tables over others    a tombstone may hide one record below:  min(tombstones, records below)
//!   tables over nothing   the tombstones themselves
//! at rest also            records that hide one below, by an estimate (`overwrites.rs`), and
//!                         versions that are older than another one of their table
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
use crate::compaction::view::{View, Writing};
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::{Levels, may_overlap};
use crate::table_set::table::{Table, TableMeta};
use std::sync::Arc;

/// A merge frees one in so many of the bytes that it rewrites, or it is not worth it.
const GAIN_SHARE: u64 = 4;

/// What a search for space comes to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reclaim {
    /// The merge that frees most for each byte that it rewrites.
    pub selection: Option<Selection>,
    /// A merge of this table may be worth it, if it hides enough of what lies below.
    pub look: Option<Arc<Table>>,
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

/// Entries of some tables that are reasons for a merge.
#[derive(Clone, Copy, Debug, Default)]
struct Reasons {
    deletes: u64,
    /// Older than others of their keys in the same table.
    older: u64,
    /// Records that hide one in a table below.
    overwrites: u64,
    /// Records that may, in tables that no look was taken at.
    unknown: u64,
}

impl Reasons {
    /// Of tables of a level. While there are writes only tombstones are reasons.
    fn of(view: &View<'_>, level: usize, tables: &[Arc<Table>]) -> Self {
        let mut it = Self::default();
        for table in tables {
            let meta = &table.meta;
            it.deletes += meta.deletes;
            if view.writing == Writing::GoesOn {
                continue;
            }
            it.older += meta.older_versions;
            match table.overwrites() {
                Some(records) => it.overwrites += records,
                None if lies_over_others(view.levels, level, meta) => {
                    it.unknown += records_of(meta);
                }
                None => {}
            }
        }
        it
    }

    /// If all that is unknown hides something.
    fn at_most(self) -> Self {
        Self { overwrites: self.overwrites + self.unknown, unknown: 0, ..self }
    }
}

/// Keys of the table that are not deleted in it.
pub(crate) fn records_of(meta: &TableMeta) -> u64 {
    meta.entries.saturating_sub(meta.deletes + meta.older_versions)
}

/// Some older table may have a key of this one of `level`.
fn lies_over_others(levels: &Levels, level: usize, meta: &TableMeta) -> bool {
    let (first, last) = (meta.smallest_key.as_slice(), meta.largest_key.as_slice());
    let is_it = |table: &&Arc<Table>| table.meta.number == meta.number;
    let beside = if may_overlap(level) { levels.level(level) } else { &[] };
    let older = beside.iter().skip_while(|table| !is_it(table)).skip(1);
    older.into_iter().any(|table| table.meta.overlaps(Some(first), Some(last)))
        || (level + 1..=levels.deepest())
            .any(|deeper| levels.overlapping_bytes(deeper, first, last) > 0)
}

/// Searches for a merge that gives space back. It is meant for when no other merge is due.
pub(crate) fn reclaim(view: &View<'_>) -> Reclaim {
    let levels = view.levels;
    let (deepest, base) = (levels.deepest(), targets(levels, view.settings).base);
    let mut found = Reclaim::default();
    let mut worthy: Vec<(u64, usize, Option<&Arc<Table>>)> = Vec::new();
    let mut weigh = |level: usize, tables: &[Arc<Table>], one: Option<_>| {
        let reasons = Reasons::of(view, level, tables);
        let gain_by = |reasons| {
            let gain = gain(levels, level, deepest.max(base), tables, reasons);
            gain.filter(|gain| gain.is_worth_it())
        };
        match gain_by(reasons) {
            Some(gain) if tables.iter().all(|table| is_seen_whole(&table.meta, view)) => {
                worthy.push((gain.per_mille(), level, one));
            }
            Some(_) => found.waits_for_snapshot = true,
            None if reasons.unknown > 0 && gain_by(reasons.at_most()).is_some() => {
                let mut unknown = tables.iter().filter(|table| table.awaits_look());
                found.look = found.look.take().or_else(|| {
                    let over_others =
                        |table: &&Arc<Table>| lies_over_others(levels, level, &table.meta);
                    unknown.find(over_others).cloned()
                });
            }
            None => {}
        }
    };
    weigh(0, levels.level(0), None);
    let is_rest = view.writing != Writing::GoesOn;
    for level in 1..=deepest {
        let may_gain = |meta: &TableMeta| {
            meta.deletes > 0 || is_rest && (level < deepest || meta.older_versions > 0)
        };
        for table in levels.level(level).iter().filter(|table| may_gain(&table.meta)) {
            weigh(level, std::slice::from_ref(table), Some(table));
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

/// What a merge of these tables of a level with what lies below them would free; none where there
/// is no reason for it.
fn gain(
    levels: &Levels,
    level: usize,
    bottom: usize,
    tables: &[Arc<Table>],
    reasons: Reasons,
) -> Option<Gain> {
    let sum = |of: fn(&TableMeta) -> u64| tables.iter().map(|table| of(&table.meta)).sum::<u64>();
    let (bytes, entries) = (sum(|meta| meta.bytes), sum(|meta| meta.entries));
    let Reasons { deletes, older, overwrites, .. } = reasons;
    if deletes + older + overwrites == 0 {
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
    let freed_below = match hidden_entries {
        0 => bytes * deletes / entries.max(1),
        hidden => (deletes + overwrites).min(hidden).saturating_mul(hidden_bytes / hidden),
    };
    let freed_within = bytes * older.min(entries) / entries.max(1);
    Some(Gain { freed: freed_below + freed_within, rewritten: bytes + next_bytes })
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
