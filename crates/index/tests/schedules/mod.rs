//! The index and the cache of records under chosen schedules: see
//! `thermocline_foundation::sync::schedules`. Leaves of two entries, so that nearly every insertion
//! splits and nearly every removal joins; caches of a few records.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::{Entry, EntryKind, FastIndex, IndexBatch, IndexLimits, RecordCache};
use std::ops::Bound::Unbounded;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::threads::{self, JoinHandle};

fn index() -> Arc<FastIndex> {
    Arc::new(FastIndex::with_limits(IndexLimits { leaf_entries: 2, branch_leaves: 4 }))
}

fn entry(sequence: u64) -> Entry {
    let sequence = Sequence(sequence);
    Entry { slot: sequence.0, sequence, kind: EntryKind::Put, clean: false, record_bytes: 1 }
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).unwrap()
}

fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

fn keys(batch: &IndexBatch) -> Vec<u8> {
    batch.iter().map(|(key, _)| key[0]).collect()
}

#[test]
fn writers_of_neighbouring_keys_lose_nothing_through_splits_and_joins() {
    check(3000, || {
        let index = index();
        (0..12).for_each(|key| assert!(index.insert(&[key], entry(1)).is_none()));
        let writers = (0..3u8).map(|writer| {
            let index = Arc::clone(&index);
            spawn(move || {
                for key in (writer..12).step_by(3) {
                    assert!(index.insert(&[key, 0], entry(2)).is_none());
                    assert_eq!(index.remove(&[key], Sequence(1)), Some(entry(1)));
                    assert_eq!(index.get(&[key, 0]), Some(entry(2)));
                    assert_eq!(index.get(&[key]), None);
                }
            })
        });
        join(writers.collect());
        index.check();
        let mut batch = IndexBatch::new();
        index.ascend(Unbounded, Unbounded, 100, &mut batch);
        assert_eq!(keys(&batch), (0..12).collect::<Vec<_>>());
        assert_eq!((index.len(), index.record_bytes()), (12, 12));
    });
}

#[test]
fn traversals_see_every_key_that_stays_once_whatever_is_split_and_joined() {
    check(3000, || {
        let index = index();
        // Even keys stay, odd ones come and go.
        (0..10).for_each(|key| assert!(index.insert(&[key * 2], entry(1)).is_none()));
        let writer = Arc::clone(&index);
        let writer = spawn(move || {
            let odd: Vec<[u8; 1]> = (0..10).map(|key| [key * 2 + 1]).collect();
            let records: Vec<_> = odd.iter().map(|key| (key, entry(2))).collect();
            writer.insert_many(&records, |_, _| panic!("nothing is replaced"));
            let versions: Vec<_> = odd.iter().map(|key| (key, Sequence(2))).collect();
            let mut removed = 0;
            writer.remove_many(&versions, |_, _| removed += 1);
            assert_eq!(removed, 10);
        });
        let reader = Arc::clone(&index);
        let reader = spawn(move || {
            let mut batch = IndexBatch::new();
            reader.ascend(Unbounded, Unbounded, 100, &mut batch);
            let up = keys(&batch);
            reader.descend(Unbounded, Unbounded, 100, &mut batch);
            let mut down = keys(&batch);
            down.reverse();
            for found in [up, down] {
                assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
                let stayed = found.iter().filter(|key| *key % 2 == 0).count();
                assert_eq!(stayed, 10, "{found:?}");
            }
        });
        join(vec![writer, reader]);
        index.check();
        assert_eq!(index.len(), 10);
    });
}

#[test]
fn a_replaced_version_is_never_seen_missing() {
    check(3000, || {
        let index = index();
        (0..5).for_each(|key| assert!(index.insert(&[key], entry(1)).is_none()));
        let replacers = (0..2).map(|_| {
            let index = Arc::clone(&index);
            spawn(move || {
                for key in 0..5 {
                    let moved = Entry { slot: 7, ..entry(1) };
                    assert!(index.insert(&[key], moved).is_some(), "{key} is missing");
                }
            })
        });
        let mut threads: Vec<_> = replacers.collect();
        let writer = Arc::clone(&index);
        threads.push(spawn(move || {
            for key in 0..5 {
                assert!(writer.insert(&[key], entry(2)).is_none());
            }
        }));
        let reader = Arc::clone(&index);
        threads.push(spawn(move || {
            for key in [4, 2, 0] {
                assert!(reader.get(&[key]).is_some(), "{key} is missing");
                assert_eq!(reader.get_at(&[key], Sequence(1)).unwrap().sequence, Sequence(1));
            }
        }));
        join(threads);
        for key in 0..5 {
            assert_eq!(index.get_at(&[key], Sequence(1)).unwrap().slot, 7);
        }
        index.check();
    });
}

