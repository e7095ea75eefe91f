//! The bounded queue of asynchronous requests: a line of writes, one for each kind of read, and the
//! threads that sleep until something is in them.
//!
//! Invariants:
//! 1. A request counts from its admission until just before its ticket is answered. One is admitted
//!    while fewer than the bound count (`held.rs`), and fewer bytes: so at most one of each kind is
//!    over its bound of bytes, and none is so long that it is never admitted.
//! 2. Each line is taken from in order of arrival; those of writes are in `writes.rs`.
//! 3. A thread that sleeps is signalled once for a request; no thread sleeps while a line that it
//!    may take from has one, nor wakes without a cause.
//! 4. Nothing is admitted after the end; what was admitted before is still taken.
//! 5. No wakers are called, cloned or dropped, and nothing is carried out, under the lock.
//!
//! Threads: callers put in, workers take out; any number of both.

use super::crew::{Crew, Start};
use super::held::{Held, Share};
use super::report::RequestStats;
use super::schedule::{Line, READ_KINDS, ReadKind};
use super::ticket::wake;
use super::writes::{Write, WriteLines};
use crate::environment::experiments::RequestSchedule;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;
use std::collections::VecDeque;
use std::fmt;
use std::task::Waker;
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::threads::JoinHandle;

/// Bytes of batches that a logger takes as one group; a longer batch goes alone.
const GROUP_BYTES_MAX: u64 = 256 << 10;

/// A read in line.
pub(super) struct ReadRequest {
    pub kind: ReadKind,
    pub work: Reading,
}

/// What is read.
pub(super) enum Reading {
    /// For the caller; with what it counts for.
    Answer(Box<dyn Work>, Share),
    /// What this write builds on, which goes on to the line of writes.
    Look(Write),
}

/// What a reader does for a request.
pub(super) trait Work: Send {
    /// Reads, calls `release`, and answers the ticket.
    fn carry_out(self: Box<Self>, release: &mut dyn FnMut());
}

/// Writes that a logger has taken, in order of arrival.
#[derive(Debug)]
pub(super) struct Group {
    /// Counts up by one from group to group.
    pub number: u64,
    pub writes: Vec<Write>,
}

struct State {
    writes: WriteLines,
    reads: [VecDeque<ReadRequest>; READ_KINDS],
    lines: [Line; READ_KINDS],
    /// Requests that were admitted and are not answered, and tasks that wait for room.
    held: Held,
    loggers: Crew,
    loggers_busy: usize,
    /// Loggers that may be at work.
    loggers_wanted: usize,
    readers: Crew,
    lockers: Crew,
    next_group: u64,
    has_ended: bool,
    counts: RequestStats,
}

/// A write that was refused, and why.
pub(super) type Returned = Box<(Write, Error)>;

/// See the module's header.
pub(super) struct Queue {
    schedule: RequestSchedule,
    /// What a page counts for at most.
    bytes_max: u64,
    group_bytes_max: u64,
    readers_max: usize,
    loggers_max: usize,
    state: Mutex<State>,
    /// For loggers, and for a caller that closes.
    writes_came: Condvar,
    reads_came: Condvar,
    /// For the thread that takes locks.
    set_aside: Condvar,
}

impl State {
    /// Nothing is in line.
    fn new(settings: &Settings) -> Self {
        Self {
            writes: WriteLines::default(),
            reads: Default::default(),
            lines: Default::default(),
            held: Held::new(settings),
            loggers: Crew::default(),
            loggers_busy: 0,
            loggers_wanted: 1,
            readers: Crew::default(),
            lockers: Crew::default(),
            next_group: 0,
            has_ended: false,
            counts: RequestStats::default(),
        }
    }

    fn hold_write(&mut self, share: &Share) {
        self.held.add(share);
        self.counts.writes += 1;
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.stats()).finish()
    }
}

