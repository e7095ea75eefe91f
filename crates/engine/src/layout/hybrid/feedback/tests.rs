//! The rules between the tiers, in stores.

use super::*;
use crate::environment::experiments::{Experiments, Promotion};
use crate::settings::hybrid::HybridSettings;
use crate::support::{hybrid, stepped_environment};
use crate::{ByteSize, Db, Environment};
use std::path::Path;
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;

const EPOCH: u64 = 1000;
const RECORDS: u32 = 4000;

/// A store with all of its records in tables, opened anew: nothing is known of any key.
fn reopened(experiments: Experiments, tracker_percent: u32) -> Db {
    reopened_in(stepped_environment(), experiments, tracker_percent)
}

fn reopened_in(environment: Environment, experiments: Experiments, tracker_percent: u32) -> Db {
    let hybrid_settings = HybridSettings { tracker_percent, ..hybrid().hybrid };
    let table_size = ByteSize::kib(256);
    let settings = Settings { table_size, hybrid: hybrid_settings, ..hybrid() };
    let experiments = Experiments { epoch_operations: Some(EPOCH), ..experiments };
    let environment = Environment { experiments, ..environment };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    for key in 0..RECORDS {
        // What does not compress.
        let words = (0..125u64)
            .map(|word| thermocline_table::key_hash(&(word << 32 | u64::from(key)).to_be_bytes()));
        let value: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
        db.put(key.to_be_bytes(), value).unwrap();
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.close().unwrap();
    let db = environment.open(Path::new("/home")).unwrap();
    assert_eq!(db.stats().fast_tier.unwrap().records, 0);
    db
}

/// Looks these keys up and lets what that asks for be done.
fn read(db: &Db, keys: impl Iterator<Item = u32>) {
    for key in keys {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().is_some(), key < RECORDS);
    }
    db.settle().unwrap();
}

/// Stage and epochs run of the merges that reads ask for, and records that moved up.
fn read_triggered(db: &Db) -> (&'static str, u64, u64) {
    let fast = db.stats().fast_tier.unwrap();
    let rules = fast.rules;
    (&*rules.read_triggered_stage.leak(), rules.read_triggered_epochs, fast.promoted_records)
}

/// What moves up does so in merges that reads ask for.
fn by_merges() -> Experiments {
    let promotion = Some(Promotion::Demotion);
    Experiments { promotion, read_triggered: Some(true), ..Experiments::NONE }
}

/// Workers that sleep, and no caller that settles.
#[test]
fn reads_alone_wake_the_workers_for_the_merges_that_they_ask_for() {
    let devices = Arc::new(MemoryDevices::default());
    let environment = Environment { devices, ..Environment::default() };
    let db = reopened_in(environment, by_merges(), 50);
    for _ in 0..8 {
        (0..RECORDS).step_by(4).for_each(|key| {
            assert!(db.get(key.to_be_bytes()).unwrap().is_some());
        });
        db.engine().shared().jobs.wait_idle();
    }
    let (_, epochs, promoted) = read_triggered(&db);
    assert!(epochs > 0 && promoted > 0, "{epochs} epochs, {promoted} records");
}

/// The paper's course (PrismDB, section 5.3), with what moves up only in merges.
#[test]
fn hot_records_of_tables_move_up_by_merges_that_reads_ask_for_until_an_epoch_is_no_better() {
    let (cool_down_operations, candidates) = (Some(3 * EPOCH), Some(64));
    let experiments = Experiments { cool_down_operations, candidates, ..by_merges() };
    let db = reopened(experiments, 50);
    let hot = || (0..RECORDS).step_by(4);
    let slow_reads = || db.stats().fast_tier.unwrap().slow_reads;
    read(&db, hot().take(999));
    assert_eq!(read_triggered(&db), ("detecting", 0, 0), "not before an epoch is over");
    read(&db, hot().skip(999));
    let (stage, epochs, promoted) = read_triggered(&db);
    assert_eq!((stage, epochs), ("running", 0));
    // Seven tenths of what is tracked are pinned; all of it is as popular as the rest.
    assert!((600..=800).contains(&promoted), "{promoted} of 1000");
    let before = slow_reads();
    read(&db, hot());
    assert_eq!(slow_reads() - before, 1000 - promoted, "the rest");
    let (stage, epochs, _) = read_triggered(&db);
    assert_eq!((stage, epochs), ("running", 1), "it was better by far");
    read(&db, hot());
    let (stage, epochs, promoted) = read_triggered(&db);
    assert_eq!((stage, epochs), ("cooling_down", 2), "it was no better");
    (0..2).for_each(|_| read(&db, hot()));
    assert_eq!(read_triggered(&db), ("cooling_down", 2, promoted));
    read(&db, hot());
    assert_eq!(read_triggered(&db), ("detecting", 2, promoted));
}

