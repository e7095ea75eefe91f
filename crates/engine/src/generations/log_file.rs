//! The log of a generation.

use crate::error::Result;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;
use thermocline_log::LogWriter;

/// A log in use.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub number: FileNumber,
    pub writer: LogWriter,
    sealed: Mutex<bool>,
}

impl LogFile {
    pub fn new(number: FileNumber, writer: LogWriter) -> Self {
        Self { number, writer, sealed: Mutex::new(false) }
    }

    /// The log has ended, durably. Says no while that is under way.
    pub fn is_sealed(&self) -> bool {
        self.sealed.try_lock().is_some_and(|sealed| *sealed)
    }

    /// Ends the log durably, once. No append may follow.
    pub fn seal(&self) -> Result<()> {
        let mut sealed = self.sealed.lock();
        if !*sealed {
            self.writer.seal()?;
            *sealed = true;
        }
        Ok(())
    }
}
