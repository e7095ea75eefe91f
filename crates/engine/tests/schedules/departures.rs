//! Readers beside records that leave, move up and are replaced: a record is found at every moment,
//! wherever it is, and what was written last is what is read.

use super::support::*;
use crate::compaction::selection::Selection;
use crate::jobs::{Job, Step, Stepper};
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose};
use crate::limits::LEVELS;
use crate::table_set::key_range::KeyRange;
use crate::{Db, Durability, Environment, Preset, Settings, Workers};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::Mutex;

fn hybrid() -> Db {
    let settings = Settings { preset: Some(Preset::Hybrid), ..settings() };
    create_with(&Arc::default(), &settings)
}

fn put(db: &Db, name: &str, number: u64) {
    let mut batch = crate::WriteBatch::new();
    batch.put(name, value(number, 40));
    db.write_with(batch, Durability::Buffered).unwrap();
}

fn compact(db: &Db) {
    db.compact_range(None, None, &mut |_| ()).unwrap();
}

/// The numbers under the three names, by one way of reading them.
fn look(db: &Db, way: usize) -> Vec<Option<u64>> {
    match way {
        0 => {
            let found = NAMES.iter().map(|name| db.get(name).unwrap());
            found.map(|value| value.map(|value| number(&value))).collect()
        }
        way => look_at_once(db, way),
    }
}

/// Reads in each way until `done`, or long enough; what is read must be `right`, or newer.
fn read_beside(db: &Db, done: &Arc<Mutex<bool>>, right: u64) {
    let readers: Vec<_> = (0..4)
        .map(|way| {
            let (db, done) = (db.clone(), Arc::clone(done));
            spawn(move || {
                for _ in 0..LOOKS_MAX {
                    let found = look(&db, way);
                    let is_right = |found: &Option<u64>| found.is_some_and(|found| found >= right);
                    assert!(found.iter().all(is_right), "way {way}: {found:?}, right is {right}");
                    if *done.lock() {
                        break;
                    }
                    yield_now();
                }
            })
        })
        .collect();
    join(readers);
}

/// Does `work` while readers look for the records.
fn beside_readers(db: &Db, right: u64, work: impl FnOnce(&Db) + Send + 'static) {
    let done = Arc::new(Mutex::new(false));
    let worker = {
        let (db, done) = (db.clone(), Arc::clone(&done));
        spawn(move || {
            work(&db);
            *done.lock() = true;
        })
    };
    read_beside(db, &done, right);
    join([worker]);
}

#[test]
fn records_are_found_while_they_leave_for_tables() {
    check(1500, || {
        let db = hybrid();
        NAMES.iter().for_each(|name| put(&db, name, 1));
        db.flush().unwrap();
        beside_readers(&db, 1, compact);
        assert_eq!(look(&db, 0), [Some(1); 3]);
    });
}

/// A demotion of all records, of a store on which nothing else is at work; it knows what leaves.
fn demotion_of_all() -> (Db, Demotion) {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    let environment = Environment { workers, ..environment(&Arc::default()) };
    let settings = Settings { preset: Some(Preset::Hybrid), ..settings() };
    let db = environment.create(Path::new(HOME), &settings).unwrap();
    NAMES.iter().for_each(|name| put(&db, name, 1));
    db.flush().unwrap();
    let range = KeyRange::default();
    let selection = Selection { range, inputs: Vec::new(), output_level: LEVELS - 1 };
    let purpose = Purpose::Compaction;
    let plan = DemotionPlan { purpose, ..DemotionPlan::new(selection, Sequence::ZERO) };
    let versions = db.engine().versions();
    let claim = plan.selection.claim_of_all_levels();
    let claimed = versions.claim(&mut versions.tables(), claim).unwrap();
    let mut demotion = Demotion::new(db.engine().hybrid(), plan, claimed);
    assert_eq!(demotion.step().unwrap(), Step::More);
    (db, demotion)
}

