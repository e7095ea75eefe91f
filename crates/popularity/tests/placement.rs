//! The rules by which ranges and records are chosen: pinning (§4.3), scores (§5.1, §5.2), the
//! choice of candidates (§5.3), and buckets (§6), each against the paper's words or an exact count.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use proptest::prelude::*;
use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::{
    BucketSettings, Buckets, ClockTracker, Histogram, Pinning, PinningThreshold, Policy,
    RangeStatistics, Run, VALUES, best_merge, choose, coldness, power_of_k, score,
};

fn histogram(counts: [u64; 4]) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.on_fast[..4].copy_from_slice(&counts);
    histogram
}

/// The example of §4.3: 10 % have the value 3, 10 % have 2, 30 % have 1, the rest 0.
const EXAMPLE: [u64; 4] = [50, 30, 10, 10];

#[test]
fn threshold_of_the_papers_example_pins_all_threes_and_half_of_the_twos() {
    let pinning = PinningThreshold::new(0.15).pinning(&histogram(EXAMPLE));
    let probabilities = [3, 2, 1, 0].map(|value| pinning.probability(Some(value)));
    assert_eq!(probabilities, [1.0, 0.5, 0.0, 0.0]);
    assert!(pinning.decide(Some(2), 0.49) && !pinning.decide(Some(2), 0.5));
}

#[test]
fn threshold_that_falls_between_two_values_draws_nothing() {
    let pinning = PinningThreshold::new(0.10).pinning(&histogram(EXAMPLE));
    assert_eq!(pinning.probability(Some(3)), 1.0);
    assert_eq!(pinning.probability(Some(2)), 0.0);
}

#[test]
fn more_threes_than_the_threshold_are_sampled() {
    let pinning = PinningThreshold::new(0.10).pinning(&histogram([30, 10, 10, 50]));
    assert_eq!(pinning.probability(Some(3)), 0.2);
    assert_eq!(pinning.probability(Some(2)), 0.0);
}

#[test]
fn untracked_key_is_never_pinned() {
    let pinning = PinningThreshold::new(1.0).pinning(&histogram(EXAMPLE));
    assert!(pinning.decide(Some(0), 0.999));
    assert!(!pinning.decide(None, 0.0));
}

#[test]
fn default_threshold_is_seventy_percent_and_nothing_is_pinned_of_nothing() {
    assert_eq!(PinningThreshold::default().share(), 0.7);
    assert_eq!(PinningThreshold::new(f64::NAN).share(), 0.0);
    assert_eq!(PinningThreshold::new(7.0).share(), 1.0);
    let of_nothing = PinningThreshold::default().pinning(&Histogram::default());
    assert_eq!(of_nothing, Pinning::nothing());
}

proptest! {
    #[test]
    fn pinned_share_is_the_threshold_and_hotter_keys_go_first(
        counts in proptest::array::uniform16(0u64..1000),
        share in 0.0f64..=1.0,
    ) {
        let histogram = Histogram { on_fast: counts, on_slow: [1; VALUES] };
        let pinning = PinningThreshold::new(share).pinning(&histogram);
        let probability = |value: usize| pinning.probability(Some(value as u8));
        let pinned: f64 =
            (0..VALUES).map(|value| histogram.count(value) as f64 * probability(value)).sum();
        prop_assert!((pinned - share * histogram.total() as f64).abs() < 1e-6);
        for value in 1..VALUES {
            prop_assert!(probability(value) >= probability(value - 1));
        }
    }
}

fn range() -> RangeStatistics {
    RangeStatistics {
        fast_objects: 100.0,
        fast_bytes: 1000.0,
        slow_objects: 500.0,
        slow_bytes: 5000.0,
        overlap_bytes: 1000.0,
        coldness: 60.0,
        pinned_bytes: 200.0,
    }
}

#[test]
fn coldness_is_the_inverse_of_the_value_plus_one() {
    assert_eq!([Some(0), Some(1), Some(3), None].map(coldness), [1.0, 0.5, 0.25, 1.0]);
}

#[test]
fn score_is_equation_one() {
    // F = 5, o = 0.2, p = 0.2: cost 5 * 1.8 / 0.8 + 1 = 12.25.
    assert!((score(&range()) - 60.0 / 12.25).abs() < 1e-9);
    assert!((range().io_bytes() / range().moved_bytes() - 12.25).abs() < 1e-9);
    assert_eq!(range().written_bytes(), 800.0 + 4000.0);
}

#[test]
fn range_of_which_nothing_would_move_scores_zero() {
    assert_eq!(score(&RangeStatistics::default()), 0.0);
    assert_eq!(score(&RangeStatistics { pinned_bytes: 1000.0, ..range() }), 0.0);
    assert_eq!(score(&RangeStatistics { fast_bytes: 0.0, ..range() }), 0.0);
}

