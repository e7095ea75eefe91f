//! What such a store does in peace: it is written, read, flushed, closed and opened.

use crate::support::{HOME, Machine, REGION, TIER, settings};
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, Environment, ErrorKind, Experiments, Settings, Tier, WriteBatch,
};
use thermocline_device::{Devices, MemoryDevices};

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 100 + (number * 37 % 900) as usize]
}

fn check(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let found = db.get(format!("key {number:06}")).unwrap();
        assert_eq!(found.as_deref(), Some(&value(number)[..]), "{number}");
    }
}

fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        db.put(format!("key {number:06}"), value(number)).unwrap();
    }
}

fn logs(machine: &Machine) -> usize {
    let tier = machine.devices.directory(Path::new(TIER)).unwrap();
    let entries = thermocline_device::Driver::list(&tier).unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(".log")).count()
}

#[test]
fn what_is_written_is_read_also_after_a_close_and_after_a_kill() {
    let machine = Machine::new();
    let db = machine.create();
    fill(&db, 0..50);
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.delete("key 000007").put("extra", "1").put("extra", "2");
    db.write_with(batch, Durability::Buffered).unwrap();
    assert_eq!(logs(&machine), 0, "no log is written");
    let machine = machine.killed(db.clone());
    assert_eq!(before.get("key 000007").unwrap().as_deref(), Some(&value(7)[..]));
    for _ in 0..2 {
        let db = machine.open().unwrap();
        assert_eq!(db.get("key 000007").unwrap(), None);
        assert_eq!(db.get("extra").unwrap().as_deref(), Some(&b"2"[..]));
        check(&db, 8..50);
        assert_eq!(db.scan().into_iter().count(), 50);
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
        db.close().unwrap();
        let text = machine.database_file();
        assert!(text.contains("format = 2") && text.contains("clean = true"), "{text}");
        assert_eq!(logs(&machine), 0);
    }
}

#[test]
fn flushes_free_arenas_and_memtables_follow_one_another() {
    let machine = Machine::new();
    let db = machine.create();
    let free = |db: &Db| db.stats().region.unwrap().free_bytes;
    let at_first = free(&db);
    fill(&db, 0..3000);
    let stats = db.stats();
    assert!(stats.levels.iter().any(|level| level.tables > 0), "it was flushed");
    check(&db, 0..3000);
    db.flush().unwrap();
    assert_eq!(free(&db), at_first, "one arena is left");
    // Two generations are in the region at once, and are found after a kill.
    db.put("first", "1").unwrap();
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    assert_eq!(free(&db), at_first);
    check(&db, 0..3000);
    assert_eq!(db.get("first").unwrap().as_deref(), Some(&b"1"[..]));
}

#[test]
fn groups_of_several_memtables_are_found_after_a_kill() {
    // No background work is done here, so all is in the region.
    let machine = Machine::new();
    let db = machine.create();
    let at_first = db.stats().region.unwrap().free_bytes;
    let count = 900;
    fill(&db, 0..count);
    let taken = at_first - db.stats().region.unwrap().free_bytes;
    assert!(taken >= 512 << 10, "three arenas hold them: {taken} bytes more than one");
    assert!(db.stats().levels.iter().all(|level| level.tables == 0));
    db.delete("key 000000").unwrap();
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    check(&db, 1..count);
    assert_eq!(db.get("key 000000").unwrap(), None);
}

#[test]
fn many_threads_write_at_once_and_everything_is_found_after_a_kill() {
    let machine = Machine::new();
    let environment =
        Environment { workers: thermocline::Workers::Threads, ..machine.environment() };
    let settings = Settings { log_writes: 4, ..settings() };
    let db = environment.create(Path::new(HOME), &settings).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for number in 0..400_u64 {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("{writer}-{number}"), value(number));
                    batch.put(format!("{writer}-last"), number.to_string());
                    db.write(batch).unwrap();
                }
            });
        }
    });
    db.settle().unwrap();
    let stats = db.stats();
    assert_eq!((stats.log.batches, stats.log.durable_groups), (1600, stats.log.groups));
    // Fences: one a group, and few for arenas.
    let fences = stats.region.unwrap().fences;
    assert!(fences >= stats.log.groups && fences < stats.log.groups + 500, "{fences}");
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    for writer in 0..4 {
        for number in 0..400 {
            let found = db.get(format!("{writer}-{number}")).unwrap();
            assert_eq!(found.as_deref(), Some(&value(number)[..]));
        }
        let last = db.get(format!("{writer}-last")).unwrap();
        assert_eq!(last.as_deref(), Some(&b"399"[..]));
    }
}

