//! How long one thread takes to append and commit, on a file in memory.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Driver, File, FileKind, TierIndex};
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_log::{Durability, LogHeader, LogSettings, LogWriter};

/// A log that starts over before it fills the memory of the machine.
struct Rotating {
    writer: LogWriter,
    next: u64,
}

impl Rotating {
    fn new() -> Self {
        let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
        let handle = driver.create("log").expect("an empty directory");
        let database = DatabaseId([1; 16]);
        let file = File::new(
            database,
            FileNumber(1),
            FileKind::Log,
            TierIndex(0),
            driver,
            handle,
        );
        let header = LogHeader {
            stream: 0,
            previous: None,
            first_sequence: Sequence(1),
        };
        let settings = LogSettings {
            segment_bytes: 256 << 20,
            ..LogSettings::default()
        };
        let writer = LogWriter::create(Arc::new(file), header, settings).expect("memory");
        Self { writer, next: 1 }
    }

    fn append(&mut self, payload: &[u8], durability: Option<Durability>) {
        if self.writer.bytes() > 250 << 20 {
            *self = Self::new();
        }
        let position = self
            .writer
            .append(Sequence(self.next), 1, payload)
            .expect("memory");
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
