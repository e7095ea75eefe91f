//! A log that many groups of records write at once (SpanDB, section 4.2: parallel logging).
//!
//! ```text
//!   claim    one thread at a time, no I/O: the group's own pages, in the order of sequences
//!   write    many at once: lay out, checksum, write
//!
//!   pages    | g1 .... g1 | g1 3 | g2 3    | g3 .... | g3 3 |     3: go on in the next page
//!                                | g2 g4 3 |     g4 continues a page, if it is the last
//!                                                and nothing flies there
//! ```
//! A lone writer fills pages as [`LogWriter`](crate::LogWriter) does. Groups that fly side by side
//! leave the ends of their pages empty: the padding.
//!
//! Invariants:
//! 1. No two writes that fly at once share a page.
//! 2. A claim's last page, unless it is full, ends with record kind 3.
//! 3. A claim that continues a page ends in it. So a cut leaves each sector of the page as it was,
//!    or with more records behind the old ones: what was whole stays whole.
//! 4. A group is laid out and written by the thread that claimed it; the log holds no lock then.
//! 5. The first failed write or sync is final, as it is for the writer with one thread. Groups that
//!    fly then are each as durable as they say.
//! 6. At most half of the pages' room is padding, where a group can wait for the one before it.
//!
//! A crash may leave a later group and not an earlier one. Sequences tell: the one that replay
//! expects is missing, and nothing behind it counts. So a group is acknowledged only after all
//! before it are.
//!
//! Threads: `claim` by one thread at a time, in sequence order; `write` by any number; `seal` after
//! the last `write`.

use crate::format::{
    LogHeader, PAGE, PAGE_STREAM_BYTES, PAYLOAD_BYTES_MAX, PageHeader, RECORD_HEADER_BYTES,
    RecordHeader, RecordKind,
};
use crate::page_buffer::PageBuffer;
use crate::writer::{
    Durability, LogPosition, LogSettings, MayGrow, begin, bytes_of_records, reserve, with_records,
};
use std::sync::Arc;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Buffer, Error, ErrorKind, File, Result};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::catch_panic;
use thermocline_foundation::{Planted, Sequence, planted, sync_site};

/// Bytes laid out and written at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// A record to be written: sequences `first .. first + count`.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its first sequence.
    pub first: Sequence,
    /// How many sequences it has.
    pub count: u32,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Pages that belong to one group of records, until [`ClaimLog::write`] has written them.
#[derive(Debug)]
#[must_use = "the log waits for every claim to be written"]
pub struct Claim {
    /// Offset of the first page.
    start: u64,
    /// Offset after the last one.
    stop: u64,
    /// The page at `start` as it is, where the claim continues it.
    tail: Option<Tail>,
    /// All up to here was durable when the pages were claimed.
    durable: Sequence,
    /// Bytes of the stream that the page before it leaves empty for good.
    padding: u32,
    /// It waited for a group before it, so that less of the log is padding.
    waited: bool,
}

impl Claim {
    /// Bytes of the log that are padding because of it.
    pub fn padding_bytes(&self) -> u64 {
        u64::from(self.padding)
    }

    /// It waited for a group before it, so that less of the log is padding.
    pub fn waited(&self) -> bool {
        self.waited
    }
}

/// A page that is written and has room.
#[derive(Debug)]
struct Tail {
    page: Buffer,
    /// Offset in the file after its last record.
    end: u64,
    /// Bytes of the stream that it still takes.
    room: usize,
}

/// The log. See the module's header.
#[derive(Debug)]
pub struct ClaimLog {
    file: Arc<File>,
    header: LogHeader,
    growth_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Length up to which space is reserved.
    allocated: Mutex<u64>,
    /// Buffered writes that have ended.
    buffered: AtomicU64,
    /// As many of them are covered by a sync. Held while one is under way.
    synced: Mutex<u64>,
}

#[derive(Debug)]
struct State {
    /// Offset after the last page that is claimed.
    end: u64,
    /// The last page, where no write to it flies and it has room.
    tail: Option<Tail>,
    /// Bytes of the stream that the last page has left, in flight or not.
    open: usize,
    /// Bytes of the stream that pages before the last have left.
    padding: u64,
    flying: usize,
    waiting: usize,
    first: Option<Sequence>,
    last: Sequence,
    sealed: bool,
    failed: Option<Error>,
    /// Offset of the first page that is known to have failed.
    failed_from: u64,
}

