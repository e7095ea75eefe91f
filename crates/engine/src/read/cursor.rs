//! Walking the records of one moment in key order: [`Cursor`] for free movement, [`Records`] for
//! a range.
//!
//! Both hold the memtables and tables of their moment, so flushes and compactions take nothing from
//! under them, and a registered snapshot, so that versions they still need are not merged away.
//! Records on a fast tier are not held: a cursor that meets a gap there begins again from where it
//! stands, with the tables of now.

use crate::error::Result;
use crate::layout::Trail;
use crate::merge::{Merge, Target};
use crate::read::Reader;
use crate::read::overlay::{Overlay, OwnView};
use crate::read::range::ScanRange;
use crate::versions::holders::{Held, Holder};
use crate::versions::snapshots::Snapshot;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_table::RecordKind;

/// A position among the visible records of one moment. Not shared between threads; make one for
/// each.
#[derive(Debug)]
pub struct Cursor {
    merge: Merge,
    /// How the merge is made anew, where records can leave a source of it.
    renewal: Option<Box<Renewal>>,
    /// What hears of the records that it comes to.
    trail: Option<Box<Trail>>,
    /// Keeps the moment alive.
    snapshot: Snapshot,
    _held: Held,
    /// The current record, if the cursor stands on one.
    key: Vec<u8>,
    value: Bytes,
    valid: bool,
    /// The key of the record that the last movement met, where its slot is damaged.
    damaged: Option<Vec<u8>>,
}

/// What a cursor over a fast tier was made from.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub reader: Arc<Reader>,
    pub range: ScanRange,
    pub expected_bytes: u32,
}

impl Cursor {
    pub(crate) fn new(merge: Merge, snapshot: Snapshot, renewal: Option<Box<Renewal>>) -> Self {
        let (key, value) = (Vec::new(), Bytes::new());
        let held = Held::new(snapshot.holders(), Holder::Cursor);
        let (trail, valid, damaged) = (None, false, None);
        Self { merge, renewal, trail, snapshot, _held: held, key, value, valid, damaged }
    }

    /// The same, with what hears of its records.
    pub(crate) fn with_trail(mut self, trail: Option<Trail>) -> Self {
        self.trail = trail.map(Box::new);
        self
    }

    /// The cursor stands on a record.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The current key; empty where there is no record.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The current value, shared with the block it lies in; empty where there is no record.
    pub fn value(&self) -> &Bytes {
        &self.value
    }

