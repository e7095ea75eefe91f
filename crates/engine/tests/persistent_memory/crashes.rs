//! The power fails between any two stores to the region, or an edit of the manifest does.

use crate::hooked::{Call, HookedDevices};
use crate::support::{HOME, Machine, REGION, TIER, copy_of, settings, stepped};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use thermocline::{ByteSize, Db, Settings, WriteBatch};
use thermocline_device::{Driver, Error, ErrorKind, MemoryDevices};
use thermocline_foundation::random::Random;
use thermocline_pmem::shadow::Model;
use thermocline_pmem::{Medium, Region, RegionIdentity};

const MODELS: [Model; 2] = [Model::X86, Model::Words];

/// Batch `number` writes so many keys.
fn keys(number: u64) -> u64 {
    1 + number % 3
}

fn write(db: &Db, number: u64) {
    let mut batch = WriteBatch::new();
    for key in 0..keys(number) {
        batch.put(format!("{number}-{key}"), vec![number as u8; 50 * key as usize]);
    }
    db.write(batch).unwrap();
}

/// What is wrong with a machine on which `acknowledged` batches were written.
fn fault(machine: &Machine, acknowledged: u64) -> Option<String> {
    let db = match machine.open() {
        Ok(db) => db,
        Err(error) => return Some(format!("refused: {error}")),
    };
    let mut is_over = false;
    for number in 0..acknowledged + 3 {
        let found = |key: &u64| db.get(format!("{number}-{key}")).unwrap().is_some();
        let count = (0..keys(number)).filter(found).count() as u64;
        if count != 0 && count != keys(number) {
            return Some(format!("batch {number} is there in part"));
        }
        if count == 0 && number < acknowledged {
            return Some(format!("batch {number} of {acknowledged} is gone"));
        }
        if count > 0 && is_over {
            return Some(format!("batch {number} is there without one before it"));
        }
        is_over |= count == 0;
    }
    None
}

/// The first fault of images of all crashes while a few batches are written.
fn first_fault(batches: u64, images: u64) -> Option<String> {
    let machine = Machine::new();
    machine.create().close().unwrap();
    let db = machine.open().unwrap();
    let devices = copy_of(&machine.devices);
    let shadow = machine.regions.shadow(REGION);
    // Crashes before are those of the opening.
    let mut crashes_before = 0;
    shadow.crashes(|_| crashes_before += 1);
    for number in 0..batches {
        write(&db, number);
        shadow.mark(number + 1);
    }
    std::mem::forget(db);
    let (mut first, mut at) = (None, 0);
    shadow.crashes(|crash| {
        at += 1;
        if at < crashes_before || first.is_some() {
            return;
        }
        for model in MODELS {
            crash.images(model, images, at, |image| {
                if first.is_none() {
                    first = fault(&Machine::of(copy_of(&devices), image), crash.mark);
                }
            });
        }
    });
    first
}

#[test]
fn at_every_crash_groups_are_whole_or_absent_and_what_was_acknowledged_is_there() {
    assert_eq!(first_fault(4, 5), None);
}

/// A crash after memtables were flushed and others were not.
fn fault_after_flushes() -> Option<String> {
    let machine = Machine::new();
    let db = machine.create();
    for number in 0..10 {
        write(&db, number);
    }
    db.flush().unwrap();
    for number in 10..20 {
        write(&db, number);
    }
    std::mem::forget(db);
    let devices = copy_of(&machine.devices);
    let mut first = None;
    machine.regions.shadow(REGION).last().images(Model::Words, 6, 1, |image| {
        if first.is_none() {
            first = fault(&Machine::of(copy_of(&devices), image), 20);
        }
    });
    first
}

#[test]
fn what_is_in_tables_and_what_is_in_the_region_are_both_found() {
    assert_eq!(fault_after_flushes(), None);
}

