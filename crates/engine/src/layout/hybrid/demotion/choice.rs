//! Which records leave the fast tier next (PrismDB, sections 5.1 to 5.3): the choice of a range
//! (`key_range.rs`), of the runs that are merged in it, and the claim that keeps two demotions
//! apart.
//!
//! A range is what consecutive tables of the oldest run span. Of a few drawn at random the one with
//! the best score is taken; what is known of its records is counted, or estimated from buckets. The
//! score and the policies are those of the crate `popularity`.

use crate::error::Result;
use crate::jobs::Progress;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::ranges::{
    DemotionPlan, Purpose, count_touching, newest_ingest, pick_runs, ranges, runs_of,
};
use crate::layout::hybrid::space::room::{Means, draw_of};
use crate::settings::hybrid::{DemotionPolicy, Promotion};
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::random::Random;
use thermocline_index::EntryKind;
use thermocline_popularity::{
    Buckets, Merge as RunMerge, Policy, RangeStatistics, Run, best_merge, choose, coldness,
    power_of_k,
};
use thermocline_table::key_hash;

/// Bytes of records that one demotion takes, in tables: more would only hold the range for longer.
const TABLES_PER_DEMOTION: u64 = 1;
/// Records are few where they come to less than this share of a table: a demotion of so few costs a
/// table's file, a sync and an edit for next to no room.
const FEW_OF_TABLE: u64 = 64;
/// And no more than this share of what a range has of the fast tier in the mean, where that is
/// small: a tenth of it may come and go (`PINNED_SHARE_MAX` in `room.rs`).
const FEW_OF_RANGE: u64 = 16;
/// A merge of all runs of a range of which nothing was counted. It is promised all that it takes,
/// so where writes have a budget it may wait for more than it will write.
const UNCOUNTED: RunMerge = RunMerge { runs: usize::MAX, score: 0.0, written_bytes: f64::INFINITY };

impl FastTier {
    /// Where estimates serve instead of counting.
    fn estimates(&self, hybrid: &Hybrid) -> Option<&Buckets> {
        let wanted = hybrid.shared.settings.hybrid.policy == DemotionPolicy::Approximate;
        self.regulation.buckets.as_ref().filter(|_| wanted)
    }

    /// What is known of a range, counted one by one or estimated: of its records in slots, and of
    /// its runs, from the newest.
    fn statistics(
        &self,
        hybrid: &Hybrid,
        levels: &Levels,
        range: &KeyRange,
    ) -> (RangeStatistics, Vec<Run>) {
        let pinning = self.pinning();
        let runs = runs_of(levels, range);
        let mut runs: Vec<_> = runs.iter().map(|(_, tables)| Overlap::of(tables)).collect();
        if let Some(buckets) = self.estimates(hybrid) {
            let from = range.from.as_deref().unwrap_or_default();
            buckets.refresh(from, range.to.as_deref(), &*self.popularity);
            let statistics = buckets.estimate(from, range.to.as_deref(), &pinning);
            // In which of the runs a key is they do not know.
            let share = statistics.overlap_share();
            let run = |overlap: &Overlap<'_>| overlap.run(share);
            return (statistics, runs.iter().map(run).collect());
        }
        let mut statistics = RangeStatistics::default();
        let mut last = None;
        let (from, to) = range.bounds();
        self.index.for_each(from, to, |key, entry| {
            let hash = key_hash(key);
            let is_newest = last.replace(hash) != Some(hash);
            // A copy of what a table has is dropped for nothing.
            if entry.clean {
                return;
            }
            let value = self.popularity.value(hash);
            let bytes = f64::from(entry.record_bytes);
            statistics.fast_objects += 1.0;
            statistics.fast_bytes += bytes;
            statistics.coldness += coldness(value);
            if entry.kind == EntryKind::Put && pinning.decide(value, draw_of(hash)) {
                statistics.pinned_bytes += bytes;
            } else if is_newest {
                runs.iter_mut().for_each(|run| run.ask(key, hash));
            }
        });
        let run = |overlap: &Overlap<'_>| overlap.run(overlap.counted_share());
        (statistics, runs.iter().map(run).collect())
    }
}

/// How much of a run is replaced by records that leave, by what its filters say of them.
///
/// Filters that are not in memory are not asked: a choice among ranges is not worth a read of the
/// slow tier for each of their records. What they would say is taken to be what the others do.
struct Overlap<'a> {
    tables: &'a [Arc<Table>],
    bytes: f64,
    entries: f64,
    /// Records within the span of a table.
    spanned: f64,
    /// Of these, records of which a filter in memory was asked, and those that a table may have.
    asked: f64,
    found: f64,
}

