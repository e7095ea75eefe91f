//! Sweeps take slots from clean copies that memory has too, or that no read asks for.
//!
//! That is an edit and no write, for tables have these records. What memory has is in memory only
//! from then on. A hand goes round the keys, and each sweep goes on where the last one ended, for
//! as long as room is wanted and enough is found.

use crate::error::Result;
use crate::jobs::{Job, Step};
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::rules::fullness::{EvictionStep, Need};
use crate::table_set::slot_edit::{EntryAfter, Removed, SlotEdit};
use crate::versions::Change;
use std::ops::Bound;
use std::sync::Arc;
use thermocline_foundation::sync::atomic::Ordering::Relaxed;
use thermocline_index::{Entry, IndexBatch};
use thermocline_table::key_hash;

/// Keys that are looked at in a step.
const STEP_KEYS: usize = 2048;

/// A sweep gives up unless it frees the slot of one in so many keys: demotions are better then.
const ONE_IN: usize = 8;

/// A sweep under way.
#[derive(Debug)]
pub(crate) struct Sweep {
    hybrid: Arc<Hybrid>,
    /// Keys of the last while, and how many of them lost their slots.
    looked: usize,
    freed: usize,
}

impl Sweep {
    /// A sweep, unless one is under way.
    pub fn begin(hybrid: &Arc<Hybrid>) -> Option<Self> {
        let room = &hybrid.fast.room;
        if room.sweeping.swap(true, Relaxed) {
            return None;
        }
        Some(Self { hybrid: Arc::clone(hybrid), looked: 0, freed: 0 })
    }

    /// The next keys of the index, all around.
    fn next_keys(&self) -> IndexBatch {
        let fast = &self.hybrid.fast;
        let mut batch = IndexBatch::new();
        let from = fast.room.hand.lock().clone();
        let above = if from.is_empty() { Bound::Unbounded } else { Bound::Excluded(&from[..]) };
        fast.index.ascend(above, Bound::Unbounded, STEP_KEYS, &mut batch);
        let hand = if batch.is_end() { None } else { batch.last_key() };
        *fast.room.hand.lock() = hand.unwrap_or_default().to_vec();
        batch
    }

    fn run(&mut self) -> Result<()> {
        let fast = &self.hybrid.fast;
        let pinning = fast.pinning_of_copies();
        let batch = self.next_keys();
        // The index knows a record that moves up before memory has it.
        let promotes = fast.promotions.running.load(Relaxed);
        let goes = |key: &[u8], entry: &Entry| {
            let in_memory = fast.cache.contains(key, entry.sequence);
            let goes = match entry.has_slot() {
                true => in_memory || !fast.is_pinned(&pinning, key),
                false => !in_memory && !promotes,
            };
            goes.then_some(in_memory)
        };
        // Asked before the lock is taken, for it takes a while.
        let mut going: Vec<_> = batch
            .iter()
            .filter_map(|(key, versions)| match versions {
                [entry] if entry.clean => Some((key, *entry, goes(key, entry)?)),
                _ => None,
            })
            .collect();
        fast.spill.spare(&mut going);
        self.looked += batch.len();
        if going.is_empty() {
            return Ok(());
        }
        let mut tables = self.hybrid.versions.tables();
        let (mut removed, mut in_cache, mut unasked, mut hashes) = (Vec::new(), 0, 0, Vec::new());
        for (key, entry, in_memory) in going {
            // It may have been replaced since the batch was taken.
            if fast.index.get_at(key, entry.sequence) != Some(entry) {
                continue;
            }
            self.freed += usize::from(entry.has_slot());
            let key = bytes::Bytes::copy_from_slice(key);
            if in_memory {
                in_cache += 1;
            } else {
                unasked += u64::from(entry.has_slot());
                hashes.push(key_hash(&key));
            }
            let after = if in_memory { EntryAfter::MemoryOnly } else { EntryAfter::Gone };
            removed.push(Removed { entry: after, ..Removed::new(key, &entry) });
        }
        let count = || {
            fast.room.dropped.add(hashes.len() as u64);
            fast.room.memory_only.add(in_cache);
            fast.feedback.copies.unasked.add(unasked);
        };
        let frees_slots = removed.iter().any(|old| old.slot.is_some());
        if frees_slots {
            let departs = !hashes.is_empty();
            let slots = SlotEdit { removed, departs, ..SlotEdit::default() };
            let change = Change { slots, ..Change::default() };
            self.hybrid.versions.commit_counted(&mut tables, change, count)?;
        } else {
            count();
            // Nothing durable changes.
            let gone: Vec<_> = removed.iter().map(|old| (&old.key, old.sequence)).collect();
            fast.index.remove_many(&gone, |_, _| {});
        }
        drop(tables);
        if frees_slots {
            fast.room_was_made();
        }
        hashes.into_iter().for_each(|hash| fast.popularity.set_location(hash, false));
        Ok(())
    }

