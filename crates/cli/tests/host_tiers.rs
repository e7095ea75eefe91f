//! `tiers ACTION DIR`: another program's directory, shown, emptied of links, and given its tiers.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests may")]

mod command;

use command::{Scratch, text};
use std::fs;
use std::sync::Arc;
use thermocline_device::{FileClass, FillFirst, Holds, Names, Origin, SystemDevices, TierSpec};
use thermocline_foundation::ByteSize;

/// A directory over two tiers, with two tables of 20 MiB on the fast one, a short one and a plain
/// file.
fn made(scratch: &Scratch) {
    for name in ["db", "fast", "slow"] {
        fs::create_dir(scratch.path(name)).unwrap();
    }
    let spec = |name: &str, mib| TierSpec {
        path: scratch.path(name),
        capacity: ByteSize::mib(mib),
        driver: "posix".to_owned(),
    };
    let tiers = [spec("fast", 44), spec("slow", 1024)];
    let devices = Arc::new(SystemDevices::default());
    let names = Names::make(devices, &scratch.path("db"), &tiers, Arc::new(FillFirst)).unwrap();
    let class =
        FileClass { holds: Holds::Table, level: Some(1), origin: Origin::Flush, heat: None };
    for name in ["1.sst", "2.sst"] {
        let file = names.create(name, class).unwrap();
        fs::write(file.place(), vec![1; 20 << 20]).unwrap();
        file.synced().unwrap();
    }
    // A first table of a level is expected to take an eighth of the fast tier, which is full.
    let file = names.create("3.sst", FileClass { level: Some(2), ..class }).unwrap();
    fs::write(file.place(), b"third").unwrap();
    file.synced().unwrap();
    fs::write(scratch.path("db/CURRENT"), b"plain").unwrap();
}

fn is_link(scratch: &Scratch, name: &str) -> bool {
    scratch.path(name).is_symlink()
}

#[test]
fn a_directory_is_listed_and_shown_by_tier() {
    let scratch = Scratch::new();
    made(&scratch);
    let listed = text(&scratch.ok(&["tiers", "list", "db"]));
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap();
    let words = |name: &str| line(name).split_whitespace().take(4).collect::<Vec<_>>().join(" ");
    assert_eq!(words("1.sst"), "1.sst 0 20 MiB");
    assert_eq!(words("3.sst"), "3.sst 1 5 B");
    assert!(!listed.contains("CURRENT"), "{listed}");
    scratch.ok(&["profile", "db/.thermocline/tier-0", "--bytes", "8MiB", "--seconds", "0.001"]);
    let shown: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["--json", "tiers", "show", "db"])).unwrap();
    assert_eq!((&shown[0]["files"], &shown[0]["used_bytes"]), (&2.into(), &(40 << 20).into()));
    assert_eq!((&shown[1]["files"], &shown[1]["used_bytes"]), (&1.into(), &5.into()));
    assert!(shown[0]["useful_writers"].is_u64() && shown[1]["useful_writers"].is_null());
    let sources = [0, 1].map(|tier| shown[tier]["profile_source"].as_str().unwrap());
    assert_eq!(sources, ["measured", "unknown"]);
    let shown = text(&scratch.ok(&["tiers", "show", "db"]));
    assert!(shown.contains("useful writers") && shown.contains("90.9 %"), "{shown}");
    assert!(shown.contains(" measured "), "{shown}");
    let listed: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["--json", "tiers", "list", "db"])).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["tier"]), (&"1.sst".into(), &0.into()));
}

#[test]
fn what_is_exported_is_a_plain_directory_with_the_same_bytes() {
    let scratch = Scratch::new();
    made(&scratch);
    assert!(is_link(&scratch, "db/1.sst"));
    let said = text(&scratch.ok(&["tiers", "export", "db"]));
    assert_eq!(said, "3 files moved home; the directory needs no tiers now\n");
    assert!(!is_link(&scratch, "db/1.sst") && !is_link(&scratch, "db/3.sst"));
    assert_eq!(scratch.read("db/3.sst"), b"third");
    assert_eq!(scratch.read("db/1.sst").len(), 20 << 20);
    assert_eq!(
        scratch.ok(&["tiers", "export", "db"]),
        b"0 files moved home; the directory needs no \
        tiers now\n"
    );
}

