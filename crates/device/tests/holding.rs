//! Holding directories of this machine: what a lock outlives, what its refusal says, and reading
//! where nothing can be written. What forks do to it is in `forking.rs`.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "subject/places.rs"]
mod places;

use places::{Mount, scratch};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::{Batches, DirectDriver, PosixDriver, create_directory};
use thermocline_device::{
    Buffer, Driver, Error, ErrorKind, FileContext, FileKind, FillFirst, Operation, Origin, Result,
    SystemDevices, TierSpec, TieredFiles,
};
use thermocline_foundation::{ByteSize, FileNumber};

const TABLE: FileContext =
    FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Flush };

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(!text.contains('\n'), "one line: {text}");
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
}

fn specs(paths: &[&Path], driver: &str) -> Vec<TierSpec> {
    let spec = |path: &&Path| TierSpec {
        path: path.to_path_buf(),
        capacity: ByteSize::gib(1),
        driver: driver.to_owned(),
    };
    paths.iter().map(spec).collect()
}

fn create(home: &Path, tiers: &[&Path], driver: &str) -> Result<TieredFiles> {
    let devices = SystemDevices::default();
    TieredFiles::create(&devices, home, &specs(tiers, driver), Arc::new(FillFirst))
}

fn open(home: &Path, tiers: Option<&[TierSpec]>, read_only: bool) -> Result<TieredFiles> {
    let devices = SystemDevices::default();
    TieredFiles::open(&devices, home, tiers, Arc::new(FillFirst), read_only)
}

/// A published table of one page.
fn add(files: &TieredFiles) -> FileNumber {
    let file = files.create_file(TABLE, 4096).unwrap();
    file.write(0, Buffer::copy_of(&[7; 4096])).1.unwrap();
    file.sync().unwrap();
    files.publish(&[file.number()]).unwrap();
    file.number()
}

/// Every plain file below `path`, with its length.
fn everything(path: &Path) -> Vec<(String, u64)> {
    let found = thermocline_device::drivers::host_files::walk(path);
    found.map(|file| file.map(|it| (it.path.display().to_string(), it.len)).unwrap()).collect()
}

#[test]
fn a_lock_outlives_whatever_becomes_of_its_file_and_of_the_path() {
    let place = scratch();
    let (path, moved) = (place.path().join("store"), place.path().join("moved"));
    create_directory(&path).unwrap();
    let driver = PosixDriver::open(&path).unwrap();
    let held = driver.lock("LOCK").unwrap();
    let refused = |path: &Path, what: &str| {
        let again = PosixDriver::open(path).unwrap();
        let error = again.lock("LOCK").err().unwrap_or_else(|| panic!("taken twice: {what}"));
        assert_says(&error, ErrorKind::Locked, &["/LOCK is locked: this process", "snapshots"]);
        assert_eq!(again.lock_shared("LOCK").unwrap_err().kind(), ErrorKind::Locked, "{what}");
    };
    refused(&path, "as it is");
    driver.delete("LOCK").unwrap();
    refused(&path, "the lock's file is gone, and then made anew by the refused one");
    driver.create("other").unwrap();
    driver.rename("other", "LOCK").unwrap();
    refused(&path, "the lock's file is another");
    drop((driver.open("LOCK").unwrap(), driver.open_to_read("LOCK").unwrap()));
    refused(&path, "another descriptor of the lock's file was closed");
    symlink(&path, place.path().join("link")).unwrap();
    refused(&place.path().join("link"), "by a symbolic link");
    #[allow(clippy::disallowed_methods, reason = "what a user does to a directory")]
    std::fs::rename(&path, &moved).unwrap();
    refused(&moved, "the directory has another name");
    drop(held);
    drop(PosixDriver::open(&moved).unwrap().lock("LOCK").unwrap());
}

#[test]
fn one_directory_under_two_names_is_said_to_be_one() {
    let place = scratch();
    let at = |name: &str| place.path().join(name);
    create_directory(&at("fast")).unwrap();
    symlink(at("fast"), at("link")).unwrap();
    let error = create(&at("home"), &[&at("fast"), &at("link")], "posix").unwrap_err();
    let parts = ["fast", "link", "the same directory", "symbolic link"];
    assert_says(&error, ErrorKind::Invalid, &parts);
    assert_eq!(everything(place.path()), [], "nothing stays of it");
    create_directory(&at("home")).unwrap();
    symlink(at("home"), at("inside")).unwrap();
    let error = create(&at("home"), &[&at("inside")], "posix").unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["home", "inside", "the same directory"]);

    create(&at("home"), &[&at("fast"), &at("slow")], "posix").unwrap().close(&[]).unwrap();
    let twice = specs(&[&at("fast"), &at("link")], "posix");
    for read_only in [false, true] {
        let error = open(&at("home"), Some(&twice), read_only).unwrap_err();
        assert_says(&error, ErrorKind::Invalid, &parts);
    }
    // One name is fine, whichever it is.
    let once = specs(&[&at("link"), &at("slow")], "posix");
    open(&at("home"), Some(&once), false).unwrap().close(&[]).unwrap();
}

