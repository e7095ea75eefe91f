//! Runs as a person starts them: rows, crashes, refusals; and engines that cheat, which must fail.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, RwLock};
use thermocline_bench::cell::{self, Cell, Purpose};
use thermocline_bench::command::arguments::example_cell;
use thermocline_bench::results::{Measured, Results, TrafficSource};
use thermocline_bench::store::{
    Durability, EngineKind, Needs, OpenOptions, Store, TierSpace, TierTraffic, Visitor,
};
use thermocline_bench::{Outcome, engines};
use thermocline_foundation::ByteSize;

fn bench(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thermocline-bench"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that must succeed: what it shows, and its results.
fn run(directory: &Path, arguments: &[&str]) -> (String, Results) {
    let output = bench(directory, arguments);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}\n{shown}", text(&output.stderr));
    (shown, Results::read(&directory.join("results.json")).unwrap())
}

#[test]
fn a_run_leaves_results_with_every_row_and_no_directories() {
    let scratch = tempfile::tempdir().unwrap();
    let (shown, results) = run(
        scratch.path(),
        &[
            "run",
            "--engine",
            "thermocline-leveled@tiers,null@fast",
            "--workload",
            "ycsb-a,ycsb-e,fillrandom",
            "--fast",
            "fast:64MiB",
            "--slow",
            "slow",
            "--records",
            "3k",
            "--operations",
            "2k",
            "--threads",
            "3",
            "--memory",
            "16MiB",
            "--rounds",
            "2",
            "--baseline",
            "null@fast",
            "--slow-profile",
            "gp3",
            "--settle",
        ],
    );
    assert!(shown.contains("ycsb-a") && shown.contains("ratio"), "{shown}");
    assert_eq!(results.rows.len(), 12);
    let order: Vec<_> = results.rows.iter().map(|row| (row.round, row.engine.as_str())).collect();
    assert_eq!(order[0], (1, "thermocline-leveled@tiers"));
    assert_eq!(order[6], (2, "null@fast"), "the order turns");
    for row in &results.rows {
        let measured = row.measured.as_ref().unwrap();
        let operations = if row.workload == "fillrandom" { 3000 } else { 2000 };
        assert_eq!(measured.operations, operations, "{}", row.workload);
        assert_eq!(measured.timeline.iter().sum::<u64>(), operations);
        assert_eq!(measured.latency["all"].count, operations);
        assert!(measured.cpu_s > 0.0 && measured.peak_rss_bytes > 0);
        assert_eq!(measured.traffic.source, TrafficSource::Engine);
    }
    let ours = results.rows[0].measured.as_ref().unwrap();
    assert!(ours.checked > 0 && ours.write_amplification.unwrap() >= 1.0, "{ours:?}");
    assert!(ours.space_amplification.unwrap() > 0.9 && ours.traffic.tiers.len() == 2);
    assert!(results.engines[0].options.iter().any(|(name, _)| name == "memory"));
    for directory in ["fast", "slow"] {
        let left: Vec<_> = scratch.path().join(directory).read_dir().unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let report = bench(scratch.path(), &["report", "results.json", "results.json"]);
    assert!(report.status.success() && text(&report.stdout).contains("4 rounds"));
}

/// More data than the fast tier has room for, so records move both ways while they are checked.
#[test]
fn every_value_of_the_preset_hybrid_is_right_on_both_tiers() {
    let scratch = tempfile::tempdir().unwrap();
    let engines = "thermocline-hybrid+runs=2+pinning=50,\
                   thermocline-hybrid+policy=precise+promotion=demotion";
    let (_, results) = run(
        scratch.path(),
        &[
            "run",
            "--engine",
            engines,
            "--workload",
            "ycsb-a,ycsb-e/threads-1,ycsb-d",
            "--fast",
            "fast:8MiB",
            "--slow",
            "slow",
            "--records",
            "20k",
            "--operations",
            "6k",
            "--threads",
            "3",
            "--memory",
            "8MiB",
            "--settle",
        ],
    );
    assert_eq!(results.rows.len(), 6);
    for row in &results.rows {
        let measured = row.measured.as_ref().unwrap();
        assert_eq!(measured.operations, 6000, "{}", row.workload);
        assert!(measured.checked > 0 && measured.absent == 0, "{measured:?}");
        let slow = &measured.traffic.tiers[1];
        assert!(slow.read_bytes > 0, "{} on {}: {slow:?}", row.workload, row.engine);
    }
    let options = &results.engines[1].options;
    let told = |name: &str, value: &str| options.contains(&(name.to_owned(), value.to_owned()));
    assert!(told("hybrid.variant", "tuned") && told("experiment.promotion", "demotion"));
}

/// Loaded and closed, opened again from a copy, updated by several threads while others read, over
/// several memtables: what was written last is there.
#[test]
fn both_ways_to_commit_keep_what_was_written_last() {
    let scratch = tempfile::tempdir().unwrap();
    let (shown, results) = run(
        scratch.path(),
        &[
            "run",
            "--engine",
            "thermocline-commit-slots@fast,thermocline-commit-log@fast",
            "--workload",
            "overwrite/zipf-0.99/sync,overwrite/uniform/threads-1,ycsb-a,overwrite/value-104/sync",
            "--fast",
            "fast",
            "--records",
            "4k",
            "--operations",
            "4k",
            "--threads",
            "4",
            "--memory",
            "8MiB",
            "--settle",
            "--read-back",
        ],
    );
    assert_eq!(results.rows.len(), 8, "{shown}");
    for row in &results.rows {
        let measured = row.measured.as_ref().unwrap();
        assert!(measured.checked >= 4000 && measured.operations == 4000, "{}", row.workload);
        let tier = measured.traffic.tiers[0];
        assert!(tier.syncs > 0, "{} on {}: {tier:?}", row.workload, row.engine);
        // Groups are no larger than there are threads.
        let is_sync = row.workload.ends_with("/sync");
        assert!(!is_sync || tier.syncs >= 1000, "{} on {}: {tier:?}", row.workload, row.engine);
        // Each record is written at once; the log is and the slots are, but for what was replaced.
        let written = measured.write_amplification.unwrap();
        assert!(written >= 1.0, "{} on {}: {written}", row.workload, row.engine);
    }
    let refused = bench(
        scratch.path(),
        &[
            "run",
            "--engine",
            "thermocline-commit-log@fast",
            "--workload",
            "seekrandom",
            "--fast",
            "fast",
            "--records",
            "1k",
        ],
    );
    let refused = text(&refused.stdout);
    assert!(refused.contains("compared without scans"), "{refused}");
}

/// The loaded state is whole whatever the limits of the measured part.
#[test]
fn limits_of_a_row_do_not_cut_its_loaded_state() {
    let scratch = tempfile::tempdir().unwrap();
    run(
        scratch.path(),
        &[
            "run",
            "--engine",
            "thermocline-leveled@fast",
            "--workload",
            "ycsb-c/uniform,readseq",
            "--fast",
            "f",
            "--records",
            "20k",
            "--operations",
            "100",
            "--seconds",
            "0.01",
            "--memory",
            "16MiB",
        ],
    );
}

#[test]
fn a_run_that_is_killed_keeps_its_finished_rows_and_leaves_no_process() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("results.json");
    let mut run = Command::new(env!("CARGO_BIN_EXE_thermocline-bench"))
        .args(["run", "--engine", "null@fast", "--workload", "ycsb-c,ycsb-c/uniform"])
        .args(["--fast", "f", "--records", "1k", "--rounds", "1000"])
        .current_dir(scratch.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let rows = || Results::read(&path).map_or(0, |results| results.rows.len());
    for look in 0.. {
        if rows() >= 3 {
            break;
        }
        assert!(run.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(look < 12_000, "three rows were not written in two minutes");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let kept = rows();
    assert!(kept >= 3);
    assert!(Results::read(&path).unwrap().rows.iter().all(|row| row.measured.is_some()));
    // The cell under way dies with its parent; no process goes on writing.
    let below = scratch.path().canonicalize().unwrap();
    let cells = || {
        let processes = Path::new("/proc").read_dir().unwrap().flatten();
        let own = |path: &Path| path.join("cwd").read_link().is_ok_and(|cwd| cwd == below);
        processes.filter(|entry| own(&entry.path())).count()
    };
    for look in 0.. {
        if cells() == 0 {
            break;
        }
        assert!(look < 6000, "the cell under way did not end within a minute");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(rows(), kept);
    let again = bench(
        scratch.path(),
        &[
            "run",
            "--engine",
            "null",
            "--workload",
            "ycsb-c",
            "--fast",
            "f:1MiB",
            "--slow",
            "s",
            "--records",
            "1k",
        ],
    );
    assert!(again.status.success(), "what was left is replaced: {}", text(&again.stderr));
}

#[test]
fn a_cell_that_dies_is_a_failed_row_and_the_run_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |in_front: &str| {
        bench(
            scratch.path(),
            &[
                "run",
                "--engine",
                "null@fast",
                "--workload",
                "fillseq,overwrite",
                "--fast",
                "f",
                "--records",
                "100",
                "--in-front",
                in_front,
                "--silence-seconds",
                "0.5",
            ],
        )
    };
    let output = run("false");
    assert!(!output.status.success());
    let results = Results::read(&scratch.path().join("results.json")).unwrap();
    let failures: Vec<_> = results.rows.iter().map(|row| row.failure.clone().unwrap()).collect();
    assert_eq!(failures.len(), 2);
    assert!(failures[0].contains("exit status: 1"), "{failures:?}");
    assert!(failures[1].contains("loading"), "{failures:?}");
    let hangs = scratch.path().join("hangs");
    std::fs::write(&hangs, "#!/bin/sh\necho about to hang\nexec sleep 1000\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hangs, executable).unwrap();
    let failures = text(&run("./hangs").stdout);
    assert!(failures.contains("no sign of life for 0.5 s"), "{failures}");
    let failures = text(&run("no-such-command-here").stdout);
    assert!(failures.contains("cannot start no-such-command-here"), "{failures}");
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let refused = |engine: &str, workload: &str, more: &[&str]| {
        let mut arguments = vec!["run", "--engine", engine, "--workload", workload];
        arguments.extend(more);
        if !more.contains(&"--records") {
            arguments.extend(["--records", "100"]);
        }
        let output = bench(scratch.path(), &arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!scratch.path().join("results.json").exists(), "{arguments:?}");
        let lines = text(&output.stderr);
        assert_eq!(lines.trim_end().lines().count(), 1, "{lines}");
        lines
    };
    let fast = ["--fast", "f"];
    for (engine, workload, more, reason) in [
        ("rockdb", "ycsb-a", &fast[..], "there is no engine 'rockdb'; there are thermocline"),
        ("null", "ycsb-z", &fast, "there is no workload 'ycsb-z'; there are load, ycsb-a"),
        ("null+x=1", "ycsb-a", &fast, "null has no option 'x'; it has none"),
        ("null@warm", "ycsb-a", &fast, "'warm' is not a layout"),
        ("null@fast", "ycsb-a", &[], "name a directory"),
        ("null@tiers", "ycsb-a", &fast, "needs the fast tier's capacity"),
        ("null@slow", "ycsb-a", &fast, "name one with --slow DIR"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--threads", "256"], "1 to 255 are"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--memory", "1MiB"], "too little"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--memory", "900TiB"], "are available"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--memory-limit", "9MiB"], "is below"),
        (
            "null@fast",
            "ycsb-a",
            &["--fast", "f", "--value-size", "1MiB", "--records", "1000M"],
            "free and ycsb-a on null@fast needs",
        ),
        ("null@fast", "ycsb-a", &["--fast", "f", "--baseline", "x"], "the baseline 'x'"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--rounds", "0"], "0 rounds"),
        ("null@fast", "ycsb-a", &["--fast", "f", "--fast-device", "zz9"], "no block device 'zz9'"),
        ("thermocline-leveled@fast+driver=floppy", "ycsb-a", &fast, "floppy"),
        ("thermocline-leveled@fast+block-size=1", "ycsb-a", &fast, "block_size"),
        ("thermocline-hybrid@fast", "ycsb-a", &fast, "it can use tiers"),
        ("thermocline-hybrid+cache=1", "ycsb-a", &fast, "it has driver, slow-driver"),
        ("null@fast", "ycsb-a/threads-256", &fast, "1 to 255 are"),
    ] {
        let more: Vec<&str> = more.to_vec();
        let lines = refused(engine, workload, &more);
        assert!(lines.contains(reason), "{engine} {workload}: {lines}");
    }
}

#[test]
fn what_exists_is_listed_and_bounds_are_computed_without_a_store() {
    let scratch = tempfile::tempdir().unwrap();
    let listed = text(&bench(scratch.path(), &["list"]).stdout);
    for name in [
        "thermocline-leveled",
        "thermocline-hybrid",
        "+driver",
        "+policy: choice",
        "ycsb-f",
        "linkbench",
        "hotrap",
        "threads-N",
    ] {
        assert!(listed.contains(name), "{name} in {listed}");
    }
    let bound = bench(scratch.path(), &["bound", "--workload", "ycsb-c", "--resident", "24%"]);
    let line = text(&bound.stdout);
    assert!(line.contains("ycsb-c") && line.contains("24.0 %"), "{line}");
    let wrong = bench(scratch.path(), &["bound", "--resident", "lots"]);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("lots"));
}

/// How an engine cheats.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cheat {
    Nothing,
    LosesWrites,
    ServesOldVersions,
    FlipsBits,
    SwapsRecords,
    LeavesOutOfScans,
    EndsScansEarly,
    ForgetsDeletes,
    FindsWhatIsNotThere,
}

/// A map in memory that cheats a little. What is loaded stays in the kind for the run.
struct Cheater {
    cheat: Cheat,
    records: &'static RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl EngineKind for Cheater {
    fn name(&self) -> &str {
        "cheater"
    }

    fn about(&self) -> String {
        "a map in memory".to_owned()
    }

    fn needs(&self) -> Needs {
        Needs::OneTier
    }

    fn describe(&self, _: &OpenOptions) -> Outcome<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn open(&self, options: &OpenOptions) -> Outcome<Box<dyn Store>> {
        let cheat = if options.loading { Cheat::Nothing } else { self.cheat };
        Ok(Box::new(CheatingStore { cheat, records: self.records, count: Mutex::new(0) }))
    }
}

struct CheatingStore {
    cheat: Cheat,
    records: &'static RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    count: Mutex<u64>,
}

impl CheatingStore {
    /// True every fiftieth time that the store could cheat so.
    fn now(&self, cheat: Cheat) -> bool {
        if self.cheat != cheat {
            return false;
        }
        let mut count = self.count.lock().unwrap();
        *count += 1;
        *count % 50 == 49
    }
}

impl Store for CheatingStore {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Outcome<bool> {
        value.clear();
        let records = self.records.read().unwrap();
        let found = if self.now(Cheat::SwapsRecords) {
            records.range(key.to_vec()..).nth(1).map(|(_, value)| value)
        } else if self.cheat == Cheat::FindsWhatIsNotThere {
            records.range(..=key.to_vec()).next_back().map(|(_, value)| value)
        } else {
            records.get(key)
        };
        value.extend_from_slice(found.map_or(&[], |found| found));
        if self.now(Cheat::FlipsBits) && value.len() > 20 {
            value[20] ^= 4;
        }
        Ok(found.is_some())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut records = self.records.write().unwrap();
        let old = self.cheat == Cheat::ServesOldVersions && records.contains_key(key);
        if !old && !self.now(Cheat::LosesWrites) {
            records.insert(key.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Outcome<()> {
        if self.cheat != Cheat::ForgetsDeletes {
            self.records.write().unwrap().remove(key);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], count: u64, visit: &mut Visitor<'_>) -> Outcome<u64> {
        let records = self.records.read().unwrap();
        let mut rest = records.range(from.to_vec()..).peekable();
        let mut found = 0;
        while found < count
            && let Some((key, value)) = rest.next()
        {
            if self.cheat == Cheat::EndsScansEarly && found == 5 {
                break;
            }
            // One that another follows: without the last one the scan would end early.
            if rest.peek().is_none() || !self.now(Cheat::LeavesOutOfScans) {
                visit(key, value);
                found += 1;
            }
        }
        Ok(found)
    }

    fn sync(&self) -> Outcome<()> {
        Ok(())
    }

    fn settle(&self) -> Outcome<()> {
        Ok(())
    }

    fn tier_traffic(&self) -> Option<Vec<TierTraffic>> {
        None
    }

    fn close(self: Box<Self>) -> Outcome<()> {
        Ok(())
    }
}

/// Loads 500 records and runs `workload` on a store that cheats.
fn run_cheating(cheat: Cheat, workload: &str) -> Outcome<Measured> {
    run_cheating_and(cheat, workload, 20_000, false)
}

/// The same, of so many operations; then all records are looked up where `read_back`.
fn run_cheating_and(
    cheat: Cheat,
    workload: &str,
    operations: u64,
    read_back: bool,
) -> Outcome<Measured> {
    let records = Box::leak(Box::new(RwLock::new(BTreeMap::new())));
    let engine = Cheater { cheat, records };
    let scratch = tempfile::tempdir().unwrap();
    let tier = TierSpace {
        name: "fast".to_owned(),
        path: scratch.path().to_owned(),
        capacity: ByteSize::gib(1),
    };
    let run = Cell {
        engine: "cheater".to_owned(),
        workload: workload.to_owned(),
        records: 500,
        value_bytes: 100,
        threads: 4,
        durability: Durability::Buffered,
        tiers: vec![tier],
        operations: Some(operations),
        read_back,
        ..example_cell()
    };
    let load = Cell { purpose: Purpose::Load, ..run.clone() };
    cell::run(&load, &[&engine], &mut |_| {})?;
    cell::run(&run, &[&engine], &mut |_| {})
}

#[test]
fn an_honest_engine_passes_every_workload() {
    for workload in [
        "ycsb-a",
        "ycsb-d",
        "ycsb-e",
        "ycsb-f",
        "hotrap-wh",
        "linkbench",
        "nutanix",
        "prefix_dist",
        "deleterandom",
        "readmissing",
        "readseq",
        "readwhilewriting",
        "twitter-51",
        "seekrandom",
    ] {
        let measured = run_cheating(Cheat::Nothing, workload).unwrap();
        let operations = if workload == "readseq" { 500 } else { 20_000 };
        assert_eq!(measured.operations, operations, "{workload}");
        assert!(measured.checked + measured.absent > 0 || workload == "deleterandom");
        assert_eq!(measured.traffic.source, TrafficSource::Process);
        let has_writer = workload == "readwhilewriting";
        assert_eq!(measured.beside_ops_per_s.is_some_and(|rate| rate > 0.0), has_writer);
        assert!(measured.user_written_bytes > 0 || !has_writer);
    }
}

#[test]
fn a_writer_beside_readers_writes_however_soon_they_are_done() {
    for _ in 0..4 {
        let measured = run_cheating_and(Cheat::Nothing, "readwhilewriting", 1, false).unwrap();
        assert!(measured.beside_ops_per_s.is_some_and(|rate| rate > 0.0));
    }
}

#[test]
fn every_kind_of_wrong_answer_fails_the_run_and_names_the_key() {
    for (cheat, workload, reason) in [
        (Cheat::LosesWrites, "ycsb-a", "version"),
        (Cheat::LosesWrites, "hotrap-wh/latest", "is missing"),
        (Cheat::ServesOldVersions, "ycsb-a", "was read with version 1"),
        (Cheat::FlipsBits, "ycsb-c", "not one that was written"),
        (Cheat::SwapsRecords, "ycsb-c", "record"),
        (Cheat::LeavesOutOfScans, "ycsb-e", "is left out"),
        (Cheat::LeavesOutOfScans, "readseq", "is left out"),
        (Cheat::EndsScansEarly, "seekrandom", "it ends after 5 records"),
        (Cheat::ForgetsDeletes, "linkbench", "was read with version"),
        (Cheat::FindsWhatIsNotThere, "readmissing", "was never written"),
    ] {
        let error = run_cheating(cheat, workload).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("key"), "{cheat:?} {workload}: {error}");
    }
}

#[test]
fn what_was_not_asked_for_is_found_wrong_when_all_records_are_read_back() {
    for (cheat, reason) in [
        (Cheat::LosesWrites, "has version"),
        (Cheat::ServesOldVersions, "has version 1; right is"),
        (Cheat::FlipsBits, "not one that was written"),
        (Cheat::SwapsRecords, "record"),
    ] {
        run_cheating(cheat, "overwrite").unwrap();
        let error = run_cheating_and(cheat, "overwrite", 20_000, true).unwrap_err().to_string();
        assert!(error.contains("after the run: ") && error.contains("key"), "{error}");
        assert!(error.contains(reason), "{cheat:?}: {error}");
    }
    let measured = run_cheating_and(Cheat::Nothing, "overwrite", 20_000, true).unwrap();
    assert_eq!(measured.checked, 500);
}

/// A cell of ours in `place`, where others of it may have run.
fn ours(place: &Path, workload: &str, change: impl Fn(Cell) -> Cell) -> Measured {
    let tiers = vec![TierSpace { path: place.to_owned(), ..example_cell().tiers[0].clone() }];
    let cell = Cell {
        engine: "thermocline-leveled@fast+driver=posix".to_owned(),
        workload: workload.to_owned(),
        records: 4_000,
        value_bytes: 100,
        threads: 3,
        operations: Some(9_000),
        tiers,
        ..example_cell()
    };
    cell::run(&change(cell), &engines::ALL, &mut |_| {}).unwrap()
}

fn loading(cell: Cell) -> Cell {
    Cell { purpose: Purpose::Load, ..cell }
}

#[test]
fn writes_that_fly_are_counted_timed_and_found_when_all_records_are_read_back() {
    for workload in ["overwrite/async-64/sync", "ycsb-a/async-8", "overwrite/zipf-1.4/async-200"] {
        let scratch = tempfile::tempdir().unwrap();
        ours(scratch.path(), workload, loading);
        let measured = ours(scratch.path(), workload, |cell| Cell { read_back: true, ..cell });
        assert_eq!(measured.operations, 9_000, "{workload}");
        assert_eq!(measured.timeline.iter().sum::<u64>(), 9_000);
        assert_eq!(measured.latency["all"].count, 9_000);
        assert!(measured.checked >= 4_000 && measured.user_written_bytes > 0);
    }
    let error = run_cheating(Cheat::Nothing, "overwrite/async-4").unwrap_err().to_string();
    assert!(error.contains("the engine has no such writes"), "{error}");
}

#[test]
fn changes_in_transactions_are_found_with_what_changes_with_them() {
    for kind in ["optimistic", "pessimistic"] {
        let scratch = tempfile::tempdir().unwrap();
        let engine = |cell: Cell| Cell {
            engine: format!("thermocline-leveled@fast+driver=posix+transactions={kind}"),
            ..cell
        };
        let workload = "linkbench/transactions";
        ours(scratch.path(), workload, |cell| loading(engine(cell)));
        let measured = ours(scratch.path(), workload, |cell| Cell {
            read_back: true,
            operations: Some(3_000),
            ..engine(cell)
        });
        assert_eq!(measured.operations, 3_000);
        let plain = tempfile::tempdir().unwrap();
        ours(plain.path(), "linkbench", |cell| loading(engine(cell)));
        let alone = ours(plain.path(), "linkbench", |cell| Cell {
            operations: Some(3_000),
            ..engine(cell)
        });
        // A tenth of the operations write a count besides.
        assert!(measured.user_written_bytes > alone.user_written_bytes, "{measured:?}");
    }
    let error = run_cheating(Cheat::Nothing, "linkbench/transactions").unwrap_err().to_string();
    assert!(error.contains("has no transactions"), "{error}");
}

#[test]
fn wake_ups_at_rest_are_counted_where_they_are_asked_for() {
    let scratch = tempfile::tempdir().unwrap();
    ours(scratch.path(), "readrandom", loading);
    assert_eq!(ours(scratch.path(), "readrandom", |cell| cell).wake_ups, None);
    let resting = |cell: Cell| Cell { rest_seconds: Some(0.2), operations: Some(100), ..cell };
    assert!(ours(scratch.path(), "overwrite", resting).wake_ups.is_some());
}

/// The process that loads ends with its store open; the rows replay its log.
#[test]
fn rows_begin_with_what_a_crash_left() {
    let scratch = tempfile::tempdir().unwrap();
    let tier = |name: &str| TierSpace {
        name: "fast".to_owned(),
        path: scratch.path().join(name),
        capacity: ByteSize::gib(1),
    };
    let load = Cell {
        purpose: Purpose::Load,
        crashed: true,
        engine: "thermocline-leveled@fast+driver=posix".to_owned(),
        workload: "readrandom".to_owned(),
        records: 2_000,
        memory: ByteSize::mib(256),
        operations: Some(500),
        tiers: vec![tier("store")],
        ..example_cell()
    };
    let json = serde_json::to_string(&load).unwrap();
    thermocline_bench::files::make(&load.tiers[0].path).unwrap();
    let output = bench(scratch.path(), &["cell", "--json", &json]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tables = |dir: &Path| {
        let entries = dir.join("data").read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".table")).count()
    };
    assert_eq!(tables(&load.tiers[0].path), 0, "nothing is written out");
    let run = Cell { purpose: Purpose::Run, ..load };
    let measured = cell::run(&run, &engines::ALL, &mut |_| {}).unwrap();
    assert_eq!((measured.operations, measured.absent), (500, 0));
    assert!(measured.preparation_s.open > 0.0);
}

#[test]
fn a_paced_run_keeps_its_rate_and_counts_from_when_operations_were_due() {
    let cell = Cell { rate: Some(2_000.0), operations: Some(1_000), ..example_cell() };
    let scratch = tempfile::tempdir().unwrap();
    let tiers = vec![TierSpace { path: scratch.path().to_owned(), ..cell.tiers[0].clone() }];
    let measured = cell::run(&Cell { tiers, ..cell }, &engines::ALL, &mut |_| {}).unwrap();
    // Due over half a second; a loaded machine may take longer, none may be faster.
    assert!(measured.seconds > 0.45, "{}", measured.seconds);
    assert_eq!(measured.latency_from_due["all"].count, 1_000);
    assert!(measured.latency_from_due["all"].max_us >= measured.latency["all"].max_us);
}

#[test]
fn warming_up_is_not_counted_and_a_run_by_seconds_has_a_last_tenth() {
    let scratch = tempfile::tempdir().unwrap();
    let cell = example_cell();
    let tiers = vec![TierSpace { path: scratch.path().to_owned(), ..cell.tiers[0].clone() }];
    let by_count = Cell { tiers, warm_up_operations: Some(5_000), operations: Some(1_000), ..cell };
    let mut parts = Vec::new();
    let measured = cell::run(&by_count, &engines::ALL, &mut |message| {
        if let cell::Message::Progress { part, .. } = message {
            parts.push(part);
        }
    });
    let measured = measured.unwrap();
    assert_eq!((measured.operations, measured.latency["read"].count), (1_000, 1_000));
    assert!(measured.preparation_s.warm_up > 0.0 && measured.last_tenth_ops_per_s > 0.0);
    parts.dedup();
    assert_eq!(parts, ["warm-up", "run"]);
    let by_time = Cell { operations: None, seconds: Some(0.2), ..by_count };
    let measured = cell::run(&by_time, &engines::ALL, &mut |_| {}).unwrap();
    assert!(measured.seconds >= 0.2 && measured.operations > 0);
    assert!(measured.last_tenth_ops_per_s > 0.0);
    assert_eq!(measured.timeline.iter().sum::<u64>(), measured.operations);
}

#[test]
fn a_trace_is_loaded_and_replayed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut lines = "time,op,key,size\n".to_owned();
    for index in 0..2_000 {
        let (op, size) =
            [("get", 0), ("set", 50 + index % 90), ("scan", 5), ("delete", 0)][index % 7 % 4];
        lines.push_str(&format!("{index},{op},user:{},{size}\n", index * 31 % 400));
    }
    std::fs::write(scratch.path().join("t.csv"), lines).unwrap();
    let (_, results) = run(
        scratch.path(),
        &[
            "run",
            "--engine",
            "thermocline-leveled@fast",
            "--workload",
            "trace:t.csv",
            "--fast",
            "f",
            "--threads",
            "3",
            "--memory",
            "16MiB",
        ],
    );
    let measured = results.rows[0].measured.as_ref().unwrap();
    assert_eq!(measured.operations, 2_000);
    assert_eq!(measured.latency.len(), 5, "{:?}", measured.latency.keys());
}

#[test]
fn values_of_each_size_are_moved_and_checked_and_nothing_is_left() {
    let scratch = tempfile::tempdir().unwrap();
    for preset in ["hybrid", "leveled"] {
        let sizes = ["--smallest", "4KiB", "--largest", "1MiB", "--data", "1MiB"];
        let store = ["--memory", "16MiB", "--dir", "stores", "--preset", preset];
        let output = bench(scratch.path(), &[&["values"][..], &sizes, &store].concat());
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}\n{shown}", text(&output.stderr));
        let lines: Vec<Vec<_>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["value", "values", "put+flush", "get", "scan", "demotion"]);
        let counts: Vec<_> = lines[1..].iter().map(|line| line[2]).collect();
        assert_eq!(counts, ["256", "64", "16", "4", "2"], "{shown}");
        let is_speed = |pair: &[&str]| pair[0].parse::<f64>().unwrap() > 0.0 && pair[1] == "MB/s";
        assert!(
            lines[1..].iter().all(|line| line.len() == 11 && line[3..].chunks(2).all(is_speed))
        );
        assert!(!scratch.path().join("stores").exists());
    }
    let output = bench(scratch.path(), &["values", "--preset", "other"]);
    assert!(!output.status.success() && text(&output.stderr).contains("no preset"));
}
