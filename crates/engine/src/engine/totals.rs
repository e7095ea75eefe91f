//! What the counters of all parts come to, as the manifest keeps it and statistics show it.

use crate::shared::totals::{Count, ENGINE_COUNTS, Totals};
use crate::state::Engine;
use thermocline_device::TrafficTotals;
use thermocline_table::{BlockClass, CacheCounts};

impl Engine {
    /// Counts since the database was made.
    pub fn totals(&self) -> Totals {
        let mut counts = vec![0; ENGINE_COUNTS];
        let mut set = |count: Count, value: u64| counts[count as usize] = value;
        let metrics = &self.counts;
        set(Count::Gets, metrics.gets.get());
        set(Count::MemtableHits, metrics.memtable_hits.get());
        set(Count::Scans, metrics.scans.get());
        set(Count::Writes, metrics.writes.get());
        set(Count::WrittenBytes, metrics.written_bytes.get());
        set(Count::IngestedBytes, metrics.ingested_bytes.get());
        set(Count::Compactions, metrics.compactions.get());
        set(Count::Moves, metrics.moves.get());
        set(Count::Migrations, metrics.migrations.get());
        set(Count::DelayedNs, self.write_throttle.delayed_ns.get());
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
        let (metrics, demotions) = (&self.counts, &self.counts.demotions);
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
        self.clock.now_ns().saturating_sub(self.counts.opened_ns)
    }
}
