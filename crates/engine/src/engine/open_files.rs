//! How many files a store keeps open: what the settings say, or what the process leaves it.
//!
//! A process may have so many descriptors (`ulimit -n`). A store needs some for its directories and
//! their locks, and leaves some to the program; the others are for files. The device layer closes
//! idle tables and slabs beyond the bound and opens them again.

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::settings::{OPEN_FILES_MIN, Settings};
use serde::{Deserialize, Serialize};
use thermocline_device::{OpenFileCounts, TieredFiles};

/// Descriptors besides those of files: the program's own, at the least.
const OF_PROGRAM: u64 = 8;

/// The same of the home and of each tier: the directory, its lock, and a listing of it.
const OF_DIRECTORY: u64 = 3;

/// The files of a store that are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFileStats {
    /// How many there are.
    pub open: u64,
    /// How many of them may stay open; none where there is no bound.
    pub open_max: Option<u64>,
    /// Descriptors that the process may have; none where there is no bound.
    pub descriptors_max: Option<u64>,
    /// Files that were closed because they were idle, and opened again, since opening.
    pub reopened: u64,
}

/// Bounds the open files of a store as its settings say, if the process may have so many.
///
/// # Errors
/// `TooManyOpenFiles` where it may not, in figures.
pub(crate) fn bound(files: &TieredFiles, settings: &Settings) -> Result<()> {
    let limit = files.open_file_counts().limit;
    let directories = files.tiers().len() as u64 + 1;
    let named = Some(u64::from(settings.open_files)).filter(|files| *files > 0);
    if let Some(bound) = bound_of(limit, directories, named)? {
        files.set_open_files_max(bound);
    }
    Ok(())
}

fn bound_of(limit: Option<u64>, directories: u64, named: Option<u64>) -> Result<Option<u64>> {
    let Some(limit) = limit else { return Ok(named) };
    let others = OF_PROGRAM + OF_DIRECTORY * directories;
    let least = named.unwrap_or(OPEN_FILES_MIN);
    if limit < least + others {
        let way_out = named.map_or("", |_| ", or lower open_files");
        let text = format!(
            "the store needs {} descriptors, {least} for files and {others} for directories, locks \
             and the program, but the process may have {limit}: raise the limit (ulimit \
             -n){way_out}",
            least + others,
        );
        return Err(Error::new(ErrorKind::TooManyOpenFiles, text));
    }
    Ok(Some(named.unwrap_or_else(|| (limit / 2).max(OPEN_FILES_MIN))))
}

impl Engine {
    /// See [`OpenFileStats`].
    pub fn open_file_stats(&self) -> OpenFileStats {
        let counts = self.shared.files.open_file_counts();
        let OpenFileCounts { open, open_max, limit, reopened } = counts;
        OpenFileStats { open, open_max, descriptors_max: limit, reopened }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_files_and_what_is_named_must_fit() {
        let bound = |limit, named| bound_of(limit, 3, named);
        assert_eq!(bound(None, None).unwrap(), None);
        assert_eq!(bound(None, Some(40)).unwrap(), Some(40));
        assert_eq!(bound(Some(1 << 20), None).unwrap(), Some(1 << 19));
        assert_eq!(bound(Some(64), None).unwrap(), Some(32));
        assert_eq!(bound(Some(41), None).unwrap(), Some(24), "no fewer than the least");
        assert_eq!(bound(Some(4096), Some(4000)).unwrap(), Some(4000));
        for (limit, named, parts) in [
            (40, None, ["needs 41", "may have 40", "ulimit -n"]),
            (4096, Some(4090), ["needs 4107", "may have 4096", "lower open_files"]),
        ] {
            let error = bound(Some(limit), named).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TooManyOpenFiles);
            assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
        }
    }
}
