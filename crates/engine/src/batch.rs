//! A batch of writes, applied all together or not at all.
//!
//! The encoding is the payload of a log record as it is; the memtable copies keys and values from
//! it. See `docs/formats/batch.md`.
//!
//! ```text
//!   version u8 = 1 | record*
//!   record: kind u8 | key length varint | key | value length varint | value
//! ```
//! A delete has no value length and no value. The record at index i has the batch's first sequence
//! + i. A batch of no records with a sequence (an ingest reserves one) is the version byte alone.

use crate::error::{Error, Result};
use crate::limits::BATCH_BYTES_MAX;
use crate::limits::KEY_BYTES_MAX;
use crate::limits::VALUE_BYTES_MAX;
use bytes::Bytes;
use thermocline_foundation::coding::{Decoder, put_bytes, varint_len};
use thermocline_table::RecordKind;

/// Version of the encoding.
const VERSION: u8 = 1;

/// Writes to be applied together, in order; a later one to the same key wins.
#[derive(Clone, Debug)]
pub struct WriteBatch {
    encoded: Vec<u8>,
    count: u32,
    /// The first write that was refused; [`crate::Db::write`] returns it, so that `put` can be
    /// chained.
    refused: Option<Error>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self { encoded: vec![VERSION], count: 0, refused: None }
    }

    pub(crate) fn with_room(bytes: usize) -> Self {
        let mut encoded = Vec::with_capacity(bytes + 16);
        encoded.push(VERSION);
        Self { encoded, count: 0, refused: None }
    }

    /// A batch of one write, with memory for no more.
    pub(crate) fn of_put(key: &[u8], value: &[u8]) -> Result<Self> {
        check_sizes(key, value.len())?;
        let mut batch = Self::with_room(key.len() + value.len());
        batch.put(key, value);
        Ok(batch)
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        if self.accepts(key, value.len()) {
            self.encoded.push(RecordKind::Put as u8);
            put_bytes(&mut self.encoded, key);
            put_bytes(&mut self.encoded, value);
            self.count += 1;
        }
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        if self.accepts(key, 0) {
            self.encoded.push(RecordKind::Delete as u8);
            put_bytes(&mut self.encoded, key);
            self.count += 1;
        }
        self
    }

    fn accepts(&mut self, key: &[u8], value_len: usize) -> bool {
        if self.refused.is_none() {
            self.refused = check_sizes(key, value_len).err().or_else(|| {
                let lengths = 1 + varint_len(key.len() as u64) + varint_len(value_len as u64);
                let total = self.encoded.len() + lengths + key.len() + value_len;
                (total > BATCH_BYTES_MAX).then(|| {
                    Error::invalid(format!(
                        "a batch of {total} bytes is over the limit of {BATCH_BYTES_MAX}; split it"
                    ))
                })
            });
        }
        self.refused.is_none()
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// There is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the encoding.
    pub fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Why the batch as a whole is not written: the first write that went beyond a limit.
    pub fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.encoded.truncate(1);
        self.count = 0;
        self.refused = None;
    }

    /// Takes what is in the batch, as [`WriteBatch::freeze`] does, and leaves it empty; one that
    /// was refused stays as it is.
    pub(crate) fn take(&mut self) -> Result<(Bytes, u32)> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => std::mem::take(self).freeze(),
        }
    }

    /// The batch that [`WriteBatch::take`] gave `encoded` and `count` of.
    pub(crate) fn put_back(encoded: Bytes, count: u32) -> Self {
        Self { encoded: encoded.into(), count, refused: None }
    }

    pub(crate) fn freeze(self) -> Result<(Bytes, u32)> {
        match self.refused {
            Some(error) => Err(error),
            None => {
                // A memtable may keep this memory, and counts its length.
                let mut encoded = self.encoded;
                if encoded.capacity() > encoded.len() + encoded.len() / 64 + 64 {
                    encoded.shrink_to_fit();
                }
                Ok((Bytes::from(encoded), self.count))
            }
        }
    }
}

/// Refuses keys and values over their limits, naming the limit.
pub(crate) fn check_sizes(key: &[u8], value_len: usize) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a key of {} bytes is over the limit of {KEY_BYTES_MAX} (64 KiB)",
            key.len()
        )));
    }
    if value_len > VALUE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "a value of {value_len} bytes is over the limit of {VALUE_BYTES_MAX} (256 MiB)"
        )));
    }
    Ok(())
}

/// The first half of an encoded batch's records, for a planted bug.
pub(crate) fn first_half(encoded: &[u8]) -> &[u8] {
    let ends = BatchReader::new(encoded).into_iter().flatten().map_while(Result::ok);
    let ends: Vec<_> = ends.map(|it| (it.value_at + it.value_len) as usize).collect();
    if ends.len() < 2 { encoded } else { &encoded[..ends[ends.len() / 2 - 1]] }
}

