//! Logs that cannot be replayed as a whole: their records up to the first hole go to a new log.
//!
//! What is behind a hole does not count, as after any crash: a later write may depend on one that
//! is missing. So the repair keeps a prefix of what was written, and says where it ends. Of what is
//! behind it, the keys that can still be read are named where no other file has so new a record.

use super::plan::{Lost, RepairStep};
use super::{Bytes as Kept, Meter, Piece, Subject, read_otherwise, with_way_out};
use crate::batch::{BatchReader, BatchRecord, WriteBatch};
use crate::engine::restore::{numbers_of, require_durable, require_floor};
use crate::error::{Error, Result};
use crate::front::replay::{Replay, Replayed};
use crate::generations::memtable::{Memtable, MemtableCursor};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thermocline_device::{
    Error as DeviceError, File, FileContext, FileKind, Origin, TierIndex, TieredFiles,
};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{LogHeader, LogReader, LogSettings, LogWriter, ReplayEnd};
use thermocline_table::RecordKind;

/// Bytes of copies that one record of the new log takes, about.
const BATCH_BYTES: usize = 1 << 20;

/// What was found of the logs.
#[derive(Debug)]
pub(super) struct LogsFound {
    /// All logs.
    pub numbers: Vec<FileNumber>,
    /// Those that count, ascending.
    live: Vec<FileNumber>,
    /// Their records up to the first hole.
    memtable: Arc<Memtable>,
    /// Keys of which other files have a newer record than these, where they are cut.
    pub outdated: BTreeSet<Vec<u8>>,
    pub pieces: Vec<Piece>,
    pub state: State,
    /// They end at a hole, or in unsynced writes: a log that follows them would not count.
    ends_at_hole: bool,
    /// The last of their records that count; none where they have none.
    last: Option<Sequence>,
    pub behind: Behind,
}

/// What can still be read behind the hole: of each key the newest sequence, and whether it is a
/// value.
pub(super) type Behind = BTreeMap<Vec<u8>, (Sequence, bool)>;

/// What the logs want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Whole,
    /// An opening replays them as a whole, and has their records written elsewhere.
    Mended,
    /// They end at a hole.
    Cut,
}

impl LogsFound {
    /// A log has a record of `key` as new as `sequence`, or newer. One that was cut may have lost
    /// what slots have already.
    pub fn has_from(&self, key: &[u8], sequence: Sequence) -> bool {
        self.newest(key).is_some_and(|(newest, _)| newest >= sequence)
    }

    /// The newest record of `key` in the logs, and whether it is a value.
    pub fn newest(&self, key: &[u8]) -> Option<(Sequence, bool)> {
        let (trailer, _) = self.memtable.get(key, Sequence::MAX)?;
        Some((trailer.sequence(), trailer.kind() == RecordKind::Put))
    }

    /// The keys of which they have a record, up to the hole.
    pub fn keys(&self) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        let mut cursor = MemtableCursor::new(Arc::clone(&self.memtable));
        cursor.seek_to_first();
        while let Some(entry) = cursor.entry() {
            keys.insert(entry.key().to_vec());
            cursor.next();
        }
        keys
    }

    /// Appends a batch of them to the log that takes their place, without the outdated keys: then
    /// each of its records by itself, and an empty one for each that is left out.
    fn append_current(
        &self,
        writer: &LogWriter,
        first: Sequence,
        count: u32,
        payload: &[u8],
    ) -> Result<()> {
        let records = BatchReader::new(payload)?.collect::<Result<Vec<_>>>()?;
        let part = |at: u32, len: u32| &payload[at as usize..][..len as usize];
        let is_outdated =
            |record: &BatchRecord| self.outdated.contains(part(record.key_at, record.key_len));
        if !records.iter().any(is_outdated) {
            return Ok(append(writer, first, count, payload)?);
        }
        let (mut next, mut left) = (first, count);
        for (at, record) in records.iter().enumerate() {
            let mut batch = WriteBatch::new();
            let key = part(record.key_at, record.key_len);
            match record.kind {
                _ if is_outdated(record) => &mut batch,
                RecordKind::Put => batch.put(key, part(record.value_at, record.value_len)),
                RecordKind::Delete => batch.delete(key),
            };
            let sequences = if at + 1 < records.len() { 1 } else { left };
            append(writer, next, sequences, &batch.freeze()?.0)?;
            (next, left) = (next.next(), left.saturating_sub(1));
        }
        Ok(())
    }
}

