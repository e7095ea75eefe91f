//! The settings of a host's tiers: a URI, or a file of settings that the URI names.
//!
//! ```text
//!   thermocline://?tier=/mnt/nvme/app:20GiB&tier=home:400GiB&placement=room
//!   thermocline:///etc/app.toml
//!
//!   placement = "room"
//!   [[tiers]]
//!   path = "/mnt/nvme/app"     fastest first; "home" is the host's directory itself
//!   capacity = "20 GiB"
//! ```
//! 1. Every text is either understood whole or refused with the part that is wrong.
//! 2. `%XX` in a value of a URI stands for a byte, so that any path can be written.
//!
//! Threads: plain functions.

use crate::drivers::{DriverSpec, Profile, Waiting};
use crate::error::{Error, ErrorKind, Result};
use crate::file_cache::trigger::HIT_PERCENT;
use crate::migration_queue::Thresholds;
use crate::names::{ExtentSettings, NameSettings};
use crate::placement::PlacementChoice;
use crate::pool_size::THREADS_MAX;
use crate::tier::TierSpec;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thermocline_foundation::{ByteSize, Duration};

/// What URIs begin with.
pub const SCHEME: &str = "thermocline://";
/// The path of a tier that is the host's directory itself.
const HOME: &str = "home";

/// One tier.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostTier {
    /// Its directory, or `home`.
    pub path: PathBuf,
    /// Bytes that files of the host may take there.
    pub capacity: ByteSize,
    /// The device that it is to be as slow as, for experiments; none: the one that it is. The
    /// host's own reads and writes are held back for as long as that one would take.
    #[serde(default)]
    pub emulated: Option<Profile>,
}

/// The tiers of all host directories that are opened with them, and what decides between them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSettings {
    /// Fastest first.
    pub tiers: Vec<HostTier>,
    /// Where new files go. Default `parallelism`. Bandwidth is not among them: the bytes of a host
    /// do not pass through here.
    #[serde(default = "by_parallelism")]
    pub placement: PlacementChoice,
    /// Threads that move files between tiers. Default: what the writers leave of the devices. To
    /// be set where moves take a processor that the host wants.
    #[serde(default)]
    pub move_threads: Option<u16>,
    /// What is copied to faster tiers for reads. Default nothing.
    #[serde(default)]
    pub cache: HostCache,
    /// Share of reads, in percent, that a tier is to serve of those that it and the next one do;
    /// below it, files are copied. To be raised where reads matter more than the writes of copies.
    #[serde(default = "hit_percent")]
    pub hit_percent: u8,
    /// How long reads are counted for one look at these shares, 1 s (default) to 1 h. To be raised
    /// where reads come in bursts with pauses between them.
    #[serde(default = "window")]
    pub window: Duration,
    /// Share of a tier, in percent, that is to stay free, 1 to 50; default 5. Below it files leave,
    /// the coldest first; copies and extents keep to it as well. To be raised where more is written
    /// at once than moves can clear away.
    #[serde(default = "free_upper")]
    pub free_upper_percent: u8,
    /// Share, in percent, below which files leave whatever else writes there, less than the one
    /// above; default 2.
    #[serde(default = "free_lower")]
    pub free_lower_percent: u8,
    /// Level that a table counts with whose level is not known when it is made, up to 62; default
    /// 6, the deepest one that hosts have as they come, so that guesses never fill the fastest
    /// tier. To be lowered where a host tells no levels and its tables are to begin on a fast tier.
    #[serde(default = "unknown_level")]
    pub unknown_level: u8,
    /// What is known of the devices with `placement=parallelism`. Default `online`. To be `fixed`
    /// where other programs write to the same devices.
    #[serde(default)]
    pub profile: HostProfile,
    /// Bytes of an extent, a power of two from 4 KiB to 1 MiB; default 8 KiB. To be raised where
    /// blocks of tables are larger.
    #[serde(default = "extent")]
    pub cache_extent: ByteSize,
    /// Bytes that extents may take of the fastest tier. Default: what the host's files leave. To be
    /// set where the device, or the memory of up to 28 bytes an extent (ten, and 18 of the
    /// simulated cache), is to be left to others.
    #[serde(default)]
    pub cache_size: Option<ByteSize>,
}

