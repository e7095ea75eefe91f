//! The cache of blocks in a store: what it serves, what it keeps over a restart, and that no caller
//! notices what happens to it.

mod log;
mod opening;
mod restore;
mod room;

use crate::support::hooked::{Call, HookedDevices};
use crate::support::still_clock::StillClock;
use crate::support::{hybrid, stepped_environment, tier};
use crate::{
    Admission, ByteSize, CacheCapacity, Compression, Db, Environment, Eviction, Experiments,
    FastCacheSettings, FastCacheStats, Preset, Promotion, Settings,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::{
    Buffer, Devices, Error, ErrorKind, FileInfo, FileKind, MemoryDevices, TierIndex,
};
use thermocline_foundation::Clock;
use thermocline_foundation::random::mix;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::threads;

const HOME: &str = "/home";
const KEYS: u64 = 10_000;

/// A small fast tier, so that most tables are on the slow one.
fn settings(fast_cache: FastCacheSettings) -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![tier("/fast", 8), tier("/slow", 64)],
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(256),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::None],
        fast_cache,
        ..Settings::default()
    }
}

fn cache(capacity_kib: u64) -> FastCacheSettings {
    FastCacheSettings {
        capacity: ByteSize::kib(capacity_kib).into(),
        admission: Admission::SecondAccess,
        file_size: ByteSize::kib(64),
        batch: ByteSize::kib(16),
        ..FastCacheSettings::default()
    }
}

fn name(key: u64) -> [u8; 8] {
    mix(key).to_be_bytes()
}

fn value(key: u64) -> Vec<u8> {
    (0..125).flat_map(|word| mix(key << 16 | word).to_be_bytes()).collect()
}

fn load(db: &Db) {
    (0..KEYS).for_each(|key| db.put(name(key), value(key)).unwrap());
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    db.engine().shared().cache.set_capacity(0);
    assert!(slow_bytes(db) > 3 << 20, "most is on the slow tier");
}

fn slow_bytes(db: &Db) -> u64 {
    db.stats().tiers[1].used_bytes
}

fn store(environment: &Environment, fast_cache: FastCacheSettings) -> Db {
    let db = environment.create(Path::new(HOME), &settings(fast_cache)).unwrap();
    load(&db);
    db
}

/// Looks keys up, singly, together and by seeks, and lets the cache take what it wants.
fn check(db: &Db, keys: impl Iterator<Item = u64>) {
    for key in keys {
        assert_eq!(db.get(name(key)).unwrap().unwrap(), value(key));
        let many = db.multi_get(&[&name(key)[..], &name(key + 1)[..]]).unwrap();
        assert_eq!(many[0].as_ref().unwrap(), &value(key));
        let mut scan = db.scan().from(name(key)).limit(1).into_iter();
        assert_eq!(scan.next().unwrap().unwrap().1, value(key));
        if key % 4 == 0 {
            db.settle().unwrap();
        }
    }
    db.settle().unwrap();
}

fn stats(db: &Db) -> FastCacheStats {
    let stats = db.stats();
    assert_eq!(stats.read_only, None);
    let cache = stats.fast_cache.unwrap();
    assert!(cache.used_bytes <= cache.room_bytes + (64 << 10), "{cache:?}");
    let files = db.engine().shared().files.files().into_iter();
    let there = files.filter(|file| file.kind == FileKind::BlockCache).count() as u64;
    assert_eq!(there, cache.files, "each file is accounted for");
    cache
}

fn slow_reads(db: &Db) -> u64 {
    db.engine().shared().files.tiers()[1].traffic_total().reads
}

#[test]
fn what_is_read_again_is_read_from_the_fast_tier() {
    for admission in
        [Admission::SimulatedLru, Admission::Always, Admission::SecondAccess, Admission::Frequency]
    {
        let settings = FastCacheSettings { admission, ..cache(2048) };
        let db = store(&stepped_environment(), settings);
        for _ in 0..3 {
            check(&db, 0..200);
        }
        let before = slow_reads(&db);
        check(&db, 0..200);
        let reads = slow_reads(&db) - before;
        let cache = stats(&db);
        assert!(cache.hits > 1000 && cache.failed == 0, "{admission:?}: {cache:?}");
        // The last batch is not written yet.
        assert!(reads < 200, "{admission:?}: {reads} slow reads for 800 look-ups: {cache:?}");
        assert!(cache.blocks > 100 && cache.memory_bytes > 0);
    }
}

