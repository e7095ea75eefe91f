//! The rows of each figure: names, points, goals.
//!
//! ```text
//!   row    25/ycsb-c/N:L
//!   over   thermocline-leveled@tiers+memory=9MiB+fast-cache=117MiB+...    ycsb-c
//!   under  thermocline-leveled@slow+memory=58MiB+...                      ycsb-c
//! ```
//! Goals are of the rig with six million records.

use super::Sizes;
use super::dictionary::{ALONE, DATA};
use super::{index, judged, memory};
use crate::block_trace::heat::HEATS;
use crate::block_trace::judge::{ADMISSIONS, EVICTIONS};
use crate::results::{Latency, Measured};
use crate::rows::{
    self, Combined, Figure, Measure, PROCESSOR, Paper, THROUGHPUT, Value, point, points,
};

/// What is measured of the paper.
pub const PAPER: Paper = Paper {
    word: "mynvm",
    title: "MyNVM",
    figures: &[
        Figure { name: "1", title: "Latency at a fixed load" },
        Figure { name: "9", title: "Bytes read of the slow tier, by the size of blocks" },
        Figure { name: "10", title: "Memory of an index, by the size of blocks" },
        Figure { name: "11", title: "Reads of the slow tier, by the size of blocks" },
        Figure { name: "13", title: "Blocks that touch two pages or more" },
        Figure { name: "15", title: "Blocks in the cache packed, or aligned to pages" },
        Figure { name: "16", title: "Slowest reads with blocks packed, or aligned to pages" },
        Figure { name: "17", title: "Bytes of small blocks with a dictionary of each table" },
        Figure { name: "18", title: "Bytes written into the cache, by admission" },
        Figure { name: "19", title: "Hit rate of the cache, by admission and eviction" },
        Figure { name: "21", title: "Ways to wait for a fast device" },
        Figure { name: "24", title: "Memory for a cached block" },
        Figure { name: "25", title: "Large memory, small memory, and a cache" },
        Figure { name: "judge", title: "Admission and eviction on one trace of blocks" },
        Figure { name: "foyer", title: "The cache of blocks beside foyer, on one trace" },
        Figure { name: "auto", title: "A cache of what the levels leave" },
        Figure { name: "hybrid", title: "The preset hybrid with a cache of its tables' blocks" },
        Figure { name: "restart", title: "Hit rate after a restart" },
        Figure { name: "cost", title: "What the cache costs where nothing comes back" },
    ],
    emulated: true,
    profile: "gp3",
    has_region: false,
};

/// The workload of most rows.
pub const READS: &str = "ycsb-c";
const UNIFORM: &str = "ycsb-c/uniform";
/// The one with scans and small records.
pub const GRAPH: &str = "linkbench";
/// Of the fast tier, what RocksDB's cache of blocks has beside its log.
const CACHE_PERCENT: u64 = 95;

/// What a cell of a row is run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// As fast as it goes.
    Work,
    /// The same with LinkBench's records.
    Graph,
    /// At a rate that follows from what small memory reached.
    Rate,
    /// Single pages of a device, without a store.
    Wait,
}

/// A row of this paper.
pub type Row = rows::Row<Group>;

const RESIDENT: Measure = Measure {
    unit: "B resident",
    is_cost: true,
    of: |measured| Some(measured.peak_rss_bytes as f64),
};
const WRITTEN: Measure = Measure {
    unit: "B written/op",
    is_cost: true,
    of: |measured| {
        let written = measured.second_level?.written_bytes;
        Some(written as f64 / measured.operations.max(1) as f64)
    },
};
/// Of the blocks that memory lacked.
pub const HITS: Measure = Measure {
    unit: "% hits",
    is_cost: false,
    of: |measured| {
        let level = measured.second_level?;
        let asked = (level.hits + level.misses).max(1);
        Some(100.0 * level.hits as f64 / asked as f64)
    },
};
const BLOCK_MEMORY: Measure = Measure {
    unit: "B a block",
    is_cost: true,
    of: |measured| {
        let level = measured.second_level.filter(|level| level.blocks > 0)?;
        Some(level.memory_bytes as f64 / level.blocks as f64)
    },
};
const MEAN: Measure = Measure {
    unit: "mean us",
    is_cost: true,
    of: |measured| from_due(measured).map(|latency| latency.mean_us),
};
const P99: Measure = Measure {
    unit: "p99 us",
    is_cost: true,
    of: |measured| from_due(measured).map(|latency| latency.p99_us),
};

