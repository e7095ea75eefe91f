//! Cached records, found by hash, in two queues: everything about them but which to evict.
//!
//! ```text
//!   buckets   hash -> entry | entry | ...              a chain through the entries of a bucket
//!   entries   first piece 16 | sequence and how it is asked for 8 | hash 4 | chain 4
//!             | newer 4 | older 4 | rest 4 | bytes of key 4             48 bytes, without gaps
//!   rests     second piece 16 | entry 4                for records in two pieces only
//!   queues    oldest <-> ... <-> newest                links through the entries
//! ```
//! Entries name each other by number. The numbers of `len` entries are those below `len`: the last
//! entry takes the place of one that goes, so memory follows the number of records down as well.
//! Buckets are added and joined one at a time (linear hashing; Litwin, VLDB 1980), as many as there
//! are entries, so the table never doubles.
//!
//! Invariants:
//! 1. Each entry is in the chain of its hash's bucket, and in the queue that it says.
//! 2. A rest and its entry name each other.
//! 3. What memory an insertion takes is known before it: [`RecordTable::growth_bytes`].
//!
//! The caller has the lock around it (`record_cache.rs`). With the right to read only, hits count.

use crate::chunks::Chunks;
use crate::key_hash::allocated_bytes;
use crate::record_pieces::{Pieces, Record};
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// No entry, or no rest.
const NONE: u32 = u32::MAX;

/// The queues of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Of newcomers.
    Small,
    /// Of those that were asked for again.
    Main,
}

/// What a hit of a record counts, and one of a backed record.
pub(crate) const HIT: u64 = 8;
pub(crate) const BACKED_HIT: u64 = 1;

/// Hits are counted up to here: three, as in the paper.
pub(crate) const SCORE_MAX: u64 = 3 * HIT;

/// Sequence, queue and score in one word: `sequence << 8 | backed << 7 | queue << 6 | score`.
const SCORE_MASK: u64 = QUEUE_BIT - 1;
const QUEUE_BIT: u64 = 1 << 6;
const BACKED_BIT: u64 = 1 << 7;
const SEQUENCE_SHIFT: u32 = 8;

const _: () = assert!(SCORE_MAX <= SCORE_MASK);

/// A record that is looked for beside others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub shard: usize,
    pub hash: u32,
    pub key: &'a [u8],
    pub sequence: Sequence,
    /// Its place among those of the caller.
    pub at: usize,
}

/// Where a record is in the queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub queue: Queue,
    /// How often it was asked for since it came there, times [`HIT`], up to [`SCORE_MAX`].
    pub score: u64,
    /// Fast storage has it too.
    pub is_backed: bool,
}

#[derive(Debug)]
struct Entry {
    first: Box<[u8]>,
    stamp: AtomicU64,
    hash: u32,
    chained: u32,
    newer: u32,
    older: u32,
    rest: u32,
    key_bytes: u32,
}

// The scheduler's atomics are larger.
#[cfg(not(shuttle))]
const _: () = assert!(size_of::<Entry>() == 48, "no gaps");

fn stamp(sequence: Sequence, standing: Standing) -> AtomicU64 {
    let Standing { queue, score, is_backed } = standing;
    debug_assert!(sequence <= Sequence::MAX && score <= SCORE_MAX);
    let queue = if queue == Queue::Main { QUEUE_BIT } else { 0 };
    let backed = if is_backed { BACKED_BIT } else { 0 };
    AtomicU64::new(sequence.0 << SEQUENCE_SHIFT | backed | queue | score)
}

impl Entry {
    fn sequence(&self) -> Sequence {
        Sequence(self.stamp.load(Relaxed) >> SEQUENCE_SHIFT)
    }

    fn queue(&self) -> Queue {
        if self.stamp.load(Relaxed) & QUEUE_BIT == 0 { Queue::Small } else { Queue::Main }
    }
}

/// Ends of a queue, and what is in it.
#[derive(Debug)]
struct Ends {
    oldest: u32,
    newest: u32,
    bytes: usize,
}

