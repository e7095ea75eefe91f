//! `torture`: the store on a real kernel, killed and deprived of power, and compared with a model.
//!
//! ```text
//!   torture kill  --rounds 500     kill -9 of a child, mostly during flushes and compactions
//!   torture power --rounds 1000    ext4 on loop devices, cut off while the store writes; root
//!   torture plugin --kills 500     RocksDB's stress test over tiers; --power-cuts 200
//!   torture clean                  unmounts, detaches and removes what killed runs left
//!
//!   history.rs  what writers write, and the model      ledger.rs  how far writers came
//!   life.rs     a store at work until it ends          oracle.rs  what must hold afterwards
//!   kill.rs     the rounds of kills                    power.rs   the rounds of cuts
//!   block_device.rs  ext4 on a loop device             report.rs  progress and result
//!   plugin/     another engine's test over tiers
//! ```
//! The simulation (`crates/simulation`) covers far more histories; this is here because a simulated
//! device is an opinion about what a kernel does. Exit status: 0 all well or skipped with the
//! reason, 1 a violation was found, 2 the machinery failed.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a tool that nothing links: it makes scratch directories and prints"
)]

mod block_device;
mod history;
mod kill;
mod ledger;
mod life;
mod oracle;
mod plugin;
mod power;
mod report;

use block_device::Setup;
use clap::{Args, Parser, Subcommand};
use life::Epoch;
use report::{Report, Run};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::planted::Planted;
use thermocline_foundation::random::entropy;

/// Kills the store and cuts the power of its file systems, and compares what is left with a model.
#[derive(Debug, Parser)]
#[command(name = "torture", version)]
struct Arguments {
    /// Plant a bug that the run must find
    #[cfg(feature = "planted-bugs")]
    #[arg(long, global = true, value_parser = parse_bug)]
    plant: Option<Planted>,
    #[command(subcommand)]
    command: Command,
}

#[cfg(feature = "planted-bugs")]
fn parse_bug(name: &str) -> Result<Planted, String> {
    Planted::parse(name).ok_or_else(|| {
        let names: Vec<_> = Planted::ALL.iter().map(|bug| bug.name()).collect();
        format!("no such bug; there are {}", names.join(", "))
    })
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kills a child process with signal 9 at random moments, most often in flushes and compactions
    Kill(RunArguments),
    /// Cuts the power of two ext4 file systems on loop devices; needs root, else it is skipped
    Power(RunArguments),
    /// Kills RocksDB's own stress test over tiers, or cuts its power; compares with what it expects
    Plugin(plugin::PluginArguments),
    /// Unmounts, detaches and removes what earlier runs left
    Clean(Place),
    #[command(hide = true)]
    Child {
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        epoch: u64,
        #[arg(long)]
        life: u64,
        #[arg(long)]
        asynchronous: bool,
        #[arg(long)]
        region: Option<String>,
    },
}

#[derive(Debug, Args)]
struct Place {
    /// Where runs have their scratch directories [default: thermocline-torture in the system's
    /// temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Place {
    fn path(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| std::env::temp_dir().join("thermocline-torture"))
    }
}

#[derive(Debug, Args)]
struct RunArguments {
    /// Kills or cuts
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// What everything but timing is drawn from; random where not given
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first round: to replay a failure
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Every writer has many writes in flight, and counts one as acknowledged once its ticket says
    /// so; else half of them do
    #[arg(long)]
    asynchronous: bool,
    /// With `kill`: stores have a region of persistent memory, a file, with this driver; with the
    /// preset indexed, which some openings leave for leveled, and in every other epoch leveled
    #[arg(long, value_name = "DRIVER")]
    region: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Place,
}

/// The name of the file that a run holds locked while it lives.
const LOCK_NAME: &str = "LOCK";

/// A scratch directory that is this run's alone.
fn scratch(base: &Path, mode: &str) -> Result<(PathBuf, File), Setup> {
    let directory = base.join(format!("{mode}-{}", std::process::id()));
    let made = std::fs::create_dir_all(&directory)
        .and_then(|()| File::create(directory.join(LOCK_NAME)))
        .and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
    let lock = made.map_err(|error| Setup(format!("{}: {error}", directory.display())))?;
    Ok((directory, lock))
}

