//! A live table: what the manifest says of it, its reader once a caller needed it, and its end.
//!
//! A table lives as long as any version, iterator or compaction holds it. When a manifest edit has
//! removed it for good it is *obsolete*; dropping the last reference to a obsolete table hands its
//! number to the [`ObsoleteFiles`], and a background job deletes the file. So no reader ever loses
//! a file under its feet. A copy of its index on the fast tier ends with it.

use crate::error::{Error, Result};
use crate::jobs::Jobs;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::TieredFiles;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, OnceLock};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_table::{BlockCache, Probe, TableReader, TableSummary, Trailer};

/// What the manifest knows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub number: FileNumber,
    pub bytes: u64,
    pub entries: u64,
    pub deletes: u64,
    /// Entries that are older than another one of their key here: a snapshot needed them.
    pub older_versions: u64,
    pub smallest_key: Vec<u8>,
    pub largest_key: Vec<u8>,
    pub smallest_sequence: Sequence,
    pub largest_sequence: Sequence,
    /// An ingested table stores sequence 0 everywhere; all its entries have this one.
    pub ingested_at: Option<Sequence>,
}

impl TableMeta {
    /// From what the writer says of a finished table.
    pub fn of(number: FileNumber, summary: &TableSummary) -> Self {
        Self {
            number,
            bytes: summary.file_bytes,
            entries: summary.entries,
            deletes: summary.deletes,
            older_versions: summary.older_versions,
            smallest_key: summary.smallest_key.clone(),
            largest_key: summary.largest_key.clone(),
            smallest_sequence: summary.smallest_sequence,
            largest_sequence: summary.largest_sequence,
            ingested_at: None,
        }
    }

    /// Some key of `from..=to` may be in the table; no bound is an open end.
    pub fn overlaps(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> bool {
        from.is_none_or(|from| self.largest_key.as_slice() >= from)
            && to.is_none_or(|to| self.smallest_key.as_slice() <= to)
    }
}

/// Numbers of tables that no version needs any more.
#[derive(Debug, Default)]
pub(crate) struct ObsoleteFiles {
    numbers: Mutex<Vec<FileNumber>>,
}

impl ObsoleteFiles {
    pub fn take(&self) -> Vec<FileNumber> {
        std::mem::take(&mut self.numbers.lock())
    }

    pub fn count(&self) -> usize {
        self.numbers.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.lock().is_empty()
    }

    pub fn add(&self, number: FileNumber) {
        self.numbers.lock().push(number);
    }

    pub fn add_all(&self, numbers: &[FileNumber]) {
        self.numbers.lock().extend_from_slice(numbers);
    }
}

/// What tables need to open themselves and to end.
#[derive(Debug)]
pub(crate) struct TableStore {
    pub files: Arc<TieredFiles>,
    pub cache: Arc<BlockCache>,
    pub obsolete: ObsoleteFiles,
    /// What to wake when there is something to delete.
    pub jobs: Arc<Jobs>,
}

/// What a data block takes of an index partition in the cache, where separators are short: six
/// bytes, and its share of restarts and of what the cache adds to a partition
/// (`docs/decisions/0051-index-partitions.md`). For tables that are not open yet.
const INDEX_BYTES_PER_BLOCK: u64 = 8;

/// What files of tables are multiples of.
const PAGE_BYTES: u64 = thermocline_device::buffer::PAGE_BYTES as u64;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Table {
    pub meta: TableMeta,
    store: Arc<TableStore>,
    reader: OnceLock<Arc<TableReader>>,
    obsolete: AtomicBool,
    /// Copies of its index that were made, or could not be.
    copy_attempts: AtomicU32,
    /// Its records that hide one in a table below, once there is an estimate.
    overwrites: OnceLock<u64>,
    is_looked_at: AtomicBool,
}

impl Table {
    pub fn new(meta: TableMeta, store: Arc<TableStore>) -> Self {
        Self {
            meta,
            store,
            reader: OnceLock::new(),
            obsolete: AtomicBool::new(false),
            copy_attempts: AtomicU32::new(0),
            overwrites: OnceLock::new(),
            is_looked_at: AtomicBool::new(false),
        }
    }

    /// The reader, opened at first use.
    pub fn reader(&self) -> Result<&Arc<TableReader>> {
        if let Some(reader) = self.reader.get() {
            return Ok(reader);
        }
        let file = self.store.files.open_file(self.meta.number)?;
        let reader = TableReader::open(file, Arc::clone(&self.store.cache))?;
        if reader.properties().entries != self.meta.entries {
            return Err(Error::corrupt(format!(
                "table {} holds {} entries where the manifest says {}; \
                 it is not the table that was written",
                self.meta.number,
                reader.properties().entries,
                self.meta.entries
            )));
        }
        // Two threads may both open it; the second reader is dropped.
        Ok(self.reader.get_or_init(|| Arc::new(reader)))
    }

    /// Records here that hide an older version in a table below, by an estimate; none before there
    /// is one. It stays right while tables below are merged: what they hide of each other is not
    /// hidden by fewer records here.
    pub fn overwrites(&self) -> Option<u64> {
        self.overwrites.get().copied()
    }

    /// The first estimate stays.
    pub fn set_overwrites(&self, records: u64) {
        let _ = self.overwrites.set(records);
    }

