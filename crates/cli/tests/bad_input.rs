//! What the binary says to wrong arguments, malformed input and damaged stores: one line with the
//! way out, a status that is not 0, nothing lost and nothing half-made.

mod command;

use command::{Scratch, text};
use std::io::Write;

#[test]
fn wrong_arguments_are_one_line_and_status_2() {
    let scratch = Scratch::new();
    for (arguments, part) in [
        (&["fly"][..], "'fly'"),
        (&["get"], "<KEY>"),
        (&["get", "a", "b"], "'b'"),
        (&["put", "key"], "<VALUE>"),
        (&["load", "input"], "--tsv"),
        (&["load", "--tsv", "--jsonl", "x"], "cannot be used with"),
        (&["load", "--files"], "needs a directory"),
        (&["load", "--files", "-"], "needs a directory"),
        (&["load", "--tsv", "-", "-"], "standard input"),
        (&["scan", "--limit", "-1"], "-1"),
        (&["scan", "--limit", "some"], "'some'"),
        (&["--tier", "nowhere", "put", "k", "v"], "PATH:CAPACITY[:DRIVER]"),
        (&["--tier", "fast:much", "put", "k", "v"], "PATH:CAPACITY[:DRIVER]"),
        (&["stats", "--yaml"], "--yaml"),
        (&["try", "--seconds", "0"], "seconds"),
        (&["--tier", "a:1GiB", "try"], "chooses its own tiers"),
    ] {
        let error = scratch.fails(arguments, 2);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
    assert!(!scratch.path("thermocline-data").exists());
}

#[test]
fn commands_that_only_look_make_no_database() {
    let scratch = Scratch::new();
    for arguments in [
        &["get", "k"][..],
        &["delete", "k"],
        &["scan"],
        &["stats"],
        &["tiers"],
        &["compact"],
        &["checkpoint", "copy"],
        &["verify"],
    ] {
        let error = scratch.fails(arguments, 1);
        assert!(error.contains("there is no database at ./thermocline-data"), "{error}");
        assert!(error.contains("--db"), "{error}");
    }
    assert!(!scratch.path("thermocline-data").exists());
    assert!(!scratch.path("copy").exists());
}

#[test]
fn malformed_lines_name_file_line_and_expectation() {
    let scratch = Scratch::new();
    for (format, content, line, part) in [
        ("--tsv", "a\t1\nb\t2\nno tab\n", 3, "KEY<TAB>VALUE"),
        ("--tsv", "a\t1\nb\t2\nc\tbad\\q\n", 3, "column 6"),
        (
            "--jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"\"}\n{\"key\":",
            3,
            "EOF",
        ),
        (
            "--jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\",\"value\":\"\"}\n[1]\n",
            4,
            "expected",
        ),
        (
            "--deb822",
            "Package: a\nVersion: 1\n\nPackage: b\nVersion: 1\n\nPackage: c\n",
            7,
            "Version",
        ),
        ("--deb822", "Package: a\nVersion: 1\n\nPackage: b\nVersion: 1\n\nPacka", 7, "Name: value"),
    ] {
        scratch.file("input", content.as_bytes());
        let error = scratch.fails(&["load", format, "input"], 1);
        assert!(error.contains(&format!("input, line {line}: ")), "{error}");
        assert!(error.contains(part), "{error}");
        assert!(error.ends_with("2 records before it are loaded"), "{error}");
        let keys = text(&scratch.ok(&["scan", "--keys-only"]));
        assert_eq!(keys.lines().count(), 2, "{keys}");
        for key in keys.lines() {
            scratch.ok(&["delete", key]);
        }
    }
}

#[test]
fn missing_and_unreadable_input_leaves_nothing_behind() {
    let scratch = Scratch::new();
    scratch.file("directory/file", b"");
    for arguments in [
        &["load", "--tsv", "absent"][..],
        &["load", "--jsonl", "directory"],
        &["load", "--files", "absent"],
        &["load", "--files", "--skip", "absent"],
        &["try", "absent"],
        &["--config", "absent", "put", "k", "v"],
    ] {
        let error = scratch.fails(arguments, 1);
        assert!(error.contains("absent") || error.contains("directory"), "{error}");
        assert!(!scratch.path("thermocline-data").exists(), "{arguments:?}");
    }
}

#[test]
fn keys_over_the_limit_name_the_limit() {
    let scratch = Scratch::new();
    let line = format!("fine\tvalue\n{}\tvalue\n", "k".repeat(65537));
    let error = scratch.fails_with(&["load", "--tsv"], line.as_bytes(), 1);
    assert!(error.contains("standard input, line 2") && error.contains("65536"), "{error}");
    assert!(error.contains("1 record before it"), "{error}");
    assert_eq!(scratch.ok(&["scan"]), b"fine\tvalue\n");
    let error = scratch.fails(&["put", &"k".repeat(65537), "v"], 1);
    assert!(error.contains("65536"), "{error}");
}

#[test]
fn files_over_the_limit_are_refused_or_left_out() {
    let scratch = Scratch::new();
    scratch.file("tree/b-small", b"content");
    scratch.sparse("tree/a-large", (256 << 20) + 1);
    let error = scratch.fails(&["load", "--files", "tree"], 1);
    assert!(error.contains("tree/a-large") && error.contains("268435456"), "{error}");
    assert!(error.contains("--skip"), "{error}");
    let said = text(&scratch.ok(&["load", "--files", "tree", "--skip"]));
    assert!(said.starts_with("loaded 1 record") && said.ends_with("left out 1 file\n"), "{said}");
    assert_eq!(scratch.ok(&["scan"]), b"tree/b-small\tcontent\n");
}

#[test]
fn impossible_settings_are_named_with_file_and_range() {
    let scratch = Scratch::new();
    for (content, part) in [
        ("memroy = '1 GiB'\n", "memroy"),
        ("memory = '1 GiB'\nlevel_ratio = 1\n", "level_ratio = 1 is out of range"),
        ("memory = 'lots'\n", "'lots' is not a size"),
        ("memory = \n", "store.toml, line 1"),
        ("[[tiers]]\npath = 'x'\n", "capacity"),
        ("durability = 'maybe'\n", "maybe"),
    ] {
        scratch.file("store.toml", content.as_bytes());
        let error = scratch.fails(&["--config", "store.toml", "put", "k", "v"], 1);
        assert!(error.contains(part) && error.contains("store.toml"), "{error}");
    }
    scratch.file("store.toml", b"\xff\xfe");
    let error = scratch.fails(&["--config", "store.toml", "put", "k", "v"], 1);
    assert!(error.contains("not UTF-8"), "{error}");
    let error = scratch.fails(&["--tier", "fast:1GiB:floppy", "put", "k", "v"], 1);
    assert!(error.contains("floppy") && error.contains("posix"), "{error}");
    assert!(!scratch.path("thermocline-data").exists());
}

#[test]
fn a_directory_in_use_is_refused_and_kept() {
    let scratch = Scratch::new();
    scratch.file("taken/letter.txt", b"dear reader");
    let error = scratch.fails(&["--tier", "taken:1GiB", "put", "k", "v"], 1);
    assert!(error.contains("taken"), "{error}");
    assert!(scratch.path("taken/letter.txt").exists());
    scratch.ok(&["--db", "one", "--tier", "tier:1GiB", "put", "k", "v"]);
    let error = scratch.fails(&["--db", "two", "--tier", "tier:1GiB", "put", "k", "v"], 1);
    assert!(error.contains("tier"), "{error}");
    assert!(!scratch.path("two").exists(), "a refused creation left something behind");
    assert_eq!(scratch.ok(&["--db", "one", "get", "k"]), b"v");
    let error = scratch.fails(&["--db", "one", "checkpoint", "one"], 1);
    assert!(error.contains("one"), "{error}");
}

#[test]
fn a_full_tier_ends_a_load_and_a_larger_one_brings_everything_back() {
    let scratch = Scratch::new();
    let mut random = 1u64;
    let mut lines = String::new();
    for number in 0..60_000u32 {
        lines.push_str(&format!("{number:08}\t"));
        for _ in 0..100 {
            // Digits that do not compress away.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            lines.push_str(&format!("{:010x}", random >> 24));
        }
        lines.push('\n');
    }
    scratch.file("store.toml", b"memory = '16 MiB'\n");
    // A progress line would be a second line beside the error.
    let full = ["--config", "store.toml", "--tier", "tier:32MiB", "load", "--tsv", "--quiet"];
    let error = scratch.fails_with(&full, lines.as_bytes(), 1);
    assert!(error.contains("tier 0") && error.contains("32 MiB"), "{error}");
    assert!(error.ends_with("before it are loaded"), "{error}");
    let loaded: usize = error
        .rsplit_once("; ")
        .and_then(|(_, tail)| tail.split(' ').next()?.replace(',', "").parse().ok())
        .expect("the message counts records");
    assert!(loaded > 1000, "{error}");
    // The way out that the message names.
    let wider = ["--config", "store.toml", "--tier", "tier:1GiB", "scan"];
    let scan = text(&scratch.ok(&wider));
    let found = scan.lines().count();
    assert!(found >= loaded, "{loaded} were acknowledged, {found} are there");
    assert!(lines.starts_with(&scan), "what is there is a prefix of what was loaded");
    scratch.ok(&["verify"]);
    scratch.ok(&["put", "after", "wards"]);
}

#[test]
fn a_flipped_byte_is_reported_and_not_served() {
    let scratch = Scratch::new();
    let line: String = (0..400u32).map(|n| (n * n * 7919).to_string()).collect();
    let line = format!("key\t{line}\n");
    scratch.ok_with(&["--tier", "tier:1GiB", "load", "--tsv"], line.as_bytes());
    scratch.ok(&["compact"]);
    let tables = scratch.names("tier", ".table");
    assert!(!tables.is_empty(), "a compaction leaves a table");
    for name in &tables {
        let mut bytes = scratch.read(name);
        bytes[300] ^= 1;
        scratch.file(name, &bytes);
    }
    let error = scratch.fails(&["get", "key"], 1);
    assert!(error.contains(".table") && error.contains("offset"), "{error}");
    let output = scratch.run(&["verify"], b"");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stdout).contains(".table"), "{output:?}");
    assert!(text(&output.stderr).contains("restore"), "{output:?}");
}

