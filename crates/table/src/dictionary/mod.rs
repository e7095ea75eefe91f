//! The dictionary of a table: bytes that its blocks have in common, for blocks are compressed one
//! by one and small ones have little to lean on (MyNVM, sections 4.2 and 5).
//!
//! ```text
//!   written:   first entries of the table -> Gathering ─┐
//!              blocks of the table before -> Samples ───┴> training -> Trial: does it pay?
//!                yes: | copy | data blocks, kind 3 ... | copy | index ...     version 3
//!                no:  | data blocks ...                       | index ...     version 2
//!   read:      block of kind 3 -> cache: prepared? -> first copy -> second copy -> prepared
//! ```
//!
//! Invariants:
//! 1. A block meets only the dictionary of its own table, and only after that has matched a
//!    checksum which is bound to table and offset.
//! 2. One damaged copy fails no read. Where both are, each block that needs them is reported
//!    corrupt; none is given out.
//! 3. Where no dictionary pays, the table is byte for byte the one that is written without.
//!
//! The prepared form (three times the bytes) lies in the block cache and weighs there. Any thread.

mod gathering;
mod training;

pub use training::{Samples, Training, Trial};

pub(crate) use gathering::{Decided, Gathering};

use crate::format::BlockAddress;
use crate::stored::read_plain;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, File, Result};
use thermocline_foundation::compression::Dictionary;

/// Longest dictionary, in bytes.
pub const DICTIONARY_BYTES_MAX: usize = 64 << 10;

/// Where the two copies lie: the first before all data blocks, the second behind them.
pub type Copies = [BlockAddress; 2];

/// Says why the copies cannot lie there in a table whose data ends at `data_end`.
pub(crate) fn check([first, second]: Copies, data_end: u64) -> Result<(), &'static str> {
    first.check(data_end)?;
    second.check(data_end)?;
    if first.len != second.len || first.end() > second.offset {
        return Err("the copies of its dictionary cannot be where it says");
    }
    if first.len as usize > DICTIONARY_BYTES_MAX + crate::format::BLOCK_TRAILER_BYTES {
        return Err("its dictionary is longer than any can be");
    }
    Ok(())
}

/// Reads a dictionary of the table `file`: from the first copy, or where that is not sound from the
/// second.
///
/// # Errors
/// Both are damaged: of the kind `Corrupt`. A copy cannot be read now: as the device says.
pub(crate) fn read(file: &File, copies: Copies) -> Result<Arc<Dictionary>> {
    read_by(file, copies, &|address| read_plain(file, address))
}

/// As [`read`], with the raw bytes of a copy from `read_copy`.
pub(crate) fn read_by(
    file: &File,
    [first, second]: Copies,
    read_copy: &dyn Fn(BlockAddress) -> Result<Bytes>,
) -> Result<Arc<Dictionary>> {
    let prepared = |address: BlockAddress| {
        let bytes = read_copy(address)?;
        let corrupt = |why| Error::corrupt(file.describe(), address.offset, why);
        Dictionary::prepare(&bytes).map(Arc::new).map_err(corrupt)
    };
    let before = match prepared(first) {
        Ok(dictionary) => return Ok(dictionary),
        Err(error) => error,
    };
    prepared(second).map_err(|error| {
        // What a device fails to do now it may do later, so that is not damage.
        match [&before, &error].into_iter().find(|error| error.kind() != ErrorKind::Corrupt) {
            Some(passing) => passing.clone(),
            None => {
                let why = "both copies of its dictionary are damaged; \
                           restore the file from a checkpoint";
                Error::corrupt(file.describe(), first.offset, why)
            }
        }
    })
}
