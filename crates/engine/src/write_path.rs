//! Writing: group commit by a leader, in sequence order.
//!
//! Writers line up; the first leads. The leader takes everyone in line, gives out sequences,
//! appends all batches to the log, commits the log once (with a sync if anyone wants one), inserts
//! the batches into the memtable and publishes the last sequence. Then the next in line leads. So
//! acknowledgements come in sequence order, one device flush serves everyone who waits, and a
//! writer that is alone pays for no hand-over.
//!
//! ```text
//!   admit (pacing) -> line up
//!   -> leader: room -> log append -> log commit -> memtable -> visible -> acknowledged
//! ```
//! A failed append or sync latches the store: the batches get the error and are not inserted. They
//! may still be found by a later recovery, as with any write whose acknowledgement was never seen.
//! A leader that panics latches the store too, and hands over before its panic goes on: those whose
//! batches it had taken and those who line up behind it get the error.

use crate::error::Result;
use crate::front::memtable::{ENTRY_OVERHEAD_BYTES, Memtable};
use crate::manifest::Edit;
use crate::settings::{Durability, MEMTABLES};
use crate::state::{Engine, Frozen, LogFile, ReadState};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex};
use thermocline_foundation::threads::{Panic, catch_panic};
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_log::{Durability as LogDurability, LogPosition};

/// Bytes of batches that one leader takes; more would make its own caller wait for the others.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A batch to write.
#[derive(Clone, Debug)]
struct Submission {
    encoded: Bytes,
    count: u32,
    durability: Durability,
}

/// Somebody waiting in line.
#[derive(Debug)]
struct Follower {
    submission: Submission,
    turn: Mutex<Option<Turn>>,
    changed: Condvar,
}

#[derive(Debug)]
enum Turn {
    Lead,
    Done(Result<()>),
}

impl Follower {
    fn wait(&self) -> Turn {
        let mut turn = self.turn.lock();
        loop {
            match turn.take() {
                Some(turn) => return turn,
                None => self.changed.wait(&mut turn),
            }
        }
    }

    fn set(&self, to: Turn) {
        *self.turn.lock() = Some(to);
        self.changed.notify_one();
    }
}

/// The line of writers.
#[derive(Debug, Default)]
pub(crate) struct WriteQueue {
    line: Mutex<Line>,
}

impl WriteQueue {
    /// Writers behind the one that leads.
    pub fn waiting(&self) -> u64 {
        self.line.lock().waiting.len() as u64
    }
}

#[derive(Debug, Default)]
struct Line {
    /// Somebody leads.
    led: bool,
    waiting: VecDeque<Arc<Follower>>,
}

/// What only the leader touches.
#[derive(Debug)]
pub(crate) struct Leader {
    pub last_sequence: Sequence,
    pub memtable: Arc<Memtable>,
    pub log: Arc<LogFile>,
}

/// What has to be synced to make everything written so far durable. Behind a lock of its own, which
/// is never held across I/O, so that syncs wait for no writer.
#[derive(Clone, Debug)]
pub(crate) struct LogTail {
    pub log: Arc<LogFile>,
    /// Where the last record ended in `log`.
    pub position: Option<LogPosition>,
    /// Logs before `log` that may not be durable to their end: a record is durable only when all
    /// before it are, so they come first.
    pub unsealed: Vec<Arc<LogFile>>,
}

impl LogTail {
    pub fn new(log: Arc<LogFile>) -> Self {
        Self { log, position: None, unsealed: Vec::new() }
    }

    fn seal_older(&self) -> Result<()> {
        self.unsealed.iter().try_for_each(|log| log.seal())
    }

