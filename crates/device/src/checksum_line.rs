//! Small files of text whose last line is a checksum of what is before it: a person may read them,
//! and an edit is found.
//!
//! ```text
//!   ...                    the text, with its line ends
//!   # checksum 1a2b3c4d    CRC-32C of every byte before this line, from the place (database 0,
//!                          file 0, offset 0)
//! ```
//! Threads: plain functions.

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

fn line(covered: &str) -> String {
    let place = Place { database: DatabaseId::default(), file: FileNumber(0), offset: 0 };
    format!("{LINE}{:08x}\n", checksum(&place, covered.as_bytes()))
}
