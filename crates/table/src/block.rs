//! A block of sorted entries, checked once when it is loaded and then searched without allocation.
//!
//! ```text
//!   raw block = entry* | restart u32 * R | bucket u8 * B | R u32 | B u16
//!   entry     = shared varint | unshared varint | value length varint
//!             | unshared key bytes | trailer u64 | value
//! ```
//! A key is the first `shared` bytes of the key before it, then its own bytes. At a restart
//! `shared` is 0. With B > 0, bucket `low 32 bits of the key's hash * B >> 32` names the restart to
//! scan from for that key: `EMPTY` says that no key of the block hashes there, `COLLISION` that
//! the restarts must be searched.
//!
//! Index partitions have the same shape with entries of their own, `index_entry.rs`; which of the
//! two a block has (`Coding`) is known from where it lies.
//!
//! Invariants:
//! 1. `Block::parse` accepts only blocks whose restarts ascend, start at 0 and lie inside the
//!    entries.
//! 2. Damage inside entries is found where it is met and reported, never a panic: every length is
//!    checked.
//! 3. Blocks are immutable; clones share their bytes. Any thread.

use crate::filter::key_hash;
use crate::format::BlockAddress;
use crate::index::data_address;
use crate::index_entry::{self, Before};
use crate::key::{Trailer, compare_words};
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;

/// A bucket that no key of the block falls into.
pub(crate) const EMPTY: u8 = 255;
/// A bucket whose keys lie at more than one restart.
pub(crate) const COLLISION: u8 = 254;
/// Most restarts of a block with a hash index: what a bucket can name.
pub(crate) const HASHED_RESTARTS_MAX: usize = 254;
/// Bytes of the two counts at the end.
pub(crate) const COUNT_BYTES: usize = 6;

/// Why bytes are not what a writer writes.
pub(crate) type Broken = &'static str;

pub(crate) const CUT: Broken = "an entry runs out of its block";
pub(crate) const PREFIX: Broken = "an entry shares more than the key before it has";
pub(crate) const RESTART: Broken = "a block's restarts are not those of its entries";
const BUCKET: Broken = "a hash bucket names no restart";

/// How the entries of a block are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// As above: data blocks, top indexes and the index partitions of version 1.
    Records,
    /// As in `index_entry.rs`: the index partitions of version 2.
    Addresses,
}

/// A verified block in memory.
#[derive(Clone, Debug)]
pub struct Block {
    bytes: Bytes,
    offset: u64,
    entries_end: u32,
    restart_count: u32,
    bucket_count: u16,
    coding: Coding,
}

/// What a block says of a key at a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The newest version at or below the snapshot; the value shares the block's memory.
    Found(Trailer, Bytes),
    /// The table has no such version.
    Absent,
    /// The block ends within the key's versions, all newer than the snapshot: the next block must
    /// be asked; [`crate::TableReader::get`] goes straight to the right one.
    NextBlock,
}

/// An entry as it is stored; positions count from the start of the block.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub shared: usize,
    pub key: Range<usize>,
    pub word: u64,
    /// Ends where the next entry begins; empty in [`Coding::Addresses`].
    pub value: Range<usize>,
    /// The data block; only in [`Coding::Addresses`].
    pub address: BlockAddress,
    /// It leans on no entry before it.
    pub whole: bool,
}

