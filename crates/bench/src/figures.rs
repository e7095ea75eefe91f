//! The figures of PrismDB's evaluation (section 7 and figure 6) with the preset `hybrid`.
//!
//! ```text
//!   figure  varied                           on                      shown
//!   6       how a range to demote is chosen  ycsb-a                  op/s, slow bytes, time of a
//!                                                                    demotion, processor
//!   11      skew, zipf 0.01 to 1.4           ycsb-a                  op/s, p99
//!   14b     promotion                        ycsb-c                  op/s, shares of reads
//!   14c     pinning threshold                ycsb-a, ycsb-b, ycsb-c  op/s, slow bytes
//!   14d     threads                          ycsb-a                  op/s, processor
//!
//!   runs    sorted runs over each other      load, ycsb-a, b, c, e   op/s, slow bytes, slow reads
//!   auto    threshold, fixed or tuned        ycsb-a, ycsb-b, ycsb-c  op/s, slow bytes, slow reads
//! ```
//! Figures 6, 14b and 14c are of the preset's variant `paper`. The last two are not of the paper,
//! whose slow tier has one run, and whose threshold is fixed.
//!
//! A figure is a run like any other: what is varied stands in the engine's label or in the
//! workload's name, and a note of the results says which figure they are of. So its table and its
//! plots come from the file alone ([`Drawing`]), also from several files put together.
//!
//! Three things differ from the paper on purpose. Figure 6 shows processor time an operation beside
//! the time of a compaction; its slow tier has one run, as the paper's, and small tables. Figure
//! 14d varies threads alone, because the engine has no partitions. Figure 14b shows slow reads too,
//! because records in memory are read from neither tier.
//!
//! Invariants:
//! 1. A figure's cells differ in nothing but what it varies.
//! 2. A cell without what is varied (another engine, another workload) is in the tables of all
//!    results and not in the drawing.

use crate::results::{Measured, Results};
use crate::scenarios::{self, HYBRID, OURS, Part, ScenarioArguments, TUNED};
use crate::store::{EngineKind, Label};
use crate::summary::{Spread, summaries};
use crate::{Failure, Outcome};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The note that says which figure results are of.
const NOTE: &str = "figure of the PrismDB paper";

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// As the paper counts them, or a word for ours.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the axis across is called.
    pub axis: &'static str,
    varied: Varied,
    /// Options that all labels of the preset have besides.
    besides: &'static [(&'static str, &'static str)],
    workloads: &'static str,
    measures: &'static [Measure],
}

