//! The command line, taken apart.

use crate::block_trace::judge::JudgeArguments;
use crate::cell::{Cell, Purpose, SILENCE_S};
use crate::figures::FigureArguments;
use crate::keigo::KeigoArguments;
use crate::memory::MemoryArguments;
use crate::mynvm::MynvmArguments;
use crate::plan::{Run, Space};
use crate::results::SlowDevice;
use crate::rig::command::RigCommand;
use crate::scenarios::{CommitArguments, ScenarioArguments};
use crate::slmdb::SlmdbArguments;
use crate::spandb::SpandbArguments;
use crate::store::{Durability, TierSpace};
use crate::value_sizes::ValuesArguments;
use crate::values::{VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use crate::{Outcome, workloads};
use clap::{Args, Parser, Subcommand};
use std::collections::BTreeMap;
use std::path::PathBuf;
use thermocline_device::drivers::Profile;
use thermocline_foundation::{ByteSize, Duration};

const EXAMPLES: &str = "\
Examples:
  thermocline-bench list
  thermocline-bench quick
  thermocline-bench run --engine thermocline-leveled,null --workload ycsb --fast /mnt/fast:2GiB \\
      --slow /mnt/slow --records 2M --memory 200MiB --threads 8 --seconds 30 --rounds 3
  thermocline-bench run --engine thermocline-leveled@fast --workload fillrandom,readrandom \\
      --fast /tmp/bench
  thermocline-bench bound --workload ycsb-c --records 6M --resident 24% --slow-profile gp3
  thermocline-bench report results.json --html results.html
  thermocline-bench tiers --rounds 2
  thermocline-bench tiers --engine thermocline-hybrid@tiers+runs=6+pinning=50,rocksdb@tiers
  thermocline-bench prismdb --figure 6
  thermocline-bench commit --rounds 1
  thermocline-bench spandb --figure 11,t2 --medium through
  thermocline-bench values --largest 64MiB
  thermocline-bench memory --memory 64MiB --row leveled/scans,hybrid/large

An engine is NAME[@fast|slow|tiers][+OPTION=VALUE]..., a workload NAME[/MODIFIER]...:
ycsb-c/uniform, ycsb-a/zipf-0.8/value-4KiB/sync, hotrap-ro/hotspot-5, trace:FILE.";

/// Runs workloads on key-value stores over one or two tiers and checks every value it reads
#[derive(Debug, Parser)]
#[command(name = "thermocline-bench", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Task,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Measure engines on workloads, side by side
    Run(Box<RunArguments>),
    /// A small comparison in under three minutes, without root; prints `ratio NAME VALUE` lines
    Quick(QuickArguments),
    /// Show what the harness itself costs, by the engine that does nothing
    Generator(GeneratorArguments),
    /// Compare RocksDB in this harness with RocksDB's own db_bench
    Agree(AgreeArguments),
    /// Bytes a second by the size of values, from 4 KiB to 256 MiB, on plain directories
    Values(ValuesArguments),
    /// Hits and bytes written of each admission and eviction of the cache of blocks, on a trace
    Judge(JudgeArguments),
    /// The most memory that is resident while the store does one thing, beside its setting
    Memory(MemoryArguments),
    /// Name the engines with their options, and the workloads
    List,
    /// Compute what the best possible placement would reach
    Bound(BoundArguments),
    /// Show results as a table, or write them as a page; several files are put together
    Report(ReportArguments),
    /// The comparison over two tiers on the rig, in under 40 minutes; needs root
    Tiers(ScenarioArguments),
    /// Leveled against RocksDB on one fast device of the rig; needs root
    Single(ScenarioArguments),
    /// Every engine on every workload, over two tiers and one; hours, needs root
    Full(ScenarioArguments),
    /// Slots at once against a log first, on the fast device of the rig; needs root
    Commit(CommitArguments),
    /// The figures of PrismDB's evaluation with the preset hybrid; minutes each, needs root
    Prismdb(FigureArguments),
    /// The figures of SpanDB's evaluation, ours beside RocksDB on one device; needs root
    Spandb(Box<SpandbArguments>),
    /// The figures of MyNVM's evaluation: large memory, small memory, and that with a cache of
    /// blocks on the fast tier; needs root
    Mynvm(Box<MynvmArguments>),
    /// The figures of Keigo's evaluation: RocksDB and LevelDB over tiers by our plugin, beside
    /// themselves on one device; needs root
    Keigo(Box<KeigoArguments>),
    /// The figures of SLM-DB's evaluation: an index in emulated persistent memory, beside LevelDB;
    /// needs root
    Slmdb(Box<SlmdbArguments>),
    /// Two block devices and a memory limit, for any program
    Rig {
        /// What to do with it
        #[command(subcommand)]
        command: RigCommand,
    },
    /// One cell of a run; started by `run`
    #[command(hide = true)]
    Cell {
        /// The cell
        #[arg(long)]
        json: String,
    },
}

