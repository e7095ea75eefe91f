//! What is merged next, and which tables leave without a merge.

use super::Indexed;
use super::merge::{Inputs, MergeIndexed};
use super::order::LeafScan;
use crate::compaction::selective::{Counted, Counts, SCATTERED_MAX, groups};
use crate::environment::experiments::MergeOrder;
use crate::error::{Error, ErrorKind, Result};
use crate::jobs::{Job, Progress, Step};
use crate::locator::index::{Lines, TableIndex};
use crate::table_set::TableSet;
use crate::table_set::claims::Claim;
use crate::table_set::key_range::KeyRange;
use crate::table_set::manifest::Edit;
use crate::table_set::table::Table;
use crate::versions::Claimed;
use std::collections::BTreeSet;
use std::sync::Arc;
use thermocline_foundation::{FileNumber, Planted, Sequence, planted};

/// Tables that wait for the index, with which no merge begins: what it makes would wait too.
const WAITING_MAX: usize = 8;

/// The claim of a merge into the one level.
fn claim_of(tables: &[Arc<Table>]) -> Claim {
    let numbers = tables.iter().map(|table| table.meta.number).collect();
    let first = tables.iter().map(|table| &table.meta.smallest_key[..]).min();
    let last = tables.iter().map(|table| &table.meta.largest_key[..]).max();
    let range = KeyRange::spanning(first.unwrap_or_default(), last.unwrap_or_default());
    Claim { tables: numbers, level: Some(0), range }
}

impl Indexed {
    /// With the `lines` of the index from before the lock of the tables was taken: what is entered
    /// loses live records only, and a table that they lack waits.
    fn counts(&self, lines: &Lines, tables: &TableSet, readable: &[Sequence]) -> Counts {
        let version = self.versions.current();
        let count = |table: &Arc<Table>| {
            let line = lines.get(&table.meta.number)?;
            let is_claimed = tables.claims.has_table(table.meta.number);
            let live = if planted(Planted::TableDroppedWithEntries) { 0 } else { line.live };
            Some(Counted { table: Arc::clone(table), live, kept: live, is_claimed })
        };
        let is_waiting = |table: &&Arc<Table>| !lines.contains_key(&table.meta.number);
        let all = || version.levels.tables().map(|(_, table)| table);
        let experiments = &self.shared.experiments;
        let newest = all().map(|table| table.meta.largest_sequence).max().unwrap_or_default();
        let mut counts = Counts {
            tables: all().filter_map(count).collect(),
            waiting: all().filter(is_waiting).cloned().collect(),
            past: readable.iter().copied().filter(|sequence| *sequence < newest).collect(),
            scattered: self.order.scattered(|number| version.levels.find(0, number).is_some()),
            order: experiments.merge_order.unwrap_or(MergeOrder::Sparsest),
            by_overlap: experiments.by_overlap.unwrap_or(true),
            by_live: experiments.live_ratio.unwrap_or(true),
        };
        self.keep_for_readers(&mut counts);
        counts
    }

    /// Counts as kept what readers of the past may see. What was dead when no such reader was is
    /// seen by none that came later: those ask for what had replaced it already.
    fn keep_for_readers(&self, counts: &mut Counts) {
        let is_read = |it: &Counted| counts.is_read_in_the_past(&it.table.meta);
        let are_read: Vec<_> = counts.tables.iter().map(is_read).collect();
        let mut unread = self.unread.lock();
        let before = std::mem::take(&mut *unread);
        for (counted, is_read) in counts.tables.iter_mut().zip(are_read) {
            let meta = &counted.table.meta;
            if is_read {
                counted.kept = before.get(&meta.number).copied().unwrap_or(meta.entries);
            }
            if !is_read || before.contains_key(&meta.number) {
                unread.insert(meta.number, counted.kept);
            }
        }
    }

