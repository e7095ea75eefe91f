//! Gives the records of a log back after a crash, and tells a torn end from damage.
//!
//! Every sector is one of: *current* (intact, of this log), *not written* (zeros, intact under an
//! earlier number of the recycled file, or beyond the end of the file), or *damaged* (anything
//! else: a device writes a sector whole or not at all, so no crash makes one).
//!
//! Invariants:
//! 1. Records come in the order they were appended, and none comes after the first that is missing.
//! 2. A damaged sector is an error, also behind the end: it may have held the next record.
//! 3. The log may end early only where nothing durable is missing: not after a page that says a
//!    later sequence was durable. What was lost is then an error, not a torn end.
//! 4. What the bytes claim bounds nothing: memory and work are bounded by the length of the file.
//!
//! A replay uses one thread; replays of several logs are independent.

use crate::format::{
    HeaderPage, LogHeader, PAGE, PAGE_HEADER_BYTES, PAGE_STREAM_BYTES, PageHeader, RecordHeader,
    RecordKind, SECTOR_BODY_BYTES, SECTOR_BYTES, sector_matches, stream_offset,
};
use crate::record_assembly::{RecordAssembly, Step};
use crate::remains::{self, RemainsSink};
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Error, ErrorKind, File, PendingRead, Result};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::is_zero;
use thermocline_foundation::mend::mend;
use thermocline_foundation::{Place, Planted, Sequence, planted};

/// Bytes read at a time; twice as many are held.
const CHUNK_BYTES: usize = 1 << 20;

/// Takes a record: its first sequence, how many sequences it has, and its payload.
pub type RecordSink<'a> = dyn FnMut(Sequence, u32, &[u8]) -> Result<()> + 'a;

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// With the mark of [`seal`](crate::LogWriter::seal): it is complete.
    Sealed,
    /// With a whole record and nothing behind it.
    End,
    /// Within writes that no sync had covered, some of which are missing. Nothing behind counts.
    Torn {
        /// Where the whole records end, in bytes from the start of the file.
        offset: u64,
    },
}

/// What a replay found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplaySummary {
    /// What the log says of itself.
    pub header: LogHeader,
    /// How it ends.
    pub end: ReplayEnd,
    /// The last sequence of the last record; the one before the header's first where there is none.
    pub last_sequence: Sequence,
    /// The largest sequence that the log itself says was durable; more may have been.
    pub durable_sequence: Sequence,
    /// Records given out.
    pub records: u64,
    /// Bytes from the start of the file to the end of the last record.
    pub bytes: u64,
}

/// Reads logs.
#[derive(Clone, Copy, Debug)]
pub struct LogReader;

impl LogReader {
    /// Gives every record of the log in `file` to `sink`.
    ///
    /// # Errors
    /// `Corrupt` for damage, which names the file and the offset; records before it have been given
    /// out. `NewerFormat` for a later version. What the file or `sink` report.
    pub fn replay(file: &File, sink: &mut RecordSink<'_>) -> Result<ReplaySummary> {
        Self::run(file, sink, None)
    }

    /// As [`Self::replay`], with single flipped bits of sectors turned back: their checksums say
    /// which, and those of records that it was right. What was mended is added to `mended`.
    ///
    /// # Errors
    /// As [`Self::replay`], for damage that is more than a bit of a sector.
    pub fn replay_mended(
        file: &File,
        sink: &mut RecordSink<'_>,
        mended: &mut Vec<Error>,
    ) -> Result<ReplaySummary> {
        Self::run(file, sink, Some(mended))
    }

    fn run(
        file: &File,
        sink: &mut RecordSink<'_>,
        mut mended: Option<&mut Vec<Error>>,
    ) -> Result<ReplaySummary> {
        let mut page = file.read_up_to(0, PAGE_BYTES)?;
        if let Some(mended) = mended.as_deref_mut() {
            mend_header(file, &mut page, mended);
        }
        let header = HeaderPage::decode(file, file.number(), &page)?;
        let base = header.header.base_sequence();
        let replay = Replay {
            file,
            header,
            sink,
            mended,
            record: RecordAssembly::default(),
            open: true,
            sealed: false,
            skipping: false,
            current_behind: false,
            last: base,
            // The logs before this one say what is before it.
            durable: Sequence::ZERO,
            records: 0,
            end: PAGE,
        };
        replay.run()
    }

    /// Gives every whole record of a damaged log to `sink`, also those behind what is missing,
    /// which no recovery takes: for a caller that says what is lost (`remains.rs`). What the device
    /// does not give is passed over, and its first error given back.
    ///
    /// # Errors
    /// The length of the file cannot be told.
    pub fn remains(file: &File, sink: &mut RemainsSink<'_>) -> Result<Option<Error>> {
        remains::read(file, sink)
    }

    /// The header of the log in `file`.
    ///
    /// # Errors
    /// As [`Self::replay`].
    pub fn header(file: &File) -> Result<LogHeader> {
        let page = file.read_up_to(0, PAGE_BYTES)?;
        HeaderPage::decode(file, file.number(), &page).map(|page| page.header)
    }
}

