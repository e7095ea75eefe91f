//! A real process on real files, held to its memory budget, and to a few descriptors. (Processes
//! that are killed are the business of `crates/torture`.)
//!
//! The test starts itself again as a child (`THERMOCLINE_CHILD_HOME`), which measures itself.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_macros, reason = "the child tells its parent on a pipe")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use thermocline::{ByteSize, Db, Durability, Error, ErrorKind, Preset, Settings, Tier, WriteBatch};
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

const RECORDS: u64 = 20_000;

fn key(number: u64) -> String {
    format!("key{number:08}")
}

/// Bytes of no pattern, which follow from the number and how often the record was written.
fn value(number: u64, round: u64) -> Vec<u8> {
    let mut value = vec![0; 600];
    Random::new(number + round * RECORDS).fill(&mut value);
    value
}

fn write_all(db: &Db, round: u64) {
    for number in 0..RECORDS {
        let mut batch = WriteBatch::new();
        batch.put(key(number), value(number, round));
        db.write_with(batch, Durability::Buffered).unwrap();
    }
}

/// A store of many small files.
fn make_many_files(home: &Path, preset: Preset) {
    let tiers = vec![
        Tier::new(home.join("fast"), ByteSize::mib(8)),
        Tier::new(home.join("slow"), ByteSize::gib(1)),
    ];
    let (memory, table_size) = (ByteSize::mib(8), ByteSize::kib(64));
    let settings =
        Settings { preset: Some(preset), tiers, memory, table_size, ..Settings::default() };
    let db = Db::create(home, &settings).unwrap();
    write_all(&db, 0);
    db.flush().unwrap();
    db.settle().unwrap();
    let tables: usize = db.stats().levels.iter().map(|level| level.tables).sum();
    assert!(tables > 64, "{tables}");
    db.close().unwrap();
}

/// Runs `test` once more, in a process that may have so many descriptors.
fn run_with_descriptors(test: &str, home: &Path, descriptors: u32) {
    let limited = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &limited])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("THERMOCLINE_CHILD_HOME", home)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("child is done"), "{text}\n{errors}");
}

/// Every record is there as it was written in `round`, in order.
fn check_all<K, V>(scan: impl IntoIterator<Item = Result<(K, V), Error>>, round: u64)
where
    K: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let mut number = 0;
    for record in scan {
        let (found, bytes) = record.unwrap();
        let is_right = found.as_ref() == key(number).as_bytes();
        assert!(is_right && bytes.as_ref() == value(number, round), "{number}");
        number += 1;
    }
    assert_eq!(number, RECORDS);
}

/// Everything that a store does, with a few of its files open at any moment.
fn work_with_few_descriptors(home: &Path) {
    let db = Db::open(home).unwrap();
    let get = |number: u64| db.get(key(number)).unwrap();
    for number in (0..RECORDS).step_by(37) {
        assert_eq!(get(number).as_deref(), Some(&value(number, 0)[..]));
    }
    let keys: Vec<_> = (0..RECORDS).step_by(97).map(key).collect();
    assert!(db.multi_get(&keys).unwrap().iter().all(Option::is_some));
    check_all(db.scan(), 0);
    let (before, scan_of_before) = (db.snapshot(), db.scan().into_iter());
    write_all(&db, 1);
    db.flush().unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    db.checkpoint(home.join("checkpoint")).unwrap();
    let stats = db.stats();
    assert_eq!((stats.read_only, stats.activity.file_shortage), (None, None));
    let files = stats.open_files;
    assert_eq!((files.open_max, files.descriptors_max), (Some(32), Some(64)));
    assert!(files.open <= 32 && files.reopened > 100, "{files:?}");
    check_all(db.scan(), 1);
    check_all(before.scan(), 0);
    check_all(scan_of_before, 0);
    drop(before);
    db.close().unwrap();
    for opened in [Db::open_read_only(home), Db::open(home.join("checkpoint"))] {
        let db = opened.unwrap();
        check_all(db.scan(), 1);
        assert!(db.stats().open_files.open <= 32, "{:?}", db.stats().open_files);
    }
    println!("\nchild is done");
}

