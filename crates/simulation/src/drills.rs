//! Tier drills: a tier is missing, swapped, foreign, an older clone, full, a hundred times slower,
//! vanishes under a running store, or allows only reading once the store has ended; there are
//! others (`reshape.rs`); files of the block cache are not what they were (`drills/cache.rs`). Each
//! while the store is idle, loaded, and compacting.
//!
//! The store refuses with a reason, or goes on; it never mixes tiers up, and loses nothing once
//! the right tier is back.

pub(crate) mod cache;

use crate::devices::{Loss, World};
use crate::history::{HOME, Shape, TIERS, is_hybrid, key, settings, value};
use crate::life::Life;
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_error, check_files};
use crate::reshape;
use parking_lot::RwLock;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Durability, ErrorKind, Mode};
use thermocline_foundation::random::{Random, mix};

/// What happens to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "see the module's header")]
pub enum Drill {
    Missing,
    Swapped,
    Foreign,
    OlderClone,
    Full,
    Slow,
    Vanishing,
    ReadOnly,
    Reshaped,
    Cache,
}

/// All of them.
pub const DRILLS: [Drill; 10] = [
    Drill::Missing,
    Drill::Swapped,
    Drill::Foreign,
    Drill::OlderClone,
    Drill::Full,
    Drill::Slow,
    Drill::Vanishing,
    Drill::ReadOnly,
    Drill::Reshaped,
    Drill::Cache,
];

/// What the store does when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "see the module's header")]
pub enum Phase {
    Idle,
    Loaded,
    Compacting,
}

/// All of them.
pub const PHASES: [Phase; 3] = [Phase::Idle, Phase::Loaded, Phase::Compacting];

const SHAPE: Shape =
    Shape { steps: 40, keys: 24, crashes: false, reopens: true, large_values: false };

/// A life that has come to `phase`.
fn life_at(seed: u64, phase: Phase) -> Result<(Life, Arc<RwLock<Known>>), Violation> {
    let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
    let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
    let said = |(step, stop)| format!("step {step}, before the drill: {stop:?}");
    life.run(&SHAPE).map_err(said)?;
    match phase {
        Phase::Idle => life.db().settle().map_err(|error| error.to_string())?,
        Phase::Loaded => load(&mut life, &known, 40)?,
        Phase::Compacting => {
            load(&mut life, &known, 40)?;
            life.db().flush().map_err(|error| error.to_string())?;
            known.write().acknowledge(true);
            life.machine.stepper.step();
        }
    }
    Ok((life, known))
}

/// Writes without waiting for background work.
fn load(life: &mut Life, known: &RwLock<Known>, count: usize) -> Result<(), Violation> {
    for number in 0..count {
        put(life, known, number).map_err(|error| format!("before the drill: {error}"))?;
        if number % 16 == 15 {
            life.db().flush().map_err(|error| error.to_string())?;
            known.write().acknowledge(true);
        }
    }
    Ok(())
}

fn put(life: &Life, known: &RwLock<Known>, number: usize) -> thermocline::Result<()> {
    let key = key(number as u64 % SHAPE.keys);
    let value = value(&key, 500_000 + number, 3_000, false);
    known.write().submit(&[(key.clone(), Some(value.clone()))]);
    let mut batch = thermocline::WriteBatch::new();
    batch.put(&key, &value);
    let durability = if number.is_multiple_of(3) { Durability::Sync } else { Durability::Buffered };
    life.db().write_with(batch, durability)?;
    known.write().acknowledge(durability == Durability::Sync);
    Ok(())
}

/// Carries out `drill` on the database of `seed` in `phase`.
pub fn run(seed: u64, drill: Drill, phase: Phase) -> Result<(), Violation> {
    type OnALife<'a> = &'a dyn Fn(Life, &RwLock<Known>, &Path) -> Result<(), Violation>;
    let on_a_life = |carry_out: OnALife<'_>| {
        let (life, known) = life_at(seed, phase)?;
        let tiers = life.db().settings().tiers.len();
        carry_out(life, &known, Path::new(TIERS[mix(seed) as usize % tiers]))
    };
    match drill {
        Drill::Missing | Drill::Swapped | Drill::Foreign | Drill::OlderClone => {
            on_a_life(&|life, known, tier| refused(life, known, drill, tier))
        }
        Drill::Full | Drill::Slow | Drill::Vanishing => {
            on_a_life(&|life, known, tier| live(life, known, drill, tier))
        }
        Drill::ReadOnly => on_a_life(&|life, known, _| read_only(life, known)),
        Drill::Reshaped => on_a_life(&|life, known, _| reshape::run(life, known)),
        Drill::Cache => cache::run(seed, phase),
    }
}

