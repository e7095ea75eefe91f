//! A directory of a mounted file system and its open files: what `posix` and `direct` share.
//!
//! Everything here blocks, and does one system call for one action unless the kernel cut it short.
//!
//! Invariants:
//! 1. Names are resolved against the directory's descriptor, taken once when the driver opens. A
//!    device that is mounted over the path later, or unmounted, never redirects a file.
//! 2. Interruptions (`EINTR`) and short transfers are finished here; no caller sees them.
//! 3. A handle whose sync failed once answers every later sync with that failure: Linux forgets
//!    the error after reporting it, so a second `fdatasync` that succeeds proves nothing.
//!    So it is with a durable write, which is a write and a sync.
//! 4. A name is one component: no slash, no NUL, not `.` or `..`.
//! 5. A durable write is one system call (`RWF_DSYNC`) where the file system has it, and a write
//!    and a sync elsewhere; so is what finishes one that was cut short.
//!
//! Threads: everything is shared freely.

use super::directory_lock::{self, DiskLock};
use crate::buffer::Buffer;
use crate::driver::{
    Completion, DirectoryId, DirectoryLock, DriverFile, Entry, FileStamp, Handle, Operation, Space,
};
use crate::error::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Advice, AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags, StatxFlags, StatxTimestamp,
    Timespec, Timestamps,
};
use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};
use std::any::Any;
use std::fmt::Display;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Owner reads and writes, others read, as far as the process's mask allows.
const MODE: Mode = Mode::from_bits_retain(0o644);

/// An open directory.
#[derive(Debug)]
pub(crate) struct Disk {
    descriptor: OwnedFd,
    path: Arc<Path>,
    flags: OFlags,
    alignment: usize,
}

/// An open file of a [`Disk`].
#[derive(Debug)]
pub(crate) struct DiskFile {
    descriptor: OwnedFd,
    directory: Arc<Path>,
    name: String,
    /// Goes down to 1 where the file changes to the page cache.
    alignment: AtomicUsize,
    sync_failed: AtomicBool,
    /// The file system refuses `RWF_DSYNC`.
    no_dsync: AtomicBool,
}

/// The error of `action` on `path`; [`Error::io`] for rustix's error numbers.
pub(crate) fn failure(action: &str, path: &Path, errno: Errno) -> Error {
    Error::io(action, path, &io::Error::from(errno))
}

/// A name that can stand in a directory and nowhere else (invariant 4).
pub(crate) fn check_name(action: &str, place: impl Display, name: &str) -> Result<()> {
    if !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']) {
        return Ok(());
    }
    let text = format!("cannot {action} {name:?} in {place}: it is not a plain file name");
    Err(Error::new(ErrorKind::Invalid, text))
}

