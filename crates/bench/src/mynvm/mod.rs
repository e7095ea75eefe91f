//! `mynvm`: the figures of the MyNVM paper: large memory, small memory, and small memory with a
//! cache of blocks on the fast tier.
//!
//! ```text
//!        memory                fast tier              slow tier
//!   L    a tenth of the data   -                      all tables
//!   S    a sixth of L's        -                      all tables
//!   N    as S                  a fifth of the data:   all tables
//!                              logs and the cache
//!
//!   rows     names, points, goals       mod         sizes, and the cell of each group
//!   dictionary  bytes of tables         restart     hits after a restart, and a trace of blocks
//!   index    bytes of indexes           judged      policies on that trace
//!   memory   bytes of a cached block
//! ```
//! Labels name their memory, so the three take turns in one run. Reads and writes go past the page
//! cache, blocks are compressed with zstd, and a LinkBench row has as many of its small records as
//! come to the same bytes.
//!
//! Invariant: sizes follow from the number of records, never from the engine.

mod dictionary;
mod index;
mod judged;
mod memory;
mod restart;
mod rows;

use crate::Outcome;
use crate::cell::Cell;
use crate::command::arguments::example_cell;
use crate::rows::{
    Context, Devices, Drilled, Figure, Found, Lengths, Outcomes, RowArguments, Stand, Ways, asked,
    parse_seconds,
};
use crate::summary::Spread;
use judged::Traced;
use restart::Restarted;
use rows::{Group, PAPER, READS, Row};
use std::cell::OnceCell;
use std::path::PathBuf;
use thermocline_foundation::ByteSize;

/// Bytes of a record with its key.
const RECORD_BYTES: u64 = 1024;
/// The same of LinkBench, whose groups have a node of 128 B and seven records of 8 B.
const GRAPH_RECORD_BYTES: u64 = 24 + (128 + 7 * 8) / 8;
/// What a process may use besides what its engine is told: nothing is compared at its limit. What
/// is resident has rows of its own.
const BESIDE_BYTES: u64 = 256 << 20;
/// Data over L's memory, and L's over S's (section 6).
const DATA_OVER_LARGE: u64 = 10;
const LARGE_OVER_SMALL: u64 = 6;
/// Data over the fast tier.
const DATA_OVER_FAST: u64 = 5;
/// Less memory no engine is given.
const SMALL_MIB_MIN: u64 = 8;
/// Records of a device without a store, which keeps none: any key is a page.
const PAGE_RECORDS: u64 = 10_000;
/// Of S's throughput, the load at which latencies are measured.
const RATE_SHARE: f64 = 0.7;

/// Of a run, and of a try.
const USUAL: Lengths = Lengths { rounds: 2, records: 600_000, seconds: 8.0 };
const QUICK: Lengths = Lengths { rounds: 1, records: 600_000, seconds: 2.0 };

/// What a word of `--figure` names.
type Figures = Vec<Figure>;

/// `mynvm`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  thermocline-bench mynvm --quick --figure 25 --workload ycsb-c
  thermocline-bench mynvm --figure 25 --records 6m --seconds 30 --warm-up-seconds 150
  thermocline-bench mynvm --figure 25 --engine rocksdb
  thermocline-bench mynvm --figure 17 --text words.txt
  thermocline-bench mynvm --figure judge,13
  thermocline-bench mynvm --figure judge --trace mynvm-trace.jsonl
  thermocline-bench mynvm --row judge/heat
  thermocline-bench mynvm --figure 15-19 --ours table-size=2MiB
  thermocline-bench mynvm --figure 21 --seconds 2 --warm-up-seconds 0.5
  thermocline-bench mynvm --row 25/linkbench --json > rows.json

