//! `keigo`: the figures of the Keigo paper: RocksDB, LevelDB and Speedb over tiers by our plugins,
//! beside themselves on one device and beside RocksDB's own way to use two.
//!
//! ```text
//!   keigo     rocksdb@tiers+files=thermocline+keep=extents     fast tier: a fifth of the data
//!   all-slow  rocksdb@slow        all-fast  rocksdb@fast       best  rocksdb@tiers+levels=tuned,
//!                                                                    with and without a row cache
//!
//!   rows, placing    names, points, goals        mod    sizes, and the cell of each group
//!   drills           what no cell measures
//! ```
//! The plugin is loaded by the program that has the rivals; `cargo xtask bench keigo` builds both.
//!
//! Invariants:
//! 1. Both sides of a row have the same options of the host, memory and warm-up, and differ in
//!    where files lie alone.
//! 2. Sizes follow from the number of records, never from the engine.

mod drills;
mod placing;
mod rows;

use crate::Outcome;
use crate::cell::Cell;
use crate::command::arguments::example_cell;
use crate::rows::{
    Context, Devices, Figure, Found, Lengths, Outcomes, RowArguments, Stand, Ways, asked,
    parse_seconds,
};
use rows::{Group, PAPER, Row};
use thermocline_foundation::ByteSize;

/// As many as make a fast tier of 78 MiB, several times the memtables and level 1 of such a host. A
/// smaller one gets its logs, too: first files are expected to come to an eighth of it at most.
const RECORDS: u64 = 400_000;
/// Bytes of a record with its key.
const RECORD_BYTES: u64 = 1024;
/// What a process may use besides what its engine is told, where reads pass the page cache by.
const BESIDE_BYTES: u64 = 256 << 20;
/// The same where the page cache is part of what is compared.
const BESIDE_BUFFERED_BYTES: u64 = 64 << 20;
/// Data over the memory of an engine, and over the memory limit of a cell that has the page cache.
const DATA_OVER_MEMORY: u64 = 10;
const DATA_OVER_LIMIT: u64 = 6;
/// Less memory no engine is given.
const MEMORY_MIB_MIN: u64 = 12;
/// As 256 MB of level 1 are to the six million records of the design's rig.
const DATA_OVER_LEVEL_BASE: u64 = 24;
/// Of a data set that the fast tier holds.
const SMALL_PART: u64 = 4;
/// After how long a profile that is learnt is compared with one that is known.
const LEARNING_S: f64 = 30.0;

/// Of a run, and of a try.
const USUAL: Lengths = Lengths { rounds: 1, records: RECORDS, seconds: 4.0 };
const QUICK: Lengths = Lengths { rounds: 1, records: RECORDS, seconds: 2.0 };

/// `keigo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  thermocline-bench keigo --quick --figure 7 --workload ycsb-c
  thermocline-bench keigo --records 6m --rounds 3 --seconds 30 --warm-up-seconds 60 --figure 7
  thermocline-bench keigo --figure 7 --baseline best
  thermocline-bench keigo --figure level,restart --json > rows.json

There is 1 round of 400k records, 3 seconds to warm up and 4 measured; with --quick 1 and 2 seconds.
Each row ends in a line `ratio ROW VALUE`. A row that is missed is no failure of the run.")]
pub struct KeigoArguments {
    /// Figures: 1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 14, 15, online, cost, level, cache, extents,
    /// restart, full, adopt; all where none is named
    #[arg(long, value_delimiter = ',', value_parser = |name: &str| PAPER.figure(name))]
    pub figure: Vec<Figure>,
    /// Rows on these workloads alone: ycsb-a, ycsb-c/uniform, nutanix
    #[arg(long, value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Rows against this alone: all-slow, all-fast, best or best-held
    #[arg(long, value_parser = rows::BASELINES)]
    pub baseline: Option<String>,
    /// Of the data, what the fast tier may take
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub fast_percent: u64,
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
    fast_percent: u64,
}

impl Sizes {
    fn new(arguments: &KeigoArguments) -> Self {
        let Lengths { rounds, records, seconds } = arguments.rows.lengths(USUAL, QUICK);
        let warm_up_seconds = if arguments.rows.quick { 1.0 } else { 3.0 };
        Self {
            rounds,
            records,
            seconds,
            warm_up_seconds: arguments.warm_up_seconds.unwrap_or(warm_up_seconds),
            fast_percent: arguments.fast_percent,
        }
    }

    fn data_bytes(&self) -> u64 {
        self.records.saturating_mul(RECORD_BYTES)
    }

    /// So many percent of the data, at least a MiB.
    fn mib(&self, percent: u64) -> u64 {
        ((self.data_bytes() / 100 * percent) >> 20).max(1)
    }

    fn memory_mib(&self) -> u64 {
        ((self.data_bytes() / DATA_OVER_MEMORY) >> 20).max(MEMORY_MIB_MIN)
    }

