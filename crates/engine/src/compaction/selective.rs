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
        let are_few = |live: u64| live * 100 < meta.entries * LIVE_PERCENT;
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
mod tests {
    use super::*;
    use crate::compaction::sequentiality::scattered;
    use crate::support::{one_tier, stepped};

    /// A table: its keys, entries, tombstones among them, live entries, and its sequences.
    type Row = ((&'static str, &'static str), u64, u64, u64, (u64, u64));

    fn meta(
        number: FileNumber,
        (first, last): (&str, &str),
        (entries, deletes): (u64, u64),
        (oldest, newest): (u64, u64),
    ) -> TableMeta {
        TableMeta {
            number,
            bytes: entries * 100,
            entries,
            deletes,
            older_versions: 0,
            smallest_key: first.into(),
            largest_key: last.into(),
            smallest_sequence: Sequence(oldest),
            largest_sequence: Sequence(newest),
            ingested_at: None,
        }
    }

    /// The tables of `rows`, numbered from 1 on, those of `waiting` not entered.
    fn counts(rows: &[Row], waiting: &[u64], order: MergeOrder) -> Counts {
        let db = stepped(&one_tier());
        let mut found = Counts {
            tables: Vec::new(),
            waiting: Vec::new(),
            past: Vec::new(),
            scattered: BTreeSet::new(),
            order,
            by_overlap: true,
        };
        for (row, number) in rows.iter().zip(1..) {
            let ((first, last), entries, deletes, live, (oldest, newest)) = *row;
            let number = FileNumber(number);
            let meta = meta(number, (first, last), (entries, deletes), (oldest, newest));
            let table = Arc::new(Table::new(meta, Arc::clone(&db.engine().versions().store)));
            match waiting.contains(&number.0) {
                true => found.waiting.push(table),
                false => {
                    found.tables.push(Counted { table, live, kept: live, is_claimed: false });
                }
            }
        }
        found
    }

    fn numbers(tables: &[Arc<Table>]) -> Vec<u64> {
        tables.iter().map(|table| table.meta.number.0).collect()
    }

    fn chosen(rows: &[Row], waiting: &[u64]) -> Vec<u64> {
        numbers(&counts(rows, waiting, MergeOrder::Sparsest).choose())
    }

    #[test]
    fn the_sparsest_tables_come_first_and_dense_and_dead_ones_are_not_merged() {
        let rows: [Row; 4] = [
            (("a", "f"), 100, 0, 69, (1, 10)),
            (("a", "f"), 100, 0, 70, (11, 20)),
            (("a", "f"), 100, 0, 20, (21, 30)),
            (("a", "f"), 100, 0, 0, (31, 40)),
        ];
        assert_eq!(chosen(&rows, &[]), [3, 1]);
        assert_eq!(numbers(&counts(&rows, &[], MergeOrder::Oldest).choose()), [1, 3]);
        assert_eq!(numbers(&counts(&rows, &[], MergeOrder::Oldest).dead()), [4]);
        let mut claimed = counts(&rows, &[], MergeOrder::Sparsest);
        claimed.tables.iter_mut().for_each(|it| it.is_claimed = true);
        assert!(claimed.choose().is_empty() && claimed.dead().is_empty());
        let many = [rows[2]; 20];
        assert_eq!(chosen(&many, &[]).len(), MERGE_TABLES);
    }

    /// A merge was cut off when the tombstones were released and what they hid was not yet.
    #[test]
    fn an_emptied_table_of_tombstones_is_merged_while_what_it_hides_stays() {
        let below: Row = (("a", "f"), 300, 0, 100, (1, 40));
        let emptied: Row = (("c", "z"), 100, 64, 0, (50, 90));
        let found = |rows: &[Row], waiting: &[u64]| {
            let counts = counts(rows, waiting, MergeOrder::Sparsest);
            (numbers(&counts.dead()), numbers(&counts.choose()))
        };
        assert_eq!(found(&[below, emptied], &[]), (vec![], vec![2, 1]));
        assert_eq!(found(&[below, emptied], &[1]), (vec![], vec![2]));
        // Both leave, or it hides nothing.
        let dead_below: Row = (("a", "f"), 300, 0, 0, (1, 40));
        assert_eq!(found(&[dead_below, emptied], &[]), (vec![1, 2], vec![]));
        let apart: Row = (("a", "b"), 100, 0, 100, (1, 40));
        assert_eq!(found(&[apart, emptied], &[]), (vec![2], vec![]));
        let without: Row = (("c", "z"), 100, 0, 0, (50, 90));
        assert_eq!(found(&[below, without], &[]), (vec![2], vec![1]));
        // One stays for the one below it, and keeps the one above.
        let above: Row = (("c", "z"), 100, 100, 0, (91, 99));
        assert_eq!(found(&[below, emptied, above], &[]), (vec![], vec![2, 3, 1]));
    }

