//! What is refused, and what the refusal says.

use crate::support::{Place, assert_says, devices, policy, put};
use std::fs;
use std::path::Path;
use thermocline_device::tiered_files::Home;
use thermocline_device::{Devices, ErrorKind, Names};

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(path).unwrap(), target).unwrap();
        } else if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(path, target).unwrap();
        }
    }
}

/// What a directory's own file says of it.
fn home(place: &Place, host: &str) -> Home {
    let own = place.path(host).join(".thermocline");
    Home::read(&*devices().home(&own).unwrap(), &own).unwrap()
}

/// The directory is refused for the sake of a tier, and the refusal says all that it should: the
/// tier, its path, what was found, what was expected, and the way out.
fn assert_refused(place: &Place, tier: &str, at: &Path, others: &[&str]) {
    let error = place.load("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier, "{error}");
    let whose = format!("{tier} at {}: ", at.display());
    assert_says(&error, &[&[whose.as_str(), "; "], others].concat());
}

#[test]
fn a_directory_that_is_a_copy_is_refused_until_the_tiers_are_given_to_it() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"shared");
    drop(names);
    copy(&place.path("db"), &place.path("copy"));
    let error = place.load("copy").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    let (path, copied) = (place.path("db"), place.path("copy"));
    assert_says(&error, &[path.to_str().unwrap(), copied.to_str().unwrap(), "rehome"]);
    // Another path to the same directory is no copy.
    std::os::unix::fs::symlink(&path, place.path("alias")).unwrap();
    place.load("alias").unwrap().sync_directory().unwrap();
    place.rehome("copy").unwrap();
    assert_eq!(place.load("db").unwrap_err().kind(), ErrorKind::Tier);
    assert_eq!(
        fs::read(place.load("copy").unwrap().open("a.sst").unwrap().place()).unwrap(),
        b"shared"
    );
}

#[test]
fn a_directory_opens_wherever_a_rename_was_cut_off_and_a_copy_made_then_does_not_last() {
    for is_renamed in [false, true] {
        let place = Place::new();
        let names = place.make("db", &["fast", "slow"]);
        put(&names, "a.sst", 0, b"shared");
        names.will_move_to(&place.path("new")).unwrap();
        drop(names);
        let (now, other) = if is_renamed { ("new", "db") } else { ("db", "new") };
        if is_renamed {
            fs::rename(place.path("db"), place.path("new")).unwrap();
        }
        copy(&place.path(now), &place.path(other));
        let names = place.load(now).unwrap();
        put(&names, "b.sst", 0, b"more");
        drop(names);
        assert_eq!(place.load(other).unwrap_err().kind(), ErrorKind::Tier, "{is_renamed}");
        let names = place.load(now).unwrap();
        assert_eq!(fs::read(names.open("a.sst").unwrap().place()).unwrap(), b"shared");
    }
}

#[test]
fn copies_of_tiers_are_given_to_a_copy_of_the_directory() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"first");
    drop(names);
    for name in ["db", "fast", "slow"] {
        copy(&place.path(name), &place.path(&format!("{name}2")));
    }
    let tiers = place.specs(&["fast2", "slow2"]);
    Names::rehome(devices(), &place.path("db2"), Some(&tiers), policy()).unwrap();
    let names = place.load("db2").unwrap();
    put(&names, "a.sst", 0, b"second");
    assert_eq!(fs::read(place.path("db2/a.sst")).unwrap(), b"second");
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"first");
    place.load("db").unwrap().sync_directory().unwrap();
}

#[test]
fn a_tier_that_is_missing_unmounted_or_foreign_is_refused() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"a");
    drop(names);
    let (fast, away) = (place.instance("fast"), place.path("away"));
    fs::rename(&fast, &away).unwrap();
    let way_out = "name the path where it is now";
    assert_refused(&place, "tier 0", &fast, &["missing", "no such directory", "mount it", way_out]);
    fs::create_dir(&fast).unwrap();
    let says = ["not mounted", "no file TIER", "mount the tier there", way_out];
    assert_refused(&place, "tier 0", &fast, &says);
    fs::remove_dir(&fast).unwrap();
    fs::create_dir(place.path("other")).unwrap();
    drop(place.make("other", &["slow"]));
    let slow = place.path("slow");
    let foreign = fs::read_dir(&slow).unwrap().map(|entry| entry.unwrap().path());
    let foreign = foreign
        .filter(|path| fs::read_link(place.path("db/.thermocline/tier-1")).unwrap() != *path);
    fs::rename(foreign.last().unwrap(), &fast).unwrap();
    let [own, other] = ["db", "other"].map(|host| home(&place, host).database.to_string());
    let found = format!("foreign, it belongs to database {other}, expected {own}");
    assert_refused(&place, "tier 0", &fast, &[&found, "mount or name the right directory"]);
    // Elsewhere it is found when it is named.
    fs::remove_dir_all(&fast).unwrap();
    fs::create_dir(place.path("mounted")).unwrap();
    fs::rename(&away, place.path("mounted").join(fast.file_name().unwrap())).unwrap();
    let tiers = place.specs(&["mounted", "slow"]);
    let names = Names::load(devices(), &place.path("db"), Some(&tiers), policy()).unwrap();
    names.sync_directory().unwrap();
    drop(names);
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"a");
    place.load("db").unwrap();
}

