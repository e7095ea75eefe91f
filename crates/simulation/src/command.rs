//! The command line: what to run, progress while it runs, and a report.

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use thermocline_device::drivers::{create_directory, host_files};
use thermocline_foundation::{Clock, SystemClock, threads};
use thermocline_simulation::calls::{self, AllCalls};
use thermocline_simulation::campaign::{Failure, SUITES, Suite, Tally, Task, plan};
use thermocline_simulation::recorder::Recording;

/// Runs the whole engine on simulated machines: crashes, failing and lying devices, wrong tiers and
/// rot, all of it from seeds, each answer held against a model.
#[derive(Debug, Parser)]
#[command(
    name = "simulate",
    after_help = "Examples:\n  \
        cargo xtask simulate                              the quick form, as in CI\n  \
        cargo xtask simulate --seeds 2000                 the long form\n  \
        cargo xtask simulate --hours 8 --first 1000000    until morning, on other seeds\n  \
        cargo xtask simulate --suite crash --seed 7       one seed of one suite\n  \
        cargo xtask simulate --suite errors --seed 3 --item 412\n  \
        cargo xtask simulate --suite crash --seed 7 --one-in 2 --item 90\n  \
        cargo xtask simulate --calls --expect HEX         the device calls are still the same\n  \
        cargo xtask simulate --calls --seed 7             every device call of a seed, for diff\n  \
        cargo xtask simulate --without-sync list          places that make something durable\n  \
        cargo xtask simulate --without-sync all           what objects where one is missing\n  \
        cargo xtask simulate --without-sync kept          something still objects to each"
)]
struct Arguments {
    /// Seeds to run, each through the suites that fall on it.
    #[arg(long, default_value_t = 40, value_name = "N")]
    seeds: u64,
    /// Go on with further seeds for so long.
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "S")]
    first: u64,
    /// Only this seed, with everything that a suite can try on it.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only these suites: crash, errors, lies, drills, rot, repair, steady, transactions, names.
    #[arg(long, value_delimiter = ',', value_parser = parse_suite, value_name = "NAMES")]
    suite: Vec<Suite>,
    /// Only the crash point, fault, lie, drill or damage of this number; needs --seed and one
    /// suite.
    #[arg(long, requires = "seed", requires = "suite", value_name = "N")]
    item: Option<u64>,
    /// Of a seed's faults, lies and damages one in N; all crash points, with fewer images (2, 3).
    #[arg(long, requires = "seed", default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..))]
    one_in: u64,
    /// Threads; default: one for each processor.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Where the traces of failures are written.
    #[arg(long, default_value = "target/simulation-failures", value_name = "DIR")]
    traces: PathBuf,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Print one hash of every device call of 64 fixed seeds; with --seed the calls themselves.
    #[arg(
        long,
        conflicts_with_all = ["seeds", "hours", "first", "suite", "threads", "traces", "json"]
    )]
    calls: bool,
    /// Fail unless the device calls have this hash.
    #[arg(long, requires = "calls", value_parser = parse_hash, value_name = "HEX")]
    expect: Option<u64>,
    /// Print the hash of each seed too.
    #[arg(long, requires = "calls", conflicts_with = "seed")]
    verbose: bool,
    /// Look for a task that finds each planted bug (all, or those named), and print the list.
    #[cfg(feature = "planted-bugs")]
    #[arg(long, num_args = 0..=1, default_missing_value = "all", value_name = "BUGS")]
    find_planted: Option<String>,
    /// Leave out the syncs of one place, or exchange those of two (A,B), and say what objects;
    /// `list` prints the places, `kept` tries again what the list says, `open` and `all` search
    /// anew, `pairs` exchanges each two that follow each other.
    #[cfg(feature = "planted-bugs")]
    #[arg(long, value_name = "SITE")]
    without_sync: Option<String>,
}

