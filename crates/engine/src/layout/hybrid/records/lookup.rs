//! Looking keys up on the fast tier.
//!
//! The index says where a record is; the cache or the slot has it. No pin is taken: a slot that was
//! given to another record meanwhile holds another key or sequence, or does not verify while it is
//! being written. Then frees are held, and the index is asked again: what it says from here on is
//! in its slot until they are let go, or the slot is damaged. That the index says the same as
//! before would prove nothing, for the record may have had the slot back in between and lost it
//! again. A record that is in memory only and was given up there is for the tables to find, as one
//! that the index does not know.

use crate::error::{Error, Result};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::records::packing::Stored;
use crate::table_set::slot_edit::slot_of;
use bytes::Bytes;
use thermocline_foundation::Sequence;
use thermocline_index::{Entry, EntryKind};
use thermocline_slab::{Broken, RecordKind as SlotKind, Slot, SlotAddress};
use thermocline_table::{RecordKind, Trailer, key_hash};

/// Records of a merge that are read in one batch.
const FETCHED_AT_ONCE: usize = 256;

/// What reads a batch of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Each key was asked for.
    LookUp,
    /// They lie on the way, which says nothing of any of them.
    Cursor,
}

/// The trailer that the record of an entry has in memtables and tables.
pub(crate) fn trailer_of(entry: &Entry) -> Trailer {
    let kind = match entry.kind {
        EntryKind::Put => RecordKind::Put,
        EntryKind::Delete => RecordKind::Delete,
    };
    Trailer::new(entry.sequence, kind)
}

/// The kind of a record, as the index has it.
pub(crate) fn entry_kind(kind: RecordKind) -> EntryKind {
    match kind {
        RecordKind::Put => EntryKind::Put,
        RecordKind::Delete => EntryKind::Delete,
    }
}

/// The kind of a slot's record, as memtables and tables have it.
pub(crate) fn kind_of(slot: &Slot) -> RecordKind {
    match slot.kind() {
        SlotKind::Put => RecordKind::Put,
        SlotKind::Delete => RecordKind::Delete,
    }
}

/// What is read for an entry that names a slot.
fn read_of(entry: &Entry) -> (SlotAddress, u32) {
    (SlotAddress::unpack(entry.slot), entry.record_bytes)
}

/// What a slot holds is what the index said, under the key that was asked for.
fn is_record(slot: &Slot, key: &[u8], entry: &Entry) -> bool {
    slot.key() == key && slot.sequence() == entry.sequence
}

impl FastTier {
    /// What the index says of `key`: its newest version, or the newest at or before `snapshot`.
    pub fn entry(&self, key: &[u8], snapshot: Option<Sequence>) -> Option<Entry> {
        match snapshot {
            Some(snapshot) => self.index.get_at(key, snapshot),
            None => self.index.get(key),
        }
    }

    /// The newest version of `key` on the fast tier, at or before `snapshot` where there is one.
    pub fn get(&self, key: &[u8], snapshot: Option<Sequence>) -> Result<Option<(Trailer, Bytes)>> {
        self.get_once(key, snapshot).or_else(|_| {
            let _held = self.slabs.delay_slot_reuse();
            self.get_once(key, snapshot).map_err(|error| error.of_key(key))
        })
    }

    /// As [`FastTier::get`]; an error also where the slot was given away.
    fn get_once(&self, key: &[u8], snapshot: Option<Sequence>) -> Result<Option<(Trailer, Bytes)>> {
        let Some(entry) = self.entry(key, snapshot) else { return Ok(None) };
        let trailer = trailer_of(&entry);
        if let Some(value) = self.value_at_hand(key, &entry) {
            return Ok(Some((trailer, value)));
        }
        let Some(slot) = slot_of(&entry) else { return Ok(None) };
        match self.slabs.read(slot, entry.record_bytes) {
            Ok(slot) if is_record(&slot, key, &entry) => {
                self.note_slot_read(key);
                let value = self.keep(key, &entry, &slot);
                Ok(Some((trailer, value.map_err(|why| self.broken(&entry, why))?)))
            }
            read => Err(self.damage(&entry, read.err())),
        }
    }

    /// The value, where no slot must be read for it.
    pub fn value_at_hand(&self, key: &[u8], entry: &Entry) -> Option<Bytes> {
        match entry.kind {
            EntryKind::Delete => Some(Bytes::new()),
            EntryKind::Put => self.value_kept(entry, self.cache.get(key, entry.sequence)?),
        }
    }

    /// [`FastTier::value_at_hand`] for each of these.
    fn values_at_hand(&self, wanted: &[(&[u8], Entry)]) -> Vec<Option<Bytes>> {
        let puts = wanted.iter().filter(|(_, entry)| entry.kind == EntryKind::Put);
        let keys: Vec<_> = puts.map(|(key, entry)| (*key, entry.sequence)).collect();
        let mut kept = self.cache.get_many(&keys).into_iter();
        let value = |(_, entry): &(&[u8], Entry)| match entry.kind {
            EntryKind::Delete => Some(Bytes::new()),
            EntryKind::Put => self.value_kept(entry, kept.next().flatten()?),
        };
        wanted.iter().map(value).collect()
    }

