//! Crash points: after every call that changed something, images of what could be left of the
//! devices are opened and held against the oracle, from within the call.
//!
//! ```text
//!   history ── write ──┬── sync ──┬── rename ──┬── ...
//!                      │          │            │      at each: the units in flight
//!                   images     images       images    all subsets, or a sample of them
//!                      │
//!                   recovery ──┬── write ──┬── ...    and there again, to depth 3
//!                           images      images
//! ```
//! 1. An image is checked with what the oracle knows at that very moment: a write whose call has
//!    not returned may be there or not.
//! 2. Images with a torn write, of which some sectors survived and others did not, are opened once
//!    more and written to, and the next write to the same file is torn too (`check_torn_again`):
//!    what two attempts left there must not be taken for one.
//! 3. What is tried at a point follows from the seed and the point's number alone (`item`), so one
//!    point can be tried without the others. Where a sync is left out, points draw in turn.
//! 4. What recovery of an image shows is what it shows again after the power is cut once more, at
//!    any point of the recovery or after it (`check_image`, idempotence).

use crate::devices::{CallKind, Devices, Loss, Unit, Watcher, World};
use crate::errors::is_unfinished;
use crate::history::{key, settings, value};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_files};
use crate::{syncs, trace};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Db, ErrorKind};
use thermocline_foundation::random::{Random, mix};
use thermocline_foundation::threads::catch_panic;

/// How much is tried at each crash point.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Where so few units are in flight, all their subsets are tried.
    pub all_units: u32,
    /// Images otherwise.
    pub samples: usize,
    /// One image in so many is recovered with crash points of its own.
    pub nested_one_in: u64,
    /// One crash point in so many of a recovery is tried.
    pub nested_points_one_in: u64,
    /// Images at a crash point of a recovery.
    pub nested_samples: usize,
    /// Recoveries within recoveries.
    pub depth: u32,
    /// Of the images with a torn write, one in so many is torn again.
    pub torn_one_in: u64,
}

impl Effort {
    /// As `design` asks: all subsets of up to 12 units, else 256 images.
    pub const FULL: Self = Self {
        all_units: 12,
        samples: 256,
        nested_one_in: 64,
        nested_points_one_in: 6,
        nested_samples: 3,
        depth: 3,
        torn_one_in: 16,
    };
    /// For many seeds.
    pub const SAMPLED: Self = Self { all_units: 3, samples: 6, nested_one_in: 32, ..Self::FULL };
    /// For thousands of seeds.
    pub const LIGHT: Self = Self { all_units: 0, samples: 1, nested_one_in: 32, ..Self::FULL };
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls of the store after which it could have crashed.
    pub points: u64,
    /// States of devices that were opened, by how many recoveries they were cut in.
    pub images: [u64; 4],
}

impl Tally {
    /// Images at all depths.
    pub fn all_images(&self) -> u64 {
        self.images.iter().sum()
    }
}

/// Of the images of a creation that was cut off, one in so many is cut off again.
const AGAIN_ONE_IN: u64 = 8;

/// After so many images of which a sync is missing, fewer are tried.
const OWED_IMAGES: u64 = 400;

/// Submissions that must be there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Least {
    pub after_power_cut: usize,
    pub after_kill: usize,
}

impl Least {
    pub fn of(known: &Known) -> Self {
        Self { after_power_cut: known.durable, after_kill: known.acknowledged }
    }
}

/// The crash points of one life, and of the recoveries from its images.
pub struct CrashPoints {
    seed: u64,
    known: Arc<RwLock<Known>>,
    effort: Effort,
    /// Recoveries that this one is within.
    depth: u32,
    /// What must be there at least, inside a recovery; none: what the oracle says.
    least: Option<Least>,
    /// Only writes to this file are looked at, each of them torn.
    torn: Option<u64>,
    /// Only the crash point of this number is tried.
    only: Option<u64>,
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    random: Random,
    tally: Tally,
    /// The first broken promise, and the number of the crash point that shows it.
    violation: Option<(u64, Violation)>,
}

impl Shared {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), tally: Tally::default(), violation: None }
    }
}

/// Where the draws of a history's crash points begin.
fn first_draw(seed: u64) -> u64 {
    mix(seed ^ 0xC4A5)
}

impl std::fmt::Debug for CrashPoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "crash points at depth {}", self.depth)
    }
}

