//! Which slots are live: the part of the manifest's state that is about slabs.
//!
//! The bytes of a slot never say whether it is live. The manifest does: a bitmap for each slab,
//! changed by edits ([`SlabChange`]), and a sum over what the live slots hold.
//!
//! ```text
//!   state   count varint, then for each slab, by file number:
//!           file varint (less the one before) | slot bytes varint | slots varint | sum 8 | bitmap
//! ```
//! **The sum** of a slab is the wrapping sum of a mix of slot and sequence over its live slots. A
//! checksum finds a record that is damaged or in the wrong place; it does not find a write that
//! never arrived, where an older intact record of the same slot is still there. Its sequence is
//! another, so the sum differs. Adding and taking away need no order and no look at the disk.
//!
//! 1. A slab is in the state from the edit that brings its first slots to the one that removes it.
//! 2. A change is applied whole or not at all: slots are born that were dead and die that were
//!    live, or the manifest is damaged.
//! 3. The sum of a slab without live slots is 0.
//!
//! A plain value; the caller's lock orders changes.

use crate::bitmap::{SLOTS_MAX, SlotBitmap, runs};
use crate::change::SlabChange;
use crate::format::HEADER_BYTES;
use crate::size_class::{SLAB_BYTES_MAX, is_rung};
use std::collections::BTreeMap;
use std::fmt;
use thermocline_foundation::coding::{DecodeError, Decoder, put_varint};
use thermocline_foundation::random::{mix, unmix};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};

/// Why a state or change of live slots is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveError(pub(crate) &'static str);

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for LiveError {}

impl From<DecodeError> for LiveError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Truncated => Self("the live slots end in the middle of an item"),
            DecodeError::Overflow => Self("a number among the live slots is out of range"),
        }
    }
}

/// A slab of one slot has more than the largest slot of the smallest slabs, and at most what the
/// largest record takes.
const SINGLE_BYTES_MIN: u32 = 8 << 10;
const SINGLE_BYTES_MAX: u32 = 512 << 20;

/// How a slab is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabShape {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// How many slots there are.
    pub slots: u32,
}

impl SlabShape {
    /// As many slots of `slot_bytes` as a file of `slab_bytes` has room for.
    pub fn filling(slab_bytes: u64, slot_bytes: u32) -> Self {
        let slots = slab_bytes.saturating_sub(HEADER_BYTES) / u64::from(slot_bytes.max(1));
        Self { slot_bytes, slots: slots.min(u64::from(SLOTS_MAX)) as u32 }
    }

    /// Bytes from the start of the file to the slot.
    pub fn offset(self, slot: u32) -> u64 {
        HEADER_BYTES + u64::from(slot) * u64::from(self.slot_bytes)
    }

    /// Length of the file: header page and slots, rounded up to whole pages.
    pub fn file_bytes(self) -> u64 {
        self.offset(self.slots).next_multiple_of(HEADER_BYTES)
    }

    /// A slab of one slot, for a record of `record_bytes` that is larger than any class: whole
    /// pages. None where the record is too small for that, or larger than any can be.
    pub fn single(record_bytes: u64) -> Option<Self> {
        let slot_bytes = u32::try_from(record_bytes.next_multiple_of(HEADER_BYTES)).ok()?;
        let shape = Self { slot_bytes, slots: 1 };
        (shape.is_single() && shape.check().is_ok()).then_some(shape)
    }

    /// It has one slot, as large as its record asked for.
    pub fn is_single(self) -> bool {
        let is_whole = u64::from(self.slot_bytes).is_multiple_of(HEADER_BYTES);
        self.slots == 1 && is_whole && self.slot_bytes > SINGLE_BYTES_MIN
    }

    /// The shape is one that a slab can have.
    pub(crate) fn check(self) -> Result<(), LiveError> {
        let Self { slot_bytes, slots } = self;
        if self.is_single() && slot_bytes <= SINGLE_BYTES_MAX {
            return Ok(());
        }
        if slots == 0 || slots > SLOTS_MAX || self.file_bytes() > SLAB_BYTES_MAX {
            return Err(LiveError("a slab has more slots than any can, or none"));
        }
        if !is_rung(slot_bytes) {
            return Err(LiveError("a slab has slots of a size that no class has"));
        }
        Ok(())
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.slot_bytes));
        put_varint(out, u64::from(self.slots));
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, LiveError> {
        let shape = Self { slot_bytes: decoder.varint_u32()?, slots: decoder.varint_u32()? };
        shape.check().map(|()| shape)
    }
}

/// The sum of a slab's live slots; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSum(pub u64);

impl SlotSum {
    /// With a slot that holds the record of `sequence`.
    #[must_use]
    pub fn plus(self, slot: u32, sequence: Sequence) -> Self {
        Self(self.0.wrapping_add(part(slot, sequence)))
    }

    /// Without it.
    #[must_use]
    pub fn minus(self, slot: u32, sequence: Sequence) -> Self {
        Self(self.0.wrapping_sub(part(slot, sequence)))
    }

