//! Which records are hot, and what is worth moving between the tiers.
//!
//! The store keeps hot records on the fast tier and lets cold ones sink. This crate holds every
//! decision of that kind as arithmetic over numbers that the engine hands in: it opens no file,
//! reads no clock and starts no thread, so each rule can be tested alone and replayed from a seed.
//! The ideas are those of PrismDB (Raina, Lu, Cidon and Freedman, ASPLOS 2023), whose sections are
//! meant below, and of MyNVM.
//!
//! ```text
//!   reads, writes ──> clock_tracker         what is hot            §4.3
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
//!   bytes written ──> write_budget          what the slow tier's endurance allows
//!
//!   misses of blocks > block_admission       which a second-level cache takes
//!   hits there ─────> block_eviction        which file of it goes, and which blocks stay
//! ```
//!
//! Invariants:
//! 1. Keys are known by a 64-bit hash whose bits are all well mixed; two keys of one hash are one.
//! 2. What is not tracked is cold: it has no value, is never pinned, and its coldness is 1.
//! 3. Nothing here changes what is stored. A wrong answer costs speed, never a record.
//! 4. The same calls in the same order give the same answers: no entropy, no order of a hash map.
#![forbid(unsafe_code)]

mod block_admission;
mod block_eviction;
mod buckets;
mod clock_tracker;
mod copies;
mod density;
mod histogram;
mod pinning;
mod read_triggered;
mod ring;
mod score;
mod tuner;
mod write_budget;

pub use block_admission::{AdmissionPolicy, BlockAdmission, Frequency, SimulatedLru, Sketch};
pub use block_eviction::{EvictionPolicy, LeavingBlock, choose_file, reinserted};
pub use buckets::{BucketSettings, Buckets};
pub use clock_tracker::ClockTracker;
pub use copies::{CopyUses, CopyWorth, CopyWorthSettings};
pub use density::{DensityComparison, DensitySettings, Kind};
pub use histogram::{Histogram, VALUES};
pub use pinning::{Pinning, PinningThreshold};
pub use read_triggered::{ReadCounters, ReadTriggered, ReadTriggeredSettings, ReadTriggeredStage};
pub use score::{
    CANDIDATES, Merge, Policy, RangeStatistics, Run, best_merge, choose, coldness, power_of_k,
    score,
};
pub use tuner::{ThresholdMode, ThresholdTuner, TunerSettings, TunerStage, slow_io};
pub use write_budget::{WriteBudget, lifetime_ns};

/// Number of shards that suits a store of millions of keys and a few dozen threads. From 64 on the
/// trackers keep every bit of a hash (`ring.rs`).
pub const SHARDS: usize = 64;
