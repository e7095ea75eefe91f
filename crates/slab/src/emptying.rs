//! Emptying slabs, so that their room can be divided into slots of another size.
//!
//! Slots of a size that records no longer have are room that no record can use. A slab of which few
//! slots are live can be emptied: its records move to other slabs of their size, then it is taken
//! out ([`crate::Slabs::take_empty`]).
//!
//! 1. A slab that is being emptied gives out no slots; when every caller that empties it is done,
//!    it serves again.
//! 2. Only slabs are named whose records fit into slots that are free already, in other slabs: to
//!    empty one makes none.

use crate::address::{SlabId, SlotAddress};
use crate::allocation::Access;
use crate::slabs::Slabs;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A slab gives out no slots while this lives.
#[derive(Debug)]
pub struct Closed {
    slabs: Arc<Slabs>,
    /// None where it gave out no slots anyway.
    id: Option<SlabId>,
}

impl Slabs {
    /// The slab with the fewest records among those that others of their size have room for; none
    /// where no size has a slab too many. Slabs with no record at all are
    /// [`Slabs::take_empty`]'s.
    pub fn sparsest(&self) -> Option<SlabId> {
        let allocation = self.allocation.lock();
        let mut free = BTreeMap::new();
        let open = || allocation.slabs.iter().filter(|(_, slab)| slab.access == Access::Open);
        for (_, slab) in open() {
            *free.entry(slab.class).or_insert(0) += slab.free.count();
        }
        let fits = |(_, slab): &(&SlabId, &crate::allocation::SlabSlots)| {
            let elsewhere = free[&slab.class] - slab.free.count();
            !slab.is_empty() && slab.is_settled() && slab.live.count() <= elsewhere
        };
        let sparsest = open().filter(fits).min_by_key(|(id, slab)| {
            (u64::from(slab.live.count()) * u64::from(slab.shape.slot_bytes), **id)
        });
        sparsest.map(|(id, _)| *id)
    }

    /// Keeps the slab from giving out slots.
    pub fn close(self: &Arc<Self>, id: SlabId) -> Closed {
        let mut allocation = self.allocation.lock();
        let closers = allocation.slabs.get_mut(&id).and_then(|slab| match slab.access {
            Access::Open => Some((slab, 1)),
            Access::Closed(closers) => Some((slab, closers + 1)),
            Access::Private | Access::Single | Access::Retired => None,
        });
        let id = closers.map(|(slab, closers)| {
            slab.access = Access::Closed(closers);
            id
        });
        drop(allocation);
        Closed { slabs: Arc::clone(self), id }
    }

    /// What a slot is called in errors.
    pub fn describe(&self, address: SlotAddress) -> String {
        match self.slab(address.slab) {
            Ok(slab) => format!("{}, slot {}", slab.file.describe(), address.slot),
            Err(_) => address.to_string(),
        }
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        if let Some(slab) = self.slabs.allocation.lock().slabs.get_mut(&id)
            && let Access::Closed(closers) = slab.access
        {
            slab.access = if closers > 1 { Access::Closed(closers - 1) } else { Access::Open };
        }
    }
}
