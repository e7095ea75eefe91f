//! How the capacity of tier 0 is divided: what logs and journals may take of it.
//!
//! 1. All logs together have [`LOGS_PARTS`] of [`LOGS_WHOLE`] parts of the tier at most, and a
//!    memtable is as large as its log allows. So a log grows for a batch alone that is larger.
//! 2. A journal is written afresh before it has taken its share, unless its state needs more.
//! 3. A tier that is too small for that is refused when the database is made, with the smallest
//!    capacity that works.

use super::{Preset, Settings};
use crate::error::{Error, Result};
use crate::limits::MEMTABLES;
use thermocline_device::CAPACITY_OF_DEVICE;
use thermocline_foundation::ByteSize;

/// Parts of tier 0 that all logs together may take.
const LOGS_PARTS: u64 = 5;
const LOGS_WHOLE: u64 = 32;

/// Logs that there are at once where there is room for them: the one written, those of frozen
/// memtables, the next, and retired ones kept for use as logs again.
const LOGS: u64 = MEMTABLES + 1 + RETIRED_LOGS_MAX as u64;

/// Retired logs that are kept for use as logs again.
pub(crate) const RETIRED_LOGS_MAX: usize = 2;

/// What a log takes beside the records of its memtable, of which it also takes a 32nd more: its
/// header, the page of its last record and those of its end.
const LOG_ENDS_BYTES: u64 = 5 * PAGE_BYTES;
const PAGE_BYTES: u64 = 4 << 10;

/// Shares of the fast tier that the journals may grow to, and bytes that each may at least and at
/// most. A file of a table is in the map twice at least, so it has more where tables lie there.
const MANIFEST_SHARE: u64 = 128;
const MAP_SHARE: u64 = 256;
const MAP_SHARE_LEVELED: u64 = 64;
const JOURNAL_BYTES_MIN: u64 = 64 << 10;
const MANIFEST_BYTES_MAX: u64 = 9 << 20;
const MAP_BYTES_MAX: u64 = 1 << 20;

/// What a file takes of the map, and how many maps there are while one is written afresh.
const MAP_ENTRY_BYTES: u64 = 24;
const MAPS: u64 = 2;

/// Share of tier 0 that the map may need for tables as many as the tiers have room for.
const TABLES_IN_MAP_SHARE: u64 = 2;

/// Bytes of the batches of a group at most, for its leader's caller waits for all of it, and groups
/// that a memtable takes at least.
const GROUP_BYTES_MAX: u64 = 1 << 20;
const GROUPS_MIN: u64 = 4;

impl Settings {
    fn tier0_bytes(&self) -> u64 {
        self.tiers.first().map_or(u64::MAX, |tier| tier.capacity.0)
    }

    /// Bytes of a log for a memtable of `memtable_bytes`, unless that is one batch which alone is
    /// more. An entry's overhead in the memtable is more than a record's header in the log;
    /// checksums and page headers add 2 %. Groups that are written side by side leave up to half of
    /// it empty.
    fn log_bytes_for(&self, memtable_bytes: u64) -> u64 {
        let bytes = self.log_copies() * memtable_bytes;
        (bytes + bytes / 32).next_multiple_of(64 << 10)
    }

    fn log_copies(&self) -> u64 {
        if self.has_parallel_log() { 2 } else { 1 }
    }

    /// Bytes of a log where tier 0 is no bound.
    pub(super) fn full_log_bytes(&self) -> u64 {
        self.log_bytes_for(self.memtable_bytes_wanted())
    }

    /// Logs of full memtables that tier 0 never has more of.
    pub(super) fn full_logs_bytes(&self) -> u64 {
        self.full_log_bytes() * LOGS
    }

    /// Bytes that one log may take of tier 0.
    fn log_share_bytes(&self) -> u64 {
        let share = self.tier0_bytes() / LOGS_WHOLE * LOGS_PARTS / self.logs_max();
        share / PAGE_BYTES * PAGE_BYTES
    }

