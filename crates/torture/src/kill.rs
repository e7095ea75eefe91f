//! Kills: the store in a child process that is killed with signal 9 at a random moment, most often
//! in the middle of a flush or compaction, then opened here and compared with what the child said.
//!
//! ```text
//!   round   child: open, life, its notes on a pipe -> kill -> read the pipe to its end
//!           -> open, check, close
//! ```
//! A killed process loses no page cache: every acknowledged batch must be there, however durable it
//! was to be.

use crate::block_device::Setup;
use crate::history::Model;
use crate::ledger::{Bounds, Ledger, Phase};
use crate::life::{self, Epoch};
use crate::oracle;
use crate::report::{Failure, Report, Run};
use parking_lot::{Condvar, Mutex};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use thermocline::Db;
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::{Clock, SystemClock, threads};

/// Rounds of an epoch.
pub const EPOCH_ROUNDS: u64 = 20;
/// How long a child may say nothing at all.
const SILENCE: Duration = Duration::from_secs(20);
/// How long a child may take to come to the phase that is waited for, whatever else it says
/// meanwhile: writers that go on must not hide that flushes or compactions do not.
const PHASE_WAIT: Duration = Duration::from_secs(120);

/// So often a phase may be over before the parent has looked; then it kills anyway.
const MISSED_MAX: u64 = 5;

/// What the parent knows of the child.
#[derive(Clone, Debug)]
pub struct Heard {
    /// From what was acknowledged to what was submitted.
    pub bounds: Vec<Bounds>,
    /// What was promised to survive a power cut.
    pub promised: Vec<u64>,
    opened: bool,
    phase: Phase,
    /// How often each phase was begun. On a busy machine a phase can be over before a thread that
    /// waits for it has looked.
    begun: [u64; 3],
    ended: bool,
    failure: Option<String>,
}

impl Heard {
    /// Nothing yet.
    fn new(bounds: Vec<Bounds>, promised: Vec<u64>) -> Self {
        let (phase, begun) = (Phase::Other, [0; 3]);
        Self { bounds, promised, opened: false, phase, begun, ended: false, failure: None }
    }

    fn take(&mut self, line: &str) {
        let (tag, rest) = line.split_once(' ').unwrap_or((line, ""));
        let stamp = || {
            let (writer, stamp) = rest.split_once(' ')?;
            Some((writer.parse::<usize>().ok()?, stamp.parse::<u64>().ok()?))
        };
        match (tag, stamp()) {
            ("o", _) => self.opened = true,
            ("p", _) => {
                self.phase = Phase::parse(rest);
                self.begun[self.phase as usize] += 1;
            }
            ("d", _) => {
                let stamps = rest.split(' ').filter_map(|stamp| stamp.parse::<u64>().ok());
                for (promised, stamp) in self.promised.iter_mut().zip(stamps) {
                    *promised = stamp.max(*promised);
                }
            }
            ("e", _) => self.failure = Some(rest.to_owned()),
            ("b", Some((writer, stamp))) => self.bounds[writer].at_most = stamp,
            ("a", Some((writer, stamp))) => self.bounds[writer].at_least = stamp,
            _ => self.failure = Some(format!("the child said {line:?}")),
        }
    }
}

#[derive(Debug)]
struct Ear {
    heard: Mutex<Heard>,
    changed: Condvar,
}

impl Ear {
    /// Hears the child to its end. A line that the kill cut off was not said.
    fn listen(&self, stdout: ChildStdout) {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
            self.heard.lock().take(line.trim_end());
            line.clear();
            self.changed.notify_all();
        }
        self.heard.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until `is_there` or the child's end; false after too long. Each line of the child
    /// wakes the waiter, so that the longest wait is measured by the clock.
    fn wait(&self, is_there: impl Fn(&Heard) -> bool) -> bool {
        let clock = SystemClock::new();
        let mut heard = self.heard.lock();
        while !is_there(&heard) && !heard.ended {
            let silent = self.changed.wait_for(&mut heard, SILENCE).timed_out();
            if silent || clock.now_ns() > PHASE_WAIT.as_nanos() as u64 {
                return is_there(&heard);
            }
        }
        true
    }
}

