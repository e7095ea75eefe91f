//! The database as its users hold it: opening, every operation on records, and closing. How an
//! engine is made of its parts is in `engine/opening.rs`.

pub(crate) mod conditional;
pub(crate) mod scan;
pub(crate) mod snapshot;
pub(crate) mod transaction;

use crate::batch::WriteBatch;
use crate::engine::Engine;
use crate::engine::ingest::Ingest;
use crate::engine::live_stats::LiveWriter;
use crate::engine::opened_files::{Access, kept_settings};
use crate::engine::opening::{self, Opened};
use crate::engine::stats::Stats;
use crate::engine::verify::VerifyReport;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::fast_cache::trace::BlockTrace;
use crate::front::Submission;
use crate::jobs::{Planner, Progress};
use crate::read::cursor::Cursor;
use crate::read::range::ScanRange;
use crate::repair::{self, plan::RepairPlan};
use crate::requests::ReadKind;
use crate::requests::room::HasRoom;
use crate::requests::ticket::Ticket;
use crate::settings::{Durability, Settings};
use crate::transaction::options::TransactionOptions;
use bytes::Bytes;
use scan::Scan;
use snapshot::Snapshot;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Devices, TieredFiles};
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use transaction::Transaction;

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
    /// The first handle of a store that was opened.
    fn of(opened: Opened, environment: &Environment) -> Self {
        let Opened { engine, planner, is_written } = opened;
        let devices = Arc::clone(&environment.devices);
        let live = LiveWriter::start(&engine);
        let closed = AtomicBool::new(false);
        let open = Open { engine, is_written, _planner: planner, devices, live, closed };
        Self { inner: Arc::new(open) }
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

    /// What is damaged in the database at `home`, and what [`Db::repair`] would do about it. Reads
    /// everything and changes nothing; the database is not open meanwhile.
    pub fn plan_repair(home: impl AsRef<Path>) -> Result<RepairPlan> {
        Environment::default().plan_repair(home.as_ref(), None, &mut |_| {})
    }

    /// Makes the database at `home` one that opens for writing and verifies: keeps damaged pieces
    /// in `lost` of their tier, takes them out of use, and says which records are gone or older
    /// than they were. Nothing is deleted of which there is no copy in `lost`; a repair that is cut
    /// off is begun again.
    pub fn repair(home: impl AsRef<Path>) -> Result<RepairPlan> {
        Environment::default().repair(home.as_ref(), None, &mut |_| {})
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
        self.inner.engine.ours()
    }

    /// The value of `key`, sharing the memory of the block or memtable it lies in.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        self.ours()?.reader().get(key.as_ref(), None)
    }

    /// The values of `keys` in their order, as of one moment. What must be read from tables is read
    /// in batches, on all tiers at once.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        self.ours()?.reader().multi_get(&keys, None)
    }

    /// Sets `key` to `value` with the durability of the settings. Keys have up to 64 KiB, values up
    /// to 256 MiB.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let batch = WriteBatch::of_put(key.as_ref(), value.as_ref())?;
        // Where they are the caller's no more, their memory is not kept while the write waits.
        drop((key, value));
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
        self.write_with(batch, self.settings().durability)
    }

    /// Applies a batch with a durability of its own.
    pub fn write_with(&self, batch: WriteBatch, durability: Durability) -> Result<()> {
        let engine = self.ours()?;
        let (encoded, count) = batch.freeze()?;
        if count == 0 {
            return Ok(());
        }
        engine.write(encoded, count, durability).map(drop)
    }

    /// As [`Db::put`], but returns at once: the ticket has the acknowledgement.
    ///
    /// Writes take effect, and are acknowledged, in the order in which they were handed in. Reads
    /// see one once it is acknowledged. An error of kind `Busy` where as many requests wait as may
    /// (`request_queue`, `request_queue_bytes`): await a ticket or [`Db::has_room`], and call
    /// again.
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Ticket<()>> {
        let mut batch = WriteBatch::of_put(key.as_ref(), value.as_ref())?;
        self.write_async(&mut batch, self.settings().durability)
    }

    /// As [`Db::delete`], but returns at once, as [`Db::put_async`] does.
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> Result<Ticket<()>> {
        let key = key.as_ref();
        let mut batch = WriteBatch::with_room(key.len().min(crate::KEY_BYTES_MAX));
        batch.delete(key);
        self.write_async(&mut batch, self.settings().durability)
    }

    /// As [`Db::write_with`], but returns at once, as [`Db::put_async`] does. The batch is empty
    /// afterwards; where the call is an error, it is as it was.
    pub fn write_async(
        &self,
        batch: &mut WriteBatch,
        durability: Durability,
    ) -> Result<Ticket<()>> {
        let engine = self.ours()?;
        let (encoded, count) = batch.take()?;
        if count == 0 {
            return Ok(Ticket::given(Ok(())));
        }
        let written =
            engine.requests().write(Submission { encoded, count, durability, check: None });
        written.map_err(|(refused, error)| {
            *batch = WriteBatch::put_back(refused.encoded, refused.count);
            error
        })
    }

    /// As [`Db::get`], but returns at once: with the answer where a memtable has it, and else with
    /// a ticket for the answer of a thread of the database. `Busy` as for [`Db::put_async`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> Result<Ticket<Option<Bytes>>> {
        let engine = self.ours()?;
        let key = key.as_ref();
        if let Some(value) = engine.reader().get_from_memory(key) {
            return Ok(Ticket::given(Ok(value)));
        }
        let (key, reader) = (Bytes::copy_from_slice(key), Arc::clone(engine.reader()));
        let bytes = key.len() as u64;
        engine.requests().read(ReadKind::Get, bytes, || move || reader.get(&key, None))
    }

    /// Waits for room among the asynchronous requests: a future for callers that were told `Busy`.
    /// Others may be quicker to take it, so the next call can be told `Busy` again. It is over at
    /// once where the database is closed, or came with a fork: the next call has the reason.
    pub fn has_room(&self) -> HasRoom {
        self.engine().requests().has_room(false)
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.ours()?.sync()
    }

    /// A scan over all records, to be narrowed down: `db.scan().prefix("user/").limit(10)`.
    pub fn scan(&self) -> Scan {
        Scan::new(Arc::clone(self.engine()), None)
    }

    /// A cursor over all records, as of now.
    pub fn cursor(&self) -> Cursor {
        let engine = self.engine();
        engine.reader().cursor(&ScanRange::all(), engine.snapshot(), 0)
    }

    /// The database as of now, for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine())
    }

    /// Begins a transaction: reads and writes that take effect together, at its commit, or not at
    /// all. Dropping it without a commit takes all of it back.
    ///
    /// ```no_run
    /// use thermocline::{Db, ErrorKind, TransactionOptions};
    /// # fn main() -> thermocline::Result<()> {
    /// let db = Db::open("/var/lib/db")?;
    /// loop {
    ///     let mut transfer = db.transaction(TransactionOptions::default());
    ///     let from = transfer.get("stock/a")?.unwrap_or_default();
    ///     transfer.put("stock/b", from)?;
    ///     transfer.delete("stock/a")?;
    ///     match transfer.commit() {
    ///         Ok(_) => break,
    ///         // Another write came first: from the reads on.
    ///         Err(error) if error.kind() == ErrorKind::Conflict => continue,
    ///         Err(error) => return Err(error),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn transaction(&self, options: TransactionOptions) -> Transaction {
        Transaction::begin(self.engine(), options)
    }

    /// Writes everything in memory to tables.
    pub fn flush(&self) -> Result<()> {
        self.ours()?.flush()
    }

    /// Merges the records of `from..=to` (none: open) into the deepest level in use, dropping what
    /// no reader can see.
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

    /// What work has not given back once all of it has ended; none where all is well. Waits for
    /// background work, unless another handle has closed the database. For tests of the store,
    /// while no other caller is at work.
    #[doc(hidden)]
    pub fn left_over(&self) -> Result<Vec<String>> {
        let engine = self.ours()?;
        let is_closed = self.inner.closed.load(Ordering::Acquire);
        if !is_closed {
            engine.settle()?;
        }
        Ok(engine.left_over(is_closed))
    }

    /// The files that the database has on each tier, as pairs of its index and a name. For tests.
    #[doc(hidden)]
    pub fn file_names(&self) -> Result<Vec<(usize, String)>> {
        Ok(self.ours()?.file_names())
    }

    /// Deletes the copies of blocks that the cache on tier 0 has, if there is one. Nothing else
    /// changes: blocks are read from their tables.
    ///
    /// Errors: `ReadOnly` where the database was opened for reading only; why writing has stopped.
    pub fn clear_fast_cache(&self) -> Result<()> {
        self.ours()?.clear_fast_cache()
    }

    /// What the cache of blocks on tier 0 was asked for since opening, in order: blocks that memory
    /// lacked. None without a cache, and where
    /// [`Experiments::traced_blocks`](crate::Experiments::traced_blocks) does not ask for it.
    pub fn block_trace(&self) -> Option<BlockTrace> {
        self.engine().block_trace()
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        self.engine().settings()
    }

    /// Closes the database and says whether all went well. Other handles to it fail to write from
    /// then on; dropping the last handle closes too, but can only log an error.
    ///
    /// An error of kind `Locked` where this was the last handle and snapshots, cursors, scans,
    /// transactions or bulk loads are left: all is durable, but they keep the files, and others
    /// from opening the database, until they are dropped.
    pub fn close(self) -> Result<()> {
        let engine = self.ours()?;
        self.inner.close()?;
        let handles = Arc::strong_count(&self.inner) - 1;
        if handles > 0 {
            tracing::info!(handles, "the database is closed; its lock goes with its last handle");
            return Ok(());
        }
        let Some(holders) = engine.holders().describe() else { return Ok(()) };
        let text = format!(
            "the database at {} is closed and all of it is durable, but this process still has \
             {holders} of it, and so its files and its lock: drop what is left before opening it \
             again",
            engine.home().display()
        );
        Err(Error::new(ErrorKind::Locked, text))
    }
}

