//! Moves, overflow, adoption and export; what an opening finds left.

use crate::support::{Place, class, devices, link_of, listed, policy, put};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use thermocline_device::drivers::PosixDriver;
use thermocline_device::migration_queue::Thresholds;
use thermocline_device::names::NameSettings;
use thermocline_device::profile::Point;
use thermocline_device::{Curve, ErrorKind, Names, TierProfile, TierSpec};
use thermocline_foundation::{ByteSize, SystemClock};

#[test]
fn a_table_whose_level_changes_moves_and_its_readers_end_where_they_began() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let file = put(&names, "a.sst", 0, b"table");
    let reader = fs::File::open(file.place()).unwrap();
    assert!(!names.set_level("a.sst", 0), "that is known");
    assert!(names.set_level("a.sst", 6));
    assert!(!names.set_level("absent.sst", 6));
    assert!(names.move_next().unwrap());
    assert!(!names.move_next().unwrap());
    assert_eq!(file.epoch().load(Acquire), 1);
    assert!(file.place().starts_with(place.path("slow")), "{:?}", file.place());
    assert!(place.on_tier("fast").is_empty());
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"table");
    assert_eq!(std::io::read_to_string(reader).unwrap(), "table");
    // A level that asks for the same tier moves nothing.
    names.set_level("a.sst", 5);
    assert!(names.move_next().unwrap());
    assert_eq!(file.epoch().load(Acquire), 1);
    // One that was deleted meanwhile is no error.
    names.set_level("a.sst", 0);
    names.delete("a.sst").unwrap();
    assert!(names.move_next().unwrap());
    assert!(place.on_tier("fast").is_empty() && place.on_tier("slow").is_empty());
}

#[test]
fn a_move_that_failed_is_due_still() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let file = put(&names, "1.sst", 0, b"table");
    let (there, aside) = (file.place(), place.path("aside"));
    fs::rename(&there, &aside).unwrap();
    names.set_level("1.sst", 6);
    assert_eq!(names.move_next().unwrap_err().kind(), ErrorKind::NotFound);
    assert!(names.has_moves(), "the next round tries again");
    fs::rename(&aside, &there).unwrap();
    assert!(names.move_next().unwrap());
    assert!(file.place().starts_with(place.path("slow")), "{:?}", file.place());
    assert_eq!(fs::read(file.place()).unwrap(), b"table");
}

#[test]
fn a_file_on_a_full_device_goes_on_elsewhere_with_the_bytes_that_its_host_knows() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let file = names.create("a.log", class("a.log", 0)).unwrap();
    fs::write(file.place(), b"known, and half of what failed").unwrap();
    file.continue_elsewhere(5).unwrap();
    assert_eq!(fs::read(file.place()).unwrap(), b"known");
    assert!(file.place().starts_with(place.path("slow")));
    assert_eq!(file.epoch().load(Acquire), 1);
    assert!(place.on_tier("fast").is_empty());
    names.rename("a.log", "b.log").unwrap();
    assert_eq!(fs::read(place.path("db/b.log")).unwrap(), b"known");
    file.synced().unwrap();
}

