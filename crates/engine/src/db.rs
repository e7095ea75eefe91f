//! The database as its users hold it: every operation on records, and closing. Opening is in
//! `environment.rs`.

use crate::batch::{WriteBatch, check_sizes};
use crate::builder::Builder;
use crate::engine::Engine;
use crate::engine::ingest::Ingest;
use crate::engine::stats::Stats;
use crate::engine::verify::VerifyReport;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::Planner;
use crate::jobs::Progress;
use crate::live_stats::LiveWriter;
use crate::read::cursor::{Cursor, Records, ScanRange};
use crate::settings::{Durability, Settings};
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot as RegisteredSnapshot;
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Devices, FileKind};
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::{Planted, Sequence, planted, sync_site};

/// An open database. Clones share it; the last one to go closes it.
///
/// A child that `fork` makes of the process has a handle that is of no use: each call on it, and on
/// what it gave out, is an error of kind `Locked`, and dropping it changes nothing for the parent.
#[derive(Clone, Debug)]
pub struct Db {
    inner: Arc<Open>,
}

/// What ends when the last handle goes.
#[derive(Debug)]
struct Open {
    engine: Arc<Engine>,
    /// Not where it was opened for reading only, or no tier had room for what the logs had.
    is_written: bool,
    /// Keeps the planner alive, which the workers hold weakly.
    _planner: Arc<dyn Planner>,
    devices: Arc<dyn Devices>,
    /// Writes figures for other processes.
    live: Option<LiveWriter>,
    closed: AtomicBool,
}

impl Db {
    /// The handle of an engine that was opened; not to be written where `is_written` is not set.
    pub(crate) fn of(
        engine: Arc<Engine>,
        planner: Arc<dyn Planner>,
        devices: &Arc<dyn Devices>,
        is_written: bool,
    ) -> Self {
        let devices = Arc::clone(devices);
        let live = LiveWriter::start(&engine);
        let closed = AtomicBool::new(false);
        let open = Open { engine, is_written, _planner: planner, devices, live, closed };
        Self { inner: Arc::new(open) }
    }

    /// Settings put together call by call, then a database.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// There is a database at `home`.
    pub fn exists(home: impl AsRef<Path>) -> Result<bool> {
        Environment::default().exists(home.as_ref())
    }

    /// Makes a database at `home`; an error of kind `AlreadyExists` where there is one.
    pub fn create(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().create(home.as_ref(), settings)
    }

    /// Opens the database at `home` with the tiers and settings it keeps; an error of kind
    /// `NotFound` where there is none. Where no tier has room for what its logs have it can be
    /// read, and [`Stats::read_only`] says why it is not written.
    pub fn open(home: impl AsRef<Path>) -> Result<Self> {
        Environment::default().open(home.as_ref())
    }

    /// As [`Db::open`] with other settings. Tiers may be left empty, or name the same tiers at
    /// other paths; where no preset is named, the database goes on with its own.
    pub fn open_with(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().open_with(home.as_ref(), settings)
    }

    /// Opens the database at `home` for reading only: where the medium, or its permissions, allow
    /// no more, or where nothing is to change. Nothing is written, not even a file for the lock.
    ///
    /// Several may read beside each other; where a process has the database open for writing the
    /// error is of kind `Locked`, and so is its own while one reads. Where the medium takes no
    /// locks, a writer is not kept out, and what it changes may become errors here.
    ///
    /// What the logs have is held in memory, whatever the budget: no more than memtables had when
    /// it was written. Changes are errors of kind `ReadOnly`.
    pub fn open_read_only(home: impl AsRef<Path>) -> Result<Self> {
        Environment::default().open_read_only(home.as_ref())
    }

    /// The settings that the database at `home` keeps, without tiers, which are another file's.
    pub fn kept_settings(home: impl AsRef<Path>) -> Result<Settings> {
        Environment::default().kept_settings(home.as_ref())
    }

    /// Opens the database at `home`, making it where there is none.
    pub fn open_or_create(home: impl AsRef<Path>, settings: &Settings) -> Result<Self> {
        Environment::default().open_or_create(home.as_ref(), settings)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// The engine, unless it came with a fork.
    fn ours(&self) -> Result<&Arc<Engine>> {
        ours(&self.inner.engine)
    }

    /// The value of `key`, sharing the memory of the block or memtable it lies in.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.ours()?.reader.get(key.as_ref(), None)
    }

