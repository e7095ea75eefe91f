//! A directory in memory: for tests, for tools that need no disk, and as the plainest reading of
//! the contract.
//!
//! Everything is "durable" at once; what a crash would lose is the business of the simulated
//! driver. A directory can be as small as a test wants its device to be.

use super::disk::check_name;
use crate::buffer::Buffer;
use crate::driver::{
    Completion, DeviceCounts, DirectoryLock, Driver, DriverFile, Entry, FileStamp, Handle,
    Operation, Queue, Request, Space,
};
use crate::error::{Error, ErrorKind, Result};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, RwLock};

/// The longest file: far beyond what a test needs, far below what would exhaust a machine at once
/// because an offset was garbage.
const FILE_BYTES_MAX: u64 = 64 << 30;

/// The driver. Clones share the directory, which is how a test reopens it.
#[derive(Clone, Debug, Default)]
pub struct MemoryDriver {
    directory: Arc<Directory>,
}

#[derive(Debug, Default)]
struct Directory {
    room: Arc<Room>,
    device_counts: Mutex<Option<DeviceCounts>>,
    names: Mutex<BTreeMap<String, Named>>,
    /// Names that are locked: for one (none), or for so many that read.
    locked: Mutex<BTreeMap<String, Option<u64>>>,
}

/// What a name shows.
#[derive(Clone, Debug)]
enum Named {
    File(Arc<MemoryFile>),
    Link(Arc<str>),
}

#[derive(Debug, Default)]
struct MemoryFile {
    room: Arc<Room>,
    /// None of its directory has the number of another.
    number: u64,
    changes: AtomicU64,
    bytes: RwLock<Vec<u8>>,
}

/// What the files of a directory may take, and take.
#[derive(Debug, Default)]
struct Room {
    /// None: as many as there is memory for.
    capacity_bytes: Mutex<Option<u64>>,
    used_bytes: AtomicU64,
    /// Files made so far.
    made: AtomicU64,
}

impl Room {
    /// So many bytes more; false where there are none.
    fn take(&self, bytes: u64) -> bool {
        let capacity_bytes = self.capacity_bytes.lock();
        let used_bytes = self.used_bytes.load(Relaxed);
        let has_room =
            bytes == 0 || capacity_bytes.is_none_or(|capacity| used_bytes + bytes <= capacity);
        if has_room {
            self.used_bytes.fetch_add(bytes, Relaxed);
        }
        has_room
    }

    fn give(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }

    fn space(&self) -> Space {
        let total_bytes = self.capacity_bytes.lock().unwrap_or(u64::MAX / 2);
        let free_bytes = total_bytes.saturating_sub(self.used_bytes.load(Relaxed));
        Space { total_bytes, free_bytes }
    }
}

#[derive(Debug)]
struct MemoryLock {
    directory: Arc<Directory>,
    name: String,
}

#[derive(Debug, Default)]
struct MemoryQueue {
    finished: Vec<Completion>,
}

impl MemoryDriver {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on its files may take so many bytes together.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        *self.directory.room.capacity_bytes.lock() = Some(bytes);
    }

    /// From now on its device is said to have done so much.
    pub fn set_device_counts(&self, counts: DeviceCounts) {
        *self.directory.device_counts.lock() = Some(counts);
    }

    fn find(&self, action: &str, name: &str) -> Result<Arc<MemoryFile>> {
        match self.directory.names.lock().get(name) {
            Some(Named::File(file)) => Ok(Arc::clone(file)),
            Some(Named::Link(_)) => {
                let text = format!("cannot {action} {name}: it is a symbolic link in memory");
                Err(Error::new(ErrorKind::Invalid, text))
            }
            None => Err(missing(action, name)),
        }
    }

    /// Puts a new name into the directory.
    fn put(&self, action: &str, name: &str, named: Named) -> Result<()> {
        check_name(action, "memory", name)?;
        let mut names = self.directory.names.lock();
        if names.contains_key(name) {
            let text = format!("cannot {action} {name}: it exists in memory");
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        names.insert(name.to_owned(), named);
        Ok(())
    }
}

fn locked_here(name: &str) -> Error {
    let text = format!(
        "{name} in memory is locked: this process has the store open already; use that handle, or \
         close it and drop what it gave out (clones, snapshots, cursors, scans) first"
    );
    Error::new(ErrorKind::Locked, text)
}

fn missing(action: &str, name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("cannot {action} {name}: no such file in memory"))
}

impl DriverFile for MemoryFile {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn stamp(&self) -> Result<Option<FileStamp>> {
        let bytes = self.bytes.read();
        let (changed_ns, len) = (self.changes.load(Relaxed), bytes.len() as u64);
        Ok(Some(FileStamp { number: self.number, born_ns: 0, changed_ns, len }))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.extend(&mut self.bytes.write(), Some(len))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut bytes = self.bytes.write();
        self.extend(&mut bytes, Some(len))?;
        self.room.give(bytes.len() as u64 - len);
        bytes.truncate(len as usize);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.room.give(self.bytes.read().len() as u64);
    }
}

