//! Regions that are not the right one, and may not be believed: each is refused with its file and
//! the way out, and the right one opens afterwards.

use crate::regions::{PERSISTENT, ShadowRegions};
use crate::support::{HOME, Machine, REGION, contents_of, copy_of, settings};
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, ErrorKind, PersistentMemory, Preset, Settings, Tier, TierChange, WhichTier,
};
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
    let error = machine.environment().open_with(Path::new(HOME), &hybrid).unwrap_err();
    assert!(error.to_string().contains("presets leveled and indexed"), "{error}");
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
