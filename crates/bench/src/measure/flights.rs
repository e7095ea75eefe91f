//! The writes that one thread has under way at once (`/async-N`).
//!
//! A write is timed from when it is handed in to when this thread finds that it is done: it looks
//! before each of its operations, and waits for the oldest while it has as many as it may have.
//!
//! Invariant: when a thread ends, or fails, none of its writes is under way.

use super::latency::Seen;
use super::runner::{Subject, Worker};
use crate::Outcome;
use crate::store::Flying;
use crate::workloads::Operation;
use std::collections::VecDeque;

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    share: u8,
    start_ns: u64,
}

/// All of a thread's; see the module's header.
pub(super) struct Flights<'s> {
    flying: Box<dyn Flying + 's>,
    most: usize,
    under_way: VecDeque<Flight>,
}

impl<'s> Flights<'s> {
    /// For a thread of `subject`; none where its workload waits for each write.
    pub fn new(subject: &'s Subject) -> Outcome<Option<Self>> {
        let Some(most) = subject.plan.workload().flying else { return Ok(None) };
        let name = &subject.plan.workload().name;
        let flying = subject.store.flying();
        let flying = flying.ok_or_else(|| format!("{name}: the engine has no such writes"))?;
        Ok(Some(Self { flying, most, under_way: VecDeque::with_capacity(most) }))
    }

    /// Starts the update that `operation` is; returns when it was handed in.
    pub fn update(
        &mut self,
        worker: &Worker,
        operation: Operation,
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        seen: &mut Seen,
    ) -> Outcome<u64> {
        let (subject, number) = (worker.subject(), operation.number);
        while !self.under_way.is_empty() && self.land(worker, false, seen)? {}
        while self.under_way.len() >= self.most {
            self.land(worker, true, seen)?;
        }
        let version = loop {
            match subject.versions.try_begin(number, false) {
                Some(version) => break version,
                // All of them may be this thread's own.
                None if !self.under_way.is_empty() => drop(self.land(worker, true, seen)?),
                None => std::thread::yield_now(),
            }
        };
        subject.keys.key(number, key);
        subject.values.make(number, version, operation.count as u32, value);
        let start_ns = worker.now_ns();
        while !self.flying.put(key, value)? {
            if self.under_way.is_empty() {
                std::thread::yield_now();
            } else {
                self.land(worker, true, seen)?;
            }
        }
        self.under_way.push_back(Flight { number, share: operation.share, start_ns });
        seen.user_written_bytes += (key.len() + value.len()) as u64;
        Ok(start_ns)
    }

    /// Waits for all of them.
    pub fn land_all(&mut self, worker: &Worker, seen: &mut Seen) -> Outcome<()> {
        while !self.under_way.is_empty() {
            self.land(worker, true, seen)?;
        }
        Ok(())
    }

    /// Takes note of the oldest where it is done; `wait`: once it is.
    fn land(&mut self, worker: &Worker, wait: bool, seen: &mut Seen) -> Outcome<bool> {
        if !self.flying.landed(wait)? {
            return Ok(false);
        }
        if let Some(flight) = self.under_way.pop_front() {
            worker.subject().versions.end(flight.number);
            let now = worker.now_ns();
            seen.took(flight.share, now - flight.start_ns);
            worker.ended(now, 1, seen);
        }
        Ok(true)
    }
}
