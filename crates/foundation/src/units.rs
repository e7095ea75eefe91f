//! Sizes and durations as people write them: `64 MiB`, `1.5GB`, `250 ms`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// A text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is not a {what}; write a number and a unit, such as {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// A number of bytes. Text takes `B`, `kB`/`MB`/`GB`/`TB` (powers of 1000), `KiB`/`MiB`/`GiB`/`TiB`
/// and the single letters `K`, `M`, `G`, `T` (powers of 1024), in any case, with or without a
/// space; a bare number is bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let scale = |unit: &str| {
            Some(match unit.to_ascii_lowercase().as_str() {
                "" | "b" => 1.0,
                "kb" => 1e3,
                "mb" => 1e6,
                "gb" => 1e9,
                "tb" => 1e12,
                "k" | "kib" => 1024.0,
                "m" | "mib" => 1048576.0,
                "g" | "gib" => 1073741824.0,
                "t" | "tib" => 1099511627776.0,
                _ => return None,
            })
        };
        quantity(text, "size", "64 MiB", scale).map(|bytes| Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1023.95 && unit < UNITS.len() - 1 {
            value /= 1024.0;
            unit += 1;
        }
        // Whole numbers are shown whole, so that what a person wrote is what they read back.
        let text = if unit == 0 || value.fract() == 0.0 {
            format!("{value:.0} {}", UNITS[unit])
        } else {
            format!("{value:.1} {}", UNITS[unit])
        };
        f.pad(&text)
    }
}

/// A span of time. Text takes `ns`, `us`, `ms`, `s`, `min` and `h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// `n` milliseconds.
    pub const fn ms(n: u64) -> Self {
        Self(std::time::Duration::from_millis(n))
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let scale = |unit: &str| {
            Some(match unit.to_ascii_lowercase().as_str() {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "min" => 60e9,
                "h" => 3600e9,
                _ => return None,
            })
        };
        quantity(text, "duration", "50 ms", scale)
            .map(|ns| Self(std::time::Duration::from_nanos(ns as u64)))
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        let (value, unit) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
            .into_iter()
            .find(|(scale, _)| ns >= *scale && ns.is_multiple_of(*scale))
            .map_or((ns, "ns"), |(scale, unit)| (ns / scale, unit));
        f.pad(&format!("{value} {unit}"))
    }
}

/// Splits `text` into number and unit; the result is a whole number of base units below 2^63.
fn quantity(
    text: &str,
    what: &'static str,
    example: &'static str,
    scale: impl Fn(&str) -> Option<f64>,
) -> Result<f64, UnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    number
        .parse::<f64>()
        .ok()
        .zip(scale(unit.trim()))
        .map(|(number, scale)| (number * scale).round())
        .filter(|value| *value < 9.2e18)
        .ok_or_else(|| UnitError { text: text.to_owned(), what, example })
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for ByteSize {
    /// A configuration must read back what was written, so sizes that have no short exact text are
    /// plain bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.to_string();
        match text.parse::<Self>() {
            Ok(back) if back == *self => serializer.serialize_str(&text),
            _ => serializer.serialize_str(&format!("{} B", self.0)),
        }
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("4k", 4096),
            ("64 MiB", 64 << 20),
            ("1.5GB", 1_500_000_000),
            ("2 gib", 2 << 30),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1 parsec", "1.2.3 MB", "99999999 TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_durations_print_short() {
        assert_eq!(ByteSize::mib(64).to_string(), "64 MiB");
        assert_eq!(ByteSize(1536).to_string(), "1.5 KiB");
        assert_eq!(ByteSize((1 << 20) - 1).to_string(), "1.0 MiB");
        assert_eq!(Duration::ms(250).to_string(), "250 ms");
        assert_eq!("0.5 s".parse(), Ok(Duration::ms(500)));
    }
}
