//! Another list of tiers for a database: one more, one fewer, or one in another directory.
//!
//! ```text
//!   files go where they are to be (a new directory has TIER of generation 0 meanwhile)
//!   -> CHANGING: what DATABASE is to say -> the file map, with a new number, and TIER of each tier
//!   -> DATABASE -> the directory that is left is emptied -> CHANGING goes
//! ```
//! 1. Until `CHANGING` is durable the database is what it was; what was begun in the new directory
//!    is removed by the next attempt. From then on it is what `CHANGING` says: the next opening for
//!    writing goes on (`cut_off.rs`), and needs only what is durable.
//! 2. `CHANGING` is a text as `DATABASE`. Tiers of the two are the same where their paths are. The
//!    place of the map in it is the number of the new map, which makes the new map known.
//! 3. A file that lies in a directory that was no tier before belongs there: all copies are
//!    complete before `CHANGING` is.
//! 4. A file is removed from a directory only after the map that says so is durable.
//!
//! Threads: the caller's alone; all directories are locked from beginning to end.

mod cut_off;
mod filling;
mod room;

pub(super) use cut_off::{finish, go_on};
pub use room::Spared;

use super::devices::Devices;
use super::generations::write_generation;
use super::home::Home;
use super::opening::{LOCK_NAME, absolute, has_file, parse_name, require_distinct, require_other};
use super::unfinished::{clear_of, is_begun_by};
use super::{TieredFiles, creation, file_name};
use crate::context::FileKind;
use crate::driver::{DirectoryLock, Driver, Entry, Space};
use crate::error::{Error, ErrorKind, Result};
use crate::file_map::{FileMap, MapState, map_name};
use crate::identity::{self, Identity};
use crate::journal::Extent;
use crate::profile::is_profile;
use crate::small_file;
use crate::tier::{Tier, TierIndex, TierSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_foundation::{ByteSize, FileNumber, Planted, planted, sync_site};

/// The name of what `DATABASE` is to say.
pub(super) const FILE_NAME: &str = "CHANGING";

/// What a change writes at its end beside the file map: `TIER`, `CHANGING` and `DATABASE`, and a
/// little more.
const ENDING_BYTES: u64 = 64 << 10;

/// What becomes of the list of tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierChange {
    /// A tier more, at this place; those from there on move down.
    Add(usize, TierSpec),
    /// The tier at this place goes; its files go to others first.
    Remove(usize),
    /// The tier at this place lies in another directory from now on.
    Replace(usize, PathBuf),
}

/// Hears how many bytes of how many were copied.
pub type Copied<'a> = &'a mut dyn FnMut(u64, u64);

/// The directory of a new tier.
struct Taken {
    tier: Arc<Tier>,
    /// It was made for the tier.
    is_new: bool,
    _lock: Box<dyn DirectoryLock>,
}

