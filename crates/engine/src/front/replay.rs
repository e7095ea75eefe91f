//! Replay: what the logs had, and the arenas of a region of persistent memory
//! (`persistent/recovery.rs`), read back in order into memtables.
//!
//! Replay stops at the first hole in the sequences. A torn log tail is what a crash leaves; a hole
//! below a sequence that some log says was durable is damage, and refused.

use super::persistent::opening::OpenedRegion;
use crate::error::{Error, ErrorKind, Result};
use crate::generations::memtable::{ENTRY_OVERHEAD_BYTES, Memtable};
use std::sync::Arc;
use thermocline_device::{
    Error as DeviceError, ErrorKind as DeviceErrorKind, TierIndex, TieredFiles,
};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_log::{LogReader, ReplayEnd};

/// Which sequences tables, slots and logs have.
///
/// The newest one outside the logs does not speak for those before it: of a memtable, or of logs
/// that an opening was replaying, some pieces were live, and the rest is in the logs only. But the
/// logs have all from their first one on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    /// The newest that the manifest knows of.
    manifest: Sequence,
    /// First and last in the logs.
    logs: Option<(Sequence, Sequence)>,
}

impl Covered {
    /// All up to `sequence` are there.
    pub fn has(&self, sequence: Sequence) -> bool {
        match self.logs {
            Some((first, last)) if first <= sequence => sequence <= last,
            _ => sequence <= self.manifest,
        }
    }

    /// The last of those that are all there.
    pub fn last(&self) -> Sequence {
        self.logs.map_or(self.manifest, |(_, last)| last)
    }
}

/// What the logs held.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// All of the logs' records, where they were not written to tables.
    pub memtable: Option<Arc<Memtable>>,
    pub last_sequence: Sequence,
    pub covered: Covered,
    pub records: u64,
    /// Records are missing behind the last one, or a log ends in unsynced writes: what a log has
    /// that is written later does not count.
    pub ends_at_hole: bool,
    /// Damage of logs that cost nothing: which log, on which tier, and what.
    pub mended: Vec<(FileNumber, TierIndex, Error)>,
}

/// Replays logs into level 0 tables.
pub(crate) struct Replay<'a> {
    pub files: &'a Arc<TieredFiles>,
    /// A memtable is written out at this size; none: all stays in one, which is given back. The
    /// logs are of the memtables that there may be at once, so it is no larger than those.
    pub memtable_bytes: Option<u64>,
    /// The region, which is replayed after the logs.
    pub region: Option<&'a OpenedRegion>,
}

