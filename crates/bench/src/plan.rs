//! A run: cells one after the other, each in a process of its own, results kept after each.
//!
//! ```text
//!   for each round:                      engines alternate; every second round turns their order
//!     for each workload:
//!       for each engine:
//!         copy of the loaded state (made by a cell of its own the first time), or nothing
//!         the cell's process, in whatever the launcher puts around it
//!         one row, whether it was measured or failed
//! ```
//!
//! Invariants:
//! 1. Everything that can be wrong with what was asked is found before the first cell.
//! 2. A cell that fails, or crashes, is a failed row; the run goes on.
//! 3. The results on disk always hold all finished rows.
//!
//! Threads: one, and two more that read what a cell writes.
//! Long because: what a run asks for, and the cells that follow from it, are checked in one place.

use crate::cell::{Cell, MARK, Message, Prepared, Purpose};
use crate::measure::{Meter, process};
use crate::results::{Engine, Machine, Measured, Results, Row, Scenario, Skipped};
use crate::state::{Image, Images, Shape, empty};
use crate::store::{EngineKind, Layout, REGION, REGION_SIZE, TierSpace};
use crate::workloads::Start;
use crate::{Failure, Outcome, files};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use thermocline_foundation::{ByteSize, threads};

/// Bytes on disk for each byte of data while a store is loaded or compacted.
const SPACE_FACTOR: f64 = 2.2;
/// The least memory that engines are given.
const MEMORY_MIN: ByteSize = ByteSize::mib(8);
/// Of a cell's standard error.
const ERROR_TAIL_BYTES: usize = 4 << 10;

/// What is put around a cell's process: memory limits, throttles, priorities.
pub trait Launcher {
    /// The command that runs `program` with `arguments`, for `cell`. Called once for each process;
    /// what has to be set up for it is set up here.
    fn command(&self, program: &Path, arguments: &[String], cell: &Cell) -> Outcome<Command>;

    /// The process that `command` gave has ended.
    fn ended(&self, cell: &Cell) -> Outcome<()> {
        let _ = cell;
        Ok(())
    }

