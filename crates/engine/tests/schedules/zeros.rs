//! Zeros that go to the next log ahead of its records, while a writer takes that log.

use super::support::*;
use crate::{Db, Environment, Experiments, Settings};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::random::entropy;

/// Values that each fill a third of a memtable.
const WRITES: u64 = 6;

fn key(write: u64) -> [u8; 8] {
    write.to_be_bytes()
}

fn create(devices: &Arc<FragileDevices>, settings: &Settings) -> Db {
    let experiments = Experiments { log_zeros: Some(true), ..Experiments::NONE };
    let environment = Environment { experiments, ..environment(devices) };
    environment.create(Path::new(HOME), settings).unwrap()
}

/// A writer fills memtables with synced writes; the power goes a moment after one of them.
fn zeros_spare_records() {
    let devices = Arc::new(FragileDevices::default());
    let db = create(&devices, &settings());
    let last = WRITES - entropy() % 4;
    for write in 1..=last {
        db.put(key(write), value(write, BIG)).unwrap();
    }
    (0..entropy() % 16).for_each(|_| yield_now());
    let crashed = devices.after_crash();
    drop(db);
    let db = open(&crashed);
    for write in 1..=last {
        let found = db.get(key(write)).unwrap().map(|value| number(&value));
        assert_eq!(found, Some(write), "of {last} synced writes");
    }
}

#[test]
fn zeros_go_to_no_log_that_has_records() {
    check(1000, zeros_spare_records);
}

/// The tester tested.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_zeros_over_records() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::LogFilledInUse;
    let found = std::panic::catch_unwind(|| with(bug, || check(4000, zeros_spare_records)));
    assert!(found.is_err(), "4000 schedules do not show {}", bug.name());
}
