//! A run for each group of rows, engines in turns, and what all of it came to.

use super::judged::{Judged, judge_in};
use super::place::Place;
use super::report::{self, Sheet};
use super::stand::Stand;
use super::{Found, Missing, Outcomes, Paper, ROCKSDB, Row, RowArguments, is_ours};
use crate::Outcome;
use crate::cell::Cell;
use crate::plan::Run;
use crate::store::EngineKind;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::path::Path;
use thermocline_foundation::ByteSize;

/// What the rows need of their place.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// Size of the fast device.
    pub fast: ByteSize,
    /// Of the slow one.
    pub slow: ByteSize,
    /// What an engine over two tiers may use of the fast one.
    pub capacity: ByteSize,
}

/// Engines, the program that has them, and when it began.
pub type Context<'a> = (&'a [&'a dyn EngineKind], &'a Path, u64);

/// Makes the cell that all of a group are made from, out of what the groups before it came to, or
/// says why there is none.
pub type MakeCell<'a, G> = dyn Fn(G, &Found<G>) -> Result<Cell, String> + 'a;

/// Measures a row that has no points: a sequence of processes, or no process at all.
pub type Drill<'a, G> = dyn Fn(&Row<G>, &Stand<'_>) -> Outcome<Drilled> + 'a;

/// What such a row came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Drilled {
    /// Its value.
    pub value: f64,
    /// Why it is what it is, where a person is to be told.
    pub remark: Option<String>,
}

impl From<f64> for Drilled {
    fn from(value: f64) -> Self {
        Self { value, remark: None }
    }
}

/// How rows are measured.
#[allow(missing_debug_implementations, reason = "functions have none")]
pub struct Ways<'a, G> {
    /// Those with points.
    pub cell: &'a MakeCell<'a, G>,
    /// Those without, once each, after all others.
    pub drill: Option<&'a Drill<'a, G>>,
}

impl<'a, G> Ways<'a, G> {
    /// All rows have points.
    pub fn cells(cell: &'a MakeCell<'a, G>) -> Self {
        Self { cell, drill: None }
    }
}

/// Runs `rows`, whose groups have the cells that `ways` make.
pub fn run<G: Copy + Ord + Debug>(
    paper: &Paper,
    arguments: &RowArguments,
    (mut rows, rounds): (Vec<Row<G>>, u32),
    devices: Devices,
    ways: &Ways<'_, G>,
    (engines, program, started_s): Context<'_>,
    say: &mut dyn FnMut(&str),
) -> Outcome<Outcomes> {
    let place = Place::new(paper, arguments, devices, say)?;
    let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::new());
    if let Some(reason) = place.no_rig.as_ref().filter(|_| paper.emulated) {
        emulated(paper, &mut rows, reason, &mut missing);
    }
    let leaves = || rows.iter().flat_map(Row::leaves);
    let groups: BTreeSet<G> =
        leaves().filter(|row| !row.over.is_empty()).map(|row| row.group).collect();
    for group in groups {
        let own: Vec<&Row<G>> = leaves().filter(|row| row.group == group).collect();
        let made = match (ways.cell)(group, &found) {
            Ok(cell) => described(paper, arguments, group, cell, rounds, &place),
            Err(reason) => {
                let points = own.iter().flat_map(|row| row.points());
                missing.extend(points.map(|point| ((group, point.clone()), reason.clone())));
                continue;
            }
        };
        let run = of_points(made, group, &own, engines, &mut missing);
        if run.pairs.as_ref().is_some_and(BTreeSet::is_empty) {
            continue;
        }
        say(&announced(&run));
        found.insert(group, run.execute(engines, program, &*place.launcher, started_s, say)?);
    }
    let no_rig = place.no_rig.clone();
    let emulated = no_rig.as_ref().filter(|_| paper.emulated).map(|_| paper.profile);
    let (fast, slow, launcher) = (&*place.fast.path, &*place.slow.path, &*place.launcher);
    let stand = Stand { fast, slow, emulated, launcher, program };
    let drilled = drilled(&rows, ways, &stand, say);
    place.taken_down()?;
    let judged = |row: &Row<G>| match drilled.get(&row.name) {
        Some(value) => Judged::of_drill(row, value.clone()),
        None => judge_in(row, &found, &missing),
    };
    let mut judged: Vec<_> = rows.iter().map(judged).collect();
    if no_rig.is_some() {
        judged.iter_mut().for_each(Judged::name_plain);
    }
    let sheet = Sheet {
        paper,
        path: &arguments.results(paper),
        medium: arguments.medium,
        no_rig: no_rig.as_deref(),
    };
    report::written(&sheet, &judged, &found)
}

/// The rows without points and parts, by name.
fn drilled<G>(
    rows: &[Row<G>],
    ways: &Ways<'_, G>,
    stand: &Stand<'_>,
    say: &mut dyn FnMut(&str),
) -> BTreeMap<String, Result<f64, String>> {
    let mut values = BTreeMap::new();
    for row in rows.iter().filter(|row| row.over.is_empty() && row.parts.is_empty()) {
        let value = match ways.drill {
            Some(drill) => drill(row, stand).map_err(|failure| failure.to_string()),
            None => Err("nothing measures it".to_owned()),
        };
        match &value {
            Ok(Drilled { value, remark: None }) => say(&format!("{}: {value:.3}", row.name)),
            Ok(Drilled { value, remark: Some(remark) }) => {
                say(&format!("{}: {value:.3}: {remark}", row.name));
            }
            Err(reason) => say(&format!("{}: {reason}", row.name)),
        }
        values.insert(row.name.clone(), value.map(|drilled| drilled.value));
    }
    values
}

