//! Groups of writes that have their sequences and may not be in a memtable yet: what a check must
//! look at besides.
//!
//! Threads: the one at the turnstile.

use bytes::Bytes;
use std::collections::VecDeque;
use thermocline_foundation::Sequence;

/// Oldest first. Empty where groups are written one after the other: then the turnstile is held
/// until they are in the memtable.
#[derive(Debug, Default)]
pub(super) struct Flying(VecDeque<Group>);

/// What a group writes that is on its way.
#[derive(Debug)]
struct Group {
    last: Sequence,
    /// Batches with their first sequences.
    batches: Vec<(Sequence, Bytes)>,
}

impl Flying {
    /// A group goes on its way, which ends with the sequence `last`.
    pub fn add(&mut self, last: Sequence, batches: Vec<(Sequence, Bytes)>) {
        self.0.push_back(Group { last, batches });
    }

    /// Forgets the groups that are published.
    pub fn published(&mut self, visible: Sequence) {
        while self.0.front().is_some_and(|group| group.last <= visible) {
            self.0.pop_front();
        }
    }

    /// Batches of groups that may not be in a memtable yet, with their first sequences.
    pub fn batches(&self) -> impl Iterator<Item = &(Sequence, Bytes)> {
        self.0.iter().flat_map(|group| &group.batches)
    }
}
