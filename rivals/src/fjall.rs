//! fjall, in one directory: a log-structured store in Rust.
//!
//! Buffered writes reach the page cache, synced ones are followed by a sync of its journal. Its
//! memory is a cache (three quarters) and memtables (a quarter); it has no direct I/O.

use ::fjall::config::BlockSizePolicy;
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::time::Duration;
use thermocline_bench::Outcome;
use thermocline_bench::store::{Durability, EngineKind, Needs, OpenOptions, Store, Visitor};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// fjall as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Fjall;

/// Its own range for the size of a memtable.
const MEMTABLE: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 20;
const QUIET_LOOKS: u32 = 5;
const WORKERS: usize = 4;

fn memtable_bytes(options: &OpenOptions) -> u64 {
    (options.memory.0 / 8).clamp(*MEMTABLE.start(), *MEMTABLE.end())
}

fn block_bytes(options: &OpenOptions) -> Outcome<u32> {
    let bytes = options.parsed("block-size")?.unwrap_or(ByteSize(4096)).0;
    let valid = u32::try_from(bytes).ok().filter(|bytes| (1 << 10..=1 << 20).contains(bytes));
    valid.ok_or_else(|| format!("option block-size={bytes}: fjall has 1KiB to 1MiB").into())
}

impl EngineKind for Fjall {
    fn name(&self) -> &str {
        "fjall"
    }

    fn about(&self) -> String {
        "fjall 3.1".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn options(&self) -> &[(&str, &str)] {
        &[("block-size", "bytes of a data block, 1KiB to 1MiB; default 4KiB")]
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let pairs = [
            ("cache_size", ByteSize(options.memory.0 / 4 * 3).to_string()),
            ("max_memtable_size", ByteSize(memtable_bytes(options)).to_string()),
            ("data_block_size", ByteSize(block_bytes(options)?.into()).to_string()),
            ("worker_threads", WORKERS.to_string()),
            ("compression", "none".to_owned()),
            ("direct", "not possible".to_owned()),
            ("sync", (options.durability == Durability::Sync).to_string()),
        ];
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("fjall needs a directory")?;
        let block = block_bytes(options)?;
        let memtable = memtable_bytes(options);
        let database = Database::builder(first.path.join("db"))
            .cache_size(options.memory.0 / 4 * 3)
            .worker_threads(WORKERS)
            .open()?;
        let records = database.keyspace("records", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .data_block_size_policy(BlockSizePolicy::all(block))
        })?;
        let sync = options.durability == Durability::Sync;
        Ok(Box::new(Open { database, records, sync }))
    }
}

struct Open {
    database: Database,
    records: Keyspace,
    sync: bool,
}

impl Open {
    fn written(&self) -> Outcome<()> {
        if self.sync { self.sync() } else { Ok(()) }
    }
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let Some(found) = self.records.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.records.insert(key, value)?;
        self.written()
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        self.records.remove(key)?;
        self.written()
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let mut found = 0;
        for guard in self.records.range(from..).take(count as usize) {
            let (key, value) = guard.into_inner()?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn settle(&self) -> Outcome<()> {
        self.records.rotate_memtable_and_wait()?;
        let clock = SystemClock::new();
        let (mut last, mut same) = (usize::MAX, 0);
        while same < QUIET_LOOKS {
            clock.sleep(Duration::from_millis(200));
            let done = self.database.compactions_completed();
            let busy = self.database.active_compactions() + self.database.outstanding_flushes();
            same = if busy == 0 && done == last { same + 1 } else { 0 };
            last = done;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.database.cache_size() + self.database.write_buffer_size())
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.sync()
    }
}
