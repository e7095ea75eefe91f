//! How long the index takes at a million records with keys of 24 bytes, and the cache beside it.
//!
//! Keys are drawn evenly, which is the worst case: nearly every look-up finds its leaf in main
//! memory and not in a cache of the processor.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::ops::Bound::{Included, Unbounded};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::{Random, mix};
use thermocline_index::{Entry, EntryKind, FastIndex, IndexBatch, RecordCache};

const RECORDS: u64 = 1_000_000;
const BATCH: usize = 1000;

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"user--------------------";
    let mut rest = mix(n);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn entry(n: u64) -> Entry {
    let (sequence, kind) = (Sequence(n), EntryKind::Put);
    Entry { slot: n, sequence, kind, clean: false, record_bytes: 1000 }
}

fn filled() -> FastIndex {
    let index = FastIndex::new();
    (0..RECORDS).for_each(|n| assert!(index.insert(&key(n), entry(n)).is_none()));
    index
}

fn lookups(criterion: &mut Criterion) {
    let index = filled();
    let mut random = Random::new(1);
    let mut group = criterion.benchmark_group("index");
    group.bench_function("get a key that is there", |bencher| {
        bencher.iter(|| index.get(&key(black_box(random.below(RECORDS)))));
    });
    group.bench_function("get a key that is not", |bencher| {
        bencher.iter(|| index.get(&key(black_box(RECORDS + random.below(RECORDS)))));
    });
    group.throughput(Throughput::Elements(BATCH as u64));
    let mut batch = IndexBatch::new();
    group.bench_function("copy a thousand keys", |bencher| {
        bencher.iter(|| {
            let from = key(random.below(RECORDS));
            index.ascend(Included(&from), Unbounded, BATCH, &mut batch);
            batch.len()
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("count a tenth", |bencher| {
        bencher.iter(|| index.count(Included(b"user05"), Included(b"user07")));
    });
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let index = filled();
    let mut random = Random::new(2);
    let mut group = criterion.benchmark_group("index");
    group.bench_function("insert and remove a key", |bencher| {
        bencher.iter(|| {
            let n = RECORDS + random.below(RECORDS);
            index.insert(&key(n), entry(n));
            index.remove(&key(n), Sequence(n))
        });
    });
    let mut next = 3 * RECORDS;
    group.bench_function("insert a key", |bencher| {
        bencher.iter(|| {
            next += 1;
            index.insert(&key(next), entry(next))
        });
    });
    group.finish();
}

/// Records in the cache while it is asked.
const CACHED: u64 = 75_000;

fn cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache");
    for value_bytes in [100, 1000] {
        let value = vec![7; value_bytes];
        let mut random = Random::new(3);
        let asked = RecordCache::new(256 << 20);
        (0..CACHED).for_each(|n| drop(asked.insert(&key(n), Sequence(n), &value)));
        let name = |what: &str| format!("{what} of {value_bytes} bytes");
        group.bench_function(name("hit"), |bencher| {
            bencher.iter(|| {
                let n = random.below(CACHED);
                asked.get(&key(n), Sequence(n))
            });
        });
        group.bench_function(name("miss"), |bencher| {
            bencher.iter(|| {
                let n = CACHED + random.below(CACHED);
                asked.get(&key(n), Sequence(n))
            });
        });
        let full = RecordCache::new(32 << 20);
        let mut next = 0;
        let mut insert = || {
            next += 1;
            full.insert(&key(next), Sequence(next), &value)
        };
        (0..(48 << 20) / value_bytes).for_each(|_| drop(insert()));
        group.bench_function(name("insertion and eviction"), |bencher| bencher.iter(&mut insert));
    }
    group.finish();
}

criterion_group!(benches, lookups, changes, cache);
criterion_main!(benches);
