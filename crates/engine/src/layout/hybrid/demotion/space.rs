//! Demotions that give space of the slow tier back: tombstones leave the fast tier and end with
//! what they hide, and runs that replace each other become one.
//!
//! While the fast tier has room no demotion is due, so tombstones would stay in their slots, and
//! what they hide in its tables. A range is merged whole where that may free a share of what is
//! rewritten (`compaction/reclaim.rs` has the share). Only tombstones that every reader sees count:
//! the others would be merged again and again. At rest, records of newer runs that hide some of
//! older ones are a reason, too (`compaction/overwrites.rs`). What records in slots hide in tables
//! is not: they are on the fast tier because they are to stay there.

use crate::compaction::overwrites::Look;
use crate::compaction::reclaim::{Gain, records_of};
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::ranges::{DemotionPlan, Purpose, pick_runs, ranges};
use crate::layout::hybrid::rules::space::SpaceLooks;
use crate::table_set::key_range::KeyRange;
use crate::table_set::levels::Levels;
use crate::table_set::table::{Table, TableMeta};
use std::sync::Arc;
use thermocline_foundation::Sequence;
use thermocline_foundation::sync::Mutex;
use thermocline_index::EntryKind;

/// What is a reason for a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Tombstones,
    /// Or that tables have older versions of each other's records, and of their own. Only at rest.
    AnyGarbage,
}

/// What is asked of the tables of a range.
#[derive(Clone, Copy, Debug)]
struct Asked {
    reason: Reason,
    /// Only what all readers from here on see counts, where that is given.
    seen_by: Option<Sequence>,
    /// All records of tables without an estimate hide something.
    at_most: bool,
}

/// A look at what a table overwrites, after which ranges are weighed anew.
#[derive(Debug)]
struct LookForSpace {
    hybrid: Arc<Hybrid>,
    look: Look,
}

impl Job for LookForSpace {
    fn name(&self) -> &'static str {
        self.look.name()
    }

    fn step(&mut self) -> Result<Step> {
        let step = self.look.step()?;
        *self.hybrid.looks(Reason::AnyGarbage).lock() = SpaceLooks::default();
        Ok(step)
    }
}

impl Hybrid {
    /// The demotion that frees most for what it rewrites, claimed, or a look at a table that may be
    /// worth one; none where none is, or another merge runs.
    pub fn plan_for_space(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let version = self.versions.current();
        let at_rest = || self.plan_for(Reason::AnyGarbage, &version.levels);
        self.plan_for(Reason::Tombstones, &version.levels)
            .or_else(|| version.is_calm(self.shared.rests()).then(at_rest).flatten())
    }

    fn plan_for(self: &Arc<Self>, reason: Reason, levels: &Arc<Levels>) -> Option<Box<dyn Job>> {
        let began_ns = self.shared.clock.now_ns();
        let garbage = self.garbage(reason, levels);
        if garbage == 0 || levels.tables().next().is_none() || !self.may_merge() {
            return None;
        }
        let oldest_read = self.versions.oldest_read();
        let is_due = self.looks(reason).lock().is_due(garbage, oldest_read);
        if !is_due || !self.versions.tables().claims.ranges().is_empty() {
            return None;
        }
        let asked = Asked { reason, seen_by: None, at_most: false };
        let (mut worthy, unknown) = self.weigh(levels, asked);
        worthy.sort_by_key(|(gain, _)| std::cmp::Reverse(*gain));
        let free = Asked { seen_by: Some(oldest_read), ..asked };
        let is_free = |plan: &DemotionPlan| self.gain_of(plan, free).is_some_and(Gain::is_worth_it);
        let waits_for_snapshot = !worthy.is_empty();
        if let Some((_, plan)) = worthy.into_iter().find(|(_, plan)| is_free(plan)) {
            let merge = self.claim_for_space(plan)?;
            return Some(Box::new(merge.begun_at(began_ns)));
        }
        if let Some(look) = unknown.and_then(|table| Look::begin(levels, table)) {
            return Some(Box::new(LookForSpace { hybrid: Arc::clone(self), look }));
        }
        if waits_for_snapshot {
            self.versions.await_end_of_snapshot();
        }
        *self.looks(reason).lock() = SpaceLooks { garbage, oldest_read, waits_for_snapshot };
        if waits_for_snapshot && self.versions.oldest_read() != oldest_read {
            // The snapshot ended meanwhile, before its end was waited for.
            self.shared.jobs.wake();
        }
        None
    }

