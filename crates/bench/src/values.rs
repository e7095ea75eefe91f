//! Values that say whose they are, so that each can be checked alone.
//!
//! ```text
//!   value = version u16 LE | 6 bytes of a digest of number and version | a piece of the pool
//! ```
//! cut off where the value is shorter than eight bytes. Length and piece follow from number and
//! version, so a wrong key, a mixture of two writes, a cut or a flipped bit shows. Whether the
//! version may be the present one is for `versions` to say.
//!
//! Values up to 4 KiB are compared in all their bytes; of longer ones the first and the last 2 KiB,
//! and every sixteenth whole.
//!
//! Threads: everything here is read-only.

use thermocline_foundation::random::{Random, mix};

/// Bytes of the pool besides the longest piece: so few that they stay in a processor's cache.
const POOL_BYTES: usize = 1 << 18;
/// Bytes of a run in the pool that compresses alike.
const RUN_BYTES: usize = 100;
const HEAD_BYTES: usize = 8;
/// Up to this long, values are compared whole; of longer ones a sixteenth whole, of the others the
/// first and last half of it and a word in each [`STRIDE_BYTES`].
const WHOLE_BYTES: usize = 4096;
/// Less than a page: an engine that maps its files, and hands values out in them, reads all of a
/// value as the others do.
const STRIDE_BYTES: usize = 1024;
/// Bytes of a value at least: its version.
pub const VALUE_BYTES_MIN: u32 = 2;
/// Bytes of a value at most.
pub const VALUE_BYTES_MAX: u32 = 1 << 20;

/// How long values are.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// All alike.
    Fixed(u32),
    /// Shares, in hundredths, of lengths.
    Mixture(&'static [(u32, u32)]),
    /// Generalised Pareto with shape `k` and scale `sigma`, cut to `2..=max`.
    Pareto {
        /// Shape.
        k: f64,
        /// Scale in bytes.
        sigma: f64,
        /// The longest.
        max: u32,
    },
    /// The first record of each group, and inserts, have one length, the rest another.
    Grouped {
        /// Records of a group.
        group: u64,
        /// Loaded records; larger numbers are inserts.
        records: u64,
        /// Of the first and of inserts.
        first: u32,
        /// Of the others.
        rest: u32,
    },
    /// Whatever the operation says (traces); these are the lengths of loaded records.
    Given(std::sync::Arc<Vec<u32>>),
}

impl Sizes {
    /// Bytes of the value of `number` at `version`; none where only the operation knows.
    #[inline]
    pub fn bytes(&self, number: u64, version: u16) -> Option<u32> {
        match self {
            Self::Fixed(bytes) => Some(*bytes),
            Self::Mixture(shares) => {
                let mut at = (mix(digest(number, version)) % 100) as u32;
                for (share, bytes) in *shares {
                    match at.checked_sub(*share) {
                        Some(rest) => at = rest,
                        None => return Some(*bytes),
                    }
                }
                shares.last().map(|(_, bytes)| *bytes)
            }
            Self::Pareto { k, sigma, max } => {
                let u = (mix(digest(number, version)) >> 11) as f64 / (1u64 << 53) as f64;
                Some((pareto(u, *k, *sigma) as u32).clamp(VALUE_BYTES_MIN, *max))
            }
            Self::Grouped { group, records, first, rest } => {
                let leads = number >= *records || number.is_multiple_of(*group);
                Some(if leads { *first } else { *rest })
            }
            Self::Given(_) => None,
        }
    }

    /// The average length in bytes.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(bytes) => f64::from(*bytes),
            Self::Mixture(shares) => {
                shares.iter().map(|(share, bytes)| f64::from(*share * *bytes) / 100.0).sum()
            }
            Self::Pareto { .. } => {
                let draws = 10_000;
                let sum: f64 = (0..draws).map(|n| f64::from(self.bytes(n, 1).unwrap_or(0))).sum();
                sum / draws as f64
            }
            Self::Grouped { group, first, rest, .. } => {
                (f64::from(*first) + f64::from(*rest) * (*group - 1) as f64) / *group as f64
            }
            Self::Given(all) => {
                let sum: f64 = all.iter().map(|bytes| f64::from(*bytes)).sum();
                sum / all.len().max(1) as f64
            }
        }
    }

    /// The longest.
    pub fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Mixture(shares) => shares.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
            Self::Pareto { max, .. } => *max,
            Self::Grouped { first, rest, .. } => *first.max(rest),
            Self::Given(_) => VALUE_BYTES_MAX,
        }
    }
}

/// The generalised Pareto distribution's value at the quantile `u`: rounded up, as in db_bench's
/// mixgraph.
pub fn pareto(u: f64, k: f64, sigma: f64) -> f64 {
    (sigma * ((1.0 - u).powf(-k) - 1.0) / k).ceil()
}

#[inline]
fn digest(number: u64, version: u16) -> u64 {
    mix(number ^ u64::from(version) << 48)
}

/// At least so many bytes to cut values from, which shrink to about `ratio` of them when
/// compressed: always the same, text in runs.
pub fn pool(bytes: usize, ratio: f64) -> Vec<u8> {
    let mut random = Random::new(301);
    let mut pool = Vec::with_capacity(bytes + RUN_BYTES);
    let raw = ((RUN_BYTES as f64 * ratio) as usize).clamp(1, RUN_BYTES);
    let mut run = vec![0; raw];
    while pool.len() < bytes {
        random.fill(&mut run);
        pool.extend(run.iter().cycle().take(RUN_BYTES).map(|byte| b' ' + byte % 95));
    }
    pool
}

/// The values of a run.
#[derive(Clone, Debug)]
pub struct Values {
    sizes: Sizes,
    pool: Vec<u8>,
}