impl Block {
    /// Checks the shape of a raw block that lies at `offset` of its file.
    pub(crate) fn parse(bytes: Bytes, offset: u64, coding: Coding) -> Result<Self, Broken> {
        const SHAPE: Broken = "a block's counts do not fit its length";
        let body = bytes.len().checked_sub(COUNT_BYTES).ok_or(SHAPE)?;
        let counts = &bytes[body..];
        let restart_count = u32::from_le_bytes([counts[0], counts[1], counts[2], counts[3]]);
        let bucket_count = u16::from_le_bytes([counts[4], counts[5]]);
        let tail = (restart_count as usize).checked_mul(4);
        let tail = tail.and_then(|bytes| bytes.checked_add(usize::from(bucket_count)));
        let entries_end = tail.and_then(|tail| body.checked_sub(tail)).ok_or(SHAPE)?;
        let end = u32::try_from(entries_end).map_err(|_| SHAPE)?;
        let block = Self { bytes, offset, entries_end: end, restart_count, bucket_count, coding };
        if block.restart_count == 0 {
            return if entries_end == 0 { Ok(block) } else { Err(SHAPE) };
        }
        let mut least = 0;
        for index in 0..block.restart_count as usize {
            let restart = block.restart(index);
            if restart < least || restart >= entries_end || (index == 0 && restart != 0) {
                return Err("a block's restarts are out of order");
            }
            least = restart + 1;
        }
        Ok(block)
    }

    /// A filter partition, which has no entries; only its bytes are looked at.
    pub(crate) fn of_filter(bytes: Bytes, offset: u64) -> Self {
        let coding = Coding::Records;
        Self { bytes, offset, entries_end: 0, restart_count: 0, bucket_count: 0, coding }
    }

