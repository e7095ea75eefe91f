//! Asynchronous requests: a caller hands one in, goes on, and finds the answer in a [`Ticket`].
//!
//! ```text
//!   Db ──> Requests ──> Pipeline ──> Queue      lines of requests, bounds, sleeping threads
//!             │            ├──────> Front       a group of writes
//!             v            ├──────> Order       acknowledgements in order of arrival
//!          Ticket <────────┴─ Promise
//! ```
//! [`Requests`] is what the rest of the engine meets. What is read is a closure of the caller's, so
//! nothing here knows keys, tables or layouts. Synchronous calls use none of this.
//!
//! Threads: any; see `pipeline.rs` for its own.

mod order;
mod pipeline;
mod queue;
pub(crate) mod report;
pub(crate) mod room;
mod schedule;
#[cfg(test)]
mod tests;
pub(crate) mod ticket;

use crate::environment::experiments::RequestSchedule;
use crate::error::{Error, Result};
use crate::front::{Front, Submission};
use crate::shared::Shared;
use order::Order;
use pipeline::{Pipeline, ReadOf};
use queue::{Queue, ReadRequest, Start, Write};
use report::RequestStats;
use room::HasRoom;
pub(crate) use schedule::ReadKind;
use std::sync::{Arc, Weak};
use thermocline_device::OwnerProcess;
use ticket::{Carrier, Promise, Ticket};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Requests {
    pipeline: Arc<Pipeline>,
    owner: OwnerProcess,
}

impl Requests {
    /// No requests, and no threads, yet. Writes go to `front`.
    pub fn new(shared: &Arc<Shared>, front: &Front) -> Self {
        let schedule = shared.experiments.requests.unwrap_or(RequestSchedule::ByLoad);
        let pipeline = Arc::new(Pipeline {
            queue: Queue::new(&shared.settings, schedule),
            shared: Arc::clone(shared),
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

    /// Hands `start` to `push`, unless callers carry requests out.
    fn starting<T>(&self, start: Start<'_>, push: impl FnOnce(Option<Start<'_>>) -> T) -> T {
        push((!self.pipeline.shared.jobs.are_stepped()).then_some(start))
    }

    /// Hands in a write; where it is refused, it comes back.
    pub fn write(&self, submission: Submission) -> Result<Ticket<()>, (Submission, Error)> {
        if let Err(error) = self.pipeline.shared.latch.check() {
            return Err((submission, error));
        }
        let (ticket, promise) = self.pair();
        let write = Write { submission, promise };
        let start = || self.pipeline.start_logger();
        let pushed = self.starting(&start, |start| self.pipeline.queue.push_write(write, start));
        match pushed {
            Ok(()) => Ok(ticket),
            Err((write, error)) => Err((write.submission, error)),
        }
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
            ReadRequest { kind, bytes, work }
        };
        let start = || self.pipeline.start_reader();
        self.starting(&start, |start| self.pipeline.queue.push_read(read, start))?;
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
