//! `generator`: what the harness itself costs, shown by the engine that does nothing.
//!
//! Every workload runs on the null engine with one thread; the figure is processor time an
//! operation of the whole process: drawing it, making its key and value, keeping versions, two
//! readings of the clock and the histogram. Processor time, because a machine that does other
//! things too makes elapsed time mean nothing. The least of several rounds counts for the same
//! reason: nothing makes a round cheaper than it is.

use crate::cell::Cell;
use crate::command::arguments::{GeneratorArguments, example_cell};
use crate::plan::{InFront, Run, Space};
use crate::state::empty;
use crate::store::EngineKind;
use crate::summary::summaries;
use crate::{Outcome, files, workloads};
use std::collections::BTreeMap;
use std::path::Path;
use thermocline_foundation::ByteSize;

/// What an operation may cost, in microseconds.
pub const COST_US_MAX: f64 = 0.3;
const ENGINE: &str = "null@fast";

/// Measures; the lines to print, and whether every workload is within [`COST_US_MAX`].
pub fn run(
    arguments: &GeneratorArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<(Vec<String>, bool)> {
    let place = std::env::temp_dir().join(format!("thermocline-bench-{}", std::process::id()));
    empty(&place)?;
    // A walk is one call. Of two threads of which one is counted, processor time says nothing.
    let named = workloads::parse_list(&arguments.workload)?.into_iter();
    let shown = named.filter(|workload| !workload.writer_beside && !workload.walks());
    let names = shown.map(|workload| workload.name);
    let run = Run {
        title: "generator".to_owned(),
        cell: Cell {
            records: arguments.records,
            threads: 1,
            memory: ByteSize::mib(8),
            operations: Some(arguments.operations),
            tiers: Vec::new(),
            ..example_cell()
        },
        engines: vec![ENGINE.to_owned()],
        workloads: names.collect(),
        pairs: None,
        rounds: arguments.rounds,
        fast: Some(Space { path: place.join("fast"), capacity: None, device: None }),
        slow: None,
        region: None,
        images: place.join("images"),
        keep_images: true,
        baseline: None,
        results: place.join("results.json"),
        notes: BTreeMap::new(),
    };
    let outcome = run.execute(engines, program, &InFront::default(), started_s, say);
    files::remove(&place)?;
    let results = outcome?;
    if let Some(failure) = results.rows.iter().find_map(|row| row.failure.as_ref()) {
        return Err(failure.clone().into());
    }
    let mut within = true;
    let mut lines = Vec::new();
    for found in summaries(&results) {
        let cost = found.spread(|measured| Some(measured.cpu_us_per_op));
        let least = cost.ok_or("a workload was not measured")?.min;
        let verdict = if least <= COST_US_MAX { "" } else { "  too much" };
        within &= verdict.is_empty();
        lines.push(format!("generator {:<24} {least:.3} us{verdict}", found.workload));
    }
    Ok((lines, within))
}
