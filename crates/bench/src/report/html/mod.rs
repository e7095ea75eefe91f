//! Results as one page for a browser: no network, no script, light and dark.
//!
//! ```text
//!   throughput   bars with ratios and the bound          latency    percentiles as curves
//!   timelines    operations in each second               traffic    bytes by tier and direction
//!   cost         dollars of storage against throughput   lifetime   years of the slow device
//!   numbers      everything as a table                   engines    the options of each
//!   figure       where results are of one of a paper's figures: what it varies across
//! ```
//! A plot for each workload; an engine has one colour throughout. `svg` draws, `cost` computes the
//! projections, `sections` says what is drawn.
//!
//! Invariants:
//! 1. The page holds everything it needs: opened from a file it loads nothing.
//! 2. A row that failed or was skipped is on the page, with its reason.
//! 3. What comes from results passes through `svg::escaped`.

pub mod cost;
mod figure;
mod sections;
pub mod svg;
mod tables;

use crate::Outcome;
use crate::results::Results;
use crate::summary::{Summary, baseline, summaries};
use cost::Prices;
use std::fmt::Write;
use std::path::Path;
use svg::{COLOURS, escaped};
use thermocline_device::drivers::host_files;
use thermocline_foundation::ByteSize;

/// Writes the page of `results` to `path`.
pub fn write(results: &Results, prices: &Prices, path: &Path) -> Outcome<()> {
    Ok(host_files::write_text(path, &page(results, prices))?)
}

/// Writes one picture to `path`: the plots of the figure that `results` are of, or the throughput
/// of the engines that they compare. False, and nothing written, where they are neither.
pub fn write_picture(results: &Results, path: &Path) -> Outcome<bool> {
    let drawn = figure::picture(results).or_else(|| comparison(results));
    let Some(picture) = drawn else { return Ok(false) };
    host_files::write_text(path, &picture)?;
    Ok(true)
}

/// The throughput of several engines beside the bound, a plot for each workload.
fn comparison(results: &Results) -> Option<String> {
    let prices = Prices::default();
    let subject = Subject::new(results, &prices);
    let plots = sections::throughputs(&subject);
    if subject.engines.len() < 2 || plots.is_empty() {
        return None;
    }
    let named: Vec<_> = plots.iter().map(|(name, plot)| (name.as_str(), plot.clone())).collect();
    let label = "Operations a second; a dashed line is the best possible placement's";
    Some(svg::picture(label, &named, &[]))
}

/// What all sections draw from.
struct Subject<'a> {
    results: &'a Results,
    summaries: Vec<Summary<'a>>,
    /// Labels in the order of their colours.
    engines: Vec<&'a str>,
    prices: &'a Prices,
}

impl<'a> Subject<'a> {
    fn new(results: &'a Results, prices: &'a Prices) -> Self {
        let summaries = summaries(results);
        let mut engines: Vec<&str> = results.engines.iter().map(|e| e.label.as_str()).collect();
        for row in &results.rows {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        Self { results, summaries, engines, prices }
    }

    fn colour(&self, engine: &str) -> usize {
        self.engines.iter().position(|label| *label == engine).unwrap_or(0)
    }

    /// Summaries of each workload, in the order they were run.
    fn workloads(&self) -> Vec<(String, Vec<&Summary<'a>>)> {
        let mut groups: Vec<(String, Vec<&Summary<'a>>)> = Vec::new();
        for summary in &self.summaries {
            let name = match summary.workload.split('/').any(|part| part == "sync") {
                true => summary.workload.to_owned(),
                false if summary.durability == crate::store::Durability::Sync => {
                    format!("{} (sync)", summary.workload)
                }
                false => summary.workload.to_owned(),
            };
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, group)) => group.push(summary),
                None => groups.push((name, vec![summary])),
            }
        }
        groups
    }
}

/// The whole page.
pub fn page(results: &Results, prices: &Prices) -> String {
    let subject = Subject::new(results, prices);
    let sections = [
        ("figure", "Figure", figure::figure(results)),
        ("throughput", "Throughput", sections::throughput(&subject)),
        ("latency", "Latency", sections::latency(&subject)),
        ("timelines", "Timelines", sections::timelines(&subject)),
        ("traffic", "Traffic by tier", sections::traffic(&subject)),
        ("cost", "Cost", sections::cost(&subject)),
        ("lifetime", "Lifetime of the slow device", sections::lifetime(&subject)),
        ("numbers", "Numbers", tables::numbers(&subject)),
        ("engines", "Engines and their options", tables::engines(&subject)),
    ];
    let title = escaped(&results.title);
    let mut page = format!(
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n\
         <meta name='viewport' content='width=device-width, initial-scale=1'>\n\
         <title>{title}</title>\n<link rel='icon' href='data:,'>\n<style>\n{}</style>\n</head>\n\
         <body>\n<main data-rows='{}'>\n<h1>{title}</h1>\n",
        concat!(include_str!("plot.css"), include_str!("page.css")),
        results.rows.len()
    );
    page.push_str(&heading(&subject));
    page.push_str("<nav>");
    let shown = || sections.iter().filter(|(_, _, body)| !body.is_empty());
    for (id, name, _) in shown() {
        let _ = write!(page, "<a href='#{id}'>{name}</a>");
    }
    page.push_str("</nav>\n");
    page.push_str(&legend(&subject));
    for (id, name, body) in shown() {
        let _ = write!(page, "<section id='{id}'>\n<h2>{name}</h2>\n{body}</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

fn heading(subject: &Subject<'_>) -> String {
    let (scenario, machine) = (&subject.results.scenario, &subject.results.machine);
    let limit = scenario
        .memory_limit_bytes
        .map_or_else(|| "no limit".to_owned(), |bytes| format!("limit {}", ByteSize(bytes)));
    let mut text = format!(
        "<p>{} records of {} + {} B ({}), fast tier {}, {} threads, {} of memory for each engine \
         ({limit} of the process), {:?}{}, {} rounds. {}, {} processors, {} of memory, Linux {}, \
         harness {}.</p>\n",
        scenario.records,
        scenario.key_bytes,
        scenario.value_bytes,
        subject.results.data_bytes(),
        ByteSize(scenario.fast_bytes),
        scenario.threads,
        ByteSize(scenario.memory_bytes),
        scenario.durability,
        if scenario.direct { ", direct" } else { "" },
        scenario.rounds,
        escaped(&machine.processor),
        machine.processors,
        ByteSize(machine.memory_bytes),
        escaped(&machine.kernel),
        escaped(&machine.harness)
    );
    if !scenario.notes.is_empty() {
        let notes = scenario.notes.iter();
        let notes: Vec<_> = notes.map(|(name, value)| format!("{name}: {value}")).collect();
        let _ = writeln!(text, "<p>{}.</p>", escaped(&notes.join("; ")));
    }
    if !subject.results.command.is_empty() {
        let command = escaped(&subject.results.command.join(" "));
        let _ = writeln!(text, "<p><code>{command}</code></p>");
    }
    text
}

fn legend(subject: &Subject<'_>) -> String {
    let mut text = "<ul class='legend'>".to_owned();
    for (index, engine) in subject.engines.iter().enumerate() {
        let base =
            if baseline(subject.results) == Some(engine) { " (ratios are to it)" } else { "" };
        let (colour, engine) = (index % COLOURS, escaped(engine));
        let _ = write!(text, "<li><span class='c{colour}'></span>{engine}{base}</li>");
    }
    text.push_str("</ul>\n");
    text
}

#[cfg(test)]
mod tests;
