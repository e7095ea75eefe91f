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
use order::Order;
use pipeline::{Pipeline, ReadOf};
use queue::{Queue, ReadRequest, Reading};
use report::RequestStats;
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
    bytes: u64,
}

impl Admission<'_> {
    /// The bytes, which a write has from here on.
    fn used(self) -> u64 {
        let bytes = self.bytes;
        std::mem::forget(self);
        bytes
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.pipeline.queue.release_writes(1, self.bytes);
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
        let bytes = submission.encoded.len() as u64;
        let write = Write { submission, bytes, answer: Answer::Written(promise), locks: None };
        let push = |start: Option<Start<'_>>| self.pipeline.queue.push_write(write, start);
        match self.pipeline.starting(Pipeline::start_logger, push) {
            Ok(()) => Ok(ticket),
            Err(back) => {
                let (write, error) = *back;
                Err((write.submission, error))
            }
        }
    }

    /// Room for a transaction, which takes `bytes` of the queue.
    pub fn admit(&self, bytes: u64) -> Result<Admission<'_>> {
        self.pipeline.shared.latch.check()?;
        self.pipeline.queue.admit_write(bytes)?;
        Ok(Admission { pipeline: &self.pipeline, bytes })
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
        let write = Write { submission, bytes: admission.used(), answer, locks: None };
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
        let read = || {
            let work = Box::new(ReadOf { shared, promise, body: body() });
            ReadRequest { kind, bytes, work: Reading::Answer(work) }
        };
        let push = |start: Option<Start<'_>>| self.pipeline.queue.push_read(read, start);
        self.pipeline.starting(Pipeline::start_reader, push)?;
        Ok(ticket)
    }

    /// Room for one more request.
    pub fn has_room(&self) -> HasRoom {
        HasRoom::new(&self.pipeline, self.owner)
    }

    /// Takes no more requests, carries out those that wait, and ends the threads.
    pub fn end(&self) {
        self.pipeline.end();
    }

    /// See [`RequestStats`].
    pub fn stats(&self) -> RequestStats {
        self.pipeline.queue.stats()
    }
}