impl MemoryFile {
    /// Makes it at least `end` bytes long; `None` is an end that has no number.
    fn extend(&self, bytes: &mut Vec<u8>, end: Option<u64>) -> Result<()> {
        self.changes.fetch_add(1, Relaxed);
        let end = end.filter(|end| *end <= FILE_BYTES_MAX).map(|end| end as usize);
        let grown = end.map(|end| end.saturating_sub(bytes.len()));
        let reserved = grown.filter(|grown| bytes.try_reserve(*grown).is_ok());
        match (end, reserved.filter(|grown| self.room.take(*grown as u64))) {
            (Some(end), Some(_)) => {
                let len = end.max(bytes.len());
                bytes.resize(len, 0);
                Ok(())
            }
            _ => {
                let text = format!(
                    "cannot extend a file in memory: it may have {FILE_BYTES_MAX} bytes, and its \
                     directory what it was given"
                );
                Err(Error::new(ErrorKind::OutOfSpace, text))
            }
        }
    }

    fn read(&self, offset: u64, view: &mut [u8]) -> usize {
        let bytes = self.bytes.read();
        let start = (bytes.len() as u64).min(offset) as usize;
        let len = view.len().min(bytes.len() - start);
        view[..len].copy_from_slice(&bytes[start..start + len]);
        len
    }

    fn write(&self, offset: u64, view: &[u8]) -> Result<usize> {
        let mut bytes = self.bytes.write();
        if !view.is_empty() {
            self.extend(&mut bytes, offset.checked_add(view.len() as u64))?;
            bytes[offset as usize..][..view.len()].copy_from_slice(view);
        }
        Ok(view.len())
    }
}

impl DirectoryLock for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut locked = self.directory.locked.lock();
        match locked.get_mut(&self.name) {
            Some(Some(readers)) if *readers > 1 => *readers -= 1,
            _ => drop(locked.remove(&self.name)),
        }
    }
}

impl Queue for MemoryQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            let completion = execute(&request.file, request.operation);
            self.finished.push(Completion { tag: request.tag, ..completion });
        }
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        assert!(at_least <= self.finished.len(), "reaping more than is in flight");
        let count = self.finished.len();
        completions.append(&mut self.finished);
        count
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }
}

fn execute(file: &Handle, operation: Operation) -> Completion {
    let Some(file) = file.as_any().downcast_ref::<MemoryFile>() else {
        unreachable!("a handle of another driver");
    };
    let (result, buffer) = match operation {
        Operation::Read { offset, mut buffer } => (Ok(file.read(offset, &mut buffer)), buffer),
        Operation::Write { offset, buffer, .. } => (file.write(offset, &buffer), buffer),
        Operation::Sync => (Ok(0), Buffer::default()),
    };
    Completion { tag: 0, result, buffer }
}

impl Driver for MemoryDriver {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn alignment(&self) -> usize {
        1
    }

    fn create(&self, name: &str) -> Result<Handle> {
        let room = Arc::clone(&self.directory.room);
        let number = room.made.fetch_add(1, Relaxed) + 1;
        let (changes, bytes) = (AtomicU64::new(0), RwLock::default());
        let file = Arc::new(MemoryFile { room, number, changes, bytes });
        self.put("create", name, Named::File(Arc::clone(&file)))?;
        Ok(file)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        Ok(self.find("open", name)?)
    }

    fn delete(&self, name: &str) -> Result<()> {
        let removed = self.directory.names.lock().remove(name);
        removed.map(drop).ok_or_else(|| missing("delete", name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name("rename to", "memory", to)?;
        let mut names = self.directory.names.lock();
        let named = names.remove(from).ok_or_else(|| missing("rename", from))?;
        names.insert(to.to_owned(), named);
        Ok(())
    }

    fn list(&self) -> Result<Vec<Entry>> {
        let names = self.directory.names.lock();
        let entry = |(name, named): (&String, &Named)| {
            let (len, is_link) = match named {
                Named::File(file) => (file.bytes.read().len(), false),
                Named::Link(text) => (text.len(), true),
            };
            Entry { name: name.clone(), len: len as u64, is_link }
        };
        Ok(names.iter().map(entry).collect())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        Ok(self.directory.room.space())
    }

    fn device_counts(&self) -> Option<DeviceCounts> {
        *self.directory.device_counts.lock()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        let mut locked = self.directory.locked.lock();
        if locked.contains_key(name) {
            return Err(locked_here(name));
        }
        locked.insert(name.to_owned(), None);
        let directory = Arc::clone(&self.directory);
        Ok(Box::new(MemoryLock { directory, name: name.to_owned() }))
    }

    fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        match self.directory.locked.lock().entry(name.to_owned()).or_insert(Some(0)) {
            Some(readers) => *readers += 1,
            None => return Err(locked_here(name)),
        }
        let directory = Arc::clone(&self.directory);
        Ok(Some(Box::new(MemoryLock { directory, name: name.to_owned() })))
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(MemoryQueue::default()))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        execute(file, operation)
    }

    fn make_link(&self, name: &str, text: &str) -> Result<()> {
        self.put("make the link", name, Named::Link(text.into()))
    }

    fn read_link(&self, name: &str) -> Result<Option<String>> {
        match self.directory.names.lock().get(name) {
            Some(Named::Link(text)) => Ok(Some(text.to_string())),
            Some(Named::File(_)) => Ok(None),
            None => Err(missing("read the link", name)),
        }
    }
}
