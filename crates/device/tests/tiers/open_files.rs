//! The bound of open files: idle ones are closed and opened again, and no caller notices, whatever
//! becomes of the file meanwhile.

use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_device::placement::BelowFirst;
use thermocline_device::{
    Buffer, File, FileContext, FileKind, MemoryDevices, Origin, ReadAt, SystemDevices, TierIndex,
    TierSpec, TieredFiles, read_batch, sync_batch,
};
use thermocline_foundation::random::Random;
use thermocline_foundation::{ByteSize, FileNumber};

const SLAB: FileContext = FileContext { kind: FileKind::Slab, origin: Origin::Flush };
const COPY: FileContext = FileContext { kind: FileKind::TableIndex, origin: Origin::Migration };

/// Descriptors of this process for files below `path`.
#[allow(clippy::disallowed_methods, reason = "the kernel alone knows")]
fn descriptors(path: &Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(path) && target.extension().is_some()).count()
}

fn on_disk(home: &Path) -> TieredFiles {
    let spec = |index| TierSpec {
        path: home.join(format!("tier-{index}")),
        capacity: ByteSize::gib(1),
        driver: "posix".to_owned(),
    };
    let devices = SystemDevices::default();
    TieredFiles::create(&devices, home, &[spec(0), spec(1)], policy()).unwrap()
}

fn open_all(files: &TieredFiles, numbers: &[FileNumber]) -> Vec<Arc<File>> {
    numbers.iter().map(|number| files.open_file(*number).unwrap()).collect()
}

fn read_all(opened: &[Arc<File>], len: usize) {
    for file in opened {
        assert_eq!(file.len().unwrap(), len as u64);
        assert!(*file.read(0, len).unwrap() == content(file.number(), len)[..]);
    }
}

#[test]
fn thousands_of_tables_are_read_with_a_few_descriptors() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("db");
    let files = on_disk(&home);
    files.set_open_files_max(20);
    let made: Vec<FileNumber> = (0..2000)
        .map(|_| {
            let file = files.create_file(TABLE, 100).unwrap();
            file.write(0, Buffer::copy_of(&content(file.number(), 100))).1.unwrap();
            file.number()
        })
        .collect();
    // As the outputs of a large merge, before they are published.
    assert!(descriptors(&home) <= 21, "{}", descriptors(&home));
    files.publish(&made).unwrap();
    let opened = open_all(&files, &made);
    // The map's own descriptor is not counted.
    assert!(descriptors(&home) <= 21, "{}", descriptors(&home));
    let mut random = Random::new(1);
    for _ in 0..5000 {
        let file = &opened[random.below(2000) as usize];
        assert!(*file.read(10, 50).unwrap() == content(file.number(), 100)[10..60]);
    }
    read_all(&opened, 100);
    let counts = files.open_file_counts();
    assert_eq!((counts.open, counts.open_max), (20, Some(20)));
    assert!(counts.reopened > 4000, "{counts:?}");
    assert_eq!(descriptors(&home), 21);
    drop(opened);
    assert_eq!(files.open_file_counts().open, 0);
    assert_eq!(descriptors(&home), 1);
}

#[test]
fn what_is_read_again_and_again_stays_open() {
    let files = create(&MemoryDevices::new(), 1).unwrap();
    let numbers: Vec<_> = (0..30).map(|_| add(&files, TABLE, 64).unwrap()).collect();
    files.set_open_files_max(8);
    let opened = open_all(&files, &numbers);
    let (often, seldom) = opened.split_at(4);
    read_all(often, 64);
    let before = files.open_file_counts().reopened;
    for file in seldom {
        read_all(often, 64);
        read_all(std::slice::from_ref(file), 64);
    }
    let reopened = files.open_file_counts().reopened - before;
    assert!(reopened <= seldom.len() as u64 + 4, "{reopened}: those of the second set alone");
}

#[test]
fn a_table_deleted_while_it_is_closed_can_still_be_read() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("db");
    let files = on_disk(&home);
    let numbers: Vec<_> = (0..20).map(|_| add(&files, TABLE, 500).unwrap()).collect();
    files.set_open_files_max(3);
    let opened = open_all(&files, &numbers);
    let (deleted, kept) = opened.split_at(10);
    read_all(kept, 500);
    files.delete_files(&numbers[..10]).unwrap();
    assert_eq!(
        names(&SystemDevices::default(), &home.join("tier-0")).len(),
        10 + 3,
        "map, TIER, LOCK"
    );
    for _ in 0..3 {
        read_all(kept, 500);
        read_all(deleted, 500);
    }
    drop(opened);
    assert_eq!(descriptors(&home), 1, "the map's");
}

#[test]
fn a_table_that_is_closed_moves_and_is_read_where_it_went() {
    let scratch = tempfile::tempdir().unwrap();
    let home = scratch.path().join("db");
    let files = on_disk(&home);
    let numbers: Vec<_> = (0..12).map(|_| add(&files, TABLE, 5000).unwrap()).collect();
    files.set_open_files_max(2);
    let opened = open_all(&files, &numbers);
    for to in [TierIndex(1), TierIndex(0), TierIndex(1)] {
        for number in &numbers {
            files.migrate(*number, to, &mut |_| {}).unwrap();
        }
        assert!(opened.iter().all(|file| file.tier() == to));
        read_all(&opened, 5000);
        assert!(files.open_file_counts().open <= 2);
    }
    let copies = home.join("copies");
    let devices = SystemDevices::default();
    let copy = files.create_checkpoint(&devices, &copies, &numbers, &[], &|_, _, _| {}).unwrap();
    read_all(&open_all(&copy, &numbers), 5000);
    drop(copy);
    read_all(&opened, 5000);
}

