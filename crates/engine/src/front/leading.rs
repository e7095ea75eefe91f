//! Leading: each group of writes is led by one of its writers, or by a logger for all that wait.
//! What a leader then does with its group is the front's.
//!
//! A leader that panics latches the store, and hands over before its panic goes on: the writers
//! whose batches it had taken and those that line up behind it get the error.

use super::checks::{Led, outcomes, own_outcome};
use super::queue::{Entered, Submission, Turn, Waiter, WriteQueue};
use crate::error::{Error, ErrorKind, Result};
use crate::shared::Shared;
use crate::transaction::{Locks, Refused};
use bytes::Bytes;
use smallvec::SmallVec;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::threads::{Panic, catch_panic};
use thermocline_log::Record;

/// The records of a group, from the sequence `next` on. Most groups are one batch.
pub(super) fn records_of(group: &[Submission], mut next: Sequence) -> SmallVec<[Record<'_>; 1]> {
    let mut records = SmallVec::with_capacity(group.len());
    for Submission { encoded, count, .. } in group {
        records.push(Record { first: next, count: *count, payload: encoded });
        next = Sequence(next.0 + u64::from(*count));
    }
    records
}

/// The encoded batches of a group that has these `records`, each with its first sequence.
pub(super) fn batches_of<'a>(
    records: &'a [Record<'_>],
    group: &'a [Submission],
) -> impl Iterator<Item = (Sequence, &'a Bytes)> {
    records.iter().zip(group).map(|(record, of)| (record.first, &of.encoded))
}

/// A front whose groups are led.
pub(super) trait Leads {
    /// What a leader has while it is at the turnstile.
    type Turnstile;

    fn shared(&self) -> &Shared;

    fn queue(&self) -> &WriteQueue;

    fn locks(&self) -> &Locks;

    fn turnstile(&self) -> &Mutex<Self::Turnstile>;

    /// Writes a group, unless checks of it do not hold; returns when it is published. `need_locks`
    /// was asked with the turnstile held.
    fn lead_with(
        &self,
        turnstile: MutexGuard<'_, Self::Turnstile>,
        need_locks: bool,
        group: &[Submission],
    ) -> Result<Led>;

    /// Applies an encoded batch, unless its check does not hold; returns when it is as durable as
    /// asked and visible. Says the sequence of its last record.
    fn write(&self, submission: Submission) -> Result<Sequence, Refused> {
        self.shared().latch.check()?;
        let bytes = submission.encoded.len();
        self.shared().write_throttle.admit(bytes, || self.shared().latch.check().is_err());
        let waiter = match self.queue().enter(submission) {
            Entered::Waits(waiter) => waiter,
            Entered::Leads(submission) => {
                let group = std::slice::from_ref(&submission);
                let led = self.lead_caught(group);
                self.queue().hand_over();
                return own_outcome(group, led.unwrap_or_else(|panic| panic.resume()));
            }
        };
        match waiter.wait() {
            Turn::Done(result) => result,
            Turn::Lead => self.lead_group(&waiter),
        }
    }

    /// Leads with the caller's batch and those in line behind it.
    fn lead_group(&self, first: &Arc<Waiter>) -> Result<Sequence, Refused> {
        let others = self.queue().take_behind(first);
        let group = std::iter::once(first).chain(&others);
        let group: Vec<_> = group.map(|waiter| waiter.submission.clone()).collect();
        let led = self.lead_caught(&group);
        self.queue().hand_over();
        let result = match &led {
            Ok(led) => led.clone(),
            Err(_) => self.shared().latch.check().map(|()| Led::default()),
        };
        for (waiter, outcome) in others.iter().zip(outcomes(&group, result).skip(1)) {
            waiter.set(Turn::Done(outcome));
        }
        own_outcome(&group, led.unwrap_or_else(|panic| panic.resume()))
    }

    /// Writes the batches that `take` gives once it has the turnstile, and says what became of
    /// each. Does not line up with writers that wait for themselves: the turnstile is the order. A
    /// panic is an error here, for the caller answers for others.
    fn write_group(
        &self,
        take: &mut dyn FnMut(bool) -> Vec<Submission>,
    ) -> Vec<Result<Sequence, Refused>> {
        let mut group = Vec::new();
        let led = catch_panic(|| {
            let turnstile = self.turnstile().lock();
            let need_locks = self.locks().are_needed();
            group = take(need_locks);
            if group.is_empty() {
                return Ok(Led::default());
            }
            self.lead_with(turnstile, need_locks, &group)
        });
        let led = led.unwrap_or_else(|panic| {
            self.shared().fail_by_panic("a logger", &panic.to_string());
            self.shared().latch.check().map(|()| Led::default())
        });
        outcomes(&group, led).collect()
    }

    /// Leads; where that panics, gives the panic, which is for the caller to let go on. Writing has
    /// stopped then.
    fn lead_caught(&self, group: &[Submission]) -> Result<Result<Led>, Panic> {
        let led = catch_panic(|| {
            let turnstile = self.turnstile().lock();
            self.lead_with(turnstile, self.locks().are_needed(), group)
        });
        led.inspect_err(|panic| self.shared().fail_by_panic("a writer", &panic.to_string()))
    }

    /// Why a group that is whole is not acknowledged: one before it failed.
    fn stopped(&self) -> Error {
        let reason = self.shared().latch.check().err();
        reason.unwrap_or_else(|| Error::new(ErrorKind::ReadOnly, "a write before this one failed"))
    }
}
