//! What statistics say of the cache.

use super::FastCache;
use crate::shared::wear::{WearStats, Written};
use serde::{Deserialize, Serialize};

/// Copies of blocks on the fast tier. Counters are since opening.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FastCacheStats {
    /// What it may take of tier 0, in bytes, where logs, levels and slots leave it so much.
    pub capacity_bytes: u64,
    /// What they leave it now.
    pub room_bytes: u64,
    /// What its files take, as long as they may become.
    pub used_bytes: u64,
    /// Files.
    pub files: u64,
    /// Blocks that are found; of many about so many, as a part of them is counted.
    pub blocks: u64,
    /// Memory of its look-up and admission, in bytes.
    pub memory_bytes: u64,
    /// Blocks that were not in memory and were read from a copy.
    pub hits: u64,
    /// Blocks that were not in memory and had no copy.
    pub misses: u64,
    /// Of these, blocks that were wanted.
    pub admitted: u64,
    /// Of these, blocks that were not.
    pub refused: u64,
    /// Blocks that were wanted and not taken: writing was behind, or its budget used up.
    pub dropped: u64,
    /// Blocks that were written, with those written again.
    pub inserted_blocks: u64,
    /// Blocks that were written again when their file left.
    pub reinserted_blocks: u64,
    /// Bytes written, with directories and footers.
    pub written_bytes: u64,
    /// What of `fast_cache.write_budget_dwpd` these are, in percent; none without a budget, and in
    /// the first minute. In the first hour more than 100 keeps to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_used_percent: Option<f64>,
    /// Files that left for want of room.
    pub evicted_files: u64,
    /// Copies that could not be read or did not match; the table was read.
    pub failed: u64,
    /// Files of earlier openings that were taken over.
    pub adopted_files: u64,
    /// Blocks of these.
    pub adopted_blocks: u64,
    /// Time that it took to look at files of earlier openings, in nanoseconds.
    #[serde(default)]
    pub adopting_ns: u64,
    /// Files of earlier openings that did not count and were deleted.
    pub refused_files: u64,
    /// It is switched off for a while, because its device failed.
    pub is_off: bool,
}

impl FastCache {
    /// See [`FastCacheStats`].
    pub fn stats(&self) -> FastCacheStats {
        let copies = &self.copies;
        let files = copies.files.load_full();
        let counts = &copies.counts;
        FastCacheStats {
            capacity_bytes: copies.plan.capacity_bytes,
            room_bytes: self.room_bytes(),
            used_bytes: files.bytes(),
            files: files.list().len() as u64,
            blocks: copies.lookup.count(|low| files.is_live(low)),
            memory_bytes: copies.memory_bytes(),
            hits: counts.hits.get(),
            misses: counts.misses.get(),
            admitted: counts.admitted.get(),
            refused: counts.refused.get(),
            dropped: counts.dropped.get(),
            inserted_blocks: counts.inserted_blocks.get(),
            reinserted_blocks: counts.reinserted_blocks.get(),
            written_bytes: counts.written_bytes.get(),
            budget_used_percent: self.budget_used_percent(),
            evicted_files: counts.evicted_files.get(),
            failed: counts.failed.get(),
            adopted_files: counts.adopted_files.get(),
            adopted_blocks: counts.adopted_blocks.get(),
            adopting_ns: counts.adopting_ns.get(),
            refused_files: counts.refused_files.get(),
            is_off: copies.is_off(),
        }
    }

    fn budget_used_percent(&self) -> Option<f64> {
        let (bytes, elapsed_ns) = (self.copies.counts.written_bytes.get(), self.shared.open_ns());
        let written = Written { bytes, elapsed_ns };
        let budget = self.write_budget_dwpd();
        WearStats::of(self.tier_bytes, written, written, budget)?.budget_used_percent
    }

    /// Writes to tier 0 that the cache may make, in drive writes a day; none without a budget.
    pub fn write_budget_dwpd(&self) -> Option<f64> {
        Some(self.shared.settings.fast_cache.write_budget_dwpd).filter(|dwpd| *dwpd > 0.0)
    }
}
