//! Values up to the largest: what moving one takes grows as the value does, on every way that it
//! goes. Nothing here looks at a clock: what is counted is the memory that is asked for, which is
//! what is copied, and the bytes that devices move. Background work is done on the calling thread,
//! so that all of it is counted.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

#[allow(dead_code, reason = "shared with the tests of reliability")]
#[path = "reliability/hooked.rs"]
mod hooked;

use hooked::{Call, HookedDevices};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline::{
    ByteSize, Compression, Db, Environment, HybridSettings, Preset, Settings, Stepper, Tier,
    Workers,
};
use thermocline_device::MemoryDevices;
use thermocline_foundation::Clock;
use thermocline_foundation::random::{Random, mix};

const KEY: &str = "large";
const MIB: usize = 1 << 20;

/// Bytes that a step takes: of memory asked for, and of what devices move.
#[derive(Clone, Copy, Debug)]
struct Cost {
    step: &'static str,
    allocated: u64,
    moved: u64,
}

fn environment() -> Environment {
    Environment {
        devices: Arc::new(MemoryDevices::default()),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        ..Environment::default()
    }
}

fn settings(fast_mib: u64, record_compression: Compression) -> Settings {
    Settings {
        preset: Some(Preset::Hybrid),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: vec![
            Tier::new("/fast", ByteSize::mib(fast_mib)).driver("memory"),
            Tier::new("/slow", ByteSize::mib(2048)).driver("memory"),
        ],
        memory: ByteSize::mib(16),
        ..Settings::default()
    }
}

fn moved(db: &Db) -> u64 {
    let tiers = db.stats().tiers;
    tiers.iter().map(|tier| tier.read_bytes + tier.written_bytes).sum()
}

/// What `run` takes of a store that is open before and after.
fn cost(db: &Db, step: &'static str, run: impl FnOnce()) -> Cost {
    let before = moved(db);
    let allocated = allocation_counter::measure(run).bytes_total;
    Cost { step, allocated, moved: moved(db) - before }
}

fn expect_all(db: &Db, value: &[u8]) {
    let mut found = db.scan().into_iter().map(Result::unwrap);
    let (key, bytes) = found.next().unwrap();
    assert!(key == "before" && bytes == "small");
    let (key, bytes) = found.next().unwrap();
    assert!(key == KEY && bytes == value, "a scan finds another value of {}", value.len());
    assert!(found.next().is_none());
}

/// The life of a value of so many bytes: what each part of it takes.
fn life(len: usize, settings: &Settings) -> Vec<Cost> {
    let environment = environment();
    let db = environment.create(Path::new("/home"), settings).unwrap();
    let mut value = vec![0; len];
    Random::new(len as u64).fill(&mut value);
    let get = |db: &Db| assert!(db.get(KEY).unwrap().unwrap() == value, "{len} bytes");
    db.put("before", "small").unwrap();
    let mut costs = vec![cost(&db, "put", || db.put(KEY, &value).unwrap())];
    costs.push(cost(&db, "flush", || db.flush().unwrap()));
    costs.push(cost(&db, "get", || get(&db)));
    costs.push(cost(&db, "scan", || expect_all(&db, &value)));
    costs.push(cost(&db, "demotion", || db.compact_range(None, None, &mut |_| {}).unwrap()));
    costs.push(cost(&db, "promotion", || {
        (0..3).for_each(|_| get(&db));
        db.settle().unwrap();
    }));
    costs.push(cost(&db, "scan of tables", || expect_all(&db, &value)));
    // In the log only, and then in a slot.
    db.put(KEY, &value).unwrap();
    let mut before = moved(&db);
    db.close().unwrap();
    for step in ["recovery from a log", "recovery from a slot"] {
        let mut opened = None;
        let allocated = allocation_counter::measure(|| {
            opened = Some(environment.open(Path::new("/home")).unwrap());
        });
        let db = opened.unwrap();
        // What was moved before an opening is counted on.
        let moved_now = moved(&db);
        costs.push(Cost { step, allocated: allocated.bytes_total, moved: moved_now - before });
        get(&db);
        before = moved(&db);
        db.close().unwrap();
    }
    costs
}

