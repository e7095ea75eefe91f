//! Room in the middle of work: from within a migration's own calls the tiers are filled until they
//! refuse, and their use stays within their capacities.

use crate::support::*;
use std::sync::Arc;
use thermocline_device::{
    ErrorKind, FileContext, FileKind, MemoryDevices, Origin, TierIndex, TierUsage, TieredFiles,
};
use thermocline_foundation::{ByteSize, FileNumber};

const CAPACITY: u64 = 4 << 20;
const LEN: usize = 2_500_000;

/// A database whose two tiers have so much, and a file on the first.
fn two_tiers(devices: &MemoryDevices) -> (TieredFiles, FileNumber) {
    let mut specs = specs(2);
    specs.iter_mut().for_each(|spec| spec.capacity = ByteSize(CAPACITY));
    let files = TieredFiles::create(devices, &home(), &specs, policy()).unwrap();
    let number = add(&files, TABLE, LEN).unwrap();
    assert_eq!(tier_of(&files, number), TierIndex(0));
    (files, number)
}

fn tier_of(files: &TieredFiles, number: FileNumber) -> TierIndex {
    files.files().into_iter().find(|file| file.number == number).unwrap().tier
}

/// Bytes of all files that lie in a tier's directory.
fn bytes_there(devices: &MemoryDevices, tier: usize) -> u64 {
    use thermocline_device::Devices;
    let driver = devices.home(&tier_path(tier)).unwrap();
    let entries = driver.list().unwrap().into_iter();
    let tables = entries.filter(|entry| entry.name.ends_with(".table"));
    tables.map(|entry| driver.open(&entry.name).unwrap().len().unwrap()).sum()
}

/// What the map takes comes beside what is placed.
fn assert_within(usage: &TierUsage) {
    let map_bytes = usage.used_by_kind.get(&FileKind::Map).copied().unwrap_or(0);
    assert!(usage.used_bytes - map_bytes <= CAPACITY, "{usage:?}");
}

/// Puts files that may be on any tier until none has room; gives those on the second tier.
fn fill_up(files: &TieredFiles) -> Vec<FileNumber> {
    let mut made = Vec::new();
    for round in 0.. {
        assert!(round < 200, "files of 64 KiB fill 8 MiB: none was refused");
        match add(files, TABLE, 64 << 10) {
            Ok(number) => made.push(number),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                break;
            }
        }
    }
    made.retain(|number| tier_of(files, *number) == TierIndex(1));
    made
}

#[test]
fn a_file_on_the_move_has_its_room_on_the_tier_that_it_goes_to() {
    let devices = MemoryDevices::new();
    let (files, number) = two_tiers(&devices);
    let (mut others, mut most) = (Vec::new(), 0);
    files
        .migrate(number, TierIndex(1), &mut |_| {
            others.extend(fill_up(&files));
            most = most.max(bytes_there(&devices, 1));
        })
        .unwrap();
    assert!(!others.is_empty(), "beside it there is room for some");
    let usage = &files.usage()[1];
    assert_within(usage);
    assert!(bytes_there(&devices, 1).max(most) <= CAPACITY, "{most} bytes of files");
    assert_content(&files, number, LEN);
}

/// It counts where it was, too, until its copy there is gone.
#[test]
fn a_file_on_the_move_has_its_room_on_the_tier_that_it_leaves() {
    let devices = MemoryDevices::new();
    let (files, number) = two_tiers(&devices);
    let mut most = 0;
    files
        .migrate(number, TierIndex(1), &mut |_| {
            fill_up(&files);
            most = most.max(bytes_there(&devices, 0));
        })
        .unwrap();
    assert!(most <= CAPACITY && most > LEN as u64, "{most} bytes of files");
}

/// Two files that both want the rest of the tier: the second to begin is refused.
#[test]
fn of_two_files_on_the_move_to_the_same_room_one_is_refused() {
    let devices = MemoryDevices::new();
    let (files, number) = two_tiers(&devices);
    let other = add(&files, TABLE, 1 << 20).unwrap();
    let third = add(&files, TABLE, 400 << 10).unwrap();
    let mut refused = Vec::new();
    files
        .migrate(number, TierIndex(1), &mut |_| {
            for file in [other, third] {
                let moved = files.migrate(file, TierIndex(1), &mut |_| {});
                refused.extend(moved.err().map(|error| error.kind()));
            }
        })
        .unwrap();
    // Of 4 MiB 2.5 MB are taken, then 1 MiB and 400 KiB: all fit. Another of the first size does
    // not, in the middle of the next move.
    assert_eq!(refused, []);
    let fourth = add(&files, TABLE, 200 << 10).unwrap();
    let fifth = add(&files, TABLE, 200 << 10).unwrap();
    let mut inner = None;
    files
        .migrate(fourth, TierIndex(1), &mut |_| {
            inner = files.migrate(fifth, TierIndex(1), &mut |_| {}).err().map(|error| error.kind());
        })
        .unwrap();
    assert_eq!(inner, Some(ErrorKind::OutOfSpace));
    let usage = &files.usage()[1];
    assert_within(usage);
}

/// Files that are made and not yet published have their room as well: one in the middle of being
/// written, while another fills the tier.
#[test]
fn a_file_that_is_being_written_has_the_room_that_it_was_promised() {
    let devices = MemoryDevices::new();
    let (files, _) = two_tiers(&devices);
    let context = FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Ingest };
    let file = files.create_file(context, LEN as u64).unwrap();
    fill_up(&files);
    fill(&file, LEN).unwrap();
    files.publish(&[file.number()]).unwrap();
    files.usage().iter().for_each(assert_within);
}

/// A copy has the capacities of the original, and is within them although that is full.
#[test]
fn a_checkpoint_of_full_tiers_keeps_to_their_capacities() {
    let devices = MemoryDevices::new();
    let (files, number) = two_tiers(&devices);
    let others = fill_up(&files);
    let copy = files
        .create_checkpoint(&devices, std::path::Path::new("/copy"), &[number], &[], &|_, _, _| {})
        .unwrap();
    files.usage().iter().chain(&copy.usage()).for_each(assert_within);
    assert_content(&Arc::new(copy), number, LEN);
    assert!(!others.is_empty());
}
