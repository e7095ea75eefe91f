//! The command on databases that can only be read, and what it says of arguments that are not text.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![allow(clippy::disallowed_macros, reason = "a test that is passed over says why")]

mod command;

use command::{Scratch, text};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use thermocline_foundation::{Clock, SystemClock};

const READERS: [&[&str]; 6] =
    [&["get", "a"], &["scan"], &["stats"], &["tiers"], &["verify"], &["stats", "--json"]];

/// A database of `preset` in the directory `db`.
fn made(scratch: &Scratch, preset: &str) {
    let tiers = ["--tier", "fast:16MiB", "--tier", "slow:1GiB"];
    let mut arguments = vec!["--db", "db", "--preset", preset];
    arguments.extend(tiers);
    arguments.extend(["put", "a", "b"]);
    scratch.ok(&arguments);
}

/// A command on the database `db`.
fn on_db<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["--db", "db"], words].concat()
}

/// Names and lengths of all files of the database.
fn everything(scratch: &Scratch) -> Vec<(String, usize)> {
    let names = ["db", "fast", "slow"].map(|directory| scratch.names(directory, ""));
    let mut names = names.concat();
    names.sort();
    names.into_iter().map(|name| (name.clone(), scratch.read(&name).len())).collect()
}

#[test]
fn reading_only_changes_nothing_and_says_so() {
    for preset in ["hybrid", "leveled"] {
        let scratch = Scratch::new();
        made(&scratch, preset);
        let before = everything(&scratch);
        for words in READERS {
            scratch.ok(&on_db(&[words, &["--read-only"]].concat()));
        }
        assert_eq!(scratch.ok(&["--db", "db", "--read-only", "get", "a"]), b"b");
        let stats = text(&scratch.ok(&["--db", "db", "--read-only", "stats"]));
        assert!(stats.lines().next().unwrap().ends_with("mode read-only"), "{stats}");
        assert!(stats.contains("READ-ONLY: ") && stats.contains("for reading only"), "{stats}");
        let json = text(&scratch.ok(&["--db", "db", "--read-only", "stats", "--json"]));
        assert!(json.contains("\"mode\": \"read_only\""), "{json}");
        let writers: [&[&str]; 7] = [
            &["put", "a", "c"],
            &["delete", "a"],
            &["compact"],
            &["checkpoint", "c"],
            &["tiers", "add", "new:1GiB"],
            &["tiers", "remove", "1"],
            &["tiers", "replace", "1", "new"],
        ];
        for words in writers {
            let line = scratch.fails(&[&["--db", "db", "--read-only"], words].concat(), 1);
            assert!(line.contains("reading only") && line.contains("for writing"), "{line}");
        }
        assert_eq!(everything(&scratch), before);
        let stats = text(&scratch.ok(&["--db", "db", "stats"]));
        assert!(stats.lines().next().unwrap().ends_with("mode read-write"), "{stats}");
        let line = scratch.fails(&["--db", "none", "--read-only", "put", "a", "b"], 1);
        assert!(line.contains("there is no database at none"), "{line}");
        assert!(!scratch.path("none").exists());
    }
}

/// Another user, with the right to read the database and without the right to write it. Commands of
/// root may do anything.
struct OtherUser<'a>(&'a Scratch);

impl OtherUser<'_> {
    /// None where this user cannot act as another.
    fn of(scratch: &Scratch) -> Option<OtherUser<'_>> {
        let binary = Path::new(env!("CARGO_BIN_EXE_thermocline"));
        std::fs::copy(binary, scratch.path("command")).unwrap();
        open_to_others(scratch.path("").as_path());
        let user = OtherUser(scratch);
        let output = user.run(&["--version"]);
        if output.status.success() {
            return Some(user);
        }
        eprintln!("passed over: cannot act as another user: {output:?}");
        None
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(self.0.path("command")).args(arguments).current_dir(self.0.path(""));
        command.output().unwrap_or_else(|error| Output {
            status: std::os::unix::process::ExitStatusExt::from_raw(127 << 8),
            stdout: Vec::new(),
            stderr: error.to_string().into_bytes(),
        })
    }
}

fn open_to_others(path: &Path) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

