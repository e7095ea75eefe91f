//! Repair: from a database with damaged pieces to one that opens for writing and verifies.
//!
//! ```text
//!   files opened, manifest read -> every piece looked at -> plan, as data
//!   -> damaged bytes kept in lost/ -> what can be read written to new tables and a new log
//!   -> one new manifest: these, and no slot that is damaged -> old files deleted
//! ```
//! 1. The plan is all that a caller sees, before and after; looking changes nothing.
//! 2. Every damaged byte has a durable copy in `lost` before anything else is changed.
//! 3. The new manifest is the moment at which the repair takes effect. One that is cut off before
//!    it has left new files that the next opening for writing, or the next repair, passes over; one
//!    that is cut off behind it left old ones.
//! 4. What is lost is said. A key whose newest record is lost is gone or has an older one; which of
//!    the two is said where the key is known.
//! 5. What a device does not give is not damaged: it may give it when the repair is tried again. It
//!    counts as damaged where the caller says that it never will ([`Unreadable`]).
//!
//! The parts: `slots` (the fast tier of hybrid), `tables`, `logs`, each with what it finds and what
//! it does; `map_file` and `settings_file`, which come first; `behind` names what a log loses that
//! is cut, and `outdated` what it must not keep; this file is their order. Two are apart:
//! `region` makes the index in persistent memory anew, and `rebuild` a manifest. Decision page:
//! `docs/decisions/0096-repair.md`.
//!
//! Threads: the caller's alone. No engine runs: the files are opened and nothing above them.

mod behind;
mod logs;
mod map_file;
mod outdated;
pub(crate) mod plan;
mod rebuild;
pub(crate) mod region;
mod settings_file;
mod slots;
mod tables;

use crate::engine::opened_files::{Access, OpenedFiles, open_files_if};
use crate::engine::opening::open;
use crate::engine::restore::{never_had_manifest, require_files, restore};
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Jobs, Progress};
use crate::settings::Settings;
use crate::table_set::manifest::Edit;
use crate::table_set::restored::Restored;
use crate::table_set::table::{ObsoleteFiles, TableStore};
use logs::LogsFound;
use plan::{RepairPlan, RepairStep};
use slots::SlotsFound;
use std::path::Path;
use std::sync::Arc;
use tables::TableFound;
use thermocline_device::identity::InstanceId;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{FileKind, TierIndex, TieredFiles, Unreadable};
use thermocline_foundation::{DatabaseId, FileNumber, Planted, planted};
use thermocline_table::BlockCache;

/// Memory for blocks of tables while they are looked at.
const CACHE_BYTES: u64 = 8 << 20;

/// What is damaged in the database at `home`.
pub(crate) fn plan(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    progress: &mut dyn FnMut(Progress),
) -> Result<RepairPlan> {
    if let Some(plan) = map_file::repair(environment, home, given, false)? {
        return Ok(plan);
    }
    let mended = settings_file::look(environment, home, given)?;
    let given = mended.as_ref().map(|mended| mended.over(given)).or_else(|| given.cloned());
    let subject = Subject::open(environment, home, given.as_ref(), Access::Read)?;
    let Some(subject) = subject else { return Ok(RepairPlan::default()) };
    let mut plan = subject.look(progress)?.plan();
    mended.iter().for_each(|mended| mended.tell(&mut plan));
    Ok(plan)
}

/// Repairs the database at `home`, and says what was done.
pub(crate) fn apply(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    progress: &mut dyn FnMut(Progress),
) -> Result<RepairPlan> {
    if let Some(plan) = map_file::repair(environment, home, given, true)? {
        return Ok(plan);
    }
    let mut mended = settings_file::look(environment, home, given)?;
    let given = mended.as_ref().map(|mended| mended.over(given)).or_else(|| given.cloned());
    let given = given.as_ref();
    let may_pass = |error| may_be_given_later(error, environment.unreadable);
    let subject = Subject::open(environment, home, given, Access::Read)?;
    let journals = match subject {
        Some(subject) => subject.look_at_journals().map_err(may_pass)?,
        None => Vec::new(),
    };
    let subject = Subject::open(environment, home, given, Access::Write)?;
    let Some(mut subject) = subject else { return Ok(RepairPlan::default()) };
    let mut found = subject.look(progress)?;
    found.add_journals(journals);
    if let Some(mended) = &mut mended {
        mended.write(&subject.files)?;
    }
    if !found.plan().is_empty() {
        keep(&subject.files, environment, found.pieces())?;
        subject.change(&found)?;
    }
    subject.files.close(&[(FileKind::Manifest, subject.restored.manifest.extent())])?;
    let are_mended = found.logs.state == logs::State::Mended;
    let mut plan = found.plan();
    mended.iter().for_each(|mended| mended.tell(&mut plan));
    drop((subject, found));
    if are_mended {
        take_logs(environment, home, given)?;
    }
    Ok(plan)
}

