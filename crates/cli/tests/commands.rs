//! The real binary in temporary directories: every command, what it prints and how it ends.

mod command;

use command::{Scratch, text};
use std::io::Write;
use std::path::PathBuf;

#[test]
fn a_value_is_put_read_replaced_and_deleted() {
    let scratch = Scratch::new();
    assert_eq!(scratch.ok(&["put", "water", "warm"]), b"");
    assert_eq!(scratch.ok(&["get", "water"]), b"warm");
    scratch.ok(&["put", "water", ""]);
    assert_eq!(scratch.ok(&["get", "water"]), b"");
    scratch.ok(&["delete", "water"]);
    let error = scratch.fails(&["get", "water"], 1);
    assert!(error.contains("there is no key 'water'"), "{error}");
    assert_eq!(scratch.fails(&["delete", "water"], 1), error);
}

#[test]
fn a_value_is_put_where_its_condition_holds_and_else_a_line_says_why() {
    let scratch = Scratch::new();
    scratch.fails(&["put", "leader", "a", "--if-present"], 1);
    scratch.fails(&["put", "leader", "a", "--expect", "b"], 1);
    assert!(!scratch.path("thermocline-data").exists(), "no database is made for nothing");
    scratch.ok(&["put", "leader", "a", "--if-absent"]);
    let error = scratch.fails(&["put", "leader", "b", "--if-absent"], 1);
    assert!(error.contains("there is a key 'leader' already; nothing was written"), "{error}");
    let error = scratch.fails(&["put", "leader", "b", "--expect", "c"], 1);
    assert!(error.contains("'leader' has another value; nothing was written"), "{error}");
    let error = scratch.fails(&["put", "other", "b", "--if-present"], 1);
    assert!(error.contains("there is no key 'other'"), "{error}");
    assert_eq!(scratch.ok(&["get", "leader"]), b"a");
    scratch.ok(&["put", "leader", "b", "--expect", "a"]);
    assert_eq!(scratch.ok(&["get", "leader"]), b"b");
    scratch.ok(&["put", "leader", "c", "--if-present"]);
    assert_eq!(scratch.ok(&["get", "leader"]), b"c");
    let both = ["put", "leader", "d", "--if-present", "--if-absent"];
    let error = scratch.fails(&both, 2);
    assert!(error.contains("--if-present"), "{error}");
}

#[test]
fn a_value_from_standard_input_comes_back_byte_for_byte() {
    let scratch = Scratch::new();
    let value: Vec<u8> = (0..300_000u32).flat_map(|number| number.to_le_bytes()).collect();
    scratch.ok_with(&["put", "numbers", "-"], &value);
    assert_eq!(scratch.ok(&["get", "numbers"]), value);
    assert_eq!(scratch.ok(&["get", "--db", "thermocline-data", "numbers"]), value);
}

