//! Transactions as their users hold them.
//!
//! A transaction keeps its writes in memory until its commit, which validates what it builds on
//! (`transaction/mod.rs`) and writes all of it as one batch. So readers see all or nothing of it, a
//! crash leaves all or nothing, and one that is dropped has changed nothing.
//!
//! ```text
//!   snapshot    reads as of one moment; writes must not have been overtaken since
//!   writes      read by its own get and scan; savepoints go back among them
//!   reads       keys and ranges that a serializable commit validates
//! ```
//! The papers that the store is built after have no transactions; the isolation levels are those of
//! Berenson et al., "A Critique of ANSI SQL Isolation Levels".
//!
//! Threads: one at a time; it may move between them. A thread that writes a key by another handle
//! while its own pessimistic transaction has the lock waits for itself, up to the timeout.

use super::scan::Scan;
use crate::batch::check_sizes;
use crate::engine::Engine;
use crate::engine::commits::TransactionLocks;
use crate::error::{Error, Result};
use crate::limits::VALUE_BYTES_MAX;
use crate::read::overlay::OwnView;
use crate::requests::room::HasRoom;
use crate::requests::ticket::Ticket;
use crate::transaction::options::{Locking, TransactionOptions};
use crate::transaction::savepoint::{Savepoint, require_room};
use crate::transaction::{Commit, Patience, Reads, Writes, conflict};
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot as RegisteredSnapshot;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{ByteSize, Duration, Planted, Sequence, planted};

/// Reads and writes that take effect together. Dropping it takes all of them back.
#[derive(Debug)]
pub struct Transaction {
    engine: Arc<Engine>,
    options: TransactionOptions,
    number: u64,
    /// What it reads as of, unless each read is of its own moment.
    snapshot: Option<RegisteredSnapshot>,
    writes: Arc<Writes>,
    /// Keys that were read for an update, and the moments of that. Registered, so that no merge
    /// drops a later delete with all that it deletes.
    for_update: BTreeMap<Bytes, RegisteredSnapshot>,
    reads: Arc<Mutex<Reads>>,
    /// Its locks, if it is pessimistic.
    locks: Option<TransactionLocks>,
    _held: Held,
}

/// The most that `bytes_max` may be.
const BYTES_MAX: ByteSize = ByteSize(VALUE_BYTES_MAX as u64);

/// How long a transaction with `options` waits for a lock.
fn lock_timeout(engine: &Engine, options: &TransactionOptions) -> Duration {
    options.lock_timeout.unwrap_or(engine.settings().lock_timeout)
}

impl Transaction {
    pub(super) fn begin(engine: &Arc<Engine>, options: TransactionOptions) -> Self {
        // Before the moment that it reads as of: what was written without locks and is in flight
        // would be a conflict. What has locks may still be one.
        let locks = (options.locking == Locking::Pessimistic).then(|| engine.open_locks());
        let snapshot = options.isolation.reads_one_moment().then(|| engine.snapshot());
        Self {
            engine: Arc::clone(engine),
            number: engine.next_transaction(),
            options,
            snapshot,
            writes: Arc::default(),
            for_update: BTreeMap::new(),
            reads: Arc::default(),
            locks,
            _held: Held::new(engine.holders(), Holder::Transaction),
        }
    }

    /// The moment that all reads are of, if that is one.
    fn moment(&self) -> Option<Sequence> {
        self.snapshot.as_ref().map(RegisteredSnapshot::sequence)
    }

