//! Chunks: the room of a region, given out in runs of neighbours to arenas, nodes, objects and the
//! register.
//!
//! ```text
//! header   crc 4 | generation 4 | kind 1 | class 1 | zero 2 | chunks 4 | owner 8 | first 8 | zero
//!          on two lines at the start of the first chunk of a run; all zeros: one free chunk
//! ```
//! 1. The headers of runs cover all chunks, one run behind the other. What lies inside a run is the
//!    owner's, also where a chunk begins.
//! 2. A header is durable before its run is used, and a run is free in its header before another
//!    gets it. At any moment a crash leaves the old header or the new one (`twin.rs`).
//! 3. To cut a run the header of its rest is written first: until the run's own header is shorter,
//!    it is inside and not looked at. Where the middle is taken, the header of what is before it
//!    comes last.
//! 4. An arena needs chunks in a row. The first chunks can be left to arenas
//!    ([`Chunks::leave_to_arenas`]): all else is a chunk each, and goes behind them.
//! 5. Free neighbours are one run in memory; their headers join when they are given out.
//! 6. Zeros are the header of a chunk that was never used. What lies behind them has lost its
//!    header: what the index has there its scan misses, for a memtable see `region.rs`.
//!
//! Threads: any; one lock.

use crate::layout::{CHUNK_HEADER_BYTES, Geometry, LINE_BYTES, Owner, damaged};
use crate::persist::Medium;
use crate::twin;
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::coding::is_zero;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a copy of a header that have a meaning.
pub const HEADER_BYTES: usize = 32;

/// What a run of chunks holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing.
    Free,
    /// Groups of one memtable.
    Arena,
    /// Nodes of the tree.
    Nodes,
    /// Objects of one size class.
    Objects,
    /// Lines of tables.
    Register,
}

impl ChunkKind {
    const ALL: [Self; 5] = [Self::Free, Self::Arena, Self::Nodes, Self::Objects, Self::Register];
}

/// The header of a run of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// What it holds.
    pub kind: ChunkKind,
    /// The size class of its objects.
    pub class: u8,
    /// Chunks of the run.
    pub chunks: u32,
    /// The number of the arena.
    pub owner: u64,
    /// The first sequence of the arena.
    pub first: u64,
    /// Goes up with each change.
    pub generation: u32,
}

impl ChunkHeader {
    /// One free chunk, as zeros are read.
    pub const ZERO: Self =
        Self { kind: ChunkKind::Free, class: 0, chunks: 1, owner: 0, first: 0, generation: 0 };

    /// The header as it is at `at`.
    pub fn encode(&self, owner: &Owner, at: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8] = self.kind as u8;
        bytes[9] = self.class;
        bytes[12..16].copy_from_slice(&self.chunks.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.owner.to_le_bytes());
        bytes[24..].copy_from_slice(&self.first.to_le_bytes());
        let sum = checksum(&owner.at(at), &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The header in `bytes`, which were read at `at`; none where it is not whole.
    pub fn decode(bytes: &[u8; HEADER_BYTES], owner: &Owner, at: u64) -> Option<Self> {
        if is_zero(bytes) {
            return Some(Self::ZERO);
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|index| bytes[at + index]));
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let found = Self {
            kind: *ChunkKind::ALL.get(usize::from(bytes[8]))?,
            class: bytes[9],
            chunks: word(12),
            owner: long(16),
            first: long(24),
            generation: word(4),
        };
        (word(0) == checksum(&owner.at(at), &bytes[4..])).then_some(found)
    }
}

/// A run of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its header.
    pub header: ChunkHeader,
}

/// The chunks of a region.
#[derive(Debug)]
pub struct Chunks {
    medium: Arc<Medium>,
    owner: Owner,
    geometry: Geometry,
    /// Free runs: first chunk and length, no two of them neighbours.
    free: Mutex<BTreeMap<u64, u64>>,
    /// The first chunks, which arenas alone take.
    of_arenas: AtomicU64,
    /// Free chunks behind them that what grows leaves to changes.
    of_changes: AtomicU64,
}

