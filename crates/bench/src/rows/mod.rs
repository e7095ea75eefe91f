//! Rows of a paper's figures: what is put over what, what it should come to, and what it came to.
//!
//! ```text
//!   row    11/fillrandom/8
//!   over   thermocline-leveled@fast+driver=direct    fillrandom/threads-8/sync
//!   under  rocksdb@fast                              the same
//!
//!   place    a rig, or plain directories        run      a run for each group, then all of this
//!   judged   medians, ratios, verdicts          report   table, `ratio` lines, JSON, pictures
//! ```
//! A row names the points that it needs, so a run has each point once however many rows of however
//! many figures need it. What the rows are is a scenario's (`spandb`, `mynvm`, `keigo`, `slmdb`).
//!
//! Invariants:
//! 1. Of several points over or under the line the best counts: a rival is shown at its best.
//! 2. Names are stable: programs read them.
//! 3. A row that cannot run, or failed, is shown with the reason; the others run.
//! 4. Where the machine can have no rig, rows run on plain directories, and each name says so.

pub mod judged;
pub(crate) mod place;
pub mod report;
mod run;
mod stand;
#[cfg(test)]
pub(crate) mod tests;

use crate::command::arguments::parse_count;
use crate::results::{Measured, Results};
use crate::rig::plan::Medium;
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::path::PathBuf;
use thermocline_foundation::ByteSize;

pub use run::{Context, Devices, Drill, Drilled, MakeCell, Ways, run};
pub use stand::Stand;

/// What ratios are against where nothing else is said.
pub const ROCKSDB: &str = "rocksdb@fast";

/// A paper whose figures are measured.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// The command, and the beginning of what its files and folders are called.
    pub word: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// Its figures, in the order in which they are shown.
    pub figures: &'static [Figure],
    /// Without a rig the slow directory is behind our own driver that is as slow as the device, and
    /// engines that have none do not run; else the directories are what they are.
    pub emulated: bool,
    /// What the slow device can do.
    pub profile: &'static str,
    /// Labels of ours have a region of persistent memory, which lies in memory, outside of the
    /// limit of a process.
    pub has_region: bool,
}

impl Paper {
    /// The figure called `name`.
    pub fn figure(&self, name: &str) -> Outcome<Figure> {
        let found = self.figures.iter().find(|figure| figure.name == name).copied();
        found.ok_or_else(|| -> Failure {
            let names: Vec<_> = self.figures.iter().map(|figure| figure.name).collect();
            format!("there is no figure '{name}'; there are {}", names.join(", ")).into()
        })
    }

    /// The figures that `word` names: one, or those from one number to another, as `15-19`.
    pub fn named(&self, word: &str) -> Outcome<Vec<Figure>> {
        let number = |text: &str| text.parse::<u32>().ok();
        let ends = word.split_once('-').map(|(from, to)| (number(from), number(to)));
        let Some((Some(from), Some(to))) = ends else { return Ok(vec![self.figure(word)?]) };
        let is_meant =
            |figure: &&Figure| number(figure.name).is_some_and(|at| (from..=to).contains(&at));
        let found: Vec<_> = self.figures.iter().filter(is_meant).copied().collect();
        if found.is_empty() {
            Err(format!("there is no figure from {from} to {to}").into())
        } else {
            Ok(found)
        }
    }
}

/// A figure or table of a paper, or a measurement of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// As the paper counts it, or a word.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
}

/// What every scenario of rows can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct RowArguments {
    /// Rows whose names begin with this; repeatable
    #[arg(long, value_name = "NAME")]
    pub row: Vec<String>,
    /// What the fast device is made of: memory, memory without flushes, or the disk
    #[arg(long, value_enum, default_value = "ram")]
    pub medium: Medium,
    /// One round of short rows with few records: minutes, for a try
    #[arg(long)]
    pub quick: bool,
    /// Repetitions, engines in turns
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub rounds: Option<u32>,
    /// Records of 1 KB
    #[arg(long, value_parser = parse_count)]
    pub records: Option<u64>,
    /// Seconds of each row at most
    #[arg(long, value_parser = parse_seconds)]
    pub seconds: Option<f64>,
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
    /// The rig's name, where several are up at once; else the scenario's
    #[arg(long)]
    pub rig: Option<String>,
    /// Where the results go; pictures and the cells of each group lie beside it
    #[arg(long, value_name = "FILE")]
    pub results: Option<PathBuf>,
    /// Print the rows as JSON; the table then goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// How long a run is where its arguments do not say.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Repetitions.
    pub rounds: u32,
    /// Records of 1 KB.
    pub records: u64,
    /// Seconds of each row at most.
    pub seconds: f64,
}

