//! The running engine: what is shared between callers and background work, and how it changes.
//!
//! Readers take one pointer, the [`ReadState`], and wait for nobody. What changes it:
//!
//! ```text
//!   write path (one leader at a time)   freezes the memtable            [`Engine::rotate`]
//!   flush, compaction, ingest           commit an edit of the tables    [`Engine::commit`]
//! ```
//! Locks, in the order in which they may be taken: `leader`, `tables`, `switching`, `logs`; `tail`
//! alone. `leader` is held across what writers wait for anyway: the log's I/O, the making of a log
//! when none is ready, and, in an ingest, the flush before it. `tables` is held across the commits
//! of manifest and file map. The others are never held across I/O. Background jobs never take
//! `leader`, because its holder may be waiting for one of them.
//!
//! Invariants:
//! 1. Every acknowledged record is in the active memtable, a frozen one, a live slot that the index
//!    of the fast tier knows, or a table of the current levels.
//! 2. A record is in a log with a number at or above the manifest's log floor until its table, or
//!    the last slot of its memtable, is committed.
//! 3. `visible` is the sequence of the newest record that readers see; all records up to it are in
//!    memtables or tables. A reader loads the read state before `visible`.

use crate::compaction::key_range::KeyRange;
use crate::compaction::leveled::{self, Claim};
use crate::compaction::pacing::Pacing;
use crate::compaction::tempo::Tempo;
use crate::error::{Error, ErrorKind, Latch, Result};
use crate::front::memtable::Memtable;
use crate::front::slabs::{FastTier, SlotEdit};
use crate::jobs::{Job, Jobs, Step};
use crate::make_log::make_log;
use crate::manifest::{Edit, Manifest, broken_slots};
use crate::settings::{RETIRED_LOGS_MAX, Settings};
use crate::snapshot::Snapshots;
use crate::table_set::levels::Levels;
use crate::table_set::table::TableStore;
use crate::totals::{Metrics, Totals};
use crate::write_path::{Leader, LogTail, WriteQueue};
use std::sync::Arc;
use thermocline_device::{Origin, Placement, TierIndex, TieredFiles};
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_foundation::sync::{ArcSwap, Condvar, Mutex};
use thermocline_foundation::{Clock, FileNumber, Planted, Sequence, planted};
use thermocline_log::LogWriter;
use thermocline_slab::LiveSlots;

/// What a reader needs, at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ReadState {
    pub active: Arc<Memtable>,
    /// Newest first.
    pub frozen: Vec<Arc<Frozen>>,
    pub levels: Arc<Levels>,
    /// The sequence of the newest bulk load whose tables are gone, and of whose records the index
    /// may still have the older versions; zero where there is none.
    pub ended_load: Sequence,
}

impl ReadState {
    /// The state with other levels, which have what was in `flushed`, and what the load that has
    /// ended with this had.
    fn with_levels(
        &self,
        levels: &Arc<Levels>,
        flushed: Option<&Arc<Frozen>>,
        ended_load: Sequence,
    ) -> Self {
        let is_left =
            |frozen: &&Arc<Frozen>| !flushed.is_some_and(|flushed| Arc::ptr_eq(frozen, flushed));
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.iter().filter(is_left).cloned().collect(),
            levels: Arc::clone(levels),
            ended_load,
        }
    }

    /// The state once all have left the index that a load which has ended replaced.
    fn without_ended_load(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            frozen: self.frozen.clone(),
            levels: Arc::clone(&self.levels),
            ended_load: Sequence::ZERO,
        }
    }

    /// Records of the fast tier may be older than what a bulk load has of their keys.
    pub fn has_loads(&self) -> bool {
        self.ended_load.max(self.levels.newest_ingest_of_all()) > Sequence::ZERO
    }

    /// A bulk load may have a newer version of `key` than that of `sequence`, which the index gave
    /// *after* this state was loaded. Of a later state this would say nothing: what ends a load
    /// takes its tables first, and then what it replaced from the index.
    pub fn may_be_loaded_over(&self, key: &[u8], hash: u64, sequence: Sequence) -> bool {
        sequence < self.ended_load || self.levels.may_be_loaded_over(key, hash, sequence)
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
    /// At most so many slots hold a version that is not the newest of its key in slots.
    pub older_versions: u64,
}

