//! The comparisons that people run by name: what is compared, how large, on which devices.
//!
//! ```text
//!   tiers    data 10x memory (--data-over-memory), a fast tier of 20 % (--fast-percent), slow
//!            device gp3, 8 threads: every way to use two tiers, and all-fast and all-slow as its
//!            ends; ten rows, about 7 minutes for each engine
//!   single   leveled against RocksDB on the fast device, data 10x memory, buffered and synced
//!   full     tiers with every workload on both profiles, and single with every engine
//!   commit   two ways to commit to the fast tier and the preset that has one of them, updates
//!            alone, on the fast device; records of 1 KB and of 128 B
//! ```
//! All run on the rig. Where the machine can have none, `tiers` says why and runs what it can: our
//! engines on the emulated device, and no rivals.
//!
//! Invariant: sizes follow from the number of records and the shares below, never from the engine.

use crate::cell::Cell;
use crate::command::arguments::{example_cell, parse_count};
use crate::plan::{InFront, Run, Space};
use crate::report::commit;
use crate::results::{Results, Skipped};
use crate::rig::launcher::InRig;
use crate::rig::plan::{Design, Medium};
use crate::rig::profile::Profile;
use crate::rig::{Rig, command::possible};
use crate::rows::place::region;
use crate::store::EngineKind;
use crate::{Outcome, slmdb, workloads};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use thermocline_foundation::ByteSize;

/// Bytes of a record with its key.
const RECORD_BYTES: u64 = 1024;
/// What the harness takes besides: the program with every engine's code, histograms of each thread,
/// versions of records. The null engine's process has 45 MB resident; RocksDB's library adds 17.
const HARNESS_BYTES: u64 = 64 << 20;
/// What an engine may divide among its caches and buffers, in percent of that memory. The rest is
/// for what its options do not count, the allocator and the page cache.
const ENGINE_PERCENT: u64 = 60;
/// Device bytes for each byte of data where all of it lies on one device, in percent: a store that
/// is compacting exists twice in part, and redb grows by doubling.
const ROOM_PERCENT: u64 = 300;
/// Besides that: logs, and what stores reserve for files that they begin.
const ROOM_BYTES: u64 = 256 << 20;

/// As many records as asked for, of [`RECORD_BYTES`].
pub(crate) const USUAL_RECORDS: (u64, u32) = (1, 1000);

pub(crate) const OURS: &str = "thermocline-leveled@tiers";
pub(crate) const HYBRID: &str = "thermocline-hybrid@tiers";
/// The preset with an index in persistent memory, which runs where it is named.
const INDEXED: &str = "thermocline-indexed@";
pub(crate) const TUNED: &str = "rocksdb@tiers+levels=tuned";
const BASELINE: &str = TUNED;

/// Way (a), past the page cache and through it; way (b); and the preset that has it.
const COMMIT_ENGINES: [&str; 4] = [
    COMMIT_BASELINE,
    "thermocline-commit-slots@fast+driver=posix",
    "thermocline-commit-log@fast",
    HYBRID,
];
const COMMIT_BASELINE: &str = "thermocline-commit-slots@fast";
const COMMIT_WORKLOADS: &str = "\
    overwrite/zipf-0.99/threads-1/sync,overwrite/zipf-0.99/threads-8/sync,\
    overwrite/uniform/threads-1/sync,overwrite/uniform/threads-8/sync,\
    overwrite/zipf-0.99/threads-1/buffered,overwrite/zipf-0.99/threads-8/buffered,\
    overwrite/uniform/threads-1/buffered,overwrite/uniform/threads-8/buffered";
/// Records for each one that is asked for, and bytes of their values; keys have 24 bytes.
const COMMIT_RECORDS: [(&str, u64, u32); 2] = [("1KB", 1, 1000), ("128B", 2, 104)];

/// A comparison by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Two tiers.
    Tiers,
    /// One fast device.
    Single,
    /// Everything.
    Full,
    /// Ways to commit.
    Commit,
}