impl Default for Ends {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, bytes: 0 }
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct RecordTable {
    entries: Chunks<Entry>,
    rests: Chunks<Box<[u8]>>,
    /// Whose each rest is; apart, because together they would have gaps.
    rest_entries: Chunks<u32>,
    buckets: Chunks<u32>,
    queues: [Ends; 2],
    /// Memory of all pieces.
    piece_bytes: usize,
}

/// Bytes of memory that an empty table takes for its first record, besides the record.
pub(crate) const FIRST_RECORD_BYTES: usize = Chunks::<Entry>::first_bytes()
    + Chunks::<Box<[u8]>>::first_bytes()
    + 2 * Chunks::<u32>::first_bytes();

impl RecordTable {
    /// Records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Memory that it has, in use or not.
    pub fn memory_bytes(&self) -> usize {
        self.piece_bytes
            + self.entries.memory_bytes()
            + self.rests.memory_bytes()
            + self.rest_entries.memory_bytes()
            + self.buckets.memory_bytes()
    }

    /// Memory that `record` will take besides.
    pub fn growth_bytes(&self, record: &Record) -> usize {
        let mut bytes = record.memory_bytes() + self.entries.growth_bytes();
        if self.buckets.len() <= self.entries.len() {
            bytes += self.buckets.growth_bytes();
        }
        if !record.rest.is_empty() {
            bytes += self.rests.growth_bytes() + self.rest_entries.growth_bytes();
        }
        bytes
    }

    /// The entry of a record, if it is there.
    #[inline]
    pub fn find(&self, hash: u32, key: &[u8], sequence: Sequence) -> Option<u32> {
        self.of_key(self.alike(self.head(hash), hash, sequence), hash, key, sequence)
    }

    /// [`RecordTable::find`] for each of these, into `numbers`. A look-up waits for memory three
    /// times, one after the other: here those of all records are under way at once.
    pub fn find_many(&self, wanted: &[Wanted<'_>], numbers: &mut Vec<Option<u32>>) {
        let heads = wanted.iter().map(|wanted| Some(self.head(wanted.hash)));
        numbers.clear();
        numbers.extend(heads);
        let all = || wanted.iter();
        for (number, Wanted { hash, sequence, .. }) in numbers.iter_mut().zip(all()) {
            *number = number.map(|head| self.alike(head, *hash, *sequence));
        }
        for (number, Wanted { hash, key, sequence, .. }) in numbers.iter_mut().zip(all()) {
            *number = number.and_then(|alike| self.of_key(alike, *hash, key, *sequence));
        }
    }

    /// The first entry of the hash's bucket.
    #[inline]
    fn head(&self, hash: u32) -> u32 {
        if self.buckets.len() == 0 { NONE } else { self.buckets[self.bucket(hash)] }
    }

    /// The first entry of the chain, from `number` on, that has hash and sequence.
    #[inline]
    fn alike(&self, mut number: u32, hash: u32, sequence: Sequence) -> u32 {
        while number != NONE {
            let entry = &self.entries[number as usize];
            if entry.hash == hash && entry.sequence() == sequence {
                break;
            }
            number = entry.chained;
        }
        number
    }

    /// The first of the entries alike, from `alike` on, that has the key.
    #[inline]
    fn of_key(&self, mut alike: u32, hash: u32, key: &[u8], sequence: Sequence) -> Option<u32> {
        while alike != NONE {
            if self.pieces(alike).has_key(key) {
                return Some(alike);
            }
            alike = self.alike(self.entries[alike as usize].chained, hash, sequence);
        }
        None
    }

    /// The bytes of a record.
    #[inline]
    pub fn pieces(&self, number: u32) -> Pieces<'_> {
        let entry = &self.entries[number as usize];
        let rest: &[u8] = if entry.rest == NONE { &[] } else { &self.rests[entry.rest as usize] };
        Pieces { first: &entry.first, rest, key_bytes: entry.key_bytes as usize }
    }

    pub fn hash(&self, number: u32) -> u32 {
        self.entries[number as usize].hash
    }

    pub fn standing(&self, number: u32) -> Standing {
        let entry = &self.entries[number as usize];
        let stamp = entry.stamp.load(Relaxed);
        let is_backed = stamp & BACKED_BIT != 0;
        Standing { queue: entry.queue(), score: stamp & SCORE_MASK, is_backed }
    }

