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
//! store is opened for reading, and says why. A store that is opened for reading only keeps what
//! its logs have in memory too, and changes nothing: leftovers stay.
//!
//! Recovery is idempotent: until the edit that raises the floor is durable the next opening finds
//! the same logs and the same floor. The tables it had written are unknown to the manifest and
//! deleted; records that are in slots already are met again with the same sequence.

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::front::persistent::opening::OpenedRegion;
use crate::front::replay::Replay;
use crate::front::replay::Replayed;
use crate::generations::memtable::Memtable;
use crate::layout::OpenedLayout;
use crate::shared::Shared;
use crate::shared::delete_or_leave;
use crate::shared::totals::Totals;
use crate::table_set::levels::Levels;
use crate::table_set::manifest::{Edit, Manifest, broken_slots};
use crate::table_set::restored::Restored;
use crate::table_set::table::{TableMeta, TableStore};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thermocline_device::{FileInfo, FileKind, TieredFiles};
use thermocline_foundation::{FileNumber, Planted, Sequence, planted, sync_site};
use thermocline_slab::LiveSlots;

/// Reads the newest manifest; none in a database that was never opened for writing.
pub(crate) fn restore(store: &Arc<TableStore>) -> Result<Option<Restored>> {
    let mut manifests = numbers_of(&store.files, |kind| kind == FileKind::Manifest);
    let Some(newest) = manifests.pop() else {
        return without_manifest(&store.files).map(|()| None);
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
    let mut older_versions = Some(0);
    for edit in edits {
        if edit.live_slots.is_some() || !edit.slabs.is_empty() {
            older_versions = edit.older_versions;
        }
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
    Ok(Some(Restored {
        manifest,
        levels,
        slots,
        log_floor,
        last_sequence,
        totals,
        durable_sequence,
        older_versions,
    }))
}

/// There is no manifest: refused but in a database that was never opened for writing.
fn without_manifest(files: &TieredFiles) -> Result<()> {
    let home = files.home().display();
    if !never_had_manifest(files) {
        // Beside a region no manifest is made anew.
        let otherwise = match files.region() {
            None => ", or see what `repair` says",
            Some(_) => "",
        };
        return Err(Error::corrupt(format!(
            "{home} has lost its manifest, and the file map that listed it; restore the database \
             from a checkpoint{otherwise}"
        )));
    }
    match numbers_of(files, holds_records).len() {
        0 => Ok(()),
        count => Err(Error::corrupt(format!(
            "{home} has {count} tables and slabs and no manifest: it is a checkpoint that was not \
             finished; delete it and make it again"
        ))),
    }
}

fn holds_records(kind: FileKind) -> bool {
    matches!(kind, FileKind::Table { .. } | FileKind::Slab)
}

/// There is no manifest because there was none yet. A database gets its manifest before anything
/// else. A checkpoint gets tables and slabs first, and its manifest last: until then it has no log,
/// was never closed in good order, and has no region.
pub(crate) fn never_had_manifest(files: &TieredFiles) -> bool {
    let is_of_database = |kind| matches!(kind, FileKind::Manifest | FileKind::Log);
    numbers_of(files, is_of_database).is_empty()
        && !files.was_closed_with(FileKind::Manifest)
        && (files.region().is_none() || numbers_of(files, holds_records).is_empty())
}

/// Numbers of the published files of a kind, ascending.
pub(crate) fn numbers_of(files: &TieredFiles, want: impl Fn(FileKind) -> bool) -> Vec<FileNumber> {
    let mut numbers: Vec<_> =
        files.files().iter().filter(|info| want(info.kind)).map(|info| info.number).collect();
    numbers.sort_unstable();
    numbers
}

/// Refuses a namespace that lacks a table or slab of the manifest.
pub(crate) fn require_files(store: &TableStore, restored: &Restored) -> Result<()> {
    let files: Vec<FileInfo> = store.files.files();
    for (level, table) in restored.levels.tables() {
        let number = table.meta.number;
        if !files.iter().any(|info| info.number == number) {
            return Err(Error::corrupt(format!(
                "table {number} of level {level} is in the manifest but in no tier; \
                 restore the database from a checkpoint"
            )));
        }
    }
    for (number, _) in restored.slots.iter() {
        if !files.iter().any(|info| info.number == number && info.kind == FileKind::Slab) {
            return Err(Error::corrupt(format!(
                "slab {number} is in the manifest but in no tier; restore the database from a \
                 checkpoint"
            )));
        }
    }
    Ok(())
}

/// Deletes older manifests than the newest, and tables and slabs that the newest does not know;
/// gives each table the kind of its level.
pub(crate) fn remove_leftovers(store: &TableStore, restored: &Restored) -> Result<()> {
    let files = &store.files;
    let mut manifests = numbers_of(files, |kind| kind == FileKind::Manifest);
    manifests.pop();
    files.delete_files(&manifests)?;
    let kinds: BTreeMap<_, _> =
        files.files().into_iter().map(|info| (info.number, info.kind)).collect();
    let mut known = BTreeSet::new();
    for (level, table) in restored.levels.tables() {
        let (number, kind) = (table.meta.number, FileKind::Table { level: level as u8 });
        // A crash between reclassifying and the manifest's edit leaves the old level there.
        if kinds.get(&number) != Some(&kind) {
            files.reclassify(number, kind)?;
        }
        known.insert(number);
    }
    if planted(Planted::UnknownTablesKept) {
        return Ok(());
    }
    let mut leftovers = numbers_of(files, |kind| matches!(kind, FileKind::Table { .. }));
    leftovers.retain(|number| !known.contains(number));
    let slabs = numbers_of(files, |kind| kind == FileKind::Slab);
    leftovers.extend(slabs.into_iter().filter(|number| restored.slots.get(*number).is_none()));
    Ok(files.delete_files(&leftovers)?)
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

/// What the logs had, and where it is now.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub replayed: Replayed,
    /// Tables written to level 0 from the logs' records.
    added: Vec<TableMeta>,
    /// Why the records are in memory, where they should be in tables.
    no_room: Option<Error>,
}

/// Replays the logs `live`, ascending; `flushed` is the newest sequence outside of them. Where no
/// tier has room for tables, all stays in one memtable.
pub(crate) fn replay_logs(
    shared: &Shared,
    layout: &OpenedLayout,
    live: &[FileNumber],
    region: Option<&OpenedRegion>,
    flushed: Sequence,
) -> Result<Recovered> {
    let least = layout.replayed_memtable_bytes(&shared.settings);
    let large = least.map(|least| large_memtable_bytes(shared, live, least));
    // A large table may have no room where several smaller ones have it.
    let sizes: &[_] = if large == least { &[least] } else { &[large, least] };
    let mut no_room = None;
    for memtable_bytes in sizes {
        match replay_to_tables(shared, layout, live, (region, flushed), *memtable_bytes) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace && memtable_bytes.is_some() => {
                no_room = Some(error);
            }
            replayed => return replayed,
        }
    }
    let replayed = replay_in_memory(shared, live, region, flushed)?;
    Ok(Recovered { replayed, added: Vec::new(), no_room })
}

/// What replayed memtables may come to: `least`, or what logs hold that are larger than those of
/// today, written before the capacity of tier 0 bounded them or while it was larger. Else one such
/// log would become hundreds of tables.
fn large_memtable_bytes(shared: &Shared, live: &[FileNumber], least: u64) -> u64 {
    let Shared { files, settings, .. } = shared;
    let logs = files.files().into_iter().filter(|file| live.contains(&file.number));
    let largest = logs.map(|file| file.bytes).max().unwrap_or(0);
    match largest > settings.log_bytes() {
        true => largest.min(settings.memtable_bytes_wanted()).max(least),
        false => least,
    }
}

/// Replays logs, and writes memtables of `memtable_bytes` to tables where that is given. Where that
/// fails no table is left.
fn replay_to_tables(
    shared: &Shared,
    layout: &OpenedLayout,
    live: &[FileNumber],
    (region, flushed): (Option<&OpenedRegion>, Sequence),
    memtable_bytes: Option<u64>,
) -> Result<Recovered> {
    let files = &shared.files;
    let mut added = Vec::new();
    let replay = Replay { files, memtable_bytes, region };
    let replayed = replay.run(live, flushed, &mut |memtable| {
        added.extend(layout.write_replayed(shared, memtable)?);
        Ok(())
    });
    match replayed {
        Ok(replayed) => Ok(Recovered { replayed, added, no_room: None }),
        Err(error) => {
            let is_refused = error.kind() == ErrorKind::OutOfSpace && memtable_bytes.is_some();
            if is_refused {
                let numbers = added.iter().map(|meta| meta.number);
                delete_or_leave(files, &numbers.collect::<Vec<_>>());
            }
            Err(error)
        }
    }
}

/// As [`replay_logs`], with all of it in one memtable.
pub(crate) fn replay_in_memory(
    shared: &Shared,
    live: &[FileNumber],
    region: Option<&OpenedRegion>,
    flushed: Sequence,
) -> Result<Replayed> {
    let replay = Replay { files: &shared.files, memtable_bytes: None, region };
    replay.run(live, flushed, &mut |_| Ok(()))
}

impl Engine {
    /// Has what the logs had in tables or slots, and the logs gone. Says no where no tier has room
    /// for it, or slots are damaged: then it stays in memory, and the store is to be read only.
    /// Arenas, which the region may have besides, are for the caller to free.
    pub fn settle_logs(
        &self,
        recovered: Recovered,
        logs: &[FileNumber],
        live: &[FileNumber],
        has_arenas: bool,
    ) -> Result<bool> {
        let Recovered { mut replayed, added, no_room } = recovered;
        if let Some(damage) = self.layout.damage() {
            let memtable = replayed.memtable.take().unwrap_or_default();
            return self.only_read(memtable, live, &damage).map(|()| false);
        }
        let edit = Edit {
            added: added.into_iter().map(|meta| (0, meta)).collect(),
            log_floor: Some(self.front.enter().number()),
            ..Edit::default()
        };
        let early = planted(Planted::RecoveryDeletesLogsFirst);
        if early {
            self.shared.files.delete_files(logs)?;
        }
        let settled = match no_room {
            Some(no_room) => Err(no_room),
            None => self.layout.settle(live, replayed.memtable.as_ref(), edit),
        };
        match (settled, replayed.memtable.take()) {
            // Of a new database nothing is to be read: it is not made.
            (Err(error), Some(memtable))
                if error.kind() == ErrorKind::OutOfSpace && (has_arenas || !live.is_empty()) =>
            {
                self.only_read(memtable, live, &error)?;
                Ok(false)
            }
            (settled, _) => {
                settled?;
                if !early {
                    self.shared.files.delete_files(logs)?;
                }
                Ok(true)
            }
        }
    }

    /// Gives up the generation that this opening made, unless the manifest names it as the floor,
    /// or one whose end is unknown may.
    pub fn give_up_generation(&self) {
        let floor = self.versions.tables().log_floor;
        let quiet = self.front.enter();
        if self.shared.latch.check().is_ok() && quiet.number() != floor {
            quiet.discard();
        }
    }

    /// Ends all writing before it begins, with `memtable`, which has what `logs` had, to be read.
    /// The logs stay, so the next opening finds what this one did.
    fn only_read(&self, memtable: Arc<Memtable>, logs: &[FileNumber], why: &Error) -> Result<()> {
        // What was read of them may be in the system's memory only, and is about to be shown.
        let sync = |log: &FileNumber| self.shared.files.open_file(*log)?.sync();
        sync_site("read-only/logs", || logs.iter().try_for_each(sync))?;
        if planted(Planted::ReadOnlyOpeningDropsLogs) {
            self.shared.files.delete_files(logs)?;
        }
        let is_manifest_known = self.shared.latch.check().is_ok();
        self.shared.fail(why);
        self.versions.replace_active(memtable);
        // No writer will write to the log of this opening. A manifest whose end is unknown may name
        // this log as the floor.
        if is_manifest_known {
            self.front.enter().discard();
        }
        Ok(())
    }
}
