//! Thermocline itself, an engine for each preset.
//!
//! ```text
//!   FAST/home  FAST/data  SLOW/data      the database's home lies with its first tier
//! ```
//! Options of the label are settings by their own names, so nothing has to be added here for a new
//! setting that is worth a comparison.

use crate::Outcome;
use crate::store::{Durability, EngineKind, Needs, OpenOptions, Store, TierTraffic, Visitor};
use thermocline::{ByteSize, Compression, Db, Preset, Settings, Tier};

/// A preset as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Thermocline {
    name: &'static str,
    preset: Preset,
}

/// The preset `leveled`.
pub static LEVELED: Thermocline =
    Thermocline { name: "thermocline-leveled", preset: Preset::Leveled };

/// What a label may set.
const OPTIONS: [(&str, &str); 8] = [
    ("driver", "posix, direct or emulated-PROFILE for all tiers; else by --direct"),
    ("slow-driver", "the same for the slow tier alone"),
    ("background-threads", "threads for flushes and compactions, 1 to 64"),
    ("block-size", "bytes of a data block, such as 4KiB"),
    ("filter-bits", "filter bits a key, 0 to 32"),
    ("table-size", "bytes of a table, such as 32MiB"),
    ("compression", "none, lz4 or zstd on all levels; default none"),
    ("background-sync", "unsynced log bytes that start a sync, such as 8MiB"),
];

impl Thermocline {
    fn settings(&self, options: &OpenOptions) -> Outcome<Settings> {
        let mut settings = Settings {
            preset: self.preset,
            memory: options.memory,
            durability: match options.durability {
                Durability::Buffered => thermocline::Durability::Buffered,
                Durability::Sync => thermocline::Durability::Sync,
            },
            compression: vec![match options.option("compression") {
                None | Some("none") => Compression::None,
                Some("lz4") => Compression::Lz4,
                Some("zstd") => Compression::Zstd,
                Some(other) => {
                    return Err(format!("compression={other}: it is none, lz4 or zstd").into());
                }
            }],
            ..Settings::default()
        };
        let driver = match options.option("driver") {
            Some(driver) => driver,
            None if options.direct => "direct",
            None => "posix",
        };
        for space in &options.tiers {
            let own = if space.name == "slow" { options.option("slow-driver") } else { None };
            let driver = own.unwrap_or(driver);
            driver.parse::<thermocline_device::DriverSpec>()?;
            let tier = Tier::new(space.path.join("data"), space.capacity).driver(driver);
            settings.tiers.push(tier);
        }
        if let Some(threads) = options.parsed("background-threads")? {
            settings.background_threads = threads;
        }
        if let Some(size) = options.parsed::<ByteSize>("block-size")? {
            settings.block_size = size;
        }
        if let Some(bits) = options.parsed("filter-bits")? {
            settings.filter_bits_per_key = bits;
        }
        if let Some(size) = options.parsed::<ByteSize>("table-size")? {
            settings.table_size = size;
        }
        if let Some(size) = options.parsed::<ByteSize>("background-sync")? {
            settings.background_sync_bytes = size;
        }
        settings.check()?;
        Ok(settings)
    }
}

impl EngineKind for Thermocline {
    fn name(&self) -> &str {
        self.name
    }

    fn about(&self) -> String {
        format!("Thermocline {} with preset {:?}", env!("CARGO_PKG_VERSION"), self.preset)
            .to_lowercase()
    }

    fn needs(&self) -> Needs {
        Needs::OneOrMore
    }

    fn options(&self) -> &[(&str, &str)] {
        &OPTIONS
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let settings = self.settings(options)?;
        let mut pairs = vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        for tier in &settings.tiers {
            let text = format!("{} on {}", tier.capacity, tier.driver);
            pairs.push(("tier".to_owned(), text));
        }
        let kept = Settings { tiers: Vec::new(), ..settings };
        for line in kept.to_toml()?.lines() {
            if let Some((name, value)) = line.split_once(" = ") {
                pairs.push((name.to_owned(), value.trim_matches('"').to_owned()));
            }
        }
        Ok(pairs)
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let settings = self.settings(options)?;
        let first = options.tiers.first().ok_or("an engine needs at least one tier")?;
        let db = Db::open_or_create(first.path.join("home"), &settings)?;
        Ok(Box::new(Open { db }))
    }
}

#[derive(Debug)]
struct Open {
    db: Db,
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let Some(found) = self.db.get(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(self.db.delete(key)?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let mut found = 0;
        for record in self.db.scan().from(from).limit(count) {
            let (key, value) = record?;
            visit(&key, &value);
            found += 1;
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.db.sync()?)
    }

    fn settle(&self) -> Outcome<()> {
        self.db.flush()?;
        self.db.settle();
        Ok(())
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        let stats = self.db.stats();
        let traffic = stats.tiers.iter().map(|tier| TierTraffic {
            reads: tier.reads,
            read_bytes: tier.read_bytes,
            writes: tier.writes,
            written_bytes: tier.written_bytes,
        });
        Some(traffic.collect())
    }

    fn memory_bytes(&self) -> Option<u64> {
        let memory = self.db.stats().memory;
        Some(memory.memtable_bytes + memory.cache_bytes + memory.pinned_bytes)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(self.db.close()?)
    }
}