    #[test]
    fn of_two_tables_that_interleave_not_each_is_merged_for_the_other() {
        let hidden: Row = (("a", "z"), 100, 0, 100, (1, 5));
        let wide: Row = (("a", "z"), 100, 40, 100, (6, 40));
        let within: Row = (("a", "z"), 100, 40, 100, (11, 30));
        // Numbers are given anew to what is merged, so any order comes up.
        assert_eq!(chosen(&[hidden, wide, within], &[]), [2]);
        assert_eq!(chosen(&[hidden, within, wide], &[]), [0u64; 0]);
    }

    /// Dead tables, and those that are merged, beside readers of these moments.
    fn beside(rows: &[Row], past: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut counts = counts(rows, &[], MergeOrder::Sparsest);
        counts.past = past.iter().map(|sequence| Sequence(*sequence)).collect();
        for at in 0..counts.tables.len() {
            if counts.is_read_in_the_past(&counts.tables[at].table.meta) {
                counts.tables[at].kept = counts.tables[at].table.meta.entries;
            }
        }
        (numbers(&counts.dead()), numbers(&counts.choose()))
    }

    #[test]
    fn what_a_reader_of_the_past_may_see_stays_and_what_is_newer_is_merged() {
        let rows: [Row; 4] = [
            (("a", "f"), 100, 0, 0, (1, 10)),
            (("a", "f"), 100, 0, 20, (5, 25)),
            (("a", "f"), 100, 0, 30, (21, 40)),
            (("a", "f"), 100, 0, 0, (30, 50)),
        ];
        assert_eq!(beside(&rows, &[]), (vec![1, 4], vec![2, 3]));
        assert_eq!(beside(&rows, &[20]), (vec![4], vec![3]));
        assert_eq!(beside(&rows, &[4, 20]), (vec![4], vec![3]));
        assert_eq!(beside(&rows, &[35]), (vec![], vec![]));
        let waits = |past: Vec<Sequence>| {
            let mut counts = counts(&rows[..2], &[], MergeOrder::Sparsest);
            counts.past = past;
            counts.tables.iter_mut().for_each(|it| it.kept = it.table.meta.entries);
            counts.wait_for_reader()
        };
        assert_eq!((waits(Vec::new()), waits(vec![Sequence(20)])), (false, true));
        // What was dead before the reader came, of tables that it sees.
        let mut known = counts(&rows, &[], MergeOrder::Sparsest);
        known.past = vec![Sequence(20)];
        known.tables.truncate(2);
        known.tables[0].kept = 10;
        assert_eq!((numbers(&known.dead()), numbers(&known.choose())), (vec![], vec![1, 2]));
    }

    #[test]
    fn tombstones_that_a_reader_of_the_past_does_not_see_are_not_dead() {
        let tombstones: Row = (("a", "f"), 100, 50, 100, (11, 20));
        assert_eq!(beside(&[tombstones], &[]).1, [1]);
        assert_eq!(beside(&[tombstones], &[5]).1, [0u64; 0]);
        assert_eq!(beside(&[tombstones], &[30]).1, [1]);
    }

    #[test]
    fn tombstones_are_dead_where_nothing_older_lies_below_that_they_were_judged_by() {
        let below: Row = (("a", "f"), 100, 0, 100, (1, 10));
        let above: Row = (("c", "z"), 100, 50, 100, (11, 20));
        // The lowest has nothing to hide.
        assert_eq!(chosen(&[above], &[]), [1]);
        // What lies below was there when the tombstones were written.
        assert_eq!(chosen(&[below, above], &[]), [0u64; 0]);
        // It was written anew since, and may lack what they hid, entered or not.
        assert_eq!(chosen(&[above, below], &[]), [1]);
        assert_eq!(chosen(&[above, below], &[2]), [1]);
        // It has other keys.
        let apart: Row = (("a", "b"), 100, 0, 100, (1, 10));
        assert_eq!(chosen(&[apart, above], &[]), [2]);
    }

    /// Numbers of what is merged where the tables `scattered` were named, by the rule of overlaps
    /// and without it.
    fn chosen_for_order(rows: &[Row], scattered: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let mut counts = counts(rows, &[], MergeOrder::Sparsest);
        counts.scattered = scattered.iter().map(|number| FileNumber(*number)).collect();
        let by_overlap = numbers(&counts.choose());
        counts.by_overlap = false;
        (by_overlap, numbers(&counts.choose()))
    }

