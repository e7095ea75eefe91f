//! What regulates the traffic between the tiers: the pinning threshold, compactions that reads ask
//! for, whether reads recur (where they do not they move nothing up), whether copies get slots,
//! what a hit in memory is worth that spares a slot's read, and the wear of the slow tier
//! (`budget.rs`). The rules are in the crate `popularity`; here they are given the store's counters
//! and asked.

use crate::error::Result;
use crate::layout::hybrid::FastTier;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::space::budget::SlowWrites;
use crate::settings::Settings;
use crate::settings::hybrid::{DemotionPolicy, Pinning as PinningMode};
use std::sync::Arc;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use thermocline_foundation::{Clock, Counter};
use thermocline_popularity::{
    BucketSettings, Buckets, CopyAdmission, CopyAdmissionSettings, CopyTurns, CopyUses, CopyWorth,
    CopyWorthSettings, DensityComparison, DensitySettings, Kind, PinningThreshold, ReadCost,
    ReadCounters, ReadTriggered, ReadTriggeredSettings, ThresholdMode, ThresholdTuner,
    TunerSettings, Waits, slow_io,
};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Regulation {
    pub(crate) tuner: Mutex<ThresholdTuner>,
    pub(crate) read_triggered: Option<Mutex<ReadTriggered>>,
    /// Merges that reads asked for, in the epoch of this number.
    merges_for_reads: Mutex<(u64, usize)>,
    epoch_operations: u64,
    /// Operations of the store when a read woke the workers last, for an epoch was over.
    woken_operations: AtomicU64,
    pub slow_writes: SlowWrites,
    /// Of the last demotion that was chosen by its score.
    pub last_score: Mutex<Option<f64>>,
    pub copies: Copies,
    /// Look-ups that slots answered, and those that tables did.
    pub slot_reads: Recurrence,
    pub table_reads: Recurrence,
    pub read_waits: ReadWaits,
    /// Entries of all tables.
    pub table_entries: AtomicU64,
    /// The share of all keys that the threshold is a share of: a fifth, or what the settings say.
    pub share_of_keys: AtomicU64,
    /// What is known of ranges without looking at every record.
    pub buckets: Option<Buckets>,
}

/// What becomes of clean copies, in slots and in memory only, and which of them are worth slots.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Reads that they served.
    pub read: Counter,
    /// Those that a newer version replaced.
    pub replaced: Counter,
    /// Reads for which the slot of one was read.
    pub served: Counter,
    /// Those that lost their slots because nobody asked for them.
    pub unasked: Counter,
    worth: Mutex<CopyWorth>,
    /// Which share of them gets slots.
    pub admission: Mutex<CopyAdmission>,
    /// The last judgement.
    get_slots: AtomicBool,
}

impl Default for Copies {
    fn default() -> Self {
        Self {
            read: Counter::default(),
            replaced: Counter::default(),
            served: Counter::default(),
            unasked: Counter::default(),
            admission: Mutex::new(CopyAdmission::new(CopyAdmissionSettings::default())),
            worth: Mutex::new(CopyWorth::new(CopyWorthSettings::default())),
            get_slots: AtomicBool::new(true),
        }
    }
}

impl Copies {
    /// Whether they get slots, as it was judged last.
    pub fn get_slots(&self) -> bool {
        self.get_slots.load(Relaxed)
    }

    /// Judges anew whether they get slots, of which `slots` have a record, and which share does.
    pub fn judge(&self, slots: u64) -> bool {
        let turns = CopyTurns { served: self.served.get(), dropped: self.unasked.get() };
        self.admission.lock().observe(turns, slots);
        let uses = CopyUses { read: self.read.get(), replaced: self.replaced.get() };
        let get_slots = self.worth.lock().observe(uses);
        self.get_slots.store(get_slots, Relaxed);
        get_slots
    }
}

