//! The drill of the list of tiers: a database that was closed, or whose process was killed, gets a
//! tier more, one fewer, or one in another directory, and the process ends or the power goes at any
//! moment of that.
//!
//! What is left opens, with the old list or the new one, and has every record; with the old one the
//! change is made again, or another is. While a tier is missing, or an older clone, it does not
//! open, and nothing changes.

use crate::crash::Least;
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
        // Where a sync is left out, only what it owes can be missed; or what the next opening would
        // have made durable before it goes on.
        let counts = |world: &World| world.has_owed() || is_begun_in_flight(world);
        if !syncs::is_changed() || devices.look(counts) {
            self.worlds.lock().push(devices.world());
        }
    }
}

/// A power cut can take a `CHANGING` that is there.
fn is_begun_in_flight(world: &World) -> bool {
    has_begun(world) && !world.is_durable(Path::new(HOME), "CHANGING")
}

fn has_begun(world: &World) -> bool {
    world.list(Path::new(HOME)).iter().any(|(name, _)| name == "CHANGING")
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
        let replace = |tier| TierChange::Replace { tier, path: path.clone() };
        choices.extend((0..tiers.len()).map(WhichTier::Place).map(replace));
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
        TierChange::Replace { tier: WhichTier::Place(at), path } => paths[*at].clone_from(path),
        TierChange::Replace { tier: WhichTier::Path(old), path } => {
            paths.iter_mut().filter(|tier| *tier == old).for_each(|tier| tier.clone_from(path));
        }
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
    least: Least,
    change: TierChange,
    /// What is asked for where the first was cut off, at some places.
    other: TierChange,
    before: Vec<PathBuf>,
    after: Vec<PathBuf>,
    /// What the directories held before the database was opened last.
    older: World,
    /// Of the moments one in two is tried: the even ones, or the odd ones.
    share: usize,
}

/// Changes the tiers of the database of `life`, once its process was killed, and once it is closed.
pub(crate) fn run(mut life: Life, known: &RwLock<Known>) -> Result<(), Violation> {
    let seed = life.seed;
    let tiers = life.db().settings().tiers.clone();
    let killed = life.machine.devices.look(|world| world.after(Loss::None));
    // What was only buffered before the kill may go with the power.
    let least = Least::of(&known.read_recursive());
    life.close().map_err(|stop| format!("{stop:?}"))?;
    let choice = mix(seed ^ life.machine.devices.calls());
    let change = change_of(seed, &tiers, choice);
    let other = change_of(seed, &tiers, choice.wrapping_add(1));
    let before: Vec<_> = tiers.iter().map(|tier| tier.path.clone()).collect();
    let after = changed(before.clone(), &change);
    let known = known.read_recursive();
    let (share, older) = (choice as usize % 2, killed.clone());
    let mut drill =
        Drill { seed, known: &known, least, change, other, before, after, older, share };
    drill.run(killed).map_err(|why| format!("killed, {:?}: {why}", drill.change))?;
    (drill.least, drill.share) = (Least::of(&known), 1 - share);
    let closed = life.machine.devices.look(|world| world.after(Loss::All));
    drill.run(closed).map_err(|why| format!("closed, {:?}: {why}", drill.change))
}

