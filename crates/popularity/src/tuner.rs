//! Finds the pinning threshold by hill climbing, which the paper leaves for later (§7.4).
//!
//! The best threshold depends on the workload: readers want more pinned, writers less. The tuner
//! moves it by a step, waits until the change has had its effect, compares the cost of an operation
//! with the cost before, and keeps what is better.
//!
//! The cost is the slow tier's I/O of both kinds ([`slow_io`]): look-ups, which fall as more is
//! pinned, and what demotions read and write, which rises, for less leaves with each range that is
//! rewritten. Look-ups alone would always ask for more to be pinned. A device of `I` operations and
//! `B` bytes a second is as busy with a look-up as with `B / I` bytes of a merge.
//!
//! ```text
//!   Measuring ──> Settling ──> Probing ──┬─ cheaper: keep it, next step the same way
//!      ^  cost here     │                └─ not clearly: back, other way; after both ways, rest
//!      │                v one epoch
//!   Resting <───────────┘  until `rest_epochs` are over, or the cost here changes by itself
//! ```
//!
//! Invariants:
//! 1. The threshold stays within its bounds; in the mode `Fixed` it never moves.
//! 2. Differences below `noise` move nothing, so on a plateau the threshold stays where it is.
//! 3. Epochs are counted in operations: an idle store learns nothing.

use crate::pinning::PinningThreshold;

/// Bytes of merges that keep a slow tier as busy as one look-up. Of the devices that the emulated
/// driver knows `B / I` is 30 KB for a cloud volume, 10 KB (written) to 50 KB (read) for a QLC
/// drive, 6 KB for a SATA drive; of a hard disk it is 2.5 MB, whose look-ups are dearer than this.
const LOOK_UP_BYTES: u64 = 32 << 10;

/// I/O of the slow tier in look-ups: those that it answered, and what merges read and wrote there.
pub fn slow_io(look_ups: u64, merged_bytes: u64) -> u64 {
    look_ups.saturating_add(merged_bytes / LOOK_UP_BYTES)
}

/// Whether the threshold moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThresholdMode {
    /// It stays as set.
    #[default]
    Fixed,
    /// It climbs.
    Auto,
}

/// How the tuner climbs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TunerSettings {
    pub mode: ThresholdMode,
    /// Where it begins, or stays.
    pub start: f64,
    /// Size of a step.
    pub step: f64,
    /// Bounds; below the lower nothing hot stays, above the upper demotions find nothing.
    pub threshold_min: f64,
    pub threshold_max: f64,
    /// Operations of an epoch; 1 or more.
    pub epoch_operations: u64,
    /// Epochs left unmeasured after a step, while records still move.
    pub settle_epochs: u32,
    /// Epochs to rest after both ways were no better.
    pub rest_epochs: u32,
    /// Relative change of cost below which two epochs count as equal.
    pub noise: f64,
    /// Relative change of cost that ends a rest: another workload.
    pub shift: f64,
}

impl Default for TunerSettings {
    fn default() -> Self {
        Self {
            mode: ThresholdMode::Fixed,
            start: PinningThreshold::default().share(),
            step: 0.05,
            threshold_min: 0.10,
            threshold_max: 0.95,
            epoch_operations: 1_000_000,
            settle_epochs: 1,
            rest_epochs: 8,
            noise: 0.02,
            shift: 0.15,
        }
    }
}

/// What the tuner is doing, for statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TunerStage {
    /// Measuring the cost at the threshold that it will step from.
    Measuring,
    /// Waiting for a change to take effect; then probing, or measuring after a step back.
    Settling { epochs_left: u32, probing: bool },
    /// Measuring the cost after a step.
    Probing,
    /// Both ways were no better.
    Resting { epochs_left: u32 },
}

/// See the header. One owner; feed it from a background job.
#[derive(Clone, Debug)]
pub struct ThresholdTuner {
    settings: TunerSettings,
    threshold: f64,
    stage: TunerStage,
    /// 1 upwards, -1 downwards.
    direction: f64,
    /// Where the last step came from, and what an operation cost there.
    came_from: f64,
    cost_there: f64,
    /// Ways that were no better since the last success.
    failures: u32,
    steps_kept: u64,
    epoch_began: u64,
    cost_then: u64,
}

