//! What the cache of records keeps, gives back and forgets.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeMap;
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_index::RecordCache;

fn key(n: u64) -> Vec<u8> {
    format!("user{n:020}").into_bytes()
}

/// A value that says whose it is.
fn value(n: u64, sequence: u64) -> Vec<u8> {
    format!("{n}/{sequence}/").repeat(n as usize % 40 + 1).into_bytes()
}

#[test]
fn a_hit_is_the_value_of_exactly_that_key_and_sequence() {
    let cache = RecordCache::new(8 << 20);
    for n in 0..1000 {
        // One batch of writes has one sequence for several keys.
        cache.insert(&key(n), Sequence(n / 10), &value(n, n / 10));
    }
    for n in 0..1000 {
        assert_eq!(cache.get(&key(n), Sequence(n / 10)).unwrap(), value(n, n / 10));
        assert_eq!(cache.get(&key(n), Sequence(n / 10 + 1)), None);
        assert_eq!(cache.get(&key(n)[1..], Sequence(n / 10)), None);
    }
    assert_eq!((cache.hits(), cache.misses(), cache.len()), (1000, 2000, 1000));
}

/// Look-ups of many keys at once give the same as one by one: values, counters, and the records
/// that stay.
#[test]
fn many_look_ups_at_once_are_as_good_as_one_by_one() {
    let caches = [RecordCache::new(4 << 20), RecordCache::new(4 << 20)];
    let mut random = Random::new(3);
    for round in 0..200 {
        let asked: Vec<(Vec<u8>, Sequence)> = (0..random.below(100))
            .map(|_| (random.below(6000), u64::from(random.below(8) == 0)))
            .map(|(n, later)| (key(n), Sequence(n / 10 + later)))
            .collect();
        let wanted: Vec<_> = asked.iter().map(|(key, sequence)| (&key[..], *sequence)).collect();
        let together = caches[0].get_many(&wanted);
        let apart: Vec<_> =
            wanted.iter().map(|(key, sequence)| caches[1].get(key, *sequence)).collect();
        assert_eq!(together, apart, "round {round}");
        for _ in 0..100 {
            let n = random.below(6000);
            for cache in &caches {
                cache.insert(&key(n), Sequence(n / 10), &value(n, n / 10));
            }
        }
    }
    let [one, other] = caches.map(|cache| (cache.hits(), cache.misses(), cache.len()));
    assert_eq!(one, other);
    assert!(one.0 > 1000 && one.1 > 1000, "{one:?}");
    assert!(RecordCache::new(1 << 20).get_many(&[]).is_empty());
}

#[test]
fn an_empty_value_and_an_empty_key_are_kept_like_others() {
    let cache = RecordCache::new(1 << 20);
    cache.insert(b"", Sequence(1), b"value");
    cache.insert(b"key", Sequence(2), b"");
    assert_eq!(cache.get(b"", Sequence(1)).unwrap(), "value");
    assert_eq!(cache.get(b"key", Sequence(2)).unwrap(), "");
}

#[test]
fn the_capacity_holds_while_it_fills_and_when_it_shrinks() {
    let cache = RecordCache::new(4 << 20);
    for n in 0..50_000 {
        cache.insert(&key(n), Sequence(n), &value(n, n));
        assert!(cache.bytes() <= 4 << 20);
    }
    assert!(cache.bytes() > 3 << 20, "a full cache holds {}", cache.bytes());
    let before = cache.len();
    let mut gone = std::collections::BTreeSet::new();
    for (found, sequence, bytes) in cache.set_capacity_bytes(1 << 20).into_records() {
        assert_eq!(
            (found, &bytes[..]),
            (key(sequence.0).into(), &value(sequence.0, sequence.0)[..])
        );
        assert!(gone.insert(sequence.0), "{sequence} went twice");
    }
    assert_eq!(cache.len(), before - gone.len());
    assert!((0..50_000).all(|n| !gone.contains(&n) || !cache.contains(&key(n), Sequence(n))));
    assert!(cache.bytes() <= 1 << 20 && !cache.is_empty());
    assert_eq!(cache.capacity_bytes(), 1 << 20);
    assert_eq!(cache.set_capacity_bytes(8 << 20).into_records().count(), 0);
    (0..50_000).for_each(|n| drop(cache.insert(&key(n), Sequence(n), &value(n, n))));
    assert!(cache.bytes() > 6 << 20);
    cache.clear();
    assert_eq!((cache.bytes(), cache.len()), (0, 0));
}