/// `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Engines, `NAME[@fast|slow|tiers][+OPTION=VALUE]...`; see `list`
    #[arg(long, value_delimiter = ',', required = true)]
    pub engine: Vec<String>,
    /// Workloads and sets of them, `NAME[/MODIFIER]...`; see `list`
    #[arg(long, required = true)]
    pub workload: String,
    /// The fast tier; the capacity counts in layout `tiers`
    #[arg(long, value_name = "DIR[:CAPACITY]", value_parser = parse_space)]
    pub fast: Option<Space>,
    /// The slow tier
    #[arg(long, value_name = "DIR[:CAPACITY]", value_parser = parse_space)]
    pub slow: Option<Space>,
    /// The fast tier's block device, such as loop0: its counters are then used
    #[arg(long, value_name = "NAME")]
    pub fast_device: Option<String>,
    /// The slow tier's block device
    #[arg(long, value_name = "NAME")]
    pub slow_device: Option<String>,
    /// What the slow tier can do, for the bound: gp3, qlc-660p, tlc-nvme, sata, hdd
    #[arg(long, value_name = "PROFILE")]
    pub slow_profile: Option<String>,
    /// Where loaded states are kept; else below the slow or fast directory
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// Leave the loaded states for the next run
    #[arg(long)]
    pub keep_images: bool,
    /// Records, such as 100000, 500k or 2M
    #[arg(long, default_value = "1M", value_parser = parse_count)]
    pub records: u64,
    /// Bytes of a key, where the workload does not say
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(8..=1024))]
    pub key_size: u32,
    /// Bytes of a value, where the workload does not say
    #[arg(long, default_value = "1000", value_parser = parse_value_size)]
    pub value_size: u32,
    /// Share that values shrink to when compressed
    #[arg(long, default_value_t = 0.5)]
    pub compression_ratio: f64,
    /// Threads
    #[arg(long, default_value_t = 8)]
    pub threads: u32,
    /// Memory for each engine: caches, write buffers and indexes
    #[arg(long, default_value = "256MiB")]
    pub memory: ByteSize,
    /// Limit of the whole process, page cache included; given to the command in front as
    /// MEMORY_LIMIT and what the bound counts as memory
    #[arg(long)]
    pub memory_limit: Option<ByteSize>,
    /// When a write counts as done
    #[arg(long, value_enum, default_value_t = Durability::Buffered)]
    pub durability: Durability,
    /// Past the page cache, where an engine can
    #[arg(long)]
    pub direct: bool,
    /// Operations of each row; else as many as records
    #[arg(long, value_parser = parse_count)]
    pub operations: Option<u64>,
    /// Seconds of each row at most
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Operations before that which are not measured
    #[arg(long, value_parser = parse_count)]
    pub warm_up_operations: Option<u64>,
    /// Seconds of them at most
    #[arg(long)]
    pub warm_up_seconds: Option<f64>,
    /// Operations a second that are due; latencies then also count from when they were due
    #[arg(long)]
    pub rate: Option<f64>,
    /// Wait for background work at the end of a row and count its traffic
    #[arg(long)]
    pub settle: bool,
    /// Look every loaded record up at the end of a row and check it
    #[arg(long)]
    pub read_back: bool,
    /// Repetitions
    #[arg(long, default_value_t = 1)]
    pub rounds: u32,
    /// Seed of the first round
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The engine that ratios are against; else the first
    #[arg(long, value_name = "ENGINE")]
    pub baseline: Option<String>,
    /// Where the results go
    #[arg(long, default_value = "results.json", value_name = "FILE")]
    pub results: PathBuf,
    /// A heading
    #[arg(long, default_value = "thermocline-bench")]
    pub title: String,
    /// A fact for the report, NAME=VALUE; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_note)]
    pub note: Vec<(String, String)>,
    /// Seconds without a sign of life after which a row's process is ended and the row fails
    #[arg(long, default_value_t = SILENCE_S)]
    pub silence_seconds: f64,
    /// A command put in front of each cell's process, such as 'nice -n -10'
    #[arg(long, value_name = "COMMAND")]
    pub in_front: Option<String>,
}

