//! The log of a generation.

use crate::error::Result;
use std::sync::Arc;
use thermocline_device::{Buffer, File};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{FileNumber, sync_site};
use thermocline_log::{ClaimLog, Durability, LogPosition, LogWriter};

/// A log in use.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub number: FileNumber,
    pub records: Records,
    sealed: Mutex<bool>,
}

/// How groups of records come to the log.
#[derive(Debug)]
pub(crate) enum Records {
    /// One group after the other, through one buffer.
    InTurn(LogWriter),
    /// Many at once, each on pages of its own.
    SideBySide(ClaimLog),
}

impl LogFile {
    pub fn new(number: FileNumber, records: Records) -> Self {
        Self { number, records, sealed: Mutex::new(false) }
    }

    /// The log has ended, durably. Says no while that is under way.
    pub fn is_sealed(&self) -> bool {
        self.sealed.try_lock().is_some_and(|sealed| *sealed)
    }

    /// Ends the log durably, once. No append may follow.
    pub fn seal(&self) -> Result<()> {
        let mut sealed = self.sealed.lock();
        if !*sealed {
            match &self.records {
                Records::InTurn(writer) => writer.seal()?,
                Records::SideBySide(claims) => claims.seal()?,
            }
            *sealed = true;
        }
        Ok(())
    }

    /// Makes all groups durable that have ended; another log is in use. Where groups of this one
    /// may still be in flight, it cannot end yet.
    pub fn settle(&self) -> Result<()> {
        match &self.records {
            Records::InTurn(_) => self.seal(),
            Records::SideBySide(claims) => Ok(sync_site("groups", || claims.sync())?),
        }
    }

    /// Makes all up to `position` durable.
    pub fn sync(&self, position: LogPosition) -> Result<()> {
        match &self.records {
            Records::InTurn(writer) => writer.commit(position, Durability::Sync)?,
            Records::SideBySide(claims) => claims.sync()?,
        }
        Ok(())
    }

    /// Where its blocks begin that were never written; none where all were, or where writes do not
    /// wait for that: side by side they are durable one by one.
    pub fn unfilled(&self) -> Option<u64> {
        match &self.records {
            Records::SideBySide(claims) if claims.is_fresh() => Some(claims.bytes()),
            _ => None,
        }
    }

    /// Writes up to `bytes` of zeros at `from`, up to the end of what is reserved. Says where the
    /// next ones begin; none where there is no more to fill. Nothing may be appended meanwhile.
    pub fn fill(&self, from: u64, bytes: u64) -> Result<Option<u64>> {
        let file = self.file();
        let len = file.len()?;
        let stop = (from + bytes).min(len);
        if stop > from {
            file.write_durably(from, Buffer::zeroed((stop - from) as usize)).1?;
        }
        Ok(Some(stop).filter(|stop| *stop < len))
    }

    /// Hands all up to `position` to the driver.
    pub fn hand_over(&self, position: LogPosition) -> Result<()> {
        match &self.records {
            Records::InTurn(writer) => writer.commit(position, Durability::Buffered)?,
            // Every group is written by the thread that claimed its pages.
            Records::SideBySide(_) => {}
        }
        Ok(())
    }

    /// Bytes from the start of the file to the end of what was appended.
    pub fn bytes(&self) -> u64 {
        match &self.records {
            Records::InTurn(writer) => writer.bytes(),
            Records::SideBySide(claims) => claims.bytes(),
        }
    }

    pub fn file(&self) -> &Arc<File> {
        match &self.records {
            Records::InTurn(writer) => writer.file(),
            Records::SideBySide(claims) => claims.file(),
        }
    }
}
