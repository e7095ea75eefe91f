//! Promotion: records that were read from the slow tier and are asked for again move up as clean
//! copies, without waiting for a compaction (beyond PrismDB, which promotes only when it merges;
//! HotRAP shows what that is worth). Where reads do not recur (`feedback/reuse.rs`) nothing moves
//! up.
//!
//! A reader offers what it read; a job takes the offers of the moment into memory, and what memory
//! gives up may get a slot (`spill.rs`). Between the read and the job the key may have been
//! written, deleted, and both merged away, so under the lock of the tables the offer is held to
//! what is there now:
//! 1. the index knows nothing of the key, or the very record, and
//! 2. the table that the record was read from is live, and no newer table may have the key.
//!
//! Tables never change, so the record is then the newest below the memtables. A newer version in a
//! memtable does no harm: it is found first, and replaces the copy when it is flushed. Nothing
//! durable changes: after a restart the copy is where it was before, in tables.

use crate::environment::experiments::Promotion;
use crate::error::Result;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::copies::bounded_queue::{
    BoundedQueue, Queued, RECORD_OVERHEAD_BYTES, Waits,
};
use crate::layout::hybrid::feedback::Feedback;
use crate::layout::hybrid::rules::promotion::first_read_is_enough;
use crate::layout::hybrid::single_step::Work;
use crate::locator::Locator;
use crate::table_set::levels::Levels;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::{Counter, FileNumber, Planted, planted};
use thermocline_index::Entry;
use thermocline_table::{RecordKind, Trailer, key_hash};

/// Bytes that a job takes up under one lock.
const BATCH_BYTES: u64 = 1 << 20;

/// A record that a table has, and a reader or a merge met there.
#[derive(Debug)]
pub(crate) struct Offer {
    pub key: Bytes,
    pub trailer: Trailer,
    pub value: Bytes,
    pub table: FileNumber,
}

impl Waits for Offer {
    fn bytes(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64 + RECORD_OVERHEAD_BYTES
    }
}

/// What waits to move up.
#[derive(Debug)]
pub(crate) struct Promotions {
    /// What is too much is only read again.
    pub offers: BoundedQueue<Offer>,
    /// A job is at it.
    pub running: AtomicBool,
    /// The first read is reason enough, for a slot too.
    pub slot_at_first_read: AtomicBool,
    /// Records that moved up.
    pub records: Counter,
}

impl Promotions {
    /// Nothing waits; memory has `memory_bytes`.
    pub fn new(memory_bytes: u64) -> Self {
        Self {
            offers: BoundedQueue::new(memory_bytes),
            running: AtomicBool::new(false),
            slot_at_first_read: AtomicBool::new(false),
            records: Counter::default(),
        }
    }

    /// The oldest offers, in key order, one a key.
    fn take(&self) -> Vec<Offer> {
        let mut batch = self.offers.take(BATCH_BYTES);
        batch.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| b.trailer.cmp(&a.trailer)));
        batch.dedup_by(|a, b| a.key == b.key);
        batch
    }
}

impl Hybrid {
    /// Looks at a record that was just read from `table` and offers it, if it is asked for often
    /// enough to be up.
    pub fn consider_promotion(
        &self,
        key: &[u8],
        hash: u64,
        (trailer, value): (Trailer, &Bytes),
        table: FileNumber,
    ) {
        if trailer.kind() != RecordKind::Put {
            return;
        }
        if let Some(buckets) = &self.fast.feedback.buckets {
            // After an opening nothing is known of what tables have before it is merged. What reads
            // ask for there, which merges for their sake look for, they tell.
            buckets.insert_slow(key, hash, (key.len() + value.len()) as u32);
        }
        let was_tracked = self.fast.popularity.value(hash).is_some();
        self.fast.popularity.touch(hash, false);
        if self.fast.feedback.table_reads.note_read(was_tracked) {
            // Where there are reads alone, no other thread makes these looks.
            self.fast.lend_memory(self.versions.cell());
            self.fast.judge_tables();
            self.fast.judge_promotions();
            self.wake_at_end_of_epoch();
        }
        let wanted = self.fast.rules.promotion == Promotion::Read
            && (was_tracked && self.fast.feedback.table_reads.reads_recur()
                || self.fast.promotions.slot_at_first_read.load(Relaxed));
        if wanted {
            // A copy, so that the offer does not keep the record's block alive.
            let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            let offer = Offer { key, trailer, value, table };
            if self.fast.promotions.offers.add(offer) == (Queued::Waits { wake: true }) {
                self.shared.jobs.wake();
            }
        }
    }
}

/// Moves one batch of offers up.
pub(crate) const PROMOTION: Work =
    Work { name: "promotion", claim: |fast| &fast.promotions.running, run: Hybrid::promote };

