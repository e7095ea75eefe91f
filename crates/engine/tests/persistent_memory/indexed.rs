//! The preset `indexed`: one level of tables and an index of their newest records in the region.

use crate::hooked::{Call, HookedDevices};
use crate::rebuild::{long_key, put_until_full};
use crate::regions::ShadowRegions;
use crate::support::{HOME, Machine, REGION, TIER, settings, stepped};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use thermocline::{
    ByteSize, Db, ErrorKind, IndexStats, PersistentMemory, Preset, Settings, Tier, TierChange,
    TransactionOptions, WhichTier, Workers, WriteBatch,
};
use thermocline_device::Error;
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::Planted;
use thermocline_foundation::random::Random;
use thermocline_pmem::chunks::{ChunkKind, runs};
use thermocline_pmem::{Medium, RegionIdentity};

pub type State = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn indexed() -> Settings {
    Settings { preset: Some(Preset::Indexed), table_size: ByteSize::kib(64), ..settings() }
}

pub fn create(machine: &Machine) -> Db {
    machine.environment().create(Path::new(HOME), &indexed()).unwrap()
}

fn index(db: &Db) -> IndexStats {
    db.stats().index.unwrap()
}

pub fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

pub fn put(db: &Db, state: &mut State, number: u64, round: u64) {
    let value = vec![round as u8; 50 + (number * 37 % 300) as usize];
    db.put(key(number), &value).unwrap();
    state.insert(key(number), value);
}

pub fn delete(db: &Db, state: &mut State, number: u64) {
    db.delete(key(number)).unwrap();
    state.remove(&key(number));
}

/// Every answer is that of `state`.
pub fn check(db: &Db, state: &State, numbers: u64) {
    for number in 0..numbers {
        let found = db.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), state.get(&key(number)).map(Vec::as_slice), "{number}");
    }
    let keys: Vec<_> = (0..numbers).map(key).collect();
    for (key, found) in keys.iter().zip(db.multi_get(&keys).unwrap()) {
        assert_eq!(found.as_deref(), state.get(key).map(Vec::as_slice));
    }
    let scanned = db.scan().into_iter().map(Result::unwrap);
    let scanned: State = scanned.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(scanned, *state);
    let backwards = db.scan().reverse().into_iter().map(|found| found.unwrap().0.to_vec());
    assert!(backwards.eq(state.keys().rev().cloned()), "backwards the keys differ");
    let report = db.verify(&mut |_| {}).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems);
}

pub fn tables(db: &Db) -> u64 {
    let levels = db.stats().levels;
    assert!(levels.iter().all(|level| level.level == 0 || level.tables == 0), "there is one level");
    levels.iter().map(|level| level.tables as u64).sum()
}

/// Rounds of writes and deletes, of a part of the keys each.
pub fn churn(db: &Db, state: &mut State, random: &mut Random, rounds: std::ops::Range<u64>) {
    for round in rounds {
        for _ in 0..400 {
            let number = random.below(1000);
            match random.below(5) {
                0 => delete(db, state, number),
                _ => put(db, state, number, round),
            }
        }
        db.flush().unwrap();
    }
}

#[test]
fn what_is_written_is_found_by_the_index_after_a_close_and_after_a_kill() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (0..1000).for_each(|number| put(&db, &mut state, number, 1));
    (0..1000).step_by(7).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    check(&db, &state, 1001);
    db.settle().unwrap();
    let found = index(&db);
    assert!(found.objects >= 1000 && found.waiting_tables == 0 && !found.is_full, "{found:?}");
    check(&db, &state, 1001);
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    check(&db, &state, 1001);
    assert_eq!(index(&db).objects, found.objects, "what was entered stays entered");
    db.close().unwrap();
    let db = machine.open().unwrap();
    check(&db, &state, 1001);
}

#[test]
fn tables_that_wait_are_searched_and_entered_after_a_kill() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(3);
    let mut waited = 0;
    for round in 0..12 {
        churn(&db, &mut state, &mut random, round..round + 1);
        waited = waited.max(index(&db).waiting_tables);
        check(&db, &state, 1000);
    }
    assert!(waited > 0, "the flushes waited for every table to be entered");
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    check(&db, &state, 1000);
    db.settle().unwrap();
    assert_eq!(index(&db).waiting_tables, 0);
    check(&db, &state, 1000);
}

