//! The file of a region: errors that name it, and its removal.
//!
//! Threads: the one that opens the store; errors are of any.

use crate::environment::Environment;
use crate::error::{Error, ErrorKind};
use std::path::Path;
use thermocline_device::Error as DeviceError;

/// An error of the region at `path`.
pub(super) fn named(path: &Path, error: DeviceError) -> Error {
    let error = Error::from(error);
    Error::new(error.kind(), format!("persistent memory at {}: {error}", path.display()))
}

/// Removes the file of a region that the database does not have.
pub(super) fn remove(environment: &Environment, path: &Path) {
    if let Err(error) = environment.regions.remove(path) {
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