    /// To the smallest key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.place(Target::First)
    }

    /// To the largest key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.place(Target::Last)
    }

    /// To the smallest key at or after `key`.
    pub fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::From(key))
    }

    /// To the largest key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::UpTo(key))
    }

    /// To the next larger key; from nowhere, nowhere.
    #[expect(clippy::should_implement_trait, reason = "a cursor moves; it hands nothing out")]
    pub fn next(&mut self) -> Result<()> {
        self.snapshot.require_owner()?;
        if !self.valid {
            return Ok(());
        }
        let origin = self.origin();
        self.go_on()?;
        while self.renew() {
            self.key.clone_from(&origin);
            self.valid = true;
            self.go_on()?;
        }
        Ok(())
    }

    fn go_on(&mut self) -> Result<()> {
        if !self.merge.is_forward() || self.merge.is_unpositioned() {
            // The sources stand before the current key, whose versions are passed over below.
            self.guarded(|cursor| cursor.merge.position(Target::From(&cursor.key)))?;
        }
        self.guarded(Self::find_next)
    }

    /// To the next smaller key; from nowhere, nowhere.
    pub fn prev(&mut self) -> Result<()> {
        self.snapshot.require_owner()?;
        if !self.valid {
            return Ok(());
        }
        let origin = self.origin();
        self.go_back()?;
        while self.renew() {
            self.key.clone_from(&origin);
            self.valid = true;
            self.go_back()?;
        }
        Ok(())
    }

    fn go_back(&mut self) -> Result<()> {
        if self.merge.is_forward() || self.merge.is_unpositioned() {
            self.guarded(|cursor| cursor.merge.position(Target::Before(&cursor.key)))?;
        }
        self.guarded(Self::find_prev)
    }

    fn place(&mut self, to: Target<'_>) -> Result<()> {
        self.snapshot.require_owner()?;
        self.trail.iter_mut().for_each(|trail| trail.turn());
        loop {
            self.valid = false;
            self.guarded(|cursor| {
                cursor.merge.position(to)?;
                if cursor.merge.is_forward() { cursor.find_next() } else { cursor.find_prev() }
            })?;
            if !self.renew() {
                return Ok(());
            }
        }
    }

    /// Where a movement began, if it may have to begin again.
    fn origin(&self) -> Vec<u8> {
        if self.renewal.is_some() { self.key.clone() } else { Vec::new() }
    }

    /// Makes the merge anew where records have left a source for tables that it does not have; the
    /// movement that met it is void then.
    fn renew(&mut self) -> bool {
        let Some(renewal) = self.renewal.as_ref().filter(|_| self.merge.is_stale()) else {
            return false;
        };
        let Renewal { reader, range, expected_bytes } = &**renewal;
        let sources = reader.sources(range, self.snapshot.sequence(), *expected_bytes);
        self.merge = Merge::unpositioned(sources);
        true
    }

    /// After an error that was about one record alone the cursor stands where that is, so that the
    /// next movement goes on from there; false where it was not.
    fn pass_over(&mut self) -> bool {
        let Some(key) = self.damaged.take() else { return false };
        (self.key, self.valid) = (key, true);
        true
    }

    /// Runs a movement; after an error the cursor stands nowhere.
    fn guarded(&mut self, movement: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.damaged = None;
        let result = movement(self);
        if result.is_err() {
            self.valid = false;
        }
        if !self.valid {
            self.key.clear();
            self.value = Bytes::new();
        }
        result
    }

    /// From the merge's position on, the first visible record that is not an older version of the
    /// current key.
    fn find_next(&mut self) -> Result<()> {
        let snapshot = self.snapshot.sequence();
        // While `valid`, older versions of `key` are passed over; a delete makes its key one to
        // pass over too.
        let mut pass = self.valid;
        self.valid = false;
        while let Some((key, trailer)) = self.merge.current() {
            let seen = pass && key == self.key.as_slice();
            if !seen && trailer.sequence() <= snapshot {
                self.key.clear();
                self.key.extend_from_slice(key);
                if trailer.kind() == RecordKind::Put {
                    if let Some(error) = self.merge.damage().cloned() {
                        self.merge.step()?;
                        self.damaged = Some(self.key.clone());
                        return Err(error);
                    }
                    self.value = self.merge.value();
                    self.valid = true;
                    self.trail.iter_mut().for_each(|trail| trail.pass(self.merge.table()));
                    return self.merge.step();
                }
                pass = true;
            }
            self.merge.step()?;
        }
        Ok(())
    }

    /// From the merge's position backwards, the first key whose newest visible version is a put.
    /// Backwards the versions of a key come oldest first, so each visible one replaces the one
    /// before.
    fn find_prev(&mut self) -> Result<()> {
        let snapshot = self.snapshot.sequence();
        self.valid = false;
        let mut candidate = None;
        let mut has_key = false;
        while let Some((key, trailer)) = self.merge.current() {
            if has_key && key != self.key.as_slice() {
                if candidate.is_some() {
                    break;
                }
                has_key = false;
            }
            if trailer.sequence() <= snapshot {
                if !has_key {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    has_key = true;
                }
                candidate = match trailer.kind() {
                    RecordKind::Put => match self.merge.damage() {
                        Some(error) => Some(Err(error.clone())),
                        None => Some(Ok((self.merge.value(), self.merge.table()))),
                    },
                    RecordKind::Delete => None,
                };
            }
            self.merge.step()?;
        }
        match candidate {
            None => {}
            Some(Ok((value, table))) => {
                self.value = value;
                self.valid = true;
                self.trail.iter_mut().for_each(|trail| trail.pass(table));
            }
            Some(Err(error)) => {
                self.damaged = Some(self.key.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Cursor {
    /// In a forked child reads that are under way are the parent's: nothing waits for them, and
    /// nothing that the cursor held is given back.
    fn drop(&mut self) {
        if self.snapshot.require_owner().is_err() {
            std::mem::forget(std::mem::replace(&mut self.merge, Merge::unpositioned(Vec::new())));
            std::mem::forget(self.renewal.take());
            std::mem::forget(self.trail.take());
        }
    }
}

/// A scan under way: an iterator over key and value. Ends after an error, but for one: where a
/// record of the fast tier is damaged and its key is known, an error of kind `Corrupt` takes its
/// place, and the scan goes on behind it.
#[derive(Debug)]
pub struct Records {
    cursor: Cursor,
    range: ScanRange,
    reverse: bool,
    left: u64,
    started: bool,
    /// The store has no more.
    ended: bool,
    /// What a transaction has written.
    own: Option<Box<Overlay>>,
}

impl Records {
    /// The records that `cursor` finds, and over them those of the transaction that it is of.
    pub(crate) fn new(
        cursor: Cursor,
        range: ScanRange,
        (reverse, limit): (bool, u64),
        of: Option<&OwnView>,
    ) -> Self {
        let own = of.map(|view| Box::new(Overlay::new(view, &range, reverse)));
        Self { cursor, range, reverse, left: limit, started: false, ended: false, own }
    }

    fn advance(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.started, true) {
            return self.start();
        }
        if self.reverse { self.cursor.prev() } else { self.cursor.next() }
    }

    fn start(&mut self) -> Result<()> {
        if !self.reverse {
            return match &self.range.from {
                Bound::Unbounded => self.cursor.seek_to_first(),
                Bound::Included(from) => self.cursor.seek(from),
                Bound::Excluded(from) => {
                    self.cursor.seek(from)?;
                    if self.cursor.valid() && self.cursor.key() == from.as_slice() {
                        self.cursor.next()?;
                    }
                    Ok(())
                }
            };
        }
        match &self.range.to {
            Bound::Unbounded => self.cursor.seek_to_last(),
            Bound::Included(to) => self.cursor.seek_for_prev(to),
            Bound::Excluded(to) => {
                self.cursor.seek_for_prev(to)?;
                if self.cursor.valid() && self.cursor.key() == to.as_slice() {
                    self.cursor.prev()?;
                }
                Ok(())
            }
        }
    }
}

impl Records {
    /// The next record of the store.
    fn next_stored(&mut self) -> Option<Result<(Bytes, Bytes)>> {
        if self.ended {
            return None;
        }
        while let Err(error) = self.advance() {
            if !self.cursor.pass_over() {
                self.ended = true;
                return Some(Err(error));
            }
            let key = self.cursor.key();
            if self.range.below_end(key) && self.range.above_start(key) {
                return Some(Err(error));
            }
        }
        let key = self.cursor.key();
        let inside =
            self.cursor.valid() && self.range.below_end(key) && self.range.above_start(key);
        if !inside {
            self.ended = true;
            return None;
        }
        Some(Ok((Bytes::copy_from_slice(key), self.cursor.value().clone())))
    }
}

impl Iterator for Records {
    type Item = Result<(Bytes, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let next = match self.own.take() {
            None => self.next_stored(),
            Some(mut own) => {
                let next = own.next(|| self.next_stored());
                self.own = Some(own);
                next
            }
        };
        // An error that the store does not go on behind ends what a transaction has, too.
        if matches!((&next, self.ended), (None, _) | (Some(Err(_)), true)) {
            self.left = 0;
        }
        next
    }
}
