//! Files that are not the store's own: input of a loader, a configuration, a report.
//!
//! The store's files go through a driver. These do not: they have any name in any directory, are
//! read from one end to the other, and no crash test covers them. They pass through here so that no
//! other crate needs `std::fs`.
//!
//! Threads: any.

use super::directories::sync_parent;
use super::disk::failure;
use crate::error::{Error, ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens `path` to be read from its start; wrap it in a `BufReader` for small reads. Works on
/// pipes and devices too.
pub fn open_reader(path: &Path) -> Result<Box<dyn Read + Send>> {
    Ok(Box::new(File::from(open_plain(path)?)))
}

/// Reads all of `path`; an error of kind `Invalid` where it holds more than `len_max` bytes.
pub fn read(path: &Path, len_max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut limited = File::from(open_plain(path)?).take(len_max.saturating_add(1));
    limited.read_to_end(&mut bytes).map_err(|error| Error::io("read", path, &error))?;
    if bytes.len() as u64 > len_max {
        let text = format!("{} is longer than the {len_max} bytes expected", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(bytes)
}

/// Puts `text` at `path`, replacing what was there: a reader sees the old file or the new one,
/// whole, also after a power cut.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    // Two writers of one path, in one process or in two, must not share the temporary file.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        let text = format!("cannot write {}: it names no file", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    };
    let mut temporary = name.to_os_string();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{number}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from_bits_retain(0o644);
    let opened = retry_on_intr(|| rustix::fs::open(&temporary, flags, mode));
    let mut file = File::from(opened.map_err(|errno| failure("create", &temporary, errno))?);
    let replaced = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|error| Error::io("write", &temporary, &error))
        .and_then(|()| {
            rustix::fs::rename(&temporary, path).map_err(|errno| failure("replace", path, errno))
        });
    if replaced.is_err() {
        // The first error is the one to report; a leftover is harmless.
        let _ = rustix::fs::unlink(&temporary);
    }
    replaced.and_then(|()| sync_parent(path))
}

fn open_plain(path: &Path) -> Result<OwnedFd> {
    let failed = |errno| failure("open", path, errno);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    // Linux opens a directory and fails at the first read, which would blame the wrong call.
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return Err(failed(Errno::ISDIR));
    }
    Ok(file)
}

/// A plain file found by [`walk`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// From the path given to the walk downwards.
    pub path: PathBuf,
    /// Length in bytes.
    pub len: u64,
}

/// Every plain file at or below `path`, each directory's in the order of their names. Symbolic
/// links are not followed, except `path` itself. A directory that cannot be read is one error, and
/// the walk goes on after it.
pub fn walk(path: &Path) -> Walk {
    Walk { pending: vec![path.to_owned()], started: false }
}

/// The files below a directory; see [`walk`].
#[derive(Debug)]
pub struct Walk {
    /// Paths not yet looked at, the next one last.
    pending: Vec<PathBuf>,
    started: bool,
}

impl Walk {
    /// The file at `path`, if it is one; a directory's entries are put on the list instead.
    fn visit(&mut self, path: PathBuf) -> Result<Option<HostFile>> {
        let follow = if self.started { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        let top = !std::mem::replace(&mut self.started, true);
        let stat = match rustix::fs::statat(CWD, &path, follow) {
            Ok(stat) => stat,
            // Removed since its directory was read.
            Err(Errno::NOENT) if !top => return Ok(None),
            Err(errno) => return Err(failure("look at", &path, errno)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(HostFile { path, len: stat.st_size as u64 })),
            FileType::Directory => self.descend(&path).map(|()| None),
            _ => Ok(None),
        }
    }

    fn descend(&mut self, path: &Path) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let failed = |errno| failure("list directory", path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        let listing = Dir::new(opened.map_err(failed)?).map_err(failed)?;
        let first = self.pending.len();
        for entry in listing {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.pending.push(path.join(std::ffi::OsStr::from_bytes(name)));
            }
        }
        self.pending[first..].sort_unstable_by(|a, b| b.cmp(a));
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<HostFile>;

    fn next(&mut self) -> Option<Result<HostFile>> {
        while let Some(path) = self.pending.pop() {
            match self.visit(path) {
                Ok(None) => {}
                Ok(Some(file)) => return Some(Ok(file)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::directories::create_directory;
    use super::*;

    #[test]
    fn text_is_replaced_whole_and_leaves_no_temporary_file() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("report.txt");
        write_text(&path, "a long first text").unwrap();
        write_text(&path, "short").unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"short");
        let mut streamed = String::new();
        open_reader(&path).unwrap().read_to_string(&mut streamed).unwrap();
        assert_eq!(streamed, "short");
        let found: Vec<HostFile> = walk(scratch.path()).collect::<Result<_>>().unwrap();
        assert_eq!(found, [HostFile { path, len: 5 }]);
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_file_and_cleans_up() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("taken");
        create_directory(&target.join("inside")).unwrap();
        let error = write_text(&target, "text").unwrap_err();
        assert!(error.to_string().contains("taken"), "{error}");
        assert_eq!(walk(scratch.path()).count(), 0);
        assert_eq!(write_text(Path::new("/"), "x").unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn reading_names_the_path_and_bounds_the_length() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("input");
        write_text(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().kind(), ErrorKind::Invalid);
        assert!(read(&path, u64::MAX).is_ok());
        let error = read(&scratch.path().join("absent"), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("absent"), "{error}");
        let error = open_reader(scratch.path()).err().unwrap();
        assert!(error.to_string().contains("directory"), "{error}");
    }

    #[test]
    fn a_walk_is_ordered_descends_and_follows_no_link_below() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join("tree").join(name);
        create_directory(&at("b/deep")).unwrap();
        for name in ["z", "a", "b/deep/1", "b/0"] {
            write_text(&at(name), name).unwrap();
        }
        std::os::unix::fs::symlink(scratch.path(), at("b/loop")).unwrap();
        std::os::unix::fs::symlink(at("z"), at("c")).unwrap();
        let found: Vec<HostFile> = walk(&at("")).collect::<Result<_>>().unwrap();
        let paths: Vec<_> = found.iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths, [at("a"), at("b/0"), at("b/deep/1"), at("z")]);
        assert_eq!(found[2].len, 8);
        let single: Vec<HostFile> = walk(&at("c")).collect::<Result<_>>().unwrap();
        assert_eq!(single[0].len, 1, "the path given may be a link");
        assert!(walk(&at("missing")).next().unwrap().is_err());
    }
}
