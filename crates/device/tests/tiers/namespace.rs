//! The life of files in one namespace: numbers, kinds, accounts, leftovers, shared handles.

use crate::support::*;
use std::sync::{Arc, Weak};
use thermocline_device::{
    Buffer, Devices, Driver, ErrorKind, FileContext, FileKind, GivesWay, MemoryDevices, Origin,
    ReadAt, TierIndex, TieredFiles, read_batch, read_joined, start_joined,
};
use thermocline_foundation::{ByteSize, FileNumber};

#[test]
fn published_files_survive_and_unpublished_ones_are_removed() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let kept = add(&files, TABLE, 9000).unwrap();
    let log = add(&files, LOG, 4096).unwrap();
    let lost = files.create_file(TABLE, 100).unwrap().number();
    files.close(&[]).unwrap();
    assert_eq!(files.create_file(TABLE, 0).unwrap_err().kind(), ErrorKind::Invalid);
    drop(files);
    let files = open(&devices).unwrap();
    assert_eq!(files.files().iter().map(|file| file.number).collect::<Vec<_>>(), [kept, log]);
    assert_content(&files, kept, 9000);
    assert_eq!(files.open_file(lost).unwrap_err().kind(), ErrorKind::NotFound);
    let on_disk = names(&devices, &tier_path(0));
    assert!(!on_disk.contains(&format!("{lost}.table")), "{on_disk:?}");
    assert_eq!(on_disk.iter().filter(|name| name.ends_with(".map")).count(), 1);
}

#[test]
fn a_copy_of_a_tables_index_is_never_published_and_ends_with_the_process() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let context = FileContext { kind: FileKind::TableIndex, ..TABLE };
    let file = files.create_file(context, 4096).unwrap();
    let name = format!("{}.index", file.number());
    let error = files.publish(&[file.number()]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(names(&devices, &tier_path(0)).contains(&name), "it lies on the fastest tier");
    drop(file);
    files.close(&[]).unwrap();
    drop(files);
    let files = open(&devices).unwrap();
    assert!(files.files().is_empty());
    assert!(!names(&devices, &tier_path(0)).contains(&name));
}

#[test]
fn a_cache_is_never_published_and_stays_for_the_next_opening_to_use_or_delete() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let context = FileContext { kind: FileKind::BlockCache, origin: Origin::CacheFill };
    let file = files.create_file(context, 4096).unwrap();
    let number = file.number();
    file.write(0, Buffer::copy_of(&[7; 8192])).1.unwrap();
    let error = files.publish(&[number]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    drop((file, files));
    for closes in [true, false] {
        let files = open(&devices).unwrap();
        let info = files.files()[0];
        assert_eq!((info.number, info.kind, info.bytes), (number, FileKind::BlockCache, 8192));
        assert!(!info.published && info.tier == TierIndex(0));
        assert_eq!(*files.open_file(number).unwrap().read(0, 8192).unwrap(), [7; 8192]);
        assert_eq!(files.usage()[0].used_by_kind[&FileKind::BlockCache], 8192);
        if closes {
            files.close(&[]).unwrap();
        }
    }
    let files = open(&devices).unwrap();
    files.delete_files(&[number]).unwrap();
    drop(files);
    assert!(open(&devices).unwrap().files().is_empty());
}

#[test]
fn a_cache_that_is_not_open_goes_before_a_file_finds_no_room() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let context = FileContext { kind: FileKind::BlockCache, origin: Origin::CacheFill };
    let file = files.create_file(context, 8192).unwrap();
    let number = file.number();
    file.write(0, Buffer::copy_of(&[7; 8192])).1.unwrap();
    drop((file, files));
    let files = open(&devices).unwrap();
    let fast = &files.usage()[0];
    let bytes = fast.capacity_bytes * 95 / 100 - fast.used_bytes + 4096;
    let below = files.create_file(TABLE, bytes).unwrap();
    assert!(below.tier() == TierIndex(1) && files.has_file(number), "there is room elsewhere");
    let above = files.create_file(TABLE, bytes).unwrap();
    assert!(above.tier() == TierIndex(0) && !files.has_file(number));
    let error = files.create_file(TABLE, bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
}

