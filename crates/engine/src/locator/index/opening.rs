//! The index at an opening: what the register says of the tables that the manifest names.
//!
//! 1. A table that the register does not know as entered waits again.
//! 2. The register may know a table that an edit has removed and of which no entry speaks: it is
//!    forgotten. One that entries name was removed by no edit: the manifest has lost its end.

use super::room::{Course, chunks_left_by_entering, chunks_of_arenas};
use super::{TableIndex, Tables};
use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::table_set::handed::HandOver;
use crate::table_set::levels::Levels;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::{AtomicU64, AtomicUsize};
use thermocline_foundation::sync::{ArcSwap, Mutex};
use thermocline_pmem::{TableLine, Tree};

/// Of the memory the part that may hold where records lie which are to be entered.
const HANDED_SHARE: u64 = 16;

/// Refuses an index with these `lines` that has entries of tables which `levels` lack.
pub(crate) fn require_known(lines: &[TableLine], levels: &Levels) -> Result<()> {
    let known: BTreeSet<_> = levels.tables().map(|(_, table)| table.meta.number).collect();
    let mut named = lines.iter().filter(|line| line.live > 0);
    named.find(|line| !known.contains(&line.number)).map_or(Ok(()), |line| {
        Err(Error::corrupt(format!(
            "the index in persistent memory names {} records of table {}, which is not in the \
             manifest: the end of the manifest is lost; restore the database from a checkpoint",
            line.live, line.number
        )))
    })
}

impl TableIndex {
    /// The index `tree` over the tables of `levels`.
    pub fn open(shared: &Arc<Shared>, tree: Tree, levels: &Levels) -> Result<Self> {
        let mut tables = Tables::default();
        for (_, table) in levels.tables() {
            tables.all.insert(table.meta.number, Arc::clone(table));
        }
        let lines = tree.tables();
        require_known(&lines, levels)?;
        for line in lines.iter().filter(|line| !tables.all.contains_key(&line.number)) {
            tree.forget(line.number).map_err(Error::from)?;
        }
        let is_entered = |number| tree.table(number).is_some_and(|line| line.is_entered);
        let waiting = tables.all.values().filter(|table| !is_entered(table.meta.number));
        tables.waiting = waiting.cloned().collect();
        tables.waiting.sort_by_key(|table| table.meta.largest_sequence);
        shared.index_room.set_waiting(tables.waiting_records());
        let (geometry, chunks) = (tree.region().identity().geometry, tree.region().chunks());
        let has_memtables = shared.settings.has_no_log();
        let memtable_bytes =
            if has_memtables { shared.settings.division().memtable_bytes } else { 0 };
        chunks.leave_to_arenas(chunks_of_arenas(&geometry, memtable_bytes));
        chunks.leave_to_changes(chunks_left_by_entering(&geometry));
        let rebuilt = tables.waiting.iter().map(|table| table.meta.number).max();
        Ok(Self {
            shared: Arc::clone(shared),
            tree,
            tables: ArcSwap::from_pointee(tables),
            claimed: Mutex::default(),
            handed: Mutex::default(),
            hand_over: Arc::new(HandOver::new(shared.settings.memory.0 / HANDED_SHARE)),
            rebuilt: rebuilt.unwrap_or(FileNumber(0)),
            removed: AtomicU64::new(0),
            removals: AtomicU64::new(0),
            early_runs: AtomicUsize::new(0),
            entered_tables: AtomicU64::new(0),
            course: Course::default(),
        })
    }
}
