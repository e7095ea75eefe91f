//! What statistics say of the rules between the tiers, and of demotions.

use super::FastTier;
use super::regulation::Regulation;
use crate::hybrid_settings::Pinning as PinningMode;
use crate::state::Engine;
use crate::totals::{Count, Totals};
use serde::Serialize;
use thermocline_popularity::{ReadTriggeredStage, TunerSettings, TunerStage};

/// Demotions since the database was made.
#[derive(Clone, Debug, Serialize)]
pub struct DemotionStats {
    /// Those that ended; one that found too little and gave up is none.
    pub ended: u64,
    /// Seconds from the choice of a range to the edit, of all of them; two at a time count twice.
    pub elapsed_s: f64,
    /// The score of the last one that was chosen by it, since opening: coldness of what leaves for
    /// a byte of the slow tier's I/O, as the policy estimated it. None before the first.
    pub last_score: Option<f64>,
    /// Mean of the scores of all that were chosen by them; none before the first.
    pub mean_score: Option<f64>,
}

/// The rules that say what is on which tier, as they are now.
#[derive(Clone, Debug, Serialize)]
pub struct RegulationStats {
    /// Least and most share of the tracked keys that the tuner would pin, in percent; both are the
    /// share itself where it is fixed.
    pub pinning_bounds_percent: [f64; 2],
    /// What the tuner of that share is doing: `fixed`, `measuring`, `settling`, `probing` or
    /// `resting`.
    pub pinning_stage: &'static str,
    /// Steps of the tuner that were better and kept, since opening.
    pub pinning_steps_kept: u64,
    /// Whether reads may trigger merges: `off`, `detecting`, `running` or `cooling_down`.
    pub read_triggered_stage: &'static str,
    /// Epochs in which they did, since opening.
    pub read_triggered_epochs: u64,
    /// Bytes that may be written to the slow tier now, negative where more were; none without
    /// `hybrid.write_budget_dwpd`.
    pub write_budget_bytes: Option<i64>,
    /// Merges that this refused, since opening.
    pub refused_merges: u64,
    /// How many times as long a look-up in tables takes as the read of a slot: the nearer to 1, the
    /// more a hit in memory is worth that spares a slot's read. Of single look-ups, those that the
    /// block cache answered among them; none before 4,096 of tables and 256 of slots.
    pub slow_read_ratio: Option<f64>,
    /// Tracked keys on the fast tier by popularity, least first.
    pub fast_histogram: Vec<u64>,
    /// Tracked keys on the slow tier, likewise.
    pub slow_histogram: Vec<u64>,
}

impl DemotionStats {
    pub(crate) fn new(fast: &FastTier, totals: &Totals) -> Self {
        let scored = totals.of(Count::Scored);
        let mean = totals.of(Count::Scores) as f64 / 1000.0 / scored as f64;
        Self {
            ended: totals.of(Count::Demotions),
            elapsed_s: totals.of(Count::DemotionNs) as f64 / 1e9,
            last_score: *fast.regulation.last_score.lock(),
            mean_score: (scored > 0).then_some(mean),
        }
    }
}

impl RegulationStats {
    pub(crate) fn new(engine: &Engine, fast: &FastTier) -> Self {
        let Regulation { tuner, read_triggered, .. } = &fast.regulation;
        let (tuner, histogram) = (tuner.lock(), fast.popularity.histogram());
        let is_fixed = engine.settings.hybrid.pinning == PinningMode::Fixed;
        let TunerSettings { threshold_min, threshold_max, .. } = *tuner.settings();
        let share = tuner.threshold().share();
        let bounds = if is_fixed { [share, share] } else { [threshold_min, threshold_max] };
        let (read_triggered_stage, read_triggered_epochs) =
            read_triggered.as_ref().map_or(("off", 0), |rule| {
                let rule = rule.lock();
                (read_triggered_name(rule.stage()), rule.epochs_run())
            });
        let values = histogram.by_value().len();
        Self {
            pinning_bounds_percent: bounds.map(|share| 100.0 * share),
            pinning_stage: if is_fixed { "fixed" } else { tuner_name(tuner.stage()) },
            pinning_steps_kept: tuner.steps_kept(),
            read_triggered_stage,
            read_triggered_epochs,
            write_budget_bytes: engine.budget_bytes(fast),
            refused_merges: fast.regulation.slow_writes.refused.get(),
            slow_read_ratio: fast.regulation.read_waits.ratio(),
            fast_histogram: histogram.on_fast[..values].to_vec(),
            slow_histogram: histogram.on_slow[..values].to_vec(),
        }
    }
}

fn tuner_name(stage: TunerStage) -> &'static str {
    match stage {
        TunerStage::Measuring => "measuring",
        TunerStage::Settling { .. } => "settling",
        TunerStage::Probing => "probing",
        TunerStage::Resting { .. } => "resting",
    }
}

fn read_triggered_name(stage: ReadTriggeredStage) -> &'static str {
    match stage {
        ReadTriggeredStage::Detecting => "detecting",
        ReadTriggeredStage::Running => "running",
        ReadTriggeredStage::CoolingDown => "cooling_down",
    }
}
