//! The plan of what moves between the tiers: room for what comes first, then what is wanted on the
//! fast tier, then what reads ask for.

use crate::environment::experiments::Promotion;
use crate::jobs::Job;
use crate::layout::hybrid::Hybrid;
use crate::layout::hybrid::INDEX_COPY;
use crate::layout::hybrid::copies::promotion::PROMOTION;
use crate::layout::hybrid::copies::spill::SPILL;
use crate::layout::hybrid::rules::fullness::{EvictionStep, Need};
use crate::layout::hybrid::single_step::SingleStep;
use crate::layout::hybrid::space::slot_sizes::SIZES;
use crate::layout::hybrid::space::sweep::Sweep;
use std::sync::Arc;

/// The most useful job that can begin now.
pub(super) fn plan_fast_tier(hybrid: &Arc<Hybrid>) -> Option<Box<dyn Job>> {
    let fast = &hybrid.fast;
    let need = hybrid.look_at_room();
    // Asked before, too: a job that is at work and ends meanwhile has made room, or wakes the
    // planner.
    let was_at_work = fast.room.is_at_work();
    let room: Option<Box<dyn Job>> = match need {
        Need::Nothing => None,
        Need::OtherSizes => SingleStep::begin(hybrid, &SIZES),
        Need::Room => make_room(hybrid),
    };
    // A demotion that waits for the slow tier, for its wear or for room there, can make room later.
    let waits = !hybrid.may_merge();
    let demoting = || waits || hybrid.versions.tables().claims.has_ranges();
    fast.room.planned(need, room.is_some() || was_at_work || fast.room.is_at_work() || demoting());
    // Where steps are taken one by one, any moment may be the one at which enough has gathered.
    let in_hurry = hybrid.shared.compaction_rate.is_hurried() || hybrid.shared.jobs.are_stepped();
    // Copies do not compete with what is written for the slots that there are.
    let spill = || {
        let is_due = fast.spill.is_due(in_hurry) && !fast.room.is_wanted();
        is_due.then(|| SingleStep::begin(hybrid, &SPILL)).flatten()
    };
    // It is small, and while it is missing look-ups read more of the slow tier.
    let copy = || hybrid.locator.is_due().then(|| SingleStep::begin(hybrid, &INDEX_COPY)).flatten();
    // What memory gives up must not wait for promotions, of which there may always be more.
    let spills_first = fast.spill.waiting.is_full();
    copy()
        .or(room)
        .or_else(|| spills_first.then(spill).flatten())
        .or_else(|| {
            let is_due = fast.promotions.offers.is_due(in_hurry);
            is_due.then(|| SingleStep::begin(hybrid, &PROMOTION)).flatten()
        })
        .or_else(spill)
        .or_else(|| {
            let asked = hybrid.regulate() && need == Need::Nothing;
            let by_merges = fast.rules.promotion == Promotion::Demotion;
            if asked && by_merges && !fast.promotions.offers.is_empty() {
                // However few: what a merge met must be up before the next is chosen. Where reads
                // offer records too, there are always some, and these gather.
                return SingleStep::begin(hybrid, &PROMOTION);
            }
            let began_ns = hybrid.shared.clock.now_ns();
            let merge = asked.then(|| hybrid.plan_read_triggered()).flatten()?;
            Some(Box::new(merge.begun_at(began_ns)) as _)
        })
        .or_else(|| (need == Need::Nothing).then(|| hybrid.plan_for_space()).flatten())
}