/// What is copied to faster tiers for reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCache {
    /// Nothing.
    #[default]
    Off,
    /// Whole files that are read much (Keigo, section 4.3).
    Files,
    /// Parts of files that are read again. They are kept over a restart.
    Extents,
}

/// What placement and moves take for granted of the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostProfile {
    /// What is stored, and what the host's own traffic shows.
    #[default]
    Online,
    /// What is stored.
    Fixed,
}

/// Bytes of an extent: two pages hold most blocks of tables.
const EXTENT: ByteSize = ByteSize::kib(8);
const EXTENT_MIN: ByteSize = ByteSize::kib(4);
const EXTENT_MAX: ByteSize = ByteSize::mib(1);

/// Reads are counted for so long; the moving thread looks once a second.
const WINDOW: Duration = Duration::ms(1000);
const WINDOW_MAX: Duration = Duration::ms(3_600_000);

/// More than half of a tier is not kept free.
const FREE_PERCENT_MAX: u8 = 50;

/// Deeper levels than any host has.
const LEVEL_MAX: u8 = 62;

fn extent() -> ByteSize {
    EXTENT
}

fn hit_percent() -> u8 {
    HIT_PERCENT
}

fn window() -> Duration {
    WINDOW
}

fn free_upper() -> u8 {
    Thresholds::default().upper_percent
}

fn free_lower() -> u8 {
    Thresholds::default().lower_percent
}

fn unknown_level() -> u8 {
    NameSettings::default().unknown_level
}

