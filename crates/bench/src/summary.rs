//! Medians, spreads and ratios of results: what tables and reports show.
//!
//! A value stands for the rounds of one engine and workload. The ratio is of medians; its spread is
//! that of the rounds' own ratios, each against the baseline's row of the same round, because what
//! slows a round slows both.

use crate::results::{Measured, Results, Row};
use crate::store::Durability;

/// Median, least and greatest of some rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of `values`; none where there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values[middle - 1] + values[middle]) / 2.0
        } else {
            values[middle]
        };
        Some(Self { median, min, max })
    }
}

/// The rounds of one engine on one workload.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// The engine's label.
    pub engine: &'a str,
    /// The workload's name.
    pub workload: &'a str,
    /// When its writes counted as done.
    pub durability: Durability,
    /// Finished rounds.
    pub rounds: Vec<&'a Row>,
    /// The first failure, if any round failed.
    pub failure: Option<&'a str>,
    /// Throughput against the baseline's; none for what has no baseline.
    pub ratio: Option<Spread>,
}

impl Summary<'_> {
    /// Median and spread of something measured; none where no round has it.
    pub fn spread(&self, of: impl Fn(&Measured) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|row| of(row.measured.as_ref()?)))
    }

    /// Throughput.
    pub fn ops_per_s(&self) -> Option<Spread> {
        self.spread(|measured| Some(measured.ops_per_s))
    }

    /// A latency in microseconds of `all` operations.
    pub fn latency_us(&self, of: impl Fn(&crate::results::Latency) -> f64) -> Option<Spread> {
        self.spread(|measured| measured.latency.get("all").map(&of))
    }

    /// A round's ratio is a failure's: there is none.
    fn round(&self, round: u32) -> Option<f64> {
        let row = self.rounds.iter().find(|row| row.round == round)?;
        row.measured.as_ref().map(|measured| measured.ops_per_s)
    }
}

/// The label that ratios are against.
pub fn baseline(results: &Results) -> Option<&str> {
    let named = results.baseline.as_deref();
    named.or_else(|| results.rows.first().map(|row| row.engine.as_str()))
}

/// Everything in `results`, workload by workload in the order of their first rows, engines in the
/// order of theirs. A workload that the baseline did not finish has no ratios.
pub fn summaries<'a>(results: &'a Results) -> Vec<Summary<'a>> {
    let mut workloads: Vec<(&'a str, Durability)> = Vec::new();
    let mut engines: Vec<&'a str> = Vec::new();
    for row in &results.rows {
        let workload = (row.workload.as_str(), row.durability);
        if !workloads.contains(&workload) {
            workloads.push(workload);
        }
        if !engines.contains(&row.engine.as_str()) {
            engines.push(&row.engine);
        }
    }
    let against = baseline(results);
    let mut found = Vec::new();
    for (workload, durability) in workloads {
        let of = |engine: &'a str| {
            let rows: Vec<_> = results
                .rows
                .iter()
                .filter(|row| row.engine == engine)
                .filter(|row| row.workload == workload && row.durability == durability)
                .collect();
            let failure = rows.iter().find_map(|row| row.failure.as_deref());
            let finished: Vec<_> =
                rows.iter().copied().filter(|row| row.measured.is_some()).collect();
            (!rows.is_empty()).then_some(Summary {
                engine,
                workload,
                durability,
                rounds: finished,
                failure,
                ratio: None,
            })
        };
        let mut group: Vec<Summary<'_>> = engines.iter().copied().filter_map(of).collect();
        let base = group.iter().find(|summary| Some(summary.engine) == against).cloned();
        if let Some(base) = base {
            group.iter_mut().for_each(|summary| summary.ratio = ratio(summary, &base));
        }
        found.extend(group);
    }
    found
}

fn ratio(summary: &Summary<'_>, base: &Summary<'_>) -> Option<Spread> {
    let (ours, theirs) = (summary.ops_per_s()?, base.ops_per_s()?);
    let rounds = summary
        .rounds
        .iter()
        .filter_map(|row| Some(summary.round(row.round)? / base.round(row.round)?));
    let spread = Spread::of(rounds)?;
    Some(Spread { median: ours.median / theirs.median, ..spread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Scenario};

    fn row(engine: &str, workload: &str, round: u32, ops_per_s: Option<f64>) -> Row {
        Row {
            engine: engine.to_owned(),
            workload: workload.to_owned(),
            round,
            seed: 1,
            durability: Durability::Buffered,
            tiers: Vec::new(),
            measured: ops_per_s.map(|ops_per_s| Measured { ops_per_s, ..Measured::default() }),
            failure: ops_per_s.is_none().then(|| "it broke".to_owned()),
        }
    }

    #[test]
    fn medians_and_ratios_are_of_rounds_and_failures_are_kept() {
        let mut results = Results::new("", Scenario::default(), Machine::default(), 0);
        for (round, ours, theirs) in [(1, 100.0, 50.0), (2, 300.0, 100.0), (3, 200.0, 80.0)] {
            results.rows.push(row("ours", "a", round, Some(ours)));
            results.rows.push(row("theirs", "a", round, Some(theirs)));
        }
        results.rows.push(row("ours", "b", 1, Some(10.0)));
        results.rows.push(row("theirs", "b", 1, None));
        results.baseline = Some("theirs".to_owned());
        let found = summaries(&results);
        let names: Vec<_> = found.iter().map(|s| (s.workload, s.engine)).collect();
        assert_eq!(names, [("a", "ours"), ("a", "theirs"), ("b", "ours"), ("b", "theirs")]);
        let ratio = found[0].ratio.unwrap();
        assert_eq!((ratio.median, ratio.min, ratio.max), (2.5, 2.0, 3.0));
        assert_eq!(found[0].ops_per_s().unwrap().min, 100.0);
        assert_eq!(found[1].ratio.unwrap().median, 1.0);
        assert_eq!(found[2].ratio, None, "the baseline failed");
        assert_eq!(found[3].failure, Some("it broke"));
        assert_eq!(Spread::of([1.0, 2.0, 4.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([]), None);
    }
}
