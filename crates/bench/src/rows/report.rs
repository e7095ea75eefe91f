//! The rows for a person (a table, a picture a figure) and for programs (`ratio` lines, JSON).

use super::judged::{Judged, Side, Verdict, measured};
use super::{Figure, Found, Goal, Outcomes, Paper};
use crate::Outcome;
use crate::report::html::svg::{self, Bar, bars, picture, short};
use crate::report::table::{align, with_spread};
use crate::results::Results;
use crate::rig::plan::Medium;
use crate::summary::{Spread, summaries};
use serde::Serialize;
use std::path::Path;
use thermocline_device::drivers::host_files;

/// Of the file's schema, which is the command's word behind `thermocline-`.
const VERSION: u32 = 1;

/// Of the fast tier's capacity; what is above it is told. File systems round files up.
const EXCESS_SHOWN: f64 = 1.02;

/// What a report is of.
#[derive(Clone, Copy, Debug)]
pub struct Sheet<'a> {
    /// The paper.
    pub paper: &'a Paper,
    /// Where the rows go as JSON; pictures lie beside it.
    pub path: &'a Path,
    /// What the fast device was made of.
    pub medium: Medium,
    /// Why the rows were measured on plain directories; none: on the rig.
    pub no_rig: Option<&'a str>,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: String,
    version: u32,
    command: Vec<String>,
    medium: String,
    /// Why the rows were measured on plain directories; none: on the rig.
    no_rig: Option<&'a str>,
    rows: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    row: String,
    unit: &'static str,
    ours: Option<Measurement>,
    theirs: Option<Measurement>,
    value: Option<f64>,
    value_min: Option<f64>,
    value_max: Option<f64>,
    goal: String,
    verdict: &'static str,
    /// Why it has no value.
    reason: Option<String>,
}

#[derive(Serialize)]
struct Measurement {
    engine: String,
    workload: String,
    median: f64,
    min: f64,
    max: f64,
}

impl Measurement {
    fn of(side: &Side) -> Self {
        let Spread { median, min, max } = side.spread;
        let (engine, workload) = (side.point.engine.clone(), side.point.workload.clone());
        Self { engine, workload, median, min, max }
    }
}

impl Line {
    fn of<G>(judged: &Judged<G>) -> Self {
        let value = judged.value.as_ref().ok();
        Self {
            row: judged.row.name.clone(),
            unit: judged.row.measure.unit,
            ours: judged.over.as_ref().map(Measurement::of),
            theirs: judged.under.as_ref().map(Measurement::of),
            value: value.map(|spread| spread.median),
            value_min: value.map(|spread| spread.min),
            value_max: value.map(|spread| spread.max),
            goal: goal(judged.row.goal),
            verdict: word(judged.verdict()),
            reason: judged.value.as_ref().err().cloned(),
        }
    }
}

/// Writes the file and the pictures; returns what is to be printed.
pub fn written<G: Ord>(
    sheet: &Sheet<'_>,
    rows: &[Judged<G>],
    found: &Found<G>,
) -> Outcome<Outcomes> {
    let Sheet { paper, path, medium, no_rig } = *sheet;
    let document = Document {
        schema: format!("thermocline-{}", paper.word),
        version: VERSION,
        command: std::env::args().collect(),
        medium: no_rig.map_or(medium.about(), |_| "plain directory").to_owned(),
        no_rig,
        rows: rows.iter().map(Line::of).collect(),
    };
    let json = serde_json::to_string_pretty(&document)?;
    host_files::write_text(path, &json)?;
    let mut pictures = Vec::new();
    for figure in paper.figures {
        let own: Vec<_> = rows.iter().filter(|row| row.row.figure == *figure).collect();
        if let Some(drawn) = drawn(paper, figure, &own, found) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let picture = path.with_file_name(format!("{stem}-figure-{}.svg", figure.name));
            host_files::write_text(&picture, &drawn)?;
            pictures.push(picture);
        }
    }
    let table = heading(sheet) + &failures(found) + &table(rows) + &excess(found);
    Ok(Outcomes { table, lines: lines(rows), json, results: path.to_owned(), pictures })
}

/// What the rows were measured on.
fn heading(sheet: &Sheet<'_>) -> String {
    if sheet.paper.has_region {
        let place = match sheet.no_rig {
            Some(reason) => format!("plain directories: {reason}"),
            None => format!("slow device with profile {}", sheet.paper.profile),
        };
        return format!("persistent memory: EMULATED by a file in memory; tables: {place}\n");
    }
    let Some(reason) = sheet.no_rig else {
        return format!("fast device: {}\n", sheet.medium.about());
    };
    let slow = if sheet.paper.emulated { "; the slow one behind an emulated device" } else { "" };
    format!("plain directories, NOT the medium asked for: {reason}{slow}\n")
}

