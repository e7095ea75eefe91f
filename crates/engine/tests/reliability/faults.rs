//! An error at every I/O call: the caller hears of it or it did no harm; a store that cannot go on
//! is read-only and says why, reads go on, and reopening finds all that was acknowledged.

use crate::history::{Known, Step, history, run, scan};
use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use thermocline::{ByteSize, Db, Durability, Environment, ErrorKind, Settings, Tier, WriteBatch};
use thermocline_device::{
    Devices, Error as DeviceError, ErrorKind as DeviceErrorKind, MemoryDevices,
};
use thermocline_foundation::random::Random;
use thermocline_foundation::{Clock, SystemClock};

/// Calls are counted; those from `at` on, `length` of them, fail.
#[derive(Debug)]
pub struct Plan {
    calls: AtomicU64,
    at: AtomicU64,
    length: AtomicU64,
    kind: DeviceErrorKind,
}

impl Plan {
    pub fn new(at: u64, length: u64, kind: DeviceErrorKind) -> Arc<Self> {
        let (at, length) = (AtomicU64::new(at), AtomicU64::new(length));
        Arc::new(Self { calls: AtomicU64::new(0), at, length, kind })
    }

    /// The call can fail so.
    fn concerns(&self, call: Call, name: &str) -> bool {
        match self.kind {
            // Only what takes room can run out of it.
            DeviceErrorKind::OutOfSpace => match call {
                Call::Create | Call::Allocate => true,
                // Logs and journals write where the device keeps room for them.
                Call::Write => ![".log", ".map", ".manifest"].iter().any(|end| name.ends_with(end)),
                _ => false,
            },
            DeviceErrorKind::TooManyOpenFiles => matches!(call, Call::Create | Call::Open),
            _ => true,
        }
    }

    pub fn hook(self: &Arc<Self>) -> Hook {
        let plan = Arc::clone(self);
        Arc::new(move |call: Call, _: &Path, name: &str| plan.pass(call, name))
    }

    fn pass(&self, call: Call, name: &str) -> Result<(), DeviceError> {
        if !self.concerns(call, name) {
            return Ok(());
        }
        let number = self.calls.fetch_add(1, SeqCst);
        let at = self.at.load(SeqCst);
        if number < at || number - at >= self.length.load(SeqCst) {
            return Ok(());
        }
        Err(DeviceError::new(
            self.kind,
            format!("simulated {:?} at {call:?} of '{name}'", self.kind),
        ))
    }

    /// The call after so many more fails; says how many there were so far.
    pub fn strike_after(&self, calls: u64) -> u64 {
        let so_far = self.calls();
        self.at.store(so_far.saturating_add(calls), SeqCst);
        so_far
    }

    /// Calls so far that could fail so.
    pub fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    pub fn end(&self) {
        self.length.store(0, SeqCst);
    }

    pub fn has_struck(&self) -> bool {
        self.calls() > self.at.load(SeqCst)
    }
}

const STEPS: usize = 30;

/// A clock whose sleeps are short: jobs that fail are tried again many times.
#[derive(Debug, Default)]
pub struct Hasty(SystemClock);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
    fn wall_s(&self) -> u64 {
        self.0.wall_s()
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration.min(Duration::from_millis(1)));
    }
}

/// A history with the fault in it, then the checks.
fn run_with_fault(seed: u64, at: u64, length: u64, kind: DeviceErrorKind) -> u64 {
    let what = format!("seed {seed}, {length} x {kind:?} at call {at}");
    let memory = MemoryDevices::new();
    let plan = Plan::new(at, length, kind);
    let faulty = environment(HookedDevices::new(Arc::new(memory.clone()), plan.hook()));
    let faulty = Environment { clock: Arc::new(Hasty::default()), ..faulty };
    let mut known = Known::default();
    let created = match faulty.create(&home(), &settings_of(seed)) {
        Ok(db) => db,
        Err(error) => {
            assert!(plan.has_struck(), "{what}: {error}");
            return plan.calls();
        }
    };
    let keep = created.clone();
    let mut steps = history(seed, STEPS);
    // The first handle is kept for reading, and with it the directories' locks.
    steps.retain(|step| !matches!(step, Step::Reopen));
    let result = run(&faulty, created, &steps, &mut known).map(drop);
    if let Err((step, error)) = &result {
        assert!(plan.has_struck(), "{what}: step {step}: {error}");
        assert!(!error.to_string().contains('\n'), "{what}: {error}");
    }
    let calls = plan.calls();
    plan.end();
    // Reads go on, whatever happened to writing.
    known.check(&keep, known.acknowledged).unwrap_or_else(|why| panic!("{what}: {why}"));
    if kind == DeviceErrorKind::OutOfSpace {
        go_on(&keep).unwrap_or_else(|error| panic!("{what}: there is room again: {error}"));
        known.check(&keep, known.acknowledged).unwrap_or_else(|why| panic!("{what}: {why}"));
    }
    if let Some(reason) = keep.stats().read_only {
        let latches =
            ![DeviceErrorKind::TooManyOpenFiles, DeviceErrorKind::OutOfSpace].contains(&kind);
        assert!(latches, "{what}: {reason}");
        let error = keep.put("after", "failure").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}");
        assert_says(&error, &[&reason]);
    }
    drop(keep);
    let healthy = environment(memory.clone());
    let db = healthy.open(&home()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let count = known.check(&db, known.acknowledged).unwrap_or_else(|why| panic!("{what}: {why}"));
    known.settle_at(count);
    if let Some(leak) = leaks(&memory, &db) {
        panic!("{what}: {leak}");
    }
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{what}: {:?}", report.problems);
    db.put("key000", "writes resume").unwrap_or_else(|error| panic!("{what}: {error}"));
    db.close().unwrap();
    calls
}

