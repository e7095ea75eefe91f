//! `values`: what bytes cost by the size of the values that they come in, from 4 KiB to the
//! largest. One thread, one store for each size, and about as many bytes of values for each, so
//! that a column shows at once where a size is dearer than another.
//!
//! ```text
//!   put+flush   from an empty store until all values are in slots (hybrid) or tables
//!   get         each value once, in no order
//!   scan        all of them in key order
//!   demotion    compact_range: from slots to tables, or tables to lower ones
//! ```
//! Every value that is read is checked; a wrong one fails the run.

use crate::state::empty;
use crate::{Failure, Outcome};
use clap::Args;
use std::path::{Path, PathBuf};
use thermocline::{ByteSize, Compression, Db, Durability, HybridSettings, Preset, Settings, Tier};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock};

/// Each size is so many times the one before.
const STEP: u64 = 4;
/// Sizes that are measured where nothing else is asked for.
const SMALLEST: &str = "4KiB";
const LARGEST: &str = "256MiB";
/// Values repeat themselves after so many bytes, which no compression here looks back.
const PATTERN_BYTES: usize = 4 << 20;

/// `values`.
#[derive(Clone, Debug, Args)]
pub struct ValuesArguments {
    /// The smallest values
    #[arg(long, default_value = SMALLEST)]
    pub smallest: ByteSize,
    /// The largest values
    #[arg(long, default_value = LARGEST)]
    pub largest: ByteSize,
    /// Bytes of values of each size, at least; there are two values at the least
    #[arg(long, default_value = "512MiB")]
    pub data: ByteSize,
    /// Memory of the store
    #[arg(long, default_value = "64MiB")]
    pub memory: ByteSize,
    /// The preset: hybrid or leveled
    #[arg(long, default_value = "hybrid")]
    pub preset: String,
    /// A new directory for the stores, which is removed; else one for temporary files
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// What one size took, in bytes a second.
#[derive(Clone, Copy, Debug)]
struct Speeds {
    put_and_flush: f64,
    get: f64,
    scan: f64,
    demotion: f64,
}

/// Measures one size after the other; `say` gets the lines of the table as they come.
pub fn run(arguments: &ValuesArguments, say: &mut dyn FnMut(&str) -> Outcome<()>) -> Outcome<()> {
    let preset = match &arguments.preset[..] {
        "hybrid" => Preset::Hybrid,
        "leveled" => Preset::Leveled,
        other => return Err(format!("{other} is no preset; name hybrid or leveled").into()),
    };
    let place = match &arguments.dir {
        Some(dir) if dir.exists() => {
            return Err(format!("{} exists; name a new directory", dir.display()).into());
        }
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("thermocline-values-{}", std::process::id())),
    };
    let sizes = sizes(arguments.smallest.0, arguments.largest.0)?;
    let heads = ["value", "values", "put+flush", "get", "scan", "demotion"];
    say(&row(&heads.map(str::to_owned)))?;
    for size in sizes {
        empty(&place)?;
        let count = (arguments.data.0 / size).max(2);
        let measured = measure(&place, preset, arguments.memory, size, count);
        crate::files::remove(&place)?;
        let speeds = measured?;
        let columns = [speeds.put_and_flush, speeds.get, speeds.scan, speeds.demotion];
        let [a, b, c, d] = columns.map(|speed| format!("{:.1} MB/s", speed / 1e6));
        say(&row(&[ByteSize(size).to_string(), count.to_string(), a, b, c, d]))?;
    }
    Ok(())
}

/// From the smallest to the largest, which is there however far the step before is from it.
fn sizes(smallest: u64, largest: u64) -> Outcome<Vec<u64>> {
    let most = thermocline::VALUE_BYTES_MAX as u64;
    if smallest == 0 || smallest > largest || largest > most {
        let text =
            format!("values have from 1 to {most} bytes, the smallest no more than the largest");
        return Err(text.into());
    }
    let next = |size: &u64| size.checked_mul(STEP).filter(|next| *next < largest);
    let mut sizes: Vec<_> = std::iter::successors(Some(smallest), next).collect();
    if smallest < largest {
        sizes.push(largest);
    }
    Ok(sizes)
}

