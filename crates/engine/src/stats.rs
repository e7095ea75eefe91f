//! Statistics: counters bumped on the way, and the report made from them and from the state of the
//! moment.

use crate::state::Engine;
use crate::table_set::levels::LEVELS;
use serde::Serialize;
use std::collections::BTreeMap;
use thermocline_device::{FileKind, TierIndex};
use thermocline_foundation::Counter;
use thermocline_table::BlockClass;

/// Counters since opening.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub gets: Counter,
    pub memtable_hits: Counter,
    pub scans: Counter,
    pub writes: Counter,
    /// Encoded batches, what amplification is counted against.
    pub written_bytes: Counter,
    pub ingested_bytes: Counter,
    pub flushed_bytes: Counter,
    pub compactions: Counter,
    pub compacted_in_bytes: Counter,
    pub compacted_out_bytes: Counter,
    /// Tables that changed level without being rewritten.
    pub moves: Counter,
    /// Tables that changed tier.
    pub migrations: Counter,
    /// Time writers waited for memory, in nanoseconds.
    pub stalled_ns: Counter,
}

/// The state of a database, for people and programs. Counters are since it was opened.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The lineage of the database; all its checksums are bound to it.
    pub database: String,
    /// The tiers, fastest first.
    pub tiers: Vec<TierStats>,
    /// The levels of tables, newest first; empty ones are left out.
    pub levels: Vec<LevelStats>,
    /// The block cache.
    pub cache: CacheStats,
    /// Where the memory budget is.
    pub memory: MemoryStats,
    /// What was asked of the database.
    pub operations: OperationStats,
    /// What was written for each byte, and taken for each byte.
    pub amplification: Amplification,
    /// The sequence of the newest record.
    pub sequence: u64,
    /// Why the store takes no more writes; none while it does.
    pub read_only: Option<String>,
}

/// One tier.
#[derive(Clone, Debug, Serialize)]
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
    /// Bytes by kind of file; tables by level.
    pub bytes_by_kind: BTreeMap<String, u64>,
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
}

/// One level.
#[derive(Clone, Debug, Serialize)]
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
}

/// The block cache in memory.
#[derive(Clone, Debug, Serialize)]
pub struct CacheStats {
    /// Its size limit in bytes.
    pub capacity_bytes: u64,
    /// What it holds, in bytes.
    pub used_bytes: u64,
    /// Hits and misses by class of block: data, index, filter.
    pub classes: BTreeMap<String, HitStats>,
}

/// Hits and misses.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct HitStats {
    /// Found.
    pub hits: u64,
    /// Not found and read.
    pub misses: u64,
    /// hits / (hits + misses); 0 before the first.
    pub hit_ratio: f64,
}

/// Where memory is, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryStats {
    /// The limit.
    pub budget_bytes: u64,
    /// The active memtable and those being flushed.
    pub memtable_bytes: u64,
    /// The block cache.
    pub cache_bytes: u64,
    /// Top indexes of open tables.
    pub pinned_bytes: u64,
}

/// What was asked since opening.
#[derive(Clone, Debug, Serialize)]
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
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Tables that changed level without a rewrite.
    pub trivial_moves: u64,
    /// Tables that changed tier.
    pub migrations: u64,
    /// Seconds that writers were slowed down.
    pub delayed_s: f64,
    /// Seconds that writers waited for memory.
    pub stalled_s: f64,
}

