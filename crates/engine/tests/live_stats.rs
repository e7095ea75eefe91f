//! Two processes: one has a store open, the other reads the figures that it writes meanwhile.
//!
//! The test starts itself again as a child (`THERMOCLINE_LIVE_HOME`), which does what its standard
//! input says.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]
#![allow(clippy::disallowed_macros, reason = "the child tells its parent on a pipe")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use thermocline::{ByteSize, Db, ErrorKind, LiveStats, Settings, Tier};
use thermocline_foundation::{Clock, SystemClock};

const HOME: &str = "THERMOCLINE_LIVE_HOME";

fn settings(home: &Path) -> Settings {
    let tier = |name: &str, mib| Tier::new(home.join(name), ByteSize::mib(mib));
    Settings {
        tiers: vec![tier("fast", 64), tier("slow", 256)],
        memory: ByteSize::mib(16),
        stats_interval: thermocline::Duration::ms(10),
        ..Settings::default()
    }
}

/// The child: opens the store, and for each line of input writes and reads a record; closes at the
/// end of the input.
fn serve(home: &Path) {
    let db = Db::open_or_create(home, &settings(home)).unwrap();
    println!("\nopen");
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        db.put(number.to_be_bytes(), line.unwrap()).unwrap();
        assert!(db.get(number.to_be_bytes()).unwrap().is_some());
    }
    db.close().unwrap();
}

struct Holder {
    child: Child,
    input: Option<ChildStdin>,
}

/// Starts `test` as the child, and waits until it has the store open.
fn start(test: &str, home: &Path) -> Holder {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "open"), "the child ended before it was open");
    let input = child.stdin.take();
    // The rest of what it prints is read, or it would wait for a reader.
    let _rest = thermocline_foundation::threads::spawn("rest", move || lines.for_each(drop));
    Holder { child, input }
}

impl Holder {
    fn ask(&mut self, operations: usize) {
        let input = self.input.as_mut().unwrap();
        input.write_all("value\n".repeat(operations).as_bytes()).unwrap();
    }

    fn close(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The figures once there are some that `are_those`; a bounded number of looks.
fn wait_for(home: &Path, what: &str, are_those: impl Fn(&LiveStats) -> bool) -> LiveStats {
    let clock = SystemClock::new();
    for _ in 0..6000 {
        if let Some(live) = LiveStats::read(home).unwrap()
            && are_those(&live)
        {
            return live;
        }
        clock.sleep(Duration::from_millis(10));
    }
    panic!("figures with {what} were not written in a minute");
}

#[test]
fn another_process_reads_the_figures_of_an_open_store() {
    if let Some(home) = std::env::var_os(HOME) {
        return serve(home.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let mut holder = start("another_process_reads_the_figures_of_an_open_store", &home);
    assert!(LiveStats::is_open(&home).unwrap());
    holder.ask(5);
    let five = wait_for(&home, "5 look-ups", |live| live.stats.operations.gets == 5);
    assert_eq!(five.live.process, holder.child.id());
    assert_eq!((five.stats.operations.writes, five.live.interval_s), (5, 0.01));
    assert!(five.stats.fast_tier.is_some() && five.live.open_s > 0.0);
    assert!(five.age(&SystemClock::new()) < Duration::from_secs(3600), "{:?}", five.live);
    holder.ask(7);
    let twelve = wait_for(&home, "12 look-ups", |live| live.stats.operations.gets == 12);
    assert!(twelve.live.open_s > five.live.open_s);
    assert_eq!(Db::open(&home).unwrap_err().kind(), ErrorKind::Locked);
    holder.close();
    assert!(LiveStats::read(&home).unwrap().is_none(), "a closing removes the figures");
    assert!(!LiveStats::is_open(&home).unwrap());
}

#[test]
fn figures_of_a_killed_process_are_gone_once_the_store_is_opened() {
    if let Some(home) = std::env::var_os(HOME) {
        return serve(home.as_ref());
    }
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let mut holder = start("figures_of_a_killed_process_are_gone_once_the_store_is_opened", &home);
    holder.ask(3);
    wait_for(&home, "3 records written", |live| live.stats.operations.writes == 3);
    holder.kill();
    assert!(LiveStats::read(&home).unwrap().is_some(), "nothing removed them");
    assert!(!LiveStats::is_open(&home).unwrap(), "but no process has the store");
    let reader = Db::open_read_only(&home).unwrap();
    assert!(!LiveStats::is_open(&home).unwrap(), "one that reads writes no figures");
    assert!(reader.get(2usize.to_be_bytes()).unwrap().is_some());
    reader.close().unwrap();
    assert!(LiveStats::read(&home).unwrap().is_some(), "nor does it remove any");
    let off = Settings { stats_interval: thermocline::Duration::ms(0), ..settings(&home) };
    let db = Db::open_with(&home, &off).unwrap();
    assert!(LiveStats::read(&home).unwrap().is_none());
    assert!(db.get(2usize.to_be_bytes()).unwrap().is_some());
    db.close().unwrap();
}

/// A directory is where the file would be written: no write of it can succeed.
#[test]
#[allow(clippy::disallowed_methods, reason = "the test is in the way of the store")]
fn a_store_whose_figures_cannot_be_written_works_and_closes_as_ever() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().join("home");
    let db = Db::create(&home, &settings(&home)).unwrap();
    for name in ["live-stats.json.new", "live-stats.json"] {
        let path = home.join(name);
        // The thread may have written the file meanwhile; where it comes in between, once more.
        for _ in 0..1000 {
            let _ = std::fs::remove_file(&path);
            if std::fs::create_dir(&path).is_ok() {
                break;
            }
        }
        assert!(path.is_dir(), "{name} was in the way 1000 times");
    }
    for number in 0..200u32 {
        db.put(number.to_be_bytes(), [1; 100]).unwrap();
        SystemClock::new().sleep(Duration::from_micros(500));
    }
    assert_eq!(db.stats().read_only, None);
    db.close().unwrap();
    assert!(home.join("live-stats.json").is_dir(), "the test was in the way all the time");
    let db = Db::open(&home).unwrap();
    assert_eq!(db.scan().into_iter().count(), 200);
    db.close().unwrap();
}
