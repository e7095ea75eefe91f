//! What a leaf of the index holds: entries in order, packed into two arrays, and fingerprints.
//!
//! ```text
//!   prints    one byte of each key's hash, beside the leaf's lock
//!   keys      key 0 | key 1 | ...      bytes, one after another
//!   entries   24 bytes each, with the end of its key (entry.rs)
//! ```
//! A look-up of a key compares its fingerprint with all of `prints`, two or three cache lines that
//! come with the lock, and touches an entry and its key only where they match. A binary search
//! would touch an entry and a key, far apart in memory, seven times. What needs an order
//! (insertions, ranges) searches by halves.
//!
//! Invariants:
//! 1. Keys ascend; versions of one key descend by sequence; no key and sequence is there twice.
//! 2. All versions of a key are in one block: a block is split between keys only. A block of one
//!    key may therefore be larger than its limit.
//! 3. `kept` are the sums over the entries.
//! 4. Arrays grow to the next size that an allocator has and no further, and are cut back when a
//!    fifth is free: memory is what bounds the fast tier.
//! 5. Prints are those of all entries while there are at most `PRINTS`. Beyond, which only versions
//!    of one key bring about, they mean nothing and look-ups search by halves.

use crate::entry::{Entry, EntryKind, Packed};
use crate::key_hash::{allocated_bytes, key_hash};
use std::cmp::Ordering;
use std::ops::{Bound, Range};
use thermocline_foundation::Sequence;

/// A block with this many bytes of keys is split, whatever their number.
pub(crate) const KEY_BYTES_SPLIT: usize = 64 << 10;

/// Prints that there is room for: a leaf's entries, and those that it has too many.
const PRINTS: usize = 160;

/// Prints compared at once.
const LANES: usize = 32;

/// Most entries for which a leaf may be made, so that prints nearly always serve.
pub(crate) const LEAF_ENTRIES_MAX: usize = 128;

const _: () = assert!(PRINTS.is_multiple_of(LANES) && LEAF_ENTRIES_MAX < PRINTS);

/// What entries come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub record_bytes: u64,
    pub clean: u64,
    pub in_memory: u64,
    pub tombstones: u64,
}

impl Sums {
    fn of(entries: &[Packed]) -> Self {
        let mut sums = Self::default();
        for entry in entries.iter().map(Packed::entry) {
            sums.record_bytes += u64::from(entry.record_bytes);
            sums.clean += u64::from(entry.clean);
            sums.in_memory += u64::from(!entry.has_slot());
            sums.tombstones += u64::from(entry.kind == EntryKind::Delete);
        }
        sums
    }
}

/// Sums that are kept as entries come and go, in the little room that a leaf has for them: counts
/// are modulo 65,536.
#[derive(Clone, Copy, Debug, Default)]
struct KeptSums {
    record_bytes: u64,
    clean: u16,
    in_memory: u16,
    tombstones: u16,
}

impl KeptSums {
    fn of(entries: &[Packed]) -> Self {
        let mut sums = Self::default();
        entries.iter().for_each(|packed| sums.add(&packed.entry()));
        sums
    }

    fn add(&mut self, entry: &Entry) {
        self.record_bytes += u64::from(entry.record_bytes);
        self.clean = self.clean.wrapping_add(u16::from(entry.clean));
        self.in_memory = self.in_memory.wrapping_add(u16::from(!entry.has_slot()));
        let tombstones = u16::from(entry.kind == EntryKind::Delete);
        self.tombstones = self.tombstones.wrapping_add(tombstones);
    }

    fn sub(&mut self, entry: &Entry) {
        self.record_bytes -= u64::from(entry.record_bytes);
        self.clean = self.clean.wrapping_sub(u16::from(entry.clean));
        self.in_memory = self.in_memory.wrapping_sub(u16::from(!entry.has_slot()));
        let tombstones = u16::from(entry.kind == EntryKind::Delete);
        self.tombstones = self.tombstones.wrapping_sub(tombstones);
    }
}

