//! Appends records and makes them durable for many threads at once.
//!
//! Two roles exist, each held by at most one thread at a time. A thread that needs a role's work
//! takes the role: the *writing* thread takes all that was appended and writes it; the *syncing*
//! thread syncs all that was written. Neither holds the lock while it waits for the device, so
//! records are appended during a write and written during a sync (SpanDB, sections 2.3 and 4.2:
//! grouping and pipelining).
//!
//! Invariants:
//! 1. Writes happen one after the other at growing offsets; only the last sector (page, for direct
//!    I/O) of one write is written again by the next, with the same bytes in front.
//! 2. Whenever the lock is free, the appended bytes end with a record or with a full page. So a
//!    sector that is not full ends with a record.
//! 3. `synced <= written <= end`. A sync covers what was written before it started.
//! 4. The first failed write or sync is final: what the device then holds is unknown, so every
//!    later call returns that error, and no sync is tried again.
//! 5. A page header claims as durable only what a completed sync covered before the page was begun.
//! 6. Room is asked of the device before a record is appended ([`LogWriter::ask_for_room`]), and
//!    with it that of the end mark. So a device without room refuses a record that is nowhere yet.
//!
//! Threads: `append` by one thread at a time, in sequence order (the caller's write lock sees to
//! it); `commit` by any number; `seal` after the last `append`. A lone thread waits for no other
//! and wakes no other.

use crate::format::{
    ANCESTORS_MAX, HeaderPage, LogHeader, PAGE, PAGE_STREAM_BYTES, PAYLOAD_BYTES_MAX, PageHeader,
    RECORD_HEADER_BYTES, RecordHeader, RecordKind,
};
use crate::page_buffer::{Batch, PageBuffer};
use std::sync::Arc;
use thermocline_device::buffer::PAGE_BYTES;
use thermocline_device::{Buffer, Error, ErrorKind, File, Result};
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::threads::{Panic, catch_panic};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};

/// What a committed record survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Loss of power: the device was told to keep it.
    Sync,
    /// The end of the process: the record was handed to the driver.
    Buffered,
}

/// How a log uses memory and space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes reserved when the log is created, so that a write does not change the file's metadata.
    /// Default 64 MiB; 0 reserves nothing but the header and the end.
    pub segment_bytes: u64,
    /// Bytes reserved at a time once the log is longer than that. Default 16 MiB.
    pub growth_bytes: u64,
    /// Bytes of each of the two buffers, rounded up to pages; a longer backlog is written at once.
    /// Default 512 KiB.
    pub buffer_bytes: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, growth_bytes: 16 << 20, buffer_bytes: 512 << 10 }
    }
}

/// What the end of a log takes at most: the page of its last record, and that of its end mark.
pub(crate) const END_BYTES: u64 = 3 * PAGE;

/// The length of a log that has so many records with payloads of so many bytes in all, and its end.
pub fn bytes_of_log(records: u64, payload_bytes: u64) -> u64 {
    PAGE + bytes_of_records(records, payload_bytes)
}

/// What records take at most behind a page that is full, with the end of the log.
pub(crate) fn bytes_of_records(records: u64, payload_bytes: u64) -> u64 {
    let stream_bytes = payload_bytes + records * RECORD_HEADER_BYTES as u64;
    let pages = 1 + stream_bytes.div_ceil(PAGE_STREAM_BYTES as u64);
    pages * PAGE + END_BYTES
}

/// Says whether a log may become so many bytes long: `OutOfSpace` where it may not.
pub type MayGrow<'a> = &'a dyn Fn(u64) -> Result<()>;

/// The end of an appended record, to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition(u64);

impl LogPosition {
    pub(crate) fn at(offset: u64) -> Self {
        Self(offset)
    }

    /// Bytes from the start of the file.
    pub fn offset(self) -> u64 {
        self.0
    }
}

/// The writer of one log file.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<File>,
    header: LogHeader,
    growth_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    pages: PageBuffer,
    spare: Option<Buffer>,
    /// The last sequence appended, written and synced as part of a complete record.
    last: Sequence,
    written_sequence: Sequence,
    synced_sequence: Sequence,
    /// Offsets up to which the file was written and synced.
    written: u64,
    synced: u64,
    /// Length up to which space is reserved.
    allocated: u64,
    writing: bool,
    syncing: bool,
    /// An append waits for room in the middle of its record.
    in_record: bool,
    sealed: bool,
    waiting: usize,
    failed: Option<Error>,
}

