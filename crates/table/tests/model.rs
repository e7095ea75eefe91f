//! Tables against a model: a sorted list of entries. Whatever is asked, the table must answer as
//! the list does.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

use proptest::prelude::*;
use std::sync::Arc;
use support::*;
use thermocline_device::ReadAt;
use thermocline_foundation::Sequence;
use thermocline_table::{
    Compression, Lookup, Probe, ReadAhead, TableOptions, TableReader, TableWriter, Training,
    compare, key_hash,
};

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255u8)], 0..5),
        4 => (0..40u32).prop_map(|n| format!("shared/prefix/of/keys/{n:04}").into_bytes()),
        2 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => (0..3u8, 1000..65_537usize).prop_map(|(b, len)| vec![b; len]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => proptest::collection::vec(any::<u8>(), 0..60),
        3 => (any::<u8>(), 0..3000usize).prop_map(|(b, len)| vec![b; len]),
        1 => (any::<u64>(), 5000..300_000usize).prop_map(|(seed, len)| {
            let mut value = vec![0; len];
            thermocline_foundation::random::Random::new(seed).fill(&mut value);
            value
        }),
    ]
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let versions = proptest::collection::vec((0..30u64, any::<bool>(), value()), 1..6);
    proptest::collection::vec((key(), versions), 0..40).prop_map(|keys| {
        let mut rows: Vec<Row> = keys
            .into_iter()
            .flat_map(|(key, versions)| {
                versions.into_iter().map(move |(sequence, is_put, value)| {
                    let trailer = if is_put { put(sequence) } else { delete(sequence) };
                    (key.clone(), trailer, if is_put { value } else { Vec::new() })
                })
            })
            .collect();
        rows.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        rows.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
        rows
    })
}

fn options() -> impl Strategy<Value = TableOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Lz4),
        Just(Compression::Zstd { level: 1 })
    ];
    let sizes = (prop_oneof![Just(256u32), Just(1024), Just(6144)], 1..12u16);
    let partition = prop_oneof![Just(128u32), Just(4096)];
    let training = prop_oneof![Just(Training::Trained), Just(Training::Sampled)];
    let dictionary = (prop_oneof![Just(0u32), Just(300), Just(2048)], training);
    let partitions = (prop_oneof![Just(0u8), Just(10)], partition);
    (compression, sizes, dictionary, partitions, any::<bool>()).prop_map(
        |(compression, sizes, dictionary, partitions, align_pages)| {
            let (block_bytes, restart_interval) = sizes;
            let (dictionary_bytes, training) = dictionary;
            let (bits, partition_bytes) = partitions;
            TableOptions {
                block_bytes,
                restart_interval,
                compression,
                filter_bits_per_key: bits,
                partition_bytes,
                align_pages,
                dictionary_bytes,
                training,
            }
        },
    )
}

/// `get`, and the batched way through probe, fetch and get_in.
fn both_ways(table: &TableReader, key: &[u8], snapshot: u64) -> Option<(u64, Vec<u8>)> {
    let direct = table.get(key, Sequence(snapshot)).unwrap();
    let block = match table.probe(key, key_hash(key)).unwrap() {
        Probe::Absent => {
            assert_eq!(direct, None);
            return None;
        }
        Probe::Cached(block) => block,
        Probe::Fetch(read) => {
            let ReadAt { file, offset, len } = read.read_at(table.file());
            table.fetch(&read, file.read(offset, len)).unwrap()
        }
    };
    match table.get_in(&block, key, Sequence(snapshot)).unwrap() {
        Lookup::Found(trailer, value) => assert_eq!(direct, Some((trailer, value))),
        Lookup::Absent => assert_eq!(direct, None),
        Lookup::NextBlock => {}
    }
    direct.map(|(trailer, value)| (trailer.word(), value.to_vec()))
}

fn check_gets(table: &TableReader, rows: &[Row], extra: &[Vec<u8>]) {
    let keys = rows.iter().map(|row| &row.0).chain(extra);
    for key in keys {
        for snapshot in [0, 1, 7, 15, 29, 30, Sequence::MAX.0] {
            let want = model_get(rows, key, snapshot).map(|(t, value)| (t.word(), value));
            assert!(both_ways(table, key, snapshot) == want, "{} at {snapshot}", key.len());
        }
    }
}

