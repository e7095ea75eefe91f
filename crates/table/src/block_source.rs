//! Where a block is read that is not in memory: in its table, or in a copy on a faster device that
//! a second level below the block cache keeps (MyNVM, section 5).
//!
//! ```text
//!   block wanted -> cache of blocks -> second level: find
//!                                        |  Cached     read there; where that fails, in the table
//!                                        |  Admitted   read in the table, then offered to it
//!                                        '  Refused    read in the table
//! ```
//!
//! Invariants:
//! 1. A copy counts only where it matches the checksum that is bound to the *table's* number and
//!    offset, and whatever happens to it fails no read.
//! 2. What is offered was read from the table and has matched its checksum.
//! 3. Blocks of tables on the fastest tier, and reads that go past the cache, ask no second level.
//!
//! Any thread.

use crate::block_cache::BlockClass;
use crate::format::BlockAddress;
use std::fmt::Debug;
use std::sync::Arc;
use thermocline_device::{Error, File, ReadAt};
use thermocline_foundation::FileNumber;

/// Names a stored block of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The table that has it.
    pub table: FileNumber,
    /// Bytes from the start of the table.
    pub offset: u64,
    /// Stored bytes and trailer, in bytes.
    pub len: u32,
}

/// What a second level says of a block.
#[derive(Clone, Debug)]
pub enum Found {
    /// It has a copy.
    Cached(CachedAt),
    /// It has none and wants one.
    Admitted,
    /// It has none and wants none.
    Refused,
}

/// Where a copy of a block is.
#[derive(Clone, Debug)]
pub struct CachedAt {
    /// The file that has it.
    pub file: Arc<File>,
    /// Bytes from the start of that file.
    pub offset: u64,
}

/// Copies of stored blocks on a faster device. Its calls are made by threads that read, so they do
/// no I/O and wait for none.
pub trait SecondLevel: Debug + Send + Sync {
    /// The block is to be read, since memory does not have it: is there a copy, or should there be?
    fn find(&self, key: BlockKey, class: BlockClass) -> Found;

    /// The stored bytes of a block that was admitted, trailer included, verified. Copied or dropped
    /// at once.
    fn offer(&self, key: BlockKey, stored: &[u8]);

    /// The copy could not be read, or is not that of the block.
    fn failed(&self, key: BlockKey, at: &CachedAt, why: &Error);
}

/// A block that is to be read, and where.
#[derive(Clone, Debug)]
pub struct BlockRead {
    pub(crate) address: BlockAddress,
    pub(crate) found: Found,
}

impl BlockRead {
    /// In the table, and no second level hears of it.
    pub(crate) fn of_table(address: BlockAddress) -> Self {
        Self { address, found: Found::Refused }
    }

    /// Where the block lies in its table.
    pub fn address(&self) -> BlockAddress {
        self.address
    }

    /// There is a copy, which is to be read in place of the table.
    pub(crate) fn is_of_copy(&self) -> bool {
        matches!(self.found, Found::Cached(_))
    }

    /// What to read; `table` is the file of the table.
    pub fn read_at<'a>(&'a self, table: &'a File) -> ReadAt<'a> {
        let len = self.address.len as usize;
        match &self.found {
            Found::Cached(at) => ReadAt { file: &at.file, offset: at.offset, len },
            Found::Admitted | Found::Refused => {
                ReadAt { file: table, offset: self.address.offset, len }
            }
        }
    }
}
