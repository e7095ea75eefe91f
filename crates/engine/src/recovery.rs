//! Opening: from durable files to a running engine.
//!
//! ```text
//!   namespace opened (tiers checked) -> newest manifest read -> slots of the fast tier read
//!   -> logs from the floor on replayed, in order, into memtables
//!   -> these written to level 0, or piece by piece to slots
//!   -> one edit: tables added, floor = the new log -> leftovers deleted
//! ```
//! Replay stops at the first hole in the sequences. A torn log tail is what a crash leaves; a hole
//! below a sequence that some log says was durable is damage, and refused.
//!
//! Where no tier has room for what the logs had, all of it stays in memory and the logs stay: the
//! store is opened for reading, and says why. So does a store that is opened for reading only,
//! which changes nothing: leftovers stay, and its manifest and its log, where one must be made, are
//! in memory.
//!
//! Recovery is idempotent: until the edit that raises the floor is durable the next opening finds
//! the same logs and the same floor. The tables it had written are unknown to the manifest and
//! deleted; records that are in slots already are met again with the same sequence.

use crate::compaction::rewrite::{Output, Retention, Rewrite};
use crate::error::{Error, ErrorKind, Result};
use crate::front::memtable::{ENTRY_OVERHEAD_BYTES, Memtable, MemtableCursor};
use crate::jobs::Step;
use crate::manifest::{Edit, Manifest, broken_slots};
use crate::merge::{Merge, Source};
use crate::state::{Engine, ReadState};
use crate::table_set::levels::Levels;
use crate::table_set::table::{TableMeta, TableStore};
use crate::totals::Totals;
use std::sync::Arc;
use thermocline_device::{
    Error as DeviceError, ErrorKind as DeviceErrorKind, File, FileContext, FileInfo, FileKind,
    Origin, TieredFiles,
};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};
use thermocline_log::{LogReader, ReplayEnd};
use thermocline_slab::LiveSlots;
use thermocline_table::TableOptions;

/// What the manifest says.
#[derive(Debug)]
pub(crate) struct Restored {
    pub manifest: Manifest,
    pub levels: Levels,
    pub slots: LiveSlots,
    pub log_floor: FileNumber,
    pub last_sequence: Sequence,
    pub totals: Totals,
    pub durable_sequence: Sequence,
}

/// Reads the newest manifest and deletes older ones; none in a database that was never opened for
/// writing.
pub(crate) fn restore(store: &Arc<TableStore>) -> Result<Option<Restored>> {
    let mut manifests = numbers_of(&store.files, |kind| kind == FileKind::Manifest);
    let Some(newest) = manifests.pop() else {
        let holds_records = |kind| matches!(kind, FileKind::Table { .. } | FileKind::Slab);
        let files = numbers_of(&store.files, holds_records);
        if files.is_empty() {
            return Ok(None);
        }
        // A checkpoint gets its tables and slabs first and its manifest last.
        let home = store.files.home().display();
        return Err(Error::corrupt(format!(
            "{home} has {} tables and slabs and no manifest: it is a checkpoint that was not \
             finished; delete it and make it again",
            files.len()
        )));
    };
    let mut edits = Vec::new();
    let manifest = Manifest::open(&store.files, newest, |edit| {
        edits.push(edit);
        Ok(())
    })?;
    let mut levels = Levels::default();
    let (mut log_floor, mut last_sequence) = (FileNumber(0), Sequence::ZERO);
    let (mut totals, mut durable_sequence) = (Totals::default(), Sequence::ZERO);
    let mut slots = LiveSlots::default();
    for edit in edits {
        slots = edit.live_slots.clone().unwrap_or(slots);
        for change in &edit.slabs {
            slots.apply(change).map_err(broken_slots)?;
        }
        levels = levels.apply(&edit, store)?;
        log_floor = edit.log_floor.unwrap_or(log_floor);
        last_sequence = last_sequence.max(edit.last_sequence.unwrap_or_default());
        totals = edit.totals.unwrap_or(totals);
        durable_sequence = edit.durable_sequence.unwrap_or(durable_sequence);
    }
    if !store.files.is_read_only() {
        store.files.delete_files(&manifests)?;
    }
    let restored =
        Restored { manifest, levels, slots, log_floor, last_sequence, totals, durable_sequence };
    Ok(Some(restored))
}