    /// The most useful job that can begin now. Where a snapshot keeps records, its end wakes the
    /// planner.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        let index = self.index.as_ref()?;
        let scan = || LeafScan::due(self, index).map(|scan| Box::new(scan) as Box<dyn Job>);
        // In turns, where there is something else to do.
        if self.order.takes_turn() {
            scan().or_else(|| self.plan_merge(index))
        } else {
            self.plan_merge(index).or_else(scan)
        }
    }

    fn plan_merge(self: &Arc<Self>, index: &Arc<TableIndex>) -> Option<Box<dyn Job>> {
        let lines = index.lines();
        let mut tables = self.versions.tables();
        // One merge at a time: it has the device, and the index, to itself.
        if tables.claims.callers_wait() || tables.claims.has_levels() {
            return None;
        }
        let count = || self.counts(&lines, &tables, &self.versions.kept_readable());
        let mut counts = count();
        if counts.wait_for_reader() {
            self.versions.await_end_of_snapshot();
            counts = count();
        }
        let (dead, chosen) = (counts.dead(), counts.choose());
        if dead.is_empty() && chosen.is_empty() {
            if counts.past.is_empty() && counts.scattered.len() > SCATTERED_MAX {
                self.order.settled();
            }
            return None;
        }
        if !dead.is_empty() {
            let claimed = self.versions.claim(&mut tables, claim_of(&dead))?;
            return Some(Box::new(Leave { indexed: Arc::clone(self), dead, _claimed: claimed }));
        }
        let for_order = counts.is_for_order(&chosen);
        // A stuck index gets room by merges of what is dead; else what waits is entered first.
        let waits = match index.is_stuck() {
            true => for_order || !index.takes_changes(),
            false => index.waiting() > WAITING_MAX,
        };
        if waits {
            return None;
        }
        let claimed = self.versions.claim(&mut tables, claim_of(&chosen))?;
        if for_order {
            self.order.settled();
            index.note_ordered(chosen.iter().map(|table| table.meta.bytes).sum());
        }
        Some(Box::new(MergeIndexed::new(self, index, Inputs::new(chosen, claimed))))
    }

    /// Merges all tables with keys of `from..=to`, once each, and drops what nothing can see any
    /// more: tombstones too, where no table that is not merged with theirs needs them.
    pub fn compact_range(
        self: &Arc<Self>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let Some(index) = &self.index else { return Ok(()) };
        let levels = Arc::clone(&self.versions.current().levels);
        let tables = levels.overlapping(0, from, to);
        self.wait_until_entered(index, &tables)?;
        let total_bytes = tables.iter().map(|table| table.meta.bytes).sum();
        let mut done_bytes = 0;
        for group in groups(tables) {
            let Some(inputs) = self.claim_again(index, &group)? else { continue };
            done_bytes += inputs.tables.iter().map(|table| table.meta.bytes).sum::<u64>();
            let _hurry = self.shared.compaction_rate.hurry();
            self.shared.carry_out(&mut MergeIndexed::new(self, index, inputs))?;
            progress(Progress { done_bytes, total_bytes });
        }
        Ok(())
    }

    fn wait_until_entered(&self, index: &TableIndex, tables: &[Arc<Table>]) -> Result<()> {
        let numbers: BTreeSet<_> = tables.iter().map(|table| table.meta.number).collect();
        let since = self.shared.jobs.shortage.moment();
        while index.any_waits(&numbers) {
            self.shared.latch.check()?;
            self.shared.jobs.shortage.check_since(since)?;
            if index.is_stuck() {
                return Err(Error::new(
                    ErrorKind::OutOfSpace,
                    "tables are not compacted while the index in persistent memory is full",
                ));
            }
            self.shared.let_work();
        }
        Ok(())
    }

    /// Claims those tables of `group` that are still there and not dead, waiting while a merge is
    /// in the way; none where nothing is left.
    fn claim_again(&self, index: &TableIndex, group: &[FileNumber]) -> Result<Option<Inputs>> {
        let mut awaited = None;
        loop {
            self.shared.latch.check()?;
            let lines = index.lines();
            {
                let mut tables = self.versions.tables();
                let counts = self.counts(&lines, &tables, &self.versions.kept_readable());
                let is_wanted =
                    |it: &&Counted| it.live > 0 && group.contains(&it.table.meta.number);
                let wanted: Vec<_> = counts.tables.iter().filter(is_wanted).collect();
                let inputs: Vec<_> = wanted.iter().map(|it| Arc::clone(&it.table)).collect();
                if inputs.is_empty() {
                    return Ok(None);
                }
                let is_free = !tables.claims.has_levels();
                let claimed =
                    is_free.then(|| self.versions.claim(&mut tables, claim_of(&inputs))).flatten();
                if let Some(claimed) = claimed {
                    return Ok(Some(Inputs::new(inputs, claimed)));
                }
                if awaited.is_none() {
                    awaited = Some(self.versions.await_claim(&mut tables));
                }
            }
            self.shared.let_work();
        }
    }
}

/// Tables that no entry names leave.
#[derive(Debug)]
struct Leave {
    indexed: Arc<Indexed>,
    dead: Vec<Arc<Table>>,
    _claimed: Claimed,
}

impl Job for Leave {
    fn name(&self) -> &'static str {
        "removal of dead tables"
    }

    fn step(&mut self) -> Result<Step> {
        let removed = self.dead.iter().map(|table| (0, table.meta.number)).collect();
        let versions = &self.indexed.versions;
        versions.commit(&mut versions.tables(), Edit { removed, ..Edit::default() })?;
        Ok(Step::Done)
    }
}
