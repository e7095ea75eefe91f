//! Rot: every byte of every kind of file is flipped, and blocks are zeroed, cut off, swapped and
//! replaced by older ones, in a database that was closed in good order; and in the log of one whose
//! process was killed, before records that were durable. Blocks change places with those of other
//! files, and blocks of tables with others of the same length, which only their checksum's binding
//! to the place tells apart.
//!
//! Each damage is found and reported (by the opening, a read, or `verify`), or it is harmless: then
//! every answer is right and all bytes verify.
//!
//! A flipped bit costs what is damaged, no more: the store opens, and but for what a table holds at
//! most one key has no answer ([`most_unanswered`]). Files that say which database and which tier
//! this is are the exception.

use crate::devices::{Loss, ReadPlace, World};
use crate::drills;
use crate::history::{HOME, Shape, Step, TIERS, is_hybrid, key, value};
use crate::life::Life;
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_error};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::Durability;
use thermocline_foundation::random::{Random, mix};

const SHAPE: Shape =
    Shape { steps: 60, keys: 16, crashes: false, reopens: true, large_values: false };

/// From the end of a file of the cache: where its footer says where its directory begins
/// (docs/formats/cache.md).
const DIRECTORY_BACK: usize = 4096 - 56;
/// Of the blocks' bytes every so manieth is flipped.
const BLOCK_BYTES_EACH: u64 = 509;

/// A closed database, an earlier state of it, and what it holds.
pub struct Fixture {
    seed: u64,
    world: World,
    earlier: World,
    known: Known,
    /// Of the newest write.
    sequence: u64,
    /// The process was killed: only its log is looked at, up to here; behind may be a torn record.
    log_end: Option<u64>,
}

impl std::fmt::Debug for Fixture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the fixture of seed {}", self.seed)
    }
}

/// A directory and the name of a file there.
pub type Place = Arc<(PathBuf, String)>;

/// Something wrong with a file.
#[derive(Clone, Debug)]
pub enum Damage {
    /// A bit of the byte at this offset.
    Flip(u64, u8),
    /// A block of this length is zero.
    Zero(u64, usize),
    /// It ends here.
    Cut(u64),
    /// Two blocks of this length have changed places.
    Swap(u64, u64, usize),
    /// A block of this length is what it was some time ago.
    Older(u64, usize),
    /// Blocks of this length, here and in another file, have changed places.
    Exchange(u64, Place, u64, usize),
}

/// What was damaged, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store reported it.
    Reported,
    /// It makes no difference.
    Harmless,
}

impl Fixture {
    /// The fixture of `seed`: a history, killed at its end where the seed is 2 modulo 3, else
    /// closed in good order.
    pub fn new(seed: u64) -> Result<Self, Violation> {
        let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
        let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
        life.run(&SHAPE).map_err(|(step, stop)| format!("step {step}: {stop:?}"))?;
        let earlier = life.machine.devices.world();
        let killed = seed % 3 == 2;
        let mut log_end = None;
        let more = |number: usize| value(b"key000", 700_000 + number, 900, false);
        for number in 0..3 {
            let write = (b"key000".to_vec(), Some(more(number)));
            known.write().submit(std::slice::from_ref(&write));
            life.db().put(b"key000", more(number)).map_err(|error| error.to_string())?;
            known.write().acknowledge(true);
            if number == 1 && killed {
                log_end = Some(end_of_log(&life.machine.devices.world()));
            }
            if number == 0 && !seed.is_multiple_of(2) {
                life.db().flush().map_err(|error| error.to_string())?;
                life.db().settle().map_err(|error| error.to_string())?;
            }
        }
        let sequence = life.db().stats().sequence;
        if !killed {
            life.close().map_err(|stop| format!("closing: {stop:?}"))?;
        }
        let world = life.machine.devices.look(|world| world.after(Loss::None));
        life.kill();
        let known = known.read_recursive().clone();
        Ok(Self { seed, world, earlier, known, sequence, log_end })
    }

    /// What damages of the file come to is known.
    fn judges(&self, name: &str) -> bool {
        self.log_end.is_none() || newest_log(&self.world).is_some_and(|log| log.1 == name)
    }

