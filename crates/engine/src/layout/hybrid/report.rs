//! What statistics say of the rules between the tiers, and of demotions.

use crate::environment::experiments::Pinning as PinningMode;
use crate::layout::Holdings;
use crate::layout::LayoutMemory;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::feedback::Feedback;
use crate::shared::hits::HitStats;
use crate::shared::totals::Tally;
use crate::shared::totals::{Count, Totals};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_popularity::{ReadTriggeredStage, TunerSettings, TunerStage};

/// Records in slots on the fast tier, and what moved between the tiers since the database was made.
/// What a release that did not count something did is not in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FastTierStats {
    /// Versions of records in slots.
    pub records: u64,
    /// Of these, copies of what a table has.
    pub clean_records: u64,
    /// Copies that are in memory only.
    pub memory_records: u64,
    /// What slots may take of the tier, in bytes.
    pub limit_bytes: u64,
    /// What each kind of file may take of the tier, in bytes: `logs`, `journals`, `spare` for what
    /// comes for a moment, `slots` and `index_copies`. Together that is its capacity at most.
    #[serde(default)]
    pub grants: BTreeMap<String, u64>,
    /// Files of slabs, in bytes.
    pub slab_bytes: u64,
    /// Slots with a record, in bytes.
    pub live_bytes: u64,
    /// Of these, bytes that no record uses; an estimate.
    pub waste_bytes: u64,
    /// Slots by their size.
    pub classes: Vec<SlotStats>,
    /// Reads of records on the fast tier that memory answered, and that it did not.
    pub cache: HitStats,
    /// Keys of which it is known how often they are asked for.
    pub tracked_keys: u64,
    /// Of these, how many have each popularity, least first.
    pub histogram: Vec<u64>,
    /// Look-ups that the fast tier answered, memory above it included.
    pub fast_reads: u64,
    /// Look-ups that a table answered.
    pub slow_reads: u64,
    /// Look-ups that found nothing, not even that the key was deleted.
    pub absent_reads: u64,
    /// Share of the tracked keys that stay on the fast tier, in percent; of demotions, the share of
    /// a fifth of all keys where more are tracked.
    pub pinning_percent: f64,
    /// Records that moved up as copies.
    pub promoted_records: u64,
    /// Records that left in demotions, merged into tables.
    pub demoted_records: u64,
    /// Copies that left in demotions, of records that a table has: nothing was written for them.
    pub demoted_copies: u64,
    /// Copies that were dropped without writing anything.
    pub dropped_records: u64,
    /// Copies that got a slot when memory gave them up.
    pub spilled_records: u64,
    /// Copies that gave up their slot because memory has them.
    pub memory_only_records: u64,
    /// Look-ups that copies answered, in slots and in memory.
    pub copy_reads: u64,
    /// Copies whose record was written anew.
    pub replaced_copies: u64,
    /// Copies that memory gives up may get slots: of late, few were replaced before they were read.
    pub copies_get_slots: bool,
    /// A record that is read for the first time may get one too: copies may, many of the fast
    /// tier's records were never asked for, and reads recur, of slots and of tables.
    pub slots_at_first_read: bool,
    /// Records in slots that were asked for are asked for again sooner than the others there.
    pub slot_reads_recur: bool,
    /// The same of tables. Where reads do not recur, they move no record up.
    pub table_reads_recur: bool,
    /// Look-ups for which a copy's slot was read.
    pub copy_slot_reads: u64,
    /// Copies that lost their slots because no read asked for them.
    pub unasked_copies: u64,
    /// Records that moved to another slot for the sake of other sizes.
    pub moved_records: u64,
    /// Bytes of the values that flushes brought to slots since opening, with `record_compression`.
    pub packed_value_bytes: u64,
    /// Bytes that slots have of these values.
    pub packed_stored_bytes: u64,
    /// Tables with a copy of their index on this tier.
    pub index_copies: u64,
    /// Bytes of these copies.
    pub index_copy_bytes: u64,
    /// Reads of index and filter partitions that they answered, in place of the slow tier.
    pub index_copy_reads: u64,
    /// Copies that were given up because they were damaged or could not be read.
    pub failed_index_copies: u64,
    /// Reads of what writes of slots must keep: pages that they share with other records.
    pub kept_reads: u64,
    /// Bytes of these.
    pub kept_read_bytes: u64,
    /// Why the last demotion found no room on a slower tier, where it did. Records stay on the fast
    /// tier meanwhile, and another is tried after 1 to 16 seconds, once something goes on.
    pub demotion_refusal: Option<String>,
    /// What demotions did.
    pub demotions: DemotionStats,
    /// The rules between the tiers.
    pub rules: RuleStats,
}