#[test]
fn of_a_version_and_its_successor_exactly_one_is_seen_whatever_is_split_and_joined() {
    check(3000, || {
        let index = index();
        (0..5).for_each(|key| assert!(index.insert(&[key], entry(1)).is_none()));
        let writer = Arc::clone(&index);
        let writer = spawn(move || {
            for sequence in 2..4 {
                let older = Some(Sequence(sequence - 1));
                let records: Vec<_> = (0..5).map(|key| ([key], entry(sequence), older)).collect();
                writer.succeed_many(&records);
            }
        });
        let others = Arc::clone(&index);
        let others = spawn(move || {
            (0..5).for_each(|key| assert!(others.insert(&[key, 0], entry(1)).is_none()));
            (0..5).for_each(|key| assert!(others.remove(&[key, 0], Sequence(1)).is_some()));
        });
        let reader = Arc::clone(&index);
        let reader = spawn(move || {
            let (mut versions, mut newest) = (Vec::new(), Sequence(0));
            for key in [2, 4, 0, 2, 2] {
                reader.versions(&[key], &mut versions);
                assert_eq!(versions.len(), 1, "{key}: {versions:?}");
                if key == 2 {
                    assert!(versions[0].sequence >= newest, "it went back");
                    newest = versions[0].sequence;
                }
            }
        });
        join(vec![writer, others, reader]);
        (0..5).for_each(|key| assert_eq!(index.get(&[key]), Some(entry(3))));
        index.check();
        assert_eq!(index.len(), 5);
    });
}

#[test]
fn a_record_that_departs_is_found_in_the_index_or_the_departure_is_noticed() {
    check(3000, || {
        let index = index();
        (0..6).for_each(|key| assert!(index.insert(&[key], entry(1)).is_none()));
        let departing = Arc::clone(&index);
        let departing = spawn(move || {
            let versions: Vec<_> = (1..5).map(|key| ([key], Sequence(1))).collect();
            departing.announce_departures();
            departing.remove_many(&versions, |_, _| ());
        });
        let reader = Arc::clone(&index);
        let reader = spawn(move || {
            let before = reader.departures();
            let mut batch = IndexBatch::new();
            reader.ascend(Unbounded, Unbounded, 100, &mut batch);
            let missing = batch.len() < 6 || reader.get(&[3]).is_none();
            if before == 0 && missing {
                assert_ne!(reader.departures(), before, "a departure unnoticed");
            }
        });
        join(vec![departing, reader]);
        assert_eq!((index.len(), index.departures()), (2, 1));
        index.check();
    });
}

/// Room for a few records of [`cached`] and the tables of a shard.
const CACHE_BYTES: u64 = 16 << 10;

/// A value that says whose it is, of half a kilobyte.
fn cached(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(64)
}

#[test]
fn a_record_is_in_the_cache_or_was_given_to_the_thread_that_pushed_it_out() {
    check(3000, || {
        let cache = Arc::new(RecordCache::new(CACHE_BYTES));
        let writers = (0..2u64).map(|writer| {
            let cache = Arc::clone(&cache);
            spawn(move || {
                let mut gone = Vec::new();
                for n in (writer..20).step_by(2) {
                    let evicted = cache.insert(&[n as u8], Sequence(n), &cached(n));
                    gone.extend(evicted.into_records());
                }
                gone
            })
        });
        let mut threads: Vec<_> = writers.collect();
        let resizing = Arc::clone(&cache);
        threads.push(spawn(move || {
            let mut gone = Vec::new();
            for bytes in [CACHE_BYTES * 3 / 4, CACHE_BYTES] {
                gone.extend(resizing.set_capacity_bytes(bytes).into_records());
            }
            gone
        }));
        let reader = Arc::clone(&cache);
        let reading = spawn(move || {
            for n in (0..20).chain(0..20) {
                if let Some(value) = reader.get(&[n as u8], Sequence(n)) {
                    assert_eq!(value, cached(n));
                }
            }
        });
        let gone: Vec<_> = join(threads).into_iter().flatten().collect();
        join(vec![reading]);
        let mut seen: Vec<u64> = gone.iter().map(|(_, sequence, _)| sequence.0).collect();
        assert!(
            gone.iter().all(|(key, at, value)| key[0] as u64 == at.0 && *value == cached(at.0))
        );
        seen.extend((0..20).filter(|n| cache.contains(&[*n as u8], Sequence(*n))));
        seen.sort_unstable();
        assert_eq!(seen, (0..20).collect::<Vec<_>>());
        assert!(cache.bytes() <= CACHE_BYTES && cache.len() > 2);
    });
}

#[test]
fn of_two_that_set_the_capacity_at_once_one_is_the_last_everywhere() {
    check(3000, || {
        // Two shards.
        let cache = Arc::new(RecordCache::new(2 << 20));
        let setters = [4 * CACHE_BYTES, 6 * CACHE_BYTES].map(|bytes| {
            let cache = Arc::clone(&cache);
            spawn(move || drop(cache.set_capacity_bytes(bytes)))
        });
        join(setters.into());
        let capacity = cache.capacity_bytes();
        (0..200u64).for_each(|n| drop(cache.insert(&[n as u8], Sequence(n), &cached(n))));
        assert!((capacity * 7 / 8..=capacity).contains(&cache.bytes()), "{}", cache.bytes());
        for n in 0..200 {
            cache.forget(&[n as u8], Sequence(n));
        }
        assert!(cache.is_empty());
    });
}