/// Writing and background work, after which the store has what it had.
fn go_on(db: &Db) -> Result<(), thermocline::Error> {
    db.put("after", vec![7; 5000])?;
    db.flush()?;
    db.compact_range(None, None, &mut |_| {})?;
    db.delete("after")?;
    db.flush()?;
    db.settle()
}

fn sweep(kind: DeviceErrorKind, length: u64, seeds: u64) {
    for seed in first_seed()..first_seed() + rounds(seeds) {
        let calls = run_with_fault(seed, u64::MAX, 0, kind);
        let mut random = Random::new(seed);
        for _ in 0..60 {
            run_with_fault(seed, random.below(calls), length, kind);
        }
    }
}

#[test]
fn one_failing_call_is_reported_and_loses_nothing() {
    sweep(DeviceErrorKind::Io, 1, 3);
}

#[test]
fn a_device_that_stays_broken_is_reported_and_loses_nothing() {
    sweep(DeviceErrorKind::Io, u64::MAX, 3);
}

#[test]
fn devices_without_room_stop_no_writing_for_longer_than_that_lasts_and_lose_nothing() {
    sweep(DeviceErrorKind::OutOfSpace, 1, 2);
    sweep(DeviceErrorKind::OutOfSpace, 7, 2);
    sweep(DeviceErrorKind::OutOfSpace, u64::MAX, 2);
}

#[test]
fn files_that_cannot_be_opened_stop_no_writing_and_lose_nothing() {
    sweep(DeviceErrorKind::TooManyOpenFiles, 1, 2);
    sweep(DeviceErrorKind::TooManyOpenFiles, 7, 2);
    sweep(DeviceErrorKind::TooManyOpenFiles, u64::MAX, 2);
}

/// Fails calls of `call` on files that end so, from now on.
fn failing(
    memory: &MemoryDevices,
    call: Call,
    end: &'static str,
) -> (HookedDevices, Arc<AtomicU64>) {
    let on = Arc::new(AtomicU64::new(0));
    let switch = Arc::clone(&on);
    let hook: Hook = Arc::new(move |asked, _, name| {
        if switch.load(SeqCst) == 1 && asked == call && name.ends_with(end) {
            return Err(DeviceError::new(DeviceErrorKind::Io, format!("simulated, {name}")));
        }
        Ok(())
    });
    (HookedDevices::new(Arc::new(memory.clone()), hook), on)
}

fn write_until_error(db: &Db) -> thermocline::Error {
    let mut value = vec![0; 4000];
    for number in 0..10_000u32 {
        // Nothing that compression makes small.
        Random::new(number.into()).fill(&mut value);
        let mut batch = WriteBatch::new();
        batch.put(format!("more{number:05}"), &value);
        if let Err(error) = db.write_with(batch, Durability::Buffered) {
            return error;
        }
    }
    panic!("nothing failed");
}

#[test]
fn background_failures_latch_with_their_reason_and_reads_go_on() {
    let of_both = [
        (Call::Write, ".table"),
        (Call::Sync, ".table"),
        (Call::Create, ".table"),
        (Call::Write, ".manifest"),
        (Call::Sync, ".manifest"),
        (Call::Write, ".map"),
        (Call::Create, ".log"),
        (Call::Sync, ".log"),
        (Call::Write, ".log"),
    ];
    let of_slots = [(Call::Write, ".slab"), (Call::Sync, ".slab"), (Call::Create, ".slab")];
    let leveled = of_both.map(|case| (settings(), case));
    let hybrid = of_both.into_iter().chain(of_slots).map(|case| (hybrid_settings(), case));
    for (settings, (call, end)) in leveled.into_iter().chain(hybrid) {
        let memory = MemoryDevices::new();
        let (devices, on) = failing(&memory, call, end);
        let db = environment(devices).create(&home(), &settings).unwrap();
        db.put("before", "safe").unwrap();
        db.settle().unwrap();
        on.store(1, SeqCst);
        let error = write_until_error(&db);
        assert_says(&error, &["simulated", end]);
        let reason = db.stats().read_only.expect("it is latched");
        assert_says(&db.put("x", "y").unwrap_err(), &[&reason]);
        assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(db.sync().unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"safe"[..]), "{call:?} {end}");
        let shown = scan(&db).unwrap();
        drop(db.close());
        let db = environment(memory).open(&home()).unwrap();
        let again = scan(&db).unwrap();
        assert!(shown.iter().all(|(k, v)| again.get(k) == Some(v)), "{call:?} {end}");
    }
}

