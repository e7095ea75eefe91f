//! The file `DATABASE` in the home directory, the one path that users name: it lists the tiers.
//!
//! A readable TOML text that the program writes. See docs/formats/database-home.md.
//!
//! 1. It is replaced as a whole: written under another name, synced, renamed, directory synced.
//! 2. Its last line is a checksum of everything before it, so an edit by hand is found and not half
//!    obeyed. A single flipped bit is turned back; the next opening for writing writes it anew.
//! 3. Paths below the home are stored relative to it, so that a whole database can be moved.
//! 4. Format 2 is format 1 with the region of persistent memory. It is written only where there is
//!    one, so builds without regions go on to open all other databases.
//! 5. Closing records how far the journals went: one that lost its end looks like that of an
//!    earlier moment, and only another file can tell.
//!
//! 6. It names the life of the opening that last had a cache of copies: a list of lives
//!    (`file_cache/lives.rs`) and files that a restore left in place are held against it.
//!
//! Threads: the owner of the home's lock.

use crate::checksum_line::{self, Toml};
use crate::driver::Driver;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::InstanceId;
use crate::journal::Extent;
use crate::small_file;
use crate::tier::TierSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thermocline_foundation::{ByteSize, DatabaseId};

/// The name of the home file.
pub const FILE_NAME: &str = "DATABASE";

/// The newest format, and that of a database without a region.
const FORMAT: u32 = 2;
const TOML: Toml = Toml {
    format: FORMAT,
    way_out: "it was edited or damaged: put it back from a backup, or restore a checkpoint",
};
const FORMAT_WITHOUT_REGION: u32 = 1;
const BYTES_MAX: usize = 256 << 10;
const INTRODUCTION: &str = "\
# A Thermocline database. The program writes this file: do not edit it.
# To move a tier, move its directory and name the new path when opening.
";

/// What `DATABASE` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The database, to which all checksums are bound.
    pub database: DatabaseId,
    /// This copy of it.
    pub instance: InstanceId,
    /// See [`crate::identity::Identity::generation`].
    pub generation: u64,
    /// The tiers, fastest first, with complete paths.
    pub tiers: Vec<TierSpec>,
    /// How far each kind of journal went at the last closing, by the extension of its files.
    pub closed: BTreeMap<String, Extent>,
    /// The region of persistent memory, where there is one.
    pub region: Option<RegionRecord>,
    /// The tier that goes, whose directory is to be emptied: in `CHANGING` alone.
    pub left: Option<TierSpec>,
    /// The life of the opening that last had a cache of copies; none where there was none.
    pub cache_life: Option<u64>,
}

/// What `DATABASE` says of the region of persistent memory (docs/formats/region.md).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRecord {
    /// Its file, with the complete path.
    pub path: PathBuf,
    /// Its bytes.
    pub size: ByteSize,
    /// `mapped`, or `emulated-Nns`.
    pub driver: String,
    /// Goes up when the region is opened for writing and when it is closed. The region's own is
    /// written first, so that it may be one ahead.
    pub generation: u64,
    /// It was closed in good order.
    pub is_clean: bool,
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    database: String,
    instance: String,
    generation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache_life: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    closed: BTreeMap<String, Extent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region: Option<RegionText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<TierText>,
    tier: Vec<TierText>,
}

#[derive(Serialize, Deserialize)]
struct RegionText {
    path: String,
    size: ByteSize,
    driver: String,
    generation: u64,
    clean: bool,
}

#[derive(Serialize, Deserialize)]
struct TierText {
    path: String,
    capacity: ByteSize,
    driver: String,
}

impl Home {
    /// Reads `DATABASE` of the home at `path`. A single flipped bit is turned back.
    pub fn read(driver: &dyn Driver, path: &Path) -> Result<Self> {
        Self::read_as(driver, path, FILE_NAME)
    }

    /// As [`Home::read`], where the file has another name.
    pub(crate) fn read_as(driver: &dyn Driver, path: &Path, name: &str) -> Result<Self> {
        let what = path.join(name).display().to_string();
        let bytes = small_file::read(driver, name, &what, BYTES_MAX)?;
        let error = match Self::parse_bytes(&bytes, path, &what) {
            Err(error) if error.kind() == ErrorKind::Corrupt => error,
            parsed => return parsed,
        };
        let mended = checksum_line::mended(&bytes);
        let home = mended.and_then(|bytes| Self::parse_bytes(&bytes, path, &what).ok());
        let home = home.ok_or_else(|| error.clone())?;
        tracing::error!(%error, "a flipped bit is turned back");
        Ok(home)
    }