#[test]
fn a_cache_that_is_closed_is_warm_after_opening_and_gone_once_it_is_switched_off() {
    let environment = stepped_environment();
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    let blocks = stats(&db).blocks;
    db.close().unwrap();
    let db = environment.open(Path::new(HOME)).unwrap();
    db.engine().shared().cache.set_capacity(0);
    db.settle().unwrap();
    let adopted = stats(&db);
    assert!(adopted.adopted_blocks >= blocks && adopted.refused_files == 0, "{adopted:?}");
    check(&db, 0..200);
    assert_eq!(stats(&db).misses, 0, "{:?}", stats(&db));
    assert!(stats(&db).hits > 500);
    db.clear_fast_cache().unwrap();
    assert_eq!((stats(&db).files, stats(&db).blocks), (0, 0));
    check(&db, 0..100);
    db.close().unwrap();
    let db = environment.open_read_only(Path::new(HOME)).unwrap();
    let error = db.clear_fast_cache().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::ReadOnly, "nothing would be deleted: {error}");
    db.close().unwrap();
    let off = settings(FastCacheSettings::default());
    let db = environment.open_with(Path::new(HOME), &Settings { tiers: vec![], ..off }).unwrap();
    assert!(db.stats().fast_cache.is_none());
    let files = db.engine().shared().files.files();
    assert!(files.iter().all(|file| file.kind != FileKind::BlockCache));
    check(&db, 0..100);
}

/// Reads more than a cache of 1 MiB has room for, and a few records again and again.
fn churn(db: &Db) {
    for round in 0..12 {
        check(db, 0..40);
        let cold = 200 * round..200 * (round + 1);
        check(db, cold.clone().chain(cold));
    }
}

#[test]
fn a_full_cache_evicts_files_and_writes_again_what_was_hit() {
    for eviction in [Eviction::FifoReinsert, Eviction::Fifo, Eviction::FileLru] {
        let settings = FastCacheSettings { eviction, ..cache(1024) };
        let db = store(&stepped_environment(), settings);
        churn(&db);
        let cache = stats(&db);
        assert!(cache.evicted_files > 3, "{eviction:?}: {cache:?}");
        let reinserts = eviction == Eviction::FifoReinsert;
        assert_eq!(cache.reinserted_blocks > 0, reinserts, "{eviction:?}: {cache:?}");
        assert!(cache.hits > 0 && cache.failed == 0);
    }
}

#[test]
fn a_trace_has_what_was_asked_for_in_order_up_to_its_length() {
    let traced = |requests| {
        let traced_blocks = Some(requests);
        let experiments = Experiments { traced_blocks, ..Experiments::NONE };
        let environment = Environment { experiments, ..stepped_environment() };
        let db = store(&environment, cache(2048));
        (0..3).for_each(|_| check(&db, 0..200));
        (db.block_trace().unwrap(), stats(&db))
    };
    let (all, told) = traced(1 << 20);
    assert_eq!(all.requests.len() as u64, told.hits + told.misses);
    assert_eq!((all.capacity_bytes, all.file_bytes), (told.capacity_bytes, 64 << 10));
    let (first, _) = traced(1000);
    assert_eq!(first.requests, all.requests[..1000]);
    let db = store(&stepped_environment(), cache(2048));
    assert_eq!(db.block_trace(), None);
}

/// Writes over each page of each file of the cache.
fn damage(db: &Db) {
    let files = &db.engine().shared().files;
    for info in files.files().iter().filter(|file| file.kind == FileKind::BlockCache) {
        let file = files.open_file(info.number).unwrap();
        for at in (0..file.len().unwrap()).step_by(4096) {
            file.write(at, Buffer::copy_of(&[0x5A; 4096])).1.unwrap();
        }
    }
}

#[test]
fn wrong_bytes_cost_a_read_of_the_table_and_the_file_after_sixteen_of_them() {
    let environment = stepped_environment();
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    damage(&db);
    check(&db, 0..200);
    let cache = stats(&db);
    assert!(cache.failed >= 16, "{cache:?}");
    assert!(cache.is_off, "two files were given up within a minute: {cache:?}");
    db.close().unwrap();
    let db = environment.open(Path::new(HOME)).unwrap();
    damage(&db);
    check(&db, 0..200);
    let cache = stats(&db);
    assert!(cache.adopted_files == 0 && cache.refused_files > 0, "{cache:?}");
}

