//! Damaged tables: every flipped byte, cut page, swapped or foreign block is reported or makes no
//! difference, and a failing device never looks like the end of a table.
#![allow(clippy::disallowed_methods, reason = "golden files are the test's own")]
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use support::*;
use thermocline_device::{Buffer, Error, ErrorKind, Result};
use thermocline_foundation::{DatabaseId, Sequence};
use thermocline_table::{
    BlockCache, Compression, ReadAhead, TableOptions, TableReader, TableWriter,
};

fn small_options(compression: Compression) -> TableOptions {
    TableOptions { block_bytes: 256, partition_bytes: 400, compression, ..TableOptions::default() }
}

fn expect_corrupt(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let text = error.to_string();
    assert!(text.contains("00000007.table") && text.contains("offset"), "{text}");
    assert!(!text.contains('\n'));
}

/// Every read of every key answers rightly or reports corruption; returns how many were reported.
fn read_all(table: &Arc<TableReader>, rows: &[Row]) -> usize {
    let mut reported = 0;
    for (key, trailer, value) in rows {
        match table.get(key, trailer.sequence()) {
            Ok(got) => {
                let (found, bytes) = got.expect("a key of a damaged table is lost in silence");
                assert!(found == *trailer && bytes == *value, "a wrong answer was served");
            }
            Err(error) => {
                expect_corrupt(&error);
                reported += 1;
            }
        }
    }
    reported + walk(table, rows, true) + walk(table, rows, false)
}

fn walk(table: &Arc<TableReader>, rows: &[Row], forward: bool) -> usize {
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 8192 });
    let mut moved = if forward { it.seek_to_first() } else { it.seek_to_last() };
    let mut seen = 0;
    loop {
        if let Err(error) = moved {
            expect_corrupt(&error);
            assert!(!it.valid());
            expect_corrupt(&it.next().unwrap_err());
            return 1;
        }
        if !it.valid() {
            assert_eq!(seen, rows.len(), "a damaged table ends early");
            return 0;
        }
        let row = if forward { &rows[seen] } else { &rows[rows.len() - 1 - seen] };
        assert!(it.key() == row.0 && it.trailer() == row.1 && it.value() == row.2);
        seen += 1;
        moved = if forward { it.next() } else { it.prev() };
    }
}

fn verify(bytes: &[u8]) -> Result<()> {
    open(&file_of(bytes))?.verify(&mut |_| {}).map(drop)
}

fn flip_every_byte(name: &str, good: &[u8], rows: &[Row]) {
    let table = open(&file_of(good)).unwrap();
    assert_eq!(read_all(&table, rows), 0, "{name}");
    verify(good).unwrap();
    let mut bad = good.to_vec();
    for at in 0..good.len() {
        for flip in [1u8 << (at % 8), 0xff] {
            bad[at] ^= flip;
            expect_corrupt(&verify(&bad).expect_err("verify passes over a flipped byte"));
            // Only verify reads padding; elsewhere one flip in eight is read in full.
            if at % 8 == 0 {
                match open(&file_of(&bad)) {
                    Ok(table) => drop(read_all(&table, rows)),
                    Err(error) => expect_corrupt(&error),
                }
            }
            bad[at] = good[at];
        }
    }
}

#[test]
fn every_flipped_byte_is_reported_or_makes_no_difference() {
    let rows = small_rows();
    for (name, compression) in all_compressions() {
        let (file, _) = write(&rows, small_options(compression));
        flip_every_byte(name, &bytes_of(&file), &rows);
    }
}

#[test]
fn every_flipped_byte_of_a_table_of_version_1_is_reported_too() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plain-v1.table");
    flip_every_byte("version 1", &std::fs::read(golden).unwrap(), &small_rows());
}

#[test]
fn a_table_cut_at_any_page_does_not_open() {
    let (file, summary) = write(&small_rows(), small_options(Compression::None));
    let good = bytes_of(&file);
    assert!(summary.file_bytes > 3 * 4096);
    for pages in 0..good.len() / 4096 {
        let cut = &good[..pages * 4096];
        expect_corrupt(&open(&file_of(cut)).unwrap_err());
        expect_corrupt(&open(&file_of(&good[..pages * 4096 + 100])).unwrap_err());
    }
}

#[test]
fn a_table_cut_after_it_was_opened_is_reported_damaged() {
    let rows = small_rows();
    let (file, _) = write(&rows, small_options(Compression::None));
    let table = open(&file).unwrap();
    file.truncate(4096).unwrap();
    assert!(read_all(&table, &rows) > 0);
    expect_corrupt(&table.verify(&mut |_| {}).unwrap_err());
}

