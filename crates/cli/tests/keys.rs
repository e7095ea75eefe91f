//! Keys of any bytes through the real binary: what `scan` prints, the other commands take.

mod command;

use base64::{Engine, engine::general_purpose::STANDARD};
use command::{Scratch, text};
use thermocline_foundation::random::Random;

/// Keys of any bytes, no two alike, in order.
fn keys() -> Vec<Vec<u8>> {
    let chosen = ["-", "--json", "-x", "a b", "\\", "\\x00", "x\0y", "t\tt", "l\nl", "ü", "*", ""];
    let mut keys: Vec<Vec<u8>> = chosen.iter().map(|key| key.as_bytes().to_vec()).collect();
    keys.push(b"\xff\xfe".to_vec());
    let mut random = Random::new(5);
    for _ in 0..12 {
        let mut key = vec![0; 1 + random.below(12) as usize];
        random.fill(&mut key);
        keys.push(key);
    }
    keys.sort();
    keys.dedup();
    keys
}

fn loaded(keys: &[Vec<u8>]) -> Scratch {
    let scratch = Scratch::new();
    let line = |key: &Vec<u8>| {
        let key = STANDARD.encode(key);
        format!("{{\"key_base64\": \"{key}\", \"value_base64\": \"{key}\"}}\n")
    };
    let lines: String = keys.iter().map(line).collect();
    scratch.ok_with(&["load", "--jsonl"], lines.as_bytes());
    scratch
}

/// Every key as `scan` prints it goes to `get`, `scan --from`, `put` and `delete`, after which the
/// database is empty.
fn every_command_takes_what_a_scan_prints(format: &[&str]) {
    let keys = keys();
    let scratch = loaded(&keys);
    let run = |words: &[&str]| scratch.ok(&[words, format].concat());
    let printed = text(&run(&["scan", "--keys-only"]));
    let printed: Vec<&str> = printed.split_terminator('\n').collect();
    assert_eq!(printed.len(), keys.len());
    for (line, key) in printed.iter().zip(&keys) {
        assert_eq!(run(&["get", line]), *key, "{line}");
        let from_here = run(&["scan", "--keys-only", "--limit", "1", "--from", line]);
        assert_eq!(text(&from_here), format!("{line}\n"));
        run(&["put", line, "another"]);
        assert_eq!(run(&["get", line]), b"another", "{line}");
        run(&["delete", line]);
        scratch.fails(&[&["get", line], format].concat(), 1);
        let gone = scratch.fails(&[&["delete", line], format].concat(), 1);
        assert!(gone.contains(&format!("there is no key '{line}'")), "{gone}");
    }
    assert_eq!(scratch.ok(&["scan"]), b"");
}

#[test]
fn every_command_takes_what_a_scan_prints_without_an_option() {
    every_command_takes_what_a_scan_prints(&[]);
}

#[test]
fn every_command_takes_what_a_scan_prints_in_hex() {
    every_command_takes_what_a_scan_prints(&["--key-format", "hex"]);
}

#[test]
fn every_command_takes_what_a_scan_prints_in_base64() {
    every_command_takes_what_a_scan_prints(&["--key-format", "base64"]);
}

#[test]
fn a_range_ends_before_the_key_of_to_and_a_prefix_is_escaped_too() {
    let scratch = Scratch::new();
    scratch.ok_with(&["load", "--tsv"], b"a\\x00\t1\na\\x00b\t2\na\\x01\t3\n");
    let keys = |words: &[&str]| text(&scratch.ok(&[&["scan", "--keys-only"], words].concat()));
    assert_eq!(keys(&["--prefix", "a\\x00"]), "a\\x00\na\\x00b\n");
    assert_eq!(keys(&["--from", "a\\x00b", "--to", "a\\x01"]), "a\\x00b\n");
    assert_eq!(keys(&["--to", "6101", "--from", "610062", "--key-format", "hex"]), "610062\n");
    scratch.ok(&["compact", "--from", "a\\x00", "--to", "a\\x00b"]);
}

#[test]
fn raw_keys_are_the_bytes_of_the_argument() {
    let scratch = Scratch::new();
    scratch.ok(&["put", "--key-format", "raw", "C:\\new", "v"]);
    assert_eq!(scratch.ok(&["scan"]), b"C:\\\\new\tv\n");
    assert_eq!(scratch.ok(&["get", "C:\\\\new"]), b"v");
    assert_eq!(scratch.ok(&["get", "--key-format", "raw", "C:\\new"]), b"v");
    let error = scratch.fails(&["get", "D:\\new\\dir"], 2);
    assert!(error.contains("column 7") && error.contains("--key-format raw"), "{error}");
    // A wrong key is found before anything is made.
    scratch.fails(&["--db", "other", "put", "\\q", "v"], 2);
    assert!(!scratch.path("other").exists());
}
