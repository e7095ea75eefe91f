//! What happens to records on two tiers, one scene a test.

use crate::closing::close;
use crate::model::{Moment, Twin, compare_scan, key, settings};
use thermocline::{
    ByteSize, Db, ErrorKind, Experiments, HybridSettings, Preset, Promotion, Settings, Tier,
};

/// Data six times the fast tier, written at random, is what was written: by look-ups, by scans
/// either way, before and after reopening.
#[test]
fn data_several_times_the_fast_tier_is_what_was_written() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 1);
    let mut demoted = 0;
    for round in 0..4 {
        twin.write(14_000, 50_000, 1000);
        twin.compare();
        if round % 2 == 1 {
            twin.reopen();
            twin.compare();
        }
        let so_far = twin.db().stats().fast_tier.unwrap().demoted_records;
        assert!(so_far > demoted, "{so_far} after {demoted}: counted since the store was made");
        demoted = so_far;
        twin.verify();
    }
    let stats = twin.db().stats();
    let fast = stats.fast_tier.unwrap();
    assert!(fast.records > 1000, "{fast:?}");
    assert!(demoted > 1000, "{demoted}");
    assert!(stats.tiers[0].used_bytes <= stats.tiers[0].capacity_bytes, "{:?}", stats.tiers[0]);
    let tables = stats.levels.iter().map(|level| level.bytes_by_tier[0]).sum::<u64>();
    assert_eq!(tables, 0, "tables are on the slow tier");
}

#[test]
fn several_runs_of_a_range_give_the_same_answers() {
    for runs in [3, 6] {
        let mut twin = Twin::new(settings(HybridSettings { runs, ..Default::default() }), 2);
        for _ in 0..3 {
            twin.write(14_000, 40_000, 1000);
            twin.compare();
        }
        assert!(twin.db().stats().levels.len() > 1, "one run only");
        twin.reopen();
        twin.compare();
        twin.verify();
    }
}

#[test]
fn snapshots_see_their_moment_through_flushes_demotions_and_promotions() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 3);
    twin.write(12_000, 20_000, 1000);
    let first = Moment::of(&twin);
    twin.write(12_000, 20_000, 1000);
    let second = Moment::of(&twin);
    twin.write(12_000, 20_000, 1000);
    first.compare();
    second.compare();
    twin.compare();
    drop(first);
    twin.write(12_000, 20_000, 1000);
    second.compare();
    drop(second);
    twin.compare();
    twin.verify();
}

/// A scan that is under way while records leave the fast tier beside and before it misses none.
#[test]
fn a_scan_goes_on_while_its_records_leave_for_tables() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 4);
    twin.write(20_000, 30_000, 1000);
    let model = twin.model.clone();
    let mut forwards = twin.db().cursor();
    forwards.seek_to_first().unwrap();
    let mut backwards = twin.db().cursor();
    backwards.seek_to_last().unwrap();
    let (mut ascending, mut descending) = (model.iter(), model.iter().rev());
    while forwards.valid() {
        for _ in 0..500 {
            if forwards.valid() {
                let (key, value) = ascending.next().unwrap();
                assert_eq!((forwards.key(), &forwards.value()[..]), (&key[..], &value[..]));
                forwards.next().unwrap();
            }
            if backwards.valid() {
                let (key, value) = descending.next().unwrap();
                assert_eq!((backwards.key(), &backwards.value()[..]), (&key[..], &value[..]));
                backwards.prev().unwrap();
            }
        }
        twin.write(300, 30_000, 1000);
    }
    assert!(ascending.next().is_none() && descending.next().is_none());
    twin.compare();
}

