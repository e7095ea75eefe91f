//! The hash of a key: for fingerprints in leaves and for the cache of records.
//!
//! Keys are hashed in words of eight bytes by the mix of `foundation::random`. There is no seed, so
//! that every run finds the same; keys chosen to collide cost comparisons and give no wrong answer,
//! because every user of the hash compares the key.

use thermocline_foundation::random::mix;

/// A 64-bit hash of `key`.
#[inline]
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks::<8>();
    let mut hash = 0x9E37_79B9_7F4A_7C15 ^ key.len() as u64;
    for word in words {
        hash = mix(hash ^ u64::from_le_bytes(*word)).rotate_left(23);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash ^= u64::from_le_bytes(word);
    }
    mix(hash)
}

/// What an allocator takes for `bytes`: all common ones have four sizes to each power of two.
pub(crate) const fn allocated_bytes(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let at_least = if bytes < 64 { 64 } else { bytes };
    let step = at_least.next_power_of_two() / 8;
    let step = if step < 16 { 16 } else { step };
    // A multiple of a power of two.
    (bytes + step - 1) & !(step - 1)
}

/// The largest size that an allocator has and that is not above `bytes`; 0 below the smallest.
pub(crate) fn allocated_bytes_below(bytes: usize) -> usize {
    let step = (1 << bytes.max(64).ilog2() >> 2).max(16);
    bytes & !(step - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_in_length_or_one_bit_have_other_hashes() {
        let keys: [&[u8]; 6] =
            [b"", b"\0", b"\0\0", b"user0001user0001", b"user0001user0003", b"user0001user0001\0"];
        let mut hashes: Vec<u64> = keys.iter().map(|key| key_hash(key)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), keys.len());
    }

    #[test]
    fn sizes_above_and_below_enclose_and_are_sizes_themselves() {
        for bytes in (1..5000).chain([1 << 20, (1 << 20) + 1, (1 << 30) - 1]) {
            let (below, above) = (allocated_bytes_below(bytes), allocated_bytes(bytes));
            assert!(below <= bytes && bytes <= above, "{below} {bytes} {above}");
            assert_eq!((allocated_bytes(below), allocated_bytes_below(above)), (below, above));
            assert_eq!(below == bytes, above == bytes, "{bytes}");
            assert!(above - below <= (bytes / 4).max(16));
        }
    }

    #[test]
    fn fingerprints_of_counted_keys_are_spread_evenly() {
        let mut counts = [0u32; 256];
        for n in 0..25_600 {
            counts[(key_hash(format!("user{n:020}").as_bytes()) >> 56) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
    }
}