impl Replay<'_> {
    /// Replays the logs `numbers`, ascending; `write_out` gets the memtables that are full, and the
    /// last one. Records up to `flushed` are in tables only if their log is below the floor, so all
    /// are replayed; a record met again has the same sequence and does no harm.
    pub fn run(
        &self,
        numbers: &[FileNumber],
        flushed: Sequence,
        write_out: &mut dyn FnMut(Memtable) -> Result<()>,
    ) -> Result<Replayed> {
        let mut state = Replaying::new(flushed);
        self.run_through(&mut state, numbers, write_out)?;
        if let Some(region) = self.region {
            self.run_arenas(&mut state, region, write_out)?;
        }
        state.replayed.ends_at_hole = state.hole.is_some();
        let memtable = std::mem::take(&mut state.memtable);
        match self.memtable_bytes {
            None => state.replayed.memtable = Some(Arc::new(memtable)),
            Some(_) => write_out(memtable)?,
        }
        Ok(state.replayed)
    }

    fn run_through(
        &self,
        state: &mut Replaying,
        numbers: &[FileNumber],
        write_out: &mut dyn FnMut(Memtable) -> Result<()>,
    ) -> Result<()> {
        // The log before has the mark of its end: nothing of it was lost in a crash.
        let mut sealed = false;
        for number in numbers {
            let file = self.files.open_file(*number)?;
            let place = file.describe();
            state.begin_part();
            let mut written = Ok(());
            let mut mended = Vec::new();
            let mut sink = |first, count, payload: &[u8]| {
                if written.is_ok() && state.continues(&place, first) {
                    written = self.make_room(state, payload.len(), write_out);
                    state.insert(&place, first, count, payload)?;
                }
                Ok(())
            };
            let summary = LogReader::replay_mended(&file, &mut sink, &mut mended)?;
            written?;
            for error in mended {
                tracing::error!(%error, "a log is damaged");
                state.replayed.mended.push((*number, file.tier(), error.into()));
            }
            let reached = state.replayed.last_sequence;
            if sealed && let Some(hole) = state.hole.as_ref().filter(|_| state.begins_late) {
                return Err(Error::corrupt(format!(
                    "{hole}, yet the log before it is whole up to sequence {reached}: a log \
                     between them is missing; restore the database from a checkpoint"
                )));
            }
            sealed = summary.end == ReplayEnd::Sealed;
            if !state.replayed.covered.has(summary.durable_sequence) {
                let cause = state.hole.take().unwrap_or_else(|| file.describe());
                return Err(Error::corrupt(format!(
                    "records after sequence {reached} are missing although sequence {} \
                     was acknowledged as durable ({cause}); restore the database from a checkpoint",
                    summary.durable_sequence
                )));
            }
            if let ReplayEnd::Torn { offset } = summary.end {
                tracing::info!(log = %file.describe(), offset, "the log ends in unsynced writes");
                // What a later log has follows after what is missing here.
                if !planted(Planted::HoleReplayedOver) {
                    let hole = || format!("{} ends at {offset}", file.describe());
                    state.hole.get_or_insert_with(hole);
                }
            }
        }
        Ok(())
    }

    /// Writes the memtable out where another payload would make it too large.
    pub(super) fn make_room(
        &self,
        state: &mut Replaying,
        payload_bytes: usize,
        write_out: &mut dyn FnMut(Memtable) -> Result<()>,
    ) -> Result<()> {
        let added = state.memtable.bytes() + payload_bytes as u64 + ENTRY_OVERHEAD_BYTES;
        let fits = self.memtable_bytes.is_none_or(|most| added <= most);
        if fits || state.memtable.count() == 0 {
            return Ok(());
        }
        write_out(std::mem::take(&mut state.memtable))
    }
}

/// A replay under way.
pub(super) struct Replaying {
    replayed: Replayed,
    memtable: Memtable,
    flushed: Sequence,
    /// The sequence that the next record must have; unknown before the first, which may also be one
    /// that is in tables already: its log was at the floor.
    expected: Option<Sequence>,
    /// What a bulk load took, where the manifest does not know of it.
    reserved: Option<Sequence>,
    /// Where records are missing; nothing behind it counts. Groups of one log are written side by
    /// side, so it may be within a log as well as between two.
    hole: Option<String>,
    /// The log at hand has given a record.
    in_log: bool,
    /// The hole is before the first record of the log at hand. One within it is between groups that
    /// were written side by side, and tells nothing of the log before.
    begins_late: bool,
}

impl Replaying {
    fn new(flushed: Sequence) -> Self {
        let back = u64::from(planted(Planted::SequenceGoesBack));
        let last_sequence = Sequence(flushed.0.saturating_sub(back));
        Self {
            replayed: Replayed {
                memtable: None,
                last_sequence,
                covered: Covered { manifest: last_sequence, logs: None },
                records: 0,
                ends_at_hole: false,
                mended: Vec::new(),
            },
            memtable: Memtable::new(),
            flushed,
            expected: None,
            reserved: None,
            hole: None,
            in_log: false,
            begins_late: false,
        }
    }

    /// The next log or arena begins.
    pub fn begin_part(&mut self) {
        self.in_log = false;
        self.begins_late = false;
    }

