//! Costs of the table's hot paths on a device of memory: adding, looking up, walking.
//!
//! `cargo bench -p thermocline-table`; times are per table or per look-up as the name says.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use thermocline_device::driver::Driver;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{File, FileKind, TierIndex};
use thermocline_foundation::random::Random;
use thermocline_foundation::{DatabaseId, FileNumber, Sequence};
use thermocline_table::{
    BlockCache, Compression, ReadAhead, RecordKind, TableOptions, TableReader, TableWriter, Trailer,
};

const ENTRIES: u64 = 20_000;

fn file() -> Arc<File> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("bench").expect("a new directory has room");
    handle.allocate(40 << 20).expect("memory is there");
    let (id, kind) = (DatabaseId([1; 16]), FileKind::Table { level: 0 });
    Arc::new(File::new(id, FileNumber(1), kind, TierIndex(0), driver, handle))
}

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"user00000000000000000000";
    let digits = format!("{n:020}");
    key[4..].copy_from_slice(digits.as_bytes());
    key
}

fn fill(file: Arc<File>, keys: &[[u8; 24]], value: &[u8], compression: Compression) {
    let options = TableOptions { compression, ..TableOptions::default() };
    let mut writer = TableWriter::new(file, options);
    for (n, key) in (0..).zip(keys) {
        let trailer = Trailer::new(Sequence(n), RecordKind::Put);
        writer.add(key, trailer, value).expect("memory does not fail");
    }
    writer.finish().expect("memory does not fail");
}

fn table(value_bytes: usize, compression: Compression) -> Arc<TableReader> {
    let driver: Arc<dyn Driver> = Arc::new(MemoryDriver::new());
    let handle = driver.create("bench").expect("a new directory has room");
    let (id, kind) = (DatabaseId([1; 16]), FileKind::Table { level: 0 });
    let file = Arc::new(File::new(id, FileNumber(1), kind, TierIndex(0), driver, handle));
    let keys: Vec<_> = (0..ENTRIES).map(key).collect();
    fill(Arc::clone(&file), &keys, &vec![7; value_bytes], compression);
    let cache = Arc::new(BlockCache::new(256 << 20));
    Arc::new(TableReader::open(file, cache).expect("it was just written"))
}

fn add(c: &mut Criterion) {
    let mut group = c.benchmark_group("add");
    group.throughput(Throughput::Elements(ENTRIES));
    group.sample_size(20);
    let keys: Vec<_> = (0..ENTRIES).map(key).collect();
    let mut value = vec![0; 1000];
    Random::new(1).fill(&mut value);
    for (name, bytes, compression) in [
        ("1000 B plain", 1000, Compression::None),
        ("1000 B lz4, incompressible", 1000, Compression::Lz4),
        ("100 B plain", 100, Compression::None),
    ] {
        group.bench_function(name, |b| {
            b.iter_batched(
                file,
                |file| fill(file, &keys, &value[..bytes], compression),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn get(c: &mut Criterion) {
    let mut group = c.benchmark_group("get");
    for value_bytes in [1000, 100] {
        let table = table(value_bytes, Compression::None);
        let mut random = Random::new(2);
        let keys: Vec<_> = (0..4096).map(|_| key(random.below(ENTRIES))).collect();
        let mut at = 0;
        group.bench_function(format!("{value_bytes} B in cache"), |b| {
            b.iter(|| {
                at = (at + 1) % keys.len();
                black_box(table.get(&keys[at], Sequence::MAX).expect("memory does not fail"))
            });
        });
        let absent: Vec<_> = keys.iter().map(|key| [&key[..], b"x"].concat()).collect();
        group.bench_function(format!("{value_bytes} B absent"), |b| {
            b.iter(|| {
                at = (at + 1) % absent.len();
                black_box(table.get(&absent[at], Sequence::MAX).expect("memory does not fail"))
            });
        });
    }
    group.finish();
}

fn walk(c: &mut Criterion) {
    let mut group = c.benchmark_group("walk");
    group.throughput(Throughput::Elements(ENTRIES));
    for (name, value_bytes, mode) in [
        ("100 B in cache", 100, ReadAhead::default()),
        ("100 B streamed", 100, ReadAhead::Stream { window_bytes: 1 << 20 }),
        ("1000 B streamed", 1000, ReadAhead::Stream { window_bytes: 1 << 20 }),
    ] {
        let table = table(value_bytes, Compression::None);
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut it = table.iter(mode);
                it.seek_to_first().expect("memory does not fail");
                let mut bytes = 0;
                while it.valid() {
                    bytes += it.value_slice().len() + it.key().len();
                    it.next().expect("memory does not fail");
                }
                black_box(bytes)
            });
        });
    }
    let table = table(100, Compression::None);
    group.bench_function("100 B in cache, backward", |b| {
        b.iter(|| {
            let mut it = table.iter(ReadAhead::default());
            it.seek_to_last().expect("memory does not fail");
            let mut bytes = 0;
            while it.valid() {
                bytes += it.value_slice().len() + it.key().len();
                it.prev().expect("memory does not fail");
            }
            black_box(bytes)
        });
    });
    group.finish();
}

criterion_group!(benches, add, get, walk);
criterion_main!(benches);
