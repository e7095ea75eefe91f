//! The command line of a benchmark binary, whichever engines it brings.
//!
//! ```text
//!   run      cells in processes, a table, results.json        (plan)
//!   quick    a small run that needs nothing                   (quick)
//!   cell     one cell, started by the two above               (cell)
//!   values   bytes a second by the size of values          (value_sizes)
//!   judge    policies on a trace of blocks                 (block_trace)
//!   memory   the most memory that is resident, by strain   (memory)
//!   tiers, single, full, commit   comparisons on the rig      (scenarios)
//!   prismdb  the paper's figures on the rig                   (figures)
//!   spandb, mynvm, keigo, slmdb  those papers' figures on the rig  (of the same names)
//!   rig      two block devices and a memory limit             (rig)
//!   generator, agree      what the harness costs              (generator, agree)
//!   list, bound, report
//! ```
//! Tables and `ratio` lines go to standard output, everything else to standard error.

pub mod arguments;

use crate::cell::{Cell, MARK, Message};
use crate::plan::InFront;
use crate::report::html::{self, cost::Prices};
use crate::report::table::table;
use crate::results::Results;
use crate::scenarios::{self, Scenario, ScenarioArguments};
use crate::store::EngineKind;
use crate::workloads::{self, Plan, SETS};
use crate::{
    Failure, Outcome, agree, block_trace, bound, cell, figures, generator, keigo, memory, mynvm,
    quick, rig, rows, slmdb, spandb, value_sizes,
};
use arguments::{Arguments, BoundArguments, ReportArguments, RunArguments, Task};
use clap::Parser;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// Runs the command line with `engines`. All of them have the same allocator, set alike.
pub fn main(engines: &[&dyn EngineKind]) -> ExitCode {
    thermocline_allocator::give_back_early();
    let arguments = Arguments::parse();
    if let Task::Rig { command } = &arguments.command {
        return rig::command::main(command);
    }
    match run(arguments, engines) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            complain(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Prints a line for the user; where standard error is gone, no message can reach the user.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "thermocline-bench: {text}");
}

fn print(text: &str) -> Outcome<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Does what was asked; false where it was done and something in it failed.
fn run(arguments: Arguments, engines: &[&dyn EngineKind]) -> Outcome<bool> {
    match arguments.command {
        Task::Run(arguments) => measure(*arguments, engines),
        Task::Quick(arguments) => {
            let mut say = |line: &str| complain(line);
            let results = quick::run(&arguments, engines, &program()?, started_s(), &mut say)?;
            print(&table(&results))?;
            quick::lines(&results).iter().try_for_each(|line| print(&format!("{line}\n")))?;
            Ok(all_finished(&results))
        }
        Task::Generator(arguments) => {
            say_all(generator::run(&arguments, engines, &program()?, started_s(), &mut |_| {})?)
        }
        Task::Agree(arguments) => {
            let mut say = |line: &str| complain(line);
            say_all(agree::run(&arguments, engines, &program()?, started_s(), &mut say)?)
        }
        Task::Values(arguments) => {
            value_sizes::run(&arguments, &mut |line| print(&format!("{line}\n")))?;
            Ok(true)
        }
        Task::Judge(arguments) => print(&block_trace::judge::run(&arguments)?).map(|()| true),
        Task::Memory(arguments) => measure_memory(&arguments).map(|()| true),
        Task::List => list(engines).map(|()| true),
        Task::Bound(arguments) => print_bound(&arguments).map(|()| true),
        Task::Report(arguments) => show(&arguments).map(|()| true),
        Task::Tiers(arguments) => compare(Scenario::Tiers, &arguments, engines),
        Task::Single(arguments) => compare(Scenario::Single, &arguments, engines),
        Task::Full(arguments) => compare(Scenario::Full, &arguments, engines),
        Task::Commit(arguments) => compare(Scenario::Commit, &arguments.scenario, engines),
        Task::Prismdb(arguments) => {
            show_parts(&figures::run(&arguments, engines, &program()?, started_s(), &mut complain)?)
        }
        Task::Spandb(arguments) => {
            let context = (engines, &*program()?, started_s());
            let shown = spandb::run(&arguments, context, &mut complain)?;
            show_rows(shown, arguments.rows.json).map(|()| true)
        }
        Task::Mynvm(arguments) => {
            let context = (engines, &*program()?, started_s());
            let shown = mynvm::run(&arguments, context, &mut complain)?;
            show_rows(shown, arguments.rows.json).map(|()| true)
        }
        Task::Keigo(arguments) => {
            let context = (engines, &*program()?, started_s());
            let shown = keigo::run(&arguments, context, &mut complain)?;
            show_rows(shown, arguments.rows.json).map(|()| true)
        }
        Task::Slmdb(arguments) => {
            let context = (engines, &*program()?, started_s());
            let shown = slmdb::run(&arguments, context, &mut complain)?;
            show_rows(shown, arguments.rows.json).map(|()| true)
        }
        Task::Rig { command } => rig::command::run(&command).map(|_| true),
        Task::Cell { json } => run_cell(&json, engines),
    }
}

