//! RocksDB 11.8 and Speedb 2.8, over one directory or, by `db_paths`, over two.
//!
//! ```text
//! @fast, @slow   TIER/db                            all of it
//! @tiers         FAST/db   log, manifest            FAST/tables  up to the fast capacity
//!                                                   SLOW/tables  everything below
//!   +files=thermocline     SLOW/db, and FAST/app by our plugin (`tiers.rs`)
//!   +persistent-cache=SIZE SLOW/db, FAST/log and FAST/cache by its own (`persistent.rs`)
//! ```
//! Tuning is what RocksDB's own guide recommends: Bloom filters of 10 bits, index and filter
//! blocks in the block cache with those of level 0 pinned, dynamic level sizes, several background
//! jobs, direct reads and direct writes of flushes and compactions where the scenario is direct.
//!
//! With several paths RocksDB ignores dynamic level sizes. It fills the first path with the levels
//! whose planned sizes still fit, and takes level 0 to be as large as level 1. With
//! `levels=default` that is its 256 MB a level; with `levels=tuned` the base is chosen so that
//! levels 0, 1 and 2 together (1 + 1 + 10 bases) fill nine tenths of the fast capacity: the last
//! tenth is for the log and for compactions, whose outputs exist beside their inputs. Under writes
//! that is too little: level 0 and the outputs take half of the capacity again. With `levels=held`
//! the base is half of that, so that what lies there stays about within the capacity.
//!
//! Invariant: write buffers, block cache, row cache and buffers of a persistent cache together are
//! the memory that was given.

mod library;
mod persistent;
mod transactions;

use crate::foreign::persistent_cache::PersistentCache;
use crate::foreign::rocksdb_tiers::Environment;
use crate::tiers::{self, Tiers};
use library::Library;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBAccess, DBCompressionType, DBPath,
    DBRawIteratorWithThreadMode, OptimisticTransactionDB, Options, ReadOptions, TransactionDB,
    TransactionDBOptions, WriteOptions,
};
use std::path::PathBuf;
use std::sync::LazyLock;
use thermocline_bench::Outcome;
use thermocline_bench::store::{
    CreatedTables, Durability, EngineKind, Needs, OpenOptions, SecondLevel, Store, TierSpace,
    Visitor,
};
use thermocline_foundation::ByteSize;
use transactions::Transactional;

/// A library as an engine.
#[derive(Clone, Copy, Debug)]
pub struct RocksDb(Library);

/// RocksDB itself.
pub static ROCKSDB: RocksDb = RocksDb(Library::RocksDb);

/// Speedb, by the same bindings.
pub static SPEEDB: RocksDb = RocksDb(Library::Speedb);

/// Levels 0 and 1 of one base each, level 2 of ten.
const BASES_ON_FAST: u64 = 12;
/// The same with the outputs of compactions, and with what a level has above its plan under writes.
const BASES_HELD: u64 = 24;
const MULTIPLIER: f64 = 10.0;
const WRITE_BUFFERS: u64 = 3;
/// RocksDB's own default.
const LEVEL_BASE: u64 = 256 << 20;

/// How often RocksDB looks for tables that reads ask to compact, where nothing is written.
const WAKE_UP_S: u64 = 20;

const OWN_OPTIONS: [(&str, &str); 13] = [
    (
        "levels",
        "with two tiers: default, tuned so that the upper levels fill the fast one, or held",
    ),
    ("row-cache", "part of the memory for whole rows, such as 64MiB; default 0"),
    ("cache", "lru (default) or hyper: the kind of block cache"),
    ("block-size", "bytes of a data block; default 4KiB"),
    (
        persistent::OPTION,
        "with two tiers: bytes of its cache of blocks on the fast one; all tables on the slow one",
    ),
    ("index", "whole (default), or partitioned: indexes and filters in parts of 4 KiB"),
    ("jobs", "threads for flushes and compactions; default 4"),
    ("compression", "none (default), lz4 or zstd"),
    ("transactions", "the kind of database: none (default), optimistic or pessimistic"),
    (
        "read-triggered",
        "sampled reads a byte from which a table is compacted, such as 0.001; default 0",
    ),
    ("level-base", "bytes of level 1, with fixed sizes of levels; default as levels says"),
    ("subcompactions", "parts of a compaction at once; default 2"),
    ("level-from", "with files=thermocline: listener (default) or log tells a table's level"),
];

