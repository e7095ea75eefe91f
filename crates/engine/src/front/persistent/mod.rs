//! The front without a log: the groups of writes of a memtable are in an arena of a region of
//! persistent memory (SLM-DB, section 3.1; `crates/pmem`).
//!
//! ```text
//!   admit (write throttle) -> line up (queue.rs)
//!   -> leader: turnstile: room, in memory and in the arena -> sequences and places claimed
//!      -> turnstile let go -> copy, flush, one fence for the group: durable
//!      -> memtable -> slot complete -> all before it complete too: published -> acknowledged
//! ```
//! 1. A group is durable before it is in the memtable, so nothing is read that a crash can take.
//!    The paper needs a fence for each link of its list; here the checksum of each batch says
//!    whether it is whole, and one fence serves the group.
//! 2. A batch is whole after a crash or it is absent, and none is there without those before it:
//!    replay ends at the first hole.
//! 3. Where the region has no room a writer waits for flushes, or is refused with `OutOfSpace`; it
//!    has claimed nothing by then.
//! 4. An arena is freed only after the edit that names its tables is durable (`arenas.rs`).
//! 5. `Sync` and `Buffered` are the same: what is written is as durable as the region.
//!
//! The memtable in ordinary memory has copies of keys and values, as over a log. A leader that
//! fails or panics latches the store.
//!
//! ```text
//!   arenas.rs     room: which arena follows, when one goes
//!   files.rs      the region's file: what it is good for, errors that name it, its removal
//!   new_file.rs   the file of a region that is to be made
//!   opening.rs    the region is made, or opened and checked
//!   leaving.rs    another preset does without the index, or without the region
//!   recovery.rs   groups become memtables again
//!   report.rs     figures
//! ```
//! Threads: any.

mod arenas;
mod files;
pub(crate) mod leaving;
pub(crate) mod new_file;
pub(crate) mod opening;
pub(super) mod recovery;
pub(crate) mod report;

use super::checks::{Led, refuse, without};
use super::figures::{Figures, LogStats};
use super::flying::Flying;
use super::leading::{Leads, batches_of, records_of};
use super::own_sequence::run_with;
use super::queue::{Submission, WriteQueue};
use crate::batch::WriteBatch;
use crate::error::{Error, Result};
use crate::generations::memtable::{ENTRY_OVERHEAD_BYTES, Memtable};
use crate::shared::Shared;
use crate::transaction::{Locks, Refused};
use crate::versions::Versions;
pub(crate) use arenas::Arenas;
use report::RegionStats;
use std::sync::Arc;
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::Record;
use thermocline_pmem::arena::group_bytes;
use thermocline_pmem::{Arena, Claim, GroupHeader};

/// What the thread at the turnstile has: where the next group goes.
#[derive(Debug)]
pub(super) struct Turnstile {
    memtable: Arc<Memtable>,
    arena: Arc<Arena>,
    /// What the memtable takes once all groups are in it that belong there.
    memtable_bytes: u64,
    /// The sequence that is claimed next.
    next: Sequence,
    /// Groups that may not be in a memtable yet.
    flying: Flying,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Persistent {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    arenas: Arc<Arenas>,
    queue: WriteQueue,
    locks: Arc<Locks>,
    turnstile: Mutex<Turnstile>,
    figures: Figures,
}

impl Persistent {
    /// Writes go to `arena`, and to the active memtable of `versions`.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        arenas: &Arc<Arenas>,
        arena: Arc<Arena>,
        locks: &Arc<Locks>,
    ) -> Self {
        let turnstile = Turnstile {
            memtable: Arc::clone(&versions.current().active),
            arena,
            memtable_bytes: 0,
            next: versions.visible().next(),
            flying: Flying::default(),
        };
        Self {
            shared: Arc::clone(shared),
            versions: Arc::clone(versions),
            arenas: Arc::clone(arenas),
            queue: WriteQueue::new(
                shared.settings.groups_in_flight(),
                shared.settings.group_bytes(),
            ),
            locks: Arc::clone(locks),
            turnstile: Mutex::new(turnstile),
            figures: Figures::default(),
        }
    }