#[test]
fn another_users_database_is_read_and_not_written() {
    for preset in ["hybrid", "leveled"] {
        let scratch = Scratch::new();
        made(&scratch, preset);
        let Some(user) = OtherUser::of(&scratch) else {
            return;
        };
        let before = everything(&scratch);
        for words in READERS {
            let output = user.run(&on_db(words));
            assert!(output.status.success(), "{words:?}: {output:?}");
        }
        for words in [&["put", "a", "c"][..], &["compact"]] {
            let output = user.run(&on_db(words));
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            let says = stderr.contains("Permission denied") && stderr.contains("reading only");
            assert!(says && stderr.lines().count() == 1, "{stderr}");
        }
        assert_eq!(everything(&scratch), before);
        // The store names its holder even to a user without the right to look into that process.
        let mut holder = scratch.start(&["--db", "db", "load", "--tsv", "-"]);
        let held = (0..3000).any(|_| {
            SystemClock::new().sleep(Duration::from_millis(10));
            !user.run(&on_db(&["get", "a"])).status.success()
        });
        assert!(held, "`load` did not open the database within 30 s");
        let stderr = text(&user.run(&on_db(&["get", "a"])).stderr);
        let process = format!("process {} (thermocline, user root)", holder.id());
        assert!(stderr.contains("is locked: ") && stderr.contains(&process), "{stderr}");
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
    }
}

/// Runs the command with an argument that is no text, and gives its one line of error.
fn fails(scratch: &Scratch, arguments: &[&OsStr]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    let output = command.args(arguments).current_dir(scratch.path("")).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[test]
fn an_argument_that_is_not_text_is_named_where_it_must_be() {
    let scratch = Scratch::new();
    let bad = OsString::from(OsStr::from_bytes(b"no\xfftext"));
    let [put, get, load] = ["put", "get", "load"].map(OsStr::new);
    let (key, db) = (OsStr::from_bytes(b"k\xfe"), OsStr::new("--db=db"));
    for (flag, rest) in [
        ("--tier", vec![put, key, key]),
        ("--preset", vec![get, key]),
        ("--bytes", vec![]),
        ("--limit", vec![]),
    ] {
        let before = match flag {
            "--bytes" => vec![db, OsStr::new("try")],
            "--limit" => vec![db, OsStr::new("scan"), OsStr::new("--prefix"), key],
            _ => vec![db],
        };
        let arguments = [&before[..], &[OsStr::new(flag), &bad], &rest].concat();
        let line = fails(&scratch, &arguments);
        let named = format!("argument {}, \"no\\xFFtext\", is not UTF-8", before.len() + 2);
        assert!(line.contains(&named), "{flag}: {line}");
    }
    let line = fails(&scratch, &[db, load, OsStr::from_bytes(b"--f\xff")]);
    assert!(line.contains("xFF") || line.contains('\u{fffd}'), "{line}");
    let line = fails(&scratch, &[db, &bad]);
    assert!(line.contains("xFF") || line.contains('\u{fffd}'), "{line}");
    assert!(!scratch.path("db").exists(), "nothing is made");
}

#[test]
fn keys_values_and_directories_may_be_any_bytes() {
    let scratch = Scratch::new();
    let (key, value) = (OsStr::from_bytes(b"k\xfe"), OsStr::from_bytes(b"v\xff"));
    let db = OsStr::from_bytes(b"--db=d\xfd");
    let run = |arguments: &[&OsStr]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        let output = command.arg(db).args(arguments).current_dir(scratch.path("")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        output.stdout
    };
    run(&[OsStr::new("put"), key, value]);
    assert_eq!(run(&[OsStr::new("get"), key]), value.as_bytes());
    run(&[OsStr::new("checkpoint"), OsStr::from_bytes(b"c\xfc")]);
    run(&[OsStr::new("verify")]);
}

#[test]
fn settings_that_are_missing_are_named() {
    for preset in ["hybrid", "leveled"] {
        let scratch = Scratch::new();
        made(&scratch, preset);
        // Brings what the log has into a table or a slot, which tells the presets apart.
        scratch.ok(&["--db", "db", "stats"]);
        scratch.file("kept.toml", &scratch.read("db/settings.toml"));
        scratch.remove("db/settings.toml");
        let moved = ["--db", "db", "--tier", "fast:16MiB", "--tier", "slow:1GiB", "get", "a"];
        let line = scratch.fails(&moved, 1);
        assert!(
            line.contains("db/settings.toml is missing") && line.contains("--config"),
            "{line}"
        );
        if preset == "hybrid" {
            let line = scratch.fails(&["--db", "db", "get", "a"], 1);
            assert!(line.contains("db/settings.toml is missing"), "{line}");
        }
        scratch.ok(&["--db", "db", "--config", "kept.toml", "get", "a"]);
        assert_eq!(scratch.ok(&["--db", "db", "get", "a"]), b"b");
    }
}