#[test]
fn colder_ranges_and_ranges_with_less_to_rewrite_score_higher() {
    assert!(score(&RangeStatistics { coldness: 90.0, ..range() }) > score(&range()));
    assert!(score(&RangeStatistics { slow_bytes: 2000.0, ..range() }) > score(&range()));
    assert!(score(&RangeStatistics { overlap_bytes: 3000.0, ..range() }) > score(&range()));
    assert!(score(&RangeStatistics { pinned_bytes: 600.0, ..range() }) < score(&range()));
}

#[test]
fn demotion_into_a_new_run_costs_one_byte_a_byte() {
    let merge = best_merge(&range(), &[Run { bytes: 5000.0, overlap_bytes: 1000.0 }], 4, 0.0);
    assert_eq!((merge.runs, merge.score, merge.written_bytes), (0, 60.0, 800.0));
}

#[test]
fn with_one_run_a_range_all_is_merged_and_scored_as_in_the_paper() {
    let merge = best_merge(&range(), &[Run { bytes: 5000.0, overlap_bytes: 1000.0 }], 1, 0.0);
    assert_eq!((merge.runs, merge.score), (1, score(&range())));
}

#[test]
fn merge_takes_the_newest_runs_until_few_enough_remain() {
    let run = |bytes: f64| Run { bytes, overlap_bytes: 0.0 };
    let runs = [run(100.0), run(400.0), run(4500.0)];
    // Two may remain: the two newest become one with what is demoted, the large one is left.
    let merge = best_merge(&range(), &runs, 2, 0.0);
    assert_eq!((merge.runs, merge.written_bytes), (2, 800.0 + 500.0));
    assert_eq!(best_merge(&range(), &runs, 4, 0.0).runs, 0);
    assert_eq!(best_merge(&range(), &runs, 1, 0.0).runs, 3);
    assert_eq!(best_merge(&range(), &runs, 0, 0.0).runs, 3, "no run at all is no choice");
    assert_eq!(best_merge(&range(), &[], 1, 0.0).runs, 0);
}

/// Bytes written for each byte that is demoted, while a range of 24 units takes in 120 more, one at
/// a time.
fn written_a_byte(runs_max: usize) -> f64 {
    let range = RangeStatistics {
        fast_objects: 1.0,
        fast_bytes: 1.0,
        coldness: 1.0,
        ..RangeStatistics::default()
    };
    let mut runs = vec![Run { bytes: 24.0, overlap_bytes: 0.0 }];
    let mut written = 0.0;
    for _ in 0..120 {
        let merge = best_merge(&range, &runs, runs_max, 0.0);
        let merged: f64 = runs.drain(..merge.runs).map(|run| run.bytes).sum();
        runs.insert(0, Run { bytes: 1.0 + merged, overlap_bytes: 0.0 });
        assert!(runs.len() <= runs_max);
        written += merge.written_bytes;
    }
    written / 120.0
}

#[test]
fn more_runs_are_less_to_write_and_a_merge_pays_for_those_after_it() {
    let written: Vec<f64> = (1..=6).map(written_a_byte).collect();
    assert!(written.is_sorted_by(|fewer, more| more < fewer), "{written:?}");
    // Merging the newest run alone, once all are there, would rewrite half of 120 each time.
    assert!(written[5] < 8.0, "{written:?}");
}

#[test]
fn power_of_k_draws_different_candidates_and_all_equally_often() {
    let mut random = Random::new(3);
    let mut drawn = [0u32; 20];
    for _ in 0..5000 {
        let mut sample = power_of_k(20, 1, 8, &mut random);
        sample.iter().for_each(|candidate| drawn[*candidate] += 1);
        sample.sort_unstable();
        sample.dedup();
        assert_eq!(sample.len(), 8);
    }
    assert!(drawn.iter().all(|count| (1800..2200).contains(count)), "{drawn:?}");
}

#[test]
fn candidate_of_several_tables_never_runs_past_the_last() {
    let mut random = Random::new(3);
    for _ in 0..100 {
        // Seven of them have three tables behind the first.
        let mut drawn = power_of_k(10, 4, 8, &mut random);
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 3, 4, 5, 6]);
    }
    let drawn: Vec<_> = (0..200).flat_map(|_| power_of_k(10, 4, 2, &mut random)).collect();
    assert!((0..7).all(|first| drawn.contains(&first)) && drawn.iter().all(|first| *first < 7));
    assert_eq!(power_of_k(0, 1, 8, &mut random), []);
    assert_eq!(power_of_k(2, 4, 8, &mut random), [0], "fewer tables than a candidate has");
    assert_eq!(power_of_k(5, 1, 8, &mut random).len(), 5);
}

