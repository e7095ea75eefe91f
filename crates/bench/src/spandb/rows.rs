//! The rows of each figure: names, points, goals.
//!
//! ```text
//!   row    11/fillrandom/8
//!   over   thermocline-leveled@fast+driver=direct    fillrandom/threads-8/sync
//!   under  rocksdb@fast                              the same
//! ```

use crate::results::Measured;
use crate::rig::plan::Medium;
use crate::rows::{
    self, Figure, Measure, PROCESSOR, Paper, Point, ROCKSDB, THROUGHPUT, Value, point, points,
};
use crate::workloads::spandb::PHASES;

/// Ours past the page cache, and through it.
pub const DIRECT: &str = "thermocline-leveled@fast+driver=direct";
const POSIX: &str = "thermocline-leveled@fast+driver=posix";
const HYBRID: &str = "thermocline-hybrid@tiers";
const TIERED: &str = "thermocline-leveled@tiers";
const RIVALS: [&str; 4] = ["lmdb", "redb", "fjall", "sled"];

/// What is measured of the paper.
pub const PAPER: Paper = Paper {
    word: "spandb",
    title: "SpanDB",
    figures: &[
        Figure { name: "2", title: "Durable writes of one page, by drivers" },
        Figure { name: "3", title: "Durable writes at once: threads and requests of each" },
        Figure { name: "8", title: "Placement of levels" },
        Figure { name: "9", title: "Placement while the load changes" },
        Figure { name: "10", title: "What the parts cost" },
        Figure { name: "11", title: "Writes and YCSB-A beside RocksDB" },
        Figure { name: "t2", title: "Latencies" },
        Figure { name: "12", title: "LinkBench in transactions" },
        Figure { name: "13", title: "Other stores" },
        Figure { name: "recovery", title: "Opening after a crash" },
    ],
    emulated: false,
    profile: "gp3",
    has_region: false,
};

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
const WAKE_UPS: Measure = Measure {
    unit: "wake-ups",
    is_cost: true,
    of: |measured| measured.wake_ups.map(|count| count as f64),
};
const OPENING: Measure =
    Measure { unit: "s", is_cost: true, of: |measured| Some(measured.preparation_s.open) };

/// A row of this paper.
pub type Row = rows::Row<Group>;

impl Row {
    /// Ours over another, by operations a second.
    fn new(name: &str, over: Vec<Point>, under: Vec<Point>) -> Self {
        Self::in_paper(&PAPER, Group::Work, name, over, under)
    }
}

/// Ours over RocksDB, on one workload.
fn against(name: &str, engine: &str, workload: &str) -> Row {
    Row::new(name, point(engine, workload), point(ROCKSDB, workload))
}

/// The rows of `figures` on `medium`.
pub fn rows(figures: &[Figure], medium: Medium) -> Vec<Row> {
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
    all.into_iter().flatten().filter(|row| figures.contains(&row.figure)).collect()
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
        // The thread that writes figures for other processes sleeps while there are no new ones.
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
    use crate::rows::Goal;

    #[test]
    fn every_row_has_a_name_of_its_own_a_figure_and_points_that_exist() {
        rows::tests::are_sound(&PAPER, &rows(PAPER.figures, Medium::Ram));
    }

    #[test]
    fn the_names_and_bars_are_those_that_programs_read() {
        let of = |medium, name: &str| {
            let rows = rows(&[PAPER.figure("11").unwrap()], medium);
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
        let error = PAPER.figure("14").unwrap_err().to_string();
        assert!(error.contains("there are 2, 3, 8"), "{error}");
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
