//! The rows of each figure: what is put over what, and how much it should come to.
//!
//! ```text
//!   row    11/fillrandom/8
//!   over   thermocline-leveled@fast+driver=direct    fillrandom/threads-8/sync
//!   under  rocksdb@fast                              the same
//! ```
//! A row names the points that it needs, so a run has each point once however many rows of however
//! many figures need it.
//!
//! Invariants:
//! 1. Of several points over or under the line the best counts: a rival is shown at its best.
//! 2. Names are stable: programs read them.

use crate::results::Measured;
use crate::rig::plan::Medium;
use crate::workloads::spandb::PHASES;
use crate::{Failure, Outcome};
use std::str::FromStr;

/// Ours past the page cache, and through it.
pub const DIRECT: &str = "thermocline-leveled@fast+driver=direct";
const POSIX: &str = "thermocline-leveled@fast+driver=posix";
const HYBRID: &str = "thermocline-hybrid@tiers";
const TIERED: &str = "thermocline-leveled@tiers";
/// What ratios are against.
pub const ROCKSDB: &str = "rocksdb@fast";
const RIVALS: [&str; 4] = ["lmdb", "redb", "fjall", "sled"];

/// A figure or table of the paper, or a measurement of its section 5.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Figure(usize);

/// Names and titles, in the order in which they are shown.
const FIGURES: [(&str, &str); 10] = [
    ("2", "Durable writes of one page, by drivers"),
    ("3", "Durable writes at once: threads and requests of each"),
    ("8", "Placement of levels"),
    ("9", "Placement while the load changes"),
    ("10", "What the parts cost"),
    ("11", "Writes and YCSB-A beside RocksDB"),
    ("t2", "Latencies"),
    ("12", "LinkBench in transactions"),
    ("13", "Other stores"),
    ("recovery", "Opening after a crash"),
];

impl Figure {
    /// All of them.
    pub fn all() -> Vec<Self> {
        (0..FIGURES.len()).map(Self).collect()
    }

    /// As the paper counts it, or a word.
    pub fn name(self) -> &'static str {
        FIGURES[self.0].0
    }

    /// What it shows.
    pub fn title(self) -> &'static str {
        FIGURES[self.0].1
    }
}

impl FromStr for Figure {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        let names = FIGURES.map(|(name, _)| name);
        let found = names.iter().position(|name| *name == text).map(Self);
        let unknown = || format!("there is no figure '{text}'; there are {}", names.join(", "));
        found.ok_or_else(|| unknown().into())
    }
}

/// What a cell of a row is run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// A workload for some seconds.
    Work,
    /// Opening what a crash left.
    Recovery,
    /// Some seconds of nothing after a workload.
    Rest,
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

const THROUGHPUT: Measure =
    Measure { unit: "op/s", is_cost: false, of: |measured| Some(measured.ops_per_s) };
const P50: Measure = Measure {
    unit: "p50 us",
    is_cost: true,
    of: |measured| measured.latency.get("all").map(|latency| latency.p50_us),
};
const P99: Measure = Measure {
    unit: "p99 us",
    is_cost: true,
    of: |measured| measured.latency.get("all").map(|latency| latency.p99_us),
};
const PROCESSOR: Measure =
    Measure { unit: "processor us", is_cost: true, of: |measured| Some(measured.cpu_us_per_op) };
const WAKE_UPS: Measure = Measure {
    unit: "wake-ups",
    is_cost: true,
    of: |measured| measured.wake_ups.map(|count| count as f64),
};
const OPENING: Measure =
    Measure { unit: "s", is_cost: true, of: |measured| Some(measured.preparation_s.open) };

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
    /// Over alone.
    Itself,
}

/// A row; see the module's header.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its figure.
    pub figure: Figure,
    /// Its name, the figure's in front.
    pub name: String,
    /// How its cells are run.
    pub group: Group,
    /// Ours.
    pub over: Vec<Point>,
    /// What it is held against; empty: nothing.
    pub under: Vec<Point>,
    /// What is compared.
    pub measure: Measure,
    /// How.
    pub value: Value,
    /// What it should come to.
    pub goal: Goal,
}

