//! Compaction: tables are merged into a deeper level, or only change their level.

use crate::compaction::leveled;
use crate::compaction::leveled::Pick;
use crate::compaction::rewrite::Output;
use crate::compaction::rewrite::Retention;
use crate::compaction::rewrite::Rewrite;
use crate::compaction::rewrite::STEP_BYTES;
use crate::error::Result;
use crate::jobs::Job;
use crate::jobs::Step;
use crate::layout::leveled::Leveled;
use crate::merge::LevelCursor;
use crate::merge::Merge;
use crate::merge::Source;
use crate::merge::Tables;
use crate::table_set::levels::may_overlap;
use crate::table_set::manifest::Edit;
use std::sync::Arc;
use thermocline_device::FileContext;
use thermocline_device::FileKind;
use thermocline_device::Origin;
use thermocline_foundation::Planted;
use thermocline_foundation::planted;
use thermocline_table::ReadAhead;
/// Merges tables into a deeper level.
#[derive(Debug)]
pub(crate) struct Compaction {
    leveled: Arc<Leveled>,
    pub(super) pick: Pick,
    work: Work,
    started_ns: u64,
}

#[derive(Debug)]
enum Work {
    /// Nothing overlaps below: the table only changes its level.
    Move,
    Rewrite(Box<Rewrite>),
}

impl Compaction {
    /// The pick must be claimed; the compaction gives the claim back when it ends.
    pub fn new(leveled: &Arc<Leveled>, pick: Pick) -> Self {
        let settings = &leveled.shared.settings;
        let compression = |level| settings.compression_of(level);
        let (from, to) = (pick.level, pick.output_level);
        let work = if let [table] = pick.upper.as_slice()
            && pick.lower.is_empty()
            && from != to
            && compression(from) == compression(to)
            && table.meta.deletes == 0
        {
            Work::Move
        } else {
            Work::Rewrite(Box::new(rewrite_of(leveled, &pick)))
        };
        let started_ns = leveled.shared.clock.now_ns();
        Self { leveled: Arc::clone(leveled), pick, work, started_ns }
    }

    fn finish(&mut self) -> Result<()> {
        let output = self.pick.output_level as u8;
        let removed = self.pick.inputs().map(|(level, table)| (level as u8, table.meta.number));
        let mut edit = Edit { removed: removed.collect(), ..Edit::default() };
        let metrics = &self.leveled.shared.counts;
        match &mut self.work {
            Work::Move => {
                let kind = FileKind::Table { level: output };
                for table in &self.pick.upper {
                    self.leveled.shared.files.reclassify(table.meta.number, kind)?;
                    edit.added.push((output, table.meta.clone()));
                }
                metrics.moves.add(1);
            }
            Work::Rewrite(rewrite) => {
                let added = rewrite.publish()?;
                metrics.compactions.add(1);
                metrics.compacted_in_bytes.add(self.pick.bytes());
                metrics.compacted_out_bytes.add(added.iter().map(|meta| meta.bytes).sum());
                edit.added.extend(added.into_iter().map(|meta| (output, meta)));
            }
        }
        self.leveled.versions.commit(&mut self.leveled.versions.tables(), edit)?;
        if may_overlap(self.pick.level) && !may_overlap(self.pick.output_level) {
            let bytes = self.pick.upper.iter().map(|table| table.meta.bytes).sum();
            let elapsed_ns = self.leveled.shared.clock.now_ns() - self.started_ns;
            self.leveled.shared.write_throttle.drained(bytes, elapsed_ns);
        }
        Ok(())
    }
}

impl Compaction {
    /// The inputs are still where they were.
    fn is_unfinished(&self) -> bool {
        let levels = Arc::clone(&self.leveled.versions.current().levels);
        self.pick.inputs().all(|(level, table)| levels.find(level, table.meta.number).is_some())
    }
}

fn rewrite_of(leveled: &Arc<Leveled>, pick: &Pick) -> Rewrite {
    let upper = if may_overlap(pick.level) { pick.upper.len() } else { 1 };
    let window_bytes = leveled.shared.settings.window_bytes(upper + 1);
    let read_ahead = ReadAhead::Stream { window_bytes };
    let mut sources = Vec::new();
    for (level, tables) in [(pick.level, &pick.upper), (pick.output_level, &pick.lower)] {
        if may_overlap(level) {
            let cursors = tables
                .iter()
                .map(|table| LevelCursor::new(Tables::Listed(vec![Arc::clone(table)]), read_ahead));
            sources.extend(cursors.map(|cursor| Source::Level(Box::new(cursor))));
        } else if !tables.is_empty() {
            let tables = Tables::Listed(tables.clone());
            sources.push(Source::Level(Box::new(LevelCursor::new(tables, read_ahead))));
        }
    }
    let levels = Arc::clone(&leveled.versions.current().levels);
    // One table for level 0, which is counted in tables.
    let table_bytes = match pick.output_level {
        level if may_overlap(level) => u64::MAX,
        level => leveled::table_bytes(&levels, &leveled.shared.settings, level),
    };
    // What a tombstone hides may lie in an older table of level 0.
    let below = (!may_overlap(pick.output_level)).then_some((levels, pick.output_level));
    let retention = Retention::new(leveled.versions.kept_readable(), below);
    let kind = FileKind::Table { level: pick.output_level as u8 };
    let origin = Origin::Compaction { from: pick.level as u8, to: pick.output_level as u8 };
    let output = Output {
        context: FileContext { kind, origin },
        options: leveled.shared.settings.table_options(pick.output_level),
        table_bytes,
        expected_bytes: table_bytes.min(pick.bytes()),
        cache: Some(Arc::clone(&leveled.shared.cache)),
    };
    Rewrite::new(Arc::clone(&leveled.shared.files), Merge::new(sources), retention, output)
}

impl Job for Compaction {
    fn name(&self) -> &'static str {
        "compaction"
    }

    fn step(&mut self) -> Result<Step> {
        if let Work::Rewrite(rewrite) = &mut self.work {
            let waits = !may_overlap(self.pick.level) && !self.leveled.versions.current().is_calm();
            if waits
                && !self.leveled.shared.compaction_rate.admit(STEP_BYTES.min(self.pick.bytes()))
            {
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

impl Drop for Compaction {
    fn drop(&mut self) {
        if planted(Planted::FullDiskKeepsClaims) && self.is_unfinished() {
            return;
        }
        self.pick.release_tables();
        let mut tables = self.leveled.versions.tables();
        if let Some(index) = tables.claims.iter().position(|claim| *claim == self.pick.claim) {
            tables.claims.swap_remove(index);
        }
        drop(tables);
        self.leveled.shared.jobs.wake();
    }
}