/// `quick`.
#[derive(Debug, Args)]
pub struct QuickArguments {
    /// A directory for the stores; made and removed
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where the results go
    #[arg(long, default_value = "results.json", value_name = "FILE")]
    pub results: PathBuf,
    /// Seconds of each row
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Records
    #[arg(long, default_value = "60k", value_parser = parse_count)]
    pub records: u64,
}

/// `generator`.
#[derive(Debug, Args)]
pub struct GeneratorArguments {
    /// Workloads and sets of them
    #[arg(long, default_value = "all")]
    pub workload: String,
    /// Records
    #[arg(long, default_value = "1M", value_parser = parse_count)]
    pub records: u64,
    /// Operations of each row
    #[arg(long, default_value = "2M", value_parser = parse_count)]
    pub operations: u64,
    /// Repetitions, of which the cheapest counts
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
}

/// `agree`.
#[derive(Debug, Args)]
pub struct AgreeArguments {
    /// RocksDB's own benchmark (cargo xtask rivals db_bench)
    #[arg(long, value_name = "PROGRAM")]
    pub db_bench: PathBuf,
    /// A directory on the device to measure on; made and removed
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Records
    #[arg(long, default_value = "500k", value_parser = parse_count)]
    pub records: u64,
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub threads: u32,
    /// Memory for RocksDB
    #[arg(long, default_value = "128MiB")]
    pub memory: ByteSize,
    /// Past the page cache
    #[arg(long)]
    pub direct: bool,
    /// Repetitions; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: u32,
}

/// `bound`.
#[derive(Debug, Args)]
pub struct BoundArguments {
    /// Workloads and sets of them
    #[arg(long, default_value = "ycsb")]
    pub workload: String,
    /// Records
    #[arg(long, default_value = "6M", value_parser = parse_count)]
    pub records: u64,
    /// Bytes of a key
    #[arg(long, default_value_t = 24)]
    pub key_size: u32,
    /// Bytes of a value, where the workload does not say
    #[arg(long, default_value = "1000", value_parser = parse_value_size)]
    pub value_size: u32,
    /// What memory and fast tier hold: a share such as 24%, or bytes such as 2GiB
    #[arg(long, default_value = "24%")]
    pub resident: String,
    /// What the slow tier can do
    #[arg(long, default_value = "gp3")]
    pub slow_profile: String,
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArguments {
    /// Files of results
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The engine that ratios are against
    #[arg(long, value_name = "ENGINE")]
    pub baseline: Option<String>,
    /// Write a page with plots instead of the table
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// What its projections assume: fast and slow in $/GB, dwpd, warranty in years, gb of data
    #[arg(long, value_name = "NAME=NUMBER,...", requires = "html")]
    pub prices: Option<String>,
}

fn parse_space(text: &str) -> Result<Space, String> {
    // A path may hold colons; a last part that is a size is the capacity.
    let (path, capacity) = match text.rsplit_once(':') {
        Some((path, size)) => match size.parse::<ByteSize>() {
            Ok(capacity) => (path, Some(capacity)),
            Err(error) if !size.contains('/') => return Err(error.to_string()),
            Err(_) => (text, None),
        },
        None => (text, None),
    };
    if path.is_empty() {
        return Err(format!("'{text}' names no directory; write DIR[:CAPACITY]"));
    }
    Ok(Space { path: PathBuf::from(path), capacity, device: None })
}

/// A number with `k` or `M` for thousands and millions.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let (digits, scale) = match trimmed.char_indices().last() {
        Some((at, 'k' | 'K')) => (&trimmed[..at], 1_000.0),
        Some((at, 'm' | 'M')) => (&trimmed[..at], 1_000_000.0),
        _ => (trimmed, 1.0),
    };
    let number = digits.parse::<f64>().ok().map(|number| number * scale);
    number
        .filter(|number| (1.0..=1e12).contains(number) && number.fract() == 0.0)
        .map(|number| number as u64)
        .ok_or_else(|| format!("'{text}' is not a number; write one such as 100000, 500k or 2M"))
}

