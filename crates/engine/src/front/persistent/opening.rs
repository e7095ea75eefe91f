//! The region is made with the database, or added to one; later it is opened and checked.
//!
//! ```text
//!   made     file of zeros (`new_file.rs`) -> identity -> DATABASE names it (format 2)
//!   opened   identity checked -> identity with the next generation -> DATABASE has that too
//!   closed   as opened, with the mark of a good close in both
//! ```
//! 1. The region's generation is written before that in `DATABASE`: a crash leaves it one ahead.
//!    `DATABASE` follows before it goes up again. A new region begins above all that were before
//!    it, so none of their states is ever taken for one of its own.
//! 2. Nothing is changed, in a region and in the database, where the region is not the database's
//!    or may lack what was stored: [`require`] is asked before all else. It stays as it is, too,
//!    where it lacks the arena with which recovery must begin: a copy of the database that is
//!    opened beside the original must not make the region newer than that knows.
//! 3. A file that is no persistent memory holds no memtables, unless it is said to be emulated:
//!    with the preset `indexed` it holds the index, beside a log. `DATABASE` says so. After a loss
//!    of power it may lack what was stored last; then it is made anew, and tables wait.
//! 4. An index, or a region, that the preset does not keep goes at the end of the opening
//!    (`leaving.rs`).
//!
//! Threads: the one that opens the store.

use super::files::{is_beside_log, missing, named, remove, warn_of_loss};
use super::leaving::Leaving;
use super::new_file::NewFile;
use crate::environment::Environment;
use crate::environment::regions::RegionDriver;
use crate::error::{Error, Result};
use crate::settings::persistent_memory::{PersistentMemory, driver_of, parse_driver, recorded};
use crate::settings::{Preset, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::identity::InstanceId;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind, TieredFiles};
use thermocline_foundation::{ByteSize, DatabaseId, FileNumber, Planted, planted};
use thermocline_pmem::region::OpenedRegion as PmemRegion;
use thermocline_pmem::{
    Arena, Circumstances, Expected, Geometry, Medium, Region, RegionIdentity, Tree,
};

/// More than a region's generation goes up by from one opening of the database for writing to the
/// next.
const GENERATIONS_OF_AN_OPENING: u64 = 1 << 16;

/// A region, and what it has of memtables.
#[derive(Debug)]
pub(crate) struct OpenedRegion {
    pub region: Arc<Region>,
    pub path: PathBuf,
    /// In the order of their numbers.
    pub arenas: Vec<Arena>,
    /// The index of all tables, with the preset `indexed`; none where it is opened for reading.
    pub tree: Option<Tree>,
    /// Writes go to a log.
    pub is_beside_log: bool,
}

/// What an opening does with the index of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexUse {
    /// It is read, and must be intact.
    Keep,
    /// It is made anew, from the tables.
    Renew,
}

/// Refuses arenas without what recovery must begin with.
pub(crate) type RequireFloor<'a> = &'a dyn Fn(&[FileNumber]) -> Result<()>;

/// Opens the region of the database, or makes the one that `settings` name, of the file `new` where
/// there is one; none where there is none, or nothing of it is to be read. `leaving` hears of an
/// index that goes.
pub(crate) fn open(
    environment: &Environment,
    files: &TieredFiles,
    (settings, index): (&Settings, IndexUse),
    new: Option<NewFile>,
    require_floor: RequireFloor<'_>,
    leaving: &mut Leaving,
) -> Result<Option<OpenedRegion>> {
    let wanted = settings.persistent_memory.as_ref();
    match (files.region(), wanted) {
        (Some(record), _) if settings.preset() == Preset::Hybrid && !leaving.is_all() => {
            Err(of_other_preset(&record))
        }
        // Its index is of no use, and it has no memtables.
        (Some(record), _) if leaving.is_all() && driver_of(&record).1 => Ok(None),
        (Some(record), _) => {
            let kept = (settings, index);
            open_known(environment, (files, record), kept, require_floor, leaving)
        }
        (None, Some(wanted)) if !files.is_read_only() => {
            require_floor(&[])?;
            create(environment, files, wanted, settings.preset(), new).map(Some)
        }
        (None, None) if settings.preset() == Preset::Indexed && !files.is_read_only() => {
            Err(unnamed())
        }
        _ => Ok(None),
    }
}