impl Chunks {
    /// Reads all headers; the runs in use, in order.
    pub fn open(
        medium: Arc<Medium>,
        owner: Owner,
        geometry: Geometry,
        runs: Vec<Extent>,
    ) -> (Self, Vec<Extent>) {
        let (of_arenas, of_changes) = (AtomicU64::new(0), AtomicU64::new(0));
        let chunks =
            Self { medium, owner, geometry, free: Mutex::default(), of_arenas, of_changes };
        let (free, used): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| run.header.kind == ChunkKind::Free);
        free.iter().for_each(|run| chunks.release_run(run));
        (chunks, used)
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.geometry.chunk_bytes
    }

    /// Replaces the header at `at`; durable at return.
    fn set(&self, at: u64, mut header: ChunkHeader) {
        let places = places(at);
        let decode = |at| copy_at(&self.medium, &self.owner, at);
        let generations = twin::generations(places, decode, |found| u64::from(found.generation));
        // What lies there may be a header of an earlier life: the new one must count.
        let last = generations.into_iter().flatten().max().unwrap_or(0);
        header.generation = (last as u32).wrapping_add(1);
        twin::replace(&self.medium, places, generations, |at| {
            header.encode(&self.owner, at).to_vec()
        });
    }

    /// Adds a free run, joined with its neighbours.
    fn release(&self, index: u64, count: u64) {
        let mut free = self.free.lock();
        let (mut index, mut count) = (index, count);
        if let Some((before, length)) = free.range(..index).next_back().map(|it| (*it.0, *it.1))
            && before + length == index
        {
            free.remove(&before);
            (index, count) = (before, length + count);
        }
        if let Some(length) = free.remove(&(index + count)) {
            count += length;
        }
        free.insert(index, count);
    }

    /// Chunks that are free.
    pub fn free_chunks(&self) -> u64 {
        self.free.lock().values().sum()
    }

    /// Leaves the first `count` chunks to arenas. What lies there stays.
    pub fn leave_to_arenas(&self, count: u64) {
        self.of_arenas.store(count, Ordering::Relaxed);
    }

    /// Has the index grow no more when `count` chunks are free beside those of arenas: its changes
    /// have them.
    pub fn leave_to_changes(&self, count: u64) {
        self.of_changes.store(count, Ordering::Relaxed);
    }

    /// The index may grow by a chunk.
    pub fn has_room_to_grow(&self) -> bool {
        self.free_beside_arenas() > self.of_changes.load(Ordering::Relaxed)
    }

    /// Free chunks that are not left to arenas.
    pub fn free_beside_arenas(&self) -> u64 {
        let from = self.of_arenas.load(Ordering::Relaxed);
        let behind =
            |(index, length): (&u64, &u64)| (index + length).saturating_sub((*index).max(from));
        self.free.lock().iter().map(behind).sum()
    }

    /// Gives out a run as `header` says, of which no byte is promised; durable at return.
    pub fn allocate(&self, header: ChunkHeader) -> Result<Extent> {
        self.allocate_filled(header, false)
    }

    /// As [`Self::allocate`]; the bytes behind the header are zeros.
    pub fn allocate_zeros(&self, header: ChunkHeader) -> Result<Extent> {
        self.allocate_filled(header, true)
    }

    fn allocate_filled(&self, header: ChunkHeader, zeros: bool) -> Result<Extent> {
        let mut free = self.free.lock();
        let count = u64::from(header.chunks);
        let from = match header.kind {
            ChunkKind::Arena => 0,
            _ => self.of_arenas.load(Ordering::Relaxed),
        };
        let mut runs = free.iter().map(|(start, length)| (*start, start + length));
        let Some((start, end)) = runs.find(|(start, end)| (*start).max(from) + count <= *end)
        else {
            return Err(no_room());
        };
        free.remove(&start);
        let index = start.max(from);
        let at = self.geometry.chunk_at(index);
        let mut cut = |first: u64, end: u64| {
            if first < end {
                let rest = ChunkHeader { chunks: (end - first) as u32, ..ChunkHeader::ZERO };
                self.set(self.geometry.chunk_at(first), rest);
                free.insert(first, end - first);
            }
        };
        cut(index + count, end);
        let bytes = count * self.geometry.chunk_bytes;
        if zeros {
            let behind = vec![0; (bytes - CHUNK_HEADER_BYTES) as usize];
            self.medium.write(at + CHUNK_HEADER_BYTES, &behind);
            self.medium.fence();
        }
        self.set(at, header);
        cut(start, index);
        Ok(Extent { at, bytes, header })
    }

    /// Takes a run back; it is free in its header at return.
    pub fn free(&self, extent: Extent) {
        let chunks = extent.header.chunks;
        self.set(extent.at, ChunkHeader { chunks, ..ChunkHeader::ZERO });
        self.release_run(&extent);
    }

    fn release_run(&self, run: &Extent) {
        if let Some(index) = self.geometry.chunk_of(run.at) {
            self.release(index, u64::from(run.header.chunks));
        }
    }
}

/// Where the copies of a header are.
fn places(at: u64) -> [u64; 2] {
    [at, at + LINE_BYTES]
}

fn copy_at(medium: &Medium, owner: &Owner, at: u64) -> Option<ChunkHeader> {
    let mut bytes = [0; HEADER_BYTES];
    medium.read(at, &mut bytes);
    ChunkHeader::decode(&bytes, owner, at)
}

/// All runs, free or in use, in order. Changes nothing.
pub fn runs(medium: &Medium, owner: &Owner, geometry: &Geometry) -> Result<Vec<Extent>> {
    let (mut runs, mut index) = (Vec::new(), 0);
    while index < geometry.chunks() {
        let at = geometry.chunk_at(index);
        let copy = |at| copy_at(medium, owner, at);
        let header = twin::newest(places(at), copy, |found| u64::from(found.generation));
        let header = header
            .ok_or_else(|| damaged(at, "no copy of the header of a chunk matches its checksum"))?;
        let count = u64::from(header.chunks);
        if count == 0 || count > geometry.chunks() - index {
            return Err(damaged(at, "a run of chunks is longer than the region"));
        }
        runs.push(Extent { at, bytes: count * geometry.chunk_bytes, header });
        index += count;
    }
    Ok(runs)
}

/// There is no chunk to give out.
pub fn no_room() -> Error {
    let text = "the region of persistent memory has no room; give it a larger size";
    Error::new(ErrorKind::OutOfSpace, text)
}