/// Slots of one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SlotStats {
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Files of such slots.
    pub slabs: u64,
    /// Slots in them.
    pub slots: u64,
    /// Slots with a record.
    pub live: u64,
}

/// Demotions since the database was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemotionStats {
    /// Those that ended; one that found too little and gave up is none.
    pub ended: u64,
    /// Seconds from the choice of a range to the edit, of all of them; two at a time count twice.
    pub elapsed_s: f64,
    /// The score of the last one that was chosen by it, since opening: coldness of what leaves for
    /// a byte of the slow tier's I/O, as the policy estimated it. None before the first.
    pub last_score: Option<f64>,
    /// Mean of the scores of all that were chosen by them; none before the first.
    pub mean_score: Option<f64>,
}

/// The rules that say what is on which tier, as they are now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleStats {
    /// Least and most share of the tracked keys that the tuner would pin, in percent; both are the
    /// share itself where it is fixed.
    pub pinning_bounds_percent: [f64; 2],
    /// What the tuner of that share is doing: `fixed`, `measuring`, `settling`, `probing` or
    /// `resting`.
    pub pinning_stage: String,
    /// Steps of the tuner that were better and kept, since opening.
    pub pinning_steps_kept: u64,
    /// Whether reads may trigger merges: `off`, `detecting`, `running` or `cooling_down`.
    pub read_triggered_stage: String,
    /// Epochs in which they did, since opening.
    pub read_triggered_epochs: u64,
    /// Bytes that may be written to the slow tier now, negative where more were; none without
    /// `hybrid.write_budget_dwpd`.
    pub write_budget_bytes: Option<i64>,
    /// Merges that this refused, since opening.
    pub refused_merges: u64,
    /// Tracked keys on the fast tier by popularity, least first.
    pub fast_histogram: Vec<u64>,
    /// Tracked keys on the slow tier, likewise.
    pub slow_histogram: Vec<u64>,
}

impl FastTier {
    /// Adds what slots hold to what the tiers hold, of which `place` gives the one of a file. Says
    /// how many bytes of it are no copies of what tables have.
    pub fn add_holdings(
        &self,
        holdings: &mut [Holdings],
        place: &dyn Fn(FileNumber) -> usize,
    ) -> u64 {
        for (number, slots, bytes) in self.slabs.live_by_file() {
            let holdings = &mut holdings[place(number)];
            holdings.records += slots;
            holdings.slot_bytes += bytes;
        }
        let copies = self.index.clean_records().saturating_sub(self.index.memory_records());
        let records = self.index.slot_records();
        let copied = if records == 0 { 0.0 } else { (copies as f64 / records as f64).min(1.0) };
        let slot_bytes = holdings.iter().map(|held| held.slot_bytes).sum::<u64>();
        (slot_bytes as f64 * (1.0 - copied)) as u64
    }

    /// Memory that the fast tier takes.
    pub fn memory_use(&self) -> LayoutMemory {
        LayoutMemory {
            merge_bytes: self.memory.merging_bytes(),
            slot_index_bytes: self.index.memory_bytes(),
            record_cache_bytes: self.cache.bytes(),
            popularity_bytes: self.popularity.bytes() as u64,
        }
    }

