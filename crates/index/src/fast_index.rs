//! The index of the fast tier: every version of every key that is there, in memory and in order.
//!
//! Why in memory: a look-up must know without a device's answer whether and where the fast tier
//! has a key, and a demotion picks its keys by range (PrismDB, sections 4.1 and 5.1). A record
//! costs its key and some 30 bytes.
//!
//! ```text
//!        top lock         branches, separators (top.rs)
//!            |
//!   leaf lock | leaf lock | leaf lock      packed entries (block.rs), about a hundred each
//! ```
//! A caller searches the top under its read lock, takes the leaf's lock, lets go of the top and
//! works on the leaf. A leaf that has become too large (or small) is split (or joined) afterwards,
//! under the top's write lock, which happens once in some fifty insertions.
//!
//! Invariants:
//! 1. A thread waits for a leaf's lock only while it holds the top's, and never waits for the top's
//!    while it holds a leaf's. So there is no deadlock, and a thread that holds a leaf's lock has
//!    the leaf that covers its key: leaves change what they cover under the top's write lock and
//!    their own.
//! 2. All versions of a key are in one leaf, so every operation on a key is atomic: a look-up sees
//!    a replaced version or the one that replaced it.
//! 3. Ranges and batches are atomic leaf by leaf, no further.
//! 4. [`FastIndex::departures`] grows by [`FastIndex::announce_departures`] before entries leave
//!    for tables.
//! 5. The counters are changed under the lock of the leaf that they speak of: they are exact when
//!    no thread writes, and never below zero.
//!
//! **Departures.** A record that is demoted is in a table first and then leaves the index, and a
//! reader must find it in one of them. The protocol: a demotion makes the tables visible, calls
//! `announce_departures` and then changes the index; a reader takes `departures`, then the tables,
//! then asks the index, and begins again if `departures` has changed after that.
//!
//! Closures that are called with a leaf's lock held must be short and must not call the index.
//!
//! Orders of magnitude (`benches/index.rs`: a million records, keys of 24 bytes drawn evenly, one
//! thread): 0.6 us to find a key, 0.3 us to find that it is absent, 2 us to insert one
//! and 30 ns for each key of a range; about 33 bytes a record besides its key. Most of it is
//! waiting for main memory, so keys that are asked for often are found faster.
//!
//! Shared between threads: many readers, and several writers, each for its own keys.

use crate::block::{Block, KEY_BYTES_SPLIT, LEAF_ENTRIES_MAX};
use crate::entry::Entry;
use crate::top::{Top, leaf_overhead_bytes};
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::RwLock;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

/// Sizes of the parts. The default suits all uses; tests take small ones to see many splits.
#[derive(Clone, Copy, Debug)]
pub struct IndexLimits {
    /// Entries of a leaf, 2 to 128: more cost longer insertions, fewer cost memory.
    pub leaf_entries: usize,
    /// Leaves of a branch, at least 4.
    pub branch_leaves: usize,
}

impl Default for IndexLimits {
    fn default() -> Self {
        Self { leaf_entries: LEAF_ENTRIES_MAX, branch_leaves: 256 }
    }
}

/// All records on the fast tier, by key and sequence.
#[derive(Debug)]
pub struct FastIndex {
    pub(crate) top: RwLock<Top>,
    limits: IndexLimits,
    totals: Totals,
    departures: AtomicU64,
}

/// Sums over all leaves.
#[derive(Debug, Default)]
struct Totals {
    records: AtomicU64,
    record_bytes: AtomicU64,
    clean_records: AtomicU64,
    memory_records: AtomicU64,
    tombstones: AtomicU64,
    leaf_bytes: AtomicU64,
}

/// What a leaf contributes to the totals.
#[derive(Clone, Copy)]
struct Share {
    records: u64,
    record_bytes: u64,
    clean_records: u64,
    memory_records: u64,
    tombstones: u64,
    leaf_bytes: u64,
}

