//! The index in persistent memory is made anew, in the same region or, where that cannot be read,
//! in another.
//!
//! ```text
//!   region intact, no other named   memtables written to tables; the index made anew in its place
//!   region intact, another named    the same; then as below, and nothing is lost
//!   region not to be used           manifest: recovery begins without logs -> DATABASE names no
//!                                   region -> the next opening makes the one that is named
//! ```
//! 1. What memtables of the region had that no table has is lost with it. That is said first.
//! 2. The manifest comes before `DATABASE`: where a crash comes between, it is done again.
//! 3. The tables wait for the new index and are searched meanwhile, so it may be filled later.
//! 4. A region that another process has open, that these permissions do not show or that a newer
//!    version wrote is not lost: it is refused, and not given up.
//!
//! Threads: the caller's.

use super::plan::IndexRebuild;
use super::{Access, Subject, may_be_given_later};
use crate::engine::opening::{Opened, open, open_with_new_index};
use crate::engine::restore::numbers_of;
use crate::environment::Environment;
use crate::error::{Error, ErrorKind, Result};
use crate::front::persistent::opening::look;
use crate::settings::persistent_memory::{PersistentMemory, driver_of, parse_driver};
use crate::settings::{Preset, Settings};
use crate::table_set::manifest::Edit;
use std::path::Path;
use thermocline_device::identity::InstanceId;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{FileKind, TieredFiles, Unreadable};
use thermocline_foundation::{DatabaseId, FileNumber};
use thermocline_pmem::Geometry;

impl Environment {
    /// What [`Environment::rebuild_index`] would do, and what that costs. Changes nothing.
    pub fn plan_index_rebuild(
        &self,
        home: &Path,
        settings: Option<&Settings>,
    ) -> Result<IndexRebuild> {
        find(self, &subject(self, home, settings, Access::Read)?, settings)
    }

    /// Makes the index in persistent memory anew from the tables, where it is damaged, or in
    /// another region, where `settings` name one: because the old one is lost, or too small. What
    /// memtables in a region that cannot be read had is lost, and said. Ends when the index has all
    /// tables. The file of a region that was replaced stays, and nothing needs it any more.
    ///
    /// With the preset `leveled`, whose region has memtables alone, this exchanges the region.
    pub fn rebuild_index(&self, home: &Path, settings: Option<&Settings>) -> Result<IndexRebuild> {
        apply(self, home, settings)
    }
}

fn apply(environment: &Environment, home: &Path, given: Option<&Settings>) -> Result<IndexRebuild> {
    let named = given.and_then(|given| given.persistent_memory.as_ref());
    let subject = subject_if(environment, home, given, Access::Write, |owner, record| {
        let (Some(record), Some(named)) = (record, named) else { return Ok(()) };
        require_other(environment, owner, record, named)?;
        require_place(environment, named)
    })?;
    let found = find(environment, &subject, given)?;
    if subject.settings.preset() == Preset::Indexed && named.is_none() && found.damage.is_some() {
        let text = format!(
            "the region of {} cannot be used, and no other is named; name one \
             (persistent_memory, --region PATH:SIZE)",
            home.display()
        );
        return Err(Error::invalid(text));
    }
    if found.damage.is_some() {
        subject.forget_region()?;
        return fill(environment, home, given).map(|()| found);
    }
    drop(subject);
    let own = given.map(|given| Settings { persistent_memory: None, ..given.clone() });
    let opened = open_with_new_index(environment, home, own.as_ref())?;
    match named {
        None => finish(opened)?,
        Some(_) => {
            let is_written = opened.is_written;
            opened.engine.close(is_written)?;
            drop(opened);
            if !is_written {
                let text = format!(
                    "no tier has room for what memtables in the region {} have, so it was not \
                     given up; make room, then try again",
                    found.region.display()
                );
                return Err(Error::new(ErrorKind::OutOfSpace, text));
            }
        }
    }
    if named.is_some() {
        self::subject(environment, home, given, Access::Write)?.forget_region()?;
        fill(environment, home, given)?;
    }
    Ok(found)
}

/// Opens the database, which makes the region that is named, and waits until its index is filled.
fn fill(environment: &Environment, home: &Path, given: Option<&Settings>) -> Result<()> {
    finish(open(environment, home, given, Access::Write)?)
}

/// Waits until the index is filled, and closes.
fn finish(opened: Opened) -> Result<()> {
    let Opened { engine, is_written, .. } = opened;
    engine.settle()?;
    let waiting = engine.stats().index.map_or(0, |index| index.waiting_tables);
    engine.close(is_written)?;
    if waiting == 0 {
        return Ok(());
    }
    let text = format!(
        "the new index has no room for {waiting} tables, which are searched by ranges and filters; \
         no record is missing, but make it anew in a larger region (--region PATH:SIZE)"
    );
    Err(Error::new(ErrorKind::OutOfSpace, text))
}

