//! Groups under crashes, damage and reuse.

use super::support::{create, every_image, geometry, open};
use crate::arena::{Arena, GroupHeader, replay};
use crate::memtable::{EncodedGroup, Found, PersistentMemtable, Write};
use crate::region::{OpenedRegion, Region};
use std::sync::Arc;
use thermocline_device::{ErrorKind, Result};
use thermocline_foundation::random::Random;
use thermocline_foundation::{FileNumber, Sequence};

const NEWEST: Sequence = Sequence::MAX;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Write<'a> {
    Write { key, value: Some(value) }
}

fn memtable(region: &Arc<Region>, number: u64, first: u64, bytes: u64) -> PersistentMemtable {
    let arena = region.create_arena(FileNumber(number), Sequence(first), bytes).unwrap();
    PersistentMemtable::new(arena)
}

/// Writes one group that begins with `first`; all before it is published.
fn write(memtable: &PersistentMemtable, first: u64, writes: &[Write<'_>]) -> Option<u64> {
    let group = EncodedGroup::new(writes);
    let claim = memtable.claim(&group)?;
    memtable.write_group(&claim, &group, Sequence(first), Sequence(first - 1));
    Some(first + writes.len() as u64)
}

/// The memtables that are found, and the sequence that is missing first.
fn recovered(opened: OpenedRegion) -> Result<(Vec<PersistentMemtable>, u64)> {
    let (groups, missing) = replay(&opened.arenas)?;
    // An opening that finds no room for tables replays once more.
    let again = replay(&opened.arenas)?;
    assert!(again.1 == missing && format!("{:?}", again.0) == format!("{groups:?}"));
    let tables = opened.arenas.into_iter().zip(groups);
    let tables: Result<Vec<_>> =
        tables.map(|(arena, groups)| PersistentMemtable::recover(arena, &groups)).collect();
    Ok((tables?, missing.map_or(1, |missing| missing.0)))
}

fn keys(memtable: &PersistentMemtable) -> Vec<(Vec<u8>, u64)> {
    memtable.records(NEWEST).map(|(key, found)| (key, found.sequence.0)).collect()
}

#[test]
fn a_group_takes_one_fence_and_its_records_are_found_in_order() {
    let region = create(geometry(4)).region;
    let memtable = memtable(&region, 1, 1, 4000);
    let fences = region.medium().counts().fences;
    let next = write(&memtable, 1, &[put(b"tea", b"green"), put(b"rum", b""), put(b"tea", b"b")]);
    assert_eq!(next, Some(4));
    write(&memtable, 4, &[Write { key: b"rum", value: None }]).unwrap();
    assert_eq!(region.medium().counts().fences - fences, 2, "one fence a group");
    let expected = [("rum", 4), ("rum", 2), ("tea", 3), ("tea", 1)];
    let expected = expected.map(|(key, sequence)| (key.as_bytes().to_vec(), sequence));
    assert_eq!(keys(&memtable), expected);
    assert_eq!(memtable.records(Sequence(2)).count(), 2);
    let found = |value: Option<&[u8]>, sequence| {
        Some(Found { sequence: Sequence(sequence), value: value.map(<[u8]>::to_vec) })
    };
    assert_eq!(memtable.get(b"tea", NEWEST), found(Some(b"b"), 3));
    assert_eq!(memtable.get(b"tea", Sequence(2)), found(Some(b"green"), 1));
    assert_eq!(memtable.get(b"rum", NEWEST), found(None, 4));
    assert_eq!(memtable.get(b"rum", Sequence(3)), found(Some(b""), 2));
    assert_eq!(memtable.get(b"t", NEWEST), None);
    assert!(region.medium().snapshot().len() > 10 && memtable.len() == 4);
}

#[test]
fn a_full_arena_refuses_a_group_and_takes_none_that_is_smaller_later() {
    let region = create(geometry(2)).region;
    let memtable = memtable(&region, 1, 1, 3000);
    let large = vec![7; 3000];
    let next = write(&memtable, 1, &[put(b"a", &large)]).unwrap();
    assert_eq!(write(&memtable, next, &[put(b"b", &large)]), None);
    let error = region.create_arena(FileNumber(2), Sequence(2), 9000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    memtable.free();
    assert_eq!(region.chunks().free_chunks(), 2);
}

/// Groups of different lengths, the acknowledgement of each marked.
fn script(region: &Arc<Region>, groups: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut next = 1;
    let mut table = memtable(region, 1, 1, 3000);
    let mut number = 1;
    for _ in 0..groups {
        let count = 1 + random.below(3);
        let records: Vec<(Vec<u8>, Vec<u8>)> = (0..count)
            .map(|index| {
                let value = vec![(next + index) as u8; random.below(150) as usize];
                (format!("key {}", next + index).into_bytes(), value)
            })
            .collect();
        let writes: Vec<_> = records.iter().map(|(key, value)| put(key, value)).collect();
        if write(&table, next, &writes).is_none() {
            number += 1;
            table = memtable(region, number, next, 3000);
            write(&table, next, &writes).unwrap();
        }
        next += count;
        region.medium().shadow().mark(next - 1);
    }
}

/// What is wrong with an image: acknowledged records are missing, a group is there in part, or a
/// record is not what was written.
fn fault(acknowledged: u64, image: &[u64]) -> Option<String> {
    let (tables, missing) = match open(image).and_then(recovered) {
        Ok(found) => found,
        Err(error) => return Some(format!("refused: {error}")),
    };
    if missing <= acknowledged {
        return Some(format!("{acknowledged} was acknowledged, {missing} is missing"));
    }
    let mut expected = 1;
    let mut records: Vec<_> = tables.iter().flat_map(|table| table.records(NEWEST)).collect();
    records.sort_by_key(|(_, found)| found.sequence);
    for (key, found) in records {
        let value = found.value.unwrap_or_default();
        let is_whole = key == format!("key {expected}").into_bytes()
            && value.iter().all(|byte| *byte == expected as u8);
        if found.sequence.0 != expected || !is_whole {
            return Some(format!("record {expected} is wrong"));
        }
        expected += 1;
    }
    (expected != missing).then(|| format!("{expected} is not {missing}"))
}

/// The first fault of all crashes of a script.
fn first_fault(groups: u64, images: u64, seed: u64) -> Option<String> {
    let region = create(geometry(8)).region;
    script(&region, groups, seed);
    let mut first = None;
    every_image(&region, images, |acknowledged, image| {
        if first.is_none() {
            first = fault(acknowledged, image);
        }
    });
    first
}

#[test]
fn at_every_crash_of_a_short_script_groups_are_whole_or_absent() {
    for seed in 0..3 {
        assert_eq!(first_fault(3, 600, seed), None, "seed {seed}");
    }
}

#[test]
fn every_image_there_is_of_groups_of_one_line_has_them_whole_or_absent() {
    let region = create(geometry(2)).region;
    let memtable = memtable(&region, 1, 1, 3000);
    for first in 1..=4 {
        write(&memtable, first, &[put(format!("key {first}").as_bytes(), b"")]).unwrap();
        region.medium().shadow().mark(first);
    }
    let is_complete = every_image(&region, 4096, |acknowledged, image| {
        assert_eq!(fault(acknowledged, image), None);
    });
    assert!(is_complete);
}

#[test]
fn at_every_crash_of_a_long_script_groups_are_whole_or_absent() {
    for seed in 10..13 {
        assert_eq!(first_fault(40, 24, seed), None, "seed {seed}");
    }
}

#[test]
fn what_an_arena_left_is_not_taken_for_groups_of_the_next_one() {
    assert_eq!(reuse_fault(), None);
}

/// An arena with two groups is freed; the next one, in its chunks, has one group like the first.
fn reuse_fault() -> Option<String> {
    let region = create(geometry(1)).region;
    let first = memtable(&region, 1, 1, 3000);
    let next = write(&first, 1, &[put(b"key 1", b"")]).unwrap();
    write(&first, next, &[put(b"old", b"")]).unwrap();
    first.free();
    let second = memtable(&region, 2, 1, 3000);
    write(&second, 1, &[put(b"key 1", b"")]).unwrap();
    fault(1, &region.medium().snapshot())
}

/// A flush may free the arena of a memtable whose groups are being looked at.
#[test]
fn groups_of_an_arena_that_is_freed_meanwhile_are_no_damage() {
    let region = create(geometry(4)).region;
    let arena = |number| region.create_arena(FileNumber(number), Sequence(1), 3000).unwrap();
    let write = |arena: &Arena, payload: &[u8]| {
        let claim = arena.claim(payload.len()).unwrap();
        let header = GroupHeader { first: Sequence(1), count: 1, durable: Sequence(0) };
        arena.write(&claim, &header, payload);
    };
    let first = arena(1);
    write(&first, b"one");
    let at = region.chunks().free_chunks();
    first.verify().unwrap();
    first.free();
    let second = arena(2);
    write(&second, b"another");
    assert_eq!(region.chunks().free_chunks(), at, "it is in the same place");
    assert!(!first.has_group() && second.has_group());
    first.verify().unwrap();
    second.verify().unwrap();
}

#[test]
fn a_group_that_was_durable_and_is_not_there_is_damage() {
    let region = create(geometry(1)).region;
    let table = memtable(&region, 1, 1, 3000);
    let arena_at = region.identity().geometry.chunk_at(0) + 128;
    for first in 1..=3 {
        write(&table, first, &[put(b"key", b"value")]).unwrap();
    }
    let good = region.medium().snapshot();
    for (group, is_found) in [(0, true), (1, true), (2, false)] {
        let mut image = good.clone();
        image[(arena_at / 8) as usize + 8 * group + 4] ^= 1;
        let found = open(&image).and_then(recovered);
        match found {
            Err(error) => assert!(is_found && error.kind() == ErrorKind::Corrupt, "{error}"),
            // The last one looks torn, as the last record of a log does.
            Ok((_, missing)) => assert!(!is_found && missing == 3),
        }
    }
}

/// Of the first arena and of later ones, of one chunk and of two.
#[test]
fn one_copy_of_an_arenas_header_is_enough_and_without_both_it_is_damage() {
    let region = create(geometry(5)).region;
    let write_one = |(number, bytes)| {
        let table = memtable(&region, number, number, bytes);
        write(&table, number, &[put(b"key", b"value")]).unwrap();
        table
    };
    let _tables = [(1, 3000), (2, 7000), (3, 3000)].map(write_one);
    let good = region.medium().snapshot();
    for chunk in [0, 1, 3] {
        let at = region.identity().geometry.chunk_at(chunk);
        let first = (at / 8) as usize;
        let fault = |lost: std::ops::Range<usize>, rotten: Option<usize>| {
            let mut image = good.clone();
            image[first..][lost].fill(0);
            rotten.into_iter().for_each(|word| image[first + word] ^= 1 << 17);
            open(&image).and_then(recovered).map(|(_, missing)| missing)
        };
        for lost in [0..8, 8..16] {
            assert_eq!(fault(lost, None).unwrap(), 4);
        }
        for (lost, rotten) in [(0..16, None), (0..8, Some(8)), (8..16, Some(1))] {
            let error = fault(lost, rotten).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(&format!("offset {at}:")), "{error}");
        }
    }
}

#[test]
fn a_later_group_without_an_earlier_one_is_not_replayed_and_not_damage() {
    let region = create(geometry(2)).region;
    let table = memtable(&region, 1, 1, 3000);
    write(&table, 1, &[put(b"key 1", b"")]).unwrap();
    let (writes_2, writes_3) = ([put(b"key 2", b"")], [put(b"key 3", b"")]);
    let (group_2, group_3) = (EncodedGroup::new(&writes_2), EncodedGroup::new(&writes_3));
    let (claim_2, claim_3) = (table.claim(&group_2).unwrap(), table.claim(&group_3).unwrap());
    table.write_group(&claim_3, &group_3, Sequence(3), Sequence(1));
    let crashed = region.medium().snapshot();
    let (tables, missing) = open(&crashed).and_then(recovered).unwrap();
    assert_eq!((missing, tables[0].len()), (2, 1));
    table.write_group(&claim_2, &group_2, Sequence(2), Sequence(1));
    assert_eq!(open(&region.medium().snapshot()).and_then(recovered).unwrap().1, 4);
    // After the crash sequence 2 is used again, in the next arena.
    let again = open(&crashed).unwrap();
    let next = memtable(&again.region, 2, 2, 3000);
    write(&next, 2, &[put(b"key 2", b"")]).unwrap();
    write(&next, 3, &[put(b"key 3", b"")]).unwrap();
    let (tables, missing) = open(&again.region.medium().snapshot()).and_then(recovered).unwrap();
    assert_eq!((missing, tables[0].len(), tables[1].len()), (4, 1, 2));
}

#[test]
fn arenas_survive_a_close_and_their_chunks_are_found_free_after_they_go() {
    let region = create(geometry(6)).region;
    let (first, second) = (memtable(&region, 1, 1, 7000), memtable(&region, 2, 2, 7000));
    write(&first, 1, &[put(b"key 1", b"")]).unwrap();
    write(&second, 2, &[put(b"key 2", b"")]).unwrap();
    region.close(1).unwrap();
    let opened = open(&region.medium().snapshot()).unwrap();
    assert!(!opened.region.identity().is_clean && region.identity().is_clean);
    assert_eq!(opened.region.chunks().free_chunks(), 2);
    first.free();
    let opened = open(&region.medium().snapshot()).unwrap();
    let numbers: Vec<_> = opened.arenas.iter().map(Arena::number).collect();
    assert_eq!((numbers, opened.region.chunks().free_chunks()), (vec![FileNumber(2)], 4));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_arenas_are_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    let crashes = || first_fault(3, 600, 1);
    let bugs: [(Planted, &dyn Fn() -> Option<String>); 3] = [
        (Planted::GroupBeforeFence, &crashes),
        (Planted::GroupLineNotFlushed, &crashes),
        (Planted::GroupNotBound, &reuse_fault),
    ];
    for (bug, find) in bugs {
        let (found, hits) = with(bug, || (find(), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}