impl Environment {
    /// There is a database at `home`.
    pub fn exists(&self, home: &Path) -> Result<bool> {
        Ok(TieredFiles::exists(&*self.devices, home)?)
    }

    /// Makes a database at `home`. Leaves nothing behind when it fails.
    pub fn create(&self, home: &Path, settings: &Settings) -> Result<Db> {
        Ok(Db::of(opening::create(self, home, settings)?, self))
    }

    /// Opens the database at `home` with the settings it keeps. Where no tier has room for what its
    /// logs have it can be read, and its statistics say why it is read-only.
    pub fn open(&self, home: &Path) -> Result<Db> {
        Ok(Db::of(opening::open(self, home, None, Access::Write)?, self))
    }

    /// As [`Db::open_with`]: with other settings, which are kept from then on.
    pub fn open_with(&self, home: &Path, settings: &Settings) -> Result<Db> {
        Ok(Db::of(opening::open(self, home, Some(settings), Access::Write)?, self))
    }

    /// As [`Db::open_read_only`].
    pub fn open_read_only(&self, home: &Path) -> Result<Db> {
        Ok(Db::of(opening::open(self, home, None, Access::Read)?, self))
    }

    /// As [`Db::open_read_only`] with other settings, which hold for this opening: where tiers are
    /// mounted elsewhere, or memory is scarce.
    pub fn open_read_only_with(&self, home: &Path, settings: &Settings) -> Result<Db> {
        Ok(Db::of(opening::open(self, home, Some(settings), Access::Read)?, self))
    }

