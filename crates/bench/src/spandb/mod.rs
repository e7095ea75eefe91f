//! `spandb`: the figures of the SpanDB paper, ours beside RocksDB on the same devices.
//!
//! ```text
//!   rows     names, points, bars          all points of all rows asked for, each once
//!   mod      a run for each group of cells, engines in turns, on one rig
//!   judged   medians, ratios, verdicts    report   table, `ratio` lines, JSON, a picture a figure
//! ```
//! The fast device is made of what `--medium` says. RocksDB and ours get the same directory on it,
//! the same memory, the same operations; every write is synced unless a row says otherwise.
//!
//! Invariants:
//! 1. A row that cannot run, or failed, is shown with the reason; the others run.
//! 2. Where the machine can have no rig, rows run on plain directories, and each name says so.

mod judged;
mod report;
pub mod rows;

use crate::cell::Cell;
use crate::command::arguments::{example_cell, parse_count};
use crate::plan::{InFront, Launcher, Run, Space};
use crate::results::Results;
use crate::rig::launcher::InRig;
use crate::rig::plan::{Design, Medium};
use crate::rig::profile::Profile;
use crate::rig::system::{Kernel, System};
use crate::rig::{Rig, command::possible};
use crate::store::EngineKind;
use crate::{Outcome, files};
use rows::{Figure, Group, Point, ROCKSDB, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use thermocline_foundation::ByteSize;

/// Bytes of a record with its key.
const RECORD_BYTES: u64 = 1024;
const PROFILE: &str = "gp3";
/// What a process may use besides what its engine is told: nothing is compared at its limit.
const BESIDE_BYTES: u64 = 2 << 30;
/// Memory of the process over that of its engine's largest memtable: all stores divide a quarter
/// among three.
const MEMTABLES: u64 = 12;
/// What is read after an opening: enough to see that the records are there.
const LOOKS: u64 = 2000;
/// A device without a use.
const SMALLEST: ByteSize = ByteSize(64 << 20);

/// `spandb`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  thermocline-bench spandb --quick
  thermocline-bench spandb --figure 11,t2 --medium through --rounds 3
  thermocline-bench spandb --figure 11 --row 11/fillrandom/8 --ours log-writes=4
  thermocline-bench spandb --figure 10 --records 1M --seconds 10 --json > rows.json
  thermocline-bench spandb --figure recovery --log 256MiB --medium disk

Each row ends in a line `ratio ROW VALUE`. A row that is missed is no failure of the run.")]
pub struct SpandbArguments {
    /// Figures: 2, 3, 8, 9, 10, 11, t2, 12, 13, recovery; all where none is named
    #[arg(long, value_delimiter = ',')]
    pub figure: Vec<Figure>,
    /// Rows whose names begin with this; repeatable
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,
    /// What the fast device is made of: memory, memory without flushes, or the disk
    #[arg(long, value_enum, default_value = "ram")]
    pub medium: Medium,
    /// One round of short rows with few records: minutes, for a try
    #[arg(long)]
    pub quick: bool,
    /// Repetitions, engines in turns; default 3, quick 1
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: Option<u32>,
    /// Records of 1 KB; default 400k, quick 100k
    #[arg(long, value_parser = parse_count)]
    pub records: Option<u64>,
    /// Seconds of each row at most; default 6, quick 1
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
    /// Log that the recovery rows replay; default 1GiB, quick 64MiB
    #[arg(long, value_name = "SIZE")]
    pub log: Option<ByteSize>,
    /// Memory for each engine: caches, write buffers and indexes
    #[arg(long, default_value = "256MiB")]
    pub memory: ByteSize,
    /// Options for every label of ours, OPTION=VALUE[+OPTION=VALUE]...
    #[arg(long, default_value = "", value_name = "OPTIONS")]
    pub ours: String,
    /// Seed of the first round
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A directory on the disk that carries the slow device and the loaded states
    #[arg(long, default_value = "/var/tmp", value_name = "DIR")]
    pub disk: PathBuf,
    /// Priority of each run, -20 (first) to 19
    #[arg(long, default_value_t = 0, allow_hyphen_values = true,
        value_parser = clap::value_parser!(i8).range(-20..=19))]
    pub nice: i8,
    /// The rig's name, where several are up at once
    #[arg(long, default_value = "spandb")]
    pub rig: String,
    /// Where the results go; pictures and the cells of each group lie beside it
    #[arg(long, default_value = "spandb.json", value_name = "FILE")]
    pub results: PathBuf,
    /// Print the rows as JSON; the table then goes to standard error
    #[arg(long)]
    pub json: bool,
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.05..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not 0.05 to 86400 seconds"))
}