/// Numbers of the published files of a kind, ascending.
pub(crate) fn numbers_of(files: &TieredFiles, want: impl Fn(FileKind) -> bool) -> Vec<FileNumber> {
    let mut numbers: Vec<_> =
        files.files().iter().filter(|info| want(info.kind)).map(|info| info.number).collect();
    numbers.sort_unstable();
    numbers
}

/// Refuses a namespace that lacks a table or slab of the manifest, and deletes those that the
/// manifest does not know, unless it is only read.
pub(crate) fn reconcile(store: &TableStore, levels: &Levels, slots: &LiveSlots) -> Result<()> {
    let files: Vec<FileInfo> = store.files.files();
    for (level, table) in levels.tables() {
        let number = table.meta.number;
        let Some(info) = files.iter().find(|info| info.number == number) else {
            return Err(Error::corrupt(format!(
                "table {number} of level {level} is in the manifest but in no tier; \
                 restore the database from a checkpoint"
            )));
        };
        let kind = FileKind::Table { level: level as u8 };
        // A crash between reclassifying and the manifest's edit leaves the old level there.
        if info.kind != kind && !store.files.is_read_only() {
            store.files.reclassify(number, kind)?;
        }
    }
    let known: std::collections::BTreeSet<_> =
        levels.tables().map(|(_, table)| table.meta.number).collect();
    let leftovers: Vec<_> = numbers_of(&store.files, |kind| matches!(kind, FileKind::Table { .. }))
        .into_iter()
        .filter(|number| !known.contains(number))
        .collect();
    if planted(Planted::UnknownTablesKept) {
        return Ok(());
    }
    for (number, _) in slots.iter() {
        if !files.iter().any(|info| info.number == number && info.kind == FileKind::Slab) {
            return Err(Error::corrupt(format!(
                "slab {number} is in the manifest but in no tier; restore the database from a \
                 checkpoint"
            )));
        }
    }
    if store.files.is_read_only() {
        return Ok(());
    }
    let mut leftovers = leftovers;
    let slabs = numbers_of(&store.files, |kind| kind == FileKind::Slab);
    leftovers.extend(slabs.into_iter().filter(|number| slots.get(*number).is_none()));
    Ok(store.files.delete_files(&leftovers)?)
}

/// Refuses logs without the one that the manifest says to begin with. A log goes only after the
/// edit that raises the floor above it is durable, so this one is missing or the end of the
/// manifest is.
pub(crate) fn require_floor(logs: &[FileNumber], floor: FileNumber) -> Result<()> {
    // A new database and a checkpoint begin without logs.
    if floor == FileNumber(0) || logs.contains(&floor) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "log {floor}, with which recovery must begin, is in no tier, or the manifest has lost its \
         end; restore the database from a checkpoint"
    )))
}

/// Refuses logs that end before what was durable when the database was closed.
pub(crate) fn require_durable(replayed: &Replayed, durable: Sequence) -> Result<()> {
    if replayed.covered.has(durable) {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the logs end at sequence {}, but {} was durable when the database was closed: the end of \
         a log is lost; restore the database from a checkpoint",
        replayed.covered.last().0,
        durable.0
    )))
}

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
    fn has(&self, sequence: Sequence) -> bool {
        match self.logs {
            Some((first, last)) if first <= sequence => sequence <= last,
            _ => sequence <= self.manifest,
        }
    }

    /// The last of those that are all there.
    fn last(&self) -> Sequence {
        self.logs.map_or(self.manifest, |(_, last)| last)
    }
}

/// What the logs held.
#[derive(Debug)]
pub(crate) struct Replayed {
    /// Tables written to level 0 from the logs' records.
    pub added: Vec<TableMeta>,
    /// All of the logs' records, where they were not written to tables.
    pub memtable: Option<Arc<Memtable>>,
    /// Why they were not, where they should have been.
    pub no_room: Option<Error>,
    pub last_sequence: Sequence,
    pub covered: Covered,
    pub records: u64,
}