#[test]
fn a_batch_larger_than_the_memtable_is_taken_and_one_larger_than_an_eighth_refused() {
    let machine = Machine::new();
    let db = machine.create();
    db.put("large", vec![7; 1 << 20]).unwrap();
    db.put("small", "1").unwrap();
    let error = db.put("larger", vec![7; (2 << 20) + 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("write smaller batches"), "{error}");
    db.put("after", "2").unwrap();
    let db = machine.killed(db).open().unwrap();
    assert_eq!(db.get("large").unwrap().map(|value| value.len()), Some(1 << 20));
    assert_eq!(db.get("larger").unwrap(), None);
    assert_eq!(db.get("after").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn checkpoints_bulk_loads_and_readers_go_on_as_with_a_log() {
    let machine = Machine::new();
    let db = machine.create();
    fill(&db, 0..20);
    let mut ingest = db.ingest();
    ingest.add("loaded", "1").unwrap();
    ingest.finish().unwrap();
    fill(&db, 20..40);
    db.checkpoint("/copy").unwrap();
    let environment = machine.environment();
    let copy = environment.open(Path::new("/copy")).unwrap();
    check(&copy, 0..40);
    assert!(copy.stats().region.is_none(), "a checkpoint carries no region");
    fill(&db, 40..60);
    let machine = machine.killed(db);
    let reader = machine.environment().open_read_only(Path::new(HOME)).unwrap();
    check(&reader, 0..60);
    assert_eq!(reader.get("loaded").unwrap().as_deref(), Some(&b"1"[..]));
    drop(reader);
    check(&machine.open().unwrap(), 0..60);
}

#[test]
fn a_store_with_a_log_is_given_a_region_and_keeps_what_the_log_had() {
    let machine = Machine::new();
    let with_log = Settings { persistent_memory: None, ..settings() };
    let db = machine.environment().create(Path::new(HOME), &with_log).unwrap();
    fill(&db, 0..30);
    std::mem::forget(db);
    let devices = crate::support::copy_of(&machine.devices);
    let machine = Machine { devices, ..machine };
    assert!(machine.database_file().contains("format = 1"));
    let tiers = Vec::new();
    let with_region = Settings { tiers, ..settings() };
    let db = machine.environment().open_with(Path::new(HOME), &with_region).unwrap();
    assert!(machine.database_file().contains(REGION));
    assert_eq!(logs(&machine), 0);
    check(&db, 0..30);
    fill(&db, 30..40);
    // Settings that say nothing of it leave it there.
    let machine = machine.killed(db);
    let without = Settings { tiers: Vec::new(), ..with_log };
    let db = machine.environment().open_with(Path::new(HOME), &without).unwrap();
    check(&db, 0..40);
    assert!(db.stats().region.is_some());
}

#[test]
fn a_file_on_this_machine_is_a_region_of_which_is_said_that_it_is_emulated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("region");
    let devices: Arc<dyn Devices> = Arc::new(MemoryDevices::new());
    let environment = Environment { devices, ..Environment::default() };
    let region = thermocline::PersistentMemory::new(&path, ByteSize::mib(16));
    let tiers = vec![Tier::new(TIER, ByteSize::mib(64)).driver("memory")];
    let with = |driver: &str| Settings {
        tiers: tiers.clone(),
        persistent_memory: Some(region.clone().driver(driver)),
        ..settings()
    };
    if !is_persistent(folder.path()) {
        let error = environment.create(Path::new(HOME), &with("mapped")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("accept the loss"), "{error}");
        assert!(!path.exists(), "nothing is left of it");
    }
    let db = environment.create(Path::new(HOME), &with("emulated-0ns")).unwrap();
    fill(&db, 0..100);
    let stats = db.stats().region.unwrap();
    assert!(stats.lines >= 100 && stats.fences >= 100);
    assert_eq!(stats.path, path.display().to_string());
    db.close().unwrap();
    let db = environment.open(Path::new(HOME)).unwrap();
    check(&db, 0..100);
    fill(&db, 100..200);
    db.close().unwrap();
    check(&environment.open(Path::new(HOME)).unwrap(), 0..200);
}

/// The folder is on persistent memory.
fn is_persistent(folder: &Path) -> bool {
    let path = folder.join("probe");
    let mapping = thermocline_device::drivers::Mapping::create(&path, 4096).unwrap();
    mapping.is_synchronous()
}

#[test]
fn the_papers_fences_are_four_for_each_record_and_change_no_answer() {
    let machine = Machine::new();
    let experiments = Experiments { group_fence: Some(false), ..Experiments::NONE };
    let environment = Environment { experiments, ..machine.environment() };
    let db = environment.create(Path::new(HOME), &settings()).unwrap();
    let fences = || db.stats().region.unwrap().fences;
    let before = fences();
    for number in 0..20 {
        let mut batch = WriteBatch::new();
        for key in [2 * number, 2 * number + 1] {
            batch.put(format!("key {key:06}"), value(key));
        }
        db.write(batch).unwrap();
    }
    assert_eq!(fences() - before, 4 * 40);
    let machine = machine.killed(db);
    check(&machine.open().unwrap(), 0..40);
}
