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
use thermocline_foundation::mend::mend;
use thermocline_foundation::{DatabaseId, FileNumber, Place};

const LINE: &str = "# checksum ";
/// Of the line, with its digits and its end.
const LINE_BYTES: usize = LINE.len() + 9;

/// The text with its checksum.
pub(crate) fn sealed(covered: &str) -> String {
    format!("{covered}{}", line(covered.as_bytes()))
}

/// The text that the last line of `text` covers; otherwise the offset of what is wrong, and what it
/// is.
pub(crate) fn covered(text: &str) -> Result<&str, (usize, &'static str)> {
    let covered_len = text.rfind(LINE).ok_or((text.len(), "it has no checksum"))?;
    let (covered, last) = text.split_at(covered_len);
    if last == line(covered.as_bytes()) {
        Ok(covered)
    } else {
        Err((covered_len, "its checksum is wrong"))
    }
}

/// The bytes of a sealed file with one flipped bit turned back, where that is all that is wrong
/// with them (`foundation/mend.rs`).
pub(crate) fn mended(bytes: &[u8]) -> Option<Vec<u8>> {
    let (body, last) = bytes.split_at_checked(bytes.len().checked_sub(LINE_BYTES)?)?;
    let expected = line(body);
    let differs = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
    if last.iter().zip(expected.as_bytes()).map(differs).sum::<u32>() == 1 {
        return Some([body, expected.as_bytes()].concat());
    }
    let digits = last.strip_prefix(LINE.as_bytes())?.strip_suffix(b"\n")?;
    let stored = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let mut body = body.to_vec();
    mend(&place(), &mut body, stored).then(|| [&body[..], last].concat())
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

fn line(covered: &[u8]) -> String {
    format!("{LINE}{:08x}\n", checksum(&place(), covered))
}

fn place() -> Place {
    Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 }
}
