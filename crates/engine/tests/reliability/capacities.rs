//! A capacity is a bound: whatever the settings, what lies in a tier's directory keeps to it, at
//! every call of a device, and a load ends without an error.
//!
//! `THERMOCLINE_SEED` and `THERMOCLINE_ROUNDS` as for the other tests; a failure prints its seed.

use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline::{
    ByteSize, Compression, Durability, Environment, FastCacheSettings, Preset, Settings, Stepper,
    WriteBatch, Workers,
};
use thermocline_device::{Devices, MemoryDevices};
use thermocline_foundation::random::Random;

const MIB: u64 = 1 << 20;

/// The largest device that is in memory here; a load is not to fill it.
const SLOW_MIB: u64 = 512;

/// What a tier may have beyond its capacity: nothing.
const SLACK_BYTES: u64 = 0;

/// Devices that note the most that lies in each tier's directory at any of their calls.
fn watched() -> (HookedDevices, Arc<[AtomicU64; 2]>) {
    let memory = MemoryDevices::new();
    let most: Arc<[AtomicU64; 2]> = Arc::default();
    let (noted, seen) = (Arc::clone(&most), memory.clone());
    let hook: Hook = Arc::new(move |_: Call, _: &Path, _: &str| {
        for (tier, most) in TIERS.iter().zip(&*noted) {
            let space = seen.directory(Path::new(tier)).and_then(|directory| directory.space());
            let used = space.map_or(0, |space| space.total_bytes - space.free_bytes);
            most.fetch_max(used, Relaxed);
        }
        Ok(())
    });
    (HookedDevices::new(Arc::new(memory), hook), most)
}

/// Settings of which each is in its range, the fast tier from one MiB on.
fn random_settings(random: &mut Random) -> Settings {
    let power = |random: &mut Random, from: u64, powers: u64| from << random.below(powers);
    let preset = [Preset::Leveled, Preset::Hybrid][random.below(2) as usize];
    let fast_bytes = power(random, MIB, 6) + random.below(MIB);
    let mut settings = Settings {
        preset: Some(preset),
        memory: ByteSize(power(random, MIB, 9)),
        table_size: ByteSize(power(random, 64 << 10, 10)),
        block_size: ByteSize(power(random, 1 << 10, 5)),
        background_sync_bytes: ByteSize(power(random, 64 << 10, 8)),
        durability: [Durability::Sync, Durability::Buffered][random.below(2) as usize],
        log_writes: [1, 8][random.below(2) as usize],
        level0_tables: 1 + random.below(8) as u32,
        compression: vec![[Compression::None, Compression::Lz4][random.below(2) as usize]],
        ..settings()
    };
    settings.tiers[0].capacity = ByteSize(fast_bytes);
    settings.tiers[1].capacity = ByteSize::mib(SLOW_MIB);
    if random.below(3) == 0 {
        let capacity = ByteSize(fast_bytes / 4);
        settings.fast_cache = FastCacheSettings { capacity, ..FastCacheSettings::default() };
    }
    settings
}

fn batch(random: &mut Random, keys: u64, value_bytes_max: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + random.below(4) {
        let mut value = vec![0; random.below(value_bytes_max) as usize];
        random.fill(&mut value);
        batch.put(format!("key{:08}", random.below(keys)), value);
    }
    batch
}

/// What is wrong with a load under random settings.
fn failure_of(seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let settings = random_settings(&mut random);
    let (devices, most) = watched();
    let workers = Workers::Stepped(Arc::new(Stepper::new(seed)));
    let environment = Environment { workers, ..environment(devices) };
    let db = match environment.create(&home(), &settings) {
        Ok(db) => db,
        Err(error) => return Some(format!("is refused: {error}")),
    };
    let value_bytes_max = 16 << random.below(12);
    let load_bytes = 3 * settings.tiers[0].capacity.0 + 4 * MIB;
    let keys = load_bytes / value_bytes_max + 1;
    let mut loaded_bytes = 0;
    while loaded_bytes < load_bytes {
        let batch = batch(&mut random, keys, value_bytes_max);
        loaded_bytes += 64 + value_bytes_max;
        if let Err(error) = db.write(batch) {
            return Some(format!("ends after {loaded_bytes} bytes: {error}"));
        }
        if random.below(16) == 0 {
            let key = format!("key{:08}", random.below(keys));
            db.get(key).unwrap();
        }
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let usage = db.stats();
    drop(db);
    let over: Vec<_> = std::iter::zip(&settings.tiers, &*most)
        .filter(|(tier, most)| most.load(Relaxed) > tier.capacity.0 + SLACK_BYTES)
        .map(|(tier, most)| {
            format!("has {} KiB of {} KiB", most.load(Relaxed) >> 10, tier.capacity.0 >> 10)
        })
        .collect();
    let _ = usage;
    if over.is_empty() { None } else { Some(over.join(", ")) }
}

#[test]
fn what_lies_on_a_tier_keeps_to_its_capacity_whatever_the_settings() {
    let first = first_seed();
    let failures: Vec<_> = (first..first + rounds(24))
        .filter_map(|seed| {
            let why = failure_of(seed)?;
            let settings = random_settings(&mut Random::new(seed));
            Some(format!(
                "seed {seed}: {why}: {:?}, memory {}, tables {}, {:?} {}, cache {}",
                settings.preset,
                settings.memory,
                settings.table_size,
                settings.durability,
                settings.log_writes,
                settings.fast_cache.capacity
            ))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