    /// As [`Db::plan_repair`], with other settings, as [`Environment::open_read_only_with`] has
    /// them. `progress` is told how much was read.
    pub fn plan_repair(
        &self,
        home: &Path,
        settings: Option<&Settings>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RepairPlan> {
        repair::plan(self, home, settings, progress)
    }

    /// As [`Db::repair`], with other settings.
    pub fn repair(
        &self,
        home: &Path,
        settings: Option<&Settings>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RepairPlan> {
        repair::apply(self, home, settings, progress)
    }

    /// As [`Db::kept_settings`].
    pub fn kept_settings(&self, home: &Path) -> Result<Settings> {
        kept_settings(self, home)
    }

    /// Opens the database at `home`, making it where there is none.
    pub fn open_or_create(&self, home: &Path, settings: &Settings) -> Result<Db> {
        if self.exists(home)? {
            self.open_with(home, settings)
        } else {
            self.create(home, settings)
        }
    }
}

impl Open {
    fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if let Some(live) = &self.live {
            live.end();
        }
        self.engine.close(self.is_written)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.engine.ours().is_err() {
            // A forked child has none of the threads, and locks that they held stay held: nothing
            // of the engine is dropped, only its copies of the directories' locks.
            std::mem::forget((Arc::clone(&self.engine), self.live.take()));
            self.engine.leave_to_owner();
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the database failed");
        }
    }
}
