//! Tables in levels (LevelDB, RocksDB; MyNVM, section 2.1): level 0 takes flushed memtables as they
//! come, each deeper level is sorted and disjoint and about ten times the one above.
//!
//! Invariants of a [`Levels`], checked by [`Levels::check`]:
//! 1. Level 0 is ordered by largest sequence, newest first. Its tables may overlap, in keys and
//!    (after an ingest) in sequences.
//! 2. Levels 1 and deeper are ordered by key and disjoint: all versions of a key are in one table
//!    of a level.
//! 3. Of two versions of a key in different levels the upper level has the newer.
//!
//! A `Levels` never changes; an edit makes another one that shares the tables.

use super::table::{Table, TableMeta, TableStore};
use crate::error::{Error, Result};
use crate::limits::LEVELS;
use crate::table_set::manifest::Edit;
use bytes::Bytes;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_table::Trailer;

/// Tables of `level` may share keys.
pub(crate) fn may_overlap(level: usize) -> bool {
    level == 0
}

/// An entry and the table it was found in.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub trailer: Trailer,
    pub value: Bytes,
    pub table: FileNumber,
}

/// One state of all tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    levels: [Vec<Arc<Table>>; LEVELS],
    /// The sequence of each level's newest ingested table; zero where there is none.
    ingested: [Sequence; LEVELS],
    /// Entries of each level.
    entries: [u64; LEVELS],
}

impl Levels {
    /// The tables of `level`, in the order of the invariants.
    pub fn level(&self, level: usize) -> &[Arc<Table>] {
        &self.levels[level]
    }

