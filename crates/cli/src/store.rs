//! Opening and making the database that the arguments name.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use thermocline::{Db, Settings};
use thermocline_device::drivers::host_files;

/// Longest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The settings the arguments ask for, and whether they ask for any.
fn settings(arguments: &Database) -> Result<(Settings, bool)> {
    let mut settings = match &arguments.config {
        Some(path) => {
            let bytes = host_files::read(path, CONFIG_BYTES_MAX)?;
            let text = String::from_utf8(bytes).map_err(|error| {
                let at = error.utf8_error().valid_up_to();
                Failure::new(format!(
                    "{}: not UTF-8 at byte {at}; is it TOML?",
                    path.display()
                ))
            })?;
            Settings::from_toml(&text, path)?
        }
        None => Settings::default(),
    };
    if !arguments.tier.is_empty() {
        settings.tiers.splice(0..0, arguments.tier.iter().cloned());
    }
    // A database outlives the directory its maker stood in.
    for tier in &mut settings.tiers {
        tier.path = absolute(&tier.path)?;
    }
    settings.check()?;
    Ok((
        settings,
        arguments.config.is_some() || !arguments.tier.is_empty(),
    ))
}

/// `path` from the root of the file system on.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("cannot tell where {} is: {error}", path.display())))
}

/// Opens the database; an error with the way out where there is none.
pub fn open(arguments: &Database) -> Result<Db> {
    if !Db::exists(&arguments.db)? {
        let db = arguments.db.display();
        return Err(Failure::new(format!(
            "there is no database at {db}; name another with --db, or make one with 'load' or 'put'"
        )));
    }
    open_existing(arguments)
}

/// Opens the database, or makes it as the arguments say.
pub fn open_or_create(arguments: &Database) -> Result<Db> {
    if Db::exists(&arguments.db)? {
        return open_existing(arguments);
    }
    let (settings, _) = settings(arguments)?;
    Ok(Db::create(&arguments.db, &settings)?)
}

fn open_existing(arguments: &Database) -> Result<Db> {
    let (settings, given) = settings(arguments)?;
    if given {
        return Ok(Db::open_with(&arguments.db, &settings)?);
    }
    Ok(Db::open(&arguments.db)?)
}
