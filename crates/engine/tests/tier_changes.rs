//! The list of tiers changes: every record stays, also where the change is cut off at any call of a
//! device, and a change that was refused has changed nothing.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[path = "reliability/hooked.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod hooked;

#[path = "tier_changes/copies.rs"]
mod copies;

use hooked::{Call, HookedDevices};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Environment, ErrorKind, Preset, Settings, Stepper, Tier, TierChange, WhichTier,
    Workers,
};
use thermocline_device::{
    Buffer, Devices, Driver, Error, ErrorKind as DeviceErrorKind, MemoryDevices, Operation,
};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

const HOME: &str = "/home";

type Model = BTreeMap<String, String>;

fn environment(devices: Arc<dyn Devices>) -> Environment {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    Environment { devices, workers, ..Environment::default() }
}

fn tier(path: &str, mib: u64) -> Tier {
    Tier::new(path, ByteSize::mib(mib)).driver("memory")
}

fn settings(preset: Preset, tiers: &[&str]) -> Settings {
    let tiers = tiers.iter().map(|path| tier(path, 32)).collect();
    let (memory, table_size) = (ByteSize::mib(8), ByteSize::kib(256));
    Settings { preset: Some(preset), tiers, memory, table_size, ..Settings::default() }
}

fn put(db: &Db, model: &mut Model, keys: std::ops::Range<u32>, round: u32) {
    for number in keys {
        let (key, value) = (format!("key{number:04}"), format!("{round}-{number};").repeat(30));
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
}

/// A closed database with records in tables, above them, and in the log.
fn fixture(preset: Preset, tiers: &[&str]) -> (MemoryDevices, Model) {
    let (devices, model, db) = open_fixture(preset, tiers);
    db.close().unwrap();
    (devices, model)
}

/// The same whose process was killed.
fn killed_fixture(preset: Preset, tiers: &[&str]) -> (MemoryDevices, Model) {
    let (devices, model, db) = open_fixture(preset, tiers);
    let killed = copy_of(&devices);
    db.close().unwrap();
    (killed, model)
}

fn open_fixture(preset: Preset, tiers: &[&str]) -> (MemoryDevices, Model, Db) {
    let devices = MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let db = environment.create(Path::new(HOME), &settings(preset, tiers)).unwrap();
    let mut model = Model::new();
    put(&db, &mut model, 0..400, 1);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    put(&db, &mut model, 0..90, 2);
    db.flush().unwrap();
    put(&db, &mut model, 80..120, 3);
    (devices, model, db)
}

/// The same files on other devices.
fn copy_of(devices: &MemoryDevices) -> MemoryDevices {
    let copy = MemoryDevices::new();
    for path in ["/home", "/a", "/b", "/c", "/new"] {
        mount(&copy, path, devices, path);
    }
    copy
}

/// Puts a copy of what `others` have at `from`, if anything, into `to`, in place of what is there.
fn mount(devices: &MemoryDevices, to: &str, others: &MemoryDevices, from: &str) {
    let (Some(from), to) = (others.directory(Path::new(from)), Path::new(to)) else { return };
    devices.create_directory(to).unwrap();
    let to = devices.directory(to).unwrap();
    for entry in to.list().unwrap() {
        to.delete(&entry.name).unwrap();
    }
    {
        for entry in from.list().unwrap() {
            let buffer = Buffer::zeroed(entry.len as usize);
            let file = from.open(&entry.name).unwrap();
            let buffer = from.execute(&file, Operation::Read { offset: 0, buffer }).buffer;
            let write = Operation::Write { offset: 0, buffer, durable: false };
            to.execute(&to.create(&entry.name).unwrap(), write).result.unwrap();
        }
    }
}

/// Opens the database, which has all records, takes more and verifies, with tables merged where
/// asked; gives its tiers.
fn check(devices: &MemoryDevices, model: &Model, is_merged: bool) -> Vec<PathBuf> {
    let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
    for (key, value) in model {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(value.as_bytes()), "{key}");
    }
    let mut more = model.clone();
    put(&db, &mut more, 500..520, 9);
    for key in 500..520 {
        db.delete(format!("key{key:04}")).unwrap();
    }
    db.flush().unwrap();
    if is_merged {
        db.compact_range(None, None, &mut |_| {}).unwrap();
    }
    let problems = db.verify(&mut |_| {}).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    let tiers = db.stats().tiers.iter().map(|tier| PathBuf::from(&tier.path)).collect();
    db.close().unwrap();
    tiers
}

