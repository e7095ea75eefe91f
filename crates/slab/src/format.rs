//! The bytes of a slab, as docs/formats/slab.md draws them: header page and slots.
//!
//! ```text
//! file    | header page 4096 | slot 0 | slot 1 | ... | unused, less than a page |
//! slot    | checksum 4 | value bytes 4 | sequence << 8 | kind 8 | key bytes 3 | flags 1 | key
//!         | value | not looked at, up to the size of the slot |
//! ```
//! A slab of a single record has one slot, in whole pages, as its shape tells
//! ([`SlabShape::is_single`]); nothing else about it differs.
//!
//! A device writes sectors of 512 bytes whole or not at all, and slots do not end where sectors do.
//! So a sector may hold the end of a live slot and the start of one that is being written. It is
//! always written with *the same bytes* for the live slot: the sector goes from one state to
//! another, and the live slot is the same in both, whichever survives a power cut.
//!
//! Invariants:
//! 1. A slot's checksum is bound to database, file number and offset of the slot, and covers all
//!    that is used of it.
//! 2. Nothing of a slot is believed before its checksum matched, but its lengths, which say what
//!    the checksum covers and are checked against the slot.
//! 3. Encoding and decoding live side by side here; no other file knows an offset inside a slot.
//!
//! Pure functions; callable from any thread.

use crate::live::SlabShape;
use crate::packed::{is_plain, unpack};
use bytes::Bytes;
use std::fmt;
use thermocline_device::Buffer;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::coding::{Decoder, is_zero};
use thermocline_foundation::{FileNumber, Place, Planted, Sequence, planted};

/// Bytes of the header page; the first slot follows.
pub const HEADER_BYTES: u64 = PAGE_BYTES as u64;
/// Bytes of a slot before its key.
pub const SLOT_HEADER_BYTES: usize = 20;
/// Largest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// Version of the format, in the header page.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"TCLNSLAB";
const CLEAN: u8 = 1;
const PACKED: u8 = 2;
const SUM_AT: usize = PAGE_BYTES - 4;

/// Bytes that a record takes of its slot: what [`crate::SizeClasses::class_of`] wants to know. Of
/// the value those that are stored.
pub const fn record_bytes(key_bytes: usize, value_bytes: usize) -> u64 {
    SLOT_HEADER_BYTES as u64 + key_bytes as u64 + value_bytes as u64
}

/// What a record says of its key. Stored in a byte; one that is not listed here is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RecordKind {
    /// The key has no value from this sequence on: a tombstone.
    Delete = 0,
    /// The key has the record's value.
    Put = 1,
}

/// A record to be written into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The key, at most [`KEY_BYTES_MAX`] long.
    pub key: &'a [u8],
    /// The value as it is to be stored; empty for a tombstone.
    pub value: &'a [u8],
    /// The value is packed ([`crate::packed`]).
    pub packed: bool,
    /// When it was written.
    pub sequence: Sequence,
    /// What it says.
    pub kind: RecordKind,
    /// It is a copy of what a table has, and can be dropped for nothing.
    pub clean: bool,
}

impl Record<'_> {
    /// Bytes that the record takes of its slot.
    pub fn bytes(&self) -> u64 {
        record_bytes(self.key.len(), self.value.len())
    }

    /// Writes the record to the start of `out`, sealed for the slot at `place`; what lies behind it
    /// stays. The caller has chosen a slot that is large enough.
    pub fn encode(&self, place: &Place, out: &mut [u8]) {
        let bytes = self.bytes() as usize;
        assert!(bytes <= out.len(), "a record fits its slot");
        copy_part(&self.seal(place), self, 0, &mut out[..bytes]);
    }

    /// What a slot at `place` has before the record's key. It reads all of the record once, for its
    /// checksum.
    pub(crate) fn seal(&self, place: &Place) -> [u8; SLOT_HEADER_BYTES] {
        assert!(self.key.len() <= KEY_BYTES_MAX, "a record fits its slot");
        let is_tombstone = self.kind == RecordKind::Delete;
        assert!(!is_tombstone || self.value.is_empty() && !self.packed, "tombstones have no value");
        assert!(self.sequence <= Sequence::MAX, "a sequence has 56 bits");
        let mut head = [0; SLOT_HEADER_BYTES];
        let word = self.sequence.0 << 8 | self.kind as u64;
        head[4..8].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&word.to_le_bytes());
        head[16..19].copy_from_slice(&(self.key.len() as u32).to_le_bytes()[..3]);
        head[19] = if self.clean { CLEAN } else { 0 } | if self.packed { PACKED } else { 0 };
        let sum = checksum_parts(place, &[&head[4..], self.key, self.value]);
        head[..4].copy_from_slice(&sum.to_le_bytes());
        head
    }
}

