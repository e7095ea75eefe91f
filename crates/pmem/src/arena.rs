//! Arenas: the write groups of one memtable, each of them durable after one fence.
//!
//! ```text
//! group   crc 4 | payload bytes 4 | first sequence 8 | durable 8 | count 4 | zero 4 | payload
//!         on lines of its own; the crc covers the rest, bound to the arena's number and the offset
//! ```
//! 1. A group is whole or it is absent: its checksum decides. The checksum is bound to the arena's
//!    number, which is never used again, so what an earlier arena left does not verify.
//! 2. [`Arena::write_all`] returns when its groups are durable. All of them need one fence: nothing
//!    points to a group but its place behind the one before.
//! 3. Groups are claimed in the order of their sequences and written side by side, so a crash may
//!    leave a later one without an earlier one. Replay ends at the first hole.
//! 4. Sequences have no holes, neither within an arena nor from one to the next: the header of an
//!    arena has the sequence of its first record. Sequences that no record needs are a group too.
//! 5. `durable` is the last sequence that was published when the group was laid out. A hole below
//!    the `durable` of a later group is damage, not a torn end.
//!
//! Threads: any may write what it claimed. Replay is of the one that opens the region.

use crate::chunks::{ChunkHeader, ChunkKind, Chunks, Extent};
use crate::layout::{CHUNK_HEADER_BYTES, LINE_BYTES, Owner, damaged};
use crate::persist::Medium;
use std::sync::Arc;
use thermocline_device::Result;
use thermocline_foundation::checksum::checksum_parts;
use thermocline_foundation::coding::{DecodeError, Decoder};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};

/// Bytes of a group before its payload.
pub const GROUP_HEADER_BYTES: usize = 32;

/// What a group is, besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The sequence of its first record.
    pub first: Sequence,
    /// Its records.
    pub count: u32,
    /// The last sequence published when it was laid out.
    pub durable: Sequence,
}

impl GroupHeader {
    /// The sequence of its last record.
    pub fn last(&self) -> Sequence {
        Sequence(self.first.0 + u64::from(self.count) - 1)
    }