/// Reads wake the workers for the end of an epoch this often in the next one, at the most.
const WAKES_AN_EPOCH: u64 = 16;

/// Looks at whether reads recur are this many reads apart.
const READS_A_LOOK: u64 = 1024;

/// Whether records of a place that were asked for are asked for again sooner than the others there.
#[derive(Debug)]
pub(crate) struct Recurrence {
    tracked_reads: AtomicU64,
    other_reads: AtomicU64,
    comparison: Mutex<DensityComparison>,
    /// The last judgement.
    reads_recur: AtomicBool,
}

impl Default for Recurrence {
    fn default() -> Self {
        Self {
            tracked_reads: AtomicU64::new(0),
            other_reads: AtomicU64::new(0),
            comparison: Mutex::new(DensityComparison::new(DensitySettings::default())),
            reads_recur: AtomicBool::new(true),
        }
    }
}

impl Recurrence {
    /// As it was judged last.
    pub fn reads_recur(&self) -> bool {
        self.reads_recur.load(Relaxed)
    }

    /// A record was read there, which was tracked before. True where it is time for a look.
    pub fn note_read(&self, was_tracked: bool) -> bool {
        let reads = if was_tracked { &self.tracked_reads } else { &self.other_reads };
        (reads.fetch_add(1, Relaxed) + 1).is_multiple_of(READS_A_LOOK)
    }

    /// Takes a look; of the records there so many are tracked, and so many are not.
    fn judge(&self, tracked: u64, others: u64) {
        let tracked = Kind { records: tracked, hits: self.tracked_reads.load(Relaxed) };
        let others = Kind { records: others, hits: self.other_reads.load(Relaxed) };
        let reads_recur = self.comparison.lock().observe(tracked, others);
        self.reads_recur.store(reads_recur, Relaxed);
    }
}

/// How long look-ups waited for slots and for tables, and what follows from it.
#[derive(Debug)]
pub(crate) struct ReadWaits {
    clock: Arc<dyn Clock>,
    slots: Waited,
    tables: Waited,
    cost: Mutex<ReadCost>,
}

#[derive(Debug, Default)]
struct Waited {
    reads: Counter,
    ns: Counter,
}

impl Waited {
    fn note(&self, ns: u64) {
        self.reads.add(1);
        self.ns.add(ns);
    }

    fn so_far(&self) -> Waits {
        Waits { reads: self.reads.get(), ns: self.ns.get() }
    }
}

impl ReadWaits {
    fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            slots: Waited::default(),
            tables: Waited::default(),
            cost: Mutex::default(),
        }
    }

    /// Carries out the read of a slot.
    pub fn for_slot<T>(&self, read: impl FnOnce() -> T) -> T {
        let began_ns = self.clock.now_ns();
        let read = read();
        self.slots.note(self.clock.now_ns() - began_ns);
        read
    }

    /// Carries out a look-up in tables, and notes those that found something: the others seldom
    /// read more than a filter.
    pub fn for_tables<T>(&self, look_up: impl FnOnce() -> Result<Option<T>>) -> Result<Option<T>> {
        let began_ns = self.clock.now_ns();
        let found = look_up()?;
        if found.is_some() {
            self.tables.note(self.clock.now_ns() - began_ns);
        }
        Ok(found)
    }

    /// How many times as long tables take as slots; none before that is known.
    pub fn ratio(&self) -> Option<f64> {
        self.cost.lock().ratio()
    }
}

impl FastTier {
    /// Judges anew what a hit in memory is worth that spares the read of a slot.
    pub fn judge_waits(&self) {
        let ReadWaits { slots, tables, cost, .. } = &self.regulation.read_waits;
        let mut cost = cost.lock();
        if cost.observe(slots.so_far(), tables.so_far()) {
            self.cache.set_worth_of_backed(cost.worth_of_fast_hit());
        }
    }

