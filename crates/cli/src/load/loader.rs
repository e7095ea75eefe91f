//! Collects records into batches of about a mebibyte and writes them.
//!
//! Batches are written `Buffered` (they survive this process) and made durable together at the end.

use super::Loaded;
use crate::failure::Result;
use crate::progress::Bar;
use thermocline::{Db, Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteBatch};

/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 1 << 20;

/// Takes records from a format.
pub struct Loader {
    db: Db,
    batch: WriteBatch,
    /// Keys and values in `batch`.
    pending_bytes: u64,
    bar: Bar,
    /// What was acknowledged.
    loaded: Loaded,
}

impl Loader {
    /// A loader into `db` that tells `bar` how far the input is read.
    pub fn new(db: Db, bar: Bar) -> Self {
        let loaded = Loaded { records: 0, bytes: 0, skipped: 0 };
        Self { db, batch: WriteBatch::new(), pending_bytes: 0, bar, loaded }
    }

    /// Adds a record whose lengths [`refusal`] has nothing against.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(key, value);
        self.pending_bytes += (key.len() + value.len()) as u64;
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
        self.db.write_with(std::mem::take(&mut self.batch), Durability::Buffered)?;
        self.loaded.records += records;
        self.loaded.bytes += std::mem::take(&mut self.pending_bytes);
        Ok(())
    }

    /// Writes what is left and makes everything durable. Gives the counts also where that fails.
    pub fn finish(mut self) -> (Loaded, Result<()>) {
        let finished = self.write().and_then(|()| Ok(self.db.sync()?));
        (self.loaded, finished)
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
