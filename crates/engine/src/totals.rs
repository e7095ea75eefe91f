//! What is counted over the life of a database: counters since opening, and the totals that the
//! manifest keeps.
//!
//! Each edit of the manifest has the totals of its moment, and a clean close writes one more if
//! anything was asked. So after a crash they lag by what was counted since the last edit: what
//! moves records is an edit itself, and under reads alone that is all since the last promotion that
//! got a slot, flush or demotion.

use crate::state::Engine;
use thermocline_device::{TierIndex, TrafficTotals};
use thermocline_foundation::Counter;
use thermocline_foundation::coding::{DecodeError, Decoder, put_varint};
use thermocline_table::{BlockClass, CacheCounts};

/// Counters since opening.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
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
    pub demotions: DemotionMetrics,
    /// Time writers waited for memory, in nanoseconds.
    pub stalled_ns: Counter,
    /// When the database was opened, in the clock's nanoseconds.
    pub opened_ns: u64,
}

/// What demotions did.
#[derive(Debug, Default)]
pub(crate) struct DemotionMetrics {
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

impl Metrics {
    /// Nothing counted, at the time of opening.
    pub fn opened_at(opened_ns: u64) -> Self {
        Self { opened_ns, ..Self::default() }
    }
}

/// Counts of the engine, in the order of the format (`docs/formats/manifest.md`). New ones come
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    Gets,
    MemtableHits,
    Scans,
    Writes,
    WrittenBytes,
    IngestedBytes,
    Compactions,
    Moves,
    Migrations,
    DelayedNs,
    StalledNs,
    DataHits,
    DataMisses,
    IndexHits,
    IndexMisses,
    FilterHits,
    FilterMisses,
    OpenNs,
    CompactedInBytes,
    CompactedOutBytes,
    FastReads,
    SlowReads,
    AbsentReads,
    CopyReads,
    RecordHits,
    RecordMisses,
    Promoted,
    Spilled,
    Lifted,
    Dropped,
    ReplacedCopies,
    Relocated,
    DemotedDirty,
    DemotedClean,
    Demotions,
    DemotionNs,
    Scored,
    Scores,
    Merged,
    Replaced,
    IndexCopyReads,
    FailedIndexCopies,
    KeptReads,
    KeptReadBytes,
    CopySlotReads,
    UnaskedCopies,
}

/// Counts before those of the tiers.
const ENGINE_COUNTS: usize = Count::UnaskedCopies as usize + 1;
/// Counts of each tier: reads, read bytes, writes, written bytes, syncs.
const TIER_COUNTS: usize = 5;

/// All that is counted, since the database was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    counts: Vec<u64>,
}

impl Default for Totals {
    fn default() -> Self {
        Self { counts: vec![0; ENGINE_COUNTS] }
    }
}

impl Totals {
    /// How many counts the engine has, then these, then those of the tiers, all as variable-length
    /// integers. So a later version may count more.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, ENGINE_COUNTS as u64);
        self.counts.iter().for_each(|count| put_varint(out, *count));
    }

    pub fn decode(mut body: Decoder<'_>) -> Result<Self, DecodeError> {
        let engine_counts = body.varint()?;
        let mut counts = Vec::new();
        for _ in 0..engine_counts {
            let count = if body.is_empty() { 0 } else { body.varint()? };
            if counts.len() < ENGINE_COUNTS {
                counts.push(count);
            } else if body.is_empty() {
                break;
            }
        }
        counts.resize(ENGINE_COUNTS, 0);
        while !body.is_empty() {
            counts.push(body.varint()?);
        }
        Ok(Self { counts })
    }

    fn plus(&self, more: &[u64]) -> Self {
        let mut counts = self.counts.clone();
        counts.resize(counts.len().max(more.len()), 0);
        for (count, more) in counts.iter_mut().zip(more) {
            *count = count.saturating_add(*more);
        }
        Self { counts }
    }

    /// All but the time that the database was open, which passes also where nothing happens.
    pub fn without_open_time(mut self) -> Self {
        self.counts[Count::OpenNs as usize] = 0;
        self
    }

    /// One of the engine's.
    pub fn of(&self, count: Count) -> u64 {
        self.at(count as usize)
    }

    /// What a tier has served.
    pub fn traffic(&self, tier: TierIndex) -> TrafficTotals {
        let at = ENGINE_COUNTS + tier.position() * TIER_COUNTS;
        let [reads, read_bytes, writes, written_bytes, syncs] =
            [0, 1, 2, 3, 4].map(|offset| self.at(at + offset));
        TrafficTotals { reads, read_bytes, writes, written_bytes, syncs }
    }

    fn at(&self, index: usize) -> u64 {
        self.counts.get(index).copied().unwrap_or(0)
    }
}

