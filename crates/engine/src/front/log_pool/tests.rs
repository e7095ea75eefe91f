//! Zeros ahead of records, and a log that a writer makes itself.

use super::*;
use crate::support::hooked::{Call, HookedDevices};
use crate::support::{hybrid, one_tier, stepped_environment, until};
use crate::{ByteSize, Db, Environment, Experiments, Preset};
use std::path::Path;
use thermocline_device::MemoryDevices;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::threads;

/// Logs get zeros ahead on a file system that notes first writes; writes to logs fail where `full`
/// says so.
fn environment(full: &Arc<AtomicBool>, kind: std::io::ErrorKind) -> Environment {
    let full = Arc::clone(full);
    let hook = move |call, _: &Path, name: &str| {
        let fails = call == Call::Write && name.ends_with(".log") && full.load(Relaxed);
        match fails {
            true => Err(thermocline_device::Error::io("write", Path::new(name), &kind.into())),
            false => Ok(()),
        }
    };
    let memory = Arc::new(MemoryDevices::default());
    let devices = HookedDevices::new(memory, Arc::new(hook)).noting_first_writes();
    let experiments = Experiments { log_zeros: Some(true), ..Experiments::NONE };
    let devices = Arc::new(devices);
    Environment { devices, experiments, ..stepped_environment() }
}

fn store(settings: &Settings, full: &Arc<AtomicBool>, kind: std::io::ErrorKind) -> Db {
    environment(full, kind).create(Path::new("/home"), settings).unwrap()
}

fn noting(settings: &Settings) -> Db {
    store(settings, &Arc::default(), std::io::ErrorKind::Other)
}

fn durable(log_writes: u32) -> Settings {
    let durability = Durability::Sync;
    Settings { log_writes, durability, memory: ByteSize::mib(8), ..one_tier() }
}

fn pool(db: &Db) -> &LogPool {
    db.engine().front().logged().pool()
}

/// Puts records of so many bytes in all, and carries out what is worth doing.
fn put(db: &Db, bytes: u64) {
    for key in 0..bytes.div_ceil(1000) {
        db.put(key.to_be_bytes(), [7; 992]).unwrap();
    }
    db.settle().unwrap();
}

fn ready(db: &Db) -> Arc<LogFile> {
    pool(db).logs().ready.clone().unwrap()
}

/// Zeros in the ready log once a third of a log was written.
fn filled(db: &Db) -> u64 {
    put(db, db.engine().shared().settings.log_bytes() / 3);
    ready(db).written() - PAGE_BYTES as u64
}

#[test]
fn the_next_log_gets_zeros_where_writes_are_durable_one_by_one() {
    for log_writes in [1, 4] {
        let settings = durable(log_writes);
        let db = noting(&settings);
        let log_bytes = db.engine().shared().settings.log_bytes();
        assert_eq!(filled(&db), log_bytes - PAGE_BYTES as u64, "{log_writes} at once");
        let buffered = Settings { durability: Durability::Buffered, ..settings.clone() };
        assert_eq!(filled(&noting(&buffered)), 0, "writes that are not durable need none");
        let memory = stepped_environment().create(Path::new("/home"), &settings).unwrap();
        assert_eq!(filled(&memory), 0, "no note is made there");
    }
}

#[test]
fn no_log_gets_zeros_unless_an_experiment_asks() {
    let noting = environment(&Arc::default(), std::io::ErrorKind::Other);
    let unasked = Environment { experiments: Experiments::NONE, ..noting };
    let db = unasked.create(Path::new("/home"), &durable(1)).unwrap();
    assert_eq!(filled(&db), 0);
}

#[test]
fn a_store_with_few_durable_writes_fills_no_log() {
    let db = noting(&durable(1));
    put(&db, db.engine().shared().settings.log_bytes() / 5);
    assert_eq!(ready(&db).written(), PAGE_BYTES as u64);
}

/// What an earlier log wrote is not written again.
#[test]
fn a_log_that_is_used_again_gets_zeros_only_where_it_was_never_written() {
    let db = noting(&durable(1));
    let log_bytes = db.engine().shared().settings.log_bytes();
    put(&db, log_bytes / 3);
    let first = db.engine().front().enter().number();
    db.flush().unwrap();
    db.settle().unwrap();
    let retired = pool(&db).logs().retired.iter().find(|log| log.number == first).copied();
    let written = retired.unwrap().written;
    assert!((log_bytes / 3..log_bytes / 2).contains(&written), "{written} of {log_bytes}");
    // The log that was ready is in use, and the next one is the first again.
    until("a log that is used again", || {
        let before = db.stats().tiers[0].written_bytes;
        put(&db, 1000);
        db.flush().unwrap();
        db.settle().unwrap();
        let is_again = pool(&db).logs().retired.iter().all(|log| log.number != first);
        let zeros = log_bytes - written;
        let wrote = db.stats().tiers[0].written_bytes - before;
        assert!(!is_again || wrote < zeros + (200 << 10), "{wrote} for {zeros}");
        is_again
    });
    assert!(ready(&db).is_filled());
}