    /// Bytes reserved for a log: a full memtable's.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.full_log_bytes().min(self.log_share_bytes())
    }

    /// What one memtable may take: its share of the memory budget, or what a log has room for.
    pub(super) fn memtable_bytes(&self) -> u64 {
        let wanted = self.memtable_bytes_wanted();
        let share = self.log_share_bytes();
        if self.has_no_log() || self.log_bytes_for(wanted) <= share {
            return wanted;
        }
        let fits = share.saturating_sub(LOG_ENDS_BYTES) / self.log_copies();
        wanted.min(fits - fits / 32)
    }

    /// Bytes of the batches that a group may have where it has several. A log must have room for
    /// it: only one batch alone may be larger.
    pub(crate) fn group_bytes(&self) -> u64 {
        (self.memtable_bytes() / GROUPS_MIN).min(GROUP_BYTES_MAX)
    }

    /// Logs that there are at once (`front/log_pool.rs`). Where records want the fast tier, or it
    /// is small, it is one for each memtable, and a writer that fills the last may have to wait
    /// until a log is made anew.
    pub(crate) fn logs_max(&self) -> u64 {
        match self.preset() {
            Preset::Leveled | Preset::Indexed => {
                let fit = self.tier0_bytes() / LOGS_WHOLE * LOGS_PARTS / self.full_log_bytes();
                fit.clamp(MEMTABLES, LOGS)
            }
            Preset::Hybrid => MEMTABLES,
        }
    }

    /// Bytes that all logs may take of a fast tier that records want.
    pub(crate) fn logs_bytes(&self) -> u64 {
        self.logs_max() * self.log_bytes()
    }

    /// Bytes to which the manifest may grow before it is written afresh: what it takes, tables and
    /// records cannot. Its state is a bit for each slot, and so with the smallest slots half of
    /// that.
    pub(crate) fn manifest_bytes(&self) -> u64 {
        (self.tier0_bytes() / MANIFEST_SHARE).clamp(JOURNAL_BYTES_MIN, MANIFEST_BYTES_MAX)
    }

    /// The same for the file map, of which a file has some twenty bytes.
    pub(crate) fn map_bytes(&self) -> u64 {
        let share = match self.preset() {
            Preset::Leveled | Preset::Indexed => MAP_SHARE_LEVELED,
            Preset::Hybrid => MAP_SHARE,
        };
        (self.tier0_bytes() / share).clamp(JOURNAL_BYTES_MIN, MAP_BYTES_MAX)
    }

    /// Tables that the tiers have room for where tier 0 has so many bytes. A tier that is as large
    /// as its device does not count.
    fn tables_max(&self, tier0_bytes: u64) -> u64 {
        let others = self.tiers.iter().skip(1).map(|tier| tier.capacity.0);
        let capacities = std::iter::once(tier0_bytes).chain(others);
        let known = capacities.filter(|bytes| *bytes < CAPACITY_OF_DEVICE);
        known.fold(0, u64::saturating_add) / self.table_size.0
    }

    /// Bytes of tier 0 at least, where it has so many.
    fn least_tier0_bytes(&self, tier0_bytes: u64) -> u64 {
        let entry_bytes = MAP_ENTRY_BYTES * MAPS * TABLES_IN_MAP_SHARE;
        self.tables_max(tier0_bytes).saturating_mul(entry_bytes)
    }

    /// Refuses a tier 0 that the map would outgrow, whose files are all those that the tiers have
    /// room for: a database may fill them.
    pub(crate) fn check_capacities(&self) -> Result<()> {
        let has = self.tier0_bytes();
        if has >= self.least_tier0_bytes(has) {
            return Ok(());
        }
        // A larger tier 0 has room for more tables, by far fewer than its map then has room for.
        let mut works = has;
        while works < self.least_tier0_bytes(works) {
            works = self.least_tier0_bytes(works).next_multiple_of(1 << 20);
        }
        Err(Error::invalid(format!(
            "the capacity of tier 0 is {}, too little for the names of {} tables of {}, for which \
             the tiers have room; {} is the smallest that works, or raise table_size",
            ByteSize(has),
            self.tables_max(has),
            self.table_size,
            ByteSize(works)
        )))
    }
}
