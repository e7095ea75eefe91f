//! The command on databases with a region of persistent memory, of the preset `indexed` and of
//! `leveled`: what it says and does, and what it says where the region is not the right one.
//!
//! With the driver `mapped` a file that is no persistent memory holds the index alone; the tests
//! hold on both kinds of machines.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod command;

use command::{Scratch, text};

const REGION: &str = "pmem/store.region";

/// A database in the directory `db` with 2,000 records, whose region is a file of `driver`.
fn made(preset: &str, driver: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("pmem/.keep", b"");
    configure(&scratch, "store.toml", preset, REGION, driver);
    let lines: String = (0..2000).map(|n| format!("k{n:05}\t{n:0100}\n")).collect();
    let load = ["--db", "db", "--config", "store.toml", "load", "--quiet", "--tsv", "-"];
    scratch.ok_with(&load, lines.as_bytes());
    scratch
}

/// Writes a file for `--config`.
fn configure(scratch: &Scratch, name: &str, preset: &str, region: &str, driver: &str) {
    let text = format!(
        "preset = \"{preset}\"\nmemory = \"8 MiB\"\npersistent_memory = {{ path = \"{region}\", \
         size = \"16 MiB\", driver = \"{driver}\" }}\n[[tiers]]\npath = \"tier\"\ncapacity = \"1 \
         GiB\"\n"
    );
    scratch.file(name, text.as_bytes());
}

/// A command on the database `db`.
fn on_db<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["--db", "db"], words].concat()
}

fn said(scratch: &Scratch, words: &[&str]) -> String {
    text(&scratch.ok(&on_db(words)))
}

fn keys(scratch: &Scratch) -> usize {
    said(scratch, &["scan", "--keys-only"]).lines().count()
}

const KINDS: [(&str, &str); 3] =
    [("indexed", "emulated-0ns"), ("indexed", "mapped"), ("leveled", "emulated-0ns")];

#[test]
fn records_are_written_read_scanned_and_verified() {
    for (preset, driver) in KINDS {
        let scratch = made(preset, driver);
        scratch.ok(&on_db(&["put", "new", "value"]));
        assert_eq!(scratch.ok(&on_db(&["get", "new"])), b"value", "{preset}, {driver}");
        scratch.ok(&on_db(&["delete", "k00007"]));
        scratch.fails(&on_db(&["get", "k00007"]), 1);
        assert_eq!(keys(&scratch), 2000);
        let found = said(&scratch, &["scan", "--from", "k00100", "--limit", "2", "--keys-only"]);
        assert_eq!(found, "k00100\nk00101\n");
        let backwards = said(&scratch, &["scan", "--reverse", "--limit", "1", "--keys-only"]);
        assert_eq!(backwards, "new\n");
        assert!(said(&scratch, &["verify"]).contains("all is well"));
        scratch.ok(&on_db(&["compact"]));
        assert_eq!(keys(&scratch), 2000);
        let line = scratch.fails(&on_db(&["repair"]), 1);
        assert!(line.contains("`repair --rebuild-index`") && line.contains("checkpoint"), "{line}");
    }
}

#[test]
fn stats_say_what_the_region_is_and_what_the_index_has() {
    for (preset, driver) in KINDS {
        let scratch = made(preset, driver);
        let stats = said(&scratch, &["stats", "--all"]);
        let media = match driver {
            "mapped" => "file",
            _ => "emulated",
        };
        for part in ["Persistent memory", REGION, media, "lines flushed", "fences"] {
            assert!(stats.contains(part), "{preset}, {driver}: {stats} lacks {part}");
        }
        assert_eq!(stats.contains("tables that wait for it"), preset == "indexed", "{stats}");
        let json: serde_json::Value =
            serde_json::from_str(&said(&scratch, &["stats", "--json"])).unwrap();
        assert_eq!(json["preset"], preset);
        assert!(json["region"]["path"].as_str().unwrap().ends_with(REGION), "{json}");
        assert_eq!(json["index"].is_null(), preset != "indexed", "{json}");
    }
}

