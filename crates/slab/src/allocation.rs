//! Which slots can be given out, and to which reservations they were given.
//!
//! ```text
//!            allocate            commit              free
//!     free ------------> reserved -------> live ------------> free, or while frees are held:
//!      ^                    |                          held ----(last hold dropped)----> free
//!      +------- dropped ----+
//!
//!     slab:  private (made for a reservation) --commit--> open --take_empty--> retired --remove-->
//!                                                         open <-----close/drop----> closed
//!            private (of one record)          --commit--> single, then the same; never closed
//! ```
//! 1. A slot is given out once until it is free again.
//! 2. A class gives out slots of the slab with most free ones first, in ascending position, to
//!    records in the order of their keys: neighbours share pages, and writes are long.
//! 3. A slab that was made for a reservation serves that reservation alone until it is committed:
//!    no other reservation can make a slot live in a slab that the manifest does not know. A
//!    reservation that is committed in parts lists all its slabs with the first.
//! 4. The lock is never held during I/O.
//!
//! Order decides what ends up where, so everything here is in the order of ids and positions: the
//! same calls give the same slots.

use crate::address::{SlabId, SlotAddress};
use crate::bitmap::SlotBitmap;
use crate::live::SlabShape;
use crate::size_class::SizeClass;
use crate::stats::{ClassStats, SlabStats};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use thermocline_foundation::FileNumber;

/// Which reservations may have slots of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The reservation that it was made for.
    Private,
    Open,
    /// None: its one slot is as large as the record that it was made for.
    Single,
    /// None: so many callers are emptying it.
    Closed(u32),
    /// None: it is being taken out.
    Retired,
}

/// The slots of a slab.
#[derive(Debug)]
pub(crate) struct SlabSlots {
    pub file: FileNumber,
    pub class: SizeClass,
    pub shape: SlabShape,
    pub access: Access,
    pub free: SlotBitmap,
    pub live: SlotBitmap,
    held: u32,
}

impl SlabSlots {
    /// Every slot is free or has a record.
    pub fn is_settled(&self) -> bool {
        self.free.count() + self.live.count() == self.shape.slots
    }

    /// Its access while it is neither private, nor being emptied, nor taken out.
    pub fn settled_access(&self) -> Access {
        if self.shape.is_single() { Access::Single } else { Access::Open }
    }

    pub fn is_empty(&self) -> bool {
        self.free.count() == self.shape.slots
    }

    /// Takes up to `count` free slots, ascending.
    pub fn take(&mut self, count: usize) -> Vec<u32> {
        let slots: Vec<u32> = self.free.iter().take(count).collect();
        for slot in &slots {
            self.free.remove(*slot);
        }
        slots
    }
}

/// Records of a class that were seen, for the mean of their sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    records: u64,
    bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub slabs: BTreeMap<SlabId, SlabSlots>,
    pub by_file: BTreeMap<FileNumber, SlabId>,
    next_id: u32,
    pub limit_bytes: u64,
    /// Length of the first slabs of a class.
    pub slab_bytes_min: u64,
    /// Files of all slabs, those being made and those being deleted included.
    pub file_bytes: u64,
    pub holds: u32,
    held: Vec<SlotAddress>,
    /// Slabs to be removed when no guard holds frees any more.
    pub leaving: Vec<SlabId>,
    seen: Vec<Seen>,
}

impl Allocation {
    pub fn new(classes: usize, slab_bytes_min: u64) -> Self {
        Self {
            slabs: BTreeMap::new(),
            by_file: BTreeMap::new(),
            next_id: 0,
            limit_bytes: 0,
            slab_bytes_min,
            file_bytes: 0,
            holds: 0,
            held: Vec::new(),
            leaving: Vec::new(),
            seen: vec![Seen::default(); classes],
        }
    }

    /// Adds a slab of which `live` slots are live, open to all reservations.
    pub fn add_open(
        &mut self,
        file: FileNumber,
        class: SizeClass,
        shape: SlabShape,
        live: &SlotBitmap,
    ) -> SlabId {
        self.file_bytes += shape.file_bytes();
        let access = if shape.is_single() { Access::Single } else { Access::Open };
        let id = self.add(file, class, shape, access);
        if let Some(slab) = self.slabs.get_mut(&id) {
            slab.live = live.clone();
            for slot in live.iter() {
                slab.free.remove(slot);
            }
        }
        id
    }

    pub fn add(
        &mut self,
        file: FileNumber,
        class: SizeClass,
        shape: SlabShape,
        access: Access,
    ) -> SlabId {
        let id = SlabId(self.next_id);
        self.next_id += 1;
        let (free, live) = (SlotBitmap::full(shape.slots), SlotBitmap::new(shape.slots));
        let slab = SlabSlots { file, class, shape, access, free, live, held: 0 };
        self.slabs.insert(id, slab);
        self.by_file.insert(file, id);
        id
    }

    /// The slot is free: what it holds need not be kept.
    pub fn is_free(&self, address: SlotAddress) -> bool {
        let slab = self.slabs.get(&address.slab);
        slab.is_none_or(|slab| slab.free.contains(address.slot))
    }