#[test]
fn a_scan_shows_ranges_in_both_directions() {
    let scratch = Scratch::new();
    scratch.ok_with(&["load", "--tsv", "-"], b"a1\t1\na2\t2\nb1\t3\nb2\t4\nc\t5\n");
    let keys = |arguments: &[&str]| {
        let all = [&["scan", "--keys-only"], arguments].concat();
        text(&scratch.ok(&all)).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(keys(&[]), "a1 a2 b1 b2 c");
    assert_eq!(keys(&["--reverse"]), "c b2 b1 a2 a1");
    assert_eq!(keys(&["--from", "a2", "--to", "b2"]), "a2 b1");
    assert_eq!(keys(&["--prefix", "b"]), "b1 b2");
    assert_eq!(keys(&["--prefix", "b", "--reverse", "--limit", "1"]), "b2");
    assert_eq!(keys(&["--from", "x"]), "");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(scratch.ok(&["scan", "--prefix", "a"]), b"a1\t1\na2\t2\n");
}

#[test]
fn a_scan_loads_back_as_lines_and_as_json() {
    let scratch = Scratch::new();
    let odd: &[u8] = b"tab\\tkey\t\\\\back\\nslash\\x00\\xff\nplain\tvalue\n\\xff\\xfe\tno text\n";
    scratch.ok_with(&["load", "--tsv"], odd);
    let lines = scratch.ok(&["scan"]);
    scratch.ok_with(&["load", "--tsv", "--db", "second"], &lines);
    assert_eq!(scratch.ok(&["scan", "--db", "second"]), lines);
    let json = scratch.ok(&["scan", "--json"]);
    for line in text(&json).lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    scratch.ok_with(&["load", "--jsonl", "--db", "third"], &json);
    assert_eq!(scratch.ok(&["scan", "--db", "third"]), lines);
    assert_eq!(scratch.ok(&["get", "--db", "third", "tab\tkey"]), b"\\back\nslash\0\xff");
}

#[test]
fn files_are_loaded_under_their_paths() {
    let scratch = Scratch::new();
    let big = vec![7u8; 3 << 20];
    scratch.file("tree/deep/big", &big);
    scratch.file("tree/empty", b"");
    scratch.file("tree/text", b"text\n");
    let said = text(&scratch.ok(&["load", "--files", "tree"]));
    assert!(said.starts_with("loaded 3 records, 3.0 MiB"), "{said}");
    assert_eq!(scratch.ok(&["get", "tree/deep/big"]), big);
    assert_eq!(scratch.ok(&["get", "tree/empty"]), b"");
    assert_eq!(scratch.ok(&["scan", "--keys-only"]), b"tree/deep/big\ntree/empty\ntree/text\n");
}

#[test]
fn package_indexes_are_loaded_stanza_by_stanza() {
    let scratch = Scratch::new();
    let zstd = "Package: zstd\nVersion: 1.5\nArchitecture: amd64\nDescription: fast\n and small\n";
    let index = format!("{zstd}\n\nPackage: tzdata\nVersion: 2026a\n");
    scratch.file("Packages", index.as_bytes());
    scratch.ok(&["load", "--deb822", "Packages"]);
    assert_eq!(scratch.ok(&["get", "zstd=1.5:amd64"]), zstd.as_bytes());
    assert_eq!(scratch.ok(&["scan", "--keys-only"]), b"tzdata=2026a\nzstd=1.5:amd64\n");
}

#[test]
fn a_load_reports_records_bytes_and_rates() {
    let scratch = Scratch::new();
    let json = scratch.ok_with(&["load", "--tsv", "--json"], b"a\t1\nbb\t22\n");
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!((&report["records"], &report["bytes"]), (&2.into(), &6.into()));
    assert!(report["records_per_second"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn several_inputs_of_one_kind_are_loaded_in_order() {
    let scratch = Scratch::new();
    scratch.file("one", b"a\t1\nb\t1\n");
    scratch.file("two", b"b\t2\n");
    scratch.ok(&["load", "--tsv", "one", "two"]);
    assert_eq!(scratch.ok(&["scan"]), b"a\t1\nb\t2\n");
}

#[test]
fn every_table_has_a_json_form_asked_for_before_or_after_the_command() {
    let scratch = Scratch::new();
    scratch.ok_with(&["load", "--tsv"], b"a\t1\nb\t2\n");
    for (arguments, key) in [
        (&["stats", "--json"][..], "levels"),
        (&["verify", "--json"], "problems"),
        (&["compact", "--json"], "seconds"),
        (&["checkpoint", "copy", "--json"], "checkpoint"),
    ] {
        let report: serde_json::Value = serde_json::from_slice(&scratch.ok(arguments)).unwrap();
        assert!(report.get(key).is_some(), "{arguments:?}: {report}");
    }
    for (arguments, key) in [(&["stats"][..], "levels"), (&["compact"], "seconds")] {
        let before = [&["--json"], arguments].concat();
        let report: serde_json::Value = serde_json::from_slice(&scratch.ok(&before)).unwrap();
        assert!(report.get(key).is_some(), "{before:?}: {report}");
    }
    assert_eq!(scratch.ok(&["--json", "get", "a"]), b"{\"key\":\"a\",\"value\":\"1\"}\n");
    assert_eq!(
        scratch.ok(&["--json", "scan", "--limit", "1"]),
        scratch.ok(&["get", "a", "--json"])
    );
    let tiers: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["tiers", "--json"])).unwrap();
    assert_eq!(tiers.as_array().unwrap().len(), 1);
    assert!(tiers[0]["bytes_by_kind"].is_object(), "{tiers}");
}

#[test]
fn tables_for_people_show_tiers_levels_and_ratios() {
    let scratch = Scratch::new();
    let tiers = ["--preset", "leveled", "--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    let load = [&tiers[..], &["load", "--tsv"]].concat();
    scratch.ok_with(&load, b"a\t1\nb\t2\n");
    scratch.ok(&["compact"]);
    let stats = text(&scratch.ok(&["stats"]));
    for part in
        ["level  files", "on tier 1", "hit ratio", "write amplification", "space amplification"]
    {
        assert!(stats.contains(part), "{part} is not in {stats}");
    }
    assert!(stats.lines().count() <= 24 && !stats.contains("budget"), "{stats}");
    let all = text(&scratch.ok(&["stats", "--all"]));
    for part in ["Levels", "Memory", "budget", "write amplification", "compactions"] {
        assert!(all.contains(part), "{part} is not in {all}");
    }
    let tiers = text(&scratch.ok(&["tiers"]));
    for part in ["64 MiB", "1 GiB", "/fast", "/slow", "manifest", "Served, since"] {
        assert!(tiers.contains(part), "{part} is not in {tiers}");
    }
    for shown in [stats, tiers] {
        let files = shown.lines().find(|line| line.starts_with("open files")).unwrap();
        assert!(files.contains("at most (the process may have"), "{files}");
    }
}

#[test]
fn the_preset_hybrid_shows_what_lies_in_slots_and_leveled_has_no_such_part() {
    let scratch = Scratch::new();
    let create = ["--preset", "hybrid", "--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    let lines: String = (0..500).map(|n| format!("{n:05}\t{}\n", "v".repeat(300))).collect();
    scratch.ok_with(&[&create[..], &["load", "--tsv"]].concat(), lines.as_bytes());
    assert_eq!(scratch.ok(&["get", "00007"]), "v".repeat(300).as_bytes(), "the preset is kept");
    let report: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["stats", "--json"])).unwrap();
    let fast = &report["fast_tier"];
    assert_eq!(fast["records"], 500, "{fast}");
    let live: u64 =
        fast["classes"].as_array().unwrap().iter().map(|c| c["live"].as_u64().unwrap()).sum();
    assert_eq!(live, 500, "{fast}");
    let memory = report["memory"].as_object().unwrap();
    let bytes = |part: &str| memory[part].as_u64().unwrap();
    assert!(bytes("slot_index_bytes") > 0 && bytes("popularity_bytes") > 0, "{memory:?}");
    let is_part = |name: &&String| !["used_bytes", "budget_bytes"].contains(&name.as_str());
    let parts: u64 = memory.keys().filter(is_part).map(|part| bytes(part)).sum();
    assert_eq!(parts, bytes("used_bytes"), "{memory:?}");
    let shown = text(&scratch.ok(&["stats", "--all"]));
    let row = |name: &str| {
        let line = shown.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("{name} is not in {shown}")).to_owned()
    };
    assert!(row("records ").ends_with("500"), "{shown}");
    for part in [
        "of these copies",
        "free",
        "reads that memory",
        "pinned at most",
        "promoted",
        "index of slots",
        "popularity of keys",
    ] {
        row(part);
    }
    scratch.ok(&["verify"]);
    scratch.ok(&["put", "--db", "plain", "k", "v"]);
    assert!(!text(&scratch.ok(&["stats", "--all", "--db", "plain"])).contains("Slots"));
}

/// Every command opens the database anew, so what the rows say was kept by those before.
#[test]
fn what_moved_between_the_tiers_is_shown_by_another_opening() {
    let scratch = Scratch::new();
    let create = ["--preset", "hybrid", "--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    let lines = |keys: std::ops::Range<u32>| -> String {
        keys.map(|n| format!("{n:05}\t{}\n", "v".repeat(300))).collect()
    };
    let load = |lines: &str| scratch.ok_with(&["load", "--tsv"], lines.as_bytes());
    scratch.ok_with(&[&create[..], &["load", "--tsv"]].concat(), lines(0..500).as_bytes());
    scratch.ok(&["compact"]);
    // A fifth is replaced, by what is merged with the rest.
    load(&lines(0..100));
    scratch.ok(&["compact"]);
    load(&lines(500..600));
    scratch.ok(&["get", "00007"]);
    scratch.ok(&["get", "00507"]);
    scratch.fails(&["get", "none"], 1);
    let report: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["stats", "--json"])).unwrap();
    let (fast, operations) = (&report["fast_tier"], &report["operations"]);
    assert_eq!((&fast["demoted_records"], &fast["slow_reads"]), (&600.into(), &1.into()));
    assert_eq!((&fast["fast_reads"], &fast["absent_reads"]), (&1.into(), &1.into()), "{fast}");
    assert_eq!(fast["rules"]["pinning_stage"], "fixed");
    assert_eq!(fast["rules"]["read_triggered_stage"], "off");
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|value| value > 0.0);
    for value in [
        &fast["demotions"]["ended"],
        &fast["demotions"]["elapsed_s"],
        &operations["compacted_in_bytes"],
        &operations["compacted_out_bytes"],
        &report["tiers"][0]["live_bytes"],
        &report["tiers"][1]["live_bytes"],
        &report["tiers"][1]["reads"],
    ] {
        assert!(positive(value), "{value} in {report}");
    }
    let records = |tier: usize| report["tiers"][tier]["records"].as_u64().unwrap();
    assert_eq!([records(0), records(1)], [100, 500], "{report}");
    let shown = text(&scratch.ok(&["stats", "--all"]));
    let cell = |name: &str, column: usize| {
        let line = shown.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {shown}"));
        line.trim_start()[name.len()..].split_whitespace().nth(column).unwrap().to_owned()
    };
    let amount = |name: &str| cell(name, 0).replace(',', "").parse::<f64>().unwrap();
    assert_eq!(amount("demoted: merged into tables below"), 600.0, "{shown}");
    assert_eq!(amount("tables, or cached blocks of them"), 1.0, "{shown}");
    assert_eq!(amount("nothing: there is no such key"), 1.0, "{shown}");
    for row in ["demotions", "bytes of tables that they took in", "bytes of tables that they made"]
    {
        assert!(amount(row) > 0.0, "{row}: {shown}");
    }
    assert_eq!(cell("bounds of this share", 0), "70.0", "{shown}");
    assert_eq!(cell("merges that reads ask for", 0), "off", "{shown}");
    for part in ["Records by tier", "dead (estimate)", "on the slow", "Served by tier"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[test]
fn a_preset_that_cannot_be_is_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    let one_tier = ["--preset", "hybrid", "--tier", "only:1GiB", "put", "k", "v"];
    let error = scratch.fails(&one_tier, 2);
    assert!(error.contains("name both with --tier"), "{error}");
    assert!(!scratch.path("thermocline-data").exists() && !scratch.path("only").exists());
    let two = ["--preset", "hybrid", "--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    scratch.ok_with(&[&two[..], &["load", "--tsv"]].concat(), b"k\tv\n");
    // What the log still has goes into slots when the database is opened.
    scratch.ok(&["get", "k"]);
    let error = scratch.fails(&["--preset", "leveled", "get", "k"], 1);
    assert!(error.contains("open it with the preset hybrid"), "{error}");
    assert_eq!(scratch.ok(&["--preset", "hybrid", "get", "k"]), b"v");
}

#[test]
fn two_tiers_make_a_hybrid_store_and_one_that_is_leveled_stays_so() {
    let scratch = Scratch::new();
    let tiers = |db| ["--db", db, "--tier", "fast:64MiB", "--tier", "slow:1GiB"].map(str::to_owned);
    let with = |words: &[String], more: &[&str]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        scratch.ok(&[&words[..], more].concat())
    };
    let preset = |db: &str| {
        let report: serde_json::Value =
            serde_json::from_slice(&scratch.ok(&["--db", db, "stats", "--json"])).unwrap();
        let shown = text(&scratch.ok(&["--db", db, "stats"]));
        let preset = report["preset"].as_str().unwrap().to_owned();
        assert!(shown.lines().next().unwrap().contains(&format!("preset {preset}")), "{shown}");
        preset
    };
    with(&tiers("new"), &["put", "k", "v"]);
    assert_eq!(preset("new"), "hybrid");
    let elsewhere = |word: &String| word.replace("fast:", "fast-2:").replace("slow:", "slow-2:");
    let second: Vec<String> = tiers("named").iter().map(elsewhere).collect();
    with(&second, &["--preset", "leveled", "put", "k", "v"]);
    assert_eq!(preset("named"), "leveled");
    // Naming the tiers again, or other settings, is not naming a preset.
    with(&second, &["put", "k", "w"]);
    assert_eq!(preset("named"), "leveled");
    scratch.file("store.toml", b"memory = '16 MiB'\n");
    assert_eq!(scratch.ok(&["--db", "named", "--config", "store.toml", "get", "k"]), b"w");
    assert_eq!(preset("named"), "leveled");
    assert_eq!(scratch.ok(&["--db", "new", "--config", "store.toml", "get", "k"]), b"v");
    assert_eq!(preset("new"), "hybrid");
    scratch.ok(&["--db", "one", "put", "k", "v"]);
    assert_eq!(preset("one"), "leveled");
}

