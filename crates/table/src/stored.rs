//! Blocks as they are stored: read, checked against their place, unpacked. Functions of a file, for
//! all that need no open table; a block that leans on its table's dictionary is unpacked by
//! [`crate::TableReader`], which has it.
//!
//! Any thread.

use crate::block::{Block, Coding};
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, PAGE, RAW_BLOCK_BYTES_MAX, bound_to};
use bytes::Bytes;
use std::ops::Range;
use thermocline_device::{Buffer, Error, File, Result};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::compression::{Dictionary, PLAIN, decompress};
use thermocline_foundation::{Planted, planted};

/// The last bytes of a file, read at once: footer, properties and, but in large tables, top index.
pub(crate) struct Tail {
    start: u64,
    pub bytes: Bytes,
}

/// Four pages: room for the top index of about 250 partitions.
const TAIL_BYTES: u64 = 16 << 10;

impl Tail {
    pub fn read(file: &File, file_bytes: u64) -> Result<Self> {
        let start = file_bytes.saturating_sub(TAIL_BYTES);
        let bytes = Bytes::from_owner(file.read(start, (file_bytes - start) as usize)?);
        Ok(Self { start, bytes })
    }

    /// Where the block at `address` lies in the tail, if it does.
    pub fn range_of(&self, address: BlockAddress) -> Option<Range<usize>> {
        let end = self.start + self.bytes.len() as u64;
        if address.offset < self.start || address.end() > end {
            return None;
        }
        let at = (address.offset - self.start) as usize;
        Some(at..at + address.len as usize)
    }

    /// The raw bytes of a block, in memory of their own, from the tail where it lies in it.
    pub fn block(&self, file: &File, address: BlockAddress) -> Result<Bytes> {
        let Some(range) = self.range_of(address) else { return read_block(file, address) };
        let stored = self.bytes.slice(range);
        open_shared(file, address, &stored).map(|raw| Bytes::copy_from_slice(&raw))
    }
}

/// The length of a table's file, which is whole pages.
pub(crate) fn length_of(file: &File) -> Result<u64> {
    let file_bytes = file.len()?;
    if file_bytes < PAGE || !file_bytes.is_multiple_of(PAGE) {
        let why = format!("its length of {file_bytes} bytes is not that of a table");
        return Err(Error::corrupt(file.describe(), 0, why));
    }
    Ok(file_bytes)
}

/// Reads a block past the cache and gives its raw bytes, verified.
pub(crate) fn read_block(file: &File, address: BlockAddress) -> Result<Bytes> {
    let buffer = file.read(address.offset, address.len as usize)?;
    open_buffer(file, address, buffer)
}

/// As [`read_block`], of one that is never compressed: a copy of a dictionary.
pub(crate) fn read_plain(file: &File, address: BlockAddress) -> Result<Bytes> {
    plain_of(file, address, file.read(address.offset, address.len as usize)?)
}

/// The raw bytes of the copy of a dictionary that was read into `buffer`.
pub(crate) fn plain_of(file: &File, address: BlockAddress, buffer: Buffer) -> Result<Bytes> {
    let checked = check_block(file, address, &buffer)?;
    if checked.0 != PLAIN {
        let why = "a dictionary is not stored as it is";
        return Err(Error::corrupt(file.describe(), address.offset, why));
    }
    raw_of(file, address, checked, buffer)
}

/// The raw bytes of the block that was read into `buffer`, in memory of their own size.
pub(crate) fn open_buffer(file: &File, address: BlockAddress, buffer: Buffer) -> Result<Bytes> {
    let checked = check_block(file, address, &buffer)?;
    raw_of(file, address, checked, buffer)
}