/// As many as a program can take that has sockets and files of its own.
#[allow(clippy::disallowed_methods, reason = "descriptors of the program, no file of the store")]
fn take_all_descriptors() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

/// Reads and writes while the process has no descriptor left, and afterwards.
fn work_without_descriptors(home: &Path) {
    let db = Db::open(home).unwrap();
    let taken = take_all_descriptors();
    assert!(!taken.is_empty());
    let is_shortage = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::TooManyOpenFiles, "{error}");
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    };
    for number in (0..RECORDS).step_by(37) {
        match db.get(key(number)) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value(number, 0)[..])),
            Err(error) => is_shortage(error),
        }
    }
    let write = |number: u64| db.put(key(number), value(number, 1));
    let refused_at = (0..RECORDS).find(|number| match write(*number) {
        Ok(()) => false,
        Err(error) => {
            is_shortage(error);
            true
        }
    });
    assert_eq!(db.stats().read_only, None);
    // It is told, or over: background work may have ended that had the last descriptors.
    let is_told = || db.stats().activity.file_shortage.is_some();
    assert!(refused_at.is_none_or(|number| is_told() || write(number).is_ok()));
    drop(taken);
    (refused_at.unwrap_or(RECORDS)..RECORDS).for_each(|number| write(number).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    check_all(db.scan(), 1);
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    let stats = db.stats();
    assert_eq!((stats.read_only, stats.activity.file_shortage), (None, None));
    db.close().unwrap();
    check_all(Db::open(home).unwrap().scan(), 1);
    println!("\nchild is done");
}

/// `test` starts itself as the child that does `work` in a store of many files.
fn works_with_few_descriptors(test: &str, preset: Preset, work: fn(&Path)) {
    if let Some(home) = std::env::var_os("THERMOCLINE_CHILD_HOME") {
        return work(home.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    make_many_files(&home, preset);
    run_with_descriptors(test, &home, 64);
}

#[test]
fn a_leveled_store_of_many_files_works_with_few_descriptors() {
    let test = "a_leveled_store_of_many_files_works_with_few_descriptors";
    works_with_few_descriptors(test, Preset::Leveled, work_with_few_descriptors);
}

#[test]
fn a_hybrid_store_of_many_files_works_with_few_descriptors() {
    let test = "a_hybrid_store_of_many_files_works_with_few_descriptors";
    works_with_few_descriptors(test, Preset::Hybrid, work_with_few_descriptors);
}

#[test]
fn a_program_that_takes_all_descriptors_stops_a_leveled_store_only_for_as_long() {
    let test = "a_program_that_takes_all_descriptors_stops_a_leveled_store_only_for_as_long";
    works_with_few_descriptors(test, Preset::Leveled, work_without_descriptors);
}

#[test]
fn a_program_that_takes_all_descriptors_stops_a_hybrid_store_only_for_as_long() {
    let test = "a_program_that_takes_all_descriptors_stops_a_hybrid_store_only_for_as_long";
    works_with_few_descriptors(test, Preset::Hybrid, work_without_descriptors);
}

#[test]
fn an_opening_says_how_many_descriptors_it_needs_and_how_many_there_are() {
    let test = "an_opening_says_how_many_descriptors_it_needs_and_how_many_there_are";
    let says = |error: Error, parts: &[&str]| {
        assert_eq!(error.kind(), ErrorKind::TooManyOpenFiles, "{error}");
        assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
    };
    if let Some(home) = std::env::var_os("THERMOCLINE_CHILD_HOME") {
        let home: &Path = home.as_ref();
        says(Db::open(home).unwrap_err(), &["needs 41", "may have 40", "ulimit -n"]);
        println!("\nchild is done");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    Db::create(&home, &settings(&home, Preset::Leveled)).unwrap().close().unwrap();
    run_with_descriptors(test, &home, 40);
    let open_files = 1_000_000;
    let many = Settings { open_files, ..settings(&home, Preset::Leveled) };
    match Db::open_with(&home, &many) {
        Err(error) => says(error, &["needs 1000017", "or lower open_files"]),
        Ok(db) => assert_eq!(db.stats().open_files.open_max, Some(open_files.into())),
    }
}