/// A cache that evicts its only file before it is asked to give way, and has nothing left to give.
#[derive(Debug)]
struct Overtaken {
    files: Weak<TieredFiles>,
    number: FileNumber,
}

impl GivesWay for Overtaken {
    fn leave(&self, _bytes: u64) -> bool {
        self.files.upgrade().unwrap().delete_files(&[self.number]).unwrap();
        false
    }
}

#[test]
fn a_file_finds_room_that_a_cache_has_left_while_it_was_asked() {
    let devices = MemoryDevices::new();
    let files = Arc::new(create(&devices, 2).unwrap());
    let context = FileContext { kind: FileKind::BlockCache, origin: Origin::CacheFill };
    let number = files.create_file(context, 8192).unwrap().number();
    let cache = Arc::new(Overtaken { files: Arc::downgrade(&files), number });
    files.set_giving_way(Arc::downgrade(&cache) as _);
    let fast = &files.usage()[0];
    let bytes = fast.capacity_bytes * 95 / 100 - fast.used_bytes + 4096;
    assert_eq!(files.create_file(TABLE, bytes).unwrap().tier(), TierIndex(1));
    assert_eq!(files.create_file(TABLE, bytes).unwrap().tier(), TierIndex(0));
    let error = files.create_file(TABLE, bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
}

#[test]
fn a_cache_under_a_number_that_the_map_may_give_out_again_is_removed() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let number = add(&files, TABLE, 1000).unwrap();
    drop(files);
    // As after a restore of older files: one that is not reserved, one that a table has; and one
    // on another tier.
    let others = [(0, format!("{}.cache", FileNumber(1 << 40))), (0, format!("{number}.cache"))];
    let slow = (1, format!("{}.cache", FileNumber(3)));
    for (tier, name) in others.iter().chain([&slow]) {
        devices.tier(&specs(2)[*tier]).unwrap().create(name).unwrap();
    }
    let files = open(&devices).unwrap();
    assert_eq!(files.files().iter().map(|file| file.number).collect::<Vec<_>>(), [number]);
    assert_content(&files, number, 1000);
    for (tier, name) in others.iter().chain([&slow]) {
        assert!(!names(&devices, &tier_path(*tier)).contains(name), "{name}");
    }
}

#[test]
fn everybody_gets_the_same_file_and_a_deleted_one_stays_readable() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let number = add(&files, TABLE, 1000).unwrap();
    let (one, two) = (files.open_file(number).unwrap(), files.open_file(number).unwrap());
    assert!(Arc::ptr_eq(&one, &two));
    files.delete_files(&[number]).unwrap();
    assert_eq!(*one.read(0, 1000).unwrap(), content(number, 1000));
    assert_eq!(files.open_file(number).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(files.delete_files(&[number]).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn reclassified_tables_keep_their_level_over_reopening() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let number = add(&files, TABLE, 1000).unwrap();
    let file = files.open_file(number).unwrap();
    files.reclassify(number, FileKind::Table { level: 4 }).unwrap();
    assert_eq!(file.kind(), FileKind::Table { level: 4 });
    let error = files.reclassify(number, FileKind::Log).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    drop((file, files));
    let files = open(&devices).unwrap();
    assert_eq!(files.files()[0].kind, FileKind::Table { level: 4 });
}

#[test]
fn recycled_log_has_a_new_number_and_the_old_bytes() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let old = add(&files, LOG, 8192).unwrap();
    let file = files.recycle(old, LOG).unwrap();
    assert!(file.number() > old);
    assert_eq!(*file.read(0, 8192).unwrap(), content(old, 8192));
    assert_eq!(files.usage()[0].used_by_kind[&FileKind::Log], 8192);
    assert_eq!(files.open_file(old).unwrap_err().kind(), ErrorKind::NotFound);
    let table = add(&files, TABLE, 10).unwrap();
    assert_eq!(files.recycle(table, LOG).unwrap_err().kind(), ErrorKind::Invalid);
    files.publish(&[file.number()]).unwrap();
    let number = file.number();
    drop((files, file));
    let files = open(&devices).unwrap();
    assert_eq!(files.open_file(number).unwrap().len().unwrap(), 8192);
}

