//! Stores whose space comes back.

use crate::compaction::inputs::sources_of;
use crate::jobs::Look;
use crate::merge::{Merge, Target};
use crate::support::{
    assert_rests, delete, merges, one_tier, rest, stepped, stepped_environment, tier,
};
use crate::{ByteSize, Db, Preset, Settings};
use std::ops::Range;
use std::sync::Arc;
use thermocline_foundation::random::Random;
use thermocline_table::ReadAhead;

const RECORDS: u32 = 40_000;

fn settings_with(memory: ByteSize) -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        memory,
        table_size: ByteSize::mib(1),
        tiers: vec![tier("/tier", 1 << 10)],
        ..Settings::default()
    }
}

/// Records of 200 bytes that do not compress.
fn put(db: &Db, keys: impl Iterator<Item = u32>, seed: u64) {
    let mut random = Random::new(seed);
    let mut value = [0; 200];
    for key in keys {
        random.fill(&mut value);
        db.put(key.to_be_bytes(), value).unwrap();
    }
}

/// A store of all records, at rest.
fn loaded() -> Db {
    loaded_with(ByteSize::mib(2))
}

fn loaded_with(memory: ByteSize) -> Db {
    let db = stepped(&settings_with(memory));
    put(&db, 0..RECORDS, 3);
    rest(&db);
    db
}

/// Bytes, entries and tombstones of all tables.
fn held(db: &Db) -> (u64, u64, u64) {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    levels.tables().fold((0, 0, 0), |(bytes, entries, deletes), (_, table)| {
        let meta = &table.meta;
        (bytes + meta.bytes, entries + meta.entries, deletes + meta.deletes)
    })
}

/// Entries that a scan of these keys meets in tables, dead ones among them.
fn met(db: &Db, keys: Range<u32>) -> usize {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    let tables: Vec<_> = levels.tables().map(|(level, table)| (level, Arc::clone(table))).collect();
    let mut merge = Merge::new(sources_of(&tables, ReadAhead::default()));
    merge.position(Target::From(&keys.start.to_be_bytes())).unwrap();
    let end = keys.end.to_be_bytes();
    let mut entries = 0;
    while merge.current().is_some_and(|(key, _)| key < &end[..]) {
        entries += 1;
        merge.step().unwrap();
    }
    entries
}

#[test]
fn the_space_of_all_records_comes_back_once_they_are_deleted() {
    let db = loaded();
    let (full_bytes, entries, _) = held(&db);
    assert!(full_bytes > 8_000_000 && entries >= u64::from(RECORDS));
    delete(&db, 0..RECORDS);
    rest(&db);
    let memtable_bytes = db.settings().division().memtable_bytes;
    let (bytes, ..) = held(&db);
    assert!(bytes <= memtable_bytes, "{bytes} of {full_bytes} are left");
    assert_eq!(db.scan().into_iter().count(), 0);
    let met = met(&db, 0..RECORDS);
    assert!(met <= RECORDS as usize / 10, "{met} dead entries");
}

#[test]
fn the_space_of_a_range_that_is_deleted_comes_back_and_its_neighbours_stay() {
    let db = loaded();
    let (full_bytes, ..) = held(&db);
    let deleted = RECORDS / 4..RECORDS / 4 * 3;
    delete(&db, deleted.clone());
    rest(&db);
    let memtable_bytes = db.settings().division().memtable_bytes;
    let (bytes, entries, deletes) = held(&db);
    let most = full_bytes / 2 / 10 * 12 + memtable_bytes;
    assert!(bytes <= most, "{bytes} of {full_bytes} are left, {most} at most");
    assert!(entries - deletes >= u64::from(RECORDS / 2), "{entries} {deletes}");
    assert_eq!(db.scan().into_iter().count(), RECORDS as usize / 2);
    let met = met(&db, deleted);
    assert!(met <= RECORDS as usize / 10, "{met} dead entries");
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
    // Waits only, and asks for nothing.
    db.engine().shared().jobs.wait_idle();
    let (bytes, ..) = held(&db);
    assert!(bytes <= db.settings().division().memtable_bytes, "{bytes} of {full_bytes} are left");
}

#[test]
fn a_store_that_is_opened_with_garbage_gives_it_back() {
    let environment = stepped_environment();
    let home = std::path::Path::new("/home");
    let settings = Settings { level0_tables: 1, ..one_tier() };
    let db = environment.create(home, &settings).unwrap();
    (0..1000u32).for_each(|key| db.put(key.to_be_bytes(), [7; 100]).unwrap());
    rest(&db);
    let snapshot = db.snapshot();
    delete(&db, 0..1000);
    rest(&db);
    let (_, entries, deletes) = held(&db);
    assert_eq!((entries, deletes), (2000, 1000));
    drop(snapshot);
    db.close().unwrap();
    let db = environment.open(home).unwrap();
    db.engine().shared().jobs.wait_idle();
    assert_eq!(held(&db), (0, 0, 0));
}

