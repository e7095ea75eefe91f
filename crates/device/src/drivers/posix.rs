//! Plain files through the page cache: works on every file system, needs no alignment.
//!
//! A write completes when the kernel has a copy; `fdatasync` makes it durable. Batches run on the
//! driver's own threads (`pool.rs`), single requests on the caller's.
//!
//! Threads: shared freely; see the contract in `driver.rs`.

use super::block_device;
use super::disk::{self, Disk};
use super::pool::{Pool, PoolQueue};
use crate::driver::{
    Completion, DeviceCounts, DirectoryId, DirectoryLock, Driver, Entry, Handle, Operation, Queue,
    Space,
};
use crate::error::Result;
use rustix::fs::OFlags;
use std::path::Path;
use std::sync::Arc;

/// The driver of one directory.
#[derive(Debug)]
pub struct PosixDriver {
    disk: Disk,
    pool: Arc<Pool>,
}

impl PosixDriver {
    /// Serves the existing directory `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let disk = Disk::open(path, OFlags::empty(), 1)?;
        Ok(Self { disk, pool: Arc::default() })
    }
}

impl Driver for PosixDriver {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn describe(&self) -> String {
        self.disk.path().display().to_string()
    }

    fn alignment(&self) -> usize {
        self.disk.alignment()
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.disk.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.disk.open_existing(name)
    }

    fn open_to_read(&self, name: &str) -> Result<Handle> {
        self.disk.open_to_read(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.disk.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.disk.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.disk.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.disk.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.disk.lock(name)
    }

    fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        self.disk.lock_shared(name)
    }

    fn directory_id(&self) -> Option<DirectoryId> {
        self.disk.id()
    }

    fn device_counts(&self) -> Option<DeviceCounts> {
        self.disk.id().and_then(block_device::counts)
    }

    fn block_bytes(&self) -> Option<usize> {
        self.disk.id().and_then(block_device::block_bytes)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(PoolQueue::new(Arc::clone(&self.pool), depth, true)))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        disk::execute(file, operation)
    }

    fn host_directory(&self) -> Option<&Path> {
        Some(self.disk.path())
    }

    fn try_link(&self, name: &str, into: &dyn Driver, new_name: &str) -> Result<bool> {
        let Some(directory) = into.host_directory() else { return Ok(false) };
        self.disk.try_link(name, directory, new_name)
    }

    fn make_link(&self, name: &str, text: &str) -> Result<()> {
        self.disk.make_link(name, text)
    }

    fn read_link(&self, name: &str) -> Result<Option<String>> {
        self.disk.read_link(name)
    }
}
