//! The drill of the list of tiers: a closed database gets a tier more, one
//! fewer, or one in another directory, and the process ends or the power goes at any moment of
//! that.
//!
//! What is left opens, with the old list or the new one, and has every record; with the old one the
//! change is made again, or another is.

use crate::devices::{CallKind, Devices, Loss, Watcher, World};
use crate::history::{HOME, TIERS, is_hybrid};
use crate::life::Life;
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_error, check_files};
use crate::{errors, syncs};
use parking_lot::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{Db, Error, ErrorKind, Tier, TierChange, WhichTier};
use thermocline_foundation::random::{Random, mix};

/// What the devices are like after each call that changes something.
#[derive(Debug, Default)]
struct Moments {
    worlds: Mutex<Vec<World>>,
}

impl Watcher for Moments {
    fn changed(&self, devices: &Devices, _call: u64, _kind: CallKind) {
        // Where a sync is left out, only what it owes can be missed.
        if !syncs::is_changed() || devices.look(World::has_owed) {
            self.worlds.lock().push(devices.world());
        }
    }
}

/// One of the changes that the database of `seed` can make, which has `tiers`.
fn change_of(seed: u64, tiers: &[Tier], choice: u64) -> TierChange {
    let unused =
        TIERS.iter().map(PathBuf::from).find(|path| tiers.iter().all(|tier| tier.path != *path));
    let mut choices = Vec::new();
    if let Some(path) = unused {
        choices.extend((0..=tiers.len()).map(|at| {
            let tier = Tier { path: path.clone(), ..tiers[0].clone() };
            TierChange::Add { at: Some(at), tier }
        }));
        choices.extend((0..tiers.len()).map(|at| TierChange::Replace { at, path: path.clone() }));
    }
    if tiers.len() > 1 + usize::from(is_hybrid(seed)) {
        // The last has most of the tables; the others may have no room for these.
        let places = (0..tiers.len() - 1).map(WhichTier::Place);
        choices.extend(places.map(|tier| TierChange::Remove { tier }));
    }
    let at = choice as usize % choices.len();
    choices.swap_remove(at)
}

fn make(machine: &Machine, change: &TierChange) -> Result<(), Error> {
    machine.environment.change_tiers(Path::new(HOME), None, change, &mut |_| {}).map(drop)
}

/// Where the tiers lie after `change`.
fn changed(mut paths: Vec<PathBuf>, change: &TierChange) -> Vec<PathBuf> {
    match change {
        TierChange::Add { at, tier } => paths.insert(at.unwrap_or(paths.len()), tier.path.clone()),
        TierChange::Remove { tier: WhichTier::Place(at) } => drop(paths.remove(*at)),
        TierChange::Remove { tier: WhichTier::Path(path) } => paths.retain(|tier| tier != path),
        TierChange::Replace { at, path } => paths[*at].clone_from(path),
    }
    paths
}

fn paths(db: &Db) -> Vec<PathBuf> {
    db.settings().tiers.iter().map(|tier| tier.path.clone()).collect()
}

/// What a tier that goes has may find no room on the others.
fn lacks_room(change: &TierChange, error: &Error) -> bool {
    matches!(change, TierChange::Remove { .. }) && error.kind() == ErrorKind::OutOfSpace
}

/// A database before a change, and the change.
struct Drill<'a> {
    seed: u64,
    known: &'a Known,
    change: TierChange,
    /// What is asked for where the first was cut off, at some places.
    other: TierChange,
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
}

/// Closes the database of `life` and changes its tiers.
pub(crate) fn run(mut life: Life, known: &RwLock<Known>) -> Result<(), Violation> {
    let seed = life.seed;
    let tiers = life.db().settings().tiers.clone();
    life.close().map_err(|stop| format!("{stop:?}"))?;
    let choice = mix(seed ^ life.machine.devices.calls());
    let change = change_of(seed, &tiers, choice);
    let other = change_of(seed, &tiers, choice.wrapping_add(1));
    let before: Vec<_> = tiers.iter().map(|tier| tier.path.clone()).collect();
    let after = changed(before.clone(), &change);
    let known = known.read_recursive();
    let drill = Drill { seed, known: &known, change, other, before, after };
    drill
        .run(life.machine.devices.look(|world| world.after(Loss::All)))
        .map_err(|why| format!("{:?}: {why}", drill.change))
}

