//! Which compaction is begun next.

use super::Leveled;
use crate::compaction::leveled::choose;
use crate::compaction::merge_job::MergeJob;
use crate::compaction::overwrites::Look;
use crate::compaction::reclaim::{Reclaim, reclaim};
use crate::compaction::selection::Selection;
use crate::compaction::view::{View, Writing};
use crate::jobs::Job;
use crate::table_set::TableSet;
use crate::table_set::claims::Claims;
use crate::versions::Version;
use std::sync::Arc;

impl Leveled {
    /// What a chooser looks at.
    pub(super) fn view<'a>(&'a self, version: &'a Version, claims: &'a Claims) -> View<'a> {
        let writing = match version.is_calm(self.shared.rests()) {
            false => Writing::GoesOn,
            true if self.shared.counts.writes.get() == 0 => Writing::NotBegun,
            true => Writing::Over,
        };
        let oldest_read = self.versions.oldest_read();
        let settings = &self.shared.settings;
        View { levels: &version.levels, claims, settings, writing, oldest_read }
    }
}

/// The most useful compaction, claimed; none while a caller waits for tables.
pub(super) fn plan_compaction(leveled: &Arc<Leveled>) -> Option<Box<dyn Job>> {
    let mut tables = leveled.versions.tables();
    if tables.claims.callers_wait() {
        return None;
    }
    let version = leveled.versions.current();
    let view = leveled.view(&version, &tables.claims);
    let begin = |tables: &mut TableSet, selection: Selection| {
        let claimed = leveled.versions.claim(tables, selection.claim())?;
        let Leveled { shared, versions, .. } = &**leveled;
        Some(Box::new(MergeJob::new(shared, versions, claimed, selection)) as _)
    };
    if let Some(selection) = choose(&view) {
        return begin(&mut tables, selection);
    }
    let Reclaim { selection, look, .. } = to_reclaim(leveled, view);
    if let Some(selection) = selection {
        return begin(&mut tables, selection);
    }
    let look = Look::begin(&version.levels, look?)?;
    Some(Box::new(look))
}

/// A merge that gives space back, or a look at a table that may be worth one. Where a merge waits
/// for a snapshot, its end wakes the planner.
fn to_reclaim(leveled: &Leveled, mut view: View<'_>) -> Reclaim {
    loop {
        let found = reclaim(&view);
        if found.selection.is_some() || !found.waits_for_snapshot {
            return found;
        }
        leveled.versions.await_end_of_snapshot();
        let oldest_read = leveled.versions.oldest_read();
        if oldest_read == view.oldest_read {
            return found;
        }
        view.oldest_read = oldest_read;
    }
}

#[cfg(test)]
mod tests;
