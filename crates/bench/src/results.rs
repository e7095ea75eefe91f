//! `results.json`: everything a run found, in a schema of its own (docs/benchmark-results.md).
//!
//! Invariants:
//! 1. The file is replaced whole after every finished row, so an interrupted run keeps its rows.
//! 2. `schema` and `version` come first; a reader refuses a version that it does not know. Fields
//!    may be added within a version, none changes its meaning.
//! 3. Rows are what was measured, once each; medians and ratios are computed from them
//!    (`summary`), so results of several runs can be put together.

use crate::Outcome;
use crate::store::{CreatedTables, Durability, Layout, SecondLevel, TierSpace, TierTraffic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use thermocline_device::drivers::host_files;
use thermocline_foundation::ByteSize;

/// What the file says it is.
pub const SCHEMA: &str = "thermocline-bench";
/// The version of the schema.
pub const VERSION: u32 = 1;
/// More than any results have.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// A whole file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`VERSION`].
    pub version: u32,
    /// What was compared, for a heading.
    pub title: String,
    /// The command that did it.
    pub command: Vec<String>,
    /// Seconds since 1970 at its start.
    pub started_s: u64,
    /// Where it ran.
    pub machine: Machine,
    /// What was the same for all rows.
    pub scenario: Scenario,
    /// The engines, in the order of their first rows.
    pub engines: Vec<Engine>,
    /// The label that ratios are against; none: the first engine.
    pub baseline: Option<String>,
    /// Everything measured, in order of time.
    pub rows: Vec<Row>,
    /// What was asked for and did not run.
    pub skipped: Vec<Skipped>,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors.
    pub processors: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's version.
    pub kernel: String,
    /// The version of the harness.
    pub harness: String,
}

/// What all rows share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Records loaded.
    pub records: u64,
    /// Bytes of a key where the workload does not say.
    pub key_bytes: u32,
    /// Bytes of a value where the workload does not say.
    pub value_bytes: u32,
    /// Threads that operate.
    pub threads: u32,
    /// Memory that each engine is given.
    pub memory_bytes: u64,
    /// Limit of the whole process, page cache included; none where there is no cgroup.
    pub memory_limit_bytes: Option<u64>,
    /// When a write counts as done, where a row does not say otherwise.
    pub durability: Durability,
    /// Past the page cache.
    pub direct: bool,
    /// Repetitions.
    pub rounds: u32,
    /// The first seed.
    pub seed: u64,
    /// Capacity of the fast tier in layout `tiers`, in bytes.
    pub fast_bytes: u64,
    /// The slow device, as far as it is known: what the bound is computed from.
    pub slow_device: Option<SlowDevice>,
    /// More facts for the report: the rig, the profile, prices.
    pub notes: BTreeMap<String, String>,
}

/// What the slow tier can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowDevice {
    /// Reads a second.
    pub read_iops: Option<f64>,
    /// Writes a second.
    pub write_iops: Option<f64>,
    /// Bytes read a second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written a second.
    pub write_bytes_per_s: Option<f64>,
}

/// An engine of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// Its label, as in the rows.
    pub label: String,
    /// What it is and its version.
    pub about: String,
    /// Which directories it had.
    pub layout: Layout,
    /// What was in force, as the engine says it.
    pub options: Vec<(String, String)>,
}

/// Something that did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// The engine's label.
    pub engine: String,
    /// The workload; none: all of them.
    pub workload: Option<String>,
    /// Why, and the way out.
    pub reason: String,
}

/// Which row this is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The engine's label.
    pub engine: String,
    /// The workload's name, options included.
    pub workload: String,
    /// From 1.
    pub round: u32,
    /// Seed of this row.
    pub seed: u64,
    /// Durability of this row.
    pub durability: Durability,
    /// The directories with their capacities.
    pub tiers: Vec<TierSpace>,
    /// What was measured; none where it failed.
    pub measured: Option<Measured>,
    /// Why it failed, in one line.
    pub failure: Option<String>,
}

