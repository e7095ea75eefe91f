//! What logs have, where no manifest says with which one recovery begins.
//!
//! A log goes once tables or slots have its records, but a few wait to be used again, and still
//! have theirs. Logs are replayed one after the other, and each goes on where the one before ends.
//! So those that may count are the last ones of which that is so:
//!
//! ```text
//!   7: 10..19, whole   9: 31..40, whole   10: 41..47, whole   11: 48..55   12: empty
//!                      ^ the floor: between 19 and 31 a log is gone, so tables have what 7 has
//! ```
//! A log that ends in a torn write is no reason to begin behind it: what follows does not count.
//! One that has the sequence of a bulk load is: all that is older was flushed before the load,
//! which is newer, and is in no log.
//!
//! More logs than needed give records that tables have, and where the last ones are in use again,
//! without what was written since. A memtable would hide newer records that tables have. So no log
//! is replayed: of each key the newest record goes to a table, and of tables the newest counts.
//!
//! So damage of one log costs what is unreadable, and nothing of what another has: where a replay
//! would be refused each log gives all of its intact records, also those behind the damage.

use super::{Bytes, Ground, Lost, Piece, RepairStep};
use crate::batch::BatchReader;
use crate::engine::restore::numbers_of;
use crate::error::{Error, ErrorKind, Result};
use crate::front::replay::Replay;
use crate::generations::memtable::{Entry, Memtable, MemtableCursor};
use std::sync::Arc;
use thermocline_device::{File, FileKind, TierIndex};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{LogReader, ReplayEnd, ReplaySummary};

/// What the logs tell.
#[derive(Debug, Default)]
pub(super) struct LogsTold {
    /// The first that may count; zero where there is no log.
    pub floor: FileNumber,
    /// Tables have all up to this sequence, or a bulk load has it.
    pub reached: Sequence,
    pub loads: LoadsLogged,
    last: Option<Sequence>,
}

/// Sequences of bulk loads, which a log has without a record.
#[derive(Debug, Default)]
pub(super) struct LoadsLogged {
    /// That of a load since then is among them, as far as the logs go; none where there is no
    /// record at all.
    pub since: Option<Sequence>,
    /// Ascending.
    pub sequences: Vec<Sequence>,
}

/// What one log has.
#[derive(Debug, Default)]
struct Part {
    first: Option<Sequence>,
    last: Sequence,
    empty: Vec<Sequence>,
}

impl Part {
    fn add(&mut self, first: Sequence, count: u32, payload: &[u8]) {
        self.first.get_or_insert(first);
        self.last = Sequence(first.0 + u64::from(count).saturating_sub(1));
        // What is no batch has no records.
        if BatchReader::new(payload).into_iter().flatten().next().is_none() {
            self.empty.push(self.last);
        }
    }
}

impl LogsTold {
    fn beginning_with(floor: FileNumber) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Refuses logs that go on behind a bulk load of which a manifest does not know that has all up
    /// to `known`: it has lost its end, for writers wait until a load is there.
    pub fn require_loads(&self, known: Sequence) -> Result<()> {
        let is_unknown = |load: &&Sequence| **load > known && self.last > Some(**load);
        self.loads.sequences.iter().find(is_unknown).map_or(Ok(()), |load| {
            Err(Error::corrupt(format!(
                "the logs go on behind a bulk load of sequence {load} that the manifest does not \
                 know: the end of the manifest is lost"
            )))
        })
    }

    fn add(&mut self, first: Sequence, part: Part) {
        if self.loads.since.is_none() {
            self.loads.since = Some(first);
            self.reached = self.reached.max(Sequence(first.0.saturating_sub(1)));
        }
        self.reached = part.empty.iter().copied().fold(self.reached, Sequence::max);
        self.loads.sequences.extend(part.empty);
        self.last = Some(part.last);
    }
}

/// The newest record of each key that the logs from `floor` on have, ascending, and the newest
/// sequence. Adds a piece for each log that is damaged. Nothing else has a newer record than
/// `known`.
pub(super) fn newest(
    ground: &Ground,
    floor: FileNumber,
    known: Sequence,
    pieces: &mut Vec<Piece>,
) -> Result<(Vec<Entry>, Sequence)> {
    let files = &ground.files;
    let mut live = numbers_of(files, |kind| kind == FileKind::Log);
    live.retain(|number| *number >= floor);
    let replay = Replay { files, memtable_bytes: None, region: None };
    let (memtable, last) = match replay.run(&live, known, &mut |_| Ok(())) {
        // What a device does not give now it may give when the rebuild is tried again.
        Err(error) if ground.is_damage(&error) => remains(ground, &live, known, &error, pieces)?,
        replayed => {
            let replayed = replayed?;
            (replayed.memtable.unwrap_or_default(), replayed.last_sequence)
        }
    };
    let mut newest: Vec<Entry> = Vec::new();
    let mut cursor = MemtableCursor::new(memtable);
    cursor.seek_to_first();
    while let Some(entry) = cursor.entry() {
        if newest.last().is_none_or(|last| last.key() != entry.key()) {
            newest.push(entry.clone());
        }
        cursor.next();
    }
    Ok((newest, last))
}

