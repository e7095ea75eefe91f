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
//! 2. Everything is checked before anything is changed, as an opening does it, the region of
//!    persistent memory too. What is written here makes the tiers the right ones, so a wrong disk
//!    must not get that far.
//! 3. The directory that is left is emptied when the opening has looked at all tiers, and not
//!    before: it may have the last copy of what is to be on one that is not there.
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
use thermocline_foundation::{Planted, planted, sync_site};

const WAY_OUT: &str = "a change of the tiers was cut off, and this opening is to end it: each \
                       directory must be where it was when the change began, whatever paths are \
                       named now";

/// A change that an opening has found.
pub(in crate::tiered_files) struct Found {
    /// `DATABASE` says what `CHANGING` says, and did not when the change was cut off, or has files
    /// of it to remove.
    pub has_ended: bool,
    /// The directory that is no tier any more.
    left: Option<TierSpec>,
}

/// Goes on with the change, if there is one, until `DATABASE` has the new list, if `is_right` finds
/// nothing against the region. `home` is what `DATABASE` says before. [`finish`] does the rest,
/// once the tiers are known to be the right ones.
pub(in crate::tiered_files) fn go_on<E: From<Error>>(
    devices: &dyn Devices,
    home: &Home,
    (home_path, home_driver): (&Path, &Arc<dyn Driver>),
    read_only: bool,
    is_right: &dyn Fn(&Home) -> Result<(), E>,
) -> Result<Option<Found>, E> {
    if !has_file(&**home_driver, FILE_NAME)? {
        return Ok(None);
    }
    let new = Home::read_as(&**home_driver, home_path, FILE_NAME)?;
    let is_done = home.generation >= new.generation;
    if read_only && !is_done {
        let text = format!(
            "a change of the tiers of {} was cut off; open it for writing, which ends it",
            home_path.display()
        );
        return Err(Error::new(ErrorKind::Tier, text).into());
    }
    if read_only {
        return Ok(None);
    }
    sync_site("reshape/found", || home_driver.sync_directory())?;
    let paths = |home: &Home| home.tiers.iter().map(|spec| spec.path.clone()).collect::<Vec<_>>();
    if is_done && paths(home) != paths(&new) {
        tracing::warn!(home = %home_path.display(), "a change of tiers was overtaken and goes");
        return Ok(Some(Found { has_ended: false, left: None }));
    }
    if !is_done {
        let change = CutOff::check(devices, home, &new, (home_path, home_driver))?;
        is_right(&new)?;
        switch(&new, home_path, &**home_driver, &change.tiers, change.state)?;
    }
    tracing::warn!(home = %home_path.display(), "a change of tiers that was cut off is done");
    if planted(Planted::LeftEmptiedUnasked) {
        let found = Found { has_ended: true, left: new.left.clone() };
        finish(devices, &new, &**home_driver, &found)?;
    }
    Ok(Some(Found { has_ended: true, left: new.left }))
}

/// Empties the directory that is left, and removes `CHANGING`. `home` is what `DATABASE` says, and
/// its tiers are open and the right ones: what is removed here may be the last copy otherwise.
pub(in crate::tiered_files) fn finish(
    devices: &dyn Devices,
    home: &Home,
    home_driver: &dyn Driver,
    found: &Found,
) -> Result<()> {
    match found.left.as_ref().map(|left| left_behind(devices, home, left)) {
        Some(Ok((left, _lock))) => give_back(devices, &left, true),
        // It was emptied already, or its disk is not there any more.
        Some(Err(error)) => tracing::warn!(%error, "what a tier had left stays there"),
        None => {}
    }
    end(home_driver)
}

/// What the change needs; the directories are locked for as long as it lives.
struct CutOff {
    tiers: Vec<Arc<Tier>>,
    /// The file map with the new places.
    state: MapState,
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
            let is_right = found == after || (found == before && !is_above_written);
            if !is_right && !planted(Planted::ChangeEndedUnasked) {
                return Err(refuse_found(&tier, &found, &before, &after));
            }
            is_above_written = found == after;
            opened.push((Arc::clone(tier.driver()), &spec.path));
            tiers.push(tier);
        }
        let is_gone = |old: &TierSpec| new.tiers.iter().all(|spec| spec.path != old.path);
        let gone = home.tiers.iter().position(is_gone);
        // The file map is there.
        let left = (gone == Some(0)).then(|| open_left(devices, home)).transpose()?;
        let (left, lock) = left.unzip();
        locks.extend(lock);
        let state = state(home, new, &tiers, left.as_ref())?;
        Ok(Self { tiers, state, _locks: locks })
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

/// The fastest tier, where it goes, as the change began.
fn open_left(devices: &dyn Devices, home: &Home) -> Result<(Arc<Tier>, Box<dyn DirectoryLock>)> {
    let tier = open(devices, 0, &home.tiers[0])?;
    let lock = tier.driver().lock(LOCK_NAME)?;
    let found = Identity::read(&**tier.driver(), &tier.describe())?;
    let before = identity(home, 0, home.generation);
    if found != before {
        return Err(refuse_found(&tier, &found, &before, &before));
    }
    Ok((tier, lock))
}

/// The tier that went, whose files nothing needs any more.
fn left_behind(
    devices: &dyn Devices,
    home: &Home,
    left: &TierSpec,
) -> Result<(Arc<Tier>, Box<dyn DirectoryLock>)> {
    // Its place does not matter.
    let tier = open_tier(devices, TierIndex(0), left, false)?;
    let lock = tier.driver().lock(LOCK_NAME)?;
    let found = Identity::read(&**tier.driver(), &tier.describe())?;
    let is_its = (found.database, found.instance) == (home.database, home.instance);
    let is_tier = home.tiers.iter().any(|spec| spec.path == left.path);
    // No tier of the list is older than DATABASE.
    if !is_its || is_tier || found.generation >= home.generation {
        let whose = left.path.display().to_string();
        return Err(refuse(&whose, "not the tier that went", "remove its files if they are old"));
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
    check_files(&state, tiers, &listings, &|_| true)?;
    Ok(state)
}
