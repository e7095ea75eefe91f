//! A cache of blocks on the fast tier, below the one in memory (MyNVM): copies of the stored blocks
//! of tables that lie on slower tiers.
//!
//! ```text
//!   crates/table          find, offer, failed               shared.cache (memory)
//!        v                                                       │ miss
//!   copies.rs    look-up (8 bytes a block)      admission (crates/popularity)
//!        │ full batches                │ positions
//!        v                             v
//!   work.rs ──> sealed files on tier 0 <── adoption.rs: what earlier openings left
//!        └─ eviction.rs, room.rs: what tier 0 leaves
//! ```
//! Invariants:
//! 1. A block is served only after its checksum, bound to database, table and offset, has matched.
//! 2. The cache fails no read, write, opening, closing or checkpoint.
//! 3. Callers wait for no I/O of the cache but the read of their own block, and one whose call
//!    found no room on any tier, or tier 0's device full, until the cache has given way.
//! 4. A sealed file never changes; only sealed files are adopted.
//! 5. Used bytes, those of files that wait to be looked at included, keep to what tier 0 leaves,
//!    and one file; logs come first.
//! 6. Each file of the cache is being filled, sealed, leaving or waiting to be looked at; what is
//!    none of these was deleted.
//!
//! Look-up, files, batches and pauses are the device's (`file_cache`). The rest of the engine meets
//! [`FastCache`]: it is opened, asked for a job, told of edits and closed. Threads: any, one job at
//! a time.

mod adoption;
mod copies;
mod eviction;
mod plan;
pub(crate) mod report;
mod room;
#[cfg(test)]
mod tests;
pub(crate) mod trace;
mod work;

use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::shared::Shared;
use crate::shared::tier0::Account;
use crate::versions::{Follower, Switch};
use adoption::{Opening, delete_found, forget_lives, found};
use copies::Copies;
use plan::Plan;
use std::sync::Arc;
use thermocline_device::{Devices, GivesWay};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::{Planted, planted};
use trace::BlockTrace;
use work::Work;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct FastCache {
    shared: Arc<Shared>,
    copies: Arc<Copies>,
    opening: Opening,
    tier_bytes: u64,
    work: Mutex<Work>,
    /// A job is at it.
    is_running: AtomicBool,
}

impl FastCache {
    /// The cache of a store that is being opened for writing, where its settings have one and there
    /// is a slower tier; what others left is deleted otherwise.
    pub fn open(shared: &Arc<Shared>, devices: &dyn Devices) -> Option<Arc<Self>> {
        let files = &shared.files;
        if files.is_read_only() {
            return None;
        }
        let granted_bytes = shared.tier0.grant(Account::BlockCache);
        let tier_bytes = files.tiers()[0].spec().capacity.0;
        let plan = Plan::new(&shared.settings, granted_bytes, tier_bytes);
        if granted_bytes < plan.file_bytes || files.tiers().len() == 1 {
            if let Err(error) = forget_lives(files) {
                tracing::warn!(%error, "the lives of a block cache are not forgotten");
            }
            delete_found(files);
            return None;
        }
        let opening = Opening::begin(files, devices.entropy())
            .inspect_err(|error| tracing::warn!(%error, "the block cache is off until reopening"));
        let Ok(opening) = opening else {
            delete_found(files);
            return None;
        };
        let outside = (Arc::clone(&shared.clock), Arc::clone(&shared.jobs));
        let is_first = !opening.follows_others();
        let copies = Arc::new(Copies::new(plan, is_first, &shared.experiments, outside));
        shared.cache.set_second_level(Arc::clone(&copies) as _);
        let work = Work { found: found(files), ..Work::default() };
        if work.found.is_empty() {
            if opening.follows_others() {
                tracing::info!("no file of the block cache is there: it starts cold");
            }
            copies.fill();
        }
        let cache = Arc::new(Self {
            shared: Arc::clone(shared),
            copies,
            opening,
            tier_bytes,
            work: Mutex::new(work),
            is_running: AtomicBool::new(false),
        });
        files.set_giving_way(Arc::downgrade(&cache) as _);
        Some(cache)
    }

    /// What there is to do, unless a job is at it.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        if !self.copies.is_due() || self.is_running.swap(true, Relaxed) {
            return None;
        }
        Some(Box::new(Upkeep { cache: Arc::clone(self) }))
    }

    /// Makes room for others where they take more than before, or their device has less; false
    /// where nothing has left.
    pub fn make_room(&self) -> bool {
        let mut work = self.work.lock();
        let before_bytes = self.used_bytes(&work);
        self.give_way(&mut work);
        self.used_bytes(&work) < before_bytes
    }

    /// What it was asked for since opening, where an experiment wants that.
    pub fn trace(&self) -> Option<BlockTrace> {
        let plan = &self.copies.plan;
        Some(BlockTrace {
            capacity_bytes: plan.capacity_bytes,
            file_bytes: plan.file_bytes,
            batch_bytes: plan.batch_bytes as u64,
            block_bytes: plan.block_bytes,
            requests: self.copies.noted()?,
        })
    }

    /// Seals what is being filled. Background work has ended.
    pub fn close(&self) {
        self.finish();
    }

    /// Deletes all copies.
    pub fn clear(&self) {
        let mut work = self.work.lock();
        self.copies.filling.lock().clear();
        work.filled = None;
        self.end_leaving(&mut work);
        let found = std::mem::take(&mut work.found);
        found.into_iter().for_each(|file| self.delete(file.number));
        let files = self.copies.files.load_full();
        files.list().iter().for_each(|file| self.drop_file(file));
        self.copies.fill();
    }
}

impl GivesWay for FastCache {
    fn leave(&self, bytes: u64) -> bool {
        let apart = planted(Planted::CopiesLeaveUnlocked).then(Mutex::<Work>::default);
        let mut work = apart.as_ref().unwrap_or(&self.work).lock();
        let before_bytes = self.held_bytes(&work);
        self.end_leaving(&mut work);
        self.keep_to(&mut work, before_bytes.saturating_sub(bytes));
        self.held_bytes(&work) < before_bytes
    }
}

impl Follower for FastCache {
    fn after_switch(&self, _switch: &Switch<'_>) {
        // Tables have come or gone: there may be less room.
        self.copies.look();
    }
}

/// The job of the cache.
#[derive(Debug)]
struct Upkeep {
    cache: Arc<FastCache>,
}

impl Job for Upkeep {
    fn name(&self) -> &'static str {
        "upkeep of the block cache"
    }

    fn step(&mut self) -> Result<Step> {
        Ok(self.cache.step())
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.cache.is_running.store(false, Relaxed);
        // What was filled while the last step ran.
        if self.cache.copies.is_due() {
            self.cache.shared.jobs.wake();
        }
    }
}