/// Prints a task that finds each planted bug.
#[cfg(feature = "planted-bugs")]
fn find_planted(name: &str, suites: &[Suite]) -> ExitCode {
    use thermocline_foundation::Planted;
    use thermocline_simulation::planted::{find, line};
    let mut all_found = true;
    let is_wanted = |bug: &Planted| name == "all" || name.split(',').any(|n| n == bug.name());
    for bug in Planted::ALL.iter().filter(|bug| is_wanted(bug)) {
        match find(*bug, suites) {
            Some(found) => {
                println!("{}", line(*bug, found.task));
                eprintln!("  {}", found.text.lines().collect::<Vec<_>>().join("\n  "));
            }
            None => {
                all_found = false;
                eprintln!("{} is not found", bug.name());
            }
        }
    }
    if all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse_suite(name: &str) -> Result<Suite, String> {
    let found = SUITES.into_iter().find(|suite| suite.name() == name);
    let names = SUITES.map(Suite::name).join(", ");
    found.ok_or_else(|| format!("there is no suite '{name}'; there are {names}"))
}

fn parse_hash(text: &str) -> Result<u64, String> {
    let hash = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
    hash.ok_or_else(|| "a hash has 16 hexadecimal digits".to_owned())
}

/// Prints the hash of the device calls, or those of one seed in text.
fn print_calls(arguments: &Arguments) -> Result<(), String> {
    let said = |seed| move |why| format!("seed {seed}: {why}");
    let hash = if let Some(seed) = arguments.seed {
        let of = calls::of_seed(seed, true).map_err(said(seed))?;
        let Recording { calls, hash, text } = of.recording;
        let text = format!("{text}calls: seed {seed}, {calls} calls, hash {hash:016x}\n");
        let written = std::io::stdout().lock().write_all(text.as_bytes());
        written.map_err(|error| format!("the calls are not printed: {error}"))?;
        hash
    } else {
        let mut all = AllCalls::default();
        for seed in calls::SEEDS {
            let of = calls::of_seed(seed, false).map_err(said(seed))?;
            all.add(&of);
            if arguments.verbose {
                let Recording { calls, hash, .. } = of.recording;
                println!("calls: seed {seed}, {calls} calls, hash {hash:016x}; {}", of.passed);
            }
        }
        if arguments.verbose {
            println!("calls: in all lives {}", all.passed);
        }
        println!("calls: {} seeds, {} calls, hash {:016x}", all.seeds, all.calls, all.hash());
        all.hash()
    };
    arguments.expect.map_or(Ok(()), |expected| calls::compare(expected, hash))
}

/// What a run came to.
#[derive(Debug, Serialize)]
struct Report {
    first_seed: u64,
    seeds: u64,
    tasks: usize,
    threads: usize,
    seconds: f64,
    /// The sums of all threads.
    seconds_of_suites: SuiteSeconds,
    tally: Tally,
    failures: Vec<Failure>,
}

/// Seconds that tasks of each suite took.
type SuiteSeconds = BTreeMap<&'static str, f64>;

/// What the threads of a run share.
struct Run {
    tasks: Vec<Task>,
    next: AtomicUsize,
    stop: AtomicBool,
    tally: Mutex<Tally>,
    seconds: Mutex<SuiteSeconds>,
    failures: Mutex<Vec<Failure>>,
    bar: ProgressBar,
}

/// After so many failures a run ends: they are likely to be one.
const FAILURES_MAX: usize = 5;

impl Run {
    fn new(tasks: Vec<Task>, silent: bool) -> Self {
        let bar = if silent { ProgressBar::hidden() } else { ProgressBar::new(tasks.len() as u64) };
        let template = "{elapsed_precise} [{wide_bar}] {pos}/{len} tasks, {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
        Self {
            tasks,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            tally: Mutex::default(),
            seconds: Mutex::default(),
            failures: Mutex::default(),
            bar,
        }
    }

    fn work(&self) {
        let clock = SystemClock::new();
        while !self.stop.load(Relaxed) {
            let Some(task) = self.tasks.get(self.next.fetch_add(1, Relaxed)) else { return };
            let began_ns = clock.now_ns();
            let done = task.run();
            let seconds = (clock.now_ns() - began_ns) as f64 / 1e9;
            *self.seconds.lock().entry(task.suite.name()).or_default() += seconds;
            match done {
                Ok(done) => {
                    let mut tally = self.tally.lock();
                    tally.add(&done);
                    let (images, faults) = (tally.all_images(), tally.all_faults());
                    self.bar.set_message(format!("{images} images, {faults} faults"));
                }
                Err(failure) => {
                    let mut failures = self.failures.lock();
                    self.bar.println(format!("seed {}: {}", failure.seed, failure.text));
                    failures.push(*failure);
                    self.stop.fetch_or(failures.len() >= FAILURES_MAX, Relaxed);
                }
            }
            self.bar.inc(1);
        }
    }
}

fn run_tasks(tasks: Vec<Task>, count: usize, report: &mut Report, silent: bool) {
    let run = Arc::new(Run::new(tasks, silent));
    let workers: Vec<_> = (0..count)
        .map(|index| {
            let run = Arc::clone(&run);
            threads::spawn(&format!("simulate-{index}"), move || run.work())
                .expect("the system has threads to give")
        })
        .collect();
    for worker in workers {
        worker.join().expect("tasks catch their panics");
    }
    run.bar.finish_and_clear();
    report.tally.add(&run.tally.lock());
    report.failures.append(&mut run.failures.lock());
    for (suite, seconds) in &*run.seconds.lock() {
        *report.seconds_of_suites.entry(suite).or_default() += seconds;
    }
}

impl Arguments {
    fn tasks(&self, first: u64) -> Vec<Task> {
        let wanted = |suite| self.suite.is_empty() || self.suite.contains(&suite);
        let mut tasks = match self.seed {
            Some(seed) => SUITES
                .into_iter()
                .map(|suite| Task { suite, seed, one_in: self.one_in, only: self.item })
                .collect(),
            None => plan(first, self.seeds),
        };
        tasks.retain(|task| wanted(task.suite));
        // The dear ones first, so that no thread is left alone with one at the end.
        tasks.sort_by_key(|task| (task.suite == Suite::Crash, task.one_in));
        tasks
    }
}

/// Runs the command; the exit status says whether all promises were kept.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    let clock = SystemClock::new();
    let count = arguments.threads.unwrap_or_else(threads::available).max(1);
    // What panics is caught and reported with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.calls {
        return match print_calls(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("simulate: {why}");
                ExitCode::FAILURE
            }
        };
    }
    #[cfg(feature = "planted-bugs")]
    if let Some(name) = &arguments.find_planted {
        return find_planted(name, &arguments.suite);
    }
    #[cfg(feature = "planted-bugs")]
    if let Some(name) = &arguments.without_sync {
        return crate::without_sync::run(name, count);
    }
    let mut report = Report {
        first_seed: arguments.seed.unwrap_or(arguments.first),
        seeds: 0,
        tasks: 0,
        threads: count,
        seconds: 0.0,
        seconds_of_suites: BTreeMap::new(),
        tally: Tally::default(),
        failures: Vec::new(),
    };
    let mut first = arguments.first;
    loop {
        let tasks = arguments.tasks(first);
        report.tasks += tasks.len();
        report.seeds += if arguments.seed.is_some() { 1 } else { arguments.seeds };
        run_tasks(tasks, count, &mut report, arguments.json);
        report.seconds = clock.now_ns() as f64 / 1e9;
        first += arguments.seeds;
        let more = arguments.hours.is_some_and(|hours| report.seconds < hours * 3600.0);
        if !more || !report.failures.is_empty() || arguments.seed.is_some() {
            break;
        }
    }
    finish(&arguments, &report)
}