#[test]
fn account_equals_what_is_on_the_tiers() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let level = |level| FileContext { kind: FileKind::Table { level }, ..TABLE };
    let tables: Vec<_> =
        (0..6).map(|n| add(&files, level(n), 1000 * n as usize + 1).unwrap()).collect();
    let growing = files.create_file(LOG, 3000).unwrap();
    growing.write(0, Buffer::zeroed(5000)).1.unwrap();
    let announced = files.create_file(TABLE, 7777).unwrap();
    assert_eq!(files.usage()[0].used_by_kind[&FileKind::Log], 5000, "it grew past its estimate");
    files.publish(&[growing.number(), announced.number()]).unwrap();
    files.migrate(tables[5], TierIndex(1), &mut |_| {}).unwrap();
    files.delete_files(&tables[..2]).unwrap();
    for round in 0..2 {
        let files = if round == 0 { &files } else { &reopened(&devices, &files) };
        for usage in files.usage() {
            let driver = devices.directory(&usage.spec.path).unwrap();
            let entries = driver.list().unwrap();
            let data = entries.iter().filter(|entry| entry.name.contains('.'));
            assert_eq!(usage.used_bytes, data.map(|entry| entry.len).sum::<u64>(), "{usage:?}");
        }
        assert_eq!(files.usage()[1].used_by_kind[&FileKind::Table { level: 5 }], 5001);
    }
    let traffic = files.usage()[0].traffic[&FileKind::Log];
    assert_eq!((traffic.writes, traffic.written_bytes), (1, 5000));
}

/// The same database read by a second reader, which the memory driver's locks would not allow: so a
/// copy of it.
fn reopened(devices: &MemoryDevices, _first: &TieredFiles) -> TieredFiles {
    let copy = MemoryDevices::new();
    for path in [home(), tier_path(0), tier_path(1)] {
        copy.create_directory_for_test(&path);
        let (from, to) = (devices.directory(&path).unwrap(), copy.directory(&path).unwrap());
        for entry in from.list().unwrap() {
            copy_file(&from, &to, &entry.name, entry.len as usize);
        }
    }
    TieredFiles::open(&copy, &home(), None, policy(), true).unwrap()
}

fn copy_file(from: &dyn Driver, to: &dyn Driver, name: &str, len: usize) {
    use thermocline_device::Operation;
    let (source, target) = (from.open(name).unwrap(), to.create(name).unwrap());
    let read = Operation::Read { offset: 0, buffer: Buffer::zeroed(len) };
    let buffer = from.execute(&source, read).buffer;
    to.execute(&target, Operation::Write { offset: 0, buffer, durable: false }).result.unwrap();
}

trait CreateForTest {
    fn create_directory_for_test(&self, path: &std::path::Path);
}

impl CreateForTest for MemoryDevices {
    fn create_directory_for_test(&self, path: &std::path::Path) {
        Devices::create_directory(self, path).unwrap();
    }
}

#[test]
fn full_tiers_are_named_when_nothing_fits() {
    let devices = MemoryDevices::new();
    let mut specs = specs(2);
    specs.iter_mut().for_each(|spec| spec.capacity = ByteSize::mib(1));
    let files = TieredFiles::create(&devices, &home(), &specs, policy()).unwrap();
    let first = files.create_file(TABLE, 900 << 10).unwrap();
    let second = files.create_file(TABLE, 900 << 10).unwrap();
    assert_eq!((first.tier(), second.tier()), (TierIndex(0), TierIndex(1)));
    let error = files.create_file(TABLE, 900 << 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert_says(&error, &["/mnt/0 uses", "/mnt/1 uses", "of 1 MiB", "raise a capacity"]);
    files.delete_files(&[second.number()]).unwrap();
    assert!(files.create_file(TABLE, 900 << 10).is_ok());
}

#[test]
fn numbers_are_never_used_twice() {
    let devices = MemoryDevices::new();
    create(&devices, 1).unwrap().close(&[]).unwrap();
    let mut last = 0;
    for _ in 0..4 {
        let files = open(&devices).unwrap();
        for _ in 0..700 {
            let file = files.create_file(TABLE, 0).unwrap();
            assert!(file.number().0 > last);
            last = file.number().0;
            files.delete_files(&[file.number()]).unwrap();
        }
    }
}

#[test]
fn map_is_compacted_and_says_the_same() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    files.set_map_room_bytes(64 << 10);
    let kept: Vec<_> = (0..5).map(|_| add(&files, TABLE, 300).unwrap()).collect();
    for _ in 0..100 {
        let gone = add(&files, TABLE, 10).unwrap();
        files.delete_files(&[gone]).unwrap();
    }
    assert!(files.usage()[0].used_by_kind[&FileKind::Map] < 80 << 10);
    drop(files);
    let files = open(&devices).unwrap();
    assert_eq!(files.files().iter().map(|file| file.number).collect::<Vec<_>>(), kept);
}

