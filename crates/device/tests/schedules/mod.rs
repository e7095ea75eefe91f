//! Tiered files under chosen schedules: see `thermocline_foundation::sync::schedules`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod names;
mod open_files;

use crate::drivers::posix::PosixDriver;
use crate::{
    Buffer, Devices, Driver, ErrorKind, File, FileContext, FileKind, FillFirst, MemoryDevices,
    Operation, Origin, ReadAt, Request, TierIndex, TierSpec, TieredFiles, read_batch,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::schedules::check;
use thermocline_foundation::threads::{self, JoinHandle};
use thermocline_foundation::{ByteSize, FileNumber};

const TABLE: FileContext =
    FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Flush };
const LOG: FileContext = FileContext { kind: FileKind::Log, origin: Origin::Foreground };
const LEN: usize = 9000;

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

fn tier_path(index: u8) -> PathBuf {
    PathBuf::from(format!("/mnt/{index}"))
}

fn create(devices: &MemoryDevices) -> Arc<TieredFiles> {
    let spec = |index| TierSpec {
        path: tier_path(index),
        capacity: ByteSize::mib(1),
        driver: "memory".to_owned(),
    };
    let specs = [spec(0), spec(1)];
    let policy = Arc::new(FillFirst);
    Arc::new(TieredFiles::create(devices, Path::new("/db"), &specs, policy).unwrap())
}

fn content(number: FileNumber) -> Vec<u8> {
    (0..LEN).map(|at| (at as u64 * 7 + number.0) as u8).collect()
}

fn add(files: &TieredFiles, context: FileContext) -> Arc<File> {
    let file = files.create_file(context, LEN as u64).unwrap();
    file.write(0, Buffer::copy_of(&content(file.number()))).1.unwrap();
    file.sync().unwrap();
    files.publish(&[file.number()]).unwrap();
    file
}

/// A table that counts with so many bytes.
fn add_long(files: &TieredFiles, bytes: u64) -> FileNumber {
    let file = files.create_file(TABLE, bytes).unwrap();
    file.write(0, Buffer::copy_of(&content(file.number()))).1.unwrap();
    file.sync().unwrap();
    files.publish(&[file.number()]).unwrap();
    files.announce_bytes(file.number(), bytes);
    file.number()
}

fn names(devices: &MemoryDevices, tier: u8, end: &str) -> Vec<String> {
    let entries = devices.home(&tier_path(tier)).unwrap().list().unwrap();
    entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(end)).collect()
}

/// What the namespace counts is what the directories hold.
fn assert_accounts(devices: &MemoryDevices, files: &TieredFiles) {
    for usage in files.usage() {
        let tables = names(devices, usage.tier.0, ".table").len();
        let bytes = usage.used_by_kind.get(&TABLE.kind).copied().unwrap_or(0);
        assert_eq!(bytes, (tables * LEN) as u64, "{}: {tables} tables", usage.tier);
    }
}

#[test]
fn a_file_that_is_read_moved_and_deleted_at_once_is_whole_until_it_is_gone() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let number = add(&files, TABLE).number();
        let reader = {
            let files = Arc::clone(&files);
            spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let file = match files.open_file(number) {
                        Ok(file) => file,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                            return;
                        }
                    };
                    let pending = file.start_read(100, 5000);
                    assert!(*file.read(0, LEN).unwrap() == content(number)[..]);
                    assert!(*pending.wait().unwrap() == content(number)[100..5100]);
                    assert!(file.tier().0 >= last, "it moves one way");
                    last = file.tier().0;
                }
            })
        };
        let mover = {
            let files = Arc::clone(&files);
            spawn(move || {
                if let Err(error) = files.migrate(number, TierIndex(1), &mut |_| {}) {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                }
            })
        };
        let other = add(&files, TABLE);
        files.delete_files(&[number]).unwrap();
        join([reader, mover]);
        assert_eq!(names(&devices, 0, ".table"), [format!("{}.table", other.number())]);
        assert_eq!(names(&devices, 1, ".table"), [""; 0]);
        assert_accounts(&devices, &files);
        assert_eq!(files.files().len(), 1);
    });
}

#[test]
fn files_made_moved_and_reclassified_by_many_are_all_accounted_for_and_found_again() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let held = add(&files, TABLE);
        let first = held.number();
        let makers = (0..2).map(|maker| {
            let files = Arc::clone(&files);
            spawn(move || {
                let number = add(&files, TABLE).number();
                match files.migrate(first, TierIndex(1), &mut |_| {}) {
                    Ok(()) => {}
                    Err(error) => panic!("{error}"),
                }
                if maker == 0 {
                    files.reclassify(number, FileKind::Table { level: 0 }).unwrap();
                }
                number
            })
        });
        let makers: Vec<_> = makers.collect();
        let usage = files.usage();
        let most = 3 * LEN as u64;
        let used = |tier: usize| usage[tier].used_by_kind.get(&TABLE.kind).copied().unwrap_or(0);
        assert!(used(0) + used(1) <= most + LEN as u64, "a file on the move counts twice at most");
        let mut numbers = join(makers);
        numbers.push(first);
        assert_eq!(held.tier(), TierIndex(1), "a reader of the open file reads the new copy");
        drop(held);
        assert_accounts(&devices, &files);
        files.close(&[]).unwrap();
        drop(files);
        let policy = Arc::new(FillFirst);
        let files = TieredFiles::open(&devices, Path::new("/db"), None, policy, false).unwrap();
        for number in numbers {
            let file = files.open_file(number).unwrap();
            assert!(*file.read(0, LEN).unwrap() == content(number)[..]);
        }
        assert_accounts(&devices, &files);
    });
}