#[test]
fn forgetting_frees_the_memory_of_one_version_only() {
    let cache = RecordCache::new(1 << 20);
    cache.insert(b"key", Sequence(1), b"old");
    let one = cache.bytes();
    cache.insert(b"key", Sequence(2), b"new");
    cache.forget(b"key", Sequence(1));
    cache.forget(b"other", Sequence(2));
    assert_eq!(cache.bytes(), one);
    assert_eq!(cache.get(b"key", Sequence(1)), None);
    assert_eq!(cache.get(b"key", Sequence(2)).unwrap(), "new");
}

/// Records that are backed and others, as many of each, are asked for in turns, and newcomers come
/// and go: how many of each stay.
fn stay_beside_newcomers() -> [usize; 2] {
    let cache = RecordCache::new(1 << 20);
    let insert = |n: u64| {
        let value = value(n, n);
        match n.is_multiple_of(2) {
            true => cache.insert_backed(&key(n), Sequence(n), value.len(), || value),
            false => cache.insert(&key(n), Sequence(n), &value),
        }
    };
    let known = 0..1000;
    known.clone().for_each(|n| drop(insert(n)));
    for n in 1000..41_000 {
        if n % 2000 < 2 {
            known.clone().for_each(|n| drop(cache.get(&key(n), Sequence(n))));
        }
        insert(n);
    }
    let stays = |n: &u64| cache.contains(&key(*n), Sequence(*n));
    [0, 1].map(|parity| known.clone().filter(stays).filter(|n| n % 2 == parity).count())
}

#[test]
fn records_that_are_backed_make_room_for_others() {
    let [backed, others] = stay_beside_newcomers();
    assert!(backed * 10 < others && others > 300, "{backed} backed, {others} others");
}

#[test]
fn a_value_outlives_its_place_in_the_cache() {
    let cache = RecordCache::new(1 << 20);
    cache.insert(b"key", Sequence(1), b"value");
    let value = cache.get(b"key", Sequence(1)).unwrap();
    cache.forget(b"key", Sequence(1));
    drop(cache);
    assert_eq!(value, "value");
}

#[test]
fn a_scan_does_not_flush_what_is_asked_for_often() {
    let cache = RecordCache::new(2 << 20);
    for _ in 0..5 {
        for n in 0..500 {
            if cache.get(&key(n), Sequence(n)).is_none() {
                cache.insert(&key(n), Sequence(n), &value(n, n));
            }
        }
    }
    (1000..50_000).for_each(|n| drop(cache.insert(&key(n), Sequence(n), &value(n, n))));
    let kept = (0..500).filter(|n| cache.get(&key(*n), Sequence(*n)).is_some()).count();
    assert!(kept > 450, "{kept} of 500 are left");
}

/// Hits among the second half of some draws, of which number `n` of many thousand is drawn about
/// as often as `1 / n`; every other `scanned` draws are of records that come once.
fn hits(scanned: u64, mut is_hit: impl FnMut(u64) -> bool) -> usize {
    let mut random = Random::new(7);
    let mut hits = 0;
    for draw in 0..400_000 {
        let n = 200_000f64.powf(random.unit()) as u64;
        if scanned > 0 && draw / scanned % 2 == 1 {
            is_hit(1_000_000 + draw);
        } else if is_hit(n) && draw > 200_000 {
            hits += 1;
        }
    }
    hits
}

#[test]
fn more_draws_are_hits_than_in_a_list_of_the_last_used_and_a_scan_costs_few() {
    let value = [7; 300];
    let mut few = [0; 2];
    for (few, scanned) in few.iter_mut().zip([0, 5000]) {
        let cache = RecordCache::new(2 << 20);
        *few = hits(scanned, |n| {
            let hit = cache.get(&key(n), Sequence(n)).is_some();
            if !hit {
                cache.insert(&key(n), Sequence(n), &value);
            }
            hit
        });
        // As many records, the one that was not asked for longest goes.
        let (mut uses, mut order) = (BTreeMap::new(), BTreeMap::new());
        let mut now = 0u64;
        let last_used = hits(scanned, |n| {
            now += 1;
            let before = uses.insert(n, now);
            before.map(|use_before| order.remove(&use_before));
            order.insert(now, n);
            if uses.len() > cache.len() {
                let (_, oldest) = order.pop_first().unwrap();
                uses.remove(&oldest);
            }
            before.is_some()
        });
        assert!(*few > last_used * 103 / 100, "{few} hits, last used {last_used}");
    }
    // Half of the draws are of the scan.
    assert!(few[1] * 2 > few[0] * 95 / 100, "{few:?}");
}

/// A cache full of records that nothing else has, each asked for as it came.
fn full_of_single_copies() -> RecordCache {
    let cache = RecordCache::new(1 << 20);
    for n in 0..1500 {
        cache.insert(&key(n), Sequence(n), &[7; 1000]);
        cache.get(&key(n), Sequence(n));
    }
    cache
}

