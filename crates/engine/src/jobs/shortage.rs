//! Jobs that were refused: that found no room on any tier, or no descriptor for a file. Such a job
//! has changed nothing and is tried again; this is where callers that wait for one learn that it
//! has been tried in vain for long.
//!
//! Threads: any.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use thermocline_foundation::sync::Mutex;

/// How long a worker waits after a job was refused, at first.
const WAIT: Duration = Duration::from_millis(50);

/// It doubles each time that callers could have heard of it, so many times: a job may have written
/// much before it was refused.
const DOUBLED_MAX: u32 = 5;

/// So many failures, with no job of the name that ended well between them, last five seconds at
/// least.
const IN_A_ROW_MAX: u32 = 100;

/// Jobs that end well, with no failure between them, after which a job that failed is no longer
/// wanted: else it would have been tried again.
const FORGOTTEN_AFTER: u32 = 100;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Shortage(Mutex<Refused>);

#[derive(Debug, Default)]
struct Refused {
    jobs: BTreeMap<&'static str, Failures>,
    /// How often any job was refused so far.
    times: u64,
}

/// A moment, told by how often jobs had been refused by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(u64);

/// The failures of jobs of a name since one of them ended well.
#[derive(Debug)]
struct Failures {
    in_a_row: u32,
    /// When the last two were.
    at: [u64; 2],
    last: Error,
    /// Jobs of other names that have ended well since the last.
    others_ended: u32,
}

impl Shortage {
    /// A job was refused; says how long to wait before another try, and whether it is the first
    /// time in a row.
    pub fn note(&self, job: &'static str, error: &Error) -> (Duration, bool) {
        let mut refused = self.0.lock();
        refused.times += 1;
        let now = refused.times;
        let earlier = refused.jobs.get(job).map(|failures| (failures.in_a_row, failures.at[1]));
        let (in_a_row, before) = earlier.unwrap_or((0, now));
        let (in_a_row, at, last) = (in_a_row + 1, [before, now], error.clone());
        refused.jobs.insert(job, Failures { in_a_row, at, last, others_ended: 0 });
        (WAIT * (1 << (in_a_row / IN_A_ROW_MAX).min(DOUBLED_MAX)), in_a_row == 1)
    }

    /// Now.
    pub fn moment(&self) -> Moment {
        Moment(self.0.lock().times)
    }

    /// A job ended well. Others may have needed less, so what they fail at goes on.
    pub fn end(&self, job: &'static str) {
        let jobs = &mut self.0.lock().jobs;
        jobs.remove(job);
        jobs.retain(|_, failures| {
            failures.others_ended += 1;
            failures.others_ended < FORGOTTEN_AFTER
        });
    }

    /// Jobs have been tried in vain for long.
    #[cfg(test)]
    pub fn is_lasting(&self) -> bool {
        self.check_since(Moment(0)).is_err()
    }

    /// As [`Shortage::check_since`].
    pub fn is_lasting_since(&self, moment: Moment) -> bool {
        self.check_since(moment).is_err()
    }

    /// The error for a caller that waits for a job since `moment`, once it has been tried in vain
    /// for long, and once from its start since the caller waits: there may be room again. The job
    /// is still tried again: so may be the call.
    pub fn check_since(&self, moment: Moment) -> Result<()> {
        let refused = self.0.lock();
        let is_lasting =
            |failures: &&Failures| failures.in_a_row >= IN_A_ROW_MAX && failures.at[0] > moment.0;
        let lasting = refused.jobs.values().find(is_lasting);
        lasting.map_or(Ok(()), |failures| Err(failures.last.clone()))
    }

    /// What the job was told that was most often refused for this `kind` of reason, if there is
    /// one.
    pub fn reason(&self, kind: ErrorKind) -> Option<String> {
        let refused = self.0.lock();
        let failures = refused.jobs.values().filter(|failures| failures.last.kind() == kind);
        let most = failures.max_by_key(|failures| failures.in_a_row);
        most.map(|failures| failures.last.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_hear_of_a_shortage_that_lasts_until_that_job_ends_well() {
        let shortage = Shortage::default();
        let note = |job| shortage.note(job, &Error::new(ErrorKind::TooManyOpenFiles, job));
        for _ in 1..IN_A_ROW_MAX {
            note("flush");
            // It gave up for the same reason, or needed none.
            shortage.end("migration");
        }
        note("merge");
        assert!(shortage.check_since(Moment(0)).is_ok() && !shortage.is_lasting());
        assert_eq!(shortage.reason(ErrorKind::TooManyOpenFiles).as_deref(), Some("flush"));
        note("flush");
        let error = shortage.check_since(Moment(0)).unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::TooManyOpenFiles, "flush"));
        shortage.end("flush");
        assert!(shortage.check_since(Moment(0)).is_ok());
        assert_eq!(shortage.reason(ErrorKind::TooManyOpenFiles).as_deref(), Some("merge"));
        note("flush");
        assert!(!shortage.is_lasting(), "counted anew");
    }

    #[test]
    fn a_caller_hears_of_nothing_before_the_job_was_begun_and_refused_while_it_waits() {
        let shortage = Shortage::default();
        let error = Error::new(ErrorKind::OutOfSpace, "flush");
        (0..2 * IN_A_ROW_MAX).for_each(|_| {
            shortage.note("flush", &error);
        });
        let moment = shortage.moment();
        assert!(shortage.is_lasting() && !shortage.is_lasting_since(moment));
        shortage.note("flush", &error);
        assert!(!shortage.is_lasting_since(moment), "it may have been begun before");
        shortage.note("flush", &error);
        assert!(shortage.check_since(moment).is_err());
    }

    #[test]
    fn a_job_that_is_refused_for_long_is_tried_less_often() {
        let shortage = Shortage::default();
        let error = Error::new(ErrorKind::OutOfSpace, "merge");
        assert_eq!(shortage.note("merge", &error), (WAIT, true));
        let waits: Vec<_> = (1..1000).map(|_| shortage.note("merge", &error).0).collect();
        assert_eq!((waits[97], waits[98], waits[198]), (WAIT, 2 * WAIT, 4 * WAIT));
        assert_eq!(waits[998], 32 * WAIT);
        shortage.end("merge");
        assert_eq!(shortage.note("merge", &error), (WAIT, true));
    }

    #[test]
    fn a_job_that_is_not_tried_again_is_forgotten() {
        let shortage = Shortage::default();
        (0..IN_A_ROW_MAX).for_each(|_| {
            shortage.note("merge", &Error::new(ErrorKind::TooManyOpenFiles, "no descriptor"));
        });
        (1..FORGOTTEN_AFTER).for_each(|_| shortage.end("flush"));
        assert!(shortage.is_lasting());
        shortage.end("flush");
        assert!(!shortage.is_lasting() && shortage.reason(ErrorKind::TooManyOpenFiles).is_none());
    }
}
