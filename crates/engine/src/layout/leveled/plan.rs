//! Which compaction is begun next.

use crate::compaction::leveled;
use crate::compaction::leveled::Writing;
use crate::jobs::Job;
use crate::layout::leveled::Leveled;
use crate::layout::leveled::compaction::Compaction;
use std::sync::Arc;
pub(super) fn plan_compaction(leveled: &Arc<Leveled>) -> Option<Box<dyn Job>> {
    let mut tables = leveled.versions.tables();
    if tables.claimants > 0 {
        return None;
    }
    let state = leveled.versions.current();
    let writing = match state.is_calm() {
        false => Writing::GoesOn,
        true if leveled.shared.counts.writes.get() == 0 => Writing::NotBegun,
        true => Writing::Over,
    };
    let pick = leveled::pick(&state.levels, &tables.claims, &leveled.shared.settings, writing)?;
    pick.claim_tables();
    tables.claims.push(pick.claim.clone());
    Some(Box::new(Compaction::new(leveled, pick)))
}
