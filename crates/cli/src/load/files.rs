//! Files of a directory: path -> content.
//!
//! The key is the path as `find DIR` would print it. Symbolic links are not followed, and what is
//! neither file nor directory is passed over.

use super::loader::{Loader, refusal};
use crate::failure::{Failure, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use thermocline::VALUE_BYTES_MAX;
use thermocline_device::drivers::host_files::{self, HostFile};

/// Files to be loaded.
#[derive(Debug, Default)]
pub struct Found {
    files: Vec<HostFile>,
    /// Directories that could not be read.
    skipped: u64,
}

impl Found {
    /// Bytes of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }
}

/// Lists the files below `directories`. With `skip`, directories that cannot be read are left out.
pub fn find(directories: &[PathBuf], skip: bool) -> Result<Found> {
    let mut found = Found::default();
    for directory in directories {
        for (index, file) in host_files::walk(directory).enumerate() {
            match file {
                Ok(file) => found.files.push(file),
                // Where the directory named is itself missing, leaving it out would be a lie.
                Err(_) if skip && index > 0 => found.skipped += 1,
                Err(error) => return Err(unreadable(error)),
            }
        }
    }
    Ok(found)
}

fn unreadable(error: impl Into<Failure>) -> Failure {
    error.into().and("make it readable, or leave such files out with --skip")
}

/// Loads every file found.
pub fn load(found: Found, skip: bool, loader: &mut Loader) -> Result<()> {
    (0..found.skipped).for_each(|_| loader.skip());
    for file in found.files {
        let key = file.path.as_os_str().as_bytes();
        if let Some(refusal) = refusal(key.len(), file.len) {
            if !skip {
                let text = format!("{}: {refusal}", file.path.display());
                return Err(Failure::new(text).and("leave such files out with --skip"));
            }
            loader.skip();
            loader.advance(file.len);
            continue;
        }
        match host_files::read(&file.path, VALUE_BYTES_MAX as u64) {
            Ok(content) => loader.put(key, &content)?,
            Err(_) if skip => loader.skip(),
            Err(error) => return Err(unreadable(error)),
        }
        loader.advance(file.len);
    }
    Ok(())
}
