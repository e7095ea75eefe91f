//! Which records are hot, and what is worth moving between the tiers.
//!
//! The store keeps hot records on the fast tier and lets cold ones sink. This crate holds every
//! decision of that kind as arithmetic over numbers that the engine hands in: it opens no file,
//! reads no clock and starts no thread, so each rule can be tested alone and replayed from a seed.
//! The ideas are those of PrismDB (Raina, Lu, Cidon and Freedman, ASPLOS 2023); sections below are
//! its.
//!
//! ```text
//!   reads, writes ──> Popularity            what is hot            §4.3
//!                       clock_tracker         the paper's clock
//!                       frequency_tracker     longer memory, same memory a key
//!                         │ histogram
//!                         v
//!                     pinning               what stays on the fast tier   §4.3, the mapper
//!                         ^ threshold
//!                     tuner                 where the threshold should be §7.4
//!
//!   tables, slots ──> buckets ──> score     which range to demote  §5.1, §5.2, §6
//!   counters ───────> read_triggered        whether to promote although nothing is full §5.3
//!                     copies                whether what is read gets slots, beyond the paper
//!                     density               whether reads are reason to move anything up
//!   waits ────────> read_cost               what a hit in memory spares
//!   bytes written ──> write_budget          what the slow tier's endurance allows
//! ```
//!
//! Invariants:
//! 1. Keys are known by a 64-bit hash whose bits are all well mixed; two keys of one hash are one.
//! 2. What is not tracked is cold: it has no value, is never pinned, and its coldness is 1.
//! 3. Nothing here changes what is stored. A wrong answer costs speed, never a record.
//! 4. The same calls in the same order give the same answers: no entropy, no order of a hash map.
#![forbid(unsafe_code)]

mod buckets;
mod clock_tracker;
mod copies;
mod density;
mod frequency_tracker;
mod histogram;
mod pinning;
mod read_cost;
mod read_triggered;
mod ring;
mod score;
mod sketch;
mod tuner;
mod write_budget;

pub use buckets::{BucketSettings, Buckets};
pub use clock_tracker::ClockTracker;
pub use copies::{
    CopyAdmission, CopyAdmissionSettings, CopyTurns, CopyUses, CopyWorth, CopyWorthSettings,
};
pub use density::{DensityComparison, DensitySettings, Kind};
pub use frequency_tracker::{FrequencySettings, FrequencyTracker};
pub use histogram::{Histogram, VALUES};
pub use pinning::{Pinning, PinningThreshold};
pub use read_cost::{ReadCost, WORTH_MIN, Waits};
pub use read_triggered::{ReadCounters, ReadTriggered, ReadTriggeredSettings, ReadTriggeredStage};
pub use score::{
    CANDIDATES, Merge, Policy, RangeStatistics, Run, best_merge, choose, coldness, power_of_k,
    score,
};
pub use tuner::{ThresholdMode, ThresholdTuner, TunerSettings, TunerStage, slow_io};
pub use write_budget::{WriteBudget, lifetime_ns};

use std::fmt;

/// Number of shards that suits a store of millions of keys and a few dozen threads. From 64 on the
/// trackers keep every bit of a hash (`ring.rs`).
pub const SHARDS: usize = 64;

/// Estimates how often keys are accessed, in bounded memory.
///
/// All methods may be called from any thread; each locks one shard for some tens of nanoseconds,
/// but for `set_capacity`, which may rebuild one shard after the other.
pub trait Popularity: Send + Sync + fmt::Debug {
    /// A read of a key, found on the fast tier or not. Returns its value afterwards, or `None` when
    /// the tracker chose not to track it.
    fn touch(&self, key_hash: u64, on_fast: bool) -> Option<u8>;

    /// A write that brought a key to the fast tier, where an older version was or was not.
    ///
    /// Only where one was does the write count as an access. A key that comes up was read just now,
    /// if it is tracked: the two are one access of a read-modify-write, and to count both would
    /// give every key that is modified once the rank of one that is asked for again. A key that is
    /// neither tracked nor was on the fast tier is passed over: a load that writes each key once
    /// must not flush the tracker.
    fn touch_write(&self, key_hash: u64, was_on_fast: bool) -> Option<u8>;

    /// The popularity of a key, from 0 to [`value_max`](Self::value_max); `None` if not tracked.
    fn value(&self, key_hash: u64) -> Option<u8>;

    /// The hottest value there is.
    fn value_max(&self) -> u8;

    /// Whether a tracked key was last known to be on the fast tier.
    fn on_fast(&self, key_hash: u64) -> Option<bool>;

    /// Says where a key is after a promotion or demotion. Keys that are not tracked are passed
    /// over.
    fn set_location(&self, key_hash: u64, on_fast: bool);

    /// Drops a key, because it was deleted.
    fn forget(&self, key_hash: u64);

    /// How many keys have each value, by tier: the input of the pinning threshold.
    fn histogram(&self) -> Histogram;

    /// Keys tracked.
    fn len(&self) -> usize;

    /// Whether no key is tracked.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that may be tracked.
    fn capacity(&self) -> usize;

    /// Changes the most keys that may be tracked; the coldest go if there are too many. Call it for
    /// steps of several per cent: a larger table than ever before is a copy of all shards.
    fn set_capacity(&self, capacity: usize);

    /// Memory in use.
    fn bytes(&self) -> usize;
}