    /// The sequence that `slot` must have for the sum to be `whole` with it. Where there is no such
    /// record it is far beyond all that are in use.
    pub(crate) fn lacks(self, slot: u32, whole: Self) -> Sequence {
        Sequence(unmix(whole.0.wrapping_sub(self.0)) ^ mix(u64::from(slot) + 1))
    }
}

/// What a live slot adds to its slab's sum.
fn part(slot: u32, sequence: Sequence) -> u64 {
    mix(sequence.0 ^ mix(u64::from(slot) + 1))
}

/// A slab as the manifest knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabLive {
    /// How it is divided.
    pub shape: SlabShape,
    /// Its live slots.
    pub slots: SlotBitmap,
    /// Their sum.
    pub sum: SlotSum,
}

impl SlabLive {
    /// Zeros what `bytes`, which lie at `offset` of the slab's file, have of other slots than the
    /// live ones, and behind the last slot.
    pub fn clear_others(&self, offset: u64, bytes: &mut [u8]) {
        let SlabShape { slot_bytes, slots } = self.shape;
        let end = offset + bytes.len() as u64;
        let at = |place: u64| (place.clamp(offset, end) - offset) as usize;
        let first = offset.saturating_sub(HEADER_BYTES) / u64::from(slot_bytes);
        for slot in first.min(u64::from(slots)) as u32..slots {
            let start = self.shape.offset(slot);
            if start >= end {
                break;
            }
            let is_last = || self.slots.first_from(slot + 1).is_none();
            if !self.slots.contains(slot) || planted(Planted::CopyLacksLastSlot) && is_last() {
                bytes[at(start)..at(start + u64::from(slot_bytes))].fill(0);
            }
        }
        bytes[at(self.shape.offset(slots))..].fill(0);
    }
}

/// All slabs of a store and their live slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveSlots {
    slabs: BTreeMap<FileNumber, SlabLive>,
}

impl LiveSlots {
    /// The slabs by file number.
    pub fn iter(&self) -> impl Iterator<Item = (FileNumber, &SlabLive)> {
        self.slabs.iter().map(|(file, slab)| (*file, slab))
    }

    /// One slab.
    pub fn get(&self, file: FileNumber) -> Option<&SlabLive> {
        self.slabs.get(&file)
    }

    /// How many slabs there are.
    pub fn len(&self) -> usize {
        self.slabs.len()
    }

    /// There is no slab.
    pub fn is_empty(&self) -> bool {
        self.slabs.is_empty()
    }

    /// The change by which slots of a slab are born and die, each with the sequence of its record;
    /// in any order. `new` where the slab is not in the state yet. It counts on being the next
    /// change of the slab that is applied: the caller's lock is held until it is.
    pub fn change(
        &self,
        file: FileNumber,
        new: Option<SlabShape>,
        born: &[(u32, Sequence)],
        died: &[(u32, Sequence)],
    ) -> SlabChange {
        let sum = self.get(file).map_or(SlotSum::default(), |slab| slab.sum);
        let sum = born.iter().fold(sum, |sum, (slot, sequence)| sum.plus(*slot, *sequence));
        let sum = died.iter().fold(sum, |sum, (slot, sequence)| sum.minus(*slot, *sequence));
        let sorted = |slots: &[(u32, Sequence)]| {
            let mut slots: Vec<u32> = slots.iter().map(|(slot, _)| *slot).collect();
            slots.sort_unstable();
            assert!(slots.is_sorted_by(|a, b| a < b), "a slot is born or dies once in a change");
            runs(slots.into_iter())
        };
        SlabChange { file, new, removed: false, born: sorted(born), died: sorted(died), sum }
    }

    /// The change by which slots die of whose records nothing is known; `sum` is that of the
    /// others.
    pub fn loss(&self, file: FileNumber, died: &[u32], sum: SlotSum) -> SlabChange {
        let died: Vec<_> = died.iter().map(|slot| (*slot, Sequence::ZERO)).collect();
        SlabChange { sum, ..self.change(file, None, &[], &died) }
    }

    /// Makes a change take effect; where it cannot follow nothing changes and it says why.
    pub fn apply(&mut self, change: &SlabChange) -> Result<(), LiveError> {
        let known = self.slabs.get(&change.file);
        let mut slab = match (known, change.new) {
            (Some(_), Some(_)) => return Err(LiveError("a slab is new that is there already")),
            (None, None) => return Err(LiveError("a slab changes that is not there")),
            (Some(slab), None) => slab.clone(),
            (None, Some(shape)) => {
                let slots = SlotBitmap::new(shape.slots);
                SlabLive { shape, slots, sum: SlotSum::default() }
            }
        };
        for slot in change.born() {
            if slot >= slab.shape.slots || !slab.slots.insert(slot) {
                return Err(LiveError("a slot is born that is live already or beyond the last"));
            }
        }
        for slot in change.died() {
            if !slab.slots.remove(slot) {
                return Err(LiveError("a slot dies that is not live"));
            }
        }
        let empty = slab.slots.count() == 0;
        if empty && change.sum != SlotSum::default() {
            return Err(LiveError("the sum of a slab without live slots is not 0"));
        }
        if !change.removed {
            slab.sum = change.sum;
            self.slabs.insert(change.file, slab);
        } else if empty {
            self.slabs.remove(&change.file);
        } else {
            return Err(LiveError("a slab is removed that has live slots"));
        }
        Ok(())
    }