/// Our labels get a slow tier that is as slow as the device; others have no such driver.
fn emulated<G: Copy + Ord>(
    paper: &Paper,
    rows: &mut [Row<G>],
    reason: &str,
    missing: &mut Missing<G>,
) {
    for row in rows.iter_mut().flat_map(Row::leaves_mut) {
        let group = row.group;
        for point in row.points_mut() {
            if point.engine.split('+').next().is_some_and(|name| name.ends_with("@fast")) {
                // It has no slow device.
            } else if is_ours(&point.engine) {
                let driver = format!("slow-driver=emulated-{}", paper.profile);
                point.engine = super::with(&point.engine, &driver);
            } else {
                let reason = format!("no slow device for it: {reason}");
                missing.insert((group, point.clone()), reason);
            }
        }
    }
}

/// The run of `group`, without its cells.
fn described<G: Debug>(
    paper: &Paper,
    arguments: &RowArguments,
    group: G,
    mut cell: Cell,
    rounds: u32,
    place: &Place,
) -> Run {
    if place.no_rig.is_some() {
        cell.memory_limit = None;
    }
    let path = arguments.results(paper);
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let word = format!("{group:?}").to_lowercase();
    let medium = place.no_rig.as_ref().map_or(arguments.medium.about(), |_| "plain directory");
    Run {
        title: format!("{}, {word}", paper.word),
        cell,
        engines: Vec::new(),
        workloads: Vec::new(),
        pairs: None,
        rounds,
        fast: Some(place.fast.clone()),
        slow: Some(place.slow.clone()),
        region: place.region.clone(),
        images: place.images.clone(),
        keep_images: false,
        baseline: None,
        results: path.with_file_name(format!("{stem}-{word}.json")),
        notes: BTreeMap::from([("medium".to_owned(), medium.to_owned())]),
    }
}

/// `run` with the points of `rows` that can run; why the others cannot goes to `missing`.
fn of_points<G: Copy + Ord>(
    mut run: Run,
    group: G,
    rows: &[&Row<G>],
    engines: &[&dyn EngineKind],
    missing: &mut Missing<G>,
) -> Run {
    let mut pairs = BTreeSet::new();
    for point in rows.iter().flat_map(|row| row.points()) {
        let pair = (point.engine.clone(), point.workload.clone());
        let known = (group, point.clone());
        if pairs.contains(&pair) || missing.contains_key(&known) {
            continue;
        }
        let alone = Run {
            engines: vec![point.engine.clone()],
            workloads: vec![point.workload.clone()],
            ..run.clone()
        };
        match alone.check(engines) {
            Err(failure) => {
                missing.insert(known, failure.to_string());
            }
            Ok((_, _, skipped)) if !skipped.is_empty() => {
                missing.insert(known, skipped[0].reason.clone());
            }
            Ok(_) => {
                for (list, name) in
                    [(&mut run.engines, &point.engine), (&mut run.workloads, &point.workload)]
                {
                    if !list.contains(name) {
                        list.push(name.clone());
                    }
                }
                pairs.insert(pair);
            }
        }
    }
    run.baseline = run.engines.iter().find(|engine| *engine == ROCKSDB).cloned();
    run.pairs = Some(pairs);
    run
}

/// What is about to run, and for how long.
fn announced(run: &Run) -> String {
    let cells = run.pairs.as_ref().map_or(0, BTreeSet::len) as u32 * run.rounds;
    let lasting = [run.cell.seconds, run.cell.warm_up_seconds, run.cell.rest_seconds];
    let each = lasting.into_iter().flatten().sum::<f64>() + 1.0;
    let minutes = f64::from(cells) * each / 60.0;
    format!(
        "{}: {cells} cells in {} rounds, at most {minutes:.0} minutes and the loading; {} records",
        run.title, run.rounds, run.cell.records
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::{PAPER, arguments, row};

    #[test]
    fn engines_that_are_not_there_do_not_stop_the_others() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::for_test(scratch.path());
        let cell = Cell {
            records: 1000,
            memory: ByteSize::mib(16),
            tiers: Vec::new(),
            ..crate::command::arguments::example_cell()
        };
        let rows = [row("a/one", "thermocline-leveled@fast", "rocksdb@fast")];
        let rows: Vec<_> = rows.iter().collect();
        let run = described(&PAPER, &arguments(&[]), 0u32, cell, 1, &place);
        let mut missing = BTreeMap::new();
        let run = of_points(run, 0, &rows, &crate::engines::ALL, &mut missing);
        let pair = ("thermocline-leveled@fast".to_owned(), "ycsb-c".to_owned());
        assert_eq!(run.pairs.unwrap(), BTreeSet::from([pair]));
        assert_eq!(run.engines, ["thermocline-leveled@fast"]);
        let reason = &missing[&(0, rows[0].under[0].clone())];
        assert!(reason.contains("no engine 'rocksdb'"), "{reason}");
        assert_eq!(run.baseline, None);
    }

    #[test]
    fn without_a_slow_device_ours_is_emulated_and_others_say_why_they_do_not_run() {
        let mut rows = [row("a/one", "thermocline-leveled@slow", "rocksdb@tiers")];
        let mut missing = BTreeMap::new();
        emulated(&PAPER, &mut rows, "no root", &mut missing);
        assert_eq!(rows[0].over[0].engine, "thermocline-leveled@slow+slow-driver=emulated-gp3");
        let reason = &missing[&(0, rows[0].under[0].clone())];
        assert!(reason.ends_with("no root"), "{reason}");
        let (mut rows, mut missing) =
            ([row("a/two", "device@fast", "rocksdb@fast")], BTreeMap::new());
        emulated(&PAPER, &mut rows, "no root", &mut missing);
        assert_eq!((rows[0].over[0].engine.as_str(), missing.len()), ("device@fast", 0));
    }
}
