//! The front of the presets with a log: group commit by a leader, in sequence order.
//!
//! ```text
//!   admit (write throttle) -> line up (queue.rs)
//!   -> leader: room, in memory and of the log -> sequences claimed -> log append -> log commit,
//!      with a sync if a writer wants one -> memtable -> sequences published -> acknowledged
//! ```
//! Where the log's device has no more room, the next log takes the batches, which is made on a tier
//! that has. Where none has, the writers wait for what flushes give back, and get an error where
//! there is nothing to wait for: no sequence was claimed, and nothing written.
//!
//! A failed append or sync latches the store: the batches get the error and are not inserted. They
//! may still be found by a later recovery, as with any write whose acknowledgement was never seen.
//! A leader that panics latches the store too, and hands over before its panic goes on: the writers
//! whose batches it had taken and those that line up behind it get the error.

use super::log_pool::LogPool;
use super::log_tail::LogTail;
use super::queue::{Entered, Submission, Turn, WriteQueue};
use crate::batch::WriteBatch;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::log_file::LogFile;
use crate::generations::memtable::{ENTRY_OVERHEAD_BYTES, Memtable};
use crate::generations::{Frozen, Generation};
use crate::limits::MEMTABLES;
use crate::settings::Durability;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::versions::window::Group;
use crate::versions::{Change, Version, Versions};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{ErrorKind as DeviceErrorKind, Purpose};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::threads::{Panic, catch_panic};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_log::Durability as LogDurability;

/// What only the leader touches.
#[derive(Debug)]
pub(super) struct Leader {
    memtable: Arc<Memtable>,
    log: Arc<LogFile>,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Logged {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    pool: Arc<LogPool>,
    queue: WriteQueue,
    leader: Mutex<Leader>,
    tail: Mutex<LogTail>,
    /// Log bytes that no sync covers yet.
    unsynced_bytes: AtomicU64,
    sync_wanted: AtomicBool,
}

impl Logged {
    /// Writes go to `log`, and to the active memtable of `versions`.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        pool: Arc<LogPool>,
        log: Arc<LogFile>,
    ) -> Self {
        let memtable = Arc::clone(&versions.current().active);
        Self {
            shared: Arc::clone(shared),
            versions: Arc::clone(versions),
            pool,
            queue: WriteQueue::default(),
            tail: Mutex::new(LogTail::new(Arc::clone(&log))),
            leader: Mutex::new(Leader { memtable, log }),
            unsynced_bytes: AtomicU64::new(0),
            sync_wanted: AtomicBool::new(false),
        }
    }

    /// Applies an encoded batch; returns when it is as durable as asked and visible.
    pub fn write(&self, encoded: Bytes, count: u32, durability: Durability) -> Result<()> {
        self.shared.latch.check()?;
        self.shared.write_throttle.admit(encoded.len(), || self.shared.latch.check().is_err());
        let waiter = match self.queue.enter(Submission { encoded, count, durability }) {
            Entered::Waits(waiter) => waiter,
            Entered::Leads(submission) => {
                let led = self.lead_caught(std::slice::from_ref(&submission));
                self.queue.hand_over();
                return led.unwrap_or_else(|panic| panic.resume());
            }
        };
        match waiter.wait() {
            Turn::Done(result) => result,
            Turn::Lead => self.lead_group(),
        }
    }

    /// Leads with the batches in line; the caller's is the first of them.
    fn lead_group(&self) -> Result<()> {
        let waiters = self.queue.take_group();
        let group: Vec<_> = waiters.iter().map(|waiter| waiter.submission.clone()).collect();
        let led = self.lead_caught(&group);
        self.queue.hand_over();
        let result = led.as_ref().map_or_else(|_| self.shared.latch.check(), Clone::clone);
        for waiter in &waiters[1..] {
            waiter.set(Turn::Done(result.clone()));
        }
        led.unwrap_or_else(|panic| panic.resume())
    }

    /// As [`Logged::lead`]; where it panics, the panic, which is for the caller to let go on.
    /// Writing has stopped then.
    fn lead_caught(&self, group: &[Submission]) -> Result<Result<()>, Panic> {
        let led = catch_panic(|| self.lead(group));
        led.inspect_err(|panic| self.shared.fail_by_panic("a writer", &panic.to_string()))
    }

    fn lead(&self, group: &[Submission]) -> Result<()> {
        let mut leader = self.leader.lock();
        self.shared.latch.check()?;
        // The thread that gets the lock after a panic must not make a table of half a batch.
        let _guard = self.shared.latch.guard();
        let bytes = group.iter().map(|submission| submission.encoded.len() as u64).sum();
        let count = group.iter().map(|submission| u64::from(submission.count)).sum::<u64>();
        self.make_room(&mut leader, bytes)?;
        self.ask_for_log_room(&mut leader, group.len() as u64, bytes)?;
        let grown_bytes = bytes + count * ENTRY_OVERHEAD_BYTES;
        self.versions.memtable_grows(leader.memtable.bytes() + grown_bytes);
        let claimed = self.versions.window.claim(count);
        let logged = self.log_group(&leader, group, &claimed);
        logged.inspect_err(|error| self.shared.fail(error))?;
        let mut next = claimed.first();
        for submission in group {
            leader.memtable.insert_batch(next, &submission.encoded)?;
            next = Sequence(next.0 + u64::from(submission.count));
        }
        self.versions.window.publish(claimed);
        self.shared.counts.written_bytes.add(bytes);
        self.shared.counts.writes.add(count);
        Ok(())
    }

