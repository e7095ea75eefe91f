//! Reads of a moment, then of now: whatever a snapshot, a scan or a cursor shows of the past, a
//! later look-up shows the present.
//!
//! What is read often moves up as a copy, and a copy hides what tables have. So the version that
//! only a moment sees must not move up. Each way to read a moment is tried with the old and the new
//! version in each place, and the new one a value or a tombstone.

use crate::support::{compact, hybrid, stepped};
use thermocline::{Cursor, Db, Snapshot};

/// Reads of each key: more than a record needs that moves up.
const READS: usize = 4;

/// A key beside the others that is read as often and is not overwritten: it does move up.
const OTHER: &str = "other";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    Slot,
    Table,
}

const PLACES: [Place; 3] = [Place::Memory, Place::Slot, Place::Table];

/// Ways to read a moment.
#[derive(Clone, Copy, Debug)]
enum Way {
    Get,
    MultiGet,
    Scan,
    ScanBackwards,
    /// A cursor that was opened before the key was written again.
    Cursor,
}

const WAYS: [Way; 5] = [Way::Get, Way::MultiGet, Way::Scan, Way::ScanBackwards, Way::Cursor];

/// Brings all that was written so far to a place.
fn bring(db: &Db, place: Place) {
    match place {
        Place::Memory => {}
        Place::Slot => db.flush().unwrap(),
        Place::Table => compact(db),
    }
}

fn value_in(records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Option<Vec<u8>> {
    records.into_iter().find(|(key, _)| key == b"key").map(|(_, value)| value)
}

fn walk(cursor: &mut Cursor) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    cursor.seek_to_first().unwrap();
    while cursor.valid() {
        records.push((cursor.key().to_vec(), cursor.value().to_vec()));
        cursor.next().unwrap();
    }
    records
}

/// The value of the key at the moment, read in one way.
fn read(way: Way, snapshot: &Snapshot, cursor: &mut Cursor) -> Option<Vec<u8>> {
    let scan = |backwards: bool| {
        let scan = snapshot.scan();
        let scan = if backwards { scan.reverse() } else { scan };
        value_in(scan.into_iter().map(|record| {
            let (key, value) = record.unwrap();
            (key.to_vec(), value.to_vec())
        }))
    };
    match way {
        Way::Get => snapshot.get("key").unwrap().map(|value| value.to_vec()),
        Way::MultiGet => {
            let values = snapshot.multi_get(&["key", OTHER]).unwrap();
            values[0].as_ref().map(|value| value.to_vec())
        }
        Way::Scan => scan(false),
        Way::ScanBackwards => scan(true),
        Way::Cursor => value_in(walk(cursor)),
    }
}

/// What each way to read the present says of the key; all must say the same.
fn read_now(db: &Db, what: &str) -> Option<Vec<u8>> {
    let got = db.get("key").unwrap().map(|value| value.to_vec());
    let many = db.multi_get(&["key", OTHER]).unwrap()[0].as_ref().map(|value| value.to_vec());
    let walked = value_in(walk(&mut db.cursor()));
    assert_eq!(many, got, "multi_get, {what}");
    assert_eq!(walked, got, "a cursor, {what}");
    got
}

fn try_one(way: Way, (old_place, new_place): (Place, Place), new: Option<&str>) {
    let what = format!("{way:?}, old in {old_place:?}, new in {new_place:?}: {new:?}");
    let db = stepped(&hybrid());
    db.put("key", "old").unwrap();
    db.put(OTHER, "other").unwrap();
    bring(&db, old_place);
    let (snapshot, mut cursor) = (db.snapshot(), db.cursor());
    match new {
        Some(value) => db.put("key", value).unwrap(),
        None => db.delete("key").unwrap(),
    }
    bring(&db, new_place);
    for round in 0..2 {
        for _ in 0..READS {
            let found = read(way, &snapshot, &mut cursor);
            assert_eq!(found.as_deref(), Some(&b"old"[..]), "{what}");
            assert_eq!(db.get(OTHER).unwrap().unwrap(), "other");
        }
        db.settle().unwrap();
        let found = read_now(&db, &what);
        assert_eq!(found.as_deref(), new.map(str::as_bytes), "now, {what}, round {round}");
    }
    // The moment goes, and what only it saw with it.
    drop((snapshot, cursor));
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(read_now(&db, &what).as_deref(), new.map(str::as_bytes), "at last, {what}");
    compact(&db);
    assert_eq!(read_now(&db, &what).as_deref(), new.map(str::as_bytes), "merged, {what}");
    if (old_place, new_place) == (Place::Table, Place::Table) {
        let promoted = db.stats().fast_tier.unwrap().promoted_records;
        assert!(promoted > 0, "records that are read so often move up: {what}");
    }
}

