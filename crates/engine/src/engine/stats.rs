//! Statistics: the report made from what is counted (`totals.rs`) and from the state of the moment.

use crate::engine::Engine;
use crate::engine::activity::ActivityStats;
use crate::engine::open_files::OpenFileStats;
use crate::error::Error;
use crate::fast_cache::report::FastCacheStats;
use crate::front::figures::LogStats;
use crate::front::persistent::report::RegionStats;
use crate::layout::hybrid::report::FastTierStats;
use crate::layout::{Holdings, LayoutMemory};
use crate::limits::LEVELS;
use crate::locator::index::IndexStats;
use crate::requests::report::RequestStats;
use crate::settings::{Preset, Settings};
use crate::shared::hits::HitStats;
use crate::shared::totals::{Count, Totals};
use crate::shared::wear::{WearStats, Written};
use crate::table_set::table::Table;
use crate::transaction::tally::TransactionStats;
use crate::versions::Version;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::{FileKind, TierIndex, TierUsage};

/// The state of a database, for people and programs. Counters are since it was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The lineage of the database; all its checksums are bound to it.
    pub database: String,
    /// The preset in force.
    pub preset: Preset,
    /// The tiers, fastest first.
    pub tiers: Vec<TierStats>,
    /// How many of the upper levels in use go to the fast tier, where `placement` goes by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_levels: Option<u8>,
    /// The levels of tables, newest first; empty ones are left out.
    pub levels: Vec<LevelStats>,
    /// Records on the fast tier; none but with the preset `hybrid`.
    pub fast_tier: Option<FastTierStats>,
    /// The block cache.
    pub cache: CacheStats,
    /// Copies of blocks on tier 0, where the settings have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_cache: Option<FastCacheStats>,
    /// Where the memory budget is.
    pub memory: MemoryStats,
    /// What was asked of the database.
    pub operations: OperationStats,
    /// What is going on now: queues, and what holds writers up.
    pub activity: ActivityStats,
    /// What was written for each byte, and taken for each byte.
    pub amplification: Amplification,
    /// Groups of writes and their log, since the opening.
    #[serde(default)]
    pub log: LogStats,
    /// The region of persistent memory, where writes go there in place of a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionStats>,
    /// The index in the region, with the preset `indexed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexStats>,
    /// Asynchronous requests.
    #[serde(default)]
    pub requests: RequestStats,
    /// Transactions and conditional writes that came second, since the opening.
    #[serde(default)]
    pub transactions: TransactionStats,
    /// Files that are open, and may be.
    #[serde(default)]
    pub open_files: OpenFileStats,
    /// The sequence of the newest record.
    pub sequence: u64,
    /// What the store takes.
    pub mode: Mode,
    /// Why the store takes no more writes; none while it does.
    pub read_only: Option<String>,
}

/// What an open database takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Reads and writes.
    ReadWrite,
    /// Reads: it was opened for these only.
    ReadOnly,
    /// Reads, since writing stopped or found no room at opening.
    Stopped,
    /// Nothing: the handle came with a fork.
    Unusable,
}

impl Stats {
    /// What there is to say of a handle that came with a fork: why it is of no use.
    pub(crate) fn unusable(settings: &Settings, why: &Error) -> Self {
        Self {
            database: String::new(),
            preset: settings.preset(),
            tiers: Vec::new(),
            fast_levels: None,
            levels: Vec::new(),
            fast_tier: None,
            cache: CacheStats::default(),
            fast_cache: None,
            memory: MemoryStats::default(),
            operations: OperationStats::default(),
            amplification: Amplification::default(),
            log: LogStats::default(),
            region: None,
            index: None,
            requests: RequestStats::default(),
            transactions: TransactionStats::default(),
            open_files: OpenFileStats::default(),
            activity: ActivityStats::default(),
            sequence: 0,
            mode: Mode::Unusable,
            read_only: Some(why.to_string()),
        }
    }
}