    /// Files of all directories, with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, String, u64)> {
        let paths = TIERS.iter().chain([&HOME]).map(Path::new);
        paths
            .flat_map(|path| {
                let listed = self.world.list(path).into_iter();
                listed.map(move |(name, len)| (path.to_owned(), name, len))
            })
            .filter(|(_, name, len)| *len > 0 && name != "LOCK")
            .collect()
    }

    /// Bytes of a file that are not zero, or are near one: the others are many and alike.
    fn interesting_bytes(&self, directory: &Path, name: &str) -> Vec<u64> {
        let bytes = self.world.bytes(directory, name);
        let mut random = Random::new(mix(self.seed));
        let is_live = |index: usize| {
            let from = index.saturating_sub(8);
            bytes[from..(index + 8).min(bytes.len())].iter().any(|byte| *byte != 0)
        };
        (0..bytes.len())
            .filter(|index| is_live(*index) || random.below(256) == 0)
            .filter(|index| self.log_end.is_none_or(|end| (*index as u64) < end))
            .map(|index| index as u64)
            .collect()
    }

    /// Damages of single bytes and of whole blocks, of all files whose damages come to something
    /// that is known.
    pub fn damages(&self) -> Vec<(Place, Damage)> {
        let mut damages = Vec::new();
        for (directory, name, len) in self.files() {
            if !self.judges(&name) {
                continue;
            }
            let place = Arc::new((directory, name));
            for at in self.interesting_bytes(&place.0, &place.1) {
                let mask = 1 << (mix(at ^ self.seed) % 8);
                damages.push((Arc::clone(&place), Damage::Flip(at, mask)));
            }
            let blocks = self.block_damages(&place.0, &place.1, len).into_iter();
            damages.extend(blocks.map(|damage| (Arc::clone(&place), damage)));
        }
        damages
    }

    /// Damages of whole blocks of a file.
    fn block_damages(&self, directory: &Path, name: &str, len: u64) -> Vec<Damage> {
        let mut damages = Vec::new();
        if self.log_end.is_some() {
            return damages;
        }
        let mut random = Random::new(mix(self.seed ^ len));
        let earlier = self.earlier.list(directory);
        let is_old = earlier.iter().any(|(old, _)| old == name);
        for size in [512u64, 4096] {
            let count = len / size;
            for block in 0..count.min(400) {
                let at = block * size;
                damages.push(Damage::Zero(at, size as usize));
                damages.push(Damage::Cut(at));
                damages.push(Damage::Swap(at, random.below(count) * size, size as usize));
                if is_old {
                    damages.push(Damage::Older(at, size as usize));
                }
            }
        }
        damages
    }

    /// Blocks at the same place of two files that change places, for each file and the next; those
    /// of the same kind are next to each other.
    pub fn exchanges(&self) -> Vec<(Place, Damage)> {
        let mut files = self.files();
        if self.log_end.is_some() {
            files.clear();
        }
        let end = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        files.sort_by_key(|(_, name, _)| end(name));
        let mut damages = Vec::new();
        for pair in files.windows(2) {
            let [one, other] = [0, 1].map(|i| Arc::new((pair[i].0.clone(), pair[i].1.clone())));
            for size in [512u64, 4096] {
                for block in 0..(pair[0].2.min(pair[1].2) / size).min(32) {
                    let (at, other) = (block * size, Arc::clone(&other));
                    let damage = Damage::Exchange(at, other, at, size as usize);
                    damages.push((Arc::clone(&one), damage));
                }
            }
        }
        damages
    }

    /// A database of tables whose blocks are alike in length: each holds one record, and all are of
    /// the same size. A misplaced block lands where another fits.
    pub fn alike(seed: u64) -> Result<Self, Violation> {
        let known = Arc::new(RwLock::new(Known::new(SHAPE.keys)));
        let mut life = Life::new(seed, &SHAPE, Arc::clone(&known));
        for tier in TIERS {
            // What is read is then a block, and not the pages around it.
            life.machine.devices.set_alignment(Path::new(tier), 1);
        }
        let failed = |stop| format!("before any damage: {stop:?}");
        life.create().map_err(failed)?;
        let block_bytes = life.settings.block_size.0 as usize;
        for round in 0..6 {
            for number in (0..SHAPE.keys).step_by(4) {
                let key = key(number);
                // Incompressible, or blocks would differ in length again.
                let value = value(&key, 900_000 + round, block_bytes, false);
                let write = Step::Write(vec![(key, Some(value))], Durability::Buffered);
                life.step(&write).map_err(failed)?;
            }
            life.step(&Step::Flush).map_err(failed)?;
            // What is flushed here is in slots; the last two rounds stay there.
            if is_hybrid(seed) && round < 4 {
                life.step(&Step::Compact).map_err(failed)?;
            }
        }
        let sequence = life.db().stats().sequence;
        life.close().map_err(failed)?;
        let world = life.machine.devices.look(|world| world.after(Loss::None));
        let known = known.read_recursive().clone();
        Ok(Self { seed, earlier: world.clone(), world, known, sequence, log_end: None })
    }

    /// A database whose block cache has files, which histories leave few of.
    pub fn cached(seed: u64) -> Result<Self, Violation> {
        let (world, known) = drills::cache::closed(seed)?;
        let sequence = known.writes();
        Ok(Self { seed, earlier: world.clone(), world, known, sequence, log_end: None })
    }

    /// Flips in the files of the block cache and in the list of lives: each byte of what leads to
    /// blocks, and some of blocks.
    pub fn flips_of_cache(&self) -> Vec<(Place, Damage)> {
        let mut damages = Vec::new();
        for (directory, name, _) in self.files() {
            let seal = match name.rsplit('.').next() {
                Some("cache") => directory_of(&self.world.bytes(&directory, &name)),
                _ if name.ends_with("lives.txt") => 0,
                _ => continue,
            };
            let place = Arc::new((directory, name));
            for at in self.interesting_bytes(&place.0, &place.1) {
                if at >= seal || at.is_multiple_of(BLOCK_BYTES_EACH) {
                    let mask = 1 << (mix(at ^ self.seed) % 8);
                    damages.push((Arc::clone(&place), Damage::Flip(at, mask)));
                }
            }
        }
        damages
    }

    /// Pairs of blocks of the same length, of one table or two, that change places. Which blocks
    /// there are is seen by what the store reads as a whole.
    pub fn swaps_of_blocks(&self) -> Result<Vec<(Place, Damage)>, Violation> {
        let machine = Machine::new(self.world.clone(), self.seed);
        machine.devices.record_reads();
        let db = machine.open().map_err(|error| format!("before any damage: {error}"))?;
        self.known.check_reads(&db, self.known.count())?;
        machine.kill(Some(db));
        let has_records =
            |place: &ReadPlace| place.name.ends_with(".table") || place.name.ends_with(".slab");
        let blocks: Vec<_> = machine.devices.reads().into_iter().filter(has_records).collect();
        let mut damages = Vec::new();
        for alike in blocks.chunk_by(|a, b| a.len == b.len) {
            for far in [1, 2, 5, 11] {
                for (a, b) in alike.iter().zip(alike.iter().skip(far)).take(40) {
                    let apart = (a.offset + a.len as u64 <= b.offset)
                        || (&a.directory, &a.name) != (&b.directory, &b.name);
                    if apart {
                        let place = |of: &ReadPlace| (of.directory.clone(), of.name.clone());
                        let damage = Damage::Exchange(a.offset, place(b).into(), b.offset, a.len);
                        damages.push((Arc::new(place(a)), damage));
                    }
                }
            }
        }
        if damages.is_empty() {
            return Err("no two blocks have the same length: nothing was tried".to_owned());
        }
        Ok(damages)
    }

    /// What the fixture is drawn from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What the database holds.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// Of the newest write.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The process was killed; nothing was closed.
    pub fn is_killed(&self) -> bool {
        self.log_end.is_some()
    }

    /// The devices with `damage` in a file; none where there is nothing that could be damaged so.
    pub fn damaged(&self, directory: &Path, name: &str, damage: &Damage) -> Option<World> {
        let mut world = self.world.clone();
        let bytes = self.world.bytes(directory, name);
        let block = |at: u64, len: usize| bytes.get(at as usize..at as usize + len);
        match *damage {
            Damage::Flip(at, mask) => {
                let byte = bytes[at as usize] ^ mask;
                world.damage(directory, name, at, &[byte]);
            }
            Damage::Zero(at, len) => world.damage(directory, name, at, &vec![0; len]),
            Damage::Cut(at) => world.cut(directory, name, at),
            Damage::Swap(a, b, len) => {
                world.damage(directory, name, a, block(b, len)?);
                world.damage(directory, name, b, block(a, len)?);
            }
            Damage::Older(at, len) => {
                let old = self.earlier.bytes(directory, name);
                world.damage(directory, name, at, old.get(at as usize..at as usize + len)?);
            }
            Damage::Exchange(at, ref other, other_at, len) => {
                let others = self.world.bytes(&other.0, &other.1);
                let theirs = others.get(other_at as usize..other_at as usize + len)?;
                world.damage(&other.0, &other.1, other_at, block(at, len)?);
                world.damage(directory, name, at, theirs);
            }
        }
        Some(world)
    }

    /// Puts `damage` into a file and looks at what the store makes of it.
    pub fn try_damage(
        &self,
        directory: &Path,
        name: &str,
        damage: &Damage,
    ) -> Result<Outcome, Violation> {
        let Some(world) = self.damaged(directory, name, damage) else {
            return Ok(Outcome::Harmless);
        };
        let machine = Machine::new(world, self.seed);
        let most = match damage {
            Damage::Flip(..) => most_unanswered(name),
            _ => None,
        };
        let db = match machine.open() {
            Ok(db) => db,
            Err(error) if most.is_some() => {
                return Err(format!("a flipped bit keeps the store from being read: {error}"));
            }
            Err(error) => return check_error(&error).map(|()| Outcome::Reported),
        };
        if matches!(name.rsplit('.').next(), Some("cache" | "txt")) {
            // Copies are found once a job has looked at their files.
            db.settle().map_err(|error| format!("background work ends: {error}"))?;
        }
        let unanswered = (0..SHAPE.keys).filter(|number| db.get(key(*number)).is_err()).count();
        if most.is_some_and(|most| unanswered > most) {
            return Err(format!("a flipped bit takes {unanswered} keys"));
        }
        let all = self.known.count();
        let answers = self.known.check_some_prefix(&db, all);
        let reported = match db.verify(&mut |_| {}) {
            Ok(report) => !report.is_ok(),
            Err(_) => true,
        };
        let outcome = match (answers, reported) {
            (Err(why), _) => Err(why),
            (Ok(()), true) => Ok(Outcome::Reported),
            (Ok(()), false) => self
                .known
                .check_state(&db, all)
                .map(|_| Outcome::Harmless)
                .map_err(|wrong| format!("all bytes verify, but: {}", Violation::from(wrong))),
        };
        machine.kill(Some(db));
        outcome
    }
}

