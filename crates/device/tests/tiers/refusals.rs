//! Every way in which the directories can be the wrong ones, and what the refusal says.

use crate::golden::bytes_of;
use crate::support::*;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::identity::Identity;
use thermocline_device::tiered_files::Home;
use thermocline_device::{
    Buffer, Devices, Driver, Error, ErrorKind, MemoryDevices, Operation, TieredFiles,
};

/// A copy of all files: a disk imaged byte by byte.
fn image(devices: &MemoryDevices, path: &std::path::Path) -> MemoryDriver {
    let from = devices.directory(path).unwrap();
    let to = MemoryDriver::new();
    for entry in from.list().unwrap() {
        let file = to.create(&entry.name).unwrap();
        let buffer = Buffer::copy_of(&bytes_of(&from, &entry.name));
        to.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
    }
    to
}

/// A closed database on two tiers with a table on each.
fn database() -> MemoryDevices {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    add(&files, TABLE, 1000).unwrap();
    let slow = add(&files, TABLE, 1000).unwrap();
    files.migrate(slow, thermocline_device::TierIndex(1), &mut |_| {}).unwrap();
    files.close(&[]).unwrap();
    devices
}

fn refused(devices: &MemoryDevices, kind: ErrorKind, says: &[&str]) {
    let before: Vec<_> = [home(), tier_path(0), tier_path(1)]
        .iter()
        .map(|path| devices.directory(path).map(|driver| driver.list().unwrap()))
        .collect();
    let error: Error = open(devices).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_says(&error, says);
    let after: Vec<_> = [home(), tier_path(0), tier_path(1)]
        .iter()
        .map(|path| devices.directory(path).map(|driver| driver.list().unwrap()))
        .collect();
    assert_eq!(before, after, "a refused opening changes nothing");
}

#[test]
fn missing_tier_is_refused() {
    let devices = database();
    devices.unmount(&tier_path(1));
    refused(&devices, ErrorKind::Tier, &["tier 1 at /mnt/1", "missing", "mount it"]);
}

#[test]
fn unmounted_tier_is_refused_and_nothing_is_created_there() {
    let devices = database();
    devices.mount(&tier_path(1), MemoryDriver::new());
    refused(&devices, ErrorKind::Tier, &["tier 1 at /mnt/1", "not mounted", "no file TIER"]);
    assert_eq!(names(&devices, &tier_path(1)), [""; 0]);
}

#[test]
fn foreign_tier_is_refused_with_both_identities() {
    let (devices, other) = (database(), database());
    let id = |devices: &MemoryDevices| {
        let driver = devices.directory(&home()).unwrap();
        Home::read(&driver, &home()).unwrap().database.to_string()
    };
    devices.mount(&tier_path(1), other.directory(&tier_path(1)).unwrap());
    let says = ["tier 1 at /mnt/1", "foreign", &id(&devices), &id(&other)];
    refused(&devices, ErrorKind::Tier, &says);
}

#[test]
fn tier_of_a_checkpoint_is_foreign() {
    let devices = database();
    let files = open(&devices).unwrap();
    let target = std::path::Path::new("/copy");
    files.create_checkpoint(&devices, target, &[], &[], &|_, _, _| {}).unwrap().close(&[]).unwrap();
    files.close(&[]).unwrap();
    drop(files);
    devices.mount(&tier_path(0), devices.directory(&target.join("tier-0")).unwrap());
    refused(&devices, ErrorKind::Tier, &["tier 0 at /mnt/0", "another copy of this database"]);
}

#[test]
fn swapped_tiers_are_refused() {
    let devices = database();
    let first = devices.directory(&tier_path(0)).unwrap();
    devices.mount(&tier_path(0), devices.directory(&tier_path(1)).unwrap());
    devices.mount(&tier_path(1), first);
    refused(&devices, ErrorKind::Tier, &["tier 0 at /mnt/0", "swapped", "it is tier 1"]);
}

#[test]
fn older_clone_of_any_directory_is_refused() {
    for (path, says) in [
        (home(), ["newer than /db/DATABASE", "generation 4", "expected 2"]),
        (tier_path(0), ["tier 0 at /mnt/0", "older clone", "generation 2"]),
        (tier_path(1), ["tier 1 at /mnt/1", "older clone", "expected 4"]),
    ] {
        let devices = database();
        let clone = image(&devices, &path);
        open(&devices).unwrap().close(&[]).unwrap();
        devices.mount(&path, clone);
        refused(&devices, ErrorKind::Tier, &says);
    }
}

