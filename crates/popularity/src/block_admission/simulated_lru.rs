//! The keys that a cache would hold which keeps blocks by least recent use and admits all of them
//! (MyNVM, section 4.3): a block that is missed is worth the real cache's writes if this one would
//! still have it.
//!
//! ```text
//!   line    16 signatures of 4 B, one cache line: newest ... oldest, 0 is none
//!           '-- its share of the keys --'  the rest is for blocks shorter than expected
//! ```
//! A key belongs to one line, and each line is a list of its own: the oldest key of a line leaves
//! where the oldest of all would. Lines get about as many keys as each other, so over many requests
//! both say the same; one list for all takes three times the memory, and a few cache lines for each
//! request.
//!
//! Invariants:
//! 1. The shares of all lines are as many keys as blocks of the usual length fit into the bytes, as
//!    long as that is one a line at least and [`LINE_KEYS`] at most; the usual length is a running
//!    mean of what was touched.
//! 2. A line has a signature once.

/// Keys of a line at most.
const LINE_KEYS: usize = 16;

/// Keys of a line where blocks are as long as expected.
const LINE_KEYS_EXPECTED: u64 = 12;

/// No key.
const NONE: u32 = 0;

/// The running mean of lengths takes in this part of each.
const MEAN_SHARE: u64 = 256;

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([u32; LINE_KEYS]);

/// See the module.
#[derive(Clone, Debug)]
pub struct SimulatedLru {
    bytes: u64,
    /// The running mean of lengths, times [`MEAN_SHARE`].
    mean: u64,
    lines: Vec<Line>,
}

impl SimulatedLru {
    /// Of a cache of `bytes`, whose blocks are expected to have `block_bytes`.
    pub fn new(bytes: u64, block_bytes: u64) -> Self {
        let block_bytes = block_bytes.max(1);
        let lines = (bytes / block_bytes).div_ceil(LINE_KEYS_EXPECTED).max(1);
        let lines = (0..lines).map(|_| Line::default()).collect();
        Self { bytes, mean: block_bytes.saturating_mul(MEAN_SHARE), lines }
    }

    /// Whether the cache would have the block of `hash`; from now on it would.
    pub fn touch(&mut self, hash: u64, len: u32) -> bool {
        self.mean = (self.mean - self.mean / MEAN_SHARE + u64::from(len)).max(MEAN_SHARE);
        let line = self.line_of(hash);
        let share = self.share_of(line);
        let (keys, signature) = (&mut self.lines[line].0, signature(hash));
        let found = keys[..share].iter().position(|key| *key == signature);
        // What came into force when blocks were shorter.
        keys[share..].fill(NONE);
        keys.copy_within(..found.unwrap_or(share - 1), 1);
        keys[0] = signature;
        found.is_some()
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.lines.capacity() * size_of::<Line>()) as u64
    }

    /// Blocks that the cache would have, counted one by one.
    pub fn len(&self) -> usize {
        self.lines.iter().flat_map(|line| &line.0).filter(|key| **key != NONE).count()
    }

    /// It would have none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys of all lines at most.
    fn keys_max(&self) -> u64 {
        self.bytes.saturating_mul(MEAN_SHARE) / self.mean
    }

    fn line_of(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }

    /// Keys of `line` at most: all have as many, and the first ones one more.
    fn share_of(&self, line: usize) -> usize {
        let (keys, lines) = (self.keys_max(), self.lines.len() as u64);
        let share = keys / lines + u64::from((line as u64) < keys % lines);
        share.clamp(1, LINE_KEYS as u64) as usize
    }
}

/// What a key is known by in its line, which the high bits choose.
fn signature(hash: u64) -> u32 {
    (hash as u32).max(NONE + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use thermocline_foundation::random::{Random, mix};

    #[test]
    fn each_line_has_what_a_plain_list_by_least_recent_use_has() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let blocks = 1 + random.below(400);
            let mut lru = SimulatedLru::new(blocks * 4096, 4096);
            let mut lists = vec![VecDeque::new(); lru.lines.len()];
            for _ in 0..6000 {
                let hash = mix(random.below(600));
                let line = lru.line_of(hash);
                let list: &mut VecDeque<u64> = &mut lists[line];
                let at = list.iter().position(|other| *other == hash);
                assert_eq!(lru.touch(hash, 4096), at.is_some());
                at.map(|at| list.remove(at));
                list.push_front(hash);
                list.truncate(lru.share_of(line));
            }
            assert_eq!(lru.len(), lists.iter().map(VecDeque::len).sum::<usize>());
            let shares: usize = (0..lru.lines.len()).map(|line| lru.share_of(line)).sum();
            assert_eq!(shares as u64, blocks, "all that there is room for, and no more");
        }
    }

    /// Of requests of which each decade of blocks has as many as the next.
    #[test]
    fn lines_say_in_all_what_one_list_says() {
        for blocks in [300, 1000] {
            let mut random = Random::new(blocks);
            let mut lru = SimulatedLru::new(blocks * 4096, 4096);
            let (mut list, mut found, mut right) = (VecDeque::new(), 0, 0);
            let requests = 40_000;
            for _ in 0..requests {
                let hash = mix(10_000f64.powf(random.unit()) as u64);
                found += u32::from(lru.touch(hash, 4096));
                let at = list.iter().position(|other| *other == hash);
                right += u32::from(at.is_some());
                at.map(|at| list.remove(at));
                list.push_front(hash);
                list.truncate(blocks as usize);
            }
            let apart = f64::from(found.abs_diff(right)) / f64::from(requests);
            assert!(apart < 0.01, "{found} and {right} of {requests}");
        }
    }

    #[test]
    fn longer_blocks_mean_fewer_of_them_and_shorter_ones_a_third_more_at_most() {
        let mut lru = SimulatedLru::new(100 * 4096, 4096);
        for number in 0..1000 {
            lru.touch(mix(number), 4096);
        }
        assert_eq!(lru.len(), 100);
        for number in 0..10_000 {
            lru.touch(mix(number), 16_384);
        }
        assert!((25..=27).contains(&lru.len()), "{}", lru.len());
        for number in 0..10_000 {
            lru.touch(mix(number), 1024);
        }
        assert_eq!(lru.len(), lru.lines.len() * LINE_KEYS);
    }

    #[test]
    fn a_key_takes_less_than_six_bytes_whatever_the_capacity() {
        for keys in [1_000, 33_000, 40_000, 100_000] {
            let mut lru = SimulatedLru::new(keys * 4096, 4096);
            for number in 0..3 * keys {
                lru.touch(mix(number), 4096);
            }
            let bytes = lru.memory_bytes() as f64 / lru.len() as f64;
            assert!(bytes <= 5.5, "{bytes} of each of {keys}");
        }
    }
}
