//! The threads that carry asynchronous requests out, and what they do (SpanDB, section 4.1).
//!
//! ```text
//!   put_async  ──> line of writes ──> logger: its turn in the front, takes all that wait as a
//!                                     group, writes it; Order: tickets answered in that order
//!   get_async  ──> line of gets   ─┐
//!   page_async ──> line of pages  ─┴> reader: by the schedule
//! ```
//! A logger takes the group only once the front lets it write: so a group is as large as it can be,
//! and the order of groups is that of their sequences. It passes the write throttle afterwards,
//! with what it has written, before it takes more; meanwhile the queue fills up, and callers are
//! told that it is full.
//!
//! Invariants:
//! 1. Writes take effect, and are acknowledged, in order of arrival.
//! 2. Threads start with the first request that needs one, and sleep without a timer.
//! 3. Where background work is stepped there is no thread: a caller that looks at its ticket
//!    carries out what is in line, writes first.
//! 4. A panic in a request stops all writing, as one of a writer does, and is its ticket's error;
//!    the thread lives on.
//!
//! Threads: its own, callers that look at tickets where work is stepped, and one that closes.

use super::order::Order;
use super::queue::{Queue, ReadRequest, Work};
use super::ticket::{Carrier, Promise};
use crate::error::{Error, ErrorKind, Result};
use crate::front::Front;
use crate::shared::Shared;
use std::io;
use std::sync::Arc;
use thermocline_foundation::threads::{self, JoinHandle, catch_panic};

/// What panics are said to be of.
const LOGGER: &str = "a logger of asynchronous writes";
const READER: &str = "an asynchronous read";

/// See the module's header.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub shared: Arc<Shared>,
    pub front: Front,
    pub queue: Queue,
    pub order: Order,
}

impl Pipeline {
    /// Starts a logger.
    pub fn start_logger(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pipeline = Arc::clone(self);
        threads::spawn("thermocline-log", move || {
            while pipeline.queue.begin_logging() {
                let written = pipeline.caught(LOGGER, || pipeline.log_group());
                pipeline.queue.end_logging(written == Some(true));
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

    /// What `body` gives; none where it panics, and then all writing has stopped.
    fn caught<T>(&self, who: &str, body: impl FnOnce() -> T) -> Option<T> {
        let told = |panic: threads::Panic| self.shared.fail_by_panic(who, &panic.to_string());
        catch_panic(body).map_err(told).ok()
    }

    /// Writes what waits as one group; false if nothing does.
    fn log_group(&self) -> bool {
        let mut group = None;
        let written = self.front.write_group(&mut || {
            let (taken, submissions) = self.queue.take_writes().unzip();
            group = taken;
            submissions.unwrap_or_default()
        });
        let Some(group) = group else { return false };
        self.queue.release(group.promises.len(), group.bytes);
        self.order.hand_in(group.number, group.promises, written);
        self.pass_throttle(group.bytes);
        true
    }

    fn pass_throttle(&self, bytes: u64) {
        let give_up = || self.shared.latch.check().is_err() || self.queue.has_ended();
        self.shared.write_throttle.admit(bytes as usize, give_up);
    }

    fn read(&self, read: ReadRequest) {
        let ReadRequest { kind, bytes, work } = read;
        let start_ns = self.shared.clock.now_ns();
        work.carry_out(&mut || {
            self.queue.note_time(kind, self.shared.clock.now_ns().saturating_sub(start_ns));
            self.queue.release(1, bytes);
        });
    }

    /// Ends all: carries out what is in line, beside its threads, and joins these.
    pub fn end(&self) {
        let threads = self.queue.end();
        while self.carry_out_next() {}
        // A waker that a worker calls may drop the last handle: then that worker closes.
        for thread in threads.into_iter().filter(|thread| !threads::is_current(thread)) {
            // Threads catch what panics in them, so this finds nothing to tell.
            drop(thread.join());
        }
    }
}

impl Carrier for Pipeline {
    fn carry_out_next(&self) -> bool {
        if self.caught(LOGGER, || self.log_group()).unwrap_or(false) {
            return true;
        }
        let Some(read) = self.queue.try_next_read() else { return false };
        self.caught(READER, || self.read(read));
        true
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
        let answer = catch_panic(body).unwrap_or_else(|panic| {
            shared.fail_by_panic(READER, &panic.to_string());
            Err(Error::new(ErrorKind::ReadOnly, format!("{READER} panicked: {panic}")))
        });
        release();
        promise.answer(answer);
    }
}