#[test]
fn swapped_pages_and_blocks_of_other_tables_and_databases_are_found() {
    let rows = small_rows();
    // Blocks of just a page each, so that swapping pages swaps whole intact blocks.
    let options = TableOptions {
        block_bytes: 4096,
        restart_interval: 1,
        compression: Compression::None,
        ..TableOptions::default()
    };
    let (file, _) = write(&rows, options);
    let good = bytes_of(&file);
    let mut swapped = good.clone();
    let (first, rest) = swapped.split_at_mut(4096);
    first.swap_with_slice(&mut rest[..4096]);
    let table = open(&file_of(&swapped)).unwrap();
    assert!(read_all(&table, &rows) > 0);
    expect_corrupt(&verify(&swapped).unwrap_err());
    let foreign = file_as(&good, DatabaseId([9; 16]), 7);
    expect_corrupt(&open(&foreign).unwrap_err());
    let other = file_as(&good, DATABASE, 8);
    assert_eq!(open(&other).unwrap_err().kind(), ErrorKind::Corrupt);
    // A page of another table, intact, at the same offset.
    let donor = file_as(&[], DATABASE, 9);
    let mut writer = TableWriter::new(Arc::clone(&donor), small_options(Compression::None));
    rows.iter().for_each(|row| writer.add(&row.0, row.1, &row.2).unwrap());
    writer.finish().unwrap();
    let mut mixed = good.clone();
    mixed[..4096].copy_from_slice(&bytes_of(&donor)[..4096]);
    assert!(read_all(&open(&file_of(&mixed)).unwrap(), &rows) > 0);
}

#[test]
fn garbage_with_a_valid_checksum_neither_panics_nor_allocates_without_bound() {
    for (_, compression) in all_compressions() {
        garbage(compression);
    }
}

fn garbage(compression: Compression) {
    use thermocline_foundation::{checksum, random::Random};
    let rows = small_rows();
    let (file, _) = write(&rows, small_options(compression));
    let good = bytes_of(&file);
    let footer_at = good.len() - 4096;
    let place = file.place(footer_at as u64);
    let mut random = Random::new(5);
    let reseal = |page: &mut [u8]| {
        let sum = checksum(&place, &page[..4092]);
        page[4092..].copy_from_slice(&sum.to_le_bytes());
    };
    for _ in 0..2000 {
        let mut bad = good.clone();
        let page = &mut bad[footer_at..];
        let at = 16 + random.below(32) as usize;
        page[at] = random.next_u64() as u8;
        reseal(page);
        if let Err(error) = verify(&bad) {
            expect_corrupt(&error);
        }
    }
    // Every byte of the first data block's trailer and body, resealed, with every extreme value.
    let table = open(&file).unwrap();
    let address = match table.probe(b"", thermocline_table::key_hash(b"")).unwrap() {
        thermocline_table::Probe::Fetch(read) => read.address(),
        other => panic!("{other:?}"),
    };
    let len = address.len as usize;
    for at in 0..len - 4 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] = value;
            let sum = checksum(&file.place(0), &bad[..len - 4]);
            bad[len - 4..len].copy_from_slice(&sum.to_le_bytes());
            let table = open(&file_of(&bad)).unwrap();
            for row in rows.iter().take(8) {
                drop(table.get(&row.0, Sequence::MAX));
            }
            let mut it = table.iter(ReadAhead::default());
            let mut moved = it.seek_to_last();
            while moved.is_ok() && it.valid() {
                moved = it.prev();
            }
            drop(table.verify(&mut |_| {}));
        }
    }
}