struct Replay<'a, 'b> {
    file: &'a File,
    header: HeaderPage,
    sink: &'a mut RecordSink<'b>,
    /// Where it is told what was mended; none where nothing is to be.
    mended: Option<&'a mut Vec<Error>>,
    record: RecordAssembly,
    /// Records are still being read; otherwise only what lies behind the end is examined.
    open: bool,
    sealed: bool,
    /// The rest of the page holds nothing.
    skipping: bool,
    /// A sector of this log lies behind the end.
    current_behind: bool,
    last: Sequence,
    durable: Sequence,
    records: u64,
    /// Offset after the last whole record.
    end: u64,
}

impl Replay<'_, '_> {
    fn run(mut self) -> Result<ReplaySummary> {
        let len = self.file.len()?;
        let count_at = |offset: u64| (len - offset).min(CHUNK_BYTES as u64) as usize;
        let mut offset = PAGE;
        // The next chunk is read while the records of this one are given out.
        let mut ahead: Option<PendingRead> = None;
        while offset < len && !self.sealed {
            let read = match ahead.take() {
                Some(ahead) => ahead.wait(),
                None => self.file.read_up_to(offset, count_at(offset)),
            };
            let next = offset + CHUNK_BYTES as u64;
            if next < len {
                ahead = Some(self.file.start_read(next, count_at(next)));
            }
            if planted(Planted::LogReadErrorTakenForEnd) && read.is_err() {
                break;
            }
            let bytes = match read {
                Err(error) if error.kind() == ErrorKind::Io => {
                    self.page_by_page(offset, count_at(offset))?;
                    offset = next;
                    continue;
                }
                read => read?,
            };
            let pages = bytes.chunks(PAGE_BYTES);
            for (page_offset, page) in (offset..).step_by(PAGE_BYTES).zip(pages) {
                self.page(page_offset, page)?;
                if self.sealed {
                    break;
                }
            }
            offset = next;
        }
        if self.durable > self.last {
            let (durable, last) = (self.durable, self.last);
            let why = format!(
                "records up to sequence {durable} were durable, but it breaks off after {last}; \
                 restore from a checkpoint"
            );
            return Err(self.corrupt(self.end, why));
        }
        let torn = self.current_behind || !self.record.is_idle();
        let end = match (self.sealed, torn) {
            (true, _) => ReplayEnd::Sealed,
            (_, true) => ReplayEnd::Torn { offset: self.end },
            _ => ReplayEnd::End,
        };
        Ok(ReplaySummary {
            header: self.header.header,
            end,
            last_sequence: self.last,
            durable_sequence: self.durable,
            records: self.records,
            bytes: self.end,
        })
    }

    fn corrupt(&self, offset: u64, why: impl std::fmt::Display) -> Error {
        Error::corrupt(self.file.describe(), offset, why)
    }

    /// Reads a chunk again that the device did not give at once: its records count up to the page
    /// that it does not give.
    fn page_by_page(&mut self, from: u64, count: usize) -> Result<()> {
        for offset in (from..from + count as u64).step_by(PAGE_BYTES) {
            let page = self.file.read_up_to(offset, PAGE_BYTES)?;
            self.page(offset, &page)?;
            if self.sealed {
                break;
            }
        }
        Ok(())
    }

    fn page(&mut self, offset: u64, page: &[u8]) -> Result<()> {
        self.skipping = false;
        for (index, sector) in page.chunks(SECTOR_BYTES).enumerate() {
            let at = offset + (index * SECTOR_BYTES) as u64;
            let begun = index > 0 && self.open && !self.record.is_idle();
            let lenient = begun && planted(Planted::TornRecordAccepted);
            let mut mended = [0; SECTOR_BYTES];
            let (is_current, sector) = match self.is_current(at, sector) {
                Err(error) => (self.mend(at, sector, error, &mut mended)?, &mended[..]),
                is_current => (is_current?, sector),
            };
            if !(is_current || lenient) {
                self.open = false;
                continue;
            }
            let mut skip = 0;
            if index == 0 {
                self.page_header(at, sector)?;
                skip = PAGE_HEADER_BYTES;
            }
            if self.open {
                self.sector(at, &sector[..SECTOR_BODY_BYTES], skip)?;
            } else {
                self.current_behind = true;
            }
            if self.sealed || self.skipping {
                break;
            }
        }
        Ok(())
    }

    /// The sector was written by this log; false where it was not written.
    fn is_current(&self, offset: u64, sector: &[u8]) -> Result<bool> {
        if sector.len() < SECTOR_BYTES || is_zero(sector) {
            return Ok(false);
        }
        let place = self.file.place(offset);
        if sector_matches(&place, sector) {
            return Ok(true);
        }
        let numbers = &self.header.ancestors;
        if numbers.iter().any(|number| sector_matches(&Place { file: *number, ..place }, sector)) {
            return Ok(planted(Planted::StaleLogPageReplayed));
        }
        if planted(Planted::DamagedMiddleTakenForEnd) {
            return Ok(false);
        }
        let last = self.last;
        let why = format!(
            "a sector's checksum does not match (records up to sequence {last} are whole); restore \
             from a checkpoint"
        );
        Err(self.corrupt(offset, why))
    }

