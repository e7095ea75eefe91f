//! Builds the raw bytes of a block, whose layout `block.rs` describes.
//!
//! Invariants: entries come in order; the first of every `restart_interval` entries, and of every
//! block, is a restart. Used by one thread, the writer's; its memory is kept from block to block.

use crate::block::{COLLISION, COUNT_BYTES, EMPTY, HASHED_RESTARTS_MAX};
use crate::format::BlockAddress;
use crate::index_entry::{self, Before, Fresh};
use thermocline_foundation::coding::put_varint;

/// Most memory that is kept from block to block.
pub(crate) const KEPT_BYTES_MAX: usize = 1 << 20;

/// One block in the making.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    /// Hash and restart of each key's first entry at a restart; empty when the block is not hashed.
    hashes: Vec<(u32, u32)>,
    hashed: bool,
    interval: u16,
    since_restart: u16,
    last_key: Vec<u8>,
    /// The data block of the last entry of an index partition.
    last_address: BlockAddress,
}

impl BlockBuilder {
    /// A builder whose blocks have a restart every `interval` entries and, where `hashed`, a hash
    /// index.
    pub fn new(interval: u16, hashed: bool) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: Vec::new(),
            hashes: Vec::new(),
            hashed,
            interval: interval.max(1),
            since_restart: 0,
            last_key: Vec::new(),
            last_address: BlockAddress::default(),
        }
    }

    /// No entry since the last [`BlockBuilder::clear`].
    pub fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The last key added, also after [`BlockBuilder::clear`].
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Bytes of the block if it were finished now.
    pub fn raw_bytes(&self) -> usize {
        let buckets = if self.restarts.len() > 1 { bucket_count(self.hashes.len()) } else { 0 };
        self.bytes.len() + 4 * self.restarts.len() + buckets + COUNT_BYTES
    }

    /// Bytes that an entry adds at most.
    pub fn entry_bytes_max(key: &[u8], value: &[u8]) -> usize {
        key.len() + value.len() + 3 * 5 + 8 + 4 + 2
    }

    /// Appends an entry.
    pub fn add(&mut self, key: &[u8], word: u64, value: &[u8], hash: u64) {
        self.add_head(key, word, value.len(), hash);
        if value.len() > KEPT_BYTES_MAX {
            // The tail would double the memory of a huge block.
            self.bytes.reserve_exact(value.len() + SINGLE_ENTRY_TAIL.len());
        }
        self.bytes.extend_from_slice(value);
    }

    /// Appends an entry without its value, for a value that goes straight to the file.
    pub fn add_head(&mut self, key: &[u8], word: u64, value_len: usize, hash: u64) {
        let shared = self.begin_entry(key, self.restart_is_due());
        let unshared = key.len() - shared;
        if (shared | unshared | value_len) < 0x80 {
            self.bytes.extend_from_slice(&[shared as u8, unshared as u8, value_len as u8]);
        } else {
            put_varint(&mut self.bytes, shared as u64);
            put_varint(&mut self.bytes, unshared as u64);
            put_varint(&mut self.bytes, value_len as u64);
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(&word.to_le_bytes());
        if self.hashed {
            let item = (hash as u32, self.restarts.len() as u32 - 1);
            if self.hashes.last() != Some(&item) {
                self.hashes.push(item);
            }
        }
        self.end_entry(key, shared);
    }

    /// Appends an entry of an index partition, `index_entry.rs`: the separator `(key, word)` and
    /// its data block.
    pub fn add_address(&mut self, key: &[u8], word: u64, address: BlockAddress) {
        let place = match self.restart_is_due() {
            true => None,
            false => index_entry::place(self.last_address, address),
        };
        let shared = self.begin_entry(key, place.is_none());
        let before = Before { key_len: self.last_key.len(), address: self.last_address };
        let entry = Fresh { separator: key, word, address };
        index_entry::put(&mut self.bytes, before, shared, entry, place);
        self.last_address = address;
        self.end_entry(key, shared);
    }

    fn restart_is_due(&self) -> bool {
        self.is_empty() || self.since_restart == self.interval
    }

    /// How many bytes an entry with this key shares with the one before; none where it is a
    /// restart.
    fn begin_entry(&mut self, key: &[u8], restart: bool) -> usize {
        if restart {
            self.since_restart = 0;
            self.restarts.push(self.bytes.len() as u32);
        }
        self.since_restart += 1;
        if restart { 0 } else { shared_prefix(&self.last_key, key) }
    }

    fn end_entry(&mut self, key: &[u8], shared: usize) {
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
    }

    /// The entries so far, without the tail: the head of a block whose value follows.
    pub fn head(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends restarts, hash index and counts, and gives the raw block.
    pub fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let restarts = self.restarts.len();
        let worth = self.hashed && restarts > 1 && restarts <= HASHED_RESTARTS_MAX;
        let buckets = if worth { bucket_count(self.hashes.len()) } else { 0 };
        if buckets > 0 {
            let start = self.bytes.len();
            self.bytes.resize(start + buckets, EMPTY);
            for &(hash, restart) in &self.hashes {
                let at = start + ((u64::from(hash) * buckets as u64) >> 32) as usize;
                let restart = restart as u8;
                let bucket = self.bytes[at];
                self.bytes[at] =
                    if bucket == EMPTY || bucket == restart { restart } else { COLLISION };
            }
        }
        self.bytes.extend_from_slice(&(restarts as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(buckets as u16).to_le_bytes());
        &self.bytes
    }

    /// Starts the next block. The memory of a huge one is given back.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.restarts.clear();
        self.hashes.clear();
        self.since_restart = 0;
    }
}

/// The tail of a block of one entry, which starts at 0 and has no hash index.
pub(crate) const SINGLE_ENTRY_TAIL: [u8; 10] = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0];

/// Four buckets for three keys; none for more keys than 16 bits can count.
fn bucket_count(keys: usize) -> usize {
    let buckets = keys * 4 / 3;
    if buckets > usize::from(u16::MAX) { 0 } else { buckets }
}

#[inline]
fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8)).take_while(|(a, b)| a == b).count() * 8;
    words + a[words..].iter().zip(&b[words..]).take_while(|(a, b)| a == b).count()
}