/// Bytes of a part of an index.
const PARTITION_BYTES: usize = 4 << 10;

/// What a label may carry, each with what it means.
type LabelOptions = Vec<(&'static str, &'static str)>;

/// With those of the plugin.
static OPTIONS: LazyLock<LabelOptions> = LazyLock::new(|| options_of(Library::RocksDb));
static OPTIONS_OF_SPEEDB: LazyLock<LabelOptions> = LazyLock::new(|| options_of(Library::Speedb));

fn options_of(library: Library) -> LabelOptions {
    let all = [&OWN_OPTIONS[..], &tiers::OPTIONS].concat();
    all.into_iter().filter(|(name, _)| library.has_option(name)).collect()
}

/// The kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Optimistic,
    Pessimistic,
}

impl Kind {
    const NAMES: [(&str, Self); 3] = [
        ("none", Self::Plain),
        ("optimistic", Self::Optimistic),
        ("pessimistic", Self::Pessimistic),
    ];
}

/// What the label and the scenario come to.
#[derive(Clone, Debug)]
struct Plan {
    write_buffer: u64,
    block_cache: u64,
    row_cache: u64,
    hyper: bool,
    block_size: u64,
    jobs: i32,
    compression: DBCompressionType,
    /// Sampled reads a byte above which a table goes down a level; 0: never.
    read_triggered: f64,
    level_base: u64,
    /// Path and target size.
    paths: Vec<(String, u64)>,
    db: String,
    direct: bool,
    kind: Kind,
    fixed_levels: bool,
    subcompactions: u32,
    /// Our plugin's, which then is in place of paths.
    tiers: Option<Tiers>,
    listens: bool,
    has_partitions: bool,
    persistent: Option<persistent::Plan>,
}

impl Plan {
    fn new(library: Library, options: &OpenOptions) -> Outcome<Self> {
        let [first, others @ ..] = options.tiers.as_slice() else {
            return Err("RocksDB needs at least one directory".into());
        };
        let row_cache = options.parsed::<ByteSize>("row-cache")?.unwrap_or(ByteSize(0)).0;
        let memory = options.memory.0;
        let write_buffer = memory / 4 / WRITE_BUFFERS;
        let persistent = persistent::plan(options)?;
        let buffers = persistent.as_ref().map_or(0, persistent::Plan::memory_bytes);
        let caches = (memory - write_buffer * WRITE_BUFFERS).saturating_sub(buffers);
        let block_cache =
            caches.checked_sub(row_cache).filter(|left| *left > 0).ok_or_else(|| {
                let (row, caches) = (ByteSize(row_cache), ByteSize(caches));
                format!(
                    "option row-cache={row}: of {} there are {caches} for caches",
                    options.memory
                )
            })?;
        let base: Option<ByteSize> = options.parsed("level-base")?;
        let planned = level_base(options.option("levels"), first, !others.is_empty())?;
        let level_base = base.map_or(planned, |base| base.0);
        let tiers = tiers::tiers(options, library.plugin())?;
        let paths = if others.is_empty() || tiers.is_some() || persistent.is_some() {
            Vec::new()
        } else {
            let path = |tier: &TierSpace| tier.path.join("tables").display().to_string();
            options.tiers.iter().map(|tier| (path(tier), tier.capacity.0)).collect()
        };
        let listens = choice(options, "level-from", &[("listener", true), ("log", false)])?;
        Ok(Self {
            write_buffer,
            block_cache,
            row_cache,
            hyper: choice(options, "cache", &[("lru", false), ("hyper", true)])?,
            block_size: options.parsed("block-size")?.unwrap_or(ByteSize(4096)).0,
            jobs: options.parsed("jobs")?.unwrap_or(4),
            compression: choice(
                options,
                "compression",
                &[
                    ("none", DBCompressionType::None),
                    ("lz4", DBCompressionType::Lz4),
                    ("zstd", DBCompressionType::Zstd),
                ],
            )?,
            read_triggered: options.parsed("read-triggered")?.unwrap_or(0.0),
            level_base,
            paths,
            db: match (&tiers, others) {
                (Some(tiers), _) => tiers.db.display().to_string(),
                (None, [slow]) if persistent.is_some() => {
                    slow.path.join("db").display().to_string()
                }
                _ => first.path.join("db").display().to_string(),
            },
            direct: options.direct,
            kind: choice(options, "transactions", &Kind::NAMES)?,
            fixed_levels: base.is_some(),
            subcompactions: options.parsed("subcompactions")?.unwrap_or(2),
            tiers,
            listens: listens && library.has_listener(),
            has_partitions: choice(options, "index", &[("whole", false), ("partitioned", true)])?,
            persistent,
        })
    }

