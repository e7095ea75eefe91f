//! Power cuts and kills: at sampled operations of seeded histories, with every fate of what was
//! not synced, again during recovery, and again after that.

use crate::closing::close;
use crate::history::{Known, history, run};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::path::Path;
use thermocline::{ByteSize, Db, ErrorKind, Preset, Settings};
use thermocline_device::{Devices, MemoryDevices};
use thermocline_foundation::random::Random;

const STEPS: usize = 45;

/// A history up to the end of the power.
fn live(seed: u64, fault: Fault) -> (SimulatedDevices, Known, bool) {
    let devices = SimulatedDevices::new(fault);
    let environment = environment(devices.clone());
    let mut known = Known::default();
    let created = environment.create(&home(), &settings_of(seed));
    let made = created.is_ok();
    let result = match created {
        Ok(db) => run(&environment, db, &history(seed, STEPS), &mut known).map(drop),
        Err(error) => Err((0, error)),
    };
    if let Err((step, error)) = result {
        assert!(devices.is_dead(), "seed {seed}, step {step}: {error}");
    }
    (devices, known, made)
}

/// Opens after a crash and holds the store against the oracle; returns the database and how many
/// submissions it shows.
fn recover(devices: &SimulatedDevices, known: &Known, least: usize, what: &str) -> (Db, usize) {
    let db = environment(devices.clone())
        .open(&home())
        .unwrap_or_else(|error| panic!("{what}: it does not open: {error}"));
    let count = known.check(&db, least).unwrap_or_else(|why| panic!("{what}: {why}"));
    (db, count)
}

/// All is well, now and after another closing, and writes go on.
fn check_after(devices: &SimulatedDevices, db: Db, known: &mut Known, count: usize, what: &str) {
    known.settle_at(count);
    if let Some(leak) = leaks(devices, &db) {
        panic!("{what}: {leak}");
    }
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    let more = history(1_000_000 + known.submitted.len() as u64, 6);
    let db = run(&environment(devices.clone()), db, &more, known)
        .unwrap_or_else(|(step, error)| panic!("{what}: writing does not resume: {step} {error}"));
    close(db, what);
    let (db, count) = recover(devices, known, known.submitted.len(), what);
    assert_eq!(count, known.submitted.len(), "{what}");
    drop(db);
}

fn changes_of(seed: u64) -> u64 {
    let (devices, known, made) = live(seed, Fault::None);
    assert!(made);
    recover(&devices.after_power_cut(Fate::Kept), &known, known.acknowledged, "no fault");
    devices.changes()
}

#[test]
fn power_cuts_anywhere_leave_a_prefix_with_all_that_was_durable() {
    for seed in first_seed()..first_seed() + rounds(7) {
        let changes = changes_of(seed);
        let mut random = Random::new(seed ^ 0xC0FFEE);
        for _ in 0..30 {
            let after = random.below(changes + changes / 10);
            let (devices, known, made) = live(seed, Fault::PowerCut(after));
            for fate in [Fate::Lost, Fate::Any(after), Fate::Any(after + 1), Fate::Kept] {
                let what = format!("seed {seed}, cut after {after} of {changes}, {fate:?}");
                let restarted = devices.after_power_cut(fate);
                if !made {
                    check_half_created(&restarted, &what);
                    continue;
                }
                let least = if fate == Fate::Kept { known.acknowledged } else { known.durable };
                let (db, count) = recover(&restarted, &known, least, &what);
                check_after(&restarted, db, &mut known.clone(), count, &what);
            }
        }
    }
}

/// A creation that the power cut short leaves a database or none.
fn check_half_created(devices: &SimulatedDevices, what: &str) {
    match environment(devices.clone()).open(&home()) {
        Ok(db) => assert_eq!(crate::history::scan(&db).unwrap().len(), 0, "{what}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}"),
    }
}

