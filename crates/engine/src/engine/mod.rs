//! The running store.

use crate::error::Result;
use crate::front::log_pool::LogPool;
use crate::front::slabs::FastTier;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::versions::Versions;
use crate::write_path::{Leader, LogTail, WriteQueue};
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Engine {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    /// Records on the fast tier; none but with the preset `hybrid`.
    pub fast: Option<Arc<FastTier>>,
    pub log_pool: Arc<LogPool>,
    pub queue: WriteQueue,
    pub leader: Mutex<Leader>,
    pub tail: Mutex<LogTail>,
    /// Log bytes that no sync covers yet.
    pub unsynced_bytes: AtomicU64,
    pub sync_wanted: AtomicBool,
    /// A migration runs, or failed and is not tried again before the next open.
    pub migrating: AtomicBool,
}

impl Engine {
    /// Keeps what was counted and how far the logs go, durably, unless nothing was asked since
    /// opening.
    pub fn keep_totals(&self) -> Result<()> {
        let counts = &self.shared.counts;
        let asked = [&counts.gets, &counts.scans, &counts.writes, &counts.ingested_bytes];
        if asked.iter().all(|counter| counter.get() == 0) {
            return Ok(());
        }
        let durable_sequence = Some(self.versions.visible());
        self.sync()?;
        let edit = Edit { durable_sequence, ..Edit::default() };
        self.versions.commit(&mut self.versions.tables(), edit)
    }
}

#[cfg(test)]
mod tests;