/// One tier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TierStats {
    /// Its directory.
    pub path: String,
    /// Its driver.
    pub driver: String,
    /// What the database may use, in bytes.
    pub capacity_bytes: u64,
    /// What its files take, in bytes.
    pub used_bytes: u64,
    /// Free on the device, in bytes, where it can be told.
    pub device_free_bytes: Option<u64>,
    /// Size of the device, in bytes, where it can be told.
    #[serde(default)]
    pub device_total_bytes: Option<u64>,
    /// Bytes by kind of file; tables by level.
    pub bytes_by_kind: BTreeMap<String, u64>,
    /// Slots with a record, and entries of tables; older versions and tombstones count too.
    pub records: u64,
    /// Bytes of slots with a record, and of tables less what is dead of these.
    pub live_bytes: u64,
    /// Bytes of slots without a record, and an estimate of what tables have of records that newer
    /// ones replaced: as if those above the oldest run replaced as many older ones as merges of
    /// whole ranges have found so far, and before the first of these one each.
    pub dead_bytes_estimate: u64,
    /// Reads from the device (or the page cache before it).
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Writes to the device.
    pub writes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// How fast it is written to; none where that is not known yet.
    pub wear: Option<WearStats>,
}

/// One level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LevelStats {
    /// 0 is the newest.
    pub level: usize,
    /// Tables.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Their entries.
    pub entries: u64,
    /// How many of them are tombstones.
    pub deletes: u64,
    /// Bytes on each tier.
    pub bytes_by_tier: Vec<u64>,
    /// Tables with a dictionary, of those that have been opened.
    #[serde(default)]
    pub dictionaries: u64,
    /// Bytes that these dictionaries save, as the first blocks of each table tell.
    #[serde(default)]
    pub dictionary_saved_bytes: u64,
}

/// The block cache in memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheStats {
    /// Its size limit in bytes.
    pub capacity_bytes: u64,
    /// What it holds, in bytes.
    pub used_bytes: u64,
    /// Hits and misses by class of block: data, index, filter.
    pub classes: BTreeMap<String, HitStats>,
}

/// Where memory is, in bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    /// The limit.
    pub budget_bytes: u64,
    /// The active memtable and those being flushed.
    pub memtable_bytes: u64,
    /// The block cache.
    pub cache_bytes: u64,
    /// Top indexes of open tables.
    pub pinned_bytes: u64,
    /// Buffers of the demotions under way, as reckoned; 0 without a fast tier of slots, as are the
    /// next three.
    pub merge_bytes: u64,
    /// Index of the slots of the fast tier.
    pub slot_index_bytes: u64,
    /// Records of the fast tier.
    pub record_cache_bytes: u64,
    /// What is known of how often keys are asked for.
    pub popularity_bytes: u64,
    /// All of these.
    pub used_bytes: u64,
}

/// What was asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OperationStats {
    /// Keys looked up.
    pub gets: u64,
    /// Of these, answered by a memtable.
    pub memtable_hits: u64,
    /// Scans and cursors begun.
    pub scans: u64,
    /// Records written.
    pub writes: u64,
    /// Bytes of these, as batches.
    pub written_bytes: u64,
    /// Bytes of keys and values that bulk loads brought.
    pub ingested_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Tables that changed level without a rewrite.
    pub trivial_moves: u64,
    /// Tables that changed tier.
    pub migrations: u64,
    /// Bytes of tables that compactions and demotions took in.
    pub compacted_in_bytes: u64,
    /// Bytes of tables that they made of these, and of records from the fast tier.
    pub compacted_out_bytes: u64,
    /// Seconds that writers were slowed down.
    pub delayed_s: f64,
    /// Seconds that writers waited for memory.
    pub stalled_s: f64,
}

/// Cost for each byte of the user's.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Amplification {
    /// Bytes written to all tiers for each byte the user wrote; 0 before the first.
    pub write: f64,
    /// Bytes read from devices for each key looked up.
    pub read_bytes_per_get: f64,
    /// Bytes of all tables for each byte of the deepest level.
    pub space: f64,
}

