//! What reads, merges and copies tell the rules between the tiers, and the rules' last answers: the
//! pinning threshold, compactions that reads ask for, whether reads recur (where they do not they
//! move nothing up), whether copies get slots, and the wear of the slow tier (`space/budget.rs`).
//! The rules are plain arithmetic in the crate `popularity`; here the store's counters are kept for
//! them, readers count and never wait.

pub(crate) mod copy_worth;
pub(crate) mod pinning;
pub(crate) mod reuse;

use crate::environment::experiments::{DemotionPolicy, Pinning as PinningMode, Rule};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::feedback::copy_worth::Copies;
use crate::layout::hybrid::feedback::reuse::ReuseDetector;
use crate::layout::hybrid::rules::rule_set::RuleSet;
use crate::layout::hybrid::rules::space::SpaceLooks;
use crate::layout::hybrid::space::budget::SlowWrites;
use crate::settings::Settings;
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_popularity::{
    BucketSettings, Buckets, PinningThreshold, ReadCounters, ReadTriggered, ReadTriggeredSettings,
    ThresholdMode, ThresholdTuner, TunerSettings, slow_io,
};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Feedback {
    pub(crate) tuner: Mutex<ThresholdTuner>,
    pub(crate) read_triggered: Option<Mutex<ReadTriggered>>,
    /// Merges that reads asked for, in the epoch of this number.
    merges_for_reads: Mutex<(u64, usize)>,
    epoch_operations: u64,
    /// Operations of the store when a read woke the workers last, for an epoch was over.
    woken_operations: AtomicU64,
    pub slow_writes: SlowWrites,
    /// Of the last demotion that was chosen by its score.
    pub last_score: Mutex<Option<f64>>,
    pub copies: Copies,
    /// Look-ups that slots answered, and those that tables did.
    pub slot_reads: ReuseDetector,
    pub table_reads: ReuseDetector,
    /// Entries of all tables.
    pub table_entries: AtomicU64,
    /// The share of all keys that the threshold is a share of: a fifth, or what the settings say.
    pub share_of_keys: AtomicU64,
    /// What the planner knows of space of the slow tier to be given back.
    pub space_looks: Mutex<SpaceLooks>,
    /// As that, where older versions in tables are a reason, too.
    pub rest_looks: Mutex<SpaceLooks>,
    /// What is known of ranges without looking at every record.
    pub buckets: Option<Buckets>,
}

/// Reads wake the workers for the end of an epoch this often in the next one, at the most.
const WAKES_AN_EPOCH: u64 = 16;

impl FastTier {
    /// Judges anew whether reads of slots recur. Records that memory has were asked for, and their
    /// slots are not.
    pub fn judge_slots(&self) {
        let asked = self.popularity.histogram().on_fast_total();
        let tracked = asked.saturating_sub(self.cache.len() as u64);
        self.feedback.slot_reads.judge(tracked, self.index.len().saturating_sub(asked));
    }

    /// Judges anew whether reads of tables recur. Their entries of which the fast tier has a record
    /// are not asked; those that it has a newer version of are counted all the same, so where much
    /// is written anew reads seem to recur a little more than they do.
    pub fn judge_tables(&self) {
        let tracked = self.popularity.histogram().on_slow_total();
        let entries = self.feedback.table_entries.load(Relaxed);
        let known = tracked + self.index.clean_records();
        self.feedback.table_reads.judge(tracked, entries.saturating_sub(known));
    }
}