/// Where a cell carries what its figure varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Varied {
    /// An option of the preset's label, with its values; behind a value may stand what it is not
    /// complete without, `VALUE+OPTION=VALUE`.
    Option(&'static str, &'static [&'static str]),
    /// What follows in a modifier of the workload, with labels of engines to compare.
    Modifier(&'static str, &'static [&'static str]),
}

/// Something that is shown.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// With its unit.
    pub name: &'static str,
    of: fn(&Measured) -> Option<f64>,
}

/// Two are the same that are called the same: the address of a function says nothing.
impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Measure {}

const THROUGHPUT: Measure = Measure { name: "op/s", of: |measured| Some(measured.ops_per_s) };
const SLOW_WRITTEN: Measure = Measure {
    name: "slow bytes written/op",
    of: |measured| {
        let tiers = &measured.traffic.tiers;
        let slow = tiers.last().filter(|_| tiers.len() > 1)?;
        Some(slow.written_bytes as f64 / measured.operations.max(1) as f64)
    },
};
const PROCESSOR: Measure =
    Measure { name: "processor us/op", of: |measured| Some(measured.cpu_us_per_op) };
const P99: Measure = Measure {
    name: "p99 us",
    of: |measured| measured.latency.get("all").map(|latency| latency.p99_us),
};
const DEMOTION: Measure = Measure { name: "ms of a demotion", of: |measured| measured.demotion_ms };
const FAST_SHARE: Measure = Measure {
    name: "fast share of reads, %",
    of: |measured| measured.fast_read_share.map(|share| 100.0 * share),
};
/// What memory has is read from no device: the share above says nothing of it.
const SLOW_READS: Measure =
    Measure { name: "slow reads/op", of: |measured| measured.slow_reads_per_op };

/// All of them.
pub const FIGURES: [Figure; 7] = [
    Figure {
        name: "6",
        title: "How a range to demote is chosen",
        axis: "policy",
        varied: Varied::Option("policy", &["random", "precise", "approximate"]),
        // So many ranges that eight candidates are a choice: with tables of 32 MiB, 300,000 records
        // have eight.
        besides: &[("variant", "paper"), ("table-size", "4MiB")],
        workloads: "ycsb-a",
        measures: &[THROUGHPUT, SLOW_WRITTEN, DEMOTION, PROCESSOR],
    },
    Figure {
        name: "11",
        title: "Skew",
        axis: "Zipf exponent",
        varied: Varied::Modifier("zipf-", &[HYBRID, OURS, TUNED]),
        besides: &[],
        // The paper's sweep begins with a uniform one; with 0.01 the most popular of a million
        // records is asked for 1.14 times as often as in that.
        workloads: "ycsb-a/zipf-0.01,ycsb-a/zipf-0.4,ycsb-a/zipf-0.6,ycsb-a/zipf-0.8,\
                    ycsb-a/zipf-0.99,ycsb-a/zipf-1.2,ycsb-a/zipf-1.4",
        measures: &[THROUGHPUT, P99],
    },
    Figure {
        name: "14b",
        title: "When records move up",
        axis: "promotion",
        // The paper's way up is a demotion that reads ask for.
        varied: Varied::Option("promotion", &["none", "demotion", "read"]),
        besides: &[("variant", "paper")],
        workloads: "ycsb-c",
        measures: &[THROUGHPUT, FAST_SHARE, SLOW_READS],
    },
    Figure {
        name: "14c",
        title: "Pinning threshold",
        axis: "percent of tracked keys",
        varied: Varied::Option("pinning", &["10", "30", "50", "70", "90"]),
        besides: &[("variant", "paper")],
        workloads: "ycsb-a,ycsb-b,ycsb-c",
        measures: &[THROUGHPUT, SLOW_WRITTEN],
    },
    Figure {
        name: "14d",
        title: "Threads",
        axis: "threads",
        varied: Varied::Modifier("threads-", &[HYBRID, OURS]),
        besides: &[],
        workloads: "ycsb-a/threads-1,ycsb-a/threads-2,ycsb-a/threads-4,ycsb-a/threads-8",
        measures: &[THROUGHPUT, PROCESSOR],
    },
    Figure {
        name: "runs",
        title: "Sorted runs of the slow tier",
        axis: "runs",
        varied: Varied::Option("runs", &["1", "2", "3", "4", "5", "6"]),
        besides: &[],
        workloads: "load,ycsb-a,ycsb-b,ycsb-c,ycsb-e",
        measures: &[THROUGHPUT, SLOW_WRITTEN, SLOW_READS],
    },
    Figure {
        name: "auto",
        title: "Pinning threshold, fixed and tuned",
        axis: "percent of tracked keys",
        // Of epochs of a million operations a figure's minutes have too few.
        varied: Varied::Option("pinning", &["10", "70", "90", "auto+epoch=100000"]),
        besides: &[],
        workloads: "ycsb-a,ycsb-b,ycsb-c",
        measures: &[THROUGHPUT, SLOW_WRITTEN, SLOW_READS],
    },
];

impl FromStr for Figure {
    type Err = Failure;

    fn from_str(text: &str) -> Outcome<Self> {
        FIGURES.iter().find(|figure| figure.name == text).copied().ok_or_else(|| {
            let names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
            format!("there is no figure '{text}'; there are {}", names.join(", ")).into()
        })
    }
}

/// `prismdb`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    mut_arg("records", |argument| argument.default_value("300k")),
    mut_arg("rounds", |argument| argument.default_value("1")),
    after_help = "Example:\n  thermocline-bench prismdb --figure 6,14b --rounds 2"
)]
pub struct FigureArguments {
    /// Figures by the paper's numbers, 6, 11, 14b, 14c, 14d, and ours, runs, auto; all where none
    /// is named
    #[arg(long, value_delimiter = ',')]
    pub figure: Vec<Figure>,
    /// Sizes and lengths.
    #[command(flatten)]
    pub scenario: ScenarioArguments,
}

