//! A tracker with more memory of frequency than the clock, for the same or little more memory.
//!
//! A clock of two bits is close to LRU, which for a steady skew misses 1.4 times as often as an
//! order by frequency. Here a key has a counter of 4 bits. Three rules differ from the clock:
//!
//! 1. **An access adds 1**, up to 15. The first leaves 0, as in the paper.
//! 2. **Age comes with accesses, not with evictions.** While `ageing_period` accesses for each key
//!    of the capacity pass, every counter is halved exactly once, a few slots at a time: new keys
//!    that stream by do not wear down what is known of others, and when the hotspot moves, the
//!    counters of the old one are gone after a known number of accesses.
//! 3. **The newcomer must be as good as the one that goes.** Of the next eight entries the coldest
//!    is the victim. It is evicted only if the newcomer, counted in `sketch.rs` while it was not
//!    tracked, is hotter, or if the victim has the value 0: then the newer one wins, so a full
//!    tracker still learns. What is evicted leaves its count in the sketch.
//!
//! **Which tracker when.** Hit rates of a model (`tests/fast_tier`) of 60,000 keys, the tracker
//! with 20 % of them, the fast tier with 24 %, threshold 70 %; promoted at the second access | at
//! the first:
//!
//! ```text
//!                                          frequency        clock        best possible
//!   skew 0.99, steady                    0.855 | 0.842   0.848 | 0.834       0.870
//!   the same, half the reads a scan      0.495 | 0.503   0.522 | 0.451
//!   hot set changes every 10 N reads     0.797 | 0.806   0.804 | 0.818
//!   a hot tenth, another every 3 N       0.73  | 0.86    0.84  | 0.89        0.916
//! ```
//!
//! A longer period gains in the first row (32: 0.857) and loses in the last two. So: frequency for
//! a steady skew, the clock where the hot set moves; `tests/model.rs` pins the order.
//!
//! Invariants:
//! 1. `len() <= capacity()`.
//! 2. A key costs 14 bytes after [`FrequencyTracker::new`], 15.75 after growth: 10 in the ring and
//!    4 in the sketch.
//! 3. A touch looks at a bounded number of slots beyond its search: 8 for a victim, and the ageing
//!    it owes.

use crate::Popularity;
use crate::histogram::{Counts, Histogram};
use crate::ring::{Entry, Ring, limit_of};
use crate::sketch::Sketch;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicUsize, Ordering};

const VALUE_MAX: u8 = 15;
/// Entries among which the victim is chosen.
const VICTIMS: usize = 8;
/// Sketch counters for each key of the capacity: 4 bytes.
const COUNTERS_PER_KEY: usize = 8;

/// How a frequency tracker ages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrequencySettings {
    /// Accesses, for each key of the capacity, in which every counter is halved once; 1 or more.
    /// Longer is better for a steady skew and slower to follow a hotspot.
    pub ageing_period: u32,
}

impl Default for FrequencySettings {
    fn default() -> Self {
        Self { ageing_period: 16 }
    }
}

#[derive(Debug)]
struct State {
    ring: Ring,
    sketch: Sketch,
    /// Next unit to be halved: slots of the ring first, then words of the sketch.
    age_hand: usize,
    /// Part of a unit that ageing owes, in units of 1 / (limit * period).
    age_debt: u64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Shard {
    state: Mutex<State>,
    counts: Counts,
}

/// See the header.
#[derive(Debug)]
pub struct FrequencyTracker {
    shards: Box<[Shard]>,
    capacity: AtomicUsize,
    settings: FrequencySettings,
}

impl State {
    fn new(limit: usize) -> Self {
        let sketch = Sketch::new(limit * COUNTERS_PER_KEY);
        Self { ring: Ring::new(limit), sketch, age_hand: 0, age_debt: 0 }
    }

    /// Pays for one access: halves as many units as bring every unit to be halved once in a period.
    fn age(&mut self, settings: FrequencySettings, counts: &Counts) {
        let units = self.ring.slots() + self.sketch.words();
        let price = self.ring.limit() as u64 * u64::from(settings.ageing_period.max(1));
        self.age_debt += units as u64;
        while self.age_debt >= price.max(1) {
            self.age_debt -= price.max(1);
            if self.age_hand >= units {
                self.age_hand = 0;
            }
            match self.age_hand.checked_sub(self.ring.slots()) {
                Some(word) => self.sketch.halve(word),
                None => {
                    if let Some(entry) = self.ring.at(self.age_hand) {
                        let halved = entry.value() / 2;
                        self.ring.set(self.age_hand, halved, entry.on_fast(), counts);
                    }
                }
            }
            self.age_hand += 1;
        }
    }

    /// The coldest of the next few entries.
    fn victim(&mut self) -> Option<(usize, Entry)> {
        let mut coldest: Option<(usize, Entry)> = None;
        let mut seen = 0;
        for _ in 0..self.ring.slots() {
            let slot = self.ring.step();
            let Some(entry) = self.ring.at(slot) else { continue };
            if coldest.is_none_or(|(_, other)| entry.value() < other.value()) {
                coldest = Some((slot, entry));
            }
            seen += 1;
            if seen == VICTIMS || entry.value() == 0 {
                break;
            }
        }
        coldest
    }