/// What can be changed about a comparison.
#[derive(Clone, Debug, clap::Args)]
pub struct ScenarioArguments {
    /// Records of 1 KB; memory and tiers follow from it
    #[arg(long, default_value = "1500k", value_parser = parse_count)]
    pub records: u64,
    /// Bytes of data for each byte of memory that a process may use, the harness apart
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub data_over_memory: u64,
    /// The fast tier's share of the data, in percent
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=100))]
    pub fast_percent: u64,
    /// Repetitions
    #[arg(long, default_value_t = 2)]
    pub rounds: u32,
    /// Seconds of each row
    #[arg(long, default_value_t = 6.0)]
    pub seconds: f64,
    /// Seconds before that which are not measured
    #[arg(long, default_value_t = 3.0)]
    pub warm_up_seconds: f64,
    /// Threads
    #[arg(long, default_value_t = 8)]
    pub threads: u32,
    /// Seed of the first round
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Other engines than the scenario's
    #[arg(long, value_delimiter = ',')]
    pub engine: Vec<String>,
    /// Other workloads than the scenario's
    #[arg(long)]
    pub workload: Option<String>,
    /// The engine that ratios are against; else RocksDB
    #[arg(long, value_name = "ENGINE")]
    pub baseline: Option<String>,
    /// What the slow device can do: gp3 or qlc
    #[arg(long, default_value = "gp3")]
    pub profile: String,
    /// A directory on the disk that carries the slow device and the loaded states
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    pub disk: PathBuf,
    /// Priority of each run, -20 (first) to 19: for a machine that does other things too
    #[arg(long, default_value_t = 0, allow_hyphen_values = true,
        value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: i8,
    /// The rig's name, where several are up at once
    #[arg(long, default_value = "bench")]
    pub rig: String,
    /// Where the results go; the page lies beside it
    #[arg(long, default_value = "results.json", value_name = "FILE")]
    pub results: PathBuf,
}

/// One run of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Of its file of results, where there are several.
    pub name: String,
    /// A heading.
    pub title: String,
    /// Labels.
    pub engines: Vec<String>,
    /// A list of them.
    pub workloads: &'static str,
    /// Of the slow device.
    pub profile: String,
    /// Whether anything lies on the slow device.
    pub tiered: bool,
    /// Whether what is on the fast tier stays there.
    pub all_fast: bool,
    /// Records for each one that was asked for, and bytes of their values.
    pub records: (u64, u32),
    /// Facts for the report.
    pub notes: BTreeMap<String, String>,
}

const TIERS_ENGINES: [&str; 7] = [
    OURS,
    HYBRID,
    "rocksdb@tiers",
    TUNED,
    "rocksdb@tiers+levels=tuned+row-cache",
    "rocksdb@fast",
    "rocksdb@slow",
];
/// Ten rows.
const TIERS_WORKLOADS: &str = "load,ycsb-c,ycsb-b,ycsb-a,ycsb-f,ycsb-d,ycsb-e,\
                               ycsb-c/uniform,hotrap-ro/hotspot-5,ycsb-a/sync";
const SINGLE_WORKLOADS: &str = "fillrandom,fillrandom/sync,overwrite,overwrite/sync,readrandom,\
                                readseq,seekrandom,readwhilewriting,readwhilewriting/sync";
const FULL_WORKLOADS: &str = "load,ycsb,hotrap,twitter,prefix_dist,nutanix,linkbench,\
                              ycsb-c/uniform,ycsb-a/sync";

impl ScenarioArguments {
    fn sizes(&self) -> Sizes {
        sizes(self.records, self.data_over_memory, self.fast_percent)
    }
}

impl Scenario {
    fn parts(self, arguments: &ScenarioArguments) -> Vec<Part> {
        let memory = arguments.sizes().memory;
        let tiers = |name: &str, profile: &str, workloads, engines: &[&str]| Part {
            name: name.to_owned(),
            title: format!("two tiers, slow device {profile}"),
            engines: engines.iter().map(|label| with_row_cache(label, memory)).collect(),
            workloads,
            profile: profile.to_owned(),
            tiered: true,
            all_fast: false,
            records: USUAL_RECORDS,
            notes: BTreeMap::new(),
        };
        let single = |engines: &[&str]| Part {
            name: "single".to_owned(),
            title: "one fast device".to_owned(),
            engines: engines.iter().map(|label| (*label).to_owned()).collect(),
            workloads: SINGLE_WORKLOADS,
            profile: arguments.profile.clone(),
            tiered: false,
            all_fast: false,
            records: USUAL_RECORDS,
            notes: BTreeMap::new(),
        };
        let all_single = [
            "thermocline-leveled@fast",
            "rocksdb@fast",
            "leveldb@fast",
            "lmdb@fast",
            "redb@fast",
            "fjall@fast",
            "sled@fast",
        ];
        let with_absent = [&TIERS_ENGINES[..], &["hotrap", "prismdb"]].concat();
        match self {
            Self::Tiers => {
                vec![tiers("tiers", &arguments.profile, TIERS_WORKLOADS, &TIERS_ENGINES)]
            }
            Self::Single => vec![single(&all_single[..2])],
            Self::Full => vec![
                tiers("gp3", "gp3", FULL_WORKLOADS, &with_absent),
                tiers("qlc", "qlc", FULL_WORKLOADS, &with_absent),
                single(&all_single),
            ],
            Self::Commit => COMMIT_RECORDS.map(|records| commit_part(records, arguments)).into(),
        }
    }
}

