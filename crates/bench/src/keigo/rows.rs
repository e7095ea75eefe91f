//! The rows of each figure: names, points, goals. Those of placement are in `placing`.
//!
//! ```text
//!   row    7/ycsb-a/all-slow
//!   over   rocksdb@tiers+files=thermocline+keep=extents+level-base=8MiB    ycsb-a
//!   under  rocksdb@slow+level-base=8MiB                                    ycsb-a
//! ```
//! Goals are of the rig with six million records on a machine at rest.

use super::{Sizes, placing};
use crate::results::{Latency, Measured};
use crate::rows::{
    self, Combined, Figure, Goal, Measure, PROCESSOR, Paper, THROUGHPUT, Value, point, points,
};

/// What is measured of the paper.
pub const PAPER: Paper = Paper {
    word: "keigo",
    title: "Keigo",
    figures: &[
        Figure { name: "1", title: "Writers of one device" },
        Figure { name: "2", title: "Levels on persistent memory" },
        Figure { name: "3", title: "Levels on a fast block device" },
        Figure { name: "4", title: "Levels and concurrent compactions" },
        Figure { name: "7", title: "YCSB" },
        Figure { name: "8", title: "With and without the page cache" },
        Figure { name: "9", title: "Strict durability" },
        Figure { name: "10", title: "Threads" },
        Figure { name: "11", title: "Production workloads" },
        Figure { name: "12", title: "Other hosts" },
        Figure { name: "14", title: "Tiers and sizes of data" },
        Figure { name: "15", title: "Threads that move and copy" },
        Figure { name: "online", title: "A profile that is learnt beside one that is known" },
        Figure { name: "cost", title: "What the plugin costs" },
        Figure { name: "level", title: "Levels known at creation" },
        Figure { name: "cache", title: "Whole files as the cache" },
        Figure { name: "extents", title: "Parts of files as the cache" },
        Figure { name: "restart", title: "A cache after a kill" },
        Figure { name: "full", title: "A device that others fill" },
        Figure { name: "adopt", title: "Export beside a copy" },
    ],
    emulated: false,
    profile: "gp3",
    has_region: false,
};

/// What a row can be against, where it says so.
pub const BASELINES: [&str; 4] = ["all-slow", "all-fast", "best", "best-held"];

/// What a cell of a row is run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Past the page cache.
    Work,
    /// Through it.
    Buffered,
    /// Through it, with one thread.
    Alone,
    /// A part of the data.
    Small,
    /// After half a minute.
    Learning,
}

/// A row of this paper.
pub type Row = rows::Row<Group>;

/// Of the reads that reached tiers.
pub const HITS: Measure = Measure {
    unit: "% from fast",
    is_cost: false,
    of: |measured| {
        let level = measured.second_level?;
        let asked = (level.hits + level.misses).max(1);
        Some(100.0 * level.hits as f64 / asked as f64)
    },
};
const KNOWN: Measure = Measure {
    unit: "% known",
    is_cost: false,
    of: |measured| {
        let made = measured.created_tables.filter(|made| made.tables > 0)?;
        Some(100.0 - 100.0 * made.of_unknown_level as f64 / made.tables as f64)
    },
};
/// Its value is one gain over another.
const GAINS: Measure = Measure { unit: "gain : gain", ..THROUGHPUT };
const P99: Measure = Measure {
    unit: "p99 us",
    is_cost: true,
    of: |measured: &Measured| measured.latency.get("all").map(|latency: &Latency| latency.p99_us),
};

/// Labels of this paper.
pub struct Labels {
    base: String,
}

impl Labels {
    pub fn new(sizes: &Sizes) -> Self {
        Self { base: format!("+level-base={}MiB", sizes.level_base_mib()) }
    }

    /// RocksDB by the plugin, with more options.
    pub fn tiered(&self, more: &str) -> String {
        format!("rocksdb@tiers+files=thermocline{}{more}", self.base)
    }

    pub fn keigo(&self) -> String {
        self.tiered("+keep=extents")
    }

    pub fn slow(&self) -> String {
        format!("rocksdb@slow{}", self.base)
    }