#[test]
fn where_nothing_may_move_up_reads_ask_for_no_merge() {
    let experiments = Experiments { promotion: Some(Promotion::None), ..by_merges() };
    let db = reopened(experiments, 0);
    let written = db.stats().tiers[1].written_bytes;
    read(&db, 0..1000);
    assert_eq!(read_triggered(&db), ("running", 0, 0));
    assert_eq!(db.stats().tiers[1].written_bytes, written);
}

#[test]
fn once_all_ranges_had_their_turn_reads_ask_for_no_merge_until_the_next_epoch() {
    let experiments = Experiments { cool_down_operations: Some(EPOCH), ..by_merges() };
    let db = reopened(experiments, 0);
    let feedback = &db.engine().hybrid().fast.feedback;
    (0..100).for_each(|_| feedback.begin_merge_for_reads());
    for course in [("running", 0, 0), ("cooling_down", 1, 0), ("detecting", 1, 0)] {
        read(&db, 0..1000);
        assert_eq!(read_triggered(&db), course);
    }
    read(&db, 0..1000);
    let (stage, _, promoted) = read_triggered(&db);
    assert!(stage == "running" && promoted > 0, "{stage} {promoted}");
}

#[test]
fn where_reads_do_not_recur_they_move_nothing_up_and_where_they_do_again_they_do_again() {
    const MANY: u64 = 16_000;
    let mut settings = Settings { memory: ByteSize::mib(4), ..hybrid() };
    settings.tiers[0].capacity = ByteSize::mib(4);
    let db = stepped_environment().create(Path::new("/home"), &settings).unwrap();
    (0..MANY).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
    db.settle().unwrap();
    let stats = || db.stats().fast_tier.unwrap();
    assert!(stats().table_reads_recur && stats().slot_reads_recur, "until more is known");
    let read = |keys: &mut dyn Iterator<Item = u64>| {
        let before = stats().promoted_records;
        for (read, key) in keys.enumerate() {
            assert!(db.get(key.to_be_bytes()).unwrap().is_some());
            if read % 500 == 0 {
                db.settle().unwrap();
            }
        }
        stats().promoted_records - before
    };
    let mut random = Random::new(7);
    let mut uniform = |reads: usize| read(&mut (0..reads).map(|_| random.below(MANY)));
    assert!(uniform(40_000) > 0, "it takes some to be sure");
    assert!(!stats().table_reads_recur && !stats().slots_at_first_read);
    assert!(uniform(5000) < 50, "no more than memory happens to have room for");
    let cache = &db.engine().hybrid().fast.cache;
    let (used, capacity) = (cache.bytes(), cache.capacity_bytes());
    assert!(used > capacity / 8 * 7, "memory is full: {used} of {capacity}");
    // Many are in tables.
    let hot = read(&mut (0..40_000).map(|read| read % 400));
    assert!(hot > 100 && stats().table_reads_recur, "{hot}");
}

