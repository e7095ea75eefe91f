//! Statistics: the report made from what is counted (`totals.rs`) and from the state of the moment.

use crate::error::Error;
use crate::front::slabs::FastTier;
use crate::front::slabs::report::{DemotionStats, RegulationStats};
use crate::holdings::Held;
use crate::settings::{Preset, Settings};
use crate::state::{Engine, ReadState};
use crate::table_set::levels::LEVELS;
use crate::totals::{Count, Totals};
use crate::wear::{WearStats, Written};
use serde::Serialize;
use std::collections::BTreeMap;
use thermocline_device::{FileKind, TierIndex, TierUsage};
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

/// The state of a database, for people and programs. Counters are since it was made.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The lineage of the database; all its checksums are bound to it.
    pub database: String,
    /// The preset in force.
    pub preset: Preset,
    /// The tiers, fastest first.
    pub tiers: Vec<TierStats>,
    /// The levels of tables, newest first; empty ones are left out.
    pub levels: Vec<LevelStats>,
    /// Records on the fast tier; none but with the preset `hybrid`.
    pub fast_tier: Option<FastTierStats>,
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
    /// What the store takes.
    pub mode: Mode,
    /// Why the store takes no more writes; none while it does.
    pub read_only: Option<String>,
}

/// What an open database takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
            levels: Vec::new(),
            fast_tier: None,
            cache: CacheStats::default(),
            memory: MemoryStats::default(),
            operations: OperationStats::default(),
            amplification: Amplification::default(),
            sequence: 0,
            mode: Mode::Unusable,
            read_only: Some(why.to_string()),
        }
    }
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

/// Records in slots on the fast tier, and what moved between the tiers since the database was made.
/// What a release that did not count something did is not in it.
#[derive(Clone, Debug, Serialize)]
pub struct FastTierStats {
    /// Versions of records in slots.
    pub records: u64,
    /// Of these, copies of what a table has.
    pub clean_records: u64,
    /// Copies that are in memory only.
    pub memory_records: u64,
    /// What slots may take of the tier, in bytes.
    pub limit_bytes: u64,
    /// Files of slabs, in bytes.
    pub slab_bytes: u64,
    /// Slots with a record, in bytes.
    pub live_bytes: u64,
    /// Of these, bytes that no record uses; an estimate.
    pub waste_bytes: u64,
    /// Slots by their size.
    pub classes: Vec<SlotStats>,
    /// Reads of records on the fast tier that memory answered, and that it did not.
    pub cache: HitStats,
    /// Keys of which it is known how often they are asked for.
    pub tracked_keys: u64,
    /// Of these, how many have each popularity, least first.
    pub histogram: Vec<u64>,
    /// Look-ups that the fast tier answered, memory above it included.
    pub fast_reads: u64,
    /// Look-ups that a table answered.
    pub slow_reads: u64,
    /// Look-ups that found nothing, not even that the key was deleted.
    pub absent_reads: u64,
    /// Share of the tracked keys that stay on the fast tier, in percent; of demotions, the share of
    /// a fifth of all keys where more are tracked.
    pub pinning_percent: f64,
    /// Records that moved up as copies.
    pub promoted_records: u64,
    /// Records that left in demotions, merged into tables.
    pub demoted_records: u64,
    /// Copies that left in demotions, of records that a table has: nothing was written for them.
    pub demoted_copies: u64,
    /// Copies that were dropped without writing anything.
    pub dropped_records: u64,
    /// Copies that got a slot when memory gave them up.
    pub spilled_records: u64,
    /// Copies that gave up their slot because memory has them.
    pub lifted_records: u64,
    /// Look-ups that copies answered, in slots and in memory.
    pub copy_reads: u64,
    /// Copies whose record was written anew.
    pub replaced_copies: u64,
    /// Copies that memory gives up may get slots: of late, few were replaced before they were read.
    pub copies_get_slots: bool,
    /// The share of these that does: as many as serve a read or two before they are dropped.
    pub copy_slots_share: f64,
    /// A record that is read for the first time may get one too: copies may, many of the fast
    /// tier's records were never asked for, and reads recur, of slots and of tables.
    pub slots_at_first_read: bool,
    /// Records in slots that were asked for are asked for again sooner than the others there.
    pub slot_reads_recur: bool,
    /// The same of tables. Where reads do not recur, they move no record up.
    pub table_reads_recur: bool,
    /// Look-ups for which a copy's slot was read.
    pub copy_slot_reads: u64,
    /// Copies that lost their slots because nobody asked for them.
    pub unasked_copies: u64,
    /// Records that moved to another slot for the sake of other sizes.
    pub moved_records: u64,
    /// Bytes of the values that flushes brought to slots since opening, with `record_compression`.
    pub packed_value_bytes: u64,
    /// Bytes that slots have of these values.
    pub packed_stored_bytes: u64,
    /// Tables with a copy of their index on this tier.
    pub index_copies: u64,
    /// Bytes of these copies.
    pub index_copy_bytes: u64,
    /// Reads of index and filter partitions that they answered, in place of the slow tier.
    pub index_copy_reads: u64,
    /// Copies that were given up because they were damaged or could not be read.
    pub failed_index_copies: u64,
    /// Reads of what writes of slots must keep: pages that they share with other records.
    pub kept_reads: u64,
    /// Bytes of these.
    pub kept_read_bytes: u64,
    /// Why the last demotion found no room on a slower tier, where it did. Records stay on the fast
    /// tier meanwhile, and another is tried after 1 to 16 seconds, once something goes on.
    pub demotion_refusal: Option<String>,
    /// What demotions did.
    pub demotions: DemotionStats,
    /// The rules between the tiers.
    pub regulation: RegulationStats,
}

