//! Which tables hold neighbouring keys apart, so that a range is read from many places (SLM-DB,
//! section 3.3), and which of them overlap most.
//!
//! ```text
//!   leaf scan    keys of the index in their order, as many as two tables have on average: more
//!                than 10 tables have them
//!   sub-range    30 keys that a scan passed: more than 8 tables had them
//!   overlap      of two tables: the common part of their ranges, divided by the range of both
//! ```
//! The numbers are the paper's (section 6.1). Both finders name tables that are merged with those
//! that they overlap; `selective.rs` says when.
//!
//! Threads: plain data.

use crate::table_set::table::TableMeta;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use thermocline_foundation::FileNumber;

/// A leaf scan passes the keys of so many tables.
const LEAF_SCAN_TABLES: u64 = 2;
/// Tables that those keys may be in.
const LEAF_SCAN_FILES: usize = 10;
/// Keys of a sub-range.
const RANGE_KEYS: usize = 30;
/// Tables that those keys may be in.
const RANGE_FILES: usize = 8;

/// Keys that a leaf scan passes in a store of so many `entries` in `tables`.
pub(crate) fn leaf_scan_keys(entries: u64, tables: u64) -> usize {
    (LEAF_SCAN_TABLES * entries / tables.max(1)) as usize
}

/// The tables of the keys that a leaf scan passed, if they are too many.
pub(crate) fn scattered(passed: BTreeSet<FileNumber>) -> BTreeSet<FileNumber> {
    if passed.len() > LEAF_SCAN_FILES { passed } else { BTreeSet::new() }
}

/// The tables of a scan's keys, a sub-range after another; of the ones before the present it keeps
/// the worst.
#[derive(Debug, Default)]
pub(crate) struct SubRanges {
    keys: usize,
    tables: SmallVec<[FileNumber; RANGE_KEYS]>,
    worst: SmallVec<[FileNumber; RANGE_KEYS]>,
}

impl SubRanges {
    /// The scan goes to the next key, which `table` has; none where a memtable has it.
    #[inline]
    pub fn pass(&mut self, table: Option<FileNumber>) {
        if let Some(table) = table
            && self.tables.last() != Some(&table)
            && !self.tables.contains(&table)
        {
            self.tables.push(table);
        }
        self.keys += 1;
        if self.keys == RANGE_KEYS {
            self.turn();
        }
    }

    /// The scan goes on elsewhere.
    pub fn turn(&mut self) {
        self.keys = 0;
        if self.tables.len() > self.worst.len() {
            std::mem::swap(&mut self.tables, &mut self.worst);
        }
        self.tables.clear();
    }

    /// The tables of the worst sub-range, if they are too many.
    pub fn scattered(mut self) -> BTreeSet<FileNumber> {
        self.turn();
        let is_scattered = self.worst.len() > RANGE_FILES;
        if is_scattered { self.worst.into_iter().collect() } else { BTreeSet::new() }
    }
}

/// By how much each two of some tables overlap.
#[derive(Debug)]
pub(crate) struct Overlaps<'a> {
    tables: Vec<&'a TableMeta>,
    /// The bytes that all keys begin with.
    prefix: usize,
}

impl<'a> Overlaps<'a> {
    pub fn of(tables: Vec<&'a TableMeta>) -> Self {
        let ends = || tables.iter().flat_map(|meta| [&meta.smallest_key[..], &meta.largest_key]);
        let same = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let prefix = match (ends().min(), ends().max()) {
            (Some(first), Some(last)) => same(first, last),
            _ => 0,
        };
        Self { tables, prefix }
    }

    /// The paper's ratio of the tables at `a` and `b`, in a million; at least 1 where they overlap.
    pub fn ratio(&self, a: usize, b: usize) -> u64 {
        let (a, b) = (self.tables[a], self.tables[b]);
        if !a.overlaps(Some(&b.smallest_key), Some(&b.largest_key)) {
            return 0;
        }
        let number = |key: &[u8]| self.number(key);
        let (a_first, a_last) = (number(&a.smallest_key), number(&a.largest_key));
        let (b_first, b_last) = (number(&b.smallest_key), number(&b.largest_key));
        let common = a_last.min(b_last) - a_first.max(b_first);
        match a_last.max(b_last) - a_first.min(b_first) {
            0 => 1_000_000,
            both => ((u128::from(common) * 1_000_000 / u128::from(both)) as u64).max(1),
        }
    }