impl Row {
    fn new(name: &str, over: Vec<Point>, under: Vec<Point>) -> Self {
        let figure = name.split(['/', '-']).next().unwrap_or_default();
        // Names are written below; a test looks at each.
        let figure = figure.parse().unwrap_or(Figure(0));
        let (group, measure) = (Group::Work, THROUGHPUT);
        let (value, goal) = (Value::Ratio, Goal::None);
        Self { figure, name: name.to_owned(), group, over, under, measure, value, goal }
    }

    fn of(self, measure: Measure) -> Self {
        Self { measure, ..self }
    }

    fn at_least(self, bar: f64, aim: f64) -> Self {
        Self { goal: Goal::AtLeast(bar, aim), ..self }
    }

    fn at_most(self, bar: f64, aim: f64) -> Self {
        Self { goal: Goal::AtMost(bar, aim), ..self }
    }
}

fn point(engine: &str, workload: &str) -> Vec<Point> {
    vec![Point { engine: engine.to_owned(), workload: workload.to_owned() }]
}

fn points(engines: &[&str], workload: &str) -> Vec<Point> {
    engines.iter().flat_map(|engine| point(engine, workload)).collect()
}

/// Ours over RocksDB, on one workload.
fn against(name: &str, engine: &str, workload: &str) -> Row {
    Row::new(name, point(engine, workload), point(ROCKSDB, workload))
}

/// The rows of `figures` on `medium`. `options` are added to every label of a store of ours.
pub fn rows(figures: &[Figure], medium: Medium, options: &str) -> Vec<Row> {
    let all = [
        drivers(),
        at_once(),
        placements(),
        phases(),
        parts(),
        writes(medium),
        ycsb(),
        latencies(),
        transactions(),
        rivals(),
        recovery(),
    ];
    let mut rows: Vec<_> =
        all.into_iter().flatten().filter(|row| figures.contains(&row.figure)).collect();
    for point in rows.iter_mut().flat_map(|row| row.over.iter_mut().chain(&mut row.under)) {
        if point.engine.starts_with("thermocline-") && !options.is_empty() {
            point.engine = with(&point.engine, options);
        }
    }
    rows
}

/// `label` with `options`, of which those that it has already are left out.
fn with(label: &str, options: &str) -> String {
    let named = |option: &&str| {
        let name = option.split('=').next().unwrap_or_default();
        !label.contains(&format!("+{name}="))
    };
    options.split('+').filter(named).fold(label.to_owned(), |label, option| label + "+" + option)
}

fn drivers() -> Vec<Row> {
    let mut rows = Vec::new();
    for driver in ["direct", "posix"] {
        let of = |durable: &str| format!("device@fast+driver={driver}+durable={durable}");
        for threads in [1, 8] {
            let workload = format!("fillrandom/threads-{threads}/sync");
            let both = || (point(&of("flag"), &workload), point(&of("sync"), &workload));
            let row = |name: &str| {
                let (over, under) = both();
                Row::new(&format!("2/{driver}/{name}{threads}"), over, under)
            };
            rows.push(row(""));
            rows.push(row("p50/").of(P50));
        }
        for depth in [4, 8, 32] {
            let at = |depth: u32| {
                point(&of("flag"), &format!("fillrandom/threads-1/async-{depth}/sync"))
            };
            rows.push(Row::new(&format!("2/{driver}/depth-{depth}"), at(depth), at(1)));
        }
    }
    rows
}

fn at_once() -> Vec<Row> {
    let at = |threads: u32, requests: u32| {
        let workload = format!("fillrandom/threads-{threads}/async-{requests}/sync");
        point("device@fast+driver=direct+durable=flag", &workload)
    };
    let row = |(threads, requests): (u32, u32)| {
        Row::new(&format!("3/{threads}x{requests}"), at(threads, requests), at(1, 1))
    };
    let all = [1, 2, 3].into_iter().flat_map(|threads| [1, 2, 4, 8].map(|at| (threads, at)));
    all.filter(|all| *all != (1, 1)).map(row).collect()
}