    /// A key that is not tracked was accessed.
    fn arrive(&mut self, key_hash: u64, on_fast: bool, counts: &Counts) -> Option<u8> {
        if self.ring.limit() == 0 {
            return None;
        }
        // The first access of a key is worth 0.
        let value = self.sketch.count(key_hash).saturating_sub(1);
        if self.ring.is_full() {
            let (slot, victim) = self.victim()?;
            if victim.value() > 0 && victim.value() >= value {
                return None;
            }
            self.ring.remove(slot, counts);
            // The sketch's places depend on the stored bits only (`ring_hash`).
            self.sketch.raise(victim.tag(), victim.value() + 1);
        }
        self.ring.insert(Entry::new(key_hash, value, on_fast), counts);
        Some(value)
    }
}

/// The part of a hash that the ring stores: what is known of an evicted key has no more.
fn ring_hash(key_hash: u64) -> u64 {
    Entry::new(key_hash, 0, false).tag()
}

impl FrequencyTracker {
    /// A tracker of `capacity` keys; `shards` is a power of two, [`SHARDS`](crate::SHARDS) unless
    /// the capacity is small.
    pub fn new(capacity: usize, shards: usize, settings: FrequencySettings) -> Self {
        assert!(shards.is_power_of_two(), "the low bits of a hash choose its shard");
        let shard = |index| Shard {
            state: Mutex::new(State::new(limit_of(capacity, shards, index))),
            counts: Counts::default(),
        };
        let shards = (0..shards).map(shard).collect();
        Self { shards, capacity: AtomicUsize::new(capacity), settings }
    }

    fn shard(&self, key_hash: u64) -> &Shard {
        &self.shards[key_hash as usize & (self.shards.len() - 1)]
    }

    /// A read, or a write, of a key whose record was on the fast tier or not. A write of one that
    /// was not is no access ([`Popularity::touch_write`]).
    fn access(&self, key_hash: u64, on_fast: bool, write: bool) -> Option<u8> {
        let shard = self.shard(key_hash);
        let mut state = shard.state.lock();
        let found = state.ring.find(key_hash).and_then(|slot| Some((slot, state.ring.at(slot)?)));
        let value = match found {
            Some((slot, entry)) if write && !on_fast => {
                state.ring.set(slot, entry.value(), true, &shard.counts);
                return Some(entry.value());
            }
            Some((slot, entry)) => {
                let value = (entry.value() + 1).min(VALUE_MAX);
                state.ring.set(slot, value, on_fast, &shard.counts);
                Some(value)
            }
            None if write && !on_fast => return None,
            None => state.arrive(ring_hash(key_hash), on_fast, &shard.counts),
        };
        state.age(self.settings, &shard.counts);
        value
    }

    fn entry(&self, key_hash: u64) -> Option<Entry> {
        let state = self.shard(key_hash).state.lock();
        state.ring.find(key_hash).and_then(|slot| state.ring.at(slot))
    }
}

impl Popularity for FrequencyTracker {
    fn touch(&self, key_hash: u64, on_fast: bool) -> Option<u8> {
        self.access(key_hash, on_fast, false)
    }

    fn touch_write(&self, key_hash: u64, was_on_fast: bool) -> Option<u8> {
        self.access(key_hash, was_on_fast, true)
    }

    fn value(&self, key_hash: u64) -> Option<u8> {
        self.entry(key_hash).map(Entry::value)
    }

    fn value_max(&self) -> u8 {
        VALUE_MAX
    }

    fn on_fast(&self, key_hash: u64) -> Option<bool> {
        self.entry(key_hash).map(Entry::on_fast)
    }

    fn set_location(&self, key_hash: u64, on_fast: bool) {
        let shard = self.shard(key_hash);
        let mut state = shard.state.lock();
        if let Some(slot) = state.ring.find(key_hash) {
            let value = state.ring.at(slot).map_or(0, Entry::value);
            state.ring.set(slot, value, on_fast, &shard.counts);
        }
    }

    fn forget(&self, key_hash: u64) {
        let shard = self.shard(key_hash);
        let mut state = shard.state.lock();
        if let Some(slot) = state.ring.find(key_hash) {
            state.ring.remove(slot, &shard.counts);
        }
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.shards.iter().for_each(|shard| shard.counts.add_to(&mut histogram));
        histogram
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.state.lock().ring.len()).sum()
    }

    fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    fn set_capacity(&self, capacity: usize) {
        self.capacity.store(capacity, Ordering::Relaxed);
        for (index, shard) in self.shards.iter().enumerate() {
            let limit = limit_of(capacity, self.shards.len(), index);
            let mut state = shard.state.lock();
            if state.ring.set_limit(limit, &shard.counts) {
                // Counts of what is not tracked start anew; tracked keys keep theirs.
                state.sketch = Sketch::new((state.ring.slots() * 4 / 5) * COUNTERS_PER_KEY);
                state.age_hand = 0;
            }
        }
    }

    fn bytes(&self) -> usize {
        let of = |shard: &Shard| {
            let state = shard.state.lock();
            state.ring.bytes() + state.sketch.bytes()
        };
        self.shards.iter().map(of).sum::<usize>() + size_of_val(&*self.shards)
    }
}
