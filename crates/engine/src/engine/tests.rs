//! Logs, deletions and migrations of a running store.

use super::background::Background;
use crate::jobs::{Lane, Planner, Step, Stepper, Workers};
use crate::support::hooked::{Call, HookedDevices};
use crate::support::{hybrid, one_tier, stepped, stepped_environment, tier, until};
use crate::{ByteSize, Db, Environment, Settings};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{FileKind, MemoryDevices, TierIndex};
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::atomic::AtomicU64;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

fn settings() -> Settings {
    let tiers = vec![tier("/fast", 64), tier("/slow", 256)];
    Settings { tiers, memory: ByteSize::mib(8), ..hybrid() }
}

/// Bytes of each log that there is.
fn log_bytes(db: &Db) -> Vec<u64> {
    let files = db.engine().shared.files.files().into_iter();
    files.filter(|file| file.kind == FileKind::Log).map(|file| file.bytes).collect()
}

/// Puts values of `len` bytes until so many bytes are written, with steps in between as drawn.
fn fill(db: &Db, stepper: &Stepper, random: &mut Random, (len, bytes): (usize, usize)) {
    for key in 0..bytes / (len + 8) {
        db.put(key.to_be_bytes(), vec![7; len]).unwrap();
        if random.below(1 << 20) < len as u64 + 100 {
            (0..random.below(40)).all(|_| stepper.step());
        }
    }
}

#[test]
fn there_are_never_more_logs_than_memtables_where_records_want_their_room() {
    let mut most_of_all = 0;
    for seed in 1..=12 {
        let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, highest) = (Arc::clone(&now), Arc::clone(&most));
        let hook = move |call, _: &Path, name: &str| {
            match call {
                Call::Create if name.ends_with(".log") => count.fetch_add(1, Relaxed),
                Call::Delete if name.ends_with(".log") => count.fetch_sub(1, Relaxed),
                _ => 0,
            };
            highest.fetch_max(count.load(Relaxed), Relaxed);
            Ok(())
        };
        let memory = Arc::new(MemoryDevices::default());
        let stepper = Arc::new(Stepper::new(seed));
        let environment = Environment {
            devices: Arc::new(HookedDevices::new(memory, Arc::new(hook))),
            workers: Workers::Stepped(Arc::clone(&stepper)),
            ..Environment::default()
        };
        let db = environment.create(Path::new("/home"), &settings()).unwrap();
        let mut random = Random::new(seed);
        for size in [(1000, 3 << 20), (30, 1 << 20), (9000, 3 << 20)] {
            fill(&db, &stepper, &mut random, size);
            // As long as what was reserved: none had to grow.
            let reserved = db.engine().shared.settings.log_bytes();
            let bytes = log_bytes(&db);
            assert!(bytes.iter().all(|bytes| *bytes <= reserved), "{bytes:?} of {reserved}");
        }
        assert_eq!(now.load(Relaxed), log_bytes(&db).len() as u64);
        assert!(most.load(Relaxed) <= 3, "{most:?} logs with seed {seed}");
        most_of_all = most_of_all.max(most.load(Relaxed));
    }
    assert_eq!(most_of_all, 3);
}

/// A batch larger than a memtable makes its log as large, and no memtable wants such a log.
#[test]
fn a_log_that_had_to_grow_is_not_used_again() {
    let db = stepped_environment().create(Path::new("/home"), &settings()).unwrap();
    let reserved = db.engine().shared.settings.log_bytes();
    for round in 0..8u8 {
        db.put([round], vec![round; 1 << 20]).unwrap();
        db.put([round], vec![round; 100]).unwrap();
        db.flush().unwrap();
        db.settle().unwrap();
        assert!(log_bytes(&db).iter().all(|bytes| *bytes <= reserved), "{:?}", log_bytes(&db));
    }
}

/// All logs of the last opening are there while the first of this one is made.
#[test]
fn an_opening_with_all_logs_and_full_slots_finds_room_for_its_own_on_the_fast_tier() {
    let environment = stepped_environment();
    let home = Path::new("/home");
    // A log is nearly as large a share of the tier as it may be.
    let tiers = vec![tier("/fast", 16), tier("/slow", 256)];
    let settings = Settings { tiers, memory: ByteSize::mib(10), ..hybrid() };
    let db = environment.create(home, &settings).unwrap();
    let mut key = 0u64;
    until("8 MiB on the slow tier", || {
        db.put(key.to_be_bytes(), [7; 1000]).unwrap();
        key += 1;
        db.stats().tiers[1].used_bytes >= 8 << 20
    });
    // A slab for each of some sizes, until there is no room for another.
    let room = || db.stats().fast_tier.map(|fast| fast.limit_bytes - fast.slab_bytes);
    until("slabs without room for another", || {
        db.put(key.to_be_bytes(), vec![7; 1000 + key as usize % 7000]).unwrap();
        db.flush().unwrap();
        key += 500;
        room() < Some(64 << 10)
    });
    until("three logs", || {
        db.put(key.to_be_bytes(), [7; 1000]).unwrap();
        key += 1;
        log_bytes(&db).len() >= 3
    });
    db.close().unwrap();
    let db = environment.open(home).unwrap();
    let files = db.engine().shared.files.files().into_iter();
    let logs: Vec<_> = files.filter(|file| file.kind == FileKind::Log).collect();
    assert!(logs.iter().all(|log| log.tier == TierIndex(0)), "{logs:?}");
    let fast = &db.stats().tiers[0];
    assert!(fast.used_bytes <= fast.capacity_bytes, "{fast:?}");
}