impl Drill<'_> {
    fn run(&self, world: World) -> Result<(), Violation> {
        let machine = Machine::new(world, self.seed);
        let moments = Arc::new(Moments::default());
        machine.devices.watch(Some(Arc::clone(&moments) as Arc<dyn Watcher>));
        let made = make(&machine, &self.change);
        machine.devices.watch(None);
        match made {
            Err(error) if lacks_room(&self.change, &error) => return self.check_refused(machine),
            made => made.map_err(|error| format!("it is refused: {error}"))?,
        }
        // All of it is durable once the call has returned.
        let machine = Machine::new(machine.devices.look(|world| world.after(Loss::All)), self.seed);
        let db = machine.open().map_err(|error| format!("after it: {error}"))?;
        if paths(&db) != self.after {
            return Err(format!("the tiers are {:?} after it", paths(&db)));
        }
        check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
        self.check(&machine, db)?;
        let mut random = Random::new(mix(self.seed ^ 0x5E4));
        let worlds = std::mem::take(&mut *moments.worlds.lock());
        for (at, world) in worlds.iter().enumerate() {
            let images = if syncs::is_changed() { 0..4 } else { at as u64 % 3..at as u64 % 3 + 1 };
            for image in images {
                let units = world.units();
                let kept: Vec<_> = units.iter().map(|_| random.below(2) == 0).collect();
                let image = match image {
                    0 => world.after(Loss::None),
                    1 => world.after(Loss::All),
                    2 => world.after(Loss::Kept(&kept)),
                    _ => errors::without_owed(world),
                };
                let explain = |why| format!("cut off after change {at} of {}: {why}", worlds.len());
                self.check_cut_off(&image, at % 4 == 3).map_err(explain)?;
                // Each of these costs as much as many of the others.
                if syncs::is_changed() || at % 4 == 1 {
                    self.check_reading(&image).map_err(explain)?;
                    self.check_cut_off_again(&image).map_err(explain)?;
                }
            }
        }
        Ok(())
    }

    /// The database is as it was.
    fn check_refused(&self, machine: Machine) -> Result<(), Violation> {
        let db = machine.open().map_err(|error| format!("after a refusal: {error}"))?;
        if paths(&db) != self.before {
            return Err(format!("the tiers are {:?} after a refusal", paths(&db)));
        }
        self.check(&machine, db)
    }

    /// An opening for reading shows everything, or is refused, and changes nothing.
    fn check_reading(&self, image: &World) -> Result<(), Violation> {
        let machine = Machine::new(image.clone(), self.seed);
        match machine.open_read_only() {
            Ok(db) => {
                let count = self.known.check_state(&db, self.known.acknowledged)?;
                self.known.check_reads(&db, count)?;
                db.close().map_err(|error| format!("for reading, it does not close: {error}"))?;
            }
            Err(error) if error.kind() == ErrorKind::Tier => check_error(&error)?,
            Err(error) => return Err(format!("for reading, it is refused as no tier is: {error}")),
        }
        match machine.devices.look(World::digest) == image.digest() {
            true => Ok(()),
            false => Err("an opening for reading changes the directories".to_owned()),
        }
    }

    /// What a process or the power left when it ended; the change is made again, or another.
    fn check_cut_off(&self, image: &World, is_other: bool) -> Result<(), Violation> {
        let mut image = image.clone();
        // Copies, and the map, are made again under their numbers.
        image.forget_numbers(Path::new("/"));
        let machine = Machine::new(image, self.seed);
        let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
        let found = paths(&db);
        self.check(&machine, db)?;
        if found == self.after {
            return Ok(());
        }
        if found != self.before {
            return Err(format!("the tiers are {found:?}"));
        }
        let change = if is_other { &self.other } else { &self.change };
        match make(&machine, change) {
            Err(error) if lacks_room(change, &error) => return self.check_refused(machine),
            made => made.map_err(|error| format!("{change:?} is not made after it: {error}"))?,
        }
        let db = machine.open().map_err(|error| format!("after {change:?}: {error}"))?;
        if paths(&db) != changed(found, change) {
            return Err(format!("the tiers are {:?} after {change:?}", paths(&db)));
        }
        check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
        self.check(&machine, db)
    }

    /// As [`Drill::check_cut_off`], where the power goes in the opening that goes on.
    fn check_cut_off_again(&self, image: &World) -> Result<(), Violation> {
        if image.list(Path::new(HOME)).iter().all(|(name, _)| name != "CHANGING") {
            return Ok(());
        }
        let mut image = image.clone();
        image.forget_numbers(Path::new("/"));
        let machine = Machine::new(image, self.seed);
        let moments = Arc::new(Moments::default());
        machine.devices.watch(Some(Arc::clone(&moments) as Arc<dyn Watcher>));
        let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
        machine.kill(Some(db));
        let worlds = std::mem::take(&mut *moments.worlds.lock());
        for (at, world) in worlds.iter().enumerate() {
            let image = match at % 2 {
                _ if syncs::is_changed() => errors::without_owed(world),
                0 => world.after(Loss::All),
                _ => world.after(Loss::None),
            };
            self.check_cut_off(&image, false)
                .map_err(|why| format!("and after {at} in it: {why}"))?;
        }
        Ok(())
    }

    /// Everything is there, verifies, and writes go on.
    fn check(&self, machine: &Machine, db: Db) -> Result<(), Violation> {
        let count = self.known.check_state(&db, self.known.acknowledged)?;
        self.known.check_reads(&db, count)?;
        check_bytes(&db)?;
        let fail = |error| format!("writing does not resume: {error}");
        db.put("after", "the drill").and_then(|()| db.flush()).map_err(fail)?;
        db.delete("after").and_then(|()| db.flush()).map_err(fail)?;
        self.known.check_state(&db, self.known.acknowledged)?;
        while machine.stepper.step() {}
        db.close().map_err(|error| format!("it does not close: {error}"))
    }
}
