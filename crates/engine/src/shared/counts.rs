//! Counters of a store since it was opened. Each is counted where the thing happens, without a
//! lock.

use thermocline_foundation::Counter;
use thermocline_foundation::sync::atomic::AtomicU64;

/// Counters since opening.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub gets: Counter,
    pub memtable_hits: Counter,
    pub scans: Counter,
    pub writes: Counter,
    /// Encoded batches, what amplification is counted against.
    pub written_bytes: Counter,
    pub ingested_bytes: Counter,
    pub flushed_bytes: Counter,
    pub compactions: Counter,
    pub compacted_in_bytes: Counter,
    pub compacted_out_bytes: Counter,
    /// Tables that changed level without being rewritten.
    pub moves: Counter,
    /// Tables that changed tier.
    pub migrations: Counter,
    /// Look-ups that the fast tier answered, memory above it included.
    pub fast_reads: Counter,
    /// Look-ups that a table answered.
    pub slow_reads: Counter,
    /// Look-ups that found nothing on either tier, not even a tombstone.
    pub absent_reads: Counter,
    pub demotions: DemotionCounts,
    /// Time writers waited for memory, in nanoseconds.
    pub stalled_ns: Counter,
    /// When the database was opened, in the clock's nanoseconds.
    pub opened_ns: AtomicU64,
}

/// What demotions did.
#[derive(Debug, Default)]
pub(crate) struct DemotionCounts {
    /// Those that ended, not those that gave up.
    pub ended: Counter,
    /// From the choice of a range to the edit, in nanoseconds; two at a time count twice.
    pub elapsed_ns: Counter,
    /// Records that left the fast tier for tables.
    pub dirty: Counter,
    /// Copies that left with them, for tables have these.
    pub clean: Counter,
    /// Demotions that were chosen by their score.
    pub scored: Counter,
    /// Sum of these scores, in thousandths.
    pub scores: Counter,
    /// Entries of merges of all runs of a range that are not of the oldest of these.
    pub merged: Counter,
    /// Entries that such merges dropped, for newer ones replaced them or nothing was left to hide.
    pub replaced: Counter,
    /// Bytes of tables that demotions read and wrote.
    pub io_bytes: Counter,
}
