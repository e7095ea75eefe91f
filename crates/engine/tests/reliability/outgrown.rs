//! Tables that outgrow their tier in the midst of a key, all of whose versions go to one table:
//! what they have moves to a tier with room, by its capacity and on its device, and calls that fail
//! in the midst of that leave nothing behind.

use crate::faults::{Hasty, Plan};
use crate::hooked::{Call, HookedDevices};
use crate::small_devices::{set_device, used};
use crate::support::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use thermocline::{
    ByteSize, Compression, Db, Environment, Preset, Settings, Snapshot, Stepper, Workers,
};
use thermocline_device::{ErrorKind as DeviceErrorKind, MemoryDevices};
use thermocline_foundation::random::Random;

const VALUE_BYTES: usize = 64 << 10;

/// Nothing that compression makes small.
fn value(version: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    Random::new(version).fill(&mut value);
    value
}

/// So many versions of a key in tables. A snapshot behind each of them keeps it.
fn with_versions(db: &Db, count: u64) -> Vec<Snapshot> {
    let put = |version| {
        db.put("key", value(version)).unwrap();
        db.snapshot()
    };
    let snapshots = (0..count).map(put).collect();
    db.flush().unwrap();
    snapshots
}

fn assert_has(snapshots: &[Snapshot], what: &str) {
    for (version, snapshot) in (0..).zip(snapshots) {
        let found = snapshot.get("key").unwrap();
        assert!(found.as_deref() == Some(&value(version)), "{what}: version {version}");
    }
}

fn tables(db: &Db) -> usize {
    db.stats().levels.iter().map(|level| level.tables).sum()
}

/// A fast tier that has room for some versions.
fn small(settings: Settings) -> Settings {
    let mut settings = settings;
    settings.tiers[0].capacity = ByteSize::mib(4);
    settings
}

/// Devices that count tables which are deleted and were never synced: without failures, those that
/// have moved.
fn noting(devices: &MemoryDevices) -> (HookedDevices, Arc<AtomicU64>) {
    let moved = Arc::new(AtomicU64::new(0));
    let (counted, unsynced) = (Arc::clone(&moved), Mutex::new(BTreeSet::new()));
    let hook = move |call: Call, _: &Path, name: &str| {
        let mut unsynced = unsynced.lock().unwrap();
        match call {
            Call::Create if name.ends_with(".table") => _ = unsynced.insert(name.to_owned()),
            Call::Sync => _ = unsynced.remove(name),
            Call::Delete if unsynced.remove(name) => _ = counted.fetch_add(1, Relaxed),
            _ => {}
        }
        Ok(())
    };
    (HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook)), moved)
}

/// Every run of a test does the same.
fn stepped(devices: HookedDevices) -> Environment {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    Environment { workers, ..environment(devices) }
}

/// Merges so many versions on a fast device of `device_mib`.
fn versions_go_to_the_slow_tier(settings: &Settings, device_mib: u64, count: u64) -> Db {
    let devices = MemoryDevices::new();
    let (noting, moved) = noting(&devices);
    let environment = stepped(noting);
    let db = environment.create(&home(), settings).unwrap();
    set_device(&devices, 0, device_mib << 20);
    let snapshots = with_versions(&db, count);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let has_slots = settings.preset == Some(Preset::Hybrid);
    assert!(has_slots || moved.load(Relaxed) > 0, "no table has moved");
    let (tables, slow_bytes) = (tables(&db), used(&devices, 1));
    let least_bytes = count * VALUE_BYTES as u64;
    assert!(tables == 1 && slow_bytes >= least_bytes, "{tables} tables, {slow_bytes} bytes");
    let most_bytes = settings.tiers[0].capacity.0.min(device_mib << 20) + (16 << 10);
    assert!(used(&devices, 0) <= most_bytes);
    assert_has(&snapshots, "after the merge");
    assert_eq!(leaks(&devices, &db), None);
    drop(snapshots);
    db.close().unwrap();
    let db = environment.open(&home()).unwrap();
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    db
}

