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

/// Inserts records of a key and a value of each size in turn until the cache has been filled twice,
/// and gives what the allocator was asked for, what the cache says, and its records.
fn fill(cache: &RecordCache, value_bytes: &[usize]) -> (u64, u64, u64) {
    let value = vec![7; 1 << 14];
    let average = value_bytes.iter().sum::<usize>() / value_bytes.len() + 64;
    let records = cache.capacity_bytes() / average as u64 * 2;
    let asked = measure(|| {
        for n in 0..records {
            let bytes = value_bytes[n as usize % value_bytes.len()];
            drop(cache.insert(&key(n), Sequence(n), &value[..bytes]));
        }
    });
    (asked.bytes_current as u64, cache.bytes(), cache.len() as u64)
}

/// What allocators round up to is in the weights and not in what they are asked for: at most so
/// many hundredths for these sizes.
const SIZES: [(&[usize], u64); 9] = [
    (&[0], 28),
    (&[8], 3),
    (&[176], 10),
    (&[1000], 3),
    (&[1012], 4),
    (&[1155], 5),
    (&[4976], 5),
    (&[10_000], 5),
    (&[0, 8, 40, 100, 176, 333, 1000, 1012, 1700, 3000, 4976, 9999], 6),
];

#[test]
fn weights_of_cached_records_are_the_memory_they_take() {
    for (value_bytes, percent) in SIZES {
        for capacity in [1 << 20, 5 << 20, 16 << 20, 23 << 20] {
            let cache = RecordCache::new(capacity);
            let (asked, counted, _) = fill(&cache, value_bytes);
            assert!(counted <= capacity, "{counted} bytes of {capacity}");
            assert!(counted > capacity * 95 / 100, "{counted} bytes of {capacity}: unused");
            assert!(asked <= counted, "{asked} bytes counted as {counted}, {value_bytes:?}");
            let rounded = asked + asked * percent / 100;
            assert!(counted <= rounded, "{asked} bytes counted as {counted}, {value_bytes:?}");
        }
    }
}

#[test]
fn a_cached_record_takes_little_besides_its_bytes() {
    // A record of 24 and 1,000 bytes, and others: whole sizes of the allocator, and just above.
    for (value_bytes, most) in [(8, 96), (176, 285), (1000, 1090), (1012, 1125), (4976, 5190)] {
        let (_, counted, records) = fill(&RecordCache::new(32 << 20), &[value_bytes]);
        let each = counted / records;
        assert!(each < most, "{each} bytes for a record of 24 and {value_bytes}");
    }
}

#[test]
fn memory_that_is_taken_away_is_given_back_at_once() {
    let cache = RecordCache::new(16 << 20);
    let value = [7; 5000];
    let count = |change: &dyn Fn()| measure(change).bytes_current;
    let mut held = 0;
    for round in 0..3 {
        held += count(&|| {
            (0..40_000).for_each(|n| {
                let bytes = (n * 7 % 1200) as usize;
                drop(cache.insert(&key(n), Sequence(round), &value[..bytes]));
            });
        });
        held += count(&|| drop(cache.set_capacity_bytes(1 << 20)));
        assert!(held <= 1 << 20, "{held} bytes are held");
        held += count(&|| (0..40_000).for_each(|n| cache.forget(&key(n), Sequence(round))));
        assert!(cache.is_empty());
        // Ghosts may be left of what went.
        assert!(held <= 64 << 10, "{held} bytes are held by nothing");
        held += count(&|| cache.clear());
        assert_eq!((held, cache.bytes()), (0, 0));
        held += count(&|| drop(cache.set_capacity_bytes(16 << 20)));
    }
}

#[test]
fn hits_allocate_their_copy_only_and_values_are_only_as_large_as_themselves() {
    let cache = RecordCache::new(1 << 20);
    let block = vec![1u8; 100_000];
    let kept = measure(|| drop(cache.insert(b"key", Sequence(1), &block[10..20]))).bytes_current;
    assert!(kept < 10_000, "{kept} bytes for a record of ten");
    let mut found = None;
    let hit = measure(|| found = cache.get(b"key", Sequence(1)));
    assert_eq!((hit.count_total, hit.bytes_total), (1, 10), "the copy");
    assert_eq!(found.as_deref(), Some(&block[10..20]));
    let others = measure(|| {
        assert!(cache.contains(b"key", Sequence(1)) && cache.get(b"key", Sequence(2)).is_none());
    });
    assert_eq!(others.count_total, 0);
}