#[test]
fn a_host_hears_of_a_full_device_when_every_tier_refused() {
    let place = Place::new();
    let names = place.make("db", &["fast"]);
    let file = names.create("a.log", class("a.log", 0)).unwrap();
    fs::write(file.place(), b"bytes").unwrap();
    assert_eq!(file.continue_elsewhere(5).unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert_eq!(fs::read(place.path("db/a.log")).unwrap(), b"bytes");
    let small = [place.spec("fast", ByteSize::kib(4)), place.spec("slow", ByteSize::kib(4))];
    let devices = devices();
    fs::create_dir(place.path("small")).unwrap();
    let names = Names::make(devices, &place.path("small"), &small, policy()).unwrap();
    // Each is more than a tier may have, which is known while it is being written.
    let writers = [("1.sst", 0), ("2.sst", 3)].map(|(name, level)| {
        let writer = names.create(name, class(name, level)).unwrap();
        fs::write(writer.place(), [7; 5000]).unwrap();
        writer
    });
    let error = names.create("a.sst", class("a.sst", 0)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert_eq!(listed(&place.path("small")), [".thermocline", "1.sst", "2.sst"]);
    drop(writers);
}

#[test]
fn plain_files_are_adopted_and_exported_again() {
    let place = Place::new();
    fs::write(place.path("db/1.sst"), b"one").unwrap();
    fs::write(place.path("db/2.log"), b"two").unwrap();
    fs::write(place.path("db/CURRENT"), b"three").unwrap();
    let names = place.make("db", &["fast", "slow"]);
    assert_eq!(names.adopt().unwrap(), 1, "a log may be written to");
    assert_eq!(link_of(&place.path("db/1.sst")), ".thermocline/tier-1/2-1.1.sst");
    put(&names, "3.sst", 0, b"new");
    names.rename("1.sst", "4.sst").unwrap();
    let expected = [("2.log", "two"), ("3.sst", "new"), ("4.sst", "one"), ("CURRENT", "three")];
    assert_eq!(names.export().unwrap(), 2);
    assert_eq!(names.export().unwrap(), 0);
    for (name, bytes) in expected {
        let path = place.path("db").join(name);
        assert!(!path.is_symlink(), "{name}");
        assert_eq!(fs::read_to_string(path).unwrap(), bytes);
    }
    assert!(place.on_tier("fast").is_empty() && place.on_tier("slow").is_empty());
    assert_eq!(listed(&place.path("db")).len(), 5);
}

/// A host was killed while it made a file: no name leads to it, and none is to move.
#[test]
fn an_export_without_files_to_move_removes_what_a_killed_process_left() {
    let place = Place::new();
    put(&place.make("db", &["fast", "slow"]), "1.sst", 0, b"one");
    fs::remove_file(place.path("db/1.sst")).unwrap();
    assert_eq!(place.on_tier("fast").len(), 1);
    assert_eq!(place.load("db").unwrap().export().unwrap(), 0);
    assert!(place.on_tier("fast").is_empty());
}

#[test]
fn a_hosts_directory_can_be_a_tier_whose_files_are_plain() {
    let place = Place::new();
    let names = place.make("db", &["fast", "db"]);
    let file = put(&names, "a.sst", 6, b"cold");
    assert_eq!(file.place(), place.path("db/a.sst"));
    assert!(!place.path("db/a.sst").is_symlink());
    names.set_level("a.sst", 0);
    assert!(names.move_next().unwrap());
    assert!(place.path("db/a.sst").is_symlink());
    names.set_level("a.sst", 6);
    assert!(names.move_next().unwrap());
    assert!(!place.path("db/a.sst").is_symlink());
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"cold");
    assert!(place.on_tier("fast").is_empty());
    // The directory is moved as a whole: only what is on other tiers must be told.
    drop((names, file));
    fs::rename(place.path("db"), place.path("moved")).unwrap();
    assert_eq!(place.load("moved").unwrap_err().kind(), ErrorKind::Tier);
    place.rehome("moved").unwrap();
    let names = place.load("moved").unwrap();
    put(&names, "b.sst", 0, b"hot");
    assert_eq!(fs::read(place.path("moved/b.sst")).unwrap(), b"hot");
}

#[test]
fn an_opening_removes_what_no_link_names_and_keeps_links_without_a_file() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "kept.sst", 0, b"kept");
    put(&names, "deleted.sst", 0, b"by a host without this code");
    let lost = put(&names, "lost.sst", 0, b"gone");
    drop(names);
    fs::remove_file(place.path("db/deleted.sst")).unwrap();
    fs::remove_file(lost.place()).unwrap();
    fs::write(place.instance("fast").join("NOTE"), b"a user's").unwrap();
    std::os::unix::fs::symlink("elsewhere", place.path("db/foreign")).unwrap();
    std::os::unix::fs::symlink("x", place.path("db/.thermocline-new.9-9")).unwrap();
    drop(lost);
    let names = place.load("db").unwrap();
    assert_eq!(place.on_tier("fast").len(), 3, "reading changes nothing");
    names.sync_directory().unwrap();
    assert_eq!(place.on_tier("fast"), ["2-1.kept.sst", "NOTE"]);
    assert_eq!(listed(&place.path("db")), [".thermocline", "foreign", "kept.sst"]);
    let lost = place.path("db/.thermocline/lost");
    assert_eq!(listed(&lost), ["2-3.lost.sst"]);
    assert_eq!(link_of(&lost.join("2-3.lost.sst")), ".thermocline/tier-0/2-3.lost.sst");
    assert_eq!(names.counts().lost_links, 1);
}

/// A table of so many MiB, as its host would make it, without bytes.
fn table(names: &Names, name: &str, level: u8, mib: u64) {
    let file = names.create(name, class(name, level)).unwrap();
    let opened = fs::OpenOptions::new().write(true).open(file.place()).unwrap();
    opened.set_len(mib << 20).unwrap();
    file.synced().unwrap();
}

