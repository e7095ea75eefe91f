//! Merging sorted sources into one order: key ascending, newest version first.
//!
//! Sources are memtables, single tables (of a level that may overlap) and whole disjoint levels. A
//! binary heap of source indexes has the source with the next entry on top. The same merge serves
//! scans, either way, and compactions. Errors of a source surface at the step that met them and end
//! the merge: a read error must never look like the end of the data.

use crate::compaction::demotion::LeavingCursor;
use crate::error::Result;
use crate::front::memtable::MemtableCursor;
use crate::front::slabs::cursor::SlotCursor;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use bytes::Bytes;
use std::cmp::Ordering;
use std::sync::Arc;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::{ReadAhead, TableIterator, Trailer, compare};

/// One sorted input of a merge.
#[derive(Debug)]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// Records on the fast tier that a snapshot sees.
    Slots(Box<SlotCursor>),
    /// Records of the fast tier on their way down.
    Leaving(Box<LeavingCursor>),
    /// Boxed: an open table iterator is large, and a scan has as many sources as there are tables
    /// in level 0.
    Level(Box<LevelCursor>),
}

impl Source {
    fn current(&self) -> Option<(&[u8], Trailer)> {
        match self {
            Self::Memtable(cursor) => cursor.entry().map(|entry| (entry.key(), entry.trailer())),
            Self::Slots(cursor) => cursor.current(),
            Self::Leaving(cursor) => cursor.current(),
            Self::Level(cursor) => cursor.current(),
        }
    }

    fn value(&self) -> Bytes {
        match self {
            Self::Memtable(cursor) => cursor.entry().map(|entry| entry.value()).unwrap_or_default(),
            Self::Slots(cursor) => cursor.value(),
            Self::Leaving(cursor) => Bytes::copy_from_slice(cursor.value_slice()),
            Self::Level(cursor) => {
                cursor.open.as_ref().map(TableIterator::value).unwrap_or_default()
            }
        }
    }

    fn value_slice(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.entry().map_or(&[], |entry| entry.value_slice()),
            Self::Slots(cursor) => cursor.value_slice(),
            Self::Leaving(cursor) => cursor.value_slice(),
            Self::Level(cursor) => cursor.open.as_ref().map_or(&[], TableIterator::value_slice),
        }
    }

    fn position(&mut self, to: Target<'_>) -> Result<()> {
        match self {
            Self::Level(cursor) => {
                let positioned = cursor.position(to);
                return cursor.after_move(positioned);
            }
            Self::Slots(cursor) => return cursor.position(to),
            Self::Leaving(cursor) => return cursor.begin(),
            Self::Memtable(cursor) => match to {
                Target::First => cursor.seek_to_first(),
                Target::Last => cursor.seek_to_last(),
                Target::From(key) => cursor.seek(key),
                Target::UpTo(key) => cursor.seek_up_to(key),
                Target::Before(key) => cursor.seek_before(key),
            },
        }
        Ok(())
    }

    fn step(&mut self, forward: bool) -> Result<()> {
        match self {
            Self::Memtable(cursor) if forward => cursor.next(),
            Self::Memtable(cursor) => cursor.prev(),
            Self::Slots(cursor) => return cursor.step(forward),
            Self::Leaving(cursor) => return cursor.step(),
            Self::Level(cursor) => {
                let stepped = cursor.step(forward);
                return cursor.after_move(stepped);
            }
        }
        Ok(())
    }
}

/// Where to go. No target lies between two versions of a key, so tables may show their trailers as
/// they like.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    First,
    Last,
    /// The first entry whose key is at or after this one.
    From(&'a [u8]),
    /// The last entry whose key is at or before this one.
    UpTo(&'a [u8]),
    /// The last entry whose key is before this one.
    Before(&'a [u8]),
}

impl Target<'_> {
    fn is_forward(&self) -> bool {
        matches!(self, Self::First | Self::From(_))
    }
}

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
    open: Option<TableIterator>,
}

impl LevelCursor {
    pub fn new(tables: Tables, read_ahead: ReadAhead) -> Self {
        Self { tables, read_ahead, index: 0, open: None }
    }

    fn current(&self) -> Option<(&[u8], Trailer)> {
        let open = self.open.as_ref().filter(|open| open.valid())?;
        Some((open.key(), self.tables.slice()[self.index].trailer(open.trailer())))
    }