    /// Judges anew whether reads of slots recur. Records that memory has were asked for, and their
    /// slots are not.
    pub fn judge_slots(&self) {
        let asked = self.popularity.histogram().on_fast_total();
        let tracked = asked.saturating_sub(self.cache.len() as u64);
        self.regulation.slot_reads.judge(tracked, self.index.len().saturating_sub(asked));
    }

    /// Judges anew whether reads of tables recur. Their entries of which the fast tier has a record
    /// are not asked; those that it has a newer version of are counted all the same, so where much
    /// is written anew reads seem to recur a little more than they do.
    pub fn judge_tables(&self) {
        let tracked = self.popularity.histogram().on_slow_total();
        let entries = self.regulation.table_entries.load(Relaxed);
        let known = tracked + self.index.clean_records();
        self.regulation.table_reads.judge(tracked, entries.saturating_sub(known));
    }
}

impl Regulation {
    /// Rules as `settings` want them.
    pub fn new(settings: &Settings, clock: &Arc<dyn Clock>) -> Self {
        let hybrid = &settings.hybrid;
        let mode = match hybrid.pinning {
            PinningMode::Fixed => ThresholdMode::Fixed,
            PinningMode::Auto => ThresholdMode::Auto,
        };
        let start = f64::from(hybrid.pinning_percent) / 100.0;
        let epoch_operations = hybrid.epoch_operations;
        let tuner = TunerSettings { mode, start, epoch_operations, ..TunerSettings::default() };
        let tuner = ThresholdTuner::new(tuner);
        let read_triggered = hybrid.read_triggered.then(|| {
            let cool_down_operations = hybrid.cool_down_operations;
            Mutex::new(ReadTriggered::new(ReadTriggeredSettings {
                epoch_operations,
                cool_down_operations,
                ..ReadTriggeredSettings::default()
            }))
        });
        let slow_writes = SlowWrites::new(settings, &**clock);
        let estimates = hybrid.policy == DemotionPolicy::Approximate || hybrid.read_triggered;
        let buckets = estimates.then(|| Buckets::new(BucketSettings::default()));
        let copies = Copies::default();
        Self {
            tuner: Mutex::new(tuner),
            read_triggered,
            merges_for_reads: Mutex::default(),
            epoch_operations,
            woken_operations: AtomicU64::new(0),
            slow_writes,
            last_score: Mutex::default(),
            copies,
            slot_reads: Recurrence::default(),
            table_reads: Recurrence::default(),
            read_waits: ReadWaits::new(clock),
            table_entries: AtomicU64::new(0),
            share_of_keys: AtomicU64::new(u64::MAX),
            buckets,
        }
    }

    /// Merges that reads asked for in this epoch. There may be as many as there are ranges: what
    /// memory has no room for goes down again, and would be brought up again and again.
    pub fn merges_for_reads(&self) -> usize {
        let epoch = self.read_triggered.as_ref().map_or(0, |rule| rule.lock().epochs_run());
        let mut merges = self.merges_for_reads.lock();
        if merges.0 != epoch {
            *merges = (epoch, 0);
        }
        merges.1
    }

    /// One more of them.
    pub fn begin_merge_for_reads(&self) {
        self.merges_for_reads.lock().1 += 1;
    }

    /// The pinning threshold of the moment.
    pub fn threshold(&self) -> PinningThreshold {
        self.tuner.lock().threshold()
    }
}

impl Hybrid {
    /// Lets the rules see what was asked of the store since; true where reads ask for a compaction
    /// (PrismDB, section 5.3).
    pub fn regulate(&self) -> bool {
        let metrics = &self.shared.counts;
        let (reads, operations) = (metrics.gets.get(), self.shared.operations());
        let slow_reads = metrics.slow_reads.get();
        let cost = slow_io(slow_reads, metrics.demotions.io_bytes.get());
        self.fast.regulation.tuner.lock().observe(operations, cost);
        let Some(read_triggered) = &self.fast.regulation.read_triggered else { return false };
        let fast_reads = metrics.fast_reads.get();
        let now = ReadCounters { operations, fast_reads, slow_reads, reads };
        read_triggered.lock().observe(now, self.fast.popularity.histogram().slow_share())
    }

