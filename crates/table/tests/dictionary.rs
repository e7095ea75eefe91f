//! Tables with a dictionary: when there is one, what its damage costs, and what holds it in memory.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use std::ops::Range;
use std::sync::Arc;
use support::*;
use thermocline_device::{ErrorKind, File, Result};
use thermocline_foundation::{DatabaseId, Sequence, random::Random};
use thermocline_table::{
    BlockCache, Compression, ReadAhead, Samples, TableOptions, TableReader, TableSummary,
    TableWriter, Training,
};

fn rows() -> Vec<Row> {
    alike_rows(0, 2000)
}

fn without() -> TableOptions {
    TableOptions { dictionary_bytes: 0, ..dictionary_options() }
}

/// The table of `rows`, and where the copies of its dictionary lie, trailers included.
fn with_dictionary(rows: &[Row]) -> (Arc<File>, [Range<usize>; 2]) {
    let (file, summary) = write(rows, dictionary_options());
    assert!(summary.dictionary_bytes > 0, "no dictionary: {summary:?}");
    let copies = open(&file).unwrap().properties().dictionary.unwrap();
    (file, copies.map(|copy| copy.offset as usize..copy.end() as usize))
}

fn check(table: &Arc<TableReader>, rows: &[Row]) {
    for (key, trailer, value) in rows {
        let got = table.get(key, Sequence::MAX).unwrap().unwrap();
        assert!(got.0 == *trailer && got.1 == *value);
    }
    for mode in [ReadAhead::default(), ReadAhead::Stream { window_bytes: 8192 }] {
        let mut it = table.iter(mode);
        it.seek_to_first().unwrap();
        for (key, trailer, value) in rows {
            assert!(it.key() == key && it.trailer() == *trailer && it.value() == *value);
            it.next().unwrap();
        }
        assert!(!it.valid());
    }
}

fn verify(bytes: &[u8]) -> Result<()> {
    open(&file_of(bytes))?.verify(&mut |_| {}).map(drop)
}

#[test]
fn a_dictionary_makes_a_table_smaller_and_tells_how_much() {
    let rows = rows();
    let (file, with) = write(&rows, dictionary_options());
    let (_, none) = write(&rows, without());
    assert!(with.dictionary_bytes <= 1024 && none.dictionary_bytes == 0);
    assert!(with.file_bytes < none.file_bytes * 9 / 10, "{with:?}, {none:?}");
    let saved = none.file_bytes - with.file_bytes;
    let told = with.dictionary_saved_bytes;
    assert!(told > saved / 2 && told < saved * 3 / 2, "{told} told, {saved} saved");
    check(&open(&file).unwrap(), &rows);
    verify(&bytes_of(&file)).unwrap();
    let (_, sampled) =
        write(&rows, TableOptions { training: Training::Sampled, ..dictionary_options() });
    assert!(sampled.dictionary_bytes > 0, "{sampled:?}");
    assert!(with.file_bytes < sampled.file_bytes, "{with:?}, {sampled:?}");
}

#[test]
fn where_no_dictionary_pays_the_table_is_the_one_without() {
    let mut random = Random::new(3);
    let mut noise = |n: u64| {
        let mut value = vec![0; 100];
        random.fill(&mut value);
        (format!("{n:08}").into_bytes(), put(n), value)
    };
    let noisy: Vec<Row> = (0..1000).map(&mut noise).collect();
    let few = alike_rows(0, 60);
    let large = vec![(b"k".to_vec(), put(1), b"deep water; ".repeat(20_000))];
    for rows in [noisy, few, large, Vec::new()] {
        let (file, summary) = write(&rows, dictionary_options());
        assert_eq!(summary.dictionary_bytes, 0);
        assert!(bytes_of(&file) == bytes_of(&write(&rows, without()).0));
    }
    // Only Zstandard has dictionaries.
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableOptions { compression, ..dictionary_options() };
        assert_eq!(write(&rows(), options).1.dictionary_bytes, 0);
    }
}

