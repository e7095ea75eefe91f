//! The numbers behind the plots, what failed or was skipped, and what each engine was told.

use super::Subject;
use super::svg::{escaped, short};
use crate::summary::{Spread, Summary};
use std::fmt::Write;
use thermocline_foundation::ByteSize;

const HEAD: [&str; 17] = [
    "workload",
    "engine",
    "op/s",
    "least",
    "most",
    "ratio",
    "last tenth",
    "p50 us",
    "p99 us",
    "p99.9 us",
    "longest us",
    "cpu us/op",
    "write amp",
    "slow reads/op",
    "fast use",
    "memory",
    "of bound",
];

pub fn numbers(subject: &Subject<'_>) -> String {
    let mut text = "<div class='wide card'><table>\n<thead><tr>".to_owned();
    for (index, name) in HEAD.iter().enumerate() {
        let class = if index < 2 { " class='text'" } else { "" };
        let _ = write!(text, "<th{class}>{name}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (workload, group) in subject.workloads() {
        for summary in group {
            row(&mut text, &workload, summary);
        }
    }
    text.push_str("</tbody>\n</table></div>\n");
    text.push_str(&missing(subject));
    text
}

fn row(text: &mut String, workload: &str, summary: &Summary<'_>) {
    let (workload, engine) = (escaped(workload), escaped(summary.engine));
    let _ = write!(text, "<tr><td class='text'>{workload}</td><td class='text'>{engine}</td>");
    if let Some(ops) = summary.ops_per_s() {
        let median = |spread: Option<Spread>| spread.map_or(String::new(), |s| short(s.median));
        let memory = summary.spread(|measured| Some(measured.peak_rss_bytes as f64));
        let percent = |spread: Option<Spread>| {
            spread.map_or(String::new(), |share| format!("{:.0} %", 100.0 * share.median))
        };
        let cells = [
            short(ops.median),
            short(ops.min),
            short(ops.max),
            summary.ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.median)),
            median(summary.spread(|measured| Some(measured.last_tenth_ops_per_s))),
            median(summary.latency_us(|latency| latency.p50_us)),
            median(summary.latency_us(|latency| latency.p99_us)),
            median(summary.latency_us(|latency| latency.p999_us)),
            summary.latency_us(|latency| latency.max_us).map_or(String::new(), |s| short(s.max)),
            median(summary.spread(|measured| Some(measured.cpu_us_per_op))),
            median(summary.spread(|measured| measured.write_amplification)),
            median(summary.spread(|measured| measured.slow_reads_per_op)),
            percent(summary.spread(|measured| measured.peak_fast_share)),
            memory.map_or(String::new(), |spread| ByteSize(spread.median as u64).to_string()),
            percent(summary.spread(|measured| measured.bound.map(|bound| bound.share))),
        ];
        for cell in cells {
            let _ = write!(text, "<td>{cell}</td>");
        }
    } else {
        let _ = write!(text, "<td class='failed' colspan='{}'>failed</td>", HEAD.len() - 2);
    }
    text.push_str("</tr>\n");
}

/// What failed and what was skipped, with the reasons.
fn missing(subject: &Subject<'_>) -> String {
    let mut items = String::new();
    for summary in &subject.summaries {
        if let Some(failure) = summary.failure {
            let _ = writeln!(
                items,
                "<li class='failed'>{} on {}: {}</li>",
                escaped(summary.engine),
                escaped(summary.workload),
                escaped(failure)
            );
        }
    }
    for skipped in &subject.results.skipped {
        let workload = skipped.workload.as_deref().unwrap_or("all workloads");
        let _ = writeln!(
            items,
            "<li>{} on {}: {}</li>",
            escaped(&skipped.engine),
            escaped(workload),
            escaped(&skipped.reason)
        );
    }
    if items.is_empty() {
        String::new()
    } else {
        format!("<h3>Not measured</h3>\n<ul>\n{items}</ul>\n")
    }
}

pub fn engines(subject: &Subject<'_>) -> String {
    let mut text = "<div class='grid-of'>\n".to_owned();
    for engine in &subject.results.engines {
        let (label, about) = (escaped(&engine.label), escaped(&engine.about));
        let _ = write!(
            text,
            "<div class='card'><h3>{label}</h3><p>{about}; layout {}</p>\n\
             <table class='options'>\n",
            engine.layout
        );
        for (name, value) in &engine.options {
            let (name, value) = (escaped(name), escaped(value));
            let _ = writeln!(text, "<tr><td class='text'>{name}</td><td>{value}</td></tr>");
        }
        text.push_str("</table></div>\n");
    }
    text.push_str("</div>\n");
    text
}