    /// The value of `key`: as this transaction has written it, or else as its isolation says.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let (key, engine) = (key.as_ref(), self.engine.ours()?);
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        self.note_reads([key])?;
        engine.reader().get(key, self.moment())
    }

    /// The values of `keys` in their order, as [`Transaction::get`] gives them.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Bytes>>> {
        let engine = self.engine.ours()?;
        let own = |key: &K| self.writes.get(key.as_ref());
        let others = keys.iter().filter(|key| own(key).is_none());
        let others: Vec<_> = others.map(AsRef::as_ref).collect();
        self.note_reads(others.iter().copied())?;
        let found = engine.reader().multi_get(&others, self.moment())?;
        let mut found = found.into_iter();
        let value = |key| own(key).cloned().unwrap_or_else(|| found.next().flatten());
        Ok(keys.iter().map(value).collect())
    }

    fn note_reads<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<()> {
        if self.options.isolation.validates_reads() {
            let mut reads = self.reads.lock();
            for key in keys {
                require_room(self.writes.bytes() + reads.bytes(), self.bytes_max(), "read")?;
                reads.add(key);
            }
        }
        Ok(())
    }

    fn bytes_max(&self) -> ByteSize {
        self.options.bytes_max.unwrap_or(self.engine.settings().transaction_bytes_max)
    }

    /// Memory that its writes take, and what it has read where that is validated.
    fn bytes(&self) -> u64 {
        self.writes.bytes() + self.reads.lock().bytes()
    }

    /// A scan, to be narrowed down as [`Db::scan`](crate::Db::scan), over what the transaction sees
    /// and has written until now: writes that come after this call are not in it. Serializable, the
    /// range that it went through must be the same at the commit, one record or none included.
    pub fn scan(&self) -> Scan {
        let reads = self.options.isolation.validates_reads().then(|| Arc::clone(&self.reads));
        let view = OwnView { writes: Arc::clone(&self.writes), reads, noted: None };
        let snapshot = self.snapshot.clone().filter(|_| !planted(Planted::SnapshotTooNew));
        Scan::new(Arc::clone(&self.engine), snapshot).within(view)
    }

    /// As [`Transaction::get`], and no other write of `key` may come between this and the commit.
    ///
    /// An error of kind `Conflict` at once where one already came after the moment that the
    /// transaction reads as of. Pessimistic, the lock of the key is taken first.
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Bytes>> {
        let (key, engine) = (key.as_ref(), Arc::clone(self.engine.ours()?));
        self.lock(key)?;
        let known = self.for_update.get(key).or(self.snapshot.as_ref()).cloned();
        let base = match known {
            Some(known) => {
                self.require_unchanged(key, known.sequence())?;
                known
            }
            None => engine.snapshot(),
        };
        let sequence = base.sequence();
        self.for_update.entry(Bytes::copy_from_slice(key)).or_insert(base);
        match self.writes.get(key) {
            Some(own) => Ok(own.clone()),
            None => engine.reader().get(key, Some(sequence)),
        }
    }

    /// Takes the lock of `key`, if it is pessimistic. Says whether it was not held before.
    fn lock(&mut self, key: &[u8]) -> Result<bool> {
        let Some(locks) = &mut self.locks else { return Ok(false) };
        let mut patience = Patience::new(lock_timeout(&self.engine, &self.options));
        let taken = locks.held.take(key, &mut patience);
        taken.inspect_err(|error| self.engine.locks().tally.note(error))
    }

    /// A conflict at once where `key` was written after `base`.
    fn require_unchanged(&self, key: &[u8], base: Sequence) -> Result<()> {
        let newest = self.engine.reader().newest(key)?;
        if newest.is_none_or(|newest| newest.sequence() <= base) {
            return Ok(());
        }
        let error = conflict(key);
        self.engine.locks().tally.note(&error);
        Err(error)
    }

    /// Sets `key` to `value` at the commit. Pessimistic, the lock of the key is taken now, and a
    /// write that came after the moment that the transaction reads as of is a conflict now.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), Some(value.as_ref()))
    }

    /// Removes `key` at the commit.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(key.as_ref(), None)
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.engine.ours()?;
        check_sizes(key, value.map_or(0, <[u8]>::len))?;
        if self.lock(key)?
            && let Some(moment) = self.moment()
        {
            self.require_unchanged(key, moment)?;
        }
        let bytes_max = self.bytes_max();
        if bytes_max > BYTES_MAX {
            return Err(Error::invalid(format!(
                "`bytes_max` of the transaction is {bytes_max}, and it is written as one batch, \
                 which holds {BYTES_MAX}: set it to that or less"
            )));
        }
        let read_bytes = self.reads.lock().bytes();
        Arc::make_mut(&mut self.writes).add(key, value, read_bytes, bytes_max)
    }

    /// A place to come back to.
    pub fn savepoint(&mut self) -> Savepoint {
        Arc::make_mut(&mut self.writes).savepoint(self.number)
    }

    /// Takes back what was written after `savepoint`. What was read since is validated all the
    /// same, and locks that were taken since are held until the end.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        if savepoint.transaction != self.number {
            return Err(Error::invalid(
                "the savepoint is of another transaction; go back to one of this",
            ));
        }
        if planted(Planted::LockReleasedEarly) {
            self.locks.iter_mut().for_each(|locks| locks.held.release_all());
        }
        Arc::make_mut(&mut self.writes).rollback_to(savepoint)
    }

    /// Makes all writes durable and visible together, and says the sequence of the last one. A
    /// transaction that wrote nothing says the moment that it saw, and does no work.
    ///
    /// An error of kind `Conflict` where something has changed that it builds on: nothing was
    /// written, and all of it is to be done again, from its reads on.
    pub fn commit(self) -> Result<Sequence> {
        let engine = self.engine.ours()?;
        if self.writes.is_empty() {
            return Ok(self.moment_now());
        }
        engine.commit(self.as_commit()?)
    }

    /// As [`Transaction::commit`], but returns at once: the ticket has the sequence, or the error
    /// of kind `Conflict`. It is written also where the ticket is dropped, and holds its locks and
    /// what it sees until then.
    ///
    /// Where it is refused (`Busy`: as many requests wait as may; the database is closed, or read
    /// only) the transaction comes back with the reason, as it was: await a ticket or
    /// [`Transaction::has_room`] and commit again, or drop it. Writes that wait for its locks take
    /// no room from it.
    #[expect(clippy::result_large_err, reason = "what was refused comes back")]
    pub fn commit_async(self) -> Result<Ticket<Sequence>, (Self, Error)> {
        if let Err(error) = self.engine.ours() {
            return Err((self, error));
        }
        if self.writes.is_empty() {
            return Ok(Ticket::given(Ok(self.moment_now())));
        }
        let engine = Arc::clone(&self.engine);
        let has_locks = self.locks.is_some();
        let admission = match engine.requests().admit(self.bytes(), has_locks) {
            Ok(admission) => admission,
            Err(error) => return Err((self, error)),
        };
        let commit = match self.as_commit() {
            Ok(commit) => commit,
            Err(error) => return Err((self, error)),
        };
        // The locks go first, as where a transaction is dropped. Not the engine: a request must
        // not hold what it is part of.
        let Self { locks, snapshot, for_update, _held, .. } = self;
        let kept = Box::new((locks, snapshot, for_update, _held));
        Ok(engine.requests().commit(admission, commit, kept))
    }

    /// Room for [`Transaction::commit_async`], as [`Db::has_room`](crate::Db::has_room) has it for
    /// other requests. One that is pessimistic waits only for commits of others like it.
    pub fn has_room(&self) -> HasRoom {
        self.engine.requests().has_room(self.locks.is_some())
    }

    /// What a transaction that wrote nothing has seen.
    fn moment_now(&self) -> Sequence {
        self.moment().unwrap_or_else(|| self.engine.snapshot().sequence())
    }

    /// Its writes, and what they build on.
    fn as_commit(&self) -> Result<Commit> {
        let for_update = self.for_update.iter().map(|(key, at)| (key.clone(), at.sequence()));
        let (isolation, moment) = (self.options.isolation, self.moment());
        let footprint = isolation.footprint(moment, &self.writes, for_update, &self.reads.lock());
        let settings = self.engine.settings();
        let (encoded, count) = self.writes.batch().freeze()?;
        Ok(Commit {
            encoded,
            count,
            durability: self.options.durability.unwrap_or(settings.durability),
            footprint,
            lock_timeout: lock_timeout(&self.engine, &self.options),
            has_locks: self.locks.is_some(),
        })
    }
}
