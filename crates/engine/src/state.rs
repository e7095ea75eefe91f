//! The running engine: what is shared between callers and background work, and how it changes.
//!
//! Readers take one pointer, the [`ReadState`], and wait for nobody. What changes it:
//!
//! ```text
//!   write path (one leader at a time)   freezes the memtable            [`Engine::rotate`]
//!   flush, compaction, ingest           commit an edit of the tables    [`Engine::commit`]
//! ```
//! Locks, in the order in which they may be taken: `leader`, `tables`, `switching`. None is held
//! across I/O, except
//! `leader` across the log's and `tables` across the manifest's.
//!
//! Invariants:
//! 1. Every acknowledged record is in the active memtable, a frozen one, or a table of the current
//!    levels.
//! 2. A record is in a log with a number at or above the manifest's log floor until its table is
//!    committed.
//! 3. `visible` is the sequence of the newest record that readers see; all records up to it are in
//!    memtables or tables. A reader loads the read state before `visible`.

use crate::compaction::leveled::{self, Claim};
use crate::compaction::pacing::Pacing;
use crate::error::{Latch, Result};
use crate::front::memtable::Memtable;
use crate::jobs::Jobs;
use crate::manifest::{Edit, Manifest};
use crate::settings::Settings;
use crate::snapshot::Snapshots;
use crate::stats::Metrics;
use crate::table_set::levels::Levels;
use crate::table_set::table::TableStore;
use crate::write_path::{Leader, WriteQueue};
use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_device::{FileContext, FileKind, Origin, Placement, TieredFiles};
use thermocline_foundation::{Clock, FileNumber, Sequence};
use thermocline_log::{LogHeader, LogPosition, LogSettings, LogWriter};

