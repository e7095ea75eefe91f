//! What was appended is what is read back, over every border, on every alignment.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use proptest::prelude::*;
use support::{Harness, Shape, header, payload_of};
use thermocline_device::ErrorKind;
use thermocline_foundation::Sequence;
use thermocline_log::{Durability, LogReader, LogSettings, PAYLOAD_BYTES_MAX, ReplayEnd};

/// Sizes at and around the borders of sectors, pages and buffers.
fn border_sizes() -> Vec<usize> {
    let borders = [0, 468, 484, 508, 4024, 4000, 8048, 8192, 16384, 65536];
    let mut sizes: Vec<usize> = borders.iter().flat_map(|at| at.max(&26) - 26..at + 27).collect();
    sizes.extend([1 << 20, 3_000_001]);
    sizes
}

#[test]
fn records_of_every_size_come_back_over_every_border() {
    for shape in [Shape::SECTORS, Shape::PAGES] {
        let harness = Harness::new(shape);
        let writer = harness.writer(header(1));
        let mut expected = Vec::new();
        for (index, size) in border_sizes().into_iter().enumerate() {
            let first = Sequence(1 + 2 * index as u64);
            let payload = payload_of(first.0, size);
            let position = writer.append(first, 2, &payload).unwrap();
            if index % 3 == 0 {
                writer.commit(position, Durability::Buffered).unwrap();
            }
            expected.push((first.0, 2, payload));
        }
        writer.seal().unwrap();
        let (records, summary) = harness.replay().unwrap();
        assert_eq!(summary.end, ReplayEnd::Sealed);
        assert_eq!(summary.last_sequence.0, 2 * expected.len() as u64);
        assert_eq!(summary.durable_sequence, summary.last_sequence);
        assert!(records == expected, "records differ from what was appended");
    }
}

/// A replay's records go into memtables, which takes about as long as reading them.
#[test]
fn the_next_piece_is_being_read_while_records_are_given_out() {
    const PIECE: u64 = 1 << 20;
    let harness = Harness::new(Shape::PAGES);
    let writer = harness.writer(header(1));
    let sizes = [300_000; 14];
    for (index, size) in sizes.iter().enumerate() {
        let first = Sequence(1 + index as u64);
        writer.append(first, 1, &payload_of(first.0, *size)).unwrap();
    }
    writer.seal().unwrap();
    harness.trace.reads.lock().clear();
    let (mut bytes, mut records) = (0, 0);
    LogReader::replay(&harness.file(), &mut |first, _, payload| {
        assert_eq!(payload, payload_of(first.0, payload.len()));
        (bytes, records) = (bytes + payload.len() as u64, records + 1);
        // The record ended in this piece or, for what is not payload, just behind it.
        let next = 4096 + (bytes / PIECE + 1) * PIECE;
        let reads = harness.trace.reads.lock();
        assert!(next >= harness.bytes_len() || reads.contains(&next), "{next} not in {reads:?}");
        Ok(())
    })
    .unwrap();
    assert_eq!(records, sizes.len());
    let mut reads = harness.trace.reads.lock().clone();
    reads.sort_unstable();
    assert!(reads.windows(2).all(|pair| pair[0] < pair[1]), "none is read twice: {reads:?}");
}

#[test]
fn a_record_in_pieces_is_the_record_whole() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    let parts: [&[u8]; 4] = [b"warm", b"", b" over ", b"cold"];
    let position = writer.append_parts(Sequence(5), 3, &parts).unwrap();
    writer.commit(position, Durability::Sync).unwrap();
    let (records, summary) = harness.replay().unwrap();
    assert_eq!(records, [(5, 3, b"warm over cold".to_vec())]);
    assert_eq!((summary.end, summary.last_sequence), (ReplayEnd::End, Sequence(7)));
}

#[test]
fn an_empty_log_has_a_header_and_no_records() {
    let harness = Harness::new(Shape::PAGES);
    let writer = harness.writer(header(9));
    let (records, summary) = harness.replay().unwrap();
    assert!(records.is_empty());
    assert_eq!((summary.end, summary.last_sequence), (ReplayEnd::End, Sequence(8)));
    writer.seal().unwrap();
    writer.seal().unwrap();
    let (_, summary) = harness.replay().unwrap();
    assert_eq!((summary.end, summary.header), (ReplayEnd::Sealed, header(9)));
}

#[test]
fn appends_that_cannot_be_are_refused_and_leave_the_log_usable() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(10));
    let refused = |first, count, payload: &[u8]| {
        let error = writer.append(Sequence(first), count, payload).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(".log"), "{error}");
    };
    refused(9, 1, b"before the first sequence");
    refused(10, 0, b"no sequence");
    refused(Sequence::MAX.0, 2, b"beyond the last sequence");
    refused(10, 1, &vec![0; PAYLOAD_BYTES_MAX + 1]);
    writer.append(Sequence(12), 2, b"fine").unwrap();
    refused(13, 1, b"again");
    writer.seal().unwrap();
    refused(14, 1, b"after the seal");
    assert_eq!(harness.replay().unwrap().0, [(12, 2, b"fine".to_vec())]);
}

#[test]
fn a_log_grows_beyond_its_reserved_space_in_steps() {
    let harness = Harness::new(Shape {
        settings: LogSettings { segment_bytes: 8192, growth_bytes: 100_000, buffer_bytes: 16384 },
        ..Shape::SECTORS
    });
    let writer = harness.writer(header(1));
    assert_eq!(harness.file().len().unwrap(), 16_384, "the header and the end have their room");
    let position = writer.append(Sequence(1), 1, &payload_of(1, 20_000)).unwrap();
    writer.commit(position, Durability::Buffered).unwrap();
    let len = harness.file().len().unwrap();
    assert!(len >= 108_192 && len.is_multiple_of(4096), "{len}");
    let position = writer.append(Sequence(2), 1, &payload_of(2, 1000)).unwrap();
    writer.commit(position, Durability::Buffered).unwrap();
    assert_eq!(harness.file().len().unwrap(), len);
    assert_eq!(harness.replay().unwrap().0.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn any_history_comes_back(
        pages in any::<bool>(),
        steps in prop::collection::vec((0usize..9000, 1u32..4, 0u8..4), 0..60),
        seal in any::<bool>(),
    ) {
        let harness = Harness::new(if pages { Shape::PAGES } else { Shape::SECTORS });
        let writer = harness.writer(header(1));
        let mut next = 1;
        let mut expected = Vec::new();
        let mut committed = 0;
        for (size, count, action) in steps {
            let size = if action == 0 { size % 40 } else { size };
            let payload = payload_of(next, size);
            let position = writer.append(Sequence(next), count, &payload).unwrap();
            expected.push((next, count, payload));
            next += u64::from(count);
            match action {
                1 => writer.commit(position, Durability::Sync).unwrap(),
                2 => writer.commit(position, Durability::Buffered).unwrap(),
                _ => continue,
            }
            committed = expected.len();
        }
        if seal {
            writer.seal().unwrap();
            committed = expected.len();
        }
        prop_assert!(writer.durable_sequence() <= writer.written_sequence());
        let (records, summary) = harness.replay().unwrap();
        prop_assert!(records.len() >= committed);
        prop_assert!(records[..] == expected[..records.len()]);
        prop_assert_eq!(summary.end == ReplayEnd::Sealed, seal);
    }
}
