//! Which range of keys is demoted next (PrismDB, sections 5.1 to 5.3): the choice of a range
//! (`ranges.rs`), of the runs that are merged in it, and the claim that keeps two demotions apart.
//! `judgement.rs` chooses the records of the range, once it is claimed.
//!
//! A range is what consecutive tables of the oldest run span. Of a few drawn at random the one with
//! the best score is taken; for hot records the fullest of all (`fullest`), for reads of tables the
//! one with most hot bytes in tables. What is known of its records is counted, or estimated from
//! buckets. The score and the policies are those of the crate `popularity`.

use crate::environment::experiments::{DemotionPolicy, Promotion};
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::ranges::{
    DemotionPlan, Purpose, count_touching, newest_ingest, pick_runs, ranges,
};
use crate::layout::hybrid::rules::fullness::{EvictionStep, few_bytes};
use crate::layout::hybrid::rules::pinning::draw_of;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_foundation::random::Random;
use thermocline_popularity::{
    Merge as RunMerge, Policy, RangeStatistics, best_merge, choose, power_of_k,
};

/// Bytes of records that one demotion takes, in tables: more would only hold the range for longer.
const TABLES_PER_DEMOTION: u64 = 1;
/// And no more than this share of the slots' room: a table may be larger than all of it.
const DEMOTION_SHARE: u64 = 8;
/// A merge of all runs of a range of which nothing was counted. It is promised all that it takes,
/// so where writes have a budget it may wait for more than it will write.
const UNCOUNTED: RunMerge = RunMerge { runs: usize::MAX, score: 0.0, written_bytes: f64::INFINITY };

impl Hybrid {
    /// A demotion by these means, claimed. None where it must wait, for what is under way or for
    /// the slow tier's wear; and where too little would leave, of which the room is told.
    pub fn plan_demotion(self: &Arc<Self>, step: EvictionStep) -> Option<Demotion> {
        if !self.may_merge() {
            return None;
        }
        let looks_at_all = step == EvictionStep::Hot;
        let _one_at_a_time = looks_at_all.then(|| self.fast.room.counting.lock());
        let levels = Arc::clone(&self.versions.current().levels);
        let claims = self.versions.tables().claims.ranges();
        if (looks_at_all || self.fast.slow_tier_backoff.refusals() > 0) && !claims.is_empty() {
            // What is under way has the best range, maybe, and may be enough; or it is to show
            // whether there is room below.
            return None;
        }
        let rules = &self.fast.rules;
        let mut free = ranges(&levels, rules.range_tables);
        let few_bytes = self.few_bytes(free.len());
        free.retain(|range| !claims.iter().any(|claim| claim.overlaps(range)));
        if free.is_empty() {
            return None;
        }
        let (choice, bytes_max, bytes_min) = if step == EvictionStep::Hot {
            let bytes_max = self.fast.room.excess_bytes().clamp(few_bytes, self.demotion_bytes());
            (self.fullest(&levels, &free, bytes_max), bytes_max, 0)
        } else {
            // It was estimated: half of that is still worth it.
            let is_random = rules.policy == DemotionPolicy::Random;
            let bytes_min = if is_random { 0 } else { few_bytes / 2 };
            (self.best_of(&levels, &free, few_bytes), self.demotion_bytes(), bytes_min)
        };
        let Some((at, merge)) = choice else {
            self.fast.room.found_little(step, self.shared.clock.now_ns());
            return None;
        };
        let runs = if self.runs_max() == 1 { usize::MAX } else { merge.runs };
        let plan = pick_runs(&levels, free[at].clone(), runs, self.runs_max());
        let purpose = Purpose::Room(step);
        let is_scored = step != EvictionStep::Hot && rules.policy != DemotionPolicy::Random;
        let score = is_scored.then_some(merge.score);
        let plan = DemotionPlan { purpose, bytes_min, bytes_max, score, ..plan };
        let written_bytes = (merge.written_bytes as u64).min(plan.bytes() + bytes_max);
        self.claim_within_budget(plan, written_bytes)
    }