There are 2 rounds of 600k records, 20 seconds to warm up and 8 measured; with --quick 1 round, 6
and 2 seconds.
Each row ends in a line `ratio ROW VALUE`. A row that is missed is no failure of the run.")]
pub struct MynvmArguments {
    /// Figures: 1, 9, 10, 11, 13, 15, 16, 17, 18, 19, 21, 24, 25, judge, foyer, auto, hybrid,
    /// restart, cost, and ranges of numbers, as 15-19; all where none is named
    #[arg(long, value_delimiter = ',', value_parser = |word: &str| PAPER.named(word))]
    pub figure: Vec<Figures>,
    /// Rows on these workloads alone: ycsb-a, -b, -c, -e, linkbench, ycsb-c/uniform
    #[arg(long, value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Rows that this store has a part in alone, as rocksdb; rows without a store are left out
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub engine: Vec<String>,
    /// The text of figure 17, which is cut into records at its line ends
    #[arg(long, value_name = "FILE")]
    pub text: Option<PathBuf>,
    /// The trace of blocks of figures judge, foyer, 11 and 13; else one is recorded
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// The trace of blocks of the rows judge/linkbench; else one is recorded
    #[arg(long, value_name = "FILE")]
    pub linkbench_trace: Option<PathBuf>,
    /// Seconds before each row which are not measured
    #[arg(long, value_parser = parse_seconds)]
    pub warm_up_seconds: Option<f64>,
    /// Rows, lengths and places
    #[command(flatten)]
    pub rows: RowArguments,
}

/// What the arguments come to.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    rounds: u32,
    records: u64,
    seconds: f64,
    warm_up_seconds: f64,
}

impl Sizes {
    fn new(arguments: &MynvmArguments) -> Self {
        let Lengths { rounds, records, seconds } = arguments.rows.lengths(USUAL, QUICK);
        let warm_up_seconds = if arguments.rows.quick { 6.0 } else { 20.0 };
        Self {
            rounds,
            records,
            seconds,
            warm_up_seconds: arguments.warm_up_seconds.unwrap_or(warm_up_seconds),
        }
    }

    fn data_bytes(&self) -> u64 {
        self.records.saturating_mul(RECORD_BYTES)
    }

    fn large_mib(&self) -> u64 {
        ((self.data_bytes() / DATA_OVER_LARGE) >> 20).max(SMALL_MIB_MIN * LARGE_OVER_SMALL)
    }

    fn small_mib(&self) -> u64 {
        self.large_mib() / LARGE_OVER_SMALL
    }

    fn fast_mib(&self) -> u64 {
        ((self.data_bytes() / DATA_OVER_FAST) >> 20).max(1)
    }

    fn devices(&self) -> Devices {
        let room = crate::scenarios::room_for(self.data_bytes());
        Devices { fast: room, slow: room, capacity: ByteSize::mib(self.fast_mib()) }
    }

    /// The cell that all of `group` are made from.
    fn cell(&self, group: Group, seed: u64) -> Cell {
        let memory = ByteSize::mib(self.small_mib());
        Cell {
            records: match group {
                Group::Graph => self.data_bytes() / GRAPH_RECORD_BYTES,
                Group::Work | Group::Rate => self.records,
                Group::Wait => PAGE_RECORDS,
            },
            seed,
            threads: 8,
            memory,
            memory_limit: Some(ByteSize(memory.0 + BESIDE_BYTES)),
            direct: true,
            seconds: Some(self.seconds),
            warm_up_seconds: Some(self.warm_up_seconds),
            tiers: Vec::new(),
            ..example_cell()
        }
    }
}

