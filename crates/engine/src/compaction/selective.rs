//! Which tables of one level that may overlap are merged (SLM-DB, section 3.3): those of whose
//! records few are live, by what an index of all tables counts, and those that hold neighbouring
//! keys apart.
//!
//! ```text
//!   dead        no entry of the index names the table: it leaves without a merge
//!   sparse      fewer than 70 % of its records are live, tombstones that hide nothing not counted
//!   scattered   a leaf scan or a scan of a caller named it (`sequentiality.rs`)
//!   candidates  the sparse ones, and the scattered ones; without sparse ones more than four
//!   first       the sparse one, or else scattered one, that overlaps most with all candidates;
//!               without the rule of overlaps the sparsest, or the oldest
//!   with it     candidates that it overlaps, those that it overlaps most before others, up to
//!               eight; then other sparse ones
//! ```
//! Each rule but that of dead tables can be left out (`Experiments`).
//!
//! New keys in random order lie in tables all of whose records are live, each over all keys, so
//! they are merged for order alone: by a walk that meets more than ten of them. What names tables
//! is forgotten with a merge for order, for the others it named may be few by then; and a merge
//! makes tables no longer than a flush does, so that they lie side by side and the rule of overlaps
//! leaves them alone until there are as many over each other. So merges write each byte of 32
//! memtables once, and of 128 about twice, as in the paper (section 6.2).
//! 1. What a reader of the past may still see of a table counts as live: a merge would keep it, and
//!    choose its own output again. A table whose records are all newer than such readers has
//!    nothing of theirs; of another only those records are dead that were when no such reader was.
//!    The two kinds are not merged with each other: what comes out would be of the other kind.
//! 2. A merge is told of the index, so its output has live records alone: it is not chosen again
//!    before others replace some of them. So work ends.
//! 3. Tombstones count as dead if nothing lies below their table, or something older that was
//!    written after it: that may lack what they hid. What is merged is written after all that lies
//!    below, and so waits for the next change there. Of two tables whose sequences interleave only
//!    one waits for the other, or each would be merged for the other's sake for ever.
//! 4. Dead tables leave all at once: of two that had a tombstone and what it hid, neither stays.
//!    One with tombstones stays while a table below it does, which may have what they hide: a merge
//!    that was cut off may have emptied the one and not the other. It is merged again.

use super::sequentiality::Overlaps;
use crate::environment::experiments::MergeOrder;
use crate::table_set::table::{Table, TableMeta};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};

/// Of a table's records so many in a hundred are live, or it is merged.
const LIVE_PERCENT: u64 = 70;
/// Scattered tables that wait for more: a merge of few brings little order.
pub(crate) const SCATTERED_MAX: usize = 4;
/// Candidates that are compared with each other.
const CANDIDATES_MAX: usize = 64;
/// Tables of a merge at most.
pub(crate) const MERGE_TABLES: usize = 8;

/// An entered table, and how many entries of the index name it.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub table: Arc<Table>,
    pub live: u64,
    /// Records that a merge keeps at most: live ones, and those that a reader of the past may see.
    pub kept: u64,
    /// A merge has it.
    pub is_claimed: bool,
}

/// What a chooser looks at.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub tables: Vec<Counted>,
    /// Tables that are not entered.
    pub waiting: Vec<Arc<Table>>,
    /// Sequences before the newest that readers may ask for, ascending.
    pub past: Vec<Sequence>,
    /// Tables that hold neighbouring keys apart.
    pub scattered: BTreeSet<FileNumber>,
    pub order: MergeOrder,
    /// The first table is chosen by overlaps.
    pub by_overlap: bool,
    /// Tables with few live records are merged.
    pub by_live: bool,
}

impl Counts {
    /// A reader of the past may see records of the table that the index does not name.
    pub fn is_read_in_the_past(&self, meta: &TableMeta) -> bool {
        self.past.last().is_some_and(|newest| meta.smallest_sequence <= *newest)
    }

    /// Nothing is to be done, and something will be when readers of the past have ended.
    pub fn wait_for_reader(&self) -> bool {
        if self.past.is_empty() || self.has_work() {
            return false;
        }
        let mut without = Self { past: Vec::new(), ..self.clone() };
        without.tables.iter_mut().for_each(|it| it.kept = it.live);
        without.has_work()
    }

    fn has_work(&self) -> bool {
        !self.dead().is_empty() || !self.choose().is_empty()
    }

    /// Tables that leave without a merge.
    pub fn dead(&self) -> Vec<Arc<Table>> {
        let is_unseen = |it: &Counted| it.kept == 0 || planted(Planted::SnapshotSeesLiveAlone);
        let is_empty = |it: &&Counted| it.live == 0 && is_unseen(it) && !it.is_claimed;
        let mut dead: Vec<_> =
            self.tables.iter().filter(is_empty).map(|it| Arc::clone(&it.table)).collect();
        loop {
            let gone: BTreeSet<_> = dead.iter().map(|table| table.meta.number).collect();
            let stays = |table: &&Arc<Table>| !gone.contains(&table.meta.number);
            let staying: Vec<_> = self.all().filter(stays).collect();
            let hides_nothing = |table: &Arc<Table>| {
                let lies_below = |other: &&Arc<Table>| lies_below(&table.meta, &other.meta);
                table.meta.deletes == 0 || !staying.iter().any(lies_below)
            };
            let before = dead.len();
            dead.retain(hides_nothing);
            if dead.len() == before {
                return dead;
            }
        }
    }

    /// All tables, entered or not.
    fn all(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().map(|it| &it.table).chain(&self.waiting)
    }

