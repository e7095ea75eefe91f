//! What follows from the settings for a cache of extents. Pure.

use crate::buffer::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// Files of the cache are so small a part of it that a kill, which loses the one that is being
/// filled, loses little.
const FILES_MIN: u64 = 64;
const FILE_BYTES_MIN: u64 = 64 << 10;
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Batches that a file has at least.
const BATCHES_MIN: u64 = 4;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// Extents that a batch is expected to have at least.
const EXTENTS_MIN: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPlan {
    /// Bytes that its files may take, where the host's own leave so much.
    pub capacity_bytes: u64,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Bytes that are written at once.
    pub batch_bytes: usize,
}

impl ExtentPlan {
    /// For a cache of `capacity_bytes` with extents of `extent_bytes`.
    pub fn new(capacity_bytes: u64, extent_bytes: u64) -> Self {
        // A file has room for a few extents, whatever they are.
        let least = FILE_BYTES_MIN.max(EXTENTS_MIN * BATCHES_MIN * extent_bytes);
        let file_bytes = (capacity_bytes / FILES_MIN).clamp(least, FILE_BYTES_MAX.max(least));
        let file_bytes = file_bytes / PAGE * PAGE;
        let batch_bytes =
            (file_bytes / BATCHES_MIN).min(BATCH_BYTES_MAX.max(EXTENTS_MIN * extent_bytes));
        let batch_bytes = (batch_bytes / PAGE * PAGE) as usize;
        Self { capacity_bytes, extent_bytes, file_bytes, batch_bytes }
    }

    /// Extents that it may hold.
    pub fn extents(&self) -> u64 {
        self.capacity_bytes / self.extent_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_small_part_and_has_room_for_batches_of_extents() {
        for (capacity, extent, file, batch) in [
            (20_u64 << 30, 8_u64 << 10, 64_u64 << 20, 1_usize << 20),
            (1 << 30, 8 << 10, 16 << 20, 1 << 20),
            (1 << 20, 4 << 10, 64 << 10, 16 << 10),
            (1 << 30, 1 << 20, 16 << 20, 4 << 20),
            (1 << 20, 8 << 10, 128 << 10, 32 << 10),
        ] {
            let plan = ExtentPlan::new(capacity, extent);
            assert_eq!((plan.file_bytes, plan.batch_bytes), (file, batch), "{capacity} {extent}");
            // One extent and its checksum fit a batch.
            assert!(plan.batch_bytes as u64 > extent);
        }
    }
}
