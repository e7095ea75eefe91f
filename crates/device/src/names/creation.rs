//! Putting a host's directory over tiers: its own directory, a directory of its own on each tier,
//! identities, and last of all `DATABASE`.
//!
//! ```text
//!   CREATING -> TIER, HOME of each tier -> lost/, links to the tiers -> CREATING becomes DATABASE
//! ```
//! 1. A tier's path must be there: it may be the mount point of a disk that is not. What is made
//!    there is a directory named after the instance, so that many hosts share a device.
//! 2. The host's files stay as they are.
//! 3. A creation that was cut off is undone by the next one, `CREATING` last. It had no files.
//!
//! Threads: the creating thread, which holds the lock.

use super::home_file::{self, HomeFile};
use super::link_text::tier_name;
use super::{DIRECTORY_NAME, LOST_NAME, Names};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::file_cache::extents::delete_files;
use crate::identity::{self, Identity, InstanceId};
use crate::placement::Placement;
use crate::profile::is_profile;
use crate::small_file;
use crate::tier::{TierIndex, TierSpec};
use crate::tiered_files::{
    CREATING_NAME, Devices, HOME_FILE_NAME, Home, LOCK_NAME, absolute, clear, has_file, refuse,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::{DatabaseId, sync_site};

impl Names {
    /// There is a directory over tiers at `path`.
    pub fn exists(devices: &dyn Devices, path: &Path) -> Result<bool> {
        match devices.home(&absolute(path)?.join(DIRECTORY_NAME)) {
            Ok(own) => has_file(&*own, HOME_FILE_NAME),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Puts the directory at `path` over `tiers`, fastest first; `path` itself may be one of them.
    /// Files that are there stay where they are.
    ///
    /// Errors: `AlreadyExists` where it is over tiers already, `Tier` where a tier's path is not
    /// there.
    pub fn make(
        devices: Arc<dyn Devices>,
        path: &Path,
        tiers: &[TierSpec],
        placement: Arc<dyn Placement>,
    ) -> Result<Self> {
        let path = absolute(path)?;
        require_tiers(&*devices, &path, tiers)?;
        devices.home(&path)?;
        let own_path = path.join(DIRECTORY_NAME);
        devices.create_directory(&own_path)?;
        let own = devices.home(&own_path)?;
        let lock = own.lock(LOCK_NAME)?;
        if has_file(&*own, HOME_FILE_NAME)? {
            let text = format!("{} is over tiers already; open it", path.display());
            return Err(Error::new(ErrorKind::AlreadyExists, text));
        }
        undo(&*devices, &*own, &own_path)?;
        let instance = InstanceId::drawn(|| devices.entropy());
        let home = Home {
            database: DatabaseId::drawn(|| devices.entropy()),
            instance,
            generation: 1,
            tiers: own_tiers(&path, tiers, instance)?,
            closed: BTreeMap::new(),
            region: None,
            left: None,
            cache_life: None,
        };
        let made = sync_site("names/creation", || make(&*devices, &path, &*own, &home));
        drop((lock, own));
        made?;
        Self::load(devices, &path, None, placement)
    }
}

/// The directories of one instance on its tiers.
fn own_tiers(path: &Path, tiers: &[TierSpec], instance: InstanceId) -> Result<Vec<TierSpec>> {
    let own = |spec: &TierSpec| {
        let given = absolute(&spec.path)?;
        let is_home = given == path;
        let path =
            if is_home { path.join(DIRECTORY_NAME) } else { given.join(instance.to_string()) };
        Ok(TierSpec { path, ..spec.clone() })
    };
    tiers.iter().map(own).collect()
}

/// The tiers are different directories, and there.
fn require_tiers(devices: &dyn Devices, path: &Path, tiers: &[TierSpec]) -> Result<()> {
    let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
    if tiers.is_empty() || tiers.len() >= usize::from(u8::MAX) {
        return invalid(format!("a directory has 1 to {} tiers", u8::MAX - 1));
    }
    let mut seen = BTreeSet::new();
    for (index, spec) in tiers.iter().enumerate() {
        let given = absolute(&spec.path)?;
        if given == path {
            devices.home(path)?;
        } else if let Err(error) = devices.tier(&TierSpec { path: given.clone(), ..spec.clone() }) {
            if error.kind() != ErrorKind::NotFound {
                return Err(error);
            }
            let whose = format!("tier {index} at {}", given.display());
            let way_out = "mount it, or make the directory";
            return Err(refuse(&whose, "missing, there is no such directory", way_out));
        }
        if !seen.insert(given) {
            return invalid(format!("{} is named twice among the tiers", spec.path.display()));
        }
    }
    Ok(())
}

fn make(devices: &dyn Devices, path: &Path, own: &dyn Driver, home: &Home) -> Result<()> {
    let own_path = path.join(DIRECTORY_NAME);
    home.write_as(own, &own_path, CREATING_NAME)?;
    for (index, spec) in home.tiers.iter().enumerate() {
        let identity = Identity {
            database: home.database,
            instance: home.instance,
            tier: TierIndex(index as u8),
            tiers: home.tiers.len() as u8,
            generation: home.generation,
        };
        make_tier(devices, path, own, spec, identity)?;
    }
    devices.create_directory(&own_path.join(LOST_NAME))?;
    point(own, &own_path, &home.tiers)?;
    own.rename(CREATING_NAME, HOME_FILE_NAME)?;
    sync_site("last", || own.sync_directory())
}

fn make_tier(
    devices: &dyn Devices,
    path: &Path,
    own: &dyn Driver,
    spec: &TierSpec,
    identity: Identity,
) -> Result<()> {
    if spec.path == path.join(DIRECTORY_NAME) {
        identity.create(own)?;
        return sync_site("own", || own.sync_directory());
    }
    devices.create_directory(&spec.path)?;
    let driver = devices.tier(spec)?;
    identity.create(&*driver)?;
    let home = HomeFile { instance: identity.instance, path: path.to_owned(), moving_to: None };
    home.write(&*driver)?;
    sync_site("tier", || driver.sync_directory())
}

/// Makes the links to the tiers say where these are, durably.
pub(super) fn point(own: &dyn Driver, own_path: &Path, tiers: &[TierSpec]) -> Result<()> {
    let mut changed = false;
    for (index, spec) in tiers.iter().enumerate().filter(|(_, spec)| spec.path != own_path) {
        let name = tier_name(TierIndex(index as u8));
        let wanted = spec.path.to_str().ok_or_else(|| {
            let text = format!("the path {} is not UTF-8; rename it", spec.path.display());
            Error::new(ErrorKind::Invalid, text)
        })?;
        let said = match own.read_link(&name) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            said => said?,
        };
        if said.as_deref() != Some(wanted) {
            let unfinished = format!("{name}.new");
            small_file::remove(own, &unfinished)?;
            own.make_link(&unfinished, wanted)?;
            own.rename(&unfinished, &name)?;
            changed = true;
        }
    }
    if changed { sync_site("names/tiers", || own.sync_directory()) } else { Ok(()) }
}

/// Removes what a creation left that was cut off.
pub(super) fn undo(devices: &dyn Devices, own: &dyn Driver, own_path: &Path) -> Result<()> {
    if has_file(own, CREATING_NAME)? {
        let home = Home::read_as(own, own_path, CREATING_NAME)?;
        for spec in home.tiers.iter().filter(|spec| spec.path != own_path) {
            undo_tier(devices, spec)?;
        }
    }
    sync_site("names/undo", || clear(own, CREATING_NAME))
}

/// The directory is named after an instance that never was: it is this software's alone.
pub(super) fn undo_tier(devices: &dyn Devices, spec: &TierSpec) -> Result<()> {
    let driver = match devices.tier(spec) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        driver => driver?,
    };
    let names = driver.list()?.into_iter().map(|entry| entry.name);
    for name in names.filter(|name| is_profile(small_file::whole_name(name))) {
        small_file::remove(&*driver, small_file::whole_name(&name))?;
    }
    for name in [home_file::FILE_NAME, identity::FILE_NAME] {
        small_file::remove(&*driver, name)?;
    }
    delete_files(&*driver);
    // What says which tiers there are goes later, and a power cut must not bring these back.
    sync_site("names/undo", || driver.sync_directory())?;
    drop(driver);
    devices.remove_directory_if_empty(&spec.path)
}

/// The tiers that a caller named, as `DATABASE` has them: those of `recorded`, elsewhere.
pub(super) fn elsewhere(
    path: &Path,
    recorded: &[TierSpec],
    given: &[TierSpec],
    instance: InstanceId,
) -> Result<Vec<TierSpec>> {
    if recorded.len() != given.len() {
        let (count, given) = (recorded.len(), given.len());
        let text = format!(
            "{} has {count} tiers but {given} were named; name {count}, in the same order, or take \
             it off them first: thermocline tiers export --leave DIRECTORY",
            path.display()
        );
        return Err(Error::new(ErrorKind::Tier, text));
    }
    own_tiers(path, given, instance)
}

/// Where files of a tier lie.
pub(super) fn files_path(path: &Path, spec: &TierSpec) -> PathBuf {
    if spec.path == path.join(DIRECTORY_NAME) { path.to_owned() } else { spec.path.clone() }
}
