//! A panic at a device call of a background thread, or of a writer: writing stops and says why, no
//! caller waits for ever, reads go on, and reopening finds all that was acknowledged.

use crate::history::scan;
use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::*;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use thermocline::{ByteSize, Db, Durability, ErrorKind, Preset, Settings, WriteBatch};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::threads::{Panic, catch_panic, spawn};
use thermocline_foundation::{Clock, SystemClock};

/// Background work as the error names it.
const JOBS: [&str; 13] = [
    "planning",
    "flush",
    "background sync of the log",
    "preparation of a log",
    "deletion of tables",
    "compaction",
    "migration",
    "demotion",
    "promotion",
    "spill",
    "sweep for clean copies",
    "change of slot sizes",
    "look at what a table overwrites",
];

/// Names of the threads that panic begin so.
const BACKGROUND: &str = "thermocline-";
const WRITER: &str = "writer-";

/// Devices that panic at one call of some threads, and what they panicked at.
struct Panics {
    /// The beginning of those threads' names.
    threads: &'static str,
    /// Calls before it; negative once it is over, and before it begins.
    left: AtomicI64,
    said: Mutex<Option<String>>,
}

impl Panics {
    fn of(threads: &'static str) -> Arc<Self> {
        Arc::new(Self { threads, left: AtomicI64::new(-1), said: Mutex::new(None) })
    }

    fn devices(self: &Arc<Self>, memory: &MemoryDevices) -> HookedDevices {
        let panics = Arc::clone(self);
        let hook: Hook = Arc::new(move |call: Call, _, name| {
            let thread = std::thread::current();
            let is_meant = thread.name().is_some_and(|name| name.starts_with(panics.threads));
            if is_meant && panics.left.load(SeqCst) >= 0 && panics.left.fetch_sub(1, SeqCst) == 0 {
                let text = format!("no more at {call:?} of '{name}'");
                *panics.said.lock() = Some(text.clone());
                panic!("{text}");
            }
            Ok(())
        });
        HookedDevices::new(Arc::new(memory.clone()), hook)
    }
}

/// So many writes, and so many reads of what was written after each; counts what was acknowledged.
fn work_until_error(
    db: &Db,
    random: &mut Random,
    written: &mut u64,
    [writes, reads]: [u64; 2],
) -> Option<thermocline::Error> {
    let mut value = vec![0; 3000];
    for _ in 0..writes {
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
        for _ in 0..reads {
            // Half of the reads are of a few keys, so that some are asked for again and again.
            let keys = if random.below(2) == 0 { 50 } else { KEYS };
            let age = random.below(keys);
            let number = written.saturating_sub(age * 17 % KEYS).max(1);
            assert_eq!(number_of(&db.get(key(number)).unwrap().unwrap()), number);
        }
    }
    None
}

/// Every key is written again and again.
const KEYS: u64 = 1500;

fn key(number: u64) -> String {
    format!("key{:05}", mix(number % KEYS))
}

/// The write that a value is from.
fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// The store shows a prefix of what was written, with at least `written` writes.
fn check(db: &Db, written: u64, what: &str) {
    let found = scan(db).unwrap_or_else(|error| panic!("{what}: {error}"));
    let newest = found.get(&b"newest"[..]).map_or(0, |value| number_of(value));
    assert!(newest >= written, "{what}: {newest} of {written}");
    for last in (newest.saturating_sub(KEYS - 1)..=newest).filter(|number| *number > 0) {
        let value = found.get(key(last).as_bytes()).unwrap_or_else(|| panic!("{what}: {last}"));
        assert_eq!(number_of(value), last, "{what}");
    }
}

fn verify(db: &Db, what: &str) {
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
}

