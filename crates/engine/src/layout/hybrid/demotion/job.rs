//! Demotion: cold records of a key range leave the fast tier and are merged into the sorted tables
//! below it (PrismDB, sections 5 and 6).
//!
//! ```text
//!   fast tier     h . h . . h .     h stays (pinned), . leaves
//!                   \   \ \   \
//!   newest run      ================      runs of the range that are merged, none at the least:
//!   ...             ================      then the records begin a run of their own
//!   oldest run      ================      tombstones end here
//! ```
//! 1. No two demotions are at work on keys of the same range, whatever levels they touch.
//! 2. What is merged has every table of the range down to the output's level, level 0 included, so
//!    the tables that stay above it have newer records only, and those below older ones.
//! 3. Of a key either all versions leave or all but the newest; so what stays is newer.
//! 4. A record that is replaced meanwhile stays replaced: the job that replaces it frees its slot,
//!    and the table gets a version that no look-up finds first.
//! 5. A clean copy in a slot stays there; it is for sweeps to take.
//! 6. Where a bulk load may have a newer version of a record in a slot, the record leaves, pinned
//!    or not, and the range becomes one run.

use crate::compaction::inputs::sources_of;
use crate::compaction::rewrite::{Fate, Observe, Output, Retention, Rewrite};
use crate::environment::experiments::Promotion;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Job, Step};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::copies::bounded_queue::Queued;
use crate::layout::hybrid::copies::promotion::Offer;
use crate::layout::hybrid::demotion::leaving::{Leaving, LeavingCursor, run_bytes};
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose};
use crate::layout::hybrid::rules::fullness::EvictionStep;
use crate::layout::hybrid::rules::pinning::draw_of;
use crate::limits::LEVELS;
use crate::merge::{Merge, Source};
use crate::table_set::manifest::Edit;
use crate::table_set::slot_edit::{Removed, SlotEdit, slot_of};
use crate::table_set::table::{Table, TableMeta};
use crate::versions::Change;
use crate::versions::Claimed;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_table::{ReadAhead, RecordKind, Trailer, key_hash};

/// A record that the merge met: key, trailer, value.
pub(super) type Met = (Bytes, Trailer, Bytes);

/// A demotion under way.
#[derive(Debug)]
pub(crate) struct Demotion {
    pub(super) hybrid: Arc<Hybrid>,
    pub(super) plan: DemotionPlan,
    pub(super) _claimed: Claimed,
    /// Tables of bulk loads that are merged.
    pub(super) loads: Vec<Arc<Table>>,
    pub(super) leaving: Arc<Leaving>,
    /// Hot records of tables that were merged, in the order of their keys.
    pub(super) met: Arc<Mutex<Vec<Met>>>,
    /// None where only clean copies leave and no table is merged.
    pub(super) rewrite: Option<Rewrite>,
    /// Its buffers, as reckoned.
    pub(super) merging_bytes: u64,
    pub(super) chosen: bool,
    /// The last key that was looked at, where that was enough and there may be more.
    pub cut_after: Option<Vec<u8>>,
    /// Bytes of the records that are to leave.
    pub(super) leaving_bytes: u64,
    /// Bytes of those that have left.
    pub departed_bytes: u64,
    /// The slots were freed before their time: a planted bug.
    pub(super) freed: bool,
    pub(super) started_ns: u64,
}

impl Demotion {
    /// Carries out a plan whose range is claimed.
    pub fn new(hybrid: &Arc<Hybrid>, plan: DemotionPlan, claimed: Claimed) -> Self {
        Self {
            hybrid: Arc::clone(hybrid),
            _claimed: claimed,
            loads: plan.loads().cloned().collect(),
            plan,
            leaving: Arc::default(),
            met: Arc::default(),
            rewrite: None,
            merging_bytes: 0,
            chosen: false,
            cut_after: None,
            leaving_bytes: 0,
            departed_bytes: 0,
            freed: false,
            started_ns: hybrid.shared.clock.now_ns(),
        }
    }

    /// As if it had begun then, when its range was about to be chosen: that takes its time, too.
    pub fn begun_at(mut self, started_ns: u64) -> Self {
        self.started_ns = started_ns;
        self
    }

    /// Too little would leave for the room that it is to make, of which the room is told. What a
    /// bulk load replaces leaves in any case, for the sake of look-ups.
    fn gives_up(&self, fast: &FastTier) -> bool {
        let Purpose::Room(step) = self.plan.purpose else { return false };
        let few = self.leaving_bytes < self.plan.bytes_min && self.plan.ingested == Sequence::ZERO;
        let gives_up = few || self.leaving.is_empty();
        if gives_up {
            fast.room.found_little(step, self.hybrid.shared.clock.now_ns());
        }
        gives_up
    }