#[test]
fn tiers_come_go_and_are_replaced_and_the_records_stay() {
    let scratch = Scratch::new();
    let config = b"preset = 'leveled'\nmemory = '8 MiB'\n";
    scratch.file("store.toml", config);
    let lines: String = (0..20_000).map(|key| format!("{key}\tvalue of {key}\n")).collect();
    let load = ["--config", "store.toml", "--tier", "first:64MiB", "load", "--tsv"];
    scratch.ok_with(&load, lines.as_bytes());
    let holds = |tiers: &[&str]| {
        assert_eq!(scratch.ok(&["get", "17"]), b"value of 17");
        assert!(text(&scratch.ok(&["verify"])).contains("all is well"));
        let shown: serde_json::Value =
            serde_json::from_slice(&scratch.ok(&["tiers", "--json"])).unwrap();
        let shown = shown.as_array().unwrap().iter().map(|tier| tier["path"].as_str().unwrap());
        let expected: Vec<_> = tiers.iter().map(|name| scratch.path(name)).collect();
        assert!(shown.map(PathBuf::from).eq(expected), "{tiers:?}");
    };
    let added = text(&scratch.ok(&["tiers", "add", "fast:64MiB", "--at", "0"]));
    assert!(added.lines().nth(1).unwrap().starts_with("tier 1") && added.contains("first"));
    holds(&["fast", "first"]);
    scratch.ok(&["tiers", "replace", "1", "second"]);
    holds(&["fast", "second"]);
    scratch.ok(&["put", "new", "in the log"]);
    assert!(!scratch.path("first").exists());
    let removed: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["tiers", "remove", "fast", "--json"])).unwrap();
    assert_eq!(removed["tiers"].as_array().unwrap().len(), 1);
    assert!(removed["bytes"].as_u64().unwrap() > 0, "the manifest and the log moved: {removed}");
    holds(&["second"]);
    for (words, status, part) in [
        (&["tiers", "remove", "second"][..], 1, "the only tier"),
        (&["tiers", "remove", "0"], 1, "the only tier"),
        (&["tiers", "remove", "./0"], 1, "no tier lies in"),
        (&["tiers", "remove", "3"], 1, "no place 3"),
        (&["tiers", "replace", "elsewhere", "third"], 1, "no tier lies in"),
        (&["tiers", "add", "second:1GiB"], 1, "twice"),
        (&["tiers", "add", "ram:1GiB:memory"], 2, "driver memory"),
        (&["tiers", "replace", "3", "third"], 1, "no place 3"),
    ] {
        let line = scratch.fails(words, status);
        assert!(line.contains(part), "{words:?}: {line}");
    }
    holds(&["second"]);
    assert_eq!(scratch.ok(&["get", "new"]), b"in the log");
    // By path what was by number, and the other way round.
    scratch.ok(&["tiers", "replace", "second", "third"]);
    holds(&["third"]);
    scratch.ok(&["tiers", "add", "slow:1GiB"]);
    scratch.ok(&["tiers", "remove", "0"]);
    holds(&["slow"]);
    assert!(!scratch.path("third").exists());
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let scratch = Scratch::new();
    scratch.ok_with(&["load", "--tsv"], b"a\t1\nb\t2\n");
    scratch.ok(&["checkpoint", "copy"]);
    scratch.ok(&["put", "a", "later"]);
    scratch.ok(&["put", "--db", "copy", "b", "other"]);
    assert_eq!(scratch.ok(&["scan", "--db", "copy"]), b"a\t1\nb\tother\n");
    assert_eq!(scratch.ok(&["scan"]), b"a\tlater\nb\t2\n");
    scratch.ok(&["verify", "--db", "copy"]);
}

