//! Making a new database: directories, identities, the first file map, and last of all `DATABASE`.
//!
//! 1. Only empty directories are taken (`lost+found` aside): what holds a database or anything else
//!    is refused, with the name of its owner where it has one. A home that holds a creation that
//!    was cut off, and nothing else, is emptied first, and so are the tiers of that
//!    (`unfinished.rs`).
//! 2. `DATABASE` is there last, after the texts that lie beside it; without it there is no
//!    database. So one that was cut off has its texts or is none.
//! 3. A failed creation removes what it made.
//!
//! Threads: the creating thread alone.

use super::TieredFiles;
use super::devices::Devices;
use super::home::{self, Home};
use super::opening::{
    LOCK_NAME, Parts, absolute, absolute_tiers, has_file, list, require_distinct, require_other,
};
use super::unfinished::{self, clear_with_lock, forget};
use crate::driver::{DirectoryLock, Driver};
use crate::error::{Error, ErrorKind, Result};
use crate::file_map::{FileMap, MapState};
use crate::identity::{self, Identity, InstanceId};
use crate::open_files::OpenFiles;
use crate::placement::Placement;
use crate::profile::is_profile;
use crate::small_file;
use crate::tier::{Tier, TierIndex, TierSpec};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::{DatabaseId, sync_site};

/// A directory that creation took.
struct Taken {
    driver: Arc<dyn Driver>,
    path: PathBuf,
    is_new: bool,
    had_lock_file: bool,
}

/// Texts for the home directory, each with its name.
pub(super) type Texts<'a> = &'a [(&'a str, &'a str)];

/// Puts files on the new tiers and says which: how a checkpoint fills its database.
pub(super) type Fill<'a> = &'a dyn Fn(&[Arc<Tier>]) -> Result<MapState>;

impl TieredFiles {
    /// Makes a new database: `DATABASE` in `home`, and the tiers, fastest first, in directories of
    /// their own, which are made where they do not exist.
    ///
    /// Errors: `AlreadyExists` where a directory holds a database already, `Invalid` where it holds
    /// anything else.
    pub fn create(
        devices: &dyn Devices,
        home: &Path,
        tiers: &[TierSpec],
        placement: Arc<dyn Placement>,
    ) -> Result<Self> {
        Self::create_with_texts(devices, home, tiers, placement, &[])
    }

    /// As [`TieredFiles::create`], with `texts`, each a name and what it says, beside `DATABASE`:
    /// there is no database without them.
    pub fn create_with_texts(
        devices: &dyn Devices,
        home: &Path,
        tiers: &[TierSpec],
        placement: Arc<dyn Placement>,
        texts: Texts<'_>,
    ) -> Result<Self> {
        let fill = |_: &[Arc<Tier>]| Ok(MapState::default());
        let database = DatabaseId::drawn(|| devices.entropy());
        Self::create_filled(devices, home, tiers, placement, database, texts, &fill)
    }

    pub(super) fn create_filled(
        devices: &dyn Devices,
        home: &Path,
        tiers: &[TierSpec],
        placement: Arc<dyn Placement>,
        database: DatabaseId,
        texts: Texts<'_>,
        fill: Fill<'_>,
    ) -> Result<Self> {
        let home_path = absolute(home)?;
        let tiers = absolute_tiers(tiers)?;
        require_distinct(&home_path, &tiers)?;
        let mut taken = Vec::new();
        let made = take_all(devices, &home_path, &tiers, texts, &mut taken).and_then(|locks| {
            let instance = InstanceId::drawn(|| devices.entropy());
            let (closed, region, left, cache_life) = (BTreeMap::new(), None, None, None);
            let generation = 1;
            let home =
                Home { database, instance, generation, tiers, closed, region, left, cache_life };
            let open_files = Arc::new(OpenFiles::new(devices.descriptor_limit(), false));
            make(home, home_path, &taken, (locks, open_files), texts, fill)
        });
        let undo = |error: Error| {
            let forget = |home: &Taken| forget(&*home.driver).is_ok();
            if sync_site("undo", || taken.first().is_none_or(forget)) {
                sync_site("undo", || undo_all(devices, &taken));
            }
            error
        };
        let parts = made.map_err(undo)?;
        let listings = parts.tiers.iter().map(|tier| list(tier)).collect::<Result<Vec<_>>>();
        match listings {
            Ok(listings) => Ok(Self::assemble(parts, &listings, placement, false)),
            // The parts have the locks until it is undone: another process finds all of it.
            Err(error) => Err(undo(error)),
        }
    }
}

/// Takes the home and the tiers, all of which must be empty; the home may have what a creation with
/// these `texts` left there.
fn take_all(
    devices: &dyn Devices,
    home: &Path,
    tiers: &[TierSpec],
    texts: Texts<'_>,
    taken: &mut Vec<Taken>,
) -> Result<Vec<Box<dyn DirectoryLock>>> {
    let mut locks = vec![take(devices, home, Some(texts), taken, || devices.home(home))?];
    for spec in tiers {
        locks.push(take(devices, &spec.path, None, taken, || devices.tier(spec))?);
    }
    Ok(locks)
}

