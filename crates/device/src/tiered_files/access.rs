//! What may be done with an open namespace: by the process that opened it, and not by a child that
//! was forked from it; changes where it was opened for writing.
//!
//! Threads: shared freely.

use super::{TieredFiles, file_name};
use crate::context::FileKind;
use crate::driver::Driver;
use crate::drivers::MemoryDriver;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{File, Location};
use crate::open_files::OpenFiles;
use crate::tier::{Tier, TierIndex};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

impl TieredFiles {
    /// Refuses a child that was forked from the process that opened the files: they stay its
    /// parent's.
    pub fn require_owner(&self) -> Result<()> {
        if self.owner.is_current() {
            return Ok(());
        }
        self.owner.require(format_args!("the store at {}", self.home.display()))
    }

    /// The files were opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A file in memory that is in no tier and ends with its last holder: what the crates above
    /// begin to write with, where nothing may be written.
    pub fn scratch_file(&self, kind: FileKind) -> Result<Arc<File>> {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let number = self.map.lock().next();
        let handle = driver.create(&file_name(number, kind))?;
        let tier = Arc::new(Tier::detached(TierIndex(0), driver));
        let location = Location::open(tier, handle);
        Ok(Arc::new(File::detached(self.database, number, kind, location)))
    }

    /// Closes the locks' descriptors that a forked child inherited, so that it does not keep the
    /// directories from others once its parent has ended. The locks stay its parent's.
    pub fn leave_to_owner(&self) {
        if !self.owner.is_current()
            && let Some(mut locks) = self.locks.try_lock()
        {
            locks.clear();
        }
    }

    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.open_files
    }

    pub(crate) fn require_writable(&self) -> Result<()> {
        self.require_owner()?;
        let why = if self.read_only {
            "it was opened for reading only; open it for writing"
        } else if self.closed.load(Relaxed) {
            "it was closed; open it again"
        } else {
            return Ok(());
        };
        let text = format!("cannot change the files of {}: {why}", self.home.display());
        let kind = if self.read_only { ErrorKind::ReadOnly } else { ErrorKind::Invalid };
        Err(Error::new(kind, text))
    }
}
