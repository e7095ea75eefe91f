//! How the memory budget is divided.

use super::fast_cache::{Admission, FastCacheSettings};
use super::{Compression, Preset, Settings};
use crate::limits::MEMTABLES;

/// Shares of the memory budget, in bytes. What is in neither is for the buffers of background work;
/// pinned indexes of tables shrink the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryDivision {
    /// One memtable, its overhead included.
    pub memtable_bytes: u64,
    /// The block cache.
    pub cache_bytes: u64,
}

/// Buffers of one worker that writes a table: the write buffer, the partitions of index and filter,
/// and a block being compressed. A flush into slots takes about as much.
pub(crate) const WRITER_BYTES: u64 = 2 << 20;

/// Share of the memory budget that all writers of tables may take together for dictionaries.
const DICTIONARIES_SHARE: u64 = 16;

/// What a writer takes for a dictionary, for each of its bytes: the entries that it holds back, the
/// samples that it makes of them and of the table before, and those for the table behind.
const BYTES_PER_DICTIONARY_BYTE: u64 = 128;

/// With less memory there are no dictionaries. Zstandard's trainer takes 11 MiB of its own for the
/// moment that it works on a table, which the budget does not count.
const DICTIONARIES_MEMORY_MIN: u64 = 64 << 20;

/// Shorter dictionaries are not worth the attempt.
const DICTIONARY_BYTES_MIN: u64 = 512;

/// Share of the memory budget that the inputs of all running compactions may take together.
const WINDOWS_SHARE: u64 = 16;

/// Bytes a compaction reads at a time from each input, at most and at least.
const WINDOW_BYTES_MAX: u64 = 512 << 10;
const WINDOW_BYTES_MIN: u64 = 32 << 10;

/// Windows that an input holds at most: the one in use, the one before it while a block reaches
/// across, and the one being read.
const WINDOWS: u64 = 3;

/// What a cache on tier 0 that names no size takes of the memory at most: one part in so many.
const COPIES_SHARE: u64 = 8;

/// What a block of the cache on tier 0 takes of memory, where it is looked up and where its
/// admission is decided.
const LOOKUP_BYTES: u64 = 10;
const SIMULATED_KEY_BYTES: u64 = 6;
const SKETCH_BYTES: u64 = 8;

impl Settings {
    /// How the memory budget is divided.
    pub(crate) fn division(&self) -> MemoryDivision {
        let memory = self.memory.0;
        let writers_bytes = self.writers() * self.writer_bytes();
        let memtable_bytes = self.memtable_bytes();
        let left = memory - MEMTABLES * memtable_bytes - memory / WINDOWS_SHARE;
        let left = left.saturating_sub(self.fast_cache_memory_bytes());
        MemoryDivision {
            memtable_bytes,
            cache_bytes: left.saturating_sub(writers_bytes).max(memory / 8),
        }
    }

    /// Writers of tables at once: the workers, and a bulk load.
    fn writers(&self) -> u64 {
        u64::from(self.background_threads) + 1
    }

    /// Buffers of one worker that writes a table, and what it holds back for a dictionary.
    fn writer_bytes(&self) -> u64 {
        WRITER_BYTES + u64::from(self.dictionary_bytes()) * BYTES_PER_DICTIONARY_BYTE
    }

    /// Buffers of a merge of `inputs` into a table.
    pub(crate) fn merge_bytes(&self, inputs: usize, window_bytes: u32) -> u64 {
        inputs as u64 * WINDOWS * u64::from(window_bytes) + self.writer_bytes()
    }

    /// Most bytes of a table's dictionary: as set, less where there are many writers for the
    /// memory; 0 for none.
    pub(crate) fn dictionary_bytes(&self) -> u32 {
        let memory = self.memory.0;
        if memory < DICTIONARIES_MEMORY_MIN || !self.compression.contains(&Compression::Zstd) {
            return 0;
        }
        let share = memory / DICTIONARIES_SHARE / self.writers();
        let bytes = self.dictionary_size.0.min(share / BYTES_PER_DICTIONARY_BYTE);
        if bytes < DICTIONARY_BYTES_MIN { 0 } else { bytes as u32 }
    }

    /// What one memtable takes where its log may be as large.
    pub(crate) fn memtable_bytes_wanted(&self) -> u64 {
        let memtables_bytes = match self.preset() {
            Preset::Leveled | Preset::Indexed => self.memory.0 / 4,
            // What memtables hold, slots could; and their logs take room of the fast tier.
            Preset::Hybrid => self.memory.0 / 8,
        };
        memtables_bytes / MEMTABLES
    }

    /// What a block of `block_size` logical bytes is expected to have once it is compressed: a
    /// guess that costs memory where it is low, and cached blocks where it is high.
    pub(crate) fn stored_block_bytes(&self) -> u64 {
        self.block_size.0 / 2
    }

    /// Bytes of memory that look-up and admission of the cache on tier 0 take, which the one in
    /// memory gives up.
    fn fast_cache_memory_bytes(&self) -> u64 {
        let blocks = self.fast_cache_bytes() / self.stored_block_bytes().max(1);
        blocks * self.copied_block_memory_bytes()
    }

    /// What the cache on tier 0 may come to where its look-up and admission are to leave
    /// seven eighths of the memory to others.
    pub(crate) fn fast_cache_bytes_by_memory(&self) -> u64 {
        self.memory.0 / COPIES_SHARE / self.copied_block_memory_bytes() * self.stored_block_bytes()
    }

    /// Bytes of memory that a block of the cache on tier 0 takes.
    fn copied_block_memory_bytes(&self) -> u64 {
        let FastCacheSettings { admission, simulated_percent, .. } = self.fast_cache;
        LOOKUP_BYTES
            + match admission {
                Admission::SimulatedLru => SIMULATED_KEY_BYTES * u64::from(simulated_percent) / 100,
                Admission::SecondAccess | Admission::Frequency => SKETCH_BYTES,
                Admission::Always => 0,
            }
    }

    /// Bytes that a merge reads at a time from each of `inputs`.
    pub(crate) fn window_bytes(&self, inputs: usize) -> u32 {
        let windows = WINDOWS * inputs.max(1) as u64 * u64::from(self.background_threads);
        let share = self.memory.0 / WINDOWS_SHARE / windows;
        let bytes = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        (bytes - bytes % 4096) as u32
    }
}
