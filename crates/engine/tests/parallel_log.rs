//! Groups of writes that go to the log side by side: nothing that was acknowledged is lost, over
//! full memtables, openings and failures of the device, in both presets.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "reliability/hooked.rs"]
mod hooked;

use hooked::{Call, HookedDevices};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use thermocline::{ByteSize, Db, Durability, Environment, ErrorKind, Preset, Settings, Tier};
use thermocline_device::{Error, MemoryDevices};

const WRITERS: u64 = 8;

fn settings(preset: Preset) -> Settings {
    Settings {
        preset: Some(preset),
        tiers: vec![
            Tier::new("/fast", ByteSize::mib(16)).driver("memory"),
            Tier::new("/slow", ByteSize::mib(256)).driver("memory"),
        ],
        memory: ByteSize::mib(4),
        log_writes: 4,
        background_threads: 1,
        ..Settings::default()
    }
}

fn environment(devices: HookedDevices) -> Environment {
    Environment { devices: Arc::new(devices), ..Environment::default() }
}

fn key(writer: u64, number: u64) -> String {
    format!("{writer}-{number:06}")
}

fn value(writer: u64, number: u64) -> Vec<u8> {
    vec![(writer + number) as u8; 40 + (number * 37 % 1500) as usize]
}

/// Every writer writes `count` records; how many of each were acknowledged.
fn write(db: &Db, count: u64, durability: fn(u64) -> Durability) -> Vec<u64> {
    std::thread::scope(|scope| {
        let writers = (0..WRITERS).map(|writer| {
            scope.spawn(move || {
                for number in 0..count {
                    let mut batch = thermocline::WriteBatch::new();
                    batch.put(key(writer, number), value(writer, number));
                    if let Err(error) = db.write_with(batch, durability(number)) {
                        let kind = error.kind();
                        assert!(matches!(kind, ErrorKind::Io | ErrorKind::ReadOnly), "{error}");
                        return number;
                    }
                    let found = db.get(key(writer, number)).unwrap();
                    assert_eq!(found.as_deref(), Some(&value(writer, number)[..]));
                }
                count
            })
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

fn check(db: &Db, acknowledged: &[u64]) {
    for (writer, count) in (0..).zip(acknowledged) {
        for number in 0..*count {
            let found = db.get(key(writer, number)).unwrap();
            assert_eq!(found.as_deref(), Some(&value(writer, number)[..]), "{writer} {number}");
        }
    }
}

#[test]
fn many_writers_over_full_memtables_find_everything_after_an_opening() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        for durability in [(|_| Durability::Sync) as fn(u64) -> Durability, |number| {
            if number % 3 == 0 { Durability::Sync } else { Durability::Buffered }
        }] {
            let devices = Arc::new(MemoryDevices::default());
            let hooked = HookedDevices::new(devices.clone(), Arc::new(|_, _, _| Ok(())));
            let environment = environment(hooked);
            let db = environment.create(Path::new("/home"), &settings(preset)).unwrap();
            let acknowledged = write(&db, 400, durability);
            assert_eq!(acknowledged, [400; WRITERS as usize]);
            db.flush().unwrap();
            check(&db, &acknowledged);
            let more = write(&db, 20, durability);
            db.close().unwrap();
            let db = environment.open(Path::new("/home")).unwrap();
            check(&db, &acknowledged);
            check(&db, &more);
        }
    }
}

#[test]
fn a_log_write_that_fails_stops_writing_and_takes_nothing_that_was_acknowledged() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        for fails_at in [1, 7, 40] {
            let devices = Arc::new(MemoryDevices::default());
            let writes = Arc::new(AtomicU64::new(u64::MAX / 2));
            let left = Arc::clone(&writes);
            let hook = move |call: Call, _: &Path, name: &str| {
                let fails = call == Call::Write && name.ends_with(".log");
                match fails && left.fetch_sub(1, SeqCst) <= 1 {
                    true => Err(Error::new(thermocline_device::ErrorKind::Io, "the device failed")),
                    false => Ok(()),
                }
            };
            let hooked = HookedDevices::new(devices.clone(), Arc::new(hook));
            let environment = environment(hooked);
            let db = environment.create(Path::new("/home"), &settings(preset)).unwrap();
            let before = write(&db, 10, |_| Durability::Sync);
            writes.store(fails_at, SeqCst);
            let acknowledged = write(&db, 60, |_| Durability::Sync);
            assert!(acknowledged.iter().sum::<u64>() < 60 * WRITERS, "it failed");
            assert!(db.put("later", "x").is_err(), "a failed log write stops all writing");
            check(&db, &acknowledged);
            drop(db);
            writes.store(u64::MAX / 2, SeqCst);
            let db = environment.open(Path::new("/home")).unwrap();
            check(&db, &before);
            check(&db, &acknowledged);
        }
    }
}