/// Labels of the adaptive placement and of the fixed ones.
fn placed() -> (String, Vec<String>) {
    let of = |placement: &str| format!("{TIERED}+placement={placement}");
    let fixed = ["log_only", "top_levels(1)", "top_levels(2)", "top_levels(3)"];
    (of("bandwidth"), fixed.map(of).to_vec())
}

fn placements() -> Vec<Row> {
    let (adaptive, fixed) = placed();
    let fixed: Vec<_> = fixed.iter().map(String::as_str).collect();
    let mixes = [("writes", "overwrite/zipf-0.99"), ("half", "ycsb-a"), ("reads", "ycsb-b")];
    let row = |(name, workload): (&str, &str)| {
        let workload = format!("{workload}/threads-8/sync");
        let under = points(&fixed, &workload);
        Row::new(&format!("8/{name}"), point(&adaptive, &workload), under).at_least(0.95, 1.1)
    };
    mixes.map(row).to_vec()
}

/// Operations a second of a phase, from the seconds that lie in it whole.
fn phase_ops_per_s<const AT: usize>(measured: &Measured) -> Option<f64> {
    let whole: f64 = PHASES.iter().map(|(_, share, _)| share).sum();
    let end = |at: usize| {
        let share: f64 = PHASES[..at].iter().map(|(_, share, _)| share).sum();
        measured.seconds * share / whole
    };
    let (from, to) = (end(AT).ceil() as usize, end(AT + 1).floor() as usize);
    let seconds = measured.timeline.get(from..to).filter(|seconds| !seconds.is_empty())?;
    Some(seconds.iter().sum::<u64>() as f64 / seconds.len() as f64)
}

fn phases() -> Vec<Row> {
    let (adaptive, fixed) = placed();
    let fixed: Vec<_> = fixed.iter().map(String::as_str).collect();
    let of: [fn(&Measured) -> Option<f64>; 3] =
        [phase_ops_per_s::<0>, phase_ops_per_s::<1>, phase_ops_per_s::<2>];
    let workload = "spandb-phases/threads-8/sync";
    let row = |((name, ..), of): (&(&str, f64, &[f64]), _)| {
        let (over, under) = (point(&adaptive, workload), points(&fixed, workload));
        let measure = Measure { of, ..THROUGHPUT };
        Row::new(&format!("9/{name}"), over, under).of(measure).at_least(0.95, 1.1)
    };
    PHASES.iter().zip(of).map(row).collect()
}

fn parts() -> Vec<Row> {
    let synced = "fillrandom/threads-8/sync";
    let reading = "readwhilewriting/threads-8/buffered";
    let filling = "fillrandom/threads-8/buffered";
    let processor = Row::new("10/processor/fillrandom", point(DIRECT, synced), Vec::new());
    let rest = |name: &str, engine: &str| {
        let resting = point(engine, "overwrite/threads-4/async-64/sync");
        let row = Row::new(name, resting, Vec::new()).of(WAKE_UPS).at_most(0.0, 0.0);
        Row { value: Value::Itself, group: Group::Rest, ..row }
    };
    let mut rows = vec![
        against("10/readwhilewriting/8", DIRECT, reading).at_least(1.0, 1.1),
        against("10/fillrandom-buffered/8", DIRECT, filling),
        Row { value: Value::Itself, ..processor }.of(PROCESSOR).at_most(13.0, 11.0),
        against("10/processor-ratio/fillrandom", DIRECT, synced).of(PROCESSOR),
        rest("10/wake-ups", DIRECT),
        // A thread writes figures for other processes every second, unless it is told not to.
        rest("10/wake-ups-without-stats", &format!("{DIRECT}+stats-interval=0s")),
    ];
    for threads in [8, 32] {
        let own = point(DIRECT, &format!("fillrandom/threads-{threads}/async-1/sync"));
        let at = point(DIRECT, &format!("fillrandom/threads-{threads}/sync"));
        rows.push(Row::new(&format!("10/one-log-thread/fillrandom/{threads}"), own, at));
    }
    for (workload, threads) in [("fillrandom", 8), ("fillrandom", 32), ("overwrite", 8)] {
        for groups in [2, 4, 8] {
            let of = |groups: u32| format!("{DIRECT}+log-writes={groups}");
            let full = format!("{workload}/threads-{threads}/sync");
            let name = format!("10/log-writes-{groups}/{workload}/{threads}");
            rows.push(Row::new(&name, point(&of(groups), &full), point(&of(1), &full)));
        }
    }
    rows
}

