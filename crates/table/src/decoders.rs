//! A way in for the tests of decoders: right checksums on wrong bytes.
//!
//! Mutations of a table rarely get past its checksums. [`seal`] makes them right again, as far as
//! the bytes lead, so that what is behind them is tested too (`tests/decoders.rs` and `fuzz/`). Not
//! part of the documented interface. Any thread.

use crate::block::{Block, Cursor};
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, Footer, PAGE};
use crate::index::{data_address, partition_addresses};
use bytes::Bytes;
use thermocline_foundation::{Place, checksum};

/// Puts right checksums on the footer of the table in `bytes` and on every block that can be
/// reached from it; `place` is the start of the file.
pub fn seal(bytes: &mut [u8], place: &Place) {
    let Some(at) = (bytes.len() as u64).checked_sub(PAGE) else {
        return;
    };
    let (start, end) = (at as usize, bytes.len() - 4);
    let sum = checksum(&place.at(at), &bytes[start..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    let page = &bytes[start..];
    let Ok(footer) = Footer::decode(page, &place.at(at), &String::new) else {
        return;
    };
    seal_block(bytes, place, footer.properties);
    seal_block(bytes, place, footer.top_index);
    for entry in values(bytes, footer.top_index) {
        let Ok((index, filter)) = partition_addresses(&entry) else {
            continue;
        };
        seal_block(bytes, place, filter);
        seal_block(bytes, place, index);
        for entry in values(bytes, index) {
            if let Ok(address) = data_address(&entry) {
                seal_block(bytes, place, address);
            }
        }
    }
}

/// The bytes of a block and its trailer.
fn range(bytes: &[u8], address: BlockAddress) -> Option<std::ops::Range<usize>> {
    let fits = address.check(bytes.len() as u64).is_ok();
    fits.then(|| address.offset as usize..address.end() as usize)
}

fn seal_block(bytes: &mut [u8], place: &Place, address: BlockAddress) {
    if let Some(range) = range(bytes, address) {
        let end = range.end - 4;
        let sum = checksum(&place.at(address.offset), &bytes[range.start..end]);
        bytes[end..range.end].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The values of a plain block's entries, as far as they can be read.
fn values(bytes: &[u8], address: BlockAddress) -> Vec<Bytes> {
    let mut values = Vec::new();
    let raw = range(bytes, address)
        .map(|range| &bytes[range.start..range.end - BLOCK_TRAILER_BYTES])
        .map(Bytes::copy_from_slice);
    let Some(Ok(block)) = raw.map(|raw| Block::parse(raw, address.offset)) else {
        return values;
    };
    let mut cursor = Cursor::new(block);
    let mut moved = cursor.seek_first();
    while moved.is_ok() && cursor.valid() {
        values.push(cursor.value_bytes());
        moved = cursor.step();
    }
    values
}
