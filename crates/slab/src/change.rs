//! How an edit of the manifest changes the live slots of one slab.
//!
//! ```text
//!   file varint | flags 1 | new: slot bytes varint, slots varint | born runs | died runs | sum 8
//!   runs   count varint, then for each run: gap varint, length varint - 1
//!   flags  1 new · 2 removed
//! ```
//! Slots are given out in the order of keys, so what a flush brings to life is a few long runs.
//!
//! 1. A change that was decoded names only slots that some slab can have; whether they are those of
//!    its slab is seen when it is applied ([`crate::LiveSlots::apply`]).
//! 2. A removal carries no slots.
//!
//! A plain value; any thread.

use crate::bitmap::{SLOTS_MAX, put_runs, take_runs};
use crate::live::{LiveError, SlabShape, SlotSum};
use std::ops::Range;
use thermocline_foundation::FileNumber;
use thermocline_foundation::coding::{Decoder, put_varint};

const NEW: u8 = 1;
const REMOVED: u8 = 2;

/// A change of one slab. Made by [`crate::LiveSlots::change`] and [`SlabChange::removal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabChange {
    pub(crate) file: FileNumber,
    pub(crate) new: Option<SlabShape>,
    pub(crate) removed: bool,
    pub(crate) born: Vec<Range<u32>>,
    pub(crate) died: Vec<Range<u32>>,
    pub(crate) sum: SlotSum,
}

impl SlabChange {
    /// The slab goes; it has no live slot. Its file may be deleted once the edit is durable.
    pub fn removal(file: FileNumber) -> Self {
        let (born, died) = (Vec::new(), Vec::new());
        Self { file, new: None, removed: true, born, died, sum: SlotSum::default() }
    }

    /// The slab.
    pub fn file(&self) -> FileNumber {
        self.file
    }

    /// Slots that become live, ascending.
    pub fn born(&self) -> impl Iterator<Item = u32> + '_ {
        self.born.iter().flat_map(Range::clone)
    }

    /// Slots that die, ascending.
    pub fn died(&self) -> impl Iterator<Item = u32> + '_ {
        self.died.iter().flat_map(Range::clone)
    }

    /// Appends the change.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.file.0);
        let new = if self.new.is_some() { NEW } else { 0 };
        out.push(new | if self.removed { REMOVED } else { 0 });
        if let Some(shape) = self.new {
            shape.encode(out);
        }
        put_runs(out, &self.born);
        put_runs(out, &self.died);
        out.extend_from_slice(&self.sum.0.to_le_bytes());
    }

    /// The change that [`SlabChange::encode`] wrote.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, LiveError> {
        let file = FileNumber(decoder.varint()?);
        let flags = decoder.u8()?;
        if flags & !(NEW | REMOVED) != 0 || flags == NEW | REMOVED {
            return Err(LiveError("a slab changes in no known way"));
        }
        let new = if flags & NEW != 0 { Some(SlabShape::decode(decoder)?) } else { None };
        let slots = new.map_or(SLOTS_MAX, |shape| shape.slots);
        let (mut born, mut died) = (Vec::new(), Vec::new());
        take_runs(decoder, slots, |run| born.push(run))?;
        take_runs(decoder, slots, |run| died.push(run))?;
        let sum = SlotSum(decoder.u64()?);
        let removed = flags & REMOVED != 0;
        if removed && !(born.is_empty() && died.is_empty()) {
            return Err(LiveError("a slab is removed and changes"));
        }
        Ok(Self { file, new, removed, born, died, sum })
    }
}
