//! What is found in stores whose tables hide each other's records.

use super::*;
use crate::support::{one_tier, stepped, tier};
use crate::{ByteSize, Db, Settings};
use thermocline_foundation::random::Random;

const RECORDS: u32 = 4000;

/// The newer of two tables of level 0, after `below` went to the older one and `keys` to this one,
/// by an estimate; with filters of so many bits a key, and values of so many bytes.
fn estimate(bits: u8, value_bytes: usize, below: &[u32], keys: &[u32]) -> u64 {
    let settings = Settings {
        memory: ByteSize::mib(256),
        tiers: vec![tier("/tier", 1 << 10)],
        filter_bits_per_key: bits,
        level0_tables: 8,
        ..one_tier()
    };
    let db = stepped(&settings);
    let mut random = Random::new(5);
    let mut value = vec![0; value_bytes];
    let mut flush = |keys: &[u32]| {
        for key in keys {
            random.fill(&mut value);
            db.put(key.to_be_bytes(), &value).unwrap();
        }
        db.flush().unwrap();
    };
    flush(below);
    // It keeps what lies below, so nothing is merged.
    let _snapshot = db.snapshot();
    flush(keys);
    newest_overwrites(&db)
}

fn newest_overwrites(db: &Db) -> u64 {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    let newest = Arc::clone(&levels.level(0)[0]);
    assert_eq!(levels.level(0).len(), 2);
    overwrites_of(&levels, &newest).unwrap()
}

#[test]
fn an_estimate_is_near_what_is_hidden() {
    let all: Vec<u32> = (0..RECORDS).collect();
    let odd: Vec<u32> = all.iter().map(|key| key | 1 << 20).collect();
    let half: Vec<u32> = (0..RECORDS / 2).collect();
    let tenth: Vec<u32> = all.iter().copied().filter(|key| key % 10 == 0).collect();
    let apart = [&odd[..], &[0, u32::MAX]].concat();
    let table: [(&[u32], u64); 4] = [
        (&all, u64::from(RECORDS)),
        (&half, u64::from(RECORDS) / 2),
        (&tenth, u64::from(RECORDS) / 10),
        (&apart, 1),
    ];
    for bits in [10, 0] {
        for (below, hidden) in table {
            let found = estimate(bits, 100, below, &all);
            let off = found.abs_diff(hidden);
            assert!(off <= u64::from(RECORDS) / 10, "{found}, {hidden} are hidden, {bits} bits");
        }
    }
}

#[test]
fn of_long_records_few_are_read_and_of_the_longest_none() {
    assert_eq!(estimate(10, 300 << 10, &[1, 2, 3, 4], &[1, 2, 3, 4]), 4);
    assert_eq!(estimate(10, 300 << 10, &[7, 9], &[8]), 0);
    assert_eq!(estimate(10, 3 << 20, &[1, 2], &[1, 2]), 2);
}

#[test]
fn tombstones_are_no_records() {
    let db = stepped(&Settings { level0_tables: 8, ..one_tier() });
    (0..10u32).for_each(|key| db.put(key.to_be_bytes(), [7; 100]).unwrap());
    db.flush().unwrap();
    let _snapshot = db.snapshot();
    (0..5u32).for_each(|key| db.delete(key.to_be_bytes()).unwrap());
    (5..10u32).for_each(|key| db.put(key.to_be_bytes(), [8; 100]).unwrap());
    db.flush().unwrap();
    assert_eq!(newest_overwrites(&db), 5);
}
