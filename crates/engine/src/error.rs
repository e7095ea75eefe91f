//! The engine's errors: few kinds, each saying what the caller can do, and one line of text that
//! names the place.

use std::path::Path;
use thermocline_device::{Error as DeviceError, ErrorKind as DeviceErrorKind};
use thermocline_foundation::sync::OnceLock;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering};
use thermocline_foundation::threads::is_panicking;
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
    /// A tier or its device is full: free space there, raise the capacity or add a tier. Nothing
    /// has changed; the call may be made again.
    OutOfSpace,
    /// Stored bytes are not what was written: restore from a checkpoint; `verify` shows the extent.
    Corrupt,
    /// The database is open already, in another process or in this one, or its handle came with a
    /// fork; the text says where: close it there.
    Locked,
    /// A tier is missing, foreign, swapped or out of date: mount or name the right one.
    Tier,
    /// The data was written by a newer version: upgrade.
    NewerFormat,
    /// The call or the settings cannot be carried out as given: fix them.
    Invalid,
    /// The store stopped writing after an earlier failure, or was opened without room for what its
    /// logs have, or with damaged slots, or for reading only, or lies where nothing can be written;
    /// the text says which: remove the cause and reopen, or read. Where it is a panic there is no
    /// cause to remove.
    ReadOnly,
    /// Another write came first to what a transaction or a condition builds on; nothing was
    /// written: run the transaction again, from its reads on.
    Conflict,
    /// Transactions wait for each other's locks, and this call would have closed the circle: drop
    /// the transaction and run it again.
    Deadlock,
    /// Another transaction has held a lock for longer than the lock timeout: run this again, or end
    /// the other.
    LockTimeout,
    /// Permissions do not allow it: change them, act as the owner, or open it for reading only.
    Denied,
    /// The process, or the system, has as many files open as it may: raise `ulimit -n`. Nothing has
    /// changed; the call may be made again.
    TooManyOpenFiles,
    /// A device failed: see the system's log.
    Io,
    /// As many asynchronous requests wait as may: await one of their tickets, or `Db::has_room`,
    /// and make the call again. Nothing has changed.
    Busy,
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

    /// An error of `what`, which is in a region of persistent memory. Damage comes with the way
    /// out.
    pub(crate) fn of_region(what: impl std::fmt::Display, error: DeviceError) -> Self {
        let error = Self::from(error);
        let way_out = match error.kind {
            ErrorKind::Corrupt => "; see what `repair --rebuild-index` can do",
            _ => "",
        };
        Self::new(error.kind, format!("{what}: {error}{way_out}"))
    }

    /// The same, said of a key's record.
    pub(crate) fn of_key(self, key: &[u8]) -> Self {
        let message = format!("the record of key {}: {}", key.escape_ascii(), self.message);
        Self { message, ..self }
    }

    /// What the caller can do.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// It was refused, for want of room or of a descriptor, before anything has changed: what the
    /// device layer, the log and [`crate::versions`] mean by these kinds. It may be tried again.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.kind, ErrorKind::OutOfSpace | ErrorKind::TooManyOpenFiles)
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
            DeviceErrorKind::ReadOnly => ErrorKind::ReadOnly,
            DeviceErrorKind::Denied => ErrorKind::Denied,
            DeviceErrorKind::Invalid => ErrorKind::Invalid,
            DeviceErrorKind::TooManyOpenFiles => ErrorKind::TooManyOpenFiles,
            DeviceErrorKind::Io => ErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }
}

/// Why the store stopped writing.
#[derive(Debug)]
struct Failure {
    error: Error,
    /// What is said before it.
    what: &'static str,
    way_out: &'static str,
}

/// What is said before a failure.
const AFTER_FAILURE: &str = "the store is read-only since an earlier failure";

/// Remembers the first failed write or sync, or the first panic of a background job or of a writer
/// that leads others. From then on the store is read-only: what later writes would build on may be
/// lost or half changed, and trying a failed sync again proves nothing (see `docs/media.md`).
#[derive(Debug, Default)]
pub(crate) struct Latch {
    first: OnceLock<Failure>,
    /// A panic has passed a [`PanicGuard`]. What it said is known once it is caught, which is
    /// after others could take the locks that it let go.
    panicked: AtomicBool,
}

