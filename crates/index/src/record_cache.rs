//! Records in memory: the values of the hottest keys, and not the pages or blocks they came from.
//!
//! Why records: a page of slots or a block of a table holds one hot record among many cold ones, so
//! the same memory keeps several times as many hot records. Why our own cache: what it takes
//! besides the records is memory for fewer of them (docs/decisions/0054-record-cache.md).
//!
//! ```text
//!   hash of key and sequence -> shard, under a lock (record_shard.rs)
//!     -> entry, in a queue (record_table.rs) -> key | value (record_pieces.rs)
//! ```
//!
//! Invariants:
//! 1. A version of a key never changes its bytes, so an entry never goes stale: no change of the
//!    store invalidates anything. [`RecordCache::forget`] only frees memory early.
//! 2. A hit has key and sequence: they are compared, the hash alone decides nothing.
//! 3. A value is a copy that owns its memory, both ways. A slice of a block or of a batch would
//!    keep the whole of it alive, uncounted; and what a caller keeps is not the cache's.
//! 4. Weights are the bytes really held: what the allocator rounds up to, all tables with what they
//!    keep free, and what is remembered of evicted records. Only the locks and counters of the
//!    shards, which are there from the beginning, are not in them.
//! 5. The same calls of one thread leave the same records, on every machine.
//! 6. An insertion or a smaller capacity returns the records that it pushes out ([`Evicted`]): no
//!    other fast place may have them.
//! 7. A hit takes a lock for readers and writes nothing but a small count. Records are copied on
//!    their way in, freed, and put together on their way out, after the lock is let go.
//!
//! Shared between threads.

use crate::key_hash::key_hash;
use crate::record_pieces::{Evicted, Record};
use crate::record_shard::Shard;
use crate::record_table::{BACKED_HIT, HIT, Wanted};
use bytes::Bytes;
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::atomic::{AtomicU32, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, RwLock};
use thermocline_foundation::{Counter, Sequence};

/// Values by key and sequence, up to a number of bytes.
#[derive(Debug)]
pub struct RecordCache {
    shards: Box<[Locked]>,
    /// Most bytes of all shards. Held while they are told.
    capacity_bytes: Mutex<u64>,
    hits: Counter,
    misses: Counter,
}

/// A shard on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Locked {
    shard: RwLock<Shard>,
    /// Backed records that came when it was full.
    backed: AtomicU32,
}

/// Where a record belongs.
#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    /// Its hash within the shard.
    hash: u32,
}

/// The number of parts with a lock each: fixed, because which records stay depends on it.
const SHARDS_MAX: u64 = 16;

/// Smaller parts would refuse large values.
const SHARD_BYTES_MIN: u64 = 1 << 20;

/// Look-ups of a shard under one lock: about as many as memory serves at once. A writer waits for
/// no more than these.
const LOOK_UPS_A_LOCK: usize = 32;

/// One in so many backed records is kept where others would have to go.
const ONE_OF_BACKED: u32 = (HIT / BACKED_HIT) as u32;

impl RecordCache {
    /// A cache of at most `capacity_bytes`. A record larger than a sixteenth of that (of a small
    /// cache: than a megabyte, or all of it) is not kept.
    pub fn new(capacity_bytes: u64) -> Self {
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let shards = 1 << shards.ilog2();
        let shard = |_| Locked {
            shard: RwLock::new(Shard::new(capacity_bytes / shards)),
            backed: AtomicU32::new(0),
        };
        Self {
            shards: (0..shards).map(shard).collect(),
            capacity_bytes: Mutex::new(capacity_bytes),
            hits: Counter::default(),
            misses: Counter::default(),
        }
    }

    fn place(&self, key: &[u8], sequence: Sequence) -> Place {
        let hash = mix(key_hash(key) ^ sequence.0);
        // A power of two.
        Place { shard: (hash >> 32) as usize & (self.shards.len() - 1), hash: hash as u32 }
    }

    fn shard(&self, place: Place) -> &RwLock<Shard> {
        &self.shards[place.shard].shard
    }

    /// A copy of the value that `key` had from `sequence` on, counted as a hit or a miss.
    pub fn get(&self, key: &[u8], sequence: Sequence) -> Option<Bytes> {
        let place = self.place(key, sequence);
        let found = self.shard(place).read().get(place.hash, key, sequence);
        if found.is_some() { &self.hits } else { &self.misses }.add(1);
        found
    }

