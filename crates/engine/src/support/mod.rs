//! What tests of the engine's inside share: stores on devices in memory whose background work waits
//! to be stepped, so that a test says what happens, and when; and golden files.

use crate::jobs::{Job, Step, Stepper, Workers};
use crate::{
    ByteSize, Compression, Db, Environment, Experiments, HybridSettings, Preset, Settings, Tier,
};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::MemoryDevices;

#[allow(dead_code, reason = "shared with the tests of the engine's outside")]
#[path = "../../tests/reliability/hooked.rs"]
pub(crate) mod hooked;
#[path = "../../tests/guards/patience.rs"]
pub(crate) mod patience;
pub(crate) mod still_clock;

/// A tier in memory.
pub(crate) fn tier(path: &str, mib: u64) -> Tier {
    Tier::new(path, ByteSize::mib(mib)).driver("memory")
}

/// Settings of a store on one small tier.
pub(crate) fn one_tier() -> Settings {
    Settings { tiers: vec![tier("/tier", 64)], ..Settings::default() }
}

/// Settings of the preset `hybrid` over two small tiers, where slots are as large as what is put.
pub(crate) fn hybrid() -> Settings {
    let record_compression = Compression::None;
    Settings {
        preset: Some(Preset::Hybrid),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: vec![tier("/fast", 16), tier("/slow", 64)],
        ..Settings::default()
    }
}

/// Empty devices; only callers that have to wait for background work do any.
pub(crate) fn stepped_environment() -> Environment {
    Environment {
        devices: Arc::new(MemoryDevices::default()),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        clock: Arc::new(patience::PatientClock::default()),
        ..Environment::default()
    }
}

/// A new store whose background work waits to be stepped, opened with `experiments`.
pub(crate) fn stepped_with(experiments: Experiments, settings: &Settings) -> Db {
    let environment = Environment { experiments, ..stepped_environment() };
    environment.create(Path::new("/home"), settings).expect("memory holds any store")
}

/// A new store whose background work waits to be stepped.
pub(crate) fn stepped(settings: &Settings) -> Db {
    stepped_environment().create(Path::new("/home"), settings).expect("memory holds any store")
}

/// Everything is flushed, and nothing is left to do.
pub(crate) fn rest(db: &Db) {
    db.flush().expect("memory holds it");
    db.settle().expect("memory holds it");
}

/// Deletes records whose keys are these numbers.
pub(crate) fn delete(db: &Db, keys: impl Iterator<Item = u32>) {
    keys.for_each(|key| db.delete(key.to_be_bytes()).expect("memory holds it"));
}

/// Merges that the store has made.
pub(crate) fn merges(db: &Db) -> u64 {
    db.stats().operations.compactions
}

/// Nothing is merged any more, however often the planner is asked, and what is `held` stays.
pub(crate) fn assert_rests<T: PartialEq + Debug>(db: &Db, held: impl Fn(&Db) -> T) {
    let before = (merges(db), held(db));
    (0..10).for_each(|_| db.settle().expect("memory holds it"));
    assert_eq!((merges(db), held(db)), before);
}

/// Turns that a test takes before it fails: far more than any needs.
const TURNS_MAX: usize = 1 << 20;

/// Takes turns until one says that what is `awaited` is there. A test that would go on for ever
/// fails instead, and says what it waited for.
pub(crate) fn until(awaited: &str, mut turn: impl FnMut() -> bool) {
    let came = (0..TURNS_MAX).any(|_| turn());
    assert!(came, "{awaited}: not after {TURNS_MAX} turns");
}

/// Carries a job out to its end.
pub(crate) fn run_to_end(job: &mut dyn Job) {
    let name = job.name();
    until(&format!("the end of the job {name}"), || {
        job.step().expect("devices in memory fail where a test says so only") == Step::Done
    });
}

/// The golden file `name`, which must be what is `written` now. `THERMOCLINE_BLESS=1` writes it
/// anew.
#[allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
pub(crate) fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect();
    let read = || {
        if std::env::var_os("THERMOCLINE_BLESS").is_some() {
            std::fs::write(&path, written)?;
        }
        std::fs::read(&path)
    };
    let golden = read().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(golden == written, "{name} is not written as it was");
    golden
}
