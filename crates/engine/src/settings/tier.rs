//! A storage tier, as settings and command lines name it.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thermocline_foundation::ByteSize;

/// One storage tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// The directory.
    pub path: PathBuf,
    /// How much of the device the store may use.
    pub capacity: ByteSize,
    /// `posix` (the page cache helps), `direct` (O_DIRECT), or `emulated-PROFILE`. `direct-poll`
    /// asks for completions, for devices that answer in less than a waking takes.
    #[serde(default = "default_driver")]
    pub driver: String,
}

fn default_driver() -> String {
    "posix".to_owned()
}

impl Tier {
    /// A tier with the `posix` driver.
    pub fn new(path: impl Into<PathBuf>, capacity: ByteSize) -> Self {
        Self { path: path.into(), capacity, driver: default_driver() }
    }

    /// The same tier with another driver.
    pub fn driver(mut self, driver: &str) -> Self {
        self.driver = driver.to_owned();
        self
    }

    /// Parses `PATH:CAPACITY[:DRIVER]`, as the command line takes it.
    pub fn parse(text: &str) -> Result<Self> {
        let form = || {
            Error::invalid(format!(
                "'{text}' is not a tier; write PATH:CAPACITY[:DRIVER], \
                 such as /mnt/fast:10GiB:direct"
            ))
        };
        // A path may hold colons, so the text is taken apart from its end.
        let (rest, last) = text.rsplit_once(':').ok_or_else(form)?;
        let (path, capacity, driver) = match last.parse::<ByteSize>() {
            Ok(capacity) => (rest, capacity, default_driver()),
            Err(_) => {
                let (path, capacity) = rest.rsplit_once(':').ok_or_else(form)?;
                (path, capacity.parse().map_err(|_| form())?, last.to_owned())
            }
        };
        if path.is_empty() {
            return Err(form());
        }
        Ok(Self { path: path.into(), capacity, driver })
    }
}