fn by_parallelism() -> PlacementChoice {
    PlacementChoice::Parallelism
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

impl HostSettings {
    /// Of a URI, or of the file that it names.
    ///
    /// Errors: `Invalid` with the part that is wrong; `NotFound` and others of the file.
    pub fn of_uri(uri: &str) -> Result<Self> {
        let settings = match uri.strip_prefix(SCHEME) {
            None => Err(invalid(format!("it does not begin with {SCHEME}"))),
            Some(rest) => match rest.strip_prefix('?') {
                Some(query) => Self::of_query(query),
                None if rest.starts_with('/') => Self::of_file(rest),
                None => Err(invalid("after :// come ?tier=PATH:CAPACITY or a path".to_owned())),
            },
        };
        settings.map_err(|error| Error::new(error.kind(), format!("cannot use '{uri}': {error}")))
    }

    fn of_file(path: &str) -> Result<Self> {
        let path = PathBuf::from(decoded(path)?);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::io("read the settings", &path, &error))?;
        Self::of_toml(&text).map_err(|error| invalid(format!("{}: {error}", path.display())))
    }

    /// Of the part of a URI after `?`.
    pub fn of_query(query: &str) -> Result<Self> {
        let mut settings = Self {
            tiers: Vec::new(),
            placement: by_parallelism(),
            move_threads: None,
            cache: HostCache::Off,
            hit_percent: HIT_PERCENT,
            window: WINDOW,
            free_upper_percent: free_upper(),
            free_lower_percent: free_lower(),
            unknown_level: unknown_level(),
            profile: HostProfile::Online,
            cache_extent: EXTENT,
            cache_size: None,
        };
        for part in query.split('&') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| invalid(format!("'{part}' is no KEY=VALUE")))?;
            let value = decoded(value)?;
            match key {
                "tier" => settings.tiers.push(tier(&value)?),
                "emulated" => emulated(&mut settings.tiers, &value)?,
                "placement" => settings.placement = value.parse()?,
                "move_threads" => settings.move_threads = move_threads(&value)?,
                "cache" => settings.cache = cache(&value)?,
                "hit_percent" => settings.hit_percent = percent(key, &value)?,
                "window" => settings.window = duration(key, &value)?,
                "free_upper_percent" => settings.free_upper_percent = percent(key, &value)?,
                "free_lower_percent" => settings.free_lower_percent = percent(key, &value)?,
                "unknown_level" => settings.unknown_level = level(key, &value)?,
                "profile" => settings.profile = profile(&value)?,
                "cache_extent" => settings.cache_extent = size(key, &value)?,
                "cache_size" => settings.cache_size = Some(size(key, &value)?),
                _ => {
                    let known = "there are tier, emulated, placement, move_threads, cache, \
                                 hit_percent, window, free_upper_percent, free_lower_percent, \
                                 unknown_level, profile, cache_extent and cache_size";
                    return Err(invalid(format!("there is no setting '{key}'; {known}")));
                }
            }
        }
        settings.checked()
    }

    /// Of the text of a file.
    pub fn of_toml(text: &str) -> Result<Self> {
        let settings: Self = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        settings.checked()
    }

    /// Errors: `Invalid` with what is wrong: fields may be set by hand.
    pub(super) fn checked(self) -> Result<Self> {
        if self.tiers.is_empty() {
            return Err(invalid("no tier is named; add tier=PATH:CAPACITY".to_owned()));
        }
        if self.placement == PlacementChoice::Bandwidth {
            let text = "placement=bandwidth is for databases of this software alone; take room \
                        or parallelism";
            return Err(invalid(text.to_owned()));
        }
        if let Some(threads) = self.move_threads.filter(|n| !(1..=THREADS_MAX).contains(n)) {
            let text = format!("move_threads={threads} is out of range: 1 to {THREADS_MAX}");
            return Err(invalid(text));
        }
        if !(1..=100).contains(&self.hit_percent) {
            let text = format!("hit_percent={} is out of range: 1 to 100", self.hit_percent);
            return Err(invalid(text));
        }
        self.require_shares()?;
        let is_fitting = (EXTENT_MIN..=EXTENT_MAX).contains(&self.cache_extent);
        if !is_fitting || !self.cache_extent.0.is_power_of_two() {
            let extent = self.cache_extent;
            let text = format!(
                "cache_extent={extent} is no power of two from {EXTENT_MIN} to {EXTENT_MAX}"
            );
            return Err(invalid(text));
        }
        for tier in &self.tiers {
            if tier.path != Path::new(HOME) && !tier.path.is_absolute() {
                let path = tier.path.display();
                let text = format!("the tier {path} is neither {HOME} nor a path from the root");
                return Err(invalid(text));
            }
            if tier.capacity.0 == 0 {
                let text = format!("the tier {} has no capacity", tier.path.display());
                return Err(invalid(text));
            }
        }
        Ok(self)
    }

    /// Of time, room and levels.
    fn require_shares(&self) -> Result<()> {
        let (upper, lower) = (self.free_upper_percent, self.free_lower_percent);
        if !(1..=FREE_PERCENT_MAX).contains(&upper) {
            let text =
                format!("free_upper_percent={upper} is out of range: 1 to {FREE_PERCENT_MAX}");
            return Err(invalid(text));
        }
        if lower >= upper {
            let text = format!("free_lower_percent={lower} is not below {upper}, the upper one");
            return Err(invalid(text));
        }
        if !(WINDOW.0..=WINDOW_MAX.0).contains(&self.window.0) {
            let window = self.window;
            let text = format!("window={window} is out of range: {WINDOW} to {WINDOW_MAX}");
            return Err(invalid(text));
        }
        if self.unknown_level > LEVEL_MAX {
            let level = self.unknown_level;
            return Err(invalid(format!(
                "unknown_level={level} is out of range: 0 to {LEVEL_MAX}"
            )));
        }
        Ok(())
    }

    /// What a directory goes by.
    pub(super) fn of_names(&self) -> NameSettings {
        let (upper_percent, lower_percent) = (self.free_upper_percent, self.free_lower_percent);
        let thresholds = Thresholds { upper_percent, lower_percent };
        NameSettings { thresholds, unknown_level: self.unknown_level }
    }

    /// What keeps extents.
    pub(super) fn extents(&self) -> Option<ExtentSettings> {
        let settings = ExtentSettings {
            extent_bytes: self.cache_extent.0,
            capacity_bytes: self.cache_size.map(|size| size.0),
        };
        (self.cache == HostCache::Extents).then_some(settings)
    }

    /// The tiers of one host directory.
    pub(super) fn specs(&self, directory: &Path) -> Vec<TierSpec> {
        let spec = |tier: &HostTier| TierSpec {
            path: if tier.path == Path::new(HOME) { directory } else { &tier.path }.to_owned(),
            capacity: tier.capacity,
            driver: match tier.emulated {
                None => DriverSpec::Posix.to_string(),
                Some(device) => DriverSpec::Emulated(device, Waiting::Interrupt).to_string(),
            },
        };
        self.tiers.iter().map(spec).collect()
    }
}