    /// Up to `count` free slots of a class, by slab and position, for a reservation that `own` were
    /// made for.
    pub fn take(&mut self, class: SizeClass, count: usize, own: &[SlabId]) -> Vec<SlotAddress> {
        let open = self.serving(own).filter(|(_, slab)| slab.class == class);
        let mut order: Vec<_> = open.map(|(id, slab)| (Reverse(slab.free.count()), *id)).collect();
        order.sort_unstable();
        let mut taken = Vec::new();
        for (_, id) in order {
            if taken.len() == count {
                break;
            }
            if let Some(slab) = self.slabs.get_mut(&id) {
                let slots = slab.take(count - taken.len());
                taken.extend(slots.into_iter().map(|slot| SlotAddress { slab: id, slot }));
            }
        }
        taken
    }

    /// Slabs that give out slots to a reservation that `own` were made for, and have some.
    fn serving(&self, own: &[SlabId]) -> impl Iterator<Item = (&SlabId, &SlabSlots)> {
        self.slabs.iter().filter(|(id, slab)| {
            let is_own = || slab.access == Access::Private && own.contains(id);
            slab.free.count() > 0 && (slab.access == Access::Open || is_own())
        })
    }

    /// How many slots each class has free for such a reservation; classes without any are left out.
    pub fn free_by_class(&self, own: &[SlabId]) -> BTreeMap<SizeClass, usize> {
        let mut free = BTreeMap::new();
        for (_, slab) in self.serving(own) {
            *free.entry(slab.class).or_default() += slab.free.count() as usize;
        }
        free
    }

    /// Bytes of the slabs of a class that are for many records.
    pub fn class_bytes(&self, class: SizeClass) -> u64 {
        let slabs = self.slabs.values().filter(|slab| slab.class == class);
        let shared = slabs.filter(|slab| !slab.shape.is_single());
        shared.map(|slab| slab.shape.file_bytes()).sum()
    }

    /// Files of slabs may take so many bytes more.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.file_bytes.saturating_add(bytes) <= self.limit_bytes
    }

    /// Gives slots back that were never live.
    pub fn give_back(&mut self, slots: impl Iterator<Item = SlotAddress>) {
        for SlotAddress { slab, slot } in slots {
            if let Some(slab) = self.slabs.get_mut(&slab) {
                slab.free.insert(slot);
            }
        }
    }

    pub fn free(&mut self, slots: &[SlotAddress]) {
        for address in slots {
            let Some(slab) = self.slabs.get_mut(&address.slab) else {
                debug_assert!(false, "{address} is freed and its slab is gone");
                continue;
            };
            if !slab.live.remove(address.slot) {
                debug_assert!(false, "{address} is freed and was not live");
            } else if self.holds > 0 {
                slab.held += 1;
                self.held.push(*address);
            } else {
                slab.free.insert(address.slot);
            }
        }
    }

    /// Slots were freed that no reservation gets yet.
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// The slabs whose removal waited for this hold.
    pub fn release_hold(&mut self) -> Vec<SlabId> {
        self.holds -= 1;
        if self.holds > 0 {
            return Vec::new();
        }
        for address in std::mem::take(&mut self.held) {
            if let Some(slab) = self.slabs.get_mut(&address.slab) {
                slab.held -= 1;
                slab.free.insert(address.slot);
            }
        }
        std::mem::take(&mut self.leaving)
    }

    /// Counts records of a slab, if it is still there, for the mean of its class. Records that have
    /// a slab of their own are all of one class and as different as can be: they have no mean.
    pub fn count_seen(&mut self, id: SlabId, records: u64, bytes: u64) {
        let slab = self.slabs.get(&id).filter(|slab| !slab.shape.is_single());
        if let Some(slab) = slab {
            let seen = &mut self.seen[usize::from(slab.class.0)];
            seen.records += records;
            seen.bytes += bytes;
        }
    }

    pub fn stats(&self) -> SlabStats {
        let mut by_class: BTreeMap<(SizeClass, u32), ClassStats> = BTreeMap::new();
        for slab in self.slabs.values() {
            let slot_bytes = slab.shape.slot_bytes;
            let is_single = slab.shape.is_single();
            let seen = self.seen[usize::from(slab.class.0)];
            let seen = if is_single { Seen::default() } else { seen };
            let mean = seen.bytes.checked_div(seen.records).unwrap_or(u64::from(slot_bytes));
            let stats = by_class.entry((slab.class, slot_bytes)).or_insert(ClassStats {
                class: slab.class,
                slot_bytes,
                slabs: 0,
                slots: 0,
                live: 0,
                free: 0,
                reserved: 0,
                held: 0,
                empty_slabs: 0,
                file_bytes: 0,
                record_bytes_mean: mean,
            });
            let (slots, held) = (u64::from(slab.shape.slots), u64::from(slab.held));
            let (live, free) = (u64::from(slab.live.count()), u64::from(slab.free.count()));
            stats.slabs += 1;
            stats.slots += slots;
            stats.live += live;
            stats.free += free;
            stats.held += held;
            stats.reserved += slots - live - free - held;
            stats.empty_slabs += u64::from(slab.is_empty());
            stats.file_bytes += slab.shape.file_bytes();
        }
        SlabStats {
            classes: by_class.into_values().collect(),
            file_bytes: self.file_bytes,
            limit_bytes: self.limit_bytes,
            are_frees_held: self.holds > 0,
        }
    }
}
