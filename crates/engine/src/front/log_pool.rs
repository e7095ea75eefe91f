//! The logs that wait to be written, and how a log comes to be: its size, its header and its place
//! in the namespace.

use crate::error::{Error, ErrorKind, Result};
use crate::generations::log_file::{LogFile, Records};
use crate::settings::{Durability, RETIRED_LOGS_MAX, Settings};
use crate::shared::{Shared, delete_or_leave};
use crate::versions::{Follower, Switch};
use std::sync::Arc;
use thermocline_device::{
    Error as DeviceError, ErrorKind as DeviceErrorKind, File, FileContext, FileKind, Origin,
    TierIndex, TieredFiles,
};
use thermocline_foundation::sync::Mutex;
#[cfg(test)]
use thermocline_foundation::sync::MutexGuard;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_log::{ClaimLog, LogHeader, LogSettings, LogWriter, bytes_of_log};

/// Logs that wait to be used again, and the next one, ready.
///
/// 1. One log is made at a time, so numbers ascend: a writer that needs one that is being prepared
///    waits.
/// 2. There are never more than [`Settings::logs_max`], which is at least `MEMTABLES`. In the
///    background a new one is made only while fewer are there; else a retired one is made anew,
///    which makes none more. A writer that needs a log has waited until one memtable less is frozen
///    than there may be, and a log is retired, or gone, before any writer sees that its memtable is
///    flushed. So at most `MEMTABLES - 1` logs are in use then, and any other is ready or retired:
///    the writer takes the one or makes the other anew, and a new one where there is none.
#[derive(Debug)]
pub(crate) struct LogPool {
    shared: Arc<Shared>,
    /// See [`LogPool::is_worth_filling`].
    fill_after_bytes: u64,
    logs: Mutex<Logs>,
}

/// A log that holds nothing any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retired {
    number: FileNumber,
    /// Its blocks up to here were written before.
    written: u64,
}

/// What the pool has.
#[derive(Debug)]
pub(crate) struct Logs {
    pub ready: Option<Arc<LogFile>>,
    pub retired: Vec<Retired>,
    /// A thread makes one.
    pub making: bool,
    /// No tier had room for one that was prepared: a writer that needs it asks again.
    is_refused: bool,
    /// A writer waits for the one that is prepared.
    is_missed: bool,
    /// Logs that the file map had no room to forget.
    doomed: Vec<FileNumber>,
    /// All logs since opening that are not deleted, the one that is being made included.
    there: u64,
    to_fill: ToFill,
}

impl Logs {
    /// A retired log to be made anew; none, and one more is there, where there is none.
    fn take_retired(&mut self) -> Option<Retired> {
        let retired = self.retired.pop();
        self.there += u64::from(retired.is_none());
        retired
    }

    /// A log was made, or not: says what became of a retired one that was not made anew, if it is
    /// still there.
    fn settle(&mut self, is_made: bool, retired: Option<Retired>) {
        match (is_made, retired) {
            (true, Some(_)) => self.there += 1,
            (false, None) => self.there -= 1,
            _ => {}
        }
        self.retired.extend(retired);
    }
}

/// The log that gets zeros ahead of its records.
#[derive(Debug, Default)]
struct ToFill {
    /// The ready log; none once a writer has it.
    log: Option<Arc<LogFile>>,
    /// A thread writes a piece.
    under_way: bool,
    /// A writer waits for the log, and for no piece but the one that is under way.
    wanted: bool,
    /// There was no room for zeros, or there are to be none.
    is_off: bool,
}

impl ToFill {
    /// Claims the next piece, if there is one and no writer waits.
    fn claim(&mut self) -> bool {
        let is_free = !self.under_way && !self.wanted && !self.is_off;
        let claims = is_free && self.log.as_ref().is_some_and(|log| !log.is_filled());
        self.under_way |= claims;
        claims
    }

    /// The claimed piece is written, or could not be; `full`: for want of room.
    fn end(&mut self, full: bool) {
        self.under_way = false;
        self.is_off |= full;
    }

    /// Ends the filling, for a writer needs the log; not while a piece is under way.
    fn let_go(&mut self) -> bool {
        if planted(Planted::LogFilledInUse) {
            return true;
        }
        self.wanted = self.under_way;
        if !self.wanted {
            self.log = None;
        }
        !self.wanted
    }
}

/// Part of a log whose durable writes have the next ones filled with zeros.
const FILL_AFTER_SHARE: u64 = 4;

/// Zeros written at a time to a log of so many bytes.
fn fill_bytes(log_bytes: u64) -> u64 {
    (log_bytes / 16).next_multiple_of(4 << 10).clamp(32 << 10, 1 << 20)
}