impl LogWriter {
    /// Starts a log in `file`: reserves space, then writes and syncs the header page. A file that
    /// was a log before (`header.previous`) keeps its bytes, which the reader tells from new ones;
    /// any other content is cut off.
    ///
    /// # Errors
    /// What the file reports; the file is then no log yet and can be used again for another try.
    pub fn create(file: Arc<File>, header: LogHeader, settings: LogSettings) -> Result<Self> {
        let header = begin(&file, header, settings)?;
        let capacity = settings.buffer_bytes.max(PAGE_BYTES).next_multiple_of(PAGE_BYTES);
        let base = header.base_sequence();
        let state = State {
            pages: PageBuffer::new(capacity, PAGE, file.alignment()),
            spare: None,
            last: base,
            written_sequence: base,
            // The logs before this one say what is before it.
            synced_sequence: Sequence::ZERO,
            written: PAGE,
            synced: PAGE,
            allocated: file.len()?,
            writing: false,
            syncing: false,
            in_record: false,
            sealed: false,
            waiting: 0,
            failed: None,
        };
        let growth_bytes = settings.growth_bytes.max(capacity as u64);
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Ok(Self { file, header, growth_bytes, state, changed })
    }

    /// Has the device keep room for so many records with payloads of so many bytes in all, and for
    /// the end of the log, where the log `may_grow` as it must. The appending thread asks.
    ///
    /// # Errors
    /// `OutOfSpace` where there is none: the log is as it was.
    pub fn ask_for_room(
        &self,
        records: u64,
        payload_bytes: u64,
        may_grow: MayGrow<'_>,
    ) -> Result<()> {
        let (end, allocated) = {
            let state = self.state.lock();
            state.check_failed()?;
            (state.pages.end(), state.allocated)
        };
        let least = end.next_multiple_of(PAGE) + bytes_of_records(records, payload_bytes);
        if least <= allocated {
            return Ok(());
        }
        let wanted = self.reserve_for(least, allocated);
        let reserved = reserve(&self.file, wanted, least, may_grow)?;
        let mut state = self.state.lock();
        state.allocated = state.allocated.max(reserved);
        Ok(())
    }

    /// Appends a record of sequences `first .. first + count` and returns what to commit. The
    /// payload is copied; nothing is written unless the buffer is full.
    ///
    /// # Errors
    /// `Invalid` for a payload over [`PAYLOAD_BYTES_MAX`], no sequence, a sequence not above the
    /// last one's, or a sealed log: nothing was appended. Otherwise the error that stopped the log.
    pub fn append(&self, first: Sequence, count: u32, payload: &[u8]) -> Result<LogPosition> {
        self.append_parts(first, count, &[payload])
    }

