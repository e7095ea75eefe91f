//! A driver as configurations and command lines write it: one word.
//!
//! ```text
//!   posix | direct | memory | emulated-<device>      e.g. emulated-gp3
//!   direct-<way> | emulated-<device>-<way>           e.g. direct-poll, emulated-gp3-fixed-5us
//! ```
//! The way is that in which callers wait (`waiting.rs`); `interrupt` where none is named.
//!
//! An emulated device keeps its files with `direct` where the directory's file system allows that,
//! so that the page cache does not answer in the device's place, else with `posix`.

use super::{Batches, DirectDriver, EmulatedDriver, MemoryDriver, PosixDriver, Profile, Waiting};
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
    /// Past the page cache; callers wait in this way.
    Direct(Waiting),
    /// A new, empty directory in memory; the path is only a name.
    Memory,
    /// As slow as the device; callers wait in this way.
    Emulated(Profile, Waiting),
}

/// A word that names no driver.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct DriverSpecError(String);

impl DriverSpec {
    /// Past the page cache; callers wait until they are told.
    pub const DIRECT: Self = Self::Direct(Waiting::Interrupt);

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
            Self::Direct(waiting) => {
                Arc::new(direct(path, Batches::Ring)?.waiting(*waiting, clock))
            }
            Self::Memory => Arc::new(MemoryDriver::new()),
            Self::Emulated(profile, waiting) => {
                let inner: Arc<dyn Driver> = match direct(path, Batches::Ring) {
                    Ok(driver) => Arc::new(driver),
                    Err(error) if error.kind() == ErrorKind::Invalid => {
                        Arc::new(PosixDriver::open(path)?)
                    }
                    Err(error) => return Err(error),
                };
                let (name, model) = (profile.name(), profile.model());
                Arc::new(EmulatedDriver::waiting(inner, name, model, clock, *waiting))
            }
        })
    }
}

impl fmt::Display for DriverSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Posix => f.pad("posix"),
            Self::Direct(Waiting::Interrupt) => f.pad("direct"),
            Self::Direct(waiting) => f.pad(&format!("direct-{waiting}")),
            Self::Memory => f.pad("memory"),
            Self::Emulated(profile, Waiting::Interrupt) => f.pad(&format!("emulated-{profile}")),
            Self::Emulated(profile, waiting) => f.pad(&format!("emulated-{profile}-{waiting}")),
        }
    }
}

impl FromStr for DriverSpec {
    type Err = DriverSpecError;

    fn from_str(text: &str) -> Result<Self, DriverSpecError> {
        match text {
            "posix" => Ok(Self::Posix),
            "direct" => Ok(Self::DIRECT),
            "memory" => Ok(Self::Memory),
            other => match (other.strip_prefix("direct-"), other.strip_prefix("emulated-")) {
                (Some(way), _) => way.parse().map(Self::Direct).map_err(DriverSpecError),
                (None, Some(device)) => emulated(device).map_err(DriverSpecError),
                (None, None) => Err(DriverSpecError(format!(
                    "'{text}' is not a driver; there are posix, direct, memory and \
                     emulated-<device>, and direct-poll and other ways to wait"
                ))),
            },
        }
    }
}

/// A device's name, with a way to wait behind it or without.
fn emulated(text: &str) -> Result<DriverSpec, String> {
    let whole = text.parse().map(|profile| DriverSpec::Emulated(profile, Waiting::Interrupt));
    let way_of = |profile: &Profile| text.strip_prefix(profile.name())?.strip_prefix('-');
    let named = Profile::ALL.iter().filter_map(|profile| Some((*profile, way_of(profile)?)));
    match (whole, named.max_by_key(|(profile, _)| profile.name().len())) {
        (Err(_), Some((profile, way))) => Ok(DriverSpec::Emulated(profile, way.parse()?)),
        (whole, _) => whole,
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
        let ways = [Waiting::Interrupt, Waiting::Poll, Waiting::Fixed(5), Waiting::Dynamic(50)];
        let of_way = |way| {
            let emulated = Profile::ALL.map(|profile| DriverSpec::Emulated(profile, way));
            [DriverSpec::Direct(way)].into_iter().chain(emulated)
        };
        let others = [DriverSpec::Posix, DriverSpec::Memory];
        for spec in others.into_iter().chain(ways.into_iter().flat_map(of_way)) {
            assert_eq!(spec.to_string().parse(), Ok(spec));
            let json = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<DriverSpec>(&json).unwrap(), spec);
        }
        let gp3 = DriverSpec::Emulated(Profile::Gp3, Waiting::Interrupt);
        assert_eq!("emulated-gp3".parse(), Ok(gp3));
        assert_eq!("direct-poll".parse(), Ok(DriverSpec::Direct(Waiting::Poll)));
        assert_eq!(gp3.to_string(), "emulated-gp3");
        let wrong = ["", "Posix", "emulated", "emulated-", "emulated-floppy", "direct ", "direct-"];
        let ways = ["direct-now", "emulated-gp3-", "emulated-dcpmm-poll-5", "emulated-poll"];
        for wrong in wrong.into_iter().chain(ways) {
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
            (DriverSpec::Emulated(Profile::OptaneP5800x, Waiting::Poll), "emulated"),
        ] {
            let driver = spec.open(directory.path(), Arc::clone(&clock)).unwrap();
            assert_eq!(driver.name(), name);
        }
        let missing = directory.path().join("missing");
        let hdd = DriverSpec::Emulated(Profile::Hdd, Waiting::Interrupt);
        for spec in [DriverSpec::Posix, DriverSpec::DIRECT, hdd] {
            let error = spec.open(&missing, Arc::clone(&clock)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("missing"), "{error}");
        }
        assert!(rustix::fs::stat(&missing).is_err(), "nothing was made");
    }
}