/// A flush whose edit fails: the records are in the region still.
fn fault_after_failed_edit() -> Option<String> {
    let machine = Machine::new();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let hook = move |call, _: &Path, name: &str| match call {
        Call::Write if failing.load(SeqCst) && name.ends_with(".manifest") => {
            Err(Error::new(ErrorKind::Io, "the device is broken"))
        }
        _ => Ok(()),
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    let environment = stepped(Arc::new(devices), &machine.regions);
    let db = environment.create(Path::new(HOME), &settings()).unwrap();
    for number in 0..10 {
        write(&db, number);
    }
    fails.store(true, SeqCst);
    db.flush().unwrap_err();
    fault(&machine.killed(db), 10)
}

#[test]
fn an_arena_stays_until_the_edit_that_has_its_tables_is_durable() {
    assert_eq!(fault_after_failed_edit(), None);
}

#[test]
fn an_opening_that_is_cut_off_is_repeated() {
    let machine = Machine::new();
    let db = machine.create();
    (0..10).for_each(|number| write(&db, number));
    let killed = machine.killed(db);
    let image = killed.regions.stored(REGION);
    // The opening ends at any of its calls of a device; the region has what was stored by then.
    for calls in 0.. {
        let devices = copy_of(&killed.devices);
        let machine = Machine::of(devices.clone(), &image);
        let left = Arc::new(AtomicI64::new(calls));
        let counted = Arc::clone(&left);
        let hook = move |call, _: &Path, _: &str| match call {
            Call::Write | Call::Sync | Call::Rename | Call::Create | Call::Delete
                if counted.fetch_sub(1, SeqCst) <= 0 =>
            {
                Err(Error::new(ErrorKind::Io, "the process has ended"))
            }
            _ => Ok(()),
        };
        let hooked = HookedDevices::new(Arc::new(devices), Arc::new(hook));
        let opened = stepped(Arc::new(hooked), &machine.regions).open(Path::new(HOME));
        let is_whole = left.load(SeqCst) > 0;
        std::mem::forget(opened);
        let again = Machine::of(copy_of(&machine.devices), &machine.regions.stored(REGION));
        assert_eq!(fault(&again, 10), None, "after {calls} calls");
        if is_whole {
            assert!(calls > 5);
            break;
        }
    }
}

fn arenas(machine: &Machine) -> usize {
    let medium = Medium::shadowed(&machine.regions.stored(REGION));
    let found = RegionIdentity::read(&medium).unwrap();
    Region::arenas_of(&medium, &found).unwrap().len()
}

/// Each opening makes an arena, and its edit of the manifest fails. What is wrong when one does
/// not.
fn fault_after_failed_openings() -> Option<String> {
    let machine = Machine::new();
    // A full memtable takes an eighth of the region.
    let settings = Settings { memory: ByteSize::mib(24), ..settings() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    (0..10).for_each(|number| write(&db, number));
    let mut records = 0;
    while db.stats().activity.frozen_memtables < 2 {
        db.put(format!("long {records}"), long_value(records)).unwrap();
        records += 1;
    }
    let mut machine = machine.killed(db);
    assert_eq!(arenas(&machine), 3);
    for _ in 0..20 {
        // The first write is of what the manifest has already.
        let left = AtomicI64::new(1);
        let hook = move |call, _: &Path, name: &str| match call {
            Call::Write if name.ends_with(".manifest") && left.fetch_sub(1, SeqCst) <= 0 => {
                Err(Error::new(ErrorKind::Io, "the device is broken"))
            }
            _ => Ok(()),
        };
        let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
        let opened = stepped(Arc::new(devices), &machine.regions).open(Path::new(HOME));
        let error = opened.unwrap_err();
        if !error.to_string().contains("the device is broken") {
            return Some(format!("refused: {error}"));
        }
        machine = Machine::of(copy_of(&machine.devices), &machine.regions.stored(REGION));
        assert_ne!(arenas(&machine), 3, "the opening has made one");
    }
    if let Some(fault) = fault(&machine, 10) {
        return Some(fault);
    }
    let db = machine.open().unwrap();
    let differs = |number: &u64| {
        let found = db.get(format!("long {number}")).unwrap();
        found.is_none_or(|found| found != long_value(*number))
    };
    (0..records).find(differs).map(|number| format!("record {number} of {records} is gone"))
}

#[test]
fn openings_that_fail_again_and_again_do_not_fill_the_region_and_lose_nothing() {
    assert_eq!(fault_after_failed_openings(), None);
}

/// Records that no compression makes smaller.
fn long_value(number: u64) -> Vec<u8> {
    let mut value = vec![0; 20 << 10];
    Random::new(number).fill(&mut value);
    value
}

#[test]
fn a_region_is_read_whole_where_the_tiers_have_no_room_for_it() {
    // In one arena, and in as many as there are.
    for records in [5, 32] {
        let machine = Machine::new();
        machine.create().close().unwrap();
        let db = machine.open().unwrap();
        (0..records).for_each(|n| db.put(format!("{n}"), long_value(n)).unwrap());
        let killed = machine.killed(db);
        let tier = killed.devices.directory(Path::new(TIER)).unwrap();
        let used: u64 = tier.list().unwrap().iter().map(|entry| entry.len).sum();
        tier.set_capacity_bytes(used + (64 << 10));
        let assert_whole = |db: &Db| {
            for n in 0..records {
                let found = db.get(format!("{n}")).unwrap();
                assert!(found.is_some_and(|found| found == long_value(n)), "{n} of {records}");
            }
        };
        let db = killed.open().unwrap();
        assert_whole(&db);
        let refused = db.put("more", "").unwrap_err();
        assert_eq!(refused.kind(), thermocline::ErrorKind::ReadOnly, "{refused}");
        let again = killed.killed(db);
        let db = again.open().unwrap();
        assert_whole(&db);
        db.put("more", "").unwrap();
        db.flush().unwrap();
        assert_whole(&db);
    }
}

/// Its memtables have nowhere to go: it is not exchanged for another before they have.
#[test]
fn a_region_whose_memtables_have_no_room_on_any_tier_is_not_given_up() {
    let machine = Machine::new();
    machine.create().close().unwrap();
    let db = machine.open().unwrap();
    (0..5).for_each(|number| db.put(format!("{number}"), long_value(number)).unwrap());
    let killed = machine.killed(db);
    let tier = killed.devices.directory(Path::new(TIER)).unwrap();
    let used: u64 = tier.list().unwrap().iter().map(|entry| entry.len).sum();
    tier.set_capacity_bytes(used + (64 << 10));
    let mut named = settings();
    named.persistent_memory.as_mut().unwrap().path = "/pmem/other".into();
    let rebuilt = killed.environment().rebuild_index(Path::new(HOME), Some(&named));
    let error = rebuilt.unwrap_err();
    assert_eq!(error.kind(), thermocline::ErrorKind::OutOfSpace, "{error}");
    assert!(error.to_string().contains(REGION), "{error}");
    tier.set_capacity_bytes(1 << 30);
    let db = killed.open().unwrap();
    for number in 0..5 {
        let found = db.get(format!("{number}")).unwrap();
        assert!(found.is_some_and(|found| found == long_value(number)), "{number}");
    }
}

#[test]
fn directories_without_a_region_are_written_as_before() {
    let machine = Machine::new();
    let with_log = Settings { persistent_memory: None, ..settings() };
    let devices = MemoryDevices::new();
    let environment = stepped(Arc::new(devices.clone()), &machine.regions);
    let db = environment.create(Path::new(HOME), &with_log).unwrap();
    write(&db, 1);
    db.close().unwrap();
    let machine = Machine { devices, ..machine };
    let text = machine.database_file();
    assert!(text.contains("format = 1") && !text.contains("region"), "{text}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_the_front_are_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    let crashes = || first_fault(3, 5);
    let bugs: [(Planted, &dyn Fn() -> Option<String>); 4] = [
        (Planted::GroupBeforeFence, &crashes),
        (Planted::GroupLineNotFlushed, &crashes),
        (Planted::ArenaFreedBeforeEdit, &fault_after_failed_edit),
        (Planted::ArenaFreedBeforeEdit, &fault_after_failed_openings),
    ];
    for (bug, find) in bugs {
        let (found, hits) = with(bug, || (find(), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}
