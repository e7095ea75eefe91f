//! Reads all intact records of a slab, live or dead, where no manifest says which of its slots are
//! live.
//!
//! A dead slot keeps the bytes that it had. So of a key there may be several records, of which the
//! newest counts, and one may have been deleted since: the caller says so.
//!
//! For a repair, before anything is written. Any thread; it holds nothing but the file.

use crate::address::SlabId;
use crate::bitmap::runs;
use crate::format::{self, BadHeader, HEADER_BYTES, Slot, decode_header};
use crate::live::SlabShape;
use crate::slab::{Decoded, Slab};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use thermocline_device::{Error, File, Result, Unreadable};
use thermocline_foundation::coding::is_zero;
use thermocline_foundation::mend::mend;

/// Bytes that are read at once, where a slot is not longer.
const CHUNK_BYTES: u32 = 1 << 20;

/// A slab of which only the file is known.
#[derive(Debug)]
pub struct SlabRemains {
    slab: Slab,
}

impl SlabRemains {
    /// The header page says how the file is divided; a single flipped bit of it is turned back.
    ///
    /// # Errors
    /// `Corrupt` where more of it is damaged, `NewerFormat`, and those of the device.
    pub fn open(file: Arc<File>) -> Result<Self> {
        let mut page = file.read(0, HEADER_BYTES as usize)?.to_vec();
        let place = file.place(0);
        let shape = match decode_header(&place, &page) {
            Err(BadHeader::Broken(_)) => {
                let (body, sum) = page.split_at_mut(HEADER_BYTES as usize - 4);
                let stored = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
                if mend(&place, body, stored) {
                    format::seal_header(&place, &mut page);
                }
                decode_header(&place, &page)
            }
            shape => shape,
        };
        let shape = shape.map_err(|bad| Slab::bad_header(&file, bad))?;
        Ok(Self { slab: Slab::new(SlabId(0), file, shape) })
    }

    /// Its file.
    pub fn file(&self) -> &Arc<File> {
        &self.slab.file
    }

    /// How it is divided.
    pub fn shape(&self) -> SlabShape {
        self.slab.shape
    }

    /// Gives each intact record to `visit` with its slot, ascending. Says which slots have
    /// something else, written and not intact: a torn write, or a record that is lost. Where
    /// `unreadable` says so, those that the device does not give are among them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn for_each(
        &self,
        unreadable: Unreadable,
        visit: &mut dyn FnMut(u32, &Slot),
    ) -> Result<Vec<Range<u32>>> {
        let SlabShape { slot_bytes, slots } = self.slab.shape;
        let at_once = (CHUNK_BYTES / slot_bytes).max(1);
        let is_damage = |error: &Error| unreadable.is_damage(error.kind());
        let mut broken = Vec::new();
        for first in (0..slots).step_by(at_once as usize) {
            let part = first..first + at_once.min(slots - first);
            match self.visit_part(part.clone(), visit, &mut broken) {
                // Some of them it gives one by one.
                Err(error) if is_damage(&error) => {
                    for slot in part {
                        match self.visit_part(slot..slot + 1, visit, &mut broken) {
                            Err(error) if is_damage(&error) => broken.push(slot),
                            visited => visited?,
                        }
                    }
                }
                visited => visited?,
            }
        }
        Ok(runs(broken.into_iter()))
    }

    /// Reads `slots` at once. Where the device does not give them nothing was visited.
    fn visit_part(
        &self,
        slots: Range<u32>,
        visit: &mut dyn FnMut(u32, &Slot),
        broken: &mut Vec<u32>,
    ) -> Result<()> {
        let slot_bytes = self.slab.shape.slot_bytes as usize;
        let len = slots.len() * slot_bytes;
        let buffer = self.slab.file.read_up_to(self.slab.shape.offset(slots.start), len)?;
        let memory_bytes = buffer.capacity();
        let bytes = Bytes::from_owner(buffer);
        for (at, slot) in slots.enumerate() {
            let from = (at * slot_bytes).min(bytes.len());
            let part = bytes.slice(from..bytes.len().min(from + slot_bytes));
            match self.slab.decode(slot, &part, memory_bytes) {
                Ok(Decoded::Whole(record)) => visit(slot, &record),
                // A slab that was cut short has slots that were written, maybe.
                _ if part.len() == slot_bytes && is_zero(&part) => {}
                _ => broken.push(slot),
            }
        }
        Ok(())
    }

    /// The record of `slot`, which [`SlabRemains::for_each`] has given.
    ///
    /// # Errors
    /// `Corrupt` where it is not there any more, and those of the device.
    pub fn read(&self, slot: u32) -> Result<Slot> {
        let len = self.slab.shape.slot_bytes as usize;
        let buffer = self.slab.file.read_up_to(self.slab.shape.offset(slot), len)?;
        let memory_bytes = buffer.capacity();
        match self.slab.decode(slot, &Bytes::from_owner(buffer), memory_bytes)? {
            Decoded::Whole(record) => Ok(record),
            Decoded::Longer => Err(self.slab.corrupt(slot, "its lengths are beyond its slot")),
        }
    }
}