    pub fn fast(&self) -> String {
        format!("rocksdb@fast{}", self.base)
    }

    /// What is compared with the best of RocksDB's own two tiers: half of the memory has rows, as
    /// there.
    fn with_rows(&self, sizes: &Sizes) -> String {
        format!("{}{}", self.keigo(), row_cache(sizes))
    }

    /// RocksDB's own two tiers, with level sizes `levels`.
    fn own(&self, levels: &str, sizes: &Sizes) -> [String; 2] {
        let own = format!("rocksdb@tiers+levels={levels}");
        let with_rows = format!("{own}{}", row_cache(sizes));
        [own, with_rows]
    }
}

fn row_cache(sizes: &Sizes) -> String {
    format!("+row-cache={}MiB", sizes.memory_mib() / 2)
}

pub fn over(name: &str, group: Group, ours: &str, other: &str, workload: &str) -> Row {
    Row::in_paper(&PAPER, group, name, point(ours, workload), point(other, workload))
}

/// A value by itself.
pub fn alone(name: &str, engine: &str, workload: &str, measure: Measure) -> Row {
    let row = Row::in_paper(&PAPER, Group::Work, name, point(engine, workload), Vec::new());
    Row { value: Value::Itself, ..row.of(measure) }
}

/// A row that no cell measures.
fn drill(name: &str, unit: &'static str) -> Row {
    let measure = Measure { unit, is_cost: false, of: |_| None };
    let row = Row::in_paper(&PAPER, Group::Work, name, Vec::new(), Vec::new());
    Row { value: Value::Itself, ..row.of(measure) }
}

/// The rows of `figures`, in their order.
pub fn rows(figures: &[Figure], sizes: &Sizes) -> Vec<Row> {
    let labels = Labels::new(sizes);
    let all = [
        vec![
            drill("1/writers", "useful writers").at_most(4.0, 4.0),
            drill("1/best-to-8", "best : 8 writers").at_least(1.3, 1.5),
        ],
        placing::rows(&labels),
        ycsb(sizes, &labels),
        page_cache(&labels),
        durable(&labels),
        production(&labels),
        other_hosts(&labels),
        hierarchies(sizes, &labels),
        threads(&labels),
        cost(sizes, &labels),
        levels(&labels),
        caches(&labels),
        vec![
            drill("restart/hits", "after : before").at_least(0.9, 0.97),
            drill("full/ycsb-a", "1 is no error").at_least(1.0, 1.0),
            drill("adopt/export", "export : cp").at_least(0.8, 1.0),
        ],
    ];
    let all: Vec<Row> = all.into_iter().flatten().collect();
    let of = |figure: &Figure| {
        let figure = *figure;
        all.iter().filter(move |row| row.figure == figure).cloned()
    };
    PAPER.figures.iter().filter(|figure| figures.contains(figure)).flat_map(of).collect()
}

/// Workloads, and their goals over all-slow, all-fast and RocksDB's own two tiers.
const YCSB: [(&str, [Goal; 3]); 7] = {
    const BEST: Goal = Goal::AtLeast(1.0, 1.15);
    const WRITES: [Goal; 3] = [Goal::AtLeast(1.8, 2.1), Goal::AtLeast(0.75, 0.9), BEST];
    const READS: [Goal; 3] = [Goal::AtLeast(1.4, 1.9), Goal::None, BEST];
    [
        ("ycsb-a", WRITES),
        ("ycsb-f", WRITES),
        ("ycsb-c", READS),
        ("ycsb-b", READS),
        ("ycsb-c/uniform", [Goal::AtLeast(1.1, 1.2), Goal::None, BEST]),
        ("ycsb-a/uniform", [Goal::None, Goal::None, Goal::None]),
        ("ycsb-e", [Goal::AtLeast(1.1, 1.4), Goal::None, Goal::None]),
    ]
};

const HOME_ON_FAST: &str = "+keep=extents+home=fast";

