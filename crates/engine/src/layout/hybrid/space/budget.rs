//! The budget of what is written to the slow tier (`hybrid.write_budget_dwpd`).
//!
//! Everything that is written there counts, by the tier's own count: merges, bulk loads, tables
//! that come from other tiers, and slabs that found no room above. Of these only merges can wait,
//! and those that a caller asked for do not, once what memtables hold is in slots, for which
//! flushes may have to wait. A merge is chosen when the budget has what it would write by the
//! estimate, begins when it has what it will write at most (of packed values by what flushes have
//! packed since opening), and has that promised until it ends. The scarcer the budget, the more the
//! choice goes by what a merge writes (`score.rs` of the crate `popularity`).
//!
//! Where nothing leaves the fast tier any more, writers wait with the flush that finds no slot, and
//! come to the pace of the budget.

use crate::layout::hybrid::Hybrid;
use crate::settings::Settings;
use std::time::Duration;
use thermocline_device::TierIndex;
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::{Clock, Counter};
use thermocline_popularity::WriteBudget;

/// The tier that demotions write to.
const SLOW: TierIndex = TierIndex(1);

/// The budget of the slow tier, if it has one.
#[derive(Debug)]
pub(crate) struct SlowWrites {
    budget: Option<Mutex<WriteBudget>>,
    /// What the merge for room would have written that was refused last; 0 once one has begun.
    /// The planner looks for no other merge until the budget has this many bytes.
    refused_bytes: Mutex<u64>,
    /// Merges that were refused.
    pub refused: Counter,
}

impl SlowWrites {
    /// As `settings` say, and full.
    pub fn new(settings: &Settings, clock: &dyn Clock) -> Self {
        let dwpd = settings.hybrid.write_budget_dwpd;
        let slow_bytes = settings.tiers.get(SLOW.position()).map_or(0, |tier| tier.capacity.0);
        let budget = || Mutex::new(WriteBudget::new(slow_bytes, dwpd, clock.now_ns()));
        Self {
            budget: (dwpd > 0.0).then(budget),
            refused_bytes: Mutex::new(0),
            refused: Counter::default(),
        }
    }

    /// What is promised to merges, in bytes; none without a budget.
    pub fn promised_bytes(&self) -> u64 {
        self.budget.as_ref().map_or(0, |budget| budget.lock().promised_bytes())
    }

    /// A merge has ended for which so much was promised.
    pub fn release(&self, bytes: u64) {
        if let Some(budget) = &self.budget {
            budget.lock().release(bytes);
        }
    }
}

impl Hybrid {
    /// Asks the budget, which knows what has been written up to now; `unbounded` without one.
    fn ask_budget<T>(&self, unbounded: T, ask: impl FnOnce(&mut WriteBudget, u64) -> T) -> T {
        let Some(budget) = &self.fast.feedback.slow_writes.budget else { return unbounded };
        let written_bytes =
            self.shared.files.tiers()[SLOW.position()].traffic_total().written_bytes;
        let mut budget = budget.lock();
        let now_ns = self.shared.clock.now_ns();
        budget.observe(written_bytes, now_ns);
        ask(&mut budget, now_ns)
    }

    /// What the budget must have before the planner looks for a merge.
    fn least_bytes(&self) -> u64 {
        self.demotion_bytes().max(*self.fast.feedback.slow_writes.refused_bytes.lock())
    }

    /// A merge may be looked for, as far as the slow tier's wear is concerned and the room there.
    pub fn may_merge(&self) -> bool {
        let bytes = self.least_bytes();
        self.ask_budget(true, |budget, now_ns| budget.allows(bytes, now_ns))
            && self.fast.slow_tier_backoff.wait(self.shared.clock.now_ns()).is_zero()
    }

    /// How long it is until then.
    pub fn wait_to_merge(&self) -> Duration {
        let bytes = self.least_bytes();
        let wait_ns = self.ask_budget(0, |budget, now_ns| budget.wait_ns(bytes, now_ns));
        Duration::from_nanos(wait_ns)
            .max(self.fast.slow_tier_backoff.wait(self.shared.clock.now_ns()))
    }