#[test]
fn reading_only_changes_nothing_and_refuses_changes() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let number = add(&files, TABLE, 100).unwrap();
    files.create_file(TABLE, 0).unwrap();
    drop(files);
    let before = names(&devices, &tier_path(0));
    let files = TieredFiles::open(&devices, &home(), None, policy(), true).unwrap();
    assert_content(&files, number, 100);
    let error = files.delete_files(&[number]).unwrap_err();
    assert_says(&error, &["/db", "for reading only"]);
    files.close(&[]).unwrap();
    assert_eq!(names(&devices, &tier_path(0)), before);
}

#[test]
fn batches_and_pending_reads_over_two_tiers_come_back_in_order() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 2).unwrap();
    let (one, two) = (add(&files, TABLE, 9000).unwrap(), add(&files, TABLE, 9000).unwrap());
    files.migrate(two, TierIndex(1), &mut |_| {}).unwrap();
    let open = [files.open_file(one).unwrap(), files.open_file(two).unwrap()];
    let reads: Vec<_> = (0..100usize)
        .map(|n| ReadAt { file: &open[n % 2], offset: (n * 80) as u64, len: n * 3 })
        .collect();
    for (read, result) in reads.iter().zip(read_batch(&reads)) {
        let bytes = content(read.file.number(), 9000);
        let (start, end) = (read.offset as usize, read.offset as usize + read.len);
        assert_eq!(*result.unwrap(), bytes[start..end]);
    }
    let results = read_batch(&[
        ReadAt { file: &open[0], offset: 8990, len: 20 },
        ReadAt { file: &open[1], offset: 0, len: 20 },
        ReadAt { file: &open[1], offset: u64::MAX - 5, len: usize::MAX },
    ]);
    let error = results[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_says(error, &["table", "tier 0", "/mnt/0", "8990"]);
    assert!(results[1].is_ok());
    assert_eq!(results[2].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
    let pending: Vec<_> = (0..5).map(|n| open[1].start_read(n * 2000, 2000)).collect();
    let whole: Vec<u8> = pending.into_iter().flat_map(|p| p.wait().unwrap().to_vec()).collect();
    assert_eq!(whole, content(two, 9000), "the last one is short");
}

#[test]
fn reads_that_lie_close_together_are_one_and_each_gets_its_own_bytes() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let (one, two) = (add(&files, TABLE, 300_000).unwrap(), add(&files, TABLE, 9000).unwrap());
    let open = [files.open_file(one).unwrap(), files.open_file(two).unwrap()];
    let reads = || files.usage()[0].traffic[&TABLE.kind].reads;
    let check = |asked: &[(usize, u64, usize)], wanted: u64| {
        let read = |(file, offset, len): &(usize, u64, usize)| ReadAt {
            file: &open[*file],
            offset: *offset,
            len: *len,
        };
        let batch: Vec<_> = asked.iter().map(read).collect();
        // All at once, or so many bytes of them started before.
        for ahead in [None, Some(0), Some(40_000), Some(usize::MAX)] {
            let before = reads();
            let found = match ahead {
                None => read_joined(&batch),
                Some(bytes_max) => start_joined(&batch, bytes_max).wait(&batch),
            };
            for (read, result) in batch.iter().zip(found) {
                let bytes = content(read.file.number(), 300_000);
                let (start, end) = (read.offset as usize, read.offset as usize + read.len);
                assert_eq!(*result.unwrap(), bytes[start..end], "{asked:?}");
            }
            assert_eq!(reads() - before, wanted, "{asked:?}");
        }
    };
    check(&[], 0);
    check(&[(0, 100, 50)], 1);
    // Neighbours, in any order, twice, one inside the other, beside those of another file.
    check(&[(0, 4000, 4000), (0, 0, 4000), (0, 8000, 100)], 1);
    check(&[(0, 4000, 400), (1, 0, 4000), (0, 4000, 400), (1, 4000, 7), (0, 4100, 100)], 2);
    check(&[(0, 0, 8000), (0, 100, 10), (0, 8000, 10)], 1);
    // A gap of 16 KiB is read, one more byte is not.
    check(&[(0, 0, 1000), (0, 1000 + 16_384, 1000)], 1);
    check(&[(0, 0, 1000), (0, 1000 + 16_385, 1000)], 2);
    // 64 KiB are one read, and more are several; what is larger is a read as it is.
    check(&[(0, 0, 32_768), (0, 32_768, 32_768)], 1);
    check(&[(0, 0, 32_768), (0, 32_768, 32_769)], 2);
    check(&[(0, 0, 100_000), (0, 100_000, 100_000)], 2);
}

