//! An open file of the namespace: where the crates above read and write.
//!
//! A `File` knows its number, its database and its tier, so that checksums can be bound ([`File::place`]) and errors
//! can name it. Offsets and lengths of reads are free; the file rounds them out to the driver's alignment. Writes
//! must be aligned by the caller, because rounding a write would overwrite neighbours.

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::context::FileKind;
use crate::driver::{Driver, Handle, Operation};
use crate::error::{Error, Result};
use std::fmt;
use std::sync::Arc;
use thermocline_foundation::{DatabaseId, FileNumber, Place};

/// A tier by its place in the list, 0 being the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TierIndex(pub u8);

impl fmt::Display for TierIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tier {}", self.0)
    }
}

/// One open file. Shared between threads.
#[derive(Debug)]
pub struct File {
    database: DatabaseId,
    number: FileNumber,
    kind: FileKind,
    tier: TierIndex,
    driver: Arc<dyn Driver>,
    handle: Handle,
}

impl File {
    /// Wraps an open handle. For the namespace, and for tests of formats that need one file and no namespace.
    pub fn new(
        database: DatabaseId,
        number: FileNumber,
        kind: FileKind,
        tier: TierIndex,
        driver: Arc<dyn Driver>,
        handle: Handle,
    ) -> Self {
        Self { database, number, kind, tier, driver, handle }
    }

    /// The file's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// What the file holds.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Where the file lies now.
    pub fn tier(&self) -> TierIndex {
        self.tier
    }

    /// What a checksum of bytes at `offset` is bound to.
    pub fn place(&self, offset: u64) -> Place {
        Place { database: self.database, file: self.number, offset }
    }

    /// File, tier and directory, for messages: `00000012.table (tier 1, /mnt/slow)`.
    pub fn describe(&self) -> String {
        let directory = self.driver.describe();
        format!("{}.{} ({}, {directory})", self.number, self.kind.extension(), self.tier)
    }

    /// Length in bytes.
    pub fn len(&self) -> Result<u64> {
        self.handle.len()
    }

    /// The file holds no byte.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly `len` bytes at `offset`; a file that ends before is damaged.
    pub fn read(&self, offset: u64, len: usize) -> Result<Buffer> {
        let buffer = self.read_up_to(offset, len)?;
        if buffer.len() < len {
            let why = format!("it ends after {} of {len} bytes", buffer.len());
            return Err(Error::corrupt(self.describe(), offset, why));
        }
        Ok(buffer)
    }

    /// Reads `len` bytes at `offset`, fewer where the file ends.
    pub fn read_up_to(&self, offset: u64, len: usize) -> Result<Buffer> {
        let alignment = self.driver.alignment() as u64;
        let start = offset - offset % alignment;
        let end = (offset + len as u64).next_multiple_of(alignment);
        let buffer = Buffer::zeroed((end - start) as usize);
        let completion = self.driver.execute(&self.handle, Operation::Read { offset: start, buffer });
        let got = completion.result?;
        let skip = (offset - start) as usize;
        let mut buffer = completion.buffer;
        buffer.set_view(skip.min(got)..(skip + len).min(got));
        Ok(buffer)
    }

    /// Writes the buffer's view at `offset`, both multiples of the driver's alignment ([`PAGE_BYTES`] always is),
    /// and gives the buffer back.
    pub fn write(&self, offset: u64, buffer: Buffer) -> (Buffer, Result<()>) {
        let alignment = self.driver.alignment();
        debug_assert!(offset.is_multiple_of(alignment as u64) && PAGE_BYTES.is_multiple_of(alignment));
        let completion = self.driver.execute(&self.handle, Operation::Write { offset, buffer });
        (completion.buffer, completion.result.map(drop))
    }

    /// Makes every completed write durable.
    pub fn sync(&self) -> Result<()> {
        self.driver.execute(&self.handle, Operation::Sync).result.map(drop)
    }

    /// Reserves space up to `len` bytes; see [`crate::DriverFile::allocate`].
    pub fn allocate(&self, len: u64) -> Result<()> {
        self.handle.allocate(len)
    }

    /// Cuts or extends the file.
    pub fn truncate(&self, len: u64) -> Result<()> {
        self.handle.truncate(len)
    }

    /// What offsets and lengths of writes must be multiples of.
    pub fn alignment(&self) -> usize {
        self.driver.alignment()
    }
}

/// One read of a batch.
#[derive(Debug)]
pub struct ReadAt<'a> {
    /// The file.
    pub file: &'a File,
    /// Bytes from its start.
    pub offset: u64,
    /// How many bytes, exactly.
    pub len: usize,
}

/// Carries out all reads, on any files of any tiers, as parallel as the devices like; results in the order of `reads`.
pub fn read_batch(reads: &[ReadAt<'_>]) -> Vec<Result<Buffer>> {
    reads.iter().map(|read| read.file.read(read.offset, read.len)).collect()
}

/// A read under way; see [`File::start_read`].
#[derive(Debug)]
pub struct PendingRead {
    result: Result<Buffer>,
}

impl PendingRead {
    /// Waits for the read to finish.
    pub fn wait(self) -> Result<Buffer> {
        self.result
    }
}

impl File {
    /// Starts reading up to `len` bytes at `offset` (fewer where the file ends), to be waited for later: read-ahead.
    pub fn start_read(&self, offset: u64, len: usize) -> PendingRead {
        PendingRead { result: self.read_up_to(offset, len) }
    }
}
