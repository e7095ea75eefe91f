//! Every byte of the metadata flipped: reported, or harmless; never another answer.

use crate::golden::bytes_of;
use crate::support::*;
use thermocline_device::{
    Buffer, Driver, ErrorKind, FileInfo, MemoryDevices, Operation, TierIndex, TieredFiles,
};

fn database() -> (MemoryDevices, Vec<FileInfo>) {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let numbers: Vec<_> = (0..4).map(|_| add(&files, TABLE, 600).unwrap()).collect();
    files.migrate(numbers[0], TierIndex(1), &mut |_| {}).unwrap();
    files.delete_files(&numbers[1..2]).unwrap();
    let all = files.files();
    files.close(&[]).unwrap();
    (devices, all)
}

/// Of the flips of a file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Swept {
    tried: usize,
    /// The opening was refused.
    refused: usize,
    /// The opening found all files, and verification reported the flip.
    verified: usize,
}

/// Flips a bit of each byte of a file in turn, opens for reading and verifies.
fn sweep(path: &std::path::Path, name: &str, step: usize) -> Swept {
    let (devices, expected) = database();
    let driver = devices.directory(path).unwrap();
    let whole = bytes_of(&driver, name);
    let positions = (0..whole.len()).step_by(step);
    let mut swept = Swept { tried: positions.len(), ..Swept::default() };
    for at in positions {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        replace(&driver, name, &bytes);
        match TieredFiles::open(&devices, &home(), None, policy(), true) {
            Ok(files) => {
                assert_eq!(files.files(), expected, "byte {at} of {name}");
                swept.verified += usize::from(!files.verify_metadata().is_empty());
            }
            Err(error) => {
                swept.refused += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} of {name}: {error}");
                assert_says(&error, &[name, "damaged"]);
            }
        }
    }
    swept
}

fn replace(driver: &dyn Driver, name: &str, bytes: &[u8]) {
    driver.delete(name).unwrap();
    let file = driver.create(name).unwrap();
    let buffer = Buffer::copy_of(bytes);
    driver.execute(&file, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
}

#[test]
fn rot_in_a_tier_identity_is_harmless() {
    let swept = sweep(&tier_path(1), "TIER", 1);
    assert_eq!((swept.refused, swept.tried), (0, 8192), "there are two copies");
}

#[test]
fn rot_in_both_copies_of_a_tier_identity_is_turned_back() {
    let (devices, expected) = database();
    let driver = devices.directory(&tier_path(1)).unwrap();
    let whole = bytes_of(&driver, "TIER");
    for at in 0..512 {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes[4096 + (at * 7) % 512] ^= 4;
        replace(&driver, "TIER", &bytes);
        let files = TieredFiles::open(&devices, &home(), None, policy(), true).unwrap();
        assert_eq!(files.files(), expected, "byte {at}");
    }
    // More than a bit of each is refused.
    let mut bytes = whole.clone();
    for at in [20, 40, 4096 + 20, 4096 + 40] {
        bytes[at] ^= 1;
    }
    replace(&driver, "TIER", &bytes);
    let error = open(&devices).unwrap_err();
    assert_says(&error, &["TIER", "checksum", "restore"]);
}

#[test]
fn rot_in_the_home_file_is_turned_back_by_an_opening_and_reported_by_verification() {
    let swept = sweep(&home(), "DATABASE", 1);
    assert!(swept.tried > 100);
    assert_eq!((swept.refused, swept.verified), (0, swept.tried));
}

#[test]
fn an_opening_for_writing_writes_a_home_file_anew_that_has_a_flipped_bit() {
    let (devices, _) = database();
    let driver = devices.directory(&home()).unwrap();
    let mut bytes = bytes_of(&driver, "DATABASE");
    bytes[300] ^= 2;
    replace(&driver, "DATABASE", &bytes);
    open(&devices).unwrap().close(&[]).unwrap();
    let files = TieredFiles::open(&devices, &home(), None, policy(), true).unwrap();
    assert!(files.verify_metadata().is_empty());
}

#[test]
fn two_flipped_bits_of_a_home_file_are_refused() {
    let (devices, _) = database();
    let driver = devices.directory(&home()).unwrap();
    let whole = bytes_of(&driver, "DATABASE");
    for at in 1..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes[at / 2] ^= 8;
        replace(&driver, "DATABASE", &bytes);
        assert_eq!(open(&devices).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[test]
fn rot_in_the_file_map_is_turned_back_by_an_opening_and_reported_by_verification() {
    let swept = sweep(&tier_path(0), "00000001.map", 1);
    assert!(swept.tried > 0);
    assert_eq!((swept.refused, swept.verified), (0, swept.tried));
}

#[test]
fn a_cut_off_home_file_or_identity_is_reported() {
    let (devices, _) = database();
    let driver = devices.directory(&home()).unwrap();
    let whole = bytes_of(&driver, "DATABASE");
    for len in 0..whole.len() {
        replace(&driver, "DATABASE", &whole[..len]);
        let error = open(&devices).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{len}");
        assert_says(&error, &["/db/DATABASE", "backup"]);
    }
    replace(&driver, "DATABASE", &whole);
    let driver = devices.directory(&tier_path(1)).unwrap();
    replace(&driver, "TIER", &bytes_of(&driver, "TIER")[..100]);
    let error = open(&devices).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_says(&error, &["/mnt/1/TIER", "cut off", "restore"]);
}