/// Ways to commit records of one size.
fn commit_part(
    (name, records, value_bytes): (&str, u64, u32),
    arguments: &ScenarioArguments,
) -> Part {
    Part {
        name: name.to_owned(),
        title: format!("ways to commit, records of {name}"),
        engines: COMMIT_ENGINES.map(str::to_owned).to_vec(),
        workloads: COMMIT_WORKLOADS,
        profile: arguments.profile.clone(),
        tiered: false,
        all_fast: true,
        records: (records, value_bytes),
        notes: BTreeMap::from([(commit::NOTE.to_owned(), commit::NOTED.to_owned())]),
    }
}

/// A label whose row cache has no size gets half of the memory that engines are given.
fn with_row_cache(label: &str, memory: ByteSize) -> String {
    let mebibytes = memory.0 / 2 / (1 << 20);
    match label.strip_suffix("+row-cache") {
        Some(rest) => format!("{rest}+row-cache={mebibytes}MiB"),
        None => label.to_owned(),
    }
}

/// Of folders with regions.
const REGION_WORD: &str = "tiers";

/// A label of the preset `indexed` that names no region gets one for so many `keys`, in which a
/// flushed line takes as long as in the paper.
fn with_region(label: &String, memory: ByteSize, keys: u64) -> String {
    if !label.starts_with(INDEXED) || label.contains("+persistent-memory=") {
        return label.clone();
    }
    let mib = slmdb::region_mib(memory.0, keys);
    format!("{label}+persistent-memory={mib}MiB+persistent-memory-driver=emulated-500ns")
}

/// `commit`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    mut_arg("records", |argument| argument.default_value("200k")),
    mut_arg("data_over_memory", |argument| argument.default_value("2")),
    after_help = "Example:\n  thermocline-bench commit --rounds 1 --engine thermocline-hybrid@tiers"
)]
pub struct CommitArguments {
    /// Sizes and lengths.
    #[command(flatten)]
    pub scenario: ScenarioArguments,
}

/// What follows from the number of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    data: ByteSize,
    /// Of the whole process, the harness included.
    limit: ByteSize,
    /// Of the engine.
    memory: ByteSize,
    /// Capacity of the fast tier in layout `tiers`.
    fast: ByteSize,
    /// Of a device that holds everything.
    room: ByteSize,
}

fn sizes(records: u64, data_over_memory: u64, fast_percent: u64) -> Sizes {
    let data = records.saturating_mul(RECORD_BYTES);
    let memory = data / data_over_memory;
    let percent = |of: u64, percent: u64| ByteSize(of / 100 * percent);
    Sizes {
        data: ByteSize(data),
        limit: ByteSize(memory + HARNESS_BYTES),
        memory: percent(memory, ENGINE_PERCENT),
        fast: percent(data, fast_percent),
        room: room_for(data),
    }
}

/// Of a device that holds so many bytes of data.
pub(crate) fn room_for(data: u64) -> ByteSize {
    ByteSize(data / 100 * ROOM_PERCENT + ROOM_BYTES)
}