/// Replays logs into level 0 tables.
pub(crate) struct Replay<'a> {
    pub files: &'a Arc<TieredFiles>,
    pub options: TableOptions,
    /// A memtable is written out at this size; none: all stays in one, which is given back. The
    /// logs are of the memtables that there may be at once, so it is no larger than those.
    pub memtable_bytes: Option<u64>,
}

impl Replay<'_> {
    /// Replays the logs `numbers`, ascending. Records up to `flushed` are in tables only if their
    /// log is below the floor, so all are replayed; a record met again has the same sequence and
    /// does no harm. Where no tier has room for tables, all stays in one memtable.
    pub fn run(&self, numbers: &[FileNumber], flushed: Sequence) -> Result<Replayed> {
        let mut state = Replaying::new(flushed);
        match self.run_through(&mut state, numbers) {
            Ok(()) => Ok(state.replayed),
            Err(error)
                if error.kind() == ErrorKind::OutOfSpace && self.memtable_bytes.is_some() =>
            {
                let added = state.replayed.added.iter().map(|meta| meta.number);
                delete_or_leave(self.files, &added.collect::<Vec<_>>());
                let options = self.options.clone();
                let in_memory = Replay { files: self.files, options, memtable_bytes: None };
                let replayed = in_memory.run(numbers, flushed)?;
                Ok(Replayed { no_room: Some(error), ..replayed })
            }
            Err(error) => Err(error),
        }
    }

    fn run_through(&self, state: &mut Replaying, numbers: &[FileNumber]) -> Result<()> {
        // The log before has the mark of its end: nothing of it was lost in a crash.
        let mut sealed = false;
        for number in numbers {
            let file = self.files.open_file(*number)?;
            let torn_before = state.hole.is_some();
            let mut written = Ok(());
            let summary = LogReader::replay(&file, &mut |first, count, payload| {
                if written.is_ok() && state.continues(&file, first) {
                    written = self.make_room(state, payload.len());
                    state.insert(&file, first, count, payload)?;
                }
                Ok(())
            })?;
            written?;
            let reached = state.replayed.last_sequence;
            if sealed && let Some(hole) = state.hole.as_ref().filter(|_| !torn_before) {
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
        let memtable = std::mem::take(&mut state.memtable);
        if self.memtable_bytes.is_none() {
            state.replayed.memtable = Some(Arc::new(memtable));
            return Ok(());
        }
        self.write_out(memtable, &mut state.replayed.added)
    }

    /// Writes the memtable out where another payload would make it too large.
    fn make_room(&self, state: &mut Replaying, payload_bytes: usize) -> Result<()> {
        let added = state.memtable.bytes() + payload_bytes as u64 + ENTRY_OVERHEAD_BYTES;
        let fits = self.memtable_bytes.is_none_or(|most| added <= most);
        if fits || state.memtable.count() == 0 {
            return Ok(());
        }
        let full = std::mem::take(&mut state.memtable);
        self.write_out(full, &mut state.replayed.added)
    }

    fn write_out(&self, memtable: Memtable, added: &mut Vec<TableMeta>) -> Result<()> {
        if memtable.count() == 0 {
            return Ok(());
        }
        let expected_bytes = memtable.bytes();
        let merge = Merge::new(vec![Source::Memtable(MemtableCursor::new(Arc::new(memtable)))]);
        let output = Output {
            context: FileContext { kind: FileKind::Table { level: 0 }, origin: Origin::Recovery },
            options: self.options.clone(),
            table_bytes: u64::MAX,
            expected_bytes,
            cache: None,
        };
        // No snapshot survives a restart, so of each key only the newest version matters.
        let retention = Retention::new(vec![Sequence::MAX], None);
        let mut rewrite = Rewrite::new(Arc::clone(self.files), merge, retention, output);
        while rewrite.step()? == Step::More {}
        added.extend(rewrite.publish()?);
        Ok(())
    }
}

impl Engine {
    /// Has what the logs had in tables or slots, and the logs gone. Says no where no tier has room
    /// for it: then it stays in memory, and the store is to be read only.
    pub fn settle_logs(
        &self,
        mut replayed: Replayed,
        logs: &[FileNumber],
        live: &[FileNumber],
    ) -> Result<bool> {
        if self.files.is_read_only() {
            self.latch.set_opened_read_only(self.files.home());
            self.show_replayed(replayed.memtable.unwrap_or_default());
            return Ok(false);
        }
        let added = std::mem::take(&mut replayed.added);
        let edit = Edit {
            added: added.into_iter().map(|meta| (0, meta)).collect(),
            log_floor: Some(self.leader.lock().log.number),
            ..Edit::default()
        };
        let early = planted(Planted::RecoveryDeletesLogsFirst);
        if early {
            self.files.delete_files(logs)?;
        }
        let settled = match replayed.no_room.take() {
            Some(no_room) => Err(no_room),
            None => self.settle_replayed(live, replayed.memtable.as_ref(), edit),
        };
        match (settled, replayed.memtable.take()) {
            // Of a new database nothing is to be read: it is not made.
            (Err(error), Some(memtable))
                if error.kind() == ErrorKind::OutOfSpace && !live.is_empty() =>
            {
                self.only_read(memtable, live, &error)?;
                Ok(false)
            }
            (settled, _) => {
                settled?;
                if !early {
                    self.files.delete_files(logs)?;
                }
                Ok(true)
            }
        }
    }

    /// Lets readers see what the logs had, where nothing is written from here on.
    fn show_replayed(&self, memtable: Arc<Memtable>) {
        self.switch(|state| ReadState { active: memtable, ..state.clone() });
    }

    /// Ends all writing before it begins, with `memtable`, which has what `logs` had, to be read.
    /// The logs stay, so the next opening finds what this one did.
    fn only_read(
        &self,
        memtable: Arc<Memtable>,
        logs: &[FileNumber],
        no_room: &Error,
    ) -> Result<()> {
        // What was read of them may be in the system's memory only, and is about to be shown.
        logs.iter().try_for_each(|log| self.files.open_file(*log)?.sync())?;
        if planted(Planted::ReadOnlyOpeningDropsLogs) {
            self.files.delete_files(logs)?;
        }
        let is_manifest_known = self.latch.check().is_ok();
        self.fail(no_room);
        self.show_replayed(memtable);
        // Nobody will write to the log of this opening. A manifest of which nobody knows the end
        // may name it as the floor.
        if is_manifest_known {
            delete_or_leave(&self.files, &[self.leader.lock().log.number]);
        }
        Ok(())
    }
}

/// Deletes files that do no harm where there is no room for saying so.
pub(crate) fn delete_or_leave(files: &TieredFiles, numbers: &[FileNumber]) {
    if let Err(error) = files.delete_files(numbers) {
        tracing::warn!(%error, "files that nobody needs stay until the next opening");
    }
}

/// A replay under way.
struct Replaying {
    replayed: Replayed,
    memtable: Memtable,
    flushed: Sequence,
    /// The sequence that the next record must have; unknown before the first, which may also be one
    /// that is in tables already: its log was at the floor.
    expected: Option<Sequence>,
    /// What a bulk load took, where the manifest does not know of it.
    reserved: Option<Sequence>,
    /// Where records are missing; nothing behind it counts.
    hole: Option<String>,
}

impl Replaying {
    fn new(flushed: Sequence) -> Self {
        let back = u64::from(planted(Planted::SequenceGoesBack));
        let last_sequence = Sequence(flushed.0.saturating_sub(back));
        Self {
            replayed: Replayed {
                added: Vec::new(),
                memtable: None,
                no_room: None,
                last_sequence,
                covered: Covered { manifest: last_sequence, logs: None },
                records: 0,
            },
            memtable: Memtable::new(),
            flushed,
            expected: None,
            reserved: None,
            hole: None,
        }
    }

    /// The record of sequence `first` follows what was replayed so far.
    fn continues(&mut self, file: &File, first: Sequence) -> bool {
        let follows = match self.expected {
            Some(expected) => expected == first,
            None => first <= self.flushed.next(),
        };
        let follows = follows || planted(Planted::HoleReplayedOver);
        if !follows && self.hole.is_none() {
            self.hole = Some(format!("{} begins at sequence {first}", file.describe()));
        }
        self.hole.is_none()
    }

    fn insert(
        &mut self,
        file: &File,
        first: Sequence,
        count: u32,
        payload: &[u8],
    ) -> Result<(), DeviceError> {
        let before = self.memtable.count();
        let what = || format!("{}: the record of sequence {first}", file.describe());
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