#[test]
fn a_database_with_a_region_is_read_without_a_change() {
    for (preset, driver) in KINDS {
        let scratch = made(preset, driver);
        let before = scratch.read(REGION);
        for words in [&["get", "k00042"][..], &["scan"], &["stats"], &["tiers"], &["verify"]] {
            scratch.ok(&on_db(&[&["--read-only"], words].concat()));
        }
        let scanned = said(&scratch, &["--read-only", "scan", "--keys-only"]);
        assert_eq!(scanned.lines().count(), 2000);
        let line = scratch.fails(&on_db(&["--read-only", "put", "a", "b"]), 1);
        assert!(line.contains("reading only"), "{line}");
        assert!(scratch.read(REGION) == before, "{preset}, {driver}: the region has changed");
    }
}

#[test]
fn a_checkpoint_wants_a_region_of_its_own() {
    let scratch = made("indexed", "emulated-0ns");
    scratch.ok(&on_db(&["checkpoint", "copy"]));
    let line = scratch.fails(&["--db", "copy", "get", "k00042"], 1);
    assert!(line.contains("name a region"), "{line}");
    // To be read it needs none.
    let read = scratch.ok(&["--db", "copy", "--read-only", "scan", "--keys-only"]);
    assert_eq!(text(&read).lines().count(), 2000);
    configure(&scratch, "copy.toml", "indexed", "pmem/copy.region", "emulated-0ns");
    let config = text(&scratch.read("copy.toml"));
    let without_tiers = config.split("[[tiers]]").next().unwrap().to_owned();
    scratch.file("copy.toml", without_tiers.as_bytes());
    let scan = ["--db", "copy", "--config", "copy.toml", "scan", "--keys-only"];
    assert_eq!(text(&scratch.ok(&scan)).lines().count(), 2000);
    assert_eq!(scratch.ok(&["--db", "copy", "get", "k00042"]).len(), 100);
    assert!(text(&scratch.ok(&["--db", "copy", "verify"])).contains("all is well"));
}

#[test]
fn an_index_is_made_anew_in_its_place_and_in_another_region() {
    for driver in ["emulated-0ns", "mapped"] {
        let scratch = made("indexed", driver);
        let rebuild = ["repair", "--rebuild-index"];
        let planned = scratch.run(&on_db(&rebuild), b"");
        assert_eq!(planned.status.code(), Some(1));
        let says = text(&planned.stdout);
        assert!(says.contains("no record is lost") && says.contains("would be made"), "{says}");
        assert!(text(&planned.stderr).contains("nothing was changed"));
        let done = said(&scratch, &[&rebuild[..], &["--apply"]].concat());
        assert!(done.contains("the index was made anew from"), "{done}");
        let other = format!("pmem/other.region:32MiB:{driver}");
        let done = said(&scratch, &[&rebuild[..], &["--apply", "--region", &other]].concat());
        assert!(done.contains("other.region is made in its place"), "{done}");
        assert!(done.contains(&format!("{REGION}, which nothing needs any more")), "{done}");
        scratch.remove(REGION);
        let json: serde_json::Value =
            serde_json::from_str(&said(&scratch, &["stats", "--json"])).unwrap();
        assert!(json["region"]["path"].as_str().unwrap().ends_with("other.region"), "{json}");
        assert!(json["region"]["bytes"].as_u64().unwrap() > 31 << 20, "{json}");
        assert_eq!(keys(&scratch), 2000);
        assert!(said(&scratch, &["verify"]).contains("all is well"));
        // It is lost after a close: nothing is lost with it.
        scratch.rename("pmem/other.region", "pmem/lost");
        let again = format!("pmem/again.region:16MiB:{driver}");
        let done = said(&scratch, &[&rebuild[..], &["--apply", "--region", &again]].concat());
        assert!(done.contains("no record is lost"), "{done}");
        assert_eq!(keys(&scratch), 2000);
    }
}

