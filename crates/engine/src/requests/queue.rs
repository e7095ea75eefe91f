//! The bounded queue of asynchronous requests: a line of writes, one for each kind of read, and the
//! threads that sleep until something is in them.
//!
//! Invariants:
//! 1. A request counts from its admission until just before its ticket is answered. One is admitted
//!    while fewer than the bound count, and fewer bytes: so at most one is over the bound of bytes,
//!    and none is so long that it is never admitted.
//! 2. Each line is taken from in order of arrival.
//! 3. A thread that sleeps is signalled once for a request; no thread sleeps while a line that it
//!    may take from has one, nor wakes without a cause.
//! 4. Nothing is admitted after the end; what was admitted before is still taken.
//! 5. No wakers are called, and nothing is carried out, under the lock.
//!
//! Threads: callers put in, workers take out; any number of both.

use super::report::RequestStats;
use super::schedule::{Line, READ_KINDS, ReadKind};
use super::ticket::{Promise, wake};
use crate::environment::experiments::RequestSchedule;
use crate::error::{Error, ErrorKind, Result};
use crate::front::Submission;
use crate::settings::Settings;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::task::Waker;
use thermocline_foundation::ByteSize;
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::threads::JoinHandle;

/// Bytes of batches that a logger takes as one group; a longer batch goes alone.
const GROUP_BYTES_MAX: u64 = 256 << 10;

/// A write in line.
#[derive(Debug)]
pub(super) struct Write {
    pub submission: Submission,
    pub promise: Promise<()>,
}

/// A read in line.
pub(super) struct ReadRequest {
    pub kind: ReadKind,
    /// What it takes of the queue's bytes.
    pub bytes: u64,
    pub work: Box<dyn Work>,
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
    pub promises: Vec<Promise<()>>,
    pub bytes: u64,
}

/// Starts a thread for a line.
pub(super) type Start<'a> = &'a dyn Fn() -> io::Result<JoinHandle<()>>;

/// The threads of one kind.
#[derive(Debug, Default)]
struct Crew {
    threads: Vec<JoinHandle<()>>,
    asleep: usize,
    /// Of these, how many are about to wake.
    signalled: usize,
}

impl Crew {
    /// A request came. True if a sleeper is to be signalled; where none sleeps and there are fewer
    /// than `most`, one more starts.
    fn call(&mut self, most: usize, start: Start<'_>) -> Result<bool> {
        if self.asleep > self.signalled {
            self.signalled += 1;
            return Ok(true);
        }
        if self.threads.len() < most {
            match start() {
                Ok(thread) => self.threads.push(thread),
                Err(error) if self.threads.is_empty() => {
                    let text = format!("cannot start a thread for asynchronous requests: {error}");
                    return Err(Error::new(ErrorKind::Io, text));
                }
                Err(error) => tracing::warn!(%error, "no further thread for requests"),
            }
        }
        Ok(false)
    }

    fn has_woken(&mut self) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
    }
}

#[derive(Default)]
struct State {
    writes: VecDeque<Write>,
    reads: [VecDeque<ReadRequest>; READ_KINDS],
    lines: [Line; READ_KINDS],
    /// Requests that were admitted and are not answered, and their bytes.
    held: usize,
    held_bytes: u64,
    loggers: Crew,
    loggers_busy: usize,
    /// Loggers that may be at work.
    loggers_wanted: usize,
    readers: Crew,
    next_group: u64,
    /// Tasks that wait for room.
    for_room: BTreeMap<u64, Waker>,
    next_waiter: u64,
    has_ended: bool,
    counts: RequestStats,
}

