//! The directories of another program, each over the same tiers: what a plugin of a host calls, by
//! paths (Keigo, section 4).
//!
//! ```text
//!   mod.rs       Hosts: the calls, by paths     settings.rs  what a URI says
//!   mover.rs     moves, copies in the background  plain.rs     files that are on no tier
//!   report.rs    figures                          sampler.rs    what devices do
//!   claims.rs    directories that share a device
//!
//!   Hosts   /db, /backup/private/1 ...   one Names for each, opened when it is first asked for
//! ```
//! A directory is *managed* from the first log, table or blob that is made in it. All other files,
//! and all other directories, are the host's plain ones.
//!
//! 1. A path leads to one [`Names`], whatever links led to its directory.
//! 2. A call on a plain file does what the host would do itself.
//! 3. A directory goes only when the host has nothing left in it.
//! 4. Of a directory there is one [`Names`] at a time, also after it was released: as long as a
//!    file of it is open, calls find that one. Only what makes or writes a file takes the directory
//!    back; another change ends with the call, and so does its lock.
//!
//! Locks: `open` while a directory is opened; `moving` for a round of moves in one of them, before
//! `open`. Both before those of a [`Names`].
//! Threads: everything is shared freely; one thread moves files and one looks at devices, until the
//! value is dropped.

mod claims;
mod mover;
mod plain;
mod report;
mod sampler;
mod settings;

pub use plain::HostEntry;
pub use report::{HostReport, LevelReport, TierReport};
pub use settings::{HostCache, HostProfile, HostSettings, HostTier, SCHEME};

use crate::error::{Error, ErrorKind, Result};
use crate::names::{Claim, WeakNames, is_hidden};
use crate::placement::{BandwidthSettings, ByLevelSettings, Placement, PlacementChoice};
use crate::tiered_files::Devices;
use crate::{FileClass, Holds, NamedFile, Names, Writer};
use mover::Mover;
use sampler::Sampler;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::Clock;
use thermocline_foundation::sync::atomic::AtomicU32;
use thermocline_foundation::sync::atomic::Ordering::AcqRel;
use thermocline_foundation::sync::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug)]
pub struct Hosts {
    shared: Arc<Shared>,
    _sampler: Option<Sampler>,
    _mover: Mover,
}

#[derive(Debug)]
struct Shared {
    devices: Arc<dyn Devices>,
    clock: Arc<dyn Clock>,
    settings: HostSettings,
    open: Mutex<Directories>,
    /// Held while files of a directory move, and while a directory goes.
    moving: Mutex<()>,
    /// Calls that wait for that.
    waiting: AtomicU32,
    waker: Arc<mover::Waker>,
}

/// The managed directories that were asked for.
#[derive(Debug, Default)]
struct Directories {
    open: BTreeMap<PathBuf, Names>,
    /// Those that were given back since, with what files of theirs that are open still hold.
    released: BTreeMap<PathBuf, WeakNames>,
}

impl Directories {
    fn get(&self, directory: &Path) -> Option<Names> {
        let open = self.open.get(directory).cloned();
        open.or_else(|| self.released.get(directory)?.upgrade())
    }

    fn release(&mut self, directory: &Path) {
        if let Some(names) = self.open.remove(directory) {
            self.released.insert(directory.to_owned(), names.downgrade());
        }
    }

    fn take_back(&mut self, directory: &Path, names: &Names) {
        self.released.remove(directory);
        self.open.insert(directory.to_owned(), names.clone());
    }

    fn forget(&mut self, directory: &Path) {
        self.released.remove(directory);
        self.open.remove(directory);
    }
}

/// A path, taken apart.
struct At {
    directory: PathBuf,
    name: String,
}