#[test]
fn highest_score_is_chosen_and_the_first_of_equals() {
    let mut random = Random::new(3);
    let scores = [0.0, 2.0, 5.0, 5.0];
    for policy in [Policy::Precise, Policy::Approximate] {
        assert_eq!(choose(policy, &[0, 1, 2, 3], &mut random, |i| scores[i]), Some(2));
        assert_eq!(choose(policy, &[0], &mut random, |i| scores[i]), None, "nothing to move");
    }
    let chosen: Vec<_> = (0..100)
        .filter_map(|_| choose(Policy::Random, &[4, 5], &mut random, |_| unreachable!()))
        .collect();
    assert!(chosen.contains(&4) && chosen.contains(&5));
    assert_eq!(choose(Policy::Random, &[], &mut random, |_| 1.0), None);
}

/// A record of the exact model: key, hash, bytes on the fast and on the slow tier, value.
struct Record {
    key: Vec<u8>,
    key_hash: u64,
    fast: u32,
    slow: u32,
    value: Option<u8>,
}

fn records(count: u64, seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    let record = |number: u64| {
        let place = random.below(10);
        let value = random.below(6) as u8;
        Record {
            key: format!("user{number:08}").into_bytes(),
            key_hash: mix(number ^ seed << 32),
            fast: if place < 4 { 50 + random.below(100) as u32 } else { 0 },
            slow: if place > 1 { 50 + random.below(100) as u32 } else { 0 },
            value: (value < 4).then_some(value),
        }
    };
    (0..count).map(record).collect()
}

fn exact(records: &[Record], pinning: &Pinning) -> RangeStatistics {
    let mut range = RangeStatistics::default();
    for record in records {
        let (fast, slow) = (f64::from(record.fast), f64::from(record.slow));
        let pinned = pinning.probability(record.value);
        let on_fast = record.fast > 0;
        range.add(&RangeStatistics {
            fast_objects: f64::from(u8::from(on_fast)),
            fast_bytes: fast,
            slow_objects: f64::from(u8::from(record.slow > 0)),
            slow_bytes: slow,
            overlap_bytes: if on_fast { slow * (1.0 - pinned) } else { 0.0 },
            coldness: if on_fast { coldness(record.value) } else { 0.0 },
            pinned_bytes: fast * pinned,
        });
    }
    range
}

fn fill(buckets: &Buckets, records: &[Record]) {
    for Record { key, key_hash, fast, slow, value } in records {
        if *fast > 0 {
            buckets.insert_fast(key, *key_hash, *fast);
        }
        if *slow > 0 {
            buckets.insert_slow(key, *key_hash, *slow);
        }
        buckets.touch(key, *key_hash, *value);
    }
}

fn fields(range: &RangeStatistics) -> [f64; 7] {
    [
        range.fast_objects,
        range.fast_bytes,
        range.slow_objects,
        range.slow_bytes,
        range.overlap_bytes,
        range.coldness,
        range.pinned_bytes,
    ]
}

fn assert_close(estimate: &RangeStatistics, exact: &RangeStatistics, relative: f64) {
    for (estimate, exact) in fields(estimate).into_iter().zip(fields(exact)) {
        assert!((estimate - exact).abs() <= relative * exact + 1e-6, "{estimate} of {exact}");
    }
}

fn example_pinning() -> Pinning {
    PinningThreshold::new(0.15).pinning(&histogram(EXAMPLE))
}

#[test]
fn estimate_is_exact_when_every_key_is_sampled() {
    let (records, pinning) = (records(3000, 1), example_pinning());
    let buckets = Buckets::new(BucketSettings { bucket_keys: 100, sample_shift: 0 });
    fill(&buckets, &records);
    assert!(buckets.len() > 10, "buckets divide by themselves: {}", buckets.len());
    for (from, to) in [(0, 3000), (0, 1), (17, 1450), (299, 301), (1000, 2999)] {
        let end = records.get(to).map(|record| &record.key[..]);
        let estimate = buckets.estimate(&records[from].key, end, &pinning);
        assert_close(&estimate, &exact(&records[from..to], &pinning), 1e-9);
    }
    let backwards = buckets.estimate(b"z", Some(b"a"), &pinning);
    assert_eq!(backwards, RangeStatistics::default());
}