    /// As [`RecordCache::get`] for each of these, in their order. Each shard is locked once for
    /// several, which wait for memory together.
    pub fn get_many<'a>(&self, wanted: &[(&'a [u8], Sequence)]) -> Vec<Option<Bytes>> {
        let look_up = |(at, (key, sequence)): (usize, &(&'a [u8], Sequence))| {
            let Place { shard, hash } = self.place(key, *sequence);
            Wanted { shard, hash, key, sequence: *sequence, at }
        };
        let mut look_ups: Vec<_> = wanted.iter().enumerate().map(look_up).collect();
        look_ups.sort_unstable_by_key(|wanted| wanted.shard);
        let mut values = vec![None; wanted.len()];
        let (mut numbers, mut hits) = (Vec::new(), 0);
        let of_shards = look_ups.chunk_by(|one, other| one.shard == other.shard);
        for look_ups in of_shards.flat_map(|of_shard| of_shard.chunks(LOOK_UPS_A_LOCK)) {
            let shard = self.shards[look_ups[0].shard].shard.read();
            shard.get_many(look_ups, &mut numbers, |at, value| {
                values[at] = Some(value);
                hits += 1;
            });
        }
        self.hits.add(hits);
        self.misses.add(wanted.len() as u64 - hits);
        values
    }

    /// Keeps a copy of a value, and gives what it pushed out; that may be the copy itself. A value
    /// that is there already stays.
    pub fn insert(&self, key: &[u8], sequence: Sequence, value: &[u8]) -> Evicted {
        self.insert_at(self.place(key, sequence), key, Record::new(key, sequence, value), false)
    }

    /// As [`RecordCache::insert`], of a record that is backed: fast storage has it too. To miss it
    /// costs less than another, so its hits count an eighth, and where others would have to go
    /// only one in eight of these calls keeps its record. The value, of about `value_bytes`, is
    /// made only then.
    pub fn insert_backed<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        sequence: Sequence,
        value_bytes: usize,
        value: impl FnOnce() -> V,
    ) -> Evicted {
        let place = self.place(key, sequence);
        let Locked { shard, backed } = &self.shards[place.shard];
        let has_room = shard.read().has_room(key.len() + value_bytes);
        if !has_room && !backed.fetch_add(1, Relaxed).is_multiple_of(ONE_OF_BACKED) {
            return Evicted::default();
        }
        self.insert_at(place, key, Record::new(key, sequence, value().as_ref()), true)
    }

    fn insert_at(&self, place: Place, key: &[u8], record: Record, is_backed: bool) -> Evicted {
        let mut evicted = Evicted::default();
        let mut shard = self.shard(place).write();
        let known = shard.insert_newcomer(place.hash, key, record, is_backed, &mut evicted);
        drop(shard);
        drop(known);
        evicted
    }

    /// A record with so many bytes of value would displace no other.
    pub fn has_room(&self, key: &[u8], sequence: Sequence, value_bytes: usize) -> bool {
        let shard = self.shard(self.place(key, sequence));
        shard.read().has_room(key.len() + value_bytes)
    }

    /// Notes that fast storage has the record no longer.
    pub fn unback(&self, key: &[u8], sequence: Sequence) {
        let place = self.place(key, sequence);
        self.shard(place).write().unback(place.hash, key, sequence);
    }

    /// Whether the value is there; no look-up as far as counters and eviction are concerned.
    pub fn contains(&self, key: &[u8], sequence: Sequence) -> bool {
        let place = self.place(key, sequence);
        self.shard(place).read().contains(place.hash, key, sequence)
    }

    /// Frees the memory of a record that no caller will ask for again.
    pub fn forget(&self, key: &[u8], sequence: Sequence) {
        // Most records are not here, and a look at that keeps no reader waiting.
        if self.contains(key, sequence) {
            let place = self.place(key, sequence);
            let forgotten = self.shard(place).write().remove(place.hash, key, sequence);
            drop(forgotten);
        }
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.shard.read().memory_bytes() as u64).sum()
    }

    /// Records in it.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.shard.read().len()).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most bytes of memory.
    pub fn capacity_bytes(&self) -> u64 {
        *self.capacity_bytes.lock()
    }

    /// Changes the most bytes of memory, and gives what no longer fits.
    #[must_use]
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) -> Evicted {
        let mut evicted = Evicted::default();
        let mut capacity = self.capacity_bytes.lock();
        let shards = self.shards.len() as u64;
        for shard in &self.shards {
            shard.shard.write().set_capacity_bytes(capacity_bytes / shards, &mut evicted);
        }
        *capacity = capacity_bytes;
        evicted
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
        for shard in &self.shards {
            let records = shard.shard.write().take();
            drop(records);
        }
    }
}