/// Logs that wait to be used again, and the next one, ready.
///
/// 1. One log is made at a time, so numbers ascend: who needs one that is being prepared waits.
/// 2. There are never more than [`Settings::logs_max`], which is at least `MEMTABLES`. In the
///    background a new one is made only while fewer are there; else a retired one is made anew,
///    which makes none more. A writer who needs a log has waited until one memtable less is frozen
///    than there may be, and a log is retired, or gone, before any writer sees that its memtable is
///    flushed. So at most `MEMTABLES - 1` logs are in use then, and any other is ready or retired:
///    the writer takes the one or makes the other anew, and a new one where there is none.
#[derive(Debug)]
pub(crate) struct LogPool {
    pub ready: Option<Arc<LogFile>>,
    pub retired: Vec<FileNumber>,
    /// Somebody is making one.
    pub making: bool,
    /// All logs since opening that are not deleted, the one being made included.
    there: u64,
}

impl LogPool {
    /// The first log, in use.
    pub fn new() -> Self {
        Self { ready: None, retired: Vec::new(), making: false, there: 1 }
    }

    /// The next log is wanted, and can be made without there being more than `logs_max`.
    pub fn may_prepare(&self, logs_max: u64) -> bool {
        let may_make = !self.retired.is_empty() || self.there < logs_max;
        self.ready.is_none() && !self.making && may_make
    }

    /// A retired log to be made anew; none, and one more is there, where there is none.
    fn take_retired(&mut self) -> Option<FileNumber> {
        let retired = self.retired.pop();
        self.there += u64::from(retired.is_none());
        retired
    }
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
    /// Damage of logs that the opening met, and that cost nothing.
    pub mended: Vec<(FileNumber, TierIndex, Error)>,
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
    /// Signalled, with `switching`, when a frozen memtable is gone, a log is ready or the latch was
    /// set.
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
        let older_versions = Some(tables.older_versions).filter(|_| !live.is_empty());
        edit.older_versions = older_versions.filter(|_| !edit.slabs.is_empty());
        let whole = || Edit {
            totals,
            durable_sequence,
            older_versions,
            ..full_state(&after, live, log_floor, last_sequence)
        };
        let early = planted(Planted::InputsDeletedBeforeEdit);
        if early {
            let gone = gone_of(&edit).map(|(_, number)| number);
            self.files.delete_files(&gone.collect::<Vec<_>>())?;
        }
        if let Err(error) = tables.manifest.commit(&edit, whole) {
            self.fail(&error);
            return Err(error);
        }
        if planted(Planted::EditBeforeTables) {
            self.files.publish(&self.unpublished_of(&edit))?;
        }
        self.show((&before, &after), slots, flushed)?;
        for (level, number) in gone_of(&edit).filter(|_| !early) {
            if let Some(table) = before.find(usize::from(level), number) {
                table.doom();
            }
        }
        self.levels_changed(&after);
        self.jobs.wake();
        Ok(())
    }

    /// Shows readers an edit that is durable: what was born, in the place of what it succeeds; then
    /// tables and memtables; and last that the other dead are gone. So a record is found at every
    /// moment.
    fn show(
        &self,
        (before, after): (&Levels, &Arc<Levels>),
        slots: &SlotEdit,
        flushed: Option<&Arc<Frozen>>,
    ) -> Result<()> {
        if let Some(fast) = &self.fast {
            fast.arrive(slots);
        }
        if let Some(frozen) = flushed.filter(|_| !planted(Planted::LogRetiredBeforeEdit)) {
            // Before a writer sees room for a memtable more, which wants a log.
            self.retire_log(&frozen.log).inspect_err(|error| self.fail(error))?;
        }
        let ended_load = match planted(Planted::IngestEndsBeforeDepartures) {
            true => Sequence::ZERO,
            false => before.newest_load_ended(after),
        };
        self.switch(|state| state.with_levels(after, flushed, ended_load));
        if let Some(fast) = &self.fast {
            fast.depart(slots);
        }
        if ended_load > Sequence::ZERO {
            self.switch(ReadState::without_ended_load);
        }
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
        let mut switching = self.switching.lock();
        let ready = loop {
            let mut logs = self.logs.lock();
            let ready = logs.ready.take();
            if ready.is_some() || !logs.making {
                logs.making |= ready.is_none();
                break ready;
            }
            drop(logs);
            self.latch.check()?;
            self.jobs.wait(&self.room, &mut switching);
        };
        drop(switching);
        let next = match ready {
            Some(ready) => ready,
            None => {
                let made = self.make_log(Origin::Foreground);
                self.logs.lock().making = false;
                made?
            }
        };
        assert!(next.number > current, "logs are made one after the other");
        Ok(next)
    }

    /// Makes a log as [`make_log`] does, from a retired file where there is one. One that cannot be
    /// made ends all writing, so it goes on being counted.
    fn make_log(&self, origin: Origin) -> Result<Arc<LogFile>> {
        let retired = self.logs.lock().take_retired();
        make_log(&self.files, &self.settings, retired, origin)
    }

    /// Makes the log that the next memtable begins with.
    pub fn prepare_log(&self) -> Result<()> {
        let made = self.make_log(Origin::Foreground);
        {
            let mut logs = self.logs.lock();
            logs.making = false;
            logs.ready = Some(made?);
        }
        let _switching = self.switching.lock();
        self.room.notify_all();
        Ok(())
    }

    /// Puts away a log whose records are all in tables. It is kept for use as a log again unless it
    /// takes more than a log should, or lies on a tier to which logs only overflow.
    fn retire_log(&self, log: &LogFile) -> Result<()> {
        let bytes_max = self.settings.full_log_bytes().min(2 * self.settings.log_bytes());
        let is_home = log.writer.file().tier() == TierIndex(0);
        {
            let mut logs = self.logs.lock();
            let is_kept = logs.retired.len() < RETIRED_LOGS_MAX;
            if is_kept && is_home && log.writer.bytes() <= bytes_max {
                logs.retired.push(log.number);
                return Ok(());
            }
        }
        self.files.delete_files(&[log.number])?;
        self.logs.lock().there -= 1;
        self.room_freed();
        Ok(())
    }

    /// A file is gone, which placement counted until now: there may be room for what it would
    /// rather have elsewhere.
    pub fn room_freed(&self) {
        self.placement_changed.store(true, Ordering::Relaxed);
    }
}

