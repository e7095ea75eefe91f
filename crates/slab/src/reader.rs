//! Reads slots: one, a batch in one submission, or all live ones of a slab.
//!
//! Readers hold nothing. While one reads, its slot may die and be given to another record; what it
//! gets then has another key or sequence, or is damaged because half of it was written. So a caller
//! that finds a wrong record or `Corrupt` delays the reuse of slots ([`Slabs::delay_slot_reuse`])
//! and asks the index again: only if what that leads to is wrong too, the slot is damaged. Without
//! the delay it could have been given away once more.
//!
//! 1. A record is given out only after its checksum, bound to the slot's place, matched.
//! 2. A scan looks at live slots only, and compares the slab's sum at its end: a slot whose last
//!    write was lost holds an older intact record, which no checksum finds.
//! 3. Slots share the memory that they were read into, and in a batch with their neighbours:
//!    a caller that keeps a value takes [`Slot::compact_value`].
//!
//! Threads: any; several scans side by side.

use crate::address::{SlabId, SlotAddress};
use crate::bitmap::SlotBitmap;
use crate::format::Slot;
use crate::live::{LiveSlots, SlabLive, SlotSum};
use crate::removal::FreesHeld;
use crate::slab::{Decoded, Slab};
use crate::slabs::Slabs;
use bytes::Bytes;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, ReadAt, Result, read_batch};
use thermocline_foundation::{FileNumber, Planted, planted};

/// A scan reads up to so many bytes at once.
const SCAN_BYTES: u64 = 1 << 20;

/// Slots, or pages to keep, that are read in a batch are one read where no more than so many bytes
/// lie between them: a fast device moves these in the time that another request would take.
const GAP_BYTES: u64 = 16 << 10;
/// Bytes of such a read, at most.
const SPAN_BYTES: u64 = 256 << 10;

/// `next`, which begins no earlier than `span`, is read together with it.
pub(crate) fn share_a_read(span: &Range<u64>, next: &Range<u64>) -> bool {
    next.start <= span.end + GAP_BYTES && next.end <= span.start + SPAN_BYTES
}

impl Slabs {
    /// The record in a slot, with one read of about `record_bytes_hint` bytes; 0 reads the whole
    /// slot. A hint that is too small costs a second read.
    ///
    /// # Errors
    /// `NotFound` where the slab was removed, `Corrupt` where the slot holds no intact record: ask
    /// the index again in both cases. `Io`.
    pub fn read(&self, address: SlotAddress, record_bytes_hint: u32) -> Result<Slot> {
        let slab = self.slab_of(address)?;
        let len = slab.read_bytes(record_bytes_hint);
        let buffer = slab.file.read(slab.shape.offset(address.slot), len)?;
        let memory_bytes = buffer.capacity();
        finish(&slab, address.slot, &Bytes::from_owner(buffer), memory_bytes)
    }

    /// The records in slots, each with its hint as in [`Slabs::read`], in one submission; results
    /// in the order of the addresses. Slots that lie close together are one read.
    pub fn read_batch(&self, addresses: &[(SlotAddress, u32)]) -> Vec<Result<Slot>> {
        if let [(address, hint)] = addresses {
            return vec![self.read(*address, *hint)];
        }
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_unstable_by_key(|index| addresses[*index].0);
        let mut found: Vec<Option<Result<Slot>>> = addresses.iter().map(|_| None).collect();
        let mut spans: Vec<Span> = Vec::new();
        for index in order {
            let (address, hint) = addresses[index];
            if spans.last_mut().is_some_and(|span| span.takes(address, hint, index)) {
                continue;
            }
            match self.slab_of(address) {
                Ok(slab) => spans.push(Span::new(slab, address.slot, hint, index)),
                Err(error) => found[index] = Some(Err(error)),
            }
        }
        let reads: Vec<_> = spans.iter().map(Span::read).collect();
        for (span, buffer) in spans.iter().zip(read_batch(&reads)) {
            let buffer = match buffer {
                // One of several that cannot be read must not take the others with it.
                Err(_) if span.members.len() > 1 => {
                    for index in &span.members {
                        let (address, hint) = addresses[*index];
                        found[*index] = Some(self.read(address, hint));
                    }
                    continue;
                }
                buffer => buffer.map(|buffer| (buffer.capacity(), Bytes::from_owner(buffer))),
            };
            for index in &span.members {
                let (address, hint) = addresses[*index];
                found[*index] = Some(buffer.clone().and_then(|(memory_bytes, bytes)| {
                    let bytes = span.cut(&bytes, address.slot, hint);
                    finish(&span.slab, address.slot, &bytes, memory_bytes)
                }));
            }
        }
        found.into_iter().flatten().collect()
    }

