//! The format, held fast by files: what is written today is what was written before, byte by byte.
//!
//! `THERMOCLINE_BLESS=1 cargo test -p thermocline-log --test golden` writes them anew, after a
//! change of the format with its version and its page.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::path::PathBuf;
use support::{Harness, Shape, header, payload_of, replay_bytes};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{Durability, LogHeader, LogSettings, Record, ReplayEnd};

#[allow(clippy::disallowed_methods, reason = "golden files are not part of a store")]
fn compare(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    let differs = golden.iter().zip(bytes).position(|(a, b)| a != b);
    assert!(differs.is_none() && golden.len() == bytes.len(), "{name} differs at {differs:?}");
}

/// Two generations: sealed, then recycled and left open with the end in the middle of old pages.
fn images() -> (Vec<u8>, Vec<u8>) {
    let settings = LogSettings { segment_bytes: 20_480, ..Shape::SECTORS.settings };
    let harness = Harness::new(Shape { settings, ..Shape::SECTORS });
    let writer = harness.writer(LogHeader { stream: 3, ..header(1) });
    for (first, count, size) in [(1, 1, 0), (2, 3, 100), (9, 1, 6000), (10, 1, 470)] {
        let payload = payload_of(first, size);
        let position = writer.append(Sequence(first), count, &payload).unwrap();
        writer.commit(position, Durability::Sync).unwrap();
    }
    writer.seal().unwrap();
    let sealed = harness.bytes();
    let harness = harness.renumber(2);
    let previous = Some(FileNumber(1));
    let writer = harness.writer(LogHeader { stream: 3, previous, ..header(20) });
    let position = writer.append(Sequence(20), 1, &payload_of(20, 1500)).unwrap();
    writer.commit(position, Durability::Sync).unwrap();
    (sealed, harness.bytes())
}

#[test]
fn the_format_is_the_one_of_the_golden_files() {
    let (sealed, recycled) = images();
    compare("sealed.log", &sealed);
    compare("recycled.log", &recycled);
    let (records, summary) = replay_bytes(1, &sealed).unwrap();
    let shape = |(first, count, bytes): &(u64, u32, Vec<u8>)| (*first, *count, bytes.len());
    let shapes: Vec<_> = records.iter().map(shape).collect();
    assert_eq!(shapes, [(1, 1, 0), (2, 3, 100), (9, 1, 6000), (10, 1, 470)]);
    assert!(records.iter().all(|(first, _, bytes)| *bytes == payload_of(*first, bytes.len())));
    assert_eq!((summary.end, summary.durable_sequence), (ReplayEnd::Sealed, Sequence(10)));
    assert_eq!((summary.header.stream, summary.header.previous), (3, None));
    let (records, summary) = replay_bytes(2, &recycled).unwrap();
    assert!(records == [(20, 1, payload_of(20, 1500))]);
    assert_eq!(summary.end, ReplayEnd::End);
    assert_eq!(summary.header.previous, Some(FileNumber(1)));
}

/// Groups side by side: the second has its own page and is continued, the first is two pages long.
#[test]
fn groups_that_were_written_side_by_side_are_those_of_the_golden_file() {
    let settings = LogSettings { segment_bytes: 20_480, ..Shape::SECTORS.settings };
    let harness = Harness::new(Shape { settings, ..Shape::SECTORS });
    let log = harness.claim_log(LogHeader { stream: 3, ..header(1) });
    let payloads = [payload_of(1, 6000), payload_of(2, 300), payload_of(3, 700)];
    let record =
        |at: usize| Record { first: Sequence(at as u64 + 1), count: 1, payload: &payloads[at] };
    let [first, second] = [0, 1].map(|at| log.claim(&[record(at)], Sequence::ZERO).unwrap());
    log.write(second, &[record(1)], Durability::Sync).unwrap();
    let third = log.claim(&[record(2)], Sequence::ZERO).unwrap();
    log.write(third, &[record(2)], Durability::Sync).unwrap();
    log.write(first, &[record(0)], Durability::Sync).unwrap();
    log.seal().unwrap();
    let bytes = harness.bytes();
    compare("side-by-side.log", &bytes);
    let (records, summary) = replay_bytes(1, &bytes).unwrap();
    let expected = (0..3).map(|at| (at as u64 + 1, 1, payloads[at].clone()));
    assert!(records.into_iter().eq(expected));
    assert_eq!((summary.end, summary.durable_sequence), (ReplayEnd::Sealed, Sequence(3)));
}
