//! A file mapped into memory: the region of persistent memory (docs/formats/region.md).
//!
//! The mapping is asked for with `MAP_SYNC` first. The kernel grants it only over DAX, and then a
//! line that left the processor's caches is durable, with all that finding it again needs. Where it
//! is refused the same bytes are mapped through the page cache: they survive the end of the
//! process, and after [`Mapping::sync`] the end of the power.
//!
//! ```text
//!   create   new file `NAME.unfinished`, filled with zeros, synced; renamed, its name too; then as
//!            open. Where that fails there is no file; what a crash leaves of it is taken over by
//!            the next attempt
//!   open     lock, MAP_SHARED_VALIDATE | MAP_SYNC; refused: MAP_SHARED
//! ```
//! 1. The bytes are seen as words, all of them atomic: no reference to plain memory exists, so any
//!    thread may read while another writes.
//! 2. A new file is written before it is mapped. Its blocks exist, and no first touch of a page
//!    changes metadata later, which under `MAP_SYNC` would wait for the file system's journal.
//! 3. The file is locked as long as it is mapped. A file that another program makes shorter is
//!    beyond help: the kernel ends the process at the next touch.
//!
//! Threads: any.
#![allow(unsafe_code)]

use super::directories::sync_parent;
use super::disk::failure;
use crate::error::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, fallocate, flock, fstat,
    renameat_with,
};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Bytes that a mapping's length is a multiple of.
pub const MAPPED_UNIT_BYTES: u64 = 4096;

const ZEROS_BYTES: usize = 1 << 20;

/// A file whose bytes are memory.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
    is_synchronous: bool,
    path: PathBuf,
    // Holds the lock.
    file: OwnedFd,
}

// SAFETY: `base` points to memory that this owns until it is dropped and that is used only as
// atomic words, which any thread may use.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes the file, of `bytes` zeros, and maps it. It must not exist.
    pub fn create(path: &Path, bytes: u64) -> Result<Self> {
        check_length(path, bytes)?;
        if retry_on_intr(|| rustix::fs::lstat(path)).is_ok() {
            return Err(failure("create", path, Errno::EXIST));
        }
        let unfinished = unfinished(path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_bits_retain(0o644);
        let opened = retry_on_intr(|| rustix::fs::open(&unfinished, flags, mode));
        let file = opened.map_err(|errno| failure("create", path, errno))?;
        lock(path, &file)?;
        let truncated = retry_on_intr(|| rustix::fs::ftruncate(&file, 0));
        let filled = truncated.and_then(|()| fill(&file, bytes));
        let filled = filled.and_then(|()| retry_on_intr(|| rustix::fs::fsync(&file)));
        let named = filled.and_then(|()| rename_to_new(&unfinished, path));
        named
            .map_err(|errno| failure("fill", path, errno))
            .inspect_err(|_| give_up(&unfinished))?;
        let mapped = sync_parent(path).and_then(|()| Self::map(path, file));
        // What is left of it would keep the next attempt from making it.
        mapped.inspect_err(|_| give_up(path))
    }

    /// Maps the file.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        Self::map(path, opened.map_err(|errno| failure("open", path, errno))?)
    }

    /// Removes the file, durably.
    pub fn remove(path: &Path) -> Result<()> {
        retry_on_intr(|| rustix::fs::unlink(path))
            .map_err(|errno| failure("remove", path, errno))?;
        sync_parent(path)
    }

    fn map(path: &Path, file: OwnedFd) -> Result<Self> {
        lock(path, &file)?;
        let stat = fstat(&file).map_err(|errno| failure("look at", path, errno))?;
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        check_length(path, length)?;
        let bytes = usize::try_from(length).map_err(|_| failure("map", path, Errno::FBIG))?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let attempt = |flags| {
            // SAFETY: a new mapping, at an address of the kernel's choice, touches no other memory.
            unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0) }
        };
        let (base, is_synchronous) = match attempt(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(base) => (base, true),
            // OPNOTSUPP: no DAX here. INVAL: a kernel that does not know the flag.
            Err(Errno::OPNOTSUPP | Errno::INVAL) => {
                let base = attempt(MapFlags::SHARED);
                (base.map_err(|errno| failure("map", path, errno))?, false)
            }
            Err(errno) => return Err(failure("map", path, errno)),
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| failure("map", path, Errno::FAULT))?;
        Ok(Self { base, bytes, is_synchronous, path: path.into(), file })
    }

    /// The bytes, as words in the machine's order.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is aligned to a page and valid for `bytes`, a multiple of eight, until
        // `self` is dropped, which the borrow forbids. All access is through atomic words.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes / 8) }
    }

    /// The kernel granted `MAP_SYNC`: what left the processor's caches is durable.
    pub fn is_synchronous(&self) -> bool {
        self.is_synchronous
    }

    /// The file's path, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor number of the device that the file is on.
    pub fn device(&self) -> Result<(u32, u32)> {
        let stat =
            fstat(self.file.as_fd()).map_err(|errno| failure("look at", &self.path, errno))?;
        Ok((rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)))
    }

    /// Writes out what the page cache holds of the file, and waits for it. No substitute for a
    /// fence: it says nothing of the order in which lines were written before.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the range is this mapping.
        let synced = unsafe { msync(self.base.as_ptr().cast(), self.bytes, MsyncFlags::SYNC) };
        synced.map_err(|errno| failure("sync", &self.path, errno))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and no borrow of it outlives `self`. An error would
        // mean that it is no mapping, and leaves the memory as it is.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The name of a file that is to be at `path`, until it is filled.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Renames a file to `to`, where there is none.
