//! Many threads at once, shared syncs, and what happens after the device fails.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use parking_lot::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use support::{Harness, Shape, apply, header, payload_of, replay_bytes};
use thermocline_device::{ErrorKind, Result};
use thermocline_foundation::random::Random;
use thermocline_foundation::{Clock, Sequence, SystemClock};
use thermocline_log::{Durability, LogSettings, LogWriter};

/// Appends under the caller's lock, as the engine does, and commits outside it.
fn put(writer: &LogWriter, next: &Mutex<u64>, size: usize, durability: Durability) -> Result<u64> {
    let mut next = next.lock();
    let sequence = *next;
    let position = writer.append(Sequence(sequence), 1, &payload_of(sequence, size))?;
    *next += 1;
    drop(next);
    writer.commit(position, durability)?;
    Ok(sequence)
}

#[test]
fn records_of_many_threads_are_all_there_in_order_when_committed() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let harness = Harness::new(shape);
        let writer = harness.writer(header(1));
        let next = Mutex::new(1);
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (writer, next) = (&writer, &next);
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..200 {
                        let big = random.below(20) == 0;
                        let size = random.below(if big { 60_000 } else { 900 }) as usize;
                        let sync = random.below(4) == 0;
                        let durability = if sync { Durability::Sync } else { Durability::Buffered };
                        let sequence = put(writer, next, size, durability).unwrap();
                        assert!(writer.written_sequence().0 >= sequence);
                        if sync {
                            assert!(writer.durable_sequence().0 >= sequence);
                        }
                    }
                });
            }
        });
        writer.seal().unwrap();
        let (records, _) = harness.replay().unwrap();
        assert_eq!(records.len(), 1600);
        for (index, (first, count, payload)) in records.iter().enumerate() {
            assert_eq!((*first, *count), (1 + index as u64, 1));
            assert!(*payload == payload_of(*first, payload.len()));
        }
    }
}

#[test]
fn eight_threads_share_syncs() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    let before = harness.trace.syncs.load(SeqCst);
    harness.trace.sync_ms.store(3, SeqCst);
    let next = Mutex::new(1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    put(&writer, &next, 100, Durability::Sync).unwrap();
                }
            });
        }
    });
    let syncs = harness.trace.syncs.load(SeqCst) - before;
    // Alone, 200 commits need 200 syncs; sharing perfectly, 25 to 50.
    assert!(syncs <= 100, "{syncs} syncs for 200 commits of 8 threads");
    assert_eq!(writer.durable_sequence(), Sequence(200));
}

#[test]
fn buffered_commits_do_not_wait_for_a_sync_under_way() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    let next = Mutex::new(1);
    harness.trace.sync_ms.store(300, SeqCst);
    let before = harness.trace.writes.load(SeqCst);
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| put(&writer, &next, 100, Durability::Sync));
        let clock = SystemClock::new();
        let start_ns = clock.now_ns();
        while harness.trace.writes.load(SeqCst) == before {
            let waited_ns = clock.now_ns() - start_ns;
            assert!(waited_ns < 60_000_000_000, "the commit that is to sync wrote nothing");
            std::thread::yield_now();
        }
        for _ in 0..50 {
            put(&writer, &next, 100, Durability::Buffered).unwrap();
        }
        assert_eq!(writer.durable_sequence(), Sequence(0), "the sync is still under way");
        slow.join().unwrap().unwrap();
    });
    assert!(writer.durable_sequence() >= Sequence(1));
}

#[test]
fn a_lone_thread_writes_once_and_syncs_once_for_a_commit() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    let next = Mutex::new(1);
    let count = || (harness.trace.writes.load(SeqCst), harness.trace.syncs.load(SeqCst));
    let (writes, syncs) = count();
    for _ in 0..10 {
        put(&writer, &next, 1000, Durability::Buffered).unwrap();
    }
    assert_eq!(count(), (writes + 10, syncs));
    let position = writer.append(Sequence(11), 1, b"already written by the next commit").unwrap();
    let later = writer.append(Sequence(12), 1, b"later").unwrap();
    writer.commit(later, Durability::Sync).unwrap();
    writer.commit(position, Durability::Sync).unwrap();
    assert_eq!(count(), (writes + 11, syncs + 1));
}

/// Every call after the failure says the first cause, and what was acknowledged before is on the
/// device.
fn latches(fail_write: u64, fail_sync: u64, what: &str) {
    let harness = Harness::new(Shape::PAGES);
    let writer = harness.writer(header(1));
    harness.trace.fail_write.store(fail_write, SeqCst);
    harness.trace.fail_sync.store(fail_sync, SeqCst);
    let next = Mutex::new(1);
    let mut acknowledged = 0;
    let error = loop {
        match put(&writer, &next, 700, Durability::Sync) {
            Ok(sequence) => acknowledged = sequence,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains(&format!("cannot {what} the test file")), "{error}");
    let seen = (harness.trace.writes.load(SeqCst), harness.trace.syncs.load(SeqCst));
    for durability in [Durability::Sync, Durability::Buffered] {
        let later = put(&writer, &next, 700, durability).unwrap_err();
        assert_eq!(later.to_string(), error.to_string());
    }
    assert_eq!(writer.seal().unwrap_err().to_string(), error.to_string());
    let after = (harness.trace.writes.load(SeqCst), harness.trace.syncs.load(SeqCst));
    assert_eq!(seen, after, "the device was asked again");
    assert_eq!(writer.durable_sequence(), Sequence(acknowledged));
    let (records, _) = replay_bytes(1, &apply(&harness.events())).unwrap();
    assert!(records.len() as u64 >= acknowledged);
}

#[test]
fn a_failed_write_stops_the_log_for_good() {
    for number in [2, 3, 9] {
        latches(number, 0, "write");
    }
}

#[test]
fn a_failed_sync_stops_the_log_for_good_and_is_not_tried_again() {
    for number in [2, 3, 9] {
        latches(0, number, "sync");
    }
}

#[test]
fn a_failure_reaches_every_waiting_thread() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    harness.trace.sync_ms.store(5, SeqCst);
    harness.trace.fail_sync.store(6, SeqCst);
    let next = Mutex::new(1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let errors =
                        std::iter::repeat_with(|| put(&writer, &next, 50, Durability::Sync).err());
                    let first = errors.take(10_000).flatten().next();
                    first.expect("the sync that fails reaches no commit of 10,000").to_string()
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap().contains("cannot sync the test file"));
        }
    });
}

#[test]
fn a_record_larger_than_both_buffers_fails_whole_when_a_write_in_it_fails() {
    let settings = LogSettings { buffer_bytes: 8192, ..Shape::SECTORS.settings };
    let harness = Harness::new(Shape { settings, ..Shape::SECTORS });
    let writer = harness.writer(header(1));
    let position = writer.append(Sequence(1), 1, &payload_of(1, 500)).unwrap();
    writer.commit(position, Durability::Sync).unwrap();
    harness.trace.fail_write.store(5, SeqCst);
    let error = writer.append(Sequence(2), 1, &payload_of(2, 100_000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(writer.written_sequence(), Sequence(1));
    let (records, _) = harness.replay().unwrap();
    assert_eq!(records.len(), 1);
}
