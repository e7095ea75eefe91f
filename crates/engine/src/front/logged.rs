//! The front of the presets with a log: groups of writes, each led by one of its writers.
//!
//! ```text
//!   admit (write throttle) -> line up (queue.rs)
//!   -> leader: turnstile (turnstile.rs): room, in memory and of the log -> sequences claimed
//!      -> place in the log
//!      -> log written, with a sync if a writer wants one -> memtable -> slot complete
//!      -> all before it complete too: published -> acknowledged
//! ```
//! In a log of one writer ([`Records::InTurn`]) the leader keeps the turnstile until its group is
//! in the memtable. Beside others ([`Records::SideBySide`]; SpanDB, section 4.2) it lets it go
//! once it has its sequences and its pages, so that several groups are on their way to the device.
//! Each is acknowledged when all before it are complete.
//!
//! A group that is synced makes all before it durable: those that were synced are so by the order
//! of the window; for buffered ones, it waits for them and syncs their logs.
//!
//! A failed append or sync latches the store: the batches get the error and are not inserted. They
//! may still be found by a later recovery, as with any write whose acknowledgement was never seen.

use super::checks::{Led, refuse, without};
use super::figures::{Figures, LogStats};
use super::leading::{Leads, batches_of, records_of};
use super::log_pool::LogPool;
use super::own_sequence::run_with;
use super::persistent::Arenas;
use super::persistent::report::RegionStats;
use super::queue::{Submission, WriteQueue};
use super::turnstile::{Rotation, Turnstile};
use crate::batch::WriteBatch;
use crate::error::Result;
use crate::generations::log_file::{LogFile, Records};
use crate::generations::memtable::{ENTRY_OVERHEAD_BYTES, Memtable};
use crate::settings::Durability;
use crate::shared::{Shared, delete_or_leave};
use crate::transaction::Locks;
use crate::versions::Versions;
use crate::versions::window::Group;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline_foundation::sync::{Mutex, MutexGuard};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_log::{Claim, Durability as LogDurability, LogPosition, Record};

/// Where a group of records goes in the log.
#[derive(Debug)]
enum Place {
    /// In the writer's buffer, up to `position`.
    Appended { position: Option<LogPosition>, asked: bool },
    /// On pages of its own. The group `covers` buffered ones before it, which are to be durable
    /// when it is.
    Claimed { claim: Claim, asked: bool, covers: bool },
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Logged {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    rotation: Rotation,
    queue: WriteQueue,
    locks: Arc<Locks>,
    turnstile: Mutex<Turnstile>,
    /// Log bytes that no sync covers yet.
    unsynced_bytes: AtomicU64,
    sync_wanted: AtomicBool,
    figures: Arc<Figures>,
    /// A region that holds an index and no memtables.
    region: Option<Arc<Arenas>>,
}

impl Logged {
    /// Writes go to `log`, and to the active memtable of `versions`.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        pool: Arc<LogPool>,
        log: Arc<LogFile>,
        locks: &Arc<Locks>,
        region: Option<Arc<Arenas>>,
    ) -> Self {
        let memtable = Arc::clone(&versions.current().active);
        let figures = Arc::default();
        Self {
            shared: Arc::clone(shared),
            versions: Arc::clone(versions),
            rotation: Rotation::new(shared, versions, pool, Arc::clone(&log), &figures),
            queue: WriteQueue::new(
                shared.settings.groups_in_flight(),
                shared.settings.group_bytes(),
            ),
            locks: Arc::clone(locks),
            turnstile: Mutex::new(Turnstile::new(memtable, log)),
            unsynced_bytes: AtomicU64::new(0),
            sync_wanted: AtomicBool::new(false),
            figures,
            region,
        }
    }

    /// The region beside the log; none where there is none.
    pub fn region_stats(&self) -> Option<RegionStats> {
        self.region.as_deref().map(RegionStats::of)
    }

