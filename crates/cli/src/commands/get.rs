//! `get KEY`: a value as it is, nothing added.

use crate::arguments::{Database, Get};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{store, text};
use std::os::unix::ffi::OsStrExt;

/// Writes the value to standard output.
pub fn run(database: &Database, arguments: &Get) -> Result<()> {
    let db = store::open_to_read(database)?;
    let key = arguments.key.as_bytes();
    let Some(value) = db.get(key)? else {
        let (key, db) = (text::escape(key), database.db.display());
        return Err(Failure::new(format!("there is no key '{key}' in {db}")));
    };
    let mut output = Output::new();
    output.bytes(&value)?;
    output.finish()?;
    Ok(db.close()?)
}
