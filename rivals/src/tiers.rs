//! Hosts over tiers by our plugin (`files=thermocline`): what their labels say, as the plugin's
//! URI.
//!
//! ```text
//! @tiers              FAST/app   logs, upper levels, copies    SLOW/db   the rest, and all names
//! @tiers+home=fast    FAST/db    these, and all names          SLOW/app  the rest
//! @slow               -                                        SLOW/db
//! ```
//! The host's own classes read and write; the plugin chooses places. A label without
//! `files=thermocline` leaves the host as it is, and has none of the other options.

use crate::foreign::plugin;
use std::path::PathBuf;
use std::sync::Arc;
use thermocline_bench::Outcome;
use thermocline_bench::store::{CreatedTables, OpenOptions, SecondLevel};
use thermocline_device::drivers::{DriverSpec, Profile, Waiting};
use thermocline_device::profile::{Point, Source};
use thermocline_device::{Curve, TierProfile};
use thermocline_foundation::{ByteSize, SystemClock};

/// Blocks of 4 KiB, for which the emulated devices have their rates.
const BLOCK_BYTES: u64 = 4 << 10;
/// The part of the fast directory that is a tier of its own between both.
const MIDDLE: &str = "middle";

/// The options of labels.
pub const OPTIONS: [(&str, &str); 10] = [
    ("files", "host (default), or thermocline: over the directories by our plugin"),
    (
        "keep",
        "with files=thermocline: off (default), files or extents, for reads from the fast one",
    ),
    ("placement", "with files=thermocline: where files go; default parallelism"),
    ("move-threads", "with files=thermocline: auto (default) or 1 to 16"),
    (
        "profile",
        "with files=thermocline: online (default), or fixed with what is known of a device",
    ),
    (
        "fast-size",
        "with files=thermocline: bytes of the fast directory; default all that there are",
    ),
    ("fast-device", "with files=thermocline: the device that the fast directory is as slow as"),
    ("slow-device", "with files=thermocline: the device that the slow directory is as slow as"),
    ("home", "with files=thermocline: slow (default) or fast, where the host's own directory lies"),
    ("middle-size", "with files=thermocline: bytes of a tier between both, as slow as tlc-nvme"),
];

/// Where a host's files lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// For the plugin.
    pub uri: String,
    /// The host's directory.
    pub db: PathBuf,
    /// Bytes of the fast tier; none where there is one directory.
    pub fast_capacity: Option<u64>,
    /// The directory of the fast tier; none where there is no such tier apart.
    fast: Option<PathBuf>,
    /// The directories of all tiers but the host's own.
    made: Vec<PathBuf>,
    /// Of the fast one, where it is emulated and its profile is not to be learnt.
    known: Option<Profile>,
}

/// What the label asks for; none where the host is to be left as it is.
pub fn tiers(options: &OpenOptions, file: &str) -> Outcome<Option<Tiers>> {
    match options.option("files") {
        None | Some("host") => {
            let names = OPTIONS.iter().skip(1).map(|(name, _)| *name);
            match names.into_iter().find(|name| options.option(name).is_some()) {
                Some(name) => Err(format!("option {name} is for files=thermocline").into()),
                None => Ok(None),
            }
        }
        Some("thermocline") => {
            plugin::path(file)?;
            Tiers::new(options).map(Some)
        }
        Some(other) => Err(format!("option files={other}: it is host or thermocline").into()),
    }
}

