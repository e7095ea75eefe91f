//! Runs of made-up engines through the whole scenario, and what it says of what is not there.

use super::judged::{Judged, Verdict, judge};
use super::rows::{DIRECT, Goal, Value};
use super::*;
use crate::results::{Machine, Measured, Row as Measurement, Scenario};
use crate::store::Durability;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: SpandbArguments,
}

fn arguments(words: &[&str]) -> SpandbArguments {
    Line::parse_from([&["x"], words].concat()).arguments
}

fn measurement(point: &Point, round: u32, ops_per_s: Option<f64>) -> Measurement {
    Measurement {
        engine: point.engine.clone(),
        workload: point.workload.clone(),
        round,
        seed: 1,
        durability: Durability::Sync,
        tiers: Vec::new(),
        measured: ops_per_s.map(|ops_per_s| Measured { ops_per_s, ..Measured::default() }),
        failure: ops_per_s.is_none().then(|| "it broke".to_owned()),
    }
}

fn results(rows: Vec<Measurement>) -> Results {
    Results { rows, ..Results::new("", Scenario::default(), Machine::default(), 0) }
}

fn row(name: &str) -> Row {
    let mut rows = asked(&arguments(&["--row", name])).unwrap();
    rows.swap_remove(rows.iter().position(|row| row.name == name).unwrap())
}

/// As if each point had `of` its place in rounds 1 and 2.
fn measured(row: &Row, of: impl Fn(&Point, u32) -> Option<f64>) -> Results {
    let points: Vec<_> = row.over.iter().chain(&row.under).collect();
    let round = |round: u32| {
        points.iter().map(|point| measurement(point, round, of(point, round))).collect::<Vec<_>>()
    };
    results([round(1), round(2)].concat())
}

#[test]
fn a_row_is_held_against_the_best_of_the_others() {
    let row = row("11/async/fillrandom/4x64");
    let of = |point: &Point, round: u32| {
        let base = match point.workload.as_str() {
            "fillrandom/threads-32/sync" => 30.0,
            workload if workload.contains("async") => 90.0,
            _ => 10.0,
        };
        Some(base * f64::from(round))
    };
    let judged = judge(&row, Some(&measured(&row, of)), &BTreeMap::new());
    let value = judged.value.as_ref().unwrap();
    assert_eq!((value.median, value.min, value.max), (3.0, 3.0, 3.0));
    assert_eq!(judged.under.as_ref().unwrap().point.workload, "fillrandom/threads-32/sync");
    assert_eq!(judged.verdict(), Verdict::Missed, "3.5 is asked for");
}

#[test]
fn costs_are_best_where_they_are_least_and_times_turn_into_speeds() {
    let fast = |ours: f64, theirs: f64| {
        let row = Row { value: Value::Speed, ..row("t2/p50/1") };
        let row = Row { goal: Goal::AtLeast(1.0, 1.5), ..row };
        let rows = row.over.iter().zip([ours]).chain(row.under.iter().zip([theirs]));
        let rows = rows.map(|(point, p50_us)| {
            let mut row = measurement(point, 1, Some(1.0));
            let latency = crate::results::Latency { p50_us, ..Default::default() };
            row.measured.as_mut().unwrap().latency.insert("all".to_owned(), latency);
            row
        });
        judge(&row, Some(&results(rows.collect())), &BTreeMap::new())
    };
    assert_eq!(fast(10.0, 20.0).value.unwrap().median, 2.0);
    assert_eq!(fast(10.0, 20.0).verdict(), Verdict::Aim);
    assert_eq!(fast(10.0, 12.0).verdict(), Verdict::Reached);
    assert_eq!(fast(10.0, 9.0).verdict(), Verdict::Missed);
}

#[test]
fn what_failed_or_is_not_there_says_why_and_has_no_ratio() {
    let fill = row("11/fillrandom/8");
    let broken = measured(&fill, |point, _| (point.engine == ROCKSDB).then_some(1.0));
    let judged = judge(&fill, Some(&broken), &BTreeMap::new());
    assert!(judged.value.as_ref().unwrap_err().ends_with("it broke"), "{:?}", judged.value);
    assert_eq!(judged.verdict(), Verdict::NotThere);
    let missing = BTreeMap::from([(fill.under[0].clone(), "not fetched".to_owned())]);
    let judged = judge(&fill, Some(&measured(&fill, |_, _| Some(1.0))), &missing);
    assert!(judged.value.unwrap_err().contains("not fetched"));
    assert!(judge(&fill, None, &BTreeMap::new()).value.is_err());
}

