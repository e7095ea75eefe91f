//! Small files of text whose last line is a checksum of what is before it: a person may read them,
//! and an edit is found.
//!
//! ```text
//!   ...                    the text, with its line ends
//!   # checksum 1a2b3c4d    CRC-32C of every byte before this line, from the place (database 0,
//!                          file 0, offset 0)
//! ```
//! Threads: plain functions.

use crate::error::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thermocline_foundation::checksum::checksum;
use thermocline_foundation::{DatabaseId, FileNumber, Place};

const LINE: &str = "# checksum ";

/// The text with its checksum.
pub(crate) fn sealed(covered: &str) -> String {
    format!("{covered}{}", line(covered))
}

/// The text that the last line of `text` covers; otherwise the offset of what is wrong, and what it
/// is.
pub(crate) fn covered(text: &str) -> Result<&str, (usize, &'static str)> {
    let covered_len = text.rfind(LINE).ok_or((text.len(), "it has no checksum"))?;
    let (covered, last) = text.split_at(covered_len);
    if last == line(covered) { Ok(covered) } else { Err((covered_len, "its checksum is wrong")) }
}

/// A kind of sealed file: TOML whose key `format` says what the rest means.
pub(crate) struct Toml {
    /// The newest format that this software knows.
    pub format: u32,
    /// What the caller can do about a damaged one.
    pub way_out: &'static str,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl Toml {
    /// The format of `text`, and what it has; `what` names the file in messages.
    ///
    /// Errors: `Corrupt`, `NewerFormat`.
    pub fn parse<T: DeserializeOwned>(&self, text: &str, what: &str) -> Result<(u32, T)> {
        let covered = covered(text).map_err(|(at, why)| self.damage(what, at, why))?;
        let wrong = |error: toml::de::Error| self.damage(what, 0, error.message());
        let format = toml::from_str::<FormatOnly>(covered).map_err(wrong)?.format;
        if format > self.format {
            let known = self.format;
            let text = format!("{what} has format {format}, this software knows {known}: upgrade");
            return Err(Error::new(ErrorKind::NewerFormat, text));
        }
        Ok((format, toml::from_str(covered).map_err(wrong)?))
    }

    /// Bytes at `offset` of the file are not what was written.
    pub fn damage(&self, what: &str, offset: usize, why: &str) -> Error {
        Error::corrupt(what, offset as u64, format!("{why}; {}", self.way_out))
    }
}

fn line(covered: &str) -> String {
    let place = Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 };
    format!("{LINE}{:08x}\n", checksum(&place, covered.as_bytes()))
}