impl Tiers {
    fn new(options: &OpenOptions) -> Outcome<Self> {
        let (home, above) = options.tiers.split_last().ok_or("no directory is given")?;
        let device = |name: &str| -> Outcome<(String, Option<Profile>)> {
            let found: Option<Profile> = options.parsed(name)?;
            Ok((found.map_or(String::new(), |device| format!("&emulated={device}")), found))
        };
        let on_fast = match options.option("home") {
            None | Some("slow") => false,
            Some("fast") if above.is_empty() => {
                return Err("option home=fast: there is no fast directory".into());
            }
            Some("fast") => true,
            Some(other) => return Err(format!("option home={other}: it is slow or fast").into()),
        };
        let mut parts = Vec::new();
        let (mut made, mut known, mut db) = (Vec::new(), None, home.path.join("db"));
        let mut tier = |path: PathBuf, size: u64, device: &str| {
            parts.push(format!("tier={}:{size}{device}", path.display()));
            made.push(path);
        };
        let (mut fast, mut fast_capacity) = (None, None);
        if let Some(first) = above.first() {
            let size = options.parsed::<ByteSize>("fast-size")?.unwrap_or(first.capacity);
            fast_capacity = Some(size.0);
            let (emulated, device) = device("fast-device")?;
            let path = if on_fast { PathBuf::from("home") } else { first.path.join("app") };
            if on_fast {
                db = first.path.join("db");
            }
            tier(path.clone(), size.0, &emulated);
            fast = Some(path).filter(|_| !on_fast);
            known = device.filter(|_| options.option("profile") == Some("fixed"));
            if let Some(size) = options.parsed::<ByteSize>("middle-size")? {
                tier(first.path.join(MIDDLE), size.0, "&emulated=tlc-nvme");
            }
        }
        let (emulated, _) = device("slow-device")?;
        let path = if on_fast { home.path.join("app") } else { PathBuf::from("home") };
        tier(path, home.capacity.0, &emulated);
        made.retain(|path| path.is_absolute());
        for (name, of) in [
            ("keep", "cache"),
            ("placement", "placement"),
            ("move-threads", "move_threads"),
            ("profile", "profile"),
        ] {
            parts.extend(options.option(name).map(|value| format!("{of}={value}")));
        }
        let uri = format!("thermocline://?{}", parts.join("&"));
        Ok(Self { uri, db, fast_capacity, fast, made, known })
    }

    /// Makes the directories of the tiers, and says what is known of the fast one's device.
    pub fn make(&self) -> Outcome<()> {
        for folder in &self.made {
            thermocline_device::drivers::create_directory(folder)?;
        }
        Ok(())
    }

    /// Before the host opens a directory that was loaded: the profile of the fast tier's emulated
    /// device, where it is not to be learnt. It lies beside each `TIER`.
    pub fn tell_profile(&self) -> Outcome<()> {
        let (Some(device), Some(fast)) = (self.known, &self.fast) else { return Ok(()) };
        let profile =
            TierProfile { source: Source::Fio, write: curve(device), ..TierProfile::default() };
        let emulated = DriverSpec::Emulated(device, Waiting::Interrupt);
        for entry in thermocline_bench::files::folders(fast)? {
            profile.write(&*emulated.open(&entry, Arc::new(SystemClock::new()))?)?;
        }
        Ok(())
    }
}

/// What a device reaches by writers, as its model has it.
fn curve(device: Profile) -> Curve {
    let writes = device.model().write_curve;
    let point =
        |workers: u16| Point { workers, bytes_per_s: writes.rate(workers.into()) * BLOCK_BYTES };
    Curve::new([1, 2, 4, 8, 16, 32, 64].map(point).to_vec())
}

/// Sums of the figures that are called `name` in the statistics' JSON.
fn sums(json: &str, name: &str) -> Vec<u64> {
    let marked = format!("\"{name}\":");
    let digits = |rest: &str| {
        rest.split(|digit: char| !digit.is_ascii_digit()).next().and_then(|n| n.parse().ok())
    };
    json.split(marked.as_str()).skip(1).filter_map(digits).collect()
}

/// Reads that the fast tier served, and those that it did not: of extents, where there are any,
/// else of files and copies.
pub fn second_level(json: &str) -> Option<SecondLevel> {
    let sum = |name: &str| sums(json, name).iter().sum();
    let of_extents = !sums(json, "hits").is_empty();
    let reads = sums(json, "reads");
    let (first, others) = reads.split_first()?;
    let (hits, misses) = match of_extents {
        true => (sum("hits"), sum("misses")),
        false => (*first, others.iter().sum()),
    };
    let written_bytes = if of_extents { sum("written_bytes") } else { sum("copied_bytes") };
    Some(SecondLevel { hits, misses, written_bytes, ..SecondLevel::default() })
}

