//! A host whose process may have no more threads: its files move, only later.
//!
//! A limit of memory stands for one of threads, which root does not have: each thread wants a stack
//! larger than what is left. Limits are those of a process, so the test runs itself in one of its
//! own.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_methods, reason = "the test is the host, whose files are its own")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thermocline_device::{FileClass, HostSettings, Hosts, Origin, SystemDevices};
use thermocline_foundation::SystemClock;

const NAME: &str = "files_move_where_the_process_may_have_no_more_threads";
/// Set in the process with the limit.
const LIMITED: &str = "THERMOCLINE_TEST_FEW_THREADS";
/// Of each thread, and what is left for all else.
const STACK_BYTES: u64 = 256 << 20;
const LEFT_BYTES: u64 = 128 << 20;
const FILES: u64 = 8;

#[test]
fn files_move_where_the_process_may_have_no_more_threads() {
    if std::env::var_os(LIMITED).is_some() {
        return move_without_threads();
    }
    let mut limited = Command::new(std::env::current_exe().unwrap());
    limited.args(["--exact", NAME, "--nocapture"]).env(LIMITED, "1");
    let output = limited.env("RUST_MIN_STACK", STACK_BYTES.to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
}

fn move_without_threads() {
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().canonicalize().unwrap();
    ["db", "fast"].iter().for_each(|name| fs::create_dir(path.join(name)).unwrap());
    let fast = path.join("fast").display().to_string();
    let query = format!("tier={fast}:1GiB&tier=home:1GiB&placement=top_levels(0)&move_threads=4");
    let (devices, clock) = (SystemDevices::default(), SystemClock::new());
    let settings = HostSettings::of_query(&query).unwrap();
    let hosts = Hosts::new(Arc::new(devices), Arc::new(clock), settings).unwrap();
    let names: Vec<_> = (0..FILES).map(|n| path.join(format!("db/{n}.sst"))).collect();
    for name in &names {
        let of_name = FileClass::of_name("0.sst");
        let class = FileClass { level: Some(0), origin: Origin::Flush, ..of_name };
        let file = hosts.create(name, class).unwrap().unwrap();
        fs::write(file.place(), b"table").unwrap();
        file.synced().unwrap();
    }
    limit();
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "there are threads");
    names.iter().for_each(|name| hosts.set_level(name, 5).unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    while hosts.report()[0].counts.moved_by_level < FILES {
        assert!(Instant::now() < deadline, "tables stay on the fast tier");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(names.iter().all(|name| fs::read(name).unwrap() == b"table" && !name.is_symlink()));
}

/// The process may take no more memory than for small things.
fn limit() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let current = (kib << 10) + LEFT_BYTES;
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(current), maximum }).unwrap();
}
