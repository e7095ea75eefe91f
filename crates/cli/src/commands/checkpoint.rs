//! `checkpoint DIR`: a second database with the first one's content as of now.

use crate::arguments::{Checkpoint, Database};
use crate::failure::Result;
use crate::output::Output;
use crate::{store, text};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use thermocline_foundation::{Clock, SystemClock};

#[derive(Serialize)]
struct Summary<'a> {
    checkpoint: &'a Path,
    seconds: f64,
}

/// Makes the checkpoint.
pub fn run(database: &Database, arguments: &Checkpoint, json: bool) -> Result<()> {
    let db = store::open(database)?;
    let clock = SystemClock::new();
    let dir = store::absolute(&arguments.dir)?;
    db.checkpoint(&dir)?;
    db.close()?;
    let elapsed = Duration::from_nanos(clock.now_ns());
    let mut output = Output::new();
    if json {
        output.json(&Summary { checkpoint: &dir, seconds: elapsed.as_secs_f64() })?;
    } else {
        let (dir, elapsed) = (dir.display(), text::span(elapsed));
        output.line(format!("checkpoint at {dir} in {elapsed}; open it with --db"))?;
    }
    output.finish()
}
