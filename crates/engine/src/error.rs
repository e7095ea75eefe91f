//! The engine's errors: few kinds, each saying what the caller can do, and one line of text that
//! names the place.

use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind};
use thermocline_foundation::sync::OnceLock;
use thiserror::Error;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do, one kind each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// There is no database, file or tier where one is needed: fix the path, or create it.
    NotFound,
    /// Something is in the way: choose another place.
    AlreadyExists,
    /// A tier or its device is full: free space or raise the capacity, then reopen.
    OutOfSpace,
    /// Stored bytes are not what was written: restore from a checkpoint; `verify` shows the extent.
    Corrupt,
    /// Another process has the database open: close it there.
    Locked,
    /// A tier is missing, foreign, swapped or out of date: mount or name the right one.
    Tier,
    /// The data was written by a newer version: upgrade.
    NewerFormat,
    /// The call or the settings cannot be carried out as given: fix them.
    Invalid,
    /// The store stopped writing after an earlier failure, which the text repeats: remove the cause
    /// and reopen.
    ReadOnly,
    /// A device failed: see the system's log.
    Io,
}

/// An error with a one-line text.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error with a complete, one-line text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        let kind = match error.kind() {
            DeviceErrorKind::NotFound => ErrorKind::NotFound,
            DeviceErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            DeviceErrorKind::OutOfSpace => ErrorKind::OutOfSpace,
            DeviceErrorKind::Corrupt => ErrorKind::Corrupt,
            DeviceErrorKind::Locked => ErrorKind::Locked,
            DeviceErrorKind::Tier => ErrorKind::Tier,
            DeviceErrorKind::NewerFormat => ErrorKind::NewerFormat,
            DeviceErrorKind::Invalid => ErrorKind::Invalid,
            DeviceErrorKind::Io => ErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }
}

/// Remembers the first failed write or sync. From then on the store is read-only: what later writes
/// would build on may be lost, and trying a failed sync again proves nothing (see `docs/media.md`).
#[derive(Debug, Default)]
pub(crate) struct Latch {
    first: OnceLock<Error>,
}

impl Latch {
    /// Keeps `error` unless an earlier one is kept.
    pub fn set(&self, error: &Error) {
        if self.first.set(error.clone()).is_ok() {
            tracing::error!(%error, "the store is read-only from here on");
        }
    }

    /// The error every later write gets.
    pub fn check(&self) -> Result<()> {
        match self.first.get() {
            None => Ok(()),
            Some(first) => Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "the store is read-only since an earlier failure: {first}; \
                     remove the cause and reopen it"
                ),
            )),
        }
    }

    /// The failure, for statistics.
    pub fn reason(&self) -> Option<String> {
        self.first.get().map(Error::to_string)
    }
}
