//! A table that is being written, in the account of its tier.
//!
//! It counts with what is expected of it, and asks its tier before it takes more. Once it is
//! finished it counts with what it has.

use super::table::TableMeta;
use crate::error::Result;
use std::sync::Arc;
use thermocline_device::{FileContext, TieredFiles};
use thermocline_foundation::FileNumber;
use thermocline_table::{BlockCache, Samples, TableOptions, TableWriter};

/// Bytes by which a table grows beyond what was expected, and what one takes beside its only entry
/// at most.
const GROWTH_BYTES: u64 = 64 << 10;
const ALONE_BYTES: u64 = 48 << 10;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct NewTable {
    files: Arc<TieredFiles>,
    number: FileNumber,
    announced_bytes: u64,
    writer: TableWriter,
}

impl NewTable {
    /// A table of `expected_bytes`, or more where `entry`, its first key and value, is more.
    pub fn create(
        files: &Arc<TieredFiles>,
        context: FileContext,
        expected_bytes: u64,
        entry: (&[u8], &[u8]),
        options: TableOptions,
    ) -> Result<Self> {
        let entry_bytes = (entry.0.len() + entry.1.len()) as u64 + ALONE_BYTES;
        let announced_bytes = expected_bytes.max(entry_bytes);
        let file = files.create_file(context, announced_bytes)?;
        let (files, number) = (Arc::clone(files), file.number());
        Ok(Self { files, number, announced_bytes, writer: TableWriter::new(file, options) })
    }

    /// See [`TableWriter::kept_in`].
    pub fn kept_in(mut self, cache: Arc<BlockCache>) -> Self {
        self.writer = self.writer.kept_in(cache);
        self
    }

    /// See [`TableWriter::following`]; it will have about `bytes`.
    pub fn following(mut self, samples: Option<Samples>, bytes: u64) -> Self {
        self.writer = self.writer.expecting(bytes).following(samples);
        self
    }

    /// Its file.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// What writes it.
    pub fn writer(&mut self) -> &mut TableWriter {
        &mut self.writer
    }

    /// See [`TableWriter::estimated_bytes`].
    pub fn estimated_bytes(&self) -> u64 {
        self.writer.estimated_bytes()
    }

    /// Its tier has room for the entry.
    ///
    /// Errors: `OutOfSpace` where it has none; the table is as it was.
    pub fn ask_for_room(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bytes = self.writer.bytes_max_with(key, value);
        if bytes > self.announced_bytes {
            self.files.promise_bytes(self.number, bytes + GROWTH_BYTES)?;
            self.announced_bytes = bytes + GROWTH_BYTES;
        }
        Ok(())
    }

    /// Makes it durable.
    pub fn finish(self) -> Result<TableMeta> {
        let summary = self.writer.finish()?;
        self.files.announce_bytes(self.number, summary.file_bytes);
        Ok(TableMeta::of(self.number, &summary))
    }
}