const READ_MEAN: Measure = Measure {
    unit: "mean us a read",
    is_cost: true,
    of: |measured| measured.latency.get("all").map(|latency| latency.mean_us),
};
const READ_P99: Measure = Measure {
    unit: "p99 us a read",
    is_cost: true,
    of: |measured| measured.latency.get("all").map(|latency| latency.p99_us),
};

const SLOW_READS: Measure = Measure {
    unit: "slow reads/op",
    is_cost: true,
    of: |measured| {
        let slow = measured.traffic.tiers.last()?;
        Some(slow.reads as f64 / measured.operations.max(1) as f64)
    },
};
const SLOW_BYTES: Measure = Measure {
    unit: "slow B read/op",
    is_cost: true,
    of: |measured| {
        let slow = measured.traffic.tiers.last()?;
        Some(slow.read_bytes as f64 / measured.operations.max(1) as f64)
    },
};
const FAST_BYTES: Measure = Measure {
    unit: "fast B read/op",
    is_cost: true,
    of: |measured| {
        let fast = measured.traffic.tiers.first()?;
        Some(fast.read_bytes as f64 / measured.operations.max(1) as f64)
    },
};

/// From the moment at which operations were due: what waits behind a slow one counts.
fn from_due(measured: &Measured) -> Option<&Latency> {
    measured.latency_from_due.get("all")
}

/// Large memory.
fn large(sizes: &Sizes) -> String {
    format!("thermocline-leveled@slow+compression=zstd+memory={}MiB", sizes.large_mib())
}

/// Small memory.
pub fn small(sizes: &Sizes) -> String {
    format!("thermocline-leveled@slow+compression=zstd+memory={}MiB", sizes.small_mib())
}

/// Small memory and the cache, for which the ledger grants what logs leave of the fast tier.
pub fn cached(sizes: &Sizes) -> String {
    format!(
        "thermocline-leveled@tiers+compression=zstd+memory={}MiB+placement=log_only\
         +fast-cache={}MiB",
        sizes.small_mib(),
        sizes.fast_mib()
    )
}

/// RocksDB with the same memory and bytes of the fast tier: upper levels there, or its own cache of
/// blocks beside the log.
fn rocksdb(sizes: &Sizes) -> [String; 5] {
    let (memory, cache) = (sizes.small_mib(), sizes.fast_mib() * CACHE_PERCENT / 100);
    let with = |option: &str| format!("rocksdb@tiers+compression=zstd+memory={memory}MiB{option}");
    let (tuned, cached) = (with("+levels=tuned"), with(&format!("+persistent-cache={cache}MiB")));
    let rows = |mib: u64| format!("+row-cache={mib}MiB");
    [
        tuned.clone(),
        tuned + &rows(memory / 2),
        cached.clone(),
        cached.clone() + &rows(memory / 4),
        cached + "+index=partitioned",
    ]
}

/// What a cell on `workload` is run as.
pub fn group(workload: &str) -> Group {
    if workload == GRAPH { Group::Graph } else { Group::Work }
}

/// The cache over something else, on one workload.
fn against(name: &str, sizes: &Sizes, other: &str, workload: &str) -> Row {
    let (over, under) = (point(&cached(sizes), workload), point(other, workload));
    Row::in_paper(&PAPER, group(workload), name, over, under)
}

/// The cache alone.
fn alone(name: &str, engine: &str, measure: Measure) -> Row {
    let row = Row::in_paper(&PAPER, Group::Work, name, point(engine, READS), Vec::new());
    Row { value: Value::Itself, ..row.of(measure) }
}

