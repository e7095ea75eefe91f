//! LevelDB 1.23, Debian's library, in one directory, or over two by our plugin (`tiers.rs`).
//!
//! It has no direct I/O and one background thread; its memory is two memtables (an eighth of what
//! is given each, or `write-buffer`) and a block cache (the rest). Tables are mapped, so the page
//! cache serves it beside its own. The kernel reads around each page that is touched, by default
//! 128 KiB of most devices, which look-ups do not want: `read-ahead`.

use crate::foreign::leveldb::{Configuration, Database, FILE};
use crate::tiers::{self, Tiers};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;
use thermocline_bench::Outcome;
use thermocline_bench::store::{
    CreatedTables, Durability, EngineKind, Needs, OpenOptions, SecondLevel, Store, Visitor,
};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// LevelDB as an engine.
#[derive(Clone, Copy, Debug)]
pub struct LevelDb;

/// Looks at the tables until this many find the same.
const QUIET_LOOKS: u32 = 5;

/// With those of the plugin.
static OPTIONS: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let own = [
        ("block-size", "bytes of a data block; default 4KiB"),
        ("write-buffer", "bytes of a memtable; default an eighth of the memory"),
        (
            "read-ahead",
            "bytes that the kernel reads around a page of a table; default the device's",
        ),
    ];
    [&own[..], &tiers::OPTIONS].concat()
});

/// What the label and the scenario come to; the tiers where our plugin is asked for.
fn configuration(options: &OpenOptions) -> Outcome<(Configuration, Option<Tiers>)> {
    let memory = options.memory.0 as usize;
    let own = options.parsed::<ByteSize>("write-buffer")?;
    let write_buffer = own.map_or(memory / 8, |size| size.0 as usize);
    let cache = memory.checked_sub(2 * write_buffer).filter(|cache| *cache > 0);
    let tiers = tiers::tiers(options, FILE)?;
    if tiers.is_none() && options.tiers.len() > 1 {
        return Err("LevelDB has one directory; with files=thermocline it has both".into());
    }
    let configuration = Configuration {
        write_buffer,
        cache: cache.ok_or("two memtables of write-buffer take all of the memory")?,
        block: options.parsed("block-size")?.unwrap_or(ByteSize(4096)).0 as usize,
        sync: options.durability == Durability::Sync,
    };
    Ok((configuration, tiers))
}

impl EngineKind for LevelDb {
    fn name(&self) -> &str {
        "leveldb"
    }

    fn about(&self) -> String {
        "LevelDB 1.23 (Debian's library, C interface)".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneOrAsked
    }

    fn options(&self) -> &[(&str, &str)] {
        &OPTIONS
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let (configuration, tiers) = configuration(options)?;
        let size = |bytes: usize| ByteSize(bytes as u64).to_string();
        let mut pairs = vec![
            ("write_buffer_size", size(configuration.write_buffer)),
            ("block_cache", size(configuration.cache)),
            ("block_size", size(configuration.block)),
            ("filter_policy", "bloom 10 bits".to_owned()),
            ("compression", "none".to_owned()),
            ("max_open_files", "50000".to_owned()),
            ("direct", "not possible".to_owned()),
            ("sync", configuration.sync.to_string()),
        ];
        pairs.extend(tiers.map(|tiers| ("env", tiers.uri)));
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let first = options.tiers.first().ok_or("LevelDB needs a directory")?;
        let (configuration, tiers) = configuration(options)?;
        let wanted = options.parsed::<ByteSize>("read-ahead")?;
        let read_ahead = wanted.map(|bytes| ReadAhead::set(&first.path, bytes)).transpose()?;
        let fast_capacity = tiers.as_ref().and_then(|tiers| tiers.fast_capacity);
        let database = match tiers {
            None => Database::open(&first.path.join("db"), configuration, None)?,
            Some(tiers) => {
                tiers.make()?;
                tiers.tell_profile()?;
                Database::open(&tiers.db, configuration, Some(&tiers.uri))?
            }
        };
        Ok(Box::new(Open { database, fast_capacity, _read_ahead: read_ahead }))
    }
}

/// The read-ahead of a directory's device while a store is open; then what it was. Needs root.
struct ReadAhead {
    setting: PathBuf,
    before: String,
}

impl ReadAhead {
    fn set(directory: &Path, bytes: ByteSize) -> Outcome<Self> {
        let device = std::fs::metadata(directory)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let setting = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
        let failed = |error| format!("{}: {error}", setting.display());
        let before = std::fs::read_to_string(&setting).map_err(failed)?;
        std::fs::write(&setting, (bytes.0 >> 10).to_string()).map_err(failed)?;
        Ok(Self { setting, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The device may be gone.
        drop(std::fs::write(&self.setting, &self.before));
    }
}

struct Open {
    database: Database,
    fast_capacity: Option<u64>,
    _read_ahead: Option<ReadAhead>,
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        Ok(self.database.get(key, value)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.database.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(self.database.delete(key)?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        Ok(self.database.scan(from, count, visit)?)
    }

    fn fast_capacity(&self) -> Option<u64> {
        self.fast_capacity
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.database.sync()?)
    }

    /// LevelDB does not tell whether it compacts: it is taken to be done when its tables and the
    /// bytes its compactions have moved stay the same for a second.
    fn settle(&self) -> Outcome<()> {
        self.database.flush();
        let clock = SystemClock::new();
        let (mut last, mut same) = (None, 0);
        while same < QUIET_LOOKS {
            clock.sleep(Duration::from_millis(200));
            let now = self.database.property(c"leveldb.stats");
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.database.property(c"leveldb.approximate-memory-usage")?.parse().ok()
    }

    fn second_level(&self) -> Option<SecondLevel> {
        tiers::second_level(&self.database.tier_stats()?)
    }

    fn created_tables(&self) -> Option<CreatedTables> {
        Some(tiers::tables(&self.database.tier_stats()?))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}
