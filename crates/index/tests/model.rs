//! The index against an ordered map, with small leaves and with those of the default size.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_index::{Entry, EntryKind, FastIndex, IndexBatch, IndexLimits};

type Model = BTreeMap<(Vec<u8>, Reverse<Sequence>), Entry>;
type Edge = Bound<Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<(Vec<u8>, Entry)>),
    Remove(Vec<(Vec<u8>, Sequence)>),
    Depart(Vec<(Vec<u8>, Sequence)>),
    /// Each may take the place of another version.
    Succeed(Vec<(Vec<u8>, Entry, Option<Sequence>)>),
    /// All versions between the keys, so that leaves empty.
    Sweep(Edge, Edge),
    Look(Vec<u8>, Sequence),
    Range(Edge, Edge, usize),
}

/// Few letters, so that keys repeat and are prefixes of each other; some are long.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(0u8..4, 0..5);
    prop_oneof![20 => short.clone(), 1 => short.prop_map(|key| key.repeat(9_000))]
}

fn sequence() -> impl Strategy<Value = Sequence> {
    let usual = (1u64..6).prop_map(Sequence);
    prop_oneof![10 => usual, 1 => Just(Sequence::MAX), 1 => Just(Sequence(0))]
}

fn entry() -> impl Strategy<Value = Entry> {
    let in_slot = (any::<u64>(), sequence(), any::<bool>(), any::<bool>(), any::<u32>()).prop_map(
        |(slot, sequence, put, clean, record_bytes)| {
            let kind = if put { EntryKind::Put } else { EntryKind::Delete };
            Entry { slot, sequence, kind, clean, record_bytes }
        },
    );
    prop_oneof![4 => in_slot, 1 => sequence().prop_map(Entry::in_memory)]
}

fn edge() -> impl Strategy<Value = Edge> {
    prop_oneof![key().prop_map(Included), key().prop_map(Excluded), Just(Unbounded)]
}

fn step() -> impl Strategy<Value = Step> {
    let records = prop::collection::vec((key(), entry()), 1..12);
    let versions = || prop::collection::vec((key(), sequence()), 1..12);
    let older = prop_oneof![1 => Just(None), 4 => sequence().prop_map(Some)];
    let successors = prop::collection::vec((key(), entry(), older), 1..12);
    prop_oneof![
        6 => records.prop_map(|mut records| {
            records.sort_by(|a, b| a.0.cmp(&b.0));
            Step::Insert(records)
        }),
        4 => successors.prop_map(|mut records| {
            records.sort_by(|a, b| a.0.cmp(&b.0));
            Step::Succeed(records)
        }),
        4 => versions().prop_map(|mut versions| {
            versions.sort();
            Step::Remove(versions)
        }),
        1 => versions().prop_map(|mut versions| {
            versions.sort();
            Step::Depart(versions)
        }),
        1 => (edge(), edge()).prop_map(|(from, to)| Step::Sweep(from, to)),
        4 => (key(), sequence()).prop_map(|(key, at)| Step::Look(key, at)),
        4 => (edge(), edge(), 1usize..20)
            .prop_map(|(from, to, limit)| Step::Range(from, to, limit)),
    ]
}

fn slices(edge: &Edge) -> Bound<&[u8]> {
    edge.as_ref().map(Vec::as_slice)
}

fn contains(from: &Edge, to: &Edge, key: &[u8]) -> bool {
    let above = match from {
        Included(from) => key >= &from[..],
        Excluded(from) => key > &from[..],
        Unbounded => true,
    };
    let below = match to {
        Included(to) => key <= &to[..],
        Excluded(to) => key < &to[..],
        Unbounded => true,
    };
    above && below
}

/// Keys of the range with their versions, ascending.
fn groups(model: &Model, from: &Edge, to: &Edge) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let mut groups: Vec<(Vec<u8>, Vec<Entry>)> = Vec::new();
    for ((key, _), entry) in model.iter().filter(|((key, _), _)| contains(from, to, key)) {
        match groups.last_mut() {
            Some((last, versions)) if last == key => versions.push(*entry),
            _ => groups.push((key.clone(), vec![*entry])),
        }
    }
    groups
}