/// Readers of two threads, and files that come, move and go: what is read is right at every moment.
#[test]
fn readers_never_notice_closings_moves_and_deletions() {
    let files = create(&MemoryDevices::new(), 2).unwrap();
    files.set_open_files_max(2);
    let lasting: Vec<_> = (0..8).map(|_| add(&files, TABLE, 3000).unwrap()).collect();
    let opened = open_all(&files, &lasting);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (opened, stop) = (&opened, &stop);
            scope.spawn(move || {
                let mut random = Random::new(reader);
                while !stop.load(Relaxed) {
                    let some = |random: &mut Random| &opened[random.below(8) as usize];
                    let (one, other) = (some(&mut random), some(&mut random));
                    let pending = other.start_read(7, 90);
                    assert!(*one.read(0, 3000).unwrap() == content(one.number(), 3000)[..]);
                    assert!(*pending.wait().unwrap() == content(other.number(), 97)[7..]);
                }
            });
        }
        for round in 0..200usize {
            let number = lasting[round % 8];
            files.migrate(number, TierIndex(1 - (round / 8 % 2) as u8), &mut |_| {}).unwrap();
            let passing = add(&files, TABLE, 700).unwrap();
            let file = files.open_file(passing).unwrap();
            files.delete_files(&[passing]).unwrap();
            read_all(&[file], 700);
        }
        stop.store(true, Relaxed);
    });
    // Threads that open files at once may pass the bound, until the next file is opened.
    read_all(&opened, 3000);
    assert!(files.open_file_counts().open <= 2);
}

/// Slabs of a small fast tier, with four bytes changed in each and no sync.
fn changed_slabs(devices: &SimulatedDevices) -> (TieredFiles, Vec<Arc<File>>) {
    let files =
        TieredFiles::create(devices, &home(), &specs(2), Arc::new(BelowFirst::default())).unwrap();
    let numbers: Vec<_> = (0..6).map(|_| add(&files, SLAB, 4096).unwrap()).collect();
    let opened = open_all(&files, &numbers);
    for file in &opened {
        file.write(1024, Buffer::copy_of(&[7; 512])).1.unwrap();
    }
    (files, opened)
}

#[test]
fn what_was_written_to_a_slab_is_durable_before_the_slab_is_closed() {
    let devices = SimulatedDevices::new(Fault::None);
    let (files, opened) = changed_slabs(&devices);
    assert_eq!(files.open_file_counts().open, 6);
    files.set_open_files_max(2);
    assert_eq!(files.open_file_counts().open, 1, "there is room for one more");
    let after = devices.after_power_cut(Fate::Lost);
    let reopened =
        TieredFiles::open(&after, &home(), None, Arc::new(BelowFirst::default()), false).unwrap();
    let is_new = |file: &&Arc<File>| {
        let bytes = reopened.open_file(file.number()).unwrap().read(1024, 512).unwrap();
        bytes[..] == [7; 512]
    };
    assert!(opened.iter().filter(is_new).count() >= 5, "those that were closed");
    // A sync of all has only the others to make durable, and a closed one is written to again.
    assert!(
        sync_batch(&opened.iter().map(|file| &**file).collect::<Vec<_>>())
            .iter()
            .all(Result::is_ok)
    );
    for file in &opened {
        file.write(2048, Buffer::copy_of(&[8; 512])).1.unwrap();
        file.sync().unwrap();
        assert!(file.read(1024, 512).unwrap()[..] == [7; 512]);
    }
}

#[test]
fn a_slab_that_could_not_be_synced_before_its_closing_stays_open_and_never_syncs_again() {
    let devices = SimulatedDevices::new(Fault::None);
    let (files, opened) = changed_slabs(&devices);
    devices.set_fault(Fault::Once(0));
    files.set_open_files_max(1);
    let failed: Vec<_> = opened.iter().filter(|file| file.sync().is_err()).collect();
    assert_eq!(failed.len(), 1, "what it should have covered counts as lost");
    assert!(sync_batch(&[failed[0], &opened[5]])[0].is_err());
    read_all(&[], 0);
    for file in &opened {
        assert!(file.read(1024, 512).unwrap()[..] == [7; 512]);
    }
}

#[test]
fn a_batch_of_more_files_than_may_be_open_is_read_whole() {
    let files = create(&MemoryDevices::new(), 1).unwrap();
    let numbers: Vec<_> = (0..40).map(|_| add(&files, TABLE, 300).unwrap()).collect();
    files.set_open_files_max(4);
    let opened = open_all(&files, &numbers);
    let reads: Vec<_> = opened.iter().map(|file| ReadAt { file, offset: 100, len: 200 }).collect();
    for (result, number) in read_batch(&reads).into_iter().zip(&numbers) {
        assert!(*result.unwrap() == content(*number, 300)[100..]);
    }
    assert!(files.open_file_counts().open <= 4);
}

#[test]
fn a_copy_that_ends_with_the_process_is_closed_without_a_sync() {
    let files = create(&MemoryDevices::new(), 1).unwrap();
    files.set_open_files_max(2);
    let made: Vec<_> = (0..5)
        .map(|_| {
            let file = files.create_file(COPY, 512).unwrap();
            file.write(0, Buffer::copy_of(&content(file.number(), 512))).1.unwrap();
            file
        })
        .collect();
    assert!(files.open_file_counts().open <= 2);
    assert_eq!(files.tiers()[0].traffic(FileKind::TableIndex).syncs, 0);
    read_all(&made, 512);
    files.delete_files(&made.iter().map(|file| file.number()).collect::<Vec<_>>()).unwrap();
    read_all(&made, 512);
}
