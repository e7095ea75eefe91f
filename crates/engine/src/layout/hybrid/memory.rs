//! How much memory the records get: their own share, and as much of the memory kept for writing as
//! writes have not used for a while.
//!
//! ```text
//!   budget | memtables, merges | partitions of tables, index, popularity | records |
//!            '---- reserve ---'
//!   reserve | in use at most, this epoch and the last | lent to records |
//! ```
//! Under reads alone nearly all of the reserve is lent, and under writes what memtables and merges
//! have not come to. What is lent is asked back when one of them begins, before it takes memory.
//! That costs copies, which were read from slots or tables to get there; so a reserve that was in
//! use a moment ago is not lent, and records do not leave and come with every flush.
//!
//! The active memtable is given what it uses and a part or two ahead. A writer that needs more asks
//! for it first, and so does the first writer after each change of memtables.
//!
//! Threads: any. Looks are made where background jobs begin and end, by that writer, and by readers
//! of tables once in a thousand look-ups, for under reads alone there may be no job.

use crate::environment::experiments::Rule;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::rules::memory::{Keys, Tracked, blocks_and_records};
use crate::locator::copies::Demand;
use crate::settings::{MemoryDivision, Settings, WRITER_BYTES};
use crate::versions::Current;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The use of memory is remembered for one to two of these: several flushes and demotions of a
/// store that is written to.
const EPOCH_NS: u64 = 10_000_000_000;
/// The records get more memory in steps of at least this share of the budget: each visits every
/// part of the cache.
const GROWTH_SHARE: u64 = 64;

/// Parts of a full memtable in which the active one is given memory, and the most bytes of one: all
/// writers wait while the records give up a part or two.
const ACTIVE_PARTS: u64 = 8;
const ACTIVE_PART_BYTES_MAX: u64 = 1 << 20;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Memory {
    budget_bytes: u64,
    reserve_bytes: u64,
    memtable_bytes: u64,
    /// What the active memtable may come to before a writer must look.
    kept_for_active_bytes: AtomicU64,
    /// Buffers of the merges under way, as reckoned.
    merging_bytes: AtomicU64,
    lent: Mutex<Lent>,
}

/// The highest use in the epochs of now and before, and what follows from it.
#[derive(Debug, Default)]
struct Lent {
    epoch_started_ns: u64,
    peak_bytes: u64,
    peak_bytes_before: u64,
    /// The records' own share.
    share_bytes: u64,
    /// What the records have; none before it was ever divided.
    capacity_bytes: Option<u64>,
}

impl Lent {
    /// The highest use that is remembered, `used_bytes` of now among it.
    fn observe(&mut self, now_ns: u64, used_bytes: u64) -> u64 {
        if now_ns.saturating_sub(self.epoch_started_ns) >= EPOCH_NS {
            self.epoch_started_ns = now_ns;
            self.peak_bytes_before = std::mem::take(&mut self.peak_bytes);
        }
        self.peak_bytes = self.peak_bytes.max(used_bytes);
        self.peak_bytes.max(self.peak_bytes_before)
    }
}

impl Memory {
    /// Nothing is lent before the first epoch has passed.
    pub fn new(settings: &Settings) -> Self {
        let budget_bytes = settings.memory.0;
        let MemoryDivision { memtable_bytes, cache_bytes } = settings.division();
        let reserve_bytes = budget_bytes - cache_bytes;
        let lent = Lent { peak_bytes: reserve_bytes, ..Lent::default() };
        Self {
            budget_bytes,
            reserve_bytes,
            memtable_bytes,
            kept_for_active_bytes: AtomicU64::new(memtable_bytes),
            merging_bytes: AtomicU64::new(0),
            lent: Mutex::new(lent),
        }
    }

    /// Buffers of the merges under way.
    pub fn merging_bytes(&self) -> u64 {
        self.merging_bytes.load(Relaxed)
    }

    /// A merge begins that takes so much.
    pub fn merge_begins(&self, bytes: u64) {
        self.merging_bytes.fetch_add(bytes, Relaxed);
    }

    /// It has ended.
    pub fn merge_ends(&self, bytes: u64) {
        self.merging_bytes.fetch_sub(bytes, Relaxed);
    }

    /// An active memtable that is about to have so many bytes has not been given as many.
    pub fn is_short_for_active(&self, active_bytes: u64) -> bool {
        active_bytes > self.kept_for_active_bytes.load(Relaxed)
    }

    /// There is another active memtable, and one more that is frozen: the next write is to look.
    pub fn active_was_frozen(&self) {
        // A look that is under way has seen the memtables of before: this waits for its end.
        let _lent = self.lent.lock();
        self.kept_for_active_bytes.store(0, Relaxed);
    }