impl Disk {
    /// Opens the directory `path`, whose files will be opened with `flags` besides the usual ones.
    pub(crate) fn open(path: &Path, flags: OFlags, alignment: usize) -> Result<Self> {
        let wanted = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = retry_on_intr(|| rustix::fs::open(path, wanted, Mode::empty()))
            .map_err(|errno| failure("open directory", path, errno))?;
        Ok(Self { descriptor, path: path.into(), flags, alignment })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn alignment(&self) -> usize {
        self.alignment
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn full(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn failure(&self, action: &str, name: &str, errno: Errno) -> Error {
        failure(action, &self.full(name), errno)
    }

    fn check(&self, action: &str, name: &str) -> Result<()> {
        check_name(action, self.path.display(), name)
    }

    fn open_file(&self, action: &str, name: &str, flags: OFlags) -> Result<Handle> {
        self.check(action, name)?;
        let flags = flags | self.flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = retry_on_intr(|| rustix::fs::openat(&self.descriptor, name, flags, MODE));
        let descriptor = opened.map_err(|errno| self.failure(action, name, errno))?;
        Ok(Arc::new(DiskFile {
            descriptor,
            directory: Arc::clone(&self.path),
            name: name.to_owned(),
            alignment: AtomicUsize::new(self.alignment),
            sync_failed: AtomicBool::new(false),
            no_dsync: AtomicBool::new(false),
        }))
    }

    pub(crate) fn create(&self, name: &str) -> Result<Handle> {
        self.open_file("create", name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    pub(crate) fn open_existing(&self, name: &str) -> Result<Handle> {
        self.open_file("open", name, OFlags::RDWR)
    }

    pub(crate) fn open_to_read(&self, name: &str) -> Result<Handle> {
        self.open_file("open", name, OFlags::RDONLY)
    }

    pub(crate) fn id(&self) -> Option<DirectoryId> {
        let (device, number) = directory_lock::id_of(self.descriptor(), &self.path).ok()?;
        Some(DirectoryId { device, number })
    }

    pub(crate) fn delete(&self, name: &str) -> Result<()> {
        self.check("delete", name)?;
        retry_on_intr(|| rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty()))
            .map_err(|errno| self.failure("delete", name, errno))
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.check("rename", from)?;
        self.check("rename to", to)?;
        retry_on_intr(|| rustix::fs::renameat(&self.descriptor, from, &self.descriptor, to))
            .map_err(|errno| self.failure(&format!("rename to {to} the file"), from, errno))
    }

    /// Plain files and links whose names are text; other names were not made by this software.
    pub(crate) fn list(&self) -> Result<Vec<Entry>> {
        let failed = |errno| failure("list directory", &self.path, errno);
        let mut entries = Vec::new();
        for found in Dir::read_from(&self.descriptor).map_err(failed)? {
            let found = found.map_err(failed)?;
            let Ok(name) = found.file_name().to_str() else {
                continue;
            };
            let kinds = [FileType::RegularFile, FileType::Symlink, FileType::Unknown];
            if kinds.contains(&found.file_type()) {
                entries.extend(self.look_at(name)?);
            }
        }
        Ok(entries)
    }

    /// The entry `name`; none where it was deleted since the directory was read, or is neither a
    /// plain file nor a link after all.
    fn look_at(&self, name: &str) -> Result<Option<Entry>> {
        let stat = match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.failure("look at", name, errno)),
        };
        let is_link = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::Symlink => true,
            _ => return Ok(None),
        };
        Ok(Some(Entry { name: name.to_owned(), len: stat.st_size as u64, is_link }))
    }

    pub(crate) fn make_link(&self, name: &str, text: &str) -> Result<()> {
        self.check("make the link", name)?;
        retry_on_intr(|| rustix::fs::symlinkat(text, &self.descriptor, name))
            .map_err(|errno| self.failure("make the link", name, errno))
    }

    pub(crate) fn read_link(&self, name: &str) -> Result<Option<String>> {
        self.check("read the link", name)?;
        match retry_on_intr(|| rustix::fs::readlinkat(&self.descriptor, name, Vec::new())) {
            Ok(text) => Ok(text.into_string().ok()),
            Err(Errno::INVAL) => Ok(None),
            Err(errno) => Err(self.failure("read the link", name, errno)),
        }
    }

    pub(crate) fn sync_directory(&self) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsync(&self.descriptor))
            .map_err(|errno| failure("sync directory", &self.path, errno))
    }

    pub(crate) fn space(&self) -> Result<Space> {
        let stat = retry_on_intr(|| rustix::fs::fstatvfs(&self.descriptor))
            .map_err(|errno| failure("ask for the free space of", &self.path, errno))?;
        Ok(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    pub(crate) fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.check("lock", name)?;
        let lock = DiskLock::alone(self.descriptor(), &self.path, name, MODE)?;
        Ok(Box::new(lock))
    }

    pub(crate) fn lock_shared(&self, name: &str) -> Result<Option<Box<dyn DirectoryLock>>> {
        self.check("lock", name)?;
        let lock = DiskLock::beside_readers(self.descriptor(), &self.path, name)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn DirectoryLock>))
    }

    /// Gives `name` a second name, `new_name` in `directory`; `false` where the two cannot share a
    /// file (other file system, too many links, no links there at all).
    pub(crate) fn try_link(&self, name: &str, directory: &Path, new_name: &str) -> Result<bool> {
        self.check("link", name)?;
        check_name("link as", directory.display(), new_name)?;
        let to = directory.join(new_name);
        let none = AtFlags::empty();
        let (from, here) = (&self.descriptor, rustix::fs::CWD);
        match retry_on_intr(|| rustix::fs::linkat(from, name, here, &to, none)) {
            Ok(()) => Ok(true),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => {
                let action = format!("link as {} the file", to.display());
                Err(self.failure(&action, name, errno))
            }
        }
    }
}