fn check_walks(table: &Arc<TableReader>, rows: &[Row], mode: ReadAhead) {
    let mut it = table.iter(mode);
    assert!(!it.valid());
    it.seek_to_first().unwrap();
    for row in rows {
        assert!(it.valid() && it.key() == row.0 && it.trailer() == row.1 && it.value() == row.2);
        it.next().unwrap();
    }
    assert!(!it.valid());
    it.next().unwrap();
    it.seek_to_last().unwrap();
    for row in rows.iter().rev() {
        assert!(it.valid() && it.key() == row.0 && it.trailer() == row.1 && it.value() == row.2);
        it.prev().unwrap();
    }
    assert!(!it.valid());
}

fn check_seeks(table: &Arc<TableReader>, rows: &[Row], extra: &[Vec<u8>], mode: ReadAhead) {
    let mut it = table.iter(mode);
    for key in rows.iter().map(|row| &row.0).chain(extra) {
        for sequence in [0, 9, 29, Sequence::MAX.0] {
            let after =
                |row: &&Row| (&row.0 == key && row.1.sequence().0 <= sequence) || row.0 > *key;
            let place = rows.iter().position(|row| after(&row)).unwrap_or(rows.len());
            it.seek(key, Sequence(sequence)).unwrap();
            assert_eq!(it.valid(), place < rows.len());
            for row in &rows[place..rows.len().min(place + 3)] {
                assert!(it.key() == row.0 && it.trailer() == row.1);
                it.next().unwrap();
            }
            let before =
                |row: &&Row| (&row.0 == key && row.1.sequence().0 >= sequence) || row.0 < *key;
            let place = rows.iter().rposition(|row| before(&row));
            it.seek_for_prev(key, Sequence(sequence)).unwrap();
            assert_eq!(it.valid(), place.is_some());
            for row in place.iter().flat_map(|&place| rows[..=place].iter().rev().take(3)) {
                assert!(it.key() == row.0 && it.trailer() == row.1);
                it.prev().unwrap();
            }
        }
    }
}

