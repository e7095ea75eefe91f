//! The index under threads of the system: nothing is lost, and readers see a state that was.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_index::{Entry, EntryKind, FastIndex, IndexBatch, IndexLimits};

const KEYS: u64 = 600;
const WRITERS: u64 = 3;

fn entry(slot: u64) -> Entry {
    let (sequence, kind) = (Sequence(slot % 3 + 1), EntryKind::Put);
    Entry { slot, sequence, kind, clean: slot.is_multiple_of(2), record_bytes: (slot % 100) as u32 }
}

fn key(writer: u64, n: u64) -> Vec<u8> {
    format!("{n:04}-{writer}").into_bytes()
}

type Mine = BTreeMap<(u64, Sequence), Entry>;

/// Random changes of the writer's own keys, each checked against what it knows.
fn write(index: &FastIndex, writer: u64, rounds: u64) -> Mine {
    let mut random = Random::new(writer);
    let mut mine = Mine::new();
    for _ in 0..rounds {
        let (n, new) = (random.below(KEYS), entry(random.below(1 << 30)));
        // Waves of filling and emptying, so that leaves join as well.
        let filling = random.below(8) < if mine.len() > 700 { 2 } else { 6 };
        if filling {
            assert_eq!(index.insert(&key(writer, n), new), mine.insert((n, new.sequence), new));
        } else {
            let removed = index.remove(&key(writer, n), new.sequence);
            assert_eq!(removed, mine.remove(&(n, new.sequence)));
        }
        let newest = mine.range((n, Sequence(0))..=(n, Sequence::MAX)).next_back();
        assert_eq!(index.get(&key(writer, n)), newest.map(|(_, entry)| *entry));
    }
    mine
}

/// Walks the index up and down until told to stop; the keys `anchor` are always there.
fn read(index: &FastIndex, anchors: u64, done: &AtomicBool) -> u64 {
    let mut batch = IndexBatch::new();
    let mut rounds = 0;
    while !done.load(Relaxed) || rounds == 0 {
        for up in [true, false] {
            let mut last: Option<Vec<u8>> = None;
            let mut seen = 0;
            loop {
                let resumed = last.as_deref().map_or(Unbounded, Excluded);
                if up {
                    index.ascend(resumed, Unbounded, 50, &mut batch);
                } else {
                    index.descend(Unbounded, resumed, 50, &mut batch);
                }
                for (key, versions) in batch.iter() {
                    let before = last.as_deref();
                    let ordered = |last: &[u8]| if up { last < key } else { last > key };
                    assert!(before.is_none_or(ordered), "keys in order");
                    assert!(versions.is_sorted_by(|a, b| a.sequence > b.sequence));
                    assert!(!versions.is_empty(), "a key has a version");
                    seen += u64::from(key.ends_with(b"anchor"));
                    last = Some(key.to_vec());
                }
                if batch.is_end() {
                    break;
                }
            }
            assert_eq!(seen, anchors, "keys that stay are seen once");
        }
        rounds += 1;
    }
    rounds
}

#[test]
fn writers_of_mixed_keys_lose_nothing_and_readers_see_what_stays() {
    let index = FastIndex::with_limits(IndexLimits { leaf_entries: 8, branch_leaves: 4 });
    let anchors: Vec<Vec<u8>> =
        (0..KEYS).step_by(7).map(|n| format!("{n:04}-anchor").into_bytes()).collect();
    anchors.iter().for_each(|key| assert!(index.insert(key, entry(1)).is_none()));
    let done = AtomicBool::new(false);
    let all = std::thread::scope(|scope| {
        let readers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| read(&index, anchors.len() as u64, &done))).collect();
        let index = &index;
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(index, writer, 20_000))).collect();
        let all: Vec<Mine> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        done.store(true, Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
        all
    });
    index.check();
    let mut expected: BTreeMap<(Vec<u8>, Sequence), Entry> = BTreeMap::new();
    for (writer, mine) in all.into_iter().enumerate() {
        expected
            .extend(mine.into_iter().map(|((n, at), entry)| ((key(writer as u64, n), at), entry)));
    }
    expected.extend(anchors.into_iter().map(|key| ((key, entry(1).sequence), entry(1))));
    let mut found = BTreeMap::new();
    index.for_each(Unbounded, Unbounded, |key, entry| {
        assert!(found.insert((key.to_vec(), entry.sequence), entry).is_none());
    });
    assert_eq!(found, expected);
}