#[test]
fn compaction_keeps_what_is_there_and_forgets_what_is_not() {
    let scratch = Scratch::new();
    let lines: String = (0..2000).map(|n| format!("{n:05}\t{n}\n")).collect();
    scratch.ok_with(&["load", "--tsv"], lines.as_bytes());
    scratch.ok(&["delete", "00007"]);
    let said = text(&scratch.ok(&["compact"]));
    assert!(said.starts_with("compacted "), "{said}");
    scratch.ok(&["compact", "--from", "00100", "--to", "00200"]);
    let expected = lines.replace("00007\t7\n", "");
    assert_eq!(text(&scratch.ok(&["scan"])), expected);
    let stats: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["stats", "--json"])).unwrap();
    let entries: u64 =
        stats["levels"].as_array().unwrap().iter().map(|l| l["entries"].as_u64().unwrap()).sum();
    assert_eq!(entries, 1999, "{stats}");
}

#[test]
fn settings_come_from_a_file_and_are_kept() {
    let scratch = Scratch::new();
    scratch
        .file("store.toml", b"memory = '32 MiB'\n[[tiers]]\npath = 'only'\ncapacity = '1 GiB'\n");
    scratch.ok(&["--config", "store.toml", "put", "k", "v"]);
    let stats: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["stats", "--json"])).unwrap();
    assert_eq!(stats["memory"]["budget_bytes"], 32 << 20, "{stats}");
    assert!(stats["tiers"][0]["path"].as_str().unwrap().ends_with("only"), "{stats}");
    assert_eq!(scratch.ok(&["get", "k"]), b"v");
}

