//! Entering tables: their records go through the index in one pass in the order of the keys, the
//! newest of each key. Their writers have handed over where they lie; or else they are read.
//!
//! A step is a few runs of the tree, each of which is durable as a whole. What is not finished is
//! begun anew, and changes nothing twice.
//!
//! Where there is no room tombstones that hide nothing do without an entry: those of keys of which
//! neither the index nor another table that waits has anything. So deletes of keys that are not
//! there do not keep those from making room that are. The merge of their table drops them.

use super::TableIndex;
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::table_set::handed::Handed;
use crate::table_set::table::Table;
use crate::versions::Change;
use std::sync::Arc;
use thermocline_device::ErrorKind as DeviceErrorKind;
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_pmem::Entry;
use thermocline_table::{
    BlockAddress, ReadAhead, RecordKind, TableIterator, TableReader, Trailer, key_hash,
};

/// Keys and bytes of keys of a step at most: some runs.
const STEP_KEYS: usize = 256;
const STEP_KEY_BYTES: usize = 256 << 10;

/// Keys, ascending, and their entries.
type Records = Vec<(Vec<u8>, Entry)>;

/// What a step enters.
#[derive(Debug, Default)]
struct Gathered {
    /// The newest record of each key.
    records: Records,
    /// For each of them, whether the tables have no other of its key.
    are_alone: Vec<bool>,
    is_last: bool,
}

/// Tables on their way into the index.
#[derive(Debug)]
pub(crate) struct Entering {
    index: Arc<TableIndex>,
    sources: Vec<Source>,
}

/// A table, at the next of its records.
#[derive(Debug)]
struct Source {
    table: Arc<Table>,
    records: Origin,
}

/// Where the records of a table come from.
#[derive(Debug)]
enum Origin {
    /// Its writer, with how many are behind.
    Writer(Handed, usize),
    /// The table itself, which is read.
    Table(Box<TableIterator>),
    /// The table, before the first step.
    Unopened,
}

impl Entering {
    /// All of `tables`, each with what its writer has handed over.
    pub fn new(index: &Arc<TableIndex>, tables: Vec<(Arc<Table>, Option<Handed>)>) -> Self {
        let source = |(table, handed): (Arc<Table>, Option<Handed>)| {
            let records = handed.map_or(Origin::Unopened, |handed| Origin::Writer(handed, 0));
            Source { table, records }
        };
        let sources = tables.into_iter().map(source).collect();
        Self { index: Arc::clone(index), sources }
    }

    /// Enters some records; the tables do not wait any more once the last one is in.
    pub fn step(&mut self) -> Result<Step> {
        let window_bytes = self.index.shared.settings.window_bytes(self.sources.len());
        for source in &mut self.sources {
            source.open(window_bytes)?;
        }
        let gathered = self.gather()?;
        let is_last = gathered.is_last;
        let metas = self.sources.iter().map(|source| &source.table.meta);
        let tables: Vec<_> = metas.map(|meta| (meta.number, meta.entries)).collect();
        let mut entered = self.index.tree.enter_all(&tables, &gathered.records, is_last);
        if is_without_room(&entered) {
            let needed = self.without_idle(gathered)?;
            entered = self.index.tree.enter_all(&tables, &needed, is_last);
        }
        if is_without_room(&entered) {
            self.index.note_refusal(tables.iter().map(|(number, _)| *number));
        }
        entered.map_err(|error| self.index.named(&error))?;
        if !is_last {
            return Ok(Step::More);
        }
        let numbers: Vec<_> = tables.iter().map(|(number, _)| *number).collect();
        self.index.stop_waiting(&numbers);
        Ok(Step::Done)
    }

    /// The next records.
    fn gather(&mut self) -> Result<Gathered> {
        let (mut gathered, mut bytes) = (Gathered::default(), 0);
        while gathered.records.len() < STEP_KEYS && bytes < STEP_KEY_BYTES {
            let Some(key) = self.sources.iter().filter_map(Source::key).min() else { break };
            let key = key.to_vec();
            let (mut newest, mut versions): (Option<Entry>, _) = (None, 0);
            for source in &mut self.sources {
                // Of a key the newest version comes first.
                while source.key() == Some(&key[..]) {
                    let entry = source.entry()?;
                    newest = newest.into_iter().chain(entry).max_by_key(|entry| entry.trailer);
                    versions += source.versions_at_most();
                    source.advance()?;
                }
            }
            bytes += key.len();
            if let Some(entry) = newest {
                gathered.records.push((key, entry));
                gathered.are_alone.push(versions == 1);
            }
        }
        gathered.is_last = self.sources.iter().all(|source| source.key().is_none());
        if gathered.is_last && planted(Planted::LastRecordNotEntered) {
            gathered.records.pop();
        }
        Ok(gathered)
    }