impl<'a> Overlap<'a> {
    fn of(tables: &'a [Arc<Table>]) -> Self {
        let bytes = tables.iter().map(|table| table.meta.bytes as f64).sum();
        let entries = tables.iter().map(|table| table.meta.entries as f64).sum();
        Self { tables, bytes, entries, spanned: 0.0, asked: 0.0, found: 0.0 }
    }

    fn ask(&mut self, key: &[u8], hash: u64) {
        let spans = |table: &&Arc<Table>| table.meta.overlaps(Some(key), Some(key));
        let mut answers =
            self.tables.iter().filter(spans).map(|table| table.glance(key, hash)).peekable();
        if answers.peek().is_none() {
            return;
        }
        self.spanned += 1.0;
        // More than one table only in level 0.
        let (mut is_known, mut is_found) = (true, false);
        for answer in answers {
            is_known &= answer.is_some();
            is_found |= answer == Some(true);
        }
        if is_known || is_found {
            self.asked += 1.0;
            self.found += f64::from(u8::from(is_found));
        }
    }

    /// Entries that are replaced, each as large as the run's are in the mean.
    fn counted_share(&self) -> f64 {
        if self.asked == 0.0 || self.entries == 0.0 {
            return 0.0;
        }
        (self.spanned * self.found / self.asked / self.entries).min(1.0)
    }

    fn run(&self, share: f64) -> Run {
        Run { bytes: self.bytes, overlap_bytes: self.bytes * share }
    }
}

impl Hybrid {
    /// A demotion by these means, claimed. None where it must wait, for what is under way or for
    /// the slow tier's wear; and where too little would leave, of which the room is told.
    pub fn plan_demotion(self: &Arc<Self>, means: Means) -> Option<Demotion> {
        if !self.may_merge() {
            self.wait_for_slow_tier(Purpose::Room(means));
            return None;
        }
        let looks_at_all = means != Means::ColdOfDrawn;
        let _one_at_a_time = looks_at_all.then(|| self.fast.room.counting.lock());
        let levels = Arc::clone(&self.versions.current().levels);
        let claims = self.versions.tables().claims.ranges();
        if (looks_at_all || self.fast.slow_room.refusals() > 0) && !claims.is_empty() {
            // What is under way has the best range, maybe, and may be enough; or it is to show
            // whether there is room below.
            return None;
        }
        let hybrid = &self.shared.settings.hybrid;
        let ranges = ranges(&levels, hybrid.range_tables as usize);
        let few_bytes = self.few_bytes(ranges.len());
        let mut free = ranges;
        free.retain(|range| !claims.iter().any(|claim| claim.overlaps(range)));
        if free.is_empty() || means == Means::Hot && self.fast.room.gives_up_for_copies() {
            return None;
        }
        let (choice, bytes_max, bytes_min) = if means == Means::Hot {
            let bytes_max = self.fast.room.excess_bytes().clamp(few_bytes, self.demotion_bytes());
            (self.fullest(&levels, &free, bytes_max), bytes_max, 0)
        } else {
            // It was estimated: half of that is still worth it.
            let is_random = hybrid.policy == DemotionPolicy::Random;
            let bytes_min = if is_random { 0 } else { few_bytes / 2 };
            let count = if looks_at_all { free.len() } else { hybrid.candidates as usize };
            let choice = self.best_of(&levels, &free, count, few_bytes);
            (choice, self.demotion_bytes(), bytes_min)
        };
        let Some((at, merge)) = choice else {
            self.fast.room.found_little(means, self.shared.clock.now_ns());
            return None;
        };
        let runs = if self.runs_max() == 1 { usize::MAX } else { merge.runs };
        let plan = pick_runs(&levels, free[at].clone(), runs, self.runs_max());
        let purpose = Purpose::Room(means);
        let is_scored = means != Means::Hot && hybrid.policy != DemotionPolicy::Random;
        let score = is_scored.then_some(merge.score);
        let plan = DemotionPlan { purpose, bytes_min, bytes_max, score, ..plan };
        let written_bytes = (merge.written_bytes as u64).min(plan.bytes() + bytes_max);
        self.claim_within_budget(plan, written_bytes)
    }