/// Entries of a leaf.
#[derive(Debug)]
pub(crate) struct Block {
    prints: [u8; PRINTS],
    keys: Vec<u8>,
    entries: Vec<Packed>,
    kept: KeptSums,
}

impl Default for Block {
    fn default() -> Self {
        let (keys, entries) = (Vec::new(), Vec::new());
        Self { prints: [0; PRINTS], keys, entries, kept: KeptSums::default() }
    }
}

fn print_of(key: &[u8]) -> u8 {
    (key_hash(key) >> 56) as u8
}

/// Room for at least `len`, as much as an allocator gives for it.
fn capacity_for<T>(len: usize) -> usize {
    allocated_bytes(len * size_of::<T>()) / size_of::<T>()
}

/// Makes room for `more`, and no more than the allocator rounds up to.
fn grow<T>(array: &mut Vec<T>, more: usize) {
    if array.capacity() - array.len() < more {
        let capacity = capacity_for::<T>(array.len() + more);
        array.reserve_exact(capacity - array.len());
    }
}

/// Gives room back where much is free.
fn cut<T>(array: &mut Vec<T>) {
    if array.capacity() > capacity_for::<T>(array.len() + array.len() / 4) {
        array.shrink_to(capacity_for::<T>(array.len()));
    }
}

/// Takes what is from `at` on away; both parts have no more room than they need.
fn cut_off<T: Copy>(array: &mut Vec<T>, at: usize) -> Vec<T> {
    let mut right = Vec::with_capacity(capacity_for::<T>(array.len() - at));
    right.extend_from_slice(&array[at..]);
    array.truncate(at);
    array.shrink_to(capacity_for::<T>(at));
    right
}

impl Block {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn key_bytes(&self) -> usize {
        self.keys.len()
    }

    /// What the entries come to. Costs a walk over them where they are too many for the counts that
    /// are kept, which only versions of one key bring about.
    pub fn sums(&self) -> Sums {
        if self.len() > usize::from(u16::MAX) {
            return Sums::of(&self.entries);
        }
        Sums {
            record_bytes: self.kept.record_bytes,
            clean: self.kept.clean.into(),
            in_memory: self.kept.in_memory.into(),
            tombstones: self.kept.tombstones.into(),
        }
    }

    /// Bytes allocated for the arrays.
    pub fn memory_bytes(&self) -> usize {
        allocated_bytes(self.keys.capacity())
            + allocated_bytes(self.entries.capacity() * size_of::<Packed>())
    }

