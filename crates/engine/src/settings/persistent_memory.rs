//! The region of persistent memory: where it is, how large, and what it is on.

use super::{Preset, Settings, range};
use crate::environment::regions::RegionDriver;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thermocline_device::tiered_files::RegionRecord;
use thermocline_foundation::ByteSize;

/// Least and most bytes of a region.
const SIZE_BYTES: (u64, u64) = (16 << 20, 1 << 46);
/// Most nanoseconds that a flushed line is made to take.
const LINE_NS_MAX: u64 = 5000;

/// A region of persistent memory that writes go to in place of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistentMemory {
    /// The region's file, which the store makes.
    pub path: PathBuf,
    /// Its bytes: 16 MiB to 64 TiB. What it cannot hold waits for flushes. It does not grow: a
    /// larger one takes its place by [`Environment::rebuild_index`](crate::Environment), or by
    /// `repair --rebuild-index --region PATH:SIZE`.
    pub size: ByteSize,
    /// `mapped`, the default, for persistent memory over DAX. With the preset `indexed` any other
    /// file does too: it holds the index alone, writes go to a log beside it, and after a loss of
    /// power the index is made anew from the tables. `emulated-0ns` to `emulated-5000ns`
    /// for any other file, each flushed line of which takes that long: for trials, since what is
    /// acknowledged then survives the end of the process alone. After a loss of power the database
    /// does not open: it may lack what was written last. Restore a checkpoint then.
    #[serde(default = "mapped")]
    pub driver: String,
    /// Its file is no persistent memory: writes go to a log.
    #[serde(skip)]
    pub(crate) is_beside_log: bool,
}

/// How `DATABASE` has the driver `mapped` of a region that is beside a log.
const BESIDE_LOG: &str = "mapped-beside-log";

/// The driver of a record of `DATABASE`, and whether its region was beside a log.
pub(crate) fn driver_of(record: &RegionRecord) -> (&str, bool) {
    match &*record.driver {
        BESIDE_LOG => ("mapped", true),
        driver => (driver, false),
    }
}

/// The driver as `DATABASE` has it.
pub(crate) fn recorded(driver: &str, is_beside_log: bool) -> String {
    if is_beside_log { BESIDE_LOG.to_owned() } else { driver.to_owned() }
}

fn mapped() -> String {
    "mapped".to_owned()
}

impl PersistentMemory {
    /// A region on persistent memory.
    pub fn new(path: impl Into<PathBuf>, size: ByteSize) -> Self {
        Self { path: path.into(), size, driver: mapped(), is_beside_log: false }
    }

    /// The one that a database has.
    pub(crate) fn of(record: RegionRecord) -> Self {
        let (driver, is_beside_log) = driver_of(&record);
        let driver = driver.to_owned();
        Self { path: record.path, size: record.size, driver, is_beside_log }
    }

    /// The same with another driver.
    pub fn driver(mut self, driver: &str) -> Self {
        self.driver = driver.to_owned();
        self
    }

    /// What its driver's name means.
    pub(crate) fn parsed_driver(&self) -> Result<RegionDriver> {
        parse_driver(&self.driver)
    }

    fn check(&self) -> Result<()> {
        if self.path.as_os_str().is_empty() {
            return Err(Error::invalid("persistent_memory.path is empty; name the region's file"));
        }
        range("persistent_memory.size", self.size.0, SIZE_BYTES.0, SIZE_BYTES.1, " B")?;
        self.parsed_driver().map(|_| ())
    }
}

/// What the name of a driver means.
pub(crate) fn parse_driver(name: &str) -> Result<RegionDriver> {
    let line_ns = || name.strip_prefix("emulated-")?.strip_suffix("ns")?.parse().ok();
    match line_ns() {
        _ if name == "mapped" => Ok(RegionDriver::Mapped),
        Some(line_ns) if line_ns <= LINE_NS_MAX => Ok(RegionDriver::Emulated { line_ns }),
        _ => Err(Error::invalid(format!(
            "persistent_memory.driver = \"{name}\" is unknown; there are mapped, and emulated-0ns \
             to emulated-{LINE_NS_MAX}ns"
        ))),
    }
}

impl Settings {
    /// Memtables are in a region of persistent memory, and there are no logs.
    pub(crate) fn has_no_log(&self) -> bool {
        self.persistent_memory.as_ref().is_some_and(|region| !region.is_beside_log)
    }

    pub(super) fn check_persistent_memory(&self) -> Result<()> {
        let Some(persistent_memory) = &self.persistent_memory else { return Ok(()) };
        if self.preset == Some(Preset::Hybrid) {
            return Err(Error::invalid(
                "persistent_memory is of the presets leveled and indexed: a memtable of hybrid \
                 goes to slots piece by piece; leave it out, or name one of these presets",
            ));
        }
        persistent_memory.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(persistent_memory: PersistentMemory) -> String {
        let settings =
            Settings { persistent_memory: Some(persistent_memory), ..Settings::default() };
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn a_region_that_cannot_be_is_refused_by_name_with_range_and_reason() {
        let region = |size| PersistentMemory::new("/mnt/pmem/store.region", size);
        let text = refusal(region(ByteSize::mib(15)));
        assert!(text.contains("persistent_memory.size = 15728640 B is out of range"), "{text}");
        for driver in ["emulated-5001ns", "emulated-ns", "emulated-1", "dax", "", "Mapped"] {
            let text = refusal(region(ByteSize::mib(16)).driver(driver));
            assert!(text.contains("emulated-0ns to emulated-5000ns"), "{driver}: {text}");
        }
        assert!(refusal(PersistentMemory::new("", ByteSize::mib(16))).contains("path is empty"));
        let hybrid = Settings {
            preset: Some(Preset::Hybrid),
            persistent_memory: Some(region(ByteSize::gib(1))),
            ..Settings::default()
        };
        assert!(hybrid.check().unwrap_err().to_string().contains("presets leveled and indexed"));
        assert_eq!(
            parse_driver("emulated-500ns").unwrap(),
            RegionDriver::Emulated { line_ns: 500 }
        );
    }

    #[test]
    fn it_is_read_from_toml_and_not_kept_beside_the_database() {
        let text = "preset = 'leveled'\npersistent_memory = { path = '/p', size = '64 GiB' }";
        let settings = Settings::from_toml(text, "store.toml".as_ref()).unwrap();
        let region = settings.persistent_memory.clone().unwrap();
        assert_eq!(region, PersistentMemory::new("/p", ByteSize::gib(64)));
        assert_eq!(
            Settings::from_toml(&settings.to_toml().unwrap(), "t".as_ref()).unwrap(),
            settings
        );
        assert!(!settings.to_kept_toml().unwrap().contains("persistent_memory"));
    }
}
