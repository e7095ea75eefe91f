//! Entries in the order of the keys, a leaf at a time.
//!
//! 1. A cursor holds no pin between two calls: it copies the entries of a leaf, and the key at
//!    which the next one begins. So it keeps nothing from being reused, however long it is held.
//! 2. It sees every entry that was there all the time, once, in order. What is entered or removed
//!    meanwhile it may see or not.
//!
//! Threads: one at a time.

use super::Tree;
use crate::object::Entry;
use std::collections::VecDeque;
use thermocline_device::Result;

/// A walk over the index.
#[derive(Debug)]
pub struct Cursor<'a> {
    tree: &'a Tree,
    /// The first key that is not in `entries`; none at the end.
    from: Option<Vec<u8>>,
    entries: VecDeque<(Vec<u8>, Entry)>,
}

impl Tree {
    /// The entries from `key` on.
    pub fn cursor(&self, key: &[u8]) -> Cursor<'_> {
        Cursor { tree: self, from: Some(key.to_vec()), entries: VecDeque::new() }
    }
}

impl Cursor<'_> {
    fn fill(&mut self) -> Result<()> {
        let tree = self.tree;
        while self.entries.is_empty()
            && let Some(from) = self.from.take()
        {
            let _pin = tree.readers.pin();
            let Some(position) = tree.position(&from)? else {
                return Ok(());
            };
            for slot in position.leaf.slots().skip(position.index) {
                let object = tree.object(slot.offset)?;
                self.entries.push_back((object.key, object.entry));
            }
            self.from = tree.end_of(&position.leaf)?;
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
