//! The rows of each figure: names, points, goals.
//!
//! ```text
//!   row    4/random-write/1KiB
//!   over   thermocline-indexed@slow+persistent-memory=90MiB+persistent-memory-driver=...
//!   under  leveldb@slow+write-buffer=7813KiB          both on fillrandom/value-1KiB/threads-1
//! ```
//! `4-cache/...` is against a LevelDB that is given the region's bytes besides. Figures are the
//! paper's of section 6; rows of which it says "on average" are means of the sizes'.
//!
//! LevelDB maps its tables, so the kernel reads around each page that it touches: as much as is
//! good for ranges, and thirty times what a look-up wants. It has each of [`READ_AHEAD`] in all
//! rows over loaded records, and the best of them counts.

use super::{KEY_BYTES, RECOVERY_VALUE, Sizes, USUAL_VALUE};
use crate::results::Measured;
use crate::rows::{self, Combined, Figure, Measure, Paper, Point, Value, point};
use std::fmt;

/// What is measured of the paper.
pub const PAPER: Paper = Paper {
    word: "slmdb",
    title: "SLM-DB (persistent memory emulated)",
    figures: &[
        Figure { name: "4", title: "Random writes, bytes written, disk used" },
        Figure { name: "5", title: "Writes by the latency of persistent memory" },
        Figure { name: "6", title: "Look-ups, ranges, bytes written with them" },
        Figure { name: "7", title: "YCSB" },
        Figure { name: "8", title: "Ranges by their lengths" },
        Figure { name: "ablation", title: "Rules and mechanisms, one by one left out" },
        Figure { name: "latency", title: "Latencies at half the peak" },
        Figure { name: "recovery", title: "Opening after a kill; the index made anew" },
        Figure { name: "memory", title: "Bytes of the region a key" },
    ],
    emulated: false,
    profile: "qlc",
    has_region: true,
};

/// What a cell of a row is run as. Numbers are bytes of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// An empty store is filled, and background work waited for.
    Fill(u64),
    /// A workload for some seconds.
    Work(u64),
    /// The same at a fixed rate.
    Rate,
    /// Opening what a kill left.
    Recovery,
    /// Making the index anew.
    Rebuild,
}

/// As files are called.
impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fill(value) => write!(f, "fill-{value}"),
            Self::Work(value) => write!(f, "work-{value}"),
            Self::Rate => f.write_str("rate"),
            Self::Recovery => f.write_str("recovery"),
            Self::Rebuild => f.write_str("rebuild"),
        }
    }
}

/// A row of this paper.
pub type Row = rows::Row<Group>;

const WRITTEN: Measure = Measure {
    unit: "B written",
    is_cost: true,
    of: |measured| Some(measured.traffic.written_bytes()? as f64),
};
const DISK: Measure =
    Measure { unit: "B/B on disk", is_cost: true, of: |measured| measured.space_amplification };
const WRITE_TIME: Measure =
    Measure { unit: "us", is_cost: true, of: |measured| Some(1e6 / measured.ops_per_s) };
const GET_P99: Measure =
    Measure { unit: "p99 us", is_cost: true, of: |measured| p99(measured, "read") };
const PUT_P99: Measure =
    Measure { unit: "p99 us", is_cost: true, of: |measured| p99(measured, "update") };
const OPENING: Measure =
    Measure { unit: "s", is_cost: true, of: |measured| Some(measured.preparation_s.open) };
const OPENINGS: Measure =
    Measure { unit: "1/s", is_cost: false, of: |measured| Some(1.0 / measured.preparation_s.open) };
const INDEX: Measure = Measure {
    unit: "B of index",
    is_cost: true,
    of: |measured| measured.index_bytes.map(|bytes| bytes as f64),
};

/// From the moment that an operation was due.
fn p99(measured: &Measured, kind: &str) -> Option<f64> {
    measured.latency_from_due.get(kind).map(|latency| latency.p99_us)
}

/// The time that a flushed line takes in the paper, in figures that name no other.
const LINE_NS: u32 = 500;

/// What the kernel reads around a page that LevelDB touches: the device's usual 128 KiB, or less.
const READ_AHEAD: [&str; 3] = ["", "+read-ahead=16KiB", "+read-ahead=4KiB"];