/// A row that no cell measures.
fn drill(name: &str, unit: &'static str) -> Row {
    let measure = Measure { unit, is_cost: false, of: |_| None };
    let row = Row::in_paper(&PAPER, Group::Work, name, Vec::new(), Vec::new());
    Row { value: Value::Itself, ..row.of(measure) }
}

/// The rows of `figures`.
pub fn rows(figures: &[Figure], sizes: &Sizes) -> Vec<Row> {
    let all = [
        latencies(sizes),
        blocks(sizes),
        cached_blocks(sizes),
        layouts(sizes),
        slowest(sizes),
        dictionaries(),
        indexes(),
        on_a_trace(),
        in_memory(),
        admissions(sizes),
        evictions(sizes),
        waits(),
        rests(sizes),
        hybrids(sizes),
        vec![
            alone("24/bytes-a-block", &cached(sizes), BLOCK_MEMORY).at_most(28.0, 20.0),
            against("cost/uniform", sizes, &small(sizes), UNIFORM).at_least(0.98, 1.0),
            against("cost/uniform/processor", sizes, &small(sizes), UNIFORM).of(PROCESSOR),
        ],
        set_ups(sizes),
        vec![
            drill("restart/hits", "of the rate before").at_least(0.9, 0.97),
            drill("restart/entries", "blocks/s").at_least(5e6, 1e7),
        ],
    ];
    all.into_iter().flatten().filter(|row| figures.contains(&row.figure)).collect()
}

/// Figure 1: at 70 % of what small memory reaches.
fn latencies(sizes: &Sizes) -> Vec<Row> {
    let (large, small) = (large(sizes), small(sizes));
    let at_rate = |name: &str, other: &str, measure| Row {
        group: Group::Rate,
        ..against(name, sizes, other, READS).of(measure)
    };
    vec![
        alone("1/throughput/s", &small, THROUGHPUT),
        at_rate("1/mean/N:S", &small, MEAN).at_most(0.55, 0.55),
        at_rate("1/mean/N:L", &large, MEAN),
        at_rate("1/p99/N:L", &large, P99).at_most(1.2, 1.2),
    ]
}

/// Figures 18 and 19: each admission over that of all blocks.
fn admissions(sizes: &Sizes) -> Vec<Row> {
    let of = |admission: &str| format!("{}+fast-cache-admission={admission}", cached(sizes));
    let policies = [
        ("simulated_lru", cached(sizes)),
        ("second_access", of("second_access")),
        ("frequency", of("frequency")),
    ];
    let both = |workload: &str, (admission, engine): &(&str, String)| {
        let row = |figure: &str, measure| {
            let (over, under) = (point(engine, workload), point(&of("always"), workload));
            let name = match workload {
                READS => format!("{figure}/{admission}"),
                _ => format!("{figure}/{workload}/{admission}"),
            };
            Row::in_paper(&PAPER, group(workload), &name, over, under).of(measure)
        };
        let writes = row("18/writes", WRITTEN);
        let hits = Row { value: Value::Difference, ..row("19/hits", HITS) };
        // What is in force where nothing is said is judged.
        match *admission {
            "simulated_lru" => [writes.at_most(1.0 / 3.0, 0.25), hits.at_least(-2.0, 0.0)],
            _ => [writes, hits],
        }
    };
    let on = |workload| policies.iter().flat_map(move |policy| both(workload, policy));
    [READS, GRAPH].into_iter().flat_map(on).collect()
}

/// Figure 19: each eviction over the plain one, where all blocks are taken.
fn evictions(sizes: &Sizes) -> Vec<Row> {
    let all = format!("{}+fast-cache-admission=always", cached(sizes));
    let of = |eviction: &str| format!("{all}+fast-cache-eviction={eviction}");
    let policies = [("fifo_reinsert", all.clone()), ("file_lru", of("file_lru"))];
    let row = |(name, engine): (&str, String)| {
        let (over, under) = (point(&engine, READS), point(&of("fifo"), READS));
        let name = format!("19/eviction/{name}");
        let row = Row::in_paper(&PAPER, Group::Work, &name, over, under).of(HITS);
        Row { value: Value::Difference, ..row }
    };
    policies.map(row).to_vec()
}

