//! Syncs whose absence no history of the simulation shows, because something must happen at one
//! moment, or because it is asked nowhere else: each test fails without one of them
//! (docs/decisions/0074-every-sync.md).

use crate::faults::without_room;
use crate::history::scan;
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
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
fn numbers_after(devices: &SimulatedDevices) -> Vec<usize> {
    let db = environment(devices.after_power_cut(Fate::Lost)).open(&home()).unwrap();
    let number = |key: &[u8]| std::str::from_utf8(&key[3..]).unwrap().parse().unwrap();
    scan(&db).unwrap().keys().map(|key| number(key)).collect()
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
        assert_eq!(numbers_after(&devices), [0; 0], "no writer synced");
        db.settle().unwrap();
        let kept = numbers_after(&devices);
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
        assert!(numbers_after(&killed).into_iter().eq(0..20), "it was shown");
        db.close().unwrap();
    }
}
