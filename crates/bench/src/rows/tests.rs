//! Runs of made-up engines, judged and shown.

use super::judged::{Judged, Verdict, judge, judge_in};
use super::report::{Sheet, written};
use super::*;
use crate::results::{Latency, Machine, Row as Measurement, Scenario};
use crate::store::{Durability, Label};
use clap::Parser;
use std::collections::BTreeSet;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: RowArguments,
}

pub(crate) fn arguments(words: &[&str]) -> RowArguments {
    Line::parse_from([&["x"], words].concat()).arguments
}

pub(crate) const PAPER: Paper = Paper {
    word: "made-up",
    title: "Made-up",
    figures: &[Figure { name: "a", title: "First" }, Figure { name: "b", title: "Second" }],
    emulated: true,
    profile: "gp3",
    has_region: false,
};

/// One point over another, on one workload.
pub(crate) fn row(name: &str, over: &str, under: &str) -> Row<u32> {
    Row::in_paper(&PAPER, 0, name, point(over, "ycsb-c"), point(under, "ycsb-c"))
}

/// Names are different and begin with their figures, of which each has rows; labels and workloads
/// can be read.
pub(crate) fn are_sound<G>(paper: &Paper, rows: &[Row<G>]) {
    let names: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names.len(), rows.len());
    for row in rows {
        assert!(!row.figure.name.is_empty(), "{}", row.name);
        assert_eq!(row.under.is_empty(), row.value == Value::Itself, "{}", row.name);
        for point in row.points() {
            crate::workloads::parse(&point.workload).unwrap();
            point.engine.parse::<Label>().unwrap();
        }
    }
    for figure in paper.figures {
        assert!(rows.iter().any(|row| row.figure == *figure), "{}", figure.name);
    }
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

/// As if each point had `of` its place in rounds 1 and 2.
fn measured(row: &Row<u32>, of: impl Fn(&Point, u32) -> Option<f64>) -> Results {
    let points: Vec<_> = row.points().collect();
    let round = |round: u32| {
        points.iter().map(|point| measurement(point, round, of(point, round))).collect::<Vec<_>>()
    };
    results([round(1), round(2)].concat())
}

#[test]
fn a_row_is_held_against_the_best_of_the_others() {
    let mut row = row("a/x", "ours", "first").at_least(3.5, 5.0);
    row.under = points(&["first", "second", "third"], "ycsb-c");
    let of = |point: &Point, round: u32| {
        let base = match point.engine.as_str() {
            "ours" => 90.0,
            "second" => 30.0,
            _ => 10.0,
        };
        Some(base * f64::from(round))
    };
    let judged = judge(&row, Some(&measured(&row, of)), &BTreeMap::new());
    let value = judged.value.as_ref().unwrap();
    assert_eq!((value.median, value.min, value.max), (3.0, 3.0, 3.0));
    assert_eq!(judged.under.as_ref().unwrap().point.engine, "second");
    assert_eq!(judged.verdict(), Verdict::Missed, "3.5 is asked for");
}

#[test]
fn costs_are_best_where_they_are_least_and_times_turn_into_speeds() {
    const P50: Measure = Measure {
        unit: "us",
        is_cost: true,
        of: |measured| measured.latency.get("all").map(|latency| latency.p50_us),
    };
    let compared = |value: Value, ours: f64, theirs: f64| {
        let mut row = row("a/x", "ours", "slow").of(P50).at_least(1.0, 1.5);
        (row.value, row.under) = (value, points(&["slow", "fast"], "ycsb-c"));
        let p50s = [ours, theirs + 1.0, theirs];
        let rows = row.points().zip(p50s).map(|(point, p50_us)| {
            let mut row = measurement(point, 1, Some(1.0));
            let latency = Latency { p50_us, ..Latency::default() };
            row.measured.as_mut().unwrap().latency.insert("all".to_owned(), latency);
            row
        });
        judge(&row, Some(&results(rows.collect())), &BTreeMap::new())
    };
    let fast = |ours, theirs| compared(Value::Speed, ours, theirs);
    assert_eq!(fast(10.0, 20.0).value.as_ref().unwrap().median, 2.0);
    assert_eq!(fast(10.0, 20.0).verdict(), Verdict::Aim);
    assert_eq!(fast(10.0, 12.0).verdict(), Verdict::Reached);
    assert_eq!(fast(10.0, 9.0).verdict(), Verdict::Missed);
    let less = compared(Value::Difference, 10.0, 12.5);
    assert_eq!(less.value.unwrap().median, -2.5);
}

