//! Snapshots: one moment of the database, readable for as long as it is held.
//!
//! The registry counts holders per sequence. A compaction asks for the list when it begins; an
//! older version of a key survives when some snapshot in the list still sees it. A snapshot taken
//! later is at or after the newest sequence of that time, so nothing it needs was dropped.

use crate::error::Result;
use crate::jobs::Jobs;
use crate::versions::holders::Holders;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::OwnerProcess;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::{Planted, Sequence, planted};

/// Live snapshots of a database.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Sequence, u64>>,
    /// Work waits for the end of the oldest snapshot.
    is_awaited: AtomicBool,
    /// In a forked child another thread of its parent may hold the lock for ever; nothing is
    /// registered there.
    owner: OwnerProcess,
    /// The jobs of the store.
    jobs: Option<Arc<Jobs>>,
    pub holders: Arc<Holders>,
}

impl Snapshots {
    /// None yet, of a store with these jobs.
    pub fn new(jobs: &Arc<Jobs>) -> Self {
        Self { jobs: Some(Arc::clone(jobs)), ..Self::default() }
    }

    /// Registers the sequence that `newest` gives, read under the lock so that a compaction's list
    /// cannot miss it.
    pub fn take(self: &Arc<Self>, newest: impl FnOnce() -> Sequence) -> Snapshot {
        if !self.owner.is_current() {
            return Snapshot { registry: Arc::clone(self), sequence: newest() };
        }
        let mut held = self.held.lock();
        let sequence = newest();
        *held.entry(sequence).or_default() += 1;
        Snapshot { registry: Arc::clone(self), sequence }
    }

    /// Registered sequences, ascending, then the one `newest` gives: what a compaction must keep
    /// readable.
    pub fn list(&self, newest: impl FnOnce() -> Sequence) -> Vec<Sequence> {
        let held = self.held.lock();
        let mut list: Vec<_> = held.keys().copied().collect();
        if planted(Planted::RetentionIgnoresSnapshots) {
            list.clear();
        }
        let newest = newest();
        if list.last() != Some(&newest) {
            list.push(newest);
        }
        list
    }

    /// The oldest registered sequence; where there is none, the one that `newest` gives.
    pub fn oldest(&self, newest: impl FnOnce() -> Sequence) -> Sequence {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(newest)
    }

    /// The end of the oldest snapshot wakes the jobs, once. Ask for [`Snapshots::oldest`] again
    /// after this: a snapshot may have ended just before.
    pub fn await_end(&self) {
        self.is_awaited.store(true, Relaxed);
    }
}

/// A registered moment. Dropping it lets compactions forget what only it could see.
#[derive(Debug)]
pub(crate) struct Snapshot {
    registry: Arc<Snapshots>,
    sequence: Sequence,
}

impl Snapshot {
    /// The newest sequence it sees.
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Refuses a forked child.
    pub fn require_owner(&self) -> Result<()> {
        let owner = &self.registry.owner;
        if owner.is_current() { Ok(()) } else { Ok(owner.require("the store")?) }
    }

    /// Where what holds the database is counted.
    pub fn holders(&self) -> &Arc<Holders> {
        &self.registry.holders
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        self.registry.take(|| self.sequence)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.registry.owner.is_current() {
            return;
        }
        let mut held = self.registry.held.lock();
        let was_oldest = held.keys().next() == Some(&self.sequence);
        let is_last = held.get_mut(&self.sequence).is_some_and(|count| {
            *count -= 1;
            *count == 0
        });
        if is_last {
            held.remove(&self.sequence);
        }
        drop(held);
        // Under the lock the planner has either seen this end or said before that it waits for it.
        if was_oldest && is_last && self.registry.is_awaited.load(Relaxed) {
            self.registry.is_awaited.store(false, Relaxed);
            self.registry.jobs.iter().for_each(|jobs| jobs.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_listed_until_its_last_holder_is_gone() {
        let snapshots = Arc::new(Snapshots::default());
        let first = snapshots.take(|| Sequence(5));
        let second = first.clone();
        drop(first);
        assert_eq!(snapshots.list(|| Sequence(9)), [Sequence(5), Sequence(9)]);
        drop(second);
        assert_eq!(snapshots.list(|| Sequence(9)), [Sequence(9)]);
    }
}