    /// Adds what the fast tier counts.
    pub fn tally(&self, tally: &mut Tally) {
        let (counts, demotions) = (&self.shared.counts, &self.shared.counts.demotions);
        let (copies, kept) = (&self.feedback.copies, self.slabs.kept_reads());
        for (count, value) in [
            (Count::FastReads, counts.fast_reads.get()),
            (Count::SlowReads, counts.slow_reads.get()),
            (Count::AbsentReads, counts.absent_reads.get()),
            (Count::CopyReads, copies.read.get()),
            (Count::RecordHits, self.cache.hits()),
            (Count::RecordMisses, self.cache.misses()),
            (Count::Promoted, self.promotions.records.get()),
            (Count::Spilled, self.spill.records.get()),
            (Count::MemoryOnly, self.room.memory_only.get()),
            (Count::Dropped, self.room.dropped.get()),
            (Count::ReplacedCopies, copies.replaced.get()),
            (Count::Relocated, self.room.moved.get()),
            (Count::DemotedDirty, demotions.dirty.get()),
            (Count::DemotedClean, demotions.clean.get()),
            (Count::Demotions, demotions.ended.get()),
            (Count::DemotionNs, demotions.elapsed_ns.get()),
            (Count::Scored, demotions.scored.get()),
            (Count::Scores, demotions.scores.get()),
            (Count::Merged, demotions.merged.get()),
            (Count::Replaced, demotions.replaced.get()),
            (Count::IndexCopyReads, self.copying.counts.served.get()),
            (Count::FailedIndexCopies, self.copying.counts.failed.get()),
            (Count::KeptReads, kept.reads),
            (Count::KeptReadBytes, kept.bytes),
            (Count::CopySlotReads, copies.served.get()),
            (Count::UnaskedCopies, copies.unasked.get()),
        ] {
            tally.set(count, value);
        }
    }
}

impl Hybrid {
    /// What statistics say of the fast tier.
    pub fn report(&self, totals: &Totals) -> FastTierStats {
        let slabs = self.fast.slabs.stats();
        let classes = slabs.classes.iter().map(|class| SlotStats {
            slot_bytes: class.slot_bytes,
            slabs: class.slabs,
            slots: class.slots,
            live: class.live,
        });
        let copies = &self.fast.feedback.copies;
        let state = self.versions.current();
        let index_copies = state.levels.tables().filter_map(|(_, table)| table.copy_bytes());
        let index_copies: Vec<_> = index_copies.collect();
        FastTierStats {
            records: self.fast.index.slot_records(),
            clean_records: self
                .fast
                .index
                .clean_records()
                .saturating_sub(self.fast.index.memory_records()),
            memory_records: self.fast.index.memory_records(),
            limit_bytes: self.fast.room.limit_bytes(),
            grants: self.shared.tier0.grants(),
            slab_bytes: slabs.file_bytes,
            live_bytes: slabs.bytes_live(),
            waste_bytes: slabs.waste_bytes(),
            classes: classes.collect(),
            cache: HitStats::of(totals.of(Count::RecordHits), totals.of(Count::RecordMisses)),
            tracked_keys: self.fast.popularity.len() as u64,
            histogram: self.fast.popularity.histogram().by_value(),
            fast_reads: totals.of(Count::FastReads),
            slow_reads: totals.of(Count::SlowReads),
            absent_reads: totals.of(Count::AbsentReads),
            pinning_percent: 100.0 * self.fast.feedback.threshold().share(),
            promoted_records: totals.of(Count::Promoted),
            demoted_records: totals.of(Count::DemotedDirty),
            demoted_copies: totals.of(Count::DemotedClean),
            dropped_records: totals.of(Count::Dropped),
            spilled_records: totals.of(Count::Spilled),
            memory_only_records: totals.of(Count::MemoryOnly),
            copy_reads: totals.of(Count::CopyReads),
            replaced_copies: totals.of(Count::ReplacedCopies),
            copies_get_slots: copies.get_slots(),
            slots_at_first_read: self.fast.promotions.slot_at_first_read.load(Relaxed),
            slot_reads_recur: self.fast.feedback.slot_reads.reads_recur(),
            table_reads_recur: self.fast.feedback.table_reads.reads_recur(),
            copy_slot_reads: totals.of(Count::CopySlotReads),
            unasked_copies: totals.of(Count::UnaskedCopies),
            moved_records: totals.of(Count::Relocated),
            packed_value_bytes: self.fast.packing.value_bytes.get(),
            packed_stored_bytes: self.fast.packing.stored_bytes.get(),
            index_copies: index_copies.len() as u64,
            index_copy_bytes: index_copies.iter().sum(),
            index_copy_reads: totals.of(Count::IndexCopyReads),
            failed_index_copies: totals.of(Count::FailedIndexCopies),
            kept_reads: totals.of(Count::KeptReads),
            kept_read_bytes: totals.of(Count::KeptReadBytes),
            demotion_refusal: self.fast.slow_tier_backoff.reason(),
            demotions: DemotionStats::new(&self.fast, totals),
            rules: RuleStats::new(self),
        }
    }
}