impl CrashPoints {
    /// The same, going on with no more effort than samples: where a history makes so many calls at
    /// once that all their subsets are too many.
    pub fn sampled(&self) -> Self {
        let effort = match self.effort.samples > Effort::SAMPLED.samples {
            true => Effort::SAMPLED,
            false => self.effort,
        };
        let (known, shared) = (Arc::clone(&self.known), Arc::clone(&self.shared));
        let (seed, only) = (self.seed, self.only);
        Self { seed, known, effort, depth: 0, least: None, torn: None, only, shared }
    }

    /// Crash points of a life of which `known` is known; all, or the one of a number.
    pub fn new(seed: u64, known: Arc<RwLock<Known>>, effort: Effort, only: Option<u64>) -> Self {
        Self {
            seed,
            known,
            effort,
            depth: 0,
            least: None,
            torn: None,
            only,
            shared: Arc::new(Mutex::new(Shared::new(first_draw(seed)))),
        }
    }

    /// What was tried so far.
    pub fn tally(&self) -> Tally {
        self.shared.lock().tally
    }

    /// The first broken promise.
    pub fn violation(&self) -> Option<Violation> {
        self.shared.lock().violation.as_ref().map(|(_, violation)| violation.clone())
    }

    /// The number of the crash point that showed it, where it shows it alone too.
    pub fn violated_at(&self) -> Option<u64> {
        let shared = self.shared.lock();
        shared.violation.as_ref().map(|(point, _)| *point).filter(|_| !syncs::is_changed())
    }

    fn note(&self, tried: Result<(), Violation>) {
        if let Err(violation) = tried {
            trace::freeze();
            let mut shared = self.shared.lock();
            let point = shared.tally.points.saturating_sub(1);
            shared.violation.get_or_insert((point, violation));
        }
    }

    /// Counts a crash point of the history, and says whether it is tried.
    fn begin_point(&self) -> bool {
        let mut shared = self.shared.lock();
        let point = shared.tally.points;
        shared.tally.points += 1;
        if !syncs::is_changed() {
            shared.random = Random::new(mix(first_draw(self.seed) ^ point));
        }
        self.only.is_none_or(|only| only == point)
    }

    fn draw(&self, bound: u64) -> u64 {
        self.shared.lock().random.below(bound)
    }

    /// The images of `world` that are tried.
    fn try_point(&self, world: &World, what: &str) -> Result<(), Violation> {
        let units = world.units();
        let least = self.least.unwrap_or_else(|| Least::of(&self.known.read_recursive()));
        let (all_units, samples) = match self.depth {
            0 => (self.effort.all_units, self.effort.samples),
            _ => (1, self.effort.nested_samples),
        };
        let mut random = Random::new(self.shared.lock().random.next_u64());
        let masks = match units.iter().any(|unit| unit.owed) {
            true => masks_of_owed(&units, &mut random),
            false => masks(&units, all_units, samples, &mut random),
        };
        for kept in &masks {
            let image = world.after(Loss::Kept(kept));
            let least = Least { after_kill: least.after_power_cut, ..least };
            let explain = |why| format!("{what}; {}:\n{why}", describe(world, &units, kept));
            self.check_image(&image, least).map_err(explain)?;
            if self.depth == 0
                && let Some(file) = torn_file(&units, kept)
                && self.draw(self.effort.torn_one_in) == 0
            {
                self.check_torn_again(&image, least, file).map_err(explain)?;
            }
        }
        let few = self.effort.samples < 4;
        if self.depth < 2 && !(few && self.draw(4) > 0) {
            let image = world.after(Loss::None);
            let explain = |why| format!("{what}; the process was killed:\n{why}");
            self.check_image(&image, least).map_err(explain)?;
        }
        Ok(())
    }

    /// The process is killed, or the power cut, and what opens the store then may leave out a sync.
    fn try_restart(&self, world: &World, call: u64) -> Result<(), Violation> {
        let least = Least::of(&self.known.read_recursive());
        let explain = |why| format!("the process was killed after call {call}:\n{why}");
        self.check_image(&world.after(Loss::None), least).map_err(explain)?;
        let kept: Vec<_> = world.units().iter().map(|_| self.draw(2) == 0).collect();
        let least = Least { after_kill: least.after_power_cut, ..least };
        let explain = |why| format!("the power was cut after call {call}:\n{why}");
        self.check_image(&world.after(Loss::Kept(&kept)), least).map_err(explain)
    }

    /// Opens an image and checks all that must hold.
    fn check_image(&self, world: &World, least: Least) -> Result<(), Violation> {
        self.shared.lock().tally.images[self.depth as usize] += 1;
        trace::enter_image();
        let checked = catch_panic(|| self.check_image_inner(world, least));
        let checked = checked.unwrap_or_else(|said| Err(format!("it panics: {said}")));
        if checked.is_ok() {
            trace::leave_image();
        }
        checked
    }

