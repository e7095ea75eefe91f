//! The running engine: what is shared between callers and background work, and how it changes.
//!
//! Readers take one pointer, the [`ReadState`], and wait for nobody. What changes it:
//!
//! ```text
//!   write path (one leader at a time)   freezes the memtable            [`Engine::rotate`]
//!   flush, compaction, ingest           commit an edit of the tables    [`Engine::commit`]
//! ```
//! Locks, in the order in which they may be taken: `leader`, `tables`, `switching`; `tail` and
//! `logs` alone. `leader` is held across what writers wait for anyway: the log's I/O, the making of
//! a log when none is ready, and, in an ingest, the flush before it. `tables` is held across the
//! commits of manifest and file map. The others are never held across I/O. Background jobs never
//! take
//! `leader`, because its holder may be waiting for one of them.
//!
//! Invariants:
//! 1. Every acknowledged record is in the active memtable, a frozen one, a live slot that the index
//!    of the fast tier knows, or a table of the current levels.
//! 2. A record is in a log with a number at or above the manifest's log floor until its table, or
//!    the last slot of its memtable, is committed.
//! 3. `visible` is the sequence of the newest record that readers see; all records up to it are in
//!    memtables or tables. A reader loads the read state before `visible`.

use crate::compaction::cost_benefit::KeyRange;
use crate::compaction::leveled::{self, Claim};
use crate::compaction::pacing::Pacing;
use crate::compaction::tempo::Tempo;
use crate::error::{Error, ErrorKind, Latch, Result};
use crate::front::memtable::Memtable;
use crate::front::slabs::{FastTier, SlotEdit};
use crate::jobs::{Job, Jobs, Step};
use crate::manifest::{Edit, Manifest, broken_slots};
use crate::settings::{Durability, Settings};
use crate::snapshot::Snapshots;
use crate::stats::{Metrics, Totals};
use crate::table_set::levels::Levels;
use crate::table_set::table::TableStore;
use crate::write_path::{Leader, LogTail, WriteQueue};
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin, Placement, TieredFiles};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_foundation::sync::{ArcSwap, Condvar, Mutex};
use thermocline_foundation::{Clock, FileNumber, Planted, Sequence, planted};
use thermocline_log::{LogHeader, LogSettings, LogWriter};
use thermocline_slab::LiveSlots;

/// What a reader needs, at one moment.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub frozen: Vec<Arc<Frozen>>,
    pub levels: Arc<Levels>,
}

impl ReadState {
    /// The state with other levels, which have what was in `flushed`.
    fn with_levels(&self, levels: &Arc<Levels>, flushed: Option<&Arc<Frozen>>) -> Self {
        let is_left =
            |frozen: &&Arc<Frozen>| !flushed.is_some_and(|flushed| Arc::ptr_eq(frozen, flushed));
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.iter().filter(is_left).cloned().collect(),
            levels: Arc::clone(levels),
        }
    }

    /// Nothing has been written since everything was flushed.
    pub fn is_calm(&self) -> bool {
        self.frozen.is_empty() && self.active.count() == 0
    }
}

/// A full memtable on its way to a table.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub memtable: Arc<Memtable>,
    pub log: Arc<LogFile>,
    /// The log that followed; the floor once this memtable is in a table.
    pub next_log: FileNumber,
    pub claimed: AtomicBool,
}

/// A log in use.
#[derive(Debug)]
pub(crate) struct LogFile {
    pub number: FileNumber,
    pub writer: LogWriter,
    sealed: Mutex<bool>,
}

impl LogFile {
    pub fn new(number: FileNumber, writer: LogWriter) -> Self {
        Self { number, writer, sealed: Mutex::new(false) }
    }

    /// The log has ended, durably. Says no while that is under way.
    pub fn is_sealed(&self) -> bool {
        self.sealed.try_lock().is_some_and(|sealed| *sealed)
    }

    /// Ends the log durably, once. No append may follow.
    pub fn seal(&self) -> Result<()> {
        let mut sealed = self.sealed.lock();
        if !*sealed {
            self.writer.seal()?;
            *sealed = true;
        }
        Ok(())
    }
}