    /// Appends the whole state.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.slabs.len() as u64);
        let mut before = 0;
        for (file, slab) in &self.slabs {
            put_varint(out, file.0 - before);
            slab.shape.encode(out);
            out.extend_from_slice(&slab.sum.0.to_le_bytes());
            slab.slots.encode(out);
            before = file.0;
        }
    }

    /// The state that [`LiveSlots::encode`] wrote.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, LiveError> {
        let mut slabs = BTreeMap::new();
        let mut file = 0u64;
        for index in 0..decoder.varint()? {
            let step = decoder.varint()?;
            if index > 0 && step == 0 {
                return Err(LiveError("a slab is listed twice"));
            }
            file = file.checked_add(step).ok_or(LiveError("a file number is out of range"))?;
            let shape = SlabShape::decode(decoder)?;
            let sum = SlotSum(decoder.u64()?);
            let slots = SlotBitmap::decode(decoder, shape.slots)?;
            if slots.count() == 0 && sum != SlotSum::default() {
                return Err(LiveError("the sum of a slab without live slots is not 0"));
            }
            slabs.insert(FileNumber(file), SlabLive { shape, slots, sum });
        }
        Ok(Self { slabs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: SlabShape = SlabShape { slot_bytes: 64, slots: 100 };
    const FILE: FileNumber = FileNumber(9);

    fn at(slots: &[u32]) -> Vec<(u32, Sequence)> {
        slots.iter().map(|slot| (*slot, Sequence(u64::from(*slot) + 7))).collect()
    }

    #[test]
    fn slots_are_born_and_die_and_the_sum_follows_in_any_order() {
        let mut live = LiveSlots::default();
        live.apply(&live.change(FILE, Some(SHAPE), &at(&[3, 4, 9]), &[])).unwrap();
        live.apply(&live.change(FILE, None, &at(&[5]), &at(&[4, 3]))).unwrap();
        let mut direct = LiveSlots::default();
        direct.apply(&direct.change(FILE, Some(SHAPE), &at(&[9, 5]), &[])).unwrap();
        assert_eq!(live, direct);
        live.apply(&live.change(FILE, None, &[], &at(&[9, 5]))).unwrap();
        assert_eq!(live.get(FILE).unwrap().sum, SlotSum(0));
        live.apply(&SlabChange::removal(FILE)).unwrap();
        assert!(live.is_empty());
    }

    #[test]
    fn a_change_that_cannot_follow_is_refused_and_changes_nothing() {
        let mut live = LiveSlots::default();
        live.apply(&live.change(FILE, Some(SHAPE), &at(&[3, 4]), &[])).unwrap();
        let before = live.clone();
        let refused = [
            live.change(FILE, None, &at(&[5, 3]), &[]),
            live.change(FILE, None, &at(&[100]), &[]),
            live.change(FILE, None, &[], &at(&[3, 6])),
            live.change(FILE, Some(SHAPE), &at(&[7]), &[]),
            live.change(FileNumber(8), None, &at(&[7]), &[]),
            SlabChange::removal(FILE),
            live.change(FILE, None, &[], &[(3, Sequence(1)), (4, Sequence(2))]),
        ];
        for change in refused {
            assert!(live.apply(&change).is_err(), "{change:?}");
            assert_eq!(live, before);
        }
    }

    #[test]
    fn all_but_header_and_live_slots_is_cleared_however_the_file_is_cut() {
        let mut live = LiveSlots::default();
        live.apply(&live.change(FILE, Some(SHAPE), &at(&[0, 3, 4, 99]), &[])).unwrap();
        let slab = live.get(FILE).unwrap();
        let file: Vec<u8> = (0..SHAPE.file_bytes()).map(|at| (at % 251) as u8 + 1).collect();
        let mut expected = file.clone();
        for slot in (0..SHAPE.slots).filter(|slot| ![0, 3, 4, 99].contains(slot)) {
            expected[SHAPE.offset(slot) as usize..][..SHAPE.slot_bytes as usize].fill(0);
        }
        expected[SHAPE.offset(SHAPE.slots) as usize..].fill(0);
        for chunk_bytes in [1, 63, 100, 4096, 5000, 1 << 20] {
            let mut cleared = file.clone();
            for (index, chunk) in cleared.chunks_mut(chunk_bytes).enumerate() {
                slab.clear_others((index * chunk_bytes) as u64, chunk);
            }
            assert!(cleared == expected, "in chunks of {chunk_bytes}");
        }
    }

    #[test]
    fn another_sequence_in_the_same_slot_gives_another_sum() {
        let sum = SlotSum::default().plus(3, Sequence(8)).plus(4, Sequence(9));
        assert_ne!(sum, SlotSum::default().plus(3, Sequence(7)).plus(4, Sequence(9)));
        assert_ne!(sum, SlotSum::default().plus(4, Sequence(8)).plus(3, Sequence(9)));
        assert_eq!(sum.minus(4, Sequence(9)), SlotSum::default().plus(3, Sequence(8)));
    }
}