    /// As [`Self::append`], for a payload in pieces.
    pub fn append_parts(
        &self,
        first: Sequence,
        count: u32,
        parts: &[&[u8]],
    ) -> Result<LogPosition> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(self.invalid(format!("a record has {bytes} bytes; split it")));
        }
        // Before the lock: the checksum is the larger part of the work.
        let place = self.file.place(0);
        let header = RecordHeader::new(&place, RecordKind::Data, first, count, parts);
        let Some(last) = header.last().filter(|_| count > 0) else {
            return Err(self.invalid(format!("no sequences {first} + {count}")));
        };
        let mut state = self.state.lock();
        state.check_failed()?;
        if state.sealed || state.in_record || first <= state.last {
            let why = match (state.sealed, state.in_record) {
                (true, _) => "it is sealed".to_owned(),
                (_, true) => "another append is under way".to_owned(),
                _ => format!("sequence {first} comes after {}", state.last),
            };
            return Err(self.invalid(why));
        }
        self.put_record(&mut state, &header, parts)?;
        state.last = last;
        Ok(LogPosition(state.pages.end()))
    }

    /// Waits until everything up to `position` has the durability asked for, doing the work where
    /// no other thread is at it.
    ///
    /// # Errors
    /// The error that stopped the log; the record may or may not be found after a restart.
    pub fn commit(&self, position: LogPosition, durability: Durability) -> Result<()> {
        let sync = durability == Durability::Sync;
        let mut state = self.state.lock();
        debug_assert!(position.0 <= state.pages.end(), "a position of another log");
        loop {
            state.check_failed()?;
            if state.synced >= position.0 || (!sync && state.written >= position.0) {
                return Ok(());
            }
            let unwritten = state.written < position.0;
            // A commit with a sync lets records gather while another sync is under way: one write
            // then serves them all.
            if state.syncing && sync || unwritten && state.writing {
                self.wait(&mut state);
            } else if unwritten {
                self.write_out(&mut state);
            } else {
                self.sync_out(&mut state);
            }
        }
    }

    /// Makes everything durable, then marks the end and makes that durable: a reader of a sealed
    /// log accepts no missing record. Later appends are errors; sealing again does nothing.
    ///
    /// # Errors
    /// The error that stopped the log.
    pub fn seal(&self) -> Result<()> {
        let end = LogPosition(self.state.lock().pages.end());
        sync_site("records", || self.commit(end, Durability::Sync))?;
        let mut state = self.state.lock();
        state.check_failed()?;
        if !state.sealed {
            state.sealed = true;
            // The mark goes to a page of its own, whose header says how far the log is durable.
            if !state.pages.at_page_start() {
                state.pages.put(&[RecordKind::Skip as u8]);
                state.pages.skip_page();
            }
            let next = Sequence(state.last.0 + 1);
            let place = self.file.place(0);
            let mark = RecordHeader::new(&place, RecordKind::End, next, 0, &[]);
            self.put_record(&mut state, &mark, &[])?;
        }
        let end = LogPosition(state.pages.end());
        drop(state);
        sync_site("end-mark", || self.commit(end, Durability::Sync))
    }

    /// Everything up to here survives loss of power.
    pub fn durable_sequence(&self) -> Sequence {
        self.state.lock().synced_sequence
    }

    /// Everything up to here survives the end of the process.
    pub fn written_sequence(&self) -> Sequence {
        self.state.lock().written_sequence
    }

    /// Bytes from the start of the file to the end of what was appended.
    pub fn bytes(&self) -> u64 {
        self.state.lock().pages.end()
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

    /// Lays out a record, writing full buffers as it goes.
    fn put_record(
        &self,
        state: &mut MutexGuard<'_, State>,
        header: &RecordHeader,
        parts: &[&[u8]],
    ) -> Result<()> {
        let encoded = header.encode();
        let mut left = header.stream_bytes();
        for part in std::iter::once(&encoded[..]).chain(parts.iter().copied()) {
            let mut rest = part;
            while !rest.is_empty() {
                if state.pages.at_page_start() {
                    self.make_room(state)?;
                    let page = self.page_header(state, header, left);
                    state.pages.begin_page(&page);
                }
                let count = state.pages.put(rest);
                left -= count;
                rest = &rest[count..];
            }
        }
        Ok(())
    }

    /// The header of the page at the end, begun with `left` bytes of a record to come.
    fn page_header(&self, state: &State, record: &RecordHeader, left: usize) -> PageHeader {
        let place = (self.file.number(), state.pages.end() / PAGE);
        let header = PageHeader::within(record, left, place, self.header.stream);
        PageHeader { durable_sequence: state.synced_sequence, ..header }
    }

    /// Writes the buffer out if it is full. Called at the end of a page only.
    fn make_room(&self, state: &mut MutexGuard<'_, State>) -> Result<()> {
        state.in_record = true;
        while state.pages.is_full() && state.failed.is_none() {
            if state.writing {
                self.wait(state);
            } else {
                self.write_out(state);
            }
        }
        state.in_record = false;
        state.check_failed()
    }

    /// As the writing thread: writes all that was appended.
    fn write_out(&self, state: &mut MutexGuard<'_, State>) {
        debug_assert!(!state.writing && state.failed.is_none());
        state.writing = true;
        let (spare, sequence) = (state.spare.take(), state.last);
        let batch = state.pages.take(spare);
        let (end, stop, allocated) = (batch.end, batch.stop, state.allocated);
        let outcome =
            MutexGuard::unlocked(state, || catch_panic(|| self.write_batch(batch, allocated)));
        state.writing = false;
        match self.outcome_of(state, outcome) {
            Ok(buffer) => {
                state.spare = Some(buffer);
                state.written = end;
                state.written_sequence = sequence;
                state.allocated = state.allocated.max(self.reserve_for(stop, allocated));
            }
            Err(error) => state.fail(error),
        }
        self.wake(state);
    }

    /// What I/O came to. A panic in it ends the log before the panic goes on, or waiting threads
    /// would wait for ever.
    fn outcome_of<T>(&self, state: &mut State, outcome: Result<Result<T>, Panic>) -> Result<T> {
        outcome.unwrap_or_else(|panic| {
            let text = format!("writing to {} panicked: {panic}", self.file.describe());
            state.fail(Error::new(ErrorKind::Io, text));
            self.wake(state);
            panic.resume()
        })
    }

    fn write_batch(&self, mut batch: Batch, allocated: u64) -> Result<Buffer> {
        let wanted = self.reserve_for(batch.stop, allocated);
        if wanted > allocated {
            self.file.allocate(wanted)?;
        }
        batch.seal(&self.file.place(0));
        let (mut buffer, result) = self.file.write(batch.start, batch.buffer);
        result?;
        let capacity = buffer.capacity();
        buffer.set_view(0..capacity);
        Ok(buffer)
    }

    /// The length to reserve before writing up to `stop`.
    fn reserve_for(&self, stop: u64, allocated: u64) -> u64 {
        if stop <= allocated {
            return allocated;
        }
        (allocated + self.growth_bytes).max(stop).next_multiple_of(PAGE)
    }

    /// As the syncing thread: makes durable all that was written.
    fn sync_out(&self, state: &mut MutexGuard<'_, State>) {
        debug_assert!(!state.syncing && state.failed.is_none());
        state.syncing = true;
        let (written, sequence) = (state.written, state.written_sequence);
        let outcome = MutexGuard::unlocked(state, || catch_panic(|| self.file.sync()));
        state.syncing = false;
        let outcome = self.outcome_of(state, outcome);
        let later = planted(Planted::SyncCountsLaterWrites);
        let (written, sequence) =
            if later { (state.written, state.written_sequence) } else { (written, sequence) };
        match outcome {
            Ok(()) => (state.synced, state.synced_sequence) = (written, sequence),
            Err(error) => state.fail(error),
        }
        self.wake(state);
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        state.waiting += 1;
        self.changed.wait(state);
        state.waiting -= 1;
    }

    fn wake(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }
}

