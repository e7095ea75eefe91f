//! What a creation leaves behind that was cut off, and how the next one in the same home removes
//! it.
//!
//! ```text
//!   creation   CREATING -> TIER of each tier -> files, map -> texts -> CREATING becomes DATABASE
//!   removal    the tiers' files -> TIER of each -> texts -> CREATING
//! ```
//! 1. `CREATING` says what `DATABASE` is to say. It is durable before anything else is made, and
//!    turns into `DATABASE` with one rename. So where `CREATING` is there is no database, and a
//!    removal of what it names loses nothing.
//! 2. Of a tier only what is there under a `TIER` with the instance that `CREATING` names is
//!    removed, or a `TIER` alone that says nothing yet. A home that holds anything else is left as
//!    it is.
//! 3. `CREATING` goes last, so that a removal that is cut off is gone on with.
//!
//! Threads: the creating thread, which holds the lock of the home.

use super::creation::Texts;
use super::devices::Devices;
use super::home::{self, Home};
use super::opening::{LOCK_NAME, has_file};
use crate::driver::{Driver, Entry};
use crate::error::{ErrorKind, Result};
use crate::file_cache::lives;
use crate::identity::{self, Identity, InstanceId};
use crate::small_file;
use crate::tier::TierSpec;
use std::path::Path;
use thermocline_foundation::sync_site;

/// The name of `DATABASE` while there is none yet.
pub(crate) const FILE_NAME: &str = "CREATING";

/// A home that holds a creation that was cut off, and nothing else. `texts` are those that a
/// creation puts there.
pub(super) fn is_alone(driver: &dyn Driver, texts: Texts<'_>) -> Result<bool> {
    let names: Vec<_> = driver.list()?.into_iter().map(|entry| entry.name).collect();
    let begun = names.iter().any(|name| name == FILE_NAME);
    let is_of_it = |name: &str| {
        let whole = small_file::whole_name(name);
        let is_text = || texts.iter().any(|(text, _)| *text == whole);
        // A `DATABASE` that a failed closing could not replace, of what was then forgotten.
        let is_half = || name != home::FILE_NAME && whole == home::FILE_NAME;
        // The engine begins a cache's life before its creation is done with.
        let is_lives = || whole == lives::FILE_NAME;
        let is_made = || is_text() || is_half() || is_lives();
        // A text under its first name outlives a removal where its renaming failed and was lost.
        let is_half_text = || name != whole && is_text();
        name == LOCK_NAME || whole == FILE_NAME || is_half_text() || begun && is_made()
    };
    Ok(names.iter().any(|name| name != LOCK_NAME) && names.iter().all(|name| is_of_it(name)))
}

/// Removes a creation that was cut off from its tiers and from the home at `path`, where there is
/// one alone ([`is_alone`]).
pub(super) fn remove(devices: &dyn Devices, driver: &dyn Driver, path: &Path) -> Result<()> {
    if has_file(driver, FILE_NAME)? {
        let home = Home::read_as(driver, path, FILE_NAME)?;
        for spec in &home.tiers {
            clear_tier(devices, spec, home.instance)?;
        }
    }
    clear(driver, FILE_NAME)
}

/// Makes what `DATABASE` says what was to be said there: from now on there is no database, whatever
/// else stays. While there may be one, nothing that it speaks of can go.
pub(super) fn forget(driver: &dyn Driver) -> Result<()> {
    match driver.rename(home::FILE_NAME, FILE_NAME) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => sync_site("forgotten", || driver.sync_directory()),
    }
}

/// Empties a directory durably, its lock aside; the file `last` goes when everything else is gone.
pub(crate) fn clear(driver: &dyn Driver, last: &str) -> Result<()> {
    clear_of(driver, last, |_| true)
}

/// As [`clear`], of what `is_ours`.
pub(super) fn clear_of(
    driver: &dyn Driver,
    last: &str,
    is_ours: impl Fn(&Entry) -> bool,
) -> Result<()> {
    let entries = driver.list()?;
    let is_other = |entry: &&Entry| entry.name != LOCK_NAME && entry.name != last;
    let others = entries.iter().filter(is_other).filter(|entry| is_ours(entry));
    for entry in others {
        driver.delete(&entry.name)?;
    }
    sync_site("cleared", || driver.sync_directory())?;
    if entries.iter().any(|entry| entry.name == last) {
        driver.delete(last)?;
        sync_site("last", || driver.sync_directory())?;
    }
    Ok(())
}

/// As [`clear`], and then the lock's file, which the caller still holds.
pub(super) fn clear_with_lock(driver: &dyn Driver, last: &str) -> Result<()> {
    clear(driver, last)?;
    if has_file(driver, LOCK_NAME)? { driver.delete(LOCK_NAME) } else { Ok(()) }
}

/// Removes what the creation of `instance` has put on a tier; leaves alone what is another's.
fn clear_tier(devices: &dyn Devices, spec: &TierSpec, instance: InstanceId) -> Result<()> {
    let driver = match devices.tier(spec) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        driver => driver?,
    };
    if !has_file(&*driver, identity::FILE_NAME)? {
        return Ok(());
    }
    let _lock = driver.lock(LOCK_NAME)?;
    let is_its = is_begun_by(&*driver, &spec.path, instance, None)?;
    if is_its { clear(&*driver, identity::FILE_NAME) } else { Ok(()) }
}

/// The directory at `path` holds what was begun there for `instance`, or a `TIER` alone that says
/// nothing yet. Of a tier that was to be added later `TIER` says `generation`.
pub(super) fn is_begun_by(
    driver: &dyn Driver,
    path: &Path,
    instance: InstanceId,
    generation: Option<u64>,
) -> Result<bool> {
    if !has_file(driver, identity::FILE_NAME)? {
        return Ok(false);
    }
    match Identity::read(driver, &path.display().to_string()) {
        Ok(found) => {
            let is_of_it = generation.is_none_or(|generation| generation == found.generation);
            Ok(found.instance == instance && is_of_it)
        }
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            let names = driver.list()?.into_iter().map(|entry| entry.name);
            Ok(names.filter(|name| name != LOCK_NAME).count() == 1)
        }
        Err(error) => Err(error),
    }
}