    /// Makes everything up to the tail durable.
    fn sync(&self) -> Result<()> {
        if !planted(Planted::OlderLogsNotSynced) {
            self.seal_older()?;
        }
        // Writers go on meanwhile; a rotation may seal the log first, which does no harm.
        match self.position {
            Some(position) => Ok(self.log.writer.commit(position, LogDurability::Sync)?),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Applies an encoded batch; returns when it is as durable as asked and visible.
    pub fn write(&self, encoded: Bytes, count: u32, durability: Durability) -> Result<()> {
        self.latch.check()?;
        self.pacing.admit(encoded.len(), || self.latch.check().is_err());
        let submission = Submission { encoded, count, durability };
        let follower = {
            let mut line = self.queue.line.lock();
            if line.led {
                let (turn, changed) = (Mutex::new(None), Condvar::new());
                let follower = Arc::new(Follower { submission, turn, changed });
                line.waiting.push_back(Arc::clone(&follower));
                follower
            } else {
                line.led = true;
                drop(line);
                let led = self.lead_caught(std::slice::from_ref(&submission));
                self.hand_over();
                return led.unwrap_or_else(|panic| panic.resume());
            }
        };
        match follower.wait() {
            Turn::Done(result) => result,
            Turn::Lead => self.lead_group(),
        }
    }

    /// Leads with whoever is in line; the caller is the first of them.
    fn lead_group(&self) -> Result<()> {
        let mut followers = Vec::new();
        let mut bytes = 0;
        {
            let mut line = self.queue.line.lock();
            while let Some(next) = line.waiting.front() {
                bytes += next.submission.encoded.len();
                if bytes > GROUP_BYTES_MAX && !followers.is_empty() {
                    break;
                }
                followers.extend(line.waiting.pop_front());
            }
        }
        let group: Vec<_> = followers.iter().map(|follower| follower.submission.clone()).collect();
        let led = self.lead_caught(&group);
        self.hand_over();
        let result = led.as_ref().map_or_else(|_| self.latch.check(), Clone::clone);
        for follower in &followers[1..] {
            follower.set(Turn::Done(result.clone()));
        }
        led.unwrap_or_else(|panic| panic.resume())
    }

    /// As [`Engine::lead`]; where it panics, the panic, which is for the caller to let go on.
    /// Writing has stopped then.
    fn lead_caught(&self, group: &[Submission]) -> Result<Result<()>, Panic> {
        let led = catch_panic(|| self.lead(group));
        led.inspect_err(|panic| self.fail_by_panic("a writer", &panic.to_string()))
    }

    fn hand_over(&self) {
        let mut line = self.queue.line.lock();
        match line.waiting.front() {
            Some(next) => next.set(Turn::Lead),
            None => line.led = false,
        }
    }

    fn lead(&self, group: &[Submission]) -> Result<()> {
        let mut leader = self.leader.lock();
        self.latch.check()?;
        // Who gets the lock after a panic must not make a table of half a batch.
        let _guard = self.latch.guard();
        let bytes = group.iter().map(|submission| submission.encoded.len() as u64).sum();
        let count = group.iter().map(|submission| u64::from(submission.count)).sum::<u64>();
        self.make_room(&mut leader, bytes)?;
        self.ask_memory_back(&leader, bytes + count * ENTRY_OVERHEAD_BYTES);
        let first = leader.last_sequence.next();
        if let Err(error) = self.log_group(&mut leader, group) {
            self.fail(&error);
            return Err(error);
        }
        let mut next = first;
        for submission in group {
            leader.memtable.insert_batch(next, &submission.encoded)?;
            next = Sequence(next.0 + u64::from(submission.count));
        }
        leader.last_sequence = Sequence(next.0 - 1);
        self.visible.store(leader.last_sequence.0, Ordering::Release);
        self.metrics.written_bytes.add(bytes);
        self.metrics.writes.add(next.0 - first.0);
        Ok(())
    }

    fn log_group(&self, leader: &mut Leader, group: &[Submission]) -> Result<()> {
        let mut next = leader.last_sequence.next();
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
        let bound = self.settings.background_sync_bytes.0;
        let asked = group.iter().any(|submission| submission.durability == Durability::Sync);
        let asked = asked && !planted(Planted::AcknowledgedBeforeFlush);
        // Past twice the bound the background sync did not keep up, and the bound is a promise.
        if asked || unsynced >= 2 * bound {
            return self.sync_tail();
        }
        leader.log.writer.commit(position, LogDurability::Buffered)?;
        if unsynced >= bound && !self.sync_wanted.swap(true, Ordering::Relaxed) {
            self.jobs.wake();
        }
        Ok(())
    }

    fn make_room(&self, leader: &mut Leader, bytes: u64) -> Result<()> {
        let full = leader.memtable.bytes() + bytes > self.settings.division().memtable_bytes;
        if full && leader.memtable.count() > 0 {
            self.wait_for_room()?;
            self.rotate(leader)?;
        }
        Ok(())
    }

    /// Asks back what was lent to records and the memtable needs, which is to grow by `bytes`.
    fn ask_memory_back(&self, leader: &Leader, bytes: u64) {
        let active_bytes = leader.memtable.bytes() + bytes;
        if let Some(fast) = &self.fast
            && fast.memory.is_short_for_active(active_bytes)
        {
            self.lend_memory_beside(fast, active_bytes);
        }
    }

    /// Waits until the memory budget has room for another memtable.
    fn wait_for_room(&self) -> Result<()> {
        let full = |engine: &Self| engine.read_state.load().frozen.len() as u64 >= MEMTABLES - 1;
        if !full(self) {
            return Ok(());
        }
        let start = self.clock.now_ns();
        let mut switching = self.switching.lock();
        while full(self) {
            self.latch.check()?;
            self.jobs.wait(&self.room, &mut switching);
        }
        self.metrics.stalled_ns.add(self.clock.now_ns() - start);
        Ok(())
    }

    /// Freezes the active memtable and goes on with an empty one and the next log.
    pub fn rotate(&self, leader: &mut Leader) -> Result<()> {
        let next = self.next_log(leader.log.number);
        let log = next.inspect_err(|error| self.fail(error))?;
        let memtable = Arc::new(Memtable::new());
        let frozen = Arc::new(Frozen {
            memtable: std::mem::replace(&mut leader.memtable, Arc::clone(&memtable)),
            log: std::mem::replace(&mut leader.log, log),
            next_log: leader.log.number,
            claimed: AtomicBool::new(false),
        });
        {
            let mut tail = self.tail.lock();
            let mut unsealed = std::mem::take(&mut tail.unsealed);
            unsealed.retain(|log| !log.is_sealed());
            unsealed.push(Arc::clone(&frozen.log));
            *tail = LogTail { unsealed, ..LogTail::new(Arc::clone(&leader.log)) };
        }
        self.switch(|state| ReadState {
            active: memtable,
            frozen: std::iter::once(Arc::clone(&frozen))
                .chain(state.frozen.iter().cloned())
                .collect(),
            levels: Arc::clone(&state.levels),
            ended_load: state.ended_load,
        });
        if let Some(fast) = &self.fast {
            fast.memory.active_was_frozen();
        }
        self.jobs.wake();
        Ok(())
    }

    /// Freezes the active memtable unless it is empty, and waits until it and those before it are
    /// in tables.
    pub fn flush(&self) -> Result<()> {
        {
            let mut leader = self.leader.lock();
            self.latch.check()?;
            self.freeze(&mut leader)?;
        }
        self.wait_for_flushes()
    }

    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&self, leader: &mut Leader) -> Result<()> {
        if leader.memtable.count() > 0 {
            self.wait_for_room()?;
            self.rotate(leader)?;
        }
        Ok(())
    }

    /// Waits until every frozen memtable is flushed, but for those that `is_excepted`.
    pub fn wait_until_flushed(&self, is_excepted: impl Fn(&Frozen) -> bool) -> Result<()> {
        let waits = || !self.read_state.load().frozen.iter().all(|frozen| is_excepted(frozen));
        let mut switching = self.switching.lock();
        while waits() {
            self.latch.check()?;
            self.jobs.wait(&self.room, &mut switching);
        }
        Ok(())
    }

    /// Waits until the newest memtable that is frozen now is in a table. Flushes go oldest first.
    fn wait_for_flushes(&self) -> Result<()> {
        let Some(newest) = self.read_state.load().frozen.first().cloned() else { return Ok(()) };
        self.wait_until_flushed(|frozen| !std::ptr::eq(frozen, &*newest))
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.latch.check()?;
        self.sync_tail().inspect_err(|error| self.fail(error))
    }

    /// As [`Engine::sync`], for callers that see to the latch themselves.
    pub fn sync_tail(&self) -> Result<()> {
        // Counted before the tail is looked at, so what is taken off below was synced.
        let covered = self.unsynced_bytes.load(Ordering::Acquire);
        let tail = self.tail.lock().clone();
        tail.sync()?;
        let less = |unsynced: u64| Some(unsynced.saturating_sub(covered));
        // Two syncs may have covered the same bytes.
        let _ = self.unsynced_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(())
    }

    /// Stops writers, brings everything into tables, and runs `body` with a sequence of its own.
    /// For ingest: what it adds is newer than all before and older than all after.
    pub fn with_writers_stopped<T>(&self, body: impl FnOnce(Sequence) -> Result<T>) -> Result<T> {
        let mut leader = self.leader.lock();
        self.latch.check()?;
        // The log is about to have a sequence that the manifest must have before any later one.
        let _guard = self.latch.guard();
        self.freeze(&mut leader)?;
        self.wait_for_flushes()?;
        let sequence = leader.last_sequence.next();
        // The log must have the sequence too, or recovery would take the next record for one after
        // a hole.
        let reserved = crate::WriteBatch::new().freeze()?.0;
        let submission = Submission { encoded: reserved, count: 1, durability: Durability::Sync };
        self.log_group(&mut leader, &[submission]).inspect_err(|error| self.fail(error))?;
        leader.last_sequence = sequence;
        let result = body(sequence).inspect_err(|_| {
            // The log says that the sequence was taken, so the manifest must too: recovery takes a
            // later record for proof that it once did. Failing, this stops all writing.
            let edit = Edit { last_sequence: Some(sequence), ..Edit::default() };
            let _ = self.commit(&mut self.tables.lock(), edit, None);
        })?;
        self.visible.store(sequence.0, Ordering::Release);
        Ok(result)
    }

    /// Ends the log for a clean close. Whoever waited with the leader's lock has been sent away.
    pub fn seal_logs(&self) -> Result<()> {
        let leader = self.leader.lock();
        let tail = self.tail.lock().clone();
        tail.seal_older()?;
        leader.log.seal()
    }
}
