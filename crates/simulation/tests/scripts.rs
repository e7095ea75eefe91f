//! Golden scripts: what the simulation has found, as the shortest history that shows it.
#![allow(clippy::unwrap_used)]

use parking_lot::RwLock;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Durability, ErrorKind};
use thermocline_foundation::Clock;
use thermocline_simulation::campaign::{SUITES, Suite, Task, plan};
use thermocline_simulation::devices::{CallKind, Fault, FaultKind, Loss, Watcher};
use thermocline_simulation::history::{HOME, Shape, Step, key, settings, value};
use thermocline_simulation::life::Life;
use thermocline_simulation::machine::Machine;
use thermocline_simulation::oracle::Known;

const SHAPE: Shape =
    Shape { steps: 0, keys: 16, crashes: false, reopens: false, large_values: false };

fn life(seed: u64) -> Life {
    let mut life = Life::new(seed, &SHAPE, Arc::new(RwLock::new(Known::new(SHAPE.keys))));
    life.create().unwrap();
    life
}

fn put(number: u64, durability: Durability) -> Step {
    let key = key(number);
    let value = value(&key, number as usize, 700, false);
    Step::Write(vec![(key, Some(value))], durability)
}

fn ingest(number: u64) -> Step {
    let key = key(number);
    let value = value(&key, number as usize, 700, false);
    Step::Ingest(vec![(key, value)])
}

/// Where the next write to a file that ends so is, when `step` is carried out.
fn write_of(seed: u64, before: &[Step], step: &Step, nth_from_last: usize) -> u64 {
    let mut life = life(seed);
    before.iter().for_each(|step| life.step(step).unwrap());
    life.machine.devices.record_made();
    let start = life.machine.devices.calls();
    life.step(step).unwrap();
    let kinds = life.machine.devices.kinds();
    let writes = kinds.iter().enumerate().filter(|(_, kind)| **kind == CallKind::Write);
    let writes: Vec<_> = writes.map(|(index, _)| index as u64).collect();
    start + writes[writes.len() - 1 - nth_from_last]
}

/// Lies, seed 21, item 497: the last edit of a manifest is lost by its device. What a bulk load
/// brought was missing and what was written after it was there, without an error.
#[test]
fn a_lost_edit_of_a_bulk_load_is_noticed() {
    let before = [put(1, Durability::Sync)];
    let at = write_of(21, &before, &ingest(2), 0);
    let mut life = life(21);
    before.iter().for_each(|step| life.step(step).unwrap());
    life.machine.devices.arm(Some(Fault { at, sticky: false, kind: FaultKind::Lost }));
    life.step(&ingest(2)).unwrap();
    life.step(&put(3, Durability::Sync)).unwrap();
    assert!(life.machine.devices.has_struck());
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    life.kill();
    let error = Machine::new(world, 1).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("follows a bulk load"), "{error}");
}

/// Rot, seed 1, item 33057: a log that lost its end after the database was closed looked like one
/// that never had it.
#[test]
fn a_log_cut_after_closing_is_noticed() {
    let mut life = life(1);
    (0..4).for_each(|number| life.step(&put(number, Durability::Sync)).unwrap());
    life.close().unwrap();
    let mut world = life.machine.devices.world();
    let logs = world.list(Path::new("/fast")).into_iter().map(|(name, _)| name);
    let logs: Vec<_> = logs.filter(|name| name.ends_with(".log")).collect();
    logs.iter().for_each(|log| world.cut(Path::new("/fast"), log, 4096));
    let error = Machine::new(world, 1).open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("was durable when the database was closed"), "{error}");
}

/// Rot, seed 10, item 8999: a file map that lost its end after the database was closed was taken
/// for that of an empty database, and all its files for leftovers.
#[test]
fn a_file_map_cut_after_closing_is_noticed() {
    for (cut, machine, before) in machines_with_a_journal_cut("map") {
        let error = machine.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {cut}: {error}");
        assert_eq!(machine.devices.look(|world| world.digest()), before, "cut at {cut}");
    }
}

/// Rot, seed 1, `Cut(6144)`: a manifest that lost its end after the database was closed opened as
/// that of an earlier moment.
#[test]
fn a_manifest_cut_after_closing_is_noticed() {
    for (cut, machine, _) in machines_with_a_journal_cut("manifest") {
        let error = machine.open().unwrap_err();
        // A file shorter than the map says may be one of a tier that is an older copy.
        let expected = if cut < 4096 { ErrorKind::Tier } else { ErrorKind::Corrupt };
        assert_eq!(error.kind(), expected, "cut at {cut}: {error}");
        assert!(error.to_string().contains(".manifest"), "cut at {cut}: {error}");
    }
}

/// Closed databases whose journal with this extension ends at every possible place, and their
/// digests.
fn machines_with_a_journal_cut(extension: &str) -> Vec<(u64, Machine, u64)> {
    let mut life = life(10);
    (0..4).for_each(|number| life.step(&put(number, Durability::Sync)).unwrap());
    life.step(&Step::Flush).unwrap();
    life.close().unwrap();
    let world = life.machine.devices.world();
    let mut files = world.list(Path::new("/fast")).into_iter();
    let (journal, _) = files.rfind(|(name, _)| name.ends_with(extension)).unwrap();
    // Behind its frames is what it keeps room for.
    let bytes = world.bytes(Path::new("/fast"), &journal);
    let len = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let cut_at = |cut| {
        let mut world = world.clone();
        world.cut(Path::new("/fast"), &journal, cut);
        let before = world.digest();
        (cut, Machine::new(world, 1), before)
    };
    (0..len).step_by(512).map(cut_at).collect()
}