    fn key_start(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.entries[at - 1].key_end as usize }
    }

    pub fn key(&self, at: usize) -> &[u8] {
        &self.keys[self.key_start(at)..self.entries[at].key_end as usize]
    }

    pub fn entry(&self, at: usize) -> Entry {
        self.entries[at].entry()
    }

    /// The first place at which `goes_right` does not hold.
    fn first(&self, goes_right: impl Fn(usize) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if goes_right(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first place whose key is at or after `key`.
    pub fn at_or_after(&self, key: &[u8]) -> usize {
        self.first(|at| self.key(at) < key)
    }

    /// The first place whose key is after `key`.
    pub fn after(&self, key: &[u8]) -> usize {
        self.first(|at| self.key(at) <= key)
    }

    /// The places whose keys lie between the bounds.
    pub fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Range<usize> {
        let start = match from {
            Bound::Included(key) => self.at_or_after(key),
            Bound::Excluded(key) => self.after(key),
            Bound::Unbounded => 0,
        };
        let end = match to {
            Bound::Included(key) => self.after(key),
            Bound::Excluded(key) => self.at_or_after(key),
            Bound::Unbounded => self.len(),
        };
        start..end.max(start)
    }

    /// The place after the last version of the key at `at`.
    pub fn versions_end(&self, at: usize) -> usize {
        let key = self.key(at);
        (at + 1..self.len()).find(|next| self.key(*next) != key).unwrap_or(self.len())
    }

    /// The place of the newest version of the key at `at`.
    pub fn versions_start(&self, at: usize) -> usize {
        let key = self.key(at);
        (0..at).rev().find(|before| self.key(*before) != key).map_or(0, |before| before + 1)
    }

    /// The place of the newest version of `key`.
    pub fn newest(&self, key: &[u8]) -> Option<usize> {
        if self.len() > PRINTS {
            let at = self.at_or_after(key);
            return (at < self.len() && self.key(at) == key).then_some(at);
        }
        let print = print_of(key);
        let (chunks, _) = self.prints.as_chunks::<LANES>();
        let starts = (0..self.len()).step_by(LANES);
        for (start, chunk) in starts.zip(chunks) {
            // Without a branch inside, so that it becomes a vector comparison.
            if chunk.iter().fold(false, |found, other| found | (*other == print)) {
                let end = self.len().min(start + LANES);
                // Versions of a key share the print and the newest is first.
                let matches = (start..end).filter(|at| self.prints[*at] == print);
                if let Some(at) = matches.into_iter().find(|at| self.key(*at) == key) {
                    return Some(at);
                }
            }
        }
        None
    }

    /// Makes all prints anew, if there is room for them.
    fn take_prints(&mut self) {
        if self.len() <= PRINTS {
            for at in 0..self.len() {
                self.prints[at] = print_of(self.key(at));
            }
        }
    }

    /// The place of the newest version of `key` at or below `sequence`.
    pub fn newest_at(&self, key: &[u8], sequence: Sequence) -> Option<usize> {
        let newest = self.newest(key)?;
        if self.entries[newest].sequence() <= sequence {
            return Some(newest);
        }
        (newest + 1..self.versions_end(newest)).find(|at| self.entries[*at].sequence() <= sequence)
    }

    /// The place of the version of `key` with exactly `sequence`.
    pub fn exact(&self, key: &[u8], sequence: Sequence) -> Option<usize> {
        self.newest_at(key, sequence).filter(|at| self.entries[*at].sequence() == sequence)
    }

    /// Puts a version in; the one with the same key and sequence is replaced and returned.
    pub fn insert(&mut self, key: &[u8], entry: &Entry) -> Option<Entry> {
        let order = |at: usize| {
            self.key(at).cmp(key).then(entry.sequence.cmp(&self.entries[at].sequence()))
        };
        let at = self.first(|at| order(at) == Ordering::Less);
        if at < self.len() && order(at) == Ordering::Equal {
            return Some(self.replace(at, entry));
        }
        let start = self.key_start(at);
        let end = u32::try_from(start + key.len()).expect("keys of a leaf are below 4 GiB");
        grow(&mut self.keys, key.len());
        grow(&mut self.entries, 1);
        let len = self.len();
        self.keys.splice(start..start, key.iter().copied());
        self.entries.insert(at, Packed::new(entry, end));
        self.entries[at + 1..].iter_mut().for_each(|moved| moved.key_end += key.len() as u32);
        if len < PRINTS {
            self.prints.copy_within(at..len, at + 1);
            self.prints[at] = print_of(key);
        }
        self.kept.add(entry);
        None
    }

    /// Puts a newer version of `key` in and takes the one of `older` out, if it is there: in its
    /// place, where nothing lies between the two.
    pub fn succeed(&mut self, key: &[u8], entry: &Entry, older: Sequence) -> Option<Entry> {
        let Some(at) = self.exact(key, older) else { return self.insert(key, entry) };
        let fits = |before: usize| {
            self.key(before) != key || self.entries[before].sequence() > entry.sequence
        };
        if older < entry.sequence && at.checked_sub(1).is_none_or(fits) {
            self.put(at, entry);
            return None;
        }
        self.remove(at);
        self.insert(key, entry)
    }

    /// Puts `entry` in the place of another of the same key and sequence.
    pub fn replace(&mut self, at: usize, entry: &Entry) -> Entry {
        assert!(self.entries[at].sequence() == entry.sequence, "a version keeps its sequence");
        self.put(at, entry)
    }

    /// Puts `entry` in the place of another of the same key, where it is in order.
    fn put(&mut self, at: usize, entry: &Entry) -> Entry {
        let before = self.entry(at);
        self.entries[at] = Packed::new(entry, self.entries[at].key_end);
        self.kept.add(entry);
        self.kept.sub(&before);
        before
    }

    pub fn remove(&mut self, at: usize) -> Entry {
        let entry = self.entry(at);
        let len = self.len();
        let (start, end) = (self.key_start(at), self.entries[at].key_end as usize);
        self.keys.drain(start..end);
        self.entries.remove(at);
        self.entries[at..].iter_mut().for_each(|moved| moved.key_end -= (end - start) as u32);
        if len <= PRINTS {
            self.prints.copy_within(at + 1..len, at);
        } else {
            self.take_prints();
        }
        self.kept.sub(&entry);
        cut(&mut self.keys);
        cut(&mut self.entries);
        entry
    }

    /// The block has more than `entries_max` entries or too many bytes of keys, and more than one
    /// key.
    pub fn is_too_large(&self, entries_max: usize) -> bool {
        let small = self.len() <= entries_max && self.key_bytes() <= KEY_BYTES_SPLIT;
        !small && self.key(0) != self.key(self.len() - 1)
    }

    /// Where to split a block that is too large: between two keys, in the middle, or near the end
    /// where `newest`, the key inserted last, is at the end: keys probably arrive in order.
    pub fn split_place(&self, newest: &[u8]) -> usize {
        let appended = self.key(self.len() - 1) == newest;
        let wanted = if appended { self.len() - self.len() / 8 } else { self.len() / 2 };
        let wanted = wanted.clamp(1, self.len() - 1);
        let start = self.versions_start(wanted);
        if start > 0 { start } else { self.versions_end(wanted) }
    }

    /// Takes the entries from `at` on away.
    pub fn split_off(&mut self, at: usize) -> Self {
        let start = self.key_start(at);
        let keys = cut_off(&mut self.keys, start);
        let mut entries = cut_off(&mut self.entries, at);
        entries.iter_mut().for_each(|entry| entry.key_end -= start as u32);
        let kept = KeptSums::of(&entries);
        entries.iter().for_each(|gone| self.kept.sub(&gone.entry()));
        let mut right = Self { keys, entries, kept, ..Self::default() };
        if at + right.len() <= PRINTS {
            right.prints[..PRINTS - at].copy_from_slice(&self.prints[at..]);
        } else {
            self.take_prints();
            right.take_prints();
        }
        right
    }

    /// Takes over the entries of the block to the right.
    pub fn append(&mut self, right: &mut Self) {
        let start = self.keys.len() as u32;
        grow(&mut self.keys, right.keys.len());
        grow(&mut self.entries, right.entries.len());
        let (left, both) = (self.len(), self.len() + right.len());
        if both <= PRINTS {
            self.prints[left..both].copy_from_slice(&right.prints[..both - left]);
        }
        self.keys.append(&mut right.keys);
        right.kept = KeptSums::default();
        for moved in right.entries.drain(..) {
            self.kept.add(&moved.entry());
            self.entries.push(moved.moved_by(start));
        }
    }

    /// The shortest key that is after the last one here and at or before the first one of `right`.
    pub fn separator<'a>(&self, right: &'a Self) -> &'a [u8] {
        let (below, above) = (self.key(self.len() - 1), right.key(0));
        let same = below.iter().zip(above).take_while(|(a, b)| a == b).count();
        &above[..=same]
    }

    /// Checks the invariants; for tests.
    pub fn check(&self) {
        let order = |a: usize, b: usize| {
            let sequences = self.entries[b].sequence().cmp(&self.entries[a].sequence());
            self.key(a).cmp(self.key(b)).then(sequences)
        };
        assert!((1..self.len()).all(|at| order(at - 1, at) == Ordering::Less), "entries in order");
        let printed = if self.len() <= PRINTS { self.len() } else { 0 };
        assert!((0..printed).all(|at| self.prints[at] == print_of(self.key(at))), "prints");
        assert_eq!(self.entries.last().map_or(0, |last| last.key_end as usize), self.keys.len());
        assert_eq!(Sums::of(&self.entries), self.sums(), "sums");
    }
}
