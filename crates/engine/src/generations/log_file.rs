//! The log of a generation.

use crate::error::Result;
use std::sync::Arc;
use thermocline_device::File;
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

    /// Hands all up to `position` to the driver.
    pub fn hand_over(&self, position: LogPosition) -> Result<()> {
        match &self.records {
            Records::InTurn(writer) => writer.commit(position, Durability::Buffered)?,
            // Every group is written by the thread that claimed its pages.
            Records::SideBySide(_) => {}
        }
        Ok(())
    }

    /// Has the device keep room for so many records with so many bytes in all.
    pub fn ask_for_room(&self, records: u64, bytes: u64) -> thermocline_device::Result<()> {
        match &self.records {
            Records::InTurn(writer) => writer.ask_for_room(records, bytes),
            Records::SideBySide(claims) => claims.ask_for_room(records, bytes),
        }
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
