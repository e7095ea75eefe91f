//! The writes of a transaction over what a scan finds in the store.

use crate::error::Result;
use crate::read::range::ScanRange;
use crate::transaction::{RangeRead, Reads, Writes, Written};
use bytes::Bytes;
use std::cmp::Ordering;
use std::iter::Peekable;
use std::sync::Arc;
use std::vec;
use thermocline_foundation::sync::Mutex;

/// What a scan of a transaction has besides the store.
#[derive(Clone, Debug)]
pub(crate) struct OwnView {
    /// What the transaction had written when the scan was made.
    pub writes: Arc<Writes>,
    /// Where what is read is kept, if that is validated.
    pub reads: Option<Arc<Mutex<Reads>>>,
    /// The range of the scan there, if it was noted before the scan begins.
    pub noted: Option<RangeRead>,
}

impl OwnView {
    /// `range` counts as read from here on, before the scan of it begins.
    pub fn with_noted(self, range: &ScanRange) -> Self {
        let noted = self.reads.as_ref().map(|reads| RangeRead::begin(reads, range.keys()));
        Self { noted, ..self }
    }
}

type Record = Result<(Bytes, Bytes)>;

/// See the module's header. A scan's walk over both, one way.
#[derive(Debug)]
pub(crate) struct Overlay {
    own: Peekable<vec::IntoIter<(Bytes, Written)>>,
    reverse: bool,
    /// The store's next record: none where it has not been asked.
    stored: Option<Option<Record>>,
    read: Option<RangeRead>,
    last: Option<Bytes>,
    /// The end of the range was reached.
    ended: bool,
}

impl Overlay {
    pub fn new(view: &OwnView, range: &ScanRange, reverse: bool) -> Self {
        let keys = range.keys();
        let mut own = view.writes.in_range(&keys);
        if reverse {
            own.reverse();
        }
        let begin = |reads| RangeRead::begin(reads, keys);
        let read = view.noted.clone().or_else(|| view.reads.as_ref().map(begin));
        let own = own.into_iter().peekable();
        Self { own, reverse, stored: None, read, last: None, ended: false }
    }

    /// The next record of both; `stored` gives the store's next one.
    pub fn next(&mut self, mut stored: impl FnMut() -> Option<Record>) -> Option<Record> {
        let next = self.merged(&mut stored);
        match &next {
            None => self.ended = true,
            Some(Ok((key, _))) => self.last = Some(key.clone()),
            Some(Err(_)) => {}
        }
        next
    }

    fn merged(&mut self, stored: &mut impl FnMut() -> Option<Record>) -> Option<Record> {
        loop {
            let next = self.stored.get_or_insert_with(&mut *stored);
            let order = match (self.own.peek(), &*next) {
                (None, _) | (_, Some(Err(_))) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some((own, _)), Some(Ok((key, _)))) if self.reverse => key.cmp(own),
                (Some((own, _)), Some(Ok((key, _)))) => own.cmp(key),
            };
            match order {
                Ordering::Greater => return self.stored.take().flatten(),
                // The transaction has replaced it.
                Ordering::Equal => self.stored = None,
                Ordering::Less => {}
            }
            if let Some((key, Some(value))) = self.own.next() {
                return Some(Ok((key, value)));
            }
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if let Some(read) = self.read.as_ref().filter(|_| !self.ended) {
            read.cut(self.last.as_deref(), self.reverse);
        }
    }
}
