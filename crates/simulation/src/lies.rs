//! Devices that lie: lost, torn, short and misdirected writes, misdirected and stale reads, flipped
//! bits, at every transfer of a history. At its end tables move to a larger first tier and back.
//!
//! A store on one copy of its data cannot undo a lie, and cannot even see one that makes the end of
//! its log look as if it had never been written. What it can do, and must: never give an answer
//! that no prefix of the submissions allows, and say so where it cannot answer.

use crate::devices::{CallKind, Fault, FaultKind, Loss};
use crate::history::Shape;
use crate::life::{Life, Stop};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_error};
use parking_lot::RwLock;
use std::sync::Arc;
use thermocline_foundation::random::Random;

/// The histories that devices lie to.
pub const SHAPE: Shape =
    Shape { steps: 30, keys: 16, crashes: false, reopens: true, large_values: false };

/// All lies that can be told at calls of these kinds.
pub fn faults(seed: u64, kinds: &[CallKind]) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let mut faults = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        let mut draw = || random.next_u64() >> 8;
        let (even, odd) = (draw() & !1, draw() | 1);
        let flips = [FaultKind::Flip(draw()), FaultKind::Flip(draw())];
        let strays = [FaultKind::Misdirected(even), FaultKind::Misdirected(odd)];
        let others: &[FaultKind] = match kind {
            CallKind::Read => &[FaultKind::Stale, FaultKind::Short],
            CallKind::Write => &[FaultKind::Lost, FaultKind::Torn, FaultKind::Short],
            _ => continue,
        };
        let kinds = flips.into_iter().chain(strays).chain(others.iter().copied());
        faults.extend(kinds.map(|kind| Fault { at: at as u64, sticky: false, kind }));
    }
    faults
}

/// The kinds of calls that the history of `seed` makes when no device lies.
pub fn kinds_of(seed: u64) -> Result<Vec<CallKind>, Violation> {
    let mut life = Life::new(seed, &SHAPE, Arc::new(RwLock::new(Known::new(SHAPE.keys))));
    life.machine.devices.record_made();
    let ended = life.run(&SHAPE).and_then(|()| life.rest(SHAPE.steps));
    ended.map_err(|(step, stop)| format!("step {step}, no lie: {stop:?}"))?;
    let kinds = life.machine.devices.kinds();
    life.kill();
    Ok(kinds)
}

/// Carries out the history, and lets tables move unless a call has failed.
fn run(life: &mut Life) -> Result<(), (usize, Violation)> {
    if life.run_through(&SHAPE)?.is_some() {
        return Ok(());
    }
    match life.rest(SHAPE.steps) {
        Ok(()) => Ok(()),
        Err((step, Stop::Failed(error))) => check_error(&error).map_err(|why| (step, why)),
        Err((step, Stop::Violated(why))) => Err((step, why)),
    }
}

/// Carries out the history of `seed` with `lie` in it, and checks what must hold.
pub fn run_with_lie(seed: u64, lie: &Fault) -> Result<(), Violation> {
    let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
    let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
    life.machine.devices.arm(Some(lie.clone()));
    let checked = run(&mut life);
    // A reopening may have found a shorter log; from there on its answers are judged below.
    let reopened = life.machine.devices.calls() > lie.at;
    match checked {
        Err((step, why)) if !reopened || !why.contains("none of the states") => {
            life.kill();
            return Err(format!("step {step}: {why}"));
        }
        _ => {}
    }
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    life.kill();
    let machine = Machine::new(world, seed);
    match machine.open() {
        Err(error) => check_error(&error),
        Ok(db) => {
            let checked = known.read_recursive().check_some_prefix(&db, 0);
            machine.kill(Some(db));
            checked.map_err(|why| format!("after a restart: {why}"))
        }
    }
}
