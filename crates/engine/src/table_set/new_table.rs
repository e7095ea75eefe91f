//! A table that is being written, in the account of its tier.
//!
//! It counts with what is expected of it, and asks its tier before it takes more. Once it is
//! finished it counts with what it has.

use super::handed::{Handed, Promise};
use super::table::TableMeta;
use crate::error::Result;
use std::sync::Arc;
use thermocline_device::{FileContext, TieredFiles};
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_table::{BlockCache, ReadAhead, Samples, TableOptions, TableReader, TableWriter};

/// Bytes by which a table grows beyond what was expected, and what one takes beside its only entry
/// at most.
const GROWTH_BYTES: u64 = 64 << 10;
const ALONE_BYTES: u64 = 48 << 10;
/// Bytes of a read of a table that is copied.
const COPY_WINDOW_BYTES: u32 = 256 << 10;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct NewTable {
    files: Arc<TieredFiles>,
    number: FileNumber,
    announced_bytes: u64,
    writer: TableWriter,
    /// Memory for its places.
    promise: Option<Promise>,
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
        let writer = TableWriter::new(file, options);
        Ok(Self { files, number, announced_bytes, writer, promise: None })
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

    /// Hands over where its records lie, in memory that was promised for it.
    pub fn handing_over(mut self, promise: Promise) -> Self {
        self.writer = self.writer.placing(promise.bytes());
        self.promise = Some(promise);
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
        if self.writer.bytes_max_with(key, value) > self.announced_bytes {
            let bytes = self.bytes_with(key, value);
            self.files.promise_bytes(self.number, bytes)?;
            self.announced_bytes = bytes;
        }
        Ok(())
    }

    /// Bytes that it asks for where the entry is more than was announced.
    pub fn bytes_with(&self, key: &[u8], value: &[u8]) -> u64 {
        self.writer.bytes_max_with(key, value) + GROWTH_BYTES
    }

    /// Adds all that another has, which goes on here: it is written up to its end, where its tier
    /// keeps room for that, and is to be deleted.
    pub fn take_over(&mut self, other: Self) -> Result<()> {
        other.writer.finish_to_be_read_once()?;
        let file = self.files.open_file(other.number)?;
        let table = Arc::new(TableReader::open(file, Arc::new(BlockCache::new(0)))?);
        let mut entries = table.iter(ReadAhead::Stream { window_bytes: COPY_WINDOW_BYTES });
        entries.seek_to_first()?;
        while entries.valid() {
            let is_last = entries.key() == table.properties().largest_key;
            if !(is_last && planted(Planted::LastKeyNotCopied)) {
                let (key, value) = (entries.key(), entries.value_slice());
                self.ask_for_room(key, value)?;
                self.writer.add(key, entries.trailer(), value)?;
            }
            entries.next()?;
        }
        Ok(())
    }

    /// Makes it durable. Where its records lie, if that was asked for and there was memory for it.
    pub fn finish(self) -> Result<(TableMeta, Option<Handed>)> {
        let mut summary = self.writer.finish()?;
        self.files.announce_bytes(self.number, summary.file_bytes);
        let handed = summary.places.take().zip(self.promise);
        let handed = handed.map(|(places, promise)| promise.keep(places));
        Ok((TableMeta::of(self.number, &summary), handed))
    }
}
