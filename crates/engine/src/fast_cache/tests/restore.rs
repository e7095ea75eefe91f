//! Backups have neither files of the cache nor its list, and a restore leaves those that are there.

use super::{Db, HOME, KEYS, cache, cache_files, name, settings, stats, tier, value};
use crate::Environment;
use crate::support::stepped_environment;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation};

const DIRECTORIES: [&str; 3] = [HOME, "/fast", "/slow"];

/// Files of all directories by place and name.
type Backup = BTreeMap<(&'static str, String), Vec<u8>>;

fn is_of_cache(name: &str) -> bool {
    name.ends_with(".cache") || name == "cache-lives.txt"
}

fn backup(devices: &MemoryDevices) -> Backup {
    let mut backup = Backup::new();
    for directory in DIRECTORIES {
        let driver = devices.home(Path::new(directory)).unwrap();
        for entry in driver.list().unwrap() {
            if entry.name == "LOCK" || is_of_cache(&entry.name) {
                continue;
            }
            let file = driver.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(entry.len as usize);
            let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
            backup.insert((directory, entry.name), read.buffer.to_vec());
        }
    }
    backup
}

fn restore(devices: &MemoryDevices, backup: &Backup) {
    for directory in DIRECTORIES {
        let driver = devices.home(Path::new(directory)).unwrap();
        for entry in driver.list().unwrap() {
            if entry.name != "LOCK" && !is_of_cache(&entry.name) {
                driver.delete(&entry.name).unwrap();
            }
        }
    }
    for ((directory, name), bytes) in backup {
        let driver = devices.home(Path::new(directory)).unwrap();
        let file = driver.create(name).unwrap();
        let write = Operation::Write { offset: 0, buffer: Buffer::copy_of(bytes), durable: false };
        driver.execute(&file, write).result.unwrap();
    }
}

/// The value of a key in one of several pasts.
fn value_in(past: u64, key: u64) -> Vec<u8> {
    value(key + past * KEYS)
}

fn open(environment: &Environment) -> Db {
    let db = environment.open(Path::new(HOME)).unwrap();
    db.engine().shared().cache.set_capacity(0);
    db.settle().unwrap();
    db
}

/// Reads some records again and again, so that the cache has them.
fn read(db: &Db, past: u64) {
    for key in (0..3).flat_map(|_| 0..400) {
        assert!(db.get(name(key)).unwrap().unwrap() == value_in(past, key), "{past}, {key}");
        if key % 4 == 0 {
            db.settle().unwrap();
        }
    }
}

/// All records anew, in tables.
fn live(db: &Db, past: u64) {
    (0..4000).for_each(|key| db.put(name(key), value_in(past, key)).unwrap());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    read(db, past);
    assert!(stats(db).files > 2 && stats(db).hits > 100, "{:?}", stats(db));
}

#[test]
fn files_of_a_past_that_was_left_for_a_newer_backup_count_for_nothing() {
    let devices = MemoryDevices::default();
    let environment = Environment { devices: Arc::new(devices.clone()), ..stepped_environment() };
    let db = environment.create(Path::new(HOME), &settings(cache(2048))).unwrap();
    db.engine().shared().cache.set_capacity(0);
    live(&db, 1);
    db.close().unwrap();
    let older = backup(&devices);
    let db = open(&environment);
    assert!(stats(&db).adopted_files > 0);
    live(&db, 2);
    db.close().unwrap();
    let newer = backup(&devices);

    restore(&devices, &older);
    let db = open(&environment);
    read(&db, 1);
    live(&db, 3);
    db.close().unwrap();
    restore(&devices, &newer);
    let left = cache_files(&devices, &tier("/fast", 8)).len() as u64;
    let db = open(&environment);
    let told = stats(&db);
    assert_eq!((told.adopted_files, told.refused_files), (0, left), "{told:?}");
    assert!(left > 2);
    read(&db, 2);
    assert_eq!(stats(&db).failed, 0);
    db.close().unwrap();
}
