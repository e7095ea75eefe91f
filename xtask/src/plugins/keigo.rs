//! `cargo xtask bench keigo`: RocksDB over tiers beside the same RocksDB on one device, by its own
//! `db_bench` (Keigo, section 5).
//!
//! ```text
//!   slow   all on the slow device            fast   all on the fast device
//!   tiers  over both, FAST_PERCENT on fast   files  the same with copies of hot files
//!   tier0  over both, and all fits on fast: what the plugin itself costs, beside `fast`
//! ```
//! Invariants:
//! 1. All sides have the same options, the same memory and direct I/O: the machine's page cache is
//!    no third tier. They take turns in each workload.
//! 2. It runs on the rig, which goes when this ends, or on the directories that FAST and SLOW name.
//! 3. A row that cannot be measured ends the run with the reason; one that misses its goal does
//!    not.

use super::rig::output_of;
use super::{ROCKSDB, build, folder};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const RECORD_BYTES: u64 = 1016;
/// Of the data, for the block cache.
const MEMORY_PERCENT: u64 = 5;

/// What is asked for.
struct Choice {
    records: u64,
    seconds: u64,
    rounds: usize,
    fast_percent: u64,
    rows: Vec<String>,
}

impl Default for Choice {
    fn default() -> Self {
        Self { records: 400_000, seconds: 10, rounds: 3, fast_percent: 20, rows: Vec::new() }
    }
}

impl Choice {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut choice = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value; {USAGE}"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{word}: {value}; {USAGE}"));
            match word.as_str() {
                "--records" => choice.records = number()?.max(1000),
                "--seconds" => choice.seconds = number()?.max(1),
                "--rounds" => choice.rounds = number()?.clamp(1, 99) as usize,
                "--fast-percent" => choice.fast_percent = number()?.clamp(1, 100),
                "--row" => choice.rows.push(value.clone()),
                _ => return Err(format!("'{word}' is not known; {USAGE}")),
            }
        }
        Ok(choice)
    }

    fn includes(&self, row: &Row) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|name| row.name.starts_with(name.as_str()))
    }

    fn bytes(&self) -> u64 {
        self.records * RECORD_BYTES
    }
}

const USAGE: &str = "say [--records N] [--seconds S] [--rounds N] [--fast-percent P] [--row NAME]";

/// Where the data lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Slow,
    Fast,
    Tiers,
    Files,
    Tier0,
}

/// What `db_bench` does, and by how many threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Workload {
    benchmark: &'static str,
    arguments: &'static [&'static str],
    threads: u32,
}

const fn mix(arguments: &'static [&'static str]) -> Workload {
    Workload { benchmark: "mixgraph", arguments, threads: 8 }
}

const fn read(threads: u32) -> Workload {
    Workload { benchmark: "readrandom", arguments: &[], threads }
}

const fn overwrite(threads: u32) -> Workload {
    Workload { benchmark: "overwrite", arguments: &[], threads }
}

const A: Workload = mix(&["--mix_get_ratio=0.5", "--mix_put_ratio=0.5", "--mix_seek_ratio=0"]);
const B: Workload = mix(&["--mix_get_ratio=0.95", "--mix_put_ratio=0.05", "--mix_seek_ratio=0"]);
const C: Workload = mix(&["--mix_get_ratio=1", "--mix_put_ratio=0", "--mix_seek_ratio=0"]);
const E: Workload = mix(&["--mix_get_ratio=0", "--mix_put_ratio=0.05", "--mix_seek_ratio=0.95"]);

/// A ratio.
struct Row {
    name: &'static str,
    workload: Workload,
    over: Side,
    under: Side,
    at_least: f64,
}

const fn row(
    name: &'static str,
    workload: Workload,
    over: Side,
    under: Side,
    at_least: f64,
) -> Row {
    Row { name, workload, over, under, at_least }
}

/// Readers come first: what they find is what was loaded.
const ROWS: [Row; 13] = [
    row("cost/read/1", read(1), Side::Tier0, Side::Fast, 0.97),
    row("cost/read/8", read(8), Side::Tier0, Side::Fast, 0.97),
    row("7/c/zipf", C, Side::Files, Side::Slow, 1.4),
    row("7/c/zipf/no-copies", C, Side::Tiers, Side::Slow, 1.0),
    row("7/c/uniform", read(8), Side::Files, Side::Slow, 1.1),
    row("7/b/zipf", B, Side::Files, Side::Slow, 1.4),
    row("7/e/zipf", E, Side::Files, Side::Slow, 1.1),
    row("7/a/zipf", A, Side::Tiers, Side::Slow, 1.8),
    row("7/a/zipf/of-fast", A, Side::Tiers, Side::Fast, 0.75),
    row("7/write", overwrite(8), Side::Tiers, Side::Slow, 1.0),
    row("7/write/of-fast", overwrite(8), Side::Tiers, Side::Fast, 0.75),
    row("cost/write/1", overwrite(1), Side::Tier0, Side::Fast, 0.97),
    row("cost/write/8", overwrite(8), Side::Tier0, Side::Fast, 0.97),
];

