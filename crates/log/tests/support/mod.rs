//! A log on a driver that records what it is asked to do, can fail, and can say what a crash
//! leaves.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(dead_code, reason = "each test file uses its part")]

use parking_lot::Mutex;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::driver::{DirectoryLock, Entry, Space};
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{
    Completion, Driver, DriverFile, Error, ErrorKind, File, FileKind, Handle, Operation, Queue,
    Request, Result, TierIndex,
};
use thermocline_foundation::random::Random;
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_log::{ClaimLog, LogHeader, LogReader, LogSettings, LogWriter, ReplaySummary};

pub const DATABASE: DatabaseId = DatabaseId([0x5a; 16]);

/// What changed the file.
#[derive(Clone, Debug)]
pub enum Event {
    Write { offset: u64, bytes: Vec<u8>, durable: bool },
    Resize(u64),
    Sync,
}

/// What the driver saw, and where it shall fail.
#[derive(Debug, Default)]
pub struct Trace {
    pub events: Mutex<Vec<Event>>,
    /// Offsets of reads.
    pub reads: Mutex<Vec<u64>>,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    /// The write (or sync) of this number, counted from 1, fails; 0 for none.
    pub fail_write: AtomicU64,
    pub fail_sync: AtomicU64,
    /// Milliseconds that a sync takes.
    pub sync_ms: AtomicU64,
}

#[derive(Debug)]
struct RecordingDriver {
    inner: MemoryDriver,
    alignment: usize,
    trace: Arc<Trace>,
}

#[derive(Debug)]
struct RecordingFile {
    inner: Handle,
    trace: Arc<Trace>,
}

impl RecordingFile {
    fn resize(&self, before: u64) -> Result<()> {
        let len = self.inner.len()?;
        if len != before {
            self.trace.events.lock().push(Event::Resize(len));
        }
        Ok(())
    }
}

impl DriverFile for RecordingFile {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn allocate(&self, len: u64) -> Result<()> {
        let before = self.inner.len()?;
        self.inner.allocate(len)?;
        self.resize(before)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let before = self.inner.len()?;
        self.inner.truncate(len)?;
        self.resize(before)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn device_failure(what: &str) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what} the test file: planted failure"))
}

impl Driver for RecordingDriver {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn describe(&self) -> String {
        "recording".to_owned()
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn create(&self, name: &str) -> Result<Handle> {
        let (inner, trace) = (self.inner.create(name)?, Arc::clone(&self.trace));
        Ok(Arc::new(RecordingFile { inner, trace }))
    }

    fn open(&self, name: &str) -> Result<Handle> {
        let (inner, trace) = (self.inner.open(name)?, Arc::clone(&self.trace));
        Ok(Arc::new(RecordingFile { inner, trace }))
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
        self.inner.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.inner.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(name)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let _ = depth;
        let (inner, trace) = (MemoryDriver::new(), Arc::clone(&self.trace));
        let driver = Self { inner, alignment: self.alignment, trace };
        Ok(Box::new(RecordingQueue { driver, ended: Vec::new() }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        let file = file.as_any().downcast_ref::<RecordingFile>().expect("own handle");
        let failed =
            |what, buffer| Completion { tag: 0, result: Err(device_failure(what)), buffer };
        match operation {
            Operation::Write { offset, buffer, durable } => {
                let view = buffer.view();
                for number in [offset, view.start as u64, view.end as u64] {
                    assert!(number.is_multiple_of(self.alignment as u64), "unaligned write");
                }
                if self.trace.writes.fetch_add(1, SeqCst) + 1 == self.trace.fail_write.load(SeqCst)
                {
                    return failed("write", buffer);
                }
                let event = Event::Write { offset, bytes: buffer.to_vec(), durable };
                self.trace.events.lock().push(event);
                self.inner.execute(&file.inner, Operation::Write { offset, buffer, durable })
            }
            Operation::Sync => {
                let ms = self.trace.sync_ms.load(SeqCst);
                if ms > 0 {
                    #[allow(clippy::disallowed_methods, reason = "a slow device")]
                    std::thread::sleep(std::time::Duration::from_millis(ms));
                }
                if self.trace.syncs.fetch_add(1, SeqCst) + 1 == self.trace.fail_sync.load(SeqCst) {
                    return failed("sync", Default::default());
                }
                self.trace.events.lock().push(Event::Sync);
                self.inner.execute(&file.inner, operation)
            }
            Operation::Read { offset, .. } => {
                self.trace.reads.lock().push(offset);
                self.inner.execute(&file.inner, operation)
            }
        }
    }
}

/// Carries requests out as they are submitted.
#[derive(Debug)]
struct RecordingQueue {
    driver: RecordingDriver,
    ended: Vec<Completion>,
}

impl Queue for RecordingQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, file, operation } in requests.drain(..) {
            self.ended.push(Completion { tag, ..self.driver.execute(&file, operation) });
        }
    }

