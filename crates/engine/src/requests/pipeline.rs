//! The threads that carry asynchronous requests out, and what they do (SpanDB, section 4.1).
//!
//! ```text
//!   put_async    ──> line of writes ──> logger: its turn in the front, takes all that wait as a
//!                       ^   │           group, writes it; Order: tickets answered in that order
//!                       │   └─ a pessimistic transaction is open ─> locker: locks of its keys ─┐
//!                       ├──────────────────────────────────────────────────────────────────────┘
//!   commit_async ──> line of looks ─┐   where memory does not say whether it may be written
//!   get_async    ──> line of gets  ─┼─> reader: by the schedule
//!   page_async   ──> line of pages ─┘
//! ```
//! A logger takes the group only once the front lets it write: so a group is as large as it can be,
//! and the order of groups is that of their sequences. It passes the write throttle afterwards,
//! with what it has written, before it takes more; meanwhile the queue fills up, and callers are
//! told that it is full.
//!
//! A transaction goes to the line of writes with what it builds on, and the front looks. It is
//! answered as soon as it is written; its locks go before. No transaction that has its locks waits
//! behind a write that waits for one.
//!
//! Invariants:
//! 1. Writes without conditions take effect, and are acknowledged, in order of arrival.
//! 2. Threads start with the first request that needs one, and sleep without a timer.
//! 3. Where background work is stepped there is no thread: a caller that looks at its ticket
//!    carries out what is in line, writes first, and those last that must have locks.
//! 4. A panic in a request stops all writing, as one of a writer does, and is its ticket's error;
//!    the thread lives on.
//!
//! Threads: its own, callers that look at tickets where work is stepped, and one that closes.

use super::crew::Start;
use super::held::Share;
use super::order::Order;
use super::queue::{Group, Queue, ReadRequest, Reading, Work};
use super::report::LoggerFigures;
use super::ticket::{Carrier, Promise};
use super::writes::{Answer, Committing, Write};
use crate::error::{Error, ErrorKind, Result};
use crate::front::Front;
use crate::read::Reader;
use crate::shared::Shared;
use crate::transaction::{Attempts, Footprint, Locks, Patience, Refused};
use crate::versions::Versions;
use std::io;
use std::sync::{Arc, Weak};
use thermocline_foundation::Sequence;
use thermocline_foundation::threads::{self, JoinHandle, catch_panic};

/// What panics are said to be of.
const LOGGER: &str = "a logger of asynchronous writes";
const READER: &str = "an asynchronous read";
const LOCKER: &str = "the locks of an asynchronous write";

/// See the module's header.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// For threads that it starts.
    pub me: Weak<Self>,
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub reader: Arc<Reader>,
    pub locks: Arc<Locks>,
    pub front: Front,
    pub queue: Queue,
    pub order: Order,
    pub loggers: LoggerFigures,
}

impl Pipeline {
    /// Starts a logger.
    pub fn start_logger(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pipeline = Arc::clone(self);
        threads::spawn("thermocline-log", move || {
            let logger = pipeline.loggers.started();
            while pipeline.queue.begin_logging() {
                let written = pipeline.caught(LOGGER, || pipeline.log_group(Some(logger)));
                pipeline.queue.end_logging(written == Some(true));
                while pipeline.queue.lacks_locker() {
                    pipeline.caught(LOCKER, || pipeline.lock_next());
                }
            }
        })
    }

    /// Starts a reader.
    pub fn start_reader(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pipeline = Arc::clone(self);
        threads::spawn("thermocline-get", move || {
            while let Some(read) = pipeline.queue.next_read() {
                pipeline.caught(READER, || pipeline.read(read));
            }
        })
    }

    /// Starts the thread that takes locks for writes.
    fn start_locker(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pipeline = Arc::clone(self);
        threads::spawn("thermocline-lck", move || {
            while let Some(write) = pipeline.queue.next_without_locks() {
                pipeline.caught(LOCKER, || pipeline.lock(write));
            }
        })
    }

    /// What `body` gives; none where it panics, and then all writing has stopped.
    fn caught<T>(&self, who: &str, body: impl FnOnce() -> T) -> Option<T> {
        let told = |panic: threads::Panic| self.shared.fail_by_panic(who, &panic.to_string());
        catch_panic(body).map_err(told).ok()
    }

    /// What `body` gives; an error where it panics, and then all writing has stopped.
    fn or_error<T>(&self, who: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
        or_error(&self.shared, who, body)
    }

