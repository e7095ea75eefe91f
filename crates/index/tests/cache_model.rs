//! The cache of records against a map: what it has is right, what it gives up is said, and every
//! byte is within the capacity; for one thread and for several.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_foundation::Sequence;
use thermocline_foundation::random::Random;
use thermocline_index::{Evicted, RecordCache};

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u8, usize),
    InsertBacked(u16, u8, usize),
    Unback(u16, u8),
    Get(u16, u8),
    Contains(u16, u8),
    Forget(u16, u8),
    Capacity(u64),
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let record = (0u16..300, 0u8..3);
    let bytes = prop_oneof![
        4 => 0usize..64,
        4 => 900usize..1400,
        3 => 0usize..9000,
        1 => 50_000usize..70_000,
    ];
    let insertion = (record.clone(), bytes);
    let capacity = prop_oneof![0u64..20_000, 20_000u64..(3 << 20)];
    prop_oneof![
        20 => insertion.clone().prop_map(|((key, at), bytes)| Step::Insert(key, at, bytes)),
        20 => insertion.prop_map(|((key, at), bytes)| Step::InsertBacked(key, at, bytes)),
        3 => record.clone().prop_map(|(key, at)| Step::Unback(key, at)),
        40 => record.clone().prop_map(|(key, at)| Step::Get(key, at)),
        10 => record.clone().prop_map(|(key, at)| Step::Contains(key, at)),
        10 => record.prop_map(|(key, at)| Step::Forget(key, at)),
        3 => capacity.prop_map(Step::Capacity),
        1 => Just(Step::Clear),
    ]
}

/// Some keys are empty, some are prefixes of others, some are longer than any first piece.
fn key(n: u16) -> Vec<u8> {
    match n % 16 {
        0 => Vec::new(),
        1 => vec![1; n as usize * 37],
        _ => n.to_be_bytes().repeat(n as usize % 20),
    }
}

type Records = BTreeMap<(Vec<u8>, Sequence), Vec<u8>>;

/// The cache, and what it must have.
struct Checked {
    cache: RecordCache,
    model: Records,
}

impl Checked {
    fn gone(&mut self, evicted: Evicted) {
        for (key, sequence, value) in evicted.into_records() {
            let had = self.model.remove(&(key.to_vec(), sequence));
            assert_eq!(had.as_deref(), Some(&value[..]), "it had what it gives up");
            assert!(!self.cache.contains(&key, sequence));
        }
    }

    /// A record whose value is drawn, or what it was: a version never changes its bytes.
    fn record(&self, n: u16, at: u8, bytes: usize) -> (Vec<u8>, Sequence, Vec<u8>) {
        let (key, sequence) = (key(n), Sequence(u64::from(at)));
        let known = self.model.get(&(key.clone(), sequence)).cloned();
        let value = known.unwrap_or_else(|| {
            let seed = u64::from(n) << 20 | u64::from(at) << 16 | bytes as u64 & 0xFF;
            let mut value = vec![0; bytes];
            Random::new(seed).fill(&mut value);
            value
        });
        (key, sequence, value)
    }