impl RowArguments {
    /// What is asked for, else `usual`, or `quick` for a try.
    pub fn lengths(&self, usual: Lengths, quick: Lengths) -> Lengths {
        let else_is = if self.quick { quick } else { usual };
        Lengths {
            rounds: self.rounds.unwrap_or(else_is.rounds),
            records: self.records.unwrap_or(else_is.records),
            seconds: self.seconds.unwrap_or(else_is.seconds),
        }
    }

    /// Where the results go.
    pub fn results(&self, paper: &Paper) -> PathBuf {
        self.results.clone().unwrap_or_else(|| PathBuf::from(format!("{}.json", paper.word)))
    }
}

pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.05..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}' is not 0.05 to 86400 seconds"))
}

/// An engine on a workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    /// The engine's label.
    pub engine: String,
    /// The workload's name.
    pub workload: String,
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its unit.
    pub unit: &'static str,
    /// Less is better.
    pub is_cost: bool,
    /// Out of a cell's figures.
    pub of: fn(&Measured) -> Option<f64>,
}

/// Operations a second.
pub const THROUGHPUT: Measure =
    Measure { unit: "op/s", is_cost: false, of: |measured| Some(measured.ops_per_s) };

/// Processor time an operation, background work included.
pub const PROCESSOR: Measure =
    Measure { unit: "processor us", is_cost: true, of: |measured| Some(measured.cpu_us_per_op) };

/// What a row's value should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// It is shown.
    None,
    /// At least this much, and what is aimed at.
    AtLeast(f64, f64),
    /// At most.
    AtMost(f64, f64),
}

/// How a value follows from both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Over divided by under.
    Ratio,
    /// Under divided by over: of times, how many times as fast.
    Speed,
    /// Over minus under.
    Difference,
    /// Over alone.
    Itself,
}

/// How the value of a row follows from those of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combined {
    /// The mean of their values.
    Mean,
    /// The ratio of their sums: all over, divided by all under.
    Sum,
    /// The value of the first divided by that of the second: a gain over another one.
    Quotient,
}

/// A row; see the module's header. `G` is how its cells are run: what a scenario has a run for.
#[derive(Clone, Debug)]
pub struct Row<G> {
    /// Its figure.
    pub figure: Figure,
    /// Its name, the figure's in front.
    pub name: String,
    /// How its cells are run.
    pub group: G,
    /// Ours; empty where no cell measures the row ([`Drill`]).
    pub over: Vec<Point>,
    /// What it is held against; empty: nothing.
    pub under: Vec<Point>,
    /// What is compared.
    pub measure: Measure,
    /// How.
    pub value: Value,
    /// What it should come to.
    pub goal: Goal,
    /// The value is multiplied by this: what a figure is for each record, for example.
    pub factor: f64,
    /// Rows that its value follows from; none: it has points of its own.
    pub parts: Vec<Self>,
    /// How it does.
    pub combined: Combined,
}

impl<G> Row<G> {
    /// A ratio of operations a second without a goal, of the figure that `name` begins with.
    pub fn in_paper(
        paper: &Paper,
        group: G,
        name: &str,
        over: Vec<Point>,
        under: Vec<Point>,
    ) -> Self {
        let begins = |figure: &&Figure| name.split(['/', '-']).next() == Some(figure.name);
        // A scenario writes its names itself, and its tests look at each.
        let unknown = Figure { name: "", title: "" };
        let figure = paper.figures.iter().find(begins).copied().unwrap_or(unknown);
        Self {
            figure,
            name: name.to_owned(),
            group,
            over,
            under,
            measure: THROUGHPUT,
            value: Value::Ratio,
            goal: Goal::None,
            factor: 1.0,
            parts: Vec::new(),
            combined: Combined::Mean,
        }
    }