    /// How short the budget is, from 0 (and without one) to 1.
    pub fn scarcity_of_writes(&self) -> f64 {
        self.ask_budget(0.0, |budget, now_ns| budget.scarcity(now_ns))
    }

    /// Promises what a merge is about to write, in place of what it was promised `before`, if the
    /// budget has it; it must be released. One that makes room is waited for when it is refused.
    pub fn promise_writes(&self, makes_room: bool, (before, bytes): (u64, u64)) -> bool {
        let is_promised = self.ask_budget(true, |budget, now_ns| {
            budget.release(before);
            // No other merge may have written meanwhile what this one was promised before.
            let allows = bytes <= before || budget.allows(bytes, now_ns);
            budget.promise(if allows { bytes } else { before });
            allows
        });
        let slow_writes = &self.fast.feedback.slow_writes;
        if makes_room {
            *slow_writes.refused_bytes.lock() = if is_promised { 0 } else { bytes };
        }
        slow_writes.refused.add(u64::from(!is_promised));
        is_promised
    }

    /// Bytes that may be written now, negative where more were; none without a budget.
    pub fn budget_bytes(&self) -> Option<i64> {
        self.ask_budget(None, |budget, now_ns| Some(budget.tokens_at(now_ns) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::hybrid::demotion::job::Demotion;
    use crate::layout::hybrid::rules::fullness::EvictionStep;
    use crate::support::still_clock::StillClock;
    use crate::support::{hybrid, run_to_end, stepped_environment, tier};
    use crate::{ByteSize, Db, Environment, Experiments, HybridSettings};
    use std::path::Path;
    use std::sync::Arc;
    use thermocline_device::FileKind;
    use thermocline_foundation::random::Random;

    const DAY_NS: u64 = 86_400_000_000_000;
    const SLOW_MIB: u64 = 64;
    const TABLE_BYTES: u64 = 64 << 10;

    /// A store on two tiers with a budget, and the clock that only sleeping moves.
    fn store(write_budget_dwpd: f64) -> (Db, Arc<StillClock>) {
        let clock = Arc::new(StillClock::default());
        // Every merge has all runs of its range, so that what it writes is known.
        let experiments = Experiments { runs: Some(1), ..Experiments::default() };
        let environment =
            Environment { clock: clock.clone(), experiments, ..stepped_environment() };
        let settings = Settings {
            tiers: vec![tier("/fast", 1), tier("/slow", SLOW_MIB)],
            memory: ByteSize::mib(1),
            table_size: ByteSize(TABLE_BYTES),
            hybrid: HybridSettings { write_budget_dwpd, ..hybrid().hybrid },
            ..hybrid()
        };
        (environment.create(Path::new("/home"), &settings).unwrap(), clock)
    }

    /// Spends the budget until so much is left.
    fn leave(db: &Db, left_bytes: u64) {
        let hybrid = db.engine().hybrid();
        let spent_bytes = hybrid.budget_bytes().unwrap() - left_bytes as i64;
        let budget = hybrid.fast.feedback.slow_writes.budget.as_ref().unwrap();
        let spent_bytes = u64::try_from(spent_bytes).expect("the budget has more than that");
        budget.lock().spend(spent_bytes, hybrid.shared.clock.now_ns());
    }

    /// Puts so many values of a thousand bytes that do not compress, under every `step`th key from
    /// `first` on, and flushes them.
    fn put(db: &Db, first: u32, count: u32, step: u32) {
        let (mut random, mut value) = (Random::new(first.into()), [0; 1000]);
        for number in 0..count {
            random.fill(&mut value);
            db.put((first + step * number).to_be_bytes(), value).unwrap();
        }
        db.flush().unwrap();
    }

    fn records_in_slots(db: &Db) -> u64 {
        db.engine().hybrid().fast.index.slot_records()
    }

    fn plan(db: &Db) -> Option<Demotion> {
        db.engine().hybrid().plan_demotion(EvictionStep::Cold)
    }

    /// A store with one table, so many cold records of its range in slots, and a full budget; and
    /// the bytes of the table.
    fn store_with_cold_records(count: u32) -> (Db, u64) {
        let (db, clock) = store(1.0);
        put(&db, 0, 60, 1000);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        clock.sleep(Duration::from_nanos(DAY_NS));
        put(&db, 1, count, 59_000 / count);
        let tables_bytes = db.stats().levels.iter().map(|level| level.bytes).sum();
        (db, tables_bytes)
    }

    /// Three questions, each of which refuses what the others let pass: whether to look at all,
    /// what is about to be written by the estimate, and what leaves indeed.
    #[test]
    fn no_range_is_looked_at_while_the_budget_lacks_what_was_refused_last() {
        let (db, _) = store_with_cold_records(60);
        let refused = || db.stats().fast_tier.unwrap().rules.refused_merges;
        leave(&db, db.engine().hybrid().demotion_bytes() + 1000);
        (0..3).for_each(|_| assert!(plan(&db).is_none()));
        assert_eq!(refused(), 1, "the first look says what the budget must have");
    }

    #[test]
    fn no_merge_is_chosen_that_would_write_more_than_the_budget_has() {
        for (missing_bytes, is_chosen) in [(2000, false), (0, true)] {
            // More than one merge takes along.
            let (db, tables_bytes) = store_with_cold_records(200);
            leave(&db, tables_bytes + db.engine().hybrid().demotion_bytes() - missing_bytes);
            assert_eq!(plan(&db).is_some(), is_chosen, "{missing_bytes} bytes are missing");
        }
    }

    #[test]
    fn no_merge_begins_from_which_more_leaves_than_was_expected_and_the_budget_has() {
        for (left_bytes, leaves) in [(1000, false), (80_000, true)] {
            let (db, _) = store_with_cold_records(60);
            let mut merge = plan(&db).unwrap();
            put(&db, 2, 60, 980);
            let promised_bytes = db.engine().hybrid().fast.feedback.slow_writes.promised_bytes();
            leave(&db, promised_bytes + left_bytes);
            run_to_end(&mut merge);
            let left = if leaves { 0 } else { 120 };
            assert_eq!(records_in_slots(&db), left, "beside {left_bytes} bytes");
        }
    }

    /// A merge for space asks for all that may leave with it, or it would be refused when that is
    /// known, and chosen again at once, for ever.
    #[test]
    fn a_merge_for_space_that_the_budget_refuses_is_not_chosen() {
        let (db, clock) = store(1.0);
        put(&db, 0, 60, 1000);
        db.compact_range(None, None, &mut |_| {}).unwrap();
        clock.sleep(Duration::from_nanos(DAY_NS));
        // Enough for the table, and not for as many tombstones beside it.
        let tables_bytes = db.stats().levels.iter().map(|level| level.bytes).sum::<u64>();
        leave(&db, tables_bytes + 1000);
        // More of them than there are records.
        (0..600u32).for_each(|number| db.delete((100 * number).to_be_bytes()).unwrap());
        db.flush().unwrap();
        let mut is_idle = false;
        for _ in 0..300 {
            db.engine().shared().jobs.let_work(|| is_idle = true);
        }
        assert!(is_idle, "background work goes on and writes nothing");
        let entries = || db.stats().levels.iter().map(|level| level.entries).sum::<u64>();
        assert!(entries() >= 60);
        clock.sleep(Duration::from_nanos(DAY_NS));
        db.settle().unwrap();
        assert_eq!(entries(), 0, "the budget has come back");
    }

    #[test]
    fn only_merges_that_make_room_are_waited_for_and_a_promise_is_kept() {
        let (db, clock) = store(0.2);
        let engine = db.engine();
        let fast = &engine.hybrid().fast;
        let left_bytes = engine.hybrid().demotion_bytes() + 1000;
        let spend = |bytes| {
            let budget = fast.feedback.slow_writes.budget.as_ref().unwrap();
            budget.lock().spend(bytes, clock.now_ns());
        };
        spend(engine.hybrid().budget_bytes().unwrap() as u64 - left_bytes);
        let promise = |makes_room, bytes| engine.hybrid().promise_writes(makes_room, bytes);
        assert!(!promise(false, (0, left_bytes + 1000)));
        assert!(engine.hybrid().may_merge(), "others go on");
        assert!(!promise(true, (0, left_bytes + 1000)));
        assert!(!engine.hybrid().may_merge());
        assert!(promise(true, (0, left_bytes)));
        spend(left_bytes);
        assert!(!promise(true, (left_bytes, left_bytes + 1)), "there is no more");
        assert!(promise(true, (left_bytes, left_bytes)), "what it has it keeps");
    }

    fn written_bytes(db: &Db) -> u64 {
        db.stats().tiers[1].written_bytes
    }

    /// More is written than the budget lets leave the fast tier: writers wait, nothing is lost, and
    /// at no time of the day there is more on the slow tier than has flowed in.
    #[test]
    fn over_a_day_no_more_is_written_than_budget_and_burst_and_writers_come_to_its_pace() {
        let (db, clock) = store(0.2);
        let day_bytes = 0.2 * (SLOW_MIB << 20) as f64;
        let burst_bytes = day_bytes / 24.0;
        let (mut random, mut value) = (Random::new(1), vec![0; 2000]);
        let mut kept = vec![None; 2000];
        let (mut puts, mut most) = (0, 0.0f64);
        while clock.now_ns() < DAY_NS {
            let key = random.below(kept.len() as u64) as usize;
            random.fill(&mut value);
            db.put(key.to_be_bytes(), &value).unwrap();
            kept[key] = Some(value.clone());
            puts += 1;
            assert!(puts < 100_000, "only waiting moves the clock, and no writer waits");
            let flowed_bytes = day_bytes * clock.now_ns() as f64 / DAY_NS as f64;
            let over_bytes = written_bytes(&db) as f64 - burst_bytes - flowed_bytes;
            // Of a table more is written than its records: index, filter, and the rest of a page.
            assert!(over_bytes < TABLE_BYTES as f64 / 2.0, "{over_bytes} after {puts} writes");
            most = most.max(over_bytes + burst_bytes);
        }
        let stats = db.stats();
        let fast = stats.fast_tier.unwrap();
        assert!(stats.tiers[1].written_bytes as f64 > 0.9 * day_bytes, "{:?}", stats.tiers[1]);
        assert!(most > 0.5 * burst_bytes, "the burst is used, too: {most}");
        assert!(fast.demoted_records > 1000 && fast.rules.refused_merges > 0, "{fast:?}");
        for (key, value) in kept.iter().enumerate() {
            let found = db.get(key.to_be_bytes()).unwrap();
            assert_eq!(found.as_deref(), value.as_deref(), "{key}");
        }
    }

    #[test]
    fn slabs_that_found_no_room_above_count_as_what_is_written() {
        let (db, clock) = store(10.0);
        let engine = db.engine();
        let fast = &engine.hybrid().fast;
        let full_bytes = engine.hybrid().budget_bytes().unwrap();
        // No record gets a slot that is freed, so flushes that wait in vain overdraw the tier.
        let held = fast.slabs.delay_slot_reuse();
        let slabs = || engine.shared().files.tiers()[1].traffic(FileKind::Slab).written_bytes;
        let mut round = 0;
        while slabs() == 0 {
            assert!(round < 250, "no slab of the fast tier goes to the slow one");
            round += 1;
            for key in 0..200u32 {
                db.put(key.to_be_bytes(), [round; 1000]).unwrap();
            }
            db.flush().unwrap();
        }
        drop(held);
        let flowed_bytes = 10.0 * (SLOW_MIB << 20) as f64 * clock.now_ns() as f64 / DAY_NS as f64;
        let spent_bytes =
            full_bytes as f64 + flowed_bytes - engine.hybrid().budget_bytes().unwrap() as f64;
        assert!(spent_bytes + 1.0 >= slabs() as f64, "{spent_bytes} of {}", slabs());
    }
}