fn finish(arguments: &Arguments, report: &Report) -> ExitCode {
    for failure in &report.failures {
        let item = failure.item.map_or(String::new(), |item| format!("-{item}"));
        let name = format!("{}-{}{item}.trace", failure.suite.name(), failure.seed);
        let path = arguments.traces.join(name);
        let trace = failure.trace.as_deref().unwrap_or_default();
        let text = format!("{}\n{}\n\n{trace}", failure.replay(), failure.text);
        let written = write_trace(&path, &text);
        if !arguments.json {
            println!("\nseed {}, suite {}:", failure.seed, failure.suite.name());
            println!("{}", failure.text);
            println!("again:  {}", failure.replay());
            match written {
                Ok(()) => println!("trace:  {}", path.display()),
                Err(error) => println!("trace:  not written: {error}"),
            }
        }
    }
    if arguments.json {
        match serde_json::to_string_pretty(report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("simulate: the report has no JSON: {error}"),
        }
    } else {
        print_table(report);
    }
    let is_one_point = arguments.item.is_some() && arguments.suite == [Suite::Crash];
    if is_one_point && report.failures.is_empty() && report.tally.all_images() == 0 {
        let points = report.tally.crash_points;
        eprintln!("simulate: no crash point has this number; there are {points}, from 0 on");
        return ExitCode::FAILURE;
    }
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write_trace(path: &Path, text: &str) -> thermocline_device::Result<()> {
    if let Some(directory) = path.parent() {
        create_directory(directory)?;
    }
    host_files::write_text(path, text)
}

fn print_table(report: &Report) {
    let tally = &report.tally;
    let images = tally.crash_images;
    println!("{} seeds from {}, {} tasks", report.seeds, report.first_seed, report.tasks);
    println!("crash points            {:>10}", tally.crash_points);
    println!("crash images            {:>10}", tally.all_images());
    println!(
        "  cut in a recovery     {:>10}  {} {} at depth 2 and 3",
        images[1], images[2], images[3]
    );
    println!("failing calls           {:>10}", tally.errors);
    println!("falsified transfers     {:>10}", tally.lies);
    println!("tier drills             {:>10}", tally.drills);
    println!("calls that stalled      {:>10}", tally.stalls);
    println!("jumps of clocks         {:>10}", tally.clock_jumps);
    println!("pairs of caches         {:>10}", tally.cache_pairs);
    println!("histories behind        {:>10}", tally.backlogs);
    println!("moments, then now       {:>10}", tally.moments);
    println!("clients inside jobs     {:>10}", tally.inside);
    println!("histories of transactions {:>8}", tally.transactions);
    println!("names over links        {:>10}", tally.names);
    println!("  images of theirs      {:>10}", tally.names_images);
    println!("damages reported        {:>10}", tally.damages_reported);
    println!("damages harmless        {:>10}", tally.damages_harmless);
    println!("repairs and refusals    {:>10}", tally.repairs);
    let per_core = tally.all_images() as f64 / report.seconds / report.threads as f64;
    println!("{:.0} s, {per_core:.0} images a second and thread", report.seconds);
    let mut suites: Vec<_> = report.seconds_of_suites.iter().collect();
    suites.sort_by(|a, b| b.1.total_cmp(a.1));
    let suites: Vec<_> = suites.iter().map(|(name, took)| format!("{name} {took:.0} s")).collect();
    println!("of these, over all threads: {}", suites.join(", "));
    println!("violations              {:>10}", report.failures.len());
}
