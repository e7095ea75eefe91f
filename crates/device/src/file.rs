//! An open file of the namespace: where the crates above read and write.
//!
//! A `File` knows its number, its database and its tier, so that checksums can be bound
//! ([`File::place`]) and errors can name it. Offsets and lengths of reads are free; the file rounds
//! them out to the driver's alignment. Writes must be aligned by the caller, because rounding a
//! write would overwrite neighbours.
//!
//! 1. Number and database never change. Tier and handle do, together, when the file migrates: a
//!    call uses the pair that it found when it began, and the old copy stays readable until the
//!    last such call is done.
//! 2. Only files that are no longer written migrate, so no write can go to a copy left behind.
//! 3. A length that cannot be is cut to the file's end before memory is taken for it.
//! 4. A file that is closed for want of descriptors (`open_files.rs`) is opened by the next call
//!    that moves bytes. It is durable as it is, so a sync of it has nothing to do.
//!
//! Threads: shared freely; no lock is taken but that of the tier's queue pool, and only by reads
//! that overlap. Writes of a file that may be closed take one for a moment, and so does what opens
//! it.

use crate::buffer::{Buffer, PAGE_BYTES};
use crate::context::FileKind;
use crate::driver::{Completion, Driver, Handle, Operation};
use crate::error::{Error, Result};
use crate::open_files::OpenFiles;
use crate::tier::{Tier, TierIndex};
use std::sync::{Arc, Weak};
use thermocline_foundation::sync::atomic::{
    AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed,
};
use thermocline_foundation::sync::{ArcSwap, ArcSwapGuard, Mutex, OnceLock};
use thermocline_foundation::{DatabaseId, FileNumber, Place, Planted, planted};

mod closing;

pub use crate::file_queue::{PendingRead, ReadAt, WriteStream, read_batch, sync_batch};

/// A read longer than this is checked against the file's length before its buffer is made.
const UNCHECKED_READ_BYTES_MAX: usize = 1 << 20;

/// Where a file's bytes are.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) tier: Arc<Tier>,
    /// None while it is closed.
    handle: Option<Handle>,
}

/// What messages and counters must know of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    number: FileNumber,
    kind: FileKind,
}

impl Location {
    /// Open on `tier`.
    pub(crate) fn open(tier: Arc<Tier>, handle: Handle) -> Self {
        Self { tier, handle: Some(handle) }
    }

    /// The open file. Only of what [`File::located`] gave.
    pub(crate) fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("a file that was located is open")
    }

    fn describe(&self, Label { number, kind }: Label) -> String {
        format!("{number}.{} ({})", kind.extension(), self.tier.describe())
    }

    /// `error`, met while doing `action` ("read 16 bytes at 512 of"), with the file's name and
    /// tier.
    pub(crate) fn explain(&self, label: Label, action: &str, error: &Error) -> Error {
        let file = self.describe(label);
        Error::new(error.kind().after_opening(), format!("cannot {action} {file}: {error}"))
    }

    /// Carries out a read, or a write of what is no log: whole, or in pieces where it is to make
    /// way for one.
    pub(crate) fn transfer(&self, operation: Operation) -> Completion {
        match self.tier.classes().makes_way() {
            true => self.transfer_in_pieces(operation),
            false => self.tier.driver().execute(self.handle(), operation),
        }
    }

    pub(crate) fn transfer_in_pieces(&self, operation: Operation) -> Completion {
        let execute = |piece| self.tier.driver().execute(self.handle(), piece);
        self.tier.classes().in_pieces(operation, execute)
    }

    /// Carries out a write of a log.
    fn write_log(&self, operation: Operation, durable: bool) -> Completion {
        let _flying = if durable { self.tier.classes().log_write() } else { None };
        self.tier.driver().execute(self.handle(), operation)
    }

    /// Shows the bytes that the read of `span` was for, fewer where the file ends.
    pub(crate) fn finish_read(
        &self,
        label: Label,
        span: Span,
        completion: Completion,
    ) -> Result<Buffer> {
        let Span { start, skip, len, .. } = span;
        let got = completion.result.map_err(|error| {
            let action = format!("read {len} bytes at {} of", start + skip as u64);
            self.explain(label, &action, &error)
        })?;
        self.tier.counters(label.kind).count_read(got);
        let mut buffer = completion.buffer;
        buffer.set_view(skip.min(got)..(skip + len).min(got));
        Ok(buffer)
    }
}