/// The tables' side: held while an edit is made durable.
#[derive(Debug)]
pub(crate) struct TableState {
    pub manifest: Manifest,
    /// Outputs of running compactions and ingests.
    pub claims: Vec<Claim>,
    /// The slots of the fast tier that hold records.
    pub slots: LiveSlots,
    /// Ranges of running demotions.
    pub ranges: Vec<KeyRange>,
    /// Callers that wait for tables which running compactions hold.
    pub claimants: usize,
    pub log_floor: FileNumber,
    pub last_sequence: Sequence,
    /// What the manifest says was durable at the last closing.
    pub durable_sequence: Sequence,
}

/// Logs that wait to be used again, and the next one, ready.
#[derive(Debug, Default)]
pub(crate) struct LogPool {
    pub ready: Option<Arc<LogFile>>,
    pub retired: Vec<FileNumber>,
    /// A background job is making one.
    pub preparing: bool,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Engine {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<TieredFiles>,
    pub store: Arc<TableStore>,
    /// Records on the fast tier; none but with the preset `hybrid`.
    pub fast: Option<FastTier>,
    pub placement: Arc<dyn Placement>,
    pub read_state: ArcSwap<ReadState>,
    pub switching: Mutex<()>,
    pub visible: AtomicU64,
    pub snapshots: Arc<Snapshots>,
    pub latch: Latch,
    pub jobs: Arc<Jobs>,
    pub pacing: Pacing,
    pub tempo: Tempo,
    pub metrics: Metrics,
    /// What was counted before this opening.
    pub totals_before: Totals,
    pub queue: WriteQueue,
    pub leader: Mutex<Leader>,
    pub tail: Mutex<LogTail>,
    pub logs: Mutex<LogPool>,
    pub tables: Mutex<TableState>,
    /// Signalled, with `switching`, when a frozen memtable is gone or the latch was set.
    pub room: Condvar,
    /// Log bytes that no sync covers yet.
    pub unsynced_bytes: AtomicU64,
    pub sync_wanted: AtomicBool,
    /// Levels or their targets changed since somebody looked for tables on the wrong tier.
    pub placement_changed: AtomicBool,
    /// A migration runs, or failed and is not tried again before the next open.
    pub migrating: AtomicBool,
}

impl Engine {
    /// The newest sequence that readers see.
    pub fn visible(&self) -> Sequence {
        Sequence(self.visible.load(Ordering::Acquire))
    }

    /// Puts another read state in place.
    pub fn switch(&self, change: impl FnOnce(&ReadState) -> ReadState) {
        let _switching = self.switching.lock();
        let next = change(&self.read_state.load());
        self.read_state.store(Arc::new(next));
        self.room.notify_all();
    }

    /// Stops all writing because of `error`, and wakes whoever waits for room.
    pub fn fail(&self, error: &Error) {
        self.latch.set(error);
        self.send_away();
    }

    /// As [`Engine::fail`], because `who` panicked and said `text`.
    pub fn fail_by_panic(&self, who: &str, text: &str) {
        self.latch.set_panic(who, text);
        self.send_away();
    }

    fn send_away(&self) {
        let _switching = self.switching.lock();
        self.room.notify_all();
    }

    /// The whole of a compaction or demotion, on the calling thread.
    pub fn carry_out(&self, job: &mut dyn Job) -> Result<()> {
        let run = (|| {
            while job.step()? == Step::More {
                self.latch.check()?;
            }
            Ok(())
        })();
        run.inspect_err(|error: &Error| {
            // No room for the output, or an input that cannot be read: nothing was changed.
            if !matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Corrupt) {
                self.fail(error);
            }
        })
    }

    /// Makes `edit` durable and shows it to readers; `flushed` is the memtable that it makes
    /// superfluous. A failure latches the store: the manifest may or may not hold the edit.
    pub fn commit(
        &self,
        tables: &mut TableState,
        edit: Edit,
        flushed: Option<&Arc<Frozen>>,
    ) -> Result<()> {
        self.commit_slots(tables, edit, &SlotEdit::default(), flushed)
    }

