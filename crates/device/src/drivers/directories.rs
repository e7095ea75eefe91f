//! Directories themselves: made, removed, looked at.
//!
//! A driver never makes its directory, because a missing one may be a device that is not mounted
//! (house rule 7): a caller that asks for a directory here has decided that it is to be new.
//!
//! Threads: any.

use super::disk::failure;
use crate::error::Result;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use std::path::{Path, PathBuf};

/// Makes the directory `path` and those above it that are missing, and makes each durable. One
/// that exists already is fine; a file of that name is an error.
pub fn create_directory(path: &Path) -> Result<()> {
    let mut missing: Vec<PathBuf> = Vec::new();
    let mut ancestor = Some(path);
    while let Some(directory) = ancestor.filter(|directory| !directory.as_os_str().is_empty()) {
        match rustix::fs::stat(directory) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => break,
            Ok(_) => return Err(failure("make directory", directory, Errno::NOTDIR)),
            Err(Errno::NOENT) => missing.push(directory.to_owned()),
            Err(errno) => return Err(failure("make directory", directory, errno)),
        }
        ancestor = directory.parent();
    }
    for directory in missing.iter().rev() {
        match rustix::fs::mkdir(directory, Mode::from_bits_retain(0o755)) {
            // Another process may make it at the same time.
            Ok(()) | Err(Errno::EXIST) => sync_parent(directory)?,
            Err(errno) => return Err(failure("make directory", directory, errno)),
        }
    }
    Ok(())
}

/// Removes the directory `path`, which must be empty, and makes that durable.
pub fn remove_empty_directory(path: &Path) -> Result<()> {
    rustix::fs::rmdir(path).map_err(|errno| failure("remove directory", path, errno))?;
    sync_parent(path)
}

/// Whether a file system is mounted at `path` itself.
pub fn directory_is_mount_point(path: &Path) -> Result<bool> {
    let failed = |errno| failure("look at directory", path, errno);
    let asked = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    if let Ok(stat) = &asked
        && stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
    {
        return Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Linux before 5.8: another device above, or nothing above at all. Misses bind mounts.
    let here = rustix::fs::stat(path).map_err(failed)?;
    let above = rustix::fs::stat(path.join("..")).map_err(failed)?;
    Ok(here.st_dev != above.st_dev || here.st_ino == above.st_ino)
}

/// Makes the name of `path` durable in the directory that holds it.
pub(super) fn sync_parent(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(parent, flags, Mode::empty()))
        .and_then(|descriptor| retry_on_intr(|| rustix::fs::fsync(&descriptor)))
        .map_err(|errno| failure("sync directory", parent, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn directories_are_made_with_those_above_and_removed_only_when_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let (outer, inner) = (scratch.path().join("a"), scratch.path().join("a/b"));
        create_directory(&inner).unwrap();
        create_directory(&inner).unwrap();
        assert!(inner.is_dir());
        let error = remove_empty_directory(&outer).unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        remove_empty_directory(&inner).unwrap();
        remove_empty_directory(&outer).unwrap();
        assert!(!outer.exists());
        assert_eq!(remove_empty_directory(&outer).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_in_the_way_of_a_directory_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("file");
        super::super::host_files::write_text(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = create_directory(&path).unwrap_err();
            assert!(error.to_string().contains("file"), "{error}");
        }
    }

    #[test]
    fn mount_points_are_told_from_directories() {
        let scratch = tempfile::tempdir().unwrap();
        assert!(directory_is_mount_point(Path::new("/proc")).unwrap());
        assert!(directory_is_mount_point(Path::new("/")).unwrap());
        assert!(!directory_is_mount_point(scratch.path()).unwrap());
        assert!(directory_is_mount_point(&scratch.path().join("missing")).is_err());
    }
}