fn is_change(call: Call) -> bool {
    !matches!(call, Call::Open | Call::List | Call::Lock | Call::Len | Call::Read)
}

/// Devices that carry out so many changes and no more.
fn ending_after(devices: &MemoryDevices, most: u64) -> Arc<dyn Devices> {
    let done = AtomicU64::new(0);
    let hook = move |call: Call, path: &Path, name: &str| {
        if is_change(call) && done.fetch_add(1, Relaxed) >= most {
            let text = format!("{call:?} of {name} in {}: cut off", path.display());
            return Err(Error::new(DeviceErrorKind::Io, text));
        }
        Ok(())
    };
    Arc::new(HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook)))
}

fn changes() -> Vec<(Preset, &'static [&'static str], TierChange, &'static [&'static str])> {
    use Preset::{Hybrid, Leveled};
    let add = |at| TierChange::Add { at, tier: tier("/new", 32) };
    let remove = |at| TierChange::Remove { tier: WhichTier::Place(at) };
    let replace =
        |at| TierChange::Replace { tier: WhichTier::Place(at), path: PathBuf::from("/new") };
    vec![
        (Leveled, &["/a"], add(Some(0)), &["/new", "/a"]),
        (Leveled, &["/a"], add(None), &["/a", "/new"]),
        (Leveled, &["/a"], replace(0), &["/new"]),
        (Leveled, &["/a", "/b"], add(Some(1)), &["/a", "/new", "/b"]),
        (Leveled, &["/a", "/b"], remove(0), &["/b"]),
        (Leveled, &["/a", "/b"], remove(1), &["/a"]),
        (Hybrid, &["/a", "/b"], add(Some(0)), &["/new", "/a", "/b"]),
        (Hybrid, &["/a", "/b"], add(None), &["/a", "/b", "/new"]),
        (Hybrid, &["/a", "/b"], replace(0), &["/new", "/b"]),
        (Hybrid, &["/a", "/b"], replace(1), &["/a", "/new"]),
        (Hybrid, &["/a", "/b", "/c"], remove(0), &["/b", "/c"]),
        (Hybrid, &["/a", "/b", "/c"], remove(1), &["/a", "/c"]),
    ]
}

fn remove(at: usize) -> TierChange {
    TierChange::Remove { tier: WhichTier::Place(at) }
}

/// Makes the change and gives the text of the refusal.
fn refusal(devices: &MemoryDevices, settings: Option<&Settings>, change: &TierChange) -> String {
    let environment = environment(Arc::new(devices.clone()));
    let changed = environment.change_tiers(Path::new(HOME), settings, change, &mut |_| {});
    changed.unwrap_err().to_string()
}

/// The database as the change leaves it when it is cut off, first before `TIER` of any tier is
/// written and then with some of them written: with `CHANGING`, and none of its tiers accepted.
fn cut_off(fixed: &MemoryDevices, change: &TierChange) -> Vec<MemoryDevices> {
    let mut found = Vec::new();
    for most in 0.. {
        let devices = copy_of(fixed);
        let ended = environment(ending_after(&devices, most)).change_tiers(
            Path::new(HOME),
            None,
            change,
            &mut |_| {},
        );
        if ended.is_ok() {
            break;
        }
        let names = devices.directory(Path::new(HOME)).unwrap().list().unwrap();
        if names.iter().any(|entry| entry.name == "CHANGING") {
            found.push(copy_of(&devices));
        }
    }
    assert!(found.len() > 2, "{change:?}");
    found
}

fn paths(of: &[&str]) -> Vec<PathBuf> {
    of.iter().map(PathBuf::from).collect()
}

#[test]
fn every_record_stays_when_a_tier_comes_goes_or_is_replaced() {
    for (preset, before, change, after) in changes() {
        let (devices, model) = fixture(preset, before);
        let environment = environment(Arc::new(devices.clone()));
        environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {}).unwrap();
        assert_eq!(check(&devices, &model, true), paths(after), "{preset:?} {change:?}");
        for path in before.iter().filter(|path| !after.contains(path)) {
            assert!(devices.directory(Path::new(path)).is_none(), "{path} holds something still");
        }
    }
}

