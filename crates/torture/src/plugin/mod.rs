//! `torture plugin`: RocksDB's own stress test over tiers, killed, or deprived of power, again and
//! again, and compared with the values that it expects.
//!
//! ```text
//!   mod.rs     the run: kills, then power cuts      lives.rs   one life: aim, kill, cut
//!   stress.rs  the stress test as a process         directories.rs  links and files that are left
//!   ends.rs    the end of a database: verified, exported, read without the plugin, removed
//! ```
//! Each life of the test begins with a comparison of all keys. After a kill no link may lead
//! nowhere. A database has [`lives::EPOCH_ROUNDS`] lives; then it ends, and a new one begins.
//!
//! Exit status as of the other commands.

mod directories;
mod ends;
mod lives;
mod stress;

use crate::block_device::{self, Setup};
use crate::report::{Failure, Run};
use crate::{Place, ended_runs, scratch};
use clap::Args;
use lives::{Bench, Trouble};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thermocline_foundation::random::entropy;
use thermocline_foundation::{Clock, SystemClock};

/// `cargo xtask torture plugin` builds both programs and says where they are.
#[derive(Debug, Args)]
pub struct PluginArguments {
    /// Kills with signal 9
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// Power cuts of both tiers' file systems, after the kills; needs root, else they are skipped
    #[arg(long, default_value_t = 0)]
    power_cuts: u64,
    /// What everything but timing is drawn from; random where not given
    #[arg(long)]
    seed: Option<u64>,
    /// Number of the first kill, or of the first cut where there are no kills: to replay a failure
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Without tiers: what fails then, too, is the host's
    #[arg(long)]
    without_plugin: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// RocksDB's stress test
    #[arg(long, value_name = "FILE")]
    db_stress: PathBuf,
    /// The library that is preloaded; the plugin lies beside it
    #[arg(long, value_name = "FILE")]
    shim: PathBuf,
    #[command(flatten)]
    place: Place,
}

/// What ends a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Kill,
    PowerCut,
}

impl Ending {
    fn flag(self) -> &'static str {
        match self {
            Self::Kill => "kills",
            Self::PowerCut => "power-cuts",
        }
    }
}

/// What a run found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub seed: u64,
    /// Lives that were ended so, and found as expected.
    pub kills: u64,
    pub power_cuts: u64,
    pub seconds: f64,
    /// Comparisons of all keys with the expected values: by lives, and at the ends of databases.
    pub verified: u64,
    /// Lives that ended before they had opened the database.
    pub in_opening: u64,
    /// Lives that ended while a file of the fast tier had no name: a move, a copy, a creation.
    pub with_strays: u64,
    /// Links that were looked at after kills.
    pub links: u64,
    /// Links that were put away after power cuts, since their files were gone.
    pub lost_links: u64,
    /// Databases that were exported, read without the plugin and removed.
    pub databases: u64,
    pub exported: u64,
    /// Why power was not cut.
    pub skipped: Option<String>,
    pub failure: Option<Failure>,
}

fn rounds(
    arguments: &PluginArguments,
    ending: Ending,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Setup> {
    let count = if ending == Ending::Kill { arguments.kills } else { arguments.power_cuts };
    let is_first = ending == Ending::Kill || arguments.kills == 0;
    let first = if is_first { arguments.first } else { 0 };
    let run = Run::new("plugin", directory.to_owned(), report.seed, first, count);
    let (clock, before) = (SystemClock::new(), report.seconds);
    let mut bench = Bench::new(arguments.programs(directory), directory, ending)?;
    for round in first..first + count {
        match bench.round(&run, round, report) {
            Ok(()) => {
                run.tick();
                report.seconds = before + clock.now_ns() as f64 / 1e9;
                match ending {
                    Ending::Kill => report.kills += 1,
                    Ending::PowerCut => report.power_cuts += 1,
                }
            }
            Err(Trouble::Machinery(setup)) => return Err(setup),
            Err(Trouble::Host(text)) => {
                let begin = first.max(round - round % lives::EPOCH_ROUNDS);
                let more = if ending == Ending::PowerCut { " --kills 0" } else { "" };
                let replay = format!(
                    "cargo xtask torture plugin{more} --seed {} --first {begin} --{} {}",
                    report.seed,
                    ending.flag(),
                    round + 1 - begin
                );
                let directory = directory.to_owned();
                report.failure = Some(Failure { round, text, directory, replay });
                bench.keep();
                break;
            }
        }
    }
    run.end();
    Ok(())
}

impl PluginArguments {
    fn programs(&self, directory: &Path) -> stress::Stress {
        stress::Stress {
            program: self.db_stress.clone(),
            shim: self.shim.clone(),
            db: directory.join("slow/db"),
            expected: directory.join("expected"),
            output: directory.join("output"),
            is_plain: self.without_plugin,
        }
    }
}

fn run(arguments: &PluginArguments) -> Result<Report, Setup> {
    for file in [&arguments.db_stress, &arguments.shim] {
        if !file.exists() {
            let text = format!("{} is not there; say cargo xtask torture plugin", file.display());
            return Err(Setup(text));
        }
    }
    let base = arguments.place.path();
    let (directory, lock) = scratch(&base, "plugin")?;
    let seed = arguments.seed.unwrap_or_else(|| entropy() >> 32);
    let mut report = Report { seed, ..Report::default() };
    rounds(arguments, Ending::Kill, &directory, &mut report)?;
    if arguments.power_cuts > 0 && report.failure.is_none() {
        report.skipped = block_device::obstacle(&directory);
        if report.skipped.is_none() {
            for ended in ended_runs(&base) {
                block_device::release(&ended)?;
            }
            rounds(arguments, Ending::PowerCut, &directory, &mut report)?;
        }
    }
    drop(lock);
    if report.failure.is_none() {
        std::fs::remove_dir_all(&directory)
            .map_err(|error| Setup(format!("cannot remove {}: {error}", directory.display())))?;
    }
    Ok(report)
}

/// The command.
pub fn main(arguments: &PluginArguments) -> ExitCode {
    let report = match run(arguments) {
        Ok(report) => report,
        Err(Setup(error)) => {
            eprintln!("torture plugin: {error}; `torture clean` removes what is left");
            return ExitCode::from(2);
        }
    };
    if arguments.json {
        match serde_json::to_string(&report) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("torture: {error}"),
        }
    }
    let Report { seed, kills, power_cuts, seconds, verified, .. } = report;
    if let Some(failure) = &report.failure {
        eprintln!("torture plugin: round {} of seed {seed}: {}", failure.round, failure.text);
        eprintln!("  kept    {}", failure.directory.display());
        eprintln!("  replay  {}", failure.replay);
        return ExitCode::from(1);
    }
    if arguments.json {
        return ExitCode::SUCCESS;
    }
    println!(
        "torture plugin: {kills} kills and {power_cuts} power cuts in {seconds:.0} s, seed {seed}: \
         no violation"
    );
    let Report { in_opening, with_strays, links, lost_links, databases, exported, .. } = report;
    println!(
        "  all keys compared {verified} times; ended in openings {in_opening}, with moves, copies \
         or creations under way {with_strays}"
    );
    println!(
        "  {links} links looked at, none led nowhere after a kill; {lost_links} put away after \
         power cuts"
    );
    println!(
        "  {databases} databases ended: {exported} files exported, read without the plugin, \
         nothing left on the tiers"
    );
    if let Some(why) = &report.skipped {
        println!("  power was not cut: {why}");
    }
    ExitCode::SUCCESS
}
