//! Moving files: readers do not notice, failures leave the file where it was, deletion wins.

use crate::simulated::{Fault, SimulatedDevices};
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_device::{
    Buffer, Driver, ErrorKind, FileKind, MemoryDevices, Operation, TierIndex,
};

#[test]
fn readers_never_notice_a_file_going_back_and_forth() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    const LEN: usize = 3_000_001;
    let number = add(&files, TABLE, LEN).unwrap();
    let file = files.open_file(number).unwrap();
    let expected = content(number, LEN);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3u64 {
            let (file, expected, stop) = (&file, &expected, &stop);
            scope.spawn(move || {
                let mut random = thermocline_foundation::random::Random::new(reader);
                while !stop.load(Relaxed) {
                    let start = random.below(LEN as u64 - 5000) as usize;
                    let pending = file.start_read(start as u64, 5000);
                    assert!(*file.read(start as u64, 5000).unwrap() == expected[start..][..5000]);
                    assert!(*pending.wait().unwrap() == expected[start..][..5000]);
                }
            });
        }
        let _stops = Stops(&stop);
        for round in 0..20 {
            let to = TierIndex(1 - round % 2);
            let mut told = 0;
            files.migrate(number, to, &mut |bytes| told = bytes).unwrap();
            assert_eq!(told, LEN as u64);
            assert_eq!(file.tier(), to);
            let here =
                |tier| names(&devices, &tier_path(tier)).contains(&format!("{number}.table"));
            assert_eq!((here(0), here(1)), (to.0 == 0, to.0 == 1));
        }
    });
}

/// Ends the readers, also where the thread that moves the file fails: they would read for ever.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_file_deleted_while_it_moves_is_gone_from_both_tiers() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let number = add(&files, TABLE, 100_000).unwrap();
    let mut delete = |_| {
        let _only_the_first_time = files.delete_files(&[number]);
    };
    let error = files.migrate(number, TierIndex(1), &mut delete).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let name = format!("{number}.table");
    assert!(!names(&devices, &tier_path(0)).contains(&name));
    assert!(!names(&devices, &tier_path(1)).contains(&name));
    assert_eq!(files.usage()[1].used_bytes, 0);
}

#[test]
fn a_copy_that_fails_leaves_the_file_where_it_was_and_can_be_tried_again() {
    let devices = SimulatedDevices::new(Fault::None);
    let files = create(&devices, 2).unwrap();
    let number = add(&files, TABLE, 2560).unwrap();
    // Creation, allocation, write, cut, sync: all before the switch.
    for after in 0..5 {
        devices.set_fault(Fault::Once(after));
        let error = files.migrate(number, TierIndex(1), &mut |_| {}).unwrap_err();
        assert_says(&error, &["cannot move file", "tier 0", "tier 1"]);
        assert_eq!(files.files()[0].tier, TierIndex(0), "{after}");
        assert_content(&files, number, 2560);
    }
    devices.set_fault(Fault::None);
    files.migrate(number, TierIndex(1), &mut |_| {}).unwrap();
    assert_content(&files, number, 2560);
}

/// The operating system reports a failed sync once; the next one succeeds without covering what the
/// failed one should have.
#[test]
fn a_directory_whose_sync_failed_gets_no_more_names_until_it_is_opened_anew() {
    let devices = SimulatedDevices::new(Fault::None);
    let files = create(&devices, 2).unwrap();
    let number = add(&files, TABLE, 2560).unwrap();
    // After creation, allocation, write, cut and sync of the copy.
    devices.set_fault(Fault::Once(5));
    let error = files.migrate(number, TierIndex(1), &mut |_| {}).unwrap_err();
    assert_says(&error, &["cannot move file", "tier 0", "tier 1"]);
    devices.set_fault(Fault::None);
    let again = files.migrate(number, TierIndex(1), &mut |_| {}).unwrap_err();
    assert_says(&again, &["names on tier 1", "may not be durable", "reopen"]);
    assert_content(&files, number, 2560);
    let other = add(&files, TABLE, 2560).unwrap();
    assert_content(&files, other, 2560);
    drop(files);
    let files = open(&devices).unwrap();
    files.migrate(number, TierIndex(1), &mut |_| {}).unwrap();
    assert_content(&files, number, 2560);
}

#[test]
fn only_published_tables_move_and_only_where_there_is_room() {
    let devices = MemoryDevices::new();
    let mut specs = specs(2);
    specs[1].capacity = thermocline_foundation::ByteSize::kib(64);
    let files =
        thermocline_device::TieredFiles::create(&devices, &home(), &specs, policy()).unwrap();
    let log = add(&files, LOG, 10).unwrap();
    let fresh = files.create_file(TABLE, 0).unwrap().number();
    let large = add(&files, TABLE, 65 << 10).unwrap();
    let kind = |number, to| files.migrate(number, TierIndex(to), &mut |_| {}).unwrap_err().kind();
    assert_eq!(kind(log, 1), ErrorKind::Invalid);
    assert_eq!(kind(fresh, 1), ErrorKind::Invalid);
    assert_eq!(kind(large, 7), ErrorKind::Invalid);
    assert_eq!(kind(large, 1), ErrorKind::OutOfSpace);
    assert_eq!(files.usage()[1].used_by_kind.get(&FileKind::Table { level: 0 }), None);
}

/// The device drops a write, or a part of one, of any part of the copy, the last one short of a
/// chunk among them: the file stays where it was, and no byte is lost.
#[test]
fn a_copy_that_the_device_did_not_keep_is_never_switched_to() {
    const CHUNK: usize = 1 << 20;
    for len in [1, 2560, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 2560] {
        for damaged_chunk in 0..len.div_ceil(CHUNK) {
            let last = (len - damaged_chunk * CHUNK).min(CHUNK) - 1;
            for at in [0, last].map(|at| (damaged_chunk * CHUNK + at) as u64) {
                drop_a_byte(len, at);
            }
        }
    }
}

/// Moves a file of so many bytes, of which the copy loses one once it is written.
fn drop_a_byte(len: usize, at: u64) {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let number = add(&files, TABLE, len).unwrap();
    let name = format!("{number}.table");
    let target = devices.directory(&tier_path(1)).unwrap();
    let mut is_lost = false;
    let mut lose = |copied: u64| {
        if copied > at && !std::mem::replace(&mut is_lost, true) {
            let file = target.open(&name).unwrap();
            let byte = content(number, len)[at as usize] ^ 0x40;
            let buffer = Buffer::copy_of(&[byte]);
            target
                .execute(&file, Operation::Write { offset: at, buffer, durable: false })
                .result
                .unwrap();
        }
    };
    let error = files.migrate(number, TierIndex(1), &mut lose).expect_err("the copy is not whole");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} of {len}: {error}");
    assert!(is_lost);
    assert_eq!(files.files()[0].tier, TierIndex(0));
    assert_content(&files, number, len);
    assert!(!names(&devices, &tier_path(1)).contains(&name), "no stray copy");
    files.migrate(number, TierIndex(1), &mut |_| {}).unwrap();
    assert_content(&files, number, len);
}
