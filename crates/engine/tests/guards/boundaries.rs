//! Boundaries: scans of every combination of bounds, prefix and direction show what a `BTreeMap`
//! shows, over keys that end where a bound or a prefix ends.

use crate::support::{compact, hybrid, stepped};
use std::collections::BTreeMap;
use std::ops::Bound;
use thermocline::{Db, Preset, Settings};
use thermocline_foundation::random::Random;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys and bounds: short, of few bytes, so that many are prefixes of each other and many end in
/// bytes that cannot be counted up.
fn words() -> Vec<Vec<u8>> {
    let bytes = [0, b'a', b'b', 0xfe, 0xff];
    let mut words = vec![Vec::new()];
    for first in bytes {
        words.push(vec![first]);
        words.extend(bytes.map(|second| vec![first, second]));
        words.push(vec![first, 0xff, 0xff]);
        words.push(vec![first, 0xff, 0]);
    }
    words
}

/// A store with every second word, in three places and in each a third of them, some deleted.
fn store(preset: Preset) -> (Db, Model) {
    let settings = Settings { preset: Some(preset), ..hybrid() };
    let (db, mut model, mut random) = (stepped(&settings), Model::new(), Random::new(1));
    for place in 0..3 {
        for word in words() {
            // The empty key is a key like others.
            match random.below(5) {
                0 | 1 => {
                    let value = [&word[..], b" in ", &[b'0' + place]].concat();
                    db.put(&word, &value).unwrap();
                    model.insert(word, value);
                }
                2 => {
                    db.delete(&word).unwrap();
                    model.remove(&word);
                }
                _ => {}
            }
        }
        match place {
            0 => compact(&db),
            1 => db.flush().unwrap(),
            _ => {}
        }
    }
    assert!(model.len() > 15, "{}", model.len());
    (db, model)
}

fn bounds() -> Vec<Bound<Vec<u8>>> {
    let ends =
        words().into_iter().flat_map(|word| [Bound::Included(word.clone()), Bound::Excluded(word)]);
    ends.chain([Bound::Unbounded]).collect()
}

fn is_after(key: &[u8], from: &Bound<Vec<u8>>) -> bool {
    match from {
        Bound::Included(from) => key >= from.as_slice(),
        Bound::Excluded(from) => key > from.as_slice(),
        Bound::Unbounded => true,
    }
}

fn is_before(key: &[u8], to: &Bound<Vec<u8>>) -> bool {
    match to {
        Bound::Included(to) => key <= to.as_slice(),
        Bound::Excluded(to) => key < to.as_slice(),
        Bound::Unbounded => true,
    }
}

/// Compares a scan either way, whole and cut short, with the model; says how many records it has.
fn compare(
    db: &Db,
    model: &Model,
    (from, to): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    prefix: Option<&[u8]>,
) -> usize {
    let inside = |key: &&Vec<u8>| {
        is_after(key, from)
            && is_before(key, to)
            && prefix.is_none_or(|prefix| key.starts_with(prefix))
    };
    let mut right: Vec<_> = model.keys().filter(inside).cloned().collect();
    let scan = || {
        let scan = db.scan().range((from.clone(), to.clone()));
        prefix.map_or_else(
            || db.scan().range((from.clone(), to.clone())),
            |prefix| scan.prefix(prefix),
        )
    };
    let keys = |scan: thermocline::Scan| -> Vec<_> {
        scan.into_iter().map(|record| record.unwrap().0.to_vec()).collect()
    };
    let what = format!("from {from:?} to {to:?}, prefix {prefix:?}");
    assert_eq!(keys(scan()), right, "{what}");
    let cut = right.len().min(2);
    assert_eq!(keys(scan().limit(2)), right[..cut], "two {what}");
    right.reverse();
    assert_eq!(keys(scan().reverse()), right, "backwards {what}");
    assert_eq!(keys(scan().reverse().limit(2)), right[..cut], "two backwards {what}");
    right.len()
}

#[test]
fn scans_between_any_bounds_show_what_a_sorted_map_shows() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let (db, model) = store(preset);
        let mut shown = 0;
        for from in bounds() {
            for to in bounds() {
                shown += compare(&db, &model, (&from, &to), None);
            }
        }
        assert!(shown > 1000, "{shown} records of all scans");
    }
}

/// Bounds that a prefix's own ends meet, and all others for some prefixes.
#[test]
fn a_prefix_narrows_any_bounds_down_and_lets_nothing_else_through() {
    let prefixes: Vec<Vec<u8>> = vec![
        vec![],
        vec![b'a'],
        vec![b'a', 0xff],
        vec![0xfe, 0xff],
        vec![0xff],
        vec![0xff, 0xff],
        vec![0],
    ];
    let (db, model) = store(Preset::Hybrid);
    let mut shown = 0;
    for prefix in &prefixes {
        for from in bounds() {
            for to in bounds() {
                shown += compare(&db, &model, (&from, &to), Some(prefix));
            }
        }
    }
    assert!(shown > 1000, "{shown} records of all scans");
}

/// A cursor stands where a sorted map says, from every word either way.
#[test]
fn a_cursor_finds_the_neighbours_of_any_key() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let (db, model) = store(preset);
        let mut cursor = db.cursor();
        for word in words() {
            cursor.seek(&word).unwrap();
            let right = model.range(word.clone()..).next();
            let at = |cursor: &thermocline::Cursor| cursor.valid().then(|| cursor.key().to_vec());
            assert_eq!(at(&cursor).as_ref(), right.map(|(key, _)| key), "from {word:?}");
            cursor.seek_for_prev(&word).unwrap();
            let right = model.range(..=word.clone()).next_back();
            assert_eq!(at(&cursor).as_ref(), right.map(|(key, _)| key), "up to {word:?}");
        }
    }
}

/// A range that is compacted takes in its ends; and behind the last table, which is a range of its
/// own, nothing beside them. Told by where records are.
#[test]
fn compacting_a_range_takes_in_the_records_at_both_ends() {
    let keys = [&b"a"[..], b"b", b"b\0", b"c", b"\xff", b"\xff\xff"];
    for from in keys {
        for to in keys.iter().filter(|to| **to >= from) {
            let db = stepped(&hybrid());
            keys[..2].iter().for_each(|key| db.put(key, "old").unwrap());
            compact(&db);
            keys.iter().for_each(|key| db.put(key, "value").unwrap());
            db.flush().unwrap();
            db.compact_range(Some(from), Some(to), &mut |_| {}).unwrap();
            // The table ends with "b": up to there is one range, from "b\0" on another.
            let reaches = |range: &[&[u8]]| range.iter().any(|key| *key >= from && key <= to);
            let left = [&keys[..2], &keys[2..]].map(|range| match reaches(range) {
                true => 0,
                false => range.len(),
            });
            let in_slots = db.stats().fast_tier.unwrap().records as usize;
            assert_eq!(in_slots, left.iter().sum::<usize>(), "{from:?} to {to:?}");
            assert_eq!(db.scan().into_iter().count(), keys.len(), "{from:?} to {to:?}");
        }
    }
}