#[test]
fn one_of_several_that_cannot_be_read_does_not_take_its_neighbours_with_it() {
    let devices = MemoryDevices::new();
    let files = create(&devices, 1).unwrap();
    let number = add(&files, TABLE, 9000).unwrap();
    let file = files.open_file(number).unwrap();
    let read = |offset, len| ReadAt { file: &file, offset, len };
    let batch =
        [read(8000, 500), read(8500, 501), read(7000, 1000), read(u64::MAX - 5, usize::MAX)];
    let bytes = content(number, 9000);
    for found in [read_joined(&batch), start_joined(&batch, 1 << 20).wait(&batch)] {
        assert_eq!(**found[0].as_ref().unwrap(), bytes[8000..8500]);
        assert_eq!(**found[2].as_ref().unwrap(), bytes[7000..8000]);
        for beyond in [1, 3] {
            assert_eq!(found[beyond].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}

#[test]
fn overlapping_writes_all_arrive_and_a_failed_one_is_told() {
    use crate::simulated::{Fault, SimulatedDevices};
    let devices = SimulatedDevices::new(Fault::None);
    let files = create(&devices, 1).unwrap();
    let file = files.create_file(TABLE, 0).unwrap();
    let bytes = content(file.number(), 20 * 512);
    let mut writes = file.start_writes(3).unwrap();
    for (index, chunk) in bytes.chunks(512).enumerate() {
        writes.write(index as u64 * 512, Buffer::copy_of(chunk)).unwrap();
    }
    writes.finish().unwrap();
    assert_eq!(*file.read(0, bytes.len()).unwrap(), bytes[..]);

    let file = files.create_file(TABLE, 0).unwrap();
    let mut writes = file.start_writes(8).unwrap();
    let all: Vec<_> = (0u64..).step_by(512).zip(bytes.chunks(512).map(Buffer::copy_of)).collect();
    let mut rest = all.into_iter();
    // The last ones are more than may be in flight.
    for count in [0, 1, 5, 14] {
        writes.write_all(rest.by_ref().take(count).collect(), 3 * 512).unwrap();
    }
    writes.finish().unwrap();
    assert_eq!(*file.read(0, bytes.len()).unwrap(), bytes[..]);

    devices.set_fault(Fault::Once(1));
    let mut writes = file.start_writes(2).unwrap();
    let batch = || (0..2u64).map(|index| (index * 512, Buffer::zeroed(512))).collect();
    writes.write_all(batch(), 1 << 20).unwrap();
    let error = writes.write_all(batch(), 1 << 20).unwrap_err();
    assert_says(&error, &["write 512 bytes at 512 of", ".table", "tier 0", "/mnt/0"]);
    assert_eq!(writes.finish().unwrap_err().to_string(), error.to_string());

    devices.set_fault(Fault::Once(1));
    let mut writes = file.start_writes(2).unwrap();
    let results: Vec<_> =
        (0..5u64).map(|index| writes.write(index * 512, Buffer::zeroed(512))).collect();
    let error = results[4].as_ref().unwrap_err();
    assert_says(error, &["write 512 bytes at 512 of", ".table", "tier 0", "/mnt/0"]);
    assert_eq!(writes.finish().unwrap_err().to_string(), error.to_string());
}
