//! Writes, with and without conditions: what is sent to the front, and what is sent again.

use super::Engine;
use crate::error::Result;
use crate::front::Submission;
use crate::settings::Durability;
use crate::transaction::{Attempts, Commit, Footprint, HeldLocks, Opened, Patience, Refused};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::Sequence;

/// What a pessimistic transaction holds. The locks go first.
#[derive(Debug)]
pub(crate) struct TransactionLocks {
    pub held: HeldLocks,
    _opened: Opened,
}

impl Engine {
    /// Applies the `count` records of an encoded batch, all of them or none. Says the sequence of
    /// the last one.
    pub fn write(
        &self,
        mut encoded: Bytes,
        count: u32,
        durability: Durability,
    ) -> Result<Sequence> {
        if !self.locks.are_needed() {
            let submission = Submission { encoded, count, durability, check: None };
            encoded = match self.front.write(submission) {
                Ok(sequence) => return Ok(sequence),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::WithoutLocks(encoded)) => encoded,
                Err(Refused::LookAgain) => unreachable!("nothing was to be looked at"),
            };
        }
        let (footprint, has_locks) = (Footprint::default(), false);
        let lock_timeout = self.settings().lock_timeout;
        self.commit(Commit { encoded, count, durability, footprint, lock_timeout, has_locks })
    }

    /// As [`Engine::write`], if what the batch builds on has not changed; an error of kind
    /// `Conflict` where it has.
    pub fn commit(&self, commit: Commit) -> Result<Sequence> {
        self.try_commit(commit).inspect_err(|error| self.locks.tally.note(error))
    }

    fn try_commit(&self, commit: Commit) -> Result<Sequence> {
        let Commit { encoded, count, durability, footprint, lock_timeout, has_locks } = commit;
        // Held until what they are for is published, or refused.
        let mut locks = None;
        let mut attempts = Attempts::new(footprint, &self.versions);
        if attempts.need_look(&self.versions) {
            attempts.have_looked(self.reader.look(attempts.footprint(), attempts.looked())?);
        }
        loop {
            if !has_locks && locks.is_none() && self.locks.are_needed() {
                let mut patience = Patience::new(lock_timeout);
                locks = Some(self.locks.of_batch(&encoded, &mut patience)?);
            }
            let check = Some(attempts.check(has_locks || locks.is_some()));
            let encoded = encoded.clone();
            match self.front.write(Submission { encoded, count, durability, check }) {
                Ok(sequence) => return Ok(sequence),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::WithoutLocks(_)) => {}
                Err(Refused::LookAgain) => {
                    attempts
                        .have_looked(self.reader.look(attempts.footprint(), attempts.looked())?);
                }
            }
        }
    }

    /// What a pessimistic transaction begins with. What was written without locks is published
    /// when this returns, and from then on nothing is. Only one that opens while no other is open
    /// has to wait for that, and holds writers up.
    pub fn open_locks(self: &Arc<Self>) -> TransactionLocks {
        let mut opened = self.locks.open();
        if !opened.is_settled() && self.ours().is_ok() {
            drop(self.front.enter());
            opened.settled();
        }
        TransactionLocks { held: self.locks.owner(), _opened: opened }
    }
}