    /// What the slow tier's wear forbids now, or finds no room there, waits; sweeps write nothing,
    /// and go on.
    fn wait_for_slow_tier(&self, purpose: Purpose) {
        if let Purpose::Room(means @ Means::ColdOfDrawn) = purpose {
            self.fast.room.found_little(means, self.shared.clock.now_ns());
        }
    }

    /// As [`Hybrid::claim_demotion`], for a merge that is about to write so much, if the budget of
    /// the slow tier has that.
    fn claim_within_budget(
        self: &Arc<Self>,
        plan: DemotionPlan,
        written_bytes: u64,
    ) -> Option<Demotion> {
        if !self.promise_writes(plan.purpose, (0, written_bytes)) {
            self.wait_for_slow_tier(plan.purpose);
            return None;
        }
        let demotion = self.claim_demotion(DemotionPlan { promised_bytes: written_bytes, ..plan });
        if demotion.is_none() {
            self.fast.regulation.slow_writes.release(written_bytes);
        }
        demotion
    }

    /// The range whose cold records are most worth the writes, of `count` that are drawn; none
    /// where less than `few_bytes` would leave any of them.
    fn best_of(
        &self,
        levels: &Levels,
        free: &[KeyRange],
        count: usize,
        few_bytes: u64,
    ) -> Option<(usize, RunMerge)> {
        let (drawn, mut random) = {
            let mut random = self.fast.room.random.lock();
            (power_of_k(free.len(), 1, count, &mut random), Random::new(random.next_u64()))
        };
        let scarcity = self.scarcity_of_writes();
        let weigh = |at: usize| {
            let (statistics, runs) = self.fast.statistics(self, levels, &free[at]);
            (best_merge(&statistics, &runs, self.runs_max(), scarcity), statistics.moved_bytes())
        };
        let policy = match self.shared.settings.hybrid.policy {
            DemotionPolicy::Random => {
                // Drawn without a look at it; only the runs to merge are chosen by what it has, and
                // where there is one there is nothing to choose.
                let at = choose(Policy::Random, &drawn, &mut random, |_| 0.0)?;
                let merge = if self.runs_max() == 1 { UNCOUNTED } else { weigh(at).0 };
                return Some((at, merge));
            }
            DemotionPolicy::Precise => Policy::Precise,
            DemotionPolicy::Approximate => Policy::Approximate,
        };
        let weighed = drawn.into_iter().map(|at| (at, weigh(at)));
        let enough: Vec<_> =
            weighed.filter(|(_, (_, moved_bytes))| *moved_bytes >= few_bytes as f64).collect();
        let places: Vec<_> = (0..enough.len()).collect();
        let best = choose(policy, &places, &mut random, |place| enough[place].1.0.score)?;
        let (at, (merge, _)) = enough[best];
        Some((at, merge))
    }

    /// The range with the most bytes in slots, of which `bytes_max` are to leave, hot or not; none
    /// where no slot has a record.
    fn fullest(
        &self,
        levels: &Levels,
        free: &[KeyRange],
        bytes_max: u64,
    ) -> Option<(usize, RunMerge)> {
        let bytes = |range: &KeyRange| {
            let (from, to) = range.bounds();
            self.fast.index.bytes(from, to)
        };
        let counted = free.iter().map(bytes).enumerate();
        let (at, _) = counted.max_by_key(|(_, bytes)| *bytes).filter(|(_, most)| *most > 0)?;
        let (known, mut runs) = self.fast.statistics(self, levels, &free[at]);
        let fast_bytes = known.fast_bytes.clamp(1.0, bytes_max.max(1) as f64);
        let statistics = RangeStatistics {
            // Where none of a sample is dirty, one may be.
            coldness: known.coldness.max(1.0),
            fast_bytes,
            pinned_bytes: 0.0,
            ..known
        };
        // So much of what is known to leave does.
        let part = fast_bytes / known.fast_bytes.max(fast_bytes);
        runs.iter_mut().for_each(|run| run.overlap_bytes *= part);
        let merge = best_merge(&statistics, &runs, self.runs_max(), self.scarcity_of_writes());
        Some((at, merge))
    }

    /// Bytes of records that are too few for a demotion, where there are so many ranges.
    fn few_bytes(&self, ranges: usize) -> u64 {
        let of_range = self.fast.room.limit_bytes() / ranges.max(1) as u64;
        (self.shared.settings.table_size.0 / FEW_OF_TABLE).min(of_range / FEW_OF_RANGE)
    }

