//! `quick`: a small comparison in under three minutes that needs neither root nor two disks.
//!
//! The slow tier is an emulated one (gp3: 10,000 reads a second, 300 MB/s), which only Thermocline
//! can use, so its own layouts are compared on two tiers; engines of the binary that take one tier
//! are compared on a plain directory. Each figure is one round of a few seconds on whatever the
//! machine is doing besides: enough to see that something broke, too little for a claim.
//!
//! ```text
//!   ratio WORKLOAD/tiers:all-slow VALUE      what the fast tier gains
//!   ratio WORKLOAD/tiers:all-fast VALUE      what is left of a store that is fast all over
//!   ratio WORKLOAD/direct:posix VALUE        past the page cache against through it
//!   ratio WORKLOAD/thermocline:RIVAL VALUE   for each rival of the binary
//! ```

use crate::Outcome;
use crate::cell::Cell;
use crate::command::arguments::{QuickArguments, example_cell, slow_device};
use crate::plan::{InFront, Run, Space};
use crate::results::Results;
use crate::state::empty;
use crate::store::{EngineKind, Layout};
use crate::summary::summaries;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::DriverSpec;
use thermocline_foundation::{ByteSize, SystemClock};

// Tables of the usual size would be larger than the room that so small a fast tier has for them.
const TIERS: &str = "thermocline-leveled@tiers+slow-driver=emulated-gp3+table-size=2MiB";
const ALL_SLOW: &str = "thermocline-leveled@slow+driver=emulated-gp3+table-size=2MiB";
const ALL_FAST: &str = "thermocline-leveled@fast+table-size=2MiB";
const DIRECT: &str = "thermocline-leveled@fast+driver=direct+table-size=2MiB";
/// Warming up, as a share of what is measured.
const WARM_UP_SHARE: f64 = 0.3;
const NULL: &str = "null@fast";
const WORKLOADS: [&str; 5] = ["fillrandom", "ycsb-a", "ycsb-b", "ycsb-c", "seekrandom"];
const PROFILE: &str = "gp3";
/// Bytes of a record.
const RECORD_BYTES: u64 = 1024;

/// Runs the comparison; `say` hears each line worth showing.
pub fn run(
    arguments: &QuickArguments,
    engines: &[&dyn EngineKind],
    program: &Path,
    started_s: u64,
    say: &mut dyn FnMut(&str),
) -> Outcome<Results> {
    let place = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("thermocline-bench-{}", std::process::id())),
    };
    if arguments.dir.is_some() && place.exists() {
        return Err(format!("{} exists; name a new directory", place.display()).into());
    }
    empty(&place)?;
    let data = arguments.records * RECORD_BYTES;
    let mut labels = Vec::new();
    if engines.iter().any(|engine| engine.name() == "thermocline-leveled") {
        labels.extend([TIERS, ALL_SLOW, ALL_FAST].map(str::to_owned));
        // Some file systems in memory have no direct I/O.
        match DriverSpec::DIRECT.open(&place, Arc::new(SystemClock::new())) {
            Ok(_) => labels.push(DIRECT.to_owned()),
            Err(error) => say(&format!("without {DIRECT}: {error}")),
        }
    }
    labels.extend(rivals(engines));
    if engines.iter().any(|engine| engine.name() == "null") {
        labels.push(NULL.to_owned());
    }
    let cell = Cell {
        records: arguments.records,
        // Enough to wait for the emulated device, not for the processors.
        threads: 8,
        memory: ByteSize((data / 8).max(8 << 20)),
        seconds: Some(arguments.seconds),
        warm_up_seconds: Some(arguments.seconds * WARM_UP_SHARE),
        slow_device: Some(slow_device(PROFILE)?),
        tiers: Vec::new(),
        ..example_cell()
    };
    let space = |name: &str, capacity| Space { path: place.join(name), capacity, device: None };
    let run = Run {
        title: "quick".to_owned(),
        cell,
        engines: labels,
        workloads: WORKLOADS.map(str::to_owned).to_vec(),
        pairs: None,
        rounds: 1,
        // A third, because logs take more of so small a tier than of a real one.
        fast: Some(space("fast", Some(ByteSize((data / 3).max(16 << 20))))),
        slow: Some(space("slow", None)),
        region: None,
        images: place.join("images"),
        keep_images: false,
        baseline: None,
        results: arguments.results.clone(),
        notes: BTreeMap::from([("slow profile".to_owned(), format!("emulated {PROFILE}"))]),
    };
    let outcome = run.execute(engines, program, &InFront::default(), started_s, say);
    crate::files::remove(&place)?;
    outcome
}

/// Labels of the rivals that can use one plain directory.
fn rivals(engines: &[&dyn EngineKind]) -> Vec<String> {
    engines
        .iter()
        .filter(|engine| !engine.name().starts_with("thermocline") && engine.name() != "null")
        .filter(|engine| engine.needs().allow(Layout::Fast))
        .map(|engine| format!("{}@fast", engine.name()))
        .collect()
}

/// The lines for programs.
pub fn lines(results: &Results) -> Vec<String> {
    let found = summaries(results);
    let of = |engine: &str, workload: &str| {
        let mut matching = found.iter().filter(|s| s.engine == engine && s.workload == workload);
        matching.next()?.ops_per_s().map(|spread| spread.median)
    };
    let mut pairs = vec![
        ("tiers:all-slow".to_owned(), TIERS.to_owned(), ALL_SLOW.to_owned()),
        ("tiers:all-fast".to_owned(), TIERS.to_owned(), ALL_FAST.to_owned()),
        ("direct:posix".to_owned(), DIRECT.to_owned(), ALL_FAST.to_owned()),
    ];
    let known = [TIERS, ALL_SLOW, ALL_FAST, DIRECT, NULL];
    for engine in results.engines.iter().filter(|e| !known.contains(&e.label.as_str())) {
        let rival = engine.label.trim_end_matches("@fast");
        pairs.push((format!("thermocline:{rival}"), ALL_FAST.to_owned(), engine.label.clone()));
    }
    let mut lines = Vec::new();
    for workload in WORKLOADS {
        for (name, over, under) in &pairs {
            if let (Some(over), Some(under)) = (of(over, workload), of(under, workload)) {
                lines.push(format!("ratio {workload}/{name} {:.3}", over / under));
            }
        }
    }
    for workload in ["ycsb-a", "ycsb-c"] {
        let null = found.iter().find(|s| s.engine == NULL && s.workload == workload);
        let cost = null.and_then(|null| null.spread(|measured| Some(measured.cpu_us_per_op)));
        if let Some(cost) = cost {
            lines.push(format!("generator {workload} {:.3} us an operation", cost.median));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Machine, Measured, Row, Scenario};
    use crate::store::Durability;

    #[test]
    fn ratios_are_printed_for_what_was_measured() {
        let mut results = Results::new("", Scenario::default(), Machine::default(), 0);
        for (engine, ops_per_s) in [(TIERS, 30.0), (ALL_SLOW, 10.0), (NULL, 10e6)] {
            results.rows.push(Row {
                engine: engine.to_owned(),
                workload: "ycsb-c".to_owned(),
                round: 1,
                seed: 1,
                durability: Durability::Buffered,
                tiers: Vec::new(),
                measured: Some(Measured { ops_per_s, cpu_us_per_op: 0.2, ..Measured::default() }),
                failure: None,
            });
        }
        assert_eq!(
            lines(&results),
            ["ratio ycsb-c/tiers:all-slow 3.000", "generator ycsb-c 0.200 us an operation"]
        );
    }
}