    /// As [`Hybrid::claim_demotion`], for a merge that is about to write so much, if the budget of
    /// the slow tier has that.
    pub(super) fn claim_within_budget(
        self: &Arc<Self>,
        plan: DemotionPlan,
        written_bytes: u64,
    ) -> Option<Demotion> {
        if !self.promise_writes(plan.purpose.makes_room(), (0, written_bytes)) {
            return None;
        }
        let demotion = self.claim_demotion(DemotionPlan { promised_bytes: written_bytes, ..plan });
        if demotion.is_none() {
            self.fast.feedback.slow_writes.release(written_bytes);
        }
        demotion
    }

    /// The range whose cold records are most worth the writes, of those that are drawn; none where
    /// less than `few_bytes` would leave any of them.
    fn best_of(
        &self,
        levels: &Levels,
        free: &[KeyRange],
        few_bytes: u64,
    ) -> Option<(usize, RunMerge)> {
        let count = self.fast.rules.candidates;
        let (drawn, mut random) = {
            let mut random = self.fast.room.random.lock();
            (power_of_k(free.len(), 1, count, &mut random), Random::new(random.next_u64()))
        };
        let scarcity = self.scarcity_of_writes();
        let weigh = |at: usize| {
            let (statistics, runs) = self.fast.statistics(levels, &free[at]);
            (best_merge(&statistics, &runs, self.runs_max(), scarcity), statistics.moved_bytes())
        };
        let policy = match self.fast.rules.policy {
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
        let (known, mut runs) = self.fast.statistics(levels, &free[at]);
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

    /// Bytes of cold records that are too few for a demotion, where there are so many ranges.
    fn few_bytes(&self, ranges: usize) -> u64 {
        few_bytes(self.shared.settings.table_size.0, self.fast.room.limit_bytes(), ranges)
    }

    /// The merge of the range whose tables have the most records that are asked for, so that these
    /// move up (PrismDB, section 5.3); none where no range has any, where nothing may move up, and
    /// where all ranges have had their turn in this epoch.
    pub fn plan_read_triggered(self: &Arc<Self>) -> Option<Demotion> {
        let bytes_max = self.demotion_bytes();
        if self.fast.rules.promotion == Promotion::None || !self.may_merge() {
            return None;
        }
        let buckets = self.fast.feedback.buckets.as_ref()?;
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
        let mut ranges = ranges(&levels, self.fast.rules.range_tables);
        if self.fast.feedback.merges_for_reads() >= ranges.len() {
            return None;
        }
        let claims = self.versions.tables().claims.ranges();
        ranges.retain(|range| !claims.iter().any(|claim| claim.overlaps(range)));
        let candidates = {
            let mut random = self.fast.room.random.lock();
            power_of_k(ranges.len(), 1, self.fast.rules.candidates, &mut random)
        };
        let scored = candidates.into_iter().map(|at| (popular(&ranges[at]), at));
        let best = scored.filter(|(bytes, _)| *bytes > 0.0).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let plan = pick_runs(&levels, ranges[best.1].clone(), usize::MAX, self.runs_max());
        let written_bytes = plan.bytes() + bytes_max;
        let demotion =
            self.claim_within_budget(DemotionPlan { bytes_max, ..plan }, written_bytes)?;
        self.fast.feedback.begin_merge_for_reads();
        Some(demotion)
    }

    /// Bytes of records that one demotion takes along, about.
    pub fn demotion_bytes(&self) -> u64 {
        let tables_bytes = TABLES_PER_DEMOTION * self.shared.settings.table_size.0;
        tables_bytes.min(self.fast.room.limit_bytes() / DEMOTION_SHARE)
    }

    /// Takes the range of a plan for itself, unless another demotion has keys of it.
    pub(super) fn claim_demotion(self: &Arc<Self>, plan: DemotionPlan) -> Option<Demotion> {
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

    /// Runs that may lie over each other.
    pub(super) fn runs_max(&self) -> usize {
        let rules = &self.fast.rules;
        if self.fast.room.is_small_tier() { rules.small_tier_runs } else { rules.runs }
    }
}

#[cfg(test)]
mod tests;