impl Engine {
    /// Counts since the database was made.
    pub fn totals(&self) -> Totals {
        let mut counts = vec![0; ENGINE_COUNTS];
        let mut set = |count: Count, value: u64| counts[count as usize] = value;
        let metrics = &self.metrics;
        set(Count::Gets, metrics.gets.get());
        set(Count::MemtableHits, metrics.memtable_hits.get());
        set(Count::Scans, metrics.scans.get());
        set(Count::Writes, metrics.writes.get());
        set(Count::WrittenBytes, metrics.written_bytes.get());
        set(Count::IngestedBytes, metrics.ingested_bytes.get());
        set(Count::Compactions, metrics.compactions.get());
        set(Count::Moves, metrics.moves.get());
        set(Count::Migrations, metrics.migrations.get());
        set(Count::DelayedNs, self.pacing.delayed_ns.get());
        set(Count::StalledNs, metrics.stalled_ns.get());
        for (class, hits_at, misses_at) in [
            (BlockClass::Data, Count::DataHits, Count::DataMisses),
            (BlockClass::Index, Count::IndexHits, Count::IndexMisses),
            (BlockClass::Filter, Count::FilterHits, Count::FilterMisses),
        ] {
            let CacheCounts { hits, misses } = self.store.cache.counts(class);
            set(hits_at, hits);
            set(misses_at, misses);
        }
        set(Count::OpenNs, self.open_ns());
        set(Count::CompactedInBytes, metrics.compacted_in_bytes.get());
        set(Count::CompactedOutBytes, metrics.compacted_out_bytes.get());
        self.count_fast_tier(&mut set);
        for tier in self.files.tiers() {
            let TrafficTotals { reads, read_bytes, writes, written_bytes, syncs } =
                tier.traffic_total();
            counts.extend([reads, read_bytes, writes, written_bytes, syncs]);
        }
        self.totals_before.plus(&counts)
    }

    /// Those that are 0 without a fast tier of slots.
    fn count_fast_tier(&self, set: &mut impl FnMut(Count, u64)) {
        let Some(fast) = &self.fast else { return };
        let (metrics, demotions) = (&self.metrics, &self.metrics.demotions);
        set(Count::FastReads, metrics.fast_reads.get());
        set(Count::SlowReads, metrics.slow_reads.get());
        set(Count::AbsentReads, metrics.absent_reads.get());
        set(Count::CopyReads, fast.regulation.copies.read.get());
        set(Count::RecordHits, fast.cache.hits());
        set(Count::RecordMisses, fast.cache.misses());
        set(Count::Promoted, fast.promotions.records.get());
        set(Count::Spilled, fast.spill.records.get());
        set(Count::Lifted, fast.room.lifted.get());
        set(Count::Dropped, fast.room.dropped.get());
        set(Count::ReplacedCopies, fast.regulation.copies.replaced.get());
        set(Count::Relocated, fast.room.moved.get());
        set(Count::DemotedDirty, demotions.dirty.get());
        set(Count::DemotedClean, demotions.clean.get());
        set(Count::Demotions, demotions.ended.get());
        set(Count::DemotionNs, demotions.elapsed_ns.get());
        set(Count::Scored, demotions.scored.get());
        set(Count::Scores, demotions.scores.get());
        set(Count::Merged, demotions.merged.get());
        set(Count::Replaced, demotions.replaced.get());
        set(Count::IndexCopyReads, fast.copying.counts.served.get());
        set(Count::FailedIndexCopies, fast.copying.counts.failed.get());
        let kept = fast.slabs.kept_reads();
        set(Count::KeptReads, kept.reads);
        set(Count::KeptReadBytes, kept.bytes);
        set(Count::CopySlotReads, fast.regulation.copies.served.get());
        set(Count::UnaskedCopies, fast.regulation.copies.unasked.get());
    }

