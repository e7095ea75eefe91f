//! What can still be read of a log that is damaged: every whole record, also behind what is
//! missing.
//!
//! Recovery never takes these: a later record may depend on one that is missing
//! ([`crate::LogReader`], invariant 1). A repair says by them which keys are lost. A page says
//! where its first record begins, so reading finds its way again at the next intact page:
//!
//! ```text
//!   page  | a | b ... b | c |   damaged   |  ?...? | e |       | not read: what touches the damage
//!   given   a   b         c                         e            (d ends in the page of e)
//! ```
//! Memory and work are bounded by the length of the file, whatever its bytes say. One thread.

use crate::format::{
    PAGE, PAGE_HEADER_BYTES, PageHeader, RecordKind, SECTOR_BODY_BYTES, SECTOR_BYTES,
    sector_matches, stream_offset,
};
use crate::reader::mend_sector;
use crate::record_assembly::{RecordAssembly, Step};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Error, File, Result};
use thermocline_foundation::Sequence;

/// Pages read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Takes a record: its first sequence and its payload.
pub type RemainsSink<'a> = dyn FnMut(Sequence, &[u8]) + 'a;

/// Gives every whole record of the log in `file` to `sink`, in ascending order. What is damaged, or
/// the device does not give, is passed over; the device's first error is given back.
///
/// # Errors
/// The length of the file cannot be told.
pub(crate) fn read(file: &File, sink: &mut RemainsSink<'_>) -> Result<Option<Error>> {
    let len = file.len()?;
    let mut remains = Remains { file, sink, record: None, last: Sequence::ZERO };
    let (mut offset, mut not_given) = (PAGE, None);
    while offset < len {
        let count = (len - offset).min(CHUNK_BYTES as u64) as usize;
        let chunk = file.read_up_to(offset, count);
        for page in (offset..offset + count as u64).step_by(PAGE_BYTES) {
            let goes_on = match &chunk {
                Ok(bytes) => {
                    let at = (page - offset) as usize;
                    let end = (at + PAGE_BYTES).min(bytes.len());
                    remains.page(page, bytes.get(at..end).unwrap_or_default())
                }
                Err(_) => match file.read_up_to(page, PAGE_BYTES) {
                    Ok(bytes) => remains.page(page, &bytes),
                    Err(error) => {
                        not_given.get_or_insert(error);
                        remains.page(page, &[])
                    }
                },
            };
            if !goes_on {
                return Ok(not_given);
            }
        }
        offset += CHUNK_BYTES as u64;
    }
    Ok(not_given)
}

struct Remains<'a, 'b> {
    file: &'a File,
    sink: &'a mut RemainsSink<'b>,
    /// The record being put together; none where it is not known at which byte of the stream
    /// reading is.
    record: Option<RecordAssembly>,
    last: Sequence,
}

/// How a sector ends.
enum End {
    /// The next one goes on.
    Sector,
    /// The rest of the page has nothing.
    Page,
    /// Of the log.
    Log,
}

impl Remains<'_, '_> {
    /// Reads on in a page; false at the end of the log.
    fn page(&mut self, offset: u64, page: &[u8]) -> bool {
        let mut at = PAGE_HEADER_BYTES;
        for (index, sector) in page.chunks(SECTOR_BYTES).enumerate() {
            let start = index * SECTOR_BYTES;
            let Some(sector) = self.whole(offset + start as u64, sector) else {
                // Only the next page says again where a record begins.
                self.record = None;
                break;
            };
            if index == 0 {
                match self.begin_page(offset, &sector) {
                    Some(first) => at = first,
                    None => break,
                }
            }
            if at >= start + SECTOR_BYTES {
                continue;
            }
            match self.sector(&sector[at - start..SECTOR_BODY_BYTES]) {
                Some(End::Sector) => at = start + SECTOR_BYTES,
                Some(End::Page) => break,
                Some(End::Log) => return false,
                None => {
                    self.record = None;
                    break;
                }
            }
        }
        if page.len() < PAGE_BYTES {
            self.record = None;
        }
        true
    }

    /// The sector at `offset`, intact; a flipped bit is turned back.
    fn whole(&self, offset: u64, sector: &[u8]) -> Option<[u8; SECTOR_BYTES]> {
        let mut whole: [u8; SECTOR_BYTES] = sector.try_into().ok()?;
        let place = self.file.place(offset);
        (sector_matches(&place, &whole) || mend_sector(&place, &mut whole)).then_some(whole)
    }

    /// Where reading goes on in the page that begins with `sector`; none where that is not known.
    fn begin_page(&mut self, offset: u64, sector: &[u8]) -> Option<usize> {
        let header = PageHeader::decode(sector);
        let own = |header: &PageHeader| {
            header.number == self.file.number() && header.page == offset / PAGE
        };
        let header = header.filter(own);
        let first = header.and_then(|header| header.first_record).map(usize::from);
        let goes_on = self.record.as_ref().is_some_and(|record| match record.left() {
            _ if record.is_idle() => first == Some(stream_offset(0)),
            Some(left) if first.is_some() => first == Some(stream_offset(left)),
            _ => true,
        });
        if header.is_some() && goes_on {
            return Some(PAGE_HEADER_BYTES);
        }
        self.record = first.map(|_| RecordAssembly::default());
        first
    }

    /// Reads on in the body of a sector; none where its bytes are no records.
    fn sector(&mut self, mut body: &[u8]) -> Option<End> {
        let place = self.file.place(0);
        while !body.is_empty() {
            let record = self.record.as_mut()?;
            let (used, step) = record.feed(&place, body).ok()?;
            body = &body[used..];
            match step {
                Step::More => {}
                Step::Nothing | Step::Skip => return Some(End::Page),
                Step::Record(header) if header.kind == RecordKind::End => return Some(End::Log),
                Step::Record(header) => {
                    let last = header.last().filter(|_| header.first > self.last)?;
                    self.last = last;
                    (self.sink)(header.first, record.payload());
                }
            }
        }
        Some(End::Sector)
    }
}
