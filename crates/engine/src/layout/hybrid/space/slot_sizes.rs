//! A change of slot sizes: room of slabs is divided anew where free slots have the wrong size.

use crate::error::{Error, Result};
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::packing::Stored;
use crate::layout::hybrid::records::placing::Arrival;
use crate::layout::hybrid::single_step::Work;
use crate::table_set::slot_edit::EntryAfter;
use crate::table_set::slot_edit::Removed;
use crate::table_set::slot_edit::SlotEdit;
use crate::versions::Change;
use thermocline_device::Purpose;
use thermocline_foundation::Planted;
use thermocline_foundation::planted;
use thermocline_slab::SlotAddress;
/// Gives the room of slabs to other sizes of slots: slabs without records are deleted, and where
/// there are none the emptiest is emptied into others of its size.
pub(crate) const SIZES: Work = Work {
    name: "change of slot sizes",
    claim: |fast| &fast.room.sweeping,
    run: Hybrid::change_sizes,
};

impl Hybrid {
    pub(in crate::layout::hybrid) fn change_sizes(&self) -> Result<()> {
        self.fast.room.begin_other_sizes();
        if self.delete_empty_slabs()? || (self.empty_one_slab()? && self.delete_empty_slabs()?) {
            self.fast.room.found();
            return Ok(());
        }
        if self.fast.slabs.stats().are_frees_held {
            // No slab goes while a guard holds frees.
            return Ok(());
        }
        // No slab can go as things are: fewer records are the only way.
        self.fast.room.sizes_are_stuck();
        Ok(())
    }

    /// Deletes slabs without records; false where there are none.
    fn delete_empty_slabs(&self) -> Result<bool> {
        // Under the lock, so that a thread that copies the live slots holds them before, or sees
        // them go.
        let mut tables = self.versions.tables();
        let empty = self.fast.slabs.take_empty(None, usize::MAX);
        if empty.is_empty() {
            return Ok(false);
        }
        let ids: Vec<_> = empty.iter().map(|(id, _)| *id).collect();
        // A slab that was made and never had a record is not in the manifest.
        let known = |file: &thermocline_foundation::FileNumber| {
            self.fast.live.lock().slots.get(*file).is_some()
        };
        let dropped: Vec<_> = empty.iter().map(|(_, file)| *file).filter(known).collect();
        let slots = SlotEdit { dropped, ..SlotEdit::default() };
        let change = Change { slots, purpose: Purpose::Release, ..Change::default() };
        let committed = self.versions.commit(&mut tables, change);
        committed.inspect_err(|error| {
            if error.is_refusal() {
                self.fast.slabs.keep(&ids);
            }
        })?;
        drop(tables);
        if let Err(error) = self.fast.slabs.remove(&ids) {
            // The manifest has them no more, so the next opening removes them.
            let error = Error::from(error);
            if !error.is_refusal() {
                return Err(error);
            }
            tracing::warn!(%error, "slabs without records stay until the next opening");
        }
        self.shared.room_freed();
        self.fast.room_was_made();
        Ok(true)
    }

    /// Moves the records of the slab with the fewest, of those whose size has free slots enough
    /// elsewhere; false where there is none.
    fn empty_one_slab(&self) -> Result<bool> {
        let Some(id) = self.fast.slabs.sparsest() else { return Ok(false) };
        let Some(file) = self.fast.slabs.file_number(id) else { return Ok(false) };
        // First held, then asked: what is live by that is not written over while it is read.
        let held = self.fast.slabs.delay_slot_reuse();
        let Some(live) = self.fast.live.lock().slots.get(file).cloned() else {
            return Ok(false);
        };
        let mut moving = Vec::new();
        self.fast.slabs.scan(id, &live, &mut |address, slot| {
            let kind = crate::layout::hybrid::records::lookup::kind_of(slot);
            let trailer = thermocline_table::Trailer::new(slot.sequence(), kind);
            let key = bytes::Bytes::copy_from_slice(slot.key());
            let packed = slot.is_packed() && !planted(Planted::MovedSlotUnpacked);
            let value = Stored { bytes: slot.shared_stored(), packed };
            moving.push((address, Arrival { key, trailer, value, clean: slot.is_clean() }));
        })?;
        drop(held);
        moving.sort_by(|(_, a), (_, b)| (&a.key, b.trailer).cmp(&(&b.key, a.trailer)));
        let arrivals: Vec<_> = moving.iter().map(|(_, arrival)| arrival.clone()).collect();
        let _closed = self.fast.slabs.close(id);
        let Some(mut placed) = self.fast.write(&arrivals, thermocline_device::Origin::Migration)?
        else {
            return Ok(false);
        };
        let mut tables = self.versions.tables();
        let (mut removed, mut unused) = (Vec::new(), Vec::new());
        let mut added = Vec::with_capacity(placed.added.len());
        for ((slot, arrival), new) in moving.into_iter().zip(std::mem::take(&mut placed.added)) {
            let sequence = arrival.trailer.sequence();
            let now = self.fast.index.get_at(&arrival.key, sequence);
            if now.is_some_and(|now| now.slot == slot.pack()) {
                if !planted(Planted::MovedSlotNotFreed) {
                    let (key, slot) = (arrival.key, Some(slot));
                    removed.push(Removed { key, sequence, slot, entry: EntryAfter::Gone });
                }
                added.push(new);
            } else {
                unused.push(SlotAddress::unpack(new.entry.slot));
            }
        }
        let moved = added.len() as u64;
        placed.added = added;
        let count = || self.fast.room.moved.add(moved);
        self.commit_placed(&mut tables, placed, removed, count)?;
        drop(tables);
        self.fast.slabs.free(&unused);
        Ok(true)
    }
}
