//! The library behind RocksDB's C interface: RocksDB's own, or Speedb's, which exports the same
//! functions.
//!
//! ```text
//!   cell of rocksdb   librocksdb.so  ->  rivals/.fetched/lib        (as the program was linked)
//!   cell of speedb    librocksdb.so  ->  .../speedb/as-rocksdb     (by LD_LIBRARY_PATH)
//! ```
//! The second one needs Speedb's library and has stubs of the functions that Speedb lacks
//! (`as_rocksdb.c`); nothing here calls them.

use rocksdb::{DB, WaitForCompactOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;
use thermocline_bench::{Outcome, files};
use thermocline_foundation::{Clock, SystemClock};

/// Which one a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// 11.8.1.
    RocksDb,
    /// 2.8.0, by RocksDB 8.6.
    Speedb,
}

/// How often Speedb is asked whether it is still at work.
const PAUSE: Duration = Duration::from_millis(50);
/// So many times in a row it must say that it is not: between a flush and the compaction that
/// follows from it there is a gap.
const QUIET: u32 = 4;

/// Speedb's library.
const SPEEDBS_FILE: &str = "/libspeedb.so";

/// Options that are RocksDB's alone: of newer versions, or of bindings that Speedb's headers do not
/// describe.
const NOT_SPEEDBS: [&str; 5] =
    ["read-triggered", "transactions", "level-from", "cache", "persistent-cache"];

impl Library {
    pub fn name(self) -> &'static str {
        match self {
            Self::RocksDb => "rocksdb",
            Self::Speedb => "speedb",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::RocksDb => "RocksDB 11.8.1 (library of rocksdbjni, C interface)",
            Self::Speedb => "Speedb 2.8.0 (library of speedbjni, RocksDB's C interface)",
        }
    }

    /// The file of the plugin that puts it over tiers.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::RocksDb => "librocksdb_plugin-11.8.1.so",
            Self::Speedb => "libspeedb_plugin-2.8.0.so",
        }
    }

    /// Its plugin has a listener, by which a table's level is known when it is made.
    pub fn has_listener(self) -> bool {
        self == Self::RocksDb
    }

    pub fn has_option(self, name: &str) -> bool {
        self == Self::RocksDb || !NOT_SPEEDBS.contains(&name)
    }

    /// The folder that its process searches first.
    pub fn folder(self) -> Option<PathBuf> {
        let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join(".fetched");
        (self == Self::Speedb).then(|| fetched.join("speedb/as-rocksdb"))
    }

    pub fn unavailable(self) -> Option<String> {
        let library = self.folder()?.join("librocksdb.so");
        let missing = format!(
            "{} is not there; run cargo xtask plugins fetch, then this again",
            library.display()
        );
        (!library.exists()).then_some(missing)
    }

    /// This process has this library.
    ///
    /// Errors: it has the other one, which would be measured under this name.
    pub fn check(self) -> Outcome<()> {
        let maps = files::system_text("/proc/self/maps").unwrap_or_default();
        match (self, maps.contains(SPEEDBS_FILE)) {
            (Self::RocksDb, false) | (Self::Speedb, true) => Ok(()),
            (Self::RocksDb, true) => Err(format!("{SPEEDBS_FILE} is in place of RocksDB").into()),
            (Self::Speedb, false) => {
                Err(format!("this process has RocksDB, not {SPEEDBS_FILE}").into())
            }
        }
    }

    /// Waits until nothing is flushed or compacted.
    pub fn wait_for_compactions(self, db: &DB) -> Outcome<()> {
        match self {
            Self::RocksDb => Ok(db.wait_for_compact(&WaitForCompactOptions::default())?),
            Self::Speedb => {
                let mut quiet = 0;
                while quiet < QUIET {
                    quiet = if is_at_work(db)? { 0 } else { quiet + 1 };
                    SystemClock::new().sleep(PAUSE);
                }
                Ok(())
            }
        }
    }
}

fn is_at_work(db: &DB) -> Outcome<bool> {
    for name in [
        "rocksdb.mem-table-flush-pending",
        "rocksdb.num-running-flushes",
        "rocksdb.compaction-pending",
        "rocksdb.num-running-compactions",
    ] {
        let figure = db.property_int_value(name)?;
        if figure.ok_or_else(|| format!("it has no figure {name}"))? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