    /// Merges that are worth it, with what they free; and a table of one that may be.
    fn weigh(
        &self,
        levels: &Levels,
        asked: Asked,
    ) -> (Vec<(u64, DemotionPlan)>, Option<Arc<Table>>) {
        let gain_by = |plan: &DemotionPlan, asked| {
            self.gain_of(plan, asked).filter(|gain| gain.is_worth_it())
        };
        let (mut worthy, mut unknown) = (Vec::new(), None);
        for range in ranges(levels, 1) {
            let plan = pick_runs(levels, range, usize::MAX, self.runs_max());
            if let Some(gain) = gain_by(&plan, asked) {
                worthy.push((gain.per_mille(), plan));
            } else if unknown.is_none() && asked.reason == Reason::AnyGarbage {
                let may_be = gain_by(&plan, Asked { at_most: true, ..asked }).is_some();
                let awaits = || unknown_of(&plan).find(|table| table.awaits_look()).cloned();
                unknown = may_be.then(awaits).flatten();
            }
        }
        (worthy, unknown)
    }

    fn looks(&self, reason: Reason) -> &Mutex<SpaceLooks> {
        match reason {
            Reason::Tombstones => &self.fast.feedback.space_looks,
            Reason::AnyGarbage => &self.fast.feedback.rest_looks,
        }
    }

    fn claim_for_space(self: &Arc<Self>, plan: DemotionPlan) -> Option<Demotion> {
        // All that may leave: a merge that the budget refuses only once it is chosen would be
        // chosen again at once.
        let (from, to) = plan.selection.range.bounds();
        let leaving_bytes = self.fast.packing.value_bytes_of(self.fast.index.bytes(from, to));
        let written_bytes = plan.bytes() + leaving_bytes;
        let bytes_max = 4 * self.demotion_bytes();
        let plan = DemotionPlan { purpose: Purpose::Space, bytes_max, ..plan };
        for reason in [Reason::Tombstones, Reason::AnyGarbage] {
            *self.looks(reason).lock() = SpaceLooks::default();
        }
        self.claim_within_budget(plan, written_bytes)
    }

    /// A merge freed nothing: the next look waits until there is more garbage. Otherwise a
    /// tombstone that does not end would be merged again and again.
    pub fn found_no_space(&self) {
        let levels = Arc::clone(&self.versions.current().levels);
        let oldest_read = self.versions.oldest_read();
        for reason in [Reason::Tombstones, Reason::AnyGarbage] {
            let garbage = self.garbage(reason, &levels);
            *self.looks(reason).lock() =
                SpaceLooks { garbage, oldest_read, waits_for_snapshot: false };
        }
    }

    /// Tombstones of the fast tier and of all tables, or also what tables hide, or may.
    fn garbage(&self, reason: Reason, levels: &Levels) -> u64 {
        let deepest = levels.deepest();
        let replaced = |level: usize, table: &Table| {
            let unknown = || if level < deepest { records_of(&table.meta) } else { 0 };
            table.meta.older_versions + table.overwrites().unwrap_or_else(unknown)
        };
        let of_table = |(level, table): (usize, &Arc<Table>)| match reason {
            Reason::Tombstones => table.meta.deletes,
            Reason::AnyGarbage => table.meta.deletes + replaced(level, table),
        };
        self.fast.index.tombstones() + levels.tables().map(of_table).sum::<u64>()
    }

    /// What a merge of all runs of a range with its tombstones would free. None where there are no
    /// tables, or no reasons.
    fn gain_of(&self, plan: &DemotionPlan, asked: Asked) -> Option<Gain> {
        let tables = || plan.selection.inputs.iter().map(|(_, table)| table);
        let (bytes, entries) = (plan.bytes(), tables().map(|table| table.meta.entries).sum());
        let newest = |meta: &TableMeta| meta.ingested_at.unwrap_or(meta.largest_sequence);
        let is_seen =
            |table: &&Arc<Table>| asked.seen_by.is_none_or(|oldest| newest(&table.meta) <= oldest);
        let deletes: u64 = tables().map(|table| table.meta.deletes).sum();
        let ended: u64 = tables().filter(is_seen).map(|table| table.meta.deletes).sum();
        let tombstones = ended + self.tombstones_of(&plan.selection.range, asked.seen_by);
        let mut replaced = 0;
        if asked.reason == Reason::AnyGarbage {
            let known =
                |table: &Arc<Table>| table.meta.older_versions + table.overwrites().unwrap_or(0);
            replaced += tables().filter(is_seen).map(known).sum::<u64>();
        }
        if asked.at_most {
            replaced += unknown_of(plan).map(|table| records_of(&table.meta)).sum::<u64>();
        }
        let records = u64::checked_sub(entries, deletes)?;
        if entries == 0 || tombstones + replaced == 0 {
            return None;
        }
        // Each may hide one record; those of tables end by themselves, too.
        let hidden = tombstones.min(records) + ended + replaced;
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

/// Tables of the newer runs that have no estimate.
fn unknown_of(plan: &DemotionPlan) -> impl Iterator<Item = &Arc<Table>> {
    let inputs = &plan.selection.inputs;
    let oldest = inputs.last().map_or(0, |(level, _)| *level);
    let newer = inputs.iter().filter(move |(level, _)| *level < oldest);
    newer.map(|(_, table)| table).filter(|table| table.overwrites().is_none())
}

#[cfg(test)]
mod tests;
