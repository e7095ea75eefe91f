//! `delete KEY`: the key is gone when the command ends. A key that was not there is a failure, as
//! of `get`, and nothing is written.

use crate::arguments::{Database, Delete};
use crate::failure::Result;
use crate::store;

/// Removes the key.
pub fn run(database: &Database, arguments: &Delete) -> Result<()> {
    let format = arguments.keys.format;
    let key = format.parse(&arguments.key)?;
    let db = store::open(database)?;
    if db.get(&key)?.is_none() {
        db.close()?;
        return Err(format.missing(&key, database));
    }
    db.delete(&key)?;
    db.sync()?;
    Ok(db.close()?)
}
