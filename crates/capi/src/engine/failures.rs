//! How an error of the engine is told to C.

use crate::status::{Failure, Status};
use thermocline::{Error, ErrorKind};

/// The number of a kind.
fn status_of(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::NotFound => Status::THERMOCLINE_NOT_FOUND,
        ErrorKind::AlreadyExists => Status::THERMOCLINE_ALREADY_EXISTS,
        ErrorKind::OutOfSpace => Status::THERMOCLINE_OUT_OF_SPACE,
        ErrorKind::Corrupt => Status::THERMOCLINE_CORRUPT,
        ErrorKind::Locked => Status::THERMOCLINE_LOCKED,
        ErrorKind::Tier => Status::THERMOCLINE_TIER,
        ErrorKind::NewerFormat => Status::THERMOCLINE_NEWER_FORMAT,
        ErrorKind::Invalid => Status::THERMOCLINE_INVALID,
        ErrorKind::ReadOnly => Status::THERMOCLINE_READ_ONLY,
        ErrorKind::Conflict => Status::THERMOCLINE_CONFLICT,
        ErrorKind::Deadlock => Status::THERMOCLINE_DEADLOCK,
        ErrorKind::LockTimeout => Status::THERMOCLINE_LOCK_TIMEOUT,
        ErrorKind::Denied => Status::THERMOCLINE_DENIED,
        ErrorKind::TooManyOpenFiles => Status::THERMOCLINE_TOO_MANY_OPEN_FILES,
        ErrorKind::Io => Status::THERMOCLINE_IO,
        ErrorKind::Busy => Status::THERMOCLINE_BUSY,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { status: status_of(error.kind()), text: Some(error.to_string()) }
    }
}

/// A failed read of records, whose caller takes "not found" for "no such record": a file that is
/// missing is something else.
pub fn of_read(error: Error) -> Failure {
    let failure = Failure::from(error);
    match failure.status {
        Status::THERMOCLINE_NOT_FOUND => Failure { status: Status::THERMOCLINE_IO, ..failure },
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that programs have been compiled with. A kind that the engine gains stops
    /// `status_of` from compiling, and gets the next number here.
    #[test]
    fn numbers_of_answers_stay_as_they_are() {
        let kinds = [
            (ErrorKind::NotFound, 1),
            (ErrorKind::AlreadyExists, 2),
            (ErrorKind::OutOfSpace, 3),
            (ErrorKind::Corrupt, 4),
            (ErrorKind::Locked, 5),
            (ErrorKind::Tier, 6),
            (ErrorKind::NewerFormat, 7),
            (ErrorKind::Invalid, 8),
            (ErrorKind::ReadOnly, 9),
            (ErrorKind::Conflict, 10),
            (ErrorKind::Deadlock, 11),
            (ErrorKind::LockTimeout, 12),
            (ErrorKind::Denied, 13),
            (ErrorKind::TooManyOpenFiles, 14),
            (ErrorKind::Io, 15),
            (ErrorKind::Busy, 16),
        ];
        for (kind, number) in kinds {
            let failure = Failure::from(Error::new(kind, "why"));
            assert_eq!((failure.status as i32, failure.text.as_deref()), (number, Some("why")));
        }
        assert_eq!(Status::THERMOCLINE_OK as i32, 0);
        assert_eq!(Status::THERMOCLINE_PANIC as i32, 100);
    }

    #[test]
    fn a_missing_file_is_not_taken_for_a_missing_key() {
        let failure = of_read(Error::new(ErrorKind::NotFound, "table 7 is gone"));
        assert_eq!(failure.status, Status::THERMOCLINE_IO);
        assert_eq!(failure.text.as_deref(), Some("table 7 is gone"));
        assert_eq!(of_read(Error::new(ErrorKind::Tier, "")).status, Status::THERMOCLINE_TIER);
    }
}