impl Hybrid {
    pub(crate) fn promote(&self) -> Result<()> {
        self.fast.lend_memory(self.versions.cell());
        self.fast.judge_promotions();
        let mut offers = self.fast.promotions.take();
        offers.retain(|offer| self.fast.may_take(offer));
        if offers.is_empty() {
            return Ok(());
        }
        // Asking filters may read from the slow tier: not while edits wait for the lock.
        let asked = Arc::clone(&self.versions.current().levels);
        let newest: Vec<_> =
            offers.iter().map(|offer| is_newest(&self.locator, &asked, offer)).collect();
        let tables = self.versions.tables();
        let levels = Arc::clone(&self.versions.current().levels);
        let newest = match Arc::ptr_eq(&levels, &asked) {
            true => newest,
            false => offers.iter().map(|offer| is_newest(&self.locator, &levels, offer)).collect(),
        };
        let taken = offers.iter().zip(newest).filter(|(offer, is_newest)| {
            planted(Planted::StalePromotion) || *is_newest && self.fast.may_take(offer)
        });
        let taken: Vec<_> = taken.map(|(offer, _)| offer).collect();
        let entries: Vec<_> = taken
            .iter()
            .map(|offer| (&offer.key, Entry::in_memory(offer.trailer.sequence())))
            .collect();
        self.fast.index.insert_many(&entries, |_, _| {});
        drop(tables);
        for offer in &taken {
            self.fast.remember(&offer.key, offer.trailer.sequence(), &offer.value);
            self.fast.popularity.set_location(key_hash(&offer.key), true);
        }
        self.fast.promotions.records.add(taken.len() as u64);
        Ok(())
    }
}

/// The offer's table is live, and no table that may be newer may have the key. A table that cannot
/// be asked may have it.
fn is_newest(locator: &Locator, levels: &Levels, offer: &Offer) -> bool {
    let hash = key_hash(&offer.key);
    let first = locator
        .candidates(levels, &offer.key)
        .find(|(_, table)| table.meta.number == offer.table || table.may_have(&offer.key, hash));
    first.is_some_and(|(_, table)| table.meta.number == offer.table)
}

impl FastTier {
    /// Nothing is known of the key up here, or the same record, which memory has given up.
    fn may_take(&self, offer: &Offer) -> bool {
        let sequence = offer.trailer.sequence();
        self.index.get(&offer.key).is_none_or(|entry| {
            entry == Entry::in_memory(sequence) && !self.cache.contains(&offer.key, sequence)
        })
    }

    /// Judges anew whether the first read of a record is reason enough.
    fn judge_promotions(&self) {
        let Feedback { copies, slot_reads, table_reads, .. } = &self.feedback;
        let recur = slot_reads.reads_recur() && table_reads.reads_recur();
        let copies_pay = recur && copies.get_slots();
        let asked = self.popularity.histogram().on_fast_total();
        let experiments = self.rules.experiments;
        let for_slots = first_read_is_enough(experiments, copies_pay, self.index.len(), asked);
        self.promotions.slot_at_first_read.store(for_slots, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::hybrid::Variant;
    use crate::support::{hybrid, stepped};
    use crate::{Db, HybridSettings, Settings};

    /// A store with one record in a table, which was read often enough to be offered, and no job
    /// that moves it up but the test's own.
    fn with_offer() -> Db {
        let db = stepped(&hybrid());
        db.put("key", "old").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let promotions = &db.engine().hybrid().fast.promotions;
        PROMOTION.hold(&db.engine().hybrid().fast);
        for _ in 0..2 {
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        }
        assert_eq!(promotions.offers.len(), 1);
        db
    }

    #[test]
    fn the_first_read_is_a_reason_in_our_variant_and_never_in_the_paper_s() {
        for (variant, is_enough) in [(Variant::Tuned, true), (Variant::Paper, false)] {
            let hybrid_settings = HybridSettings { variant, ..hybrid().hybrid };
            let db = stepped(&Settings { hybrid: hybrid_settings, ..hybrid() });
            (0..100u32).for_each(|key| db.put(key.to_be_bytes(), "value").unwrap());
            db.flush().unwrap();
            db.engine().hybrid().fast.judge_promotions();
            let is_reason = db.stats().fast_tier.unwrap().slots_at_first_read;
            assert_eq!(is_reason, is_enough, "{variant:?}");
        }
    }

    fn promote(db: &Db) {
        db.engine().hybrid().promote().unwrap();
    }

    fn promoted(db: &Db) -> u64 {
        db.stats().fast_tier.unwrap().promoted_records
    }

    #[test]
    fn a_record_that_is_read_again_moves_up_as_a_clean_copy() {
        let db = with_offer();
        promote(&db);
        let fast = db.stats().fast_tier.unwrap();
        assert_eq!((fast.promoted_records, fast.records, fast.memory_records), (1, 0, 1));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        let slow_reads = db.stats().tiers[1].reads;
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(db.stats().tiers[1].reads, slow_reads);
    }

    #[test]
    fn a_record_that_was_deleted_and_whose_tombstone_is_merged_away_does_not_come_back() {
        let db = with_offer();
        db.delete("key").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        promote(&db);
        assert_eq!(db.get("key").unwrap(), None);
        assert_eq!(promoted(&db), 0);
    }

    #[test]
    fn a_record_that_was_replaced_in_a_slot_or_a_table_is_not_copied() {
        let db = with_offer();
        db.put("key", "new").unwrap();
        db.flush().unwrap();
        promote(&db);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(promoted(&db), 0);
        let db = with_offer();
        db.put("key", "new").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        promote(&db);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(promoted(&db), 0);
    }

    #[test]
    fn a_newer_version_in_memory_hides_the_copy_and_replaces_it() {
        let db = with_offer();
        db.put("key", "new").unwrap();
        promote(&db);
        assert_eq!(promoted(&db), 1);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        db.flush().unwrap();
        let fast = db.stats().fast_tier.unwrap();
        assert_eq!((fast.records, fast.memory_records), (1, 0), "no copy is left");
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    }
}
