//! Versions: what readers see, and how it changes.
//!
//! A reader takes one pointer, the current [`Version`], and waits for nothing. What replaces it:
//!
//! ```text
//!   front (at its turnstile)       freezes the memtable            Versions::freeze
//!   flush, compaction, ingest      commit an edit of the tables    Versions::commit
//! ```
//! Locks, in the order in which they may be taken:
//!
//! ```text
//!   front's turnstile       across what writers wait for anyway, I/O too; no job takes it, for
//!                           its holder may be waiting for the job
//!   queue of requests       no I/O
//!   window                  no I/O
//!   FlushGate::holder       keeps flushes back: a checkpoint, from its moment on until it has what
//!                           is live
//!   Room::counting          of the hybrid's fast tier: a plan that looks at all ranges, until it
//!                           has claimed one
//!   Versions::tables        across the commits of manifest and file map
//!   FastTier::live          of the hybrid: what the edit changes of the live slots; no I/O
//!   Shared::changing        no I/O
//!   pool and tail of logs   no I/O
//!   LogFile::sealed         across the last sync of a log, by a flush, a sync of older logs or a
//!                           closing; others only try it
//! ```
//! Each other lock guards one value of one part.
//!
//! Invariants:
//! 1. Every acknowledged record is in the active memtable, a frozen one, a live slot that the index
//!    of the fast tier knows, or a table of the current levels.
//! 2. A record is in a log with a number at or above the manifest's log floor until its table, or
//!    the last slot of its memtable, is committed.
//! 3. `visible` is the sequence of the newest record that readers see; all records up to it are in
//!    memtables or tables. A reader loads the version before `visible`.

mod claimed;
mod commit;
mod current;
mod followers;
pub(crate) mod holders;
pub(crate) mod snapshots;
mod version;
pub(crate) mod window;

use crate::error::Result;
use crate::generations::Frozen;
use crate::generations::memtable::Memtable;
use crate::shared::Shared;
use crate::shared::totals::Totals;
use crate::table_set::TableSet;
use crate::table_set::table::TableStore;
pub(crate) use claimed::Claimed;
pub(crate) use current::Current;
pub(crate) use followers::{Change, Follower, Switch};
use holders::Holders;
use snapshots::{Snapshot, Snapshots};
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::atomic::Ordering;
use thermocline_foundation::sync::{ArcSwapGuard, Mutex, MutexGuard};
pub(crate) use version::Version;
use window::Window;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Versions {
    shared: Arc<Shared>,
    pub store: Arc<TableStore>,
    current: Current,
    pub window: Window,
    snapshots: Arc<Snapshots>,
    tables: Mutex<TableSet>,
    followers: Vec<Arc<dyn Follower>>,
}

impl Versions {
    /// Readers see `version`, of which `tables` is the durable side.
    pub fn new(
        shared: Arc<Shared>,
        store: Arc<TableStore>,
        version: Version,
        tables: TableSet,
        followers: Vec<Arc<dyn Follower>>,
    ) -> Self {
        let snapshots = Arc::new(Snapshots::new(&store.jobs));
        Self {
            shared,
            store,
            window: Window::new(tables.last_sequence),
            current: Current::new(version),
            snapshots,
            tables: Mutex::new(tables),
            followers,
        }
    }

    /// What a reader needs, borrowed for as long as one look-up takes.
    pub fn current(&self) -> ArcSwapGuard<Arc<Version>> {
        self.current.get()
    }

    /// What a reader needs, to be held for longer.
    pub fn current_full(&self) -> Arc<Version> {
        self.current.get_full()
    }

    /// Where the current version is found, for parts that look more than once.
    pub fn cell(&self) -> &Current {
        &self.current
    }

    /// The newest sequence that readers see.
    pub fn visible(&self) -> Sequence {
        self.window.visible()
    }

    /// A snapshot of now.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.take(|| self.visible())
    }

    /// Where what holds the database is counted.
    pub fn holders(&self) -> &Arc<Holders> {
        &self.snapshots.holders
    }

    /// Sequences that a merge must keep readable, ascending: those of snapshots, and now.
    pub fn kept_readable(&self) -> Vec<Sequence> {
        self.snapshots.list(|| self.visible())
    }

    /// The oldest sequence that a reader may ask for.
    pub fn oldest_read(&self) -> Sequence {
        self.snapshots.oldest(|| self.visible())
    }

    /// The end of the oldest snapshot wakes the planner, once: what it kept may be merged away. Ask
    /// for [`Versions::oldest_read`] again after this.
    pub fn await_end_of_snapshot(&self) {
        self.snapshots.await_end();
    }

    /// The tables' side, locked.
    pub fn tables(&self) -> MutexGuard<'_, TableSet> {
        self.tables.lock()
    }

    /// Puts another version in place, and wakes the threads that wait for one.
    fn switch(&self, change: impl FnOnce(&Version) -> Version) {
        let changing = self.shared.changing();
        let next = change(&self.current.get());
        self.current.set(next);
        self.shared.signal(&changing);
    }

    /// Readers see `memtable` in the place of the active one, which `frozen` has.
    pub fn freeze(&self, frozen: Arc<Frozen>, memtable: Arc<Memtable>) {
        frozen.memtable.set_frozen();
        self.switch(|version| Version {
            active: memtable,
            frozen: std::iter::once(frozen).chain(version.frozen.iter().cloned()).collect(),
            levels: Arc::clone(&version.levels),
            ended_load: version.ended_load,
        });
        self.followers.iter().for_each(|follower| follower.memtable_was_frozen());
        self.shared.jobs.wake();
    }

    /// Readers see `memtable` in the place of the active one, which is forgotten.
    pub fn replace_active(&self, memtable: Arc<Memtable>) {
        self.switch(|version| Version { active: memtable, ..version.clone() });
    }

    /// The active memtable is about to hold `active_bytes`.
    pub fn memtable_grows(&self, active_bytes: u64) {
        for follower in &self.followers {
            follower.memtable_grows(&self.current, active_bytes);
        }
    }

    /// Waits until the current version is as `done` says; an error once the latch is set.
    pub fn wait_until(&self, done: impl Fn(&Version) -> bool) -> Result<()> {
        self.shared.wait_for(|| done(&self.current()).then_some(()))
    }

    /// Waits until every frozen memtable is flushed, but for those that `is_excepted`.
    pub fn wait_until_flushed(&self, is_excepted: impl Fn(&Frozen) -> bool) -> Result<()> {
        self.wait_until(|version| version.frozen.iter().all(|frozen| is_excepted(frozen)))
    }

    /// Waits until the newest memtable that is frozen now is flushed. Flushes go oldest first.
    pub fn wait_for_flushes(&self) -> Result<()> {
        let newest = self.current().frozen.first().cloned();
        let Some(newest) = newest else { return Ok(()) };
        self.wait_until_flushed(|frozen| !std::ptr::eq(frozen, &*newest))
    }

    /// Counts since the database was made.
    pub fn totals(&self) -> Totals {
        let mut tally = self.shared.tally();
        self.followers.iter().for_each(|follower| follower.count(&mut tally));
        tally.over(&self.shared.totals_before)
    }

    /// Tells followers and placement of the tables of now.
    pub fn levels_changed(&self, tables: &TableSet) {
        self.shared.placement_changed.store(true, Ordering::Relaxed);
        for follower in &self.followers {
            follower.levels_changed(&self.current, &tables.claims);
        }
    }
}