/// Fills `out` with the bytes of a slot from `from` on: its sealed head, then key and value. No
/// more of the record is looked at than is copied.
pub(crate) fn copy_part(head: &[u8], record: &Record<'_>, from: u64, out: &mut [u8]) {
    let (mut start, mut done) = (from as usize, 0);
    for part in [head, record.key, record.value] {
        let rest = part.get(start..).unwrap_or_default();
        let count = rest.len().min(out.len() - done);
        out[done..done + count].copy_from_slice(&rest[..count]);
        start = start.saturating_sub(part.len());
        done += count;
    }
    assert!(done == out.len(), "a part of a record ends in it");
}

/// A record that was read from a slot and verified. It shares the memory that it was read into,
/// which does not count when two are compared.
#[derive(Clone)]
pub struct Slot {
    bytes: Bytes,
    key_bytes: u32,
    /// Bytes of the buffer behind `bytes`.
    memory_bytes: usize,
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Slot {}

impl Slot {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.bytes[SLOT_HEADER_BYTES..][..self.key_bytes as usize]
    }

    /// The value as it is stored; empty for a tombstone.
    pub fn stored(&self) -> &[u8] {
        &self.bytes[SLOT_HEADER_BYTES + self.key_bytes as usize..]
    }

    /// The value as it is stored, sharing the slot's memory.
    pub fn shared_stored(&self) -> Bytes {
        self.bytes.slice(SLOT_HEADER_BYTES + self.key_bytes as usize..)
    }

    /// The value as it is stored, in memory that is not much larger: shared where the buffer holds
    /// little else, copied otherwise (a small slot was read with the pages around it).
    pub fn compact_stored(&self) -> Bytes {
        let stored = self.shared_stored();
        if self.memory_bytes - stored.len() <= stored.len() / 8 {
            return stored;
        }
        Bytes::copy_from_slice(&stored)
    }

    /// The value, sharing the slot's memory where it can. For a caller that is soon done with it; a
    /// caller that keeps it takes [`Slot::compact_value`].
    ///
    /// # Errors
    /// The slot is intact, and its packed value is not one.
    pub fn shared_value(&self) -> Result<Bytes, Broken> {
        let stored = self.shared_stored();
        if self.is_packed() { unpack(stored) } else { Ok(stored) }
    }

    /// The value in memory that is not much larger.
    ///
    /// # Errors
    /// As [`Slot::shared_value`].
    pub fn compact_value(&self) -> Result<Bytes, Broken> {
        match self.is_packed() {
            true if is_plain(self.stored()) => unpack(self.compact_stored()),
            true => self.shared_value(),
            false => Ok(self.compact_stored()),
        }
    }

    fn word(&self) -> u64 {
        self.bytes[8..].first_chunk().copied().map_or(0, u64::from_le_bytes)
    }

    /// When the record was written.
    pub fn sequence(&self) -> Sequence {
        Sequence(self.word() >> 8)
    }

    /// What the record says.
    pub fn kind(&self) -> RecordKind {
        if self.word() & 0xff == 0 { RecordKind::Delete } else { RecordKind::Put }
    }

    /// The record is a copy of what a table has.
    pub fn is_clean(&self) -> bool {
        self.bytes[19] & CLEAN != 0
    }

    /// The value is packed ([`crate::packed`]).
    pub fn is_packed(&self) -> bool {
        self.bytes[19] & PACKED != 0
    }

    /// Bytes that the record takes of its slot.
    pub fn record_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The record, to be written elsewhere.
    pub fn record(&self) -> Record<'_> {
        Record {
            key: self.key(),
            value: self.stored(),
            packed: self.is_packed(),
            sequence: self.sequence(),
            kind: self.kind(),
            clean: self.is_clean(),
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (self.key().escape_ascii(), self.stored().len());
        write!(f, "Slot({key} at {}, {value} bytes stored)", self.sequence())
    }
}

/// What is wrong with the bytes of a slot.
pub type Broken = &'static str;

