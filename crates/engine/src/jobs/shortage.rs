//! Jobs that found no descriptor for a file. Such a job has changed nothing and is tried again;
//! this is where callers that wait for one learn that it has been tried in vain for long.
//!
//! Threads: any.

use crate::error::{Error, Result};
use std::time::Duration;
use thermocline_foundation::sync::Mutex;

/// How long a worker waits after a job found no descriptor.
pub(crate) const SHORTAGE_WAIT: Duration = Duration::from_millis(50);

/// So many failures, with no job that ended well between them, last five seconds at least.
const IN_A_ROW_MAX: u32 = 100;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Shortage(Mutex<Option<Failures>>);

#[derive(Debug)]
struct Failures {
    in_a_row: u32,
    last: Error,
}

impl Shortage {
    /// A job found no descriptor.
    pub fn note(&self, error: &Error) {
        let mut failures = self.0.lock();
        let in_a_row = failures.as_ref().map_or(0, |failures| failures.in_a_row) + 1;
        *failures = Some(Failures { in_a_row, last: error.clone() });
    }

    /// A job ended well.
    pub fn end(&self) {
        *self.0.lock() = None;
    }

    /// Jobs have been tried in vain for long.
    pub fn is_lasting(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|failures| failures.in_a_row >= IN_A_ROW_MAX)
    }

    /// The error for a caller that waits for a job, once it has been tried in vain for long. The
    /// job is still tried again: so may be the call.
    pub fn check(&self) -> Result<()> {
        match &*self.0.lock() {
            Some(failures) if failures.in_a_row >= IN_A_ROW_MAX => Err(failures.last.clone()),
            _ => Ok(()),
        }
    }

    /// What the last job was told, if it found none.
    pub fn reason(&self) -> Option<String> {
        self.0.lock().as_ref().map(|failures| failures.last.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn callers_hear_of_a_shortage_that_lasts_until_a_job_ends_well() {
        let shortage = Shortage::default();
        let note = || shortage.note(&Error::new(ErrorKind::TooManyOpenFiles, "no descriptor"));
        (1..IN_A_ROW_MAX).for_each(|_| note());
        assert!(shortage.check().is_ok() && !shortage.is_lasting());
        assert_eq!(shortage.reason().as_deref(), Some("no descriptor"));
        note();
        assert_eq!(shortage.check().unwrap_err().kind(), ErrorKind::TooManyOpenFiles);
        shortage.end();
        assert!(shortage.check().is_ok() && shortage.reason().is_none());
        note();
        assert!(!shortage.is_lasting(), "counted anew");
    }
}