/// Slots of one size.
#[derive(Clone, Debug, Serialize)]
pub struct SlotStats {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Files of such slots.
    pub slabs: u64,
    /// Slots in them.
    pub slots: u64,
    /// Slots with a record.
    pub live: u64,
}

/// The block cache in memory.
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
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
#[derive(Clone, Debug, Default, Serialize)]
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
        let totals = self.totals();
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
        let tier = |usage: &TierUsage| {
            let held = &held[usage.tier.position()];
            tier_stats(usage, held, &totals, self.wear_of(usage, &totals))
        };
        let tiers: Vec<_> = usage.iter().map(tier).collect();
        Stats {
            database: self.files.database().to_string(),
            preset: self.settings.preset(),
            amplification: amplification(&totals, &tiers, &levels),
            tiers,
            fast_tier: self.fast.as_ref().map(|fast| fast.stats(self, &totals)),
            cache: self.cache_stats(&totals),
            memory: self.memory_stats(&state),
            operations: operation_stats(&totals),
            levels,
            sequence: self.visible().0,
            mode: self.mode(),
            read_only: self.latch.reason(),
        }
    }

    fn mode(&self) -> Mode {
        match self.latch.reason() {
            _ if self.files.is_read_only() => Mode::ReadOnly,
            Some(_) => Mode::Stopped,
            None => Mode::ReadWrite,
        }
    }

    fn wear_of(&self, usage: &TierUsage, totals: &Totals) -> Option<WearStats> {
        let all_bytes = totals.traffic(usage.tier).written_bytes;
        let before_bytes = self.totals_before.traffic(usage.tier).written_bytes;
        let since_opening = Written { bytes: all_bytes - before_bytes, elapsed_ns: self.open_ns() };
        let all = Written { bytes: all_bytes, elapsed_ns: totals.of(Count::OpenNs) };
        // The budget is of the tier that demotions write to.
        let budget = self.settings.hybrid.write_budget_dwpd;
        let has_budget = self.fast.is_some() && usage.tier == TierIndex(1) && budget > 0.0;
        WearStats::of(usage.capacity_bytes, since_opening, all, has_budget.then_some(budget))
    }

    fn memory_stats(&self, state: &ReadState) -> MemoryStats {
        let frozen = state.frozen.iter().map(|frozen| frozen.memtable.bytes()).sum::<u64>();
        let memtable_bytes = state.active.bytes() + frozen;
        let cache_bytes = self.store.cache.memory_bytes();
        let pinned_bytes = state.levels.tables().map(|(_, table)| table.pinned_bytes()).sum();
        let fast = self.fast.as_ref();
        let merge_bytes = fast.map_or(0, |fast| fast.memory.merging_bytes());
        let slot_index_bytes = fast.map_or(0, |fast| fast.index.memory_bytes());
        let record_cache_bytes = fast.map_or(0, |fast| fast.cache.bytes());
        let popularity_bytes = fast.map_or(0, |fast| fast.popularity.bytes() as u64);
        let of_fast = merge_bytes + slot_index_bytes + record_cache_bytes + popularity_bytes;
        MemoryStats {
            budget_bytes: self.settings.memory.0,
            memtable_bytes,
            cache_bytes,
            pinned_bytes,
            merge_bytes,
            slot_index_bytes,
            record_cache_bytes,
            popularity_bytes,
            used_bytes: memtable_bytes + cache_bytes + pinned_bytes + of_fast,
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
            capacity_bytes: self.store.cache.capacity_bytes(),
            used_bytes: self.store.cache.memory_bytes(),
            classes: classes.into(),
        }
    }
}

