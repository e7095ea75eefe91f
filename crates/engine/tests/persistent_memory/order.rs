//! The preset `indexed`: scans by the index, and the order of the tables that they ask for.

use crate::hooked::{Call, HookedDevices};
use crate::indexed::{State, check, churn, create, delete, indexed, key, put, tables};
use crate::support::{HOME, Machine, REGION, copy_of, counting_reads, stepped};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use thermocline::{Cursor, Db, Environment, Experiments, Scan};
use thermocline_foundation::random::Random;

/// Walks `cursor` at random, and compares each place with `state`.
fn roam(cursor: &mut Cursor, state: &State, random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let target = key(random.below(1000));
        let expected = match random.below(6) {
            0 => {
                cursor.seek(&target).unwrap();
                state.range(target..).next()
            }
            1 => {
                cursor.seek_for_prev(&target).unwrap();
                state.range(..=target).next_back()
            }
            2 | 3 if cursor.valid() => {
                let at = cursor.key().to_vec();
                cursor.next().unwrap();
                state.range(at..).nth(1)
            }
            4 if cursor.valid() => {
                let at = cursor.key().to_vec();
                cursor.prev().unwrap();
                state.range(..at).next_back()
            }
            5 if random.below(2) == 0 => {
                cursor.seek_to_last().unwrap();
                state.last_key_value()
            }
            _ => {
                cursor.seek_to_first().unwrap();
                state.first_key_value()
            }
        };
        let found = cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()));
        assert_eq!(found, expected.map(|(key, value)| (key.clone(), value.clone())));
    }
}

#[test]
fn cursors_keep_their_moment_while_tables_are_entered_and_merged() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(23);
    let mut held: Vec<(Cursor, State)> = Vec::new();
    for round in 0..20 {
        churn(&db, &mut state, &mut random, round..round + 1);
        // Some begin while tables wait, some later.
        held.push((db.cursor(), state.clone()));
        match round % 4 {
            0 => db.settle().unwrap(),
            1 => held.drain(..held.len() - 1).for_each(drop),
            2 => {
                let mut ingest = db.ingest();
                for number in round * 20..round * 20 + 150 {
                    ingest.add(key(number), [round as u8; 70]).unwrap();
                    state.insert(key(number), vec![round as u8; 70]);
                }
                ingest.finish().unwrap();
            }
            _ => db.compact_range(Some(&key(300)), Some(&key(600)), &mut |_| {}).unwrap(),
        }
        for (cursor, then) in &mut held {
            roam(cursor, then, &mut random, 60);
        }
    }
    drop(held);
    db.settle().unwrap();
    check(&db, &state, 1000);
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
}

#[test]
fn what_a_tombstone_hid_in_a_waiting_table_stays_hidden_when_both_are_merged_away() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (0..300).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    (0..300).step_by(2).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    let (mut forth, mut back) = (db.cursor(), db.cursor());
    forth.seek_to_first().unwrap();
    back.seek_to_last().unwrap();
    db.settle().unwrap();
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let (mut keys, mut backwards) = (Vec::new(), Vec::new());
    while forth.valid() {
        keys.push(forth.key().to_vec());
        forth.next().unwrap();
    }
    while back.valid() {
        backwards.push(back.key().to_vec());
        back.prev().unwrap();
    }
    backwards.reverse();
    assert!(keys.iter().eq(state.keys()), "{} keys, not {}", keys.len(), state.len());
    assert_eq!(keys, backwards);
}

/// A store whose twenty tables have every twentieth key each, made with `experiments`.
fn scattered(machine: &Machine, experiments: Experiments) -> (Db, State) {
    let environment = Environment { experiments, ..machine.environment() };
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    for table in 0..20 {
        (0..50).for_each(|number| put(&db, &mut state, number * 20 + table, table));
        db.flush().unwrap();
        db.settle().unwrap();
    }
    (db, state)
}

/// The measure of scans by the index: reads of a short scan over twenty scattered tables, beside
/// those of one that merges them.
#[test]
fn a_short_scan_by_the_index_reads_the_tables_of_its_keys_and_a_merge_reads_all() {
    let machine = Machine::new();
    let still =
        Experiments { leaf_scan: Some(false), scan_merges: Some(false), ..Experiments::NONE };
    let machine = machine.killed(scattered(&machine, still).0);
    let (environment, reads) = counting_reads(&machine);
    let environment = Environment { experiments: still, ..environment };
    let db = environment.open(Path::new(HOME)).unwrap();
    let read_by = |scan: Scan| {
        let before = reads.load(Relaxed);
        assert_eq!(scan.from(key(300)).limit(4).into_iter().count(), 4);
        reads.load(Relaxed) - before
    };
    let by_index = read_by(db.scan());
    // The moment of the snapshot becomes the past.
    let snapshot = db.snapshot();
    db.put(key(0), "newer").unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let by_merge = read_by(snapshot.scan());
    assert!(by_index <= 12 && by_merge >= 32, "{by_index} reads, and {by_merge} of the merge");
}