    /// What an active memtable of so many bytes is given: up to a full one, but for one batch that
    /// makes it more than that.
    fn kept_for_active(&self, active_bytes: u64) -> u64 {
        let part_bytes = (self.memtable_bytes / ACTIVE_PARTS).clamp(1, ACTIVE_PART_BYTES_MAX);
        let ahead_bytes = (active_bytes / part_bytes + 2) * part_bytes;
        ahead_bytes.min(self.memtable_bytes).max(active_bytes)
    }

    /// Gives the records what they may have now with `set`, where that is not what they have, and
    /// gives back what `set` does. `uses` tells what the active memtable has, or is about to have,
    /// and what else is used. Of two looks at once the later one sets last.
    fn divide<T>(
        &self,
        now_ns: u64,
        uses: impl FnOnce() -> (u64, u64),
        share_bytes: Option<u64>,
        set: impl FnOnce(u64) -> T,
    ) -> Option<T> {
        let mut lent = self.lent.lock();
        let (active_bytes, used_bytes) = uses();
        if let Some(share_bytes) = share_bytes {
            lent.share_bytes = share_bytes;
        }
        let kept_bytes = self.kept_for_active(active_bytes);
        let peak_bytes = lent.observe(now_ns, kept_bytes + used_bytes);
        let capacity_bytes = lent.share_bytes + self.reserve_bytes.saturating_sub(peak_bytes);
        let grows = lent.capacity_bytes.and_then(|now| capacity_bytes.checked_sub(now));
        let stays = grows.is_some_and(|bytes| bytes < self.budget_bytes / GROWTH_SHARE);
        let set = (!stays).then(|| {
            lent.capacity_bytes = Some(capacity_bytes);
            set(capacity_bytes)
        });
        // Not before the records have given it.
        self.kept_for_active_bytes.store(kept_bytes, Relaxed);
        set
    }
}

impl FastTier {
    /// Divides memory anew between records, blocks of tables and what is known of keys.
    pub fn divide_memory_anew(&self, current: &Current) {
        let settings = &self.shared.settings;
        let levels = &current.get().levels;
        let (mut entries, mut table_bytes, mut pinned_bytes) = (0, 0, 0);
        let mut demand = Demand::default();
        for (_, table) in levels.tables() {
            entries += table.meta.entries;
            table_bytes += table.meta.bytes;
            pinned_bytes += table.pinned_bytes();
            demand.add(table, settings);
        }
        self.room.note_tables(table_bytes);
        self.feedback.table_entries.store(entries, Relaxed);
        let share_bytes = settings.division().cache_bytes;
        let tracked = Tracked::of(Keys {
            fast: self.index.len(),
            in_tables: entries,
            share_bytes,
            percent: settings.hybrid.tracker_percent,
            may_be_beyond: self.rules.experiments.has(Rule::TrackerBeyondFifth),
        });
        self.feedback.share_of_keys.store(tracked.share_of_keys, Relaxed);
        if tracked.is_far_from(self.popularity.capacity() as u64) {
            self.popularity.set_capacity(tracked.keys as usize);
        }
        let known_bytes = self.index.memory_bytes() + self.popularity.bytes() as u64;
        let used_bytes = pinned_bytes + known_bytes;
        let (blocks, left) = blocks_and_records(share_bytes, used_bytes, demand.partition_bytes);
        // Every edit comes here, and a change takes all locks of the cache, for which readers wait.
        let cache = &self.shared.cache;
        if blocks.abs_diff(cache.capacity_bytes()) > blocks / 64 {
            cache.set_capacity(blocks);
        }
        self.share_memory(current, left.saturating_sub(cache.capacity_bytes()));
        self.copying.reckon(demand, |bytes| self.slabs.set_limit_bytes(bytes));
    }

    /// Lends the records what memtables, flushes and merges leave unused, and asks back what they
    /// use now.
    pub fn lend_memory(&self, current: &Current) {
        self.divide_memory(current, None, 0);
    }

    /// As [`FastTier::lend_memory`], before the active memtable comes to `active_bytes`.
    pub fn lend_memory_beside(&self, current: &Current, active_bytes: u64) {
        self.divide_memory(current, None, active_bytes);
    }

    /// As [`FastTier::lend_memory`]; the records' own share is `share_bytes` from now on.
    pub fn share_memory(&self, current: &Current, share_bytes: u64) {
        self.divide_memory(current, Some(share_bytes), 0);
    }

