//! What the scenario makes of its arguments.

use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: SpandbArguments,
}

fn arguments(words: &[&str]) -> SpandbArguments {
    Line::parse_from([&["x"], words].concat()).arguments
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
}

#[test]
fn figures_and_beginnings_of_names_choose_rows() {
    let names = |words: &[&str]| {
        let rows = chosen(&arguments(words))?;
        Outcome::Ok(rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
    };
    assert_eq!(names(&["--figure", "recovery"]).unwrap(), ["recovery/open"]);
    assert_eq!(names(&["--row", "t2/p50"]).unwrap(), ["t2/p50/1", "t2/p50/8"]);
    let error = names(&["--row", "99/"]).unwrap_err().to_string();
    assert!(error.contains("11/fillrandom"), "{error}");
    assert!(Line::try_parse_from(["x", "--figure", "14"]).is_err());
}

#[test]
fn a_slow_device_is_made_for_rows_that_use_it() {
    let slow = |words: &[&str]| {
        let arguments = arguments(words);
        devices(&Sizes::new(&arguments), &chosen(&arguments).unwrap()).slow
    };
    assert_eq!(slow(&["--figure", "t2"]), SMALLEST);
    assert!(slow(&["--figure", "8"]) > SMALLEST);
}
