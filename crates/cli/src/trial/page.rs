//! What `try` prints: one short page, which README.md shows.
//!
//! `tests/readme.rs` compares the two, so a change here is a change there. All other figures are in
//! `stats --all`.

use super::Outcome;
use crate::commands::{fast_tier, tiers};
use crate::table::Table;
use crate::text;
use std::path::Path;
use std::time::Duration;
use thermocline_foundation::ByteSize;

/// The lines of the page about the store at `home`, which the command line calls `db`.
pub fn lines(outcome: &Outcome, home: &Path, db: &Path) -> Vec<String> {
    let seconds = |seconds: f64| text::span(Duration::from_secs_f64(seconds));
    let rate = ByteSize((outcome.bytes as f64 / outcome.load_s.max(1e-9)) as u64);
    let mut lines = vec![format!(
        "Loaded {} of {} in {} ({rate}/s). Served, zipf 0.99 over all files:",
        text::counted(outcome.files, "file"),
        ByteSize(outcome.bytes),
        seconds(outcome.load_s),
    )];
    lines.extend(served(outcome).plain_lines());
    let (home, db) = (home.display().to_string(), db.display().to_string());
    let tiers = tiers::overview(&outcome.stats).plain_lines().into_iter();
    lines.extend(tiers.map(|line| line.replace(&home, &db)));
    lines.push(fast_tier::moved(&outcome.stats));
    lines.push(format!(
        "Closed, reopened in {}, and compared {} with their files in {}: all equal.",
        seconds(outcome.reopen_s),
        text::counted(outcome.checked, "value"),
        seconds(outcome.check_s)
    ));
    if outcome.changed > 0 {
        let changed = text::counted(outcome.changed, "file");
        lines.push(format!("{changed} changed on disk meanwhile; the store has what it loaded."));
    }
    lines.push(format!(
        "The store stays in {db}: next, 'thermocline stats', 'stats --all', 'scan --limit 5'."
    ));
    lines
}

fn served(outcome: &Outcome) -> Table {
    let headings = ["operation", ">count", ">per second", ">p50", ">p99", ">longest"];
    let mut table = Table::new(&headings);
    for operation in &outcome.operations {
        let ns = |ns: u64| text::span(Duration::from_nanos(ns));
        table.row([
            operation.name.to_owned(),
            text::count(operation.count),
            text::count(operation.per_second as u64),
            ns(operation.p50_ns),
            ns(operation.p99_ns),
            ns(operation.max_ns),
        ]);
    }
    table
}
