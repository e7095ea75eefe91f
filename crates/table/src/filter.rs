//! The filter of a partition: a split-block Bloom filter over the hashes of its user keys.
//!
//! ```text
//!   partition = blocks of 64 bytes, each eight little-endian u64 words
//!   block of a hash = high 32 bits * count >> 32
//!   bit in word i   = low 32 bits * salt i, the top 6 bits of the 32
//! ```
//! A look-up touches one block, one cache line long (Putze, Sanders and Singler, 2007; the salts
//! are those of Apache Parquet, whose blocks have half the length:
//! `docs/decisions/0011-table-filter.md`). At 10 bits a key about 1 % of absent keys pass.
//!
//! Invariant: a key that was added always passes. Pure functions; any thread.

use xxhash_rust::xxh3::xxh3_64;

/// Bytes in a filter block.
pub const FILTER_BLOCK_BYTES: usize = 64;

const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The hash that filters and in-block hash indexes use: XXH3, 64 bits, seed 0.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// The partition's bytes for `hashes`, at `bits_per_key` rounded up to whole blocks.
pub(crate) fn build(hashes: &[u64], bits_per_key: u8) -> Vec<u8> {
    let bytes = (hashes.len() * usize::from(bits_per_key)).div_ceil(8);
    let count = bytes.div_ceil(FILTER_BLOCK_BYTES).max(1);
    let mut filter = vec![0; count * FILTER_BLOCK_BYTES];
    for &hash in hashes {
        let at = block_of(hash, count) * FILTER_BLOCK_BYTES;
        let words = filter[at..at + FILTER_BLOCK_BYTES].chunks_exact_mut(8);
        for (word, salt) in words.zip(SALTS) {
            let bit = (hash as u32).wrapping_mul(salt) >> 26;
            word[bit as usize / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// The key with `hash` may be in the partition. `filter` has a whole number of blocks, at least
/// one; anything else lets every key pass, which is always right.
#[inline]
pub(crate) fn may_contain(filter: &[u8], hash: u64) -> bool {
    let count = filter.len() / FILTER_BLOCK_BYTES;
    let at = block_of(hash, count) * FILTER_BLOCK_BYTES;
    let Some(block) = filter.get(at..at + FILTER_BLOCK_BYTES) else {
        return true;
    };
    let mut missing = 0;
    let (words, _) = block.as_chunks::<8>();
    for (word, salt) in words.iter().zip(SALTS) {
        let mask = 1 << ((hash as u32).wrapping_mul(salt) >> 26);
        missing |= !u64::from_le_bytes(*word) & mask;
    }
    missing == 0
}

#[inline]
fn block_of(hash: u64, count: usize) -> usize {
    (((hash >> 32) * count as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_keys_pass_and_about_one_percent_of_others_do() {
        let hash = |n: u64| key_hash(&n.to_be_bytes());
        let (keys, probes) = (3277u64, 400_000);
        let filter = build(&(0..keys).map(hash).collect::<Vec<_>>(), 10);
        assert_eq!(filter.len(), 4160);
        assert!((0..keys).all(|n| may_contain(&filter, hash(n))));
        let passed = (keys..keys + probes).filter(|&n| may_contain(&filter, hash(n))).count();
        let rate = passed as f64 / probes as f64;
        assert!(rate < 0.011, "false-positive rate {rate}");
        assert!(rate > 0.004, "suspiciously good: {rate}");
    }

    #[test]
    fn a_filter_of_no_block_lets_every_key_pass() {
        assert!(may_contain(&[], 7));
        assert!(may_contain(&[0; 63], u64::MAX));
        assert!(!may_contain(&build(&[], 10), 7));
    }
}
