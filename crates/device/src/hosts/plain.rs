//! Files and directories of a host that are on no tier, or may be: what a host would do itself
//! without this software.
//!
//! Threads: plain functions.
#![allow(
    clippy::disallowed_methods,
    reason = "these directories are the host's: no driver of this crate opens them"
)]

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A name in a directory, and its length in bytes; links count as what they lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// The name.
    pub name: String,
    /// Its length.
    pub len: u64,
}

/// The directory of a path, as the system knows it, and the name in it.
pub(super) fn split(path: &Path) -> Result<(PathBuf, String)> {
    let path = std::path::absolute(path).map_err(|error| Error::io("use", path, &error))?;
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(name)) = (path.parent(), name) else {
        let text = format!("the path {} names no file in UTF-8", path.display());
        return Err(Error::new(crate::ErrorKind::Invalid, text));
    };
    Ok((canonical(parent)?, name.to_owned()))
}

pub(super) fn canonical(directory: &Path) -> Result<PathBuf> {
    fs::canonicalize(directory).map_err(|error| Error::io("open the directory", directory, &error))
}

pub(super) fn is_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| Error::io("rename", from, &error))
}

pub(super) fn link(from: &Path, to: &Path) -> Result<()> {
    fs::hard_link(from, to).map_err(|error| Error::io("link", from, &error))
}

/// As [`link`], where a move may put a link of a tier in the place of the file.
pub(super) fn link_file(from: &Path, to: &Path) -> Result<()> {
    link(from, to)?;
    if !fs::symlink_metadata(to).is_ok_and(|metadata| metadata.is_symlink()) {
        return Ok(());
    }
    delete(to)?;
    let text = format!("{} is on a tier; copy it", from.display());
    Err(Error::new(crate::ErrorKind::Invalid, text))
}

pub(super) fn delete(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|error| Error::io("delete", path, &error))
}

pub(super) fn truncate(path: &Path, len: u64) -> Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(len)).map_err(|error| Error::io("truncate", path, &error))
}

pub(super) fn remove_directory(path: &Path) -> Result<()> {
    fs::remove_dir(path).map_err(|error| Error::io("remove the directory", path, &error))
}

pub(super) fn sync_directory(path: &Path) -> Result<()> {
    let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::io("sync the directory", path, &error))
}

/// The name leads nowhere: a link without a file, or to itself.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// All names of a directory, but those that lead nowhere and those that are no UTF-8. What a device
/// does not tell of is listed with length 0: its host hears the error when it opens the file, and
/// would do without a log that was not in the list.
pub(super) fn list(path: &Path) -> Result<Vec<HostEntry>> {
    let failed = |error| Error::io("list the directory", path, &error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        match fs::metadata(entry.path()) {
            Ok(metadata) => entries.push(HostEntry { name, len: metadata.len() }),
            Err(error) if leads_nowhere(&error) => {}
            Err(_) => entries.push(HostEntry { name, len: 0 }),
        }
    }
    Ok(entries)
}

/// Bytes that an ordinary user can still fill.
pub(super) fn free_bytes(path: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(path)
        .map_err(|errno| Error::io("ask for the room of", path, &errno.into()))?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}