/// Clones made while the database was in use have its generation; their files give them away.
#[test]
fn clone_of_the_same_generation_is_refused_by_its_files() {
    let devices = database();
    let files = open(&devices).unwrap();
    let (fast, slow) = (image(&devices, &tier_path(0)), image(&devices, &tier_path(1)));
    let number = add(&files, TABLE, 1000).unwrap();
    files.migrate(number, thermocline_device::TierIndex(1), &mut |_| {}).unwrap();
    drop(files);
    let current = devices.directory(&tier_path(1)).unwrap();
    devices.mount(&tier_path(1), slow);
    refused(&devices, ErrorKind::Tier, &["tier 1 at /mnt/1", "older than the file map", "missing"]);
    devices.mount(&tier_path(1), current);
    devices.mount(&tier_path(0), fast);
    refused(&devices, ErrorKind::Tier, &["tier 0 at /mnt/0", "older clone", "tier 1, /mnt/1"]);
}

#[test]
fn shortened_table_is_refused() {
    let devices = database();
    let driver = devices.directory(&tier_path(1)).unwrap();
    let name = names(&devices, &tier_path(1)).into_iter().find(|n| n.ends_with(".table")).unwrap();
    driver.open(&name).unwrap().truncate(999).unwrap();
    refused(&devices, ErrorKind::Tier, &["tier 1", &name, "999 bytes, expected 1000"]);
}

#[test]
fn tier_without_its_map_is_refused() {
    let devices = database();
    let driver = devices.directory(&tier_path(0)).unwrap();
    driver.delete("00000001.map").unwrap();
    refused(&devices, ErrorKind::Corrupt, &["tier 0, /mnt/0", "no complete file map"]);
}

#[test]
fn no_database_is_told_from_a_wrong_directory() {
    let devices = MemoryDevices::new();
    refused(&devices, ErrorKind::NotFound, &["/db is no database", "no such directory"]);
    devices.create_directory(&home()).unwrap();
    refused(&devices, ErrorKind::NotFound, &["/db is no database", "no file DATABASE"]);
}

#[test]
fn newer_home_and_tier_formats_ask_for_an_upgrade() {
    use thermocline_foundation::{DatabaseId, FileNumber, Place, checksum};
    let devices = database();
    let driver = devices.directory(&tier_path(0)).unwrap();
    let file = driver.open("TIER").unwrap();
    for offset in [0u64, 4096] {
        let mut record = bytes_of(&driver, "TIER")[offset as usize..][..512].to_vec();
        record[8] = 9;
        let database = DatabaseId(record[16..32].try_into().unwrap());
        let crc = checksum(&Place { database, file: FileNumber(0), offset }, &record[..508]);
        record[508..].copy_from_slice(&crc.to_le_bytes());
        let buffer = Buffer::copy_of(&record);
        driver.execute(&file, Operation::Write { offset, buffer, durable: false }).result.unwrap();
    }
    refused(&devices, ErrorKind::NewerFormat, &["/mnt/0/TIER", "version 9", "upgrade"]);

    let covered = "format = 3\nnews = true\n\n";
    let place = Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 };
    let crc = checksum(&place, covered.as_bytes());
    let text = format!("{covered}# checksum {crc:08x}\n");
    let error = Home::parse(&text, &home(), "DATABASE").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
}

#[test]
fn a_directory_in_use_is_refused() {
    let devices = database();
    let _open = open(&devices).unwrap();
    assert_eq!(open(&devices).unwrap_err().kind(), ErrorKind::Locked);
}