fn row(columns: &[String; 6]) -> String {
    let [value, values, rest @ ..] = columns;
    let rest: Vec<_> = rest.iter().map(|column| format!("{column:>14}")).collect();
    format!("{value:>10}{values:>9}{}", rest.concat())
}

fn measure(
    place: &Path,
    preset: Preset,
    memory: ByteSize,
    size: u64,
    count: u64,
) -> Outcome<Speeds> {
    let bytes = size * count;
    // Everything fits the fast tier, so that a flush waits for no demotion.
    let tier = |name, share: u64| Tier::new(place.join(name), ByteSize(share * bytes + (1 << 30)));
    let record_compression = Compression::None;
    let settings = Settings {
        preset: Some(preset),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: vec![tier("fast", 4), tier("slow", 8)],
        memory,
        durability: Durability::Buffered,
        ..Settings::default()
    };
    let db = Db::create(place.join("home"), &settings)?;
    let pattern = Pattern::new(size);
    let put_and_flush = speed(bytes, || {
        for number in 0..count {
            db.put(key(number), pattern.value(number))?;
        }
        Ok(db.flush()?)
    })?;
    let get = speed(bytes, || {
        (0..count).try_for_each(|at| {
            let number = mix(at) % count;
            let found = db.get(key(number))?;
            pattern.check(number, found.as_deref())
        })
    })?;
    let scan = speed(bytes, || {
        let mut records = db.scan().into_iter();
        for number in 0..count {
            let (_, value) = records.next().ok_or("a scan ends too soon")??;
            pattern.check(number, Some(&value))?;
        }
        Ok(())
    })?;
    let demotion = speed(bytes, || Ok(db.compact_range(None, None, &mut |_| {})?))?;
    pattern.check(count - 1, db.get(key(count - 1))?.as_deref())?;
    db.close()?;
    Ok(Speeds { put_and_flush, get, scan, demotion })
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn speed(bytes: u64, run: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let clock = SystemClock::new();
    let start_ns = clock.now_ns();
    run()?;
    let elapsed_ns = (clock.now_ns() - start_ns).max(1);
    Ok(bytes as f64 * 1e9 / elapsed_ns as f64)
}

/// Values of one size: random bytes, each value from another place on.
struct Pattern {
    bytes: Vec<u8>,
    size: usize,
}

impl Pattern {
    fn new(size: u64) -> Self {
        let mut random = vec![0; PATTERN_BYTES];
        Random::new(size).fill(&mut random);
        let bytes = random.iter().copied().cycle().take(size as usize + PATTERN_BYTES).collect();
        Self { bytes, size: size as usize }
    }

    fn value(&self, number: u64) -> &[u8] {
        let from = (mix(number) % PATTERN_BYTES as u64) as usize;
        &self.bytes[from..from + self.size]
    }

    fn check(&self, number: u64, found: Option<&[u8]>) -> Outcome<()> {
        match found {
            Some(found) if found == self.value(number) => Ok(()),
            Some(_) => Err(Failure::from(format!("value {number} of {} is wrong", self.size))),
            None => Err(Failure::from(format!("value {number} of {} is gone", self.size))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_go_up_in_steps_and_end_with_the_largest() {
        assert_eq!(sizes(4, 64).unwrap(), [4, 16, 64]);
        assert_eq!(sizes(4, 70).unwrap(), [4, 16, 64, 70]);
        assert_eq!(sizes(4, 60).unwrap(), [4, 16, 60]);
        assert_eq!(sizes(4, 4).unwrap(), [4]);
        let most = thermocline::VALUE_BYTES_MAX as u64;
        assert_eq!(sizes(4096, most).unwrap().last(), Some(&most));
        for (smallest, largest) in [(0, 4), (5, 4), (4, most + 1)] {
            assert!(sizes(smallest, largest).is_err(), "{smallest} to {largest}");
        }
    }

    #[test]
    fn a_value_of_another_number_or_with_another_byte_is_wrong() {
        let pattern = Pattern::new(100);
        let mut value = pattern.value(3).to_vec();
        assert!(pattern.check(3, Some(&value)).is_ok());
        assert!(pattern.check(4, Some(&value)).is_err());
        assert!(pattern.check(3, None).is_err());
        value[99] ^= 1;
        assert!(pattern.check(3, Some(&value)).is_err());
    }
}