impl Queue {
    /// An empty queue, with the bounds of `settings`.
    pub fn new(settings: &Settings, schedule: RequestSchedule) -> Self {
        Self {
            schedule,
            bytes_max: settings.request_queue_bytes.0,
            group_bytes_max: GROUP_BYTES_MAX.min(settings.group_bytes()),
            readers_max: settings.request_workers(),
            loggers_max: settings.loggers_max as usize,
            state: Mutex::new(State::new(settings)),
            writes_came: Condvar::new(),
            reads_came: Condvar::new(),
            set_aside: Condvar::new(),
        }
    }

    /// The state, where one more request, which may come with locks, has room in it.
    fn admit(&self, has_locks: bool) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is closed"));
        }
        if state.held.has_room(has_locks) {
            return Ok(state);
        }
        state.counts.refused += 1;
        let refusal = state.held.refusal(has_locks, state.writes.waiting_for_locks());
        // Those that are told call again soon: the text is not made under the lock.
        drop(state);
        Err(Error::new(ErrorKind::Busy, refusal.to_string()))
    }

    /// Admits a write of `bytes` that is lined up later, by [`Queue::line_up`] or
    /// [`Queue::push_look`]. It may have its locks.
    pub fn admit_write(&self, bytes: u64, has_locks: bool) -> Result<Share> {
        let share = Share::of_write(bytes, has_locks);
        self.admit(has_locks)?.hold_write(&share);
        Ok(share)
    }

    /// Lines a write up and calls a logger; gives the write back where it is refused. Without
    /// `start` callers carry requests out, and no thread is called.
    pub fn push_write(&self, write: Write, start: Option<Start<'_>>) -> Result<(), Returned> {
        let mut state = match self.admit(false) {
            Ok(state) => state,
            Err(error) => return Err(Box::new((write, error))),
        };
        if let Err(error) = self.call_logger(&mut state, start) {
            return Err(Box::new((write, error)));
        }
        state.hold_write(&write.share);
        state.writes.push(write);
        Ok(())
    }

    /// As [`Queue::push_write`], for a write that was admitted.
    pub fn line_up(&self, write: Write, start: Option<Start<'_>>) -> Result<(), Returned> {
        let mut state = self.state.lock();
        match self.call_logger(&mut state, start) {
            Ok(()) => state.writes.push(write),
            Err(error) => return Err(Box::new((write, error))),
        }
        self.tell_closer(&state);
        Ok(())
    }

    fn call_logger(&self, state: &mut State, start: Option<Start<'_>>) -> Result<()> {
        let Some(start) = start.filter(|_| !state.has_ended) else { return Ok(()) };
        let (wanted, busy) = (state.loggers_wanted, state.loggers_busy);
        let wanted = self.schedule.loggers_after_write(wanted, busy, self.loggers_max);
        state.loggers_wanted = wanted;
        if busy < wanted && state.loggers.call(wanted, start)? {
            self.writes_came.notify_one();
        }
        Ok(())
    }

    /// Where a caller closes, it carries out what comes up meanwhile.
    fn tell_closer(&self, state: &State) {
        if state.has_ended {
            self.writes_came.notify_all();
        }
    }

    /// Lines up a write that was admitted, for a look at what it builds on.
    pub fn push_look(&self, write: Write, start: Option<Start<'_>>) -> Result<(), Returned> {
        let mut state = self.state.lock();
        if let Some(start) = start.filter(|_| !state.has_ended) {
            match state.readers.call(self.readers_max, start) {
                Ok(true) => self.reads_came.notify_one(),
                Ok(false) => {}
                Err(error) => return Err(Box::new((write, error))),
            }
        }
        let kind = ReadKind::Look;
        state.lines[kind as usize].length += 1;
        state.counts.looks += 1;
        let work = Reading::Look(write);
        state.reads[kind as usize].push_back(ReadRequest { kind, work });
        self.tell_closer(&state);
        Ok(())
    }

    /// Lines up what `work` gives and calls a reader, as [`Queue::push_write`] does for writes.
    /// `work` is not asked where the request is refused. One of more `bytes` than all may have
    /// counts for these.
    pub fn push_read(
        &self,
        (kind, bytes): (ReadKind, u64),
        work: impl FnOnce() -> Box<dyn Work>,
        start: Option<Start<'_>>,
    ) -> Result<()> {
        let mut state = self.admit(false)?;
        if let Some(start) = start
            && state.readers.call(self.readers_max, start)?
        {
            self.reads_came.notify_one();
        }
        let share = Share::of_read(bytes.min(self.bytes_max));
        let work = Reading::Answer(work(), share);
        state.held.add(&share);
        match kind {
            ReadKind::Get => state.counts.gets += 1,
            ReadKind::Page => state.counts.pages += 1,
            ReadKind::Look => unreachable!("looks are lined up by `push_look`"),
        }
        state.lines[kind as usize].length += 1;
        state.reads[kind as usize].push_back(ReadRequest { kind, work });
        Ok(())
    }

    /// Sleeps until a write waits that the calling logger may take; false at the end.
    pub fn begin_logging(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            let may_log = state.loggers_busy < state.loggers_wanted || state.has_ended;
            if may_log && state.writes.may_be_taken() {
                state.loggers_busy += 1;
                return true;
            }
            if state.has_ended {
                return false;
            }
            state.loggers.sleeps();
            self.writes_came.wait(&mut state);
            state.loggers.has_woken();
        }
    }

    /// The logger that has begun is through, and `has_written` a group or found nothing.
    pub fn end_logging(&self, has_written: bool) {
        let mut state = self.state.lock();
        state.loggers_busy -= 1;
        if !has_written {
            state.loggers_wanted = self.schedule.loggers_after_nothing(state.loggers_wanted);
        }
    }

    /// Takes the writes that wait, or the first of them; none where none waits. Where they
    /// `need_locks`, those without are set aside, as of `now_ns`, and a thread is called that takes
    /// them.
    pub fn take_writes(
        &self,
        need_locks: bool,
        now_ns: impl FnOnce() -> u64,
        start: Option<Start<'_>>,
    ) -> Option<Group> {
        let mut state = self.state.lock();
        if state.writes.set_aside(need_locks, now_ns) {
            self.call_locker(&mut state, start);
        }
        let writes = state.writes.take(self.group_bytes_max);
        if writes.is_empty() {
            return None;
        }
        let number = state.next_group;
        state.next_group += 1;
        let count = writes.len() as u64;
        state.counts.groups += 1;
        state.counts.grouped_writes += count;
        state.counts.largest_group = state.counts.largest_group.max(count);
        Some(Group { number, writes })
    }

    fn call_locker(&self, state: &mut State, start: Option<Start<'_>>) {
        if let Some(start) = start.filter(|_| !state.has_ended) {
            match state.lockers.call(1, start) {
                Ok(true) => self.set_aside.notify_one(),
                Ok(false) => {}
                // Then loggers do it, see `Queue::lacks_locker`.
                Err(error) => tracing::warn!(%error, "no thread of its own takes locks"),
            }
        }
        self.tell_closer(state);
    }

    /// Sleeps until a write needs locks, and takes it; none at the end.
    pub fn next_without_locks(&self) -> Option<Write> {
        let mut state = self.state.lock();
        loop {
            if let Some(write) = state.writes.begin_locking() {
                return Some(write);
            }
            if state.has_ended {
                return None;
            }
            state.lockers.sleeps();
            self.set_aside.wait(&mut state);
            state.lockers.has_woken();
        }
    }

    /// A write needs locks, no thread is there to take them, and none can be written first: one
    /// that can may hold them.
    pub fn lacks_locker(&self) -> bool {
        let state = self.state.lock();
        let has_thread = !state.lockers.threads.is_empty();
        !has_thread && state.writes.wants_locks() && !state.writes.may_be_taken()
    }

    /// Takes a write that needs locks, if one waits and no other thread is at it.
    pub fn try_next_without_locks(&self) -> Option<Write> {
        self.state.lock().writes.begin_locking()
    }

    /// A write that was set aside has its locks, or none: then it is given back, to be answered.
    /// Calls a logger.
    pub fn end_locking(
        &self,
        locked: Result<Write, Write>,
        start: Option<Start<'_>>,
    ) -> Option<Write> {
        let mut state = self.state.lock();
        let refused = state.writes.end_locking(locked);
        // There is a logger: one has set the write aside.
        if let Err(error) = self.call_logger(&mut state, start) {
            tracing::warn!(%error, "no further logger");
        }
        self.tell_closer(&state);
        refused
    }

    /// Sleeps until a read waits, and takes it; none at the end.
    pub fn next_read(&self) -> Option<ReadRequest> {
        let mut state = self.state.lock();
        loop {
            if let Some(read) = self.take_read(&mut state) {
                return Some(read);
            }
            if state.has_ended {
                return None;
            }
            state.readers.sleeps();
            self.reads_came.wait(&mut state);
            state.readers.has_woken();
        }
    }

    /// Takes a read, if one waits.
    pub fn try_next_read(&self) -> Option<ReadRequest> {
        self.take_read(&mut self.state.lock())
    }

    fn take_read(&self, state: &mut State) -> Option<ReadRequest> {
        let line = self.schedule.choose(&mut state.lines)?;
        state.reads[line].pop_front()
    }

    /// A reader has measured how long a read took.
    pub fn note_time(&self, kind: ReadKind, elapsed_ns: u64) {
        self.state.lock().lines[kind as usize].took(elapsed_ns);
    }

    /// Requests are about to be answered: they count no more.
    pub fn release(&self, share: &Share) {
        let woken = {
            let mut state = self.state.lock();
            let woken = state.held.release(share);
            self.tell_closer(&state);
            woken
        };
        woken.into_iter().for_each(wake);
    }

    /// There is room, or will never be again; where there is none, `waker` is woken once that
    /// changes. `place` is where the task is kept. The room may be for a commit that has its locks.
    pub fn room_or_keep(&self, place: &mut Option<u64>, has_locks: bool, waker: &Waker) -> bool {
        let waker = waker.clone();
        let mut state = self.state.lock();
        let has_room = state.has_ended || state.held.has_room(has_locks);
        let unused = if has_room { Some(waker) } else { state.held.keep(place, has_locks, waker) };
        drop(state);
        drop(unused);
        has_room
    }

    /// The task at `place` waits no longer.
    pub fn forget_waiter(&self, place: u64, has_locks: bool) {
        let (forgotten, next) = self.state.lock().held.forget(place, has_locks);
        drop(forgotten);
        next.into_iter().for_each(wake);
    }

    /// Admits nothing from here on. What waits for room is told, and threads end once their lines
    /// are empty; to be joined.
    pub fn end(&self) -> Vec<JoinHandle<()>> {
        let (woken, threads) = {
            let mut state = self.state.lock();
            state.has_ended = true;
            let mut threads = std::mem::take(&mut state.loggers.threads);
            threads.append(&mut state.readers.threads);
            threads.append(&mut state.lockers.threads);
            (state.held.take_waiters(), threads)
        };
        self.writes_came.notify_all();
        self.reads_came.notify_all();
        self.set_aside.notify_all();
        woken.into_iter().for_each(wake);
        threads
    }

    /// For the caller that closes: sleeps until there is something to carry out; no once no write
    /// is left that could bring more.
    pub fn wait_for_last(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            let reads_wait = state.reads.iter().any(|line| !line.is_empty());
            if state.writes.may_be_taken() || state.writes.wants_locks() || reads_wait {
                return true;
            }
            if state.held.writes() == 0 {
                return false;
            }
            self.writes_came.wait(&mut state);
        }
    }

    /// Nothing is admitted any more.
    pub fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// See [`RequestStats`].
    pub fn stats(&self) -> RequestStats {
        let state = self.state.lock();
        RequestStats {
            waiting_writes: state.writes.len() as u64,
            waiting_looks: state.reads[ReadKind::Look as usize].len() as u64,
            waiting_gets: state.reads[ReadKind::Get as usize].len() as u64,
            waiting_pages: state.reads[ReadKind::Page as usize].len() as u64,
            held: state.held.requests() as u64,
            held_bytes: state.held.bytes(),
            threads: [&state.loggers, &state.readers, &state.lockers]
                .map(|crew| crew.threads.len() as u64)
                .iter()
                .sum(),
            ..state.counts.clone()
        }
    }
}