/// Bytes that the record at the start of `bytes` says it takes; at least [`SLOT_HEADER_BYTES`] must
/// be there. Not verified: it says only how much to verify.
pub(crate) fn claimed_bytes(bytes: &[u8]) -> Result<u64, Broken> {
    let mut decoder = Decoder::new(bytes);
    let short = |_| "the slot ends in its header";
    decoder.u32().map_err(short)?;
    let value_bytes = decoder.u32().map_err(short)?;
    decoder.u64().map_err(short)?;
    let key: [u8; 3] = decoder.array().map_err(short)?;
    Ok(record_bytes(key_bytes(key) as usize, value_bytes as usize))
}

/// The checksum of what follows it in a slot at `place`.
pub(crate) fn sum_of(place: &Place, body: &[u8]) -> [u8; 4] {
    checksum(place, body).to_le_bytes()
}

fn key_bytes([low, middle, high]: [u8; 3]) -> u32 {
    u32::from_le_bytes([low, middle, high, 0])
}

/// The record at the start of `bytes`, which begin at `place` and hold at least all of it.
/// `memory_bytes` is what the memory behind them takes.
pub(crate) fn decode(place: &Place, bytes: &Bytes, memory_bytes: usize) -> Result<Slot, Broken> {
    let claimed = claimed_bytes(bytes)?;
    let used = usize::try_from(claimed).ok().filter(|used| *used <= bytes.len());
    let used = used.ok_or("its lengths are beyond its slot")?;
    let Some((sum, body)) = bytes[..used].split_first_chunk::<4>() else {
        return Err("the slot ends in its header");
    };
    let sound = checksum(place, body) == u32::from_le_bytes(*sum);
    if !sound && !planted(Planted::SlotChecksumNotChecked) {
        return Err("its checksum does not match");
    }
    let key_bytes = key_bytes([bytes[16], bytes[17], bytes[18]]);
    if key_bytes as usize > KEY_BYTES_MAX {
        return Err("its key is longer than any can be");
    }
    let (kind, flags) = (bytes[8], bytes[19]);
    let has_value = used > SLOT_HEADER_BYTES + key_bytes as usize;
    if kind > RecordKind::Put as u8 || (kind == RecordKind::Delete as u8 && has_value) {
        return Err("it is of no known kind");
    }
    if flags & !(CLEAN | PACKED) != 0 || flags & PACKED != 0 && kind == RecordKind::Delete as u8 {
        return Err("reserved flags are in use");
    }
    Ok(Slot { bytes: bytes.slice(..used), key_bytes, memory_bytes })
}

/// The header page of a slab of this shape, sealed for `place` (offset 0 of the file).
pub(crate) fn encode_header(place: &Place, shape: SlabShape) -> Buffer {
    let mut page = Buffer::zeroed(PAGE_BYTES);
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&shape.slot_bytes.to_le_bytes());
    page[16..20].copy_from_slice(&shape.slots.to_le_bytes());
    page[24..32].copy_from_slice(&place.file.0.to_le_bytes());
    seal_header(place, &mut page);
    page
}

/// Why a header page is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Broken(Broken),
    /// A later version of the format.
    Newer(u32),
}

/// The shape that a header page tells, which was read from `place` (offset 0 of its file).
pub(crate) fn decode_header(place: &Place, page: &[u8]) -> Result<SlabShape, BadHeader> {
    if page.len() != PAGE_BYTES {
        return Err(BadHeader::Broken("it has no header page"));
    }
    if checksum(place, &page[..SUM_AT]).to_le_bytes() != page[SUM_AT..] {
        return Err(BadHeader::Broken("the header page's checksum does not match"));
    }
    let mut decoder = Decoder::new(page);
    let short = |_| BadHeader::Broken("the header page is too short");
    let magic: [u8; 8] = decoder.array().map_err(short)?;
    let version = decoder.u32().map_err(short)?;
    if magic == MAGIC && version > VERSION {
        return Err(BadHeader::Newer(version));
    }
    let slot_bytes = decoder.u32().map_err(short)?;
    let slots = decoder.u32().map_err(short)?;
    let reserved = decoder.u32().map_err(short)?;
    let number = FileNumber(decoder.u64().map_err(short)?);
    let shape = SlabShape { slot_bytes, slots };
    let known = magic == MAGIC && version == VERSION && number == place.file;
    if !known || reserved != 0 || !is_zero(&page[32..SUM_AT]) || shape.check().is_err() {
        return Err(BadHeader::Broken("the header page is not a slab's"));
    }
    Ok(shape)
}

/// Puts the checksum that belongs there on a header page, or does nothing to fewer bytes.
pub(crate) fn seal_header(place: &Place, page: &mut [u8]) {
    if page.len() == PAGE_BYTES {
        let sum = checksum(place, &page[..SUM_AT]);
        page[SUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }
}