#[test]
fn a_moved_tier_is_named_once_and_remembered() {
    let scratch = Scratch::new();
    scratch.ok(&["--tier", "here:1GiB", "put", "k", "v"]);
    scratch.rename("here", "there");
    let error = scratch.fails(&["get", "k"], 1);
    assert!(error.contains("here"), "{error}");
    assert_eq!(scratch.ok(&["--tier", "there:1GiB", "get", "k"]), b"v");
    assert_eq!(scratch.ok(&["get", "k"]), b"v");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let scratch = Scratch::new();
    let help = text(&scratch.ok(&["--help"]));
    for command in ["try", "load", "get", "put", "delete", "scan", "stats", "tiers", "compact"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
    }
    assert!(help.contains("Examples:"), "{help}");
    assert!(text(&scratch.ok(&["load", "--help"])).contains("apt-cache dumpavail"));
    assert!(text(&scratch.ok(&["--version"])).starts_with("thermocline 0."));
}

#[test]
fn a_reader_that_leaves_ends_a_scan_quietly() {
    let scratch = Scratch::new();
    let lines: String = (0..20_000).map(|n| format!("{n:06}\t{}\n", "x".repeat(50))).collect();
    scratch.ok_with(&["load", "--tsv"], lines.as_bytes());
    let mut scan = scratch.start(&["scan"]);
    // Closed before anything was read: the pipe holds 64 KiB, the scan prints twenty times that.
    drop(scan.stdout.take());
    let ended = scan.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(text(&ended.stderr), "");
}