#[test]
fn a_backed_record_stays_where_it_is_asked_for_much_more_often_than_others() {
    let survivors = |hits_of_backed: u64| {
        let cache = full_of_single_copies();
        let backed = 10_000..10_100u64;
        for n in backed.clone() {
            // Until it is taken, as hot as it may be.
            while !cache.contains(&key(n), Sequence(n)) {
                cache.insert_backed(&key(n), Sequence(n), 1000, || [7; 1000]);
            }
            (0..24).for_each(|_| drop(cache.get(&key(n), Sequence(n))));
        }
        for round in 0..12u64 {
            for n in round * 500..round * 500 + 500 {
                cache.insert(&key(20_000 + n), Sequence(n), &[7; 1000]);
                cache.get(&key(20_000 + n), Sequence(n));
            }
            for n in backed.clone() {
                (0..hits_of_backed).for_each(|_| drop(cache.get(&key(n), Sequence(n))));
            }
        }
        backed.filter(|n| cache.contains(&key(*n), Sequence(*n))).count()
    };
    assert_eq!(survivors(16), 100);
    assert_eq!(survivors(1), 0, "others that are asked for as often would cost more to miss");
}

#[test]
fn of_backed_records_that_would_push_others_out_one_in_eight_is_kept() {
    let cache = full_of_single_copies();
    let kept = |backed: std::ops::Range<u64>| {
        let keep = |n: &u64| {
            cache.insert_backed(&key(*n), Sequence(*n), 1000, || [7; 1000]);
            cache.contains(&key(*n), Sequence(*n))
        };
        backed.filter(keep).count()
    };
    assert_eq!(kept(10_000..10_800), 100);
    cache.clear();
    assert_eq!(kept(20_000..20_500), 500, "there is room for all of them");
}

#[test]
fn a_record_that_loses_its_backing_counts_whole_again() {
    let survivors = |unback: bool| {
        let cache = RecordCache::new(1 << 20);
        let backed = 10_000..10_100u64;
        for n in backed.clone() {
            cache.insert_backed(&key(n), Sequence(n), 1000, || [7; 1000]);
            if unback {
                cache.unback(&key(n), Sequence(n));
            }
        }
        for round in 0..20u64 {
            for n in backed.clone() {
                cache.get(&key(n), Sequence(n));
            }
            for n in 0..200 {
                cache.insert(&key(round * 1000 + n), Sequence(n), &[7; 1000]);
            }
        }
        backed.filter(|n| cache.contains(&key(*n), Sequence(*n))).count()
    };
    assert_eq!((survivors(true), survivors(false)), (100, 0));
}

#[test]
fn the_same_calls_leave_the_same_records() {
    let run = || {
        let cache = RecordCache::new(4 << 20);
        let mut random = Random::new(5);
        for _ in 0..60_000 {
            let n = random.below(200) * random.below(200);
            if cache.get(&key(n), Sequence(n)).is_none() {
                cache.insert(&key(n), Sequence(n), &value(n, n));
            }
        }
        let present = |n: &u64| cache.get(&key(*n), Sequence(*n)).is_some();
        let kept: Vec<u64> = (0..40_000).filter(present).collect();
        (kept, cache.hits(), cache.bytes())
    };
    let first = run();
    assert!(first.0.len() > 1000 && first.1 > 1000);
    assert_eq!(first, run());
}

#[test]
fn what_an_insertion_pushes_out_is_given_back_whole() {
    let cache = RecordCache::new(1 << 20);
    let mut gone = std::collections::BTreeSet::new();
    for n in 0..5000 {
        for (found, sequence, bytes) in
            cache.insert(&key(n), Sequence(n), &value(n, n)).into_records()
        {
            assert_eq!(found, key(sequence.0));
            assert_eq!(bytes, value(sequence.0, sequence.0));
            assert!(!cache.contains(&found, sequence));
            assert!(gone.insert(sequence.0), "{sequence} went twice");
        }
    }
    assert!(gone.len() > 1000);
    let (hits, misses) = (cache.hits(), cache.misses());
    for n in 0..5000 {
        assert_eq!(cache.contains(&key(n), Sequence(n)), !gone.contains(&n));
    }
    assert!(!cache.contains(&key(4999), Sequence(1)));
    assert_eq!((cache.hits(), cache.misses()), (hits, misses), "nothing was looked up");
}

#[test]
fn a_record_that_is_too_large_is_given_back_at_once() {
    let cache = RecordCache::new(1 << 20);
    let large = vec![7; 2 << 20];
    let evicted: Vec<_> = cache.insert(b"", Sequence(9), &large).into_records().collect();
    assert_eq!(evicted, [(Default::default(), Sequence(9), large.into())]);
    assert!(cache.is_empty());
}
