//! The table behind the tracker: open addressing over words of 8 bytes, with a clock hand.
//!
//! ```text
//!   bits 63..6   the key's hash without its low six bits
//!   bit  5       occupied; a free slot is all zeros
//!   bit  4       on the fast tier
//!   bits 3..0    value
//! ```
//!
//! A key's home is its hash scaled to the number of slots, so any number of slots will do and
//! memory follows the capacity closely; collisions go to the next free slot. Shards are chosen by
//! the *low* bits of the hash: with 64 shards or more they imply the six bits that are not stored.
//! One slot in five stays free, which makes 10 bytes a key and 3 slots looked at for a key that is
//! there (Knuth, volume 3, 6.4).
//!
//! The hand goes through a line of eight slots, then leaps: lines are visited in an order that is
//! spread evenly over the table, each once a round. A hand that walked in the order of the homes
//! would find all that is old ahead of it and leave only room behind: evictions free slots at one
//! place while insertions fill them everywhere, the part ahead becomes one run without a free slot,
//! and searches cost microseconds.
//!
//! Invariants:
//! 1. `len <= limit`, and at least one slot is free: every search ends.
//! 2. Between an entry and its home no slot is free. Removal keeps this by moving entries back
//!    instead of leaving marks, so a table that churns for ever stays as fast as a new one.
//! 3. The hand visits every slot once a round. Removal may carry an entry over it, which is then
//!    passed over, or seen twice, in this round: the clock is an approximation anyway.
//! 4. `counts` are those of the entries.

use crate::histogram::Counts;

const VALUE: u64 = 0b1111;
const FAST: u64 = 1 << 4;
const OCCUPIED: u64 = 1 << 5;
const TAG: u64 = !0 << 6;

/// An occupied slot, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    word: u64,
}

impl Entry {
    pub fn new(key_hash: u64, value: u8, on_fast: bool) -> Self {
        let mut word = (key_hash & TAG) | OCCUPIED | u64::from(value);
        if on_fast {
            word |= FAST;
        }
        Self { word }
    }

    /// The hash, without its low six bits.
    pub fn tag(self) -> u64 {
        self.word & TAG
    }

    pub fn value(self) -> u8 {
        (self.word & VALUE) as u8
    }

    pub fn on_fast(self) -> bool {
        self.word & FAST != 0
    }
}

/// The entries of one shard; see the header.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[u64]>,
    len: usize,
    limit: usize,
    hand: usize,
    /// Lines from one that the hand leaves to the next; shares no divisor with their number.
    leap: usize,
}

/// Slots that the hand visits one after the other: a line of the processor's cache.
const LINE: usize = 8;

/// Slots for `limit` entries: one in five free, at least one, and whole lines.
fn slots_of(limit: usize) -> usize {
    (limit + limit / 4 + 1).next_multiple_of(LINE)
}