/// Tables that were made, and of these such whose level was not known then.
pub fn tables(json: &str) -> CreatedTables {
    let sum = |name: &str| sums(json, name).iter().sum();
    CreatedTables { tables: sum("tables"), of_unknown_level: sum("tables_of_unknown_level") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use thermocline_bench::store::{Durability, TierSpace};

    fn options(texts: &[(&str, &str)], names: &[&str]) -> OpenOptions {
        let tier = |name: &&str| TierSpace {
            name: (*name).to_owned(),
            path: PathBuf::from("/mnt").join(name),
            capacity: ByteSize(1000),
        };
        let pairs = texts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        OpenOptions {
            tiers: names.iter().map(tier).collect(),
            memory: ByteSize(64 << 20),
            durability: Durability::Buffered,
            direct: false,
            threads: 1,
            key_bytes: 24,
            value_bytes: 100,
            records: 1,
            loading: false,
            options: pairs.collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn a_label_becomes_a_uri() {
        let uri = |texts: &[(&str, &str)], names: &[&str]| {
            Tiers::new(&options(texts, names)).unwrap().uri
        };
        let plain = "thermocline://?tier=/mnt/fast/app:1000&tier=home:1000";
        assert_eq!(uri(&[], &["fast", "slow"]), plain);
        let all = [
            ("fast-size", "5B"),
            ("fast-device", "dcpmm-tenth"),
            ("slow-device", "tlc-nvme"),
            ("middle-size", "7B"),
            ("keep", "extents"),
            ("move-threads", "4"),
        ];
        assert_eq!(
            uri(&all, &["fast", "slow"]),
            "thermocline://?tier=/mnt/fast/app:5&emulated=dcpmm-tenth\
             &tier=/mnt/fast/middle:7&emulated=tlc-nvme\
             &tier=home:1000&emulated=tlc-nvme&cache=extents&move_threads=4"
        );
        let fast_capacity = |texts: &[(&str, &str)], names: &[&str]| {
            Tiers::new(&options(texts, names)).unwrap().fast_capacity
        };
        assert_eq!(fast_capacity(&all, &["fast", "slow"]), Some(5));
        assert_eq!(fast_capacity(&[], &["slow"]), None);
        assert_eq!(uri(&[], &["slow"]), "thermocline://?tier=home:1000");
        let at_home = "thermocline://?tier=home:1000&tier=/mnt/slow/app:1000";
        assert_eq!(uri(&[("home", "fast")], &["fast", "slow"]), at_home);
        let refused = |texts: &[(&str, &str)], names: &[&str]| {
            Tiers::new(&options(texts, names)).unwrap_err().to_string()
        };
        assert!(refused(&[("home", "fast")], &["slow"]).contains("no fast directory"));
        assert!(refused(&[("home", "x")], &["fast", "slow"]).contains("it is slow or fast"));
    }

    #[test]
    fn options_of_the_plugin_without_it_are_refused() {
        let refused = |texts: &[(&str, &str)]| {
            tiers(&options(texts, &["fast", "slow"]), "x.so").unwrap_err().to_string()
        };
        assert!(refused(&[("keep", "files")]).contains("option keep is for files=thermocline"));
        assert!(refused(&[("files", "some")]).contains("it is host or thermocline"));
        assert_eq!(tiers(&options(&[], &["slow"]), "x.so").unwrap(), None);
    }

    #[test]
    fn figures_are_read_from_the_statistics() {
        let json = "[{\"tiers\":[{\"reads\":7,\"copied_bytes\":5},{\"reads\":3}],\
                    \"counts\":{\"tables\":9,\"tables_of_unknown_level\":2},\"extents\":null}]";
        assert_eq!(tables(json), CreatedTables { tables: 9, of_unknown_level: 2 });
        let found = second_level(json).unwrap();
        assert_eq!((found.hits, found.misses, found.written_bytes), (7, 3, 5));
        let with = json.replace("null", "{\"hits\":4,\"misses\":1,\"written_bytes\":8}");
        let found = second_level(&with).unwrap();
        assert_eq!((found.hits, found.misses, found.written_bytes), (4, 1, 8));
        assert_eq!(second_level("[]"), None);
    }

    #[test]
    fn what_is_known_of_an_emulated_device_is_what_its_model_says() {
        let curve = curve(Profile::DcpmmTenth);
        assert_eq!(curve.useful_workers(), Some(4));
        assert_eq!(curve.bytes_per_s_max(), Some(50_000 * BLOCK_BYTES));
    }
}