#[test]
fn engines_and_options_that_are_not_there_do_not_stop_the_others() {
    let scratch = tempfile::tempdir().unwrap();
    let space = |name: &str| Space {
        path: scratch.path().join(name),
        capacity: Some(ByteSize::gib(1)),
        device: None,
    };
    let place = Place {
        fast: space("fast"),
        slow: space("slow"),
        images: scratch.path().join("images"),
        launcher: Box::new(InFront::default()),
        no_rig: Some("a test".to_owned()),
    };
    let arguments =
        arguments(&["--figure", "8,11", "--quick", "--records", "1k", "--memory", "16MiB"]);
    let rows = asked(&arguments).unwrap();
    let rows: Vec<_> = rows.iter().collect();
    let run = described(&arguments, &Sizes::new(&arguments), Group::Work, &place);
    let mut missing = BTreeMap::new();
    let run = with_points(run, &rows, &crate::engines::ALL, &mut missing);
    let pairs = run.pairs.as_ref().unwrap();
    assert!(pairs.contains(&(DIRECT.to_owned(), "fillrandom/threads-8/sync".to_owned())));
    assert!(run.engines.iter().all(|engine| !engine.starts_with("rocksdb")));
    let reason = |engine: &str| {
        missing.iter().find(|(point, _)| point.engine.starts_with(engine)).unwrap().1.clone()
    };
    assert!(reason("rocksdb").contains("no engine 'rocksdb'"), "{}", reason("rocksdb"));
    assert_eq!(run.baseline, None);
}

#[test]
fn a_quick_run_is_shorter_and_named_numbers_hold() {
    let of = |words: &[&str]| Sizes::new(&arguments(words));
    let (usual, quick) = (of(&[]), of(&["--quick"]));
    assert!(quick.records < usual.records && quick.seconds < usual.seconds);
    assert_eq!((usual.rounds, quick.rounds), (3, 1));
    let named = of(&["--quick", "--records", "3k", "--rounds", "2", "--seconds", "0.5"]);
    assert_eq!((named.records, named.rounds, named.seconds), (3000, 2, 0.5));
    let recovery = usual.cell(Group::Recovery, 1);
    assert!(recovery.crashed && recovery.memory.0 / MEMTABLES > usual.log.0);
    assert_eq!(usual.cell(Group::Rest, 1).rest_seconds, Some(10.0));
    assert!(
        asked(&arguments(&["--row", "99/"])).unwrap_err().to_string().contains("11/fillrandom")
    );
}

#[test]
fn a_name_says_that_there_was_no_device() {
    let row = row("t2/p50/1");
    let mut judged = judge(&row, None, &BTreeMap::new());
    judged.name_plain();
    assert_eq!(judged.row.name, "plain/t2/p50/1");
}

#[test]
fn what_an_interrupted_run_left_goes_with_the_next_one() {
    let scratch = tempfile::tempdir().unwrap();
    let own = scratch.path().join(format!("{PLAIN}{}", std::process::id()));
    // Beyond the greatest number that a process can have.
    let [left, other] =
        [&format!("{PLAIN}4194999"), "another"].map(|name| scratch.path().join(name));
    for path in [&own, &left, &other] {
        files::make(&path.join("fast")).unwrap();
    }
    sweep(scratch.path()).unwrap();
    assert!(own.exists() && other.exists() && !left.exists());
}

/// Two engines of this crate from the command line to the lines, without a rig.
#[test]
fn a_run_ends_in_a_table_lines_a_file_and_pictures() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("rows.json");
    let arguments = SpandbArguments { results: path.clone(), ..arguments(&["--figure", "11"]) };
    let fill = row("11/fillrandom/8");
    let found = measured(&fill, |point, _| Some(if point.engine == ROCKSDB { 2.0 } else { 8.0 }));
    let found = BTreeMap::from([(Group::Work, found)]);
    let rows: Vec<Judged> = ["11/fillrandom/8", "11/overwrite/8"]
        .map(|name| judge(&row(name), found.get(&Group::Work), &BTreeMap::new()))
        .into();
    let written = report::written(&arguments, &rows, &found, None).unwrap();
    assert_eq!(written.lines, ["ratio 11/fillrandom/8 4.000"]);
    assert!(written.table.contains("not there: 11/overwrite/8: "), "{}", written.table);
    assert!(written.table.contains("loop device on tmpfs"), "{}", written.table);
    let json: serde_json::Value = serde_json::from_str(&written.json).unwrap();
    assert_eq!(json["rows"][0]["value"], 4.0);
    assert_eq!(json["rows"][1]["verdict"], "not there");
    let names: Vec<_> = written.pictures.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["rows-figure-11.svg"]);
    let plain = report::written(&arguments, &rows, &found, Some("no root")).unwrap();
    assert!(plain.table.starts_with("plain directories, NOT the medium asked for: no root"));
}
