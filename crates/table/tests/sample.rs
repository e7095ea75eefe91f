//! Samples of keys, counts of older versions, and filters that are asked alone.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::{Row, delete, open, put, write};
use thermocline_table::{TableOptions, key_hash};

fn rows(count: u32) -> Vec<Row> {
    (0..count)
        .flat_map(|key| {
            let row = |trailer| (key.to_be_bytes().to_vec(), trailer, vec![7; 100]);
            // Every fourth key has an older version, and every eighth is deleted.
            let newest = if key % 8 == 0 { delete(9) } else { put(9) };
            let older = (key % 4 == 0).then(|| row(put(3)));
            std::iter::once(row(newest)).chain(older)
        })
        .collect()
}

#[test]
fn a_sample_of_all_blocks_has_all_entries_and_a_small_one_is_from_all_over() {
    let rows = rows(8000);
    let (file, summary) = write(&rows, TableOptions::default());
    let table = open(&file).unwrap();
    let entries: Vec<_> = rows.iter().map(|(key, trailer, _)| (key.clone(), *trailer)).collect();
    assert_eq!(table.sample(usize::MAX).unwrap(), entries);
    let few = table.sample(16).unwrap();
    assert!(few.is_sorted_by_key(|(key, _)| key.clone()));
    let blocks = summary.data_blocks as usize;
    assert!((entries.len() / blocks..entries.len() / 2).contains(&few.len()), "{}", few.len());
    let quarters =
        few.iter().map(|(key, _)| u32::from_be_bytes(key[..].try_into().unwrap()) / 2000);
    let quarters: std::collections::BTreeSet<_> = quarters.collect();
    assert_eq!(quarters.len(), 4);
    assert!(table.sample(0).unwrap().is_empty());
}

#[test]
fn a_sample_of_an_empty_table_is_empty() {
    let (file, _) = write(&[], TableOptions::default());
    assert!(open(&file).unwrap().sample(16).unwrap().is_empty());
}

#[test]
fn a_writer_counts_versions_that_are_older_than_another() {
    let (_, summary) = write(&rows(800), TableOptions::default());
    assert_eq!((summary.entries, summary.older_versions), (1000, 200));
    assert_eq!(write(&[], TableOptions::default()).1.older_versions, 0);
}

#[test]
fn a_filter_is_asked_without_the_index() {
    let (file, _) = write(&rows(800), TableOptions::default());
    let table = open(&file).unwrap();
    let asked = |key: u32| {
        let key = key.to_be_bytes();
        table.asked_filter(&key, key_hash(&key)).unwrap()
    };
    assert!((0..800).all(|key| asked(key) == Some(true)));
    assert!((800..1800).filter(|key| asked(*key) == Some(true)).count() < 50);
    let without = TableOptions { filter_bits_per_key: 0, ..TableOptions::default() };
    let (file, _) = write(&rows(8), without);
    let key = 1u32.to_be_bytes();
    assert_eq!(open(&file).unwrap().asked_filter(&key, key_hash(&key)).unwrap(), None);
}
