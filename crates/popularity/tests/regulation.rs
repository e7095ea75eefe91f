//! What regulates itself by counters: read-triggered compactions (§5.3), the tuner of the pinning
//! threshold (§7.4) and the budget of writes.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use proptest::prelude::*;
use thermocline_foundation::random::Random;
use thermocline_popularity::{
    ReadCounters, ReadTriggered, ReadTriggeredSettings, ReadTriggeredStage, ThresholdMode,
    ThresholdTuner, TunerSettings, TunerStage, WriteBudget, lifetime_ns, slow_io,
};

const EPOCH: u64 = 1_000_000;

/// A machine and the counters it is fed with.
struct Readers {
    machine: ReadTriggered,
    counters: ReadCounters,
}

impl Readers {
    fn new() -> Self {
        let machine = ReadTriggered::new(ReadTriggeredSettings::default());
        Self { machine, counters: ReadCounters::default() }
    }

    /// So many operations, of which these shares are reads, and reads from the fast tier.
    fn pass(&mut self, operations: u64, read_share: f64, fast_share: f64) -> bool {
        let reads = (operations as f64 * read_share).round() as u64;
        let fast = (reads as f64 * fast_share).round() as u64;
        self.counters.operations += operations;
        self.counters.reads += reads;
        self.counters.fast_reads += fast;
        self.counters.slow_reads += reads - fast;
        self.machine.observe(self.counters, 0.5)
    }
}

#[test]
fn defaults_of_read_triggered_compactions_are_the_papers() {
    let settings = ReadTriggeredSettings::default();
    assert_eq!(settings.epoch_operations, 1_000_000);
    assert_eq!(settings.cool_down_operations, 10_000_000);
    assert_eq!(settings.improvement_min, 0.01);
}

#[test]
fn compactions_run_when_reads_dominate_and_tracked_keys_are_on_the_slow_tier() {
    let mut readers = Readers::new();
    assert!(!readers.pass(EPOCH - 1, 1.0, 0.5), "not before an epoch is over");
    assert!(readers.pass(1, 1.0, 0.5));
    assert_eq!(readers.machine.stage(), ReadTriggeredStage::Running);
}

#[test]
fn writers_and_well_placed_keys_trigger_nothing() {
    assert!(!Readers::new().pass(EPOCH, 0.5, 0.5), "half are writes");
    assert!(!Readers::new().pass(EPOCH, 1.0, 1.0), "all reads are fast");
    let mut readers = Readers::new();
    readers.counters =
        ReadCounters { operations: EPOCH, reads: EPOCH, fast_reads: 0, slow_reads: EPOCH };
    assert!(!readers.machine.observe(readers.counters, 0.1), "few tracked keys are slow");
}

#[test]
fn compactions_go_on_while_each_epoch_improves_by_a_point_then_cool_down() {
    let mut readers = Readers::new();
    assert!(readers.pass(EPOCH, 1.0, 0.50));
    assert!(readers.pass(EPOCH, 1.0, 0.60));
    assert!(readers.pass(EPOCH, 1.0, 0.61), "one point is enough");
    assert!(!readers.pass(EPOCH, 1.0, 0.615), "half a point is not");
    assert_eq!(readers.machine.stage(), ReadTriggeredStage::CoolingDown);
    assert_eq!(readers.machine.epochs_run(), 3);
}

#[test]
fn cool_down_lasts_ten_million_operations_and_detection_begins_anew() {
    let mut readers = Readers::new();
    readers.pass(EPOCH, 1.0, 0.5);
    assert!(!readers.pass(EPOCH, 1.0, 0.5));
    for _ in 0..9 {
        assert!(!readers.pass(EPOCH, 1.0, 0.1));
        assert_eq!(readers.machine.stage(), ReadTriggeredStage::CoolingDown);
    }
    readers.pass(EPOCH, 1.0, 0.1);
    assert_eq!(readers.machine.stage(), ReadTriggeredStage::Detecting);
    assert!(readers.pass(EPOCH, 1.0, 0.1), "it may run again");
}

/// Operations go by at a cost that depends on the threshold; returns the thresholds used.
fn climb(
    tuner: &mut ThresholdTuner,
    epochs: u32,
    mut cost_of: impl FnMut(f64) -> f64,
    totals: &mut (u64, u64),
) -> Vec<f64> {
    let mut thresholds = Vec::new();
    for _ in 0..epochs {
        totals.0 += EPOCH;
        totals.1 += (cost_of(tuner.threshold().share()) * EPOCH as f64) as u64;
        thresholds.push(tuner.observe(totals.0, totals.1).share());
    }
    thresholds
}

fn auto(start: f64) -> ThresholdTuner {
    let settings = TunerSettings { mode: ThresholdMode::Auto, start, ..TunerSettings::default() };
    ThresholdTuner::new(settings)
}

/// Cheapest at `best`; a step off it costs a few per cent more.
fn valley(best: f64) -> impl FnMut(f64) -> f64 {
    move |threshold| 1.0 + (threshold - best).abs() * 2.0
}

