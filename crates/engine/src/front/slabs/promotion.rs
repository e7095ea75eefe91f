//! Promotion: records that were read from the slow tier and are asked for again move up as clean
//! copies, without waiting for a compaction (beyond PrismDB, which promotes only when it merges;
//! HotRAP shows what that is worth).
//!
//! A reader offers what it read; a job writes the offers of the moment into slots. Between the read
//! and the edit the key may have been written, deleted, and both merged away, so under the lock of
//! the tables the offer is held to what is there now:
//! 1. the index knows nothing of the key, and
//! 2. the table that the record was read from is live, and no newer table may have the key.
//!
//! Tables never change, so the record is then the newest below the memtables. A newer version in a
//! memtable does no harm: it is found first, and replaces the copy when it is flushed.

use super::Arrival;
use crate::error::Result;
use crate::hybrid_settings::Promotion;
use crate::jobs::{Job, Step};
use crate::manifest::Edit;
use crate::state::Engine;
use crate::table_set::levels::Levels;
use crate::table_set::table::Table;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::{Counter, FileNumber, Planted, planted};
use thermocline_slab::SlotAddress;
use thermocline_table::{Probe, RecordKind, Trailer, key_hash};

/// Bytes of offers that wait, at most: more is only read again.
pub(crate) const WAITING_BYTES_MAX: u64 = 8 << 20;
/// Bytes that a job moves up with one edit.
const BATCH_BYTES: u64 = 1 << 20;
/// Share of the fast tier's room that a job takes at most: less than what is kept free.
const BATCH_SHARE: u64 = 64;
/// Bytes that wake a worker.
const WAKE_BYTES: u64 = 128 << 10;

/// While more than one in so many records of the fast tier has not been asked for, the first read
/// moves a record up; afterwards the second.
const UNASKED_SHARE: u64 = 7;

/// A record that a table has, and a reader or a merge met there.
#[derive(Debug)]
pub(crate) struct Offer {
    pub key: Bytes,
    pub trailer: Trailer,
    pub value: Bytes,
    pub table: FileNumber,
}

impl Offer {
    fn bytes(&self) -> u64 {
        (self.key.len() + self.value.len()) as u64
    }
}

/// What waits to move up.
#[derive(Debug, Default)]
pub(crate) struct Promotions {
    offers: Mutex<Vec<Offer>>,
    waiting_bytes: AtomicU64,
    /// A job is at it.
    pub running: AtomicBool,
    /// There was no room, and nothing has left since.
    blocked: AtomicBool,
    /// The first read is reason enough.
    pub at_first_read: AtomicBool,
    /// Records that moved up.
    pub records: Counter,
}

impl Promotions {
    /// Something waits, and not for room.
    pub fn are_due(&self) -> bool {
        self.waiting_bytes.load(Relaxed) > 0 && !self.blocked.load(Relaxed)
    }

    /// No more offers are taken for now.
    pub fn is_full(&self) -> bool {
        self.waiting_bytes.load(Relaxed) + BATCH_BYTES > WAITING_BYTES_MAX
    }

    /// Records have left: there may be room.
    pub fn unblock(&self) {
        self.blocked.store(false, Relaxed);
    }

    /// Takes an offer unless too many wait; true where a worker should be told.
    pub fn add(&self, offer: Offer) -> bool {
        let bytes = offer.bytes();
        if self.waiting_bytes.load(Relaxed) + bytes > WAITING_BYTES_MAX {
            return false;
        }
        let mut offers = self.offers.lock();
        offers.push(offer);
        // Counted under the lock, as it is taken off: the sum is never below what waits.
        let before = self.waiting_bytes.fetch_add(bytes, Relaxed);
        before < WAKE_BYTES && before + bytes >= WAKE_BYTES
    }