/// A writer that needs the log waits for the piece that is under way, and for no other.
#[test]
fn a_writer_waits_for_one_piece_of_zeros() {
    let db = noting(&durable(1));
    put(&db, 1000);
    let engine = Arc::clone(db.engine());
    assert!(pool(&db).claim_filling());
    assert!(!pool(&db).claim_filling(), "one thread at a time");
    assert!(!pool(&db).logs().to_fill.let_go(), "a piece is under way");
    pool(&db).fill().unwrap();
    assert!(!ready(&db).is_filled() && ready(&db).written() > PAGE_BYTES as u64);
    assert!(!pool(&db).claim_filling(), "a writer waits");
    let log = ready(&db);
    let rotated = threads::spawn("writer", move || engine.front().enter().rotate()).unwrap();
    rotated.join().unwrap().unwrap();
    assert_eq!(db.engine().front().enter().number(), log.number);
    assert!(!pool(&db).logs().to_fill.wanted && !pool(&db).claim_filling(), "it is in use");
}

#[test]
fn without_room_for_zeros_a_store_goes_on_and_tries_no_more() {
    let full = Arc::new(AtomicBool::new(false));
    let db = store(&durable(1), &full, std::io::ErrorKind::StorageFull);
    put(&db, 1000);
    assert!(pool(&db).claim_filling());
    full.store(true, Relaxed);
    pool(&db).fill().unwrap();
    full.store(false, Relaxed);
    assert!(!pool(&db).claim_filling());
    put(&db, 1000);
    db.flush().unwrap();
}

#[test]
fn zeros_that_cannot_be_written_stop_writing() {
    let full = Arc::new(AtomicBool::new(false));
    let db = store(&durable(1), &full, std::io::ErrorKind::Other);
    put(&db, db.engine().shared().settings.log_bytes() / 5);
    assert!(pool(&db).claim_filling());
    full.store(true, Relaxed);
    let error = pool(&db).fill().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn a_writer_that_finds_no_descriptor_for_a_log_is_told_and_figures_tell_it_too() {
    let short = Arc::new(AtomicBool::new(false));
    let hook = {
        let short = Arc::clone(&short);
        move |call, _: &Path, name: &str| {
            let fails = call == Call::Create && name.ends_with(".log") && short.load(Relaxed);
            let kind = DeviceErrorKind::TooManyOpenFiles;
            if fails { Err(DeviceError::new(kind, "no descriptor")) } else { Ok(()) }
        }
    };
    let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), Arc::new(hook));
    let environment = Environment { devices: Arc::new(devices), ..stepped_environment() };
    let settings = Settings { memory: ByteSize::mib(8), ..one_tier() };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    short.store(true, Relaxed);
    let put = || db.put("key", [7; 1000]);
    let error = (0..100_000).find_map(|_| put().err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::TooManyOpenFiles, "{error}");
    let shortage = || db.stats().activity.file_shortage;
    assert!(shortage().unwrap().contains("no descriptor"));
    db.settle().unwrap();
    assert!(put().is_err() && shortage().is_some(), "idleness does not end it");
    short.store(false, Relaxed);
    put().unwrap();
    db.settle().unwrap();
    assert_eq!((db.stats().read_only, shortage()), (None, None));
}

#[test]
fn a_log_has_room_for_a_group_of_several_batches() {
    for (preset, log_writes) in [(Preset::Leveled, 1), (Preset::Leveled, 4), (Preset::Hybrid, 1)] {
        for mib in [1, 2, 4, 8, 20, 64, 1024, 1 << 20] {
            let mut settings = Settings { preset: Some(preset), log_writes, ..hybrid() };
            settings.tiers[0].capacity = ByteSize::mib(mib);
            let bytes = settings.group_bytes();
            // A key and its value of no byte.
            let batches = bytes / 16;
            let (group, log) = (bytes_of_log(batches, bytes), settings.log_bytes());
            assert!(group <= log, "{group} of {log}, {preset:?} on {mib} MiB");
        }
    }
}