#[test]
fn blind_deletes_are_merged_a_bounded_number_of_times() {
    let db = loaded();
    // Keys that were never there, between those that are.
    (0..RECORDS).for_each(|key| db.delete([&key.to_be_bytes()[..], b"no"].concat()).unwrap());
    rest(&db);
    assert_rests(&db, held);
    assert_eq!(held(&db).2, 0, "and the tombstones are gone");
    assert_eq!(db.scan().into_iter().count(), RECORDS as usize);
}

/// All fits in a memtable, so level 0 has few tables and none is due by the sizes of levels; or in
/// few of them, and levels are deep.
const MEMORIES: [ByteSize; 2] = [ByteSize::mib(256), ByteSize::mib(2)];

#[test]
fn the_space_of_all_records_comes_back_once_they_are_overwritten() {
    for memory in MEMORIES {
        let db = loaded_with(memory);
        let (live_bytes, ..) = held(&db);
        put(&db, 0..RECORDS, 4);
        rest(&db);
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{memory:?}: {bytes} where {live_bytes} are live");
        assert_rests(&db, held);
        assert_eq!(db.scan().into_iter().count(), RECORDS as usize);
    }
}

#[test]
fn a_store_whose_writers_stop_without_a_flush_gives_space_back_once_it_rests() {
    for memory in MEMORIES {
        let db = loaded_with(memory);
        let (live_bytes, ..) = held(&db);
        let snapshot = db.snapshot();
        put(&db, 0..RECORDS, 4);
        rest(&db);
        put(&db, 0..1, 5);
        drop(snapshot);
        let shared = db.engine().shared();
        let settle = || shared.jobs.wait_idle();
        settle();
        let before = held(&db);
        assert!(before.0 >= live_bytes / 10 * 19, "memory has a record: writing may go on");
        assert_eq!(shared.look_for_rest(), Look::Again);
        put(&db, 1..2, 5);
        assert_eq!([(), ()].map(|()| shared.look_for_rest()), [Look::Again, Look::Rests]);
        settle();
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{memory:?}: {bytes} where {live_bytes} are live");
        assert_eq!(db.scan().into_iter().count(), RECORDS as usize);
        let merged = merges(&db);
        settle();
        assert_eq!(merges(&db), merged);
    }
}

#[test]
fn the_space_of_a_range_that_is_overwritten_comes_back() {
    for memory in MEMORIES {
        let db = loaded_with(memory);
        let (live_bytes, ..) = held(&db);
        put(&db, RECORDS / 4..RECORDS / 4 * 3, 4);
        rest(&db);
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{memory:?}: {bytes} where {live_bytes} are live");
        assert_rests(&db, held);
    }
}

#[test]
fn a_few_overwritten_records_are_not_worth_a_merge() {
    let db = loaded_with(MEMORIES[0]);
    let before = merges(&db);
    put(&db, (0..RECORDS).step_by(10), 4);
    rest(&db);
    assert_eq!(merges(&db), before);
    assert_rests(&db, held);
}

#[test]
fn records_that_hide_nothing_are_not_merged_for_space() {
    let db = stepped(&settings_with(MEMORIES[0]));
    put(&db, (0..RECORDS).step_by(2), 3);
    rest(&db);
    put(&db, (0..RECORDS).skip(1).step_by(2), 4);
    rest(&db);
    assert_eq!(merges(&db), 0, "between each other, and none is below another");
}

#[test]
fn overwritten_records_that_a_snapshot_keeps_end_after_it_by_themselves() {
    for memory in MEMORIES {
        let db = loaded_with(memory);
        let (live_bytes, ..) = held(&db);
        let snapshot = db.snapshot();
        put(&db, 0..RECORDS, 4);
        rest(&db);
        assert!(held(&db).0 >= live_bytes / 10 * 19, "the snapshot needs them");
        assert_rests(&db, held);
        drop(snapshot);
        // Waits only, and asks for nothing.
        db.engine().shared().jobs.wait_idle();
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{memory:?}: {bytes} where {live_bytes} are live");
        assert_rests(&db, held);
    }
}

#[test]
fn a_store_that_is_opened_with_overwritten_records_gives_their_space_back() {
    for memory in MEMORIES {
        let environment = stepped_environment();
        let home = std::path::Path::new("/home");
        let db = environment.create(home, &settings_with(memory)).unwrap();
        put(&db, 0..RECORDS, 3);
        rest(&db);
        let (live_bytes, ..) = held(&db);
        let snapshot = db.snapshot();
        put(&db, 0..RECORDS, 4);
        rest(&db);
        assert!(held(&db).0 >= live_bytes / 10 * 19);
        drop(snapshot);
        db.close().unwrap();
        let db = environment.open(home).unwrap();
        db.engine().shared().jobs.wait_idle();
        let (bytes, ..) = held(&db);
        assert!(bytes <= live_bytes / 100 * 135, "{memory:?}: {bytes} where {live_bytes} are live");
        assert_rests(&db, held);
    }
}
