//! Workloads: what is asked of a store, exact and seeded (docs/workloads.md).
//!
//! ```text
//!   NAME[/MODIFIER]...       ycsb-a  ycsb-c/uniform  fillrandom/value-4KiB/sync  trace:FILE
//! ```
//! A family has one file: it names its source and builds [`Workload`]s, which are plain
//! descriptions. `stream` turns a description into operations; `distribution` chooses the records.
//!
//! Invariants:
//! 1. The operations of a thread follow from workload, records, seed, thread, number of threads and
//!    index. What `latest` reads also depends on what was inserted so far.
//! 2. Drawing an operation allocates nothing.
//! 3. No two threads insert the same record.

pub mod db_bench;
pub mod distribution;
pub mod hotrap;
pub mod linkbench;
pub mod meta;
pub mod nutanix;
pub mod spandb;
pub mod stream;
pub mod trace;
pub mod twitter;
pub mod ycsb;
mod zipf;

pub use distribution::{Chooser, Distribution};
pub use stream::{Operation, Plan, Stream};

use crate::Outcome;
use crate::keys::{KEY_BYTES_MIN, Order};
use crate::store::Durability;
use crate::values::{Sizes, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use std::sync::Arc;
use thermocline_foundation::ByteSize;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Looks a record up.
    Read,
    /// Looks up a key that is never written.
    ReadMissing,
    /// Writes a record anew.
    Update,
    /// Writes a record that is not there yet.
    Insert,
    /// Looks a record up and writes it anew.
    ReadModifyWrite,
    /// Removes a record.
    Delete,
    /// Reads records in order, from one on.
    Scan,
    /// Reads all records in order; each counts as an operation.
    Walk,
}

impl Kind {
    /// Whether it changes records that were loaded.
    pub fn changes(self) -> bool {
        matches!(self, Self::Update | Self::ReadModifyWrite | Self::Delete)
    }

    /// Whether it writes one record and reads none.
    pub fn is_one_write(self) -> bool {
        matches!(self, Self::Update | Self::Insert | Self::Delete)
    }

    /// Whether it reads at one point.
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadModifyWrite)
    }
}

/// One kind of operation of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// What latencies are recorded under.
    pub label: &'static str,
    /// What is done.
    pub kind: Kind,
    /// How often, in relation to the others.
    pub weight: f64,
    /// Which record of a group; none: any.
    pub slot: Option<Slot>,
    /// In a transaction, the record of the group that changes with it.
    pub with: Option<u64>,
}

/// Records of a group, from the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The first.
    pub first: u64,
    /// How many there are to choose from, all alike.
    pub count: u64,
}

/// How many records a scan reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScanLength {
    /// Always so many.
    Fixed(u32),
    /// Evenly from 1 to this.
    Uniform(u32),
    /// Generalised Pareto, 1 to `max`.
    Pareto {
        /// Shape.
        k: f64,
        /// Scale.
        sigma: f64,
        /// The longest.
        max: u32,
    },
}

/// What the store holds at the begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All records.
    Loaded,
    /// None.
    Empty,
}

/// Operations that write every record about once instead of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Each once, in the order of keys.
    InOrder,
    /// Each once, in random order.
    Once,
    /// As many draws as there are records, as db_bench does.
    Random,
}

/// A part of a run with a distribution of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// How much of the run it takes, in relation to the others.
    pub weight: f64,
    /// Its distribution.
    pub distribution: Distribution,
    /// Weights of the mix in it; none: those of the mix itself.
    pub weights: Option<&'static [f64]>,
}

impl Phase {
    /// A part as long as the others, with the mix as it is.
    pub fn new(distribution: Distribution) -> Self {
        Self { weight: 1.0, distribution, weights: None }
    }
}

/// A description; see the module's header.
#[derive(Clone, Debug)]
pub struct Workload {
    /// As it is named, modifiers included.
    pub name: String,
    /// Where its parameters come from.
    pub source: &'static str,
    /// Kinds of operations. Empty for fills and traces.
    pub mix: Vec<Share>,
    /// Distributions one after the other; at least one.
    pub phases: Vec<Phase>,
    /// Bytes of a key; none: as the scenario says.
    pub key_bytes: Option<u32>,
    /// Lengths of values; none: as the scenario says.
    pub sizes: Option<Sizes>,
    /// Lengths of scans.
    pub scan: ScanLength,
    /// What there is at the begin.
    pub start: Start,
    /// How numbers lie in the order of keys.
    pub order: Order,
    /// Fills instead of the mix.
    pub fill: Option<Fill>,
    /// One more thread updates random records beside the others and is not counted.
    pub writer_beside: bool,
    /// Of its writes; none: as the scenario says.
    pub durability: Option<Durability>,
    /// Threads that operate; none: as the scenario says.
    pub threads: Option<u32>,
    /// Writes that each thread has under way at once; none: a thread waits for each.
    pub flying: Option<usize>,
    /// Each change of records is a transaction.
    pub transactions: bool,
    /// An update writes a record only if it is there.
    pub if_present: bool,
    /// Operations of a file instead of the mix.
    pub trace: Option<Arc<trace::Trace>>,
}