/// Sets the latch where a panic passes it. For what must not be half done when the next one gets
/// the lock, as the manifest without the memory that goes with it.
#[derive(Debug)]
pub(crate) struct PanicGuard<'a>(&'a Latch);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if is_panicking() {
            self.0.panicked.store(true, Ordering::Release);
        }
    }
}

impl Latch {
    /// Keeps `error` unless an earlier one is kept.
    pub fn set(&self, error: &Error) {
        // What only follows from a panic would stand for it.
        if error.kind() == ErrorKind::ReadOnly && self.panicked.load(Ordering::Acquire) {
            return;
        }
        let (what, way_out) = (AFTER_FAILURE, "remove the cause and reopen it");
        self.keep(Failure { error: error.clone(), what, way_out });
    }

    /// Latches a panic that said `text`, of the background job or the writer that `who` names.
    pub fn set_panic(&self, who: &str, text: &str) {
        let text = format!("{who} panicked: {text}");
        let way_out = "this is a fault of the store, not of its devices: open it again";
        let (error, what) = (Error::new(ErrorKind::ReadOnly, text), AFTER_FAILURE);
        self.keep(Failure { error, what, way_out });
    }

    /// The store at `home` was opened for reading only, so it is no failure that nothing is
    /// written.
    pub fn set_opened_read_only(&self, home: &Path) {
        let text = format!("{} was opened for reading only", home.display());
        let (what, way_out) = ("the store takes no changes", "close it and open it for writing");
        let failure = Failure { error: Error::new(ErrorKind::ReadOnly, text), what, way_out };
        if self.first.set(failure).is_err() {
            tracing::debug!("a store that was to be read has failed before");
        }
    }

    fn keep(&self, failure: Failure) {
        let error = failure.error.clone();
        if self.first.set(failure).is_ok() {
            tracing::error!(%error, "the store is read-only from here on");
        }
    }

    /// While it lives, a panic of the calling thread sets the latch.
    pub fn guard(&self) -> PanicGuard<'_> {
        PanicGuard(self)
    }

    /// The error every later write gets.
    pub fn check(&self) -> Result<()> {
        let text = match self.first.get() {
            Some(Failure { error, what, way_out }) => format!("{what}: {error}; {way_out}"),
            None if self.panicked.load(Ordering::Acquire) => {
                format!("the store is read-only since {PANIC_TEXT}; open it again")
            }
            None => return Ok(()),
        };
        Err(Error::new(ErrorKind::ReadOnly, text))
    }

    /// The failure, for statistics.
    pub fn reason(&self) -> Option<String> {
        let panicked = || self.panicked.load(Ordering::Acquire).then(|| PANIC_TEXT.to_owned());
        self.first.get().map(|first| first.error.to_string()).or_else(panicked)
    }
}

/// What there is to say of a panic that no thread has caught yet.
const PANIC_TEXT: &str = "a thread panicked while it changed the database";

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_foundation::threads::catch_panic;

    #[test]
    fn a_panic_that_passes_the_guard_latches_before_it_is_caught() {
        let latch = Latch::default();
        drop(latch.guard());
        assert!(latch.check().is_ok(), "nothing happened");
        let caught = catch_panic(|| {
            let _guard = latch.guard();
            panic!("a number is odd");
        });
        let early = latch.check().unwrap_err();
        assert_eq!(early.kind(), ErrorKind::ReadOnly);
        assert!(early.to_string().contains("panicked"), "{early}");
        assert!(latch.reason().is_some());
        // Another caller fails because of it meanwhile.
        latch.set(&early);
        latch.set_panic("the background job 'flush'", &caught.unwrap_err().to_string());
        let text = latch.check().unwrap_err().to_string();
        let said = "the background job 'flush' panicked: a number is odd";
        assert!(text.contains(said) && text.ends_with("open it again"), "{text}");
        assert_eq!(latch.reason().as_deref(), Some(said));
    }
}