    /// Facts for the report.
    fn notes(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

/// Nothing around it, or one command in front, such as `nice -n -10` or a tool that enters cgroups.
/// The command finds `FAST`, `SLOW` and `MEMORY_LIMIT` (bytes) in its environment where they exist,
/// and in `PURPOSE` whether the process only makes the loaded state (`load`) or is measured
/// (`run`).
#[derive(Clone, Debug, Default)]
pub struct InFront {
    /// The command's words; none: nothing.
    pub words: Vec<String>,
}

impl Launcher for InFront {
    fn command(&self, program: &Path, arguments: &[String], cell: &Cell) -> Outcome<Command> {
        let mut command = match self.words.split_first() {
            None => Command::new(program),
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(arguments);
        for tier in &cell.tiers {
            command.env(tier.name.to_uppercase(), &tier.path);
        }
        if let Some(limit) = cell.memory_limit {
            command.env("MEMORY_LIMIT", limit.0.to_string());
        }
        let purpose = if cell.purpose == Purpose::Load { "load" } else { "run" };
        command.env("PURPOSE", purpose);
        Ok(command)
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let around = (!self.words.is_empty())
            .then(|| ("in front of each process".to_owned(), self.words.join(" ")));
        around.into_iter().collect()
    }
}

/// A directory and what an engine may use of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its own directories are made below it.
    pub path: PathBuf,
    /// In layout `tiers`; none: all of the disk.
    pub capacity: Option<ByteSize>,
    /// The block device, where its counters are to be used.
    pub device: Option<String>,
}

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Run {
    /// A heading.
    pub title: String,
    /// The cell that all others are made from: `engine`, `workload`, `round` and `tiers` are set
    /// for each.
    pub cell: Cell,
    /// Labels of engines.
    pub engines: Vec<String>,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// Pairs of engine and workload that are run; none: each with each.
    pub pairs: Option<BTreeSet<(String, String)>>,
    /// Repetitions.
    pub rounds: u32,
    /// The fast directory; none where no layout needs it.
    pub fast: Option<Space>,
    /// The slow directory.
    pub slow: Option<Space>,
    /// Where regions of persistent memory lie; none: with the first tier.
    pub region: Option<PathBuf>,
    /// Where loaded states are kept.
    pub images: PathBuf,
    /// Leave them there for the next run.
    pub keep_images: bool,
    /// The label that ratios are against.
    pub baseline: Option<String>,
    /// Where the results go.
    pub results: PathBuf,
    /// Facts for the report.
    pub notes: BTreeMap<String, String>,
}

/// More than any disk.
const WHOLE_DISK: ByteSize = ByteSize(thermocline::CAPACITY_OF_DEVICE);
/// The directory of a cell below the directory of its tier.
const CELL_DIRECTORY: &str = "thermocline-bench-cell";

impl Run {
    /// The directories of `layout`, fastest first.
    fn tiers(&self, layout: Layout) -> Outcome<Vec<TierSpace>> {
        let tier = |name: &str, space: &Option<Space>, single: bool| -> Outcome<TierSpace> {
            let space = space.as_ref().ok_or_else(|| {
                format!("layout '{layout}' needs a {name} directory; name one with --{name} DIR")
            })?;
            let capacity = space.capacity.filter(|_| !single).unwrap_or(WHOLE_DISK);
            let path = space.path.join(CELL_DIRECTORY);
            Ok(TierSpace { name: name.to_owned(), path, capacity })
        };
        match layout {
            Layout::Fast => Ok(vec![tier("fast", &self.fast, true)?]),
            Layout::Slow => Ok(vec![tier("slow", &self.slow, true)?]),
            Layout::Tiers => {
                if self.fast.as_ref().is_some_and(|fast| fast.capacity.is_none()) {
                    return Err("layout 'tiers' needs the fast tier's capacity; \
                                write --fast DIR:CAPACITY"
                        .into());
                }
                Ok(vec![tier("fast", &self.fast, false)?, tier("slow", &self.slow, false)?])
            }
        }
    }

    /// The cell of `engine` on `workload`; says what is wrong with it.
    fn cell<'a>(
        &self,
        engine: &str,
        workload: &str,
        engines: &[&'a dyn EngineKind],
    ) -> Outcome<(Cell, Prepared<'a>)> {
        let mut cell =
            Cell { engine: engine.to_owned(), workload: workload.to_owned(), ..self.cell.clone() };
        let first = cell.prepare(engines)?;
        cell.tiers = self.tiers(first.layout)?;
        let region = first.options.parsed::<ByteSize>(REGION_SIZE)?.zip(self.region.as_ref());
        if let Some((capacity, folder)) = region {
            let path = folder.join(CELL_DIRECTORY);
            cell.tiers.push(TierSpace { name: REGION.to_owned(), path, capacity });
        }
        // What the process may use besides stays the same.
        let memory = first.options.memory;
        cell.memory_limit = self.cell.memory_limit.map(|limit| {
            let beside = limit.0.checked_sub(self.cell.memory.0);
            // One that is below what the run gives stays so, and is refused.
            beside.map_or(limit, |beside| ByteSize(memory.0 + beside))
        });
        cell.memory = memory;
        if let Some((size, _)) = region.filter(|_| first.workload.start == Start::Empty) {
            // The process makes the region, so its pages are in the limit, and never leave it. That
            // of a loaded state is copied by this process.
            cell.memory_limit = cell.memory_limit.map(|limit| ByteSize(limit.0 + size.0));
        }
        let spaces = [("fast", &self.fast), ("slow", &self.slow)];
        let device = |tier: &TierSpace| {
            let space = spaces.iter().find(|(name, _)| *name == tier.name)?.1.as_ref()?;
            space.device.clone()
        };
        // Counters of some devices but not of all would be taken for those of the tiers.
        let tiers = cell.tiers.iter().filter(|tier| tier.name != REGION);
        let devices: Option<Vec<_>> = tiers.map(device).collect();
        cell.devices = devices.unwrap_or_default();
        let prepared = cell.prepare(engines)?;
        prepared.kind.describe(&prepared.options)?;
        Ok((cell, prepared))
    }

    /// Checks everything; returns the cells of a round and what has to be skipped.
    pub fn check(
        &self,
        engines: &[&dyn EngineKind],
    ) -> Outcome<(Vec<Cell>, Vec<Engine>, Vec<Skipped>)> {
        if self.rounds == 0 {
            return Err("0 rounds measure nothing; name 1 or more".into());
        }
        let named = [&self.fast, &self.slow].into_iter().flatten();
        let devices: Vec<_> = named.filter_map(|space| space.device.clone()).collect();
        Meter::new(&devices)?;
        let (mut cells, mut described, mut skipped) =
            (Vec::new(), Vec::<Engine>::new(), Vec::new());
        for workload in &self.workloads {
            for engine in &self.engines {
                let pair = (engine.clone(), workload.clone());
                if self.pairs.as_ref().is_some_and(|pairs| !pairs.contains(&pair)) {
                    continue;
                }
                let (cell, prepared) = self.cell(engine, workload, engines)?;
                self.check_resources(&cell, &prepared)?;
                if let Some(reason) = prepared.kind.unavailable() {
                    let missing = Skipped { engine: engine.clone(), workload: None, reason };
                    if !skipped.contains(&missing) {
                        skipped.push(missing);
                    }
                    continue;
                }
                if !described.iter().any(|known| known.label == *engine) {
                    described.push(Engine {
                        label: engine.clone(),
                        about: prepared.kind.about(),
                        layout: prepared.layout,
                        options: prepared.kind.describe(&prepared.options)?,
                    });
                }
                cells.push(cell);
            }
        }
        if let Some(baseline) = &self.baseline
            && !self.engines.contains(baseline)
        {
            let there = self.engines.join(", ");
            return Err(format!("the baseline '{baseline}' is not run; there are {there}").into());
        }
        Ok((cells, described, skipped))
    }

    /// Too little memory or disk.
    fn check_resources(&self, cell: &Cell, prepared: &Prepared<'_>) -> Outcome<()> {
        let (total, available) = process::machine_memory();
        if cell.memory < MEMORY_MIN {
            return Err(format!(
                "{} of memory are too little; {MEMORY_MIN} or more are needed",
                cell.memory
            )
            .into());
        }
        if available > 0 && cell.memory.0 > available {
            return Err(format!(
                "{} of memory are asked for and {} of {} are available; name less with --memory",
                cell.memory,
                ByteSize(available),
                ByteSize(total)
            )
            .into());
        }
        if let Some(limit) = cell.memory_limit.filter(|limit| *limit < cell.memory) {
            let memory = cell.memory;
            return Err(format!("the limit of {limit} is below the memory of {memory}").into());
        }
        let needed = ByteSize((prepared.data_bytes() as f64 * SPACE_FACTOR) as u64);
        for tier in &cell.tiers {
            let holder = tier.path.parent().unwrap_or(Path::new("."));
            files::make(holder)?;
            let limited = match tier.name.as_str() {
                "fast" => prepared.layout == Layout::Tiers,
                name => name == REGION,
            };
            let needed = if limited { tier.capacity.min(needed) } else { needed };
            let free = files::free_space(holder)?;
            let reclaimed = ByteSize(files::allocated_bytes(&tier.path)?);
            if free.0 + reclaimed.0 < needed.0 {
                return Err(format!(
                    "{} has {free} free and {} on {} needs {needed} there; make room, or name \
                     fewer --records",
                    holder.display(),
                    cell.workload,
                    cell.engine
                )
                .into());
            }
        }
        Ok(())
    }

    /// Results without rows.
    fn results(&self, engines: Vec<Engine>, launcher: &dyn Launcher, started_s: u64) -> Results {
        let cell = &self.cell;
        let mut notes = self.notes.clone();
        notes.extend(launcher.notes());
        let scenario = Scenario {
            records: cell.records,
            key_bytes: cell.key_bytes,
            value_bytes: cell.value_bytes,
            threads: cell.threads,
            memory_bytes: cell.memory.0,
            memory_limit_bytes: cell.memory_limit.map(|limit| limit.0),
            durability: cell.durability,
            direct: cell.direct,
            rounds: self.rounds,
            seed: cell.seed,
            fast_bytes: self.fast.as_ref().and_then(|fast| fast.capacity).map_or(0, |c| c.0),
            slow_device: cell.slow_device,
            notes,
        };
        let mut results = Results::new(&self.title, scenario, machine(), started_s);
        results.engines = engines;
        results.baseline.clone_from(&self.baseline);
        results.command = std::env::args().collect();
        results
    }

    /// Runs everything; `program` is the binary that has the engines, `say` hears each line worth
    /// showing. Returns the results, which are also at their path.
    pub fn execute(
        &self,
        engines: &[&dyn EngineKind],
        program: &Path,
        launcher: &dyn Launcher,
        started_s: u64,
        say: &mut dyn FnMut(&str),
    ) -> Outcome<Results> {
        let (cells, described, skipped) = self.check(engines)?;
        let mut results = self.results(described, launcher, started_s);
        for skipped in &skipped {
            say(&format!("skipped: {}: {}", skipped.engine, skipped.reason));
        }
        results.skipped = skipped;
        results.write(&self.results)?;
        let total = cells.len() as u64 * u64::from(self.rounds);
        let mut stage = Stage {
            run: self,
            engines,
            program,
            launcher,
            failed: BTreeMap::new(),
            bar: bar(total),
        };
        for round in 1..=self.rounds {
            for group in cells.chunk_by(|a, b| a.workload == b.workload) {
                let mut group: Vec<Cell> = group.to_vec();
                if round % 2 == 0 {
                    group.reverse();
                }
                for mut cell in group {
                    cell.round = round;
                    cell.seed = self.cell.seed + u64::from(round) - 1;
                    let row = stage.row(&cell)?;
                    stage.bar.inc(1);
                    stage.bar.suspend(|| say(&line(&row)));
                    results.rows.push(row);
                    results.write(&self.results)?;
                }
            }
        }
        stage.bar.finish_and_clear();
        for space in [&self.fast, &self.slow].into_iter().flatten() {
            files::remove(&space.path.join(CELL_DIRECTORY))?;
        }
        if let Some(region) = &self.region {
            files::remove(&region.join(CELL_DIRECTORY))?;
        }
        if !self.keep_images {
            Images::new(&self.images).clear()?;
        }
        Ok(results)
    }
}

/// A row as a line.
fn line(row: &Row) -> String {
    let name = format!("round {} {:<28} {:<32}", row.round, row.workload, row.engine);
    match (&row.measured, &row.failure) {
        (Some(measured), _) => {
            let latency = measured.latency.get("all").copied().unwrap_or_default();
            format!(
                "{name} {:>10.0} op/s  p50 {:.1} p99 {:.0} us  cpu {:.2} us/op  in {:.1} s",
                measured.ops_per_s,
                latency.p50_us,
                latency.p99_us,
                measured.cpu_us_per_op,
                measured.seconds
            )
        }
        (None, failure) => format!("{name} failed: {}", failure.as_deref().unwrap_or("no reason")),
    }
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("[{pos}/{len}] {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// This machine.
fn machine() -> Machine {
    Machine {
        processor: process::processor(),
        processors: threads::available() as u32,
        memory_bytes: process::machine_memory().0,
        kernel: process::kernel(),
        harness: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// A run under way.
struct Stage<'a> {
    run: &'a Run,
    engines: &'a [&'a dyn EngineKind],
    program: &'a Path,
    launcher: &'a dyn Launcher,
    /// Loads that failed: shape and reason. They are not tried again.
    failed: BTreeMap<String, String>,
    bar: ProgressBar,
}

impl Stage<'_> {
    /// Runs a cell to a row. Only what makes all further rows impossible is an error.
    fn row(&mut self, cell: &Cell) -> Outcome<Row> {
        let prepared = cell.prepare(self.engines)?;
        let mut row = Row {
            engine: cell.engine.clone(),
            workload: cell.workload.clone(),
            round: cell.round,
            seed: cell.seed,
            durability: prepared.options.durability,
            tiers: cell.tiers.clone(),
            measured: None,
            failure: None,
        };
        let outcome = match prepared.workload.start {
            Start::Empty => cell.tiers.iter().try_for_each(|tier| empty(&tier.path)).map(|()| 0.0),
            Start::Loaded => self.loaded(cell, &prepared),
        };
        match outcome.and_then(|copy_s| Ok((copy_s, self.process(cell)?))) {
            Ok((copy_s, mut measured)) => {
                measured.preparation_s.copy = copy_s;
                row.measured = Some(measured);
            }
            Err(failure) => row.failure = Some(one_line(&failure.to_string())),
        }
        Ok(row)
    }

    /// Puts a copy of the loaded state in place; returns how long the copy took.
    fn loaded(&mut self, cell: &Cell, prepared: &Prepared<'_>) -> Outcome<f64> {
        let image = self.image(cell, prepared)?;
        self.bar.set_message(format!("{}: copying the loaded state", cell.engine));
        let begin = self.bar.elapsed();
        image.restore(&cell.tiers)?;
        Ok((self.bar.elapsed() - begin).as_secs_f64())
    }

    fn image(&mut self, cell: &Cell, prepared: &Prepared<'_>) -> Outcome<Image> {
        let load = Cell { purpose: Purpose::Load, seed: 1, ..cell.clone() };
        let loading = load.prepare(self.engines)?;
        let shape = Shape {
            engine: cell.engine.clone(),
            options: loading.kind.describe(&loading.options)?,
            records: loading.records,
            key_bytes: loading.key_bytes,
            data: prepared.data_text() + if cell.crashed { ", crashed" } else { "" },
            tiers: cell.tiers.iter().map(|t| (t.name.clone(), t.capacity.0)).collect(),
        };
        let images = Images::new(&self.run.images);
        if let Some(image) = images.find(&shape)? {
            return Ok(image);
        }
        let known = serde_json::to_string(&shape)?;
        if let Some(reason) = self.failed.get(&known) {
            return Err(reason.clone().into());
        }
        self.check_room(prepared)?;
        let made = cell
            .tiers
            .iter()
            .try_for_each(|tier| empty(&tier.path))
            .and_then(|()| self.process(&load))
            .and_then(|_| images.save(&shape, &cell.tiers));
        made.map_err(|failure| {
            let reason = format!("loading: {failure}");
            self.failed.insert(known, reason.clone());
            reason.into()
        })
    }

    /// An image needs room besides the tiers.
    fn check_room(&self, prepared: &Prepared<'_>) -> Outcome<()> {
        files::make(&self.run.images)?;
        let free = files::free_space(&self.run.images)?;
        let needed = ByteSize(prepared.data_bytes() * 3 / 2);
        if free < needed {
            let place = self.run.images.display();
            return Err(format!(
                "{place} has {free} free and a loaded state needs {needed}; name another place \
                 with --images DIR"
            )
            .into());
        }
        Ok(())
    }

    /// Runs a cell's process to its end.
    fn process(&self, cell: &Cell) -> Outcome<Measured> {
        let arguments = ["cell".to_owned(), "--json".to_owned(), serde_json::to_string(cell)?];
        let mut command = self.launcher.command(self.program, &arguments, cell)?;
        if let Some(folder) = cell.prepare(self.engines)?.kind.libraries() {
            command.env("LD_LIBRARY_PATH", folder);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| -> Failure {
            let program = command.get_program().to_string_lossy();
            format!("cannot start {program}: {error}").into()
        })?;
        let heard = self.listen(&mut child, cell);
        if heard.is_err() {
            // It may have ended by itself by now.
            let _ = child.kill();
        }
        let status = child.wait()?;
        self.launcher.ended(cell)?;
        let (last, tail) = heard?;
        match last {
            Some(Message::Measured(measured)) if status.success() => Ok(*measured),
            Some(Message::Failed(reason)) => Err(reason.into()),
            _ => Err(format!("the process ended with {status}: {}", one_line(&tail)).into()),
        }
    }

    /// Hears a cell until it closes its output: its last message, and the end of its errors.
    fn listen(&self, child: &mut Child, cell: &Cell) -> Outcome<(Option<Message>, String)> {
        let errors = child.stderr.take().ok_or("the cell has no standard error")?;
        let tail = threads::spawn("bench-errors", move || tail_of(errors))?;
        let output = child.stdout.take().ok_or("the cell has no standard output")?;
        let (sender, lines) = mpsc::channel();
        threads::spawn("bench-output", move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        })?;
        let silence = Duration::try_from_secs_f64(cell.silence_s).unwrap_or(Duration::MAX);
        let mut last = None;
        loop {
            let line = match lines.recv_timeout(silence) {
                Ok(line) => line,
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let seconds = cell.silence_s;
                    return Err(format!(
                        "no sign of life for {seconds} s; the process was ended (--silence-seconds)"
                    )
                    .into());
                }
            };
            let Some(json) = line.strip_prefix(MARK) else { continue };
            match serde_json::from_str(json) {
                Ok(Message::Progress { part, done, share, ops_per_s }) => {
                    let share = share.map_or(String::new(), |s| format!("{:.0} %, ", 100.0 * s));
                    self.bar.set_message(format!(
                        "{} {} {part}: {share}{done} done, {ops_per_s:.0} op/s",
                        cell.engine, cell.workload
                    ));
                }
                Ok(message) => last = Some(message),
                Err(error) => return Err(format!("the cell said '{json}': {error}").into()),
            }
        }
        let tail = tail.join().map_err(|_| "the reader of standard error broke off")?;
        Ok((last, tail))
    }
}

/// The end of what a cell wrote to its standard error.
fn tail_of(mut errors: impl Read) -> String {
    let mut kept: Vec<u8> = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(got) = errors.read(&mut piece) {
        if got == 0 {
            break;
        }
        kept.extend_from_slice(&piece[..got]);
        let surplus = kept.len().saturating_sub(ERROR_TAIL_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(3);
    lines[from..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_in_front_gets_the_program_and_its_environment() {
        let launcher = InFront { words: vec!["nice".to_owned(), "-n5".to_owned()] };
        let cell = crate::command::arguments::example_cell();
        let command = launcher.command(Path::new("/bin/x"), &["cell".to_owned()], &cell).unwrap();
        assert_eq!(command.get_program(), "nice");
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments, ["-n5", "/bin/x", "cell"]);
        assert!(command.get_envs().any(|(name, _)| name == "FAST"));
        assert_eq!(launcher.notes().len(), 1);
    }

    #[test]
    fn the_end_of_long_errors_is_kept() {
        let text = format!("{}\nlast words\n", "x".repeat(10_000));
        let tail = tail_of(text.as_bytes());
        assert!(tail.len() <= ERROR_TAIL_BYTES && tail.ends_with("last words\n"));
        assert_eq!(one_line("a\n\nb\n"), "a | b");
    }
}