    /// The oldest offers up to `bytes_max`, in key order, one a key.
    fn take(&self, bytes_max: u64) -> Vec<Offer> {
        let mut offers = self.offers.lock();
        let mut bytes = 0;
        let fits = offers.iter().take_while(|offer| {
            bytes += offer.bytes();
            bytes <= bytes_max
        });
        let count = fits.count().max(1).min(offers.len());
        let mut batch: Vec<_> = offers.drain(..count).collect();
        self.waiting_bytes.fetch_sub(batch.iter().map(Offer::bytes).sum(), Relaxed);
        drop(offers);
        batch.sort_by(|a, b| a.key.cmp(&b.key).then_with(|| b.trailer.cmp(&a.trailer)));
        batch.dedup_by(|a, b| a.key == b.key);
        batch
    }
}

impl Engine {
    /// Looks at a record that was just read from `table` and offers it, if it is asked for often
    /// enough to be up.
    pub fn consider_promotion(
        &self,
        key: &[u8],
        hash: u64,
        (trailer, value): (Trailer, &Bytes),
        table: FileNumber,
    ) {
        let Some(fast) = &self.fast else { return };
        let was_known = fast.popularity.value(hash).is_some();
        fast.popularity.touch(hash, false);
        let wanted = self.settings.hybrid.promotion == Promotion::Read
            && trailer.kind() == RecordKind::Put
            && (was_known || fast.promotions.at_first_read.load(Relaxed));
        if wanted {
            // A copy, so that nobody keeps the record's block alive.
            let (key, value) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            if fast.promotions.add(Offer { key, trailer, value, table }) {
                self.jobs.wake();
            }
        }
    }
}

/// Moves one batch of offers up.
#[derive(Debug)]
pub(crate) struct PromotionJob {
    engine: Arc<Engine>,
}

impl PromotionJob {
    /// The caller has set `running`.
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self { engine: Arc::clone(engine) }
    }

    fn run(&self) -> Result<()> {
        let Some(fast) = &self.engine.fast else { return Ok(()) };
        fast.promotions.at_first_read.store(fast.is_mostly_unasked(), Relaxed);
        let mut offers = fast.promotions.take(BATCH_BYTES.min(fast.room.limit_bytes / BATCH_SHARE));
        offers.retain(|offer| fast.index.get(&offer.key).is_none());
        if offers.is_empty() {
            return Ok(());
        }
        let arrivals: Vec<_> = offers
            .iter()
            .map(|offer| Arrival {
                key: offer.key.clone(),
                trailer: offer.trailer,
                value: offer.value.clone(),
                clean: true,
            })
            .collect();
        let Some(mut placed) = fast.write(&arrivals, Origin::Migration)? else {
            fast.promotions.blocked.store(true, Relaxed);
            fast.room.want_for_promotion();
            for offer in offers {
                // Nobody need be told: they wait for room.
                let _ = fast.promotions.add(offer);
            }
            return Ok(());
        };
        let engine = &self.engine;
        // Asking filters may read from the slow tier: not while edits wait for the lock.
        let asked = Arc::clone(&engine.read_state.load().levels);
        let newest: Vec<_> = offers.iter().map(|offer| is_newest(&asked, offer)).collect();
        let mut tables = engine.tables.lock();
        let levels = Arc::clone(&engine.read_state.load().levels);
        let newest = match Arc::ptr_eq(&levels, &asked) {
            true => newest,
            false => offers.iter().map(|offer| is_newest(&levels, offer)).collect(),
        };
        let mut stale = Vec::new();
        let mut born = Vec::with_capacity(offers.len());
        let placed_offers = offers.iter().zip(std::mem::take(&mut placed.born));
        for ((offer, new), is_newest) in placed_offers.zip(newest) {
            if planted(Planted::StalePromotion) || fast.index.get(&offer.key).is_none() && is_newest
            {
                fast.cache.insert(&new.key, new.entry.sequence, &offer.value);
                born.push(new);
            } else {
                stale.push(SlotAddress::unpack(new.entry.slot));
            }
        }
        fast.promotions.records.add(born.len() as u64);
        let hashes: Vec<_> = born.iter().map(|new| key_hash(&new.key)).collect();
        placed.born = born;
        engine.commit_placed(&mut tables, Edit::default(), placed, Vec::new())?;
        drop(tables);
        // Reserved with the others, and never live.
        fast.slabs.free(&stale);
        hashes.into_iter().for_each(|hash| fast.popularity.set_location(hash, true));
        Ok(())
    }
}