fn parse_value_size(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<ByteSize>().map_err(|error| error.to_string())?.0;
    let fits = u32::try_from(bytes).ok();
    fits.filter(|bytes| (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(bytes)).ok_or_else(|| {
        format!("{text} is out of range; it must be {VALUE_BYTES_MIN} to {VALUE_BYTES_MAX} B")
    })
}

fn parse_note(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| format!("'{text}' is not NAME=VALUE"))
}

/// The figures of a named device.
pub fn slow_device(profile: &str) -> Outcome<SlowDevice> {
    let model = profile.parse::<Profile>()?.model();
    // The channels bound reads where no limit of the device is named.
    let by_latency = |latency: Duration| f64::from(model.channels) / latency.0.as_secs_f64();
    let read = model.read_iops_max.map_or_else(|| by_latency(model.read_latency), |n| n as f64);
    let write = model.write_iops_max.map_or_else(|| by_latency(model.write_latency), |n| n as f64);
    Ok(SlowDevice {
        read_iops: Some(read),
        write_iops: Some(write),
        read_bytes_per_s: Some(model.read_bytes_per_s.0 as f64),
        write_bytes_per_s: Some(model.write_bytes_per_s.0 as f64),
    })
}

impl RunArguments {
    /// Refuses what cannot be, naming option, value and range.
    fn check(&self) -> Outcome<()> {
        let positive = |name: &str, value: Option<f64>| match value {
            Some(value) if !(value > 0.0 && value.is_finite()) => {
                Err(format!("--{name} {value} is out of range; it must be above 0"))
            }
            _ => Ok(()),
        };
        positive("seconds", self.seconds)?;
        positive("warm-up-seconds", self.warm_up_seconds)?;
        positive("rate", self.rate)?;
        positive("silence-seconds", Some(self.silence_seconds))?;
        if !(0.0..=1.0).contains(&self.compression_ratio) {
            let ratio = self.compression_ratio;
            return Err(
                format!("--compression-ratio {ratio} is out of range; it must be 0 to 1").into()
            );
        }
        Ok(())
    }

    /// What all cells have in common.
    fn cell(&self) -> Outcome<Cell> {
        Ok(Cell {
            seed: self.seed,
            records: self.records,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            compression_ratio: self.compression_ratio,
            threads: self.threads,
            memory: self.memory,
            memory_limit: self.memory_limit,
            durability: self.durability,
            direct: self.direct,
            tiers: Vec::new(),
            operations: self.operations,
            seconds: self.seconds,
            warm_up_operations: self.warm_up_operations,
            warm_up_seconds: self.warm_up_seconds,
            rate: self.rate,
            slow_device: self.slow_profile.as_deref().map(slow_device).transpose()?,
            settle: self.settle,
            read_back: self.read_back,
            silence_s: self.silence_seconds,
            ..example_cell()
        })
    }