/// Figures 9 and 11: small blocks over those of 16 KiB, without a cache. Indexes are partitioned.
fn blocks(sizes: &Sizes) -> Vec<Row> {
    let of = |kib: u32| format!("{}+block-size={kib}KiB", small(sizes));
    let both = |kib| {
        let row = |figure: &str, measure| {
            let (over, under) = (point(&of(kib), READS), point(&of(16), READS));
            let name = format!("{figure}/{kib}-KiB");
            Row::in_paper(&PAPER, Group::Work, &name, over, under).of(measure)
        };
        [row("9/bytes", SLOW_BYTES), row("11/slow-reads", SLOW_READS)]
    };
    [4, 6].into_iter().flat_map(both).collect()
}

/// Figure 9: the cache with blocks of other sizes over it with the usual ones. All tables are on
/// the slow tier.
fn cached_blocks(sizes: &Sizes) -> Vec<Row> {
    let usual = cached(sizes);
    let both = |workload: &str, kib: u32| {
        let row = |name: &str, measure| {
            let of = format!("{usual}+block-size={kib}KiB");
            let (over, under) = (point(&of, workload), point(&usual, workload));
            let name = format!("9/N/{workload}/{name}/{kib}-KiB");
            Row::in_paper(&PAPER, group(workload), &name, over, under).of(measure)
        };
        let hits = Row { value: Value::Difference, ..row("hits", HITS) };
        [row("slow-reads", SLOW_READS), hits, row("throughput", THROUGHPUT)]
    };
    let workloads = [READS, "ycsb-b", GRAPH];
    let all = workloads.into_iter().flat_map(|workload| [4, 16].map(|kib| (workload, kib)));
    all.flat_map(|(workload, kib)| both(workload, kib)).collect()
}

/// Figure 15: copies aligned to pages, as the paper has them, over copies one behind the other.
fn layouts(sizes: &Sizes) -> Vec<Row> {
    let (padded, packed) = (format!("{}+fast-cache-layout=padded", cached(sizes)), cached(sizes));
    let row = |name: &str, measure| {
        let (over, under) = (point(&padded, READS), point(&packed, READS));
        Row::in_paper(&PAPER, Group::Work, name, over, under).of(measure)
    };
    vec![
        Row { value: Value::Difference, ..row("15/hits", HITS) },
        row("15/slow-reads", SLOW_READS),
        row("15/fast-bytes", FAST_BYTES),
        row("15/throughput", THROUGHPUT),
    ]
}

/// Figure 16: the slowest reads with copies aligned to pages, over those with copies one behind the
/// other.
fn slowest(sizes: &Sizes) -> Vec<Row> {
    let (padded, packed) = (format!("{}+fast-cache-layout=padded", cached(sizes)), cached(sizes));
    let row = |workload: &str| {
        let (over, under) = (point(&padded, workload), point(&packed, workload));
        let name = format!("16/p99/{workload}");
        Row::in_paper(&PAPER, group(workload), &name, over, under).of(READ_P99)
    };
    vec![row(READS), row(GRAPH)]
}

/// Figure 10: indexes of small blocks over those of large ones.
fn indexes() -> Vec<Row> {
    let row = |data, kib| drill(&index::row_name(data, kib), "of its bytes");
    index::DATA.into_iter().flat_map(|data| index::KIB.map(|kib| row(data, kib))).collect()
}

