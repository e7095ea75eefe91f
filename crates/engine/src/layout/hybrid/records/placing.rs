//! How records get slots: they are written, made durable, made live by an edit, found, and give
//! their slots away.
//!
//! Slots are written while they are dead. The edit that makes them live is durable before the index
//! names them ([`FastTier::arrive`]), and what it removes gives its slots away after readers see
//! what has the records now ([`FastTier::depart`]).

use crate::error::Result;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::records::lookup::entry_kind;
use crate::layout::hybrid::records::packing::Stored;
use crate::table_set::slot_edit::{Added, EntryAfter, Removed, SlotEdit};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use thermocline_device::Origin;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_index::Entry;
use thermocline_slab::{
    LiveSlots, Record, RecordKind as SlotKind, Reservation, SlabChange, SlabId, Slabs, SlotAddress,
    record_bytes,
};
use thermocline_table::{RecordKind, Trailer, key_hash};

/// A record on its way into a slot.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub key: Bytes,
    pub trailer: Trailer,
    /// As the slot is to have it.
    pub value: Stored,
    /// A table has the same record.
    pub clean: bool,
}

/// Records that are durable in slots, before an edit makes them live.
#[derive(Debug)]
pub(crate) struct Placed {
    pub added: Vec<Added>,
    pub reservation: Reservation,
}

/// Records that were written into slots, batch by batch, and are neither durable there nor live.
#[derive(Debug)]
pub(crate) struct Written {
    added: Vec<Added>,
    reservation: Reservation,
    /// Slabs to be synced.
    touched: BTreeSet<SlabId>,
}

impl Written {
    /// Makes the records durable where they are, still dead: each slab is synced once.
    pub fn sync(self, slabs: &Slabs) -> Result<Placed> {
        let touched: Vec<_> = self.touched.into_iter().collect();
        sync_site("slots", || slabs.sync(&touched))?;
        Ok(Placed { added: self.added, reservation: self.reservation })
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.added.len()
    }
}

impl Placed {
    /// Splits the first `count` records off, which are to become live before the rest.
    pub fn split_first(&mut self, count: usize) -> Self {
        let rest = self.added.split_off(count);
        let added = std::mem::replace(&mut self.added, rest);
        Self { added, reservation: self.reservation.split_first(count) }
    }
}

impl FastTier {
    /// Writes records, in key order, into free slots and makes them durable there, still dead. None
    /// where there is no room for all of them.
    pub fn write(&self, records: &[Arrival], origin: Origin) -> Result<Option<Placed>> {
        let mut written = None;
        if !self.write_more(&mut written, records, origin)? {
            return Ok(None);
        }
        written.map(|written| written.sync(&self.slabs)).transpose()
    }

    /// Writes records, in key order, into free slots, together with what is in `written` already.
    /// Returns false, with nothing changed, where there is no room for all of them.
    pub fn write_more(
        &self,
        written: &mut Option<Written>,
        records: &[Arrival],
        origin: Origin,
    ) -> Result<bool> {
        let sizes: Vec<u32> = records.iter().map(|record| record.bytes() as u32).collect();
        let first = if let Some(written) = written {
            if !written.reservation.extend(&sizes, origin)? {
                return Ok(false);
            }
            written.len()
        } else {
            let allocated = self.slabs.allocate_all(&sizes, origin)?;
            let Some(reservation) = allocated else { return Ok(false) };
            *written = Some(Written { added: Vec::new(), reservation, touched: BTreeSet::new() });
            0
        };
        let Some(written) = written else { return Ok(false) };
        let slots: Vec<SlotAddress> =
            written.reservation.slots()[first..].iter().flatten().copied().collect();
        let to_write: Vec<_> =
            slots.iter().zip(records).map(|(slot, record)| (*slot, record.as_record())).collect();
        written.touched.extend(self.slabs.write(&to_write)?);
        written.added.extend(records.iter().zip(&slots).zip(&sizes).map(
            |((record, slot), bytes)| Added {
                key: record.key.clone(),
                entry: record.entry(*slot, *bytes),
                succeeds: None,
            },
        ));
        Ok(true)
    }

