//! The arithmetic of statistics with numbers at which a mistake of a hundredth shows: each count is
//! a number of its own, so one that is taken for another, twice or not at all changes the answer.

use super::*;
use crate::ByteSize;
use thermocline_device::TierSpec;
use thermocline_foundation::coding::{Decoder, put_varint};

/// A relative error of less than a thousandth.
fn assert_is(found: f64, right: f64, what: &str) {
    assert!((found / right - 1.0).abs() < 0.001, "{what}: {found}, right is {right}");
}

fn totals(counts: &[(Count, u64)]) -> Totals {
    let all = Count::UnaskedCopies as usize + 1;
    let mut body = Vec::new();
    put_varint(&mut body, all as u64);
    for at in 0..all {
        let given = counts.iter().find(|(count, _)| *count as usize == at);
        put_varint(&mut body, given.map_or(0, |(_, value)| *value));
    }
    Totals::decode(Decoder::new(&body)).expect("as the page says")
}

#[test]
fn hit_ratios_are_hits_of_all_that_was_asked_for() {
    for (hits, misses, right) in [(3, 1, 0.75), (970, 30, 0.97), (1, 99, 0.01), (7, 0, 1.0)] {
        let stats = HitStats::of(hits, misses);
        assert_is(stats.hit_ratio, right, &format!("{hits} and {misses}"));
        assert_eq!((stats.hits, stats.misses), (hits, misses));
    }
    assert_eq!((HitStats::of(0, 0).hit_ratio, HitStats::of(0, 9).hit_ratio), (0.0, 0.0));
}

#[test]
fn times_are_seconds_and_counts_are_those_of_their_names() {
    let counts = totals(&[
        (Count::Gets, 1001),
        (Count::MemtableHits, 2003),
        (Count::Scans, 3011),
        (Count::Writes, 4013),
        (Count::WrittenBytes, 5021),
        (Count::IngestedBytes, 6029),
        (Count::Compactions, 7043),
        (Count::Moves, 8053),
        (Count::Migrations, 9059),
        (Count::CompactedInBytes, 10_061),
        (Count::CompactedOutBytes, 11_069),
        (Count::DelayedNs, 12_500_000_000),
        (Count::StalledNs, 250_000_000),
    ]);
    let stats = operation_stats(&counts);
    assert_is(stats.delayed_s, 12.5, "delayed");
    assert_is(stats.stalled_s, 0.25, "stalled");
    let counted = [
        stats.gets,
        stats.memtable_hits,
        stats.scans,
        stats.writes,
        stats.written_bytes,
        stats.ingested_bytes,
        stats.compactions,
        stats.trivial_moves,
        stats.migrations,
        stats.compacted_in_bytes,
        stats.compacted_out_bytes,
    ];
    let right = [1001, 2003, 3011, 4013, 5021, 6029, 7043, 8053, 9059, 10_061, 11_069];
    assert_eq!(counted, right);
}

/// A tier of which so much was read and written, with slabs of 10,000 bytes.
fn tier(read_bytes: u64, written_bytes: u64) -> TierStats {
    let usage = TierUsage {
        tier: TierIndex(0),
        spec: TierSpec {
            path: "/tier".into(),
            capacity: ByteSize(64_000),
            driver: "memory".to_owned(),
        },
        capacity_bytes: 64_000,
        used_bytes: 17_000,
        used_by_kind: [(FileKind::Slab, 10_000), (FileKind::Log, 7000)].into(),
        space: None,
        traffic: BTreeMap::new(),
    };
    let held = Holdings { records: 100, slot_bytes: 7000, table_bytes: 5000, dead_bytes: 1100 };
    let stats = tier_stats(&usage, &held, &Totals::default(), None);
    TierStats { read_bytes, written_bytes, ..stats }
}

#[test]
fn what_is_dead_is_what_slabs_have_free_and_tables_have_too_much() {
    let stats = tier(0, 0);
    assert_eq!(stats.live_bytes, 7000 + 5000 - 1100);
    assert_eq!(stats.dead_bytes_estimate, 10_000 - 7000 + 1100);
    assert_eq!((stats.capacity_bytes, stats.used_bytes), (64_000, 17_000));
    assert_eq!((stats.device_free_bytes, stats.records), (None, 100));
}

#[test]
fn amplification_is_of_all_tiers_and_of_all_that_the_user_brought() {
    let counts =
        totals(&[(Count::WrittenBytes, 6000), (Count::IngestedBytes, 4000), (Count::Gets, 250)]);
    let level = |level, bytes| LevelStats {
        level,
        tables: 1,
        bytes,
        entries: 1,
        deletes: 0,
        bytes_by_tier: vec![bytes],
        dictionaries: 0,
        dictionary_saved_bytes: 0,
    };
    let tiers = [tier(3000, 20_000), tier(7000, 15_000)];
    let levels = [level(0, 100), level(3, 900), level(6, 8000)];
    let found = amplification(&counts, &tiers, &levels);
    assert_is(found.write, 3.5, "35,000 bytes for 10,000");
    assert_is(found.read_bytes_per_get, 40.0, "10,000 bytes for 250 keys");
    assert_is(found.space, 1.125, "9,000 bytes for 8,000");
    let nothing = amplification(&Totals::default(), &tiers, &[]);
    assert_eq!((nothing.write, nothing.read_bytes_per_get, nothing.space), (0.0, 0.0, 0.0));
}