/// Prints lines and passes on whether what they say is right.
fn say_all((lines, right): (Vec<String>, bool)) -> Outcome<bool> {
    lines.iter().try_for_each(|line| print(&format!("{line}\n")))?;
    Ok(right)
}

fn program() -> Outcome<PathBuf> {
    std::env::current_exe().map_err(|error| format!("this program's own path: {error}").into())
}

fn started_s() -> u64 {
    SystemClock::new().wall_s()
}

fn all_finished(results: &Results) -> bool {
    results.rows.iter().all(|row| row.failure.is_none())
}

fn measure(arguments: RunArguments, engines: &[&dyn EngineKind]) -> Outcome<bool> {
    let words = arguments.in_front.as_deref().unwrap_or_default().split_whitespace();
    let launcher = InFront { words: words.map(str::to_owned).collect() };
    let run = arguments.run()?;
    let mut say = |line: &str| complain(line);
    let results = run.execute(engines, &program()?, &launcher, started_s(), &mut say)?;
    print(&table(&results))?;
    print(&format!("results: {}\n", run.results.display()))?;
    Ok(all_finished(&results))
}

/// A scenario on the rig.
fn compare(
    scenario: Scenario,
    arguments: &ScenarioArguments,
    engines: &[&dyn EngineKind],
) -> Outcome<bool> {
    let mut say = |line: &str| complain(line);
    show_parts(&scenarios::run(scenario, arguments, engines, &program()?, started_s(), &mut say)?)
}

/// The tables of a scenario, and a page for each of its parts; false where a row failed.
fn show_parts(parts: &[(PathBuf, Results)]) -> Outcome<bool> {
    let mut finished = true;
    for (path, results) in parts {
        print(&table(results))?;
        let page = path.with_extension("html");
        html::write(results, &Prices::default(), &page)?;
        print(&format!("results: {}\npage: {}\n", path.display(), page.display()))?;
        let picture = path.with_extension("svg");
        if html::write_picture(results, &picture)? {
            print(&format!("picture: {}\n", picture.display()))?;
        }
        finished &= all_finished(results);
    }
    Ok(finished)
}

/// The rows of a paper's figures. One that is missed, or not there, is shown and no failure.
fn show_rows(shown: rows::Outcomes, as_json: bool) -> Outcome<()> {
    let mut text = shown.table;
    shown.lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    text.push_str(&format!("results: {}\n", shown.results.display()));
    for picture in shown.pictures {
        text.push_str(&format!("picture: {}\n", picture.display()));
    }
    if !as_json {
        return print(&text);
    }
    std::io::stderr().write_all(text.as_bytes())?;
    print(&format!("{}\n", shown.json))
}

fn show(arguments: &ReportArguments) -> Outcome<()> {
    let results = read(arguments)?;
    match &arguments.html {
        None => print(&table(&results)),
        Some(page) => {
            html::write(&results, &Prices::parse(arguments.prices.as_deref().unwrap_or(""))?, page)
        }
    }
}

/// Each row in processes of its own, which come back here.
fn measure_memory(arguments: &memory::MemoryArguments) -> Outcome<()> {
    if let Some(task) = &arguments.child {
        return print(&memory::child(arguments, task)?);
    }
    let measured = memory::run(arguments, &program()?, &mut |line| complain(line))?;
    match arguments.json {
        true => print(&format!("{}\n", serde_json::to_string(&measured)?)),
        false => print(&memory::shown(&measured, arguments.memory)),
    }
}

