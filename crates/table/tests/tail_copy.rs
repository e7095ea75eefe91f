//! Copies of a table's tail: what is read through them, and that a look-up notices nothing that
//! happens to them.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use support::*;
use thermocline_device::{Buffer, Driver, File, FileKind, TierIndex};
use thermocline_foundation::random::Random;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_table::{
    BlockCache, Compression, ReadAhead, TableOptions, TableReader, TableWriter, TailCounts,
};

fn options() -> TableOptions {
    let compression = Compression::None;
    TableOptions { block_bytes: 256, partition_bytes: 400, compression, ..TableOptions::default() }
}

/// A table whose reads are counted and can be made to fail, with a cache that holds nothing.
fn table(number: u64, rows: &[Row]) -> (FailingDriver, Arc<TableReader>) {
    let driver = FailingDriver::default();
    driver.writes_left.store(u64::MAX, Relaxed);
    let shared: Arc<dyn Driver> = Arc::new(driver.clone());
    let file = file_on(Arc::clone(&shared), shared.create("t").unwrap(), DATABASE, number);
    let mut writer = TableWriter::new(Arc::clone(&file), options());
    rows.iter().for_each(|(key, trailer, value)| writer.add(key, *trailer, value).unwrap());
    writer.finish().unwrap();
    let none = Arc::new(BlockCache::new(0));
    (driver, Arc::new(TableReader::open(file, none).unwrap()))
}

/// An empty file for a copy, which has a number of its own.
fn copy_file() -> Arc<File> {
    let driver: Arc<dyn Driver> = Arc::new(thermocline_device::drivers::MemoryDriver::new());
    let handle = driver.create("c").unwrap();
    let number = FileNumber(900);
    Arc::new(File::new(DATABASE, number, FileKind::TableIndex, TierIndex(0), driver, handle))
}

fn copied(table: &TableReader) -> (Arc<File>, Arc<TailCounts>) {
    let (file, counts) = (copy_file(), Arc::default());
    table.copy_tail(Arc::clone(&file), &counts).unwrap();
    (file, counts)
}

fn check(table: &TableReader, rows: &[Row]) {
    for (key, trailer, value) in rows {
        let got = table.get(key, trailer.sequence()).unwrap().unwrap();
        assert!(got.0 == *trailer && got.1 == *value);
    }
    assert_eq!(table.get(b"lake/60", Sequence::MAX).unwrap(), None);
}

#[test]
fn with_a_copy_a_key_costs_one_read_of_the_table_and_an_absent_one_none() {
    let rows = small_rows();
    let (driver, table) = table(7, &rows);
    let reads = |ask: &dyn Fn()| {
        let before = driver.reads.load(Relaxed);
        ask();
        driver.reads.load(Relaxed) - before
    };
    let present = || drop(table.get(b"lake/07/temperature", Sequence::MAX).unwrap().unwrap());
    let absent = || assert_eq!(table.get(b"lake/07/depth", Sequence::MAX).unwrap(), None);
    assert_eq!((reads(&present), reads(&absent)), (3, 1), "filter, index, block; filter");
    let (file, counts) = copied(&table);
    assert_eq!(file.len().unwrap(), table.tail_bytes());
    assert_eq!((reads(&present), reads(&absent)), (1, 0));
    assert_eq!(counts.served.get(), 3);
    check(&table, &rows);
    assert_eq!(counts.failed.get(), 0);
}

#[test]
fn a_copy_is_the_end_of_the_golden_tables_and_serves_every_version() {
    for version in [1, 2] {
        let name = format!("plain-v{version}.table");
        let path = [env!("CARGO_MANIFEST_DIR"), "tests", "golden", &name];
        let bytes = std::fs::read(path.iter().collect::<std::path::PathBuf>()).unwrap();
        let none = Arc::new(BlockCache::new(0));
        let table = TableReader::open(file_of(&bytes), none).unwrap();
        let (file, counts) = copied(&table);
        let copy = bytes_of(&file);
        assert_eq!(copy, bytes[bytes.len() - copy.len()..]);
        assert_eq!(copy[copy.len() - 4096..][..8], *b"TC\0table");
        check(&table, &small_rows());
        assert!(counts.served.get() > 0 && counts.failed.get() == 0);
    }
}