#[test]
fn a_change_that_is_cut_off_anywhere_is_done_or_can_be_done_again() {
    for (round, (preset, before, change, after)) in (0..).zip(changes()) {
        let made = if round % 2 == 0 { fixture } else { killed_fixture };
        let (fixed, model) = made(preset, before);
        let (mut as_before, mut as_after) = (0, 0);
        // The places of all changes differ, so that each kind of place is tried.
        for most in (round % 3..).step_by(3) {
            let devices = copy_of(&fixed);
            let ended = environment(ending_after(&devices, most)).change_tiers(
                Path::new(HOME),
                None,
                &change,
                &mut |_| {},
            );
            // What the dead process held is free.
            let devices = copy_of(&devices);
            let tiers = check(&devices, &model, false);
            if tiers == paths(before) {
                assert!(ended.is_err(), "{change:?} after {most}");
                let environment = environment(Arc::new(devices.clone()));
                environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {}).unwrap();
                as_before += 1;
            } else {
                as_after += 1;
            }
            assert_eq!(check(&devices, &model, false), paths(after), "{change:?} after {most}");
            for path in before.iter().filter(|path| !after.contains(path)) {
                let left = devices.directory(Path::new(path)).map(|left| left.list().unwrap());
                let left: Vec<_> = left.iter().flatten().map(|entry| &entry.name).collect();
                assert!(left.iter().all(|name| *name == "LOCK"), "{change:?} {most}: {left:?}");
            }
            if ended.is_ok() {
                break;
            }
        }
        assert!(as_before > 1 && as_after > 1, "{change:?}: {as_before} and {as_after} places");
    }
}

#[test]
fn a_store_of_one_tier_gains_a_fast_one_and_becomes_hybrid() {
    let (devices, model) = fixture(Preset::Leveled, &["/a"]);
    let environment = environment(Arc::new(devices.clone()));
    let change = TierChange::Add { at: Some(0), tier: tier("/new", 32) };
    environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {}).unwrap();
    let hybrid = Settings { tiers: Vec::new(), ..settings(Preset::Hybrid, &[]) };
    let db = environment.open_with(Path::new(HOME), &hybrid).unwrap();
    let mut model = model;
    put(&db, &mut model, 0..300, 5);
    db.flush().unwrap();
    assert!(db.stats().fast_tier.unwrap().records > 0);
    db.close().unwrap();
    assert_eq!(check(&devices, &model, true), paths(&["/new", "/a"]));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let remove = |tier| TierChange::Remove { tier };
    let small = Tier::new("/new", ByteSize::kib(4)).driver("memory");
    let refused = [
        (remove(WhichTier::Place(0)), ErrorKind::Invalid, "hybrid"),
        (remove(WhichTier::Place(5)), ErrorKind::Invalid, "no place"),
        (remove(WhichTier::Path("/c".into())), ErrorKind::Invalid, "no tier lies in /c"),
        (TierChange::Add { at: None, tier: small }, ErrorKind::Invalid, "capacity of tier 2"),
        (TierChange::Add { at: Some(3), tier: tier("/new", 1) }, ErrorKind::Invalid, "no place 3"),
        (TierChange::Add { at: None, tier: tier("/a", 1) }, ErrorKind::Invalid, "twice"),
        (
            TierChange::Replace { tier: WhichTier::Place(0), path: "/b".into() },
            ErrorKind::Invalid,
            "twice",
        ),
        (
            TierChange::Replace { tier: WhichTier::Place(2), path: "/new".into() },
            ErrorKind::Invalid,
            "no place",
        ),
    ];
    let (devices, model) = fixture(Preset::Hybrid, &["/a", "/b"]);
    for (change, kind, part) in refused {
        let environment = environment(Arc::new(devices.clone()));
        let error =
            environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), kind, "{change:?}: {error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(check(&devices, &model, true), paths(&["/a", "/b"]));
    }
}

#[test]
fn a_tier_whose_files_have_no_room_elsewhere_stays() {
    let devices = MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let tiers = vec![tier("/a", 64), tier("/b", 1)];
    let settings = Settings { tiers, ..settings(Preset::Leveled, &[]) };
    let db = environment.create(Path::new(HOME), &settings).unwrap();
    let mut model = Model::new();
    put(&db, &mut model, 0..20_000, 1);
    db.close().unwrap();
    let error =
        environment.change_tiers(Path::new(HOME), None, &remove(0), &mut |_| {}).unwrap_err();
    assert!(error.kind() == ErrorKind::OutOfSpace, "{error}");
    assert!(error.to_string().contains("no room"), "{error}");
    assert_eq!(check(&devices, &model, true), paths(&["/a", "/b"]));
}

