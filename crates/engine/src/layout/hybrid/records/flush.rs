//! Flush of a memtable into slots.
//!
//! Records go piece by piece (`pieces.rs`), and after the last piece an edit raises the log floor;
//! until then the log has all of them, and recovery finds a record in both places with the same
//! sequence. So the log is made durable before the first piece is. A piece for which there is no
//! room waits for demotions, with nothing written that is not live; where these find no room below
//! (`space/backoff.rs`), for as long as that lasts, while callers that wait are told.

use crate::compaction::rewrite::Retention;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::Frozen;
use crate::jobs::shortage::Moment;
use crate::jobs::{Job, Step};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::records::pieces::{Pieces, piece_bytes};
use crate::table_set::manifest::Edit;
use crate::versions::Change;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::{Origin, TierUsage, TieredFiles};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::{ByteSize, FileNumber, Planted, planted, sync_site};

/// How long a flush that found no slot waits before it looks again.
const WAIT: Duration = Duration::from_micros(500);

/// How long a flush waits at most for the budget or the room of the slow tier before it looks
/// again: hours may be left, and meanwhile copies may go, or a user may empty the tier.
const WAIT_FOR_SLOW_TIER: Duration = Duration::from_secs(1);

/// So many looks in a row without room, and without anything that could make any, are for ever.
const STARVED_MAX: u32 = 200;

/// So many demotions without room below, while there is none up here either, are for ever too.
const REFUSALS_MAX: u64 = 2;

/// After so many looks in a row without room the holder of frees is no reader, which would have let
/// go, but a checkpoint or a check, which takes as long as reading the tier does.
const HELD_MAX: u32 = 20;

/// There are no slots for `what` on any tier.
pub(crate) fn no_room(files: &TieredFiles, what: &str) -> Error {
    let use_of = |tier: &TierUsage| {
        let (used, capacity) = (ByteSize(tier.used_bytes), ByteSize(tier.capacity_bytes));
        let free = tier.space.map(|space| ByteSize(space.free_bytes));
        let free = free.map_or(String::new(), |free| format!(", its device has {free} free"));
        format!("{} uses {used} of {capacity}{free}", tier.spec.path.display())
    };
    let uses: Vec<_> = files.usage().iter().map(use_of).collect();
    let text = format!(
        "no tier has room for {what}: {}; free space there, or raise a capacity",
        uses.join("; ")
    );
    Error::new(ErrorKind::OutOfSpace, text)
}

/// Which memtables may be flushed: all; but while a caller needs a moment at which none is partly
/// in slots, only those that were full before.
#[derive(Debug)]
pub(crate) struct FlushGate {
    /// Logs from this number on are held back.
    held_from: AtomicU64,
    /// The caller that holds flushes back has this lock.
    holder: Mutex<()>,
}

/// Flushes go on when it is dropped.
#[derive(Debug)]
pub(crate) struct FlushesHeld<'a> {
    gate: &'a FlushGate,
    _holder: MutexGuard<'a, ()>,
}

impl Default for FlushGate {
    fn default() -> Self {
        Self { held_from: AtomicU64::new(u64::MAX), holder: Mutex::new(()) }
    }
}

impl FlushGate {
    /// Holds back the memtables whose log is `log` or a later one. Waits while another caller holds
    /// flushes back.
    pub fn hold_from(&self, log: FileNumber) -> FlushesHeld<'_> {
        let holder = self.holder.lock();
        self.held_from.store(log.0, Relaxed);
        FlushesHeld { gate: self, _holder: holder }
    }

    /// The memtable must wait.
    pub fn is_held(&self, frozen: &Frozen) -> bool {
        frozen.generation.number().0 >= self.held_from.load(Relaxed)
    }
}

