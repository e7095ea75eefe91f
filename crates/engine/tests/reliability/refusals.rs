//! Openings that must be refused, with the reason and the way out, and that change nothing.

use crate::support::*;
use std::path::Path;
use thermocline::{ByteSize, Db, Environment, ErrorKind, Settings, Tier};
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation};

fn created() -> (MemoryDevices, Environment) {
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    let db = environment.create(&home(), &settings()).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    (devices, environment)
}

fn refused(environment: &Environment, kind: ErrorKind, parts: &[&str]) {
    let error = environment.open(&home()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_says(&error, parts);
}

fn opens(environment: &Environment) {
    let db = environment.open(&home()).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    db.close().unwrap();
}

#[test]
fn missing_unmounted_foreign_and_swapped_tiers_are_refused_and_the_right_ones_open() {
    let (devices, environment) = created();
    let (fast, slow) = (Path::new(TIERS[0]), Path::new(TIERS[1]));
    let right = devices.unmount(slow).unwrap();
    refused(&environment, ErrorKind::Tier, &["tier 1", "/slow", "missing", "mount"]);
    devices.create_directory(slow).unwrap();
    refused(&environment, ErrorKind::Tier, &["tier 1", "/slow", "not mounted"]);
    assert_eq!(names(&devices, slow), [""; 0], "nothing is made on a mount point");
    let (other, _) = created();
    devices.mount(slow, other.directory(slow).unwrap());
    refused(&environment, ErrorKind::Tier, &["tier 1", "foreign", "belongs to database"]);
    let first = devices.unmount(fast).unwrap();
    devices.mount(slow, first.clone());
    devices.mount(fast, right.clone());
    refused(&environment, ErrorKind::Tier, &["swapped", "in their order"]);
    devices.mount(fast, first);
    devices.mount(slow, right);
    opens(&environment);
}

#[test]
fn a_tier_of_yesterday_is_refused() {
    let (devices, environment) = created();
    let slow = Path::new(TIERS[1]);
    let driver = devices.home(slow).unwrap();
    let file = driver.open("TIER").unwrap();
    let buffer = Buffer::zeroed(file.len().unwrap() as usize);
    let old = driver.execute(&file, Operation::Read { offset: 0, buffer }).buffer.to_vec();
    opens(&environment);
    opens(&environment);
    write_file(&devices, slow, "TIER", &old);
    refused(&environment, ErrorKind::Tier, &["tier 1", "older clone"]);
}

#[test]
fn second_openings_are_refused_until_the_last_holder_is_gone() {
    let (_, environment) = created();
    let db = environment.open(&home()).unwrap();
    refused(&environment, ErrorKind::Locked, &[]);
    // A snapshot keeps reading after the database is closed, and keeps the directories.
    let (snapshot, mut records) = (db.snapshot(), db.scan().into_iter());
    db.clone().close().unwrap();
    assert_eq!(db.put("key", "other").unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_says(&db.put("key", "other").unwrap_err(), &["the database is closed"]);
    drop(db);
    assert_eq!(snapshot.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(records.next().unwrap().unwrap().1, "value");
    refused(&environment, ErrorKind::Locked, &[]);
    drop((snapshot, records));
    opens(&environment);
}

#[test]
fn creating_over_something_is_refused_and_leaves_it_alone() {
    let (devices, environment) = created();
    let error = environment.create(&home(), &settings()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    opens(&environment);
    // Other tiers, of which the second belongs to a database: the first must not stay behind.
    let mut other = settings();
    other.tiers[0].path = "/new".into();
    let error = environment.create(Path::new("/other"), &other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert_says(&error, &["/slow", "already is a tier"]);
    for path in ["/new", "/other"] {
        assert!(devices.directory(Path::new(path)).is_none(), "{path} stays");
    }
    opens(&environment);
    assert_eq!(environment.open(Path::new("/none")).unwrap_err().kind(), ErrorKind::NotFound);
    let mut files = settings();
    files.tiers[0].path = "/full".into();
    files.tiers[1].path = "/new".into();
    devices.create_directory(Path::new("/full")).unwrap();
    write_file(&devices, Path::new("/full"), "letter.txt", b"dear");
    let error = environment.create(Path::new("/other"), &files).unwrap_err();
    assert_says(&error, &["/full", "letter.txt"]);
    assert_eq!(names(&devices, Path::new("/full")), ["letter.txt"]);
}

#[test]
fn settings_with_unknown_names_or_impossible_values_are_refused_with_their_line() {
    let (devices, environment) = created();
    for (text, parts) in [
        ("memroy = '1 GiB'\n", ["settings.toml, line 1", "memroy"]),
        ("level_ratio = 1\n", ["level_ratio = 1", "2 to 100"]),
        ("memory = '1 KiB'\n", ["memory = 1024 B", "out of range"]),
        ("\nmemory = 'lots'\n", ["line 2", "lots"]),
        ("durability = 'maybe'\n", ["line 1", "maybe"]),
        ("level0_stop = 1\n", ["level0", "out of range"]),
        ("background_threads = 0\n", ["background_threads = 0", "1 to 64"]),
    ] {
        write_file(&devices, &home(), "settings.toml", text.as_bytes());
        refused(&environment, ErrorKind::Invalid, &parts);
    }
    write_file(&devices, &home(), "settings.toml", b"memory = '16 MiB'\n");
    opens(&environment);
}

#[test]
fn tiers_are_those_of_database_whatever_settings_toml_says() {
    let (devices, environment) = created();
    let tier = |path: &str| Tier::new(path, ByteSize::gib(1)).driver("memory");
    // A capacity that is named when opening is kept by DATABASE.
    let raised = Settings { tiers: TIERS.map(tier).to_vec(), ..settings() };
    environment.open_with(&home(), &raised).unwrap().close().unwrap();
    let db = environment.open(&home()).unwrap();
    assert_eq!(db.settings().tiers, raised.tiers);
    db.close().unwrap();
    // As a crash between the two files leaves it.
    let text = settings().to_toml().unwrap();
    write_file(&devices, &home(), "settings.toml", text.as_bytes());
    let db = environment.open(&home()).unwrap();
    assert_eq!(db.settings().tiers, raised.tiers);
    db.close().unwrap();
    let few = Settings { tiers: vec![tier(TIERS[0])], ..settings() };
    let error = environment.open_with(&home(), &few).unwrap_err();
    assert_says(&error, &["has 2 tiers but 1 were named"]);
    opens(&environment);
}

#[test]
fn closing_ends_a_compaction_on_another_thread_with_an_error_and_no_harm() {
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    let db = environment.create(&home(), &settings()).unwrap();
    for number in 0..3000u32 {
        db.put(format!("key{number:05}"), vec![number as u8; 500]).unwrap();
    }
    let other: Db = db.clone();
    std::thread::scope(|scope| {
        let compaction = scope.spawn(move || other.compact_range(None, None, &mut |_| {}));
        db.close().unwrap();
        if let Err(error) = compaction.join().unwrap() {
            assert!(matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Invalid), "{error}");
        }
    });
    let db = environment.open(&home()).unwrap();
    assert_eq!(db.scan().into_iter().filter(|record| record.is_ok()).count(), 3000);
    assert_eq!(leaks(&devices, &db), None);
}
