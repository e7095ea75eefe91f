//! What happened in a host's directory since it was opened.
//!
//! Threads: counters that only grow, each for itself.

use serde::Serialize;
use thermocline_foundation::Counter;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NameCounts {
    /// Files that moved between tiers because of their level.
    pub moved_by_level: u64,
    /// Files that left a tier that was nearly full.
    pub moved_for_room: u64,
    /// Those of `moved_for_room` that did not wait for writers of the tier.
    pub moved_by_force: u64,
    /// Moves that failed; the files stayed.
    pub failed_moves: u64,
    /// Files that went on elsewhere because their device was full.
    pub overflowed: u64,
    /// Copies that were made on faster tiers, and copies that went.
    pub copied: u64,
    /// See `copied`.
    pub dropped_copies: u64,
    /// Tables that were made, and of these such whose level was not known then.
    pub tables: u64,
    /// See `tables`.
    pub tables_of_unknown_level: u64,
    /// Tables whose level turned out to be another one than at their creation.
    pub corrected_levels: u64,
    /// Links without a file, which are in `lost/` now.
    pub lost_links: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub moved_by_level: Counter,
    pub moved_for_room: Counter,
    pub moved_by_force: Counter,
    pub failed_moves: Counter,
    pub overflowed: Counter,
    pub copied: Counter,
    pub dropped_copies: Counter,
    pub tables: Counter,
    pub tables_of_unknown_level: Counter,
    pub corrected_levels: Counter,
    pub lost_links: Counter,
}

impl Counts {
    pub fn table_created(&self, level: Option<u8>) {
        self.tables.add(1);
        self.tables_of_unknown_level.add(u64::from(level.is_none()));
    }

    pub fn get(&self) -> NameCounts {
        NameCounts {
            moved_by_level: self.moved_by_level.get(),
            moved_for_room: self.moved_for_room.get(),
            moved_by_force: self.moved_by_force.get(),
            failed_moves: self.failed_moves.get(),
            overflowed: self.overflowed.get(),
            copied: self.copied.get(),
            dropped_copies: self.dropped_copies.get(),
            tables: self.tables.get(),
            tables_of_unknown_level: self.tables_of_unknown_level.get(),
            corrected_levels: self.corrected_levels.get(),
            lost_links: self.lost_links.get(),
        }
    }
}