/// Flushes a table of `value` under `key` without letting a compaction begin.
fn flush_one(db: &Db, key: &str, value: Option<&str>) {
    db.engine().versions.tables().claims.line_up();
    match value {
        Some(value) => db.put(key, value).unwrap(),
        None => db.delete(key).unwrap(),
    }
    db.flush().unwrap();
    db.engine().versions.tables().claims.leave_line();
}

#[test]
fn placement_is_asked_again_once_deleted_tables_have_left_room() {
    let db = stepped(&one_tier());
    flush_one(&db, "key", Some("1"));
    flush_one(&db, "key", Some("2"));
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let engine = db.engine();
    engine.shared.placement_changed.store(false, Relaxed);
    let mut job = Background(Arc::clone(engine)).plan(Lane::Bulk).unwrap();
    assert_eq!(job.name(), "deletion of tables");
    assert_eq!(job.step().unwrap(), Step::Done);
    assert!(engine.shared.placement_changed.load(Relaxed));
    drop(job);
    db.close().unwrap();
}

/// A background job prepares the next log. A writer that needs one meanwhile makes none of its own,
/// which would have a number on the wrong side of the other's.
#[test]
fn a_writer_waits_for_the_log_that_is_being_prepared() {
    let environment =
        Environment { devices: Arc::new(MemoryDevices::new()), ..Environment::default() };
    let tier = crate::Tier::new("/tier", ByteSize::mib(256)).driver("memory");
    let settings = Settings { tiers: vec![tier], memory: ByteSize::mib(8), ..Default::default() };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    let engine = db.engine();
    // The background is kept from preparing logs; this thread does that instead.
    until("the end of a log's making", || {
        let mut logs = engine.front.logged().pool().logs();
        if logs.making {
            drop(logs);
            engine.shared.clock.sleep(std::time::Duration::from_millis(1));
            return false;
        }
        logs.making = true;
        logs.ready = None;
        true
    });
    db.put("first", "in the log made at the start").unwrap();
    let logs = || {
        let files = engine.shared.files.files().into_iter();
        files.filter(|file| file.kind == FileKind::Log).map(|file| file.number)
    };
    let before = logs().max();
    let rotating = Arc::clone(engine);
    let rotate = move || rotating.front.enter().rotate();
    let writer = thermocline_foundation::threads::spawn("writer", rotate).unwrap();
    engine.front.logged().pool().prepare_log().unwrap();
    writer.join().unwrap().unwrap();
    let next = logs().filter(|number| Some(*number) > before).min();
    assert_eq!(Some(engine.front.enter().number()), next);
}

/// A value that says when its memory is given back.
struct Value(Vec<u8>, Arc<AtomicU64>);

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_value_that_is_handed_over_is_gone_before_its_copy_is_written() {
    let (gone, gone_when_written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (now, written) = (Arc::clone(&gone), Arc::clone(&gone_when_written));
    let hook = move |call, _: &Path, name: &str| {
        if call == Call::Write && name.ends_with(".log") {
            written.store(now.load(Relaxed), Relaxed);
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), Arc::new(hook));
    let environment = Environment { devices: Arc::new(devices), ..stepped_environment() };
    let db = environment.create(Path::new("/home"), &one_tier()).unwrap();
    db.put("key", Value(vec![7; 1000], Arc::clone(&gone))).unwrap();
    assert_eq!((gone.load(Relaxed), gone_when_written.load(Relaxed)), (1, 1));
}

#[test]
fn one_memtable_far_beyond_its_share_holds_writers_up_and_they_are_told_so() {
    let db = stepped(&Settings { memory: ByteSize::mib(8), ..one_tier() });
    db.put("large", vec![7; 12 << 20]).unwrap();
    db.put("small", "value").unwrap();
    let activity = db.stats().activity;
    assert!(activity.frozen_memtables == 1 && activity.stall_cause.is_some(), "{activity:?}");
    db.flush().unwrap();
    assert_eq!(db.stats().activity.stall_cause, None);
}
