//! Which slots hold records, as the manifest says.

use crate::error::Result;
use crate::table_set::manifest::{Edit, broken_slots};
use crate::table_set::restored::Restored;
use thermocline_foundation::FileNumber;
use thermocline_slab::{LiveSlots, SlabChange, SlabLive};

/// The slots that hold records, and what is known of their versions.
#[derive(Debug)]
pub(crate) struct LiveRecords {
    pub slots: LiveSlots,
    /// At most so many slots hold a version that is not the newest of its key in slots.
    pub older_versions: u64,
}

impl LiveRecords {
    /// Takes the slots of an opening, whose versions were counted where the manifest did not say.
    pub fn new(restored: &mut Restored) -> Self {
        let slots = std::mem::take(&mut restored.slots);
        Self { slots, older_versions: restored.older_versions.unwrap_or_default() }
    }

    /// Applies the changes of slots that `edit` has, and gives it the count of older versions.
    pub fn follow(&mut self, edit: &mut Edit) -> Result<()> {
        edit.slabs.iter().try_for_each(|slab| self.slots.apply(slab).map_err(broken_slots))?;
        edit.older_versions = self.counted().filter(|_| !edit.slabs.is_empty());
        Ok(())
    }

    /// Gives an edit that makes a whole state the slots and the count.
    pub fn whole(&self, edit: &mut Edit) {
        edit.live_slots = (!self.slots.is_empty()).then(|| self.slots.clone());
        edit.older_versions = self.counted();
    }

    /// Slots and count for a copy of the store.
    pub fn for_copy(&self) -> Result<(LiveSlots, Option<u64>)> {
        let mut slots = self.slots.clone();
        // A slab without records may be on its way out, and is of no use to the copy.
        let is_empty =
            |(file, slab): (FileNumber, &SlabLive)| (slab.slots.count() == 0).then_some(file);
        let empty: Vec<_> = slots.iter().filter_map(is_empty).collect();
        for file in empty {
            slots.apply(&SlabChange::removal(file)).map_err(broken_slots)?;
        }
        let older_versions = self.counted().filter(|_| !slots.is_empty());
        Ok((slots, older_versions))
    }

    /// The count of older versions, as the manifest has it: none where no slot is live.
    fn counted(&self) -> Option<u64> {
        (!self.slots.is_empty()).then_some(self.older_versions)
    }
}
