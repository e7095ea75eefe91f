//! What is left after a crash at any moment is a prefix that holds everything that was
//! acknowledged.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::{Event, Harness, Records, Shape, apply, header, payload_of, power_cut, replay_bytes};
use thermocline_device::ErrorKind;
use thermocline_foundation::random::Random;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{Durability, LogHeader, ReplayEnd};

/// What was acknowledged when the driver had seen so many events.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    events: usize,
    records: usize,
    durability: Durability,
}

struct History {
    appended: Records,
    acknowledged: Vec<Acknowledged>,
    /// Events before the header was synced; a log does not exist earlier.
    created: usize,
    number: u64,
    /// Largest sequence of anything the log said was durable is checked against this.
    events: Vec<Event>,
}

/// Appends and commits at random on the harness's file.
fn run(harness: &Harness, header: LogHeader, number: u64, seed: u64, steps: usize) -> History {
    let mut random = Random::new(seed);
    let writer = harness.writer(header);
    let created = harness.events().len();
    let mut appended: Records = Vec::new();
    let mut acknowledged = Vec::new();
    let mut next = header.first_sequence.0;
    for _ in 0..steps {
        let size = match random.below(10) {
            0 => 0,
            1..=6 => random.below(600),
            7..=8 => random.below(6000),
            _ => random.below(40_000),
        } as usize;
        let count = 1 + random.below(3) as u32;
        let payload = payload_of(next, size);
        let position = writer.append(Sequence(next), count, &payload).unwrap();
        appended.push((next, count, payload));
        next += u64::from(count);
        let durability = match random.below(6) {
            0..=1 => Durability::Sync,
            2..=3 => Durability::Buffered,
            _ => continue,
        };
        writer.commit(position, durability).unwrap();
        let (events, records) = (harness.events().len(), appended.len());
        acknowledged.push(Acknowledged { events, records, durability });
    }
    if random.below(3) == 0 {
        writer.seal().unwrap();
        let (events, records) = (harness.events().len(), appended.len());
        acknowledged.push(Acknowledged { events, records, durability: Durability::Sync });
    }
    History { appended, acknowledged, created, number, events: harness.events() }
}

/// How many records must be there after the crash at `count` events.
fn required(history: &History, count: usize, power_lost: bool) -> usize {
    let counts = |ack: &&Acknowledged| {
        ack.events <= count && (!power_lost || ack.durability == Durability::Sync)
    };
    history.acknowledged.iter().filter(counts).map(|ack| ack.records).max().unwrap_or(0)
}

fn check(history: &History, image: &[u8], required: usize, what: &str) -> ReplayEnd {
    let replayed = replay_bytes(history.number, image);
    let (records, summary) = replayed.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(records.len() >= required, "{what}: {} of {required} records", records.len());
    assert!(records.len() <= history.appended.len(), "{what}: invented records");
    assert!(records == history.appended[..records.len()], "{what}: not a prefix");
    let last = records.last().map(|(first, count, _)| first + u64::from(*count) - 1);
    let last = last.unwrap_or(summary.header.first_sequence.0 - 1);
    assert_eq!(summary.last_sequence.0, last, "{what}");
    assert!(summary.durable_sequence.0 <= last, "{what}");
    if summary.end == ReplayEnd::Sealed {
        assert_eq!(records.len(), history.appended.len(), "{what}: sealed but not complete");
    }
    summary.end
}

/// Every moment of the history, with `samples` outcomes of a power cut each; how many ended torn.
fn crash_everywhere(history: &History, random: &mut Random, samples: usize) -> usize {
    let mut torn = 0;
    for count in history.created..=history.events.len() {
        let image = apply(&history.events[..count]);
        check(history, &image, required(history, count, false), &format!("kill at {count}"));
        for sample in 0..samples {
            let image = power_cut(&history.events, count, random);
            let what = format!("power cut at {count}, sample {sample}");
            let end = check(history, &image, required(history, count, true), &what);
            torn += usize::from(matches!(end, ReplayEnd::Torn { .. }));
        }
    }
    torn
}

#[test]
fn a_crash_leaves_a_prefix_with_everything_acknowledged() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let mut torn = 0;
        for seed in 0..12 {
            let history = run(&Harness::new(shape), header(1), 1, seed, 40);
            torn += crash_everywhere(&history, &mut Random::new(seed), 12);
        }
        assert!(torn > 100, "only {torn} torn ends: the cuts do not test them");
    }
}

