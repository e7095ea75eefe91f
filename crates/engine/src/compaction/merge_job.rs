//! A merge of tables that a chooser selected: it steps at the compaction rate and commits; its
//! claim ends with it. A table that overlaps nothing below only changes its level.

use crate::compaction::inputs::sources_of;
use crate::compaction::rewrite::{Output, Retention, Rewrite, STEP_BYTES};
use crate::compaction::selection::Selection;
use crate::compaction::targets::table_bytes;
use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::merge::Merge;
use crate::shared::Shared;
use crate::table_set::levels::may_overlap;
use crate::table_set::manifest::Edit;
use crate::versions::{Claimed, Versions};
use std::sync::Arc;
use thermocline_device::{FileContext, FileKind, Origin};
use thermocline_foundation::{Planted, planted};
use thermocline_table::ReadAhead;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct MergeJob {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    claimed: Claimed,
    selection: Selection,
    work: Work,
    started_ns: u64,
}

#[derive(Debug)]
enum Work {
    /// Nothing overlaps below: the table only changes its level.
    Move,
    Rewrite(Box<Rewrite>),
}

impl MergeJob {
    /// Carries out a selection that is claimed.
    pub fn new(
        shared: &Arc<Shared>,
        versions: &Arc<Versions>,
        claimed: Claimed,
        selection: Selection,
    ) -> Self {
        let settings = &shared.settings;
        let compression = |level| settings.compression_of(level);
        let (from, to) = (selection.source_level(), selection.output_level);
        let work = if let [(_, table)] = selection.inputs.as_slice()
            && from != to
            && compression(from) == compression(to)
            && table.meta.deletes == 0
        {
            Work::Move
        } else {
            Work::Rewrite(Box::new(rewrite_of(shared, versions, &selection)))
        };
        let started_ns = shared.clock.now_ns();
        let (shared, versions) = (Arc::clone(shared), Arc::clone(versions));
        Self { shared, versions, claimed, selection, work, started_ns }
    }

    /// What it merges.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    fn finish(&mut self) -> Result<()> {
        let output = self.selection.output_level as u8;
        let removed =
            self.selection.inputs.iter().map(|(level, table)| (*level as u8, table.meta.number));
        let mut edit = Edit { removed: removed.collect(), ..Edit::default() };
        let Shared { counts, files, .. } = &*self.shared;
        let versions = &self.versions;
        match &mut self.work {
            Work::Move => {
                let kind = FileKind::Table { level: output };
                for (_, table) in &self.selection.inputs {
                    files.reclassify(table.meta.number, kind)?;
                    edit.added.push((output, table.meta.clone()));
                }
                let count = || counts.moves.add(1);
                versions.commit_counted(&mut versions.tables(), edit, count)?;
            }
            Work::Rewrite(rewrite) => {
                let added = rewrite.publish()?;
                let (in_bytes, out_bytes) =
                    (self.selection.bytes(), added.iter().map(|meta| meta.bytes).sum());
                edit.added.extend(added.into_iter().map(|meta| (output, meta)));
                let count = || {
                    counts.compactions.add(1);
                    counts.compacted_in_bytes.add(in_bytes);
                    counts.compacted_out_bytes.add(out_bytes);
                };
                rewrite
                    .hand_over(|| versions.commit_counted(&mut versions.tables(), edit, count))?;
            }
        }
        let (from, to) = (self.selection.source_level(), self.selection.output_level);
        if may_overlap(from) && !may_overlap(to) {
            let bytes = self.selection.upper().map(|table| table.meta.bytes).sum();
            let elapsed_ns = self.shared.clock.now_ns() - self.started_ns;
            self.shared.write_throttle.drained(bytes, elapsed_ns);
        }
        Ok(())
    }
}

impl MergeJob {
    /// The inputs are still where they were.
    fn is_unfinished(&self) -> bool {
        let levels = Arc::clone(&self.versions.current().levels);
        let is_live = |(level, table): &(usize, Arc<crate::table_set::table::Table>)| {
            levels.find(*level, table.meta.number).is_some()
        };
        self.selection.inputs.iter().all(is_live)
    }
}

fn rewrite_of(shared: &Shared, versions: &Versions, selection: &Selection) -> Rewrite {
    let settings = &shared.settings;
    let (from, to) = (selection.source_level(), selection.output_level);
    let upper = if may_overlap(from) { selection.upper().count() } else { 1 };
    let window_bytes = settings.window_bytes(upper + 1);
    let sources = sources_of(&selection.inputs, ReadAhead::Stream { window_bytes });
    let levels = Arc::clone(&versions.current().levels);
    // One table for level 0, which is counted in tables.
    let table_bytes = match to {
        level if may_overlap(level) => u64::MAX,
        level => table_bytes(&levels, settings, level),
    };
    // What a tombstone hides may lie in an older table of level 0.
    let below = (!may_overlap(to)).then_some((levels, to));
    let retention = Retention::new(versions.kept_readable(), below);
    let kind = FileKind::Table { level: to as u8 };
    let origin = Origin::Compaction { from: from as u8, to: to as u8 };
    let output = Output {
        context: FileContext { kind, origin },
        options: settings.table_options(to),
        table_bytes,
        expected_bytes: table_bytes.min(selection.bytes()),
        cache: Some(Arc::clone(&shared.cache)),
    };
    Rewrite::new(Arc::clone(&shared.files), Merge::new(sources), retention, output)
}

impl Job for MergeJob {
    fn name(&self) -> &'static str {
        "compaction"
    }

    fn step(&mut self) -> Result<Step> {
        if let Work::Rewrite(rewrite) = &mut self.work {
            let is_calm = self.versions.current().is_calm(self.shared.rests());
            let waits = !may_overlap(self.selection.source_level()) && !is_calm;
            if waits && !self.shared.compaction_rate.admit(STEP_BYTES.min(self.selection.bytes())) {
                return Ok(Step::More);
            }
            if rewrite.step()? == Step::More {
                return Ok(Step::More);
            }
        }
        self.finish()?;
        Ok(Step::Done)
    }
}

impl Drop for MergeJob {
    fn drop(&mut self) {
        if planted(Planted::FullDiskKeepsClaims) && self.is_unfinished() {
            self.claimed.keep();
        }
    }
}
