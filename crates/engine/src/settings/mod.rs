//! Settings: plain values with units, a default and a range each. They come from a builder or from
//! TOML; the file
//! `settings.toml` in a database's home keeps those it was created with.
//!
//! `preset` has no default of its own: where none is named, a new database gets the one
//! that fits its tiers, and an old one goes on with what it has. From then on the database has it
//! by name, so that another default, or another number of tiers, changes nothing in it.

pub(crate) mod fast_cache;
pub(crate) mod hybrid;
mod memory;
pub(crate) mod persistent_memory;
mod placement;
pub(crate) mod retired;
mod shares;
mod table_options;
mod tier;
mod waiting;

use crate::error::{Error, Result};
use fast_cache::FastCacheSettings;
use hybrid::HybridSettings;
pub(crate) use memory::{MemoryDivision, WRITER_BYTES};
use persistent_memory::PersistentMemory;
use serde::{Deserialize, Serialize};
pub(crate) use shares::RETIRED_LOGS_MAX;
use std::path::Path;
use thermocline_device::{PlacementChoice, TierSpec};
use thermocline_foundation::{ByteSize, Duration};
pub use tier::Tier;

/// The file of settings in a database's home.
pub(crate) const SETTINGS_NAME: &str = "settings.toml";

/// Least files that a store has open while it works: logs, manifest, what flushes and merges read
/// and write at once.
pub(crate) const OPEN_FILES_MIN: u64 = 24;
/// Most that a process can have on Linux, unless its system was told otherwise.
const OPEN_FILES_MAX: u64 = 1_000_000;

/// Refuses a value outside its range, naming the setting, the value and the range.
fn range(name: &str, value: u64, low: u64, high: u64, unit: &str) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name} = {value}{unit} is out of range; it must be {low} to {high}{unit}"
    )))
}

/// Not written to `settings.toml`, so that builds without the setting open the database.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// After a sync: it survives loss of power.
    #[default]
    Sync,
    /// After it was handed to the device's driver: it survives the process. A background sync
    /// bounds what loss of power can take (`background_sync_bytes`).
    Buffered,
}

/// How blocks of a level, or records on the fast tier, are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: about 500 MB/s to write, several GB/s to read.
    #[default]
    Lz4,
    /// Zstandard at level 3: smaller and slower.
    Zstd,
}

impl From<Compression> for thermocline_foundation::Compression {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd { level: 3 },
        }
    }
}

/// Which choices at the engine's seams are used together (see ARCHITECTURE.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Memtable and log over leveled tables: what a new database with one tier gets.
    Leveled,
    /// Records in slabs on the fast tier, cold ones in sorted tables on the slow tier (PrismDB):
    /// what a new database with two tiers or more gets. With one it is refused. Each record on the
    /// fast tier takes about 33 bytes and its key of `memory`, and more than the budget if it is
    /// less than they take together.
    Hybrid,
    /// No log, one level of tables that may overlap, and an index of all keys in persistent memory
    /// (SLM-DB): needs `persistent_memory`, of which a key takes about 66 bytes and its own.
    Indexed,
}

impl Preset {
    /// What a new database with so many tiers gets where none is named.
    pub fn of_new(tiers: usize) -> Self {
        if tiers > 1 { Self::Hybrid } else { Self::Leveled }
    }

    /// Its name, as settings and command lines have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leveled => "leveled",
            Self::Hybrid => "hybrid",
            Self::Indexed => "indexed",
        }
    }
}

fn is_one(value: &u32) -> bool {
    *value == 1
}