/// Errors, seed 1, items 637 and 685: a creation that failed removed the tiers although it could
/// not remove `DATABASE`, which then spoke of tiers that were not there.
#[test]
fn a_creation_that_cannot_be_undone_leaves_all_or_no_database() {
    let calls = {
        let machine = Machine::empty(1);
        machine.create(&settings(1)).unwrap();
        machine.devices.calls()
    };
    for at in 0..calls {
        let machine = Machine::empty(1);
        let kind = FaultKind::Error(5);
        machine.devices.arm(Some(Fault { at, sticky: true, kind }));
        drop(machine.create(&settings(1)));
        let world = machine.devices.look(|world| world.after(Loss::None));
        match Machine::new(world, 1).open() {
            Ok(db) => db.close().unwrap(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "call {at}: {error}"),
        }
    }
}

/// Crash, seed 1: what a power cut left of a settings file that was being replaced stayed for ever.
#[test]
fn an_unfinished_settings_file_is_removed() {
    let mut life = life(1);
    life.step(&put(1, Durability::Sync)).unwrap();
    life.close().unwrap();
    let mut world = life.machine.devices.world();
    let settings = world.bytes(Path::new(HOME), "settings.toml");
    world.put(Path::new(HOME), "settings.toml.new", &settings[..10]);
    let machine = Machine::new(world, 1);
    machine.open().unwrap().close().unwrap();
    let names = machine.devices.look(|world| world.list(Path::new(HOME)));
    assert!(names.iter().all(|(name, _)| !name.ends_with(".new")), "{names:?}");
}

/// Errors, seed 18, item 1624: a sync of the file map failed, its frame stayed in the page cache
/// and was taken for clean; the next process appended behind it, and a power cut left a gap.
#[test]
fn a_frame_whose_sync_failed_is_durable_once_it_is_read() {
    let steps = [put(1, Durability::Sync), Step::Flush, put(2, Durability::Sync), Step::Flush];
    let syncs = {
        let mut life = life(18);
        life.machine.devices.record_made();
        let start = life.machine.devices.calls();
        steps.iter().for_each(|step| life.step(step).unwrap());
        let kinds = life.machine.devices.kinds();
        let syncs = kinds.iter().enumerate().filter(|(_, kind)| **kind == CallKind::Sync);
        syncs.map(|(index, _)| start + index as u64).collect::<Vec<_>>()
    };
    assert!(syncs.len() > 6);
    for at in syncs {
        let mut life = life(18);
        life.machine.devices.arm(Some(Fault { at, sticky: false, kind: FaultKind::Error(5) }));
        let failed = steps.iter().any(|step| life.step(step).is_err());
        assert!(failed, "no caller heard of the sync that failed, call {at}");
        let reopened = Machine::new(life.machine.devices.look(|world| world.after(Loss::None)), 1);
        life.kill();
        let db = reopened.open().unwrap();
        db.put("more", "records").unwrap();
        db.flush().unwrap();
        let world = reopened.devices.look(|world| world.after(Loss::All));
        reopened.kill(Some(db));
        let opened = Machine::new(world, 2).open();
        let db = opened.unwrap_or_else(|error| panic!("call {at}: {error}"));
        assert!(db.get("more").unwrap().is_some(), "call {at}");
    }
}

#[test]
fn a_seed_decides_everything() {
    let task = Task { suite: Suite::Crash, seed: 5, one_in: 3, only: None };
    let run = || {
        let shape = thermocline_simulation::campaign::crash_shape(5);
        let mut life = Life::new(5, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        life.run(&shape).unwrap();
        let ended = (life.machine.devices.calls(), life.machine.clock.now_ns());
        (life.machine.devices.look(|world| world.digest()), ended)
    };
    assert_eq!(run(), run());
    assert_eq!(task.attempt().unwrap(), task.attempt().unwrap());
}

/// The oracle is no rubber stamp: a store that loses one acknowledged record is found out.
#[test]
fn a_store_that_lost_a_record_is_found_out() {
    let mut life = life(3);
    (0..6).for_each(|number| life.step(&put(number, Durability::Sync)).unwrap());
    let known = life.known.read().clone();
    known.check_state(life.db(), known.count()).unwrap();
    life.db().delete(key(3)).unwrap();
    assert!(known.check_state(life.db(), 0).is_err());
    assert!(known.check_reads(life.db(), known.count()).is_err());
    assert!(known.check_some_prefix(life.db(), 0).is_err());
}

#[test]
fn watchers_see_every_change_and_only_changes() {
    struct Count(RwLock<Vec<CallKind>>);
    impl Watcher for Count {
        fn changed(&self, _: &thermocline_simulation::devices::Devices, _: u64, kind: CallKind) {
            self.0.write().push(kind);
        }
    }
    let mut life = life(4);
    let count = Arc::new(Count(RwLock::default()));
    life.watch(Arc::clone(&count) as Arc<_>);
    life.machine.devices.record_made();
    life.step(&put(1, Durability::Sync)).unwrap();
    life.step(&Step::Flush).unwrap();
    let kinds = life.machine.devices.kinds();
    let changes: Vec<_> = kinds.into_iter().filter(|kind| kind.changes()).collect();
    assert_eq!(*count.0.read(), changes);
    assert!(changes.contains(&CallKind::SyncDirectory) && changes.contains(&CallKind::Create));
}

#[test]
fn every_suite_is_in_the_quick_form_and_in_the_long_one() {
    for seeds in [40, 2_000] {
        let tasks = plan(1, seeds);
        for suite in SUITES {
            assert!(tasks.iter().any(|task| task.suite == suite), "{suite:?} of {seeds}");
        }
        // All subsets of what is in flight take too long for the quick one.
        let most = tasks.iter().filter(|task| task.suite == Suite::Crash).map(|task| task.one_in);
        assert_eq!(most.min(), Some(if seeds == 40 { 2 } else { 1 }));
    }
}
