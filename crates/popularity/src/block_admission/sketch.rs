//! How often blocks were seen lately, in four bits each: a count-min sketch whose counts are halved
//! from time to time (TinyLFU, section 3.3).
//!
//! Invariants:
//! 1. An estimate is at least the number of additions since the last halving, up to [`COUNT_MAX`].
//! 2. After `10 x blocks` additions all counts are halved, so that what was hot once is forgotten.

use thermocline_foundation::random::mix;

/// Counts end here.
pub const COUNT_MAX: u8 = 15;
const ROWS: u64 = 4;
/// Counters of a row for each block that is expected.
const WIDTH: u64 = 2;
/// Additions for each block between halvings.
const SAMPLE: u64 = 10;
const BLOCKS_MIN: u64 = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Sixteen counters a word; a word belongs to one row.
    words: Vec<u64>,
    /// Counters of a row less one.
    mask: u64,
    added: u64,
    sample: u64,
}

impl Sketch {
    /// For so many blocks.
    pub fn new(blocks: u64) -> Self {
        let width = (blocks.max(BLOCKS_MIN) * WIDTH).next_power_of_two();
        let words = vec![0; (width * ROWS / 16) as usize];
        Self { words, mask: width - 1, added: 0, sample: blocks.max(BLOCKS_MIN) * SAMPLE }
    }

    /// Counts the block of `hash` and gives its new estimate.
    pub fn add(&mut self, hash: u64) -> u8 {
        let least = self.estimate(hash);
        // Only the least counters are raised: the others are too high already.
        for row in 0..ROWS {
            let (word, shift) = self.place(hash, row);
            let count = (self.words[word] >> shift & 15) as u8;
            if count == least && count < COUNT_MAX {
                self.words[word] += 1 << shift;
            }
        }
        self.added += 1;
        if self.added >= self.sample {
            self.halve();
        }
        self.estimate(hash)
    }

    /// How often the block was counted, halvings aside.
    pub fn estimate(&self, hash: u64) -> u8 {
        let count = |row| {
            let (word, shift) = self.place(hash, row);
            (self.words[word] >> shift & 15) as u8
        };
        (0..ROWS).map(count).min().unwrap_or(0)
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    fn place(&self, hash: u64, row: u64) -> (usize, u64) {
        let at = mix(hash.wrapping_add(row << 61)) & self.mask;
        let counter = row * (self.mask + 1) + at;
        ((counter / 16) as usize, counter % 16 * 4)
    }

    fn halve(&mut self) {
        for word in &mut self.words {
            *word = *word >> 1 & 0x7777_7777_7777_7777;
        }
        self.added /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::Random;

    #[test]
    fn an_estimate_is_never_below_the_count() {
        let (mut sketch, mut random) = (Sketch::new(1000), Random::new(1));
        let mut counts = [0u8; 1500];
        for _ in 0..6000 {
            let block = random.below(1500) as usize;
            counts[block] = (counts[block] + 1).min(COUNT_MAX);
            assert!(sketch.add(mix(block as u64)) >= counts[block]);
        }
        let estimate = |block: usize| sketch.estimate(mix(block as u64));
        let over = (0..1500).filter(|block| estimate(*block) > counts[*block] + 1).count();
        assert!(over < 75, "{over} of 1500 are far too high");
    }

    #[test]
    fn what_is_not_seen_any_more_is_forgotten() {
        let mut sketch = Sketch::new(100);
        for _ in 0..20 {
            sketch.add(7);
        }
        assert_eq!(sketch.estimate(7), COUNT_MAX);
        for number in 0..6000 {
            sketch.add(mix(number % 50));
        }
        assert!(sketch.estimate(7) <= 3, "{}", sketch.estimate(7));
    }
}