#[test]
fn records_that_are_read_again_and_again_move_up_and_are_dropped_for_nothing() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 5);
    for number in 0..40_000 {
        let value = twin.value(1000);
        twin.put(key(number), value);
    }
    twin.db().flush().unwrap();
    twin.db().settle().unwrap();
    let slow_reads = |twin: &Twin| twin.db().stats().tiers[1].reads;
    let read = |twin: &mut Twin, from: u64| {
        for _ in 0..6 {
            for number in from..from + 2000 {
                let found = twin.db().get(key(number)).unwrap();
                assert_eq!(found.as_deref(), twin.model.get(&key(number)).map(Vec::as_slice));
            }
            twin.db().settle().unwrap();
        }
    };
    read(&mut twin, 1000);
    let promoted = twin.db().stats().fast_tier.unwrap().promoted_records;
    let fast = twin.db().stats().fast_tier.unwrap();
    assert!(promoted >= 500, "{promoted} of 2000 moved up: {fast:?} {}", slow_reads(&twin));
    let before = slow_reads(&twin);
    read(&mut twin, 1000);
    let again = slow_reads(&twin) - before;
    assert!(again < 3000, "{again} reads of the slow tier for 12000 look-ups of hot records");
    // Another hot set, and another: copies give way without a write to the slow tier.
    let written = twin.db().stats().tiers[1].written_bytes;
    for from in [8000, 12_000, 16_000, 20_000, 24_000, 28_000, 32_000] {
        read(&mut twin, from);
    }
    let fast = twin.db().stats().fast_tier.unwrap();
    assert!(fast.dropped_records > 1000, "{fast:?}");
    let written = twin.db().stats().tiers[1].written_bytes - written;
    assert!(written < 12 << 20, "{written} bytes were written while nothing was");
    twin.compare();
    twin.reopen();
    twin.compare();
    twin.verify();
}

#[test]
fn without_promotion_nothing_moves_up() {
    let experiments = Experiments { promotion: Some(Promotion::None), ..Experiments::NONE };
    let mut twin = Twin::with(experiments, settings(HybridSettings::default()), 6);
    twin.write(20_000, 30_000, 1000);
    twin.compare();
    twin.db().settle().unwrap();
    assert_eq!(twin.db().stats().fast_tier.unwrap().promoted_records, 0);
}

/// Values of all sizes, from none to some larger than any slot, on a tier that is full.
#[test]
fn changing_sizes_of_values_find_slots_on_a_full_tier() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 7);
    for bytes in [1000, 100, 3000, 30, 10_000, 400] {
        twin.write(6 << 20 >> bytes_log(bytes), 20_000, bytes);
        twin.compare();
    }
    for bytes in [0, 1, 40_000, 300_000, 1_500_000] {
        let value = twin.value(bytes);
        twin.put(key(bytes as u64), value);
    }
    twin.db().flush().unwrap();
    twin.compare();
    twin.reopen();
    twin.compare();
    twin.verify();
}

fn bytes_log(bytes: u64) -> u32 {
    bytes.max(128).ilog2() + 1
}

#[test]
fn a_bulk_load_is_newer_than_what_slots_have_of_its_keys() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 8);
    twin.write(10_000, 9000, 1000);
    let moment = Moment::of(&twin);
    let mut ingest = twin.db().ingest();
    for number in (0..9000).step_by(3) {
        let value = format!("loaded {number}").into_bytes();
        ingest.add(key(number), &value).unwrap();
        twin.model.insert(key(number), value);
    }
    ingest.finish().unwrap();
    twin.compare();
    moment.compare();
    drop(moment);
    twin.write(3000, 9000, 1000);
    twin.compare();
    twin.write(14_000, 60_000, 1000);
    twin.compare();
    twin.reopen();
    twin.compare();
}

#[test]
fn compacting_everything_leaves_nothing_in_slots() {
    let mut twin = Twin::new(settings(HybridSettings { runs: 4, ..Default::default() }), 9);
    twin.write(20_000, 30_000, 1000);
    twin.db().compact_range(None, None, &mut |_| {}).unwrap();
    let stats = twin.db().stats();
    assert_eq!(stats.fast_tier.unwrap().records, 0);
    assert_eq!(stats.levels.len(), 1, "one run");
    assert_eq!(stats.levels[0].deletes, 0, "no tombstone is left");
    twin.compare();
    // Then the preset may change.
    close(twin.db.take().unwrap(), "the scene goes on");
    let leveled =
        Settings { preset: Some(Preset::Leveled), tiers: Vec::new(), ..twin.settings.clone() };
    twin.db = Some(Db::open_with(twin.path("db"), &leveled).unwrap());
    twin.compare();
}