#[test]
fn fixed_threshold_is_the_default_and_never_moves() {
    let mut tuner = ThresholdTuner::new(TunerSettings::default());
    let thresholds = climb(&mut tuner, 50, valley(0.2), &mut (0, 0));
    assert!(thresholds.iter().all(|threshold| *threshold == 0.7));
}

#[test]
fn threshold_climbs_to_the_cheapest_from_both_sides_and_stays_near() {
    for start in [0.15, 0.7, 0.95] {
        let mut tuner = auto(start);
        let mut totals = (0, 0);
        climb(&mut tuner, 60, valley(0.45), &mut totals);
        assert!(tuner.steps_kept() >= 4);
        let later = climb(&mut tuner, 60, valley(0.45), &mut totals);
        assert!(later.iter().all(|at| (at - 0.45).abs() < 0.051 + 1e-9), "{later:?}");
        let close = later.iter().filter(|at| (*at - 0.45).abs() < 0.03).count();
        assert!(close > 30, "most of the time it rests: {later:?}");
    }
}

#[test]
fn threshold_stays_within_its_bounds() {
    let (mut up, mut down) = (auto(0.7), auto(0.7));
    let rising = climb(&mut up, 200, |threshold| 2.0 - threshold, &mut (0, 0));
    let falling = climb(&mut down, 200, |threshold| 1.0 + threshold, &mut (0, 0));
    assert_eq!(rising.iter().copied().fold(0.0, f64::max), 0.95);
    assert_eq!(falling.iter().copied().fold(1.0, f64::min), 0.10);
}

#[test]
fn noise_on_a_plateau_moves_the_threshold_by_no_more_than_probes() {
    let mut tuner = auto(0.5);
    let mut random = Random::new(1);
    // Half of what counts as noise, either way.
    let thresholds = climb(&mut tuner, 300, |_| 1.0 + 0.01 * random.unit(), &mut (0, 0));
    assert_eq!(tuner.steps_kept(), 0);
    assert!(thresholds.iter().all(|at| (at - 0.5).abs() < 0.05 + 1e-9));
    let resting = thresholds.iter().filter(|at| **at == 0.5).count();
    assert!(resting > 150, "{resting} of 300 epochs without a probe");
}

#[test]
fn change_of_the_workload_ends_a_rest() {
    let mut tuner = auto(0.5);
    let mut totals = (0, 0);
    while !matches!(tuner.stage(), TunerStage::Resting { epochs_left: 1..=5 }) {
        climb(&mut tuner, 1, |_| 1.0, &mut totals);
    }
    climb(&mut tuner, 1, |_| 3.0, &mut totals);
    assert_eq!(tuner.stage(), TunerStage::Measuring);
}

/// Where the tuner ends that sees look-ups and, if so, merges of a store with this share of reads.
/// The more is pinned the fewer reads go to the slow tier, and the fewer records leave with each
/// table that a merge rewrites.
fn threshold_of(read_share: f64, sees_merges: bool) -> f64 {
    let mut tuner = auto(0.7);
    let (mut operations, mut look_ups, mut merged_bytes) = (0, 0.0, 0.0);
    for _ in 0..100 {
        let pinned = tuner.threshold().share();
        operations += EPOCH;
        look_ups += EPOCH as f64 * read_share * 0.3 * (1.0 - 0.6 * pinned);
        merged_bytes += EPOCH as f64 * (1.0 - read_share) * 4096.0 / (1.1 - pinned);
        let merged = if sees_merges { merged_bytes as u64 } else { 0 };
        tuner.observe(operations, slow_io(look_ups as u64, merged));
    }
    tuner.threshold().share()
}

#[test]
fn readers_want_more_pinned_and_writers_less() {
    assert!(threshold_of(0.95, true) >= 0.8, "{}", threshold_of(0.95, true));
    assert!(threshold_of(0.1, true) <= 0.25, "{}", threshold_of(0.1, true));
    // With look-ups as the only cost writers had to pin all that they may.
    assert!(threshold_of(0.1, false) >= 0.9, "{}", threshold_of(0.1, false));
}

#[test]
fn a_merge_of_thirty_two_kib_costs_as_much_as_a_look_up() {
    assert_eq!(slow_io(10, 0), 10);
    assert_eq!(slow_io(10, 64 << 10), 12);
    assert_eq!(slow_io(u64::MAX, u64::MAX), u64::MAX);
}

#[test]
fn epochs_are_counted_in_operations() {
    let mut tuner = auto(0.5);
    for _ in 0..1000 {
        tuner.observe(EPOCH - 1, 12345);
    }
    assert_eq!(tuner.stage(), TunerStage::Measuring);
    assert_eq!(tuner.threshold().share(), 0.5);
}

const DAY_NS: u64 = 86_400_000_000_000;
const HOUR_NS: u64 = DAY_NS / 24;

#[test]
fn budget_of_a_day_is_the_capacity_times_drive_writes_per_day() {
    let mut budget = WriteBudget::with_burst(1_000_000, 0.5, 2000.0, 0);
    let mut written = 0u64;
    for now_ns in (0..=DAY_NS).step_by(HOUR_NS as usize / 60) {
        if budget.allows(1000, now_ns) {
            budget.spend(1000, now_ns);
            written += 1000;
        }
    }
    assert!((500_000..=502_000).contains(&written), "{written}");
}

