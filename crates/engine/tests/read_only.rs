//! Opening for reading only: everything is read as an opening for writing would read it, nothing is
//! written, several read beside each other, and changes are refused with the way out.
#![cfg(not(any(shuttle, loom)))]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "what a user does to files of a database")]

#[path = "../../device/tests/subject/places.rs"]
mod places;

use places::{Mount, scratch};
use std::path::{Path, PathBuf};
use thermocline::{
    ByteSize, Db, Environment, Error, ErrorKind, Mode, Preset, Settings, Tier, WriteBatch,
};
use thermocline_device::drivers::host_files;
use thermocline_device::{FillFirst, SystemDevices, TierSpec, TieredFiles};

const PRESETS: [Preset; 2] = [Preset::Leveled, Preset::Hybrid];

fn settings(place: &Path, preset: Preset) -> Settings {
    let tier = |name: &str, mib| Tier::new(place.join(name), ByteSize::mib(mib));
    Settings {
        preset: Some(preset),
        tiers: vec![tier("fast", 16), tier("slow", 256)],
        memory: ByteSize::mib(8),
        table_size: ByteSize::kib(256),
        ..Settings::default()
    }
}

/// A closed database at `place` with records in tables, in slots where there are any, and in logs.
fn made(place: &Path, preset: Preset) -> PathBuf {
    let home = place.join("home");
    let db = Db::create(&home, &settings(place, preset)).unwrap();
    for round in 0..3u8 {
        for number in 0..600u32 {
            db.put(format!("key{number:05}"), vec![round; 900]).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
    }
    (0..300).for_each(|number| db.put(format!("key{number:05}"), b"in slots").unwrap());
    db.flush().unwrap();
    (0..100).for_each(|number| db.delete(format!("key{number:05}")).unwrap());
    db.put("newest", "in a log").unwrap();
    db.close().unwrap();
    home
}

/// Every file below `path` and what it has.
fn everything(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = host_files::walk(path).map(|file| file.unwrap().path);
    files.map(|path| (path.clone(), host_files::read(&path, 1 << 30).unwrap())).collect()
}

fn records(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let records = db.scan().into_iter().map(|record| record.unwrap());
    records.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// All ways to read agree.
fn check_reads(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let all = records(db);
    let keys: Vec<_> = (0..600).map(|number| format!("key{number:05}").into_bytes()).collect();
    let snapshot = db.snapshot();
    for (key, many) in keys.iter().zip(db.multi_get(&keys).unwrap()) {
        let right = all.iter().find(|(found, _)| found == key).map(|(_, value)| &value[..]);
        assert_eq!(db.get(key).unwrap().as_deref(), right);
        assert_eq!(many.as_deref(), right);
        assert_eq!(snapshot.get(key).unwrap().as_deref(), right);
    }
    let mut backwards: Vec<_> = db.scan().reverse().into_iter().map(|it| it.unwrap()).collect();
    backwards.reverse();
    assert_eq!(backwards.len(), all.len());
    let mut cursor = db.cursor();
    cursor.seek(b"newest").unwrap();
    assert_eq!(cursor.value(), "in a log");
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    all
}

fn assert_refused(what: &str, result: Result<(), Error>) {
    let error = result.err().unwrap_or_else(|| panic!("{what} is done"));
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{what}: {error}");
    let text = error.to_string();
    assert!(text.contains("reading only") && text.contains("open it for writing"), "{text}");
}

fn assert_changes_are_refused(db: &Db, elsewhere: &Path) {
    let mut batch = WriteBatch::new();
    batch.put("key", "value");
    assert_refused("put", db.put("key", "value"));
    assert_refused("delete", db.delete("newest"));
    assert_refused("write", db.write(batch));
    assert_refused("sync", db.sync());
    assert_refused("flush", db.flush());
    assert_refused("compact_range", db.compact_range(None, None, &mut |_| {}));
    assert_refused("checkpoint", db.checkpoint(elsewhere));
    assert_refused("a load", db.ingest().add("zzz", "value"));
    assert!(!elsewhere.exists());
    let stats = db.stats();
    assert_eq!(stats.mode, Mode::ReadOnly);
    assert!(stats.read_only.unwrap().contains("opened for reading only"));
}

#[test]
fn a_database_is_read_as_it_is_and_left_as_it_is() {
    for preset in PRESETS {
        let place = scratch();
        let home = made(place.path(), preset);
        let before = everything(place.path());
        let db = Db::open_read_only(&home).unwrap();
        let shown = check_reads(&db);
        assert!(shown.len() == 501 && db.stats().memory.memtable_bytes > 0, "{preset:?}");
        assert_changes_are_refused(&db, &place.path().join("checkpoint"));
        assert_eq!(check_reads(&db), shown);
        db.close().unwrap();
        // Dropping does no more than closing.
        drop(Db::open_read_only(&home).unwrap());
        assert!(everything(place.path()) == before, "{preset:?}: a file changed");
        let db = Db::open(&home).unwrap();
        assert_eq!(records(&db), shown);
        assert_eq!(db.stats().mode, Mode::ReadWrite);
        db.put("more", "is written").unwrap();
        db.close().unwrap();
    }
}

#[test]
fn readers_are_beside_each_other_and_keep_a_writer_out_as_it_does_them() {
    for preset in PRESETS {
        let place = scratch();
        let home = made(place.path(), preset);
        let readers = [Db::open_read_only(&home).unwrap(), Db::open_read_only(&home).unwrap()];
        let error = Db::open(&home).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        let [one, other] = readers;
        one.close().unwrap();
        assert_eq!(Db::open(&home).map(drop).unwrap_err().kind(), ErrorKind::Locked);
        assert_eq!(records(&other).len(), 501);
        other.close().unwrap();
        let writer = Db::open(&home).unwrap();
        let error = Db::open_read_only(&home).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked);
        assert!(error.to_string().contains("is locked: this process"), "{error}");
        writer.close().unwrap();
    }
}

#[test]
fn a_read_only_file_system_is_read_beside_others_without_a_lock_file() {
    for preset in PRESETS {
        let Some(mount) = Mount::new("tmpfs", "size=64m") else {
            return;
        };
        let home = made(mount.path(), preset);
        for directory in ["home", "fast", "slow"] {
            std::fs::remove_file(mount.path().join(directory).join("LOCK")).unwrap();
        }
        mount.make("ro");
        let before = everything(mount.path());
        let error = Db::open(&home).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        let text = error.to_string();
        assert!(text.contains("Read-only") && text.contains("for reading only"), "{text}");
        let (db, other) = (Db::open_read_only(&home).unwrap(), Db::open_read_only(&home).unwrap());
        assert_eq!(check_reads(&db), records(&other));
        let elsewhere = scratch();
        assert_changes_are_refused(&db, &elsewhere.path().join("checkpoint"));
        db.close().unwrap();
        other.close().unwrap();
        assert!(everything(mount.path()) == before, "{preset:?}");
        mount.make("rw");
        Db::open(&home).unwrap().close().unwrap();
    }
}

/// A backup that is mounted elsewhere.
#[test]
fn tiers_that_moved_and_other_settings_hold_for_the_opening_alone() {
    for preset in PRESETS {
        let (place, other) = (scratch(), scratch());
        let home = made(place.path(), preset);
        for tier in ["fast", "slow"] {
            std::fs::rename(place.path().join(tier), other.path().join(tier)).unwrap();
        }
        let error = Db::open_read_only(&home).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Tier, "{error}");
        let before = (everything(place.path()), everything(other.path()));
        let moved = Settings { memory: ByteSize::mib(16), ..settings(other.path(), preset) };
        let db = Db::builder().settings(moved.clone()).open_read_only(&home).unwrap();
        assert_eq!(db.settings().memory, ByteSize::mib(16));
        assert_eq!(check_reads(&db).len(), 501);
        db.close().unwrap();
        assert!((everything(place.path()), everything(other.path())) == before, "{preset:?}");
        assert_eq!(Db::kept_settings(&home).unwrap().memory, ByteSize::mib(8));
        assert!(Db::open_read_only(&home).is_err(), "where the tiers are was not kept");
        let db = Db::open_with(&home, &moved).unwrap();
        assert_eq!(db.scan().into_iter().count(), 501);
        db.close().unwrap();
    }
}