/// The index of a region that was opened for writing, where the preset has one.
fn tree_of(
    opened: &PmemRegion,
    preset: Preset,
    index: IndexUse,
    path: &Path,
) -> Result<Option<Tree>> {
    if preset != Preset::Indexed {
        return Ok(None);
    }
    let tree = match index {
        IndexUse::Keep => Tree::open(opened),
        IndexUse::Renew => Tree::renew(opened),
    };
    tree.map(Some).map_err(|error| named(path, error))
}

/// Removes the region that a database had made which is to be abandoned; also where the write of
/// `DATABASE` failed that names it, and took effect.
pub(crate) fn abandon(environment: &Environment, files: &TieredFiles) {
    let recorded = || files.recorded_region().ok().flatten();
    let Some(record) = files.region().or_else(recorded) else { return };
    remove(&*environment.regions, &record.path);
}

fn create(
    environment: &Environment,
    files: &TieredFiles,
    wanted: &PersistentMemory,
    preset: Preset,
    new: Option<NewFile>,
) -> Result<OpenedRegion> {
    let owner = (files.database(), files.instance());
    let new = new.map_or_else(|| NewFile::make(environment, owner, wanted, preset), Ok)?;
    let region = files.take_number()?;
    let NewFile { place, medium, geometry, now, is_beside_log } = new;
    let path = place.path().to_owned();
    let generation = first_generation(files);
    let (database, instance) = owner;
    let identity = RegionIdentity {
        database,
        instance,
        region,
        generation,
        geometry,
        is_clean: false,
        opened: now,
    };
    let (size, driver) = (ByteSize(geometry.bytes), recorded(&wanted.driver, is_beside_log));
    let record = RegionRecord { path: path.clone(), size, driver, generation, is_clean: false };
    let opened = Region::create(medium, identity).map_err(|error| named(&path, error))?;
    let told = opened.region.sync().and_then(|()| files.set_region(record));
    if told.is_ok() || !matches!(files.recorded_region(), Ok(None)) {
        // `DATABASE` names it, or may: where only the sync of that failed, the next opening takes
        // it.
        place.keep();
    } else {
        // Before it is unlocked.
        drop(place);
    }
    told.map_err(|error| named(&path, error))?;
    warn_of_loss(&wanted.driver, &path);
    let tree = tree_of(&opened, preset, IndexUse::Keep, &path)?;
    Ok(OpenedRegion { region: opened.region, path, arenas: opened.arenas, tree, is_beside_log })
}

/// The generation of a new region, above that of each that the database had before. An opening for
/// writing raises that of the database by one at least, and that of a region by one, as the close
/// does.
fn first_generation(files: &TieredFiles) -> u64 {
    if planted(Planted::RegionBeginsAgain) {
        return 1;
    }
    files.generation().saturating_mul(GENERATIONS_OF_AN_OPENING)
}

/// The file of a region that a database has, as an opening with some settings finds it. Nothing is
/// changed yet.
struct Looked {
    /// Where it is now, and its driver without what it says of a log.
    record: RegionRecord,
    driver: RegionDriver,
    was_beside_log: bool,
    medium: Medium,
    now: Circumstances,
    expected: Expected,
    found: RegionIdentity,
    /// It may lack what was stored last, and that is in tables and in the log.
    is_replaced: bool,
}

impl Looked {
    /// At the region that `DATABASE` has as `record`, or where `settings` say that it is.
    fn at(
        environment: &Environment,
        (database, instance): (DatabaseId, InstanceId),
        mut record: RegionRecord,
        settings: &Settings,
    ) -> Result<Self> {
        let (driver, was_beside_log) = driver_of(&record);
        record.driver = driver.to_owned();
        if let Some(wanted) = &settings.persistent_memory {
            let bytes = Geometry::of(wanted.size.0).bytes;
            if bytes != record.size.0 {
                return Err(Error::invalid(format!(
                    "persistent_memory.size = {bytes} B, but the region has {} B, which does not \
                     change; leave the setting out, name that size, or have another region made \
                     (repair --rebuild-index --region PATH:SIZE)",
                    record.size.0
                )));
            }
            record.path = TieredFiles::region_path(&wanted.path)?;
            record.driver.clone_from(&wanted.driver);
        }
        let named = |error: DeviceError| named(&record.path, error);
        let driver = parse_driver(&record.driver)?;
        let opened = environment.regions.open(&record.path, driver);
        let (medium, now) = opened.map_err(|error| match error.kind() {
            DeviceErrorKind::NotFound => missing(&record.path),
            _ => named(error),
        })?;
        let expected = Expected { database, instance, generation: record.generation };
        let found = RegionIdentity::read(&medium).map_err(named)?;
        let is_replaced = was_beside_log
            && settings.preset() == Preset::Indexed
            && found.is_doubted(&expected, &now);
        Ok(Self { record, driver, was_beside_log, medium, now, expected, found, is_replaced })
    }