    /// Reads `DATABASE` and reports what is wrong with it, with nothing turned back.
    pub(crate) fn verify(driver: &dyn Driver, path: &Path) -> Result<()> {
        let what = path.join(FILE_NAME).display().to_string();
        let bytes = small_file::read(driver, FILE_NAME, &what, BYTES_MAX)?;
        Self::parse_bytes(&bytes, path, &what).map(drop)
    }

    fn parse_bytes(bytes: &[u8], path: &Path, what: &str) -> Result<Self> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let why = "it is not text; restore it from a checkpoint or a backup";
            Error::corrupt(what, error.valid_up_to() as u64, why)
        })?;
        Self::parse(text, path, what)
    }

    /// Replaces `DATABASE` of the home at `path`, atomically and durably.
    pub fn write(&self, driver: &dyn Driver, path: &Path) -> Result<()> {
        self.write_as(driver, path, FILE_NAME)
    }

    /// As [`Home::write`], under another name.
    pub(crate) fn write_as(&self, driver: &dyn Driver, path: &Path, name: &str) -> Result<()> {
        let text = self.text(path)?;
        small_file::replace(driver, name, text.as_bytes())
    }

    /// The file's text; the inverse of [`Home::parse`].
    pub fn text(&self, path: &Path) -> Result<String> {
        let tier_text = |spec: &TierSpec| -> Result<TierText> {
            let stored = stored_path(path, &spec.path)?;
            Ok(TierText { path: stored, capacity: spec.capacity, driver: spec.driver.clone() })
        };
        let region = self.region.as_ref().map(|region| {
            let &RegionRecord { size, generation, is_clean: clean, .. } = region;
            let stored = stored_path(path, &region.path)?;
            Ok(RegionText { path: stored, size, driver: region.driver.clone(), generation, clean })
        });
        let region = region.transpose()?;
        let text = Text {
            format: if region.is_some() { FORMAT } else { FORMAT_WITHOUT_REGION },
            database: self.database.to_string(),
            instance: self.instance.to_string(),
            generation: self.generation,
            cache_life: self.cache_life.map(|life| format!("{life:016x}")),
            closed: self.closed.clone(),
            region,
            left: self.left.as_ref().map(tier_text).transpose()?,
            tier: self.tiers.iter().map(tier_text).collect::<Result<_>>()?,
        };
        let body = toml::to_string(&text).map_err(|error| {
            Error::new(ErrorKind::Invalid, format!("cannot record the tiers: {error}"))
        })?;
        let covered = format!("{INTRODUCTION}{body}\n");
        Ok(checksum_line::sealed(&covered))
    }

    /// Parses the text of the home at `path`; `what` names the file in messages.
    pub fn parse(text: &str, path: &Path, what: &str) -> Result<Self> {
        let damage = |offset: usize, why: &str| TOML.damage(what, offset, why);
        let (format, text): (u32, Text) = TOML.parse(text, what)?;
        let database = DatabaseId::parse(&text.database);
        let instance = InstanceId::parse(&text.instance);
        let tiers: Vec<_> = text.tier.into_iter().map(|tier| tier.resolve(path)).collect();
        if tiers.is_empty() {
            return Err(damage(0, "it lists no tier"));
        }
        if text.region.is_some() && format == FORMAT_WITHOUT_REGION {
            return Err(damage(0, "format 1 has no region"));
        }
        let region = text.region.map(|region| RegionRecord {
            path: path.join(region.path),
            size: region.size,
            driver: region.driver,
            generation: region.generation,
            is_clean: region.clean,
        });
        Ok(Self {
            database: database.ok_or_else(|| damage(0, "the database identity is not one"))?,
            instance: instance.ok_or_else(|| damage(0, "the instance identity is not one"))?,
            generation: text.generation,
            tiers,
            closed: text.closed,
            region,
            left: text.left.map(|tier| tier.resolve(path)),
            // Without one a cache starts cold.
            cache_life: text.cache_life.and_then(|life| u64::from_str_radix(&life, 16).ok()),
        })
    }
}

/// `of` as `DATABASE` has it: relative to the home at `home` where it lies below.
fn stored_path(home: &Path, of: &Path) -> Result<String> {
    let stored = of.strip_prefix(home).unwrap_or(of).to_str();
    stored.map(str::to_owned).ok_or_else(|| {
        let text = format!("cannot record {}: its path is not UTF-8; rename it", of.display());
        Error::new(ErrorKind::Invalid, text)
    })
}

impl TierText {
    fn resolve(self, home: &Path) -> TierSpec {
        TierSpec { path: home.join(self.path), capacity: self.capacity, driver: self.driver }
    }
}
