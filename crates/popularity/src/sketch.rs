//! Counts of keys that are not tracked: a count-min sketch of 4-bit counters.
//!
//! A key that the frequency tracker has no room for must be able to show that it is accessed more
//! often than one that is tracked, or the first to come would stay. As in TinyLFU (Einziger,
//! Friedman and Manes, 2017) its accesses are counted in a sketch, and so is what was known of a
//! key when it was evicted. All counters of a key lie in one block of 64 bytes, which is one miss
//! of the processor's cache; four rows of 32 counters each, of which the smallest counts.
//!
//! Invariants:
//! 1. Between halvings an estimate is never below the true count, up to 15; collisions raise it.
//! 2. The ageing of the tracker halves every word here as often as every entry there.

use thermocline_foundation::random::mix;

/// Words of a block; two make a row of 32 counters.
const BLOCK_WORDS: usize = 8;
const ROWS: usize = 4;
const COUNT_MAX: u64 = 15;
/// The three lower bits of each counter, after a shift.
const HALVES: u64 = 0x7777_7777_7777_7777;

#[derive(Debug, Default)]
pub(crate) struct Sketch {
    words: Box<[u64]>,
}

impl Sketch {
    /// A sketch of about `counters` counters; of 0, one that knows nothing.
    pub fn new(counters: usize) -> Self {
        let blocks = counters.div_ceil(BLOCK_WORDS * 16);
        Self { words: vec![0; blocks * BLOCK_WORDS].into() }
    }

    pub fn words(&self) -> usize {
        self.words.len()
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// The places of a key's counters: word and shift.
    fn places(&self, key_hash: u64) -> [(usize, u32); ROWS] {
        // The shard took the low bits and the ring the high ones: mix for bits of its own.
        let bits = mix(key_hash ^ 0x5EED_0F5C_E7C4_0001);
        let blocks = (self.words.len() / BLOCK_WORDS) as u128;
        let block = ((u128::from(bits) * blocks) >> 64) as usize * BLOCK_WORDS;
        std::array::from_fn(|row| {
            let counter = (bits >> (5 * row)) as usize & 31;
            (block + 2 * row + counter / 16, (counter % 16) as u32 * 4)
        })
    }

    /// The count of a key, or more.
    pub fn estimate(&self, key_hash: u64) -> u8 {
        if self.words.is_empty() {
            return 0;
        }
        let count = |(word, shift): (usize, u32)| (self.words[word] >> shift) & COUNT_MAX;
        self.places(key_hash).map(count).into_iter().min().unwrap_or(0) as u8
    }

    /// Raises the counters of a key to `count` at least.
    pub fn raise(&mut self, key_hash: u64, count: u8) {
        if self.words.is_empty() {
            return;
        }
        let count = u64::from(count).min(COUNT_MAX);
        for (word, shift) in self.places(key_hash) {
            let old = (self.words[word] >> shift) & COUNT_MAX;
            if old < count {
                self.words[word] += (count - old) << shift;
            }
        }
    }

    /// Counts an access; returns the estimate afterwards. Only the smallest counters grow
    /// ("conservative update"), which keeps what collides from growing twice.
    pub fn count(&mut self, key_hash: u64) -> u8 {
        let count = self.estimate(key_hash).saturating_add(1).min(COUNT_MAX as u8);
        self.raise(key_hash, count);
        count
    }

    /// Halves the 16 counters of a word.
    pub fn halve(&mut self, word: usize) {
        self.words[word] = (self.words[word] >> 1) & HALVES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_never_below_and_seldom_above_the_count() {
        let mut sketch = Sketch::new(8 * 1000);
        let count = |key: u64| (key % 7 + 1) as u8;
        for key in 0..1000 {
            (0..count(key)).for_each(|_| {
                sketch.count(key);
            });
        }
        assert!((0..1000).all(|key| sketch.estimate(key) >= count(key)));
        let above = (0..1000).filter(|key| sketch.estimate(*key) > count(*key)).count();
        assert!(above < 100, "{above} of 1000 are above");
    }

    #[test]
    fn halving_all_words_halves_every_count_and_fifteen_is_the_most() {
        let mut sketch = Sketch::new(128);
        (0..40).for_each(|_| {
            sketch.count(1);
        });
        sketch.raise(2, 4);
        assert_eq!((sketch.estimate(1), sketch.estimate(2)), (15, 4));
        (0..sketch.words()).for_each(|word| sketch.halve(word));
        assert_eq!((sketch.estimate(1), sketch.estimate(2)), (7, 2));
    }

    #[test]
    fn a_sketch_of_no_counters_knows_nothing() {
        let mut sketch = Sketch::new(0);
        assert_eq!((sketch.count(1), sketch.estimate(1)), (1, 0));
    }
}
