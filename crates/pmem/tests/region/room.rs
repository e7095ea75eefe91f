//! What arenas and the index take of a region that fills up.

use super::support::{create, every_image, geometry, open};
use super::tree::entry;
use crate::object::Entry;
use crate::region::OpenedRegion;
use crate::tree::Tree;
use thermocline_device::ErrorKind;
use thermocline_foundation::{FileNumber, Sequence};

/// An entry of table 3 with a key of `key_bytes`.
fn record(number: u64, key_bytes: usize) -> (Vec<u8>, Entry) {
    let mut key = format!("{number:08}").into_bytes();
    key.resize(key_bytes, b'.');
    (key, entry(number + 1, 3))
}

/// Enters records one by one, from `from` on, until there is no room; how many went in.
fn fill(tree: &Tree, from: u64, key_bytes: usize) -> u64 {
    for number in from.. {
        match tree.enter((FileNumber(3), 9), &[record(number, key_bytes)], false) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::OutOfSpace => return number - from,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("the region takes more than it has")
}

fn again(opened: &OpenedRegion) -> (OpenedRegion, Tree) {
    let opened = open(&opened.region.medium().snapshot()).unwrap();
    let tree = Tree::open(&opened).unwrap();
    (opened, tree)
}

#[test]
fn chunks_in_a_row_are_left_to_arenas_while_the_index_fills_the_rest() {
    let opened = create(geometry(20));
    let (region, tree) = (&opened.region, Tree::open(&opened).unwrap());
    region.chunks().leave_to_arenas(8);
    let arena = |number| region.create_arena(FileNumber(number), Sequence(1), 3 * 4096).unwrap();
    let (first, second) = (arena(1), arena(2));
    assert_eq!(region.chunks().free_beside_arenas(), 12);
    // The first one goes, and its room is not for the index.
    first.free();
    assert!(fill(&tree, 0, 24) > 100);
    assert_eq!(region.chunks().free_beside_arenas(), 0);
    assert_eq!(region.chunks().free_chunks(), 4);
    second.free();
    let long = region.create_arena(FileNumber(3), Sequence(1), 7 * 4096).unwrap();
    long.free();
    tree.check().unwrap();
    assert_eq!(again(&opened).0.region.chunks().free_chunks(), 8);
}

/// A chunk is cut out of the middle of free ones: no crash loses count of those around it.
#[test]
fn a_chunk_behind_those_of_arenas_is_taken_whole_or_not_at_all() {
    let opened = create(geometry(9));
    opened.region.chunks().leave_to_arenas(4);
    let tree = Tree::open(&opened).unwrap();
    tree.enter((FileNumber(3), 1), &[record(0, 24)], true).unwrap();
    opened.region.medium().shadow().mark(1);
    let mut images = 0;
    every_image(&opened.region, 64, |acknowledged, image| {
        images += 1;
        let opened = open(image).unwrap();
        let tree = Tree::open(&opened).unwrap();
        assert!(acknowledged == 0 || tree.get(&record(0, 24).0).unwrap().is_some());
        let used = 9 - opened.region.chunks().free_chunks();
        assert!(used <= 3, "{used} chunks");
        // All that is free can be given out.
        for number in used..9 {
            opened.region.create_arena(FileNumber(number), Sequence(1), 3000).unwrap();
        }
    });
    assert!(images > 10);
}

#[test]
fn an_object_goes_to_a_larger_class_where_there_is_no_chunk_for_its_own() {
    let opened = create(geometry(12));
    let tree = Tree::open(&opened).unwrap();
    // One long key has a chunk with room for more, then short ones take all others.
    tree.enter((FileNumber(3), 9), &[record(0, 200)], false).unwrap();
    let short = fill(&tree, 1, 24);
    let own = (4096 - 128) / 56;
    assert!(short > 3 * own && !short.is_multiple_of(own), "{short} keys, {own} in a chunk");
    tree.check().unwrap();
    let (_, tree) = again(&opened);
    for number in 1..=short {
        let (key, entry) = record(number, 24);
        assert_eq!(tree.get(&key).unwrap(), Some(entry));
    }
    // What they give back is taken by long ones.
    let gone: Vec<_> = (1..=short).map(|number| record(number, 24)).collect();
    let gone: Vec<_> = gone.into_iter().map(|(key, entry)| (key, entry.trailer)).collect();
    tree.remove(&gone).unwrap();
    assert!(fill(&tree, short + 1, 200) > 10);
    tree.check().unwrap();
}

#[test]
fn keys_that_are_known_change_where_new_ones_are_refused() {
    let opened = create(geometry(16));
    let (chunks, tree) = (opened.region.chunks(), Tree::open(&opened).unwrap());
    chunks.leave_to_arenas(4);
    chunks.leave_to_changes(3);
    let known = fill(&tree, 0, 24);
    assert!(known > 200 && chunks.free_chunks() >= 4 + 2, "{} chunks", chunks.free_chunks());
    // Each gets another place, as in a merge, or a tombstone.
    let moved: Vec<_> =
        (0..known).map(|number| (record(number, 24).0, entry(known + number + 1, 4))).collect();
    tree.enter((FileNumber(4), known), &moved, true).unwrap();
    assert_eq!(tree.table(FileNumber(3)).unwrap().live, 0);
    let tombstones: Vec<_> =
        moved.iter().map(|(key, entry)| (key.clone(), entry.trailer)).collect();
    tree.release(&tombstones).unwrap();
    tree.remove(&tombstones).unwrap();
    assert!(fill(&tree, 2 * known, 24) > known / 2, "there is room again");
    tree.check().unwrap();
}
