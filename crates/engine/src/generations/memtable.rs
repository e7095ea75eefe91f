//! The memtable: recent writes in memory, sorted, each also in the log.
//!
//! A skip list of [`Entry`]s. Key and value lie side by side in a chunk that many entries share, so
//! that memory is taken and given back in chunks and outlives no batch. A large record that is
//! about all of its batch is not copied: it keeps the batch's own memory, and counts with all of
//! that. The first eight key bytes are kept beside the slice and decide most comparisons without
//! touching the chunk.
//!
//! Invariants:
//! 1. Entries are only added; a memtable that is frozen gets no more (the write path stops adding
//!    before it freezes).
//! 2. No two entries have the same key and sequence.
//! 3. Readers need no lock and never wait for a writer.
//!
//! 4. A frozen memtable is flushed when it is drained: the groups of writes that belong to it are
//!    published.
//!
//! Threads: any number of readers, and of writers at the same time.

use bytes::{Bytes, BytesMut};
use crossbeam_skiplist::SkipSet;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use thermocline_table::{RecordKind, Trailer};

use crate::batch::BatchReader;
use crate::error::Result;

/// Memory of an entry besides its bytes: the list's node with its tower.
pub(crate) const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// Bytes of a chunk. A value that a reader holds keeps its chunk alive, so chunks are not larger.
const CHUNK_BYTES: usize = 64 << 10;

/// A record in the memtable.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    prefix: u64,
    trailer: Trailer,
    /// Key, then whatever lies between, then value.
    bytes: Bytes,
    key_len: u32,
    value_at: u32,
}

impl Entry {
    pub fn key(&self) -> &[u8] {
        &self.bytes[..self.key_len as usize]
    }

    /// The key, sharing the entry's memory.
    pub fn key_bytes(&self) -> Bytes {
        self.bytes.slice(..self.key_len as usize)
    }

    pub fn trailer(&self) -> Trailer {
        self.trailer
    }

    pub fn value(&self) -> Bytes {
        self.bytes.slice(self.value_at as usize..)
    }

    pub fn value_slice(&self) -> &[u8] {
        &self.bytes[self.value_at as usize..]
    }
}

/// The first eight bytes of a key as a number that orders like the bytes; shorter keys are padded
/// with zeros, so equal prefixes decide nothing.
fn prefix_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

/// What orders entries, seen through an entry or through a look-up's borrowed key.
trait Position {
    fn parts(&self) -> (u64, &[u8], Trailer);
}

impl Position for Entry {
    fn parts(&self) -> (u64, &[u8], Trailer) {
        (self.prefix, self.key(), self.trailer)
    }
}

struct Target<'a> {
    prefix: u64,
    key: &'a [u8],
    trailer: Trailer,
}

impl Position for Target<'_> {
    fn parts(&self) -> (u64, &[u8], Trailer) {
        (self.prefix, self.key, self.trailer)
    }
}

fn order(a: &(impl Position + ?Sized), b: &(impl Position + ?Sized)) -> Ordering {
    let (a_prefix, a_key, a_trailer) = a.parts();
    let (b_prefix, b_key, b_trailer) = b.parts();
    // Newest first among the versions of a key.
    a_prefix.cmp(&b_prefix).then_with(|| a_key.cmp(b_key)).then_with(|| b_trailer.cmp(&a_trailer))
}