    fn check_image_inner(&self, world: &World, least: Least) -> Result<(), Violation> {
        let machine = Machine::new(world.clone(), self.draw(u64::MAX));
        let is_nested = match syncs::is_changed() {
            true => self.depth == 0,
            false => self.depth < self.effort.depth && self.draw(self.effort.nested_one_in) == 0,
        };
        if is_nested {
            machine.devices.watch(Some(Arc::new(Self {
                seed: self.seed,
                known: Arc::clone(&self.known),
                effort: self.effort,
                depth: self.depth + 1,
                least: Some(least),
                torn: None,
                only: None,
                shared: Arc::clone(&self.shared),
            })));
        }
        let opened = machine.open();
        machine.devices.watch(None);
        if let Some(violation) = self.violation() {
            return Err(violation);
        }
        let known = self.known.read_recursive();
        let db = match opened {
            Ok(db) => db,
            Err(error) if !known.created && error.kind() == ErrorKind::NotFound => {
                return self.check_created_again(world);
            }
            Err(error) => return Err(format!("it does not open: {error}")),
        };
        let count = known.check_state(&db, least.after_kill)?;
        if !known.created && db.settings().memory != settings(self.seed).memory {
            return Err("it opens without the settings that it is made with".to_owned());
        }
        if self.depth == 0 {
            self.check_checkpoint(&known, &machine, &db)?;
        }
        let checked = self.check_further(&known, &machine, &db, count);
        machine.kill(Some(db));
        checked
    }

    /// The checkpoint that is being made is there with all that it should have, or, unless it was
    /// made, is not there and can be made.
    fn check_checkpoint(&self, known: &Known, machine: &Machine, db: &Db) -> Result<(), Violation> {
        let Some((path, is_made)) = &known.checkpoint else { return Ok(()) };
        match machine.environment.open(path) {
            Ok(copy) => {
                known.check_state(&copy, if *is_made { known.count() } else { 0 })?;
                copy.close().map_err(|error| format!("the checkpoint does not close: {error}"))
            }
            Err(error) if !is_made && error.kind() == ErrorKind::NotFound => {
                if self.draw(3) > 0 {
                    return Ok(());
                }
                machine.devices.meddle(|world| world.forget_numbers(path));
                let made = db.checkpoint(path);
                made.map_err(|error| format!("the checkpoint cannot be made again: {error}"))
            }
            Err(error) if !is_made && is_unfinished(&error) => Ok(()),
            Err(error) => Err(format!("the checkpoint does not open: {error}")),
        }
    }

    /// Makes the database in an image of a creation that was cut off, on some with crash points
    /// there too: what is left of the first attempt is in the way of none.
    fn check_created_again(&self, world: &World) -> Result<(), Violation> {
        let seed = mix(self.seed ^ world.digest());
        let machine = Machine::new(world.clone(), seed);
        machine.devices.meddle(|world| world.forget_numbers(Path::new("/")));
        let again = Arc::new(Self {
            depth: self.depth + 1,
            only: None,
            shared: Arc::new(Mutex::new(Shared::new(seed))),
            ..self.sampled()
        });
        let is_watched = syncs::is_changed() || seed.is_multiple_of(AGAIN_ONE_IN);
        if self.depth == 0 && is_watched {
            machine.devices.watch(Some(Arc::clone(&again) as Arc<dyn Watcher>));
        }
        let made = machine.create(&settings(self.seed));
        machine.devices.watch(None);
        if let Some(violation) = again.violation() {
            return Err(format!("the creation is made again: {violation}"));
        }
        let db = made.map_err(|error| format!("it cannot be created again: {error}"))?;
        machine.kill(Some(db));
        let image = machine.devices.look(|world| world.after(Loss::All));
        let machine = Machine::new(image, seed);
        let db = machine.open();
        let db = db.map_err(|error| format!("created again, it does not open: {error}"))?;
        machine.kill(Some(db));
        Ok(())
    }

    /// Opens an image in which the last write to `file` is torn, lets the store append to its
    /// journals, and tears what is written to the file then.
    fn check_torn_again(&self, world: &World, least: Least, file: u64) -> Result<(), Violation> {
        let machine = Machine::new(world.clone(), self.draw(u64::MAX));
        machine.devices.watch(Some(Arc::new(Self {
            seed: self.seed,
            known: Arc::clone(&self.known),
            effort: self.effort,
            depth: self.depth + 1,
            least: Some(least),
            torn: Some(file),
            only: None,
            shared: Arc::clone(&self.shared),
        })));
        // `check_image` says whether it opens.
        let db = machine.open().ok();
        let compacted = db.as_ref().map(|db| db.compact_range(None, None, &mut |_| {}));
        machine.kill(db);
        if let Some(violation) = self.violation() {
            return Err(violation);
        }
        compacted.unwrap_or(Ok(())).map_err(|error| format!("it cannot be compacted: {error}"))
    }

