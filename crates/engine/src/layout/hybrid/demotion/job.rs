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
//! 4. A record that is replaced meanwhile stays replaced: its slot is freed by who replaced it, and
//!    the table gets a version that nobody will find first.
//! 5. A hot record that memory has needs no slot: it is merged with the cold ones, and memory keeps
//!    it as a clean copy (*lifted*), so that memory and slots together hold more.
//!    A clean copy in a slot stays there; it is for sweeps to take.
//! 6. Where a bulk load may have a newer version of a record in a slot, the record leaves, pinned
//!    or not, and the range becomes one run.

use crate::compaction::inputs::sources_of;
use crate::compaction::rewrite::{Fate, Observe, Output, Retention, Rewrite};
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Job, Step};
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::copies::bounded_queue::Queued;
use crate::layout::hybrid::copies::promotion::Offer;
use crate::layout::hybrid::demotion::leaving::{Leaving, LeavingCursor, run_bytes};
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose};
use crate::layout::hybrid::space::room::{Means, draw_of};
use crate::limits::LEVELS;
use crate::merge::{Merge, Source};
use crate::settings::hybrid::Promotion;
use crate::settings::merge_bytes;
use crate::table_set::manifest::Edit;
use crate::table_set::slot_edit::{EntryAfter, Removed, SlotEdit, slot_of};
use crate::table_set::table::{Table, TableMeta};
use crate::versions::Change;
use crate::versions::Claimed;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Planted, Sequence, planted};
use thermocline_index::{Entry, EntryKind, IndexBatch};
use thermocline_popularity::Pinning;
use thermocline_table::{ReadAhead, RecordKind, key_hash};

/// Keys of the index that are looked at under one lock.
const BATCH_KEYS: usize = 1024;
/// What becomes of a key in a demotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    /// All its versions leave.
    Leaves,
    /// They leave, and memory keeps the newest.
    Lifted,
    /// The newest stays where it is.
    Stays,
}

/// A demotion under way.
#[derive(Debug)]
pub(crate) struct Demotion {
    hybrid: Arc<Hybrid>,
    plan: DemotionPlan,
    _claimed: Claimed,
    /// Tables of bulk loads that are merged.
    loads: Vec<Arc<Table>>,
    leaving: Arc<Leaving>,
    /// Hot records of tables that were merged.
    met: Arc<Mutex<Vec<Offer>>>,
    /// None where only clean copies leave and no table is merged.
    rewrite: Option<Rewrite>,
    /// Its buffers, as reckoned.
    merging_bytes: u64,
    chosen: bool,
    /// The last key that was looked at, where that was enough and there may be more.
    pub cut_after: Option<Vec<u8>>,
    /// Bytes of the records that are to leave.
    leaving_bytes: u64,
    /// Bytes of those that have left.
    pub departed_bytes: u64,
    /// The slots were freed before their time: a planted bug.
    freed: bool,
    started_ns: u64,
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

    /// Chooses what leaves; the range ends early where that is enough for one demotion.
    fn choose_leaving(&mut self, fast: &FastTier) {
        let pinning = fast.pinning();
        // Hot ones make up what cold ones do not come to.
        let mut hot_bytes = match self.plan.purpose {
            Purpose::Room(Means::Hot) => {
                self.plan.bytes_max.saturating_sub(self.cold_bytes(fast, &pinning))
            }
            _ => 0,
        };
        let mut leaving = Leaving::default();
        let mut bytes = 0;
        let mut batch = IndexBatch::new();
        let (mut from, to) = self.plan.selection.range.bounds();
        let mut last;
        loop {
            batch.clear();
            fast.index.ascend(from, to, BATCH_KEYS, &mut batch);
            for (key, versions) in batch.iter() {
                let Some(newest) = versions.first() else { continue };
                let mut fate = self.judge(fast, &pinning, key, newest);
                if fate == Judgement::Stays && newest.has_slot() && hot_bytes > 0 {
                    hot_bytes = hot_bytes.saturating_sub(u64::from(newest.record_bytes));
                    fate = Judgement::Leaves;
                    if fast.cache.contains(key, newest.sequence) {
                        fate = Judgement::Lifted;
                    }
                }
                let stays = fate == Judgement::Stays;
                let count = match planted(Planted::OlderVersionStays) {
                    true => 1,
                    false => versions.len(),
                };
                let leaves = || versions[..count].iter().skip(usize::from(stays)).copied();
                bytes += leaves().map(|entry| u64::from(entry.record_bytes)).sum::<u64>();
                if leaves().next().is_some() {
                    leaving.push(key, fate == Judgement::Lifted, leaves());
                }
            }
            let Some(key) = batch.last_key() else { break };
            let enough = bytes >= self.plan.bytes_max && self.plan.ingested == Sequence::ZERO;
            if batch.is_end() {
                break;
            }
            if enough {
                self.cut_after = Some(key.to_vec());
                break;
            }
            last = key.to_vec();
            from = Bound::Excluded(&last);
        }
        self.leaving = Arc::new(leaving);
        self.leaving_bytes = bytes;
        self.chosen = true;
    }