#[test]
fn a_writer_that_holds_entries_back_refuses_and_counts_as_ever() {
    let file = new_file(7);
    let mut writer = TableWriter::new(Arc::clone(&file), dictionary_options());
    let rows = rows();
    for (n, (key, trailer, value)) in rows.iter().enumerate() {
        writer.add(key, *trailer, value).unwrap();
        assert_eq!((writer.last_key(), writer.entries()), (&key[..], n as u64 + 1));
        let again = writer.add(key, *trailer, value).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Invalid);
        assert!(writer.estimated_bytes() > n as u64 * 10);
    }
    // One too long for a sample, after the dictionary is there.
    let long = vec![9; 70_000];
    writer.add(b"t", put(1), &long).unwrap();
    let summary = writer.finish().unwrap();
    assert!(summary.dictionary_bytes > 0 && summary.entries == 2001);
    let found = open(&file).unwrap().get(b"t", Sequence::MAX).unwrap().unwrap();
    assert_eq!(found.1, long);
}

fn write_next(rows: &[Row], samples: Option<Samples>) -> (TableSummary, Option<Samples>) {
    let mut writer =
        TableWriter::new(new_file(7), dictionary_options()).expecting(1 << 20).following(samples);
    rows.iter().for_each(|row| writer.add(&row.0, row.1, &row.2).unwrap());
    let samples = writer.take_samples();
    (writer.finish().unwrap(), samples)
}

#[test]
fn the_table_before_tells_what_the_first_entries_do_not() {
    // Each table begins with one kind of records, for as long as it is trained, and ends in
    // another.
    let other = |n: u64| {
        let hash = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let value = format!("<buoy><salt>{}</salt><wind>{}</wind></buoy>", hash >> 56, hash >> 52);
        (format!("weather/{n:06}").into_bytes(), put(n), value.into_bytes())
    };
    let table = |from: u64| -> Vec<Row> {
        let ends = (from..from + 1500).map(other);
        alike_rows(from, 500).into_iter().chain(ends).collect()
    };
    let (_, samples) = write_next(&table(0), None);
    let next = table(10_000);
    let (alone, _) = write_next(&next, None);
    let (following, _) = write_next(&next, samples);
    assert!(alone.dictionary_bytes > 0 && following.dictionary_bytes > 0);
    assert!(following.file_bytes < alone.file_bytes, "{following:?}, {alone:?}");
    // The same calls write the same table.
    assert_eq!(write_next(&next, None).0, alone);
}

