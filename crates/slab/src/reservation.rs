//! Slots for the records of a batch: which sizes they get, and which slabs are made for them.
//!
//! ```text
//!   sizes --(rare ones share)--> classes --take--> free slots
//!                                   |  none left
//!                                   +--divide--> new slabs, short, long, or of one record
//! ```
//! 1. What was taken and made is given back where the reservation comes to nothing.
//! 2. A reservation that is committed in parts lists all its slabs with the first.
//!
//! A class begins with short slabs, and gets longer ones as it has more: a tier of records of many
//! sizes has a slab of each and leaves little unused, and one of records of one size has few files
//! ([`Slabs::set_slab_bytes_min`] allows it).
//!
//! Threads: any; the allocation's lock is not held while slabs are made.

use crate::address::{SlabId, SlotAddress};
use crate::allocation::Access;
use crate::format::HEADER_BYTES;
use crate::live::SlabShape;
use crate::size_class::{SLOTS_MIN, SizeClass};
use crate::slab::Slab;
use crate::slabs::Slabs;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::{ErrorKind, File, Origin, Result};
use thermocline_foundation::{FileNumber, threads};

/// Records, by their place in a batch, that no free slot serves.
struct Missing {
    by_class: Vec<Wanted>,
    single: Vec<usize>,
}

/// Records of one class, and how the slabs made for them are to be divided.
struct Wanted {
    class: SizeClass,
    shape: SlabShape,
    indexes: Vec<usize>,
}

/// A class gets slabs of a quarter of what it has, within the bounds for all.
const GROWTH: u64 = 4;

/// Slots for the records of one batch. Dropped, it gives them back and removes the slabs that were
/// made for it; [`Reservation::commit`] makes them live.
#[derive(Debug)]
pub struct Reservation {
    slabs: Arc<Slabs>,
    slots: Vec<Option<SlotAddress>>,
    record_bytes: Vec<u32>,
    new: Vec<SlabId>,
    settled: bool,
}

impl Reservation {
    /// The slot of each record, in the order of the sizes asked for; none where the record is
    /// larger than any slot or there was no room.
    pub fn slots(&self) -> &[Option<SlotAddress>] {
        &self.slots
    }

    /// Slabs made for this reservation: the caller publishes their files and lists them in the edit
    /// that makes the slots live.
    pub fn new_slabs(&self) -> Vec<(FileNumber, SlabShape)> {
        let slabs = self.new.iter().filter_map(|id| self.slabs.slab(*id).ok());
        slabs.map(|slab| (slab.file.number(), slab.shape)).collect()
    }

    /// Slots for more records, behind those that it has: all of them get one, or none does and the
    /// reservation stays as it was.
    ///
    /// # Errors
    /// As [`Slabs::allocate`].
    pub fn extend(&mut self, record_bytes: &[u32], origin: Origin) -> Result<bool> {
        let more = self.slabs.allocate_all_with(record_bytes, &self.new, origin)?;
        let Some(mut more) = more else { return Ok(false) };
        self.slots.append(&mut more.slots);
        self.record_bytes.append(&mut more.record_bytes);
        self.new.append(&mut more.new);
        // It has nothing left to give back.
        more.settled = true;
        Ok(true)
    }

    /// Splits the first `count` records off, and with them all slabs that were made: an edit of
    /// theirs lists these, and one of the rest lists none. The rest is to be committed after them.
    ///
    /// # Panics
    /// Where there are not so many.
    pub fn split_first(&mut self, count: usize) -> Self {
        let rest = self.slots.split_off(count);
        let rest_bytes = self.record_bytes.split_off(count);
        Self {
            slabs: Arc::clone(&self.slabs),
            slots: std::mem::replace(&mut self.slots, rest),
            record_bytes: std::mem::replace(&mut self.record_bytes, rest_bytes),
            new: std::mem::take(&mut self.new),
            settled: false,
        }
    }

    /// The edit that makes the slots live is durable. From now on they are live until they are
    /// freed, and the new slabs serve all reservations.
    pub fn commit(mut self) {
        self.settled = true;
        let mut allocation = self.slabs.allocation.lock();
        for (address, bytes) in self.slots.iter().zip(&self.record_bytes) {
            let Some(address) = address else {
                continue;
            };
            if let Some(slab) = allocation.slabs.get_mut(&address.slab) {
                slab.live.insert(address.slot);
            }
            allocation.count_seen(address.slab, 1, u64::from(*bytes));
        }
        for id in &self.new {
            if let Some(slab) = allocation.slabs.get_mut(id) {
                slab.access = slab.settled_access();
            }
        }
    }

    /// It is not known whether the edit is durable: neither live nor given back, until the store is
    /// opened again.
    pub fn abandon(mut self) {
        self.settled = true;
    }

