//! Compaction of a range that a caller asks for: all of its records go down, and its runs become
//! one.

use crate::error::{ErrorKind, Result};
use crate::jobs::Progress;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::demotion::ranges::DemotionPlan;
use crate::layout::hybrid::demotion::ranges::Purpose;
use crate::layout::hybrid::demotion::ranges::pick_runs;
use crate::layout::hybrid::demotion::ranges::ranges;
use crate::table_set::key_range::KeyRange;
use std::sync::Arc;
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
        let mut tries = self.shared.files.tiers().len();
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
                self.shared.let_work();
                continue;
            };
            let table_bytes = levels.tables().map(|(_, table)| table.meta.bytes).sum::<u64>();
            let slots_bytes = self.fast.slabs.stats().bytes_live();
            match self.shared.carry_out(&mut demotion) {
                // The device of a tier turned out to have no room; the next try goes to another.
                Err(error) if error.kind() == ErrorKind::OutOfSpace && tries > 0 => {
                    tries -= 1;
                    continue;
                }
                carried_out => carried_out?,
            }
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
}
