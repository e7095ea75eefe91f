//! `profile`: a device measured or taken from fio, kept, shown, drawn.

mod command;

use command::{Scratch, text};

const SHORT: [&str; 4] = ["--bytes", "8MiB", "--seconds", "0.001"];
const REPORT: &str = include_str!("../../device/tests/golden/fio-report.json");

#[test]
fn a_device_is_measured_shown_and_kept_and_a_tier_may_be_made_there() {
    let scratch = Scratch::new();
    scratch.file("fast/.keep", b"");
    scratch.remove("fast/.keep");
    let shown =
        text(&scratch.ok(&[&["profile", "fast", "--plot", "fast.svg"], &SHORT[..]].concat()));
    assert!(shown.contains("write, sequential, 64 KiB, synced"), "{shown}");
    assert!(shown.contains("kept in fast/PROFILE: "), "{shown}");
    assert_eq!(scratch.names("fast", ""), ["fast/PROFILE"]);
    assert!(text(&scratch.read("fast/PROFILE")).contains("source = \"measured\""));
    assert!(text(&scratch.read("fast.svg")).starts_with("<svg "));
    scratch.ok(&["--tier", "fast:64MiB", "--db", "store", "put", "a", "1"]);
    assert_eq!(scratch.ok(&["--db", "store", "get", "a"]), b"1");
    assert!(scratch.names("fast", "PROFILE").len() == 1, "a tier leaves it alone");
    let json = text(&scratch.ok(&[&["--json", "profile", "fast"], &SHORT[..]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["curves"].as_array().unwrap().len(), 12);
    assert!(json["tier"]["useful_writers"].as_u64().unwrap() >= 1);
}

#[test]
fn reports_of_fio_are_taken_over() {
    let scratch = Scratch::new();
    scratch.file("fio.json", REPORT.as_bytes());
    let shown = text(&scratch.ok(&["profile", ".", "--import", "fio.json"]));
    assert!(shown.contains("kept in ./PROFILE: 4 writers and 8 readers are useful"), "{shown}");
    let kept = text(&scratch.read("PROFILE"));
    assert!(kept.contains("write = [[1, 314572800], [4, 419430400]]"), "{kept}");
}

#[test]
fn what_cannot_be_a_profile_is_one_line_and_leaves_nothing() {
    let scratch = Scratch::new();
    scratch.file("notes.txt", b"no report");
    for (arguments, status, part) in [
        (vec!["profile", "nowhere"], 1, "nowhere"),
        (vec!["profile", ".", "--import", "notes.txt"], 1, "--output-format=json"),
        (vec!["profile", ".", "--import", "gone.json"], 1, "gone.json"),
        (vec!["profile", ".", "--bytes", "1MiB"], 1, "8 MiB at least"),
        (vec!["profile", ".", "--seconds", "0"], 2, "0.001 to 60"),
        (vec!["profile", ".", "--import", "notes.txt", "--seconds", "1"], 2, "--import"),
    ] {
        let error = scratch.fails(&arguments, status);
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(scratch.names(".", ""), ["./notes.txt"]);
}
