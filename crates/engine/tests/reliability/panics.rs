//! A panic at every device call of a background thread: writing stops and says why, nobody waits
//! for ever, reads go on, and reopening finds all that was acknowledged.

use crate::history::scan;
use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use thermocline::{Db, Durability, ErrorKind, Preset, Settings, WriteBatch};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::sync::Mutex;

/// Background work as the error names it.
const JOBS: [&str; 11] = [
    "planning",
    "flush",
    "background sync of the log",
    "preparation of a log",
    "deletion of tables",
    "compaction",
    "migration",
    "demotion",
    "promotion",
    "sweep for clean copies",
    "change of slot sizes",
];

/// Devices that panic at one call of a background thread, and what they panicked at.
struct Panics {
    /// Calls before it; negative once it is over, and before it begins.
    left: AtomicI64,
    said: Mutex<Option<String>>,
}

impl Panics {
    fn new() -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(-1), said: Mutex::new(None) })
    }

    fn devices(self: &Arc<Self>, memory: &MemoryDevices) -> HookedDevices {
        let panics = Arc::clone(self);
        let hook: Hook = Arc::new(move |call: Call, _, name| {
            let thread = std::thread::current();
            let is_worker = thread.name().is_some_and(|name| name.starts_with("thermocline-"));
            if is_worker && panics.left.load(SeqCst) >= 0 && panics.left.fetch_sub(1, SeqCst) == 0 {
                let text = format!("no more at {call:?} of '{name}'");
                *panics.said.lock() = Some(text.clone());
                panic!("{text}");
            }
            Ok(())
        });
        HookedDevices::new(Arc::new(memory.clone()), hook)
    }
}

/// Keys written so far, each with what may be found under it: what was acknowledged last or later.
fn write_until_error(
    db: &Db,
    random: &mut Random,
    written: &mut u64,
) -> Option<thermocline::Error> {
    let mut value = vec![0; 3000];
    for _ in 0..2500 {
        // Nothing that compression makes small.
        random.fill(&mut value);
        value[..8].copy_from_slice(&(*written + 1).to_le_bytes());
        let mut batch = WriteBatch::new();
        batch.put(key(*written + 1), &value);
        batch.put("newest", (*written + 1).to_le_bytes());
        if let Err(error) = db.write_with(batch, Durability::Buffered) {
            return Some(error);
        }
        *written += 1;
    }
    None
}

/// Every key is written again and again.
fn key(number: u64) -> String {
    format!("key{:05}", mix(number % 1500))
}

/// The store shows a prefix of what was written, with at least `written` writes.
fn check(db: &Db, written: u64, what: &str) {
    let found = scan(db).unwrap_or_else(|error| panic!("{what}: {error}"));
    let number = |value: &[u8]| u64::from_le_bytes(value[..8].try_into().unwrap());
    let newest = found.get(&b"newest"[..]).map_or(0, |value| number(value));
    assert!(newest >= written, "{what}: {newest} of {written}");
    for last in (newest.saturating_sub(1499)..=newest).filter(|number| *number > 0) {
        let value = found.get(key(last).as_bytes()).unwrap_or_else(|| panic!("{what}: {last}"));
        assert_eq!(number(value), last, "{what}");
    }
}

/// A store in which the call `at` of background threads panics, if there are so many.
fn run_with_panic(settings: &Settings, at: u64) -> bool {
    let what = format!("{:?}, a panic at call {at}", settings.preset);
    let (memory, panics) = (MemoryDevices::new(), Panics::new());
    let db = environment(panics.devices(&memory)).create(&home(), settings).unwrap();
    let (mut random, mut written) = (Random::new(at), 0);
    panics.left.store(at as i64, SeqCst);
    let mut error = write_until_error(&db, &mut random, &mut written);
    // None of these may wait for ever.
    error = error.or_else(|| db.flush().err());
    error = error.or_else(|| db.compact_range(None, None, &mut |_| ()).err());
    error = error.or_else(|| db.settle().err());
    let struck = panics.left.swap(-1, SeqCst) < 0;
    check(&db, written, &what);
    if struck {
        let said = panics.said.lock().clone().unwrap();
        let error = error.unwrap_or_else(|| panic!("{what}: nobody hears of it: {said}"));
        // Who was caught between the panic and its end hears less, and who waited for the log with
        // it hears of the log.
        if error.to_string().contains("panicked:") {
            assert_says(&error, &[&said]);
        }
        for error in [
            db.put("x", "y").unwrap_err(),
            db.flush().unwrap_err(),
            db.compact_range(None, None, &mut |_| ()).unwrap_err(),
            db.settle().unwrap_err(),
            db.close().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}");
            let text = error.to_string();
            let named = JOBS.iter().any(|job| text.contains(&format!("job '{job}' panicked")));
            // Who waits for the log with it may be the first to say so.
            assert!(named || text.contains(".log (tier 0, /fast) panicked"), "{what}: {text}");
            assert_says(&error, &[&said, "open it"]);
        }
    } else {
        assert!(error.is_none(), "{what}: {error:?}");
        db.close().unwrap();
    }
    let db = environment(memory.clone()).open(&home());
    let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
    check(&db, written, &what);
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    db.put("x", "writes resume").unwrap();
    db.flush().unwrap();
    if let Some(leak) = leaks(&memory, &db) {
        panic!("{what}: {leak}");
    }
    db.close().unwrap();
    struck
}

fn sweep(settings: &Settings) {
    let mut struck = 0;
    for seed in first_seed()..first_seed() + rounds(30) {
        // The first calls, and some of the many after them.
        let at = if seed.is_multiple_of(2) { seed } else { Random::new(seed).below(1500) };
        struck += u64::from(run_with_panic(settings, at));
    }
    assert!(struck >= rounds(20), "only {struck} panicked");
}

#[test]
fn a_panic_of_a_background_job_stops_writing_and_nothing_else() {
    sweep(&settings());
}

#[test]
fn a_panic_of_a_background_job_stops_writing_and_nothing_else_with_a_fast_tier() {
    sweep(&Settings { preset: Some(Preset::Hybrid), ..settings() });
}