/// What makes room the cheapest; none where that is under way, or nothing does.
fn make_room(hybrid: &Arc<Hybrid>) -> Option<Box<dyn Job>> {
    let fast = &hybrid.fast;
    loop {
        let began_ns = hybrid.shared.clock.now_ns();
        let step = fast.room.eviction_step(began_ns);
        let job = match step {
            EvictionStep::Sweep => {
                Sweep::begin(hybrid).map(|sweep| Box::new(sweep) as Box<dyn Job>)
            }
            EvictionStep::Cold | EvictionStep::Hot => {
                let demotion = hybrid.plan_demotion(step);
                demotion.map(|demotion| Box::new(demotion.begun_at(began_ns)) as _)
            }
        };
        let goes_on = || {
            fast.room.is_draining() && fast.room.eviction_step(hybrid.shared.clock.now_ns()) != step
        };
        if job.is_some() || !goes_on() {
            return job;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::experiments::{DemotionPolicy, Experiments};
    use crate::layout::hybrid::FastTier;
    use crate::support::{hybrid, run_to_end, stepped_with, until};
    use crate::{ByteSize, Db, HybridSettings, Settings};
    use thermocline_table::key_hash;

    /// Keys between those that tables have from the beginning.
    const STEP: u32 = 1000;

    /// All is counted and all are looked at; what is tracked is what tests touch.
    const EXPERIMENTS: Experiments = Experiments {
        policy: Some(DemotionPolicy::Precise),
        candidates: Some(64),
        ..Experiments::NONE
    };

    fn settings() -> HybridSettings {
        HybridSettings { tracker_percent: 100, ..hybrid().hybrid }
    }

    /// A store of eight tables and more, with so many hot records in slots, one after each key of
    /// the tables, and some cold ones by key and length. 4 KiB are few.
    fn with_records(hybrid_settings: HybridSettings, hot: u32, cold: &[(u32, usize)]) -> Db {
        with_records_in(EXPERIMENTS, hybrid_settings, hot, cold)
    }

    fn with_records_in(
        experiments: Experiments,
        hybrid_settings: HybridSettings,
        hot: u32,
        cold: &[(u32, usize)],
    ) -> Db {
        let table_size = ByteSize::kib(256);
        let settings = Settings { table_size, hybrid: hybrid_settings, ..hybrid() };
        let db = stepped_with(experiments, &settings);
        for at in 0..2000 {
            // What does not compress.
            let value: Vec<u8> =
                (0..125).flat_map(|word| hash(at ^ word << 16).to_be_bytes()).collect();
            db.put((at * STEP).to_be_bytes(), value).unwrap();
        }
        db.compact_range(None, None, &mut |_| {}).unwrap();
        assert!(db.stats().levels.iter().map(|level| level.tables).sum::<usize>() >= 8);
        assert_eq!(records(&db), 0);
        let popularity = &fast(&db).popularity;
        (0..2000).for_each(|at| popularity.forget(key_hash(&(at * STEP).to_be_bytes())));
        for at in 0..hot {
            // What is tracked beside them is colder: all of them are of the hottest part.
            let (key, other) = (at * STEP + 1, u64::from(at));
            assert!(popularity.touch(other, true).is_some());
            (0..4).for_each(|_| assert!(popularity.touch(hash(key), true).is_some()));
            db.put(key.to_be_bytes(), [7; 1000]).unwrap();
        }
        cold.iter().for_each(|(key, len)| db.put(key.to_be_bytes(), vec![7; *len]).unwrap());
        db.flush().unwrap();
        cold.iter().for_each(|(key, _)| popularity.forget(hash(*key)));
        fast(&db).cache.clear();
        db
    }

    fn hash(key: u32) -> u64 {
        key_hash(&key.to_be_bytes())
    }

    fn fast(db: &Db) -> &FastTier {
        &db.engine().hybrid().fast
    }

    fn run(mut job: impl Job) {
        run_to_end(&mut job);
    }

    fn records(db: &Db) -> u64 {
        db.stats().fast_tier.unwrap().records
    }

    fn is_in_slot(db: &Db, key: u32) -> bool {
        fast(db).index.get(&key.to_be_bytes()).is_some_and(|entry| entry.has_slot())
    }

    /// Brings the room to where this is tried next.
    fn come_to(db: &Db, step: EvictionStep) {
        fast(db).room.begin_anew();
        until(&format!("the step {step:?}"), || {
            let now = fast(db).room.eviction_step(0);
            if now != step {
                fast(db).room.found_little(now, 0);
            }
            now == step
        });
    }

    #[test]
    fn hot_records_leave_once_there_are_no_copies_and_few_cold_ones() {
        let db = with_records(settings(), 600, &[(2, 1000), (3, 1000), (4, 1000)]);
        come_to(&db, EvictionStep::Sweep);
        run(Sweep::begin(db.engine().hybrid()).unwrap());
        assert_eq!(fast(&db).room.eviction_step(0), EvictionStep::Cold, "there are no copies");
        assert!(db.engine().hybrid().plan_demotion(EvictionStep::Cold).is_none());
        assert_eq!(fast(&db).room.eviction_step(0), EvictionStep::Hot);
        assert_eq!(records(&db), 603);
    }

    #[test]
    fn the_best_range_is_one_that_has_enough() {
        // Behind all tables nothing is rewritten, so the score of a few small records is higher.
        let small = (0..10).map(|at| (u32::MAX - at, 50));
        let cold: Vec<_> = (2..12).map(|at| (3 * STEP + at, 1000)).chain(small).collect();
        let db = with_records(HybridSettings { runs: 1, ..settings() }, 600, &cold);
        come_to(&db, EvictionStep::Cold);
        run(db.engine().hybrid().plan_demotion(EvictionStep::Cold).unwrap());
        assert_eq!(records(&db), 610);
        assert!(is_in_slot(&db, u32::MAX) && !is_in_slot(&db, 3 * STEP + 2));
        assert_eq!(fast(&db).room.eviction_step(0), EvictionStep::Sweep, "the cheapest again");
    }

    #[test]
    fn no_more_hot_records_leave_than_must_and_cold_ones_of_the_range_first() {
        let cold = [(99 * STEP + 2, 1000), (99 * STEP + 3, 1000), (99 * STEP + 4, 1000)];
        let db = with_records(settings(), 100, &cold);
        let demote = || {
            db.engine().hybrid().look_at_room();
            run(db.engine().hybrid().plan_demotion(EvictionStep::Hot).unwrap());
        };
        assert_eq!(fast(&db).room.excess_bytes(), 0);
        demote();
        assert_eq!(records(&db), 103 - 4, "few");
        assert!(cold.iter().all(|(key, _)| !is_in_slot(&db, *key)));
        fast(&db).room.want(50_000);
        demote();
        assert_eq!(records(&db), 99 - 49, "what found no slot");
        let is_there = |at: u32| db.get((at * STEP + 1).to_be_bytes()).unwrap().is_some();
        assert!((0..100).all(is_there));
    }

    #[test]
    fn while_a_demotion_is_at_work_no_other_looks_for_a_better_range() {
        let cold: Vec<_> = (2..12).map(|at| (at, 1000)).collect();
        let db = with_records(settings(), 600, &cold);
        let under_way = db.engine().hybrid().plan_demotion(EvictionStep::Cold).unwrap();
        assert_eq!(db.engine().versions().tables().claims.ranges().len(), 1, "others are free");
        come_to(&db, EvictionStep::Hot);
        assert!(db.engine().hybrid().plan_demotion(EvictionStep::Hot).is_none());
        assert_eq!(fast(&db).room.eviction_step(0), EvictionStep::Hot, "it may make room enough");
        run(under_way);
        come_to(&db, EvictionStep::Hot);
        assert!(db.engine().hybrid().plan_demotion(EvictionStep::Hot).is_some());
    }

    #[test]
    fn where_wear_forbids_demotions_sweeps_go_on() {
        let budget = HybridSettings { write_budget_dwpd: 0.001, ..settings() };
        let cold: Vec<_> = (2..12).map(|at| (at, 1000)).collect();
        let db = with_records(budget, 10, &cold);
        assert!(!db.engine().hybrid().may_merge(), "what was compacted counts");
        come_to(&db, EvictionStep::Cold);
        assert!(db.engine().hybrid().plan_demotion(EvictionStep::Cold).is_none());
        assert_eq!(fast(&db).room.eviction_step(0), EvictionStep::Cold, "it waits");
        let later_ns = db.engine().shared().clock.now_ns() + 2_000_000_000;
        assert_eq!(fast(&db).room.eviction_step(later_ns), EvictionStep::Sweep, "and tries again");
    }

    /// All of it through the planner: of a tier that is full of hot records just what must leaves.
    #[test]
    fn a_full_tier_of_hot_records_stays_nearly_full() {
        let (high_watermark_percent, pinning_percent) = (10, 100);
        let settings = HybridSettings { high_watermark_percent, pinning_percent, ..settings() };
        let experiments = Experiments { low_watermark_percent: Some(8), ..EXPERIMENTS };
        let db = with_records_in(experiments, settings, 0, &[]);
        let limit_bytes = fast(&db).room.limit_bytes();
        let mut shares = Vec::new();
        for key in (0..2000).map(|at| at * STEP + 1) {
            (0..4).for_each(|_| assert!(fast(&db).popularity.touch(hash(key), true).is_some()));
            db.put(key.to_be_bytes(), [7; 1000]).unwrap();
            if key % (50 * STEP) == 1 {
                db.flush().unwrap();
                db.settle().unwrap();
                shares.push(db.stats().fast_tier.unwrap().live_bytes as f64 / limit_bytes as f64);
            }
        }
        let full = shares.iter().position(|share| *share > 0.08).unwrap();
        assert!(shares[full..].iter().all(|share| (0.06..0.1).contains(share)), "{shares:?}");
        assert!(shares.len() > full + 10);
        let fillers = 2000;
        assert!(db.stats().fast_tier.unwrap().demoted_records > fillers + 500);
    }

    /// The paper's promotion (section 5.1): a merge for room, which no read asked for.
    #[test]
    fn a_hot_record_of_a_table_that_is_rewritten_for_room_moves_up() {
        let moved = |promotion, step| {
            let cold: Vec<_> = (2..12).map(|at| (3 * STEP + at, 1000)).collect();
            let experiments =
                Experiments { promotion: Some(promotion), runs: Some(1), ..EXPERIMENTS };
            let db = with_records_in(experiments, settings(), 0, &cold);
            let (hot, unasked) = (4 * STEP, 5 * STEP);
            let popularity = &fast(&db).popularity;
            (0..9).for_each(|other| assert_eq!(popularity.touch(other, false), Some(0)));
            (0..2).for_each(|_| assert!(popularity.touch(hash(hot), false).is_some()));
            come_to(&db, step);
            fast(&db).room.want(10_000);
            db.engine().hybrid().look_at_room();
            run(db.engine().hybrid().plan_demotion(step).unwrap());
            assert_eq!(records(&db), 0, "room was made");
            fast(&db).room.found();
            db.settle().unwrap();
            let up = |key: u32| fast(&db).index.get(&key.to_be_bytes()).is_some();
            assert!(!up(unasked) && !up(3 * STEP + 2));
            let slow_reads = db.stats().fast_tier.unwrap().slow_reads;
            assert_eq!(db.get(hot.to_be_bytes()).unwrap().unwrap().len(), 1000);
            let stats = db.stats().fast_tier.unwrap();
            assert_eq!(stats.slow_reads - slow_reads, u64::from(!up(hot)));
            assert_eq!(stats.promoted_records, u64::from(up(hot)));
            up(hot)
        };
        assert!(moved(Promotion::Demotion, EvictionStep::Cold));
        assert!(!moved(Promotion::None, EvictionStep::Cold));
        assert!(!moved(Promotion::Read, EvictionStep::Cold), "reads alone move up");
        assert!(!moved(Promotion::Demotion, EvictionStep::Hot), "where hot ones must leave");
    }
}
