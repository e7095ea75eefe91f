//! Compactions of a store whose background work is stepped: which begin, in whose way they are, and
//! how fast they go.

use crate::compaction::leveled::{Busy, choose};
use crate::compaction::merge_job::MergeJob;
use crate::compaction::rewrite::STEP_BYTES;
use crate::compaction::selection::Selection;
use crate::compaction::targets::targets;
use crate::compaction::view::{View, Writing};
use crate::engine::Engine;
use crate::engine::background::Background;
use crate::jobs::{Lane, Planner};
use crate::limits::LEVELS;
use crate::support::hooked::{Call, HookedDevices};
use crate::support::still_clock::StillClock;
use crate::support::{one_tier, run_to_end, stepped, stepped_environment, tier, until};
use crate::{ByteSize, Db, Environment, Experiments, PlacementChoice, Preset, Settings};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::profile::Point;
use thermocline_device::{Curve, Devices, MemoryDevices, TierProfile};
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Clock, Counter, threads};

/// A clock whose sleepers look at what a worker would do meanwhile.
#[derive(Debug, Default)]
struct LookingClock {
    engine: Mutex<Option<Arc<Engine>>>,
    seen: Mutex<Vec<Option<&'static str>>>,
}

fn bulk_work(engine: &Arc<Engine>) -> Option<&'static str> {
    // A job that is dropped gives back what it claimed.
    Background(Arc::clone(engine)).plan(Lane::Bulk).map(|job| job.name())
}

impl Clock for LookingClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn wall_s(&self) -> u64 {
        0
    }
    fn sleep(&self, _: Duration) {
        if let Some(engine) = &*self.engine.lock() {
            self.seen.lock().push(bulk_work(engine));
        }
    }
}

#[test]
fn no_worker_begins_a_compaction_while_a_caller_waits_for_tables() {
    let clock = Arc::new(LookingClock::default());
    let environment = Environment { clock: clock.clone(), ..stepped_environment() };
    let settings = Settings { level0_tables: 1, ..one_tier() };
    let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
    let engine = Arc::clone(db.engine());
    until("a compaction to be done", || {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        bulk_work(&engine) == Some("compaction")
    });
    *clock.engine.lock() = Some(Arc::clone(&engine));
    let looks = std::cell::Cell::new(0);
    let choose = |_: &View<'_>| {
        looks.set(looks.get() + 1);
        if looks.get() < 4 { Err(Busy) } else { Ok(None) }
    };
    assert!(engine.leveled().claim(choose).unwrap().is_none());
    assert_eq!(*clock.seen.lock(), [None, None, None], "workers wait for the caller");
    assert_eq!(bulk_work(&engine), Some("compaction"), "and no longer");
    *clock.engine.lock() = None;
}

/// What is selected now, as if nothing was ever calm.
fn selected(db: &Db) -> Option<Selection> {
    let engine = db.engine();
    let tables = engine.versions().tables();
    let version = engine.versions().current();
    choose(&View { writing: Writing::GoesOn, ..engine.leveled().view(&version, &tables.claims) })
}

/// A selection, claimed, as a job.
fn begin(db: &Db, selection: Selection) -> MergeJob {
    let (shared, versions) = (db.engine().shared(), db.engine().versions());
    let claimed = versions.claim(&mut versions.tables(), selection.claim()).unwrap();
    MergeJob::new(shared, versions, claimed, selection)
}

/// A compaction of a level below 0 that rewrites something, once there is one.
fn deep_selection(db: &Db, random: &mut Random) -> Selection {
    let mut value = vec![0; 1000];
    for _ in 0..60_000 {
        random.fill(&mut value);
        db.put(random.next_u64().to_be_bytes(), &value).unwrap();
        let is_deep = |selection: &Selection| {
            let rewrites = selection.upper().count() < selection.inputs.len();
            selection.source_level() > 0 && rewrites && selection.bytes() >= 3 * STEP_BYTES
        };
        if let Some(selection) = selected(db).filter(is_deep) {
            return selection;
        }
    }
    panic!("no level below 0 was ever too large");
}

/// Nanoseconds that a compaction naps until it is done.
fn naps(clock: &StillClock, compaction: &mut MergeJob) -> u64 {
    let start_ns = clock.now_ns();
    run_to_end(compaction);
    clock.now_ns() - start_ns
}

/// A store with a compaction below level 0 to be done, while flushes bring 1 MiB a second and
/// the levels are not behind.
fn with_deep_compaction() -> (Db, Arc<StillClock>, MergeJob) {
    let clock = Arc::new(StillClock::default());
    let environment = Environment { clock: clock.clone(), ..stepped_environment() };
    let settings = Settings {
        memory: ByteSize::mib(4),
        table_size: ByteSize::mib(1),
        level_ratio: 3,
        tiers: vec![tier("/tier", 1 << 10)],
        ..Settings::default()
    };
    let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
    let compaction = begin(&db, deep_selection(&db, &mut Random::new(1)));
    let rate = &db.engine().shared().compaction_rate;
    // What was flushed to come here took no time.
    for _ in 0..300 {
        clock.sleep(Duration::from_secs(1));
        rate.flushed(1 << 20);
    }
    rate.set_levels(20.0, false);
    assert_eq!(rate.rate(), Some(30 << 20));
    (db, clock, compaction)
}