    /// Where the block lies in its file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of memory that the block holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>()
    }

    pub(crate) fn entries_end(&self) -> usize {
        self.entries_end as usize
    }

    pub(crate) fn restart_count(&self) -> usize {
        self.restart_count as usize
    }

    #[inline]
    pub(crate) fn restart(&self, index: usize) -> usize {
        let at = self.entries_end as usize + 4 * index;
        let bytes = &self.bytes[at..at + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    }

    /// Checks that every restart is the start of an entry that leans on none; where `every`, as in
    /// a top index, also that every entry is one. Of an index partition, that no other entry is
    /// whole and that each shares as much as it can. Only what searches or walks backward would
    /// notice.
    pub(crate) fn check_restarts(&self, every: bool) -> Result<(), Broken> {
        let mut cursor = Cursor::new(self.clone());
        let (mut index, mut before) = (0, Vec::new());
        cursor.restart_at(0);
        cursor.next = 0;
        while cursor.next < self.entries_end() {
            let at = cursor.next;
            let entry = cursor.step_entry()?;
            let restart = index < self.restart_count() && self.restart(index) == at;
            let addresses = self.coding == Coding::Addresses;
            if (restart && !entry.whole) || (!restart && (every || (addresses && entry.whole))) {
                return Err(RESTART);
            }
            index += usize::from(restart);
            if addresses {
                let own = cursor.key.get(entry.shared);
                if !entry.whole && own.is_some() && own == before.get(entry.shared) {
                    return Err("an index entry shares less than it could");
                }
                before.clone_from(&cursor.key);
            }
        }
        if index == self.restart_count() { Ok(()) } else { Err(RESTART) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of the entries.
    #[inline]
    pub(crate) fn entries(&self) -> &[u8] {
        &self.bytes[..self.entries_end as usize]
    }

    /// A part of the block that shares its memory.
    pub(crate) fn slice(&self, range: Range<usize>) -> Bytes {
        self.bytes.slice(range)
    }

    /// The entry at `at`, behind `before`.
    #[inline]
    fn entry(&self, at: usize, before: Before) -> Result<Entry, Broken> {
        match self.coding {
            Coding::Records => self.record(at),
            Coding::Addresses => index_entry::take(self.entries(), at, before),
        }
    }

    /// The entry at `at` of [`Coding::Records`].
    #[inline]
    fn record(&self, at: usize) -> Result<Entry, Broken> {
        let bytes = self.entries();
        let head = bytes.get(at..).ok_or(CUT)?;
        let (shared, unshared, value_len, head_len) = match *head {
            [a, b, c, ..] if (a | b | c) < 0x80 => (a as usize, b as usize, c as usize, 3),
            // Values of 128 bytes to 16 KiB, the usual case.
            [a, b, c, d, ..] if (a | b | d) < 0x80 => {
                (a as usize, b as usize, (c & 0x7f) as usize | (d as usize) << 7, 4)
            }
            _ => long_head(head)?,
        };
        let key_at = at + head_len;
        let key_end = key_at.checked_add(unshared).ok_or(CUT)?;
        let value_at = key_end.checked_add(8).ok_or(CUT)?;
        let value_end = value_at.checked_add(value_len).ok_or(CUT)?;
        if value_end > bytes.len() {
            return Err(CUT);
        }
        let word =
            bytes[key_end..value_at].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (key, value) = (key_at..key_end, value_at..value_end);
        let address = BlockAddress::default();
        Ok(Entry { shared, key, word, value, address, whole: shared == 0 })
    }

    /// How many restarts begin with an entry before `(key, word)`.
    #[inline]
    pub(crate) fn restarts_before(&self, key: &[u8], word: u64) -> Result<usize, Broken> {
        let (mut low, mut high) = (0, self.restart_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.restart_precedes(self.restart(middle), key, word)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The restart at `at` begins with an entry before `(key, word)`. The word is only decoded
    /// where the keys are equal.
    #[inline]
    fn restart_precedes(&self, at: usize, key: &[u8], word: u64) -> Result<bool, Broken> {
        let bytes = self.entries();
        let short = match (self.coding, bytes.get(at..).ok_or(CUT)?) {
            (Coding::Addresses, entry) => index_entry::restart_separator(entry),
            (_, [0, len, value, rest @ ..]) if (*len | *value) < 0x80 => {
                rest.get(..usize::from(*len))
            }
            (_, [0, len, _, end, rest @ ..]) if (*len | *end) < 0x80 => {
                rest.get(..usize::from(*len))
            }
            _ => None,
        };
        let order = short.map_or(Ordering::Equal, |restart| restart.cmp(key));
        if order != Ordering::Equal {
            return Ok(order == Ordering::Less);
        }
        let entry = self.entry(at, Before::default())?;
        let order = compare_words(&bytes[entry.key], entry.word, key, word);
        Ok(order == Ordering::Less)
    }

    /// In an index partition, the data block of the first entry at or after `(key, word)`.
    #[inline]
    pub(crate) fn address(&self, key: &[u8], word: u64) -> Result<Option<BlockAddress>, Broken> {
        match self.coding {
            Coding::Records => self.index_value(key, word)?.map(data_address).transpose(),
            Coding::Addresses => index_entry::find(self, key, word),
        }
    }

    /// In a block whose every entry is a restart (a top index, an index partition of version 1),
    /// the value of the first entry at or after `(key, word)`.
    #[inline]
    pub(crate) fn index_value(&self, key: &[u8], word: u64) -> Result<Option<&[u8]>, Broken> {
        let index = self.restarts_before(key, word)?;
        if index == self.restart_count() {
            return Ok(None);
        }
        let entry = self.record(self.restart(index))?;
        Ok(Some(&self.bytes[entry.value]))
    }

    /// The newest version of `key` whose word is at most `bound`.
    pub(crate) fn find(&self, key: &[u8], bound: u64) -> Result<Lookup, Broken> {
        let start = match self.bucket(key) {
            Some(EMPTY) => return Ok(Lookup::Absent),
            None | Some(COLLISION) => self.restarts_before(key, bound)?.saturating_sub(1),
            Some(restart) if usize::from(restart) < self.restart_count() => restart.into(),
            Some(_) => return Err(BUCKET),
        };
        if self.restart_count == 0 {
            return Ok(Lookup::Absent);
        }
        self.scan(self.restart(start), key, bound)
    }

    fn bucket(&self, key: &[u8]) -> Option<u8> {
        if self.bucket_count == 0 {
            return None;
        }
        let at = self.entries_end as usize + 4 * self.restart_count();
        let bucket = (key_hash(key) as u32 as u64 * u64::from(self.bucket_count)) >> 32;
        Some(self.bytes[at + bucket as usize])
    }

    /// Walks from the restart at `at` without rebuilding keys: it keeps only how long a prefix of
    /// `key` the entry before had (`matched`), the entry before being smaller than `key` or a newer
    /// version of it.
    fn scan(&self, mut at: usize, key: &[u8], bound: u64) -> Result<Lookup, Broken> {
        let mut matched = 0;
        let mut same_key = false;
        let mut len_before = 0;
        while at < self.entries_end() {
            let entry = self.record(at)?;
            if entry.shared > len_before {
                return Err(PREFIX);
            }
            len_before = entry.shared + entry.key.len();
            at = entry.value.end;
            // At a restart nothing is shared on paper, so the comparison begins anew.
            if entry.shared == 0 {
                matched = 0;
            }
            match entry.shared.cmp(&matched) {
                // Like the entry before it, this one is smaller where that differs from the key.
                Ordering::Greater => continue,
                // It leaves the key's prefix upwards.
                Ordering::Less => return Ok(Lookup::Absent),
                Ordering::Equal => {}
            }
            let (suffix, rest) = (&self.bytes[entry.key.clone()], &key[matched..]);
            let common = suffix.iter().zip(rest).take_while(|(a, b)| a == b).count();
            matched += common;
            same_key = common == suffix.len() && common == rest.len();
            if same_key {
                if entry.word <= bound {
                    return self.found(&entry);
                }
            } else if common == rest.len()
                || (common < suffix.len() && suffix[common] > rest[common])
            {
                return Ok(Lookup::Absent);
            }
        }
        Ok(if same_key { Lookup::NextBlock } else { Lookup::Absent })
    }

    fn found(&self, entry: &Entry) -> Result<Lookup, Broken> {
        let trailer = Trailer::decode(entry.word).ok_or("an entry's kind is unknown")?;
        Ok(Lookup::Found(trailer, self.bytes.slice(entry.value.clone())))
    }
}

#[cold]
fn long_head(head: &[u8]) -> Result<(usize, usize, usize, usize), Broken> {
    let mut decoder = thermocline_foundation::coding::Decoder::new(head);
    let mut next = || decoder.varint_u32().map(|len| len as usize).map_err(|_| CUT);
    let (shared, unshared, value_len) = (next()?, next()?, next()?);
    Ok((shared, unshared, value_len, head.len() - decoder.rest().len()))
}

/// A place in a block: one entry with its whole key, or none.
#[derive(Debug)]
pub(crate) struct Cursor {
    block: Block,
    /// Start of the current entry and of the one after it; equal to the end of the entries when
    /// there is none.
    at: usize,
    next: usize,
    valid: bool,
    key: Vec<u8>,
    word: u64,
    value: Range<usize>,
    /// The data block of the current entry, in [`Coding::Addresses`].
    address: BlockAddress,
}

impl Cursor {
    /// At no entry of `block`.
    pub fn new(block: Block) -> Self {
        let address = BlockAddress::default();
        Self { block, at: 0, next: 0, valid: false, key: Vec::new(), word: 0, value: 0..0, address }
    }

    /// Moves to another block, at no entry, keeping the memory of the key.
    pub fn set_block(&mut self, block: Block) {
        self.block = block;
        self.valid = false;
    }

    pub fn valid(&self) -> bool {
        self.valid
    }

    /// To no entry.
    pub fn set_invalid(&mut self) {
        self.valid = false;
    }

    /// No entry follows.
    pub fn at_end(&self) -> bool {
        self.next >= self.block.entries_end()
    }

    pub fn block(&self) -> &Block {
        &self.block
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    pub fn word(&self) -> u64 {
        self.word
    }

    pub fn value(&self) -> &[u8] {
        &self.block.bytes()[self.value.clone()]
    }

    /// In an index partition, the data block of the entry.
    pub fn address(&self) -> Result<BlockAddress, Broken> {
        match self.block.coding {
            Coding::Records => data_address(self.value()),
            Coding::Addresses => Ok(self.address),
        }
    }

    pub fn value_bytes(&self) -> Bytes {
        self.block.slice(self.value.clone())
    }

    /// The entry at `next`, if any.
    #[inline]
    pub fn step(&mut self) -> Result<(), Broken> {
        if self.next >= self.block.entries_end() {
            self.valid = false;
            return Ok(());
        }
        self.step_entry().map(drop)
    }

    /// The entry at `next`, which there is.
    #[inline]
    fn step_entry(&mut self) -> Result<Entry, Broken> {
        self.valid = false;
        let before = Before { key_len: self.key.len(), address: self.address };
        let entry = self.block.entry(self.next, before)?;
        if entry.shared > self.key.len() {
            return Err(PREFIX);
        }
        self.at = self.next;
        self.next = entry.value.end;
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&self.block.bytes()[entry.key.clone()]);
        self.word = entry.word;
        self.value = entry.value.clone();
        self.address = entry.address;
        self.valid = true;
        Ok(entry)
    }

    pub fn seek_first(&mut self) -> Result<(), Broken> {
        self.restart_at(0);
        self.step()
    }

    pub fn seek_last(&mut self) -> Result<(), Broken> {
        let end = self.block.entries_end();
        self.step_until(self.block.restart_count().saturating_sub(1), end)
    }

    /// To the first entry at or after `(key, word)`.
    pub fn seek(&mut self, key: &[u8], word: u64) -> Result<(), Broken> {
        let before = self.block.restarts_before(key, word)?;
        self.restart_at(before.saturating_sub(1));
        self.step()?;
        while self.valid && compare_words(&self.key, self.word, key, word) == Ordering::Less {
            self.step()?;
        }
        Ok(())
    }

    /// To the entry before the current one.
    pub fn step_back(&mut self) -> Result<(), Broken> {
        let (target, count) = (self.at, self.block.restart_count());
        if target == 0 {
            self.valid = false;
            return Ok(());
        }
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.restart(middle) < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.step_until(low.saturating_sub(1), target)
    }

    fn restart_at(&mut self, index: usize) {
        self.key.clear();
        self.address = BlockAddress::default();
        let some = index < self.block.restart_count();
        self.next = if some { self.block.restart(index) } else { self.block.entries_end() };
    }

    /// From a restart to the last entry before `target`.
    fn step_until(&mut self, restart: usize, target: usize) -> Result<(), Broken> {
        self.restart_at(restart);
        self.step()?;
        while self.valid && self.next < target {
            self.step()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BlockBuilder;

    #[test]
    fn a_restart_that_is_no_start_of_a_whole_key_is_found() {
        let mut builder = BlockBuilder::new(2, false);
        for key in [b"lake/1", b"lake/2", b"lake/3", b"lake/4"] {
            builder.add(key, 1 << 8 | 1, b"cold", 0);
        }
        let good = builder.finish().to_vec();
        let parse =
            |bytes: &[u8]| Block::parse(Bytes::copy_from_slice(bytes), 0, Coding::Records).unwrap();
        let block = parse(&good);
        assert_eq!((block.restart_count(), block.check_restarts(false)), (2, Ok(())));
        assert!(block.check_restarts(true).is_err(), "not every entry is one");
        let second = block.record(0).unwrap().value.end;
        for restart in [second, second + 1] {
            let mut bytes = good.clone();
            let at = bytes.len() - COUNT_BYTES - 4;
            bytes[at..at + 4].copy_from_slice(&(restart as u32).to_le_bytes());
            assert!(parse(&bytes).check_restarts(false).is_err(), "a restart at {restart}");
        }
    }
}