/// `cargo xtask bench keigo ...`, where `rig` starts a program on a rig.
pub fn bench(arguments: &[String], rig: impl Fn(&[String]) -> bool) -> bool {
    match begin(arguments, rig) {
        Ok(passed) => passed,
        Err(error) => {
            eprintln!("xtask: bench keigo: {error}");
            false
        }
    }
}

fn begin(arguments: &[String], rig: impl Fn(&[String]) -> bool) -> Result<bool, String> {
    let choice = Choice::parse(arguments)?;
    if let Some(missing) = build::missing(&ROCKSDB) {
        return Err(format!("{}: {missing}", ROCKSDB.name));
    }
    let place = |name| std::env::var_os(name).map(PathBuf::from);
    if let (Some(fast), Some(slow)) = (place("FAST"), place("SLOW")) {
        return Bench { choice, fast, slow, loaded: BTreeMap::new() }.run().map(|()| true);
    }
    if !super::built() {
        return Ok(false);
    }
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    // Room for what compactions write before they delete, and for three sides on the fast one.
    let (fast, slow) = (choice.bytes() * 5 + (1 << 30), choice.bytes() * 6 + (1 << 30));
    let mut words = ["run", "--name", "keigo", "--memory", "4GiB"].map(str::to_owned).to_vec();
    words.extend(["--fast".to_owned(), fast.to_string(), "--slow".to_owned(), slow.to_string()]);
    words.extend(["--".to_owned(), own.display().to_string(), "bench".to_owned()]);
    words.push("keigo".to_owned());
    words.extend(arguments.iter().cloned());
    Ok(rig(&words))
}

struct Bench {
    choice: Choice,
    fast: PathBuf,
    slow: PathBuf,
    loaded: BTreeMap<Side, ()>,
}

impl Bench {
    fn run(mut self) -> Result<(), String> {
        let mut measured: BTreeMap<(Workload, Side), f64> = BTreeMap::new();
        let mut lines = Vec::new();
        let rows: Vec<&Row> = ROWS.iter().filter(|row| self.choice.includes(row)).collect();
        for row in rows {
            let sides = [row.over, row.under];
            let missing = |side: &Side| !measured.contains_key(&(row.workload, *side));
            let sides: Vec<Side> = sides.into_iter().filter(missing).collect();
            let mut rates: BTreeMap<Side, Vec<f64>> = BTreeMap::new();
            for side in &sides {
                self.load(*side)?;
            }
            for _ in 0..self.choice.rounds {
                for side in &sides {
                    rates.entry(*side).or_default().push(self.measure(row.workload, *side)?);
                }
            }
            for (side, rates) in rates {
                measured.insert((row.workload, side), median(rates));
            }
            let [over, under] = [row.over, row.under].map(|side| measured[&(row.workload, side)]);
            let ratio = over / under;
            let verdict = if ratio >= row.at_least { "reached" } else { "missed" };
            println!(
                "{:<22} {over:>9.0} {:<5} {under:>9.0} {:<5} {ratio:>6.3}, at least {:.2}: \
                 {verdict}",
                row.name,
                format!("{:?}", row.over).to_lowercase(),
                format!("{:?}", row.under).to_lowercase(),
                row.at_least
            );
            lines.push(format!("ratio keigo/{} {ratio:.3}", row.name));
        }
        lines.iter().for_each(|line| println!("{line}"));
        Ok(())
    }

    /// The directory of a side's database.
    fn db(&self, side: Side) -> PathBuf {
        let device = match side {
            Side::Fast | Side::Tier0 => &self.fast,
            Side::Slow | Side::Tiers | Side::Files => &self.slow,
        };
        device.join(format!("{side:?}-db").to_lowercase())
    }