#[test]
fn a_database_that_was_never_written_is_empty() {
    for preset in PRESETS {
        let place = scratch();
        let home = place.path().join("home");
        Db::create(&home, &settings(place.path(), preset)).unwrap().close().unwrap();
        let db = Db::open_read_only(&home).unwrap();
        assert_eq!(records(&db), []);
        drop(db);
        // As a crash leaves it before its first manifest is there.
        let bare = place.path().join("bare");
        let spec = |tier: &str| TierSpec {
            path: bare.join(tier),
            capacity: ByteSize::mib(64),
            driver: "posix".to_owned(),
        };
        let text = std::fs::read_to_string(home.join("settings.toml")).unwrap();
        let texts = [("settings.toml", &text[..])];
        let tiers = [spec("fast"), spec("slow")];
        let (devices, policy) = (SystemDevices::default(), std::sync::Arc::new(FillFirst));
        drop(TieredFiles::create_with_texts(&devices, &bare, &tiers, policy, &texts).unwrap());
        let before = everything(&bare);
        let db = Db::open_read_only(&bare).unwrap();
        assert_eq!(records(&db), []);
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
        assert_refused("put", db.put("key", "value"));
        db.close().unwrap();
        assert!(everything(&bare) == before, "{preset:?}");
        let db = Db::open(&bare).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
    }
}

