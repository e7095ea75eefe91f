//! Ghosts: fingerprints of the records that left the small queue not long ago.
//!
//! ```text
//!   fingerprint -> set of 16 fingerprints, newest first
//! ```
//! S3-FIFO (Yang et al., SOSP 2023, section 4.1) has a queue of ghosts and a table to find them in.
//! Here the table is the queue: each set is one, and pushes its oldest out. How long a ghost stays
//! varies by a quarter or so with the luck of its set, for 4 bytes a ghost instead of 12.
//!
//! A fingerprint of another record lets that into the main queue too early, once in some hundred
//! thousand times; no answer depends on it.

use crate::key_hash::allocated_bytes;

const WAYS: usize = 16;

/// No ghost.
const NONE: u32 = 0;

/// Fingerprints, newest first; free places are behind them.
type Set = [u32; WAYS];

#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    sets: Vec<Set>,
}

impl Ghosts {
    /// The set of a fingerprint. By the upper bits, so that sets keep their order when their number
    /// changes.
    fn set(&mut self, fingerprint: u32) -> Option<&mut Set> {
        let at = (u64::from(fingerprint) * self.sets.len() as u64) >> 32;
        self.sets.get_mut(at as usize)
    }

    /// Remembers a record, in place of the oldest ghost of its set. There are about as many places
    /// as the cache has `records`.
    pub fn add(&mut self, hash: u32, records: usize) {
        self.resize(records.div_ceil(WAYS).max(1));
        self.place(hash.max(1));
    }

    fn place(&mut self, fingerprint: u32) {
        if let Some(set) = self.set(fingerprint) {
            set.copy_within(..WAYS - 1, 1);
            set[0] = fingerprint;
        }
    }

    /// Whether the record was remembered; it is not any more.
    pub fn take(&mut self, hash: u32) -> bool {
        let fingerprint = hash.max(1);
        let Some(set) = self.set(fingerprint) else { return false };
        let Some(at) = set.iter().position(|ghost| *ghost == fingerprint) else { return false };
        set.copy_within(at + 1.., at);
        set[WAYS - 1] = NONE;
        true
    }

    /// Makes room for `wanted` sets, or gives room back; by steps, since every fingerprint moves.
    fn resize(&mut self, wanted: usize) {
        let sets = self.sets.len();
        if (wanted..=wanted * 3 / 2 + 1).contains(&sets) {
            return;
        }
        let new = vec![[NONE; WAYS]; wanted + wanted / 8];
        let old = std::mem::replace(&mut self.sets, new);
        for set in old {
            set.into_iter()
                .rev()
                .filter(|ghost| *ghost != NONE)
                .for_each(|ghost| self.place(ghost));
        }
    }

    /// Memory that it has, in use or not.
    pub fn memory_bytes(&self) -> usize {
        allocated_bytes(self.sets.capacity() * size_of::<Set>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::mix;

    #[test]
    fn about_as_many_as_there_are_records_are_remembered_and_each_is_taken_once() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.take(7));
        (0..20_000).for_each(|n| ghosts.add(mix(n) as u32, 8000));
        let taken = |ghosts: &mut Ghosts, range: std::ops::Range<u64>| {
            range.filter(|n| ghosts.take(mix(*n) as u32)).count()
        };
        assert!(taken(&mut ghosts, 16_000..20_000) > 3900);
        assert!(taken(&mut ghosts, 12_000..16_000) > 2000);
        assert!(taken(&mut ghosts, 0..6000) < 100);
        taken(&mut ghosts, 6000..12_000);
        assert_eq!(taken(&mut ghosts, 0..30_000), 0);
    }

    #[test]
    fn the_newest_survive_a_change_of_size() {
        let mut ghosts = Ghosts::default();
        (0..1000).for_each(|n| ghosts.add(mix(n) as u32, 1000));
        let small = ghosts.memory_bytes();
        ghosts.add(0, 20_000);
        assert!(ghosts.memory_bytes() > 15 * small);
        assert!((900..1000).all(|n| ghosts.take(mix(n) as u32)));
        (2000..3000).for_each(|n| ghosts.add(mix(n) as u32, 1000));
        assert!(ghosts.memory_bytes() < 2 * small);
        assert!((2950..3000).all(|n| ghosts.take(mix(n) as u32)));
    }
}