    /// Counts a hit. Of two at once one may be lost.
    /// A hit that changes no count writes nothing, or the hottest entries would wander between
    /// processors.
    #[inline]
    pub fn note_hit(&self, number: u32) {
        let stamp = &self.entries[number as usize].stamp;
        let now = stamp.load(Relaxed);
        let score = now & SCORE_MASK;
        if score < SCORE_MAX {
            let hit = if now & BACKED_BIT == 0 { HIT } else { BACKED_HIT };
            stamp.store(now - score + (score + hit).min(SCORE_MAX), Relaxed);
        }
    }

    /// The record is nowhere else that is fast any more.
    pub fn unback(&mut self, number: u32) {
        let stamp = &self.entries[number as usize].stamp;
        stamp.store(stamp.load(Relaxed) & !BACKED_BIT, Relaxed);
    }

    /// Takes a record in, as the newest of its queue.
    pub fn push(&mut self, record: Record, hash: u32, standing: Standing) {
        let number = self.entries.len() as u32;
        self.piece_bytes += record.memory_bytes();
        let rest = if record.rest.is_empty() { NONE } else { self.rests.len() as u32 };
        if rest != NONE {
            self.rests.push(record.rest);
            self.rest_entries.push(number);
        }
        if self.buckets.len() == number as usize {
            self.add_bucket();
        }
        let bucket = self.bucket(hash);
        let entry = Entry {
            first: record.first,
            stamp: stamp(record.sequence, standing),
            hash,
            chained: self.buckets[bucket],
            newer: NONE,
            older: NONE,
            rest,
            key_bytes: record.key_bytes,
        };
        self.buckets[bucket] = number;
        self.entries.push(entry);
        self.link(number);
    }

    /// Takes a record out.
    pub fn remove(&mut self, number: u32) -> Option<Record> {
        self.unlink(number);
        let entry = &self.entries[number as usize];
        let (rest, chained) = (entry.rest, entry.chained);
        self.replace_in_chain(entry.hash, number, chained);
        let rest = self.remove_rest(rest);
        let entry = self.entries.swap_remove(number as usize)?;
        if (number as usize) < self.entries.len() {
            self.rename(self.entries.len() as u32, number);
        }
        self.join_buckets();
        let sequence = entry.sequence();
        let record = Record { first: entry.first, rest, sequence, key_bytes: entry.key_bytes };
        self.piece_bytes -= record.memory_bytes();
        Some(record)
    }

    fn remove_rest(&mut self, rest: u32) -> Box<[u8]> {
        if rest == NONE {
            return Box::default();
        }
        let bytes = self.rests.swap_remove(rest as usize);
        self.rest_entries.swap_remove(rest as usize);
        if (rest as usize) < self.rests.len() {
            let moved = self.rest_entries[rest as usize];
            self.entries[moved as usize].rest = rest;
        }
        bytes.unwrap_or_default()
    }

    /// The entry `from` has moved to the place `to`: tells all that name it.
    fn rename(&mut self, from: u32, to: u32) {
        let entry = &self.entries[to as usize];
        let (hash, newer, older, rest) = (entry.hash, entry.newer, entry.older, entry.rest);
        let queue = entry.queue();
        self.replace_in_chain(hash, from, to);
        self.set_older(newer, to, queue);
        self.set_newer(older, to, queue);
        if rest != NONE {
            self.rest_entries[rest as usize] = to;
        }
    }
}

/// The queues.
impl RecordTable {
    /// The record that came into the queue first.
    pub fn oldest(&self, queue: Queue) -> Option<u32> {
        Some(self.queues[queue as usize].oldest).filter(|number| *number != NONE)
    }

    /// Memory of a queue's entries and pieces.
    pub fn queue_bytes(&self, queue: Queue) -> usize {
        self.queues[queue as usize].bytes
    }

