//! Where regions of persistent memory are: files that are mapped, or what a test has in their
//! place.
//!
//! Threads: the one that opens or closes the store.

use std::fmt::Debug;
use std::path::Path;
#[cfg(not(any(shuttle, loom)))]
use thermocline_device::drivers::{Mapping, persistence};
use thermocline_device::{Error, ErrorKind, Result};
use thermocline_pmem::{Circumstances, Medium};

/// What a region's bytes are said to be, by the setting `persistent_memory.driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionDriver {
    /// Persistent memory: what is fenced is durable. Of any other file the circumstances say that
    /// it is none, and what is acknowledged goes to a log.
    Mapped,
    /// Any file. What is written survives the end of the process and is lost when the power fails;
    /// each flushed line takes so many nanoseconds (SLM-DB, section 6.1).
    Emulated {
        /// See above.
        line_ns: u64,
    },
}

/// Makes and opens the files of regions.
pub trait Regions: Send + Sync + Debug {
    /// Makes a file of `bytes` zeros, which must not exist.
    fn create(
        &self,
        path: &Path,
        bytes: u64,
        driver: RegionDriver,
    ) -> Result<(Medium, Circumstances)>;

    /// Opens the file.
    fn open(&self, path: &Path, driver: RegionDriver) -> Result<(Medium, Circumstances)>;

    /// Removes the file.
    fn remove(&self, path: &Path) -> Result<()>;
}

/// Files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappedRegions;

#[cfg(not(any(shuttle, loom)))]
impl Regions for MappedRegions {
    fn create(
        &self,
        path: &Path,
        bytes: u64,
        driver: RegionDriver,
    ) -> Result<(Medium, Circumstances)> {
        mapped(Mapping::create(path, bytes)?, driver).inspect_err(|_| {
            if let Err(error) = Mapping::remove(path) {
                tracing::warn!(%error, "the file of a region that was not made remains");
            }
        })
    }

    fn open(&self, path: &Path, driver: RegionDriver) -> Result<(Medium, Circumstances)> {
        mapped(Mapping::open(path)?, driver)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Mapping::remove(path)
    }
}

#[cfg(not(any(shuttle, loom)))]
fn mapped(mapping: Mapping, driver: RegionDriver) -> Result<(Medium, Circumstances)> {
    let found = persistence::probe(Path::new("/sys"), mapping.device()?);
    let boot = persistence::boot_id(Path::new("/proc"));
    let now = Circumstances::of(mapping.is_synchronous(), &found, boot);
    let line_ns = match driver {
        RegionDriver::Emulated { line_ns } => line_ns,
        RegionDriver::Mapped => 0,
    };
    Ok((Medium::mapped(mapping, found.domain, line_ns)?, now))
}

#[cfg(any(shuttle, loom))]
impl Regions for MappedRegions {
    fn create(&self, path: &Path, _: u64, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        Err(no_persistent_memory(path))
    }

    fn open(&self, path: &Path, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        Err(no_persistent_memory(path))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        Err(no_persistent_memory(path))
    }
}

/// The refusal of a file that memtables are not to be in.
pub(crate) fn no_persistent_memory(path: &Path) -> Error {
    let text = format!(
        "{} is not on persistent memory (MAP_SYNC was refused), so a write would be acknowledged \
         that a power failure can take; name a file on a DAX file system, leave out \
         persistent_memory, which has writes go to a log, or accept the loss with \
         persistent_memory.driver = \"emulated-0ns\"",
        path.display()
    );
    Error::new(ErrorKind::Invalid, text)
}