    fn divide_memory(&self, current: &Current, share_bytes: Option<u64>, active_bytes: u64) {
        let uses = || {
            let version = current.get();
            let frozen = version.frozen.iter().map(|frozen| frozen.memtable.bytes());
            // Those of flushes, and those of jobs that move a few records.
            let writers_bytes = (version.frozen.len() as u64 + 1) * WRITER_BYTES;
            let used_bytes = frozen.sum::<u64>() + writers_bytes + self.memory.merging_bytes();
            (version.active.bytes().max(active_bytes), used_bytes)
        };
        let set = |bytes| self.cache.set_capacity_bytes(bytes);
        let now_ns = self.shared.clock.now_ns();
        if let Some(evicted) = self.memory.divide(now_ns, uses, share_bytes, set) {
            self.spill_evicted(evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::hybrid::copies::promotion::PROMOTION;
    use crate::support::still_clock::StillClock;
    use crate::support::{hybrid, stepped_environment};
    use crate::{Db, Environment};
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;
    use thermocline_foundation::{ByteSize, Clock};

    const S: u64 = 1_000_000_000;

    impl Memory {
        /// What the records may have, where that is another amount than they have.
        fn capacity(&self, now_ns: u64, used_bytes: u64, share_bytes: Option<u64>) -> Option<u64> {
            let kept_bytes = self.kept_for_active(0);
            let uses = || (0, used_bytes.saturating_sub(kept_bytes));
            self.divide(now_ns, uses, share_bytes, |bytes| bytes)
        }
    }

    /// Of 96 MiB, and its reserve.
    fn memory() -> (Memory, u64) {
        let memory = Memory::new(&Settings { memory: ByteSize::mib(96), ..Settings::default() });
        let reserve = memory.reserve_bytes;
        assert!(reserve > 16 << 20, "{reserve}");
        (memory, reserve)
    }

    #[test]
    fn what_was_not_used_for_an_epoch_is_lent_and_what_is_used_comes_back_at_once() {
        let (memory, reserve) = memory();
        let (share, used) = (40 << 20, 8 << 20);
        assert_eq!(memory.capacity(0, used, Some(share)), Some(share));
        assert_eq!(memory.capacity(9 * S, used, None), None, "the reserve may be wanted yet");
        assert_eq!(memory.capacity(11 * S, used, None), None, "the epoch before counts");
        let lent = reserve - used;
        assert_eq!(memory.capacity(22 * S, used, None), Some(share + lent));
        assert_eq!(memory.capacity(22 * S, used + (4 << 20), None), Some(share + lent - (4 << 20)));
        assert_eq!(memory.capacity(31 * S, used, None), None, "it is not lent again so soon");
        assert_eq!(memory.capacity(33 * S, used, None), None, "nor an epoch later");
        assert_eq!(memory.capacity(44 * S, used, None), Some(share + lent));
    }

    #[test]
    fn more_use_than_the_reserve_takes_nothing_of_the_records_own_share() {
        let (memory, reserve) = memory();
        assert_eq!(memory.capacity(0, 2 * reserve, Some(1 << 20)), Some(1 << 20));
        assert_eq!(memory.capacity(30 * S, 2 * reserve, Some(1 << 19)), Some(1 << 19));
    }

    #[test]
    fn the_active_memtable_is_given_memory_a_part_or_two_ahead() {
        let (memory, _) = memory();
        let part = memory.memtable_bytes / ACTIVE_PARTS;
        assert!(part <= ACTIVE_PART_BYTES_MAX, "{part}");
        assert_eq!(memory.kept_for_active(0), 2 * part);
        assert_eq!(memory.kept_for_active(2 * part + 1), 4 * part);
        assert_eq!(memory.kept_for_active(7 * part), memory.memtable_bytes);
        let batch = 3 * memory.memtable_bytes;
        assert_eq!(memory.kept_for_active(batch), batch);
        assert!(!memory.is_short_for_active(memory.memtable_bytes), "nothing is lent yet");
        memory.divide(
            0,
            || (part, 0),
            None,
            |_| {
                assert!(!memory.is_short_for_active(memory.memtable_bytes), "it is not given yet");
            },
        );
        assert!(!memory.is_short_for_active(3 * part) && memory.is_short_for_active(3 * part + 1));
        memory.active_was_frozen();
        assert!(memory.is_short_for_active(1));
    }

    #[test]
    fn parts_of_a_large_memtable_are_small() {
        let mut settings = Settings { memory: ByteSize::gib(8), ..hybrid() };
        // Its logs have room for a full memtable.
        settings.tiers[0].capacity = ByteSize::gib(8);
        let memory = Memory::new(&settings);
        assert_eq!(memory.kept_for_active(0), 2 * ACTIVE_PART_BYTES_MAX);
    }

    /// A store of records that reads bring into memory, and its clock.
    fn store() -> (Db, Arc<StillClock>) {
        let clock = Arc::new(StillClock::default());
        let environment = Environment { clock: Arc::clone(&clock) as _, ..stepped_environment() };
        let settings = Settings { memory: ByteSize::mib(16), ..hybrid() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        (0..KEYS).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.compact_range(None, None, &mut |_| {}).unwrap();
        (db, clock)
    }

    const KEYS: u32 = 14_000;

    /// Reads every record, some at a time, which come to memory as far as there is room.
    fn read_all(db: &Db) -> u64 {
        let fast = &db.engine().hybrid().fast;
        for round in 0..KEYS / 50 {
            for key in round * 50..(round + 1) * 50 {
                (0..2).for_each(|_| assert!(db.get(key.to_be_bytes()).unwrap().is_some()));
            }
            PROMOTION.hold(fast);
            db.engine().hybrid().promote().unwrap();
        }
        fast.cache.bytes()
    }

    #[test]
    fn records_get_the_reserve_of_a_store_that_is_only_read_and_give_it_back_to_a_merge() {
        let (db, clock) = store();
        let fast = &db.engine().hybrid().fast;
        let share = db.engine().shared().settings.division().cache_bytes;
        let before = read_all(&db);
        assert!(before <= share, "{before} of {share}");
        (0..2).for_each(|_| {
            clock.sleep(Duration::from_nanos(EPOCH_NS));
            db.engine().hybrid().promote().unwrap();
        });
        let lent = read_all(&db);
        assert!(lent > before + (4 << 20), "{lent} after {before}");
        let stats = db.stats().memory;
        assert!(stats.used_bytes <= stats.budget_bytes, "{stats:?}");
        fast.memory.merge_begins(4 << 20);
        fast.lend_memory(db.engine().versions().cell());
        assert!(fast.cache.bytes() <= lent - (3 << 20), "{} of {lent}", fast.cache.bytes());
        let stats = db.stats().memory;
        assert!(
            stats.merge_bytes == 4 << 20 && stats.used_bytes <= stats.budget_bytes,
            "{stats:?}"
        );
        fast.memory.merge_ends(4 << 20);
    }

    #[test]
    fn records_have_the_memory_of_an_empty_memtable_and_give_it_back_as_it_fills() {
        let (db, clock) = store();
        let fast = &db.engine().hybrid().fast;
        for _ in 0..2 {
            clock.sleep(Duration::from_nanos(EPOCH_NS));
            db.engine().hybrid().promote().unwrap();
        }
        read_all(&db);
        let division = db.engine().shared().settings.division();
        let full = division.memtable_bytes;
        let unlent = full / ACTIVE_PARTS * 2 + 2 * WRITER_BYTES;
        let given = fast.cache.capacity_bytes();
        assert!(given >= division.cache_bytes + fast.memory.reserve_bytes - unlent - full / 8);
        // Of two memtables, with no job that makes a look.
        let mut before = given;
        for part in 1..=4u64 {
            for key in 0..full / 2400 {
                db.put((part << 32 | key).to_be_bytes(), [7; 1000]).unwrap();
                let stats = db.stats().memory;
                assert!(stats.used_bytes <= stats.budget_bytes, "{stats:?}");
            }
            let now = fast.cache.capacity_bytes();
            assert!(now + full / 4 <= before, "{now} of {before}, part {part}");
            assert!(fast.cache.bytes() <= now, "part {part}");
            before = now;
        }
        assert_eq!(db.engine().versions().current().frozen.len(), 1);
    }

    #[test]
    fn a_batch_of_small_records_gets_what_they_take_in_a_memtable() {
        let (db, clock) = store();
        let fast = &db.engine().hybrid().fast;
        (0..2).for_each(|_| {
            clock.sleep(Duration::from_nanos(EPOCH_NS));
            db.engine().hybrid().promote().unwrap();
        });
        read_all(&db);
        let mut batch = crate::WriteBatch::new();
        (0..4000u32).for_each(|key| _ = batch.put(key.to_be_bytes(), "tiny"));
        db.write(batch).unwrap();
        let active_bytes = db.engine().versions().current().active.bytes();
        assert!(!fast.memory.is_short_for_active(active_bytes), "{active_bytes}");
        let stats = db.stats().memory;
        assert!(stats.used_bytes <= stats.budget_bytes, "{stats:?}");
    }

    #[test]
    fn a_little_more_is_not_worth_a_change() {
        let (memory, reserve) = memory();
        assert_eq!(memory.capacity(0, reserve, Some(1 << 20)), Some(1 << 20));
        assert_eq!(memory.capacity(0, reserve, Some((1 << 20) + 4096)), None);
        assert_eq!(memory.capacity(0, reserve, Some((1 << 20) - 4096)), Some((1 << 20) - 4096));
    }
}
