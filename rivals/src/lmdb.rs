//! LMDB, by the crate `heed`, in one directory.
//!
//! A B+-tree in one mapped file: all its memory is the page cache, which the cgroup limits; it has
//! one writer at a time, and every write commits a transaction of its own. Buffered means NO_SYNC:
//! a commit reaches the page cache and survives the process.

use crate::foreign::lmdb_open;
use heed::types::Bytes;
use heed::{Database, Env};
use thermocline_bench::Outcome;
use thermocline_bench::store::{Durability, EngineKind, Needs, OpenOptions, Store, Visitor};

/// LMDB as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Lmdb;

/// Address space is free; the file grows as it is written.
const MAP_BYTES_MAX: u64 = 1 << 40;

impl EngineKind for Lmdb {
    fn name(&self) -> &str {
        "lmdb"
    }

    fn about(&self) -> String {
        "LMDB 0.9 (crate heed 0.22)".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let sync = options.durability == Durability::Sync;
        let flags = if sync { "NORDAHEAD" } else { "NORDAHEAD NOSYNC" };
        let pairs = [("flags", flags), ("memory", "page cache"), ("direct", "not possible")];
        Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("LMDB needs a directory")?;
        let map = first.capacity.0.clamp(1 << 30, MAP_BYTES_MAX) >> 12 << 12;
        let sync = options.durability == Durability::Sync;
        let env = lmdb_open::open(&first.path, map as usize, options.threads + 64, sync)?;
        let mut write = env.write_txn()?;
        let records = env.create_database(&mut write, None)?;
        write.commit()?;
        Ok(Box::new(Open { env, records }))
    }
}

struct Open {
    env: Env,
    records: Database<Bytes, Bytes>,
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let read = self.env.read_txn()?;
        let Some(found) = self.records.get(&read, key)? else { return Ok(false) };
        value.extend_from_slice(found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut write = self.env.write_txn()?;
        self.records.put(&mut write, key, value)?;
        Ok(write.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        let mut write = self.env.write_txn()?;
        self.records.delete(&mut write, key)?;
        Ok(write.commit()?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let read = self.env.read_txn()?;
        let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
        let mut found = 0;
        for record in self.records.range(&read, &range)?.take(count as usize) {
            let (key, value) = record?;
            visit(key, value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Outcome<()> {
        Ok(self.env.force_sync()?)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
