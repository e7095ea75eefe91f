//! `compact`: merges tables now instead of when it becomes necessary.

use crate::arguments::{Compact, Database};
use crate::failure::Result;
use crate::output::Output;
use crate::progress::Bar;
use crate::{store, text};
use serde::Serialize;
use std::time::Duration;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

#[derive(Serialize)]
struct Summary {
    bytes: u64,
    seconds: f64,
}

/// Compacts the range.
pub fn run(database: &Database, arguments: &Compact, json: bool) -> Result<()> {
    let format = arguments.keys.format;
    let from = format.parse_option(arguments.from.as_deref())?;
    let to = format.parse_option(arguments.to.as_deref())?;
    let db = store::open(database)?;
    let clock = SystemClock::new();
    let bar = Bar::new("compacting", Some(0));
    let mut bytes = 0;
    db.compact_range(from.as_deref(), to.as_deref(), &mut |progress| {
        bytes = progress.done_bytes;
        bar.show(&progress);
    })?;
    drop(bar);
    db.close()?;
    let elapsed = Duration::from_nanos(clock.now_ns());
    let mut output = Output::new();
    if json {
        output.json(&Summary { bytes, seconds: elapsed.as_secs_f64() })?;
    } else {
        output.line(format!("compacted {} in {}", ByteSize(bytes), text::span(elapsed)))?;
    }
    output.finish()
}
