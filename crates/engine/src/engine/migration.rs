//! Migration: tables that lie on another tier than placement wants them on are moved, one at a
//! time.

use crate::engine::Engine;
use crate::error::Result;
use crate::jobs::{Job, Step};
use std::sync::Arc;
use thermocline_device::{ErrorKind, TierIndex};
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

/// The move of a table, claimed.
pub(super) fn plan_migration(engine: &Arc<Engine>) -> Option<Box<dyn Job>> {
    if !engine.shared.placement_changed.load(Relaxed) || engine.migrating.swap(true, Relaxed) {
        return None;
    }
    engine.shared.placement_changed.store(false, Relaxed);
    let next = engine.shared.files.misplaced().into_iter().next();
    match next.or_else(|| fetch(engine)) {
        Some((number, tier)) => {
            Some(Box::new(Migration { engine: Arc::clone(engine), number, tier }))
        }
        None => {
            engine.migrating.store(false, Relaxed);
            None
        }
    }
}

/// A table to bring to a faster tier while nothing is written: the room that a backlog needs would
/// be filled and emptied again and again otherwise.
fn fetch(engine: &Engine) -> Option<(FileNumber, TierIndex)> {
    let state = engine.versions.current();
    if !state.frozen.is_empty() || engine.versions.tables().claims.has_levels() {
        // What runs tells of its own change before it is off the list.
        engine.shared.placement_changed.store(true, Relaxed);
        return None;
    }
    // Records in it are a flush to come, after which this is asked again.
    if state.active.count() > 0 {
        return None;
    }
    engine.shared.files.worth_fetching().into_iter().next()
}

/// Moves a table to the tier that placement wants it on.
#[derive(Debug)]
pub(super) struct Migration {
    pub engine: Arc<Engine>,
    pub number: FileNumber,
    pub tier: TierIndex,
}

impl Job for Migration {
    fn name(&self) -> &'static str {
        "migration"
    }

    fn step(&mut self) -> Result<Step> {
        match self.engine.shared.files.migrate(self.number, self.tier, &mut |_| {}) {
            Ok(()) => self.engine.shared.counts.migrations.add(1),
            // Compacted away meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Writers were faster to take the room, or the disk is fuller than the tier. The table
            // is where it was; whatever changes next asks again.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                tracing::info!(%error, "a table stays on its tier for now");
                self.engine.migrating.store(false, Relaxed);
                return Ok(Step::Done);
            }
            Err(error) => {
                // The file is where it was and nothing is lost, so writing goes on; only migrations
                // end.
                tracing::warn!(%error, "tables stay on their tiers until the next open");
                return Ok(Step::Done);
            }
        }
        // There may be more to move.
        self.engine.shared.placement_changed.store(true, Relaxed);
        self.engine.migrating.store(false, Relaxed);
        Ok(Step::Done)
    }
}