    /// The merge of the range whose tables have the most records that are asked for, so that these
    /// move up (PrismDB, section 5.3); none where no range has any, where nothing may move up, and
    /// where all ranges have had their turn in this epoch.
    pub fn plan_read_triggered(self: &Arc<Self>) -> Option<Demotion> {
        let bytes_max = self.demotion_bytes();
        if self.shared.settings.hybrid.promotion == Promotion::None || !self.may_merge() {
            return None;
        }
        let buckets = self.fast.regulation.buckets.as_ref()?;
        let levels = Arc::clone(&self.versions.current().levels);
        let pinning = self.fast.pinning();
        let popular = |range: &KeyRange| {
            let (from, to) = (range.from.as_deref().unwrap_or_default(), range.to.as_deref());
            // What a merge would bring up, and nothing that is up already.
            buckets.slow_bytes_of(from, to, |key, hash| {
                pinning.decide(self.fast.popularity.value(hash), draw_of(hash))
                    && self.fast.index.get(key).is_none()
            })
        };
        let mut ranges = ranges(&levels, self.shared.settings.hybrid.range_tables as usize);
        if self.fast.regulation.merges_for_reads() >= ranges.len() {
            return None;
        }
        let claims = self.versions.tables().claims.ranges();
        ranges.retain(|range| !claims.iter().any(|claim| claim.overlaps(range)));
        let candidates = {
            let mut random = self.fast.room.random.lock();
            power_of_k(
                ranges.len(),
                1,
                self.shared.settings.hybrid.candidates as usize,
                &mut random,
            )
        };
        let scored = candidates.into_iter().map(|at| (popular(&ranges[at]), at));
        let best = scored.filter(|(bytes, _)| *bytes > 0.0).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let plan = pick_runs(&levels, ranges[best.1].clone(), usize::MAX, self.runs_max());
        let written_bytes = plan.bytes() + bytes_max;
        let demotion =
            self.claim_within_budget(DemotionPlan { bytes_max, ..plan }, written_bytes)?;
        self.fast.regulation.begin_merge_for_reads();
        Some(demotion)
    }

    /// Bytes of records that one demotion takes along, about.
    pub fn demotion_bytes(&self) -> u64 {
        TABLES_PER_DEMOTION * self.shared.settings.table_size.0
    }

    /// Takes the range of a plan for itself, unless another demotion has keys of it.
    fn claim_demotion(self: &Arc<Self>, plan: DemotionPlan) -> Option<Demotion> {
        let mut tables = self.versions.tables();
        // What was picked from may have changed before it was claimed.
        let levels = Arc::clone(&self.versions.current().levels);
        let is_live =
            |(level, table): &(usize, Arc<Table>)| levels.find(*level, table.meta.number).is_some();
        let above: usize = (0..=plan.selection.output_level)
            .map(|level| count_touching(&levels, level, &plan.selection.range))
            .sum();
        let loaded = newest_ingest(&levels, &plan.selection.range) > plan.ingested;
        if loaded
            || !plan.selection.inputs.iter().all(is_live)
            || above != plan.selection.inputs.len()
        {
            return None;
        }
        let claim = plan.selection.claim_of_all_levels();
        let claimed = self.versions.claim(&mut tables, claim)?;
        Some(Demotion::new(self, plan, claimed))
    }
}

impl Hybrid {
    /// [`Db::compact_range`](crate::Db::compact_range), where records are on a fast tier: all of
    /// the range's records go down, and its runs become one.
    pub fn compact_range(
        self: &Arc<Self>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let (mut at, mut done_bytes) = (from.map(<[u8]>::to_vec), 0);
        loop {
            let levels = Arc::clone(&self.versions.current().levels);
            let reaches = |range: &KeyRange| match (&range.to, &at) {
                (Some(to), Some(at)) => to > at,
                _ => true,
            };
            let Some(range) = ranges(&levels, 1).into_iter().find(reaches) else { return Ok(()) };
            let plan = pick_runs(&levels, range.clone(), usize::MAX, self.runs_max());
            let input_bytes = plan.bytes();
            let bytes_max = 4 * self.demotion_bytes();
            let plan = DemotionPlan { purpose: Purpose::Compaction, bytes_max, ..plan };
            let Some(mut demotion) = self.claim_demotion(plan) else {
                self.shared.latch.check()?;
                self.shared.clock.sleep(std::time::Duration::from_millis(2));
                continue;
            };
            let table_bytes = levels.tables().map(|(_, table)| table.meta.bytes).sum::<u64>();
            let slots_bytes = self.fast.slabs.stats().bytes_live();
            self.shared.carry_out(&mut demotion)?;
            let cut_after = demotion.cut_after.take();
            done_bytes += input_bytes + demotion.departed_bytes;
            drop(demotion);
            let total_bytes = (table_bytes + slots_bytes).max(done_bytes);
            progress(Progress { done_bytes, total_bytes });
            let is_last = match (&range.to, to) {
                (Some(end), Some(to)) => end.as_slice() > to,
                (None, _) => true,
                (Some(_), None) => false,
            };
            if let Some(key) = cut_after {
                at = Some([&key[..], &[0]].concat());
                continue;
            }
            if is_last {
                progress(Progress { done_bytes, total_bytes: done_bytes });
                return Ok(());
            }
            at = range.to;
        }
    }

