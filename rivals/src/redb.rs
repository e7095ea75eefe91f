//! redb, in one directory.
//!
//! A copy-on-write B-tree in one file; one writer at a time, every write a transaction of its own.
//! It has no level between a synced commit and one that a crash of the process loses, so buffered
//! runs give it *less* durability than the others: a synced commit every [`COMMITS_UNSYNCED`]
//! writes, which it also needs in order to reuse pages.

use ::redb::{Database, ReadableDatabase, TableDefinition, WriteTransaction};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_bench::Outcome;
use thermocline_bench::store::{Durability, EngineKind, Needs, OpenOptions, Store, Visitor};
use thermocline_foundation::ByteSize;

/// redb as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Redb;

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const COMMITS_UNSYNCED: u64 = 10_000;

impl EngineKind for Redb {
    fn name(&self) -> &str {
        "redb"
    }

    fn about(&self) -> String {
        "redb 4.5".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let durability = match options.durability {
            Durability::Sync => "Immediate".to_owned(),
            Durability::Buffered => {
                format!("None, Immediate every {COMMITS_UNSYNCED} writes: weaker than asked for")
            }
        };
        let cache = ByteSize(options.memory.0).to_string();
        let pairs =
            [("durability", durability), ("cache_size", cache), ("direct", "not possible".into())];
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("redb needs a directory")?;
        let database = Database::builder()
            .set_cache_size(options.memory.0 as usize)
            .create(first.path.join("records.redb"))?;
        let write = database.begin_write()?;
        write.open_table(RECORDS)?;
        write.commit()?;
        let sync = options.durability == Durability::Sync;
        Ok(Box::new(Open { database, sync, commits: AtomicU64::new(0) }))
    }
}

struct Open {
    database: Database,
    sync: bool,
    commits: AtomicU64,
}

impl Open {
    fn begin(&self) -> Outcome<WriteTransaction> {
        let mut write = self.database.begin_write()?;
        let due = self.commits.fetch_add(1, Relaxed).is_multiple_of(COMMITS_UNSYNCED);
        if !self.sync && !due {
            write.set_durability(::redb::Durability::None)?;
        }
        Ok(write)
    }
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let Some(found) = records.get(key)? else { return Ok(false) };
        value.extend_from_slice(found.value());
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let write = self.begin()?;
        write.open_table(RECORDS)?.insert(key, value)?;
        Ok(write.commit()?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        let write = self.begin()?;
        write.open_table(RECORDS)?.remove(key)?;
        Ok(write.commit()?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let mut found = 0;
        for record in records.range(from..)?.take(count as usize) {
            let (key, value) = record?;
            visit(key.value(), value.value());
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.database.begin_write()?.commit()?)
    }

    fn settle(&self) -> Outcome<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.sync()?;
        Ok(self.database.close()?)
    }
}
