//! Generations: a memtable and what makes it durable: a log of its own, or an arena of a region of
//! persistent memory.
//!
//! A generation begins when the front opens a log or an arena for a new memtable. It is *frozen*
//! when the memtable is full and takes no more writes, and ends when a flush has made its records
//! durable elsewhere: then the log is retired, the arena freed.

pub(crate) mod log_file;
pub(crate) mod memtable;

use crate::error::Result;
use log_file::LogFile;
use memtable::Memtable;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_pmem::Arena;

/// What makes a memtable durable.
#[derive(Debug)]
pub(crate) enum Generation {
    Logs(LogGeneration),
    Region(RegionGeneration),
}

/// A log, and the one that follows.
#[derive(Debug)]
pub(crate) struct LogGeneration {
    pub log: Arc<LogFile>,
    pub next: FileNumber,
}

/// An arena, and the one that follows.
#[derive(Debug)]
pub(crate) struct RegionGeneration {
    pub arena: Arc<Arena>,
    pub next: FileNumber,
}

impl Generation {
    /// A memtable that `log` makes durable; `next` is the log that follows.
    pub fn of_log(log: Arc<LogFile>, next: FileNumber) -> Self {
        Self::Logs(LogGeneration { log, next })
    }

    /// A memtable that `arena` makes durable; `next` is the arena that follows.
    pub fn of_arena(arena: Arc<Arena>, next: FileNumber) -> Self {
        Self::Region(RegionGeneration { arena, next })
    }

    /// Makes all records of the memtable durable. None may follow.
    pub fn seal(&self) -> Result<()> {
        match self {
            Self::Logs(logs) => logs.log.seal(),
            // Each group was durable before it was in the memtable.
            Self::Region(_) => Ok(()),
        }
    }

    /// The manifest's floor once the memtable is flushed.
    pub fn floor_after(&self) -> FileNumber {
        match self {
            Self::Logs(logs) => logs.next,
            Self::Region(region) => region.next,
        }
    }

    /// Its place in time: later generations have larger numbers.
    pub fn number(&self) -> FileNumber {
        match self {
            Self::Logs(logs) => logs.log.number,
            Self::Region(region) => region.arena.number(),
        }
    }

    /// Its log, if it has one.
    pub fn log(&self) -> Option<&LogFile> {
        match self {
            Self::Logs(logs) => Some(&logs.log),
            Self::Region(_) => None,
        }
    }

    /// Its arena, if it has one.
    pub fn arena(&self) -> Option<&Arena> {
        match self {
            Self::Logs(_) => None,
            Self::Region(region) => Some(&region.arena),
        }
    }
}

/// A full memtable on its way to tables or slots.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub memtable: Arc<Memtable>,
    pub generation: Generation,
    /// A flush is under way.
    pub claimed: AtomicBool,
}

impl Frozen {
    /// All writes that belong to the memtable are in it, and published.
    pub fn is_drained(&self) -> bool {
        self.memtable.is_drained() || planted(Planted::InsertAfterFreeze)
    }
}
