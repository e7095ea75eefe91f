//! Files that are being written stay where they are, and are read nowhere else.

use crate::support::{Place, SteppedClock, class, devices, policy, put};
use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use thermocline_device::{ErrorKind, HostUse, Names, SystemDevices, TierIndex};
use thermocline_foundation::{ByteSize, Clock};

/// As a host opens a file to write on.
fn append(path: &std::path::Path) -> fs::File {
    fs::OpenOptions::new().append(true).open(path).unwrap()
}

#[test]
fn a_table_that_is_being_written_moves_when_that_has_ended() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let writer = names.create("a.sst", class("a.sst", 0)).unwrap();
    let mut opened = append(&writer.place());
    opened.write_all(b"first, ").unwrap();
    opened.sync_all().unwrap();
    writer.synced().unwrap();
    names.set_level("a.sst", 6);
    while names.move_next().unwrap() {}
    assert_eq!(names.adopt().unwrap(), 0);
    let refused = names.export().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    assert!(writer.place().starts_with(place.path("fast")));
    opened.write_all(b"then").unwrap();
    // Another one that writes it.
    let again = names.open("a.sst").unwrap().to_write().unwrap();
    drop(writer);
    while names.move_next().unwrap() {}
    append(&again.place()).write_all(b", at last").unwrap();
    drop(again);
    assert!(names.move_next().unwrap());
    assert!(place.on_tier("fast").is_empty());
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"first, then, at last");
    assert_eq!(names.counts().moved_by_level, 1);
}

/// Home's files are written past any driver, but as slowly as its tier says.
#[test]
fn what_a_host_does_is_booked_where_its_tier_is_emulated() {
    for emulated in ["fast", "db"] {
        let place = Place::new();
        let mut tiers = [place.spec("fast", ByteSize::gib(1)), place.spec("db", ByteSize::gib(1))];
        let slow = tiers.iter_mut().find(|tier| tier.path == place.path(emulated)).unwrap();
        slow.driver = "emulated-tlc-nvme".to_owned();
        let names = Names::make(devices(), &place.path("db"), &tiers, policy()).unwrap();
        for (name, level, tier) in [("a.sst", 0, "fast"), ("b.sst", 6, "db")] {
            let writer = names.create(name, class(name, level)).unwrap();
            assert!(writer.place().starts_with(place.path(tier)), "{}", writer.place().display());
            let booked = writer.book(HostUse::Sync);
            assert_eq!(booked.is_some(), tier == emulated, "{name}: {booked:?}");
            writer.wait_until(booked.unwrap_or(0));
        }
    }
}

/// A call that was booked before the move of its file is waited for after it.
#[test]
fn a_booked_time_is_waited_for_also_after_a_move() {
    for to in ["posix", "emulated-dcpmm"] {
        let (place, clock) = (Place::new(), Arc::new(SteppedClock::default()));
        let mut tiers = place.specs(&["fast", "slow"]);
        (tiers[0].driver, tiers[1].driver) = ("emulated-tlc-nvme".to_owned(), to.to_owned());
        let devices = Arc::new(SystemDevices::new(clock.clone()));
        let names = Names::make(devices, &place.path("db"), &tiers, policy()).unwrap();
        let file = put(&names, "a.sst", 0, b"table");
        // Longer than the move takes.
        let due_ns = file.book(HostUse::Write { offset: 0, len: 1 << 40 }).unwrap();
        names.set_level("a.sst", 6);
        assert!(names.move_next().unwrap() && file.place().starts_with(place.path("slow")));
        assert!(clock.now_ns() < due_ns, "{to}");
        file.wait_until(due_ns);
        assert_eq!(clock.now_ns(), due_ns, "{to}");
    }
}

#[test]
fn a_full_tier_is_left_by_tables_that_are_whole() {
    let place = Place::new();
    let tiers = [place.spec("fast", ByteSize::mib(100)), place.spec("slow", ByteSize::gib(1))];
    let names = Names::make(devices(), &place.path("db"), &tiers, policy()).unwrap();
    let writers = ["1.sst", "2.sst"].map(|name| names.create(name, class(name, 2)).unwrap());
    for writer in &writers {
        append(&writer.place()).set_len(50 << 20).unwrap();
        writer.synced().unwrap();
    }
    assert!(!names.has_moves() && names.move_threads() == 0);
    drop(writers);
    assert!(names.move_next().unwrap());
    assert_eq!((place.on_tier("fast").len(), place.on_tier("slow").len()), (1, 1));
}

