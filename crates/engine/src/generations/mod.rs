//! Generations: a memtable and what makes it durable, today a log of its own.
//!
//! A generation begins when the front opens a log for a new memtable. It is *frozen* when the
//! memtable is full and takes no more writes, and ends when a flush has made its records durable
//! elsewhere: then the log is retired.

pub(crate) mod log_file;
pub(crate) mod memtable;

use crate::error::Result;
use log_file::LogFile;
use memtable::Memtable;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::{FileNumber, Planted, planted};

/// What makes a memtable durable.
#[derive(Debug)]
pub(crate) enum Generation {
    Logs(LogGeneration),
}

/// A log, and the one that follows.
#[derive(Debug)]
pub(crate) struct LogGeneration {
    pub log: Arc<LogFile>,
    pub next: FileNumber,
}

impl Generation {
    /// A memtable that `log` makes durable; `next` is the log that follows.
    pub fn of_log(log: Arc<LogFile>, next: FileNumber) -> Self {
        Self::Logs(LogGeneration { log, next })
    }

    /// Makes all records of the memtable durable. None may follow.
    pub fn seal(&self) -> Result<()> {
        match self {
            Self::Logs(logs) => logs.log.seal(),
        }
    }

    /// The manifest's log floor once the memtable is flushed.
    pub fn floor_after(&self) -> FileNumber {
        match self {
            Self::Logs(logs) => logs.next,
        }
    }

    /// Its place in time: later generations have larger numbers.
    pub fn number(&self) -> FileNumber {
        self.log().number
    }

    /// Its log.
    pub fn log(&self) -> &LogFile {
        match self {
            Self::Logs(logs) => &logs.log,
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
