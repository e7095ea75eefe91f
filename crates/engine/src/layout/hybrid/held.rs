//! All live slots of one moment: held for a copy of them, or read and checked.

use super::Hybrid;
use crate::error::Result;
use crate::layout::Checked;
use crate::layout::Held;
use crate::table_set::TableSet;

impl Hybrid {
    /// What is live in slots, held for a copy.
    pub fn hold(&self, tables: &TableSet) -> Result<Held> {
        // Held from the moment on, and not while flushes are waited for: they may need the room.
        let frees = Some(self.fast.slabs.delay_slot_reuse());
        let (slots, older_versions) = self.fast.live.lock().for_copy()?;
        Ok(Held { slots, older_versions, last_sequence: tables.last_sequence, frees })
    }

    /// Reads all live slots. None of them is given to another record meanwhile.
    pub fn verify(&self, read: &mut dyn FnMut(u64)) -> Checked {
        let held = self.fast.slabs.delay_slot_reuse();
        let live = {
            let _tables = self.versions.tables();
            self.fast.live.lock().slots.clone()
        };
        let entries = live.iter().map(|(_, slab)| u64::from(slab.slots.count())).sum();
        let problems = self.fast.slabs.verify(&held, &live, read).into_iter().collect();
        // What waited for slots may look again.
        drop(held);
        self.shared.jobs.wake();
        Checked { entries, problems }
    }
}
