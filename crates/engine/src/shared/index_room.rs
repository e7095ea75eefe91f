//! Room of the index in persistent memory: whether records that come can be entered later.
//!
//! ```text
//!   room of the region       what is left for deletes and for merges, which make room: 1/64
//!     - its entries now       records in memtables         } not entered yet, each of which
//!     - what arenas may take  records of tables that wait  } may need an entry of its own
//!                             records that come              refused where nothing is left
//! ```
//! 1. What was acknowledged has room, so what is left for deletes is there when they come: batches
//!    and bulk loads with new records are refused before.
//! 2. What an entry takes is an average of those that there are. Where keys turn out longer, tables
//!    may wait for room; then new records are refused too.
//!
//! Threads: any. The lane of the index measures; between two looks what was entered counts twice.

use crate::error::{Error, ErrorKind, Result};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// No index, or all the room there may be.
const WITHOUT_END: u64 = u64::MAX;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct IndexRoom {
    /// Bytes for entries of what is not entered; [`WITHOUT_END`] where there is no index.
    bytes: AtomicU64,
    entry_bytes: AtomicU64,
    in_memtables: AtomicU64,
    waiting: AtomicU64,
}

impl Default for IndexRoom {
    fn default() -> Self {
        Self {
            bytes: AtomicU64::new(WITHOUT_END),
            entry_bytes: AtomicU64::new(0),
            in_memtables: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }
}

impl IndexRoom {
    /// There are `bytes` for entries of `entry_bytes` each.
    pub fn measured(&self, bytes: u64, entry_bytes: u64) {
        self.entry_bytes.store(entry_bytes, Relaxed);
        self.bytes.store(bytes.min(WITHOUT_END - 1), Relaxed);
    }

    /// So many records are in tables that wait.
    pub fn set_waiting(&self, records: u64) {
        self.waiting.store(records, Relaxed);
    }

    /// Records are about to be in a memtable.
    pub fn came(&self, records: u64) {
        self.in_memtables.fetch_add(records, Relaxed);
    }

    /// A memtable with so many is in tables, which wait.
    pub fn flushed(&self, records: u64) {
        let left = |before: u64| Some(before.saturating_sub(records));
        let _ = self.in_memtables.fetch_update(Relaxed, Relaxed, left);
    }

    /// There is room for `records` more.
    pub fn has_room(&self, records: u64) -> bool {
        let bytes = self.bytes.load(Relaxed);
        let known = self.in_memtables.load(Relaxed).saturating_add(self.waiting.load(Relaxed));
        let wanted = known.saturating_add(records).saturating_mul(self.entry_bytes.load(Relaxed));
        bytes == WITHOUT_END || wanted <= bytes
    }

    /// Refuses `records` that are no deletes where there may be no room for them.
    pub fn require(&self, records: u64) -> Result<()> {
        if self.has_room(records) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::OutOfSpace,
            "persistent memory has no room for more entries of the index; deletes are taken and \
             make room, or make the index anew in a larger region (repair --rebuild-index --region \
             PATH:SIZE)",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_from_their_acknowledgement_until_they_are_entered() {
        let room = IndexRoom::default();
        room.came(1 << 40);
        assert!(room.require(u64::MAX).is_ok(), "there is no index");
        room.flushed(1 << 40);
        room.measured(1000, 10);
        assert!(room.has_room(100) && !room.has_room(101));
        room.came(60);
        assert!(room.has_room(40) && !room.has_room(41));
        // A flush: the tables wait before the memtable goes.
        room.set_waiting(60);
        assert_eq!(room.require(1).unwrap_err().kind(), ErrorKind::OutOfSpace);
        room.flushed(60);
        assert!(room.has_room(40) && !room.has_room(41));
        // Entered.
        room.measured(400, 10);
        room.set_waiting(0);
        assert!(room.has_room(40) && !room.has_room(41));
        room.flushed(1);
        assert!(room.has_room(40), "there were none");
    }
}
