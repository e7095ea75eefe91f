//! What is drawn: one function for each section of the page, each with a sentence that says how to
//! read it. A section without anything to draw is empty.

use super::Subject;
use super::cost::{fast_share, slow_written_per_op};
use super::svg::{Axis, Bar, Scale, Series, bars, escaped, plot, short};
use crate::results::{Engine, Measured};
use crate::summary::Summary;
use std::fmt::Write;

/// A plot in its frame.
pub fn card(title: &str, plot: &str) -> String {
    format!("<div class='card'><h3>{}</h3>{plot}</div>\n", escaped(title))
}

/// Cards under a sentence that says how to read them; nothing where there are none.
pub fn section(text: &str, cards: &[String]) -> String {
    if cards.is_empty() {
        return String::new();
    }
    format!("<p>{text}</p>\n<div class='grid-of'>\n{}</div>\n", cards.concat())
}

/// The round whose throughput is the middle one: a curve is of one run, not of several.
fn middle<'a>(summary: &Summary<'a>) -> Option<&'a Measured> {
    let mut rounds: Vec<_> =
        summary.rounds.iter().filter_map(|row| row.measured.as_ref()).collect();
    rounds.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    rounds.get(rounds.len() / 2).copied()
}

/// The throughput of all engines on each workload: its name, and bars.
pub fn throughputs(subject: &Subject<'_>) -> Vec<(String, String)> {
    let bar = |summary: &&Summary<'_>| {
        let Some(spread) = summary.ops_per_s() else {
            return Bar {
                name: summary.engine.to_owned(),
                colour: subject.colour(summary.engine),
                parts: vec![("failed".to_owned(), 0.0)],
                spread: None,
                mark: None,
                text: "failed".to_owned(),
            };
        };
        let ratio = summary.ratio.map_or(String::new(), |ratio| format!("  ×{:.2}", ratio.median));
        let bound = summary.spread(|measured| measured.bound.map(|bound| bound.ops_per_s));
        let mark = bound.map(|bound| {
            let text = format!("best possible placement: {} op/s", short(bound.median));
            (bound.median, text)
        });
        let what = format!(
            "{} op/s ({} to {})",
            short(spread.median),
            short(spread.min),
            short(spread.max)
        );
        Bar {
            name: summary.engine.to_owned(),
            colour: subject.colour(summary.engine),
            parts: vec![(what, spread.median)],
            spread: Some((spread.min, spread.max)),
            // A bound far off would make every bar short; the numbers have it as a share.
            mark: mark.filter(|(at, _)| *at < 3.0 * spread.max),
            text: format!("{}{ratio}", short(spread.median)),
        }
    };
    let drawn = |(name, group): (String, Vec<&Summary<'_>>)| {
        let all: Vec<Bar> = group.iter().map(bar).collect();
        let bars = bars(&format!("throughput on {name}"), &all);
        (name, bars)
    };
    subject.workloads().into_iter().map(drawn).collect()
}

pub fn throughput(subject: &Subject<'_>) -> String {
    let cards: Vec<_> =
        throughputs(subject).iter().map(|(name, drawn)| card(name, drawn)).collect();
    section(
        "Operations a second: the median of the rounds, the thin line from the least to the \
         greatest; × is the ratio to the baseline. A dashed line is what the best possible \
         placement would let the slow device allow.",
        &cards,
    )
}

pub fn latency(subject: &Subject<'_>) -> String {
    let names = ["p50", "p90", "p99", "p99.9", "max"];
    let x = Axis { names: names.map(str::to_owned).to_vec(), ..Axis::new("", Scale::Linear) };
    let y = Axis::new("microseconds", Scale::Log);
    let curve = |summary: &&Summary<'_>| {
        let latency = middle(summary)?.latency.get("all")?;
        let values =
            [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us];
        let points = values.iter().enumerate().map(|(at, us)| (at as f64, *us)).collect();
        let colour = subject.colour(summary.engine);
        Some(Series { name: summary.engine.to_owned(), colour, points })
    };
    let mut cards = Vec::new();
    for (name, group) in subject.workloads() {
        let series: Vec<Series> = group.iter().filter_map(curve).collect();
        if !series.is_empty() {
            let label = format!("latencies on {name}");
            cards.push(card(&name, &plot(&label, &x, &y, &series, true)));
        }
    }
    section("From call to return, all operations of the middle round. Lower is better.", &cards)
}

pub fn timelines(subject: &Subject<'_>) -> String {
    let (x, y) = (Axis::new("second", Scale::Linear), Axis::new("op/s", Scale::Linear));
    let line = |summary: &&Summary<'_>| {
        let timeline = &middle(summary)?.timeline;
        // The last second is a part of one.
        let whole = &timeline[..timeline.len().saturating_sub(1)];
        let points: Vec<_> =
            whole.iter().enumerate().map(|(at, ops)| ((at + 1) as f64, *ops as f64)).collect();
        let colour = subject.colour(summary.engine);
        (points.len() > 1).then(|| Series { name: summary.engine.to_owned(), colour, points })
    };
    let mut cards = Vec::new();
    for (name, group) in subject.workloads() {
        let series: Vec<Series> = group.iter().filter_map(line).collect();
        if !series.is_empty() {
            let label = format!("throughput over time on {name}");
            cards.push(card(&name, &plot(&label, &x, &y, &series, true)));
        }
    }
    section("Operations in each second of the middle round.", &cards)
}

