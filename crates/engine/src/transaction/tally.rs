//! What is counted of transactions, conditional writes and their locks.
//!
//! Threads: any. Nothing is counted on the way of a write that comes first.

use crate::error::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Transactions and conditional writes that came second, since the opening.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransactionStats {
    /// Pessimistic transactions that are open at this moment. While one is, every write takes
    /// locks.
    pub open_pessimistic: u64,
    /// Times that a commit, a conditional write or `get_for_update` found that another write came
    /// first. A conditional write then begins again by itself.
    pub conflicts: u64,
    /// Transactions that were told of a deadlock.
    pub deadlocks: u64,
    /// Waits for a lock that took longer than the lock timeout.
    pub lock_timeouts: u64,
}

/// See [`TransactionStats`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    conflicts: AtomicU64,
    deadlocks: AtomicU64,
    lock_timeouts: AtomicU64,
}

impl Tally {
    /// Counts `error`, if it is of a kind that is counted. Once for each that a caller hears of.
    pub fn note(&self, error: &Error) {
        let count = match error.kind() {
            ErrorKind::Conflict => &self.conflicts,
            ErrorKind::Deadlock => &self.deadlocks,
            ErrorKind::LockTimeout => &self.lock_timeouts,
            _ => return,
        };
        count.fetch_add(1, Relaxed);
    }

    /// What was counted, with those that are open.
    pub fn stats(&self, open_pessimistic: u64) -> TransactionStats {
        TransactionStats {
            open_pessimistic,
            conflicts: self.conflicts.load(Relaxed),
            deadlocks: self.deadlocks.load(Relaxed),
            lock_timeouts: self.lock_timeouts.load(Relaxed),
        }
    }
}
