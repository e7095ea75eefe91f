//! Names over links under chosen schedules.

use super::{join, spawn};
use crate::names::is_hidden;
use crate::{
    Buffer, Devices, ErrorKind, FileClass, FileContext, FileInfo, FileKind, MemoryDevices, Names,
    Operation, Placement, Result, TierIndex, TierSpec, TierState,
};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::{ByteSize, FileNumber};

const HOST: &str = "/db";
const TIERS: [&str; 2] = ["/mnt/0", "/mnt/1"];
const NAME: &str = "a.sst";
const BYTES: &[u8] = b"whole until it is gone";
const OTHERS: &[u8] = b"of another file";

/// Upper levels on the first tier, the rest on the second.
#[derive(Debug)]
struct UpperLevels;

impl Placement for UpperLevels {
    fn name(&self) -> &'static str {
        "upper_levels"
    }

    fn place(&self, context: FileContext, _: u64, _: &[TierState]) -> Option<TierIndex> {
        let is_lower = matches!(context.kind, FileKind::Table { level } if level > 2);
        Some(TierIndex(is_lower.into()))
    }

    fn misplaced(&self, _: &[FileInfo], _: &[TierState]) -> Vec<(FileNumber, TierIndex)> {
        Vec::new()
    }
}

fn spec(path: &Path) -> TierSpec {
    TierSpec { path: path.to_owned(), capacity: ByteSize::mib(1), driver: "memory".to_owned() }
}

fn made(devices: &MemoryDevices, tiers: [&str; 2]) -> Names {
    for path in [HOST, TIERS[0], TIERS[1]] {
        devices.create_directory(Path::new(path)).unwrap();
    }
    let tiers = tiers.map(|path| spec(Path::new(path)));
    let devices = Arc::new(devices.clone());
    Names::make(devices, Path::new(HOST), &tiers, Arc::new(UpperLevels)).unwrap()
}

/// What is at a place; an error where a file has gone from there.
fn read(devices: &MemoryDevices, place: &Path) -> Result<Vec<u8>> {
    let driver = devices.tier(&spec(place.parent().unwrap()))?;
    let file = driver.open(place.file_name().unwrap().to_str().unwrap())?;
    let buffer = Buffer::zeroed(BYTES.len());
    let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
    let got = read.result?;
    Ok(read.buffer[..got].to_vec())
}

fn put(devices: &MemoryDevices, names: &Names, name: &str, level: u8, bytes: &[u8]) {
    let class = FileClass { level: Some(level), ..FileClass::of_name(name) };
    let writer = names.create(name, class).unwrap();
    let place = writer.place();
    let driver = devices.tier(&spec(place.parent().unwrap())).unwrap();
    let file = driver.open(place.file_name().unwrap().to_str().unwrap()).unwrap();
    let buffer = Buffer::copy_of(bytes);
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
    driver.execute(&file, Operation::Sync).result.unwrap();
    writer.synced().unwrap();
}

/// The host's files on the tiers.
fn on_tiers(devices: &MemoryDevices, names: &Names) -> usize {
    let own = ["TIER", "HOME", "LOCK"];
    let list = |tier: &crate::names::NamedTier| {
        let entries = devices.tier(&spec(&tier.path)).unwrap().list().unwrap();
        entries.iter().filter(|entry| !own.contains(&entry.name.as_str())).count()
    };
    names.tiers().iter().map(list).sum()
}

#[test]
fn a_name_that_is_opened_moved_and_deleted_at_once_leads_to_a_whole_file_until_it_is_gone() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let names = made(&devices, TIERS);
        put(&devices, &names, NAME, 0, BYTES);
        put(&devices, &names, "b.sst", 0, BYTES);
        let reader = {
            let (devices, names) = (devices.clone(), names.clone());
            spawn(move || {
                for _ in 0..2 {
                    let file = match names.open(NAME) {
                        Ok(file) => file,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                            return;
                        }
                    };
                    // It moves once, so that the second place is there unless the name is gone.
                    let found = read(&devices, &file.place());
                    match found.or_else(|_| read(&devices, &file.place())) {
                        Ok(bytes) => assert_eq!(bytes, BYTES),
                        Err(_) => {
                            let error = names.open(NAME).unwrap_err();
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                        }
                    }
                }
            })
        };
        let mover = {
            let names = names.clone();
            spawn(move || {
                names.set_level(NAME, 5);
                loop {
                    match names.move_next() {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                            return;
                        }
                    }
                }
            })
        };
        names.delete(NAME).unwrap();
        join([reader, mover]);
        assert_eq!(names.open(NAME).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(on_tiers(&devices, &names), 1, "the other file's");
        let home = devices.home(Path::new(HOST)).unwrap().list().unwrap();
        let home: Vec<_> = home.into_iter().map(|entry| entry.name).collect();
        assert_eq!(home.iter().filter(|name| !is_hidden(name)).collect::<Vec<_>>(), ["b.sst"]);
        assert!(!home.iter().any(|name| name.starts_with(".thermocline-new")), "{home:?}");
        drop(names);
        let devices = Arc::new(devices);
        let placement = Arc::new(UpperLevels);
        let names = Names::load(devices.clone(), Path::new(HOST), None, placement).unwrap();
        names.sync_directory().unwrap();
        let file = names.open("b.sst").unwrap();
        assert_eq!(read(&devices, &file.place()).unwrap(), BYTES);
        assert_eq!(names.counts().lost_links, 0);
    });
}

#[test]
fn a_plain_file_that_gets_another_name_is_moved_and_not_the_one_that_has_its_name_then() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let names = made(&devices, [TIERS[0], HOST]);
        put(&devices, &names, NAME, 5, BYTES);
        names.set_level(NAME, 0);
        let mover = {
            let names = names.clone();
            spawn(move || while names.move_next().unwrap() {})
        };
        names.rename(NAME, "b.sst").unwrap();
        put(&devices, &names, NAME, 5, OTHERS);
        join([mover]);
        for (name, bytes) in [("b.sst", BYTES), (NAME, OTHERS)] {
            let place = names.open(name).unwrap().place();
            assert_eq!(read(&devices, &place).unwrap(), bytes, "{name}");
        }
    });
}

#[test]
fn a_look_at_a_name_that_is_being_made_takes_nothing_of_its_writer_away() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let names = made(&devices, TIERS);
        put(&devices, &names, "b.sst", 0, BYTES);
        let looker = {
            let names = names.clone();
            spawn(move || drop(names.open(NAME)))
        };
        let class = FileClass { level: Some(0), ..FileClass::of_name(NAME) };
        let writer = names.create(NAME, class).unwrap();
        join([looker]);
        let (place, file) = (writer.place(), names.open(NAME).unwrap());
        names.set_level(NAME, 5);
        while names.move_next().unwrap() {}
        assert_eq!(file.place(), place, "it is being written");
    });
}