/// A tier that is not the right one when the database is opened.
fn refused(
    mut life: Life,
    known: &RwLock<Known>,
    drill: Drill,
    tier: &Path,
) -> Result<(), Violation> {
    let seed = life.seed;
    let tiers = life.db().settings().tiers.len();
    let mut older = life.machine.devices.look(|world| world.after(Loss::None));
    if drill == Drill::OlderClone {
        // The clone is older by a closing and an opening at least.
        life.close().map_err(|stop| format!("{stop:?}"))?;
        older = life.machine.devices.world();
        let db = life.machine.open().map_err(|error| error.to_string())?;
        known.write().submit(&[(key(0), Some(value(&key(0), 600_000, 2_000, false)))]);
        db.put(key(0), value(&key(0), 600_000, 2_000, false)).map_err(|error| error.to_string())?;
        db.flush().map_err(|error| error.to_string())?;
        db.close().map_err(|error| error.to_string())?;
        known.write().acknowledge(true);
    }
    let right = life.machine.devices.look(|world| world.after(Loss::None));
    life.kill();
    let mut wrong = right.clone();
    match drill {
        Drill::Missing => wrong.unmount(tier),
        Drill::OlderClone => wrong.mount(tier, &older, tier),
        Drill::Foreign => wrong.mount(tier, &foreign(seed)?, tier),
        _ => {
            let other = if tiers == 1 { Path::new(HOME) } else { Path::new(TIERS[tiers - 1]) };
            let first = Path::new(TIERS[0]);
            wrong.mount(first, &right, other);
            if tiers > 1 {
                wrong.mount(other, &right, first);
            }
        }
    }
    let machine = Machine::new(wrong.clone(), seed);
    match machine.open() {
        Ok(db) => {
            let shown = known.read_recursive().check_state(&db, 0);
            return Err(format!("it opens, and shows {shown:?}"));
        }
        Err(error) if error.kind() == ErrorKind::Tier => check_error(&error)?,
        Err(error) => return Err(format!("it is refused as {:?}: {error}", error.kind())),
    }
    if machine.devices.look(|world| world.digest()) != wrong.digest() {
        return Err("the refused opening changed the directories".to_owned());
    }
    // The right tiers are back.
    restart(right, known, seed)
}

/// The world of another database.
fn foreign(seed: u64) -> Result<World, Violation> {
    // Of the same preset and as many tiers, so that only its owner tells it from the right one.
    let kind = |seed| (is_hybrid(seed), settings(seed).tiers.len());
    let other = (seed + 1..).find(|other| kind(*other) == kind(seed));
    let other = other.expect("seeds do not end");
    let (mut life, _) = life_at(other, Phase::Idle)?;
    life.close().map_err(|stop| format!("{stop:?}"))?;
    Ok(life.machine.devices.world())
}

/// All is there, and writes go on.
fn restart(world: World, known: &RwLock<Known>, seed: u64) -> Result<(), Violation> {
    let machine = Machine::new(world, seed);
    let db = machine.open().map_err(|error| format!("it does not open again: {error}"))?;
    let known = known.read_recursive();
    let count = known.check_state(&db, known.acknowledged)?;
    known.check_reads(&db, count)?;
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
    db.put("after", "the drill").map_err(|error| format!("writing does not resume: {error}"))?;
    db.close().map_err(|error| format!("it does not close: {error}"))
}

