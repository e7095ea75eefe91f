//! Asynchronous requests: a caller hands one in, goes on, and finds the answer in a [`Ticket`].
//!
//! ```text
//!   Db ──> Requests ──> Pipeline ──> Queue      lines of requests, bounds, sleeping threads
//!             │            ├──────> Front       a group of writes
//!             │            ├──────> Locks, Reader   for transactions: as for those of callers
//!             v            ├──────> Order       acknowledgements in order of arrival
//!          Ticket <────────┴─ Promise
//! ```
//! [`Requests`] is what the rest of the engine meets. What is read is a closure of the caller's, so
//! nothing here knows tables or layouts. Synchronous calls use none of this.
//!
//! Threads: any; see `pipeline.rs` for its own.

mod crew;
mod held;
mod order;
mod pipeline;
mod queue;
pub(crate) mod report;
pub(crate) mod room;
mod schedule;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;
mod writes;

use crate::environment::experiments::RequestSchedule;
use crate::error::{Error, Result};
use crate::front::{Front, Submission};
use crate::read::Reader;
use crate::shared::Shared;
use crate::transaction::{Attempts, Commit, Locks};
use crate::versions::Versions;
use crew::Start;
use held::Share;
use order::Order;
use pipeline::{Pipeline, ReadOf};
use queue::{Queue, Work};
use report::{LoggerFigures, RequestStats};
use room::HasRoom;
pub(crate) use schedule::ReadKind;
use std::sync::{Arc, Weak};
use thermocline_device::OwnerProcess;
use thermocline_foundation::Sequence;
use ticket::{Carrier, Promise, Ticket};
pub(crate) use writes::Kept;
use writes::{Answer, Committing, Write};

/// Room in the queue for a transaction; given back where it is dropped unused.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    pipeline: &'a Pipeline,
    share: Share,
}

impl Admission<'_> {
    /// What a write counts for from here on.
    fn used(self) -> Share {
        let share = self.share;
        std::mem::forget(self);
        share
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.pipeline.queue.release(&self.share);
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Requests {
    pipeline: Arc<Pipeline>,
    owner: OwnerProcess,
}

impl Requests {
    /// No requests, and no threads, yet. Writes go to `front`.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        reader: &Arc<Reader>,
        locks: &Arc<Locks>,
        front: &Front,
    ) -> Self {
        let schedule = shared.experiments.requests.unwrap_or(RequestSchedule::ByLoad);
        let pipeline = Arc::new_cyclic(|me| Pipeline {
            me: me.clone(),
            queue: Queue::new(&shared.settings, schedule),
            shared: Arc::clone(shared),
            versions: Arc::clone(versions),
            reader: Arc::clone(reader),
            locks: Arc::clone(locks),
            front: front.clone(),
            order: Order::default(),
            loggers: LoggerFigures::default(),
        });
        Self { pipeline, owner: OwnerProcess::current() }
    }

    fn pair<T>(&self) -> (Ticket<T>, Promise<T>) {
        let carrier = || Arc::downgrade(&self.pipeline) as Weak<dyn Carrier>;
        let is_stepped = self.pipeline.shared.jobs.are_stepped();
        ticket::pair(self.owner, is_stepped.then(carrier))
    }

    /// Hands in a write; where it is refused, it comes back.
    pub fn write(&self, submission: Submission) -> Result<Ticket<()>, (Submission, Error)> {
        if let Err(error) = self.pipeline.shared.latch.check() {
            return Err((submission, error));
        }
        let (ticket, promise) = self.pair();
        let share = Share::of_write(submission.encoded.len() as u64, false);
        let write = Write::new(submission, share, Answer::Written(promise));
        let push = |start: Option<Start<'_>>| self.pipeline.queue.push_write(write, start);
        match self.pipeline.starting(Pipeline::start_logger, push) {
            Ok(()) => Ok(ticket),
            Err(back) => {
                let (write, error) = *back;
                Err((write.submission, error))
            }
        }
    }

    /// Room for a transaction, which takes `bytes` of the queue. Where it holds the locks of its
    /// keys, writes that wait for these take no room from it.
    pub fn admit(&self, bytes: u64, has_locks: bool) -> Result<Admission<'_>> {
        self.pipeline.shared.latch.check()?;
        let share = self.pipeline.queue.admit_write(bytes, has_locks)?;
        Ok(Admission { pipeline: &self.pipeline, share })
    }

    /// Hands in a transaction. What it holds, `kept`, goes once it is written or refused, before
    /// the ticket has its answer.
    pub fn commit(&self, admission: Admission<'_>, commit: Commit, kept: Kept) -> Ticket<Sequence> {
        let Commit { encoded, count, durability, footprint, lock_timeout, has_locks } = commit;
        let (ticket, promise) = self.pair();
        let attempts = Attempts::new(footprint, &self.pipeline.versions);
        let needs_look = attempts.need_look(&self.pipeline.versions);
        let check = Some(attempts.check(has_locks));
        let submission = Submission { encoded, count, durability, check };
        let answer =
            Answer::Committed(Box::new(Committing { attempts, lock_timeout, kept, promise }));
        let write = Write::new(submission, admission.used(), answer);
        if needs_look {
            self.pipeline.look(write);
        } else {
            self.pipeline.line_up(write);
        }
        ticket
    }

    /// Hands in a read, which takes `bytes` of the queue. What is to be done, `body` gives, and
    /// only where the read is not refused.
    pub fn read<T, B>(
        &self,
        kind: ReadKind,
        bytes: u64,
        body: impl FnOnce() -> B,
    ) -> Result<Ticket<T>>
    where
        T: Send + 'static,
        B: FnOnce() -> Result<T> + Send + 'static,
    {
        let (ticket, promise) = self.pair();
        let shared = Arc::clone(&self.pipeline.shared);
        let work = || -> Box<dyn Work> { Box::new(ReadOf { shared, promise, body: body() }) };
        let push =
            |start: Option<Start<'_>>| self.pipeline.queue.push_read((kind, bytes), work, start);
        self.pipeline.starting(Pipeline::start_reader, push)?;
        Ok(ticket)
    }

    /// Room for one more request; or for a commit that `has_locks`.
    pub fn has_room(&self, has_locks: bool) -> HasRoom {
        HasRoom::new(&self.pipeline, self.owner, has_locks)
    }

    /// Takes no more requests, carries out those that wait, and ends the threads.
    pub fn end(&self) {
        self.pipeline.end();
    }

    /// See [`RequestStats`].
    pub fn stats(&self) -> RequestStats {
        let loggers = self.pipeline.loggers.stats();
        RequestStats { loggers, ..self.pipeline.queue.stats() }
    }
}
