//! A part of the cache of records, and what it evicts: S3-FIFO (Yang et al., SOSP 2023, algorithm
//! 1).
//!
//! ```text
//!   newcomer -> small queue, a twentieth -> asked for? -> main queue
//!                                        -> else gone; a ghost stays
//!   newcomer with a ghost -> main queue -> asked for? -> main queue again, one count less
//!                                       -> else gone
//! ```
//! A record that no look-up asks for again, as a scan brings them, passes through the small queue
//! only. A hit moves nothing: it counts up to three, and queues are looked at when something must
//! go. Hits of records that are backed ([`RecordCache::insert_backed`]) count less: to miss them
//! costs less.
//!
//! [`RecordCache::insert_backed`]: crate::RecordCache::insert_backed
//!
//! Invariants:
//! 1. The bytes of table and ghosts are never more than the capacity, once a call has returned.
//! 2. The calls alone decide which records go.
//!
//! The caller has the lock around it (`record_cache.rs`).

use crate::ghosts::Ghosts;
use crate::record_pieces::{Evicted, Record};
use crate::record_table::{FIRST_RECORD_BYTES, HIT, Queue, RecordTable, Standing, Wanted};
use bytes::Bytes;
use thermocline_foundation::Sequence;

/// The small queue's share of the capacity: half of the paper's. Ghosts, and not that queue, tell
/// which records come back after long.
const SMALL_SHARE: usize = 20;

/// A record that was asked for so often leaves the small queue for the main one. The paper's is 2,
/// which has fewer hits beside scans (docs/measurements/2026-11-23-record-cache.md).
const PROMOTION_SCORE: u64 = HIT;

/// Records that one eviction spares at most because they were asked for. After a time of hits only
/// all of them were, and the caller would have to wait for the whole queue to be walked.
const SPARED_MAX: u32 = 256;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    table: RecordTable,
    ghosts: Ghosts,
    capacity_bytes: usize,
}

impl Shard {
    /// Nothing, so far.
    pub fn new(capacity_bytes: u64) -> Self {
        Self { capacity_bytes: capacity_bytes as usize, ..Self::default() }
    }

    /// Bytes of memory in use.
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.ghosts.memory_bytes()
    }

    /// Records.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// The value of a record, if it is there; a hit for the record.
    pub fn get(&self, hash: u32, key: &[u8], sequence: Sequence) -> Option<Bytes> {
        let number = self.table.find(hash, key, sequence)?;
        self.table.note_hit(number);
        Some(self.table.pieces(number).value())
    }

    /// As [`Shard::get`], for many: `found` is told the places of those that are there.
    pub fn get_many(
        &self,
        wanted: &[Wanted<'_>],
        numbers: &mut Vec<Option<u32>>,
        mut found: impl FnMut(usize, Bytes),
    ) {
        self.table.find_many(wanted, numbers);
        for (number, wanted) in numbers.iter().zip(wanted) {
            if let Some(number) = *number {
                self.table.note_hit(number);
                found(wanted.at, self.table.pieces(number).value());
            }
        }
    }

    /// Whether a record is there; no hit.
    pub fn contains(&self, hash: u32, key: &[u8], sequence: Sequence) -> bool {
        self.table.find(hash, key, sequence).is_some()
    }

    /// Takes a record in that was not there of late, or its ghost says to which queue it belongs.
    /// Otherwise as [`Shard::insert`].
    pub fn insert_newcomer(
        &mut self,
        hash: u32,
        key: &[u8],
        record: Record,
        is_backed: bool,
        evicted: &mut Evicted,
    ) -> Option<Record> {
        if self.contains(hash, key, record.sequence) {
            if !is_backed {
                self.unback(hash, key, record.sequence);
            }
            return Some(record);
        }
        let queue = if self.ghosts.take(hash) { Queue::Main } else { Queue::Small };
        let standing = Standing { queue, score: 0, is_backed };
        self.insert(hash, key, record, standing, evicted)
    }

    /// Takes a record in, and puts what must go for it into `evicted`: the record itself, if it is
    /// too large. One that is there already stays, and the other is given back.
    pub fn insert(
        &mut self,
        hash: u32,
        key: &[u8],
        record: Record,
        standing: Standing,
        evicted: &mut Evicted,
    ) -> Option<Record> {
        if self.contains(hash, key, record.sequence) {
            return Some(record);
        }
        if record.memory_bytes() + FIRST_RECORD_BYTES > self.capacity_bytes {
            evicted.add(record);
            return None;
        }
        self.make_room(Some(&record), evicted);
        self.table.push(record, hash, standing);
        None
    }

    /// The record, if it is there, is nowhere else that is fast any more.
    pub fn unback(&mut self, hash: u32, key: &[u8], sequence: Sequence) {
        if let Some(number) = self.table.find(hash, key, sequence) {
            self.table.unback(number);
        }
    }

    /// There is room for a record of so many bytes, about, without another going.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory_bytes() + bytes + FIRST_RECORD_BYTES <= self.capacity_bytes
    }

    /// Takes a record out, and says where it was.
    pub fn remove(
        &mut self,
        hash: u32,
        key: &[u8],
        sequence: Sequence,
    ) -> Option<(Record, Standing)> {
        let number = self.table.find(hash, key, sequence)?;
        let standing = self.table.standing(number);
        Some((self.table.remove(number)?, standing))
    }

    /// Changes the capacity, and puts what must go into `evicted`.
    pub fn set_capacity_bytes(&mut self, capacity_bytes: u64, evicted: &mut Evicted) {
        self.capacity_bytes = capacity_bytes as usize;
        self.make_room(None, evicted);
    }

    /// Takes everything out.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.capacity_bytes as u64))
    }

    /// Evicts until `newcomer`, if any, fits.
    fn make_room(&mut self, newcomer: Option<&Record>, evicted: &mut Evicted) {
        loop {
            let growth = newcomer.map_or(0, |record| self.table.growth_bytes(record));
            if self.memory_bytes() + growth <= self.capacity_bytes {
                return;
            }
            match self.evict() {
                Some(record) => evicted.add(record),
                None => {
                    // Only ghosts are left.
                    self.ghosts = Ghosts::default();
                    return;
                }
            }
        }
    }

    /// Takes out the record that is to go first, if there is one.
    fn evict(&mut self) -> Option<Record> {
        let mut spared = 0;
        loop {
            let small = self.table.queue_bytes(Queue::Small);
            let queue = if small > self.capacity_bytes / SMALL_SHARE
                || self.table.oldest(Queue::Main).is_none()
            {
                Queue::Small
            } else {
                Queue::Main
            };
            let number = self.table.oldest(queue)?;
            let score = self.table.standing(number).score;
            match queue {
                Queue::Small if score >= PROMOTION_SCORE => {
                    self.table.requeue(number, Queue::Main, 0);
                }
                Queue::Main if score >= HIT && spared < SPARED_MAX => {
                    self.table.requeue(number, Queue::Main, score - HIT);
                    spared += 1;
                }
                _ => {
                    if queue == Queue::Small {
                        self.ghosts.add(self.table.hash(number), self.table.len());
                    }
                    return self.table.remove(number);
                }
            }
        }
    }
}
