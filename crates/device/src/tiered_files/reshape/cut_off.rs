//! A change of the tiers that was cut off once `CHANGING` was there: the next opening for writing
//! goes on with it.
//!
//! ```text
//! each tier is   as the change began    its old place and count, the generation of DATABASE
//!                or as the change ends  its new place and count, the generation of CHANGING
//!                from the last tier to the first, as they are written
//! a new tier     of generation 0 instead, before it is written
//! an old tier 0  that goes: as the change began, for the file map is read there
//! ```
//! 1. Nothing is done before the names in the home are durable: a killed process may have left a
//!    `CHANGING` that a power cut would take away, and tiers would be ahead of `DATABASE` then.
//! 2. Everything is checked before anything is changed, as an opening does it. What is written here
//!    makes the tiers the right ones, so a wrong disk must not get that far.
//!
//! Threads: the opening thread alone, which holds the lock of the home.

use super::super::devices::Devices;
use super::super::home::Home;
use super::super::opening::{
    LOCK_NAME, check_extent, check_files, has_file, list, open_tier, refuse, require_other,
};
use super::{FILE_NAME, end, give_back, new_map, switch, translated};
use crate::context::FileKind;
use crate::driver::{DirectoryLock, Driver};
use crate::error::{Error, ErrorKind, Result};
use crate::file_map::{FileMap, MapState};
use crate::identity::Identity;
use crate::tier::{Tier, TierIndex, TierSpec};
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::sync_site;

const WAY_OUT: &str = "a change of the tiers was cut off, and this opening is to end it: mount \
                       each directory where it was when the change began";

/// Ends the change, if there is one; whether it did. `home` is what `DATABASE` says.
pub(in crate::tiered_files) fn go_on(
    devices: &dyn Devices,
    home: &Home,
    home_path: &Path,
    home_driver: &Arc<dyn Driver>,
    read_only: bool,
) -> Result<bool> {
    if !has_file(&**home_driver, FILE_NAME)? {
        return Ok(false);
    }
    let new = Home::read_as(&**home_driver, home_path, FILE_NAME)?;
    let is_done = home.generation >= new.generation;
    if read_only && !is_done {
        let text = format!(
            "a change of the tiers of {} was cut off; open it for writing, which ends it",
            home_path.display()
        );
        return Err(Error::new(ErrorKind::Tier, text));
    }
    if read_only {
        return Ok(false);
    }
    sync_site("reshape/found", || home_driver.sync_directory())?;
    if !is_done {
        let change = CutOff::check(devices, home, &new, (home_path, home_driver))?;
        switch(&new, home_path, &**home_driver, &change.tiers, change.state)?;
        if let Some(left) = change.left {
            give_back(devices, &left, true);
        }
    }
    end(&**home_driver)?;
    tracing::info!(home = %home_path.display(), "a change of tiers that was cut off is done");
    Ok(true)
}

/// What the change needs; the directories are locked for as long as it lives.
struct CutOff {
    tiers: Vec<Arc<Tier>>,
    /// The file map with the new places.
    state: MapState,
    /// The directory that is no tier any more, if it is there.
    left: Option<Arc<Tier>>,
    _locks: Vec<Box<dyn DirectoryLock>>,
}

impl CutOff {
    fn check(
        devices: &dyn Devices,
        home: &Home,
        new: &Home,
        (home_path, home_driver): (&Path, &Arc<dyn Driver>),
    ) -> Result<Self> {
        let mut opened = vec![(Arc::clone(home_driver), home_path)];
        let (mut tiers, mut locks) = (Vec::new(), Vec::new());
        let mut is_above_written = false;
        for (at, spec) in new.tiers.iter().enumerate() {
            let tier = open(devices, at, spec)?;
            require_other(&**tier.driver(), &spec.path, &opened)?;
            locks.push(tier.driver().lock(LOCK_NAME)?);
            let was_at = home.tiers.iter().position(|old| old.path == spec.path);
            let before = match was_at {
                Some(was_at) => identity(home, was_at, home.generation),
                None => identity(new, at, 0),
            };
            let after = identity(new, at, new.generation);
            let found = Identity::read(&**tier.driver(), &tier.describe())?;
            // They are written from the last one on.
            if found != after && (found != before || is_above_written) {
                return Err(refuse_found(&tier, &found, &before, &after));
            }
            is_above_written = found == after;
            opened.push((Arc::clone(tier.driver()), &spec.path));
            tiers.push(tier);
        }
        let is_gone = |old: &TierSpec| new.tiers.iter().all(|spec| spec.path != old.path);
        let gone = home.tiers.iter().position(is_gone);
        let left = match gone {
            // The file map is there.
            Some(0) => Some(open_left(devices, home, 0)?),
            Some(at) => open_left(devices, home, at)
                .inspect_err(|error| tracing::warn!(%error, "what a tier had left stays there"))
                .ok(),
            None => None,
        };
        let (left, lock) = left.unzip();
        locks.extend(lock);
        let state = state(home, new, &tiers, left.as_ref().filter(|_| gone == Some(0)))?;
        Ok(Self { tiers, state, left, _locks: locks })
    }
}

