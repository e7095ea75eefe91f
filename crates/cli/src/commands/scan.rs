//! `scan`: records in key order, as lines that `load` reads back.

use crate::arguments::{Database, Scan};
use crate::failure::Result;
use crate::keys::KeyFormat;
use crate::load::jsonl::Record;
use crate::output::{Output, note};
use crate::{store, text};

/// Prints the records of the range.
pub fn run(database: &Database, arguments: &Scan, json: bool) -> Result<()> {
    let format = arguments.keys.format;
    let [from, to, prefix] = [&arguments.from, &arguments.to, &arguments.prefix]
        .map(|key| format.parse_option(key.as_deref()));
    let (from, to, prefix) = (from?, to?, prefix?);
    let db = store::open_to_read(database)?;
    let mut scan = db.scan();
    if let Some(from) = from {
        scan = scan.from(from);
    }
    if let Some(to) = to {
        scan = scan.to(to);
    }
    if let Some(prefix) = prefix {
        scan = scan.prefix(prefix);
    }
    if arguments.reverse {
        scan = scan.reverse();
    }
    if let Some(limit) = arguments.limit {
        scan = scan.limit(limit);
    }
    let mut output = Output::new();
    let mut failed: Option<thermocline::Error> = None;
    for record in scan {
        let (key, value) = match record {
            Ok(record) => record,
            // A damaged record does not end a scan; the others are of use without it.
            Err(error) => {
                if let Some(before) = failed.replace(error) {
                    note(before.to_string());
                }
                continue;
            }
        };
        let value = (!arguments.keys_only).then_some(&value[..]);
        output.bytes(&line(&key, value, format, json)?)?;
    }
    output.finish()?;
    failed.map_or(Ok(()), Err)?;
    Ok(db.close()?)
}

/// The line of a record, with its end.
fn line(key: &[u8], value: Option<&[u8]>, format: KeyFormat, json: bool) -> Result<Vec<u8>> {
    let mut line = if json {
        serde_json::to_vec(&Record::of(key, value))?
    } else {
        let mut line = format.write(key);
        if let Some(value) = value {
            line.push(b'\t');
            line.extend_from_slice(text::escape(value).as_bytes());
        }
        line
    };
    line.push(b'\n');
    Ok(line)
}