#[test]
fn sparse_tables_are_merged_until_most_of_what_is_left_is_live() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(5);
    churn(&db, &mut state, &mut random, 0..25);
    db.settle().unwrap();
    check(&db, &state, 1000);
    assert!(db.stats().operations.compactions > 0);
    let entries: u64 = db.stats().levels.iter().map(|level| level.entries).sum();
    assert!(entries < 2000, "1000 keys take {entries} entries");
    assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    check(&db, &state, 1000);
}

/// Entries of all tables.
fn entries(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.entries).sum()
}

#[test]
fn a_snapshot_that_is_held_keeps_its_moment_and_what_is_newer_is_merged() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(19);
    churn(&db, &mut state, &mut random, 0..4);
    db.settle().unwrap();
    let (snapshot, then) = (db.snapshot(), state.clone());
    churn(&db, &mut state, &mut random, 4..30);
    db.settle().unwrap();
    // A thousand keys of now, some of which are not merged yet, and those of then.
    let held = entries(&db);
    assert!(held < 4000, "{held} entries");
    for number in 0..1000 {
        let found = snapshot.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), then.get(&key(number)).map(Vec::as_slice), "{number}");
    }
    let scanned = snapshot.scan().into_iter().map(Result::unwrap);
    assert!(scanned.map(|(key, value)| (key.to_vec(), value.to_vec())).eq(then));
    check(&db, &state, 1000);
    drop(snapshot);
    db.settle().unwrap();
    let free = entries(&db);
    assert!(free < held && free < 2000, "{free} entries, {held} with the snapshot");
    check(&db, &state, 1000);
}

#[test]
fn a_snapshot_of_now_does_not_keep_what_was_replaced_before_it() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    for round in 0..3 {
        (0..600).for_each(|number| put(&db, &mut state, number, round));
        db.flush().unwrap();
    }
    // The tables are entered, and what they replaced is not merged yet.
    let snapshot = db.snapshot();
    let then = state.clone();
    for number in 600..700 {
        put(&db, &mut state, number, 9);
    }
    db.flush().unwrap();
    db.settle().unwrap();
    let found = snapshot.scan().into_iter().map(Result::unwrap);
    assert!(found.map(|(key, value)| (key.to_vec(), value.to_vec())).eq(then));
    check(&db, &state, 700);
}

#[test]
fn all_that_is_deleted_leaves_tables_and_index() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (0..1000).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    db.settle().unwrap();
    let full = index(&db).objects;
    (0..1000).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    db.settle().unwrap();
    check(&db, &state, 1000);
    let (left, entries) = (index(&db).objects, tables(&db));
    assert!(left < full / 10 && entries == 0, "{left} of {full} objects, {entries} tables");
}

#[test]
fn snapshots_see_what_was_then() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(7);
    churn(&db, &mut state, &mut random, 0..5);
    let (snapshot, then) = (db.snapshot(), state.clone());
    churn(&db, &mut state, &mut random, 5..15);
    db.settle().unwrap();
    for number in 0..1000 {
        let found = snapshot.get(key(number)).unwrap();
        assert_eq!(found.as_deref(), then.get(&key(number)).map(Vec::as_slice), "{number}");
    }
    check(&db, &state, 1000);
    let before = db.stats().levels[0].entries;
    drop(snapshot);
    db.settle().unwrap();
    assert!(db.stats().levels[0].entries < before, "what only the snapshot saw is merged away");
    check(&db, &state, 1000);
}

#[test]
fn bulk_loads_and_merges_of_a_range_keep_every_answer() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    let mut random = Random::new(11);
    for round in 0..6 {
        churn(&db, &mut state, &mut random, round..round + 1);
        let mut ingest = db.ingest();
        for number in 200 + round * 50..500 {
            ingest.add(key(number), [round as u8; 60]).unwrap();
            state.insert(key(number), vec![round as u8; 60]);
        }
        ingest.finish().unwrap();
        check(&db, &state, 1000);
        delete(&db, &mut state, 300);
        db.compact_range(Some(&key(100)), Some(&key(400)), &mut |_| {}).unwrap();
        check(&db, &state, 1000);
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    check(&db, &state, 1000);
    tables(&db);
}