    /// The images of `world` in which the last write to `file`, made by `call`, is torn.
    fn try_torn(&self, world: &World, file: u64, call: u64, what: &str) -> Result<(), Violation> {
        let units = world.units();
        let is_torn = |unit: &Unit| unit.file == Some(file) && unit.call == call;
        let Some(least) = self.least.filter(|_| units.iter().any(is_torn)) else { return Ok(()) };
        let mut random = Random::new(self.draw(u64::MAX));
        for others in [true, true, true, false] {
            let keep = |unit: &Unit| if is_torn(unit) { random.below(2) == 0 } else { others };
            let kept: Vec<_> = units.iter().map(keep).collect();
            let image = world.after(Loss::Kept(&kept));
            let explain = |why| format!("{what}; {}:\n{why}", describe(world, &units, &kept));
            self.check_image(&image, least).map_err(explain)?;
        }
        Ok(())
    }

    /// One of the dearer checks, in turn.
    fn check_further(
        &self,
        known: &Known,
        machine: &Machine,
        db: &Db,
        count: usize,
    ) -> Result<(), Violation> {
        match self.draw(12) {
            0 | 1 => Ok(known.check_reads(db, count)?),
            2 => {
                check_files(db, |path| machine.devices.look(|world| world.list(path)))?;
                check_bytes(db)?;
                Ok(known.check_reads(db, count)?)
            }
            3..=5 => {
                // What recovery showed it must show again.
                let again = machine.devices.look(|world| world.after(Loss::All));
                let machine = Machine::new(again, self.draw(u64::MAX));
                let db = machine.open().map_err(|error| {
                    format!("after a second power cut it does not open: {error}")
                })?;
                let found = known.check_state(&db, count).map_err(|wrong| {
                    let why = Violation::from(wrong);
                    format!("recovery showed {count} submissions, and then: {why}")
                })?;
                machine.kill(Some(db));
                if found == count || known.is_same_state(found, count) {
                    return Ok(());
                }
                Err(format!("recovery showed {count} submissions, and then {found}"))
            }
            6 => check_resumes(known, machine, db, count),
            _ => Ok(()),
        }
    }
}

/// Writes go on after a recovery, and are there after the next.
fn check_resumes(known: &Known, machine: &Machine, db: &Db, count: usize) -> Result<(), Violation> {
    let mut known = known.clone();
    known.settle_at(count);
    let fail = |error| format!("writing does not resume: {error}");
    for number in 0..6 {
        let key = key(number * 7 % known.keys);
        let value = value(&key, 999_990 + number as usize, 500, false);
        known.submit(&[(key.clone(), Some(value.clone()))]);
        db.put(&key, &value).map_err(fail)?;
        if number == 3 {
            db.flush().map_err(fail)?;
        }
        machine.stepper.step();
    }
    known.acknowledge(true);
    known.check_reads(db, known.count())?;
    let image = machine.devices.look(|world| world.after(Loss::All));
    let machine = Machine::new(image, count as u64);
    let db = machine.open().map_err(|error| format!("it does not open again: {error}"))?;
    known.check_state(&db, known.count())?;
    db.compact_range(None, None, &mut |_| {}).map_err(fail)?;
    known.check_state(&db, known.count())?;
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
    db.close().map_err(|error| format!("it does not close: {error}"))
}

impl Watcher for CrashPoints {
    fn changed(&self, devices: &Devices, call: u64, kind: CallKind) {
        if self.violation().is_some() {
            return;
        }
        if let Some(file) = self.torn {
            if kind == CallKind::Write {
                let what = format!("the next write to a torn file, call {call}, is torn too");
                self.note(self.try_torn(&devices.world(), file, call, &what));
            }
            return;
        }
        if syncs::is_changed() {
            // What a power cut leaves differs only where something in flight should be durable.
            if !devices.look(World::has_owed) {
                let is_thorough = self.depth == 0 && self.effort.samples > 1;
                let is_early = !self.known.read_recursive().created;
                let kills_one_in = if kind == CallKind::Write { 16 } else { 4 };
                if is_thorough && (is_early || self.draw(kills_one_in) == 0) {
                    self.note(self.try_restart(&devices.world(), call));
                }
                return;
            }
            let images = self.tally().all_images();
            if images > OWED_IMAGES && self.draw(8) > 0 {
                return;
            }
        } else if self.depth > 0 && self.draw(self.effort.nested_points_one_in) > 0 {
            return;
        }
        if self.depth == 0 && !self.begin_point() {
            return;
        }
        let world = devices.world();
        let where_ = if self.depth == 0 { "" } else { " of a recovery" };
        let what = format!("crash after call {call} ({kind:?}){where_}");
        self.note(self.try_point(&world, &what));
    }
}

