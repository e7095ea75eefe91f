//! A capacity is a bound: whatever the settings, what lies on a tier keeps to the tier's capacity
//! at each call of its device, no writer waits for seconds, and a load ends.

use crate::history::scan;
use crate::hooked::{Call, HookedDevices};
use crate::support::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use thermocline::{
    ByteSize, CacheCapacity, Db, Durability, Environment, ErrorKind, FastCacheSettings, Preset,
    Settings, Stepper, Tier, Workers,
};
use thermocline_device::{Devices, MemoryDevices};
use thermocline_foundation::Clock;
use thermocline_foundation::random::Random;

/// What lies beside data in a tier's directory: its identity, its lock, a profile.
const SLACK_BYTES: u64 = 16 << 10;

/// What all callers and workers may wait for together in one call, by a clock that only waiting
/// moves.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A clock that only sleeping moves.
#[derive(Debug, Default)]
struct SleepClock(AtomicU64);

impl Clock for SleepClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, duration: Duration) {
        let slept = self.0.fetch_add(duration.as_nanos() as u64, Relaxed);
        assert!(u128::from(slept) < Duration::from_secs(600).as_nanos(), "a load that never ends");
    }
}

/// Bytes of what lies on a tier.
fn used(devices: &MemoryDevices, tier: &Path) -> u64 {
    let entries = devices.home(tier).and_then(|driver| driver.list()).unwrap_or_default();
    entries.iter().map(|entry| entry.len).sum()
}

/// A number between `low` and `high`, its magnitude at random.
fn between(random: &mut Random, low: u64, high: u64) -> u64 {
    let bits = u64::from((high / low).ilog2()) + 1;
    let magnitude = low << random.below(bits);
    (magnitude + random.below(magnitude)).clamp(low, high)
}

/// Settings at random, the tiers small beside the rest.
fn settings_at_random(random: &mut Random) -> Settings {
    let preset = [Preset::Leveled, Preset::Hybrid][random.below(2) as usize];
    let fast = between(random, 1 << 20, 24 << 20);
    let slow = between(random, 64 << 20, 512 << 20);
    let log_writes = [1, 4][random.below(2) as usize];
    let cache = match (random.below(3), preset) {
        (0, Preset::Leveled) => CacheCapacity::Auto,
        (0 | 1, _) => ByteSize(between(random, 1 << 20, 8 << 20)).into(),
        _ => ByteSize(0).into(),
    };
    Settings {
        preset: Some(preset),
        tiers: vec![
            Tier::new(TIERS[0], ByteSize(fast)).driver("memory"),
            Tier::new(TIERS[1], ByteSize(slow)).driver("memory"),
        ],
        memory: ByteSize(between(random, 1 << 20, 256 << 20)),
        table_size: ByteSize(between(random, 64 << 10, 32 << 20)),
        block_size: ByteSize(between(random, 1 << 10, 64 << 10)),
        durability: [Durability::Sync, Durability::Buffered][random.below(2) as usize],
        log_writes: if random.below(3) == 0 { log_writes } else { 1 },
        background_threads: 1 + random.below(3) as u32,
        level0_tables: 1 + random.below(6) as u32,
        fast_cache: FastCacheSettings { capacity: cache, ..Default::default() },
        stats_interval: thermocline::Duration::ms(0),
        ..Settings::default()
    }
}

/// Lengths of values: of one size or of many, up to several logs of a small tier.
fn value_bytes(random: &mut Random, kind: u64) -> u64 {
    match kind {
        0 => 100,
        1 => 1000,
        2 => random.below(8000),
        3 => [20, 3000, 40_000, 100][random.below(4) as usize],
        _ => match random.below(64) {
            0 => random.below(400_000),
            _ => random.below(5000),
        },
    }
}

/// Devices that say how much each tier has had at most.
fn watched(seed: u64, most: &Arc<[AtomicU64; 2]>) -> (Environment, Arc<SleepClock>) {
    let memory = MemoryDevices::new();
    let seen = (memory.clone(), Arc::clone(most));
    let hook = move |call: Call, path: &Path, _: &str| {
        if matches!(call, Call::Sync | Call::Create | Call::Allocate | Call::Delete) {
            for (tier, most) in TIERS.iter().zip(seen.1.iter()) {
                if path == Path::new(tier) {
                    most.fetch_max(used(&seen.0, path), Relaxed);
                }
            }
        }
        Ok(())
    };
    let clock = Arc::new(SleepClock::default());
    let environment = Environment {
        devices: Arc::new(HookedDevices::new(Arc::new(memory), Arc::new(hook))),
        clock: Arc::clone(&clock) as _,
        workers: Workers::Stepped(Arc::new(Stepper::new(seed))),
        ..Environment::default()
    };
    (environment, clock)
}

