//! The calls of a host, one by one.

use crate::support::{Place, class, link_of, listed, put};
use std::fs;
use std::path::Path;
use thermocline_device::{ErrorKind, FileClass};

#[test]
fn a_file_on_a_tier_is_a_relative_link_that_any_program_follows() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "000012.sst", 0, b"upper");
    put(&names, "000013.sst", 6, b"lower");
    put(&names, "000014.log", 0, b"log");
    let link = |name: &str| link_of(&place.path("db").join(name));
    assert_eq!(link("000012.sst"), ".thermocline/tier-0/2-1.000012.sst");
    assert_eq!(link("000013.sst"), ".thermocline/tier-1/2-2.000013.sst");
    assert_eq!(link("000014.log"), ".thermocline/tier-0/2-3.000014.log");
    assert_eq!(Path::new(&link(".thermocline/tier-0")), place.instance("fast"));
    assert_eq!(fs::read(place.path("db/000012.sst")).unwrap(), b"upper");
    assert_eq!(fs::read(place.path("db/000013.sst")).unwrap(), b"lower");
    assert_eq!(place.on_tier("slow"), ["2-2.000013.sst"]);
    // The next opening gives other serials.
    drop(names);
    let names = place.load("db").unwrap();
    assert_eq!(fs::read(names.open("000012.sst").unwrap().place()).unwrap(), b"upper");
    put(&names, "000015.sst", 0, b"more");
    assert_eq!(link("000015.sst"), ".thermocline/tier-0/3-1.000015.sst");
}

#[test]
fn what_is_no_log_table_or_blob_stays_a_plain_file() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    fs::write(place.path("db/CURRENT"), b"by the host").unwrap();
    let file = names.create("MANIFEST-000001", FileClass::of_name("MANIFEST-000001")).unwrap();
    assert_eq!(file.place(), place.path("db/MANIFEST-000001"));
    fs::write(file.place(), b"edits").unwrap();
    file.synced().unwrap();
    assert_eq!(names.open("CURRENT").unwrap().place(), place.path("db/CURRENT"));
    assert_eq!(names.open("ABSENT").unwrap_err().kind(), ErrorKind::NotFound);
    put(&names, "1.sst", 0, b"table");
    let mut seen = names.list().unwrap();
    seen.sort_by(|a, b| a.name.cmp(&b.name));
    let seen = seen.iter().map(|entry| (entry.name.as_str(), entry.len, entry.is_link));
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen, [("1.sst", 5, false), ("CURRENT", 11, false), ("MANIFEST-000001", 5, false)]);
}

#[test]
fn reads_are_told_one_by_one_or_several_at_once() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let (upper, lower) = (put(&names, "a.sst", 0, b"upper"), put(&names, "b.sst", 6, b"lower"));
    upper.was_read();
    upper.was_read_times(4);
    lower.was_read_times(2);
    let reads: Vec<_> = names.files().iter().map(|file| file.reads).collect();
    assert_eq!(reads, [5, 2]);
    let served: Vec<_> = names.tiers().iter().map(|tier| tier.reads).collect();
    assert_eq!(served, [5, 2]);
}

#[test]
fn direct_reads_suit_the_devices_of_all_tiers() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let (upper, lower) = (put(&names, "a.sst", 0, b"upper"), put(&names, "b.sst", 6, b"lower"));
    let unit = upper.direct_unit();
    assert!(unit.is_power_of_two() && unit >= 512, "{unit}");
    assert_eq!(lower.direct_unit(), unit);
}

#[test]
fn a_rename_takes_the_link_and_what_it_replaces_goes_when_that_is_durable() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"old");
    let file = put(&names, "b.sst", 6, b"new");
    names.rename("b.sst", "a.sst").unwrap();
    assert_eq!(file.name(), "a.sst");
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"new");
    assert_eq!(place.on_tier("fast").len(), 1, "the old file is there until the name is durable");
    file.synced().unwrap();
    assert!(place.on_tier("fast").is_empty());
    assert_eq!(listed(&place.path("db")), [".thermocline", "a.sst"]);
    assert_eq!(names.rename("b.sst", "c.sst").unwrap_err().kind(), ErrorKind::NotFound);
    names.rename("a.sst", "a.sst").unwrap();
}

