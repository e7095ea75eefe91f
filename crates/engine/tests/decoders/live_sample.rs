//! Figures of an open store with every field, for the golden file.

use std::collections::BTreeMap;
use thermocline::{
    ActivityStats, Amplification, CacheStats, DemotionStats, FastTierStats, HitStats, LevelStats,
    LiveMark, LiveStats, LogStats, LoggerStats, MemoryStats, Mode, OpenFileStats, OperationStats,
    Preset, RequestStats, RuleStats, SlotStats, Stats, TierStats, TransactionStats, WearStats,
};

/// The figures.
pub fn live_stats() -> LiveStats {
    let mark = LiveMark {
        version: 3,
        process: 4711,
        written_s: 1_795_663_795,
        open_s: 61.5,
        interval_s: 1.0,
    };
    let hits = HitStats { hits: 3, misses: 1, hit_ratio: 0.75 };
    let stats = Stats {
        database: "00112233445566778899aabbccddeeff".to_owned(),
        preset: Preset::Hybrid,
        tiers: vec![tier()],
        fast_levels: None,
        levels: vec![LevelStats {
            level: 6,
            tables: 2,
            bytes: 3 << 20,
            entries: 4000,
            deletes: 5,
            bytes_by_tier: vec![0, 3 << 20],
            dictionaries: 1,
            dictionary_saved_bytes: 200_000,
        }],
        fast_tier: Some(fast_tier(hits)),
        cache: CacheStats {
            capacity_bytes: 1 << 26,
            used_bytes: 1 << 25,
            classes: BTreeMap::from([("data".to_owned(), hits)]),
        },
        fast_cache: None,
        memory: memory(),
        operations: operations(),
        activity: ActivityStats {
            frozen_memtables: 2,
            frozen_memtables_max: 3,
            level0_tables: 1,
            unsynced_bytes: 4096,
            waiting_writers: 6,
            waiting_promotions: 7,
            waiting_spills: 8,
            write_rate_bytes: Some(1 << 20),
            stall_cause: Some("the fast tier is full, and demotions make room on it".to_owned()),
            file_shortage: Some("cannot open a table: too many open files".to_owned()),
            room_shortage: Some("no tier has room for a table".to_owned()),
        },
        amplification: Amplification { write: 2.5, read_bytes_per_get: 1024.0, space: 1.25 },
        log: log(),
        region: None,
        index: None,
        requests: requests(),
        transactions: TransactionStats {
            open_pessimistic: 1,
            conflicts: 29,
            deadlocks: 30,
            lock_timeouts: 31,
        },
        open_files: OpenFileStats {
            open: 500,
            open_max: Some(512),
            descriptors_max: Some(1024),
            reopened: 70,
        },
        sequence: 1 << 50,
        mode: Mode::Stopped,
        read_only: Some("a log: the device failed".to_owned()),
    };
    LiveStats { live: mark, stats }
}

fn tier() -> TierStats {
    TierStats {
        path: "/mnt/fast".to_owned(),
        driver: "direct".to_owned(),
        capacity_bytes: 1 << 60,
        used_bytes: 1 << 24,
        device_free_bytes: Some(1 << 40),
        device_total_bytes: Some(1 << 41),
        bytes_by_kind: BTreeMap::from([("slab".to_owned(), 1 << 23)]),
        records: 1000,
        live_bytes: 1 << 22,
        dead_bytes_estimate: 1 << 12,
        reads: 1,
        read_bytes: 4096,
        writes: 2,
        written_bytes: 8192,
        syncs: 3,
        wear: Some(WearStats {
            measured_s: 61.5,
            drive_writes_per_day: 0.125,
            budget_used_percent: Some(50.0),
            lifetime_years: None,
        }),
    }
}