impl Feedback {
    /// Counters and answers of a store that was just opened.
    pub fn new(settings: &Settings, rules: &RuleSet, clock: &Arc<dyn Clock>) -> Self {
        let mode = match rules.pinning {
            PinningMode::Fixed => ThresholdMode::Fixed,
            PinningMode::Auto => ThresholdMode::Auto,
        };
        let start = f64::from(settings.hybrid.pinning_percent) / 100.0;
        let (epoch_operations, experiments) = (rules.epoch_operations, rules.experiments);
        let tuner = TunerSettings { mode, start, epoch_operations, ..TunerSettings::default() };
        let tuner = ThresholdTuner::new(tuner);
        let read_triggered = rules.read_triggered.then(|| {
            let cool_down_operations = rules.cool_down_operations;
            Mutex::new(ReadTriggered::new(ReadTriggeredSettings {
                epoch_operations,
                cool_down_operations,
                ..ReadTriggeredSettings::default()
            }))
        });
        let slow_writes = SlowWrites::new(settings, &**clock);
        let estimates = rules.policy == DemotionPolicy::Approximate || rules.read_triggered;
        let buckets = estimates.then(|| Buckets::new(BucketSettings::default()));
        let copies = Copies::new(experiments);
        Self {
            tuner: Mutex::new(tuner),
            read_triggered,
            merges_for_reads: Mutex::default(),
            epoch_operations,
            woken_operations: AtomicU64::new(0),
            slow_writes,
            last_score: Mutex::default(),
            copies,
            slot_reads: ReuseDetector::new(experiments.has(Rule::ReadsRecur)),
            table_reads: ReuseDetector::new(experiments.has(Rule::ReadsRecur)),
            table_entries: AtomicU64::new(0),
            share_of_keys: AtomicU64::new(u64::MAX),
            space_looks: Mutex::default(),
            rest_looks: Mutex::default(),
            buckets,
        }
    }

    /// Merges that reads asked for in this epoch. There may be as many as there are ranges: what
    /// memory has no room for goes down again, and would be brought up again and again.
    pub fn merges_for_reads(&self) -> usize {
        let epoch = self.read_triggered.as_ref().map_or(0, |rule| rule.lock().epochs_run());
        let mut merges = self.merges_for_reads.lock();
        if merges.0 != epoch {
            *merges = (epoch, 0);
        }
        merges.1
    }

    /// One more of them.
    pub fn begin_merge_for_reads(&self) {
        self.merges_for_reads.lock().1 += 1;
    }

    /// The pinning threshold of the moment.
    pub fn threshold(&self) -> PinningThreshold {
        self.tuner.lock().threshold()
    }
}

impl Hybrid {
    /// Lets the rules see what was asked of the store since; true where reads ask for a compaction
    /// (PrismDB, section 5.3).
    pub fn regulate(&self) -> bool {
        let metrics = &self.shared.counts;
        let (reads, operations) = (metrics.gets.get(), self.shared.operations());
        let slow_reads = metrics.slow_reads.get();
        let cost = slow_io(slow_reads, metrics.demotions.io_bytes.get());
        self.fast.feedback.tuner.lock().observe(operations, cost);
        let Some(read_triggered) = &self.fast.feedback.read_triggered else { return false };
        let fast_reads = metrics.fast_reads.get();
        let now = ReadCounters { operations, fast_reads, slow_reads, reads };
        read_triggered.lock().observe(now, self.fast.popularity.histogram().slow_share())
    }

    /// Wakes the workers where an epoch is over of which [`Hybrid::regulate`] is to hear: they ask
    /// it when they look for work, and reads alone may wake them for nothing else. Where they have
    /// other work, or none is allowed, they are not woken at every look.
    pub fn wake_at_end_of_epoch(&self) {
        let rules = &self.fast.feedback;
        let operations = self.shared.operations();
        let since_woken = operations.saturating_sub(rules.woken_operations.load(Relaxed));
        if since_woken < rules.epoch_operations / WAKES_AN_EPOCH {
            return;
        }
        let read_triggered = rules.read_triggered.as_ref();
        let is_over = rules.tuner.lock().is_epoch_over(operations)
            || read_triggered.is_some_and(|rule| rule.lock().is_epoch_over(operations));
        if is_over {
            rules.woken_operations.store(operations, Relaxed);
            self.shared.jobs.wake();
        }
    }
}

#[cfg(test)]
mod tests;
