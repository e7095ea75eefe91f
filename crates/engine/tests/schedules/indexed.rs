//! The preset `indexed` beside its own work: memtables that are switched, tables that are entered
//! into the index, flushes and merges of the same key. What was written is found at every moment,
//! and what was read once does not become older.
//!
//! The region's words are no points of scheduling here; `crates/pmem/tests/schedules` has readers
//! beside every one of them.

use super::support::*;
use crate::{
    ByteSize, Db, Durability, PersistentMemory, Preset, RegionDriver, Regions, Settings, WriteBatch,
};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::sync::Mutex;
use thermocline_pmem::{Circumstances, Medium};

/// Regions that are as durable as persistent memory, and gone with the schedule.
#[derive(Debug)]
struct MemoryRegions;

impl Regions for MemoryRegions {
    fn create(&self, _: &Path, bytes: u64, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        let now = Circumstances { is_synchronous: true, boot: [1; 16], dirty_shutdowns: None };
        Ok((Medium::whole(bytes), now))
    }

    fn open(&self, _: &Path, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        Err(Error::new(ErrorKind::NotFound, "it is gone"))
    }

    fn remove(&self, _: &Path) -> Result<()> {
        Ok(())
    }
}

fn indexed() -> Db {
    let settings = Settings {
        preset: Some(Preset::Indexed),
        persistent_memory: Some(PersistentMemory::new("/region", ByteSize::mib(16))),
        ..settings()
    };
    let mut environment = environment(&Arc::default());
    environment.regions = Arc::new(MemoryRegions);
    environment.create(Path::new(HOME), &settings).unwrap()
}

/// All names get the value of write `number` at once.
fn put(db: &Db, number: u64, len: usize) {
    let mut batch = WriteBatch::new();
    NAMES.iter().for_each(|name| _ = batch.put(name, value(number, len)));
    db.write_with(batch, Durability::Buffered).unwrap();
}

/// The numbers of a moment under the names, by one of the ways of reading that show one.
fn look(db: &Db, way: usize) -> Vec<Option<u64>> {
    match way {
        0 => {
            let snapshot = db.snapshot();
            let found = NAMES.iter().map(|name| snapshot.get(name).unwrap());
            found.map(|value| value.map(|value| number(&value))).collect()
        }
        way => look_at_once(db, way),
    }
}

/// Does `work` while readers look, each in its way: what a look finds is of one write, at least the
/// first, and no look finds an older one than the look before.
fn beside_readers(db: &Db, work: impl FnOnce(&Db) + Send + 'static) {
    let done = Arc::new(Mutex::new(false));
    let worker = {
        let (db, done) = (db.clone(), Arc::clone(&done));
        spawn(move || {
            work(&db);
            *done.lock() = true;
        })
    };
    let moments = (0..4).map(|way| {
        let (db, done) = (db.clone(), Arc::clone(&done));
        spawn(move || {
            let mut last = 1;
            for _ in 0..LOOKS_MAX {
                let found = look(&db, way);
                assert!(found[0] >= Some(last), "way {way}: {found:?} after {last}");
                assert!(found.iter().all(|it| *it == found[0]), "way {way}: {found:?}");
                last = found[0].unwrap();
                if *done.lock() {
                    break;
                }
                yield_now();
            }
        })
    });
    // Single look-ups have no moment in common.
    let (single, its_done) = (db.clone(), Arc::clone(&done));
    let single = spawn(move || {
        let mut last = [1; NAMES.len()];
        for _ in 0..LOOKS_MAX {
            for (name, last) in NAMES.iter().zip(&mut last) {
                let found = single.get(name).unwrap().map(|value| number(&value));
                assert!(found >= Some(*last), "{name}: {found:?} after {last}");
                *last = found.unwrap();
            }
            if *its_done.lock() {
                break;
            }
            yield_now();
        }
    });
    let readers: Vec<_> = moments.chain([single]).collect();
    join(readers);
    join([worker]);
}

/// What is true when nothing is under way any more.
fn at_rest(db: &Db, right: u64) {
    db.settle().unwrap();
    for way in 0..4 {
        assert_eq!(look(db, way), [Some(right); 3], "way {way}");
    }
    assert_eq!(db.stats().index.unwrap().waiting_tables, 0);
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}

/// Each batch is a third of a memtable, so the fourth goes to the next one.
fn read_beside_a_switch() {
    let db = indexed();
    put(&db, 1, BIG / 3);
    beside_readers(&db, |db| (2..=7).for_each(|number| put(db, number, BIG / 3)));
    at_rest(&db, 7);
}

/// So many show a look-up that takes the tables that wait too late.
const ENTERING_SCHEDULES: usize = 10_000;

fn read_beside_entering() {
    let db = indexed();
    put(&db, 1, 40);
    beside_readers(&db, |db| {
        db.flush().unwrap();
        put(db, 2, 40);
        db.flush().unwrap();
        db.settle().unwrap();
    });
    at_rest(&db, 2);
}

#[test]
fn readers_beside_a_switch_of_the_memtable_see_one_moment_after_the_other() {
    check(300, read_beside_a_switch);
}

#[test]
fn readers_beside_the_entering_of_tables_miss_nothing() {
    check(ENTERING_SCHEDULES, read_beside_entering);
}

/// The same keys are written and flushed, deleted too, while all tables are merged.
#[test]
fn what_is_flushed_while_its_keys_are_merged_stays_the_newest() {
    check(600, || {
        let db = indexed();
        put(&db, 1, 40);
        db.delete("gone").unwrap();
        db.flush().unwrap();
        let merger = {
            let db = db.clone();
            spawn(move || (0..2).for_each(|_| db.compact_range(None, None, &mut |_| {}).unwrap()))
        };
        beside_readers(&db, |db| {
            for number in 2..=3 {
                put(db, number, 40);
                db.flush().unwrap();
            }
        });
        join([merger]);
        at_rest(&db, 3);
        assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
    });
}

/// The tester tested: schedules find a look-up that takes the tables that wait too late.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_tables_that_are_taken_after_the_index_was_asked() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::WaitingTakenAfterIndex;
    let find = || with(bug, || check(ENTERING_SCHEDULES, read_beside_entering));
    assert!(std::panic::catch_unwind(find).is_err(), "no schedule shows it");
}
