//! What the tracker promises: bounded memory, exact counts, the paper's values, no flushing by
//! loads.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use proptest::prelude::*;
use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::{ClockTracker, Histogram, SHARDS};

fn recount(tracker: &ClockTracker, keys: u64) -> Histogram {
    let mut histogram = Histogram::default();
    for key_hash in (0..keys).map(mix) {
        let Some(value) = tracker.value(key_hash) else { continue };
        let on_fast = tracker.on_fast(key_hash).unwrap();
        let side = if on_fast { &mut histogram.on_fast } else { &mut histogram.on_slow };
        side[usize::from(value)] += 1;
    }
    histogram
}

fn assert_counts_are_exact(tracker: &ClockTracker, keys: u64) {
    let histogram = tracker.histogram();
    assert_eq!(histogram, recount(tracker, keys));
    assert_eq!(histogram.total(), tracker.len() as u64);
    assert!(tracker.len() <= tracker.capacity());
}

/// One of every call; `action` and `draw` choose it.
fn act(tracker: &ClockTracker, action: u8, key: u64, draw: u16) {
    let (key_hash, flag) = (mix(key), draw.is_multiple_of(2));
    match action {
        0..=5 => {
            tracker.touch(key_hash, flag);
        }
        6..=7 => {
            tracker.touch_write(key_hash, flag);
        }
        8 => tracker.set_location(key_hash, flag),
        9 => tracker.forget(key_hash),
        _ => tracker.set_capacity(usize::from(draw % 70)),
    }
}

proptest! {
    #[test]
    fn histogram_equals_a_recount_after_any_calls(
        calls in proptest::collection::vec((0u8..11, 0u64..90, any::<u16>()), 0..400),
        capacity in 0usize..60,
        shards in prop_oneof![Just(1usize), Just(4), Just(64)],
    ) {
        let tracker = ClockTracker::new(capacity, shards);
        for &(action, key, draw) in &calls {
            act(&tracker, action, key, draw);
        }
        assert_counts_are_exact(&tracker, 90);
    }

    #[test]
    fn same_calls_give_same_answers(
        calls in proptest::collection::vec((0u8..11, 0u64..90, any::<u16>()), 0..200),
    ) {
        let (a, b) = (ClockTracker::new(40, 4), ClockTracker::new(40, 4));
        for &(action, key, draw) in &calls {
            act(&a, action, key, draw);
            act(&b, action, key, draw);
        }
        let values = |tracker: &ClockTracker| -> Vec<_> {
            (0..90).map(|key| tracker.value(mix(key))).collect()
        };
        prop_assert_eq!(values(&a), values(&b));
    }
}

#[test]
fn counts_stay_exact_under_threads_that_touch_at_once() {
    let tracker = ClockTracker::new(500, SHARDS);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let tracker = &tracker;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..20_000 {
                    // Capacities change rarely, everything else often.
                    let action = random.below(10) as u8;
                    act(tracker, action, random.below(2000), random.next_u64() as u16);
                }
                tracker.set_capacity(300 + 100 * seed as usize);
            });
        }
    });
    assert_counts_are_exact(&tracker, 2000);
}

#[test]
fn clock_gives_the_first_access_zero_and_later_ones_three() {
    let tracker = ClockTracker::new(100, 1);
    assert_eq!(tracker.touch(mix(1), false), Some(0));
    assert_eq!(tracker.touch(mix(1), false), Some(3));
    assert_eq!(tracker.touch(mix(1), false), Some(3));
    assert_eq!(tracker.value(mix(1)), Some(3));
    assert_eq!(tracker.value(mix(2)), None);
}

#[test]
fn full_clock_evicts_keys_of_value_zero_first() {
    let tracker = ClockTracker::new(50, 1);
    (0..50).for_each(|key| {
        tracker.touch(mix(key), true);
    });
    (0..40).for_each(|key| {
        tracker.touch(mix(key), true);
    });
    (100..110).for_each(|key| {
        tracker.touch(mix(key), true);
    });
    assert!((0..40).all(|key| tracker.value(mix(key)).is_some()), "hot keys stay");
    assert_eq!(tracker.len(), 50);
}