    fn level_base_mib(&self) -> u64 {
        ((self.data_bytes() / DATA_OVER_LEVEL_BASE) >> 20).max(2)
    }

    fn devices(&self) -> Devices {
        let room = crate::scenarios::room_for(self.data_bytes());
        // RocksDB alone there overwrites everything, and is not through with merging it.
        let fast = ByteSize(room.0 + 2 * self.data_bytes());
        let capacity = ByteSize::mib(self.mib(self.fast_percent));
        Devices { fast, slow: room, capacity }
    }

    /// The cell that all of `group` are made from.
    fn cell(&self, group: Group, seed: u64) -> Cell {
        let memory = ByteSize::mib(self.memory_mib());
        let is_buffered = matches!(group, Group::Buffered | Group::Alone);
        let limit = match is_buffered {
            true => self.data_bytes() / DATA_OVER_LIMIT + BESIDE_BUFFERED_BYTES,
            false => memory.0 + BESIDE_BYTES,
        };
        Cell {
            records: if group == Group::Small { self.records / SMALL_PART } else { self.records },
            seed,
            threads: if group == Group::Alone { 1 } else { 8 },
            memory,
            memory_limit: Some(ByteSize(limit)),
            direct: !is_buffered,
            seconds: Some(self.seconds),
            warm_up_seconds: Some(match group {
                Group::Learning => LEARNING_S,
                _ => self.warm_up_seconds,
            }),
            tiers: Vec::new(),
            ..example_cell()
        }
    }
}

/// Runs the rows that are asked for.
pub fn run(
    arguments: &KeigoArguments,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    let sizes = Sizes::new(arguments);
    let rows = (chosen(arguments, &sizes)?, sizes.rounds);
    let cell = |group, _: &Found<Group>| Ok(sizes.cell(group, arguments.rows.seed));
    let drill = |row: &Row, stand: &Stand<'_>| drills::measure(row, stand, &sizes);
    let ways = Ways { cell: &cell, drill: Some(&drill) };
    crate::rows::run(&PAPER, &arguments.rows, rows, sizes.devices(), &ways, context, say)
}

/// The rows by figure, workload, baseline and name.
fn chosen(arguments: &KeigoArguments, sizes: &Sizes) -> Outcome<Vec<Row>> {
    let named = &arguments.figure[..];
    let figures = if named.is_empty() { PAPER.figures } else { named };
    let mut rows = rows::rows(figures, sizes);
    if !arguments.workload.is_empty() {
        let is_on = |row: &Row| row.points().all(|p| arguments.workload.contains(&p.workload));
        rows.retain(|row| row.points().next().is_some() && is_on(row));
    }
    if let Some(baseline) = &arguments.baseline {
        let end = format!("/{baseline}");
        rows.retain(|row| row.name.ends_with(&end));
    }
    if rows.is_empty() {
        return Err("no row of these figures is on these workloads, against this baseline".into());
    }
    asked(rows, &arguments.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KeigoArguments,
    }

    pub fn sizes() -> Sizes {
        Sizes::new(&Line::parse_from(["x"]).arguments)
    }

    fn names(words: &[&str]) -> Outcome<Vec<String>> {
        let arguments = Line::parse_from([&["x"], words].concat()).arguments;
        let rows = chosen(&arguments, &Sizes::new(&arguments))?;
        Ok(rows.into_iter().map(|row| row.name).collect())
    }

    #[test]
    fn sizes_follow_from_the_records_and_the_share_of_the_fast_tier() {
        let words = ["x", "--records", "6m", "--fast-percent", "50"];
        let sizes = Sizes::new(&Line::parse_from(words).arguments);
        assert_eq!((sizes.memory_mib(), sizes.level_base_mib()), (585, 244));
        assert_eq!(sizes.devices().capacity, ByteSize::mib(2929));
        let small = sizes.cell(Group::Small, 1);
        assert_eq!((small.records, small.threads, small.direct), (1_500_000, 8, true));
        let alone = sizes.cell(Group::Alone, 1);
        assert_eq!((alone.threads, alone.direct), (1, false));
        assert!(sizes.cell(Group::Learning, 1).warm_up_seconds >= Some(30.0));
    }

    #[test]
    fn figures_workloads_baselines_and_names_choose_rows() {
        let on_c = names(&["--figure", "7", "--workload", "ycsb-c/uniform"]).unwrap();
        let of = |end: &str| format!("7/ycsb-c/uniform/{end}");
        assert_eq!(on_c, [of("all-slow"), of("all-fast"), of("best"), of("fast-50")]);
        let best = names(&["--figure", "7", "--baseline", "best"]).unwrap();
        assert!(best.len() >= 5 && best.iter().all(|name| name.ends_with("/best")), "{best:?}");
        assert_eq!(names(&["--row", "restart"]).unwrap(), ["restart/hits"]);
        assert!(names(&["--figure", "7", "--workload", "linkbench"]).is_err());
        assert!(names(&["--figure", "restart", "--baseline", "best"]).is_err());
    }
}