#[test]
fn a_trial_loads_serves_checks_and_replaces_only_itself() {
    let scratch = Scratch::new();
    for index in 0..200 {
        scratch.file(&format!("tree/{index}"), "content ".repeat(index * 10).as_bytes());
    }
    let run = ["try", "tree", "--seconds", "0.3"];
    let page = text(&scratch.ok(&run));
    for part in ["Loaded 200 files", "p99", "Moved between the tiers", "compared 200 values"] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(page.lines().count() <= 25, "{page}");
    // The page sends readers to the rest: where the records are, and what moved them there.
    let first = text(&scratch.ok(&["stats", "--all"]));
    let amount = |name: &str, column: usize| {
        let line = first.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {first}"));
        let cell = line.trim_start()[name.len()..].split_whitespace().nth(column).unwrap();
        cell.replace(',', "").parse::<u64>().unwrap()
    };
    // Of a record that changed under a scan there may be two versions, so 200 is no bound; but what
    // the manifest's slots have is what the index knows, and no more than was written.
    let in_slots = amount("slots ", 1);
    assert!((1..=amount("records written", 0)).contains(&in_slots), "{first}");
    let indexed = first.split("Records on the fast tier").nth(1).unwrap();
    let indexed = indexed.lines().find_map(|line| line.strip_prefix("records ")).unwrap();
    assert_eq!(in_slots, indexed.trim().replace(',', "").parse::<u64>().unwrap(), "{first}");
    for part in ["promoted: copied up into memory", "demoted: merged into tables below"] {
        amount(part, 0);
    }
    let answers = ["a memtable", "slots, or memory above them", "tables, or cached blocks of them"];
    let answered: u64 = answers.iter().map(|part| amount(part, 0)).sum();
    assert_eq!(amount("nothing: there is no such key", 0), 0, "{first}");
    assert_eq!(answered, amount("records looked up", 0), "{first}");
    assert!(answered > 0 && first.contains("mean score"), "{first}");
    scratch.ok(&["verify"]);
    let again = [&run[..], &["--json"]].concat();
    let report: serde_json::Value = serde_json::from_slice(&scratch.ok(&again)).unwrap();
    assert_eq!(report["checked"], 200, "{report}");
    assert!(report["operations"][0]["count"].as_u64().unwrap() > 0, "{report}");
    let fast = &report["stats"]["fast_tier"];
    let keys = |of: &serde_json::Value| -> Vec<u64> {
        of.as_array().unwrap().iter().map(|keys| keys.as_u64().unwrap()).collect()
    };
    let rules = &fast["rules"];
    let tiers = [&rules["fast_histogram"], &rules["slow_histogram"]].map(keys);
    let known: Vec<u64> = std::iter::zip(&tiers[0], &tiers[1]).map(|(a, b)| a + b).collect();
    assert_eq!(known, keys(&fast["histogram"]), "{report}");
    assert_eq!(known.iter().sum::<u64>(), fast["tracked_keys"].as_u64().unwrap(), "{report}");
    assert!(known.iter().sum::<u64>() > 0, "{report}");
    assert_eq!(report["stats"]["tiers"].as_array().unwrap().len(), 2);
    assert_eq!(report["stats"]["preset"], "hybrid", "{report}");
    assert!(report["stats"]["fast_tier"]["records"].as_u64().unwrap() > 0, "{report}");
    let leveled = [&again[..], &["--preset", "leveled"]].concat();
    let report: serde_json::Value = serde_json::from_slice(&scratch.ok(&leveled)).unwrap();
    assert_eq!(report["checked"], 200, "{report}");
    assert_eq!(report["stats"]["preset"], "leveled", "{report}");
    assert!(report["stats"]["fast_tier"].is_null(), "{report}");

    scratch.file("thermocline-data/slow/mine.txt", b"keep");
    let error = scratch.fails(&run, 1);
    assert!(error.contains("mine.txt"), "{error}");
    scratch.remove("thermocline-data/slow/mine.txt");
    scratch.ok(&["get", "tree/7"]);
}

