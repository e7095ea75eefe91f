//! `try`: a store made of this machine's own files, used, closed, reopened and checked.
//!
//! ```text
//!   corpus    which files, with a digest of each
//!   place     the directory of the trial, replaced only where an earlier trial made it
//!   workload  clients that read, update and scan for some seconds, some keys more than others
//!   check     every value against its file
//!   page      what is printed of it
//! ```
//! The fast tier may hold a fifth of the data, so most of it has to lie on the slow one. Both are
//! directories of the same disk here; what differs is what the store puts where. It is made as any
//! store with two tiers, so with the preset `hybrid` unless another is named: records move.
//!
//! An update writes the file's content again with a line after it that counts the updates of that
//! record, so that the check at the end can tell a lost update from a kept one.

mod check;
mod corpus;
mod page;
mod place;
mod workload;
mod zipf;

use crate::arguments::{Database, Try};
use crate::failure::{Failure, Result};
use crate::load::Loader;
use crate::output::{Output, note};
use crate::progress::Bar;
use crate::{store, text};
use corpus::Corpus;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use thermocline::{Db, Settings, Stats, Tier};
use thermocline_foundation::{ByteSize, Clock, SystemClock};
use workload::Latencies;

/// The fast tier's share of the data.
const FAST_SHARE: u64 = 5;
/// A tier below this size could not hold a log beside its tables.
const FAST_BYTES_MIN: u64 = 8 << 20;

/// What a trial found out.
#[derive(Serialize)]
struct Outcome {
    files: u64,
    bytes: u64,
    load_s: f64,
    reopen_s: f64,
    check_s: f64,
    operations: Vec<Latencies>,
    /// Values compared with their files.
    checked: u64,
    /// Files that changed on disk meanwhile; their values were compared with a digest.
    changed: u64,
    /// The statistics at the end of the workload.
    stats: Stats,
}

/// Makes, uses and checks the store.
pub fn run(database: &Database, arguments: &Try, json: bool) -> Result<()> {
    if !database.tier.is_empty() || database.config.is_some() {
        let text = "try chooses its own tiers and settings; use load with --tier or --config";
        return Err(Failure::Usage(text.to_owned()));
    }
    let home = store::absolute(&database.db)?;
    let mut corpus = Corpus::find(&arguments.from, arguments.bytes.0)?;
    place::clear(&home)?;
    let settings = Settings { preset: database.preset, ..settings(&home, corpus.bytes()) };
    note(format!(
        "{} of {} from {}; the fast tier may hold {}",
        text::counted(corpus.len() as u64, "file"),
        ByteSize(corpus.bytes()),
        arguments.from.display(),
        settings.tiers[0].capacity,
    ));
    let db = Db::create(&home, &settings)?;
    place::mark(&home)?;

    let clock = SystemClock::new();
    let ((), load) = timed(&clock, || load(&db, &mut corpus))?;
    let duration = Duration::from_secs_f64(arguments.seconds);
    let (operations, updates) = workload::run(&db, &corpus, duration)?;
    let stats = db.stats();
    db.close()?;

    let (db, reopen) = timed(&clock, || Ok(Db::open(&home)?))?;
    let (checked, check) = timed(&clock, || check::run(&db, &corpus, &updates))?;
    db.close()?;

    let outcome = Outcome {
        files: corpus.len() as u64,
        bytes: corpus.bytes(),
        load_s: load.as_secs_f64(),
        reopen_s: reopen.as_secs_f64(),
        check_s: check.as_secs_f64(),
        operations,
        checked: checked.values,
        changed: checked.changed,
        stats,
    };
    let mut output = Output::new();
    if json {
        output.json(&outcome)?;
    } else {
        page::lines(&outcome, &home, &database.db).iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()
}

/// Two tiers, and little memory: what is read should come from a tier.
fn settings(home: &Path, data_bytes: u64) -> Settings {
    let fast = (data_bytes / FAST_SHARE).max(FAST_BYTES_MIN);
    // Room for every update and for both sides of a compaction.
    let slow = (data_bytes * 8).max(1 << 30);
    let memory = (data_bytes / 8).clamp(16 << 20, 256 << 20);
    Settings {
        tiers: vec![
            Tier::new(home.join("fast"), ByteSize(fast)),
            Tier::new(home.join("slow"), ByteSize(slow)),
        ],
        memory: ByteSize(memory),
        // Small tables, so that a fast tier of a few megabytes can take a share of them.
        table_size: ByteSize((fast / 16).clamp(256 << 10, 32 << 20)),
        ..Settings::default()
    }
}

fn timed<T>(clock: &SystemClock, work: impl FnOnce() -> Result<T>) -> Result<(T, Duration)> {
    let start = clock.now_ns();
    let result = work()?;
    Ok((result, Duration::from_nanos(clock.now_ns() - start)))
}

fn load(db: &Db, corpus: &mut Corpus) -> Result<()> {
    let mut loader = Loader::new(db.clone(), Bar::new("loading", Some(corpus.bytes())));
    corpus.load(&mut loader)?;
    loader.finish().1?;
    let bar = Bar::new("merging", None);
    db.flush()?;
    drop(bar);
    Ok(())
}
