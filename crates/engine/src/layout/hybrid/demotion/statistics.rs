//! What is known of a range of keys: of its records in slots, and of the runs that they are merged
//! with. Counted record by record, or estimated from buckets (PrismDB, section 5.2).

use crate::environment::experiments::DemotionPolicy;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::demotion::ranges::runs_of;
use crate::layout::hybrid::rules::pinning::draw_of;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use std::sync::Arc;
use thermocline_index::EntryKind;
use thermocline_popularity::Buckets;
use thermocline_popularity::RangeStatistics;
use thermocline_popularity::Run;
use thermocline_popularity::coldness;
use thermocline_table::key_hash;
impl FastTier {
    /// Where estimates serve instead of counting.
    fn estimates(&self) -> Option<&Buckets> {
        let wanted = self.rules.policy == DemotionPolicy::Approximate;
        self.feedback.buckets.as_ref().filter(|_| wanted)
    }

    /// What is known of a range, counted one by one or estimated: of its records in slots, and of
    /// its runs, from the newest.
    pub(super) fn statistics(
        &self,
        levels: &Levels,
        range: &KeyRange,
    ) -> (RangeStatistics, Vec<Run>) {
        let pinning = self.pinning();
        let runs = runs_of(levels, range);
        let mut runs: Vec<_> = runs.iter().map(|(_, tables)| Overlap::of(tables)).collect();
        if let Some(buckets) = self.estimates() {
            let from = range.from.as_deref().unwrap_or_default();
            buckets.refresh(from, range.to.as_deref(), &self.popularity);
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
