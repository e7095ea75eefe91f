//! `load`: many records from outside, in batches.
//!
//! A format turns its input into records and hands them to the [`Loader`]; it knows nothing of the
//! engine. A malformed input stops the load with its file and line, and what was loaded before it
//! stays: the message says how many records that are.

mod deb822;
mod files;
pub mod jsonl;
mod lines;
mod loader;
mod tsv;

use crate::arguments::{Database, Load};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::progress::Bar;
use crate::{store, text};
use lines::Lines;
pub use loader::Loader;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thermocline::Db;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

/// What was loaded.
#[derive(Serialize)]
struct Summary {
    records: u64,
    /// Keys and values together.
    bytes: u64,
    /// Files left out by `--skip`.
    skipped: u64,
    seconds: f64,
    records_per_second: f64,
    bytes_per_second: f64,
    /// Bytes written to the tiers meanwhile, logs and tables together.
    written_bytes: u64,
}

/// Loads all inputs.
pub fn run(database: &Database, arguments: &Load, json: bool) -> Result<()> {
    let inputs = inputs(arguments)?;
    let sources = if arguments.format.files {
        Sources::Files(files::find(&inputs, arguments.skip)?)
    } else {
        // Opened before the database is made, so that a wrong name leaves nothing behind.
        Sources::Texts(inputs.iter().map(|path| Lines::open(path)).collect::<Result<_>>()?)
    };
    let db = store::open_or_create(database)?;
    let clock = SystemClock::new();
    let written_before = written_bytes(&db);
    let bar =
        if arguments.quiet { Bar::quiet() } else { Bar::new("loading", sources.total_bytes()) };
    let mut loader = Loader::new(db.clone(), bar);
    let outcome = match sources {
        Sources::Files(found) => files::load(found, arguments.skip, &mut loader),
        Sources::Texts(mut texts) => texts.iter_mut().try_for_each(|lines| {
            if arguments.format.tsv {
                tsv::load(lines, &mut loader)
            } else if arguments.format.jsonl {
                jsonl::load(lines, &mut loader)
            } else {
                deb822::load(lines, &mut loader)
            }
        }),
    };
    let loaded = finish(loader, outcome)?;
    let written = written_bytes(&db) - written_before;
    db.close()?;
    let elapsed = Duration::from_nanos(clock.now_ns());
    report(&loaded, elapsed, written, json)
}

/// Bytes written to all tiers since the database was made.
fn written_bytes(db: &Db) -> u64 {
    db.stats().tiers.iter().map(|tier| tier.written_bytes).sum()
}

/// Counts of a finished load.
pub struct Loaded {
    pub records: u64,
    pub bytes: u64,
    pub skipped: u64,
}

/// Makes everything loaded durable, also where the input went wrong, and says how much that is.
fn finish(loader: Loader, outcome: Result<()>) -> Result<Loaded> {
    let (loaded, finished) = loader.finish();
    // What went wrong first is what to mend.
    outcome.and(finished).map_err(|failure| {
        let records = text::counted(loaded.records, "record");
        failure.and(format_args!("{records} before it are loaded"))
    })?;
    Ok(loaded)
}

enum Sources {
    Files(files::Found),
    Texts(Vec<Lines>),
}

impl Sources {
    /// Bytes to come, where that is known.
    fn total_bytes(&self) -> Option<u64> {
        match self {
            Self::Files(found) => Some(found.bytes()),
            Self::Texts(texts) => texts.iter().map(Lines::len).sum(),
        }
    }
}

fn inputs(arguments: &Load) -> Result<Vec<PathBuf>> {
    let standard = Path::new("-");
    let named = &arguments.inputs;
    if arguments.format.files && (named.is_empty() || named.iter().any(|path| path == standard)) {
        let text = "--files needs a directory, such as 'thermocline load --files /usr/share'";
        return Err(Failure::Usage(text.to_owned()));
    }
    if named.iter().filter(|path| *path == standard).count() > 1 {
        return Err(Failure::Usage("standard input can be named once only".to_owned()));
    }
    Ok(if named.is_empty() { vec![standard.to_path_buf()] } else { named.clone() })
}

fn report(loaded: &Loaded, elapsed: Duration, written: u64, json: bool) -> Result<()> {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let rate = |amount: u64| amount as f64 / seconds;
    let mut output = Output::new();
    if json {
        output.json(&Summary {
            records: loaded.records,
            bytes: loaded.bytes,
            skipped: loaded.skipped,
            seconds,
            records_per_second: rate(loaded.records),
            bytes_per_second: rate(loaded.bytes),
            written_bytes: written,
        })?;
    } else {
        output.line(format!(
            "loaded {}, {} in {} ({}/s, {} records/s)",
            text::counted(loaded.records, "record"),
            ByteSize(loaded.bytes),
            text::span(elapsed),
            ByteSize(rate(loaded.bytes) as u64),
            text::count(rate(loaded.records) as u64),
        ))?;
        // Beside a few records, the files that a store begins with are all there is.
        if loaded.bytes >= 1 << 20 {
            let amplification = written as f64 / loaded.bytes as f64;
            let written = ByteSize(written);
            output.line(format!(
                "wrote {written} to the tiers, {amplification:.2} bytes for each byte loaded"
            ))?;
        }
        if loaded.skipped > 0 {
            output.line(format!("left out {}", text::counted(loaded.skipped, "file")))?;
        }
    }
    output.finish()
}
