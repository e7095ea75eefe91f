//! Which blocks are in the cache, and where: eight bytes a block (MyNVM, section 5, keeps
//! signatures in memory and validates after the read).
//!
//! ```text
//!   entry   signature 24 | position 38 | hits 2      0 is none; positions are units of 16 bytes
//!   line    8 entries, one cache line; a block's entry is in one of two lines
//! ```
//! Positions are those of an endless tape on which the files of the cache lie one behind the other
//! (`tape.rs`); an entry has its low bits. About one look-up in a million of a block that is not
//! there finds another's entry: the read block does not match its checksum then, and the table is
//! read.
//!
//! Invariants:
//! 1. An entry is one word: a reader sees one block's, or none.
//! 2. A full line gives up the entry that was hit least. What is given up is read from its table.
//!
//! Threads: any may find and take; one at a time inserts.

use thermocline_foundation::FileNumber;
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

const LINE: usize = 8;
const HITS_BITS: u32 = 2;
const HITS_MASK: u64 = (1 << HITS_BITS) - 1;
const POSITION_BITS: u32 = 38;
/// Bits of a signature.
const SIGNATURE_BITS: u32 = 24;

/// Positions that entries tell apart.
pub const POSITIONS: u64 = 1 << POSITION_BITS;

/// Expected share of entries in use, in percent: with two lines to choose from few are given up.
const LOAD_PERCENT: u64 = 80;

const LINES_MIN: u64 = 16;

/// Lines that are counted at most: a mebibyte of them.
const COUNTED_LINES_MAX: usize = 1 << 14;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE]);

/// See the module.
#[derive(Debug)]
pub struct Lookup {
    lines: Vec<Line>,
    /// Bits of a signature that tell blocks apart.
    signature_mask: u64,
}

/// What a block is known by: its file and its place there.
pub fn hash_of(file: FileNumber, offset: u64) -> u64 {
    mix(mix(file.0) ^ offset)
}

fn position_of(word: u64) -> u64 {
    word >> HITS_BITS & (POSITIONS - 1)
}

impl Lookup {
    /// For so many blocks.
    pub fn new(blocks: u64) -> Self {
        let entries = blocks.saturating_mul(100) / LOAD_PERCENT;
        let lines = (entries / LINE as u64).max(LINES_MIN);
        let lines = (0..lines).map(|_| Line::default()).collect();
        Self { lines, signature_mask: (1 << SIGNATURE_BITS) - 1 }
    }

    /// The same with so many bits of a signature, with few of which one block is often taken for
    /// another: tests meet what is seldom else.
    #[must_use]
    pub fn with_signature_bits(self, bits: u32) -> Self {
        Self { signature_mask: self.signature_mask >> SIGNATURE_BITS.saturating_sub(bits), ..self }
    }

