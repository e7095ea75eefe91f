//! Compaction of a range that a caller asks for, on the calling thread, beside the workers.

use super::Leveled;
use crate::compaction::leveled::{Busy, choose_bottom, choose_in_range};
use crate::compaction::merge_job::MergeJob;
use crate::compaction::selection::Selection;
use crate::compaction::view::View;
use crate::error::{ErrorKind, Result};
use crate::jobs::Progress;
use crate::limits::LEVELS;
use crate::table_set::levels::may_overlap;
use crate::versions::Claimed;
use std::sync::Arc;

/// A merge of a range that a caller asked for.
struct Merge<'a> {
    job: MergeJob,
    range: (Option<&'a [u8]>, Option<&'a [u8]>),
    /// Merges that may still be chosen anew.
    tries: &'a mut usize,
}

impl Leveled {
    /// Brings all records of `from..=to` to the deepest level in use, dropping what nothing can see
    /// any more.
    pub fn compact_range(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut done_bytes = 0;
        let mut tries = self.shared.files.tiers().len();
        for level in 0..LEVELS - 1 {
            let mut after: Option<Vec<u8>> = None;
            while let Some((claimed, selection)) =
                self.claim(|view| choose_in_range(view, level, (from, to), after.as_deref()))?
            {
                let last = selection.upper().last().map(|table| table.meta.largest_key.clone());
                let job = MergeJob::new(&self.shared, &self.versions, claimed, selection);
                let merge = Merge { job, range: (from, to), tries: &mut tries };
                if !self.carry_out(merge, &mut done_bytes, progress)? {
                    continue;
                }
                after = last;
                if may_overlap(level) {
                    break;
                }
            }
        }
        let mut after: Option<Vec<u8>> = None;
        while let Some((claimed, selection)) =
            self.claim(|view| choose_bottom(view, (from, to), after.as_deref()))?
        {
            let last = selection.upper().last().map(|table| table.meta.largest_key.clone());
            let job = MergeJob::new(&self.shared, &self.versions, claimed, selection);
            let merge = Merge { job, range: (from, to), tries: &mut tries };
            if self.carry_out(merge, &mut done_bytes, progress)? {
                after = last;
            }
        }
        Ok(())
    }

    /// Claims what `choose` selects, waiting while a running compaction is in its way. Meanwhile no
    /// worker begins another: where writers keep all of them busy, a worker that has finished one
    /// would take the next before the caller looks again, and so for ever.
    pub(super) fn claim(
        &self,
        choose: impl Fn(&View<'_>) -> Result<Option<Selection>, Busy>,
    ) -> Result<Option<(Claimed, Selection)>> {
        let mut awaited = None;
        loop {
            self.shared.latch.check()?;
            {
                let mut tables = self.versions.tables();
                let version = self.versions.current();
                match choose(&self.view(&version, &tables.claims)) {
                    Ok(None) => return Ok(None),
                    Ok(Some(selection)) => {
                        let claimed = self.versions.claim(&mut tables, selection.claim());
                        if let Some(claimed) = claimed {
                            return Ok(Some((claimed, selection)));
                        }
                    }
                    Err(Busy) => {}
                }
                if awaited.is_none() {
                    let hurry = self.shared.compaction_rate.hurry();
                    awaited = Some((self.versions.await_claim(&mut tables), hurry));
                }
            }
            self.shared.let_work();
        }
    }

    /// False where the device of a tier turned out to have no room for it: chosen anew, it goes to
    /// another.
    fn carry_out(
        &self,
        merge: Merge<'_>,
        done_bytes: &mut u64,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool> {
        let Merge { mut job, range: (from, to), tries } = merge;
        let bytes = job.selection().bytes();
        let _hurry = self.shared.compaction_rate.hurry();
        match self.shared.carry_out(&mut job) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace && *tries > 0 => {
                *tries -= 1;
                return Ok(false);
            }
            carried_out => carried_out?,
        }
        *done_bytes += bytes;
        let levels = Arc::clone(&self.versions.current().levels);
        let left: u64 = (0..levels.deepest())
            .flat_map(|level| levels.overlapping(level, from, to))
            .map(|table| table.meta.bytes)
            .sum();
        progress(Progress { done_bytes: *done_bytes, total_bytes: *done_bytes + left });
        Ok(true)
    }
}