/// The partitions of a table are in memory since it was written, so look-ups read the tail of each
/// table and blocks of data.
#[test]
fn lookups_after_merges_read_no_partitions() {
    for preset in [Preset::Hybrid, Preset::Leveled] {
        let experiments = Experiments { promotion: Some(Promotion::None), ..Experiments::NONE };
        let (memory, hybrid) = (ByteSize::mib(32), HybridSettings::default());
        let settings = Settings { preset: Some(preset), memory, ..settings(hybrid) };
        let mut twin = Twin::with(experiments, settings, 14);
        twin.write(40_000, 60_000, 1000);
        twin.db().flush().unwrap();
        twin.db().settle().unwrap();
        let before = twin.db().stats();
        // The cache has room for the blocks of so many: nothing has to leave.
        for number in (0..60_000).map(key).step_by(601) {
            let found = twin.db().get(&number).unwrap();
            assert_eq!(found.as_deref(), twin.model.get(&number).map(Vec::as_slice));
        }
        let after = twin.db().stats();
        let misses = |class| after.cache.classes[class].misses - before.cache.classes[class].misses;
        assert_eq!((misses("index"), misses("filter")), (0, 0), "{preset:?}");
        let blocks = misses("data");
        assert!(blocks > 20, "{preset:?}: {blocks} blocks");
    }
}

#[test]
fn a_database_of_the_preset_leveled_goes_on_as_hybrid() {
    let hybrid = HybridSettings::default();
    let leveled = Settings { preset: Some(Preset::Leveled), ..settings(hybrid) };
    let mut twin = Twin::new(leveled, 13);
    twin.write(12_000, 20_000, 1000);
    close(twin.db.take().unwrap(), "the scene goes on");
    let hybrid =
        Settings { preset: Some(Preset::Hybrid), tiers: Vec::new(), ..twin.settings.clone() };
    twin.db = Some(Db::open_with(twin.path("db"), &hybrid).unwrap());
    twin.compare();
    for _ in 0..2 {
        twin.write(12_000, 20_000, 1000);
        twin.compare();
        twin.reopen();
        twin.compare();
    }
    twin.db().compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(twin.db().stats().levels.len(), 1, "one run, and nothing left in level 0");
    twin.compare();
    twin.verify();
}

#[test]
fn a_range_that_is_compacted_leaves_the_rest_alone() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 10);
    twin.write(20_000, 30_000, 1000);
    let (from, to) = (key(5000), key(9000));
    twin.db().compact_range(Some(&from), Some(&to), &mut |_| {}).unwrap();
    assert!(twin.db().stats().fast_tier.unwrap().records > 0);
    twin.compare();
    twin.verify();
}

#[test]
fn a_checkpoint_has_the_records_of_its_moment_and_both_go_on() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 11);
    twin.write(15_000, 20_000, 1000);
    let model = twin.model.clone();
    let place = twin.path("copy");
    twin.db().checkpoint(&place).unwrap();
    twin.write(15_000, 20_000, 1000);
    twin.compare();
    let copy = Db::open(&place).unwrap();
    compare_scan(copy.scan().into_iter(), &model);
    assert!(copy.verify(&mut |_| {}).unwrap().is_ok());
    for number in 0..5000 {
        copy.put(key(number), "changed in the copy").unwrap();
    }
    copy.close().unwrap();
    twin.compare();
}

#[test]
fn one_tier_is_refused_and_so_is_another_preset_over_slots() {
    let dir = tempfile::tempdir().unwrap();
    let one = Settings {
        preset: Some(Preset::Hybrid),
        tiers: vec![Tier::new(dir.path().join("one"), ByteSize::mib(64))],
        ..Settings::default()
    };
    let error = Db::create(dir.path().join("db"), &one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("wants a fast tier and a slow one"), "{error}");
    assert!(!Db::exists(dir.path().join("db")).unwrap(), "nothing is left");
    let mut twin = Twin::new(settings(HybridSettings::default()), 12);
    twin.write(1000, 1000, 100);
    twin.db().flush().unwrap();
    close(twin.db.take().unwrap(), "the scene goes on");
    let leveled =
        Settings { preset: Some(Preset::Leveled), tiers: Vec::new(), ..twin.settings.clone() };
    let error = Db::open_with(twin.path("db"), &leveled).unwrap_err();
    assert!(error.to_string().contains("compact all of it"), "{error}");
    twin.db = Some(Db::open(twin.path("db")).unwrap());
    assert_eq!(twin.db().settings().preset, Some(Preset::Hybrid), "what was refused is not kept");
    twin.compare();
}