#[test]
fn a_row_can_follow_from_others_by_their_mean_their_sums_or_their_quotient() {
    let first = row("a/x", "fast", "slow");
    let second = Row { group: 1, ..row("a/y", "fast", "slow") };
    let of = |fast: f64, slow: f64| {
        measured(&first, move |point, _| Some(if point.engine == "fast" { fast } else { slow }))
    };
    // Ratios 4 and 1; sums 44 and 14.
    let found = BTreeMap::from([(0, of(40.0, 10.0)), (1, of(4.0, 4.0))]);
    let both = |combined| {
        let parts = vec![first.clone(), second.clone()];
        let row = Row::of_rows(&PAPER, "a/both", combined, parts).unwrap().at_least(2.0, 3.0);
        assert_eq!((row.points().count(), row.leaves().len()), (4, 2));
        row
    };
    let mean = judge_in(&both(Combined::Mean), &found, &BTreeMap::new());
    assert_eq!((mean.value.as_ref().unwrap().median, mean.verdict()), (2.5, Verdict::Reached));
    let sum = judge_in(&both(Combined::Sum), &found, &BTreeMap::new());
    assert_eq!(sum.value.as_ref().unwrap().median, 44.0 / 14.0);
    let quotient = judge_in(&both(Combined::Quotient), &found, &BTreeMap::new());
    assert_eq!((quotient.value.as_ref().unwrap().median, quotient.verdict()), (4.0, Verdict::Aim));
    let missing = BTreeMap::from([((1, second.under[0].clone()), "not there".to_owned())]);
    for combined in [Combined::Mean, Combined::Sum, Combined::Quotient] {
        let judged = judge_in(&both(combined), &found, &missing);
        assert!(judged.value.unwrap_err().contains("not there"), "{combined:?}");
    }
    assert!(Row::<u32>::of_rows(&PAPER, "a/none", Combined::Mean, Vec::new()).is_none());
}

#[test]
fn a_value_can_be_what_a_figure_is_for_each_record() {
    let row = Row { factor: 0.5, ..row("a/x", "ours", "theirs") };
    let measured = measured(&row, |point, _| Some(if point.engine == "ours" { 8.0 } else { 2.0 }));
    let value = judge(&row, Some(&measured), &BTreeMap::new()).value.unwrap();
    assert_eq!((value.median, value.min, value.max), (2.0, 2.0, 2.0));
}

#[test]
fn what_failed_or_is_not_there_says_why_and_has_no_ratio() {
    let row = row("a/x", "ours", ROCKSDB);
    let broken = measured(&row, |point, _| (point.engine == ROCKSDB).then_some(1.0));
    let judged = judge(&row, Some(&broken), &BTreeMap::new());
    assert!(judged.value.as_ref().unwrap_err().ends_with("it broke"), "{:?}", judged.value);
    assert_eq!(judged.verdict(), Verdict::NotThere);
    let missing = BTreeMap::from([((0, row.under[0].clone()), "not fetched".to_owned())]);
    let whole = measured(&row, |_, _| Some(1.0));
    let judged = judge(&row, Some(&whole), &missing);
    assert!(judged.value.unwrap_err().contains("not fetched"));
    assert!(judge(&row, None, &BTreeMap::new()).value.is_err());
    let elsewhere = BTreeMap::from([((1, row.under[0].clone()), "not fetched".to_owned())]);
    assert!(judge(&row, Some(&whole), &elsewhere).value.is_ok(), "another group's");
}