impl Values {
    /// Values of these lengths that shrink to about `ratio` of them when compressed.
    pub fn new(sizes: Sizes, ratio: f64) -> Self {
        let pool = pool(POOL_BYTES + sizes.max() as usize, ratio);
        Self { sizes, pool }
    }

    /// Their lengths.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    #[inline]
    fn parts(&self, number: u64, version: u16, len: usize) -> ([u8; HEAD_BYTES], &[u8]) {
        let digest = digest(number, version);
        let head = (digest & !0xffff | u64::from(version)).to_le_bytes();
        let at = digest as usize % POOL_BYTES;
        (head, &self.pool[at..at + len.saturating_sub(HEAD_BYTES)])
    }

    /// Makes `value` the value of `number` at `version`; `given` is its length where only the
    /// operation knows it; 0: that of loading.
    #[inline]
    pub fn make(&self, number: u64, version: u16, given: u32, value: &mut Vec<u8>) {
        let len = match (&self.sizes, given) {
            // Loading a trace's records.
            (Sizes::Given(all), 0) => all.get(number as usize).copied().unwrap_or(VALUE_BYTES_MIN),
            (sizes, given) => sizes.bytes(number, version).unwrap_or(given),
        } as usize;
        let (head, piece) = self.parts(number, version, len);
        value.clear();
        value.extend_from_slice(&head[..len.min(HEAD_BYTES)]);
        value.extend_from_slice(piece);
    }

    /// The version of what was read of `number`, or what is wrong with it.
    #[inline]
    pub fn check(&self, number: u64, value: &[u8]) -> Result<u16, String> {
        let Some(version) = value.first_chunk().map(|two| u16::from_le_bytes(*two)) else {
            return Err(format!("the value of record {number} has {} bytes", value.len()));
        };
        let expected = self.sizes.bytes(number, version);
        if value.len() > VALUE_BYTES_MAX as usize
            || expected.is_some_and(|bytes| bytes as usize != value.len())
        {
            let bytes = value.len();
            return Err(format!(
                "the value of record {number} has {bytes} bytes and says version {version}"
            ));
        }
        let (head, piece) = self.parts(number, version, value.len());
        let (found, rest) = value.split_at(value.len().min(HEAD_BYTES));
        if found != &head[..found.len()] || !same(rest, piece) {
            return Err(format!(
                "the value of record {number} is not one that was written; it says version \
                 {version}"
            ));
        }
        Ok(version)
    }
}

#[inline]
fn same(found: &[u8], expected: &[u8]) -> bool {
    let len = found.len();
    let whole = len <= WHOLE_BYTES || expected[len / 2] & 15 == 0;
    if whole || len != expected.len() {
        return found == expected;
    }
    let half = WHOLE_BYTES / 2;
    let word = |at: usize| found[at..].first_chunk::<8>() == expected[at..].first_chunk();
    found[..half] == expected[..half]
        && found[len - half..] == expected[len - half..]
        && (half..len - half).step_by(STRIDE_BYTES).all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_every_wrong_length_and_every_other_record_is_found() {
        for len in [2, 7, 8, 9, 100, 1000] {
            let values = Values::new(Sizes::Fixed(len), 0.5);
            let mut value = Vec::new();
            values.make(7, 3, 0, &mut value);
            assert_eq!(value.len(), len as usize);
            assert_eq!(values.check(7, &value), Ok(3));
            assert!(len < 4 || values.check(8, &value).unwrap_err().contains("record 8"));
            for at in 2..value.len() {
                value[at] ^= 1;
                assert!(values.check(7, &value).is_err(), "byte {at} of {len}");
                value[at] ^= 1;
            }
            assert!(values.check(7, &value[..value.len() - 1]).is_err());
        }
        let values = Values::new(Sizes::Given(std::sync::Arc::new(vec![50])), 0.5);
        let mut value = Vec::new();
        values.make(0, 1, 33, &mut value);
        assert_eq!((value.len(), values.check(0, &value)), (33, Ok(1)));
    }

    #[test]
    fn of_a_long_value_a_word_in_each_kilobyte_is_looked_at() {
        let values = Values::new(Sizes::Fixed(64 << 10), 0.5);
        let mut value = Vec::new();
        for number in 0..40 {
            values.make(number, 3, 0, &mut value);
            assert_eq!(values.check(number, &value), Ok(3));
            // A kilobyte of zeros anywhere, as of a page that was not read.
            for from in (0..value.len() - 1024).step_by(512).skip(1) {
                let mut broken = value.clone();
                broken[from..from + 1032].fill(0);
                assert!(values.check(number, &broken).is_err(), "{from}");
            }
        }
    }

    #[test]
    fn lengths_follow_their_distribution() {
        let mixture = Sizes::Mixture(&[(1, 100), (81, 400), (16, 1024), (2, 4096)]);
        let mut counts = std::collections::BTreeMap::new();
        let draws = 100_000;
        for number in 0..draws {
            *counts.entry(mixture.bytes(number, 1).unwrap()).or_insert(0u64) += 1;
        }
        for (bytes, share) in [(100, 0.01), (400, 0.81), (1024, 0.16), (4096, 0.02)] {
            let found = counts[&bytes] as f64 / draws as f64;
            let deviation = (share * (1.0f64 - share) / draws as f64).sqrt();
            assert!((found - share).abs() < 5.0 * deviation, "{bytes}: {found}");
        }
        // Mean of a generalised Pareto distribution: sigma / (1 - k), and half a byte of rounding.
        let pareto = Sizes::Pareto { k: 0.2615, sigma: 25.45, max: 1024 };
        let mean = 25.45 / (1.0 - 0.2615) + 0.5;
        assert!((pareto.mean() - mean).abs() < 1.5, "{} {mean}", pareto.mean());
    }
}
