//! The bytes of a cached record, in one allocation or two.
//!
//! ```text
//!   first piece: key | value ...        rest, if any: ... value
//! ```
//! Allocators have four sizes to each power of two. A record just above one of them would pay up to
//! a quarter more; it is cut at that size, and only the rest, which is small, is rounded up.

use crate::key_hash::{allocated_bytes, allocated_bytes_below};
use bytes::Bytes;
use thermocline_foundation::Sequence;

/// What the table of records takes for a second piece: where it is, and whose.
pub(crate) const REST_OVERHEAD_BYTES: usize = size_of::<Box<[u8]>>() + size_of::<u32>();

/// A record on its way into the cache or out of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub first: Box<[u8]>,
    /// Empty where one piece is enough.
    pub rest: Box<[u8]>,
    pub sequence: Sequence,
    pub key_bytes: u32,
}

/// How much of a record of so many bytes the first piece takes.
fn first_bytes(bytes: usize) -> usize {
    let first = allocated_bytes_below(bytes);
    let both = first + allocated_bytes(bytes - first) + REST_OVERHEAD_BYTES;
    if both < allocated_bytes(bytes) { first } else { bytes }
}

impl Record {
    /// A copy.
    pub fn new(key: &[u8], sequence: Sequence, value: &[u8]) -> Self {
        let bytes = key.len() + value.len();
        let first_bytes = first_bytes(bytes);
        let mut first = Vec::with_capacity(first_bytes);
        let mut rest = Vec::with_capacity(bytes - first_bytes);
        for part in [key, value] {
            let (here, there) = part.split_at(part.len().min(first_bytes - first.len()));
            first.extend_from_slice(here);
            rest.extend_from_slice(there);
        }
        let (first, rest) = (first.into_boxed_slice(), rest.into_boxed_slice());
        Self { first, rest, sequence, key_bytes: key.len() as u32 }
    }

    /// Memory of both pieces.
    pub fn memory_bytes(&self) -> usize {
        allocated_bytes(self.first.len()) + allocated_bytes(self.rest.len())
    }

    /// Key, sequence and value, which share their memory.
    pub fn into_parts(self) -> (Bytes, Sequence, Bytes) {
        let mut value = if self.rest.is_empty() {
            Bytes::from(self.first)
        } else {
            Bytes::from([self.first, self.rest].concat())
        };
        let key = value.split_to(self.key_bytes as usize);
        (key, self.sequence, value)
    }
}

/// Records that were pushed out.
#[derive(Debug, Default)]
pub struct Evicted {
    /// Nearly always there is one at most: no allocation for it.
    first: Option<Record>,
    more: Vec<Record>,
}

impl Evicted {
    pub(crate) fn add(&mut self, record: Record) {
        match &self.first {
            None => self.first = Some(record),
            Some(_) => self.more.push(record),
        }
    }

    /// Each record's key, sequence and value.
    pub fn into_records(self) -> impl Iterator<Item = (Bytes, Sequence, Bytes)> {
        self.first.into_iter().chain(self.more).map(Record::into_parts)
    }
}

/// Both pieces of a record, to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a> {
    pub first: &'a [u8],
    pub rest: &'a [u8],
    pub key_bytes: usize,
}

impl Pieces<'_> {
    /// Whether `key` is the record's.
    #[inline]
    pub fn has_key(self, key: &[u8]) -> bool {
        if self.key_bytes != key.len() {
            return false;
        }
        let (here, there) = key.split_at(key.len().min(self.first.len()));
        self.first.starts_with(here) && self.rest.starts_with(there)
    }

    /// A copy of the value, of exactly its size.
    #[inline]
    pub fn value(self) -> Bytes {
        let in_first = self.key_bytes.min(self.first.len());
        let (first, rest) = (&self.first[in_first..], &self.rest[self.key_bytes - in_first..]);
        let mut value = Vec::with_capacity(first.len() + rest.len());
        value.extend_from_slice(first);
        value.extend_from_slice(rest);
        Bytes::from(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_every_size_come_back_whole_and_waste_little() {
        let bytes: Vec<u8> = (0..6000u32).map(|n| (n * 7 % 251) as u8).collect();
        for len in 0..6000 {
            for key_bytes in [0, 24.min(len), len] {
                let (key, value) = bytes[..len].split_at(key_bytes);
                let record = Record::new(key, Sequence(9), value);
                let (first, rest) = (&record.first[..], &record.rest[..]);
                let pieces = Pieces { first, rest, key_bytes };
                assert!(pieces.has_key(key) && pieces.value() == value);
                let other: Vec<u8> = key.iter().map(|byte| byte ^ 1).collect();
                assert!(key.is_empty() || !pieces.has_key(&other) && !pieces.has_key(&key[1..]));
                let rest = if record.rest.is_empty() { 0 } else { REST_OVERHEAD_BYTES };
                let wasted = record.memory_bytes() + rest - len;
                assert!(wasted <= 36 + len / 32, "{wasted} of {len}");
                let (found, sequence, found_value) = record.into_parts();
                assert_eq!((&found[..], sequence, &found_value[..]), (key, Sequence(9), value));
            }
        }
    }
}
