//! What a transaction will write, and the places that it can go back to.
//!
//! A log of writes in their order, and for each key the places of its writes in the log: going back
//! cuts the log, and what a key had before is its newest write again.

use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::table_set::key_range::KeyRange;
use bytes::Bytes;
use std::collections::BTreeMap;
use thermocline_foundation::{ByteSize, Planted, planted};

/// Memory of a write besides its bytes.
const WRITE_OVERHEAD_BYTES: u64 = 96;

/// A place in a transaction to go back to: [`Transaction::rollback_to`](crate::Transaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// The transaction that it is of.
    pub(crate) transaction: u64,
    number: u64,
}

/// A transaction may hold so many `bytes`; or else `what` is not part of it.
pub(crate) fn require_room(bytes: u64, bytes_max: ByteSize, what: &str) -> Result<()> {
    if bytes <= bytes_max.0 {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the transaction would hold {bytes} bytes, over its limit of {bytes_max}; this {what} is \
         not part of it: commit what it has, roll back, or raise `bytes_max` or the setting \
         transaction_bytes_max"
    )))
}

/// What a key is set to; none: it is removed.
pub(crate) type Written = Option<Bytes>;

/// See the module's header.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    /// Oldest first.
    log: Vec<(Bytes, Written)>,
    /// Places of a key's writes in the log, ascending.
    of_key: BTreeMap<Bytes, Vec<usize>>,
    bytes: u64,
    /// Numbers of the savepoints that can be gone back to, and the length of the log at each.
    savepoints: Vec<(u64, usize)>,
    last_savepoint: u64,
}

impl Writes {
    /// What `key` was last set to, if it was written.
    pub fn get(&self, key: &[u8]) -> Option<&Written> {
        let last = *self.of_key.get(key)?.last()?;
        Some(&self.log[last].1)
    }

    /// Adds a write; all of them may take `bytes_max`, beside what was read.
    pub fn add(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
        read_bytes: u64,
        bytes_max: ByteSize,
    ) -> Result<()> {
        let bytes = self.bytes + write_bytes(key, value);
        require_room(bytes + read_bytes, bytes_max, "write")?;
        self.bytes = bytes;
        let key = Bytes::copy_from_slice(key);
        self.of_key.entry(key.clone()).or_default().push(self.log.len());
        self.log.push((key, value.map(Bytes::copy_from_slice)));
        Ok(())
    }

    /// A place to go back to, of the transaction of that number.
    pub fn savepoint(&mut self, transaction: u64) -> Savepoint {
        self.last_savepoint += 1;
        self.savepoints.push((self.last_savepoint, self.log.len()));
        Savepoint { transaction, number: self.last_savepoint }
    }

    /// Takes back what was written after `savepoint`, which can be gone back to again. An error
    /// where it was taken back itself.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let place = self.savepoints.iter().position(|(number, _)| *number == savepoint.number);
        let Some(place) = place else {
            return Err(Error::invalid(
                "the savepoint was taken back with an earlier one; go back to one that is left",
            ));
        };
        let len = self.savepoints[place].1;
        self.savepoints.truncate(place + 1);
        if planted(Planted::SavepointKeepsWrites) {
            return Ok(());
        }
        for (key, value) in self.log.drain(len..).rev() {
            self.bytes -= write_bytes(&key, value.as_deref());
            if let Some(places) = self.of_key.get_mut(&key) {
                places.pop();
                if places.is_empty() {
                    self.of_key.remove(&key);
                }
            }
        }
        Ok(())
    }

    /// There is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Memory that they take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The keys that are written, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.of_key.keys()
    }

    /// What was written last to each key of `range`, ascending.
    pub fn in_range(&self, range: &KeyRange) -> Vec<(Bytes, Written)> {
        if range.is_empty() {
            return Vec::new();
        }
        let found = self.of_key.range::<[u8], _>(range.bounds());
        found.filter_map(|(_, places)| Some(self.log[*places.last()?].clone())).collect()
    }

    /// What was written last to each key, as a batch.
    pub fn batch(&self) -> WriteBatch {
        let mut batch = WriteBatch::with_room(self.bytes as usize);
        for places in self.of_key.values() {
            if let Some((key, value)) = places.last().map(|last| &self.log[*last]) {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
            }
        }
        batch
    }
}

fn write_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    key.len() as u64 + value.map_or(0, <[u8]>::len) as u64 + WRITE_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a=1 b=2 -c`: what is written, in the order of the keys.
    fn text(writes: &Writes) -> String {
        let found = writes.in_range(&KeyRange::default());
        let texts = found.iter().map(|(key, value)| match value {
            Some(value) => format!("{}={}", key.escape_ascii(), value.escape_ascii()),
            None => format!("-{}", key.escape_ascii()),
        });
        texts.collect::<Vec<_>>().join(" ")
    }

    fn add(writes: &mut Writes, key: &str, value: Option<&str>) {
        let value = value.map(str::as_bytes);
        writes.add(key.as_bytes(), value, 0, ByteSize::mib(1)).unwrap();
    }

    #[test]
    fn going_back_brings_back_what_each_key_had() {
        let mut writes = Writes::default();
        add(&mut writes, "a", Some("1"));
        add(&mut writes, "b", Some("1"));
        let (first, bytes) = (writes.savepoint(7), writes.bytes);
        add(&mut writes, "a", Some("2"));
        add(&mut writes, "c", Some("1"));
        let second = writes.savepoint(7);
        add(&mut writes, "b", None);
        add(&mut writes, "a", Some("3"));
        assert_eq!(text(&writes), "a=3 -b c=1");
        writes.rollback_to(second).unwrap();
        assert_eq!(text(&writes), "a=2 b=1 c=1");
        writes.rollback_to(first).unwrap();
        assert_eq!((text(&writes).as_str(), writes.bytes), ("a=1 b=1", bytes));
        add(&mut writes, "b", None);
        assert!(writes.rollback_to(second).is_err(), "it went with the first");
        assert_eq!(text(&writes), "a=1 -b");
        writes.rollback_to(first).unwrap();
        assert_eq!(text(&writes), "a=1 b=1", "the same place, again");
        let batch = writes.batch();
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn a_write_over_the_limit_is_refused_and_leaves_what_was_there() {
        let mut writes = Writes::default();
        let limit = ByteSize(250);
        writes.add(b"a", Some(b"1"), 0, limit).unwrap();
        let error = writes.add(b"b", Some(&[0; 100]), 0, limit).unwrap_err();
        assert!(error.to_string().contains("250 B"), "{error}");
        assert_eq!(text(&writes), "a=1");
        writes.add(b"b", Some(b"2"), 0, limit).unwrap();
    }
}
