//! Keys with all their versions, copied out of the index: what a cursor walks without a lock.
//!
//! ```text
//!   keys      key 0 | key 1 | ...           one buffer
//!   entries   versions of key 0 | of key 1 | ...   newest first
//!   groups    where key and versions of each end
//! ```
//! A batch is filled again and again ([`FastIndex::ascend`](crate::FastIndex::ascend)); once its
//! buffers have grown, filling it allocates nothing.
//!
//! Invariant: all versions of a key that were in the index are in one batch.

use crate::entry::Entry;

/// Keys in the order of the traversal, and their versions.
#[derive(Debug, Default)]
pub struct IndexBatch {
    keys: Vec<u8>,
    entries: Vec<Entry>,
    groups: Vec<Group>,
    ended: bool,
    /// Low or high ends of leaves, while it is filled.
    pub(crate) fences: Fences,
}

/// Ends of one key's parts.
#[derive(Clone, Copy, Debug)]
struct Group {
    key_end: usize,
    entries_end: usize,
}

/// Where the leaf at hand and the next one begin.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pub here: Vec<u8>,
    pub next: Vec<u8>,
}

impl IndexBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether it has no key.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether the range has nothing after (or, descending, before) the last key.
    pub fn is_end(&self) -> bool {
        self.ended
    }

    /// Key number `at`, from 0 in the order of the traversal.
    pub fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.groups[at - 1].key_end };
        &self.keys[start..self.groups[at].key_end]
    }

    /// The versions of key number `at`, newest first, in either order of traversal.
    pub fn versions(&self, at: usize) -> &[Entry] {
        let start = if at == 0 { 0 } else { self.groups[at - 1].entries_end };
        &self.entries[start..self.groups[at].entries_end]
    }

    /// The last key: where the next batch goes on, excluding it.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.len().checked_sub(1).map(|last| self.key(last))
    }

    /// Every key with its versions.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[Entry])> {
        (0..self.len()).map(|at| (self.key(at), self.versions(at)))
    }

    /// Empties it; buffers stay.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
        self.groups.clear();
        self.ended = false;
    }

    pub(crate) fn push(&mut self, key: &[u8], versions: impl Iterator<Item = Entry>) {
        self.keys.extend_from_slice(key);
        self.entries.extend(versions);
        let (key_end, entries_end) = (self.keys.len(), self.entries.len());
        self.groups.push(Group { key_end, entries_end });
    }

    pub(crate) fn end(&mut self) {
        self.ended = true;
    }
}