impl At {
    fn new(path: &Path) -> Result<Self> {
        let (directory, name) = plain::split(path)?;
        Ok(Self { directory, name })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// The directories of a file that gets another path, or a second one.
enum Between {
    /// Neither is managed.
    Plain,
    /// It is one directory.
    Within(Names),
    /// Both are managed.
    Managed(Names, Names),
    /// Only the target is: it takes the file as a plain one.
    Into(Names),
    /// Only the source is, where the file is a plain one.
    Out(Names),
}

impl Hosts {
    /// The host's directories over the tiers of `settings`. Nothing is opened yet.
    ///
    /// Errors: `Invalid` where a setting is out of its range, `Io` where the system has no thread
    /// to give.
    pub fn new(
        devices: Arc<dyn Devices>,
        clock: Arc<dyn Clock>,
        settings: HostSettings,
    ) -> Result<Self> {
        let settings = settings.checked()?;
        let shared = Arc::new(Shared {
            devices,
            clock,
            settings,
            open: Mutex::default(),
            moving: Mutex::default(),
            waiting: AtomicU32::new(0),
            waker: Arc::default(),
        });
        let mover = Mover::start(Arc::clone(&shared))?;
        let is_sampled = shared.settings.profile == HostProfile::Online && shared.counts_writers();
        let sampler = is_sampled.then(|| Sampler::start(Arc::clone(&shared))).transpose()?;
        Ok(Self { shared, _sampler: sampler, _mover: mover })
    }

    /// Makes a file under a path that may be in use; the directory is managed from then on. None
    /// where the file is the host's plain one, which the host makes itself.
    ///
    /// Errors: `OutOfSpace` where every tier refused; those of an opening, at a directory's first
    /// file.
    pub fn create(&self, path: &Path, class: FileClass) -> Result<Option<Writer>> {
        if class.holds == Holds::Other {
            return Ok(None);
        }
        let at = At::new(path)?;
        let file = self.shared.names_to_write(&at.directory)?.create(&at.name, class)?;
        self.shared.waker.wake_soon();
        Ok(Some(file))
    }

    /// The file of a path; none where it is the host's plain one, which need not be there.
    pub fn open(&self, path: &Path) -> Result<Option<Arc<NamedFile>>> {
        let at = At::new(path)?;
        let Some(names) = self.shared.names(&at.directory)? else { return Ok(None) };
        if is_hidden(&at.name) {
            return Ok(None);
        }
        let is_other = Holds::of_name(&at.name) == Holds::Other;
        match names.open(&at.name) {
            Err(error) if is_other && error.kind() == ErrorKind::NotFound => Ok(None),
            Ok(file) if is_other && file.place() == at.path() => Ok(None),
            file => file.map(Some),
        }
    }

    /// As [`Hosts::open`], for a host that is about to write to the file again.
    pub fn open_to_write(&self, path: &Path) -> Result<Option<Writer>> {
        let Some(file) = self.open(path)? else { return Ok(None) };
        self.shared.names_to_write(&At::new(path)?.directory)?;
        file.to_write().map(Some)
    }

    /// Gives a file or a directory another path, in place of the file that has it.
    ///
    /// Errors: `Invalid` where two directories have no device in common: the host copies the file.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if plain::is_directory(from) {
            return self.rename_directory(from, to);
        }
        let (from, to) = (At::new(from)?, At::new(to)?);
        let renamed = match self.shared.between(&from, &to)? {
            Between::Plain => plain::rename(&from.path(), &to.path()),
            Between::Within(names) => names.rename(&from.name, &to.name),
            Between::Managed(names, into) => names.rename_into(&from.name, &into, &to.name),
            Between::Into(into) => into.take_plain(&to.name, |to| plain::rename(&from.path(), to)),
            Between::Out(names) => {
                names.give_plain(&from.name, |from| plain::rename(from, &to.path()))
            }
        };
        self.shared.give_back(&from.directory);
        renamed
    }