/// One open file. Shared between threads.
#[derive(Debug)]
pub struct File {
    database: DatabaseId,
    number: FileNumber,
    kind: AtomicU16,
    location: ArcSwap<Location>,
    /// The page cache serves the file, whatever the driver does with others.
    cached: AtomicBool,
    /// Bytes that the file takes, for the capacity account; shared with the namespace. The length
    /// of a file that is closed.
    extent: Arc<AtomicU64>,
    open_files: Arc<OpenFiles>,
    /// What the ring of open files gets; none for a file that is never closed.
    me: Weak<Self>,
    /// The file may be closed.
    enrolled: AtomicBool,
    /// Asked for since the clock hand came by.
    used: AtomicBool,
    /// Changes under way.
    changing: AtomicU32,
    /// Changes that have ended.
    changed: AtomicU64,
    /// As many of them were covered by a sync.
    synced: AtomicU64,
    /// Why a sync that was to precede a closing failed: what it should have covered counts as lost.
    lost: OnceLock<Error>,
    /// Held by a sync that is to precede a closing.
    syncing_to_close: Mutex<()>,
}

impl File {
    /// Wraps an open handle. For tests and tools that need one file and no namespace.
    pub fn new(
        database: DatabaseId,
        number: FileNumber,
        kind: FileKind,
        tier: TierIndex,
        driver: Arc<dyn Driver>,
        handle: Handle,
    ) -> Self {
        let tier = Arc::new(Tier::detached(tier, driver));
        let location = Location::open(tier, handle);
        Self::detached(database, number, kind, location)
    }

    /// A file that no namespace counts.
    pub(crate) fn detached(
        database: DatabaseId,
        number: FileNumber,
        kind: FileKind,
        location: Location,
    ) -> Self {
        let (open_files, extent) = (Arc::default(), Arc::default());
        Self::made(database, number, kind, location, extent, open_files, Weak::new())
    }

    /// A file of a namespace, which counts its bytes in `extent` and is one of `open_files`.
    pub(crate) fn at(
        database: DatabaseId,
        number: FileNumber,
        kind: FileKind,
        location: Location,
        extent: Arc<AtomicU64>,
        open_files: &Arc<OpenFiles>,
    ) -> Arc<Self> {
        let open_files = Arc::clone(open_files);
        Arc::new_cyclic(|me| {
            Self::made(database, number, kind, location, extent, open_files, me.clone())
        })
    }

    fn made(
        database: DatabaseId,
        number: FileNumber,
        kind: FileKind,
        location: Location,
        extent: Arc<AtomicU64>,
        open_files: Arc<OpenFiles>,
        me: Weak<Self>,
    ) -> Self {
        open_files.count_opened();
        Self {
            database,
            number,
            kind: AtomicU16::new(u16::from_le_bytes(kind.code())),
            location: ArcSwap::from_pointee(location),
            cached: AtomicBool::new(false),
            extent,
            open_files,
            me,
            enrolled: AtomicBool::new(false),
            used: AtomicBool::new(false),
            changing: AtomicU32::new(0),
            changed: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            lost: OnceLock::new(),
            syncing_to_close: Mutex::new(()),
        }
    }

    /// The file's number.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// What the file holds.
    pub fn kind(&self) -> FileKind {
        let code = self.kind.load(Relaxed).to_le_bytes();
        FileKind::from_code(code).expect("only codes of kinds are stored")
    }

    pub(crate) fn set_kind(&self, kind: FileKind) {
        self.kind.store(u16::from_le_bytes(kind.code()), Relaxed);
    }

    /// Where the file lies now.
    pub fn tier(&self) -> TierIndex {
        self.location.load().tier.index()
    }

    /// Where the file's bytes are, open or not.
    pub(crate) fn location(&self) -> ArcSwapGuard<Arc<Location>> {
        self.location.load()
    }

    /// What a checksum of bytes at `offset` is bound to.
    pub fn place(&self, offset: u64) -> Place {
        Place { database: self.database, file: self.number, offset }
    }

