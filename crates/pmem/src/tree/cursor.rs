//! Entries in the order of the keys, either way, a leaf at a time.
//!
//! 1. A walk holds no pin between two calls: it copies the entries of a leaf, and the key at which
//!    the leaf begins or ends. So it keeps nothing from being reused, however long it is held.
//! 2. The objects of a leaf lie anywhere. The processor is told of all of them at once, so that it
//!    waits for several lines at a time.
//! 3. It sees every entry that was there all the time, once, in order. What is entered or removed
//!    meanwhile it may see or not.
//! 4. Each leaf brings it further. One that does not is damaged: the walk would not end.
//!
//! Threads: any; a cursor is one thread's at a time.

use super::Tree;
use super::search::{Goal, Position};
use crate::layout::{LINE_BYTES, damaged};
use crate::object::Entry;
use std::collections::VecDeque;
use thermocline_device::Result;

/// Bytes of each object that a walk has fetched ahead: all of one with a key of usual length.
const FETCHED_BYTES: u64 = LINE_BYTES;

/// Entries of a leaf in the order of a walk, and the key with which it goes on; none at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeafEntries {
    /// Keys and entries.
    pub entries: Vec<(Vec<u8>, Entry)>,
    /// For the next call.
    pub rest: Option<Vec<u8>>,
}

impl Tree {
    /// The entries from `from` on in the leaf of that key, ascending.
    pub fn ascend(&self, from: &[u8]) -> Result<LeafEntries> {
        let _pin = self.readers.pin();
        let Some(position) = self.position(Goal::From(from))? else {
            return Ok(LeafEntries::default());
        };
        let Position { leaf, index } = &position;
        let entries = self.entries((*index..leaf.len()).map(|at| leaf.slot(at).offset))?;
        let rest = self.end_of(leaf)?;
        if rest.as_deref().is_some_and(|rest| rest <= from) {
            return Err(damaged(leaf.next, "a leaf of the index begins before its left neighbour"));
        }
        Ok(LeafEntries { entries, rest })
    }

    /// The entries before `until`, or up to the last one where there is none, in the leaf where
    /// that key ends, descending.
    pub fn descend(&self, until: Option<&[u8]>) -> Result<LeafEntries> {
        let _pin = self.readers.pin();
        let Some(position) = self.position(until.map_or(Goal::End, Goal::Before))? else {
            return Ok(LeafEntries::default());
        };
        let Position { leaf, index } = &position;
        let entries = self.entries((0..*index).rev().map(|at| leaf.slot(at).offset))?;
        let low = self.low_key(leaf.low)?;
        if until.is_some_and(|until| !low.is_empty() && low.as_slice() >= until) {
            return Err(damaged(leaf.low, "a leaf of the index begins behind its keys"));
        }
        Ok(LeafEntries { entries, rest: Some(low).filter(|low| !low.is_empty()) })
    }

    /// What is at `places`. The processor begins to fetch all of it before the first is read.
    fn entries(&self, places: impl Iterator<Item = u64> + Clone) -> Result<Vec<(Vec<u8>, Entry)>> {
        let medium = self.region.medium();
        places.clone().for_each(|at| medium.prefetch(at, FETCHED_BYTES));
        let entry = |at| self.object(at).map(|object| (object.key, object.entry));
        places.map(entry).collect()
    }

    /// The entries from `key` on.
    pub fn cursor(&self, key: &[u8]) -> Cursor<'_> {
        Cursor { tree: self, from: Some(key.to_vec()), entries: VecDeque::new() }
    }
}

/// A walk over the index.
#[derive(Debug)]
pub struct Cursor<'a> {
    tree: &'a Tree,
    /// The first key that is not in `entries`; none at the end.
    from: Option<Vec<u8>>,
    entries: VecDeque<(Vec<u8>, Entry)>,
}

impl Cursor<'_> {
    fn fill(&mut self) -> Result<()> {
        while self.entries.is_empty()
            && let Some(from) = self.from.take()
        {
            let found = self.tree.ascend(&from)?;
            (self.entries, self.from) = (found.entries.into(), found.rest);
        }
        Ok(())
    }
}

impl Iterator for Cursor<'_> {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        // After an error the walk has ended: `from` was taken.
        match self.fill() {
            Ok(()) => self.entries.pop_front().map(Ok),
            Err(error) => Some(Err(error)),
        }
    }
}
