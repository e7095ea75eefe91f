//! All live slots of one moment: held for a copy of them, or read and checked.

use super::Hybrid;
use crate::error::Result;
use crate::layout::Checked;
use crate::layout::Held;
use crate::table_set::TableSet;
use crate::table_set::manifest::broken_slots;
use thermocline_foundation::FileNumber;
use thermocline_slab::SlabChange;
use thermocline_slab::SlabLive;

impl Hybrid {
    /// What is live in slots, held for a copy.
    pub fn hold(&self, tables: &TableSet) -> Result<Held> {
        // Held from the moment on, and not while flushes are waited for: they may need the room.
        let frees = Some(self.fast.slabs.hold_frees());
        let mut slots = self.fast.live.lock().clone();
        // A slab without records may be on its way out, and is of no use to the copy.
        let is_empty =
            |(file, slab): (FileNumber, &SlabLive)| (slab.slots.count() == 0).then_some(file);
        let empty: Vec<_> = slots.iter().filter_map(is_empty).collect();
        for file in empty {
            slots.apply(&SlabChange::removal(file)).map_err(broken_slots)?;
        }
        Ok(Held { slots, last_sequence: tables.last_sequence, frees })
    }

    /// Reads all live slots. None of them is given to another record meanwhile.
    pub fn verify(&self, read: &mut dyn FnMut(u64)) -> Checked {
        let held = self.fast.slabs.hold_frees();
        let live = {
            let _tables = self.versions.tables();
            self.fast.live.lock().clone()
        };
        let entries = live.iter().map(|(_, slab)| u64::from(slab.slots.count())).sum();
        let problems = self.fast.slabs.verify(&held, &live, read).into_iter().collect();
        // What waited for slots may look again.
        drop(held);
        self.shared.jobs.wake();
        Checked { entries, problems }
    }
}