/// What one cell measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Operations of the measured part.
    pub operations: u64,
    /// Its length.
    pub seconds: f64,
    /// operations / seconds.
    pub ops_per_s: f64,
    /// The same over the last tenth of the operations (HotRAP's figure).
    pub last_tenth_ops_per_s: f64,
    /// Operations a second of the writer beside the others, which are not in `operations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_ops_per_s: Option<f64>,
    /// By kind of operation, and `all`; from call to return.
    pub latency: BTreeMap<String, Latency>,
    /// With `--rate`: the same from the moment the operation was due (free of coordinated
    /// omission).
    pub latency_from_due: BTreeMap<String, Latency>,
    /// The rate asked for; none: as fast as it goes.
    pub rate_per_s: Option<f64>,
    /// Operations finished in each second.
    pub timeline: Vec<u64>,
    /// Processor seconds of the whole process in the measured part.
    pub cpu_s: f64,
    /// Processor time an operation, background work included.
    pub cpu_us_per_op: f64,
    /// Most memory resident in the measured part.
    pub peak_rss_bytes: u64,
    /// What the engine said it used at the end.
    pub engine_memory_bytes: Option<u64>,
    /// Traffic of the measured part by tier, and where the figures come from.
    pub traffic: Traffic,
    /// Bytes of keys and values that were written.
    pub user_written_bytes: u64,
    /// Bytes written to all tiers for each of these; none where nothing was written.
    pub write_amplification: Option<f64>,
    /// Bytes allocated below the tiers for each byte of live keys and values, at the end.
    pub space_amplification: Option<f64>,
    /// The most that files on the fast tier took in the measured part, of its capacity: above 1 the
    /// engine had more than it was told. None without two tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_fast_share: Option<f64>,
    /// Share of all device reads that the fast tier served; none without two tiers' counters.
    pub fast_read_share: Option<f64>,
    /// Reads of the last tier an operation; none without its counters.
    pub slow_reads_per_op: Option<f64>,
    /// Mean time in milliseconds of a merge below the fast tier, with the choice of its range; none
    /// where none ended, or the engine does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demotion_ms: Option<f64>,
    /// The cache of blocks between memory and the slow tier; none where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_level: Option<SecondLevel>,
    /// Tables that were made; none where the engine does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_tables: Option<CreatedTables>,
    /// Times that threads of the store woke up while nothing was asked of it; none where that was
    /// not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_ups: Option<u64>,
    /// Bytes of persistent memory that the engine's index took at the end; none where it has no
    /// such index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_bytes: Option<u64>,
    /// Look-ups that rightly found nothing.
    pub absent: u64,
    /// Values that were checked.
    pub checked: u64,
    /// Seconds of loading or copying, of settling, and of warming up before.
    pub preparation_s: Preparation,
    /// What the best placement would reach; none without the slow device's figures.
    pub bound: Option<Bound>,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Half are below.
    pub p50_us: f64,
    /// 90 % are below.
    pub p90_us: f64,
    /// 99 % are below.
    pub p99_us: f64,
    /// 99.9 % are below.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Where traffic was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrafficSource {
    /// Nowhere.
    #[default]
    None,
    /// By the block devices that the caller named.
    Devices,
    /// By the engine.
    Engine,
    /// By the kernel for the process; one sum for all tiers, the page cache already passed.
    Process,
}

/// Traffic by tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// What counted the bytes.
    pub source: TrafficSource,
    /// Tier by tier, fastest first; one entry in all from `process`.
    pub tiers: Vec<TierTraffic>,
}

/// Seconds before the measured part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    /// Copying the loaded state.
    pub copy: f64,
    /// Opening.
    pub open: f64,
    /// Warming up.
    pub warm_up: f64,
    /// After the measured part: until background work was done.
    pub settle: f64,
}

/// What the best possible placement would reach (`bound`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Share of the records that fit into memory and fast tier.
    pub resident_share: f64,
    /// Least share of reads that must go to the slow tier.
    pub miss_rate: f64,
    /// Throughput that the slow tier then allows.
    pub ops_per_s: f64,
    /// The row's throughput as a share of it.
    pub share: f64,
}

