//! A memtable whose records are durable in the region: an arena of groups, and a skip list in
//! ordinary memory that points into it (SLM-DB, section 3.1, without the fences between the writes
//! of a group).
//!
//! ```text
//!   write_group   room, copy, flush, fence (the group is durable), insert; the caller publishes
//!   recover       the groups that verify, inserted again
//! ```
//! 1. A record is in the list only after its group is durable. A group is in it whole before the
//!    caller publishes its sequences; readers pass the last sequence that was published.
//! 2. The list keeps keys and the places of values. Values are copied out of the region.
//! 3. The payload of a group is one batch (docs/formats/batch.md).
//!
//! Threads: any. Groups may be written side by side, each after its room was claimed in the order
//! of the sequences.

use crate::arena::{Arena, Claim, Group, GroupHeader};
use crate::layout::damaged;
use crossbeam_skiplist::SkipMap;
use std::cmp::Reverse;
use thermocline_device::Result;
use thermocline_foundation::coding::{DecodeError, Decoder, put_bytes};
use thermocline_foundation::{FileNumber, Sequence};

const BATCH_VERSION: u8 = 1;
const KIND_DELETE: u8 = 0;
const KIND_PUT: u8 = 1;

/// One record of a group: a key with its new value, or none where it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: Option<&'a [u8]>,
}

/// What a memtable has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The record's sequence.
    pub sequence: Sequence,
    /// The value; none if the key was deleted.
    pub value: Option<Vec<u8>>,
}

/// Keys ascend, and of one key the newest comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RecordKey {
    key: Box<[u8]>,
    sequence: Reverse<Sequence>,
}

/// Where a value is; none for a deleted key.
type ValuePlace = Option<(u64, u32)>;

/// The batch of some writes, and where in it each value begins.
#[derive(Debug)]
pub struct EncodedGroup<'a> {
    writes: &'a [Write<'a>],
    payload: Vec<u8>,
    values_at: Vec<usize>,
}

impl<'a> EncodedGroup<'a> {
    /// Encodes `writes`, of which there is at least one.
    pub fn new(writes: &'a [Write<'a>]) -> Self {
        assert!(!writes.is_empty(), "a group has a record");
        let (mut payload, mut values_at) = (vec![BATCH_VERSION], Vec::new());
        for write in writes {
            payload.push(if write.value.is_some() { KIND_PUT } else { KIND_DELETE });
            put_bytes(&mut payload, write.key);
            let value = write.value.unwrap_or_default();
            if write.value.is_some() {
                put_bytes(&mut payload, value);
            }
            values_at.push(payload.len() - value.len());
        }
        Self { writes, payload, values_at }
    }
}

/// A memtable of the region.
#[derive(Debug)]
pub struct PersistentMemtable {
    arena: Arena,
    records: SkipMap<RecordKey, ValuePlace>,
}

impl PersistentMemtable {
    /// An empty one over a new arena.
    pub fn new(arena: Arena) -> Self {
        Self { arena, records: SkipMap::new() }
    }

    /// The one that had these groups, as [`crate::arena::replay`] found them.
    pub fn recover(arena: Arena, groups: &[Group]) -> Result<Self> {
        let memtable = Self::new(arena);
        for group in groups {
            let at = group.payload_at;
            memtable.insert_batch(group).map_err(|error| damaged(at, error))?;
        }
        Ok(memtable)
    }

    /// The number of its arena.
    pub fn number(&self) -> FileNumber {
        self.arena.number()
    }

    /// Room for a group; none if there is none left, and then this memtable is to be frozen. Rooms
    /// are claimed in the order of the groups' sequences.
    pub fn claim(&self, group: &EncodedGroup<'_>) -> Option<Claim> {
        self.arena.claim(group.payload.len())
    }

    /// Writes a group whose records have the sequences from `first` on; `published` is the last
    /// sequence that readers see. The group is durable at return, and can be published.
    pub fn write_group(
        &self,
        claim: &Claim,
        group: &EncodedGroup<'_>,
        first: Sequence,
        published: Sequence,
    ) {
        let count = group.writes.len() as u32;
        let header = GroupHeader { first, count, durable: published };
        self.arena.write(claim, &header, &group.payload);
        let places = group.writes.iter().zip(&group.values_at);
        for (index, (write, value_at)) in places.enumerate() {
            let sequence = Sequence(first.0 + index as u64);
            let at = claim.payload_at() + *value_at as u64;
            self.insert(write.key, sequence, write.value.map(|value| (at, value.len() as u32)));
        }
    }

    fn insert(&self, key: &[u8], sequence: Sequence, place: ValuePlace) {
        let key = RecordKey { key: key.into(), sequence: Reverse(sequence) };
        self.records.insert(key, place);
    }

    fn insert_batch(&self, group: &Group) -> Result<(), DecodeError> {
        let mut decoder = Decoder::new(&group.payload);
        let mut sequence = group.header.first;
        if decoder.u8()? != BATCH_VERSION {
            return Err(DecodeError::Overflow);
        }
        while !decoder.is_empty() {
            let kind = decoder.u8()?;
            let key = decoder.bytes()?;
            let place = match kind {
                KIND_PUT => {
                    let value = decoder.bytes()?;
                    let end = group.payload.len() - decoder.rest().len();
                    let at = group.payload_at + (end - value.len()) as u64;
                    Some((at, value.len() as u32))
                }
                KIND_DELETE => None,
                _ => return Err(DecodeError::Overflow),
            };
            self.insert(key, sequence, place);
            sequence = sequence.next();
        }
        Ok(())
    }

    fn value(&self, place: ValuePlace) -> Option<Vec<u8>> {
        place.map(|(at, bytes)| self.arena.medium().bytes_at(at, bytes as usize))
    }

    /// The newest record of `key` that is not newer than `visible`.
    pub fn get(&self, key: &[u8], visible: Sequence) -> Option<Found> {
        let from = RecordKey { key: key.into(), sequence: Reverse(visible) };
        let entry = self.records.lower_bound(std::ops::Bound::Included(&from))?;
        let found = entry.key();
        (*found.key == *key)
            .then(|| Found { sequence: found.sequence.0, value: self.value(*entry.value()) })
    }

    /// All records, by key and then the newest first, those too new for `visible` left out.
    pub fn records(&self, visible: Sequence) -> impl Iterator<Item = (Vec<u8>, Found)> + '_ {
        let seen = self.records.iter().filter(move |entry| entry.key().sequence.0 <= visible);
        seen.map(move |entry| {
            let RecordKey { key, sequence } = entry.key();
            let found = Found { sequence: sequence.0, value: self.value(*entry.value()) };
            (key.to_vec(), found)
        })
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// There is no record.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Gives the arena's chunks back: tables have all records, and an edit says so.
    pub fn free(self) {
        self.arena.free();
    }
}