/// Labels of the engines that are compared.
struct Labels<'a>(&'a Sizes);

impl Labels<'_> {
    /// Ours, with an index of `keys`.
    fn ours(&self, keys: u64, line_ns: u32) -> String {
        self.with_region("indexed", self.0.region_mib(keys), line_ns)
    }

    /// Ours with values of `value` bytes.
    fn of(&self, value: u64) -> String {
        self.ours(self.0.records(value), LINE_NS)
    }

    /// `leveled` with a memtable in persistent memory (the paper's "LevelDB+PM").
    fn persistent_memtable(&self) -> String {
        self.with_region("leveled", self.0.memtables_region_mib(), LINE_NS)
    }

    fn with_region(&self, preset: &str, mib: u64, line_ns: u32) -> String {
        format!(
            "thermocline-{preset}@slow+persistent-memory={mib}MiB\
             +persistent-memory-driver=emulated-{line_ns}ns"
        )
    }

    /// LevelDB with a memtable as large as ours.
    fn leveldb(&self) -> String {
        format!("leveldb@slow+write-buffer={}KiB", self.0.memtable_bytes() >> 10)
    }

    /// The bytes of our region as cache besides, for a label of LevelDB.
    fn with_cache(&self, value: u64) -> String {
        let region = self.0.region_mib(self.0.records(value));
        format!("+memory={}MiB", (self.0.engine_bytes() >> 20) + region)
    }

    /// LevelDB over loaded records.
    fn leveldb_at_its_best(&self, workload: &str) -> Vec<Point> {
        let label = |read_ahead: &&str| point(&format!("{}{read_ahead}", self.leveldb()), workload);
        READ_AHEAD.iter().flat_map(label).collect()
    }
}

/// As rows and workloads name a size.
fn size(value: u64) -> String {
    if value.is_multiple_of(1024) { format!("{}KiB", value >> 10) } else { format!("{value}B") }
}

/// `base` with values of `value` bytes.
fn workload(base: &str, value: u64) -> String {
    format!("{base}/value-{}/threads-1", size(value))
}

/// What the peak is measured on.
pub fn peak_workload() -> String {
    workload("ycsb-a", USUAL_VALUE)
}

fn row(group: Group, name: &str, over: Vec<Point>, under: Vec<Point>) -> Row {
    Row::in_paper(&PAPER, group, name, over, under)
}

/// The rows of `figures`.
pub fn rows(figures: &[Figure], sizes: &Sizes) -> Vec<Row> {
    let table = Table { sizes, labels: Labels(sizes) };
    let all = [
        table.writes(),
        table.latencies_of_memory(),
        table.reads(),
        table.ycsb(),
        table.ranges(),
        table.ablation(),
        table.latencies(),
        table.recovery(),
        table.memory(),
    ];
    all.into_iter().flatten().filter(|row| figures.contains(&row.figure)).collect()
}

struct Table<'a> {
    sizes: &'a Sizes,
    labels: Labels<'a>,
}