fn reopen(memory: &MemoryDevices, what: &str) -> Db {
    let db = environment(memory.clone()).open(&home());
    db.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Waits until the store says what the panic said: until it was caught, a little after it let go of
/// its locks, a refused write can only say that there was one.
fn wait_until_said(db: &Db, what: &str) {
    let clock = SystemClock::new();
    let start_ns = clock.now_ns();
    loop {
        let error = db.put("x", "y").unwrap_err();
        if !error.to_string().contains("since a thread panicked while") {
            return;
        }
        let waited_ns = clock.now_ns() - start_ns;
        assert!(waited_ns < 30_000_000_000, "{what}: the panic is not caught: {error}");
        clock.sleep(Duration::from_millis(1));
    }
}

/// A store in which the call `at` of background threads panics, if there are so many. Where there
/// are reads after each write, tables have everything at first.
fn run_with_panic(settings: &Settings, at: u64, reads: u64) -> bool {
    let what = format!("{:?}, a panic at call {at}", settings.preset);
    let (memory, panics) = (MemoryDevices::new(), Panics::of(BACKGROUND));
    let db = environment(panics.devices(&memory)).create(&home(), settings).unwrap();
    let (mut random, mut written) = (Random::new(at), 0);
    let writes = if reads > 0 { 300 } else { 2500 };
    if reads > 0 {
        assert!(work_until_error(&db, &mut random, &mut written, [KEYS, 0]).is_none());
        db.compact_range(None, None, &mut |_| ()).unwrap();
    }
    panics.left.store(at as i64, SeqCst);
    let mut error = work_until_error(&db, &mut random, &mut written, [writes, reads]);
    // None of these may wait for ever.
    error = error.or_else(|| db.flush().err());
    error = error.or_else(|| db.compact_range(None, None, &mut |_| ()).err());
    error = error.or_else(|| db.settle().err());
    let struck = panics.left.swap(-1, SeqCst) < 0;
    check(&db, written, &what);
    if struck {
        let said = panics.said.lock().clone().unwrap();
        let error = error.unwrap_or_else(|| panic!("{what}: no caller hears of it: {said}"));
        // A call between the panic and its end hears less; a call that waits for the log meanwhile
        // hears of the log.
        if error.to_string().contains("panicked:") {
            assert_says(&error, &[&said]);
        }
        wait_until_said(&db, &what);
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
            // A call that waits for the log or the file map meanwhile may be the first to say so.
            let waited = [
                ".log (tier 0, /fast) panicked",
                "a change panicked, reopen",
                "takes no more changes since one panicked; reopen",
            ];
            let by_waiter = waited.iter().any(|part| text.contains(part));
            assert!(named || by_waiter, "{what}: {text}");
            assert_says(&error, &[&said, "open it"]);
        }
    } else {
        assert!(error.is_none(), "{what}: {error:?}");
        db.close().unwrap();
    }
    let db = reopen(&memory, &what);
    check(&db, written, &what);
    verify(&db, &what);
    db.put("x", "writes resume").unwrap();
    db.flush().unwrap();
    if let Some(leak) = leaks(&memory, &db) {
        panic!("{what}: {leak}");
    }
    db.close().unwrap();
    struck
}

fn sweep(settings: &Settings, reads: u64) {
    let mut struck = 0;
    for seed in first_seed()..first_seed() + rounds(30) {
        // The first calls, and some of the many after them.
        let at = if seed.is_multiple_of(2) { seed } else { Random::new(seed).below(1500) };
        struck += u64::from(run_with_panic(settings, at, reads));
    }
    assert!(struck >= rounds(20), "only {struck} panicked");
}

#[test]
fn a_panic_of_a_background_job_stops_writing_and_nothing_else() {
    sweep(&settings(), 0);
}

#[test]
fn a_panic_of_a_background_job_stops_writing_and_nothing_else_with_a_fast_tier() {
    let settings = settings();
    sweep(&Settings { preset: Some(Preset::Hybrid), ..settings.clone() }, 0);
    // Neither the fast tier nor memory has room for all that is read.
    let mut tiers = settings.tiers.clone();
    tiers[0].capacity = ByteSize::mib(3);
    let memory = ByteSize::mib(2);
    sweep(&Settings { preset: Some(Preset::Hybrid), tiers, memory, ..settings }, 20);
}

const WRITERS: u64 = 4;
const WRITES: u64 = 120;

/// How long a writer may take, on however slow a machine, before it counts as waiting for ever.
const FOR_EVER: Duration = Duration::from_secs(120);

/// A writer, how many of its writes were acknowledged, and how it ended.
type Ending = (u64, u64, Result<Option<thermocline::Error>, Panic>);

fn twins(writer: u64, number: u64) -> [String; 2] {
    ["left", "right"].map(|twin| format!("{writer} {number:05} {twin}"))
}

/// Starts a thread that writes pairs of records and tells how that ended.
fn start_writer(db: &Db, writer: u64, tell: mpsc::Sender<Ending>) {
    let db = db.clone();
    let write = move |acknowledged: &mut u64| {
        // Some only wait for the log, some for the device too.
        let durability = if writer == 0 { Durability::Buffered } else { Durability::Sync };
        for number in 1..=WRITES {
            let mut batch = WriteBatch::new();
            for key in twins(writer, number) {
                batch.put(key, [writer as u8; 3000]);
            }
            if let Err(error) = db.write_with(batch, durability) {
                return Some(error);
            }
            *acknowledged = number;
        }
        None
    };
    let thread = spawn(&format!("{WRITER}{writer}"), move || {
        let mut acknowledged = 0;
        let ended = catch_panic(|| write(&mut acknowledged));
        drop(write);
        tell.send((writer, acknowledged, ended)).unwrap();
    });
    drop(thread.unwrap());
}

/// Pairs of `writer` that the store has: the first so many of those it wrote, whole.
fn pairs(db: &Db, writer: u64) -> u64 {
    let scan = db.scan().prefix(format!("{writer} ")).into_iter();
    let found: Vec<String> =
        scan.map(|record| String::from_utf8_lossy(&record.unwrap().0).into()).collect();
    let count = found.len() as u64 / 2;
    let expected: Vec<String> = (1..=count).flat_map(|number| twins(writer, number)).collect();
    assert_eq!(found, expected);
    count
}