/// All settings. Unknown names in TOML are an error, so that a typing mistake does not go
/// unnoticed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The tiers, fastest first. None: one tier in the database's home, as large as its disk.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// The set of choices. None, the default: what an existing database has; for a new one `hybrid`
    /// with two tiers or more, `leveled` with one. An open database always has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Memory for everything: memtables, block cache, indexes, buffers. 1 MiB and up; default
    /// 256 MiB. Below 64 MiB the buffers of background work, about 16 MiB, do not fit into it.
    pub memory: ByteSize,
    /// What a write without a durability of its own gets; default `sync`.
    pub durability: Durability,
    /// Written but unsynced log bytes after which a background sync starts, at least 64 KiB;
    /// default 8 MiB.
    pub background_sync_bytes: ByteSize,
    /// Groups of synced writes in flight at once, of all callers, 1 to 16; default 1: one group
    /// after the other. More where the device takes several writes at a time and many threads write
    /// (SpanDB, section 4.2). Only with `durability = "sync"`.
    #[serde(skip_serializing_if = "is_one")]
    pub log_writes: u32,
    /// Where tables go, with the preset `leveled` over two tiers or more: `room`, the default, has
    /// as many upper levels on the fast tier as fit; `bandwidth` as many as leave its bandwidth to
    /// the log (SpanDB, section 4.3); `parallelism` as many as it can take the writers of, by its
    /// profile (Keigo, section 4.2); `log_only` none; `top_levels(N)` level 0 and the next N that
    /// are in use; `fill_first` fills the tiers one after the other. `hybrid` refuses all but the
    /// default.
    #[serde(skip_serializing_if = "placement::is_room")]
    pub placement: PlacementChoice,
    /// Use of the fast tier, in percent of what it can move, below which `bandwidth` begins to send
    /// levels there, one after three seconds, and goes on until the use is high or the tier full; 0
    /// to `bandwidth_high`, default 40. To be lowered where writes must find the device idle.
    #[serde(skip_serializing_if = "placement::is_low")]
    pub bandwidth_low: u32,
    /// Use from which on it sends a level less every three seconds, up to 100; default 65. Tables
    /// that are there stay until they are merged.
    #[serde(skip_serializing_if = "placement::is_high")]
    pub bandwidth_high: u32,
    /// Bytes a second that the fast tier can move, 1 MiB and up, or 0, the default: as in its best
    /// second since opening, at least what `thermocline profile` measured of it, or 128 MiB. To be
    /// set where it is known: seconds of little work say little.
    #[serde(skip_serializing_if = "placement::is_measured")]
    pub bandwidth_peak: ByteSize,
    /// Threads for flushes and compactions, 1 to 64; default: one per processor, at least 2.
    pub background_threads: u32,
    /// Logical (uncompressed) bytes of a data block, 1 KiB to 1 MiB; default 6 KiB (MyNVM, section
    /// 4.1.2).
    pub block_size: ByteSize,
    /// Bloom filter bits per key, 0 (none) to 32; default 10.
    pub filter_bits_per_key: u8,
    /// Bytes after which a table is closed and the next begun, 64 KiB and up; default 32 MiB.
    pub table_size: ByteSize,
    /// Compression of levels 0, 1, ...; the last one holds for all deeper levels. Default: none,
    /// none, lz4.
    pub compression: Vec<Compression>,
    /// Most bytes of a dictionary that the blocks of a table have in common, where they are
    /// compressed with zstd and it makes the table 2 % smaller (MyNVM, section 4.2): 512 B to
    /// 64 KiB, or 0 for none; default 16 KiB, less where memory is small. To be 0 where reading
    /// from slow tiers costs less than processor time, to be raised for blocks of many kinds.
    #[serde(skip_serializing_if = "table_options::is_default_dictionary")]
    pub dictionary_size: ByteSize,
    /// Size ratio of neighbouring levels, 2 to 100; default 10.
    pub level_ratio: u32,
    /// Flushed tables that start a compaction out of level 0, 1 to 64; default 4. This and the next
    /// two are of the preset `leveled` alone: with `hybrid` nothing piles up in level 0, and the
    /// fast tier's room says when writers are slowed down.
    pub level0_tables: u32,
    /// Tables in level 0 at which writers are slowed down; default 20.
    pub level0_slowdown: u32,
    /// Tables in level 0 at which writers wait; default 36.
    pub level0_stop: u32,
    /// How often a delayed writer looks whether it still has to wait; default 20 ms.
    pub delay_max: Duration,
    /// How often an open store writes its figures for other processes, while there is something to
    /// tell: 10 ms to 1 h, or 0 for never; default 1 s.
    pub stats_interval: Duration,
    /// Files that stay open at once, 24 to 1,000,000, or 0, the default: half of what the process
    /// may have open (`ulimit -n`, which the store raises to the hard limit). Of tables and slabs
    /// beyond that the idle ones are closed and opened again, at the price of two system calls and
    /// what the file system needs for a name. What requests are using comes on top. A number that
    /// the process may not have, with what program and directories take, is refused at opening.
    #[serde(skip_serializing_if = "is_zero")]
    pub open_files: u32,
    /// Asynchronous requests that may be on their way at once, from the call to the answer, 1 to
    /// 1,048,576; default 1,024. Beyond, callers get an error of kind `Busy`. To be raised where
    /// bursts are longer and memory is there.
    pub request_queue: u32,
    /// Bytes of these requests (keys, values, pages to come), 64 KiB and up; default 8 MiB. One
    /// request may go beyond. To be raised with the number, or where batches are long.
    pub request_queue_bytes: ByteSize,
    /// Threads that carry out asynchronous gets and pages of scans, 1 to 64, or 0, the default: one
    /// per processor but one, at least 1. To be raised where reads wait for slow devices.
    #[serde(skip_serializing_if = "is_zero")]
    pub request_workers: u32,
    /// Threads that write for asynchronous callers, 1 to 3; default 3, of which one is at work
    /// unless all others wait for the device; more than `log_writes` never write side by side. To
    /// be lowered where a device takes one write at a time, or where processors are few.
    #[serde(skip_serializing_if = "waiting::is_most_loggers")]
    pub loggers_max: u32,
    /// How long a write waits for a lock that a transaction holds, before an error of kind
    /// `LockTimeout`; 0, which does not wait, to 1 h; default 1 s. Transactions may have another.
    /// To be raised where transactions take long and are worth waiting for, to be lowered where
    /// callers try again.
    #[serde(skip_serializing_if = "waiting::is_default_timeout")]
    pub lock_timeout: Duration,
    /// Memory that the writes of a transaction may take, unless its options say otherwise; 4 KiB to
    /// 256 MiB, default 64 MiB. To be raised where transactions are large, to be lowered where many
    /// are open at once.
    #[serde(skip_serializing_if = "waiting::is_default_bytes")]
    pub transaction_bytes_max: ByteSize,
    /// The region of persistent memory that writes go to in place of a log (SLM-DB, section 3.1);
    /// none: a log. With `leveled` only. Once there is one, the database has it for good, and it is
    /// named only where it has another path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_memory: Option<PersistentMemory>,
    /// What only the preset `hybrid` looks at.
    pub hybrid: HybridSettings,
    /// The cache of blocks on tier 0, where there are slower tiers.
    #[serde(skip_serializing_if = "FastCacheSettings::are_default")]
    pub fast_cache: FastCacheSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tiers: Vec::new(),
            preset: None,
            memory: ByteSize::mib(256),
            durability: Durability::default(),
            background_sync_bytes: ByteSize::mib(8),
            log_writes: 1,
            placement: PlacementChoice::default(),
            bandwidth_low: 40,
            bandwidth_high: 65,
            bandwidth_peak: ByteSize(0),
            background_threads: thermocline_foundation::threads::available().clamp(2, 64) as u32,
            block_size: ByteSize::kib(6),
            filter_bits_per_key: 10,
            table_size: ByteSize::mib(32),
            compression: vec![Compression::None, Compression::None, Compression::Lz4],
            dictionary_size: table_options::DICTIONARY_SIZE,
            level_ratio: 10,
            level0_tables: 4,
            level0_slowdown: 20,
            level0_stop: 36,
            delay_max: Duration::ms(20),
            stats_interval: Duration::ms(1000),
            open_files: 0,
            request_queue: 1024,
            request_queue_bytes: ByteSize::mib(8),
            request_workers: 0,
            loggers_max: waiting::LOGGERS_MAX,
            lock_timeout: waiting::LOCK_TIMEOUT,
            transaction_bytes_max: waiting::TRANSACTION_BYTES_MAX,
            persistent_memory: None,
            hybrid: HybridSettings::default(),
            fast_cache: FastCacheSettings::default(),
        }
    }
}

