//! The bytes of a log file, as docs/formats/log.md draws them: sectors, pages and record headers.
//!
//! ```text
//! file    | header page | page 1 | page 2 | ...                            4096 bytes each
//! page    | sector 0 | sector 1 | ... | sector 7 |                         512 bytes each
//! sector  | body 508                                   | checksum 4 |
//! page    | page header 40 | stream ... over the bodies of the eight sectors
//! stream  | record header 24 | payload | record header 24 | payload | 0 ...
//! ```
//!
//! Invariants:
//! 1. A sector's checksum is bound to database, log number and offset; it is never 0, so a sector
//!    of zeros is always one that was not written.
//! 2. A sector that is not full ends with the end of a record, then zeros. It may be written again
//!    with more behind that record; what it already holds does not change.
//! 3. Encoding and decoding live side by side here; no other file knows an offset inside a page.
//!
//! Pure functions; callable from any thread.

use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Error, ErrorKind, File, Result};
use thermocline_foundation::checksum::{checksum, checksum_parts};
use thermocline_foundation::coding::{DecodeError, Decoder};
use thermocline_foundation::{FileNumber, Place, Sequence};

/// Bytes in a sector: the unit that a device writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Bytes of a sector before its checksum.
pub const SECTOR_BODY_BYTES: usize = SECTOR_BYTES - 4;
/// Bytes of the header at the start of each page but the first.
pub const PAGE_HEADER_BYTES: usize = 40;
/// Bytes of the record stream that a page holds.
pub const PAGE_STREAM_BYTES: usize =
    PAGE_BYTES / SECTOR_BYTES * SECTOR_BODY_BYTES - PAGE_HEADER_BYTES;
/// Bytes before each payload.
pub const RECORD_HEADER_BYTES: usize = 24;
/// Largest payload of a record, in bytes: a value of 256 MiB with room for its batch.
pub const PAYLOAD_BYTES_MAX: usize = 300 << 20;
/// Version of the format, in the header page.
pub const VERSION: u32 = 1;
/// Most earlier users of a recycled file that its header remembers.
pub const ANCESTORS_MAX: usize = 32;

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
pub(crate) const SECTOR: u64 = SECTOR_BYTES as u64;

const FILE_MAGIC: [u8; 8] = *b"TCLNLOG\0";
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"TLPG");
const NO_RECORD: u16 = u16::MAX;

const _: () = assert!(PAGE_STREAM_BYTES == 4024 && PAGE_BYTES.is_multiple_of(SECTOR_BYTES));
// Fixed fields, then the ancestors, within the body of the first sector.
const _: () = assert!(8 + 4 + 2 + 2 + 8 + 8 + 8 * ANCESTORS_MAX <= SECTOR_BODY_BYTES);

/// What a log says of itself in its first page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHeader {
    /// The stream that the log belongs to; 0 where there is only one.
    pub stream: u16,
    /// The number that the file had as a log before it was recycled.
    pub previous: Option<FileNumber>,
    /// No record of the log has a lower sequence.
    pub first_sequence: Sequence,
}

impl LogHeader {
    /// The sequence before the first that the log may hold.
    pub(crate) fn base_sequence(&self) -> Sequence {
        Sequence(self.first_sequence.0.saturating_sub(1))
    }
}

/// The decoded header page: the header and every number whose sectors may still lie in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderPage {
    pub header: LogHeader,
    /// Newest first; empty where the file was new or emptied.
    pub ancestors: Vec<FileNumber>,
}

/// The start of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageHeader {
    pub stream: u16,
    /// Offset in the page at which the first record that starts there does, if one does or may.
    pub first_record: Option<u16>,
    pub number: FileNumber,
    /// Pages from the start of the file.
    pub page: u64,
    /// No record that starts in this page or later has a lower sequence.
    pub first_sequence: Sequence,
    /// Everything up to here was durable when the page was begun.
    pub durable_sequence: Sequence,
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// Carries a payload.
    Data = 1,
    /// The log was closed on purpose; nothing follows.
    End = 2,
    /// One byte without the rest of a record header: the stream goes on in the next page.
    Skip = 3,
}

impl RecordKind {
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Data, Self::End, Self::Skip].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The start of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub kind: RecordKind,
    pub payload_bytes: u32,
    pub first: Sequence,
    pub count: u32,
    pub checksum: u32,
}

/// Checksum of a sector's body. Zero is set aside for "not written".
pub(crate) fn sector_checksum(place: &Place, body: &[u8]) -> u32 {
    match checksum(place, body) {
        0 => u32::MAX,
        sum => sum,
    }
}

/// Puts the checksum behind the body of a sector.
pub(crate) fn seal_sector(place: &Place, sector: &mut [u8]) {
    debug_assert_eq!(sector.len(), SECTOR_BYTES);
    let sum = sector_checksum(place, &sector[..SECTOR_BODY_BYTES]);
    sector[SECTOR_BODY_BYTES..].copy_from_slice(&sum.to_le_bytes());
}

