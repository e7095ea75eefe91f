//! Opening a database's tiers, or refusing to: every tier must be the one that belongs there, as
//! recent as the rest.
//!
//! ```text
//! refused   no directory (missing) · no TIER (unmounted) · another instance (foreign)
//!           another index (swapped) · an older generation (clone)
//!           a file that the map lists missing or short · numbers beyond the map's
//!           a journal that ends before where it did when the database was closed
//! accepted  generations g .. g, g+1 .. g+1 from tier 0 on with DATABASE at g:
//!           a crash while they went up
//! ```
//!
//! 1. Everything is checked before anything is changed, the region of persistent memory too, by the
//!    caller; a refused opening leaves the directories as they were.
//! 2. Nothing is ever created in a directory without `TIER`: it may be the mount point of a disk
//!    that is not there.
//! 3. Every refusal says which tier and path, what was found, what was expected, and the way out.
//!
//! Threads: the opening thread alone.

use super::devices::Devices;
use super::generations::{check_generations, raise_after_crash, write_generation};
use super::home::{self, Home, RegionRecord};
use super::leaving::{Leaver, Leaving};
use super::reshape;
use super::unfinished;
use super::{Entry, TieredFiles, file_name};
use crate::context::{FileKind, Keeping};
use crate::driver::{DirectoryLock, Driver};
use crate::drivers::OwnerProcess;
use crate::error::{Error, ErrorKind, Result};
use crate::file_map::{FileMap, MapState, map_name};
use crate::identity::{self, Identity, InstanceId};
use crate::journal::{Extent, Journal};
use crate::load::Loads;
use crate::open_files::OpenFiles;
use crate::placement::Placement;
use crate::small_file;
use crate::tier::{Tier, TierIndex, TierSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::sync::{Mutex, OnceLock};
use thermocline_foundation::{DatabaseId, FileNumber, Planted, planted, sync_site};

/// The name that a directory is locked by.
pub(crate) const LOCK_NAME: &str = "LOCK";

/// A tier and what it says of itself.
pub(crate) struct Found {
    pub(crate) tier: Arc<Tier>,
    pub(super) identity: Identity,
}

/// Lengths of a tier's data files, by number and extension.
pub(super) type Listing = BTreeMap<(FileNumber, &'static str), u64>;

/// The parts that make a namespace.
pub(super) struct Parts {
    pub(super) home: Home,
    pub(super) home_path: PathBuf,
    pub(super) home_driver: Arc<dyn Driver>,
    pub(super) tiers: Vec<Arc<Tier>>,
    pub(super) map: FileMap,
    pub(super) locks: Vec<Box<dyn DirectoryLock>>,
    pub(super) open_files: Arc<OpenFiles>,
}

impl TieredFiles {
    /// Opens the database whose home is `home`. `tiers`, if given, are used in place of those that
    /// `DATABASE` lists (disks may be mounted elsewhere now), and recorded if they are the right
    /// ones. For reading only, nothing is changed, repaired or removed, several may do so beside
    /// each other, and no lock is taken where there can be none.
    ///
    /// Errors: `NotFound` where there is no database, `Tier` where a tier is not the right one,
    /// `Locked`, `Corrupt`, `NewerFormat`.
    pub fn open(
        devices: &dyn Devices,
        home: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
        read_only: bool,
    ) -> Result<Self> {
        Self::open_if(devices, home, tiers, placement, read_only, |_, _, _| Ok(()))
    }

    /// As [`TieredFiles::open`], if `is_right` finds nothing against the region that `DATABASE`
    /// has, or against there being none. It is asked where the database is opened for writing,
    /// before anything is changed.
    pub fn open_if<E: From<Error>>(
        devices: &dyn Devices,
        home: &Path,
        tiers: Option<&[TierSpec]>,
        placement: Arc<dyn Placement>,
        read_only: bool,
        is_right: impl Fn(DatabaseId, InstanceId, Option<&RegionRecord>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let all = |_| true;
        Self::open_where(devices, home, tiers, (placement, read_only), &all, is_right)
    }

    /// As [`TieredFiles::open_if`]; what `is_needed` of its files must be there.
    pub(super) fn open_where<E: From<Error>>(
        devices: &dyn Devices,
        home: &Path,
        tiers: Option<&[TierSpec]>,
        (placement, read_only): (Arc<dyn Placement>, bool),
        is_needed: &dyn Fn(FileKind) -> bool,
        is_right: impl Fn(DatabaseId, InstanceId, Option<&RegionRecord>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let is_right = |home: &Home| is_right(home.database, home.instance, home.region.as_ref());
        let home_path = absolute(home)?;
        let home_driver = open_home(devices, &home_path)?;
        let mut locks = Vec::new();
        take_lock(&*home_driver, read_only, &mut locks)?;
        let mut home = Home::read(&*home_driver, &home_path)?;
        let of_home = (&*home_path, &home_driver);
        let named = tiers.map(absolute_tiers).transpose()?;
        named.as_deref().map_or(Ok(()), |named| require_distinct(&home_path, named))?;
        let is_right_after = |new: &Home| {
            let when = "has, when a change that was cut off is ended,";
            require_count(&home_path, when, new.tiers.len(), named.as_deref())?;
            is_right(new)
        };
        let change = reshape::go_on(devices, &home, of_home, read_only, &is_right_after)?;
        if change.is_some() {
            home = Home::read(&*home_driver, &home_path)?;
        }
        let has_ended_change = change.as_ref().is_some_and(|change| change.has_ended);
        let is_done = "has, now that a change that was cut off is done,";
        let when = if has_ended_change { is_done } else { "has" };
        require_count(&home_path, when, home.tiers.len(), named.as_deref())?;
        home.tiers = named.unwrap_or(home.tiers);
        require_distinct(&home_path, &home.tiers)?;
        let found = find_tiers(devices, &home, (&home_driver, &home_path), read_only, &mut locks)?;
        check_generations(&home, &home_path, &found)?;
        let tiers: Vec<_> = found.iter().map(|found| Arc::clone(&found.tier)).collect();
        let listings = tiers.iter().map(|tier| list(tier)).collect::<Result<Vec<_>>>()?;
        let mut map = open_map(&home, &tiers, &listings, false)?;
        check_extent(&home.closed, FileKind::Map, map.journal())?;
        check_files(map.state(), &tiers, &listings, is_needed)?;
        let mut leaving = Vec::new();
        if !read_only {
            is_right(&home)?;
            // A killed process may have left a DATABASE whose name is not durable yet; the tiers
            // must not go a generation further than the one that a power cut would bring back.
            sync_site("opening/home-names", || home_driver.sync_directory())?;
            // Nor may the name of the map be: what is recorded in it, and the map before it that is
            // removed, would be gone with it.
            sync_site("opening/map-name", || tiers[0].sync_directory())?;
            if let Some(change) = &change {
                reshape::finish(devices, &home, &*home_driver, change)?;
            }
            raise_after_crash(&mut home, &home_path, &*home_driver, &found)?;
            let raise = || write_generation(&home, &home_path, &*home_driver, &tiers);
            sync_site("opening", raise)?;
            map = sync_site("opening/map", || open_map(&home, &tiers, &listings, true))?;
            leaving = remove_leftovers(&map, &*home_driver, &tiers, &listings);
        }
        let open_files = Arc::new(OpenFiles::new(devices.descriptor_limit(), read_only));
        let parts = Parts { home, home_path, home_driver, tiers, map, locks, open_files };
        let files = Self::assemble(parts, &listings, placement, read_only);
        Ok(Self { has_ended_change, leaving: Leaving::of(leaving), ..files })
    }

    /// The namespace of `parts`, whose directories hold `listings`.
    pub(super) fn assemble(
        parts: Parts,
        listings: &[Listing],
        placement: Arc<dyn Placement>,
        read_only: bool,
    ) -> Self {
        let Parts { home, home_path, home_driver, tiers, map, locks, open_files } = parts;
        let published = map.state().files.iter().map(|(number, entry)| {
            let listed = listings[entry.tier.position()].get(&(*number, entry.kind.extension()));
            (*number, Entry::published(entry, listed.copied().unwrap_or(entry.bytes)))
        });
        let kept = kept_caches(map.state(), &listings[0])
            .map(|(number, kind, bytes)| (number, Entry::left(kind, TierIndex(0), bytes)));
        let entries = published.chain(kept).collect();
        Self {
            database: home.database,
            instance: home.instance,
            generation: AtomicU64::new(home.generation),
            closed_extents: home.closed,
            region: Mutex::new(home.region),
            cache_life: Mutex::new(home.cache_life),
            home: home_path,
            home_driver,
            tiers,
            placement,
            open_files,
            numbers_below_at_opening: map.next(),
            map_bytes: AtomicU64::new(map.file_bytes()),
            map_room_bytes: AtomicU64::new(map.announced_bytes()),
            loads: Loads::default(),
            map: Mutex::new(map),
            state: Mutex::new(entries),
            leaving: Leaving::default(),
            read_only,
            closed: AtomicBool::new(false),
            has_ended_change: false,
            gives_way: OnceLock::new(),
            owner: OwnerProcess::current(),
            locks: Mutex::new(locks),
        }
    }

    /// Marks the tiers as closed together, and records how far the file map and the caller's
    /// `journals`, one of a kind, go: see [`TieredFiles::check_extent`]. Files that were never
    /// published are removed at the next opening. Later changes are refused; the directories stay
    /// locked until the namespace is dropped.
    pub fn close(&self, journals: &[(FileKind, Extent)]) -> Result<()> {
        self.require_owner()?;
        if self.read_only || self.closed.swap(true, Relaxed) {
            return Ok(());
        }
        // A thread that was changing the map has finished when this thread gets the lock.
        let map = self.map.lock();
        let mut closed = self.closed_extents.clone();
        for (kind, extent) in journals.iter().chain(&[(FileKind::Map, map.journal().extent())]) {
            closed.insert(kind.extension().to_owned(), *extent);
        }
        let generation = self.generation.load(Relaxed) + 1;
        let home = self.home_as(generation, closed, self.region());
        let write = || write_generation(&home, &self.home, &*self.home_driver, &self.tiers);
        sync_site("closing", || self.open_files.with_room(write))?;
        self.generation.store(home.generation, Relaxed);
        Ok(())
    }

    /// Refuses `journal`, the newest of `kind`, if it goes less far than such a journal did when
    /// the database was last closed: it has lost its end, which by itself cannot be told from that
    /// of an earlier moment.
    pub fn check_extent(&self, kind: FileKind, journal: &Journal) -> Result<()> {
        check_extent(&self.closed_extents, kind, journal)
    }

    /// The database was closed once with a journal of `kind`.
    pub fn was_closed_with(&self, kind: FileKind) -> bool {
        self.closed_extents.contains_key(kind.extension())
    }
}

/// Refuses another number of `named` tiers than the `count` that the database at `home` has `when`.
fn require_count(home: &Path, when: &str, count: usize, named: Option<&[TierSpec]>) -> Result<()> {
    let Some(given) = named.map(<[_]>::len).filter(|given| *given != count) else {
        return Ok(());
    };
    let text = format!(
        "{} {when} {count} tiers but {given} were named; name {count}, in the same order",
        home.display()
    );
    Err(Error::new(ErrorKind::Tier, text))
}

/// The tiers of `home`, each the one that belongs there. `of_home` are its driver and path.
fn find_tiers(
    devices: &dyn Devices,
    home: &Home,
    of_home: (&Arc<dyn Driver>, &Path),
    read_only: bool,
    locks: &mut Vec<Box<dyn DirectoryLock>>,
) -> Result<Vec<Found>> {
    let mut found = Vec::with_capacity(home.tiers.len());
    let mut opened = vec![(Arc::clone(of_home.0), of_home.1)];
    for (index, spec) in home.tiers.iter().enumerate() {
        let tier = open_tier(devices, TierIndex(index as u8), spec, read_only)?;
        require_other(&**tier.driver(), &spec.path, &opened)?;
        take_lock(&**tier.driver(), read_only, locks)?;
        opened.push((Arc::clone(tier.driver()), &spec.path));
        found.push(check_identity(home, tier)?);
    }
    Ok(found)
}

/// The path with the current directory before it, so that what is recorded means the same from
/// everywhere.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| Error::io("use the path", path, &error))
}

pub(super) fn absolute_tiers(tiers: &[TierSpec]) -> Result<Vec<TierSpec>> {
    let absolute = |spec: &TierSpec| Ok(TierSpec { path: absolute(&spec.path)?, ..spec.clone() });
    tiers.iter().map(absolute).collect()
}

/// Home and tiers must be different directories, at least one tier and as many as an index can
/// name.
pub(super) fn require_distinct(home: &Path, tiers: &[TierSpec]) -> Result<()> {
    let mut seen = BTreeSet::from([home]);
    if let Some(twice) = tiers.iter().find(|spec| !seen.insert(&spec.path)) {
        let text = format!(
            "{} is named twice; home and tiers need a directory each, such as {}",
            twice.path.display(),
            home.join("tier-0").display()
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if tiers.is_empty() || tiers.len() > usize::from(u8::MAX) {
        let text = format!("a database has 1 to {} tiers, not {}", u8::MAX, tiers.len());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

/// A directory is named once, whatever paths lead to it: not `path`, which `driver` serves, and one
/// of `others`.
pub(super) fn require_other(
    driver: &dyn Driver,
    path: &Path,
    others: &[(Arc<dyn Driver>, &Path)],
) -> Result<()> {
    let Some(id) = driver.directory_id() else { return Ok(()) };
    let Some((_, same)) = others.iter().find(|(other, _)| other.directory_id() == Some(id)) else {
        return Ok(());
    };
    let text = format!(
        "{} and {} are the same directory, by a symbolic link or a mount; home and tiers need a \
         directory each",
        same.display(),
        path.display()
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Holds a directory for as long as `locks` are.
pub(super) fn take_lock(
    driver: &dyn Driver,
    read_only: bool,
    locks: &mut Vec<Box<dyn DirectoryLock>>,
) -> Result<()> {
    match read_only {
        true => locks.extend(driver.lock_shared(LOCK_NAME)?),
        false => locks.push(driver.lock(LOCK_NAME)?),
    }
    Ok(())
}

pub(crate) fn has_file(driver: &dyn Driver, name: &str) -> Result<bool> {
    Ok(driver.list()?.iter().any(|entry| entry.name == name))
}

pub(super) fn open_home(devices: &dyn Devices, path: &Path) -> Result<Arc<dyn Driver>> {
    let none = |found: &str| {
        let text =
            format!("{} is no database: {found}; name the right one or create it", path.display());
        Error::new(ErrorKind::NotFound, text)
    };
    let driver = devices.home(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => none("there is no such directory"),
        _ => error,
    })?;
    if !has_file(&*driver, home::FILE_NAME)? {
        let is_unfinished = has_file(&*driver, unfinished::FILE_NAME)?;
        return Err(none(match is_unfinished {
            true => "its creation was cut off",
            false => "it has no file DATABASE",
        }));
    }
    Ok(driver)
}

/// A refusal of the tier that `whose` describes.
pub(crate) fn refuse(whose: &str, found: impl std::fmt::Display, way_out: &str) -> Error {
    Error::new(ErrorKind::Tier, format!("{whose}: {found}; {way_out}"))
}

pub(crate) fn open_tier(
    devices: &dyn Devices,
    index: TierIndex,
    spec: &TierSpec,
    read_only: bool,
) -> Result<Arc<Tier>> {
    let whose = format!("{index} at {}", spec.path.display());
    let driver = if read_only { devices.tier_to_read(spec) } else { devices.tier(spec) };
    let driver = driver.map_err(|error| match error.kind() {
        ErrorKind::NotFound => refuse(
            &whose,
            "missing, there is no such directory",
            "mount it, or name the path where it is now when opening",
        ),
        _ => Error::new(error.kind(), format!("{whose}: {error}")),
    })?;
    if !has_file(&*driver, identity::FILE_NAME)? {
        let found = "not mounted, the directory has no file TIER";
        let way_out = "mount the tier there, or name the path where it is now when opening";
        return Err(refuse(&whose, found, way_out));
    }
    Ok(Arc::new(Tier::new(index, spec.clone(), driver)))
}

/// The tier is of this instance and has its place in it.
pub(crate) fn check_identity(home: &Home, tier: Arc<Tier>) -> Result<Found> {
    let (index, path) = (tier.index(), tier.spec().path.display());
    let whose = format!("{index} at {path}");
    let what = tier.spec().path.join(identity::FILE_NAME).display().to_string();
    let identity = Identity::read(&**tier.driver(), &what)?;
    if planted(Planted::TierOwnerNotChecked) {
        return Ok(Found { tier, identity });
    }
    if identity.database != home.database {
        let found = format!(
            "foreign, it belongs to database {}, expected {}",
            identity.database, home.database
        );
        return Err(refuse(&whose, found, "mount or name the right directory"));
    }
    if identity.instance != home.instance {
        let found = format!(
            "foreign, it belongs to another copy of this database (a checkpoint?), {}, expected {}",
            identity.instance, home.instance
        );
        return Err(refuse(&whose, found, "mount or name the right directory"));
    }
    if identity.tier != index {
        let found = format!("swapped, it is {} of this database, expected {index}", identity.tier);
        let way_out = "mount each where it was, or name the tiers in their order, fastest first";
        return Err(refuse(&whose, found, way_out));
    }
    if usize::from(identity.tiers) != home.tiers.len() {
        let (has, expected) = (identity.tiers, home.tiers.len());
        let found = format!("it is one of {has} tiers, expected {expected}");
        return Err(refuse(&whose, found, "restore DATABASE, or the tier, from a checkpoint"));
    }
    Ok(Found { tier, identity })
}

/// Number and extension of a data file's name; none for other files.
pub(super) fn parse_name(name: &str) -> Option<(FileNumber, &'static str)> {
    let (digits, extension) = name.split_once('.')?;
    let kind = FileKind::from_extension(extension)?;
    let number = FileNumber(digits.parse().ok()?);
    (file_name(number, kind) == name).then_some((number, kind.extension()))
}

pub(super) fn list(tier: &Tier) -> Result<Listing> {
    let entries = tier.driver().list()?;
    let files = entries.iter().filter(|entry| !entry.is_link);
    Ok(files.filter_map(|entry| Some((parse_name(&entry.name)?, entry.len))).collect())
}

pub(super) fn open_map(
    home: &Home,
    tiers: &[Arc<Tier>],
    listings: &[Listing],
    repair: bool,
) -> Result<FileMap> {
    let map = FileKind::Map.extension();
    let maps = listings[0].keys().filter(|(_, extension)| *extension == map);
    let maps = maps.map(|(number, _)| *number).collect();
    FileMap::open(home.database, &tiers[0], tiers.len(), maps, repair)
}

/// See [`TieredFiles::check_extent`].
pub(super) fn check_extent(
    closed: &BTreeMap<String, Extent>,
    kind: FileKind,
    journal: &Journal,
) -> Result<()> {
    let extent = journal.extent();
    match closed.get(kind.extension()) {
        Some(closed) if extent < *closed => {
            let why = format!(
                "it ends here, but when the database was closed {} went to {}; restore from a \
                 checkpoint",
                file_name(FileNumber(closed.number), kind),
                closed.bytes
            );
            Err(Error::corrupt(journal.file().describe(), extent.bytes, why))
        }
        _ => Ok(()),
    }
}

/// The tiers hold what is needed of what the map lists, and nothing newer than the map.
pub(super) fn check_files(
    state: &MapState,
    tiers: &[Arc<Tier>],
    listings: &[Listing],
    is_needed: &dyn Fn(FileKind) -> bool,
) -> Result<()> {
    let way_out = "mount the disk that was used last, or restore a checkpoint";
    for (number, entry) in state.files.iter().filter(|(_, entry)| is_needed(entry.kind)) {
        let tier = &tiers[entry.tier.position()];
        let whose = format!("{} at {}", tier.index(), tier.spec().path.display());
        let name = file_name(*number, entry.kind);
        let found = match listings[entry.tier.position()].get(&(*number, entry.kind.extension())) {
            None => "is missing".to_owned(),
            Some(len) if *len < entry.bytes => {
                format!("has {len} bytes, expected {} at least", entry.bytes)
            }
            Some(_) => continue,
        };
        let found = format!("older than the file map, or damaged: {name} {found}");
        return Err(refuse(&whose, found, way_out));
    }
    for (tier, listing) in tiers.iter().zip(listings) {
        let newer = listing
            .keys()
            .find(|(number, extension)| *number >= state.reserved && !is_cache(extension));
        if let Some((number, extension)) = newer {
            let whose = format!("tier 0 at {}", tiers[0].spec().path.display());
            let found = format!(
                "an older clone, its file map ends before number {} but {} has \
                 {number}.{extension}",
                state.reserved,
                tier.describe()
            );
            return Err(refuse(&whose, found, way_out));
        }
    }
    Ok(())
}

/// Files with this extension are kept over a restart without being published.
fn is_cache(extension: &str) -> bool {
    let kind = FileKind::from_extension(extension);
    kind.is_some_and(|kind| kind.keeping() == Keeping::Cache)
}

/// Caches on tier 0, of what it has, which the program above may still use: number, kind and
/// length. A number that the map has not reserved yet, or has given to a file, is that of another
/// life of the database, from which the map was restored.
fn kept_caches(
    state: &MapState,
    listing: &Listing,
) -> impl Iterator<Item = (FileNumber, FileKind, u64)> {
    listing.iter().filter_map(|((number, extension), bytes)| {
        let kind = FileKind::from_extension(extension)?;
        let is_free = *number < state.reserved && !state.files.contains_key(number);
        (is_cache(extension) && is_free).then_some((*number, kind, *bytes))
    })
}

/// Removes what a crash left: files that the map does not list where they are, older and unfinished
/// maps. Gives those that stay.
fn remove_leftovers(
    map: &FileMap,
    home_driver: &dyn Driver,
    tiers: &[Arc<Tier>],
    listings: &[Listing],
) -> Vec<Leaver> {
    let files = &map.state().files;
    let mut leaving = Vec::new();
    let kept: BTreeSet<_> = kept_caches(map.state(), &listings[0])
        .map(|(number, kind, _)| (number, kind.extension()))
        .collect();
    for (tier, listing) in tiers.iter().zip(listings) {
        for ((number, extension), bytes) in listing {
            let is_kept = tier.index() == TierIndex(0) && kept.contains(&(*number, *extension));
            let is_listed = files.get(number).is_some_and(|entry| {
                entry.tier == tier.index() && entry.kind.extension() == *extension
            });
            let is_map = tier.index() == TierIndex(0)
                && *extension == FileKind::Map.extension()
                && *number == map.number();
            if is_listed || is_map || is_kept || planted(Planted::LeftoversKept) {
                continue;
            }
            if !remove(&**tier.driver(), &format!("{number}.{extension}"))
                && let Some(kind) = FileKind::from_extension(extension)
            {
                leaving.push((*number, kind, tier.index(), *bytes));
            }
        }
    }
    for entry in home_driver.list().unwrap_or_default() {
        if small_file::is_unfinished(&entry.name) || small_file::is_live(&entry.name) {
            remove(home_driver, &entry.name);
        }
    }
    debug_assert!(has_file(&**tiers[0].driver(), &map_name(map.number())).unwrap_or(true));
    leaving
}

/// False where it stays.
fn remove(driver: &dyn Driver, name: &str) -> bool {
    let removed = driver.delete(name);
    match &removed {
        Ok(()) => tracing::info!(name, directory = %driver.describe(), "removed a leftover"),
        Err(error) => tracing::warn!(%error, "a leftover stays until the next opening"),
    }
    removed.map_or_else(|error| error.kind() == ErrorKind::NotFound, |()| true)
}