impl HitStats {
    fn of(hits: u64, misses: u64) -> Self {
        Self { hits, misses, hit_ratio: ratio(hits, hits + misses) }
    }
}

impl FastTier {
    fn stats(&self, engine: &Engine, totals: &Totals) -> FastTierStats {
        let slabs = self.slabs.stats();
        let classes = slabs.classes.iter().map(|class| SlotStats {
            slot_bytes: class.slot_bytes,
            slabs: class.slabs,
            slots: class.slots,
            live: class.live,
        });
        let copies = &self.regulation.copies;
        let state = engine.read_state.load();
        let index_copies = state.levels.tables().filter_map(|(_, table)| table.copy_bytes());
        let index_copies: Vec<_> = index_copies.collect();
        FastTierStats {
            records: self.index.slot_records(),
            clean_records: self.index.clean_records().saturating_sub(self.index.memory_records()),
            memory_records: self.index.memory_records(),
            limit_bytes: self.room.limit_bytes(),
            slab_bytes: slabs.file_bytes,
            live_bytes: slabs.bytes_live(),
            waste_bytes: slabs.waste_bytes(),
            classes: classes.collect(),
            cache: HitStats::of(totals.of(Count::RecordHits), totals.of(Count::RecordMisses)),
            tracked_keys: self.popularity.len() as u64,
            histogram: self.popularity.histogram().by_value(),
            fast_reads: totals.of(Count::FastReads),
            slow_reads: totals.of(Count::SlowReads),
            absent_reads: totals.of(Count::AbsentReads),
            pinning_percent: 100.0 * self.regulation.threshold().share(),
            promoted_records: totals.of(Count::Promoted),
            demoted_records: totals.of(Count::DemotedDirty),
            demoted_copies: totals.of(Count::DemotedClean),
            dropped_records: totals.of(Count::Dropped),
            spilled_records: totals.of(Count::Spilled),
            lifted_records: totals.of(Count::Lifted),
            copy_reads: totals.of(Count::CopyReads),
            replaced_copies: totals.of(Count::ReplacedCopies),
            copies_get_slots: copies.get_slots(),
            copy_slots_share: copies.admission.lock().share(),
            slots_at_first_read: self.promotions.slot_at_first_read.load(Relaxed),
            slot_reads_recur: self.regulation.slot_reads.reads_recur(),
            table_reads_recur: self.regulation.table_reads.reads_recur(),
            copy_slot_reads: totals.of(Count::CopySlotReads),
            unasked_copies: totals.of(Count::UnaskedCopies),
            moved_records: totals.of(Count::Relocated),
            packed_value_bytes: self.packing.value_bytes.get(),
            packed_stored_bytes: self.packing.stored_bytes.get(),
            index_copies: index_copies.len() as u64,
            index_copy_bytes: index_copies.iter().sum(),
            index_copy_reads: totals.of(Count::IndexCopyReads),
            failed_index_copies: totals.of(Count::FailedIndexCopies),
            kept_reads: totals.of(Count::KeptReads),
            kept_read_bytes: totals.of(Count::KeptReadBytes),
            demotion_refusal: self.slow_room.reason(),
            demotions: DemotionStats::new(self, totals),
            regulation: RegulationStats::new(engine, self),
        }
    }
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
    held: &Held,
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