/// What a reader needs, at one moment.
#[derive(Debug)]
pub(crate) struct ReadState {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub frozen: Vec<Arc<Frozen>>,
    pub levels: Arc<Levels>,
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

/// What a background sync makes durable, oldest first: a record counts as durable only when all
/// before it are.
#[derive(Debug)]
pub(crate) struct WantedSync {
    pub older: Vec<Arc<LogFile>>,
    pub log: Arc<LogFile>,
    pub position: LogPosition,
}

impl LogFile {
    pub fn new(number: FileNumber, writer: LogWriter) -> Self {
        Self { number, writer, sealed: Mutex::new(false) }
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

    /// [`LogFile::seal`] was done.
    pub fn is_sealed(&self) -> bool {
        *self.sealed.lock()
    }
}

/// The tables' side: held while an edit is made durable.
#[derive(Debug)]
pub(crate) struct TableState {
    pub manifest: Manifest,
    /// Outputs of running compactions and ingests.
    pub claims: Vec<Claim>,
    pub log_floor: FileNumber,
    pub last_sequence: Sequence,
}

/// Logs that wait to be used again, and the next one, ready.
#[derive(Debug, Default)]
pub(crate) struct LogPool {
    pub ready: Option<Arc<LogFile>>,
    pub retired: Vec<FileNumber>,
    /// A background job is making one.
    pub preparing: bool,
}

/// Retired logs that are kept for reuse.
const RETIRED_MAX: usize = 2;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Engine {
    pub settings: Settings,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<TieredFiles>,
    pub store: Arc<TableStore>,
    pub placement: Arc<dyn Placement>,
    pub read_state: ArcSwap<ReadState>,
    pub switching: Mutex<()>,
    pub visible: AtomicU64,
    pub snapshots: Arc<Snapshots>,
    pub latch: Latch,
    pub jobs: Arc<Jobs>,
    pub pacing: Pacing,
    pub metrics: Metrics,
    pub queue: WriteQueue,
    pub leader: Mutex<Leader>,
    pub logs: Mutex<LogPool>,
    pub tables: Mutex<TableState>,
    /// Signalled, with `switching`, when a frozen memtable is gone or the latch was set.
    pub room: Condvar,
    /// Left by a writer, taken by the urgent worker, which must not wait for a writer: one that
    /// waits for room waits for that worker.
    pub sync_wanted: Mutex<Option<WantedSync>>,
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
    pub fn fail(&self, error: &crate::Error) {
        self.latch.set(error);
        let _switching = self.switching.lock();
        self.room.notify_all();
    }

    /// Makes `edit` durable and shows it to readers; `flushed` is the memtable that it makes
    /// superfluous. A failure latches the store: the manifest may or may not hold the edit.
    pub fn commit(
        &self,
        tables: &mut TableState,
        mut edit: Edit,
        flushed: Option<&Arc<Frozen>>,
    ) -> Result<()> {
        self.latch.check()?;
        // An ingest's sequence is not visible yet.
        let added = edit.added.iter().map(|(_, meta)| meta.largest_sequence).max();
        let newest = self.visible().max(added.unwrap_or_default());
        tables.last_sequence = tables.last_sequence.max(newest);
        edit.last_sequence = Some(tables.last_sequence);
        if let Some(floor) = edit.log_floor {
            tables.log_floor = floor;
        }
        let before = Arc::clone(&self.read_state.load().levels);
        let after = Arc::new(before.apply(&edit, &self.store)?);
        let (log_floor, last_sequence) = (tables.log_floor, tables.last_sequence);
        let whole = || full_state(&after, log_floor, last_sequence);
        if let Err(error) = tables.manifest.commit(&edit, whole) {
            self.fail(&error);
            return Err(error);
        }
        self.switch(|state| ReadState {
            active: Arc::clone(&state.active),
            frozen: state
                .frozen
                .iter()
                .filter(|frozen| !flushed.is_some_and(|flushed| Arc::ptr_eq(frozen, flushed)))
                .cloned()
                .collect(),
            levels: Arc::clone(&after),
        });
        for (_, table) in before.tables() {
            if after.tables().all(|(_, kept)| !Arc::ptr_eq(kept, table)) {
                table.doom();
            }
        }
        self.levels_changed(&after);
        self.jobs.wake();
        Ok(())
    }

    /// Tells pacing and placement about the sizes of the levels.
    pub fn levels_changed(&self, levels: &Levels) {
        self.pacing.set_backlog(levels.level(0).len());
        let mut targets = leveled::targets(levels, &self.settings).bytes;
        for (level, target) in targets.iter_mut().enumerate() {
            *target = (*target).max(levels.level_bytes(level));
        }
        targets[0] = targets[0].max(self.settings.division().memtable_bytes * 2);
        self.placement.set_level_targets(&targets);
    }

    /// The log to follow `current`: a prepared one, or one made now.
    pub fn next_log(&self, current: FileNumber) -> Result<Arc<LogFile>> {
        let ready = self.logs.lock().ready.take();
        match ready {
            // Recovery replays logs by number, and the floor is one, so numbers must grow in the
            // order of use. A log whose preparation was overtaken by one made here does not fit.
            Some(ready) if ready.number < current => self.retire_log(&ready)?,
            Some(ready) => return Ok(ready),
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
        let reusable = log.writer.bytes() <= 2 * log_segment_bytes(&self.settings);
        {
            let mut logs = self.logs.lock();
            if reusable && logs.retired.len() < RETIRED_MAX {
                logs.retired.push(log.number);
                return Ok(());
            }
        }
        Ok(self.files.delete_files(&[log.number])?)
    }
}

/// Bytes reserved for a log. A memtable's overhead is not in the log, nor are a log's checksums in
/// the memtable; a full memtable's log fits.
fn log_segment_bytes(settings: &Settings) -> u64 {
    settings.division().memtable_bytes.next_multiple_of(1 << 20)
}

/// Makes a log whose header is durable and which the namespace knows.
pub(crate) fn make_log(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<FileNumber>,
    origin: Origin,
) -> Result<Arc<LogFile>> {
    let context = FileContext { kind: FileKind::Log, origin };
    let segment_bytes = log_segment_bytes(settings);
    let file = match retired {
        Some(number) => files.recycle(number, context)?,
        None => files.create_file(context, segment_bytes)?,
    };
    let number = file.number();
    // A log takes all before its first sequence for durable. The records of the log before may not
    // be yet when this one is made, so it claims nothing.
    let first_sequence = Sequence::ZERO.next();
    let header = LogHeader { stream: 0, previous: retired, first_sequence };
    // Each log has two buffers, and there are several logs.
    let buffer_bytes = (settings.division().memtable_bytes / 8).clamp(64 << 10, 512 << 10) as usize;
    let log_settings = LogSettings { segment_bytes, buffer_bytes, ..Default::default() };
    let writer = LogWriter::create(file, header, log_settings)?;
    files.publish(&[number])?;
    Ok(Arc::new(LogFile::new(number, writer)))
}

/// The edit that makes a whole state out of nothing.
pub(crate) fn full_state(levels: &Levels, log_floor: FileNumber, last_sequence: Sequence) -> Edit {
    Edit {
        added: levels.snapshot(),
        removed: Vec::new(),
        log_floor: Some(log_floor),
        last_sequence: Some(last_sequence),
    }
}
