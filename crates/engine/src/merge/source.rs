//! The sorted inputs of a merge.

use super::level_cursor::LevelCursor;
use super::target::{Arrived, Target};
use crate::error::{Error, Result};
use crate::generations::memtable::MemtableCursor;
use bytes::Bytes;
use std::fmt::Debug;
use thermocline_foundation::FileNumber;
use thermocline_table::{AwaitedRead, TableIterator, Trailer};

/// Records that a layout keeps beside memtables and tables, in the order of a merge.
pub(crate) trait RecordSource: Send + Debug {
    /// The entry at hand.
    fn current(&self) -> Option<(&[u8], Trailer)>;

    /// Its value, to be kept; empty for a delete.
    fn value(&self) -> Bytes;

    /// Its value, to be looked at and not kept.
    fn value_slice(&self) -> &[u8];

    /// The table that has it.
    fn table(&self) -> Option<FileNumber> {
        None
    }

    /// Why the entry at hand has no value: its bytes are damaged. The source goes on behind it.
    fn damage(&self) -> Option<&Error> {
        None
    }

    /// Moves to where `to` says.
    fn position(&mut self, to: Target<'_>) -> Result<()>;

    /// Moves on by one entry, in the direction of the last positioning.
    fn step(&mut self, forward: bool) -> Result<()>;

    /// Records have left this source for tables that the merge does not have: the merge must be
    /// made anew.
    fn is_stale(&self) -> bool;
}

/// One sorted input of a merge.
#[derive(Debug)]
pub(crate) enum Source {
    Memtable(MemtableCursor),
    /// Records that the layout keeps beside tables.
    Records(Box<dyn RecordSource>),
    /// Boxed: an open table iterator is large, and a scan has as many sources as there are tables
    /// in level 0.
    Level(Box<LevelCursor>),
}

impl Source {
    pub(super) fn current(&self) -> Option<(&[u8], Trailer)> {
        match self {
            Self::Memtable(cursor) => cursor.entry().map(|entry| (entry.key(), entry.trailer())),
            Self::Records(cursor) => cursor.current(),
            Self::Level(cursor) => cursor.current(),
        }
    }

    pub(super) fn value(&self) -> Bytes {
        match self {
            Self::Memtable(cursor) => cursor.entry().map(|entry| entry.value()).unwrap_or_default(),
            Self::Records(cursor) => cursor.value(),
            Self::Level(cursor) => {
                cursor.open.as_ref().map(TableIterator::value).unwrap_or_default()
            }
        }
    }

    pub(super) fn value_slice(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.entry().map_or(&[], |entry| entry.value_slice()),
            Self::Records(cursor) => cursor.value_slice(),
            Self::Level(cursor) => cursor.open.as_ref().map_or(&[], TableIterator::value_slice),
        }
    }

    /// Moves the source, or says which read it waits for, after which it is to go on.
    pub(super) fn begin(&mut self, to: Target<'_>) -> Result<Option<AwaitedRead>> {
        match self {
            Self::Level(cursor) => {
                let begun = cursor.begin(to);
                return cursor.after_move(begun);
            }
            Self::Records(cursor) => cursor.position(to)?,
            Self::Memtable(cursor) => match to {
                Target::First => cursor.seek_to_first(),
                Target::Last => cursor.seek_to_last(),
                Target::From(key) => cursor.seek(key),
                Target::UpTo(key) => cursor.seek_up_to(key),
                Target::Before(key) => cursor.seek_before(key),
            },
        }
        Ok(None)
    }

    /// On with what came of the read that [`Source::begin`] waits for.
    pub(super) fn go_on(
        &mut self,
        to: Target<'_>,
        arrived: Arrived,
    ) -> Result<Option<AwaitedRead>> {
        let Self::Level(cursor) = self else { return Ok(None) };
        let moved = cursor.go_on(to, arrived);
        cursor.after_move(moved)
    }

    pub(super) fn step(&mut self, forward: bool) -> Result<()> {
        match self {
            Self::Memtable(cursor) if forward => cursor.next(),
            Self::Memtable(cursor) => cursor.prev(),
            Self::Records(cursor) => return cursor.step(forward),
            Self::Level(cursor) => {
                let stepped = cursor.step(forward);
                return cursor.after_move(stepped);
            }
        }
        Ok(())
    }

    pub(super) fn table(&self) -> Option<FileNumber> {
        match self {
            Self::Memtable(_) => None,
            Self::Records(records) => records.table(),
            Self::Level(cursor) => cursor.table(),
        }
    }

    pub(super) fn damage(&self) -> Option<&Error> {
        match self {
            Self::Records(records) => records.damage(),
            Self::Memtable(_) | Self::Level(_) => None,
        }
    }

    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Records(records) if records.is_stale())
    }
}
