//! Why a command ends early: one line of text and an exit status.

use std::fmt;
use std::io;

/// The crate's result.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A command that could not do what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// It was asked wrongly: exit status 2.
    Usage(String),
    /// It did not work: exit status 1.
    Failed(String),
    /// It did not work, for another process has the database open: exit status 1.
    Locked(String),
    /// The reader of standard output has closed it: no message, exit status 0.
    ReaderGone,
}

impl Failure {
    /// A failure with a complete, one-line text.
    pub fn new(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }

    /// The process's exit status.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) | Self::Locked(_) => 1,
            Self::ReaderGone => 0,
        }
    }

    /// The same failure with more said after it.
    pub fn and(self, more: impl fmt::Display) -> Self {
        match self {
            Self::Failed(text) => Self::Failed(format!("{text}; {more}")),
            Self::Locked(text) => Self::Locked(format!("{text}; {more}")),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A line is promised, whatever the text was made of.
            Self::Usage(text) | Self::Failed(text) | Self::Locked(text) => {
                f.write_str(&text.replace('\n', " "))
            }
            Self::ReaderGone => f.write_str("standard output was closed"),
        }
    }
}

impl From<thermocline::Error> for Failure {
    fn from(error: thermocline::Error) -> Self {
        match error.kind() {
            thermocline::ErrorKind::Locked => Self::Locked(error.to_string()),
            _ => Self::new(error.to_string()),
        }
    }
}

impl From<thermocline_device::Error> for Failure {
    fn from(error: thermocline_device::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::new(format!("cannot write JSON: {error}"))
    }
}

/// An error of standard output, the only stream written with `?`.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::new(format!("cannot write to standard output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_and_a_closed_pipe_is_none() {
        assert_eq!(Failure::new("a\nb").and("c").to_string(), "a b; c");
        let gone = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(gone, Failure::ReaderGone));
        assert_eq!(Failure::from(io::Error::other("full")).status(), 1);
    }
}
