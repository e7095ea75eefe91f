//! `put KEY VALUE|-`: one record, durable when the command ends.

use crate::arguments::{Database, Put};
use crate::failure::{Failure, Result};
use crate::store;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use thermocline::VALUE_BYTES_MAX;

/// Stores the value, making the database where there is none.
pub fn run(database: &Database, arguments: &Put) -> Result<()> {
    // Key and value come first: a wrong input must not leave an empty database behind.
    let key = arguments.keys.format.parse(&arguments.key)?;
    let value =
        if arguments.value == "-" { read_value()? } else { arguments.value.as_bytes().to_vec() };
    let db = store::open_or_create(database)?;
    db.put(&key, value)?;
    db.sync()?;
    Ok(db.close()?)
}

/// All of standard input, if it fits a value.
fn read_value() -> Result<Vec<u8>> {
    let mut value = Vec::new();
    std::io::stdin()
        .lock()
        .take(VALUE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut value)
        .map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::new(format!(
            "standard input is longer than the limit of {VALUE_BYTES_MAX} bytes (256 MiB); split it"
        )));
    }
    Ok(value)
}