/// How many keys may be without an answer where a bit of a file has flipped; none where the store
/// may be refused. A table's block holds many records, and its last page leads to all of them.
pub fn most_unanswered(name: &str) -> Option<usize> {
    match name.rsplit('.').next() {
        Some("slab") => Some(1),
        Some("log" | "map" | "manifest" | "index") => Some(0),
        // The cache of blocks, and its list of lives.
        Some("cache" | "txt") => Some(0),
        Some("table") => Some(SHAPE.keys as usize),
        _ => None,
    }
}

/// Where the directory of a file of the cache begins.
fn directory_of(bytes: &[u8]) -> u64 {
    let at = bytes.len() - DIRECTORY_BACK;
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The log with the largest number that holds anything, and its directory.
fn newest_log(world: &World) -> Option<(PathBuf, String)> {
    let paths = TIERS.iter().map(Path::new);
    let logs = paths.flat_map(|path| {
        let names = world.list(path).into_iter().map(|(name, _)| name);
        names.filter(|name| name.ends_with(".log")).map(move |name| (path.to_owned(), name))
    });
    // A log that is only prepared has a header and nothing else.
    let is_used = |(path, name): &(PathBuf, String)| {
        world.bytes(path, name).iter().skip(4096).any(|byte| *byte != 0)
    };
    logs.filter(is_used).max_by(|a, b| a.1.cmp(&b.1))
}

/// Where the records of the newest log end now.
fn end_of_log(world: &World) -> u64 {
    let bytes = newest_log(world).map(|(path, name)| world.bytes(&path, &name));
    bytes.and_then(|bytes| bytes.iter().rposition(|byte| *byte != 0)).unwrap_or(0) as u64
}