    /// There is no estimate of what it hides, and no look is under way.
    pub fn awaits_look(&self) -> bool {
        self.overwrites().is_none() && !self.is_looked_at.load(Relaxed)
    }

    /// No other look is under way; this one is, until [`Table::end_look`].
    pub fn begin_look(&self) -> bool {
        !self.is_looked_at.swap(true, Relaxed)
    }

    pub fn end_look(&self) {
        self.is_looked_at.store(false, Relaxed);
    }

    /// The table has `key`, whose hash is given, or its filter does not tell it from one that it
    /// has.
    pub fn has(&self, key: &[u8], hash: u64) -> Result<bool> {
        match self.reader()?.asked_filter(key, hash)? {
            Some(passes) => Ok(passes),
            None => Ok(self.get(key, Sequence::MAX)?.is_some()),
        }
    }

    /// The table may have `key`, whose hash is given. One that cannot be asked may have it.
    pub fn may_have(&self, key: &[u8], hash: u64) -> bool {
        let probed = self.reader().and_then(|reader| Ok(reader.probe(key, hash)?));
        !matches!(probed, Ok(Probe::Absent))
    }

    /// As [`Table::may_have`], of what is in memory alone and for estimates; none where the table
    /// would have to be read.
    pub fn glance(&self, key: &[u8], hash: u64) -> Option<bool> {
        self.opened()?.glance(key, hash)
    }

    /// Memory pinned by the open reader, in bytes.
    pub fn pinned_bytes(&self) -> u64 {
        self.reader.get().map_or(0, |reader| reader.memory_bytes() as u64)
    }

    /// Memory that the block cache needs so that a look-up here reads one block, in bytes: what the
    /// open table says of its partitions of index and filter, or a good guess before that.
    pub fn partition_bytes(&self, block_bytes: u64, filter_bits_per_key: u8) -> u64 {
        let guess = || {
            let blocks = self.meta.bytes / block_bytes.max(1);
            blocks * INDEX_BYTES_PER_BLOCK + self.meta.entries * u64::from(filter_bits_per_key) / 8
        };
        self.reader.get().map_or_else(guess, |reader| reader.partition_bytes())
    }

    /// Bytes of a copy of its index: exact once it is open, a good guess before that.
    pub fn tail_bytes(&self, block_bytes: u64, filter_bits_per_key: u8) -> u64 {
        let guess = || {
            let partitions = self.partition_bytes(block_bytes, filter_bits_per_key);
            (partitions + partitions / 8).next_multiple_of(PAGE_BYTES) + 2 * PAGE_BYTES
        };
        self.opened().map_or_else(guess, |reader| reader.tail_bytes())
    }

    /// The reader, if a caller needed it.
    pub fn opened(&self) -> Option<&Arc<TableReader>> {
        self.reader.get()
    }

    /// Its index has a copy on the fast tier.
    pub fn has_copy(&self) -> bool {
        self.opened().is_some_and(|reader| reader.has_copy())
    }

    /// Bytes of that copy, if there is one.
    pub fn copy_bytes(&self) -> Option<u64> {
        let reader = self.opened().filter(|reader| reader.has_copy())?;
        Some(reader.tail_bytes())
    }

    /// How often a copy was made, or could not be.
    pub fn copy_attempts(&self) -> u32 {
        self.copy_attempts.load(Relaxed)
    }

    /// A copy was made, or could not be.
    pub fn copy_attempted(&self) {
        self.copy_attempts.fetch_add(1, Relaxed);
    }

    /// The trailer of an entry as all callers see it.
    pub fn trailer(&self, stored: Trailer) -> Trailer {
        match self.meta.ingested_at {
            None => stored,
            Some(sequence) => Trailer::new(sequence, stored.kind()),
        }
    }

    /// The snapshot to look up in the file so as to see what `snapshot` should see; none if it sees
    /// nothing here.
    pub fn stored_snapshot(&self, snapshot: Sequence) -> Option<Sequence> {
        match self.meta.ingested_at {
            None => (self.meta.smallest_sequence <= snapshot).then_some(snapshot),
            Some(sequence) => (sequence <= snapshot).then_some(Sequence::ZERO),
        }
    }

    /// The newest version of `key` at or before `snapshot` in this table.
    pub fn get(&self, key: &[u8], snapshot: Sequence) -> Result<Option<(Trailer, Bytes)>> {
        let Some(snapshot) = self.stored_snapshot(snapshot) else { return Ok(None) };
        let found = self.reader()?.get(key, snapshot)?;
        Ok(found.map(|(trailer, value)| (self.trailer(trailer), value)))
    }

    /// Its file goes when the last reference does. Call only after the edit that removed it is
    /// durable.
    pub fn mark_obsolete(&self) {
        if planted(Planted::DoomedTableDeletedAtOnce) {
            self.store.obsolete.add(self.meta.number);
            return;
        }
        self.obsolete.store(true, Relaxed);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.obsolete.load(Relaxed) {
            self.store.obsolete.add(self.meta.number);
            let copy = self.opened().and_then(|reader| reader.take_copy());
            if !planted(Planted::IndexCopyOutlivesTable) {
                copy.into_iter().for_each(|number| self.store.obsolete.add(number));
            }
            self.store.jobs.wake();
        }
    }
}
