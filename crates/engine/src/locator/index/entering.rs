//! Entering a table: its records go through the index, in the order of the keys, the newest of each
//! key. Its writer has handed over where they lie; or else it is read.
//!
//! A step is a few runs of the tree, each of which is durable as a whole. What is not finished is
//! begun anew, and changes nothing twice.

use super::TableIndex;
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::table_set::handed::Handed;
use crate::table_set::table::Table;
use crate::versions::Change;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_pmem::Entry;
use thermocline_table::{BlockAddress, Places, ReadAhead, TableIterator, TableReader, Trailer};

/// Keys and bytes of keys of a step at most: some runs.
const STEP_KEYS: usize = 256;
const STEP_KEY_BYTES: usize = 256 << 10;

/// Keys, ascending, and their entries.
type Records = Vec<(Vec<u8>, Entry)>;

/// A table on its way into the index.
#[derive(Debug)]
pub(crate) struct Entering {
    index: Arc<TableIndex>,
    table: Arc<Table>,
    source: Source,
}

/// Where the records come from.
#[derive(Debug)]
enum Source {
    /// The writer, with how many have gone in.
    Handed(Handed, usize),
    /// The table, which is read from the first step on.
    Table(Option<Box<Reading>>),
}

/// A table at the next record.
#[derive(Debug)]
struct Reading {
    at: TableIterator,
    last_key: Option<Vec<u8>>,
}

impl Entering {
    pub fn new(index: &Arc<TableIndex>, table: Arc<Table>, handed: Option<Handed>) -> Self {
        let source = handed.map_or(Source::Table(None), |handed| Source::Handed(handed, 0));
        Self { index: Arc::clone(index), table, source }
    }

    /// Enters some records; the table does not wait any more once the last one is in.
    pub fn step(&mut self) -> Result<Step> {
        self.index.require_room()?;
        let (records, is_last) = self.gather()?;
        let table = (self.table.meta.number, self.table.meta.entries);
        let entered = self.index.tree.enter(table, &records, is_last);
        entered.map_err(|error| self.index.named(&error))?;
        if !is_last {
            return Ok(Step::More);
        }
        self.index.stop_waiting(self.table.meta.number);
        Ok(Step::Done)
    }

    /// The next records, and whether they are the last.
    fn gather(&mut self) -> Result<(Records, bool)> {
        let Self { index, table, source } = self;
        match source {
            Source::Handed(handed, passed) => {
                let mut records = records_of(table, &handed.places, *passed);
                *passed += records.len();
                let is_last = *passed >= handed.places.len();
                if is_last && planted(Planted::HandedRecordSkipped) {
                    records.pop();
                }
                Ok((records, is_last))
            }
            Source::Table(Some(reading)) => reading.gather(table),
            Source::Table(reading) => {
                let window_bytes = index.shared.settings.window_bytes(1);
                let mut at = table.reader()?.iter(ReadAhead::Stream { window_bytes });
                at.seek_to_first()?;
                reading.insert(Box::new(Reading { at, last_key: None })).gather(table)
            }
        }
    }
}

/// Records of `places` from that at `first` on, of a step.
fn records_of(table: &Table, places: &Places, first: usize) -> Records {
    let mut bytes = 0;
    let found = (first..).map_while(|index| places.get(index));
    let taken = found.take(STEP_KEYS).take_while(|(key, ..)| {
        let has_room = bytes < STEP_KEY_BYTES;
        bytes += key.len();
        has_room
    });
    let record = |(key, stored, address): (&[u8], Trailer, BlockAddress)| {
        (key.to_vec(), entry_of(table.meta.number, table.trailer(stored), address))
    };
    taken.map(record).collect()
}

impl Reading {
    fn gather(&mut self, table: &Table) -> Result<(Records, bool)> {
        let at = &mut self.at;
        let (mut records, mut bytes) = (Vec::new(), 0);
        while at.valid() && records.len() < STEP_KEYS && bytes < STEP_KEY_BYTES {
            // Of a key the newest version comes first.
            if self.last_key.as_deref() != Some(at.key()) {
                let key = at.key().to_vec();
                bytes += key.len();
                self.last_key = Some(key.clone());
                let trailer = table.trailer(at.trailer());
                records.push((key, entry_of(table.meta.number, trailer, at.block_address()?)));
            }
            at.next()?;
        }
        Ok((records, !at.valid()))
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
