//! Walks tables in key order.

use super::target::{Arrived, Target};
use crate::error::Result;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_table::{AwaitedRead, ReadAhead, TableIterator, Trailer};

/// The disjoint tables that a cursor walks, in key order.
#[derive(Debug)]
pub(crate) enum Tables {
    /// A whole disjoint level, shared with the state it is of: a short scan must not touch the
    /// reference count of every table there is.
    Level(Arc<Levels>, usize),
    Listed(Vec<Arc<Table>>),
}

impl Tables {
    fn slice(&self) -> &[Arc<Table>] {
        match self {
            Self::Level(levels, level) => levels.level(*level),
            Self::Listed(tables) => tables,
        }
    }
}

/// Walks disjoint tables in key order as if they were one; a single table is the smallest case.
/// Opens one at a time.
#[derive(Debug)]
pub(crate) struct LevelCursor {
    tables: Tables,
    read_ahead: ReadAhead,
    index: usize,
    pub(super) open: Option<TableIterator>,
}

impl LevelCursor {
    pub fn new(tables: Tables, read_ahead: ReadAhead) -> Self {
        Self { tables, read_ahead, index: 0, open: None }
    }

    pub(super) fn current(&self) -> Option<(&[u8], Trailer)> {
        let open = self.open.as_ref().filter(|open| open.valid())?;
        Some((open.key(), self.tables.slice()[self.index].trailer(open.trailer())))
    }

    pub(super) fn table(&self) -> Option<FileNumber> {
        self.open.as_ref().map(|_| self.tables.slice()[self.index].meta.number)
    }

    fn enter(&mut self, index: usize) -> Result<()> {
        if self.open.is_none() || self.index != index {
            self.open = Some(self.tables.slice()[index].reader()?.iter(self.read_ahead));
            self.index = index;
        }
        Ok(())
    }

    /// The table to look in.
    fn table_for(&self, to: Target<'_>) -> Option<usize> {
        let tables = self.tables.slice();
        match to {
            Target::First => Some(0).filter(|_| !tables.is_empty()),
            Target::Last => tables.len().checked_sub(1),
            Target::From(key) => {
                let index = tables.partition_point(|table| table.meta.largest_key.as_slice() < key);
                Some(index).filter(|index| *index < tables.len())
            }
            Target::UpTo(key) => tables
                .partition_point(|table| table.meta.smallest_key.as_slice() <= key)
                .checked_sub(1),
            Target::Before(key) => tables
                .partition_point(|table| table.meta.smallest_key.as_slice() < key)
                .checked_sub(1),
        }
    }

    pub(super) fn begin(&mut self, to: Target<'_>) -> Result<Option<AwaitedRead>> {
        let Some(index) = self.table_for(to) else {
            self.open = None;
            return Ok(None);
        };
        self.enter(index)?;
        self.seek(to)
    }

    pub(super) fn go_on(
        &mut self,
        to: Target<'_>,
        (awaited, read): Arrived,
    ) -> Result<Option<AwaitedRead>> {
        if let Some(open) = &mut self.open {
            open.supply(&awaited, read)?;
        }
        self.seek(to)
    }

    fn seek(&mut self, to: Target<'_>) -> Result<Option<AwaitedRead>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let awaited = open.begin(|open| match to {
            Target::First => open.seek_to_first(),
            Target::Last => open.seek_to_last(),
            Target::From(key) => open.seek(key, Sequence::MAX),
            Target::UpTo(key) => open.seek_for_prev(key, Sequence::ZERO),
            Target::Before(key) => open.seek_for_prev(key, Sequence::MAX),
        })?;
        if awaited.is_none() {
            self.skip_exhausted(to.is_forward())?;
        }
        Ok(awaited)
    }

    /// What a move comes to: an error, unless it is taken for the end by mistake.
    #[inline]
    pub(super) fn after_move<T: Default>(&mut self, moved: Result<T>) -> Result<T> {
        if planted(Planted::TableReadErrorTakenForEnd) && moved.is_err() {
            self.open = None;
            return Ok(T::default());
        }
        moved
    }

    pub(super) fn step(&mut self, forward: bool) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if forward {
            open.next()?
        } else {
            open.prev()?
        }
        self.skip_exhausted(forward)
    }

    /// Goes on to the neighbouring tables while the open one has nothing left in the direction.
    fn skip_exhausted(&mut self, forward: bool) -> Result<()> {
        while self.open.as_ref().is_some_and(|open| !open.valid()) {
            let forth = 1 + usize::from(planted(Planted::NextTableSkipped));
            let neighbour =
                if forward { self.index.checked_add(forth) } else { self.index.checked_sub(1) };
            let Some(index) = neighbour.filter(|index| *index < self.tables.slice().len()) else {
                self.open = None;
                return Ok(());
            };
            self.enter(index)?;
            if let Some(open) = &mut self.open {
                if forward { open.seek_to_first()? } else { open.seek_to_last()? }
            }
        }
        Ok(())
    }
}