impl DiskFile {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// The error of `action`, which ends in a preposition where it needs one, on this file.
    pub(crate) fn failure(&self, action: &str, errno: Errno) -> Error {
        failure(action, &self.directory.join(&self.name), errno)
    }

    /// The error of reading or writing `view` at `offset`.
    pub(crate) fn transfer_failure(
        &self,
        verb: &str,
        offset: u64,
        view: &[u8],
        errno: Errno,
    ) -> Error {
        self.failure(&format!("{verb} {} bytes at {offset} of", view.len()), errno)
    }

    /// The request keeps to the device's alignment (invariant 7 of the contract).
    pub(crate) fn check_aligned(&self, verb: &str, offset: u64, view: &[u8]) -> Result<()> {
        let unit = self.alignment.load(Ordering::Relaxed);
        let mask = unit - 1;
        let address = view.as_ptr().addr();
        if (offset as usize | view.len() | address) & mask == 0 {
            return Ok(());
        }
        let path = self.directory.join(&self.name);
        let (len, path) = (view.len(), path.display());
        let text = format!("cannot {verb} {len} bytes at {offset} of {path}: not whole {unit}s");
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// Fills `view` from `offset`, of which `done` bytes are there already; returns how many
    /// are there at last.
    pub(crate) fn read(&self, offset: u64, view: &mut [u8], mut done: usize) -> Result<usize> {
        let unit = self.alignment.load(Ordering::Relaxed);
        // Direct reads stop inside a block only where the file ends, and could not go on.
        while done < view.len() && done.is_multiple_of(unit) {
            let at = offset + done as u64;
            match rustix::io::pread(&self.descriptor, &mut view[done..], at) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(self.transfer_failure("read", offset, view, errno)),
            }
        }
        Ok(done)
    }

    /// Writes `view` at `offset`, of which `done` bytes are written already.
    pub(crate) fn write(&self, offset: u64, view: &[u8], mut done: usize) -> Result<usize> {
        while done < view.len() {
            let at = offset + done as u64;
            let errno = match rustix::io::pwrite(&self.descriptor, &view[done..], at) {
                // Linux never writes nothing without an error; a file system that does is full.
                Ok(0) => Errno::NOSPC,
                Ok(put) => {
                    done += put;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => errno,
            };
            return Err(self.transfer_failure("write", offset, view, errno));
        }
        Ok(done)
    }

    /// As [`DiskFile::write`]; what is written survives loss of power when this returns.
    pub(crate) fn write_durably(&self, offset: u64, view: &[u8], mut done: usize) -> Result<usize> {
        while done < view.len() && !self.no_dsync.load(Ordering::Relaxed) {
            let rest = [IoSlice::new(&view[done..])];
            let at = offset + done as u64;
            let errno = match pwritev2(&self.descriptor, &rest, at, ReadWriteFlags::DSYNC) {
                Ok(0) => Errno::NOSPC,
                Ok(put) => {
                    done += put;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.no_dsync.store(true, Ordering::Relaxed);
                    break;
                }
                Err(errno) => errno,
            };
            self.sync_failed.store(true, Ordering::Release);
            return Err(self.transfer_failure("write", offset, view, errno));
        }
        if done < view.len() {
            self.write(offset, view, done)?;
            return self.sync().map(|_| view.len());
        }
        self.synced(Ok(())).map(|_| done)
    }

    /// Makes data and length durable, unless an earlier sync of this handle failed.
    pub(crate) fn sync(&self) -> Result<usize> {
        let result = retry_on_intr(|| rustix::fs::fdatasync(&self.descriptor));
        self.synced(result)
    }

    /// Latches the failure of a sync (invariant 3), however it was carried out.
    pub(crate) fn synced(&self, result: Result<(), Errno>) -> Result<usize> {
        if let Err(errno) = result {
            self.sync_failed.store(true, Ordering::Release);
            return Err(self.failure("sync", errno));
        }
        if self.sync_failed.load(Ordering::Acquire) {
            let path = self.directory.join(&self.name);
            let text = format!(
                "cannot sync {}: an earlier sync failed, what it covered may be lost; reopen",
                path.display()
            );
            return Err(Error::new(ErrorKind::Io, text));
        }
        Ok(0)
    }

    /// Where the file system cannot reserve space, the length alone is set.
    fn reserve(&self, len: u64) -> Result<(), Errno> {
        let none = FallocateFlags::empty();
        match retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, none, 0, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                tracing::debug!(name = self.name, "the file system reserves no space");
                let now = rustix::fs::fstat(&self.descriptor)?.st_size as u64;
                if now < len { rustix::fs::ftruncate(&self.descriptor, len) } else { Ok(()) }
            }
            other => other,
        }
    }
}

