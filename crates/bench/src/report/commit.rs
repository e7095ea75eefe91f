//! The table of a comparison of ways to commit: what an update costs the device and the processor.
//!
//! ```text
//!   op/s · p50, p99        of the measured part
//!   written/user           bytes written to the devices for each byte of keys and values
//!   writes, reads, syncs   requests of the devices an update, flushes among them
//!   cpu us                 processor time of the process an update
//! ```
//! What was put off is counted too: the cells settle before the traffic is read.

use super::table::{align, with_spread};
use crate::results::{Measured, Results};
use crate::store::TierTraffic;
use crate::summary::{Spread, Summary, summaries};

/// The note by which results of such a comparison are known, and what it says.
pub const NOTE: &str = "comparison";
/// See [`NOTE`].
pub const NOTED: &str = "ways to commit";

const HEAD: [&str; 10] = [
    "workload",
    "engine",
    "op/s",
    "p50 us",
    "p99 us",
    "written/user",
    "writes/op",
    "reads/op",
    "syncs/op",
    "cpu us/op",
];

/// The table, where `results` are of such a comparison.
pub fn table(results: &Results) -> Option<String> {
    results.scenario.notes.get(NOTE).filter(|note| *note == NOTED)?;
    let found = summaries(results);
    let finished = found.iter().filter(|summary| !summary.rounds.is_empty());
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(finished.map(row));
    Some(format!("\nways to commit\n{}", align(&rows)))
}

fn row(summary: &Summary<'_>) -> Vec<String> {
    let text = |spread: Option<Spread>, digits: usize| {
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
    };
    let an_operation = |of: fn(&TierTraffic) -> u64| {
        text(summary.spread(|measured| Some(per_operation(measured, of))), 3)
    };
    vec![
        summary.workload.to_owned(),
        summary.engine.to_owned(),
        summary.ops_per_s().map_or_else(|| "-".to_owned(), with_spread),
        text(summary.latency_us(|latency| latency.p50_us), 1),
        text(summary.latency_us(|latency| latency.p99_us), 0),
        text(summary.spread(|measured| measured.write_amplification), 2),
        an_operation(|tier| tier.writes),
        an_operation(|tier| tier.reads),
        an_operation(|tier| tier.syncs),
        text(summary.spread(|measured| Some(measured.cpu_us_per_op)), 2),
    ]
}

/// What all tiers counted, for each operation.
fn per_operation(measured: &Measured, of: impl Fn(&TierTraffic) -> u64) -> f64 {
    let sum: u64 = measured.traffic.tiers.iter().map(of).sum();
    sum as f64 / measured.operations.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Latency, Machine, Row, Scenario, Traffic};
    use crate::store::Durability;
    use std::collections::BTreeMap;

    #[test]
    fn requests_are_counted_for_each_update_and_other_results_have_no_such_table() {
        let tier = TierTraffic { reads: 5, writes: 20, written_bytes: 1, syncs: 2, read_bytes: 1 };
        let latency = Latency { p50_us: 12.5, p99_us: 80.0, ..Latency::default() };
        let measured = Measured {
            operations: 10,
            ops_per_s: 1000.0,
            latency: BTreeMap::from([("all".to_owned(), latency)]),
            traffic: Traffic { tiers: vec![tier, TierTraffic::default()], ..Traffic::default() },
            write_amplification: Some(1.25),
            cpu_us_per_op: 7.0,
            ..Measured::default()
        };
        let notes = BTreeMap::from([(NOTE.to_owned(), NOTED.to_owned())]);
        let scenario = Scenario { notes, ..Scenario::default() };
        let mut results = Results::new("", scenario, Machine::default(), 0);
        results.rows.push(Row {
            engine: "a@fast".to_owned(),
            workload: "overwrite/sync".to_owned(),
            round: 1,
            seed: 1,
            durability: Durability::Sync,
            tiers: Vec::new(),
            measured: Some(measured),
            failure: None,
        });
        let text = table(&results).unwrap();
        let rows: Vec<Vec<&str>> =
            text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        let expected = "overwrite/sync a@fast 1000 12.5 80 1.25 2.000 0.500 0.200 7.00";
        assert_eq!(rows[1].join(" "), expected);
        results.scenario.notes.clear();
        assert_eq!(table(&results), None);
    }
}