#[test]
fn a_trial_leaves_other_databases_alone() {
    let scratch = Scratch::new();
    scratch.file("tree/file", b"content");
    scratch.ok(&["put", "k", "v"]);
    let error = scratch.fails(&["try", "tree", "--seconds", "0.1"], 1);
    assert!(error.contains("did not make"), "{error}");
    assert_eq!(scratch.ok(&["get", "k"]), b"v");
}

#[test]
fn a_killed_load_keeps_a_prefix_and_verifies() {
    let scratch = Scratch::new();
    let mut acknowledged_once = false;
    for round in 0..4u64 {
        let db = format!("db-{round}");
        let mut load = scratch.start(&["load", "--tsv", "--db", &db]);
        let mut input = load.stdin.take().unwrap();
        let filler = "x".repeat(500);
        // The pipe holds 64 KiB, so the loader has taken nearly all of what went in.
        for number in 0..(4000 + round * 4000) {
            writeln!(input, "{number:08}\t{filler}{number}").unwrap();
        }
        load.kill().unwrap();
        load.wait().unwrap();
        drop(input);
        scratch.ok(&["verify", "--db", &db]);
        let scan = text(&scratch.ok(&["scan", "--db", &db]));
        for (number, line) in scan.lines().enumerate() {
            assert_eq!(line, format!("{number:08}\t{filler}{number}"), "round {round}");
        }
        acknowledged_once |= scan.lines().count() > 1000;
        scratch.ok(&["put", "--db", &db, "after", "the kill"]);
    }
    assert!(acknowledged_once, "no round loaded a batch, so nothing was tested");
}