impl DriverFile for DiskFile {
    fn len(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.descriptor);
        stat.map(|stat| stat.st_size as u64).map_err(|errno| self.failure("look at", errno))
    }

    fn allocate(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let reserved = self.reserve(len);
        reserved.map_err(|errno| self.failure(&format!("reserve {len} bytes for"), errno))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, len))
            .map_err(|errno| self.failure(&format!("set the length to {len} of"), errno))
    }

    fn stamp(&self) -> Result<Option<FileStamp>> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(&self.descriptor, "", AtFlags::EMPTY_PATH, wanted)
            .map_err(|errno| self.failure("look at", errno))?;
        let ns = |time: StatxTimestamp| {
            (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.into())
        };
        let is_born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let born_ns = if is_born { ns(stat.stx_btime) } else { 0 };
        let (number, changed_ns, len) = (stat.stx_ino, ns(stat.stx_mtime), stat.stx_size);
        Ok(Some(FileStamp { number, born_ns, changed_ns, len }))
    }

    fn touch(&self) -> Result<()> {
        let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: omit, last_modification: now };
        retry_on_intr(|| rustix::fs::futimens(&self.descriptor, &times))
            .map_err(|errno| self.failure("set the time of", errno))
    }

    fn sync_stamp(&self) -> Result<()> {
        let result = retry_on_intr(|| rustix::fs::fsync(&self.descriptor));
        self.synced(result).map(drop)
    }

    fn use_page_cache(&self) -> Result<bool> {
        let changed = rustix::fs::fcntl_getfl(&self.descriptor)
            .and_then(|flags| rustix::fs::fcntl_setfl(&self.descriptor, flags - OFlags::DIRECT));
        changed.map_err(|errno| self.failure("change to the page cache for", errno))?;
        self.alignment.store(1, Ordering::Relaxed);
        Ok(true)
    }

    fn read_ahead(&self) {
        let _ = rustix::fs::fadvise(&self.descriptor, 0, None, Advice::Sequential);
    }

    fn forget_cached(&self) {
        let _ = rustix::fs::fadvise(&self.descriptor, 0, None, Advice::DontNeed);
    }

    fn notes_first_writes(&self) -> bool {
        // Of ext2, ext3 and ext4; and of XFS.
        const NOTING: [u64; 2] = [0xEF53, 0x5846_5342];
        let status = retry_on_intr(|| rustix::fs::fstatfs(&self.descriptor));
        status.is_ok_and(|status| NOTING.contains(&(status.f_type as u64)))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The file behind a handle of a `posix` or `direct` driver.
pub(crate) fn disk_file(handle: &Handle) -> &DiskFile {
    match handle.as_any().downcast_ref::<DiskFile>() {
        Some(file) => file,
        None => unreachable!("a handle of another driver"),
    }
}

/// Carries out one operation on the calling thread; the completion's tag is 0.
pub(crate) fn execute(handle: &Handle, operation: Operation) -> Completion {
    let file = disk_file(handle);
    let (result, buffer) = match operation {
        Operation::Read { offset, mut buffer } => {
            let fits = file.check_aligned("read", offset, &buffer);
            (fits.and_then(|()| file.read(offset, &mut buffer, 0)), buffer)
        }
        Operation::Write { offset, buffer, durable } => {
            let fits = file.check_aligned("write", offset, &buffer);
            let write = if durable { DiskFile::write_durably } else { DiskFile::write };
            (fits.and_then(|()| write(file, offset, &buffer, 0)), buffer)
        }
        Operation::Sync => (file.sync(), Buffer::default()),
    };
    Completion { tag: 0, result, buffer }
}