fn full_tiers(settings: &Settings) {
    let memory = MemoryDevices::new();
    let tiers = |mib| {
        let tier = |path| Tier::new(path, ByteSize::mib(mib)).driver("memory");
        TIERS.map(tier).to_vec()
    };
    let small = Settings { tiers: tiers(8), ..settings.clone() };
    let db = environment(memory.clone()).create(&home(), &small).unwrap();
    let error = write_until_error(&db);
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert_says(&error, &["no tier has room", "/fast", "/slow", "raise a capacity"]);
    assert_eq!(db.stats().read_only, None);
    let shown = scan(&db).unwrap();
    assert!(shown.len() > 1000, "{}", shown.len());
    drop(db.close());
    let large = Settings { tiers: tiers(64), ..settings.clone() };
    let db = environment(memory.clone()).open_with(&home(), &large).unwrap();
    assert_eq!(scan(&db).unwrap(), shown);
    db.put("x", "y").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = environment(memory).open(&home()).unwrap();
    assert_eq!(db.settings().tiers, large.tiers, "the new capacity is kept");
}

#[test]
fn full_tiers_refuse_writes_and_a_larger_capacity_at_reopening_goes_on() {
    full_tiers(&settings());
    full_tiers(&hybrid_settings());
}

/// Devices with room for nothing but logs, manifests and maps while the switch is on.
pub fn without_room(devices: impl Devices + 'static) -> (HookedDevices, Arc<AtomicU64>) {
    let on = Arc::new(AtomicU64::new(0));
    let switch = Arc::clone(&on);
    let hook: Hook = Arc::new(move |call, _, name| {
        let takes_room = matches!(call, Call::Create | Call::Allocate | Call::Write);
        let is_data = name.ends_with(".table") || name.ends_with(".slab");
        if switch.load(SeqCst) == 1 && takes_room && is_data {
            return Err(DeviceError::new(DeviceErrorKind::OutOfSpace, format!("full for {name}")));
        }
        Ok(())
    });
    (HookedDevices::new(Arc::new(devices), hook), on)
}

fn opens_for_reading(settings: &Settings) {
    let memory = MemoryDevices::new();
    let (devices, on) = without_room(memory.clone());
    let environment = environment(devices);
    let db = environment.create(&home(), settings).unwrap();
    for number in 0..300 {
        db.put(format!("key{number:03}"), format!("first {number}")).unwrap();
    }
    db.flush().unwrap();
    for number in (0..300).step_by(3) {
        db.put(format!("key{number:03}"), vec![7; 1000]).unwrap();
        db.delete(format!("key{:03}", number + 1)).unwrap();
    }
    let written = scan(&db).unwrap();
    assert_eq!(written.len(), 200);
    db.close().unwrap();
    on.store(1, SeqCst);
    let files = || TIERS.iter().map(|tier| names(&memory, Path::new(tier)).len()).sum::<usize>();
    let mut files_after = None;
    for _ in 0..3 {
        let db = environment.open(&home()).unwrap();
        let reason = db.stats().read_only.expect("there is no room for what the logs have");
        for error in [db.put("x", "y").unwrap_err(), db.flush().unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::ReadOnly);
            assert_says(&error, &[&reason]);
        }
        assert_eq!(scan(&db).unwrap(), written);
        assert_eq!(db.get("key000").unwrap().as_deref(), Some(&[7; 1000][..]));
        assert_eq!(db.get("key001").unwrap(), None);
        let report = db.verify(&mut |_| {}).unwrap();
        assert!(report.is_ok(), "{:?}", report.problems);
        db.close().unwrap();
        assert_eq!(*files_after.get_or_insert(files()), files(), "nothing piles up");
    }
    on.store(0, SeqCst);
    let db = environment.open(&home()).unwrap();
    assert_eq!(scan(&db).unwrap(), written);
    db.put("x", "y").unwrap();
    db.flush().unwrap();
    assert_eq!(leaks(&memory, &db), None);
    db.close().unwrap();
}

#[test]
fn a_store_without_room_for_its_logs_opens_for_reading() {
    opens_for_reading(&settings());
    opens_for_reading(&hybrid_settings());
}
