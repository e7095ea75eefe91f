//! Generations: a memtable and what makes it durable.

pub(crate) mod log_file;
pub(crate) mod memtable;

use log_file::LogFile;
use memtable::Memtable;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::AtomicBool;

/// A full memtable on its way to a table.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub memtable: Arc<Memtable>,
    pub log: Arc<LogFile>,
    /// The log that followed; the floor once this memtable is in a table.
    pub next_log: FileNumber,
    pub claimed: AtomicBool,
}