impl LogPool {
    /// The first log is in use, and no other is there.
    pub fn new(shared: Arc<Shared>) -> Self {
        let logs = Logs {
            ready: None,
            retired: Vec::new(),
            making: false,
            is_refused: false,
            is_missed: false,
            doomed: Vec::new(),
            there: 1,
            to_fill: ToFill {
                is_off: shared.experiments.log_zeros != Some(true),
                ..ToFill::default()
            },
        };
        let fill_after_bytes = shared.settings.log_bytes() / FILL_AFTER_SHARE;
        Self { shared, fill_after_bytes, logs: Mutex::new(logs) }
    }

    /// What the pool has, locked.
    #[cfg(test)]
    pub fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock()
    }

    /// The log waits to be used again: it holds nothing any more.
    pub fn is_retired(&self, log: FileNumber) -> bool {
        self.logs.lock().retired.iter().any(|retired| retired.number == log)
    }

    /// Logs that count as there.
    pub fn counted(&self) -> u64 {
        self.logs.lock().there
    }

    /// Claims the preparation of the next log; false where it is not wanted, or would be one more
    /// than there may be.
    pub fn claim_preparation(&self) -> bool {
        let mut logs = self.logs.lock();
        let may_make = !logs.retired.is_empty() || logs.there < self.shared.settings.logs_max();
        let is_due = logs.is_missed || may_make && !logs.is_refused;
        let claims = logs.ready.is_none() && !logs.making && is_due;
        logs.making |= claims;
        claims
    }

    /// The next log is there already.
    pub fn has_ready(&self) -> bool {
        self.logs.lock().ready.is_some()
    }

    /// The log to follow `current`: a prepared one, or one made now. Its number is above
    /// `current`'s: recovery replays logs in the order of their numbers, and the floor below which
    /// it looks at none is a number. It has `least_bytes` or more: one that was prepared and has
    /// fewer goes.
    pub fn next_log(&self, current: FileNumber, least_bytes: u64) -> Result<Arc<LogFile>> {
        let ready = self.shared.wait_for(|| {
            let mut logs = self.logs.lock();
            if !logs.to_fill.let_go() {
                return None;
            }
            if logs.ready.is_none() && logs.making {
                return None;
            }
            let ready = logs.ready.take();
            let is_long = |log: &Arc<LogFile>| log.file().extent_bytes() >= least_bytes;
            logs.making = !ready.as_ref().is_some_and(is_long);
            Some(ready)
        })?;
        let next = match ready {
            Some(ready) if ready.file().extent_bytes() >= least_bytes => ready,
            short => {
                let gone = short.map_or(Ok(()), |log| self.delete(vec![log.number]));
                let made = gone.and_then(|()| self.make_log(Origin::Foreground, least_bytes));
                let mut logs = self.logs.lock();
                logs.making = false;
                logs.is_refused = made.is_err();
                drop(logs);
                made.inspect_err(|error| self.shared.jobs.shortage.log_was_refused(error))?
            }
        };
        assert!(next.number > current, "logs are made one after the other");
        Ok(next)
    }

    /// Makes a log as [`make_log`] does, from a retired file where there is one, or in its place
    /// where more than a log's bytes are wanted. One that cannot be made ends all writing, so it
    /// goes on being counted; but for one that is refused.
    fn make_log(&self, origin: Origin, least_bytes: u64) -> Result<Arc<LogFile>> {
        let Shared { files, settings, .. } = &*self.shared;
        let retired = self.logs.lock().take_retired();
        let is_large = least_bytes > settings.log_bytes();
        let place = || match retired.filter(|_| is_large) {
            Some(retired) => Ok(files.delete_files(&[retired.number])?),
            None => Ok(()),
        };
        let to_reuse = retired.filter(|_| !is_large);
        let made = place().and_then(|()| make_log(files, settings, to_reuse, least_bytes, origin));
        if made.as_ref().err().is_none_or(Error::is_refusal) {
            let number = made.as_ref().ok().map(|log| log.number);
            let is_left = |old: &Retired| Some(old.number) != number && files.has_file(old.number);
            self.logs.lock().settle(made.is_ok(), retired.filter(is_left));
        }
        if made.is_ok() {
            self.shared.jobs.shortage.log_was_made();
        }
        made
    }

    /// Makes the log that the next memtable begins with. Where no tier has room for it, it is not
    /// missed before a writer needs it, and that makes it.
    pub fn prepare_log(&self) -> Result<()> {
        let made = self.make_log(Origin::Foreground, 0);
        let made = {
            let mut logs = self.logs.lock();
            logs.making = false;
            logs.to_fill.log = made.as_ref().ok().cloned();
            // A writer may wait for it, and then makes one itself.
            let (ready, result) = made.map_or_else(|e| (None, Err(e)), |log| (Some(log), Ok(())));
            logs.ready = ready;
            match result {
                // The writer asks again.
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                    logs.is_refused = true;
                    Err(error)
                }
                result => result,
            }
        };
        self.shared.announce();
        made
    }

    /// So many bytes were written durably that more will follow.
    pub fn is_worth_filling(&self, durable_bytes: u64) -> bool {
        durable_bytes >= self.fill_after_bytes
    }

    /// So many `bytes` more than `before` make it so.
    pub fn becomes_worth_filling(&self, before: u64, bytes: u64) -> bool {
        !self.is_worth_filling(before) && self.is_worth_filling(before + bytes)
    }

    /// Claims the filling of the ready log with zeros, where it has blocks that were never written.
    pub fn claim_filling(&self) -> bool {
        self.logs.lock().to_fill.claim()
    }

    /// Writes the next zeros to the ready log, once claimed. The claim ends then, so that a writer
    /// that needs the log waits for a piece at most.
    pub fn fill(&self) -> Result<()> {
        let log = self.logs.lock().to_fill.log.clone();
        let piece = fill_bytes(self.shared.settings.log_bytes());
        let filled = log.map_or(Ok(()), |log| log.fill(piece));
        // It does without then: a write to it tells what the device cannot do.
        let is_full = |error: &Error| error.kind() == ErrorKind::OutOfSpace;
        self.logs.lock().to_fill.end(filled.as_ref().is_err_and(is_full));
        self.shared.announce();
        filled.or_else(|error| if is_full(&error) { Ok(()) } else { Err(error) })
    }

    /// Deletes the logs that wait to be used, where there are any on tier 0.
    pub fn give_up_logs(&self) -> Result<bool> {
        let given_up = {
            let mut logs = self.logs.lock();
            // Zeros may be on their way to the ready one.
            let is_busy = logs.to_fill.under_way;
            let is_there = |log: &Arc<LogFile>| log.file().tier() == TierIndex(0) && !is_busy;
            let ready = logs.ready.take_if(|log| is_there(log));
            if ready.is_some() {
                logs.to_fill.log = None;
            }
            let retired = std::mem::take(&mut logs.retired);
            let mut given_up: Vec<_> = retired.iter().map(|retired| retired.number).collect();
            given_up.append(&mut logs.doomed);
            given_up.extend(ready.map(|log| log.number));
            given_up
        };
        if given_up.is_empty() {
            return Ok(false);
        }
        self.shared.files.delete_files(&given_up).inspect_err(|_| {
            // They hold nothing, and are used again or deleted later.
            self.logs.lock().doomed.extend_from_slice(&given_up);
        })?;
        self.logs.lock().there -= given_up.len() as u64;
        Ok(true)
    }

    /// Waits until the background has made the next log, for which no tier had room: what can leave
    /// tier 0 does then.
    pub fn wait_for_prepared(&self) -> Result<()> {
        self.logs.lock().is_missed = true;
        self.shared.jobs.wake();
        let prepared = self.shared.wait_for(|| self.logs.lock().ready.is_some().then_some(()));
        self.logs.lock().is_missed = false;
        prepared
    }

    /// Puts away a log whose records are all in tables. It is kept for use as a log again unless it
    /// takes more than a log should, lies on a tier to which logs only overflow, or others miss its
    /// room.
    fn retire_log(&self, log: &LogFile) -> Result<()> {
        let bytes_max = self.shared.settings.log_bytes();
        let tier = &self.shared.files.tiers()[log.file().tier().position()];
        let is_home = tier.index() == TierIndex(0) && !tier.is_refused();
        let doomed = {
            let mut logs = self.logs.lock();
            logs.is_refused = false;
            let is_kept = logs.retired.len() < RETIRED_LOGS_MAX;
            if is_kept && is_home && log.file().extent_bytes() <= bytes_max {
                logs.retired.push(Retired { number: log.number, written: log.written() });
                return Ok(());
            }
            logs.doomed.push(log.number);
            std::mem::take(&mut logs.doomed)
        };
        self.delete(doomed)
    }

    /// Deletes logs that hold nothing, now or with the next ones.
    fn delete(&self, doomed: Vec<FileNumber>) -> Result<()> {
        match self.shared.files.delete_files(&doomed) {
            Err(error) if error.kind() == DeviceErrorKind::OutOfSpace => {
                tracing::warn!(%error, "a log that holds nothing stays for now");
                self.logs.lock().doomed.extend(doomed);
                return Ok(());
            }
            deleted => deleted?,
        }
        self.logs.lock().there -= doomed.len() as u64;
        self.shared.room_freed();
        Ok(())
    }
}

