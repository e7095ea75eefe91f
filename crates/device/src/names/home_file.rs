//! The file `HOME` in a tier's directory: which host directory the tier serves. See
//! docs/formats/names.md.
//!
//! A host's directory that is copied takes its links along, and two directories would share one
//! tier's files; what the first deletes is gone for the second. `HOME` names one of them.
//!
//! 1. It is replaced as a whole, and its last line is a checksum of what is before it.
//! 2. While a directory is being renamed it names both paths, so that a crash leaves one that
//!    opens.
//!
//! Threads: the owner of the directory's lock writes; any may read.

use crate::checksum_line::{self, Toml};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::InstanceId;
use crate::small_file;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's name.
pub(super) const FILE_NAME: &str = "HOME";

const FORMAT: u32 = 1;
const BYTES_MAX: usize = 64 << 10;
const INTRODUCTION: &str = "\
# A tier of the directory below. Thermocline writes this file: do not edit it.
";
const TOML: Toml = Toml {
    format: FORMAT,
    way_out: "it was edited or damaged: thermocline tiers rehome DIRECTORY writes it anew",
};

/// What `HOME` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeFile {
    /// The instance that the tier is of.
    pub instance: InstanceId,
    /// The host's directory.
    pub path: PathBuf,
    /// The path that the directory is about to have, while it is being renamed.
    pub moving_to: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    instance: String,
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    moving_to: Option<String>,
}

impl HomeFile {
    /// Reads `HOME` of a tier, whose path `tier` is for messages.
    pub(super) fn read(driver: &dyn Driver, tier: &Path) -> Result<Self> {
        let what = tier.join(FILE_NAME).display().to_string();
        let bytes = small_file::read(driver, FILE_NAME, &what, BYTES_MAX)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| TOML.damage(&what, error.valid_up_to(), "it is not text"))?;
        Self::parse(text, &what)
    }

    /// Replaces `HOME` of a tier.
    pub(super) fn write(&self, driver: &dyn Driver) -> Result<()> {
        small_file::replace(driver, FILE_NAME, self.text()?.as_bytes())
    }

    /// The file's text; the inverse of [`HomeFile::parse`].
    pub fn text(&self) -> Result<String> {
        let utf8 = |path: &PathBuf| {
            path.to_str().map(str::to_owned).ok_or_else(|| {
                let shown = path.display();
                let text = format!("cannot record {shown}: its path is not UTF-8; rename it");
                Error::new(ErrorKind::Invalid, text)
            })
        };
        let text = Text {
            format: FORMAT,
            instance: self.instance.to_string(),
            path: utf8(&self.path)?,
            moving_to: self.moving_to.as_ref().map(utf8).transpose()?,
        };
        let body = toml::to_string(&text).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot record the directory: {error}"))
        })?;
        let covered = format!("{INTRODUCTION}{body}");
        Ok(checksum_line::sealed(&covered))
    }

    /// Parses the file's text; `what` names it in messages.
    pub fn parse(text: &str, what: &str) -> Result<Self> {
        let (_, text): (u32, Text) = TOML.parse(text, what)?;
        let instance = InstanceId::parse(&text.instance);
        let instance =
            instance.ok_or_else(|| TOML.damage(what, 0, "the instance identity is not one"))?;
        Ok(Self { instance, path: text.path.into(), moving_to: text.moving_to.map(Into::into) })
    }
}
