//! The paper's tracker: a multi-bit clock over the most recently accessed keys (§4.3, §6).
//!
//! The first access gives a key the value 0, every later one 3. A full tracker moves the clock hand
//! over its entries, decrementing, until it meets a 0, which it evicts. That is close to LRU, with
//! two bits instead of a list, and forgets quickly. A tracker of frequencies that age was tried
//! beside it: it kept half a point more of a steady skew in a model, less of a hotspot that moves,
//! and a store was as fast with either (decision 77).
//!
//! The tracker is divided into shards by hash, each a `ring.rs` under a lock of its own: a read
//! that misses the processor's cache once is all that a touch costs.
//!
//! Invariants:
//! 1. `len() <= capacity()`; each shard has its part of the capacity, so uneven hashes leave a
//!    tracker of small shards a few per cent short of it.
//! 2. A key costs 10 bytes at most after [`ClockTracker::new`], 11.25 after growth, plus 128 to 192
//!    bytes a shard.

use crate::histogram::{Counts, Histogram};
use crate::ring::{Entry, Ring, limit_of};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicUsize, Ordering};

/// The value of a key accessed more than once.
const VALUE_MAX: u8 = 3;

#[derive(Debug)]
#[repr(align(64))]
struct Shard {
    ring: Mutex<Ring>,
    counts: Counts,
}

/// How often keys are asked for, in bounded memory.
///
/// All methods may be called from any thread; each locks one shard for some tens of nanoseconds,
/// but for `set_capacity`, which may rebuild one shard after the other.
#[derive(Debug)]
pub struct ClockTracker {
    shards: Box<[Shard]>,
    capacity: AtomicUsize,
}

impl ClockTracker {
    /// A tracker of `capacity` keys; `shards` is a power of two, [`SHARDS`](crate::SHARDS) unless
    /// the capacity is small.
    pub fn new(capacity: usize, shards: usize) -> Self {
        assert!(shards.is_power_of_two(), "the low bits of a hash choose its shard");
        let shard = |index| Shard {
            ring: Mutex::new(Ring::new(limit_of(capacity, shards, index))),
            counts: Counts::default(),
        };
        Self { shards: (0..shards).map(shard).collect(), capacity: AtomicUsize::new(capacity) }
    }

    /// A read of a key, found on the fast tier or not. Returns its value afterwards, or `None`
    /// where nothing is tracked.
    pub fn touch(&self, key_hash: u64, on_fast: bool) -> Option<u8> {
        let shard = self.shard(key_hash);
        let mut ring = shard.ring.lock();
        let Some(slot) = ring.find(key_hash) else {
            return shard.insert(&mut ring, key_hash, on_fast);
        };
        ring.set(slot, VALUE_MAX, on_fast, &shard.counts);
        Some(VALUE_MAX)
    }

    /// A write that brought a key to the fast tier, where an older version was or was not.
    ///
    /// Only where one was does the write count as an access. A key that comes up was read just now,
    /// if it is tracked: the two are one access of a read-modify-write, and to count both would
    /// give every key that is modified once the rank of one that is asked for again. A key that is
    /// neither tracked nor was on the fast tier is passed over: a load that writes each key once
    /// must not flush the tracker.
    pub fn touch_write(&self, key_hash: u64, was_on_fast: bool) -> Option<u8> {
        let shard = self.shard(key_hash);
        let mut ring = shard.ring.lock();
        let Some(slot) = ring.find(key_hash) else {
            return if was_on_fast { shard.insert(&mut ring, key_hash, true) } else { None };
        };
        let before = ring.at(slot).map_or(0, Entry::value);
        let value = if was_on_fast { VALUE_MAX } else { before };
        ring.set(slot, value, true, &shard.counts);
        Some(value)
    }

    /// The popularity of a key, from 0 to 3; `None` if it is not tracked.
    pub fn value(&self, key_hash: u64) -> Option<u8> {
        let ring = self.shard(key_hash).ring.lock();
        ring.find(key_hash).and_then(|slot| ring.at(slot)).map(Entry::value)
    }

    /// Whether a tracked key was last known to be on the fast tier.
    pub fn on_fast(&self, key_hash: u64) -> Option<bool> {
        let ring = self.shard(key_hash).ring.lock();
        ring.find(key_hash).and_then(|slot| ring.at(slot)).map(Entry::on_fast)
    }

    /// Says where a key is after a promotion or demotion. Keys that are not tracked are passed
    /// over.
    pub fn set_location(&self, key_hash: u64, on_fast: bool) {
        let shard = self.shard(key_hash);
        let mut ring = shard.ring.lock();
        if let Some(slot) = ring.find(key_hash) {
            let value = ring.at(slot).map_or(0, Entry::value);
            ring.set(slot, value, on_fast, &shard.counts);
        }
    }

    /// Drops a key, because it was deleted.
    pub fn forget(&self, key_hash: u64) {
        let shard = self.shard(key_hash);
        let mut ring = shard.ring.lock();
        if let Some(slot) = ring.find(key_hash) {
            ring.remove(slot, &shard.counts);
        }
    }

    /// How many keys have each value, by tier: the input of the pinning threshold.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.shards.iter().for_each(|shard| shard.counts.add_to(&mut histogram));
        histogram
    }

    /// Keys tracked.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.ring.lock().len()).sum()
    }

    /// Whether no key is tracked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most keys that may be tracked.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the most keys that may be tracked; the coldest go if there are too many. Call it for
    /// steps of several per cent: a larger table than ever before is a copy of all shards.
    pub fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::Relaxed);
        for (index, shard) in self.shards.iter().enumerate() {
            let limit = limit_of(capacity, self.shards.len(), index);
            shard.ring.lock().set_limit(limit, &shard.counts);
        }
    }

    /// Memory in use.
    pub fn bytes(&self) -> usize {
        let slots: usize = self.shards.iter().map(|shard| shard.ring.lock().bytes()).sum();
        slots + size_of_val(&*self.shards)
    }

    fn shard(&self, key_hash: u64) -> &Shard {
        &self.shards[key_hash as usize & (self.shards.len() - 1)]
    }
}

impl Shard {
    fn insert(&self, ring: &mut Ring, key_hash: u64, on_fast: bool) -> Option<u8> {
        if ring.limit() == 0 {
            return None;
        }
        if ring.is_full() {
            ring.evict(&self.counts);
        }
        ring.insert(Entry::new(key_hash, 0, on_fast), &self.counts);
        Some(0)
    }
}
