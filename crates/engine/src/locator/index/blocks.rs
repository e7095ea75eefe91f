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
use thermocline_device::{PendingJoined, ReadAt, read_joined, start_joined};
use thermocline_foundation::FileNumber;
use thermocline_table::{Block, BlockAddress, BlockRead, Lookup, Probe, TableReader, Trailer};

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

/// The blocks that records of the index lie in, each once. Those that are not cached are one batch,
/// in which neighbours are one read: a merge writes keys that follow each other into blocks that
/// do.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Where a block is in `found`, by table and offset.
    places: BTreeMap<(FileNumber, u64), usize>,
    found: Vec<Option<Block>>,
    missing: Vec<(usize, Arc<TableReader>, BlockRead)>,
    pending: Option<PendingJoined>,
}

impl Blocks {
    /// Looks for the blocks of `named` in the cache.
    pub fn of<'a>(named: impl Iterator<Item = &'a Named>) -> Result<Self> {
        let (mut places, mut found, mut missing) = (BTreeMap::new(), Vec::new(), Vec::new());
        for named in named {
            let at = (named.table.meta.number, named.address.offset);
            if places.contains_key(&at) {
                continue;
            }
            places.insert(at, found.len());
            let reader = named.table.reader()?;
            match reader.probe_at(named.address)? {
                Probe::Cached(block) => found.push(Some(block)),
                Probe::Fetch(read) => {
                    missing.push((found.len(), Arc::clone(reader), read));
                    found.push(None);
                }
                Probe::Absent => found.push(None),
            }
        }
        Ok(Self { places, found, missing, pending: None })
    }

    fn reads(missing: &[(usize, Arc<TableReader>, BlockRead)]) -> Vec<ReadAt<'_>> {
        missing.iter().map(|(_, reader, read)| read.read_at(reader.file())).collect()
    }

    /// Begins to read what is missing, `bytes_max` bytes at the most.
    pub fn start(&mut self, bytes_max: usize) {
        self.pending = Some(start_joined(&Self::reads(&self.missing), bytes_max));
    }

    /// The values of these keys, in their order, all of which it was made of.
    pub fn values(self, wanted: &[(&[u8], &Named)]) -> Result<Vec<Bytes>> {
        let Self { places, mut found, missing, pending } = self;
        let reads = Self::reads(&missing);
        let arrived = match pending {
            Some(pending) => pending.wait(&reads),
            None => read_joined(&reads),
        };
        for ((place, reader, read), stored) in missing.iter().zip(arrived) {
            found[*place] = Some(reader.fetch(read, stored)?);
        }
        let value = |(key, named): &(&[u8], &Named)| {
            let place = places.get(&(named.table.meta.number, named.address.offset));
            let block = place.and_then(|place| found[*place].as_ref());
            block.map_or_else(|| Err(named.is_not_there()), |block| named.value_in(block, key))
        };
        wanted.iter().map(value).collect()
    }
}
