//! Which file an extent is of, and an extent as it is stored.
//!
//! A file of a host has no number. Its place (with a serial on a tier, the host's name at home) and
//! what the file system knows of its bytes ([`FileStamp`]) are what tells it from all others, also
//! over a restart and in a directory that was copied or restored.
//!
//! Pure.

use super::{CHECKSUM_BYTES, ExtentKey};
use crate::driver::FileStamp;
use crate::identity::InstanceId;
use thermocline_foundation::checksum::checksum_parts;
use thermocline_foundation::random::mix;
use thermocline_foundation::{DatabaseId, FileNumber, Place, Planted, planted};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentFile {
    instance: InstanceId,
    /// Place and stamp, word by word.
    identity: [u8; 48],
    number: FileNumber,
    len: u64,
}

/// A text as a number; another one has another number, as far as 64 bits go.
fn hash_text(text: &str) -> u64 {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let chunks = text.as_bytes().chunks(8);
    chunks.fold(mix(text.len() as u64), |hash, bytes| mix(hash ^ word(bytes)))
}

impl ExtentFile {
    /// The file called `name` in a room of the host directory `instance`.
    pub fn new(instance: InstanceId, room: u8, name: &str, stamp: FileStamp) -> Self {
        let FileStamp { number, born_ns, changed_ns, len } = stamp;
        let mut words = [room.into(), hash_text(name), number, born_ns, changed_ns, len];
        if planted(Planted::ExtentOfReplacedFileServed) {
            let name =
                name.trim_start_matches(|first: char| first.is_ascii_digit() || first == '-');
            words = [0, hash_text(name.trim_start_matches('.')), 0, 0, 0, 0];
        }
        let mut identity = [0; 48];
        for (place, word) in identity.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let number = FileNumber(words.iter().fold(0, |hash, word| mix(hash ^ word)));
        Self { instance, identity, number, len }
    }

    /// What stands for it in a sealed file.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Its bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The extent at `offset`, a multiple of `extent_bytes` inside the file.
    pub(super) fn key(&self, offset: u64, extent_bytes: u64) -> ExtentKey {
        let bytes = extent_bytes.min(self.len.saturating_sub(offset));
        ExtentKey { file: self.number, offset, len: bytes as u32 + CHECKSUM_BYTES as u32 }
    }

    fn checksum(&self, offset: u64, bytes: &[u8]) -> u32 {
        let database = DatabaseId(self.instance.0);
        let place = Place { database, file: self.number, offset };
        checksum_parts(&place, &[&self.identity, bytes])
    }

    /// The extent `bytes` as it is stored.
    pub(super) fn stored(&self, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let sum = self.checksum(offset, bytes).to_le_bytes();
        [bytes, &sum].concat()
    }

    /// The bytes of a stored extent; none where they are not those of this file and place.
    pub(super) fn verified<'a>(&self, offset: u64, stored: &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, sum) = stored.split_last_chunk::<CHECKSUM_BYTES>()?;
        (self.checksum(offset, bytes).to_le_bytes() == *sum).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: FileStamp = FileStamp { number: 7, born_ns: 1, changed_ns: 2, len: 10_000 };

    #[test]
    fn an_extent_is_that_of_one_file_and_one_place() {
        let file =
            |room, name: &str, stamp| ExtentFile::new(InstanceId([1; 16]), room, name, stamp);
        let one = file(1, "3-17.000012.sst", STAMP);
        let stored = one.stored(8192, b"bytes");
        assert_eq!(one.verified(8192, &stored), Some(&b"bytes"[..]));
        assert_eq!(one.verified(0, &stored), None);
        assert_eq!(one.verified(8192, &stored[..3]), None);
        for other in [
            file(2, "3-17.000012.sst", STAMP),
            file(1, "3-18.000012.sst", STAMP),
            file(1, "3-17.000012.sst", FileStamp { number: 8, ..STAMP }),
            file(1, "3-17.000012.sst", FileStamp { born_ns: 0, ..STAMP }),
            file(1, "3-17.000012.sst", FileStamp { changed_ns: 3, ..STAMP }),
            file(1, "3-17.000012.sst", FileStamp { len: 10_001, ..STAMP }),
            ExtentFile::new(InstanceId([2; 16]), 1, "3-17.000012.sst", STAMP),
        ] {
            assert_eq!(other.verified(8192, &stored), None, "{other:?}");
        }
        assert_eq!(one.key(8192, 8192).len, 10_000 - 8192 + 4, "the last one is short");
    }
}
