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
    /// Why a writer that made its log itself found no descriptor for it, if none was made since.
    log: Option<Error>,
    /// Jobs that were begun so far.
    begun: u64,
}

/// A moment, told by how many jobs had been begun by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The failures of jobs of a name since one of them ended well.
#[derive(Debug)]
struct Failures {
    in_a_row: u32,
    /// When the one was begun that was begun last: several are at work at once.
    begun: Moment,
    last: Error,
    /// Jobs of other names that have ended well since the last.
    others_ended: u32,
}

impl Shortage {
    /// A job is about to be begun.
    pub fn begin(&self) -> Moment {
        let mut refused = self.0.lock();
        refused.begun += 1;
        Moment(refused.begun)
    }

    /// A job that was begun then was refused; says how long to wait before another try, and whether
    /// it is the first time in a row.
    pub fn note(&self, job: &'static str, begun: Moment, error: &Error) -> (Duration, bool) {
        let mut refused = self.0.lock();
        let earlier = refused.jobs.get(job).map(|failures| (failures.in_a_row, failures.begun));
        let (in_a_row, before) = earlier.unwrap_or_default();
        let (in_a_row, begun, last) = (in_a_row + 1, begun.max(before), error.clone());
        refused.jobs.insert(job, Failures { in_a_row, begun, last, others_ended: 0 });
        (WAIT * (1 << (in_a_row / IN_A_ROW_MAX).min(DOUBLED_MAX)), in_a_row == 1)
    }

    /// A writer that made its log itself was refused. Where it found no descriptor, this is told as
    /// if a job had found none, but is no try of one, and no job need be wanted. Where it found no
    /// room, its own log may have been too large.
    pub fn log_was_refused(&self, error: &Error) {
        if error.kind() == ErrorKind::TooManyOpenFiles {
            self.0.lock().log = Some(error.clone());
        }
    }

    /// A log was made, by a writer or for the next.
    pub fn log_was_made(&self) {
        self.0.lock().log = None;
    }

    /// Now: what is begun from here on is begun after it.
    pub fn moment(&self) -> Moment {
        Moment(self.0.lock().begun)
    }

    /// There is nothing to do, so no job that was refused for this `kind` of reason is wanted any
    /// more: it would be tried again.
    pub fn forget(&self, kind: ErrorKind) {
        self.0.lock().jobs.retain(|_, failures| failures.last.kind() != kind);
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
        self.check_since(Moment::default()).is_err()
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
            |failures: &&Failures| failures.in_a_row >= IN_A_ROW_MAX && failures.begun > moment;
        let lasting = refused.jobs.values().find(is_lasting);
        lasting.map_or(Ok(()), |failures| Err(failures.last.clone()))
    }

