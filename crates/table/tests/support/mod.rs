//! What the tests of the table share: tables in memory, a model of one, and a driver whose reads
//! can be damaged.
#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline_device::driver::{
    Completion, DirectoryLock, Driver, Entry, Handle, Operation, Queue, Request, Space,
};
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Buffer, Error, ErrorKind, File, FileKind, Result, TierIndex};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_table::{
    BlockCache, Compression, RecordKind, TableOptions, TableReader, TableSummary, TableWriter,
    Trailer,
};

pub type Row = (Vec<u8>, Trailer, Vec<u8>);

pub const DATABASE: DatabaseId = DatabaseId([0xd5; 16]);

pub fn put(sequence: u64) -> Trailer {
    Trailer::new(Sequence(sequence), RecordKind::Put)
}

pub fn delete(sequence: u64) -> Trailer {
    Trailer::new(Sequence(sequence), RecordKind::Delete)
}

pub fn file_on(driver: Arc<dyn Driver>, handle: Handle, database: DatabaseId, n: u64) -> Arc<File> {
    let kind = FileKind::Table { level: 1 };
    Arc::new(File::new(database, FileNumber(n), kind, TierIndex(0), driver, handle))
}

pub fn new_file(number: u64) -> Arc<File> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("t").unwrap();
    file_on(driver, handle, DATABASE, number)
}

/// A file with these bytes, as file 7 of the test's database unless said otherwise.
pub fn file_of(bytes: &[u8]) -> Arc<File> {
    file_as(bytes, DATABASE, 7)
}

pub fn file_as(bytes: &[u8], database: DatabaseId, number: u64) -> Arc<File> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("t").unwrap();
    let file = file_on(driver, handle, database, number);
    file.write(0, Buffer::copy_of(bytes)).1.unwrap();
    file
}

pub fn bytes_of(file: &File) -> Vec<u8> {
    file.read(0, file.len().unwrap() as usize).unwrap().to_vec()
}

pub fn write(rows: &[Row], options: TableOptions) -> (Arc<File>, TableSummary) {
    let file = new_file(7);
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    for (key, trailer, value) in rows {
        writer.add(key, *trailer, value).unwrap();
    }
    assert_eq!(writer.entries(), rows.len() as u64);
    let summary = writer.finish().unwrap();
    assert_eq!(summary.file_bytes, file.len().unwrap());
    (file, summary)
}

pub fn cache() -> Arc<BlockCache> {
    Arc::new(BlockCache::new(64 << 20))
}

pub fn open(file: &Arc<File>) -> Result<Arc<TableReader>> {
    TableReader::open(Arc::clone(file), cache()).map(Arc::new)
}

/// What a look-up must answer.
pub fn model_get(rows: &[Row], key: &[u8], snapshot: u64) -> Option<(Trailer, Vec<u8>)> {
    rows.iter()
        .find(|row| row.0 == key && row.1.sequence().0 <= snapshot)
        .map(|row| (row.1, row.2.clone()))
}

/// A small table with all sorts of entries: shared prefixes, versions, tombstones, the empty key.
pub fn small_rows() -> Vec<Row> {
    let mut rows = vec![(Vec::new(), put(1), b"the empty key".to_vec())];
    for n in 0..60u64 {
        let key = format!("lake/{:02}/temperature", n).into_bytes();
        for version in (0..1 + n % 3).rev() {
            let sequence = 10 + n * 3 + version;
            if (n + version) % 5 == 0 {
                rows.push((key.clone(), delete(sequence), Vec::new()));
            } else {
                let value = format!("{n} degrees at {version}; ").repeat(n as usize % 7 + 1);
                rows.push((key.clone(), put(sequence), value.into_bytes()));
            }
        }
    }
    rows
}

/// Records that share their shape and little else, from number `from` on: small blocks of them have
/// much to gain from a dictionary.
pub fn alike_rows(from: u64, count: u64) -> Vec<Row> {
    let row = |n: u64| {
        let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (depth, degrees, by) = (hash >> 57, hash >> 44 & 0xfff, hash >> 12 & 0xffff_ffff);
        let value = format!(
            "{{\"depth_m\":{depth},\"degrees\":{degrees},\
             \"measured_by\":\"{by:08x}\",\"good\":{}}}",
            hash & 1 == 0
        );
        (format!("station/{n:06}/temperature").into_bytes(), put(n), value.into_bytes())
    };
    (from..from + count).map(row).collect()
}