#[test]
fn a_table_that_is_cut_or_gone_is_named_with_its_tier() {
    let scratch = Scratch::new();
    let line: String = (0..4000u32).map(|n| (n * n % 99_991).to_string()).collect();
    let lines = format!("key\t{line}\n");
    scratch.ok_with(&["--tier", "tier:1GiB", "load", "--tsv"], lines.as_bytes());
    scratch.ok(&["compact"]);
    let tables = scratch.names("tier", ".table");
    let whole: Vec<Vec<u8>> = tables.iter().map(|name| scratch.read(name)).collect();
    for (name, bytes) in tables.iter().zip(&whole) {
        scratch.file(name, &bytes[..4096]);
    }
    let cut = scratch.fails(&["get", "key"], 1);
    assert!(cut.contains("tier") && cut.contains(".table"), "{cut}");
    tables.iter().for_each(|name| scratch.remove(name));
    let gone = scratch.fails(&["get", "key"], 1);
    assert!(gone.contains("tier") && gone.contains(".table"), "{gone}");
    // The way out: the files come back, and nothing else was touched meanwhile.
    for (name, bytes) in tables.iter().zip(&whole) {
        scratch.file(name, bytes);
    }
    assert_eq!(text(&scratch.ok(&["get", "key"])), line);
    scratch.ok(&["verify"]);
}

#[test]
fn a_database_that_is_open_elsewhere_is_named_as_locked() {
    let scratch = Scratch::new();
    scratch.ok(&["put", "k", "v"]);
    let mut holder = scratch.start(&["load", "--tsv"]);
    let mut input = holder.stdin.take().unwrap();
    // The pipe takes 64 KiB, so all of this is in it only after the holder has opened the database.
    input.write_all("a\t1\n".repeat(200_000).as_bytes()).unwrap();
    let error = scratch.fails(&["get", "k"], 1);
    drop(input);
    holder.wait().unwrap();
    assert!(error.contains("lock"), "{error}");
    assert_eq!(scratch.ok(&["get", "a"]), b"1");
}
