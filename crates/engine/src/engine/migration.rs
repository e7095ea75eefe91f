//! Migration: tables that lie on another tier than placement wants them on are moved, one at a
//! time.

use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::shared::Shared;
use crate::versions::Versions;
use std::sync::Arc;
use thermocline_device::{ErrorKind, TierIndex};
use thermocline_foundation::FileNumber;
use thermocline_foundation::sync::atomic::AtomicBool;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;

/// The migrations of a store, of which one runs at a time.
#[derive(Debug)]
pub(super) struct Migrations {
    shared: Arc<Shared>,
    versions: Arc<Versions>,
    /// One runs, or failed and is not tried again before the next open.
    are_held: AtomicBool,
}

impl Migrations {
    pub fn new(shared: &Arc<Shared>, versions: &Arc<Versions>) -> Self {
        let (shared, versions) = (Arc::clone(shared), Arc::clone(versions));
        Self { shared, versions, are_held: AtomicBool::new(false) }
    }

    /// The move of a table, claimed.
    pub fn plan(self: &Arc<Self>) -> Option<Box<dyn Job>> {
        if !self.shared.placement_changed.load(Relaxed) || self.are_held.swap(true, Relaxed) {
            return None;
        }
        self.shared.placement_changed.store(false, Relaxed);
        let next = self.shared.files.misplaced().into_iter().next();
        match next.or_else(|| self.fetch()) {
            Some((number, tier)) => {
                Some(Box::new(Migration { migrations: Arc::clone(self), number, tier }))
            }
            None => {
                self.are_held.store(false, Relaxed);
                None
            }
        }
    }

    /// A table to bring to a faster tier while nothing is written: the room that a backlog needs
    /// would be filled and emptied again and again otherwise.
    fn fetch(&self) -> Option<(FileNumber, TierIndex)> {
        let state = self.versions.current();
        if !state.frozen.is_empty() || self.versions.tables().claims.has_levels() {
            // A merge that runs tells of its own change before its claim ends.
            self.shared.placement_changed.store(true, Relaxed);
            return None;
        }
        // Records in it are a flush to come, after which this is asked again.
        if state.active.count() > 0 {
            return None;
        }
        self.shared.files.worth_fetching().into_iter().next()
    }
}

/// Moves a table to the tier that placement wants it on.
#[derive(Debug)]
struct Migration {
    migrations: Arc<Migrations>,
    number: FileNumber,
    tier: TierIndex,
}

impl Job for Migration {
    fn name(&self) -> &'static str {
        "migration"
    }

    fn step(&mut self) -> Result<Step> {
        let Migrations { shared, are_held, .. } = &*self.migrations;
        match shared.files.migrate(self.number, self.tier, &mut |_| {}) {
            Ok(()) => shared.counts.migrations.add(1),
            // Compacted away meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Writers were faster to take the room, or the disk is fuller than the tier. The table
            // is where it was; whatever changes next asks again. So it is where no file can be
            // opened.
            Err(error)
                if matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::TooManyOpenFiles) =>
            {
                tracing::info!(%error, "a table stays on its tier for now");
                are_held.store(false, Relaxed);
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
        shared.placement_changed.store(true, Relaxed);
        are_held.store(false, Relaxed);
        Ok(Step::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{one_tier, stepped, tier};
    use crate::{Preset, Settings};

    #[test]
    fn a_move_that_finds_no_room_ends_no_others() {
        let mut settings = Settings { preset: Some(Preset::Leveled), ..one_tier() };
        settings.tiers.push(tier("/slow", 1));
        let db = stepped(&settings);
        let engine = db.engine();
        engine.versions.tables().claims.line_up();
        db.put("key", "large".repeat(1 << 18)).unwrap();
        db.flush().unwrap();
        engine.versions.tables().claims.leave_line();
        let table = Arc::clone(&engine.versions.current().levels.level(0)[0]);
        assert!(table.meta.bytes > 1 << 20, "more than the other tier has");
        let number = table.meta.number;
        let (migrations, tier) = (Arc::clone(&engine.migrations), TierIndex(1));
        assert!(!migrations.are_held.swap(true, Relaxed));
        let mut job = Migration { migrations: Arc::clone(&migrations), number, tier };
        engine.shared.placement_changed.store(false, Relaxed);
        assert_eq!(job.step().unwrap(), Step::Done);
        assert!(!engine.shared.placement_changed.load(Relaxed), "nothing has changed by it");
        assert!(!migrations.are_held.load(Relaxed), "others may move");
        assert_eq!(engine.shared.counts.migrations.get(), 0);
        db.close().unwrap();
    }
}