    /// The tiers of a side; none for RocksDB alone.
    fn uri(&self, side: Side) -> Option<String> {
        let tier = self.fast.join(format!("{side:?}-tier").to_lowercase());
        let data = self.choice.bytes();
        let (capacity, more) = match side {
            Side::Slow | Side::Fast => return None,
            Side::Tiers => (data * self.choice.fast_percent / 100, ""),
            Side::Files => (data * self.choice.fast_percent / 100, "&cache=files"),
            Side::Tier0 => (data * 3, "&placement=fill_first"),
        };
        let tier = tier.display();
        Some(format!("thermocline://?tier={tier}:{capacity}&tier=home:{}{more}", data * 10))
    }

    fn load(&mut self, side: Side) -> Result<(), String> {
        if self.loaded.insert(side, ()).is_some() {
            return Ok(());
        }
        for made in [self.db(side), self.fast.join(format!("{side:?}-tier").to_lowercase())] {
            fs::create_dir_all(&made).map_err(|error| format!("{}: {error}", made.display()))?;
        }
        let load = ["--benchmarks=filluniquerandom,waitforcompaction", "--threads=1"];
        output_of(self.db_bench(side, &load)).map(drop)
    }

    /// Operations a second.
    fn measure(&self, workload: Workload, side: Side) -> Result<f64, String> {
        let benchmarks = format!("--benchmarks={}", workload.benchmark);
        let threads = format!("--threads={}", workload.threads);
        let seconds = format!("--duration={}", self.choice.seconds);
        let mut words = vec!["--use_existing_db=1", &benchmarks, &threads, &seconds];
        words.extend(workload.arguments);
        let said = output_of(self.db_bench(side, &words))?;
        rate(&said, workload.benchmark)
            .ok_or_else(|| format!("db_bench gave no rate of {}: {said}", workload.benchmark))
    }

    fn db_bench(&self, side: Side, more: &[&str]) -> Command {
        let mut command = Command::new("db_bench");
        command.arg(format!("--db={}", self.db(side).display()));
        command.arg(format!("--num={}", self.choice.records));
        let memory = self.choice.bytes() * MEMORY_PERCENT / 100;
        command.arg(format!("--cache_size={memory}")).args(COMMON).args(more);
        // By the power law closest to Zipf's with 0.99: of the records' number, share ~ rank^0.1.
        let scale = (self.choice.records as f64).powf(-0.1);
        command.arg(format!("--key_dist_a={scale}")).arg("--key_dist_b=0.1");
        if let Some(uri) = self.uri(side) {
            let shim = folder().join("libthermocline_preload.so");
            command.env("LD_PRELOAD", shim).arg(format!("--fs_uri={uri}"));
        }
        command
    }
}

/// What all sides have: three levels of small tables, values of one length.
const COMMON: [&str; 18] = [
    "--key_size=16",
    "--value_size=1000",
    "--value_theta=1000",
    "--value_k=0",
    "--value_sigma=0",
    "--mix_max_value_size=1024",
    "--mix_max_scan_len=100",
    "--compression_type=none",
    "--bloom_bits=10",
    "--write_buffer_size=8388608",
    "--target_file_size_base=8388608",
    "--max_bytes_for_level_base=33554432",
    "--max_bytes_for_level_multiplier=8",
    "--max_background_jobs=2",
    "--use_direct_reads=1",
    "--use_direct_io_for_flush_and_compaction=1",
    "--open_files=-1",
    "--seed=1",
];

/// The number before `ops/sec` in the line of a benchmark.
fn rate(said: &str, benchmark: &str) -> Option<f64> {
    let line = said.lines().find(|line| {
        line.starts_with(benchmark) && line.contains(" ops/sec") && line.contains(':')
    })?;
    let (before, _) = line.split_once(" ops/sec")?;
    before.split_whitespace().next_back()?.parse().ok()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_from_the_line_of_its_benchmark() {
        let said = "Keys: 16 bytes each\nreadrandom   :       5.5 micros/op 181234 ops/sec 2.0 \
                    seconds 362468 operations;  176.1 MB/s\n";
        assert_eq!(rate(said, "readrandom"), Some(181_234.0));
        assert_eq!(rate(said, "overwrite"), None);
        assert_eq!(rate("readrandom: failed", "readrandom"), None);
    }

    #[test]
    fn what_is_asked_for_is_checked() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let choice = Choice::parse(&words("--records 2000 --row 7/a --row cost")).unwrap();
        assert_eq!(choice.records, 2000);
        assert_eq!(ROWS.iter().filter(|row| choice.includes(row)).count(), 6);
        for wrong in ["--records", "--records many", "--figure 7"] {
            assert!(Choice::parse(&words(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn of_an_even_number_the_upper_middle_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![2.0, 1.0]), 2.0);
    }
}