/// Several writers, of which the one that makes the device call `at` panics; false if there are not
/// so many calls.
fn run_with_panicking_writer(settings: &Settings, at: u64) -> bool {
    let what = format!("{:?}, a panic at call {at} of writers", settings.preset);
    let (memory, panics) = (MemoryDevices::new(), Panics::of(WRITER));
    let db = environment(panics.devices(&memory)).create(&home(), settings).unwrap();
    panics.left.store(at as i64, SeqCst);
    let (tell, told) = mpsc::channel();
    (0..WRITERS).for_each(|writer| start_writer(&db, writer, tell.clone()));
    let endings: Vec<_> = (0..WRITERS)
        .map(|_| told.recv_timeout(FOR_EVER))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|_| panic!("{what}: a caller waits for ever"));
    let struck = panics.left.swap(-1, SeqCst) < 0;
    let said = panics.said.lock().clone().unwrap_or_default();
    let (mut panicked, mut acknowledged) = (0, [0; WRITERS as usize]);
    for (writer, count, ended) in endings {
        acknowledged[writer as usize] = count;
        match ended {
            Err(panic) => {
                assert_eq!(panic.to_string(), said, "{what}");
                panicked += 1;
            }
            Ok(Some(error)) => {
                assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}: {error}");
                // A call between the panic and its end hears less.
                assert_says(&error, &["panicked", "open it"]);
            }
            Ok(None) => assert_eq!(count, WRITES, "{what}"),
        }
    }
    assert_eq!(
        panicked,
        u64::from(struck),
        "{what}: a panic goes on to the caller, and to no other thread"
    );
    for writer in 0..WRITERS {
        assert_eq!(pairs(&db, writer), acknowledged[writer as usize], "{what}: reads go on");
    }
    if struck {
        for error in [
            db.put("x", "y").unwrap_err(),
            db.flush().unwrap_err(),
            db.sync().unwrap_err(),
            db.close().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}: {error}");
            assert_says(&error, &["panicked", &said, "open it"]);
        }
    } else {
        db.close().unwrap();
    }
    let db = reopen(&memory, &what);
    for writer in 0..WRITERS {
        let (found, least) = (pairs(&db, writer), acknowledged[writer as usize]);
        assert!((least..=least + 1).contains(&found), "{what}: {found} of {least}");
    }
    verify(&db, &what);
    db.put("x", "writes resume").unwrap();
    db.close().unwrap();
    struck
}

#[test]
fn a_panic_of_a_writer_sends_away_those_that_wait_behind_it_and_all_that_come_later() {
    let mut struck = 0;
    for seed in first_seed()..first_seed() + rounds(20) {
        // The first writer leads alone, later ones lead the writers that lined up meanwhile.
        let at = if seed.is_multiple_of(4) { seed / 4 } else { Random::new(seed).below(300) };
        let preset = if seed.is_multiple_of(2) { Preset::Hybrid } else { Preset::Leveled };
        struck += u64::from(run_with_panicking_writer(
            &Settings { preset: Some(preset), ..settings() },
            at,
        ));
    }
    assert!(struck >= rounds(12), "only {struck} panicked");
}

/// A bulk load that panics at its call `at` to finish; false if it has not so many.
fn run_with_panicking_load(settings: &Settings, at: i64) -> bool {
    let what = format!("{:?}, a panic at call {at} of a load", settings.preset);
    let (memory, panics) = (MemoryDevices::new(), Panics::of(WRITER));
    let db = environment(panics.devices(&memory)).create(&home(), settings).unwrap();
    db.put("before", "a load").unwrap();
    let load = {
        let (db, panics) = (db.clone(), Arc::clone(&panics));
        move || {
            let mut ingest = db.ingest();
            ingest.add("loaded", "a value").unwrap();
            panics.left.store(at, SeqCst);
            catch_panic(|| ingest.finish())
        }
    };
    let loaded = spawn(&format!("{WRITER}0"), load).unwrap().join().unwrap();
    let struck = panics.left.swap(-1, SeqCst) < 0;
    assert_eq!(loaded.is_err(), struck, "{what}");
    let after = db.put("after", "a load");
    if let Err(error) = &after {
        assert!(struck && error.kind() == ErrorKind::ReadOnly, "{what}: {error}");
        assert_says(error, &["panicked", "open it"]);
    }
    let closed = db.close();
    assert_eq!(closed.is_ok(), after.is_ok(), "{what}: {closed:?}");
    let db = reopen(&memory, &what);
    assert!(db.get("before").unwrap().is_some(), "{what}");
    assert!(db.get("after").unwrap().is_some() || after.is_err(), "{what}");
    assert!(db.get("loaded").unwrap().is_some() || struck, "{what}");
    verify(&db, &what);
    db.close().unwrap();
    struck
}

#[test]
fn a_panic_of_a_bulk_load_leaves_a_database_that_opens() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let settings = Settings { preset: Some(preset), ..settings() };
        let calls = (0..).take_while(|at| run_with_panicking_load(&settings, *at)).count();
        assert!(calls > 5, "{preset:?}: {calls} calls");
    }
}