    /// Bytes of cold records of the range, as far as they are of use.
    fn cold_bytes(&self, fast: &FastTier, pinning: &Pinning) -> u64 {
        let (from, to) = self.plan.selection.range.bounds();
        let mut bytes = 0;
        fast.index.for_each(from, to, |key, entry| {
            if self.judge(fast, pinning, key, &entry) != Judgement::Stays {
                bytes += u64::from(entry.record_bytes);
            }
        });
        bytes
    }

    /// What becomes of a key, by its newest record, if hot ones stay. Copies of what tables have
    /// stay too: a sweep takes their slots for nothing.
    fn judge(&self, fast: &FastTier, pinning: &Pinning, key: &[u8], newest: &Entry) -> Judgement {
        let kept = planted(Planted::CopyStaysUnderIngest) && !newest.has_slot();
        let is_loaded_over = !kept && self.is_loaded_over(key, newest.sequence);
        if self.plan.purpose == Purpose::Compaction
            || newest.kind != EntryKind::Put
            || is_loaded_over
        {
            Judgement::Leaves
        } else if newest.clean {
            Judgement::Stays
        } else if !fast.is_pinned(pinning, key) {
            Judgement::Leaves
        } else if fast.cache.contains(key, newest.sequence) {
            Judgement::Lifted
        } else {
            Judgement::Stays
        }
    }

    /// A bulk load that is merged may have a newer version of `key` than that of `sequence`.
    fn is_loaded_over(&self, key: &[u8], sequence: Sequence) -> bool {
        let may_have = |table: &Arc<Table>| {
            table.meta.ingested_at > Some(sequence)
                && table.meta.overlaps(Some(key), Some(key))
                && table.may_have(key, key_hash(key))
        };
        self.loads.iter().any(may_have)
    }

    /// Too little would leave for the room that it is to make, of which the room is told. What a
    /// bulk load replaces leaves in any case, for the sake of look-ups.
    fn gives_up(&self, fast: &FastTier) -> bool {
        let Purpose::Room(means) = self.plan.purpose else { return false };
        let few = self.leaving_bytes < self.plan.bytes_min && self.plan.ingested == Sequence::ZERO;
        let gives_up = few || self.leaving.is_empty();
        if gives_up {
            fast.room.found_little(means, self.hybrid.shared.clock.now_ns());
        }
        gives_up
    }

    /// Now that it is known what leaves: the slow tier's wear lets all of it be written. What
    /// somebody asked for is.
    fn is_within_budget(&mut self) -> bool {
        let fast = &self.hybrid.fast;
        if self.plan.purpose == Purpose::Compaction {
            return true;
        }
        // Tables may be larger than slots, which are packed.
        let leaving_bytes = fast.packing.value_bytes_of(self.leaving_bytes);
        let (before, bytes) = (self.plan.promised_bytes, self.plan.bytes() + leaving_bytes);
        let is_within = self.hybrid.promise_writes(self.plan.purpose, (before, bytes));
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
        self.merging_bytes = merge_bytes(self.inputs(), self.window_bytes())
            + run_bytes(&self.hybrid.shared.settings, self.leaving.len(), self.leaving_bytes);
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
        let promotes = hybrid.shared.settings.hybrid.promotion != Promotion::None
            && !matches!(self.plan.purpose, Purpose::Compaction | Purpose::Room(Means::Hot));
        let mut met_bytes = 0;
        Box::new(move |key, fate| {
            let fast = &hybrid.fast;
            let hash = key_hash(key);
            let Fate::Kept { trailer, value, table } = fate else {
                if let Some(buckets) = &fast.regulation.buckets {
                    buckets.remove_slow(key, hash);
                }
                return;
            };
            if let Some(buckets) = &fast.regulation.buckets {
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
                met.lock().push(Offer { key, trailer, value, table });
            }
        })
    }

