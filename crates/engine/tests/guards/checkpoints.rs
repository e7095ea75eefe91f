//! Copies beside writers: while a checkpoint copies, records are overwritten, deleted, flushed,
//! merged into tables and moved up again. The copy is intact, and has what was written up to some
//! point that is not before its beginning.
//!
//! The writing is done from within the checkpoint's own calls, wherever it makes or writes a file.

use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::{HOME, compact, hybrid, stepped_on};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use thermocline::{ByteSize, Db, Environment, Preset, Settings, WriteBatch};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::{Random, mix};

const KEYS: u64 = 400;
/// The number of the last batch, in every batch.
const LAST: &str = "last";

/// What batch `number` writes: a key, and its value or its end.
fn write_of(number: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = format!("key {:04}", mix(number) % KEYS).into_bytes();
    let value = (!mix(number ^ 7).is_multiple_of(5)).then(|| {
        let mut value = vec![0; 300 + (mix(number ^ 9) % 900) as usize];
        Random::new(number).fill(&mut value);
        value
    });
    (key, value)
}

/// What there is after batches 1 to `last`.
fn after(last: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    for (key, value) in (1..=last).map(write_of) {
        match value {
            Some(value) => drop(records.insert(key, value)),
            None => drop(records.remove(&key)),
        }
    }
    if last > 0 {
        records.insert(LAST.into(), last.to_be_bytes().to_vec());
    }
    records
}

struct World {
    /// None once the test is over.
    db: Mutex<Option<Db>>,
    written: AtomicU64,
    armed: AtomicBool,
    disturbed: AtomicU64,
}

impl World {
    fn db(&self) -> Db {
        self.db.lock().unwrap().clone().unwrap()
    }

    fn write(&self, count: u64) {
        let db = self.db();
        for _ in 0..count {
            let number = self.written.fetch_add(1, SeqCst) + 1;
            let (key, value) = write_of(number);
            let mut batch = WriteBatch::new();
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
            batch.put(LAST, number.to_be_bytes());
            db.write(batch).unwrap();
        }
    }

    /// Everything that can befall a slot or a table.
    fn disturb(&self) {
        let db = self.db();
        self.write(150);
        db.flush().unwrap();
        if self.disturbed.fetch_add(1, SeqCst).is_multiple_of(2) {
            compact(&db);
        }
        for number in 0..KEYS / 4 {
            for _ in 0..2 {
                db.get(format!("key {number:04}")).unwrap();
            }
        }
        db.settle().unwrap();
        self.write(150);
        db.flush().unwrap();
    }
}

fn check(environment: &Environment, place: &Path, least: u64, most: u64) {
    let copy = environment.open(place).unwrap();
    let what = place.display();
    let last = copy.get(LAST).unwrap().unwrap();
    let last = u64::from_be_bytes(last[..].try_into().unwrap());
    assert!((least..=most).contains(&last), "{what}: {last} of {least} to {most}");
    let right = after(last);
    let shown: BTreeMap<_, _> = copy
        .scan()
        .into_iter()
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(shown == right, "{what}: not what was written up to {last}");
    for (key, value) in &right {
        assert!(copy.get(key).unwrap().as_deref() == Some(value), "{what}: {key:?}");
    }
    let report = copy.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    copy.close().unwrap();
}

fn try_copies(preset: Preset) {
    let world = Arc::new(World {
        db: Mutex::default(),
        written: AtomicU64::new(0),
        armed: AtomicBool::new(false),
        disturbed: AtomicU64::new(0),
    });
    let seen = Arc::clone(&world);
    let hook: Hook = Arc::new(move |call: Call, path: &Path, _: &str| {
        let is_copy = path.to_string_lossy().starts_with("/copy");
        let copies = is_copy && matches!(call, Call::Create | Call::Write);
        if copies && seen.armed.swap(false, SeqCst) {
            seen.disturb();
            // The next call is disturbed too, up to a bound that ends the copying.
            seen.armed.store(!seen.disturbed.load(SeqCst).is_multiple_of(6), SeqCst);
        }
        Ok(())
    });
    let devices = HookedDevices::new(Arc::new(MemoryDevices::new()), hook);
    let environment = stepped_on(Arc::new(devices));
    let mut settings = Settings {
        preset: Some(preset),
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(64),
        ..hybrid()
    };
    settings.tiers[0].capacity = ByteSize::mib(8);
    *world.db.lock().unwrap() = Some(environment.create(Path::new(HOME), &settings).unwrap());
    for round in 0..4 {
        world.write(500);
        if round % 2 == 0 {
            world.db().flush().unwrap();
        }
        let least = world.written.load(SeqCst);
        world.armed.store(true, SeqCst);
        let place = format!("/copy{round}");
        world.db().checkpoint(&place).unwrap();
        world.armed.store(false, SeqCst);
        let most = world.written.load(SeqCst);
        assert!(most > least, "the checkpoint was disturbed");
        check(&environment, Path::new(&place), least, most);
    }
    let right = after(world.written.load(SeqCst));
    let db = world.db.lock().unwrap().take().unwrap();
    assert_eq!(db.scan().into_iter().count(), right.len());
    assert!(db.left_over().unwrap().is_empty(), "{:?}", db.left_over());
    db.close().unwrap();
}

#[test]
fn a_copy_beside_writers_has_what_was_written_up_to_some_point() {
    try_copies(Preset::Hybrid);
}

#[test]
fn a_copy_of_tables_beside_writers_has_what_was_written_up_to_some_point() {
    try_copies(Preset::Leveled);
}