fn ycsb(sizes: &Sizes, labels: &Labels) -> Vec<Row> {
    let others = |workload: &str| {
        [labels.slow(), labels.fast()]
            .map(|label| point(&label, workload))
            .into_iter()
            .chain([points(&labels.own("tuned", sizes).each_ref().map(String::as_str), workload)])
    };
    let of_workload = |(workload, goals): &(&str, [Goal; 3])| {
        let rows = BASELINES.iter().zip(others(workload)).zip(goals);
        let row = |((baseline, under), goal): ((&&str, Vec<rows::Point>), &Goal)| {
            let name = format!("7/{workload}/{baseline}");
            let ours = match *baseline {
                "best" => labels.with_rows(sizes),
                _ => labels.keigo(),
            };
            let ours = point(&ours, workload);
            Row { goal: *goal, ..Row::in_paper(&PAPER, Group::Work, &name, ours, under) }
        };
        rows.map(row).collect::<Vec<_>>()
    };
    let half = |(workload, bar, aim): (&str, f64, f64)| {
        let ours = labels.tiered(&format!("+keep=extents+fast-size={}MiB", sizes.mib(50)));
        let name = format!("7/{workload}/fast-50");
        over(&name, Group::Work, &ours, &labels.slow(), workload).at_least(bar, aim)
    };
    let halves = [("ycsb-c", 2.5, 3.9), ("ycsb-c/uniform", 1.6, 2.0)].map(half);
    // The host's directory, and so its MANIFEST, on the fast device.
    let home = |workload: &str| {
        let (name, ours) = (format!("7/{workload}/home-on-fast"), labels.tiered(HOME_ON_FAST));
        over(&name, Group::Work, &ours, &labels.slow(), workload)
    };
    let homes = ["ycsb-a", "ycsb-c"].map(home);
    // What `best` lays out to fill the fast tier takes half as much again under writes.
    let held = |workload: &str| {
        let own = labels.own("held", sizes);
        let ours = point(&labels.with_rows(sizes), workload);
        let under = points(&own.each_ref().map(String::as_str), workload);
        let name = format!("7/{workload}/best-held");
        Row::in_paper(&PAPER, Group::Work, &name, ours, under).at_least(1.0, 1.15)
    };
    let held = ["ycsb-a", "ycsb-f", "ycsb-b"].map(held);
    YCSB.iter().flat_map(of_workload).chain(held).chain(halves).chain(homes).collect()
}

/// The paper's figure 8 is without the page cache, as all rows of 7 here; so this has both.
fn page_cache(labels: &Labels) -> Vec<Row> {
    let of_workload = |workload: &str| {
        let row = |end: &str, group| {
            let name = format!("8/{workload}/{end}");
            over(&name, group, &labels.keigo(), &labels.slow(), workload)
        };
        [
            row("direct", Group::Work),
            row("p99", Group::Work).of(P99),
            row("processor", Group::Work).of(PROCESSOR),
            row("buffered", Group::Buffered),
        ]
    };
    ["ycsb-a", "ycsb-c"].iter().flat_map(|workload| of_workload(workload)).collect()
}

/// A flush of the slow loop device costs nothing, so the plugin emulates one that does.
fn durable(labels: &Labels) -> Vec<Row> {
    const DEVICE: &str = "+slow-device=tlc-nvme";
    let slow = format!("rocksdb@slow+files=thermocline{}{DEVICE}", labels.base);
    let row = |workload: &str| {
        let (name, on) = (format!("9/{workload}/all-slow"), format!("{workload}/sync"));
        let ours = labels.tiered(&format!("+keep=extents{DEVICE}"));
        over(&name, Group::Work, &ours, &slow, &on).at_least(5.0, 10.0)
    };
    ["ycsb-a", "ycsb-f"].map(row).to_vec()
}

fn production(labels: &Labels) -> Vec<Row> {
    let row = |workload: &str, bar: f64, aim: f64| {
        let name = format!("11/{workload}/all-slow");
        over(&name, Group::Work, &labels.keigo(), &labels.slow(), workload).at_least(bar, aim)
    };
    vec![row("prefix_dist", 1.2, 1.5), row("nutanix", 1.4, 1.6)]
}