/// Opens the database once, which writes what mended logs have to tables or slots, and deletes
/// them.
fn take_logs(environment: &Environment, home: &Path, given: Option<&Settings>) -> Result<()> {
    let opened = open(environment, home, given, Access::Write)?;
    let is_written = opened.is_written;
    opened.engine.close(is_written)?;
    if is_written {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::OutOfSpace,
        "no tier has room for what a damaged log has, and the log stays as it is; make room and \
         repair again",
    ))
}

/// The data of a file is wrong, or it is known that its device never gives it.
fn is_damage(error: &Error, unreadable: Unreadable) -> bool {
    match error.kind() {
        ErrorKind::Corrupt => true,
        ErrorKind::Io => unreadable == Unreadable::Skipped,
        _ => false,
    }
}

/// What is known of bytes that a device does not give.
fn known_of(environment: &Environment) -> Unreadable {
    match planted(Planted::RepairTakesReadErrorForDamage) {
        true => Unreadable::Skipped,
        false => environment.unreadable,
    }
}

/// Says what to do about an error of a device, where it ends a repair that has changed nothing.
fn may_be_given_later(error: Error, unreadable: Unreadable) -> Error {
    if error.kind() != ErrorKind::Io || unreadable == Unreadable::Skipped {
        return error;
    }
    let text = format!(
        "{error}; nothing was taken out of use: try again, for a device may give later what it \
         does not give now; what it never gives counts as damaged with `repair --skip-unreadable`"
    );
    Error::new(ErrorKind::Io, text)
}

/// Ends a look at files of which a device did not give something, unless that counts as damaged.
fn require_given<'a>(
    pieces: impl IntoIterator<Item = &'a Piece>,
    unreadable: Unreadable,
) -> Result<()> {
    let not_given = |piece: &&Piece| piece.step.kind == ErrorKind::Io;
    match pieces.into_iter().find(not_given) {
        Some(piece) if unreadable == Unreadable::Refused => {
            Err(Error::new(ErrorKind::Io, piece.step.damage.clone()))
        }
        _ => Ok(()),
    }
}

/// A repair reads `what` again before it writes it elsewhere, and finds something else than the
/// plan.
fn read_otherwise(what: &str) -> Error {
    let text = format!(
        "{what} could not be read as before, and nothing was taken out of use; the device may be \
         failing: try the repair again"
    );
    Error::new(ErrorKind::Io, text)
}

/// Keeps all that is damaged. The map is written anew at once: nothing else waits for it.
fn keep<'a>(
    files: &TieredFiles,
    environment: &Environment,
    pieces: impl Iterator<Item = &'a mut Piece>,
) -> Result<()> {
    let (devices, unreadable) = (&*environment.devices, environment.unreadable);
    for piece in pieces {
        let (number, part) = match &piece.bytes {
            Bytes::Of(number, part) => (*number, Some(part.clone())),
            Bytes::All(number) => (*number, None),
            Bytes::Map => {
                piece.step.kept_as = Some(files.renew_map(devices, unreadable)?);
                continue;
            }
            Bytes::Missing => continue,
        };
        let kept = files.keep_lost(devices, number, part, unreadable)?;
        piece.step.kept_as = Some(kept);
    }
    Ok(())
}

/// Where a manifest is why a repair is refused, there is one thing more to try; but not for what a
/// device may give later.
fn with_way_out(error: Error, unreadable: Unreadable) -> Error {
    let text = error.to_string();
    let option = match error.kind() {
        ErrorKind::Io if unreadable == Unreadable::Refused => return error,
        ErrorKind::Io => " --skip-unreadable",
        _ => "",
    };
    if !text.contains("manifest") {
        return error;
    }
    let text = format!(
        "{text}; `repair --rebuild-manifest{option}` makes the manifest anew, of what tables, \
         slots and logs tell"
    );
    Error::new(error.kind(), text)
}

/// A database whose files are open.
struct Subject {
    files: Arc<TieredFiles>,
    settings: Settings,
    store: Arc<TableStore>,
    restored: Restored,
    unreadable: Unreadable,
}