    /// The edit was refused before it began: gives back what was taken and removes what was made,
    /// published or not.
    pub fn give_back(mut self) {
        self.settled = true;
        self.slabs.allocation.lock().give_back(self.slots.iter().flatten().copied());
        self.slabs.discard(&self.new);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // In a panic it is not known whether an edit made the slots live, as in `abandon`.
        if self.settled || threads::is_panicking() {
            return;
        }
        self.slabs.allocation.lock().give_back(self.slots.iter().flatten().copied());
        self.slabs.discard_unpublished(&self.new);
    }
}

/// Leaves the first records of each class in it, as many as `stay` says, and moves the others to
/// the class that `to` names.
fn share(
    wanted: &mut BTreeMap<SizeClass, Vec<usize>>,
    stay: impl Fn(SizeClass, usize) -> usize,
    to: impl Fn(SizeClass) -> SizeClass,
) {
    let mut going = Vec::new();
    for (class, indexes) in &mut *wanted {
        let rest = indexes.split_off(stay(*class, indexes.len()));
        going.push((to(*class), rest));
    }
    for (class, mut rest) in going.into_iter().filter(|(_, rest)| !rest.is_empty()) {
        let together = wanted.entry(class).or_default();
        together.append(&mut rest);
        together.sort_unstable();
    }
    wanted.retain(|_, indexes| !indexes.is_empty());
}

impl Slabs {
    /// Slots for records of so many bytes each ([`crate::record_bytes`]), which are in the order of
    /// their keys. Slots that are free come first, then new slabs while the limit and the tier
    /// allow, and where they do not somewhat larger slots; records that find no room get none. A
    /// record that is larger than any slot gets a slab of its own.
    ///
    /// # Errors
    /// Those of making a slab, but `OutOfSpace`, which only ends the making.
    pub fn allocate(self: &Arc<Self>, record_bytes: &[u32], origin: Origin) -> Result<Reservation> {
        let (mut reservation, missing) = self.reserve(record_bytes, &[]);
        self.make_missing(&mut reservation, missing, origin)?;
        Ok(reservation)
    }

    /// As [`Slabs::allocate`], but all records get slots or none does: where the limit does not let
    /// all the slabs be made that it takes, none is.
    pub fn allocate_all(
        self: &Arc<Self>,
        record_bytes: &[u32],
        origin: Origin,
    ) -> Result<Option<Reservation>> {
        self.allocate_all_with(record_bytes, &[], origin)
    }

    /// As [`Slabs::allocate_all`], with the free slots of private slabs of the caller's.
    fn allocate_all_with(
        self: &Arc<Self>,
        record_bytes: &[u32],
        own: &[SlabId],
        origin: Origin,
    ) -> Result<Option<Reservation>> {
        let (mut reservation, missing) = self.reserve(record_bytes, own);
        let new_bytes = Self::new_bytes(&missing, record_bytes);
        let fits = self.allocation.lock().has_room_for(new_bytes);
        if fits || new_bytes == 0 {
            self.make_missing(&mut reservation, missing, origin)?;
        }
        let is_whole = reservation.slots.iter().all(Option::is_some);
        Ok(is_whole.then_some(reservation))
    }

    /// Takes what is free, in slabs of `own` too; the rest wants new slabs.
    fn reserve(self: &Arc<Self>, record_bytes: &[u32], own: &[SlabId]) -> (Reservation, Missing) {
        let mut wanted: BTreeMap<SizeClass, Vec<usize>> = BTreeMap::new();
        let mut single = Vec::new();
        for (index, bytes) in record_bytes.iter().enumerate() {
            match self.classes.class_of(u64::from(*bytes)) {
                Some(class) => wanted.entry(class).or_default().push(index),
                None => single.push(index),
            }
        }
        self.share_classes(&mut wanted, own);
        // From here on, whatever fails gives back what was taken.
        let mut reservation = Reservation {
            slabs: Arc::clone(self),
            slots: vec![None; record_bytes.len()],
            record_bytes: record_bytes.to_vec(),
            new: Vec::new(),
            settled: false,
        };
        let missing = self.take_free(wanted, &mut reservation, own);
        let missing = self.divide(missing, single, record_bytes);
        (reservation, missing)
    }