    fn enter(&mut self, index: usize) -> Result<()> {
        if self.open.is_none() || self.index != index {
            self.open = Some(self.tables.slice()[index].reader()?.iter(self.read_ahead));
            self.index = index;
        }
        Ok(())
    }

    fn position(&mut self, to: Target<'_>) -> Result<()> {
        let tables = self.tables.slice();
        let index = match to {
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
        };
        let Some(index) = index else {
            self.open = None;
            return Ok(());
        };
        self.enter(index)?;
        let Some(open) = &mut self.open else { return Ok(()) };
        match to {
            Target::First => open.seek_to_first()?,
            Target::Last => open.seek_to_last()?,
            Target::From(key) => open.seek(key, Sequence::MAX)?,
            Target::UpTo(key) => open.seek_for_prev(key, Sequence::ZERO)?,
            Target::Before(key) => open.seek_for_prev(key, Sequence::MAX)?,
        }
        self.skip_exhausted(to.is_forward())
    }

    /// What a move comes to: an error, unless it is taken for the end by mistake.
    #[inline]
    fn after_move(&mut self, moved: Result<()>) -> Result<()> {
        if planted(Planted::TableReadErrorTakenForEnd) && moved.is_err() {
            self.open = None;
            return Ok(());
        }
        moved
    }

    fn step(&mut self, forward: bool) -> Result<()> {
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

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Merge {
    sources: Vec<Source>,
    /// Indexes of the sources that have a current entry; a binary heap by `before`.
    heap: Vec<usize>,
    forward: bool,
    /// It was put somewhere since it was made for a movement that was under way.
    positioned: bool,
}

impl Merge {
    pub fn new(sources: Vec<Source>) -> Self {
        Self { heap: Vec::with_capacity(sources.len()), sources, forward: true, positioned: true }
    }

    /// A merge that belongs to a movement which positions it, whichever way it goes.
    pub fn unpositioned(sources: Vec<Source>) -> Self {
        Self { positioned: false, ..Self::new(sources) }
    }

    /// The entry at the current position.
    pub fn current(&self) -> Option<(&[u8], Trailer)> {
        self.sources[*self.heap.first()?].current()
    }

    /// The value at the current position, shared with where it lies; empty for a delete.
    pub fn value(&self) -> Bytes {
        self.heap.first().map_or_else(Bytes::new, |top| self.sources[*top].value())
    }

    /// The value at the current position, to be looked at and not kept.
    pub fn value_slice(&self) -> &[u8] {
        self.heap.first().map_or(&[], |top| self.sources[*top].value_slice())
    }

    /// Moves all sources, and with them the merge. The direction is that of the target.
    pub fn position(&mut self, to: Target<'_>) -> Result<()> {
        self.heap.clear();
        self.forward = to.is_forward();
        self.positioned = true;
        for index in 0..self.sources.len() {
            self.sources[index].position(to)?;
            if self.sources[index].current().is_some() {
                self.heap.push(index);
            }
        }
        for slot in (0..self.heap.len() / 2).rev() {
            self.sift_down(slot);
        }
        Ok(())
    }

    /// To the next entry in the direction of the last positioning.
    pub fn step(&mut self) -> Result<()> {
        let Some(&top) = self.heap.first() else { return Ok(()) };
        if let Err(error) = self.sources[top].step(self.forward) {
            self.heap.clear();
            return Err(error);
        }
        if self.sources[top].current().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    /// Records have left a source for tables that the merge does not have; it must begin again.
    pub fn is_stale(&self) -> bool {
        let stale = |source: &Source| matches!(source, Source::Slots(slots) if slots.is_stale());
        self.sources.iter().any(stale)
    }

    /// Steps go towards larger keys.
    pub fn is_forward(&self) -> bool {
        self.forward
    }

    /// It must be positioned before it is stepped.
    pub fn is_unpositioned(&self) -> bool {
        !self.positioned
    }

    fn before(&self, a: usize, b: usize) -> bool {
        let order = match (self.sources[a].current(), self.sources[b].current()) {
            (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
                compare(a_key, a_trailer, b_key, b_trailer)
            }
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        order == if self.forward { Ordering::Less } else { Ordering::Greater }
    }

    fn sift_down(&mut self, mut slot: usize) {
        loop {
            let left = 2 * slot + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child = if right < self.heap.len() && self.before(self.heap[right], self.heap[left])
            {
                right
            } else {
                left
            };
            if !self.before(self.heap[child], self.heap[slot]) {
                return;
            }
            self.heap.swap(slot, child);
            slot = child;
        }
    }
}