/// The golden section of the lines, or the next number that makes the hand visit all of them.
fn leap_of(slots: usize) -> usize {
    fn divisor(a: usize, b: usize) -> usize {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    let lines = slots / LINE;
    let golden = (lines as f64 * 0.618_033_988_75) as usize;
    (golden.max(1)..=lines).find(|leap| divisor(*leap, lines) == 1).unwrap_or(1)
}

impl Ring {
    pub fn new(limit: usize) -> Self {
        let slots = slots_of(limit);
        Self { slots: vec![0; slots].into(), len: 0, limit, hand: 0, leap: leap_of(slots) }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    pub fn is_full(&self) -> bool {
        self.len >= self.limit
    }

    /// The slot of a key.
    pub fn find(&self, key_hash: u64) -> Option<usize> {
        let mut slot = self.home(key_hash & TAG);
        loop {
            let word = self.slots[slot];
            if word == 0 {
                return None;
            }
            if word & TAG == key_hash & TAG {
                return Some(slot);
            }
            slot = self.after(slot);
        }
    }

    /// What is in a slot.
    pub fn at(&self, slot: usize) -> Option<Entry> {
        let word = self.slots[slot];
        (word != 0).then_some(Entry { word })
    }

    /// Gives the key in an occupied slot another value or tier.
    pub fn set(&mut self, slot: usize, value: u8, on_fast: bool, counts: &Counts) {
        let old = Entry { word: self.slots[slot] };
        let new = Entry::new(old.tag(), value, on_fast);
        if old != new {
            counts.remove(old.value(), old.on_fast());
            counts.add(value, on_fast);
            self.slots[slot] = new.word;
        }
    }

    /// Adds a key that is not there; there must be room.
    pub fn insert(&mut self, entry: Entry, counts: &Counts) {
        debug_assert!(self.len < self.limit && self.find(entry.tag()).is_none());
        self.place(entry);
        counts.add(entry.value(), entry.on_fast());
    }

    fn place(&mut self, entry: Entry) {
        let mut slot = self.home(entry.tag());
        while self.slots[slot] != 0 {
            slot = self.after(slot);
        }
        self.slots[slot] = entry.word;
        self.len += 1;
    }

    /// Takes out the key in an occupied slot, and closes the gap (invariant 2).
    pub fn remove(&mut self, slot: usize, counts: &Counts) {
        let entry = Entry { word: self.slots[slot] };
        counts.remove(entry.value(), entry.on_fast());
        let mut hole = slot;
        let mut next = slot;
        loop {
            next = self.after(next);
            let word = self.slots[next];
            if word == 0 {
                break;
            }
            // An entry may move back as far as its home and no further.
            if self.distance(self.home(word & TAG), next) >= self.distance(hole, next) {
                self.slots[hole] = word;
                hole = next;
            }
        }
        self.slots[hole] = 0;
        self.len -= 1;
    }

    /// Moves the hand on; returns the slot that it was at.
    pub fn step(&mut self) -> usize {
        let slot = self.hand;
        self.hand = if (slot + 1).is_multiple_of(LINE) {
            (slot / LINE + self.leap) % (self.slots.len() / LINE) * LINE
        } else {
            slot + 1
        };
        slot
    }

    /// The clock algorithm (§4.3, §6): decrements values until it meets a 0, which it evicts. Every
    /// decrement undoes part of a touch, so its cost is a constant a touch in the long run.
    pub fn evict(&mut self, counts: &Counts) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        loop {
            let Some(entry) = self.at(self.hand) else {
                self.step();
                continue;
            };
            if entry.value() == 0 {
                // The hand stays: what is moved into the gap has not been looked at.
                self.remove(self.hand, counts);
                return Some(entry);
            }
            let slot = self.step();
            self.set(slot, entry.value() - 1, entry.on_fast(), counts);
        }
    }

    /// Changes the limit, evicting what is too much. Returns whether the slots were laid out anew,
    /// which happens when they are too few, or more than twice what is needed.
    pub fn set_limit(&mut self, limit: usize, counts: &Counts) -> bool {
        self.limit = limit;
        while self.len > limit && self.evict(counts).is_some() {}
        let needed = slots_of(limit);
        if self.slots.len() >= needed && self.slots.len() / 2 <= needed {
            return false;
        }
        // A growing store asks again and again; an eighth more spares most of the copies.
        let grows = needed > self.slots.len();
        let slots = if grows { slots_of(limit + limit / 8) } else { needed };
        let old = std::mem::replace(&mut self.slots, vec![0; slots].into());
        self.len = 0;
        self.hand = 0;
        self.leap = leap_of(slots);
        old.iter().filter(|word| **word != 0).for_each(|&word| self.place(Entry { word }));
        true
    }

    fn home(&self, tag: u64) -> usize {
        ((u128::from(tag) * self.slots.len() as u128) >> 64) as usize
    }

    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Steps from one slot forward to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.slots.len() - from }
    }

    /// A recount, for tests.
    #[cfg(test)]
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.slots.iter().filter(|word| **word != 0).map(|&word| Entry { word })
    }
}

