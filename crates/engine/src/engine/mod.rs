//! The running store: the parts that the other rooms provide, put together at opening, and what
//! needs several of them (background work, migration, bulk loads, checkpoints, checks, figures).

pub(crate) mod activity;
mod at_rest;
pub(crate) mod background;
mod checkpoint;
pub(crate) mod commits;
mod holdings;
pub(crate) mod ingest;
pub(crate) mod live_stats;
mod migration;
pub(crate) mod open_files;
pub(crate) mod opened_files;
pub(crate) mod opening;
mod relief;
pub(crate) mod restore;
mod small_devices;
pub(crate) mod stats;
pub(crate) mod tier_change;
pub(crate) mod verify;

use crate::error::{Error, ErrorKind, Result};
use crate::fast_cache::FastCache;
use crate::fast_cache::trace::BlockTrace;
use crate::front::Front;
use crate::jobs::Progress;
use crate::layout::Layout;
#[cfg(test)]
use crate::layout::hybrid::Hybrid;
#[cfg(test)]
use crate::layout::leveled::Leveled;
use crate::read::Reader;
use crate::requests::Requests;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::table_set::manifest::Edit;
use crate::transaction::Locks;
use crate::versions::Versions;
use crate::versions::holders::Holders;
use crate::versions::snapshots::Snapshot;
use migration::Migrations;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{FileKind, TierIndex};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering};
use thermocline_foundation::{FileNumber, sync_site};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Engine {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    layout: Layout,
    /// Copies of blocks on tier 0, where the settings have them.
    fast_cache: Option<Arc<FastCache>>,
    reader: Arc<Reader>,
    front: Front,
    requests: Requests,
    /// Damage of logs that the opening met, and that cost nothing.
    mended: Vec<(FileNumber, TierIndex, Error)>,
    migrations: Arc<Migrations>,
    /// Transactions that were begun.
    transactions: AtomicU64,
    locks: Arc<Locks>,
}

impl Engine {
    /// The engine, unless it came with a fork.
    pub fn ours(self: &Arc<Self>) -> Result<&Arc<Self>> {
        self.shared.files.require_owner()?;
        Ok(self)
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The directory that it was opened at.
    pub fn home(&self) -> &Path {
        self.shared.files.home()
    }

    /// What looks records up.
    pub fn reader(&self) -> &Arc<Reader> {
        &self.reader
    }

    /// Asynchronous requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// This moment, readable for as long as it is held.
    pub fn snapshot(&self) -> Snapshot {
        self.versions.snapshot()
    }

    /// A number that no other transaction of this opening has.
    pub fn next_transaction(&self) -> u64 {
        self.transactions.fetch_add(1, Ordering::Relaxed)
    }

    /// What holds the store besides its handles.
    pub fn holders(&self) -> &Arc<Holders> {
        self.versions.holders()
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        sync_site("sync", || self.front.sync())
    }

    /// Carries out the asynchronous requests that wait, ends all work and seals the files; keeps
    /// what was counted first where the store `is_written` to.
    pub fn close(&self, is_written: bool) -> Result<()> {
        self.requests.end();
        let keep = || {
            self.shared.latch.check()?;
            self.empty_region();
            self.keep_totals()
        };
        let kept = if is_written { keep() } else { Ok(()) };
        // Sends away what waits for background work, which is about to end.
        self.shared.fail(&Error::new(ErrorKind::ReadOnly, "the database is closed"));
        self.shared.jobs.stop();
        let sealed =
            kept.and_then(|()| if is_written { self.front.enter().seal() } else { Ok(()) });
        if sealed.is_ok() && is_written {
            self.fast_cache.iter().for_each(|cache| cache.close());
        }
        let manifest = self.versions.tables().manifest.extent();
        self.shared.files.close(&[(FileKind::Manifest, manifest)])?;
        sealed
    }

    /// Has tables take what only a region of persistent memory has, where that is possible now.
    /// What stays there is found at the next opening.
    fn empty_region(&self) {
        if self.front.is_emptied_at_close()
            && let Err(error) = self.flush()
        {
            tracing::warn!(%error, "records stay in persistent memory until the next opening");
        }
    }

    /// Gives up the copies of the directories' locks that came with a fork.
    pub fn leave_to_owner(&self) {
        self.shared.files.leave_to_owner();
    }

    /// Keeps what was counted and how far the logs go, durably, unless nothing was asked since
    /// opening.
    fn keep_totals(&self) -> Result<()> {
        let counts = &self.shared.counts;
        let asked = [&counts.gets, &counts.scans, &counts.writes, &counts.ingested_bytes];
        if asked.iter().all(|counter| counter.get() == 0) {
            return Ok(());
        }
        let durable_sequence = Some(self.versions.visible());
        sync_site("totals", || self.front.sync())?;
        let edit = Edit { durable_sequence, ..Edit::default() };
        match self.versions.commit(&mut self.versions.tables(), edit) {
            Err(error) if error.is_refusal() => {
                tracing::warn!(%error, "what was counted is not kept");
                Ok(())
            }
            committed => committed,
        }
    }

    /// Deletes the copies of blocks on tier 0.
    pub fn clear_fast_cache(&self) -> Result<()> {
        self.shared.latch.check()?;
        self.fast_cache.iter().for_each(|cache| cache.clear());
        Ok(())
    }

    /// What the cache of blocks on tier 0 was asked for.
    pub fn block_trace(&self) -> Option<BlockTrace> {
        self.fast_cache.as_ref()?.trace()
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
        self.relieving(|| self.layout.compact_range(from, to, progress))
    }

    #[cfg(test)]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(test)]
    pub fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    /// The locks of keys.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    #[cfg(test)]
    pub fn front(&self) -> &Front {
        &self.front
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