    fn runs_max(&self) -> usize {
        let hybrid = &self.shared.settings.hybrid;
        let is_small = self.fast.room.is_small_tier();
        let runs = if is_small { hybrid.small_tier_runs } else { hybrid.runs };
        runs as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Job, Step};
    use crate::limits::LEVELS;
    use crate::support::{hybrid, stepped};
    use crate::{ByteSize, Db, HybridSettings, Settings};
    use thermocline_popularity::score;

    #[test]
    fn compacting_counts_the_records_that_leave_and_the_tables_that_they_are_merged_with() {
        let db = stepped(&hybrid());
        let compact = || {
            let mut last = None;
            db.compact_range(None, None, &mut |progress| {
                assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
                last = Some(progress);
            })
            .unwrap();
            last.unwrap().done_bytes
        };
        // Header, key and value of a slot.
        let record_bytes = 20 + 4 + 1100;
        let put = |from: u32| {
            (from..from + 50).for_each(|key| db.put(format!("{key:04}"), [7; 1100]).unwrap());
        };
        put(0);
        assert_eq!(compact(), 50 * record_bytes);
        put(50);
        let levels = Arc::clone(&db.engine().versions.current().levels);
        let tables: u64 = levels.tables().map(|(_, table)| table.meta.bytes).sum();
        assert!(tables > 0, "the first ones are in a table");
        assert_eq!(compact(), 50 * record_bytes + tables);
    }

    #[test]
    fn more_runs_lie_over_each_other_while_the_fast_tier_is_below_a_tenth_of_the_data() {
        let db = stepped(&hybrid());
        let engine = db.engine();
        let room = &engine.hybrid().fast.room;
        let whole_bytes = engine.shared.tier0.divided_bytes();
        let runs_with = |table_bytes| {
            room.note_tables(table_bytes);
            engine.hybrid().runs_max()
        };
        assert_eq!(runs_with(9 * whole_bytes - 1), 3);
        assert_eq!(runs_with(9 * whole_bytes), 6);
        assert_eq!(runs_with(7 * whole_bytes), 6, "not back and forth");
        assert_eq!(runs_with(7 * whole_bytes - 1), 3);
        room.note_tables(u64::MAX);
        db.put("key", "value").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(engine.hybrid().runs_max(), 3, "each change of the tables is looked at");
    }

    /// Keys of one length that buckets know each of, in ascending order.
    fn sampled(prefix: &str, count: usize) -> Vec<String> {
        let keys = (0..1 << 20).map(|number| format!("{prefix}{number:08}"));
        keys.filter(|key| key_hash(key.as_bytes()) >> 24 & 31 == 0).take(count).collect()
    }

    /// A store with one run a range, and its two ranges: what is below "n" and the rest. Each has a
    /// table of the same size and as many records in slots, which in the range of `overlapped` are
    /// newer versions of what the table has, and in the other lie between.
    fn two_ranges(policy: DemotionPolicy, overlapped: &str) -> (Db, [KeyRange; 2]) {
        let hybrid_settings = HybridSettings { policy, runs: 1, ..HybridSettings::default() };
        let db = stepped(&Settings { hybrid: hybrid_settings, ..hybrid() });
        let put = |key: &String| db.put(key, [7; 500]).unwrap();
        for prefix in ["a", "s"] {
            sampled(prefix, 200).iter().step_by(2).for_each(put);
            db.compact_range(None, None, &mut |_| {}).unwrap();
        }
        for prefix in ["a", "s"] {
            let skipped = usize::from(prefix != overlapped);
            sampled(prefix, 200).iter().skip(skipped).step_by(2).for_each(put);
        }
        db.flush().unwrap();
        // A table is opened, and can be asked, once somebody has looked for a key in its span.
        for prefix in ["a", "s"] {
            assert!(db.get(format!("{}-", sampled(prefix, 1)[0])).unwrap().is_none());
        }
        let border = Some(b"n".to_vec());
        let below = KeyRange { from: None, to: border.clone() };
        (db, [below, KeyRange { from: border, to: None }])
    }

