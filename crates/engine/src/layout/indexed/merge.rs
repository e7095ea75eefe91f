//! A merge of tables of the one level.
//!
//! ```text
//!   write     records that are live, and older versions that readers may ask for
//!   add       one edit: the new tables are in, and wait
//!   enter     into the index: entries go over from the old tables to the new ones
//!   release   tombstones that were dropped: their entries name no table
//!   remove    one edit: the old tables are out; then the entries of those tombstones go
//! ```
//! Only a table that no entry names may leave. A tombstone's entry stays until the edit that takes
//! out what it hid: a crash before must not bring that back.

use super::Indexed;
use crate::compaction::inputs::sources_of;
use crate::compaction::rewrite::{Beside, Output, Retention, Rewrite};
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::limits::LEVELS;
use crate::locator::index::{Entering, Reserved, TableIndex};
use crate::merge::Merge;
use crate::table_set::levels::Levels;
use crate::table_set::manifest::Edit;
use crate::table_set::table::Table;
use crate::versions::Claimed;
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{FileNumber, Planted, planted};
use thermocline_table::{ReadAhead, Trailer, key_hash};

/// Tombstones that a merge drops at most: it keeps their keys in memory. The next one drops more.
const DROPPED_MAX: usize = 1 << 16;

/// The tables of a merge, claimed.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub tables: Vec<Arc<Table>>,
    _claimed: Claimed,
}

impl Inputs {
    pub fn new(tables: Vec<Arc<Table>>, claimed: Claimed) -> Self {
        Self { tables, _claimed: claimed }
    }
}

/// Keys and trailers of tombstones, ascending.
type Tombstones = Vec<(Vec<u8>, u64)>;

/// What the index and the tables that are not merged have of a key.
#[derive(Debug)]
struct Others {
    index: Arc<TableIndex>,
    levels: Arc<Levels>,
    inputs: Vec<FileNumber>,
    dropped: Arc<Mutex<Tombstones>>,
}

impl Beside for Others {
    fn newest(&self, key: &[u8]) -> Result<Option<(Trailer, bool)>> {
        let entered = self.index.entered(key)?;
        let is_elsewhere = |table| table != FileNumber(0) && !self.inputs.contains(&table);
        Ok(entered.map(|(trailer, table)| (trailer, is_elsewhere(table))))
    }

