//! The error sweep: every call of a history fails once, and from then on, with each of six errors.
//!
//! After each: the caller heard of it or it did no harm; what is answered meanwhile is right;
//! writing has stopped with the reason, or goes on; and reopening, after a kill as well as after a
//! power cut, finds all that was acknowledged.

use crate::devices::{CallKind, Fault, FaultKind, Loss, World};
use crate::history::Shape;
use crate::life::Life;
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_error, check_files};
use parking_lot::RwLock;
use rustix::io::Errno;
use std::sync::Arc;
use thermocline::{Db, ErrorKind};
use thermocline_foundation::random::{Random, mix};

/// What a call that changes something fails with.
const CHANGE_ERRORS: [Errno; 6] =
    [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::DQUOT, Errno::NOMEM, Errno::TIMEDOUT];
/// What any other call fails with.
const READ_ERRORS: [Errno; 6] =
    [Errno::IO, Errno::NOMEM, Errno::TIMEDOUT, Errno::NODEV, Errno::ACCESS, Errno::MFILE];

/// The histories of the sweep: short, because each call of theirs is made to fail twelve times.
pub const SHAPE: Shape =
    Shape { steps: 24, keys: 16, crashes: true, reopens: true, large_values: false };

/// The kinds of calls that the history of `seed` makes when nothing fails.
pub fn kinds_of(seed: u64, shape: &Shape) -> Result<Vec<CallKind>, Violation> {
    let known = Arc::new(RwLock::new(Known::new(shape.keys)));
    let mut life = Life::new(seed, shape, known);
    life.machine.devices.record_kinds();
    life.run(shape).map_err(|(step, stop)| format!("step {step}, no fault: {stop:?}"))?;
    let kinds = life.machine.devices.kinds();
    life.kill();
    Ok(kinds)
}

/// All faults of the sweep over calls of these kinds.
pub fn faults(kinds: &[CallKind]) -> Vec<Fault> {
    let of_call = |(at, kind): (usize, &CallKind)| {
        let errors = if kind.changes() { CHANGE_ERRORS } else { READ_ERRORS };
        errors.into_iter().flat_map(move |error| {
            let kind = FaultKind::Error(error.raw_os_error());
            [false, true].map(|sticky| Fault { at: at as u64, sticky, kind })
        })
    };
    kinds.iter().enumerate().flat_map(of_call).collect()
}

/// Carries out the history of `seed` with `fault` in it, and checks what must hold.
pub fn run_with_fault(seed: u64, fault: &Fault) -> Result<(), Violation> {
    let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
    let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
    life.machine.devices.arm(Some(fault.clone()));
    let error = life.run_through(&SHAPE).map_err(|(step, why)| format!("step {step}: {why}"))?;
    if let Some(error) = &error
        && !life.machine.devices.has_struck()
    {
        return Err(format!("an error before the fault: {error}"));
    }
    let mut random = Random::new(mix(seed ^ fault.at));
    if fault.sticky && random.below(4) == 0 {
        reopen_while_broken(&life, fault, &known.read_recursive())?;
    }
    life.machine.devices.arm(None);
    if life.is_open() {
        check_live(life.db(), &known.read_recursive())?;
    }
    let world = life.machine.devices.world();
    life.kill();
    let known = known.read_recursive();
    let least = known.acknowledged;
    check_after(&world.after(Loss::None), &known, least, seed)
        .map_err(|why| format!("after a kill: {why}"))?;
    check_after(&world.after(Loss::All), &known, known.durable, seed)
        .map_err(|why| format!("after a power cut: {why}"))
}

/// The store as it is after the fault has gone: reads are right, writing has stopped with a reason
/// or goes on.
fn check_live(db: &Db, known: &Known) -> Result<(), Violation> {
    let count = known.check_state(db, known.acknowledged)?;
    known.check_reads(db, count)?;
    match db.stats().read_only {
        None => Ok(()),
        Some(reason) => match db.put("after", "failure") {
            Ok(()) => Err(format!("it is read-only and takes a write; {reason}")),
            Err(error) if error.kind() == ErrorKind::ReadOnly => check_error(&error),
            Err(error) => Err(format!("read-only is said as {:?}: {error}", error.kind())),
        },
    }
}

/// Another process tries while the device is broken: it gets an error, or right answers.
fn reopen_while_broken(life: &Life, fault: &Fault, known: &Known) -> Result<(), Violation> {
    let world = life.machine.devices.look(|world| world.after(Loss::None));
    let machine = Machine::new(world, fault.at);
    machine.devices.arm(Some(Fault { at: fault.at % 40, ..fault.clone() }));
    match machine.open() {
        Err(error) => check_error(&error)?,
        Ok(db) => {
            known
                .check_some_prefix(&db, known.acknowledged)
                .map_err(|why| format!("opened while the device is broken: {why}"))?;
            machine.kill(Some(db));
        }
    }
    Ok(())
}

/// The store after a restart: all that must be there is, writes resume, nothing is left over.
pub(crate) fn check_after(
    world: &World,
    known: &Known,
    least: usize,
    seed: u64,
) -> Result<(), Violation> {
    let machine = Machine::new(world.clone(), seed);
    let db = match machine.open() {
        Ok(db) => db,
        Err(error) if !known.created && error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("it does not open: {error}")),
    };
    let count = known.check_state(&db, least)?;
    known.check_reads(&db, count)?;
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
    check_bytes(&db)?;
    db.put("after", "the fault").map_err(|error| format!("writing does not resume: {error}"))?;
    db.compact_range(None, None, &mut |_| {})
        .map_err(|error| format!("compaction does not resume: {error}"))?;
    db.delete("after").map_err(|error| format!("writing does not resume: {error}"))?;
    let found = known.check_state(&db, least)?;
    if !known.is_same_state(found, count) {
        return Err(format!("a compaction changed {count} submissions to {found}"));
    }
    db.close().map_err(|error| format!("it does not close: {error}"))
}
