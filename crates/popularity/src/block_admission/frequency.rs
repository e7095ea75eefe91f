//! Admission by an estimate of a block's hits (MyNVM, section 7.2, names it as future work): a
//! block is worth a write if it is missed more often than those that leave the cache were.
//!
//! The bar is a running mean of the estimates of blocks that leave. Until some have left, it is 0
//! and all blocks are admitted. A block that would not pass is still counted, so it can pass later.

use super::sketch::Sketch;

/// The running mean takes in this part of each estimate.
const MEAN_SHARE: u32 = 256;

/// See the module.
#[derive(Clone, Debug)]
pub struct Frequency {
    sketch: Sketch,
    /// Mean of the estimates of blocks that left, times [`MEAN_SHARE`].
    bar: u32,
}

impl Frequency {
    /// For a cache of so many blocks.
    pub fn new(blocks: u64) -> Self {
        Self { sketch: Sketch::new(blocks), bar: 0 }
    }

    /// Counts a miss of the block of `hash`, and says whether it should be in the cache.
    pub fn missed(&mut self, hash: u64) -> bool {
        u32::from(self.sketch.add(hash)) * MEAN_SHARE > self.bar
    }

    /// The block has left the cache.
    pub fn left(&mut self, hash: u64) {
        let estimate = u32::from(self.sketch.estimate(hash));
        self.bar = self.bar - self.bar / MEAN_SHARE + estimate;
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.sketch.memory_bytes()
    }
}
