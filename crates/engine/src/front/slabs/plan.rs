//! The plan of what moves between the tiers: room for what comes first, then what is wanted on the
//! fast tier, then what reads ask for.

use super::FastTier;
use super::promotion::PROMOTION;
use super::room::{Means, Need, SIZES};
use super::single_step::SingleStep;
use super::spill::SPILL;
use super::sweep::{QUICK, Sweep, THOROUGH};
use crate::compaction::demotion::Demotion;
use crate::jobs::Job;
use crate::state::Engine;
use std::sync::Arc;

/// The most useful job that can begin now.
pub(crate) fn plan_fast_tier(engine: &Arc<Engine>, fast: &FastTier) -> Option<Box<dyn Job>> {
    let need = engine.look_at_room(fast);
    let room: Option<Box<dyn Job>> = match need {
        Need::Nothing => None,
        Need::OtherSizes => SingleStep::begin(engine, &SIZES),
        Need::Room => make_room(engine, fast),
    };
    // Who waits for the slow tier's wear waits; that is not the end of the room.
    let is_worn =
        !fast.regulation.allows_writes(engine.settings.table_size.0, engine.clock.now_ns());
    let demoting = || is_worn || !engine.tables.lock().ranges.is_empty();
    fast.room.planned(need, room.is_some() || fast.room.is_at_work() || demoting());
    // Where steps are taken one by one, any moment may be the one at which enough has gathered.
    let in_hurry = engine.tempo.is_hurried() || engine.jobs.are_stepped();
    let spill = || fast.spill.is_due(in_hurry).then(|| SingleStep::begin(engine, &SPILL)).flatten();
    // What memory gives up must not wait for promotions, of which there may always be more.
    let spills_first = fast.spill.waiting.is_full();
    room.or_else(|| spills_first.then(spill).flatten())
        .or_else(|| {
            let is_due = fast.promotions.offers.is_due(in_hurry);
            is_due.then(|| SingleStep::begin(engine, &PROMOTION)).flatten()
        })
        .or_else(spill)
        .or_else(|| {
            let asked = engine.regulate(fast) && need == Need::Nothing;
            let job = asked.then(|| engine.plan_read_triggered()).flatten()?;
            Some(Box::new(job) as _)
        })
}

/// What makes room the cheapest; none where that is under way, or nothing does.
fn make_room(engine: &Arc<Engine>, fast: &FastTier) -> Option<Box<dyn Job>> {
    let boxed = |demotion: Demotion| Box::new(demotion) as Box<dyn Job>;
    loop {
        let means = fast.room.means();
        let sweep =
            |patience| Sweep::begin(engine, patience).map(|sweep| Box::new(sweep) as Box<dyn Job>);
        let job = match means {
            Means::Sweep => {
                sweep(QUICK).or_else(|| engine.plan_demotion(Means::ColdOfDrawn).map(boxed))
            }
            Means::ThoroughSweep => sweep(THOROUGH),
            Means::ColdOfDrawn | Means::ColdOfAll | Means::Hot => {
                engine.plan_demotion(means).map(boxed)
            }
        };
        if job.is_some() || fast.room.means() == means {
            return job;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Step;
    use crate::support::{hybrid, stepped};
    use crate::{ByteSize, Db, DemotionPolicy, Settings};
    use thermocline_table::key_hash;

    /// A store with so many hot records in slots and a cold one each of some more, and no job but
    /// what a test steps. All of them are counted; 16 KiB are few.
    fn with_records(hot: u32, cold: u32) -> Db {
        let mut settings = Settings { table_size: ByteSize::mib(1), ..hybrid() };
        settings.hybrid.tracker_percent = 100;
        settings.hybrid.policy = DemotionPolicy::Precise;
        let db = stepped(&settings);
        let popularity = &fast(&db).popularity;
        // What is tracked beside them is colder, so that all of them belong to the hottest part.
        for key in 0..hot + hot {
            let touches = if key < hot { 4 } else { 1 };
            let touch = |_| popularity.touch(key_hash(&key.to_be_bytes()), true);
            assert!((0..touches).map(touch).last().is_some());
        }
        let keys = (0..hot).chain(1_000_000..1_000_000 + cold);
        keys.for_each(|key| db.put(key.to_be_bytes(), [7; 1000]).unwrap());
        db.flush().unwrap();
        let cold = (1_000_000..1_000_000 + cold).map(|key| key_hash(&key.to_be_bytes()));
        cold.for_each(|hash| popularity.forget(hash));
        assert_eq!(db.engine().few_bytes(), 16 << 10);
        db
    }

    fn fast(db: &Db) -> &FastTier {
        db.engine().fast.as_ref().unwrap()
    }

    fn run(mut job: impl Job) {
        while job.step().unwrap() == Step::More {}
    }

    fn records(db: &Db) -> u64 {
        db.stats().fast_tier.unwrap().records
    }

    /// Brings the room to where this is tried next.
    fn come_to(db: &Db, means: Means) {
        fast(db).room.begin_anew();
        while fast(db).room.means() != means {
            fast(db).room.found_little(fast(db).room.means());
        }
    }

    #[test]
    fn few_records_are_demoted_only_where_no_copies_can_go() {
        let db = with_records(200, 10);
        come_to(&db, Means::ColdOfDrawn);
        assert!(db.engine().plan_demotion(Means::ColdOfDrawn).is_none());
        assert_eq!(fast(&db).room.means(), Means::ThoroughSweep);
        run(Sweep::begin(db.engine(), THOROUGH).unwrap());
        assert_eq!(fast(&db).room.means(), Means::ColdOfAll, "there are no copies");
        assert!(db.engine().plan_demotion(Means::ColdOfAll).is_none());
        assert_eq!(fast(&db).room.means(), Means::Hot);
        assert_eq!(records(&db), 210);
    }

    #[test]
    fn enough_cold_records_leave_and_then_the_cheapest_means_is_tried_again() {
        for means in [Means::ColdOfDrawn, Means::ColdOfAll] {
            let db = with_records(200, 30);
            come_to(&db, means);
            run(db.engine().plan_demotion(means).unwrap());
            assert_eq!(records(&db), 200);
            assert_eq!(fast(&db).room.means(), Means::Sweep);
        }
    }

    #[test]
    fn no_more_hot_records_leave_than_must() {
        let db = with_records(200, 0);
        fast(&db).cache.clear();
        db.engine().look_at_room(fast(&db));
        assert_eq!(fast(&db).room.excess_bytes(), 0);
        run(db.engine().plan_demotion(Means::Hot).unwrap());
        assert_eq!(records(&db), 200 - 16, "16 KiB of them, which are few");
        fast(&db).room.want(100_000);
        db.engine().look_at_room(fast(&db));
        run(db.engine().plan_demotion(Means::Hot).unwrap());
        assert_eq!(records(&db), 200 - 16 - 98, "what found no slot");
        assert!((0..200u32).all(|key| db.get(key.to_be_bytes()).unwrap().is_some()));
    }

    #[test]
    fn while_a_demotion_is_at_work_nobody_looks_for_a_better_range() {
        let db = with_records(200, 30);
        let under_way = db.engine().plan_demotion(Means::ColdOfDrawn).unwrap();
        for means in [Means::ColdOfAll, Means::Hot] {
            come_to(&db, means);
            assert!(db.engine().plan_demotion(means).is_none());
            assert_eq!(fast(&db).room.means(), means, "it may make room enough");
        }
        run(under_way);
    }
}