/// A step, and the bytes that are to be kept for it.
#[derive(Debug)]
struct Piece {
    step: RepairStep,
    bytes: Bytes,
}

/// What of a file is damaged.
#[derive(Debug)]
enum Bytes {
    Of(FileNumber, std::ops::Range<u64>),
    All(FileNumber),
    /// The file map, which has no entry in itself.
    Map,
    /// There is nothing to keep.
    Missing,
}

impl Piece {
    fn all(number: FileNumber, step: RepairStep) -> Self {
        Self { step, bytes: Bytes::All(number) }
    }
}

/// Everything that was found.
#[derive(Debug)]
struct Found {
    files: u64,
    bytes: u64,
    slots: SlotsFound,
    tables: Vec<TableFound>,
    logs: LogsFound,
    journals: Vec<Piece>,
}

impl Found {
    fn pieces(&mut self) -> impl Iterator<Item = &mut Piece> {
        let of_slots = self.slots.pieces.iter_mut();
        let of_tables = self.tables.iter_mut().flat_map(|table| table.pieces.iter_mut());
        let of_logs = self.logs.pieces.iter_mut();
        of_slots.chain(of_tables).chain(of_logs).chain(&mut self.journals)
    }

    /// Adds what an opening for writing has written anew itself: the last frame of a journal.
    fn add_journals(&mut self, before: Vec<Piece>) {
        for Piece { step, .. } in before {
            if self.journals.iter().all(|piece| piece.step.file != step.file) {
                self.journals.push(Piece { step, bytes: Bytes::Missing });
            }
        }
    }

    fn plan(&mut self) -> RepairPlan {
        let mut steps: Vec<_> = self.pieces().map(|piece| piece.step.clone()).collect();
        if planted(Planted::RepairNamesNothing) {
            steps.iter_mut().for_each(|step| step.lost.clear());
        }
        RepairPlan { files: self.files, bytes: self.bytes, steps, unmerged: None }
    }
}

/// Counts what was read.
struct Meter<'a> {
    now: Progress,
    progress: &'a mut dyn FnMut(Progress),
}

impl Meter<'_> {
    fn add(&mut self, bytes: u64) {
        self.now.done_bytes = (self.now.done_bytes + bytes).min(self.now.total_bytes);
        (self.progress)(self.now);
    }
}

impl Subject {
    /// None where the database was never opened for writing since it was made: it has no record.
    fn open(
        environment: &Environment,
        home: &Path,
        given: Option<&Settings>,
        access: Access,
    ) -> Result<Option<Self>> {
        let refused = || {
            Error::invalid(format!(
                "{} has a region of persistent memory, and the files of such a database are not \
                 repaired; `repair --rebuild-index` makes the index anew, for all else restore the \
                 database from a checkpoint",
                home.display()
            ))
        };
        let is_right = |_, record: Option<&RegionRecord>, _: &Settings, _| match record {
            Some(_) => Err(refused()),
            None => Ok(()),
        };
        let opened = open_files_if(environment, home, given, access, is_right);
        let unreadable = environment.unreadable;
        let opened = opened
            .map_err(|error| may_be_given_later(with_way_out(error, unreadable), unreadable))?;
        // Opened for reading only there is nothing to ask before.
        if opened.files.region().is_some() {
            return Err(refused());
        }
        Self::of(environment, opened)
    }

    /// The same, whether it has a region of persistent memory or not; for writing only where
    /// `is_right` says so.
    fn open_any(
        environment: &Environment,
        home: &Path,
        given: Option<&Settings>,
        access: Access,
        is_right: impl Fn((DatabaseId, InstanceId), Option<&RegionRecord>) -> Result<()>,
    ) -> Result<Option<Self>> {
        let is_right =
            |owner, record: Option<&RegionRecord>, _: &Settings, _| is_right(owner, record);
        Self::of(environment, open_files_if(environment, home, given, access, is_right)?)
    }

    fn of(environment: &Environment, opened: OpenedFiles) -> Result<Option<Self>> {
        let (OpenedFiles { files, settings, .. }, unreadable) = (opened, known_of(environment));
        let store = Arc::new(TableStore {
            files: Arc::clone(&files),
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
            obsolete: ObsoleteFiles::default(),
            jobs: Arc::new(Jobs::new(&environment.workers)),
        });
        let restored = restore(&store).map_err(|error| {
            // Beside a region no manifest is made anew.
            let has_way_out = !never_had_manifest(&files) && files.region().is_none();
            let error = if has_way_out { with_way_out(error, unreadable) } else { error };
            may_be_given_later(error, unreadable)
        })?;
        let Some(restored) = restored else { return Ok(None) };
        require_files(&store, &restored)?;
        Ok(Some(Self { files, settings, store, restored, unreadable }))
    }