/// Whatever is in its place: answers are right, and it is given up.
#[test]
fn a_copy_of_another_table_or_an_older_one_is_not_served() {
    let rows = small_rows();
    let mut others = rows.clone();
    // Blocks of the same lengths in the same places.
    others.iter_mut().for_each(|row| row.0.iter_mut().for_each(|byte| *byte ^= 0x01));
    others.sort_by(|a, b| (&a.0, b.1).cmp(&(&b.0, a.1)));
    let (_, table) = table(7, &rows);
    let (foreign, _) = copied(&self::table(8, &others).1);
    let (same_rows, _) = copied(&self::table(8, &rows).1);
    for other in [foreign, same_rows] {
        let (file, counts) = copied(&table);
        assert!(table.copy_failure().is_none());
        file.write(0, Buffer::copy_of(&bytes_of(&other))).1.unwrap();
        check(&table, &rows);
        assert_eq!((counts.served.get(), counts.failed.get()), (0, 1), "one look is enough");
        assert!(table.copy_failure().is_some());
        assert_eq!(table.take_copy(), Some(FileNumber(900)));
        assert!(!table.has_copy() && table.take_copy().is_none());
        check(&table, &rows);
    }
}

#[test]
fn a_copy_that_is_cut_is_given_up_where_it_lacks_something() {
    let rows = small_rows();
    let (_, table) = table(7, &rows);
    for len in (0..table.tail_bytes()).rev().step_by(512) {
        let (file, counts) = copied(&table);
        file.truncate(len).unwrap();
        check(&table, &rows);
        assert!(len > 0 || counts.failed.get() == 1);
    }
}

/// What the copy's decoder is given are these bytes and no others: the table's decoder behind the
/// checksums, or the table.
#[test]
fn every_damage_of_a_copy_makes_no_difference() {
    let rows = small_rows();
    let (_, table) = table(7, &rows);
    let (file, _) = copied(&table);
    let good = bytes_of(&file);
    let mut random = Random::new(0x1DE5);
    let (mut served, mut failed) = (0, 0);
    for _ in 0..1000 {
        let mut bad = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bad.len() as u64) as usize;
            let end = (at + 1 + random.below(300) as usize).min(bad.len());
            match random.below(3) {
                0 => bad[at] ^= 1 << random.below(8),
                1 => bad[at..end].fill(0),
                _ => bad[at..end].copy_from_slice(&good[good.len() - (end - at)..]),
            }
        }
        let (file, counts) = copied(&table);
        file.write(0, Buffer::copy_of(&bad)).1.unwrap();
        check(&table, &rows);
        served += counts.served.get();
        failed += counts.failed.get();
    }
    assert!(served > 1000 && failed > 200, "{served} served, {failed} failed");
}

#[test]
fn what_goes_past_the_cache_reads_the_table_itself() {
    let rows = small_rows();
    let (_, table) = table(7, &rows);
    let (_, counts) = copied(&table);
    check(&table, &rows);
    let served = counts.served.get();
    table.verify(&mut |_| {}).unwrap();
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 8192 });
    it.seek_to_first().unwrap();
    assert_eq!(counts.served.get(), served);
    let tail = table.file_bytes() - table.tail_bytes();
    table.file().write(tail, Buffer::zeroed(table.tail_bytes() as usize)).1.unwrap();
    table.verify(&mut |_| {}).unwrap_err();
}

#[test]
fn a_table_that_cannot_be_read_gets_no_copy() {
    let rows = small_rows();
    let (driver, table) = table(7, &rows);
    driver.to.store(table.file_bytes(), Relaxed);
    let counts = Arc::default();
    table.copy_tail(copy_file(), &counts).unwrap_err();
    assert!(!table.has_copy());
    driver.to.store(0, Relaxed);
    check(&table, &rows);
}