/// Figures 11, 13, `judge` and `foyer`: what follows from traces of blocks.
fn on_a_trace() -> Vec<Row> {
    let pages = |name: &str| drill(&format!("11/pages/{name}"), "pages a read");
    let spread = |name: &str| drill(&format!("13/{name}"), "% of blocks");
    let places = ["tables", "packed", "padded"];
    let mut rows = [places.map(pages), places.map(spread)].concat();
    let others = ADMISSIONS.into_iter().filter(|(name, _)| *name != "always");
    for (admission, prefix) in others.flat_map(|(name, _)| [(name, ""), (name, "linkbench/")]) {
        let writes = drill(&format!("judge/{prefix}writes/{admission}"), "of its bytes");
        let hits = drill(&format!("judge/{prefix}hits/{admission}"), "% points");
        // What is in force where nothing is said is judged.
        rows.extend(match admission == judged::USUAL {
            true => [writes.at_most(1.0 / 3.0, 0.25), hits.at_least(-2.0, 0.0)],
            false => [writes, hits],
        });
    }
    for ((heat, _), (admission, _)) in HEATS.iter().flat_map(|heat| ADMISSIONS.map(|a| (heat, a))) {
        let hits = drill(&format!("judge/heat/{heat}/hits/{admission}"), "% hits");
        let writes = drill(&format!("judge/heat/{heat}/writes/{admission}"), "B a request");
        rows.extend([hits, writes]);
    }
    let evictions = EVICTIONS.into_iter().filter(|(name, _)| *name != "fifo");
    rows.extend(evictions.map(|(name, _)| drill(&format!("judge/eviction/{name}"), "% points")));
    rows.extend([
        drill("foyer/hits", "% points").at_least(0.0, 0.0),
        drill("foyer/writes", "of its bytes").at_most(1.0, 1.0),
        drill("foyer/processor", "of its time").at_most(1.0, 1.0),
    ]);
    rows
}

/// Figure 24: what a block of a full cache takes with each admission.
fn in_memory() -> Vec<Row> {
    let row = |(admission, _)| {
        let row = drill(&memory::row_name(admission), "B a block");
        match admission == judged::USUAL {
            true => row.at_most(28.0, 20.0),
            false => row,
        }
    };
    ADMISSIONS.into_iter().map(row).collect()
}

/// Figure 17: small blocks over large ones without dictionaries: with them, and alone.
fn dictionaries() -> Vec<Row> {
    let both = |data| {
        let name = format!("17/{data}");
        let row = |name: &str| drill(name, "of its bytes");
        [row(&name).at_most(1.015, 1.0), row(&format!("{name}{ALONE}"))]
    };
    DATA.into_iter().flat_map(both).collect()
}

/// Figure 21: pages of a device as fast as Optane, and of a usual drive, waited for in each way
/// over being told.
fn waits() -> Vec<Row> {
    let measures = [("mean", READ_MEAN), ("p99", READ_P99), ("processor", PROCESSOR)];
    let of = |prefix: &str, profile: &str, threads: u32| {
        let device = format!("device@fast+driver=emulated-{profile}");
        let workload = format!("{UNIFORM}/threads-{threads}");
        let told = point(&device, &workload);
        let mut rows = Vec::new();
        for (name, measure) in measures {
            let row = |way: &str, over, under| {
                let name = format!("{prefix}/{name}/{way}/{threads}");
                Row::in_paper(&PAPER, Group::Wait, &name, over, under).of(measure)
            };
            let itself = row("interrupt", told.clone(), Vec::new());
            rows.push(Row { value: Value::Itself, ..itself });
            rows.extend(["poll", "fixed-5us", "dynamic-50"].map(|way| {
                let asked = point(&format!("{device}-{way}"), &workload);
                let row = row(way, asked, told.clone());
                match (prefix, name, way) {
                    ("21", "mean", "poll") => row.at_most(1.0, 0.85),
                    _ => row,
                }
            }));
        }
        rows
    };
    let devices = [("21", "optane-p5800x"), ("21/tlc", "tlc-nvme")];
    let all = devices.into_iter().flat_map(|device| [1, 2, 4, 8, 16].map(|n| (device, n)));
    all.flat_map(|((prefix, profile), threads)| of(prefix, profile, threads)).collect()
}

/// All of the fast tier for levels of tables.
fn levels(sizes: &Sizes) -> String {
    format!("thermocline-leveled@tiers+compression=zstd+memory={}MiB", sizes.small_mib())
}