impl Follower for LogPool {
    /// Before a writer sees room for a memtable more, which wants a log.
    fn before_switch(&self, switch: &Switch<'_>) -> Result<()> {
        let flushed = switch.change.flushed.as_ref().and_then(|frozen| frozen.generation.log());
        match flushed.filter(|_| !planted(Planted::LogRetiredBeforeEdit)) {
            Some(log) => self.retire_log(log),
            None => Ok(()),
        }
    }
}

fn log_settings(settings: &Settings) -> LogSettings {
    let segment_bytes = settings.log_bytes();
    let growth_bytes = (segment_bytes / 4).clamp(64 << 10, 16 << 20);
    let buffer_bytes = (settings.division().memtable_bytes / 16).clamp(64 << 10, 512 << 10);
    LogSettings { segment_bytes, growth_bytes, buffer_bytes: buffer_bytes as usize }
}

/// Makes a log of `least_bytes` or more, whose header is durable and which the namespace knows.
pub(crate) fn make_log(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<Retired>,
    least_bytes: u64,
    origin: Origin,
) -> Result<Arc<LogFile>> {
    let mut log_settings = log_settings(settings);
    log_settings.segment_bytes = log_settings.segment_bytes.max(least_bytes);
    if origin == Origin::Recovery {
        // The logs that are replayed are still there, and no room is kept for one more: this one
        // grows when they are gone. Where nothing more fits it may not be written at all.
        log_settings.segment_bytes = log_settings.segment_bytes.min(log_settings.growth_bytes);
        match make_log_of(files, settings, retired, origin, log_settings) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => log_settings.segment_bytes = 0,
            made => return made,
        }
    }
    make_log_of(files, settings, retired, origin, log_settings)
}

