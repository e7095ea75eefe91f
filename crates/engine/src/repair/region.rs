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
//!
//! Threads: the caller's.

use super::plan::IndexRebuild;
use super::{Access, Subject};
use crate::engine::opening::{open, open_with_new_index};
use crate::engine::restore::numbers_of;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::front::persistent::opening::look;
use crate::settings::{Preset, Settings};
use crate::table_set::manifest::Edit;
use std::path::Path;
use thermocline_device::{FileKind, TieredFiles};
use thermocline_foundation::FileNumber;

impl Environment {
    /// What [`Environment::rebuild_index`] would do, and what that costs. Changes nothing.
    pub fn plan_index_rebuild(
        &self,
        home: &Path,
        settings: Option<&Settings>,
    ) -> Result<IndexRebuild> {
        let subject = subject(self, home, settings, Access::Read)?;
        Ok(find(self, &subject, settings))
    }

    /// Makes the index in persistent memory anew from the tables, where it is damaged, or in
    /// another region, where `settings` name one: because the old one is lost, or too small. What
    /// memtables in a region that cannot be read had is lost, and said. Ends when the index has all
    /// tables.
    pub fn rebuild_index(&self, home: &Path, settings: Option<&Settings>) -> Result<IndexRebuild> {
        apply(self, home, settings)
    }
}

fn apply(environment: &Environment, home: &Path, given: Option<&Settings>) -> Result<IndexRebuild> {
    let subject = subject(environment, home, given, Access::Write)?;
    let found = find(environment, &subject, given);
    let named = given.and_then(|given| given.persistent_memory.as_ref());
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
    if named.is_none() {
        opened.engine.settle()?;
    }
    opened.engine.close(opened.is_written)?;
    drop(opened);
    if named.is_some() {
        self::subject(environment, home, given, Access::Write)?.forget_region()?;
        fill(environment, home, given)?;
    }
    Ok(found)
}

/// Opens the database, which makes the region that is named, and waits until its index is filled.
fn fill(environment: &Environment, home: &Path, given: Option<&Settings>) -> Result<()> {
    let opened = open(environment, home, given, Access::Write)?;
    opened.engine.settle()?;
    opened.engine.close(opened.is_written)
}

fn subject(
    environment: &Environment,
    home: &Path,
    given: Option<&Settings>,
    access: Access,
) -> Result<Subject> {
    let opened = Subject::open_any(environment, home, given, access)?;
    let has_region = |files: &TieredFiles| files.region().is_some();
    opened.filter(|subject| has_region(&subject.files)).ok_or_else(|| {
        Error::invalid(format!(
            "{} has no region of persistent memory, and so no index to be made anew; the next \
             opening with one makes it",
            home.display()
        ))
    })
}

fn find(environment: &Environment, subject: &Subject, given: Option<&Settings>) -> IndexRebuild {
    let Subject { files, restored, .. } = subject;
    let tables = restored.levels.tables().count() as u64;
    let Some(record) = files.region() else { return IndexRebuild::default() };
    let damage = look(environment, &record, files).err().map(|error| error.to_string());
    let is_emptied = record.is_clean && restored.durable_sequence <= restored.last_sequence;
    let lost_after = (damage.is_some() && !is_emptied).then_some(restored.last_sequence.0);
    let named = given.and_then(|given| given.persistent_memory.as_ref());
    let replaced_by = named.map(|region| region.path.clone());
    IndexRebuild { region: record.path, damage, lost_after, tables, replaced_by }
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