    fn known(db: &Db, of: &KeyRange) -> (RangeStatistics, Vec<Run>) {
        let levels = Arc::clone(&db.engine().versions.current().levels);
        db.engine().hybrid().fast.statistics(db.engine().hybrid(), &levels, of)
    }

    #[test]
    fn of_two_ranges_that_differ_in_overlap_alone_the_overlapped_one_leaves() {
        for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
            for (at, overlapped) in ["a", "s"].into_iter().enumerate() {
                let (db, ranges) = two_ranges(policy, overlapped);
                let [(more, with), (less, without)] =
                    [at, 1 - at].map(|at| known(&db, &ranges[at]));
                let alike = |of: RangeStatistics| RangeStatistics {
                    slow_objects: 0.0,
                    slow_bytes: 0.0,
                    overlap_bytes: 0.0,
                    ..of
                };
                assert_eq!(alike(more), alike(less), "{policy:?}");
                assert_eq!((with.len(), without.len()), (1, 1));
                let (bytes, overlap_bytes) = (with[0].bytes, with[0].overlap_bytes);
                assert_eq!(bytes, without[0].bytes);
                // All but what filters take for others, which is one in a hundred.
                assert!(overlap_bytes > 0.99 * bytes, "{overlap_bytes} of {bytes}");
                assert!(without[0].overlap_bytes < 0.05 * bytes, "{without:?} of {bytes}");
                let equation = |of: RangeStatistics, run: &Run| {
                    let (slow_bytes, overlap_bytes) = (run.bytes, run.overlap_bytes);
                    score(&RangeStatistics { slow_bytes, overlap_bytes, ..of })
                };
                let best = equation(more, &with[0]);
                assert!(best > equation(less, &without[0]), "{policy:?}");
                let engine = db.engine();
                let levels = Arc::clone(&engine.versions.current().levels);
                let (chosen, merge) = engine.hybrid().best_of(&levels, &ranges, 2, 0).unwrap();
                assert_eq!((chosen, merge.runs), (at, 1), "{policy:?}");
                assert_eq!(merge.score, best);
            }
        }
    }

    #[test]
    fn overlap_is_counted_by_filters_in_memory_and_never_by_a_read() {
        let (db, ranges) = two_ranges(DemotionPolicy::Precise, "a");
        let reads = || db.stats().tiers[1].reads;
        let look_ups = || {
            let cache = &db.engine().shared.cache;
            cache.counts(thermocline_table::BlockClass::Filter)
        };
        let before = (reads(), look_ups());
        assert!(known(&db, &ranges[0]).1[0].overlap_bytes > 0.0);
        db.engine().shared.cache.clear();
        assert_eq!(known(&db, &ranges[0]).1[0].overlap_bytes, 0.0);
        assert_eq!((reads(), look_ups()), before);
    }

    #[test]
    fn records_that_stay_replace_nothing() {
        for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
            let (db, ranges) = two_ranges(policy, "a");
            let popularity = &db.engine().hybrid().fast.popularity;
            for key in sampled("a", 200).iter().step_by(2).take(10) {
                (0..5).for_each(|_| {
                    popularity.touch(key_hash(key.as_bytes()), true);
                });
            }
            let (statistics, runs) = known(&db, &ranges[0]);
            let stays = statistics.pinned_share();
            assert!(stays > 0.0 && stays < 0.2, "{stays}");
            let leaves = runs[0].overlap_bytes / runs[0].bytes;
            assert!((leaves + stays - 1.0).abs() < 0.02, "{leaves} and {stays}");
        }
    }

    /// A store with one run of several tables, between the records of which so many cold ones are
    /// in slots: four in the first table's range, eight in the next, and so on. Behind the last
    /// table there is nothing.
    fn ranked(hybrid_settings: HybridSettings) -> Db {
        let table_size = ByteSize::kib(64);
        let db = stepped(&Settings { table_size, hybrid: hybrid_settings, ..hybrid() });
        let mut random = Random::new(1);
        let mut put = |key: &String| {
            // What does not compress.
            let mut value = [0; 1000];
            random.fill(&mut value);
            db.put(key, value).unwrap();
        };
        let keys = sampled("k", 1200);
        keys.iter().step_by(2).for_each(&mut put);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        for (at, range) in all_ranges(&db, 1).iter().enumerate() {
            let between = keys.iter().skip(1).step_by(2);
            let inside = between.filter(|key| range.to.is_some() && range.contains(key.as_bytes()));
            inside.take(4 * (at + 1)).for_each(&mut put);
        }
        db.flush().unwrap();
        db
    }

    fn all_ranges(db: &Db, width: usize) -> Vec<KeyRange> {
        ranges(&db.engine().versions.current().levels, width)
    }

    /// How often each range is chosen, most often first, of so many choices.
    fn chosen(count: usize, choose: impl Fn() -> Option<KeyRange>) -> Vec<(KeyRange, usize)> {
        let mut counts: Vec<(KeyRange, usize)> = Vec::new();
        for range in (0..count).filter_map(|_| choose()) {
            match counts.iter_mut().find(|(other, _)| *other == range) {
                Some((_, count)) => *count += 1,
                None => counts.push((range, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| usize::MAX - count);
        counts
    }

    /// The range that is claimed by the demotion that is planned now, which then gives it back.
    fn planned(db: &Db, plan: impl Fn() -> Option<Demotion>) -> Option<KeyRange> {
        let demotion = plan()?;
        let claims = db.engine().versions.tables().claims.ranges();
        assert_eq!(claims.len(), 1);
        drop(demotion);
        claims.into_iter().next()
    }

    /// As two reads of a record in a table do.
    fn ask_for(db: &Db, key: &str) {
        let popularity = &db.engine().hybrid().fast.popularity;
        (0..2).for_each(|_| assert!(popularity.touch(key_hash(key.as_bytes()), false).is_some()));
    }

    fn cold_of_drawn(db: &Db) -> Option<KeyRange> {
        planned(db, || db.engine().hybrid().plan_demotion(Means::ColdOfDrawn))
    }

    /// Of all but one the best is drawn nearly always, and otherwise the second.
    #[test]
    fn no_more_ranges_are_looked_at_than_there_are_candidates_and_no_fewer() {
        for policy in [DemotionPolicy::Precise, DemotionPolicy::Approximate] {
            let with = |candidates| {
                let hybrid_settings =
                    HybridSettings { policy, candidates, runs: 1, ..hybrid().hybrid };
                let db = ranked(hybrid_settings);
                (all_ranges(&db, 1).len(), chosen(300, || cold_of_drawn(&db)))
            };
            let (count, best) = with(64);
            assert!(count >= 8, "{count}");
            let [(best, 300)] = &best[..] else { panic!("always the best: {best:?}") };
            let (_, of_others) = with(count as u32 - 1);
            assert_eq!(of_others.len(), 2, "{policy:?}: {of_others:?}");
            assert!(of_others[0].0 == *best && of_others[0].1 > 200, "{of_others:?}");
            let (_, of_one) = with(1);
            assert_eq!(of_one.len(), count - 1, "any in which something is: {of_one:?}");
        }
    }

    #[test]
    fn merges_that_reads_ask_for_look_at_as_many_ranges_as_there_are_candidates() {
        let with = |candidates| {
            let read_triggered = true;
            let settings =
                HybridSettings { read_triggered, candidates, runs: 1, ..hybrid().hybrid };
            let db = ranked(settings);
            let fast = &db.engine().hybrid().fast;
            let ranges = all_ranges(&db, 1);
            // The further, the more records of tables are asked for.
            for (at, range) in ranges.iter().enumerate() {
                let keys = sampled("k", 1200);
                let inside = keys.iter().step_by(2).filter(|key| range.contains(key.as_bytes()));
                inside.take(2 * (at + 1)).for_each(|key| ask_for(&db, key));
            }
            (0..200).for_each(|other| assert_eq!(fast.popularity.touch(other, false), Some(0)));
            // An epoch has no more merges than there are ranges.
            let plan = || planned(&db, || db.engine().hybrid().plan_read_triggered());
            (ranges.len(), chosen(ranges.len(), plan))
        };
        let (count, best) = with(64);
        assert_eq!(best.len(), 1, "{best:?}");
        let (_, of_one) = with(1);
        assert!(of_one.len() > count / 3, "{of_one:?}");
    }

    #[test]
    fn a_range_has_as_many_tables_as_are_set() {
        for range_tables in [1, 3] {
            let settings = HybridSettings {
                policy: DemotionPolicy::Precise,
                read_triggered: true,
                candidates: 64,
                range_tables,
                runs: 1,
                ..hybrid().hybrid
            };
            let db = ranked(settings);
            let levels = Arc::clone(&db.engine().versions.current().levels);
            let tables_of = |range: &KeyRange| {
                (0..LEVELS).map(|level| count_touching(&levels, level, range)).sum::<usize>()
            };
            let range = cold_of_drawn(&db).unwrap();
            assert_eq!(tables_of(&range), range_tables as usize, "{range:?}");
            assert!(all_ranges(&db, range_tables as usize).contains(&range));
            sampled("k", 1200).iter().step_by(2).for_each(|key| ask_for(&db, key));
            let range = planned(&db, || db.engine().hybrid().plan_read_triggered()).unwrap();
            assert_eq!(tables_of(&range), range_tables as usize, "{range:?}");
        }
    }

    fn random_policy(runs: u32) -> HybridSettings {
        let policy = DemotionPolicy::Random;
        HybridSettings { policy, runs, candidates: 64, ..hybrid().hybrid }
    }

    #[test]
    fn the_random_policy_takes_each_range_equally_often_and_gives_no_score() {
        for runs in [1, 3] {
            let db = ranked(random_policy(runs));
            let count = all_ranges(&db, 1).len();
            let chosen = chosen(100 * count, || cold_of_drawn(&db));
            let counts: Vec<_> = chosen.iter().map(|(_, count)| *count).collect();
            assert_eq!(counts.len(), count, "{counts:?}");
            assert!(counts.iter().all(|count| (60..140).contains(count)), "{counts:?}");
            // Some of them find nothing in their range.
            let demotions = || db.stats().fast_tier.unwrap().demotions;
            while demotions().ended < 4 {
                let mut demotion = db.engine().hybrid().plan_demotion(Means::ColdOfDrawn).unwrap();
                while demotion.step().unwrap() == Step::More {}
            }
            assert_eq!((demotions().last_score, demotions().mean_score), (None, None));
        }
    }

    #[test]
    fn what_is_drawn_by_chance_is_counted_only_where_there_are_runs_to_choose() {
        let drawn = |runs| {
            let db = ranked(random_policy(runs));
            let levels = Arc::clone(&db.engine().versions.current().levels);
            db.engine().hybrid().best_of(&levels, &all_ranges(&db, 1)[..1], 1, 0).unwrap()
        };
        assert_eq!(drawn(1), (0, UNCOUNTED));
        let (at, merge) = drawn(3);
        assert!(at == 0 && merge.runs <= 1 && merge.score > 0.0, "{merge:?}");
        assert!((1.0..1e6).contains(&merge.written_bytes), "{merge:?}");
    }

    #[test]
    fn all_runs_of_a_range_that_is_drawn_by_chance_are_merged_and_its_cold_records_leave() {
        let db = ranked(random_policy(1));
        let records = || db.stats().fast_tier.unwrap().records;
        let (before, tables_before) = (records(), db.stats().levels[0].tables);
        // Behind the last table there is nothing.
        let plan = || {
            let demotion = db.engine().hybrid().plan_demotion(Means::ColdOfDrawn)?;
            let range = db.engine().versions.tables().claims.ranges()[0].clone();
            range.to.is_some().then_some((demotion, range))
        };
        let (mut demotion, range) = std::iter::repeat_with(plan).flatten().next().unwrap();
        while demotion.step().unwrap() == Step::More {}
        drop(demotion);
        let fast = &db.engine().hybrid().fast;
        let (from, to) = range.bounds();
        let mut left = 0;
        fast.index.for_each(from, to, |_, _| left += 1);
        assert!(left == 0 && records() < before, "{left} and {} of {before}", records());
        assert_eq!(db.stats().levels.len(), 1, "one run");
        assert!(db.engine().shared.counts.compacted_in_bytes.get() > 0 && tables_before > 8);
        assert_eq!(db.stats().levels[0].entries, 600 + before - records());
        let found = sampled("k", 1200).iter().filter(|key| db.get(key).unwrap().is_some()).count();
        assert_eq!(found as u64, 600 + before);
    }
}