/// Directories of runs that are over.
fn ended_runs(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let is_over = |path: &PathBuf| {
        File::open(path.join(LOCK_NAME))
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
    };
    entries.map(|entry| entry.path()).filter(is_over).collect()
}

fn clean(base: &Path) -> Result<(), Setup> {
    for directory in ended_runs(base) {
        block_device::release(&directory)?;
        std::fs::remove_dir_all(&directory)
            .map_err(|error| Setup(format!("cannot remove {}: {error}", directory.display())))?;
        println!("removed {}", directory.display());
    }
    Ok(())
}

fn run(mode: &'static str, arguments: &RunArguments) -> Result<Report, Setup> {
    let base = arguments.place.path();
    let (directory, lock) = scratch(&base, mode)?;
    let seed = arguments.seed.unwrap_or_else(|| entropy() >> 32);
    let run = Run::new(mode, directory.clone(), seed, arguments.first, arguments.rounds);
    let run = run.asynchronous(arguments.asynchronous).region(arguments.region.clone());
    let result = match mode {
        "kill" => kill::run(&run),
        _ => match block_device::obstacle(&directory) {
            Some(why) => Ok(Report { skipped: Some(why), ..run.report("power") }),
            None => {
                for ended in ended_runs(&base) {
                    block_device::release(&ended)?;
                }
                power::run(&run)
            }
        },
    };
    run.end();
    drop(lock);
    if result.as_ref().is_ok_and(|report| report.failure.is_none()) {
        std::fs::remove_dir_all(&directory)
            .map_err(|error| Setup(format!("cannot remove {}: {error}", directory.display())))?;
    }
    result
}

/// Prints the result; the exit status says it too.
fn tell(report: &Report, json: bool) -> ExitCode {
    if json {
        match serde_json::to_string(report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("torture: {error}"),
        }
    }
    let Report { mode, rounds, seed, seconds, .. } = report;
    if let Some(failure) = &report.failure {
        eprintln!("torture {mode}: round {} of seed {seed}: {}", failure.round, failure.text);
        eprintln!("  kept    {}", failure.directory.display());
        eprintln!("  replay  {}", failure.replay);
        return ExitCode::from(1);
    }
    if json {
        return ExitCode::SUCCESS;
    }
    if let Some(why) = &report.skipped {
        println!("torture {mode}: skipped: {why}");
        return ExitCode::SUCCESS;
    }
    println!(
        "torture {mode}: {rounds} rounds in {seconds:.0} s ({:.1} a second), seed {seed}: no \
         violation",
        *rounds as f64 / seconds.max(0.001)
    );
    let Report { in_flush, in_compaction, in_opening, .. } = report;
    println!("  ended in flushes {in_flush}, compactions {in_compaction}, openings {in_opening}");
    let Report { acknowledged, lost, migrated, .. } = report;
    println!(
        "  {acknowledged} batches acknowledged, {lost} unpromised lost, {migrated} tables moved"
    );
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    #[cfg(feature = "planted-bugs")]
    if let Some(bug) = arguments.plant {
        thermocline_foundation::planted::everywhere(bug);
    }
    let (mode, arguments) = match arguments.command {
        Command::Kill(arguments) => ("kill", arguments),
        Command::Power(arguments) => ("power", arguments),
        Command::Plugin(arguments) => return plugin::main(&arguments),
        Command::Child { dir, epoch, life, asynchronous, region } => {
            let epoch = Epoch::new(epoch).asynchronous(asynchronous);
            let epoch = epoch.with_region(region.as_deref());
            eprintln!("{}", kill::child(&dir, &epoch, life));
            return ExitCode::from(1);
        }
        Command::Clean(place) => {
            return match clean(&place.path()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(Setup(error)) => {
                    eprintln!("torture clean: {error}");
                    ExitCode::from(2)
                }
            };
        }
    };
    match run(mode, &arguments) {
        Ok(report) => tell(&report, arguments.json),
        Err(Setup(error)) => {
            eprintln!("torture {mode}: {error}; `torture clean` removes what is left");
            ExitCode::from(2)
        }
    }
}