impl Engine {
    /// See [`Stats`].
    pub fn stats(&self) -> Stats {
        let state = self.versions.current_full();
        let usage = self.shared.files.usage();
        let tier_of: BTreeMap<_, _> =
            self.shared.files.files().into_iter().map(|info| (info.number, info.tier)).collect();
        let totals = self.versions.totals();
        let held = self.held(&state, &tier_of, &totals);
        let mut levels = Vec::new();
        for level in 0..LEVELS {
            let tables = state.levels.level(level);
            let mut bytes_by_tier = vec![0; usage.len()];
            for table in tables {
                let TierIndex(tier) =
                    tier_of.get(&table.meta.number).copied().unwrap_or(TierIndex(0));
                bytes_by_tier[usize::from(tier)] += table.meta.bytes;
            }
            if !tables.is_empty() {
                let (dictionaries, dictionary_saved_bytes) = dictionaries_of(tables);
                levels.push(LevelStats {
                    level,
                    tables: tables.len(),
                    bytes: state.levels.level_bytes(level),
                    entries: tables.iter().map(|table| table.meta.entries).sum(),
                    deletes: tables.iter().map(|table| table.meta.deletes).sum(),
                    bytes_by_tier,
                    dictionaries,
                    dictionary_saved_bytes,
                });
            }
        }
        let fast_cache = self.fast_cache.as_ref().map(|cache| cache.stats());
        let tier = |usage: &TierUsage| {
            let held = &held[usage.tier.position()];
            let wear = self.wear_of(usage, &totals, fast_cache.as_ref());
            tier_stats(usage, held, &totals, wear)
        };
        let tiers: Vec<_> = usage.iter().map(tier).collect();
        Stats {
            database: self.shared.files.database().to_string(),
            preset: self.shared.settings.preset(),
            amplification: amplification(&totals, &tiers, &levels),
            tiers,
            fast_tier: self.layout.report(&totals),
            cache: self.cache_stats(&totals),
            fast_cache,
            memory: self.memory_stats(&state),
            operations: operation_stats(&totals),
            activity: self.activity(&state),
            log: self.front.log_stats(),
            region: self.front.region_stats(),
            index: self.layout.locator().index_stats(),
            requests: self.requests.stats(),
            transactions: self.locks.stats(),
            open_files: self.open_file_stats(),
            fast_levels: self.shared.placement.fast_levels(),
            levels,
            sequence: self.versions.visible().0,
            mode: self.mode(),
            read_only: self.shared.latch.reason(),
        }
    }

    fn mode(&self) -> Mode {
        match self.shared.latch.reason() {
            _ if self.shared.files.is_read_only() => Mode::ReadOnly,
            Some(_) => Mode::Stopped,
            None => Mode::ReadWrite,
        }
    }

    fn wear_of(
        &self,
        usage: &TierUsage,
        totals: &Totals,
        fast_cache: Option<&FastCacheStats>,
    ) -> Option<WearStats> {
        let all_bytes = totals.traffic(usage.tier).written_bytes;
        let before_bytes = self.shared.totals_before.traffic(usage.tier).written_bytes;
        let since_opening =
            Written { bytes: all_bytes - before_bytes, elapsed_ns: self.shared.open_ns() };
        let all = Written { bytes: all_bytes, elapsed_ns: totals.of(Count::OpenNs) };
        let of = |budget| WearStats::of(usage.capacity_bytes, since_opening, all, budget);
        match usage.tier {
            TierIndex(0) => {
                let budget = self.fast_cache.as_ref().and_then(|cache| cache.write_budget_dwpd());
                let budget_used_percent = fast_cache.and_then(|cache| cache.budget_used_percent);
                Some(WearStats { budget_used_percent, ..of(budget)? })
            }
            // That is the tier that demotions write to.
            TierIndex(1) => of(self.layout.write_budget_dwpd()),
            _ => of(None),
        }
    }

    fn memory_stats(&self, state: &Version) -> MemoryStats {
        let frozen = state.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum::<u64>();
        let memtable_bytes = state.active.bytes() + frozen;
        let cache_bytes = self.shared.cache.memory_bytes();
        let pinned_bytes = state.levels.tables().map(|(_, table)| table.pinned_bytes()).sum();
        let LayoutMemory { merge_bytes, slot_index_bytes, record_cache_bytes, popularity_bytes } =
            self.layout.memory();
        let of_layout = merge_bytes + slot_index_bytes + record_cache_bytes + popularity_bytes;
        MemoryStats {
            budget_bytes: self.shared.settings.memory.0,
            memtable_bytes,
            cache_bytes,
            pinned_bytes,
            merge_bytes,
            slot_index_bytes,
            record_cache_bytes,
            popularity_bytes,
            used_bytes: memtable_bytes + cache_bytes + pinned_bytes + of_layout,
        }
    }

