//! The end of a host's directory over tiers: a creation, taken back. The host removes its
//! directory, or a user takes it off its tiers, files and all.
//!
//! ```text
//!   links in lost/ -> DATABASE becomes CREATING -> HOME, TIER, PROFILE of each tier, its directory
//!   -> lost/, links, CREATING, LOCK, the directory of this software
//! ```
//! 1. From the first step on it is a creation that was cut off: a crash leaves what the next
//!    creation undoes, and what [`Names::undo_cut_off`] does where there is none.
//! 2. The directory of a tier that has a file of another owner in it stays.
//! 3. What is in `lost/` tells of files that are gone, whose names the host has no more: after a
//!    loss of power that may be any that it had just made or deleted. It keeps no host from
//!    removing its directory. A user is to have seen it before a directory with files leaves.
//!
//! Threads: the caller has no file of the directory open.

use super::creation::{undo, undo_tier};
use super::link_text::parse_file_name;
use super::listing::Named;
use super::{DIRECTORY_NAME, Holds, LOST_NAME, Names};
use crate::driver::{Driver, Entry};
use crate::error::{Error, ErrorKind, Result};
use crate::small_file;
use crate::tier::TierIndex;
use crate::tiered_files::{
    CREATING_NAME, Devices, HOME_FILE_NAME, LOCK_NAME, absolute, clear, has_file,
};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::sync_site;

impl Names {
    /// Takes the directory off its tiers. The host's plain files stay.
    ///
    /// Errors: `Invalid` where a file is on a tier, or one that is no link is in `lost/`.
    pub fn dissolve(self) -> Result<()> {
        self.host.begin()?;
        self.sync_directory()?;
        let host = &self.host;
        if self.used().is_some() {
            // Programs without this software delete names, too, and so may the host itself.
            let _changing = host.changing.lock();
            host.recover()?;
        }
        if let Some(name) = self.used() {
            return Err(self.stays(&format!("it has {name}; delete its files first")));
        }
        let lost = host.own_path.join(LOST_NAME);
        self.drop_lost(&lost)?;
        self.take_apart(&lost)
    }

    /// Brings all files home, as [`Names::export`] does, and takes the directory off its tiers: it
    /// may be put over others then. Returns how many moved. No host may write meanwhile.
    ///
    /// Errors: those of an export; `Invalid` where there is something in `lost/`, or a file on a
    /// tier that no name leads to. The directory stays over its tiers.
    pub fn leave(self) -> Result<u64> {
        let lost = self.host.own_path.join(LOST_NAME);
        self.require_none_lost(&lost)?;
        let moved = self.export()?;
        // The first change may have found links without their files.
        self.require_none_lost(&lost)?;
        for (index, _) in self.host.tiers_apart() {
            self.host.drop_copies(index);
        }
        // A file that is gone from a tier must not be back when nothing knows of it any more.
        self.sync_directory()?;
        self.require_none_left()?;
        self.take_apart(&lost)?;
        Ok(moved)
    }

    fn require_none_lost(&self, path: &Path) -> Result<()> {
        let entries = self.lost(path)?.map_or_else(|| Ok(Vec::new()), |lost| lost.list())?;
        let Some(entry) = entries.first() else { return Ok(()) };
        let what = if entry.is_link { "a link whose file is gone" } else { "no link" };
        let path = path.join(&entry.name);
        Err(self.stays(&format!("{} is {what}; remove it first", path.display())))
    }

    /// Nothing is on the tiers that would have no owner afterwards.
    fn require_none_left(&self) -> Result<()> {
        for (_, tier) in self.host.tiers_apart() {
            let entries = tier.driver().list()?;
            let is_left = |entry: &&Entry| !entry.is_link && parse_file_name(&entry.name).is_some();
            if let Some(entry) = entries.iter().find(is_left) {
                let path = tier.spec().path.join(&entry.name);
                let why = format!("{} is left, which no name leads to; try again", path.display());
                return Err(self.stays(&why));
            }
        }
        Ok(())
    }

    /// Removes what a creation made. Nothing is on the tiers any more.
    fn take_apart(&self, lost: &Path) -> Result<()> {
        let host = &self.host;
        host.drop_extents(TierIndex(0));
        sync_site("names/dissolving", || {
            host.own.rename(HOME_FILE_NAME, CREATING_NAME)?;
            host.own.sync_directory()
        })?;
        for (_, tier) in host.tiers_apart() {
            undo_tier(&*host.devices, tier.spec())?;
        }
        host.devices.remove_directory_if_empty(lost)?;
        sync_site("names/dissolving", || clear(&*host.own, CREATING_NAME))?;
        small_file::remove(&*host.own, LOCK_NAME)?;
        host.devices.remove_directory_if_empty(&host.own_path)
    }

    /// The directory `lost/`; none where it is not there.
    fn lost(&self, path: &Path) -> Result<Option<Arc<dyn Driver>>> {
        match self.host.devices.home(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            lost => lost.map(Some),
        }
    }

    /// Removes the links in `lost/`, so that they are gone before the directory is.
    fn drop_lost(&self, path: &Path) -> Result<()> {
        let Some(lost) = self.lost(path)? else { return Ok(()) };
        let entries = lost.list()?;
        if let Some(entry) = entries.iter().find(|entry| !entry.is_link) {
            let path = path.join(&entry.name);
            return Err(self.stays(&format!("{} is no link; remove it first", path.display())));
        }
        if entries.is_empty() {
            return Ok(());
        }
        let (directory, links) = (self.host.path.display(), entries.len());
        tracing::warn!(%directory, links, "the host removes a directory with links without files");
        entries.iter().try_for_each(|entry| lost.delete(&entry.name))?;
        sync_site("names/dissolving", || lost.sync_directory())
    }

    /// A name, as far as is known here, that keeps the directory over its tiers.
    fn used(&self) -> Option<String> {
        let listing = self.host.listing.lock();
        let mut names = listing.iter();
        let is_used =
            |named: &Named| named.class.holds != Holds::Other || named.place.room != self.host.home;
        names.find(|(_, named)| is_used(named)).map(|(name, _)| name.clone())
    }

    /// Removes what a creation, or the end of a directory, left at `path` that was cut off; false
    /// where the directory is over tiers, or has nothing of this software, or lost its `DATABASE`
    /// in another way: its links to the tiers are kept then.
    pub fn undo_cut_off(devices: &dyn Devices, path: &Path) -> Result<bool> {
        let own_path = absolute(path)?.join(DIRECTORY_NAME);
        let own = match devices.home(&own_path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            own => own?,
        };
        let _lock = own.lock(LOCK_NAME)?;
        let has_links = || Ok(own.list()?.iter().any(|entry| entry.is_link));
        if has_file(&*own, HOME_FILE_NAME)? || !has_file(&*own, CREATING_NAME)? && has_links()? {
            return Ok(false);
        }
        undo(devices, &*own, &own_path)?;
        devices.remove_directory_if_empty(&own_path.join(LOST_NAME))?;
        small_file::remove(&*own, LOCK_NAME)?;
        devices.remove_directory_if_empty(&own_path)?;
        Ok(true)
    }

    fn stays(&self, why: &str) -> Error {
        let text = format!("{} stays over its tiers: {why}", self.host.path.display());
        Error::new(ErrorKind::Invalid, text)
    }
}
