//! Results as a table for a terminal.
//!
//! Throughput is the median of the rounds; a spread above 5 % is shown, and so is everything that
//! failed or was skipped. `of bound` is the share of what the best placement would reach, `fast
//! use` the most of the fast tier's capacity that an engine's files took.

use super::commit;
use crate::figures::Drawing;
use crate::results::Results;
use crate::summary::{Spread, Summary, baseline, summaries};
use std::fmt::Write;
use thermocline_foundation::ByteSize;

/// A spread that is worth showing.
const SPREAD_SHOWN: f64 = 0.05;

/// The table of `results`.
pub fn table(results: &Results) -> String {
    let found = summaries(results);
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    let mut last = "";
    for summary in &found {
        let workload = if summary.workload == last { "" } else { summary.workload };
        last = summary.workload;
        rows.push(cells(workload, summary, results.scenario.memory_bytes));
    }
    let mut text = heading(results);
    text.push_str(&align(&rows));
    for summary in found.iter().filter(|summary| summary.failure.is_some()) {
        let failure = summary.failure.unwrap_or_default();
        let _ = writeln!(text, "failed: {} on {}: {failure}", summary.engine, summary.workload);
    }
    for skipped in &results.skipped {
        let workload = skipped.workload.as_deref().unwrap_or("all workloads");
        let _ = writeln!(text, "skipped: {} on {workload}: {}", skipped.engine, skipped.reason);
    }
    if let Some(drawing) = Drawing::of(results) {
        text.push_str(&figure(&drawing));
    }
    if let Some(table) = commit::table(results) {
        text.push_str(&table);
    }
    text
}

/// A paper's figure: a row for each value of what it varies, in each series.
fn figure(drawing: &Drawing) -> String {
    let mut head = vec![drawing.figure.axis.to_owned(), "of".to_owned()];
    head.extend(drawing.measures().iter().map(|measure| measure.name.to_owned()));
    let mut rows = vec![head];
    for series in &drawing.series {
        for (value, point) in drawing.values.iter().zip(&series.points) {
            let mut row = vec![value.clone(), series.name.clone()];
            let cell = |spread: &Option<Spread>| spread.map_or("-".to_owned(), with_spread);
            row.extend(point.iter().map(cell));
            rows.push(row);
        }
    }
    let (name, title) = (drawing.figure.name, drawing.figure.title);
    format!("\nfigure {name} of the PrismDB paper: {title}\n{}", align(&rows))
}

/// A median, and the spread where it is worth showing.
pub(crate) fn with_spread(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    let digits = if median >= 100.0 { 0 } else { 2 };
    if max - min > SPREAD_SHOWN * median {
        format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
    } else {
        format!("{median:.digits$}")
    }
}

const HEAD: [&str; 14] = [
    "workload",
    "engine",
    "op/s",
    "ratio",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "longest us",
    "cpu us",
    "w-amp",
    "slow r/op",
    "fast use",
    "res/mem",
    "of bound",
];

fn heading(results: &Results) -> String {
    let scenario = &results.scenario;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {} records of {} + {} B ({}), {} threads, {} memory, {:?}{}, {} rounds",
        results.title,
        scenario.records,
        scenario.key_bytes,
        scenario.value_bytes,
        results.data_bytes(),
        scenario.threads,
        ByteSize(scenario.memory_bytes),
        scenario.durability,
        if scenario.direct { ", direct" } else { "" },
        scenario.rounds,
    );
    if let Some(baseline) = baseline(results) {
        let _ = writeln!(text, "ratios are throughput against {baseline}; medians of the rounds");
    }
    text
}

