//! What follows from the sizes of the levels: how fast writers and compactions may go, what the
//! block cache has, and which levels a fast tier is to hold.

use crate::compaction::leveled::have_fallen_behind;
use crate::compaction::targets::{Targets, batch_bytes, targets};
use crate::compaction::view::{View, Writing};
use crate::shared::Shared;
use crate::table_set::claims::Claims;
use crate::table_set::levels::Levels;
use crate::versions::{Current, Follower};
use std::sync::Arc;
use thermocline_foundation::Sequence;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct LevelTargets {
    shared: Arc<Shared>,
}

impl LevelTargets {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Gives the block cache what pinned indexes leave of its share of memory.
    fn fit_cache(&self, levels: &Levels) {
        let share = self.shared.settings.division().cache_bytes;
        let pinned: u64 = levels.tables().map(|(_, table)| table.pinned_bytes()).sum();
        self.shared.cache.set_capacity(share.saturating_sub(pinned).max(share / 8));
    }
}

impl Follower for LevelTargets {
    fn levels_changed(&self, current: &Current, claims: &Claims) {
        let settings = &self.shared.settings;
        let version = current.get();
        let levels = &version.levels;
        self.shared.write_throttle.set_backlog(levels.level(0).len());
        self.fit_cache(levels);
        let targets = targets(levels, settings);
        let (writing, oldest_read) = (Writing::GoesOn, Sequence::ZERO);
        let view = View { levels, claims, settings, writing, oldest_read };
        let behind = have_fallen_behind(&view, &targets);
        self.shared.compaction_rate.set_levels(targets.work(), behind);
        let Targets { base, bytes: mut targets } = targets;
        for (level, target) in targets.iter_mut().enumerate() {
            // Room that a level does not use is for guests; the base comes and goes like level 0.
            if level != base || *target == 0 {
                let bytes = levels.level_bytes(level);
                *target = if *target == 0 { bytes } else { bytes.min(*target) };
            }
        }
        // What level 0 holds before it is compacted: room for it must not come and go.
        targets[0] = targets[0].max(batch_bytes(settings));
        self.shared.placement.set_level_targets(&targets);
        self.shared.measure_tiers();
    }
}
