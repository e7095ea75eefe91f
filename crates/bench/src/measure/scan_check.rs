//! What a scan hands over, checked record by record: order, values, and that none is left out.
//!
//! A scan sees the store as of one moment, so a record may have any version up to the newest. Where
//! nothing is ever deleted, loaded records follow each other without a gap: their positions count
//! up by one (`keys`), inserts between them aside.
//!
//! Threads: one scan, one thread.

use super::runner::Subject;
use crate::keys::Keys;
use crate::workloads::{Kind, Start};
use std::fmt::Write;

/// Checks the records of a scan one by one: order, values, and that none is left out.
pub(super) struct ScanCheck<'a> {
    subject: &'a Subject,
    last: Vec<u8>,
    /// The position that a loaded record must have next, where none can be absent.
    next: Option<u64>,
    count: u64,
    wrong: Option<String>,
}

impl<'a> ScanCheck<'a> {
    pub(super) fn new(subject: &'a Subject, from: &[u8]) -> Self {
        let workload = subject.plan.workload();
        let deletes =
            workload.trace.is_some() || workload.mix.iter().any(|share| share.kind == Kind::Delete);
        let loaded = workload.start == Start::Loaded;
        let next = (loaded && !deletes).then(|| Keys::place(from)).flatten();
        Self {
            subject,
            last: Vec::with_capacity(from.len()),
            // A scan from an insert begins with the loaded record after it.
            next: next.map(|(position, inserted)| position + u64::from(inserted)),
            count: 0,
            wrong: None,
        }
    }

    #[inline]
    pub(super) fn visit(&mut self, key: &[u8], value: &[u8]) {
        if self.wrong.is_some() {
            return;
        }
        if let Err(what) = self.check(key, value) {
            self.wrong = Some(what);
        }
    }

    fn check(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let subject = self.subject;
        let Some(number) = subject.keys.number(key) else {
            return Err(format!("key {} was never written", hex(key)));
        };
        if self.count > 0 && self.last.as_slice() >= key {
            return Err(format!("key {} comes after key {}", hex(key), hex(&self.last)));
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        let version = subject.values.check(number, value)?;
        if number >= subject.plan.records() {
            return if version == 1 {
                Ok(())
            } else {
                Err(format!("record {number} has version {version}; it was written once"))
            };
        }
        // A scan sees one moment and ends later, so only versions to come are wrong.
        let unknown = subject.versions.window(number).of_any_age();
        if !subject.versions.may_be(number, unknown, version) {
            return Err(format!("record {number} has version {version}, not written yet"));
        }
        match (self.next, Keys::place(key)) {
            (Some(next), Some((position, _))) if position != next => {
                let left_out = subject.keys.at_position(next.min(position));
                Err(format!("record {left_out} is left out before key {}", hex(key)))
            }
            (Some(next), _) => {
                self.next = Some(next + 1);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn end(self, wanted: u64) -> Result<(), String> {
        match (self.wrong, self.next) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(next)) if self.count < wanted && next < self.subject.plan.records() => {
                let left_out = self.subject.keys.at_position(next);
                Err(format!("it ends after {} records, before record {left_out}", self.count))
            }
            _ => Ok(()),
        }
    }
}

/// A key as it is named in errors.
pub(super) fn hex(key: &[u8]) -> String {
    let mut text = String::with_capacity(2 * key.len());
    for byte in key.iter().take(32) {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > 32 {
        text.push_str("...");
    }
    text
}
