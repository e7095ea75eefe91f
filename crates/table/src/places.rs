//! Where the newest record of each key of a table lies, as its writer knows it: what would
//! otherwise be learned by reading the table back.
//!
//! ```text
//!   keys      one behind the other             blocks    addresses, in the order of the file
//!   records   end of the key, trailer, block   one for each key
//! ```
//! 1. Keys ascend. Of a key only the newest version is here, which comes first in the table.
//! 2. They take no more memory than was agreed; a table that has more of them has none.

use crate::format::BlockAddress;
use crate::key::Trailer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    key_end: u32,
    block: u32,
    word: u64,
}

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    keys: Vec<u8>,
    records: Vec<Record>,
    blocks: Vec<BlockAddress>,
}

impl Places {
    /// Keys.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// There is no key.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The key at `index`, the trailer of its newest record, and the block that has it.
    pub fn get(&self, index: usize) -> Option<(&[u8], Trailer, BlockAddress)> {
        let record = self.records.get(index)?;
        let address = self.blocks.get(record.block as usize)?;
        Some((self.key(index), Trailer::decode(record.word)?, *address))
    }

    fn key(&self, index: usize) -> &[u8] {
        let end = |record: &Record| record.key_end as usize;
        let start = index.checked_sub(1).map_or(0, |before| end(&self.records[before]));
        &self.keys[start..end(&self.records[index])]
    }

    /// Memory that they take, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let records = self.records.capacity() * size_of::<Record>();
        let blocks = self.blocks.capacity() * size_of::<BlockAddress>();
        (self.keys.capacity() + records + blocks) as u64
    }
}

/// Places in the making.
#[derive(Debug)]
pub(crate) struct Placing {
    places: Places,
    bytes_max: u64,
}

impl Placing {
    pub fn new(bytes_max: u64) -> Self {
        Self { places: Places::default(), bytes_max }
    }

    /// A record is about to be in the next block that is written. Says whether there is memory for
    /// it.
    pub fn record(&mut self, key: &[u8], word: u64) -> bool {
        let last = self.places.len().checked_sub(1);
        if last.is_some_and(|last| self.places.key(last) == key) {
            return true;
        }
        let Places { keys, records, blocks } = &mut self.places;
        let block = blocks.len() as u32;
        keys.extend_from_slice(key);
        let Ok(key_end) = u32::try_from(keys.len()) else { return false };
        records.push(Record { key_end, block, word });
        self.places.memory_bytes() <= self.bytes_max
    }

    /// The next block was written.
    pub fn block(&mut self, address: BlockAddress) {
        self.places.blocks.push(address);
    }

    pub fn finish(mut self) -> Places {
        let Places { keys, records, blocks } = &mut self.places;
        keys.shrink_to_fit();
        records.shrink_to_fit();
        blocks.shrink_to_fit();
        self.places
    }
}