#[test]
fn options_go_to_our_labels_alone_and_never_twice() {
    let ours = "thermocline-leveled@fast+driver=direct";
    let words = ["--ours", "log-writes=4+driver=posix", "--row", "a/x"];
    let rows = vec![row("a/x", ours, ROCKSDB), row("a/y", ours, ROCKSDB)];
    let rows = asked(rows, &arguments(&words)).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].over[0].engine, format!("{ours}+log-writes=4"));
    assert_eq!(rows[0].under[0].engine, ROCKSDB);
    let error = asked(rows, &arguments(&["--row", "b/"])).unwrap_err().to_string();
    assert!(error.contains("there are a/x"), "{error}");
}

#[test]
fn engines_that_had_more_of_the_fast_tier_than_they_were_told_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("rows.json");
    let filled = row("a/x", "ours", "theirs");
    let mut found = measured(&filled, |_, _| Some(1.0));
    for row in &mut found.rows {
        let share = if row.engine == "theirs" { 1.5 } else { 1.0 };
        row.measured.as_mut().unwrap().peak_fast_share = Some(share);
    }
    let found = BTreeMap::from([(0, found)]);
    let sheet = Sheet { paper: &PAPER, path: &path, medium: Medium::Ram, no_rig: None };
    let rows = [judge(&filled, found.get(&0), &BTreeMap::new())];
    let shown = written(&sheet, &rows, &found).unwrap().table;
    assert!(shown.contains("above the fast tier: theirs on ycsb-c: 150 %"), "{shown}");
    assert!(!shown.contains("above the fast tier: ours"), "{shown}");
}

#[test]
fn a_name_says_that_there_was_no_device() {
    let mut judged = judge(&row("a/x", "ours", "theirs"), None, &BTreeMap::new());
    judged.name_plain();
    assert_eq!(judged.row.name, "plain/a/x");
}

#[test]
fn judged_rows_become_a_table_lines_a_file_and_pictures() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("rows.json");
    let fill = row("a/x", "ours", ROCKSDB);
    let found = measured(&fill, |point, _| Some(if point.engine == ROCKSDB { 2.0 } else { 8.0 }));
    let found = BTreeMap::from([(0, found)]);
    let rows: Vec<Judged<u32>> = [fill, row("b/y", "ours", "absent")]
        .iter()
        .map(|row| judge(row, found.get(&0), &BTreeMap::new()))
        .collect();
    let sheet = Sheet { paper: &PAPER, path: &path, medium: Medium::Ram, no_rig: None };
    let shown = written(&sheet, &rows, &found).unwrap();
    assert_eq!(shown.lines, ["ratio a/x 4.000"]);
    assert!(shown.table.contains("not there: b/y: "), "{}", shown.table);
    assert!(shown.table.contains("loop device on tmpfs"), "{}", shown.table);
    let json: serde_json::Value = serde_json::from_str(&shown.json).unwrap();
    assert_eq!(json["schema"], "thermocline-made-up");
    assert_eq!(json["rows"][0]["value"], 4.0);
    assert_eq!(json["rows"][1]["verdict"], "not there");
    let names: Vec<_> = shown.pictures.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["rows-figure-a.svg"]);
    let plain = Sheet { no_rig: Some("no root"), ..sheet };
    let plain = written(&plain, &rows, &found).unwrap();
    let begins = "plain directories, NOT the medium asked for: no root; the slow one behind";
    assert!(plain.table.starts_with(begins), "{}", plain.table);
    let with_region = Paper { has_region: true, ..PAPER };
    let sheet = Sheet { paper: &with_region, ..sheet };
    let headed = written(&sheet, &rows, &found).unwrap().table;
    assert!(headed.starts_with("persistent memory: EMULATED"), "{headed}");
}