#[test]
fn a_change_that_could_not_be_ended_for_want_of_room_is_not_begun() {
    for full in ["/a", HOME] {
        let (devices, model) = fixture(Preset::Leveled, &["/a", "/b"]);
        let driver = devices.directory(Path::new(full)).unwrap();
        let space = driver.space().unwrap();
        let used_bytes = space.total_bytes - space.free_bytes;
        driver.set_capacity_bytes(used_bytes + (20 << 10));
        let add = TierChange::Add { at: Some(1), tier: tier("/new", 32) };
        for change in [add, TierChange::Replace { tier: WhichTier::Place(1), path: "/new".into() }]
        {
            let text = refusal(&devices, None, &change);
            assert!(text.contains(full) && text.contains("free some first"), "{text}");
            assert!(devices.directory(Path::new("/new")).is_none());
        }
        driver.set_capacity_bytes(1 << 40);
        assert_eq!(check(&devices, &model, true), paths(&["/a", "/b"]));
    }
}

#[test]
fn a_change_that_an_opening_has_ended_is_not_taken_for_another_one() {
    let (fixed, model) = fixture(Preset::Leveled, &["/a", "/b", "/c"]);
    for devices in cut_off(&fixed, &remove(1)) {
        // The user asks for the same again.
        let text = refusal(&devices, None, &remove(1));
        assert!(text.contains("is done now") && text.contains("/a, /c"), "{text}");
        assert_eq!(check(&devices, &model, false), paths(&["/a", "/c"]));
        // By its path it cannot be another one in any case.
        let by_path = TierChange::Remove { tier: WhichTier::Path("/b".into()) };
        let text = refusal(&devices, None, &by_path);
        assert!(text.contains("no tier lies in /b: they are /a, /c"), "{text}");
    }
    let by_path = TierChange::Remove { tier: WhichTier::Path("/b".into()) };
    let environment = environment(Arc::new(fixed.clone()));
    let tiers = environment.change_tiers(Path::new(HOME), None, &by_path, &mut |_| {}).unwrap();
    assert_eq!(
        tiers.iter().map(|tier| tier.path.clone()).collect::<Vec<_>>(),
        paths(&["/a", "/c"])
    );
    assert_eq!(check(&fixed, &model, false), paths(&["/a", "/c"]));
}

#[test]
fn a_wrong_disk_is_refused_while_a_change_is_to_be_ended_and_the_right_one_opens_afterwards() {
    // What was on the disks before, which are clones then.
    let (older, mut model) = fixture(Preset::Leveled, &["/a", "/b", "/c"]);
    let fixed = copy_of(&older);
    let db = environment(Arc::new(fixed.clone())).open(Path::new(HOME)).unwrap();
    put(&db, &mut model, 30..60, 4);
    db.flush().unwrap();
    put(&db, &mut model, 50..70, 5);
    db.close().unwrap();
    let (foreign, _) = fixture(Preset::Leveled, &["/a", "/b", "/c"]);
    let replace =
        |at| TierChange::Replace { tier: WhichTier::Place(at), path: PathBuf::from("/new") };
    let add = TierChange::Add { at: Some(1), tier: tier("/new", 32) };
    let wrong = [
        ("/a", "/b", &fixed),
        ("/b", "/c", &fixed),
        ("/c", "/c", &older),
        ("/b", "/b", &older),
        ("/a", "/a", &older),
        ("/a", "/a", &foreign),
    ];
    let changes =
        [(add, ""), (replace(0), "/a"), (remove(0), "/a"), (remove(1), "/b"), (replace(1), "/b")];
    for (change, gone) in changes {
        for devices in cut_off(&fixed, &change).into_iter().step_by(2) {
            let right = copy_of(&devices);
            for (to, from, others) in wrong {
                // Nothing is read any more of what goes, but for the file map.
                if to == gone && to != "/a" {
                    continue;
                }
                mount(&devices, to, others, from);
                let opened = environment(Arc::new(devices.clone())).open(Path::new(HOME));
                let Err(error) = opened else {
                    // The change was done but for its end.
                    assert_eq!(to, gone, "{change:?}: {to} accepted");
                    break;
                };
                assert_eq!(error.kind(), ErrorKind::Tier, "{change:?} {to}: {error}");
                mount(&devices, to, &right, to);
            }
            let after = check(&devices, &model, false);
            assert!(after.len() >= 2, "{after:?}");
        }
    }
}

/// The files of a directory, but for its lock.
fn files_of(devices: &MemoryDevices, path: &str) -> Vec<String> {
    let entries = devices.directory(Path::new(path)).map(|driver| driver.list().unwrap());
    entries.into_iter().flatten().map(|entry| entry.name).filter(|name| name != "LOCK").collect()
}