/// The child's side of a cell.
fn run_cell(json: &str, engines: &[&dyn EngineKind]) -> Outcome<bool> {
    let cell: Cell = serde_json::from_str(json)
        .map_err(|error| -> Failure { format!("--json is not a cell: {error}").into() })?;
    // A child must not outlive its parent: no process would read its messages, and another cell may
    // be given its directories.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut gone = None;
    let mut say = |message: Message| {
        if let Err(error) = tell(&message) {
            gone = gone.take().or(Some(error));
        }
    };
    let outcome = cell::run(&cell, engines, &mut say);
    if let Some(error) = gone {
        return Err(error);
    }
    match outcome {
        Ok(measured) => tell(&Message::Measured(Box::new(measured))).map(|()| true),
        Err(failure) => tell(&Message::Failed(failure.to_string())).map(|()| false),
    }
}

fn tell(message: &Message) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{}", serde_json::to_string(message)?)?;
    Ok(out.flush()?)
}

fn list(engines: &[&dyn EngineKind]) -> Outcome<()> {
    let mut text = "Engines: NAME[@fast|slow|tiers][+OPTION=VALUE]...\n  \
                    of each: +memory: its own, such as 64MiB, in place of --memory\n"
        .to_owned();
    for engine in engines {
        let layout = engine.needs().usual();
        text.push_str(&format!("  {:<24} {} (@{layout})\n", engine.name(), engine.about()));
        if let Some(reason) = engine.unavailable() {
            text.push_str(&format!("  {:<24} not available: {reason}\n", ""));
        }
        for (option, meaning) in engine.options() {
            text.push_str(&format!("  {:<24} +{option}: {meaning}\n", ""));
        }
    }
    text.push_str(
        "\nWorkloads: NAME[/MODIFIER]..., modifiers uniform, zipf-ALPHA, zipf-ycsb, \
                   hotspot-PERCENT, latest,\nvalue-SIZE, key-SIZE, threads-N, scan-N, if-present, \
                   sync, buffered\n",
    );
    for workload in workloads::all() {
        let mix: Vec<_> =
            workload.mix.iter().map(|share| format!("{} {}", share.label, share.weight)).collect();
        let distribution = workload.phases[0].distribution;
        text.push_str(&format!(
            "  {:<18} {} ({distribution}); {}\n",
            workload.name,
            mix.join(", "),
            workload.source
        ));
    }
    text.push_str("  trace:FILE         replay of a CSV file: time,op,key,size\n\nSets:\n");
    for (set, members) in SETS {
        text.push_str(&format!("  {set:<18} {members}\n"));
    }
    print(&text)
}

fn print_bound(arguments: &BoundArguments) -> Outcome<()> {
    let device = arguments::slow_device(&arguments.slow_profile)?;
    let mut text = format!("{:<32} {:>9} {:>9} {:>12}\n", "workload", "resident", "misses", "op/s");
    for workload in workloads::parse_list(&arguments.workload)? {
        let (name, records) = (workload.name.clone(), workload.records(arguments.records));
        let key = f64::from(workload.key_bytes.unwrap_or(arguments.key_size));
        let value = workload.sizes.as_ref().map_or(f64::from(arguments.value_size), |s| s.mean());
        let record = key + value;
        let data = record * records as f64;
        let resident = match arguments.resident.strip_suffix('%') {
            Some(percent) => percent
                .parse::<f64>()
                .ok()
                .filter(|percent| (0.0..=100.0).contains(percent))
                .map(|percent| (data * percent / 100.0).round() as u64)
                .ok_or_else(|| format!("'{}' is not a share", arguments.resident))?,
            None => arguments.resident.parse::<ByteSize>()?.0,
        };
        let plan = Plan::new(workload, records, 1, 1);
        let line = match bound::bound(&plan, record, resident, &device, 0.0) {
            Some(bound) => format!(
                "{name:<32} {:>7.1} % {:>7.2} % {:>12.0}\n",
                100.0 * bound.resident_share,
                100.0 * bound.miss_rate,
                bound.ops_per_s
            ),
            None => format!("{name:<32} {:>9} {:>9} {:>12}\n", "", "", "none"),
        };
        text.push_str(&line);
    }
    print(&text)
}

fn read(arguments: &ReportArguments) -> Outcome<Results> {
    let mut files = arguments.files.iter();
    let first = files.next().ok_or("name a file of results")?;
    let mut results = Results::read(first)?;
    for file in files {
        results.join(Results::read(file)?);
    }
    if let Some(baseline) = &arguments.baseline {
        if !results.rows.iter().any(|row| row.engine == *baseline) {
            let there: Vec<_> = results.engines.iter().map(|e| e.label.as_str()).collect();
            return Err(format!("no row is of '{baseline}'; there are {}", there.join(", ")).into());
        }
        results.baseline = Some(baseline.clone());
    }
    Ok(results)
}