    /// Adds to `refused` the batches that no arena takes.
    fn refuse_too_large(&self, group: &[Submission], refused: &mut Vec<(usize, Refused)>) {
        let most = self.arenas.batch_bytes_max();
        for (at, submission) in group.iter().enumerate() {
            let bytes = submission.encoded.len() as u64;
            if bytes > most && refused.iter().all(|(place, _)| *place != at) {
                let error = Error::invalid(format!(
                    "a batch of {bytes} bytes does not fit into the region of persistent memory, \
                     which takes {most} at once, an eighth of its size; write smaller batches, or \
                     make a larger region (repair --rebuild-index --region PATH:SIZE)"
                ));
                refused.push((at, Refused::Failed(error)));
            }
        }
        refused.sort_by_key(|(place, _)| *place);
    }

    /// Gives the records their place in the arena, in order. Room was asked for.
    fn claim(arena: &Arena, records: &[Record<'_>]) -> Vec<Claim> {
        let claim = |record: &Record<'_>| {
            arena.claim(record.payload.len()).expect("the turnstile saw to the room")
        };
        records.iter().map(claim).collect()
    }

    /// Writes the records to their place; durable at return.
    fn store(&self, arena: &Arena, claims: &[Claim], records: &[Record<'_>], durable: Sequence) {
        let group = claims.iter().zip(records).map(|(claim, record)| {
            let header = GroupHeader { first: record.first, count: record.count, durable };
            (claim, header, record.payload)
        });
        let group: Vec<_> = group.collect();
        match self.shared.experiments.group_fence {
            Some(false) => arena.write_linked(&group),
            _ => arena.write_all(&group),
        }
    }

    /// Waits until no write is in flight, and keeps writers out.
    pub fn quiesce(&self) -> Result<QuietArenas<'_>> {
        let quiet = self.enter();
        self.shared.latch.check()?;
        Ok(quiet)
    }

    /// As [`Persistent::quiesce`], also where the store is latched.
    pub fn enter(&self) -> QuietArenas<'_> {
        let mut turnstile = self.turnstile.lock();
        self.versions.window.wait_idle();
        turnstile.flying.published(self.versions.visible());
        QuietArenas { persistent: self, turnstile }
    }

    /// Makes everything acknowledged so far durable: it is.
    pub fn sync(&self) -> Result<()> {
        self.shared.latch.check()
    }

    /// Writers in line behind the leader.
    pub fn waiting_writers(&self) -> u64 {
        self.queue.waiting()
    }

    /// See [`LogStats`].
    pub fn log_stats(&self) -> LogStats {
        let now_ns = self.shared.clock.now_ns();
        let (flying, since_ns) = self.versions.window.flying();
        let oldest_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.figures.stats((flying, oldest_ns))
    }

    /// See [`RegionStats`].
    pub fn region_stats(&self) -> RegionStats {
        RegionStats::of(&self.arenas)
    }

    /// Reads the groups of all memtables again; says how many bytes they take. Writers pause.
    pub fn verify(&self) -> (u64, Result<()>) {
        let quiet = self.enter();
        let version = self.versions.current_full();
        // Of a group that failed there is a place and nothing else.
        if self.shared.latch.check().is_err() {
            return (0, Ok(()));
        }
        let frozen = version.frozen.iter().filter_map(|frozen| frozen.generation.arena());
        let mut bytes = 0;
        for arena in frozen.chain([&*quiet.turnstile.arena]) {
            bytes += arena.used();
            if let Err(error) = arena.verify() {
                return (bytes, Err(self.arenas.named(error)));
            }
        }
        (bytes, Ok(()))
    }
}

impl Leads for Persistent {
    type Turnstile = Turnstile;

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn queue(&self) -> &WriteQueue {
        &self.queue
    }

    fn locks(&self) -> &Locks {
        &self.locks
    }

    fn turnstile(&self) -> &Mutex<Turnstile> {
        &self.turnstile
    }

