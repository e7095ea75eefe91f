//! The operating system's directories, through the drivers of this crate.
//!
//! 1. Homes are served by the `posix` driver: their one small file needs no other.
//! 2. Tiers of the driver `memory` live as long as the `SystemDevices` that made them.
//!
//! Threads: shared freely.

use super::devices::{Devices, MemoryDevices};
use crate::driver::Driver;
use crate::drivers::{self, DriverSpec, PosixDriver};
use crate::error::{Error, ErrorKind, Result};
use crate::tier::TierSpec;
use std::path::Path;
use std::sync::Arc;
use thermocline_foundation::{Clock, SystemClock};

/// See the module.
#[derive(Clone, Debug)]
pub struct SystemDevices {
    clock: Arc<dyn Clock>,
    memory: MemoryDevices,
}

impl SystemDevices {
    /// Directories of this machine; `clock` is what emulated devices live by.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // The usual soft limit of 1,024 is less than many stores have tables.
        raise_descriptor_limit();
        Self { clock, memory: MemoryDevices::new() }
    }
}

/// How a driver is opened.
type Open = fn(&DriverSpec, &Path, Arc<dyn Clock>) -> Result<Arc<dyn Driver>>;

impl SystemDevices {
    fn open_tier(&self, spec: &TierSpec, open: Open) -> Result<Arc<dyn Driver>> {
        let driver: DriverSpec = spec.driver.parse().map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("tier {}: {error}", spec.path.display()))
        })?;
        if driver == DriverSpec::Memory {
            self.memory.create_directory(&spec.path)?;
            return self.memory.tier(spec);
        }
        open(&driver, &spec.path, Arc::clone(&self.clock))
    }
}

/// Raises the process's soft limit of open files to its hard limit; where the system refuses,
/// things stay as they are.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

impl Default for SystemDevices {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }
}

impl Devices for SystemDevices {
    fn descriptor_limit(&self) -> Option<u64> {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current
    }

    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(PosixDriver::open(path)?))
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.open_tier(spec, DriverSpec::open)
    }

    fn tier_to_read(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.open_tier(spec, DriverSpec::open_to_read)
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        let is_new = match PosixDriver::open(path) {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        drivers::create_directory(path)?;
        Ok(is_new)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        // A directory that holds something stays, and that is no failure.
        if let Err(error) = drivers::remove_empty_directory(path) {
            tracing::debug!(%error, "a directory stays");
        }
        Ok(())
    }
}