/// Any read may move copies up: they must not make the way to the other preset a matter of luck.
#[test]
fn clean_copies_do_not_keep_a_database_from_the_other_preset() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 17);
    twin.write(6_000, 9_000, 2000);
    twin.db().compact_range(None, None, &mut |_| {}).unwrap();
    // More of them than memory has room for: the others get slots.
    for _ in 0..8 {
        for number in 0..1_900 {
            let found = twin.db().get(key(number)).unwrap();
            assert_eq!(found.as_deref(), twin.model.get(&key(number)).map(Vec::as_slice));
        }
        twin.db().settle().unwrap();
    }
    let fast = twin.db().stats().fast_tier.unwrap();
    assert!(fast.clean_records > 0 && fast.clean_records == fast.records, "{fast:?}");
    close(twin.db.take().unwrap(), "the scene goes on");
    let leveled =
        Settings { preset: Some(Preset::Leveled), tiers: Vec::new(), ..twin.settings.clone() };
    twin.db = Some(Db::open_with(twin.path("db"), &leveled).unwrap());
    twin.compare();
    twin.verify();
    twin.write(3_000, 9_000, 1000);
    close(twin.db.take().unwrap(), "the scene goes on");
    twin.db = Some(Db::open_with(twin.path("db"), &twin.settings).unwrap());
    twin.compare();
    twin.verify();
}

#[test]
fn settings_that_are_refused_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let one = Tier::new(dir.path().join("one"), ByteSize::mib(64));
    let leveled = Settings { tiers: vec![one], ..Settings::default() };
    let db = Db::create(dir.path().join("db"), &leveled).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let hybrid = Settings { preset: Some(Preset::Hybrid), ..leveled };
    let error = Db::open_with(dir.path().join("db"), &hybrid).unwrap_err();
    assert!(error.to_string().contains("wants a fast tier and a slow one"), "{error}");
    let db = Db::open(dir.path().join("db")).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Logs are the same in all presets, and what is in a log is newer than every table: while no slot
/// has a record, either preset opens what the other wrote.
#[test]
fn records_that_are_only_in_the_log_are_found_by_the_other_preset_and_back_again() {
    let mut twin = Twin::new(settings(HybridSettings::default()), 14);
    let hybrid = Settings { tiers: Vec::new(), ..twin.settings.clone() };
    let leveled = Settings { preset: Some(Preset::Leveled), ..hybrid.clone() };
    twin.write(300, 400, 100);
    assert_eq!(twin.db().stats().fast_tier.unwrap().slab_bytes, 0, "nothing is in slots");
    let change = |twin: &mut Twin, settings: &Settings| {
        close(twin.db.take().unwrap(), "the scene goes on");
        twin.db = Some(Db::open_with(twin.path("db"), settings).unwrap());
        twin.compare();
    };
    change(&mut twin, &leveled);
    assert!(twin.db().stats().levels.iter().any(|level| level.level == 0), "they are in a table");
    twin.write(300, 400, 100);
    change(&mut twin, &hybrid);
    assert!(twin.db().stats().fast_tier.unwrap().records > 0, "now they are in slots");
    // Over tables, after all slots were emptied: what the log has is newer, tombstones too.
    twin.db().compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(twin.db().stats().fast_tier.unwrap().records, 0);
    twin.write(300, 400, 100);
    change(&mut twin, &leveled);
    twin.write(300, 400, 100);
    twin.db().compact_range(None, None, &mut |_| {}).unwrap();
    change(&mut twin, &hybrid);
    twin.verify();
}