    /// Gives a file a second path.
    ///
    /// Errors: `AlreadyExists`; `Invalid` where two directories have no device in common.
    pub fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let (from, to) = (At::new(from)?, At::new(to)?);
        match self.shared.between(&from, &to)? {
            Between::Plain => plain::link(&from.path(), &to.path()),
            Between::Within(names) => names.link(&from.name, &names, &to.name),
            Between::Managed(names, into) => names.link(&from.name, &into, &to.name),
            Between::Into(into) => into.take_plain(&to.name, |to| plain::link(&from.path(), to)),
            Between::Out(_) => plain::link_file(&from.path(), &to.path()),
        }
    }

    /// Removes a path and its file.
    pub fn delete(&self, path: &Path) -> Result<()> {
        let at = At::new(path)?;
        let Some(names) = self.shared.names(&at.directory)? else {
            return plain::delete(&at.path());
        };
        let deleted = names.delete(&at.name);
        self.shared.give_back(&at.directory);
        deleted
    }

    /// Cuts or extends a file.
    pub fn truncate(&self, path: &Path, len: u64) -> Result<()> {
        let at = At::new(path)?;
        let Some(names) = self.shared.names(&at.directory)? else {
            return plain::truncate(&at.path(), len);
        };
        let cut = names.truncate(&at.name, len);
        self.shared.give_back(&at.directory);
        cut
    }

    /// What the host sees in a directory: files, directories, managed files with their lengths.
    pub fn list(&self, directory: &Path) -> Result<Vec<HostEntry>> {
        let mut entries = plain::list(directory)?;
        entries.retain(|entry| !is_hidden(&entry.name));
        Ok(entries)
    }

    /// Makes all names of a directory so far durable.
    pub fn sync_directory(&self, directory: &Path) -> Result<()> {
        let directory = plain::canonical(directory)?;
        let Some(names) = self.shared.names(&directory)? else {
            return plain::sync_directory(&directory);
        };
        let synced = names.sync_directory();
        self.shared.give_back(&directory);
        synced
    }

    /// Removes a directory in which the host has nothing left, and what it has on the tiers.
    pub fn remove_directory(&self, directory: &Path) -> Result<()> {
        let directory = plain::canonical(directory)?;
        let names = self.shared.names(&directory)?;
        let is_empty = self.list(&directory)?.is_empty();
        if is_empty && names.is_none() {
            // A removal that was cut off has left this, or the making of a first file.
            Names::undo_cut_off(&*self.shared.devices, &directory)?;
        }
        if let Some(names) = names.filter(|_| is_empty) {
            let _moving = self.shared.end_moves();
            self.shared.open.lock().forget(&directory);
            names.dissolve()?;
        }
        plain::remove_directory(&directory)
    }

    /// The level of a table became known, or is another one now. Nothing of a plain file.
    pub fn set_level(&self, path: &Path, level: u8) -> Result<()> {
        let at = At::new(path)?;
        let names = self.shared.names(&at.directory)?;
        if names.is_some_and(|names| names.set_level(&at.name, level)) {
            self.shared.waker.wake();
        }
        Ok(())
    }

    /// Bytes that files of a directory can still take: on all its tiers.
    pub fn free_bytes(&self, directory: &Path) -> Result<u64> {
        let directory = plain::canonical(directory)?;
        match self.shared.names(&directory)? {
            Some(names) => Ok(names.free_bytes()),
            None => plain::free_bytes(&directory),
        }
    }

    /// Gives a directory's lock back, once the last of its files is closed: another process may
    /// change it then. This one may open it again. Waits for no more than the moves that are being
    /// made.
    pub fn release(&self, directory: &Path) -> Result<()> {
        let directory = plain::canonical(directory)?;
        let _moving = self.shared.end_moves();
        self.shared.open.lock().release(&directory);
        Ok(())
    }

    /// Figures of the managed directories that were asked for.
    pub fn report(&self) -> Vec<HostReport> {
        let open = self.shared.open.lock().open.clone();
        let claims: Vec<_> = open.values().map(Names::claims).collect();
        let all = claims.concat();
        let report = |(names, own): (&Names, &Vec<Claim>)| {
            HostReport::of(names, claims::overbooked(own, &all))
        };
        open.values().zip(&claims).map(report).collect()
    }

    /// A directory moves with its `.thermocline`. Its tiers are told before that they may find it
    /// there, and afterwards that they do.
    fn rename_directory(&self, from: &Path, to: &Path) -> Result<()> {
        let directory = plain::canonical(from)?;
        let names = self.shared.names(&directory)?;
        let is_managed = names.is_some();
        let _moving = self.shared.end_moves();
        self.shared.open.lock().forget(&directory);
        if let Some(names) = names {
            names.will_move_to(&At::new(to)?.path())?;
        }
        plain::rename(from, to)?;
        if is_managed {
            // Until the new path is durable, the tiers may find the directory at either.
            let parents =
                [&directory, &plain::canonical(to)?].map(|path| path.parent().map(Path::to_owned));
            parents.iter().flatten().try_for_each(|parent| plain::sync_directory(parent))?;
            let (devices, policy) = (Arc::clone(&self.shared.devices), self.shared.placement());
            match Names::rehome(devices, &plain::canonical(to)?, None, policy) {
                // A file of it is open still. The tiers serve either path until the next change.
                Err(error) if error.kind() == ErrorKind::Locked => {}
                rehomed => rehomed?,
            }
        }
        Ok(())
    }
}