    /// Whether writes go to a log beside it from now on.
    fn is_beside_log(&self, preset: Preset) -> Result<bool> {
        is_beside_log(self.driver, &self.now, preset, &self.record.path)
    }

    /// Refuses a region with which recovery cannot begin.
    fn require_floor(&self, require_floor: RequireFloor<'_>) -> Result<()> {
        let named = |error: DeviceError| named(&self.record.path, error);
        let checked = Region::checked(&self.medium, &self.expected, &self.now).map_err(named)?;
        let arenas = Region::arenas_of(&self.medium, &checked).map_err(named)?;
        require_floor(&arenas).map_err(|error| {
            let text = format!(
                "neither logs nor persistent memory at {} have that with which recovery must \
                 begin: the end of the manifest is lost, or this is a copy of the database, and \
                 another one has used the region since; open that one, or restore the database \
                 from a checkpoint",
                self.record.path.display()
            );
            Error::new(error.kind(), text)
        })
    }
}

/// The refusal of an index in no region.
fn unnamed() -> Error {
    Error::invalid(
        "the preset indexed has its index in persistent memory, and the database has none; name a \
         region: persistent_memory = { path = ..., size = ... }. A new one is made, and filled \
         from the tables",
    )
}

/// The refusal of the preset `hybrid` for a database with the region `record`.
fn of_other_preset(record: &RegionRecord) -> Error {
    Error::invalid(format!(
        "persistent memory at {} has memtables of the database, which is of the presets leveled \
         and indexed; open it with preset = \"leveled\"",
        record.path.display()
    ))
}

/// Refuses the region that `DATABASE` has as `record` where [`open`] would, or an index without a
/// region; nothing of the database has changed by then.
pub(crate) fn require(
    environment: &Environment,
    owner: (DatabaseId, InstanceId),
    record: Option<&RegionRecord>,
    settings: &Settings,
    before: Option<Preset>,
) -> Result<()> {
    let Some(record) = record else {
        let has_one = settings.persistent_memory.is_some();
        let is_enough = has_one || settings.preset() != Preset::Indexed;
        return if is_enough { Ok(()) } else { Err(unnamed()) };
    };
    let goes = Leaving::takes_all(settings, before);
    if settings.preset() == Preset::Hybrid && !goes {
        return Err(of_other_preset(record));
    }
    if goes && driver_of(record).1 {
        return Ok(());
    }
    let looked = Looked::at(environment, owner, record.clone(), settings)?;
    looked.is_beside_log(settings.preset())?;
    if looked.is_replaced {
        return Ok(());
    }
    let checked = Region::checked(&looked.medium, &looked.expected, &looked.now);
    checked.map(drop).map_err(|error| named(&looked.record.path, error))
}

