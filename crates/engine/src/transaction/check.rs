//! The leader's look: the second phase, in memory only.

use super::validation::{Decision, Footprint, History, conflict, validate};
use crate::batch::BatchReader;
use crate::error::{Error, Result};
use crate::table_set::key_range::KeyRange;
use crate::versions::{Version, Versions};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::ArcSwapGuard;

/// What must hold when a batch is written.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub footprint: Arc<Footprint>,
    /// Phase 1 has looked at all up to here.
    pub looked: Sequence,
    /// Keys, and entries of ranges, that the leader looks at, at most.
    pub entries_max: u64,
    /// The locks of all keys of the batch are held.
    pub has_locks: bool,
}

impl Check {
    /// There is something that it builds on.
    pub fn builds(&self) -> bool {
        self.footprint.oldest_base().is_some()
    }
}

/// Why a batch was not written.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// For good; also where what it builds on has changed.
    Failed(Error),
    /// Memory does not say whether it may be written: phase 1 is to be run again.
    LookAgain,
    /// A pessimistic transaction is open, and the locks of the batch's keys are not held. With the
    /// batch.
    WithoutLocks(Bytes),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What the leader of a group knows: memtables, batches that fly, and those of its group before
/// this one.
#[derive(Debug)]
pub(crate) struct Recent {
    version: ArcSwapGuard<Arc<Version>>,
    visible: Sequence,
    /// The last sequence that was given out: a group may be in a memtable and not visible yet.
    claimed: Sequence,
    /// Keys of earlier batches, whose sequences are newer than any that is visible.
    earlier: BTreeSet<Bytes>,
    /// The first sequence of the oldest of them that has one.
    oldest_flying: Option<Sequence>,
}

impl Recent {
    /// What memory has now. The caller keeps writers out, or takes the answer for a hint.
    pub fn new(versions: &Versions) -> Self {
        let version = versions.current();
        let (visible, claimed) = (versions.visible(), versions.window.claimed());
        Self { version, visible, claimed, earlier: BTreeSet::new(), oldest_flying: None }
    }

    /// A batch of another group comes before those that are asked for from here on, and may be in
    /// the memtable or not; its first sequence is `first`.
    pub fn add_flying(&mut self, first: Sequence, encoded: &Bytes) -> Result<()> {
        let oldest = self.oldest_flying.map_or(first, |oldest| oldest.min(first));
        self.oldest_flying = Some(oldest);
        self.add(encoded)
    }

    /// A batch of the group comes before those that are asked for from here on.
    pub fn add(&mut self, encoded: &Bytes) -> Result<()> {
        for record in BatchReader::new(encoded)? {
            let record = record?;
            let (at, len) = (record.key_at as usize, record.key_len as usize);
            self.earlier.insert(encoded.slice(at..at + len));
        }
        Ok(())
    }

    /// Memory has all that is newer than `sequence`.
    pub fn has_all_after(&self, sequence: Sequence) -> bool {
        sequence >= self.complete_after()
    }

    /// The check holds.
    pub fn allows(&self, check: &Check) -> Result<(), Refused> {
        match validate(&check.footprint, check.looked, check.entries_max, self) {
            Decision::Holds => Ok(()),
            Decision::Conflict(key) => Err(Refused::Failed(conflict(&key))),
            Decision::LookAgain => Err(Refused::LookAgain),
        }
    }
}

impl History for Recent {
    fn ends_at(&self, sequence: Sequence) -> bool {
        self.claimed <= sequence && self.earlier.is_empty()
    }

    fn complete_after(&self) -> Sequence {
        let in_memory = self.version.oldest_in_memory();
        // What flies may come into the memtable in any order.
        let oldest = in_memory.into_iter().chain(self.oldest_flying).min();
        oldest.map_or(self.visible, |oldest| Sequence(oldest.0 - 1))
    }

    fn newest(&self, key: &[u8]) -> Option<Sequence> {
        if self.earlier.contains(key) {
            return Some(Sequence::MAX);
        }
        let newest = self.version.get_in_memory(key, Sequence::MAX);
        newest.map(|(trailer, _)| trailer.sequence())
    }

    fn newer_in(&self, range: &KeyRange, than: Sequence, most: &mut u64) -> Option<Bytes> {
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = range.bounds();
        if !range.is_empty()
            && let Some(key) = self.earlier.range::<[u8], _>(bounds).next()
        {
            return Some(key.clone());
        }
        let bounds = (range.from.as_deref(), range.to.as_deref());
        let frozen = self.version.frozen.iter().map(|frozen| &frozen.memtable);
        let mut memtables = std::iter::once(&self.version.active).chain(frozen);
        memtables.find_map(|memtable| memtable.newer_in(bounds, than, most))
    }
}