    /// The last sequence that was replayed, or that tables have.
    pub fn reached(&self) -> Sequence {
        self.replayed.last_sequence
    }

    /// The record of sequence `first`, which is at `place`, follows what was replayed so far.
    pub fn continues(&mut self, place: &str, first: Sequence) -> bool {
        let follows = match self.expected {
            Some(expected) => {
                let unlooked = self.in_log && planted(Planted::HoleInLogSkipped);
                expected == first || unlooked
            }
            None => first <= self.flushed.next(),
        };
        let follows = follows || planted(Planted::HoleReplayedOver);
        let is_first = !std::mem::replace(&mut self.in_log, true);
        if !follows && self.hole.is_none() {
            let what = if is_first { "begins at" } else { "goes on after a hole at" };
            self.hole = Some(format!("{place} {what} sequence {first}"));
            self.begins_late = is_first;
        }
        self.hole.is_none()
    }

    pub fn insert(
        &mut self,
        place: &str,
        first: Sequence,
        count: u32,
        payload: &[u8],
    ) -> Result<(), DeviceError> {
        let before = self.memtable.count();
        let what = || format!("{place}: the record of sequence {first}");
        let cut = planted(Planted::BatchCutInReplay);
        let payload = if cut { crate::batch::first_half(payload) } else { payload };
        self.memtable.insert_batch(first, payload).map_err(|error| {
            let kind = match error.kind() {
                ErrorKind::NewerFormat => DeviceErrorKind::NewerFormat,
                _ => DeviceErrorKind::Corrupt,
            };
            DeviceError::new(kind, format!("{} is no batch: {error}", what()))
        })?;
        // A bulk load reserves a sequence with an empty batch; more writes than sequences are
        // wrong.
        let writes = self.memtable.count() - before;
        if writes == 0 && first > self.flushed {
            self.reserved = Some(first);
        } else if let Some(reserved) = self.reserved {
            // Writers wait until the load is in the manifest, or has failed, which is there too.
            let text = format!(
                "{} follows a bulk load of sequence {reserved} that the manifest does not know: \
                 the end of the manifest is lost; restore the database from a checkpoint",
                what()
            );
            return Err(DeviceError::new(DeviceErrorKind::Corrupt, text));
        }
        if writes > u64::from(count) {
            let text = format!("{} has {writes} writes for {count} sequences", what());
            return Err(DeviceError::new(DeviceErrorKind::Corrupt, text));
        }
        let next = Sequence(first.0 + u64::from(count));
        self.expected = Some(next);
        let last = Sequence(next.0.saturating_sub(1));
        let logs = &mut self.replayed.covered.logs;
        *logs = Some(logs.map_or((first, last), |(first, _)| (first, last)));
        self.replayed.last_sequence = self.replayed.last_sequence.max(last);
        self.replayed.records += u64::from(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newest_in_tables_does_not_stand_for_what_the_end_of_a_log_had() {
        let covered = |manifest, logs: Option<(u64, u64)>| Covered {
            manifest: Sequence(manifest),
            logs: logs.map(|(first, last)| (Sequence(first), Sequence(last))),
        };
        assert!(covered(50, None).has(Sequence(50)) && !covered(50, None).has(Sequence(51)));
        assert!(covered(0, None).has(Sequence::ZERO));
        let all = covered(100, Some((51, 100)));
        assert!(all.has(Sequence(100)) && all.has(Sequence(50)) && !all.has(Sequence(101)));
        // A piece was live that has the newest of them, and then the log lost its end.
        let cut = covered(100, Some((51, 80)));
        assert!(cut.has(Sequence(80)) && cut.has(Sequence(50)) && !cut.has(Sequence(100)));
        assert_eq!((cut.last(), covered(7, None).last()), (Sequence(80), Sequence(7)));
        // Nothing was written out yet.
        assert!(covered(0, Some((1, 9))).has(Sequence(9)));
    }
}
