//! Keys and values of the benchmarks.
//!
//! ```text
//!   key    = number u64, big-endian | '0' up to the key's size          as db_bench makes them
//!   value  = number u64 | version u64, little-endian | a piece of the pool that follows from both
//! ```
//! A value says which key it belongs to and which write made it, and the rest follows from these
//! two, so any value can be checked alone: a wrong key, a mixture of two writes or a flipped bit
//! shows. The table of versions says which write must be seen. A thread writes only keys whose
//! number is its own modulo the number of threads, so versions of a key rise in one thread.

use std::sync::atomic::{AtomicU32, Ordering};
use thermocline_bench::values::pool;
use thermocline_foundation::random::mix;

/// Bytes of the pool besides the longest piece.
const POOL_BYTES: usize = 1 << 20;
/// Bytes of number and version.
const HEAD_BYTES: usize = 16;

/// See the module's header.
#[derive(Debug)]
pub struct Records {
    key_size: usize,
    value_size: usize,
    pool: Vec<u8>,
    /// The last version written of each key; 0: never written.
    versions: Vec<AtomicU32>,
    /// What was in the store before is not known.
    known: bool,
}

impl Records {
    /// Records of `num` keys. Values shrink to about `ratio` of their size when compressed.
    pub fn new(num: u64, key_size: u16, value_size: u32, ratio: f64, known: bool) -> Self {
        Self {
            key_size: key_size.into(),
            value_size: value_size as usize,
            pool: pool(POOL_BYTES + value_size as usize, ratio),
            versions: (0..num).map(|_| AtomicU32::new(0)).collect(),
            known,
        }
    }

    /// Keys in all.
    pub fn num(&self) -> u64 {
        self.versions.len() as u64
    }

    /// Makes `key` the key of `number`.
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&number.to_be_bytes());
        key.resize(self.key_size, b'0');
    }

    /// The number of a key; none of another form.
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        let (head, rest) = key.split_first_chunk()?;
        let plain = key.len() == self.key_size && rest.iter().all(|byte| *byte == b'0');
        plain.then(|| u64::from_be_bytes(*head))
    }

    fn piece(&self, number: u64, version: u32) -> &[u8] {
        let at = mix(number ^ u64::from(version) << 40) as usize % POOL_BYTES;
        &self.pool[at..at + self.value_size - HEAD_BYTES]
    }

    /// Makes `value` the next value of `number` and gives its version, to be passed to
    /// [`Records::written`] once it is acknowledged.
    pub fn next_value(&self, number: u64, value: &mut Vec<u8>) -> u32 {
        let version = self.version(number) + 1;
        value.clear();
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&u64::from(version).to_le_bytes());
        value.extend_from_slice(self.piece(number, version));
        version
    }

    /// The write of `version` was acknowledged.
    pub fn written(&self, number: u64, version: u32) {
        self.versions[number as usize].store(version, Ordering::Release);
    }

    /// The version that a read that begins now must see, or a later one.
    pub fn version(&self, number: u64) -> u32 {
        self.versions[number as usize].load(Ordering::Acquire)
    }

    /// Says what is wrong with what was read of `number`, whose version was `before` when the read
    /// began. A write may be under way, so one version beyond the newest acknowledged is right.
    pub fn check(&self, number: u64, before: u32, value: Option<&[u8]>) -> Result<(), String> {
        let Some(value) = value else {
            return match before {
                0 => Ok(()),
                version => Err(format!("key {number} is missing; it has version {version}")),
            };
        };
        let head = value.split_at_checked(HEAD_BYTES).filter(|_| value.len() == self.value_size);
        let Some((head, rest)) = head else {
            return Err(format!("the value of key {number} has {} bytes", value.len()));
        };
        let word = |at: usize| head[at..at + 8].first_chunk().map_or(0, |w| u64::from_le_bytes(*w));
        let (found, version) = (word(0), u32::try_from(word(8)).unwrap_or(0));
        if found != number || version == 0 || rest != self.piece(number, version) {
            return Err(format!("the value of key {number} is wrong, it says key {found}"));
        }
        let newest = self.version(number) + 1;
        if self.known && !(before.max(1)..=newest).contains(&version) {
            let span = format!("{before} to {newest}");
            return Err(format!("the value of key {number} has version {version}, not {span}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_stale_and_missing_values_are_told_from_right_ones() {
        let records = Records::new(10, 24, 100, 0.5, true);
        let (mut value, mut key) = (Vec::new(), Vec::new());
        records.key(7, &mut key);
        assert_eq!((key.len(), records.number(&key)), (24, Some(7)));
        assert!(records.check(7, 0, None).is_ok());
        let version = records.next_value(7, &mut value);
        records.written(7, version);
        assert!(records.check(7, 1, Some(&value)).is_ok());
        assert!(records.check(7, 1, None).unwrap_err().contains("missing"));
        assert!(records.check(6, 0, Some(&value)).unwrap_err().contains("says key 7"));
        for at in 0..100 {
            let mut flipped = value.clone();
            flipped[at] ^= 1;
            assert!(records.check(7, 1, Some(&flipped)).is_err(), "byte {at}");
        }
        records.written(7, 3);
        assert!(records.check(7, 3, Some(&value)).unwrap_err().contains("not 3 to 4"));
    }
}