    fn drops(&self, key: &[u8], tombstone: Trailer) -> bool {
        let mut dropped = self.dropped.lock();
        let hash = key_hash(key);
        let may_be_older = |(_, table): &(usize, &Arc<Table>)| {
            table.meta.smallest_sequence < tombstone.sequence()
                && table.meta.overlaps(Some(key), Some(key))
                && !self.inputs.contains(&table.meta.number)
                && table.may_have(key, hash)
        };
        // Of a key that the index lacks no table that was entered has anything older, and none that
        // waits has, or its tombstone would have an entry (`locator/index/entering.rs`).
        let is_known = || !matches!(self.index.entered(key), Ok(None));
        let hides = || self.levels.tables().any(|it| may_be_older(&it)) && is_known();
        if dropped.len() >= DROPPED_MAX || (hides() && !planted(Planted::TombstoneDroppedWithOlder))
        {
            return false;
        }
        if dropped.last().is_none_or(|(last, _)| last != key) {
            dropped.push((key.to_vec(), tombstone.word()));
        }
        true
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct MergeIndexed {
    indexed: Arc<Indexed>,
    index: Arc<TableIndex>,
    inputs: Inputs,
    dropped: Arc<Mutex<Tombstones>>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Write(Box<Rewrite>),
    /// The last is entered first.
    Enter {
        left: Vec<Entering>,
        _reserved: Option<Reserved>,
    },
}

impl MergeIndexed {
    pub fn new(indexed: &Arc<Indexed>, index: &Arc<TableIndex>, inputs: Inputs) -> Self {
        let shared = &indexed.shared;
        let versions = &indexed.versions;
        let dropped: Arc<Mutex<Tombstones>> = Arc::default();
        let others = Others {
            index: Arc::clone(index),
            levels: Arc::clone(&versions.current().levels),
            inputs: inputs.tables.iter().map(|table| table.meta.number).collect(),
            dropped: Arc::clone(&dropped),
        };
        let of_level: Vec<_> = inputs.tables.iter().map(|table| (0, Arc::clone(table))).collect();
        let window_bytes = shared.settings.window_bytes(of_level.len());
        let merge = Merge::new(sources_of(&of_level, ReadAhead::Stream { window_bytes }));
        let retention = Retention::new(versions.kept_readable(), None);
        // As long as a flush makes them: `compaction/selective.rs` says why.
        let memtable_bytes = shared.settings.division().memtable_bytes;
        let table_bytes = shared.settings.table_size.0.min(memtable_bytes);
        let input_bytes = inputs.tables.iter().map(|table| table.meta.bytes).sum::<u64>();
        let output = Output {
            context: FileContext {
                kind: FileKind::Table { level: 0 },
                origin: Origin::Compaction { from: 0, to: 0 },
            },
            // What was merged once is likely to stay.
            options: shared.settings.table_options(LEVELS - 1),
            table_bytes,
            expected_bytes: table_bytes.min(input_bytes),
            cache: Some(Arc::clone(&shared.cache)),
        };
        let retention = retention.with_beside(Box::new(others));
        let rewrite = Rewrite::new(Arc::clone(&shared.files), merge, retention, output)
            .handing_over(Arc::clone(index.hand_over()));
        let (indexed, index) = (Arc::clone(indexed), Arc::clone(index));
        Self { indexed, index, inputs, dropped, stage: Stage::Write(Box::new(rewrite)) }
    }

    /// Adds the tables that were written.
    fn add(&mut self) -> Result<()> {
        let Stage::Write(rewrite) = &mut self.stage else { return Ok(()) };
        let added = rewrite.publish()?;
        let mut handed = rewrite.take_handed();
        if added.is_empty() {
            self.stage = Stage::Enter { left: Vec::new(), _reserved: None };
            return Ok(());
        }
        if planted(Planted::TombstoneEntryRemovedEarly) {
            self.index.remove(&self.dropped.lock())?;
        }
        let numbers: Vec<_> = added.iter().map(|meta| meta.number).collect();
        let reserved = self.index.reserve(numbers.clone());
        let in_bytes = self.inputs.tables.iter().map(|table| table.meta.bytes).sum();
        let out_bytes = added.iter().map(|meta| meta.bytes).sum();
        let added = added.into_iter().map(|meta| (0, meta)).collect();
        let edit = Edit { added, ..Edit::default() };
        let versions = &self.indexed.versions;
        let counts = &self.indexed.shared.counts;
        let count = || {
            counts.compactions.add(1);
            counts.compacted_in_bytes.add(in_bytes);
            counts.compacted_out_bytes.add(out_bytes);
        };
        rewrite.hand_over(|| versions.commit_counted(&mut versions.tables(), edit, count))?;
        let levels = Arc::clone(&versions.current().levels);
        let found = numbers.iter().rev().filter_map(|number| levels.find(0, *number));
        let left = found.map(|table| {
            let handed = handed.remove(&table.meta.number);
            Entering::new(&self.index, vec![(Arc::clone(table), handed)])
        });
        let left = left.collect();
        self.stage = Stage::Enter { left, _reserved: Some(reserved) };
        Ok(())
    }

    /// Takes the merged tables out, of which the index names none.
    fn remove(&mut self) -> Result<()> {
        let dropped = std::mem::take(&mut *self.dropped.lock());
        self.index.release(&dropped)?;
        let removed = self.inputs.tables.iter().map(|table| (0, table.meta.number)).collect();
        let versions = &self.indexed.versions;
        versions.commit(&mut versions.tables(), Edit { removed, ..Edit::default() })?;
        self.index.remove(&dropped)
    }
}

impl Job for MergeIndexed {
    fn name(&self) -> &'static str {
        "compaction"
    }

    fn step(&mut self) -> Result<Step> {
        match &mut self.stage {
            Stage::Write(rewrite) => {
                if rewrite.step()? == Step::Done {
                    self.add()?;
                }
                Ok(Step::More)
            }
            Stage::Enter { left, .. } => match left.last_mut() {
                Some(table) => {
                    let entered = table.step();
                    if entered.inspect_err(|_| self.index.note_refused_merge())? == Step::Done {
                        left.pop();
                    }
                    Ok(Step::More)
                }
                None => {
                    let removed = self.remove();
                    removed.inspect_err(|_| self.index.note_refused_merge()).map(|()| Step::Done)
                }
            },
        }
    }
}
