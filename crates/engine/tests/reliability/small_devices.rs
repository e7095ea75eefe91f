//! Devices with less room than their tiers' capacities: records go where there is room, writers are
//! told when there is none anywhere, and writing goes on once there is, without reopening.

use crate::history::scan;
use crate::support::*;
use std::collections::BTreeMap;
use std::path::Path;
use thermocline::{Db, Durability, Environment, ErrorKind, Settings};
use thermocline_device::{Devices, MemoryDevices};
use thermocline_foundation::random::Random;

const MIB: u64 = 1 << 20;

pub fn set_device(devices: &MemoryDevices, tier: usize, bytes: u64) {
    devices.directory(Path::new(TIERS[tier])).unwrap().set_capacity_bytes(bytes);
}

/// Bytes of what lies on a tier's device.
pub fn used(devices: &MemoryDevices, tier: usize) -> u64 {
    let entries = devices.home(Path::new(TIERS[tier])).unwrap().list().unwrap();
    entries.iter().map(|entry| entry.len).sum()
}

fn key(number: u64) -> String {
    // Not in order, so that records overlap.
    format!("key{:05}", number * 7919 % 100_000)
}

/// Nothing that compression makes small.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 2000];
    Random::new(number).fill(&mut value);
    value
}

/// Writes the records from `from` on until one is refused, or `until`; says how far.
fn load(db: &Db, from: u64, until: u64) -> (u64, Option<thermocline::Error>) {
    for number in from..until {
        if let Err(error) = db.put(key(number), value(number)) {
            return (number, Some(error));
        }
    }
    (until, None)
}

fn assert_has(db: &Db, records: u64) {
    let wanted: BTreeMap<_, _> =
        (0..records).map(|number| (key(number).into_bytes(), value(number))).collect();
    assert!(scan(db).unwrap() == wanted, "not what was written");
}

fn created(settings: &Settings) -> (MemoryDevices, Environment, Db) {
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    let db = environment.create(&home(), settings).unwrap();
    (devices, environment, db)
}

/// Both presets, with a device of so many bytes on one tier.
fn loads_with_a_small_device(settings: &Settings, tier: usize, device_bytes: u64, records: u64) {
    let (devices, environment, db) = created(settings);
    set_device(&devices, tier, device_bytes);
    let (loaded, error) = load(&db, 0, records);
    assert!(error.is_none(), "{loaded} of {records}: {error:?}");
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(db.stats().read_only, None);
    assert!(used(&devices, tier) <= device_bytes);
    assert!(used(&devices, 1 - tier) > 0);
    assert_has(&db, records);
    assert_eq!(leaks(&devices, &db), None);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.close().unwrap();
    let db = environment.open(&home()).unwrap();
    assert_has(&db, records);
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
    db.close().unwrap();
}

#[test]
fn a_load_ends_on_a_fast_device_of_less_than_its_capacity() {
    for mib in [2, 4] {
        loads_with_a_small_device(&settings(), 0, mib * MIB, 6000);
        loads_with_a_small_device(&hybrid_settings(), 0, mib * MIB, 6000);
    }
}

#[test]
fn a_load_ends_on_a_slow_device_of_less_than_its_capacity() {
    loads_with_a_small_device(&settings(), 1, 2 * MIB, 3000);
}

/// Others fill both devices, and go.
fn goes_on_once_there_is_room(settings: &Settings) {
    let (devices, environment, db) = created(settings);
    let (mut written, _) = load(&db, 0, 500);
    (0..2).for_each(|tier| set_device(&devices, tier, used(&devices, tier) + MIB / 2));
    let mut refusals = 0;
    while refusals < 3 {
        let (reached, error) = load(&db, written, 20_000);
        let error = error.expect("there is no room for that much");
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_says(&error, &["no"]);
        assert_eq!(db.stats().read_only, None, "{error}");
        (written, refusals) = (reached, refusals + 1);
    }
    assert_has(&db, written);
    (0..2).for_each(|tier| set_device(&devices, tier, 64 * MIB));
    let (reached, error) = load(&db, written, written + 1000);
    assert!(error.is_none(), "{error:?}");
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(db.stats().activity.room_shortage, None);
    assert_has(&db, reached);
    assert_eq!(leaks(&devices, &db), None);
    db.close().unwrap();
    assert_has(&environment.open(&home()).unwrap(), reached);
}

#[test]
fn writing_goes_on_without_reopening_once_full_devices_have_room() {
    goes_on_once_there_is_room(&settings());
    goes_on_once_there_is_room(&hybrid_settings());
}

#[test]
fn parallel_logs_go_to_the_next_tier_too() {
    for settings in [settings(), hybrid_settings()] {
        let parallel = Settings { log_writes: 4, durability: Durability::Sync, ..settings };
        loads_with_a_small_device(&parallel, 0, 2 * MIB, 3000);
        goes_on_once_there_is_room(&parallel);
    }
}

#[test]
fn a_device_of_less_than_its_capacity_is_told() {
    let (devices, _, db) = created(&settings());
    let told = |tier: usize| db.stats().tiers[tier].shortfall();
    assert_eq!((told(0), told(1)), (None, None));
    set_device(&devices, 0, 12 * MIB);
    assert!(told(0).unwrap().contains("12"), "{:?}", told(0));
    assert_eq!(told(1), None);
}