    fn log_group(&self, leader: &Leader, group: &[Submission], claimed: &Group) -> Result<()> {
        let mut next = claimed.first();
        let mut position = None;
        let mut bytes = 0;
        for submission in group {
            position =
                Some(leader.log.writer.append(next, submission.count, &submission.encoded)?);
            next = Sequence(next.0 + u64::from(submission.count));
            bytes += submission.encoded.len() as u64;
        }
        let Some(position) = position else { return Ok(()) };
        self.tail.lock().position = Some(position);
        let unsynced = self.unsynced_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let bound = self.shared.settings.background_sync_bytes.0;
        let asked = group.iter().any(|submission| submission.durability == Durability::Sync);
        let asked = asked && !planted(Planted::AcknowledgedBeforeFlush);
        // Past twice the bound the background sync did not keep up, and the bound is a promise.
        if asked || unsynced >= 2 * bound {
            return sync_site("write", || self.sync_tail());
        }
        leader.log.writer.commit(position, LogDurability::Buffered)?;
        if unsynced >= bound && !self.sync_wanted.swap(true, Ordering::Relaxed) {
            self.shared.jobs.wake();
        }
        Ok(())
    }

    fn make_room(&self, leader: &mut Leader, bytes: u64) -> Result<()> {
        let full = leader.memtable.bytes() + bytes > self.shared.settings.division().memtable_bytes;
        if full && leader.memtable.count() > 0 {
            self.wait_for_room()?;
            self.rotate(leader)?;
        }
        Ok(())
    }

    /// Has the log keep room for what is about to be appended, or the log that follows.
    fn ask_for_log_room(&self, leader: &mut Leader, records: u64, bytes: u64) -> Result<()> {
        // One may have been ready, for fewer bytes.
        let mut logs_left = 1 + self.shared.files.tiers().len();
        loop {
            match leader.log.writer.ask_for_room(records, bytes) {
                Err(error) if error.kind() == DeviceErrorKind::OutOfSpace && logs_left > 0 => {
                    tracing::info!(%error, "the next log takes what is written");
                }
                asked => {
                    let asked = asked.map_err(Error::from);
                    return asked.inspect_err(|error| self.shared.fail_unless_refused(error));
                }
            }
            logs_left -= 1;
            self.wait_for_room()?;
            self.rotate(leader)?;
        }
    }

    /// The log that follows `current`. Where no tier has room for it, waits for what flushes of full
    /// memtables give back.
    fn next_log(&self, current: FileNumber) -> Result<Arc<LogFile>> {
        loop {
            let next = self.pool.next_log(current);
            let is_full =
                next.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
            if !is_full || self.versions.current().frozen.is_empty() {
                // Refused, the writer gets the error, and the log goes on.
                return next.inspect_err(|error| self.shared.fail_unless_refused(error));
            }
            self.versions.wait_for_flushes()?;
        }
    }

    /// Waits until the memory budget has room for another memtable.
    fn wait_for_room(&self) -> Result<()> {
        let has_room = |version: &Version| (version.frozen.len() as u64) < MEMTABLES - 1;
        if has_room(&self.versions.current()) {
            return Ok(());
        }
        let start = self.shared.clock.now_ns();
        self.versions.wait_until(has_room)?;
        self.shared.counts.stalled_ns.add(self.shared.clock.now_ns() - start);
        Ok(())
    }

    /// Freezes the active memtable and goes on with an empty one and the next log.
    fn rotate(&self, leader: &mut Leader) -> Result<()> {
        let next = self.next_log(leader.log.number)?;
        let memtable = Arc::new(Memtable::new());
        let log = std::mem::replace(&mut leader.log, Arc::clone(&next));
        self.tail.lock().follow(&log, &next);
        let frozen = Arc::new(Frozen {
            memtable: std::mem::replace(&mut leader.memtable, Arc::clone(&memtable)),
            generation: Generation::of_log(log, next.number),
            claimed: AtomicBool::new(false),
        });
        self.versions.freeze(frozen, memtable);
        Ok(())
    }

    /// Freezes the active memtable unless it is empty.
    fn freeze(&self, leader: &mut Leader) -> Result<()> {
        if leader.memtable.count() > 0 {
            self.wait_for_room()?;
            self.rotate(leader)?;
        }
        Ok(())
    }