#[test]
fn errors_of_the_device_pause_the_cache_and_fail_no_caller() {
    for failing in [Call::Read, Call::Write, Call::Create, Call::Delete, Call::Open] {
        let fails = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&fails);
        let hook = move |call: Call, _: &Path, name: &str| {
            if name.ends_with(".cache") && call == failing && told.load(Relaxed) {
                return Err(Error::new(ErrorKind::Io, "the test's device fails"));
            }
            Ok(())
        };
        let memory: Arc<dyn Devices> = Arc::new(MemoryDevices::default());
        let devices = Arc::new(HookedDevices::new(memory, Arc::new(hook)));
        let environment = Environment { devices, ..stepped_environment() };
        let db = store(&environment, cache(1024));
        (0..3).for_each(|_| check(&db, 0..100));
        fails.store(true, Relaxed);
        (0..2).for_each(|_| check(&db, 50..400));
        assert_eq!(db.stats().read_only, None, "{failing:?}");
        db.put(name(1), value(1)).unwrap();
        db.close().unwrap();
        let db = environment.open(Path::new(HOME)).unwrap();
        check(&db, 0..200);
        db.close().unwrap();
        fails.store(false, Relaxed);
        let db = environment.open(Path::new(HOME)).unwrap();
        (0..3).for_each(|_| check(&db, 0..200));
        assert!(stats(&db).hits > 0, "{failing:?}: it comes back");
    }
}

/// Names and bytes of the files of the cache in a directory.
fn cache_files(devices: &MemoryDevices, tier: &crate::Tier) -> Vec<(String, Vec<u8>)> {
    let spec = thermocline_device::TierSpec {
        path: tier.path.clone(),
        capacity: tier.capacity,
        driver: "memory".to_owned(),
    };
    let driver = devices.tier(&spec).unwrap();
    let names = driver.list().unwrap().into_iter().filter(|file| file.name.ends_with(".cache"));
    let read = |name: String| {
        let file = driver.open(&name).unwrap();
        let buffer = Buffer::zeroed(file.len().unwrap() as usize);
        let read = thermocline_device::Operation::Read { offset: 0, buffer };
        let bytes = driver.execute(&file, read).buffer.to_vec();
        (name, bytes)
    };
    names.map(|file| read(file.name)).collect()
}

#[test]
fn a_checkpoint_starts_cold_and_takes_no_files_of_the_original() {
    let devices = Arc::new(MemoryDevices::default());
    let environment = Environment { devices: devices.clone(), ..stepped_environment() };
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    db.checkpoint("/copy").unwrap();
    db.close().unwrap();
    let files = cache_files(&devices, &tier("/fast", 8));
    assert!(!files.is_empty());
    let copy = environment.open(Path::new("/copy")).unwrap();
    copy.settle().unwrap();
    assert_eq!(stats(&copy).adopted_files + stats(&copy).refused_files, 0);
    let tier0 = copy.settings().tiers[0].clone();
    copy.close().unwrap();
    let spec = thermocline_device::TierSpec {
        path: tier0.path,
        capacity: tier0.capacity,
        driver: "memory".to_owned(),
    };
    let driver = devices.tier(&spec).unwrap();
    for (name, bytes) in &files {
        let file = driver.create(name).unwrap();
        let buffer = Buffer::copy_of(bytes);
        let write = thermocline_device::Operation::Write { offset: 0, buffer, durable: false };
        driver.execute(&file, write).result.unwrap();
    }
    let copy = environment.open(Path::new("/copy")).unwrap();
    check(&copy, 0..200);
    let cache = stats(&copy);
    assert_eq!((cache.adopted_files, cache.refused_files), (0, files.len() as u64));
}