    /// The value of a record that memory has.
    fn value_kept(&self, entry: &Entry, kept: Bytes) -> Option<Bytes> {
        let value = self.packing.value_in_memory(kept)?;
        self.note_read(entry);
        Some(value)
    }

    /// Values of records, read in one batch where they are not at hand; none where a slot does not
    /// hold what the index said, which is for the caller to ask again ([`FastTier::get`]).
    pub fn values(&self, wanted: &[(&[u8], Entry)], reader: Reader) -> Vec<Option<Bytes>> {
        let mut values = self.values_at_hand(wanted);
        let missing: Vec<_> = (0..wanted.len())
            .filter(|at| values[*at].is_none() && wanted[*at].1.has_slot())
            .collect();
        if missing.is_empty() {
            return values;
        }
        let read = |at: &usize| read_of(&wanted[*at].1);
        let reads: Vec<_> = missing.iter().map(read).collect();
        for (at, read) in missing.into_iter().zip(self.slabs.read_batch(&reads)) {
            let (key, entry) = &wanted[at];
            let slot = read.ok().filter(|slot| is_record(slot, key, entry));
            if slot.is_some() && reader == Reader::LookUp {
                self.note_slot_read(key);
            }
            values[at] = slot.and_then(|slot| self.keep(key, entry, &slot).ok());
        }
        values
    }

    /// The entry of the same record as `entry`, wherever its slot is now; none where it left.
    pub fn same_record(&self, key: &[u8], entry: &Entry) -> Option<Entry> {
        self.index.get_at(key, entry.sequence).filter(|now| now.sequence == entry.sequence)
    }

    /// Values of records, as slots have them, for a merge, which goes once through many and keeps
    /// none in memory; none where a record left the index meanwhile. They are read in the order of
    /// their slots, so the more there are, the more of them share a read.
    pub fn fetch(&self, wanted: &[(&[u8], Entry)]) -> Result<Vec<Option<Stored>>> {
        let mut order: Vec<_> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(|at| wanted[*at].1.slot);
        let mut values = vec![None; wanted.len()];
        for part in order.chunks(FETCHED_AT_ONCE) {
            let reads: Vec<_> = part.iter().map(|at| read_of(&wanted[*at].1)).collect();
            for (at, read) in part.iter().zip(self.slabs.read_batch(&reads)) {
                let (key, entry) = &wanted[*at];
                values[*at] = match read {
                    // Not with what lies around it, of which there would soon be too much.
                    Ok(slot) if is_record(&slot, key, entry) => Some(Stored::of(&slot)),
                    _ => self.fetch_again(key, entry)?,
                };
            }
        }
        Ok(values)
    }

    /// The slot had something else: the record was replaced, or moved to another slot.
    fn fetch_again(&self, key: &[u8], entry: &Entry) -> Result<Option<Stored>> {
        let _held = self.slabs.delay_slot_reuse();
        let Some(now) = self.same_record(key, entry) else { return Ok(None) };
        let (slot, bytes) = read_of(&now);
        match self.slabs.read(slot, bytes) {
            Ok(slot) if is_record(&slot, key, &now) => Ok(Some(Stored::of(&slot))),
            read => Err(self.damage(&now, read.err())),
        }
    }

    /// A reader gets the record of `entry`.
    fn note_read(&self, entry: &Entry) {
        if entry.clean {
            self.feedback.copies.read.add(1);
        }
    }

    /// The slot of a record was read for a look-up, which has not touched the tracker yet.
    fn note_slot_read(&self, key: &[u8]) {
        let was_tracked = self.popularity.value(key_hash(key)).is_some();
        if self.feedback.slot_reads.note_read(was_tracked) {
            self.judge_slots();
        }
    }

    fn keep(&self, key: &[u8], entry: &Entry, slot: &Slot) -> Result<Bytes, Broken> {
        self.note_read(entry);
        if entry.clean {
            self.feedback.copies.served.add(1);
        }
        // Callers may keep it: not with the slots around it.
        let value = slot.compact_value()?;
        // Where one record is as good as another, it should push out none that has no slot.
        let (sequence, bytes) = (entry.sequence, slot.stored().len());
        if self.feedback.slot_reads.reads_recur() || self.cache.has_room(key, sequence, bytes) {
            let kept = || self.packing.slot_for_memory(slot, &value);
            self.spill_evicted(self.cache.insert_backed(key, sequence, bytes, kept));
        }
        Ok(value)
    }

    /// The slot of a record is intact, and its value is not as it says.
    pub fn broken(&self, entry: &Entry, why: Broken) -> Error {
        let place = self.slabs.describe(SlotAddress::unpack(entry.slot));
        Error::corrupt(format!("{place}: {why}; restore the database from a checkpoint"))
    }

    fn damage(&self, entry: &Entry, error: Option<thermocline_device::Error>) -> Error {
        let address = SlotAddress::unpack(entry.slot);
        let place = self.slabs.describe(address);
        match error {
            Some(error) => error.into(),
            None => Error::corrupt(format!(
                "{place} holds another record than that of sequence {}, which the index knows \
                 there; restore the database from a checkpoint",
                entry.sequence
            )),
        }
    }
}