/// A tier that changes under the running store.
fn live(mut life: Life, known: &RwLock<Known>, drill: Drill, tier: &Path) -> Result<(), Violation> {
    let devices = life.machine.devices.clone();
    match drill {
        Drill::Full => {
            let used = devices.look(|world| world.list(tier)).iter().map(|(_, len)| len).sum();
            devices.set_capacity(tier, Some(used));
        }
        Drill::Slow => devices.set_slow(tier, 10_000_000),
        _ => devices.set_gone(tier, true),
    }
    let mut failure = None;
    for number in 0..60 {
        if let Err(error) = put(&life, known, 1_000 + number) {
            failure = Some(error);
            break;
        }
        life.machine.stepper.step();
        if number % 20 == 19
            && let Err(error) = life.db().flush()
        {
            failure = Some(error);
            break;
        }
        known.read_recursive().check_some_prefix(life.db(), number)?;
    }
    if let Some(error) = &failure {
        check_error(error)?;
        if drill == Drill::Slow {
            return Err(format!("a slow tier fails writes: {error}"));
        }
        // What can still be read is right.
        let known = known.read_recursive();
        known.check_some_prefix(life.db(), known.acknowledged)?;
    }
    devices.set_capacity(tier, None);
    devices.set_gone(tier, false);
    devices.set_slow(tier, 0);
    {
        let known = known.read_recursive();
        known.check_state(life.db(), known.acknowledged)?;
    }
    let world = devices.look(|world| world.after(Loss::None));
    life.kill();
    restart(world, known, life.seed)
}

/// The store was closed, killed, or its power cut, and is opened for reading only: it shows what an
/// opening for writing shows, and asks its devices for no change.
fn read_only(mut life: Life, known: &RwLock<Known>) -> Result<(), Violation> {
    let devices = life.machine.devices.clone();
    let units = devices.look(|world| world.units());
    let mut random = Random::new(mix(life.seed ^ 0x8EAD));
    let kept: Vec<_> = units.iter().map(|_| random.below(2) == 0).collect();
    let killed = devices.look(|world| world.after(Loss::None));
    let cut = devices.look(|world| world.after(Loss::Kept(&kept)));
    let (acknowledged, durable) = {
        let known = known.read_recursive();
        (known.acknowledged, known.durable)
    };
    life.close().map_err(|stop| format!("{stop:?}"))?;
    let closed = devices.look(|world| world.after(Loss::None));
    let known = known.read_recursive();
    let ends = [("killed", killed, acknowledged), ("cut", cut, durable)];
    for (end, world, least) in ends.into_iter().chain([("closed", closed, known.acknowledged)]) {
        let shown = only_read(&world, life.seed, &known, least)
            .map_err(|violation| format!("{end} and opened for reading only: {violation}"))?;
        let db = Machine::new(world, life.seed).open().map_err(|error| error.to_string())?;
        let right = known.check_state(&db, least)?;
        if shown != right {
            return Err(format!("{end}: after {shown} submissions where writing shows {right}"));
        }
    }
    Ok(())
}

/// Opens `world` for reading only, twice, and says what is shown: how many submissions, at least
/// `least`.
fn only_read(world: &World, seed: u64, known: &Known, least: usize) -> Result<usize, Violation> {
    let machine = Machine::new(world.clone(), seed);
    machine.devices.record_made();
    let open = || machine.open_read_only().map_err(|error| error.to_string());
    let (first, second) = (open()?, open()?);
    let count = known.check_state(&first, least)?;
    known.check_reads(&first, count)?;
    known.check_reads(&second, count)?;
    check_bytes(&first)?;
    let stats = first.stats();
    if stats.mode != Mode::ReadOnly {
        return Err(format!("its mode is {:?}", stats.mode));
    }
    let refused = [first.put("x", "y"), first.flush(), first.sync(), second.delete("x")];
    for refused in refused {
        match refused {
            Err(error) if error.kind() == ErrorKind::ReadOnly => check_error(&error)?,
            other => return Err(format!("a change is not refused: {other:?}")),
        }
    }
    match machine.open() {
        Err(error) if error.kind() == ErrorKind::Locked => {}
        other => return Err(format!("a writer is let in: {:?}", other.map(drop))),
    }
    while machine.stepper.step() {}
    second.close().map_err(|error| format!("it does not close: {error}"))?;
    drop(first);
    let changes: Vec<_> = machine.devices.kinds().into_iter().filter(|it| it.changes()).collect();
    if !changes.is_empty() || machine.devices.look(|world| world.digest()) != world.digest() {
        return Err(format!("it asks for changes: {changes:?}"));
    }
    Ok(count)
}
