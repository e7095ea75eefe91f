//! Ranges of the index, in either order: copied for cursors, visited, or counted.
//!
//! A traversal holds one leaf's lock at a time and goes on at the end of what that leaf covered
//! when it was locked, whatever has been split or joined since. So it sees every key that was there
//! all the time exactly once, and keys that came or went meanwhile perhaps.
//!
//! Invariants:
//! 1. Keys come in strict order, each with all its versions of one moment.
//! 2. A batch that is not full has reached the end of its range.
//! 3. Each leaf begins beyond the one before, so a traversal ends.

use crate::block::Block;
use crate::entry::{Entry, EntryKind};
use crate::fast_index::FastIndex;
use crate::index_batch::{Fences, IndexBatch};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// Sums over a range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangeTotals {
    /// Versions.
    pub records: u64,
    /// Bytes of their records.
    pub record_bytes: u64,
    /// Tombstones among them.
    pub tombstones: u64,
}

impl FastIndex {
    /// Fills `batch` with up to `limit` keys of the range and all their versions, ascending. The
    /// next batch begins at `Bound::Excluded(batch.last_key())`.
    pub fn ascend(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
        batch: &mut IndexBatch,
    ) {
        batch.clear();
        let mut fences = std::mem::take(&mut batch.fences);
        let ended = self.walk_up(from, to, &mut fences, |block, mut range| {
            while !range.is_empty() && batch.len() < limit {
                let end = block.versions_end(range.start);
                push(batch, block, range.start..end);
                range.start = end;
            }
            range.is_empty()
        });
        batch.fences = fences;
        if ended {
            batch.end();
        }
    }

    /// As [`FastIndex::ascend`] with the keys descending, from the upper bound `to` down to `from`;
    /// versions of a key are newest first all the same. The next batch ends at
    /// `Bound::Excluded(batch.last_key())`.
    pub fn descend(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
        batch: &mut IndexBatch,
    ) {
        batch.clear();
        let mut fences = std::mem::take(&mut batch.fences);
        let ended = self.walk_down(from, to, &mut fences, |block, mut range| {
            while !range.is_empty() && batch.len() < limit {
                let start = block.versions_start(range.end - 1);
                push(batch, block, start..range.end);
                range.end = start;
            }
            range.is_empty()
        });
        batch.fences = fences;
        if ended {
            batch.end();
        }
    }

    /// Calls `visit` with each version of the range, keys ascending and versions newest first, with
    /// the leaf's lock held.
    pub fn for_each(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], Entry),
    ) {
        self.walk_up(from, to, &mut Fences::default(), |block, range| {
            range.for_each(|at| visit(block.key(at), block.entry(at)));
            true
        });
    }

    /// Versions of the range and their bytes. Exact where no thread writes; otherwise each leaf's
    /// part is of the moment at which it was visited. Costs some hundred nanoseconds a leaf.
    pub fn totals(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> RangeTotals {
        let mut totals = RangeTotals::default();
        self.walk_up(from, to, &mut Fences::default(), |block, range| {
            totals.records += range.len() as u64;
            if range.len() == block.len() {
                let sums = block.sums();
                totals.record_bytes += sums.record_bytes;
                totals.tombstones += sums.tombstones;
                return true;
            }
            for entry in range.map(|at| block.entry(at)) {
                totals.record_bytes += u64::from(entry.record_bytes);
                totals.tombstones += u64::from(entry.kind == EntryKind::Delete);
            }
            true
        });
        totals
    }

    /// Versions of the range, as exact as [`FastIndex::totals`].
    pub fn count(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> u64 {
        self.totals(from, to).records
    }

    /// Bytes of the range's records, as exact as [`FastIndex::totals`].
    pub fn bytes(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> u64 {
        self.totals(from, to).record_bytes
    }

    /// Calls `visit` with every leaf of the range and the places in it, ascending, until it returns
    /// false. True where the range was walked to its end.
    fn walk_up(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        fences: &mut Fences,
        mut visit: impl FnMut(&Block, Range<usize>) -> bool,
    ) -> bool {
        let mut first = true;
        loop {
            let begin = if first { from } else { Bound::Included(&fences.here[..]) };
            let top = self.top.read();
            let spot = match begin {
                Bound::Included(key) | Bound::Excluded(key) => top.covering(key),
                Bound::Unbounded => top.numbered(0),
            };
            let high = top.high_end(spot).filter(|high| match to {
                Bound::Included(key) => *high <= key,
                Bound::Excluded(key) => *high < key,
                Bound::Unbounded => true,
            });
            let last = high.is_none();
            fences.next.clear();
            fences.next.extend_from_slice(high.unwrap_or_default());
            let leaf = Arc::clone(top.leaf(spot));
            let block = leaf.read();
            drop(top);
            let range = block.range(begin, to);
            if !visit(&block, range) {
                return false;
            }
            if last {
                return true;
            }
            std::mem::swap(&mut fences.here, &mut fences.next);
            first = false;
        }
    }

    /// As [`FastIndex::walk_up`], descending.
    fn walk_down(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        fences: &mut Fences,
        mut visit: impl FnMut(&Block, Range<usize>) -> bool,
    ) -> bool {
        let mut first = true;
        loop {
            let begin = if first { to } else { Bound::Excluded(&fences.here[..]) };
            let top = self.top.read();
            let spot = match begin {
                Bound::Included(key) => top.covering(key),
                Bound::Excluded(key) => top.covering_below(key),
                Bound::Unbounded => top.last(),
            };
            let low = top.low_end(spot).filter(|low| match from {
                Bound::Included(key) | Bound::Excluded(key) => *low > key,
                Bound::Unbounded => true,
            });
            let last = low.is_none();
            fences.next.clear();
            fences.next.extend_from_slice(low.unwrap_or_default());
            let leaf = Arc::clone(top.leaf(spot));
            let block = leaf.read();
            drop(top);
            let range = block.range(from, begin);
            if !visit(&block, range) {
                return false;
            }
            if last {
                return true;
            }
            std::mem::swap(&mut fences.here, &mut fences.next);
            first = false;
        }
    }
}

fn push(batch: &mut IndexBatch, block: &Block, versions: Range<usize>) {
    batch.push(block.key(versions.start), versions.map(|at| block.entry(at)));
}
