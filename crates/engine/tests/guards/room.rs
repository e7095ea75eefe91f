//! Room in the middle of work: from within the calls of a bulk load and of a change of slot sizes
//! the tiers are filled until they refuse. Their use stays within their capacities, what was at
//! work succeeds or is refused, and goes on once there is room again.

use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::{HOME, hybrid, stepped_on};
use std::path::Path;
use std::sync::{Arc, Mutex};
use thermocline::{ByteSize, Db, Environment, ErrorKind, HybridSettings, Ingest, Preset, Settings};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;

/// Records of this size fill the tiers; as many as there may be.
const FILLING_BYTES: usize = 8 << 10;
const FILLING_MAX: u64 = 4_000;

/// Fills the tiers of a store once, from within a call.
#[derive(Default)]
struct Filler {
    /// The store, and the end of the name of the file that is written then; none at other times.
    armed: Mutex<Option<(Db, &'static str)>>,
    /// The load that has taken what was left.
    load: Mutex<Option<Ingest>>,
}

impl Filler {
    fn pass(&self, call: Call, name: &str) {
        let db = {
            let mut armed = self.armed.lock().unwrap();
            let is_here =
                call == Call::Write && armed.as_ref().is_some_and(|it| name.ends_with(it.1));
            is_here.then(|| armed.take()).flatten()
        };
        let Some((db, _)) = db else { return };
        let mut load = db.ingest();
        let refused = (0..FILLING_MAX).find_map(|number| {
            load.add(format!("~{number:06}"), value(number, FILLING_BYTES)).err()
        });
        assert_eq!(refused.expect("the tiers are full").kind(), ErrorKind::OutOfSpace);
        assert_within(&db);
        *self.load.lock().unwrap() = Some(load);
    }

    fn arm(&self, db: &Db, end: &'static str) {
        *self.armed.lock().unwrap() = Some((db.clone(), end));
    }

    /// Gives the room back.
    fn leave(&self) {
        assert!(self.armed.lock().unwrap().is_none(), "the call did not come");
        *self.load.lock().unwrap() = None;
    }
}

/// Empty devices with a filler inside.
fn machine() -> (Environment, Arc<Filler>) {
    let filler = Arc::new(Filler::default());
    let inside = Arc::clone(&filler);
    let hook: Hook = Arc::new(move |call: Call, _: &Path, name: &str| {
        inside.pass(call, name);
        Ok(())
    });
    let devices = HookedDevices::new(Arc::new(MemoryDevices::new()), hook);
    (stepped_on(Arc::new(devices)), filler)
}

/// Two small tiers.
fn settings(preset: Preset) -> Settings {
    let mut settings = Settings {
        preset: Some(preset),
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(256),
        hybrid: HybridSettings { high_watermark_percent: 90, ..hybrid().hybrid },
        ..hybrid()
    };
    settings.tiers[0].capacity = ByteSize::mib(4);
    settings.tiers[1].capacity = ByteSize::mib(12);
    settings
}

/// What the file map takes comes beside what is placed.
fn assert_within(db: &Db) {
    for tier in db.stats().tiers {
        let map_bytes = tier.bytes_by_kind.get("map").copied().unwrap_or(0);
        assert!(tier.used_bytes - map_bytes <= tier.capacity_bytes, "{tier:?}");
    }
}

fn key(number: u64) -> String {
    format!("key {number:05}")
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Random::new(number << 20 | bytes as u64).fill(&mut value);
    value
}

fn check(db: &Db, records: u64, bytes: impl Fn(u64) -> usize) {
    for number in 0..records {
        let found = db.get(key(number)).unwrap();
        assert!(found.is_some_and(|found| found == value(number, bytes(number))), "{number}");
    }
    let left = db.left_over().unwrap();
    assert!(left.is_empty(), "{left:?}");
    assert!(db.verify(&mut |_| {}).unwrap().problems.is_empty());
}

#[test]
fn a_bulk_load_has_the_room_that_it_was_promised_or_is_refused() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let (environment, filler) = machine();
        let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
        let load = |is_filled: bool| -> thermocline::Result<()> {
            let mut load = db.ingest();
            for number in 0..1500 {
                if number == 700 && is_filled {
                    filler.arm(&db, ".table");
                }
                load.add(key(number), value(number, 1000))?;
            }
            load.finish()
        };
        let refused = load(true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{preset:?}: {refused}");
        assert_within(&db);
        filler.leave();
        load(false).unwrap();
        assert_within(&db);
        check(&db, 1500, |_| 1000);
    }
}

#[test]
fn a_change_of_slot_sizes_keeps_to_the_capacity_of_a_tier_that_is_filled_meanwhile() {
    let (environment, filler) = machine();
    let db = environment.create(Path::new(HOME), &settings(Preset::Hybrid)).unwrap();
    (0..1000).for_each(|number| db.put(key(number), value(number, 1000)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    filler.arm(&db, ".slab");
    // Slots of another size are wanted, and no record can leave: writers are told, and may go on.
    let (mut written, mut refused) = (0, None);
    while written < 1000 && refused.is_none() {
        match db.put(key(written), value(written, 3000)) {
            Ok(()) => written += 1,
            Err(error) => refused = Some(error),
        }
    }
    let refused = refused.or_else(|| db.flush().err()).expect("there is no room");
    assert!(refused.to_string().contains("no tier has room"), "{refused}");
    assert_within(&db);
    filler.leave();
    assert_eq!(db.stats().read_only, None, "there is room again");
    for number in written..1000 {
        db.put(key(number), value(number, 3000)).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    assert_within(&db);
    check(&db, 1000, |_| 3000);
}
