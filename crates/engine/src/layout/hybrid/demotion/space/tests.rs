//! Stores whose space comes back.

use crate::support::{assert_rests, delete, hybrid, merges, rest, stepped_environment};
use crate::{ByteSize, Db, Settings};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::random::Random;

const RECORDS: u32 = 20_000;

/// A store whose records are in tables, but for some.
fn loaded() -> Db {
    let settings = Settings { table_size: ByteSize::kib(512), ..hybrid() };
    let db = stepped_environment().create(Path::new("/home"), &settings).unwrap();
    let mut random = Random::new(3);
    let mut value = [0; 400];
    for key in 0..RECORDS {
        random.fill(&mut value);
        db.put(key.to_be_bytes(), value).unwrap();
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db
}

/// Bytes and entries of all tables, tombstones of the index.
fn held(db: &Db) -> (u64, u64, u64) {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    let (bytes, entries) = levels.tables().fold((0, 0), |(bytes, entries), (_, table)| {
        (bytes + table.meta.bytes, entries + table.meta.entries)
    });
    (bytes, entries, db.engine().hybrid().fast.index.tombstones())
}

#[test]
fn the_space_of_all_records_comes_back_once_they_are_deleted() {
    let db = loaded();
    let (full_bytes, entries, _) = held(&db);
    assert!(full_bytes > 8_000_000 && entries >= u64::from(RECORDS), "{full_bytes} {entries}");
    delete(&db, 0..RECORDS);
    rest(&db);
    assert_eq!(held(&db), (0, 0, 0), "of {full_bytes}");
    assert_eq!(db.scan().into_iter().count(), 0);
}

#[test]
fn the_space_of_a_range_comes_back_and_its_neighbours_stay() {
    let db = loaded();
    let (full_bytes, ..) = held(&db);
    delete(&db, RECORDS / 4..RECORDS / 4 * 3);
    rest(&db);
    let (bytes, ..) = held(&db);
    assert!(bytes <= full_bytes / 2 / 10 * 12, "{bytes} of {full_bytes} are left");
    assert_eq!(db.scan().into_iter().count(), RECORDS as usize / 2);
}

#[test]
fn space_that_a_snapshot_keeps_comes_back_after_its_end_by_itself() {
    let db = loaded();
    let (full_bytes, ..) = held(&db);
    let snapshot = db.snapshot();
    delete(&db, 0..RECORDS);
    rest(&db);
    assert!(held(&db).0 >= full_bytes, "the snapshot needs them");
    assert_eq!(snapshot.scan().into_iter().count(), RECORDS as usize);
    drop(snapshot);
    db.engine().shared().jobs.wait_idle();
    assert_eq!(held(&db), (0, 0, 0), "of {full_bytes}");
}

#[test]
fn a_few_deletes_are_not_worth_a_merge_and_are_not_looked_at_again_and_again() {
    let db = loaded();
    delete(&db, (0..RECORDS).step_by(10));
    rest(&db);
    let before = held(&db);
    assert_eq!(before.2, u64::from(RECORDS) / 10, "they wait in their slots");
    assert_rests(&db, held);
}

#[test]
fn tombstones_over_records_that_stay_in_slots_leave_them_there() {
    let db = loaded();
    (0..1000).for_each(|key: u32| db.put(key.to_be_bytes(), [7; 100]).unwrap());
    delete(&db, 1000..RECORDS);
    rest(&db);
    let fast = &db.engine().hybrid().fast;
    let tombstones = fast.index.tombstones();
    assert!(tombstones < 1000, "{tombstones} are left, of the range whose other records stay");
    assert_eq!(fast.index.slot_records() - tombstones, 1000);
    assert_eq!(db.scan().into_iter().count(), 1000);
}

/// Newer versions of these records, in tables over those that have them.
fn load_over(db: &Db, keys: impl Iterator<Item = u32>) {
    let mut random = Random::new(4);
    let mut value = [0; 400];
    let mut ingest = db.ingest();
    for key in keys {
        random.fill(&mut value);
        ingest.add(key.to_be_bytes(), value).unwrap();
    }
    ingest.finish().unwrap();
}

#[test]
fn runs_that_replace_each_other_become_one_at_rest() {
    for of in [1, 2] {
        let db = loaded();
        let (live_bytes, ..) = held(&db);
        load_over(&db, 0..RECORDS / of);
        rest(&db);
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{bytes} where {live_bytes} are live");
        assert_rests(&db, held);
        assert_eq!(db.scan().into_iter().count(), RECORDS as usize);
    }
}

#[test]
fn runs_that_replace_a_tenth_or_nothing_of_each_other_stay() {
    let db = loaded();
    let before = merges(&db);
    load_over(&db, (0..RECORDS).step_by(10));
    rest(&db);
    assert_eq!(merges(&db), before);
    assert_rests(&db, held);
}

#[test]
fn runs_whose_older_versions_a_snapshot_needs_wait_for_its_end() {
    let db = loaded();
    let (live_bytes, ..) = held(&db);
    let snapshot = db.snapshot();
    load_over(&db, 0..RECORDS);
    rest(&db);
    assert!(held(&db).0 >= live_bytes / 10 * 19, "the snapshot needs them");
    assert_rests(&db, held);
    drop(snapshot);
    db.engine().shared().jobs.wait_idle();
    let (bytes, ..) = held(&db);
    assert!(bytes <= live_bytes / 100 * 135, "{bytes} where {live_bytes} are live");
    assert_rests(&db, held);
}
