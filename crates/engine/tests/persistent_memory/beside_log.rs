//! The preset `indexed` on a file that is no persistent memory: the region holds the index alone,
//! and writes go to a log.

use crate::indexed::{State, check, churn, indexed};
use crate::regions::{PERSISTENT, ShadowRegions};
use crate::support::{HOME, Machine, REGION, copy_of};
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, ErrorKind, PersistentMemory, Preset, Settings};
use thermocline_foundation::random::Random;
use thermocline_pmem::Circumstances;

/// Another file, in the boot of this number.
fn ordinary(boot: u8) -> Circumstances {
    Circumstances { is_synchronous: false, boot: [boot; 16], ..PERSISTENT }
}

fn machine() -> Machine {
    Machine { regions: Arc::new(ShadowRegions::new(ordinary(1))), ..Machine::new() }
}

/// The machine with what a region had, in circumstances `now`.
fn with_region(machine: &Machine, image: &[u64], now: Circumstances) -> Machine {
    let regions = Arc::new(ShadowRegions::with(REGION, image, now));
    Machine { devices: copy_of(&machine.devices), regions }
}

/// A store with tables, and with records that no table has.
fn made(machine: &Machine) -> (Db, State) {
    let db = machine.environment().create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    churn(&db, &mut state, &mut Random::new(3), 0..5);
    db.settle().unwrap();
    (0..50).for_each(|number| crate::indexed::put(&db, &mut state, number, 7));
    (db, state)
}

fn waiting(db: &Db) -> u64 {
    db.stats().index.unwrap().waiting_tables
}

#[test]
fn writes_go_to_a_log_and_the_index_is_believed_within_a_boot_and_after_a_close() {
    let machine = machine();
    let (db, state) = made(&machine);
    check(&db, &state, 1000);
    let region = db.stats().region.unwrap();
    assert_eq!(region.media, "an ordinary file: writes go to a log");
    assert!(machine.database_file().contains("mapped-beside-log"));
    // The process ends, the boot goes on.
    let images = machine.regions.stored(REGION);
    std::mem::forget(db);
    let again = with_region(&machine, &images, ordinary(1));
    let db = again.open().unwrap();
    let entered = db.stats().index.unwrap().objects;
    assert!(entered > 500, "{entered} entries");
    check(&db, &state, 1000);
    db.settle().unwrap();
    db.close().unwrap();
    let closed = with_region(&again, &again.regions.stored(REGION), ordinary(2));
    let db = closed.open().unwrap();
    assert_eq!(waiting(&db), 0, "what was closed is believed after another boot");
    check(&db, &state, 1000);
    db.close().unwrap();
}

#[test]
fn after_a_loss_of_power_the_index_is_made_anew_and_nothing_is_missing() {
    let machine = machine();
    let (db, mut state) = made(&machine);
    let stored = machine.regions.stored(REGION);
    std::mem::forget(db);
    // Pages of now and of before, in no order, but for the identity, which was synced.
    let mut random = Random::new(8);
    let mut torn = stored.clone();
    torn[1024..].chunks_mut(512).filter(|_| random.below(2) == 0).for_each(|page| page.fill(0));
    for image in [&stored, &torn] {
        let after = with_region(&machine, image, ordinary(2));
        let read = after.environment().open_read_only(Path::new(HOME)).unwrap();
        check(&read, &state, 1000);
        drop(read);
        let planned = after.environment().plan_index_rebuild(Path::new(HOME), None).unwrap();
        assert_eq!(planned.lost_after, None, "{planned:?}");
        let db = after.open().unwrap();
        assert!(waiting(&db) > 0);
        check(&db, &state, 1000);
        db.settle().unwrap();
        assert_eq!(waiting(&db), 0);
        check(&db, &state, 1000);
        // It is killed while the index is filled, and once more.
        let image = after.regions.stored(REGION);
        std::mem::forget(db);
        let again = with_region(&after, &image, ordinary(3)).open().unwrap();
        check(&again, &state, 1000);
    }
    let after = with_region(&machine, &torn, ordinary(2));
    let db = after.open().unwrap();
    churn(&db, &mut state, &mut Random::new(9), 5..9);
    db.settle().unwrap();
    check(&db, &state, 1000);
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
}

#[test]
fn a_region_of_memtables_that_may_lack_some_is_refused_as_before() {
    let machine = machine();
    let region = PersistentMemory::new(REGION, indexed().persistent_memory.unwrap().size);
    let emulated =
        Settings { persistent_memory: Some(region.clone().driver("emulated-0ns")), ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &emulated).unwrap();
    db.put("key", "value").unwrap();
    let image = machine.regions.stored(REGION);
    std::mem::forget(db);
    let as_mapped = Settings { tiers: Vec::new(), persistent_memory: Some(region), ..indexed() };
    let open = |boot| {
        let after = with_region(&machine, &image, ordinary(boot));
        after.environment().open_with(Path::new(HOME), &as_mapped)
    };
    let error = open(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    assert!(error.to_string().contains("restore a checkpoint"), "{error}");
    // Within the boot its memtables are found, and what follows goes to a log.
    let db = open(1).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.stats().region.unwrap().media, "an ordinary file: writes go to a log");
}

#[test]
fn persistent_memory_takes_over_from_the_log_and_the_log_from_it() {
    let machine = machine();
    let (db, mut state) = made(&machine);
    db.close().unwrap();
    let dax = with_region(&machine, &machine.regions.stored(REGION), PERSISTENT);
    let db = dax.open().unwrap();
    check(&db, &state, 1000);
    churn(&db, &mut state, &mut Random::new(4), 5..8);
    assert!(!dax.database_file().contains("mapped-beside-log"));
    // Killed with records in arenas, on persistent memory, which keeps them.
    let image = dax.regions.stored(REGION);
    std::mem::forget(db);
    let back = with_region(&dax, &image, ordinary(5));
    let db = back.open().unwrap();
    check(&db, &state, 1000);
    assert!(back.database_file().contains("mapped-beside-log"));
    db.close().unwrap();
    let leveled = Settings { preset: Some(Preset::Leveled), tiers: Vec::new(), ..indexed() };
    let error = back.environment().open_with(Path::new(HOME), &leveled).unwrap_err();
    assert!(error.to_string().contains("MAP_SYNC was refused"), "{error}");
}