/// Each step moves and allocates at most about twice as much for twice the bytes, and none much
/// more than the value's bytes a few times.
fn grows_evenly(sizes: &[usize], settings: &Settings) {
    let lives: Vec<_> = sizes.iter().map(|len| life(*len, settings)).collect();
    for (pair, sizes) in lives.windows(2).zip(sizes.windows(2)) {
        let grown = sizes[1] as f64 / sizes[0] as f64;
        for (small, large) in pair[0].iter().zip(&pair[1]) {
            let step = small.step;
            for (small, large) in [(small.allocated, large.allocated), (small.moved, large.moved)] {
                // What is there anyway is less than half a MiB a step.
                let most = (small + MIB as u64 / 2) as f64 * grown * 1.1;
                assert!(large as f64 <= most, "{step}: {small}, then {large} for {sizes:?}");
            }
        }
    }
    for (life, len) in lives.iter().zip(sizes) {
        for cost in life {
            let most = 12 * (*len as u64 + MIB as u64);
            assert!(cost.allocated <= most && cost.moved <= most, "{len} bytes: {cost:?}");
        }
    }
}

#[test]
fn every_way_of_a_value_takes_as_much_more_as_it_is_longer() {
    grows_evenly(&[4, 8, 16, 32, 64].map(|mib| mib * MIB), &settings(256, Compression::None));
    grows_evenly(&[4, 8, 16].map(|mib| mib * MIB), &settings(256, Compression::Lz4));
}

#[test]
fn without_slots_a_value_takes_as_much_more_as_it_is_longer() {
    let settings = Settings { preset: Some(Preset::Leveled), ..settings(256, Compression::None) };
    grows_evenly(&[4, 8, 16, 32, 64].map(|mib| mib * MIB), &settings);
}

/// The fast tier has no room for the larger ones: they go through its slots all the same.
#[test]
fn a_value_that_is_larger_than_the_fast_tier_takes_as_much_more_as_it_is_longer() {
    grows_evenly(&[8, 16, 32].map(|mib| mib * MIB), &settings(16, Compression::None));
}

/// A clock that moves for threads that sleep, and with each write to the slow tier.
#[derive(Debug, Default)]
struct SleepClock(AtomicU64);

impl Clock for SleepClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: std::time::Duration) {
        self.0.fetch_add(duration.as_nanos() as u64, Relaxed);
    }
}

/// What a write to the slow tier takes, of a MiB at most.
const SLOW_WRITE_MS: u64 = 20;

/// A fast tier of 12 MiB, full of small records, takes values that are longer than it. Waits are on
/// a clock of the test's own.
#[test]
fn a_small_write_behind_a_large_one_waits_no_longer_than_its_bytes_take_to_be_written() {
    let clock = Arc::new(SleepClock::default());
    let passing = Arc::clone(&clock);
    let hook = Arc::new(move |call, path: &Path, _: &str| {
        if call == Call::Write && path == Path::new("/slow") {
            passing.sleep(std::time::Duration::from_millis(SLOW_WRITE_MS));
        }
        Ok(())
    });
    let inner = environment();
    let devices = Arc::new(HookedDevices::new(Arc::clone(&inner.devices), hook));
    let environment = Environment { clock: clock.clone(), devices, ..inner };
    let settings = Settings { memory: ByteSize::mib(8), ..settings(12, Compression::None) };
    let db = environment.create(Path::new("/home"), &settings).unwrap();
    // The longest that one of so many small writes waits.
    let mut number = 0u64;
    let mut longest_ms = |writes: u64| {
        let wait_ms = |at: u64| {
            let before_ns = clock.now_ns();
            db.put(mix(at).to_be_bytes(), [7; 1000]).unwrap();
            (clock.now_ns() - before_ns) / 1_000_000
        };
        number += writes;
        (number - writes..number).map(wait_ms).max().unwrap()
    };
    longest_ms(20_000);
    let others_ms = longest_ms(5000);
    for round in 0..3u8 {
        db.put(format!("large {round}"), vec![round; 64 * MIB]).unwrap();
        let (first_ms, ms) = (longest_ms(1), longest_ms(3000));
        // Written to slots once and to a table once.
        let most_ms = others_ms + 2 * 64 * SLOW_WRITE_MS;
        assert!(first_ms <= most_ms, "{first_ms} ms, {others_ms} ms behind small ones");
        assert!(ms <= most_ms, "{ms} ms, {others_ms} ms behind small ones");
    }
    for round in 0..3u8 {
        assert!(db.get(format!("large {round}")).unwrap().unwrap() == vec![round; 64 * MIB]);
    }
}
