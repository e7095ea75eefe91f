//! Direct I/O (`O_DIRECT`): past the page cache, in whole 4 KiB pages, batches through io_uring.
//!
//! The store keeps its own caches, so a second copy in the page cache is memory lost, and the
//! kernel's write-back would decide when the device is busy. A blocking request is one `pread`,
//! `pwrite` or `fdatasync`, or goes through a ring where callers ask for completions
//! (`waiting.rs`); a queue is a ring (`ring.rs`), or the driver's threads (`pool.rs`) where the
//! kernel or its configuration refuses rings. Both are found out once, at open.
//!
//! Completion of a direct write is not durability: the device's own cache still holds it until a
//! sync, and the file's new length is only in memory. Mixing with buffered access to the same file
//! is allowed (the kernel keeps the two coherent) but slow; a file that is written in small pieces
//! and read back only after a crash can change to the page cache
//! ([`use_page_cache`](crate::DriverFile::use_page_cache)).
//!
//! Threads: shared freely; see the contract in `driver.rs`.

use super::asking::Asking;
use super::block_device;
use super::disk::{self, Disk};
use super::pool::{Pool, PoolQueue};
use super::ring::{self, RingQueue};
use super::waiting::Waiting;
use crate::buffer::{Buffer, PAGE_BYTES};
use crate::driver::{
    Completion, DeviceCounts, DirectoryId, DirectoryLock, Driver, Entry, Handle, Operation, Queue,
    Request, Space,
};
use crate::error::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;

/// What to use for batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batches {
    /// io_uring where the system allows it, else threads.
    #[default]
    Ring,
    /// Threads, always.
    Threads,
}

/// The driver of one directory.
#[derive(Debug)]
pub struct DirectDriver {
    disk: Disk,
    pool: Arc<Pool>,
    ring: bool,
    asking: Option<Arc<Asking>>,
    /// Rings of callers that ask, which none uses at this moment.
    idle: Mutex<Vec<CallerRing>>,
}

/// A ring for one transfer at a time, and the memory of that.
#[derive(Debug)]
struct CallerRing {
    queue: RingQueue,
    requests: Vec<Request>,
    done: Vec<Completion>,
}

impl CallerRing {
    fn new(asking: &Arc<Asking>) -> std::io::Result<Self> {
        let queue = RingQueue::new(1, Some(Arc::clone(asking)))?;
        Ok(Self { queue, requests: Vec::with_capacity(1), done: Vec::with_capacity(1) })
    }
}

impl DirectDriver {
    /// Serves the existing directory `path`; an error of kind `Invalid` where its file system
    /// has no direct I/O in units of 4 KiB.
    pub fn open(path: &Path, batches: Batches) -> Result<Self> {
        let disk = Disk::open(path, OFlags::DIRECT, PAGE_BYTES)?;
        probe(path)?;
        Ok(Self::over(disk, batches))
    }

    /// As [`DirectDriver::open`], for reading only: a file that is there is read, and none is made.
    /// Where there is none, reads say later what the file system has.
    pub fn open_to_read(path: &Path, batches: Batches) -> Result<Self> {
        let disk = Disk::open(path, OFlags::DIRECT, PAGE_BYTES)?;
        if let Some(entry) = disk.list()?.iter().find(|entry| !entry.is_link) {
            probe_reading(&disk, path, &entry.name)?;
        }
        Ok(Self::over(disk, batches))
    }

    fn over(disk: Disk, batches: Batches) -> Self {
        let ring = batches == Batches::Ring && ring::is_available();
        Self { disk, pool: Arc::default(), ring, asking: None, idle: Mutex::default() }
    }

    /// Its callers wait in this way, by `clock`: all transfers go through rings then. Without rings
    /// they wait until they are told.
    pub fn waiting(mut self, waiting: Waiting, clock: Arc<dyn Clock>) -> Self {
        let asks = waiting != Waiting::Interrupt && self.ring;
        self.asking = asks.then(|| Arc::new(Asking::new(waiting, clock)));
        self
    }

    /// A transfer through a ring, whose caller asks for its completion; the operation, where there
    /// is no ring to be had.
    fn ask(
        &self,
        file: &Handle,
        operation: Operation,
    ) -> std::result::Result<Completion, Operation> {
        let Some(asking) = &self.asking else { return Err(operation) };
        let idle = self.idle.lock().pop().filter(|ring| ring.queue.is_usable());
        let mut ring = match idle.map_or_else(|| CallerRing::new(asking), Ok) {
            Ok(ring) => ring,
            Err(error) => {
                tracing::debug!(%error, "no ring for a caller that asks");
                return Err(operation);
            }
        };
        ring.requests.push(Request { tag: 0, file: Arc::clone(file), operation });
        ring.queue.submit(&mut ring.requests);
        ring.queue.reap(1, &mut ring.done);
        let done = ring.done.pop();
        self.idle.lock().push(ring);
        Ok(done.expect("a queue gives back what it was given (invariant 1 of `driver.rs`)"))
    }