fn open_known(
    environment: &Environment,
    (files, record): (&TieredFiles, RegionRecord),
    (settings, index): (&Settings, IndexUse),
    require_floor: RequireFloor<'_>,
    leaving: &mut Leaving,
) -> Result<Option<OpenedRegion>> {
    let owner = (files.database(), files.instance());
    let looked = Looked::at(environment, owner, record.clone(), settings)?;
    let path = looked.record.path.clone();
    let named = |error: DeviceError| named(&path, error);
    if files.is_read_only() && looked.is_replaced {
        return Ok(None);
    }
    let (mut tree, mut is_beside) = (None, looked.was_beside_log);
    let mut opened = if files.is_read_only() {
        Region::look(looked.medium, &looked.expected, &looked.now).map_err(named)?
    } else {
        is_beside = looked.is_beside_log(settings.preset())?;
        if !looked.is_replaced {
            looked.require_floor(require_floor)?;
        }
        let generation = follow(files, record, &looked)? + 1;
        let Looked { record, medium, now, expected, found, is_replaced, .. } = looked;
        let opened = if is_replaced {
            let path = path.display();
            tracing::warn!(%path, "the index may lack what was stored last; it is made anew");
            let (region, is_clean) = (files.take_number()?, false);
            let made = RegionIdentity { region, generation, is_clean, opened: now, ..found };
            Region::replace(medium, made)
        } else {
            Region::open(medium, &expected, &now, generation)
        };
        let opened = opened.map_err(named)?;
        opened.region.sync().map_err(named)?;
        tree = tree_of(&opened, settings.preset(), index, &path)?;
        warn_of_loss(&record.driver, &path);
        let driver = recorded(&record.driver, is_beside);
        files.set_region(RegionRecord { generation, is_clean: false, driver, ..record })?;
        opened
    };
    let (region, is_beside_log) = (Arc::clone(&opened.region), is_beside);
    let arenas = std::mem::take(&mut opened.arenas);
    if settings.preset() != Preset::Indexed && opened.has_index() && !files.is_read_only() {
        leaving.take_index(opened, &path)?;
    }
    Ok(Some(OpenedRegion { region, path, arenas, tree, is_beside_log }))
}

/// The generation that region and `DATABASE` have. Where a crash left the region one ahead of
/// `record`, `DATABASE` follows: no two states of a region have the same generation.
fn follow(files: &TieredFiles, record: RegionRecord, looked: &Looked) -> Result<u64> {
    let named = |error: DeviceError| named(&looked.record.path, error);
    looked.found.check_name(&looked.expected).map_err(named)?;
    let generation = looked.found.generation.max(record.generation);
    if generation > record.generation {
        files.set_region(RegionRecord { generation, ..record })?;
    }
    Ok(generation)
}

/// Whether the memtables of the region that a database has as `record` can be read. Gives the
/// tables that its index names with live records; none where that cannot be read.
pub(crate) fn look(
    environment: &Environment,
    record: &RegionRecord,
    (database, instance): (DatabaseId, InstanceId),
) -> Result<Vec<FileNumber>> {
    // Without the way out: the caller is on it.
    let named = |error: DeviceError| {
        let error = Error::from(error);
        Error::new(error.kind(), format!("persistent memory at {}: {error}", record.path.display()))
    };
    let driver = parse_driver(driver_of(record).0)?;
    let opened = environment.regions.open(&record.path, driver);
    let (medium, now) = opened.map_err(|error| match error.kind() {
        DeviceErrorKind::NotFound => missing(&record.path),
        _ => named(error),
    })?;
    let expected = Expected { database, instance, generation: record.generation };
    let opened = Region::look(medium, &expected, &now).map_err(named)?;
    thermocline_pmem::replay(&opened.arenas).map_err(named)?;
    let lines = Tree::tables_of(&opened).unwrap_or_default();
    Ok(lines.iter().filter(|line| line.live > 0).map(|line| line.number).collect())
}

impl OpenedRegion {
    /// Numbers of its arenas.
    pub fn numbers(&self) -> impl Iterator<Item = FileNumber> {
        self.arenas.iter().map(Arena::number)
    }

    /// Forgets the arenas below `floor`, whose records are in tables; frees them where the store is
    /// opened `for_writing`.
    pub fn keep_from(&mut self, floor: FileNumber, for_writing: bool) {
        self.arenas.retain(|arena| {
            let is_kept = arena.number() >= floor;
            if !is_kept && for_writing {
                arena.free();
            }
            is_kept
        });
    }

    /// Frees arenas behind that of the `floor` which have no record: openings that were cut off
    /// have made them, and many of these must not fill the region. All were replayed.
    pub fn free_unused(&mut self, floor: FileNumber) {
        self.arenas.retain(|arena| {
            let has_records = arena.has_group() && !planted(Planted::ArenaFreedBeforeEdit);
            let is_kept = arena.number() <= floor || has_records;
            if !is_kept {
                arena.free();
            }
            is_kept
        });
    }
}
