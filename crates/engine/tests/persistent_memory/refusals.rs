//! Regions that are not the right one, and may not be believed: each is refused with its file and
//! the way out, and the right one opens afterwards.

use crate::hooked::HookedDevices;
use crate::presets::changes;
use crate::regions::{PERSISTENT, ShadowRegions};
use crate::support::{FAST, HOME, Machine, REGION, contents_of, copy_of, settings, stepped};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use thermocline::{
    ByteSize, Environment, ErrorKind, PersistentMemory, Preset, Settings, Tier, TierChange,
    WhichTier,
};
use thermocline_device::{Devices, Error, ErrorKind as DeviceErrorKind, MemoryDevices};
use thermocline_pmem::{Circumstances, Medium, RegionIdentity};

/// Refused, with each of `parts` in its text; nothing has changed by then.
fn assert_refused(machine: &Machine, kind: ErrorKind, parts: &[&str]) {
    let before = contents_of(&machine.devices);
    let error = machine.open().unwrap_err();
    assert!(contents_of(&machine.devices) == before, "{error}, and the directories have changed");
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    for part in [REGION].iter().chain(parts) {
        assert!(text.contains(part), "{text} lacks {part}");
    }
}

#[test]
fn a_region_that_is_not_the_right_one_is_refused_with_the_way_out() {
    let machine = Machine::new();
    let db = machine.create();
    db.put("key", "value").unwrap();
    let older = machine.regions.stored(REGION);
    let machine = machine.killed(db);
    machine.open().unwrap().close().unwrap();
    let right = machine.regions.stored(REGION);
    let with = |image: &[u64]| Machine::of(copy_of(&machine.devices), image);

    let missing = Arc::new(ShadowRegions::new(PERSISTENT));
    let missing = Machine { devices: copy_of(&machine.devices), regions: missing };
    assert_refused(&missing, ErrorKind::Tier, &["missing", "mount it"]);

    let other = Machine::new();
    other.create().close().unwrap();
    let foreign = with(&other.regions.stored(REGION));
    assert_refused(&foreign, ErrorKind::Tier, &["belongs to database", "name the right one"]);

    assert_refused(&with(&older), ErrorKind::Tier, &["generation", "restore"]);

    let short = with(&right[..right.len() / 2]);
    assert_refused(&short, ErrorKind::Corrupt, &["bytes", "restore it"]);
    assert_refused(&with(&[0; 512]), ErrorKind::Corrupt, &["too short"]);
    assert_refused(&with(&[0; 4096]), ErrorKind::Corrupt, &["is this the region's file?"]);

    let db = with(&right).open().unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A copy of the directories has the identity of the original and names the same region, which is
/// one generation ahead of it: the original was killed in its first life since.
#[test]
fn a_copy_of_the_directories_is_refused_as_often_as_it_is_opened_and_the_original_goes_on() {
    for settings in [settings(), crate::indexed::indexed()] {
        let machine = Machine::new();
        machine.environment().create(Path::new(HOME), &settings).unwrap().close().unwrap();
        let devices = copy_of(&machine.devices);
        let db = machine.open().unwrap();
        db.put("key", "value").unwrap();
        let machine = machine.killed(db);
        let image = machine.regions.stored(REGION);
        let copy = Machine { devices, regions: Arc::clone(&machine.regions) };
        for _ in 0..3 {
            let error = copy.open().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            let text = error.to_string();
            assert!(text.contains(REGION) && text.contains("a copy of the database"), "{text}");
        }
        assert!(machine.regions.stored(REGION) == image, "the region has changed");
        let db = machine.open().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    }
}

/// A copy from before the database had its region, which has the same identity, makes none in its
/// place.
#[test]
fn a_copy_from_before_the_region_does_not_take_its_place() {
    let machine = Machine::new();
    let with_log = Settings { persistent_memory: None, ..settings() };
    machine.environment().create(Path::new(HOME), &with_log).unwrap().close().unwrap();
    let devices = copy_of(&machine.devices);
    let with_region = Settings { tiers: vec![], ..settings() };
    let db = machine.environment().open_with(Path::new(HOME), &with_region).unwrap();
    db.put("key", "value").unwrap();
    let machine = machine.killed(db);
    let image = machine.regions.stored(REGION);
    let copy = Machine { devices, regions: Arc::clone(&machine.regions) };
    let error = copy.environment().open_with(Path::new(HOME), &with_region).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(REGION) && text.contains("with memtables"), "{text}");
    assert!(machine.regions.stored(REGION) == image, "the region has changed");
    let db = machine.open().unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A crash left the region a generation ahead of `DATABASE`, and what it had then is a region of
/// long ago after the next opening.
#[test]
fn a_region_of_an_opening_that_was_cut_off_is_older_than_what_the_next_one_makes() {
    let machine = Machine::new();
    machine.create().close().unwrap();
    let medium = Medium::shadowed(&machine.regions.stored(REGION));
    let closed = RegionIdentity::read(&medium).unwrap();
    let generation = closed.generation + 1;
    RegionIdentity { generation, is_clean: false, ..closed }.write(&medium);
    let ahead = medium.snapshot();
    let cut_off = Machine::of(copy_of(&machine.devices), &ahead);
    let db = cut_off.open().unwrap();
    db.put("key", "value").unwrap();
    let machine = cut_off.killed(db);
    let older = Machine::of(copy_of(&machine.devices), &ahead);
    assert_refused(&older, ErrorKind::Tier, &["generation", "restore"]);
    let db = machine.open().unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_region_on_other_media_is_not_believed_after_another_boot_unless_it_was_closed() {
    let boot = |boot| Circumstances { is_synchronous: false, boot: [boot; 16], ..PERSISTENT };
    let regions = Arc::new(ShadowRegions::new(boot(1)));
    let machine = Machine { regions, ..Machine::new() };
    let error = machine.environment().create(Path::new(HOME), &settings()).unwrap_err();
    assert!(error.to_string().contains("MAP_SYNC was refused"), "{error}");
    let region = settings().persistent_memory.map(|region| region.driver("emulated-0ns"));
    let emulated = Settings { persistent_memory: region, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &emulated).unwrap();
    db.put("key", "value").unwrap();
    std::mem::forget(db);
    let image = machine.regions.stored(REGION);
    let after = |image: &[u64], now| Machine {
        devices: copy_of(&machine.devices),
        regions: Arc::new(ShadowRegions::with(REGION, image, now)),
    };
    let other_boot = after(&image, boot(2));
    let parts = ["on no persistent memory", "restore a checkpoint"];
    assert_refused(&other_boot, ErrorKind::Tier, &parts);
    let same_boot = after(&image, boot(1));
    same_boot.open().unwrap().close().unwrap();
    let closed = Machine {
        devices: copy_of(&same_boot.devices),
        regions: Arc::new(ShadowRegions::with(REGION, &same_boot.regions.stored(REGION), boot(2))),
    };
    let db = closed.open().unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn settings_that_do_not_fit_the_region_are_refused() {
    let machine = Machine::new();
    machine.create().close().unwrap();
    let open = |region: PersistentMemory| {
        let persistent_memory = Some(region);
        let settings = Settings { tiers: Vec::new(), persistent_memory, ..settings() };
        machine.environment().open_with(Path::new(HOME), &settings)
    };
    let error = open(PersistentMemory::new(REGION, ByteSize::mib(32))).unwrap_err();
    assert!(error.to_string().contains("does not change"), "{error}");
    let hybrid = Settings { preset: Some(Preset::Hybrid), ..Settings::default() };
    let before = contents_of(&machine.devices);
    let error = machine.environment().open_with(Path::new(HOME), &hybrid).unwrap_err();
    assert!(error.to_string().contains("presets leveled and indexed"), "{error}");
    assert!(contents_of(&machine.devices) == before, "the directories have changed");
    let elsewhere = PersistentMemory::new("/elsewhere", ByteSize::mib(16));
    let error = open(elsewhere.clone()).unwrap_err();
    assert!(error.to_string().contains("/elsewhere: missing"), "{error}");
    // Moved there, it is found, and is there from then on.
    let image = machine.regions.stored(REGION);
    let regions = Arc::new(ShadowRegions::with("/elsewhere", &image, PERSISTENT));
    let machine = Machine { devices: copy_of(&machine.devices), regions };
    let settings = Settings { tiers: Vec::new(), persistent_memory: Some(elsewhere), ..settings() };
    let open = || machine.environment().open_with(Path::new(HOME), &settings);
    open().unwrap().close().unwrap();
    machine.open().unwrap().close().unwrap();
    assert!(machine.database_file().contains("/elsewhere"));
}

#[test]
fn an_index_without_a_region_is_refused_before_anything_changes() {
    let machine = Machine::new();
    let plain = Settings { persistent_memory: None, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &plain).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let before = contents_of(&machine.devices);
    let indexed = Settings { preset: Some(Preset::Indexed), tiers: Vec::new(), ..settings() };
    let unnamed = Settings { persistent_memory: None, ..indexed.clone() };
    let error = machine.environment().open_with(Path::new(HOME), &unnamed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("name a region"), "{error}");
    assert!(contents_of(&machine.devices) == before, "the directories have changed");
    let db = machine.environment().open_with(Path::new(HOME), &indexed).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// A machine with a store that has a log, on `tiers`.
fn with_log(tiers: Vec<Tier>) -> Machine {
    let machine = Machine::new();
    let plain = Settings { persistent_memory: None, tiers, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &plain).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    machine
}

/// The settings of an opening that gives a store its first region.
fn with_first_region(preset: Preset) -> Settings {
    Settings { preset: Some(preset), tiers: Vec::new(), ..settings() }
}

/// The opening is refused, for `reason`, and has changed no file of `devices`.
fn assert_not_opened(
    devices: &MemoryDevices,
    environment: &Environment,
    settings: &Settings,
    reason: &str,
) {
    let before = contents_of(devices);
    let error = environment.open_with(Path::new(HOME), settings).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(reason) && text.contains(REGION), "{text}");
    assert!(contents_of(devices) == before, "{text}, and the directories have changed");
}

#[test]
fn a_first_region_that_cannot_be_made_is_refused_before_anything_changes() {
    let machine = with_log(settings().tiers);
    let devices = &machine.devices;
    let over = |regions: &Arc<ShadowRegions>| stepped(Arc::new(devices.clone()), regions);
    for preset in [Preset::Leveled, Preset::Indexed] {
        let wanted = with_first_region(preset);
        for kind in [DeviceErrorKind::OutOfSpace, DeviceErrorKind::Denied] {
            let environment = machine.without_place(kind);
            assert_not_opened(devices, &environment, &wanted, "no place for 16777216 bytes");
        }
        let foreign = Arc::new(ShadowRegions::with(REGION, &[7; 512], PERSISTENT));
        assert_not_opened(devices, &over(&foreign), &wanted, "is there already");
        assert_eq!(foreign.stored(REGION), [7; 512]);
    }
    let ordinary = Circumstances { is_synchronous: false, ..PERSISTENT };
    let ordinary = Arc::new(ShadowRegions::new(ordinary));
    let wanted = with_first_region(Preset::Leveled);
    assert_not_opened(devices, &over(&ordinary), &wanted, "MAP_SYNC was refused");
    assert!(!ordinary.has(REGION), "a file stays that no database names");
    let wanted = with_first_region(Preset::Indexed);
    let db = machine.environment().open_with(Path::new(HOME), &wanted).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
}

#[test]
fn a_change_of_tiers_that_was_cut_off_goes_on_only_if_the_first_region_can_be_made() {
    let fast = Tier::new(FAST, ByteSize::mib(64)).driver("memory");
    let machine = with_log(vec![fast, settings().tiers[0].clone()]);
    let wanted = with_first_region(Preset::Leveled);
    let places = cut_off_tier_change(&machine);
    assert!(places.len() > 4, "only {} places", places.len());
    for devices in places {
        let machine = Machine { devices, ..Machine::new() };
        let environment = machine.without_place(DeviceErrorKind::OutOfSpace);
        assert_not_opened(&machine.devices, &environment, &wanted, "no place");
        let db = machine.environment().open_with(Path::new(HOME), &wanted).unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.stats().tiers.len(), 1);
        db.close().unwrap();
        assert!(machine.database_file().contains(REGION));
    }
}

#[test]
fn a_tier_whose_directory_has_the_region_does_not_go() {
    [Preset::Leveled, Preset::Indexed].into_iter().for_each(its_tier_stays);
}

fn its_tier_stays(preset: Preset) {
    let machine = Machine::new();
    let fast = Tier::new("/pmem", ByteSize::mib(64)).driver("memory");
    let tiers = vec![fast, settings().tiers[0].clone()];
    let settings = Settings { preset: Some(preset), tiers, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    for change in [
        TierChange::Replace { tier: WhichTier::Place(0), path: "/new".into() },
        TierChange::Remove { tier: WhichTier::Place(0) },
    ] {
        let changed =
            machine.environment().change_tiers(Path::new(HOME), None, &change, &mut |_| {});
        let error = changed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(REGION), "{error}");
    }
    let db = machine.open().unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}

/// What a removal of the fastest tier leaves in the directories where it is cut off with `CHANGING`
/// there, at each of its calls.
fn cut_off_tier_change(machine: &Machine) -> Vec<MemoryDevices> {
    let change = TierChange::Remove { tier: WhichTier::Place(0) };
    let mut found = Vec::new();
    for most in 0..1000 {
        let (devices, left) = (copy_of(&machine.devices), AtomicU64::new(most));
        let hook = move |call, _: &Path, _: &str| {
            let over = || left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err();
            if changes(call) && over() {
                return Err(Error::new(DeviceErrorKind::Io, "the process has ended"));
            }
            Ok(())
        };
        let hooked = HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook));
        let environment = stepped(Arc::new(hooked), &machine.regions);
        let changed = environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {});
        let names = devices.home(Path::new(HOME)).unwrap().list().unwrap();
        if names.iter().any(|entry| entry.name == "CHANGING") {
            found.push(copy_of(&devices));
        }
        if changed.is_ok() {
            return found;
        }
    }
    panic!("the change does not end");
}

