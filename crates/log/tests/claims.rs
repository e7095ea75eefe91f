//! A log that many groups write at once: whatever order their writes end in, and whatever a power
//! cut leaves of those that fly, what is found is a prefix with everything acknowledged.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::atomic::Ordering::SeqCst;
use support::{Event, Harness, Records, Shape, apply, header, payload_of, replay_bytes};
use thermocline_device::ErrorKind;
use thermocline_foundation::random::Random;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{Claim, ClaimLog, Durability, LogHeader, Record, ReplayEnd};

/// Groups that fly at once.
const FLYING_MAX: usize = 4;

/// A group of records: first sequence, count, payload.
type Group = Records;

/// A group's write, as the driver saw it.
struct Written {
    /// Events when its pages were claimed, before its write, and after.
    claimed: usize,
    begun: usize,
    ended: usize,
}

struct History {
    groups: Vec<Group>,
    written: Vec<Written>,
    events: Vec<Event>,
    created: usize,
    number: u64,
    sealed: bool,
}

impl History {
    /// Records of the groups that are acknowledged after `count` events.
    fn acknowledged(&self, count: usize) -> usize {
        let whole = self.written.iter().take_while(|written| written.ended <= count).count();
        self.groups[..whole].iter().map(Vec::len).sum()
    }

    fn records(&self) -> Records {
        self.groups.iter().flatten().cloned().collect()
    }

    /// What a power cut after `count` events leaves: writes that ended, and any sectors of those
    /// that fly.
    fn power_cut(&self, count: usize, random: &mut Random) -> Vec<u8> {
        let mut image = apply(&self.events[..count]);
        let keep = random.below(101);
        for written in self.written.iter().filter(|written| written.claimed <= count) {
            for event in &self.events[written.begun.max(count)..written.ended.max(count)] {
                let Event::Write { offset, bytes, durable } = event else { continue };
                assert!(*durable, "a group that is to be synced is written durably");
                for (index, sector) in bytes.chunks(512).enumerate() {
                    if random.below(100) < keep {
                        let at = *offset as usize + index * 512;
                        image.resize(image.len().max(at + sector.len()), 0);
                        image[at..at + sector.len()].copy_from_slice(sector);
                    }
                }
            }
        }
        image
    }
}

fn records_of(group: &Group) -> Vec<Record<'_>> {
    group
        .iter()
        .map(|(first, count, payload)| Record { first: Sequence(*first), count: *count, payload })
        .collect()
}

fn group_of(random: &mut Random, next: &mut u64) -> Group {
    let records = 1 + random.below(3);
    (0..records)
        .map(|_| {
            let size = match random.below(12) {
                0 => 0,
                1..=7 => random.below(900),
                8..=10 => random.below(6000),
                _ => random.below(40_000),
            } as usize;
            let count = 1 + random.below(3) as u32;
            let record = (*next, count, payload_of(*next, size));
            *next += u64::from(count);
            record
        })
        .collect()
}

/// Claims and writes at random, up to `flying_max` groups at once.
fn run(harness: &Harness, header: LogHeader, number: u64, seed: u64, flying_max: usize) -> History {
    let mut random = Random::new(seed);
    let log = harness.claim_log(header);
    let created = harness.events().len();
    let (mut groups, mut written): (Vec<Group>, Vec<Option<Written>>) = (Vec::new(), Vec::new());
    let mut flying: Vec<(usize, usize, Claim)> = Vec::new();
    let mut next = header.first_sequence.0;
    while groups.len() < 40 || !flying.is_empty() {
        let events = harness.events().len();
        if groups.len() < 40 && flying.len() < flying_max && random.below(3) > 0 {
            // All before the first group that is not written.
            let whole = written.iter().take_while(|written| written.is_some()).count();
            let durable = groups[..whole].iter().flatten().last();
            let durable = durable.map_or(0, |(first, count, _)| first + u64::from(*count) - 1);
            let group = group_of(&mut random, &mut next);
            // The log would wait for the group before, which this thread is to write.
            let alone = flying.is_empty() || log.padding_bytes() * 3 < log.bytes();
            if !alone {
                next = group[0].0;
                let flown = flying.pop().unwrap();
                let at = flown.0;
                written[at] = Some(write(harness, &log, &groups[at], flown));
                continue;
            }
            let claim = log.claim(&records_of(&group), Sequence(durable)).unwrap();
            flying.push((groups.len(), events, claim));
            groups.push(group);
            written.push(None);
        } else if !flying.is_empty() {
            let flown = flying.swap_remove(random.below(flying.len() as u64) as usize);
            let at = flown.0;
            written[at] = Some(write(harness, &log, &groups[at], flown));
        }
    }
    let sealed = random.below(2) == 0;
    if sealed {
        log.seal().unwrap();
    }
    let written = written.into_iter().map(Option::unwrap).collect();
    History { groups, written, events: harness.events(), created, number, sealed }
}