    /// Makes a damaged sector whole in `whole`, if one bit of it was flipped; says whether it was
    /// written by this log, or the error.
    fn mend(
        &mut self,
        offset: u64,
        sector: &[u8],
        error: Error,
        whole: &mut [u8; SECTOR_BYTES],
    ) -> Result<bool> {
        let Some(mended) = self.mended.as_deref_mut() else { return Err(error) };
        let place = self.file.place(offset);
        let bits = sector.iter().map(|byte| byte.count_ones()).sum::<u32>();
        // No sector that was written has a single bit.
        let is_zero = bits == 1;
        whole[..sector.len()].copy_from_slice(sector);
        if is_zero {
            whole.fill(0);
        }
        let is_current = !is_zero && mend_sector(&place, whole);
        let mut stale = self.header.ancestors.iter().map(|number| Place { file: *number, ..place });
        if is_zero || is_current || stale.any(|place| mend_sector(&place, whole)) {
            mended.push(flipped(self.file, offset));
            return Ok(is_current);
        }
        Err(error)
    }

    fn page_header(&mut self, offset: u64, sector: &[u8]) -> Result<()> {
        let header = PageHeader::decode(sector)
            .filter(|header| {
                let own = header.number == self.file.number();
                (own || planted(Planted::StaleLogPageReplayed)) && header.page == offset / PAGE
            })
            .filter(|header| header.stream == self.header.header.stream)
            .ok_or_else(|| self.corrupt(offset, "a page header is not this page's"))?;
        if !planted(Planted::DamagedMiddleTakenForEnd) {
            self.durable = self.durable.max(header.durable_sequence);
        }
        if !self.open {
            return Ok(());
        }
        let expected = match self.record.left() {
            _ if self.record.is_idle() => Some(stream_offset(0)),
            Some(left) if left < PAGE_STREAM_BYTES => Some(stream_offset(left)),
            Some(_) => None,
            // The border cuts the record's header, so its length is not known yet.
            None => return Ok(()),
        };
        if header.first_record.map(usize::from) != expected || header.first_sequence <= self.last {
            return Err(self.corrupt(offset, "a page does not continue the one before"));
        }
        Ok(())
    }

    /// Reads on in the body of a sector of the open log, from `at` in it.
    fn sector(&mut self, offset: u64, body: &[u8], mut at: usize) -> Result<()> {
        let place = self.file.place(0);
        while at < body.len() && self.open {
            let fed = self.record.feed(&place, &body[at..]);
            let (used, step) = fed.map_err(|why| self.corrupt(offset + at as u64, why))?;
            at += used;
            match step {
                Step::More => {}
                Step::Nothing => self.open = false,
                Step::Skip => {
                    self.skipping = true;
                    return Ok(());
                }
                Step::Record(record) => {
                    let full = at == SECTOR_BODY_BYTES;
                    let end = if full { SECTOR_BYTES } else { at };
                    self.record(&record, offset + end as u64)?;
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &RecordHeader, end: u64) -> Result<()> {
        // Nothing but a bug of the writer fails these: the bytes passed two checksums.
        let last = record.last().filter(|last| *last >= self.last && record.first > self.last);
        let Some(last) = last else {
            return Err(self.corrupt(self.end, "sequences of records do not grow"));
        };
        self.end = end;
        if record.kind == RecordKind::End {
            (self.sealed, self.open) = (true, false);
            return Ok(());
        }
        (self.last, self.records) = (last, self.records + 1);
        (self.sink)(record.first, record.count, self.record.payload())
    }
}

/// What is said of a bit that was turned back.
fn flipped(file: &File, offset: u64) -> Error {
    let why = "a bit of this sector had flipped; it was turned back, and nothing is lost";
    Error::corrupt(file.describe(), offset, why)
}

/// Makes a sector of a place whole of which one bit was flipped; false for any other.
pub(crate) fn mend_sector(place: &Place, sector: &mut [u8]) -> bool {
    let Some((body, sum)) = sector.split_last_chunk_mut::<4>() else { return false };
    let is_whole = mend(place, body, u32::from_le_bytes(*sum));
    if is_whole {
        *sum = checksum(place, body).to_le_bytes();
    }
    is_whole
}

/// Mends the sectors of a header page that are damaged.
fn mend_header(file: &File, page: &mut [u8], mended: &mut Vec<Error>) {
    for (index, sector) in page.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        let offset = (index * SECTOR_BYTES) as u64;
        let place = file.place(offset);
        if !sector_matches(&place, sector) && mend_sector(&place, sector) {
            mended.push(flipped(file, offset));
        }
    }
}