#[test]
fn a_recycled_log_has_one_new_name_and_no_thread_loses_bytes() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let old = add(&files, LOG).number();
        let recyclers = (0..2).map(|_| {
            let files = Arc::clone(&files);
            spawn(move || match files.recycle(old, LOG) {
                Ok(file) => {
                    assert!(*file.read(0, LEN).unwrap() == content(old)[..]);
                    files.publish(&[file.number()]).unwrap();
                    Some(file.number())
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                    None
                }
            })
        });
        let recyclers: Vec<_> = recyclers.collect();
        let made: Vec<_> = join(recyclers).into_iter().flatten().collect();
        assert_eq!(made.len(), 1, "a log is recycled once");
        assert_eq!(names(&devices, 0, ".log"), [format!("{}.log", made[0])]);
        assert_eq!(files.files().len(), 1);
    });
}

#[test]
fn a_file_gets_the_room_of_a_deleted_or_moved_one_once_that_is_gone() {
    const BYTES: u64 = 600 << 10;
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let (moved, deleted) = (add_long(&files, BYTES), add_long(&files, BYTES));
        let mover = {
            let files = Arc::clone(&files);
            spawn(move || {
                files.delete_files(&[deleted]).unwrap();
                if let Err(error) = files.migrate(moved, TierIndex(1), &mut |_| {}) {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
                }
            })
        };
        let makers = (0..2).map(|_| {
            let (files, devices) = (Arc::clone(&files), devices.clone());
            spawn(move || match files.create_file(TABLE, BYTES) {
                Ok(file) => {
                    let tier = file.tier().0;
                    let old = if tier == 0 { moved } else { deleted };
                    let old = format!("{old}.table");
                    assert!(!names(&devices, tier, ".table").contains(&old), "{tier}");
                    files.delete_files(&[file.number()]).unwrap();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}"),
            })
        });
        let makers: Vec<_> = makers.collect();
        join(makers);
        join([mover]);
    });
}

#[test]
fn batches_and_streams_of_many_threads_share_the_queues_of_a_tier() {
    check(2000, || {
        let devices = MemoryDevices::new();
        let files = create(&devices);
        let written: Vec<_> = (0..2).map(|_| add(&files, TABLE)).collect();
        let readers = (0..2).map(|_| {
            let (files, written) = (Arc::clone(&files), written.clone());
            spawn(move || {
                let read = |file, offset| ReadAt { file, offset, len: 100 };
                let reads = [read(&*written[0], 0), read(&*written[1], 50), read(&*written[0], 8)];
                for (read, result) in reads.iter().zip(read_batch(&reads)) {
                    let at = read.offset as usize;
                    let expected = &content(read.file.number())[at..at + 100];
                    assert!(*result.unwrap() == *expected);
                }
                let fresh = files.create_file(TABLE, 0).unwrap();
                let mut writes = fresh.start_writes(2).unwrap();
                for page in 0..3u8 {
                    writes.write(u64::from(page) * 100, Buffer::copy_of(&[page; 100])).unwrap();
                }
                writes.finish().unwrap();
                for page in 0..3u8 {
                    assert!(*fresh.read(u64::from(page) * 100, 100).unwrap() == [page; 100]);
                }
            })
        });
        let readers: Vec<_> = readers.collect();
        join(readers);
    });
}

#[test]
fn every_request_of_a_pooled_queue_completes_once_and_its_threads_end() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().to_owned();
    check(2000, move || {
        let driver = Arc::new(PosixDriver::open(&path).unwrap());
        let users = (0..2u8).map(|user| {
            let driver = Arc::clone(&driver);
            spawn(move || {
                let name = format!("file{user}");
                drop(driver.delete(&name));
                let file = driver.create(&name).unwrap();
                let mut queue = driver.queue(2).unwrap();
                let write = |tag: u64| {
                    let buffer = Buffer::copy_of(&[tag as u8; 64]);
                    let operation = Operation::Write { offset: tag * 64, buffer, durable: false };
                    Request { tag, file: Arc::clone(&file), operation }
                };
                let mut done = Vec::new();
                queue.submit(&mut (0..3).map(write).collect());
                queue.reap(1, &mut done);
                queue.submit(&mut (3..5).map(write).collect());
                let left = queue.in_flight();
                queue.reap(left, &mut done);
                let mut tags: Vec<_> = done.iter().map(|done| done.tag).collect();
                tags.sort_unstable();
                assert_eq!(tags, [0, 1, 2, 3, 4]);
                assert!(done.iter().all(|done| *done.result.as_ref().unwrap() == 64));
                // Dropped with requests in flight: the queue waits for them.
                queue.submit(&mut (5..7).map(write).collect());
                drop(queue);
                let buffer = Buffer::zeroed(7 * 64);
                let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
                assert_eq!(read.result.unwrap(), 7 * 64);
                assert!(read.buffer.chunks(64).zip(0u8..).all(|(page, tag)| page == [tag; 64]));
            })
        });
        let users: Vec<_> = users.collect();
        join(users);
    });
}
