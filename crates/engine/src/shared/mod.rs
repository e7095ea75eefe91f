//! What every part of an open store shares: its settings, clock, files and workers, the latch that
//! ends all writing, counters, and how fast writers and compactions may go.
//!
//! Nothing here knows memtables or tables. The lock behind [`Shared::changed`] guards no data; it
//! keeps a waiting thread from missing a signal. A thread that waits takes the lock, looks whether
//! what it waits for is there, and sleeps. A part that changes something takes the lock once the
//! change can be seen, and signals. No I/O is done under it.

pub(crate) mod compaction_rate;
pub(crate) mod counts;
pub(crate) mod hits;
pub(crate) mod index_room;
pub(crate) mod news;
mod rest;
pub(crate) mod tier0;
pub(crate) mod tier_meter;
pub(crate) mod totals;
pub(crate) mod wear;
pub(crate) mod write_throttle;

use crate::environment::Environment;
use crate::environment::experiments::Experiments;
use crate::error::{Error, ErrorKind, Latch, Result};
use crate::jobs::shortage::Moment;
use crate::jobs::{Job, Jobs, Look, Step};
use crate::settings::Settings;
use compaction_rate::CompactionRate;
use counts::Counts;
use index_room::IndexRoom;
use news::News;
use rest::Rest;
use std::sync::Arc;
use thermocline_device::{Placement, PlacementChoice, TieredFiles};
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::sync::{Condvar, Mutex, MutexGuard};
use thermocline_foundation::{Clock, FileNumber};
use thermocline_table::BlockCache;
use tier_meter::{Peak, TierMeter};
use tier0::Tier0;
use totals::{Tally, Totals};
use write_throttle::WriteThrottle;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Shared {
    pub settings: Settings,
    /// As they were given; `RuleSet` has what holds in the settings' variant.
    pub experiments: Experiments,
    pub clock: Arc<dyn Clock>,
    pub files: Arc<TieredFiles>,
    pub placement: Arc<dyn Placement>,
    pub cache: Arc<BlockCache>,
    pub jobs: Arc<Jobs>,
    pub latch: Latch,
    pub write_throttle: WriteThrottle,
    pub compaction_rate: CompactionRate,
    pub counts: Counts,
    /// Uses of the store call it, and background work.
    pub news: Arc<News>,
    rest: Rest,
    pub tier0: Tier0,
    /// None where placement does not go by the bandwidth of the fast tier.
    pub tier_meter: Option<TierMeter>,
    /// What was counted before this opening.
    pub totals_before: Totals,
    /// Levels or their targets changed since the last look for tables on the wrong tier.
    pub placement_changed: AtomicBool,
    pub index_room: IndexRoom,
    changing: Mutex<()>,
    /// Signalled, with `changing`, when a version was replaced, a log is ready or the latch was
    /// set.
    changed: Condvar,
}