pub fn traffic(subject: &Subject<'_>) -> String {
    let bar = |summary: &&Summary<'_>| {
        let measured = middle(summary)?;
        let per_op = |bytes: u64| bytes as f64 / measured.operations.max(1) as f64;
        let tiers = &measured.traffic.tiers;
        let names: Vec<String> = match summary.rounds.first() {
            Some(row) if row.tiers.len() == tiers.len() => {
                row.tiers.iter().map(|tier| tier.name.clone()).collect()
            }
            _ => tiers.iter().map(|_| "all tiers".to_owned()).collect(),
        };
        let parts: Vec<_> = tiers
            .iter()
            .zip(&names)
            .flat_map(|(tier, name)| {
                let (read, written) = (per_op(tier.read_bytes), per_op(tier.written_bytes));
                [
                    (format!("{name} read {} B/op", short(read)), read),
                    (format!("{name} written {} B/op", short(written)), written),
                ]
            })
            .collect();
        if parts.is_empty() {
            return None;
        }
        let total: f64 = parts.iter().map(|(_, bytes)| *bytes).sum();
        let share = summary.spread(|measured| measured.fast_read_share);
        let share = share.map_or(String::new(), |s| format!("  {:.0} % fast", 100.0 * s.median));
        Some(Bar {
            name: summary.engine.to_owned(),
            colour: subject.colour(summary.engine),
            parts,
            spread: None,
            mark: None,
            text: format!("{} B{share}", short(total)),
        })
    };
    let mut cards = Vec::new();
    for (name, group) in subject.workloads() {
        let all: Vec<Bar> = group.iter().filter_map(bar).collect();
        if !all.is_empty() {
            cards.push(card(&name, &bars(&format!("traffic on {name}"), &all)));
        }
    }
    section(
        "Device bytes for each operation, from the strongest tone to the weakest: fast read, fast \
         written, slow read, slow written (with one tier: read, written). The percentage is the \
         fast tier's share of reads.",
        &cards,
    )
}

/// Space on devices for each byte of data, where it was measured.
fn space(summary: &Summary<'_>) -> f64 {
    let measured = summary.spread(|measured| measured.space_amplification);
    measured.map_or(1.0, |spread| spread.median)
}

fn engine_of<'a>(subject: &Subject<'a>, summary: &Summary<'_>) -> Option<&'a Engine> {
    subject.results.engines.iter().find(|engine| engine.label == summary.engine)
}

pub fn cost(subject: &Subject<'_>) -> String {
    let share = fast_share(subject.results);
    let (x, y) = (Axis::new("dollars of storage", Scale::Linear), Axis::new("op/s", Scale::Linear));
    let point = |summary: &&Summary<'_>| {
        let layout = engine_of(subject, summary)?.layout;
        let dollars = subject.prices.dollars(layout, share, space(summary));
        let points = vec![(dollars, summary.ops_per_s()?.median)];
        let colour = subject.colour(summary.engine);
        Some(Series { name: summary.engine.to_owned(), colour, points })
    };
    let mut cards = Vec::new();
    for (name, group) in subject.workloads() {
        let series: Vec<Series> = group.iter().filter_map(point).collect();
        if series.len() > 1 {
            let label = format!("cost and throughput on {name}");
            cards.push(card(&name, &plot(&label, &x, &y, &series, false)));
        }
    }
    let prices = subject.prices;
    let text = format!(
        "Storage for a database of {} B against throughput as measured, at {} $/GB for the fast \
         tier and {} $/GB for the slow one, {:.0} % of the data on the fast one where there are \
         two. Left and high is better. After figure 9 of the PrismDB paper, whose prices these \
         are unless the command named others.",
        short(prices.database_bytes),
        prices.fast_per_gb,
        prices.slow_per_gb,
        100.0 * share
    );
    section(&text, &cards)
}

/// Operations a second that lifetimes are projected for.
const RATES: [f64; 7] = [1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6];

pub fn lifetime(subject: &Subject<'_>) -> String {
    let share = fast_share(subject.results);
    let (x, y) = (Axis::new("op/s", Scale::Log), Axis::new("years", Scale::Log));
    let line = |summary: &&Summary<'_>| {
        let layout = engine_of(subject, summary)?.layout;
        let written = summary.spread(|measured| slow_written_per_op(measured, layout))?.median;
        // Less than a byte for a thousand operations is the noise of the file system.
        if written < 1e-3 {
            return None;
        }
        let slow = subject.prices.slow_bytes(layout, share, space(summary));
        let years = |rate: &f64| Some((*rate, subject.prices.years(slow, written, *rate)?));
        let points: Vec<_> = RATES.iter().filter_map(years).collect();
        let colour = subject.colour(summary.engine);
        Some(Series { name: summary.engine.to_owned(), colour, points })
    };
    let mut cards = Vec::new();
    for (name, group) in subject.workloads() {
        let series: Vec<Series> = group.iter().filter_map(line).collect();
        if !series.is_empty() {
            let label = format!("lifetime on {name}");
            cards.push(card(&name, &plot(&label, &x, &y, &series, true)));
        }
    }
    let prices = subject.prices;
    let mut text = String::new();
    let _ = write!(
        text,
        "Years until the slow device of a database of {} B has been written as often as its maker \
         warrants ({} full writes a day for {} years), by the rate of operations, from the bytes \
         written to it for each operation. After figure 12 of the PrismDB paper. A workload that \
         writes nothing to the slow device is not shown.",
        short(prices.database_bytes),
        prices.slow_dwpd,
        prices.warranty_years
    );
    section(&text, &cards)
}