impl Share {
    fn of(block: &Block) -> Self {
        let sums = block.sums();
        Self {
            records: block.len() as u64,
            record_bytes: sums.record_bytes,
            clean_records: sums.clean,
            memory_records: sums.in_memory,
            tombstones: sums.tombstones,
            leaf_bytes: block.memory_bytes() as u64,
        }
    }
}

impl Totals {
    /// Replaces a leaf's share by what the leaf has now; its lock must be held.
    fn change(&self, before: Share, after: Share) {
        let add = |total: &AtomicU64, before: u64, after: u64| {
            if before != after {
                total.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
            }
        };
        add(&self.records, before.records, after.records);
        add(&self.record_bytes, before.record_bytes, after.record_bytes);
        add(&self.clean_records, before.clean_records, after.clean_records);
        add(&self.memory_records, before.memory_records, after.memory_records);
        add(&self.tombstones, before.tombstones, after.tombstones);
        add(&self.leaf_bytes, before.leaf_bytes, after.leaf_bytes);
    }

    fn add_memory(&self, bytes: usize) {
        self.leaf_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn sub_memory(&self, bytes: usize) {
        self.leaf_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Default for FastIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl FastIndex {
    /// An empty index.
    pub fn new() -> Self {
        Self::with_limits(IndexLimits::default())
    }

    /// An empty index of parts of other sizes.
    pub fn with_limits(limits: IndexLimits) -> Self {
        assert!(
            (2..=LEAF_ENTRIES_MAX).contains(&limits.leaf_entries),
            "leaves of 2 to 128 entries"
        );
        assert!(limits.branch_leaves >= 4, "branches can be split");
        let totals = Totals::default();
        totals.add_memory(leaf_overhead_bytes());
        Self { top: RwLock::new(Top::new()), limits, totals, departures: AtomicU64::new(0) }
    }

    /// The newest version of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        self.get_at(key, Sequence::MAX)
    }

    /// The newest version of `key` at or below `sequence`.
    pub fn get_at(&self, key: &[u8], sequence: Sequence) -> Option<Entry> {
        self.in_leaf(key, |block| Some(block.entry(block.newest_at(key, sequence)?)))
    }

    /// Fills `versions` with those of `key`, newest first.
    pub fn versions(&self, key: &[u8], versions: &mut Vec<Entry>) {
        versions.clear();
        self.in_leaf(key, |block| {
            if let Some(newest) = block.newest(key) {
                let range = newest..block.versions_end(newest);
                versions.extend(range.map(|at| block.entry(at)));
            }
        });
    }

    /// Puts a version of `key` in. The one with the same sequence, if there is one, is replaced and
    /// returned; other versions stay.
    pub fn insert(&self, key: &[u8], entry: Entry) -> Option<Entry> {
        let mut replaced = None;
        self.insert_many(&[(key, entry)], |_, before| replaced = Some(before));
        replaced
    }

    /// As [`FastIndex::insert`] for each of `records`, whose keys ascend. `replaced` is called with
    /// the number of a record and the entry that it replaced.
    pub fn insert_many<K: AsRef<[u8]>>(
        &self,
        records: &[(K, Entry)],
        mut replaced: impl FnMut(usize, Entry),
    ) {
        self.in_leaves(
            records.len(),
            |at| records[at].0.as_ref(),
            |at, block| {
                let (key, entry) = &records[at];
                if let Some(before) = block.insert(key.as_ref(), entry) {
                    replaced(at, before);
                }
            },
        );
    }

    /// As [`FastIndex::insert_many`]; each record also removes the older version of its key that it
    /// names. A look-up meanwhile finds one of the two.
    pub fn succeed_many<K: AsRef<[u8]>>(&self, records: &[(K, Entry, Option<Sequence>)]) {
        self.in_leaves(
            records.len(),
            |at| records[at].0.as_ref(),
            |at, block| {
                let (key, entry, older) = &records[at];
                match older {
                    Some(older) => block.succeed(key.as_ref(), entry, *older),
                    None => block.insert(key.as_ref(), entry),
                };
            },
        );
    }

    /// Takes one version of `key` out.
    pub fn remove(&self, key: &[u8], sequence: Sequence) -> Option<Entry> {
        let mut removed = None;
        self.remove_many(&[(key, sequence)], |_, entry| removed = Some(entry));
        removed
    }

    /// As [`FastIndex::remove`] for each of `versions`, whose keys ascend. `removed` is called with
    /// the number of a version that was there and its entry.
    pub fn remove_many<K: AsRef<[u8]>>(
        &self,
        versions: &[(K, Sequence)],
        mut removed: impl FnMut(usize, Entry),
    ) {
        self.in_leaves(
            versions.len(),
            |at| versions[at].0.as_ref(),
            |at, block| {
                let (key, sequence) = &versions[at];
                if let Some(place) = block.exact(key.as_ref(), *sequence) {
                    removed(at, block.remove(place));
                }
            },
        );
    }

    /// To be called when records are in visible tables, before the first of them leaves the index
    /// or its slot.
    pub fn announce_departures(&self) {
        // A thread that takes a leaf's lock after this thread has had it sees the new count.
        self.departures.fetch_add(1, Ordering::AcqRel);
    }

    /// Batches of departures so far, counted before they leave (see the header).
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Versions in the index.
    pub fn len(&self) -> u64 {
        self.totals.records.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sum of the records' bytes in their slots.
    pub fn record_bytes(&self) -> u64 {
        self.totals.record_bytes.load(Ordering::Relaxed)
    }

    /// Versions that the slow tier has too.
    pub fn clean_records(&self) -> u64 {
        self.totals.clean_records.load(Ordering::Relaxed)
    }

    /// Of these, the ones that have no slot ([`Entry::in_memory`]).
    pub fn memory_records(&self) -> u64 {
        self.totals.memory_records.load(Ordering::Relaxed)
    }

    /// Tombstones.
    pub fn tombstones(&self) -> u64 {
        self.totals.tombstones.load(Ordering::Relaxed)
    }

    /// Versions in slots.
    pub fn slot_records(&self) -> u64 {
        self.len().saturating_sub(self.memory_records())
    }

    /// Bytes of memory, as an allocator rounds them. Takes the top's lock for a moment.
    pub fn memory_bytes(&self) -> u64 {
        self.top.read().memory_bytes() as u64 + self.totals.leaf_bytes.load(Ordering::Relaxed)
    }

    /// Checks the invariants of all parts; for tests, while no thread writes.
    #[doc(hidden)]
    pub fn check(&self) {
        let top = self.top.read();
        top.check(self.limits.branch_leaves);
        let mut sums = Share::of(&Block::default());
        sums.leaf_bytes = 0;
        for number in 0..top.leaves() {
            let share = Share::of(&top.leaf(top.numbered(number)).read());
            sums.records += share.records;
            sums.record_bytes += share.record_bytes;
            sums.clean_records += share.clean_records;
            sums.memory_records += share.memory_records;
            sums.tombstones += share.tombstones;
            sums.leaf_bytes += share.leaf_bytes + leaf_overhead_bytes() as u64;
        }
        assert_eq!(self.len(), sums.records);
        assert_eq!(self.record_bytes(), sums.record_bytes);
        assert_eq!(self.clean_records(), sums.clean_records);
        assert_eq!(self.memory_records(), sums.memory_records);
        assert_eq!(self.tombstones(), sums.tombstones);
        assert_eq!(self.totals.leaf_bytes.load(Ordering::Relaxed), sums.leaf_bytes);
    }

    fn in_leaf<T>(&self, key: &[u8], body: impl FnOnce(&Block) -> T) -> T {
        let top = self.top.read();
        let leaf = Arc::clone(top.leaf(top.covering(key)));
        let block = leaf.read();
        drop(top);
        body(&block)
    }

    /// Calls `body` for the items `0..count`, whose keys ascend, with the leaf of each; locks a
    /// leaf once for all of them that it covers, until it has to be split.
    fn in_leaves<'a>(
        &self,
        count: usize,
        key_of: impl Fn(usize) -> &'a [u8],
        mut body: impl FnMut(usize, &mut Block),
    ) {
        debug_assert!((1..count).all(|at| key_of(at - 1) <= key_of(at)), "keys ascend");
        let mut done = 0;
        while done < count {
            let key = key_of(done);
            let top = self.top.read();
            let spot = top.covering(key);
            let here = covered(count - done, top.high_end(spot), |at| key_of(done + at));
            let leaf = Arc::clone(top.leaf(spot));
            let mut block = leaf.write();
            drop(top);
            let before = Share::of(&block);
            let end = done + here;
            let mut split = false;
            // The versions of a key change together: a reader sees all of that or nothing.
            let same_key = |at: usize| key_of(at) == key_of(at - 1);
            while done < end && (!split || same_key(done)) {
                body(done, &mut block);
                done += 1;
                split = block.is_too_large(self.limits.leaf_entries);
            }
            let after = Share::of(&block);
            self.totals.change(before, after);
            drop(block);
            if split {
                self.split(key_of(done - 1));
            } else if self.has_become_small(before.records as usize, after.records as usize) {
                self.join(key);
            }
        }
    }

    /// Whether removals are a reason to try to join a leaf with its neighbour: below a quarter, and
    /// then at each halving, so that a leaf between two full ones is not tried at every removal.
    fn has_become_small(&self, before: usize, after: usize) -> bool {
        let halved = before.checked_ilog2() != after.checked_ilog2();
        after < before && halved && after <= self.limits.leaf_entries / 4
    }

    /// Splits the leaf that covers `key`, the one inserted last, if it still needs it.
    fn split(&self, key: &[u8]) {
        let mut top = self.top.write();
        let spot = top.covering(key);
        let leaf = Arc::clone(top.leaf(spot));
        let mut block = leaf.write();
        if !block.is_too_large(self.limits.leaf_entries) {
            return;
        }
        let before = block.memory_bytes();
        let at = block.split_place(key);
        let right = block.split_off(at);
        let low = block.separator(&right).to_vec();
        self.totals.add_memory(block.memory_bytes() + right.memory_bytes() + leaf_overhead_bytes());
        self.totals.sub_memory(before);
        top.insert_after(spot, &low, Arc::new(RwLock::new(right)), self.limits.branch_leaves);
    }

    /// Removes the leaf that covers `key` if it is empty, or joins it with a neighbour if both fit
    /// well into one.
    fn join(&self, key: &[u8]) {
        let mut top = self.top.write();
        let spot = top.covering(key);
        let leaf = Arc::clone(top.leaf(spot));
        if top.leaves() > 1 && leaf.read().is_empty() {
            // No thread can reach the leaf while the top is locked, nor afterwards.
            self.totals.sub_memory(leaf.read().memory_bytes() + leaf_overhead_bytes());
            top.remove(spot, self.limits.branch_leaves);
            return;
        }
        let Some((left_spot, right_spot)) = top.neighbours(spot) else {
            return;
        };
        let (left, right) = (Arc::clone(top.leaf(left_spot)), Arc::clone(top.leaf(right_spot)));
        let (mut left, mut right) = (left.write(), right.write());
        let fits = left.len() + right.len() <= self.limits.leaf_entries * 3 / 4
            && left.key_bytes() + right.key_bytes() <= KEY_BYTES_SPLIT / 2;
        if fits {
            let before = left.memory_bytes() + right.memory_bytes();
            left.append(&mut right);
            self.totals.add_memory(left.memory_bytes());
            self.totals.sub_memory(before + leaf_overhead_bytes());
            top.remove(right_spot, self.limits.branch_leaves);
        }
    }
}

/// How many of `count` ascending keys are below `high`, at least the first.
fn covered<'a>(count: usize, high: Option<&[u8]>, key_of: impl Fn(usize) -> &'a [u8]) -> usize {
    let Some(high) = high else {
        return count;
    };
    (1..count).find(|at| key_of(*at) >= high).unwrap_or(count)
}
