//! A copy of a table's tail on a faster device: partitions of index and filter, properties, top
//! index, footer. With it a look-up reads at most one block of the table's own device, and none for
//! most absent keys, also where memory holds no partitions (PrismDB, section 4.1). The bytes are
//! described in `docs/formats/table-index.md`.
//!
//! ```text
//!   partition wanted -> cache of blocks -> copy of the tail -> table
//!                                              |  does not match, cannot be read
//!                                              '-> given up; the table is read from then on
//! ```
//!
//! Invariants:
//! 1. A copy is no authority: what it says counts only where it matches the checksum that is bound
//!    to the *table's* number and offset, and whatever happens to it fails no read.
//! 2. A copy that was wrong once is not read again.
//!
//! Threads: any may read; one at a time makes the copy of a table.

use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, PAGE};
use crate::stored::open_buffer;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, File, Result};
use thermocline_foundation::sync::OnceLock;
use thermocline_foundation::{Counter, FileNumber, Planted, planted};

/// Bytes that are copied at a time.
const STEP_BYTES: u64 = 1 << 20;

/// What the copies of many tables did.
#[derive(Debug, Default)]
pub struct TailCounts {
    /// Partitions that were read from a copy.
    pub served: Counter,
    /// Copies that were given up: they did not match, or could not be read.
    pub failed: Counter,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TailCopy {
    file: Arc<File>,
    /// The offset in the table of the copy's first byte.
    start: u64,
    counts: Arc<TailCounts>,
    failure: OnceLock<Error>,
}

impl TailCopy {
    /// Writes the bytes `start..end` of `table` into `file`, which is new and empty. They are not
    /// checked now: each block is when it is read.
    pub fn make(
        table: &File,
        (start, end): (u64, u64),
        file: Arc<File>,
        counts: Arc<TailCounts>,
    ) -> Result<Self> {
        debug_assert!(start.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) && start < end);
        let mut at = start;
        while at < end {
            let len = (end - at).min(STEP_BYTES);
            let bytes = table.read(at, len as usize)?;
            file.write(at - start, bytes).1?;
            at += len;
        }
        Ok(Self { file, start, counts, failure: OnceLock::new() })
    }

    /// The file of the copy.
    pub fn number(&self) -> FileNumber {
        self.file.number()
    }

    /// What was wrong with it.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// The raw bytes of a block of `table`, verified; none where the table is to be asked.
    pub fn read(&self, table: &File, address: BlockAddress) -> Option<Bytes> {
        if self.failure().is_some() {
            return None;
        }
        match self.try_read(table, address) {
            Ok(bytes) => {
                self.counts.served.add(1);
                Some(bytes)
            }
            // It is as good as it was, once there is a descriptor for it again.
            Err(error) if error.kind() == ErrorKind::TooManyOpenFiles => None,
            Err(error) => {
                self.failure.get_or_init(|| {
                    self.counts.failed.add(1);
                    error
                });
                None
            }
        }
    }

    fn try_read(&self, table: &File, address: BlockAddress) -> Result<Bytes> {
        let at = address.offset.saturating_sub(self.start);
        let buffer = self.file.read(at, address.len as usize)?;
        if planted(Planted::IndexCopyNotChecked) {
            return Ok(Bytes::copy_from_slice(&buffer[..buffer.len() - BLOCK_TRAILER_BYTES]));
        }
        open_buffer(table, address, buffer)
    }
}
