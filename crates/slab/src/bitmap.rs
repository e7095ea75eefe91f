//! A set of slots of one slab: a bit each, and the bytes in which the manifest keeps it.
//!
//! ```text
//!   00 runs varint, then for each run: gap varint (dead before it), length varint - 1
//!   01 bits: ceil(slots / 8) bytes, slot 0 the lowest bit of the first
//! ```
//! Runs are short where a slab is full or nearly empty, bits where slots die here and there. The
//! shorter is written, runs where they are equal.
//!
//! 1. No bit beyond the last slot is ever set.
//! 2. What is decoded holds no memory that its bytes merely claim: a slab has at most
//!    [`SLOTS_MAX`] slots.
//!
//! A plain value; any thread.

use crate::live::LiveError;
use std::ops::Range;
use thermocline_foundation::coding::{Decoder, put_varint, varint_len};

/// Most slots that a slab can have: the largest slab with the smallest slots.
pub const SLOTS_MAX: u32 = 1 << 20;

const RUNS: u8 = 0;
const BITS: u8 = 1;

/// A set of slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotBitmap {
    words: Vec<u64>,
    slots: u32,
    count: u32,
}

impl SlotBitmap {
    /// No slot of `slots`.
    pub fn new(slots: u32) -> Self {
        assert!(slots <= SLOTS_MAX, "a slab has fewer slots");
        Self { words: vec![0; slots.div_ceil(64) as usize], slots, count: 0 }
    }

    /// Every slot of `slots`.
    pub fn full(slots: u32) -> Self {
        let mut bitmap = Self::new(slots);
        bitmap.insert_range(0..slots);
        bitmap
    }

    /// How many slots the slab has.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// How many of them are in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The slot is in the set; one beyond the last never is.
    pub fn contains(&self, slot: u32) -> bool {
        slot < self.slots && self.words[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// Adds a slot of the slab; whether it was not there.
    pub fn insert(&mut self, slot: u32) -> bool {
        assert!(slot < self.slots, "a slot of the slab");
        let word = &mut self.words[slot as usize / 64];
        let is_new = *word >> (slot % 64) & 1 == 0;
        *word |= 1 << (slot % 64);
        self.count += u32::from(is_new);
        is_new
    }

    /// Takes a slot away; whether it was there.
    pub fn remove(&mut self, slot: u32) -> bool {
        let was = self.contains(slot);
        if was {
            self.words[slot as usize / 64] &= !(1 << (slot % 64));
            self.count -= 1;
        }
        was
    }

    fn insert_range(&mut self, range: Range<u32>) {
        for slot in range {
            self.insert(slot);
        }
    }

    /// The first slot of the set at or after `from`.
    pub fn first_from(&self, from: u32) -> Option<u32> {
        if from >= self.slots {
            return None;
        }
        let mut at = from as usize / 64;
        let mut word = self.words[at] & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at as u32 * 64 + word.trailing_zeros())
    }

    /// The slots of the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.first_from(0), |slot| self.first_from(slot + 1))
    }

    /// Appends the set.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let runs = runs(self.iter());
        let mut encoded = Vec::new();
        put_runs(&mut encoded, &runs);
        if encoded.len() <= self.bit_bytes() {
            out.push(RUNS);
            out.extend_from_slice(&encoded);
        } else {
            out.push(BITS);
            let bytes = self.words.iter().flat_map(|word| word.to_le_bytes());
            out.extend(bytes.take(self.bit_bytes()));
        }
    }

    fn bit_bytes(&self) -> usize {
        self.slots.div_ceil(8) as usize
    }

    /// The set of `slots` slots that [`SlotBitmap::encode`] wrote.
    pub fn decode(decoder: &mut Decoder<'_>, slots: u32) -> Result<Self, LiveError> {
        if slots > SLOTS_MAX {
            return Err(LiveError("a slab has more slots than any can"));
        }
        match decoder.u8()? {
            RUNS => {
                let mut bitmap = Self::new(slots);
                take_runs(decoder, slots, |run| bitmap.insert_range(run))?;
                Ok(bitmap)
            }
            BITS => Self::decode_bits(decoder, slots),
            _ => Err(LiveError("a set of slots is of no known form")),
        }
    }

    fn decode_bits(decoder: &mut Decoder<'_>, slots: u32) -> Result<Self, LiveError> {
        let bytes = decoder.take(slots.div_ceil(8) as usize)?;
        let mut bitmap = Self::new(slots);
        for (word, bytes) in bitmap.words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let beyond = slots % 64;
        if beyond != 0 && bitmap.words.last().is_some_and(|word| word >> beyond != 0) {
            return Err(LiveError("a slot beyond the last of its slab is live"));
        }
        bitmap.count = bitmap.words.iter().map(|word| word.count_ones()).sum();
        Ok(bitmap)
    }
}

