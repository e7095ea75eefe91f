//! Copies of tables' indexes in a store: when they are made, what they serve, and how they end.

use super::copies::ATTEMPTS_MAX;
use crate::Settings;
use crate::jobs::{Stepper, Workers};
use crate::settings::hybrid::IndexCopies;
use crate::support::hooked::{Call, HookedDevices};
use crate::support::{hybrid, stepped_environment, tier};
use crate::{ByteSize, Db, Environment, Experiments, HybridSettings, Promotion};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Buffer, MemoryDevices};
use thermocline_device::{Error, ErrorKind, FileKind};
use thermocline_foundation::FileNumber;
use thermocline_foundation::random::mix;

const HOME: &str = "/home";
const KEYS: u64 = 4000;

/// Nothing moves up, so that look-ups go to tables.
fn environment() -> Environment {
    let experiments = Experiments { promotion: Some(Promotion::None), ..Experiments::NONE };
    Environment { experiments, ..stepped_environment() }
}

fn settings(index_copies: IndexCopies) -> Settings {
    let hybrid_settings = HybridSettings { index_copies, ..Default::default() };
    Settings {
        hybrid: hybrid_settings,
        memory: ByteSize::mib(1),
        table_size: ByteSize::mib(1),
        ..hybrid()
    }
}

fn name(key: u64) -> [u8; 8] {
    mix(key).to_be_bytes()
}

fn value(key: u64, round: u8) -> Vec<u8> {
    let words = (0..125).flat_map(|word| mix(key << 16 | word).to_be_bytes());
    words.chain([round]).collect()
}

fn load(db: &Db, round: u8) {
    (0..KEYS).for_each(|key| db.put(name(key), value(key, round)).unwrap());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
}

/// A store whose records are all in tables of the slow tier.
fn store(environment: &Environment, index_copies: IndexCopies) -> Db {
    let db = environment.create(Path::new(HOME), &settings(index_copies)).unwrap();
    load(&db, 1);
    assert_eq!(db.stats().fast_tier.unwrap().records, 0);
    db
}

fn tables(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.tables as u64).sum()
}

fn copies(db: &Db) -> Vec<FileNumber> {
    let files = db.engine().shared().files.files().into_iter();
    files.filter(|file| file.kind == FileKind::TableIndex).map(|file| file.number).collect()
}

fn figures(db: &Db) -> (u64, u64, u64) {
    let fast = db.stats().fast_tier.unwrap();
    (fast.index_copies, fast.index_copy_reads, fast.failed_index_copies)
}

fn check(db: &Db, round: u8) {
    for key in 0..KEYS {
        assert_eq!(db.get(name(key)).unwrap().unwrap(), value(key, round));
        assert!(db.get(name(key + KEYS)).unwrap().is_none());
    }
}

/// Reads of the slow tier for each look-up of some keys that are there and some that are not,
/// where the block cache holds nothing.
fn slow_reads(db: &Db) -> (f64, f64) {
    check(db, 1);
    db.engine().shared().cache.set_capacity(0);
    let of = |keys: std::ops::Range<u64>| {
        let reads = || db.engine().shared().files.tiers()[1].traffic_total().reads;
        let (count, before) = (keys.end - keys.start, reads());
        keys.for_each(|key| drop(db.get(name(key)).unwrap()));
        (reads() - before) as f64 / count as f64
    };
    (of(0..KEYS), of(KEYS..2 * KEYS))
}

#[test]
fn with_copies_a_key_costs_one_slow_read_and_an_absent_key_none_whatever_memory_holds() {
    let db = store(&environment(), IndexCopies::Always);
    assert!(tables(&db) > 2);
    assert_eq!(figures(&db).0, tables(&db));
    let (present, absent) = slow_reads(&db);
    assert_eq!(present, 1.0);
    // Of a hundred absent keys about one passes the filter.
    assert!(absent < 0.03, "{absent}");
    assert!(figures(&db).1 > 3 * KEYS && figures(&db).2 == 0);

    let db = store(&environment(), IndexCopies::Never);
    assert_eq!((figures(&db).0, copies(&db).len()), (0, 0));
    let (present, absent) = slow_reads(&db);
    assert_eq!(present, 3.0);
    assert!((1.0..1.06).contains(&absent), "{absent}");
}

#[test]
fn a_damaged_copy_is_not_served_and_made_anew_a_few_times() {
    let db = store(&environment(), IndexCopies::Always);
    for round in 1..=ATTEMPTS_MAX {
        let before = copies(&db);
        assert_eq!(before.len() as u64, tables(&db));
        for number in &before {
            let file = db.engine().shared().files.open_file(*number).unwrap();
            let bytes = file.len().unwrap() as usize;
            assert!(file.write(0, Buffer::zeroed(bytes)).1.is_ok());
        }
        db.engine().shared().cache.set_capacity(0);
        check(&db, 1);
        assert_eq!(figures(&db).2, u64::from(round) * tables(&db));
        db.settle().unwrap();
        assert!(copies(&db).iter().all(|number| !before.contains(number)));
    }
    assert!(copies(&db).is_empty() && figures(&db).0 == 0, "enough is enough");
    check(&db, 1);
    db.put("key", "value").unwrap();
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
}