impl Figure {
    /// Where it is from.
    pub fn source(&self) -> String {
        match self.name.starts_with(|letter: char| letter.is_ascii_digit()) {
            true => format!("After figure {} of the PrismDB paper", self.name),
            false => self.title.to_owned(),
        }
    }

    /// Where it is from and what it shows.
    fn heading(&self) -> String {
        let source = self.source();
        match source == self.title {
            true => source,
            false => format!("{source}: {}", self.title.to_lowercase()),
        }
    }

    /// Labels of the engines, those that are compared first.
    fn engines(&self) -> Vec<String> {
        match self.varied {
            Varied::Option(option, values) => {
                let besides: String =
                    self.besides.iter().map(|(name, value)| format!("+{name}={value}")).collect();
                values.iter().map(|value| format!("{HYBRID}+{option}={value}{besides}")).collect()
            }
            Varied::Modifier(_, engines) => engines.iter().map(|&label| label.to_owned()).collect(),
        }
    }

    fn part(&self, arguments: &ScenarioArguments) -> Part {
        Part {
            name: format!("figure-{}", self.name),
            title: self.heading(),
            engines: self.engines(),
            workloads: self.workloads,
            profile: arguments.profile.clone(),
            tiered: true,
            all_fast: false,
            records: scenarios::USUAL_RECORDS,
            notes: BTreeMap::from([(NOTE.to_owned(), self.name.to_owned())]),
        }
    }

    /// What is varied in a cell and what remains of its names; none where it is not in there.
    fn taken_apart(&self, engine: &str, workload: &str) -> Option<(String, String, String)> {
        match self.varied {
            Varied::Option(option, values) => {
                let mut label: Label = engine.parse().ok()?;
                let mut value = label.options.remove(option)?;
                let complete = values.iter().find_map(|complete| {
                    let (own, more) = complete.split_once('+')?;
                    let (name, set) = more.split_once('=')?;
                    let is_set = label.options.get(name).is_some_and(|found| found == set);
                    (own == value && is_set).then_some((*complete, name))
                });
                if let Some((complete, name)) = complete {
                    label.options.remove(name);
                    complete.clone_into(&mut value);
                }
                Some((value, label.to_string(), workload.to_owned()))
            }
            Varied::Modifier(prefix, _) => {
                let value = workload.split('/').find_map(|part| part.strip_prefix(prefix))?;
                let varied = format!("{prefix}{value}");
                let rest: Vec<_> = workload.split('/').filter(|part| **part != varied).collect();
                Some((value.to_owned(), engine.to_owned(), rest.join("/")))
            }
        }
    }
}

/// Runs the figures that are asked for; returns where the results of each are, and the results.
pub fn run(
    arguments: &FigureArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<Vec<(PathBuf, Results)>> {
    let asked = if arguments.figure.is_empty() { &FIGURES[..] } else { &arguments.figure };
    let parts = asked.iter().map(|figure| figure.part(&arguments.scenario)).collect();
    scenarios::run_parts(parts, &arguments.scenario, (engines, program, started_s), say)
}

/// A figure with what was measured for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Which.
    pub figure: Figure,
    /// The values of what is varied: by size where they are numbers, else as they were run.
    pub values: Vec<String>,
    /// What belongs together: an engine, a workload, or one on the other.
    pub series: Vec<Series>,
}

/// What belongs together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What it is of.
    pub name: String,
    /// For each value, and each measure of the figure: median and spread of the rounds.
    pub points: Vec<Vec<Option<Spread>>>,
}