impl ThresholdTuner {
    /// Begins at `settings.start`.
    pub fn new(settings: TunerSettings) -> Self {
        let fixed = settings.mode == ThresholdMode::Fixed;
        let (low, high) = (settings.threshold_min, settings.threshold_max);
        let start = if fixed { settings.start } else { settings.start.max(low).min(high) };
        Self {
            settings,
            threshold: start,
            stage: TunerStage::Measuring,
            direction: 1.0,
            came_from: start,
            cost_there: 0.0,
            failures: 0,
            steps_kept: 0,
            epoch_began: 0,
            cost_then: 0,
        }
    }

    /// How it climbs.
    pub fn settings(&self) -> &TunerSettings {
        &self.settings
    }

    /// The threshold to use now.
    pub fn threshold(&self) -> PinningThreshold {
        PinningThreshold::new(self.threshold)
    }

    /// What the tuner is doing.
    pub fn stage(&self) -> TunerStage {
        self.stage
    }

    /// Steps that were better and kept.
    pub fn steps_kept(&self) -> u64 {
        self.steps_kept
    }

    /// Takes totals since the store was opened: operations, and their cost ([`slow_io`]). Returns
    /// the threshold to use now.
    pub fn observe(&mut self, operations: u64, cost: u64) -> PinningThreshold {
        if self.is_epoch_over(operations) {
            let passed = operations.saturating_sub(self.epoch_began);
            let cost_each = cost.saturating_sub(self.cost_then) as f64 / passed as f64;
            self.epoch_began = operations;
            self.cost_then = cost;
            self.end_epoch(cost_each);
        }
        self.threshold()
    }

    /// At so many operations [`ThresholdTuner::observe`] would end an epoch.
    pub fn is_epoch_over(&self, operations: u64) -> bool {
        let passed = operations.saturating_sub(self.epoch_began);
        self.settings.mode == ThresholdMode::Auto && passed >= self.settings.epoch_operations.max(1)
    }

    fn end_epoch(&mut self, cost: f64) {
        match self.stage {
            TunerStage::Measuring => {
                self.cost_there = cost;
                self.step();
            }
            TunerStage::Settling { epochs_left, probing } => {
                self.stage = match (epochs_left.checked_sub(1), probing) {
                    (Some(left), _) if left > 0 => {
                        TunerStage::Settling { epochs_left: left, probing }
                    }
                    (_, true) => TunerStage::Probing,
                    (_, false) => TunerStage::Measuring,
                };
            }
            TunerStage::Probing if cost < self.cost_there * (1.0 - self.settings.noise) => {
                self.steps_kept += 1;
                self.failures = 0;
                self.cost_there = cost;
                self.step();
            }
            TunerStage::Probing => {
                self.threshold = self.came_from;
                self.turn(false);
            }
            TunerStage::Resting { epochs_left } => self.rest(epochs_left, cost),
        }
    }

    /// Takes a step, or turns at a bound.
    fn step(&mut self) {
        let to = self.threshold + self.direction * self.settings.step;
        let to = to.max(self.settings.threshold_min).min(self.settings.threshold_max);
        if (to - self.threshold).abs() < 1e-9 {
            self.turn(true);
            return;
        }
        self.came_from = self.threshold;
        self.threshold = to;
        self.stage = self.settling(true);
    }

    /// This way was no better: the other way, or rest. What an operation costs here is measured
    /// anew, as it may have changed meanwhile, unless no step was taken (`at_bound`).
    fn turn(&mut self, at_bound: bool) {
        self.direction = -self.direction;
        self.failures += 1;
        if self.failures >= 2 {
            self.failures = 0;
            self.stage = TunerStage::Resting { epochs_left: self.settings.rest_epochs };
        } else if at_bound {
            self.stage = TunerStage::Measuring;
        } else {
            self.stage = self.settling(false);
        }
    }

    fn settling(&self, probing: bool) -> TunerStage {
        match (self.settings.settle_epochs, probing) {
            (0, true) => TunerStage::Probing,
            (0, false) => TunerStage::Measuring,
            (epochs_left, probing) => TunerStage::Settling { epochs_left, probing },
        }
    }

    fn rest(&mut self, epochs_left: u32, cost: f64) {
        // The first epochs still see the step back.
        let rested = self.settings.rest_epochs.saturating_sub(epochs_left);
        let change = (cost - self.cost_there).abs();
        let shifted =
            rested >= self.settings.settle_epochs && change > self.settings.shift * self.cost_there;
        let over = epochs_left <= 1;
        self.stage = if over || shifted {
            TunerStage::Measuring
        } else {
            TunerStage::Resting { epochs_left: epochs_left - 1 }
        };
    }
}
