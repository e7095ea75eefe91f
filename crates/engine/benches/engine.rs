//! Costs of the engine's hot paths: writing, looking up in memory, scanning, looking up in batches.
//!
//! `cargo bench -p thermocline`. Files lie where `TMPDIR` says and go through the page cache; point
//! it at a tmpfs to leave the disk out.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use tempfile::TempDir;
use thermocline::{ByteSize, Compression, Db, Durability, Settings, Tier};
use thermocline_foundation::random::Random;

const RECORDS: u64 = 50_000;
const VALUE_BYTES: usize = 1000;

fn key(number: u64) -> [u8; 24] {
    let mut key = [b'0'; 24];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

/// A store in a directory of its own, and the directory, which goes with it.
fn open() -> (Db, Arc<TempDir>) {
    let directory = Arc::new(tempfile::tempdir().expect("a directory for the bench"));
    let tier = Tier::new(directory.path().join("tier"), ByteSize::gib(8));
    let settings = Settings {
        tiers: vec![tier],
        durability: Durability::Buffered,
        compression: vec![Compression::None],
        ..Settings::default()
    };
    let db = Db::create(directory.path().join("db"), &settings).expect("a new store");
    (db, directory)
}

fn fill(db: &Db) {
    let value = [7; VALUE_BYTES];
    (0..RECORDS).for_each(|number| db.put(key(number), value).expect("the bench has room"));
    db.flush().expect("the bench has room");
    db.settle().expect("the bench has room");
}

fn put(c: &mut Criterion) {
    let mut group = c.benchmark_group("put of 1 KB, buffered");
    group.throughput(Throughput::Elements(1));
    let (db, _directory) = open();
    let (mut random, value) = (Random::new(1), [7; VALUE_BYTES]);
    group.bench_function("random keys", |b| {
        b.iter(|| db.put(key(random.below(RECORDS)), value).expect("the bench has room"));
    });
    group.finish();
}

fn get(c: &mut Criterion) {
    let mut group = c.benchmark_group("get");
    group.throughput(Throughput::Elements(1));
    let mut random = Random::new(2);
    {
        let (db, _directory) = open();
        let value = [7; VALUE_BYTES];
        (0..10_000).for_each(|number| db.put(key(number), value).expect("the bench has room"));
        group.bench_function("hit in the memtable", |b| {
            b.iter(|| black_box(db.get(key(random.below(10_000))).expect("a read")));
        });
    }
    let (db, _directory) = open();
    fill(&db);
    let hot = 10_000;
    (0..hot).for_each(|number| drop(db.get(key(number)).expect("a read")));
    group.bench_function("hit in the block cache", |b| {
        b.iter(|| black_box(db.get(key(random.below(hot))).expect("a read")));
    });
    group.finish();
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan of 100");
    group.throughput(Throughput::Elements(100));
    let (db, _directory) = open();
    fill(&db);
    let mut random = Random::new(3);
    group.bench_function("cached", |b| {
        b.iter(|| {
            let scan = db.scan().from(key(random.below(10_000))).limit(100);
            assert_eq!(scan.into_iter().filter(Result::is_ok).count(), 100);
        });
    });
    group.finish();
}

fn multi_get(c: &mut Criterion) {
    let mut group = c.benchmark_group("multi_get of 32");
    group.throughput(Throughput::Elements(32));
    let (db, _directory) = open();
    fill(&db);
    let mut random = Random::new(4);
    group.bench_function("anywhere", |b| {
        b.iter(|| {
            let keys: Vec<_> = (0..32).map(|_| key(random.below(RECORDS))).collect();
            let values = db.multi_get(&keys).expect("a read");
            assert!(values.iter().all(Option::is_some));
        });
    });
    group.finish();
}

criterion_group!(benches, put, get, scan, multi_get);
criterion_main!(benches);