    /// Whether the budget of the slow tier's wear lets the job write all that leaves, which is
    /// known by now. A demotion that a caller asked for may always write.
    fn is_within_budget(&mut self) -> bool {
        let fast = &self.hybrid.fast;
        if self.plan.purpose == Purpose::Compaction {
            return true;
        }
        // Tables may be larger than slots, which are packed.
        let leaving_bytes = fast.packing.value_bytes_of(self.leaving_bytes);
        let (before, bytes) = (self.plan.promised_bytes, self.plan.bytes() + leaving_bytes);
        let is_within = self.hybrid.promise_writes(self.plan.purpose.makes_room(), (before, bytes));
        if is_within {
            self.plan.promised_bytes = bytes;
        }
        is_within
    }

    /// Bytes to read at a time from each input.
    fn window_bytes(&self) -> u32 {
        self.hybrid.shared.settings.window_bytes(self.inputs())
    }

    /// What is read side by side: records of slots, and runs of tables.
    fn inputs(&self) -> usize {
        self.plan.selection.inputs.len().min(LEVELS) + 1
    }

    /// Asks back the memory that its buffers take.
    fn claim_memory(&mut self) {
        let fast = &self.hybrid.fast;
        let settings = &self.hybrid.shared.settings;
        self.merging_bytes = settings.merge_bytes(self.inputs(), self.window_bytes())
            + run_bytes(settings, self.leaving.len(), self.leaving_bytes);
        fast.memory.merge_begins(self.merging_bytes);
        fast.lend_memory(self.hybrid.versions.cell());
    }

    fn rewrite(&self) -> Rewrite {
        let hybrid = &self.hybrid;
        let window_bytes = self.window_bytes();
        let read_ahead = ReadAhead::Stream { window_bytes };
        let leaving = LeavingCursor::new(hybrid, &self.leaving);
        let mut sources = vec![Source::Records(Box::new(leaving))];
        sources.extend(sources_of(&self.plan.selection.inputs, read_ahead));
        let levels = Arc::clone(&hybrid.versions.current().levels);
        let level = self.plan.selection.output_level;
        let below = Some((levels, level));
        let retention = Retention::new(hybrid.versions.kept_readable(), below);
        let table_bytes = hybrid.shared.settings.table_size.0;
        let kind = FileKind::Table { level: level as u8 };
        let origin = Origin::Compaction { from: 0, to: level as u8 };
        let output = Output {
            context: FileContext { kind, origin },
            options: hybrid.shared.settings.table_options(level),
            table_bytes,
            expected_bytes: table_bytes,
            cache: Some(Arc::clone(&hybrid.shared.cache)),
        };
        Rewrite::new(Arc::clone(&hybrid.shared.files), Merge::new(sources), retention, output)
            .observed(self.met_on_the_way())
    }

    /// Tells the buckets what tables have from now on, and gathers hot records of the tables that
    /// are merged, to move up (PrismDB, section 5.1), unless everything is to leave.
    fn met_on_the_way(&self) -> Observe {
        let (hybrid, met) = (Arc::clone(&self.hybrid), Arc::clone(&self.met));
        let pinning = hybrid.fast.pinning();
        let may_stay =
            matches!(self.plan.purpose, Purpose::Reads | Purpose::Room(EvictionStep::Cold));
        let promotes = hybrid.fast.rules.promotion == Promotion::Demotion && may_stay;
        let mut met_bytes = 0;
        Box::new(move |key, fate| {
            let fast = &hybrid.fast;
            let hash = key_hash(key);
            let Fate::Kept { trailer, value } = fate else {
                if let Some(buckets) = &fast.feedback.buckets {
                    buckets.remove_slow(key, hash);
                }
                return;
            };
            if let Some(buckets) = &fast.feedback.buckets {
                buckets.insert_slow(key, hash, (key.len() + value.len()) as u32);
            }
            let hot = promotes
                && trailer.kind() == RecordKind::Put
                && pinning.decide(fast.popularity.value(hash), draw_of(hash))
                && fast.index.get(key).is_none();
            let bytes = (key.len() + value.len()) as u64;
            if hot && met_bytes + bytes <= fast.promotions.offers.bytes_max() {
                met_bytes += bytes;
                let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                met.lock().push((key, trailer, value));
            }
        })
    }

