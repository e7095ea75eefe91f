//! The turnstile: where groups of writes get their order. Where the log is parallel, it is a lock
//! that is held across no write of a group. It is held while the log grows, while the next log is
//! made, and while a group waits for the one before it so that less of the log is padding. Where
//! the log is not parallel, it is held for the whole of a group.
//!
//! ```text
//!   turnstile held       room in the memtable and the log -> sequences -> pages of the log
//!   turnstile let go     pages written -> records in the memtable -> slot complete -> published
//! ```
//! A log grows beyond its reserve for a group alone that is larger, and only where its tier has
//! room for that by its capacity. Where the tier or its device has none, the next log takes the
//! group, which is made as large, on a tier that has room. Where none has, the writers wait for
//! what flushes give back, and get an error where there is nothing to wait for: no sequence was
//! claimed, and nothing written.

use super::figures::Figures;
use super::flying::Flying;
use super::log_pool::LogPool;
use super::log_tail::LogTail;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::log_file::LogFile;
use crate::generations::memtable::Memtable;
use crate::generations::{Frozen, Generation};
use crate::shared::Shared;
use crate::versions::{Version, Versions};
use std::sync::Arc;
use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind};
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_log::bytes_of_log;

/// What the thread at the turnstile has: where the next group goes.
#[derive(Debug)]
pub(super) struct Turnstile {
    pub memtable: Arc<Memtable>,
    pub log: Arc<LogFile>,
    /// What the memtable takes once all groups are in it that belong there.
    pub memtable_bytes: u64,
    /// A group was claimed, since the last one that is synced, which is not.
    pub has_buffered: bool,
    /// Groups that may not be in a memtable yet.
    pub flying: Flying,
}

impl Turnstile {
    pub fn new(memtable: Arc<Memtable>, log: Arc<LogFile>) -> Self {
        let memtable_bytes = memtable.bytes();
        let flying = Flying::default();
        Self { memtable, log, memtable_bytes, has_buffered: false, flying }
    }

    /// No group belongs to the memtable.
    fn is_empty(&self) -> bool {
        self.memtable_bytes == 0
    }
}

/// How one memtable and its log follow the other.
#[derive(Debug)]
pub(super) struct Rotation {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    pub pool: Arc<LogPool>,
    pub tail: Mutex<LogTail>,
    figures: Arc<Figures>,
}