#[test]
fn a_key_whose_versions_outgrow_the_fast_tier_goes_to_the_slow_one() {
    for settings in [settings(), hybrid_settings()] {
        versions_go_to_the_slow_tier(&small(settings), 1 << 10, 48);
    }
}

#[test]
fn a_key_whose_versions_outgrow_the_fast_device_goes_to_the_slow_one() {
    let mut settings = Settings { table_size: ByteSize::mib(4), ..settings() };
    settings.tiers[0].capacity = ByteSize::mib(32);
    versions_go_to_the_slow_tier(&settings, 12, 300);
}

/// Records before the key, which one dictionary is worth, go along.
#[test]
fn a_table_that_moves_has_a_dictionary_again() {
    let settings = Settings {
        memory: ByteSize::mib(64),
        table_size: ByteSize::mib(1),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::Zstd],
        dictionary_size: ByteSize(1024),
        ..small(settings())
    };
    let devices = MemoryDevices::new();
    let (noting, moved) = noting(&devices);
    let db = stepped(noting).create(&home(), &settings).unwrap();
    let record = |number: u32| {
        let hash = number.wrapping_mul(2_654_435_761);
        (format!("before {number:05}"), format!("depth {} salt {hash:08x}", hash % 97))
    };
    (0..4000).map(record).for_each(|(key, value)| db.put(key, value).unwrap());
    let snapshots = with_versions(&db, 64);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert!(moved.load(Relaxed) > 0, "no table has moved");
    assert_has(&snapshots, "after the merge");
    for (key, value) in (0..4000).map(record) {
        assert_eq!(db.get(key).unwrap().unwrap(), value);
    }
    let levels = db.stats().levels;
    let with: u64 = levels.iter().map(|level| level.dictionaries).sum();
    assert!(with as usize == tables(&db), "{levels:?}");
    assert_eq!(leaks(&devices, &db), None);
}

/// A merge whose table moves, with a call that fails in it; says how many calls there were.
fn merge_with_fault(at: u64, kind: DeviceErrorKind) -> u64 {
    let what = format!("{kind:?} at call {at}");
    let (memory, plan) = (MemoryDevices::new(), Plan::new(u64::MAX, 1, kind));
    let (noting, moved) = noting(&memory);
    let open = Environment {
        clock: Arc::new(Hasty::default()),
        ..stepped(HookedDevices::new(Arc::new(noting), plan.hook()))
    };
    let db = open.create(&home(), &small(settings())).unwrap();
    let snapshots = with_versions(&db, 48);
    let (before, tables_before) = (plan.strike_after(at), tables(&db));
    let merged = db.compact_range(None, None, &mut |_| {});
    let calls = plan.calls() - before;
    plan.end();
    assert!(merged.is_ok() || plan.has_struck(), "{what}: {merged:?}");
    assert!(tables_before > 1, "there is nothing to merge");
    assert!(plan.has_struck() || moved.load(Relaxed) > 0, "no table has moved");
    assert_has(&snapshots, &what);
    if kind == DeviceErrorKind::Io {
        // What could not be deleted stays until the next opening.
        assert!(merged.is_ok() || db.stats().read_only.is_some(), "{what}: {merged:?}");
    } else {
        assert_eq!(db.stats().read_only, None, "{what}");
        assert_eq!(leaks(&memory, &db), None, "{what}");
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert!(tables(&db) == 1 && used(&memory, 1) > 3 << 20, "{what}");
        assert_has(&snapshots, &what);
    }
    drop(snapshots);
    drop(db);
    let db = open.open(&home()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(db.get("key").unwrap().unwrap() == value(47), "{what}");
    assert_eq!(leaks(&memory, &db), None, "{what}");
    assert!(db.verify(&mut |_| {}).unwrap().is_ok(), "{what}");
    calls
}

#[test]
fn a_call_that_fails_while_a_table_moves_leaves_nothing_behind() {
    for kind in
        [DeviceErrorKind::Io, DeviceErrorKind::OutOfSpace, DeviceErrorKind::TooManyOpenFiles]
    {
        let calls = merge_with_fault(u64::MAX, kind);
        (0..calls).for_each(|at| _ = merge_with_fault(at, kind));
    }
}