fn writes(medium: Medium) -> Vec<Row> {
    let on_disk = medium == Medium::Disk;
    let (bar, aim) = if on_disk { (1.6, 2.0) } else { (3.5, 5.0) };
    let mut rows = Vec::new();
    for workload in ["fillrandom", "overwrite"] {
        for threads in [1, 8, 32] {
            let full = format!("{workload}/threads-{threads}/sync");
            for (figure, engine) in [("11", DIRECT), ("11-posix", POSIX)] {
                let row = against(&format!("{figure}/{workload}/{threads}"), engine, &full);
                let judged = threads > 1 && engine == DIRECT;
                rows.push(if judged { row.at_least(bar, aim) } else { row });
            }
        }
        rows.extend(asynchronous(workload, on_disk));
    }
    let flying = "fillrandom/threads-4/async-64";
    let (synced, buffered) = (format!("{flying}/sync"), format!("{flying}/buffered"));
    let row = Row::new(
        "11/async/fillrandom/synced-to-buffered",
        point(DIRECT, &synced),
        point(DIRECT, &buffered),
    );
    rows.push(if medium == Medium::Through { row.at_least(0.75, 0.9) } else { row });
    rows
}

fn asynchronous(workload: &str, on_disk: bool) -> [Row; 2] {
    let (bar, aim) = if on_disk { (2.5, 4.0) } else { (3.5, 5.0) };
    let flying =
        |threads: u32| point(DIRECT, &format!("{workload}/threads-{threads}/async-64/sync"));
    let waiting =
        |engine: &str, threads: u32| point(engine, &format!("{workload}/threads-{threads}/sync"));
    let best = [8, 32, 128].into_iter().flat_map(|threads| waiting(ROCKSDB, threads)).collect();
    [
        Row::new(&format!("11/async/{workload}/4x64"), flying(4), best).at_least(bar, aim),
        Row::new(&format!("11/async/{workload}/1x64"), flying(1), waiting(DIRECT, 1))
            .at_least(4.0, 8.0),
    ]
}

fn ycsb() -> Vec<Row> {
    let (zipf, uniform) = ("ycsb-a/threads-8/sync", "ycsb-a/uniform/threads-8/sync");
    vec![
        against("11/ycsb-a/zipf", DIRECT, zipf).at_least(2.0, 3.0),
        against("11-posix/ycsb-a/zipf", POSIX, zipf),
        against("11/ycsb-a/uniform", DIRECT, uniform).at_least(1.8, 3.0),
        against("11/ycsb-a/hybrid", HYBRID, zipf).at_least(2.2, 3.0),
    ]
}

fn latencies() -> Vec<Row> {
    let of = |threads: u32| format!("fillrandom/threads-{threads}/sync");
    vec![
        against("t2/p50/1", DIRECT, &of(1)).of(P50).at_most(0.8, 0.5),
        against("t2/p99/1", DIRECT, &of(1)).of(P99),
        against("t2/p50/8", DIRECT, &of(8)).of(P50),
        against("t2/p99/8", DIRECT, &of(8)).of(P99).at_most(1.0, 0.5),
    ]
}

fn transactions() -> Vec<Row> {
    let workload = "linkbench/threads-8/transactions/sync";
    let of = |engine: &str, kind: &str| format!("{engine}+transactions={kind}");
    let both = ["optimistic", "pessimistic"];
    let row = |kind: &str| {
        let (over, under) = (of(DIRECT, kind), of(ROCKSDB, kind));
        let name = format!("12/linkbench/{kind}");
        Row::new(&name, point(&over, workload), point(&under, workload))
    };
    let theirs = both.iter().flat_map(|kind| point(&of(ROCKSDB, kind), workload)).collect();
    let usual = point(&of(DIRECT, both[0]), workload);
    let main = Row::new("12/linkbench", usual, theirs).at_least(1.5, 2.0);
    vec![main, row(both[0]), row(both[1])]
}