#[test]
fn a_crash_of_a_recycled_log_replays_no_record_of_an_earlier_one() {
    for (first_shape, second_shape) in [
        (Shape::SECTORS, Shape::SECTORS),
        (Shape::PAGES, Shape::SECTORS),
        (Shape::SECTORS, Shape::PAGES),
    ] {
        for seed in 0..6 {
            let mut harness = Harness::new(first_shape);
            // Three generations of falling length, so that sectors of all of them lie about.
            let mut previous = None;
            for (number, steps) in [(1, 60), (2, 30), (7, 15)] {
                let first_sequence = Sequence(1000 * number);
                let header = LogHeader { stream: 2, previous, first_sequence };
                let history = run(&harness, header, number, seed + number, steps);
                if number == 7 {
                    crash_everywhere(&history, &mut Random::new(seed), 6);
                }
                previous = Some(FileNumber(number));
                harness = harness.renumber(if number == 1 { 2 } else { 7 });
                harness.shape = second_shape;
            }
        }
    }
}

#[test]
fn a_file_recycled_many_times_is_emptied_before_its_ancestors_are_forgotten() {
    let mut harness = Harness::new(Shape::SECTORS);
    let mut previous = None;
    let mut emptied = 0;
    for number in 1..100 {
        let header = LogHeader { stream: 0, previous, first_sequence: Sequence(number * 1000) };
        let steps = if number == 1 { 60 } else { 3 };
        let history = run(&harness, header, number, number, steps);
        let (_, summary) = harness.replay().unwrap();
        emptied += usize::from(summary.header.previous.is_none());
        check(&history, &harness.bytes(), 0, &format!("generation {number}"));
        previous = Some(FileNumber(number));
        harness = harness.renumber(number + 1);
    }
    assert_eq!(emptied, 3, "once new, then after each 33 generations");
}

#[test]
fn a_file_that_was_no_log_is_emptied() {
    let mut junk = vec![0; 200_000];
    Random::new(4).fill(&mut junk);
    for previous in [None, Some(FileNumber(8))] {
        let harness = Harness::with_bytes(&junk).renumber(9);
        let history = run(&harness, LogHeader { previous, ..header(5) }, 9, 3, 10);
        assert_eq!(harness.replay().unwrap().1.header.previous, None);
        check(&history, &harness.bytes(), 0, "after junk");
    }
}

#[test]
fn a_lost_write_of_durable_records_is_damage_and_not_a_torn_end() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let harness = Harness::new(shape);
        let writer = harness.writer(header(1));
        for sequence in 1..40 {
            let payload = payload_of(sequence, 700);
            let position = writer.append(Sequence(sequence), 1, &payload).unwrap();
            writer.commit(position, Durability::Sync).unwrap();
        }
        let whole = harness.bytes();
        let pages = writer.bytes() / 4096;
        // Each sector of every page but the last, as if it had never been written. The last page
        // says what was durable when it was begun; only a record that runs over into it can be
        // beyond.
        let durable = replay_bytes(1, &whole).unwrap().1.durable_sequence;
        assert!(durable >= Sequence(37) && writer.durable_sequence() == Sequence(39));
        let mut reported = 0;
        for sector in 8..pages * 8 {
            let mut image = whole.clone();
            image[sector as usize * 512..][..512].fill(0);
            match replay_bytes(1, &image) {
                Ok((_, summary)) => assert_eq!(summary.last_sequence, durable, "{sector}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "sector {sector}: {error}");
                    assert!(error.to_string().contains("durable"), "{error}");
                    reported += 1;
                }
            }
        }
        assert!(reported >= pages * 8 - 8 - 2, "{reported} of {pages} pages");
        // The same for a sealed log, up to its last record.
        writer.seal().unwrap();
        let whole = harness.bytes();
        let sectors = (writer.bytes() - 24) / 4096 * 8;
        let before = (writer.bytes() / 4096) as usize * 4096;
        assert_eq!(before as u64 / 512, sectors);
        for sector in (8..sectors as usize).filter(|at| whole[at * 512..][..508] != [0; 508]) {
            let mut image = whole.clone();
            image[sector * 512..][..512].fill(0);
            let error = replay_bytes(1, &image).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "sector {sector}: {error}");
        }
    }
}