/// A record that a copy on the fast tier has: key, and value, none for a tombstone.
pub(super) type Copied = (Vec<u8>, Option<Bytes>);

/// The log that a repair has written.
pub(super) struct NewLog {
    pub number: FileNumber,
    /// It has what the others had; otherwise it follows them.
    pub replaces_others: bool,
    /// Of its last record; what tables have where it has none.
    pub last_sequence: Sequence,
}

/// Replays the logs as an opening does, or as far as they go.
pub(super) fn look(subject: &Subject, meter: &mut Meter<'_>) -> Result<LogsFound> {
    let (files, restored) = (&subject.files, &subject.restored);
    let numbers = numbers_of(files, |kind| kind == FileKind::Log);
    let from_floor = numbers.iter().copied().filter(|number| *number >= restored.log_floor);
    let live: Vec<_> = from_floor.collect();
    let replay = Replay { files, memtable_bytes: None, region: None };
    // No file is missing, so the manifest has lost its end.
    let floor = require_floor(&numbers, restored.log_floor);
    floor.map_err(|error| with_way_out(error, subject.unreadable))?;
    let replayed =
        replay.run(&live, restored.last_sequence, &mut |_| Ok(())).and_then(|replayed| {
            require_durable(&replayed, restored.durable_sequence).map(|()| replayed)
        });
    let bytes_of = |info: &thermocline_device::FileInfo| {
        if info.kind == FileKind::Log { info.bytes } else { 0 }
    };
    meter.add(files.files().iter().map(bytes_of).sum());
    match replayed {
        Ok(Replayed { memtable, mended, ends_at_hole, .. }) => {
            const REPAIR: &str = "its records are written elsewhere: none is lost";
            let piece = |(number, tier, error): (FileNumber, TierIndex, Error)| {
                let name = format!("{number}.{}", FileKind::Log.extension());
                Piece::all(number, RepairStep::of_name(name, tier, &error, REPAIR))
            };
            let pieces: Vec<_> = mended.into_iter().map(piece).collect();
            let state = if pieces.is_empty() { State::Whole } else { State::Mended };
            let memtable = memtable.unwrap_or_default();
            let last = last_of(subject, &live)?;
            let behind = Behind::new();
            let outdated = BTreeSet::new();
            Ok(LogsFound {
                numbers,
                live,
                memtable,
                outdated,
                pieces,
                state,
                ends_at_hole,
                last,
                behind,
            })
        }
        Err(error) if subject.is_damage(&error) => cut(subject, numbers, live, &error),
        Err(error) => Err(error),
    }
}

/// The last record of logs that an opening replays as a whole.
fn last_of(subject: &Subject, live: &[FileNumber]) -> Result<Option<Sequence>> {
    let mut chain = Chain::of(subject);
    for number in live {
        chain.follow(&*subject.files.open_file(*number)?, &mut |_, _, _| Ok(()))?;
    }
    Ok(chain.last)
}