    /// The options, and the caches they refer to.
    fn options(&self) -> Outcome<Options> {
        // The crate has no setters for these two.
        let text = match self.read_triggered {
            0.0 => String::new(),
            reads => format!(
                "read_triggered_compaction_threshold={reads};\
                 max_compaction_trigger_wakeup_seconds={WAKE_UP_S}"
            ),
        };
        let mut all = Options::default().get_options_from_string(text)?;
        all.create_if_missing(true);
        all.set_write_buffer_size(self.write_buffer as usize);
        all.set_max_write_buffer_number(WRITE_BUFFERS as i32);
        all.set_max_background_jobs(self.jobs);
        all.set_max_subcompactions(self.subcompactions);
        all.set_bytes_per_sync(1 << 20);
        all.set_max_open_files(-1);
        all.set_keep_log_file_num(1);
        // The plugin reads levels of tables there.
        let is_read = self.tiers.is_some() && !self.listens;
        let level = if is_read { rocksdb::LogLevel::Info } else { rocksdb::LogLevel::Warn };
        all.set_log_level(level);
        all.set_stats_dump_period_sec(0);
        all.set_stats_persist_period_sec(0);
        all.set_compression_type(self.compression);
        all.set_level_compaction_dynamic_level_bytes(self.has_dynamic_levels());
        all.set_max_bytes_for_level_base(self.level_base);
        all.set_max_bytes_for_level_multiplier(MULTIPLIER);
        all.set_target_file_size_base(self.file_size());
        all.set_compaction_readahead_size(self.readahead() as usize);
        all.set_use_direct_reads(self.direct);
        all.set_use_direct_io_for_flush_and_compaction(self.direct);
        let paths: Vec<DBPath> = self
            .paths
            .iter()
            .map(|(path, target)| DBPath::new(path, *target))
            .collect::<Result<_, _>>()?;
        if !paths.is_empty() {
            all.set_db_paths(&paths);
        }
        let bytes = self.block_cache as usize;
        let cache = if self.hyper {
            Cache::new_hyper_clock_cache(bytes, 0)
        } else {
            Cache::new_lru_cache(bytes)
        };
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&cache);
        table.set_block_size(self.block_size as usize);
        table.set_bloom_filter(10.0, false);
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        if self.has_partitions {
            table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
            table.set_partition_filters(true);
            table.set_metadata_block_size(PARTITION_BYTES);
            table.set_pin_top_level_index_and_filter(true);
        }
        all.set_block_based_table_factory(&table);
        if let Some(plan) = &self.persistent {
            all.set_wal_dir(&plan.log);
        }
        if self.row_cache > 0 {
            all.set_row_cache(&Cache::new_lru_cache(self.row_cache as usize));
        }
        Ok(all)
    }

    /// With several paths RocksDB has none.
    fn has_dynamic_levels(&self) -> bool {
        self.paths.is_empty() && !self.fixed_levels
    }

    /// Its own 2 MiB for each input of a compaction, less where memory is small: there may be
    /// dozens.
    fn readahead(&self) -> u64 {
        (self.write_buffer / 8).clamp(256 << 10, 2 << 20)
    }

    /// Tables of 64 MiB, smaller where a level would be a handful of them.
    fn file_size(&self) -> u64 {
        (self.level_base / 4).clamp(4 << 20, 64 << 20)
    }
}