    /// A group is in the log, and was written durably if it says when that began.
    fn note(&self, batches: usize, bytes: u64, durable_since_ns: Option<u64>) {
        self.figures.note_group(batches);
        if let Some(began_ns) = durable_since_ns {
            let elapsed_ns = self.shared.clock.now_ns().saturating_sub(began_ns);
            let before = self.figures.note_durable(bytes, elapsed_ns);
            if self.pool().becomes_worth_filling(before, bytes) {
                self.shared.jobs.wake();
            }
        }
    }

    /// See [`LogStats`].
    pub fn log_stats(&self) -> LogStats {
        let now_ns = self.shared.clock.now_ns();
        let (flying, since_ns) = self.versions.window.flying();
        let oldest_ns = since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        self.figures.stats((flying, oldest_ns))
    }

    /// Gives the records their place in the log, in order.
    fn place(
        &self,
        turnstile: &mut Turnstile,
        records: &[Record<'_>],
        asked: bool,
    ) -> Result<Place> {
        let asked = asked && !planted(Planted::AcknowledgedBeforeFlush);
        match &turnstile.log.records {
            Records::InTurn(writer) => {
                let mut position = None;
                for record in records {
                    let Record { first, count, payload } = *record;
                    position = Some(writer.append(first, count, payload)?);
                }
                Ok(Place::Appended { position, asked })
            }
            Records::SideBySide(claims) => {
                let claim = claims.claim(records, self.versions.window.durable())?;
                self.figures.note_padding(claim.padding_bytes(), claim.waited());
                self.queue.set_gathers(claims.is_padded());
                let has_buffered = std::mem::replace(&mut turnstile.has_buffered, !asked);
                let covers = asked && has_buffered && !planted(Planted::BufferedBeforeSyncIgnored);
                Ok(Place::Claimed { claim, asked, covers })
            }
        }
    }

    /// Brings records of the log into the memtable. Where that fails nothing may follow them.
    fn insert(
        &self,
        memtable: &Memtable,
        records: &[Record<'_>],
        group: &[Submission],
    ) -> Result<()> {
        let inserted = memtable.insert_group(batches_of(records, group));
        inserted.inspect_err(|error| self.shared.fail(error))
    }

    /// Writes the records to their place, as durable as asked; says whether all up to them is
    /// durable then.
    fn log_records(
        &self,
        log: &LogFile,
        place: Place,
        records: &[Record<'_>],
        group: &Group<'_>,
    ) -> Result<bool> {
        let bytes = records.iter().map(|record| record.payload.len() as u64).sum();
        match (&log.records, place) {
            (Records::InTurn(writer), Place::Appended { position: Some(position), asked }) => {
                self.rotation.tail.lock().position = Some(position);
                if !self.count_unsynced(bytes, asked)? {
                    writer.commit(position, LogDurability::Buffered)?;
                }
                Ok(false)
            }
            (Records::SideBySide(claims), Place::Claimed { claim, asked: true, covers }) => {
                claims.write(claim, records, LogDurability::Sync)?;
                // Buffered groups before this one are to be durable too, and may still be flying.
                if covers {
                    if !self.versions.window.wait_before(group) {
                        return Err(self.stopped());
                    }
                    sync_site("write", || self.sync_tail())?;
                }
                Ok(true)
            }
            (Records::SideBySide(claims), Place::Claimed { claim, .. }) => {
                let position = claims.write(claim, records, LogDurability::Buffered)?;
                self.rotation.tail.lock().written(log, position);
                self.count_unsynced(bytes, false)?;
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// Counts bytes that no sync covers, and syncs them where that is `asked` or they are too many;
    /// says whether it did.
    fn count_unsynced(&self, bytes: u64, asked: bool) -> Result<bool> {
        let unsynced = self.unsynced_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let bound = self.shared.settings.background_sync_bytes.0;
        // Past twice the bound the background sync did not keep up, and the bound is a promise.
        if asked || unsynced >= 2 * bound {
            return sync_site("write", || self.sync_tail()).map(|()| true);
        }
        if unsynced >= bound && !self.sync_wanted.swap(true, Ordering::Relaxed) {
            self.shared.jobs.wake();
        }
        Ok(false)
    }

    /// Waits until no write is in flight, and keeps writers out.
    pub fn quiesce(&self) -> Result<QuietLogs<'_>> {
        let quiet = self.enter();
        self.shared.latch.check()?;
        Ok(quiet)
    }

    /// As [`Logged::quiesce`], also where the store is latched.
    pub fn enter(&self) -> QuietLogs<'_> {
        let mut turnstile = self.turnstile.lock();
        self.versions.window.wait_idle();
        turnstile.flying.published(self.versions.visible());
        QuietLogs { logged: self, turnstile }
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.shared.latch.check()?;
        self.sync_tail().inspect_err(|error| self.shared.fail(error))?;
        self.shared.news.came();
        Ok(())
    }

    /// As [`Logged::sync`], for callers that see to the latch themselves.
    pub(super) fn sync_tail(&self) -> Result<()> {
        // Counted before the tail is looked at, so what is taken off below was synced.
        let covered = self.unsynced_bytes.load(Ordering::Acquire);
        let tail = self.rotation.tail.lock().clone();
        tail.sync()?;
        let less = |unsynced: u64| Some(unsynced.saturating_sub(covered));
        // Two syncs may have covered the same bytes.
        let _ = self.unsynced_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        Ok(())
    }

    /// Claims the background sync of the log, where it is wanted.
    pub(super) fn claim_sync(&self) -> bool {
        self.sync_wanted.swap(false, Ordering::Relaxed)
    }

    /// Claims the next piece of zeros for the ready log, where durable writes are to go there.
    pub(super) fn claim_filling(&self) -> bool {
        self.pool().is_worth_filling(self.figures.durable_bytes()) && self.pool().claim_filling()
    }

    /// Bytes of logs that no sync has covered yet.
    pub fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes.load(Ordering::Relaxed)
    }

    /// Writers in line behind the leader.
    pub fn waiting_writers(&self) -> u64 {
        self.queue.waiting()
    }

    /// The logs that wait to be written.
    pub fn pool(&self) -> &Arc<LogPool> {
        &self.rotation.pool
    }
}

impl Leads for Logged {
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
        let refused = refuse(&self.shared, &self.versions, need_locks, &turnstile.flying, group)?;
        let admitted = without(group, &refused);
        let group = &*admitted;
        if group.is_empty() {
            drop(turnstile);
            // What it conflicts with may still fly, and would be met again.
            self.versions.window.wait_claimed();
            return Ok(Led { first: Sequence::ZERO, refused });
        }
        // The thread that gets the lock after a panic must not make a table of half a batch.
        let _guard = self.shared.latch.guard();
        let bytes = group.iter().map(|submission| submission.encoded.len() as u64).sum();
        let count = group.iter().map(|submission| u64::from(submission.count)).sum::<u64>();
        self.rotation.make_room(&mut turnstile, bytes)?;
        self.rotation.ask_for_log_room(&mut turnstile, group.len() as u64, bytes)?;
        turnstile.memtable_bytes += bytes + count * ENTRY_OVERHEAD_BYTES;
        self.versions.memtable_grows(turnstile.memtable_bytes);
        self.shared.index_room.came(count);
        let (memtable, log) = (Arc::clone(&turnstile.memtable), Arc::clone(&turnstile.log));
        memtable.begin_group();
        let asked = group.iter().any(|submission| submission.durability == Durability::Sync);
        // A buffered group in turn is over before a clock would be worth its reading.
        let is_timed = asked || matches!(log.records, Records::SideBySide(_));
        let began_ns = is_timed.then(|| self.shared.clock.now_ns());
        let claimed = self.versions.window.claim(count, began_ns);
        self.shared.news.came();
        // Dropped before the group's slot is: a writer that waits for it finds the latch set.
        let _guard = self.shared.latch.guard();
        let records = records_of(group, claimed.first());
        let place = self.place(&mut turnstile, &records, asked);
        let place = place.inspect_err(|error| self.shared.fail(error))?;
        if matches!(log.records, Records::SideBySide(_)) {
            let batches = batches_of(&records, group);
            let batches = batches.map(|(first, encoded)| (first, encoded.clone()));
            turnstile.flying.add(claimed.last(), batches.collect());
        }
        // One group after the other, or the next one beside this.
        let held = matches!(log.records, Records::InTurn(_)).then_some(turnstile);
        let is_early = planted(Planted::VisibleBeforeDurable);
        if is_early {
            self.insert(&memtable, &records, group)?;
        }
        let durable = self.log_records(&log, place, &records, &claimed);
        let durable = durable.inspect_err(|error| self.shared.fail(error))?;
        self.note(group.len(), bytes, began_ns.filter(|_| asked));
        if !is_early {
            self.insert(&memtable, &records, group)?;
        }
        if let Some(mut turnstile) = held {
            turnstile.memtable_bytes = memtable.bytes();
        }
        let publication = claimed.complete(durable);
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
pub(crate) struct QuietLogs<'a> {
    logged: &'a Logged,
    turnstile: MutexGuard<'a, Turnstile>,
}

impl QuietLogs<'_> {
    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&mut self) -> Result<()> {
        self.logged.rotation.freeze(&mut self.turnstile)
    }

    /// Freezes the active memtable, which has records.
    #[cfg(test)]
    pub fn rotate(&mut self) -> Result<()> {
        self.logged.rotation.rotate(&mut self.turnstile, 0)
    }

    /// The log of the active memtable. Later ones have larger numbers.
    pub fn log_number(&self) -> FileNumber {
        self.turnstile.log.number
    }

    /// Hands all that was appended to the driver, so that a concurrent sync has nothing left to
    /// write.
    pub fn hand_over_log(&self) -> Result<()> {
        let position = self.logged.rotation.tail.lock().position;
        if let (Some(position), Ok(())) = (position, self.logged.shared.latch.check()) {
            self.turnstile.log.hand_over(position)?;
        }
        Ok(())
    }

    /// Brings everything into tables, and runs `body` with a sequence of its own: what it adds is
    /// newer than all before and older than all after.
    pub fn with_sequence<T>(mut self, body: impl FnOnce(Sequence) -> Result<T>) -> Result<T> {
        let Logged { shared, versions, .. } = self.logged;
        // The log is about to have a sequence that the manifest must have before any later one.
        let _guard = shared.latch.guard();
        self.freeze()?;
        versions.wait_for_flushes()?;
        // The log must have the sequence too, or recovery would take the next record for one after
        // a hole.
        let reserved = WriteBatch::new().freeze()?.0;
        let Self { logged, turnstile } = &mut self;
        logged.rotation.ask_for_log_room(turnstile, 1, reserved.len() as u64)?;
        let claimed = versions.window.claim(1, Some(shared.clock.now_ns()));
        let sequence = claimed.first();
        let records = [Record { first: sequence, count: 1, payload: &reserved }];
        let log = Arc::clone(&turnstile.log);
        let place = logged.place(turnstile, &records, true);
        let logged = place.and_then(|at| logged.log_records(&log, at, &records, &claimed));
        let durable = logged.inspect_err(|error| shared.fail(error))?;
        run_with((shared, versions), claimed, durable, body)
    }

    /// Deletes the log of the active memtable, which has no records.
    pub fn discard(self) {
        delete_or_leave(&self.logged.shared.files, &[self.log_number()]);
    }

    /// Ends the logs for a clean close. The latch has sent all waiting writers away.
    pub fn seal(self) -> Result<()> {
        let tail = self.logged.rotation.tail.lock().clone();
        sync_site("closing", || {
            tail.seal_older()?;
            self.turnstile.log.seal()
        })?;
        self.logged.region.as_ref().map_or(Ok(()), |region| region.close())
    }
}