fn take(
    devices: &dyn Devices,
    path: &Path,
    home_texts: Option<Texts<'_>>,
    taken: &mut Vec<Taken>,
    open: impl Fn() -> Result<Arc<dyn Driver>>,
) -> Result<Box<dyn DirectoryLock>> {
    let is_new = devices.create_directory(path)?;
    let is_unfinished = |driver: &dyn Driver| {
        home_texts.map_or(Ok(false), |texts| unfinished::is_alone(driver, texts))
    };
    let opened = open().and_then(|driver| match is_unfinished(&*driver)? {
        true => Ok(driver),
        false => require_empty(&*driver, path).map(|()| driver),
    });
    let others: Vec<_> =
        taken.iter().map(|other| (Arc::clone(&other.driver), other.path.as_path())).collect();
    let opened = opened.and_then(|driver| {
        require_other(&*driver, path, &others)?;
        Ok(driver)
    });
    drop(others);
    let driver = match opened {
        Ok(driver) => driver,
        Err(error) => {
            if is_new {
                devices.remove_directory_if_empty(path)?;
            }
            return Err(error);
        }
    };
    let had_lock_file = has_file(&*driver, LOCK_NAME)?;
    let lock = driver.lock(LOCK_NAME)?;
    if is_unfinished(&*driver)? {
        tracing::info!(home = %path.display(), "removing a creation that was cut off");
        sync_site("cut-off", || unfinished::remove(devices, &*driver, path))?;
    }
    // Only now is the directory ours to undo. Another process may have filled it before we had the
    // lock.
    require_empty(&*driver, path)?;
    taken.push(Taken { driver, path: path.to_owned(), is_new, had_lock_file });
    Ok(lock)
}

pub(super) fn require_empty(driver: &dyn Driver, path: &Path) -> Result<()> {
    let entries = driver.list()?;
    let shown = path.display();
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    if has(home::FILE_NAME) {
        let owner = Home::read(driver, path)
            .map_or_else(|error| error.to_string(), |home| format!("database {}", home.database));
        let text = format!("{shown} already holds a database ({owner}); open it, or name another");
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    if has(identity::FILE_NAME) {
        let what = path.join(identity::FILE_NAME).display().to_string();
        let owner = Identity::read(driver, &what).map_or_else(
            |error| error.to_string(),
            |found| format!("{} of database {}", found.tier, found.database),
        );
        let text = format!(
            "{shown} already is a tier ({owner}); name another directory, or, if its database is \
             gone or was never finished, delete the files in it"
        );
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    let may_be_there = |name: &str| name == LOCK_NAME || is_profile(name);
    if let Some(other) = entries.iter().find(|entry| !may_be_there(&entry.name)) {
        let text =
            format!("{shown} is not empty, it holds {}; name an empty directory", other.name);
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

fn make(
    home: Home,
    home_path: PathBuf,
    taken: &[Taken],
    (locks, open_files): (Vec<Box<dyn DirectoryLock>>, Arc<OpenFiles>),
    texts: Texts<'_>,
    fill: Fill<'_>,
) -> Result<Parts> {
    let home_driver = Arc::clone(&taken[0].driver);
    let begun = || home.write_as(&*home_driver, &home_path, unfinished::FILE_NAME);
    sync_site("creation/begun", begun)?;
    let tiers = home.tiers.iter().zip(&taken[1..]).enumerate().map(|(index, (spec, taken))| {
        let driver = Arc::clone(&taken.driver);
        Arc::new(Tier::new(TierIndex(index as u8), spec.clone(), driver))
    });
    let tiers: Vec<_> = tiers.collect();
    for tier in &tiers {
        let identity = Identity {
            database: home.database,
            instance: home.instance,
            tier: tier.index(),
            tiers: tiers.len() as u8,
            generation: home.generation,
        };
        sync_site("creation/identity", || identity.create(&**tier.driver()))?;
        // Whose they are, where what follows is all that is left of a creation.
        sync_site("creation/identity/name", || tier.driver().sync_directory())?;
    }
    let state = fill(&tiers)?;
    for tier in &tiers {
        sync_site("creation/filled", || tier.driver().sync_directory())?;
    }
    let map = || FileMap::create(home.database, &tiers[0], state);
    let map = sync_site("creation/map", map)?;
    for (name, text) in texts {
        let replace = || small_file::replace(&*home_driver, name, text.as_bytes());
        sync_site("creation/text", replace)?;
    }
    home_driver.rename(unfinished::FILE_NAME, home::FILE_NAME)?;
    sync_site("creation/done", || home_driver.sync_directory())?;
    Ok(Parts { home, home_path, home_driver, tiers, map, locks, open_files })
}

/// Empties the directories that creation took, the home last, and removes those that it made.
fn undo_all(devices: &dyn Devices, taken: &[Taken]) {
    for (index, directory) in taken.iter().enumerate().rev() {
        let last = if index == 0 { unfinished::FILE_NAME } else { identity::FILE_NAME };
        if let Err(error) = undo(devices, directory, last) {
            tracing::warn!(%error, "files of a failed creation stay until the next");
            return;
        }
    }
}

fn undo(devices: &dyn Devices, directory: &Taken, last: &str) -> Result<()> {
    let Taken { driver, path, is_new, had_lock_file } = directory;
    match had_lock_file {
        true => unfinished::clear(&**driver, last)?,
        false => clear_with_lock(&**driver, last)?,
    }
    if *is_new { devices.remove_directory_if_empty(path) } else { Ok(()) }
}