fn tier(value: &str) -> Result<HostTier> {
    let (path, capacity) = value.rsplit_once(':').ok_or_else(|| {
        invalid(format!("tier={value} has no capacity; write tier=PATH:CAPACITY, such as 20GiB"))
    })?;
    let capacity = capacity.parse().map_err(|error| invalid(format!("tier={value}: {error}")))?;
    Ok(HostTier { path: PathBuf::from(path), capacity, emulated: None })
}

/// Of the tier that was named last.
fn emulated(tiers: &mut [HostTier], value: &str) -> Result<()> {
    let device = value.parse().map_err(|error| invalid(format!("emulated={value}: {error}")))?;
    let no_tier = || invalid(format!("emulated={value} comes before its tier"));
    tiers.last_mut().ok_or_else(no_tier)?.emulated = Some(device);
    Ok(())
}

fn move_threads(value: &str) -> Result<Option<u16>> {
    if value == "auto" {
        return Ok(None);
    }
    let threads = value.parse();
    threads.map(Some).map_err(|_| invalid(format!("move_threads={value} is no number, nor auto")))
}

fn cache(value: &str) -> Result<HostCache> {
    match value {
        "off" => Ok(HostCache::Off),
        "files" => Ok(HostCache::Files),
        "extents" => Ok(HostCache::Extents),
        _ => {
            let known = "there are off, files and extents";
            Err(invalid(format!("there is no cache '{value}'; {known}")))
        }
    }
}

fn profile(value: &str) -> Result<HostProfile> {
    match value {
        "online" => Ok(HostProfile::Online),
        "fixed" => Ok(HostProfile::Fixed),
        _ => Err(invalid(format!("there is no profile '{value}'; there are online and fixed"))),
    }
}

fn size(key: &str, value: &str) -> Result<ByteSize> {
    value.parse().map_err(|error| invalid(format!("{key}={value}: {error}")))
}

fn percent(key: &str, value: &str) -> Result<u8> {
    value.parse().map_err(|_| invalid(format!("{key}={value} is no number up to 100")))
}

fn level(key: &str, value: &str) -> Result<u8> {
    value.parse().map_err(|_| invalid(format!("{key}={value} is no number of a level")))
}

fn duration(key: &str, value: &str) -> Result<Duration> {
    value.parse().map_err(|error| invalid(format!("{key}={value}: {error}")))
}