#[test]
fn batches_and_transactions_see_the_newest_by_the_index() {
    let machine = Machine::new();
    let db = create(&machine);
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let mut first = db.transaction(TransactionOptions::default());
    let mut second = db.transaction(TransactionOptions::default());
    assert_eq!(first.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    first.put("a", "2").unwrap();
    assert_eq!(second.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    second.put("a", "3").unwrap();
    first.commit().unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(second.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let mut batch = WriteBatch::new();
    batch.delete("a").put("b", "4");
    db.write(batch).unwrap();
    assert_eq!((db.get("a").unwrap(), db.get("b").unwrap().is_some()), (None, true));
}

#[test]
fn another_preset_is_taken_over_and_the_index_is_not_left_behind() {
    let machine = Machine::new();
    let (db, mut state) = (machine.create(), State::new());
    (0..2000).for_each(|number| put(&db, &mut state, number, 1));
    db.compact_range(None, None, &mut |_| {}).unwrap();
    assert!(db.stats().levels.iter().any(|level| level.level > 0 && level.tables > 0));
    (0..2000).step_by(3).for_each(|number| delete(&db, &mut state, number));
    db.close().unwrap();
    let open = |settings: &Settings| {
        let settings = Settings { tiers: Vec::new(), ..settings.clone() };
        machine.environment().open_with(Path::new(HOME), &settings)
    };
    let db = open(&indexed()).unwrap();
    check(&db, &state, 2000);
    db.settle().unwrap();
    tables(&db);
    check(&db, &state, 2000);
    db.close().unwrap();
    let db = open(&settings()).unwrap();
    check(&db, &state, 2000);
    db.close().unwrap();
    let db = open(&indexed()).unwrap();
    check(&db, &state, 2000);
}

#[test]
fn a_checkpoint_has_no_region_and_gets_another_index() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    churn(&db, &mut state, &mut Random::new(13), 0..5);
    db.settle().unwrap();
    let before = index(&db).objects;
    let copy = Path::new("/copy");
    db.checkpoint(copy).unwrap();
    db.close().unwrap();
    let environment = machine.environment();
    let error = environment.open(copy).unwrap_err();
    assert!(error.to_string().contains("name a region"), "{error}");
    let region = PersistentMemory::new("/pmem/other", ByteSize::mib(16));
    let settings = Settings { tiers: Vec::new(), persistent_memory: Some(region), ..indexed() };
    let db = environment.open_with(copy, &settings).unwrap();
    check(&db, &state, 1000);
    db.settle().unwrap();
    let after = index(&db);
    assert_eq!(after.waiting_tables, 0);
    assert!(after.objects.abs_diff(before) < before / 10, "{after:?}, {before} before");
    check(&db, &state, 1000);
}

#[test]
fn it_is_refused_without_a_region_and_read_without_an_index() {
    let machine = Machine::new();
    let without = Settings { persistent_memory: None, ..indexed() };
    let error = machine.environment().create(Path::new(HOME), &without).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("persistent_memory = { path"), "{error}");
    let (db, mut state) = (create(&machine), State::new());
    churn(&db, &mut state, &mut Random::new(17), 0..4);
    db.close().unwrap();
    let db = machine.environment().open_read_only(Path::new(HOME)).unwrap();
    check(&db, &state, 1000);
    assert_eq!(db.stats().index, None);
}

#[test]
fn a_full_index_refuses_new_records_takes_deletes_and_goes_on_when_they_made_room() {
    // Keys of many lengths take chunks of many sizes.
    for (lengths, most) in [(200, 60_000), (2000, 40_000)] {
        fill_and_make_room(lengths, most);
    }
}

fn fill_and_make_room(lengths: u64, most: u64) {
    let regions = Arc::new(ShadowRegions::new(crate::regions::PERSISTENT));
    let machine = Machine { regions, ..Machine::new() };
    let settings = Settings {
        tiers: vec![Tier::new(TIER, ByteSize::mib(256)).driver("memory")],
        persistent_memory: Some(PersistentMemory::new(REGION, ByteSize::mib(16))),
        memory: ByteSize::mib(24),
        ..indexed()
    };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let name = |number: u64| [key(number), vec![b'x'; (number % lengths) as usize]].concat();
    let mut number = 0;
    let error = loop {
        match db.put(name(number), number.to_le_bytes()) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        // Writers wait for tables that wait, and the steps of this machine are its callers'.
        if number % 256 == 0 {
            db.settle().unwrap();
        }
        assert!(number < most, "the region takes more than it has");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    assert!(error.to_string().contains("deletes are taken"), "{error}");
    let mut ingest = db.ingest();
    ingest.add("z", "1").unwrap();
    assert_eq!(ingest.finish().unwrap_err().kind(), ErrorKind::OutOfSpace);
    assert!(index(&db).is_full);
    let all_are_found = |db: &Db, from: u64| {
        for number in from..number {
            let value = db.get(name(number)).unwrap();
            assert_eq!(value.as_deref(), Some(&number.to_le_bytes()[..]), "{number}");
        }
        assert_eq!(db.scan().into_iter().map(Result::unwrap).count() as u64, number - from);
    };
    all_are_found(&db, 0);
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    all_are_found(&db, 0);
    (0..number / 2).for_each(|number| db.delete(name(number)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    assert!(!index(&db).is_full, "{:?}", index(&db));
    db.put("a", "1").unwrap();
    db.delete("a").unwrap();
    all_are_found(&db, number / 2);
}

/// Puts until the index takes nothing more and has all that there is; how many records these are.
fn fill(db: &Db) -> u64 {
    let mut full = 0;
    loop {
        let more = put_until_full(db, full, 60_000);
        assert!(more < 60_000, "the region takes more than it has");
        db.flush().unwrap();
        db.settle().unwrap();
        if more == std::mem::replace(&mut full, more) {
            return full;
        }
    }
}

/// Bytes of free chunks in a row at the most.
fn longest_free_bytes(machine: &Machine) -> u64 {
    let medium = Medium::shadowed(&machine.regions.stored(REGION));
    let found = RegionIdentity::read(&medium).unwrap();
    let runs = runs(&medium, &found.owner(), &found.geometry).unwrap();
    let rows = runs.chunk_by(|a, b| a.header.kind == b.header.kind);
    let free = rows.filter(|row| row[0].header.kind == ChunkKind::Free);
    free.map(|row| row.iter().map(|run| run.bytes).sum()).max().unwrap_or(0)
}

/// The index has what it may take, the memtables of the life before are not flushed yet, and there
/// are not so many chunks in a row as another one takes.
#[test]
fn a_full_region_is_opened_after_a_kill_with_all_its_memtables_in_use() {
    let machine = Machine::new();
    // A full memtable takes an eighth of the region, and one more than there may be has no room in
    // the half that is left to them.
    let settings = Settings {
        persistent_memory: Some(PersistentMemory::new(REGION, ByteSize::mib(40))),
        memory: ByteSize::mib(60),
        ..indexed()
    };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let full = fill(&db);
    while db.stats().activity.frozen_memtables < 2 {
        db.delete(long_key(0)).unwrap();
    }
    let machine = machine.killed(db);
    assert!(longest_free_bytes(&machine) < 5 << 20, "there is room for a memtable");
    let db = machine.open().unwrap();
    for number in 1..full {
        let found = db.get(long_key(number)).unwrap();
        assert_eq!(found.as_deref(), Some(&number.to_le_bytes()[..]), "{number}");
    }
    (1..full / 2).for_each(|number| db.delete(long_key(number)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    assert!(!index(&db).is_full, "{:?}", index(&db));
    db.put(long_key(0), "1").unwrap();
}

/// How many of these keys have not the value that they should have; none where all have.
fn other_values(db: &Db, state: &State, numbers: std::ops::Range<u64>) -> Option<String> {
    let differs = |number: &u64| {
        let found = db.get(key(*number)).unwrap();
        found.as_deref() != state.get(&key(*number)).map(Vec::as_slice)
    };
    let wrong = numbers.filter(differs).count();
    (wrong > 0).then(|| format!("{wrong} keys have another value"))
}

/// Keys that are not there are deleted beside those that are, until the index has no room for the
/// tombstones of the former.
#[test]
fn deletes_of_keys_that_are_not_there_do_not_keep_others_from_making_room() {
    let machine = Machine::new();
    let settings = Settings { memory: ByteSize::mib(24), ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let full = fill(&db);
    for number in 0..full / 2 {
        db.delete(long_key(number)).unwrap();
        db.delete([long_key(number), b"absent".to_vec()].concat()).unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    assert!(!index(&db).is_full, "{:?}", index(&db));
    db.put("a", "1").unwrap();
    db.delete("a").unwrap();
    let all_are_found = |db: &Db| {
        for number in 0..full {
            let found = db.get(long_key(number)).unwrap();
            let value = (number >= full / 2).then(|| number.to_le_bytes().to_vec());
            assert_eq!(found.map(|found| found.to_vec()), value, "{number}");
        }
        assert_eq!(db.scan().into_iter().map(Result::unwrap).count() as u64, full - full / 2);
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
    };
    all_are_found(&db);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    all_are_found(&machine.killed(db).open().unwrap());
}

/// A key that takes a chunk of the region.
fn longest_key(number: u64) -> Vec<u8> {
    [key(number), vec![b'l'; 65_000]].concat()
}

/// What the index has no room for waits, and is deleted; what is wrong then.
fn fault_after_deletes_of_what_waits() -> Option<String> {
    const KEYS: u64 = 60;
    let machine = Machine::new();
    let settings = Settings { memory: ByteSize::mib(24), ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let full = fill(&db);
    // Room for as many keys, but not for such long ones.
    (0..full / 2).for_each(|number| db.delete(long_key(number)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    for number in 0..KEYS {
        db.put(longest_key(number), "value").unwrap();
    }
    db.flush().unwrap();
    db.settle().unwrap();
    assert!(index(&db).waiting_tables > 0, "{:?}", index(&db));
    (0..KEYS).for_each(|number| db.delete(longest_key(number)).unwrap());
    db.flush().unwrap();
    db.settle().unwrap();
    let are_there = (0..KEYS).filter(|number| db.get(longest_key(*number)).unwrap().is_some());
    let count = are_there.count();
    (count > 0).then(|| format!("{count} keys are back"))
}

#[test]
fn what_is_deleted_while_it_waits_stays_deleted() {
    assert_eq!(fault_after_deletes_of_what_waits(), None);
}

/// Where the index is full a deletion that hides nothing has no entry in it. One that hides what a
/// snapshot sees, in the very table of the deletion, is another: its table waits.
#[test]
fn what_a_snapshot_sees_is_there_after_deletes_that_the_index_has_no_room_for() {
    // All but one of the latter find a chunk, and puts and deletes are in one memtable.
    const BEFORE: u64 = 15;
    const KEYS: u64 = 14;
    let machine = Machine::new();
    let settings = Settings { memory: ByteSize::mib(60), ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    let full = fill(&db);
    let settle = || {
        db.flush().unwrap();
        db.settle().unwrap();
    };
    (0..full / 2).for_each(|number| db.delete(long_key(number)).unwrap());
    settle();
    for number in 0..BEFORE {
        db.put(longest_key(100 + number), "value").unwrap();
        if number % 4 == 3 {
            settle();
        }
    }
    settle();
    (0..KEYS).for_each(|number| db.put(longest_key(number), "value").unwrap());
    let snapshot = db.snapshot();
    (0..KEYS).for_each(|number| db.delete(longest_key(number)).unwrap());
    settle();
    assert!(index(&db).waiting_tables > 0, "{:?}", index(&db));
    for number in 0..KEYS {
        let seen = snapshot.get(longest_key(number)).unwrap();
        assert_eq!(seen.as_deref(), Some(&b"value"[..]), "{number}");
        assert_eq!(db.get(longest_key(number)).unwrap(), None, "{number}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_tombstones_that_waiting_records_are_not_sought_for_are_found() {
    is_found(Planted::WaitingRecordsNotSought, fault_after_deletes_of_what_waits);
}

#[cfg(feature = "planted-bugs")]
fn is_found(bug: Planted, fault: fn() -> Option<String>) {
    use thermocline_foundation::planted::{hits, with};
    let (found, hits) = with(bug, || (fault(), hits()));
    assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
}

/// What is wrong after a merge of tombstones, before that of the table with what they hide.
fn fault_after_partial_merges() -> Option<String> {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (500..900).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    db.settle().unwrap();
    // So few that no table of theirs is merged for it, and what hides them is not judged anew.
    (500..560).for_each(|number| delete(&db, &mut state, number));
    for number in 0..8 {
        put(&db, &mut state, number, 2);
        db.flush().unwrap();
    }
    db.settle().unwrap();
    assert!(tables(&db) > 8, "the merges take eight tables each");
    db.compact_range(None, None, &mut |_| {}).unwrap();
    other_values(&db, &state, 0..900)
}

#[test]
fn tombstones_outlive_what_they_hide() {
    assert_eq!(fault_after_partial_merges(), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_merges_that_drop_a_tombstone_too_early_are_found() {
    is_found(Planted::TombstoneDroppedWithOlder, fault_after_partial_merges);
}

/// A merge that drops tombstones cannot write its edit; another opening merges the table with what
/// they hid, and not theirs. What is wrong then.
fn fault_after_a_merge_without_its_edit() -> Option<String> {
    let machine = Machine::new();
    let fails = Arc::new(AtomicBool::new(false));
    let failing = Arc::clone(&fails);
    let hook = move |call, _: &Path, name: &str| match call {
        Call::Write if failing.load(SeqCst) && name.ends_with(".manifest") => {
            Err(Error::new(thermocline_device::ErrorKind::Io, "the device is broken"))
        }
        _ => Ok(()),
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    let environment = stepped(Arc::new(devices), &machine.regions);
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    (500..900).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    db.settle().unwrap();
    (500..560).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    db.settle().unwrap();
    assert_eq!(tables(&db), 3, "so few are deleted that nothing is merged for it");
    fails.store(true, SeqCst);
    db.compact_range(None, None, &mut |_| {}).unwrap_err();
    let machine = machine.killed(db);
    let db = machine.open().unwrap();
    db.compact_range(Some(&key(600)), Some(&key(650)), &mut |_| {}).unwrap();
    other_values(&db, &state, 500..900)
}

#[test]
fn what_a_merge_dropped_and_could_not_say_so_stays_deleted() {
    assert_eq!(fault_after_a_merge_without_its_edit(), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_merges_that_remove_its_entry_too_early_are_found() {
    is_found(Planted::TombstoneEntryRemovedEarly, fault_after_a_merge_without_its_edit);
}

/// A merge ends between its two edits, or anywhere else. What it has copied is there twice, and is
/// not copied again and again.
#[test]
fn a_merge_that_is_cut_off_anywhere_is_brought_to_an_end_after_the_next_opening() {
    let mut cut_off = 0;
    for steps in 0.. {
        let machine = Machine::new();
        let environment = machine.environment();
        let Workers::Stepped(stepper) = environment.workers.clone() else { panic!("threads") };
        let db = environment.create(Path::new(HOME), &indexed()).unwrap();
        let mut state = State::new();
        (500..900).for_each(|number| put(&db, &mut state, number, 1));
        db.flush().unwrap();
        db.settle().unwrap();
        // Tombstones that the table below needs, and records that are soon replaced.
        (500..560).for_each(|number| delete(&db, &mut state, number));
        (0..100).for_each(|number| put(&db, &mut state, number, 2));
        db.flush().unwrap();
        db.settle().unwrap();
        (0..100).for_each(|number| put(&db, &mut state, number, 3));
        db.flush().unwrap();
        let is_done = (0..steps).any(|_| !stepper.step());
        let machine = machine.killed(db);
        let db = machine.open().unwrap();
        db.settle().unwrap();
        let differs = |number: &u64| {
            let found = db.get(key(*number)).unwrap();
            found.as_deref() != state.get(&key(*number)).map(Vec::as_slice)
        };
        assert_eq!((0..900).filter(differs).count(), 0, "after {steps} steps");
        if is_done {
            break;
        }
        cut_off += 1;
    }
    assert!(cut_off > 4, "{cut_off} places");
}

#[test]
fn tiers_come_go_and_are_replaced_under_the_index() {
    let machine = Machine::new();
    let db = create(&machine);
    let (mut state, mut random) = (State::new(), Random::new(4));
    churn(&db, &mut state, &mut random, 1..6);
    db.close().unwrap();
    let fast = Tier::new("/fast", ByteSize::mib(256)).driver("memory");
    let fast_goes = TierChange::Remove { tier: WhichTier::Path("/fast".into()) };
    for change in [
        TierChange::Add { at: Some(0), tier: fast },
        TierChange::Replace { tier: WhichTier::Place(1), path: "/other".into() },
        TierChange::Replace { tier: WhichTier::Place(1), path: TIER.into() },
        fast_goes,
    ] {
        let environment = machine.environment();
        environment.change_tiers(Path::new(HOME), None, &change, &mut |_| {}).unwrap();
        let db = machine.open().unwrap();
        check(&db, &state, 1000);
        churn(&db, &mut state, &mut random, 6..8);
        check(&db, &state, 1000);
        db.close().unwrap();
    }
    assert!(machine.devices.directory(Path::new("/fast")).is_none());
    let db = machine.open().unwrap();
    check(&db, &state, 1000);
    db.close().unwrap();
}