/// When to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    In(Phase),
    Opening,
    AnyTime,
}

impl Aim {
    pub fn draw(random: &mut Random) -> Self {
        match random.below(10) {
            0..=3 => Self::In(Phase::Flush),
            4..=6 => Self::In(Phase::Compaction),
            7 => Self::Opening,
            _ => Self::AnyTime,
        }
    }
}

/// A store and what is known of it.
struct Bench {
    epoch: Epoch,
    models: Vec<Model>,
}

impl Bench {
    fn new(seed: u64, run: &Run) -> Self {
        let epoch = Epoch::new(seed).asynchronous(run.asynchronous);
        let epoch = epoch.with_region(run.region.as_deref());
        let models = (0..epoch.writers).map(|it| Model::new(epoch.history, it)).collect();
        Self { epoch, models }
    }

    fn round(&mut self, directory: &Path, seed: u64, report: &mut Report) -> Result<(), String> {
        let mut random = Random::new(seed);
        let aim = Aim::draw(&mut random);
        let stamps: Vec<_> = self.models.iter().map(|model| model.stamp).collect();
        let heard = run_child(directory, &self.epoch, &stamps, aim, &mut random)?;
        let before: u64 = self.models.iter().map(|model| model.stamp).sum();
        let now = heard.bounds.iter().map(|bounds| bounds.at_least).sum::<u64>();
        report.acknowledged += now - before;
        report.note(heard.phase, !heard.opened);
        let (fast, slow) = (directory.join("fast"), directory.join("slow"));
        if !Db::exists(fast.join("home")).map_err(|error| error.to_string())? {
            if now > 0 {
                return Err("the database is gone".to_owned());
            }
            // Killed while it was being made: what is there must not be in the way. A region names
            // the database that it is of, and this will be another.
            let region = fast.join(life::REGION_NAME);
            let is_there = region.exists();
            let removed = if is_there { std::fs::remove_file(region) } else { Ok(()) };
            return removed.map_err(|error| error.to_string());
        }
        for again in [false, true] {
            let opened = life::open(&self.epoch, &fast, &slow, random.next_u64());
            let db = opened.map_err(|error| format!("opening: {error}"))?;
            oracle::check(&db, &mut self.models, &heard.bounds, &mut random)?;
            oracle::check_tidy(&db, &fast, &slow)?;
            report.migrated += life::moved(&db);
            db.close().map_err(|error| format!("closing: {error}"))?;
            if again || random.below(4) > 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Starts a child on the store in `directory`, whose writers have come as far as `stamps`, kills it
/// where `aim` says, and returns what it said. A child that failed before is an error.
pub fn run_child(
    directory: &Path,
    epoch: &Epoch,
    stamps: &[u64],
    aim: Aim,
    random: &mut Random,
) -> Result<Heard, String> {
    let life = random.next_u64();
    let mut child = start(directory, epoch, life).map_err(|e| e.to_string())?;
    let at = |stamp: &u64| Bounds { at_least: *stamp, at_most: *stamp };
    let bounds = stamps.iter().map(at).collect();
    let heard = Mutex::new(Heard::new(bounds, stamps.to_vec()));
    let ear = Arc::new(Ear { heard, changed: Condvar::new() });
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let listener = Arc::clone(&ear);
    let listening = threads::spawn("ear", move || listener.listen(stdout));
    let listening = listening.map_err(|error| error.to_string())?;
    let clock = SystemClock::new();
    let log_uniform = |random: &mut Random, bits| {
        let bits = random.below(bits);
        random.below(1 << bits)
    };
    let in_time = match aim {
        Aim::In(phase) => {
            // Not always the first of its kind.
            let opened = ear.wait(|heard| heard.opened);
            clock.sleep(Duration::from_millis(log_uniform(random, 8)));
            let begun = |heard: &Heard| heard.begun[phase as usize];
            let missed = begun(&ear.heard.lock()) + MISSED_MAX;
            let came = opened && ear.wait(|heard| heard.phase == phase || begun(heard) > missed);
            clock.sleep(Duration::from_micros(log_uniform(random, 14)));
            came
        }
        Aim::Opening => {
            clock.sleep(Duration::from_micros(log_uniform(random, 17)));
            true
        }
        Aim::AnyTime => {
            let opened = ear.wait(|heard| heard.opened);
            clock.sleep(Duration::from_millis(log_uniform(random, 10)));
            opened
        }
    };
    child.kill().map_err(|error| error.to_string())?;
    let status = child.wait().map_err(|error| error.to_string())?;
    listening.join().map_err(|_| "the thread that listens panicked")?;
    let mut output = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What is no text is of no use to a reader.
        let _ = stderr.read_to_string(&mut output);
    }
    let heard = ear.heard.lock().clone();
    match &heard.failure {
        Some(text) => Err(format!("{text} {output}").trim().to_owned()),
        None if status.code().is_some() => {
            Err(format!("the child ended by itself, {status}: {output}"))
        }
        None if !in_time => {
            let (silence, wait) = (SILENCE.as_secs(), PHASE_WAIT.as_secs());
            Err(format!("nothing heard for {silence} s, or no {aim:?} for {wait} s: a hang"))
        }
        None => Ok(heard),
    }
}

fn start(directory: &Path, epoch: &Epoch, life: u64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    #[cfg(feature = "planted-bugs")]
    if let Some(bug) = thermocline_foundation::planted::planted_everywhere() {
        command.args(["--plant", bug.name()]);
    }
    command
        .arg("child")
        .arg("--dir")
        .arg(directory)
        .args(["--epoch", &epoch.seed.to_string(), "--life", &life.to_string()])
        .args(epoch.asynchronous.then_some("--asynchronous"))
        .args(epoch.region.iter().flat_map(|driver| ["--region", driver]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// The child's part: lives until it is killed. Returns only when the store fails.
pub fn child(directory: &Path, epoch: &Epoch, life: u64) -> String {
    let (fast, slow) = (directory.join("fast"), directory.join("slow"));
    let lived = life::open(epoch, &fast, &slow, life)
        .map_err(|error| format!("opening: {error}"))
        .and_then(|db| {
            let ledger = Ledger::new(&life::stamps(&db, epoch.writers)?, true);
            ledger.say("o");
            let failed = life::live(&db, epoch, &ledger, life);
            Err(failed.unwrap_or_else(|| "the store stopped".to_owned()))
        });
    let failure: String = match lived {
        Ok(()) => "the child has nothing to do".to_owned(),
        Err(text) => text,
    };
    Ledger::new(&[], true).say(&format!("e {failure}"));
    failure
}

/// Makes the two sides of a new store.
fn empty(directory: &Path) -> Result<(), String> {
    for side in ["fast", "slow"] {
        let path = directory.join(side);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(|error| error.to_string())?;
        }
        std::fs::create_dir_all(&path).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Runs the rounds; stops at the first failure.
pub fn run(run: &Run) -> Result<Report, Setup> {
    let mut report = run.report("kill");
    let mut bench = Bench::new(0, run);
    for round in run.first..run.first + run.rounds {
        let epoch = round / EPOCH_ROUNDS;
        if round == run.first || round.is_multiple_of(EPOCH_ROUNDS) {
            bench = Bench::new(Epoch::seed_of(run.seed, epoch), run);
            empty(&run.directory).map_err(Setup)?;
        }
        match bench.round(&run.directory, mix(run.seed) ^ mix(round), &mut report) {
            Ok(()) => run.advance(&mut report),
            Err(text) => {
                report.failure = Some(Failure::new(run, round, epoch * EPOCH_ROUNDS, text));
                break;
            }
        }
    }
    Ok(report)
}