    /// The values of `keys` in their order, as of one moment. What must be read from tables is read
    /// in batches, on all tiers at once.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.ours()?.reader.multi_get(&keys, None)
    }

    /// Sets `key` to `value` with the durability of the settings. Keys have up to 64 KiB, values up
    /// to 256 MiB.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        check_sizes(key, value.len())?;
        let mut batch = WriteBatch::with_room(key.len() + value.len());
        batch.put(key, value);
        self.write(batch)
    }

    /// Removes `key`; removing what is not there is no error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        let mut batch = WriteBatch::with_room(key.len().min(crate::KEY_BYTES_MAX));
        batch.delete(key);
        self.write(batch)
    }

    /// Applies a batch, all of it or nothing, with the durability of the settings.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_with(batch, self.engine().shared.settings.durability)
    }

    /// Applies a batch with a durability of its own.
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let engine = self.ours()?;
        let (encoded, count) = batch.freeze()?;
        if count == 0 {
            return Ok(());
        }
        engine.front.write(encoded, count, durability)
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        let engine = self.ours()?;
        sync_site("sync", || engine.front.sync())
    }

    /// A scan over all records, to be narrowed down: `db.scan().prefix("user/").limit(10)`.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(self.engine()), None)
    }

    /// A cursor over all records, as of now.
    pub fn cursor(&self) -> Cursor {
        let engine = self.engine();
        engine.reader.cursor(&ScanRange::all(), engine.versions.snapshot(), 0)
    }

    /// The database as of now, for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        let engine = Arc::clone(self.engine());
        let registered = engine.versions.snapshot();
        let held = Held::new(registered.holders(), Holder::Snapshot);
        Snapshot { engine, registered, _held: held }
    }

    /// Writes everything in memory to tables.
    pub fn flush(&self) -> Result<()> {
        self.ours()?.flush()
    }

    /// Merges the records of `from..=to` (none: open) into the deepest level in use, dropping what
    /// nobody can see.
    pub fn compact_range(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        self.ours()?.compact_range(from, to, progress)
    }

    /// Waits until background work has nothing left to do; an error where it ended before that.
    pub fn settle(&self) -> Result<()> {
        self.ours()?.settle()
    }

    /// Makes `dir` a database of its own with the records of now. Tables are linked where `dir` is
    /// on the file system of their tier, and copied elsewhere.
    pub fn checkpoint(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.ours()?.checkpoint(&*self.inner.devices, dir.as_ref())
    }

    /// Begins a bulk load of records in ascending key order, past log and memtable.
    pub fn ingest(&self) -> Ingest {
        Ingest::new(Arc::clone(self.engine()))
    }

    /// Reads every byte of the database and checks it.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<VerifyReport> {
        self.ours()?.verify(progress)
    }

    /// The state of the database.
    pub fn stats(&self) -> Stats {
        match self.ours() {
            Ok(engine) => engine.stats(),
            Err(error) => Stats::unusable(self.settings(), &error),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.engine().shared.settings
    }

    /// Closes the database and says whether all went well. Other handles to it fail to write from
    /// then on; dropping the last handle closes too, but can only log an error.
    ///
    /// An error of kind `Locked` where this was the last handle and snapshots, cursors, scans or
    /// bulk loads are left: all is durable, but they keep the files, and others from opening the
    /// database, until they are dropped.
    pub fn close(self) -> Result<()> {
        let engine = self.ours()?;
        self.inner.close()?;
        let handles = Arc::strong_count(&self.inner) - 1;
        if handles > 0 {
            tracing::info!(handles, "the database is closed; its lock goes with its last handle");
            return Ok(());
        }
        let Some(holders) = engine.versions.holders().describe() else { return Ok(()) };
        let text = format!(
            "the database at {} is closed and all of it is durable, but this process still has \
             {holders} of it, and so its files and its lock: drop what is left before opening it \
             again",
            engine.shared.files.home().display()
        );
        Err(Error::new(ErrorKind::Locked, text))
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, thermocline_foundation::sync::atomic::Ordering::AcqRel) {
            return Ok(());
        }
        let engine = &self.engine;
        if let Some(live) = &self.live {
            live.end();
        }
        let is_written = self.is_written;
        let keep = || engine.shared.latch.check().and_then(|()| engine.keep_totals());
        let kept = if is_written { keep() } else { Ok(()) };
        // Sends away whoever waits for background work, which is about to end.
        engine.shared.fail(&Error::new(ErrorKind::ReadOnly, "the database is closed"));
        engine.shared.jobs.stop();
        let sealed =
            kept.and_then(|()| if is_written { engine.front.enter().seal() } else { Ok(()) });
        let manifest = engine.versions.tables().manifest.extent();
        engine.shared.files.close(&[(FileKind::Manifest, manifest)])?;
        sealed
    }
}

/// The engine, unless it came with a fork.
fn ours(engine: &Arc<Engine>) -> Result<&Arc<Engine>> {
    engine.shared.files.require_owner()?;
    Ok(engine)
}

impl Drop for Open {
    fn drop(&mut self) {
        if ours(&self.engine).is_err() {
            // A forked child has none of the threads, and locks that they held stay held: nothing
            // of the engine is dropped, only its copies of the directories' locks.
            std::mem::forget((Arc::clone(&self.engine), self.live.take()));
            self.engine.shared.files.leave_to_owner();
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed");
        }
    }
}