/// The offer's table is live, and no table that may be newer may have the key. A table that cannot
/// be asked may have it.
fn is_newest(levels: &Levels, offer: &Offer) -> bool {
    let hash = key_hash(&offer.key);
    let may_have = |table: &Table| {
        let probed = table.reader().and_then(|reader| Ok(reader.probe(&offer.key, hash)?));
        !matches!(probed, Ok(Probe::Absent))
    };
    let first = levels
        .candidates(&offer.key)
        .find(|(_, table)| table.meta.number == offer.table || may_have(table));
    first.is_some_and(|(_, table)| table.meta.number == offer.table)
}

impl super::FastTier {
    /// So many of the records here have never been asked for that any read is a better reason to be
    /// here.
    fn is_mostly_unasked(&self) -> bool {
        let asked = self.popularity.histogram().on_fast_total();
        self.index.len().saturating_sub(asked) * UNASKED_SHARE > self.index.len()
    }
}

impl Job for PromotionJob {
    fn name(&self) -> &'static str {
        "promotion"
    }

    fn step(&mut self) -> Result<Step> {
        self.run()?;
        Ok(Step::Done)
    }
}

impl Drop for PromotionJob {
    fn drop(&mut self) {
        if let Some(fast) = &self.engine.fast {
            fast.promotions.running.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{Stepper, Workers};
    use crate::{ByteSize, Db, Environment, Preset, Settings, Tier};
    use std::path::Path;
    use thermocline_device::MemoryDevices;

    /// A store with one record in a table, which was read often enough to be offered, and no job
    /// that moves it up but the test's own.
    fn with_offer() -> (Db, PromotionJob) {
        let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
        let settings = Settings {
            preset: Some(Preset::Hybrid),
            tiers: vec![tier("/fast", 16), tier("/slow", 64)],
            ..Settings::default()
        };
        let environment = Environment {
            devices: Arc::new(MemoryDevices::default()),
            workers: Workers::Stepped(Arc::new(Stepper::new(1))),
            ..Environment::default()
        };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        db.put("key", "old").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let engine = Arc::clone(db.engine());
        let promotions = &engine.fast.as_ref().unwrap().promotions;
        promotions.running.store(true, Relaxed);
        for _ in 0..2 {
            assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        }
        assert_eq!(promotions.offers.lock().len(), 1);
        let job = PromotionJob::new(&engine);
        (db, job)
    }

    fn promoted(db: &Db) -> u64 {
        db.stats().fast_tier.unwrap().promoted_records
    }

    #[test]
    fn a_record_that_is_read_again_moves_up_as_a_clean_copy() {
        let (db, job) = with_offer();
        job.run().unwrap();
        let fast = db.stats().fast_tier.unwrap();
        assert_eq!((fast.promoted_records, fast.records, fast.clean_records), (1, 1, 1));
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        let slow_reads = db.stats().tiers[1].reads;
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(db.stats().tiers[1].reads, slow_reads);
    }

    #[test]
    fn a_record_that_was_deleted_and_whose_tombstone_is_merged_away_does_not_come_back() {
        let (db, job) = with_offer();
        db.delete("key").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        job.run().unwrap();
        assert_eq!(db.get("key").unwrap(), None);
        assert_eq!(promoted(&db), 0);
    }

    #[test]
    fn a_record_that_was_replaced_in_a_slot_or_a_table_is_not_copied() {
        let (db, job) = with_offer();
        db.put("key", "new").unwrap();
        db.flush().unwrap();
        job.run().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(promoted(&db), 0);
        let (db, job) = with_offer();
        db.put("key", "new").unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        job.run().unwrap();
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(promoted(&db), 0);
    }

    #[test]
    fn a_newer_version_in_memory_hides_the_copy_and_replaces_it() {
        let (db, job) = with_offer();
        db.put("key", "new").unwrap();
        job.run().unwrap();
        assert_eq!(promoted(&db), 1);
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
        db.flush().unwrap();
        let fast = db.stats().fast_tier.unwrap();
        assert_eq!((fast.records, fast.clean_records), (1, 0), "the copy's slot is free");
        assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"new"[..]));
    }
}