/// A record of an encoded batch: where key and value lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchRecord {
    pub kind: RecordKind,
    pub key_at: u32,
    pub key_len: u32,
    pub value_at: u32,
    pub value_len: u32,
}

/// Walks the records of an encoded batch.
#[derive(Debug)]
pub(crate) struct BatchReader<'a> {
    total: usize,
    decoder: Decoder<'a>,
}

impl<'a> BatchReader<'a> {
    pub fn new(encoded: &'a [u8]) -> Result<Self> {
        let mut decoder = Decoder::new(encoded);
        match decoder.u8() {
            Ok(VERSION) if encoded.len() <= u32::MAX as usize => {
                Ok(Self { total: encoded.len(), decoder })
            }
            Ok(version) if version > VERSION => Err(Error::new(
                crate::ErrorKind::NewerFormat,
                format!("a batch of version {version} needs a newer release; this one reads 1"),
            )),
            _ => Err(Error::corrupt("a batch does not begin with its version")),
        }
    }

    fn offset(&self) -> u32 {
        (self.total - self.decoder.rest().len()) as u32
    }

    fn record(&mut self) -> Result<BatchRecord, thermocline_foundation::coding::DecodeError> {
        let kind = match self.decoder.u8()? {
            0 => RecordKind::Delete,
            1 => RecordKind::Put,
            _ => return Err(thermocline_foundation::coding::DecodeError::Overflow),
        };
        let key_len = self.decoder.bytes()?.len() as u32;
        let key_at = self.offset() - key_len;
        let value_len =
            if kind == RecordKind::Put { self.decoder.bytes()?.len() as u32 } else { 0 };
        Ok(BatchRecord { kind, key_at, key_len, value_at: self.offset() - value_len, value_len })
    }
}

impl Iterator for BatchReader<'_> {
    type Item = Result<BatchRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.decoder.is_empty() {
            return None;
        }
        let at = self.offset();
        Some(self.record().map_err(|error| {
            Error::corrupt(format!("a batch is damaged at its byte {at}: {error}"))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::golden;

    #[test]
    fn batches_are_as_documented() {
        let mut batch = WriteBatch::new();
        batch.put(b"warm", b"water").delete("cold").put("", "").put(vec![0xff; 200], vec![7; 300]);
        let (encoded, count) = batch.freeze().unwrap();
        let golden = golden("batch-records-v1.bin", &encoded);
        let records: Vec<_> = BatchReader::new(&golden).unwrap().map(Result::unwrap).collect();
        assert_eq!((records.len(), count), (4, 4));
        let last = records[3];
        let key = &golden[last.key_at as usize..][..last.key_len as usize];
        let value = &golden[last.value_at as usize..][..last.value_len as usize];
        assert_eq!((key, value), (&[0xff; 200][..], &[7; 300][..]));
        assert_eq!(records[1].kind, RecordKind::Delete);
        let newer = [&[VERSION + 1], &golden[1..]].concat();
        assert_eq!(BatchReader::new(&newer).unwrap_err().kind(), crate::ErrorKind::NewerFormat);
    }

    #[test]
    fn records_come_back_in_order() {
        let mut batch = WriteBatch::new();
        batch.put(b"warm", b"water").delete("cold").put("", "");
        let (encoded, count) = batch.freeze().unwrap();
        assert_eq!(count, 3);
        let text = |at: u32, len: u32| &encoded[at as usize..(at + len) as usize];
        let records: Vec<_> = BatchReader::new(&encoded)
            .unwrap()
            .map(|record| record.unwrap())
            .map(|r| (r.kind, text(r.key_at, r.key_len), text(r.value_at, r.value_len)))
            .collect();
        let expected: [(RecordKind, &[u8], &[u8]); 3] = [
            (RecordKind::Put, b"warm", b"water"),
            (RecordKind::Delete, b"cold", b""),
            (RecordKind::Put, b"", b""),
        ];
        assert_eq!(records, expected);
    }

    #[test]
    fn cut_batches_are_errors_and_not_panics() {
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value").delete(b"key");
        let (encoded, _) = batch.freeze().unwrap();
        for len in 0..encoded.len() {
            let Ok(reader) = BatchReader::new(&encoded[..len]) else { continue };
            let records = reader.take_while(Result::is_ok).count();
            assert!(records <= 1, "{len} bytes gave {records} records");
        }
    }

    #[test]
    fn an_oversized_write_refuses_the_whole_batch_and_names_the_limit() {
        let mut batch = WriteBatch::new();
        batch.put(vec![0; KEY_BYTES_MAX + 1], b"value").put(b"fine", b"value");
        let error = batch.freeze().unwrap_err();
        assert!(error.to_string().contains("65536"), "{error}");
    }
}
