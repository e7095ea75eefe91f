//! Which blocks a second-level cache takes, when a block of a table was not in memory (MyNVM,
//! sections 4.3 and 7.2).
//!
//! ```text
//!   miss in memory ──> missed(block) ── true ──> the block is written to the cache
//!     always          every block: what wears the device out
//!     second_access   a block that was missed before, as far as is remembered
//!     simulated_lru   a block whose key a cache of so many bytes would have (4.3)
//!     frequency       a block that is missed more often than those that leave
//! ```
//! The policies hear of misses in memory alone: what is hit there needs no second level.
//!
//! Invariants:
//! 1. Memory is taken at the beginning, and follows from the cache's capacity.
//! 2. The same calls give the same answers.
//!
//! One owner; callers lock.

mod frequency;
mod simulated_lru;
mod sketch;

pub use frequency::Frequency;
pub use simulated_lru::SimulatedLru;
pub use sketch::Sketch;

/// Which policy admits blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionPolicy {
    /// Every block.
    Always,
    /// What was missed before.
    SecondAccess,
    /// What a cache that keeps `percent` of the capacity by least recent use would have.
    SimulatedLru {
        /// Share of the capacity, in percent.
        percent: u32,
    },
    /// What is missed more often than what leaves the cache.
    Frequency,
}

/// See the module.
#[derive(Clone, Debug)]
pub enum BlockAdmission {
    /// [`AdmissionPolicy::Always`].
    Always,
    /// [`AdmissionPolicy::SecondAccess`].
    SecondAccess(Sketch),
    /// [`AdmissionPolicy::SimulatedLru`].
    SimulatedLru(SimulatedLru),
    /// [`AdmissionPolicy::Frequency`].
    Frequency(Frequency),
}

impl BlockAdmission {
    /// For a cache of `capacity_bytes`, whose blocks are expected to have `block_bytes` as they are
    /// stored.
    pub fn new(policy: AdmissionPolicy, capacity_bytes: u64, block_bytes: u64) -> Self {
        let blocks = capacity_bytes / block_bytes.max(1);
        match policy {
            AdmissionPolicy::Always => Self::Always,
            AdmissionPolicy::SecondAccess => Self::SecondAccess(Sketch::new(blocks)),
            AdmissionPolicy::SimulatedLru { percent } => {
                let bytes = capacity_bytes / 100 * u64::from(percent);
                Self::SimulatedLru(SimulatedLru::new(bytes, block_bytes))
            }
            AdmissionPolicy::Frequency => Self::Frequency(Frequency::new(blocks)),
        }
    }

    /// The block of this hash, of `len` stored bytes, was not in memory. True where the cache
    /// should have it.
    pub fn missed(&mut self, hash: u64, len: u32) -> bool {
        match self {
            Self::Always => true,
            Self::SecondAccess(sketch) => sketch.add(hash) > 1,
            Self::SimulatedLru(lru) => lru.touch(hash, len),
            Self::Frequency(frequency) => frequency.missed(hash),
        }
    }

    /// The block of this hash has left the cache.
    pub fn left(&mut self, hash: u64) {
        if let Self::Frequency(frequency) = self {
            frequency.left(hash);
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Always => 0,
            Self::SecondAccess(sketch) => sketch.memory_bytes(),
            Self::SimulatedLru(lru) => lru.memory_bytes(),
            Self::Frequency(frequency) => frequency.memory_bytes(),
        }
    }
}
