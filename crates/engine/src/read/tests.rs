//! What look-ups count and move, by every way to look up.

use crate::support::{hybrid, stepped};
use crate::{Db, Snapshot};

/// A store with a record in a table, one in a slot, a tombstone in each, and one in memory; and the
/// snapshot that keeps the tombstones and what they hide.
fn spread() -> (Db, Snapshot) {
    let db = stepped(&hybrid());
    let put = |key| db.put(key, "value").unwrap();
    put("deleted in table");
    let kept = db.snapshot();
    db.delete("deleted in table").unwrap();
    put("table");
    db.compact_range(None, None, &mut |_| {}).unwrap();
    put("slot");
    put("deleted in slot");
    db.delete("deleted in slot").unwrap();
    db.flush().unwrap();
    put("memory");
    (db, kept)
}

const KEYS: [&str; 6] =
    ["table", "slot", "deleted in table", "deleted in slot", "memory", "nowhere"];

/// What is counted of look-ups: all, answered by memory, by it or the fast tier, by tables;
/// keys that are tracked, by popularity; records that moved up.
fn counts(db: &Db) -> ([u64; 6], Vec<u64>) {
    db.settle().unwrap();
    let stats = db.stats();
    let fast = stats.fast_tier.unwrap();
    let counts = [
        stats.operations.gets,
        db.engine().shared().counts.memtable_hits.get(),
        fast.fast_reads,
        fast.slow_reads,
        fast.tracked_keys,
        fast.promoted_records,
    ];
    (counts, fast.histogram)
}

#[test]
fn look_ups_in_a_batch_count_and_move_records_up_as_single_ones_do() {
    let ((single, _kept), (batched, _too)) = (spread(), spread());
    for round in 0..3 {
        let one_by_one: Vec<_> = KEYS.iter().map(|key| single.get(key).unwrap()).collect();
        let values = batched.multi_get(&KEYS).unwrap();
        assert_eq!(values, one_by_one);
        assert_eq!(values.iter().flatten().count(), 3);
        assert_eq!(counts(&batched), counts(&single), "round {round}");
    }
    let ([gets, in_memory, fast_reads, slow_reads, tracked, promoted], _) = counts(&batched);
    // The third time memory has a copy of the table's record.
    assert_eq!([gets, in_memory, fast_reads, slow_reads], [18, 3, 10, 5]);
    assert_eq!((tracked, promoted), (3, 1), "keys that are deleted are not tracked");
}

#[test]
fn look_ups_of_a_snapshot_move_nothing_up() {
    let (db, _kept) = spread();
    let snapshot = db.snapshot();
    for _ in 0..3 {
        snapshot.multi_get(&KEYS).unwrap();
    }
    let ([gets, .., promoted], _) = counts(&db);
    assert_eq!((gets, promoted), (18, 0));
}

/// Another version came to the table between the moment of the look-ups and their search.
#[test]
fn a_version_that_the_table_has_a_newer_one_of_does_not_move_up() {
    let db = stepped(&hybrid());
    db.put("key", "old").unwrap();
    let moment = db.engine().versions().snapshot();
    db.put("key", "new").unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    for _ in 0..2 {
        let state = db.engine().versions().current_full();
        let found = db.engine().reader().multi_get_at(&[b"key"], moment.sequence(), state, true);
        assert_eq!(found.unwrap()[0].as_deref(), Some(&b"old"[..]));
    }
    assert_eq!(counts(&db).0[5], 0);
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_record_that_a_bulk_load_replaced_is_counted_once() {
    let (db, _kept) = spread();
    let mut ingest = db.ingest();
    ingest.add("slot", "loaded").unwrap();
    ingest.finish().unwrap();
    let before = counts(&db).0;
    let found = db.multi_get(&["slot", "memory"]).unwrap();
    assert_eq!(found[0].as_deref(), Some(&b"loaded"[..]));
    let after = counts(&db).0;
    let counted: Vec<_> = std::iter::zip(after, before).map(|(a, b)| a - b).collect();
    assert_eq!(counted[..4], [2, 0, 1, 1], "writing stops for a load, memory is flushed");
}

#[test]
fn a_bulk_load_of_other_keys_sends_no_look_up_to_the_tables() {
    let (db, _kept) = spread();
    let mut ingest = db.ingest();
    ["a", "z"].iter().for_each(|key| ingest.add(key, "loaded").unwrap());
    ingest.finish().unwrap();
    let slow_reads = || (db.stats().tiers[1].reads, counts(&db).0[3]);
    // The load's filter is read once.
    assert_eq!(db.get("slot").unwrap().as_deref(), Some(&b"value"[..]));
    let before = slow_reads();
    for _ in 0..3 {
        assert_eq!(db.get("slot").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(db.multi_get(&["slot"]).unwrap()[0].as_deref(), Some(&b"value"[..]));
        assert_eq!(db.get("deleted in slot").unwrap(), None);
    }
    assert_eq!(slow_reads(), before);
    assert_eq!(db.get("a").unwrap().as_deref(), Some(&b"loaded"[..]));
}