fn fast_tier(cache: HitStats) -> FastTierStats {
    FastTierStats {
        records: 1000,
        clean_records: 100,
        memory_records: 10,
        limit_bytes: 1 << 23,
        grants: [("logs".to_owned(), 1 << 20), ("slots".to_owned(), 1 << 23)].into(),
        slab_bytes: 1 << 23,
        live_bytes: 1 << 22,
        waste_bytes: 1 << 10,
        classes: vec![SlotStats { slot_bytes: 128, slabs: 1, slots: 2000, live: 1000 }],
        cache,
        tracked_keys: 30,
        histogram: vec![10, 20],
        fast_reads: 11,
        slow_reads: 12,
        absent_reads: 13,
        pinning_percent: 70.0,
        promoted_records: 14,
        demoted_records: 15,
        demoted_copies: 16,
        dropped_records: 17,
        spilled_records: 18,
        memory_only_records: 19,
        copy_reads: 20,
        replaced_copies: 21,
        copies_get_slots: true,
        slots_at_first_read: false,
        slot_reads_recur: true,
        table_reads_recur: false,
        copy_slot_reads: 22,
        unasked_copies: 23,
        moved_records: 24,
        packed_value_bytes: 25,
        packed_stored_bytes: 26,
        index_copies: 27,
        index_copy_bytes: 28,
        index_copy_reads: 29,
        failed_index_copies: 30,
        kept_reads: 31,
        kept_read_bytes: 32,
        demotion_refusal: Some("tier 1 has no room".to_owned()),
        demotions: DemotionStats {
            ended: 33,
            elapsed_s: 1.5,
            last_score: Some(0.25),
            mean_score: None,
        },
        rules: RuleStats {
            pinning_bounds_percent: [10.0, 90.0],
            pinning_stage: "settling".to_owned(),
            pinning_steps_kept: 34,
            read_triggered_stage: "off".to_owned(),
            read_triggered_epochs: 35,
            write_budget_bytes: Some(-36),
            refused_merges: 37,
            fast_histogram: vec![4, 20],
            slow_histogram: vec![6, 0],
        },
    }
}

fn memory() -> MemoryStats {
    MemoryStats {
        budget_bytes: 1 << 28,
        memtable_bytes: 1,
        cache_bytes: 2,
        pinned_bytes: 3,
        merge_bytes: 4,
        slot_index_bytes: 5,
        record_cache_bytes: 6,
        popularity_bytes: 7,
        used_bytes: 28,
    }
}

fn operations() -> OperationStats {
    OperationStats {
        gets: 1,
        memtable_hits: 2,
        scans: 3,
        writes: 4,
        written_bytes: 5,
        ingested_bytes: 6,
        compactions: 7,
        trivial_moves: 8,
        migrations: 9,
        compacted_in_bytes: 10,
        compacted_out_bytes: 11,
        delayed_s: 0.5,
        stalled_s: 1.5,
    }
}

fn log() -> LogStats {
    LogStats {
        groups: 21,
        batches: 22,
        group_sizes: vec![20, 1],
        durable_groups: 20,
        durable_bytes: 23 << 10,
        durable_s: 0.5,
        p50_s: 0.000_125,
        p99_s: 0.25,
        slow: 24,
        padding_bytes: 27 << 10,
        padding_waits: 28,
        flying: 2,
        oldest_flying_s: 0.125,
        memtable_stalls: 25,
        memtable_stalled_s: 1.5,
        log_stalls: 26,
        log_stalled_s: 2.5,
    }
}

fn requests() -> RequestStats {
    RequestStats {
        waiting_writes: 9,
        waiting_looks: 27,
        waiting_gets: 10,
        waiting_pages: 11,
        held: 64,
        held_bytes: 65536,
        threads: 3,
        writes: 100,
        looks: 28,
        gets: 200,
        pages: 12,
        refused: 13,
        groups: 14,
        grouped_writes: 99,
        largest_group: 32,
        loggers: vec![LoggerStats { groups: 90, bytes: 131_072, busy_s: 0.25 }],
    }
}