    /// Makes a record the newest of `queue`, with a score.
    pub fn requeue(&mut self, number: u32, queue: Queue, score: u64) {
        let standing = Standing { queue, score, ..self.standing(number) };
        self.unlink(number);
        let entry = &mut self.entries[number as usize];
        entry.stamp = stamp(entry.sequence(), standing);
        self.link(number);
    }

    /// Memory of a record and its entry.
    fn record_bytes(&self, number: u32) -> usize {
        let pieces = self.pieces(number);
        let (first, rest) = (pieces.first.len(), pieces.rest.len());
        allocated_bytes(first) + allocated_bytes(rest) + size_of::<Entry>()
    }

    /// Puts an entry at the end of the queue that it says.
    fn link(&mut self, number: u32) {
        let queue = self.entries[number as usize].queue();
        let bytes = self.record_bytes(number);
        let ends = &mut self.queues[queue as usize];
        ends.bytes += bytes;
        let older = std::mem::replace(&mut ends.newest, number);
        self.entries[number as usize].newer = NONE;
        self.entries[number as usize].older = older;
        self.set_newer(older, number, queue);
    }

    /// Takes an entry out of its queue.
    fn unlink(&mut self, number: u32) {
        let entry = &self.entries[number as usize];
        let (newer, older, queue) = (entry.newer, entry.older, entry.queue());
        self.queues[queue as usize].bytes -= self.record_bytes(number);
        self.set_older(newer, older, queue);
        self.set_newer(older, newer, queue);
    }

    /// What `number` names as the older one; without a number, the end of the queue.
    fn set_older(&mut self, number: u32, older: u32, queue: Queue) {
        match number {
            NONE => self.queues[queue as usize].newest = older,
            _ => self.entries[number as usize].older = older,
        }
    }

    /// What `number` names as the newer one; without a number, the beginning of the queue.
    fn set_newer(&mut self, number: u32, newer: u32, queue: Queue) {
        match number {
            NONE => self.queues[queue as usize].oldest = newer,
            _ => self.entries[number as usize].newer = newer,
        }
    }
}

/// The buckets. With `n` of them, `2^i <= n < 2^(i+1)`: a hash's is what its last `i + 1` bits say,
/// and where there is no such bucket yet, its last `i`.
impl RecordTable {
    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        let buckets = self.buckets.len();
        let mask = buckets.next_power_of_two() - 1;
        let bucket = hash as usize & mask;
        if bucket < buckets { bucket } else { bucket & (mask >> 1) }
    }

    /// The link to the entry `from` leads to `to` from now on.
    fn replace_in_chain(&mut self, hash: u32, from: u32, to: u32) {
        let bucket = self.bucket(hash);
        let mut at = self.buckets[bucket];
        if at == from {
            self.buckets[bucket] = to;
            return;
        }
        while self.entries[at as usize].chained != from {
            at = self.entries[at as usize].chained;
        }
        self.entries[at as usize].chained = to;
    }

    /// Splits the bucket whose turn it is.
    fn add_bucket(&mut self) {
        let new = self.buckets.len();
        self.buckets.push(NONE);
        if let Some(split) = bucket_split_into(new) {
            let chain = std::mem::replace(&mut self.buckets[split], NONE);
            self.distribute(chain);
        }
    }

    /// Joins buckets again, two for a record that goes, where there are many more than records.
    fn join_buckets(&mut self) {
        let records = self.entries.len();
        if records == 0 {
            self.buckets = Chunks::default();
        }
        for _ in 0..2 {
            if self.buckets.len() <= records + records / 4 + 16 {
                return;
            }
            let chain = self.buckets.pop().unwrap_or(NONE);
            self.distribute(chain);
        }
    }

    /// Puts the entries of a chain into the buckets where they belong now.
    fn distribute(&mut self, chain: u32) {
        let mut number = chain;
        while number != NONE {
            let bucket = self.bucket(self.entries[number as usize].hash);
            let head = std::mem::replace(&mut self.buckets[bucket], number);
            let chained = &mut self.entries[number as usize].chained;
            number = std::mem::replace(chained, head);
        }
    }
}

/// The bucket of which bucket `new` takes its part.
fn bucket_split_into(new: usize) -> Option<usize> {
    Some(new - (1 << new.checked_ilog2()?))
}
