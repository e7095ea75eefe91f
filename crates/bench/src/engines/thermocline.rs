//! Thermocline itself, an engine for each preset.
//!
//! ```text
//!   FAST/home  FAST/data  SLOW/data      the database's home lies with its first tier
//! ```
//! Options of the label are settings by their own names. A preset has those that all share, and its
//! own, which lie in a file of their own (`hybrid`).

use super::{fast_cache, hybrid, indexed};
use crate::Outcome;
use crate::store::{
    Change, Demotions, Durability, EngineKind, Flying, Needs, OpenOptions, REGION, REGION_SIZE,
    SecondLevel, Store, TierTraffic, Visitor,
};
use std::collections::VecDeque;
use std::path::PathBuf;
use thermocline::{
    ByteSize, Compression, Db, Environment, ErrorKind, Locking, PersistentMemory, Preset, Settings,
    Ticket, Tier, TransactionOptions,
};

/// A preset as an engine.
#[derive(Clone, Copy, Debug)]
pub struct Thermocline {
    name: &'static str,
    preset: Preset,
}

/// The preset `leveled`.
pub static LEVELED: Thermocline =
    Thermocline { name: "thermocline-leveled", preset: Preset::Leveled };

/// The preset `hybrid`: records in slots on the fast tier, tables on the slow one.
pub static HYBRID: Thermocline = Thermocline { name: "thermocline-hybrid", preset: Preset::Hybrid };

/// The preset `indexed`: wants `+persistent-memory=SIZE`.
pub static INDEXED: Thermocline =
    Thermocline { name: "thermocline-indexed", preset: Preset::Indexed };

/// What every preset's label may set.
const OPTIONS: [(&str, &str); SHARED] = [
    ("driver", "posix, direct or emulated-PROFILE for all tiers; else by --direct"),
    ("slow-driver", "the same for the slow tier alone"),
    ("background-threads", "threads for flushes and compactions, 1 to 64"),
    ("block-size", "bytes of a data block, such as 4KiB"),
    ("dictionary-size", "most bytes of a table's dictionary with zstd; default 16KiB, 0 for none"),
    ("filter-bits", "filter bits a key, 0 to 32"),
    ("table-size", "bytes of a table, such as 32MiB"),
    ("compression", "none, lz4 or zstd on all levels; default none"),
    ("background-sync", "unsynced log bytes that start a sync, such as 8MiB"),
    ("log-writes", "groups of synced writes in flight at once"),
    ("log-first", "on or off: background work makes way for writes of the log; default on"),
    ("log-zeros", "on or off: logs get zeros before durable writes go to them; default off"),
    ("placement", "leveled: room, bandwidth, parallelism, fill_first, log_only or top_levels(N)"),
    ("bandwidth-low", "percent of the fast tier's peak below which bandwidth adds a level"),
    ("bandwidth-high", "percent from which on it takes one away"),
    ("bandwidth-peak", "bytes a second that the fast tier can move, such as 500MiB; else measured"),
    ("stats-interval", "how often figures are written for other processes, such as 1s; 0s: never"),
    ("persistent-memory", "leveled: bytes of a region that writes go to in place of a log"),
    ("persistent-memory-driver", "mapped, or emulated-0ns to emulated-5000ns; default mapped"),
    ("transactions", "how they are kept apart: optimistic or pessimistic; default optimistic"),
];

/// How many options all presets share.
const SHARED: usize = 20;

/// The shared options and those of the cache of blocks, which every preset can have.
const LEVELED_OPTIONS: [(&str, &str); SHARED + fast_cache::OPTIONS.len()] =
    joined(&OPTIONS, &fast_cache::OPTIONS);

/// These and those of the preset `hybrid`.
const HYBRID_OPTIONS: [(&str, &str); LEVELED_OPTIONS.len() + hybrid::OPTIONS.len()] =
    joined(&LEVELED_OPTIONS, &hybrid::OPTIONS);

