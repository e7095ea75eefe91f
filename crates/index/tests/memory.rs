//! What index and cache take of memory, and that reads allocate nothing.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use allocation_counter::measure;
use std::ops::Bound::{Excluded, Unbounded};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_index::{Entry, EntryKind, FastIndex, IndexBatch, RecordCache};

const RECORDS: u64 = 100_000;

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"user--------------------";
    key[4..].copy_from_slice(format!("{n:020}").as_bytes());
    key
}

fn entry(n: u64) -> Entry {
    let (sequence, kind) = (Sequence(n + 1), EntryKind::Put);
    Entry { slot: n, sequence, kind, clean: false, record_bytes: 1000 }
}

fn filled(in_order: bool) -> FastIndex {
    let index = FastIndex::new();
    let mut random = Random::new(1);
    for n in 0..RECORDS {
        let number = if in_order { n << 30 } else { random.next_u64() };
        index.insert(&key(number), entry(n));
    }
    index
}

#[test]
fn a_record_takes_below_forty_bytes_and_its_key() {
    for in_order in [false, true] {
        let mut index = None;
        let asked = measure(|| index = Some(filled(in_order))).bytes_current as u64;
        let index = index.unwrap();
        assert_eq!(index.len(), RECORDS);
        let counted = index.memory_bytes();
        let each = counted as f64 / RECORDS as f64;
        assert!(each < 24.0 + 40.0, "{each} bytes a record, in order: {in_order}");
        assert!((asked..asked * 11 / 10).contains(&counted), "counted {counted} of {asked}");
    }
}

#[test]
fn lookups_and_batches_that_have_grown_allocate_nothing() {
    let index = filled(true);
    let (mut batch, mut versions) = (IndexBatch::new(), Vec::new());
    let keys: Vec<_> = (1000..1500).map(|n| key(n << 30)).collect();
    let mut read = || {
        assert!(keys.iter().all(|key| index.get(key).is_some()));
        index.versions(&keys[0], &mut versions);
        assert_eq!(versions.len(), 1);
        index.ascend(Excluded(&keys[0]), Unbounded, 1000, &mut batch);
        assert_eq!(batch.len(), 1000);
        index.descend(Unbounded, Excluded(&keys[0]), 1000, &mut batch);
        assert_eq!(batch.len(), 1000);
    };
    read();
    assert_eq!(measure(read).count_total, 0);
}

#[test]
fn weights_of_cached_records_are_the_memory_they_take() {
    // Tables in memory double when they grow, so what they keep free depends on the capacity.
    for (mib, value_bytes) in [(8, 0), (12, 0), (8, 100), (12, 100), (16, 1000), (16, 4000)] {
        let cache = RecordCache::new(mib << 20);
        let value = vec![7; value_bytes];
        let asked = measure(|| {
            for n in 0..RECORDS {
                cache.insert(&key(n), Sequence(n), &value);
            }
        });
        let (asked, counted) = (asked.bytes_current as u64, cache.bytes());
        assert!(counted <= mib << 20 && counted > (mib << 20) * 19 / 20, "{counted} bytes");
        // Identities of evicted records are not counted.
        assert!(asked <= counted * 21 / 20, "{asked} bytes counted as {counted}");
        assert!(asked > counted * 2 / 3, "{asked} bytes counted as {counted}");
    }
}

#[test]
fn hits_allocate_nothing_and_values_are_only_as_large_as_themselves() {
    let cache = RecordCache::new(1 << 20);
    let block = vec![1u8; 100_000];
    let kept = measure(|| drop(cache.insert(b"key", Sequence(1), &block[10..20]))).bytes_current;
    assert!(kept < 10_000, "{kept} bytes for a record of ten");
    let hit = measure(|| assert_eq!(cache.get(b"key", Sequence(1)).unwrap(), &block[10..20]));
    assert_eq!(hit.count_total, 0);
}