/// The range in batches of `limit`.
fn collected(
    index: &FastIndex,
    from: &Edge,
    to: &Edge,
    limit: usize,
    up: bool,
) -> Vec<(Vec<u8>, Vec<Entry>)> {
    let mut batch = IndexBatch::new();
    let mut found = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let resumed = last.as_deref().map(Excluded);
        if up {
            index.ascend(resumed.unwrap_or(slices(from)), slices(to), limit, &mut batch);
        } else {
            index.descend(slices(from), resumed.unwrap_or(slices(to)), limit, &mut batch);
        }
        assert!(batch.len() <= limit && (batch.len() == limit || batch.is_end()));
        found.extend(batch.iter().map(|(key, versions)| (key.to_vec(), versions.to_vec())));
        if batch.is_end() {
            return found;
        }
        last = batch.last_key().map(<[u8]>::to_vec);
    }
}

fn remove(index: &FastIndex, model: &mut Model, versions: &[(Vec<u8>, Sequence)], depart: bool) {
    let mut removed = vec![None; versions.len()];
    let before = index.departures();
    if depart {
        index.announce_departures();
    }
    index.remove_many(versions, |at, entry| removed[at] = Some(entry));
    assert_eq!(index.departures(), before + u64::from(depart));
    for ((key, sequence), removed) in versions.iter().zip(removed) {
        assert_eq!(removed, model.remove(&(key.clone(), Reverse(*sequence))));
    }
}

fn look(index: &FastIndex, model: &Model, key: &[u8], at: Sequence) {
    let versions: Vec<Entry> =
        model.iter().filter(|((other, _), _)| other == key).map(|(_, entry)| *entry).collect();
    let mut found = Vec::new();
    index.versions(key, &mut found);
    assert_eq!(found, versions);
    assert_eq!(index.get(key), versions.first().copied());
    let visible = |at| versions.iter().find(|entry| entry.sequence <= at).copied();
    assert_eq!(index.get_at(key, at), visible(at));
}

fn apply(index: &FastIndex, model: &mut Model, step: Step) {
    match step {
        Step::Insert(records) => {
            let mut replaced = vec![None; records.len()];
            index.insert_many(&records, |at, before| replaced[at] = Some(before));
            for ((key, entry), replaced) in records.into_iter().zip(replaced) {
                assert_eq!(replaced, model.insert((key, Reverse(entry.sequence)), entry));
            }
        }
        Step::Succeed(records) => {
            index.succeed_many(&records);
            for (key, entry, older) in records {
                older.map(|older| model.remove(&(key.clone(), Reverse(older))));
                model.insert((key, Reverse(entry.sequence)), entry);
            }
        }
        Step::Remove(versions) => remove(index, model, &versions, false),
        Step::Depart(versions) => remove(index, model, &versions, true),
        Step::Sweep(from, to) => {
            let inside = model.keys().filter(|(key, _)| contains(&from, &to, key));
            let versions: Vec<_> = inside.map(|(key, at)| (key.clone(), at.0)).collect();
            remove(index, model, &versions, false);
        }
        Step::Look(key, at) => look(index, model, &key, at),
        Step::Range(from, to, limit) => range(index, model, &from, &to, limit),
    }
}

fn range(index: &FastIndex, model: &Model, from: &Edge, to: &Edge, limit: usize) {
    let mut expected = groups(model, from, to);
    let mut visited = Vec::new();
    index.for_each(slices(from), slices(to), |key, entry| visited.push((key.to_vec(), entry)));
    let flat = expected.iter().flat_map(|(key, all)| all.iter().map(|entry| (key.clone(), *entry)));
    assert_eq!(visited, flat.collect::<Vec<_>>());
    assert_eq!(index.count(slices(from), slices(to)), visited.len() as u64);
    let bytes: u64 = visited.iter().map(|(_, entry)| u64::from(entry.record_bytes)).sum();
    assert_eq!(index.bytes(slices(from), slices(to)), bytes);
    assert_eq!(collected(index, from, to, limit, true), expected);
    expected.reverse();
    assert_eq!(collected(index, from, to, limit, false), expected);
}

fn check(index: &FastIndex, model: &Model) {
    index.check();
    assert_eq!(index.len(), model.len() as u64);
    assert_eq!(index.is_empty(), model.is_empty());
    let bytes = model.values().map(|entry| u64::from(entry.record_bytes)).sum::<u64>();
    assert_eq!(index.record_bytes(), bytes);
    assert_eq!(index.clean_records(), model.values().filter(|entry| entry.clean).count() as u64);
    let in_slots = model.values().filter(|entry| entry.has_slot()).count() as u64;
    assert_eq!((index.slot_records(), index.memory_records()), (in_slots, index.len() - in_slots));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_index_agrees_with_an_ordered_map_whatever_is_done(
        steps in prop::collection::vec(step(), 1..60),
        leaf_entries in 2usize..9,
        branch_leaves in 4usize..8,
    ) {
        let index = FastIndex::with_limits(IndexLimits { leaf_entries, branch_leaves });
        let mut model = Model::new();
        for step in steps {
            apply(&index, &mut model, step);
            check(&index, &model);
        }
        range(&index, &model, &Unbounded, &Unbounded, 3);
    }
}

