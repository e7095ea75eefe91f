//! The plan of what moves between the tiers: room for what comes first, then what is wanted on the
//! fast tier, then what reads ask for.

use super::FastTier;
use super::promotion::PROMOTION;
use super::room::{Need, SIZES, Sweep};
use super::single_step::SingleStep;
use super::spill::SPILL;
use crate::jobs::Job;
use crate::state::Engine;
use std::sync::Arc;

/// The most useful job that can begin now.
pub(crate) fn plan_fast_tier(engine: &Arc<Engine>, fast: &FastTier) -> Option<Box<dyn Job>> {
    let need = engine.look_at_room(fast);
    let room: Option<Box<dyn Job>> = match need {
        Need::Nothing => None,
        Need::OtherSizes => SingleStep::begin(engine, &SIZES),
        Need::Room => Sweep::begin(engine)
            .map(|job| Box::new(job) as _)
            .or_else(|| engine.plan_demotion().map(|job| Box::new(job) as _)),
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
