//! `get KEY`: a value as it is, nothing added; with `--json` the record as one line.

use crate::arguments::{Database, Get};
use crate::failure::Result;
use crate::load::jsonl::Record;
use crate::output::Output;
use crate::store;

/// Writes the value to standard output.
pub fn run(database: &Database, arguments: &Get, json: bool) -> Result<()> {
    let format = arguments.keys.format;
    let key = format.parse(&arguments.key)?;
    let db = store::open_to_read(database)?;
    let Some(value) = db.get(&key)? else {
        return Err(format.missing(&key, database));
    };
    let mut output = Output::new();
    if json {
        output.line(serde_json::to_string(&Record::of(&key, Some(&value)))?)?;
    } else {
        output.bytes(&value)?;
    }
    output.finish()?;
    Ok(db.close()?)
}
