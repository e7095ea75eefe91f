//! The door for randomness: a small seeded generator, and the entropy to seed it with.

#[cfg(not(shuttle))]
use std::hash::{BuildHasher, Hasher, RandomState};

/// Entropy from the operating system, for identities and first seeds. Everything else draws from a
/// seeded [`Random`].
pub fn entropy() -> u64 {
    #[cfg(shuttle)]
    {
        // A schedule that is repeated must find the same numbers.
        return shuttle::rand::RngCore::next_u64(&mut shuttle::rand::thread_rng());
    }
    #[cfg(not(shuttle))]
    // The standard library seeds `RandomState` from the system and makes each one different.
    RandomState::new().build_hasher().finish()
}

/// SplitMix64 (Steele, Lea and Flood, 2014): one addition and three multiply-shifts a number, any
/// seed is good. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// A number in `0..bound`; `bound` must not be zero. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no number");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }
}

/// The finishing mix of SplitMix64: a bijection of 64-bit words whose output bits all depend on all
/// input bits.
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The word of which [`mix`] made this one.
pub fn unmix(word: u64) -> u64 {
    let word = word ^ (word >> 31) ^ (word >> 62);
    let word = word.wrapping_mul(0x3196_42B2_D24D_8EC3);
    let word = word ^ (word >> 27) ^ (word >> 54);
    let word = word.wrapping_mul(0x96DE_1B17_3F11_9089);
    word ^ (word >> 30) ^ (word >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_mixed_can_be_unmixed() {
        let mut random = Random::new(3);
        for word in [0, 1, u64::MAX].into_iter().chain((0..1000).map(|_| random.next_u64())) {
            assert_eq!(unmix(mix(word)), word);
            assert_eq!(mix(unmix(word)), word);
        }
    }

    #[test]
    fn same_seed_gives_same_numbers() {
        let (mut a, mut b) = (Random::new(42), Random::new(42));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut random = Random::new(1);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
    }
}