macro_rules! ordered_by_position {
    ($($type:ty),*) => {$(
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                order(self, other).is_eq()
            }
        }
        impl Eq for $type {}
        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                order(self, other)
            }
        }
    )*};
}
ordered_by_position!(Entry, dyn Position + '_);

impl<'a> Borrow<dyn Position + 'a> for Entry {
    fn borrow(&self) -> &(dyn Position + 'a) {
        self
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Memtable {
    entries: SkipSet<Entry>,
    /// The rest of the newest chunk. Its lock is held where the four numbers below it change.
    chunk: Mutex<BytesMut>,
    bytes: AtomicU64,
    count: AtomicU64,
    /// The sequences that it spans; the first is the largest number there is while it is empty.
    first: AtomicU64,
    last: AtomicU64,
    /// Groups of writes that belong here and are not published.
    flying: AtomicU64,
    frozen: AtomicBool,
}

impl Default for Memtable {
    fn default() -> Self {
        Self::new()
    }
}

impl Memtable {
    /// An empty memtable.
    pub fn new() -> Self {
        Self {
            entries: SkipSet::new(),
            chunk: Mutex::new(BytesMut::new()),
            bytes: 0.into(),
            count: 0.into(),
            first: u64::MAX.into(),
            last: 0.into(),
            flying: 0.into(),
            frozen: false.into(),
        }
    }

    /// Adds the encoded batches of a group, each with the sequence of its first record.
    pub fn insert_group<'a>(
        &self,
        batches: impl IntoIterator<Item = (Sequence, &'a Bytes)>,
    ) -> Result<()> {
        let mut batches = batches.into_iter();
        batches.try_for_each(|(first, encoded)| self.insert(first, encoded, Some(encoded)))
    }

    /// Adds copies of the records of an encoded batch, whose first has the sequence `first`.
    pub fn insert_batch(&self, first: Sequence, encoded: &[u8]) -> Result<()> {
        self.insert(first, encoded, None)
    }

    /// As [`Memtable::insert_batch`]; `owner` has the bytes of the batch, where they may be kept.
    fn insert(&self, first: Sequence, encoded: &[u8], owner: Option<&Bytes>) -> Result<()> {
        let (mut count, mut memory) = (0, 0);
        let mut chunk = std::mem::take(&mut *self.chunk.lock());
        for (index, record) in BatchReader::new(encoded)?.enumerate() {
            let record = record?;
            let (start, end) =
                (record.key_at as usize, (record.value_at + record.value_len) as usize);
            let (bytes, kept_bytes) = match owner {
                Some(owner) if is_most(end - start, owner.len()) => {
                    (owner.slice(start..end), owner.len())
                }
                _ => (keep(&mut chunk, &encoded[start..end]), end - start),
            };
            memory += kept_bytes as u64 + ENTRY_OVERHEAD_BYTES;
            let key_len = record.key_len;
            self.entries.insert(Entry {
                prefix: prefix_of(&bytes[..key_len as usize]),
                trailer: Trailer::new(Sequence(first.0 + index as u64), record.kind),
                value_at: record.value_at - record.key_at,
                bytes,
                key_len,
            });
            count += 1;
        }
        // The larger rest of a chunk is kept for the next batch: two that are inserted at once have
        // a chunk each. The counts change under the same lock: that is cheaper than an atomic
        // addition for each.
        let mut kept = self.chunk.lock();
        if kept.capacity() < chunk.capacity() {
            *kept = chunk;
        }
        if count > 0 {
            self.first.store(first.0.min(self.first.load(Relaxed)), Relaxed);
            self.last.store((first.0 + count - 1).max(self.last.load(Relaxed)), Relaxed);
        }
        self.bytes.store(self.bytes.load(Relaxed) + memory, Relaxed);
        self.count.store(self.count.load(Relaxed) + count, Relaxed);
        Ok(())
    }

    /// A group of writes is on its way here.
    pub fn begin_group(&self) {
        self.flying.fetch_add(1, Relaxed);
    }

    /// A group is published. One that failed never is. Says whether the memtable is frozen, and a
    /// flush may wait for the group.
    pub fn end_group(&self) -> bool {
        self.flying.fetch_sub(1, SeqCst);
        self.frozen.load(SeqCst)
    }

    /// No more groups come. The group that ends last sees that the memtable is frozen, or the next
    /// look at the memtable sees that it is drained.
    pub fn set_frozen(&self) {
        self.frozen.store(true, SeqCst);
    }

    /// No group is on its way here: a frozen memtable is whole.
    pub fn is_drained(&self) -> bool {
        self.flying.load(SeqCst) == 0
    }

    /// The newest version of `key` at or before `snapshot`.
    pub fn get(&self, key: &[u8], snapshot: Sequence) -> Option<(Trailer, Bytes)> {
        let target = target(key, Trailer::newest_at(snapshot));
        let entry = self.entries.lower_bound(Bound::Included(&target as &dyn Position))?;
        (entry.key() == key).then(|| (entry.trailer, entry.value().value()))
    }

    /// The oldest sequence that it has; none where it is empty.
    pub fn first_sequence(&self) -> Option<Sequence> {
        Some(self.first.load(Relaxed)).filter(|first| *first < u64::MAX).map(Sequence)
    }

    /// A key at or after `from` and before `to` (none: open) with a version that is newer than
    /// `than`. Counts the entries that it looks at down from `most`; none left ends the search.
    pub fn newer_in(
        &self,
        (from, to): (Option<&[u8]>, Option<&[u8]>),
        than: Sequence,
        most: &mut u64,
    ) -> Option<Bytes> {
        if self.last.load(Relaxed) <= than.0 {
            return None;
        }
        let start = target(from.unwrap_or_default(), Trailer::newest_at(Sequence::MAX));
        let start = Bound::Included(&start as &dyn Position);
        for entry in self.entries.range::<dyn Position, _>((start, Bound::Unbounded)) {
            if to.is_some_and(|to| entry.key() >= to) {
                break;
            }
            *most = most.checked_sub(1)?;
            if entry.trailer.sequence() > than {
                return Some(entry.key_bytes());
            }
        }
        None
    }

    /// Memory taken, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Number of entries.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

/// A record of so many bytes is large, and all but an eighth of its batch at least.
fn is_most(bytes: usize, batch_bytes: usize) -> bool {
    bytes > CHUNK_BYTES && batch_bytes - bytes <= batch_bytes / 8
}

/// A copy of `bytes` in the chunk, or in a new one where they do not fit.
fn keep(chunk: &mut BytesMut, bytes: &[u8]) -> Bytes {
    if bytes.len() > CHUNK_BYTES / 8 {
        return Bytes::copy_from_slice(bytes);
    }
    if chunk.capacity() < bytes.len() {
        *chunk = BytesMut::with_capacity(CHUNK_BYTES);
    }
    chunk.extend_from_slice(bytes);
    chunk.split().freeze()
}

fn target(key: &[u8], trailer: Trailer) -> Target<'_> {
    Target { prefix: prefix_of(key), key, trailer }
}

/// Entries fetched at the first step after a seek, and at most.
const FETCH_MIN: usize = 4;
const FETCH_MAX: usize = 256;

/// Walks a memtable either way. It holds the memtable, not a place in the list: it fetches a run of
/// entries at a time and finds the next run by its last entry, so it borrows nothing and entries
/// added meanwhile do no harm.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    run: VecDeque<Entry>,
    fetch: usize,
    forward: bool,
}

impl MemtableCursor {
    pub fn new(memtable: Arc<Memtable>) -> Self {
        Self { memtable, run: VecDeque::new(), fetch: FETCH_MIN, forward: true }
    }

    pub fn entry(&self) -> Option<&Entry> {
        self.run.front()
    }

    /// To the first entry whose key is at or after `key`.
    pub fn seek(&mut self, key: &[u8]) {
        self.fetch = FETCH_MIN;
        let newest = target(key, Trailer::newest_at(Sequence::MAX));
        self.fill_forward(Bound::Included(&newest as &dyn Position));
    }

    /// To the last entry whose key is at or before `key`.
    pub fn seek_up_to(&mut self, key: &[u8]) {
        self.fetch = FETCH_MIN;
        let oldest = target(key, Trailer::new(Sequence::ZERO, RecordKind::Delete));
        self.fill_backward(Bound::Included(&oldest as &dyn Position));
    }

    /// To the last entry whose key is before `key`.
    pub fn seek_before(&mut self, key: &[u8]) {
        self.fetch = FETCH_MIN;
        let newest = target(key, Trailer::newest_at(Sequence::MAX));
        self.fill_backward(Bound::Included(&newest as &dyn Position));
    }

    pub fn seek_to_first(&mut self) {
        self.fetch = FETCH_MIN;
        self.fill_forward(Bound::Unbounded);
    }

    pub fn seek_to_last(&mut self) {
        self.fetch = FETCH_MIN;
        self.fill_backward(Bound::Unbounded);
    }

    pub fn next(&mut self) {
        self.step(true);
    }

    pub fn prev(&mut self) {
        self.step(false);
    }

    fn step(&mut self, forward: bool) {
        let Some(here) = self.run.pop_front() else { return };
        if self.forward == forward && !self.run.is_empty() {
            return;
        }
        self.fetch = (self.fetch * 2).min(FETCH_MAX);
        let bound = Bound::Excluded(&here as &dyn Position);
        if forward { self.fill_forward(bound) } else { self.fill_backward(bound) }
    }

    fn fill_forward(&mut self, from: Bound<&dyn Position>) {
        self.forward = true;
        self.run.clear();
        let entries = self.memtable.entries.range::<dyn Position, _>((from, Bound::Unbounded));
        self.run.extend(entries.take(self.fetch).map(|entry| entry.value().clone()));
    }

    fn fill_backward(&mut self, to: Bound<&dyn Position>) {
        self.forward = false;
        self.run.clear();
        let entries = self.memtable.entries.range::<dyn Position, _>((Bound::Unbounded, to)).rev();
        self.run.extend(entries.take(self.fetch).map(|entry| entry.value().clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::WriteBatch;

    fn filled(count: u64) -> Arc<Memtable> {
        let memtable = Memtable::new();
        for i in 0..count {
            let mut batch = WriteBatch::new();
            batch.put(format!("key{:05}", i * 7 % count), format!("value{i}"));
            let (encoded, _) = batch.freeze().unwrap();
            memtable.insert_batch(Sequence(i + 1), &encoded).unwrap();
        }
        Arc::new(memtable)
    }

    #[test]
    fn a_snapshot_sees_the_version_of_its_time() {
        let memtable = Memtable::new();
        let mut batch = WriteBatch::new();
        batch.put("k", "one").put("k", "two").delete("k").put("kk", "other");
        memtable.insert_batch(Sequence(10), &batch.freeze().unwrap().0).unwrap();
        assert!(memtable.get(b"k", Sequence(9)).is_none());
        assert_eq!(memtable.get(b"k", Sequence(10)).unwrap().1, "one");
        assert_eq!(memtable.get(b"k", Sequence(11)).unwrap().1, "two");
        let (trailer, _) = memtable.get(b"k", Sequence(99)).unwrap();
        assert_eq!((trailer.sequence(), trailer.kind()), (Sequence(12), RecordKind::Delete));
        assert_eq!(memtable.get(b"kk", Sequence(99)).unwrap().1, "other");
    }

    #[test]
    fn a_large_record_keeps_the_memory_of_its_batch_and_one_among_others_has_a_copy() {
        let lies_in = |value: &Bytes, batch: &Bytes| batch.as_ptr_range().contains(&value.as_ptr());
        let large = vec![7; 100 << 10];
        // Of what is copied, key, value and the length between them; of what is not, what they lie
        // in: the batch has five bytes more.
        let both = 5 + 2 + (1 << 10);
        for (other, is_shared, beside) in
            [(None, true, 0), (Some(1 << 10), true, both), (Some(50 << 10), false, -5)]
        {
            let mut batch = WriteBatch::new();
            batch.put("large", &large);
            other.iter().for_each(|len| _ = batch.put("other", vec![8; *len]));
            let (encoded, count) = batch.freeze().unwrap();
            let memtable = Memtable::new();
            memtable.insert_group([(Sequence(1), &encoded)]).unwrap();
            let value = memtable.get(b"large", Sequence::MAX).unwrap().1;
            assert!(value == large && lies_in(&value, &encoded) == is_shared, "{other:?}");
            let held = memtable.bytes() - u64::from(count) * ENTRY_OVERHEAD_BYTES;
            assert_eq!(held as i64 - encoded.len() as i64, beside, "{other:?}");
            let memtable = Memtable::new();
            memtable.insert_batch(Sequence(1), &encoded).unwrap();
            assert!(!lies_in(&memtable.get(b"large", Sequence::MAX).unwrap().1, &encoded));
        }
    }

    #[test]
    fn cursor_walks_both_ways_and_turns() {
        let memtable = filled(1000);
        let mut cursor = MemtableCursor::new(memtable);
        cursor.seek_to_first();
        for i in 0..1000 {
            assert_eq!(cursor.entry().unwrap().key(), format!("key{i:05}").as_bytes());
            cursor.next();
        }
        assert!(cursor.entry().is_none());
        cursor.seek(b"key00500");
        cursor.next();
        cursor.prev();
        cursor.prev();
        assert_eq!(cursor.entry().unwrap().key(), b"key00499");
        for i in (0..499).rev() {
            cursor.prev();
            assert_eq!(cursor.entry().unwrap().key(), format!("key{i:05}").as_bytes());
        }
        cursor.prev();
        assert!(cursor.entry().is_none());
    }
}
