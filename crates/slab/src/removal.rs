//! What goes: slabs without a record, slabs of reservations that came to nothing; and holds, which
//! keep what lived at one moment as it was.
//!
//! ```text
//!   take_empty --> (the engine's edit) --> remove
//! ```
//! 1. While a guard holds frees, nothing that lived when the hold began changes: no slot that was
//!    freed is given out, no file of a slab is deleted.
//! 2. A slab that was taken out gives out no slots, and its file goes after its edit is durable.
//! 3. A file that the manifest may name is left to the next opening.
//!
//! Threads: any; the allocation's lock is not held while files are deleted.

use crate::address::SlabId;
use crate::allocation::{Access, SlabSlots};
use crate::bitmap::SlotBitmap;
use crate::size_class::SizeClass;
use crate::slabs::Slabs;
use std::sync::Arc;
use thermocline_device::Result;
use thermocline_foundation::FileNumber;

/// While it lives, slots that are freed are not given out and files of slabs are not deleted; see
/// [`Slabs::delay_slot_reuse`].
#[derive(Debug)]
pub struct FreesHeld {
    slabs: Arc<Slabs>,
}

impl Drop for FreesHeld {
    fn drop(&mut self) {
        let leaving = self.slabs.allocation.lock().release_hold();
        if !leaving.is_empty() {
            // The manifest has them no more: the next opening removes what cannot be deleted now.
            let _ = self.slabs.delete(&leaving);
        }
    }
}

impl Slabs {
    /// While the guard lives, slots that are freed keep their bytes: neither given out nor written,
    /// no slab is taken out, and those that were before keep their files. For a caller that reads
    /// what was live when the guard was made: take the guard first, then copy the live set.
    pub fn delay_slot_reuse(self: &Arc<Self>) -> FreesHeld {
        self.allocation.lock().holds += 1;
        FreesHeld { slabs: Arc::clone(self) }
    }

    /// Takes up to `slabs_max` slabs without any record out, of `class` or of any: no reservation
    /// gets a slot of them. The caller removes them by an edit and calls [`Slabs::remove`], or
    /// [`Slabs::keep`] where the edit is refused. Where it comes to nothing they stay taken out
    /// until the next opening. None while frees are held.
    pub fn take_empty(
        &self,
        class: Option<SizeClass>,
        slabs_max: usize,
    ) -> Vec<(SlabId, FileNumber)> {
        let mut allocation = self.allocation.lock();
        if allocation.holds > 0 {
            return Vec::new();
        }
        let empty = allocation.slabs.iter_mut().filter(|(_, slab)| {
            matches!(slab.access, Access::Open | Access::Single)
                && slab.is_empty()
                && class.is_none_or(|class| class == slab.class)
        });
        let take = |(id, slab): (&SlabId, &mut SlabSlots)| {
            slab.access = Access::Retired;
            (*id, slab.file)
        };
        empty.take(slabs_max).map(take).collect()
    }

    /// Forgets slabs that were taken out and whose removal is durable, and deletes their files:
    /// now, or where frees are held, when they are let go. The holder may have copied the live set
    /// when the slabs were still in it.
    pub fn remove(&self, ids: &[SlabId]) -> Result<()> {
        {
            let mut allocation = self.allocation.lock();
            if allocation.holds > 0 {
                allocation.leaving.extend_from_slice(ids);
                return Ok(());
            }
        }
        self.delete(ids)
    }

    /// What the files took is room for other slabs once they are gone.
    fn delete(&self, ids: &[SlabId]) -> Result<()> {
        let (numbers, bytes) = self.forget(ids);
        let deleted = self.files.delete_files(&numbers);
        self.allocation.lock().file_bytes -= bytes;
        deleted
    }

    /// Gives the files of slabs that are forgotten, and what they take.
    fn forget(&self, ids: &[SlabId]) -> (Vec<FileNumber>, u64) {
        let mut allocation = self.allocation.lock();
        let mut table = self.open.load().to_vec();
        let (mut numbers, mut bytes) = (Vec::with_capacity(ids.len()), 0);
        for id in ids {
            if let Some(slab) = allocation.slabs.remove(id) {
                debug_assert!(slab.is_empty() && slab.access != Access::Open, "slab {}", id.0);
                bytes += slab.shape.file_bytes();
                allocation.by_file.remove(&slab.file);
                numbers.push(slab.file);
                table[id.0 as usize] = None;
            }
        }
        self.open.store(Arc::new(table));
        (numbers, bytes)
    }

    /// Removes slabs of a reservation that came to nothing. The manifest may name one that was
    /// published: it stays, unused, and the next opening decides.
    pub(crate) fn discard_unpublished(&self, ids: &[SlabId]) {
        if ids.is_empty() {
            return;
        }
        let files = self.files.files();
        let published = |id: &SlabId| {
            let number = self.file_number(*id);
            files.iter().any(|file| Some(file.number) == number && file.published)
        };
        let ids: Vec<SlabId> = ids.iter().copied().filter(|id| !published(id)).collect();
        self.discard(&ids);
    }

    /// Removes slabs that no manifest names, and with them what was reserved of them.
    pub(crate) fn discard(&self, ids: &[SlabId]) {
        for id in ids {
            if let Some(slab) = self.allocation.lock().slabs.get_mut(id) {
                slab.free = SlotBitmap::full(slab.shape.slots);
            }
        }
        if !ids.is_empty() {
            // A file that cannot be deleted now is in no manifest: the next opening removes it.
            let _ = self.delete(ids);
        }
    }

    /// Slabs that were taken out stay: the edit that was to remove them was refused.
    pub fn keep(&self, ids: &[SlabId]) {
        let mut allocation = self.allocation.lock();
        for id in ids {
            if let Some(slab) = allocation.slabs.get_mut(id) {
                slab.access = slab.settled_access();
            }
        }
    }
}