/// A file of which the last write survived in part; none if there is none.
fn torn_file(units: &[Unit], kept: &[bool]) -> Option<u64> {
    let flags = units.iter().zip(kept);
    let last = |file| units.iter().filter(|unit| unit.file == file).map(|unit| unit.call).max();
    let mut partly = flags
        .clone()
        .filter(|(unit, kept)| unit.file.is_some() && **kept && Some(unit.call) == last(unit.file));
    let lost = |of: &Unit| {
        flags.clone().any(|(unit, kept)| !kept && (unit.file, unit.call) == (of.file, of.call))
    };
    partly.find(|(unit, _)| lost(unit)).and_then(|(unit, _)| unit.file)
}

/// Subsets of `units` to try: all of them where there are few, otherwise those that past bugs have
/// looked like (nothing, everything, one file or directory ahead of or behind the others, a prefix
/// in time, one unit missing), and then random ones.
fn masks(units: &[Unit], all: u32, samples: usize, random: &mut Random) -> Vec<Vec<bool>> {
    let count = units.len();
    if count <= all as usize {
        let bit = |mask: u32, index: usize| mask >> index & 1 == 1;
        return (0..1u32 << count)
            .map(|mask| (0..count).map(|index| bit(mask, index)).collect())
            .collect();
    }
    // Where only a few are tried, they begin anywhere in the list.
    let skipped = if samples < 8 { random.below(8) as usize } else { 0 };
    let mut masks = vec![vec![false; count], vec![true; count]];
    let mut add = |keep: &dyn Fn(usize, &Unit) -> bool| {
        masks.push(units.iter().enumerate().map(|(index, unit)| keep(index, unit)).collect());
    };
    let groups: BTreeSet<_> = units.iter().map(|unit| (unit.directory, unit.file)).collect();
    let groups: Vec<_> = groups.into_iter().collect();
    let last = units.iter().map(|unit| unit.call).max();
    add(&|_, unit| Some(unit.call) != last);
    add(&|_, unit| Some(unit.call) == last);
    add(&|_, unit| unit.file.is_none());
    add(&|_, unit| unit.file.is_some());
    while masks.len() < samples + skipped {
        let (directory, file) = groups[random.below(groups.len() as u64) as usize];
        let pivot = random.below(count as u64) as usize;
        let choice = random.below(8);
        let mut seed = random.next_u64();
        let share = 1 + random.below(15);
        let mask = units.iter().enumerate().map(|(index, unit)| match choice {
            0 => (unit.directory, unit.file) == (directory, file),
            1 => (unit.directory, unit.file) != (directory, file),
            2 => unit.directory == directory,
            3 => unit.call <= units[pivot].call,
            4 => index != pivot,
            5 => unit.call != units[pivot].call,
            _ => {
                seed = mix(seed.wrapping_add(1));
                seed % 16 < share
            }
        });
        masks.push(mask.collect());
    }
    masks.drain(..skipped);
    masks.truncate(samples.max(1));
    masks
}

/// Subsets of `units` to try where some should be durable and are not.
fn masks_of_owed(units: &[Unit], random: &mut Random) -> Vec<Vec<bool>> {
    let mut mask = |of_owed: u64, of_others: u64| -> Vec<bool> {
        let share = |unit: &Unit| if unit.owed { of_owed } else { of_others };
        units.iter().map(|unit| random.below(4) < share(unit)).collect()
    };
    // In quarters that survive, of those that should be durable and of the others.
    [(0, 4), (0, 0), (2, 4), (0, 2), (2, 2)].map(|(owed, others)| mask(owed, others)).into()
}

/// What of a crash image was kept, in a line a directory.
fn describe(world: &World, units: &[Unit], kept: &[bool]) -> String {
    let mut lines = vec![format!("{} units in flight", units.len())];
    for (index, path) in world.paths().iter().enumerate() {
        let here = units.iter().zip(kept).filter(|(unit, _)| unit.directory == index);
        let text: String = here.map(|(_, kept)| if *kept { '+' } else { '-' }).collect();
        if !text.is_empty() {
            lines.push(format!("  {} {text}", path.display()));
        }
    }
    lines.join("\n")
}
