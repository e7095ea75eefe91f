//! The identities that durable bytes are bound to.

use crate::random;
use std::fmt;

/// Names one lineage of a database: chosen at random when it is created, and mixed into every
/// checksum, so that a block of another database is found out wherever it turns up. A checkpoint
/// keeps it, because it keeps the files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DatabaseId(pub [u8; 16]);

impl DatabaseId {
    /// A new identity from the operating system's entropy.
    pub fn random() -> Self {
        Self::drawn(random::entropy)
    }

    /// A new identity from two words of `entropy`.
    pub fn drawn(mut entropy: impl FnMut() -> u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&entropy().to_le_bytes());
        bytes[8..].copy_from_slice(&entropy().to_le_bytes());
        Self(bytes)
    }

    /// Parses the 32 hexadecimal digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DatabaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseId({self})")
    }
}

/// Numbers a file of the database. Numbers only grow and none is used twice, not even after a
/// crash, so a checksum bound to a file number cannot match a block left behind by an older file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct FileNumber(pub u64);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}", self.0)
    }
}

/// Orders the writes of the database: every record carries one, and a snapshot is one. 56 bits, so
/// that a sequence and a record kind share a 64-bit word; at ten million writes a second they last
/// 228 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The sequence before the first write.
    pub const ZERO: Self = Self(0);
    /// The largest sequence that fits its 56 bits.
    pub const MAX: Self = Self((1 << 56) - 1);

    /// The sequence of the next record.
    pub fn next(self) -> Self {
        assert!(self < Self::MAX, "the 56-bit sequence space is used up");
        Self(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_id_survives_its_text_form() {
        let id = DatabaseId::random();
        assert_eq!(DatabaseId::parse(&id.to_string()), Some(id));
        assert_eq!(DatabaseId::parse("not an id"), None);
        assert_ne!(DatabaseId::random(), id);
    }
}
