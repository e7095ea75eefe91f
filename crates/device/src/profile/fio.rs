//! A profile from what fio reports (`--output-format=json`), for devices that were measured
//! already.
//!
//! ```text
//!   { "global options": { "bs": "4k", .. },
//!     "jobs": [ { "jobname": "four", "job options": { "rw": "write", "numjobs": "4", .. },
//!                 "read": { "bw_bytes": .. }, "write": { "bw_bytes": .. } }, .. ] }
//! ```
//! Several reports may follow each other in one text, with other lines before each. The jobs of
//! one report that have the same name and options ran together: without `group_reporting` there is
//! one for each worker.
//!
//! 1. Only what is understood is used: a job whose block size or order is none of ours is refused
//!    by name, not guessed at.
//!
//! Threads: a plain function.

use super::{Access, Curve, DeviceProfile, Order, Point, Shape, Source, Through};
use crate::error::{Error, ErrorKind, Result};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

type Options = BTreeMap<String, Value>;

#[derive(Deserialize)]
struct Report {
    #[serde(rename = "global options", default)]
    global: Options,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobname: String,
    #[serde(rename = "job options", default)]
    options: Options,
    #[serde(default)]
    read: Direction,
    #[serde(default)]
    write: Direction,
}

#[derive(Default, Deserialize)]
struct Direction {
    /// Absent before fio 3.
    bw_bytes: Option<f64>,
    /// In KiB a second.
    #[serde(default)]
    bw: f64,
}

impl Direction {
    fn bytes_per_s(&self) -> u64 {
        // A float that is no number or beyond all ends in the nearest whole one.
        self.bw_bytes.unwrap_or(self.bw * 1024.0) as u64
    }
}

/// Job name, options and access: what ran together.
type Group = (String, Options, Access);

/// The profile that these reports say; `what` names them in messages.
///
/// Errors: `Invalid`, with the line or the job that is not understood.
pub fn parse(text: &str, what: &str) -> Result<DeviceProfile> {
    let mut points: BTreeMap<Shape, Vec<Point>> = BTreeMap::new();
    for report in reports(text, what)? {
        let Report { global, jobs } = report;
        let mut groups: Vec<(Group, u64)> = Vec::new();
        for job in jobs {
            let mut options = global.clone();
            options.extend(job.options);
            for (access, direction) in [(Access::Read, &job.read), (Access::Write, &job.write)] {
                let group = (job.jobname.clone(), options.clone(), access);
                let bytes_per_s = direction.bytes_per_s();
                match groups.iter_mut().find(|(other, _)| *other == group) {
                    Some((_, sum)) => *sum = sum.saturating_add(bytes_per_s),
                    None => groups.push((group, bytes_per_s)),
                }
            }
        }
        for ((name, options, access), bytes_per_s) in groups {
            if bytes_per_s > 0 {
                let refuse = |why| invalid(format!("{what}: job '{name}' {why}"));
                let shape = shape(&options, access).map_err(refuse)?;
                let workers = workers(&options).map_err(refuse)?;
                points.entry(shape).or_default().push(Point { workers, bytes_per_s });
            }
        }
    }
    if points.is_empty() {
        let text = format!("{what}: no job has read or written anything");
        return Err(invalid(text));
    }
    let curves = points.into_iter().map(|(shape, points)| (shape, Curve::new(points)));
    Ok(DeviceProfile { source: Source::Fio, sync_ns: 0, curves: curves.collect() })
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

fn reports(text: &str, what: &str) -> Result<Vec<Report>> {
    let (mut reports, mut rest) = (Vec::new(), text);
    // fio prints notes of its own before a report: a report begins a line.
    while let Some(start) = report_start(rest) {
        let before = text.len() - rest.len() + start;
        let mut stream = serde_json::Deserializer::from_str(&rest[start..]).into_iter::<Report>();
        let report = stream.next().unwrap_or_else(|| unreachable!("a report starts here"));
        let report = report.map_err(|error| {
            let line = text[..before].matches('\n').count() + error.line();
            invalid(format!("{what}, line {line}: not a JSON report of fio: {error}"))
        })?;
        reports.push(report);
        rest = &rest[start + stream.byte_offset()..];
    }
    if reports.is_empty() {
        let text = format!("{what}: no JSON; run fio with --output-format=json");
        return Err(invalid(text));
    }
    Ok(reports)
}

fn report_start(text: &str) -> Option<usize> {
    match text.starts_with('{') {
        true => Some(0),
        false => text.find("\n{").map(|at| at + 1),
    }
}

fn option<'a>(options: &'a Options, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| options.get(*name)).and_then(Value::as_str)
}