/// The preset is not named: it is the one that fits two tiers, and must not become another.
#[test]
fn a_creation_that_was_cut_off_leaves_the_database_that_was_asked_for_or_none() {
    let asked = Settings { preset: None, ..settings() };
    let create = |fault| {
        let devices = SimulatedDevices::new(fault);
        let created = environment(devices.clone()).create(&home(), &asked);
        (devices, created.is_ok())
    };
    let changes = create(Fault::None).0.changes();
    let (mut opened, mut none) = (0, 0);
    for after in 0..changes {
        let (devices, made) = create(Fault::PowerCut(after));
        for fate in [Fate::Lost, Fate::Any(after), Fate::Any(after + 1), Fate::Kept] {
            let what = format!("cut after {after} of {changes}, {fate:?}");
            match environment(devices.after_power_cut(fate)).open(&home()) {
                Ok(db) => {
                    assert_eq!(db.settings().preset, Some(Preset::Hybrid), "{what}");
                    assert_eq!(db.settings().table_size, asked.table_size, "{what}");
                    opened += 1;
                }
                Err(error) => {
                    assert!(!made && error.kind() == ErrorKind::NotFound, "{what}: {error}");
                    check_created_anew(&devices.after_power_cut(fate), &what);
                    none += 1;
                }
            }
        }
    }
    assert!(opened > 0 && none > 0, "{opened} {none}");
}

/// What a creation has left that was cut off is not in the way of another, with other settings.
fn check_created_anew(devices: &SimulatedDevices, what: &str) {
    let mut other = Settings { preset: None, table_size: ByteSize::kib(128), ..settings() };
    other.tiers.truncate(1);
    let environment = environment(devices.clone());
    let db = environment.open_or_create(&home(), &other);
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let db = environment.open(&home()).unwrap();
    let found = db.settings();
    assert_eq!((found.preset, found.tiers.len()), (Some(Preset::Leveled), 1), "{what}");
    assert_eq!(found.table_size, other.table_size, "{what}");
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]), "{what}");
    let left = names(devices, Path::new(TIERS[1]));
    assert!(left.is_empty(), "{what}: {left:?} on a tier that is not used");
}

#[test]
fn settings_that_no_creation_left_are_not_overwritten_by_one() {
    let devices = MemoryDevices::new();
    devices.create_directory(&home()).unwrap();
    write_file(&devices, &home(), "settings.toml", b"memory = '1 GiB'");
    let error = environment(devices.clone()).create(&home(), &settings()).unwrap_err();
    assert_says(&error, &["/home is not empty, it holds settings.toml"]);
    assert_eq!(names(&devices, &home()), ["settings.toml"]);
}

#[test]
fn crashes_during_recovery_lose_nothing_more() {
    for seed in first_seed() + 100..first_seed() + 100 + rounds(5) {
        let changes = changes_of(seed);
        let mut random = Random::new(seed ^ 0xBEEF);
        for _ in 0..10 {
            let after = 30 + random.below(changes);
            let (devices, known, made) = live(seed, Fault::PowerCut(after));
            if !made {
                continue;
            }
            // A process is killed first: the next opening sees unsynced bytes that the cut during
            // it then takes away.
            for first in [Fate::Kept, Fate::Any(after)] {
                for again in [0, 3, 7, 12, 18, 25, 33, 60] {
                    let again = again + random.below(4);
                    let what =
                        format!("seed {seed}, cut after {after}, {first:?}, then after {again}");
                    let once = match first {
                        Fate::Kept => devices.after_kill(),
                        _ => devices.after_power_cut(first),
                    };
                    once.set_fault(Fault::PowerCut(again));
                    let opened = environment(once.clone()).open(&home());
                    drop(opened);
                    let twice = once.after_power_cut(Fate::Any(again));
                    twice.set_fault(Fault::PowerCut(random.below(again + 1)));
                    let opened = environment(twice.clone()).open(&home());
                    drop(opened);
                    let last = twice.after_power_cut(Fate::Any(after + again));
                    let (db, count) = recover(&last, &known, known.durable, &what);
                    check_after(&last, db, &mut known.clone(), count, &what);
                }
            }
        }
    }
}

#[test]
fn kills_anywhere_lose_nothing_acknowledged() {
    for seed in first_seed() + 200..first_seed() + 200 + rounds(4) {
        let changes = changes_of(seed);
        let mut random = Random::new(seed ^ 0xDEAD);
        for _ in 0..20 {
            let after = random.below(changes);
            let (devices, known, made) = live(seed, Fault::PowerCut(after));
            if !made {
                continue;
            }
            let what = format!("seed {seed}, killed after {after} of {changes}");
            let restarted = devices.after_kill();
            let (db, count) = recover(&restarted, &known, known.acknowledged, &what);
            check_after(&restarted, db, &mut known.clone(), count, &what);
        }
    }
}