    /// Gives records of sizes that few have the slots of other sizes: coarse ones, unless slots of
    /// their own are free, and where slabs may be of many lengths those of still fewer sizes, for
    /// each slab that a batch touches is a sync.
    fn share_classes(&self, wanted: &mut BTreeMap<SizeClass, Vec<usize>>, own: &[SlabId]) {
        let classes = &self.classes;
        let (free, is_of_one_length) = {
            let allocation = self.allocation.lock();
            (allocation.free_by_class(own), allocation.slab_bytes_min == classes.slab_bytes())
        };
        let is_few = |records: usize| (records as u64) < SLOTS_MIN;
        let mut nearby: BTreeMap<SizeClass, usize> = BTreeMap::new();
        for (class, indexes) in &*wanted {
            *nearby.entry(classes.coarse(*class)).or_default() += indexes.len();
        }
        let stay = |class: SizeClass, records: usize| {
            let others = nearby[&classes.coarse(class)] - records;
            match is_few(records) || records <= others {
                true => free.get(&class).map_or(0, |free| records.min(*free)),
                false => records,
            }
        };
        share(wanted, stay, |class| classes.coarse(class));
        if !is_of_one_length {
            let goes = |class, records| classes.coarse(class) == class && is_few(records);
            let stay = |class, records| if goes(class, records) { 0 } else { records };
            share(wanted, stay, |class| classes.shared(class));
        }
    }

    /// Bytes of the slabs that `missing` wants.
    fn new_bytes(missing: &Missing, record_bytes: &[u32]) -> u64 {
        let single = missing.single.iter().map(|index| {
            let shape = SlabShape::single(u64::from(record_bytes[*index]));
            shape.map_or(u64::MAX, SlabShape::file_bytes)
        });
        let shared = missing.by_class.iter().map(|wanted| {
            let slabs = (wanted.indexes.len() as u64).div_ceil(u64::from(wanted.shape.slots));
            slabs * wanted.shape.file_bytes()
        });
        single.chain(shared).fold(0, u64::saturating_add)
    }

    /// Makes the slabs that `missing` wants, as far as there is room.
    fn make_missing(
        self: &Arc<Self>,
        reservation: &mut Reservation,
        missing: Missing,
        origin: Origin,
    ) -> Result<()> {
        for Wanted { class, shape, indexes } in missing.by_class {
            let mut rest = &indexes[..];
            while !rest.is_empty() {
                // Another class may want a shorter one, for which there is room.
                let Some(id) = self.make_slab(class, shape, origin)? else { break };
                reservation.new.push(id);
                let taken = self.take_private(id, rest.len());
                for (index, address) in rest.iter().zip(&taken) {
                    reservation.slots[*index] = Some(*address);
                }
                rest = &rest[taken.len()..];
            }
        }
        for index in missing.single {
            let shape = SlabShape::single(u64::from(reservation.record_bytes[index]));
            let class = self.classes.largest();
            let made = shape.map(|shape| self.make_slab(class, shape, origin)).transpose()?;
            // A smaller one may still have room.
            let Some(id) = made.flatten() else { continue };
            reservation.new.push(id);
            reservation.slots[index] = self.take_private(id, 1).first().copied();
        }
        Ok(())
    }

    /// Takes free slots of the classes wanted; gives back what new slabs are needed for. Where
    /// these would take more than there may be, other slots serve that are large enough.
    fn take_free(
        &self,
        wanted: BTreeMap<SizeClass, Vec<usize>>,
        reservation: &mut Reservation,
        own: &[SlabId],
    ) -> Vec<(SizeClass, Vec<usize>)> {
        let mut missing: Vec<(SizeClass, Vec<usize>)> = Vec::new();
        let mut allocation = self.allocation.lock();
        let mut assign = |indexes: &[usize], taken: &[SlotAddress]| {
            for (index, address) in indexes.iter().zip(taken) {
                reservation.slots[*index] = Some(*address);
            }
            indexes[taken.len()..].to_vec()
        };
        for (class, indexes) in wanted {
            let taken = allocation.take(class, indexes.len(), own);
            missing.push((class, assign(&indexes, &taken)));
        }
        missing.retain(|(_, indexes)| !indexes.is_empty());
        let least = |(class, indexes): &(SizeClass, Vec<usize>)| {
            let shape = self.shape_of(*class, allocation.slab_bytes_min);
            (indexes.len() as u64).div_ceil(u64::from(shape.slots)) * shape.file_bytes()
        };
        if allocation.has_room_for(missing.iter().map(least).sum()) {
            return missing;
        }
        drop(allocation);
        self.take_larger(&mut missing, reservation, own);
        missing
    }