#[test]
fn a_directory_that_leaves_its_tiers_is_an_ordinary_one_and_may_be_put_over_others() {
    let scratch = Scratch::new();
    made(&scratch);
    // As an opening leaves it that finds a link without a file.
    let lost = scratch.path("db/.thermocline/lost/9-9.gone.sst");
    std::os::unix::fs::symlink(".thermocline/tier-0/9-9.gone.sst", &lost).unwrap();
    let refused = |parts: [&str; 2]| {
        let error = scratch.fails(&["tiers", "export", "--leave", "db"], 1);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused([lost.to_str().unwrap(), " is a link whose file is gone; remove it first"]);
    assert!(is_link(&scratch, "db/3.sst"), "it is refused before a file has moved");
    fs::remove_file(&lost).unwrap();
    fs::write(&lost, b"").unwrap();
    refused([lost.to_str().unwrap(), " is no link; remove it first"]);
    fs::remove_file(&lost).unwrap();
    assert_eq!(
        scratch.ok(&["tiers", "export", "db"]),
        b"3 files moved home; the directory needs \
        no tiers now\n"
    );
    let said = text(&scratch.ok(&["tiers", "export", "--leave", "db"]));
    assert_eq!(said, "0 files moved home; the directory has left its tiers\n");
    let error = scratch.fails(&["tiers", "show", "db"], 1);
    assert!(error.contains("is not over tiers"), "{error}");
    let left = ["fast", "slow"].map(|tier| fs::read_dir(scratch.path(tier)).unwrap().count());
    assert_eq!(left, [0, 0]);
    assert!(!scratch.path("db/.thermocline").exists());
    assert_eq!(scratch.read("db/3.sst"), b"third");
    let tiers = [TierSpec {
        path: scratch.path("slow"),
        capacity: ByteSize::mib(1024),
        driver: "posix".to_owned(),
    }];
    let devices = Arc::new(SystemDevices::default());
    Names::make(devices, &scratch.path("db"), &tiers, Arc::new(FillFirst)).unwrap();
    assert!(text(&scratch.ok(&["tiers", "list", "db"])).contains("3.sst"));
}

#[test]
fn a_leaving_that_was_cut_off_is_finished_by_the_next_one() {
    let scratch = Scratch::new();
    made(&scratch);
    scratch.ok(&["tiers", "export", "db"]);
    let own = scratch.path("db/.thermocline");
    fs::rename(own.join("DATABASE"), scratch.path("kept")).unwrap();
    let error = scratch.fails(&["tiers", "export", "--leave", "db"], 1);
    assert!(error.contains("is not over tiers"), "its DATABASE is lost: {error}");
    assert!(is_link(&scratch, "db/.thermocline/tier-0"));
    fs::rename(scratch.path("kept"), own.join("CREATING")).unwrap();
    let said = text(&scratch.ok(&["tiers", "export", "--leave", "db"]));
    assert!(said.contains("has left its tiers: that was cut off before"), "{said}");
    let left = ["fast", "slow"].map(|tier| fs::read_dir(scratch.path(tier)).unwrap().count());
    assert!(!own.exists() && left == [0, 0], "{left:?}");
    assert_eq!(scratch.read("db/3.sst"), b"third");
    let error = scratch.fails(&["tiers", "export", "--leave", "db"], 1);
    assert!(error.contains("is not over tiers"), "there is nothing to finish: {error}");
}

#[test]
fn files_move_off_a_tier_of_which_too_little_is_free() {
    let scratch = Scratch::new();
    made(&scratch);
    let tier_of = |name: &str| {
        let link = fs::read_link(scratch.path(name)).unwrap();
        link.to_str().unwrap().split('/').nth(1).unwrap().to_owned()
    };
    let migrated = |fast: &str| {
        let words = ["tiers", "migrate", "db", "--tier", fast, "--tier", "slow:1GiB"];
        text(&scratch.ok(&words))
    };
    // 40 of 44 MiB are used, then of 41, then of 10.
    let said = text(&scratch.ok(&["tiers", "migrate", "db"]));
    assert_eq!(said, "0 files moved off tiers that are nearly full\n");
    assert_eq!(migrated("fast:41MiB"), "1 file moved off tiers that are nearly full\n");
    let tiers = ["db/1.sst", "db/2.sst", "db/3.sst"].map(tier_of);
    assert_eq!(tiers, ["tier-1", "tier-0", "tier-1"]);
    assert_eq!(scratch.read("db/1.sst"), vec![1; 20 << 20]);
    assert_eq!(migrated("fast:10MiB"), "1 file moved off tiers that are nearly full\n");
    assert_eq!(tier_of("db/2.sst"), "tier-1");
    assert_eq!(scratch.read("db/2.sst"), vec![1; 20 << 20]);
    let listed = fs::read_dir(fs::read_link(scratch.path("db/.thermocline/tier-0")).unwrap());
    let left = listed.unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.ends_with(".sst")).count(), 0);
    let said: serde_json::Value =
        serde_json::from_slice(&scratch.ok(&["--json", "tiers", "migrate", "db"])).unwrap();
    assert_eq!(said["files"], 0);
}

#[test]
fn a_copy_is_refused_until_it_is_given_the_tiers() {
    let scratch = Scratch::new();
    made(&scratch);
    scratch.rename("db", "moved");
    let error = scratch.fails(&["tiers", "show", "moved"], 1);
    assert!(error.contains("rehome"), "{error}");
    assert_eq!(
        scratch.ok(&["tiers", "rehome", "moved"]),
        b"3 files belong to this directory now\n"
    );
    scratch.ok(&["tiers", "show", "moved"]);
}

#[test]
fn a_directory_that_is_not_over_tiers_is_named() {
    let scratch = Scratch::new();
    for action in ["list", "show", "export", "migrate", "rehome"] {
        let error = scratch.fails(&["tiers", action, "."], 1);
        assert!(error.contains("is not over tiers"), "{error}");
    }
    scratch.fails(&["tiers", "list"], 2);
    scratch.fails(&["tiers", "fly", "."], 2);
}
