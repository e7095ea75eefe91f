//! The cache writes one line to the log for a file of an earlier opening that it cannot use, and
//! one where all such files are gone.

use super::{Db, Environment, HOME, cache, cache_files, check, settings, store, tier};
use crate::support::stepped_environment;
use std::fmt::{Debug, Write};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation, TierSpec};
use thermocline_foundation::sync::Mutex;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The lines that a thread logs.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            let _ = write!(line, "{field}={value:?} ");
        });
        self.0.lock().push(line);
    }
}

/// Opens the store, and gives what the log says of its cache's files.
fn opened(environment: &Environment) -> (Db, Vec<String>) {
    let lines = Lines::default();
    let db = tracing::subscriber::with_default(lines.clone(), || {
        let db = environment.open(Path::new(HOME)).unwrap();
        db.settle().unwrap();
        db
    });
    let mut lines = lines.0.lock().clone();
    lines.retain(|line| line.contains("of the block cache"));
    (db, lines)
}

#[test]
fn a_file_that_does_not_count_and_files_that_are_not_there_are_a_line_in_the_log() {
    let devices = MemoryDevices::default();
    let environment = Environment { devices: Arc::new(devices.clone()), ..stepped_environment() };
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    db.close().unwrap();
    let fast = tier("/fast", 8);
    let spec = TierSpec { path: fast.path.clone(), capacity: fast.capacity, driver: fast.driver };
    let driver = devices.tier(&spec).unwrap();
    let names = || cache_files(&devices, &tier("/fast", 8)).into_iter().map(|(name, _)| name);
    let (db, lines) = opened(&environment);
    assert_eq!(lines, [""; 0], "all of them count");
    db.close().unwrap();

    let torn = names().next().unwrap();
    let file = driver.open(&torn).unwrap();
    let offset = file.len().unwrap() - 4096;
    let write = Operation::Write { offset, buffer: Buffer::zeroed(4096), durable: false };
    driver.execute(&file, write).result.unwrap();
    let (db, lines) = opened(&environment);
    assert!(lines.len() == 1 && lines[0].contains("does not count"), "{lines:?}");
    check(&db, 0..50);
    db.close().unwrap();

    assert!(names().count() > 0);
    names().for_each(|name| driver.delete(&name).unwrap());
    let (db, lines) = opened(&environment);
    assert!(lines.len() == 1 && lines[0].contains("starts cold"), "{lines:?}");
    check(&db, 0..50);
    db.close().unwrap();

    let without = settings(crate::FastCacheSettings::default());
    let environment = stepped_environment();
    let db = environment.create(Path::new("/home"), &without).unwrap();
    db.close().unwrap();
    assert_eq!(opened(&environment).1, [""; 0], "there never was a cache");
}