impl Settings {
    /// Reads settings from TOML; `origin` names the file in errors. Names of settings that are no
    /// more are dropped with a warning.
    pub fn from_toml(text: &str, origin: &Path) -> Result<Self> {
        let mut table = text.parse::<toml::Table>().unwrap_or_default();
        let retired = retired::take(&mut table);
        let text = if retired.is_empty() { text } else { &table.to_string() };
        let settings: Self = toml::from_str(text).map_err(|error| {
            let message = error.message().replace('\n', " ");
            let place = match error.span().filter(|_| retired.is_empty()) {
                Some(span) => format!(", line {}", 1 + text[..span.start].matches('\n').count()),
                None => String::new(),
            };
            Error::invalid(format!("{}{place}: {message}", origin.display()))
        })?;
        if !retired.is_empty() {
            let (file, names) = (origin.display(), retired.join(", "));
            tracing::warn!(%file, "these are no settings any more and have no effect: {names}");
        }
        settings
            .check()
            .map_err(|error| Error::invalid(format!("{}: {error}", origin.display())))?;
        Ok(settings)
    }

    /// The settings as TOML.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::invalid(format!("settings: {error}")))
    }

    /// The settings as a database keeps them: without the tiers and the region of persistent
    /// memory, which `DATABASE` has, and with the preset by name.
    pub(crate) fn to_kept_toml(&self) -> Result<String> {
        debug_assert!(self.preset.is_some(), "a database knows its preset by name");
        Self { tiers: Vec::new(), persistent_memory: None, ..self.clone() }.to_toml()
    }

    /// Refuses values outside their ranges, naming the setting, the value and the range.
    pub fn check(&self) -> Result<()> {
        range("memory", self.memory.0, 1 << 20, 1 << 50, " B")?;
        range("background_sync_bytes", self.background_sync_bytes.0, 64 << 10, 1 << 40, " B")?;
        range("log_writes", self.log_writes.into(), 1, 16, "")?;
        range("bandwidth_high", self.bandwidth_high.into(), 1, 100, " %")?;
        range("bandwidth_low", self.bandwidth_low.into(), 0, self.bandwidth_high.into(), " %")?;
        let least = if self.bandwidth_peak.0 == 0 { 0 } else { 1 << 20 };
        range("bandwidth_peak", self.bandwidth_peak.0, least, 1 << 50, " B")?;
        self.check_placement()?;
        range("background_threads", self.background_threads.into(), 1, 64, "")?;
        range("block_size", self.block_size.0, 1 << 10, 1 << 20, " B")?;
        range("filter_bits_per_key", self.filter_bits_per_key.into(), 0, 32, "")?;
        range("table_size", self.table_size.0, 64 << 10, 1 << 34, " B")?;
        let least = if self.dictionary_size.0 == 0 { 0 } else { 512 };
        range("dictionary_size", self.dictionary_size.0, least, 64 << 10, " B")?;
        range("level_ratio", self.level_ratio.into(), 2, 100, "")?;
        range("level0_tables", self.level0_tables.into(), 1, 64, "")?;
        let (first, last) = (self.level0_tables, self.level0_stop);
        range("level0_slowdown", self.level0_slowdown.into(), first.into(), last.into(), "")?;
        range("level0_stop", last.into(), self.level0_slowdown.into(), 1000, "")?;
        range("delay_max", self.delay_max.0.as_millis() as u64, 1, 10_000, " ms")?;
        let interval = self.stats_interval.0;
        let least_ms = if interval.is_zero() { 0 } else { 10 };
        range("stats_interval", interval.as_millis() as u64, least_ms, 3_600_000, " ms")?;
        let least = if self.open_files == 0 { 0 } else { OPEN_FILES_MIN };
        range("open_files", self.open_files.into(), least, OPEN_FILES_MAX, "")?;
        self.check_waiting()?;
        range("compression levels", self.compression.len() as u64, 1, 7, "")?;
        range("number of tiers", self.tiers.len() as u64, 0, 16, "")?;
        self.check_persistent_memory()?;
        self.hybrid.check()?;
        self.fast_cache.check()?;
        self.check_cache_capacity()?;
        for (index, tier) in self.tiers.iter().enumerate() {
            range(&format!("capacity of tier {index}"), tier.capacity.0, 1 << 20, 1 << 60, " B")?;
        }
        Ok(())
    }

    /// The preset named, or else what a new database with these tiers gets.
    pub(crate) fn preset(&self) -> Preset {
        self.preset.unwrap_or_else(|| Preset::of_new(self.tiers.len()))
    }

    /// The preset named, or else what a database has that keeps `kept`. One that keeps no name was
    /// made, or its file written, before there was another default than `leveled`.
    pub(crate) fn preset_over(&self, kept: &Self) -> Preset {
        self.preset.or(kept.preset).unwrap_or(Preset::Leveled)
    }

    /// Compression of `level`.
    pub(crate) fn compression_of(&self, level: usize) -> Compression {
        let last = self.compression.last().copied().unwrap_or(Compression::None);
        self.compression.get(level).copied().unwrap_or(last)
    }

    /// The tiers, as the device layer takes them.
    pub(crate) fn tier_specs(&self) -> Vec<TierSpec> {
        let spec = |tier: &Tier| TierSpec {
            path: tier.path.clone(),
            capacity: tier.capacity,
            driver: tier.driver.clone(),
        };
        self.tiers.iter().map(spec).collect()
    }

    /// Groups of writes go to the log side by side.
    pub(crate) fn has_parallel_log(&self) -> bool {
        self.durability == Durability::Sync && self.log_writes > 1
    }

    /// Groups of writes in flight at once.
    pub(crate) fn groups_in_flight(&self) -> usize {
        if self.has_parallel_log() { self.log_writes as usize } else { 1 }
    }

    /// There is a fast tier and a slow one.
    pub(crate) fn is_tiered(&self) -> bool {
        self.tiers.len() > 1
    }
}

#[cfg(test)]
mod tests;
