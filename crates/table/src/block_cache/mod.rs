//! The block cache: verified, decompressed blocks in memory, by file number and offset.
//!
//! What is cached is a [`Block`]: a hit costs a hash, a shard lock and a reference count, and no
//! parsing. Beside its blocks lies a table's prepared dictionary. The store underneath is
//! `quick_cache` (S3-FIFO), which a scan does not flush.
//!
//! Invariants:
//! 1. Weights are the bytes really held: blocks are allocated at their own size, not in pages, and
//!    what the allocator rounds that up to counts.
//! 2. File numbers are never reused within a database, so an entry never goes stale; blocks of
//!    deleted files age out.
//! 3. One cache serves one database, because the key does not name it.
//!
//! Shared between threads.

use crate::block::Block;
use crate::block_source::SecondLevel;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use thermocline_foundation::compression::Dictionary;
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::OnceLock;
use thermocline_foundation::{Counter, FileNumber, Planted, planted};

/// What a block holds, for the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockClass {
    /// Entries.
    Data = 0,
    /// A partition of an index.
    Index = 1,
    /// A partition of a filter.
    Filter = 2,
}

/// Look-ups of one class of blocks since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Blocks found.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
}

type Key = (u64, u64);

fn key(file: FileNumber, offset: u64) -> Key {
    (if planted(Planted::CacheKeyTooNarrow) { file.0 & 15 } else { file.0 }, offset)
}

/// Blocks of a database's tables, up to a number of bytes.
#[derive(Debug)]
pub struct BlockCache {
    blocks: Cache<Key, Cached, Weight, BuildHasherDefault<KeyHasher>>,
    hits: [Counter; 3],
    misses: [Counter; 3],
    /// What is asked for a block that is not in memory, before its table is read.
    second_level: OnceLock<Arc<dyn SecondLevel>>,
}

/// What an entry costs besides its block: key, links, slots kept free and the block's shared
/// header.
const ENTRY_OVERHEAD_BYTES: u64 = 128;

#[derive(Clone, Debug)]
enum Cached {
    Block(Block),
    /// That of a table, by a key that no block has.
    Dictionary(Arc<Dictionary>),
}

impl Cached {
    fn block(self) -> Option<Block> {
        match self {
            Self::Block(block) => Some(block),
            Self::Dictionary(_) => None,
        }
    }
}

/// The offset that stands for a table's dictionary.
const DICTIONARY_AT: u64 = u64::MAX;

fn dictionary_key(table: FileNumber) -> Key {
    let named = if planted(Planted::DictionaryOfOtherTable) { 0 } else { table.0 };
    key(FileNumber(named), DICTIONARY_AT)
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Key, Cached> for Weight {
    fn weight(&self, _: &Key, cached: &Cached) -> u64 {
        match cached {
            Cached::Block(block) => weight_bytes(block.bytes().len()),
            Cached::Dictionary(dictionary) => {
                dictionary.memory_bytes() as u64 + ENTRY_OVERHEAD_BYTES
            }
        }
    }
}

/// What a block of so many raw bytes weighs in a cache, in bytes.
pub(crate) fn weight_bytes(raw_bytes: usize) -> u64 {
    allocated_bytes(raw_bytes as u64) + size_of::<Block>() as u64 + ENTRY_OVERHEAD_BYTES
}

/// What an allocator takes for `bytes`: all common ones have four sizes to each power of two.
fn allocated_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of((bytes.max(64).next_power_of_two() / 8).max(16))
}

/// Keys are two numbers, not chosen by an enemy: a multiplicative mix is enough.
#[derive(Clone, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0.rotate_left(32) ^ number);
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` of blocks, expected to be about 4 KiB each.
    pub fn new(capacity_bytes: u64) -> Self {
        let items = (capacity_bytes / 4096).clamp(16, 1 << 20) as usize;
        let hasher = BuildHasherDefault::default();
        let lifecycle = quick_cache::sync::DefaultLifecycle::default();
        Self {
            blocks: Cache::with(items, capacity_bytes, Weight, hasher, lifecycle),
            hits: Default::default(),
            misses: Default::default(),
            second_level: OnceLock::new(),
        }
    }

    /// Puts `second_level` below the cache, if there is none yet.
    pub fn set_second_level(&self, second_level: Arc<dyn SecondLevel>) {
        self.second_level.get_or_init(|| second_level);
    }

    /// What is below the cache.
    #[inline]
    pub(crate) fn second_level(&self) -> Option<&Arc<dyn SecondLevel>> {
        self.second_level.get()
    }

    /// The block at `offset` of `file`, counted as a hit or a miss of its class.
    #[inline]
    pub fn get(&self, file: FileNumber, offset: u64, class: BlockClass) -> Option<Block> {
        let block = self.blocks.get(&key(file, offset)).and_then(Cached::block);
        let counts = if block.is_some() { &self.hits } else { &self.misses };
        counts[class as usize].add(1);
        block
    }

    /// The block at `offset` of `file`, for a look that leaves no trace: it is not counted, and the
    /// block is kept no longer for it.
    pub(crate) fn peek(&self, file: FileNumber, offset: u64) -> Option<Block> {
        self.blocks.peek(&key(file, offset)).and_then(Cached::block)
    }

    /// Keeps a block that was read and verified.
    pub fn insert(&self, file: FileNumber, offset: u64, block: Block) {
        self.blocks.insert(key(file, offset), Cached::Block(block));
    }

    /// The dictionary of `table`, prepared.
    pub(crate) fn dictionary(&self, table: FileNumber) -> Option<Arc<Dictionary>> {
        match self.blocks.get(&dictionary_key(table))? {
            Cached::Dictionary(dictionary) => Some(dictionary),
            Cached::Block(_) => None,
        }
    }

    /// Keeps the dictionary of `table`. It goes as blocks do; while blocks of the table are read,
    /// it is asked for with each.
    pub(crate) fn insert_dictionary(&self, table: FileNumber, dictionary: Arc<Dictionary>) {
        self.blocks.insert(dictionary_key(table), Cached::Dictionary(dictionary));
    }

    /// Keeps a partition that was just written, as if it had been asked for once: otherwise blocks
    /// of data that pass by would push it out before the first look-ups in its table.
    pub(crate) fn insert_written(&self, file: FileNumber, partition: Block) {
        let key = key(file, partition.offset());
        self.blocks.insert(key, Cached::Block(partition));
        self.blocks.get(&key);
    }

    /// Hits and misses of a class.
    pub fn counts(&self, class: BlockClass) -> CacheCounts {
        let index = class as usize;
        CacheCounts { hits: self.hits[index].get(), misses: self.misses[index].get() }
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> u64 {
        self.blocks.weight()
    }

    /// Most bytes of memory.
    pub fn capacity_bytes(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Changes the most bytes of memory; where it shrinks, blocks are dropped at once.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.blocks.set_capacity(capacity_bytes);
    }

    /// Drops every block.
    pub fn clear(&self) {
        self.blocks.clear();
    }
}