    fn cache_stats(&self, totals: &Totals) -> CacheStats {
        let classes = [
            ("data", Count::DataHits, Count::DataMisses),
            ("index", Count::IndexHits, Count::IndexMisses),
            ("filter", Count::FilterHits, Count::FilterMisses),
        ];
        let classes = classes.map(|(name, hits, misses)| {
            (name.to_owned(), HitStats::of(totals.of(hits), totals.of(misses)))
        });
        CacheStats {
            capacity_bytes: self.shared.cache.capacity_bytes(),
            used_bytes: self.shared.cache.memory_bytes(),
            classes: classes.into(),
        }
    }
}

/// How many of these tables have a dictionary, and what it saves, in bytes.
fn dictionaries_of(tables: &[Arc<Table>]) -> (u64, u64) {
    let opened = tables.iter().filter_map(|table| table.opened());
    let with = opened.map(|reader| reader.properties()).filter(|it| it.dictionary.is_some());
    with.fold((0, 0), |(count, saved), it| (count + 1, saved + it.dictionary_saved_bytes))
}

fn operation_stats(totals: &Totals) -> OperationStats {
    OperationStats {
        gets: totals.of(Count::Gets),
        memtable_hits: totals.of(Count::MemtableHits),
        scans: totals.of(Count::Scans),
        writes: totals.of(Count::Writes),
        written_bytes: totals.of(Count::WrittenBytes),
        ingested_bytes: totals.of(Count::IngestedBytes),
        compactions: totals.of(Count::Compactions),
        trivial_moves: totals.of(Count::Moves),
        migrations: totals.of(Count::Migrations),
        compacted_in_bytes: totals.of(Count::CompactedInBytes),
        compacted_out_bytes: totals.of(Count::CompactedOutBytes),
        delayed_s: totals.of(Count::DelayedNs) as f64 / 1e9,
        stalled_s: totals.of(Count::StalledNs) as f64 / 1e9,
    }
}

fn amplification(totals: &Totals, tiers: &[TierStats], levels: &[LevelStats]) -> Amplification {
    let operations = operation_stats(totals);
    let written = tiers.iter().map(|tier| tier.written_bytes).sum();
    let read = tiers.iter().map(|tier| tier.read_bytes).sum();
    let total = levels.iter().map(|level| level.bytes).sum();
    Amplification {
        write: ratio(written, operations.written_bytes + operations.ingested_bytes),
        read_bytes_per_get: ratio(read, operations.gets),
        space: ratio(total, levels.last().map_or(0, |level| level.bytes)),
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn tier_stats(
    usage: &TierUsage,
    held: &Holdings,
    totals: &Totals,
    wear: Option<WearStats>,
) -> TierStats {
    let slab_bytes = usage.used_by_kind.get(&FileKind::Slab).copied().unwrap_or(0);
    let traffic = totals.traffic(usage.tier);
    let name = |kind: &FileKind| match kind {
        FileKind::Table { level } => format!("level {level}"),
        other => other.extension().to_owned(),
    };
    TierStats {
        path: usage.spec.path.display().to_string(),
        driver: usage.spec.driver.clone(),
        capacity_bytes: usage.capacity_bytes,
        used_bytes: usage.used_bytes,
        device_free_bytes: usage.space.map(|space| space.free_bytes),
        device_total_bytes: usage.space.map(|space| space.total_bytes),
        bytes_by_kind: usage
            .used_by_kind
            .iter()
            .map(|(kind, bytes)| (name(kind), *bytes))
            .collect(),
        records: held.records,
        live_bytes: held.slot_bytes + held.table_bytes - held.dead_bytes,
        dead_bytes_estimate: slab_bytes.saturating_sub(held.slot_bytes) + held.dead_bytes,
        reads: traffic.reads,
        read_bytes: traffic.read_bytes,
        writes: traffic.writes,
        written_bytes: traffic.written_bytes,
        syncs: traffic.syncs,
        wear,
    }
}

#[cfg(test)]
#[path = "../../tests/inside/stat_figures.rs"]
mod figures;