fn rivals() -> Vec<Row> {
    let workloads = [
        ("fillrandom", "fillrandom/threads-8/sync"),
        ("ycsb-a", "ycsb-a/threads-8/sync"),
        ("readrandom", "readrandom/threads-8/sync"),
    ];
    let row = |rival: &str, (name, workload): (&str, &str)| {
        let theirs = point(&format!("{rival}@fast"), workload);
        Row::new(&format!("13/{rival}/{name}"), point(DIRECT, workload), theirs)
    };
    RIVALS.iter().flat_map(|rival| workloads.map(|workload| row(rival, workload))).collect()
}

fn recovery() -> Vec<Row> {
    let row = against("recovery/open", DIRECT, "readrandom/threads-1/sync").of(OPENING);
    let row = Row { value: Value::Speed, group: Group::Recovery, ..row };
    vec![row.at_least(1.0, 1.5)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Label;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own_a_figure_and_points_that_exist() {
        let rows = rows(&Figure::all(), Medium::Ram, "");
        let names: BTreeSet<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names.len(), rows.len());
        for row in &rows {
            assert!(row.name.starts_with(row.figure.name()), "{}", row.name);
            assert_eq!(row.under.is_empty(), row.value == Value::Itself, "{}", row.name);
            for point in row.over.iter().chain(&row.under) {
                crate::workloads::parse(&point.workload).unwrap();
                point.engine.parse::<Label>().unwrap();
            }
        }
        for figure in Figure::all() {
            assert!(rows.iter().any(|row| row.figure == figure), "{}", figure.name());
        }
    }

    #[test]
    fn the_names_and_bars_are_those_that_programs_read() {
        let of = |medium, name: &str| {
            let rows = rows(&["11".parse().unwrap()], medium, "");
            rows.into_iter().find(|row| row.name == name).unwrap().goal
        };
        assert_eq!(of(Medium::Ram, "11/fillrandom/8"), Goal::AtLeast(3.5, 5.0));
        assert_eq!(of(Medium::Disk, "11/overwrite/32"), Goal::AtLeast(1.6, 2.0));
        assert_eq!(of(Medium::Disk, "11/async/fillrandom/4x64"), Goal::AtLeast(2.5, 4.0));
        assert_eq!(of(Medium::Ram, "11-posix/fillrandom/8"), Goal::None);
        assert_eq!(
            of(Medium::Through, "11/async/fillrandom/synced-to-buffered"),
            Goal::AtLeast(0.75, 0.9)
        );
        let error = "14".parse::<Figure>().unwrap_err().to_string();
        assert!(error.contains("there are 2, 3, 8"), "{error}");
    }

    #[test]
    fn options_go_to_our_labels_alone_and_never_twice() {
        let rows = rows(&["10".parse().unwrap()], Medium::Ram, "log-writes=4+block-size=8KiB");
        let labels: BTreeSet<_> =
            rows.iter().flat_map(|row| row.over.iter().chain(&row.under)).collect();
        for point in labels {
            let label: Label = point.engine.parse().unwrap();
            let ours = point.engine.starts_with("thermocline-");
            assert_eq!(label.options.contains_key("log-writes"), ours, "{}", point.engine);
        }
        assert!(with(DIRECT, "driver=posix").ends_with("+driver=direct"));
    }

    #[test]
    fn a_phase_is_told_by_its_whole_seconds() {
        // Phases of 25, 35 and 25 of 85 seconds: they end at 2.5, 6 and 8.5.
        let timeline = vec![10, 10, 1, 50, 50, 50, 900, 900, 5];
        let measured = Measured { seconds: 8.5, timeline, ..Measured::default() };
        assert_eq!(phase_ops_per_s::<0>(&measured), Some(10.0));
        assert_eq!(phase_ops_per_s::<1>(&measured), Some(50.0));
        assert_eq!(phase_ops_per_s::<2>(&measured), Some(900.0));
        let short = Measured { seconds: 0.5, timeline: vec![3], ..Measured::default() };
        assert_eq!(phase_ops_per_s::<1>(&short), None);
    }
}
