//! `slmdb`: the figures of the SLM-DB paper: an index in persistent memory over one level of
//! tables, beside LevelDB, one thread, writes not synced.
//!
//! ```text
//!   memory of a process    half of --records of 1 KB       engine: three quarters of it
//!   data                   --data-over-memory times that (2)
//!   memtable               a twelfth of the engine's memory, in both
//!   region                 in a memory file, outside of the limit; each flushed line takes 500 ns
//!
//!   rows     names, points, goals       mod      sizes, and the cell of each group
//! ```
//! All tables are on the slow device of the rig, profile `qlc`. The region is **emulated**: nothing
//! here was measured on persistent memory.
//!
//! Invariant: sizes follow from the arguments, never from the engine.

mod rows;

use crate::Outcome;
use crate::cell::Cell;
use crate::command::arguments::example_cell;
use crate::rows::{
    Context, Devices, Figure, Found, Lengths, Outcomes, RowArguments, SMALLEST, Ways, asked,
    parse_seconds,
};
use crate::summary::Spread;
use crate::values::{VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use rows::{Group, PAPER, Row};
use std::collections::BTreeMap;
use thermocline_foundation::ByteSize;

/// Bytes of a key.
const KEY_BYTES: u64 = 24;
/// Bytes of a value in the rows of one size.
const USUAL_VALUE: u64 = 1 << 10;
/// Values of the recovery rows: what an opening takes goes by keys.
const RECOVERY_VALUE: u64 = 100;
/// Bytes of values of the paper's figures.
const VALUES: [u64; 4] = [USUAL_VALUE, 4 << 10, 16 << 10, 64 << 10];
/// Data over memory in the paper.
const DATA_OVER_MEMORY: u64 = 2;
/// Parts of the process's memory that the engine is told to use. The rest is the page cache, and
/// what no engine counts.
const ENGINE_SHARE: (u64, u64) = (3, 4);
/// The engine's memory over a memtable of ours; LevelDB is given the same.
const MEMTABLES: u64 = 12;
/// Region for a key beside the key itself, with what is free in chunks that are in use.
const REGION_KEY_BYTES: u64 = 140;
/// Memtables that a region has room for: three, one that an opening may need, and one for what
/// lies between chunks.
const REGION_MEMTABLES: u64 = 5;
/// Room for everything else in a region.
const REGION_BYTES: u64 = 16 << 20;
/// Less memory no engine is given.
const ENGINE_BYTES_MIN: u64 = 12 << 20;
/// What a process may use besides, at least: the harness and what no engine counts, none of which
/// can be taken from it.
const BESIDE_BYTES_MIN: u64 = 24 << 20;
/// What is read after an opening: enough to see that the records are there.
const LOOKS: u64 = 2000;

/// Of a run, and of a try.
const USUAL: Lengths = Lengths { rounds: 3, records: 250_000, seconds: 1.5 };
const QUICK: Lengths = Lengths { rounds: 1, records: 60_000, seconds: 0.5 };

/// `slmdb`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  thermocline-bench slmdb --quick --figure 4
  thermocline-bench slmdb --figure 4,5,6,7,8,ablation,latency,recovery --rounds 3
  thermocline-bench slmdb --figure 6 --data-over-memory 5
  thermocline-bench slmdb --figure 6 --value 128
  thermocline-bench slmdb --figure recovery --keys 10m --json > rows.json

There are 3 rounds of 250k records of 1 KB (as many bytes with larger values), half a second to warm
up and 1.5 measured; with --quick 1 round, 60k and 0.5. Fills run to their end.
The persistent memory is emulated. Each row ends in a line `ratio ROW VALUE`. A row that is missed
is no failure of the run.")]
pub struct SlmdbArguments {
    /// Figures: 4, 5, 6, 7, 8, ablation, latency, recovery, memory; all where none is named
    #[arg(long, value_delimiter = ',', value_parser = |name: &str| PAPER.figure(name))]
    pub figure: Vec<Figure>,
    /// Bytes of values; default 1KiB, 4KiB, 16KiB and 64KiB
    #[arg(long, value_delimiter = ',', value_parser = parse_value, value_name = "BYTES")]
    pub value: Vec<u64>,
    /// Data for each byte of a process's memory; default 2
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub data_over_memory: Option<u64>,
    /// Keys of the recovery rows, with values of 100 B; default 1m, quick 100k
    #[arg(long, value_parser = crate::command::arguments::parse_count)]
    pub keys: Option<u64>,
    /// Seconds before each row which are not measured
    #[arg(long, value_parser = parse_seconds)]
    pub warm_up_seconds: Option<f64>,
    /// Rows, lengths and places
    #[command(flatten)]
    pub rows: RowArguments,
}

fn parse_value(text: &str) -> Result<u64, String> {
    let range = u64::from(VALUE_BYTES_MIN)..=u64::from(VALUE_BYTES_MAX);
    let bytes = text.parse::<ByteSize>().map_err(|error| error.to_string())?.0;
    let valid = Some(bytes).filter(|bytes| range.contains(bytes));
    valid.ok_or_else(|| format!("'{text}' is not {} B to {} B", range.start(), range.end()))
}

/// What the arguments come to.
#[derive(Clone, Debug)]
struct Sizes {
    rounds: u32,
    /// Memory of a process, page cache included.
    memory_bytes: u64,
    data_over_memory: u64,
    values: Vec<u64>,
    keys: u64,
    seconds: f64,
    warm_up_seconds: f64,
}

impl Sizes {
    fn new(arguments: &SlmdbArguments) -> Self {
        let Lengths { rounds, records, seconds } = arguments.rows.lengths(USUAL, QUICK);
        let keys = if arguments.rows.quick { 100_000 } else { 1_000_000 };
        let named = &arguments.value[..];
        Self {
            rounds,
            memory_bytes: records.saturating_mul(USUAL_VALUE) / DATA_OVER_MEMORY,
            data_over_memory: arguments.data_over_memory.unwrap_or(DATA_OVER_MEMORY),
            values: if named.is_empty() { VALUES.to_vec() } else { named.to_vec() },
            keys: arguments.keys.unwrap_or(keys),
            seconds,
            warm_up_seconds: arguments.warm_up_seconds.unwrap_or(seconds / 3.0),
        }
    }

    fn data_bytes(&self) -> u64 {
        self.memory_bytes.saturating_mul(self.data_over_memory)
    }

    /// Records with values of `value` bytes.
    fn records(&self, value: u64) -> u64 {
        (self.data_bytes() / (value + KEY_BYTES)).max(100)
    }

    fn engine_bytes(&self) -> u64 {
        (self.memory_bytes / ENGINE_SHARE.1 * ENGINE_SHARE.0).max(ENGINE_BYTES_MIN)
    }

    fn memtable_bytes(&self) -> u64 {
        self.engine_bytes() / MEMTABLES
    }

    /// Bytes of a region that has memtables and no index.
    fn memtables_region_mib(&self) -> u64 {
        region_mib(self.engine_bytes(), 0)
    }

    /// Bytes of a region with an index of `keys`.
    fn region_mib(&self, keys: u64) -> u64 {
        region_mib(self.engine_bytes(), keys)
    }

    fn devices(&self, rows: &[Row]) -> Devices {
        let groups = rows.iter().flat_map(Row::leaves).map(|row| row.group);
        let of = |group| match group {
            Group::Recovery | Group::Rebuild => self.keys * (RECOVERY_VALUE + KEY_BYTES),
            Group::Fill(_) | Group::Work(_) | Group::Rate => self.data_bytes(),
        };
        let data = groups.map(of).max().unwrap_or(0);
        let slow = crate::scenarios::room_for(data);
        Devices { fast: SMALLEST, slow, capacity: SMALLEST }
    }

    /// The cell that all of `group` are made from.
    fn cell(&self, group: Group, seed: u64) -> Cell {
        let memory = ByteSize(self.engine_bytes());
        let beside = self.memory_bytes.saturating_sub(memory.0).max(BESIDE_BYTES_MIN);
        let cell = Cell {
            seed,
            threads: 1,
            memory,
            memory_limit: Some(ByteSize(memory.0 + beside)),
            direct: true,
            seconds: Some(self.seconds),
            warm_up_seconds: Some(self.warm_up_seconds),
            tiers: Vec::new(),
            records: self.records(USUAL_VALUE),
            ..example_cell()
        };
        match group {
            Group::Fill(value) => Cell {
                records: self.records(value),
                seconds: None,
                warm_up_seconds: None,
                settle: true,
                ..cell
            },
            Group::Work(value) => Cell { records: self.records(value), ..cell },
            Group::Rate => Cell { seconds: Some(self.seconds * 2.0), ..cell },
            Group::Recovery | Group::Rebuild => Cell {
                records: self.keys,
                value_bytes: RECOVERY_VALUE as u32,
                seconds: None,
                warm_up_seconds: None,
                operations: Some(LOOKS),
                crashed: group == Group::Recovery,
                ..cell
            },
        }
    }
}

/// Bytes of a region with an index of `keys`, and with memtables of an engine that may use
/// `engine_bytes` of memory.
pub(crate) fn region_mib(engine_bytes: u64, keys: u64) -> u64 {
    let memtables = engine_bytes / MEMTABLES * REGION_MEMTABLES + REGION_BYTES;
    let index = keys * (REGION_KEY_BYTES + KEY_BYTES);
    memtables.div_ceil(1 << 20) + index.div_ceil(1 << 20)
}

/// Runs the rows that are asked for.
pub fn run(
    arguments: &SlmdbArguments,
    context: Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    say("emulated: a flushed line of the region waits as long as its driver says");
    let sizes = Sizes::new(arguments);
    let rows = chosen(arguments, &sizes)?;
    let devices = sizes.devices(&rows);
    let cell = |group, found: &Found<Group>| {
        let cell = sizes.cell(group, arguments.rows.seed);
        match group {
            Group::Rate => Ok(Cell { rate: Some(due(found)?), ..cell }),
            _ => Ok(cell),
        }
    };
    let rows = (rows, sizes.rounds);
    crate::rows::run(&PAPER, &arguments.rows, rows, devices, &Ways::cells(&cell), context, say)
}

/// The rows by figure and name.
fn chosen(arguments: &SlmdbArguments, sizes: &Sizes) -> Outcome<Vec<Row>> {
    let named = &arguments.figure[..];
    let figures = if named.is_empty() { PAPER.figures } else { named };
    asked(rows::rows(figures, sizes), &arguments.rows)
}

/// Operations a second at which latencies are measured: half of what the slower of both reached,
/// LevelDB at its best.
fn due(found: &Found<Group>) -> Result<f64, String> {
    let results = found.get(&Group::Work(USUAL_VALUE));
    let rows = results.map(|results| &results.rows[..]).unwrap_or_default();
    let peak = |rival: bool| {
        let mut speeds = BTreeMap::<_, Vec<f64>>::new();
        for row in rows.iter().filter(|row| row.workload == rows::peak_workload()) {
            if let Some(measured) = &row.measured
                && row.engine.starts_with("leveldb") == rival
            {
                speeds.entry(&row.engine).or_default().push(measured.ops_per_s);
            }
        }
        let medians = speeds.into_values().filter_map(Spread::of).map(|spread| spread.median);
        medians.max_by(f64::total_cmp)
    };
    match (peak(false), peak(true)) {
        (Some(ours), Some(theirs)) => Ok(ours.min(theirs) / 2.0),
        _ => Err("the rate follows from the row latency/peak, which has no value".to_owned()),
    }
}

#[cfg(test)]
mod tests;
