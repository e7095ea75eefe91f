//! How many keys have which value: what the paper calls the mapper (§4.3, §6).
//!
//! The paper keeps four atomic integers, one a clock value. Here every shard of a tracker has its
//! own counts, changed under the shard's lock and read without it, so that no cache line is shared
//! by all readers; and the counts are kept apart by tier, because read-triggered compactions ask
//! which share of the tracked keys is on the slow tier (§5.3).
//!
//! Invariants:
//! 1. With no call under way, the counts equal a recount of the entries.
//! 2. A histogram taken meanwhile may be off by the calls under way, and by no more.

use thermocline_foundation::sync::atomic::{AtomicU32, Ordering};

/// Values that a histogram has room for. The clock uses the first four.
pub const VALUES: usize = 16;

/// Counts of tracked keys by value and tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub on_fast: [u64; VALUES],
    pub on_slow: [u64; VALUES],
}

impl Histogram {
    /// Keys of this value on either tier.
    pub fn count(&self, value: usize) -> u64 {
        self.on_fast[value] + self.on_slow[value]
    }

    /// All keys.
    pub fn total(&self) -> u64 {
        (0..VALUES).map(|value| self.count(value)).sum()
    }

    /// Keys of each value on either tier, least first, without the values above the last one that
    /// some key has.
    pub fn by_value(&self) -> Vec<u64> {
        let last = (0..VALUES).rfind(|value| self.count(*value) > 0);
        (0..last.map_or(0, |last| last + 1)).map(|value| self.count(value)).collect()
    }

    /// Tracked keys on the fast tier.
    pub fn on_fast_total(&self) -> u64 {
        self.on_fast.iter().sum()
    }

    /// Tracked keys on the slow tier.
    pub fn on_slow_total(&self) -> u64 {
        self.on_slow.iter().sum()
    }

    /// The share of tracked keys that is on the slow tier; 0 of none.
    pub fn slow_share(&self) -> f64 {
        let slow = self.on_slow_total();
        if slow == 0 { 0.0 } else { slow as f64 / self.total() as f64 }
    }
}

/// The counts of one shard.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    cells: [[AtomicU32; VALUES]; 2],
}

impl Counts {
    /// One more key. The caller holds the shard's lock, which makes two plain steps enough.
    pub fn add(&self, value: u8, on_fast: bool) {
        let cell = &self.cells[usize::from(on_fast)][usize::from(value)];
        cell.store(cell.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One key less, under the shard's lock.
    pub fn remove(&self, value: u8, on_fast: bool) {
        let cell = &self.cells[usize::from(on_fast)][usize::from(value)];
        cell.store(cell.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// Adds these counts to `histogram`.
    pub fn add_to(&self, histogram: &mut Histogram) {
        let [slow, fast] = &self.cells;
        for value in 0..VALUES {
            histogram.on_slow[value] += u64::from(slow[value].load(Ordering::Relaxed));
            histogram.on_fast[value] += u64::from(fast[value].load(Ordering::Relaxed));
        }
    }
}
