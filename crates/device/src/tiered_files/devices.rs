//! Where the drivers come from: the system's directories, or directories in memory.
//!
//! 1. Opening never creates a directory; only [`Devices::create_directory`] does, and only for a
//!    new database.
//!
//! Threads: shared freely.

use crate::driver::Driver;
use crate::drivers::MemoryDriver;
use crate::error::{Error, ErrorKind, Result};
use crate::tier::TierSpec;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;

/// Opens drivers by path.
pub trait Devices: Send + Sync + Debug {
    /// The driver of a home directory; `NotFound` where there is no such directory.
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>>;

    /// The driver of a tier's directory; `NotFound` where there is no such directory.
    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>>;

    /// As [`Devices::tier`], for reading only: nothing is written, not even to find out what the
    /// directory can do.
    fn tier_to_read(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.tier(spec)
    }

    /// Makes a directory and those above it, durably; false where it was there already.
    fn create_directory(&self, path: &Path) -> Result<bool>;

    /// Removes a directory if it is empty; otherwise, or where there is none, does nothing.
    fn remove_directory_if_empty(&self, path: &Path) -> Result<()>;

    /// Descriptors that the process may have; none where there is no bound.
    fn descriptor_limit(&self) -> Option<u64> {
        None
    }

    /// What new identities are drawn from.
    fn entropy(&self) -> u64 {
        thermocline_foundation::random::entropy()
    }
}

/// Directories in memory, for tests. Clones share them, which is how a test reopens a database.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevices {
    directories: Arc<Mutex<BTreeMap<PathBuf, MemoryDriver>>>,
}

impl MemoryDevices {
    /// No directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// The directory at `path`, if there is one.
    pub fn directory(&self, path: &Path) -> Option<MemoryDriver> {
        self.directories.lock().get(path).cloned()
    }

    /// Puts `driver` at `path`, in place of what is there: a disk is plugged in.
    pub fn mount(&self, path: &Path, driver: MemoryDriver) {
        self.directories.lock().insert(path.to_owned(), driver);
    }

    /// Takes the directory at `path` away.
    pub fn unmount(&self, path: &Path) -> Option<MemoryDriver> {
        self.directories.lock().remove(path)
    }

    fn find(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        let found = self.directory(path).map(|driver| Arc::new(driver) as Arc<dyn Driver>);
        found.ok_or_else(|| {
            let text = format!("cannot open the directory {}: there is none", path.display());
            Error::new(ErrorKind::NotFound, text)
        })
    }
}

impl Devices for MemoryDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        self.find(path)
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.find(&spec.path)
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        let mut directories = self.directories.lock();
        let is_new = !directories.contains_key(path);
        directories.entry(path.to_owned()).or_default();
        Ok(is_new)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        let mut directories = self.directories.lock();
        if directories.get(path).is_some_and(|driver| driver.list().is_ok_and(|l| l.is_empty())) {
            directories.remove(path);
        }
        Ok(())
    }
}
