//! Objects: where a key's newest record is, or the key that separates two leaves.
//!
//! ```text
//! crc 4 | key length 3 | class 1 | trailer 8 | table 5 | block offset 5 | block length 4 | key
//!          rounded up to the size of its class
//! ```
//! 1. An object never changes while a node names it. An update makes a new one.
//! 2. The checksum covers header and key and is bound to the place.
//! 3. The trailer is a sequence and a kind (sequence << 8 | kind), as in tables. A separator has no
//!    trailer and no table; a tombstone that no table holds any more has no table.

use crate::layout::{Owner, damaged};
use crate::persist::Medium;
use thermocline_device::Result;
use thermocline_foundation::FileNumber;
use thermocline_foundation::checksum::checksum;

/// Bytes before the key.
pub const OBJECT_HEADER_BYTES: usize = 30;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Tables and blocks have numbers of 40 bits here.
const FORTY_BITS: u64 = (1 << 40) - 1;

/// Classes of sizes.
pub const CLASSES: usize = 70;
const SIZES: [u32; CLASSES] = sizes();

/// Each size is an eighth above the one before, in whole words.
const fn sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let (mut index, mut bytes) = (0, 40u32);
    while index < CLASSES {
        sizes[index] = bytes;
        let step = bytes / 8 / 8 * 8;
        bytes += if step > 8 { step } else { 8 };
        index += 1;
    }
    sizes
}

const _: () = assert!(SIZES[CLASSES - 1] as usize >= KEY_BYTES_MAX + OBJECT_HEADER_BYTES);

/// The smallest class that has room for `bytes`; none if none has.
pub fn class_for(bytes: usize) -> Option<u8> {
    let class = SIZES.partition_point(|size| (*size as usize) < bytes);
    (class < CLASSES).then_some(class as u8)
}

/// Bytes of an object of a class.
pub fn class_bytes(class: u8) -> Option<u64> {
    SIZES.get(usize::from(class)).map(|bytes| u64::from(*bytes))
}

/// Where a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Sequence and kind of the record.
    pub trailer: u64,
    /// The table; number zero for a tombstone that no table holds.
    pub table: FileNumber,
    /// Where the block begins in the table.
    pub block_offset: u64,
    /// Bytes of the block.
    pub block_bytes: u32,
}

impl Entry {
    /// Its numbers fit.
    pub fn fits(&self) -> bool {
        self.table.0 <= FORTY_BITS && self.block_offset <= FORTY_BITS
    }
}

/// An object that verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its checksum.
    pub sum: u32,
    /// Its size class.
    pub class: u8,
    /// The newest record of the key, and where it is.
    pub entry: Entry,
    /// The key.
    pub key: Vec<u8>,
}

/// The object's bytes at `at`, and its checksum.
pub fn encode(owner: &Owner, at: u64, class: u8, entry: &Entry, key: &[u8]) -> (Vec<u8>, u32) {
    debug_assert!(entry.fits() && key.len() <= KEY_BYTES_MAX);
    let mut bytes = Vec::with_capacity(OBJECT_HEADER_BYTES + key.len());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes()[..3]);
    bytes.push(class);
    bytes.extend_from_slice(&entry.trailer.to_le_bytes());
    bytes.extend_from_slice(&entry.table.0.to_le_bytes()[..5]);
    bytes.extend_from_slice(&entry.block_offset.to_le_bytes()[..5]);
    bytes.extend_from_slice(&entry.block_bytes.to_le_bytes());
    bytes.extend_from_slice(key);
    let sum = checksum(&owner.at(at), &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    (bytes, sum)
}

/// The object in `bytes`, which were read at `at`; none where it does not verify.
pub fn decode(bytes: &[u8], owner: &Owner, at: u64) -> Option<Object> {
    let header: &[u8; OBJECT_HEADER_BYTES] = bytes.first_chunk()?;
    let number = |range: std::ops::Range<usize>| {
        let bytes = &header[range];
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let end = OBJECT_HEADER_BYTES + number(4..7) as usize;
    let covered = bytes.get(4..end)?;
    let (sum, class) = (number(0..4) as u32, header[7]);
    if sum != checksum(&owner.at(at), covered) || class_bytes(class)? < end as u64 {
        return None;
    }
    let entry = Entry {
        trailer: number(8..16),
        table: FileNumber(number(16..21)),
        block_offset: number(21..26),
        block_bytes: number(26..30) as u32,
    };
    Some(Object { sum, class, entry, key: bytes[OBJECT_HEADER_BYTES..end].to_vec() })
}

/// The object at `at`.
pub fn read(medium: &Medium, owner: &Owner, at: u64) -> Result<Object> {
    let why = "an object of the index does not match its checksum";
    if !medium.holds(at, OBJECT_HEADER_BYTES as u64 + 2) {
        return Err(damaged(at, "an object of the index lies outside of the region"));
    }
    let key_bytes = (medium.load(at) >> 32 & 0xff_ffff) as usize;
    let bytes = OBJECT_HEADER_BYTES + key_bytes;
    if key_bytes > KEY_BYTES_MAX || !medium.holds(at, (bytes as u64).next_multiple_of(8)) {
        return Err(damaged(at, why));
    }
    decode(&medium.bytes_at(at, bytes), owner, at).ok_or_else(|| damaged(at, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_little_and_hold_every_key() {
        assert_eq!(class_for(36), Some(0));
        for bytes in [1, 40, 41, 100, 1000, KEY_BYTES_MAX + OBJECT_HEADER_BYTES] {
            let size = class_bytes(class_for(bytes).unwrap()).unwrap();
            assert!(size >= bytes as u64 && size <= (bytes as u64).max(40) * 8 / 7 + 8, "{bytes}");
            assert!(size.is_multiple_of(8));
        }
    }
}