/// 64 K keys of which 2 in 5 are on the fast tier: a candidate range of the paper's size. A sample
/// of one in 32 holds 800 of these, hence a standard error of 3.5 %; the score goes with the square
/// of that count, so its error is twice that. The rarest field, pinned bytes, has 200 keys: 7 %.
#[test]
fn sampled_estimate_of_a_tables_range_is_within_three_standard_errors() {
    let pinning = example_pinning();
    let mut ratios = Vec::new();
    for seed in 0..4 {
        let records = records(3 << 16, seed);
        let buckets = Buckets::new(BucketSettings::default());
        fill(&buckets, &records);
        let inside = &records[40_000..105_536];
        let to = &records[105_536].key;
        let estimate = buckets.estimate(&inside[0].key, Some(to), &pinning);
        let exact = exact(inside, &pinning);
        assert_close(&estimate, &exact, 3.0 * 0.07);
        assert!((estimate.fast_objects / exact.fast_objects - 1.0).abs() < 3.0 * 0.035);
        ratios.push(score(&estimate) / score(&exact));
    }
    assert!(ratios.iter().all(|ratio| (ratio - 1.0).abs() < 3.0 * 0.07), "{ratios:?}");
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    assert!((mean - 1.0).abs() < 3.0 * 0.07 / 2.0, "no bias: {mean}");
}

#[test]
fn bucket_follows_removals_and_forgets_keys_of_neither_tier() {
    let (mut records, pinning) = (records(2000, 2), example_pinning());
    let buckets = Buckets::new(BucketSettings { bucket_keys: 150, sample_shift: 0 });
    fill(&buckets, &records);
    for record in records.iter_mut().step_by(3) {
        buckets.remove_fast(&record.key, record.key_hash);
        record.fast = 0;
    }
    for record in records.iter_mut().step_by(2) {
        buckets.remove_slow(&record.key, record.key_hash);
        record.slow = 0;
    }
    assert_close(&buckets.estimate(b"", None, &pinning), &exact(&records, &pinning), 1e-9);
    for record in &records {
        buckets.remove_fast(&record.key, record.key_hash);
        buckets.remove_slow(&record.key, record.key_hash);
    }
    assert!(buckets.is_empty());
    assert_eq!(fields(&buckets.estimate(b"", None, &pinning)), [0.0; 7]);
}

#[test]
fn refresh_takes_values_from_the_tracker_and_cools_what_it_evicted() {
    let tracker = ClockTracker::new(100, 1);
    let buckets = Buckets::new(BucketSettings { bucket_keys: 1000, sample_shift: 0 });
    for key in 0..10u8 {
        buckets.insert_fast(&[key], mix(u64::from(key)), 100);
        buckets.touch(&[key], mix(u64::from(key)), Some(3));
    }
    tracker.touch(mix(4), true);
    tracker.touch(mix(4), true);
    let coldness_of = || buckets.estimate(b"", None, &Pinning::nothing()).coldness;
    assert_eq!(coldness_of(), 10.0 / 4.0);
    buckets.refresh(b"", None, &tracker);
    assert_eq!(coldness_of(), 9.0 + 0.25);
}

#[test]
fn keys_that_grow_with_time_leave_no_empty_buckets_behind() {
    let buckets = Buckets::new(BucketSettings { bucket_keys: 50, sample_shift: 0 });
    for number in 0..20_000u64 {
        buckets.insert_fast(&number.to_be_bytes(), mix(number), 1);
        if let Some(old) = number.checked_sub(300) {
            buckets.remove_fast(&old.to_be_bytes(), mix(old));
        }
    }
    assert!(buckets.len() < 20, "{} buckets", buckets.len());
}

#[test]
fn bytes_of_wanted_keys_are_those_that_only_the_slow_tier_has() {
    let exact = BucketSettings { sample_shift: 0, ..BucketSettings::default() };
    let buckets = Buckets::new(exact);
    for (key, hash) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        buckets.insert_slow(key.as_bytes(), hash, 100);
    }
    buckets.insert_fast(b"b", 2, 90);
    let wanted = |from: &str, to: Option<&str>| {
        buckets.slow_bytes_of(from.as_bytes(), to.map(str::as_bytes), |key, hash| {
            assert_eq!(u64::from(key[0] - b'a') + 1, hash);
            key != b"c"
        })
    };
    assert_eq!(wanted("", None), 200.0, "one is above too, one is not wanted");
    assert_eq!(wanted("a\0", None), 100.0);
    assert_eq!(wanted("", Some("d")), 100.0);
    assert_eq!(wanted("d", Some("a")), 0.0);
    let sampled = Buckets::new(BucketSettings { sample_shift: 1, ..exact });
    (0..2000u64).for_each(|key| sampled.insert_slow(&key.to_be_bytes(), key << 24, 100));
    assert_eq!(sampled.slow_bytes_of(&[], None, |_, _| true), 200_000.0, "every other one");
}
