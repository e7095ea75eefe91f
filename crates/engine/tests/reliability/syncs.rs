//! Syncs whose absence no history of the simulation shows, because something must happen at one
//! moment, or because it is asked nowhere else: each test fails without one of them
//! (docs/decisions/0074-every-sync.md).

use crate::faults::without_room;
use crate::history::scan;
use crate::hooked::{Call, Hook, HookedDevices};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use thermocline::{ByteSize, Db, Durability, Environment, Settings, Stepper, Workers, WriteBatch};
use thermocline_device::Devices;

/// Devices on which only callers that wait do background work, and [`Db::settle`].
fn stepped(devices: impl Devices + 'static) -> Environment {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    Environment { workers, ..environment(devices) }
}

fn put(db: &Db, number: usize, durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(format!("key{number:03}"), [number as u8; 1000]);
    db.write_with(batch, durability).unwrap();
}

/// The keys after loss of power.
fn numbers_after(devices: &SimulatedDevices, fate: Fate) -> Vec<usize> {
    let db = environment(devices.after_power_cut(fate)).open(&home()).unwrap();
    let number = |key: &[u8]| std::str::from_utf8(&key[3..]).unwrap().parse().unwrap();
    scan(&db).unwrap().keys().map(|key| number(key)).collect()
}

/// A write with a sync while a flush is at work, which has ended its log and made a file that ends
/// with `extension`, and has not raised the floor. A part of the log's end would be taken for a
/// torn record, and what the write acknowledged follows it.
fn writes_within_a_flush(settings: &Settings, extension: &'static str) {
    let devices = SimulatedDevices::new(Fault::None);
    let writer: Arc<Mutex<Option<Db>>> = Arc::default();
    let after: Arc<Mutex<Vec<Vec<usize>>>> = Arc::default();
    let (inner, taken, found) = (devices.clone(), Arc::clone(&writer), Arc::clone(&after));
    let has_file = move |devices: &SimulatedDevices| {
        names(devices, Path::new(TIERS[0])).iter().any(|name| name.ends_with(extension))
    };
    let hook: Hook = Arc::new(move |call, _, _| {
        let is_there = call == Call::SyncDirectory && has_file(&inner);
        if let Some(db) = is_there.then(|| taken.lock().unwrap().take()).flatten() {
            put(&db, 1, Durability::Sync);
            let fates = (0..32).map(Fate::Any).chain([Fate::Lost]);
            found.lock().unwrap().extend(fates.map(|fate| numbers_after(&inner, fate)));
        }
        Ok(())
    });
    let hooked = HookedDevices::new(Arc::new(devices.clone()), hook);
    let db = stepped(hooked).create(&home(), settings).unwrap();
    put(&db, 0, Durability::Buffered);
    assert!(!has_file(&devices), "the flush is what makes it");
    *writer.lock().unwrap() = Some(db.clone());
    db.flush().unwrap();
    let after = std::mem::take(&mut *after.lock().unwrap());
    assert_eq!(after.len(), 33, "there was a write within the flush");
    assert!(after.iter().all(|numbers| *numbers == [0, 1]), "{after:?}");
    db.close().unwrap();
}

/// `flush/end-mark`.
#[test]
fn what_is_written_durably_while_a_flush_is_at_work_follows_a_whole_log() {
    writes_within_a_flush(&settings(), ".table");
    writes_within_a_flush(&hybrid_settings(), ".slab");
}

/// `background/newest-log`.
#[test]
fn a_power_cut_takes_no_more_than_the_bound_of_what_was_written_without_a_sync() {
    for log_writes in [1, 4] {
        let devices = SimulatedDevices::new(Fault::None);
        let settings = Settings { log_writes, memory: ByteSize::mib(16), ..settings() };
        let db = stepped(devices.clone()).create(&home(), &settings).unwrap();
        // Less than what a writer would not wait for.
        let count = settings.background_sync_bytes.0 as usize * 3 / 2 / 1000;
        (0..count).for_each(|number| put(&db, number, Durability::Buffered));
        assert_eq!(numbers_after(&devices, Fate::Lost), [0; 0], "no writer synced");
        db.settle().unwrap();
        let kept = numbers_after(&devices, Fate::Lost);
        let lost_bytes = (count - kept.len()) * 1000;
        assert!(lost_bytes as u64 <= settings.background_sync_bytes.0, "{lost_bytes}");
        assert!(kept.into_iter().eq(0..count - lost_bytes / 1000), "the first of them");
        db.close().unwrap();
    }
}

/// `read-only/logs`; with the preset `hybrid` the sync of `replayed-logs` comes first.
#[test]
fn what_an_opening_without_room_shows_is_there_after_a_power_cut() {
    for settings in [settings(), hybrid_settings()] {
        let first = SimulatedDevices::new(Fault::None);
        let db = environment(first.clone()).create(&home(), &settings).unwrap();
        (0..20).for_each(|number| put(&db, number, Durability::Buffered));
        let killed = first.after_kill();
        drop(db);
        let (devices, on) = without_room(killed.clone());
        on.store(1, SeqCst);
        let db = environment(devices).open(&home()).unwrap();
        assert!(db.stats().read_only.is_some(), "there is no room for what the log has");
        assert_eq!(scan(&db).unwrap().len(), 20);
        assert!(numbers_after(&killed, Fate::Lost).into_iter().eq(0..20), "it was shown");
        db.close().unwrap();
    }
}