#[test]
fn a_copy_ends_with_its_table() {
    let db = store(&environment(), IndexCopies::Always);
    let before = copies(&db);
    load(&db, 2);
    let after = copies(&db);
    assert!(after.len() as u64 == tables(&db) && figures(&db).0 == tables(&db));
    assert!(after.iter().all(|number| !before.contains(number)));
    check(&db, 2);
}

#[test]
fn an_opening_removes_all_copies_and_makes_them_anew_where_they_are_wanted() {
    let environment = environment();
    let db = store(&environment, IndexCopies::Always);
    let before = copies(&db);
    db.close().unwrap();
    let db = environment.open(Path::new(HOME)).unwrap();
    assert!(copies(&db).is_empty());
    let on_tier = || db.engine().shared().files.tiers()[0].driver().list().unwrap();
    assert!(!on_tier().iter().any(|entry| entry.name.ends_with(".index")));
    check(&db, 1);
    db.settle().unwrap();
    assert_eq!(copies(&db).len(), before.len());
    assert_eq!(slow_reads(&db).0, 1.0);
    db.close().unwrap();
    let never = settings(IndexCopies::Never);
    let db = environment.open_with(Path::new(HOME), &never).unwrap();
    db.settle().unwrap();
    assert!(copies(&db).is_empty());
    check(&db, 1);
}

#[test]
fn a_fast_tier_that_refuses_copies_fails_nothing() {
    for refused in [Call::Create, Call::Write] {
        let hook = move |call, _: &Path, name: &str| match name.ends_with(".index") {
            true if call == refused => Err(Error::new(ErrorKind::Io, "the test refuses")),
            _ => Ok(()),
        };
        let memory = Arc::new(MemoryDevices::default());
        let environment = Environment {
            devices: Arc::new(HookedDevices::new(memory, Arc::new(hook))),
            workers: Workers::Stepped(Arc::new(Stepper::new(1))),
            ..Environment::default()
        };
        let db = store(&environment, IndexCopies::Always);
        assert!(copies(&db).is_empty() && figures(&db).0 == 0);
        check(&db, 1);
        load(&db, 2);
        check(&db, 2);
    }
}

#[test]
fn slots_leave_room_to_copies_and_both_keep_to_what_is_for_slots() {
    let environment = environment();
    let tiers = vec![tier("/fast", 4), tier("/slow", 256)];
    // Large partitions beside small records.
    let filter_bits_per_key = 32;
    let settings =
        |setting| Settings { tiers: tiers.clone(), filter_bits_per_key, ..settings(setting) };
    let db = environment.create(Path::new(HOME), &settings(IndexCopies::Never)).unwrap();
    for key in 0..60_000 {
        db.put(name(key), [key as u8; 60]).unwrap();
    }
    db.settle().unwrap();
    let fast = db.stats().fast_tier.unwrap();
    let whole_bytes = fast.limit_bytes;
    assert!(fast.slab_bytes > whole_bytes * 9 / 10, "{fast:?}");
    db.close().unwrap();
    let always = settings(IndexCopies::Always);
    let db = environment.open_with(Path::new(HOME), &always).unwrap();
    for key in 0..20_000 {
        db.put(name(key), [key as u8; 60]).unwrap();
        let fast = &db.stats().tiers[0];
        assert!(fast.used_bytes <= fast.capacity_bytes, "{fast:?}");
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let fast = db.stats().fast_tier.unwrap();
    assert!(fast.index_copies == tables(&db) && fast.index_copy_bytes > 100_000, "{fast:?}");
    assert!(fast.limit_bytes + fast.index_copy_bytes <= whole_bytes, "{fast:?}");
    assert!(fast.slab_bytes <= fast.limit_bytes, "{fast:?}");
}

#[test]
fn copies_are_wanted_while_memory_does_not_hold_all_partitions() {
    let of = |setting| {
        let db = environment().create(Path::new(HOME), &settings(setting)).unwrap();
        super::IndexCopies::new(db.engine().shared())
    };
    let auto = of(IndexCopies::Auto);
    assert!(!auto.decide(100, 1000) && !auto.is_due());
    assert!(!auto.decide(100, 130), "between the two it stays as it is");
    assert!(auto.decide(100, 120) && auto.is_due());
    assert!(auto.decide(100, 130));
    assert!(!auto.decide(100, 151) && auto.is_due(), "those that are there are to go");
    assert!(of(IndexCopies::Always).decide(0, 1000));
    assert!(!of(IndexCopies::Never).decide(1000, 0));
}