#[test]
fn load_that_writes_each_key_once_does_not_flush_the_tracker() {
    let tracker = ClockTracker::new(100, 1);
    (0..100).for_each(|key| {
        tracker.touch(mix(key), false);
    });
    let values = recount(&tracker, 100);
    for key in 1000..20_000 {
        assert_eq!(tracker.touch_write(mix(key), false), None);
    }
    assert_eq!(recount(&tracker, 100), values);
}

#[test]
fn update_counts_where_an_older_version_was_on_the_fast_tier() {
    let tracker = ClockTracker::new(100, 1);
    assert_eq!(tracker.touch_write(mix(1), true), Some(0), "it enters as a first access");
    assert_eq!(tracker.on_fast(mix(1)), Some(true));
    assert!(tracker.touch_write(mix(1), true).unwrap() > 0);
}

#[test]
fn read_modify_write_of_a_key_on_the_slow_tier_is_one_access() {
    let tracker = ClockTracker::new(100, 1);
    tracker.touch(mix(1), false);
    assert_eq!(tracker.touch_write(mix(1), false), Some(0));
    assert_eq!(tracker.on_fast(mix(1)), Some(true), "it has come up");
    assert!(tracker.touch(mix(1), true).unwrap() > 0, "the next access is the second");
}

#[test]
fn location_follows_promotion_demotion_and_reads() {
    let tracker = ClockTracker::new(100, 1);
    tracker.touch(mix(1), false);
    assert_eq!(tracker.histogram().slow_share(), 1.0);
    tracker.set_location(mix(1), true);
    assert_eq!((tracker.on_fast(mix(1)), tracker.value(mix(1))), (Some(true), Some(0)));
    assert_eq!(tracker.histogram().slow_share(), 0.0);
    tracker.touch(mix(1), false);
    assert_eq!(tracker.on_fast(mix(1)), Some(false));
    tracker.set_location(mix(2), true);
    assert_eq!(tracker.value(mix(2)), None, "a location alone makes nothing popular");
}

#[test]
fn forgotten_key_is_not_tracked() {
    let tracker = ClockTracker::new(100, 1);
    tracker.touch(mix(1), true);
    tracker.forget(mix(1));
    assert_eq!(tracker.value(mix(1)), None);
    assert!(tracker.is_empty());
}

#[test]
fn tracker_of_no_capacity_tracks_nothing() {
    let tracker = ClockTracker::new(0, 4);
    (0..100).for_each(|key| assert_eq!(tracker.touch(mix(key), true), None));
    assert_eq!((tracker.len(), tracker.histogram().total()), (0, 0));
}

#[test]
fn tracked_keys_survive_growth() {
    let tracker = ClockTracker::new(1000, 4);
    (0..800).for_each(|key| {
        tracker.touch(mix(key), true);
    });
    let before = recount(&tracker, 800);
    tracker.set_capacity(5000);
    assert_eq!(recount(&tracker, 800), before);
    assert_eq!(tracker.capacity(), 5000);
}

#[test]
fn a_key_costs_the_memory_that_is_documented() {
    const KEYS: usize = 200_000;
    let per_key = |tracker: &ClockTracker| tracker.bytes() as f64 / tracker.capacity() as f64;
    let fresh = ClockTracker::new(KEYS, SHARDS);
    assert!(per_key(&fresh) < 10.1, "{} bytes", per_key(&fresh));
    let grown = ClockTracker::new(KEYS / 10, SHARDS);
    (1..=20).for_each(|step| grown.set_capacity(KEYS / 10 + step * KEYS / 20));
    assert!(per_key(&grown) < 11.5, "{} bytes", per_key(&grown));
}
