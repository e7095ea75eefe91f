//! What a change of preset leaves behind of a region: an index that the new preset does not read,
//! or all of the region.
//!
//! ```text
//!   the settings name the preset, durably
//!     leveled, a region with memtables   the index becomes empty
//!     else                               the edit of the opening: tables or slots have what
//!                                        memtables had
//!                                        DATABASE names no region -> its file goes
//! ```
//! 1. Tables alone answer everything: the index only finds what they have. So it may be given up at
//!    any moment after the settings have changed, and before anything else removes tables that its
//!    entries name: background work begins later.
//! 2. A crash before the settings changed leaves the preset of before, with its index. One behind
//!    that leaves the new preset; its next opening finds what is left of the index, and goes on
//!    here. Where the preset `indexed` is named again meanwhile, such an index is made anew.
//! 3. An index that names tables which the manifest lacks proves that the manifest lost its end.
//!    That is looked at before the settings change; an index that cannot be read proves nothing.
//!
//! Threads: the one that opens the store.

use super::files::{named, remove};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::settings::{Preset, Settings};
use std::path::{Path, PathBuf};
use thermocline_device::TieredFiles;
use thermocline_pmem::region::OpenedRegion as PmemRegion;
use thermocline_pmem::{TableLine, Tree};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// The preset that the database has kept so far; none where its settings are missing.
    before: Option<Preset>,
    /// The region that goes as a whole.
    region: Option<PathBuf>,
    /// The index that goes, of the region at this path.
    index: Option<(PmemRegion, PathBuf)>,
}

impl Leaving {
    /// What the preset of `settings` does not keep of the region that `files` have.
    pub fn of(files: &TieredFiles, settings: &Settings, before: Option<Preset>) -> Self {
        let goes = Self::takes_all(settings, before);
        let region = files.region().filter(|_| goes).map(|record| record.path);
        Self { before, region, index: None }
    }

    /// The preset of `settings` keeps nothing of a region that there is.
    pub fn takes_all(settings: &Settings, before: Option<Preset>) -> bool {
        let is_beside_log = settings.persistent_memory.as_ref().is_some_and(|it| it.is_beside_log);
        match settings.preset() {
            // One that was made for memtables alone is refused.
            Preset::Hybrid => matches!(before, Some(Preset::Indexed | Preset::Hybrid)),
            // It has no memtables, and is not named for any.
            Preset::Leveled => before.is_some() && is_beside_log,
            Preset::Indexed => false,
        }
    }

    /// All of the region goes.
    pub fn is_all(&self) -> bool {
        self.region.is_some()
    }

    /// The database had another preset than `indexed`: an index in its region was left behind.
    pub fn is_behind(&self) -> bool {
        self.before.is_some_and(|before| before != Preset::Indexed)
    }

    /// The index of the region `opened`, at `path`, goes. Refused where nothing says that the
    /// database had the preset of it.
    pub fn take_index(&mut self, opened: PmemRegion, path: &Path) -> Result<()> {
        if self.before.is_none() {
            return Err(Error::invalid(format!(
                "persistent memory at {} has an index of the preset indexed, and the file of \
                 settings is missing; open the database with preset = \"indexed\"",
                path.display()
            )));
        }
        self.index = Some((opened, path.to_owned()));
        Ok(())
    }

    /// The tables of the index that goes, in the change to another preset: the manifest must have
    /// those with live records. None where it cannot be read.
    pub fn tables_of_index(&self) -> Vec<TableLine> {
        let is_first = self.before == Some(Preset::Indexed);
        let Some((opened, path)) = self.index.as_ref().filter(|_| is_first) else {
            return Vec::new();
        };
        Tree::tables_of(opened).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "the index that is given up cannot be read");
            Vec::new()
        })
    }

    /// Gives the index up, of a region that stays. The settings are durable.
    pub fn give_up_index(&self) -> Result<()> {
        if let Some((opened, path)) = self.index.as_ref().filter(|_| !self.is_all()) {
            Tree::renew(opened).map_err(|error| named(path, error))?;
            let path = path.display();
            tracing::info!(%path, "the preset has no index in persistent memory; it is given up");
        }
        Ok(())
    }

    /// Gives the region up, if all of it goes. What memtables had there is in tables or slots.
    pub fn give_up_region(&self, environment: &Environment, files: &TieredFiles) -> Result<()> {
        if let Some(path) = &self.region {
            files.forget_region()?;
            remove(&*environment.regions, path);
            let path = path.display();
            tracing::info!(%path, "the preset has no persistent memory; the region is removed");
        }
        Ok(())
    }
}