impl Rotation {
    /// Writes begin in `log`.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        pool: Arc<LogPool>,
        log: Arc<LogFile>,
        figures: &Arc<Figures>,
    ) -> Self {
        let figures = Arc::clone(figures);
        let tail = Mutex::new(LogTail::new(log));
        Self { shared: Arc::clone(shared), versions: Arc::clone(versions), pool, tail, figures }
    }

    /// Makes room in the memtable for a group of `bytes`.
    pub fn make_room(&self, turnstile: &mut Turnstile, bytes: u64) -> Result<()> {
        let bytes_max = self.shared.settings.division().memtable_bytes;
        if turnstile.memtable_bytes + bytes > bytes_max && !turnstile.is_empty() {
            self.wait_for_room(turnstile)?;
            self.rotate(turnstile, 0)?;
        }
        Ok(())
    }

    /// Has the log keep room for what is about to be appended, or the log that follows.
    pub fn ask_for_log_room(
        &self,
        turnstile: &mut Turnstile,
        records: u64,
        bytes: u64,
    ) -> Result<()> {
        let Shared { files, settings, .. } = &*self.shared;
        let mut logs_left = 1 + files.tiers().len();
        let alone_bytes = bytes_of_log(records, bytes);
        let bytes_max = settings.log_bytes().max(alone_bytes);
        loop {
            let log = Arc::clone(&turnstile.log);
            let may_grow = |bytes| match bytes <= bytes_max {
                true => files.promise_bytes(log.number, bytes),
                false => Err(full(&log)),
            };
            match log.ask_for_room(records, bytes, &may_grow) {
                Err(error) if error.kind() == DeviceErrorKind::OutOfSpace && logs_left > 0 => {
                    tracing::debug!(%error, "the next log takes what is written");
                }
                asked => {
                    let asked = asked.map_err(Error::from);
                    return asked.inspect_err(|error| self.shared.fail_unless_refused(error));
                }
            }
            logs_left -= 1;
            self.wait_for_room(turnstile)?;
            self.rotate(turnstile, alone_bytes)?;
        }
    }

    /// The log that follows `current`, of `least_bytes` or more. Where no tier has room for it,
    /// waits for what flushes of full memtables give back, and then for what else can leave tier 0,
    /// unless the log is larger than others.
    fn next_log(&self, current: FileNumber, least_bytes: u64) -> Result<Arc<LogFile>> {
        loop {
            // Looked at before: a flush that ends meanwhile gives room back, which is tried then.
            let was_flushed = self.versions.current().frozen.is_empty();
            let next = self.pool.next_log(current, least_bytes);
            let is_full = next.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
            let is_large = least_bytes > self.shared.settings.log_bytes();
            if !is_full || is_large && was_flushed {
                // Refused, the writer gets the error, and the log goes on.
                return next.inspect_err(|error| self.shared.fail_unless_refused(error));
            }
            match (was_flushed, self.versions.current().frozen.is_empty()) {
                (true, true) => self.pool.wait_for_prepared()?,
                (false, true) => {}
                (_, false) => self.versions.wait_for_flushes()?,
            }
        }
    }

    fn wait_for_room(&self, turnstile: &Turnstile) -> Result<()> {
        let bytes = turnstile.memtable_bytes;
        wait_for_memtable(&self.shared, &self.versions, &self.figures, bytes)
    }

    /// Freezes the active memtable and goes on with an empty one and the next log. Groups may still
    /// be on their way to the old ones. The log has `least_bytes` or more.
    pub fn rotate(&self, turnstile: &mut Turnstile, least_bytes: u64) -> Result<()> {
        let (waits, began_ns) = (!self.pool.has_ready(), self.shared.clock.now_ns());
        let next = self.next_log(turnstile.log.number, least_bytes);
        if waits {
            self.figures.log_stalls.add(self.shared.clock.now_ns() - began_ns);
        }
        let next = next?;
        let memtable = Arc::new(Memtable::new());
        let mut fresh = Turnstile::new(Arc::clone(&memtable), Arc::clone(&next));
        fresh.has_buffered = turnstile.has_buffered;
        fresh.flying = std::mem::take(&mut turnstile.flying);
        let full = std::mem::replace(turnstile, fresh);
        self.tail.lock().follow(&full.log, &next);
        let frozen = Arc::new(Frozen {
            memtable: full.memtable,
            generation: Generation::of_log(full.log, next.number),
            claimed: AtomicBool::new(false),
        });
        self.versions.freeze(frozen, memtable);
        Ok(())
    }

    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&self, turnstile: &mut Turnstile) -> Result<()> {
        if !turnstile.is_empty() {
            self.wait_for_room(turnstile)?;
            self.rotate(turnstile, 0)?;
        }
        Ok(())
    }
}

/// The log has what one may have, and goes on in the next.
fn full(log: &LogFile) -> DeviceError {
    let text = format!("{} is as long as a log may be", log.file().describe());
    DeviceError::new(DeviceErrorKind::OutOfSpace, text)
}

/// Waits until the memory budget has room for another memtable beside the active one, which has
/// `active_bytes`.
pub(super) fn wait_for_memtable(
    shared: &Shared,
    versions: &Versions,
    figures: &Figures,
    active_bytes: u64,
) -> Result<()> {
    let memtable_bytes = shared.settings.division().memtable_bytes;
    let has_room = |version: &Version| version.has_room_for_memtable(active_bytes, memtable_bytes);
    if has_room(&versions.current()) {
        return Ok(());
    }
    let start = shared.clock.now_ns();
    versions.wait_until(has_room)?;
    let stalled_ns = shared.clock.now_ns() - start;
    shared.counts.stalled_ns.add(stalled_ns);
    figures.memtable_stalls.add(stalled_ns);
    Ok(())
}
