//! Snapshots: one moment of the database, readable for as long as it is held.
//!
//! The registry counts holders per sequence. A compaction asks for the list when it begins; an
//! older version of a key survives when some snapshot in the list still sees it. A snapshot taken
//! later is at or after the newest sequence of that time, so nothing it needs was dropped.

use crate::error::Result;
use crate::versions::holders::Holders;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::OwnerProcess;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Planted, Sequence, planted};

/// Live snapshots of a database.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Sequence, u64>>,
    /// In a forked child another thread of its parent may hold the lock for ever; nothing is
    /// registered there.
    owner: OwnerProcess,
    pub holders: Arc<Holders>,
}

impl Snapshots {
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
        if let Some(count) = held.get_mut(&self.sequence) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.sequence);
            }
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