impl Table<'_> {
    /// A row of each size, `4/random-write/1KiB`.
    fn each(&self, name: &str, of: impl Fn(&str, u64) -> Row) -> Vec<Row> {
        let row = |value: &u64| of(&format!("{name}/{}", size(*value)), *value);
        self.sizes.values.iter().map(row).collect()
    }

    /// `parts`, and their mean as `goal` makes it.
    fn with_mean(&self, name: &str, parts: Vec<Row>, goal: impl Fn(Row) -> Row) -> Vec<Row> {
        let name = format!("{name}/mean");
        let mean = Row::of_rows(&PAPER, &name, Combined::Mean, parts.clone());
        parts.into_iter().chain(mean.map(goal)).collect()
    }

    /// Ours over LevelDB while an empty store is filled.
    fn fill(&self, name: &str, value: u64) -> Row {
        let workload = workload("fillrandom", value);
        let (over, under) = (self.labels.of(value), self.labels.leveldb());
        row(Group::Fill(value), name, point(&over, &workload), point(&under, &workload))
    }

    /// Ours over LevelDB on a workload over loaded records.
    fn work(&self, name: &str, base: &str, value: u64) -> Row {
        let workload = workload(base, value);
        let (over, under) = (self.labels.of(value), self.labels.leveldb_at_its_best(&workload));
        row(Group::Work(value), name, point(&over, &workload), under)
    }

    /// The same row with the region's bytes as LevelDB's cache.
    fn with_cache(&self, mut row: Row, value: u64) -> Row {
        for rival in &mut row.under {
            rival.engine += &self.labels.with_cache(value);
        }
        row
    }

    fn writes(&self) -> Vec<Row> {
        let fill = |name: &str, value| self.fill(name, value);
        let fast = self.each("4/random-write", |name, value| fill(name, value).at_least(1.5, 2.0));
        let cached = |name: &str, value| self.with_cache(fill(name, value), value);
        let written = self.each("4/bytes-written", |name, value| fill(name, value).of(WRITTEN));
        let disk = |name: &str, value| fill(name, value).of(DISK).at_most(1.13, 1.1);
        [
            self.with_mean("4/random-write", fast, |mean| mean.at_least(2.0, 3.0)),
            self.each("4-cache/random-write", cached),
            self.with_mean("4/bytes-written", written, |mean| mean.at_most(0.43, 0.35)),
            self.each("4/disk-used", disk),
            self.persistent_memtable(),
        ]
        .concat()
    }

    /// A memtable in persistent memory over leveled tables, over our own `leveled`.
    fn persistent_memtable(&self) -> Vec<Row> {
        let fill = |name: &str, value| {
            let workload = workload("fillrandom", value);
            let over = point(&self.labels.persistent_memtable(), &workload);
            row(Group::Fill(value), name, over, point("thermocline-leveled@slow", &workload))
        };
        let (fast, name) = ("4/persistent-memtable/random-write", "4/persistent-memtable/written");
        let written = self.each(name, |name, value| fill(name, value).of(WRITTEN));
        let goal = |mean: Row| mean.at_most(0.88, 0.84);
        [self.each(fast, fill), self.with_mean(name, written, goal)].concat()
    }

    fn latencies_of_memory(&self) -> Vec<Row> {
        let workload = workload("fillrandom", USUAL_VALUE);
        let records = self.sizes.records(USUAL_VALUE);
        let at = |line_ns: u32| point(&self.labels.ours(records, line_ns), &workload);
        let of = |line_ns: u32| {
            let name = format!("5/write-time/{line_ns}ns");
            row(Group::Fill(USUAL_VALUE), &name, at(line_ns), at(0)).of(WRITE_TIME)
        };
        vec![of(300), of(500), of(900).at_most(1.75, 1.5)]
    }

    fn reads(&self) -> Vec<Row> {
        let write = self.each("6/random-write", |name, value| self.fill(name, value));
        let read = |name: &str, value| self.work(name, "readrandom", value);
        let reads = self.each("6/random-read", read);
        let cached = |name: &str, value| self.with_cache(read(name, value), value);
        let range = |name: &str, value| self.work(name, "seekrandom/scan-100", value);
        let all = |name: &str, value| self.work(name, "readseq", value);
        let ranges = [self.each("6/range-100", range), self.each("6/all", all)].concat();
        let written = [
            self.each("fill", |name, value| self.fill(name, value)),
            reads.clone(),
            self.each("6/range-100", range),
        ];
        let written = written.concat().into_iter().map(|row| row.of(WRITTEN)).collect();
        let written = Row::of_rows(&PAPER, "6/bytes-written", Combined::Sum, written);
        let plain = |mean: Row| mean;
        let (writes, reads) = if self.sizes.values == [128] {
            let reads = reads.into_iter().map(|row| row.at_least(1.1, 1.3)).collect();
            (write.into_iter().map(|row| row.at_least(1.0, 1.5)).collect(), reads)
        } else if self.sizes.data_over_memory > super::DATA_OVER_MEMORY {
            let writes = self.with_mean("6/random-write", write, |mean| mean.at_least(2.4, 3.0));
            (writes, self.with_mean("6/random-read", reads, |mean| mean.at_least(1.3, 1.6)))
        } else {
            let reads = reads.into_iter().map(|row| row.at_least(1.05, 1.3)).collect();
            let reads = self.with_mean("6/random-read", reads, |mean| mean.at_least(1.4, 2.0));
            (self.with_mean("6/random-write", write, plain), reads)
        };
        let ranges: Vec<Row> = ranges.into_iter().map(|row| row.at_least(0.9, 1.1)).collect();
        let cached = self.each("6-cache/random-read", cached);
        let written = written.map(|row| row.at_most(0.40, 0.33));
        [writes, reads, cached, ranges, Vec::from_iter(written)].concat()
    }

    fn ycsb(&self) -> Vec<Row> {
        let of = |letter: &str, base: &str| {
            self.each(&format!("7/{letter}"), |name, value| self.work(name, base, value))
        };
        let mut rows = of("a", "ycsb-a/if-present");
        rows = self.with_mean("7/a", rows, |mean| mean.at_least(2.7, 4.0));
        for letter in ["b", "c", "d", "f"] {
            let own = of(letter, &format!("ycsb-{letter}"));
            rows.extend(own.into_iter().map(|row| row.at_least(1.05, 1.5)));
        }
        rows.extend(of("e", "ycsb-e").into_iter().map(|row| row.at_least(0.9, 1.15)));
        rows
    }

    fn ranges(&self) -> Vec<Row> {
        let of = |length: u32| {
            let base = format!("seekrandom/scan-{length}");
            let row = |name: &str, value| self.work(name, &base, value).at_least(0.9, 1.1);
            self.each(&format!("8/range-{length}"), row)
        };
        [5, 10, 50, 100].into_iter().flat_map(of).collect()
    }

    fn ablation(&self) -> Vec<Row> {
        let whole = self.labels.of(USUAL_VALUE);
        let of = |group, base: &str, (name, options): (&str, &str)| {
            let workload = workload(base, USUAL_VALUE);
            let over = point(&format!("{whole}+{options}"), &workload);
            row(group, &format!("ablation/{name}"), over, point(&whole, &workload))
        };
        let choice = [
            ("e/no-leaf-scan", "leaf-scan=off"),
            ("e/no-scan-merges", "scan-merges=off"),
            ("e/neither", "leaf-scan=off+scan-merges=off"),
            ("e/no-overlap", "overlap=off"),
            ("e/no-live-ratio", "live-ratio=off"),
            ("e/oldest-first", "merge-order=oldest"),
        ];
        let writes = [
            ("random-write/entered-after-flushes", "enter-beside=off"),
            ("random-write/fences-each", "fences=each"),
        ];
        let choice = choice.map(|without| of(Group::Work(USUAL_VALUE), "ycsb-e", without));
        let writes = writes.map(|without| of(Group::Fill(USUAL_VALUE), "fillrandom", without));
        [choice.to_vec(), writes.to_vec()].concat()
    }

    fn latencies(&self) -> Vec<Row> {
        let p99 = |name: &str, measure| {
            let row = self.work(name, "ycsb-a", USUAL_VALUE).of(measure).at_most(1.0, 0.5);
            Row { group: Group::Rate, ..row }
        };
        vec![
            self.work("latency/peak", "ycsb-a", USUAL_VALUE),
            p99("latency/p99/get", GET_P99),
            p99("latency/p99/put", PUT_P99),
        ]
    }

    fn recovery(&self) -> Vec<Row> {
        let workload = workload("readrandom", RECOVERY_VALUE);
        let ours = self.labels.ours(self.sizes.keys, LINE_NS);
        let alone = |group, name: &str, engine: &str| {
            let row = row(group, name, point(engine, &workload), Vec::new());
            Row { value: Value::Itself, ..row }
        };
        let open = alone(Group::Recovery, "recovery/open", &ours).of(OPENING).at_most(1.0, 0.5);
        let theirs = alone(Group::Recovery, "recovery/open-leveldb", &self.labels.leveldb());
        let anew = format!("{ours}+rebuild-index=on");
        let anew = alone(Group::Rebuild, "recovery/rebuilt-keys", &anew).of(OPENINGS);
        let keys = self.sizes.keys as f64;
        let anew = Row { factor: keys, ..anew }.at_least(400_000.0, 400_000.0);
        vec![open, theirs.of(OPENING), anew]
    }

    fn memory(&self) -> Vec<Row> {
        let workload = workload("readrandom", USUAL_VALUE);
        let over = point(&self.labels.of(USUAL_VALUE), &workload);
        let row = row(Group::Work(USUAL_VALUE), "memory/region-a-key", over, Vec::new());
        let factor = 1.0 / self.sizes.records(USUAL_VALUE) as f64;
        let row = Row { value: Value::Itself, factor, ..row.of(INDEX) };
        let key = KEY_BYTES as f64;
        vec![row.at_most(100.0 + key, 70.0 + key)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Goal;
    use crate::slmdb::VALUES;
    use crate::slmdb::tests::sizes;

    fn goal(words: &[&str], name: &str) -> Goal {
        let rows = rows(PAPER.figures, &sizes(words));
        rows.into_iter().find(|row| row.name == name).unwrap().goal
    }

    #[test]
    fn every_row_has_a_name_of_its_own_a_figure_and_points_that_exist() {
        for words in [&[][..], &["--value", "128"], &["--data-over-memory", "5"]] {
            rows::tests::are_sound(&PAPER, &rows(PAPER.figures, &sizes(words)));
        }
    }

    #[test]
    fn the_names_and_bars_are_those_that_programs_read() {
        for (name, expected) in [
            ("4/random-write/1KiB", Goal::AtLeast(1.5, 2.0)),
            ("4/random-write/mean", Goal::AtLeast(2.0, 3.0)),
            ("4-cache/random-write/64KiB", Goal::None),
            ("4/bytes-written/mean", Goal::AtMost(0.43, 0.35)),
            ("4/persistent-memtable/written/mean", Goal::AtMost(0.88, 0.84)),
            ("5/write-time/900ns", Goal::AtMost(1.75, 1.5)),
            ("5/write-time/300ns", Goal::None),
            ("6/random-read/16KiB", Goal::AtLeast(1.05, 1.3)),
            ("6/bytes-written", Goal::AtMost(0.40, 0.33)),
            ("7/a/mean", Goal::AtLeast(2.7, 4.0)),
            ("7/e/4KiB", Goal::AtLeast(0.9, 1.15)),
            ("8/range-5/1KiB", Goal::AtLeast(0.9, 1.1)),
            ("recovery/open", Goal::AtMost(1.0, 0.5)),
            ("memory/region-a-key", Goal::AtMost(124.0, 94.0)),
            ("ablation/e/no-live-ratio", Goal::None),
            ("ablation/random-write/entered-after-flushes", Goal::None),
            ("ablation/random-write/fences-each", Goal::None),
        ] {
            assert_eq!(goal(&[], name), expected, "{name}");
        }
    }

    #[test]
    fn more_data_and_small_values_have_bars_of_their_own() {
        let more = ["--data-over-memory", "5"];
        assert_eq!(goal(&more, "6/random-write/mean"), Goal::AtLeast(2.4, 3.0));
        assert_eq!(goal(&more, "6/random-read/mean"), Goal::AtLeast(1.3, 1.6));
        assert_eq!(goal(&more, "6/random-read/1KiB"), Goal::None);
        let small = ["--value", "128"];
        assert_eq!(goal(&small, "6/random-write/128B"), Goal::AtLeast(1.0, 1.5));
        assert_eq!(goal(&small, "6/random-read/128B"), Goal::AtLeast(1.1, 1.3));
    }

    /// The usual sizes are the paper's, and a mean is of all of them.
    #[test]
    fn a_mean_has_the_points_of_every_size() {
        let rows = rows(&[PAPER.figure("7").unwrap()], &sizes(&[]));
        let mean = rows.iter().find(|row| row.name == "7/a/mean").unwrap();
        let groups: Vec<_> = mean.leaves().iter().map(|row| row.group).collect();
        assert_eq!(groups, VALUES.map(Group::Work));
        assert_eq!(mean.points().count(), (1 + READ_AHEAD.len()) * VALUES.len());
    }
}