impl Drawing {
    /// What `results` have of the figure that they are of; none where they are of none, or nothing
    /// of it was measured.
    pub fn of(results: &Results) -> Option<Self> {
        let figure: Figure = results.scenario.notes.get(NOTE)?.parse().ok()?;
        let found = summaries(results);
        let cells: Vec<_> = found
            .iter()
            .filter(|summary| !summary.rounds.is_empty())
            .filter_map(|summary| {
                let apart = figure.taken_apart(summary.engine, summary.workload)?;
                Some((apart, summary))
            })
            .collect();
        let mut values: Vec<String> = Vec::new();
        let mut names: Vec<(String, String)> = Vec::new();
        for ((value, engine, workload), _) in &cells {
            if !values.contains(value) {
                values.push(value.clone());
            }
            let name = (engine.clone(), workload.clone());
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if values.iter().all(|value| value.parse::<f64>().is_ok()) {
            let number = |value: &String| value.parse::<f64>().unwrap_or(0.0);
            values.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        let point = |value: &String, name: &(String, String)| {
            let cell = cells.iter().find(|((at, engine, workload), _)| {
                at == value && (engine, workload) == (&name.0, &name.1)
            });
            let of = |measure: &Measure| cell.and_then(|(_, summary)| summary.spread(measure.of));
            figure.measures.iter().map(of).collect()
        };
        let series = names.iter().map(|name| Series {
            name: shown(name, &names),
            points: values.iter().map(|value| point(value, name)).collect(),
        });
        let series: Vec<_> = series.collect();
        (!series.is_empty()).then_some(Self { figure, values, series })
    }

    /// What is shown, in the order of the points.
    pub fn measures(&self) -> &'static [Measure] {
        self.figure.measures
    }

    /// The values as numbers, where all of them are.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|value| value.parse().ok()).collect()
    }
}

