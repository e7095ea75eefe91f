//! What regulates the traffic between the tiers: the pinning threshold, compactions that reads ask
//! for, and the wear of the slow tier. The rules are in the crate `popularity`; here they are given
//! the store's counters and asked.

use super::FastTier;
use crate::hybrid_settings::{DemotionPolicy, Pinning as PinningMode};
use crate::settings::Settings;
use crate::state::Engine;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::Mutex;
use thermocline_popularity::{
    BucketSettings, Buckets, PinningThreshold, ReadCounters, ReadTriggered, ReadTriggeredSettings,
    ThresholdMode, ThresholdTuner, TunerSettings, WriteBudget,
};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Regulation {
    tuner: Mutex<ThresholdTuner>,
    read_triggered: Option<Mutex<ReadTriggered>>,
    budget: Option<Mutex<WriteBudget>>,
    /// What is known of ranges without looking at every record.
    pub buckets: Option<Buckets>,
}

impl Regulation {
    /// Rules as `settings` want them.
    pub fn new(settings: &Settings, clock: &dyn Clock) -> Self {
        let hybrid = &settings.hybrid;
        let mode = match hybrid.pinning {
            PinningMode::Fixed => ThresholdMode::Fixed,
            PinningMode::Auto => ThresholdMode::Auto,
        };
        let start = f64::from(hybrid.pinning_percent) / 100.0;
        let tuner = ThresholdTuner::new(TunerSettings { mode, start, ..TunerSettings::default() });
        let read_triggered = hybrid
            .read_triggered
            .then(|| Mutex::new(ReadTriggered::new(ReadTriggeredSettings::default())));
        let slow_bytes = settings.tiers.get(1).map_or(0, |tier| tier.capacity.0);
        let budget = (hybrid.write_budget_dwpd > 0.0).then(|| {
            Mutex::new(WriteBudget::new(slow_bytes, hybrid.write_budget_dwpd, clock.now_ns()))
        });
        let estimates = hybrid.policy == DemotionPolicy::Approximate || hybrid.read_triggered;
        let buckets = estimates.then(|| Buckets::new(BucketSettings::default()));
        Self { tuner: Mutex::new(tuner), read_triggered, budget, buckets }
    }

    /// The pinning threshold of the moment.
    pub fn threshold(&self) -> PinningThreshold {
        self.tuner.lock().threshold()
    }

    /// The slow tier may be written to, as far as its wear is concerned.
    pub fn allows_writes(&self, bytes: u64, now_ns: u64) -> bool {
        self.budget.as_ref().is_none_or(|budget| budget.lock().allows(bytes, now_ns))
    }

    /// So many bytes were written to the slow tier.
    pub fn wrote(&self, bytes: u64, now_ns: u64) {
        if let Some(budget) = &self.budget {
            budget.lock().spend(bytes, now_ns);
        }
    }
}

impl Engine {
    /// Lets the rules see what was asked of the store since; true where reads ask for a compaction
    /// (PrismDB, section 5.3).
    pub fn regulate(&self, fast: &FastTier) -> bool {
        let metrics = &self.metrics;
        let reads = metrics.gets.get();
        let operations = reads + metrics.writes.get() + metrics.scans.get();
        let slow_reads = metrics.slow_reads.get();
        fast.regulation.tuner.lock().observe(operations, slow_reads);
        let Some(read_triggered) = &fast.regulation.read_triggered else { return false };
        let fast_reads = metrics.fast_reads.get();
        let now = ReadCounters { operations, fast_reads, slow_reads, reads };
        read_triggered.lock().observe(now, fast.popularity.histogram().slow_share())
    }
}
