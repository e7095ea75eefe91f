//! Keys in order in one buffer: what the levels above the leaves are searched by.
//!
//! One buffer and one array of ends, so that a binary search walks memory that lies together and
//! a key costs its bytes and twelve more.
//!
//! A search looks at heads: the eight bytes of each key behind what all of them begin with, as a
//! number. They are compared without branches and nearly always tell two keys apart; whole keys
//! are compared where they do not.
//!
//! Invariants:
//! 1. The first key is never looked at by a search: what is below the second belongs to the first.
//!    So the first leaf of a branch covers everything from the branch's low end on, and taking it
//!    away gives its range to the next.
//! 2. All keys but the first begin with the same `prefix_bytes` bytes.

use crate::key_hash::allocated_bytes;
use std::cmp::Ordering;

/// Ascending keys; the place of one is its number from 0.
#[derive(Debug, Default)]
pub(crate) struct Separators {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    heads: Vec<u64>,
    prefix_bytes: usize,
}

/// The first eight bytes as a number that is ordered as they are; a shorter key goes on with zeros,
/// so keys of one head are not ordered by it.
fn head(key: &[u8]) -> u64 {
    if let Some(word) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(word)
}

impl Separators {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.ends[at - 1] as usize }
    }

    pub fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.start(at)..self.ends[at] as usize]
    }

    /// The last place whose key is at or below `key`; 0 where none is.
    pub fn at_or_below(&self, key: &[u8]) -> usize {
        self.last_where(key, |separator| separator <= key)
    }

    /// The last place whose key is below `key`; 0 where none is.
    pub fn below(&self, key: &[u8]) -> usize {
        self.last_where(key, |separator| separator < key)
    }

    fn last_where(&self, key: &[u8], holds: impl Fn(&[u8]) -> bool) -> usize {
        if self.len() < 2 {
            return 0;
        }
        let prefix = &self.get(1)[..self.prefix_bytes];
        match key[..key.len().min(self.prefix_bytes)].cmp(prefix) {
            Ordering::Less => return 0,
            Ordering::Greater => return self.len() - 1,
            Ordering::Equal => {}
        }
        let wanted = head(&key[self.prefix_bytes..]);
        // `low` holds or is 0; `high` does not hold or is the end.
        let mut low = self.heads[1..].partition_point(|head| *head < wanted);
        let same = self.heads[low + 1..].partition_point(|head| *head == wanted);
        let mut high = low + 1 + same;
        while high - low > 1 {
            let middle = low.midpoint(high);
            if holds(self.get(middle)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Finds what keys begin with, and their heads behind it.
    fn take_heads(&mut self) {
        let keys = self.len();
        self.prefix_bytes = if keys < 2 {
            0
        } else {
            let (first, last) = (self.get(1), self.get(keys - 1));
            first.iter().zip(last).take_while(|(a, b)| a == b).count()
        };
        let mut heads = std::mem::take(&mut self.heads);
        heads.clear();
        heads
            .extend((0..keys).map(|at| head(self.get(at).get(self.prefix_bytes..).unwrap_or(&[]))));
        self.heads = heads;
    }

    pub fn insert(&mut self, at: usize, key: &[u8]) {
        let start = self.start(at);
        let end = u32::try_from(start + key.len()).expect("separators of a node are below 4 GiB");
        self.bytes.splice(start..start, key.iter().copied());
        self.ends.insert(at, end);
        self.ends[at + 1..].iter_mut().for_each(|end| *end += key.len() as u32);
        let fits = at > 0 && self.len() > 2 && {
            let other = if at == 1 { 2 } else { 1 };
            key.get(..self.prefix_bytes) == Some(&self.get(other)[..self.prefix_bytes])
        };
        if fits {
            self.heads.insert(at, head(&key[self.prefix_bytes..]));
        } else {
            self.take_heads();
        }
    }

    pub fn remove(&mut self, at: usize) {
        let (start, end) = (self.start(at), self.ends[at] as usize);
        self.bytes.drain(start..end);
        self.ends.remove(at);
        self.heads.remove(at);
        self.ends[at..].iter_mut().for_each(|moved| *moved -= (end - start) as u32);
        shrink(&mut self.bytes);
        shrink(&mut self.ends);
        shrink(&mut self.heads);
    }

    /// Takes the keys from `at` on away.
    pub fn split_off(&mut self, at: usize) -> Self {
        let start = self.start(at);
        let bytes = self.bytes.split_off(start);
        let ends = self.ends[at..].iter().map(|end| end - start as u32).collect();
        self.ends.truncate(at);
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.take_heads();
        self.heads.shrink_to_fit();
        let mut right = Self { bytes, ends, ..Self::default() };
        right.take_heads();
        right
    }

    pub fn memory_bytes(&self) -> usize {
        allocated_bytes(self.bytes.capacity())
            + allocated_bytes(self.ends.capacity() * size_of::<u32>())
            + allocated_bytes(self.heads.capacity() * size_of::<u64>())
    }
}

/// Gives most of the room back where a quarter is used.
pub(crate) fn shrink<T>(array: &mut Vec<T>) {
    if array.capacity() > 4 * array.len() {
        array.shrink_to(2 * array.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::Random;

    #[test]
    fn separators_are_found_after_insertions_removals_and_a_split() {
        let mut separators = Separators::default();
        for key in ["", "f", "c", "m", "ca", "z"] {
            let at =
                if separators.len() == 0 { 0 } else { separators.at_or_below(key.as_bytes()) + 1 };
            separators.insert(at, key.as_bytes());
        }
        let find = |separators: &Separators, key: &str| separators.at_or_below(key.as_bytes());
        assert_eq!(
            ["", "a", "c", "cb", "f", "zz"].map(|key| find(&separators, key)),
            [0, 0, 1, 2, 3, 5]
        );
        assert_eq!(separators.below(b"c"), 0);
        separators.remove(1);
        assert_eq!(["c", "ca", "l"].map(|key| find(&separators, key)), [0, 1, 2]);
        let right = separators.split_off(2);
        assert_eq!(
            (separators.len(), right.len(), right.get(0), right.get(2)),
            (2, 3, &b"f"[..], &b"z"[..])
        );
        assert_eq!(["a", "m", "zz"].map(|key| find(&right, key)), [0, 1, 2]);
    }

    /// Random keys of few letters, common beginnings and zeros, against a plain search.
    #[test]
    fn searches_by_heads_find_what_comparing_whole_keys_finds() {
        let mut random = Random::new(11);
        let mut word = |len_max: u64, letters: u64| -> Vec<u8> {
            (0..random.below(len_max + 1)).map(|_| random.below(letters) as u8).collect()
        };
        for round in 0..300 {
            let common = word(9, 256);
            let mut key = || {
                let own = word(12, 2);
                if round < 100 { own } else { [&common[..], &own].concat() }
            };
            let mut plain: Vec<Vec<u8>> = vec![Vec::new()];
            let mut separators = Separators::default();
            separators.insert(0, b"");
            for _ in 0..40 {
                let new = key();
                let at = plain.partition_point(|other| *other < new).max(1);
                if plain.get(at) != Some(&new) {
                    separators.insert(at, &new);
                    plain.insert(at, new);
                }
                if plain.len() > 30 {
                    separators.remove(plain.len() / 2);
                    plain.remove(plain.len() / 2);
                }
                for asked in [key(), plain[plain.len() / 3].clone(), common.clone(), Vec::new()] {
                    let at_or_below = plain[1..].partition_point(|other| *other <= asked);
                    assert_eq!(separators.at_or_below(&asked), at_or_below);
                    let below = plain[1..].partition_point(|other| *other < asked);
                    assert_eq!(separators.below(&asked), below);
                }
            }
        }
    }
}
