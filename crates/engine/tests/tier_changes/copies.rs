//! Copies of a cache are in the way of no change of the tiers, and cost it nothing.

use super::{
    Call, HOME, HookedDevices, Model, check, copy_of, ending_after, environment, files_of, paths,
    remove, tier,
};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    Admission, ByteSize, Compression, ErrorKind, FastCacheSettings, PlacementChoice, Preset,
    Settings, Tier, TierChange, WhichTier,
};
use thermocline_device::{Devices, Driver, MemoryDevices};
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::Mutex;

/// The fast tier of the fixture, in KiB.
const FAST_KIB: u64 = 8 << 10;

fn settings(fast_kib: u64) -> Settings {
    let fast = Tier::new("/a", ByteSize::kib(fast_kib)).driver("memory");
    Settings {
        preset: Some(Preset::Leveled),
        placement: PlacementChoice::LogOnly,
        tiers: vec![fast, tier("/b", 32)],
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(256),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::None],
        fast_cache: FastCacheSettings {
            capacity: ByteSize::mib(2).into(),
            admission: Admission::Always,
            file_size: ByteSize::kib(64),
            batch: ByteSize::kib(16),
            ..FastCacheSettings::default()
        },
        ..Settings::default()
    }
}

/// A closed database with tables on /b, and copies of most of their blocks on /a.
fn fixture() -> (MemoryDevices, Model) {
    let devices = MemoryDevices::new();
    let db = environment(Arc::new(devices.clone()));
    let db = db.create(Path::new(HOME), &settings(FAST_KIB)).unwrap();
    let mut model = Model::new();
    for number in 0..2400_u64 {
        let words = (0..60).map(|word| format!("{:016x}", mix(number << 16 | word)));
        let (key, value) = (format!("key{number:06}"), words.collect::<String>());
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    for (key, value) in &model {
        assert_eq!(db.get(key).unwrap().unwrap(), value.as_bytes());
        db.settle().unwrap();
    }
    db.close().unwrap();
    assert!(copies_bytes(&devices, "/a") > 1 << 20, "{} bytes", copies_bytes(&devices, "/a"));
    (devices, model)
}

fn copies(devices: &MemoryDevices, path: &str) -> Vec<String> {
    files_of(devices, path).into_iter().filter(|name| name.ends_with(".cache")).collect()
}

fn copies_bytes(devices: &MemoryDevices, path: &str) -> u64 {
    let Some(driver) = devices.directory(Path::new(path)) else { return 0 };
    let entries = driver.list().unwrap().into_iter();
    entries.filter(|entry| entry.name.ends_with(".cache")).map(|entry| entry.len).sum()
}

/// The same without the copies.
fn without_copies(devices: &MemoryDevices) -> MemoryDevices {
    let without = copy_of(devices);
    let driver = without.directory(Path::new("/a")).unwrap();
    copies(&without, "/a").iter().for_each(|name| driver.delete(name).unwrap());
    without
}

/// What the device of /a has.
fn used_bytes(devices: &MemoryDevices) -> u64 {
    let space = devices.directory(Path::new("/a")).unwrap().space().unwrap();
    space.total_bytes - space.free_bytes
}

/// Leaves the device of /a so many bytes at most.
fn bound(devices: &MemoryDevices, bytes: u64) {
    devices.directory(Path::new("/a")).unwrap().set_capacity_bytes(bytes);
}

/// Gives the tier at /a so many KiB.
fn reopen(devices: &MemoryDevices, fast_kib: u64) {
    let environment = environment(Arc::new(devices.clone()));
    environment.open_with(Path::new(HOME), &settings(fast_kib)).unwrap().close().unwrap();
}

fn change(devices: Arc<dyn Devices>, change: &TierChange) -> thermocline::Result<()> {
    environment(devices).change_tiers(Path::new(HOME), None, change, &mut |_| {}).map(drop)
}

/// What became of removals.
#[derive(Debug, Default)]
struct Outcomes {
    refused: u32,
    beside_copies: u32,
    instead_of_copies: u32,
}

impl Outcomes {
    /// Removes /b, which ends as it does where there are no copies.
    fn try_removal(&mut self, devices: &MemoryDevices, device_bytes: u64, model: &Model) {
        let (without, before) = (without_copies(devices), copies(devices, "/a"));
        bound(devices, device_bytes);
        bound(&without, device_bytes);
        let expected = change(Arc::new(without), &remove(1));
        let removed = change(Arc::new(devices.clone()), &remove(1));
        let left = copies(devices, "/a");
        match (expected, removed) {
            (Ok(()), Ok(())) => match (before.is_empty(), left.is_empty()) {
                (true, _) => {}
                (false, true) => self.instead_of_copies += 1,
                (false, false) => self.beside_copies += 1,
            },
            (Err(_), Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                assert_eq!(left, before, "a refusal costs copies");
                self.refused += 1;
            }
            (expected, removed) => panic!("{expected:?} without copies, {removed:?} with them"),
        }
        let stays = !files_of(devices, "/b").is_empty();
        bound(devices, 1 << 40);
        let tiers = check(devices, model, false);
        assert_eq!(tiers, paths(if stays { &["/a", "/b"] } else { &["/a"] }));
    }

    fn require_each(&self) {
        let all = [self.refused, self.beside_copies, self.instead_of_copies];
        assert!(all.iter().all(|count| *count > 0), "{self:?}");
    }
}

#[test]
fn a_tier_goes_where_its_files_have_room_in_place_of_copies() {
    let (fixed, model) = fixture();
    let mut outcomes = Outcomes::default();
    for kib in (2 << 10..12 << 10).step_by(256) {
        let devices = copy_of(&fixed);
        reopen(&devices, kib);
        outcomes.try_removal(&devices, 1 << 40, &model);
    }
    outcomes.require_each();
}

#[test]
fn a_tier_goes_where_a_device_has_room_in_place_of_copies() {
    let (fixed, model) = fixture();
    reopen(&fixed, 64 << 10);
    let used_bytes = used_bytes(&fixed);
    let mut outcomes = Outcomes::default();
    for kib in (64..8 << 10).step_by(256) {
        outcomes.try_removal(&copy_of(&fixed), used_bytes + (kib << 10), &model);
    }
    outcomes.require_each();
}

/// A database whose copies have to go for a removal of /b.
fn with_copies_in_the_way() -> (MemoryDevices, Model) {
    let (devices, model) = fixture();
    for kib in (2 << 10..12 << 10).step_by(64) {
        let tried = copy_of(&devices);
        reopen(&tried, kib);
        let (found, has_copies) = (copy_of(&tried), !copies(&tried, "/a").is_empty());
        if has_copies && change(Arc::new(tried), &remove(1)).is_ok() {
            return (found, model);
        }
    }
    panic!("/b is never removed");
}

#[test]
fn a_removal_that_copies_make_room_for_may_be_cut_off_anywhere() {
    let (fixed, model) = with_copies_in_the_way();
    let mut seen = BTreeSet::new();
    for most in (0..).step_by(3) {
        let devices = copy_of(&fixed);
        let ended = change(ending_after(&devices, most), &remove(1));
        let devices = copy_of(&devices);
        seen.insert(copies(&devices, "/a").len());
        if check(&devices, &model, false) == paths(&["/a", "/b"]) {
            assert!(ended.is_err(), "after {most}");
            change(Arc::new(devices.clone()), &remove(1)).unwrap();
        }
        assert_eq!(check(&devices, &model, false), paths(&["/a"]), "after {most}");
        if ended.is_ok() {
            break;
        }
    }
    let all = copies(&fixed, "/a").len();
    assert!(seen.contains(&0) && seen.contains(&all) && seen.len() > 3, "{seen:?} of {all}");
}

#[test]
fn copies_on_a_tier_that_goes_are_dropped() {
    let replace = TierChange::Replace { tier: WhichTier::Place(0), path: PathBuf::from("/new") };
    for (made, after) in [(remove(0), vec!["/b"]), (replace, vec!["/new", "/b"])] {
        let (devices, model) = fixture();
        change(Arc::new(devices.clone()), &made).unwrap();
        assert!(devices.directory(Path::new("/a")).is_none(), "/a holds something still");
        for path in &after {
            assert!(copies(&devices, path).is_empty(), "copies moved to {path}");
        }
        assert_eq!(check(&devices, &model, true), paths(&after));
    }
}

/// Devices that refuse to begin a change of the tiers while a power cut may bring copies back on
/// /a.
fn with_durable_deletions(devices: &MemoryDevices) -> Arc<dyn Devices> {
    let deleted = Mutex::new(0_u32);
    let hook = move |call: Call, path: &Path, name: &str| {
        let is_there = path == Path::new("/a");
        match call {
            Call::Delete if is_there && name.ends_with(".cache") => *deleted.lock() += 1,
            Call::SyncDirectory if is_there => *deleted.lock() = 0,
            Call::Create if name.starts_with("CHANGING") => {
                assert_eq!(*deleted.lock(), 0, "copies may come back");
            }
            _ => {}
        }
        Ok(())
    };
    Arc::new(HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook)))
}

#[test]
fn copies_make_room_for_the_end_of_a_change_durably() {
    let (devices, model) = fixture();
    bound(&devices, used_bytes(&devices) + (20 << 10));
    let add = TierChange::Add { at: Some(1), tier: tier("/new", 32) };
    change(with_durable_deletions(&devices), &add).unwrap();
    assert!(copies(&devices, "/a").is_empty());
    bound(&devices, 1 << 40);
    assert_eq!(check(&devices, &model, true), paths(&["/a", "/new", "/b"]));
}
