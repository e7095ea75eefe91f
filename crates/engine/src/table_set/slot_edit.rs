//! What an edit changes in the slots of the fast tier, beside tables: records that are in slots
//! from now on, and records that lose theirs.

use bytes::Bytes;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_index::Entry;
use thermocline_slab::{SlabShape, SlotAddress};

/// A record of which the index is to know.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub key: Bytes,
    pub entry: Entry,
    /// An older version of the key, among the dead, whose place in the index it takes.
    pub succeeds: Option<Sequence>,
}

/// A record whose slot is free once the edit is durable.
#[derive(Clone, Debug)]
pub(crate) struct Removed {
    pub key: Bytes,
    pub sequence: Sequence,
    /// None where the record was in memory only.
    pub slot: Option<SlotAddress>,
    pub entry: EntryAfter,
}

/// What becomes of the entry of a record that loses its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryAfter {
    /// It goes, unless the same record was added in another place.
    Gone,
    /// Memory has the record, which is in memory only from then on: tables have it too.
    MemoryOnly,
    /// One of the added succeeds it, and memory knows.
    Succeeded,
}

impl Removed {
    /// The record that `entry` speaks of.
    pub fn new(key: Bytes, entry: &Entry) -> Self {
        Self { key, sequence: entry.sequence, slot: slot_of(entry), entry: EntryAfter::Gone }
    }
}

/// Where the record of an entry is; none where it is in memory only.
pub(crate) fn slot_of(entry: &Entry) -> Option<SlotAddress> {
    entry.has_slot().then(|| SlotAddress::unpack(entry.slot))
}

/// What an edit changes on the fast tier.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotEdit {
    pub added: Vec<Added>,
    pub removed: Vec<Removed>,
    /// The dead are in tables now: readers must look there once they are gone from the index.
    pub departs: bool,
    /// Slabs made for the added.
    pub new_slabs: Vec<(FileNumber, SlabShape)>,
    /// Slabs without a live slot, to be deleted.
    pub dropped: Vec<FileNumber>,
}
