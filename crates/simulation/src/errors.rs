//! The error sweep: every call of a history fails once, and from then on, with each of six errors.
//!
//! After each: the caller heard of it or it did no harm; what is answered meanwhile is right;
//! writing has stopped with the reason, or goes on; and reopening, after a kill as well as after a
//! power cut, finds all that was acknowledged. Of a fault of the block cache's own files no caller
//! hears, and writing goes on.

use crate::devices::{CallKind, Devices, Fault, FaultKind, Loss, Unit, Watcher, World};
use crate::history::{Shape, settings};
use crate::life::Life;
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_error, check_files};
use crate::recorder::unrecorded;
use crate::syncs;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, Error, ErrorKind};
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
    life.machine.devices.record_made();
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
    let undoing = Arc::new(Undoing::default());
    life.watch(Arc::clone(&undoing) as Arc<dyn Watcher>);
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
    let was_full = life.machine.devices.was_full();
    let of_cache = life.machine.devices.has_struck_cache_alone();
    life.machine.devices.arm(None);
    if let Some(error) = error.filter(|_| of_cache) {
        return Err(format!("a fault of the block cache fails a call: {error}"));
    }
    if life.is_open() {
        check_live(life.db(), &known.read_recursive())?;
        if was_full || of_cache {
            let goes_on = check_goes_on(life.db(), life.opened_when_full && !of_cache);
            goes_on.map_err(|why| format!("the fault has gone: {why}"))?;
        }
    }
    let world = life.machine.devices.world();
    let begun = life.checkpoint_begun.take();
    life.kill();
    let known = known.read_recursive();
    unrecorded(|| check_undone(seed, fault, &undoing, &known, begun.as_deref()))?;
    let least = known.acknowledged;
    check_after(&world.after(Loss::None), &known, least, seed)
        .map_err(|why| format!("after a kill: {why}"))?;
    if world.has_owed() {
        check_after(&without_owed(&world), &known, known.durable, seed)
            .map_err(|why| format!("after a power cut that takes what is owed: {why}"))?;
    }
    check_after(&world.after(Loss::All), &known, known.durable, seed)
        .map_err(|why| format!("after a power cut: {why}"))
}

/// Keeps what the devices are like when names change, from the fault on: a creation or a checkpoint
/// that failed removes what it has made.
#[derive(Debug, Default)]
struct Undoing {
    worlds: Mutex<Vec<World>>,
}

/// As many moments of a removal are kept.
const UNDOING_MAX: usize = 48;

impl Watcher for Undoing {
    fn changed(&self, devices: &Devices, _call: u64, kind: CallKind) {
        let of_names = [CallKind::Rename, CallKind::Delete, CallKind::SyncDirectory];
        let mut worlds = self.worlds.lock();
        if of_names.contains(&kind) && worlds.len() < UNDOING_MAX && devices.has_struck() {
            worlds.push(devices.world());
        }
    }
}

/// Where a creation or the checkpoint that `begun` names failed, a power cut at any moment of the
/// removal leaves a whole database or none, and one can be made there.
fn check_undone(
    seed: u64,
    fault: &Fault,
    undoing: &Undoing,
    known: &Known,
    begun: Option<&Path>,
) -> Result<(), Violation> {
    let worlds = std::mem::take(&mut *undoing.worlds.lock());
    if known.created && begun.is_none() {
        return Ok(());
    }
    let mut random = Random::new(mix(seed ^ fault.at ^ 0x0D0));
    for (number, world) in worlds.iter().enumerate() {
        let shares: &[u64] = if syncs::is_changed() { &[4, 0, 1, 2] } else { &[0, 1, 2] };
        for &share in shares {
            // A name whose sync failed and that is removed durably later does not come back.
            let is_kept = |unit: &Unit| !unit.given_up && random.below(4) < share;
            let image = match share {
                4 => without_owed(world),
                _ => {
                    let kept: Vec<_> = world.units().iter().map(is_kept).collect();
                    world.after(Loss::Kept(&kept))
                }
            };
            let checked = match begun {
                Some(path) => check_checkpoint(&image, path, known, seed),
                None => check_after(&image, known, 0, seed),
            };
            checked.map_err(|why| format!("power cut at moment {number} of a removal: {why}"))?;
        }
    }
    Ok(())
}

/// What a power cut leaves that takes all that should be durable and is not ([`syncs`]). A name
/// whose sync failed is there only beside such, which may be its removal.
pub(crate) fn without_owed(world: &World) -> World {
    let units = world.units();
    let owed: BTreeSet<_> =
        units.iter().filter(|unit| unit.owed).map(|unit| unit.directory).collect();
    let is_lost = |unit: &Unit| unit.owed || unit.given_up && !owed.contains(&unit.directory);
    let kept: Vec<_> = units.iter().map(|unit| !is_lost(unit)).collect();
    world.after(Loss::Kept(&kept))
}

/// The refusal of a checkpoint that has its files and no manifest yet: it says what to do.
pub(crate) fn is_unfinished(error: &Error) -> bool {
    error.kind() == ErrorKind::Corrupt && error.to_string().contains("a checkpoint that was not")
}

/// There is a whole checkpoint at `path`, or none and one can be made.
fn check_checkpoint(world: &World, path: &Path, known: &Known, seed: u64) -> Result<(), Violation> {
    let machine = Machine::new(world.clone(), seed);
    match machine.environment.open(path) {
        Ok(copy) => {
            known.check_some_prefix(&copy, 0)?;
            return copy.close().map_err(|error| format!("the checkpoint: {error}"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if is_unfinished(&error) => return Ok(()),
        Err(error) => return Err(format!("a checkpoint that failed is not gone: {error}")),
    }
    let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
    machine.devices.meddle(|world| world.forget_numbers(path));
    let made = db.checkpoint(path);
    made.map_err(|error| format!("there can be no checkpoint where one failed: {error}"))?;
    machine.kill(Some(db));
    Ok(())
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

/// Writing goes on where a device had no room for a while, without reopening. A store that was
/// opened when it had none for what the logs have is for reading.
fn check_goes_on(db: &Db, opened_when_full: bool) -> Result<(), Violation> {
    if let Some(reason) = db.stats().read_only {
        if opened_when_full {
            return Ok(());
        }
        return Err(format!("writing has stopped: {reason}"));
    }
    let written = db.put("after", vec![7; 5000]).and_then(|()| db.delete("after"));
    let settled = written.and_then(|()| db.flush()).and_then(|()| db.settle());
    settled.map_err(|error| format!("writing does not go on: {error}"))
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

/// The database can be made where a creation failed.
fn check_created_again(machine: &Machine, seed: u64) -> Result<(), Violation> {
    machine.devices.meddle(|world| world.forget_numbers(Path::new("/")));
    let made = machine.create(&settings(seed));
    let made = made.map_err(|error| format!("it cannot be created again: {error}"))?;
    made.close().map_err(|error| format!("created again, it does not close: {error}"))
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
        Err(error) if !known.created && error.kind() == ErrorKind::NotFound => {
            return unrecorded(|| check_created_again(&machine, seed));
        }
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
