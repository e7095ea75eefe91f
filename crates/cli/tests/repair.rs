//! `repair` on databases with a flipped bit: what it says, what it changes, and what `verify` says
//! before and after.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod command;

use command::{Scratch, text};

fn made(scratch: &Scratch, preset: &str) {
    let lines: String = (0..2000).map(|n| format!("k{n:05}\t{n:0100}\n")).collect();
    let tiers = ["--tier", "fast:64MiB", "--tier", "slow:1GiB"];
    let load = ["load", "--quiet", "--tsv", "-"];
    let arguments = [&["--db", "db", "--preset", preset], &tiers[..], &load[..]].concat();
    scratch.ok_with(&arguments, lines.as_bytes());
}

/// Flips a bit of a record in a slot, and says in which file.
fn damage(scratch: &Scratch) -> String {
    let slabs = scratch.names("fast", ".slab");
    let name = slabs.into_iter().max_by_key(|name| scratch.read(name).len()).unwrap();
    let mut bytes = scratch.read(&name);
    let at = (8192..bytes.len()).find(|at| bytes[*at] != 0).unwrap();
    bytes[at + 20] ^= 1;
    scratch.file(&name, &bytes);
    name
}

#[test]
fn a_damaged_record_is_named_kept_and_taken_out_of_use() {
    let scratch = Scratch::new();
    made(&scratch, "hybrid");
    // Records move from the log to slots.
    scratch.ok(&["--db", "db", "get", "k00007"]);
    let clean = text(&scratch.ok(&["--db", "db", "repair"]));
    assert!(clean.contains("nothing is damaged"), "{clean}");
    let name = damage(&scratch);
    scratch.fails(&["--db", "db", "verify"], 1);
    let before = scratch.read(&name);
    let planned = scratch.run(&["--db", "db", "repair"], b"");
    assert_eq!(planned.status.code(), Some(1));
    let said = text(&planned.stdout);
    let refused = text(&planned.stderr);
    assert!(refused.contains("nothing was changed") && refused.contains("--apply"), "{refused}");
    let skipped = scratch.run(&["--db", "db", "repair", "--skip-unreadable"], b"");
    assert_eq!((skipped.status.code(), text(&skipped.stdout)), (Some(1), said.clone()));
    let asks = text(&skipped.stderr);
    assert!(asks.contains("`repair --skip-unreadable --apply` takes"), "{asks}");
    let file = name.rsplit('/').next().unwrap();
    assert!(said.contains(file) && said.contains("damage  "), "{said}");
    assert!(scratch.read(&name) == before, "planning has changed the file");
    let done = text(&scratch.ok(&["--db", "db", "repair", "--apply"]));
    assert!(done.contains("kept    ") && done.contains("/lost/"), "{done}");
    let verified = text(&scratch.ok(&["--db", "db", "verify"]));
    assert!(verified.contains("all is well"), "{verified}");
    scratch.ok(&["--db", "db", "put", "new", "value"]);
    let kept = text(&scratch.ok(&["--db", "db", "scan", "--keys-only"])).lines().count();
    assert!((1999..=2000).contains(&kept), "{kept} keys");
    let json = text(&scratch.ok(&["--db", "db", "repair", "--json"]));
    assert!(json.contains("\"steps\": []") && json.contains("\"applied\": false"), "{json}");
}

#[test]
fn keys_of_a_damaged_block_are_named_as_a_range() {
    let scratch = Scratch::new();
    made(&scratch, "leveled");
    scratch.ok(&["--db", "db", "compact"]);
    // One of several may be what the last command has not deleted yet.
    for name in ["fast", "slow"].map(|directory| scratch.names(directory, ".table")).concat() {
        let mut bytes = scratch.read(&name);
        bytes[20] ^= 1;
        scratch.file(&name, &bytes);
    }
    let planned = scratch.run(&["--db", "db", "repair", "--json"], b"");
    assert_eq!(planned.status.code(), Some(1));
    let json = text(&planned.stdout);
    assert!(json.contains("\"what\": \"keys\"") && json.contains("\"until_key\": \"k0"), "{json}");
    let done = text(&scratch.ok(&["--db", "db", "repair", "--apply"]));
    assert!(done.contains("what this file had of the keys up to k0"), "{done}");
    scratch.ok(&["--db", "db", "verify"]);
    let kept = text(&scratch.ok(&["--db", "db", "scan", "--keys-only"])).lines().count();
    assert!((1000..2000).contains(&kept), "{kept} keys");
    let line = scratch.fails(&["--db", "db", "--read-only", "repair", "--apply"], 2);
    assert!(line.contains("--read-only"), "{line}");
}

#[test]
fn a_manifest_that_is_gone_is_made_anew_when_it_is_asked_for() {
    for preset in ["leveled", "hybrid"] {
        let scratch = Scratch::new();
        made(&scratch, preset);
        scratch.ok(&["--db", "db", "delete", "k00009"]);
        let names = scratch.names("fast", ".manifest");
        let name = names.iter().max().unwrap();
        let bytes = scratch.read(name);
        scratch.file(name, &vec![0; bytes.len()]);
        let refused = scratch.fails(&["--db", "db", "repair"], 1);
        assert!(refused.contains("--rebuild-manifest"), "{refused}");
        let planned = scratch.run(&["--db", "db", "repair", "--rebuild-manifest"], b"");
        assert_eq!(planned.status.code(), Some(1));
        let (said, asks) = (text(&planned.stdout), text(&planned.stderr));
        assert!(said.contains("keys from k00000 to k01999 that were deleted"), "{said}");
        assert!(asks.contains("repair --rebuild-manifest --apply"), "{asks}");
        let done = text(&scratch.ok(&["--db", "db", "repair", "--rebuild-manifest", "--apply"]));
        assert!(done.contains("made anew, of what tables, slots and logs tell"), "{done}");
        assert!(done.contains("/lost/"), "{done}");
        scratch.ok(&["--db", "db", "verify"]);
        let kept = text(&scratch.ok(&["--db", "db", "scan", "--keys-only"])).lines().count();
        assert!((1999..=2000).contains(&kept), "{kept} keys");
        let intact = text(&scratch.ok(&["--db", "db", "repair", "--rebuild-manifest"]));
        assert!(intact.contains("nothing is damaged"), "{intact}");
    }
}

/// The merge at the end reads all of a table, and its properties say nothing of its blocks.
#[test]
fn a_merge_that_meets_damage_after_the_manifest_was_made_anew_is_told() {
    let scratch = Scratch::new();
    made(&scratch, "leveled");
    scratch.ok(&["--db", "db", "compact"]);
    for table in ["fast", "slow"].into_iter().flat_map(|tier| scratch.names(tier, ".table")) {
        let mut bytes = scratch.read(&table);
        bytes[5000..5100].fill(0xa5);
        scratch.file(&table, &bytes);
    }
    let names = scratch.names("fast", ".manifest");
    scratch.file(names.iter().max().unwrap(), &[0; 4096]);
    // So that the merge has something to do.
    let rebuild = ["--db", "db", "repair", "--rebuild-manifest", "--apply"];
    let done = text(&scratch.ok(&rebuild));
    assert!(done.contains("its tables are not merged yet ("), "{done}");
    assert!(done.trim_end().ends_with("see what `repair` says"), "{done}");
    let found = text(&scratch.run(&["--db", "db", "repair"], b"").stdout);
    assert!(found.contains(".table"), "{found}");
}
