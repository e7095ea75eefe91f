//! Which compaction is begun next.

use super::Leveled;
use crate::compaction::leveled::choose;
use crate::compaction::merge_job::MergeJob;
use crate::compaction::view::{View, Writing};
use crate::jobs::Job;
use crate::table_set::claims::Claims;
use crate::versions::Version;
use std::sync::Arc;

impl Leveled {
    /// What a chooser looks at.
    pub(super) fn view<'a>(&'a self, version: &'a Version, claims: &'a Claims) -> View<'a> {
        let writing = match version.is_calm() {
            false => Writing::GoesOn,
            true if self.shared.counts.writes.get() == 0 => Writing::NotBegun,
            true => Writing::Over,
        };
        View { levels: &version.levels, claims, settings: &self.shared.settings, writing }
    }
}

/// The most useful compaction, claimed; none while a caller waits for tables.
pub(super) fn plan_compaction(leveled: &Arc<Leveled>) -> Option<Box<dyn Job>> {
    let mut tables = leveled.versions.tables();
    if tables.claims.callers_wait() {
        return None;
    }
    let version = leveled.versions.current();
    let selection = choose(&leveled.view(&version, &tables.claims))?;
    let claimed = leveled.versions.claim(&mut tables, selection.claim())?;
    let Leveled { shared, versions, .. } = &**leveled;
    Some(Box::new(MergeJob::new(shared, versions, claimed, selection)))
}
