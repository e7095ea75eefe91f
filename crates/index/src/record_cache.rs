//! Records in memory: the values of the hottest keys, and not the pages or blocks they came from.
//!
//! Why records: a page of slots or a block of a table holds one hot record among many cold ones, so
//! the same memory keeps several times as many hot records.
//!
//! ```text
//!   hash of key and sequence -> one allocation: value | key | sequence u64 | bytes of key u32
//! ```
//! The store underneath is `quick_cache` (S3-FIFO), which a scan does not flush.
//!
//! Invariants:
//! 1. A version of a key never changes its bytes, so an entry never goes stale: no change of the
//!    store invalidates anything. [`RecordCache::forget`] only frees memory early.
//! 2. A hit has key and sequence: they are compared, the hash alone decides nothing.
//! 3. A value is a copy that owns its memory. A slice of a block or of a batch would keep the whole
//!    of it alive, uncounted.
//! 4. Weights are the bytes really held, what the allocator rounds up to and the cache's own
//!    tables included. Only what is remembered of evicted records is not in them, which is some
//!    five hundredths of the capacity.
//! 5. The same calls of one thread leave the same records, on every machine.
//! 6. What an insertion or a smaller capacity pushes out is given to who asked for it
//!    ([`Evicted`]): the record may be nowhere else that is fast.
//!
//! Shared between threads.

use crate::key_hash::{allocated_bytes, key_hash};
use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Counter, Sequence};

/// Values by key and sequence, up to a number of bytes.
#[derive(Debug)]
pub struct RecordCache {
    records: Cache<u64, Record, Weight, BuildHasherDefault<IdentityHasher>, Gather>,
    shrunk: Arc<Mutex<Evicted>>,
    hits: Counter,
    misses: Counter,
}

/// Sequence and key in one word: small, because evicted records leave theirs behind for a while.
fn identity(key: &[u8], sequence: Sequence) -> u64 {
    mix(key_hash(key) ^ sequence.0)
}

/// Bytes behind the key: sequence and length of the key.
const TRAILER_BYTES: usize = 12;

/// A value with what it is the value of.
#[derive(Clone, Debug)]
struct Record(Bytes);

impl Record {
    fn new(key: &[u8], sequence: Sequence, value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(value.len() + key.len() + TRAILER_BYTES);
        bytes.extend_from_slice(value);
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&trailer(key, sequence));
        let bytes = Bytes::from(bytes);
        // The first clone allocates the shared count. Here it does, and no hit will.
        drop(bytes.clone());
        Self(bytes)
    }

    /// Bytes of the value, if it is that of `key` at `sequence`.
    fn value_bytes(&self, key: &[u8], sequence: Sequence) -> Option<usize> {
        let rest = self.0.strip_suffix(&trailer(key, sequence))?;
        Some(rest.strip_suffix(key)?.len())
    }

    /// Key, sequence and value, which share their memory.
    fn into_parts(self) -> (Bytes, Sequence, Bytes) {
        let mut value = self.0;
        let trailer = value.split_off(value.len() - TRAILER_BYTES);
        let sequence = u64::from_le_bytes(std::array::from_fn(|at| trailer[at]));
        let key_bytes = u32::from_le_bytes(std::array::from_fn(|at| trailer[8 + at]));
        let key = value.split_off(value.len() - key_bytes as usize);
        (key, Sequence(sequence), value)
    }
}

/// Records that were pushed out.
#[derive(Debug, Default)]
pub struct Evicted {
    /// Nearly always there is one at most: no allocation for it.
    first: Option<Record>,
    more: Vec<Record>,
}

impl Evicted {
    fn add(&mut self, record: Record) {
        match &self.first {
            None => self.first = Some(record),
            Some(_) => self.more.push(record),
        }
    }

    /// Each record's key, sequence and value.
    pub fn into_records(self) -> impl Iterator<Item = (Bytes, Sequence, Bytes)> {
        self.first.into_iter().chain(self.more).map(Record::into_parts)
    }
}

/// Gathers what the cache evicts, outside its locks.
#[derive(Clone, Debug, Default)]
struct Gather {
    /// What a smaller capacity pushed out: the cache does not hand that back.
    shrunk: Arc<Mutex<Evicted>>,
}

impl Lifecycle<u64, Record> for Gather {
    type RequestState = Evicted;

    fn begin_request(&self) -> Evicted {
        Evicted::default()
    }