    /// All tables with their levels.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<Table>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)))
    }

    /// A snapshot at or after this sequence may see all tables of `level`. (Other tables than
    /// ingested ones hide what is too new by themselves.)
    pub fn newest_ingest(&self, level: usize) -> Sequence {
        self.ingested[level]
    }

    /// The sequence of the newest ingested table; zero where there is none.
    pub fn newest_ingest_of_all(&self) -> Sequence {
        self.ingested.iter().copied().max().unwrap_or(Sequence::ZERO)
    }

    /// The sequence of the newest bulk load of which tables are here and not in `later`; zero where
    /// there is none.
    pub fn newest_load_ended(&self, later: &Self) -> Sequence {
        if self.newest_ingest_of_all() == Sequence::ZERO || std::ptr::eq(self, later) {
            return Sequence::ZERO;
        }
        let left: BTreeSet<_> = later.tables().map(|(_, table)| table.meta.number).collect();
        let ended = self.tables().filter(|(_, table)| !left.contains(&table.meta.number));
        ended.filter_map(|(_, table)| table.meta.ingested_at).max().unwrap_or(Sequence::ZERO)
    }

    /// Entries of each level.
    pub fn entries(&self) -> &[u64; LEVELS] {
        &self.entries
    }

    /// Bytes of `level`.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.levels[level].iter().map(|table| table.meta.bytes).sum()
    }

    /// The state after `edit`. Tables of the edit's additions are made here.
    pub fn apply(&self, edit: &Edit, store: &Arc<TableStore>) -> Result<Self> {
        let mut next = self.clone();
        for (level, number) in &edit.removed {
            let tables =
                next.levels.get_mut(usize::from(*level)).ok_or_else(|| no_level(*level))?;
            let before = tables.len();
            tables.retain(|table| table.meta.number != *number);
            if tables.len() + 1 != before {
                return Err(Error::corrupt(format!(
                    "the manifest removes table {number} from level {level}, which does not have it"
                )));
            }
        }
        for (level, meta) in &edit.added {
            let tables =
                next.levels.get_mut(usize::from(*level)).ok_or_else(|| no_level(*level))?;
            // A trivial move removes and adds the same table: it stays the same object, open
            // reader included.
            let moved = edit.removed.iter().find(|(_, number)| *number == meta.number);
            let table = moved
                .and_then(|(from, number)| self.find(usize::from(*from), *number))
                .map_or_else(|| Arc::new(Table::new(meta.clone(), Arc::clone(store))), Arc::clone);
            tables.push(table);
        }
        let touched = edit.removed.iter().map(|(level, _)| *level);
        let touched: BTreeSet<u8> = touched.chain(edit.added.iter().map(|(l, _)| *l)).collect();
        for level in touched.into_iter().map(usize::from) {
            let tables = &mut next.levels[level];
            if may_overlap(level) && planted(Planted::Level0SearchedByNumber) {
                tables.sort_by_key(|table| Reverse(table.meta.number));
            } else if may_overlap(level) {
                tables
                    .sort_by_key(|table| Reverse((table.meta.largest_sequence, table.meta.number)));
            } else {
                tables.sort_by(|a, b| a.meta.smallest_key.cmp(&b.meta.smallest_key));
            }
            next.check_level(level)?;
        }
        for (level, tables) in next.levels.iter().enumerate() {
            let ingested = tables.iter().filter_map(|table| table.meta.ingested_at);
            next.ingested[level] = ingested.max().unwrap_or(Sequence::ZERO);
            next.entries[level] = tables.iter().map(|table| table.meta.entries).sum();
        }
        Ok(next)
    }

    /// The table `number` of `level`.
    pub fn find(&self, level: usize, number: FileNumber) -> Option<&Arc<Table>> {
        self.levels.get(level)?.iter().find(|table| table.meta.number == number)
    }

    /// Refuses a state that breaks invariant 2 or has a table with an impossible range.
    pub fn check(&self) -> Result<()> {
        (0..LEVELS).try_for_each(|level| self.check_level(level))
    }

    fn check_level(&self, level: usize) -> Result<()> {
        let tables = &self.levels[level];
        for table in tables {
            if table.meta.smallest_key > table.meta.largest_key {
                return Err(Error::corrupt(format!(
                    "table {} has a range that runs backwards",
                    table.meta.number
                )));
            }
        }
        if may_overlap(level) {
            return Ok(());
        }
        for pair in tables.windows(2) {
            if pair[0].meta.largest_key >= pair[1].meta.smallest_key {
                return Err(Error::corrupt(format!(
                    "tables {} and {} of level {level} overlap",
                    pair[0].meta.number, pair[1].meta.number
                )));
            }
        }
        Ok(())
    }

    /// Tables of `level` that may hold a key of `from..=to`.
    pub fn overlapping(
        &self,
        level: usize,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Vec<Arc<Table>> {
        let tables = &self.levels[level];
        if may_overlap(level) {
            return tables.iter().filter(|table| table.meta.overlaps(from, to)).cloned().collect();
        }
        let start = from.map_or(0, |from| {
            tables.partition_point(|table| table.meta.largest_key.as_slice() < from)
        });
        tables[start..]
            .iter()
            .take_while(|table| to.is_none_or(|to| table.meta.smallest_key.as_slice() <= to))
            .cloned()
            .collect()
    }

    /// Bytes of the tables of a disjoint level that overlap `from..=to`.
    pub fn overlapping_bytes(&self, level: usize, from: &[u8], to: &[u8]) -> u64 {
        let tables = &self.levels[level];
        let start = tables.partition_point(|table| table.meta.largest_key.as_slice() < from);
        tables[start..]
            .iter()
            .take_while(|table| table.meta.smallest_key.as_slice() <= to)
            .map(|table| table.meta.bytes)
            .sum()
    }

    /// The table of a disjoint level whose range has `key`.
    pub fn locate(&self, level: usize, key: &[u8]) -> Option<&Arc<Table>> {
        let tables = &self.levels[level];
        let index = tables.partition_point(|table| table.meta.largest_key.as_slice() < key);
        tables.get(index).filter(|table| table.meta.smallest_key.as_slice() <= key)
    }

    /// Tables that may hold `key` with their levels, in the order in which the newest version is
    /// met first.
    pub fn candidates<'a>(
        &'a self,
        key: &'a [u8],
    ) -> impl Iterator<Item = (usize, &'a Arc<Table>)> {
        let level0 =
            self.levels[0].iter().filter(|table| table.meta.overlaps(Some(key), Some(key)));
        let deeper = (1..LEVELS).filter_map(move |level| Some((level, self.locate(level, key)?)));
        level0.map(|table| (0, table)).chain(deeper)
    }

    /// No level below `level` has a table that may hold `key`.
    pub fn is_bottom_for(&self, level: usize, key: &[u8]) -> bool {
        (level + 1..LEVELS).all(|deeper| self.locate(deeper, key).is_none())
    }

    /// The deepest level that has tables; 0 if none has.
    pub fn deepest(&self) -> usize {
        (0..LEVELS).rev().find(|level| !self.levels[*level].is_empty()).unwrap_or(0)
    }

    /// What an empty manifest needs to say to reach this state.
    pub fn snapshot(&self) -> Vec<(u8, TableMeta)> {
        self.tables().map(|(level, table)| (level as u8, table.meta.clone())).collect()
    }
}

/// A version with the trailer `best` is known: neither `table` of `level` nor any candidate after
/// it can have a newer one. Level 0 is ordered by largest sequence and may overlap; what is deeper
/// is older (invariant 3).
pub(crate) fn settles(best: Trailer, level: usize, table: &Table) -> bool {
    let first_found = planted(Planted::Level0SearchedByNumber);
    first_found || !may_overlap(level) || best.sequence() >= table.meta.largest_sequence
}

fn no_level(level: u8) -> Error {
    Error::corrupt(format!("the manifest names level {level}; there are {LEVELS}"))
}