    /// The group as it is at `at` of the arena `owner`.
    pub fn encode(&self, owner: &Owner, at: u64, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(GROUP_HEADER_BYTES + payload.len());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.first.0.to_le_bytes());
        bytes.extend_from_slice(&self.durable.0.to_le_bytes());
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(payload);
        let sum = sum(owner, at, &[&bytes[4..]]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

fn sum(owner: &Owner, at: u64, parts: &[&[u8]]) -> u32 {
    let mut place = owner.at(at);
    if planted(Planted::GroupNotBound) {
        place.file = FileNumber(0);
    }
    checksum_parts(&place, parts)
}

/// A group that verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What it is.
    pub header: GroupHeader,
    /// Where its payload begins.
    pub payload_at: u64,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Bytes of an arena that a group takes.
pub fn group_bytes(payload: usize) -> u64 {
    (GROUP_HEADER_BYTES as u64 + payload as u64).next_multiple_of(LINE_BYTES)
}

/// Room for one group, which must be written.
#[derive(Debug)]
pub struct Claim {
    at: u64,
    payload: usize,
}

impl Claim {
    /// Where the payload will begin.
    pub fn payload_at(&self) -> u64 {
        self.at + GROUP_HEADER_BYTES as u64
    }
}

/// The groups of one memtable.
#[derive(Debug)]
pub struct Arena {
    medium: Arc<Medium>,
    chunks: Arc<Chunks>,
    owner: Owner,
    extent: Extent,
    next: AtomicU64,
    freed: AtomicBool,
}

impl Arena {
    /// Takes chunks for `bytes` bytes of groups, the first of which will begin with `first`.
    /// `number` was never used before.
    pub fn create(
        (medium, chunks): (Arc<Medium>, Arc<Chunks>),
        region: &Owner,
        (number, first): (FileNumber, Sequence),
        bytes: u64,
    ) -> Result<Self> {
        let count = (bytes + CHUNK_HEADER_BYTES).div_ceil(chunks.chunk_bytes());
        let extent = chunks.allocate(ChunkHeader {
            kind: ChunkKind::Arena,
            chunks: u32::try_from(count).unwrap_or(u32::MAX),
            owner: number.0,
            first: first.0,
            ..ChunkHeader::ZERO
        })?;
        Ok(Self::new((medium, chunks), region, extent))
    }

    /// The arena that is in `extent`, to be replayed.
    pub fn new(
        (medium, chunks): (Arc<Medium>, Arc<Chunks>),
        region: &Owner,
        extent: Extent,
    ) -> Self {
        let number = FileNumber(extent.header.owner);
        let owner = Owner { database: region.database, number };
        let next = AtomicU64::new(extent.at + CHUNK_HEADER_BYTES);
        Self { medium, chunks, owner, extent, next, freed: AtomicBool::new(false) }
    }

    /// Its number.
    pub fn number(&self) -> FileNumber {
        self.owner.number
    }

    /// The sequence of its first record.
    pub fn first(&self) -> Sequence {
        Sequence(self.extent.header.first)
    }

    /// The bytes below.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    fn start(&self) -> u64 {
        self.extent.at + CHUNK_HEADER_BYTES
    }

    fn end(&self) -> u64 {
        self.extent.at + self.extent.bytes
    }

    /// Room for a group of `payload` bytes; none if the arena is full, and then for good.
    pub fn claim(&self, payload: usize) -> Option<Claim> {
        let bytes = group_bytes(payload);
        let after = |at: u64| at.checked_add(bytes).filter(|end| *end <= self.end());
        let claimed = self.next.fetch_update(Ordering::AcqRel, Ordering::Acquire, after);
        claimed.ok().map(|at| Claim { at, payload })
    }

    /// Bytes that groups can still take ([`group_bytes`]).
    pub fn room(&self) -> u64 {
        self.end() - self.next.load(Ordering::Acquire)
    }

    /// Writes the group; durable at return.
    pub fn write(&self, claim: &Claim, header: &GroupHeader, payload: &[u8]) {
        self.write_all(&[(claim, *header, payload)]);
    }

    /// Writes the groups, with one fence for all; durable at return. A power cut before that may
    /// leave any of them.
    pub fn write_all(&self, groups: &[(&Claim, GroupHeader, &[u8])]) {
        for (claim, header, payload) in groups {
            assert_eq!(claim.payload, payload.len(), "a group is as long as was claimed");
            debug_assert!(header.count > 0 && header.durable < header.first);
            let bytes = header.encode(&self.owner, claim.at, payload);
            self.medium.copy(claim.at, &bytes);
            let mut flushed = bytes.len() as u64;
            if planted(Planted::GroupLineNotFlushed) {
                flushed = (flushed - 1) / LINE_BYTES * LINE_BYTES;
            }
            self.medium.flush(claim.at, flushed);
        }
        if !planted(Planted::GroupBeforeFence) {
            self.medium.fence();
        }
    }

    /// As [`Arena::write_all`], with the fences that a skip list in persistent memory needs
    /// (SLM-DB, Algorithm 1), to compare with: four for each record, and a line more, for what
    /// links to it.
    pub fn write_linked(&self, groups: &[(&Claim, GroupHeader, &[u8])]) {
        let medium = &self.medium;
        for (claim, header, payload) in groups {
            for record in 0..header.count {
                medium.fence();
                match record {
                    0 => self.write(claim, header, payload),
                    _ => medium.fence(),
                }
                medium.fence();
                medium.flush(claim.at, 1);
                medium.fence();
            }
        }
    }

    /// The group at `at`; none where none verifies.
    pub fn group_at(&self, at: u64) -> Option<Group> {
        let bytes = group_length(&self.medium, at, self.end())?;
        decode(&self.medium.bytes_at(at, bytes), &self.owner, at)
    }

    /// A group verifies at its start.
    pub fn has_group(&self) -> bool {
        self.group_at(self.start()).is_some()
    }

    /// The groups from the start on, up to the first hole, and where that is. What follows is given
    /// up: no group is claimed there. May be asked again: an opening that finds no room for tables
    /// replays once more.
    fn groups(&self) -> (Vec<Group>, u64) {
        self.next.store(self.end(), Ordering::Release);
        let mut at = self.start();
        let (mut groups, mut next) = (Vec::new(), self.first());
        while let Some(group) = self.group_at(at).filter(|group| group.header.first == next) {
            next = group.header.last().next();
            at += group_bytes(group.payload.len());
            groups.push(group);
        }
        (groups, at)
    }

    /// A group at `at` or behind whose `durable` covers `next`.
    fn proof_of_loss(&self, at: u64, next: Sequence) -> Option<u64> {
        let lines = (at..self.end()).step_by(LINE_BYTES as usize);
        lines.into_iter().find(|at| {
            // The word is compared first: few lines are read in full.
            self.medium.load(at + 16) >= next.0
                && self.group_at(*at).is_some_and(|group| group.header.durable >= next)
        })
    }

    /// Bytes of its groups.
    pub fn used(&self) -> u64 {
        self.next.load(Ordering::Acquire) - self.start()
    }

    /// Reads all groups again, none of which is being written. Where the arena is freed meanwhile
    /// its chunks may have other bytes, which are no damage.
    pub fn verify(&self) -> Result<()> {
        let (mut at, end) = (self.start(), self.next.load(Ordering::Acquire));
        while at < end {
            let Some(group) = self.group_at(at) else {
                let why = format!("a group of arena {} does not match its checksum", self.number());
                let is_freed = self.freed.load(Ordering::Acquire);
                return if is_freed { Ok(()) } else { Err(damaged(at, why)) };
            };
            at += group_bytes(group.payload.len());
        }
        Ok(())
    }

    /// Gives its chunks back, once. No reader has it any more, and the manifest no longer needs it.
    pub fn free(&self) {
        let was_freed = self.freed.swap(true, Ordering::AcqRel);
        debug_assert!(!was_freed, "an arena is freed once");
        self.chunks.free(self.extent);
    }
}

fn group_length(medium: &Medium, at: u64, end: u64) -> Option<usize> {
    if at + LINE_BYTES > end {
        return None;
    }
    let payload = medium.load(at) >> 32;
    let bytes = GROUP_HEADER_BYTES as u64 + payload;
    (at + bytes <= end).then_some(bytes as usize)
}

/// What lies at `at` may be a group. Whether it is one is known with the number of its arena.
pub fn may_be_group(medium: &Medium, at: u64) -> bool {
    let [first, durable, count] = [8, 16, 24].map(|word| medium.load(at + word));
    let last = first.checked_add(count);
    group_length(medium, at, medium.bytes()).is_some()
        && durable < first
        && (1..=u64::from(u32::MAX)).contains(&count)
        && last.is_some_and(|last| last <= Sequence::MAX.0)
}

/// The group in `bytes`, which were read at `at` of the arena `owner`.
pub fn decode(bytes: &[u8], owner: &Owner, at: u64) -> Option<Group> {
    let (payload_bytes, header) = fields(bytes).ok()?;
    let payload = bytes.get(GROUP_HEADER_BYTES..)?.get(..payload_bytes)?;
    let stored = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let covered = &bytes[4..GROUP_HEADER_BYTES + payload_bytes];
    let is_whole = stored == sum(owner, at, &[covered])
        && header.count > 0
        && header.durable < header.first
        && header.first.0.checked_add(u64::from(header.count))? <= Sequence::MAX.0;
    let payload_at = at + GROUP_HEADER_BYTES as u64;
    is_whole.then(|| Group { header, payload_at, payload: payload.to_vec() })
}

fn fields(bytes: &[u8]) -> Result<(usize, GroupHeader), DecodeError> {
    let mut decoder = Decoder::new(bytes);
    decoder.u32()?;
    let payload = decoder.u32()? as usize;
    let (first, durable) = (Sequence(decoder.u64()?), Sequence(decoder.u64()?));
    let count = decoder.u32()?;
    decoder.u32()?;
    Ok((payload, GroupHeader { first, count, durable }))
}

/// The groups of `arenas`, which are in the order of their numbers, up to the first hole, and the
/// sequence that is missing there. Damage is an error; a torn end is not.
pub fn replay(arenas: &[Arena]) -> Result<(Vec<Vec<Group>>, Option<Sequence>)> {
    debug_assert!(arenas.is_sorted_by_key(Arena::number));
    let (mut missing, mut replayed, mut ends) = (None, Vec::new(), Vec::new());
    for arena in arenas {
        let (mut groups, end) = arena.groups();
        // A hole at the end of an earlier arena hides what later ones have.
        if missing.is_some_and(|missing| missing != arena.first()) {
            groups.clear();
        } else {
            let last = groups.last().map(|group| group.header.last().next());
            missing = Some(last.unwrap_or(arena.first()));
        }
        ends.push(end);
        replayed.push(groups);
    }
    let Some(sequence) = missing else {
        return Ok((replayed, None));
    };
    for (arena, end) in arenas.iter().zip(ends) {
        // Of an arena that is hidden whole the groups are looked at too.
        let from = if arena.first() > sequence { arena.start() } else { end };
        if let Some(at) = arena.proof_of_loss(from, sequence) {
            let why = format!("a group that was durable is not there: sequence {sequence}");
            return Err(damaged(at, why));
        }
    }
    Ok((replayed, missing))
}
