//! What the scenario makes of its arguments.

use super::*;
use crate::results::{Machine, Measured, Results, Row as Measurement, Scenario};
use crate::store::{Durability, Label};
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: SlmdbArguments,
}

fn arguments(words: &[&str]) -> SlmdbArguments {
    Line::parse_from([&["x"], words].concat()).arguments
}

pub(super) fn sizes(words: &[&str]) -> Sizes {
    Sizes::new(&arguments(words))
}

#[test]
fn data_follow_from_memory_and_memory_from_the_records() {
    let usual = sizes(&["--records", "400k"]);
    assert_eq!(usual.memory_bytes, 400_000 * 512);
    assert_eq!(usual.data_bytes(), 2 * usual.memory_bytes);
    assert_eq!((usual.rounds, sizes(&["--quick"]).rounds), (3, 1));
    let more = sizes(&["--records", "400k", "--data-over-memory", "5"]);
    assert_eq!(more.memory_bytes, usual.memory_bytes);
    assert_eq!(more.data_bytes() * 2, usual.data_bytes() * 5);
    for value in VALUES {
        let data = usual.records(value) * (value + KEY_BYTES);
        assert!(data <= usual.data_bytes() && data > usual.data_bytes() / 10 * 9, "{value}");
    }
    let cell = usual.cell(Group::Work(USUAL_VALUE), 1);
    assert_eq!(cell.memory_limit.unwrap().0, usual.memory_bytes);
    assert_eq!(cell.threads, 1);
}

#[test]
fn fills_run_to_their_end_and_what_was_put_off_is_counted() {
    let sizes = sizes(&[]);
    let fill = sizes.cell(Group::Fill(4096), 1);
    assert_eq!((fill.seconds, fill.settle, fill.records), (None, true, sizes.records(4096)));
    let recovery = sizes.cell(Group::Recovery, 1);
    assert!(recovery.crashed && recovery.records == sizes.keys);
    assert!(!sizes.cell(Group::Rebuild, 1).crashed);
}

#[test]
fn figures_sizes_and_beginnings_of_names_choose_rows() {
    let names = |words: &[&str]| {
        let arguments = arguments(words);
        let rows = chosen(&arguments, &Sizes::new(&arguments))?;
        Outcome::Ok(rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
    };
    let of = names(&["--figure", "latency"]).unwrap();
    assert_eq!(of, ["latency/peak", "latency/p99/get", "latency/p99/put"]);
    let of = names(&["--row", "4/random-write", "--value", "1KiB,64KiB"]).unwrap();
    let expected = ["4/random-write/1KiB", "4/random-write/64KiB", "4/random-write/mean"];
    assert_eq!(of, expected);
    let error = names(&["--row", "9/"]).unwrap_err().to_string();
    assert!(error.contains("there are 4/random-write"), "{error}");
    for wrong in [["--figure", "9"], ["--value", "2GiB"], ["--data-over-memory", "0"]] {
        assert!(Line::try_parse_from([&["x"], &wrong[..]].concat()).is_err(), "{wrong:?}");
    }
}

/// Both engines have the same memtable, and the second LevelDB the bytes of the region besides.
#[test]
fn leveldb_has_our_memtable_and_in_a_row_of_its_own_our_region() {
    let arguments = arguments(&["--figure", "4", "--value", "1KiB"]);
    let sizes = Sizes::new(&arguments);
    let rows = chosen(&arguments, &sizes).unwrap();
    let of = |name: &str, under: bool| -> Label {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        let side = if under { &row.under } else { &row.over };
        side[0].engine.parse().unwrap()
    };
    let ours = of("4/random-write/1KiB", false);
    let plain = of("4/random-write/1KiB", true);
    let mut cached = of("4-cache/random-write/1KiB", true);
    let bytes = |label: &Label, option: &str| label.options[option].parse::<ByteSize>().unwrap().0;
    assert_eq!(bytes(&plain, "write-buffer") >> 10, (sizes.engine_bytes() / 12) >> 10);
    let region = bytes(&ours, "persistent-memory");
    let memory = cached.take_memory().unwrap().unwrap().0;
    assert_eq!(memory >> 20, (sizes.engine_bytes() >> 20) + (region >> 20));
    assert_eq!(plain, cached);
}

/// The kernel's read-ahead is what a mapped store's look-ups hang on.
#[test]
fn leveldb_counts_with_the_best_read_ahead_wherever_it_reads() {
    let rivals = |name: &str| {
        let arguments = arguments(&["--row", name, "--value", "1KiB"]);
        let rows = chosen(&arguments, &Sizes::new(&arguments)).unwrap();
        let labels = rows[0].under.iter().map(|point| point.engine.parse::<Label>().unwrap());
        let read_ahead = |label: Label| label.options.get("read-ahead").cloned();
        labels.map(read_ahead).collect::<Vec<_>>()
    };
    let all = [None, Some("16KiB".to_owned()), Some("4KiB".to_owned())];
    for name in ["6/random-read/1KiB", "6-cache/random-read/1KiB", "7/e/1KiB", "latency/p99/get"] {
        assert_eq!(rivals(name), all, "{name}");
    }
    assert_eq!(rivals("4/random-write/1KiB"), [None]);
}

#[test]
fn latencies_are_measured_at_half_of_what_the_slower_one_reached() {
    let measured = |engine: &str, ops_per_s| Measurement {
        engine: engine.to_owned(),
        workload: rows::peak_workload(),
        round: 1,
        seed: 1,
        durability: Durability::Buffered,
        tiers: Vec::new(),
        measured: Some(Measured { ops_per_s, ..Measured::default() }),
        failure: None,
    };
    let mut results = Results::new("", Scenario::default(), Machine::default(), 0);
    results.rows = vec![measured("thermocline-indexed@slow", 5000.0)];
    let group = Group::Work(USUAL_VALUE);
    let alone = Found::from([(group, results.clone())]);
    assert!(due(&alone).unwrap_err().contains("latency/peak"));
    results.rows.push(measured("leveldb@slow+write-buffer=1MiB", 300.0));
    results.rows.push(measured("leveldb@slow+write-buffer=1MiB+read-ahead=4KiB", 3000.0));
    assert_eq!(due(&Found::from([(group, results)])), Ok(1500.0));
}