fn make_log_of(
    files: &Arc<TieredFiles>,
    settings: &Settings,
    retired: Option<Retired>,
    origin: Origin,
    log_settings: LogSettings,
) -> Result<Arc<LogFile>> {
    let context = FileContext { kind: FileKind::Log, origin };
    let begin = |file: &Arc<File>, previous| {
        // A write that is not to be synced needs no device: a page each time would be written for
        // it, and waited for.
        if settings.durability == Durability::Buffered {
            file.use_page_cache()?;
        }
        log_in(Arc::clone(file), previous, log_settings, settings.has_parallel_log())
    };
    let made_anew = |old: Retired| {
        let file = files.recycle(old.number, context)?;
        let has_room = files.promise_bytes(file.number(), log_settings.segment_bytes);
        let begun = has_room.and_then(|()| begin(&file, Some(old)));
        begun.inspect_err(|_| delete_or_leave(files, &[file.number()]))
    };
    let made = retired.map(made_anew).transpose();
    let log = match made {
        Ok(Some(log)) => log,
        // A new one may have room on another tier.
        Err(error) if error.kind() != DeviceErrorKind::OutOfSpace => return Err(error.into()),
        _ => {
            // The first log of an opening must have a place, or nothing could be read either.
            let is_least = log_settings.segment_bytes == 0 && origin == Origin::Recovery;
            let bytes = log_settings.segment_bytes.max(bytes_of_log(0, 0));
            let bytes = if is_least { 0 } else { bytes };
            files.create_begun(context, bytes, |file| begin(file, None))?.1
        }
    };
    let published = files.publish(&[log.number]);
    published.inspect_err(|_| delete_or_leave(files, &[log.number]))?;
    Ok(log)
}

/// A log in memory, for a store that is only read: nothing is written to it.
pub(crate) fn log_in_memory(files: &TieredFiles, settings: &Settings) -> Result<Arc<LogFile>> {
    let log_settings = LogSettings { segment_bytes: 0, ..log_settings(settings) };
    Ok(log_in(files.scratch_file(FileKind::Log)?, None, log_settings, false)?)
}

fn log_in(
    file: Arc<File>,
    retired: Option<Retired>,
    log_settings: LogSettings,
    is_parallel: bool,
) -> Result<Arc<LogFile>, DeviceError> {
    let number = file.number();
    // The next log is made before the first record is known which it will begin with.
    let first_sequence = Sequence::ZERO.next();
    let previous = retired.map(|retired| retired.number);
    let header = LogHeader { stream: 0, previous, first_sequence };
    let records = match is_parallel {
        true => Records::SideBySide(ClaimLog::create(file, header, log_settings)?),
        false => Records::InTurn(LogWriter::create(file, header, log_settings)?),
    };
    Ok(Arc::new(LogFile::new(number, records, retired.map_or(0, |retired| retired.written))?))
}

#[cfg(test)]
mod tests;
