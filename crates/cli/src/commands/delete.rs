//! `delete KEY`: the key is gone when the command ends, whether it was there or not.

use crate::arguments::{Database, Delete};
use crate::failure::Result;
use crate::store;
use std::os::unix::ffi::OsStrExt;

/// Removes the key.
pub fn run(database: &Database, arguments: &Delete) -> Result<()> {
    let db = store::open(database)?;
    db.delete(arguments.key.as_bytes())?;
    db.sync()?;
    Ok(db.close()?)
}
