//! `spandb`: the figures of the SpanDB paper, ours beside RocksDB on the same devices.
//!
//! ```text
//!   rows     names, points, bars        all points of all rows asked for, each once
//!   mod      the cell of each group      crate::rows runs, judges and shows them
//! ```
//! The fast device is made of what `--medium` says. RocksDB and ours get the same directory on it,
//! the same memory, the same operations; every write is synced unless a row says otherwise.

mod rows;

use crate::Outcome;
use crate::cell::Cell;
use crate::command::arguments::example_cell;
use crate::rows::{
    Context, Devices, Figure, Found, Lengths, Outcomes, RowArguments, SMALLEST, Ways, asked,
};
use rows::{Group, PAPER, Row};
use std::collections::BTreeSet;
use thermocline_foundation::ByteSize;

/// Bytes of a record with its key.
const RECORD_BYTES: u64 = 1024;
/// What a process may use besides what its engine is told: nothing is compared at its limit.
const BESIDE_BYTES: u64 = 2 << 30;
/// Memory of the process over that of its engine's largest memtable: all stores divide a quarter
/// among three.
const MEMTABLES: u64 = 12;
/// What is read after an opening: enough to see that the records are there.
const LOOKS: u64 = 2000;

/// Of a run, and of a try.
const USUAL: Lengths = Lengths { rounds: 3, records: 400_000, seconds: 6.0 };
const QUICK: Lengths = Lengths { rounds: 1, records: 100_000, seconds: 1.0 };

/// `spandb`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  thermocline-bench spandb --quick
  thermocline-bench spandb --figure 11,t2 --medium through --rounds 3
  thermocline-bench spandb --figure 11 --row 11/fillrandom/8 --ours log-writes=4
  thermocline-bench spandb --figure 10 --records 1M --seconds 10 --json > rows.json
  thermocline-bench spandb --figure recovery --log 256MiB --medium disk

There are 3 rounds of 400k records, 6 seconds a row; with --quick 1, 100k and 1.
Each row ends in a line `ratio ROW VALUE`. A row that is missed is no failure of the run.")]
pub struct SpandbArguments {
    /// Figures: 2, 3, 8, 9, 10, 11, t2, 12, 13, recovery; all where none is named
    #[arg(long, value_delimiter = ',', value_parser = |name: &str| PAPER.figure(name))]
    pub figure: Vec<Figure>,
    /// Log that the recovery rows replay; default 1GiB, quick 64MiB
    #[arg(long, value_name = "SIZE")]
    pub log: Option<ByteSize>,
    /// Memory for each engine: caches, write buffers and indexes
    #[arg(long, default_value = "256MiB")]
    pub memory: ByteSize,
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
    rest_seconds: f64,
    log: ByteSize,
    memory: ByteSize,
}

impl Sizes {
    fn new(arguments: &SpandbArguments) -> Self {
        let Lengths { rounds, records, seconds } = arguments.rows.lengths(USUAL, QUICK);
        let log_mib = if arguments.rows.quick { 64 } else { 1024 };
        Self {
            rounds,
            records,
            seconds,
            rest_seconds: 10.0,
            log: arguments.log.unwrap_or(ByteSize::mib(log_mib)),
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

/// Runs the rows that are asked for.
pub fn run(
    arguments: &SpandbArguments,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    let rows = chosen(arguments)?;
    let sizes = Sizes::new(arguments);
    let devices = devices(&sizes, &rows);
    let cell = |group, _: &Found<Group>| Ok(sizes.cell(group, arguments.rows.seed));
    crate::rows::run(
        &PAPER,
        &arguments.rows,
        (rows, sizes.rounds),
        devices,
        &Ways::cells(&cell),
        context,
        say,
    )
}

/// The rows by figure and name.
fn chosen(arguments: &SpandbArguments) -> Outcome<Vec<Row>> {
    let named = &arguments.figure[..];
    let figures = if named.is_empty() { PAPER.figures } else { named };
    asked(rows::rows(figures, arguments.rows.medium), &arguments.rows)
}

/// Two tiers have a fifth of the data on the fast one, as in the comparison over two tiers.
fn devices(sizes: &Sizes, rows: &[Row]) -> Devices {
    let data = sizes.data(&rows.iter().map(|row| row.group).collect());
    let room = crate::scenarios::room_for(data);
    let is_tiered = rows.iter().flat_map(Row::points).any(|point| point.engine.contains("@tiers"));
    let slow = if is_tiered { room } else { SMALLEST };
    Devices { fast: room, slow, capacity: ByteSize(data / 5) }
}

#[cfg(test)]
mod tests;
