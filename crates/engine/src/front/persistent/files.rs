//! The file of a region: what it is good for, errors that name it, and its removal.
//!
//! Threads: the one that opens the store; errors are of any.

use crate::environment::regions::{RegionDriver, Regions, no_persistent_memory};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Preset;
use std::path::Path;
use thermocline_device::Error as DeviceError;
use thermocline_pmem::Circumstances;

/// Whether writes go to a log beside a region that is no persistent memory, though its driver says
/// so.
pub(super) fn is_beside_log(
    driver: RegionDriver,
    now: &Circumstances,
    preset: Preset,
    path: &Path,
) -> Result<bool> {
    match driver {
        RegionDriver::Mapped if now.is_synchronous => Ok(false),
        RegionDriver::Mapped if preset == Preset::Indexed => Ok(true),
        RegionDriver::Mapped => Err(Error::from(no_persistent_memory(path))),
        RegionDriver::Emulated { .. } => Ok(false),
    }
}

/// An error of the region at `path`.
pub(super) fn named(path: &Path, error: DeviceError) -> Error {
    Error::of_region(format_args!("persistent memory at {}", path.display()), error)
}

/// Removes the file of a region that the database does not have.
pub(super) fn remove(regions: &dyn Regions, path: &Path) {
    if let Err(error) = regions.remove(path) {
        tracing::warn!(%error, "a region that is not of the database could not be removed");
    }
}

/// There is no file at `path`.
pub(super) fn missing(path: &Path) -> Error {
    let text = format!(
        "persistent memory at {}: missing, there is no such file; mount it, name the path where it \
         is now (persistent_memory.path), or see what `repair --rebuild-index` can do",
        path.display()
    );
    Error::new(ErrorKind::Tier, text)
}

/// Says that what is written may not survive, where that is so.
pub(super) fn warn_of_loss(driver: &str, path: &Path) {
    if driver != "mapped" {
        let path = path.display();
        tracing::warn!(
            %path,
            driver,
            "persistent memory is emulated: the database does not open after a loss of power"
        );
    }
}
