//! A real process on real files, held to its memory budget. (Processes that are killed are the
//! business of `crates/torture`.)
//!
//! The test starts itself again as a child (`THERMOCLINE_CHILD_HOME`), which measures itself.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_macros, reason = "the child tells its parent on a pipe")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use thermocline::{ByteSize, Db, Durability, Preset, Settings, Tier, WriteBatch};
use thermocline_foundation::random::Random;

fn settings(home: &Path, preset: Preset) -> Settings {
    // What is loaded fits the fast tier, or is more than twice as large.
    let share = if preset == Preset::Hybrid { 4 } else { 16 };
    Settings {
        preset: Some(preset),
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize::mib(share * BUDGET_MIB)),
            Tier::new(home.join("slow"), ByteSize::gib(4)),
        ],
        memory: ByteSize::mib(BUDGET_MIB),
        table_size: ByteSize::mib(4),
        background_sync_bytes: ByteSize::mib(4),
        background_threads: 1,
        level0_tables: 2,
        ..Settings::default()
    }
}

fn start_child(test: &str, home: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("THERMOCLINE_CHILD_HOME", home)
        // What the store holds is measured, not what the allocator keeps: an arena for each thread,
        // and freed buffers on the heap.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Peak memory of this process, in bytes.
#[allow(clippy::disallowed_methods, reason = "the kernel's account, not a file of the store")]
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

const BUDGET_MIB: u64 = 64;

fn load(home: &Path, preset: Preset) {
    let before = peak_bytes();
    let db = Db::create(home, &settings(home, preset)).unwrap();
    let mut random = Random::new(5);
    let mut value = vec![0; 1000];
    for _ in 0..(BUDGET_MIB * 10) << 10 {
        random.fill(&mut value);
        let mut batch = WriteBatch::new();
        batch.put(format!("key{:012}", random.below(1 << 40)), &value);
        db.write_with(batch, Durability::Buffered).unwrap();
    }
    for _ in 0..20_000 {
        db.get(format!("key{:012}", random.below(1 << 40))).unwrap();
    }
    println!("\npeak {} {before}", peak_bytes());
    assert!(db.scan().into_iter().take(50_000).all(|record| record.is_ok()));
    db.close().unwrap();
    println!("\nscan {} {before}", peak_bytes());
}

#[test]
fn loading_ten_times_the_memory_budget_stays_within_it() {
    stays_within_budget("loading_ten_times_the_memory_budget_stays_within_it", Preset::Leveled);
}

#[test]
fn loading_ten_times_the_memory_budget_over_a_fast_tier_stays_within_it() {
    let test = "loading_ten_times_the_memory_budget_over_a_fast_tier_stays_within_it";
    stays_within_budget(test, Preset::Hybrid);
}

/// `test` starts itself as the child that loads.
fn stays_within_budget(test: &str, preset: Preset) {
    if let Some(home) = std::env::var_os("THERMOCLINE_CHILD_HOME") {
        return load(home.as_ref(), preset);
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let output = start_child(test, &home).wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let budget = BUDGET_MIB << 20;
    // A long scan while level 0 is full has two windows of up to 1 MiB for each of its tables,
    // which no budget bounds yet.
    for (phase, allowed) in [("peak ", budget * 12 / 10), ("scan ", budget * 16 / 10)] {
        let line = text.lines().find_map(|line| line.strip_prefix(phase));
        let (peak, before) = line.expect("the child came so far").split_once(' ').unwrap();
        let (peak, before): (u64, u64) = (peak.parse().unwrap(), before.parse().unwrap());
        assert!(
            peak <= before + allowed,
            "{phase}{} MiB of which {} MiB before opening, budget {BUDGET_MIB} MiB",
            peak >> 20,
            before >> 20
        );
    }
}