impl ClaimLog {
    /// Starts a log in `file`; see [`LogWriter::create`](crate::LogWriter::create).
    ///
    /// # Errors
    /// What the file reports; the file is then no log yet and can be used again for another try.
    pub fn create(file: Arc<File>, header: LogHeader, settings: LogSettings) -> Result<Self> {
        let header = begin(&file, header, settings)?;
        let state = State {
            end: PAGE,
            tail: None,
            open: 0,
            padding: 0,
            flying: 0,
            waiting: 0,
            first: None,
            last: header.base_sequence(),
            sealed: false,
            failed: None,
            failed_from: u64::MAX,
        };
        let growth_bytes = settings.growth_bytes.max(CHUNK_BYTES);
        let allocated = Mutex::new(file.len()?);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (buffered, synced) = (AtomicU64::new(0), Mutex::new(0));
        Ok(Self { file, header, growth_bytes, state, changed, allocated, buffered, synced })
    }

    /// Gives the group `records` its pages. All records up to `durable` are durable. Waits for the
    /// group before where padding would be more than half; that needs no call of this thread.
    ///
    /// # Errors
    /// `Invalid` for a payload over [`PAYLOAD_BYTES_MAX`], no record, sequences that do not grow,
    /// or a sealed log: nothing was claimed. Otherwise the error that stopped the log.
    pub fn claim(&self, records: &[Record<'_>], durable: Sequence) -> Result<Claim> {
        let mut state = self.state.lock();
        let last = self.last_of(&state, records)?;
        let stream: usize = records.iter().map(Record::stream_bytes).sum();
        let mut waited = false;
        loop {
            state.check_failed()?;
            let continues = state.tail.as_ref().is_some_and(|tail| tail.takes(stream));
            if continues || state.flying == 0 || !state.is_padded_with(stream) {
                break;
            }
            waited = true;
            state.waiting += 1;
            self.changed.wait(&mut state);
            state.waiting -= 1;
        }
        let first = *state.first.get_or_insert(records[0].first);
        state.last = last;
        state.flying += 1;
        // Of a log before this one, the log before says it.
        let durable = if durable >= first { durable } else { Sequence::ZERO };
        Ok(Claim { waited, ..state.claim(stream, durable) })
    }

    /// The last sequence of `records`, if they can follow.
    fn last_of(&self, state: &State, records: &[Record<'_>]) -> Result<Sequence> {
        let mut last = state.last;
        for record in records {
            let bytes = record.payload.len();
            if bytes > PAYLOAD_BYTES_MAX {
                return Err(self.invalid(format!("a record has {bytes} bytes; split it")));
            }
            let end = record.first.0.saturating_add(u64::from(record.count));
            if record.first <= last || record.count == 0 || end > Sequence::MAX.0 + 1 {
                let (first, count) = (record.first, record.count);
                return Err(self.invalid(format!("no sequences {first} + {count} after {last}")));
            }
            last = Sequence(end - 1);
        }
        match (state.sealed, records.is_empty()) {
            (true, _) => Err(self.invalid("it is sealed")),
            (_, true) => Err(self.invalid("no record")),
            _ => Ok(last),
        }
    }

    /// Writes the records that `claim` is for. The group is as durable as asked when this returns,
    /// whatever becomes of others.
    ///
    /// # Errors
    /// Why this group or one before it was not written, or a sync failed, which stops the log; the
    /// records may or may not be found after a restart. That a group behind this one failed is no
    /// error of this one.
    pub fn write(
        &self,
        claim: Claim,
        records: &[Record<'_>],
        durability: Durability,
    ) -> Result<LogPosition> {
        let (start, stop) = (claim.start, claim.stop);
        let written = catch_panic(|| self.write_pages(claim, records, durability));
        if durability == Durability::Buffered {
            self.buffered.fetch_add(1, Ordering::AcqRel);
        }
        let mut state = self.state.lock();
        state.flying -= 1;
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        match written {
            Ok(Ok(tail)) => {
                // A failure behind this group takes nothing from it.
                if start >= state.failed_from {
                    state.check_failed()?;
                }
                if stop == state.end {
                    state.tail = tail;
                }
                Ok(LogPosition::at(stop))
            }
            Ok(Err(error)) => Err(state.fail(error, start)),
            // Others wait for this group: the panic ends the log before it goes on.
            Err(panic) => {
                let text = format!("writing to {} panicked: {panic}", self.file.describe());
                state.fail(Error::new(ErrorKind::Io, text), start);
                drop(state);
                panic.resume()
            }
        }
    }

    /// Lays the records out and writes them; the last page, where it has room.
    fn write_pages(
        &self,
        claim: Claim,
        records: &[Record<'_>],
        durability: Durability,
    ) -> Result<Option<Tail>> {
        self.reserve(claim.stop, &|_| Ok(()))?;
        let bytes = (claim.stop - claim.start).min(CHUNK_BYTES) as usize;
        let alignment = self.file.alignment();
        let mut pages = match claim.tail {
            Some(tail) => PageBuffer::resume(tail.page, claim.start, tail.end, alignment),
            None => PageBuffer::new(bytes, claim.start, alignment),
        };
        let place = self.file.place(0);
        for record in records {
            let Record { first, count, payload } = *record;
            let parts = [payload];
            let header = RecordHeader::new(&place, RecordKind::Data, first, count, &parts);
            let encoded = header.encode();
            let mut left = record.stream_bytes();
            for mut rest in [&encoded[..], payload] {
                while !rest.is_empty() {
                    if pages.at_page_start() {
                        if pages.is_full() {
                            self.write_out(&mut pages, durability)?;
                        }
                        pages.begin_page(&self.page_header(&header, left, &pages, claim.durable));
                    }
                    let put = pages.put(rest);
                    left -= put;
                    rest = &rest[put..];
                }
            }
        }
        let tail = Tail::of(&pages);
        if !pages.at_page_start() && !planted(Planted::SkipMarkMissing) {
            pages.put(&[RecordKind::Skip as u8]);
        }
        self.write_out(&mut pages, durability)?;
        Ok(tail)
    }

    fn write_out(&self, pages: &mut PageBuffer, durability: Durability) -> Result<()> {
        let mut batch = pages.take_rest();
        batch.seal(&self.file.place(0));
        let (start, buffer) = (batch.start, batch.buffer);
        let (mut buffer, written) = match durability {
            Durability::Sync => self.file.write_durably(start, buffer),
            Durability::Buffered => self.file.write(start, buffer),
        };
        written?;
        let capacity = buffer.capacity();
        buffer.set_view(0..capacity);
        pages.reuse(buffer);
        Ok(())
    }

    /// The header of the page at the end of `pages`, begun with `left` bytes of `record` to come.
    fn page_header(
        &self,
        record: &RecordHeader,
        left: usize,
        pages: &PageBuffer,
        durable_sequence: Sequence,
    ) -> PageHeader {
        let place = (self.file.number(), pages.end() / PAGE);
        let header = PageHeader::within(record, left, place, self.header.stream);
        PageHeader { durable_sequence, ..header }
    }

    /// Reserves space up to `stop` at least.
    fn reserve(&self, stop: u64, may_grow: MayGrow<'_>) -> Result<()> {
        let mut allocated = self.allocated.lock();
        if stop > *allocated {
            let wanted = (*allocated + self.growth_bytes).max(stop).next_multiple_of(PAGE);
            *allocated = reserve(&self.file, wanted, stop, may_grow)?;
        }
        Ok(())
    }

    /// See [`LogWriter::ask_for_room`](crate::LogWriter::ask_for_room). The claiming thread asks.
    ///
    /// # Errors
    /// `OutOfSpace` where there is none: the log is as it was.
    pub fn ask_for_room(
        &self,
        records: u64,
        payload_bytes: u64,
        may_grow: MayGrow<'_>,
    ) -> Result<()> {
        let end = {
            let state = self.state.lock();
            state.check_failed()?;
            state.end
        };
        self.reserve(end + bytes_of_records(records, payload_bytes), may_grow)
    }

    /// Makes every write that has ended durable.
    ///
    /// # Errors
    /// The error that stopped the log.
    pub fn sync(&self) -> Result<()> {
        let mut synced = self.synced.lock();
        // Looked at with the lock: the sync that this thread has waited for may have failed.
        self.state.lock().check_failed()?;
        let buffered = self.buffered.load(Ordering::Acquire);
        if *synced < buffered {
            let result = self.file.sync();
            result.map_err(|error| self.state.lock().fail(error, 0))?;
            *synced = buffered;
        }
        Ok(())
    }

    /// Makes everything durable, then marks the end and makes that durable: a reader of a sealed
    /// log accepts no missing record. Later claims are errors; sealing again does nothing.
    ///
    /// # Errors
    /// The error that stopped the log.
    pub fn seal(&self) -> Result<()> {
        sync_site("records", || self.sync())?;
        let (start, last, durable) = {
            let mut state = self.state.lock();
            debug_assert_eq!(state.flying, 0, "a log is sealed after its last write");
            if std::mem::replace(&mut state.sealed, true) {
                return state.check_failed();
            }
            state.end += PAGE;
            let durable = if state.first.is_some() { state.last } else { Sequence::ZERO };
            (state.end - PAGE, state.last, durable)
        };
        self.reserve(start + PAGE, &|_| Ok(()))?;
        let mut page = PageBuffer::new(PAGE_BYTES, start, self.file.alignment());
        let next = Sequence(last.0 + 1);
        let mark = RecordHeader::new(&self.file.place(0), RecordKind::End, next, 0, &[]);
        page.begin_page(&self.page_header(&mark, mark.stream_bytes(), &page, durable));
        page.put(&mark.encode());
        let written = sync_site("end-mark", || self.write_out(&mut page, Durability::Sync));
        written.map_err(|error| self.state.lock().fail(error, start))
    }

    /// Bytes from the start of the file to the end of what is claimed.
    pub fn bytes(&self) -> u64 {
        self.state.lock().end
    }

    /// So much of the log is padding that the next groups wait for those before them, and had
    /// better be larger.
    pub fn is_padded(&self) -> bool {
        self.state.lock().is_padded_with(0)
    }

    /// Bytes that pages have left empty, besides the last.
    pub fn padding_bytes(&self) -> u64 {
        self.state.lock().padding
    }

    /// The header that the log was created with; without `previous` where old content was cut off.
    pub fn header(&self) -> LogHeader {
        self.header
    }

    /// The file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    fn invalid(&self, why: impl std::fmt::Display) -> Error {
        let text = format!("cannot append to {}: {why}", self.file.describe());
        Error::new(ErrorKind::Invalid, text)
    }
}

impl Record<'_> {
    /// Bytes of the stream that it takes.
    fn stream_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.payload.len()
    }
}

impl State {
    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The log stops with `error`, which pages from `start` on met; gives what stopped it first.
    fn fail(&mut self, error: Error, start: u64) -> Error {
        self.failed_from = self.failed_from.min(start);
        self.failed.get_or_insert_with(|| with_records(error)).clone()
    }

