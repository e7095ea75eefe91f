//! Settings of the cache of blocks on the fast tier (MyNVM).

use crate::error::{Error, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::str::FromStr;
use thermocline_device::file_cache::Layout;
use thermocline_foundation::ByteSize;

/// Which blocks the cache takes when they were not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admission {
    /// Those that a cache of `simulated_percent` of the capacity would have by least recent use
    /// (MyNVM, section 4.3).
    #[default]
    SimulatedLru,
    /// All: the baseline, which writes most.
    Always,
    /// Those that were missed before, as far as is remembered: the second baseline.
    SecondAccess,
    /// Those that are missed more often than those that leave (section 7.2).
    Frequency,
}

/// How the cache makes room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eviction {
    /// The oldest file goes; of its blocks those that were hit are written again, half a file at
    /// most.
    #[default]
    FifoReinsert,
    /// The oldest file goes.
    Fifo,
    /// The file goes that was hit longest ago (section 5).
    FileLru,
}

/// How blocks lie in files of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockLayout {
    /// One behind the other: most blocks for the room.
    #[default]
    Packed,
    /// So that each touches no more pages than it must (section 4.1.2).
    Padded,
}

impl From<BlockLayout> for Layout {
    fn from(layout: BlockLayout) -> Self {
        match layout {
            BlockLayout::Packed => Self::Packed,
            BlockLayout::Padded => Self::Padded,
        }
    }
}

/// How much of tier 0 the cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheCapacity {
    /// What logs, journals and the levels of the tier leave, where tables of deeper levels would be
    /// guests otherwise. With `leveled`, and `placement` `room` or `log_only`.
    Auto,
    /// So many bytes; 0: there is no cache.
    Bytes(ByteSize),
}

impl From<ByteSize> for CacheCapacity {
    fn from(bytes: ByteSize) -> Self {
        Self::Bytes(bytes)
    }
}

impl CacheCapacity {
    /// There is to be a cache.
    pub fn is_on(self) -> bool {
        self != Self::Bytes(ByteSize(0))
    }
}

impl fmt::Display for CacheCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

impl FromStr for CacheCapacity {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => match text.parse() {
                Ok(bytes) => Ok(Self::Bytes(bytes)),
                Err(error) => Err(format!("{error}, or auto")),
            },
        }
    }
}

impl Serialize for CacheCapacity {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(bytes) => bytes.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CacheCapacity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FastCacheSettings {
    /// Bytes of tier 0 for copies of blocks of slower tiers: 1 MiB to 2 TiB, `auto`, or 0, the
    /// default, for none. Levels of tables are placed in what is left, half of the tier at least;
    /// with `placement = "log_only"` the cache may have all that logs leave. `auto` is what the
    /// levels leave. To be set where reads come back to a small part of the data that lies on
    /// slower tiers.
    pub capacity: CacheCapacity,
    /// Which blocks are taken once the cache is full; default `simulated_lru`. The others are there
    /// to be compared with. Until it is full all are, unless `write_budget_dwpd` bounds writes.
    pub admission: Admission,
    /// Size of the simulated cache, in percent of the capacity, 10 to 400; default 100. More of it
    /// means more writes, and more hits where heat changes slowly.
    pub simulated_percent: u32,
    /// How room is made; default `fifo_reinsert`. The others are there to be compared with.
    pub eviction: Eviction,
    /// Bytes of a file, 64 KiB to 1 GiB; default 64 MiB, and a sixteenth of the capacity at most.
    /// What is evicted goes by files.
    pub file_size: ByteSize,
    /// Bytes that are written at once, 16 KiB to 4 MiB; default 128 KiB (section 5), and a quarter
    /// of a file at most. Two batches are in memory.
    pub batch: ByteSize,
    /// How blocks lie in files; default `packed`.
    pub layout: BlockLayout,
    /// Bytes that the cache may write a day, in capacities of tier 0; 0 (the default) for no bound.
    /// A new cache may write those of an hour at once. To be set where the fast tier's endurance is
    /// known.
    pub write_budget_dwpd: f64,
}

impl Default for FastCacheSettings {
    fn default() -> Self {
        Self {
            capacity: CacheCapacity::Bytes(ByteSize(0)),
            admission: Admission::default(),
            simulated_percent: 100,
            eviction: Eviction::default(),
            file_size: ByteSize::mib(64),
            batch: ByteSize::kib(128),
            layout: BlockLayout::default(),
            write_budget_dwpd: 0.0,
        }
    }
}

/// Least and most of the capacity, where it is not 0.
const CAPACITY_BYTES: (u64, u64) = (1 << 20, FastCacheSettings::BYTES_MAX);

impl FastCacheSettings {
    /// Most bytes of the cache: what its look-up tells places apart in.
    pub(crate) const BYTES_MAX: u64 = 2 << 40;

    /// Least bytes of a file.
    pub(crate) const FILE_BYTES_MIN: u64 = 64 << 10;

    /// All of them are as they are without being set. Not written to `settings.toml` then, so that
    /// builds without them open the database.
    pub(crate) fn are_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses values outside their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        let capacity = match self.capacity {
            CacheCapacity::Bytes(bytes) if bytes.0 > 0 => bytes.0,
            _ => CAPACITY_BYTES.0,
        };
        let percent = u64::from(self.simulated_percent);
        let ranges = [
            ("capacity", capacity, CAPACITY_BYTES, " B"),
            ("simulated_percent", percent, (10, 400), ""),
            ("file_size", self.file_size.0, (Self::FILE_BYTES_MIN, 1 << 30), " B"),
            ("batch", self.batch.0, (16 << 10, 4 << 20), " B"),
        ];
        for (name, value, (low, high), unit) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::invalid(format!(
                    "fast_cache.{name} = {value}{unit} is out of range; it must be {low} to \
                     {high}{unit}"
                )));
            }
        }
        let dwpd = self.write_budget_dwpd;
        if !(0.0..=1000.0).contains(&dwpd) {
            return Err(Error::invalid(format!(
                "fast_cache.write_budget_dwpd = {dwpd} is out of range; it must be 0 to 1000 a day"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn a_value_out_of_range_is_named_with_its_range() {
        let refused = |fast_cache: FastCacheSettings| {
            let error = Settings { fast_cache, ..Settings::default() }.check().unwrap_err();
            error.to_string()
        };
        let defaults = FastCacheSettings::default;
        let small = refused(FastCacheSettings { capacity: ByteSize::kib(64).into(), ..defaults() });
        assert!(small.contains("fast_cache.capacity = 65536 B is out of range"), "{small}");
        let text = refused(FastCacheSettings { simulated_percent: 9, ..defaults() });
        assert!(text.contains("it must be 10 to 400"), "{text}");
        let text = refused(FastCacheSettings { file_size: ByteSize::kib(32), ..defaults() });
        assert!(text.contains("fast_cache.file_size") && text.contains("65536"), "{text}");
        let text = refused(FastCacheSettings { batch: ByteSize::mib(8), ..defaults() });
        assert!(text.contains("fast_cache.batch"), "{text}");
        refused(FastCacheSettings { write_budget_dwpd: f64::NAN, ..defaults() });
        let set = FastCacheSettings { capacity: ByteSize::mib(1).into(), ..defaults() };
        let settings = Settings { fast_cache: set, ..Settings::default() };
        settings.check().unwrap();
        assert!(settings.to_toml().unwrap().contains("[fast_cache]"));
        assert!(!Settings::default().to_toml().unwrap().contains("fast_cache"));
    }
}
