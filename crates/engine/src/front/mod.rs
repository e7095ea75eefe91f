//! The front: where a write lands and becomes durable.
//!
//! A closed choice with one `match` an operation: a memtable before a write-ahead log, or one whose
//! groups are in a region of persistent memory. What a full memtable goes to is for the layout.

mod checks;
pub(crate) mod figures;
mod flying;
mod leading;
pub(crate) mod log_pool;
mod log_tail;
mod logged;
mod own_sequence;
pub(crate) mod persistent;
mod queue;
mod quiet;
pub(crate) mod replay;
mod turnstile;
mod upkeep;

use crate::error::Result;
use crate::jobs::Job;
use crate::transaction::Refused;
use figures::LogStats;
use leading::Leads;
pub(crate) use logged::Logged;
use persistent::Persistent;
use persistent::report::RegionStats;
pub(crate) use queue::Submission;
pub(crate) use quiet::Quiet;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Sequence};

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) enum Front {
    Logged(Arc<Logged>),
    Persistent(Arc<Persistent>),
}

impl Front {
    /// A memtable before a write-ahead log.
    pub fn with_log(logged: Logged) -> Self {
        Self::Logged(Arc::new(logged))
    }

    /// A memtable whose groups are in persistent memory.
    pub fn with_region(persistent: Persistent) -> Self {
        Self::Persistent(Arc::new(persistent))
    }

    /// Applies an encoded batch, unless its check does not hold; returns when it is as durable as
    /// asked and visible. Says the sequence of its last record.
    pub fn write(&self, submission: Submission) -> Result<Sequence, Refused> {
        match self {
            Self::Logged(logged) => logged.write(submission),
            Self::Persistent(persistent) => persistent.write(submission),
        }
    }

    /// Writes, as one group, the batches that `take` gives once it is the caller's turn; a result
    /// for each. They are newer than what an earlier call took, and older than what a later
    /// one takes. `take` hears whether each of them must have its locks.
    pub fn write_group(
        &self,
        take: &mut dyn FnMut(bool) -> Vec<Submission>,
    ) -> Vec<Result<Sequence, Refused>> {
        match self {
            Self::Logged(logged) => logged.write_group(take),
            Self::Persistent(persistent) => persistent.write_group(take),
        }
    }

    /// Waits until no write is in flight, and keeps writers out: for a flush, a bulk load, a
    /// checkpoint. An error where the store is latched.
    pub fn quiesce(&self) -> Result<Quiet<'_>> {
        match self {
            Self::Logged(logged) => logged.quiesce().map(Quiet::Logged),
            Self::Persistent(persistent) => persistent.quiesce().map(Quiet::Persistent),
        }
    }

    /// As [`Front::quiesce`], also where the store is latched: for a check, and for closing.
    pub fn enter(&self) -> Quiet<'_> {
        match self {
            Self::Logged(logged) => Quiet::Logged(logged.enter()),
            Self::Persistent(persistent) => Quiet::Persistent(persistent.enter()),
        }
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::Logged(logged) => logged.sync(),
            Self::Persistent(persistent) => persistent.sync(),
        }
    }

    /// What writers wait for and is wanted now, claimed.
    pub fn upkeep(&self) -> Option<Box<dyn Job>> {
        match self {
            Self::Logged(logged) => logged.upkeep(),
            Self::Persistent(_) => None,
        }
    }

    /// The log waits to be used again: it holds nothing any more.
    pub fn is_retired(&self, log: FileNumber) -> bool {
        match self {
            Self::Logged(logged) => logged.pool().is_retired(log),
            Self::Persistent(_) => false,
        }
    }

    /// Deletes the logs that wait to be used; false where there are none.
    pub fn give_up_logs(&self) -> Result<bool> {
        match self {
            Self::Logged(logged) => logged.pool().give_up_logs(),
            Self::Persistent(_) => Ok(false),
        }
    }

    /// Bytes of logs that no sync has covered yet.
    pub fn unsynced_bytes(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.unsynced_bytes(),
            Self::Persistent(_) => 0,
        }
    }

    /// Logs that the pool counts as there.
    pub fn counted_logs(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.pool().counted(),
            Self::Persistent(_) => 0,
        }
    }

    /// Writers in line behind the one that writes for all.
    pub fn waiting_writers(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.waiting_writers(),
            Self::Persistent(persistent) => persistent.waiting_writers(),
        }
    }

    /// Groups of writes and their log.
    pub fn log_stats(&self) -> LogStats {
        match self {
            Self::Logged(logged) => logged.log_stats(),
            Self::Persistent(persistent) => persistent.log_stats(),
        }
    }

    /// The region; none where there is none.
    pub fn region_stats(&self) -> Option<RegionStats> {
        match self {
            Self::Logged(logged) => logged.region_stats(),
            Self::Persistent(persistent) => Some(persistent.region_stats()),
        }
    }

    /// Reads again what the region has of memtables; its bytes, or none where writes go to a log.
    pub fn verify_region(&self) -> Option<(u64, Result<()>)> {
        match self {
            Self::Logged(_) => None,
            Self::Persistent(persistent) => Some(persistent.verify()),
        }
    }

    /// A close writes memtables out first: a region that was closed holds nothing that tables lack.
    pub fn is_emptied_at_close(&self) -> bool {
        match self {
            Self::Logged(_) => false,
            Self::Persistent(_) => true,
        }
    }

    /// The front with a log, of a store that has one.
    #[cfg(test)]
    pub fn logged(&self) -> &Arc<Logged> {
        match self {
            Self::Logged(logged) => logged,
            Self::Persistent(_) => panic!("this store has no log"),
        }
    }
}
