//! How an error of the device layer is told to C.

use crate::status::{Failure, Status};
use thermocline_device::{Error, ErrorKind};

fn status_of(kind: ErrorKind) -> Status {
    match kind {
        ErrorKind::NotFound => Status::THERMOCLINE_NOT_FOUND,
        ErrorKind::AlreadyExists => Status::THERMOCLINE_ALREADY_EXISTS,
        ErrorKind::OutOfSpace => Status::THERMOCLINE_OUT_OF_SPACE,
        ErrorKind::Corrupt => Status::THERMOCLINE_CORRUPT,
        ErrorKind::Locked => Status::THERMOCLINE_LOCKED,
        ErrorKind::Tier => Status::THERMOCLINE_TIER,
        ErrorKind::NewerFormat => Status::THERMOCLINE_NEWER_FORMAT,
        ErrorKind::ReadOnly => Status::THERMOCLINE_READ_ONLY,
        ErrorKind::Denied => Status::THERMOCLINE_DENIED,
        ErrorKind::Invalid => Status::THERMOCLINE_INVALID,
        ErrorKind::TooManyOpenFiles => Status::THERMOCLINE_TOO_MANY_OPEN_FILES,
        ErrorKind::Io => Status::THERMOCLINE_IO,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { status: status_of(error.kind()), text: Some(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_the_number_that_the_store_has_for_it() {
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
            (ErrorKind::Denied, 13),
            (ErrorKind::TooManyOpenFiles, 14),
            (ErrorKind::Io, 15),
        ];
        for (kind, number) in kinds {
            let failure = Failure::from(Error::new(kind, "why"));
            assert_eq!((failure.status as i32, failure.text.as_deref()), (number, Some("why")));
        }
    }
}
