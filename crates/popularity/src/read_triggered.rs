//! When to move records although nothing is full: read-triggered compactions (§5.3).
//!
//! Demotions begin when the fast tier fills up. Under reads alone it never does, and what became
//! hot meanwhile would stay on the slow tier. The paper's remedy has three stages:
//!
//! ```text
//!              reads dominate, and many tracked keys
//!              are on the slow tier
//!   Detecting ───────────────────────────────────────> Running ──┐ after each epoch of 1 M
//!       ^                                                 │  ^   │ operations: share of reads from
//!       │ after 10 M operations                           │  └───┘ the fast tier up by 1 % or more
//!       └──────────────── CoolingDown <───────────────────┘
//!                                          improved by less
//! ```
//!
//! The paper gives no numbers for "reads dominate" and "a large proportion"; the defaults here are
//! ours. An improvement of 1 % is taken as one percentage point of the reads.
//!
//! Invariants:
//! 1. Stages change at ends of epochs only, and counters only grow: the machine can be fed at any
//!    pace, late or in large steps, and no state depends on time.
//! 2. The share before is measured over the epoch before, never over all of the past.

/// Totals since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounters {
    /// Reads and writes of clients.
    pub operations: u64,
    /// Reads that found their record on the fast tier.
    pub fast_reads: u64,
    /// Reads that found their record on the slow tier.
    pub slow_reads: u64,
    /// Reads of clients, those answered from memory and of absent keys included.
    pub reads: u64,
}

/// Limits of the stages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadTriggeredSettings {
    /// Operations of an epoch; 1 or more. Paper: 1 M.
    pub epoch_operations: u64,
    /// Operations of the cool-down. Paper: 10 M.
    pub cool_down_operations: u64,
    /// The share of reads from the fast tier must rise by this much in an epoch. Paper: 1 %.
    pub improvement_min: f64,
    /// From this share of reads among the operations, reads dominate.
    pub read_share_min: f64,
    /// From this share of the tracked keys on the slow tier, placement lags behind.
    pub tracked_slow_share_min: f64,
    /// From this share of reads on the slow tier there is something to win.
    pub slow_read_share_min: f64,
}

impl Default for ReadTriggeredSettings {
    fn default() -> Self {
        Self {
            epoch_operations: 1_000_000,
            cool_down_operations: 10_000_000,
            improvement_min: 0.01,
            read_share_min: 0.8,
            tracked_slow_share_min: 0.2,
            slow_read_share_min: 0.02,
        }
    }
}

/// Where the machine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadTriggeredStage {
    #[default]
    Detecting,
    Running,
    CoolingDown,
}

/// See the header. One owner; feed it from a background job.
#[derive(Clone, Debug)]
pub struct ReadTriggered {
    settings: ReadTriggeredSettings,
    stage: ReadTriggeredStage,
    /// The counters when the epoch, or the cool-down, began.
    since: ReadCounters,
    /// Share of reads from the fast tier in the epoch before this one.
    share_before: f64,
    epochs_run: u64,
}

impl ReadTriggered {
    /// Begins with detection.
    pub fn new(settings: ReadTriggeredSettings) -> Self {
        Self {
            settings,
            stage: ReadTriggeredStage::Detecting,
            since: ReadCounters::default(),
            share_before: 0.0,
            epochs_run: 0,
        }
    }

    /// The stage now.
    pub fn stage(&self) -> ReadTriggeredStage {
        self.stage
    }

    /// Epochs in which read-triggered compactions ran.
    pub fn epochs_run(&self) -> u64 {
        self.epochs_run
    }

    /// Takes the counters and the share of tracked keys on the slow tier
    /// ([`Histogram::slow_share`](crate::Histogram::slow_share)); answers whether read-triggered
    /// compactions should run now.
    pub fn observe(&mut self, now: ReadCounters, tracked_slow_share: f64) -> bool {
        if self.is_epoch_over(now.operations) {
            self.end_epoch(now, tracked_slow_share);
            self.since = now;
        }
        self.stage == ReadTriggeredStage::Running
    }

    /// At so many operations [`ReadTriggered::observe`] would end an epoch, or the cool-down.
    pub fn is_epoch_over(&self, operations: u64) -> bool {
        let length = match self.stage {
            ReadTriggeredStage::CoolingDown => self.settings.cool_down_operations,
            _ => self.settings.epoch_operations,
        };
        operations.saturating_sub(self.since.operations) >= length.max(1)
    }

    fn end_epoch(&mut self, now: ReadCounters, tracked_slow_share: f64) {
        let operations = now.operations.saturating_sub(self.since.operations) as f64;
        let reads = now.reads.saturating_sub(self.since.reads) as f64;
        let fast = now.fast_reads.saturating_sub(self.since.fast_reads) as f64;
        let slow = now.slow_reads.saturating_sub(self.since.slow_reads) as f64;
        let share = if fast + slow > 0.0 { fast / (fast + slow) } else { 1.0 };
        self.stage = match self.stage {
            ReadTriggeredStage::Detecting => {
                let lags = tracked_slow_share >= self.settings.tracked_slow_share_min
                    && slow >= self.settings.slow_read_share_min * reads
                    && slow > 0.0;
                if lags && reads >= self.settings.read_share_min * operations {
                    ReadTriggeredStage::Running
                } else {
                    ReadTriggeredStage::Detecting
                }
            }
            ReadTriggeredStage::Running => {
                self.epochs_run += 1;
                // Sums of counters are exact, quotients are not: forgive the last digits.
                if share - self.share_before >= self.settings.improvement_min - 1e-9 {
                    ReadTriggeredStage::Running
                } else {
                    ReadTriggeredStage::CoolingDown
                }
            }
            ReadTriggeredStage::CoolingDown => ReadTriggeredStage::Detecting,
        };
        self.share_before = share;
    }
}
