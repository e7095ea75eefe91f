//! Copies that memory gives up: those that should stay up get slots, the others are forgotten.
//!
//! ```text
//!   tables ──promotion.rs──> memory only ──evicted──> spill ──hot──> slot, a clean copy
//!                               ^                       └────cold──> forgotten: tables have it
//!                               └───── sweep.rs, where a slot is wanted and memory has the record
//! ```
//! A record that was evicted waits here with its value. Its entry in the index still names no slot;
//! while it does, the record is what the entry says, and a slot may have it, unless a demotion is
//! at work on its range, which leaves nothing behind that it has not looked at. Both are looked at
//! before a slot is written for it, and again under the lock of the tables, after it was.

use crate::error::{Error, Result};
use crate::jobs::Jobs;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::copies::bounded_queue::{
    BoundedQueue, Queued, RECORD_OVERHEAD_BYTES, Waits,
};
use crate::layout::hybrid::records::packing::Stored;
use crate::layout::hybrid::records::placing::Arrival;
use crate::layout::hybrid::single_step::Work;
use crate::table_set::key_range::KeyRange;
use crate::table_set::slot_edit::Added;
use bytes::Bytes;
use std::sync::Arc;
use thermocline_device::Origin;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};
use thermocline_foundation::{Counter, Sequence};
use thermocline_index::{Entry, Evicted};
use thermocline_slab::SlotAddress;
use thermocline_table::{RecordKind, Trailer, key_hash};

/// Bytes that a job writes with one edit.
const BATCH_BYTES: u64 = 1 << 20;
/// Share of the fast tier's room that a job takes at most: less than what is kept free.
const BATCH_SHARE: u64 = 64;

/// A record that memory gave up.
#[derive(Debug)]
pub(crate) struct Spilled {
    key: Bytes,
    sequence: Sequence,
    /// As memory had it; none where too much waits.
    value: Option<Bytes>,
}

impl Waits for Spilled {
    fn bytes(&self) -> u64 {
        let value = self.value.as_ref().map_or(0, Bytes::len);
        (self.key.len() + value) as u64 + RECORD_OVERHEAD_BYTES
    }
}

impl Spilled {
    fn arrival(&self, value: Stored) -> Arrival {
        let trailer = Trailer::new(self.sequence, RecordKind::Put);
        Arrival { key: self.key.clone(), trailer, value, clean: true }
    }
}

/// What waits for a slot, or to be forgotten.
#[derive(Debug)]
pub(crate) struct Spill {
    jobs: Arc<Jobs>,
    pub waiting: BoundedQueue<Spilled>,
    /// A job is at it.
    pub running: AtomicBool,
    /// There was no room, and nothing has left since.
    blocked: AtomicBool,
    /// Copies that got slots.
    pub records: Counter,
}

impl Spill {
    /// Nothing waits; memory has `memory_bytes`.
    pub fn new(jobs: &Arc<Jobs>, memory_bytes: u64) -> Self {
        Self {
            jobs: Arc::clone(jobs),
            waiting: BoundedQueue::new(memory_bytes),
            running: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            records: Counter::default(),
        }
    }

    /// Enough waits (in a hurry anything is enough), and not for room; or so much waits that it can
    /// wait no longer.
    pub fn is_due(&self, in_hurry: bool) -> bool {
        let is_blocked = self.blocked.load(Relaxed);
        self.waiting.is_due(in_hurry) && !is_blocked || self.waiting.is_full()
    }

    /// Records have left: there may be room.
    pub fn unblock(&self) {
        self.blocked.store(false, Relaxed);
    }

    /// Takes a record. Where too much waits it loses its value, and can only be forgotten; where
    /// twice as much does, it is.
    fn add(&self, mut spilled: Spilled) {
        if !self.waiting.has_room(spilled.bytes()) {
            // Key and value share their memory.
            spilled.key = Bytes::copy_from_slice(&spilled.key);
            spilled.value = None;
        }
        if self.waiting.is_overfull() {
            // No job gets to them. A sweep finds the entry that has lost its record.
            return;
        }
        if self.waiting.push(spilled) == (Queued::Waits { wake: true }) {
            self.jobs.wake();
        }
    }

    /// Leaves out of `going`, clean copies in key order, what memory gave up and no job has decided
    /// on: entries without a slot whose record waits here, and all of these while a job is at it.
    pub fn spare<T>(&self, going: &mut Vec<(&[u8], Entry, T)>) {
        if going.iter().all(|(_, entry, _)| entry.has_slot()) {
            return;
        }
        let mut waits = vec![false; going.len()];
        for (key, sequence) in self.waiting.map(|spilled| (spilled.key.clone(), spilled.sequence)) {
            if let Ok(at) = going.binary_search_by(|(going, _, _)| (*going).cmp(&key)) {
                waits[at] |= going[at].1.sequence == sequence;
            }
        }
        // Asked after what waits, for jobs take from there.
        let running = self.running.load(Relaxed);
        let mut waits = waits.into_iter();
        going.retain(|(_, entry, _)| {
            let waits = waits.next() == Some(true);
            entry.has_slot() || !waits && !running
        });
    }

    /// The oldest records up to `bytes_max`, in key order, each once.
    fn take(&self, bytes_max: u64) -> Vec<Spilled> {
        let mut batch = self.waiting.take(bytes_max);
        // Of the same record the one with a value first.
        batch.sort_by(|a, b| {
            let versions =
                b.sequence.cmp(&a.sequence).then(b.value.is_some().cmp(&a.value.is_some()));
            a.key.cmp(&b.key).then(versions)
        });
        batch.dedup_by(|a, b| (&a.key, a.sequence) == (&b.key, b.sequence));
        batch
    }
}