fn narrow(place: &Place) -> [TierSpec; 2] {
    [place.spec("fast", ByteSize::mib(100)), place.spec("slow", ByteSize::gib(1))]
}

#[test]
fn the_coldest_table_leaves_a_tier_that_is_nearly_full_and_no_more_than_needed() {
    let place = Place::new();
    let names = Names::make(devices(), &place.path("db"), &narrow(&place), policy()).unwrap();
    for (name, level) in [("1.sst", 2), ("2.sst", 1), ("3.sst", 0), ("4.sst", 0)] {
        table(&names, name, level, 24);
    }
    assert_eq!(names.move_threads(), 16, "no writer is known");
    names.open("1.sst").unwrap().was_read();
    // Of level 2 and just read: 4. Of level 1 and made two epochs ago: 4. Time decides.
    table(&names, "5.sst", 6, 1);
    names.open("1.sst").unwrap().was_read();
    assert!(names.move_next().unwrap());
    assert!(!names.move_next().unwrap());
    assert_eq!(names.move_threads(), 0);
    let on_fast = place.on_tier("fast");
    assert_eq!(on_fast.len(), 3);
    assert!(!on_fast.iter().any(|name| name.ends_with(".2.sst")), "{on_fast:?}");
    assert_eq!(fs::metadata(place.path("db/2.sst")).unwrap().len(), 24 << 20);
}

#[test]
fn moves_keep_to_what_the_writers_leave_of_a_device_unless_one_must_go() {
    let place = Place::new();
    drop(Names::make(devices(), &place.path("db"), &narrow(&place), policy()).unwrap());
    let points = vec![Point { workers: 2, bytes_per_s: 9 }];
    let profile = TierProfile { write: Curve::new(points), ..TierProfile::default() };
    for tier in ["fast", "slow"] {
        profile.write(&PosixDriver::open(&place.instance(tier)).unwrap()).unwrap();
    }
    let names = place.load("db").unwrap();
    names.measure_load(Arc::new(SystemClock::new()));
    table(&names, "1.sst", 0, 50);
    assert_eq!(names.move_threads(), 0, "nothing is to move");
    table(&names, "2.sst", 0, 46);
    assert_eq!(names.move_threads(), 2, "less than 5 % are free");
    let writers = ["8.sst", "9.sst"].map(|name| names.create(name, class(name, 6)).unwrap());
    assert_eq!(names.move_threads(), 0, "both workers of the slow device are busy");
    names.set_level("9.sst", 5);
    assert_eq!(names.move_threads(), 0, "nor is there any for a level that changed");
    table(&names, "3.sst", 0, 3);
    assert_eq!(names.move_threads(), 1, "less than 2 % are free: one must go");
    drop(writers);
    assert_eq!(names.move_threads(), 2);
    while names.move_next().unwrap() {}
    let on_slow = place.on_tier("slow");
    assert!(on_slow.iter().any(|name| name.ends_with(".1.sst")), "{on_slow:?}");
    assert_eq!(names.move_threads(), 0);
}

#[test]
fn a_table_is_not_raised_to_a_tier_that_it_would_have_to_leave() {
    let place = Place::new();
    let names = Names::make(devices(), &place.path("db"), &narrow(&place), policy()).unwrap();
    let thresholds = Thresholds { upper_percent: 50, lower_percent: 40 };
    names.go_by(NameSettings { thresholds, ..NameSettings::default() });
    table(&names, "1.sst", 0, 24);
    for (name, mib) in [("2.sst", 27), ("3.sst", 26)] {
        table(&names, name, 5, mib);
        names.set_level(name, 1);
        while names.move_next().unwrap() {}
    }
    let on_fast = place.on_tier("fast");
    assert!(on_fast.len() == 2 && on_fast[1].ends_with(".3.sst"), "{on_fast:?}");
    let counts = names.counts();
    assert_eq!((counts.moved_by_level, counts.moved_for_room), (1, 0));
}

#[test]
fn a_directory_does_not_leave_tiers_with_a_file_on_them_that_would_have_no_owner() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"table");
    let left = place.instance("fast").join("9-9.left.sst");
    fs::write(&left, b"left").unwrap();
    let error = names.leave().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains(left.to_str().unwrap()), "{error}");
    let names = place.load("db").unwrap();
    assert_eq!(names.leave().unwrap(), 0, "its files are home, and the opening removed the other");
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"table");
    assert_eq!(listed(&place.path("fast")), [""; 0]);
}