#[test]
fn tiers_that_changed_places_are_refused() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"a");
    drop(names);
    // Named in the wrong order.
    let tiers = place.specs(&["slow", "fast"]);
    let error = Names::load(devices(), &place.path("db"), Some(&tiers), policy()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    let (fast, slow) = (place.instance("fast"), place.instance("slow"));
    let found = "swapped, it is tier 1 of this database, expected tier 0";
    let way_out = ["mount each where it was", "name the tiers in their order, fastest first"];
    let whose = format!("tier 0 at {}: ", slow.display());
    assert_says(&error, &[&whose, found, way_out[0], way_out[1]]);
    // Mounted in each other's place.
    let swap = || {
        fs::rename(&fast, place.path("between")).unwrap();
        fs::rename(&slow, &fast).unwrap();
        fs::rename(place.path("between"), &slow).unwrap();
    };
    swap();
    assert_refused(&place, "tier 0", &fast, &[found, way_out[0], way_out[1]]);
    assert_eq!(place.on_tier("slow").len(), 1, "nothing was removed");
    swap();
    let names = place.load("db").unwrap();
    names.sync_directory().unwrap();
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"a");
}

#[test]
fn a_tier_that_is_older_than_the_rest_is_refused() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"a");
    drop(names);
    copy(&place.instance("fast"), &place.path("older"));
    let older = home(&place, "db").generation;
    let names = place.load("db").unwrap();
    put(&names, "a.sst", 0, b"b");
    drop(names);
    let fast = place.instance("fast");
    fs::remove_dir_all(&fast).unwrap();
    fs::rename(place.path("older"), &fast).unwrap();
    let newest = home(&place, "db").generation;
    let found = format!("an older clone, it has generation {older}, expected {newest}");
    let way_out = "mount the disk that was used last, or restore a checkpoint";
    assert_refused(&place, "tier 0", &fast, &[&found, way_out]);
}

#[test]
fn nothing_is_made_below_a_path_that_is_not_there() {
    let place = Place::new();
    let tiers = place.specs(&["fast", "unmounted"]);
    let make = || Names::make(devices(), &place.path("db"), &tiers, policy());
    let error = make().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    assert_says(&error, &["tier 1 at", "unmounted", "missing"]);
    assert!(!place.path("unmounted").exists() && !place.path("db/.thermocline").exists());
    for wrong in [vec![], place.specs(&["fast", "fast"])] {
        let error = Names::make(devices(), &place.path("db"), &wrong, policy()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    fs::create_dir(place.path("unmounted")).unwrap();
    drop(make().unwrap());
    assert_eq!(make().unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(Names::exists(&*devices(), &place.path("db")).unwrap());
    assert!(!Names::exists(&*devices(), &place.path("fast")).unwrap());
    let error = place.load("fast").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_says(&error, &["is not over tiers"]);
}

#[test]
fn a_link_that_was_copied_is_refused_with_both_names() {
    let place = Place::new();
    let names = place.make("db", &["fast"]);
    put(&names, "a.sst", 0, b"a");
    drop(names);
    let text = fs::read_link(place.path("db/a.sst")).unwrap();
    std::os::unix::fs::symlink(text, place.path("db/b.sst")).unwrap();
    let error = place.load("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_says(&error, &["2-1.a.sst", "a link was copied"]);
}

#[test]
fn an_edited_home_file_is_refused() {
    let place = Place::new();
    drop(place.make("db", &["fast"]));
    let path = place.instance("fast").join("HOME");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("path", "pfad")).unwrap();
    let error = place.load("db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_says(&error, &["HOME", "edited or damaged", "rehome"]);
    place.rehome("db").unwrap();
    place.load("db").unwrap();
}
