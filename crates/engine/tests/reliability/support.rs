//! What these tests share: a small database on two tiers, and ways to look at it from outside.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Environment, Error, HybridSettings, Preset, Settings, Tier, Workers,
};
use thermocline_device::{Buffer, Devices, Operation};
use thermocline_foundation::{Clock, SystemClock};

pub fn home() -> PathBuf {
    PathBuf::from("/home")
}

pub const TIERS: [&str; 2] = ["/fast", "/slow"];

pub fn environment(devices: impl Devices + 'static) -> Environment {
    Environment {
        devices: Arc::new(devices),
        clock: Arc::new(SystemClock::new()),
        workers: Workers::Threads,
        ..Environment::default()
    }
}

/// So small that a few hundred records pass through several levels and both tiers.
pub fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![
            Tier::new(TIERS[0], ByteSize::mib(16)).driver("memory"),
            Tier::new(TIERS[1], ByteSize::mib(256)).driver("memory"),
        ],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(64),
        background_sync_bytes: ByteSize::kib(64),
        background_threads: 1,
        level0_tables: 2,
        // Calls of devices are counted and failed here: those of the store, not of its figures.
        stats_interval: thermocline::Duration::ms(0),
        ..Settings::default()
    }
}

/// The same with records in slots, and so small a fast tier that many of them must leave it.
pub fn hybrid_settings() -> Settings {
    let hybrid = HybridSettings { high_watermark_percent: 40, ..HybridSettings::default() };
    let (preset, memory) = (Some(Preset::Hybrid), ByteSize::mib(2));
    let mut settings = Settings { preset, memory, hybrid, ..settings() };
    settings.tiers[0].capacity = ByteSize::mib(4);
    settings
}

/// Both presets, as seeds alternate.
pub fn settings_of(seed: u64) -> Settings {
    if seed.is_multiple_of(2) { hybrid_settings() } else { settings() }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The first seed.
pub fn first_seed() -> u64 {
    number("THERMOCLINE_SEED", 1)
}

/// `count` times `THERMOCLINE_ROUNDS`.
pub fn rounds(count: u64) -> u64 {
    count * number("THERMOCLINE_ROUNDS", 1)
}

/// Names in a directory, sorted.
pub fn names(devices: &dyn Devices, path: &Path) -> Vec<String> {
    let entries = devices.home(path).and_then(|driver| driver.list()).unwrap_or_default();
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Makes the file `name` of a directory anew.
pub fn write_file(devices: &dyn Devices, path: &Path, name: &str, bytes: &[u8]) {
    let driver = devices.home(path).unwrap();
    drop(driver.delete(name));
    let file = driver.create(name).unwrap();
    let buffer = Buffer::copy_of(bytes);
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
}

/// Files that the store does not need, or that are missing, by what the directories hold once
/// background work is done; none if all is well.
pub fn leaks(devices: &dyn Devices, db: &Db) -> Option<String> {
    let clock = SystemClock::new();
    let mut leak = None;
    // Background work may begin after it was looked for; a leak stays.
    for _ in 0..100 {
        db.settle().unwrap();
        leak = leak_now(devices, db);
        if leak.is_none() {
            break;
        }
        clock.sleep(std::time::Duration::from_millis(20));
    }
    leak
}

fn leak_now(devices: &dyn Devices, db: &Db) -> Option<String> {
    let names = TIERS.iter().flat_map(|tier| names(devices, Path::new(tier)));
    let on_disk: Vec<_> = names.collect();
    let count = |end: &str| on_disk.iter().filter(|name| name.ends_with(end)).count();
    let stats = db.stats();
    let tables: usize = stats.levels.iter().map(|level| level.tables).sum();
    let classes = stats.fast_tier.iter().flat_map(|fast| &fast.classes);
    let slabs = classes.map(|class| class.slabs).sum::<u64>() as usize;
    let wrong = count(".table") != tables
        || count(".slab") != slabs
        || count(".manifest") != 1
        || count(".map") != 1
        || count(".log") > 5
        || count(".new") != 0;
    wrong.then(|| format!("{tables} tables and {slabs} slabs are live, the tiers hold {on_disk:?}"))
}

/// The error is one line that has every one of `parts`.
pub fn assert_says(error: &Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}
