//! What the measured rounds of a row come to.
//!
//! Of several points on a side the one with the best median counts. The value is that of medians;
//! its spread is that of the rounds' own values, because what slows a round slows both sides.

use super::{Combined, Found, Goal, Measure, Missing, Point, Row, Value};
use crate::results::Results;
use crate::summary::Spread;
use std::collections::BTreeMap;

/// A side of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The point that counts.
    pub point: Point,
    /// Median of its rounds, with their spread.
    pub spread: Spread,
}

/// A row with what was measured.
#[derive(Clone, Debug)]
pub struct Judged<G> {
    /// The row, by the name that is shown.
    pub row: Row<G>,
    /// Ours.
    pub over: Option<Side>,
    /// The other.
    pub under: Option<Side>,
    /// What the row comes to, or why there is nothing.
    pub value: Result<Spread, String>,
}

/// Whether a row reached its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was asked of it.
    Shown,
    /// What is aimed at.
    Aim,
    /// The bar.
    Reached,
    /// Not even that.
    Missed,
    /// It has no value.
    NotThere,
}

impl<G> Judged<G> {
    /// Whether its value reaches its goal.
    pub fn verdict(&self) -> Verdict {
        let Ok(value) = &self.value else { return Verdict::NotThere };
        let reached = match self.row.goal {
            Goal::None => return Verdict::Shown,
            Goal::AtLeast(bar, aim) => (value.median >= bar, value.median >= aim),
            Goal::AtMost(bar, aim) => (value.median <= bar, value.median <= aim),
        };
        match reached {
            (_, true) => Verdict::Aim,
            (true, false) => Verdict::Reached,
            (false, false) => Verdict::Missed,
        }
    }

    /// A row that was measured by itself, once.
    pub fn of_drill(row: &Row<G>, value: Result<f64, String>) -> Self
    where
        G: Clone,
    {
        let spread = |value| Spread { median: value, min: value, max: value };
        Self { row: row.clone(), over: None, under: None, value: value.map(spread) }
    }

    /// The row's name says that it was not measured on a device of the rig.
    pub fn name_plain(&mut self) {
        self.row.name = format!("plain/{}", self.row.name);
    }
}

/// The value of each finished round of `point`.
fn rounds(results: &Results, point: &Point, measure: Measure) -> BTreeMap<u32, f64> {
    let own = results
        .rows
        .iter()
        .filter(|row| row.engine == point.engine && row.workload == point.workload);
    own.filter_map(|row| Some((row.round, (measure.of)(row.measured.as_ref()?)?))).collect()
}

/// The point of `side` with the best median, and its rounds; else why a point has none.
fn best<G: Copy + Ord>(
    (group, side): (G, &[Point]),
    results: Option<&Results>,
    measure: Measure,
    missing: &Missing<G>,
) -> Result<(Side, BTreeMap<u32, f64>), String> {
    let mut found: Option<(Side, BTreeMap<u32, f64>)> = None;
    for point in side {
        let name = format!("{} on {}", point.engine, point.workload);
        if let Some(reason) = missing.get(&(group, point.clone())) {
            return Err(format!("{name}: {reason}"));
        }
        let values = results.map(|results| rounds(results, point, measure)).unwrap_or_default();
        let Some(spread) = Spread::of(values.values().copied()) else {
            let own = results.into_iter().flat_map(|results| &results.rows);
            let mut failed = own
                .filter(|row| row.engine == point.engine && row.workload == point.workload)
                .filter_map(|row| row.failure.as_deref());
            let reason = failed.next().unwrap_or("it tells no such figure, or was too short");
            return Err(format!("{name}: {reason}"));
        };
        let is_better = |old: &Side| {
            let more = spread.median > old.spread.median;
            more != measure.is_cost && spread.median != old.spread.median
        };
        if found.as_ref().is_none_or(|(old, _)| is_better(old)) {
            found = Some((Side { point: point.clone(), spread }, values));
        }
    }
    found.ok_or_else(|| "nothing to hold it against".to_owned())
}

/// What `row` comes to by all that was found.
pub fn judge_in<G: Copy + Ord>(row: &Row<G>, found: &Found<G>, missing: &Missing<G>) -> Judged<G> {
    if row.parts.is_empty() {
        return judge(row, found.get(&row.group), missing);
    }
    let parts: Vec<_> = row.parts.iter().map(|part| judge_in(part, found, missing)).collect();
    let value = match row.combined {
        Combined::Mean => mean(&parts),
        Combined::Sum => sum(&parts),
        Combined::Quotient => quotient(&parts),
    };
    Judged { row: row.clone(), over: None, under: None, value }
}

