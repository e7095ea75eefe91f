//! Real processes on real files: killed at random moments, and held to their memory budget.
//!
//! The test starts itself again as a child (`THERMOCLINE_CHILD`). The child says on its standard
//! output what it is about to do and what was acknowledged; the parent keeps the model.
//! `THERMOCLINE_KILL_ROUNDS` sets the number of kills.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_macros, reason = "the child talks to its parent on a pipe")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use thermocline::{ByteSize, Db, Durability, Settings, Tier, WriteBatch};
use thermocline_foundation::random::Random;
use thermocline_foundation::{Clock, SystemClock};

const KEYS: u64 = 300;

fn settings(home: &Path, memory_mib: u64) -> Settings {
    Settings {
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize::mib(16 * memory_mib)),
            Tier::new(home.join("slow"), ByteSize::gib(4)),
        ],
        memory: ByteSize::mib(memory_mib),
        table_size: ByteSize::kib(256),
        background_sync_bytes: ByteSize::kib(256),
        background_threads: 1,
        level0_tables: 2,
        ..Settings::default()
    }
}

fn start_child(test: &str, role: &str, home: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("THERMOCLINE_CHILD", role)
        .env("THERMOCLINE_CHILD_HOME", home)
        .env("THERMOCLINE_CHILD_SEED", seed.to_string())
        // What the store holds is measured, not what the allocator keeps: an arena for each thread,
        // and freed buffers on the heap.
        .env("MALLOC_ARENA_MAX", "1")
        .env("MALLOC_MMAP_THRESHOLD_", "131072")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn child_role(role: &str) -> Option<(std::path::PathBuf, u64)> {
    if std::env::var("THERMOCLINE_CHILD").ok()? != role {
        return None;
    }
    let seed = std::env::var("THERMOCLINE_CHILD_SEED").ok()?.parse().ok()?;
    Some((std::env::var_os("THERMOCLINE_CHILD_HOME")?.into(), seed))
}

fn value(stamp: u64) -> Vec<u8> {
    let len = 20 + Random::new(stamp).below(3000) as usize;
    format!("{stamp:020}").into_bytes().into_iter().cycle().take(len).collect()
}

fn key(number: u64) -> String {
    format!("key{number:04}")
}

/// The writes of a stamp: key and whether it is put; all in one batch.
fn writes_of(stamp: u64) -> Vec<(u64, bool)> {
    let mut random = Random::new(stamp ^ 0xA5A5);
    let count = 1 + random.below(4);
    (0..count).map(|_| (random.below(KEYS), random.below(4) > 0)).collect()
}

/// Writes until it is killed: says `begin STAMP` before and `done STAMP` after each batch.
fn write_until_killed(home: &Path, seed: u64) {
    let db = Db::open_or_create(home, &settings(home, 8)).unwrap();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nopen").unwrap();
    let mut random = Random::new(seed);
    for number in 0.. {
        let stamp = (seed << 32) + number;
        writeln!(out, "begin {stamp}").unwrap();
        out.flush().unwrap();
        let mut batch = WriteBatch::new();
        for (number, is_put) in writes_of(stamp) {
            match is_put {
                true => batch.put(key(number), value(stamp)),
                false => batch.delete(key(number)),
            };
        }
        let sync = random.below(20) == 0;
        db.write_with(batch, if sync { Durability::Sync } else { Durability::Buffered }).unwrap();
        writeln!(out, "done {stamp}").unwrap();
        out.flush().unwrap();
        match random.below(600) {
            0 => db.compact_range(None, None, &mut |_| {}).unwrap(),
            1..=3 => db.flush().unwrap(),
            _ => {}
        }
    }
}

fn apply(model: &mut BTreeMap<String, Vec<u8>>, stamp: u64) {
    for (number, is_put) in writes_of(stamp) {
        match is_put {
            true => drop(model.insert(key(number), value(stamp))),
            false => drop(model.remove(&key(number))),
        }
    }
}

/// What the child said: acknowledged stamps, and one that was begun and not acknowledged.
fn listen(stdout: ChildStdout) -> (Vec<u64>, Option<u64>) {
    let (mut done, mut begun) = (Vec::new(), None);
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if let Some(stamp) = line.strip_prefix("begin ") {
            begun = stamp.parse().ok();
        } else if let Some(stamp) = line.strip_prefix("done ") {
            done.extend(stamp.parse::<u64>().ok());
            begun = None;
        }
    }
    (done, begun)
}

fn scan(db: &Db) -> BTreeMap<String, Vec<u8>> {
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    db.scan().into_iter().map(Result::unwrap).map(|(k, v)| (text(&k), v.to_vec())).collect()
}

#[test]
fn killed_processes_lose_nothing_acknowledged() {
    if let Some((home, seed)) = child_role("kill") {
        return write_until_killed(&home, seed);
    }
    let rounds = std::env::var("THERMOCLINE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok());
    let (directory, clock) = (tempfile::tempdir().unwrap(), SystemClock::new());
    let home = directory.path().join("home");
    let mut model = BTreeMap::new();
    let mut random = Random::new(7);
    let mut total = 0;
    for round in 1..=rounds.unwrap_or(20) {
        let test = "killed_processes_lose_nothing_acknowledged";
        let mut child = start_child(test, "kill", &home, round);
        let stdout = child.stdout.take();
        let pid = child.id();
        let listener = std::thread::scope(|scope| {
            let wait = Duration::from_millis(30 + random.below(500));
            let heard = scope.spawn(move || listen(stdout.unwrap()));
            clock.sleep(wait);
            child.kill().unwrap();
            child.wait().unwrap();
            heard.join().unwrap()
        });
        let (done, begun): (Vec<u64>, Option<u64>) = listener;
        total += done.len();
        done.iter().for_each(|stamp| apply(&mut model, *stamp));
        if !Db::exists(&home).unwrap() {
            assert!(done.is_empty(), "round {round} of {pid}");
            // Killed while it was being made: what is there cannot be used, and is in the way.
            remove(&home);
            continue;
        }
        let db = Db::open(&home).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let shown = scan(&db);
        if shown != model {
            let stamp = begun.unwrap_or_else(|| panic!("round {round}: not what was acknowledged"));
            apply(&mut model, stamp);
            assert!(shown == model, "round {round}: neither before nor after {stamp}");
        }
        if round % 4 == 0 {
            let report = db.verify(&mut |_| {}).unwrap();
            assert!(report.is_ok(), "round {round}: {:?}", report.problems);
        }
        db.close().unwrap();
    }
    assert!(total > 100, "only {total} writes in all");
}

#[allow(clippy::disallowed_methods, reason = "the test's own directory")]
fn remove(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}

/// Peak memory of this process, in bytes.
#[allow(clippy::disallowed_methods, reason = "the kernel's account, not a file of the store")]
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

const BUDGET_MIB: u64 = 64;

fn load(home: &Path) {
    let before = peak_bytes();
    let mut settings = settings(home, BUDGET_MIB);
    settings.table_size = ByteSize::mib(4);
    settings.background_sync_bytes = ByteSize::mib(4);
    let db = Db::create(home, &settings).unwrap();
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
    if let Some((home, _)) = child_role("memory") {
        return load(&home);
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let test = "loading_ten_times_the_memory_budget_stays_within_it";
    let output = start_child(test, "memory", &home, 0).wait_with_output().unwrap();
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