/// All intact records of the logs `live`, of which no replay takes all, and says `why`.
fn remains(
    ground: &Ground,
    live: &[FileNumber],
    known: Sequence,
    why: &Error,
    pieces: &mut Vec<Piece>,
) -> Result<(Arc<Memtable>, Sequence)> {
    const REPAIR: &str = "those of its records that are intact are written to tables";
    let logs = live.iter().map(|number| Log::read(ground, *number)).collect::<Result<Vec<_>>>()?;
    let mut remains = Remains { memtable: Memtable::new(), last: known };
    let told_before = pieces.len();
    for (at, log) in logs.iter().enumerate() {
        let damage = match &log.summary {
            Err(error) => error.clone(),
            Ok(ReplaySummary { end: ReplayEnd::Torn { offset }, last_sequence, .. }) => {
                let behind = &logs[at + 1..];
                if !behind.iter().any(|log| log.may_follow(*last_sequence)) {
                    // It ends in writes that nothing has synced, and so do those behind it.
                    log.give(&mut remains)?;
                    break;
                }
                let file = log.file.describe();
                Error::corrupt(format!(
                    "{file} breaks off at offset {offset}, after sequence {last_sequence}, and \
                     records behind that may have been durable"
                ))
            }
            Ok(_) => {
                log.give(&mut remains)?;
                continue;
            }
        };
        log.give_remains(ground, &mut remains)?;
        let mut step = RepairStep::new(&log.file, &damage, REPAIR);
        step.lost.push(Lost::UnknownRecords);
        pieces.push(Piece::all(log.file.number(), step));
    }
    if pieces.len() == told_before {
        // What is missing is not there to be kept.
        let name =
            format!("{}.{}", live.first().unwrap_or(&FileNumber(0)), FileKind::Log.extension());
        let mut step = RepairStep::of_name(name, TierIndex(0), why, REPAIR);
        step.lost.push(Lost::UnknownRecords);
        pieces.push(Piece { step, bytes: Bytes::Missing });
    }
    Ok((Arc::new(remains.memtable), remains.last))
}

/// A log that was read once, with what it says of itself, or how it is damaged.
struct Log {
    file: Arc<File>,
    summary: Result<ReplaySummary>,
}

impl Log {
    fn read(ground: &Ground, number: FileNumber) -> Result<Self> {
        let file = ground.files.open_file(number)?;
        let read = LogReader::replay_mended(&file, &mut |_, _, _| Ok(()), &mut Vec::new());
        match read.map_err(Error::from) {
            Err(error) if !ground.is_damage(&error) => Err(error),
            summary => Ok(Self { file, summary }),
        }
    }

    /// It may have records that were durable behind `last`, with which a log before it ends.
    fn may_follow(&self, last: Sequence) -> bool {
        self.summary.as_ref().map_or(true, |summary| summary.durable_sequence > last)
    }

    fn give(&self, remains: &mut Remains) -> Result<()> {
        let mut given = Ok(());
        let mut sink = |first, count, payload: &[u8]| {
            if given.is_ok() {
                given = remains.take(first, u64::from(count), payload);
            }
            Ok(())
        };
        LogReader::replay_mended(&self.file, &mut sink, &mut Vec::new())?;
        given
    }

    /// Gives also what is behind the damage.
    fn give_remains(&self, ground: &Ground, remains: &mut Remains) -> Result<()> {
        let mut given = Ok(());
        let not_given = LogReader::remains(&self.file, &mut |first, payload| {
            if given.is_ok() {
                let records = BatchReader::new(payload).into_iter().flatten();
                given = remains.take(first, records.count() as u64, payload);
            }
        })?;
        match not_given.map(Error::from) {
            Some(error) if !ground.is_damage(&error) => Err(error),
            _ => given,
        }
    }
}

/// Records of several logs, and their newest sequence.
struct Remains {
    memtable: Memtable,
    last: Sequence,
}

impl Remains {
    fn take(&mut self, first: Sequence, count: u64, payload: &[u8]) -> Result<()> {
        self.last = self.last.max(Sequence(first.0 + count.saturating_sub(1)));
        match self.memtable.insert_batch(first, payload) {
            // What is no batch has no records.
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(()),
            inserted => inserted,
        }
    }
}

/// Reads all logs, as far as each can be read.
pub(super) fn look(ground: &Ground) -> Result<LogsTold> {
    let files = &ground.files;
    let numbers = numbers_of(files, |kind| kind == FileKind::Log);
    let mut told = LogsTold::beginning_with(numbers.first().copied().unwrap_or_default());
    let (mut last, mut is_whole) = (None::<Sequence>, false);
    for number in numbers {
        let file = files.open_file(number)?;
        let mut part = Part::default();
        let mut sink = |first, count, payload: &[u8]| {
            part.add(first, count, payload);
            Ok(())
        };
        let replayed = LogReader::replay_mended(&file, &mut sink, &mut Vec::new());
        let end = match replayed.map_err(Error::from) {
            Ok(summary) => Some(summary.end),
            Err(error) if ground.is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        match part.first {
            Some(first) => {
                let is_late = last.is_some_and(|last: Sequence| first != last.next());
                if is_late && is_whole {
                    told = LogsTold::beginning_with(number);
                } else if is_late {
                    // What is missing may have had the sequence of a load: that of a later one is
                    // not its own.
                    told.loads.since = None;
                }
                if !part.empty.is_empty() {
                    told.floor = number;
                }
                told.add(first, part);
                (last, is_whole) = (told.last, end == Some(ReplayEnd::Sealed));
            }
            // Where it is damaged it may have had what is missing: the logs behind it go on.
            None => is_whole &= matches!(end, Some(ReplayEnd::Sealed | ReplayEnd::End)),
        }
    }
    Ok(told)
}
