//! The file `PROFILE` beside `TIER`: what is known of the tier's device. See
//! docs/formats/tier-profile.md.
//!
//! ```text
//!   PROFILE              the device that the directory lies on
//!   PROFILE-tlc-nvme     the same directory slowed down to that one, for experiments
//! ```
//! 1. It is replaced as a whole, also while a database is open: that one reads it when it is opened
//!    again.
//! 2. What cannot be read is as good as no file (invariant 1 of the module above), and says so in
//!    the log.
//! 3. An emulated device has a file of its own: it says nothing of the real one, which says nothing
//!    of it.
//!
//! Threads: any.

use super::{Curve, Point, Source, TierProfile};
use crate::checksum_line::{self, Toml};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::small_file;
use serde::{Deserialize, Serialize};

/// The file's name; what follows it is the name of an emulated device.
const FILE_NAME: &str = "PROFILE";
const OF_EMULATED: &str = "PROFILE-";

const FORMAT: u32 = 1;
const BYTES_MAX: usize = 64 << 10;
const INTRODUCTION: &str = "\
# What the device of this tier can do: [threads, bytes a second]. Made by `thermocline profile`.
# Delete this file, and nothing is known.
";
const TOML: Toml = Toml {
    format: FORMAT,
    way_out: "it was edited or damaged: run `thermocline profile` again, or delete it",
};

/// The name of a file of this kind.
pub fn is_profile(name: &str) -> bool {
    name == FILE_NAME || name.starts_with(OF_EMULATED)
}

/// What the profile of a driver's device is called in the driver's directory.
fn file_name(driver: &dyn Driver) -> String {
    let emulated = driver.emulated_as().map(|device| format!("{OF_EMULATED}{device}"));
    emulated.unwrap_or_else(|| FILE_NAME.to_owned())
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    source: Source,
    sync_ns: i64,
    read: Vec<(u16, i64)>,
    write: Vec<(u16, i64)>,
}

impl TierProfile {
    /// The profile of a tier's directory; that of an unknown device where there is none that can be
    /// read.
    pub fn of(driver: &dyn Driver) -> Self {
        match Self::read(driver) {
            Ok(profile) => profile,
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    tracing::warn!(%error, "a tier's profile is left out");
                }
                Self::default()
            }
        }
    }

    /// Reads the profile of a tier's directory.
    ///
    /// Errors: `NotFound` where there is none, `Corrupt`, `NewerFormat`.
    pub fn read(driver: &dyn Driver) -> Result<Self> {
        let name = file_name(driver);
        let what = format!("{name} of {}", driver.describe());
        let bytes = small_file::read(driver, &name, &what, BYTES_MAX)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| TOML.damage(&what, error.valid_up_to(), "it is not text"))?;
        Self::parse(text, &what)
    }

    /// Replaces the profile of a tier's directory.
    pub fn write(&self, driver: &dyn Driver) -> Result<()> {
        small_file::replace(driver, &file_name(driver), self.text()?.as_bytes())
    }

    /// The file's text; the inverse of [`TierProfile::parse`].
    pub fn text(&self) -> Result<String> {
        let text = Text {
            format: FORMAT,
            source: self.source,
            // What TOML has for whole numbers ends there.
            sync_ns: self.sync_ns.try_into().unwrap_or(i64::MAX),
            read: pairs(&self.read),
            write: pairs(&self.write),
        };
        let body = toml::to_string(&text).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot record the profile: {error}"))
        })?;
        Ok(checksum_line::sealed(&format!("{INTRODUCTION}{body}")))
    }

    /// Parses the file's text; `what` names it in messages.
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        let (_, text): (u32, Text) = TOML.parse(text, what)?;
        Ok(Self {
            source: text.source,
            sync_ns: text.sync_ns.try_into().unwrap_or(0),
            read: curve(&text.read),
            write: curve(&text.write),
        })
    }
}

fn pairs(curve: &Curve) -> Vec<(u16, i64)> {
    let points = curve.points().iter();
    points.map(|p| (p.workers, p.bytes_per_s.try_into().unwrap_or(i64::MAX))).collect()
}

fn curve(pairs: &[(u16, i64)]) -> Curve {
    let points = pairs.iter().map(|(workers, bytes_per_s)| Point {
        workers: *workers,
        bytes_per_s: u64::try_from(*bytes_per_s).unwrap_or(0),
    });
    Curve::new(points.collect())
}