    /// Nanoseconds since opening.
    pub fn open_ns(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.metrics.opened_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{hybrid, stepped_environment};
    use std::path::Path;

    #[test]
    fn totals_with_fewer_or_more_counts_than_ours_keep_those_of_the_tiers() {
        let ours = ENGINE_COUNTS as u8;
        for engine_counts in [17u8, 18, ours - 1, ours, ours + 2] {
            let tier = [1, 2, 3, 4, 5];
            let body = [vec![engine_counts], vec![9; engine_counts.into()], tier.to_vec()].concat();
            let totals = Totals::decode(Decoder::new(&body)).unwrap();
            assert_eq!(totals.of(Count::DataHits), 9);
            assert_eq!(totals.of(Count::OpenNs), if engine_counts == 17 { 0 } else { 9 });
            assert_eq!(totals.of(Count::UnaskedCopies), if engine_counts < ours { 0 } else { 9 });
            let traffic = totals.traffic(TierIndex(0));
            let TrafficTotals { reads, read_bytes, writes, written_bytes, syncs } = traffic;
            assert_eq!([reads, read_bytes, writes, written_bytes, syncs], tier.map(u64::from));
        }
    }

    /// The order is that of the format: a count that changed its place would be read as another.
    #[test]
    fn counts_have_the_numbers_of_the_page() {
        let numbers = [
            (Count::Gets, 1),
            (Count::StalledNs, 11),
            (Count::OpenNs, 18),
            (Count::CompactedInBytes, 19),
            (Count::FastReads, 21),
            (Count::Promoted, 27),
            (Count::DemotedDirty, 33),
            (Count::Scored, 37),
            (Count::KeptReadBytes, 44),
            (Count::UnaskedCopies, 46),
        ];
        numbers.iter().for_each(|(count, number)| assert_eq!(*count as usize + 1, *number));
        assert_eq!(ENGINE_COUNTS, 46);
    }

    #[test]
    fn what_moved_between_the_tiers_is_told_after_reopening_too() {
        let environment = stepped_environment();
        let db = environment.create(Path::new("/home"), &hybrid()).unwrap();
        for key in 0..200u32 {
            db.put(key.to_be_bytes(), [7; 1000]).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
        for _ in 0..4 {
            (0..50u32).for_each(|key| drop(db.get(key.to_be_bytes()).unwrap()));
            db.settle().unwrap();
        }
        db.get("absent").unwrap();
        let moved = |db: &crate::Db| {
            let (stats, fast) = (db.stats(), db.stats().fast_tier.unwrap());
            let operations = stats.operations;
            [
                fast.promoted_records,
                fast.demoted_records,
                fast.fast_reads,
                fast.slow_reads,
                fast.absent_reads,
                fast.copy_reads,
                fast.demotions.ended,
                operations.compacted_out_bytes,
            ]
        };
        let before = moved(&db);
        assert!(before.iter().all(|count| *count > 0), "{before:?}");
        assert_eq!((before[1], before[4]), (200, 1));
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        assert_eq!(moved(&db), before);
        db.get("absent").unwrap();
        assert_eq!(moved(&db)[4], 2, "it goes on from there");
    }
}