/// Half of it for levels, half for the cache: what is advised where records are written.
fn half_for_levels(sizes: &Sizes) -> String {
    format!("{}+fast-cache={}MiB", levels(sizes), (sizes.fast_mib() / 2).max(1))
}

/// What the levels leave of the fast tier is the cache's, over a cache of half of the tier and over
/// tables of the next level (guests).
fn rests(sizes: &Sizes) -> Vec<Row> {
    let guests = levels(sizes);
    let auto = format!("{guests}+fast-cache=auto");
    let half = half_for_levels(sizes);
    let of = |workload: &str| {
        let row = |name: &str, engine: &str, other: &str| {
            let (over, under) = (point(engine, workload), point(other, workload));
            Row::in_paper(&PAPER, Group::Work, &format!("auto/{workload}/{name}"), over, under)
        };
        [
            row("guests", &auto, &guests).at_least(0.97, 1.0),
            row("fixed", &auto, &half),
            row("slow-reads/guests", &auto, &guests).of(SLOW_READS),
            row("slow-reads/fixed", &auto, &half).of(SLOW_READS),
        ]
    };
    ["ycsb-a", "ycsb-b", READS, "ycsb-e"].into_iter().flat_map(of).collect()
}

/// The preset `hybrid` with a quarter of the fast tier for blocks of its tables, over the same with
/// slots alone.
fn hybrids(sizes: &Sizes) -> Vec<Row> {
    let (memory, fast) = (sizes.small_mib(), sizes.fast_mib());
    let slots = format!("thermocline-hybrid@tiers+compression=zstd+memory={memory}MiB");
    let cached = format!("{slots}+fast-cache={}MiB", (fast / 4).max(1));
    let of = |workload: &str| {
        let row = |name: &str, measure| {
            let (over, under) = (point(&cached, workload), point(&slots, workload));
            let name = format!("hybrid/{workload}/{name}");
            Row::in_paper(&PAPER, Group::Work, &name, over, under).of(measure)
        };
        [row("throughput", THROUGHPUT), row("slow-reads", SLOW_READS)]
    };
    ["ycsb-b", READS, UNIFORM, "ycsb-e"].into_iter().flat_map(of).collect()
}

