//! The end of what was written to logs.

use crate::error::Result;
use crate::generations::log_file::LogFile;
use std::sync::Arc;
use thermocline_foundation::{Planted, planted, sync_site};
use thermocline_log::LogPosition;

/// What has to be synced to make everything written so far durable. Behind a lock of its own, which
/// is never held across I/O, so that syncs wait for no writer.
#[derive(Clone, Debug)]
pub(super) struct LogTail {
    pub log: Arc<LogFile>,
    /// Where the last record ended in `log`.
    pub position: Option<LogPosition>,
    /// Logs before `log` that may not be durable to their end: a record is durable only when all
    /// before it are, so they come first.
    pub unsealed: Vec<Arc<LogFile>>,
}

impl LogTail {
    pub fn new(log: Arc<LogFile>) -> Self {
        Self { log, position: None, unsealed: Vec::new() }
    }

    pub fn seal_older(&self) -> Result<()> {
        sync_site("older-log", || self.unsealed.iter().try_for_each(|log| log.seal()))
    }

    /// A buffered group of `log` ends at `position`.
    pub fn written(&mut self, log: &LogFile, position: LogPosition) {
        // That of a log before is among those that are not sealed.
        if std::ptr::eq(&*self.log, log) {
            self.position = self.position.max(Some(position));
        }
    }

    /// The log that follows begins; the one before may not be durable to its end.
    pub fn follow(&mut self, before: &Arc<LogFile>, log: &Arc<LogFile>) {
        let mut unsealed = std::mem::take(&mut self.unsealed);
        unsealed.retain(|log| !log.is_sealed());
        unsealed.push(Arc::clone(before));
        *self = Self { unsealed, ..Self::new(Arc::clone(log)) };
    }

    /// Makes everything up to the tail durable.
    pub fn sync(&self) -> Result<()> {
        if !planted(Planted::OlderLogsNotSynced) {
            sync_site("older-log", || self.unsealed.iter().try_for_each(|log| log.settle()))?;
        }
        // Writers go on meanwhile; a rotation may seal the log first, which does no harm.
        match self.position {
            Some(position) => sync_site("newest-log", || self.log.sync(position)),
            None => Ok(()),
        }
    }
}
