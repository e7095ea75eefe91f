//! The numbers of the answers, and what failed where the answer is not "done".
//!
//! Numbers below 100 are kinds of the engine's errors, in the order in which they came; those from
//! 100 on are of this interface alone. A number is never given a second meaning.

/// How a call went. Each says what the caller can do.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names that C has")]
pub enum Status {
    /// It is done.
    THERMOCLINE_OK = 0,
    /// A look-up found no such key, or a scan has no more records: these two have no text. An
    /// opening found no database, file or tier where one is needed: fix the path, or create it.
    THERMOCLINE_NOT_FOUND = 1,
    /// Something is in the way: choose another place.
    THERMOCLINE_ALREADY_EXISTS = 2,
    /// A tier or its device is full: free space or raise the capacity.
    THERMOCLINE_OUT_OF_SPACE = 3,
    /// Stored bytes are not what was written: restore from a checkpoint.
    THERMOCLINE_CORRUPT = 4,
    /// The database is open already, in another process or in this one, or its handle came with a
    /// fork; the text says where: close it there.
    THERMOCLINE_LOCKED = 5,
    /// A tier is missing, foreign, swapped or out of date: mount or name the right one.
    THERMOCLINE_TIER = 6,
    /// The data was written by a newer version: upgrade.
    THERMOCLINE_NEWER_FORMAT = 7,
    /// The call or the settings cannot be carried out as given: fix them.
    THERMOCLINE_INVALID = 8,
    /// The store takes no writes, since an earlier failure or because of how it was opened; the
    /// text says which: remove the cause and reopen, or read.
    THERMOCLINE_READ_ONLY = 9,
    /// Another write came first; nothing was written: run it again, from its reads on.
    THERMOCLINE_CONFLICT = 10,
    /// Transactions wait for each other's locks: drop this one and run it again.
    THERMOCLINE_DEADLOCK = 11,
    /// Another transaction has held a lock for too long: run this again, or end the other.
    THERMOCLINE_LOCK_TIMEOUT = 12,
    /// Permissions do not allow it: change them, or open for reading only.
    THERMOCLINE_DENIED = 13,
    /// As many files are open as may be: raise `ulimit -n` and call again. Nothing has changed.
    THERMOCLINE_TOO_MANY_OPEN_FILES = 14,
    /// A device failed: see the system's log.
    THERMOCLINE_IO = 15,
    /// As many asynchronous requests wait as may: wait for one and call again. Nothing has changed.
    THERMOCLINE_BUSY = 16,
    /// A fault of the library, caught. The handle, and all handles of its database, answer nothing
    /// but their `_close` from here on: close them and open the database again.
    THERMOCLINE_PANIC = 100,
    /// Of a ticket: there is no answer yet. Without a text.
    THERMOCLINE_PENDING = 101,
}

/// An answer other than "done".
#[derive(Clone, Debug)]
pub struct Failure {
    pub status: Status,
    /// One line for the caller; none where the number says all.
    pub text: Option<String>,
}

impl Failure {
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { status: Status::THERMOCLINE_INVALID, text: Some(text.into()) }
    }

    /// There is no such record, which is no error.
    pub fn not_found() -> Self {
        Self { status: Status::THERMOCLINE_NOT_FOUND, text: None }
    }
}