/// What the arguments come to.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rounds: u32,
    records: u64,
    seconds: f64,
    rest_seconds: f64,
    log: ByteSize,
    memory: ByteSize,
}

impl Sizes {
    fn new(arguments: &SpandbArguments) -> Self {
        let quick = arguments.quick;
        Self {
            rounds: arguments.rounds.unwrap_or(if quick { 1 } else { 3 }),
            records: arguments.records.unwrap_or(if quick { 100_000 } else { 400_000 }),
            seconds: arguments.seconds.unwrap_or(if quick { 1.0 } else { 6.0 }),
            rest_seconds: 10.0,
            log: arguments.log.unwrap_or(ByteSize::mib(if quick { 64 } else { 1024 })),
            memory: arguments.memory,
        }
    }

    fn log_records(&self) -> u64 {
        (self.log.0 / RECORD_BYTES).max(1000)
    }

    /// Bytes of the largest data set of `groups`.
    fn data(&self, groups: &BTreeSet<Group>) -> u64 {
        let records = |group: &Group| match group {
            Group::Recovery => self.log_records(),
            Group::Work | Group::Rest => self.records,
        };
        groups.iter().map(records).max().unwrap_or(0).saturating_mul(RECORD_BYTES)
    }

    /// The cell that all of `group` are made from.
    fn cell(&self, group: Group, seed: u64) -> Cell {
        let mut cell = Cell {
            records: self.records,
            seed,
            threads: 8,
            memory: self.memory,
            direct: true,
            seconds: Some(self.seconds),
            warm_up_seconds: Some(self.seconds / 4.0),
            tiers: Vec::new(),
            ..example_cell()
        };
        match group {
            Group::Work => {}
            Group::Rest => {
                cell.seconds = Some(self.seconds.min(2.0));
                cell.rest_seconds = Some(self.rest_seconds);
            }
            Group::Recovery => {
                cell.records = self.log_records();
                // All of the log belongs to one memtable, which is not full.
                cell.memory = ByteSize(self.log.0 * MEMTABLES / 4 * 5);
                (cell.seconds, cell.warm_up_seconds) = (None, None);
                cell.operations = Some(LOOKS);
                cell.crashed = true;
            }
        }
        cell.memory_limit = Some(ByteSize(cell.memory.0 + BESIDE_BYTES));
        cell
    }
}