/// Many leaves and several branches of the default size, filled and emptied at random.
#[test]
fn a_hundred_thousand_records_come_and_go_with_leaves_of_the_default_size() {
    let index = FastIndex::new();
    let mut model = Model::new();
    let mut random = Random::new(7);
    let entry = |n: u64, random: &mut Random| Entry {
        slot: n,
        sequence: Sequence(n),
        kind: EntryKind::Put,
        clean: random.below(4) == 0,
        record_bytes: random.below(1000) as u32,
    };
    for n in 0..100_000 {
        let key = format!("user{:012}", random.below(60_000)).into_bytes();
        let entry = entry(n, &mut random);
        assert_eq!(index.insert(&key, entry), None);
        model.insert((key, Reverse(Sequence(n))), entry);
    }
    check(&index, &model);
    let full = index.memory_bytes();
    look(&index, &model, b"user000000000077", Sequence(50_000));
    let keys: Vec<_> = model.keys().cloned().collect();
    for (key, sequence) in keys.iter().filter(|(_, at)| at.0.0 % 50 != 0) {
        assert_eq!(index.remove(key, sequence.0), model.remove(&(key.clone(), *sequence)));
    }
    check(&index, &model);
    range(&index, &model, &Included(b"user00000001".to_vec()), &Unbounded, 100);
    assert!(index.memory_bytes() < full / 20, "{} of {full} bytes", index.memory_bytes());
    let keys: Vec<_> = model.keys().map(|(key, at)| (key.clone(), at.0)).collect();
    remove(&index, &mut model, &keys, true);
    check(&index, &model);
    assert!(index.memory_bytes() < 2048, "{} bytes of nothing", index.memory_bytes());
}

#[test]
fn many_versions_of_one_key_stay_together_beyond_the_size_of_a_leaf() {
    let index = FastIndex::with_limits(IndexLimits { leaf_entries: 4, branch_leaves: 4 });
    let mut model = Model::new();
    for n in 0..200 {
        let (kind, clean) = (EntryKind::Put, false);
        let entry = Entry { slot: n, sequence: Sequence(n), kind, clean, record_bytes: 1 };
        for key in [&b"a"[..], b"b", b"c"] {
            apply(&index, &mut model, Step::Insert(vec![(key.to_vec(), entry)]));
        }
    }
    check(&index, &model);
    range(&index, &model, &Unbounded, &Unbounded, 1);
    look(&index, &model, b"b", Sequence(50));
    for n in 0..190 {
        apply(&index, &mut model, Step::Remove(vec![(b"b".to_vec(), Sequence(n))]));
        look(&index, &model, b"b", Sequence(n + 5));
    }
    check(&index, &model);
}

#[test]
fn counts_hold_beyond_what_a_leaf_keeps_of_them() {
    let index = FastIndex::with_limits(IndexLimits::default());
    let versions = |range: std::ops::Range<u64>| -> Vec<_> {
        let of = |n: u64| {
            let kind = if n.is_multiple_of(2) { EntryKind::Delete } else { EntryKind::Put };
            Entry { slot: n, sequence: Sequence(n), kind, clean: true, record_bytes: 3 }
        };
        range.map(|n| (b"key".to_vec(), of(n))).collect()
    };
    let counts = || (index.len(), index.clean_records(), index.tombstones(), index.record_bytes());
    for thousand in 0..70 {
        index.insert_many(&versions(thousand * 1000..(thousand + 1) * 1000), |_, _| {
            panic!("it is new")
        });
    }
    assert_eq!(counts(), (70_000, 70_000, 35_000, 210_000));
    let all = index.totals(Unbounded, Unbounded);
    assert_eq!((all.records, all.tombstones), (70_000, 35_000));
    let few: Vec<_> = (100..70_000).map(|n| (b"key".to_vec(), Sequence(n))).collect();
    index.remove_many(&few, |_, _| {});
    assert_eq!(counts(), (100, 100, 50, 300));
    index.check();
}
