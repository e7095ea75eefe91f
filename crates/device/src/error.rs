//! Errors of the device layer: what could not be done, where, and what the caller can do about it.

use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do, one kind each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such file: fix the name, or the tier that should hold it is not the right one.
    NotFound,
    /// The name is taken: choose another.
    AlreadyExists,
    /// The device or the tier's capacity is used up: free space or add a tier. What was asked for
    /// has not begun, or goes with the file that it was for: the call may be made again.
    OutOfSpace,
    /// Bytes are not what was written: restore from a checkpoint; `verify` says how far it goes.
    Corrupt,
    /// Another process holds the tier, or this one does already: close it there.
    Locked,
    /// A tier is missing, foreign, swapped or older than the rest: mount or name the right one.
    Tier,
    /// The data was written by a newer version of this software: upgrade.
    NewerFormat,
    /// Nothing can be written there: read only, or mount it for writing.
    ReadOnly,
    /// The permissions do not allow it: change them, act as the owner, or read only.
    Denied,
    /// The call cannot be carried out as made: fix its arguments.
    Invalid,
    /// The process, or the system, has as many files open as it may: raise `ulimit -n`. Nothing was
    /// opened and nothing has changed, so the call may be made again.
    TooManyOpenFiles,
    /// The device failed: see the system's log; writing stops, reading goes on.
    Io,
}

impl ErrorKind {
    /// The kind of what failed with a file that is open already, or half way: a caller that takes
    /// it for [`ErrorKind::TooManyOpenFiles`] would trust that nothing has changed.
    pub(crate) fn after_opening(self) -> Self {
        if self == Self::TooManyOpenFiles { Self::Io } else { self }
    }

    /// The kind of what failed with bytes that count already, which are lost or may be: a caller
    /// that takes it for [`ErrorKind::OutOfSpace`] would trust that nothing has changed.
    pub(crate) fn after_writing(self) -> Self {
        if self == Self::OutOfSpace { Self::Io } else { self.after_opening() }
    }
}

/// The system calls that make a descriptor fail so; those that move bytes never do.
fn is_descriptor_shortage(source: &io::Error) -> bool {
    let errno = Errno::from_io_error(source);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// An error with its place. Its text is one line that names the file.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error with a complete, one-line message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// An operating-system error met while doing `action` ("read 4096 bytes at 8192 of") to `path`.
    pub fn io(action: impl AsRef<str>, path: impl AsRef<Path>, source: &io::Error) -> Self {
        let kind = match source.kind() {
            _ if is_descriptor_shortage(source) => ErrorKind::TooManyOpenFiles,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::CrossesDevices
            | io::ErrorKind::TooManyLinks => ErrorKind::Invalid,
            _ => ErrorKind::Io,
        };
        let path: PathBuf = path.as_ref().into();
        Self::new(kind, format!("cannot {} {}: {source}", action.as_ref(), path.display()))
    }

    /// Damaged bytes at `offset` of the file that `what` describes.
    pub fn corrupt(what: impl std::fmt::Display, offset: u64, why: impl std::fmt::Display) -> Self {
        Self::new(ErrorKind::Corrupt, format!("{what} is damaged at offset {offset}: {why}"))
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_descriptors_is_told_from_a_device_that_failed() {
        for (errno, kind) in [
            (Errno::MFILE, ErrorKind::TooManyOpenFiles),
            (Errno::NFILE, ErrorKind::TooManyOpenFiles),
            (Errno::IO, ErrorKind::Io),
            (Errno::NOSPC, ErrorKind::OutOfSpace),
            (Errno::ISDIR, ErrorKind::Invalid),
            (Errno::NAMETOOLONG, ErrorKind::Invalid),
            (Errno::XDEV, ErrorKind::Invalid),
        ] {
            let error = Error::io("open", "/fast/1.table", &errno.into());
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().starts_with("cannot open /fast/1.table: "), "{error}");
        }
    }
}