#[test]
fn what_is_left_stays_until_the_tier_that_has_its_files_is_there() {
    let (foreign, _) = fixture(Preset::Leveled, &["/a", "/b"]);
    for (at, gone) in [(0, "/a"), (1, "/b")] {
        let (fixed, model) = fixture(Preset::Leveled, &["/a", "/b"]);
        let replace =
            TierChange::Replace { tier: WhichTier::Place(at), path: PathBuf::from("/new") };
        let mut kept = 0;
        for devices in cut_off(&fixed, &replace) {
            let (right, before) = (copy_of(&devices), files_of(&devices, gone));
            let open = || environment(Arc::new(devices.clone())).open(Path::new(HOME));
            devices.unmount(Path::new("/new")).unwrap();
            assert_eq!(open().unwrap_err().kind(), ErrorKind::Tier);
            devices.create_directory(Path::new("/new")).unwrap();
            assert_eq!(open().unwrap_err().kind(), ErrorKind::Tier);
            mount(&devices, "/new", &foreign, gone);
            assert_eq!(open().unwrap_err().kind(), ErrorKind::Tier);
            assert_eq!(files_of(&devices, gone), before);
            kept += u32::from(!before.is_empty());
            mount(&devices, "/new", &right, "/new");
            let after = check(&devices, &model, false);
            assert!(after.contains(&PathBuf::from("/new")), "{after:?}");
            assert!(files_of(&devices, gone).is_empty());
        }
        assert!(kept > 2, "{kept}");
    }
}

#[test]
fn only_what_the_database_has_put_there_is_deleted_in_a_directory_that_goes() {
    let (devices, model) = fixture(Preset::Leveled, &["/a", "/b"]);
    let driver = devices.directory(Path::new("/b")).unwrap();
    for name in ["store.region", "notes.txt", "00000001.map.old"] {
        driver.create(name).unwrap();
    }
    environment(Arc::new(devices.clone()))
        .change_tiers(Path::new(HOME), None, &remove(1), &mut |_| {})
        .unwrap();
    let left: Vec<_> = driver.list().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, ["00000001.map.old", "notes.txt", "store.region"]);
    assert_eq!(check(&devices, &model, true), paths(&["/a"]));
}

#[test]
fn a_preset_that_is_given_does_not_hide_the_one_that_is_kept() {
    let (devices, model) = fixture(Preset::Hybrid, &["/a", "/b"]);
    let leveled = settings(Preset::Leveled, &[]);
    let text = refusal(&devices, Some(&leveled), &remove(1));
    assert!(text.contains("hybrid"), "{text}");
    assert_eq!(check(&devices, &model, true), paths(&["/a", "/b"]));
}

#[test]
fn what_remains_opens_and_takes_writes_however_little_room_a_removal_leaves() {
    let fixed = MemoryDevices::new();
    let named = |kib: u64| {
        let fast = Tier::new("/a", ByteSize::kib(kib)).driver("memory");
        let preset = settings(Preset::Leveled, &[]);
        Settings { tiers: vec![fast, tier("/b", 32)], table_size: ByteSize::kib(64), ..preset }
    };
    let db = environment(Arc::new(fixed.clone())).create(Path::new(HOME), &named(1024)).unwrap();
    let mut model = Model::new();
    for number in 1000..9000_u64 {
        let word = |part: u64| (number * 16 + part).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let key = format!("key{number:04}");
        let value: String = (0..12).map(|part| format!("{:x}", word(part))).collect();
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.close().unwrap();
    let (mut refused, mut done) = (0, 0);
    for kib in (1024..4096).step_by(96) {
        let devices = copy_of(&fixed);
        let environment = environment(Arc::new(devices.clone()));
        environment.open_with(Path::new(HOME), &named(kib)).unwrap().close().unwrap();
        match environment.change_tiers(Path::new(HOME), None, &remove(1), &mut |_| {}) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                assert_eq!(check(&devices, &model, false), paths(&["/a", "/b"]));
                refused += 1;
            }
            Ok(_) => {
                let tiers: Vec<_> = (0..2).map(|_| check(&devices, &model, false)).collect();
                assert_eq!(tiers, [paths(&["/a"]), paths(&["/a"])], "{kib} KiB");
                done += 1;
            }
        }
    }
    assert!(refused > 2 && done > 2, "{refused} refused, {done} done");
}
