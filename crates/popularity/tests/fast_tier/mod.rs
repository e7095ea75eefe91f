//! A model of a fast tier under a tracker, and the accesses that drive it.
//!
//! The tier holds a share of the keys. A read of a key that is not there brings it up if the policy
//! says so; when the tier is 98 % full, a sweep over the keys in the order of their hashes drops
//! what is not pinned until it is 95 % full (§4.2). Nothing here is timed.

use thermocline_foundation::random::{Random, mix};
use thermocline_popularity::{ClockTracker, Pinning, PinningThreshold};

/// Ranks drawn with probability proportional to `1 / rank^skew`.
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub fn new(keys: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += (rank as f64).powf(-skew);
            sum
        });
        Self { sums: sums.collect() }
    }

    pub fn draw(&self, random: &mut Random) -> usize {
        let point = random.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum <= point).min(self.sums.len() - 1)
    }

    /// The share of accesses that goes to the hottest `keys`.
    pub fn share_of(&self, keys: usize) -> f64 {
        self.sums[keys - 1] / self.sums[self.sums.len() - 1]
    }
}

/// A draw that is always the same for a key.
pub fn draw_of(key_hash: u64) -> f64 {
    (mix(key_hash) >> 11) as f64 / (1u64 << 53) as f64
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Share of reads that the fast tier answered.
    pub hits: f64,
    /// Share of reads of keys that were pinned.
    pub pinned: f64,
}

pub struct FastTier<'a> {
    tracker: &'a ClockTracker,
    threshold: PinningThreshold,
    /// By key number; the sweep goes round.
    resident: Vec<bool>,
    count: usize,
    capacity: usize,
    hand: usize,
    /// A key is brought up from this value on; at 0, also if the tracker does not want it.
    promote_from: u8,
    pinning: Pinning,
    until_pinning: usize,
}

impl<'a> FastTier<'a> {
    pub fn new(tracker: &'a ClockTracker, keys: usize, capacity: usize, promote_from: u8) -> Self {
        Self {
            tracker,
            threshold: PinningThreshold::default(),
            resident: vec![false; keys],
            count: 0,
            capacity,
            hand: 0,
            promote_from,
            pinning: Pinning::nothing(),
            until_pinning: 0,
        }
    }

    fn read(&mut self, key: usize) -> (bool, bool) {
        let key_hash = mix(key as u64);
        if self.until_pinning == 0 {
            self.pinning = self.threshold.pinning(&self.tracker.histogram());
            self.until_pinning = self.resident.len() / 100;
        }
        self.until_pinning -= 1;
        let pinned = self.pinning.decide(self.tracker.value(key_hash), draw_of(key_hash));
        let hit = self.resident[key];
        let value = self.tracker.touch(key_hash, hit);
        if !hit && value.map_or(self.promote_from == 0, |value| value >= self.promote_from) {
            self.resident[key] = true;
            self.count += 1;
            self.tracker.set_location(key_hash, true);
            if self.count >= self.capacity * 98 / 100 {
                self.demote();
            }
        }
        (hit, pinned)
    }

    fn demote(&mut self) {
        let mut looked_at = 0;
        while self.count > self.capacity * 95 / 100 {
            let key = self.hand;
            self.hand = (self.hand + 1) % self.resident.len();
            looked_at += 1;
            let key_hash = mix(key as u64);
            // After a whole round of pinned keys the tier must have room all the same.
            let pinned = looked_at <= self.resident.len()
                && self.pinning.decide(self.tracker.value(key_hash), draw_of(key_hash));
            if self.resident[key] && !pinned {
                self.resident[key] = false;
                self.count -= 1;
                self.tracker.set_location(key_hash, false);
            }
        }
    }

    /// Reads `keys` and says what happened.
    pub fn run(&mut self, keys: impl Iterator<Item = usize>) -> Rates {
        let (mut hits, mut pins, mut reads) = (0u64, 0u64, 0u64);
        for key in keys {
            let (hit, pinned) = self.read(key);
            hits += u64::from(hit);
            pins += u64::from(pinned);
            reads += 1;
        }
        Rates { hits: hits as f64 / reads as f64, pinned: pins as f64 / reads as f64 }
    }
}
