//! Entering a table: its records go through the index, in the order of the keys, the newest of each
//! key.
//!
//! A step is a few runs of the tree, each of which is durable as a whole. What is not finished is
//! begun anew, and changes nothing twice.

use super::TableIndex;
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::table_set::table::Table;
use crate::versions::Change;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_pmem::Entry;
use thermocline_table::{ReadAhead, TableIterator, TableReader, Trailer};

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
    /// At the next record; none before the first step.
    at: Option<TableIterator>,
    last_key: Option<Vec<u8>>,
}

impl Entering {
    pub fn new(index: &Arc<TableIndex>, table: Arc<Table>) -> Self {
        Self { index: Arc::clone(index), table, at: None, last_key: None }
    }

    /// Enters some records; the table does not wait any more once the last one is in.
    pub fn step(&mut self) -> Result<Step> {
        self.index.require_room()?;
        if self.at.is_none() {
            let window_bytes = self.index.shared.settings.window_bytes(1);
            let mut at = self.table.reader()?.iter(ReadAhead::Stream { window_bytes });
            at.seek_to_first()?;
            self.at = Some(at);
        }
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
        let Some(at) = &mut self.at else { return Ok((Vec::new(), true)) };
        let (mut records, mut bytes) = (Vec::new(), 0);
        while at.valid() && records.len() < STEP_KEYS && bytes < STEP_KEY_BYTES {
            // Of a key the newest version comes first.
            if self.last_key.as_deref() != Some(at.key()) {
                let key = at.key().to_vec();
                bytes += key.len();
                self.last_key = Some(key.clone());
                let trailer = self.table.trailer(at.trailer());
                records.push((key, entry_at(at, self.table.meta.number, trailer)?));
            }
            at.next()?;
        }
        Ok((records, !at.valid()))
    }
}

/// The entry of the record that `at` is at.
fn entry_at(at: &TableIterator, table: FileNumber, trailer: Trailer) -> Result<Entry> {
    let address = at.block_address()?;
    let (block_offset, block_bytes) = (address.offset, address.len);
    Ok(Entry { trailer: trailer.word(), table, block_offset, block_bytes })
}

/// Enters tables before the edit that adds them is durable: a planted bug.
pub(super) fn enter_early(index: &TableIndex, change: &Change) -> Result<()> {
    for (_, meta) in &change.edit.added {
        let file = index.shared.files.open_file(meta.number)?;
        let reader = Arc::new(TableReader::open(file, Arc::clone(&index.shared.cache))?);
        let mut at = reader.iter(ReadAhead::Stream { window_bytes: 32 << 10 });
        at.seek_to_first()?;
        let entry = entry_at(&at, meta.number, at.trailer())?;
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