    /// The slow tier had no room for tables. The planner tries a demotion for room again, for slots
    /// and tables are as before; a caller that asked for a demotion gets the error.
    fn refused(&self, error: Error) -> Result<Step> {
        let waits =
            error.kind() == ErrorKind::OutOfSpace && self.plan.purpose != Purpose::Compaction;
        if !waits {
            return Err(error);
        }
        let now_ns = self.hybrid.shared.clock.now_ns();
        self.hybrid.fast.slow_tier_backoff.refuse(&error, now_ns);
        Ok(Step::Done)
    }

    /// Frees the slots of what leaves, which has been read, before the edit does: a planted bug.
    fn free_early(&self) {
        let fast = &self.hybrid.fast;
        let _tables = self.hybrid.versions.tables();
        let now = |(at, entry)| fast.same_record(self.leaving.key(at), entry);
        let now = self.leaving.entries().enumerate().filter_map(now);
        let slots: Vec<_> = now.filter_map(|entry| slot_of(&entry)).collect();
        fast.slabs.free(&slots);
        fast.freed_early.lock().extend(slots);
    }

    fn finish(&mut self) -> Result<()> {
        let fast = &self.hybrid.fast;
        let output = self.plan.selection.output_level as u8;
        // A publication that fails may or may not have reached the file map.
        let added = match &mut self.rewrite {
            Some(rewrite) => rewrite.publish()?,
            None => Vec::new(),
        };
        let (written, offers) = (Written::of(&added), self.met_in(&added));
        if self.rewrite.is_some() {
            fast.slow_tier_backoff.found();
        }
        let removed = self.plan.selection.inputs.iter().filter(|_| self.rewrite.is_some());
        let edit = Edit {
            removed: removed.map(|(level, table)| (*level as u8, table.meta.number)).collect(),
            added: added.into_iter().map(|meta| (output, meta)).collect(),
            ..Edit::default()
        };
        let mut tables = self.hybrid.versions.tables();
        let mut slots = SlotEdit { departs: true, ..SlotEdit::default() };
        let (mut bytes, mut clean) = (0, 0);
        for (at, entry) in self.leaving.entries().enumerate() {
            let key = self.leaving.key(at);
            // The job that replaced a record has freed its slot; a record that was moved is in
            // another slot.
            if let Some(now) = fast.same_record(key, entry) {
                bytes += u64::from(entry.record_bytes);
                clean += u64::from(entry.clean);
                let now = if planted(Planted::DemotionFreesOldSlot) { *entry } else { now };
                let key = Bytes::copy_from_slice(key);
                slots.removed.push(Removed::new(key, &now));
            }
        }
        let gone: Vec<_> = slots.removed.iter().map(|old| key_hash(&old.key)).collect();
        let frees_nothing = self.frees_nothing(&edit);
        let change = Change { edit, slots, ..Change::default() };
        let mut rewrite = self.rewrite.take();
        let is_merge = rewrite.is_some();
        let count = || self.count(fast, gone.len() as u64, clean, is_merge.then_some(written));
        let commit = || self.hybrid.versions.commit_counted(&mut tables, change, count);
        match &mut rewrite {
            Some(rewrite) => rewrite.hand_over(commit)?,
            None => commit()?,
        }
        drop(tables);
        if frees_nothing {
            self.hybrid.found_no_space();
        }
        offer_met(fast, offers);
        gone.into_iter().for_each(|hash| fast.popularity.set_location(hash, false));
        self.departed_bytes = bytes;
        fast.room_was_made();
        fast.room.begin_anew();
        let elapsed_ns = self.hybrid.shared.clock.now_ns() - self.started_ns;
        if bytes > 0 {
            // Writers are told in the bytes that they write.
            self.hybrid
                .shared
                .write_throttle
                .drained(fast.packing.value_bytes_of(bytes), elapsed_ns);
        }
        Ok(())
    }

    /// The hot records that the merge met, in the tables that it has made.
    fn met_in(&self, made: &[TableMeta]) -> Vec<Offer> {
        let offer = |(key, trailer, value): Met| {
            let at = made.partition_point(|table| table.largest_key[..] < key[..]);
            Some(Offer { table: made.get(at)?.number, key, trailer, value })
        };
        std::mem::take(&mut *self.met.lock()).into_iter().filter_map(offer).collect()
    }

