//! Collects records into batches of about a mebibyte and writes them.
//!
//! Batches are written `Buffered` (they survive this process) and made durable together at the end.

use super::Loaded;
use crate::failure::{Failure, Result};
use crate::progress::Bar;
use thermocline::{Db, Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteBatch};

/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 1 << 20;

/// Takes records from a format.
pub struct Loader {
    db: Db,
    batch: WriteBatch,
    bar: Bar,
    loaded: Loaded,
}

impl Loader {
    /// A loader into `db`; `total_bytes` of input are to come, where that is known.
    pub fn new(db: Db, total_bytes: Option<u64>) -> Self {
        let loaded = Loaded { records: 0, bytes: 0, skipped: 0 };
        Self { db, batch: WriteBatch::new(), bar: Bar::new("loading", total_bytes), loaded }
    }

    /// Adds a record. The text of a refusal says what is too large, not where it came from.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(refusal) = refusal(key.len(), value.len() as u64) {
            return Err(Failure::new(refusal));
        }
        self.batch.put(key, value);
        self.loaded.records += 1;
        self.loaded.bytes += (key.len() + value.len()) as u64;
        if self.batch.bytes() >= BATCH_BYTES { self.write() } else { Ok(()) }
    }

    /// `bytes` more of the input have been read.
    pub fn advance(&self, bytes: u64) {
        self.bar.advance(bytes);
    }

    /// A file was left out.
    pub fn skip(&mut self) {
        self.loaded.skipped += 1;
    }

    fn write(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let records = self.batch.len() as u64;
        let batch = std::mem::take(&mut self.batch);
        self.db.write_with(batch, Durability::Buffered).map_err(|error| {
            let before = self.loaded.records - records;
            Failure::from(error).and(format_args!("{before} records were loaded before it"))
        })
    }

    /// Writes what is left and makes everything durable.
    pub fn finish(mut self) -> Result<Loaded> {
        self.write()?;
        self.db.sync()?;
        Ok(self.loaded)
    }
}

/// Why a record of these lengths cannot be stored, if it cannot.
pub fn refusal(key_len: usize, value_len: u64) -> Option<String> {
    if key_len > KEY_BYTES_MAX {
        return Some(format!(
            "a key of {key_len} bytes is over the limit of {KEY_BYTES_MAX} (64 KiB)"
        ));
    }
    (value_len > VALUE_BYTES_MAX as u64).then(|| {
        format!("a value of {value_len} bytes is over the limit of {VALUE_BYTES_MAX} (256 MiB)")
    })
}