impl FastTier {
    /// Keeps a copy of a record in memory. What memory gives up for it, and has no slot, waits for
    /// one.
    pub fn remember(&self, key: &[u8], sequence: Sequence, value: &Bytes) {
        let kept = self.packing.for_memory(value);
        self.spill_evicted(self.cache.insert(key, sequence, &kept));
    }

    /// What memory gave up, and has no slot, waits for one.
    pub(crate) fn spill_evicted(&self, evicted: Evicted) {
        for (key, sequence, value) in evicted.into_records() {
            if self.is_in_memory_only(&key, sequence) {
                self.spill.add(Spilled { key, sequence, value: Some(value) });
            }
        }
    }

    /// The index has the record, and no slot for it.
    fn is_in_memory_only(&self, key: &[u8], sequence: Sequence) -> bool {
        self.index.get_at(key, sequence) == Some(Entry::in_memory(sequence))
    }
}

/// A demotion is at work on the key's range.
fn is_claimed(claims: &[KeyRange], key: &[u8]) -> bool {
    claims.iter().any(|range| range.contains(key))
}

/// Gives slots to one batch of what memory gave up.
pub(crate) const SPILL: Work =
    Work { name: "spill", claim: |fast| &fast.spill.running, run: Hybrid::spill };

impl Hybrid {
    pub(crate) fn spill(&self) -> Result<()> {
        let mut batch =
            self.fast.spill.take(BATCH_BYTES.min(self.fast.room.limit_bytes() / BATCH_SHARE));
        // Some were replaced meanwhile, or asked for and brought back.
        batch.retain(|spilled| {
            self.fast.is_in_memory_only(&spilled.key, spilled.sequence)
                && !self.fast.cache.contains(&spilled.key, spilled.sequence)
        });
        let pinning = self.fast.pinning_of_copies();
        let get_slots = self.fast.feedback.copies.judge();
        let first_read = self.fast.promotions.slot_at_first_read.load(Relaxed);
        let claims = self.versions.tables().claims.ranges();
        let (stay, go): (Vec<_>, Vec<_>) = batch.into_iter().partition(|spilled| {
            get_slots
                && spilled.value.is_some()
                && !is_claimed(&claims, &spilled.key)
                && (first_read || self.fast.is_pinned(&pinning, &spilled.key))
        });
        self.forget_spilled(&go);
        if stay.is_empty() { Ok(()) } else { self.place_spilled(stay) }
    }

    /// Takes records that are nowhere but in tables from the index.
    fn forget_spilled(&self, spilled: &[Spilled]) {
        let _tables = self.versions.tables();
        let gone: Vec<_> = spilled
            .iter()
            .filter(|spilled| self.fast.is_in_memory_only(&spilled.key, spilled.sequence))
            .map(|spilled| (&spilled.key, spilled.sequence))
            .collect();
        // Readers want these entries for values in memory only, and tables have the records:
        // nothing departs.
        self.fast.index.remove_many(&gone, |_, _| {});
        for (key, _) in gone {
            self.fast.popularity.set_location(key_hash(key), false);
        }
    }

    /// There is no room for records: they wait.
    fn put_off(&self, spilled: Vec<Spilled>) {
        self.fast.room.want_for_copies();
        if self.fast.spill.blocked.swap(true, Relaxed) {
            // There was none before, and too much waits for it.
            self.forget_spilled(&spilled);
        } else {
            spilled.into_iter().for_each(|spilled| self.fast.spill.add(spilled));
        }
    }

    /// Writes records into slots and lets the index say so.
    fn place_spilled(&self, spilled: Vec<Spilled>) -> Result<()> {
        let with_value = |spilled: &Spilled| {
            Some(spilled.arrival(self.fast.packing.spilled(spilled.value.as_ref()?)))
        };
        let arrivals: Vec<_> = spilled.iter().filter_map(with_value).collect();
        let placed = match self.fast.write(&arrivals, Origin::Migration) {
            // They wait, as they do where there is no room.
            Err(error) if error.is_refusal() => None,
            placed => placed?,
        };
        let Some(mut placed) = placed else {
            self.put_off(spilled);
            return Ok(());
        };
        let mut tables = self.versions.tables();
        let is_wanted = |new: &Added| {
            self.fast.is_in_memory_only(&new.key, new.entry.sequence)
                && !tables.claims.ranges_have(&new.key)
        };
        let (added, stale): (Vec<_>, Vec<_>) =
            std::mem::take(&mut placed.added).into_iter().partition(is_wanted);
        let records = added.len() as u64;
        placed.added = added;
        let count = || self.fast.spill.records.add(records);
        let committed = self.commit_placed(&mut tables, placed, Vec::new(), count);
        drop(tables);
        if committed.as_ref().is_err_and(Error::is_refusal) {
            self.put_off(spilled);
            return Ok(());
        }
        committed?;
        self.fast.spill.unblock();
        // Reserved with the others, and never live.
        let slots = stale.iter().map(|new| SlotAddress::unpack(new.entry.slot));
        self.fast.slabs.free(&slots.collect::<Vec<_>>());
        // Both are in the order of keys and versions.
        let is_stale = |spilled: &Spilled| {
            let place = |new: &Added| {
                let versions = spilled.sequence.cmp(&new.entry.sequence);
                new.key.cmp(&spilled.key).then(versions)
            };
            stale.binary_search_by(place).is_ok()
        };
        let go: Vec<_> = spilled.into_iter().filter(is_stale).collect();
        self.forget_spilled(&go);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
