//! A moment without writes: nothing is in flight, and no writer comes in.

use super::logged::QuietLogs;
use super::persistent::QuietArenas;
use crate::error::Result;
use thermocline_foundation::{FileNumber, Sequence};

/// Lasts for as long as it lives. One `match` an operation, as for the front whose it is.
#[derive(Debug)]
pub(crate) enum Quiet<'a> {
    Logged(QuietLogs<'a>),
    Persistent(QuietArenas<'a>),
}

impl Quiet<'_> {
    /// Freezes the active memtable unless it is empty.
    pub fn freeze(&mut self) -> Result<()> {
        match self {
            Self::Logged(quiet) => quiet.freeze(),
            Self::Persistent(quiet) => quiet.freeze(),
        }
    }

    /// Freezes the active memtable, which has records.
    #[cfg(test)]
    pub fn rotate(&mut self) -> Result<()> {
        match self {
            Self::Logged(quiet) => quiet.rotate(),
            Self::Persistent(quiet) => quiet.freeze(),
        }
    }

    /// The number of the active memtable's generation. Later ones have larger numbers.
    pub fn number(&self) -> FileNumber {
        match self {
            Self::Logged(quiet) => quiet.log_number(),
            Self::Persistent(quiet) => quiet.arena_number(),
        }
    }

    /// Hands all that was appended to the driver, so that a concurrent sync has nothing left to
    /// write.
    pub fn hand_over_log(&self) -> Result<()> {
        match self {
            Self::Logged(quiet) => quiet.hand_over_log(),
            Self::Persistent(_) => Ok(()),
        }
    }

    /// Brings everything into tables, and runs `body` with a sequence of its own: what it adds is
    /// newer than all before and older than all after.
    pub fn with_sequence<T>(self, body: impl FnOnce(Sequence) -> Result<T>) -> Result<T> {
        match self {
            Self::Logged(quiet) => quiet.with_sequence(body),
            Self::Persistent(quiet) => quiet.with_sequence(body),
        }
    }

    /// Gives up the active memtable's generation, to which no writer will write.
    pub fn discard(self) {
        match self {
            Self::Logged(quiet) => quiet.discard(),
            Self::Persistent(quiet) => quiet.discard(),
        }
    }

    /// Ends the generations for a clean close. The latch has sent all waiting writers away.
    pub fn seal(self) -> Result<()> {
        match self {
            Self::Logged(quiet) => quiet.seal(),
            Self::Persistent(quiet) => quiet.seal(),
        }
    }
}