/// Runs the rows that are asked for.
pub fn run(
    arguments: &MynvmArguments,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    let sizes = Sizes::new(arguments);
    let rows = (chosen(arguments, &sizes)?, sizes.rounds);
    let cell = |group, found: &Found<Group>| {
        let cell = sizes.cell(group, arguments.rows.seed);
        match group {
            Group::Work | Group::Graph | Group::Wait => Ok(cell),
            Group::Rate => Ok(Cell { rate: Some(due(&sizes, found)?), ..cell }),
        }
    };
    let text = arguments.text.as_deref();
    let traced = Traced::new(arguments, &sizes, context.0);
    let found = OnceCell::new();
    let restarted = |stand: &Stand<'_>| -> Outcome<Restarted> {
        let seed = arguments.rows.seed;
        let restart = || restart::restart(stand, &sizes, seed).map_err(|why| why.to_string());
        Ok(found.get_or_init(restart).clone()?)
    };
    let value = |row: &Row, stand: &Stand<'_>| match row.figure.name {
        "restart" => restarted(stand).map(|restarted| restarted.value(&row.name)),
        "10" => index::share(&row.name),
        "24" => memory::bytes_a_block(&row.name),
        "11" | "13" | "judge" => traced.value(&row.name, stand),
        "foyer" => traced.to_foyer(&row.name, stand),
        _ => dictionary::share(&row.name, text, stand.slow),
    };
    let drill = |row: &Row, stand: &Stand<'_>| value(row, stand).map(Drilled::from);
    let ways = Ways { cell: &cell, drill: Some(&drill) };
    crate::rows::run(&PAPER, &arguments.rows, rows, sizes.devices(), &ways, context, say)
}

/// The rows by figure, workload, store and name.
fn chosen(arguments: &MynvmArguments, sizes: &Sizes) -> Outcome<Vec<Row>> {
    let named = arguments.figure.concat();
    let figures = if named.is_empty() { PAPER.figures } else { &named };
    let mut rows = rows::rows(figures, sizes);
    if !arguments.workload.is_empty() {
        let is_on = |row: &Row| row.over.iter().all(|p| arguments.workload.contains(&p.workload));
        rows.retain(|row| !row.over.is_empty() && is_on(row));
        if rows.is_empty() {
            let words = arguments.workload.join(", ");
            return Err(format!("no row of these figures is on {words}").into());
        }
    }
    if !arguments.engine.is_empty() {
        let store = |label: &str| label.split(['@', '+']).next().unwrap_or_default().to_owned();
        rows.retain(|row| row.points().any(|p| arguments.engine.contains(&store(&p.engine))));
        if rows.is_empty() {
            let words = arguments.engine.join(", ");
            return Err(format!("no row of these figures is of {words}").into());
        }
    }
    asked(rows, &arguments.rows)
}