/// Small blocks, and a dictionary that little data brings in.
pub fn dictionary_options() -> TableOptions {
    TableOptions {
        block_bytes: 512,
        compression: Compression::Zstd { level: 3 },
        dictionary_bytes: 1024,
        ..TableOptions::default()
    }
}

pub fn all_compressions() -> [(&'static str, Compression); 3] {
    [
        ("plain", Compression::None),
        ("lz4", Compression::Lz4),
        ("zstd", Compression::Zstd { level: 3 }),
    ]
}

/// A memory driver whose reads fail while `failing` says so: reads that touch `[from, to)`.
#[derive(Clone, Debug, Default)]
pub struct FailingDriver {
    inner: MemoryDriver,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
pub struct Faults {
    pub from: AtomicU64,
    pub to: AtomicU64,
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes_left: AtomicU64,
}

impl std::ops::Deref for FailingDriver {
    type Target = Faults;

    fn deref(&self) -> &Faults {
        &self.faults
    }
}

/// Carries requests out at once, through the driver and its faults.
#[derive(Debug)]
struct FailingQueue {
    driver: FailingDriver,
    finished: Vec<Completion>,
}

impl Queue for FailingQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for request in requests.drain(..) {
            let completion = self.driver.execute(&request.file, request.operation);
            self.finished.push(Completion { tag: request.tag, ..completion });
        }
    }
    fn reap(&mut self, _at_least: usize, completions: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        completions.append(&mut self.finished);
        count
    }
    fn in_flight(&self) -> usize {
        self.finished.len()
    }
}

impl FailingDriver {
    pub fn new() -> Arc<Self> {
        let it = Self::default();
        it.writes_left.store(u64::MAX, Ordering::Relaxed);
        Arc::new(it)
    }

    pub fn fail(&self, from: u64, to: u64) {
        self.from.store(from, Ordering::Relaxed);
        self.to.store(to, Ordering::Relaxed);
    }

    pub fn file(self: &Arc<Self>) -> Arc<File> {
        let driver: Arc<dyn Driver> = Arc::clone(self) as Arc<dyn Driver>;
        let handle = driver.create("t").unwrap();
        file_on(driver, handle, DATABASE, 7)
    }
}

impl Driver for FailingDriver {
    fn name(&self) -> &'static str {
        "failing"
    }
    fn describe(&self) -> String {
        "failing".to_owned()
    }
    fn alignment(&self) -> usize {
        4096
    }
    fn create(&self, name: &str) -> Result<Handle> {
        self.inner.create(name)
    }
    fn open(&self, name: &str) -> Result<Handle> {
        self.inner.open(name)
    }
    fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn list(&self) -> Result<Vec<Entry>> {
        self.inner.list()
    }
    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }
    fn space(&self) -> Result<Space> {
        self.inner.space()
    }
    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }
    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(FailingQueue { driver: self.clone(), finished: Vec::new() }))
    }
    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let refuse = |buffer| {
            let result = Err(Error::new(ErrorKind::Io, "the test's device fails"));
            Completion { tag: 0, result, buffer }
        };
        match operation {
            Operation::Read { offset, buffer } => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                let end = offset + buffer.len() as u64;
                let (from, to) =
                    (self.from.load(Ordering::Relaxed), self.to.load(Ordering::Relaxed));
                if offset < to && from < end {
                    return refuse(buffer);
                }
                self.inner.execute(file, Operation::Read { offset, buffer })
            }
            Operation::Write { offset, buffer, durable } => {
                assert!(offset % 4096 == 0 && buffer.len() % 4096 == 0, "unaligned write");
                if self.writes_left.load(Ordering::Relaxed) == 0 {
                    return refuse(buffer);
                }
                self.writes_left.fetch_sub(1, Ordering::Relaxed);
                self.inner.execute(file, Operation::Write { offset, buffer, durable })
            }
            Operation::Sync => self.inner.execute(file, Operation::Sync),
        }
    }
}
