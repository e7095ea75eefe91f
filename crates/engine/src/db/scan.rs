//! A scan as its users describe it, up to the cursor that runs it, and page by page where it is
//! asynchronous.

use crate::engine::Engine;
use crate::error::Result;
use crate::read::cursor::Records;
use crate::read::overlay::OwnView;
use crate::read::range::ScanRange;
use crate::requests::ReadKind;
use crate::requests::ticket::Ticket;
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot as RegisteredSnapshot;
use bytes::Bytes;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use thermocline_foundation::ByteSize;

/// Bytes that a record is taken to have when a limit sizes the first read of a scan.
const RECORD_BYTES_GUESS: u64 = 1 << 10;
/// First read of a scan at most, in bytes; read-ahead grows from there.
const FIRST_READ_BYTES_MAX: u64 = 256 << 10;

/// A scan being described; iterate over it to run it.
#[derive(Clone, Debug)]
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

    /// Runs the scan up to its first page: records until they have `bytes_max`, at least one. The
    /// page has the rest of the scan. Returns at once, with a ticket for the page that a thread of
    /// the database reads.
    ///
    /// A page counts with `bytes_max` among the bytes of waiting requests (`request_queue_bytes`).
    /// An error of kind `Busy` where as many wait as may, as for
    /// [`Db::put_async`](crate::Db::put_async); a clone of the scan can be used again then.
    pub fn page_async(self, bytes_max: ByteSize) -> Result<Ticket<ScanPage>> {
        let engine = Arc::clone(self.engine.ours()?);
        let of_page = Arc::clone(&engine);
        engine.requests().read(ReadKind::Page, bytes_max.0, || {
            // A commit may come before the page is read, and validates what it will have read.
            let of = self.of.clone().map(|view| view.with_noted(&self.range));
            let scan = Self { of, ..self };
            move || Ok(ScanPage::read(Some((of_page, scan.into_iter())), bytes_max))
        })
    }
}

/// A part of a scan's records, and what is left of the scan.
#[derive(Debug)]
pub struct ScanPage {
    /// The records, in the order of the scan. One that is damaged is an error in its place.
    pub records: Vec<Result<(Bytes, Bytes)>>,
    /// None where the scan has ended: a page alone does not hold the database.
    rest: Option<(Arc<Engine>, Records)>,
}

impl ScanPage {
    /// Reads a page from what is left of a scan.
    fn read(mut rest: Option<(Arc<Engine>, Records)>, bytes_max: ByteSize) -> Self {
        let (mut records, mut bytes) = (Vec::new(), 0);
        while let Some((_, left)) = &mut rest {
            let Some(record) = left.next() else {
                rest = None;
                break;
            };
            if let Ok((key, value)) = &record {
                bytes += (key.len() + value.len()) as u64;
            }
            records.push(record);
            if bytes >= bytes_max.0 {
                break;
            }
        }
        Self { records, rest }
    }

    /// The page after this one, as [`Scan::page_async`] gives the first; none where the scan has
    /// ended, or the page was asked for before. The last page can be empty. A call that is an error
    /// can be made again.
    ///
    /// A page that has one after it holds the database as a scan does.
    pub fn next_page_async(&mut self, bytes_max: ByteSize) -> Result<Option<Ticket<Self>>> {
        let Some((engine, _)) = &self.rest else { return Ok(None) };
        let engine = Arc::clone(engine.ours()?);
        let ticket = engine.requests().read(ReadKind::Page, bytes_max.0, || {
            let rest = self.rest.take();
            move || Ok(Self::read(rest, bytes_max))
        });
        ticket.map(Some)
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
