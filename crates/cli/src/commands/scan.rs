//! `scan`: records in key order, as lines that `load` reads back.

use crate::arguments::{Database, Scan};
use crate::failure::Result;
use crate::load::jsonl::Record;
use crate::output::Output;
use crate::{store, text};
use std::os::unix::ffi::OsStrExt;

/// Prints the records of the range.
pub fn run(database: &Database, arguments: &Scan) -> Result<()> {
    let db = store::open_to_read(database)?;
    let mut scan = db.scan();
    if let Some(from) = &arguments.from {
        scan = scan.from(from.as_bytes());
    }
    if let Some(to) = &arguments.to {
        scan = scan.to(to.as_bytes());
    }
    if let Some(prefix) = &arguments.prefix {
        scan = scan.prefix(prefix.as_bytes());
    }
    if arguments.reverse {
        scan = scan.reverse();
    }
    if let Some(limit) = arguments.limit {
        scan = scan.limit(limit);
    }
    let mut output = Output::new();
    for record in scan {
        let (key, value) = record?;
        let value = (!arguments.keys_only).then_some(&value[..]);
        output.line(&line(&key, value, arguments.json)?)?;
    }
    output.finish()?;
    Ok(db.close()?)
}

fn line(key: &[u8], value: Option<&[u8]>, json: bool) -> Result<String> {
    if json {
        return Ok(serde_json::to_string(&Record::of(key, value))?);
    }
    let mut line = text::escape(key);
    if let Some(value) = value {
        line.push('\t');
        line.push_str(&text::escape(value));
    }
    Ok(line)
}
