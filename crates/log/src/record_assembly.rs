//! Puts records together again from the bodies of sectors, however the borders cut them.
//!
//! Invariants:
//! 1. Memory grows with the bytes fed, never with a length that a header claims.
//! 2. A record is given out only when its checksum matches header and payload.
//!
//! Used by one reader, on its thread.

use crate::format::{Parts, RECORD_HEADER_BYTES, RecordHeader, RecordKind};
use thermocline_foundation::{Place, Planted, planted};

/// What the bytes fed so far amount to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All bytes were used and the record goes on, or none has begun.
    More,
    /// A record is complete; its payload stays until the next call.
    Record(RecordHeader),
    /// The stream goes on in the next page.
    Skip,
    /// Nothing was appended from here on.
    Nothing,
}

/// A record being put together.
#[derive(Debug, Default)]
pub(crate) struct RecordAssembly {
    header: [u8; RECORD_HEADER_BYTES],
    header_bytes: usize,
    record: Option<RecordHeader>,
    payload: Vec<u8>,
}

impl RecordAssembly {
    /// No record is half put together.
    pub fn is_idle(&self) -> bool {
        self.header_bytes == 0
    }

    /// Bytes that the begun record still needs, where its header is known.
    pub fn left(&self) -> Option<usize> {
        self.record.map(|record| record.payload_bytes as usize - self.payload.len())
    }

    /// The payload of the record that [`Self::feed`] gave out last.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Uses bytes of `body`, at most to the end of a record; returns how many. Errors say what is
    /// wrong with bytes that passed their sector's checksum.
    pub fn feed(&mut self, place: &Place, body: &[u8]) -> Result<(usize, Step), &'static str> {
        let mut used = 0;
        if self.record.is_none() {
            let Some(first) = body.first() else {
                return Ok((0, Step::More));
            };
            if self.is_idle() && *first == 0 {
                let zero = body.iter().all(|byte| *byte == 0);
                return if zero {
                    Ok((body.len(), Step::Nothing))
                } else {
                    Err("no record follows")
                };
            }
            if self.is_idle() && *first == RecordKind::Skip as u8 {
                let zero = body[1..].iter().all(|byte| *byte == 0);
                return if zero { Ok((body.len(), Step::Skip)) } else { Err("a skip is followed") };
            }
            used = body.len().min(RECORD_HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..][..used].copy_from_slice(&body[..used]);
            self.header_bytes += used;
            if self.header_bytes < RECORD_HEADER_BYTES {
                return Ok((used, Step::More));
            }
            self.payload.clear();
            self.record = Some(RecordHeader::decode(&self.header)?);
        }
        let Some(record) = self.record else {
            return Ok((used, Step::More));
        };
        let left = record.payload_bytes as usize - self.payload.len();
        let count = left.min(body.len() - used);
        self.payload.extend_from_slice(&body[used..used + count]);
        if count < left {
            return Ok((used + count, Step::More));
        }
        let parts: Parts = &[&self.payload];
        let trusted =
            planted(Planted::StaleLogPageReplayed) || planted(Planted::TornRecordAccepted);
        if !trusted && record.checksum_with(place, parts) != record.checksum {
            return Err("a record does not match its checksum");
        }
        (self.record, self.header_bytes) = (None, 0);
        Ok((used + count, Step::Record(record)))
    }
}
