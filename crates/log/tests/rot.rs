//! Every damaged byte is reported or harmless; no arbitrary bytes bring the reader down.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use proptest::prelude::*;
use support::{Harness, Records, Shape, header, payload_of, replay_bytes, replay_mended};
use thermocline_device::ErrorKind;
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{Durability, LogHeader, LogReader, ReplayEnd};

/// A small recycled log with a few pages, all acknowledged; behind it lie sectors of its ancestor.
fn small_log(seal: bool) -> (Vec<u8>, Records, usize) {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    writer.append(Sequence(1), 1, &payload_of(99, 14_000)).unwrap();
    writer.seal().unwrap();
    let harness = harness.renumber(2);
    let previous = Some(FileNumber(1));
    let writer = harness.writer(LogHeader { previous, ..header(10) });
    let mut records = Vec::new();
    for (index, size) in [0, 100, 900, 3000, 5, 1800].into_iter().enumerate() {
        let first = 10 + index as u64;
        let payload = payload_of(first, size);
        let position = writer.append(Sequence(first), 1, &payload).unwrap();
        writer.commit(position, Durability::Sync).unwrap();
        records.push((first, 1, payload));
    }
    if seal {
        writer.seal().unwrap();
    }
    (harness.bytes()[..32 << 10].to_vec(), records, writer.bytes() as usize)
}

#[test]
fn every_flipped_byte_is_reported_or_harmless() {
    for seal in [true, false] {
        let (image, records, end) = small_log(seal);
        assert!(replay_bytes(2, &image).unwrap().0 == records);
        let (mut reported, mut harmless) = (0, 0);
        for at in 0..image.len() {
            let mut bytes = image.clone();
            bytes[at] ^= 1 << (at % 8);
            match replay_bytes(2, &bytes) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
                    let offset = (at / 512 * 512).to_string();
                    assert!(error.to_string().contains(&offset), "byte {at}: {error}");
                    reported += 1;
                }
                Ok((found, summary)) => {
                    assert!(found == records, "byte {at}: a wrong set of records");
                    assert_eq!(summary.end == ReplayEnd::Sealed, seal, "byte {at}");
                    harmless += 1;
                }
            }
        }
        // Without the mark of the end nothing tells where it was, so every byte counts.
        let least = if seal { end / 512 * 512 - 4096 } else { image.len() };
        assert!(reported >= least && (harmless > 0) == seal, "{reported} {harmless}");
    }
}

#[test]
fn a_mended_replay_turns_any_one_bit_back_says_where_and_refuses_two() {
    let (image, records, end) = small_log(true);
    assert!(replay_mended(2, &image).unwrap().2.is_empty());
    let (mut told, mut refused) = (0, 0);
    for at in 0..image.len() {
        let mut bytes = image.clone();
        bytes[at] ^= 1 << (at % 8);
        let (found, summary, mended) = replay_mended(2, &bytes).unwrap();
        assert!(found == records && summary.end == ReplayEnd::Sealed, "byte {at}");
        // A replay reads no sector of a page behind the mark that the rest of it holds nothing.
        assert!(mended.len() <= 1, "byte {at}: {mended:?}");
        for error in &mended {
            let offset = (at / 512 * 512).to_string();
            assert!(error.to_string().contains(&offset), "byte {at}: {error}");
            told += 1;
        }
        bytes[at / 512 * 512 + (at + 77) % 512] ^= 4;
        match replay_mended(2, &bytes) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
                refused += 1;
            }
            Ok((found, ..)) => assert!(found == records, "byte {at}"),
        }
    }
    let least = end / 512 * 512 - 4096;
    assert!(told >= least && refused >= least, "{told} told, {refused} refused");
}

/// Behind a damaged sector the rest of its page cannot be told apart, and all else is given.
#[test]
fn what_is_left_of_a_damaged_log_is_all_that_the_damage_does_not_touch() {
    let harness = Harness::new(Shape::SECTORS);
    let writer = harness.writer(header(1));
    let (mut records, mut begin) = (Vec::new(), 4096);
    for first in 1..60 {
        let size = [0, 100, 900, 9000, 5, 1800][first as usize % 6];
        let payload = payload_of(first, size);
        let end = writer.append(Sequence(first), 1, &payload).unwrap().offset();
        records.push((first, payload, begin..end));
        begin = end;
    }
    writer.seal().unwrap();
    let image = harness.bytes();
    let read = |bytes: &[u8]| {
        let mut found = Vec::new();
        let file = Harness::with_bytes(bytes).file();
        LogReader::remains(&file, &mut |first, payload| found.push((first.0, payload.to_vec())))
            .unwrap();
        found
    };
    let given = |is_touched: &dyn Fn(&std::ops::Range<u64>) -> bool| {
        let others = records.iter().filter(|(.., span)| !is_touched(span));
        others.map(|(first, payload, _)| (*first, payload.clone())).collect::<Vec<_>>()
    };
    assert!(read(&image) == given(&|_| false));
    for sector in 0..begin as usize / 512 {
        let (mut zeros, mut flipped) = (image.clone(), image.clone());
        let at = sector * 512;
        zeros[at..at + 512].fill(0);
        (flipped[at + 100], flipped[at + 300]) = (!image[at + 100], !image[at + 300]);
        let page_end = (at as u64 + 1).next_multiple_of(4096);
        let expected = given(&|span| span.start < page_end && (at as u64) < span.end);
        assert!(read(&flipped) == expected, "sector {sector}");
        assert!(read(&zeros) == expected, "sector {sector} of zeros");
        let cut = given(&|span| span.end > at as u64);
        assert!(read(&image[..at]) == cut, "cut at sector {sector}");
    }
}

