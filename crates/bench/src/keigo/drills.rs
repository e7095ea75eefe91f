//! Rows that no cell measures: a device's curve, a kill, a device that others fill, an export.
//!
//! They run in directories of their own beside those of cells, with the launcher of cells around
//! their processes.

use super::Sizes;
use super::rows::{Group, HITS, Labels, Row};
use crate::cell::Cell;
use crate::results::Measured;
use crate::rows::{Drilled, Stand};
use crate::store::TierSpace;
use crate::{Failure, Outcome, files};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::drivers::{DriverSpec, Profile, Waiting};
use thermocline_device::profile::{Effort, Subject, measure as measured};
use thermocline_device::{FillFirst, Names, SystemDevices, TierProfile};
use thermocline_foundation::{ByteSize, Clock, SystemClock, threads};

/// The directory of a drill below that of its tier.
const DIRECTORY: &str = "thermocline-bench-drill";
const SLOW_CAPACITY: ByteSize = ByteSize(1 << 40);
/// Of the curve: a small file, and as little time as shows its shape.
const EFFORT: Effort = Effort { file_bytes: 8 << 20, point: Duration::from_millis(300) };
/// How long a cache is filled before it is asked, how long it is asked, and when a process is
/// killed.
const WARM_UP_S: f64 = 20.0;
const ASKED_S: f64 = 10.0;
const KILLED_AFTER: Duration = Duration::from_secs(15);
/// When a program begins to fill the device, and what it writes at once.
const FILLED_AFTER: Duration = Duration::from_secs(4);
const PIECE_BYTES: usize = 1 << 20;

/// Measures a row.
pub fn measure(row: &Row, stand: &Stand<'_>, sizes: &Sizes) -> Outcome<Drilled> {
    let drill = Drill::new(stand, sizes)?;
    let value = match row.name.as_str() {
        "1/writers" => {
            let profile = drill.curve();
            profile.map(|it| it.write.useful_workers().map_or(0.0, f64::from).into())
        }
        "1/best-to-8" => drill.curve().and_then(|it| best_to(8, &it)).map(Drilled::from),
        "restart/hits" => drill.restart().map(Drilled::from),
        "full/ycsb-a" => drill.full(),
        "adopt/export" => drill.adopt().map(Drilled::from),
        other => Err(format!("nothing measures {other}").into()),
    };
    drill.end()?;
    value
}

/// The best throughput of writers over that of so many.
fn best_to(workers: u16, profile: &TierProfile) -> Outcome<f64> {
    let point = profile.write.points().iter().find(|point| point.workers == workers);
    let (best, point) =
        profile.write.bytes_per_s_max().zip(point).ok_or("the curve ends before")?;
    Ok(best as f64 / point.bytes_per_s.max(1) as f64)
}

struct Drill<'a> {
    stand: &'a Stand<'a>,
    sizes: &'a Sizes,
    fast: PathBuf,
    slow: PathBuf,
    clock: Arc<dyn Clock>,
}

impl<'a> Drill<'a> {
    fn new(stand: &'a Stand<'a>, sizes: &'a Sizes) -> Outcome<Self> {
        let [fast, slow] = [stand.fast, stand.slow].map(|place| place.join(DIRECTORY));
        for place in [&fast, &slow] {
            files::remove(place)?;
            files::make(place)?;
        }
        Ok(Self { stand, sizes, fast, slow, clock: Arc::new(SystemClock::new()) })
    }

    fn end(&self) -> Outcome<()> {
        [&self.fast, &self.slow].into_iter().try_for_each(|place| files::remove(place))
    }

    /// What emulated persistent memory does with writers, on this machine.
    fn curve(&self) -> Outcome<TierProfile> {
        let emulated = DriverSpec::Emulated(Profile::DcpmmTenth, Waiting::Interrupt);
        let driver = emulated.open(&self.fast, Arc::clone(&self.clock))?;
        let subject = Subject { buffered: Arc::clone(&driver), direct: Some(driver) };
        Ok(measured(&subject, EFFORT, &self.clock, &mut |_| {})?.tier_profile())
    }

    fn cell(&self, label: &str, workload: &str) -> Cell {
        let tier = |name: &str, path: &Path, capacity| TierSpace {
            name: name.to_owned(),
            path: path.to_owned(),
            capacity,
        };
        let capacity = ByteSize::mib(self.sizes.mib(self.sizes.fast_percent));
        Cell {
            engine: label.to_owned(),
            workload: workload.to_owned(),
            tiers: vec![
                tier("fast", &self.fast, capacity),
                tier("slow", &self.slow, SLOW_CAPACITY),
            ],
            ..self.sizes.cell(Group::Work, 1)
        }
    }