/// The part of `capacity` that falls to one of `shards`; the parts add up to `capacity`.
pub(crate) fn limit_of(capacity: usize, shards: usize, shard: usize) -> usize {
    capacity / shards + usize::from(shard < capacity % shards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use std::collections::BTreeMap;
    use thermocline_foundation::random::{Random, mix};

    /// Keys whose homes crowd into a few places, the last slot among them.
    fn crowded(key: u64) -> u64 {
        match key % 3 {
            0 => !(key << 6),
            1 => key << 6,
            _ => mix(key),
        }
    }

    fn assert_same(ring: &Ring, counts: &Counts, model: &BTreeMap<u64, (u8, bool)>) {
        let found: BTreeMap<_, _> =
            ring.entries().map(|entry| (entry.tag(), (entry.value(), entry.on_fast()))).collect();
        assert_eq!(&found, model);
        assert_eq!(ring.len(), model.len());
        let (mut histogram, mut recount) = (Histogram::default(), Histogram::default());
        counts.add_to(&mut histogram);
        for &(value, on_fast) in model.values() {
            let side = if on_fast { &mut recount.on_fast } else { &mut recount.on_slow };
            side[usize::from(value)] += 1;
        }
        assert_eq!(histogram, recount);
        model.keys().for_each(|&tag| assert!(ring.find(tag).is_some(), "lost {tag:x}"));
    }

    #[test]
    fn ring_agrees_with_a_sorted_map_under_crowding_removal_and_resizing() {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let counts = Counts::default();
            let mut ring = Ring::new(20);
            let mut model = BTreeMap::new();
            for _ in 0..400 {
                let key = crowded(random.below(60)) & TAG;
                let (value, fast) = (random.below(16) as u8, random.below(2) == 0);
                match (random.below(8), ring.find(key)) {
                    (0..3, Some(slot)) => {
                        ring.remove(slot, &counts);
                        model.remove(&key);
                    }
                    (_, Some(slot)) => {
                        ring.set(slot, value, fast, &counts);
                        model.insert(key, (value, fast));
                    }
                    (0, None) => {
                        ring.set_limit(ring.len() + random.below(60) as usize, &counts);
                    }
                    (_, None) if !ring.is_full() => {
                        ring.insert(Entry::new(key, value, fast), &counts);
                        model.insert(key, (value, fast));
                    }
                    (_, None) => {}
                }
                assert_same(&ring, &counts, &model);
            }
        }
    }

    #[test]
    fn eviction_decrements_until_it_meets_a_zero() {
        let counts = Counts::default();
        let mut ring = Ring::new(3);
        // Homes in this order, from the hand on.
        let keys = [1u64 << 62, 2 << 62, 3 << 62];
        for (key, value) in keys.into_iter().zip([2, 0, 3]) {
            ring.insert(Entry::new(key, value, true), &counts);
        }
        assert_eq!(ring.evict(&counts).map(Entry::tag), Some(keys[1]));
        let value = |ring: &Ring, key| ring.find(key).and_then(|slot| ring.at(slot));
        assert_eq!(value(&ring, keys[0]).map(Entry::value), Some(1));
        // The hand stopped before the third key, which is therefore as it was.
        assert_eq!(value(&ring, keys[2]).map(Entry::value), Some(3));
        assert_eq!(ring.evict(&counts).map(Entry::tag), Some(keys[0]));
        assert_eq!(ring.evict(&counts).map(Entry::tag), Some(keys[2]));
        assert_eq!(ring.evict(&counts), None);
    }

    #[test]
    fn hand_visits_every_slot_once_a_round() {
        for limit in [0, 1, 5, 6, 7, 100, 1000, 4093] {
            let mut ring = Ring::new(limit);
            let mut visited = vec![0; ring.slots.len()];
            (0..ring.slots.len()).for_each(|_| visited[ring.step()] += 1);
            assert!(visited.iter().all(|visits| *visits == 1), "limit {limit}");
            assert_eq!(ring.hand, 0);
        }
    }

    #[test]
    fn searches_stay_short_while_keys_stream_through() {
        let counts = Counts::default();
        let mut ring = Ring::new(10_000);
        for key in 0..200_000 {
            if ring.is_full() {
                ring.evict(&counts);
            }
            ring.insert(Entry::new(mix(key), (key % 4) as u8, false), &counts);
        }
        // A table filled at random at the same load has 2 on average (Knuth), from the home on.
        let from_home = |slot: usize| {
            ring.at(slot).map_or(0, |entry| ring.distance(ring.home(entry.tag()), slot))
        };
        let total: usize = (0..ring.slots.len()).map(from_home).sum();
        assert!(total < 4 * ring.len(), "{} steps on average", total / ring.len());
    }

    #[test]
    fn shrinking_evicts_the_coldest_and_gives_memory_back() {
        let counts = Counts::default();
        let mut ring = Ring::new(1000);
        for key in 0..1000 {
            ring.insert(Entry::new(mix(key), u8::from(key < 100), false), &counts);
        }
        let before = ring.bytes();
        assert!(ring.set_limit(100, &counts));
        assert!(ring.bytes() < before / 5);
        assert_eq!(ring.len(), 100);
        assert!((0..100).all(|key| ring.find(mix(key)).is_some()));
    }
}
