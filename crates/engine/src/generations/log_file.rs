//! The log of a generation.

use crate::error::Result;
use std::sync::Arc;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Buffer, File};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_foundation::{FileNumber, sync_site};
use thermocline_log::{ClaimLog, Durability, LogHeader, LogPosition, LogWriter, MayGrow};

/// A log in use.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub number: FileNumber,
    pub records: Records,
    sealed: Mutex<bool>,
    /// Blocks up to here were written before it had records.
    filled: AtomicU64,
    /// Blocks up to here were reserved, where the file system notes which of them are written.
    reserved: u64,
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
    /// A log without records. Its file was written up to `written` before, if what was there is not
    /// cut off.
    pub fn new(
        number: FileNumber,
        records: Records,
        written: u64,
    ) -> thermocline_device::Result<Self> {
        let (filled, reserved, sealed) = (AtomicU64::default(), 0, Mutex::new(false));
        let log = Self { number, records, sealed, filled, reserved };
        if !log.file().notes_first_writes() {
            return Ok(log);
        }
        let is_recycled = log.header().previous.is_some();
        let written = if is_recycled { written } else { 0 };
        let reserved = log.file().len()?;
        Ok(Self { filled: written.max(PAGE_BYTES as u64).into(), reserved, ..log })
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

    /// Its blocks up to here were written: by its records, by those of a log before it in the file,
    /// or with zeros.
    pub fn written(&self) -> u64 {
        self.filled.load(Relaxed).max(self.bytes().next_multiple_of(PAGE_BYTES as u64))
    }

    /// There is no use in writing zeros to it.
    pub fn is_filled(&self) -> bool {
        self.filled.load(Relaxed) >= self.reserved
    }

    /// Writes up to `bytes` of zeros behind those that there are, where blocks were never written.
    /// A durable write to such a block waits until the file system has noted that it is written,
    /// which takes several times as long. Only before the log has records.
    pub fn fill(&self, bytes: u64) -> Result<()> {
        let from = self.filled.load(Relaxed);
        let stop = (from + bytes).min(self.reserved);
        if stop > from {
            let zeros = Buffer::zeroed((stop - from) as usize);
            sync_site("zeros", || self.file().write_durably(from, zeros).1)?;
            self.filled.store(stop, Relaxed);
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

    /// Has the device keep room for so many records with so many bytes in all, where the log
    /// `may_grow` as it must.
    pub fn ask_for_room(
        &self,
        records: u64,
        bytes: u64,
        may_grow: MayGrow<'_>,
    ) -> thermocline_device::Result<()> {
        match &self.records {
            Records::InTurn(writer) => writer.ask_for_room(records, bytes, may_grow),
            Records::SideBySide(claims) => claims.ask_for_room(records, bytes, may_grow),
        }
    }

    /// Bytes from the start of the file to the end of what was appended.
    pub fn bytes(&self) -> u64 {
        match &self.records {
            Records::InTurn(writer) => writer.bytes(),
            Records::SideBySide(claims) => claims.bytes(),
        }
    }

    fn header(&self) -> LogHeader {
        match &self.records {
            Records::InTurn(writer) => writer.header(),
            Records::SideBySide(claims) => claims.header(),
        }
    }

    pub fn file(&self) -> &Arc<File> {
        match &self.records {
            Records::InTurn(writer) => writer.file(),
            Records::SideBySide(claims) => claims.file(),
        }
    }
}