    #[test]
    fn more_than_four_scattered_tables_are_merged_with_those_that_overlap() {
        let dense = |first, last| -> Row { ((first, last), 100, 0, 100, (1, 10)) };
        let rows = [dense("a", "m"), dense("a", "n"), dense("c", "z"), dense("o", "z"), {
            dense("p", "z")
        }];
        // The third overlaps all others; without the rule the first one begins.
        assert_eq!(chosen_for_order(&rows, &[1, 2, 3, 4, 5]), (vec![3, 4, 2, 5, 1], vec![1, 2, 3]));
        assert_eq!(chosen_for_order(&rows, &[1, 2, 3, 4]), (vec![], vec![]));
        // In order already.
        let rows = [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j")];
        let rows = rows.map(|(first, last)| dense(first, last));
        assert_eq!(chosen_for_order(&rows, &[1, 2, 3, 4, 5]), (vec![], vec![]));
        // Eight at most, and those that are claimed do not count.
        let many = [dense("a", "z"); 20];
        let all: Vec<_> = (1..=20).collect();
        assert_eq!(chosen_for_order(&many, &all).0, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_sparse_table_comes_first_and_takes_scattered_ones_that_it_overlaps() {
        let dense: Row = (("a", "z"), 100, 0, 100, (1, 10));
        let apart: Row = (("x", "z"), 100, 0, 50, (1, 10));
        let sparse: Row = (("a", "g"), 100, 0, 60, (1, 10));
        assert_eq!(chosen_for_order(&[dense, sparse], &[1]).0, [2, 1]);
        assert_eq!(chosen_for_order(&[dense, sparse], &[]).0, [2]);
        // Another sparse one joins although it lies elsewhere.
        assert_eq!(chosen_for_order(&[apart, sparse], &[]), (vec![1, 2], vec![1, 2]));
        assert_eq!(chosen_for_order(&[apart, sparse, dense], &[3]), (vec![2, 3, 1], vec![1, 3, 2]));
        // Tombstones alone draw in none of other keys: nothing goes that does not come again.
        let tombstones: Row = (("a", "g"), 100, 40, 100, (1, 10));
        let others: Row = (("h", "z"), 100, 40, 100, (1, 10));
        assert_eq!(chosen_for_order(&[tombstones, others], &[]).0, [1]);
    }

    /// Merges for order end: tables of all keys, each merge of which makes tables side by side.
    #[test]
    fn merges_for_order_end_with_few_tables_over_each_key() {
        let names: Vec<String> = (0..400).map(|key| format!("{key:03}")).collect();
        let mut tables: Vec<Vec<usize>> =
            (0..20).map(|table| (0..20).map(|key| key * 20 + table).collect()).collect();
        let mut merges = 0;
        loop {
            let row = |keys: &Vec<usize>| -> TableMeta {
                let (first, last) = (&names[keys[0]][..], &names[keys[keys.len() - 1]][..]);
                meta(FileNumber(0), (first, last), (keys.len() as u64, 0), (1, 10))
            };
            let metas: Vec<_> = tables.iter().map(row).collect();
            let store = Arc::clone(&stepped(&one_tier()).engine().versions().store);
            let counted = metas.into_iter().zip(1..).map(|(meta, number)| Counted {
                live: meta.entries,
                kept: meta.entries,
                table: {
                    let meta = TableMeta { number: FileNumber(number), ..meta };
                    Arc::new(Table::new(meta, Arc::clone(&store)))
                },
                is_claimed: false,
            });
            // As a leaf scan of two tables' keys names them, wherever it is.
            let windows = (0..10).map(|window| window * 40..(window + 1) * 40);
            let named = |keys: std::ops::Range<usize>| {
                let has = |table: &Vec<usize>| table.iter().any(|key| keys.contains(key));
                let found = tables.iter().zip(1..).filter(|(table, _)| has(table));
                scattered(found.map(|(_, number)| FileNumber(number)).collect())
            };
            let counts = Counts {
                tables: counted.collect(),
                scattered: windows.flat_map(named).collect(),
                ..counts(&[], &[], MergeOrder::Sparsest)
            };
            let chosen: BTreeSet<_> =
                counts.choose().iter().map(|table| table.meta.number.0 as usize - 1).collect();
            if chosen.is_empty() {
                break;
            }
            merges += 1;
            assert!(merges < 30, "{tables:?}");
            let mut merged: Vec<usize> =
                chosen.iter().flat_map(|at| tables[*at].iter().copied()).collect();
            merged.sort_unstable();
            let mut at = 0..;
            tables.retain(|_| at.next().is_some_and(|at| !chosen.contains(&at)));
            tables.extend(merged.chunks(20).map(<[usize]>::to_vec));
        }
        let over =
            |key: usize| tables.iter().filter(move |table| table[0] <= key && key <= table[19]);
        assert!((0..400).all(|key| over(key).count() <= 8) && merges > 1, "{tables:?}");
    }
}
