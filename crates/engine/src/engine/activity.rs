//! What a store is doing at this moment: its queues, and what holds writers up.
//!
//! All of it is read from numbers that the parts keep anyway; no lock is held for longer than a
//! length is read. The totals of delays and stalls are in `totals.rs`.
//!
//! Threads: any.

use crate::engine::Engine;
use crate::error::ErrorKind;
use crate::layout::LayoutActivity;
use crate::limits::MEMTABLES;
use crate::versions::Version;
use serde::{Deserialize, Serialize};

/// What is going on now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityStats {
    /// Full memtables whose flush is waited for or under way.
    pub frozen_memtables: u64,
    /// How many of them there can be; with as many, a writer that fills the next one waits, and
    /// with fewer where they are far larger than their share of the memory.
    pub frozen_memtables_max: u64,
    /// Tables of level 0.
    pub level0_tables: u64,
    /// Bytes of logs that no sync has covered yet.
    pub unsynced_bytes: u64,
    /// Writers in line behind the one that writes for all.
    pub waiting_writers: u64,
    /// Records that wait to be copied up to the fast tier; 0 without one of slots, as is the next.
    pub waiting_promotions: u64,
    /// Copies that memory gave up and that wait for a slot.
    pub waiting_spills: u64,
    /// Bytes a second that writers may write at present; none where nothing slows them down.
    pub write_rate_bytes: Option<u64>,
    /// Why writers are slowed down at this moment, or wait once the memtable is full, which it may
    /// be already; none where neither is so.
    pub stall_cause: Option<String>,
    /// What a background job was told that found no descriptor for a file, and that is tried again;
    /// none where they find what they need.
    pub file_shortage: Option<String>,
    /// What one was told that found no room, as of above.
    #[serde(default)]
    pub room_shortage: Option<String>,
}

impl Engine {
    /// See [`ActivityStats`].
    pub fn activity(&self, state: &Version) -> ActivityStats {
        let frozen_memtables = state.frozen.len() as u64;
        let level0_tables = state.levels.level(0).len() as u64;
        let LayoutActivity { promotions, spills } = self.layout.activity();
        ActivityStats {
            frozen_memtables,
            frozen_memtables_max: MEMTABLES - 1,
            level0_tables,
            unsynced_bytes: self.front.unsynced_bytes(),
            waiting_writers: self.front.waiting_writers(),
            waiting_promotions: promotions,
            waiting_spills: spills,
            write_rate_bytes: self.shared.write_throttle.rate(),
            stall_cause: self.stall_cause(state, level0_tables),
            file_shortage: self.shared.jobs.shortage.reason(ErrorKind::TooManyOpenFiles),
            room_shortage: self.shared.jobs.shortage.reason(ErrorKind::OutOfSpace),
        }
    }

    fn stall_cause(&self, state: &Version, level0_tables: u64) -> Option<String> {
        if self.shared.latch.reason().is_some() {
            return Some("the store is read-only".to_owned());
        }
        let memtable_bytes = self.shared.settings.division().memtable_bytes;
        if !state.has_room_for_memtable(state.active.bytes(), memtable_bytes) {
            return Some(match state.frozen.len() {
                1 => "a full memtable waits for its flush".to_owned(),
                frozen => format!("{frozen} full memtables wait for their flush"),
            });
        }
        self.shared.write_throttle.rate()?;
        Some(self.layout.stall_cause(level0_tables))
    }
}
