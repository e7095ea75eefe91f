//! Checksums bound to the place where the bytes belong.
//!
//! A plain checksum says that bytes are intact. It does not say that they are the *right* bytes: a
//! lost write leaves an intact old block behind, a misdirected one puts an intact block elsewhere,
//! a swapped disk is full of them. So the checksum of every durable byte starts from its [`Place`];
//! an intact block in the wrong place does not match.

use crate::ids::{DatabaseId, FileNumber};
use crate::planted::{Planted, planted};

/// Where a run of durable bytes belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The database.
    pub database: DatabaseId,
    /// The file; it also serves as the epoch of recycled log segments, whose number is new at each
    /// use.
    pub file: FileNumber,
    /// Bytes from the start of the file.
    pub offset: u64,
}

impl Place {
    /// The same file at another offset.
    pub fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }
}

/// CRC-32C (Castagnoli) over the place (database, file number and offset, little-endian), then the
/// bytes.
pub fn checksum(place: &Place, bytes: &[u8]) -> u32 {
    checksum_parts(place, &[bytes])
}

/// As [`checksum`], over the concatenation of `parts`.
pub fn checksum_parts(place: &Place, parts: &[&[u8]]) -> u32 {
    let mut prefix = [0; 32];
    prefix[..16].copy_from_slice(&place.database.0);
    prefix[16..24].copy_from_slice(&place.file.0.to_le_bytes());
    prefix[24..].copy_from_slice(&place.offset.to_le_bytes());
    if planted(Planted::ChecksumNotBound) {
        prefix = [0; 32];
    }
    parts.iter().fold(crc32c::crc32c(&prefix), |crc, part| crc32c::crc32c_append(crc, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_depends_on_every_part_of_the_place() {
        let place = Place { database: DatabaseId([7; 16]), file: FileNumber(3), offset: 4096 };
        let base = checksum(&place, b"cold water sinks");
        assert_eq!(base, checksum_parts(&place, &[b"cold ", b"water sinks"]));
        assert_ne!(base, checksum(&place.at(8192), b"cold water sinks"));
        assert_ne!(base, checksum(&Place { file: FileNumber(4), ..place }, b"cold water sinks"));
        let foreign = Place { database: DatabaseId([8; 16]), ..place };
        assert_ne!(base, checksum(&foreign, b"cold water sinks"));
        assert_ne!(base, checksum(&place, b"cold water sinkS"));
    }
}
