//! Directories of the benchmark itself: copied, removed, measured.
//!
//! Stores under test bring their own files, written in any way, so nothing but the file system's
//! own view is used: plain copies that keep holes, and links as they are. A copy shares blocks with
//! its source where the file system can (a reflink), never names: stores change files in place, and
//! a hard link would carry that back into the source. Copies are synced and dropped from the page
//! cache, so that what is measured afterwards does not pay for them or profit from them.
//!
//! Threads: any; two must not write below one directory.

use crate::{Failure, Outcome};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thermocline_device::drivers::{create_directory, host_files};
use thermocline_foundation::ByteSize;

/// Bytes copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Text of the system is never longer.
const SYSTEM_TEXT_BYTES_MAX: u64 = 1 << 20;

fn failed(what: &str, path: &Path, errno: Errno) -> Failure {
    format!("cannot {what} {}: {errno}", path.display()).into()
}

/// The text of a small file of the system, such as those of `/proc`.
pub fn system_text(path: &str) -> Option<String> {
    let bytes = host_files::read(Path::new(path), SYSTEM_TEXT_BYTES_MAX).ok()?;
    String::from_utf8(bytes).ok()
}

/// Names and types in a directory, sorted; none where it does not exist.
fn entries(path: &Path) -> Outcome<Option<Vec<(PathBuf, FileType)>>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed("list", path, errno)),
    };
    let listing = Dir::new(opened).map_err(|errno| failed("list", path, errno))?;
    let mut found = Vec::new();
    for entry in listing {
        let entry = entry.map_err(|errno| failed("list", path, errno))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let inner = path.join(OsStr::from_bytes(name));
        let stat = match rustix::fs::statat(CWD, &inner, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since the directory was read: a store is still at work.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed("look at", &inner, errno)),
        };
        found.push((inner, FileType::from_raw_mode(stat.st_mode)));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Some(found))
}

/// The directories in `path`; none where it does not exist.
pub fn folders(path: &Path) -> Outcome<Vec<PathBuf>> {
    let found = entries(path)?.unwrap_or_default();
    let folders = found.into_iter().filter(|(_, kind)| *kind == FileType::Directory);
    Ok(folders.map(|(path, _)| path).collect())
}

/// Makes the directory `path` and those above it.
pub fn make(path: &Path) -> Outcome<()> {
    Ok(create_directory(path)?)
}

/// Removes `path` and everything below it; fine where there is nothing. Links are not followed.
pub fn remove(path: &Path) -> Outcome<()> {
    let Some(found) = entries(path)? else { return Ok(()) };
    for (inner, kind) in found {
        if kind == FileType::Directory {
            remove(&inner)?;
        } else {
            rustix::fs::unlink(&inner).map_err(|errno| failed("remove", &inner, errno))?;
        }
    }
    rustix::fs::rmdir(path).map_err(|errno| failed("remove", path, errno))
}

/// Copies everything below `from` to the new or empty directory `to`; returns the bytes copied.
pub fn copy(from: &Path, to: &Path) -> Outcome<u64> {
    make(to)?;
    let found = entries(from)?.ok_or_else(|| format!("there is no {}", from.display()))?;
    let mut bytes = 0;
    for (inner, kind) in found {
        let target = to.join(inner.file_name().unwrap_or_default());
        match kind {
            FileType::Directory => bytes += copy(&inner, &target)?,
            FileType::RegularFile => bytes += copy_file(&inner, &target)?,
            FileType::Symlink => copy_link(&inner, &target)?,
            // A program that needs a socket or the like makes it anew.
            _ => {}
        }
    }
    Ok(bytes)
}

/// The copy says what the link says: where both are copied to the same paths, it leads to the copy.
fn copy_link(from: &Path, to: &Path) -> Outcome<()> {
    let text = rustix::fs::readlink(from, Vec::new());
    let text = text.map_err(|errno| failed("read the link", from, errno))?;
    rustix::fs::symlink(text, to).map_err(|errno| failed("make the link", to, errno))
}

