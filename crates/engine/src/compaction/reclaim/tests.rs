//! What is merged for space, as tables; and stores whose space comes back.

use super::*;
use crate::compaction::view::Writing;
use crate::support::{one_tier, stepped, tier};
use crate::table_set::claims::{Claim, Claims};
use crate::table_set::manifest::Edit;
use crate::{ByteSize, Db, Preset, Settings};
use thermocline_foundation::random::Random;
use thermocline_foundation::{FileNumber, Sequence};

/// A table: its level, its keys, entries, tombstones among them, and its newest sequence. A record
/// has 100 bytes, a tombstone 10.
type Row = (usize, (&'static str, &'static str), u64, u64, u64);

fn meta(number: u64, (_, (first, last), entries, deletes, newest): Row) -> TableMeta {
    TableMeta {
        number: FileNumber(number),
        bytes: (entries - deletes) * 100 + deletes * 10,
        entries,
        deletes,
        smallest_key: first.into(),
        largest_key: last.into(),
        smallest_sequence: Sequence(1),
        largest_sequence: Sequence(newest),
        ingested_at: None,
    }
}

/// Numbers of tables that are merged, and the level that they go to.
type Merged = Option<(Vec<u64>, usize)>;

/// The tables that are merged and the level that they go to, `oldest` being the oldest sequence
/// that a reader may ask for, while running merges have the tables `taken`; and whether a merge
/// waits for a snapshot.
fn reclaimed(rows: &[Row], oldest: u64, taken: &[u64]) -> (Merged, bool) {
    let settings = Settings { tiers: vec![tier("/tier", 1 << 10)], ..one_tier() };
    let db = stepped(&settings);
    let added = rows.iter().zip(1..).map(|(row, number)| (row.0 as u8, meta(number, *row)));
    let edit = Edit { added: added.collect(), ..Edit::default() };
    let levels = Levels::default().apply(&edit, &db.engine().versions().store).unwrap();
    let mut claims = Claims::default();
    if !taken.is_empty() {
        let tables = taken.iter().copied().map(FileNumber).collect();
        let range = KeyRange::spanning(b"zz", b"zz");
        claims.take(Claim { tables, level: Some(6), range }).unwrap();
    }
    let view = View {
        levels: &levels,
        claims: &claims,
        settings: &settings,
        writing: Writing::Over,
        oldest_read: Sequence(oldest),
    };
    let Reclaim { selection, waits_for_snapshot } = reclaim(&view);
    let merged = selection.map(|selection| {
        let numbers = selection.inputs.iter().map(|(_, table)| table.meta.number.0).collect();
        (numbers, selection.output_level)
    });
    (merged, waits_for_snapshot)
}

#[test]
fn tombstones_go_down_where_they_free_a_quarter_of_what_is_rewritten() {
    let all = ("a", "z");
    let over = |deletes| [(5, all, 1000, deletes, 9), (6, all, 1000, 0, 8)];
    let table: [(&[Row], Merged); 10] = [
        (&[(6, all, 1000, 0, 9)], None),
        (&over(0), None),
        // 400 of 1000 records below, 64,000 + 100,000 bytes are rewritten.
        (&over(400), None),
        (&over(420), Some((vec![1, 2], 6))),
        (&over(1000), Some((vec![1, 2], 6))),
        // Tombstones over nothing, and at the bottom: they end.
        (&[(5, ("a", "c"), 10, 10, 9), (6, ("d", "z"), 1000, 0, 8)], Some((vec![1], 6))),
        (&[(6, all, 1000, 240, 9)], None),
        (&[(6, all, 1000, 260, 9)], Some((vec![1], 6))),
        // What they hide lies two levels down.
        (&[(4, all, 500, 500, 9), (6, all, 1000, 0, 8)], Some((vec![1], 5))),
        // Level 0 goes as a whole, also where it hides records of itself only.
        (&[(0, all, 500, 500, 9), (0, all, 500, 0, 8)], Some((vec![1, 2], 6))),
    ];
    for (rows, merged) in table {
        assert_eq!(reclaimed(rows, 9, &[]), (merged, false), "{rows:?}");
    }
}