    /// Counts what left, `clean` of it as copies, and what a merge has written.
    fn count(&self, fast: &FastTier, removed: u64, clean: u64, written: Option<Written>) {
        if let Some(written) = written {
            self.count_merge(written);
        }
        let counts = &self.hybrid.shared.counts.demotions;
        counts.ended.add(1);
        counts.elapsed_ns.add(self.hybrid.shared.clock.now_ns() - self.started_ns);
        counts.clean.add(clean);
        counts.dirty.add(removed - clean);
        if let Some(score) = self.plan.score {
            counts.scored.add(1);
            counts.scores.add((1000.0 * score) as u64);
            *fast.feedback.last_score.lock() = Some(score);
        }
    }

    /// A merge for space from which every entry came out again. The next would do no better.
    fn frees_nothing(&self, edit: &Edit) -> bool {
        let kept: u64 = edit.added.iter().map(|(_, meta)| meta.entries).sum();
        self.plan.purpose == Purpose::Space && kept >= self.dirty() + self.entries(|_| true)
    }

    /// Records that leave and that no table has yet.
    fn dirty(&self) -> u64 {
        self.leaving.entries().filter(|entry| !entry.clean).count() as u64
    }

    /// Entries of the tables that are merged, of levels that `is_of` picks.
    fn entries(&self, is_of: impl Fn(usize) -> bool) -> u64 {
        let tables = self.plan.selection.inputs.iter().filter(|(level, _)| is_of(*level));
        tables.map(|(_, table)| table.meta.entries).sum()
    }

    /// Counts a merge; and how many of the newer entries replaced older ones, where all runs of the
    /// range became one, so that this is known of all of them.
    fn count_merge(&self, written: Written) {
        let metrics = &self.hybrid.shared.counts;
        metrics.compactions.add(1);
        metrics.compacted_in_bytes.add(self.plan.bytes());
        metrics.compacted_out_bytes.add(written.bytes);
        metrics.demotions.io_bytes.add(self.plan.bytes() + written.bytes);
        if self.plan.selection.output_level + 1 != LEVELS {
            return;
        }
        let oldest = self.plan.selection.inputs.iter().map(|(level, _)| *level).max();
        let dirty = self.dirty();
        let merged = dirty + self.entries(|level| Some(level) != oldest);
        let counts = &metrics.demotions;
        counts.merged.add(merged);
        counts.replaced.add((dirty + self.entries(|_| true)).saturating_sub(written.entries));
    }
}

/// Offers hot records that a merge met, as far as there is room for them. Workers are told when the
/// demotion ends.
fn offer_met(fast: &FastTier, met: Vec<Offer>) {
    let offers = &fast.promotions.offers;
    for offer in met {
        if offers.add(offer) == Queued::Refused && offers.is_full() {
            break;
        }
    }
}

/// What a merge has written.
#[derive(Clone, Copy, Debug)]
struct Written {
    bytes: u64,
    entries: u64,
}

impl Written {
    fn of(added: &[TableMeta]) -> Self {
        let bytes = added.iter().map(|meta| meta.bytes).sum();
        Self { bytes, entries: added.iter().map(|meta| meta.entries).sum() }
    }
}

impl Job for Demotion {
    fn name(&self) -> &'static str {
        "demotion"
    }

    fn step(&mut self) -> Result<Step> {
        if !self.chosen {
            let fast = Arc::clone(&self.hybrid.fast);
            self.choose_leaving(&fast);
            if self.gives_up(&fast) {
                return Ok(Step::Done);
            }
            let merges = self.leaving.entries().any(|entry| !entry.clean)
                || !matches!(self.plan.purpose, Purpose::Room(_))
                    && !self.plan.selection.inputs.is_empty();
            if merges && !self.is_within_budget() {
                return Ok(Step::Done);
            }
            if merges {
                self.rewrite = Some(self.rewrite());
                self.claim_memory();
            }
            return Ok(Step::More);
        }
        if let Some(rewrite) = &mut self.rewrite {
            match rewrite.step() {
                Ok(Step::More) => return Ok(Step::More),
                Ok(Step::Done) => {}
                Err(error) => {
                    if planted(Planted::FailedDemotionDeparts) {
                        self.finish()?;
                    }
                    return self.refused(error);
                }
            }
        }
        if planted(Planted::SlotsFreedBeforeEdit) && !std::mem::replace(&mut self.freed, true) {
            self.free_early();
            return Ok(Step::More);
        }
        self.finish()?;
        Ok(Step::Done)
    }
}

impl Drop for Demotion {
    fn drop(&mut self) {
        let fast = &self.hybrid.fast;
        if !planted(Planted::DemotionKeepsMemory) {
            fast.memory.merge_ends(self.merging_bytes);
        }
        fast.feedback.slow_writes.release(self.plan.promised_bytes);
    }
}

#[cfg(test)]
mod tests;
