//! Writes, with and without conditions: what is sent to the front, and what is sent again.

use super::Engine;
use crate::error::Result;
use crate::front::Submission;
use crate::settings::Durability;
use crate::transaction::options::LOCK_TIMEOUT;
use crate::transaction::{Check, Footprint, HeldLocks, Opened, Recent, Refused};
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::{Duration, Planted, Sequence, planted};

/// Entries of ranges that the leader looks at while others wait, at most.
const ENTRIES_MAX: u64 = 4096;
/// After so many looks at everything the leader goes through larger ranges all the same: what came
/// after the last look is little, but for what is written meanwhile.
const LOOKS_MAX: u32 = 2;

/// A batch and what must hold when it is written.
#[derive(Debug)]
pub(crate) struct Commit {
    pub encoded: Bytes,
    pub count: u32,
    pub durability: Durability,
    /// What must not have changed.
    pub footprint: Footprint,
    pub lock_timeout: Duration,
    /// The caller has the locks of all keys.
    pub has_locks: bool,
}

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
        let (footprint, lock_timeout, has_locks) = (Footprint::default(), LOCK_TIMEOUT, false);
        self.commit(Commit { encoded, count, durability, footprint, lock_timeout, has_locks })
    }

    /// As [`Engine::write`], if what the batch builds on has not changed; an error of kind
    /// `Conflict` where it has.
    pub fn commit(&self, commit: Commit) -> Result<Sequence> {
        let Commit { encoded, count, durability, footprint, lock_timeout, has_locks } = commit;
        let footprint = Arc::new(footprint);
        // Held until what they are for is published, or refused.
        let mut locks = None;
        let mut looked = footprint.oldest_base().unwrap_or_else(|| self.versions.visible());
        let mut looks = 0;
        let memory_only = planted(Planted::CommitValidatesMemoryOnly);
        if memory_only {
            looked = self.versions.visible();
        } else if !Recent::new(&self.versions).has_all_after(looked) {
            looked = self.reader.look(&footprint)?;
        }
        loop {
            if !has_locks && locks.is_none() && self.locks.are_needed() {
                locks = Some(self.locks.of_batch(&encoded, lock_timeout)?);
            }
            let check = Check {
                footprint: Arc::clone(&footprint),
                looked,
                entries_max: if looks < LOOKS_MAX { ENTRIES_MAX } else { u64::MAX },
                has_locks: has_locks || locks.is_some(),
            };
            let (encoded, check) = (encoded.clone(), Some(Arc::new(check)));
            match self.front.write(Submission { encoded, count, durability, check }) {
                Ok(sequence) => return Ok(sequence),
                Err(Refused::Failed(error)) => return Err(error),
                Err(Refused::WithoutLocks(_)) => {}
                Err(Refused::LookAgain) => {
                    looked = self.reader.look(&footprint)?;
                    looks += 1;
                }
            }
        }
    }

    /// What a pessimistic transaction begins with. What was written without locks is published
    /// when this returns, and from then on nothing is.
    pub fn open_locks(self: &Arc<Self>) -> TransactionLocks {
        let opened = self.locks.open();
        if self.ours().is_ok() {
            drop(self.front.enter());
        }
        TransactionLocks { held: self.locks.owner(), _opened: opened }
    }
}
