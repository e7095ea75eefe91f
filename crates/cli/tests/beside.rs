//! Commands beside a process that has the database open: what they can tell of it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod command;

use command::{Scratch, text};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;
use thermocline_foundation::{Clock, SystemClock};

/// A load that waits for more input.
struct Holder {
    load: Child,
    input: ChildStdin,
}

impl Holder {
    /// Loads some megabytes, and waits.
    fn start(scratch: &Scratch, interval: &str) -> Self {
        scratch.file("store.toml", format!("stats_interval = '{interval}'\n").as_bytes());
        let tiers = ["--tier", "fast:64MiB", "--tier", "slow:1GiB"];
        let arguments = [&["--config", "store.toml"], &tiers[..], &["load", "--tsv"]].concat();
        let mut load = scratch.start(&arguments);
        let mut input = load.stdin.take().unwrap();
        // The pipe takes 64 KiB, so most of this is in it only after the database was opened.
        let lines: String = (0..30_000).map(|n| format!("{n:08}\t{}\n", "v".repeat(100))).collect();
        input.write_all(lines.as_bytes()).unwrap();
        Self { load, input }
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.load.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.load.kill().unwrap();
        self.load.wait().unwrap();
    }
}

/// The figures beside the holder, once they have written records; a bounded number of looks.
fn figures(scratch: &Scratch) -> serde_json::Value {
    for _ in 0..600 {
        let output = scratch.run(&["stats", "--json"], b"");
        if output.status.success() {
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if report["operations"]["writes"].as_u64().unwrap() > 0 {
                return report;
            }
        }
        SystemClock::new().sleep(Duration::from_millis(20));
    }
    panic!("figures with written records did not come in 600 looks");
}

#[test]
fn stats_and_tiers_tell_of_a_database_that_another_process_has_open() {
    let scratch = Scratch::new();
    let holder = Holder::start(&scratch, "10 ms");
    let process = holder.load.id();
    let report = figures(&scratch);
    assert_eq!(report["live"]["process"], process, "{report}");
    assert_eq!(report["preset"], "hybrid", "{report}");
    let whose = format!("Figures of process {process}, which has the store open, written ");
    for arguments in [&["stats"][..], &["stats", "--all"], &["tiers"]] {
        let shown = text(&scratch.ok(arguments));
        assert!(shown.starts_with(&whose), "{arguments:?}: {shown}");
        assert!(shown.contains("64 MiB") && shown.contains("/slow"), "{shown}");
        match arguments {
            ["stats"] => {
                assert!(shown.contains("log writes: "), "{shown}");
                assert!(shown.lines().count() <= 24, "{shown}");
            }
            ["stats", "--all"] => assert!(shown.contains("writes in a group"), "{shown}"),
            _ => {}
        }
    }
    let tiers = scratch.run(&["tiers", "--json"], b"");
    let list: serde_json::Value = serde_json::from_slice(&tiers.stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    assert!(text(&tiers.stderr).starts_with(&whose), "{tiers:?}");
    let error = scratch.fails(&["get", "00000001"], 1);
    assert!(error.contains("lock"), "{error}");
    holder.end();
    let shown = text(&scratch.ok(&["stats"]));
    assert!(shown.starts_with("Database "), "{shown}");
    assert!(text(&scratch.ok(&["stats", "--json"])).starts_with("{\n  \"database\""));
}

/// A watch that has printed its first line.
struct Watch {
    command: Child,
    output: BufReader<ChildStdout>,
    shown: String,
}

impl Watch {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Self {
        let mut command = scratch.start(arguments);
        let mut output = BufReader::new(command.stdout.take().unwrap());
        let mut shown = String::new();
        output.read_line(&mut shown).unwrap();
        assert!(!shown.is_empty(), "{arguments:?} ended without a line");
        Self { command, output, shown }
    }

    /// Everything that it prints until it ends, and what it says then.
    fn wait(mut self) -> (String, String) {
        self.output.read_to_string(&mut self.shown).unwrap();
        let ended = self.command.wait_with_output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        (self.shown, text(&ended.stderr))
    }
}

#[test]
fn a_watch_shows_figures_until_the_database_is_closed() {
    let scratch = Scratch::new();
    let mut holder = Holder::start(&scratch, "10 ms");
    let process = holder.load.id();
    figures(&scratch);
    let watch = Watch::start(&scratch, &["stats", "--watch"]);
    let lines = Watch::start(&scratch, &["--json", "stats", "--watch"]);
    for number in 0..5 {
        let more = format!("more{number}\t{}\n", "v".repeat(2 << 20));
        holder.input.write_all(more.as_bytes()).unwrap();
    }
    holder.end();
    let (shown, said) = watch.wait();
    let parts =
        ["records written", "slots, or memory above them", "records up", "queues:", "stalls:"];
    for part in parts.into_iter().chain(["cause:", &format!("Figures of process {process}")]) {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(said.contains("open in no process any more"), "{said}");
    for line in lines.wait().0.lines() {
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(report["live"]["process"], process, "{report}");
    }
}

#[test]
fn a_watch_ends_when_the_process_was_killed_and_begins_only_beside_one() {
    let scratch = Scratch::new();
    let holder = Holder::start(&scratch, "10 ms");
    figures(&scratch);
    let watch = Watch::start(&scratch, &["stats", "--watch"]);
    holder.kill();
    let (_, said) = watch.wait();
    assert!(said.contains("open in no process any more"), "{said}");
    let error = scratch.fails(&["stats", "--watch"], 1);
    assert!(error.contains("no process has ./thermocline-data open"), "{error}");
    // What the killed process left is of no open store.
    let shown = text(&scratch.ok(&["stats"]));
    assert!(shown.starts_with("Database "), "{shown}");
}

#[test]
fn a_process_without_figures_is_named_with_the_setting() {
    let scratch = Scratch::new();
    let holder = Holder::start(&scratch, "0 s");
    let error = scratch.fails(&["stats"], 1);
    assert!(error.contains("lock") && error.contains("stats_interval"), "{error}");
    // So is one whose figures are torn.
    scratch.file("thermocline-data/live-stats.json", b"{\"live\": {\"version\"");
    let error = scratch.fails(&["tiers"], 1);
    assert!(error.contains("lock") && error.contains("not whole"), "{error}");
    holder.end();
    scratch.ok(&["stats"]);
    assert!(scratch.names("thermocline-data", "live-stats.json").is_empty());
}

#[test]
fn stats_beside_a_reader_shows_no_figures_of_a_writer_that_was_killed() {
    let scratch = Scratch::new();
    let holder = Holder::start(&scratch, "10 ms");
    figures(&scratch);
    holder.kill();
    let reader = thermocline::Db::open_read_only(scratch.path("thermocline-data")).unwrap();
    assert_eq!(
        scratch.names("thermocline-data", "live-stats.json"),
        ["thermocline-data/live-stats.json"]
    );
    for command in ["stats", "tiers"] {
        let error = scratch.fails(&[command], 1);
        assert!(error.contains("locked") && error.contains("--read-only"), "{error}");
    }
    let error = scratch.fails(&["stats", "--watch"], 1);
    assert!(error.contains("no process has ./thermocline-data open"), "{error}");
    let shown = text(&scratch.ok(&["--read-only", "stats"]));
    assert!(shown.starts_with("Database ") && shown.contains("mode read-only"), "{shown}");
    assert_eq!(
        scratch.names("thermocline-data", "live-stats.json"),
        ["thermocline-data/live-stats.json"]
    );
    reader.close().unwrap();
}