    /// Looks at everything.
    fn look(&self, progress: &mut dyn FnMut(Progress)) -> Result<Found> {
        let found = self.look_at_all(progress).and_then(|mut found| {
            require_given(found.pieces().map(|piece| &*piece), self.unreadable)?;
            Ok(found)
        });
        found.map_err(|error| may_be_given_later(error, self.unreadable))
    }

    fn look_at_all(&self, progress: &mut dyn FnMut(Progress)) -> Result<Found> {
        let mut files = self.files.files();
        files.retain(|info| info.published);
        let total_bytes = files.iter().map(|info| info.bytes).sum();
        let now = Progress { done_bytes: 0, total_bytes };
        let mut meter = Meter { now, progress };
        let mut logs = logs::look(self, &mut meter)?;
        let mut slots = slots::look(self, &mut meter)?;
        let mut tables = tables::look(self, &mut meter)?;
        outdated::find(self, &mut logs, &slots)?;
        slots.weigh(self, &logs)?;
        slots.find_copies(&mut tables, &logs)?;
        behind::name_lost(self, &mut logs, &slots)?;
        let journals = self.look_at_journals()?;
        meter.add(total_bytes);
        Ok(Found { files: files.len() as u64, bytes: total_bytes, slots, tables, logs, journals })
    }

    /// The data of a file is wrong, or it is known that its device never gives it.
    fn is_damage(&self, error: &Error) -> bool {
        is_damage(error, self.unreadable)
    }

    /// Goes on without what cannot be read, where that counts as damaged.
    fn pass_over(&self, error: Error) -> Result<()> {
        if self.is_damage(&error) { Ok(()) } else { Err(error) }
    }

    /// Flipped bits of manifest and file map, which reading them has turned back.
    fn look_at_journals(&self) -> Result<Vec<Piece>> {
        const REPAIR: &str = "written anew, as it was";
        let mut pieces = Vec::new();
        let manifest = &self.restored.manifest;
        if let Err(error) = manifest.verify() {
            let (number, kind) = (manifest.number(), FileKind::Manifest);
            let name = format!("{number}.{}", kind.extension());
            let step = RepairStep::of_name(name, manifest.tier(), &error, REPAIR);
            pieces.push(Piece::all(number, step));
        }
        if let Err(error) = self.files.verify_map() {
            let name = format!("{}.{}", self.files.map_number(), FileKind::Map.extension());
            let step = RepairStep::of_name(name, TierIndex(0), &error.into(), REPAIR);
            pieces.push(Piece { step, bytes: Bytes::Map });
        }
        require_given(&pieces, self.unreadable)?;
        Ok(pieces)
    }

    /// Takes what is damaged out of use.
    fn change(&mut self, found: &Found) -> Result<()> {
        found.slots.mend_headers()?;
        let rewritten = tables::rewrite(self, &found.tables)?;
        let log = logs::rewrite(self, &found.logs, &found.slots.copies)?;
        let restored = &mut self.restored;
        let mut state = restored.levels.snapshot();
        state.retain(|(_, meta)| !found.tables.iter().any(|table| table.is(meta.number)));
        state.extend(rewritten);
        found.slots.give_up(&mut restored.slots)?;
        if let Some(log) = &log {
            restored.durable_sequence = log.last_sequence;
        }
        let replacing = log.filter(|log| log.replaces_others);
        if let Some(log) = &replacing {
            restored.log_floor = log.number;
        }
        let Restored { slots, log_floor, last_sequence, .. } = &*restored;
        let edit = Edit {
            totals: Some(restored.totals.clone()),
            durable_sequence: Some(restored.durable_sequence),
            older_versions: restored.older_versions,
            ..Edit::of_state(state, slots, *log_floor, *last_sequence)
        };
        let old_logs = replacing.iter().flat_map(|_| found.logs.numbers.iter().copied());
        let old_tables = found.tables.iter().map(TableFound::number);
        let old: Vec<_> = old_logs.chain(old_tables).collect();
        if planted(Planted::RepairDeletesFirst) {
            self.files.delete_files(&old)?;
        }
        restored.manifest.write_afresh(&edit)?;
        if !planted(Planted::RepairDeletesFirst) {
            self.files.delete_files(&old)?;
        }
        Ok(())
    }
}