impl Drill<'_> {
    fn run(&self, world: World) -> Result<(), Violation> {
        let machine = Machine::new(world, self.seed);
        let moments = Arc::new(Moments::default());
        machine.devices.watch(Some(Arc::clone(&moments) as Arc<dyn Watcher>));
        let made = make(&machine, &self.change);
        machine.devices.watch(None);
        match made {
            Err(error) if lacks_room(&self.change, &error) => {
                return self.check_refused(&machine, self.least.after_kill);
            }
            made => made.map_err(|error| format!("it is refused: {error}"))?,
        }
        // All of it is durable once the call has returned.
        let machine = Machine::new(machine.devices.look(|world| world.after(Loss::All)), self.seed);
        let db = machine.open().map_err(|error| format!("after it: {error}"))?;
        if paths(&db) != self.after {
            return Err(format!("the tiers are {:?} after it", paths(&db)));
        }
        check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
        self.check(&machine, db, self.least.after_power_cut)?;
        let worlds = std::mem::take(&mut *moments.worlds.lock());
        let mut random = Random::new(mix(self.seed ^ 0x5E4));
        // Where a sync is left out there are few moments.
        let (skipped, step) = if syncs::is_changed() { (0, 1) } else { (self.share, 2) };
        let moments = worlds.iter().enumerate().skip(skipped).step_by(step);
        for (nth, (at, world)) in moments.enumerate() {
            self.check_moment(nth, world, &mut random)
                .map_err(|why| format!("cut off after change {at} of {}: {why}", worlds.len()))?;
        }
        Ok(())
    }

    fn check_moment(
        &self,
        nth: usize,
        world: &World,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let images = if syncs::is_changed() { 0..4 } else { nth % 3..nth % 3 + 1 };
        for image in images {
            let units = world.units();
            let kept: Vec<_> = units.iter().map(|_| random.below(2) == 0).collect();
            let cut = self.least.after_power_cut;
            let (image, least) = match image {
                0 => (world.after(Loss::None), self.least.after_kill),
                1 => (world.after(Loss::All), cut),
                2 => (world.after(Loss::Kept(&kept)), cut),
                _ => (errors::without_owed(world), cut),
            };
            self.check_wrong(&image, nth)?;
            self.check_cut_off(&image, least, nth % 4 == 3)?;
            // Each of these costs as much as many of the others.
            if syncs::is_changed() || nth % 4 == 1 {
                self.check_reading(&image, least)?;
                self.check_cut_off_again(&image, least)?;
            }
        }
        Ok(())
    }

    /// The database is as it was.
    fn check_refused(&self, machine: &Machine, least: usize) -> Result<(), Violation> {
        let db = machine.open().map_err(|error| format!("after a refusal: {error}"))?;
        if paths(&db) != self.before {
            return Err(format!("the tiers are {:?} after a refusal", paths(&db)));
        }
        self.check(machine, db, least).map(drop)
    }

    /// An opening for reading shows everything, or is refused, and changes nothing.
    fn check_reading(&self, image: &World, least: usize) -> Result<(), Violation> {
        let machine = Machine::new(image.clone(), self.seed);
        match machine.open_read_only() {
            Ok(db) => {
                let count = self.known.check_state(&db, least)?;
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

    /// Where a tier is missing, or what it was before the last opening, a change that was cut off
    /// is not ended.
    fn check_wrong(&self, image: &World, nth: usize) -> Result<(), Violation> {
        if !has_begun(image) {
            return Ok(());
        }
        let mut wrong = image.clone();
        // Each of the tiers in turn.
        let path = &self.after[nth / 2 % self.after.len()];
        let how = match self.before.contains(path) && nth.is_multiple_of(2) {
            true => {
                wrong.mount(path, &self.older, path);
                format!("{} is an older clone", path.display())
            }
            false => {
                wrong.unmount(path);
                format!("{} is missing", path.display())
            }
        };
        // An opening that goes on is told by what it leaves, not by the map that it makes again.
        wrong.forget_numbers(Path::new("/"));
        let machine = Machine::new(wrong.clone(), self.seed);
        match machine.open() {
            Ok(_) => return Err(format!("{how}, and it opens")),
            Err(error) if error.kind() == ErrorKind::Tier => check_error(&error)?,
            Err(error) => return Err(format!("{how}, and it is refused as no tier is: {error}")),
        }
        match machine.devices.look(World::digest) == wrong.digest() {
            true => Ok(()),
            false => Err(format!("{how}, and the refused opening changes the directories")),
        }
    }

    /// What a process or the power left when it ended; the change is made again, or another.
    fn check_cut_off(&self, image: &World, least: usize, is_other: bool) -> Result<(), Violation> {
        let mut image = image.clone();
        // Copies, and the map, are made again under their numbers.
        image.forget_numbers(Path::new("/"));
        let machine = Machine::new(image, self.seed);
        let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
        let found = paths(&db);
        let least = self.check(&machine, db, least)?;
        if found == self.after {
            return Ok(());
        }
        if found != self.before {
            return Err(format!("the tiers are {found:?}"));
        }
        let change = if is_other { &self.other } else { &self.change };
        match make(&machine, change) {
            Err(error) if lacks_room(change, &error) => return self.check_refused(&machine, least),
            made => made.map_err(|error| format!("{change:?} is not made after it: {error}"))?,
        }
        let db = machine.open().map_err(|error| format!("after {change:?}: {error}"))?;
        if paths(&db) != changed(found, change) {
            return Err(format!("the tiers are {:?} after {change:?}", paths(&db)));
        }
        check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
        self.check(&machine, db, least).map(drop)
    }

    /// As [`Drill::check_cut_off`], where the power goes in the opening that goes on.
    fn check_cut_off_again(&self, image: &World, least: usize) -> Result<(), Violation> {
        if !has_begun(image) {
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
        let cut = least.min(self.least.after_power_cut);
        for (at, world) in worlds.iter().enumerate() {
            let (image, least) = match at % 2 {
                _ if syncs::is_changed() => (errors::without_owed(world), cut),
                0 => (world.after(Loss::All), cut),
                _ => (world.after(Loss::None), least),
            };
            self.check_cut_off(&image, least, false)
                .map_err(|why| format!("and after {at} in it: {why}"))?;
        }
        Ok(())
    }

    /// At least so many submissions are there, everything verifies, and writes go on; says how many
    /// are there.
    fn check(&self, machine: &Machine, db: Db, least: usize) -> Result<usize, Violation> {
        let count = self.known.check_state(&db, least)?;
        self.known.check_reads(&db, count)?;
        check_bytes(&db)?;
        let fail = |error| format!("writing does not resume: {error}");
        db.put("after", "the drill").and_then(|()| db.flush()).map_err(fail)?;
        db.delete("after").and_then(|()| db.flush()).map_err(fail)?;
        self.known.check_state(&db, count)?;
        while machine.stepper.step() {}
        db.close().map_err(|error| format!("it does not close: {error}"))?;
        Ok(count)
    }
}
