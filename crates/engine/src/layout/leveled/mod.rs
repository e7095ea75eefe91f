//! The layout of the preset `leveled`: all records in levels of tables (LevelDB, RocksDB).

mod compact_range;
mod flush;
mod level_targets;
mod plan;
#[cfg(test)]
mod tests;

use crate::generations::Frozen;
use crate::jobs::Job;
use crate::locator::Locator;
use crate::shared::Shared;
use crate::versions::Versions;
pub(crate) use flush::{Flush, write_replayed};
pub(crate) use level_targets::LevelTargets;
use plan::plan_compaction;
use std::sync::Arc;

/// What the jobs of this layout hold.
#[derive(Debug)]
pub(crate) struct Leveled {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub locator: Locator,
}

impl Leveled {
    /// The job that writes a frozen memtable to level 0.
    pub fn flush_job(self: &Arc<Self>, frozen: Arc<Frozen>) -> Box<dyn Job> {
        // One table a flush: level 0 is counted in tables.
        Box::new(Flush::new(&self.shared, &self.versions, frozen, u64::MAX, None))
    }

    /// The most useful compaction that can begin now.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        plan_compaction(self)
    }
}