/// With a cold memory all that is read goes there, and is read there from then on: what is read
/// from slots are the others.
#[test]
fn memory_fills_where_all_is_in_slots_however_it_is_read() {
    let environment = stepped_environment();
    let settings = Settings { memory: ByteSize::mib(8), ..hybrid() };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    (0..RECORDS).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let db = environment.open(Path::new("/home")).unwrap();
    let mut random = Random::new(7);
    for _ in 0..60_000 {
        let key = random.below(u64::from(RECORDS)) as u32;
        assert!(db.get(key.to_be_bytes()).unwrap().is_some());
    }
    assert_eq!(db.stats().fast_tier.unwrap().slow_reads, 0);
    let cache = &db.engine().hybrid().fast.cache;
    let (used, capacity) = (cache.bytes(), cache.capacity_bytes());
    assert!(used > capacity / 8 * 7, "{used} of {capacity}");
}

#[test]
fn some_more_keys_are_known_than_are_up_unless_a_share_of_all_is_set_or_nothing_has_left() {
    let tracked = |tracker_percent, capacity| {
        let hybrid_settings = HybridSettings { tracker_percent, ..hybrid().hybrid };
        let mut settings = Settings { hybrid: hybrid_settings, ..hybrid() };
        settings.tiers[0].capacity = ByteSize::mib(capacity);
        let db = stepped_environment().create(Path::new("/home"), &settings).unwrap();
        (0..3 * RECORDS).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
        db.settle().unwrap();
        let fast = &db.engine().hybrid().fast;
        let keys = [u64::from(3 * RECORDS), fast.index.len()];
        keys.map(|keys| 100 * fast.popularity.capacity() as u64 / keys)
    };
    let [_, of_fast] = tracked(0, 6);
    assert!((110..=140).contains(&of_fast), "{of_fast}");
    for (percent, capacity) in [(50, 6), (20, 32), (0, 32)] {
        let [of_all, _] = tracked(percent, capacity);
        let share = if percent == 0 { 20 } else { u64::from(percent) };
        assert!((share - share / 8..=share + share / 8).contains(&of_all), "{of_all}");
    }
}

/// Share of tracked keys that is pinned, in percent; what the tuner is at; steps that it kept.
fn tuner(db: &Db) -> (f64, &'static str, u64) {
    let fast = db.stats().fast_tier.unwrap();
    let rules = fast.rules;
    (fast.pinning_percent.round(), &*rules.pinning_stage.leak(), rules.pinning_steps_kept)
}

#[test]
fn the_threshold_moves_and_merges_count_as_look_ups_do() {
    let (pinning, promotion) = (Some(PinningMode::Auto), Some(Promotion::None));
    let db = reopened(Experiments { pinning, promotion, ..Experiments::NONE }, 0);
    // So many look-ups of an epoch are of records in tables, the rest of keys that are nowhere.
    let epoch = |slow: u32| read(&db, (0..slow).chain(RECORDS..RECORDS + 1000 - slow));
    let compact = || db.compact_range(None, None, &mut |_| {}).unwrap();
    assert_eq!(tuner(&db), (70.0, "measuring", 0));
    epoch(1000);
    assert_eq!(tuner(&db), (75.0, "settling", 0));
    epoch(1000);
    epoch(900);
    assert_eq!(tuner(&db), (80.0, "settling", 1), "a tenth cheaper");
    epoch(900);
    compact();
    // 8 MB are some 256 look-ups.
    epoch(750);
    assert_eq!(tuner(&db), (75.0, "settling", 1), "dearer, with what was merged");
}

/// So many keys has a table of the paper (section 6).
#[test]
fn a_bucket_has_64_thousand_keys_and_is_divided_at_twice_as_many() {
    let db = stepped_environment().create(Path::new("/home"), &hybrid()).unwrap();
    let buckets = db.engine().hybrid().fast.feedback.buckets.as_ref().unwrap();
    // Each of them is one of 32.
    let tell = |key: u64| buckets.insert_fast(&key.to_be_bytes(), key << 29, 100);
    let of_keys = |keys: u64| keys / 32;
    (0..of_keys(128 << 10)).for_each(tell);
    assert_eq!(buckets.len(), 1);
    tell(of_keys(128 << 10));
    assert_eq!(buckets.len(), 2);
    let all = buckets.estimate(&[], None, &thermocline_popularity::Pinning::nothing());
    assert_eq!(all.fast_objects, f64::from((128 << 10) + 32));
}