    fn signature(&self, hash: u64) -> u64 {
        hash >> (64 - SIGNATURE_BITS) & self.signature_mask
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.lines.len() * size_of::<Line>()) as u64
    }

    /// The two lines where the entry of `hash` may be.
    fn lines(&self, hash: u64) -> [&Line; 2] {
        let line = |hash: u64| {
            let at = (u128::from(hash) * self.lines.len() as u128) >> 64;
            &self.lines[at as usize]
        };
        // The signature is the top of the hash, which must not choose the line.
        [line(mix(hash)), line(mix(hash ^ u64::MAX))]
    }

    fn entries(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        self.lines(hash).into_iter().flat_map(|line| &line.0)
    }

    /// Low bits of the position of the block of `hash`, whose hits are counted.
    pub fn find(&self, hash: u64) -> Option<u64> {
        let (entry, found) = self.entry(hash, None)?;
        if found & HITS_MASK < HITS_MASK {
            // Another thread may have counted, or taken it: one hit more or less says little.
            let _ = entry.compare_exchange(found, found + 1, Relaxed, Relaxed);
        }
        Some(position_of(found))
    }

    /// As [`Lookup::find`]; no hit is counted.
    pub fn position(&self, hash: u64) -> Option<u64> {
        self.entry(hash, None).map(|(_, word)| position_of(word))
    }

    /// The entry of `hash`, at `position` where that is given, and what it is.
    fn entry(&self, hash: u64, position: Option<u64>) -> Option<(&AtomicU64, u64)> {
        let wanted = self.signature(hash);
        self.entries(hash).map(|entry| (entry, entry.load(Relaxed))).find(|(_, word)| {
            let is_there = || position.is_none_or(|at| position_of(*word) == at % POSITIONS);
            *word != 0 && word >> (POSITION_BITS + HITS_BITS) == wanted && is_there()
        })
    }

    /// Puts the block of `hash` at `position`, which is not 0, where nothing is, or else over what
    /// is at no position that `is_live` any more, or was hit least.
    pub fn insert(&self, hash: u64, position: u64, is_live: impl Fn(u64) -> bool) {
        let new = self.signature(hash) << (POSITION_BITS + HITS_BITS)
            | (position % POSITIONS) << HITS_BITS;
        debug_assert!(new != 0 && position != 0, "0 is no entry");
        let there = self.entry(hash, None).map(|(entry, _)| entry);
        // Most have a free place: nothing is asked of files then.
        let is_free = |entry: &AtomicU64| entry.load(Relaxed) == 0;
        let place = there.or_else(|| self.roomiest(hash, is_free).find(|entry| is_free(entry)));
        let place = place.or_else(|| {
            let worth = |entry: &AtomicU64| match entry.load(Relaxed) {
                word if !is_live(position_of(word)) => 0,
                word => 1 + (word & HITS_MASK),
            };
            self.roomiest(hash, |entry| worth(entry) == 0).min_by_key(|entry| worth(entry))
        });
        if let Some(entry) = place {
            entry.store(new, Relaxed);
        }
    }

    /// The entries of that line of the two of `hash` which has more that are free, so that both
    /// fill evenly.
    fn roomiest(
        &self,
        hash: u64,
        is_free: impl Fn(&AtomicU64) -> bool,
    ) -> impl Iterator<Item = &AtomicU64> {
        let [first, second] = self.lines(hash);
        let free = |line: &Line| line.0.iter().filter(|entry| is_free(entry)).count();
        let line = if free(second) > free(first) { second } else { first };
        line.0.iter()
    }

    /// Takes the entry of `hash` at `position` away and gives its hits; none where there is none.
    pub fn take(&self, hash: u64, position: u64) -> Option<u8> {
        let (entry, mut found) = self.entry(hash, Some(position))?;
        loop {
            match entry.compare_exchange(found, 0, Relaxed, Relaxed) {
                Ok(_) => return Some((found & HITS_MASK) as u8),
                Err(now) if position_of(now) == position % POSITIONS => found = now,
                Err(_) => return None,
            }
        }
    }

    /// Blocks with an entry, counted one by one. Where there are many lines, those of every so many
    /// are counted: statistics ask each second, and hashes spread blocks evenly.
    pub fn count(&self, is_live: impl Fn(u64) -> bool) -> u64 {
        let every = self.lines.len().div_ceil(COUNTED_LINES_MAX);
        let lines = self.lines.iter().step_by(every);
        let counted_lines = lines.len() as u64;
        let entries = lines.flat_map(|line| &line.0).map(|entry| entry.load(Relaxed));
        let live = entries.filter(|word| *word != 0 && is_live(position_of(*word))).count() as u64;
        live * self.lines.len() as u64 / counted_lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use thermocline_foundation::random::Random;

    fn hash(number: u64) -> u64 {
        hash_of(FileNumber(number % 7), number)
    }

    #[test]
    fn blocks_are_found_where_they_were_put_and_their_hits_counted_up_to_three() {
        let lookup = Lookup::new(1000);
        assert_eq!(lookup.find(hash(1)), None);
        lookup.insert(hash(1), POSITIONS + 77, |_| true);
        (0..5).for_each(|_| assert_eq!(lookup.find(hash(1)), Some(77)));
        assert_eq!(lookup.take(hash(1), 78), None, "another position");
        assert_eq!(lookup.take(hash(1), POSITIONS + 77), Some(3));
        assert_eq!(lookup.find(hash(1)), None);
        assert!(lookup.position(hash(1)).is_none());
    }

    #[test]
    fn nearly_all_blocks_have_room_and_strangers_are_seldom_found() {
        let blocks = 20_000;
        let lookup = Lookup::new(blocks);
        (1..=blocks).for_each(|number| lookup.insert(hash(number), number, |_| true));
        let found = (1..=blocks).filter(|number| lookup.find(hash(*number)) == Some(*number));
        let found = found.count() as u64;
        assert!(found >= blocks / 1000 * 995, "{found} of {blocks}");
        assert!(lookup.count(|_| true) >= found);
        let strangers =
            (0..1_000_000).filter(|at| lookup.position(hash(blocks + 1 + at)).is_some()).count();
        assert!(strangers <= 8, "{strangers} of a million");
        assert!(lookup.memory_bytes() <= 10 * blocks + 64);
    }

    #[test]
    fn of_many_blocks_a_part_is_counted_and_stands_for_all() {
        let blocks = 1_000_000;
        let lookup = Lookup::new(blocks);
        (1..=blocks).for_each(|number| lookup.insert(hash(number), number, |_| true));
        let asked = Cell::new(0u64);
        let counted = lookup.count(|position| {
            asked.set(asked.get() + 1);
            position % 4 > 0
        });
        assert!(asked.get() <= (COUNTED_LINES_MAX * LINE) as u64, "{}", asked.get());
        let right = blocks / 4 * 3;
        assert!(counted.abs_diff(right) < right / 50, "{counted} of {right}");
    }

    #[test]
    fn with_few_bits_of_a_signature_strangers_are_often_found() {
        let blocks = 1000;
        let lookup = Lookup::new(blocks).with_signature_bits(4);
        (1..=blocks / 4).for_each(|number| lookup.insert(hash(number), number, |_| true));
        let strangers =
            (0..1000).filter(|at| lookup.position(hash(blocks + 1 + at)).is_some()).count();
        assert!((50..500).contains(&strangers), "{strangers} of a thousand");
    }

    #[test]
    fn a_full_line_gives_up_what_is_dead_and_then_what_was_hit_least() {
        let lookup = Lookup { lines: vec![Line::default()], ..Lookup::new(1) };
        (1..=8).for_each(|number| lookup.insert(hash(number), number, |_| true));
        lookup.insert(hash(9), 9, |position| position != 4);
        assert!(lookup.position(hash(4)).is_none() && lookup.position(hash(9)).is_some());
        for number in [1, 2, 3, 5, 6, 7, 9] {
            lookup.find(hash(number));
        }
        lookup.insert(hash(10), 10, |_| true);
        assert!(lookup.position(hash(8)).is_none(), "the only one that was never hit");
        // What has a place, or finds a free one, asks for nothing.
        let asked = Cell::new(0);
        let note = |_| {
            asked.set(asked.get() + 1);
            true
        };
        lookup.insert(hash(10), 11, note);
        assert_eq!(lookup.take(hash(10), 11), Some(0));
        lookup.insert(hash(12), 12, note);
        assert!(asked.get() == 0 && lookup.position(hash(12)) == Some(12));
        lookup.insert(hash(13), 13, note);
        assert!(asked.get() > 0);
    }

    #[test]
    fn the_two_lines_of_a_block_fill_evenly_whether_or_not_their_entries_are_live() {
        let lookup = Lookup { lines: vec![Line::default(), Line::default()], ..Lookup::new(1) };
        let both = |number: &u64| {
            let [first, second] = lookup.lines(hash(*number));
            !std::ptr::eq(first, second)
        };
        let numbers: Vec<_> = (1..1000).filter(both).take(16).collect();
        numbers.iter().for_each(|number| lookup.insert(hash(*number), *number, |_| false));
        let there = numbers.iter().filter(|number| lookup.position(hash(**number)).is_some());
        assert_eq!(there.count(), 16, "of 16 places none was given up before the last was taken");
    }

    #[test]
    fn a_block_that_is_put_elsewhere_is_found_there_alone() {
        let (lookup, mut random) = (Lookup::new(100), Random::new(4));
        for _ in 0..1000 {
            let (number, position) = (random.below(50), 1 + random.below(1 << 30));
            lookup.insert(hash(number), position, |_| true);
            assert_eq!(lookup.find(hash(number)), Some(position));
            assert_eq!(lookup.take(hash(number), position).map(|hits| hits > 0), Some(true));
            assert!(lookup.position(hash(number)).is_none());
        }
    }
}
