//! The preset `indexed`: conditional writes and commits ask memory and the index, and read no
//! device.

use crate::indexed::{State, check, create, delete, key, put};
use crate::support::{HOME, Machine, counting_reads};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline::{Db, Environment, ErrorKind, Experiments, Swap, TransactionOptions};

/// A store whose keys below 600 are in tables that are entered, every tenth of them deleted, after
/// the end of its process.
fn killed() -> (Machine, State) {
    let machine = Machine::new();
    let (db, mut state) = (create(&machine), State::new());
    (0..600).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    (0..600).step_by(10).for_each(|number| delete(&db, &mut state, number));
    db.flush().unwrap();
    db.settle().unwrap();
    (machine.killed(db), state)
}

/// The store and its reads of tables from now on: none is open, no block is in memory, and the
/// background reads nothing by itself.
fn counted(machine: &Machine) -> (Db, Arc<AtomicU64>) {
    let (environment, reads) = counting_reads(machine);
    let experiments =
        Experiments { leaf_scan: Some(false), scan_merges: Some(false), ..Experiments::NONE };
    let db = Environment { experiments, ..environment }.open(Path::new(HOME)).unwrap();
    db.settle().unwrap();
    reads.store(0, Relaxed);
    (db, reads)
}

#[test]
fn a_put_that_depends_on_the_key_reads_no_device() {
    let (machine, mut state) = killed();
    let (db, reads) = counted(&machine);
    for number in (0..700).step_by(5) {
        let is_there = state.contains_key(&key(number));
        let value = vec![2; 30];
        let wrote = match number % 2 {
            0 => db.put_if_absent(key(number), &value).unwrap() != is_there,
            _ => db.put_if_present(key(number), &value).unwrap() == is_there,
        };
        assert!(wrote, "{number}");
        if (number % 2 == 1) == is_there {
            state.insert(key(number), value);
        }
        // To have a value of nothing is to have no key.
        let absent = db.compare_and_swap(key(1000 + number), None, Some(b"3")).unwrap();
        assert_eq!(absent, Swap::Swapped);
        state.insert(key(1000 + number), b"3".to_vec());
    }
    assert_eq!(reads.load(Relaxed), 0);
    // What is asked of a value reads the block that has it, and nothing else.
    let number = 7;
    let value = state[&key(number)].clone();
    let swap = db.compare_and_swap(key(number), Some(&value), None).unwrap();
    assert_eq!(swap, Swap::Swapped);
    state.remove(&key(number));
    assert!(reads.load(Relaxed) > 0, "reads are counted");
    check(&db, &state, 1700);
}

#[test]
fn a_commit_is_validated_by_the_index_and_reads_no_device() {
    let (machine, mut state) = killed();
    let (db, reads) = counted(&machine);
    let begin = || db.transaction(TransactionOptions::default());
    let write = |keys: std::ops::Range<u64>| {
        let mut transaction = begin();
        keys.for_each(|number| transaction.put(key(number), "4").unwrap());
        transaction
    };
    let (undisturbed, overtaken) = (write(100..140), write(140..180));
    // What came after their moment is in tables by their commits, so memory cannot tell.
    put(&db, &mut state, 155, 5);
    put(&db, &mut state, 300, 5);
    db.flush().unwrap();
    db.settle().unwrap();
    reads.store(0, Relaxed);
    undisturbed.commit().unwrap();
    assert_eq!(overtaken.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(reads.load(Relaxed), 0);
    (100..140).for_each(|number| drop(state.insert(key(number), b"4".to_vec())));
    check(&db, &state, 700);
    assert!(reads.load(Relaxed) > 0, "reads are counted");
}