/// The text with each `%XX` as the byte that it stands for.
fn decoded(text: &str) -> Result<String> {
    let wrong = || invalid(format!("'{text}' has a % that two hexadecimal digits do not follow"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        (bytes, rest) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or_else(wrong);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                (bytes, after)
            }
            (b'%', _) => return Err(wrong()),
            _ => {
                bytes.push(*byte);
                (bytes, after)
            }
        };
    }
    String::from_utf8(bytes).map_err(|_| invalid(format!("'{text}' is not UTF-8 when decoded")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiers(settings: &HostSettings) -> Vec<(&str, u64)> {
        let tiers = settings.tiers.iter();
        tiers.map(|tier| (tier.path.to_str().unwrap(), tier.capacity.0)).collect()
    }

    #[test]
    fn a_uri_names_tiers_and_what_decides_between_them() {
        let plain = HostSettings::of_uri("thermocline://?tier=/mnt/a:20GiB&tier=home:1TB").unwrap();
        assert_eq!(tiers(&plain), [("/mnt/a", 20 << 30), ("home", 1_000_000_000_000)]);
        assert_eq!(plain.placement, PlacementChoice::Parallelism);
        assert_eq!(plain.move_threads, None);
        let all = "thermocline://?tier=/a%26b:c%3a:1%20MiB&placement=top_levels(2)&move_threads=3\
                   &cache=files&hit_percent=75";
        let all = HostSettings::of_uri(all).unwrap();
        assert_eq!((plain.cache, plain.hit_percent), (HostCache::Off, 90));
        assert_eq!((all.cache, all.hit_percent), (HostCache::Files, 75));
        assert_eq!(tiers(&all), [("/a&b:c:", 1 << 20)]);
        let fixed = HostSettings::of_query("tier=home:1GB&profile=fixed").unwrap();
        assert_eq!((plain.profile, fixed.profile), (HostProfile::Online, HostProfile::Fixed));
        assert!(plain.extents().is_none() && all.extents().is_none());
        let extents = "tier=home:1GB&cache=extents&cache_extent=16KiB&cache_size=1GiB";
        let extents = HostSettings::of_query(extents).unwrap().extents().unwrap();
        assert_eq!((extents.extent_bytes, extents.capacity_bytes), (16 << 10, Some(1 << 30)));
        assert_eq!((all.placement, all.move_threads), (PlacementChoice::TopLevels(2), Some(3)));
        let specs = plain.specs(Path::new("/db"));
        assert_eq!(specs[1].path, Path::new("/db"));
        assert_eq!(specs[0].path, Path::new("/mnt/a"));
    }

    #[test]
    fn thresholds_windows_and_the_level_of_what_is_not_known_are_the_papers_unless_they_are_set() {
        let plain = HostSettings::of_query("tier=home:1GB").unwrap();
        assert_eq!((plain.of_names(), plain.window), (NameSettings::default(), Duration::ms(1000)));
        let set = "tier=home:1GB&free_upper_percent=20&free_lower_percent=0&unknown_level=1\
                   &window=90s";
        let set = HostSettings::of_query(set).unwrap();
        let thresholds = Thresholds { upper_percent: 20, lower_percent: 0 };
        assert_eq!(set.of_names(), NameSettings { thresholds, unknown_level: 1 });
        assert_eq!(set.window, Duration::ms(90_000));
        let text = "free_upper_percent = 20\nfree_lower_percent = 0\nunknown_level = 1\n\
                    window = \"90 s\"\n[[tiers]]\npath = \"home\"\ncapacity = \"1 GB\"\n";
        assert_eq!(HostSettings::of_toml(text).unwrap(), set);
    }

    #[test]
    fn a_tier_is_as_slow_as_the_device_that_is_named_behind_it() {
        let query = "tier=/a:1GB&emulated=dcpmm-tenth&tier=home:1GB";
        let of_query = HostSettings::of_query(query).unwrap();
        let drivers: Vec<String> =
            of_query.specs(Path::new("/db")).into_iter().map(|spec| spec.driver).collect();
        assert_eq!(drivers, ["emulated-dcpmm-tenth", "posix"]);
        let text = "[[tiers]]\npath = \"/a\"\ncapacity = \"1 GB\"\nemulated = \"dcpmm-tenth\"\n\
                    [[tiers]]\npath = \"home\"\ncapacity = \"1 GB\"\n";
        assert_eq!(HostSettings::of_toml(text).unwrap(), of_query);
    }

    #[test]
    fn what_is_wrong_with_a_uri_is_named() {
        for (uri, expected) in [
            ("rocks://?tier=home:1GB", "does not begin with thermocline://"),
            ("thermocline://tier=home:1GB", "after :// come"),
            ("thermocline://?", "'' is no KEY=VALUE"),
            ("thermocline://?tier", "'tier' is no KEY=VALUE"),
            ("thermocline://?tier=/mnt/a", "tier=/mnt/a has no capacity"),
            ("thermocline://?tier=/mnt/a:much", "tier=/mnt/a:much"),
            ("thermocline://?tier=a:1GB", "the tier a is neither home nor a path from the root"),
            ("thermocline://?tier=home:0", "the tier home has no capacity"),
            ("thermocline://?placement=room", "no tier is named"),
            ("thermocline://?emulated=sata&tier=home:1GB", "emulated=sata comes before its tier"),
            ("thermocline://?tier=home:1GB&emulated=floppy", "not an emulated device"),
            ("thermocline://?tier=home:1GB&placement=best", "no placement 'best'"),
            ("thermocline://?tier=home:1GB&placement=bandwidth", "take room or parallelism"),
            ("thermocline://?tier=home:1GB&move_threads=0", "out of range: 1 to 16"),
            ("thermocline://?tier=home:1GB&move_threads=x", "no number, nor auto"),
            ("thermocline://?tier=home:1GB&cache=all", "no cache 'all'; there are off, files"),
            ("thermocline://?tier=home:1GB&profile=none", "there are online and fixed"),
            ("thermocline://?tier=home:1GB&cache_extent=3KiB", "no power of two from 4 KiB"),
            ("thermocline://?tier=home:1GB&cache_extent=2MiB", "no power of two from 4 KiB"),
            ("thermocline://?tier=home:1GB&cache_size=all", "cache_size=all"),
            ("thermocline://?tier=home:1GB&hit_percent=101", "out of range: 1 to 100"),
            ("thermocline://?tier=home:1GB&hit_percent=0.9", "no number up to 100"),
            ("thermocline://?tier=home:1GB&window=1", "window=1"),
            ("thermocline://?tier=home:1GB&window=100ms", "out of range: 1"),
            ("thermocline://?tier=home:1GB&free_upper_percent=51", "out of range: 1 to 50"),
            ("thermocline://?tier=home:1GB&free_lower_percent=5", "not below 5, the upper one"),
            ("thermocline://?tier=home:1GB&unknown_level=63", "out of range: 0 to 62"),
            ("thermocline://?tier=home:1GB&unknown_level=L1", "no number of a level"),
            ("thermocline://?tier=home:1GB&cash=off", "no setting 'cash'; there are"),
            ("thermocline://?tier=/a%2:1GB", "a % that two hexadecimal digits"),
            ("thermocline://?tier=/a%ff:1GB", "not UTF-8 when decoded"),
            ("thermocline:///no/such/file.toml", "/no/such/file.toml"),
        ] {
            let error = HostSettings::of_uri(uri).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(uri), "{uri}: {error}");
        }
    }

    #[test]
    fn a_file_says_the_same_as_a_uri() {
        let text = "placement = \"room\"\ncache = \"files\"\n[[tiers]]\npath = \"home\"\n\
                    capacity = \"2 GiB\"\n";
        let query = HostSettings::of_query("tier=home:2GiB&placement=room&cache=files").unwrap();
        assert_eq!(HostSettings::of_toml(text).unwrap(), query);
        for (text, expected) in [
            ("tiers = []", "no tier is named"),
            ("plaisement = 1", "unknown field"),
            ("[[tiers]]\npath = \"home\"\n", "missing field `capacity`"),
        ] {
            let error = HostSettings::of_toml(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
