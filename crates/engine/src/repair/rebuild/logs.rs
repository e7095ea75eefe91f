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

use super::KeySpan;
use crate::batch::BatchReader;
use crate::engine::restore::numbers_of;
use crate::error::{Error, Result};
use crate::front::replay::Replay;
use crate::generations::memtable::{Entry, MemtableCursor};
use crate::repair::is_damage;
use std::sync::Arc;
use thermocline_device::{FileKind, TieredFiles};
use thermocline_foundation::{FileNumber, Sequence};
use thermocline_log::{LogReader, ReplayEnd};

/// What the logs tell.
#[derive(Debug, Default)]
pub(super) struct LogsTold {
    /// The first that may count; zero where there is no log.
    pub floor: FileNumber,
    /// Tables have all up to this sequence, or a bulk load has it.
    pub reached: Sequence,
    pub loads: LoadsLogged,
    /// Their keys.
    pub span: Option<KeySpan>,
    last: Option<Sequence>,
}

/// Sequences of bulk loads, which a log has without a record.
#[derive(Debug, Default)]
pub(super) struct LoadsLogged {
    /// That of a load since then is among them; none where there is no record at all.
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
    span: Option<KeySpan>,
}

impl Part {
    fn add(&mut self, first: Sequence, count: u32, payload: &[u8]) {
        self.first.get_or_insert(first);
        self.last = Sequence(first.0 + u64::from(count).saturating_sub(1));
        // What is no batch has no keys, and an opening says so.
        let records = BatchReader::new(payload).into_iter().flatten().map_while(Result::ok);
        let keys =
            records.map(|record| &payload[record.key_at as usize..][..record.key_len as usize]);
        let mut is_empty = true;
        for key in keys {
            is_empty = false;
            widen(&mut self.span, key);
        }
        if is_empty {
            self.empty.push(self.last);
        }
    }
}

/// Has `span` have `key`.
pub(super) fn widen(span: &mut Option<KeySpan>, key: &[u8]) {
    match span {
        None => *span = Some((key.to_vec(), key.to_vec())),
        Some((from, _)) if key < &from[..] => *from = key.to_vec(),
        Some((_, until)) if key > &until[..] => *until = key.to_vec(),
        Some(_) => {}
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
            self.reached = Sequence(first.0.saturating_sub(1));
        }
        self.reached = part.empty.iter().copied().fold(self.reached, Sequence::max);
        self.loads.sequences.extend(part.empty);
        self.last = Some(part.last);
        if let Some((from, until)) = part.span {
            widen(&mut self.span, &from);
            widen(&mut self.span, &until);
        }
    }
}

/// The newest record of each key that the logs from `floor` on have, ascending, and the newest
/// sequence; none where they are damaged, for a repair cuts them once there is a manifest. Nothing
/// else has a newer record than `known`.
pub(super) fn newest(
    files: &Arc<TieredFiles>,
    floor: FileNumber,
    known: Sequence,
) -> Result<Option<(Vec<Entry>, Sequence)>> {
    let mut live = numbers_of(files, |kind| kind == FileKind::Log);
    live.retain(|number| *number >= floor);
    let replay = Replay { files, memtable_bytes: None, region: None };
    let replayed = match replay.run(&live, known, &mut |_| Ok(())) {
        Err(error) if is_damage(&error) => return Ok(None),
        replayed => replayed?,
    };
    let mut newest: Vec<Entry> = Vec::new();
    let mut cursor = MemtableCursor::new(replayed.memtable.unwrap_or_default());
    cursor.seek_to_first();
    while let Some(entry) = cursor.entry() {
        if newest.last().is_none_or(|last| last.key() != entry.key()) {
            newest.push(entry.clone());
        }
        cursor.next();
    }
    Ok(Some((newest, replayed.last_sequence)))
}

/// Reads all logs, as far as each can be read.
pub(super) fn look(files: &Arc<TieredFiles>) -> Result<LogsTold> {
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
            Err(error) if is_damage(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(first) = part.first else {
            // Where it is damaged it may have had what is missing: the logs behind it go on.
            is_whole &= matches!(end, Some(ReplayEnd::Sealed | ReplayEnd::End));
            continue;
        };
        if is_whole && last.is_some_and(|last: Sequence| first != last.next()) {
            told = LogsTold::beginning_with(number);
        } else if !part.empty.is_empty() {
            (told.floor, told.span) = (number, None);
        }
        told.add(first, part);
        (last, is_whole) = (told.last, end == Some(ReplayEnd::Sealed));
    }
    Ok(told)
}
