//! What must hold for any bytes in a log file. Each property returns whether it was replayed.
//!
//! The file has the number that its header page claims, so that both golden logs and their
//! mutations are themselves; the database is that of the golden files.

use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::{Buffer, Driver, File, FileKind, Operation, TierIndex};
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::{DatabaseId, FileNumber, Place, Sequence};
use thermocline_log::format::{
    PAGE_HEADER_BYTES, PAGE_STREAM_BYTES, RECORD_HEADER_BYTES, SECTOR_BODY_BYTES, SECTOR_BYTES,
};
use thermocline_log::{LogReader, ReplayEnd, decoders};

const DATABASE: DatabaseId = DatabaseId([0x5a; 16]);
const PAGE_BYTES: usize = 4096;

fn number_of(data: &[u8]) -> FileNumber {
    let bytes = data.get(16..24).and_then(|bytes| bytes.try_into().ok());
    FileNumber(bytes.map_or(1, u64::from_le_bytes))
}

fn file_of(data: &[u8]) -> File {
    let driver = Arc::new(MemoryDriver::new());
    let handle = driver.create("log").expect("the directory is empty");
    let operation = Operation::Write { offset: 0, buffer: Buffer::copy_of(data), durable: false };
    driver.execute(&handle, operation).result.expect("memory takes it");
    File::new(DATABASE, number_of(data), FileKind::Log, TierIndex(0), driver, handle)
}

/// The headers of a page and of a record: what is read is written the same.
pub fn log_headers(data: &[u8]) -> bool {
    let written = decoders::rewrite_headers(data);
    assert!(written.as_ref().is_none_or(|written| data.starts_with(written)), "{written:?}");
    written.is_some()
}

/// A log: sequences grow, what the summary says is what was given out, and a second replay says
/// the same.
pub fn log(data: &[u8]) -> bool {
    let file = file_of(data);
    let (mut last, mut count, mut bytes) = (Sequence(0), 0, 0);
    let replayed = LogReader::replay(&file, &mut |first, records, payload| {
        let end = first.0 + u64::from(records);
        assert!(first > last || count == 0, "sequence {first} after {last}");
        assert!(end <= Sequence::MAX.0 + 1, "a sequence of more than 56 bits");
        last = Sequence(end.saturating_sub(1));
        (count, bytes) = (count + 1, bytes + payload.len());
        Ok(())
    });
    assert!(bytes <= data.len(), "more payload than file");
    let (mut last_left, mut left, mut left_bytes) = (Sequence(0), 0, 0);
    let remains = LogReader::remains(&file, &mut |first, payload| {
        assert!(first > last_left, "sequence {first} after {last_left}");
        (last_left, left, left_bytes) = (first, left + 1, left_bytes + payload.len());
    });
    assert!(remains.is_ok() && left_bytes <= data.len(), "more payload than file");
    let Ok(summary) = replayed else {
        return false;
    };
    assert!(left >= count, "{left} records are left of a log of {count}");
    assert_eq!(summary.records, count);
    assert!(count == 0 || summary.last_sequence == last);
    assert!(summary.durable_sequence <= summary.last_sequence);
    let len = data.len().next_multiple_of(PAGE_BYTES) as u64;
    assert!(summary.bytes <= len, "{summary:?} of {} bytes", data.len());
    if let ReplayEnd::Torn { offset } = summary.end {
        assert!(offset <= len);
    }
    assert_eq!(LogReader::header(&file).ok(), Some(summary.header));
    assert_eq!(LogReader::replay(&file, &mut |_, _, _| Ok(())).ok(), Some(summary));
    true
}

/// As [`log`], behind the checksums of sectors and records.
pub fn sealed_log(data: &[u8]) -> bool {
    log(&seal(data))
}

/// Puts right checksums on all sectors that are not zero, and on the records as far as their
/// lengths lead; see docs/formats/log.md.
fn seal(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    let place = Place { database: DATABASE, file: number_of(data), offset: 0 };
    seal_records(&place, &mut bytes);
    for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        if sector.iter().any(|byte| *byte != 0) {
            let offset = (index * SECTOR_BYTES) as u64;
            let sum = checksum(&place.at(offset), &sector[..SECTOR_BODY_BYTES]);
            let sum = if sum == 0 { u32::MAX } else { sum };
            sector[SECTOR_BODY_BYTES..].copy_from_slice(&sum.to_le_bytes());
        }
    }
    bytes
}

fn seal_records(place: &Place, bytes: &mut [u8]) {
    // Where each byte of the stream lies: the pages behind the first, without headers and sums.
    let stream: Vec<usize> = (PAGE_BYTES..bytes.len() / PAGE_BYTES * PAGE_BYTES)
        .filter(|at| at % PAGE_BYTES >= PAGE_HEADER_BYTES && at % SECTOR_BYTES < SECTOR_BODY_BYTES)
        .collect();
    let mut at = 0;
    while at + RECORD_HEADER_BYTES <= stream.len() {
        let header: Vec<u8> =
            stream[at..at + RECORD_HEADER_BYTES].iter().map(|index| bytes[*index]).collect();
        match header[0] {
            1 | 2 => {}
            3 => {
                at = (at + 1).next_multiple_of(PAGE_STREAM_BYTES);
                continue;
            }
            _ => break,
        }
        let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let start = at + RECORD_HEADER_BYTES;
        let Some(payload) = stream.get(start..start + len) else {
            break;
        };
        let payload: Vec<u8> = payload.iter().map(|index| bytes[*index]).collect();
        let chained = checksum(place, &header[..20]);
        let sum = checksum_parts(&place.at(u64::from(chained)), &[&payload]);
        for (index, byte) in stream[at + 20..start].iter().zip(sum.to_le_bytes()) {
            bytes[*index] = byte;
        }
        at = start + len;
    }
}