/// These of the preset `leveled`, and those of the preset `indexed`.
const INDEXED_OPTIONS: [(&str, &str); LEVELED_OPTIONS.len() + indexed::OPTIONS.len()] =
    joined(&LEVELED_OPTIONS, &indexed::OPTIONS);

/// Two lists as one of `N`.
const fn joined<const N: usize>(
    first: &[(&'static str, &'static str)],
    second: &[(&'static str, &'static str)],
) -> [(&'static str, &'static str); N] {
    let mut all = [("", ""); N];
    let mut at = 0;
    while at < N {
        all[at] = if at < first.len() { first[at] } else { second[at - first.len()] };
        at += 1;
    }
    all
}

impl Thermocline {
    fn settings(&self, options: &OpenOptions) -> Outcome<Settings> {
        let mut compression = Compression::None;
        hybrid::choose(options, "compression", &hybrid::COMPRESSIONS, &mut compression)?;
        let mut settings = Settings {
            preset: Some(self.preset),
            memory: options.memory,
            durability: match options.durability {
                Durability::Buffered => thermocline::Durability::Buffered,
                Durability::Sync => thermocline::Durability::Sync,
            },
            compression: vec![compression],
            fast_cache: fast_cache::settings(options)?,
            ..Settings::default()
        };
        let driver = match options.option("driver") {
            Some(driver) => driver,
            None if options.direct => "direct",
            None => "posix",
        };
        for space in options.tiers.iter().filter(|space| space.name != REGION) {
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
        if let Some(size) = options.parsed::<ByteSize>("dictionary-size")? {
            settings.dictionary_size = size;
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
        if let Some(interval) = options.parsed("stats-interval")? {
            settings.stats_interval = interval;
        }
        if let Some(groups) = options.parsed("log-writes")? {
            settings.log_writes = groups;
        }
        placement(options, &mut settings)?;
        settings.persistent_memory = persistent_memory(options)?;
        if self.preset == Preset::Hybrid {
            settings.hybrid = hybrid::settings(options, compression)?;
        }
        settings.check()?;
        Ok(settings)
    }
}

/// The region of persistent memory, in the directory that it has, or else beside the home.
fn persistent_memory(options: &OpenOptions) -> Outcome<Option<PersistentMemory>> {
    let size = options.parsed::<ByteSize>(REGION_SIZE)?;
    let driver = options.option("persistent-memory-driver");
    let own = options.tiers.iter().find(|space| space.name == REGION);
    let Some((size, first)) = size.zip(own.or(options.tiers.first())) else { return Ok(None) };
    let region = PersistentMemory::new(first.path.join("region"), size);
    Ok(Some(region.driver(driver.unwrap_or("mapped"))))
}

/// Where tables go, as the options say.
fn placement(options: &OpenOptions, settings: &mut Settings) -> Outcome<()> {
    if let Some(placement) = options.option("placement") {
        settings.placement = placement.parse()?;
    }
    let percents = [
        ("bandwidth-low", &mut settings.bandwidth_low),
        ("bandwidth-high", &mut settings.bandwidth_high),
    ];
    for (name, percent) in percents {
        if let Some(named) = options.parsed(name)? {
            *percent = named;
        }
    }
    if let Some(peak) = options.parsed("bandwidth-peak")? {
        settings.bandwidth_peak = peak;
    }
    Ok(())
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
        match self.preset {
            Preset::Leveled | Preset::Indexed => Needs::OneOrMore,
            // On one tier there is nothing to demote to.
            Preset::Hybrid => Needs::Tiers,
        }
    }

    fn options(&self) -> &[(&str, &str)] {
        match self.preset {
            Preset::Leveled => &LEVELED_OPTIONS,
            Preset::Indexed => &INDEXED_OPTIONS,
            Preset::Hybrid => &HYBRID_OPTIONS,
        }
    }

    fn describe(&self, options: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        let settings = self.settings(options)?;
        locking(options)?;
        let mut pairs = vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        for tier in &settings.tiers {
            let text = format!("{} on {}", tier.capacity, tier.driver);
            pairs.push(("tier".to_owned(), text));
        }
        let kept = Settings { tiers: Vec::new(), ..settings };
        let mut section = "";
        for line in kept.to_toml()?.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            }
            // What the preset does not look at is not in force.
            let read = section != "hybrid" || self.preset == Preset::Hybrid;
            if let Some((name, value)) = line.split_once(" = ").filter(|_| read) {
                let prefix = match section {
                    "hybrid" => "hybrid.",
                    "persistent_memory" => "persistent_memory.",
                    _ => "",
                };
                pairs.push((format!("{prefix}{name}"), value.trim_matches('"').to_owned()));
            }
        }
        let of_indexed = indexed::OPTIONS.into_iter().map(|(name, _)| name);
        let of_cache = [fast_cache::TRACED];
        for name in hybrid::EXPERIMENTS.into_iter().chain(of_indexed).chain(of_cache) {
            if let Some(value) = options.option(name) {
                pairs.push((format!("experiment.{name}"), value.to_owned()));
            }
        }
        Ok(pairs)
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let settings = self.settings(options)?;
        let first = options.tiers.first().ok_or("an engine needs at least one tier")?;
        let mut experiments = hybrid::experiments(options)?;
        indexed::add(options, &mut experiments)?;
        experiments.traced_blocks = fast_cache::traced(options)?;
        let environment = Environment { experiments, ..Environment::default() };
        let home = first.path.join("home");
        indexed::rebuild(options, &environment, &home)?;
        let db = environment.open_or_create(&home, &settings)?;
        let transactions =
            TransactionOptions { locking: locking(options)?, ..TransactionOptions::default() };
        let trace = first.path.join(fast_cache::TRACE_NAME);
        Ok(Box::new(Open { db, transactions, trace }))
    }
}