impl TieredFiles {
    /// Changes the list of tiers, and gives the new one. The namespace takes no changes afterwards;
    /// open it again.
    ///
    /// The tiers have what is `spared` beside the files then.
    ///
    /// Errors: `Invalid` for a place that there is not, and where this opening has ended a change;
    /// `OutOfSpace` where the files of a tier that goes have no room on the others; `AlreadyExists`
    /// and `Invalid` for a directory that is not empty. The database is as it was then, but for
    /// files that have moved already, and copies of a cache that made room.
    pub fn change_tiers(
        &self,
        devices: &dyn Devices,
        change: &TierChange,
        spared: Spared,
        progress: Copied<'_>,
    ) -> Result<Vec<TierSpec>> {
        self.require_writable()?;
        self.require_no_ended_change()?;
        let old: Vec<_> = self.tiers.iter().map(|tier| tier.spec().clone()).collect();
        let new = changed(&old, change)?;
        require_distinct(&self.home, &new)?;
        self.require_region_elsewhere(old.iter().find(|spec| is_gone(spec, &new)))?;
        let added = new.iter().position(|spec| is_gone(spec, &old));
        if added.is_none() && !matches!(change, TierChange::Remove(_)) {
            let text = "the tier lies in that directory already; name another";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        // What would stop it at its end is better known before all is copied.
        let listed = Home { tiers: new.clone(), ..self.home_as(0, BTreeMap::new(), self.region()) };
        listed.text(&self.home)?;
        self.require_room(&*self.home_driver, &self.home, ENDING_BYTES)?;
        let mut tiers = self.kept_tiers(&new);
        let mut taken = None;
        if let Some(at) = added {
            let new = self.take_new(devices, at, &new)?;
            tiers.insert(at, Arc::clone(&new.tier));
            taken = Some(new);
        }
        let filled = self.fill(&tiers, change, spared, progress);
        let prepared = filled.and_then(|()| self.changed_home(new, &tiers));
        let undo = |_: &Error| {
            if let Some(Taken { tier, is_new, .. }) = &taken {
                give_back(devices, tier, *is_new);
            }
        };
        let (home, state) = prepared.inspect_err(undo)?;
        let begun = self.begin(&home);
        begun.inspect_err(|error| {
            if self.has_not_begun() {
                undo(error)
            }
        })?;
        let later = |error: Error| {
            let text = format!("the tiers change, and the next opening ends it: {error}");
            Error::new(error.kind(), text)
        };
        let left = self.tiers.iter().find(|tier| is_gone(tier.spec(), &home.tiers));
        if planted(Planted::LeftEmptiedFirst) {
            left.inspect(|left| give_back(devices, left, true));
        }
        switch(&home, &self.home, &*self.home_driver, &tiers, state).map_err(later)?;
        if let Some(left) = left {
            give_back(devices, left, true);
        }
        end(&*self.home_driver).map_err(|error| {
            let text = format!("the tiers have changed, but CHANGING stays: {error}");
            Error::new(error.kind(), text)
        })?;
        drop(taken);
        Ok(home.tiers)
    }

    /// Makes `CHANGING` durable. From then on nothing but the new list counts; where that fails it
    /// may not be known which does.
    fn begin(&self, home: &Home) -> Result<()> {
        self.closed.store(true, Relaxed);
        let write = || home.write_as(&*self.home_driver, &self.home, FILE_NAME);
        sync_site("reshape/begun", write).map_err(|error| {
            if self.has_not_begun() {
                return error;
            }
            let text = format!("the next opening says whether the tiers change: {error}");
            Error::new(error.kind(), text)
        })
    }

    /// It is certain that there is no `CHANGING`, which was to be written.
    fn has_not_begun(&self) -> bool {
        has_file(&*self.home_driver, FILE_NAME).is_ok_and(|is_there| !is_there)
    }

    /// Refuses a change where this opening has ended one that was cut off: places may mean other
    /// tiers now than the caller knows.
    pub fn require_no_ended_change(&self) -> Result<()> {
        if !self.has_ended_change {
            return Ok(());
        }
        let paths = self.tiers.iter().map(|tier| tier.spec().path.display().to_string());
        let text = format!(
            "a change of the tiers that was cut off is done now, and nothing else was changed: the \
             tiers are {}; ask again if more is to change",
            paths.collect::<Vec<_>>().join(", ")
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// The region of persistent memory has records that are nowhere else.
    fn require_region_elsewhere(&self, gone: Option<&TierSpec>) -> Result<()> {
        let (Some(region), Some(gone)) = (self.region(), gone) else { return Ok(()) };
        if !region.path.starts_with(&gone.path) {
            return Ok(());
        }
        let text = format!(
            "the region of persistent memory {} lies in {}, which is to go, and has records; move \
             the file elsewhere, and open the database with its new path first",
            region.path.display(),
            gone.path.display()
        );
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// The tiers that stay, with their new places.
    fn kept_tiers(&self, new: &[TierSpec]) -> Vec<Arc<Tier>> {
        let kept = new.iter().enumerate().filter_map(|(at, spec)| {
            let tier = self.tiers.iter().find(|tier| tier.spec().path == spec.path)?;
            let driver = Arc::clone(tier.driver());
            Some(Arc::new(Tier::new(TierIndex(at as u8), spec.clone(), driver)))
        });
        kept.collect()
    }

    /// Takes the directory of a new tier, which must be empty or hold what an attempt that was cut
    /// off left there.
    fn take_new(&self, devices: &dyn Devices, at: usize, new: &[TierSpec]) -> Result<Taken> {
        let spec = &new[at];
        let is_new = devices.create_directory(&spec.path)?;
        self.take_directory(devices, at, new, is_new).inspect_err(|_| {
            if is_new && let Err(error) = devices.remove_directory_if_empty(&spec.path) {
                tracing::warn!(%error, "a directory that was made for a tier stays");
            }
        })
    }

    fn take_directory(
        &self,
        devices: &dyn Devices,
        at: usize,
        new: &[TierSpec],
        is_new: bool,
    ) -> Result<Taken> {
        let spec = &new[at];
        let driver = devices.tier(spec)?;
        let others = self.tiers.iter().map(|tier| (tier.driver(), tier.spec().path.as_path()));
        let home = (&self.home_driver, self.home.as_path());
        let others = others.chain([home]).map(|(driver, path)| (Arc::clone(driver), path));
        require_other(&*driver, &spec.path, &others.collect::<Vec<_>>())?;
        if !has_file(&*driver, identity::FILE_NAME)? {
            // A directory of others is left as it is, without a lock.
            creation::require_empty(&*driver, &spec.path)?;
        }
        let lock = driver.lock(LOCK_NAME)?;
        if is_begun_by(&*driver, &spec.path, self.instance, Some(0))? {
            let is_ours = |entry: &Entry| is_of_tier(entry, false);
            let clear = || clear_of(&*driver, identity::FILE_NAME, is_ours);
            sync_site("reshape/again", clear)?;
        }
        creation::require_empty(&*driver, &spec.path)?;
        let tier = TierIndex(at as u8);
        let tiers = new.len() as u8;
        let (database, instance) = (self.database, self.instance);
        let identity = Identity { database, instance, tier, tiers, generation: 0 };
        sync_site("reshape/identity", || identity.create(&*driver))?;
        sync_site("reshape/identity/name", || driver.sync_directory())?;
        let tier = Arc::new(Tier::new(tier, spec.clone(), driver));
        Ok(Taken { tier, is_new, _lock: lock })
    }

    /// From `CHANGING` on nothing opens the database without what ends the change, so its room is
    /// asked for before.
    fn require_room(&self, driver: &dyn Driver, path: &Path, bytes: u64) -> Result<()> {
        self.beside_copies_or_instead(|going| {
            let Ok(Space { free_bytes, .. }) = driver.space() else { return Ok(()) };
            let given_bytes = going.map_or(0, |going| going.bytes_on(driver));
            if free_bytes.saturating_add(given_bytes) >= bytes {
                return Ok(());
            }
            let text = format!(
                "{} has {} free, and a change of the tiers wants {} there; free some first",
                path.display(),
                ByteSize(free_bytes),
                ByteSize(bytes)
            );
            Err(Error::new(ErrorKind::OutOfSpace, text))
        })
    }

    /// What `DATABASE` and the file map are to say.
    fn changed_home(&self, new: Vec<TierSpec>, tiers: &[Arc<Tier>]) -> Result<(Home, MapState)> {
        let old: Vec<_> = self.tiers.iter().map(|tier| tier.spec().clone()).collect();
        let (state, next) = {
            let map = self.map.lock();
            (translated(map.state(), &old, tiers)?, map.next())
        };
        let room_bytes = FileMap::begun_bytes(&state) + ENDING_BYTES;
        self.require_room(&**tiers[0].driver(), &tiers[0].spec().path, room_bytes)?;
        self.require_room(&*self.home_driver, &self.home, ENDING_BYTES)?;
        let mut closed = self.closed_extents.clone();
        let number = state.reserved.max(next).0;
        closed.insert(FileKind::Map.extension().to_owned(), Extent { number, bytes: 0 });
        let generation = self.generation.load(Relaxed) + 1;
        let left = old.into_iter().find(|spec| is_gone(spec, &new));
        let home = Home { tiers: new, left, ..self.home_as(generation, closed, self.region()) };
        Ok((home, state))
    }
}

/// No tier of `list` lies where that of `spec` does.
fn is_gone(spec: &TierSpec, list: &[TierSpec]) -> bool {
    list.iter().all(|other| other.path != spec.path)
}

/// The list after `change`, with complete paths.
fn changed(old: &[TierSpec], change: &TierChange) -> Result<Vec<TierSpec>> {
    let mut new = old.to_vec();
    let require = |at: usize, places: usize| match at < places {
        true => Ok(()),
        false => {
            let text = format!("there is no place {at}: places are 0 to {}", places - 1);
            Err(Error::new(ErrorKind::Invalid, text))
        }
    };
    match change {
        TierChange::Add(at, spec) => {
            require(*at, old.len() + 1)?;
            new.insert(*at, TierSpec { path: absolute(&spec.path)?, ..spec.clone() });
        }
        TierChange::Remove(at) => {
            require(*at, old.len())?;
            new.remove(*at);
        }
        TierChange::Replace(at, path) => {
            require(*at, old.len())?;
            new[*at].path = absolute(path)?;
        }
    }
    Ok(new)
}

/// The file map's state with the places that tiers have from now on.
fn translated(state: &MapState, old: &[TierSpec], tiers: &[Arc<Tier>]) -> Result<MapState> {
    let is_new = |tier: &&Arc<Tier>| is_gone(tier.spec(), old);
    let new = tiers.iter().find(is_new);
    let in_new = new.map_or(Ok(Vec::new()), |tier| tier.driver().list())?;
    let in_new: BTreeSet<_> = in_new.into_iter().map(|listed| listed.name).collect();
    let mut translated = state.clone();
    for (number, entry) in &mut translated.files {
        let name = file_name(*number, entry.kind);
        let stays = tiers.iter().find(|tier| tier.spec().path == old[entry.tier.position()].path);
        let moved = new.filter(|_| in_new.contains(&name));
        let tier = moved.or(stays).ok_or_else(|| {
            let text = format!("{name} is on a tier that is no more; its removal was not complete");
            Error::new(ErrorKind::Tier, text)
        })?;
        entry.tier = tier.index();
    }
    Ok(translated)
}

/// From `CHANGING`, which is durable, to `DATABASE`, which is durable then. All of it may be done
/// again.
fn switch(
    home: &Home,
    home_path: &Path,
    home_driver: &dyn Driver,
    tiers: &[Arc<Tier>],
    mut state: MapState,
) -> Result<()> {
    let number = new_map(home)?;
    if !planted(Planted::HalfMadeMapStays)
        && let Err(error) = tiers[0].driver().delete(&map_name(number))
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    state.reserved = number;
    sync_site("reshape/map", || FileMap::create(home.database, &tiers[0], state))?;
    let home = Home { left: None, ..home.clone() };
    let write = || write_generation(&home, home_path, home_driver, tiers);
    sync_site("reshape/generation", write)
}

/// `CHANGING` goes: `DATABASE` says the same.
fn end(home_driver: &dyn Driver) -> Result<()> {
    small_file::remove(home_driver, FILE_NAME)?;
    sync_site("reshape/done", || home_driver.sync_directory())
}

/// The number of the map that a change makes.
fn new_map(home: &Home) -> Result<FileNumber> {
    let extent = home.closed.get(FileKind::Map.extension());
    extent.map(|extent| FileNumber(extent.number)).ok_or_else(|| {
        let text = "CHANGING has no place of the file map; restore the database from a checkpoint";
        Error::new(ErrorKind::Corrupt, text)
    })
}

/// Empties a directory that is no tier any more of what the database has put there, as far as that
/// goes, and removes it if `is_ours`. What others have put there stays.
fn give_back(devices: &dyn Devices, tier: &Tier, is_ours: bool) {
    let driver = &**tier.driver();
    let cleared = sync_site("reshape/left", || {
        clear_of(driver, identity::FILE_NAME, |entry| is_of_tier(entry, is_ours))
    });
    let unlock = |()| match has_file(driver, LOCK_NAME)? {
        true => driver.delete(LOCK_NAME),
        false => Ok(()),
    };
    let remove = |()| match is_ours {
        true => devices.remove_directory_if_empty(&tier.spec().path),
        false => Ok(()),
    };
    if let Err(error) = cleared.and_then(unlock).and_then(remove) {
        tracing::warn!(%error, "a directory that is no tier any more keeps its files");
    }
}

/// The database has put it into a tier's directory; what was measured of the device only where that
/// was its tier before.
fn is_of_tier(entry: &Entry, with_profile: bool) -> bool {
    let is_measured = is_profile(small_file::whole_name(&entry.name));
    !entry.is_link && (parse_name(&entry.name).is_some() || with_profile && is_measured)
}