    /// The ratios of the table at `at` with all others, added up.
    pub fn total(&self, at: usize) -> u64 {
        let others = (0..self.tables.len()).filter(|other| *other != at);
        others.map(|other| self.ratio(at, other)).sum()
    }

    /// A key as a number: eight bytes behind what all keys begin with.
    fn number(&self, key: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        let rest = &key[self.prefix.min(key.len())..];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::Sequence;

    /// What a scan over keys in these tables names; `-` is a memtable, `/` a jump.
    fn named(script: &str) -> Vec<u64> {
        let mut passed = SubRanges::default();
        for word in script.split_whitespace() {
            match word {
                "/" => passed.turn(),
                "-" => passed.pass(None),
                table => passed.pass(Some(FileNumber(table.parse().unwrap()))),
            }
        }
        passed.scattered().iter().map(|table| table.0).collect()
    }

    #[test]
    fn a_scan_names_the_tables_of_its_worst_sub_range() {
        let nothing: [u64; 0] = [];
        assert_eq!(named(""), nothing);
        assert_eq!(named("1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8"), nothing);
        assert_eq!(named("1 2 3 4 5 6 7 8 9 1 1"), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // Nine tables on both sides of a border of sub-ranges, or of a jump.
        assert_eq!(named(&format!("{} 5 6 7 8 9", "1 2 3 4 - 1 ".repeat(5))), nothing);
        assert_eq!(named("1 2 3 4 5 / 6 7 8 9 10"), nothing);
        // The worst is neither the first nor the last.
        let few = "1 2 3 ".repeat(10);
        let nine = "11 12 13 14 15 16 17 18 19 11 ".repeat(3);
        let ten = "21 22 23 24 25 26 27 28 29 30 ".repeat(3);
        let expected: Vec<u64> = (21..=30).collect();
        assert_eq!(named(&[&few[..], &nine, &ten, &nine, &few].concat()), expected);
    }

    #[test]
    fn a_leaf_scan_names_its_tables_where_more_than_ten_have_its_keys() {
        let passed = |tables: u64| (1..=tables).map(FileNumber).collect::<BTreeSet<_>>();
        assert_eq!(scattered(passed(10)), BTreeSet::new());
        assert_eq!(scattered(passed(11)), passed(11));
        assert_eq!((leaf_scan_keys(1000, 10), leaf_scan_keys(0, 0)), (200, 0));
    }

    fn meta((first, last): (&str, &str)) -> TableMeta {
        TableMeta {
            number: FileNumber(1),
            bytes: 1,
            entries: 1,
            deletes: 0,
            older_versions: 0,
            smallest_key: first.into(),
            largest_key: last.into(),
            smallest_sequence: Sequence(1),
            largest_sequence: Sequence(1),
            ingested_at: None,
        }
    }

    #[test]
    fn the_ratio_is_the_common_part_of_the_range_of_both() {
        let ratio = |a, b| {
            let (a, b) = (meta(a), meta(b));
            let overlaps = Overlaps::of(vec![&a, &b]);
            assert_eq!(overlaps.ratio(0, 1), overlaps.ratio(1, 0));
            assert_eq!(overlaps.ratio(0, 1), overlaps.total(0));
            overlaps.ratio(0, 1)
        };
        assert_eq!(ratio(("a", "e"), ("a", "e")), 1_000_000);
        assert_eq!(ratio(("a", "c"), ("b", "e")), 250_000);
        assert_eq!(ratio(("a", "e"), ("b", "d")), 500_000);
        assert_eq!(ratio(("a", "b"), ("c", "e")), 0);
        assert_eq!(ratio(("a", "a"), ("a", "a")), 1_000_000);
        assert_eq!(ratio(("a", "b"), ("b", "c")), 1, "they share one key");
        // The common prefix is left out; the eight bytes behind it decide.
        let (a, b) = (("user00000001", "user00000003"), ("user00000002", "user00000005"));
        assert_eq!(ratio(a, b), 250_000);
        assert_eq!(ratio(("user-aaaaaaaa1", "user-z"), ("user-aaaaaaaa0", "user-z")), 1_000_000);
    }
}