/// The raw bytes of the block in `buffer`, of which [`check_block`] says compression and length.
pub(crate) fn raw_of(
    file: &File,
    address: BlockAddress,
    (kind, raw_len): (u8, usize),
    buffer: Buffer,
) -> Result<Bytes> {
    if kind != PLAIN {
        return unpack(file, address, kind, raw_len, &buffer);
    }
    // Large blocks keep the buffer they were read into: rounding to pages wastes little of it,
    // copying much time.
    if buffer.capacity() - raw_len <= raw_len / 8 {
        return Ok(Bytes::from_owner(buffer).slice(..raw_len));
    }
    Ok(Bytes::copy_from_slice(&buffer[..raw_len]))
}

/// The raw bytes of the block stored in `stored`, sharing its memory where they are plain.
fn open_shared(file: &File, address: BlockAddress, stored: &Bytes) -> Result<Bytes> {
    shared_of(file, address, check_block(file, address, stored)?, stored)
}

/// As `open_shared`, of a block of which [`check_block`] says compression and length.
pub(crate) fn shared_of(
    file: &File,
    address: BlockAddress,
    checked: (u8, usize),
    stored: &Bytes,
) -> Result<Bytes> {
    match checked {
        (PLAIN, raw_len) => Ok(stored.slice(..raw_len)),
        (kind, raw_len) => unpack(file, address, kind, raw_len, stored),
    }
}

/// Checks a stored block against its place, and gives compression and raw length.
pub(crate) fn check_block(
    file: &File,
    address: BlockAddress,
    stored: &[u8],
) -> Result<(u8, usize)> {
    let corrupt = |why: &str| Error::corrupt(file.describe(), address.offset, why);
    let Some((body, sum)) = stored.split_last_chunk::<4>() else {
        return Err(corrupt("a block is shorter than its trailer"));
    };
    if stored.len() != address.len as usize || body.len() < BLOCK_TRAILER_BYTES - 4 {
        return Err(corrupt("a block is not as long as its index says"));
    }
    let sound = checksum(&bound_to(file.place(address.offset)), body) == u32::from_le_bytes(*sum);
    if !sound && !planted(Planted::BlockNotChecked) {
        return Err(corrupt(
            "a block's checksum does not match; restore the file from a checkpoint",
        ));
    }
    let stored_len = body.len() + 4 - BLOCK_TRAILER_BYTES;
    let trailer = &body[stored_len..];
    let raw_len = u32::from_le_bytes([trailer[1], trailer[2], trailer[3], trailer[4]]) as usize;
    if raw_len > RAW_BLOCK_BYTES_MAX || (trailer[0] == PLAIN && raw_len != stored_len) {
        return Err(corrupt("a block's length cannot be"));
    }
    Ok((trailer[0], raw_len))
}

/// The raw bytes of a block that leans on its table's dictionary, of which [`check_block`] says the
/// length.
pub(crate) fn unpack_with(
    dictionary: &Dictionary,
    file: &File,
    address: BlockAddress,
    raw_len: usize,
    stored: &[u8],
) -> Result<Bytes> {
    let packed = &stored[..stored.len() - BLOCK_TRAILER_BYTES];
    dictionary
        .decompress(packed, raw_len)
        .map(Bytes::from)
        .map_err(|why| Error::corrupt(file.describe(), address.offset, format!("a block: {why}")))
}

fn unpack(
    file: &File,
    address: BlockAddress,
    kind: u8,
    raw_len: usize,
    stored: &[u8],
) -> Result<Bytes> {
    let packed = &stored[..stored.len() - BLOCK_TRAILER_BYTES];
    decompress(kind, packed, raw_len)
        .map(Bytes::from)
        .map_err(|why| Error::corrupt(file.describe(), address.offset, format!("a block: {why}")))
}

/// A block of entries from its raw bytes.
pub(crate) fn parse(
    file: &File,
    address: BlockAddress,
    bytes: Bytes,
    coding: Coding,
) -> Result<Block> {
    Block::parse(bytes, address.offset, coding)
        .map_err(|why| Error::corrupt(file.describe(), address.offset, why))
}