/// Cost for each byte of the user's.
#[derive(Clone, Debug, Serialize)]
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
        let state = self.read_state.load_full();
        let usage = self.files.usage();
        let tier_of: BTreeMap<_, _> =
            self.files.files().into_iter().map(|info| (info.number, info.tier)).collect();
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
                levels.push(LevelStats {
                    level,
                    tables: tables.len(),
                    bytes: state.levels.level_bytes(level),
                    entries: tables.iter().map(|table| table.meta.entries).sum(),
                    deletes: tables.iter().map(|table| table.meta.deletes).sum(),
                    bytes_by_tier,
                });
            }
        }
        let tiers: Vec<_> = usage.iter().map(tier_stats).collect();
        let frozen = state.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum::<u64>();
        Stats {
            database: self.files.database().to_string(),
            amplification: self.amplification(&tiers, &levels),
            tiers,
            cache: self.cache_stats(),
            memory: MemoryStats {
                budget_bytes: self.settings.memory.0,
                memtable_bytes: state.active.bytes() + frozen,
                cache_bytes: self.store.cache.memory_bytes(),
                pinned_bytes: state.levels.tables().map(|(_, table)| table.pinned_bytes()).sum(),
            },
            operations: self.operation_stats(),
            levels,
            sequence: self.visible().0,
            read_only: self.latch.reason(),
        }
    }

    fn cache_stats(&self) -> CacheStats {
        let cache = &self.store.cache;
        let classes = [
            ("data", BlockClass::Data),
            ("index", BlockClass::Index),
            ("filter", BlockClass::Filter),
        ];
        let classes = classes.into_iter().map(|(name, class)| {
            let counts = cache.counts(class);
            let hit_ratio = ratio(counts.hits, counts.hits + counts.misses);
            (name.to_owned(), HitStats { hits: counts.hits, misses: counts.misses, hit_ratio })
        });
        CacheStats {
            capacity_bytes: cache.capacity_bytes(),
            used_bytes: cache.memory_bytes(),
            classes: classes.collect(),
        }
    }

    fn operation_stats(&self) -> OperationStats {
        let metrics = &self.metrics;
        OperationStats {
            gets: metrics.gets.get(),
            memtable_hits: metrics.memtable_hits.get(),
            scans: metrics.scans.get(),
            writes: metrics.writes.get(),
            written_bytes: metrics.written_bytes.get(),
            compactions: metrics.compactions.get(),
            trivial_moves: metrics.moves.get(),
            migrations: metrics.migrations.get(),
            delayed_s: self.pacing.delayed_ns.get() as f64 / 1e9,
            stalled_s: metrics.stalled_ns.get() as f64 / 1e9,
        }
    }

    fn amplification(&self, tiers: &[TierStats], levels: &[LevelStats]) -> Amplification {
        let user = self.metrics.written_bytes.get() + self.metrics.ingested_bytes.get();
        let written = tiers.iter().map(|tier| tier.written_bytes).sum();
        let read = tiers.iter().map(|tier| tier.read_bytes).sum();
        let total = levels.iter().map(|level| level.bytes).sum();
        Amplification {
            write: ratio(written, user),
            read_bytes_per_get: ratio(read, self.metrics.gets.get()),
            space: ratio(total, levels.last().map_or(0, |level| level.bytes)),
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn tier_stats(usage: &thermocline_device::TierUsage) -> TierStats {
    let name = |kind: &FileKind| match kind {
        FileKind::Table { level } => format!("level {level}"),
        other => other.extension().to_owned(),
    };
    let sum = |count: fn(&thermocline_device::TrafficTotals) -> u64| {
        usage.traffic.values().map(count).sum()
    };
    TierStats {
        path: usage.spec.path.display().to_string(),
        driver: usage.spec.driver.clone(),
        capacity_bytes: usage.capacity_bytes,
        used_bytes: usage.used_bytes,
        device_free_bytes: usage.space.map(|space| space.free_bytes),
        bytes_by_kind: usage
            .used_by_kind
            .iter()
            .map(|(kind, bytes)| (name(kind), *bytes))
            .collect(),
        reads: sum(|traffic| traffic.reads),
        read_bytes: sum(|traffic| traffic.read_bytes),
        writes: sum(|traffic| traffic.writes),
        written_bytes: sum(|traffic| traffic.written_bytes),
        syncs: sum(|traffic| traffic.syncs),
    }
}
