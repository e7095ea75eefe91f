//! Holding a directory: for one process that writes, or for several that read.
//!
//! 1. A lock is of an open file description (`flock`), not of a process: closing another
//!    descriptor of the same file does not end it, as it ends those of `fcntl`; a second taker in
//!    this process is refused as any other; a crash gives it back.
//! 2. The directory itself is locked, and the lock's file besides. A file can be deleted and made
//!    anew, and its lock is then one of a file that has no name; a directory cannot be exchanged
//!    under the files in it. The file is for file systems that lock no directories (NFS).
//! 3. A lock is given back by the process that took it and by no other. A forked child shares the
//!    description, so unlocking in it would be unlocking in its parent.
//! 4. Reading leaves nothing behind: no file is made for it, and where no lock can be taken there
//!    is none.
//!
//! `/proc/locks`, where there is one, names the holder of a lock; the lock writes nothing down.
//!
//! Threads: any.

use super::disk::failure;
use super::host_files;
use super::owner_process::{OwnerProcess, PerProcess};
use crate::driver::DirectoryLock;
use crate::error::{Error, ErrorKind, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, major, minor};
use rustix::io::{Errno, retry_on_intr};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Longest file about a process, or about users, that is read.
const ABOUT_BYTES_MAX: u64 = 1 << 20;

/// A file that is locked: device and number.
type FileId = (u64, u64);

/// The files that this process has locked.
static HELD: PerProcess<Mutex<Vec<FileId>>> = PerProcess::new();

fn held<T>(with: impl FnOnce(&mut Vec<FileId>) -> T) -> T {
    let held = HELD.get_or_make(Mutex::default);
    // A panic cannot leave the list half changed.
    with(&mut held.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How a directory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Alone,
    BesideReaders,
}

impl Hold {
    fn operation(self) -> FlockOperation {
        match self {
            Self::Alone => FlockOperation::NonBlockingLockExclusive,
            Self::BesideReaders => FlockOperation::NonBlockingLockShared,
        }
    }
}

/// The locks on a directory and on the file in it.
#[derive(Debug)]
pub(super) struct DiskLock {
    owner: OwnerProcess,
    locked: Vec<(OwnedFd, FileId)>,
}

impl DirectoryLock for DiskLock {}

impl Drop for DiskLock {
    /// Gives the locks back now. Closing alone would leave them with a child process that another
    /// thread is starting, which holds a copy of the descriptors until it runs its program. In a
    /// child closing is all there is to do (invariant 3).
    fn drop(&mut self) {
        if !self.owner.is_current() {
            return;
        }
        for (descriptor, file) in &self.locked {
            let unlock = FlockOperation::Unlock;
            if let Err(errno) = retry_on_intr(|| rustix::fs::flock(descriptor, unlock)) {
                tracing::debug!(%errno, "a lock ends with its descriptor instead");
            }
            held(|files| {
                if let Some(at) = files.iter().position(|it| it == file) {
                    files.swap_remove(at);
                }
            });
        }
    }
}

impl DiskLock {
    /// Holds the directory at `path` alone, by itself and by its file `name`, made where there is
    /// none.
    pub(super) fn alone(
        directory: BorrowedFd<'_>,
        path: &Path,
        name: &str,
        mode: Mode,
    ) -> Result<Self> {
        let mut lock = Self { owner: OwnerProcess::current(), locked: Vec::new() };
        lock.add(open_directory(directory, path)?, Hold::Alone, &path.join(name))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = retry_on_intr(|| rustix::fs::openat(directory, name, flags, mode));
        let file = file.map_err(|errno| not_writable(path, name, errno))?;
        match lock.add(file, Hold::Alone, &path.join(name))? {
            true => Ok(lock),
            false => Err(failure("lock", &path.join(name), Errno::NOLCK)),
        }
    }

    /// Holds the directory at `path` beside others that read; none where it takes no lock.
    pub(super) fn beside_readers(
        directory: BorrowedFd<'_>,
        path: &Path,
        name: &str,
    ) -> Result<Option<Self>> {
        let mut lock = Self { owner: OwnerProcess::current(), locked: Vec::new() };
        let place = path.join(name);
        lock.add(open_directory(directory, path)?, Hold::BesideReaders, &place)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty())) {
            Ok(file) => drop(lock.add(file, Hold::BesideReaders, &place)?),
            Err(errno) => tracing::debug!(%errno, place = %place.display(), "no lock file"),
        }
        Ok((!lock.locked.is_empty()).then_some(lock))
    }

    /// Locks one file more; says no where it takes no locks.
    fn add(&mut self, descriptor: OwnedFd, hold: Hold, place: &Path) -> Result<bool> {
        let file = id_of(descriptor.as_fd(), place)?;
        match retry_on_intr(|| rustix::fs::flock(&descriptor, hold.operation())) {
            Ok(()) => {
                held(|files| files.push(file));
                self.locked.push((descriptor, file));
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Err(refusal(place, file)),
            Err(errno) => {
                tracing::debug!(%errno, place = %place.display(), "it takes no lock");
                Ok(false)
            }
        }
    }
}

/// The directory once more, with a description of its own: the lock's.
fn open_directory(directory: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(directory, ".", flags, Mode::empty()))
        .map_err(|errno| failure("open directory", path, errno))
}