    fn reap(&mut self, _at_least: usize, completions: &mut Vec<Completion>) -> usize {
        let count = self.ended.len();
        completions.append(&mut self.ended);
        count
    }

    fn in_flight(&self) -> usize {
        self.ended.len()
    }
}

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub alignment: usize,
    pub settings: LogSettings,
}

impl Shape {
    pub const SECTORS: Self = Self {
        alignment: 1,
        settings: LogSettings {
            segment_bytes: 128 << 10,
            growth_bytes: 64 << 10,
            buffer_bytes: 16 << 10,
        },
    };
    pub const PAGES: Self = Self { alignment: PAGE_BYTES, ..Self::SECTORS };
}

/// One file that is a log, with the number it has now.
pub struct Harness {
    pub shape: Shape,
    pub trace: Arc<Trace>,
    driver: Arc<dyn Driver>,
    handle: Handle,
    number: FileNumber,
}

pub type Records = Vec<(u64, u32, Vec<u8>)>;

impl Harness {
    /// An empty file with number 1.
    pub fn new(shape: Shape) -> Self {
        let trace = Arc::new(Trace::default());
        let inner = MemoryDriver::new();
        let driver =
            RecordingDriver { inner, alignment: shape.alignment, trace: Arc::clone(&trace) };
        let handle = driver.create("log").unwrap();
        Self { shape, trace, driver: Arc::new(driver), handle, number: FileNumber(1) }
    }

    /// A file with these bytes and number 1.
    pub fn with_bytes(bytes: &[u8]) -> Self {
        let harness = Self::new(Shape::SECTORS);
        harness.put(0, bytes);
        harness
    }

    /// The same file under another number, as when it is recycled; its history starts here.
    pub fn renumber(self, number: u64) -> Self {
        let bytes = self.bytes();
        let mut events = self.trace.events.lock();
        events.clear();
        events.push(Event::Resize(bytes.len() as u64));
        events.push(Event::Write { offset: 0, bytes, durable: false });
        events.push(Event::Sync);
        drop(events);
        Self { number: FileNumber(number), ..self }
    }

    pub fn file(&self) -> Arc<File> {
        let (driver, handle) = (Arc::clone(&self.driver), Arc::clone(&self.handle));
        Arc::new(File::new(DATABASE, self.number, FileKind::Log, TierIndex(0), driver, handle))
    }

    pub fn writer(&self, header: LogHeader) -> LogWriter {
        LogWriter::create(self.file(), header, self.shape.settings).unwrap()
    }

    pub fn claim_log(&self, header: LogHeader) -> ClaimLog {
        ClaimLog::create(self.file(), header, self.shape.settings).unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        let file = self.file();
        file.read(0, file.len().unwrap() as usize).unwrap().to_vec()
    }

    pub fn bytes_len(&self) -> u64 {
        self.file().len().unwrap()
    }