    /// As [`Engine::commit`], with what changes on the fast tier: all of it or nothing.
    pub fn commit_slots(
        &self,
        tables: &mut TableState,
        mut edit: Edit,
        slots: &SlotEdit,
        flushed: Option<&Arc<Frozen>>,
    ) -> Result<()> {
        self.latch.check()?;
        let _guard = self.latch.guard();
        let newest = edit.added.iter().map(|(_, meta)| meta.largest_sequence).max();
        let born = slots.born.iter().map(|new| new.entry.sequence).max();
        let newest = newest.max(edit.last_sequence).max(born);
        tables.last_sequence = tables.last_sequence.max(newest.unwrap_or_default());
        edit.last_sequence = Some(tables.last_sequence);
        edit.totals = Some(self.totals());
        if let Some(floor) = edit.log_floor {
            tables.log_floor = floor;
        }
        let before = Arc::clone(&self.read_state.load().levels);
        let after = self.levels_after(&before, &edit)?;
        if let Some(fast) = &self.fast {
            edit.slabs = fast.changes(&tables.slots, slots);
            for change in &edit.slabs {
                tables.slots.apply(change).map_err(broken_slots).inspect_err(|e| self.fail(e))?;
            }
        }
        if let Some(sequence) = edit.durable_sequence {
            tables.durable_sequence = sequence;
        }
        let (log_floor, last_sequence) = (tables.log_floor, tables.last_sequence);
        let live = &tables.slots;
        let totals = edit.totals.clone();
        let durable_sequence = Some(tables.durable_sequence);
        let whole = || Edit {
            totals,
            durable_sequence,
            ..full_state(&after, live, log_floor, last_sequence)
        };
        let kept = |number| edit.added.iter().any(|(_, meta)| meta.number == number);
        let early = planted(Planted::InputsDeletedBeforeEdit);
        if early {
            let gone = edit.removed.iter().map(|(_, number)| *number);
            self.files.delete_files(&gone.filter(|n| !kept(*n)).collect::<Vec<_>>())?;
        }
        if let Err(error) = tables.manifest.commit(&edit, whole) {
            self.fail(&error);
            return Err(error);
        }
        if planted(Planted::EditBeforeTables) {
            self.files.publish(&self.unpublished_of(&edit))?;
        }
        if let Some(fast) = &self.fast {
            fast.arrive(slots);
        }
        self.switch(|state| state.with_levels(&after, flushed));
        for (level, number) in &edit.removed {
            if !early
                && !kept(*number)
                && let Some(table) = before.find(usize::from(*level), *number)
            {
                table.doom();
            }
        }
        if let Some(fast) = &self.fast {
            fast.depart(slots);
        }
        self.levels_changed(&after);
        self.jobs.wake();
        Ok(())
    }

    /// The tables after an edit; the same ones where it changes only slots, so that nobody need ask
    /// them anew.
    fn levels_after(&self, before: &Arc<Levels>, edit: &Edit) -> Result<Arc<Levels>> {
        if edit.added.is_empty() && edit.removed.is_empty() {
            return Ok(Arc::clone(before));
        }
        Ok(Arc::new(before.apply(edit, &self.store)?))
    }

    /// Tables that the edit adds and the namespace would lose in a crash: none, but for a planted
    /// bug.
    fn unpublished_of(&self, edit: &Edit) -> Vec<FileNumber> {
        let files = self.files.files().into_iter().filter(|info| !info.published);
        let is_added = |number| edit.added.iter().any(|(_, meta)| meta.number == number);
        files.map(|info| info.number).filter(|number| is_added(*number)).collect()
    }

    /// Keeps what was counted and how far the logs go, durably, unless nothing was asked since
    /// opening.
    pub fn keep_totals(&self) -> Result<()> {
        let metrics = &self.metrics;
        let asked = [&metrics.gets, &metrics.scans, &metrics.writes, &metrics.ingested_bytes];
        if asked.iter().all(|counter| counter.get() == 0) {
            return Ok(());
        }
        let durable_sequence = Some(self.visible());
        self.sync()?;
        let edit = Edit { durable_sequence, ..Edit::default() };
        self.commit(&mut self.tables.lock(), edit, None)
    }

    /// Tells pacing and placement about the sizes of the levels.
    pub fn levels_changed(&self, levels: &Levels) {
        self.placement_changed.store(true, Ordering::Relaxed);
        if let Some(fast) = &self.fast {
            fast.levels_changed(self, levels);
            return;
        }
        self.pacing.set_backlog(levels.level(0).len());
        self.fit_cache(levels);
        let targets = leveled::targets(levels, &self.settings);
        let behind = leveled::have_fallen_behind(levels, &targets, &self.settings);
        self.tempo.set_levels(targets.work(), behind);
        let leveled::Targets { base, bytes: mut targets } = targets;
        for (level, target) in targets.iter_mut().enumerate() {
            // Room that a level does not use is for guests; the base comes and goes like level 0.
            if level != base || *target == 0 {
                let bytes = levels.level_bytes(level);
                *target = if *target == 0 { bytes } else { bytes.min(*target) };
            }
        }
        // What level 0 holds before it is compacted: room for it must not come and go.
        targets[0] = targets[0].max(leveled::batch_bytes(&self.settings));
        self.placement.set_level_targets(&targets);
    }