/// What `TIER` of the tier at `at` says where the list is that of `home`.
fn identity(home: &Home, at: usize, generation: u64) -> Identity {
    Identity {
        database: home.database,
        instance: home.instance,
        tier: TierIndex(at as u8),
        tiers: home.tiers.len() as u8,
        generation,
    }
}

fn open(devices: &dyn Devices, at: usize, spec: &TierSpec) -> Result<Arc<Tier>> {
    open_tier(devices, TierIndex(at as u8), spec, false)
        .map_err(|error| Error::new(error.kind(), format!("{error} ({WAY_OUT})")))
}

/// The tier that goes, as the change began.
fn open_left(
    devices: &dyn Devices,
    home: &Home,
    at: usize,
) -> Result<(Arc<Tier>, Box<dyn DirectoryLock>)> {
    let tier = open(devices, at, &home.tiers[at])?;
    let lock = tier.driver().lock(LOCK_NAME)?;
    let found = Identity::read(&**tier.driver(), &tier.describe())?;
    let before = identity(home, at, home.generation);
    if found != before {
        return Err(refuse_found(&tier, &found, &before, &before));
    }
    Ok((tier, lock))
}

fn refuse_found(tier: &Tier, found: &Identity, before: &Identity, after: &Identity) -> Error {
    let whose = format!("{} at {}", tier.index(), tier.spec().path.display());
    if (found.database, found.instance) != (after.database, after.instance) {
        return refuse(&whose, "foreign, of another database or another copy of this", WAY_OUT);
    }
    let said =
        |of: &Identity| format!("{} of {} with generation {}", of.tier, of.tiers, of.generation);
    let expected = match before == after {
        true => said(before),
        false => format!("{} or {}", said(before), said(after)),
    };
    let found = format!("swapped, or an older clone: it is {}, expected {expected}", said(found));
    refuse(&whose, found, WAY_OUT)
}

/// The file map of the old tier 0 with the new places, whose files are all there.
fn state(
    home: &Home,
    new: &Home,
    tiers: &[Arc<Tier>],
    left: Option<&Arc<Tier>>,
) -> Result<MapState> {
    let number = new_map(new)?;
    let stays = || tiers.iter().find(|tier| tier.spec().path == home.tiers[0].path);
    let old = left.or_else(stays).ok_or_else(|| {
        let text = format!("{} is not open", home.tiers[0].path.display());
        Error::new(ErrorKind::Tier, text)
    })?;
    let old = Tier::new(TierIndex(0), home.tiers[0].clone(), Arc::clone(old.driver()));
    let map = FileKind::Map.extension();
    let maps = list(&old)?.into_keys().filter(|(_, extension)| *extension == map);
    let maps = maps.map(|(map, _)| map).filter(|map| *map < number).collect();
    let map = FileMap::open(home.database, &Arc::new(old), home.tiers.len(), maps, false)?;
    check_extent(&home.closed, FileKind::Map, map.journal())?;
    // The new map has the first number that the old one, as it was last, had not reserved.
    if map.state().reserved != number {
        let whose = format!("tier 0 at {}", home.tiers[0].path.display());
        let reserved = map.state().reserved;
        let found = format!("older, its file map ends before number {reserved}, not {number}");
        return Err(refuse(&whose, found, WAY_OUT));
    }
    let state = translated(map.state(), &home.tiers, tiers)?;
    let mut listings = tiers.iter().map(|tier| list(tier)).collect::<Result<Vec<_>>>()?;
    // An attempt before this one may have made it.
    listings[0].remove(&(number, FileKind::Map.extension()));
    check_files(&state, tiers, &listings)?;
    Ok(state)
}
