//! The front: where a write lands and becomes durable.
//!
//! A closed choice with one `match` an operation. All presets have a memtable before a write-ahead
//! log so far. What a full memtable goes to is for the layout.

pub(crate) mod log_pool;
mod log_tail;
mod logged;
mod queue;
pub(crate) mod replay;
mod upkeep;

use crate::error::Result;
use crate::jobs::Job;
use crate::settings::Durability;
use bytes::Bytes;
pub(crate) use logged::{Logged, Quiet};
use std::sync::Arc;
use thermocline_foundation::FileNumber;

/// See the module's header.
#[derive(Clone, Debug)]
pub(crate) enum Front {
    Logged(Arc<Logged>),
}

impl Front {
    /// A memtable before a write-ahead log.
    pub fn with_log(logged: Logged) -> Self {
        Self::Logged(Arc::new(logged))
    }

    /// Applies an encoded batch; returns when it is as durable as asked and visible.
    pub fn write(&self, encoded: Bytes, count: u32, durability: Durability) -> Result<()> {
        match self {
            Self::Logged(logged) => logged.write(encoded, count, durability),
        }
    }

    /// Waits until no write is in flight, and keeps writers out: for a flush, a bulk load, a
    /// checkpoint. An error where the store is latched.
    pub fn quiesce(&self) -> Result<Quiet<'_>> {
        match self {
            Self::Logged(logged) => logged.quiesce(),
        }
    }

    /// As [`Front::quiesce`], also where the store is latched: for a check, and for closing.
    pub fn enter(&self) -> Quiet<'_> {
        match self {
            Self::Logged(logged) => logged.enter(),
        }
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        match self {
            Self::Logged(logged) => logged.sync(),
        }
    }

    /// What writers wait for and is wanted now, claimed.
    pub fn upkeep(&self) -> Option<Box<dyn Job>> {
        match self {
            Self::Logged(logged) => logged.upkeep(),
        }
    }

    /// The log waits to be used again: it holds nothing any more.
    pub fn is_retired(&self, log: FileNumber) -> bool {
        match self {
            Self::Logged(logged) => logged.is_retired(log),
        }
    }

    /// Deletes the logs that wait to be used; false where there are none.
    pub fn give_up_logs(&self) -> Result<bool> {
        match self {
            Self::Logged(logged) => logged.give_up_logs(),
        }
    }

    /// Bytes of logs that no sync has covered yet.
    pub fn unsynced_bytes(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.unsynced_bytes(),
        }
    }

    /// Logs that the pool counts as there.
    pub fn counted_logs(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.counted_logs(),
        }
    }

    /// Writers in line behind the one that writes for all.
    pub fn waiting_writers(&self) -> u64 {
        match self {
            Self::Logged(logged) => logged.waiting_writers(),
        }
    }

    /// The front with a log, of a store that has one.
    #[cfg(test)]
    pub fn logged(&self) -> &Arc<Logged> {
        match self {
            Self::Logged(logged) => logged,
        }
    }
}