fn shape(options: &Options, access: Access) -> Result<Shape, String> {
    let rw = option(options, &["rw", "readwrite"]).unwrap_or("read");
    let order = match rw.split(':').next().unwrap_or(rw) {
        "read" | "write" | "rw" | "readwrite" => Order::Sequential,
        "randread" | "randwrite" | "randrw" => Order::Random,
        other => return Err(format!("has rw={other}, which is neither sequential nor random")),
    };
    let blocks = option(options, &["bs", "blocksize"]).unwrap_or("4k");
    let mut parts = blocks.split(',');
    let read_block = parts.next().unwrap_or(blocks);
    let block =
        if access == Access::Read { read_block } else { parts.next().unwrap_or(read_block) };
    let block_bytes = size(block).ok_or_else(|| format!("has bs={blocks}: not a size"))?;
    let is_set = |names: &[&str]| option(options, names).is_some_and(|value| value != "0");
    let is_synced = is_set(&["fsync", "fdatasync", "sync"]) && access == Access::Write;
    let through = match is_set(&["direct"]) {
        _ if is_synced => Through::Synced,
        true => Through::Direct,
        false => Through::PageCache,
    };
    Ok(Shape { access, order, block_bytes, through })
}

/// `4k`, `4KiB`, `65536`: fio counts in 1,024, whatever the unit says.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// Blocks that are on their way at once.
fn workers(options: &Options) -> Result<u16, String> {
    let number = |name: &str| match option(options, &[name]) {
        None => Ok(1),
        Some(text) => text.parse::<u16>().map_err(|_| format!("has {name}={text}: not a number")),
    };
    let engine = option(options, &["ioengine"]).unwrap_or("psync");
    let is_blocking = engine == "mmap" || engine.ends_with("sync") || engine.ends_with("sync2");
    let depth = if is_blocking { 1 } else { number("iodepth")? };
    let workers = number("numjobs")?.saturating_mul(depth);
    if workers > 0 { Ok(workers) } else { Err("has no worker".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, options: &str, read: &str, write: &str) -> String {
        format!(
            r#"{{"jobname": "{name}", "groupid": 0, "job options": {{{options}}},
            "read": {{"io_bytes": 1, {read}}}, "write": {{"io_bytes": 1, {write}}}}}"#
        )
    }

    fn report(global: &str, jobs: &[String]) -> String {
        let jobs = jobs.join(",");
        let version = "\"fio version\": \"fio-3.33\"";
        format!("{{{version}, \"global options\": {{{global}}}, \"jobs\": [{jobs}]}}\n")
    }

    /// Shapes with their points, in order.
    fn curves(text: &str) -> Vec<(String, Vec<(u16, u64)>)> {
        let profile = parse(text, "fio.json").unwrap();
        let points = |curve: &Curve| {
            curve.points().iter().map(|point| (point.workers, point.bytes_per_s)).collect()
        };
        profile.curves.iter().map(|(shape, curve)| (shape.to_string(), points(curve))).collect()
    }

    #[test]
    fn jobs_of_one_or_several_reports_make_curves() {
        let global = r#""bs": "4k", "direct": "1", "rw": "write""#;
        let none = r#""bw_bytes": 0"#;
        let write = |name: &str, workers: &str, bytes: &str| {
            job(name, workers, none, &format!("\"bw_bytes\": {bytes}"))
        };
        let first = report(
            global,
            &[
                write("one", r#""numjobs": "1""#, "100"),
                // Without group_reporting: one for each worker.
                write("two", r#""numjobs": "2""#, "90"),
                write("two", r#""numjobs": "2""#, "80"),
            ],
        );
        let second = report(
            r#""ioengine": "io_uring", "bs": "64KiB,8k""#,
            &[job(
                "mixed",
                r#""rw": "randrw", "iodepth": "8", "fsync": "1""#,
                r#""bw": 2"#,
                r#""bw_bytes": 7.9"#,
            )],
        );
        let notes = "fio: this platform does not support process shared mutexes\n";
        assert_eq!(
            curves(&format!("{notes}{first}note\n{second}")),
            [
                ("read, random, 64 KiB, page cache".to_owned(), vec![(8, 2048)]),
                ("write, sequential, 4 KiB, direct".to_owned(), vec![(1, 100), (2, 170)]),
                ("write, random, 8 KiB, synced".to_owned(), vec![(8, 7)]),
            ]
        );
    }

    #[test]
    fn what_is_not_understood_is_refused_by_line_or_job() {
        let wrote = r#""bw_bytes": 5"#;
        let one = |options: &str| report("", &[job("j", options, "\"bw\": 0", wrote)]);
        for (text, part) in [
            (String::new(), "no JSON"),
            ("nothing\nhere".to_owned(), "--output-format=json"),
            ("note\n{\"jobs\": 3}".to_owned(), "line 2"),
            ("{\"jobs\": [\n{}".to_owned(), "line 2"),
            (report("", &[]), "no job has read or written"),
            (one(r#""rw": "trim""#), "job 'j' has rw=trim"),
            (one(r#""rw": "write", "bs": "4q""#), "bs=4q"),
            (one(r#""rw": "write", "bs": "0""#), "bs=0"),
            (one(r#""rw": "write", "numjobs": "many""#), "numjobs=many"),
            (one(r#""rw": "write", "numjobs": "0""#), "no worker"),
        ] {
            let error = parse(&text, "fio.json").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let said = error.to_string();
            assert!(said.starts_with("fio.json") && said.contains(part), "{said}");
        }
    }
}
