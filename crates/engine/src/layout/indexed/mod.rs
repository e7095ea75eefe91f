//! The layout of the preset `indexed`: all tables in one level that may overlap, and an index of
//! the newest record of each key in persistent memory (SLM-DB, section 3).
//!
//! ```text
//!   memtable -> tables of level 0 (cut at `table_size`) -> entered into the index (locator/index)
//!   sparse or scattered tables -> merge -> tables of level 0 -> entered -> the merged ones go
//! ```
//! 1. A merge has two edits. The first adds its tables; the second, once they are entered, removes
//!    what was merged. A crash between the two leaves both, which hold the same records.
//! 2. Opened for reading only the store has no index: tables are searched by ranges and filters.
//!
//! ```text
//!   follower.rs   hears of edits; sizes that follow from them
//!   order.rs      finds tables that hold neighbouring keys apart
//!   plan.rs       what is merged next, and which tables leave
//!   merge.rs      a merge
//! ```

mod follower;
mod merge;
mod order;
mod plan;

use crate::error::Result;
use crate::generations::Frozen;
use crate::jobs::Job;
use crate::layout::Wanted;
use crate::layout::leveled::Flush;
use crate::locator::Locator;
use crate::locator::index::TableIndex;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::versions::Versions;
pub(crate) use follower::OneLevel;
pub(crate) use order::{Order, Trail};
use std::collections::BTreeMap;
use std::sync::Arc;
use thermocline_device::FileKind;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;

/// What the jobs of this layout hold.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub locator: Locator,
    /// None where the store is opened for reading only.
    pub index: Option<Arc<TableIndex>>,
    pub order: Order,
    /// Live records of tables when no reader could see any other record of theirs.
    pub unread: Mutex<BTreeMap<FileNumber, u64>>,
}

impl Indexed {
    /// The job that writes a frozen memtable to tables.
    pub fn flush_job(self: &Arc<Self>, frozen: Arc<Frozen>) -> Box<dyn Job> {
        let table_bytes = self.shared.settings.table_size.0;
        let hand_over = self.index.as_ref().map(|index| index.hand_over());
        Box::new(Flush::new(&self.shared, &self.versions, frozen, table_bytes, hand_over))
    }

    /// Answers what the index knows; where there is none, tables are searched.
    pub fn get_many(&self, wanted: &mut Wanted<'_>) -> Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        let left = std::mem::take(&mut wanted.left);
        let many = index.find_many(wanted.keys, &left, wanted.moment)?;
        for (at, trailer, value) in many.found {
            wanted.answer(at, Some((trailer, value)));
        }
        wanted.single.extend(many.unknown);
        Ok(())
    }

    /// Commits the edit of an opening, with which tables that another preset had in deeper levels
    /// are in the one level.
    pub fn settle(&self, mut edit: Edit) -> Result<()> {
        let levels = Arc::clone(&self.versions.current().levels);
        for (level, table) in levels.tables().filter(|(level, _)| *level > 0) {
            self.shared.files.reclassify(table.meta.number, FileKind::Table { level: 0 })?;
            edit.removed.push((level as u8, table.meta.number));
            edit.added.push((0, table.meta.clone()));
        }
        self.versions.commit(&mut self.versions.tables(), edit)
    }
}
