//! Seeks whose reads are left to the caller: they come to what plain seeks come to, with the same
//! reads and the same counts, and an error that is supplied is the iterator's.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use support::*;
use thermocline_device::{Error, ErrorKind};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_table::{
    BlockCache, BlockClass, Compression, ReadAhead, TableIterator, TableOptions, TableReader,
    TableWriter,
};

const KEYS: u64 = 3000;

fn key(number: u64) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// A table of many partitions on a device of its own.
fn table(driver: &Arc<FailingDriver>, capacity_bytes: u64) -> Arc<TableReader> {
    let file = driver.file();
    let compression = Compression::None;
    let options = TableOptions { partition_bytes: 256, compression, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    for number in 0..KEYS {
        writer.add(&key(2 * number), put(number), &[number as u8; 300]).unwrap();
    }
    assert!(writer.finish().unwrap().partitions > 10);
    Arc::new(TableReader::open(file, Arc::new(BlockCache::new(capacity_bytes))).unwrap())
}

/// One of all kinds of seeks, as drawn.
fn seek(it: &mut TableIterator, kind: u64, key: &[u8]) -> thermocline_device::Result<()> {
    match kind {
        0 => it.seek_to_first(),
        1 => it.seek_to_last(),
        kind if kind % 2 == 0 => it.seek(key, Sequence::MAX),
        _ => it.seek_for_prev(key, Sequence::MAX),
    }
}

fn entry(it: &TableIterator) -> Option<(Vec<u8>, u64)> {
    it.valid().then(|| (it.key().to_vec(), it.trailer().word()))
}

#[test]
fn a_seek_whose_reads_are_left_to_the_caller_reads_and_counts_as_a_plain_one_does() {
    // A cache for all, for some, for nothing.
    for capacity_bytes in [64 << 20, 100_000, 0] {
        let drivers = [FailingDriver::new(), FailingDriver::new()];
        let tables = [0, 1].map(|at| table(&drivers[at], capacity_bytes));
        let mode = ReadAhead::Adaptive { first_bytes: 10_000, window_bytes_max: 1 << 20 };
        let mut its = [0, 1].map(|at| tables[at].iter(mode));
        let (mut random, mut most) = (Random::new(11), 0);
        for _ in 0..4000 {
            let (kind, number) = (random.below(40), random.below(2 * KEYS + 2));
            let plain = |it: &mut TableIterator| seek(it, kind, &key(number));
            plain(&mut its[0]).unwrap();
            let mut waits = 0;
            while let Some(awaited) = its[1].begin(plain).unwrap() {
                assert!(!its[1].valid());
                let wanted = awaited.read_at();
                let read = wanted.file.read(wanted.offset, wanted.len);
                its[1].supply(&awaited, read).unwrap();
                waits += 1;
            }
            most = most.max(waits);
            for _ in 0..random.below(30) {
                assert_eq!(entry(&its[0]), entry(&its[1]));
                its.iter_mut().for_each(|it| it.next().unwrap());
            }
            let read =
                |at: usize| [drivers[at].reads.load(Relaxed), drivers[at].read_bytes.load(Relaxed)];
            assert_eq!(read(0), read(1), "kind {kind}, key {number}");
        }
        assert_eq!(most, 2, "a partition, then a window");
        for class in [BlockClass::Index, BlockClass::Data] {
            let [plain, begun] = [0, 1].map(|at| tables[at].cache().counts(class));
            assert_eq!(plain, begun, "{class:?} with {capacity_bytes} bytes");
        }
    }
}

#[test]
fn a_seek_that_is_given_up_while_it_waits_leaves_nothing_behind() {
    let driver = FailingDriver::new();
    let table = table(&driver, 64 << 20);
    let mut it = table.iter(ReadAhead::default());
    for number in 0..100 {
        let begun = it.begin(|it| it.seek(&key(60 * number), Sequence::MAX)).unwrap();
        if number % 2 == 0 {
            let awaited = begun.expect("nothing of it is in memory");
            let read = awaited.read_at().file.read(awaited.read_at().offset, awaited.read_at().len);
            it.supply(&awaited, read).unwrap();
        }
        it.seek(&key(60 * number + 31), Sequence::MAX).unwrap();
        assert_eq!(it.key(), key(60 * number + 32));
        it.seek(&key(60 * number), Sequence::MAX).unwrap();
        assert_eq!(it.key(), key(60 * number));
        table.cache().clear();
    }
}

#[test]
fn an_error_that_is_supplied_stays_until_the_next_seek() {
    let driver = FailingDriver::new();
    let table = table(&driver, 64 << 20);
    // First the partition's read fails, then the window's.
    for fails_after in 0..2 {
        table.cache().clear();
        let mut it = table.iter(ReadAhead::default());
        let first = |it: &mut TableIterator| it.seek_to_first();
        for _ in 0..fails_after {
            let awaited = it.begin(first).unwrap().unwrap();
            let wanted = awaited.read_at();
            it.supply(&awaited, wanted.file.read(wanted.offset, wanted.len)).unwrap();
        }
        let awaited = it.begin(first).unwrap().unwrap();
        let lost = it.supply(&awaited, Err(Error::new(ErrorKind::Io, "lost")));
        assert_eq!(lost.unwrap_err().to_string(), "lost");
        assert!(!it.valid());
        assert_eq!(it.next().unwrap_err().to_string(), "lost", "it looks like the end");
        it.seek_to_first().unwrap();
        assert_eq!(it.key(), key(0));
    }
}

#[test]
fn a_damaged_partition_that_is_supplied_is_reported_with_its_place() {
    let driver = FailingDriver::new();
    let table = table(&driver, 64 << 20);
    let mut it = table.iter(ReadAhead::default());
    let awaited = it.begin(|it| it.seek_to_first()).unwrap().unwrap();
    let wanted = awaited.read_at();
    let mut damaged = wanted.file.read(wanted.offset, wanted.len).unwrap();
    damaged[3] ^= 1;
    let error = it.supply(&awaited, Ok(damaged)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("00000007.table"), "{text}");
    assert!(text.contains(&wanted.offset.to_string()), "{text}");
}

#[test]
fn iterators_that_stream_read_themselves() {
    let driver = FailingDriver::new();
    let table = table(&driver, 64 << 20);
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 1 << 16 });
    assert!(it.begin(|it| it.seek_to_first()).unwrap().is_none());
    assert_eq!(it.key(), key(0));
}