#[test]
fn a_name_that_is_created_again_leads_to_an_empty_file_and_readers_keep_the_old_one() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    let old = put(&names, "a.log", 0, b"old");
    let reader = fs::File::open(old.place()).unwrap();
    let new = names.create("a.log", class("a.log", 0)).unwrap();
    assert_ne!(old.place(), new.place());
    assert_eq!(fs::read(new.place()).unwrap(), b"");
    names.sync_directory().unwrap();
    assert_eq!(place.on_tier("fast").len(), 1);
    assert_eq!(std::io::read_to_string(reader).unwrap(), "old");
}

#[test]
fn deleting_takes_the_link_and_the_file_and_truncating_cuts_it() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"abcdef");
    names.truncate("a.sst", 2).unwrap();
    assert_eq!(fs::read(place.path("db/a.sst")).unwrap(), b"ab");
    names.delete("a.sst").unwrap();
    assert!(place.on_tier("fast").is_empty());
    assert_eq!(listed(&place.path("db")), [".thermocline"]);
    assert_eq!(names.delete("a.sst").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(names.truncate("a.sst", 0).unwrap_err().kind(), ErrorKind::NotFound);
    put(&names, "a.sst", 0, b"again");
}

#[test]
fn a_call_that_changed_nothing_does_not_end_changes() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "1.sst", 0, b"table");
    fs::create_dir(place.path("db/archive")).unwrap();
    assert_eq!(names.delete("archive").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(names.rename("1.sst", "archive").unwrap_err().kind(), ErrorKind::Invalid);
    let long = "x".repeat(300);
    assert_eq!(names.rename("1.sst", &long).unwrap_err().kind(), ErrorKind::Invalid);
    put(&names, "2.sst", 0, b"more");
    assert_eq!(fs::read(place.path("db/1.sst")).unwrap(), b"table");
    names.delete("1.sst").unwrap();
}

#[test]
fn names_of_this_software_are_no_hosts() {
    let place = Place::new();
    let names = place.make("db", &["fast"]);
    put(&names, "a.sst", 0, b"a");
    for name in [".thermocline", ".thermocline-new.1-1"] {
        let errors = [
            names.create(name, class(name, 0)).unwrap_err(),
            names.open(name).unwrap_err(),
            names.rename("a.sst", name).unwrap_err(),
            names.rename(name, "b.sst").unwrap_err(),
            names.delete(name).unwrap_err(),
            names.link("a.sst", &names, name).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind() == ErrorKind::Invalid), "{errors:?}");
    }
}

#[test]
fn a_hard_link_has_a_tier_file_of_its_own() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"shared");
    names.link("a.sst", &names, "b.sst").unwrap();
    assert_eq!(names.link("a.sst", &names, "b.sst").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(place.on_tier("fast").len(), 2);
    names.delete("a.sst").unwrap();
    assert_eq!(fs::read(place.path("db/b.sst")).unwrap(), b"shared");
}

#[test]
fn links_and_renames_into_another_directory_lie_on_its_own_tiers() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"upper");
    put(&names, "b.sst", 6, b"lower");
    fs::create_dir(place.path("other")).unwrap();
    let other = place.make("other", &["fast", "slow"]);
    names.link("a.sst", &other, "linked.sst").unwrap();
    put(&other, "moved.sst", 0, b"replaced");
    names.rename_into("b.sst", &other, "moved.sst").unwrap();
    assert_eq!(listed(&place.path("db")), [".thermocline", "a.sst"]);
    names.delete("a.sst").unwrap();
    drop((names, other));
    let other = place.load("other").unwrap();
    other.sync_directory().unwrap();
    assert_eq!(fs::read(place.path("other/linked.sst")).unwrap(), b"upper");
    assert_eq!(fs::read(place.path("other/moved.sst")).unwrap(), b"lower");
    assert!(link_of(&place.path("other/linked.sst")).ends_with(".linked.sst"));
}

#[test]
fn tools_that_read_work_beside_a_writer_and_see_what_it_changes() {
    let place = Place::new();
    let names = place.make("db", &["fast", "slow"]);
    put(&names, "a.sst", 0, b"a");
    let reader = place.load("db").unwrap();
    put(&names, "b.sst", 0, b"b");
    names.delete("a.sst").unwrap();
    assert_eq!(fs::read(reader.open("b.sst").unwrap().place()).unwrap(), b"b");
    assert_eq!(reader.open("a.sst").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(reader.list().unwrap().len(), 1);
    for refused in
        [reader.delete("b.sst"), reader.sync_directory(), reader.rename("b.sst", "c.sst")]
    {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Locked);
    }
    drop(names);
    reader.delete("b.sst").unwrap();
}