#[test]
fn creation_refuses_what_is_not_empty_and_leaves_it_alone() {
    let devices = database();
    let error = create(&devices, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_says(&error, &["/db already holds a database"]);
    let elsewhere = std::path::Path::new("/elsewhere");
    let error = TieredFiles::create(&devices, elsewhere, &specs(2), policy()).unwrap_err();
    assert_says(&error, &["/mnt/0 already is a tier", "tier 0 of database"]);
    assert!(devices.directory(elsewhere).is_none(), "what the failed creation made is gone");
    open(&devices).unwrap().close(&[]).unwrap();

    let devices = MemoryDevices::new();
    devices.create_directory(&tier_path(1)).unwrap();
    devices.directory(&tier_path(1)).unwrap().create("thesis.tex").unwrap();
    let error = create(&devices, 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_says(&error, &["/mnt/1 is not empty", "thesis.tex"]);
    assert!(devices.directory(&home()).is_none() && devices.directory(&tier_path(0)).is_none());
    assert_eq!(names(&devices, &tier_path(1)), ["thesis.tex"]);
}

/// A database as a creation leaves it that is cut off just before the end.
fn unfinished() -> MemoryDevices {
    let devices = MemoryDevices::new();
    drop(create(&devices, 2).unwrap());
    devices.directory(&home()).unwrap().rename("DATABASE", "CREATING").unwrap();
    devices
}

#[test]
fn a_creation_that_was_cut_off_gives_way_to_another_but_nothing_else_does() {
    let is_refused = |devices: &MemoryDevices, kind, parts: &[&str]| {
        let list = || [home(), tier_path(0), tier_path(1)].map(|path| names(devices, &path));
        let before = list();
        let error = create(devices, 2).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_says(&error, parts);
        assert_eq!(list(), before);
    };
    let devices = unfinished();
    let error = open(&devices).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_says(&error, &["/db is no database", "its creation was cut off"]);
    assert!(create(&devices, 1).is_ok());

    // The engine had begun a life of its block cache when its creation failed.
    let devices = unfinished();
    devices.directory(&home()).unwrap().create("cache-lives.txt").unwrap();
    assert!(create(&devices, 2).is_ok());
    assert!(!names(&devices, &home()).contains(&"cache-lives.txt".to_owned()));

    let devices = unfinished();
    devices.directory(&home()).unwrap().create("thesis.tex").unwrap();
    is_refused(&devices, ErrorKind::Invalid, &["/db is not empty", "it holds"]);

    // Another database has the tier since.
    let devices = unfinished();
    let others = database();
    devices.mount(&tier_path(1), others.directory(&tier_path(1)).unwrap());
    let error = create(&devices, 2).unwrap_err();
    assert_says(&error, &["/mnt/1 already is a tier", "tier 1 of database"]);
    open(&others).unwrap();

    let devices = unfinished();
    let driver = devices.directory(&home()).unwrap();
    let (file, buffer) = (driver.open("CREATING").unwrap(), Buffer::copy_of(b"# another text"));
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
    is_refused(&devices, ErrorKind::Corrupt, &["/db/CREATING", "checksum is wrong"]);
}

/// A directory's sync that failed can lose the renaming of a text, not its first name.
#[test]
fn a_text_under_its_first_name_gives_way_to_a_creation_that_writes_it() {
    let devices = MemoryDevices::new();
    devices.create_directory(&home()).unwrap();
    devices.directory(&home()).unwrap().create("text.toml.new").unwrap();
    let error = create(&devices, 2).unwrap_err();
    assert_says(&error, &["/db is not empty, it holds text.toml.new"]);
    let texts = [("text.toml", "said = true")];
    TieredFiles::create_with_texts(&devices, &home(), &specs(2), policy(), &texts).unwrap();
    assert!(!names(&devices, &home()).contains(&"text.toml.new".to_owned()));
}

#[test]
fn tiers_named_twice_or_in_another_number_are_refused() {
    let devices = database();
    let try_tiers = |tiers: &[_]| {
        TieredFiles::open(&devices, &home(), Some(tiers), policy(), false).unwrap_err()
    };
    assert_says(&try_tiers(&specs(1)), &["/db has 2 tiers but 1"]);
    let twice = [specs(2)[0].clone(), specs(2)[0].clone()];
    assert_says(&try_tiers(&twice), &["/mnt/0 is named twice"]);
    let mut at_home = specs(1);
    at_home[0].path = home();
    let error = TieredFiles::create(&MemoryDevices::new(), &home(), &at_home, policy());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn moved_tiers_are_found_by_the_paths_given_and_remembered() {
    let devices = database();
    let moved = std::path::Path::new("/mnt/moved");
    devices.mount(moved, devices.unmount(&tier_path(1)).unwrap());
    let mut tiers = specs(2);
    tiers[1].path = moved.to_owned();
    let files = TieredFiles::open(&devices, &home(), Some(&tiers), policy(), false).unwrap();
    drop(files);
    let files = open(&devices).unwrap();
    assert_eq!(files.tiers()[1].spec().path, moved);
}

/// A crash while the generation goes up leaves the last tiers ahead; the others mixes cannot come
/// of it.
#[test]
fn half_raised_generations_are_repaired_and_other_mixes_refused() {
    let raise = |devices: &MemoryDevices, index: usize, by: u64| {
        let driver = devices.directory(&tier_path(index)).unwrap();
        let mut identity = Identity::read(&driver, "TIER").unwrap();
        identity.generation += by;
        identity.update(&driver, "TIER").unwrap();
    };
    for ahead in [&[1][..], &[0, 1]] {
        let devices = database();
        ahead.iter().for_each(|index| raise(&devices, *index, 1));
        open(&devices).unwrap().close(&[]).unwrap();
        open(&devices).unwrap();
    }
    let devices = database();
    raise(&devices, 0, 1);
    refused(&devices, ErrorKind::Tier, &["tier 1 at /mnt/1", "older clone"]);
    let devices = database();
    raise(&devices, 1, 2);
    refused(&devices, ErrorKind::Tier, &["tier 1 at /mnt/1", "newer than /db/DATABASE"]);
}