#[test]
fn the_merge_that_frees_most_for_what_it_rewrites_is_the_first() {
    let rows = [
        (5, ("a", "f"), 1000, 600, 9),
        (5, ("g", "l"), 1000, 900, 9),
        (5, ("m", "z"), 1000, 700, 9),
        (6, ("a", "f"), 1000, 0, 8),
        (6, ("g", "l"), 1000, 0, 8),
        (6, ("m", "z"), 1000, 0, 8),
    ];
    assert_eq!(reclaimed(&rows, 9, &[]).0, Some((vec![2, 5], 6)));
    assert_eq!(reclaimed(&rows, 9, &[5]).0, Some((vec![3, 6], 6)), "a merge has one of them");
    assert_eq!(reclaimed(&rows, 9, &[1, 5, 6]).0, None);
}

#[test]
fn what_a_snapshot_needs_waits_for_its_end() {
    let rows = [(5, ("a", "z"), 1000, 1000, 9), (6, ("a", "z"), 1000, 0, 8)];
    assert_eq!(reclaimed(&rows, 8, &[]), (None, true));
    assert_eq!(reclaimed(&rows, 9, &[]), (Some((vec![1, 2], 6)), false));
    assert_eq!(reclaimed(&[(6, ("a", "z"), 10, 10, 9)], 8, &[]), (None, true));
    assert_eq!(reclaimed(&[(6, ("a", "z"), 10, 1, 9)], 8, &[]), (None, false), "nor worth it then");
}

const RECORDS: u32 = 40_000;

/// A store of records of 200 bytes that do not compress, at rest.
fn loaded() -> Db {
    let settings = Settings {
        preset: Some(Preset::Leveled),
        memory: ByteSize::mib(2),
        table_size: ByteSize::mib(1),
        tiers: vec![tier("/tier", 1 << 10)],
        ..Settings::default()
    };
    let db = stepped(&settings);
    let mut random = Random::new(3);
    let mut value = [0; 200];
    for key in 0..RECORDS {
        random.fill(&mut value);
        db.put(key.to_be_bytes(), value).unwrap();
    }
    rest(&db);
    db
}

/// Everything is flushed, and nothing is left to do.
fn rest(db: &Db) {
    db.flush().unwrap();
    db.settle().unwrap();
}

fn delete(db: &Db, keys: impl Iterator<Item = u32>) {
    keys.for_each(|key| db.delete(key.to_be_bytes()).unwrap());
}

/// Bytes, entries and tombstones of all tables.
fn held(db: &Db) -> (u64, u64, u64) {
    let levels = Arc::clone(&db.engine().versions().current().levels);
    levels.tables().fold((0, 0, 0), |(bytes, entries, deletes), (_, table)| {
        let meta = &table.meta;
        (bytes + meta.bytes, entries + meta.entries, deletes + meta.deletes)
    })
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
}

#[test]
fn the_space_of_a_range_that_is_deleted_comes_back_and_its_neighbours_stay() {
    let db = loaded();
    let (full_bytes, ..) = held(&db);
    delete(&db, RECORDS / 4..RECORDS / 4 * 3);
    rest(&db);
    let memtable_bytes = db.settings().division().memtable_bytes;
    let (bytes, entries, deletes) = held(&db);
    let most = full_bytes / 2 / 10 * 12 + memtable_bytes;
    assert!(bytes <= most, "{bytes} of {full_bytes} are left, {most} at most");
    assert!(entries - deletes >= u64::from(RECORDS / 2), "{entries} {deletes}");
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
    // Waits only, and asks for nothing.
    db.engine().shared().jobs.wait_idle();
    let (bytes, ..) = held(&db);
    assert!(bytes <= db.settings().division().memtable_bytes, "{bytes} of {full_bytes} are left");
}

#[test]
fn a_store_that_is_opened_with_garbage_gives_it_back() {
    let environment = crate::support::stepped_environment();
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
    let merged = || db.stats().operations.compactions;
    // Keys that were never there, between those that are.
    (0..RECORDS).for_each(|key| db.delete([&key.to_be_bytes()[..], b"no"].concat()).unwrap());
    rest(&db);
    let before = merged();
    for _ in 0..10 {
        db.settle().unwrap();
    }
    assert_eq!(merged(), before, "nothing is merged again and again");
    assert_eq!(held(&db).2, 0, "and the tombstones are gone");
    assert_eq!(db.scan().into_iter().count(), RECORDS as usize);
}