#[test]
fn a_change_of_tiers_that_was_cut_off_goes_on_only_with_the_right_region() {
    let machine = Machine::new();
    let fast = Tier::new(FAST, ByteSize::mib(64)).driver("memory");
    let tiers = vec![fast, settings().tiers[0].clone()];
    let settings = Settings { tiers, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let older = machine.regions.stored(REGION);
    machine.open().unwrap().close().unwrap();
    let right = machine.regions.stored(REGION);
    let places = cut_off_tier_change(&machine);
    assert!(places.len() > 4, "only {} places", places.len());
    for devices in places {
        let missing = Arc::new(ShadowRegions::new(PERSISTENT));
        let missing = Machine { devices: copy_of(&devices), regions: missing };
        assert_refused(&missing, ErrorKind::Tier, &["missing"]);
        let with = |image: &[u64]| Machine::of(copy_of(&devices), image);
        assert_refused(&with(&older), ErrorKind::Tier, &["generation"]);
        let machine = with(&right);
        let before = contents_of(&machine.devices);
        // As many as there were before the change.
        let error = machine.environment().open_with(Path::new(HOME), &settings).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("1 tiers but 2 were named; name 1, in the same order"), "{text}");
        assert!(contents_of(&machine.devices) == before, "{text}, and something has changed");
        machine.environment().repair(Path::new(HOME), None, &mut |_| {}).unwrap_err();
        assert!(contents_of(&machine.devices) == before, "a refused repair has changed something");
        let db = machine.open().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.stats().tiers.len(), 1);
    }
}
