//! `thermocline-db_bench`: the db_bench workloads on one Thermocline store, every value checked.
//!
//! ```text
//!   main ── arguments    what was asked
//!     ├── records        keys as db_bench makes them; values that say what they are
//!     ├── workload       one benchmark: threads, operations, latencies, checks
//!     └── report         a line for people, or JSON
//! ```
//!
//! Invariants:
//! 1. A value that is wrong, stale or missing, or a key that was never written and is found, fails
//!    the run: a fast wrong answer is no result.
//! 2. Benchmarks named after each other run on the same store in one process, so that what is
//!    written is known and can be checked by those that read.
//!
//! How it is compared with RocksDB: `compare-db_bench.sh` beside this crate, and
//! `docs/benchmarks.md`.
#![forbid(unsafe_code)]

mod arguments;
mod records;
mod report;
mod workload;

use arguments::Arguments;
use clap::Parser;
use std::io::Write;
use std::process::ExitCode;
use thermocline::{Compression, Db, Durability, Preset, Settings, Tier};
use workload::Bench;

#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: thermocline_allocator::Allocator = thermocline_allocator::Allocator;

/// What went wrong, as text for the user.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    thermocline_allocator::give_back_early();
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Where standard error is gone too, no message can reach the user.
            let _ = writeln!(std::io::stderr(), "thermocline-db_bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let settings = settings(arguments);
    let fresh = !Db::exists(&arguments.db)?;
    if !fresh && !arguments.existing {
        let db = arguments.db.display();
        return Err(format!("{db} holds a store; name another place or say --existing").into());
    }
    let db = Db::open_or_create(&arguments.db, &settings)?;
    let bench = Bench::new(db, arguments, fresh)?;
    let mut out = std::io::stdout().lock();
    for name in &arguments.benchmarks {
        let outcome = bench.run(*name)?;
        if arguments.json {
            writeln!(out, "{}", serde_json::to_string(&outcome)?)?;
        } else {
            writeln!(out, "{outcome}")?;
        }
    }
    if arguments.stats {
        writeln!(out, "{}", serde_json::to_string_pretty(&bench.stats())?)?;
    }
    Ok(bench.close()?)
}

fn settings(arguments: &Arguments) -> Settings {
    let tiers = match arguments.tier.as_slice() {
        [] => vec![Tier::new(arguments.db.join("tier-0"), space_of_one_tier())],
        tiers => tiers.to_vec(),
    };
    let compression = match arguments.compression {
        arguments::Packing::None => vec![Compression::None],
        arguments::Packing::Lz4 => vec![Compression::Lz4],
    };
    let mut settings = Settings {
        // The preset that is compared with RocksDB; a store that is there has one.
        preset: (!arguments.existing).then_some(Preset::Leveled),
        tiers,
        memory: arguments.memory,
        durability: match arguments.durability {
            arguments::When::Sync => Durability::Sync,
            arguments::When::Buffered => Durability::Buffered,
        },
        compression,
        ..Settings::default()
    };
    if let Some(threads) = arguments.background_threads {
        settings.background_threads = threads;
    }
    if let Some(bytes) = arguments.background_sync {
        settings.background_sync_bytes = bytes;
    }
    if let Some(groups) = arguments.log_writes {
        settings.log_writes = groups;
    }
    settings
}

/// More than any disk: one tier may fill what it stands on.
fn space_of_one_tier() -> thermocline::ByteSize {
    thermocline::ByteSize(1 << 60)
}