impl Shared {
    /// Nothing has happened yet; `totals_before` is what was counted before this opening.
    pub fn new(
        settings: Settings,
        environment: &Environment,
        files: Arc<TieredFiles>,
        placement: Arc<dyn Placement>,
        cache: Arc<BlockCache>,
        jobs: Arc<Jobs>,
        totals_before: Totals,
    ) -> Self {
        let clock = Arc::clone(&environment.clock);
        files.set_log_first(environment.experiments.log_first.unwrap_or(true));
        let write_throttle = WriteThrottle::new(Arc::clone(&clock), &settings);
        let compaction_rate = CompactionRate::new(Arc::clone(&clock));
        let tier0 = Tier0::new(&settings);
        let is_by_writers = settings.placement == PlacementChoice::Parallelism;
        let is_by_use = is_by_writers || settings.placement == PlacementChoice::Bandwidth;
        let is_metered = is_by_use && settings.is_tiered();
        if is_metered && is_by_writers {
            files.measure_load(Arc::clone(&clock));
        }
        let meter = || TierMeter::new(clock.now_ns(), Peak::of(&settings, &files));
        let tier_meter = is_metered.then(meter);
        Self {
            settings,
            experiments: environment.experiments,
            clock,
            files,
            placement,
            cache,
            jobs,
            latch: Latch::default(),
            write_throttle,
            compaction_rate,
            counts: Counts::default(),
            news: Arc::default(),
            rest: Rest::default(),
            tier0,
            tier_meter,
            totals_before,
            placement_changed: AtomicBool::new(true),
            index_room: IndexRoom::default(),
            changing: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Nothing was written for some time, and since (`rest.rs`).
    pub fn rests(&self) -> bool {
        self.rest.is_at(self.counts.writes.get())
    }

    /// Looks whether the store has come to rest.
    pub fn look_for_rest(&self) -> Look {
        self.rest.look(self.counts.writes.get())
    }

    /// The files are read and the store is about to be open: time counts from here.
    pub fn begin(&self) {
        self.counts.opened_ns.store(self.clock.now_ns(), Ordering::Relaxed);
        self.compaction_rate.begin();
    }

    /// Nanoseconds since opening.
    pub fn open_ns(&self) -> u64 {
        let opened_ns = self.counts.opened_ns.load(Ordering::Relaxed);
        self.clock.now_ns().saturating_sub(opened_ns)
    }

    /// Counts look-ups.
    pub fn note_gets(&self, count: u64) {
        self.counts.gets.add(count);
        self.news.came();
    }

    /// Counts a scan that begins.
    pub fn note_scan(&self) {
        self.counts.scans.add(1);
        self.news.came();
    }

    /// Counts records that are written, which took `bytes`.
    pub fn note_writes(&self, count: u64, bytes: u64) {
        self.counts.written_bytes.add(bytes);
        self.counts.writes.add(count);
        self.news.came();
    }

    /// Stops all writing because of `error`, and wakes the threads that wait for another part.
    pub fn fail(&self, error: &Error) {
        self.latch.set(error);
        self.announce();
    }

    /// As [`Shared::fail`], unless `error` is a refusal, for then nothing has changed.
    pub fn fail_unless_refused(&self, error: &Error) {
        if !error.is_refusal() {
            self.fail(error);
        }
    }

    /// A job that was begun then was refused, and is tried again in a while.
    pub fn note_shortage(&self, job: &'static str, begun: Moment, error: &Error) {
        let (wait, is_first) = self.jobs.shortage.note(job, begun, error);
        if is_first {
            tracing::warn!(job, %error, "a job was refused and is tried again");
        }
        self.announce();
        self.clock.sleep(wait);
    }

    /// As [`Shared::fail`], because the thread that `who` names panicked and said `text`.
    pub fn fail_by_panic(&self, who: &str, text: &str) {
        self.latch.set_panic(who, text);
        self.announce();
    }

    /// The lock under which a change is stored that others may wait for.
    pub fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Wakes the threads that wait, under [`Shared::changing`].
    pub fn signal(&self, _changing: &MutexGuard<'_, ()>) {
        self.changed.notify_all();
    }

    /// Wakes the threads that wait, after what they wait for was stored.
    pub fn announce(&self) {
        let changing = self.changing();
        self.signal(&changing);
    }

    /// Waits until `found` finds something, looking after each change; an error once the latch is
    /// set, or jobs are refused for long.
    pub fn wait_for<T>(&self, mut found: impl FnMut() -> Option<T>) -> Result<T> {
        let mut changing = self.changing();
        let since = self.jobs.shortage.moment();
        loop {
            if let Some(found) = found() {
                return Ok(found);
            }
            self.latch.check()?;
            self.jobs.shortage.check_since(since)?;
            self.jobs.wait(&self.changed, &mut changing);
        }
    }

    /// Waits a moment for what background work holds.
    pub fn let_work(&self) {
        self.jobs.let_work(|| self.clock.sleep(std::time::Duration::from_millis(2)));
    }

    /// The whole of a job, on the calling thread.
    pub fn carry_out(&self, job: &mut dyn Job) -> Result<()> {
        let _scope = thermocline_device::background();
        let run = (|| {
            while job.step()? == Step::More {
                self.latch.check()?;
            }
            Ok(())
        })();
        run.inspect_err(|error: &Error| {
            // An input that cannot be read: nothing was changed.
            if error.kind() != ErrorKind::Corrupt {
                self.fail_unless_refused(error);
            }
        })
    }

    /// A file is gone, which placement counted until now: there may be room for what it would
    /// rather have elsewhere.
    pub fn room_freed(&self) {
        self.placement_changed.store(true, Ordering::Relaxed);
    }

    /// Tells placement how much of the fast tier was used, once a period, where it goes by that.
    pub fn measure_tiers(&self) {
        let read = |meter: &TierMeter| meter.read(self.clock.now_ns(), &self.files);
        if let Some(fast_tier) = self.tier_meter.as_ref().and_then(read) {
            self.files.measured(fast_tier);
        }
    }

    /// What all parts have counted since opening, but for those that add theirs.
    pub fn tally(&self) -> Tally {
        Tally::of(self)
    }

    /// Operations on records since opening.
    pub fn operations(&self) -> u64 {
        let counts = &self.counts;
        counts.gets.get() + counts.writes.get() + counts.scans.get()
    }
}

/// Deletes files that do no harm where there is no room for saying so.
pub(crate) fn delete_or_leave(files: &TieredFiles, numbers: &[FileNumber]) {
    if let Err(error) = files.delete_files(numbers) {
        tracing::warn!(%error, "files that nothing needs stay until the next opening");
    }
}