#[test]
fn a_cache_of_what_the_levels_leave_has_the_room_of_guests_and_levels_come_first() {
    let auto = FastCacheSettings { capacity: CacheCapacity::Auto, ..cache(0) };
    let db = store(&stepped_environment(), auto);
    let check_rooms = || {
        let files = &db.engine().shared().files;
        let is_above = |file: &FileInfo| {
            file.tier == TierIndex(0) && matches!(file.kind, FileKind::Table { .. })
        };
        let tables: u64 = files.files().iter().filter(|file| is_above(file)).map(|f| f.bytes).sum();
        let (claimed, cache) = (files.claimed_bytes(), stats(&db));
        assert!(tables <= claimed, "{tables} bytes of tables above, {claimed} for levels");
        assert!(cache.room_bytes + claimed <= 8 << 20, "{claimed} for levels, {cache:?}");
        cache
    };
    (0..3).for_each(|_| check(&db, 0..300));
    let cache = check_rooms();
    assert!(cache.hits > 100 && cache.room_bytes > 1 << 20, "{cache:?}");
    for _ in 0..2 {
        (0..KEYS).for_each(|key| db.put(name(key), value(key)).unwrap());
        db.settle().unwrap();
        check_rooms();
    }
    db.close().unwrap();
}

#[test]
fn the_cache_gives_way_to_tables_and_comes_back() {
    let db = store(&stepped_environment(), cache(2048));
    (0..3).for_each(|_| check(&db, 0..300));
    let before = stats(&db);
    for round in 0..3 {
        (0..KEYS).for_each(|key| db.put(name(key), value(key)).unwrap());
        assert!(stats(&db).used_bytes <= before.capacity_bytes + (64 << 10), "round {round}");
    }
    db.settle().unwrap();
    (0..3).for_each(|_| check(&db, 0..200));
    assert!(stats(&db).hits > before.hits);
}