impl Drop for FlushesHeld<'_> {
    fn drop(&mut self) {
        self.gate.held_from.store(u64::MAX, Relaxed);
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SlotFlush {
    hybrid: Arc<Hybrid>,
    frozen: Arc<Frozen>,
    started: bool,
    pieces: Pieces,
    /// Looks in a row at which there was no room, not even beyond the slots' share of the tier, and
    /// nothing that could make any.
    starved: u32,
    /// When the look began that is under way.
    looks_since: Moment,
    /// Looks in a row at which there was no room and what was freed was held.
    held: u32,
    /// Demotions that had found no room below when this found none up here.
    refusals_before: Option<u64>,
}

impl SlotFlush {
    pub fn new(hybrid: &Arc<Hybrid>, frozen: Arc<Frozen>) -> Self {
        let retention = Retention::new(hybrid.versions.kept_readable(), None);
        let pieces = Pieces::new(&frozen.memtable, retention, Origin::Flush);
        Self {
            hybrid: Arc::clone(hybrid),
            frozen,
            started: false,
            pieces,
            starved: 0,
            looks_since: hybrid.shared.jobs.shortage.begin(),
            held: 0,
            refusals_before: None,
        }
    }

    /// Demotions have been tried again since this found no room, and found none either.
    fn is_refused_for_good(&self, fast: &FastTier) -> bool {
        let refusals = fast.slow_tier_backoff.refusals();
        self.refusals_before.is_some_and(|before| refusals >= before + REFUSALS_MAX)
    }

    /// Room is looked for: demotions that have found none below are tried soon.
    fn hurry(&mut self, fast: &FastTier) {
        let refusals = fast.slow_tier_backoff.refusals();
        // Fewer than before where one has found room meanwhile, and none the next.
        let before = self.refusals_before.map_or(refusals, |before| before.min(refusals));
        self.refusals_before = Some(before);
        fast.slow_tier_backoff.hurry(self.hybrid.shared.clock.now_ns());
    }

    /// There was no room; `for_ever` where waiting will not make any, as it looks. Once it has
    /// looked so for long, for the tier's disk is full of what is not ours, or once demotions were
    /// tried again and found no room either, callers that wait for it hear of it. It goes on from
    /// where it is, for what is in slots already would have to find some again.
    fn note_no_room(&mut self, fast: &FastTier, for_ever: bool) {
        self.starved = if for_ever { self.starved + 1 } else { 0 };
        let shared = &self.hybrid.shared;
        let began = std::mem::replace(&mut self.looks_since, shared.jobs.shortage.begin());
        if self.starved >= STARVED_MAX || self.is_refused_for_good(fast) {
            let what = "new records, and nothing more can leave the fast one";
            let error = no_room(&shared.files, what);
            shared.note_shortage(self.name(), began, &error);
        }
    }

    /// How long to wait before the next look: longer where nothing that is under way makes room,
    /// and the slow tier's budget or room lets nothing begin.
    fn pause(&self, fast: &FastTier) -> Duration {
        let wait = self.hybrid.wait_to_merge();
        let is_demoting = || self.hybrid.versions.tables().claims.has_ranges();
        match wait <= WAIT || fast.room.is_at_work() || is_demoting() {
            true => WAIT,
            false => wait.min(WAIT_FOR_SLOW_TIER),
        }
    }

    /// Writes the piece into slots, if need be of more than their share of the tier; false where
    /// there is no room.
    fn write_piece(&mut self, fast: &FastTier, may_overdraw: bool) -> Result<bool> {
        let found_room = self.pieces.write(fast, may_overdraw)?;
        if found_room {
            self.starved = 0;
            self.refusals_before = None;
        }
        Ok(found_room)
    }

    /// Makes what was written durable and then live; false where nothing was.
    fn settle(&mut self, fast: &FastTier) -> Result<bool> {
        let (hybrid, frozen) = (&self.hybrid, &self.frozen);
        self.pieces.settle(hybrid, fast, || {
            if planted(Planted::FloorRaisedByFirstPiece) {
                let edit =
                    Edit { log_floor: Some(frozen.generation.floor_after()), ..Edit::default() };
                hybrid.versions.commit(&mut hybrid.versions.tables(), edit)?;
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Result<()> {
        let hybrid = &self.hybrid;
        if planted(Planted::LogRetiredBeforeEdit) {
            hybrid.shared.files.delete_files(&[self.frozen.generation.number()])?;
        }
        let edit =
            Edit { log_floor: Some(self.frozen.generation.floor_after()), ..Edit::default() };
        let flushed = Some(Arc::clone(&self.frozen));
        let change = Change { edit, flushed, ..Change::default() };
        let count = || {
            let flushed_bytes = self.pieces.taken_bytes();
            hybrid.shared.counts.flushed_bytes.add(flushed_bytes);
            hybrid.shared.compaction_rate.flushed(flushed_bytes);
        };
        hybrid.versions.commit_counted(&mut hybrid.versions.tables(), change, count)
    }
}

impl Job for SlotFlush {
    fn name(&self) -> &'static str {
        "flush"
    }

    fn step(&mut self) -> Result<Step> {
        let hybrid = Arc::clone(&self.hybrid);
        let fast = &hybrid.fast;
        if !self.started && fast.flushes.is_held(&self.frozen) {
            hybrid.shared.clock.sleep(WAIT);
            return Ok(Step::More);
        }
        if !std::mem::replace(&mut self.started, true) {
            // A piece makes records durable that come after others in the log, so the log must be
            // durable first: what recovery finds is a prefix of what was written, in whole batches.
            if !planted(Planted::LogNotSealedBeforePiece) {
                sync_site("flush", || self.frozen.generation.seal())?;
            }
            fast.lend_memory(hybrid.versions.cell());
        }
        if !self.pieces.fill(&fast.packing, piece_bytes(fast.room.limit_bytes())) {
            self.settle(fast)?;
            self.finish()?;
            return Ok(Step::Done);
        }
        if self.pieces.are_many() {
            self.settle(fast)?;
        }
        if self.write_piece(fast, false)? || self.settle(fast)? {
            // What became live may have freed slots, for a piece that found none before.
            return Ok(Step::More);
        }
        let (is_stuck, is_held) = (fast.room.is_stuck(), fast.slabs.has_held_frees());
        self.held = if is_held { self.held + 1 } else { 0 };
        self.hurry(fast);
        let overdraws = is_stuck || self.held > HELD_MAX || self.is_refused_for_good(fast);
        if overdraws && self.write_piece(fast, true)? {
            return Ok(Step::More);
        }
        hybrid.shared.latch.check()?;
        self.note_no_room(fast, is_stuck && !is_held);
        fast.room.want(self.pieces.waiting_bytes());
        hybrid.shared.jobs.wake();
        hybrid.shared.clock.sleep(self.pause(fast));
        Ok(Step::More)
    }
}

impl Drop for SlotFlush {
    fn drop(&mut self) {
        self.frozen.claimed.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests;