    /// Few have been found over the keys of a step, or all keys where these are fewer, or until its
    /// early end.
    fn finds_few(&mut self, keys: u64, ends_early: bool) -> bool {
        let enough = STEP_KEYS.min(usize::try_from(keys).unwrap_or(usize::MAX));
        if self.looked < enough && !ends_early {
            return false;
        }
        let few = self.freed * ONE_IN < self.looked || self.looked == 0;
        (self.looked, self.freed) = (0, 0);
        few
    }
}

impl Job for Sweep {
    fn name(&self) -> &'static str {
        "sweep for clean copies"
    }

    fn step(&mut self) -> Result<Step> {
        self.run()?;
        let hybrid = Arc::clone(&self.hybrid);
        let fast = &hybrid.fast;
        let need = hybrid.look_at_room();
        // Other sizes of slots may be enough now. If they are not, what this has found counts.
        let ends_early = need == Need::OtherSizes;
        if self.finds_few(fast.index.len(), ends_early) {
            fast.room.found_little(EvictionStep::Sweep, hybrid.shared.clock.now_ns());
            return Ok(Step::Done);
        }
        Ok(if need == Need::Room { Step::More } else { Step::Done })
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.hybrid.fast.room.sweeping.store(false, Relaxed);
        self.hybrid.shared.jobs.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{hybrid, stepped};
    use crate::{ByteSize, Settings};
    use thermocline_foundation::random::Random;

    /// Copies come from tables and go back to nothing: the slow tier is read and not written.
    #[test]
    fn copies_that_give_way_to_others_are_not_written_to_the_slow_tier() {
        const RECORDS: u64 = 9000;
        let mut settings = Settings { memory: ByteSize::mib(4), ..hybrid() };
        settings.tiers[0].capacity = ByteSize::mib(4);
        let db = stepped(&settings);
        let mut random = Random::new(1);
        for key in 0..RECORDS {
            let mut value = [0; 1000];
            random.fill(&mut value);
            db.put(key.to_be_bytes(), value).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
        let slow = &db.engine().shared().files.tiers()[1];
        let before = slow.traffic_total();
        let mut copies = 0;
        for from in (0..RECORDS).step_by(3000) {
            for key in (0..8).flat_map(|_| from..from + 3000) {
                assert!(db.get(key.to_be_bytes()).unwrap().is_some());
                if key % 250 == 0 {
                    db.settle().unwrap();
                }
            }
            copies = copies.max(db.stats().fast_tier.unwrap().clean_records);
        }
        let fast = db.stats().fast_tier.unwrap();
        let after = slow.traffic_total();
        let written = |traffic: thermocline_device::TrafficTotals| {
            (traffic.writes, traffic.written_bytes, traffic.syncs)
        };
        assert_eq!(written(after), written(before), "{fast:?}");
        assert!(after.reads > before.reads);
        assert!(copies > 500 && fast.spilled_records > 1000, "{copies} in slots: {fast:?}");
        assert!(fast.unasked_copies > 500, "{fast:?}");
    }

    #[test]
    fn a_sweep_is_judged_by_what_it_found_of_late() {
        let db = stepped(&hybrid());
        let mut sweep = Sweep::begin(db.engine().hybrid()).unwrap();
        assert!(Sweep::begin(db.engine().hybrid()).is_none(), "one at a time");
        let mut finds_few = |looked, freed, keys| {
            (sweep.looked, sweep.freed) = (looked, freed);
            let few = sweep.finds_few(keys, false);
            (few, sweep.looked)
        };
        let many = 1 << 20;
        assert_eq!(finds_few(2047, 0, many), (false, 2047), "too early to say");
        assert_eq!(finds_few(2048, 256, many), (false, 0));
        assert_eq!(finds_few(2048, 255, many), (true, 0));
        assert_eq!(finds_few(128, 16, 128), (false, 0), "all there are");
        assert_eq!(finds_few(128, 15, 128), (true, 0));
        assert_eq!(finds_few(0, 0, 0), (true, 0));
        (sweep.looked, sweep.freed) = (1024, 127);
        assert!(sweep.finds_few(many, true), "an early end");
    }
}