    /// Reads a slab from end to end and gives every slot of `live` to `visit`, ascending. For
    /// opening, before anything is written, or under a guard of [`Slabs::delay_slot_reuse`] that
    /// was taken before `live` was copied.
    ///
    /// # Errors
    /// `Corrupt` at the first live slot without an intact record, or where the slab's sum says that
    /// a slot holds an older one. What `visit` was given until then is sound by its checksum.
    pub fn scan(
        &self,
        id: SlabId,
        live: &SlabLive,
        visit: &mut dyn FnMut(SlotAddress, &Slot),
    ) -> Result<()> {
        let slab = self.slab(id)?;
        let believes_all = planted(Planted::DeadSlotBelieved);
        let passes_over = believes_all || planted(Planted::DamagedSlotTakenForTorn);
        let looked_at = match believes_all {
            true => &SlabLive { slots: SlotBitmap::full(live.shape.slots), ..live.clone() },
            false => live,
        };
        let (mut records, mut bytes) = (0, 0);
        let walked = walk(&slab, looked_at, &mut |slot, found| {
            if passes_over && found.is_err() {
                return Ok(());
            }
            let found = found?;
            (records, bytes) = (records + 1, bytes + found.record_bytes());
            visit(SlotAddress { slab: id, slot }, &found);
            Ok(())
        });
        if !passes_over {
            walked?;
        }
        self.allocation.lock().count_seen(id, records, bytes);
        Ok(())
    }

    /// Reads every slot of `live` in all slabs and reports everything that is wrong, by file.
    /// `progress` is told the bytes of each slab that was read. The guard was taken before `live`
    /// was copied.
    pub fn verify(
        &self,
        _held: &FreesHeld,
        live: &LiveSlots,
        progress: &mut dyn FnMut(u64),
    ) -> Vec<(FileNumber, Error)> {
        let mut problems = Vec::new();
        for (file, expected) in live.iter() {
            let Some(slab) = self.id_of(file).and_then(|id| self.slab(id).ok()) else {
                let text = format!("slab {file} is in the manifest and not open");
                problems.push((file, Error::new(ErrorKind::NotFound, text)));
                continue;
            };
            let mut damaged = false;
            let walked = walk(&slab, expected, &mut |slot, found| {
                let found = found
                    .and_then(|found| found.shared_value().map_err(|why| slab.corrupt(slot, why)));
                if let Err(error) = found {
                    damaged = true;
                    problems.push((file, Self::named(&slab, slot, &error)));
                }
                Ok(())
            });
            if let Err(error) = self.check_header(&slab) {
                problems.push((file, error));
            }
            // Where slots are damaged, a sum that differs is no news.
            if let Err(error) = walked
                && !damaged
            {
                problems.push((file, error));
            }
            progress(slab.shape.file_bytes());
        }
        problems
    }
}

/// Slots of a slab that are read at once.
struct Span {
    slab: Arc<Slab>,
    bytes: Range<u64>,
    /// Which of the addresses asked for, ascending by slot.
    members: Vec<usize>,
}

impl Span {
    fn new(slab: Arc<Slab>, slot: u32, hint: u32, index: usize) -> Self {
        let start = slab.shape.offset(slot);
        let end = start + slab.read_bytes(hint) as u64;
        Self { slab, bytes: start..end, members: vec![index] }
    }

    /// Takes a slot behind its last one along, where that costs less than another read.
    fn takes(&mut self, address: SlotAddress, hint: u32, index: usize) -> bool {
        if address.slab != self.slab.id || address.slot >= self.slab.shape.slots {
            return false;
        }
        let from = self.slab.shape.offset(address.slot);
        let end = (from + self.slab.read_bytes(hint) as u64).max(self.bytes.end);
        let near = share_a_read(&self.bytes, &(from..end));
        if near {
            self.bytes.end = end;
            self.members.push(index);
        }
        near
    }