/// Device and number of an open file.
pub(super) fn id_of(descriptor: BorrowedFd<'_>, place: &Path) -> Result<FileId> {
    let stat = rustix::fs::fstat(descriptor).map_err(|errno| failure("look at", place, errno))?;
    Ok((stat.st_dev, stat.st_ino))
}

fn not_writable(path: &Path, name: &str, errno: Errno) -> Error {
    let error = failure("open lock file", &path.join(name), errno);
    match error.kind() {
        ErrorKind::ReadOnly | ErrorKind::Denied => {
            let text = format!("{error}; open the store for reading only, or let it be written");
            Error::new(error.kind(), text)
        }
        _ => error,
    }
}

/// Why a lock is refused: what holds it, and the way out.
fn refusal(place: &Path, file: FileId) -> Error {
    let is_own = held(|files| files.contains(&file));
    let why = match (is_own, &holders(file)[..]) {
        (true, _) => format!(
            "this process ({}) has the store open already; use that handle, or close it and drop \
             what it gave out (clones, snapshots, cursors, scans) first",
            std::process::id()
        ),
        (false, []) => "close the process that has the store open".to_owned(),
        (false, [first, more @ ..]) => {
            let others = match more.len() {
                0 => String::new(),
                count => format!(", as have {count} more"),
            };
            format!("{}{others}; close it there", holding(*first))
        }
    };
    Error::new(ErrorKind::Locked, format!("{} is locked: {why}", place.display()))
}

/// What is known of a process that took a lock: `process 12 (thermocline, user root) has the store
/// open`.
fn holding(holder: Holder) -> String {
    let Holder { process_id, reads } = holder;
    let how = if reads { " for reading" } else { "" };
    let about = Path::new("/proc").join(process_id.to_string());
    let Ok(stat) = rustix::fs::stat(&about) else {
        return format!(
            "process {process_id}, which has ended, opened the store{how}, and a process that was \
             forked from it holds on to that"
        );
    };
    let command = host_files::read(&about.join("comm"), ABOUT_BYTES_MAX).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).trim().to_owned();
    let user = user_name(stat.st_uid).unwrap_or_else(|| stat.st_uid.to_string());
    format!("process {process_id} ({command}, user {user}) has the store open{how}")
}

/// The name that this machine has for a user.
fn user_name(user_id: u32) -> Option<String> {
    let users = host_files::read(Path::new("/etc/passwd"), ABOUT_BYTES_MAX).ok()?;
    let users = String::from_utf8_lossy(&users);
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(user_id)).then(|| name.to_owned())
    });
    name.filter(|name| !name.is_empty())
}

/// A process that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    process_id: u32,
    reads: bool,
}

/// The processes that have `file` locked, as far as the system tells.
fn holders(file: FileId) -> Vec<Holder> {
    let Ok(locks) = host_files::open_reader(Path::new("/proc/locks")) else {
        return Vec::new();
    };
    let lines = BufReader::new(locks).lines().map_while(std::result::Result::ok);
    lines.filter_map(|line| holder_of(&line, file)).collect()
}

/// The process of a line of `/proc/locks`, if it is about `file`:
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:5359820 0 EOF`.
fn holder_of(line: &str, file: FileId) -> Option<Holder> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [_, "FLOCK", "ADVISORY", access, process_id, of, ..] = words[..] else {
        return None;
    };
    let mut parts = of.split(':');
    let mut hexadecimal = || u32::from_str_radix(parts.next()?, 16).ok();
    let device = (hexadecimal()?, hexadecimal()?);
    let number: u64 = parts.next()?.parse().ok()?;
    let is_of_it = device == (major(file.0), minor(file.0)) && number == file.1;
    let holder = Holder { process_id: process_id.parse().ok()?, reads: access == "READ" };
    is_of_it.then_some(holder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_of_locks_are_understood_or_passed_over() {
        let file = (rustix::fs::makedev(0xfe, 0x10), 5_359_820);
        let line = |text: &str| holder_of(text, file).map(|it| (it.process_id, it.reads));
        assert_eq!(line("1: FLOCK  ADVISORY  WRITE 4711 fe:10:5359820 0 EOF"), Some((4711, false)));
        assert_eq!(line("22: FLOCK  ADVISORY  READ 8 fe:10:5359820 0 EOF"), Some((8, true)));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 4711 fe:10:5359820 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4711 fe:10:5359820 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 fe:10:5359821 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 fe:11:5359820 0 EOF",
            "1: FLOCK  ADVISORY  WRITE -1 fe:10:5359820 0 EOF",
            "1: FLOCK",
            "",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }

    #[test]
    fn a_holder_is_named_with_its_command_and_user_also_when_it_has_ended() {
        let own = std::process::id();
        let text = holding(Holder { process_id: own, reads: true });
        let start = format!("process {own} (");
        assert!(text.starts_with(&start) && text.ends_with("has the store open for reading"));
        assert!(text.contains(", user ") && !text.contains("(,"), "{text}");
        // No process has this number: it is above the kernel's largest.
        let text = holding(Holder { process_id: 1 << 30, reads: false });
        assert!(text.contains("has ended") && text.contains("forked"), "{text}");
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(u32::MAX - 7), None);
    }
}