/// Rounds that failed, where others of the same point may not have.
fn failures<G>(found: &Found<G>) -> String {
    let rows = found.values().flat_map(|results: &Results| &results.rows);
    let failed = rows.filter_map(|row| {
        let failure = row.failure.as_deref()?;
        Some(format!(
            "failed: {} on {}, round {}: {failure}\n",
            row.engine, row.workload, row.round
        ))
    });
    failed.collect()
}

/// Engines that had more of the fast tier than they were told: their rows compare unequal bytes.
fn excess<G>(found: &Found<G>) -> String {
    let mut text = String::new();
    for summary in found.values().flat_map(summaries) {
        let share = summary.spread(|measured| measured.peak_fast_share);
        let Some(share) = share.filter(|share| share.median > EXCESS_SHOWN) else { continue };
        let percent = 100.0 * share.median;
        let (engine, workload) = (summary.engine, summary.workload);
        text.push_str(&format!("above the fast tier: {engine} on {workload}: {percent:.0} %\n"));
    }
    text
}

fn table<G>(rows: &[Judged<G>]) -> String {
    let head = ["row", "ours", "other", "unit", "value", "goal", ""];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    let mut reasons = String::new();
    for judged in rows {
        let side = |side: &Option<Side>| {
            side.as_ref().map_or("-".to_owned(), |side| with_spread(side.spread))
        };
        let value = match &judged.value {
            Ok(spread) => with_spread(*spread),
            Err(reason) => {
                reasons.push_str(&format!("not there: {}: {reason}\n", judged.row.name));
                "-".to_owned()
            }
        };
        cells.push(vec![
            judged.row.name.clone(),
            side(&judged.over),
            side(&judged.under),
            judged.row.measure.unit.to_owned(),
            value,
            goal(judged.row.goal),
            word(judged.verdict()).to_owned(),
        ]);
    }
    align(&cells) + &reasons
}

/// The lines for programs.
fn lines<G>(rows: &[Judged<G>]) -> Vec<String> {
    let line = |judged: &Judged<G>| {
        let value = judged.value.as_ref().ok()?;
        Some(format!("ratio {} {:.3}", judged.row.name, value.median))
    };
    rows.iter().filter_map(line).collect()
}

fn goal(goal: Goal) -> String {
    match goal {
        Goal::None => String::new(),
        Goal::AtLeast(bar, aim) => format!("{bar} or more, aim {aim}"),
        Goal::AtMost(bar, aim) if bar == aim => format!("{bar} at most"),
        Goal::AtMost(bar, aim) => format!("{bar} at most, aim {aim}"),
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Shown => "",
        Verdict::Aim => "aim reached",
        Verdict::Reached => "reached",
        Verdict::Missed => "missed",
        Verdict::NotThere => "not there",
    }
}

/// A picture of `rows`: their values beside their bars, and what they are made of.
fn drawn<G: Ord>(
    paper: &Paper,
    figure: &Figure,
    rows: &[&Judged<G>],
    found: &Found<G>,
) -> Option<String> {
    let values: Vec<_> = rows.iter().filter_map(|judged| value_bar(judged)).collect();
    if values.is_empty() {
        return None;
    }
    let mut plots = vec![("values, with their bars", bars("values", &values))];
    let mut engines: Vec<String> = Vec::new();
    for (unit, sides) in measured(rows, found) {
        let mut drawn = Vec::new();
        for side in &sides {
            let known = engines.iter().position(|engine| *engine == side.point.engine);
            let colour = known.unwrap_or_else(|| {
                engines.push(side.point.engine.clone());
                engines.len() - 1
            });
            drawn.push(side_bar(side, colour));
        }
        plots.push((unit, bars(unit, &drawn)));
    }
    let plots: Vec<_> = plots.iter().map(|(name, plot)| (*name, plot.clone())).collect();
    let names: Vec<_> = engines.into_iter().enumerate().collect();
    let title = format!("{}, figure {}: {}", paper.title, figure.name, figure.title);
    Some(picture(&title, &plots, &names))
}

fn value_bar<G>(judged: &Judged<G>) -> Option<Bar> {
    let value = judged.value.as_ref().ok()?;
    let mark = match judged.row.goal {
        Goal::None => None,
        Goal::AtLeast(bar, _) | Goal::AtMost(bar, _) => Some((bar, goal(judged.row.goal))),
    };
    let colour = if judged.verdict() == Verdict::Missed { 1 } else { 0 };
    let text = format!("{:.2}", value.median);
    Some(Bar {
        name: judged.row.name.clone(),
        colour: colour % svg::COLOURS,
        parts: vec![(text.clone(), value.median)],
        spread: Some((value.min, value.max)),
        mark,
        text,
    })
}

fn side_bar(side: &Side, colour: usize) -> Bar {
    let text = short(side.spread.median);
    Bar {
        name: side.point.workload.clone(),
        colour,
        parts: vec![(text.clone(), side.spread.median)],
        spread: Some((side.spread.min, side.spread.max)),
        mark: None,
        text,
    }
}