#[test]
fn idle_time_saves_up_one_burst_and_no_more() {
    let budget = WriteBudget::new(24_000_000, 1.0, 0);
    assert_eq!(budget.tokens_at(0), 1_000_000.0);
    assert_eq!(budget.tokens_at(30 * DAY_NS), 1_000_000.0);
}

#[test]
fn an_emptied_budget_has_what_flows_in_from_then_on() {
    let budget = WriteBudget::new(24_000_000, 1.0, 5).emptied();
    assert!(!budget.allows(1, 5));
    assert!(budget.allows(500_000, 5 + HOUR_NS / 2 + 1_000_000));
    assert_eq!(budget.tokens_at(30 * DAY_NS), 1_000_000.0);
}

#[test]
fn missing_bytes_flow_in_at_the_rate() {
    let mut budget = WriteBudget::new(24_000_000, 1.0, 5);
    assert!(budget.allows(1_000_000, 5));
    budget.spend(1_000_000, 5);
    assert!(!budget.allows(500_000, 5 + HOUR_NS / 2 - 1_000_000));
    assert!(budget.allows(500_000, 5 + HOUR_NS / 2 + 1_000_000));
}

#[test]
fn amount_above_the_burst_waits_for_a_full_bucket_and_leaves_a_debt() {
    let mut budget = WriteBudget::new(24_000_000, 1.0, 0);
    assert!(budget.allows(3_000_000, 0));
    budget.spend(3_000_000, 0);
    assert!(!budget.allows(1, 2 * HOUR_NS - 1_000_000_000));
    assert!(budget.allows(1, 2 * HOUR_NS + 1_000_000_000));
}

#[test]
fn what_is_promised_is_allowed_to_no_other_until_it_is_written_or_given_back() {
    let mut budget = WriteBudget::new(24_000_000, 1.0, 0);
    budget.promise(700_000);
    assert!(budget.allows(300_000, 0) && !budget.allows(300_001, 0));
    budget.observe(600_000, 0);
    assert!(!budget.allows(1, 0), "what is written of it counts twice meanwhile");
    budget.release(700_000);
    assert!(budget.allows(400_000, 0) && !budget.allows(400_001, 0));
    budget.observe(600_000, 0);
    assert!(budget.allows(400_000, 0), "the total is the same");
}

#[test]
fn the_wait_is_until_enough_has_flowed_in() {
    let mut budget = WriteBudget::new(24_000_000, 1.0, 0);
    assert_eq!(budget.wait_ns(1_000_000, 0), 0);
    budget.spend(1_000_000, 0);
    assert_eq!(budget.scarcity(0), 1.0);
    let wait_ns = budget.wait_ns(250_000, 0);
    assert!(wait_ns.abs_diff(HOUR_NS / 4) < 1000, "{wait_ns}");
    assert!(budget.allows(250_000, wait_ns + 1000));
    assert!((budget.scarcity(HOUR_NS / 4) - 0.75).abs() < 1e-9);
    budget.promise(600_000);
    assert_eq!(budget.wait_ns(500_000, 0), u64::MAX, "the promise must be kept first");
}

#[test]
fn no_budget_allows_nothing_once_anything_was_written() {
    let mut budget = WriteBudget::new(1_000_000, 0.0, 0);
    budget.spend(1, 0);
    assert!(!budget.allows(1, u64::MAX));
}

#[test]
fn clock_that_goes_back_adds_nothing() {
    let mut budget = WriteBudget::new(24_000_000, 1.0, HOUR_NS);
    budget.spend(1_000_000, HOUR_NS);
    budget.spend(0, 0);
    assert_eq!(budget.tokens_at(HOUR_NS), 0.0);
}

proptest! {
    #[test]
    fn allowed_bytes_never_pass_burst_and_rate(
        writes in proptest::collection::vec((0u64..HOUR_NS, 1u64..900_000), 1..200),
    ) {
        let mut budget = WriteBudget::new(24_000_000, 1.0, 0);
        let (mut now_ns, mut written) = (0u64, 0u64);
        for (pause_ns, bytes) in writes {
            now_ns += pause_ns;
            if budget.allows(bytes, now_ns) {
                budget.spend(bytes, now_ns);
                written += bytes;
            }
            let flowed = now_ns as f64 * 24_000_000.0 / DAY_NS as f64;
            prop_assert!(written as f64 <= 1_000_000.0 + flowed + 1.0);
        }
    }
}

#[test]
fn lifetime_follows_from_the_rate_so_far() {
    // A tenth of the rating in a year leaves nine.
    assert_eq!(lifetime_ns(100, 365 * DAY_NS, 1000), Some(9 * 365 * DAY_NS));
    assert_eq!(lifetime_ns(0, DAY_NS, 1000), None);
    assert_eq!(lifetime_ns(2000, DAY_NS, 1000), Some(0));
    assert_eq!(lifetime_ns(1, u64::MAX, u64::MAX), Some(u64::MAX));
}