    /// Gives the block cache what pinned indexes leave of its share of memory.
    fn fit_cache(&self, levels: &Levels) {
        let share = self.settings.division().cache_bytes;
        let pinned: u64 = levels.tables().map(|(_, table)| table.pinned_bytes()).sum();
        self.store.cache.set_capacity(share.saturating_sub(pinned).max(share / 8));
    }

    /// The log to follow `current`: a prepared one, or one made now. Its number is above
    /// `current`'s: recovery replays logs in the order of their numbers, and the floor below which
    /// it looks at none is a number.
    pub fn next_log(&self, current: FileNumber) -> Result<Arc<LogFile>> {
        let ready = self.logs.lock().ready.take();
        match ready {
            Some(ready) if ready.number > current => return Ok(ready),
            // It was being prepared while the current one was made and overtook it.
            Some(late) => self.retire_log(&late)?,
            None => {}
        }
        self.make_log(Origin::Foreground)
    }

    /// Makes a log as [`make_log`] does, from a retired file where there is one.
    pub fn make_log(&self, origin: Origin) -> Result<Arc<LogFile>> {
        let retired = self.logs.lock().retired.pop();
        make_log(&self.files, &self.settings, retired, origin)
    }

    /// Puts away a log whose records are all in tables.
    pub fn retire_log(&self, log: &LogFile) -> Result<()> {
        let reusable = log.writer.bytes() <= 2 * log_settings(&self.settings).segment_bytes;
        {
            let mut logs = self.logs.lock();
            if reusable && (logs.retired.len() as u64) < self.settings.retired_logs_max() {
                logs.retired.push(log.number);
                return Ok(());
            }
        }
        self.files.delete_files(&[log.number])?;
        self.room_freed();
        Ok(())
    }

    /// A file is gone, which placement counted until now: there may be room for what it would
    /// rather have elsewhere.
    pub fn room_freed(&self) {
        self.placement_changed.store(true, Ordering::Relaxed);
    }
}

fn log_settings(settings: &Settings) -> LogSettings {
    let segment_bytes = settings.log_bytes();
    let growth_bytes = (segment_bytes / 4).clamp(64 << 10, 16 << 20);
    let buffer_bytes = (settings.division().memtable_bytes / 16).clamp(64 << 10, 512 << 10);
    LogSettings { segment_bytes, growth_bytes, buffer_bytes: buffer_bytes as usize }
}

/// Makes a log whose header is durable and which the namespace knows.
pub(crate) fn make_log(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<FileNumber>,
    origin: Origin,
) -> Result<Arc<LogFile>> {
    let context = FileContext { kind: FileKind::Log, origin };
    let log_settings = log_settings(settings);
    let file = match retired {
        Some(number) => files.recycle(number, context)?,
        None => files.create_file(context, log_settings.segment_bytes)?,
    };
    // A write that is not to be synced needs no device: a page each time would be written for it,
    // and waited for.
    if settings.durability == Durability::Buffered {
        file.use_page_cache()?;
    }
    let number = file.number();
    // The next log is made before anybody knows which record it will begin with.
    let first_sequence = Sequence::ZERO.next();
    let header = LogHeader { stream: 0, previous: retired, first_sequence };
    let writer = LogWriter::create(file, header, log_settings)?;
    files.publish(&[number])?;
    Ok(Arc::new(LogFile::new(number, writer)))
}

/// The edit that makes a whole state out of nothing.
pub(crate) fn full_state(
    levels: &Levels,
    live: &LiveSlots,
    log_floor: FileNumber,
    last_sequence: Sequence,
) -> Edit {
    Edit {
        added: levels.snapshot(),
        removed: Vec::new(),
        slabs: Vec::new(),
        live_slots: (!live.is_empty()).then(|| live.clone()),
        log_floor: Some(log_floor),
        last_sequence: Some(last_sequence),
        totals: None,
        durable_sequence: None,
    }
}
