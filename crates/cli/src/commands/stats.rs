//! `stats`
use crate::arguments::{Database, Stats};
use crate::failure::Result;
use crate::output::Output;
use crate::store;

/// Prints the statistics.
pub fn run(database: &Database, arguments: &Stats) -> Result<()> {
    let db = store::open(database)?;
    let stats = db.stats();
    let mut output = Output::new();
    let _ = arguments.json;
    output.json(&stats)?;
    output.finish()?;
    Ok(db.close()?)
}