    /// Wakes the workers where an epoch is over of which [`Hybrid::regulate`] is to hear: they ask
    /// it when they look for work, and reads alone may wake them for nothing else. Where they have
    /// other work, or none is allowed, they are not woken at every look.
    pub fn wake_at_end_of_epoch(&self) {
        let rules = &self.fast.regulation;
        let operations = self.shared.operations();
        let since_woken = operations.saturating_sub(rules.woken_operations.load(Relaxed));
        if since_woken < rules.epoch_operations / WAKES_AN_EPOCH {
            return;
        }
        let read_triggered = rules.read_triggered.as_ref();
        let is_over = rules.tuner.lock().is_epoch_over(operations)
            || read_triggered.is_some_and(|rule| rule.lock().is_epoch_over(operations));
        if is_over {
            rules.woken_operations.store(operations, Relaxed);
            self.shared.jobs.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::hybrid::{HybridSettings, Promotion};
    use crate::support::hooked::{Call, HookedDevices};
    use crate::support::still_clock::StillClock;
    use crate::support::{hybrid, stepped_environment};
    use crate::{ByteSize, Db, Environment};
    use std::path::Path;
    use std::time::Duration;
    use thermocline_device::MemoryDevices;
    use thermocline_foundation::random::Random;

    const EPOCH: u64 = 1000;
    const RECORDS: u32 = 4000;

    /// A store with all of its records in tables, opened anew: nothing is known of any key.
    fn reopened(hybrid_settings: &HybridSettings) -> Db {
        reopened_in(&stepped_environment(), hybrid_settings)
    }

    fn reopened_in(environment: &Environment, hybrid_settings: &HybridSettings) -> Db {
        let settings = Settings {
            table_size: ByteSize::kib(256),
            hybrid: HybridSettings { epoch_operations: EPOCH, ..*hybrid_settings },
            ..hybrid()
        };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        for key in 0..RECORDS {
            // What does not compress.
            let words = (0..125u64).map(|word| {
                thermocline_table::key_hash(&(word << 32 | u64::from(key)).to_be_bytes())
            });
            let value: Vec<u8> = words.flat_map(u64::to_be_bytes).collect();
            db.put(key.to_be_bytes(), value).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        assert_eq!(db.stats().fast_tier.unwrap().records, 0);
        db
    }

    /// What statistics say after 5000 look-ups of records in tables and 1000 of records in slots,
    /// of devices that take so many microseconds to read.
    fn slow_read_ratio(fast_us: u64, slow_us: u64) -> Option<f64> {
        let clock = Arc::new(StillClock::default());
        let passing = Arc::clone(&clock);
        let hook = Arc::new(move |call, path: &Path, _: &str| {
            let us = if path.starts_with("/slow") { slow_us } else { fast_us };
            if call == Call::Read {
                passing.sleep(Duration::from_micros(us));
            }
            Ok(())
        });
        let environment = stepped_environment();
        let devices = Arc::new(HookedDevices::new(Arc::clone(&environment.devices), hook));
        let environment = Environment { devices, clock, ..environment };
        let promotion = Promotion::None;
        let hybrid_settings = HybridSettings { promotion, ..hybrid().hybrid };
        let settings = Settings { hybrid: hybrid_settings, ..hybrid() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        let mut random = Random::new(1);
        let mut put = |key: u32| {
            let mut value = [0; 1000];
            random.fill(&mut value);
            db.put(key.to_be_bytes(), value).unwrap();
        };
        (0..5000).for_each(&mut put);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        (5000..6000).for_each(put);
        db.flush().unwrap();
        let read = |key: u32| assert!(db.get(key.to_be_bytes()).unwrap().is_some());
        assert_eq!(db.stats().fast_tier.unwrap().regulation.slow_read_ratio, None);
        (5000..6000).for_each(read);
        (0..5000).for_each(read);
        db.stats().fast_tier.unwrap().regulation.slow_read_ratio
    }

    #[test]
    fn waits_for_tables_and_slots_are_compared() {
        assert_eq!(slow_read_ratio(0, 0), None, "a clock that stands still tells nothing");
        let [alike, slower] = [100, 1000].map(|us| slow_read_ratio(100, us).unwrap());
        // Of the records of a block the first is waited for.
        assert!((0.1..=0.5).contains(&alike), "{alike}");
        assert!((9.0..=11.0).contains(&(slower / alike)), "{slower}, {alike}");
    }

    /// Looks these keys up and lets what that asks for be done.
    fn read(db: &Db, keys: impl Iterator<Item = u32>) {
        for key in keys {
            assert_eq!(db.get(key.to_be_bytes()).unwrap().is_some(), key < RECORDS);
        }
        db.settle().unwrap();
    }

    /// Stage and epochs run of the merges that reads ask for, and records that moved up.
    fn read_triggered(db: &Db) -> (&'static str, u64, u64) {
        let fast = db.stats().fast_tier.unwrap();
        let rules = fast.regulation;
        (&*rules.read_triggered_stage.leak(), rules.read_triggered_epochs, fast.promoted_records)
    }

    /// Workers that sleep, and nobody who settles.
    #[test]
    fn reads_alone_wake_the_workers_for_the_merges_that_they_ask_for() {
        let hybrid_settings = HybridSettings {
            promotion: Promotion::Demotion,
            read_triggered: true,
            tracker_percent: 50,
            ..hybrid().hybrid
        };
        let devices = Arc::new(MemoryDevices::default());
        let environment = Environment { devices, ..Environment::default() };
        let db = reopened_in(&environment, &hybrid_settings);
        for _ in 0..8 {
            (0..RECORDS).step_by(4).for_each(|key| {
                assert!(db.get(key.to_be_bytes()).unwrap().is_some());
            });
            db.engine().shared.jobs.wait_idle();
        }
        let (_, epochs, promoted) = read_triggered(&db);
        assert!(epochs > 0 && promoted > 0, "{epochs} epochs, {promoted} records");
    }

    /// The paper's course (PrismDB, section 5.3), with what moves up only in merges.
    #[test]
    fn hot_records_of_tables_move_up_by_merges_that_reads_ask_for_until_an_epoch_is_no_better() {
        let db = reopened(&HybridSettings {
            promotion: Promotion::Demotion,
            read_triggered: true,
            cool_down_operations: 3 * EPOCH,
            candidates: 64,
            tracker_percent: 50,
            ..hybrid().hybrid
        });
        let hot = || (0..RECORDS).step_by(4);
        let slow_reads = || db.stats().fast_tier.unwrap().slow_reads;
        read(&db, hot().take(999));
        assert_eq!(read_triggered(&db), ("detecting", 0, 0), "not before an epoch is over");
        read(&db, hot().skip(999));
        let (stage, epochs, promoted) = read_triggered(&db);
        assert_eq!((stage, epochs), ("running", 0));
        // Seven tenths of what is tracked are pinned; all of it is as popular as the rest.
        assert!((600..=800).contains(&promoted), "{promoted} of 1000");
        let before = slow_reads();
        read(&db, hot());
        assert_eq!(slow_reads() - before, 1000 - promoted, "the rest");
        let (stage, epochs, _) = read_triggered(&db);
        assert_eq!((stage, epochs), ("running", 1), "it was better by far");
        read(&db, hot());
        let (stage, epochs, promoted) = read_triggered(&db);
        assert_eq!((stage, epochs), ("cooling_down", 2), "it was no better");
        (0..2).for_each(|_| read(&db, hot()));
        assert_eq!(read_triggered(&db), ("cooling_down", 2, promoted));
        read(&db, hot());
        assert_eq!(read_triggered(&db), ("detecting", 2, promoted));
    }

    #[test]
    fn where_nothing_may_move_up_reads_ask_for_no_merge() {
        let db = reopened(&HybridSettings {
            promotion: Promotion::None,
            read_triggered: true,
            ..hybrid().hybrid
        });
        let written = db.stats().tiers[1].written_bytes;
        read(&db, 0..1000);
        assert_eq!(read_triggered(&db), ("running", 0, 0));
        assert_eq!(db.stats().tiers[1].written_bytes, written);
    }

    #[test]
    fn once_all_ranges_had_their_turn_reads_ask_for_no_merge_until_the_next_epoch() {
        let db = reopened(&HybridSettings {
            promotion: Promotion::Demotion,
            read_triggered: true,
            cool_down_operations: EPOCH,
            ..hybrid().hybrid
        });
        let regulation = &db.engine().hybrid().fast.regulation;
        (0..100).for_each(|_| regulation.begin_merge_for_reads());
        for course in [("running", 0, 0), ("cooling_down", 1, 0), ("detecting", 1, 0)] {
            read(&db, 0..1000);
            assert_eq!(read_triggered(&db), course);
        }
        read(&db, 0..1000);
        let (stage, _, promoted) = read_triggered(&db);
        assert!(stage == "running" && promoted > 0, "{stage} {promoted}");
    }

    #[test]
    fn where_reads_do_not_recur_they_move_nothing_up_and_where_they_do_again_they_do_again() {
        const MANY: u64 = 16_000;
        let mut settings = Settings { memory: ByteSize::mib(4), ..hybrid() };
        settings.tiers[0].capacity = ByteSize::mib(4);
        let db = stepped_environment().create(Path::new("/home"), &settings).unwrap();
        (0..MANY).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.settle().unwrap();
        let stats = || db.stats().fast_tier.unwrap();
        assert!(stats().table_reads_recur && stats().slot_reads_recur, "until more is known");
        let read = |keys: &mut dyn Iterator<Item = u64>| {
            let before = stats().promoted_records;
            for (read, key) in keys.enumerate() {
                assert!(db.get(key.to_be_bytes()).unwrap().is_some());
                if read % 500 == 0 {
                    db.settle().unwrap();
                }
            }
            stats().promoted_records - before
        };
        let mut random = Random::new(7);
        let mut uniform = |reads: usize| read(&mut (0..reads).map(|_| random.below(MANY)));
        assert!(uniform(40_000) > 0, "it takes some to be sure");
        assert!(!stats().table_reads_recur && !stats().slots_at_first_read);
        assert!(uniform(5000) < 50, "no more than memory happens to have room for");
        let cache = &db.engine().hybrid().fast.cache;
        let (used, capacity) = (cache.bytes(), cache.capacity_bytes());
        assert!(used > capacity / 8 * 7, "memory is full: {used} of {capacity}");
        // Many are in tables.
        let hot = read(&mut (0..40_000).map(|read| read % 400));
        assert!(hot > 100 && stats().table_reads_recur, "{hot}");
    }

    /// With a cold memory all that is read goes there, and is read there from then on: what is read
    /// from slots are the others.
    #[test]
    fn memory_fills_where_all_is_in_slots_however_it_is_read() {
        let environment = stepped_environment();
        let settings = Settings { memory: ByteSize::mib(8), ..hybrid() };
        let db = environment.create(Path::new("/home"), &settings).unwrap();
        (0..RECORDS).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
        db.close().unwrap();
        let db = environment.open(Path::new("/home")).unwrap();
        let mut random = Random::new(7);
        for _ in 0..60_000 {
            let key = random.below(u64::from(RECORDS)) as u32;
            assert!(db.get(key.to_be_bytes()).unwrap().is_some());
        }
        assert_eq!(db.stats().fast_tier.unwrap().slow_reads, 0);
        let cache = &db.engine().hybrid().fast.cache;
        let (used, capacity) = (cache.bytes(), cache.capacity_bytes());
        assert!(used > capacity / 8 * 7, "{used} of {capacity}");
    }

    #[test]
    fn some_more_keys_are_known_than_are_up_unless_a_share_of_all_is_set_or_nothing_has_left() {
        let tracked = |tracker_percent, capacity| {
            let hybrid_settings = HybridSettings { tracker_percent, ..hybrid().hybrid };
            let mut settings = Settings { hybrid: hybrid_settings, ..hybrid() };
            settings.tiers[0].capacity = ByteSize::mib(capacity);
            let db = stepped_environment().create(Path::new("/home"), &settings).unwrap();
            (0..3 * RECORDS).for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
            db.flush().unwrap();
            db.settle().unwrap();
            let fast = &db.engine().hybrid().fast;
            let keys = [u64::from(3 * RECORDS), fast.index.len()];
            keys.map(|keys| 100 * fast.popularity.capacity() as u64 / keys)
        };
        let [_, of_fast] = tracked(0, 6);
        assert!((110..=140).contains(&of_fast), "{of_fast}");
        for (percent, capacity) in [(50, 6), (20, 32), (0, 32)] {
            let [of_all, _] = tracked(percent, capacity);
            let share = if percent == 0 { 20 } else { u64::from(percent) };
            assert!((share - share / 8..=share + share / 8).contains(&of_all), "{of_all}");
        }
    }

    /// Share of tracked keys that is pinned, in percent; what the tuner is at; steps that it kept.
    fn tuner(db: &Db) -> (f64, &'static str, u64) {
        let fast = db.stats().fast_tier.unwrap();
        let rules = fast.regulation;
        (fast.pinning_percent.round(), &*rules.pinning_stage.leak(), rules.pinning_steps_kept)
    }

    #[test]
    fn the_threshold_moves_and_merges_count_as_look_ups_do() {
        let (pinning, promotion) = (PinningMode::Auto, Promotion::None);
        let db = reopened(&HybridSettings { pinning, promotion, ..hybrid().hybrid });
        // So many look-ups of an epoch are of records in tables, the rest of keys that are nowhere.
        let epoch = |slow: u32| read(&db, (0..slow).chain(RECORDS..RECORDS + 1000 - slow));
        let compact = || db.compact_range(None, None, &mut |_| {}).unwrap();
        assert_eq!(tuner(&db), (70.0, "measuring", 0));
        epoch(1000);
        assert_eq!(tuner(&db), (75.0, "settling", 0));
        epoch(1000);
        epoch(900);
        assert_eq!(tuner(&db), (80.0, "settling", 1), "a tenth cheaper");
        epoch(900);
        compact();
        // 8 MB are some 256 look-ups.
        epoch(750);
        assert_eq!(tuner(&db), (75.0, "settling", 1), "dearer, with what was merged");
    }

    /// So many keys has a table of the paper (section 6).
    #[test]
    fn a_bucket_has_64_thousand_keys_and_is_divided_at_twice_as_many() {
        let db = stepped_environment().create(Path::new("/home"), &hybrid()).unwrap();
        let buckets = db.engine().hybrid().fast.regulation.buckets.as_ref().unwrap();
        // Each of them is one of 32.
        let tell = |key: u64| buckets.insert_fast(&key.to_be_bytes(), key << 29, 100);
        let of_keys = |keys: u64| keys / 32;
        (0..of_keys(128 << 10)).for_each(tell);
        assert_eq!(buckets.len(), 1);
        tell(of_keys(128 << 10));
        assert_eq!(buckets.len(), 2);
        let all = buckets.estimate(&[], None, &thermocline_popularity::Pinning::nothing());
        assert_eq!(all.fast_objects, f64::from((128 << 10) + 32));
    }
}
