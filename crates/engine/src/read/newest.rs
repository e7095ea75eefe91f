//! Looking for newer versions: what a write that builds on earlier reads asks before it is written.
//!
//! It counts as no look-up and moves no record: a caller asks for a sequence, not for a value.

use super::Reader;
use super::range::ScanRange;
use crate::error::Result;
use crate::layout::Moment;
use crate::merge::{Merge, Target};
use crate::table_set::key_range::KeyRange;
use crate::transaction::{Footprint, conflict};
use bytes::Bytes;
use std::ops::Bound;
use thermocline_foundation::Sequence;
use thermocline_table::Trailer;

impl Reader {
    /// Sequence and kind of the newest version of `key`, be it a delete. Reads devices only where
    /// neither memtables nor an index in memory say it.
    pub fn newest(&self, key: &[u8]) -> Result<Option<Trailer>> {
        self.newer(key, Sequence::ZERO)
    }

    /// The same; none may be said where it is not newer than `than`, and tables that have nothing
    /// newer are not asked.
    pub fn newer(&self, key: &[u8], than: Sequence) -> Result<Option<Trailer>> {
        let version = self.versions.current();
        let visible = self.versions.visible();
        if let Some((trailer, _)) = version.get_in_memory(key, visible) {
            return Ok(Some(trailer));
        }
        let moment = Moment { version: &version, asked: None, visible };
        self.layout.newer(&moment, key, than)
    }

    /// Phase 1 of validation (`transaction/mod.rs`): nothing of `footprint` has changed up to the
    /// sequence that is returned. An error of kind `Conflict` where something has. An earlier look
    /// has shown that all up to `looked` is as it was: this one reads what came since, and so takes
    /// the less time the sooner it follows.
    pub fn look(&self, footprint: &Footprint, looked: Sequence) -> Result<Sequence> {
        // Registered, so that no merge drops what the ranges below are read as of.
        let now = self.versions.snapshot();
        for (key, base) in &footprint.keys {
            let than = looked.max(*base);
            if self.newer(key, than)?.is_some_and(|newest| newest.sequence() > than) {
                return Err(conflict(key));
            }
        }
        for (range, base) in &footprint.ranges {
            if let Some(key) = self.newer_in(range, looked.max(*base), now.sequence())? {
                return Err(conflict(&key));
            }
        }
        Ok(now.sequence())
    }

    /// A key of `range` with a version that is newer than `than`, of those up to `now`.
    fn newer_in(&self, range: &KeyRange, than: Sequence, now: Sequence) -> Result<Option<Bytes>> {
        let bound = |key: &Option<Vec<u8>>, bounded: fn(Vec<u8>) -> Bound<Vec<u8>>| {
            key.clone().map_or(Bound::Unbounded, bounded)
        };
        let of = ScanRange {
            from: bound(&range.from, Bound::Included),
            to: bound(&range.to, Bound::Excluded),
        };
        loop {
            let mut merge = Merge::new(self.sources_newer(&of, than, now, 0));
            merge.position(range.from.as_deref().map_or(Target::First, Target::From))?;
            while let Some((key, trailer)) = merge.current() {
                if !range.contains(key) {
                    break;
                }
                if trailer.sequence() > than && trailer.sequence() <= now {
                    return Ok(Some(Bytes::copy_from_slice(key)));
                }
                merge.step()?;
            }
            // Records left slots for tables that the merge does not have: it says nothing then.
            if !merge.is_stale() {
                return Ok(None);
            }
        }
    }
}
