//! What is counted over the life of a database: counters since opening, and the totals that the
//! manifest keeps.
//!
//! Each edit of the manifest has the totals of its moment, and a clean close writes one more if
//! anything was asked. So after a crash they lag by what was counted since the last edit: what
//! moves records is an edit itself, and under reads alone that is all since the last promotion that
//! got a slot, flush or demotion.

use super::Shared;
use thermocline_device::{TierIndex, TrafficTotals};
use thermocline_foundation::coding::{DecodeError, Decoder, put_varint};
use thermocline_table::{BlockClass, CacheCounts};

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
    MemoryOnly,
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

/// What was counted since opening, on its way to the totals.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Vec<u64>,
}

impl Tally {
    /// What is counted in `shared`: by callers, the block cache and the tiers.
    pub fn of(shared: &Shared) -> Self {
        let mut tally = Self { counts: vec![0; ENGINE_COUNTS] };
        let counts = &shared.counts;
        tally.set(Count::Gets, counts.gets.get());
        tally.set(Count::MemtableHits, counts.memtable_hits.get());
        tally.set(Count::Scans, counts.scans.get());
        tally.set(Count::Writes, counts.writes.get());
        tally.set(Count::WrittenBytes, counts.written_bytes.get());
        tally.set(Count::IngestedBytes, counts.ingested_bytes.get());
        tally.set(Count::Compactions, counts.compactions.get());
        tally.set(Count::Moves, counts.moves.get());
        tally.set(Count::Migrations, counts.migrations.get());
        tally.set(Count::DelayedNs, shared.write_throttle.delayed_ns.get());
        tally.set(Count::StalledNs, counts.stalled_ns.get());
        for (class, hits_at, misses_at) in [
            (BlockClass::Data, Count::DataHits, Count::DataMisses),
            (BlockClass::Index, Count::IndexHits, Count::IndexMisses),
            (BlockClass::Filter, Count::FilterHits, Count::FilterMisses),
        ] {
            let CacheCounts { hits, misses } = shared.cache.counts(class);
            tally.set(hits_at, hits);
            tally.set(misses_at, misses);
        }
        tally.set(Count::OpenNs, shared.open_ns());
        tally.set(Count::CompactedInBytes, counts.compacted_in_bytes.get());
        tally.set(Count::CompactedOutBytes, counts.compacted_out_bytes.get());
        for tier in shared.files.tiers() {
            let TrafficTotals { reads, read_bytes, writes, written_bytes, syncs } =
                tier.traffic_total();
            tally.counts.extend([reads, read_bytes, writes, written_bytes, syncs]);
        }
        tally
    }

    /// Sets one of the engine's counts.
    pub fn set(&mut self, count: Count, value: u64) {
        self.counts[count as usize] = value;
    }

    /// The totals, over what was counted `before` this opening.
    pub fn over(&self, before: &Totals) -> Totals {
        before.plus(&self.counts)
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
