//! Some keys of a table, for estimates of what it has in common with others.
//!
//! Blocks are picked at equal distances, all entries of each. They are read past the cache, whose
//! blocks readers ask for.

use crate::block::{Coding, Cursor};
use crate::format::BlockAddress;
use crate::key::Trailer;
use crate::reader::TableReader;
use crate::stored::parse;
use thermocline_device::Result;

impl TableReader {
    /// All entries of about `blocks` data blocks, in their order: keys with what their sequences
    /// and kinds are. Where the table has no more blocks, all of its entries.
    pub fn sample(&self, blocks: usize) -> Result<Vec<(Vec<u8>, Trailer)>> {
        let indexes = self.index_addresses()?;
        let mut data = Vec::new();
        // Of some partitions where there are many: all but the last name about as many blocks.
        for partition in spaced(&indexes, blocks) {
            data.append(&mut self.data_addresses(*partition)?);
        }
        let mut entries = Vec::new();
        for block in spaced(&data, blocks) {
            self.entries_of(*block, &mut entries)?;
        }
        Ok(entries)
    }

    /// Where the partitions of the index lie.
    fn index_addresses(&self) -> Result<Vec<BlockAddress>> {
        let mut cursor = Cursor::new(self.top().clone());
        let mut addresses = Vec::new();
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            addresses.push(self.partition(cursor.value())?.0);
            moved = cursor.step();
        }
        moved.map_err(|why| self.broken(self.top(), why))?;
        Ok(addresses)
    }

    /// Where the data blocks of a partition lie.
    fn data_addresses(&self, partition: BlockAddress) -> Result<Vec<BlockAddress>> {
        let index = self.index_block(partition, false)?;
        let mut cursor = Cursor::new(index.clone());
        let mut addresses = Vec::new();
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            addresses.push(self.data_block_address(&index, cursor.address())?);
            moved = cursor.step();
        }
        moved.map_err(|why| self.broken(&index, why))?;
        Ok(addresses)
    }

    fn entries_of(
        &self,
        address: BlockAddress,
        entries: &mut Vec<(Vec<u8>, Trailer)>,
    ) -> Result<()> {
        let block = parse(self.file(), address, self.read_block(address)?, Coding::Records)?;
        let mut cursor = Cursor::new(block.clone());
        let mut moved = cursor.seek_first();
        while moved.is_ok() && cursor.valid() {
            let trailer = Trailer::decode(cursor.word());
            let trailer = trailer.ok_or("an entry has an unknown kind");
            let trailer = trailer.map_err(|why| self.broken(&block, why))?;
            entries.push((cursor.key().to_vec(), trailer));
            moved = cursor.step();
        }
        moved.map_err(|why| self.broken(&block, why))
    }
}

/// So many of `all`, at equal distances; all of them where there are no more.
fn spaced<T>(all: &[T], count: usize) -> impl Iterator<Item = &T> {
    let picked = count.min(all.len());
    (0..picked).map(move |at| &all[at * all.len() / picked])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_picked_lies_at_equal_distances() {
        let all: Vec<usize> = (0..10).collect();
        let picked = |count| spaced(&all, count).copied().collect::<Vec<_>>();
        assert_eq!(picked(3), [0, 3, 6]);
        assert_eq!(picked(10), all);
        assert_eq!(picked(11), all);
        assert!(picked(0).is_empty() && spaced(&[0; 0], 5).next().is_none());
    }
}
