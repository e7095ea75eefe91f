//! A way in for the tests of decoders: right checksums on wrong bytes.
//!
//! Mutations of a table rarely get past its checksums. [`seal`] makes them right again, as far as
//! the bytes lead, so that what is behind them is tested too (`tests/decoders.rs` and `fuzz/`). The
//! other functions read one part of a table by itself, with no table around it. Not part of the
//! documented interface. Any thread.

use crate::block::{Block, Coding, Cursor};
use crate::builder::BlockBuilder;
use crate::filter;
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress, Footer, PAGE};
use crate::index::{data_address, partition_addresses};
use crate::key::compare_words;
use crate::properties::Properties;
use bytes::Bytes;
use std::cmp::Ordering;
use thermocline_device::buffer::PAGE_BYTES;
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
    let said = range(bytes, footer.properties).and_then(|range| {
        Properties::decode(&bytes[range.start..range.end - BLOCK_TRAILER_BYTES]).ok()
    });
    for copy in said.and_then(|said| said.dictionary).into_iter().flatten() {
        seal_block(bytes, place, copy);
    }
    let partitions = |cursor: &Cursor| partition_addresses(cursor.value()).ok();
    for (index, filter) in entries(bytes, footer.top_index, Coding::Records, partitions) {
        seal_block(bytes, place, filter);
        seal_block(bytes, place, index);
        let address = |cursor: &Cursor| cursor.address().ok();
        for address in entries(bytes, index, footer.index_coding(), address) {
            seal_block(bytes, place, address);
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

/// What the entries of a plain block say, as far as they can be read.
fn entries<T>(
    bytes: &[u8],
    address: BlockAddress,
    coding: Coding,
    says: impl Fn(&Cursor) -> Option<T>,
) -> Vec<T> {
    let mut entries = Vec::new();
    let raw = range(bytes, address)
        .map(|range| &bytes[range.start..range.end - BLOCK_TRAILER_BYTES])
        .map(Bytes::copy_from_slice);
    let Some(Ok(block)) = raw.map(|raw| Block::parse(raw, address.offset, coding)) else {
        return entries;
    };
    let mut cursor = Cursor::new(block);
    let mut moved = cursor.seek_first();
    while moved.is_ok() && cursor.valid() {
        entries.extend(says(&cursor));
        moved = cursor.step();
    }
    entries
}

/// An entry of a raw block: its key, the word behind it and, in an index partition, the data block.
pub type RawEntry = (Vec<u8>, u64, Option<BlockAddress>);

/// The entries of a raw block, of which there may be `most`: walked from the front, which must find
/// them again from the back where the restarts are good; each key is searched for, too. None where
/// the block is refused.
pub fn walk_block(raw: &[u8], most: usize) -> Option<Vec<RawEntry>> {
    walk(raw, Coding::Records, most)
}

/// As [`walk_block`], for an index partition. Where its separators ascend, each leads to its own
/// block; and written again they say the same.
pub fn walk_partition(raw: &[u8], most: usize) -> Option<Vec<RawEntry>> {
    let entries = walk(raw, Coding::Addresses, most)?;
    let block = Block::parse(Bytes::copy_from_slice(raw), 0, Coding::Addresses).ok()?;
    let mut written = BlockBuilder::new(16, false);
    for (key, word, address) in &entries {
        written.add_address(key, *word, address.unwrap_or_default());
    }
    let ascend = |pair: &[RawEntry]| {
        compare_words(&pair[0].0, pair[0].1, &pair[1].0, pair[1].1) == Ordering::Less
    };
    if !entries.windows(2).all(ascend) {
        return None;
    }
    for (key, word, address) in &entries {
        assert_eq!(block.address(key, *word), Ok(*address), "a separator leads elsewhere");
    }
    let again = walk(written.finish(), Coding::Addresses, most);
    assert_eq!(again.as_ref(), Some(&entries), "a partition is not what was written");
    Some(entries)
}

fn walk(raw: &[u8], coding: Coding, most: usize) -> Option<Vec<RawEntry>> {
    let block = Block::parse(Bytes::copy_from_slice(raw), 0, coding).ok()?;
    let entry = |cursor: &Cursor| {
        let address = (coding == Coding::Addresses).then(|| cursor.address().unwrap_or_default());
        (cursor.key().to_vec(), cursor.word(), address)
    };
    let mut cursor = Cursor::new(block.clone());
    let mut forward: Vec<RawEntry> = Vec::new();
    let mut moved = cursor.seek_first();
    while moved.is_ok() && cursor.valid() && forward.len() < most {
        forward.push(entry(&cursor));
        moved = cursor.step();
    }
    for (key, word, _) in forward.iter().take(50) {
        // What a search says of a block in disorder is no matter; it must end.
        if coding == Coding::Records {
            let _ = block.find(key, *word);
        }
        let _ = block.address(key, *word);
        let _ = cursor.seek(key, *word);
    }
    if moved.is_err() || block.check_restarts(false).is_err() || forward.len() == most {
        return None;
    }
    let mut backward = Vec::new();
    let mut moved = cursor.seek_last();
    while moved.is_ok() && cursor.valid() && backward.len() < most {
        backward.push(entry(&cursor));
        moved = cursor.step_back();
    }
    assert!(moved.is_ok(), "good restarts, and {moved:?} on the way back");
    backward.reverse();
    assert_eq!(forward, backward, "the two ways see different entries");
    Some(forward)
}

/// The footer in the last page of a table that ends at `place`, written again, with its checksum
/// made right before it is read; none where it is refused.
pub fn rewrite_footer(page: &[u8], place: &Place) -> Option<Vec<u8>> {
    let mut page: [u8; PAGE_BYTES] = page.try_into().ok()?;
    let sum = checksum(place, &page[..PAGE_BYTES - 4]);
    page[PAGE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    let footer = Footer::decode(&page, place, &String::new).ok()?;
    let written = footer.encode(place);
    let again = Footer::decode(&written, place, &String::new);
    assert_eq!(again.ok(), Some(footer), "a footer is not what was written");
    Some(written.to_vec())
}

/// The addresses in the value of an index entry, written again; none where there are none.
pub fn rewrite_addresses(value: &[u8]) -> Option<Vec<u8>> {
    let mut written = Vec::new();
    let first = data_address(value).ok()?;
    first.put(&mut written);
    if let Ok((index, filter)) = partition_addresses(value) {
        assert_eq!(index, first);
        filter.put(&mut written);
    }
    Some(written)
}

/// A filter made of `hashes` lets each of them pass; `foreign` bytes as a filter answer something.
pub fn probe_filter(hashes: &[u64], bits_per_key: u8, foreign: &[u8]) -> bool {
    let own = filter::build(hashes, bits_per_key);
    assert!(hashes.iter().all(|hash| filter::may_contain(&own, *hash)), "a key was left out");
    hashes.iter().any(|hash| filter::may_contain(foreign, *hash))
}