    /// Takes free slots of any size that holds the records in `missing`, up to twice the one that
    /// they should have had, the smallest first.
    fn take_larger(
        &self,
        missing: &mut Vec<(SizeClass, Vec<usize>)>,
        reservation: &mut Reservation,
        own: &[SlabId],
    ) {
        let mut allocation = self.allocation.lock();
        let free = allocation.free_by_class(own);
        for (class, indexes) in &mut *missing {
            let most = 2 * self.classes.slot_bytes(*class);
            let mut by_size: BTreeMap<SizeClass, Vec<usize>> = BTreeMap::new();
            for index in indexes.drain(..) {
                let bytes = u64::from(reservation.record_bytes[index]);
                let smallest = self.classes.class_of(bytes).unwrap_or(*class);
                by_size.entry(smallest).or_default().push(index);
            }
            for (smallest, mut left) in by_size {
                let fits = free.range(smallest..).map(|(class, _)| *class);
                for larger in fits.take_while(|class| self.classes.slot_bytes(*class) <= most) {
                    let taken = allocation.take(larger, left.len(), own);
                    for (index, address) in left.drain(..taken.len()).zip(taken) {
                        reservation.slots[index] = Some(address);
                    }
                }
                indexes.append(&mut left);
            }
            indexes.sort_unstable();
        }
        missing.retain(|(_, indexes)| !indexes.is_empty());
    }

    /// Says how slabs for records without a slot are to be divided: as long as their class can use,
    /// or where there is no room for those, as short as may be. A few large records get slabs of
    /// their own, where they would leave most of the shortest that has slots of their size unused.
    fn divide(
        &self,
        missing: Vec<(SizeClass, Vec<usize>)>,
        mut single: Vec<usize>,
        record_bytes: &[u32],
    ) -> Missing {
        let allocation = self.allocation.lock();
        let least = allocation.slab_bytes_min;
        let mut by_class = Vec::with_capacity(missing.len());
        for (class, mut indexes) in missing {
            let slots = u64::from(self.classes.slot_bytes(class)) * SLOTS_MIN;
            if slots > least && (indexes.len() as u64) < SLOTS_MIN {
                single.append(&mut indexes);
                continue;
            }
            let wanted = slots / SLOTS_MIN * indexes.len() as u64;
            let length = ((allocation.class_bytes(class) + wanted) / GROWTH).max(least);
            by_class.push(Wanted { class, shape: self.shape_of(class, length), indexes });
        }
        let mut missing = Missing { by_class, single };
        if !allocation.has_room_for(Self::new_bytes(&missing, record_bytes)) {
            for wanted in &mut missing.by_class {
                wanted.shape = self.shape_of(wanted.class, least);
            }
        }
        missing
    }

    /// How a new slab of a class is divided that should have about `length`.
    fn shape_of(&self, class: SizeClass, length: u64) -> SlabShape {
        let slot_bytes = self.classes.slot_bytes(class);
        let slots = HEADER_BYTES + u64::from(slot_bytes) * SLOTS_MIN;
        let length = length.max(slots).next_multiple_of(HEADER_BYTES);
        let length = length.min(self.classes.slab_bytes());
        SlabShape::filling(length, slot_bytes)
    }

    fn take_private(&self, id: SlabId, count: usize) -> Vec<SlotAddress> {
        let mut allocation = self.allocation.lock();
        let slots = allocation.slabs.get_mut(&id).map(|slab| slab.take(count));
        slots.into_iter().flatten().map(|slot| SlotAddress { slab: id, slot }).collect()
    }

    /// A new slab that only its maker uses; none where there is no room for one.
    fn make_slab(
        &self,
        class: SizeClass,
        shape: SlabShape,
        origin: Origin,
    ) -> Result<Option<SlabId>> {
        let bytes = shape.file_bytes();
        {
            let mut allocation = self.allocation.lock();
            if allocation.file_bytes.saturating_add(bytes) > allocation.limit_bytes {
                return Ok(None);
            }
            allocation.file_bytes += bytes;
        }
        let file = match Slab::create_file(&self.files, shape, origin) {
            Ok(file) => file,
            Err(error) => {
                self.allocation.lock().file_bytes -= bytes;
                let is_full = error.kind() == ErrorKind::OutOfSpace;
                return if is_full { Ok(None) } else { Err(error) };
            }
        };
        Ok(Some(self.add_private(class, shape, file)))
    }

    fn add_private(&self, class: SizeClass, shape: SlabShape, file: Arc<File>) -> SlabId {
        let mut allocation = self.allocation.lock();
        let id = allocation.add(file.number(), class, shape, Access::Private);
        let mut table = self.open.load().to_vec();
        table.resize(id.0 as usize, None);
        table.push(Some(Arc::new(Slab::new(id, file, shape))));
        self.open.store(Arc::new(table));
        id
    }

    /// Slots whose death is durable can be given out again. Each was live.
    pub fn free(&self, slots: &[SlotAddress]) {
        self.allocation.lock().free(slots);
    }

    /// Slots were freed that no reservation gets yet, since a guard holds frees.
    pub fn has_held_frees(&self) -> bool {
        self.allocation.lock().has_held()
    }
}
