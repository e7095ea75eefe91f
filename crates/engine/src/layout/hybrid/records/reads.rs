//! Look-ups of the preset `hybrid`: the index of the fast tier first, then tables.
//!
//! Between the two a record may leave for tables, so these are of a version that is taken after the
//! index was asked. Where a bulk load may have a newer version than a slot, both are compared.

use super::cursor::SlotCursor;
use super::lookup::{Reader, trailer_of};
use crate::error::Result;
use crate::layout::hybrid::Hybrid;
use crate::layout::{Answer, Found, Moment, TableAnswer, Wanted};
use crate::merge::Source;
use crate::table_set::levels::Located;
use crate::versions::Version;
use std::sync::Arc;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::{RecordKind, Trailer, key_hash};

impl Hybrid {
    /// The newest version of `key` at `moment`, of which no memtable has one.
    pub fn get(&self, moment: &Moment<'_>, key: &[u8]) -> Result<Found> {
        let hash = key_hash(key);
        // The version of before the index is asked, for the question whether a load has a newer
        // version, which a later one would not answer.
        let before = moment.version;
        self.fast.damage.admit(|| self.fast.entry(key, moment.asked))?;
        let found = self.fast.get(key, moment.asked)?;
        // What was demoted since is in the tables of now. They may have dropped what only the
        // moment above would see, so without a registered snapshot that moment is now too.
        let now = self.versions.current();
        let below = match &found {
            Some((trailer, _))
                if planted(Planted::IngestHiddenBySlot)
                    || !self.may_be_loaded_over(before, key, hash, trailer.sequence()) =>
            {
                None
            }
            _ => {
                let visible = moment.asked.unwrap_or_else(|| self.versions.visible());
                self.locator.find_newest(&now.levels, key, visible)?
            }
        };
        match below {
            Some(below) if found.as_ref().is_none_or(|(above, _)| below.trailer > *above) => {
                let Located { trailer, value, table } = below;
                let found = (trailer, &value);
                let is_newest = moment.asked.is_none() || planted(Planted::SnapshotReadMovesUp);
                self.answered(Answer::Table(TableAnswer { key, hash, found, table, is_newest }));
                Ok(Some((trailer, value)))
            }
            _ => {
                let above = found.as_ref().map(|(trailer, _)| Answer::Slot(hash, *trailer));
                self.answered(above.unwrap_or(Answer::Nothing));
                Ok(found)
            }
        }
    }

    /// Sequence and kind of the newest version of `key`, of which no memtable has one. The index
    /// says it of all records on the fast tier, so no slot is read.
    pub fn newer(
        &self,
        moment: &Moment<'_>,
        key: &[u8],
        than: Sequence,
    ) -> Result<Option<Trailer>> {
        let entry = self.fast.entry(key, None);
        self.fast.damage.admit(|| entry)?;
        let above = entry.map(|entry| trailer_of(&entry));
        let (version, hash) = (moment.version, key_hash(key));
        let is_sure =
            |trailer: &Trailer| !self.may_be_loaded_over(version, key, hash, trailer.sequence());
        if above.as_ref().is_some_and(is_sure) {
            return Ok(above);
        }
        // What was demoted since is in the tables of now.
        let now = self.versions.current();
        let visible = self.versions.visible();
        let below = self.locator.newer_trailer(&now.levels, key, than, visible)?;
        Ok(above.max(below))
    }

    /// Answers those of `wanted` whose records are on the fast tier, in one batch of reads, and
    /// takes them off the list.
    pub fn get_many(&self, wanted: &mut Wanted<'_>) -> Result<()> {
        let before = self.versions.current();
        let (keys, moment) = (wanted.keys, wanted.moment);
        for at in &wanted.left {
            self.fast.damage.admit(|| self.fast.entry(keys[*at], Some(moment)))?;
        }
        let known = |at: &usize| {
            let key = keys[*at];
            let entry = self.fast.entry(key, Some(moment))?;
            let over = self.may_be_loaded_over(&before, key, key_hash(key), entry.sequence);
            (!over).then_some((*at, entry))
        };
        let found: Vec<_> = wanted.left.iter().filter_map(known).collect();
        let reads: Vec<_> = found.iter().map(|(at, entry)| (keys[*at], *entry)).collect();
        let values = self.fast.values(&reads, Reader::LookUp);
        let mut answered = vec![false; keys.len()];
        for ((at, entry), value) in found.into_iter().zip(values) {
            let found = match value {
                Some(value) => Some((trailer_of(&entry), value)),
                None => self.fast.get(keys[at], Some(moment))?,
            };
            if let Some(found) = found {
                self.answered(Answer::Slot(key_hash(keys[at]), found.0));
                wanted.answer(at, Some(found));
                answered[at] = true;
            }
        }
        wanted.left.retain(|at| !answered[*at]);
        // A bulk load newer than a record in a slot: rare enough for look-ups one by one.
        if before.has_loads() {
            let is_above = |at: &usize| self.fast.entry(keys[*at], Some(moment)).is_some();
            (wanted.single, wanted.left) =
                std::mem::take(&mut wanted.left).into_iter().partition(is_above);
        }
        Ok(())
    }

    /// A bulk load may have a newer version of `key` than that of `sequence`, which the index gave
    /// *after* `before` was taken. Of a later version this would say nothing: what ends a load
    /// takes its tables first, and then what it replaced from the index.
    fn may_be_loaded_over(
        &self,
        before: &Version,
        key: &[u8],
        hash: u64,
        sequence: Sequence,
    ) -> bool {
        sequence < before.ended_load
            || self.locator.may_be_loaded_over(&before.levels, (key, hash), sequence)
    }

    /// Counts the answer to a look-up, tracks its key, and considers a table's record for
    /// promotion: the one place for all ways to look up.
    ///
    /// A deleted key is none to keep up here. The record of an earlier moment does not move up: in
    /// a slot, an old version would stand for the newest.
    pub fn answered(&self, answer: Answer<'_>) {
        let counts = &self.shared.counts;
        let (hash, found) = match answer {
            Answer::Memtable(key, found) => (key_hash(key), found),
            Answer::Slot(hash, found) => (hash, found),
            Answer::Table(TableAnswer { key, hash, found, table, is_newest }) => {
                counts.slow_reads.add(1);
                if is_newest {
                    self.consider_promotion(key, hash, found, table);
                }
                return;
            }
            Answer::Nothing => return counts.absent_reads.add(1),
        };
        counts.fast_reads.add(1);
        if found.kind() == RecordKind::Put {
            self.fast.popularity.touch(hash, true);
        }
    }

    /// The source of a scan that walks records in slots.
    pub fn source(self: &Arc<Self>, moment: Sequence, departures: u64, keys: usize) -> Source {
        Source::Records(Box::new(SlotCursor::new(self, moment, departures, keys)))
    }
}