/// The sector is intact and belongs at `place`.
pub(crate) fn sector_matches(place: &Place, sector: &[u8]) -> bool {
    let (body, sum) = sector.split_at(SECTOR_BODY_BYTES);
    sector_checksum(place, body).to_le_bytes() == sum
}

/// Offset in a page of byte `index` of its stream; a page's length for the byte after its last.
pub(crate) fn stream_offset(index: usize) -> usize {
    let body = index + PAGE_HEADER_BYTES;
    body + body / SECTOR_BODY_BYTES * (SECTOR_BYTES - SECTOR_BODY_BYTES)
}

impl HeaderPage {
    /// Writes the whole page, sealed for `place` (offset 0 of the file).
    pub fn encode(&self, place: &Place, page: &mut [u8]) {
        assert!(page.len() == PAGE_BYTES && self.ancestors.len() <= ANCESTORS_MAX);
        page.fill(0);
        page[..8].copy_from_slice(&FILE_MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..14].copy_from_slice(&self.header.stream.to_le_bytes());
        page[14..16].copy_from_slice(&(self.ancestors.len() as u16).to_le_bytes());
        page[16..24].copy_from_slice(&place.file.0.to_le_bytes());
        page[24..32].copy_from_slice(&self.header.first_sequence.0.to_le_bytes());
        for (number, bytes) in self.ancestors.iter().zip(page[32..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&number.0.to_le_bytes());
        }
        for (index, sector) in page.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            seal_sector(&place.at((index * SECTOR_BYTES) as u64), sector);
        }
    }

    /// Reads the page that `file` had when its number was `number`.
    ///
    /// # Errors
    /// `Corrupt` where the page is damaged or another file's, `NewerFormat` for a later version.
    pub fn decode(file: &File, number: FileNumber, page: &[u8]) -> Result<Self> {
        let place = Place { file: number, ..file.place(0) };
        if page.len() < PAGE_BYTES {
            return Err(Error::corrupt(file.describe(), page.len() as u64, "no header page"));
        }
        for (index, sector) in page.chunks_exact(SECTOR_BYTES).enumerate() {
            let offset = (index * SECTOR_BYTES) as u64;
            if !sector_matches(&place.at(offset), sector) {
                let why = "the header page's checksum does not match; restore from a checkpoint";
                return Err(Error::corrupt(file.describe(), offset, why));
            }
        }
        let wrong = |_: DecodeError| Error::corrupt(file.describe(), 0, "the header is too short");
        let mut decoder = Decoder::new(&page[..SECTOR_BODY_BYTES]);
        let magic: [u8; 8] = decoder.array().map_err(wrong)?;
        let version = decoder.u32().map_err(wrong)?;
        if magic == FILE_MAGIC && version > VERSION {
            let text = format!(
                "{} has log format {version}, this software reads up to {VERSION}; upgrade it",
                file.describe()
            );
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        let stream = decoder.u16().map_err(wrong)?;
        let count = usize::from(decoder.u16().map_err(wrong)?);
        let own = decoder.u64().map_err(wrong)?;
        let first = decoder.u64().map_err(wrong)?;
        let known = magic == FILE_MAGIC && version == VERSION && own == number.0;
        if !known || count > ANCESTORS_MAX || first > Sequence::MAX.0 {
            return Err(Error::corrupt(file.describe(), 0, "the header page is not a log's"));
        }
        let ancestors = (0..count)
            .map(|_| decoder.u64().map(FileNumber).map_err(wrong))
            .collect::<Result<Vec<_>>>()?;
        let previous = ancestors.first().copied();
        let header = LogHeader { stream, previous, first_sequence: Sequence(first) };
        Ok(Self { header, ancestors })
    }
}

impl PageHeader {
    /// The header of the page at `place` (log, pages from its start), begun with `left` bytes of
    /// `record` to come. It says nothing of what is durable.
    pub fn within(
        record: &RecordHeader,
        left: usize,
        place: (FileNumber, u64),
        stream: u16,
    ) -> Self {
        let starts_here = left == record.stream_bytes();
        let first_record = match left {
            _ if starts_here => Some(stream_offset(0)),
            _ if left < PAGE_STREAM_BYTES => Some(stream_offset(left)),
            _ => None,
        };
        let next = if starts_here { 0 } else { u64::from(record.count) };
        let (number, page) = place;
        Self {
            stream,
            first_record: first_record.map(|offset| offset as u16),
            number,
            page,
            first_sequence: Sequence(record.first.0 + next),
            durable_sequence: Sequence::ZERO,
        }
    }