    /// The changes of the slabs that `edit` makes, by file.
    pub fn changes(&self, live: &LiveSlots, edit: &SlotEdit) -> Vec<SlabChange> {
        type Slots = Vec<(u32, Sequence)>;
        let mut by_file: BTreeMap<FileNumber, (Slots, Slots)> = BTreeMap::new();
        // A new slab serves all records from now on, also where the edit needs no slot of it.
        for (file, _) in &edit.new_slabs {
            by_file.entry(*file).or_default();
        }
        let file = |slot: SlotAddress| self.slabs.file_number(slot.slab).unwrap_or_default();
        for new in &edit.added {
            let slot = SlotAddress::unpack(new.entry.slot);
            by_file.entry(file(slot)).or_default().0.push((slot.slot, new.entry.sequence));
        }
        for old in &edit.removed {
            let Some(slot) = old.slot else { continue };
            by_file.entry(file(slot)).or_default().1.push((slot.slot, old.sequence));
        }
        let shape = |file| edit.new_slabs.iter().find(|(new, _)| *new == file);
        let changes = by_file.iter().map(|(file, (added, removed))| {
            live.change(*file, shape(*file).map(|(_, shape)| *shape), added, removed)
        });
        changes.chain(edit.dropped.iter().map(|file| SlabChange::removal(*file))).collect()
    }

    /// The edit is durable: lets the records that were added be found, in the place of what they
    /// succeed. Call before readers lose what had them.
    pub fn arrive(&self, edit: &SlotEdit) {
        let records = edit.added.iter().map(|new| (&new.key, new.entry, new.succeeds));
        self.index.succeed_many(&records.collect::<Vec<_>>());
        if let Some(buckets) = &self.feedback.buckets {
            for new in edit.added.iter().filter(|new| !new.entry.clean) {
                buckets.insert_fast(&new.key, key_hash(&new.key), new.entry.record_bytes);
            }
        }
    }

    /// Takes the dead that nothing succeeded from the index, and gives the slots of all away. Call
    /// after readers can see what has them now.
    pub fn depart(&self, edit: &SlotEdit) {
        if edit.removed.is_empty() {
            return;
        }
        let is_born = |old: &Removed| {
            // The same record has another place: its entry names that already.
            let place = |new: &Added| {
                new.key.cmp(&old.key).then_with(|| old.sequence.cmp(&new.entry.sequence))
            };
            edit.added.binary_search_by(place).is_ok()
        };
        let (mut memory_only, mut gone) = (Vec::new(), Vec::new());
        for old in &edit.removed {
            match old.entry {
                EntryAfter::Succeeded => {}
                _ if is_born(old) => {}
                EntryAfter::MemoryOnly => {
                    memory_only.push((&old.key, Entry::in_memory(old.sequence)))
                }
                EntryAfter::Gone => gone.push((&old.key, old.sequence)),
            }
        }
        if edit.departs {
            self.index.announce_departures();
        }
        self.index.insert_many(&memory_only, |_, _| {});
        for (key, entry) in &memory_only {
            self.cache.unback(key, entry.sequence);
        }
        self.index.remove_many(&gone, |_, _| {});
        for (key, sequence) in &gone {
            self.cache.forget(key, *sequence);
        }
        if let Some(buckets) = self.feedback.buckets.as_ref().filter(|_| edit.departs) {
            let is_dirty = |key| self.index.get(key).is_some_and(|now| !now.clean);
            for old in edit.removed.iter().filter(|old| !is_dirty(&old.key)) {
                buckets.remove_fast(&old.key, key_hash(&old.key));
            }
        }
        let mut slots: Vec<_> = edit.removed.iter().filter_map(|old| old.slot).collect();
        if planted(Planted::SlotsFreedBeforeEdit) {
            // The bug is that they are free too early, not that they are freed twice.
            let mut freed = self.freed_early.lock();
            slots.retain(|slot| !freed.remove(slot));
        }
        self.slabs.free(&slots);
    }
}

impl Arrival {
    /// Bytes that it takes of its slot.
    pub fn bytes(&self) -> u64 {
        record_bytes(self.key.len(), self.value.bytes.len())
    }

    fn as_record(&self) -> Record<'_> {
        let kind = match self.trailer.kind() {
            RecordKind::Put => SlotKind::Put,
            RecordKind::Delete => SlotKind::Delete,
        };
        let Stored { bytes, packed } = &self.value;
        Record {
            key: &self.key,
            value: bytes,
            packed: *packed,
            sequence: self.trailer.sequence(),
            kind,
            clean: self.clean,
        }
    }

    fn entry(&self, slot: SlotAddress, record_bytes: u32) -> Entry {
        let kind = entry_kind(self.trailer.kind());
        let (sequence, clean) = (self.trailer.sequence(), self.clean);
        Entry { slot: slot.pack(), sequence, kind, clean, record_bytes }
    }
}
