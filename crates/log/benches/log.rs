//! How long one thread takes to append and commit, on a file in memory.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Driver, File, FileKind, Handle, TierIndex};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_log::{Durability, LogHeader, LogSettings, LogWriter};

const SEGMENT_BYTES: u64 = 32 << 20;

/// A log whose file is recycled when it is full, so that the memory below it stays the same.
struct Rotating {
    driver: Arc<dyn Driver>,
    handle: Handle,
    number: u64,
    writer: LogWriter,
    next: u64,
}

impl Rotating {
    fn new() -> Self {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let handle = driver.create("log").expect("an empty directory");
        let writer = Self::writer(&driver, &handle, 1);
        Self { driver, handle, number: 1, writer, next: 1 }
    }

    fn writer(driver: &Arc<dyn Driver>, handle: &Handle, number: u64) -> LogWriter {
        let (driver, handle) = (Arc::clone(driver), Arc::clone(handle));
        let (database, tier) = (DatabaseId([1; 16]), TierIndex(0));
        let file = File::new(database, FileNumber(number), FileKind::Log, tier, driver, handle);
        let previous = (number > 1).then(|| FileNumber(number - 1));
        let header = LogHeader { stream: 0, previous, first_sequence: Sequence(1) };
        let settings = LogSettings { segment_bytes: SEGMENT_BYTES, ..LogSettings::default() };
        LogWriter::create(Arc::new(file), header, settings).expect("memory")
    }

    fn append(&mut self, payload: &[u8], durability: Option<Durability>) {
        if self.writer.bytes() > SEGMENT_BYTES - (1 << 20) {
            self.number += 1;
            self.writer = Self::writer(&self.driver, &self.handle, self.number);
            self.next = 1;
        }
        let position = self.writer.append(Sequence(self.next), 1, payload).expect("memory");
        self.next += 1;
        if let Some(durability) = durability {
            self.writer.commit(position, durability).expect("memory");
        }
    }
}

fn log(criterion: &mut Criterion) {
    for bytes in [100, 1024, 16 << 10] {
        let payload = vec![7; bytes];
        let mut group = criterion.benchmark_group(format!("{bytes} B"));
        group.throughput(Throughput::Bytes(bytes as u64));
        for (name, durability) in [
            ("append", None),
            ("buffered", Some(Durability::Buffered)),
            ("sync", Some(Durability::Sync)),
        ] {
            let mut log = Rotating::new();
            group.bench_function(name, |bencher| {
                bencher.iter(|| log.append(&payload, durability));
            });
        }
    }
}

criterion_group!(benches, log);
criterion_main!(benches);