#[test]
fn a_region_that_is_missing_foreign_or_damaged_is_one_line_with_the_way_out() {
    for (preset, driver) in KINDS {
        let scratch = made(preset, driver);
        scratch.rename(REGION, "pmem/right");
        let line = scratch.fails(&on_db(&["get", "k00042"]), 1);
        for part in [REGION, "missing", "mount it"] {
            assert!(line.contains(part), "{preset}, {driver}: {line} lacks {part}");
        }
        let other = made(preset, driver);
        scratch.file(REGION, &other.read(REGION));
        let line = scratch.fails(&on_db(&["get", "k00042"]), 1);
        for part in [REGION, "belongs to database", "name the right one"] {
            assert!(line.contains(part), "{preset}, {driver}: {line} lacks {part}");
        }
        scratch.file(REGION, b"a letter, and no region");
        let line = scratch.fails(&on_db(&["get", "k00042"]), 1);
        assert!(line.contains(REGION), "{line}");
        scratch.remove(REGION);
        scratch.rename("pmem/right", REGION);
        assert_eq!(keys(&scratch), 2000, "the right one is there again");
    }
}

/// A process that is killed while it makes a region leaves zeros, or a file with another name.
#[test]
fn a_region_that_was_not_finished_is_made_again_and_another_file_is_not_touched() {
    for driver in ["emulated-0ns", "mapped"] {
        let scratch = Scratch::new();
        scratch.ok(&["--db", "db", "--tier", "tier:1GiB", "put", "k00042", "value"]);
        configure(&scratch, "store.toml", "indexed", REGION, driver);
        let get = on_db(&["--config", "store.toml", "get", "k00042"]);
        let letter = [b"a letter, and no region".to_vec(), vec![0; (1 << 20) - 23]].concat();
        scratch.file(REGION, &letter);
        let line = scratch.fails(&get, 1);
        for part in [REGION, "there already", "name another"] {
            assert!(line.contains(part), "{line} lacks {part}");
        }
        assert!(scratch.read(REGION) == letter, "the letter has changed");
        scratch.remove(REGION);
        scratch.sparse(REGION, 16 << 20);
        scratch.file("pmem/store.region.unfinished", b"half of it");
        assert_eq!(scratch.ok(&get), b"value");
        assert!(said(&scratch, &["stats", "--all"]).contains("tables that wait for it"));
        assert_eq!(scratch.names("pmem", ".unfinished"), Vec::<String>::new());
    }
}

#[test]
fn settings_that_lack_a_region_or_have_a_bad_one_make_nothing() {
    let scratch = Scratch::new();
    scratch.file("pmem/.keep", b"");
    let tier = "[[tiers]]\npath = \"tier\"\ncapacity = \"1 GiB\"\n";
    scratch.file("none.toml", format!("preset = \"indexed\"\n{tier}").as_bytes());
    configure(&scratch, "hybrid.toml", "hybrid", REGION, "emulated-0ns");
    configure(&scratch, "driver.toml", "indexed", REGION, "dax");
    configure(&scratch, "nowhere.toml", "indexed", "nowhere/region", "emulated-0ns");
    for (config, part) in [
        ("none.toml", "persistent_memory = { path"),
        ("hybrid.toml", "presets leveled and indexed"),
        ("driver.toml", "emulated-0ns to emulated-5000ns"),
        ("nowhere.toml", "nowhere/region"),
    ] {
        let line = scratch.fails(&["--db", "db", "--config", config, "put", "a", "b"], 1);
        assert!(line.contains(part), "{config}: {line}");
        assert!(!scratch.path("db/DATABASE").exists(), "{config}");
    }
    assert!(!scratch.path(REGION).exists());
}

#[test]
fn another_preset_is_named_and_the_region_stays_where_it_has_memtables() {
    for driver in ["emulated-0ns", "mapped"] {
        let scratch = made("indexed", driver);
        assert_eq!(said(&scratch, &["--preset", "leveled", "get", "k00042"]).len(), 100);
        let stats = said(&scratch, &["stats", "--all"]);
        assert!(stats.contains("preset leveled"), "{stats}");
        assert!(!stats.contains("tables that wait for it"), "{stats}");
        assert_eq!(scratch.path(REGION).exists(), stats.contains("Persistent memory"), "{stats}");
        assert_eq!(keys(&scratch), 2000);
        assert!(said(&scratch, &["verify"]).contains("all is well"));
        // Back again; where the region went another is named.
        assert_eq!(said(&scratch, &["--config", "store.toml", "get", "k00042"]).len(), 100);
        assert!(said(&scratch, &["stats", "--all"]).contains("tables that wait for it"));
        assert_eq!(keys(&scratch), 2000);
    }
}
