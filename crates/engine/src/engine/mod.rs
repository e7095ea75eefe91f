//! The running store.

pub(crate) mod activity;
pub(crate) mod background;
pub(crate) mod checkpoint;
mod holdings;
pub(crate) mod ingest;
mod migration;
pub(crate) mod restore;
pub(crate) mod stats;
pub(crate) mod verify;
pub(crate) mod wear;

use crate::error::{Error, Result};
use crate::front::Front;
use crate::jobs::Progress;
use crate::layout::Layout;
#[cfg(test)]
use crate::layout::hybrid::Hybrid;
#[cfg(test)]
use crate::layout::leveled::Leveled;
use crate::read::Reader;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::versions::Versions;
use std::sync::Arc;
use thermocline_device::TierIndex;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync_site;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Engine {
    pub shared: Arc<Shared>,
    pub versions: Arc<Versions>,
    pub layout: Layout,
    pub reader: Arc<Reader>,
    pub front: Front,
    /// Damage of logs that the opening met, and that cost nothing.
    pub mended: Vec<(FileNumber, TierIndex, Error)>,
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
        sync_site("totals", || self.front.sync())?;
        let edit = Edit { durable_sequence, ..Edit::default() };
        self.versions.commit(&mut self.versions.tables(), edit)
    }

    /// Freezes the active memtable unless it is empty, and waits until it and those before it are
    /// in tables or slots.
    pub fn flush(&self) -> Result<()> {
        self.front.quiesce()?.freeze()?;
        self.versions.wait_for_flushes()
    }

    /// Waits until background work has nothing left to do, or has ended for good.
    pub fn settle(&self) -> Result<()> {
        let _hurry = self.shared.compaction_rate.hurry();
        self.shared.jobs.wake();
        self.shared.jobs.wait_idle();
        self.shared.latch.check()
    }

    /// Brings all records of `from..=to` to the deepest level in use, dropping what nothing can see
    /// any more. Runs on the calling thread, beside the workers.
    pub fn compact_range(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        self.flush()?;
        self.layout.compact_range(from, to, progress)
    }

    /// The layout of a store with a fast tier of slots.
    #[cfg(test)]
    pub fn hybrid(&self) -> &Arc<Hybrid> {
        self.layout.hybrid()
    }

    /// The layout of a store whose records are all in levels.
    #[cfg(test)]
    pub fn leveled(&self) -> &Arc<Leveled> {
        self.layout.leveled()
    }
}

#[cfg(test)]
mod tests;
