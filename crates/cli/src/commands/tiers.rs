//! `tiers`: what lies where, and what each tier has served since the database was made.

use crate::arguments::Database;
use crate::failure::Result;
use crate::figures::Figures;
use crate::output::{Output, note};
use crate::table::Table;
use crate::text;
use std::collections::BTreeSet;
use std::time::Duration;
use thermocline::{CAPACITY_OF_DEVICE, OpenFileStats, Stats, TierStats, WearStats};
use thermocline_foundation::ByteSize;

/// Prints the tiers.
pub fn run(database: &Database, json: bool) -> Result<()> {
    let figures = Figures::of(database)?;
    let (stats, origin) = (figures.stats(), figures.origin());
    let mut output = Output::new();
    if json {
        // The tiers are a list, which has no place for it.
        origin.iter().for_each(note);
        output.json(&stats.tiers)?;
    } else {
        origin.iter().try_for_each(|origin| output.line(origin))?;
        table(stats).print("Tiers, fastest first", &mut output)?;
        shortfalls(stats).try_for_each(|shortfall| output.line(shortfall))?;
        kinds(stats).print("Bytes by kind", &mut output)?;
        holds(stats).print("Records by tier", &mut output)?;
        served(stats).print("Served, since the database was made", &mut output)?;
        print_wear(stats, &mut output)?;
        output.line(open_files(stats))?;
    }
    output.finish()
}

/// A line for each tier whose device cannot hold what the capacity promises.
fn shortfalls(stats: &Stats) -> impl Iterator<Item = String> + '_ {
    let of_tier = |(index, tier): (usize, &TierStats)| {
        Some(format!("warning: tier {index}, {} {}", tier.path, tier.shortfall()?))
    };
    stats.tiers.iter().enumerate().filter_map(of_tier)
}

/// How many files are open, and may be.
pub fn open_files(stats: &Stats) -> String {
    let OpenFileStats { open, open_max, descriptors_max, reopened } = stats.open_files;
    let mut text = format!("open files {}", text::count(open));
    if let Some(open_max) = open_max {
        text += &format!(" of {} at most", text::count(open_max));
    }
    if let Some(descriptors_max) = descriptors_max {
        text += &format!(" (the process may have {})", text::count(descriptors_max));
    }
    if reopened > 0 {
        text += &format!("; opened again {} times", text::count(reopened));
    }
    text
}

/// A size, or a dash for nothing.
pub fn size(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { ByteSize(bytes).to_string() }
}

/// One row for each tier: what it may hold and what it does hold.
pub fn table(stats: &Stats) -> Table {
    let mut table =
        Table::new(&[">tier", "driver", ">used", ">capacity", ">full", ">device free", "path"]);
    for (index, tier) in stats.tiers.iter().enumerate() {
        let (capacity, full) = capacity(tier);
        table.row([
            index.to_string(),
            tier.driver.clone(),
            size(tier.used_bytes),
            capacity,
            full,
            tier.device_free_bytes.map_or_else(|| "?".to_owned(), size),
            tier.path.clone(),
        ]);
    }
    table
}

/// One row for each tier: how full it is, and what it has done since the database was made.
pub fn overview(stats: &Stats) -> Table {
    let headings =
        [">tier", ">used", ">capacity", ">full", ">records", ">reads", ">written", "path"];
    let mut table = Table::new(&headings);
    for (index, tier) in stats.tiers.iter().enumerate() {
        let (capacity, full) = capacity(tier);
        table.row([
            index.to_string(),
            size(tier.used_bytes),
            capacity,
            full,
            text::count(tier.records),
            text::count(tier.reads),
            size(tier.written_bytes),
            tier.path.clone(),
        ]);
    }
    table
}

/// What a tier may hold, and which share of it is used.
fn capacity(tier: &TierStats) -> (String, String) {
    let unlimited = tier.capacity_bytes >= CAPACITY_OF_DEVICE;
    let capacity = if unlimited { "device".to_owned() } else { size(tier.capacity_bytes) };
    let full = if unlimited { 0 } else { tier.capacity_bytes };
    (capacity, text::share(tier.used_bytes, full))
}