/// The runs of ascending slots.
pub(crate) fn runs(slots: impl Iterator<Item = u32>) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for slot in slots {
        match runs.last_mut() {
            Some(run) if run.end == slot => run.end += 1,
            _ => runs.push(slot..slot + 1),
        }
    }
    runs
}

/// Appends how many runs there are, then gap and length less one of each.
pub(crate) fn put_runs(out: &mut Vec<u8>, runs: &[Range<u32>]) {
    out.reserve(varint_len(runs.len() as u64) + 2 * runs.len());
    put_varint(out, runs.len() as u64);
    let mut end = 0;
    for run in runs {
        put_varint(out, u64::from(run.start - end));
        put_varint(out, u64::from(run.end - run.start - 1));
        end = run.end;
    }
}

/// Gives the runs that [`put_runs`] wrote to `take`: ascending, apart, and below `slots`.
pub(crate) fn take_runs(
    decoder: &mut Decoder<'_>,
    slots: u32,
    mut take: impl FnMut(Range<u32>),
) -> Result<(), LiveError> {
    let count = decoder.varint()?;
    let mut end = 0;
    for index in 0..count {
        let gap = decoder.varint()?;
        let len = decoder.varint()?;
        if index > 0 && gap == 0 {
            return Err(LiveError("two runs of slots touch"));
        }
        let too_far = LiveError("a run of slots goes beyond the last");
        let start = gap.checked_add(end).ok_or(too_far)?;
        let next = start.checked_add(len).and_then(|last| last.checked_add(1)).ok_or(too_far)?;
        if next > u64::from(slots) {
            return Err(too_far);
        }
        take(start as u32..next as u32);
        end = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::random::Random;

    #[test]
    fn sets_of_every_density_come_back_from_their_shorter_form() {
        let mut random = Random::new(7);
        for slots in [1, 63, 64, 65, 1000] {
            for percent in [0, 1, 50, 99, 100] {
                let mut bitmap = SlotBitmap::new(slots);
                for slot in (0..slots).filter(|_| random.below(100) < percent) {
                    assert!(bitmap.insert(slot) && !bitmap.insert(slot));
                }
                let mut bytes = Vec::new();
                bitmap.encode(&mut bytes);
                assert!(bytes.len() <= 1 + slots.div_ceil(8) as usize);
                let mut decoder = Decoder::new(&bytes);
                assert_eq!(SlotBitmap::decode(&mut decoder, slots), Ok(bitmap.clone()));
                assert!(decoder.is_empty());
                assert_eq!(bitmap.iter().count(), bitmap.count() as usize);
                assert!(bitmap.iter().all(|slot| bitmap.contains(slot)));
            }
        }
    }

    #[test]
    fn slots_beyond_the_last_are_refused() {
        for bytes in [&[1, 0xff][..], &[0, 1, 0, 7], &[0, 2, 0, 0, 0, 0], &[2], &[0, 1, 3]] {
            assert!(SlotBitmap::decode(&mut Decoder::new(bytes), 7).is_err(), "{bytes:?}");
        }
        assert!(!SlotBitmap::full(7).contains(7));
    }
}