/// What there is up to the first hole of logs that an opening refuses with `why`.
fn cut(
    subject: &Subject,
    numbers: Vec<FileNumber>,
    live: Vec<FileNumber>,
    why: &Error,
) -> Result<LogsFound> {
    const CUT: &str = "its records up to there are written to another log";
    const DROPPED: &str = "taken out: what it has follows after what is missing";
    let files = &subject.files;
    let memtable = Memtable::new();
    let mut chain = Chain::of(subject);
    let mut pieces = Vec::new();
    let (flushed, mut is_reserved, mut follows_load) = (chain.flushed, false, false);
    for number in &live {
        let file = files.open_file(*number)?;
        let was_broken = chain.is_broken || chain.is_torn;
        let replayed = chain.follow(&file, &mut |first, _, payload| {
            let before = memtable.count();
            memtable.insert_batch(first, payload)?;
            let is_empty = memtable.count() == before;
            follows_load |= is_reserved && !is_empty;
            is_reserved |= is_empty && first > flushed;
            Ok(())
        });
        let (error, repair) = match replayed {
            Ok(()) if !chain.is_broken => continue,
            Ok(()) => (why.clone(), DROPPED),
            Err(error) if !subject.is_damage(&error) => return Err(error),
            Err(error) if was_broken => (error, DROPPED),
            Err(error) => (error, CUT),
        };
        pieces.push(Piece::all(*number, RepairStep::new(&file, &error, repair)));
    }
    if follows_load {
        // It is no log that is wrong: the manifest does not know of a bulk load that was finished.
        return Err(with_way_out(why.clone(), subject.unreadable));
    }
    if pieces.is_empty() {
        // What is missing is not there to be kept.
        let name = format!("{}.{}", subject.restored.log_floor, FileKind::Log.extension());
        let step = RepairStep::of_name(name, TierIndex(0), why, "the database goes on without it");
        pieces.push(Piece { step, bytes: Kept::Missing });
    }
    let last = chain.last;
    pieces[0].step.lost.push(Lost::Writes { after: last.map(|last| last.0) });
    let (memtable, state) = (Arc::new(memtable), State::Cut);
    let (behind, outdated) = (behind(subject, &live, last)?, BTreeSet::new());
    let ends_at_hole = true;
    Ok(LogsFound { numbers, live, memtable, outdated, pieces, state, ends_at_hole, last, behind })
}

/// What can still be read of logs behind the record `last`.
fn behind(subject: &Subject, live: &[FileNumber], last: Option<Sequence>) -> Result<Behind> {
    let mut behind = Behind::new();
    for number in live {
        let file = subject.files.open_file(*number)?;
        let not_given = LogReader::remains(&file, &mut |first, payload| {
            // What is no batch has no keys.
            let records = BatchReader::new(payload).into_iter().flatten().map_while(Result::ok);
            for (sequence, record) in (first.0..).map(Sequence).zip(records) {
                if last.is_none_or(|last| sequence > last) {
                    let key = &payload[record.key_at as usize..][..record.key_len as usize];
                    let found = (sequence, record.kind == RecordKind::Put);
                    let newest = behind.entry(key.to_vec()).or_insert(found);
                    *newest = (*newest).max(found);
                }
            }
        })?;
        not_given.map_or(Ok(()), |error| subject.pass_over(error.into()))?;
    }
    Ok(behind)
}

/// Takes a record: its first sequence, how many it has, and its batch.
type Sink<'a> = dyn FnMut(Sequence, u32, &[u8]) -> Result<()> + 'a;

/// Records that follow each other without a hole, through several logs.
struct Chain {
    flushed: Sequence,
    last: Option<Sequence>,
    is_broken: bool,
    /// The log before ends in unsynced writes: what the next one has does not count.
    is_torn: bool,
}

impl Chain {
    fn of(subject: &Subject) -> Self {
        let flushed = subject.restored.last_sequence;
        Self { flushed, last: None, is_broken: false, is_torn: false }
    }

