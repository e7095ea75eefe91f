//! Which tables are merged: scripts of tables, and what merges of a whole load come to.

use super::*;
use crate::compaction::sequentiality::{leaf_scan_keys, scattered};
use crate::support::{one_tier, stepped};
use std::collections::BTreeMap;
use thermocline_foundation::random::Random;

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
        by_live: true,
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

#[test]
fn without_the_rule_of_live_records_only_scattered_tables_are_merged_and_dead_ones_leave() {
    let rows: [Row; 7] = [
        (("a", "f"), 100, 0, 20, (1, 10)),
        (("a", "f"), 100, 40, 20, (11, 20)),
        (("a", "f"), 100, 0, 30, (21, 30)),
        (("a", "f"), 100, 0, 100, (31, 40)),
        (("a", "f"), 100, 0, 100, (41, 50)),
        (("a", "f"), 100, 0, 100, (51, 60)),
        (("a", "f"), 100, 0, 0, (61, 70)),
    ];
    let mut counts = counts(&rows, &[], MergeOrder::Sparsest);
    counts.by_live = false;
    assert_eq!((numbers(&counts.choose()), numbers(&counts.dead())), (vec![], vec![7]));
    counts.scattered = (1..=6).map(FileNumber).collect();
    assert_eq!(counts.choose().len(), 6);
    assert!(counts.is_for_order(&counts.choose()));
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
    let rows =
        [dense("a", "m"), dense("a", "n"), dense("c", "z"), dense("o", "z"), { dense("p", "z") }];
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
    let over = |key: usize| tables.iter().filter(move |table| table[0] <= key && key <= table[19]);
    assert!((0..400).all(|key| over(key).count() <= 8) && merges > 1, "{tables:?}");
}

/// A store of which keys come in random order, with the merges that its rules ask for.
struct Load {
    db: crate::Db,
    /// Keys of each table, ascending.
    tables: BTreeMap<u64, Vec<usize>>,
    names: Vec<String>,
    scattered: BTreeSet<FileNumber>,
    /// Keys of a table that a merge makes.
    table_keys: usize,
    walk_from: usize,
    next: u64,
    merged_keys: usize,
    merges: usize,
}

impl Load {
    fn new(keys: usize, table_keys: usize) -> Self {
        Self {
            db: stepped(&one_tier()),
            tables: BTreeMap::new(),
            names: (0..keys).map(|key| format!("{key:05}")).collect(),
            scattered: BTreeSet::new(),
            table_keys,
            walk_from: 0,
            next: 1,
            merged_keys: 0,
            merges: 0,
        }
    }

    fn add(&mut self, mut keys: Vec<usize>) {
        keys.sort_unstable();
        self.tables.insert(self.next, keys);
        self.next += 1;
    }

    /// A leaf scan, from where the last one ended.
    fn walk(&mut self) {
        let mut keys: Vec<_> = self
            .tables
            .iter()
            .flat_map(|(number, keys)| keys.iter().map(|key| (*key, FileNumber(*number))))
            .collect();
        keys.sort_unstable();
        let left = leaf_scan_keys(keys.len() as u64, self.tables.len() as u64);
        let first = keys.partition_point(|(key, _)| *key < self.walk_from);
        let end = (first + left).min(keys.len());
        self.walk_from = keys.get(end).map_or(0, |(key, _)| *key);
        let passed = keys[first..end].iter().map(|(_, table)| *table).collect();
        self.scattered.extend(scattered(passed));
    }

    /// Whether there was something to merge.
    fn merge(&mut self) -> bool {
        let store = &self.db.engine().versions().store;
        let counted = |(number, keys): (&u64, &Vec<usize>)| {
            let ends = (&self.names[keys[0]][..], &self.names[keys[keys.len() - 1]][..]);
            let entries = keys.len() as u64;
            let meta = meta(FileNumber(*number), ends, (entries, 0), (1, 10));
            let table = Arc::new(Table::new(meta, Arc::clone(store)));
            Counted { table, live: entries, kept: entries, is_claimed: false }
        };
        let is_there = |number: &FileNumber| self.tables.contains_key(&number.0);
        let counts = Counts {
            tables: self.tables.iter().map(counted).collect(),
            waiting: Vec::new(),
            past: Vec::new(),
            scattered: self.scattered.iter().copied().filter(is_there).collect(),
            order: MergeOrder::Sparsest,
            by_overlap: true,
            by_live: true,
        };
        let chosen = counts.choose();
        if chosen.is_empty() {
            return false;
        }
        assert!(counts.is_for_order(&chosen), "nothing is replaced");
        self.scattered.clear();
        self.merges += 1;
        let mut merged: Vec<usize> = Vec::new();
        for table in chosen {
            merged.extend(self.tables.remove(&table.meta.number.0).unwrap());
        }
        self.merged_keys += merged.len();
        merged.sort_unstable();
        merged.chunks(self.table_keys).for_each(|keys| self.add(keys.to_vec()));
        true
    }

    /// Tables over a key, on average.
    fn depth(&self) -> f64 {
        let width = |keys: &Vec<usize>| keys[keys.len() - 1] - keys[0] + 1;
        self.tables.values().map(width).sum::<usize>() as f64 / self.names.len() as f64
    }
}

/// Keys that merges wrote for each that came in, and tables over a key at the end, of a load of so
/// many `memtables` that merges cut after so many of them.
fn merges_of_a_load(memtables: usize, cut: usize, has_leaf_scans: bool) -> (f64, f64) {
    const KEYS: usize = 100;
    let mut load = Load::new(memtables * KEYS, cut * KEYS);
    let mut random = Random::new(7);
    let mut keys: Vec<usize> = (0..memtables * KEYS).collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    for memtable in keys.chunks(KEYS) {
        load.add(memtable.to_vec());
        loop {
            if has_leaf_scans {
                load.walk();
            }
            if !load.merge() {
                break;
            }
        }
    }
    (load.merged_keys as f64 / load.names.len() as f64, load.depth())
}

/// What the selectors make of a load in which no record is ever replaced.
#[test]
fn new_keys_in_random_order_are_merged_for_order_alone_and_in_full_groups() {
    assert_eq!(merges_of_a_load(32, 1, false).0, 0.0, "leaf scans alone name tables");
    assert_eq!(merges_of_a_load(10, 1, true).0, 0.0, "ten tables are not scattered");
    for (memtables, most) in [(32, 1.05), (64, 1.9), (128, 2.5)] {
        let (written, depth) = merges_of_a_load(memtables, 1, true);
        assert!(written <= most && depth <= 14.0, "{memtables}: {written}, {depth} over a key");
    }
    // With tables as long as a merge makes them each takes in what the last one made.
    let (cut, uncut) = (merges_of_a_load(32, 1, true).0, merges_of_a_load(32, 8, true).0);
    assert!(cut * 1.3 < uncut, "{cut}, and {uncut} with long tables");
}
