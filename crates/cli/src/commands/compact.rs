//! `compact`: merges tables now instead of when it becomes necessary.

use crate::arguments::{Compact, Database};
use crate::failure::Result;
use crate::output::Output;
use crate::progress::Bar;
use crate::{store, text};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use thermocline_foundation::{ByteSize, Clock, SystemClock};

#[derive(Serialize)]
struct Summary {
    bytes: u64,
    seconds: f64,
}

/// Compacts the range.
pub fn run(database: &Database, arguments: &Compact) -> Result<()> {
    let db = store::open(database)?;
    let clock = SystemClock::new();
    let bound = |key: &'_ Option<OsString>| key.as_ref().map(|key| key.as_bytes().to_vec());
    let (from, to) = (bound(&arguments.from), bound(&arguments.to));
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
    if arguments.json {
        output.json(&Summary { bytes, seconds: elapsed.as_secs_f64() })?;
    } else {
        output.line(format!("compacted {} in {}", ByteSize(bytes), text::span(elapsed)))?;
    }
    output.finish()
}
