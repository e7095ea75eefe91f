//! The preset `indexed`: what a table's writer hands over to the index, and what is read instead.

use crate::indexed::{State, check, churn, create, indexed, key, put};
use crate::support::{HOME, Machine, counting_reads};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use thermocline::{Db, Environment, Experiments, Workers};
use thermocline_foundation::random::Random;

fn waiting(db: &Db) -> u64 {
    db.stats().index.unwrap().waiting_tables
}

#[test]
fn what_was_flushed_is_entered_without_a_read_of_its_table() {
    let machine = Machine::new();
    let (environment, reads) = counting_reads(&machine);
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    // Nothing is replaced, so nothing is merged.
    for round in 0..5 {
        (0..400).for_each(|number| put(&db, &mut state, round * 400 + number, round));
        db.flush().unwrap();
        db.settle().unwrap();
    }
    assert_eq!((waiting(&db), reads.load(Relaxed)), (0, 0));
    check(&db, &state, 2000);
    assert!(reads.load(Relaxed) > 0);
}

#[test]
fn a_merge_reads_what_it_merges_and_not_what_it_has_written() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (0..900).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    db.settle().unwrap();
    let machine = machine.killed(db);
    let (environment, reads) = counting_reads(&machine);
    let db = environment.open(Path::new(HOME)).unwrap();
    let before = crate::indexed::tables(&db);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.settle().unwrap();
    // Of each table its end, its index and all of its data, which a window holds.
    let merged = reads.load(Relaxed);
    assert!(merged > 0 && merged <= before * 8, "{merged} reads of {before} tables");
    check(&db, &state, 900);
}

#[test]
fn tables_for_which_there_is_no_memory_are_read() {
    let machine = Machine::new();
    let (environment, reads) = counting_reads(&machine);
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let mut state = State::new();
    // Long keys and no values.
    let long = |number: u64| [key(number), vec![b'k'; 300]].concat();
    for number in 0..1000 {
        db.put(long(number), "").unwrap();
        state.insert(long(number), Vec::new());
    }
    db.flush().unwrap();
    db.settle().unwrap();
    assert!(waiting(&db) == 0 && reads.load(Relaxed) > 0);
    for (key, value) in &state {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    assert!(db.verify(&mut |_| {}).unwrap().is_ok());
}

#[test]
fn what_was_handed_over_is_read_after_a_kill() {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    churn(&db, &mut state, &mut Random::new(41), 0..3);
    assert!(waiting(&db) > 0, "a table was entered before the kill");
    let machine = machine.killed(db);
    let (environment, reads) = counting_reads(&machine);
    let db = environment.open(Path::new(HOME)).unwrap();
    db.settle().unwrap();
    assert!(waiting(&db) == 0 && reads.load(Relaxed) > 0);
    check(&db, &state, 1000);
}

/// Whether a table was entered while a memtable waited to be flushed.
fn enters_beside_flushes(experiments: Experiments) -> bool {
    let machine = Machine::new();
    let environment = Environment { experiments, ..machine.environment() };
    let Workers::Stepped(stepper) = environment.workers.clone() else { panic!("threads") };
    let db = environment.create(Path::new(HOME), &indexed()).unwrap();
    let frozen = || db.stats().activity.frozen_memtables;
    let (mut state, mut number, mut is_beside) = (State::new(), 0, false);
    for round in 0..10 {
        for _ in 0..50 {
            put(&db, &mut state, number, round);
            number += 1;
        }
        db.flush().unwrap();
        while frozen() == 0 {
            assert!(number < 20_000, "no memtable is full");
            put(&db, &mut state, number, round);
            number += 1;
        }
        loop {
            let before = waiting(&db);
            let is_done = frozen() == 0 || !stepper.step();
            is_beside |= waiting(&db) < before && frozen() > 0;
            if is_done {
                break;
            }
        }
        db.settle().unwrap();
    }
    assert_eq!(waiting(&db), 0);
    check(&db, &state, number);
    is_beside
}

#[test]
fn tables_are_entered_while_memtables_are_flushed_unless_it_is_left_out() {
    assert!(enters_beside_flushes(Experiments::NONE));
    let after = Experiments { enter_beside: Some(false), ..Experiments::NONE };
    assert!(!enters_beside_flushes(after));
}