fn write(
    harness: &Harness,
    log: &ClaimLog,
    group: &Group,
    (_, claimed, claim): (usize, usize, Claim),
) -> Written {
    let begun = harness.events().len();
    log.write(claim, &records_of(group), Durability::Sync).unwrap();
    Written { claimed, begun, ended: harness.events().len() }
}

/// What replay takes: records up to the first sequence that is missing.
fn taken(records: Records, first: u64) -> Records {
    let mut expected = first;
    let follows = |(first, count, _): &(u64, u32, Vec<u8>)| {
        let follows = *first == expected;
        expected = first + u64::from(*count);
        follows
    };
    records.into_iter().take_while(follows).collect()
}

fn check(history: &History, image: &[u8], required: usize, what: &str) -> ReplayEnd {
    let replayed = replay_bytes(history.number, image);
    let (records, summary) = replayed.unwrap_or_else(|error| panic!("{what}: {error}"));
    let all = history.records();
    let found = taken(records, all[0].0);
    assert!(found.len() >= required, "{what}: {} of {required} records", found.len());
    assert!(found == all[..found.len()], "{what}: not a prefix");
    let last = found.last().map_or(0, |(first, count, _)| first + u64::from(*count) - 1);
    assert!(summary.durable_sequence.0 <= last, "{what}: durable records are missing");
    if summary.end == ReplayEnd::Sealed {
        assert!(history.sealed && found.len() == all.len(), "{what}: sealed but not complete");
    }
    summary.end
}

fn crash_everywhere(history: &History, random: &mut Random, samples: usize) -> usize {
    let mut torn = 0;
    for count in history.created..=history.events.len() {
        let required = history.acknowledged(count);
        for sample in 0..samples {
            let image = history.power_cut(count, random);
            let end = check(history, &image, required, &format!("cut at {count}, {sample}"));
            torn += usize::from(matches!(end, ReplayEnd::Torn { .. }));
        }
    }
    torn
}

#[test]
fn a_power_cut_leaves_a_prefix_with_everything_acknowledged() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let mut torn = 0;
        for seed in 0..10 {
            let history = run(&Harness::new(shape), header(1), 1, seed, FLYING_MAX);
            torn += crash_everywhere(&history, &mut Random::new(seed), 12);
        }
        assert!(torn > 100, "only {torn} torn ends: the cuts do not test them");
    }
}

#[test]
fn a_power_cut_of_a_recycled_log_replays_no_record_of_an_earlier_one() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        for seed in 0..6 {
            let harness = Harness::new(shape);
            run(&harness, LogHeader { first_sequence: Sequence(1000), ..header(1) }, 1, seed, 4);
            let harness = harness.renumber(2);
            let previous = Some(FileNumber(1));
            let header = LogHeader { previous, first_sequence: Sequence(2000), ..header(1) };
            let history = run(&harness, header, 2, seed + 50, FLYING_MAX);
            crash_everywhere(&history, &mut Random::new(seed), 6);
        }
    }
}

#[test]
fn a_lone_writer_fills_pages() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let harness = Harness::new(shape);
        let log = harness.claim_log(header(1));
        for sequence in 1..=400 {
            let payload = payload_of(sequence, 100);
            let record = Record { first: Sequence(sequence), count: 1, payload: &payload };
            let claim = log.claim(&[record], Sequence(sequence - 1)).unwrap();
            log.write(claim, &[record], Durability::Sync).unwrap();
        }
        let pages = log.bytes() / 4096 - 1;
        assert_eq!(pages, 400_u64.div_ceil(4024 / 124), "{shape:?}");
        log.seal().unwrap();
        let (records, summary) = harness.replay().unwrap();
        assert_eq!((records.len(), summary.end), (400, ReplayEnd::Sealed));
        assert_eq!(summary.durable_sequence, Sequence(400));
    }
}

/// Whether the group that follows three in flight waited for them.
fn waits_for_three_in_flight() -> bool {
    let harness = Harness::new(Shape::PAGES);
    let log = harness.claim_log(header(1));
    let payload = vec![7; 10];
    let record = |first| Record { first: Sequence(first), count: 1, payload: &payload };
    let claim = |first| log.claim(&[record(first)], Sequence::ZERO).unwrap();
    let write = |claim, first| log.write(claim, &[record(first)], Durability::Sync).unwrap();
    let flying = [1, 2, 3].map(|first| (claim(first), first));
    assert_eq!(log.bytes(), 4 * 4096);
    // A page takes 4,024 bytes, and a record has a header of 24.
    let padding = flying.each_ref().map(|(claim, _)| (claim.padding_bytes(), claim.waited()));
    assert_eq!(padding, [(0, false), (4024 - 34, false), (4024 - 34, false)]);
    let waited = std::thread::scope(|scope| {
        // Nearly all of these pages is padding: the next group waits, and continues the last.
        let (comes, is_there) = std::sync::mpsc::channel();
        let next = scope.spawn(move || {
            comes.send(()).unwrap();
            claim(4)
        });
        is_there.recv().unwrap();
        // It ends at once where the claim did not wait.
        let _is_over = is_there.recv_timeout(std::time::Duration::from_millis(1));
        for (claim, first) in flying {
            write(claim, first);
        }
        let next = next.join().unwrap();
        let waited = next.waited();
        assert_eq!(next.padding_bytes(), 0);
        write(next, 4);
        waited
    });
    assert_eq!(log.bytes(), 4 * 4096);
    assert_eq!(harness.replay().unwrap().0.len(), 4);
    waited
}

