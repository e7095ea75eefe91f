//! Reading the blocks that entries name, those of many as one batch.
//!
//! A block must hold exactly the key and trailer of the entry. What else it holds is damage, of the
//! index or of the table.

use crate::error::{Error, Result};
use crate::table_set::levels::Located;
use crate::table_set::table::Table;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::read_joined;
use thermocline_table::{Block, BlockAddress, Lookup, Probe, Trailer};

/// A record that the index names.
#[derive(Debug)]
pub(crate) struct Named {
    pub trailer: Trailer,
    pub table: Arc<Table>,
    pub address: BlockAddress,
}

impl Named {
    /// The record of `key`.
    pub fn read(&self, key: &[u8]) -> Result<Located> {
        let stored = self.table.stored_snapshot(self.trailer.sequence()).unwrap_or_default();
        match self.table.reader()?.get_at(self.address, key, stored)? {
            Some((found, value)) if self.table.trailer(found) == self.trailer => {
                Ok(Located { trailer: self.trailer, value, table: self.table.meta.number })
            }
            _ => Err(self.is_not_there()),
        }
    }

    fn value_in(&self, block: &Block, key: &[u8]) -> Result<Bytes> {
        let stored = self.table.stored_snapshot(self.trailer.sequence()).unwrap_or_default();
        match self.table.reader()?.get_in(block, key, stored)? {
            Lookup::Found(found, value) if self.table.trailer(found) == self.trailer => Ok(value),
            _ => Err(self.is_not_there()),
        }
    }

    fn is_not_there(&self) -> Error {
        Error::corrupt(format!(
            "the index in persistent memory names a record of table {} that is not in the block at \
             {}; restore the database from a checkpoint",
            self.table.meta.number, self.address.offset
        ))
    }
}

/// The values of these keys, in their order. Each block is read once, and those that are not cached
/// as one batch, in which neighbours are one read: a merge writes keys that follow each other into
/// blocks that do.
pub(crate) fn read_all(wanted: &[(&[u8], &Named)]) -> Result<Vec<Bytes>> {
    let mut places = BTreeMap::new();
    let (mut blocks, mut missing) = (Vec::new(), Vec::new());
    for (_, named) in wanted {
        let at = (named.table.meta.number, named.address.offset);
        if places.contains_key(&at) {
            continue;
        }
        places.insert(at, blocks.len());
        match named.table.reader()?.probe_at(named.address)? {
            Probe::Cached(block) => blocks.push(Some(block)),
            Probe::Fetch(read) => {
                missing.push((blocks.len(), named.table.reader()?, read));
                blocks.push(None);
            }
            Probe::Absent => blocks.push(None),
        }
    }
    let reads: Vec<_> =
        missing.iter().map(|(_, reader, read)| read.read_at(reader.file())).collect();
    for ((place, reader, read), stored) in missing.iter().zip(read_joined(&reads)) {
        blocks[*place] = Some(reader.fetch(read, stored)?);
    }
    let value = |(key, named): &(&[u8], &Named)| {
        let place = places.get(&(named.table.meta.number, named.address.offset));
        let block = place.and_then(|place| blocks[*place].as_ref());
        block.map_or_else(|| Err(named.is_not_there()), |block| named.value_in(block, key))
    };
    wanted.iter().map(value).collect()
}