/// Records that a scan may be told to read.
const SCAN_MAX: u32 = 1_000_000;

/// Writes that a thread may have under way.
const FLYING_MAX: usize = 1024;

/// Zipf with YCSB's exponent: what most workloads begin with.
pub const ZIPF: Distribution = Distribution::Zipf { alpha: 0.99 };

impl Workload {
    /// A workload of `mix` over loaded records with one distribution.
    pub fn new(
        name: &str,
        source: &'static str,
        mix: &[(&'static str, Kind, f64)],
        distribution: Distribution,
    ) -> Self {
        let share = |(label, kind, weight): &(&'static str, Kind, f64)| Share {
            label,
            kind: *kind,
            weight: *weight,
            slot: None,
            with: None,
        };
        Self {
            name: name.to_owned(),
            source,
            mix: mix.iter().map(share).collect(),
            phases: vec![Phase::new(distribution)],
            key_bytes: None,
            sizes: None,
            scan: ScanLength::Uniform(100),
            start: Start::Loaded,
            order: Order::Scattered { group: 1 },
            fill: None,
            writer_beside: false,
            durability: None,
            threads: None,
            flying: None,
            transactions: false,
            if_present: false,
            trace: None,
        }
    }

    /// A workload that fills an empty store.
    pub fn filling(name: &str, source: &'static str, fill: Fill, order: Order) -> Self {
        Self {
            start: Start::Empty,
            fill: Some(fill),
            order,
            ..Self::new(name, source, &[("insert", Kind::Update, 1.0)], Distribution::Uniform)
        }
    }

    /// Whether loaded records are changed or removed.
    pub fn changes(&self) -> bool {
        self.start == Start::Empty
            || self.writer_beside
            || self.trace.is_some()
            || self.mix.iter().any(|share| share.kind.changes())
    }

    /// Whether anything is written.
    pub fn writes(&self) -> bool {
        self.changes() || self.mix.iter().any(|share| share.kind == Kind::Insert)
    }

    /// Whether each thread does a fixed part of it, which ends.
    pub fn ends(&self) -> bool {
        self.fill.is_some() || self.trace.is_some() || self.walks()
    }

    /// Whether it reads all records in one call.
    pub fn walks(&self) -> bool {
        self.mix.iter().any(|share| share.kind == Kind::Walk)
    }

    /// The number of records where `wanted` are: whole groups, or those of the trace.
    pub fn records(&self, wanted: u64) -> u64 {
        match (&self.trace, self.order) {
            (Some(trace), _) => trace.records(),
            (None, Order::Scattered { group }) => wanted.next_multiple_of(group),
            (None, Order::Sequential) => wanted,
        }
    }

    /// Applies a modifier of the name.
    fn modify(&mut self, modifier: &str) -> Outcome<()> {
        let size = |text: &str, low: u32, high: u32| -> Outcome<u32> {
            let bytes = text.parse::<ByteSize>()?.0;
            u32::try_from(bytes).ok().filter(|bytes| (low..=high).contains(bytes)).ok_or_else(
                || format!("'{modifier}' is out of range; it must be {low} to {high} B").into(),
            )
        };
        match modifier.split_once('-') {
            Some(("value", text)) => {
                self.sizes = Some(Sizes::Fixed(size(text, VALUE_BYTES_MIN, VALUE_BYTES_MAX)?));
            }
            Some(("key", text)) => self.key_bytes = Some(size(text, KEY_BYTES_MIN, 1024)?),
            Some(("threads", text)) => {
                let threads = text.parse().map_err(|_| format!("'{modifier}' is not threads-N"))?;
                self.threads = Some(threads);
            }
            Some(("async", text)) => {
                let flying = text.parse().ok().filter(|flying| (1..=FLYING_MAX).contains(flying));
                let range = || format!("'{modifier}' is not async-N, N from 1 to {FLYING_MAX}");
                self.flying = Some(flying.ok_or_else(range)?);
            }
            Some(("scan", text)) => {
                let count = text.parse().ok().filter(|count| (1..=SCAN_MAX).contains(count));
                let range = || format!("'{modifier}' is not scan-N, N from 1 to {SCAN_MAX}");
                self.scan = ScanLength::Fixed(count.ok_or_else(range)?);
            }
            _ if modifier == "if-present" => self.if_present = true,
            _ if modifier == "transactions" => self.transactions = true,
            _ if modifier == "sync" => self.durability = Some(Durability::Sync),
            _ if modifier == "buffered" => self.durability = Some(Durability::Buffered),
            _ => {
                if self.fill.is_some() || self.trace.is_some() {
                    return Err(format!("{} takes no distribution", self.name).into());
                }
                let distribution = modifier.parse().map_err(|error| {
                    format!(
                        "{error}; other modifiers are value-SIZE, key-SIZE, threads-N, async-N, \
                         scan-N, if-present, transactions, sync and buffered"
                    )
                })?;
                self.phases = vec![Phase::new(distribution)];
            }
        }
        self.name = format!("{}/{modifier}", self.name);
        Ok(())
    }
}

/// Names of workloads that stand for several.
pub const SETS: [(&str, &str); 6] = [
    ("ycsb", "ycsb-a,ycsb-b,ycsb-c,ycsb-d,ycsb-e,ycsb-f"),
    (
        "hotrap",
        "hotrap-ro/hotspot-5,hotrap-rw/hotspot-5,hotrap-wh/hotspot-5,hotrap-uh/hotspot-5,\
         hotrap-ro,hotrap-rw,hotrap-wh,hotrap-uh,\
         hotrap-ro/uniform,hotrap-rw/uniform,hotrap-wh/uniform,hotrap-uh/uniform,hotrap-dynamic",
    ),
    ("twitter", "twitter-39,twitter-19,twitter-51,twitter-11,twitter-29,twitter-17"),
    (
        "db_bench",
        "fillseq,fillrandom,overwrite,readrandom,readmissing,readseq,seekrandom,readwhilewriting,\
         deleterandom",
    ),
    (
        "slmdb",
        "fillrandom/value-1KiB,fillrandom/value-4KiB,fillrandom/value-16KiB,\
         fillrandom/value-64KiB,readrandom/value-1KiB,readrandom/value-4KiB,\
         readrandom/value-16KiB,readrandom/value-64KiB",
    ),
    ("all", "load,ycsb,hotrap,twitter,prefix_dist,nutanix,linkbench,db_bench"),
];

/// Every workload by itself, without sets and traces.
pub fn all() -> Vec<Workload> {
    [
        vec![Workload::filling(
            "load",
            "every record once, in random order",
            Fill::Once,
            SCATTERED,
        )],
        ycsb::all(),
        hotrap::all(),
        twitter::all(),
        vec![meta::prefix_dist(), nutanix::mixed(), linkbench::mix(), spandb::phases()],
        db_bench::all(),
    ]
    .concat()
}

/// Keys in random order.
pub const SCATTERED: Order = Order::Scattered { group: 1 };

/// The workloads that a comma-separated list names, sets taken apart.
pub fn parse_list(text: &str) -> Outcome<Vec<Workload>> {
    let mut found = Vec::new();
    for name in text.split(',').map(str::trim) {
        match SETS.iter().find(|(set, _)| *set == name) {
            Some((_, members)) => found.extend(parse_list(members)?),
            None => found.push(parse(name)?),
        }
    }
    Ok(found)
}

/// The workload of a name with its modifiers.
pub fn parse(name: &str) -> Outcome<Workload> {
    if let Some(path) = name.strip_prefix("trace:") {
        return trace::workload(path);
    }
    let mut parts = name.split('/');
    let base = parts.next().unwrap_or_default();
    let Some(mut workload) = all().into_iter().find(|workload| workload.name == base) else {
        let names: Vec<_> = all().into_iter().map(|workload| workload.name).collect();
        let sets: Vec<_> = SETS.iter().map(|(set, _)| *set).collect();
        return Err(format!(
            "there is no workload '{base}'; there are {}, trace:FILE, and the sets {}",
            names.join(", "),
            sets.join(", ")
        )
        .into());
    };
    parts.try_for_each(|modifier| workload.modify(modifier))?;
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_modifiers_are_taken_apart() {
        let workload = parse("ycsb-c/uniform/value-100/key-16/sync").unwrap();
        assert_eq!(workload.name, "ycsb-c/uniform/value-100/key-16/sync");
        assert_eq!(workload.phases[0].distribution, Distribution::Uniform);
        assert_eq!(workload.sizes, Some(Sizes::Fixed(100)));
        assert_eq!((workload.key_bytes, workload.durability), (Some(16), Some(Durability::Sync)));
        assert_eq!(parse("ycsb-a/threads-4").unwrap().threads, Some(4));
        assert_eq!(parse("overwrite/async-64").unwrap().flying, Some(64));
        assert!(parse("linkbench/transactions").unwrap().transactions);
        assert!(parse("ycsb-a/if-present").unwrap().if_present);
        assert_eq!(parse("seekrandom/scan-50").unwrap().scan, ScanLength::Fixed(50));
        assert_eq!(parse_list("ycsb,fillseq").unwrap().len(), 7);
        for (wrong, reason) in [
            ("ycsb-g", "there are load, ycsb-a"),
            ("ycsb-a/gauss", "there are uniform"),
            ("ycsb-a/value-2GiB", "out of range"),
            ("ycsb-a/key-4", "out of range"),
            ("ycsb-a/threads-all", "is not threads-N"),
            ("ycsb-a/async-0", "is not async-N"),
            ("seekrandom/scan-0", "is not scan-N"),
            ("fillseq/uniform", "takes no distribution"),
            ("trace:/nowhere/t.csv", "nowhere"),
        ] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }

    #[test]
    fn every_set_can_be_parsed_and_every_name_is_its_own() {
        for (set, _) in SETS {
            assert!(!parse_list(set).unwrap().is_empty());
        }
        let mut names: Vec<_> = all().into_iter().map(|workload| workload.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
