//! Numbers of records, and the keys that they have.
//!
//! ```text
//!   number < records    loaded; position = permutation(number), or the number itself
//!   number >= records   inserted by the run, next to a loaded one
//!
//!   word = position u40 | 0 where loaded, else how often an insert went there u24
//!   key  = word, 8 bytes big-endian | '0' up to the key's size
//! ```
//! Ascending numbers therefore are keys in random order, which is how a store is filled; two
//! loaded records whose positions follow each other have nothing but inserts between them, so a
//! scan that leaves one out is found. The low 24 bits all set are a key that is never written.
//!
//! Invariants:
//! 1. Number and key are one-to-one, both ways. A hash modulo the number of records would not be:
//!    it reaches 63 % of them and makes every store look faster.
//!
//! Threads: everything here is read-only.

use thermocline_foundation::random::mix;

/// Low bits of a word, for inserts.
const INSERT_BITS: u32 = 24;
const INSERT_MASK: u64 = (1 << INSERT_BITS) - 1;
/// Records at most.
pub const RECORDS_MAX: u64 = 1 << 40;
/// Bytes of a key at least.
pub const KEY_BYTES_MIN: u32 = 8;
const ROUNDS: usize = 3;

/// A bijection of `0..len` onto itself that looks random: three rounds of xor-shift and odd
/// multiplication on the next power of two, walked on until the result is below `len`.
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    mask: u64,
    shift: u32,
    /// Added, multiplied by, and the inverse of that.
    rounds: [(u64, u64, u64); ROUNDS],
}

impl Permutation {
    /// The permutation of `0..len` that follows from `seed`; `len` must not be zero.
    pub fn new(len: u64, seed: u64) -> Self {
        assert!(len > 0, "nothing cannot be permuted");
        let bits = (64 - (len - 1).leading_zeros()).max(2);
        let round = |index: usize| {
            let word = mix(seed ^ mix(index as u64 + 1));
            let factor = mix(word) | 1;
            // Newton: each step doubles the bits that are right, from 3 to 96.
            let inverse = (0..5).fold(factor, |inverse, _| {
                inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
            });
            (word, factor, inverse)
        };
        Self {
            len,
            mask: if bits == 64 { u64::MAX } else { (1 << bits) - 1 },
            shift: bits.div_ceil(2),
            rounds: [round(0), round(1), round(2)],
        }
    }

    /// Where `index` goes.
    #[inline]
    pub fn apply(&self, index: u64) -> u64 {
        debug_assert!(index < self.len);
        let mut word = index;
        loop {
            for (add, factor, _) in &self.rounds {
                word = word.wrapping_add(*add) & self.mask;
                word ^= word >> self.shift;
                word = word.wrapping_mul(*factor) & self.mask;
            }
            word ^= word >> self.shift;
            if word < self.len {
                return word;
            }
        }
    }

    /// What goes to `place`.
    #[inline]
    pub fn invert(&self, place: u64) -> u64 {
        debug_assert!(place < self.len);
        let mut word = place;
        loop {
            word ^= word >> self.shift;
            for (add, _, inverse) in self.rounds.iter().rev() {
                word = word.wrapping_mul(*inverse) & self.mask;
                word ^= word >> self.shift;
                word = word.wrapping_sub(*add) & self.mask;
            }
            if word < self.len {
                return word;
            }
        }
    }
}

/// How numbers lie in the order of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// In the order of numbers.
    Sequential,
    /// Scattered, in groups of this many that stay together.
    Scattered {
        /// Records of a group, 1 or more; divides the number of records.
        group: u64,
    },
}

/// The keys of a run.
#[derive(Clone, Debug)]
pub struct Keys {
    records: u64,
    key_bytes: usize,
    /// Records that stay together, and where their groups go; none where keys are in order.
    scatter: Option<(u64, Permutation)>,
}

/// Seed of the one permutation from numbers to positions: images of the loaded state do not depend
/// on the seed of a run.
const SCATTER_SEED: u64 = 0x7ca7_7e2e_d000_0001;

impl Keys {
    /// Keys of `key_bytes` (8 or more) for `records` loaded records.
    pub fn new(records: u64, key_bytes: u32, order: Order) -> Self {
        assert!(records > 0 && records <= RECORDS_MAX && key_bytes >= KEY_BYTES_MIN);
        let scatter = match order {
            Order::Sequential => None,
            Order::Scattered { group } => {
                assert!(records.is_multiple_of(group), "groups are whole");
                Some((group, Permutation::new(records / group, SCATTER_SEED)))
            }
        };
        Self { records, key_bytes: key_bytes as usize, scatter }
    }