/// The writer says of each key what a walk finds.
fn check_places(rows: &[Row], options: &TableOptions) {
    let placed = |bytes_max: u64| {
        let file = new_file(7);
        let mut writer = TableWriter::new(Arc::clone(&file), options.clone()).placing(bytes_max);
        rows.iter().for_each(|(key, trailer, value)| writer.add(key, *trailer, value).unwrap());
        (file, writer.finish().unwrap().places)
    };
    let (file, places) = placed(u64::MAX);
    let places = places.unwrap();
    let mut it = open(&file).unwrap().iter(ReadAhead::default());
    it.seek_to_first().unwrap();
    let (mut last_key, mut index) = (None, 0);
    while it.valid() {
        if last_key.as_deref() != Some(it.key()) {
            let found = (it.key(), it.trailer(), it.block_address().unwrap());
            assert_eq!(places.get(index), Some(found));
            last_key = Some(it.key().to_vec());
            index += 1;
        }
        it.next().unwrap();
    }
    assert_eq!((places.len(), places.get(index)), (index, None));
    assert_eq!(places.is_empty(), rows.is_empty());
    let bytes = places.memory_bytes();
    assert_eq!(placed(bytes / 2).1.filter(|_| bytes > 0), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn tables_answer_as_a_sorted_list_does(
        rows in rows(),
        extra in proptest::collection::vec(key(), 0..10),
        options in options(),
        first_bytes in prop_oneof![Just(0u32), Just(20_000)],
    ) {
        let (file, summary) = write(&rows, options.clone());
        prop_assert_eq!(summary.entries, rows.len() as u64);
        check_places(&rows, &options);
        prop_assert_eq!(summary.smallest_key, rows.first().map_or(Vec::new(), |row| row.0.clone()));
        prop_assert_eq!(summary.largest_key, rows.last().map_or(Vec::new(), |row| row.0.clone()));
        let table = open(&file).unwrap();
        let adaptive = ReadAhead::Adaptive { first_bytes, window_bytes_max: 1 << 20 };
        let stream = ReadAhead::Stream { window_bytes: 64 << 10 };
        check_walks(&table, &rows, stream);
        check_walks(&table, &rows, adaptive);
        check_walks(&table, &rows, adaptive);
        table.cache().clear();
        check_seeks(&table, &rows, &extra, adaptive);
        check_seeks(&table, &rows, &extra, stream);
        table.cache().clear();
        check_gets(&table, &rows, &extra);
        let mut seen = 0;
        let verified = table.verify(&mut |bytes| seen += bytes).unwrap();
        prop_assert_eq!(seen, summary.file_bytes);
        prop_assert_eq!((verified.entries, verified.bytes), (summary.entries, summary.file_bytes));
    }
}

#[test]
fn versions_of_one_key_over_many_blocks_are_found_at_every_snapshot() {
    for (_, compression) in all_compressions() {
        let mut rows: Vec<Row> = (1..2000u64)
            .rev()
            .map(|n| (b"hot".to_vec(), put(n), n.to_le_bytes().repeat(4)))
            .collect();
        rows.insert(0, (b"cold".to_vec(), put(3), b"before".to_vec()));
        rows.push((b"warm".to_vec(), put(3), b"after".to_vec()));
        let options = TableOptions {
            block_bytes: 512,
            partition_bytes: 256,
            compression,
            ..TableOptions::default()
        };
        let (file, summary) = write(&rows, options);
        assert!(summary.partitions > 3 && summary.data_blocks > 50);
        let table = open(&file).unwrap();
        for snapshot in 0..2001 {
            let got = table.get(b"hot", Sequence(snapshot)).unwrap();
            let want = model_get(&rows, b"hot", snapshot);
            assert_eq!(got.map(|(t, v)| (t, v.to_vec())), want);
        }
        let block = match table.probe(b"hot", key_hash(b"hot")).unwrap() {
            Probe::Cached(block) => block,
            other => panic!("{other:?}"),
        };
        assert_eq!(table.get_in(&block, b"hot", Sequence(1)).unwrap(), Lookup::NextBlock);
        check_walks(&table, &rows, ReadAhead::default());
    }
}

#[test]
fn the_largest_key_and_value_come_back_and_larger_ones_are_refused() {
    use thermocline_device::ErrorKind;
    use thermocline_table::{KEY_BYTES_MAX, TableWriter, VALUE_BYTES_MAX};
    let key = vec![b'k'; KEY_BYTES_MAX];
    let mut value = vec![0u8; VALUE_BYTES_MAX];
    thermocline_foundation::random::Random::new(1).fill(&mut value);
    let file = new_file(7);
    let options = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut writer = TableWriter::new(Arc::clone(&file), options);
    writer.add(b"a", put(1), b"small").unwrap();
    writer.add(&key, put(2), &value).unwrap();
    writer.add(b"z", put(3), b"small").unwrap();
    let invalid = |result: thermocline_device::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Invalid);
    };
    invalid(writer.add(b"z", put(3), b"the same again"));
    invalid(writer.add(b"z", put(4), b"newer after older"));
    invalid(writer.add(b"y", put(9), b"smaller"));
    invalid(writer.add(&vec![b'z'; KEY_BYTES_MAX + 1], put(9), b""));
    value.push(0);
    invalid(writer.add(b"zz", put(9), &value));
    value.pop();
    writer.finish().unwrap();
    let table = open(&file).unwrap();
    let (_, got) = table.get(&key, Sequence::MAX).unwrap().unwrap();
    assert!(got == value);
    assert_eq!(table.get(b"z", Sequence::MAX).unwrap().unwrap().1, b"small"[..]);
    let mut it = table.iter(ReadAhead::default());
    it.seek_to_last().unwrap();
    it.prev().unwrap();
    assert!(it.key() == key && it.value() == value);
}

#[test]
fn an_empty_table_opens_verifies_and_has_nothing() {
    let (file, summary) = write(&[], TableOptions::default());
    assert_eq!((summary.entries, summary.file_bytes), (0, 8192));
    let table = open(&file).unwrap();
    assert_eq!(table.get(b"", Sequence::MAX).unwrap(), None);
    check_walks(&table, &[], ReadAhead::default());
    check_seeks(&table, &[], &[b"a".to_vec()], ReadAhead::default());
    assert_eq!(table.verify(&mut |_| {}).unwrap().entries, 0);
}