/// Tables that an edit takes out: those that it does not add again, to another level.
fn gone_of(edit: &Edit) -> impl Iterator<Item = (u8, FileNumber)> + '_ {
    let kept = |number| edit.added.iter().any(|(_, meta)| meta.number == number);
    edit.removed.iter().copied().filter(move |(_, number)| !kept(*number))
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
        older_versions: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Stepper, Workers};
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::{hybrid, stepped_environment, tier};
    use crate::{ByteSize, Db, Environment};
    use std::path::Path;
    use thermocline_device::FileKind;
    use thermocline_device::MemoryDevices;
    use thermocline_foundation::random::Random;
    use thermocline_foundation::sync::atomic::Ordering::Relaxed;

    fn settings() -> Settings {
        let tiers = vec![tier("/fast", 64), tier("/slow", 256)];
        Settings { tiers, memory: ByteSize::mib(8), ..hybrid() }
    }

    /// Bytes of each log that there is.
    fn log_bytes(db: &Db) -> Vec<u64> {
        let files = db.engine().files.files().into_iter();
        files.filter(|file| file.kind == FileKind::Log).map(|file| file.bytes).collect()
    }

    /// Puts values of `len` bytes until so many bytes are written, with steps in between as drawn.
    fn fill(db: &Db, stepper: &Stepper, random: &mut Random, (len, bytes): (usize, usize)) {
        for key in 0..bytes / (len + 8) {
            db.put(key.to_be_bytes(), vec![7; len]).unwrap();
            if random.below(1 << 20) < len as u64 + 100 {
                (0..random.below(40)).all(|_| stepper.step());
            }
        }
    }

    #[test]
    fn there_are_never_more_logs_than_memtables_where_records_want_their_room() {
        let mut most_of_all = 0;
        for seed in 1..=12 {
            let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let (count, highest) = (Arc::clone(&now), Arc::clone(&most));
            let hook = move |call, _: &Path, name: &str| {
                match call {
                    Call::Create if name.ends_with(".log") => count.fetch_add(1, Relaxed),
                    Call::Delete if name.ends_with(".log") => count.fetch_sub(1, Relaxed),
                    _ => 0,
                };
                highest.fetch_max(count.load(Relaxed), Relaxed);
                Ok(())
            };
            let memory = Arc::new(MemoryDevices::default());
            let stepper = Arc::new(Stepper::new(seed));
            let environment = Environment {
                devices: Arc::new(HookedDevices::new(memory, Arc::new(hook))),
                workers: Workers::Stepped(Arc::clone(&stepper)),
                ..Environment::default()
            };
            let db = environment.create(Path::new("/home"), &settings()).unwrap();
            let mut random = Random::new(seed);
            for size in [(1000, 3 << 20), (30, 1 << 20), (9000, 3 << 20)] {
                fill(&db, &stepper, &mut random, size);
                // As long as what was reserved: none had to grow.
                let reserved = db.engine().settings.log_bytes();
                let bytes = log_bytes(&db);
                assert!(bytes.iter().all(|bytes| *bytes <= reserved), "{bytes:?} of {reserved}");
            }
            assert_eq!(now.load(Relaxed), log_bytes(&db).len() as u64);
            assert!(most.load(Relaxed) <= 3, "{most:?} logs with seed {seed}");
            most_of_all = most_of_all.max(most.load(Relaxed));
        }
        assert_eq!(most_of_all, 3);
    }

    /// A batch larger than a memtable makes its log as large, and no memtable wants such a log.
    #[test]
    fn a_log_that_had_to_grow_is_not_used_again() {
        let db = stepped_environment().create(Path::new("/home"), &settings()).unwrap();
        let reserved = db.engine().settings.log_bytes();
        for round in 0..8u8 {
            db.put([round], vec![round; 1 << 20]).unwrap();
            db.put([round], vec![round; 100]).unwrap();
            db.flush().unwrap();
            db.settle().unwrap();
            assert!(log_bytes(&db).iter().all(|bytes| *bytes <= reserved), "{:?}", log_bytes(&db));
        }
    }

    /// All logs of the last opening are there while the first of this one is made.
    #[test]
    fn an_opening_with_all_logs_and_full_slots_finds_room_for_its_own_on_the_fast_tier() {
        let environment = stepped_environment();
        let home = Path::new("/home");
        // A log is nearly as large a share of the tier as it may be.
        let tiers = vec![tier("/fast", 16), tier("/slow", 256)];
        let settings = Settings { tiers, memory: ByteSize::mib(10), ..hybrid() };
        let db = environment.create(home, &settings).unwrap();
        let mut key = 0u64;
        while db.stats().tiers[1].used_bytes < 8 << 20 {
            db.put(key.to_be_bytes(), [7; 1000]).unwrap();
            key += 1;
        }
        // A slab for each of some sizes, until there is no room for another.
        let room = || db.stats().fast_tier.map(|fast| fast.limit_bytes - fast.slab_bytes);
        while room() >= Some(64 << 10) {
            db.put(key.to_be_bytes(), vec![7; 1000 + key as usize % 7000]).unwrap();
            db.flush().unwrap();
            key += 500;
        }
        while log_bytes(&db).len() < 3 {
            db.put(key.to_be_bytes(), [7; 1000]).unwrap();
            key += 1;
        }
        db.close().unwrap();
        let db = environment.open(home).unwrap();
        let files = db.engine().files.files().into_iter();
        let logs: Vec<_> = files.filter(|file| file.kind == FileKind::Log).collect();
        assert!(logs.iter().all(|log| log.tier == TierIndex(0)), "{logs:?}");
        let fast = &db.stats().tiers[0];
        assert!(fast.used_bytes <= fast.capacity_bytes, "{fast:?}");
    }
}