/// Figure 25.
fn set_ups(sizes: &Sizes) -> Vec<Row> {
    let (large, small) = (large(sizes), small(sizes));
    let goals = [(READS, (1.2, 1.8), (2.0, 2.5)), (GRAPH, (0.92, 1.2), (1.5, 2.0))];
    let ours = goals.into_iter().flat_map(|(workload, to_large, to_small)| {
        let row = |name: &str, other: &str| {
            against(&format!("25/{workload}/{name}"), sizes, other, workload)
        };
        [
            row("N:L", &large).at_least(to_large.0, to_large.1),
            row("N:S", &small).at_least(to_small.0, to_small.1),
            row("resident", &small).of(RESIDENT),
        ]
    });
    let rocksdb = rocksdb(sizes);
    let over_rocksdb = |name: &str, engine: &str, workload: &str| {
        let under = points(&rocksdb.each_ref().map(String::as_str), workload);
        let row = Row::in_paper(&PAPER, group(workload), name, point(engine, workload), under);
        row.at_least(1.2, 1.3)
    };
    let rivals = [READS, "ycsb-b", GRAPH]
        .map(|workload| over_rocksdb(&format!("25/{workload}/rocksdb"), &cached(sizes), workload));
    let half = over_rocksdb("25/ycsb-b/rocksdb/half", &half_for_levels(sizes), "ycsb-b");
    let mean = Row::of_rows(&PAPER, "25/mean/rocksdb", Combined::Mean, rivals.to_vec());
    let mean = mean.map(|row| row.at_least(1.2, 1.3));
    ours.chain(rivals).chain([half]).chain(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Goal;
    use crate::store::SecondLevel;

    const SIZES: Sizes = Sizes { rounds: 1, records: 600_000, seconds: 1.0, warm_up_seconds: 1.0 };

    #[test]
    fn every_row_has_a_name_of_its_own_a_figure_and_points_that_exist() {
        let rows = rows(PAPER.figures, &SIZES);
        rows::tests::are_sound(&PAPER, &rows);
        let labels = rows.iter().flat_map(Row::points).map(|point| &point.engine);
        for label in labels.filter(|label| label.starts_with("thermocline-")) {
            crate::store::find(&crate::engines::ALL, &label.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn the_names_and_bars_are_those_that_programs_read() {
        let rows = rows(PAPER.figures, &SIZES);
        let goal = |name: &str| rows.iter().find(|row| row.name == name).unwrap().goal;
        assert_eq!(goal("25/ycsb-c/N:L"), Goal::AtLeast(1.2, 1.8));
        assert_eq!(goal("25/linkbench/N:S"), Goal::AtLeast(1.5, 2.0));
        assert_eq!(goal("25/ycsb-b/rocksdb"), Goal::AtLeast(1.2, 1.3));
        assert_eq!(goal("25/mean/rocksdb"), Goal::AtLeast(1.2, 1.3));
        assert_eq!(goal("1/mean/N:S"), Goal::AtMost(0.55, 0.55));
        assert_eq!(goal("18/writes/simulated_lru"), Goal::AtMost(1.0 / 3.0, 0.25));
        assert_eq!(goal("19/hits/simulated_lru"), Goal::AtLeast(-2.0, 0.0));
        assert_eq!(goal("19/hits/frequency"), Goal::None);
        assert_eq!(goal("17/linkbench"), Goal::AtMost(1.015, 1.0));
        assert_eq!(goal("21/mean/poll/8"), Goal::AtMost(1.0, 0.85));
        assert_eq!(goal("21/processor/dynamic-50/16"), Goal::None);
        assert_eq!(goal("21/tlc/mean/poll/8"), Goal::None);
        assert_eq!(goal("auto/ycsb-e/guests"), Goal::AtLeast(0.97, 1.0));
        assert_eq!(goal("judge/writes/simulated_lru"), Goal::AtMost(1.0 / 3.0, 0.25));
        assert_eq!(goal("judge/hits/simulated_lru"), Goal::AtLeast(-2.0, 0.0));
        assert_eq!(goal("judge/eviction/file_lru"), Goal::None);
        assert_eq!(goal("judge/linkbench/hits/simulated_lru"), Goal::AtLeast(-2.0, 0.0));
        assert_eq!(goal("19/hits/linkbench/simulated_lru"), Goal::AtLeast(-2.0, 0.0));
        assert_eq!(goal("judge/heat/jumps/writes/always"), Goal::None);
        assert_eq!(goal("9/N/linkbench/slow-reads/4-KiB"), Goal::None);
        assert_eq!(goal("13/padded"), Goal::None);
        assert_eq!(goal("10/linkbench/6-KiB"), Goal::None);
        assert_eq!(goal("24/bytes-a-block"), Goal::AtMost(28.0, 20.0));
        assert_eq!(goal("24/full/simulated_lru"), Goal::AtMost(28.0, 20.0));
        assert_eq!(goal("24/full/always"), Goal::None);
        assert_eq!(goal("cost/uniform"), Goal::AtLeast(0.98, 1.0));
    }

    #[test]
    fn the_cache_is_measured_by_what_it_did_in_the_measured_part() {
        let level = SecondLevel {
            hits: 30,
            misses: 10,
            written_bytes: 800,
            blocks: 5,
            memory_bytes: 90,
            ..SecondLevel::default()
        };
        let measured =
            Measured { operations: 100, second_level: Some(level), ..Measured::default() };
        let of = |measure: Measure| (measure.of)(&measured);
        assert_eq!((of(WRITTEN), of(HITS), of(BLOCK_MEMORY)), (Some(8.0), Some(75.0), Some(18.0)));
        let without = Measured::default();
        assert_eq!([WRITTEN, HITS, BLOCK_MEMORY].map(|m| (m.of)(&without)), [None; 3]);
    }
}
