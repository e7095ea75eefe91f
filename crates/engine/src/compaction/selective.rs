//! Which tables of one level that may overlap are merged (SLM-DB, section 3.3): those of whose
//! records few are live, by what an index of all tables counts.
//!
//! ```text
//!   dead     no entry of the index names the table: it leaves without a merge
//!   sparse   fewer than 70 % of its records are live, tombstones that hide nothing not counted
//!   first    the sparsest (or the oldest), with the next ones, up to eight
//! ```
//! 1. Nothing is chosen while a reader may ask for less than all that tables have: a merge would
//!    keep what is not live, and choose its own output again.
//! 2. A merge is told of the index, so its output has live records alone: it is not chosen again
//!    before others replace some of them. So work ends.
//! 3. Tombstones count as dead if nothing lies below their table, or something older that was
//!    written after it: that may lack what they hid. What is merged is written after all that lies
//!    below, and so waits for the next change there. Of two tables whose sequences interleave only
//!    one waits for the other, or each would be merged for the other's sake for ever.
//! 4. Dead tables leave all at once: of two that had a tombstone and what it hid, neither stays.
//!    One with tombstones stays while a table below it does, which may have what they hide: a merge
//!    that was cut off may have emptied the one and not the other. It is merged again.

use crate::environment::experiments::MergeOrder;
use crate::table_set::table::{Table, TableMeta};
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Sequence};

/// Of a table's records so many in a hundred are live, or it is merged.
const LIVE_PERCENT: u64 = 70;
/// Tables of a merge at most.
pub(crate) const MERGE_TABLES: usize = 8;

/// An entered table, and how many entries of the index name it.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub table: Arc<Table>,
    pub live: u64,
    /// A merge has it.
    pub is_claimed: bool,
}

/// What a chooser looks at.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub tables: Vec<Counted>,
    /// Tables that are not entered.
    pub waiting: Vec<Arc<Table>>,
    /// The newest record of any table, entered or not.
    pub newest: Sequence,
    /// The oldest sequence that a reader may ask for.
    pub oldest_read: Sequence,
    pub order: MergeOrder,
}

impl Counts {
    /// A reader may ask for versions that the index does not name.
    pub fn wait_for_reader(&self) -> bool {
        self.oldest_read < self.newest
    }

    /// Tables that leave without a merge.
    pub fn dead(&self) -> Vec<Arc<Table>> {
        let is_empty = |it: &&Counted| it.live == 0 && !it.is_claimed;
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
        let mut found: Vec<_> =
            self.tables.iter().filter(is_free).filter(|it| self.is_sparse(it)).collect();
        found.sort_by_key(|it| match self.order {
            MergeOrder::Sparsest => (share(it), it.table.meta.number),
            MergeOrder::Oldest => (it.table.meta.largest_sequence.0, it.table.meta.number),
        });
        found.iter().take(MERGE_TABLES).map(|it| Arc::clone(&it.table)).collect()
    }

    fn is_sparse(&self, counted: &Counted) -> bool {
        let meta = &counted.table.meta;
        let are_few = |live: u64| live * 100 < meta.entries * LIVE_PERCENT;
        are_few(counted.live)
            || are_few(counted.live.saturating_sub(meta.deletes)) && self.may_hide_nothing(counted)
    }

    /// Whether a merge may drop tombstones of the table.
    fn may_hide_nothing(&self, counted: &Counted) -> bool {
        let meta = &counted.table.meta;
        let mut below = self.all().filter(|table| lies_below(meta, &table.meta)).peekable();
        let is_lowest = below.peek().is_none();
        let is_later = |table: &Arc<Table>| {
            table.meta.number > meta.number && table.meta.largest_sequence < meta.largest_sequence
        };
        meta.deletes > 0 && (is_lowest || below.any(is_later))
    }
}

/// `other` may have records that tombstones of the table `meta` hide.
fn lies_below(meta: &TableMeta, other: &TableMeta) -> bool {
    other.number != meta.number
        && other.smallest_sequence < meta.largest_sequence
        && other.overlaps(Some(&meta.smallest_key), Some(&meta.largest_key))
}

/// Live records in ten thousand.
fn share(counted: &Counted) -> u64 {
    counted.live * 10_000 / counted.table.meta.entries.max(1)
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
    use crate::support::{one_tier, stepped};

    /// A table: its keys, entries, tombstones among them, live entries, and its sequences.
    type Row = ((&'static str, &'static str), u64, u64, u64, (u64, u64));

    /// The tables of `rows`, numbered from 1 on, those of `waiting` not entered.
    fn counts(rows: &[Row], waiting: &[u64], order: MergeOrder) -> Counts {
        let db = stepped(&one_tier());
        let mut found = Counts {
            tables: Vec::new(),
            waiting: Vec::new(),
            newest: Sequence(100),
            oldest_read: Sequence(100),
            order,
        };
        for (row, number) in rows.iter().zip(1..) {
            let ((first, last), entries, deletes, live, (oldest, newest)) = *row;
            let meta = TableMeta {
                number: FileNumber(number),
                bytes: entries * 100,
                entries,
                deletes,
                smallest_key: first.into(),
                largest_key: last.into(),
                smallest_sequence: Sequence(oldest),
                largest_sequence: Sequence(newest),
                ingested_at: None,
            };
            let table = Arc::new(Table::new(meta, Arc::clone(&db.engine().versions().store)));
            match waiting.contains(&number) {
                true => found.waiting.push(table),
                false => found.tables.push(Counted { table, live, is_claimed: false }),
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

    #[test]
    fn a_reader_of_the_past_is_waited_for() {
        let found = counts(&[], &[], MergeOrder::Sparsest);
        assert!(!found.wait_for_reader());
        assert!(Counts { oldest_read: Sequence(99), ..found }.wait_for_reader());
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
}
