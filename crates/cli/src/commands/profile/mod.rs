//! `profile PATH`: what a device can do and with how many threads, measured or taken from fio, kept
//! beside the tier, shown and drawn.

mod plot;

use crate::arguments::Profile;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::table::Table;
use crate::text;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::drivers::host_files;
use thermocline_device::profile::{Effort, Point, Shape, Source, Subject, measure, parse_fio};
use thermocline_device::{Curve, DeviceProfile, Driver, DriverSpec, ErrorKind};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// Longest report of fio that is read, in bytes.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// Measures the device under a directory, or takes what fio measured, and keeps it there.
pub fn run(arguments: &Profile, json: bool) -> Result<()> {
    let buffered = DriverSpec::Posix.open(&arguments.path, clock())?;
    let profile = match &arguments.import {
        Some(report) => imported(report)?,
        None => measured(arguments, &buffered)?,
    };
    if let Some(file) = &arguments.plot {
        host_files::write_text(file, &plot::svg(&arguments.path, &profile))?;
    }
    profile.tier_profile().write(&*buffered)?;
    let mut output = Output::new();
    match json {
        true => output.json(&Shown::of(&arguments.path, &profile))?,
        false => print(&arguments.path, &profile, &mut output)?,
    }
    output.finish()
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::new())
}

fn imported(report: &Path) -> Result<DeviceProfile> {
    let what = report.display().to_string();
    let bytes = host_files::read(report, REPORT_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{what}: not UTF-8 at byte {at}; is it a JSON report of fio?"))
    })?;
    Ok(parse_fio(&text, &what)?)
}

fn measured(arguments: &Profile, buffered: &Arc<dyn Driver>) -> Result<DeviceProfile> {
    let direct = match DriverSpec::DIRECT.open(&arguments.path, clock()) {
        Ok(driver) => Some(driver),
        Err(error) if error.kind() == ErrorKind::Invalid => None,
        Err(error) => return Err(error.into()),
    };
    let subject = Subject { buffered: Arc::clone(buffered), direct };
    let point = Duration::from_secs_f64(arguments.seconds);
    let effort = Effort { file_bytes: arguments.bytes.0, point };
    let mut bar = None;
    let profile = measure(&subject, effort, &clock(), &mut |step| {
        let span = |points: usize| point * points as u32;
        let bar = bar.get_or_insert_with(|| Bar::seconds("measuring", span(step.total)));
        bar.elapsed(span(step.done));
    });
    Ok(profile?)
}

/// As JSON.
#[derive(Serialize)]
struct Shown<'a> {
    path: String,
    source: Source,
    sync_ns: u64,
    curves: Vec<ShownCurve<'a>>,
    /// What placement goes by.
    tier: ShownTier,
}

#[derive(Serialize)]
struct ShownCurve<'a> {
    #[serde(flatten)]
    shape: Shape,
    useful_workers: Option<u16>,
    bytes_per_s_max: Option<u64>,
    points: &'a [Point],
}

#[derive(Serialize)]
struct ShownTier {
    useful_readers: Option<u16>,
    useful_writers: Option<u16>,
    read_bytes_per_s_max: Option<u64>,
    write_bytes_per_s_max: Option<u64>,
}

impl<'a> Shown<'a> {
    fn of(path: &Path, profile: &'a DeviceProfile) -> Self {
        let tier = profile.tier_profile();
        let curve = |(shape, curve): &'a (Shape, Curve)| ShownCurve {
            shape: *shape,
            useful_workers: curve.useful_workers(),
            bytes_per_s_max: curve.bytes_per_s_max(),
            points: curve.points(),
        };
        Self {
            path: path.display().to_string(),
            source: profile.source,
            sync_ns: profile.sync_ns,
            curves: profile.curves.iter().map(curve).collect(),
            tier: ShownTier {
                useful_readers: tier.read.useful_workers(),
                useful_writers: tier.write.useful_workers(),
                read_bytes_per_s_max: tier.read.bytes_per_s_max(),
                write_bytes_per_s_max: tier.write.bytes_per_s_max(),
            },
        }
    }
}

fn print(path: &Path, profile: &DeviceProfile, output: &mut Output) -> Result<()> {
    let mut table = Table::new(&["workers that", ">1", ">best", ">useful", ">tried"]);
    for (shape, curve) in &profile.curves {
        let rate = |bytes: Option<u64>| bytes.map_or_else(dash, |b| format!("{}/s", ByteSize(b)));
        let first = curve.points().iter().find(|point| point.workers == 1);
        table.row([
            shape.to_string(),
            rate(first.map(|point| point.bytes_per_s)),
            rate(curve.bytes_per_s_max()),
            number(curve.useful_workers()),
            number(curve.points().last().map(|point| point.workers)),
        ]);
    }
    table.print(
        "Bytes a second of one worker, of the best number of them, and the fewest within 5 % \
                 of it",
        output,
    )?;
    if profile.sync_ns > 0 {
        let span = text::span(Duration::from_nanos(profile.sync_ns));
        output.line(format!("a sync takes {span}"))?;
    }
    let tier = profile.tier_profile();
    let (writers, readers) = (tier.write.useful_workers(), tier.read.useful_workers());
    output.line(format!(
        "kept in {}: {} writers and {} readers are useful",
        path.join("PROFILE").display(),
        number(writers),
        number(readers)
    ))
}

fn number(number: Option<u16>) -> String {
    number.map_or_else(dash, |number| number.to_string())
}

fn dash() -> String {
    "-".to_owned()
}
