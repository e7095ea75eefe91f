//! What a link of a host's directory says, and the serials in it. See docs/formats/names.md.
//!
//! ```text
//!   .thermocline/tier-0/3-17.000012.sst
//!                     |  | |  name that the file was made under
//!                     |  | counter, from 1 in each generation
//!                     |  generation of the opening that made the file
//!                     tier
//! ```
//! 1. A text has one form: what is parsed is written the same.
//! 2. Generations only rise and a counter is used once in each, so that no serial returns: a link
//!    that is older than it seems leads to no file, and never to another's.
//!
//! Threads: plain functions.

use super::DIRECTORY_NAME;
use crate::tier::TierIndex;
use std::fmt;

/// What the names of tiers begin with in the directory of this software.
const TIER_NAME: &str = "tier-";

/// The name of a tier's link in the directory of this software.
pub(super) fn tier_name(tier: TierIndex) -> String {
    format!("{TIER_NAME}{}", tier.0)
}

/// Tells the files of one host directory apart, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial {
    /// The generation of the opening that gave it.
    pub generation: u64,
    /// Counts the serials of that opening.
    pub counter: u64,
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.counter)
    }
}

/// The text of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkText {
    /// The tier that the file lies on.
    pub tier: TierIndex,
    /// The file's serial.
    pub serial: Serial,
    /// The name that it was made under, to be read by people.
    pub name: String,
}

impl LinkText {
    /// Reads a link's text; none where it is not one of this software.
    pub fn parse(text: &str) -> Option<Self> {
        let below = text.strip_prefix(DIRECTORY_NAME)?.strip_prefix('/')?;
        let (tier, file) = below.split_once('/')?;
        let tier = TierIndex(u8::try_from(number(tier.strip_prefix(TIER_NAME)?)?).ok()?);
        let (serial, name) = parse_file_name(file)?;
        Some(Self { tier, serial, name: name.to_owned() })
    }

    /// The name of the file on its tier.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.serial, self.name)
    }
}

impl fmt::Display for LinkText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{DIRECTORY_NAME}/{}/{}", tier_name(self.tier), self.file_name())
    }
}

/// Serial and first name of a tier's file; none for other files.
pub(super) fn parse_file_name(file: &str) -> Option<(Serial, &str)> {
    let (serial, name) = file.split_once('.')?;
    let (generation, counter) = serial.split_once('-')?;
    let serial = Serial { generation: number(generation)?, counter: number(counter)? };
    let is_plain = !name.is_empty() && !name.contains(['/', '\0']);
    is_plain.then_some((serial, name))
}

/// A decimal number in its one form.
fn number(text: &str) -> Option<u64> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    if is_decimal && is_short { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_form() {
        let link = LinkText {
            tier: TierIndex(1),
            serial: Serial { generation: 3, counter: 17 },
            name: "000012.sst".to_owned(),
        };
        let text = ".thermocline/tier-1/3-17.000012.sst";
        assert_eq!(link.to_string(), text);
        assert_eq!(LinkText::parse(text), Some(link));
        for other in [
            "",
            "000012.sst",
            "/mnt/fast/3-17.000012.sst",
            ".thermocline/tier-01/3-17.a",
            ".thermocline/tier-256/3-17.a",
            ".thermocline/tier-1/03-17.a",
            ".thermocline/tier-1/3-+17.a",
            ".thermocline/tier-1/3-17",
            ".thermocline/tier-1/3-17.",
            ".thermocline/tier-1/3-17.a/b",
            ".thermocline/tier-1/../TIER",
            ".thermocline//3-17.a",
            ".thermocline/tier-1/99999999999999999999-1.a",
        ] {
            assert_eq!(LinkText::parse(other), None, "{other}");
        }
    }
}