    /// Overwrites bytes behind the recording driver's back.
    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let inner = self.handle.as_any().downcast_ref::<RecordingFile>().unwrap().inner.clone();
        let buffer = thermocline_device::Buffer::copy_of(bytes);
        let operation = Operation::Write { offset, buffer, durable: false };
        let memory = MemoryDriver::new();
        memory.execute(&inner, operation).result.unwrap();
    }

    pub fn replay(&self) -> Result<(Records, ReplaySummary)> {
        replay_file(&self.file())
    }

    pub fn events(&self) -> Vec<Event> {
        self.trace.events.lock().clone()
    }
}

/// All records of a log, checked to be ones that `payload_of` made or small texts.
pub fn replay_file(file: &File) -> Result<(Records, ReplaySummary)> {
    let mut records = Vec::new();
    let summary = LogReader::replay(file, &mut |first, count, payload| {
        records.push((first.0, count, payload.to_vec()));
        Ok(())
    })?;
    assert_eq!(summary.records, records.len() as u64);
    Ok((records, summary))
}

/// Replays `bytes` as the file with this number.
pub fn replay_bytes(number: u64, bytes: &[u8]) -> Result<(Records, ReplaySummary)> {
    let harness = Harness { number: FileNumber(number), ..Harness::with_bytes(bytes) };
    harness.replay()
}

/// As [`replay_bytes`], with flipped bits turned back; also what was.
#[allow(dead_code, reason = "for the tests of rot")]
pub fn replay_mended(number: u64, bytes: &[u8]) -> Result<(Records, ReplaySummary, Vec<Error>)> {
    let harness = Harness { number: FileNumber(number), ..Harness::with_bytes(bytes) };
    let (mut records, mut mended) = (Vec::new(), Vec::new());
    let mut sink = |first: Sequence, count, payload: &[u8]| {
        records.push((first.0, count, payload.to_vec()));
        Ok(())
    };
    let summary = LogReader::replay_mended(&harness.file(), &mut sink, &mut mended)?;
    Ok((records, summary, mended))
}

pub fn header(first: u64) -> LogHeader {
    LogHeader { stream: 0, previous: None, first_sequence: Sequence(first) }
}

/// Bytes that only this sequence has.
pub fn payload_of(sequence: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::new(sequence).fill(&mut bytes);
    bytes
}

/// What a loss of power after the first `count` events may leave: per sector, the content at the
/// last sync or any content since, and likewise the length.
pub fn power_cut(events: &[Event], count: usize, random: &mut Random) -> Vec<u8> {
    let events = &events[..count];
    let synced = events.iter().rposition(|event| matches!(event, Event::Sync));
    let (durable, loose) = events.split_at(synced.map_or(0, |at| at + 1));
    let mut image = apply(durable);
    // Some cuts keep nearly everything, some nearly nothing.
    let keep = random.below(101);
    for event in loose {
        match event {
            Event::Sync => unreachable!("loose events follow the last sync"),
            Event::Resize(len) if random.below(100) < keep => image.resize(*len as usize, 0),
            Event::Resize(_) => {}
            Event::Write { offset, bytes, .. } => {
                for (index, sector) in bytes.chunks(512).enumerate() {
                    if random.below(100) < keep {
                        overwrite(&mut image, *offset as usize + index * 512, sector);
                    }
                }
            }
        }
    }
    image
}

/// What the file holds after `events`: the end of the process after the last of them.
pub fn apply(events: &[Event]) -> Vec<u8> {
    let mut image = Vec::new();
    for event in events {
        match event {
            Event::Sync => {}
            Event::Resize(len) => image.resize(*len as usize, 0),
            Event::Write { offset, bytes, .. } => overwrite(&mut image, *offset as usize, bytes),
        }
    }
    image
}

fn overwrite(image: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if image.len() < at + bytes.len() {
        image.resize(at + bytes.len(), 0);
    }
    image[at..at + bytes.len()].copy_from_slice(bytes);
}
