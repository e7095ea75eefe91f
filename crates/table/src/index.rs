//! The two-level index: which block holds a key, and which filter knows of it (MyNVM, section
//! 4.1.1).
//!
//! ```text
//!   top index (pinned)   separator, trailer word -> index and filter partition addresses
//!   index partition      separator, trailer word -> data block address
//! ```
//! The top index is a block whose every entry is a restart; `index_entry.rs` says what a partition
//! is. A separator is at or after every entry of what it points to and before every entry of what
//! follows. Where one key's versions go on in the next
//! block, no user key separates the two, and the entry carries the last trailer instead of 0; so a
//! look-up at a snapshot always finds its one block.
//!
//! Invariant: an index partition and its filter partition cover the same data blocks, so one search
//! of the top index finds both. A partition is cut when either reaches its size. Used by the
//! writer's thread.

use crate::block::Broken;
use crate::builder::BlockBuilder;
use crate::filter;
use crate::format::{BLOCK_TRAILER_BYTES, BlockAddress};
use crate::index_entry;
use thermocline_foundation::coding::Decoder;

/// Entries of a partition from restart to restart: a whole separator and offset cost some 20 bytes
/// more than a shared one, a look-up walks half as many entries (`docs/decisions/0051`).
const RESTART_INTERVAL: u16 = 16;

/// An index entry's separator: a user key and a trailer word.
pub(crate) type Separator = (Vec<u8>, u64);

/// The two raw blocks of a partition.
#[derive(Debug)]
pub(crate) struct Partition {
    pub separator: Separator,
    pub index: Vec<u8>,
    pub filter: Vec<u8>,
}

/// Gathers the partitions of a table while its data blocks are written.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    block: BlockBuilder,
    last_word: u64,
    hashes: Vec<u64>,
    hashes_before: usize,
    partitions: Vec<Partition>,
    partition_bytes: usize,
    filter_bits_per_key: u8,
    pending_bytes: usize,
}

impl IndexBuilder {
    pub fn new(partition_bytes: u32, filter_bits_per_key: u8) -> Self {
        Self {
            block: BlockBuilder::new(RESTART_INTERVAL, false),
            last_word: 0,
            hashes: Vec::new(),
            hashes_before: 0,
            partitions: Vec::new(),
            partition_bytes: partition_bytes as usize,
            filter_bits_per_key,
            pending_bytes: 0,
        }
    }

    /// A key of the data block that the next [`IndexBuilder::add_block`] tells of.
    #[inline]
    pub fn add_key(&mut self, hash: u64) {
        if self.filter_bits_per_key > 0 && self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// A finished data block.
    pub fn add_block(&mut self, separator: &Separator, address: BlockAddress) {
        self.block.add_address(&separator.0, separator.1, address);
        self.last_word = separator.1;
        let usable = self.partition_bytes.saturating_sub(BLOCK_TRAILER_BYTES);
        let index_entry = index_entry::entry_bytes_max(&separator.0);
        let full_index = self.block.raw_bytes() + index_entry > usable;
        // Cut before the next data block, taken to have as many keys as this one, overfills the
        // filter.
        let block_keys = self.hashes.len() - self.hashes_before;
        let filter_keys = self.hashes.len() + block_keys;
        let filter_bytes = filter_keys * usize::from(self.filter_bits_per_key) / 8;
        let full_filter = filter_bytes + filter::FILTER_BLOCK_BYTES > usable;
        self.hashes_before = self.hashes.len();
        if full_index || full_filter {
            self.cut();
        }
    }

    /// Bytes that the partitions will take, roughly.
    pub fn estimated_bytes(&self) -> usize {
        self.pending_bytes + self.block.raw_bytes() + self.filter_bytes()
    }

    /// All partitions.
    pub fn finish(mut self) -> Vec<Partition> {
        if !self.block.is_empty() {
            self.cut();
        }
        self.partitions
    }

    fn filter_bytes(&self) -> usize {
        self.hashes.len() * usize::from(self.filter_bits_per_key) / 8
    }

    fn cut(&mut self) {
        let separator = (self.block.last_key().to_vec(), self.last_word);
        let index = self.block.finish().to_vec();
        self.block.clear();
        let filter = match self.filter_bits_per_key {
            0 => Vec::new(),
            bits => filter::build(&self.hashes, bits),
        };
        self.hashes.clear();
        self.hashes_before = 0;
        self.pending_bytes += index.len() + filter.len();
        self.partitions.push(Partition { separator, index, filter });
    }
}

/// A short separator at or after the entry `(last, word)` and before every entry whose key is
/// `next`; `last` and `next` are neighbours in the table.
pub(crate) fn separator(last: &[u8], word: u64, next: Option<&[u8]>) -> Separator {
    let Some(next) = next else {
        return (last.to_vec(), 0);
    };
    if last == next {
        return (last.to_vec(), word);
    }
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    if common < last.len() {
        // The first byte that can grow and still stay below `next`.
        let room = |at: usize| {
            if at == common { last[at] + 1 < next[at] } else { last[at] < 0xff }
        };
        if let Some(at) = (common..last.len()).find(|&at| room(at)) {
            let mut short = last[..=at].to_vec();
            short[at] += 1;
            if short.len() < last.len() {
                return (short, 0);
            }
        }
    }
    (last.to_vec(), 0)
}

/// The address in the value of an entry of an index partition of version 1.
pub(crate) fn data_address(value: &[u8]) -> Result<BlockAddress, Broken> {
    BlockAddress::take(&mut Decoder::new(value)).map_err(|_| "an index entry holds no address")
}

/// Index and filter partition in the value of an entry of the top index.
pub(crate) fn partition_addresses(value: &[u8]) -> Result<(BlockAddress, BlockAddress), Broken> {
    let mut decoder = Decoder::new(value);
    BlockAddress::take(&mut decoder)
        .and_then(|index| Ok((index, BlockAddress::take(&mut decoder)?)))
        .map_err(|_| "an entry of the top index holds no addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_lie_between_their_neighbours_and_are_short() {
        let keys: [&[u8]; 12] = [
            b"",
            b"a",
            b"a\0",
            b"ab",
            b"abcdef",
            b"abd",
            b"abdz\xff\xffq",
            b"abe",
            b"b",
            b"cold water",
            b"\xff\xff",
            b"\xff\xff\xff",
        ];
        for pair in keys.windows(2) {
            let (key, word) = separator(pair[0], 7, Some(pair[1]));
            assert!(pair[0] <= &key[..] && &key[..] < pair[1], "{pair:?} {key:?}");
            assert!(key.len() <= pair[0].len() && word == 0);
        }
        assert_eq!(separator(b"warm water", 7, Some(b"wet")).0, b"wb");
        assert_eq!(separator(b"k", 7, Some(b"k")), (b"k".to_vec(), 7));
        assert_eq!(separator(b"k", 7, None), (b"k".to_vec(), 0));
    }
}
