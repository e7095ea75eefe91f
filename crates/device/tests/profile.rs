//! Profiles of devices: what measuring leaves, what it refuses, and the file beside `TIER`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops at a surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thermocline_device::drivers::{Batches, DirectDriver, MemoryDriver, PosixDriver};
use thermocline_device::profile::{
    Curve, Effort, Point, Source, Step, Subject, TierProfile, measure,
};
use thermocline_device::{Driver, ErrorKind, Result};
use thermocline_foundation::{Clock, SystemClock};

const SHORT: Effort = Effort { file_bytes: 8 << 20, point: Duration::from_micros(200) };

fn of_directory(path: &Path) -> Subject {
    let direct = DirectDriver::open(path, Batches::Threads).ok();
    let direct = direct.map(|driver| Arc::new(driver) as Arc<dyn Driver>);
    Subject { buffered: Arc::new(PosixDriver::open(path).unwrap()), direct }
}

fn run(subject: &Subject, effort: Effort) -> (Result<TierProfile>, Vec<Step>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut steps = Vec::new();
    let profile = measure(subject, effort, &clock, &mut |step| steps.push(step));
    (profile.map(|profile| profile.tier_profile()), steps)
}

#[test]
fn a_directory_is_measured_and_left_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("mine"), "stays").unwrap();
    // Of a measurement that was killed before the file had lost its name.
    fs::write(home.path().join("PROFILE.test"), "left").unwrap();
    let subject = of_directory(home.path());
    let (profile, steps) = run(&subject, SHORT);
    let profile = profile.unwrap();
    assert_eq!(profile.source, Source::Measured);
    assert!(profile.read.useful_workers().is_some() && profile.write.useful_workers().is_some());
    let names: Vec<_> =
        fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["mine"]);
    let last = steps.last().unwrap();
    assert!(steps.iter().all(|step| step.done < last.total) && steps.len() <= last.total);
    assert_eq!((steps[0].workers, steps[0].done, last.total), (1, 0, 84));
    let syncs = steps.iter().filter(|step| step.shape.to_string().ends_with("synced")).count();
    assert!(syncs >= 8, "{syncs}");
}

#[test]
fn what_would_fill_the_device_or_say_nothing_is_refused_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let subject = of_directory(home.path());
    let (refused, _) = run(&subject, Effort { file_bytes: 1 << 60, ..SHORT });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::OutOfSpace);
    let (refused, _) = run(&subject, Effort { file_bytes: 4096, ..SHORT });
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("8 MiB at least"), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

fn golden_profile() -> TierProfile {
    let curve = |points: &[(u16, u64)]| {
        let point = |(workers, bytes_per_s): &(u16, u64)| Point {
            workers: *workers,
            bytes_per_s: *bytes_per_s,
        };
        Curve::new(points.iter().map(point).collect())
    };
    TierProfile {
        source: Source::Measured,
        sync_ns: 120_000,
        read: curve(&[(1, 40_000_000), (2, 79_000_000), (4, 150_000_000)]),
        write: curve(&[(1, 300_000_000), (2, 250_000_000)]),
    }
}

/// `THERMOCLINE_BLESS=1` writes the file anew; a difference is a new version.
#[test]
fn the_file_is_as_documented() {
    let golden =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tier-profile-v1.toml");
    let profile = golden_profile();
    if std::env::var_os("THERMOCLINE_BLESS").is_some() {
        fs::write(&golden, profile.text().unwrap()).unwrap();
    }
    let text = fs::read_to_string(&golden).unwrap();
    assert!(text == profile.text().unwrap(), "it is not written as it was");
    assert_eq!(TierProfile::parse(&text, "PROFILE").unwrap(), profile);
    let newer = text.replace("format = 1", "format = 2");
    assert_eq!(TierProfile::parse(&newer, "PROFILE").unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_missing_or_damaged_file_says_nothing_and_stops_nothing() {
    let driver = MemoryDriver::new();
    assert_eq!(TierProfile::of(&driver), TierProfile::default());
    assert_eq!(TierProfile::read(&driver).unwrap_err().kind(), ErrorKind::NotFound);
    golden_profile().write(&driver).unwrap();
    assert_eq!(TierProfile::of(&driver), golden_profile());
    driver.open("PROFILE").unwrap().truncate(100).unwrap();
    let error = TierProfile::read(&driver).unwrap_err();
    assert!(error.to_string().contains("delete it"), "{error}");
    assert_eq!(TierProfile::of(&driver), TierProfile::default());
}