    fn on_evict(&self, evicted: &mut Evicted, _: u64, record: Record) {
        evicted.add(record);
    }

    /// Of an insertion nobody calls this: it hands its state back.
    fn end_request(&self, evicted: Evicted) {
        let mut shrunk = self.shrunk.lock();
        evicted.first.into_iter().chain(evicted.more).for_each(|record| shrunk.add(record));
    }
}

fn trailer(key: &[u8], sequence: Sequence) -> [u8; TRAILER_BYTES] {
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(&sequence.0.to_le_bytes());
    trailer[8..].copy_from_slice(&(key.len() as u32).to_le_bytes());
    trailer
}

/// What a record costs besides its bytes: the cache's entry and its place in a hash table, with
/// what both keep free, and the shared count. A test measures it.
const RECORD_OVERHEAD_BYTES: usize = 160;

/// Evicted records are remembered, to be let in for longer when they come back: half as many as
/// records of this size fit.
const RECORD_BYTES_EXPECTED: u64 = 1024;

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<u64, Record> for Weight {
    fn weight(&self, _: &u64, record: &Record) -> u64 {
        (allocated_bytes(record.0.len()) + RECORD_OVERHEAD_BYTES) as u64
    }
}

/// An identity is a hash already.
#[derive(Clone, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0.rotate_left(8) ^ u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The number of parts with a lock each: fixed, because which records stay depends on it.
const SHARDS_MAX: u64 = 16;

/// Smaller parts would refuse large values.
const SHARD_BYTES_MIN: u64 = 1 << 20;

impl RecordCache {
    /// A cache of at most `capacity_bytes`. A record larger than a sixteenth of that (of a small
    /// cache: than a megabyte, or all of it) is not kept.
    pub fn new(capacity_bytes: u64) -> Self {
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let shards = 1 << shards.ilog2();
        let items = (capacity_bytes / RECORD_BYTES_EXPECTED).clamp(16, 1 << 24);
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(items as usize)
            .weight_capacity(capacity_bytes)
            .build()
            .expect("both capacities are given");
        let gather = Gather::default();
        let shrunk = Arc::clone(&gather.shrunk);
        Self {
            records: Cache::with_options(options, Weight, BuildHasherDefault::default(), gather),
            shrunk,
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    /// The value that `key` had from `sequence` on, counted as a hit or a miss.
    pub fn get(&self, key: &[u8], sequence: Sequence) -> Option<Bytes> {
        let found = self.records.get(&identity(key, sequence)).and_then(|mut record| {
            let value_bytes = record.value_bytes(key, sequence)?;
            record.0.truncate(value_bytes);
            Some(record.0)
        });
        if found.is_some() { &self.hits } else { &self.misses }.add(1);
        found
    }

    /// Keeps a copy of a value, and gives what it pushed out; that may be the copy itself.
    pub fn insert(&self, key: &[u8], sequence: Sequence, value: &[u8]) -> Evicted {
        let record = Record::new(key, sequence, value);
        self.records.insert_with_lifecycle(identity(key, sequence), record)
    }

    /// Whether the value is there; no look-up as far as counters and eviction are concerned.
    pub fn contains(&self, key: &[u8], sequence: Sequence) -> bool {
        let record = self.records.peek(&identity(key, sequence));
        record.is_some_and(|record| record.value_bytes(key, sequence).is_some())
    }

    /// Frees the memory of a record that nobody will ask for again.
    pub fn forget(&self, key: &[u8], sequence: Sequence) {
        self.records.remove_if(&identity(key, sequence), |record| {
            record.value_bytes(key, sequence).is_some()
        });
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> u64 {
        self.records.weight()
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Most bytes of memory.
    pub fn capacity_bytes(&self) -> u64 {
        self.records.capacity()
    }

    /// Changes the most bytes of memory, and gives what no longer fits. Of two calls at once one
    /// may be given what the other pushed out.
    #[must_use]
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) -> Evicted {
        self.records.set_capacity(capacity_bytes);
        std::mem::take(&mut *self.shrunk.lock())
    }

    /// Look-ups that found their record.
    pub fn hits(&self) -> u64 {
        self.hits.get()
    }

    /// Look-ups that did not.
    pub fn misses(&self) -> u64 {
        self.misses.get()
    }

    /// Drops every record.
    pub fn clear(&self) {
        self.records.clear();
    }
}