    /// Waits until no write is in flight, and keeps writers out.
    pub fn quiesce(&self) -> Result<Quiet<'_>> {
        let quiet = self.enter();
        self.shared.latch.check()?;
        Ok(quiet)
    }

    /// As [`Logged::quiesce`], also where the store is latched.
    pub fn enter(&self) -> Quiet<'_> {
        Quiet { logged: self, leader: self.leader.lock() }
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.shared.latch.check()?;
        self.sync_tail().inspect_err(|error| self.shared.fail(error))
    }

    /// As [`Logged::sync`], for callers that see to the latch themselves.
    pub(super) fn sync_tail(&self) -> Result<()> {
        // Counted before the tail is looked at, so what is taken off below was synced.
        let covered = self.unsynced_bytes.load(Ordering::Acquire);
        let tail = self.tail.lock().clone();
        tail.sync()?;
        let less = |unsynced: u64| Some(unsynced.saturating_sub(covered));
        // Two syncs may have covered the same bytes.
        let _ = self.unsynced_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(())
    }

    /// Claims the background sync of the log, where it is wanted.
    pub(super) fn claim_sync(&self) -> bool {
        self.sync_wanted.swap(false, Ordering::Relaxed)
    }

    /// Claims the preparation of the next log, where it is wanted.
    pub(super) fn claim_preparation(&self) -> bool {
        self.pool.claim_preparation()
    }

    /// Makes the log that the next memtable begins with.
    pub(super) fn prepare_log(&self) -> Result<()> {
        self.pool.prepare_log()
    }

    /// Deletes the logs that wait to be used; false where there are none.
    pub fn give_up_logs(&self) -> Result<bool> {
        self.pool.give_up_logs()
    }

    /// The log waits to be used again: it holds nothing any more.
    pub fn is_retired(&self, log: FileNumber) -> bool {
        self.pool.is_retired(log)
    }

    /// Bytes of logs that no sync has covered yet.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes.load(Ordering::Relaxed)
    }

    /// Logs that the pool counts as there.
    pub fn counted_logs(&self) -> u64 {
        self.pool.counted()
    }

    /// Writers in line behind the leader.
    pub fn waiting_writers(&self) -> u64 {
        self.queue.waiting()
    }

    /// The pool of logs, for a test that keeps the background from it.
    #[cfg(test)]
    pub fn pool(&self) -> &Arc<LogPool> {
        &self.pool
    }
}

/// Nothing is in flight, and no writer comes in, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Quiet<'a> {
    logged: &'a Logged,
    leader: MutexGuard<'a, Leader>,
}

impl Quiet<'_> {
    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&mut self) -> Result<()> {
        self.logged.freeze(&mut self.leader)
    }

    /// Freezes the active memtable, which has records.
    #[cfg(test)]
    pub fn rotate(&mut self) -> Result<()> {
        self.logged.rotate(&mut self.leader)
    }

    /// The log of the active memtable. Later ones have larger numbers.
    pub fn log_number(&self) -> FileNumber {
        self.leader.log.number
    }

    /// Hands all that was appended to the driver, so that a concurrent sync has nothing left to
    /// write.
    pub fn hand_over_log(&self) -> Result<()> {
        let position = self.logged.tail.lock().position;
        if let (Some(position), Ok(())) = (position, self.logged.shared.latch.check()) {
            self.leader.log.writer.commit(position, LogDurability::Buffered)?;
        }
        Ok(())
    }

    /// Brings everything into tables, and runs `body` with a sequence of its own: what it adds is
    /// newer than all before and older than all after.
    pub fn with_sequence<T>(mut self, body: impl FnOnce(Sequence) -> Result<T>) -> Result<T> {
        let Logged { shared, versions, .. } = self.logged;
        // The log is about to have a sequence that the manifest must have before any later one.
        let _guard = shared.latch.guard();
        self.freeze()?;
        versions.wait_for_flushes()?;
        // The log must have the sequence too, or recovery would take the next record for one after
        // a hole.
        let reserved = WriteBatch::new().freeze()?.0;
        self.logged.ask_for_log_room(&mut self.leader, 1, reserved.len() as u64)?;
        let claimed = versions.window.claim(1);
        let sequence = claimed.first();
        let submission = Submission { encoded: reserved, count: 1, durability: Durability::Sync };
        let logged = self.logged.log_group(&self.leader, &[submission], &claimed);
        logged.inspect_err(|error| shared.fail(error))?;
        let result = body(sequence).inspect_err(|_| {
            // The log says that the sequence was taken, so the manifest must too: recovery takes a
            // later record for proof that it once did. Failing, this stops all writing.
            let edit = Edit { last_sequence: Some(sequence), ..Edit::default() };
            let change = Change { edit, purpose: Purpose::Release, ..Change::default() };
            let committed = versions.commit(&mut versions.tables(), change);
            let _ = committed.inspect_err(|error| shared.fail(error));
        });
        match &result {
            Ok(_) => versions.window.publish(claimed),
            // It stays a sequence that no record has, and readers pass it with the next one.
            Err(_) => versions.window.skip(claimed),
        }
        result
    }

    /// Ends the logs for a clean close. The latch has sent all waiting writers away.
    pub fn seal(self) -> Result<()> {
        let tail = self.logged.tail.lock().clone();
        sync_site("closing", || {
            tail.seal_older()?;
            self.leader.log.seal()
        })
    }
}