#[test]
fn one_damaged_copy_costs_no_read_and_verification_tells_of_it() {
    let rows = alike_rows(0, 500);
    let (file, copies) = with_dictionary(&rows);
    let good = bytes_of(&file);
    for copy in copies {
        for at in copy.step_by(97) {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let table = open(&file_of(&bad)).unwrap();
            assert!(table.get(&rows[0].0, Sequence::MAX).unwrap().is_some(), "byte {at}");
            let error = table.verify(&mut |_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
        }
    }
    let table = open(&file_of(&good)).unwrap();
    check(&table, &rows);
}

#[test]
fn where_both_copies_are_damaged_no_block_that_needs_them_is_served() {
    let rows = rows();
    let (file, copies) = with_dictionary(&rows);
    let mut bad = bytes_of(&file);
    for copy in &copies {
        bad[copy.clone()].fill(0x5a);
    }
    let table = open(&file_of(&bad)).unwrap();
    for (key, ..) in rows.iter().step_by(50) {
        let error = table.get(key, Sequence::MAX).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
        assert!(text.contains("00000007.table") && text.contains("dictionary"), "{text}");
    }
    for mode in [ReadAhead::default(), ReadAhead::Stream { window_bytes: 8192 }] {
        let mut it = table.iter(mode);
        assert_eq!(it.seek_to_first().unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(!it.valid());
    }
    assert_eq!(table.verify(&mut |_| {}).unwrap_err().kind(), ErrorKind::Corrupt);
    let lost = table.salvage(&mut |_, _, _| panic!("a record without its dictionary")).unwrap();
    assert_eq!(lost.len() as u64, table.properties().data_blocks);
}

#[test]
fn a_flipped_bit_of_each_copy_costs_a_repair_no_record() {
    let rows = rows();
    let (file, copies) = with_dictionary(&rows);
    let mut bad = bytes_of(&file);
    for copy in &copies {
        bad[copy.start + 77] ^= 0x04;
    }
    costs_no_record(&bad, &rows);
    // More than a bit, and not in the same places.
    let mut bad = bytes_of(&file);
    bad[copies[0].start + 100..copies[0].start + 120].fill(0xa5);
    bad[copies[1].start + 300..copies[1].start + 310].fill(0xa5);
    costs_no_record(&bad, &rows);
}

fn costs_no_record(bad: &[u8], rows: &[Row]) {
    let bad = file_of(bad);
    assert!(open(&bad).unwrap().get(&rows[9].0, Sequence::MAX).is_err());
    let table = TableReader::open_mended(bad, cache()).unwrap();
    let mut salvaged = Vec::new();
    let mut take = |key: &[u8], trailer, value: &[u8]| {
        salvaged.push((key.to_vec(), trailer, value.to_vec()));
        Ok(())
    };
    assert!(table.salvage(&mut take).unwrap().is_empty());
    assert!(salvaged == rows);
}

#[test]
fn a_copy_of_another_table_is_not_taken_for_this_ones() {
    let rows = rows();
    let (file, copies) = with_dictionary(&rows);
    let other = file_as(&[], DATABASE, 9);
    let mut writer = TableWriter::new(Arc::clone(&other), dictionary_options());
    let others = alike_rows(50_000, 2000);
    others.iter().for_each(|row| writer.add(&row.0, row.1, &row.2).unwrap());
    writer.finish().unwrap();
    let (good, other) = (bytes_of(&file), bytes_of(&other));
    let mut mixed = good.clone();
    mixed[copies[0].clone()].copy_from_slice(&other[copies[0].clone()]);
    assert!(mixed != good);
    check(&open(&file_of(&mixed)).unwrap(), &rows);
    // One of the same table in the wrong place is none, either.
    let mut swapped = good.clone();
    let second = good[copies[1].clone()].to_vec();
    swapped[copies[0].clone()].copy_from_slice(&second);
    swapped[copies[1].clone()].fill(0);
    let error = open(&file_of(&swapped)).unwrap().get(&rows[0].0, Sequence::MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(open(&file_as(&good, DatabaseId([9; 16]), 7)).is_err());
}

#[test]
fn copies_that_cannot_be_where_they_are_said_to_be_are_refused() {
    use thermocline_table::decoders::seal;
    let (file, _) = with_dictionary(&rows());
    let good = bytes_of(&file);
    let footer = &good[good.len() - 4096..];
    let at = u64::from_le_bytes(footer[24..32].try_into().unwrap()) as usize;
    let mut refused = 0;
    for byte in at..at + 200 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[byte] = value;
            seal(&mut bad, &file.place(0));
            match open(&file_of(&bad)) {
                Ok(table) => drop(table.get(b"station/000007/temperature", Sequence::MAX)),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 20, "{refused}");
}

#[test]
fn a_device_that_fails_for_a_while_is_no_damage() {
    let driver = FailingDriver::new();
    let file = driver.file();
    let rows = rows();
    let mut writer = TableWriter::new(Arc::clone(&file), dictionary_options());
    rows.iter().for_each(|row| writer.add(&row.0, row.1, &row.2).unwrap());
    writer.finish().unwrap();
    // Its block is in no page of a copy.
    let key = &rows[1000].0;
    let fresh = || Arc::new(TableReader::open(Arc::clone(&file), cache()).unwrap());
    let [first, second] = fresh().properties().dictionary.unwrap();
    let table = fresh();
    driver.fail(first.offset, first.offset + 1);
    assert!(table.get(key, Sequence::MAX).unwrap().is_some(), "the second copy is there");
    let table = fresh();
    driver.fail(0, second.end());
    assert_eq!(table.get(key, Sequence::MAX).unwrap_err().kind(), ErrorKind::Io);
    driver.fail(0, 0);
    assert!(table.get(key, Sequence::MAX).unwrap().is_some());
}

#[test]
fn the_prepared_dictionary_weighs_in_the_cache_and_goes_as_blocks_do() {
    let rows = rows();
    let (file, _) = with_dictionary(&rows);
    let cache = cache();
    let table = Arc::new(TableReader::open(Arc::clone(&file), Arc::clone(&cache)).unwrap());
    table.get(&rows[0].0, Sequence::MAX).unwrap().unwrap();
    let held = cache.memory_bytes();
    assert!(held > 20_000, "{held} bytes with a prepared dictionary");
    let mut it = table.iter(ReadAhead::Stream { window_bytes: 8192 });
    cache.clear();
    it.seek_to_first().unwrap();
    while it.valid() {
        it.next().unwrap();
    }
    assert_eq!(cache.memory_bytes(), 0, "a stream fills the cache");
    // Without room in the cache, all is read nevertheless.
    let none = Arc::new(BlockCache::new(0));
    check(&Arc::new(TableReader::open(file, none).unwrap()), &rows);
}