fn other_hosts(labels: &Labels) -> Vec<Row> {
    const TIERED: &str = "@tiers+files=thermocline+keep=extents";
    let leveldb = |(workload, bar, aim): (&str, f64, f64)| {
        let name = format!("12/leveldb/{workload}/all-slow");
        let ours = format!("leveldb{TIERED}");
        over(&name, Group::Alone, &ours, "leveldb@slow", workload).at_least(bar, aim)
    };
    let leveldb = [("ycsb-a", 1.4, 2.0), ("ycsb-c", 1.3, 1.8), ("ycsb-e", 1.1, 1.4)].map(leveldb);
    // Speedb has the options that RocksDB has in `7/WORKLOAD/all-slow`, the row of its gain.
    let speedb = |workload: &str| {
        let gain = |host: &str| {
            let of_host = |label: String| label.replacen("rocksdb", host, 1);
            let (ours, slow) = (of_host(labels.keigo()), of_host(labels.slow()));
            over(&format!("12/{host}/{workload}/all-slow"), Group::Work, &ours, &slow, workload)
        };
        let (own, rocksdb) = (gain("speedb"), gain("rocksdb"));
        let name = format!("12/speedb/{workload}/gain-to-rocksdb");
        let parts = vec![own.clone(), rocksdb];
        let to_rocksdb = Row::of_rows(&PAPER, &name, Combined::Quotient, parts);
        let to_rocksdb = to_rocksdb.map(|row| row.of(GAINS).at_least(0.9, 1.0));
        [Some(own), to_rocksdb].into_iter().flatten()
    };
    leveldb.into_iter().chain(["ycsb-a", "ycsb-c"].into_iter().flat_map(speedb)).collect()
}

/// A third tier between both, and a data set that the fast one holds.
fn hierarchies(sizes: &Sizes, labels: &Labels) -> Vec<Row> {
    let three = labels.tiered(&format!("+keep=extents+middle-size={}MiB", sizes.mib(40)));
    let of_workload = |workload: &str| {
        let name = |end: &str| format!("14/{workload}/{end}");
        [
            over(&name("three-to-two"), Group::Work, &three, &labels.keigo(), workload)
                .at_least(0.95, 1.0),
            over(&name("that-fits"), Group::Small, &labels.keigo(), &labels.fast(), workload),
        ]
    };
    ["ycsb-a", "ycsb-c"].iter().flat_map(|workload| of_workload(workload)).collect()
}

fn threads(labels: &Labels) -> Vec<Row> {
    let fixed = [1, 4, 16].map(|n| labels.tiered(&format!("+keep=files+move-threads={n}")));
    let fixed = fixed.each_ref().map(String::as_str);
    let row = |workload: &str| {
        let ours = point(&labels.tiered("+keep=files"), workload);
        let name = format!("15/{workload}/automatic");
        Row::in_paper(&PAPER, Group::Work, &name, ours, points(&fixed, workload))
            .at_least(0.95, 1.0)
    };
    ["ycsb-a", "ycsb-c"].map(row).to_vec()
}

/// All on the fast tier, beside RocksDB alone there.
fn cost(sizes: &Sizes, labels: &Labels) -> Vec<Row> {
    let more = format!("+placement=fill_first+fast-size={}MiB", sizes.mib(400));
    let (ours, apart) = (labels.tiered(&format!("{more}+home=fast")), labels.tiered(&more));
    let ways = [("direct", Group::Work), ("buffered", Group::Buffered)];
    let row = |(way, group): (&str, Group), operation: &str, threads: u32| {
        let name = format!("cost/{operation}/{way}/{threads}");
        let on = format!("{operation}/threads-{threads}");
        let all = over(&name, group, &ours, &labels.fast(), &on).at_least(0.97, 0.99);
        // The same with the host's directory, and so its MANIFEST, on the slow device.
        let name = format!("{name}/home-on-slow");
        [all, over(&name, group, &apart, &labels.fast(), &on)]
    };
    let all = ways.into_iter().flat_map(|way| {
        let of_way = ["readrandom", "overwrite"]
            .into_iter()
            .flat_map(move |operation| [1, 8].map(|threads| (way, operation, threads)));
        of_way.collect::<Vec<_>>()
    });
    all.flat_map(|(way, operation, threads)| row(way, operation, threads)).collect()
}

