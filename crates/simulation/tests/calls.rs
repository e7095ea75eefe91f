//! The hash of device calls: each difference of a call changes it, and nothing else does.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use thermocline::Stepper;
use thermocline_device::{Buffer, Devices as _, Driver, Handle, Operation, Queue, Request};
use thermocline_simulation::calls::{AllCalls, SeedCalls, compare, of_seed};
use thermocline_simulation::clock::SimulatedClock;
use thermocline_simulation::devices::{Devices, World};
use thermocline_simulation::recorder::{self, Recording};

/// A tier with two files beside another tier, on devices of their own.
struct Bench {
    fast: Arc<dyn Driver>,
    slow: Arc<dyn Driver>,
    files: [Handle; 2],
    queue: Box<dyn Queue>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(SimulatedClock::new(Arc::new(Stepper::new(1))));
        let devices = Devices::new(World::new(1), clock);
        let [fast, slow] = ["/fast", "/slow"].map(|path| {
            devices.create_directory(Path::new(path)).unwrap();
            devices.home(Path::new(path)).unwrap()
        });
        let files = ["a", "b"].map(|name| fast.create(name).unwrap());
        let queue = fast.queue(8).unwrap();
        Self { fast, slow, files, queue }
    }

    fn execute(&self, file: usize, operation: Operation) {
        self.fast.execute(&self.files[file], operation).result.unwrap();
    }

    fn submit(&mut self, operations: impl IntoIterator<Item = Operation>) {
        let file = &self.files[0];
        let request = |operation| Request { tag: 0, file: Handle::clone(file), operation };
        self.queue.submit(&mut operations.into_iter().map(request).collect());
    }

    fn reap(&mut self, at_least: usize) {
        self.queue.reap(at_least, &mut Vec::new());
    }
}

type Act = fn(&mut Bench);

fn write(offset: u64, byte: u8, len: usize) -> Operation {
    Operation::Write { offset, buffer: Buffer::copy_of(&vec![byte; len]), durable: false }
}

fn read(offset: u64, len: usize) -> Operation {
    Operation::Read { offset, buffer: Buffer::for_read(len) }
}

/// What is recorded of these acts on a new bench.
fn recorded(acts: &[Act]) -> Recording {
    recorder::start(true);
    let mut bench = Bench::new();
    acts.iter().for_each(|act| act(&mut bench));
    recorder::finish().unwrap()
}

/// One call of each kind, and acts that differ from it in one thing.
const ACTS: &[(Act, &[Act])] = &[
    (
        |on| on.execute(0, write(512, 7, 1024)),
        &[
            |on| on.execute(0, write(512, 8, 1024)),
            |on| on.execute(0, write(1024, 7, 1024)),
            |on| on.execute(0, write(512, 7, 512)),
            |on| on.execute(1, write(512, 7, 1024)),
        ],
    ),
    (
        |on| on.execute(0, read(0, 512)),
        &[|on| on.execute(0, read(512, 512)), |on| on.execute(0, read(0, 1024))],
    ),
    (|on| on.execute(0, Operation::Sync), &[|on| on.execute(1, Operation::Sync)]),
    (
        |on| drop(on.fast.create("c").unwrap()),
        &[|on| drop(on.fast.create("d").unwrap()), |on| drop(on.slow.create("c").unwrap())],
    ),
    (|on| on.fast.rename("a", "e").unwrap(), &[|on| on.fast.rename("a", "f").unwrap()]),
    (|on| on.fast.delete("b").unwrap(), &[|on| drop(on.fast.open("b").unwrap())]),
    (|on| on.fast.sync_directory().unwrap(), &[|on| on.slow.sync_directory().unwrap()]),
    (
        |on| on.files[0].allocate(9 << 12).unwrap(),
        &[
            |on| on.files[0].allocate(10 << 12).unwrap(),
            |on| on.files[0].truncate(9 << 12).unwrap(),
        ],
    ),
    (|on| drop(on.fast.lock("l").unwrap()), &[|on| drop(on.fast.lock("m").unwrap())]),
    (|on| on.queue = on.fast.queue(4).unwrap(), &[|on| on.queue = on.fast.queue(5).unwrap()]),
    (
        |on| on.submit([write(0, 1, 512), write(512, 2, 512)]),
        &[
            |on| on.submit([write(512, 2, 512), write(0, 1, 512)]),
            |on| {
                on.submit([write(0, 1, 512)]);
                on.submit([write(512, 2, 512)]);
            },
        ],
    ),
    (|on| on.reap(2), &[|on| on.reap(1)]),
    (
        |on| assert!(!on.fast.try_link("a", on.slow.as_ref(), "a").unwrap()),
        &[|on| assert!(!on.fast.try_link("a", on.fast.as_ref(), "a").unwrap())],
    ),
    (
        |on| assert!(!on.files[0].use_page_cache().unwrap()),
        &[|on| assert!(!on.files[1].use_page_cache().unwrap())],
    ),
];

