//! Which records of a range leave: older versions, tombstones, what a bulk load may replace, cold
//! ones, and in the step `Hot` hot ones. The newest version stays if it is pinned
//! (`feedback/pinning.rs`) or a clean copy. A compaction that a caller asks for takes all; for
//! space of the slow tier only tombstones and superseded versions leave.

use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::demotion::job::Demotion;
use crate::layout::hybrid::demotion::leaving::Leaving;
use crate::layout::hybrid::demotion::ranges::Purpose;
use crate::layout::hybrid::rules::fullness::EvictionStep;
use crate::table_set::table::Table;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::Planted;
use thermocline_foundation::Sequence;
use thermocline_foundation::planted;
use thermocline_index::Entry;
use thermocline_index::EntryKind;
use thermocline_index::IndexBatch;
use thermocline_popularity::Pinning;
use thermocline_table::key_hash;

/// Keys of the index that are looked at under one lock.
const BATCH_KEYS: usize = 1024;

impl Demotion {
    /// Chooses what leaves; the range ends early where that is enough for one demotion.
    pub(super) fn choose_leaving(&mut self, fast: &FastTier) {
        let pinning = fast.pinning();
        // Hot ones make up what cold ones do not come to.
        let mut hot_bytes = match self.plan.purpose {
            Purpose::Room(EvictionStep::Hot) => {
                self.plan.bytes_max.saturating_sub(self.cold_bytes(fast, &pinning))
            }
            _ => 0,
        };
        let mut leaving = Leaving::default();
        let mut bytes = 0;
        let mut batch = IndexBatch::new();
        let (mut from, to) = self.plan.selection.range.bounds();
        let mut last;
        loop {
            batch.clear();
            fast.index.ascend(from, to, BATCH_KEYS, &mut batch);
            for (key, versions) in batch.iter() {
                let Some(newest) = versions.first() else { continue };
                let mut stays = self.stays(fast, &pinning, key, newest);
                if stays && newest.has_slot() && hot_bytes > 0 {
                    hot_bytes = hot_bytes.saturating_sub(u64::from(newest.record_bytes));
                    stays = false;
                }
                let count = match planted(Planted::OlderVersionStays) {
                    true => 1,
                    false => versions.len(),
                };
                let leaves = || versions[..count].iter().skip(usize::from(stays)).copied();
                bytes += leaves().map(|entry| u64::from(entry.record_bytes)).sum::<u64>();
                if leaves().next().is_some() {
                    leaving.push(key, leaves());
                }
            }
            let Some(key) = batch.last_key() else { break };
            let enough = bytes >= self.plan.bytes_max && self.plan.ingested == Sequence::ZERO;
            if batch.is_end() {
                break;
            }
            if enough {
                self.cut_after = Some(key.to_vec());
                break;
            }
            last = key.to_vec();
            from = Bound::Excluded(&last);
        }
        self.leaving = Arc::new(leaving);
        self.leaving_bytes = bytes;
        self.chosen = true;
    }

    /// Bytes of cold records of the range, as far as they are of use.
    fn cold_bytes(&self, fast: &FastTier, pinning: &Pinning) -> u64 {
        let (from, to) = self.plan.selection.range.bounds();
        let mut bytes = 0;
        fast.index.for_each(from, to, |key, entry| {
            if !self.stays(fast, pinning, key, &entry) {
                bytes += u64::from(entry.record_bytes);
            }
        });
        bytes
    }

    /// The newest record of a key stays, if hot ones do. Copies of what tables have stay too: a
    /// sweep takes their slots for nothing.
    fn stays(&self, fast: &FastTier, pinning: &Pinning, key: &[u8], newest: &Entry) -> bool {
        let kept = planted(Planted::CopyStaysUnderIngest) && !newest.has_slot();
        let is_loaded_over = !kept && self.is_loaded_over(key, newest.sequence);
        if self.plan.purpose == Purpose::Compaction
            || newest.kind != EntryKind::Put
            || is_loaded_over
        {
            return false;
        }
        newest.clean || self.plan.purpose == Purpose::Space || fast.is_pinned(pinning, key)
    }

    /// A bulk load that is merged may have a newer version of `key` than that of `sequence`.
    fn is_loaded_over(&self, key: &[u8], sequence: Sequence) -> bool {
        let may_have = |table: &Arc<Table>| {
            table.meta.ingested_at > Some(sequence)
                && table.meta.overlaps(Some(key), Some(key))
                && table.may_have(key, key_hash(key))
        };
        self.loads.iter().any(may_have)
    }
}
