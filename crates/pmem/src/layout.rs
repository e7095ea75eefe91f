//! Where things are in a region (docs/formats/region.md).
//!
//! ```text
//!        0  identity, 2 pages of 4096
//!     8192  root line | line of the applied run's number | unused
//!    12288  journal, `journal_bytes`
//!   chunks  whole chunks of `chunk_bytes`, from the next multiple of 4096 on
//! ```
//! Chunks of 1 MiB, in regions below 1 GiB down to 128 KiB, and a journal of 256 KiB are what the
//! store makes; tests make small ones, so the identity has both.

use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::{DatabaseId, FileNumber, Place};

/// Bytes that leave the processor's caches together.
pub const LINE_BYTES: u64 = 64;
/// Where the copies of the identity are.
pub const IDENTITY_AT: [u64; 2] = [0, 4096];
/// The line with the tree's root, which runs change.
pub const ROOT_AT: u64 = 8192;
/// The number of the last run that was applied: one word, on a line of its own.
pub const APPLIED_AT: u64 = ROOT_AT + LINE_BYTES;
/// The journal.
pub const JOURNAL_AT: u64 = 12288;
/// Two copies of a chunk's header, each on a line of its own.
pub const CHUNK_HEADER_BYTES: u64 = 2 * LINE_BYTES;

const PAGE_BYTES: u64 = 4096;

/// Chunks of a region that is made, about, and bytes of one: the longest key has room in any. What
/// has a size of its own takes a chunk, however little of it there is.
const CHUNKS: u64 = 1 << 10;
const CHUNK_BYTES: (u64, u64) = (128 << 10, 1 << 20);

/// The sizes of a region's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// All of it.
    pub bytes: u64,
    /// A chunk.
    pub chunk_bytes: u64,
    /// The journal.
    pub journal_bytes: u64,
}

impl Geometry {
    /// The parts of a region of `bytes`, rounded down to whole pages.
    pub fn of(bytes: u64) -> Self {
        let bytes = bytes - bytes % PAGE_BYTES;
        let chunk_bytes = bytes.div_ceil(CHUNKS).min(CHUNK_BYTES.1).next_power_of_two();
        let chunk_bytes = chunk_bytes.max(CHUNK_BYTES.0);
        Self { bytes, chunk_bytes, journal_bytes: 256 << 10 }
    }

    /// An error where no region can be so.
    pub fn check(&self) -> Result<()> {
        let is_page = |bytes: u64| bytes > 0 && bytes.is_multiple_of(PAGE_BYTES);
        let sizes = [self.bytes, self.chunk_bytes, self.journal_bytes];
        if sizes.into_iter().all(is_page) && self.chunk_bytes <= 1 << 30 && self.chunks() > 0 {
            return Ok(());
        }
        let text = format!(
            "a region of {} bytes with chunks of {} and a journal of {} cannot be; name a larger \
             size",
            self.bytes, self.chunk_bytes, self.journal_bytes
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }

    fn chunks_at(&self) -> u64 {
        JOURNAL_AT.saturating_add(self.journal_bytes)
    }

    /// Whole chunks.
    pub fn chunks(&self) -> u64 {
        self.bytes.saturating_sub(self.chunks_at()) / self.chunk_bytes
    }

    /// The place of a chunk.
    pub fn chunk_at(&self, index: u64) -> u64 {
        self.chunks_at() + index * self.chunk_bytes
    }

    /// The chunk that `at` is in; none outside of all.
    pub fn chunk_of(&self, at: u64) -> Option<u64> {
        let index = at.checked_sub(self.chunks_at())? / self.chunk_bytes;
        (index < self.chunks()).then_some(index)
    }
}

/// What the checksums of a region are bound to, but for the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The database.
    pub database: DatabaseId,
    /// The number of the region, or of an arena: never used again.
    pub number: FileNumber,
}

impl Owner {
    /// The place at `offset`.
    pub fn at(&self, offset: u64) -> Place {
        Place { database: self.database, file: self.number, offset }
    }
}

/// An error that names the place of the damage.
pub fn damaged(at: u64, why: impl std::fmt::Display) -> Error {
    Error::corrupt("the region of persistent memory", at, why)
}