/// One scan, one demotion, and nothing else: of so few choices many schedules stop the scan where
/// it has half of what it needs, and let the records leave.
#[test]
fn a_scan_that_begins_while_records_leave_finds_them() {
    check(1500, || {
        let (db, mut demotion) = demotion_of_all();
        let mover = spawn(move || while demotion.step().unwrap() == Step::More {});
        for way in [2, 3] {
            assert_eq!(look(&db, way), [Some(1); 3], "way {way}");
        }
        join([mover]);
        assert!(db.engine().hybrid().fast.index.get(b"a").is_none(), "they left");
        assert_eq!(look(&db, 2), [Some(1); 3]);
    });
}

/// Those in tables are older versions of what leaves, so that a reader that looks there too early
/// finds something, and the wrong thing.
#[test]
fn newer_versions_are_found_while_they_leave_for_tables_that_have_older_ones() {
    check(1500, || {
        let db = hybrid();
        NAMES.iter().for_each(|name| put(&db, name, 1));
        compact(&db);
        NAMES.iter().for_each(|name| put(&db, name, 2));
        db.flush().unwrap();
        beside_readers(&db, 2, compact);
        assert_eq!(look(&db, 0), [Some(2); 3]);
    });
}

#[test]
fn records_are_found_while_memory_becomes_slots_and_slots_are_loaded_over() {
    check(1500, || {
        let db = hybrid();
        NAMES.iter().for_each(|name| put(&db, name, 1));
        beside_readers(&db, 1, |db| {
            db.flush().unwrap();
            let mut ingest = db.ingest();
            NAMES.iter().for_each(|name| ingest.add(name, value(2, 40)).unwrap());
            ingest.finish().unwrap();
            assert_eq!(look(db, 1), [Some(2); 3]);
        });
        compact(&db);
        assert_eq!(look(&db, 0), [Some(2); 3]);
    });
}

/// Records that move up, lose their memory and get slots, while they are overwritten, deleted and
/// merged.
fn copies_beside_writers() {
    let db = hybrid();
    NAMES.iter().for_each(|name| put(&db, name, 1));
    compact(&db);
    // Asked for so often that they are offered.
    for _ in 0..2 {
        look(&db, 0);
    }
    let mover = {
        let db = db.clone();
        spawn(move || {
            db.settle().unwrap();
            // Memory for nothing but the newest, so that the copies are given up for slots.
            let fast = &db.engine().hybrid().fast;
            drop(fast.cache.set_capacity_bytes(64));
            fast.remember(b"filler", Sequence(1), &vec![7; 64].into());
            look(&db, 0);
            db.settle().unwrap();
        })
    };
    let writer = {
        let db = db.clone();
        spawn(move || {
            put(&db, "a", 2);
            db.delete("b").unwrap();
            db.flush().unwrap();
            compact(&db);
            put(&db, "c", 3);
            db.flush().unwrap();
            look(&db, 0)
        })
    };
    let found = join([writer]).remove(0);
    join([mover]);
    let right = [Some(2), None, Some(3)];
    assert_eq!(found, right, "what a writer reads of its own");
    for way in 0..4 {
        assert_eq!(look(&db, way), right, "way {way}");
    }
    db.settle().unwrap();
    compact(&db);
    assert_eq!(look(&db, 1), right, "in tables");
}

#[test]
fn what_moves_up_while_it_is_written_again_is_never_the_old() {
    check(1500, copies_beside_writers);
}

/// A batch of look-ups is of one moment, also where its keys are overwritten and merged meanwhile.
#[test]
fn a_batch_of_look_ups_shows_one_moment_of_records_that_leave() {
    check(1500, || {
        let db = hybrid();
        let write = |db: &Db, number: u64| {
            let mut batch = crate::WriteBatch::new();
            for name in NAMES {
                batch.put(name, value(number, 40));
            }
            db.write_with(batch, Durability::Buffered).unwrap();
        };
        write(&db, 1);
        db.flush().unwrap();
        let writer = {
            let db = db.clone();
            spawn(move || {
                write(&db, 2);
                compact(&db);
            })
        };
        for _ in 0..4 {
            let found = look(&db, 1);
            assert!(found.iter().all(|one| *one == found[0] && one.is_some()), "{found:?}");
            yield_now();
        }
        join([writer]);
        assert_eq!(look(&db, 1), [Some(2); 3]);
    });
}