/// Without the file a database is taken for one of the preset of old, which its slabs deny.
#[test]
fn settings_that_are_missing_are_named_and_can_be_given_again() {
    for preset in PRESETS {
        let place = scratch();
        let home = made(place.path(), preset);
        let file = home.join("settings.toml");
        std::fs::remove_file(&file).unwrap();
        let unnamed = Settings { preset: None, ..settings(place.path(), preset) };
        let ways: [&dyn Fn() -> Result<Db, Error>; 4] = [
            &|| Db::open(&home),
            &|| Db::open_read_only(&home),
            &|| Db::open_with(&home, &unnamed),
            &|| Db::open_or_create(&home, &unnamed),
        ];
        for open in ways {
            let opened = open();
            if preset == Preset::Leveled {
                assert_eq!(opened.unwrap().scan().into_iter().count(), 501);
                let _ = std::fs::remove_file(&file);
                continue;
            }
            let error = opened.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let text = error.to_string();
            let start = format!("{} is missing", file.display());
            assert!(text.starts_with(&start) && text.contains("preset"), "{text}");
        }
        assert_eq!(Db::kept_settings(&home).unwrap_err().kind(), ErrorKind::NotFound);
        let given = Settings { tiers: Vec::new(), ..settings(place.path(), preset) };
        let db = Environment::default().open_read_only_with(&home, &given).unwrap();
        assert_eq!(db.scan().into_iter().count(), 501);
        drop(db);
        assert!(!file.exists());
        Db::open_with(&home, &given).unwrap().close().unwrap();
        let db = Db::open(&home).unwrap();
        assert_eq!((db.settings().preset, db.scan().into_iter().count()), (Some(preset), 501));
        let nowhere = Db::kept_settings(place.path().join("nowhere")).unwrap_err();
        assert!(nowhere.to_string().contains("there is no database"), "{nowhere}");
    }
}

#[test]
fn a_database_that_is_not_there_is_not_made() {
    let place = scratch();
    let home = place.path().join("home");
    assert_eq!(Db::open_read_only(&home).map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