#[test]
fn readers_are_beside_each_other_and_a_writer_alone() {
    let place = scratch();
    let (home, tier) = (place.path().join("home"), place.path().join("tier"));
    let files = create(&home, &[&tier], "posix").unwrap();
    let number = add(&files);
    assert_says(&open(&home, None, true).unwrap_err(), ErrorKind::Locked, &["this process"]);
    files.close(&[]).unwrap();
    drop(files);
    let before = everything(place.path());
    let readers = [open(&home, None, true).unwrap(), open(&home, None, true).unwrap()];
    for reader in &readers {
        let file = reader.open_file(number).unwrap();
        assert_eq!(*file.read(0, 4096).unwrap(), [7; 4096]);
        assert!(file.write(0, Buffer::zeroed(4096)).1.is_err(), "the handle is for reading");
        let error = reader.create_file(TABLE, 0).unwrap_err();
        assert_says(&error, ErrorKind::ReadOnly, &["reading only", "open it for writing"]);
        assert_eq!(reader.delete_files(&[number]).unwrap_err().kind(), ErrorKind::ReadOnly);
        let error = reader.write_home_file("settings.toml", "").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
    }
    let [one, other] = readers;
    drop(one);
    let error = open(&home, None, false).unwrap_err();
    assert_says(&error, ErrorKind::Locked, &["is locked: this process"]);
    drop(other);
    assert_eq!(everything(place.path()), before);
    open(&home, None, false).unwrap();
}

#[test]
fn a_read_only_file_system_is_read_and_says_that_it_cannot_be_written() {
    let Some(mount) = Mount::new("tmpfs", "size=4m") else {
        return;
    };
    let (home, tier) = (mount.path().join("home"), mount.path().join("tier"));
    for driver in ["posix", "direct", "emulated-gp3"] {
        let Ok(files) = create(&home, &[&tier], driver) else {
            // No direct I/O here, which other tests are about.
            continue;
        };
        let number = add(&files);
        files.close(&[]).unwrap();
        drop(files);
        for lock_stays in [true, false] {
            if !lock_stays {
                PosixDriver::open(&home).unwrap().delete("LOCK").unwrap();
                PosixDriver::open(&tier).unwrap().delete("LOCK").unwrap();
            }
            mount.make("ro");
            let before = everything(mount.path());
            let error = open(&home, None, false).unwrap_err();
            let parts = ["Read-only", "home/LOCK", "open the store for reading only"];
            assert_says(&error, ErrorKind::ReadOnly, &parts);
            let readers = [open(&home, None, true).unwrap(), open(&home, None, true).unwrap()];
            let file = readers[1].open_file(number).unwrap();
            assert_eq!(*file.read(0, 4096).unwrap(), [7; 4096], "{driver}");
            readers.iter().for_each(|reader| reader.close(&[]).unwrap());
            assert_eq!(everything(mount.path()), before);
            drop((file, readers));
            mount.make("rw");
        }
        #[allow(clippy::disallowed_methods, reason = "the test's own directories")]
        [&home, &tier].into_iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
    }
}

#[test]
fn opening_to_read_tries_direct_io_without_writing() {
    let place = scratch();
    let Ok(driver) = DirectDriver::open(place.path(), Batches::Threads) else {
        // No direct I/O here, which `open` says; another file system runs this test.
        return;
    };
    assert!(DirectDriver::open_to_read(place.path(), Batches::Ring).is_ok(), "nothing to try");
    driver.create("short").unwrap();
    let reader = DirectDriver::open_to_read(place.path(), Batches::Threads).unwrap();
    let file = reader.open_to_read("short").unwrap();
    let write = Operation::Write { offset: 0, buffer: Buffer::zeroed(4096), durable: false };
    assert!(reader.execute(&file, write).result.is_err());
    assert_eq!(reader.list().unwrap().len(), 1);
    assert!(DirectDriver::open_to_read(&place.path().join("absent"), Batches::Ring).is_err());
    let Some(mount) = Mount::new("ramfs", "rw") else {
        return;
    };
    PosixDriver::open(mount.path()).unwrap().create("file").unwrap();
    let error = DirectDriver::open_to_read(mount.path(), Batches::Ring).unwrap_err();
    assert_says(&error, ErrorKind::Invalid, &["`posix`"]);
}