/// The value of an option out of a list whose first one is the default.
fn choice<T: Copy>(options: &OpenOptions, name: &str, values: &[(&str, T)]) -> Outcome<T> {
    let text = options.option(name).unwrap_or(values[0].0);
    let found = values.iter().find(|(value, _)| *value == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let valid: Vec<_> = values.iter().map(|(value, _)| *value).collect();
        format!("option {name}={text}: it is one of {}", valid.join(", ")).into()
    })
}

/// Bytes of level 1.
fn level_base(levels: Option<&str>, first: &TierSpace, tiered: bool) -> Outcome<u64> {
    match levels {
        None | Some("default") => Ok(LEVEL_BASE),
        Some("tuned") if tiered => Ok(first.capacity.0 / 10 * 9 / BASES_ON_FAST),
        Some("held") if tiered => Ok(first.capacity.0 / 10 * 9 / BASES_HELD),
        Some(levels @ ("tuned" | "held")) => {
            Err(format!("option levels={levels} needs two tiers: rocksdb@tiers").into())
        }
        Some(other) => Err(format!("option levels={other}: it is default, tuned or held").into()),
    }
}

impl EngineKind for RocksDb {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn about(&self) -> String {
        self.0.about().to_owned()
    }

    fn unavailable(&self) -> Option<String> {
        self.0.unavailable()
    }

    fn libraries(&self) -> Option<PathBuf> {
        self.0.folder()
    }

    fn needs(&self) -> Needs {
        Needs::OneOrMore
    }

    fn options(&self) -> &[(&str, &str)] {
        match self.0 {
            Library::RocksDb => &OPTIONS,
            Library::Speedb => &OPTIONS_OF_SPEEDB,
        }
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let plan = Plan::new(self.0, options)?;
        let size = |bytes: u64| ByteSize(bytes).to_string();
        let mut pairs = vec![
            ("write_buffer_size", size(plan.write_buffer)),
            ("max_write_buffer_number", WRITE_BUFFERS.to_string()),
            ("block_cache", format!("{} {}", size(plan.block_cache), cache_name(plan.hyper))),
            ("row_cache", size(plan.row_cache)),
            ("block_size", size(plan.block_size)),
            ("filter_policy", "bloom 10 bits".to_owned()),
            ("cache_index_and_filter_blocks", "true, level 0 pinned".to_owned()),
            ("compression", format!("{:?}", plan.compression).to_lowercase()),
            ("max_bytes_for_level_base", size(plan.level_base)),
            ("level_compaction_dynamic_level_bytes", plan.has_dynamic_levels().to_string()),
            ("target_file_size_base", size(plan.file_size())),
            ("compaction_readahead_size", size(plan.readahead())),
            ("max_background_jobs", plan.jobs.to_string()),
            ("max_subcompactions", plan.subcompactions.to_string()),
            ("read_triggered_compaction_threshold", plan.read_triggered.to_string()),
            ("transactions", format!("{:?}", plan.kind).to_lowercase()),
            ("use_direct_reads", plan.direct.to_string()),
            ("use_direct_io_for_flush_and_compaction", plan.direct.to_string()),
            ("bytes_per_sync", size(1 << 20)),
            ("sync", (options.durability == Durability::Sync).to_string()),
        ];
        if let Some(plan) = &plan.persistent {
            let (bytes, file) = (size(plan.sizes.bytes), size(plan.sizes.file_bytes.into()));
            let buffers = size(plan.memory_bytes());
            let text = format!("{bytes}, files of {file}, {buffers} of buffers");
            pairs.push(("persistent_cache", text));
        }
        if plan.has_partitions {
            pairs.push(("index_type", "two levels, filters too".to_owned()));
        }
        if let Some(tiers) = &plan.tiers {
            pairs.push(("env", tiers.uri.clone()));
        }
        for (tier, (_, target)) in options.tiers.iter().zip(&plan.paths) {
            pairs.push(("db_paths", format!("{} with target {}", tier.name, size(*target))));
        }
        Ok(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        self.0.check()?;
        let plan = Plan::new(self.0, options)?;
        let mut write = WriteOptions::default();
        write.set_sync(options.durability == Durability::Sync);
        let mut all = plan.options()?;
        let environment = match &plan.tiers {
            None => None,
            Some(tiers) => {
                tiers.make()?;
                tiers.tell_profile()?;
                let plugin = self.0.plugin();
                Some(Environment::set(&mut all, plugin, &tiers.uri, plan.listens)?)
            }
        };
        // What is loaded is not read: the cache is made for the run.
        let asked = plan.persistent.as_ref().filter(|_| !options.loading);
        let persistent = asked.map(|cache| cache.set(&mut all, plan.direct)).transpose()?;
        // All kinds have the same files, and the plain one alone can wait for its compactions.
        let kind = if options.loading { Kind::Plain } else { plan.kind };
        Ok(match kind {
            Kind::Plain => {
                let db = DB::open(&all, &plan.db)?;
                let fast_capacity = plan.tiers.as_ref().and_then(|tiers| tiers.fast_capacity);
                let library = self.0;
                Box::new(Open { library, db, write, environment, persistent, fast_capacity })
            }
            Kind::Optimistic => {
                let db = OptimisticTransactionDB::open(&all, &plan.db)?;
                Box::new(Transactional::new(db, write))
            }
            Kind::Pessimistic => {
                let db = TransactionDB::open(&all, &TransactionDBOptions::default(), &plan.db)?;
                Box::new(Transactional::new(db, write))
            }
        })
    }
}

fn cache_name(hyper: bool) -> &'static str {
    if hyper { "HyperClockCache" } else { "LRUCache" }
}

