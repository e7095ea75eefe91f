//! A small store on devices that can lose power, and values that tell which write they are from.

use crate::{ByteSize, Compression, Db, Environment, Preset, Settings, Tier, Workers};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::{
    Buffer, Completion, Devices, Driver, DriverFile, Error, ErrorKind, Handle, MemoryDevices,
    Operation, Queue, Request, Result, TierSpec,
};
use thermocline_foundation::SystemClock;
use thermocline_foundation::random::entropy;
use thermocline_foundation::sync::Mutex;
pub use thermocline_foundation::sync::schedules::{check, yield_now};
use thermocline_foundation::threads::{self, JoinHandle};

pub const HOME: &str = "/home";
pub const TIERS: [&str; 2] = ["/fast", "/slow"];

/// Starts a thread of the test.
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).expect("the scheduler always has a thread")
}

/// Joins threads; one that panicked has failed the schedule.
pub fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

/// Two small tiers, one bulk worker; three values of [`BIG`] bytes fill a memtable. The preset is
/// drawn, as the schedule is, and whether groups of writes go to the log side by side.
pub fn settings() -> Settings {
    let preset = if entropy() % 2 == 0 { Preset::Hybrid } else { Preset::Leveled };
    Settings {
        preset: Some(preset),
        tiers: vec![
            Tier::new(TIERS[0], ByteSize::mib(16)).driver("memory"),
            Tier::new(TIERS[1], ByteSize::mib(64)).driver("memory"),
        ],
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(64),
        background_sync_bytes: ByteSize::kib(64),
        log_writes: [1, 3][(entropy() % 2) as usize],
        background_threads: 1,
        level0_tables: 1,
        level0_slowdown: 2,
        level0_stop: 3,
        compression: vec![Compression::None],
        // Its thread would do nothing but lengthen every schedule.
        stats_interval: crate::Duration::ms(0),
        ..Settings::default()
    }
}

/// A value so long that three of them fill a memtable, and two are past the least bound of a
/// background sync. No longer: bytes cost time and give no choices.
pub const BIG: usize = 33 << 10;

/// The value of write `number`, at least eight bytes long.
pub fn value(number: u64, len: usize) -> Vec<u8> {
    let mut value = vec![number as u8; len.max(8)];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Which write a value is from; checks the rest of it.
pub fn number(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value[8..].iter().all(|byte| *byte == number as u8), "a value is whole");
    number
}

/// Looks after which a reader ends that never sees the end of what it reads beside.
pub const LOOKS_MAX: usize = 60;

/// The keys of those tests.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// The numbers under the names, as one call shows them: 1 a batch of look-ups, 2 a scan, any other
/// a scan backwards.
pub fn look_at_once(db: &Db, way: usize) -> Vec<Option<u64>> {
    if way == 1 {
        let found = db.multi_get(&NAMES).unwrap().into_iter();
        return found.map(|value| value.map(|value| number(&value))).collect();
    }
    let scan = if way == 2 { db.scan() } else { db.scan().reverse() };
    let mut found = vec![None; NAMES.len()];
    for record in scan {
        let (key, value) = record.unwrap();
        let at = NAMES.iter().position(|name| name.as_bytes() == &key[..]);
        found[at.unwrap()] = Some(number(&value));
        yield_now();
    }
    found
}

pub fn environment(devices: &Arc<FragileDevices>) -> Environment {
    Environment {
        devices: Arc::clone(devices) as Arc<dyn Devices>,
        clock: Arc::new(SystemClock::new()),
        workers: Workers::Threads,
        ..Environment::default()
    }
}

pub fn create(devices: &Arc<FragileDevices>) -> Db {
    create_with(devices, &settings())
}

pub fn create_with(devices: &Arc<FragileDevices>, settings: &Settings) -> Db {
    environment(devices).create(Path::new(HOME), settings).unwrap()
}

pub fn open(devices: &Arc<FragileDevices>) -> Db {
    environment(devices).open(Path::new(HOME)).unwrap()
}

/// Directories in memory of which only what was synced can be kept: a file's bytes as of its last
/// sync. Names are kept at once; what a crash makes of those is for the simulation.
#[derive(Debug, Default)]
pub struct FragileDevices {
    memory: MemoryDevices,
    kept: Arc<Mutex<Kept>>,
    /// Syncs of logs after which one fails; none fails where there is no number.
    pub fail_sync_after: Arc<Mutex<Option<u32>>>,
}

/// What loss of power leaves.
#[derive(Debug, Default)]
struct Kept {
    /// Which file has a name in a directory.
    names: BTreeMap<(String, String), usize>,
    /// The bytes of each file as of its last sync.
    synced: BTreeMap<usize, Vec<u8>>,
    files: usize,
}

fn failure() -> Error {
    Error::new(ErrorKind::Io, "the device failed")
}