    /// Loaded records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of every key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// The place of a loaded record in the order of keys.
    #[inline]
    pub fn position(&self, number: u64) -> u64 {
        match &self.scatter {
            None => number,
            Some((1, permutation)) => permutation.apply(number),
            Some((group, permutation)) => {
                permutation.apply(number / group) * group + number % group
            }
        }
    }

    /// The loaded record at a place.
    pub fn at_position(&self, position: u64) -> u64 {
        match &self.scatter {
            None => position,
            Some((group, permutation)) => {
                permutation.invert(position / group) * group + position % group
            }
        }
    }

    #[inline]
    fn word(&self, number: u64) -> u64 {
        if number < self.records || self.scatter.is_none() {
            return self.position(number) << INSERT_BITS;
        }
        let (times, beside) = (number / self.records, number % self.records);
        self.position(beside) << INSERT_BITS | times
    }

    /// Makes `key` the key of `number`.
    #[inline]
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        self.put_word(self.word(number), key);
    }

    /// Makes `key` one that is never written and follows the key of the loaded `number`.
    pub fn absent_key(&self, number: u64, key: &mut Vec<u8>) {
        self.put_word(self.word(number) | INSERT_MASK, key);
    }

    #[inline]
    fn put_word(&self, word: u64, key: &mut Vec<u8>) {
        // The tail never changes, so only the first key of a buffer is filled up.
        if key.len() != self.key_bytes {
            key.clear();
            key.resize(self.key_bytes, b'0');
        }
        key[..8].copy_from_slice(&word.to_be_bytes());
    }

    /// The position of a key, and whether an insert has it; none for a key that is too short.
    pub fn place(key: &[u8]) -> Option<(u64, bool)> {
        let word = u64::from_be_bytes(*key.first_chunk::<8>()?);
        Some((word >> INSERT_BITS, word & INSERT_MASK != 0))
    }

    /// The number that has `key`; none where no number has.
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        let (head, tail) = key.split_first_chunk::<8>()?;
        if key.len() != self.key_bytes || tail.iter().any(|byte| *byte != b'0') {
            return None;
        }
        let word = u64::from_be_bytes(*head);
        let (position, times) = (word >> INSERT_BITS, word & INSERT_MASK);
        if self.scatter.is_none() {
            return (times == 0).then_some(position);
        }
        let number = (position < self.records).then(|| self.at_position(position))?;
        (times != INSERT_MASK).then_some(times * self.records + number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_reach_every_index_once_and_are_undone() {
        for len in [1, 2, 3, 4, 5, 100, 1000, 4096, 4097, 65_537] {
            let permutation = Permutation::new(len, 42);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let place = permutation.apply(index);
                assert!(!std::mem::replace(&mut seen[place as usize], true), "{len}: {place}");
                assert_eq!(permutation.invert(place), index);
            }
        }
        let large = Permutation::new(RECORDS_MAX - 7, 1);
        assert!((0..1000).all(|index| large.invert(large.apply(index)) == index));
    }

    /// Chi-square of where a short run of indices lands, over 64 cells and four step lengths: the
    /// 99.99 % quantile for 63 degrees of freedom is 111.
    #[test]
    fn neighbours_are_scattered_evenly() {
        for (len, step) in [(6_000_000u64, 1u64), (6_000_000, 64), (100_000, 1), (1 << 20, 8)] {
            let permutation = Permutation::new(len, 7);
            let mut cells = [0f64; 64];
            let draws = 10_000;
            for index in 0..draws {
                cells[(permutation.apply(index * step % len) * 64 / len) as usize] += 1.0;
            }
            let expected = draws as f64 / 64.0;
            let chi: f64 = cells.iter().map(|n| (n - expected).powi(2) / expected).sum();
            assert!(chi < 111.0, "{len} {step}: {chi}");
        }
    }

    #[test]
    fn numbers_and_keys_are_one_to_one() {
        for order in
            [Order::Sequential, Order::Scattered { group: 1 }, Order::Scattered { group: 8 }]
        {
            let keys = Keys::new(80, 24, order);
            let mut all = std::collections::BTreeMap::new();
            let mut key = Vec::new();
            for number in 0..800 {
                keys.key(number, &mut key);
                assert_eq!(key.len(), 24);
                assert_eq!(keys.number(&key), Some(number), "{order:?}");
                assert!(all.insert(key.clone(), number).is_none());
            }
            let loaded = all.values().filter(|number| **number < 80);
            for (position, number) in (0..).zip(loaded) {
                assert_eq!(keys.position(*number), position);
                assert_eq!(keys.at_position(position), *number);
            }
            keys.absent_key(5, &mut key);
            assert!(!all.contains_key(&key) && keys.number(&key).is_none());
            assert!(keys.number(&key[1..]).is_none());
        }
    }
}