/// Operations a second at which latencies are measured.
fn due(sizes: &Sizes, found: &Found<Group>) -> Result<f64, String> {
    let small = rows::small(sizes);
    let own = found.get(&Group::Work).into_iter().flat_map(|results| &results.rows);
    // What was asked for every label of ours stands behind it.
    let own = own.filter(|row| row.engine.starts_with(&small) && row.workload == READS);
    let reached = Spread::of(own.filter_map(|row| Some(row.measured.as_ref()?.ops_per_s)));
    let reached =
        reached.ok_or("the rate follows from the row 1/throughput/s, which has no value")?;
    Ok(reached.median * RATE_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Measured, Results, Row as Measurement, Scenario};
    use crate::store::{Durability, Label};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: MynvmArguments,
    }

    fn arguments(words: &[&str]) -> MynvmArguments {
        Line::parse_from([&["x"], words].concat()).arguments
    }

    #[test]
    fn sizes_follow_from_the_records() {
        let sizes = Sizes::new(&arguments(&["--records", "6m", "--warm-up-seconds", "150"]));
        assert_eq!((sizes.large_mib(), sizes.small_mib(), sizes.fast_mib()), (585, 97, 1171));
        assert_eq!((sizes.rounds, sizes.warm_up_seconds), (2, 150.0));
        let quick = Sizes::new(&arguments(&["--quick", "--records", "1k"]));
        assert_eq!((quick.large_mib(), quick.small_mib(), quick.rounds), (48, 8, 1));
        let graph = sizes.cell(Group::Graph, 1);
        assert_eq!((graph.records * GRAPH_RECORD_BYTES) >> 20, sizes.data_bytes() >> 20);
        assert_eq!(graph.memory_limit.unwrap().0 - graph.memory.0, BESIDE_BYTES);
    }

    #[test]
    fn figures_workloads_and_names_choose_rows() {
        let names = |words: &[&str]| {
            let arguments = arguments(words);
            let rows = chosen(&arguments, &Sizes::new(&arguments))?;
            Outcome::Ok(rows.into_iter().map(|row| row.name).collect::<Vec<_>>())
        };
        let on_ycsb_c = names(&["--figure", "25", "--workload", "ycsb-c"]).unwrap();
        let expected =
            ["25/ycsb-c/N:L", "25/ycsb-c/N:S", "25/ycsb-c/resident", "25/ycsb-c/rocksdb"];
        assert_eq!(on_ycsb_c, expected);
        assert_eq!(
            names(&["--figure", "17", "--row", "17/text"]).unwrap(),
            ["17/text", "17/text/alone"]
        );
        assert_eq!(names(&["--row", "19/eviction/file"]).unwrap(), ["19/eviction/file_lru"]);
        let each = ["15", "16", "17", "18", "19"].join(",");
        assert_eq!(names(&["--figure", "15-19"]).unwrap(), names(&["--figure", &each]).unwrap());
        assert!(Line::try_parse_from(["x", "--figure", "2-8"]).is_err());
        assert_eq!(names(&["--row", "25/mean"]).unwrap(), ["25/mean/rocksdb"]);
        let error = names(&["--workload", "ycsb-d"]).unwrap_err().to_string();
        assert!(error.contains("on ycsb-d"), "{error}");
        let beside = names(&["--figure", "25", "--engine", "rocksdb"]).unwrap();
        let [c, b, graph, mean] =
            ["ycsb-c", "ycsb-b", "linkbench", "mean"].map(|on| format!("25/{on}/rocksdb"));
        let half = format!("{b}/half");
        assert_eq!(beside, [c, b, graph, half, mean]);
        let of_both = names(&["--engine", "rocksdb,device", "--row", "21/mean/poll"]).unwrap();
        assert_eq!(of_both.len(), 5);
        let error = names(&["--engine", "rocks"]).unwrap_err().to_string();
        assert!(error.contains("of rocks"), "{error}");
    }

    #[test]
    fn the_rate_is_seven_tenths_of_what_small_memory_reached() {
        let sizes = Sizes::new(&arguments(&[]));
        let measured = |engine: String, ops_per_s| Measurement {
            engine,
            workload: READS.to_owned(),
            round: 1,
            seed: 1,
            durability: Durability::Buffered,
            tiers: Vec::new(),
            measured: Some(Measured { ops_per_s, ..Measured::default() }),
            failure: None,
        };
        let small = rows::small(&sizes);
        let mut results = Results::new("", Scenario::default(), Machine::default(), 0);
        results.rows = vec![
            measured(small.clone() + "+slow-driver=emulated-gp3", 1000.0),
            measured(small.replace("@slow", "@tiers"), 9.0),
        ];
        assert_eq!(due(&sizes, &Found::from([(Group::Work, results)])), Ok(700.0));
        assert!(due(&sizes, &Found::new()).unwrap_err().contains("1/throughput/s"));
    }

    /// The three set-ups differ in nothing but memory and the fast tier.
    #[test]
    fn small_memory_with_a_cache_has_the_memory_of_small_memory_without() {
        let arguments = arguments(&["--row", "25/ycsb-c/N:"]);
        let rows = chosen(&arguments, &Sizes::new(&arguments)).unwrap();
        let label = |at: usize, under: bool| -> Label {
            let row = &rows[at];
            let side = if under { &row.under } else { &row.over };
            side[0].engine.parse().unwrap()
        };
        let (mut cached, mut large, mut small) = (label(0, false), label(0, true), label(1, true));
        let memory = [&mut cached, &mut large, &mut small].map(|l| l.take_memory().unwrap());
        assert_eq!(memory, [9, 58, 9].map(|mib| Some(ByteSize::mib(mib))));
        assert_eq!(large, small);
        for (name, value) in [("fast-cache", "117MiB"), ("placement", "log_only")] {
            assert_eq!(cached.options.remove(name).as_deref(), Some(value));
        }
        assert_eq!(cached.options, small.options);
    }
}