impl State {
    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&mut self, error: Error) {
        // A write that fails after a sync already did must not hide the first cause.
        self.failed.get_or_insert_with(|| with_records(error));
    }
}

/// An error of a log that has records already: not one for want of room, which would say that they
/// are nowhere.
pub(crate) fn with_records(error: Error) -> Error {
    match error.kind() {
        ErrorKind::OutOfSpace => Error::new(ErrorKind::Io, error.to_string()),
        _ => error,
    }
}

/// Reserves room up to `wanted`, or up to `least` where there is no more; says how far.
pub(crate) fn reserve(file: &File, wanted: u64, least: u64, may_grow: MayGrow<'_>) -> Result<u64> {
    let grow = |bytes| may_grow(bytes).and_then(|()| file.allocate(bytes)).map(|()| bytes);
    match grow(wanted) {
        Err(error) if error.kind() == ErrorKind::OutOfSpace && least < wanted => grow(least),
        reserved => reserved,
    }
}

/// Makes `file` a log without records: reserves space, writes and syncs the header page.
pub(crate) fn begin(file: &File, header: LogHeader, settings: LogSettings) -> Result<LogHeader> {
    let ancestors = ancestors(file, &header)?;
    let header = LogHeader { previous: ancestors.first().copied(), ..header };
    if ancestors.is_empty() && !file.is_empty()? {
        file.truncate(0)?;
    }
    file.allocate(settings.segment_bytes.max(PAGE + END_BYTES).next_multiple_of(PAGE))?;
    let mut page = Buffer::zeroed(PAGE_BYTES);
    HeaderPage { header, ancestors }.encode(&file.place(0), &mut page);
    file.write(0, page).1?;
    sync_site("log-header", || file.sync())?;
    Ok(header)
}

/// Every number under which sectors may lie in the file, newest first; none where it must be
/// emptied.
fn ancestors(file: &File, header: &LogHeader) -> Result<Vec<FileNumber>> {
    let Some(previous) = header.previous else {
        return Ok(Vec::new());
    };
    let page = file.read_up_to(0, PAGE_BYTES)?;
    let Ok(old) = HeaderPage::decode(file, previous, &page) else {
        return Ok(Vec::new());
    };
    let mut numbers = vec![previous];
    numbers.extend(old.ancestors);
    // A full list ends the line: the file is emptied and starts over.
    Ok(if numbers.len() > ANCESTORS_MAX { Vec::new() } else { numbers })
}
