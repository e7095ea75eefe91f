//! sled 0.34, in one directory.
//!
//! Buffered runs leave syncing to its own thread, every half second, which also writes what is in
//! memory: a crash of the process loses up to that, less than the others promise. Synced runs
//! flush after every write.

use ::sled::{Config, Db, Mode};
use thermocline_bench::Outcome;
use thermocline_bench::store::{Durability, EngineKind, Needs, OpenOptions, Store, Visitor};
use thermocline_foundation::ByteSize;

/// sled as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Sled;

const FLUSH_EVERY_MS: u64 = 500;

impl EngineKind for Sled {
    fn name(&self) -> &str {
        "sled"
    }

    fn about(&self) -> String {
        "sled 0.34".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let sync = match options.durability {
            Durability::Sync => "flush after every write".to_owned(),
            Durability::Buffered => format!("every {FLUSH_EVERY_MS} ms: weaker than asked for"),
        };
        let pairs = [
            ("cache_capacity", ByteSize(options.memory.0).to_string()),
            ("mode", "HighThroughput".to_owned()),
            ("sync", sync),
            ("direct", "not possible".to_owned()),
        ];
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("sled needs a directory")?;
        let db = Config::new()
            .path(first.path.join("db"))
            .cache_capacity(options.memory.0)
            .mode(Mode::HighThroughput)
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .open()?;
        Ok(Box::new(Open { db, sync: options.durability == Durability::Sync }))
    }
}

struct Open {
    db: Db,
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
        let Some(found) = self.db.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.db.insert(key, value)?;
        self.written()
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        self.db.remove(key)?;
        self.written()
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let mut found = 0;
        for record in self.db.range(from..).take(count as usize) {
            let (key, value) = record?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        self.db.flush()?;
        Ok(())
    }

    fn settle(&self) -> Outcome<()> {
        self.sync()
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.sync()
    }
}