    /// The run that the arguments describe.
    pub fn run(self) -> Outcome<Run> {
        self.check()?;
        let cell = self.cell()?;
        let named = workloads::parse_list(&self.workload)?;
        let with = |space: Option<Space>, device: Option<String>| {
            space.map(|space| Space { device, ..space })
        };
        let (fast, slow) = (with(self.fast, self.fast_device), with(self.slow, self.slow_device));
        let beside = slow.as_ref().or(fast.as_ref()).map(|space| space.path.clone());
        let images = match (self.images, beside) {
            (Some(images), _) => images,
            (None, Some(path)) => path.join("thermocline-bench-images"),
            (None, None) => return Err("name a directory with --fast DIR or --slow DIR".into()),
        };
        let mut notes: BTreeMap<String, String> = self.note.into_iter().collect();
        if let Some(profile) = self.slow_profile {
            notes.insert("slow profile".to_owned(), profile);
        }
        Ok(Run {
            title: self.title,
            cell,
            engines: self.engine,
            workloads: named.into_iter().map(|workload| workload.name).collect(),
            pairs: None,
            rounds: self.rounds,
            fast,
            slow,
            region: None,
            images,
            keep_images: self.keep_images,
            baseline: self.baseline,
            results: self.results,
            notes,
        })
    }
}

/// A small cell of the null engine, to begin from.
pub fn example_cell() -> Cell {
    Cell {
        purpose: Purpose::Run,
        engine: "null@fast".to_owned(),
        workload: "ycsb-c".to_owned(),
        round: 1,
        seed: 1,
        records: 10_000,
        key_bytes: 24,
        value_bytes: 1000,
        compression_ratio: 0.5,
        threads: 2,
        memory: ByteSize::mib(32),
        memory_limit: None,
        durability: Durability::Buffered,
        direct: false,
        tiers: vec![TierSpace {
            name: "fast".to_owned(),
            path: PathBuf::from("fast"),
            capacity: ByteSize::gib(1),
        }],
        operations: None,
        seconds: None,
        warm_up_operations: None,
        warm_up_seconds: None,
        rate: None,
        devices: Vec::new(),
        slow_device: None,
        settle: false,
        read_back: false,
        crashed: false,
        rest_seconds: None,
        silence_s: SILENCE_S,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_its_help_has_examples() {
        Arguments::command().debug_assert();
        let help = Arguments::command().render_help().to_string();
        assert!(help.contains("Examples:") && help.contains("thermocline-bench quick"));
    }

    #[test]
    fn counts_sizes_and_directories_are_read_as_people_write_them() {
        assert_eq!(parse_count("2M"), Ok(2_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1_500));
        for wrong in ["", "0", "-1", "1.5", "many", "k"] {
            assert!(parse_count(wrong).is_err(), "{wrong}");
        }
        let space = parse_space("/mnt/a:b/c:2GiB").unwrap();
        assert_eq!(space.path, PathBuf::from("/mnt/a:b/c"));
        assert_eq!(space.capacity, Some(ByteSize::gib(2)));
        assert_eq!(parse_space("/mnt/a:b/c").unwrap().capacity, None);
        assert!(parse_space("/mnt/a:lots").is_err() && parse_space(":2GiB").is_err());
        assert!(parse_value_size("1").is_err() && parse_value_size("2MiB").is_err());
        let gp3 = slow_device("gp3").unwrap();
        assert_eq!((gp3.read_iops, gp3.read_bytes_per_s), (Some(10_000.0), Some(300e6)));
        assert!(slow_device("floppy").unwrap_err().to_string().contains("there are"));
    }

    fn refused(more: &[&str]) -> String {
        let words = [
            "thermocline-bench",
            "run",
            "--engine",
            "null",
            "--workload",
            "ycsb-a",
            "--fast",
            "/f",
        ];
        let parsed = Arguments::try_parse_from(words.iter().chain(more)).unwrap();
        let Task::Run(arguments) = parsed.command else { panic!("not a run") };
        arguments.run().unwrap_err().to_string()
    }

    #[test]
    fn values_that_cannot_be_are_refused_with_their_range() {
        assert!(refused(&["--seconds", "0"]).contains("must be above 0"));
        assert!(refused(&["--rate=-5"]).contains("must be above 0"));
        assert!(refused(&["--compression-ratio", "2"]).contains("0 to 1"));
        assert!(refused(&["--slow-profile", "floppy"]).contains("there are"));
    }
}