    /// What the job was told that was most often refused for this `kind` of reason, or else the
    /// writer, if there is one.
    pub fn reason(&self, kind: ErrorKind) -> Option<String> {
        let refused = self.0.lock();
        let failures = refused.jobs.values().filter(|failures| failures.last.kind() == kind);
        let most = failures.max_by_key(|failures| failures.in_a_row).map(|job| &job.last);
        let log = refused.log.as_ref().filter(|error| error.kind() == kind);
        most.or(log).map(Error::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_hear_of_a_shortage_that_lasts_until_that_job_ends_well() {
        let shortage = Shortage::default();
        let error = |job| Error::new(ErrorKind::TooManyOpenFiles, job);
        let note = |job| shortage.note(job, shortage.begin(), &error(job));
        for _ in 1..IN_A_ROW_MAX {
            note("flush");
            // It gave up for the same reason, or needed none.
            shortage.end("migration");
        }
        note("merge");
        assert!(shortage.check_since(Moment::default()).is_ok() && !shortage.is_lasting());
        assert_eq!(shortage.reason(ErrorKind::TooManyOpenFiles).as_deref(), Some("flush"));
        note("flush");
        let error = shortage.check_since(Moment::default()).unwrap_err();
        assert_eq!((error.kind(), &*error.to_string()), (ErrorKind::TooManyOpenFiles, "flush"));
        shortage.end("flush");
        assert!(shortage.check_since(Moment::default()).is_ok());
        assert_eq!(shortage.reason(ErrorKind::TooManyOpenFiles).as_deref(), Some("merge"));
        note("flush");
        assert!(!shortage.is_lasting(), "counted anew");
    }

    #[test]
    fn a_caller_hears_of_nothing_before_a_job_was_begun_and_refused_while_it_waits() {
        let shortage = Shortage::default();
        let error = Error::new(ErrorKind::OutOfSpace, "flush");
        let note = |begun| _ = shortage.note("flush", begun, &error);
        (0..2 * IN_A_ROW_MAX).for_each(|_| note(shortage.begin()));
        let before = [shortage.begin(), shortage.begin(), shortage.begin()];
        let moment = shortage.moment();
        assert!(shortage.is_lasting() && !shortage.is_lasting_since(moment));
        note(before[0]);
        note(before[1]);
        assert!(!shortage.is_lasting_since(moment), "both were begun before");
        note(shortage.begin());
        note(before[2]);
        assert!(shortage.check_since(moment).is_err());
    }

    #[test]
    fn what_a_writer_was_refused_is_told_until_a_log_is_made_and_makes_none_give_up() {
        let shortage = Shortage::default();
        let kind = ErrorKind::TooManyOpenFiles;
        (0..2 * IN_A_ROW_MAX).for_each(|_| shortage.log_was_refused(&Error::new(kind, "no log")));
        assert!(!shortage.is_lasting());
        shortage.forget(kind);
        (0..FORGOTTEN_AFTER).for_each(|_| shortage.end("flush"));
        assert_eq!(shortage.reason(kind).as_deref(), Some("no log"), "idle or not");
        shortage.note("flush", shortage.begin(), &Error::new(kind, "no table"));
        assert_eq!(shortage.reason(kind).as_deref(), Some("no table"));
        shortage.end("flush");
        assert_eq!(shortage.reason(ErrorKind::OutOfSpace), None);
        shortage.log_was_made();
        assert_eq!(shortage.reason(kind), None);
    }

    #[test]
    fn what_nothing_wants_any_more_is_forgotten_by_its_kind() {
        let shortage = Shortage::default();
        for (job, kind) in
            [("flush", ErrorKind::TooManyOpenFiles), ("merge", ErrorKind::OutOfSpace)]
        {
            shortage.note(job, shortage.begin(), &Error::new(kind, "refused"));
        }
        shortage.forget(ErrorKind::TooManyOpenFiles);
        assert_eq!(shortage.reason(ErrorKind::TooManyOpenFiles), None);
        assert!(shortage.reason(ErrorKind::OutOfSpace).is_some());
    }

    #[test]
    fn a_job_that_is_refused_for_long_is_tried_less_often() {
        let shortage = Shortage::default();
        let error = Error::new(ErrorKind::OutOfSpace, "merge");
        let note = || shortage.note("merge", shortage.begin(), &error);
        assert_eq!(note(), (WAIT, true));
        let waits: Vec<_> = (1..1000).map(|_| note().0).collect();
        assert_eq!((waits[97], waits[98], waits[198]), (WAIT, 2 * WAIT, 4 * WAIT));
        assert_eq!(waits[998], 32 * WAIT);
        shortage.end("merge");
        assert_eq!(note(), (WAIT, true));
    }

    #[test]
    fn a_job_that_is_not_tried_again_is_forgotten() {
        let shortage = Shortage::default();
        let error = Error::new(ErrorKind::TooManyOpenFiles, "no descriptor");
        (0..IN_A_ROW_MAX).for_each(|_| _ = shortage.note("merge", shortage.begin(), &error));
        (1..FORGOTTEN_AFTER).for_each(|_| shortage.end("flush"));
        assert!(shortage.is_lasting());
        shortage.end("flush");
        assert!(!shortage.is_lasting() && shortage.reason(ErrorKind::TooManyOpenFiles).is_none());
    }
}