fn scan<D: DBAccess>(
    mut cursor: DBRawIteratorWithThreadMode<'_, D>,
    from: &[u8],
    count: u64,
    visit: &mut Visitor<'_>,
) -> Outcome<u64> {
    cursor.seek(from);
    let mut found = 0;
    while found < count && cursor.valid() {
        if let (Some(key), Some(value)) = (cursor.key(), cursor.value()) {
            visit(key, value);
        }
        found += 1;
        if found < count {
            cursor.next();
        }
    }
    cursor.status()?;
    Ok(found)
}

struct Open {
    library: Library,
    db: DB,
    write: WriteOptions,
    environment: Option<Environment>,
    persistent: Option<PersistentCache>,
    fast_capacity: Option<u64>,
}

impl Open {
    fn of_tiers<T>(&self, figure: impl Fn(&str) -> Option<T>) -> Option<T> {
        figure(&self.environment.as_ref()?.stats()?)
    }
}

impl Store for Open {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let Some(found) = self.db.get_pinned(key)? else { return Ok(false) };
        value.extend_from_slice(&found);
        Ok(true)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        Ok(self.db.put_opt(key, value, &self.write)?)
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        Ok(self.db.delete_opt(key, &self.write)?)
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        scan(self.db.raw_iterator_opt(ReadOptions::default()), from, count, visit)
    }

    fn fast_capacity(&self) -> Option<u64> {
        self.fast_capacity
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.db.flush_wal(true)?)
    }

    fn settle(&self) -> Outcome<()> {
        self.db.flush()?;
        self.library.wait_for_compactions(&self.db)
    }

    fn memory_bytes(&self) -> Option<u64> {
        let names = [
            "rocksdb.block-cache-usage",
            "rocksdb.cur-size-all-mem-tables",
            "rocksdb.estimate-table-readers-mem",
        ];
        names.iter().map(|name| self.db.property_int_value(*name).ok().flatten()).sum()
    }

    fn second_level(&self) -> Option<SecondLevel> {
        let own = self.persistent.as_ref().map(persistent::second_level);
        own.or_else(|| self.of_tiers(tiers::second_level))
    }

    fn created_tables(&self) -> Option<CreatedTables> {
        self.of_tiers(|json| Some(tiers::tables(json)))
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        self.db.cancel_all_background_work(true);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test reads what RocksDB wrote")]
mod tests {
    use super::*;

    fn plan(texts: &[(&str, &str)], tiers: usize) -> Outcome<Plan> {
        let tier = |name: &&str| TierSpace {
            name: (*name).to_owned(),
            path: name.into(),
            capacity: ByteSize(256 << 20),
        };
        let pairs = texts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Plan::new(
            Library::RocksDb,
            &OpenOptions {
                tiers: ["fast", "slow"][..tiers].iter().map(tier).collect(),
                memory: ByteSize(64 << 20),
                durability: Durability::Buffered,
                direct: false,
                threads: 2,
                key_bytes: 24,
                value_bytes: 100,
                records: 1000,
                loading: false,
                options: pairs.collect(),
            },
        )
    }

    #[test]
    fn memory_is_divided_without_rest_or_excess() {
        let plan = plan(&[("row-cache", "8MiB")], 2).unwrap();
        let sum = plan.write_buffer * WRITE_BUFFERS + plan.block_cache + plan.row_cache;
        assert_eq!(sum, 64 << 20);
        assert_eq!(plan.row_cache, 8 << 20);
    }

    #[test]
    fn buffers_of_a_persistent_cache_are_of_the_memory() {
        let plan = plan(&[("persistent-cache", "200MiB")], 2).unwrap();
        let buffers = plan.persistent.as_ref().unwrap().memory_bytes();
        assert!((3 << 20..5 << 20).contains(&buffers), "{buffers}");
        assert_eq!(plan.write_buffer * WRITE_BUFFERS + plan.block_cache + buffers, 64 << 20);
        assert!(plan.paths.is_empty() && plan.db == "slow/db");
    }

    #[test]
    fn tuned_levels_fill_nine_tenths_of_the_fast_tier() {
        let plan = plan(&[("levels", "tuned")], 2).unwrap();
        let filled = plan.level_base * BASES_ON_FAST;
        let fast = plan.paths[0].1;
        assert!(filled <= fast && filled > fast / 10 * 8, "{filled} of {fast}");
        let held = self::plan(&[("levels", "held")], 2).unwrap();
        assert_eq!(held.level_base, plan.level_base / 2);
    }

    /// RocksDB writes the options that hold into a file of its own.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test reads that file")]
    fn a_store_that_compacts_what_is_read_says_so_in_its_options() {
        let home = tempfile::tempdir().unwrap();
        let options_of = |texts: &[(&str, &str)], name: &str| {
            let mut plan = plan(texts, 1).unwrap();
            plan.db = home.path().join(name).display().to_string();
            drop(DB::open(&plan.options().unwrap(), &plan.db).unwrap());
            let files = std::fs::read_dir(&plan.db).unwrap().map(|entry| entry.unwrap().path());
            let is_options = |path: &std::path::PathBuf| {
                path.file_name().unwrap().to_string_lossy().starts_with("OPTIONS-")
            };
            std::fs::read_to_string(files.into_iter().find(is_options).unwrap()).unwrap()
        };
        let on = options_of(&[("read-triggered", "0.001")], "on");
        assert!(on.contains("read_triggered_compaction_threshold=0.001"), "{on}");
        assert!(on.contains("max_compaction_trigger_wakeup_seconds=20"), "{on}");
        let off = options_of(&[], "off");
        assert!(off.contains("read_triggered_compaction_threshold=0.0"), "{off}");
    }

    #[test]
    fn wrong_options_are_refused_with_what_is_valid() {
        let refused = |name, value, tiers| plan(&[(name, value)], tiers).unwrap_err().to_string();
        assert!(refused("levels", "many", 2).contains("default, tuned or held"));
        assert!(refused("levels", "tuned", 1).contains("rocksdb@tiers"));
        assert!(refused("levels", "held", 1).contains("levels=held needs two tiers"));
        assert!(refused("row-cache", "64MiB", 1).contains("for caches"));
        assert!(refused("cache", "none", 1).contains("lru, hyper"));
        assert!(refused("persistent-cache", "8MiB", 1).contains("rocksdb@tiers"));
        assert!(refused("persistent-cache", "1GiB", 2).contains("2 MiB to 256 MiB"));
        let both = plan(&[("persistent-cache", "8MiB"), ("levels", "tuned")], 2);
        assert!(both.unwrap_err().to_string().contains("without levels"));
    }
}