/// A region can be made there: asked before anything changes.
fn require_place(environment: &Environment, named: &PersistentMemory) -> Result<()> {
    let path = TieredFiles::region_path(&named.path)?;
    let bytes = Geometry::of(named.size.0).bytes;
    let made = environment.regions.create(&path, bytes, parse_driver(&named.driver)?);
    made.map(drop).map_err(|error| {
        let text = format!(
            "no region can be made at {}, and nothing was changed: {error}; name another place",
            path.display()
        );
        Error::new(Error::from(error).kind(), text)
    })?;
    Ok(environment.regions.remove(&path)?)
}

/// The region that is `named` is not that of the database, which has it as `record`.
fn require_other(
    environment: &Environment,
    owner: (DatabaseId, InstanceId),
    record: &RegionRecord,
    named: &PersistentMemory,
) -> Result<()> {
    let path = TieredFiles::region_path(&named.path)?;
    let moved = RegionRecord { path, driver: named.driver.clone(), ..record.clone() };
    if moved.path == record.path || look(environment, &moved, owner).is_err() {
        return Ok(());
    }
    let text = format!(
        "{} is the region of this database, which is not at {} any more; open the database with \
         that path (persistent_memory), which keeps it, then try again",
        moved.path.display(),
        record.path.display()
    );
    Err(Error::invalid(text))
}

fn subject(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
) -> Result<Subject> {
    subject_if(environment, home, given, access, |_, _| Ok(()))
}

fn subject_if(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
    is_right: impl Fn((DatabaseId, InstanceId), Option<&RegionRecord>) -> Result<()>,
) -> Result<Subject> {
    let opened = Subject::open_any(environment, home, given, access, is_right)?;
    let has_region = |files: &TieredFiles| files.region().is_some();
    opened.filter(|subject| has_region(&subject.files)).ok_or_else(|| {
        Error::invalid(format!(
            "{} has no region of persistent memory, and so no index to be made anew; the next \
             opening with one makes it",
            home.display()
        ))
    })
}

/// The error says nothing of what a region has: it may be read at another time, by another user, or
/// by a newer release.
fn is_no_damage(error: &Error, unreadable: Unreadable) -> bool {
    match error.kind() {
        ErrorKind::Io => unreadable == Unreadable::Refused,
        ErrorKind::Denied
        | ErrorKind::Locked
        | ErrorKind::NewerFormat
        | ErrorKind::ReadOnly
        | ErrorKind::TooManyOpenFiles => true,
        _ => false,
    }
}

fn find(
    environment: &Environment,
    subject: &Subject,
    given: Option<&Settings>,
) -> Result<IndexRebuild> {
    let Subject { files, restored, .. } = subject;
    let tables = restored.levels.tables().count() as u64;
    let Some(record) = files.region() else {
        return Ok(IndexRebuild::default());
    };
    let owner = (files.database(), files.instance());
    let looked = match look(environment, &record, owner) {
        Err(error) if is_no_damage(&error, environment.unreadable) => {
            return Err(may_be_given_later(error, environment.unreadable));
        }
        looked => looked,
    };
    let known: Vec<_> = restored.levels.tables().map(|(_, table)| table.meta.number).collect();
    if let Ok(tables) = &looked
        && let Some(lost) = tables.iter().find(|table| !known.contains(table))
    {
        let text = format!(
            "the index in persistent memory has records of table {lost}, which is not in the \
             manifest: the end of the manifest is lost, and a new index would hide that; restore \
             the database from a checkpoint"
        );
        return Err(Error::corrupt(text));
    }
    let damage = looked.err().map(|error| error.to_string());
    let is_emptied = record.is_clean && restored.durable_sequence <= restored.last_sequence;
    // Beside a log it had no memtables.
    let has_memtables = !driver_of(&record).1;
    let lost_after =
        (damage.is_some() && !is_emptied && has_memtables).then_some(restored.last_sequence.0);
    let named = given.and_then(|given| given.persistent_memory.as_ref());
    if let Some(named) = named {
        require_other(environment, owner, &record, named)?;
    }
    let replaced_by = named.map(|region| region.path.clone());
    Ok(IndexRebuild { region: record.path, damage, lost_after, tables, replaced_by })
}

impl Subject {
    /// Has manifest and `DATABASE` without a region, as those of a checkpoint are.
    fn forget_region(mut self) -> Result<()> {
        let logs = numbers_of(&self.files, |kind| kind == FileKind::Log);
        let restored = &mut self.restored;
        // Logs from before the region was added are kept, where recovery begins with one.
        if !logs.contains(&restored.log_floor) {
            let old: Vec<_> = logs.into_iter().filter(|log| *log < restored.log_floor).collect();
            self.files.delete_files(&old)?;
            restored.log_floor = FileNumber(0);
        }
        let last = restored.last_sequence;
        let edit = Edit {
            totals: Some(restored.totals.clone()),
            durable_sequence: Some(restored.durable_sequence.min(last)),
            older_versions: restored.older_versions,
            ..Edit::of_state(restored.levels.snapshot(), &restored.slots, restored.log_floor, last)
        };
        restored.manifest.write_afresh(&edit)?;
        self.files.forget_region()?;
        Ok(self.files.close(&[(FileKind::Manifest, self.restored.manifest.extent())])?)
    }
}