    /// Hands `start` to `call`, unless callers carry requests out.
    pub fn starting<T>(
        &self,
        start: fn(&Arc<Self>) -> io::Result<JoinHandle<()>>,
        call: impl FnOnce(Option<Start<'_>>) -> T,
    ) -> T {
        let threads = if self.shared.jobs.are_stepped() { None } else { self.me.upgrade() };
        match threads {
            Some(pipeline) => call(Some(&|| start(&pipeline))),
            None => call(None),
        }
    }

    /// Writes what waits as one group; false if nothing does. `logger` is the thread's, if it is of
    /// one.
    fn log_group(&self, logger: Option<usize>) -> bool {
        let (mut group, mut began_ns) = (None, None);
        let outcomes = self.front.write_group(&mut |need_locks| {
            let now_ns = || self.shared.clock.now_ns();
            let take = |start: Option<Start<'_>>| self.queue.take_writes(need_locks, now_ns, start);
            group = self.starting(Self::start_locker, take);
            began_ns = group.as_ref().and(logger).map(|_| self.shared.clock.now_ns());
            let writes = group.iter().flat_map(|group| &group.writes);
            writes.map(|write| write.submission.clone()).collect()
        });
        let Some(group) = group else { return false };
        let bytes = group.writes.iter().map(|write| write.submission.encoded.len()).sum();
        if let (Some(logger), Some(began_ns)) = (logger, began_ns) {
            let elapsed_ns = self.shared.clock.now_ns().saturating_sub(began_ns);
            self.loggers.wrote(logger, bytes as u64, elapsed_ns);
        }
        self.end_group(group, outcomes);
        self.pass_throttle(bytes);
        true
    }

    /// Answers the writes of a group, but for those that have to be looked at again.
    fn end_group(&self, group: Group, outcomes: Vec<Result<Sequence, Refused>>) {
        let (mut promises, mut results, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        let mut released = Released { queue: &self.queue, share: Share::default() };
        group.writes.iter().for_each(|write| released.share.add(&write.share));
        for (mut write, outcome) in group.writes.into_iter().zip(outcomes) {
            if matches!((&write.answer, &outcome), (Answer::Committed(_), Err(Refused::LookAgain)))
            {
                released.share.take_off(&write.share);
                self.look(write);
                continue;
            }
            let outcome = outcome.map_err(failure);
            let outcome = outcome.inspect_err(|error| self.locks.tally.note(error));
            // Before the ticket is answered: its caller may go for the same keys.
            write.locks = None;
            match write.answer {
                Answer::Written(promise) => {
                    promises.push(promise);
                    results.push(outcome.map(drop));
                }
                Answer::Committed(committing) => {
                    let Committing { promise, kept, .. } = *committing;
                    drop(kept);
                    commits.push((promise, outcome));
                }
            }
        }
        // A ticket's waker may close the database, which waits for all that is held.
        drop(released);
        commits.into_iter().for_each(|(promise, outcome)| promise.answer(outcome));
        self.order.hand_in(group.number, promises, results);
    }

    /// Lines a write that was admitted up for a look at what it builds on.
    pub fn look(&self, write: Write) {
        let lined_up =
            self.starting(Self::start_reader, |start| self.queue.push_look(write, start));
        if let Err(back) = lined_up {
            let (write, error) = *back;
            self.refuse(write, error);
        }
    }

    /// Lines a write up that was admitted.
    pub fn line_up(&self, write: Write) {
        let lined_up = self.starting(Self::start_logger, |start| self.queue.line_up(write, start));
        if let Err(back) = lined_up {
            let (write, error) = *back;
            self.refuse(write, error);
        }
    }

    /// Answers a write that does not come to be written.
    fn refuse(&self, mut write: Write, error: Error) {
        // Before the ticket is answered: its caller may go for the same keys.
        write.locks = None;
        self.locks.tally.note(&error);
        let released = Released { queue: &self.queue, share: write.share };
        match write.answer {
            Answer::Written(promise) => {
                drop(released);
                promise.answer(Err(error));
            }
            Answer::Committed(committing) => {
                let Committing { promise, kept, .. } = *committing;
                drop((kept, released));
                promise.answer(Err(error));
            }
        }
    }

    /// Takes the locks of the next write that needs them; false if there is none.
    fn lock_next(&self) -> bool {
        self.queue.try_next_without_locks().map(|write| self.lock(write)).is_some()
    }

    /// Takes the locks of a write that was set aside.
    fn lock(&self, mut write: Write) {
        let timeout = write.lock_timeout().unwrap_or(self.shared.settings.lock_timeout);
        let encoded = &write.submission.encoded;
        let mut patience = match write.aside_since_ns {
            Some(since_ns) => Patience::since(since_ns, timeout),
            None => Patience::new(timeout),
        };
        let locks = self.or_error(LOCKER, || self.locks.of_batch(encoded, &mut patience));
        let (locked, error) = match locks {
            Ok(locks) => {
                write.locks = Some(locks);
                write.submission.check = Some(match &write.answer {
                    Answer::Committed(committing) => committing.attempts.check(true),
                    Answer::Written(_) => {
                        Attempts::new(Footprint::default(), &self.versions).check(true)
                    }
                });
                (Ok(write), None)
            }
            Err(error) => (Err(write), Some(error)),
        };
        let refused =
            self.starting(Self::start_logger, |start| self.queue.end_locking(locked, start));
        if let (Some(write), Some(error)) = (refused, error) {
            self.refuse(write, error);
        }
    }

    fn pass_throttle(&self, bytes: usize) {
        let give_up = || self.shared.latch.check().is_err() || self.queue.has_ended();
        self.shared.write_throttle.admit(bytes, give_up);
    }

    fn read(&self, read: ReadRequest) {
        let ReadRequest { kind, work } = read;
        let start_ns = self.shared.clock.now_ns();
        let note_time =
            || self.queue.note_time(kind, self.shared.clock.now_ns().saturating_sub(start_ns));
        match work {
            Reading::Answer(work, share) => work.carry_out(&mut || {
                note_time();
                self.queue.release(&share);
            }),
            Reading::Look(write) => {
                self.look_at(write);
                note_time();
            }
        }
    }

    /// Looks at what a transaction builds on, and lines it up with the writes.
    fn look_at(&self, mut write: Write) {
        let has_locks = write.has_locks();
        let Answer::Committed(committing) = &mut write.answer else {
            unreachable!("a write without conditions builds on nothing")
        };
        match self.or_error(READER, || {
            let attempts = &committing.attempts;
            self.reader.look(attempts.footprint(), attempts.looked())
        }) {
            Ok(up_to) => {
                committing.attempts.have_looked(up_to);
                write.submission.check = Some(committing.attempts.check(has_locks));
                self.line_up(write);
            }
            Err(error) => self.refuse(write, error),
        }
    }

    /// Ends all: carries out what is in line, beside its threads, and joins these.
    pub fn end(&self) {
        let threads = self.queue.end();
        while self.carry_out_next() || self.queue.wait_for_last() {}
        // A waker that a worker calls may drop the last handle: then that worker closes.
        for thread in threads.into_iter().filter(|thread| !threads::is_current(thread)) {
            // Threads catch what panics in them, so this finds nothing to tell.
            drop(thread.join());
        }
    }
}

/// What `body` of `who` gives; an error where it panics, and then all writing has stopped.
fn or_error<T>(shared: &Shared, who: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_panic(body).unwrap_or_else(|panic| {
        shared.fail_by_panic(who, &panic.to_string());
        Err(Error::new(ErrorKind::ReadOnly, format!("{who} panicked: {panic}")))
    })
}

/// What became of a write that was not to be tried again.
fn failure(refused: Refused) -> Error {
    match refused {
        Refused::Failed(error) => error,
        Refused::LookAgain | Refused::WithoutLocks(_) => {
            unreachable!("it builds on nothing, and was not taken without its locks")
        }
    }
}

/// Writes that count no more once this is dropped, also by a panic.
struct Released<'a> {
    queue: &'a Queue,
    share: Share,
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.queue.release(&self.share);
    }
}

impl Carrier for Pipeline {
    fn carry_out_next(&self) -> bool {
        if self.caught(LOGGER, || self.log_group(None)) == Some(true) {
            return true;
        }
        if let Some(read) = self.queue.try_next_read() {
            self.caught(READER, || self.read(read));
            return true;
        }
        // Last: what is looked at may be a transaction that holds the locks.
        self.caught(LOCKER, || self.lock_next()) == Some(true)
    }
}

/// A read with the ticket that it answers.
pub(super) struct ReadOf<T, F> {
    pub shared: Arc<Shared>,
    pub promise: Promise<T>,
    pub body: F,
}

impl<T: Send, F: FnOnce() -> Result<T> + Send> Work for ReadOf<T, F> {
    fn carry_out(self: Box<Self>, release: &mut dyn FnMut()) {
        let Self { shared, promise, body } = *self;
        let answer = or_error(&shared, READER, body);
        release();
        promise.answer(answer);
    }
}