    pub fn encode(&self) -> [u8; PAGE_HEADER_BYTES] {
        let mut bytes = [0; PAGE_HEADER_BYTES];
        bytes[..4].copy_from_slice(&PAGE_MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.stream.to_le_bytes());
        let first_record = self.first_record.unwrap_or(NO_RECORD);
        bytes[6..8].copy_from_slice(&first_record.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.page.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.first_sequence.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.durable_sequence.0.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`; nothing where it has no page's mark or ends early.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        (decoder.u32().ok()? == PAGE_MAGIC).then_some(())?;
        let stream = decoder.u16().ok()?;
        let first_record = Some(decoder.u16().ok()?).filter(|offset| *offset != NO_RECORD);
        Some(Self {
            stream,
            first_record,
            number: FileNumber(decoder.u64().ok()?),
            page: decoder.u64().ok()?,
            first_sequence: Sequence(decoder.u64().ok()?),
            durable_sequence: Sequence(decoder.u64().ok()?),
        })
    }
}

impl RecordHeader {
    /// A header whose checksum covers itself and the payload, bound to the database and the log.
    ///
    /// The place has offset 0: the sectors bind the offset already, the first sequence tells
    /// records of one log apart, and so the sum can be computed before the record has a position.
    pub fn new(place: &Place, kind: RecordKind, first: Sequence, count: u32, parts: Parts) -> Self {
        let payload_bytes = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        let mut header = Self { kind, payload_bytes, first, count, checksum: 0 };
        header.checksum = header.checksum_with(place, parts);
        header
    }

    /// Bytes of the stream that the record takes.
    pub fn stream_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload_bytes as usize
    }

    /// The checksum that the record must have with this payload.
    pub fn checksum_with(&self, place: &Place, parts: Parts) -> u32 {
        let bytes = self.encode();
        let start = checksum(&place.at(0), &bytes[..RECORD_HEADER_BYTES - 4]);
        // The sum over the header takes the offset's place, which chains the two without copying.
        checksum_parts(&place.at(u64::from(start)), parts)
    }

    pub fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// The header that `bytes` hold, or what is wrong with it.
    pub fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Result<Self, &'static str> {
        let kind = RecordKind::from_byte(bytes[0]).ok_or("a record is of no known kind")?;
        let short = |_| "a record header is too short";
        let mut decoder = Decoder::new(&bytes[4..]);
        let header = Self {
            kind,
            payload_bytes: decoder.u32().map_err(short)?,
            first: Sequence(decoder.u64().map_err(short)?),
            count: decoder.u32().map_err(short)?,
            checksum: decoder.u32().map_err(short)?,
        };
        if bytes[1..4] != [0; 3] {
            return Err("reserved bytes of a record are in use");
        }
        if header.payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err("a record is longer than any can be");
        }
        if header.last().is_none() {
            return Err("a record goes beyond the last sequence");
        }
        Ok(header)
    }

    /// The last sequence of the record (the one before its first where it has none).
    pub fn last(&self) -> Option<Sequence> {
        let last = self.first.0.checked_add(u64::from(self.count))?.checked_sub(1)?;
        (last <= Sequence::MAX.0).then_some(Sequence(last))
    }
}

/// A payload in pieces.
pub(crate) type Parts<'a> = &'a [&'a [u8]];

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::DatabaseId;

    const PLACE: Place = Place { database: DatabaseId([3; 16]), file: FileNumber(9), offset: 0 };

    #[test]
    fn page_and_record_headers_survive_their_bytes() {
        let page = PageHeader {
            stream: 3,
            first_record: Some(1234),
            number: FileNumber(9),
            page: 77,
            first_sequence: Sequence(500),
            durable_sequence: Sequence(498),
        };
        assert_eq!(PageHeader::decode(&page.encode()), Some(page));
        let none = PageHeader { first_record: None, ..page };
        assert_eq!(PageHeader::decode(&none.encode()), Some(none));
        assert_eq!(PageHeader::decode(&page.encode()[..39]), None);
        let parts: Parts = &[b"cold", b"water"];
        let record = RecordHeader::new(&PLACE, RecordKind::Data, Sequence(7), 2, parts);
        assert_eq!(RecordHeader::decode(&record.encode()), Ok(record));
        assert_eq!(record.checksum, record.checksum_with(&PLACE, &[b"coldwater"]));
        assert_ne!(record.checksum, record.checksum_with(&PLACE, &[b"coldwateR"]));
    }

    #[test]
    fn record_headers_that_cannot_be_are_refused() {
        let good = RecordHeader::new(&PLACE, RecordKind::Data, Sequence(7), 2, &[]);
        let bad = [
            RecordHeader { payload_bytes: u32::MAX, ..good },
            RecordHeader { first: Sequence::MAX, ..good },
            RecordHeader { first: Sequence(u64::MAX), ..good },
            RecordHeader { first: Sequence(0), count: 0, ..good },
        ];
        for header in bad {
            assert!(RecordHeader::decode(&header.encode()).is_err(), "{header:?}");
        }
        for (index, value) in [(0, 4), (0, 255), (1, 1), (3, 9)] {
            let mut bytes = good.encode();
            bytes[index] = value;
            assert!(RecordHeader::decode(&bytes).is_err(), "byte {index} = {value}");
        }
    }

    #[test]
    fn stream_offsets_step_over_the_checksums() {
        assert_eq!(stream_offset(0), 40);
        assert_eq!(stream_offset(467), 507);
        assert_eq!(stream_offset(468), 512);
        assert_eq!(stream_offset(PAGE_STREAM_BYTES), PAGE_BYTES);
    }
}