    /// The records without tombstones that hide nothing. What is older than one is in a table that
    /// waits, or the index knows its key; nothing older comes later.
    fn without_idle(&self, gathered: Gathered) -> Result<Records> {
        // Before the index is asked: what stops waiting is in it by then.
        let tables = self.index.tables.load();
        let is_own = |number| self.sources.iter().any(|it| it.table.meta.number == number);
        let others = tables.waiting.iter().filter(|table| !is_own(table.meta.number));
        let others: Vec<_> =
            others.filter(|_| !planted(Planted::WaitingRecordsNotSought)).collect();
        let mut needed = Records::new();
        for ((key, entry), is_alone) in gathered.records.into_iter().zip(gathered.are_alone) {
            let (trailer, hash) = (self.index.trailer(&entry)?, key_hash(&key));
            let may_be_older = |table: &&Arc<Table>| {
                table.meta.smallest_sequence < trailer.sequence()
                    && table.meta.overlaps(Some(&key), Some(&key))
                    && table.may_have(&key, hash)
            };
            let is_idle = is_alone
                && trailer.kind() == RecordKind::Delete
                && self.index.entered(&key)?.is_none()
                && !others.iter().any(may_be_older);
            if !is_idle {
                needed.push((key, entry));
            }
        }
        Ok(needed)
    }
}

fn is_without_room<T>(entered: &thermocline_device::Result<T>) -> bool {
    entered.as_ref().is_err_and(|error| error.kind() == DeviceErrorKind::OutOfSpace)
}

impl Source {
    fn open(&mut self, window_bytes: u32) -> Result<()> {
        if matches!(self.records, Origin::Unopened) {
            let mut at = self.table.reader()?.iter(ReadAhead::Stream { window_bytes });
            at.seek_to_first()?;
            self.records = Origin::Table(Box::new(at));
        }
        Ok(())
    }

    /// The key of the next record; none behind the last.
    fn key(&self) -> Option<&[u8]> {
        match &self.records {
            Origin::Writer(handed, at) => handed.places.get(*at).map(|(key, ..)| key),
            Origin::Table(at) => at.valid().then(|| at.key()),
            Origin::Unopened => None,
        }
    }

    /// The entry of the next record; none behind the last.
    fn entry(&self) -> Result<Option<Entry>> {
        let (stored, block) = match &self.records {
            Origin::Writer(handed, at) => match handed.places.get(*at) {
                Some((_, stored, block)) => (stored, block),
                None => return Ok(None),
            },
            Origin::Table(at) if at.valid() => (at.trailer(), at.block_address()?),
            Origin::Table(_) | Origin::Unopened => return Ok(None),
        };
        Ok(Some(entry_of(self.table.meta.number, self.table.trailer(stored), block)))
    }

    /// Versions of its key that the next record may stand for: a writer hands over the newest of
    /// each, and its table may have older ones, which a snapshot sees.
    fn versions_at_most(&self) -> usize {
        match &self.records {
            Origin::Writer(handed, _) if handed.places.len() as u64 != self.table.meta.entries => 2,
            _ => 1,
        }
    }

    fn advance(&mut self) -> Result<()> {
        match &mut self.records {
            Origin::Writer(_, at) => *at += 1,
            Origin::Table(at) => at.next()?,
            Origin::Unopened => {}
        }
        Ok(())
    }
}

/// The entry of a record in a block of `table`.
fn entry_of(table: FileNumber, trailer: Trailer, block: BlockAddress) -> Entry {
    let (block_offset, block_bytes) = (block.offset, block.len);
    Entry { trailer: trailer.word(), table, block_offset, block_bytes }
}

/// Enters tables before the edit that adds them is durable: a planted bug.
pub(super) fn enter_early(index: &TableIndex, change: &Change) -> Result<()> {
    for (_, meta) in &change.edit.added {
        let file = index.shared.files.open_file(meta.number)?;
        let reader = Arc::new(TableReader::open(file, Arc::clone(&index.shared.cache))?);
        let mut at = reader.iter(ReadAhead::Stream { window_bytes: 32 << 10 });
        at.seek_to_first()?;
        let entry = entry_of(meta.number, at.trailer(), at.block_address()?);
        let records = [(at.key().to_vec(), entry)];
        let entered = index.tree.enter((meta.number, meta.entries), &records, false);
        entered.map_err(|error| index.named(&error))?;
    }
    Ok(())
}

/// Waiting tables that one job enters; given back when it ends.
#[derive(Debug)]
pub(crate) struct Reserved {
    index: Arc<TableIndex>,
    numbers: Vec<FileNumber>,
}

impl Reserved {
    pub(super) fn new(index: &Arc<TableIndex>, numbers: Vec<FileNumber>) -> Self {
        Self { index: Arc::clone(index), numbers }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.index.claimed.lock().retain(|number| !self.numbers.contains(number));
        self.index.shared.jobs.wake();
    }
}

/// The work of the index lane.
#[derive(Debug)]
pub(super) struct EnterJob {
    entering: Entering,
    _reserved: Reserved,
}

impl EnterJob {
    pub fn new(entering: Entering, reserved: Reserved) -> Self {
        Self { entering, _reserved: reserved }
    }
}

impl Job for EnterJob {
    fn name(&self) -> &'static str {
        "entering of a table"
    }

    fn step(&mut self) -> Result<Step> {
        self.entering.step()
    }
}
