//! What regulates the traffic between the tiers: the pinning threshold, compactions that reads ask
//! for, whether copies get slots, and the wear of the slow tier. The rules are in the crate
//! `popularity`; here they are given the store's counters and asked.

use super::FastTier;
use crate::hybrid_settings::{DemotionPolicy, Pinning as PinningMode};
use crate::settings::Settings;
use crate::state::Engine;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::{Clock, Counter};
use thermocline_popularity::{
    BucketSettings, Buckets, CopyAdmission, CopyAdmissionSettings, CopyTurns, CopyUses, CopyWorth,
    CopyWorthSettings, PinningThreshold, ReadCounters, ReadTriggered, ReadTriggeredSettings,
    ThresholdMode, ThresholdTuner, TunerSettings, WriteBudget,
};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Regulation {
    tuner: Mutex<ThresholdTuner>,
    read_triggered: Option<Mutex<ReadTriggered>>,
    budget: Option<Mutex<WriteBudget>>,
    pub copies: Copies,
    /// What is known of ranges without looking at every record.
    pub buckets: Option<Buckets>,
}

/// What becomes of clean copies, in slots and in memory only, and which of them are worth slots.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Reads that they served.
    pub read: Counter,
    /// Those that a newer version replaced.
    pub replaced: Counter,
    /// Reads for which the slot of one was read.
    pub served: Counter,
    /// Those that lost their slots because nobody asked for them.
    pub unasked: Counter,
    worth: Mutex<CopyWorth>,
    /// Which share of them gets slots.
    pub admission: Mutex<CopyAdmission>,
    /// The last judgement.
    get_slots: AtomicBool,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            read: Counter::default(),
            replaced: Counter::default(),
            served: Counter::default(),
            unasked: Counter::default(),
            admission: Mutex::new(CopyAdmission::new(CopyAdmissionSettings::default())),
            worth: Mutex::new(CopyWorth::new(CopyWorthSettings::default())),
            get_slots: AtomicBool::new(true),
        }
    }
}

impl Copies {
    /// Whether they get slots, as it was judged last.
    pub fn get_slots(&self) -> bool {
        self.get_slots.load(Relaxed)
    }

    /// Judges anew whether they get slots, of which there are so many with a record, and which share.
    pub fn judge(&self, slots: u64) -> bool {
        let turns = CopyTurns { served: self.served.get(), dropped: self.unasked.get() };
        self.admission.lock().observe(turns, slots);
        let uses = CopyUses { read: self.read.get(), replaced: self.replaced.get() };
        let get_slots = self.worth.lock().observe(uses);
        self.get_slots.store(get_slots, Relaxed);
        get_slots
    }
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
        let copies = Copies::default();
        Self { tuner: Mutex::new(tuner), read_triggered, budget, copies, buckets }
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