    fn read(&self) -> ReadAt<'_> {
        let Range { start, end } = self.bytes;
        ReadAt { file: &self.slab.file, offset: start, len: (end - start) as usize }
    }

    /// What was read of a slot.
    fn cut(&self, bytes: &Bytes, slot: u32, hint: u32) -> Bytes {
        let from = ((self.slab.shape.offset(slot) - self.bytes.start) as usize).min(bytes.len());
        let to = (from + self.slab.read_bytes(hint)).min(bytes.len());
        bytes.slice(from..to)
    }
}

/// The record that begins with `bytes`, reading again where it is longer.
fn finish(slab: &Slab, slot: u32, bytes: &Bytes, memory_bytes: usize) -> Result<Slot> {
    if let Decoded::Whole(found) = slab.decode(slot, bytes, memory_bytes)? {
        return Ok(found);
    }
    let whole = slab.file.read(slab.shape.offset(slot), slab.shape.slot_bytes as usize)?;
    let memory_bytes = whole.capacity();
    match slab.decode(slot, &Bytes::from_owner(whole), memory_bytes)? {
        Decoded::Whole(found) => Ok(found),
        Decoded::Longer => Err(slab.corrupt(slot, "its lengths are beyond its slot")),
    }
}

/// What becomes of a live slot, or of the lot.
type Visit<'a> = &'a mut dyn FnMut(u32, Result<Slot>) -> Result<()>;

/// Gives each live slot, or what is wrong with it, to `visit`, until that fails; then compares the
/// sum.
fn walk(slab: &Slab, live: &SlabLive, visit: Visit<'_>) -> Result<()> {
    if live.shape != slab.shape {
        return Err(Error::corrupt(slab.file.describe(), 0, "it is divided otherwise"));
    }
    let start = |span: &RangeInclusive<u32>| {
        let (first, last) = (slab.shape.offset(*span.start()), slab.shape.offset(span.end() + 1));
        slab.file.start_read(first, (last - first) as usize)
    };
    let mut sum = SlotSum::default();
    let mut span = next_span(live, 0);
    let mut pending = span.as_ref().map(&start);
    while let (Some(current), Some(read)) = (span, pending) {
        span = next_span(live, current.end() + 1);
        pending = span.as_ref().map(&start);
        let read = read.wait();
        let failure = read.is_err();
        let buffer = read.unwrap_or_default();
        let memory_bytes = buffer.capacity();
        let bytes = Bytes::from_owner(buffer);
        for slot in current.clone().filter(|slot| live.slots.contains(*slot)) {
            let found = match failure {
                // One that cannot be read must not take the others with it.
                true => read_alone(slab, slot),
                false => cut(slab, *current.start(), slot, &bytes, memory_bytes),
            };
            if let Ok(found) = &found {
                sum = sum.plus(slot, found.sequence());
            }
            visit(slot, found)?;
        }
    }
    if sum != live.sum && !planted(Planted::SlotSumsNotCompared) {
        return Err(slab.corrupt_sum());
    }
    Ok(())
}

/// The record of a slot, by a read of its own.
fn read_alone(slab: &Slab, slot: u32) -> Result<Slot> {
    let buffer = slab.file.read(slab.shape.offset(slot), slab.shape.slot_bytes as usize)?;
    let memory_bytes = buffer.capacity();
    finish(slab, slot, &Bytes::from_owner(buffer), memory_bytes)
}

/// The record of `slot` in bytes that begin with slot `first`.
fn cut(slab: &Slab, first: u32, slot: u32, bytes: &Bytes, memory_bytes: usize) -> Result<Slot> {
    let slot_bytes = slab.shape.slot_bytes as usize;
    let start = ((slot - first) as usize * slot_bytes).min(bytes.len());
    let end = (start + slot_bytes).min(bytes.len());
    match slab.decode(slot, &bytes.slice(start..end), memory_bytes)? {
        Decoded::Whole(found) => Ok(found),
        Decoded::Longer => Err(slab.corrupt(slot, "the file ends in its slot")),
    }
}

/// The next slots to read at once, from a live one to a live one.
fn next_span(live: &SlabLive, from: u32) -> Option<RangeInclusive<u32>> {
    let first = live.slots.first_from(from)?;
    let count = (SCAN_BYTES / u64::from(live.shape.slot_bytes)).max(1) as u32;
    let last = (first..first.saturating_add(count).min(live.shape.slots))
        .rev()
        .find(|slot| live.slots.contains(*slot));
    Some(first..=last.unwrap_or(first))
}