#[test]
fn a_copy_goes_when_its_file_is_written_again_or_cut() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let file = put(&names, "a.sst", 6, b"once");
    let is_copied = || file.place_to_read() != file.place();
    let read = || fs::read_to_string(file.place_to_read()).unwrap();
    assert!(names.keep_copy("a.sst", TierIndex(0)).unwrap());
    assert!(is_copied());
    let writer = file.to_write().unwrap();
    assert!(!is_copied() && file.epoch().load(Acquire) == 2);
    append(&writer.place()).write_all(b" more").unwrap();
    assert!(!names.keep_copy("a.sst", TierIndex(0)).unwrap(), "it is being written");
    drop(writer);
    assert!(names.keep_copy("a.sst", TierIndex(0)).unwrap());
    assert!(is_copied());
    assert_eq!(read(), "once more");
    names.truncate("a.sst", 2).unwrap();
    assert!(!is_copied());
    assert_eq!(read(), "on");
    assert!(place.on_tier("fast").is_empty());
    names.delete("a.sst").unwrap();
    assert_eq!(file.to_write().unwrap_err().kind(), ErrorKind::NotFound);
}

/// A host that appends in one piece what fits on no device hears of it, and may try again.
#[test]
fn a_file_goes_to_each_tier_once_for_the_same_bytes() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow", "db"]);
    let table = names.create("1.sst", class("1.sst", 0)).unwrap();
    let rooms = || ["fast", "slow"].map(|tier| place.on_tier(tier).len());
    for _ in 0..2 {
        let first = rooms();
        table.continue_elsewhere(0).unwrap();
        assert_ne!(rooms(), first);
        table.continue_elsewhere(0).unwrap();
        let error = table.continue_elsewhere(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert!(error.to_string().contains("every tier of"), "{error}");
    }
    // Once some bytes were taken, tiers are asked anew for those behind them.
    let at = rooms();
    append(&table.place()).write_all(b"one").unwrap();
    table.continue_elsewhere(3).unwrap();
    assert_ne!(rooms(), at);
    assert_eq!(fs::read(table.place()).unwrap(), b"one");
}

/// A backup has many short logs, each of which was expected to be long.
#[test]
fn a_log_that_is_closed_takes_what_it_has() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let used = || names.tiers().iter().map(|tier| tier.used_bytes).sum::<u64>();
    let log = names.create("1.log", class("1.log", 0)).unwrap();
    fs::write(log.place(), b"one").unwrap();
    assert_eq!(used(), 64 << 20, "it may become long");
    drop(log);
    assert_eq!(used(), 3);
}

/// A small fast tier has room for a host's first log and its first tables, and for a cache.
#[test]
fn a_first_file_is_expected_to_take_an_eighth_of_a_small_fast_tier() {
    for (tier_mib, file_mib) in [(8, 1), (80, 10), (512, 64), (1024, 64)] {
        let place = Place::new();
        let fast = place.spec("fast", ByteSize::mib(tier_mib));
        let tiers = [fast, place.spec("slow", ByteSize::gib(1))];
        let names = Names::make(devices(), &place.path("db"), &tiers, policy()).unwrap();
        let writers = ["1.log", "2.log"].map(|name| names.create(name, class(name, 0)).unwrap());
        assert_eq!(names.tiers()[0].used_bytes, (2 * file_mib) << 20, "of {tier_mib} MiB");
        drop(writers);
    }
}

/// A restore writes many files at once, before any is as long as it was expected to be.
#[test]
fn files_that_are_expected_to_be_long_are_not_refused_for_that() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let capacity: u64 = names.tiers().iter().map(|tier| tier.capacity.0).sum();
    let files = 2 + capacity / (64 << 20);
    let writers: Vec<_> = (0..files)
        .map(|number| {
            let name = format!("{number}.log");
            names.create(&name, class(&name, 0)).unwrap()
        })
        .collect();
    let expected: u64 = names.tiers().iter().map(|tier| tier.used_bytes).sum();
    assert!(expected > capacity, "{expected} of {capacity}");
    drop(writers);
}