/// The part of a series' name that tells it from the others.
fn shown((engine, workload): &(String, String), all: &[(String, String)]) -> String {
    let same_engine = all.iter().all(|(other, _)| other == engine);
    let same_workload = all.iter().all(|(_, other)| other == workload);
    match (same_engine, same_workload) {
        (true, _) => workload.clone(),
        (false, true) => engine.clone(),
        (false, false) => format!("{engine} on {workload}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Row, Scenario};
    use crate::store::{Durability, TierTraffic, find};
    use crate::{engines, workloads};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: FigureArguments,
    }

    fn arguments(words: &[&str]) -> Result<FigureArguments, clap::Error> {
        Line::try_parse_from([&["x"], words].concat()).map(|line| line.arguments)
    }

    #[test]
    fn figures_are_small_unless_told_otherwise_and_named_as_the_paper_does() {
        let small = arguments(&["--figure", "6,14b"]).unwrap();
        let names: Vec<_> = small.figure.iter().map(|figure| figure.name).collect();
        assert_eq!(names, ["6", "14b"]);
        assert_eq!((small.scenario.records, small.scenario.rounds), (300_000, 1));
        let large = arguments(&["--records", "2M", "--rounds", "3"]).unwrap();
        assert_eq!((large.scenario.records, large.scenario.rounds), (2_000_000, 3));
        let refused = arguments(&["--figure", "99"]).unwrap_err().to_string();
        assert!(refused.contains("there are 6, 11, 14b, 14c, 14d, runs, auto"), "{refused}");
    }

    #[test]
    fn every_cell_of_a_figure_can_be_run_and_is_drawn() {
        let scenario = arguments(&[]).unwrap().scenario;
        for figure in FIGURES {
            let part = figure.part(&scenario);
            let workloads = workloads::parse_list(part.workloads).unwrap();
            for label in &part.engines {
                if label.starts_with("thermocline-") {
                    find(&engines::ALL, &label.parse().unwrap()).unwrap();
                }
                for workload in &workloads {
                    let apart = figure.taken_apart(label, &workload.name);
                    assert!(apart.is_some(), "{label} on {}", workload.name);
                }
            }
            assert!(part.engines.len() * workloads.len() >= 3, "{}", figure.name);
        }
    }

    fn row(engine: &str, workload: &str, round: u32, ops_per_s: f64) -> Row {
        let tier = |written_bytes| TierTraffic { written_bytes, ..TierTraffic::default() };
        let mut measured = Measured { operations: 10, ops_per_s, ..Measured::default() };
        measured.traffic.tiers = vec![tier(5), tier(700)];
        Row {
            engine: engine.to_owned(),
            workload: workload.to_owned(),
            round,
            seed: 1,
            durability: Durability::Buffered,
            tiers: Vec::new(),
            measured: Some(measured),
            failure: None,
        }
    }

    fn results(figure: &str, rows: Vec<Row>) -> Results {
        let notes = BTreeMap::from([(NOTE.to_owned(), figure.to_owned())]);
        let scenario = Scenario { notes, ..Scenario::default() };
        let mut results = Results::new("", scenario, Machine::default(), 0);
        results.rows = rows;
        results
    }

    #[test]
    fn values_of_an_option_lie_in_order_with_a_series_for_each_workload() {
        let label = |pinning: u32| format!("thermocline-hybrid@tiers+pinning={pinning}");
        let mut rows = Vec::new();
        for (round, speed) in [(1, 1.0), (2, 3.0)] {
            for pinning in [90, 10] {
                for workload in ["ycsb-a", "ycsb-b"] {
                    rows.push(row(&label(pinning), workload, round, speed * f64::from(pinning)));
                }
            }
        }
        rows.push(row("rocksdb@tiers", "ycsb-a", 1, 5.0));
        let drawing = Drawing::of(&results("14c", rows)).unwrap();
        assert_eq!(drawing.numbers(), Some(vec![10.0, 90.0]));
        let names: Vec<_> = drawing.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["ycsb-a", "ycsb-b"]);
        let point = &drawing.series[0].points[1];
        assert_eq!(point[0].unwrap(), Spread { median: 180.0, min: 90.0, max: 270.0 });
        assert_eq!(point[1].unwrap().median, 70.0, "bytes of the slow tier alone");
    }

    #[test]
    fn what_a_value_is_not_complete_without_is_part_of_it() {
        let figure: Figure = "14b".parse().unwrap();
        let rows = figure.engines().iter().map(|label| row(label, "ycsb-c", 1, 1.0)).collect();
        let drawing = Drawing::of(&results("14b", rows)).unwrap();
        assert_eq!(drawing.values, ["none", "demotion", "read"]);
        assert_eq!(drawing.series.len(), 1, "{:?}", drawing.series);
        let alone = "thermocline-hybrid@tiers+promotion=demotion";
        let (value, ..) = figure.taken_apart(alone, "ycsb-c").unwrap();
        assert_eq!(value, "demotion");
    }

    #[test]
    fn values_of_a_modifier_make_a_series_for_each_engine_and_gaps_stay_gaps() {
        let rows = vec![
            row("a@tiers", "ycsb-a/zipf-0.99", 1, 2.0),
            row("a@tiers", "ycsb-a/zipf-0.4", 1, 1.0),
            row("b@tiers", "ycsb-a/zipf-0.4", 1, 3.0),
            row("b@tiers", "ycsb-a/uniform", 1, 4.0),
        ];
        let drawing = Drawing::of(&results("11", rows.clone())).unwrap();
        assert_eq!(drawing.values, ["0.4", "0.99"]);
        let names: Vec<_> = drawing.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["a@tiers", "b@tiers"]);
        assert!(drawing.series[1].points[0][0].is_some());
        assert_eq!(drawing.series[1].points[1][0], None);
        assert_eq!(Drawing::of(&results("6", rows.clone())), None, "nothing varies the policy");
        let plain =
            Results { rows, ..Results::new("", Scenario::default(), Machine::default(), 0) };
        assert_eq!(Drawing::of(&plain), None);
    }
}