#[test]
fn wrong_bytes_in_the_index_are_found_where_they_change_what_it_says() {
    use thermocline_table::decoders::seal;
    let rows = small_rows();
    let (file, _) = write(&rows, small_options(Compression::None));
    let good = bytes_of(&file);
    let footer = &good[good.len() - 4096..];
    let number = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let (data_end, properties) = (number(16), number(24));
    let (mut refused, mut harmless) = (0, 0);
    for at in data_end..properties {
        for value in [0, 1, 0x7f, 0x80, 0xf0, 0xf3, 0xff, good[at] ^ 1, good[at] ^ 0x10] {
            let mut bad = good.clone();
            bad[at] = value;
            seal(&mut bad, &file.place(0));
            match verify(&bad) {
                Err(error) => {
                    expect_corrupt(&error);
                    // It may lead to the footer, which is sealed as a block then.
                    if let Ok(table) = open(&file_of(&bad)) {
                        rows.iter().for_each(|row| drop(table.get(&row.0, Sequence::MAX)));
                    }
                    refused += 1;
                }
                // A separator that separates as well, a bit of a filter that lets more pass.
                Ok(()) => {
                    assert_eq!(read_all(&open(&file_of(&bad)).unwrap(), &rows), 0, "{at}");
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > harmless, "{refused} refused, {harmless} harmless");
}

fn big_table(driver: &Arc<FailingDriver>) -> (Arc<thermocline_device::File>, Vec<Row>) {
    let rows: Vec<Row> = (0..3000u64)
        .map(|n| (format!("{n:08}").into_bytes(), put(n), vec![n as u8; 300]))
        .collect();
    let file = driver.file();
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    rows.iter().for_each(|row| writer.add(&row.0, row.1, &row.2).unwrap());
    writer.finish().unwrap();
    (file, rows)
}

#[test]
fn a_read_error_is_never_the_end_and_a_seek_after_it_goes_on() {
    let driver = FailingDriver::new();
    let (file, rows) = big_table(&driver);
    let modes = [ReadAhead::default(), ReadAhead::Stream { window_bytes: 1 << 16 }];
    for mode in modes {
        for fail_at in (0..900_000u64).step_by(61_000) {
            let cache = Arc::new(BlockCache::new(0));
            let table = Arc::new(TableReader::open(Arc::clone(&file), cache).unwrap());
            let mut it = table.iter(mode);
            driver.fail(fail_at, fail_at + 1);
            let mut seen = 0;
            let mut moved = it.seek_to_first();
            while moved.is_ok() && it.valid() {
                assert_eq!(it.key(), rows[seen].0);
                seen += 1;
                moved = it.next();
            }
            assert_eq!(moved.unwrap_err().kind(), ErrorKind::Io, "fault at {fail_at} unseen");
            assert!(!it.valid() && seen < rows.len());
            assert_eq!(it.next().unwrap_err().kind(), ErrorKind::Io);
            assert_eq!(it.prev().unwrap_err().kind(), ErrorKind::Io);
            driver.fail(0, 0);
            it.seek(&rows[seen].0, Sequence::MAX).unwrap();
            for row in &rows[seen..] {
                assert!(it.key() == row.0 && it.value() == row.2);
                it.next().unwrap();
            }
            assert!(!it.valid());
            driver.fail(fail_at, fail_at + 1);
            // A new one: the window of the old may hold the bytes already.
            let mut it = table.iter(mode);
            let mut moved = it.seek_to_last();
            while moved.is_ok() && it.valid() {
                moved = it.prev();
            }
            assert_eq!(moved.unwrap_err().kind(), ErrorKind::Io);
            driver.fail(0, 0);
        }
    }
}

#[test]
fn read_ahead_grows_so_that_a_scan_takes_few_reads_and_a_short_one_little() {
    let driver = FailingDriver::new();
    let (file, rows) = big_table(&driver);
    let cache = Arc::new(BlockCache::new(64 << 20));
    let table = Arc::new(TableReader::open(Arc::clone(&file), Arc::clone(&cache)).unwrap());
    let measure = |mode: ReadAhead, entries: usize| {
        cache.clear();
        let mut it = table.iter(mode);
        it.seek(b"", Sequence::MAX).unwrap();
        let (reads, bytes) = (driver.reads.load(Relaxed), driver.read_bytes.load(Relaxed));
        it.seek_to_first().unwrap();
        for _ in 1..entries {
            it.next().unwrap();
        }
        (driver.reads.load(Relaxed) - reads, driver.read_bytes.load(Relaxed) - bytes)
    };
    let (reads, bytes) = measure(ReadAhead::default(), rows.len());
    assert!(reads < 40 && bytes < 1_300_000, "{reads} reads of {bytes} bytes");
    let (_, bytes) = measure(ReadAhead::default(), 5);
    assert!(bytes <= 8192, "five entries cost {bytes} bytes");
    let (reads, _) =
        measure(ReadAhead::Adaptive { first_bytes: 40_000, window_bytes_max: 1 << 20 }, 100);
    assert!(reads <= 2, "a hinted scan took {reads} reads");
    let before = cache.memory_bytes();
    cache.clear();
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 1 << 20 });
    it.seek_to_first().unwrap();
    while it.valid() {
        it.next().unwrap();
    }
    assert!(before > 0 && cache.memory_bytes() == 0, "streaming fills the cache");
}

#[test]
fn a_failed_write_latches_the_writer_and_leaves_no_table() {
    let driver = FailingDriver::new();
    let file = driver.file();
    driver.writes_left.store(1, Relaxed);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    let mut failed = None;
    for n in 0..3000u64 {
        if let Err(error) = writer.add(&n.to_be_bytes(), put(1), &[7; 1000]) {
            failed.get_or_insert((n, error));
        } else {
            assert!(failed.is_none(), "the writer goes on after a failed write");
        }
    }
    assert_eq!(failed.expect("the failure is reported").1.kind(), ErrorKind::Io);
    driver.writes_left.store(u64::MAX, Relaxed);
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(open(&file).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn bytes_behind_a_written_table_are_not_a_table() {
    let (file, summary) = write(&small_rows(), TableOptions::default());
    file.write(summary.file_bytes, Buffer::zeroed(4096)).1.unwrap();
    expect_corrupt(&open(&file).unwrap_err());
}