    fn lead_with(
        &self,
        mut turnstile: MutexGuard<'_, Turnstile>,
        need_locks: bool,
        group: &[Submission],
    ) -> Result<Led> {
        self.shared.latch.check()?;
        turnstile.flying.published(self.versions.visible());
        let flying = &turnstile.flying;
        let mut refused = refuse(&self.shared, &self.versions, need_locks, flying, group)?;
        self.refuse_too_large(group, &mut refused);
        let admitted = without(group, &refused);
        let group = &*admitted;
        if group.is_empty() {
            drop(turnstile);
            // What it conflicts with may still fly: tried again before that is visible, it would
            // only conflict again.
            self.versions.window.wait_claimed();
            return Ok(Led { first: Sequence::ZERO, refused });
        }
        // The thread that gets the lock after a panic must not make a table of half a batch.
        let _guard = self.shared.latch.guard();
        let bytes = group.iter().map(|submission| submission.encoded.len() as u64).sum();
        let count = group.iter().map(|submission| u64::from(submission.count)).sum::<u64>();
        let arena_bytes = group.iter().map(|of| group_bytes(of.encoded.len())).sum();
        self.make_room(&mut turnstile, bytes, arena_bytes)?;
        turnstile.memtable_bytes += bytes + count * ENTRY_OVERHEAD_BYTES;
        self.versions.memtable_grows(turnstile.memtable_bytes);
        self.shared.index_room.came(count);
        let (memtable, arena) = (Arc::clone(&turnstile.memtable), Arc::clone(&turnstile.arena));
        memtable.begin_group();
        let began_ns = self.shared.clock.now_ns();
        let claimed = self.versions.window.claim(count, Some(began_ns));
        self.shared.news.came();
        // Dropped before the group's slot is: a writer that waits for it finds the latch set.
        let _guard = self.shared.latch.guard();
        let records = records_of(group, claimed.first());
        let claims = Self::claim(&arena, &records);
        let durable = self.versions.visible();
        let batches = batches_of(&records, group);
        let batches = batches.map(|(first, encoded)| (first, encoded.clone()));
        turnstile.flying.add(claimed.last(), batches.collect());
        turnstile.next = claimed.last().next();
        drop(turnstile);
        self.store(&arena, &claims, &records, durable);
        self.figures.note_group(group.len());
        self.figures.note_durable(bytes, self.shared.clock.now_ns().saturating_sub(began_ns));
        let inserted = memtable.insert_group(batches_of(&records, group));
        inserted.inspect_err(|error| self.shared.fail(error))?;
        let publication = claimed.complete(true);
        if !self.versions.window.wait(publication) {
            return Err(self.stopped());
        }
        if memtable.end_group() {
            // Its flush may have waited for this group.
            self.shared.jobs.wake();
        }
        self.shared.note_writes(count, bytes);
        Ok(Led { first: records[0].first, refused })
    }
}

/// Nothing is in flight, and no writer comes in, for as long as it lives.
#[derive(Debug)]
pub(crate) struct QuietArenas<'a> {
    persistent: &'a Persistent,
    turnstile: MutexGuard<'a, Turnstile>,
}

impl QuietArenas<'_> {
    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&mut self) -> Result<()> {
        match self.turnstile.memtable_bytes {
            0 => Ok(()),
            _ => self.persistent.rotate(&mut self.turnstile, 0),
        }
    }

    /// The arena of the active memtable. Later ones have larger numbers.
    pub fn arena_number(&self) -> FileNumber {
        self.turnstile.arena.number()
    }

    /// See [`Quiet::with_sequence`](super::Quiet::with_sequence).
    pub fn with_sequence<T>(mut self, body: impl FnOnce(Sequence) -> Result<T>) -> Result<T> {
        let Persistent { shared, versions, .. } = self.persistent;
        let _guard = shared.latch.guard();
        self.freeze()?;
        versions.wait_for_flushes()?;
        // The arena must have the sequence too, or recovery would take the next record for one
        // after a hole.
        let reserved = WriteBatch::new().freeze()?.0;
        let Self { persistent, turnstile } = &mut self;
        persistent.make_room(turnstile, 0, group_bytes(reserved.len()))?;
        let claimed = versions.window.claim(1, Some(shared.clock.now_ns()));
        turnstile.next = claimed.last().next();
        let records = [Record { first: claimed.first(), count: 1, payload: &reserved }];
        let claims = Persistent::claim(&turnstile.arena, &records);
        persistent.store(&turnstile.arena, &claims, &records, versions.visible());
        run_with((shared, versions), claimed, true, body)
    }

    /// Frees the arena of the active memtable, which has no records.
    pub fn discard(self) {
        self.turnstile.arena.free();
    }

    /// Closes the region. The latch has sent all waiting writers away.
    pub fn seal(self) -> Result<()> {
        self.persistent.arenas.close()
    }
}
