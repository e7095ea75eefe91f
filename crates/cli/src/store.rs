//! Opening and making the database that the arguments name.

use crate::arguments::Database;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use thermocline::{CacheCapacity, Db, ErrorKind, Preset, Settings};
use thermocline_device::drivers::host_files;

/// Longest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The settings that `path` holds.
fn read_settings(path: &Path) -> Result<Settings> {
    let bytes = host_files::read(path, CONFIG_BYTES_MAX)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::new(format!("{}: not UTF-8 at byte {at}; is it TOML?", path.display()))
    })?;
    Ok(Settings::from_toml(&text, path)?)
}

/// `settings` with the tiers and the preset of the command line, if it names any.
fn with_named(mut settings: Settings, arguments: &Database) -> Result<Settings> {
    if !arguments.tier.is_empty() {
        settings.tiers.clone_from(&arguments.tier);
    }
    settings.preset = arguments.preset.or(settings.preset);
    // A database outlives the directory its maker stood in.
    for tier in &mut settings.tiers {
        tier.path = absolute(&tier.path)?;
    }
    settings.check()?;
    Ok(settings)
}

/// `path` from the root of the file system on.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Failure::new(format!("cannot tell where {} is: {error}", path.display())))
}

/// Opens the database; an error with the way out where there is none.
pub fn open(arguments: &Database) -> Result<Db> {
    let home = home(arguments)?;
    let settings = named_settings(&home, arguments)?;
    Ok(open_as(&home, settings.as_ref(), arguments.read_only)?)
}

/// Refuses a command that changes the database where it is to be opened for reading only.
pub fn require_writing(arguments: &Database) -> Result<()> {
    if arguments.read_only {
        let text = "the database is to be opened for reading only, and this changes it; leave out \
                    --read-only, which opens it for writing";
        return Err(Failure::new(text));
    }
    Ok(())
}

/// As [`open`], with another size of the cache of blocks on the fast tier, which the database
/// keeps.
pub fn open_resized(arguments: &Database, capacity: CacheCapacity) -> Result<Db> {
    let home = home(arguments)?;
    let named = named_settings(&home, arguments)?;
    let mut settings = named.map_or_else(|| Db::kept_settings(&home), Ok)?;
    settings.fast_cache.capacity = capacity;
    settings.check()?;
    Ok(open_as(&home, Some(&settings), arguments.read_only)?)
}

/// Where the database is, and the settings that replace its own, for a command that opens it as a
/// whole.
pub fn home_and_settings(arguments: &Database) -> Result<(PathBuf, Option<Settings>)> {
    let home = home(arguments)?;
    let settings = named_settings(&home, arguments)?;
    Ok((home, settings))
}

/// As [`open`], for a command that changes nothing: for reading only where nothing can be written.
pub fn open_to_read(arguments: &Database) -> Result<Db> {
    let home = home(arguments)?;
    let settings = named_settings(&home, arguments)?;
    match open_as(&home, settings.as_ref(), arguments.read_only) {
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnly | ErrorKind::Denied) => {
            Ok(open_as(&home, settings.as_ref(), true)?)
        }
        opened => Ok(opened?),
    }
}

/// Where the database is; an error with the way out where there is none.
pub fn home(arguments: &Database) -> Result<PathBuf> {
    let home = absolute(&arguments.db)?;
    if Db::exists(&home)? {
        return Ok(home);
    }
    let home = arguments.db.display();
    Err(Failure::new(format!(
        "there is no database at {home}; name another with --db, or make one with 'load' or 'put'"
    )))
}

/// Opens the database, or makes it as the arguments say.
pub fn open_or_create(arguments: &Database) -> Result<Db> {
    let home = absolute(&arguments.db)?;
    if Db::exists(&home)? || arguments.read_only {
        return open(arguments);
    }
    let settings = match &arguments.config {
        Some(path) => read_settings(path)?,
        None => Settings::default(),
    };
    let settings = with_named(settings, arguments)?;
    // Before anything is made; an existing database knows its tiers.
    if settings.preset == Some(Preset::Hybrid) && settings.tiers.len() < 2 {
        return Err(Failure::Usage(
            "the preset hybrid wants a fast tier and a slow one; name both with --tier".to_owned(),
        ));
    }
    Ok(Db::create(&home, &settings)?)
}

/// An existing database knows its tiers and settings; what the arguments name replaces them. None
/// where they name nothing.
fn named_settings(home: &Path, arguments: &Database) -> Result<Option<Settings>> {
    let settings = match &arguments.config {
        Some(path) => read_settings(path)?,
        None if arguments.tier.is_empty() && arguments.preset.is_none() => return Ok(None),
        None => Db::kept_settings(home)?,
    };
    with_named(settings, arguments).map(Some)
}

fn open_as(
    home: &Path,
    settings: Option<&Settings>,
    read_only: bool,
) -> Result<Db, thermocline::Error> {
    match (settings, read_only) {
        (None, false) => Db::open(home),
        (Some(settings), false) => Db::open_with(home, settings),
        (None, true) => Db::open_read_only(home),
        (Some(settings), true) => Db::builder().settings(settings.clone()).open_read_only(home),
    }
}