fn copy_file(from: &Path, to: &Path) -> Outcome<u64> {
    let reads = OFlags::RDONLY | OFlags::CLOEXEC;
    let source = rustix::fs::open(from, reads, Mode::empty());
    let source = source.map_err(|errno| failed("open", from, errno))?;
    let writes = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = rustix::fs::open(to, writes, Mode::from_bits_retain(0o644));
    let target = target.map_err(|errno| failed("create", to, errno))?;
    let stat = rustix::fs::fstat(&source).map_err(|errno| failed("look at", from, errno))?;
    let copied = match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => stat.st_size as u64,
        Err(_) => copy_data(&source, &target, stat.st_size as u64)
            .map_err(|errno| failed("copy to", to, errno))?,
    };
    rustix::fs::fsync(&target).map_err(|errno| failed("sync", to, errno))?;
    for descriptor in [source.as_fd(), target.as_fd()] {
        // Advice: where it is not taken the cache is a little warmer.
        let _ =
            rustix::fs::fadvise(descriptor, 0, NonZeroU64::new(u64::MAX >> 1), Advice::DontNeed);
    }
    Ok(copied)
}

/// Copies what is not a hole; returns how much that was.
fn copy_data(source: &OwnedFd, target: &OwnedFd, len: u64) -> Result<u64, Errno> {
    rustix::fs::ftruncate(target, len)?;
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, mut copied) = (0, 0);
    while at < len {
        let begin = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // Nothing but a hole from here to the end.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => at,
            Err(errno) => return Err(errno),
        };
        let end = match rustix::fs::seek(source, SeekFrom::Hole(begin)) {
            Ok(end) => end.min(len),
            Err(Errno::INVAL) => len,
            Err(errno) => return Err(errno),
        };
        at = begin;
        while at < end {
            let want = (end - at).min(PIECE_BYTES as u64) as usize;
            let got = rustix::io::pread(source, &mut piece[..want], at)?;
            if got == 0 {
                return Ok(copied);
            }
            let mut written = 0;
            while written < got {
                written += rustix::io::pwrite(target, &piece[written..got], at + written as u64)?;
            }
            at += got as u64;
            copied += got as u64;
        }
    }
    Ok(copied)
}

/// Bytes that the file system has allocated for the files below `path`; 0 where it is missing.
pub fn allocated_bytes(path: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for (inner, kind) in entries(path)?.unwrap_or_default() {
        bytes += match kind {
            FileType::Directory => allocated_bytes(&inner)?,
            _ => rustix::fs::statat(CWD, &inner, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(0, |stat| stat.st_blocks as u64 * 512),
        };
    }
    Ok(bytes)
}

/// Room on the file system of `path`, which must exist.
pub fn free_space(path: &Path) -> Outcome<ByteSize> {
    let stat = rustix::fs::statvfs(path).map_err(|errno| failed("look at", path, errno))?;
    Ok(ByteSize(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

/// Whether two paths are on one file system.
pub fn same_file_system(a: &Path, b: &Path) -> Outcome<bool> {
    let device = |path: &Path| {
        rustix::fs::stat(path).map(|stat| stat.st_dev).map_err(|e| failed("look at", path, e))
    };
    Ok(device(a)? == device(b)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_bytes_and_holes_and_is_independent() {
        let scratch = tempfile::tempdir().unwrap();
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        make(&from.join("deep/er")).unwrap();
        host_files::write_text(&from.join("deep/er/text"), "hello").unwrap();
        let sparse = from.join("sparse");
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = rustix::fs::open(&sparse, flags, Mode::from_bits_retain(0o644)).unwrap();
        rustix::fs::ftruncate(&file, 64 << 20).unwrap();
        rustix::io::pwrite(&file, b"middle", 32 << 20).unwrap();
        rustix::fs::symlink("deep/er", from.join("link")).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(host_files::read(&to.join("deep/er/text"), 10).unwrap(), b"hello");
        let link = rustix::fs::readlink(to.join("link"), Vec::new()).unwrap();
        assert_eq!(&*link, c"deep/er");
        let copied = host_files::read(&to.join("sparse"), 64 << 20).unwrap();
        assert_eq!(copied.len(), 64 << 20);
        assert_eq!(&copied[32 << 20..(32 << 20) + 6], b"middle");
        assert_eq!(copied.iter().filter(|byte| **byte != 0).count(), 6);
        assert!(allocated_bytes(&to).unwrap() < 4 << 20, "holes stay holes");
        rustix::io::pwrite(&file, b"changed", 0).unwrap();
        assert_eq!(host_files::read(&to.join("sparse"), 64 << 20).unwrap()[0], 0);
        remove(&to).unwrap();
        remove(&to).unwrap();
        assert!(!to.exists() && from.exists());
        assert!(
            free_space(&from).unwrap().0 > 0 && same_file_system(&from, scratch.path()).unwrap()
        );
        let error = copy(&to, &from).unwrap_err().to_string();
        assert!(error.contains("there is no"), "{error}");
    }
}