fn rename_to_new(from: &Path, to: &Path) -> Result<(), Errno> {
    let flags = RenameFlags::NOREPLACE;
    match retry_on_intr(|| renameat_with(CWD, from, CWD, to, flags)) {
        // A file system that does not know the flag; there was no file a moment ago.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            retry_on_intr(|| rustix::fs::rename(from, to))
        }
        renamed => renamed,
    }
}

fn give_up(path: &Path) {
    if let Err(errno) = retry_on_intr(|| rustix::fs::unlink(path)) {
        tracing::warn!(path = %path.display(), %errno, "a file that was not made remains");
    }
}

fn lock(path: &Path, file: &OwnedFd) -> Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            let text = format!("{} is in use; close it there", path.display());
            Err(Error::new(ErrorKind::Locked, text))
        }
        locked => locked.map_err(|errno| failure("lock", path, errno)),
    }
}

fn check_length(path: &Path, bytes: u64) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(MAPPED_UNIT_BYTES) {
        let text = format!(
            "{} cannot be mapped with {bytes} bytes; the length is a multiple of \
             {MAPPED_UNIT_BYTES}",
            path.display()
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

/// Writes zeros, once there is room for all of them.
fn fill(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        // The writes reserve what the file system cannot.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(errno) => return Err(errno),
    }
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let part = (bytes - offset).min(ZEROS_BYTES as u64) as usize;
        offset += retry_on_intr(|| rustix::io::pwrite(file, &zeros[..part], offset))? as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn what_is_stored_is_in_the_file_and_seen_by_the_next_mapping() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let mapping = Mapping::create(&path, 8192).unwrap();
        assert!(mapping.words().iter().all(|word| word.load(Relaxed) == 0));
        mapping.words()[1023].store(7, Relaxed);
        mapping.sync().unwrap();
        assert_eq!(Mapping::open(&path).unwrap_err().kind(), ErrorKind::Locked);
        drop(mapping);
        let again = Mapping::open(&path).unwrap();
        assert_eq!((again.words().len(), again.words()[1023].load(Relaxed)), (1024, 7));
        let taken = Mapping::create(&path, 8192).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::AlreadyExists);
        Mapping::remove(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_for_which_there_is_no_room_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        // More than any file system has.
        let bytes = i64::MAX as u64 + 1 - MAPPED_UNIT_BYTES;
        let error = Mapping::create(&path, bytes).unwrap_err();
        assert!(error.to_string().contains("region"), "{error}");
        assert!(!path.exists() && !unfinished(&path).exists());
        Mapping::create(&path, 4096).unwrap();
    }

    #[test]
    fn what_a_crash_left_of_a_file_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        let half = Mapping::create(&unfinished(&path), 16384).unwrap();
        half.words()[3].store(7, Relaxed);
        assert_eq!(Mapping::create(&path, 8192).unwrap_err().kind(), ErrorKind::Locked);
        drop(half);
        let mapping = Mapping::create(&path, 8192).unwrap();
        let words = mapping.words();
        assert_eq!((words.len(), words.iter().any(|word| word.load(Relaxed) != 0)), (1024, false));
        assert!(path.exists() && !unfinished(&path).exists());
    }

    #[test]
    fn lengths_that_are_no_whole_pages_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("region");
        assert_eq!(Mapping::create(&path, 100).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Mapping::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
