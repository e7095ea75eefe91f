//! Compaction of a range that a caller asks for, on the calling thread, beside the workers.

use crate::compaction::leveled;
use crate::compaction::leveled::Pick;
use crate::error::Result;
use crate::jobs::Progress;
use crate::layout::leveled::Leveled;
use crate::layout::leveled::compaction::Compaction;
use crate::limits::LEVELS;
use crate::shared::compaction_rate::Hurry;
use crate::table_set::claims::Claim;
use crate::table_set::levels::may_overlap;
use std::sync::Arc;
/// A caller waits for tables that running compactions hold; none is begun before it has them.
struct InLine<'a> {
    leveled: &'a Leveled,
    _hurry: Hurry<'a>,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.leveled.versions.tables().claimants -= 1;
        self.leveled.shared.jobs.wake();
    }
}

impl Leveled {
    /// Brings all records of `from..=to` to the deepest level in use, dropping what nobody can see.
    /// Runs on the calling thread, beside the workers.
    pub fn compact_range(
        self: &Arc<Self>,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut done_bytes = 0;
        for level in 0..LEVELS - 1 {
            let mut after: Option<Vec<u8>> = None;
            while let Some(pick) = self.claim(|levels, claims| {
                let after = after.as_deref();
                leveled::pick_range(levels, claims, &self.shared.settings, level, (from, to), after)
            })? {
                after = pick.upper.last().map(|table| table.meta.largest_key.clone());
                self.run_compaction(pick, &mut done_bytes, (from, to), progress)?;
                if may_overlap(level) {
                    break;
                }
            }
        }
        let mut after: Option<Vec<u8>> = None;
        while let Some(pick) = self.claim(|levels, claims| {
            leveled::pick_bottom(levels, claims, from, to, after.as_deref())
        })? {
            after = Some(pick.claim.to.clone());
            self.run_compaction(pick, &mut done_bytes, (from, to), progress)?;
        }
        Ok(())
    }

    /// Claims what `choose` picks, waiting while a running compaction is in its way. Meanwhile no
    /// worker begins another: where writers keep all of them busy, a worker that has finished one
    /// would take the next before the caller looks again, and so for ever.
    pub(super) fn claim(
        &self,
        choose: impl Fn(
            &crate::table_set::levels::Levels,
            &[Claim],
        ) -> Result<Option<Pick>, leveled::Busy>,
    ) -> Result<Option<Pick>> {
        let mut in_line = None;
        loop {
            self.shared.latch.check()?;
            {
                let mut tables = self.versions.tables();
                let levels = Arc::clone(&self.versions.current().levels);
                if let Ok(chosen) = choose(&levels, &tables.claims) {
                    if let Some(pick) = &chosen {
                        pick.claim_tables();
                        tables.claims.push(pick.claim.clone());
                    }
                    return Ok(chosen);
                }
                if in_line.is_none() {
                    tables.claimants += 1;
                    in_line =
                        Some(InLine { leveled: self, _hurry: self.shared.compaction_rate.hurry() });
                }
            }
            self.shared.clock.sleep(std::time::Duration::from_millis(2));
        }
    }

    fn run_compaction(
        self: &Arc<Self>,
        pick: Pick,
        done_bytes: &mut u64,
        (from, to): (Option<&[u8]>, Option<&[u8]>),
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let bytes = pick.bytes();
        let _hurry = self.shared.compaction_rate.hurry();
        let mut compaction = Compaction::new(self, pick);
        self.shared.carry_out(&mut compaction)?;
        *done_bytes += bytes;
        let levels = Arc::clone(&self.versions.current().levels);
        let deepest = levels.deepest();
        let left: u64 = (0..deepest)
            .flat_map(|level| levels.overlapping(level, from, to))
            .map(|table| table.meta.bytes)
            .sum();
        progress(Progress { done_bytes: *done_bytes, total_bytes: *done_bytes + left });
        Ok(())
    }
}