    /// There was no room for tables: what was to make room is tried again, for slots and tables are
    /// as before. Who asked for it hears of it.
    fn refused(&self, error: Error) -> Result<Step> {
        let waits =
            error.kind() == ErrorKind::OutOfSpace && self.plan.purpose != Purpose::Compaction;
        if !waits {
            return Err(error);
        }
        let now_ns = self.hybrid.shared.clock.now_ns();
        self.hybrid.fast.slow_room.refuse(&error, now_ns);
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
        // What cannot be published is known to the file map, or is not: nobody can tell.
        let added = match &mut self.rewrite {
            Some(rewrite) => rewrite.publish()?,
            None => Vec::new(),
        };
        let metrics = &self.hybrid.shared.counts;
        let written_bytes = added.iter().map(|meta| meta.bytes).sum();
        if self.rewrite.is_some() {
            fast.slow_room.found();
            metrics.compactions.add(1);
            metrics.compacted_in_bytes.add(self.plan.bytes());
            metrics.compacted_out_bytes.add(written_bytes);
            metrics.demotions.io_bytes.add(self.plan.bytes() + written_bytes);
            self.count_replaced(&added);
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
            // Freed by who replaced it, where it was replaced; in another slot, where it was moved.
            if let Some(now) = fast.same_record(key, entry) {
                bytes += u64::from(entry.record_bytes);
                clean += u64::from(entry.clean);
                let now = if planted(Planted::DemotionFreesOldSlot) { *entry } else { now };
                let lifted = self.leaving.is_lifted(at) && fast.cache.contains(key, entry.sequence);
                let key = Bytes::copy_from_slice(key);
                let entry = if lifted { EntryAfter::Lifted } else { EntryAfter::Gone };
                slots.removed.push(Removed { entry, ..Removed::new(key, &now) });
            }
        }
        // Before the edit, which keeps what is counted.
        self.count(fast, &slots.removed, clean);
        let gone = slots.removed.iter().filter(|old| old.entry != EntryAfter::Lifted);
        let gone: Vec<_> = gone.map(|old| key_hash(&old.key)).collect();
        let change = Change { edit, slots, flushed: None };
        self.hybrid.versions.commit(&mut tables, change)?;
        drop(tables);
        for offer in std::mem::take(&mut *self.met.lock()) {
            // Workers are told when the demotion ends.
            if fast.promotions.offers.add(offer) == Queued::Refused
                && fast.promotions.offers.is_full()
            {
                break;
            }
        }
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

    /// Counts what left, `clean` of it as copies.
    fn count(&self, fast: &FastTier, removed: &[Removed], clean: u64) {
        let counts = &self.hybrid.shared.counts.demotions;
        counts.ended.add(1);
        counts.elapsed_ns.add(self.hybrid.shared.clock.now_ns() - self.started_ns);
        counts.clean.add(clean);
        counts.dirty.add(removed.len() as u64 - clean);
        let lifted = removed.iter().filter(|old| old.entry == EntryAfter::Lifted);
        fast.room.lifted.add(lifted.count() as u64);
        if let Some(score) = self.plan.score {
            counts.scored.add(1);
            counts.scores.add((1000.0 * score) as u64);
            *fast.regulation.last_score.lock() = Some(score);
        }
    }

    /// Counts how many of the newer entries replaced older ones, where all runs of the range became
    /// one, so that this is known of all of them.
    fn count_replaced(&self, added: &[TableMeta]) {
        if self.plan.selection.output_level + 1 != LEVELS {
            return;
        }
        let oldest = self.plan.selection.inputs.iter().map(|(level, _)| *level).max();
        let entries = |is_of: &dyn Fn(usize) -> bool| -> u64 {
            let tables = self.plan.selection.inputs.iter().filter(|(level, _)| is_of(*level));
            tables.map(|(_, table)| table.meta.entries).sum()
        };
        let dirty = self.leaving.entries().filter(|entry| !entry.clean).count() as u64;
        let merged = dirty + entries(&|level| Some(level) != oldest);
        let kept: u64 = added.iter().map(|meta| meta.entries).sum();
        let counts = &self.hybrid.shared.counts.demotions;
        counts.merged.add(merged);
        counts.replaced.add((dirty + entries(&|_| true)).saturating_sub(kept));
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
        fast.memory.merge_ends(self.merging_bytes);
        fast.regulation.slow_writes.release(self.plan.promised_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Demotion, Pinning};
    use crate::Db;
    use crate::compaction::selection::Selection;
    use crate::jobs::{Job, Step};
    use crate::layout::hybrid::Arrival;
    use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose};
    use crate::layout::hybrid::records::packing::Stored;
    use crate::layout::hybrid::space::room::Means;
    use crate::layout::hybrid::space::sweep::{QUICK, Sweep};
    use crate::limits::LEVELS;
    use crate::settings::WRITER_BYTES;
    use crate::support::{hybrid, stepped};
    use crate::table_set::key_range::KeyRange;
    use crate::table_set::manifest::Edit;
    use thermocline_device::Origin;
    use thermocline_foundation::Sequence;
    use thermocline_table::{RecordKind, Trailer, key_hash};

    #[test]
    fn a_demotion_that_merges_nothing_is_no_compaction() {
        let db = stepped(&hybrid());
        let engine = db.engine();
        let fast = &engine.hybrid().fast;
        db.put("key", "value").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let trailer = Trailer::new(engine.versions.visible(), RecordKind::Put);
        let copy =
            Arrival { key: "key".into(), trailer, value: Stored::plain("value"), clean: true };
        let placed = fast.write(&[copy], Origin::Migration).unwrap().unwrap();
        engine
            .hybrid()
            .commit_placed(&mut engine.versions.tables(), Edit::default(), placed, vec![])
            .unwrap();
        let levels = engine.versions.current().levels.clone();
        let tables = levels.tables().map(|(level, table)| (level, table.clone()));
        let selection = Selection {
            range: KeyRange::default(),
            inputs: tables.collect(),
            output_level: levels.deepest(),
        };
        let purpose = Purpose::Room(Means::Hot);
        let plan = DemotionPlan { purpose, ..DemotionPlan::new(selection, Sequence::ZERO) };
        let counted = || {
            let metrics = &engine.shared.counts;
            (metrics.compactions.get(), metrics.compacted_in_bytes.get())
        };
        let before = counted();
        let mut demotion = begin(&db, plan);
        while demotion.step().unwrap() == Step::More {}
        let demotions = &engine.shared.counts.demotions;
        let moved = (demotions.dirty.get(), demotions.clean.get(), demotions.ended.get());
        assert_eq!(moved, (1, 1, 2), "the record, and its copy now");
        assert_eq!(db.stats().fast_tier.unwrap().records, 0);
        assert_eq!(counted(), before);
    }

    /// A store with a hot record, in a slot and in memory, and a cold one in a slot.
    fn with_hot_and_cold() -> Db {
        let db = stepped(&hybrid());
        db.put("cold", "value").unwrap();
        db.put("hot", "value").unwrap();
        db.flush().unwrap();
        let popularity = &db.engine().hybrid().fast.popularity;
        (0..9).for_each(|other| assert_eq!(popularity.touch(other, false), Some(0)));
        (0..2).for_each(|_| assert_eq!(db.get("hot").unwrap().unwrap(), "value"));
        db
    }

    /// A demotion of all that is not hot.
    fn demotion(db: &Db) -> Demotion {
        demotion_for(db, Purpose::Reads, 0)
    }

    fn demotion_for(db: &Db, purpose: Purpose, bytes_min: u64) -> Demotion {
        let selection =
            Selection { range: KeyRange::default(), inputs: Vec::new(), output_level: LEVELS - 1 };
        let plan = DemotionPlan::new(selection, Sequence::ZERO);
        begin(db, DemotionPlan { purpose, bytes_min, ..plan })
    }

    /// A demotion as planned, with the claim on its range.
    fn begin(db: &Db, plan: DemotionPlan) -> Demotion {
        let versions = &db.engine().versions;
        let claim = plan.selection.claim_of_all_levels();
        let claimed = versions.claim(&mut versions.tables(), claim).unwrap();
        Demotion::new(db.engine().hybrid(), plan, claimed)
    }

    fn run(mut demotion: Demotion) {
        while demotion.step().unwrap() == Step::More {}
    }

    /// Records in slots, in memory only, and lifted so far.
    fn places(db: &Db) -> [u64; 3] {
        let fast = db.stats().fast_tier.unwrap();
        [fast.records, fast.memory_records, fast.lifted_records]
    }

    fn slow_reads_of_hot(db: &Db) -> u64 {
        let before = db.stats().fast_tier.unwrap().slow_reads;
        assert_eq!(db.get("hot").unwrap().unwrap(), "value");
        db.stats().fast_tier.unwrap().slow_reads - before
    }

    #[test]
    fn a_hot_record_that_memory_has_leaves_its_slot_and_stays_in_memory() {
        let db = with_hot_and_cold();
        let scan = db.scan();
        run(demotion(&db));
        assert_eq!(places(&db), [0, 1, 1]);
        assert_eq!(slow_reads_of_hot(&db), 0);
        let found: Vec<_> = scan.into_iter().map(|record| record.unwrap().0).collect();
        assert_eq!(found, ["cold", "hot"], "by one that was begun before");
        let fast = &db.engine().hybrid().fast;
        fast.cache.clear();
        assert_eq!(slow_reads_of_hot(&db), 1, "a table has it too");
        fast.index.check();
    }

    #[test]
    fn a_hot_record_that_memory_loses_during_the_demotion_leaves_as_the_cold_do() {
        let db = with_hot_and_cold();
        let mut demotion = demotion(&db);
        assert_eq!(demotion.step().unwrap(), Step::More);
        db.engine().hybrid().fast.cache.clear();
        run(demotion);
        assert_eq!(places(&db), [0, 0, 0]);
        assert_eq!(slow_reads_of_hot(&db), 1);
    }

    #[test]
    fn hot_records_leave_where_they_must_and_memory_keeps_those_that_it_has() {
        let db = with_hot_and_cold();
        run(demotion_for(&db, Purpose::Room(Means::Hot), 0));
        assert_eq!(places(&db), [0, 1, 1]);
        assert_eq!(slow_reads_of_hot(&db), 0);
        let db = with_hot_and_cold();
        db.engine().hybrid().fast.cache.clear();
        run(demotion(&db));
        assert_eq!(places(&db), [1, 0, 0], "no reason to leave");
        run(demotion_for(&db, Purpose::Room(Means::Hot), 0));
        assert_eq!(places(&db), [0, 0, 0]);
        assert_eq!(slow_reads_of_hot(&db), 1);
    }

    #[test]
    fn what_a_load_replaced_leaves_and_hot_records_beside_it_stay() {
        let db = with_hot_and_cold();
        db.put("other", "value").unwrap();
        db.flush().unwrap();
        let fast = &db.engine().hybrid().fast;
        let mut ingest = db.ingest();
        ["cold", "other"].iter().for_each(|key| ingest.add(key, "loaded").unwrap());
        ingest.finish().unwrap();
        (0..4).for_each(|_| assert!(fast.popularity.touch(key_hash(b"other"), true).is_some()));
        fast.cache.clear();
        let levels = db.engine().versions.current().levels.clone();
        let tables = levels.tables().map(|(level, table)| (level, table.clone()));
        let ingested = levels.newest_ingest_of_all();
        assert!(ingested > Sequence::ZERO);
        let selection = Selection {
            range: KeyRange::default(),
            inputs: tables.collect(),
            output_level: LEVELS - 1,
        };
        run(begin(&db, DemotionPlan::new(selection, ingested)));
        let is_there = |key: &str| fast.index.get(key.as_bytes()).is_some();
        assert_eq!(["cold", "other", "hot"].map(is_there), [false, false, true]);
        let state = db.engine().versions.current();
        assert!(!state.has_loads(), "the load is merged, and what it replaced has left");
        let found = ["cold", "other", "hot"].map(|key| db.get(key).unwrap().unwrap());
        assert_eq!(found, ["loaded", "loaded", "value"]);
    }

    #[test]
    fn a_demotion_of_too_few_gives_up_and_says_so() {
        let db = with_hot_and_cold();
        let room = &db.engine().hybrid().fast.room;
        room.found_little(Means::Sweep, 0);
        run(demotion_for(&db, Purpose::Room(Means::ColdOfDrawn), 1000));
        assert_eq!(places(&db), [2, 0, 0]);
        assert_eq!(room.means(0), Means::ThoroughSweep);
        assert!(!db.engine().versions.tables().claims.has_ranges(), "the range is free again");
        run(demotion_for(&db, Purpose::Room(Means::Hot), 0));
        assert_eq!(places(&db), [0, 1, 1], "the last means takes what there is");
        assert_eq!(room.means(0), Means::Sweep);
    }

    #[test]
    fn a_copy_that_nobody_asks_for_stays_until_a_sweep_wants_its_slot() {
        let db = with_hot_and_cold();
        let engine = db.engine();
        let fast = &engine.hybrid().fast;
        run(demotion(&db));
        let sequence = Sequence(1);
        let trailer = Trailer::new(sequence, RecordKind::Put);
        let copy =
            Arrival { key: "cold".into(), trailer, value: Stored::plain("value"), clean: true };
        let placed = fast.write(&[copy], Origin::Migration).unwrap().unwrap();
        engine
            .hybrid()
            .commit_placed(&mut engine.versions.tables(), Edit::default(), placed, vec![])
            .unwrap();
        assert_eq!(fast.index.get_at(b"cold", sequence).map(|entry| entry.clean), Some(true));
        db.put("other", "value").unwrap();
        db.flush().unwrap();
        run(demotion(&db));
        let is_there = |key: &str| fast.index.get(key.as_bytes()).is_some();
        assert!(!is_there("other") && is_there("cold"));
        Sweep::begin(engine.hybrid(), QUICK).unwrap().step().unwrap();
        assert!(!is_there("cold"));
        assert_eq!(db.get("cold").unwrap().unwrap(), "value");
    }

    #[test]
    fn a_demotion_that_merges_says_what_memory_it_takes_until_it_ends() {
        let db = with_hot_and_cold();
        let mut demotion = demotion(&db);
        let merge_bytes = || db.stats().memory.merge_bytes;
        assert_eq!(merge_bytes(), 0);
        assert_eq!(demotion.step().unwrap(), Step::More);
        assert!(merge_bytes() > WRITER_BYTES, "{}", merge_bytes());
        drop(demotion);
        assert_eq!(merge_bytes(), 0);
    }

    #[test]
    fn a_hot_record_that_is_written_during_the_demotion_keeps_the_new_slot() {
        let db = with_hot_and_cold();
        let mut demotion = demotion(&db);
        assert_eq!(demotion.step().unwrap(), Step::More);
        db.put("hot", "value").unwrap();
        db.flush().unwrap();
        run(demotion);
        assert_eq!(places(&db), [1, 0, 0]);
        assert_eq!(slow_reads_of_hot(&db), 0);
    }

    #[test]
    fn of_a_key_that_no_table_has_any_more_the_buckets_know_nothing() {
        let db = stepped(&hybrid());
        let buckets = db.engine().hybrid().fast.regulation.buckets.as_ref().unwrap();
        let slow = || buckets.estimate(&[], None, &Pinning::default()).slow_objects;
        let demote = || db.compact_range(None, None, &mut |_| {}).unwrap();
        // Enough of them that some are sampled.
        let keys = || (0..1000).map(|number| format!("key {number:04}"));
        keys().for_each(|key| db.put(key, "value").unwrap());
        demote();
        let all = slow();
        assert!(all > 0.0, "none is sampled");
        let kept = db.snapshot();
        keys().for_each(|key| db.delete(key).unwrap());
        demote();
        assert_eq!(slow(), all, "the tombstones hide what the snapshot sees");
        drop(kept);
        demote();
        assert_eq!(db.stats().levels.iter().map(|level| level.tables).sum::<usize>(), 0);
        assert!(buckets.is_empty(), "{} of {all} records", slow());
    }
}