impl DemotionStats {
    pub(crate) fn new(fast: &FastTier, totals: &Totals) -> Self {
        let scored = totals.of(Count::Scored);
        let mean = totals.of(Count::Scores) as f64 / 1000.0 / scored as f64;
        Self {
            ended: totals.of(Count::Demotions),
            elapsed_s: totals.of(Count::DemotionNs) as f64 / 1e9,
            last_score: *fast.feedback.last_score.lock(),
            mean_score: (scored > 0).then_some(mean),
        }
    }
}

impl RuleStats {
    pub(crate) fn new(hybrid: &Hybrid) -> Self {
        let fast = &hybrid.fast;
        let Feedback { tuner, read_triggered, .. } = &fast.feedback;
        let (tuner, histogram) = (tuner.lock(), fast.popularity.histogram());
        let is_fixed = fast.rules.pinning == PinningMode::Fixed;
        let TunerSettings { threshold_min, threshold_max, .. } = *tuner.settings();
        let share = tuner.threshold().share();
        let bounds = if is_fixed { [share, share] } else { [threshold_min, threshold_max] };
        let (read_triggered_stage, read_triggered_epochs) =
            read_triggered.as_ref().map_or(("off", 0), |rule| {
                let rule = rule.lock();
                (read_triggered_name(rule.stage()), rule.epochs_run())
            });
        let values = histogram.by_value().len();
        Self {
            pinning_bounds_percent: bounds.map(|share| 100.0 * share),
            pinning_stage: if is_fixed { "fixed" } else { tuner_name(tuner.stage()) }.to_owned(),
            pinning_steps_kept: tuner.steps_kept(),
            read_triggered_stage: read_triggered_stage.to_owned(),
            read_triggered_epochs,
            write_budget_bytes: hybrid.budget_bytes(),
            refused_merges: fast.feedback.slow_writes.refused.get(),
            fast_histogram: histogram.on_fast[..values].to_vec(),
            slow_histogram: histogram.on_slow[..values].to_vec(),
        }
    }
}

fn tuner_name(stage: TunerStage) -> &'static str {
    match stage {
        TunerStage::Measuring => "measuring",
        TunerStage::Settling { .. } => "settling",
        TunerStage::Probing => "probing",
        TunerStage::Resting { .. } => "resting",
    }
}