#[test]
fn sectors_of_another_place_log_or_database_are_damage() {
    let (image, ..) = small_log(true);
    let sector = |at: usize| at * 512..at * 512 + 512;
    let mut swapped = image.clone();
    swapped.copy_within(sector(9), 10 * 512);
    assert_eq!(replay_bytes(2, &swapped).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    // The whole file under another number.
    assert_eq!(replay_bytes(3, &image).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    // A sector of a log with another number that is no ancestor.
    let other = Harness::with_bytes(&[]).renumber(5);
    let writer = other.writer(header(10));
    let position = writer.append(Sequence(10), 1, &payload_of(10, 5000)).unwrap();
    writer.commit(position, Durability::Sync).unwrap();
    let mut foreign = image.clone();
    foreign[sector(9)].copy_from_slice(&other.bytes()[sector(9)]);
    assert_eq!(replay_bytes(2, &foreign).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_sealed_log_cut_short_is_damage_until_its_last_page() {
    let (image, records, end) = small_log(true);
    for pages in 0..image.len() / 4096 {
        let replayed = replay_bytes(2, &image[..pages * 4096]);
        match replayed {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{pages}: {error}"),
            Ok((found, summary)) => {
                assert!(found[..] == records[..found.len()], "{pages} pages");
                let complete = pages * 4096 >= end;
                assert_eq!(summary.end == ReplayEnd::Sealed, complete, "{pages} pages");
            }
        }
    }
}

#[test]
fn a_newer_version_is_refused_with_the_way_out() {
    use thermocline_foundation::{Place, checksum};
    let (mut image, ..) = small_log(true);
    image[8] = 2;
    let place = Place { database: support::DATABASE, file: FileNumber(2), offset: 0 };
    let sum = checksum(&place, &image[..508]);
    image[508..512].copy_from_slice(&sum.to_le_bytes());
    let error = replay_bytes(2, &image).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert!(error.to_string().contains("upgrade"), "{error}");
}

/// Puts good checksums on the sectors of the log, so that only what they hold can tell.
fn seal_sectors(image: &mut [u8], end: usize) {
    use thermocline_foundation::{Place, checksum};
    let sectors = image.chunks_exact_mut(512).enumerate();
    for (index, sector) in sectors.take(end.div_ceil(512)).skip(8) {
        let offset = index as u64 * 512;
        let place = Place { database: support::DATABASE, file: FileNumber(2), offset };
        let sum = checksum(&place, &sector[..508]);
        sector[508..].copy_from_slice(&sum.to_le_bytes());
    }
}

#[test]
fn wrong_bytes_under_good_checksums_are_damage() {
    let (image, records, end) = small_log(true);
    let mut same = image.clone();
    seal_sectors(&mut same, end);
    assert!(replay_bytes(2, &same).unwrap().0 == records);
    // Of page 1: mark, stream, first record, number, page; then the second record's payload, where
    // only the record's own checksum can tell; then what page 2 says of its first record.
    for at in [4096, 4100, 4102, 4104, 4112, 4096 + 40 + 24 + 24 + 50, 8192 + 6] {
        let mut wrong = image.clone();
        wrong[at] ^= 1;
        seal_sectors(&mut wrong, end);
        let error = replay_bytes(2, &wrong).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn any_bytes_under_good_checksums_give_no_panic_and_no_wrong_record(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let (mut image, records, end) = small_log(false);
        for (index, value) in changes {
            image[4096 + index.index(end - 4096)] = value;
        }
        seal_sectors(&mut image, end);
        if let Ok((found, _)) = replay_bytes(2, &image) {
            prop_assert!(found.len() <= records.len() && found[..] == records[..found.len()]);
        }
    }

    #[test]
    fn any_bytes_behind_the_header_give_no_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
    ) {
        let (image, ..) = small_log(false);
        let mut image = image[..4096].to_vec();
        image.extend(&bytes);
        let found = replay_bytes(2, &image);
        prop_assert!(found.map_or(true, |(records, _)| records.is_empty()));
    }
}