/// The mean of the parts' medians, between those of their bounds.
fn mean<G>(parts: &[Judged<G>]) -> Result<Spread, String> {
    let values = parts.iter().map(|part| part.value.clone()).collect::<Result<Vec<_>, _>>()?;
    let of = |of: fn(&Spread) -> f64| values.iter().map(of).sum::<f64>() / values.len() as f64;
    let [median, min, max] = [of(|v| v.median), of(|v| v.min), of(|v| v.max)];
    Ok(Spread { median, min, max })
}

/// The ratio of both sides' sums.
fn sum<G>(parts: &[Judged<G>]) -> Result<Spread, String> {
    let mut sums = [Spread { median: 0.0, min: 0.0, max: 0.0 }; 2];
    for part in parts {
        for (side, sum) in [&part.over, &part.under].into_iter().zip(&mut sums) {
            let Some(side) = side else {
                let reason = part.value.as_ref().err().cloned();
                return Err(reason.unwrap_or_else(|| format!("{} has one side", part.row.name)));
            };
            sum.median += side.spread.median;
            sum.min += side.spread.min;
            sum.max += side.spread.max;
        }
    }
    let [over, under] = sums;
    let (median, min, max) =
        (over.median / under.median, over.min / under.max, over.max / under.min);
    Ok(Spread { median, min, max })
}

/// The value of the first of two parts over that of the second.
fn quotient<G>(parts: &[Judged<G>]) -> Result<Spread, String> {
    let [over, under] = parts else {
        return Err(format!("it follows from two rows, not from {}", parts.len()));
    };
    let (over, under) = (over.value.clone()?, under.value.clone()?);
    let (median, min, max) =
        (over.median / under.median, over.min / under.max, over.max / under.min);
    Ok(Spread { median, min, max })
}

/// What `row` comes to by `results`, where points of `missing` did not run.
pub fn judge<G: Copy + Ord>(
    row: &Row<G>,
    results: Option<&Results>,
    missing: &Missing<G>,
) -> Judged<G> {
    let side = |points: &[Point]| best((row.group, points), results, row.measure, missing);
    let over = side(&row.over);
    let under = (!row.under.is_empty()).then(|| side(&row.under));
    let value = match (&over, &under) {
        (Err(reason), _) | (_, Some(Err(reason))) => Err(reason.clone()),
        (Ok((over, _)), None) => Ok(over.spread),
        (Ok(over), Some(Ok(under))) => Ok(ratio(row.value, over, under)),
    };
    let value = value.map(|Spread { median, min, max }| {
        let [median, min, max] = [median, min, max].map(|value| value * row.factor);
        Spread { median, min, max }
    });
    let under = under.and_then(|under| Some(under.ok()?.0));
    Judged { row: row.clone(), over: over.ok().map(|over| over.0), under, value }
}

fn ratio(
    value: Value,
    (over, over_rounds): &(Side, BTreeMap<u32, f64>),
    (under, under_rounds): &(Side, BTreeMap<u32, f64>),
) -> Spread {
    let of = |over: f64, under: f64| match value {
        Value::Ratio | Value::Itself => over / under,
        Value::Speed => under / over,
        Value::Difference => over - under,
    };
    let median = of(over.spread.median, under.spread.median);
    let both =
        over_rounds.iter().filter_map(|(round, over)| Some(of(*over, *under_rounds.get(round)?)));
    let spread = Spread::of(both).unwrap_or(Spread { median, min: median, max: median });
    Spread { median, ..spread }
}

/// Points of `rows` with what was measured of them, for a picture, by unit.
pub fn measured<G: Ord>(rows: &[&Judged<G>], found: &Found<G>) -> Vec<(&'static str, Vec<Side>)> {
    let mut all: Vec<(&'static str, Vec<Side>)> = Vec::new();
    for row in rows.iter().flat_map(|judged| judged.row.leaves()) {
        let Some(results) = found.get(&row.group) else { continue };
        for point in row.points() {
            let values = rounds(results, point, row.measure);
            let Some(spread) = Spread::of(values.into_values()) else { continue };
            let side = Side { point: point.clone(), spread };
            match all.iter_mut().find(|(unit, _)| *unit == row.measure.unit) {
                Some((_, sides)) if sides.iter().any(|known| known.point == *point) => {}
                Some((_, sides)) => sides.push(side),
                None => all.push((row.measure.unit, vec![side])),
            }
        }
    }
    all
}
