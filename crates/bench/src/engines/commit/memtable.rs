//! The memtable of way (b): the engine's in small. Every version is kept, in the order of keys, and
//! counts what it takes in the engine (`generations/memtable.rs`), so that it is full as soon.
//!
//! Threads: readers any number, and one writer beside them.

use super::line::Put;
use crossbeam_skiplist::SkipSet;
use crossbeam_skiplist::set::Entry;
use std::cmp::Ordering;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Memory of an entry besides its bytes, as the engine counts it.
const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// A version of a key.
#[derive(Debug)]
pub(super) struct Version {
    /// The first eight bytes of the key, which decide most comparisons.
    prefix: u64,
    pub sequence: Sequence,
    key_len: usize,
    bytes: Box<[u8]>,
}

impl Version {
    fn new(sequence: Sequence, key: &[u8], value: &[u8]) -> Self {
        let mut prefix = [0; 8];
        let len = key.len().min(8);
        prefix[..len].copy_from_slice(&key[..len]);
        let prefix = u64::from_be_bytes(prefix);
        Self { prefix, sequence, key_len: key.len(), bytes: [key, value].concat().into() }
    }

    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len]
    }

    pub fn value(&self) -> &[u8] {
        &self.bytes[self.key_len..]
    }
}

impl Ord for Version {
    /// By key, of a key the newest first.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = self.prefix.cmp(&other.prefix).then_with(|| self.key().cmp(other.key()));
        by_key.then_with(|| other.sequence.cmp(&self.sequence))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    versions: SkipSet<Version>,
    bytes: AtomicU64,
}

impl Memtable {
    pub fn insert(&self, sequence: Sequence, put: &Put) {
        self.bytes.fetch_add(put.len() as u64 + ENTRY_OVERHEAD_BYTES, Relaxed);
        self.versions.insert(Version::new(sequence, put.key(), put.value()));
    }

    /// Puts the newest value of `key` into `value`; false where there is none.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> bool {
        let newest = Version::new(Sequence::MAX, key, &[]);
        let found = self.versions.range(newest..).next();
        let Some(found) = found.filter(|found| found.key() == key) else { return false };
        value.clear();
        value.extend_from_slice(found.value().value());
        true
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// The newest version of each key, in the order of keys.
    pub fn newest(&self) -> impl Iterator<Item = Entry<'_, Version>> {
        let mut before: Option<Entry<'_, Version>> = None;
        self.versions.iter().filter(move |entry| {
            let same = before.as_ref().is_some_and(|before| before.key() == entry.key());
            before = Some(entry.clone());
            !same
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_found_and_visited_and_all_count() {
        let memtable = Memtable::default();
        let mut value = Vec::new();
        assert!(memtable.is_empty() && !memtable.get(b"b", &mut value));
        for (sequence, key) in [(1, "b"), (2, "a"), (3, "b"), (4, "a longer key"), (5, "b")] {
            memtable.insert(Sequence(sequence), &Put::new(key.as_bytes(), &[sequence as u8]));
        }
        assert!(memtable.get(b"b", &mut value) && value == [5]);
        assert!(memtable.get(b"a", &mut value) && value == [2]);
        assert!(!memtable.get(b"a longer", &mut value));
        let seen: Vec<_> = memtable
            .newest()
            .map(|entry| (entry.value().key().to_vec(), entry.value().sequence.0))
            .collect();
        let expected = [("a", 2), ("a longer key", 4), ("b", 5)];
        assert_eq!(seen, expected.map(|(key, sequence)| (key.as_bytes().to_vec(), sequence)));
        let user_bytes = 5 + 4 + 12;
        assert_eq!(memtable.bytes(), 5 * ENTRY_OVERHEAD_BYTES + user_bytes);
    }
}
