//! The file of a region that is to be made: zeros, and as many as the region has.
//!
//! 1. It is there before anything of the database changes, so an opening that cannot have it is
//!    refused as if it had not been tried.
//! 2. It goes with this, unless `DATABASE` may name the region that is made of it.
//! 3. A region that `DATABASE` does not name holds nothing: one of this database, which a crash
//!    left while it was made, with or without an identity, is made again.
//!
//! Threads: the one that opens the store.

use super::files::{is_beside_log, named, remove};
use crate::environment::Environment;
use crate::environment::regions::Regions;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Preset;
use crate::settings::persistent_memory::PersistentMemory;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::identity::InstanceId;
use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind, TieredFiles};
use thermocline_foundation::DatabaseId;
use thermocline_pmem::{Circumstances, Geometry, Medium, Region, RegionIdentity};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct NewFile {
    // Removed before it is closed, and so unlocked: another opening may make its own there then.
    pub place: Place,
    pub medium: Medium,
    pub geometry: Geometry,
    pub now: Circumstances,
    /// Writes go to a log.
    pub is_beside_log: bool,
}

/// Where the file is; it goes with this unless it is kept.
#[derive(Debug)]
pub(crate) struct Place {
    regions: Arc<dyn Regions>,
    path: PathBuf,
    is_kept: bool,
}

impl NewFile {
    /// The file that is `wanted` of a database that has no region.
    pub fn make(
        environment: &Environment,
        owner: (DatabaseId, InstanceId),
        wanted: &PersistentMemory,
        preset: Preset,
    ) -> Result<Self> {
        let regions = Arc::clone(&environment.regions);
        let path = TieredFiles::region_path(&wanted.path)?;
        let driver = wanted.parsed_driver()?;
        let geometry = Geometry::of(wanted.size.0);
        let make = || regions.create(&path, geometry.bytes, driver);
        let made = match make() {
            Err(error) if error.kind() == DeviceErrorKind::AlreadyExists => {
                require_unfinished(owner, &path, regions.open(&path, driver))?;
                regions.remove(&path).and_then(|()| make())
            }
            made => made,
        };
        let (medium, now) = made.map_err(|error| named(&path, error))?;
        let place = Place { regions, path, is_kept: false };
        let is_beside_log = is_beside_log(driver, &now, preset, &place.path)?;
        Ok(Self { place, medium, geometry, now, is_beside_log })
    }
}

impl Place {
    /// Of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file stays.
    pub fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_kept {
            remove(&*self.regions, &self.path);
        }
    }
}

/// Refuses a file that is no region of this database.
fn require_unfinished(
    (database, instance): (DatabaseId, InstanceId),
    path: &Path,
    left: Result<(Medium, Circumstances), DeviceError>,
) -> Result<()> {
    if left.as_ref().is_ok_and(|(medium, _)| Region::is_unfinished(medium, database)) {
        return Ok(());
    }
    let look = |(medium, _): (Medium, Circumstances)| {
        let found = RegionIdentity::read(&medium)?;
        Region::arenas_of(&medium, &found).map(|arenas| (found, arenas.len()))
    };
    let what = match left.and_then(look) {
        Ok((found, arenas)) if (found.database, found.instance) == (database, instance) => {
            if arenas == 0 {
                return Ok(());
            }
            "a region of this database, with memtables that a copy of its directories may not have"
                .to_owned()
        }
        Ok((found, _)) => format!("a region of database {}", found.database),
        Err(error) => format!("no region of this database ({error})"),
    };
    let text = format!(
        "{} is there already, {what}; name another persistent_memory.path, or delete the file",
        path.display()
    );
    Err(Error::new(ErrorKind::AlreadyExists, text))
}