#[test]
fn one_different_call_changes_the_hash() {
    let acts: Vec<Act> = ACTS.iter().map(|(act, _)| *act).collect();
    let right = recorded(&acts);
    assert_eq!(recorded(&acts), right);
    for (index, (_, others)) in ACTS.iter().enumerate() {
        for (nth, other) in others.iter().enumerate() {
            let mut changed = acts.clone();
            changed[index] = *other;
            let hash = recorded(&changed).hash;
            assert_ne!(hash, right.hash, "act {index}, other {nth}: the hash is the same");
        }
        if index != 10 {
            // Requests that are missing cannot be reaped.
            let mut changed = acts.clone();
            changed.remove(index);
            assert_ne!(recorded(&changed).hash, right.hash, "without act {index} it is the same");
        }
    }
    let mut swapped = acts.clone();
    swapped.swap(0, 1);
    let swapped = recorded(&swapped);
    assert_eq!(swapped.calls, right.calls);
    assert_ne!(swapped.hash, right.hash, "the order does not count");
}

#[test]
fn the_hash_is_that_of_the_lines_of_calls() {
    let acts: Vec<Act> = ACTS.iter().map(|(act, _)| *act).collect();
    let right = recorded(&acts);
    recorder::start(false);
    recorder::note(|| "a note".to_owned());
    let mut bench = Bench::new();
    acts.iter().for_each(|act| act(&mut bench));
    let silent = recorder::finish().unwrap();
    assert_eq!((silent.calls, silent.hash), (right.calls, right.hash));
    assert!(silent.text.is_empty());
    assert_eq!(right.text.lines().count() as u64, right.calls);
    assert_eq!(xxhash_rust::xxh3::xxh3_64(right.text.as_bytes()), right.hash);
    let write = right.text.lines().find(|line| line.starts_with("Write ")).unwrap();
    let digest = xxhash_rust::xxh3::xxh3_64(&[7; 1024]);
    assert_eq!(write, format!("Write /fast/a 512+1024 {digest:016x}"));
}

/// The hash of several seeds.
fn hash_of(seeds: &[&SeedCalls]) -> u64 {
    let mut all = AllCalls::default();
    seeds.iter().for_each(|seed| all.add(seed));
    all.hash()
}

#[test]
fn a_seed_makes_the_same_calls_twice_and_passes_through_all_kinds_of_steps() {
    let [one, twelve] = [1, 12].map(|seed| of_seed(seed, false).unwrap());
    for first in [&one, &twelve] {
        let again = of_seed(first.seed, true).unwrap();
        assert_eq!(again.recording.hash, first.recording.hash, "seed {}", first.seed);
        let lines = again.recording.text.lines().filter(|line| !line.starts_with("# "));
        assert_eq!(lines.count() as u64, first.recording.calls);
        for step in ["# Flush", "# Compact", "# Checkpoint", "# Reopen", "# Sync", "# ingest"] {
            let has_step = again.recording.text.lines().any(|line| line.starts_with(step));
            assert!(has_step, "seed {} has no {step}", first.seed);
        }
    }
    let mut all = AllCalls::default();
    [&one, &twelve].iter().for_each(|seed| all.add(seed));
    let passed = all.passed;
    for count in [passed.compactions, passed.migrations, passed.promotions, passed.demotions] {
        assert!(count > 0, "the seeds lack some work: {passed}");
    }
    assert!(passed.ingested_bytes > 0);
    assert_ne!(hash_of(&[&one, &twelve]), hash_of(&[&twelve, &one]), "the order does not count");
    assert_ne!(hash_of(&[&one]), hash_of(&[&twelve]));
}

#[test]
fn another_hash_than_the_expected_one_is_said() {
    assert_eq!(compare(0xAB, 0xAB), Ok(()));
    let why = compare(0xAB, 0xAC).unwrap_err();
    assert!(why.contains("00000000000000ab") && why.contains("00000000000000ac"), "{why}");
}

/// A directory that is not synced once changes no answer of a life without crashes: only the calls
/// differ.
#[cfg(feature = "planted-bugs")]
#[test]
fn a_planted_bug_that_no_answer_shows_changes_the_hash() {
    use parking_lot::RwLock;
    use thermocline_foundation::{Planted, planted::with};
    use thermocline_simulation::{errors, life::Life, oracle::Known};
    let shape = thermocline_simulation::history::Shape { crashes: false, ..errors::SHAPE };
    let record = || {
        recorder::start(false);
        let mut life = Life::new(1, &shape, Arc::new(RwLock::new(Known::new(shape.keys))));
        life.run(&shape).unwrap();
        life.close().unwrap();
        recorder::finish().unwrap()
    };
    let right = record();
    let wrong = with(Planted::PublishSkipsDirectorySync, record);
    assert_eq!(record(), right);
    assert!(wrong.calls < right.calls && wrong.hash != right.hash, "the bug changes no call");
}