/// See the module's header.
pub(super) struct Queue {
    schedule: RequestSchedule,
    requests_max: usize,
    bytes_max: u64,
    readers_max: usize,
    state: Mutex<State>,
    writes_came: Condvar,
    reads_came: Condvar,
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
            requests_max: settings.request_queue as usize,
            bytes_max: settings.request_queue_bytes.0,
            readers_max: settings.request_workers(),
            state: Mutex::new(State { loggers_wanted: 1, ..State::default() }),
            writes_came: Condvar::new(),
            reads_came: Condvar::new(),
        }
    }

    fn has_room(&self, state: &State) -> bool {
        state.held < self.requests_max && state.held_bytes < self.bytes_max
    }

    /// The state, where one more request has room in it.
    fn admit(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is closed"));
        }
        if self.has_room(&state) {
            return Ok(state);
        }
        state.counts.refused += 1;
        let (held, held_bytes) = (state.held, state.held_bytes);
        // Those that are told call again soon: the text is not made under the lock.
        drop(state);
        let text = format!(
            "{held} asynchronous requests of {} wait, and no more than {} of {} may: await a \
             ticket or Db::has_room and call again, or raise request_queue and request_queue_bytes",
            ByteSize(held_bytes),
            self.requests_max,
            ByteSize(self.bytes_max)
        );
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// Lines a write up and calls a logger; gives the write back where it is refused. Without
    /// `start` callers carry requests out, and no thread is called.
    pub fn push_write(&self, write: Write, start: Option<Start<'_>>) -> Result<(), (Write, Error)> {
        let mut state = match self.admit() {
            Ok(state) => state,
            Err(error) => return Err((write, error)),
        };
        if let Some(start) = start {
            let (wanted, busy) = (state.loggers_wanted, state.loggers_busy);
            let wanted = self.schedule.loggers_after_write(wanted, busy);
            state.loggers_wanted = wanted;
            match if busy < wanted { state.loggers.call(wanted, start) } else { Ok(false) } {
                Ok(true) => self.writes_came.notify_one(),
                Ok(false) => {}
                Err(error) => return Err((write, error)),
            }
        }
        state.held += 1;
        state.held_bytes += write.submission.encoded.len() as u64;
        state.counts.writes += 1;
        state.writes.push_back(write);
        Ok(())
    }

    /// Lines up what `read` gives and calls a reader, as [`Queue::push_write`] does for writes.
    /// `read` is not asked where the request is refused.
    pub fn push_read(
        &self,
        read: impl FnOnce() -> ReadRequest,
        start: Option<Start<'_>>,
    ) -> Result<()> {
        let mut state = self.admit()?;
        if let Some(start) = start
            && state.readers.call(self.readers_max, start)?
        {
            self.reads_came.notify_one();
        }
        let read = read();
        state.held += 1;
        state.held_bytes += read.bytes;
        match read.kind {
            ReadKind::Get => state.counts.gets += 1,
            ReadKind::Page => state.counts.pages += 1,
        }
        let line = read.kind as usize;
        state.lines[line].length += 1;
        state.reads[line].push_back(read);
        Ok(())
    }

    /// Sleeps until a write waits that the calling logger may take; false at the end.
    pub fn begin_logging(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            let may_log = state.loggers_busy < state.loggers_wanted || state.has_ended;
            if may_log && !state.writes.is_empty() {
                state.loggers_busy += 1;
                return true;
            }
            if state.has_ended {
                return false;
            }
            state.loggers.asleep += 1;
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

    /// Takes the writes that wait, or the first of them; none where none waits.
    pub fn take_writes(&self) -> Option<(Group, Vec<Submission>)> {
        let mut state = self.state.lock();
        let (mut promises, mut submissions, mut bytes) = (Vec::new(), Vec::new(), 0);
        while let Some(next) = state.writes.front() {
            let longer = bytes + next.submission.encoded.len() as u64;
            if longer > GROUP_BYTES_MAX && !promises.is_empty() {
                break;
            }
            bytes = longer;
            if let Some(Write { submission, promise }) = state.writes.pop_front() {
                submissions.push(submission);
                promises.push(promise);
            }
        }
        if promises.is_empty() {
            return None;
        }
        let number = state.next_group;
        state.next_group += 1;
        let writes = promises.len() as u64;
        state.counts.groups += 1;
        state.counts.grouped_writes += writes;
        state.counts.largest_group = state.counts.largest_group.max(writes);
        Some((Group { number, promises, bytes }, submissions))
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
            state.readers.asleep += 1;
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
    pub fn release(&self, requests: usize, bytes: u64) {
        let woken = {
            let mut state = self.state.lock();
            state.held -= requests;
            state.held_bytes -= bytes;
            if state.for_room.is_empty() || !self.has_room(&state) {
                return;
            }
            std::mem::take(&mut state.for_room)
        };
        woken.into_values().for_each(wake);
    }

    /// There is room, or will never be again; where there is none, `waker` is woken once that
    /// changes. `place` is where the task is kept.
    pub fn room_or_keep(&self, place: &mut Option<u64>, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.has_ended || self.has_room(&state) {
            return true;
        }
        let at = *place.get_or_insert(state.next_waiter);
        state.next_waiter = state.next_waiter.max(at + 1);
        state.for_room.insert(at, waker.clone());
        false
    }

    /// The task at `place` waits no longer.
    pub fn forget_waiter(&self, place: u64) {
        let forgotten = self.state.lock().for_room.remove(&place);
        drop(forgotten);
    }

    /// Admits nothing from here on. What waits for room is told, and threads end once all is taken;
    /// to be joined.
    pub fn end(&self) -> Vec<JoinHandle<()>> {
        let (woken, threads) = {
            let mut state = self.state.lock();
            state.has_ended = true;
            let mut threads = std::mem::take(&mut state.loggers.threads);
            threads.append(&mut state.readers.threads);
            (std::mem::take(&mut state.for_room), threads)
        };
        self.writes_came.notify_all();
        self.reads_came.notify_all();
        woken.into_values().for_each(wake);
        threads
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
            waiting_gets: state.reads[ReadKind::Get as usize].len() as u64,
            waiting_pages: state.reads[ReadKind::Page as usize].len() as u64,
            held: state.held as u64,
            held_bytes: state.held_bytes,
            threads: (state.loggers.threads.len() + state.readers.threads.len()) as u64,
            ..state.counts.clone()
        }
    }
}
