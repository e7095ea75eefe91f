//! The directory of a trial: made anew, and cleared only where an earlier trial made it.
//!
//! Invariants:
//! 1. Nothing is deleted unless the directory holds the mark of a trial, and nothing that could not
//!    be a file of a trial's store. One unknown name, and nothing at all is deleted.
//! 2. A store that another process has open is left alone.

use crate::failure::{Failure, Result};
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, ErrorKind};
use thermocline_device::drivers::{self, DriverSpec, host_files};
use thermocline_device::{Driver, FileKind};
use thermocline_foundation::{Clock, SystemClock};

/// The file that marks a trial's directory.
const MARK_NAME: &str = "MADE-BY-TRY";
const MARK_TEXT: &str = "This store was made by 'thermocline try', which may replace it.\n";
const TIERS: [&str; 2] = ["fast", "slow"];

/// Files of a store's home.
const HOME_NAMES: [&str; 6] =
    [MARK_NAME, "DATABASE", "CREATING", "settings.toml", "LOCK", "live-stats.json"];
/// Files of a tier besides its numbered ones.
const TIER_NAMES: [&str; 2] = ["TIER", "LOCK"];

/// Marks the store at `home` as a trial's.
pub fn mark(home: &Path) -> Result<()> {
    Ok(host_files::write_text(&home.join(MARK_NAME), MARK_TEXT)?)
}

/// Makes way for a new trial at `home` by removing an earlier one; fails where it is anything else.
pub fn clear(home: &Path) -> Result<()> {
    let way_out = "name another directory with --db, or move it away";
    let in_use = |what: String| Failure::new(format!("{}: {what}; {way_out}", home.display()));
    let marked = host_files::read(&home.join(MARK_NAME), 4096)
        .is_ok_and(|text| text == MARK_TEXT.as_bytes());
    if !marked {
        return match first_entry(home)? {
            None => Ok(()),
            Some(_) if Db::exists(home)? => {
                Err(in_use("there is a database that 'thermocline try' did not make".to_owned()))
            }
            Some(name) => Err(in_use(format!("the directory is not empty, it holds {name}"))),
        };
    }
    if let Some(name) = unknown_entry(home)? {
        return Err(in_use(format!("{name} is not part of a trial's store")));
    }
    // Opening it takes its locks; any other trouble with it ends with its removal.
    if let Err(error) = Db::open(home).and_then(Db::close)
        && error.kind() == ErrorKind::Locked
    {
        return Err(error.into());
    }
    for tier in TIERS {
        empty(&home.join(tier))?;
    }
    empty(home)
}

/// The driver of a directory; none where there is no directory.
fn driver(path: &Path) -> Result<Option<Arc<dyn Driver>>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    match DriverSpec::Posix.open(path, clock) {
        Ok(driver) => Ok(Some(driver)),
        Err(error) if error.kind() == thermocline_device::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A plain file anywhere below `home`.
fn first_entry(home: &Path) -> Result<Option<String>> {
    if driver(home)?.is_none() {
        return Ok(None);
    }
    match host_files::walk(home).next() {
        None => Ok(None),
        Some(Ok(file)) => Ok(Some(file.path.display().to_string())),
        Some(Err(error)) => Err(error.into()),
    }
}

/// A file below `home` that no store of a trial would have.
fn unknown_entry(home: &Path) -> Result<Option<String>> {
    for file in host_files::walk(home) {
        let path = file?.path;
        let inside = path.strip_prefix(home).unwrap_or(&path);
        let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
        let known = match parts[..] {
            [name] => is_home_file(name),
            [tier, name] => TIERS.contains(&tier) && is_tier_file(name),
            _ => false,
        };
        if !known {
            return Ok(Some(path.display().to_string()));
        }
    }
    Ok(None)
}

fn is_home_file(name: &str) -> bool {
    // A replaced file may have left its temporary form behind.
    HOME_NAMES.iter().any(|known| name.strip_prefix(known).is_some_and(is_ending))
}

fn is_ending(rest: &str) -> bool {
    rest.is_empty() || (rest.starts_with('.') && (rest.ends_with(".tmp") || rest == ".new"))
}

fn is_tier_file(name: &str) -> bool {
    let numbered = name.split_once('.').is_some_and(|(number, ending)| {
        number.len() >= 8
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && FileKind::from_extension(ending).is_some()
    });
    numbered || TIER_NAMES.iter().any(|known| name.strip_prefix(known).is_some_and(is_ending))
}

/// Deletes the files of a directory, then the directory.
fn empty(path: &Path) -> Result<()> {
    let Some(driver) = driver(path)? else {
        return Ok(());
    };
    for entry in driver.list()? {
        driver.delete(&entry.name)?;
    }
    drop(driver);
    Ok(drivers::remove_empty_directory(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_a_store_count_as_a_trials_files() {
        for name in ["DATABASE", MARK_NAME, "settings.toml", "DATABASE.12-0.tmp", "DATABASE.new"] {
            assert!(is_home_file(name), "{name}");
        }
        assert!(is_home_file("live-stats.json") && is_home_file("live-stats.json.new"));
        for name in ["notes.txt", "DATABASE2", "MADE-BY-TRY.bak", ".bashrc"] {
            assert!(!is_home_file(name), "{name}");
        }
        let numbered = ["00000012.table", "000000001234.log", "00000003.slab", "00000004.index"];
        for name in numbered.into_iter().chain(["TIER", "LOCK"]) {
            assert!(is_tier_file(name), "{name}");
        }
        for name in ["12.table", "00000012.tables", "0000001x.log", "photo.jpg"] {
            assert!(!is_tier_file(name), "{name}");
        }
    }

    #[test]
    fn a_directory_that_no_trial_made_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        clear(home.path()).unwrap();
        clear(&home.path().join("absent")).unwrap();
        let precious = home.path().join("thesis.txt");
        host_files::write_text(&precious, "years of work").unwrap();
        let error = clear(home.path()).unwrap_err().to_string();
        assert!(error.contains("thesis.txt") && error.contains("--db"), "{error}");
        // Not even a mark makes it a trial's.
        mark(home.path()).unwrap();
        let error = clear(home.path()).unwrap_err().to_string();
        assert!(error.contains("thesis.txt"), "{error}");
        assert_eq!(host_files::read(&precious, 100).unwrap(), b"years of work");
    }
}
