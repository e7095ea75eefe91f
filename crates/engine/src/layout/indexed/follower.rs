//! What hears of edits in the one level: the index, and sizes that follow from the tables.

use crate::error::Result;
use crate::locator::Locator;
use crate::locator::index::TableIndex;
use crate::shared::Shared;
use crate::table_set::claims::Claims;
use crate::table_set::levels::Levels;
use crate::versions::{Change, Current, Follower, Switch};
use std::sync::Arc;
use thermocline_pmem::Tree;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct OneLevel {
    shared: Arc<Shared>,
    pub index: Option<Arc<TableIndex>>,
}

impl OneLevel {
    /// Over the tables of `levels`, with the index that is in `tree`.
    pub fn open(shared: &Arc<Shared>, tree: Option<Tree>, levels: &Levels) -> Result<Self> {
        let index = tree.map(|tree| TableIndex::open(shared, tree, levels)).transpose()?;
        Ok(Self { shared: Arc::clone(shared), index: index.map(Arc::new) })
    }

    /// How keys are found.
    pub fn locator(&self) -> Locator {
        self.index.as_ref().map_or_else(Locator::per_level, Locator::with_index)
    }
}

impl Follower for OneLevel {
    fn prepare(&self, change: &mut Change) -> Result<()> {
        self.index.as_ref().map_or(Ok(()), |index| index.prepare(change))
    }

    fn take(&self, change: &mut Change) -> Result<()> {
        self.index.iter().for_each(|index| index.take(change));
        Ok(())
    }

    fn before_switch(&self, switch: &Switch<'_>) -> Result<()> {
        self.index.iter().for_each(|index| index.before_switch(switch));
        Ok(())
    }

    fn after_switch(&self, switch: &Switch<'_>) {
        self.index.iter().for_each(|index| index.after_switch(switch));
    }

    fn levels_changed(&self, current: &Current, _: &Claims) {
        let share = self.shared.settings.division().cache_bytes;
        let levels = Arc::clone(&current.get().levels);
        let pinned: u64 = levels.tables().map(|(_, table)| table.pinned_bytes()).sum();
        let handed = self.index.as_ref().map_or(0, |index| index.hand_over().bytes());
        self.shared.cache.set_capacity(share.saturating_sub(pinned + handed).max(share / 8));
        // The level fills the fast tier and goes on on the next: it has no target.
        self.shared.placement.set_level_targets(&[0]);
        self.shared.measure_tiers();
    }
}