#[test]
fn what_a_moment_shows_is_never_what_a_later_look_up_shows() {
    for way in WAYS {
        for old in [Place::Slot, Place::Table] {
            for new in PLACES {
                try_one(way, (old, new), Some("new"));
                try_one(way, (old, new), None);
            }
        }
    }
}

/// As above, with the version of the moment in the same table as the newer one.
#[test]
fn versions_that_share_a_table_stay_apart() {
    for way in WAYS {
        try_one(way, (Place::Memory, Place::Table), Some("new"));
        try_one(way, (Place::Memory, Place::Table), None);
    }
}

/// A moment before the key was written, and one after it was deleted, show nothing; reads of them
/// bring nothing up either.
#[test]
fn a_moment_without_the_key_stays_without_it() {
    let db = stepped(&hybrid());
    db.put(OTHER, "other").unwrap();
    let (before, mut cursor) = (db.snapshot(), db.cursor());
    db.put("key", "value").unwrap();
    let (between, mut second) = (db.snapshot(), db.cursor());
    db.delete("key").unwrap();
    compact(&db);
    for way in WAYS {
        for _ in 0..READS {
            assert_eq!(read(way, &before, &mut cursor), None, "{way:?}");
            let found = read(way, &between, &mut second);
            assert_eq!(found.as_deref(), Some(&b"value"[..]), "{way:?}");
        }
        db.settle().unwrap();
        assert_eq!(read_now(&db, "deleted"), None, "{way:?}");
    }
}

/// A bulk load is newer than the moment, and has neither slot nor log.
#[test]
fn what_a_moment_shows_beneath_a_bulk_load_does_not_hide_the_load() {
    for way in WAYS {
        for place in [Place::Slot, Place::Table] {
            let db = stepped(&hybrid());
            db.put("key", "old").unwrap();
            db.put(OTHER, "other").unwrap();
            bring(&db, place);
            let (snapshot, mut cursor) = (db.snapshot(), db.cursor());
            let mut ingest = db.ingest();
            ingest.add("key", "loaded").unwrap();
            ingest.finish().unwrap();
            for _ in 0..READS {
                let found = read(way, &snapshot, &mut cursor);
                assert_eq!(found.as_deref(), Some(&b"old"[..]), "{way:?} {place:?}");
            }
            db.settle().unwrap();
            let found = read_now(&db, "loaded");
            assert_eq!(found.as_deref(), Some(&b"loaded"[..]), "{way:?} {place:?}");
        }
    }
}

/// Records leave beside the key, whose versions stay in slots: a cursor of before begins again
/// with the tables of now, and its moment stays its own.
#[test]
fn a_cursor_that_begins_again_keeps_its_moment() {
    for new in [Some("new"), None] {
        let db = stepped(&hybrid());
        // What lies behind the table of these is a range of its own.
        ["a", "n"].iter().for_each(|key| db.put(key, "base").unwrap());
        compact(&db);
        db.put("key", "old").unwrap();
        db.put(OTHER, "other").unwrap();
        db.flush().unwrap();
        let mut cursor = db.cursor();
        match new {
            Some(value) => db.put("key", value).unwrap(),
            None => db.delete("key").unwrap(),
        }
        db.flush().unwrap();
        db.compact_range(Some(b"o"), None, &mut |_| {}).unwrap();
        assert_eq!(db.stats().fast_tier.unwrap().records, 2, "both versions of the key stay");
        let right = [("a", "base"), ("key", "old"), ("n", "base"), (OTHER, "other")];
        let right = right.map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(walk(&mut cursor), right);
        assert_eq!(read_now(&db, "beside").as_deref(), new.map(str::as_bytes));
    }
}