/// The database as of one moment. Holding it keeps compactions from dropping versions that it sees.
#[derive(Clone, Debug)]
pub struct Snapshot {
    engine: Arc<Engine>,
    registered: RegisteredSnapshot,
    _held: Held,
}

impl Snapshot {
    /// The newest sequence that the snapshot sees.
    pub fn sequence(&self) -> Sequence {
        self.registered.sequence()
    }

    /// The value of `key` at that moment.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let newest = planted(Planted::SnapshotReadsNewest);
        ours(&self.engine)?.reader.get(key.as_ref(), (!newest).then(|| self.sequence()))
    }

    /// The values of `keys` at that moment.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        ours(&self.engine)?.reader.multi_get(&keys, Some(self.sequence()))
    }

    /// A scan of that moment.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(&self.engine), Some(self.registered.clone()))
    }

    /// A cursor over that moment.
    pub fn cursor(&self) -> Cursor {
        self.engine.reader.cursor(&ScanRange::all(), self.registered.clone(), 0)
    }
}

/// Bytes that a record is taken to have when a limit sizes the first read of a scan.
const RECORD_BYTES_GUESS: u64 = 1 << 10;
/// First read of a scan at most, in bytes; read-ahead grows from there.
const FIRST_READ_BYTES_MAX: u64 = 256 << 10;

/// A scan being described; iterate over it to run it.
#[derive(Debug)]
pub struct Scan {
    engine: Arc<Engine>,
    snapshot: Option<RegisteredSnapshot>,
    range: ScanRange,
    reverse: bool,
    limit: u64,
    held: Held,
}

impl Scan {
    fn new(engine: Arc<Engine>, snapshot: Option<RegisteredSnapshot>) -> Self {
        let held = Held::new(engine.versions.holders(), Holder::Cursor);
        let (range, limit) = (ScanRange::all(), u64::MAX);
        Self { engine, snapshot, range, reverse: false, limit, held }
    }

    /// Only keys in `range`, such as `b"a".to_vec()..b"b".to_vec()`.
    pub fn range(mut self, range: impl RangeBounds<Vec<u8>>) -> Self {
        self.range =
            ScanRange { from: range.start_bound().cloned(), to: range.end_bound().cloned() };
        self
    }

    /// Only keys at or after `key`.
    pub fn from(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.from = Bound::Included(key.into());
        self
    }

    /// Only keys before `key`.
    pub fn to(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.to = Bound::Excluded(key.into());
        self
    }

    /// Only keys that begin with `prefix`; narrows down what was said before.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.range = self.range.with_prefix(prefix.as_ref());
        self
    }

    /// Largest key first.
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// At most `records`. Also sizes the first read.
    pub fn limit(mut self, records: u64) -> Self {
        self.limit = records;
        self
    }
}

impl IntoIterator for Scan {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        let snapshot = self.snapshot.unwrap_or_else(|| self.engine.versions.snapshot());
        let expected = match self.limit {
            u64::MAX => 0,
            limit => limit.saturating_mul(RECORD_BYTES_GUESS).min(FIRST_READ_BYTES_MAX),
        };
        let cursor = self.engine.reader.cursor(&self.range, snapshot, expected as u32);
        // The cursor is counted from here on.
        drop(self.held);
        Records::new(cursor, self.range, self.reverse, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ByteSize;
    use thermocline_device::MemoryDevices;

    /// A background job prepares the next log. A writer who needs one meanwhile makes none of its
    /// own, which would have a number on the wrong side of the other's.
    #[test]
    fn a_writer_waits_for_the_log_that_is_being_prepared() {
        let environment =
            Environment { devices: Arc::new(MemoryDevices::new()), ..Environment::default() };
        let tier = crate::Tier::new("/tier", ByteSize::mib(256)).driver("memory");
        let settings =
            Settings { tiers: vec![tier], memory: ByteSize::mib(8), ..Default::default() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        let engine = db.engine();
        // The background is kept from preparing logs; this thread does that instead.
        loop {
            let mut logs = engine.front.logged().pool().logs();
            if !logs.making {
                logs.making = true;
                logs.ready = None;
                break;
            }
        }
        db.put("first", "in the log made at the start").unwrap();
        let logs = || {
            let files = engine.shared.files.files().into_iter();
            files.filter(|file| file.kind == FileKind::Log).map(|file| file.number)
        };
        let before = logs().max();
        let rotating = Arc::clone(engine);
        let rotate = move || rotating.front.enter().rotate();
        let writer = thermocline_foundation::threads::spawn("writer", rotate).unwrap();
        engine.front.logged().pool().prepare_log().unwrap();
        writer.join().unwrap().unwrap();
        let next = logs().filter(|number| Some(*number) > before).min();
        assert_eq!(Some(engine.front.enter().log_number()), next);
    }
}