    fn keigo(&self) -> String {
        Labels::new(self.sizes).keigo()
    }

    /// Share of reads from the fast tier in the first seconds after a kill, over that before it.
    fn restart(&self) -> Outcome<f64> {
        let cell = Cell { seconds: Some(ASKED_S), ..self.cell(&self.keigo(), "ycsb-c") };
        self.stand.load(&cell)?;
        let warm = Cell { warm_up_seconds: Some(WARM_UP_S), ..cell.clone() };
        let before = hits(&self.stand.run(&warm)?)?;
        let lasting = Cell { seconds: Some(600.0), ..cell.clone() };
        let mut killed = self.stand.start(&lasting)?;
        self.clock.sleep(KILLED_AFTER);
        killed.kill()?;
        killed.wait()?;
        self.stand.launcher.ended(&lasting)?;
        let after = hits(&self.stand.run(&Cell { warm_up_seconds: None, ..cell })?)?;
        Ok(after / before)
    }

    /// 1 where writers hear nothing of a fast device that another program fills, else 0.
    fn full(&self) -> Outcome<Drilled> {
        let cell = Cell { seconds: Some(ASKED_S), ..self.cell(&self.keigo(), "ycsb-a") };
        self.stand.load(&cell)?;
        let child = self.stand.start(&cell)?;
        let (clock, path) = (Arc::clone(&self.clock), self.fast.join("of-another-program"));
        let filler = threads::spawn("bench-filler", move || {
            clock.sleep(FILLED_AFTER);
            fill(&path)
        })?;
        let ran = self.stand.finish(child, &cell);
        filler.join().map_err(|_| "the filling broke off")??;
        Ok(unheard(ran))
    }

    /// Bytes a second of an export over those of a copy that is synced.
    fn adopt(&self) -> Outcome<f64> {
        let all = self.sizes.mib(400);
        let more = format!("+placement=fill_first+fast-size={all}MiB");
        self.stand.load(&self.cell(&Labels::new(self.sizes).tiered(&more), "ycsb-c"))?;
        let since = |begin: u64| (self.clock.now_ns() - begin) as f64;
        let begin = self.clock.now_ns();
        let copied = files::copy(&self.fast.join("app"), &self.slow.join("copy"))?;
        let of_copy = since(begin);
        let devices = Arc::new(SystemDevices::default());
        let db = self.slow.join("db");
        let names = Names::load(devices, &db, None, Arc::new(FillFirst))?;
        let begin = self.clock.now_ns();
        let moved = names.export()?;
        let of_export = since(begin);
        if moved == 0 || copied == 0 {
            return Err("nothing lay on the fast tier".into());
        }
        Ok(of_copy / of_export)
    }
}

fn hits(measured: &Measured) -> Outcome<f64> {
    (HITS.of)(measured).ok_or_else(|| "the engine told of no reads".into())
}

/// Whether a run beside a device that fills up heard nothing of that. One that did is a row that is
/// missed, with its value, and not one that was not measured.
fn unheard(ran: Outcome<Measured>) -> Drilled {
    let heard = |failure| format!("the host heard of the full device: {failure}");
    let remark = ran.err().map(heard);
    Drilled { value: if remark.is_none() { 1.0 } else { 0.0 }, remark }
}

/// Writes until the device is full.
fn fill(path: &Path) -> Outcome<()> {
    let failed = |errno: Errno| -> Failure { format!("{}: {errno}", path.display()).into() };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_bits_retain(0o600)).map_err(failed)?;
    let piece = vec![1; PIECE_BYTES];
    loop {
        match rustix::io::write(&file, &piece) {
            Ok(_) => {}
            Err(Errno::NOSPC) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_device::Curve;
    use thermocline_device::profile::Point;

    #[test]
    fn a_host_that_hears_of_a_full_device_has_the_value_0_and_the_reason() {
        assert_eq!(unheard(Ok(Measured::default())), Drilled::from(1.0));
        let heard = unheard(Err("no space left on device".into()));
        assert_eq!(heard.value, 0.0);
        assert!(heard.remark.unwrap().ends_with("full device: no space left on device"));
    }

    #[test]
    fn the_best_of_a_curve_is_held_against_more_writers() {
        let point = |(workers, bytes_per_s)| Point { workers, bytes_per_s };
        let write = Curve::new([(1, 10), (4, 50), (8, 25)].map(point).to_vec());
        let profile = TierProfile { write, ..TierProfile::default() };
        assert_eq!(best_to(8, &profile).unwrap(), 2.0);
        assert!(best_to(64, &profile).is_err());
    }
}