fn loads_within_capacities(seed: u64) {
    let mut random = Random::new(seed);
    let settings = settings_at_random(&mut random);
    let kind = random.below(5);
    let most: Arc<[AtomicU64; 2]> = Arc::default();
    let (environment, clock) = watched(seed, &most);
    let what = |text: &str| {
        let Settings { preset, memory, table_size, log_writes, durability, .. } = &settings;
        let fast = settings.tiers[0].capacity;
        format!(
            "seed {seed}, {preset:?}, {fast} of fast tier, memory {memory}, tables of \
             {table_size}, {log_writes} log writes, {durability:?}, values {kind}: {text}"
        )
    };
    let db = match environment.create(&home(), &settings) {
        Err(error) if error.kind() == ErrorKind::Invalid => {
            assert_says(&error, &["is the smallest that works"]);
            return;
        }
        created => created.unwrap_or_else(|error| panic!("{}", what(&error.to_string()))),
    };
    let check = |at: &str| {
        for (tier, most) in settings.tiers.iter().zip(most.iter()) {
            let (most, bound) = (most.load(Relaxed), tier.capacity.0 + SLACK_BYTES);
            let path = tier.path.display();
            assert!(most <= bound, "{}", what(&format!("{at}: {most} on {path} of {bound}")));
        }
    };
    let load_bytes = (3 * settings.tiers[0].capacity.0).min(5 << 20);
    let (mut wanted, mut loaded, mut number) = (BTreeMap::new(), 0, 0u64);
    while loaded < load_bytes {
        let key = format!("key{:06}", random.below(20_000)).into_bytes();
        let mut value = vec![0; value_bytes(&mut random, kind) as usize];
        random.fill(&mut value);
        let before = clock.now_ns();
        let put = db.put(&key, &value);
        put.unwrap_or_else(|error| panic!("{}", what(&format!("record {number}: {error}"))));
        let waited = Duration::from_nanos(clock.now_ns() - before);
        assert!(waited <= WAIT_MAX, "{}", what(&format!("record {number} waited {waited:?}")));
        check(&format!("record {number}"));
        loaded += (key.len() + value.len()) as u64;
        number += 1;
        wanted.insert(key, value);
        // What is read may be copied to the fast tier.
        let asked = format!("key{:06}", random.below(20_000)).into_bytes();
        assert_eq!(db.get(&asked).unwrap().as_deref(), wanted.get(&asked).map(Vec::as_slice));
        check(&format!("read {number}"));
    }
    db.flush().unwrap_or_else(|error| panic!("{}", what(&format!("flush: {error}"))));
    db.settle().unwrap_or_else(|error| panic!("{}", what(&format!("settle: {error}"))));
    check("settled");
    assert!(scan(&db).unwrap() == wanted, "{}", what("not what was written"));
    db.close().unwrap();
    let db =
        environment.open(&home()).unwrap_or_else(|error| panic!("{}", what(&error.to_string())));
    db.settle().unwrap();
    check("opened again");
    assert!(scan(&db).unwrap() == wanted, "{}", what("not what was written, opened again"));
}

#[test]
fn no_tier_has_more_than_its_capacity_and_a_load_ends() {
    for seed in first_seed()..first_seed() + rounds(24) {
        loads_within_capacities(seed);
    }
}

#[test]
fn a_tier_that_the_names_of_its_tables_outgrow_is_refused_with_one_that_works() {
    let create = |fast: ByteSize, slow: ByteSize| {
        let mut settings = Settings { table_size: ByteSize::kib(64), ..hybrid_settings() };
        settings.tiers[0].capacity = fast;
        settings.tiers[1].capacity = slow;
        environment(MemoryDevices::new()).create(&home(), &settings).map(|_| ())
    };
    // With the second, tables that the larger tier 0 has room for decide.
    for (slow, works) in [(ByteSize::gib(4), 7), (ByteSize::kib(4_889_216), 8)] {
        let error = create(ByteSize::mib(4), slow).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let least = format!("{works} MiB is the smallest that works");
        assert_says(&error, &["4 MiB", &least, "table_size"]);
        create(ByteSize::mib(works), slow).unwrap();
    }
}

#[test]
fn a_database_that_has_more_than_its_capacity_opens_at_least_to_be_read() {
    let mut settings = settings();
    settings.tiers.truncate(1);
    settings.tiers[0].capacity = ByteSize::mib(4);
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    let db = environment.create(&home(), &settings).unwrap();
    let puts = (0..100_000u32).map(|key| db.put(key.to_be_bytes(), [7; 1000]));
    let error = puts.into_iter().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    drop(db);
    // What is left to the capacity when a crash comes is a matter of chance.
    for kib in [0, 1, 4, 16, 20, 64] {
        settings.tiers[0].capacity = ByteSize(used(&devices, Path::new(TIERS[0])) - (kib << 10));
        let db = environment.open_with(&home(), &settings).unwrap_or_else(|e| panic!("{kib}: {e}"));
        assert_eq!(db.get(0u32.to_be_bytes()).unwrap().unwrap(), vec![7; 1000]);
        drop(db);
    }
}

#[test]
fn logs_of_large_memtables_become_few_tables_when_tier_0_is_small_now() {
    let mut settings = Settings { memory: ByteSize::mib(96), ..settings() };
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    settings.tiers[0].capacity = ByteSize::gib(1);
    let db = environment.create(&home(), &settings).unwrap();
    for key in 0..7000u32 {
        db.put(key.to_be_bytes(), [7; 1000]).unwrap();
    }
    let tables = |db: &Db| db.stats().levels.iter().map(|level| level.tables).sum::<usize>();
    assert_eq!(tables(&db), 0, "all of it is in a log");
    drop(db);
    settings.tiers[0].capacity = ByteSize::mib(1);
    let db = environment.open_with(&home(), &settings).unwrap();
    let tables = tables(&db);
    assert!((1..=4).contains(&tables), "{tables} tables");
    assert_eq!(scan(&db).unwrap().len(), 7000);
}

#[test]
fn a_batch_that_no_tier_has_room_for_is_refused_and_writing_goes_on() {
    let mut settings = settings();
    settings.tiers.truncate(1);
    settings.tiers[0].capacity = ByteSize::mib(2);
    let devices = MemoryDevices::new();
    let db = environment(devices.clone()).create(&home(), &settings).unwrap();
    for round in 0..20u8 {
        let error = db.put("large", vec![round; 3 << 20]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        db.put([round], vec![round; 1000]).unwrap();
    }
    db.flush().unwrap();
    assert!(used(&devices, Path::new(TIERS[0])) <= (2 << 20) + SLACK_BYTES);
    assert_eq!(db.get([7]).unwrap().unwrap(), vec![7; 1000]);
    assert_eq!(leaks(&devices, &db), None);
}