fn read_triggered_name(stage: ReadTriggeredStage) -> &'static str {
    match stage {
        ReadTriggeredStage::Detecting => "detecting",
        ReadTriggeredStage::Running => "running",
        ReadTriggeredStage::CoolingDown => "cooling_down",
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::hybrid::rules::fullness::EvictionStep;
    use crate::support::{hybrid, run_to_end, stepped_environment, stepped_with};
    use crate::{
        ByteSize, Db, DemotionPolicy, Environment, Experiments, HybridSettings, Promotion, Settings,
    };
    use std::ops::Range;
    use std::path::Path;
    use thermocline_table::key_hash;

    fn put(db: &Db, keys: Range<u32>) {
        keys.for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
    }

    fn get(db: &Db, keys: Range<u32>) {
        keys.for_each(|key| assert!(db.get(key.to_be_bytes()).unwrap().is_some()));
    }

    /// Tracked keys by value: on the fast tier, on the slow one, on either.
    fn rows(db: &Db) -> [Vec<u64>; 3] {
        let fast = db.stats().fast_tier.unwrap();
        [fast.rules.fast_histogram, fast.rules.slow_histogram, fast.histogram]
    }

    #[test]
    fn tracked_keys_are_shown_by_how_often_they_were_asked_for_on_which_tier() {
        let experiments = Experiments { promotion: Some(Promotion::None), ..Experiments::NONE };
        let db = stepped_with(experiments, &hybrid());
        put(&db, 0..60);
        assert_eq!(rows(&db), <[Vec<u64>; 3]>::default(), "written, and not asked for");
        get(&db, 0..30);
        assert_eq!(rows(&db), [vec![30], vec![0], vec![30]]);
        get(&db, 0..10);
        assert_eq!(rows(&db), [vec![20, 0, 0, 10], vec![0; 4], vec![20, 0, 0, 10]]);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(rows(&db), [vec![0; 4], vec![20, 0, 0, 10], vec![20, 0, 0, 10]]);
        get(&db, 25..35);
        assert_eq!(rows(&db), [vec![0; 4], vec![20, 0, 0, 15], vec![20, 0, 0, 15]]);
        // A write says where a key is, and of one that was not up here no more.
        put(&db, 0..4);
        put(&db, 10..13);
        assert_eq!(rows(&db), [vec![3, 0, 0, 4], vec![17, 0, 0, 11], vec![20, 0, 0, 15]]);
        put(&db, 10..13);
        assert_eq!(rows(&db), [vec![0, 0, 0, 7], vec![17, 0, 0, 11], vec![17, 0, 0, 18]]);
        (13..18u32).for_each(|key| db.delete(key.to_be_bytes()).unwrap());
        db.flush().unwrap();
        assert_eq!(rows(&db), [vec![0, 0, 0, 7], vec![12, 0, 0, 11], vec![12, 0, 0, 18]]);
    }

    /// Demotes once, by these means of making room.
    fn demote(db: &Db, step: EvictionStep) {
        let mut demotion = db.engine().hybrid().plan_demotion(step).unwrap();
        run_to_end(&mut demotion);
    }

    /// Demotions that ended, the last score, and the mean in thousandths.
    fn scores(db: &Db) -> (u64, Option<f64>, Option<u64>) {
        let demotions = db.stats().fast_tier.unwrap().demotions;
        let thousandths = demotions.mean_score.map(|mean| (1000.0 * mean).round() as u64);
        (demotions.ended, demotions.last_score, thousandths)
    }

    /// Each is of what lies behind all tables, where nothing is rewritten: a byte of the slow
    /// tier's I/O for each that leaves, so the score is the coldness of all of them.
    #[test]
    fn the_score_of_the_last_demotion_is_shown_and_the_mean_of_all_of_them() {
        let hybrid_settings = HybridSettings { pinning_percent: 0, ..hybrid().hybrid };
        let policy = Some(DemotionPolicy::Precise);
        let experiments = Experiments { policy, ..Experiments::NONE };
        let environment = Environment { experiments, ..stepped_environment() };
        let table_size = ByteSize::kib(512);
        let settings = Settings { table_size, hybrid: hybrid_settings, ..hybrid() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        assert_eq!(scores(&db), (0, None, None));
        put(&db, 0..100);
        demote(&db, EvictionStep::Cold);
        assert_eq!(scores(&db), (1, Some(100.0), Some(100_000)));
        put(&db, 100..150);
        demote(&db, EvictionStep::Cold);
        assert_eq!(scores(&db), (2, Some(50.0), Some(75_000)));
        put(&db, 150..190);
        let popularity = &db.engine().hybrid().fast.popularity;
        for key in 150..170u32 {
            let hash = key_hash(&key.to_be_bytes());
            (0..2).for_each(|_| assert!(popularity.touch(hash, true).is_some()));
        }
        demote(&db, EvictionStep::Cold);
        // Half of them are a quarter as cold.
        assert_eq!(scores(&db), (3, Some(25.0), Some(58_333)));
        put(&db, 190..200);
        demote(&db, EvictionStep::Hot);
        assert_eq!(scores(&db), (4, Some(25.0), Some(58_333)), "it was chosen by its size");
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        assert_eq!(scores(&db), (4, None, Some(58_333)), "the last one of this opening");
        put(&db, 200..220);
        demote(&db, EvictionStep::Cold);
        let (ended, last, mean) = scores(&db);
        assert!(ended == 5 && last.is_some_and(|last| (20.0..31.0).contains(&last)), "{last:?}");
        assert!(mean < Some(58_333));
    }
}
