//! The check at the end of a cell that asks for it: every loaded record is what was written last.
//!
//! While operations run, look-ups meet the popular records alone, and may find what is still in a
//! memtable. This check runs after all writes have ended and looks up every record. Of writes that
//! overlapped each may be the last.
//!
//! Records that were inserted are left out: workloads that insert say themselves what is there.
//!
//! Threads: as many as the workload has, each with its part of the records.

use super::runner::Subject;
use super::scan_check::hex;
use crate::{Failure, Outcome};
use std::sync::Arc;
use thermocline_foundation::threads;

/// Looks every loaded record up; returns how many there are.
pub(super) fn read_back(subject: &Arc<Subject>) -> Outcome<u64> {
    if !subject.store.keeps() {
        return Ok(0);
    }
    let (records, count) = (subject.plan.records(), u64::from(subject.plan.threads()));
    let mut handles = Vec::new();
    for thread in 0..count {
        let subject = Arc::clone(subject);
        let part = records * thread / count..records * (thread + 1) / count;
        let name = format!("read-back-{thread}");
        handles.push(threads::spawn(&name, move || -> Outcome<()> {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            for number in part {
                check(&subject, number, &mut key, &mut value)?;
            }
            Ok(())
        })?);
    }
    let mut outcome = Ok(());
    for handle in handles {
        let ended = handle.join().map_err(|_| "a thread that reads back broke off")?;
        outcome = outcome.and(ended);
    }
    outcome.map(|()| records)
}

fn check(subject: &Subject, number: u64, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Outcome<()> {
    subject.keys.key(number, key);
    let window = subject.versions.window(number);
    let found = subject.store.get(key, value)?;
    let wrong =
        |what: String| -> Failure { format!("after the run: {what} (key {})", hex(key)).into() };
    if !found {
        let may = subject.versions.may_be_absent(number, window);
        return if may { Ok(()) } else { Err(wrong(format!("record {number} is missing"))) };
    }
    let version = subject.values.check(number, value).map_err(wrong)?;
    if subject.versions.may_be(number, window, version) {
        return Ok(());
    }
    let expected = subject.versions.expected(number, window);
    Err(wrong(format!("record {number} has version {version}; right is {expected}")))
}