    /// The record may be there now. If not, nothing went for it but, where it is too large, itself.
    fn kept_or_not(&mut self, record: (Vec<u8>, Sequence, Vec<u8>), evicted: Evicted) {
        let (key, sequence, value) = record;
        if self.cache.contains(&key, sequence) {
            self.model.insert((key, sequence), value);
            self.gone(evicted);
        } else {
            let itself = (key.into(), sequence, value.into());
            assert!(evicted.into_records().all(|record| record == itself));
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Insert(n, at, bytes) => {
                let (key, sequence, value) = self.record(n, at, bytes);
                let evicted = self.cache.insert(&key, sequence, &value);
                self.model.insert((key, sequence), value);
                self.gone(evicted);
            }
            Step::InsertBacked(n, at, bytes) => {
                let (key, sequence, value) = self.record(n, at, bytes);
                let was_there = self.cache.contains(&key, sequence);
                let evicted = self.cache.insert_backed(&key, sequence, value.len(), || &value);
                assert!(!was_there || self.cache.contains(&key, sequence));
                self.kept_or_not((key, sequence, value), evicted);
            }
            Step::Unback(n, at) => self.cache.unback(&key(n), Sequence(u64::from(at))),
            Step::Get(n, at) => {
                let (key, sequence) = (key(n), Sequence(u64::from(at)));
                let found = self.cache.get(&key, sequence);
                assert_eq!(found.as_deref(), self.model.get(&(key, sequence)).map(|v| &v[..]));
            }
            Step::Contains(n, at) => {
                let (key, sequence) = (key(n), Sequence(u64::from(at)));
                let found = self.cache.contains(&key, sequence);
                assert_eq!(found, self.model.contains_key(&(key, sequence)));
            }
            Step::Forget(n, at) => {
                let (key, sequence) = (key(n), Sequence(u64::from(at)));
                self.cache.forget(&key, sequence);
                self.model.remove(&(key, sequence));
            }
            Step::Capacity(bytes) => {
                let evicted = self.cache.set_capacity_bytes(bytes);
                self.gone(evicted);
                assert_eq!(self.cache.capacity_bytes(), bytes);
            }
            Step::Clear => {
                self.cache.clear();
                self.model.clear();
                assert_eq!(self.cache.bytes(), 0);
            }
        }
        assert_eq!(self.cache.len(), self.model.len());
        let payload: usize = self.model.iter().map(|((key, _), v)| key.len() + v.len()).sum();
        assert!((payload as u64..=self.cache.capacity_bytes()).contains(&self.cache.bytes()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn it_has_what_was_put_in_and_not_given_up(
        capacity in prop_oneof![10_000u64..200_000, 1u64 << 20..4 << 20],
        steps in prop::collection::vec(step(), 1..1500),
    ) {
        let mut checked = Checked { cache: RecordCache::new(capacity), model: Records::new() };
        steps.iter().for_each(|step| checked.run(step));
    }
}

const THREADS: u64 = 4;
const ROUNDS: u64 = 40_000;

/// A value that says whose it is, in one piece or two.
fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(n as usize % 200 + 1)
}

/// Inserts, asks and forgets at random, while the capacity swings; notes what was given up.
fn work(cache: &RecordCache, thread: u64, given_up: &Mutex<Vec<u64>>, inserted: &Mutex<Vec<u64>>) {
    let mut random = Random::new(thread);
    for round in 0..ROUNDS {
        let n = random.below(200) * random.below(200);
        let (name, sequence) = (n.to_be_bytes(), Sequence(n % 7));
        let mut gone = Vec::new();
        let mut note = |evicted: Evicted| {
            for (key, sequence, bytes) in evicted.into_records() {
                let n = u64::from_be_bytes(key[..].try_into().unwrap());
                assert_eq!((sequence, &bytes[..]), (Sequence(n % 7), &value(n)[..]));
                gone.push(n);
            }
        };
        if let Some(found) = cache.get(&name, sequence) {
            assert_eq!(found, value(n));
        } else if !cache.contains(&name, sequence) {
            inserted.lock().unwrap().push(n);
            note(cache.insert(&name, sequence, &value(n)));
        }
        if round % 5000 == thread {
            note(cache.set_capacity_bytes((1 << 20) + random.below(3 << 20)));
        }
        given_up.lock().unwrap().append(&mut gone);
    }
}

#[test]
fn several_threads_lose_no_record_without_a_word() {
    let cache = RecordCache::new(2 << 20);
    let (given_up, inserted) = (Mutex::default(), Mutex::default());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, given_up, inserted) = (&cache, &given_up, &inserted);
            scope.spawn(move || work(cache, thread, given_up, inserted));
        }
    });
    let mut inserted: Vec<u64> = inserted.into_inner().unwrap();
    let mut seen: Vec<u64> = given_up.into_inner().unwrap();
    let there: BTreeSet<u64> = inserted
        .iter()
        .copied()
        .filter(|n| cache.contains(&n.to_be_bytes(), Sequence(n % 7)))
        .collect();
    assert_eq!(cache.len(), there.len());
    assert!(cache.bytes() <= cache.capacity_bytes() && seen.len() > 1000 && there.len() > 100);
    seen.extend(there);
    inserted.sort_unstable();
    seen.sort_unstable();
    // Two that insert the same record at once leave one, so less may come out than went in.
    let lost: BTreeSet<_> = inserted.iter().filter(|n| seen.binary_search(n).is_err()).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(seen.len() <= inserted.len());
}

const KEYS: u64 = 3000;

fn version(n: u64, sequence: Sequence) -> Vec<u8> {
    value(n + KEYS * sequence.0)
}

/// What readers and flushes do to records that have slots: asks for the newest version of keys at
/// random, brings it where it is not, replaces, unbacks and forgets; counts what was replaced.
fn work_on_versions(cache: &RecordCache, thread: u64, newest: &[AtomicU64], replaced: &AtomicU64) {
    let mut random = Random::new(thread);
    let note = |evicted: Evicted| {
        for (key, sequence, bytes) in evicted.into_records() {
            let n = u64::from_be_bytes(key[..].try_into().unwrap());
            assert_eq!(bytes, version(n, sequence), "given up: {n} of {sequence:?}");
        }
    };
    for round in 0..ROUNDS {
        let n = random.below(KEYS) * random.below(KEYS) / KEYS;
        let (name, now) = (n.to_be_bytes(), Sequence(newest[n as usize].load(Relaxed)));
        match random.below(10) {
            0 => {
                let next = Sequence(now.0 + 1);
                replaced.fetch_add(u64::from(cache.contains(&name, now)), Relaxed);
                cache.forget(&name, now);
                let value = version(n, next);
                note(cache.insert_backed(&name, next, value.len(), || &value));
                newest[n as usize].fetch_max(next.0, Relaxed);
            }
            1 => cache.unback(&name, now),
            2 => cache.forget(&name, now),
            _ => match cache.get(&name, now) {
                Some(found) => assert_eq!(found, version(n, now)),
                None => {
                    let value = version(n, now);
                    note(cache.insert_backed(&name, now, value.len(), || &value));
                }
            },
        }
        if round % 5000 == thread {
            note(cache.set_capacity_bytes((1 << 20) + random.below(3 << 20)));
        }
    }
}

#[test]
fn several_threads_replace_records_and_find_the_version_that_they_ask_for() {
    let cache = RecordCache::new(2 << 20);
    let newest: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let replaced = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (cache, newest, replaced) = (&cache, &newest, &replaced);
            scope.spawn(move || work_on_versions(cache, thread, newest, replaced));
        }
    });
    assert!(replaced.into_inner() > 100);
    let mut there = 0;
    for (n, newest) in (0..KEYS).zip(&newest) {
        for sequence in (0..=newest.load(Relaxed)).map(Sequence) {
            let found = cache.get(&n.to_be_bytes(), sequence);
            there += usize::from(found.is_some());
            assert!(found.is_none_or(|found| found == version(n, sequence)));
        }
    }
    assert_eq!(cache.len(), there, "and nothing else");
    assert!(cache.bytes() <= cache.capacity_bytes() && there > 100);
}