impl Shared {
    /// The names of a directory, where it is managed.
    fn names(&self, directory: &Path) -> Result<Option<Names>> {
        let mut open = self.open.lock();
        if let Some(names) = open.get(directory) {
            return Ok(Some(names));
        }
        if !Names::exists(&*self.devices, directory)? {
            return Ok(None);
        }
        let tiers = self.settings.specs(directory);
        let devices = Arc::clone(&self.devices);
        let names = Names::load(devices, directory, Some(&tiers), self.placement())?;
        Ok(Some(self.opened(&mut open, directory, names)))
    }

    fn names_to_write(&self, directory: &Path) -> Result<Names> {
        if let Some(names) = self.names(directory)? {
            self.open.lock().take_back(directory, &names);
            return Ok(names);
        }
        let mut open = self.open.lock();
        if let Some(names) = open.get(directory) {
            return Ok(names);
        }
        let tiers = self.settings.specs(directory);
        let names = Names::make(Arc::clone(&self.devices), directory, &tiers, self.placement())?;
        Ok(self.opened(&mut open, directory, names))
    }

    /// After a change that is no reason to keep a directory which was released.
    fn give_back(&self, directory: &Path) {
        let mut open = self.open.lock();
        if open.released.contains_key(directory) {
            open.release(directory);
        }
    }

    /// No file of any directory moves while the answer lives. A round of moves ends with those that
    /// are being made.
    fn end_moves(&self) -> MutexGuard<'_, ()> {
        self.waiting.fetch_add(1, AcqRel);
        let moving = self.moving.lock();
        self.waiting.fetch_sub(1, AcqRel);
        moving
    }

    fn opened(&self, open: &mut Directories, directory: &Path, names: Names) -> Names {
        if self.counts_writers() {
            names.measure_load(Arc::clone(&self.clock));
        }
        names.go_by(self.settings.of_names());
        let waker = Arc::clone(&self.waker);
        let wake = Arc::new(move || waker.wake());
        names.keep_extents(self.settings.extents(), Arc::clone(&self.clock), wake);
        open.open.insert(directory.to_owned(), names.clone());
        let all: Vec<_> = open.open.values().flat_map(Names::claims).collect();
        for warning in claims::overbooked(&names.claims(), &all) {
            tracing::warn!(directory = %directory.display(), "{warning}");
        }
        names
    }

    /// Placement asks for writers.
    fn counts_writers(&self) -> bool {
        self.settings.placement == PlacementChoice::Parallelism
    }

    fn between(&self, from: &At, to: &At) -> Result<Between> {
        let names = self.names(&from.directory)?;
        if from.directory == to.directory {
            return Ok(names.map_or(Between::Plain, Between::Within));
        }
        let is_managed = names.is_some() && Holds::of_name(&to.name) != Holds::Other;
        let into = match is_managed {
            true => Some(self.names_to_write(&to.directory)?),
            false => self.names(&to.directory)?,
        };
        Ok(match (names, into) {
            (Some(names), Some(into)) => Between::Managed(names, into),
            (None, Some(into)) => Between::Into(into),
            (Some(names), None) if names.open(&from.name)?.place() != from.path() => {
                let text = format!(
                    "{} is on a tier and {} is no name of one; copy it",
                    from.path().display(),
                    to.path().display()
                );
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            (Some(names), None) => Between::Out(names),
            (None, None) => Between::Plain,
        })
    }

    fn placement(&self) -> Arc<dyn Placement> {
        // The settings refuse the placement by bandwidth.
        let (room, bandwidth) = (ByLevelSettings::default(), BandwidthSettings::default());
        self.settings.placement.policy(room, bandwidth)
    }
}