impl Results {
    /// Results without rows.
    pub fn new(title: &str, scenario: Scenario, machine: Machine, started_s: u64) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            title: title.to_owned(),
            command: Vec::new(),
            started_s,
            machine,
            scenario,
            engines: Vec::new(),
            baseline: None,
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Reads a file of results.
    pub fn read(path: &Path) -> Outcome<Self> {
        let bytes = host_files::read(path, FILE_BYTES_MAX)?;
        let shown = path.display();
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| format!("{shown} is not JSON: {error}"))?;
        let version = value.get("version").and_then(serde_json::Value::as_u64);
        if value.get("schema").and_then(serde_json::Value::as_str) != Some(SCHEMA) {
            return Err(format!("{shown} holds no results of {SCHEMA}").into());
        }
        if version != Some(VERSION.into()) {
            let found = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(format!(
                "{shown} has version {found} of the schema, this program reads {VERSION}; \
                 use the program that wrote it"
            )
            .into());
        }
        serde_json::from_value(value).map_err(|error| format!("{shown}: {error}").into())
    }

    /// Replaces the file at `path` by these results.
    pub fn write(&self, path: &Path) -> Outcome<()> {
        Ok(host_files::write_text(path, &serde_json::to_string_pretty(self)?)?)
    }

    /// Takes in the rows of another file: further rounds, engines or workloads of this scenario.
    /// Rounds go on counting where an engine and workload is in both.
    pub fn join(&mut self, other: Self) {
        let before = self.rows.clone();
        for mut row in other.rows {
            let same = |old: &&Row| {
                (&old.engine, &old.workload, old.durability)
                    == (&row.engine, &row.workload, row.durability)
            };
            let rounds = before.iter().filter(same).map(|old| old.round).max().unwrap_or(0);
            row.round += rounds;
            self.rows.push(row);
        }
        for engine in other.engines {
            if !self.engines.iter().any(|known| known.label == engine.label) {
                self.engines.push(engine);
            }
        }
        for skipped in other.skipped {
            if !self.skipped.contains(&skipped) {
                self.skipped.push(skipped);
            }
        }
        self.scenario.rounds += other.scenario.rounds;
    }

    /// Bytes of all records loaded.
    pub fn data_bytes(&self) -> ByteSize {
        let record = u64::from(self.scenario.key_bytes) + u64::from(self.scenario.value_bytes);
        ByteSize(self.scenario.records.saturating_mul(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results with something in every field.
    fn full() -> Results {
        let tier = TierTraffic {
            reads: 1,
            read_bytes: 4096,
            writes: 2,
            written_bytes: 8192,
            ..TierTraffic::default()
        };
        let latency = Latency { count: 3, mean_us: 1.5, p999_us: 9.25, ..Latency::default() };
        let measured = Measured {
            operations: 3,
            seconds: 0.5,
            ops_per_s: 6.0,
            latency: BTreeMap::from([("all".to_owned(), latency), ("read".to_owned(), latency)]),
            latency_from_due: BTreeMap::from([("all".to_owned(), latency)]),
            rate_per_s: Some(10.0),
            timeline: vec![3],
            engine_memory_bytes: Some(1 << 20),
            traffic: Traffic { source: TrafficSource::Engine, tiers: vec![tier, tier] },
            write_amplification: Some(1.5),
            space_amplification: Some(1.25),
            fast_read_share: Some(0.5),
            peak_fast_share: Some(1.75),
            slow_reads_per_op: Some(0.25),
            bound: Some(Bound { resident_share: 0.24, share: 0.5, ..Bound::default() }),
            ..Measured::default()
        };
        let device = SlowDevice { read_iops: Some(10_000.0), ..SlowDevice::default() };
        let scenario = Scenario {
            memory_limit_bytes: Some(1 << 30),
            slow_device: Some(device),
            notes: BTreeMap::from([("rig".to_owned(), "gp3".to_owned())]),
            ..Scenario::default()
        };
        let mut results = Results::new("a test", scenario, Machine::default(), 7);
        results.command.push("thermocline-bench".to_owned());
        results.baseline = Some("null".to_owned());
        results.engines.push(Engine {
            label: "null".to_owned(),
            about: "nothing".to_owned(),
            layout: Layout::Tiers,
            options: vec![("a".to_owned(), "b".to_owned())],
        });
        let tiers = vec![TierSpace {
            name: "fast".to_owned(),
            path: "fast".into(),
            capacity: ByteSize::gib(1),
        }];
        let row = Row {
            engine: "null".to_owned(),
            workload: "ycsb-a".to_owned(),
            round: 1,
            seed: 9,
            durability: Durability::Sync,
            tiers,
            measured: Some(measured),
            failure: None,
        };
        let failure = Some("it broke".to_owned());
        results.rows = vec![row.clone(), Row { measured: None, failure, ..row }];
        let (engine, reason) = ("other".to_owned(), "not fetched".to_owned());
        results.skipped.push(Skipped { engine, workload: None, reason });
        results
    }

    /// A file of version 1 stays readable, and version 1 stays what is written.
    #[test]
    fn the_golden_file_is_what_is_written_and_reads_back() {
        let path: std::path::PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "results-v1.json"].iter().collect();
        if std::env::var_os("THERMOCLINE_BLESS").is_some() {
            crate::files::make(path.parent().unwrap()).unwrap();
            full().write(&path).unwrap();
        }
        assert_eq!(Results::read(&path).unwrap(), full());
        let golden = host_files::read(&path, FILE_BYTES_MAX).unwrap();
        assert_eq!(
            String::from_utf8(golden).unwrap(),
            serde_json::to_string_pretty(&full()).unwrap()
        );
    }

    #[test]
    fn files_that_are_no_results_of_this_version_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let newer = serde_json::to_string(&full()).unwrap();
        let newer = newer.replace("\"version\":1", "\"version\":2");
        for (text, reason) in
            [("{", "not JSON"), ("{\"version\":1}", "no results"), (&newer, "has version 2")]
        {
            host_files::write_text(&path, text).unwrap();
            let error = Results::read(&path).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("results.json"), "{error}");
        }
    }
}
