//! Readers beside the writer of the index, under chosen schedules: see
//! `thermocline_foundation::sync::schedules`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::identity::{Expected, RegionIdentity};
use crate::object::Entry;
use crate::persist::Medium;
use crate::region::Region;
use crate::tree::Tree;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::schedules::{check, yield_now};
use thermocline_foundation::{FileNumber, threads};

/// The index of the example: keys `warm water 000` to `039` of table 5.
fn tree() -> Arc<Tree> {
    let medium = Medium::in_memory(include_bytes!("../golden/region-v1.bin"));
    let found = RegionIdentity::read(&medium).unwrap();
    let expected = Expected {
        database: found.database,
        instance: found.instance,
        generation: found.generation,
    };
    let opened = Region::open(medium, &expected, &found.opened, found.generation).unwrap();
    Arc::new(Tree::open(&opened).unwrap())
}

fn key(number: u64) -> Vec<u8> {
    format!("warm water {number:03}").into_bytes()
}

/// Records of table 6 between those of the example.
fn between(numbers: std::ops::Range<u64>) -> Vec<(Vec<u8>, Entry)> {
    let record = |number: u64| {
        let (trailer, table) = ((1000 + number) << 8 | 1, FileNumber(6));
        let key = [&key(number)[..], b"+"].concat();
        (key, Entry { trailer, table, block_offset: 0, block_bytes: 1 })
    };
    numbers.map(record).collect()
}

/// Runs `write` beside `read`, which is called again until the other has ended; then the index is
/// checked.
fn side_by_side(write: impl FnOnce(&Tree) + Send + 'static, read: impl Fn(&Tree) + Send + 'static) {
    let tree = tree();
    let is_written = Arc::new(AtomicBool::new(false));
    let (of_writer, its_flag) = (Arc::clone(&tree), Arc::clone(&is_written));
    let writer = threads::spawn("writer", move || {
        write(&of_writer);
        its_flag.store(true, Ordering::SeqCst);
    });
    let of_reader = Arc::clone(&tree);
    let reader = threads::spawn("reader", move || {
        while !is_written.load(Ordering::SeqCst) {
            read(&of_reader);
            yield_now();
        }
        read(&of_reader);
    });
    for thread in [writer, reader] {
        thread.unwrap().join().unwrap();
    }
    tree.check().unwrap();
}

/// The keys before `until`, in ascending order.
fn backwards(tree: &Tree, until: &[u8]) -> Vec<Vec<u8>> {
    let (mut keys, mut rest) = (Vec::new(), Some(until.to_vec()));
    while let Some(until) = rest {
        let found = tree.descend(Some(&until)).unwrap();
        keys.extend(found.entries.into_iter().map(|(key, _)| key));
        rest = found.rest;
    }
    keys.reverse();
    keys
}

/// A walk had these, in order.
fn requires(keys: &[Vec<u8>], numbers: &[u64]) {
    assert!(keys.is_sorted_by(|a, b| a < b));
    for number in numbers {
        assert!(keys.contains(&key(*number)), "{number} is missed");
    }
}

/// A leaf is split while it is read: what was there all the time is found.
fn splits_hide_no_key() {
    let write = |tree: &Tree| tree.enter((FileNumber(6), 20), &between(20..40), true).unwrap();
    side_by_side(write, |tree| {
        for number in [39, 27, 20] {
            assert!(tree.get(&key(number)).unwrap().is_some(), "{number} is missed");
        }
        requires(&backwards(tree, &key(40)), &[0, 19, 20, 27, 39]);
    });
}

/// Nodes and objects go and are used again while a walk and look-ups are under way.
fn reuse_disturbs_no_reader() {
    let write = |tree: &Tree| {
        let gone: Vec<_> = (4..36).map(|number| (key(number), number << 8 | 1)).collect();
        tree.remove(&gone).unwrap();
        tree.enter((FileNumber(6), 12), &between(6..18), true).unwrap();
    };
    side_by_side(write, |tree| {
        assert!(tree.get(&key(38)).unwrap().is_some());
        let keys: Vec<_> = tree.cursor(&key(2)).map(|found| found.unwrap().0).collect();
        requires(&keys, &[2, 3, 36, 37, 38, 39]);
        requires(&backwards(tree, &key(39)), &[0, 2, 3, 36, 37, 38]);
    });
}

#[test]
fn a_reader_beside_splits_finds_what_was_there_all_the_time() {
    check(300, splits_hide_no_key);
}

#[test]
fn a_reader_beside_joins_and_reuse_finds_what_was_there_all_the_time() {
    check(300, reuse_disturbs_no_reader);
}

/// The tester tested: the schedules above find a reader that does not look to the right.
#[cfg(feature = "planted-bugs")]
#[test]
fn schedules_find_a_reader_that_ignores_splits() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let bug = Planted::ReaderIgnoresSplit;
    let found = std::panic::catch_unwind(|| with(bug, || check(300, splits_hide_no_key)));
    assert!(found.is_err(), "300 schedules do not show it");
}