/// Where the cells run.
struct Place {
    fast: Space,
    slow: Space,
    images: PathBuf,
    launcher: Box<dyn Launcher>,
    /// Why there is no rig.
    no_rig: Option<String>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcomes {
    /// A table for a person.
    pub table: String,
    /// Lines for programs.
    pub lines: Vec<String>,
    /// The rows as JSON.
    pub json: String,
    /// Pictures that were written.
    pub pictures: Vec<PathBuf>,
}

/// Runs the rows that are asked for.
pub fn run(
    arguments: &SpandbArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    let asked = asked(arguments)?;
    let groups: BTreeSet<Group> = asked.iter().map(|row| row.group).collect();
    let sizes = Sizes::new(arguments);
    let place = place(arguments, sizes.data(&groups), &asked, say)?;
    let mut found = BTreeMap::new();
    let mut missing = BTreeMap::new();
    for group in groups {
        let run = described(arguments, &sizes, group, &place);
        let rows: Vec<&Row> = asked.iter().filter(|row| row.group == group).collect();
        let run = with_points(run, &rows, engines, &mut missing);
        if run.pairs.as_ref().is_some_and(BTreeSet::is_empty) {
            continue;
        }
        say(&announced(&run, &sizes));
        found.insert(group, run.execute(engines, program, &*place.launcher, started_s, say)?);
    }
    let no_rig = place.no_rig.clone();
    taken_down(place, arguments)?;
    let rows = asked.iter().map(|row| judged::judge(row, found.get(&row.group), &missing));
    let mut judged: Vec<_> = rows.collect();
    if no_rig.is_some() {
        judged.iter_mut().for_each(judged::Judged::name_plain);
    }
    report::written(arguments, &judged, &found, no_rig.as_deref())
}

/// The rows by figure and name.
fn asked(arguments: &SpandbArguments) -> Outcome<Vec<Row>> {
    let all = Figure::all();
    let figures = if arguments.figure.is_empty() { &all } else { &arguments.figure };
    let mut rows = rows::rows(figures, arguments.medium, &arguments.ours);
    let begins = |row: &Row| arguments.row.iter().any(|name| row.name.starts_with(name.as_str()));
    if !arguments.row.is_empty() {
        let names: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
        rows.retain(begins);
        if rows.is_empty() {
            return Err(format!("no row begins so; there are {}", names.join(", ")).into());
        }
    }
    Ok(rows)
}

/// A rig, or plain directories where there can be none.
fn place(
    arguments: &SpandbArguments,
    data: u64,
    rows: &[Row],
    say: &mut dyn FnMut(&str),
) -> Outcome<Place> {
    let room = crate::scenarios::room_for(data);
    let mut points = rows.iter().flat_map(|row| row.over.iter().chain(&row.under));
    let is_tiered = points.any(|point| point.engine.contains("@tiers"));
    // Two tiers have a fifth of the data on the fast one, as in the comparison over two tiers.
    let capacity = Some(ByteSize(data / 5));
    let design = Design {
        name: arguments.rig.clone(),
        disk: arguments.disk.clone(),
        fast: room,
        slow: if is_tiered { room } else { SMALLEST },
        profile: Profile::find(PROFILE)?,
        medium: arguments.medium,
    };
    if let Err(reason) = possible(&design) {
        sweep(plain_holder(arguments))?;
        let folder = plain_folder(arguments);
        say(&format!("no rig: {reason}"));
        say(&format!(
            "instead: plain directories at {}, not the medium {:?}; names of rows begin with \
             'plain/'",
            folder.display(),
            arguments.medium
        ));
        let space =
            |name: &str, capacity| Space { path: folder.join(name), capacity, device: None };
        return Ok(Place {
            fast: space("fast", capacity),
            slow: space("slow", Some(room)),
            images: folder.join("images"),
            launcher: Box::new(InFront::default()),
            no_rig: Some(reason.to_string()),
        });
    }
    let rig = Rig::for_this_run(design)?;
    let [fast, slow] = rig.device_names();
    Ok(Place {
        fast: Space { path: rig.fast(), capacity, device: Some(fast) },
        slow: Space { path: rig.slow(), capacity: Some(room), device: Some(slow) },
        images: rig.design().folder().join("images"),
        launcher: Box::new(InRig::new(rig, arguments.nice)),
        no_rig: None,
    })
}

/// What folders of plain directories are called, with the number of their process behind it.
const PLAIN: &str = "thermocline-spandb-";

/// Where plain directories are made.
fn plain_holder(arguments: &SpandbArguments) -> &Path {
    let shared = Path::new("/dev/shm");
    let in_memory = arguments.medium != Medium::Disk && files::free_space(shared).is_ok();
    if in_memory { shared } else { &arguments.disk }
}

fn plain_folder(arguments: &SpandbArguments) -> PathBuf {
    plain_holder(arguments).join(format!("{PLAIN}{}", std::process::id()))
}

/// Removes what runs that were interrupted have left in `holder`.
fn sweep(holder: &Path) -> Outcome<()> {
    for path in Kernel.list(holder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let process = name.strip_prefix(PLAIN).and_then(|rest| rest.parse::<u32>().ok());
        if process.is_some_and(|process| Kernel.list(&process_folder(process)).is_empty()) {
            files::remove(&path)?;
        }
    }
    Ok(())
}

fn process_folder(process: u32) -> PathBuf {
    Path::new("/proc").join(process.to_string())
}

/// Removes what [`place`] made.
fn taken_down(place: Place, arguments: &SpandbArguments) -> Outcome<()> {
    // A rig goes with its launcher.
    drop(place.launcher);
    if place.no_rig.is_some() {
        files::remove(&plain_folder(arguments))?;
    }
    Ok(())
}

/// The run of `group`, without its cells.
fn described(arguments: &SpandbArguments, sizes: &Sizes, group: Group, place: &Place) -> Run {
    let mut cell = sizes.cell(group, arguments.seed);
    if place.no_rig.is_some() {
        cell.memory_limit = None;
    }
    let stem = arguments.results.file_stem().unwrap_or_default().to_string_lossy();
    let word = format!("{group:?}").to_lowercase();
    let medium = place.no_rig.as_ref().map_or(arguments.medium.about(), |_| "plain directory");
    Run {
        title: format!("spandb, {word}"),
        cell,
        engines: Vec::new(),
        workloads: Vec::new(),
        pairs: None,
        rounds: sizes.rounds,
        fast: Some(place.fast.clone()),
        slow: Some(place.slow.clone()),
        images: place.images.clone(),
        keep_images: false,
        baseline: None,
        results: arguments.results.with_file_name(format!("{stem}-{word}.json")),
        notes: BTreeMap::from([("medium".to_owned(), medium.to_owned())]),
    }
}

/// `run` with the points of `rows` that can run; why the others cannot goes to `missing`.
fn with_points(
    mut run: Run,
    rows: &[&Row],
    engines: &[&dyn EngineKind],
    missing: &mut BTreeMap<Point, String>,
) -> Run {
    let mut pairs = BTreeSet::new();
    for point in rows.iter().flat_map(|row| row.over.iter().chain(&row.under)) {
        let pair = (point.engine.clone(), point.workload.clone());
        if pairs.contains(&pair) || missing.contains_key(point) {
            continue;
        }
        let alone = Run {
            engines: vec![point.engine.clone()],
            workloads: vec![point.workload.clone()],
            ..run.clone()
        };
        match alone.check(engines) {
            Err(failure) => {
                missing.insert(point.clone(), failure.to_string());
            }
            Ok((_, _, skipped)) if !skipped.is_empty() => {
                missing.insert(point.clone(), skipped[0].reason.clone());
            }
            Ok(_) => {
                for (list, name) in
                    [(&mut run.engines, &point.engine), (&mut run.workloads, &point.workload)]
                {
                    if !list.contains(name) {
                        list.push(name.clone());
                    }
                }
                pairs.insert(pair);
            }
        }
    }
    run.baseline = run.engines.iter().find(|engine| *engine == ROCKSDB).cloned();
    run.pairs = Some(pairs);
    run
}

/// What is about to run, and for how long.
fn announced(run: &Run, sizes: &Sizes) -> String {
    let cells = run.pairs.as_ref().map_or(0, BTreeSet::len) as u32 * run.rounds;
    let each = run.cell.seconds.unwrap_or(1.0) * 1.25 + run.cell.rest_seconds.unwrap_or(0.0) + 1.0;
    let minutes = f64::from(cells) * each / 60.0;
    format!(
        "{}: {cells} cells in {} rounds, at most {minutes:.0} minutes and the loading; {} records",
        run.title, sizes.rounds, run.cell.records
    )
}

/// Rows and cells of one run.
type Found = BTreeMap<Group, Results>;

#[cfg(test)]
mod tests;