fn compactions(db: &Db) -> u64 {
    db.stats().operations.compactions
}

#[test]
fn leaf_scans_find_scattered_tables_and_scans_do() {
    let without =
        Experiments { leaf_scan: Some(false), scan_merges: Some(false), ..Experiments::NONE };
    let scan = |db: &Db, keys: usize| {
        assert_eq!(db.scan().from(key(300)).into_iter().take(keys).count(), keys);
        db.settle().unwrap();
    };
    let machine = Machine::new();
    let (db, state) = scattered(&machine, without);
    scan(&db, 100);
    assert_eq!((compactions(&db), tables(&db)), (0, 20), "neither rule is in force");
    check(&db, &state, 1000);

    let machine = Machine::new();
    let by_scans = Experiments { scan_merges: None, ..without };
    let (db, state) = scattered(&machine, by_scans);
    assert_eq!(compactions(&db), 0);
    scan(&db, 8);
    assert_eq!(compactions(&db), 0, "eight keys are in eight tables at most");
    scan(&db, 30);
    assert!(compactions(&db) > 0);
    check(&db, &state, 1000);

    let machine = Machine::new();
    let by_leaves = Experiments { leaf_scan: None, ..without };
    let (db, state) = scattered(&machine, by_leaves);
    assert!(compactions(&db) > 0);
    check(&db, &state, 1000);
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
}

#[test]
fn a_leaf_scan_goes_on_where_the_last_one_ended() {
    let machine = Machine::new();
    let by_leaves = Experiments { scan_merges: Some(false), ..Experiments::NONE };
    let environment = Environment { experiments: by_leaves, ..machine.environment() };
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    let mut table = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.for_each(|number| put(&db, &mut state, number, 1));
        db.flush().unwrap();
        db.settle().unwrap();
    };
    // Ten tables side by side, then twelve over each other, which a walk from the first key on
    // does not reach.
    (0..10).for_each(|at| table(&mut (at * 200..(at + 1) * 200)));
    (0..12).for_each(|at| table(&mut (0..20).map(|number| 2000 + number * 12 + at)));
    for at in 0..15 {
        table(&mut std::iter::once(3000 + at));
    }
    assert!(compactions(&db) > 0);
    check(&db, &state, 3015);
}

/// The process ends between the edit that takes merged tables out and the removal of the entries of
/// tombstones that the merge has dropped.
#[test]
fn a_leaf_scan_takes_entries_out_that_a_merge_left_behind_when_the_process_ended() {
    let machine = Machine::new();
    let (regions, last) = (Arc::clone(&machine.regions), Arc::new(Mutex::new(Vec::new())));
    // What the region had before the last edit.
    let kept = Arc::clone(&last);
    let hook = move |call, _: &Path, name: &str| {
        if call == Call::Write && name.ends_with(".manifest") && regions.has(REGION) {
            *kept.lock().unwrap() = regions.stored(REGION);
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    let environment = stepped(Arc::new(devices), &machine.regions);
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    (0..900).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    // So few that nothing is merged for it.
    (0..60).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    db.settle().unwrap();
    let objects = |db: &Db| db.stats().index.unwrap().objects;
    let before = objects(&db);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    let clean = objects(&db);
    assert!(clean <= before - 60, "{clean} objects, {before} before");
    std::mem::forget(db);

    let machine = Machine::of(copy_of(&machine.devices), &last.lock().unwrap());
    let db = machine.open().unwrap();
    assert!(objects(&db) >= clean + 60, "the entries are there still");
    check(&db, &state, 900);
    put(&db, &mut state, 899, 2);
    db.flush().unwrap();
    db.settle().unwrap();
    let left = objects(&db);
    assert!(left <= clean + 5, "{left} objects, {clean} without the tombstones");
    check(&db, &state, 900);
    // A new index has no such entries, and finds the same.
    db.close().unwrap();
    machine.environment().rebuild_index(Path::new(HOME), None).unwrap();
    check(&machine.open().unwrap(), &state, 900);
}