fn cells(workload: &str, summary: &Summary<'_>, memory_bytes: u64) -> Vec<String> {
    let text = |spread: Option<Spread>, digits: usize| {
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
    };
    let with_spread = |spread: Option<Spread>, digits: usize| match spread {
        None => "-".to_owned(),
        Some(Spread { median, min, max }) if max - min > SPREAD_SHOWN * median => {
            format!("{median:.digits$} ({min:.digits$}..{max:.digits$})")
        }
        Some(spread) => format!("{:.digits$}", spread.median),
    };
    let throughput = match (summary.ops_per_s(), summary.failure) {
        (None, Some(_)) => "failed".to_owned(),
        (spread, _) => with_spread(spread, 0),
    };
    // Of all rounds: a pause of one of them is a pause.
    let longest = summary.latency_us(|latency| latency.max_us);
    // Of the whole process, the benchmark's own records of what is right included.
    let resident = summary.spread(|measured| {
        (memory_bytes > 0).then(|| measured.peak_rss_bytes as f64 / memory_bytes as f64)
    });
    let percent = |spread: Option<Spread>| {
        spread.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share.median))
    };
    vec![
        workload.to_owned(),
        summary.engine.to_owned(),
        throughput,
        with_spread(summary.ratio, 2),
        text(summary.latency_us(|latency| latency.p50_us), 1),
        text(summary.latency_us(|latency| latency.p99_us), 0),
        text(summary.latency_us(|latency| latency.p999_us), 0),
        longest.map_or_else(|| "-".to_owned(), |spread| format!("{:.0}", spread.max)),
        text(summary.spread(|measured| Some(measured.cpu_us_per_op)), 2),
        text(summary.spread(|measured| measured.write_amplification), 2),
        text(summary.spread(|measured| measured.slow_reads_per_op), 3),
        percent(summary.spread(|measured| measured.peak_fast_share)),
        text(resident, 2),
        percent(summary.spread(|measured| measured.bound.map(|bound| bound.share))),
    ]
}

/// Columns as wide as they need; the first two to the left, numbers to the right.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ = if column < 2 {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Bound, Machine, Measured, Row, Scenario, Skipped};
    use crate::store::Durability;

    #[test]
    fn results_of_a_figure_have_its_table_too() {
        let mut results = Results::new("a run", Scenario::default(), Machine::default(), 0);
        let note = ("figure of the PrismDB paper".to_owned(), "14d".to_owned());
        results.scenario.notes.extend([note]);
        for (threads, ops_per_s) in [(8, 4000.0), (1, 1000.0)] {
            results.rows.push(Row {
                engine: "ours".to_owned(),
                workload: format!("ycsb-a/threads-{threads}"),
                round: 1,
                seed: 1,
                durability: Durability::Buffered,
                tiers: Vec::new(),
                measured: Some(Measured { ops_per_s, cpu_us_per_op: 7.25, ..Measured::default() }),
                failure: None,
            });
        }
        let text = table(&results);
        let figure = text.split("figure 14d of the PrismDB paper: Threads\n").nth(1).unwrap();
        let rows: Vec<Vec<&str>> =
            figure.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["threads", "of", "op/s", "processor", "us/op"]);
        assert_eq!(rows[1], ["1", "ycsb-a", "1000", "7.25"]);
        assert_eq!(rows[2], ["8", "ycsb-a", "4000", "7.25"]);
    }

    #[test]
    fn rows_failures_and_what_was_skipped_are_all_in_the_table() {
        let scenario = Scenario { memory_bytes: 100, ..Scenario::default() };
        let mut results = Results::new("a run", scenario, Machine::default(), 0);
        for (round, ops_per_s) in [(1, 1000.0), (2, 2000.0)] {
            let bound = Some(Bound { share: 0.5, ..Bound::default() });
            results.rows.push(Row {
                engine: "ours".to_owned(),
                workload: "ycsb-a".to_owned(),
                round,
                seed: 1,
                durability: Durability::Buffered,
                tiers: Vec::new(),
                measured: Some(Measured {
                    ops_per_s,
                    bound,
                    peak_rss_bytes: 137,
                    peak_fast_share: Some(1.25),
                    ..Measured::default()
                }),
                failure: None,
            });
        }
        let mut broken = results.rows[0].clone();
        broken.engine = "theirs".to_owned();
        (broken.measured, broken.failure) = (None, Some("no space".to_owned()));
        results.rows.push(broken);
        let reason = "not fetched".to_owned();
        results.skipped.push(Skipped { engine: "other".to_owned(), workload: None, reason });
        let text = table(&results);
        for part in [
            "1500 (1000..2000)",
            "50 %",
            "125 %",
            "1.37",
            "failed: theirs on ycsb-a: no space",
            "skipped: other on all workloads: not fetched",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