    /// File, tier and directory, for messages: `00000012.table (tier 1, /mnt/slow)`.
    pub fn describe(&self) -> String {
        self.location.load().describe(self.label())
    }

    /// Number and kind, for messages and counters.
    pub(crate) fn label(&self) -> Label {
        Label { number: self.number, kind: self.kind() }
    }

    fn explain(&self, location: &Location, action: &str, error: &Error) -> Error {
        location.explain(self.label(), action, error)
    }

    /// Length in bytes.
    pub fn len(&self) -> Result<u64> {
        let location = self.location.load();
        // A forked child may lack the descriptor of a file that was opened while it was made.
        let is_ours = location.tier.require_owner().is_ok();
        let Some(handle) = location.handle.as_ref().filter(|_| is_ours) else {
            return Ok(self.extent.load(Relaxed));
        };
        let len = handle.len();
        len.map_err(|error| self.explain(&location, "tell the length of", &error))
    }

    /// Refuses room up to `len` bytes that would leave too little for what its device is to keep
    /// room for.
    pub(crate) fn require_slack(&self, len: u64) -> Result<()> {
        match len.saturating_sub(self.extent.load(Relaxed)) {
            0 => Ok(()),
            more => self.location().tier.require_slack(self.kind(), more),
        }
    }

    /// Bytes up to which it was written to or room was reserved.
    pub fn extent_bytes(&self) -> u64 {
        self.extent.load(Relaxed)
    }

    /// The file holds no byte.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads exactly `len` bytes at `offset`; a file that ends before is damaged.
    pub fn read(&self, offset: u64, len: usize) -> Result<Buffer> {
        self.require(offset, len, self.read_up_to(offset, len)?)
    }

    /// `buffer` if it has all `len` bytes.
    pub(crate) fn require(&self, offset: u64, len: usize, buffer: Buffer) -> Result<Buffer> {
        if buffer.len() < len {
            let why = format!("it ends after {} of {len} bytes", buffer.len());
            return Err(Error::corrupt(self.describe(), offset, why));
        }
        Ok(buffer)
    }

    /// Reads `len` bytes at `offset`, fewer where the file ends.
    pub fn read_up_to(&self, offset: u64, len: usize) -> Result<Buffer> {
        let location = self.located()?;
        let span = self.span(&location, offset, len)?;
        let completion = location.transfer(span.operation());
        location.finish_read(self.label(), span, completion)
    }

