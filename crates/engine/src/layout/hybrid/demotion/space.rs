//! Demotions that give space of the slow tier back: tombstones leave the fast tier and end with
//! what they hide.
//!
//! While the fast tier has room no demotion is due, so tombstones would stay in their slots, and
//! what they hide in its tables. A range is merged whole where that may free a share of what is
//! rewritten (`compaction/reclaim.rs` has the share). Only tombstones that every reader sees count:
//! the others would be merged again and again.

use crate::compaction::reclaim::Gain;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose, pick_runs, ranges};
use crate::layout::hybrid::rules::space::SpaceLooks;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::table::TableMeta;
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_index::EntryKind;

impl Hybrid {
    /// The demotion that frees most for what it rewrites, claimed; none where none is worth it, or
    /// another merge runs.
    pub fn plan_for_space(self: &Arc<Self>) -> Option<Demotion> {
        let levels = Arc::clone(&self.versions.current().levels);
        let tombstones = self.tombstones(&levels);
        if tombstones == 0 || levels.tables().next().is_none() || !self.may_merge() {
            return None;
        }
        let oldest_read = self.versions.oldest_read();
        let is_due = self.fast.feedback.space_looks.lock().is_due(tombstones, oldest_read);
        if !is_due || !self.versions.tables().claims.ranges().is_empty() {
            return None;
        }
        let mut worthy: Vec<(u64, DemotionPlan)> = ranges(&levels, 1)
            .into_iter()
            .filter_map(|range| {
                let plan = pick_runs(&levels, range, usize::MAX, self.runs_max());
                let gain = self.gain_of(&plan, None)?;
                gain.is_worth_it().then_some((gain.per_mille(), plan))
            })
            .collect();
        worthy.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
        let is_free = |plan: &DemotionPlan| {
            self.gain_of(plan, Some(oldest_read)).is_some_and(Gain::is_worth_it)
        };
        let waits_for_snapshot = !worthy.is_empty();
        if let Some((_, plan)) = worthy.into_iter().find(|(_, plan)| is_free(plan)) {
            // All that may leave: a merge that the budget refuses only once it is chosen would be
            // chosen again at once.
            let (from, to) = plan.selection.range.bounds();
            let leaving_bytes = self.fast.packing.value_bytes_of(self.fast.index.bytes(from, to));
            let written_bytes = plan.bytes() + leaving_bytes;
            let bytes_max = 4 * self.demotion_bytes();
            let plan = DemotionPlan { purpose: Purpose::Space, bytes_max, ..plan };
            *self.fast.feedback.space_looks.lock() = SpaceLooks::default();
            return self.claim_within_budget(plan, written_bytes);
        }
        if waits_for_snapshot {
            self.versions.await_end_of_snapshot();
        }
        *self.fast.feedback.space_looks.lock() =
            SpaceLooks { tombstones, oldest_read, waits_for_snapshot };
        if waits_for_snapshot && self.versions.oldest_read() != oldest_read {
            // The snapshot ended meanwhile, before its end was waited for.
            self.shared.jobs.wake();
        }
        None
    }

    /// A merge freed nothing: the next look waits until there are more tombstones. Otherwise a
    /// tombstone that does not end would be merged again and again.
    pub fn found_no_space(&self) {
        let tombstones = self.tombstones(&self.versions.current().levels);
        let oldest_read = self.versions.oldest_read();
        *self.fast.feedback.space_looks.lock() =
            SpaceLooks { tombstones, oldest_read, waits_for_snapshot: false };
    }

    /// Of the fast tier and of all tables.
    fn tombstones(&self, levels: &Levels) -> u64 {
        let deletes: u64 = levels.tables().map(|(_, table)| table.meta.deletes).sum();
        self.fast.index.tombstones() + deletes
    }

    /// What a merge of all runs of a range with its tombstones would free; of these only those that
    /// all readers from `seen_by` on see, where that is given. None where there are no tables.
    fn gain_of(&self, plan: &DemotionPlan, seen_by: Option<Sequence>) -> Option<Gain> {
        let tables = || plan.selection.inputs.iter().map(|(_, table)| &table.meta);
        let (bytes, entries) = (plan.bytes(), tables().map(|meta| meta.entries).sum::<u64>());
        let is_seen =
            |meta: &&TableMeta| seen_by.is_none_or(|oldest| meta.largest_sequence <= oldest);
        let deletes: u64 = tables().map(|meta| meta.deletes).sum();
        let ended: u64 = tables().filter(is_seen).map(|meta| meta.deletes).sum();
        let tombstones = ended + self.tombstones_of(&plan.selection.range, seen_by);
        let records = entries.checked_sub(deletes)?;
        if entries == 0 || tombstones == 0 {
            return None;
        }
        // Each may hide one record; those of tables end by themselves, too.
        let hidden = tombstones.min(records) + ended;
        Some(Gain { freed: hidden.min(entries) * (bytes / entries), rewritten: bytes })
    }

    fn tombstones_of(&self, range: &KeyRange, seen_by: Option<Sequence>) -> u64 {
        let (from, to) = range.bounds();
        let Some(oldest) = seen_by else { return self.fast.index.totals(from, to).tombstones };
        let mut tombstones = 0;
        self.fast.index.for_each(from, to, |_, entry| {
            tombstones += u64::from(entry.kind == EntryKind::Delete && entry.sequence <= oldest);
        });
        tombstones
    }
}

#[cfg(test)]
mod tests;