    /// A row that follows from `parts`, which run with it, whether they are shown or not. None
    /// where there are none.
    pub fn of_rows(paper: &Paper, name: &str, combined: Combined, parts: Vec<Self>) -> Option<Self>
    where
        G: Copy,
    {
        let first = parts.first()?;
        let (group, measure) = (first.group, first.measure);
        let row = Self::in_paper(paper, group, name, Vec::new(), Vec::new()).of(measure);
        Some(Self { value: Value::Itself, combined, parts, ..row })
    }

    /// This measure.
    pub fn of(self, measure: Measure) -> Self {
        Self { measure, ..self }
    }

    /// At least `bar`, and `aim` aimed at.
    pub fn at_least(self, bar: f64, aim: f64) -> Self {
        Self { goal: Goal::AtLeast(bar, aim), ..self }
    }

    /// At most.
    pub fn at_most(self, bar: f64, aim: f64) -> Self {
        Self { goal: Goal::AtMost(bar, aim), ..self }
    }

    /// All its points.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.leaves().into_iter().flat_map(|row| row.over.iter().chain(&row.under))
    }

    /// It, or the rows that it follows from: those with points.
    pub fn leaves(&self) -> Vec<&Self> {
        if self.parts.is_empty() {
            return vec![self];
        }
        self.parts.iter().flat_map(Self::leaves).collect()
    }

    /// The same, to be changed.
    pub fn leaves_mut(&mut self) -> Vec<&mut Self> {
        if self.parts.is_empty() {
            return vec![self];
        }
        self.parts.iter_mut().flat_map(Self::leaves_mut).collect()
    }

    /// All its points, to be changed.
    pub fn points_mut(&mut self) -> impl Iterator<Item = &mut Point> {
        let leaves = self.leaves_mut().into_iter();
        leaves.flat_map(|row| row.over.iter_mut().chain(&mut row.under))
    }
}

/// One point as a side.
pub fn point(engine: &str, workload: &str) -> Vec<Point> {
    vec![Point { engine: engine.to_owned(), workload: workload.to_owned() }]
}

/// A point of each engine.
pub fn points(engines: &[&str], workload: &str) -> Vec<Point> {
    engines.iter().flat_map(|engine| point(engine, workload)).collect()
}

/// Whether an engine's label is of this store.
fn is_ours(label: &str) -> bool {
    label.starts_with("thermocline-")
}

/// The rows whose names begin as `arguments` say, with the options for every label of ours.
pub fn asked<G>(mut rows: Vec<Row<G>>, arguments: &RowArguments) -> Outcome<Vec<Row<G>>> {
    if !arguments.ours.is_empty() {
        let points = rows.iter_mut().flat_map(Row::points_mut);
        points
            .filter(|point| is_ours(&point.engine))
            .for_each(|point| point.engine = with(&point.engine, &arguments.ours));
    }
    let begins =
        |row: &Row<G>| arguments.row.iter().any(|name| row.name.starts_with(name.as_str()));
    if !arguments.row.is_empty() {
        let names: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
        rows.retain(begins);
        if rows.is_empty() {
            return Err(format!("no row begins so; there are {}", names.join(", ")).into());
        }
    }
    Ok(rows)
}

/// `label` with `options`, of which those that it has already are left out.
fn with(label: &str, options: &str) -> String {
    let named = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default();
        !label.contains(&format!("+{name}="))
    };
    options.split('+').filter(named).fold(label.to_owned(), |label, option| label + "+" + option)
}

/// What was measured, by how it was run.
pub type Found<G> = BTreeMap<G, Results>;

/// Why points did not run.
pub type Missing<G> = BTreeMap<(G, Point), String>;

/// What came of a run.
#[derive(Debug)]
pub struct Outcomes {
    /// A table for a person.
    pub table: String,
    /// Lines for programs.
    pub lines: Vec<String>,
    /// The rows as JSON.
    pub json: String,
    /// The same, as a file.
    pub results: PathBuf,
    /// Pictures that were written.
    pub pictures: Vec<PathBuf>,
}

/// A device without a use.
pub const SMALLEST: ByteSize = ByteSize(64 << 20);