/// How the label's transactions are kept apart.
fn locking(options: &OpenOptions) -> Outcome<Locking> {
    let words = [("optimistic", Locking::Optimistic), ("pessimistic", Locking::Pessimistic)];
    let mut locking = Locking::default();
    hybrid::choose(options, "transactions", &words, &mut locking)?;
    Ok(locking)
}

#[derive(Debug)]
struct Open {
    db: Db,
    transactions: TransactionOptions,
    /// Where a trace of blocks goes.
    trace: PathBuf,
}

impl Open {
    /// One attempt.
    fn try_to_transact(&self, changes: &[Change<'_>]) -> thermocline::Result<()> {
        let mut transaction = self.db.transaction(self.transactions.clone());
        for change in changes {
            transaction.get_for_update(change.key)?;
        }
        for change in changes {
            match change.value {
                Some(value) => transaction.put(change.key, value)?,
                None => transaction.delete(change.key)?,
            }
        }
        transaction.commit().map(drop)
    }
}

/// Writes of one thread, by tickets.
#[derive(Debug)]
struct Tickets<'d> {
    db: &'d Db,
    tickets: VecDeque<Ticket<()>>,
}

impl Flying for Tickets<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<bool> {
        match self.db.put_async(key, value) {
            Ok(ticket) => self.tickets.push_back(ticket),
            Err(error) if error.kind() == ErrorKind::Busy => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn landed(&mut self, wait: bool) -> Outcome<bool> {
        let Some(oldest) = self.tickets.front_mut() else { return Ok(false) };
        if let Some(answer) = oldest.poll_now() {
            self.tickets.pop_front();
            answer?;
            return Ok(true);
        }
        if wait && let Some(oldest) = self.tickets.pop_front() {
            oldest.wait()?;
            return Ok(true);
        }
        Ok(false)
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
        Ok(self.db.put(key, value)?)
    }

    fn put_if_present(&self, key: &[u8], value: &[u8], _: &mut Vec<u8>) -> Outcome<bool> {
        Ok(self.db.put_if_present(key, value)?)
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

    fn flying(&self) -> Option<Box<dyn Flying + '_>> {
        Some(Box::new(Tickets { db: &self.db, tickets: VecDeque::new() }))
    }

    fn transact(&self, changes: &[Change<'_>]) -> Outcome<()> {
        use ErrorKind::{Conflict, Deadlock, LockTimeout};
        loop {
            match self.try_to_transact(changes) {
                Err(error) if matches!(error.kind(), Conflict | Deadlock | LockTimeout) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.db.sync()?)
    }

    fn settle(&self) -> Outcome<()> {
        self.db.flush()?;
        Ok(self.db.settle()?)
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        let stats = self.db.stats();
        let traffic = stats.tiers.iter().map(|tier| TierTraffic {
            reads: tier.reads,
            read_bytes: tier.read_bytes,
            writes: tier.writes,
            written_bytes: tier.written_bytes,
            syncs: tier.syncs,
        });
        Some(traffic.collect())
    }

    fn demotions(&self) -> Option<Demotions> {
        let demotions = self.db.stats().fast_tier?.demotions;
        Some(Demotions { ended: demotions.ended, elapsed_s: demotions.elapsed_s })
    }

    fn second_level(&self) -> Option<SecondLevel> {
        let stats = self.db.stats().fast_cache?;
        Some(SecondLevel {
            hits: stats.hits,
            misses: stats.misses,
            written_bytes: stats.written_bytes,
            blocks: stats.blocks,
            memory_bytes: stats.memory_bytes,
            adopted_blocks: stats.adopted_blocks,
            adopting_ns: stats.adopting_ns,
        })
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(self.db.stats().index?.bytes)
    }

    fn memory_bytes(&self) -> Option<u64> {
        Some(self.db.stats().memory.used_bytes)
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        if let Some(trace) = self.db.block_trace() {
            crate::block_trace::write(&self.trace, &trace)?;
        }
        Ok(self.db.close()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Label, Layout, TierSpace, find};
    use thermocline::{DemotionPolicy, Experiments, MergeOrder, Pinning, Promotion, Rule, Variant};

    /// A label's options, on two tiers.
    fn options(label: &str) -> Outcome<OpenOptions> {
        let label: Label = label.parse()?;
        let engines: [&dyn EngineKind; 3] = [&LEVELED, &HYBRID, &INDEXED];
        find(&engines, &label)?;
        let tier = |name: &str| TierSpace {
            name: name.to_owned(),
            path: name.into(),
            capacity: ByteSize::gib(1),
        };
        Ok(OpenOptions {
            tiers: vec![tier("fast"), tier("slow")],
            memory: ByteSize::mib(64),
            durability: Durability::Buffered,
            direct: false,
            threads: 1,
            key_bytes: 24,
            value_bytes: 1000,
            records: 1000,
            loading: false,
            options: label.options,
        })
    }

    /// The settings that a label comes to.
    fn settings(label: &str) -> Outcome<Settings> {
        let options = options(label)?;
        hybrid::experiments(&options)?;
        if label.starts_with(HYBRID.name) { &HYBRID } else { &LEVELED }.settings(&options)
    }

    #[test]
    fn options_of_a_hybrid_label_become_its_settings() {
        let label = "thermocline-hybrid@tiers+variant=paper+runs=6+policy=random+promotion=none\
                     +pinning=50+tracker=40+block-size=8KiB+epoch=500+cool-down=700\
                     +read-triggered=off+candidates=3+range-tables=2+low-watermark=40";
        let settings = settings(label).unwrap();
        let hybrid = settings.hybrid;
        assert_eq!(settings.preset, Some(Preset::Hybrid));
        assert_eq!(settings.block_size, ByteSize::kib(8));
        assert_eq!(hybrid.variant, Variant::Paper);
        assert_eq!((hybrid.runs, hybrid.pinning_percent, hybrid.tracker_percent), (6, 50, 40));
        let expected = Experiments {
            policy: Some(DemotionPolicy::Random),
            candidates: Some(3),
            range_tables: Some(2),
            runs: Some(6),
            low_watermark_percent: Some(40),
            promotion: Some(Promotion::None),
            read_triggered: Some(false),
            epoch_operations: Some(500),
            cool_down_operations: Some(700),
            ..Experiments::NONE
        };
        assert_eq!(hybrid::experiments(&options(label).unwrap()).unwrap(), expected);
    }

    #[test]
    fn a_label_says_where_tables_go_and_which_io_goes_first() {
        let label = "thermocline-leveled@tiers+placement=top_levels(2)+bandwidth-low=30\
                     +bandwidth-high=50+bandwidth-peak=500MiB+log-first=off+log-zeros=on";
        let leveled = settings(label).unwrap();
        assert_eq!(leveled.placement, thermocline::PlacementChoice::TopLevels(2));
        assert_eq!((leveled.bandwidth_low, leveled.bandwidth_high), (30, 50));
        assert_eq!(leveled.bandwidth_peak, ByteSize::mib(500));
        let experiments = hybrid::experiments(&options(label).unwrap()).unwrap();
        let (log_first, log_zeros) = (Some(false), Some(true));
        assert_eq!(experiments, Experiments { log_first, log_zeros, ..Experiments::NONE });
        let told = LEVELED.describe(&options(label).unwrap()).unwrap();
        for (name, value) in [("placement", "top_levels(2)"), ("experiment.log-first", "off")] {
            assert!(told.contains(&(name.to_owned(), value.to_owned())), "{told:?}");
        }
        for wrong in ["leveled@tiers+placement=top", "hybrid@tiers+placement=log_only"] {
            assert!(settings(&format!("thermocline-{wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_label_of_indexed_leaves_out_what_chooses_tables() {
        let label = "thermocline-indexed@tiers+persistent-memory=64MiB+merge-order=oldest\
                     +leaf-scan=off+scan-merges=off+overlap=off+live-ratio=off+enter-beside=off\
                     +fences=each";
        let options = options(label).unwrap();
        let mut experiments = Experiments::NONE;
        indexed::add(&options, &mut experiments).unwrap();
        let expected = Experiments {
            merge_order: Some(MergeOrder::Oldest),
            leaf_scan: Some(false),
            scan_merges: Some(false),
            by_overlap: Some(false),
            live_ratio: Some(false),
            enter_beside: Some(false),
            group_fence: Some(false),
            ..Experiments::NONE
        };
        assert_eq!(experiments, expected);
        let told = INDEXED.describe(&options).unwrap();
        assert!(told.contains(&("experiment.leaf-scan".to_owned(), "off".to_owned())), "{told:?}");
    }

    #[test]
    fn a_region_has_a_directory_of_its_own_where_there_is_one_and_is_no_tier() {
        let mut options = options("thermocline-indexed@tiers+persistent-memory=64MiB").unwrap();
        let region = |options: &OpenOptions| {
            let settings = INDEXED.settings(options).unwrap();
            assert_eq!(settings.tiers.len(), 2);
            settings.persistent_memory.unwrap().path
        };
        assert_eq!(region(&options), std::path::Path::new("fast/region"));
        let (name, capacity) = (REGION.to_owned(), ByteSize::mib(64));
        options.tiers.push(TierSpace { name, path: "memory".into(), capacity });
        assert_eq!(region(&options), std::path::Path::new("memory/region"));
    }

    #[test]
    fn a_label_has_a_cache_of_blocks_and_says_how_it_chooses() {
        use thermocline::{Admission, BlockLayout, Eviction};
        assert!(!settings("thermocline-leveled@tiers").unwrap().fast_cache.capacity.is_on());
        let label = "thermocline-leveled@tiers+fast-cache=32MiB+fast-cache-admission=frequency\
                     +fast-cache-eviction=file_lru+fast-cache-layout=padded";
        let cache = settings(label).unwrap().fast_cache;
        assert_eq!(cache.capacity, ByteSize::mib(32).into());
        assert_eq!(cache.layout, BlockLayout::Padded);
        assert_eq!((cache.admission, cache.eviction), (Admission::Frequency, Eviction::FileLru));
        let without = "thermocline-leveled@tiers+fast-cache-admission=always";
        let refused = settings(without).unwrap_err().to_string();
        assert!(refused.contains("needs a cache"), "{refused}");
    }

    #[test]
    fn a_label_leaves_out_rules_and_says_so() {
        let options =
            options("thermocline-hybrid@tiers+without=first_read/copies_worth_slots").unwrap();
        let left_out: Vec<_> = hybrid::experiments(&options).unwrap().left_out().collect();
        assert_eq!(left_out, [Rule::FirstRead, Rule::CopiesWorthSlots]);
        let described = HYBRID.describe(&options).unwrap();
        let told = ("experiment.without".to_owned(), "first_read/copies_worth_slots".to_owned());
        assert!(described.contains(&told), "{described:?}");
    }

    /// Rivals have none unless it is named for them too.
    #[test]
    fn records_are_compressed_as_tables_are_unless_named_and_neither_by_default() {
        use Compression::{Lz4, None, Zstd};
        for (options, expected) in [
            ("", (None, None)),
            ("+compression=lz4", (Lz4, Lz4)),
            ("+compression=lz4+record-compression=zstd", (Lz4, Zstd)),
            ("+record-compression=lz4", (None, Lz4)),
        ] {
            let settings = settings(&format!("thermocline-hybrid@tiers{options}")).unwrap();
            let found = (settings.compression[0], settings.hybrid.record_compression);
            assert_eq!(found, expected, "{options}");
        }
    }

    #[test]
    fn a_wrong_option_of_a_hybrid_label_is_answered_with_what_is_right() {
        for (label, part) in [
            ("thermocline-hybrid+policy=best", "random, precise or approximate"),
            ("thermocline-hybrid+variant=old", "tuned or paper"),
            ("thermocline-hybrid+promotion=always", "none, demotion or read"),
            ("thermocline-hybrid+pinning=most", "0 to 100 or auto"),
            ("thermocline-hybrid+read-triggered=1", "on or off"),
            ("thermocline-hybrid+compression=gzip", "none, lz4 or zstd"),
            ("thermocline-hybrid+record-compression=1", "none, lz4 or zstd"),
            ("thermocline-hybrid+runs=9", "hybrid.runs = 9 is out of range"),
            ("thermocline-hybrid+runs=x", "option runs=x"),
            ("thermocline-hybrid+without=luck", "there is no rule 'luck'; there are first_read"),
            ("thermocline-hybrid+cache=1", "it has driver, slow-driver"),
            ("thermocline-leveled+runs=2", "no option 'runs'"),
            ("thermocline-hybrid@fast", "it can use tiers"),
        ] {
            let refused = settings(label).unwrap_err().to_string();
            assert!(refused.contains(part), "{label}: {refused}");
        }
    }

    #[test]
    fn only_the_preset_that_reads_them_describes_settings_of_its_own() {
        let text = "thermocline-hybrid+pinning=auto";
        let label: Label = text.parse().unwrap();
        assert_eq!(find(&[&HYBRID as &dyn EngineKind], &label).unwrap().1, Layout::Tiers);
        let experiments = hybrid::experiments(&options(text).unwrap()).unwrap();
        assert_eq!(experiments.pinning, Some(Pinning::Auto));
        let of = |kind: &Thermocline| {
            let tier =
                TierSpace { name: "fast".to_owned(), path: "f".into(), capacity: ByteSize::gib(1) };
            let options = OpenOptions {
                tiers: vec![
                    tier.clone(),
                    TierSpace { name: "slow".to_owned(), path: "s".into(), ..tier },
                ],
                memory: ByteSize::mib(64),
                durability: Durability::Buffered,
                direct: false,
                threads: 1,
                key_bytes: 24,
                value_bytes: 1000,
                records: 1000,
                loading: false,
                options: Default::default(),
            };
            let pairs = kind.describe(&options).unwrap();
            pairs.into_iter().filter(|(name, _)| name.starts_with("hybrid.")).count()
        };
        assert_eq!(of(&LEVELED), 0);
        assert_eq!(of(&HYBRID), 8);
    }
}