/// One row for each kind of file, one column for each tier.
pub fn kinds(stats: &Stats) -> Table {
    let columns: Vec<String> = (0..stats.tiers.len()).map(|tier| format!(">tier {tier}")).collect();
    let headings: Vec<&str> =
        ["kind"].into_iter().chain(columns.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    let kinds: BTreeSet<&String> =
        stats.tiers.iter().flat_map(|tier| tier.bytes_by_kind.keys()).collect();
    for kind in kinds {
        let bytes = |tier: &TierStats| tier.bytes_by_kind.get(kind).copied();
        let cells = stats.tiers.iter().map(|tier| size(bytes(tier).unwrap_or(0)));
        table.row([kind.clone()].into_iter().chain(cells));
    }
    table
}

/// One row for each tier: what slots and tables hold there. What is dead in tables is an estimate.
pub fn holds(stats: &Stats) -> Table {
    let mut table = Table::new(&[">tier", ">records", ">live", ">dead (estimate)"]);
    for (index, tier) in stats.tiers.iter().enumerate() {
        table.row([
            index.to_string(),
            text::count(tier.records),
            size(tier.live_bytes),
            size(tier.dead_bytes_estimate),
        ]);
    }
    table
}

/// One row for each tier: reads, writes and syncs.
pub fn served(stats: &Stats) -> Table {
    let headings = [">tier", ">reads", ">share", ">read", ">writes", ">written", ">syncs"];
    let mut table = Table::new(&headings);
    let reads: u64 = stats.tiers.iter().map(|tier| tier.reads).sum();
    for (index, tier) in stats.tiers.iter().enumerate() {
        table.row([
            index.to_string(),
            text::count(tier.reads),
            text::share(tier.reads, reads),
            size(tier.read_bytes),
            text::count(tier.writes),
            size(tier.written_bytes),
            text::count(tier.syncs),
        ]);
    }
    table
}

/// Prints how fast each tier is written to, where that is known. A tier as large as its device has
/// no stated capacity, so no drive write to count in.
pub fn print_wear(stats: &Stats, output: &mut Output) -> Result<()> {
    let is_known = |tier: &&TierStats| tier.capacity_bytes < CAPACITY_OF_DEVICE;
    let known: Vec<_> = (stats.tiers.iter().enumerate())
        .filter_map(|(index, tier)| Some(tier).filter(is_known)?.wear.as_ref().map(|w| (index, w)))
        .collect();
    match known.is_empty() {
        true => Ok(()),
        false => wear(&known).print("Wear, as the tiers are written now", output),
    }
}

fn wear(tiers: &[(usize, &WearStats)]) -> Table {
    let mut table =
        Table::new(&[">tier", ">measured over", ">drive writes a day", ">of budget", ">lifetime"]);
    let dash = || "-".to_owned();
    for (index, wear) in tiers {
        table.row([
            index.to_string(),
            text::span(Duration::from_secs_f64(wear.measured_s)),
            format!("{:.3}", wear.drive_writes_per_day),
            wear.budget_used_percent.map_or_else(dash, |percent| format!("{percent:.1} %")),
            wear.lifetime_years.map_or_else(dash, lifetime),
        ]);
    }
    table
}

/// Beyond a century a figure only looks exact.
fn lifetime(years: f64) -> String {
    if years > 100.0 { "over 100 years".to_owned() } else { format!("{years:.1} years") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_shows_what_is_known_and_dashes() {
        let bounded = WearStats {
            measured_s: 7200.0,
            drive_writes_per_day: 0.25,
            budget_used_percent: Some(83.3),
            lifetime_years: Some(6.0),
        };
        let free = WearStats { budget_used_percent: None, lifetime_years: None, ..bounded.clone() };
        let shown = wear(&[(0, &free), (1, &bounded)]).lines();
        let words: Vec<Vec<_>> =
            shown.iter().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["0", "7200", "s", "0.250", "-", "-"]);
        assert_eq!(words[1], ["1", "7200", "s", "0.250", "83.3", "%", "6.0", "years"]);
        assert_eq!(lifetime(101.0), "over 100 years");
    }
}