    /// A group of `stream` bytes on pages of its own would leave more than half of the log empty.
    fn is_padded_with(&self, stream: usize) -> bool {
        let pages = stream.div_ceil(PAGE_STREAM_BYTES) as u64;
        let end = self.end + pages * PAGE;
        2 * (self.padding + self.open as u64) > end
    }

    fn claim(&mut self, stream: usize, durable: Sequence) -> Claim {
        if let Some(tail) = self.tail.take_if(|tail| tail.takes(stream)) {
            let start = self.end - PAGE;
            let beyond = stream.saturating_sub(tail.room).div_ceil(PAGE_STREAM_BYTES);
            self.open = tail.room + beyond * PAGE_STREAM_BYTES - stream;
            self.end += beyond as u64 * PAGE;
            let tail = Some(tail);
            return Claim { start, stop: self.end, tail, durable, padding: 0, waited: false };
        }
        self.tail = None;
        // Less than a page.
        let padding = self.open as u32;
        self.padding += u64::from(padding);
        let pages = stream.div_ceil(PAGE_STREAM_BYTES);
        self.open = pages * PAGE_STREAM_BYTES - stream;
        let start = self.end;
        self.end += pages as u64 * PAGE;
        Claim { start, stop: self.end, tail: None, durable, padding, waited: false }
    }
}

impl Tail {
    /// A group of `stream` bytes continues the page: all of it fits.
    fn takes(&self, stream: usize) -> bool {
        stream <= self.room || planted(Planted::TailLeavesItsPage)
    }

    /// The last page of what was laid out, before its mark.
    fn of(pages: &PageBuffer) -> Option<Self> {
        if pages.at_page_start() {
            return None;
        }
        let (page, end) = (pages.last_page(), pages.end());
        Some(Self { page, end, room: pages.page_room() })
    }
}
