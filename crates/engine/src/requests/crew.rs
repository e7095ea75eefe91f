//! The threads of one kind: when one more starts, and which are signalled.

use crate::error::{Error, ErrorKind, Result};
use std::io;
use thermocline_foundation::threads::JoinHandle;

/// Starts a thread.
pub(super) type Start<'a> = &'a dyn Fn() -> io::Result<JoinHandle<()>>;

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Crew {
    pub threads: Vec<JoinHandle<()>>,
    asleep: usize,
    /// Of these, how many are about to wake.
    signalled: usize,
}

impl Crew {
    /// A request came. True if a sleeper is to be signalled; where none sleeps and there are fewer
    /// than `most`, one more starts.
    pub fn call(&mut self, most: usize, start: Start<'_>) -> Result<bool> {
        if self.asleep > self.signalled {
            self.signalled += 1;
            return Ok(true);
        }
        if self.threads.len() < most {
            match start() {
                Ok(thread) => self.threads.push(thread),
                Err(error) if self.threads.is_empty() => {
                    let text = format!("cannot start a thread for asynchronous requests: {error}");
                    return Err(Error::new(ErrorKind::Io, text));
                }
                Err(error) => tracing::warn!(%error, "no further thread for requests"),
            }
        }
        Ok(false)
    }

    /// One of them goes to sleep.
    pub fn sleeps(&mut self) {
        self.asleep += 1;
    }

    /// One of them has woken.
    pub fn has_woken(&mut self) {
        self.asleep -= 1;
        self.signalled = self.signalled.saturating_sub(1);
    }
}
