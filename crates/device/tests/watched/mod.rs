//! Tiers in memory that show a watcher what is asked of their files, before they do it.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{
    Completion, Devices, Driver, Handle, MemoryDevices, Operation, Queue, Request, Result, TierSpec,
};

/// Sees what is asked of the files of a tier, which waits for as long as the watcher looks.
pub trait Watcher: Send + Sync + Debug {
    /// What is about to be done.
    fn see(&self, operation: &Operation);

    /// A queue is handed so many requests at once.
    fn see_batch(&self, _requests: usize) {}
}

/// Finds the watcher of the tier in a directory.
type WatcherOf = Arc<dyn Fn(&Path) -> Arc<dyn Watcher> + Send + Sync>;

/// Directories in memory, whose tiers are watched.
#[derive(Clone)]
pub struct WatchedDevices {
    pub memory: MemoryDevices,
    watcher_of: WatcherOf,
    alignment: usize,
}

impl Debug for WatchedDevices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WatchedDevices({:?})", self.memory)
    }
}

impl WatchedDevices {
    /// Of tiers that move blocks of `alignment` bytes.
    pub fn new(
        alignment: usize,
        watcher_of: impl Fn(&Path) -> Arc<dyn Watcher> + Send + Sync + 'static,
    ) -> Self {
        let (memory, watcher_of) = (MemoryDevices::default(), Arc::new(watcher_of));
        Self { memory, watcher_of, alignment }
    }
}

impl Devices for WatchedDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        self.memory.home(path)
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.memory.tier(spec)?;
        let memory = self.memory.directory(&spec.path).expect("the tier is there");
        let (watcher, alignment) = ((self.watcher_of)(&spec.path), self.alignment);
        Ok(Arc::new(Watched { memory, watcher, alignment }))
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        self.memory.create_directory(path)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        self.memory.remove_directory_if_empty(path)
    }
}

#[derive(Debug)]
struct Watched {
    memory: MemoryDriver,
    watcher: Arc<dyn Watcher>,
    alignment: usize,
}

impl Driver for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn describe(&self) -> String {
        self.memory.describe()
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.memory.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.memory.open(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.memory.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.memory.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.memory.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.memory.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.memory.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.memory.lock(name)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let (inner, watcher) = (self.memory.queue(depth)?, Arc::clone(&self.watcher));
        Ok(Box::new(WatchedQueue { inner, watcher }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        self.watcher.see(&operation);
        self.memory.execute(file, operation)
    }
}

#[derive(Debug)]
struct WatchedQueue {
    inner: Box<dyn Queue>,
    watcher: Arc<dyn Watcher>,
}

impl Queue for WatchedQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        requests.iter().for_each(|request| self.watcher.see(&request.operation));
        self.watcher.see_batch(requests.len());
        self.inner.submit(requests);
    }

    fn reap(&mut self, at_least: usize, completions: &mut Vec<Completion>) -> usize {
        self.inner.reap(at_least, completions)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }
}