    /// What to read so as to show `len` bytes at `offset`.
    pub(crate) fn span(&self, location: &Location, offset: u64, len: usize) -> Result<Span> {
        location.tier.require_owner()?;
        let mut len = len;
        if len > UNCHECKED_READ_BYTES_MAX || offset.checked_add(len as u64 + 4096).is_none() {
            let end = location.handle().len();
            let end = end.map_err(|error| self.explain(location, "tell the length of", &error))?;
            len = len.min(usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX));
        }
        let alignment = location.tier.driver().alignment() as u64;
        let skip = offset % alignment;
        let start = offset - skip;
        // An offset close to the largest number has no byte to read; the rounded length cannot
        // overflow then.
        let aligned_len = (skip + len as u64).next_multiple_of(alignment) as usize;
        Ok(Span { start, aligned_len, skip: skip as usize, len })
    }

    /// Writes the buffer's view at `offset`, both multiples of the driver's alignment
    /// ([`PAGE_BYTES`] always is), and gives the buffer back.
    pub fn write(&self, offset: u64, buffer: Buffer) -> (Buffer, Result<()>) {
        self.write_as(offset, buffer, false)
    }

    /// As [`File::write`]; what is written survives loss of power when this returns, whatever
    /// becomes of earlier writes.
    pub fn write_durably(&self, offset: u64, buffer: Buffer) -> (Buffer, Result<()>) {
        self.write_as(offset, buffer, !planted(Planted::DurableFlagDropped))
    }

    fn write_as(&self, offset: u64, buffer: Buffer, durable: bool) -> (Buffer, Result<()>) {
        let change = match self.begin_change() {
            Ok(change) => change,
            Err(error) => return (buffer, Err(error)),
        };
        let location = &change.location;
        self.count_write(location, offset, &buffer);
        let len = buffer.len();
        let operation = Operation::Write { offset, buffer, durable };
        let completion = match self.kind() {
            FileKind::Table { .. }
            | FileKind::Slab
            | FileKind::TableIndex
            | FileKind::BlockCache => location.transfer(operation),
            FileKind::Log => location.write_log(operation, durable),
            FileKind::Manifest | FileKind::Map => {
                location.tier.driver().execute(location.handle(), operation)
            }
        };
        let result = completion.result.map(drop);
        (completion.buffer, result.map_err(|e| self.write_error(location, offset, len, &e)))
    }

    /// Notes a write that is about to be submitted.
    pub(crate) fn count_write(&self, location: &Location, offset: u64, buffer: &Buffer) {
        let alignment = self.alignment();
        debug_assert!(PAGE_BYTES.is_multiple_of(alignment));
        debug_assert!(offset.is_multiple_of(alignment as u64), "an unaligned write");
        debug_assert!(buffer.len().is_multiple_of(alignment), "an unaligned write");
        location.tier.counters(self.kind()).count_write(buffer.len());
        self.extent.fetch_max(offset + buffer.len() as u64, Relaxed);
    }

    /// What a write that failed gives.
    pub(crate) fn write_error(
        &self,
        location: &Location,
        offset: u64,
        len: usize,
        error: &Error,
    ) -> Error {
        location.tier.note_refusal(error, len as u64);
        self.explain(location, &format!("write {len} bytes at {offset} of"), error)
    }

    /// Makes every completed write durable.
    pub fn sync(&self) -> Result<()> {
        let covered = self.covered();
        let location = self.location.load();
        location.tier.require_owner()?;
        let Some(handle) = self.begin_sync(&location)? else { return Ok(()) };
        let is_log = self.kind() == FileKind::Log;
        let _flying = if is_log { location.tier.classes().log_write() } else { None };
        let mut completion = location.tier.driver().execute(&handle, Operation::Sync);
        if planted(Planted::FailedSyncRetried) && completion.result.is_err() {
            completion = location.tier.driver().execute(&handle, Operation::Sync);
        }
        self.end_sync(&location, covered, completion)
    }

    /// Reserves space up to `len` bytes; see [`crate::DriverFile::allocate`].
    pub fn allocate(&self, len: u64) -> Result<()> {
        if self.kind() == FileKind::Log {
            self.require_slack(len)?;
        }
        let change = self.begin_change()?;
        let location = &change.location;
        let more = len.saturating_sub(self.extent.load(Relaxed));
        let result = location.handle().allocate(len);
        result.map_err(|e| {
            location.tier.note_refusal(&e, more);
            self.explain(location, &format!("allocate {len} bytes of"), &e)
        })?;
        self.extent.fetch_max(len, Relaxed);
        Ok(())
    }

    /// Cuts or extends the file.
    pub fn truncate(&self, len: u64) -> Result<()> {
        let change = self.begin_change()?;
        let location = &change.location;
        let result = location.handle().truncate(len);
        result.map_err(|e| self.explain(location, &format!("cut to {len} bytes"), &e))?;
        self.extent.store(len, Relaxed);
        Ok(())
    }

    /// See [`crate::DriverFile::use_page_cache`]. Only for a file that will not migrate.
    pub fn use_page_cache(&self) -> Result<()> {
        let location = self.located()?;
        let cached = location.handle().use_page_cache();
        let cached = cached.map_err(|e| self.explain(&location, "change the writing of", &e))?;
        self.cached.store(cached, Relaxed);
        Ok(())
    }

    /// See [`crate::DriverFile::notes_first_writes`]. False for a file that is closed.
    pub fn notes_first_writes(&self) -> bool {
        let location = self.location.load();
        location.handle.as_ref().is_some_and(|handle| handle.notes_first_writes())
    }

    /// What offsets and lengths of writes must be multiples of.
    pub fn alignment(&self) -> usize {
        if self.cached.load(Relaxed) {
            return 1;
        }
        self.location.load().tier.driver().alignment()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.is_open() {
            self.open_files.count_closed();
        }
    }
}

/// A read rounded out to the driver's alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u64,
    aligned_len: usize,
    skip: usize,
    len: usize,
}

impl Span {
    pub(crate) fn operation(self) -> Operation {
        Operation::Read { offset: self.start, buffer: Buffer::for_read(self.aligned_len) }
    }
}