impl FragileDevices {
    /// The devices after loss of power now.
    pub fn after_crash(&self) -> Arc<Self> {
        let after = Self::default();
        let kept = self.kept.lock();
        for directory in [HOME, TIERS[0], TIERS[1]] {
            after.memory.create_directory(Path::new(directory)).unwrap();
            let driver = after.memory.directory(Path::new(directory)).unwrap();
            for ((_, name), id) in kept.names.iter().filter(|((at, _), _)| at == directory) {
                let file = driver.create(name).unwrap();
                let bytes = kept.synced.get(id).cloned().unwrap_or_default();
                let operation =
                    Operation::Write { offset: 0, buffer: Buffer::copy_of(&bytes), durable: false };
                driver.execute(&file, operation).result.unwrap();
            }
        }
        drop(kept);
        Arc::new(after)
    }

    fn wrap(&self, path: &Path, inner: Arc<dyn Driver>) -> Arc<dyn Driver> {
        Arc::new(FragileDriver {
            inner,
            directory: path.to_str().unwrap().to_owned(),
            kept: Arc::clone(&self.kept),
            fail_sync_after: Arc::clone(&self.fail_sync_after),
        })
    }
}

impl Devices for FragileDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        Ok(self.wrap(path, self.memory.home(path)?))
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        Ok(self.wrap(&spec.path, self.memory.tier(spec)?))
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        self.memory.create_directory(path)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        self.memory.remove_directory_if_empty(path)
    }
}

#[derive(Clone, Debug)]
struct FragileDriver {
    inner: Arc<dyn Driver>,
    directory: String,
    kept: Arc<Mutex<Kept>>,
    fail_sync_after: Arc<Mutex<Option<u32>>>,
}

#[derive(Debug)]
struct FragileFile {
    inner: Handle,
    id: usize,
    is_log: bool,
}

impl FragileDriver {
    fn file(&self, name: &str, inner: Handle) -> Handle {
        let mut kept = self.kept.lock();
        kept.files += 1;
        let next = kept.files;
        let id = *kept.names.entry((self.directory.clone(), name.to_owned())).or_insert(next);
        Arc::new(FragileFile { inner, id, is_log: name.ends_with(".log") })
    }

    /// Writes so that loss of power leaves these bytes, and says nothing of others.
    fn write_durably(&self, file: &FragileFile, offset: u64, buffer: Buffer) -> Completion {
        let bytes = buffer.to_vec();
        if let Err(error) = self.try_to_keep(file) {
            return Completion { tag: 0, result: Err(error), buffer };
        }
        // One after the other: a sync that began earlier must not keep what was there before.
        let mut kept = self.kept.lock();
        let write = Operation::Write { offset, buffer, durable: true };
        let completion = self.inner.execute(&file.inner, write);
        let image = kept.synced.entry(file.id).or_default();
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        image.resize(image.len().max(end), 0);
        image[start..end].copy_from_slice(&bytes);
        completion
    }

    /// An error where the device was to fail now.
    fn try_to_keep(&self, file: &FragileFile) -> Result<()> {
        if file.is_log
            && let Some(left) = &mut *self.fail_sync_after.lock()
        {
            if *left == 0 {
                return Err(failure());
            }
            *left -= 1;
        }
        Ok(())
    }

    fn sync(&self, file: &FragileFile) -> Result<usize> {
        self.try_to_keep(file)?;
        let mut kept = self.kept.lock();
        let len = file.inner.len()? as usize;
        let buffer = Buffer::zeroed(len);
        let read = self.inner.execute(&file.inner, Operation::Read { offset: 0, buffer });
        kept.synced.insert(file.id, read.buffer[..read.result?].to_vec());
        Ok(0)
    }
}

impl DriverFile for FragileFile {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.inner.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }

    fn notes_first_writes(&self) -> bool {
        self.is_log
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Driver for FragileDriver {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn describe(&self) -> String {
        self.directory.clone()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn create(&self, name: &str) -> Result<Handle> {
        let inner = self.inner.create(name)?;
        Ok(self.file(name, inner))
    }

    fn open(&self, name: &str) -> Result<Handle> {
        let inner = self.inner.open(name)?;
        Ok(self.file(name, inner))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)?;
        self.kept.lock().names.remove(&(self.directory.clone(), name.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)?;
        let name = |name: &str| (self.directory.clone(), name.to_owned());
        let mut kept = self.kept.lock();
        if let Some(id) = kept.names.remove(&name(from)) {
            kept.names.insert(name(to), id);
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.inner.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(LateQueue { driver: self.clone(), finished: Vec::new() }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let file = file.as_any().downcast_ref::<FragileFile>().expect("a file of this driver");
        match operation {
            Operation::Sync => {
                let result = self.sync(file);
                Completion { tag: 0, result, buffer: Buffer::default() }
            }
            Operation::Write { offset, buffer, durable: true } => {
                self.write_durably(file, offset, buffer)
            }
            operation => self.inner.execute(&file.inner, operation),
        }
    }
}

/// Carries requests out when they are submitted.
#[derive(Debug)]
struct LateQueue {
    driver: FragileDriver,
    finished: Vec<Completion>,
}

impl Queue for LateQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, file, operation } in requests.drain(..) {
            let completion = self.driver.execute(&file, operation);
            self.finished.push(Completion { tag, ..completion });
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