#[test]
fn the_cache_leaves_a_device_that_refuses_to_others_until_it_has_room_again() {
    let devices = MemoryDevices::default();
    let environment = Environment { devices: Arc::new(devices.clone()), ..stepped_environment() };
    // With a budget, which is never used up, admission decides before the cache is full, too.
    let fast_cache = FastCacheSettings { write_budget_dwpd: 1000.0, ..cache(2048) };
    let db = store(&environment, fast_cache);
    (0..3).for_each(|_| check(&db, 0..300));
    assert!(stats(&db).used_bytes > 256 << 10, "{:?}", stats(&db));
    let fast = devices.home(Path::new("/fast")).unwrap();
    let used = || fast.list().unwrap().iter().map(|entry| entry.len).sum::<u64>();
    let device_bytes = used();
    devices.directory(Path::new("/fast")).unwrap().set_capacity_bytes(device_bytes);
    // More than the logs that are there have room for.
    (0..KEYS / 4).for_each(|key| db.put(name(key), value(key)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    let refused = stats(&db);
    assert_eq!(refused.used_bytes, 0, "{refused:?}");
    assert_eq!(refused.room_bytes, 0, "{refused:?}");
    let device_bytes = used() + (1 << 20);
    devices.directory(Path::new("/fast")).unwrap().set_capacity_bytes(device_bytes);
    (0..3).for_each(|_| check(&db, 0..1500));
    let after = stats(&db);
    assert!(after.used_bytes >= 512 << 10, "{after:?}");
    assert!(!db.engine().shared().files.tiers()[0].is_refused(), "others are not refused for it");
    assert!(used() + device_bytes / 32 <= device_bytes, "{} of {device_bytes}", used());
}

#[test]
fn a_store_of_slots_caches_data_blocks_alone() {
    let experiments = Experiments { promotion: Some(Promotion::None), ..Experiments::NONE };
    let environment = Environment { experiments, ..stepped_environment() };
    let settings = Settings {
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(256),
        block_size: ByteSize::kib(1),
        fast_cache: cache(2048),
        ..hybrid()
    };
    let db = environment.create(Path::new(HOME), &settings).unwrap();
    load(&db);
    for _ in 0..3 {
        check(&db, 0..200);
    }
    let before = slow_reads(&db);
    check(&db, 0..200);
    let cache = stats(&db);
    assert!(cache.hits > 500 && cache.failed == 0, "{cache:?}");
    assert!(slow_reads(&db) - before < 400, "{cache:?}");
    db.close().unwrap();
    let db = environment.open(Path::new(HOME)).unwrap();
    db.settle().unwrap();
    assert!(stats(&db).adopted_blocks > 50);
    check(&db, 0..200);
}

#[test]
fn a_budget_of_writes_holds_with_what_is_written_again() {
    let fast_cache = FastCacheSettings { write_budget_dwpd: 4.5, ..cache(1024) };
    let db = store(&stepped_environment(), fast_cache);
    churn(&db);
    let cache = stats(&db);
    // A tier of 8 MiB 4.5 times a day; the burst is what flows in an hour: the cache once and a
    // half.
    let most = (1536 << 10) + (64 << 10);
    assert!(cache.written_bytes <= most && cache.dropped > 0, "{cache:?}");
    assert!(cache.written_bytes > 1408 << 10, "it is used up: {cache:?}");
    assert!(cache.evicted_files > 3 && cache.reinserted_blocks > 0, "{cache:?}");
}

#[test]
fn statistics_tell_what_of_the_budget_the_cache_writes_and_how_long_its_tier_lasts() {
    let clock = Arc::new(StillClock::default());
    let environment = Environment { clock: clock.clone(), ..stepped_environment() };
    let fast_cache = FastCacheSettings { write_budget_dwpd: 2.0, ..cache(2048) };
    let db = store(&environment, fast_cache);
    (0..3).for_each(|_| check(&db, 0..200));
    assert_eq!(stats(&db).budget_used_percent, None, "no time has passed");
    clock.sleep(Duration::from_secs(43_200));
    let (cache, tiers) = (stats(&db), db.stats().tiers);
    // Two tiers of 8 MiB a day are one in half a day.
    let right = 100.0 * cache.written_bytes as f64 / f64::from(8 << 20);
    let used = cache.budget_used_percent.unwrap();
    assert!(right > 1.0 && (used / right - 1.0).abs() < 0.001, "{used}, right is {right}");
    let wear: Vec<_> = tiers.iter().map(|tier| tier.wear.clone().unwrap()).collect();
    assert_eq!(wear[0].budget_used_percent, Some(used));
    assert!(wear[0].drive_writes_per_day > 2.0 * used / 100.0, "logs write, too: {wear:?}");
    // At the pace of all that is written to the tier, of which the cache is a part.
    let right = 5.0 * 2.0 / wear[0].drive_writes_per_day;
    assert!((wear[0].lifetime_years.unwrap() / right - 1.0).abs() < 0.01, "{wear:?}");
    assert_eq!((wear[1].budget_used_percent, wear[1].lifetime_years), (None, None));
}

#[test]
fn the_room_leaves_logs_all_that_they_may_come_to() {
    let db = store(&stepped_environment(), cache(2048));
    (0..3).for_each(|_| check(&db, 0..300));
    let shared = db.engine().shared();
    let tier = 8 << 20;
    let others: u64 = shared.files.files().iter().fold(0, |sum, file| match file.kind {
        FileKind::BlockCache | FileKind::Log => sum,
        _ if file.tier.0 > 0 => sum,
        _ => sum + file.bytes,
    });
    let logs = shared.tier0.grant(crate::shared::tier0::Account::Logs);
    assert!(logs > 0 && others > 0);
    let room = stats(&db).room_bytes;
    assert!(room + logs + others <= tier * 95 / 100, "{room} beside {logs} and {others}");
    assert!(room <= shared.tier0.grant(crate::shared::tier0::Account::BlockCache));
}

#[test]
fn readers_and_writers_see_right_records_while_files_come_and_go() {
    let environment =
        Environment { devices: Arc::new(MemoryDevices::default()), ..Environment::default() };
    let db = store(&environment, cache(1024));
    let reader_of = |reader: u64| {
        let db = db.clone();
        move || {
            for round in 0..3000 {
                let hot = mix((reader << 32) | (round / 3)) % 500;
                let key = if round % 5 == 0 { mix(round) % (KEYS - 1) } else { hot };
                assert_eq!(db.get(name(key)).unwrap().unwrap(), value(key));
            }
        }
    };
    let readers: Vec<_> =
        (0..4).map(|reader| threads::spawn("reader", reader_of(reader)).unwrap()).collect();
    for key in 0..KEYS / 2 {
        db.put(name(key), value(key)).unwrap();
    }
    db.clear_fast_cache().unwrap();
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    db.settle().unwrap();
    let cache = db.stats().fast_cache.unwrap();
    assert!(cache.hits > 0 && cache.failed == 0, "{cache:?}");
    db.close().unwrap();
}
