//! When a file of a slower tier is copied to the next faster one, and which (Keigo, section 4.3).
//!
//! ```text
//!   hit ratio of a tier = reads that it served / (these + reads that the next slower one served)
//! ```
//! 1. A tier whose hit ratio in a window of time is too low gets a copy of the file of the next
//!    tier that was read most.
//! 2. A copy takes free room, or that of copies that were read less; never that of files.
//! 3. A tier of which the next one served nothing gets nothing.
//!
//! Pure: no clock, no I/O, no counters.

use crate::tier::TierIndex;
use std::cmp::Reverse;

/// The hit ratio below which files are copied, in percent.
pub const HIT_PERCENT: u8 = 90;

/// A file that may be copied, or a copy that may go for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFile<N> {
    /// What its owner calls it.
    pub name: N,
    /// Where it, or the copy, lies.
    pub tier: TierIndex,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Reads so far, older ones counting less.
    pub reads: u64,
}

/// What a tier can give to copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheRoom {
    /// Reads that it served in the window, from files and copies.
    pub reads: u64,
    /// Bytes that further copies may take; none where it keeps no copies.
    pub free_bytes: Option<u64>,
}

/// A copy to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextCopy<N> {
    /// Of which file.
    pub name: N,
    /// Where.
    pub to: TierIndex,
    /// The copies there that go for it.
    pub instead_of: Vec<N>,
}

/// The copy that is to be made next, that of the fastest tier first. `files` have no copy yet;
/// `hit_percent` is the ratio that is enough.
pub fn next_copy<N: Clone + Ord>(
    tiers: &[CacheRoom],
    files: &[ReadFile<N>],
    copies: &[ReadFile<N>],
    hit_percent: u8,
) -> Option<NextCopy<N>> {
    tiers.windows(2).enumerate().find_map(|(at, pair)| {
        let [fast, slow] = pair else { return None };
        let (hits, all) = (u128::from(fast.reads), u128::from(fast.reads) + u128::from(slow.reads));
        if slow.reads == 0 || hits * 100 >= all * u128::from(hit_percent) {
            return None;
        }
        let below = files.iter().filter(|file| file.tier.position() == at + 1 && file.reads > 0);
        let hottest = below.max_by_key(|file| (file.reads, Reverse(file.name.clone())))?;
        let instead_of = room_for(hottest, at, fast.free_bytes?, copies)?;
        Some(NextCopy { name: hottest.name.clone(), to: TierIndex(at as u8), instead_of })
    })
}

/// The colder copies that make room for a file on a tier; none where that is not enough.
fn room_for<N: Clone + Ord>(
    file: &ReadFile<N>,
    at: usize,
    mut free_bytes: u64,
    copies: &[ReadFile<N>],
) -> Option<Vec<N>> {
    let here = copies.iter().filter(|copy| copy.tier.position() == at && copy.reads < file.reads);
    let mut colder: Vec<_> = here.collect();
    colder.sort_by_key(|copy| (copy.reads, copy.name.clone()));
    let mut going = Vec::new();
    let mut colder = colder.into_iter();
    while free_bytes < file.bytes {
        let copy = colder.next()?;
        free_bytes = free_bytes.saturating_add(copy.bytes);
        going.push(copy.name.clone());
    }
    Some(going)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of 10 bytes.
    fn file(name: u32, tier: u8, reads: u64) -> ReadFile<u32> {
        ReadFile { name, tier: TierIndex(tier), bytes: 10, reads }
    }

    fn room(reads: u64, free_bytes: u64) -> CacheRoom {
        CacheRoom { reads, free_bytes: Some(free_bytes) }
    }

    fn copy(name: u32, to: u8, instead_of: &[u32]) -> Option<NextCopy<u32>> {
        Some(NextCopy { name, to: TierIndex(to), instead_of: instead_of.to_vec() })
    }

    #[test]
    fn a_hit_ratio_that_is_too_low_asks_for_the_file_that_was_read_most() {
        let files = [file(1, 0, 99), file(2, 1, 5), file(3, 1, 7), file(4, 1, 7)];
        for (fast, slow, expected) in [
            (0, 1, copy(3, 0, &[])),
            (89, 11, copy(3, 0, &[])),
            (90, 10, None),
            (9, 0, None),
            (0, 0, None),
        ] {
            let tiers = [room(fast, 10), room(slow, 10)];
            assert_eq!(next_copy(&tiers, &files, &[], 90), expected, "{fast} : {slow}");
        }
    }

    #[test]
    fn copies_go_for_hotter_files_and_not_for_colder_ones() {
        let (files, tiers) = ([file(9, 1, 7)], |free| [room(0, free), room(5, 0)]);
        let copies = [file(1, 0, 6), file(2, 0, 3), file(3, 1, 0), file(4, 0, 7)];
        for (free, expected) in
            [(10, copy(9, 0, &[])), (9, copy(9, 0, &[2])), (0, copy(9, 0, &[2]))]
        {
            assert_eq!(next_copy(&tiers(free), &files, &copies, 90), expected, "{free}");
        }
        let large = [ReadFile { bytes: 20, ..file(9, 1, 7) }];
        assert_eq!(next_copy(&tiers(0), &large, &copies, 90), copy(9, 0, &[2, 1]));
        let larger = [ReadFile { bytes: 21, ..file(9, 1, 7) }];
        assert_eq!(next_copy(&tiers(0), &larger, &copies, 90), None, "one is as hot");
    }

    #[test]
    fn each_tier_but_the_last_keeps_copies_of_the_next() {
        let files = [file(1, 1, 4), file(2, 2, 9), file(3, 1, 0)];
        let tiers = [room(9, 10), room(1, 10), room(5, 10)];
        assert_eq!(next_copy(&tiers, &files, &[], 90), copy(2, 1, &[]), "tier 0 has 90 %");
        let no_copies = [tiers[0], CacheRoom { free_bytes: None, ..tiers[1] }, tiers[2]];
        assert_eq!(next_copy(&no_copies, &files, &[], 90), None);
        assert_eq!(next_copy(&tiers, &files[2..], &[], 90), None, "nothing there was read");
    }
}