fn levels(labels: &Labels) -> Vec<Row> {
    let log = labels.tiered("+level-from=log+subcompactions=4");
    vec![
        alone("level/listener", &labels.keigo(), "ycsb-a", KNOWN).at_least(100.0, 100.0),
        alone("level/log", &log, "ycsb-a", KNOWN).at_least(99.9, 99.9),
    ]
}

/// Whole files, and parts of them, beside nothing kept.
fn caches(labels: &Labels) -> Vec<Row> {
    let (none, files) = (labels.tiered("+keep=off"), labels.tiered("+keep=files"));
    let extents = labels.keigo();
    let of_distribution = |name: &str, workload: &str| {
        let row = |figure: &str, end: &str, ours: &str, other: &str| {
            over(&format!("{figure}/{name}/{end}"), Group::Work, ours, other, workload)
        };
        let hits = |figure: &str, ours: &str| {
            alone(&format!("{figure}/{name}/hits"), ours, workload, HITS)
        };
        [
            row("cache", "on-to-off", &files, &none),
            hits("cache", &files),
            row("extents", "on-to-off", &extents, &none),
            row("extents", "to-files", &extents, &files),
            hits("extents", &extents),
        ]
    };
    let all =
        [("zipf-0.99", "ycsb-c"), ("zipf-0.8", "ycsb-c/zipf-0.8"), ("uniform", "ycsb-c/uniform")];
    all.iter().flat_map(|(name, workload)| of_distribution(name, workload)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keigo::tests::sizes as tests_sizes;
    use crate::rows::tests::are_sound;

    #[test]
    fn every_figure_has_rows_with_names_that_programs_can_rely_on() {
        let sizes = tests_sizes();
        let rows = rows(PAPER.figures, &sizes);
        are_sound(&PAPER, &rows);
        let has_neither = |row: &&Row| row.over.is_empty() && row.parts.is_empty();
        let drills: Vec<_> = rows.iter().filter(has_neither).collect();
        assert_eq!(drills.len(), 5);
    }

    #[test]
    fn a_gain_beside_anothers_has_the_points_of_both_rows() {
        let sizes = tests_sizes();
        let rows = rows(&["7", "12"].map(|name| PAPER.figure(name).unwrap()), &sizes);
        let named = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        let both = named("12/speedb/ycsb-a/gain-to-rocksdb");
        assert_eq!(both.goal, Goal::AtLeast(0.9, 1.0));
        let parts = ["12/speedb/ycsb-a/all-slow", "7/ycsb-a/all-slow"].map(named);
        let points = |row: &Row| row.points().cloned().collect::<Vec<_>>();
        assert_eq!(points(both), parts.map(points).concat());
    }

    #[test]
    fn sides_differ_in_where_files_lie_alone() {
        let sizes = tests_sizes();
        let figure = PAPER.figure("7").unwrap();
        let rows = rows(&[figure], &sizes);
        let row = rows.iter().find(|row| row.name == "7/ycsb-c/all-slow").unwrap();
        let ours = row.over[0].engine.replace("@tiers+files=thermocline", "@slow");
        assert_eq!(ours.replace("+keep=extents", ""), row.under[0].engine);
        let best = rows.iter().find(|row| row.name == "7/ycsb-c/best").unwrap();
        assert_eq!(best.under.len(), 2);
        assert_eq!(best.goal, Goal::AtLeast(1.0, 1.15));
    }

    #[test]
    fn shares_are_of_what_was_counted() {
        use crate::store::{CreatedTables, SecondLevel};
        let mut measured = Measured::default();
        assert_eq!(((KNOWN.of)(&measured), (HITS.of)(&measured)), (None, None));
        measured.created_tables = Some(CreatedTables { tables: 8, of_unknown_level: 2 });
        let level = SecondLevel { hits: 3, misses: 1, ..SecondLevel::default() };
        measured.second_level = Some(level);
        assert_eq!(((KNOWN.of)(&measured), (HITS.of)(&measured)), (Some(75.0), Some(75.0)));
    }
}
