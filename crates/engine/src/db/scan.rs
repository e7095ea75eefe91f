//! A scan as its users describe it, up to the cursor that runs it.

use crate::engine::Engine;
use crate::error::Result;
use crate::read::cursor::{Records, ScanRange};
use crate::read::overlay::OwnView;
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot as RegisteredSnapshot;
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Bytes that a record is taken to have when a limit sizes the first read of a scan.
const RECORD_BYTES_GUESS: u64 = 1 << 10;
/// First read of a scan at most, in bytes; read-ahead grows from there.
const FIRST_READ_BYTES_MAX: u64 = 256 << 10;

/// A scan being described; iterate over it to run it.
#[derive(Debug)]
pub struct Scan {
    engine: Arc<Engine>,
    snapshot: Option<RegisteredSnapshot>,
    range: ScanRange,
    reverse: bool,
    limit: u64,
    held: Held,
    /// The transaction that it is of.
    of: Option<OwnView>,
}

impl Scan {
    pub(super) fn new(engine: Arc<Engine>, snapshot: Option<RegisteredSnapshot>) -> Self {
        let held = Held::new(engine.holders(), Holder::Cursor);
        let (range, limit) = (ScanRange::all(), u64::MAX);
        Self { engine, snapshot, range, reverse: false, limit, held, of: None }
    }

    /// Of a transaction: with what it has written.
    pub(super) fn within(self, view: OwnView) -> Self {
        Self { of: Some(view), ..self }
    }

    /// Only keys in `range`, such as `b"a".to_vec()..b"b".to_vec()`.
    pub fn range(mut self, range: impl RangeBounds<Vec<u8>>) -> Self {
        self.range =
            ScanRange { from: range.start_bound().cloned(), to: range.end_bound().cloned() };
        self
    }

    /// Only keys at or after `key`.
    pub fn from(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.from = Bound::Included(key.into());
        self
    }

    /// Only keys before `key`.
    pub fn to(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.range.to = Bound::Excluded(key.into());
        self
    }

    /// Only keys that begin with `prefix`; narrows down what was said before.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.range = self.range.with_prefix(prefix.as_ref());
        self
    }

    /// Largest key first.
    pub fn reverse(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// At most `records`. Also sizes the first read.
    pub fn limit(mut self, records: u64) -> Self {
        self.limit = records;
        self
    }
}

impl IntoIterator for Scan {
    type Item = Result<(Bytes, Bytes)>;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        let snapshot = self.snapshot.unwrap_or_else(|| self.engine.snapshot());
        let expected = match self.limit {
            u64::MAX => 0,
            limit => limit.saturating_mul(RECORD_BYTES_GUESS).min(FIRST_READ_BYTES_MAX),
        };
        let cursor = self.engine.reader().cursor(&self.range, snapshot, expected as u32);
        // The cursor is counted from here on.
        drop(self.held);
        Records::new(cursor, self.range, (self.reverse, self.limit), self.of.as_ref())
    }
}