/// Runs all parts of a scenario; returns where the results of each are, and the results.
pub fn run(
    scenario: Scenario,
    arguments: &ScenarioArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<Vec<(PathBuf, Results)>> {
    run_parts(scenario.parts(arguments), arguments, (engines, program, started_s), say)
}

/// Runs `parts`, each into a file of its own where there are several.
pub(crate) fn run_parts(
    parts: Vec<Part>,
    arguments: &ScenarioArguments,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Vec<(PathBuf, Results)>> {
    let several = parts.len() > 1;
    let mut all = Vec::new();
    for part in parts {
        let path = if several {
            let stem = arguments.results.file_stem().unwrap_or_default().to_string_lossy();
            arguments.results.with_file_name(format!("{stem}-{}.json", part.name))
        } else {
            arguments.results.clone()
        };
        say(&format!("{}: {}", part.name, part.title));
        let results = run_part(&part, arguments, &path, context, say)?;
        all.push((path, results));
    }
    Ok(all)
}

/// Engines, the program that has them, and when it began.
pub(crate) type Context<'a> = (&'a [&'a dyn EngineKind], &'a Path, u64);

fn run_part(
    part: &Part,
    arguments: &ScenarioArguments,
    path: &Path,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Results> {
    let sizes = arguments.sizes();
    let profile = Profile::find(&part.profile)?;
    let design = Design {
        name: arguments.rig.clone(),
        disk: arguments.disk.clone(),
        fast: sizes.room,
        slow: if part.tiered || part.all_fast { sizes.room } else { ByteSize(64 << 20) },
        profile,
        medium: Medium::Ram,
    };
    let mut run = described(part, arguments, path, &profile, sizes)?;
    let of_region = run.region.clone();
    let results = run_described(&mut run, (part, arguments, design, sizes), context, say);
    of_region.map_or(Ok(()), |folder| crate::files::remove(&folder))?;
    results
}

/// On a rig, or where there can be none.
fn run_described(
    run: &mut Run,
    (part, arguments, design, sizes): (&Part, &ScenarioArguments, Design, Sizes),
    (engines, program, started_s): Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Results> {
    if let Err(reason) = possible(&design) {
        say(&format!("no rig: {reason}"));
        say(if part.all_fast {
            "instead: directories of one disk"
        } else {
            "instead: this store on an emulated slow device; the others are skipped"
        });
        let place = arguments.disk.join(format!("thermocline-bench-{}", std::process::id()));
        if part.all_fast {
            let room = room_for(data_bytes(&run.cell));
            plain(run, &place, room, sizes.room);
        } else {
            emulated(run, &place, sizes);
        }
        let results = run.execute(engines, program, &InFront::default(), started_s, say);
        crate::files::remove(&place)?;
        return finished(results?, run, part, BTreeMap::new(), &reason.to_string());
    }
    // Everything that can be wrong with the labels is found before a device is made.
    for label in &run.engines {
        crate::store::find(engines, &label.parse()?)?;
    }
    let rig = Rig::for_this_run(design)?;
    let [fast, slow] = rig.device_names();
    let all_fast = room_for(data_bytes(&run.cell));
    let capacity = Some(if part.all_fast { all_fast } else { sizes.fast });
    run.fast = Some(Space { path: rig.fast(), capacity, device: Some(fast) });
    run.slow = Some(Space { path: rig.slow(), capacity: Some(sizes.room), device: Some(slow) });
    run.images = rig.design().folder().join("images");
    let launcher = InRig::new(rig, arguments.nice);
    let results = run.execute(engines, program, &launcher, started_s, say)?;
    let findings = launcher.findings();
    launcher.down()?;
    finished(results, run, part, findings, "")
}

fn described(
    part: &Part,
    arguments: &ScenarioArguments,
    path: &Path,
    profile: &Profile,
    sizes: Sizes,
) -> Outcome<Run> {
    let list = arguments.workload.as_deref().unwrap_or(part.workloads);
    let chosen = !arguments.engine.is_empty();
    let engines = if chosen { &arguments.engine } else { &part.engines };
    let keys = arguments.records.saturating_mul(part.records.0);
    let with_region = |label: &String| with_region(label, sizes.memory, keys);
    let engines: Vec<String> = engines.iter().map(with_region).collect();
    let has_region = engines.iter().any(|label| label.starts_with(INDEXED));
    let region = has_region.then(|| region(REGION_WORD, &arguments.disk)).transpose()?;
    let usual = match (part.tiered, part.all_fast) {
        (true, _) => BASELINE,
        (false, true) => COMMIT_BASELINE,
        (false, false) => "rocksdb@fast",
    };
    let (records, value_bytes) = part.records;
    let baseline = arguments
        .baseline
        .clone()
        .or_else(|| engines.iter().any(|engine| engine == usual).then(|| usual.to_owned()));
    let cell = Cell {
        records: arguments.records.saturating_mul(records),
        key_bytes: 24,
        value_bytes,
        seed: arguments.seed,
        threads: arguments.threads,
        memory: sizes.memory,
        memory_limit: Some(sizes.limit),
        direct: true,
        seconds: Some(arguments.seconds),
        warm_up_seconds: Some(arguments.warm_up_seconds),
        slow_device: part.tiered.then(|| profile.slow_device()),
        tiers: Vec::new(),
        // What a way to commit puts off belongs to it.
        settle: part.all_fast,
        read_back: part.all_fast,
        ..example_cell()
    };
    let mut notes = part.notes.clone();
    notes.insert("data".to_owned(), sizes.data.to_string());
    if has_region {
        let text = "EMULATED by a file in memory, outside of the limit once it is made";
        notes.insert("persistent memory".to_owned(), text.to_owned());
    }
    Ok(Run {
        title: part.title.clone(),
        cell,
        engines,
        workloads: workloads::parse_list(list)?.into_iter().map(|workload| workload.name).collect(),
        pairs: None,
        rounds: arguments.rounds,
        fast: None,
        slow: None,
        region,
        images: PathBuf::new(),
        keep_images: false,
        baseline,
        results: path.to_owned(),
        notes,
    })
}

/// Whether the engine of `label` has a driver that is as slow as a device that is not there.
fn can_be_emulated(label: &str) -> bool {
    label.starts_with("thermocline-") && !label.contains("slow-driver=")
}

/// Plain directories, the slow one behind our own driver that is as slow as the device.
fn emulated(run: &mut Run, place: &Path, sizes: Sizes) {
    let profile = run.cell.slow_device;
    run.engines.retain(|label| can_be_emulated(label));
    if run.engines.is_empty() {
        run.engines.push(OURS.to_owned());
    }
    for label in &mut run.engines {
        label.push_str("+slow-driver=emulated-gp3");
    }
    run.baseline = None;
    run.cell.slow_device = profile;
    plain(run, place, sizes.fast, sizes.room);
}

/// Bytes of all records where no workload says otherwise.
fn data_bytes(cell: &Cell) -> u64 {
    cell.records.saturating_mul(u64::from(cell.key_bytes + cell.value_bytes))
}

/// Plain directories without a limit of memory.
fn plain(run: &mut Run, place: &Path, fast: ByteSize, slow: ByteSize) {
    run.cell.memory_limit = None;
    let space = |name: &str, capacity| Space {
        path: place.join(name),
        capacity: Some(capacity),
        device: None,
    };
    (run.fast, run.slow) = (Some(space("fast", fast)), Some(space("slow", slow)));
    run.images = place.join("images");
}

/// Adds what is known at the end, and writes the results again.
fn finished(
    mut results: Results,
    run: &Run,
    part: &Part,
    findings: BTreeMap<String, String>,
    no_rig: &str,
) -> Outcome<Results> {
    results.scenario.notes.extend(findings);
    if !no_rig.is_empty() {
        results.scenario.notes.insert("rig".to_owned(), format!("none: {no_rig}"));
        results.skipped.extend(part.engines.iter().filter(|label| !can_be_emulated(label)).map(
            |engine| Skipped { engine: engine.clone(), workload: None, reason: no_rig.to_owned() },
        ));
    }
    results.write(&run.results)?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ScenarioArguments,
    }

    fn arguments(words: &[&str]) -> ScenarioArguments {
        Line::parse_from([&["x"], words].concat()).arguments
    }

    #[test]
    fn sizes_follow_from_the_records() {
        let sizes = sizes(1_000_000, 10, 20);
        assert_eq!(sizes.data, ByteSize(1_024_000_000));
        assert_eq!(sizes.limit.0, sizes.data.0 / 10 + (64 << 20));
        assert_eq!(sizes.fast.0, sizes.data.0 / 5);
        assert_eq!(sizes.memory.0, sizes.data.0 / 1000 * 60);
        assert!(sizes.room.0 > 2 * sizes.data.0);
    }

    #[test]
    fn every_scenario_names_workloads_that_exist_and_a_baseline_that_runs() {
        let arguments = arguments(&[]);
        for scenario in [Scenario::Tiers, Scenario::Single, Scenario::Full] {
            for part in scenario.parts(&arguments) {
                let profile = Profile::find(&part.profile).unwrap();
                let sizes = arguments.sizes();
                let path = Path::new("results.json");
                let run = described(&part, &arguments, path, &profile, sizes).unwrap();
                assert!(run.engines.contains(run.baseline.as_ref().unwrap()));
                assert!(run.workloads.len() >= 9, "{}", run.workloads.len());
                assert!(run.engines.iter().all(|label| !label.ends_with("row-cache")));
            }
        }
    }

    #[test]
    fn ways_to_commit_differ_in_nothing_else_and_are_read_back() {
        let arguments = arguments(&["--records", "200k", "--data-over-memory", "2"]);
        let parts = Scenario::Commit.parts(&arguments);
        let data: Vec<_> = parts.iter().map(|part| part.records).collect();
        assert_eq!(data, [(1, 1000), (2, 104)]);
        for part in parts {
            let (profile, sizes) = (Profile::find("gp3").unwrap(), arguments.sizes());
            let mut run = described(&part, &arguments, Path::new("r"), &profile, sizes).unwrap();
            assert_eq!(run.baseline.as_deref(), Some(COMMIT_BASELINE));
            assert!(run.cell.read_back && run.cell.settle && run.workloads.len() == 8);
            assert_eq!(run.cell.records, part.records.0 * 200_000);
            plain(&mut run, Path::new("nowhere"), sizes.room, sizes.room);
            assert_eq!(run.fast.unwrap().capacity, Some(sizes.room), "everything fits");
            for engine in &run.engines {
                crate::store::find(&crate::engines::ALL, &engine.parse().unwrap()).unwrap();
            }
        }
    }

    #[test]
    fn without_a_rig_our_engines_run_emulated_and_the_others_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        let arguments = arguments(&[]);
        let part = &Scenario::Tiers.parts(&arguments)[0];
        let (profile, sizes) = (Profile::find("gp3").unwrap(), sizes(1000, 10, 20));
        let mut run = described(part, &arguments, &path, &profile, sizes).unwrap();
        emulated(&mut run, folder.path(), sizes);
        let emulated = [OURS, HYBRID].map(|label| format!("{label}+slow-driver=emulated-gp3"));
        assert_eq!(run.engines, emulated);
        assert_eq!((run.baseline.clone(), run.cell.memory_limit), (None, None));
        let results = Results::new("", Default::default(), Default::default(), 0);
        let results = finished(results, &run, part, BTreeMap::new(), "no root").unwrap();
        assert_eq!(results.skipped.len(), part.engines.len() - 2);
        assert!(results.skipped.iter().all(|skipped| skipped.reason == "no root"));
        assert_eq!(Results::read(&path).unwrap(), results);
    }

    #[test]
    fn a_row_cache_without_a_size_gets_half_of_the_memory() {
        let label = with_row_cache("rocksdb@tiers+row-cache", ByteSize(122 << 20));
        assert_eq!(label, "rocksdb@tiers+row-cache=61MiB");
        assert_eq!(with_row_cache("a+row-cache=1MiB", ByteSize(1)), "a+row-cache=1MiB");
    }

    #[test]
    fn the_preset_with_an_index_gets_a_region_for_it() {
        let arguments = arguments(&["--engine", "thermocline-indexed@tiers,null"]);
        let part = &Scenario::Tiers.parts(&arguments)[0];
        let (profile, sizes) = (Profile::find("gp3").unwrap(), arguments.sizes());
        let run = described(part, &arguments, Path::new("r"), &profile, sizes).unwrap();
        let mib = slmdb::region_mib(sizes.memory.0, 1_500_000);
        assert_eq!(run.engines[0], with_region(&run.engines[0], sizes.memory, 1));
        assert!(run.engines[0].contains(&format!("+persistent-memory={mib}MiB")));
        assert!(run.region.is_some() && run.notes.contains_key("persistent memory"));
        assert_eq!(run.engines[1], "null");
        crate::store::find(&crate::engines::ALL, &run.engines[0].parse().unwrap()).unwrap();
    }

    #[test]
    fn other_engines_have_no_baseline_that_does_not_run() {
        let arguments = arguments(&["--engine", "null", "--workload", "ycsb-c"]);
        let part = &Scenario::Tiers.parts(&arguments)[0];
        let profile = Profile::find("gp3").unwrap();
        let run =
            described(part, &arguments, Path::new("r"), &profile, sizes(1000, 10, 20)).unwrap();
        assert_eq!((run.engines, run.baseline), (vec!["null".to_owned()], None));
        assert_eq!(run.workloads, ["ycsb-c"]);
    }
}