#[test]
fn the_cache_of_blocks_is_shown_resized_and_emptied() {
    let scratch = Scratch::new();
    let tiers = ["--preset", "leveled", "--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    scratch.ok(&[&tiers[..], &["put", "water", "warm"]].concat());
    let shown = |arguments: &[&str]| text(&scratch.ok(arguments));
    assert!(shown(&["cache", "show"]).contains("off"));
    let error = scratch.fails(&["cache", "resize", "1KiB"], 1);
    assert!(error.contains("fast_cache.capacity = 1024 B is out of range"), "{error}");
    assert!(shown(&["cache", "resize", "16MiB"]).contains("may take 16 MiB of tier 0"));
    assert!(shown(&["cache", "show"]).contains("16 MiB"));
    assert!(shown(&["cache", "show", "--json"]).contains("\"simulated_lru\""));
    let running = shown(&["stats", "--all"]);
    for figure in [
        "room that logs",
        "read from the fast tier",
        "of the others, wanted",
        "files that left",
        "copies that were wrong",
        "of the budget of writes",
        "blocks of earlier openings",
        "files of earlier openings that did not count",
    ] {
        assert!(running.contains(figure), "{figure} is not in {running}");
    }
    assert!(shown(&["cache", "resize", "60MiB"]).contains("tier 0 leaves it"));
    assert_eq!(scratch.ok(&["get", "water"]), b"warm");
    assert!(shown(&["cache", "clear"]).contains("is empty"));
    for change in [&["cache", "clear"][..], &["cache", "resize", "0"]] {
        let error = scratch.fails(&[change, &["--read-only"]].concat(), 1);
        assert!(error.contains("leave out --read-only"), "{error}");
    }
    assert!(shown(&["cache", "resize", "auto"]).contains("what the levels of tier 0 leave"));
    assert!(shown(&["cache", "show"]).contains("auto"));
    assert!(shown(&["cache", "resize", "0"]).contains("is off"));
    assert!(shown(&["cache", "show"]).contains("off"));
    let settings = text(&scratch.read("thermocline-data/settings.toml"));
    assert!(!settings.contains("fast_cache"), "{settings}");
}
