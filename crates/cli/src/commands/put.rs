//! `put KEY VALUE|-`: one record, durable when the command ends; with a condition only where that
//! holds.

use crate::arguments::{Database, Put};
use crate::failure::{Failure, Result};
use crate::store;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use thermocline::{Db, Swap, VALUE_BYTES_MAX};

/// Why a condition does not hold.
#[derive(Clone, Copy, Debug)]
enum Unmet {
    IsThere,
    IsAbsent,
    HasAnother,
}

/// Stores the value, making the database where there is none.
pub fn run(database: &Database, arguments: &Put) -> Result<()> {
    // Key and value come first: a wrong input must not leave an empty database behind.
    let key = arguments.keys.format.parse(&arguments.key)?;
    let value =
        if arguments.value == "-" { read_value()? } else { arguments.value.as_bytes().to_vec() };
    // What must be there already is in no database that would be new.
    let must_exist = arguments.if_present || arguments.expect.is_some();
    let db = if must_exist { store::open(database)? } else { store::open_or_create(database)? };
    let unmet = put(&db, arguments, &key, &value)?;
    if unmet.is_none() {
        db.sync()?;
    }
    db.close()?;
    let name = arguments.keys.format.write(&key);
    let name = String::from_utf8_lossy(&name);
    let text = match unmet {
        None => return Ok(()),
        Some(Unmet::IsAbsent) => return Err(arguments.keys.format.missing(&key, database)),
        Some(Unmet::IsThere) => format!("there is a key '{name}' already; nothing was written"),
        Some(Unmet::HasAnother) => {
            format!("the key '{name}' has another value; nothing was written; `get` shows it")
        }
    };
    Err(Failure::new(text))
}

/// Writes the record unless a condition speaks against it.
fn put(db: &Db, arguments: &Put, key: &[u8], value: &[u8]) -> Result<Option<Unmet>> {
    if let Some(expected) = &arguments.expect {
        return Ok(match db.compare_and_swap(key, Some(expected.as_bytes()), Some(value))? {
            Swap::Swapped => None,
            Swap::Found(None) => Some(Unmet::IsAbsent),
            Swap::Found(Some(_)) => Some(Unmet::HasAnother),
        });
    }
    if arguments.if_absent {
        return Ok((!db.put_if_absent(key, value)?).then_some(Unmet::IsThere));
    }
    if arguments.if_present {
        return Ok((!db.put_if_present(key, value)?).then_some(Unmet::IsAbsent));
    }
    db.put(key, value)?;
    Ok(None)
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