    /// Whether batches go through io_uring.
    pub fn uses_ring(&self) -> bool {
        self.ring
    }
}

/// Writes and reads one page of a file without a name, which no program can see and a crash
/// removes.
fn probe(path: &Path) -> Result<()> {
    let file = match open_probe(path) {
        Ok(file) => file,
        Err(Errno::INVAL) => return Err(refused(path)),
        Err(errno) => return Err(disk::failure("try direct I/O in", path, errno)),
    };
    let mut page = Buffer::copy_of(&[0x5A; PAGE_BYTES]);
    let moved = retry_on_intr(|| rustix::io::pwrite(&file, &page, 0))
        .and_then(|_| retry_on_intr(|| rustix::io::pread(&file, &mut page[..], 0)));
    match moved {
        Ok(PAGE_BYTES) => Ok(()),
        Ok(_) | Err(Errno::INVAL) => Err(refused(path)),
        Err(errno) => Err(disk::failure("try direct I/O in", path, errno)),
    }
}

/// Reads a page of the file `name`. One that is shorter gives fewer bytes, where that is possible.
fn probe_reading(disk: &Disk, path: &Path, name: &str) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT | OFlags::NOFOLLOW;
    let mut page = Buffer::zeroed(PAGE_BYTES);
    let read = retry_on_intr(|| rustix::fs::openat(disk.descriptor(), name, flags, Mode::empty()))
        .and_then(|file| retry_on_intr(|| rustix::io::pread(&file, &mut page[..], 0)));
    match read {
        Err(Errno::INVAL) => Err(refused(path)),
        Err(errno) => Err(disk::failure("try direct I/O in", path, errno)),
        Ok(_) => Ok(()),
    }
}

fn open_probe(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    let mode = Mode::from_bits_retain(0o600);
    match retry_on_intr(|| rustix::fs::open(path, flags | OFlags::TMPFILE, mode)) {
        // No nameless files here (some network and overlay file systems): one with a name then.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
            let name = path.join(format!(".direct-probe-{}", std::process::id()));
            let opened = rustix::fs::open(&name, flags | OFlags::CREATE, mode);
            // Some file systems create the file before they refuse the flag.
            match rustix::fs::unlinkat(rustix::fs::CWD, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => opened,
                Err(errno) => opened.and(Err(errno)),
            }
        }
        other => other,
    }
}

fn refused(path: &Path) -> Error {
    let text = format!(
        "{} has no direct I/O in units of {PAGE_BYTES} bytes: use the driver `posix` there",
        path.display()
    );
    Error::new(ErrorKind::Invalid, text)
}

impl Driver for DirectDriver {
    fn name(&self) -> &'static str {
        "direct"
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
        if self.ring {
            match RingQueue::new(depth, self.asking.clone()) {
                Ok(queue) => return Ok(Box::new(queue)),
                // Memory or descriptors ran out since the probe; threads need neither.
                Err(error) => tracing::debug!(%error, "no ring for a queue, using threads"),
            }
        }
        Ok(Box::new(PoolQueue::new(Arc::clone(&self.pool), depth, false)))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let asked = match operation {
            Operation::Sync => Err(operation),
            transfer => self.ask(file, transfer),
        };
        asked.unwrap_or_else(|operation| disk::execute(file, operation))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn done(driver: &DirectDriver, file: &Handle, operation: Operation) -> Completion {
        driver.execute(file, operation)
    }

    #[test]
    fn a_file_changed_to_the_page_cache_takes_any_length_and_is_read_directly() {
        let home = tempfile::tempdir().unwrap();
        let Ok(driver) = DirectDriver::open(home.path(), Batches::Threads) else {
            // No direct I/O here, which `open` says; another file system runs this test.
            return;
        };
        let file = driver.create("log").unwrap();
        let write =
            || Operation::Write { offset: 3, buffer: Buffer::copy_of(b"seven b"), durable: false };
        let error = done(&driver, &file, write()).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(file.use_page_cache().unwrap());
        assert_eq!(done(&driver, &file, write()).result.unwrap(), 7);
        let direct = driver.open("log").unwrap();
        let read = Operation::Read { offset: 0, buffer: Buffer::zeroed(PAGE_BYTES) };
        let read = done(&driver, &direct, read);
        assert_eq!(read.result.unwrap(), 10);
        assert_eq!(&read.buffer[..10], b"\0\0\0seven b");
        assert_eq!(done(&driver, &file, Operation::Sync).result.unwrap(), 0);
    }
}