    /// Gives the records of the next log to `sink` as long as there is no hole.
    fn follow(&mut self, file: &File, sink: &mut Sink<'_>) -> Result<()> {
        let mut failed = Ok(());
        self.is_broken |= self.is_torn;
        let replayed = LogReader::replay_mended(
            file,
            &mut |first, count, payload| {
                if !self.is_broken && failed.is_ok() {
                    self.is_broken = !self.is_next(first);
                }
                if !self.is_broken && failed.is_ok() {
                    failed = sink(first, count, payload);
                    self.last = Some(Sequence(first.0 + u64::from(count).saturating_sub(1)));
                }
                Ok(())
            },
            &mut Vec::new(),
        );
        let replayed = failed.and_then(|()| replayed.map_err(Error::from));
        self.is_broken |= replayed.is_err();
        self.is_torn = matches!(replayed?.end, ReplayEnd::Torn { .. });
        Ok(())
    }

    fn is_next(&self, first: Sequence) -> bool {
        self.last.map_or(first <= self.flushed.next(), |last| first == last.next())
    }
}

/// Writes the records of logs that are cut, up to the hole, to a new log, and the `copies`
/// of records that tables have lost; none where neither is wanted. Where the logs are whole, up to
/// the mark of their end, the new one follows them, so that an opening takes it whether or not the
/// repair comes to its end.
pub(super) fn rewrite(
    subject: &Subject,
    found: &LogsFound,
    copies: &[Copied],
) -> Result<Option<NewLog>> {
    if found.state != State::Cut && copies.is_empty() {
        return Ok(None);
    }
    let replaces_others = found.state == State::Cut || found.ends_at_hole;
    let files = &subject.files;
    let (file, writer) = begin(files)?;
    let mut chain = Chain::of(subject);
    let mut written = Ok(());
    for number in &found.live {
        let mut write = |first, count, payload: &[u8]| {
            if replaces_others && written.is_ok() {
                written = found.append_current(&writer, first, count, payload);
            }
            Ok(())
        };
        match chain.follow(&*files.open_file(*number)?, &mut write) {
            // It is why the log is written anew.
            Err(error) if subject.is_damage(&error) => {}
            followed => followed?,
        }
    }
    written?;
    if chain.last != found.last {
        return Err(read_otherwise("the logs"));
    }
    let flushed = subject.restored.last_sequence;
    let mut last_sequence = chain.last.unwrap_or(flushed);
    if !copies.is_empty() && last_sequence < flushed {
        // Slots have records behind the hole, so what follows must be newer than these.
        let (first, count) = (last_sequence.next(), (flushed.0 - last_sequence.0) as u32);
        append(&writer, first, count, &WriteBatch::new().freeze()?.0)?;
        last_sequence = flushed;
    }
    let mut copies = copies.iter().peekable();
    while copies.peek().is_some() {
        let mut batch = WriteBatch::new();
        while batch.bytes() < BATCH_BYTES
            && let Some((key, value)) = copies.next()
        {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        let (payload, count) = batch.freeze()?;
        append(&writer, last_sequence.next(), count, &payload)?;
        last_sequence = Sequence(last_sequence.0 + u64::from(count));
    }
    writer.seal()?;
    files.publish(&[file.number()])?;
    Ok(Some(NewLog { number: file.number(), replaces_others, last_sequence }))
}

/// A new log, which the namespace does not have yet.
pub(super) fn begin(files: &Arc<TieredFiles>) -> Result<(Arc<File>, LogWriter)> {
    let context = FileContext { kind: FileKind::Log, origin: Origin::Recovery };
    let first_sequence = Sequence::ZERO.next();
    let header = LogHeader { stream: 0, previous: None, first_sequence };
    let settings = LogSettings { segment_bytes: 0, ..LogSettings::default() };
    let begin = |file: &Arc<File>| LogWriter::create(Arc::clone(file), header, settings);
    Ok(files.create_begun(context, 0, begin)?)
}

fn append(
    writer: &LogWriter,
    first: Sequence,
    count: u32,
    payload: &[u8],
) -> Result<(), DeviceError> {
    writer.append(first, count, payload).map(drop)
}