    /// Tables to merge, in no order; none where nothing is worth it.
    pub fn choose(&self) -> Vec<Arc<Table>> {
        let leaving: BTreeSet<_> = self.dead().iter().map(|table| table.meta.number).collect();
        let is_free = |it: &&Counted| !it.is_claimed && !leaving.contains(&it.table.meta.number);
        let (past, now): (Vec<_>, Vec<_>) = self
            .tables
            .iter()
            .filter(is_free)
            .partition(|it| self.is_read_in_the_past(&it.table.meta));
        let chosen = self.choose_of(now, &self.scattered);
        // For order they wait for the reader.
        if chosen.is_empty() { self.choose_of(past, &BTreeSet::new()) } else { chosen }
    }

    /// Whether `chosen` are merged for the order of their keys, and nothing of them is garbage.
    pub fn is_for_order(&self, chosen: &[Arc<Table>]) -> bool {
        let chosen: BTreeSet<_> = chosen.iter().map(|table| table.meta.number).collect();
        let mut of_them = self.tables.iter().filter(|it| chosen.contains(&it.table.meta.number));
        of_them.all(|it| !self.is_sparse(it))
    }

    /// Of `tables`, those of `scattered` named for order.
    fn choose_of(
        &self,
        tables: Vec<&Counted>,
        scattered: &BTreeSet<FileNumber>,
    ) -> Vec<Arc<Table>> {
        let (mut sparse, mut others): (Vec<_>, Vec<_>) =
            tables.into_iter().partition(|it| self.is_sparse(it));
        let rank = |it: &&Counted| match self.order {
            MergeOrder::Sparsest => (share(it), it.table.meta.number),
            MergeOrder::Oldest => (it.table.meta.largest_sequence.0, it.table.meta.number),
        };
        sparse.sort_by_key(rank);
        others.retain(|it| scattered.contains(&it.table.meta.number));
        others.sort_by_key(rank);
        if sparse.is_empty() && others.len() <= SCATTERED_MAX {
            return Vec::new();
        }
        let firsts = if sparse.is_empty() { others.len() } else { sparse.len() };
        let mut candidates = [sparse, others].concat();
        candidates.truncate(CANDIDATES_MAX);
        let firsts = firsts.min(candidates.len());
        self.merged(&candidates, firsts)
    }

    /// Of `candidates` one of the first `firsts`, and what is merged with it.
    fn merged(&self, candidates: &[&Counted], firsts: usize) -> Vec<Arc<Table>> {
        let overlaps = Overlaps::of(candidates.iter().map(|it| &it.table.meta).collect());
        let first = if self.by_overlap {
            (0..firsts).min_by_key(|at| Reverse(overlaps.total(*at))).unwrap_or_default()
        } else {
            let leads = |at: &usize| self.is_sparse(candidates[*at]) || overlaps.total(*at) > 0;
            (0..firsts).find(leads).unwrap_or_default()
        };
        let others = || (0..candidates.len()).filter(|at| *at != first);
        let mut with: Vec<_> = others().filter(|at| overlaps.ratio(first, *at) > 0).collect();
        if self.by_overlap {
            with.sort_by_key(|at| Reverse(overlaps.ratio(first, *at)));
        }
        let is_sparse = self.is_sparse(candidates[first]);
        if is_sparse && candidates[first].kept < candidates[first].table.meta.entries {
            let is_apart = |at: &usize| *at < firsts && overlaps.ratio(first, *at) == 0;
            with.extend(others().filter(is_apart));
        }
        if with.is_empty() && !is_sparse {
            return Vec::new();
        }
        let chosen = std::iter::once(first).chain(with).take(MERGE_TABLES);
        chosen.map(|at| Arc::clone(&candidates[at].table)).collect()
    }

    fn is_sparse(&self, counted: &Counted) -> bool {
        let meta = &counted.table.meta;
        let are_few = |live: u64| self.by_live && live * 100 < meta.entries * LIVE_PERCENT;
        are_few(counted.kept)
            || are_few(counted.kept.saturating_sub(meta.deletes)) && self.may_hide_nothing(counted)
    }

    /// Whether a merge may drop tombstones of the table.
    fn may_hide_nothing(&self, counted: &Counted) -> bool {
        let meta = &counted.table.meta;
        let mut below = self.all().filter(|table| lies_below(meta, &table.meta)).peekable();
        let is_lowest = below.peek().is_none();
        let is_later = |table: &Arc<Table>| {
            table.meta.number > meta.number && table.meta.largest_sequence < meta.largest_sequence
        };
        let is_seen_by_all =
            self.past.first().is_none_or(|oldest| meta.largest_sequence <= *oldest);
        meta.deletes > 0 && is_seen_by_all && (is_lowest || below.any(is_later))
    }
}

/// `other` may have records that tombstones of the table `meta` hide.
fn lies_below(meta: &TableMeta, other: &TableMeta) -> bool {
    other.number != meta.number
        && other.smallest_sequence < meta.largest_sequence
        && other.overlaps(Some(&meta.smallest_key), Some(&meta.largest_key))
}

/// Records that stay, in ten thousand.
fn share(counted: &Counted) -> u64 {
    counted.kept * 10_000 / counted.table.meta.entries.max(1)
}

/// Numbers of `tables`, in the order of their keys, in groups of a merge each.
pub(crate) fn groups(mut tables: Vec<Arc<Table>>) -> Vec<Vec<FileNumber>> {
    tables.sort_by(|a, b| a.meta.smallest_key.cmp(&b.meta.smallest_key));
    let numbers: Vec<_> = tables.iter().map(|table| table.meta.number).collect();
    numbers.chunks(MERGE_TABLES).map(<[FileNumber]>::to_vec).collect()
}

#[cfg(test)]
mod tests;
