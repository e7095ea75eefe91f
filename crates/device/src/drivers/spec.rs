//! A driver as configurations and command lines write it: one word.
//!
//! ```text
//!   posix | direct | memory | emulated-<device>      e.g. emulated-gp3
//! ```
//!
//! An emulated device keeps its files with `direct` where the directory's file system allows that,
//! so that the page cache does not answer in the device's place, else with `posix`.

use super::{Batches, DirectDriver, EmulatedDriver, MemoryDriver, PosixDriver, Profile};
use crate::driver::Driver;
use crate::error::{ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use thermocline_foundation::Clock;
use thiserror::Error;

/// Which driver serves a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverSpec {
    /// Through the page cache.
    Posix,
    /// Past the page cache.
    Direct,
    /// A new, empty directory in memory; the path is only a name.
    Memory,
    /// As slow as the device.
    Emulated(Profile),
}

/// A word that names no driver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DriverSpecError(String);

impl DriverSpec {
    /// Serves the directory `path`, which must exist unless it is in memory. `clock` is what an
    /// emulated device lives by.
    pub fn open(&self, path: &Path, clock: Arc<dyn Clock>) -> Result<Arc<dyn Driver>> {
        self.open_as(path, clock, DirectDriver::open)
    }

    /// As [`DriverSpec::open`], for reading only: writes nothing to find out what the directory can
    /// do.
    pub fn open_to_read(&self, path: &Path, clock: Arc<dyn Clock>) -> Result<Arc<dyn Driver>> {
        self.open_as(path, clock, DirectDriver::open_to_read)
    }

    fn open_as(
        &self,
        path: &Path,
        clock: Arc<dyn Clock>,
        direct: fn(&Path, Batches) -> Result<DirectDriver>,
    ) -> Result<Arc<dyn Driver>> {
        Ok(match self {
            Self::Posix => Arc::new(PosixDriver::open(path)?),
            Self::Direct => Arc::new(direct(path, Batches::Ring)?),
            Self::Memory => Arc::new(MemoryDriver::new()),
            Self::Emulated(profile) => {
                let inner: Arc<dyn Driver> = match direct(path, Batches::Ring) {
                    Ok(driver) => Arc::new(driver),
                    Err(error) if error.kind() == ErrorKind::Invalid => {
                        Arc::new(PosixDriver::open(path)?)
                    }
                    Err(error) => return Err(error),
                };
                Arc::new(EmulatedDriver::new(inner, profile.name(), profile.model(), clock))
            }
        })
    }
}

impl fmt::Display for DriverSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posix => f.pad("posix"),
            Self::Direct => f.pad("direct"),
            Self::Memory => f.pad("memory"),
            Self::Emulated(profile) => f.pad(&format!("emulated-{profile}")),
        }
    }
}

impl FromStr for DriverSpec {
    type Err = DriverSpecError;

    fn from_str(text: &str) -> Result<Self, DriverSpecError> {
        match text {
            "posix" => Ok(Self::Posix),
            "direct" => Ok(Self::Direct),
            "memory" => Ok(Self::Memory),
            other => match other.strip_prefix("emulated-") {
                Some(device) => device.parse().map(Self::Emulated).map_err(DriverSpecError),
                None => Err(DriverSpecError(format!(
                    "'{text}' is not a driver; there are posix, direct, memory and \
                     emulated-<device>"
                ))),
            },
        }
    }
}

impl Serialize for DriverSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DriverSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::SystemClock;

    #[test]
    fn specs_read_back_as_they_are_written() {
        let emulated = Profile::ALL.into_iter().map(DriverSpec::Emulated);
        for spec in
            [DriverSpec::Posix, DriverSpec::Direct, DriverSpec::Memory].into_iter().chain(emulated)
        {
            assert_eq!(spec.to_string().parse(), Ok(spec));
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<DriverSpec>(&json).unwrap(), spec);
        }
        assert_eq!("emulated-gp3".parse(), Ok(DriverSpec::Emulated(Profile::Gp3)));
        for wrong in ["", "Posix", "emulated", "emulated-", "emulated-floppy", "direct "] {
            let error = wrong.parse::<DriverSpec>().unwrap_err().to_string();
            assert!(error.contains("there are"), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_spec_opens_the_driver_it_names_and_none_makes_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        for (spec, name) in [
            (DriverSpec::Posix, "posix"),
            (DriverSpec::Memory, "memory"),
            (DriverSpec::Emulated(Profile::OptaneP5800x), "emulated"),
        ] {
            let driver = spec.open(directory.path(), Arc::clone(&clock)).unwrap();
            assert_eq!(driver.name(), name);
        }
        let missing = directory.path().join("missing");
        for spec in [DriverSpec::Posix, DriverSpec::Direct, DriverSpec::Emulated(Profile::Hdd)] {
            let error = spec.open(&missing, Arc::clone(&clock)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("missing"), "{error}");
        }
        assert!(rustix::fs::stat(&missing).is_err(), "nothing was made");
    }
}