#[test]
fn groups_that_fly_have_pages_of_their_own_and_padding_is_at_most_half() {
    // It does not where the three are written before its thread comes so far.
    assert!((0..1000).any(|_| waits_for_three_in_flight()));
}

#[test]
fn what_cannot_follow_is_refused_and_a_failure_is_final() {
    let harness = Harness::new(Shape::PAGES);
    let log = harness.claim_log(header(5));
    let record = |first, count| Record { first: Sequence(first), count, payload: b"x" };
    for refused in
        [vec![], vec![record(4, 1)], vec![record(6, 0)], vec![record(7, 2), record(8, 1)]]
    {
        let error = log.claim(&refused, Sequence::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{refused:?}: {error}");
    }
    let writes = harness.trace.writes.load(SeqCst);
    harness.trace.fail_write.store(writes + 1, SeqCst);
    let first = log.claim(&[record(5, 1)], Sequence::ZERO).unwrap();
    let second = log.claim(&[record(6, 1)], Sequence::ZERO).unwrap();
    let error = log.write(first, &[record(5, 1)], Durability::Sync).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(log.write(second, &[record(6, 1)], Durability::Sync).is_err());
    assert!(log.claim(&[record(7, 1)], Sequence::ZERO).is_err());
    assert!(log.sync().is_err() && log.seal().is_err());
}

#[test]
fn a_buffered_group_is_durable_after_a_sync() {
    let harness = Harness::new(Shape::SECTORS);
    let log = harness.claim_log(header(1));
    let record = Record { first: Sequence(1), count: 1, payload: b"cold" };
    let claim = log.claim(&[record], Sequence::ZERO).unwrap();
    log.write(claim, &[record], Durability::Buffered).unwrap();
    let last = harness.events().pop().unwrap();
    assert!(matches!(last, Event::Write { durable: false, .. }));
    log.sync().unwrap();
    log.sync().unwrap();
    let syncs = harness.events().into_iter().filter(|event| matches!(event, Event::Sync)).count();
    assert_eq!(syncs, 2, "the header's, and one");
}

/// Groups of one record that all but fills a page.
fn large_groups(count: u64) -> Vec<Group> {
    (1..=count).map(|first| vec![(first, 1, payload_of(first, 3000))]).collect()
}

#[test]
fn a_group_that_fails_takes_nothing_from_one_before_it_and_stops_those_to_come() {
    let harness = Harness::new(Shape::PAGES);
    let log = harness.claim_log(header(1));
    let groups = large_groups(3);
    let [first, second, third] = [0, 1, 2].map(|at| records_of(&groups[at]));
    let claims = [&first, &second].map(|records| log.claim(records, Sequence(0)).unwrap());
    let [claim, failing] = claims;
    harness.trace.fail_write.store(harness.trace.writes.load(SeqCst) + 1, SeqCst);
    let error = log.write(failing, &second, Durability::Sync).unwrap_err();
    assert!(error.to_string().contains("cannot write the test file"), "{error}");
    log.write(claim, &first, Durability::Sync).unwrap();
    let (found, _) = replay_bytes(1, &apply(&harness.events())).unwrap();
    assert_eq!(found, groups[0], "it is as durable as it says");
    let stopped = log.claim(&third, Sequence(0)).unwrap_err();
    assert_eq!(stopped.to_string(), error.to_string());
}

/// The thread that waits for the sync of another must not sync again once that has failed: what
/// the first was to write may be marked clean.
#[test]
fn a_sync_that_fails_is_not_tried_again_by_a_thread_that_waited_for_it() {
    for _ in 0..10 {
        let harness = Harness::new(Shape::PAGES);
        let log = harness.claim_log(header(1));
        let groups = large_groups(1);
        let records = records_of(&groups[0]);
        let claim = log.claim(&records, Sequence(0)).unwrap();
        log.write(claim, &records, Durability::Buffered).unwrap();
        let before = harness.trace.syncs.load(SeqCst);
        harness.trace.fail_sync.store(before + 1, SeqCst);
        harness.trace.sync_ms.store(5, SeqCst);
        let errors: Vec<_> = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| log.sync().unwrap_err().to_string()));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(errors[0].contains("cannot sync the test file"), "{errors:?}");
        assert_eq!(errors[0], errors[1]);
        assert_eq!(harness.trace.syncs.load(SeqCst), before + 1, "it was tried again");
    }
}