#[test]
fn a_compaction_below_level_0_keeps_to_the_tempo_unless_somebody_waits_for_it() {
    let (_db, clock, mut compaction) = with_deep_compaction();
    let steps = compaction.selection().bytes() / STEP_BYTES;
    let ns = naps(&clock, &mut compaction);
    let least_ns = (steps - 1) * 1_000_000_000 / 30;
    assert!(ns >= least_ns, "{ns} ns for {steps} steps, {least_ns} are due");

    let (db, clock, mut compaction) = with_deep_compaction();
    let hurry = db.engine().shared().compaction_rate.hurry();
    assert_eq!(naps(&clock, &mut compaction), 0, "a caller waits");
    drop(hurry);

    let (db, clock, mut compaction) = with_deep_compaction();
    db.flush().unwrap();
    assert_eq!(naps(&clock, &mut compaction), 0, "nothing is being written");
}

#[test]
fn upper_levels_on_a_fast_tier_have_room_once_nothing_is_written() {
    let settings = Settings {
        memory: ByteSize::mib(4),
        table_size: ByteSize::mib(1),
        preset: Some(Preset::Leveled),
        tiers: vec![tier("/fast", 12), tier("/slow", 1 << 10)],
        ..Settings::default()
    };
    let db = stepped(&settings);
    let (mut random, mut value) = (Random::new(3), vec![0; 1000]);
    for _ in 0..40_000 {
        random.fill(&mut value);
        db.put(random.next_u64().to_be_bytes(), &value).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let levels = Arc::clone(&db.engine().versions().current().levels);
    let targets = targets(&levels, &settings);
    let base = targets.base;
    let upper = base..LEVELS - 1;
    assert!(upper.len() >= 2, "several levels: {:?}", targets);
    assert!(levels.level_bytes(0) * 4 <= levels.level_bytes(base));
    for level in upper {
        let (bytes, target) = (levels.level_bytes(level), targets.bytes[level]);
        assert!(bytes * 4 < target * 3, "level {level} has {bytes} of {target} bytes");
    }
    db.close().unwrap();
}

/// Flushes a table of `value` under `key` without letting a compaction begin.
fn flush_one(db: &Db, key: &str, value: Option<&str>) {
    db.engine().versions().tables().claims.line_up();
    match value {
        Some(value) => db.put(key, value).unwrap(),
        None => db.delete(key).unwrap(),
    }
    db.flush().unwrap();
    db.engine().versions().tables().claims.leave_line();
}

#[test]
fn a_lookup_in_a_table_that_was_just_flushed_reads_no_partition() {
    let db = stepped(&one_tier());
    flush_one(&db, "key", Some("value"));
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    let classes = db.stats().cache.classes;
    assert_eq!(classes["data"].misses, 1, "memory has no records");
    assert_eq!((classes["index"].misses, classes["filter"].misses), (0, 0));
    db.close().unwrap();
}

#[test]
fn new_tables_of_a_full_level_0_are_merged_with_each_other_while_its_way_down_is_taken() {
    let settings = Settings { level0_tables: 2, level0_slowdown: 6, ..one_tier() };
    let db = stepped(&settings);
    let engine = Arc::clone(db.engine());
    for (key, value) in [("a", "1"), ("b", "1"), ("c", "1")] {
        flush_one(&db, key, Some(value));
    }
    let down = selected(&db).unwrap();
    assert_eq!((down.source_level(), down.inputs.len()), (0, 3));
    assert!(down.output_level > 0, "an empty way down is taken whole");
    let mut down = begin(&db, down);
    flush_one(&db, "a", None);
    assert!(selected(&db).is_none(), "one new table has none to be merged with");
    flush_one(&db, "b", Some("2"));
    let newest = selected(&db).unwrap();
    assert_eq!((newest.source_level(), newest.output_level, newest.inputs.len()), (0, 0, 2));
    let mut merge = begin(&db, newest);
    run_to_end(&mut merge);
    drop(merge);
    assert_eq!(engine.versions().current().levels.level(0).len(), 4);
    let get = |key: &str| db.get(key).unwrap().map(|value| value.to_vec());
    let expected = [None, Some(b"2".to_vec()), Some(b"1".to_vec())];
    assert_eq!(["a", "b", "c"].map(get), expected, "the delete hides what is below it still");
    // The way down is free again; what was older goes down first.
    run_to_end(&mut down);
    drop(down);
    assert_eq!(["a", "b", "c"].map(get), expected);
    db.close().unwrap();
}

#[test]
fn levels_leave_the_fast_tier_while_much_of_its_bandwidth_is_used_and_come_back() {
    let clock = Arc::new(StillClock::default());
    let environment = Environment { clock: clock.clone(), ..stepped_environment() };
    let settings = Settings {
        preset: Some(Preset::Leveled),
        memory: ByteSize::mib(4),
        tiers: vec![tier("/fast", 256), tier("/slow", 1 << 10)],
        placement: PlacementChoice::Bandwidth,
        bandwidth_peak: ByteSize::mib(1),
        ..Settings::default()
    };
    let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
    // Three seconds in which so many records of 64 KiB come; tells the levels afterwards, and on
    // which tier the next flush lands.
    let pass = |records: u64| {
        for key in 0..records {
            db.put(key.to_be_bytes(), vec![b'v'; 64 << 10]).unwrap();
        }
        clock.sleep(Duration::from_secs(3));
        flush_one(&db, "tick", Some("value"));
        flush_one(&db, "next", Some("value"));
        let engine = db.engine();
        let newest = engine.versions().current().levels.level(0)[0].meta.number;
        let files = engine.shared().files.files();
        let found = files.into_iter().find(|file| file.number == newest);
        (engine.shared().placement.fast_levels(), found.unwrap().tier.0)
    };
    assert_eq!(pass(0), (Some(2), 0), "little was used");
    assert_eq!(pass(200), (Some(1), 0), "more than 1 MiB a second");
    assert_eq!(pass(200), (Some(0), 1), "the log is left the tier");
    assert_eq!(pass(200), (Some(0), 1));
    assert_eq!(pass(0), (Some(1), 0), "and shares it again");
    db.close().unwrap();
}

#[test]
fn a_profile_says_what_the_fast_tier_can_move_at_least() {
    // Some 10 MiB a second, against 128 and then against a GiB.
    for (profiled_mib, percent, levels) in [
        (None, 40, Some(2)),
        (Some(1), 40, Some(2)),
        (None, 3, Some(0)),
        (Some(1 << 10), 3, Some(2)),
    ] {
        let (clock, devices) = (Arc::new(StillClock::default()), MemoryDevices::default());
        devices.create_directory(Path::new("/fast")).unwrap();
        if let Some(mib) = profiled_mib {
            let point = Point { workers: 1, bytes_per_s: mib << 20 };
            let profile = TierProfile { write: Curve::new(vec![point]), ..TierProfile::default() };
            profile.write(&*devices.home(Path::new("/fast")).unwrap()).unwrap();
        }
        let (devices, stepped) = (Arc::new(devices), stepped_environment());
        let environment = Environment { clock: clock.clone(), devices, ..stepped };
        let settings = Settings {
            preset: Some(Preset::Leveled),
            memory: ByteSize::mib(4),
            tiers: vec![tier("/fast", 256), tier("/slow", 1 << 10)],
            placement: PlacementChoice::Bandwidth,
            bandwidth_low: percent,
            bandwidth_high: percent,
            ..Settings::default()
        };
        let db: Db = environment.create(Path::new("/home"), &settings).unwrap();
        for key in 0..200_u64 {
            db.put(key.to_be_bytes(), vec![b'v'; 64 << 10]).unwrap();
        }
        clock.sleep(Duration::from_secs(3));
        flush_one(&db, "tick", Some("value"));
        flush_one(&db, "next", Some("value"));
        let found = db.engine().shared().placement.fast_levels();
        assert_eq!(found, levels, "{profiled_mib:?} MiB a second, {percent} %");
        db.close().unwrap();
    }
}

/// Writes that the table of a flush takes, while each of them meets a synced write of the log.
fn writes_of_a_flush(log_first: Option<bool>) -> u64 {
    let writes = Arc::new(Counter::default());
    let writer: Arc<Mutex<Option<Db>>> = Arc::default();
    let (counted, beside) = (Arc::clone(&writes), Arc::clone(&writer));
    let hook = move |call, _: &Path, name: &str| {
        let db = beside.lock().clone();
        if let Some(db) = db.filter(|_| call == Call::Write && name.ends_with(".table")) {
            counted.add(1);
            // The flush is not what waits for this write.
            let write = move || db.put("beside", "a flush").unwrap();
            threads::spawn("writer", write).unwrap().join().unwrap();
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), Arc::new(hook));
    let experiments = Experiments { log_first, ..Experiments::NONE };
    let devices = Arc::new(devices);
    let environment = Environment { devices, experiments, ..stepped_environment() };
    let db: Db = environment.create(Path::new("/home"), &one_tier()).unwrap();
    for key in 0..40u64 {
        db.put(key.to_be_bytes(), vec![b'v'; 10 << 10]).unwrap();
    }
    *writer.lock() = Some(db.clone());
    db.flush().unwrap();
    let writes = writes.get();
    writer.lock().take();
    writes
}

#[test]
fn a_flush_goes_in_pieces_beside_synced_writes_unless_that_is_left_out() {
    // 400 KiB, padded to pages: 64, 256 and the rest; or pieces of 64.
    assert_eq!([None, Some(true), Some(false)].map(writes_of_a_flush), [8, 8, 3]);
}
