//! The drill of the block cache: its files are lost, are there as they were some time ago, have
//! changed places, are torn, are another copy's or another database's, and its tier is full.
//!
//! ```text
//!   warm, close ── earlier files    go on, take a checkpoint, write and read ── the image
//!                       v                          v
//!                 each harm on a copy of the image: open, ask for everything, write
//! ```
//! Copies are never an authority. Whatever is there in their place the store opens, answers as the
//! model does, goes on to write, and counts its files; files that cannot be its own count for
//! nothing. What the histories of other suites read is too little for a cache, so that the drill
//! has a database of its own: all tables lie on the slow tier, and all blocks are asked for.

use super::Phase;
use crate::devices::{Loss, World};
use crate::history::{HOME, TIERS, key, value};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_bytes, check_files};
use std::ops::Range;
use std::path::Path;
use thermocline::{
    Admission, BlockLayout, ByteSize, CacheCapacity, Compression, Db, Eviction, FastCacheSettings,
    FastCacheStats, PlacementChoice, Preset, Settings, Tier,
};
use thermocline_foundation::random::mix;

const KEYS: u64 = 320;
/// A record fills a block, so that blocks of all tables are alike in length.
const VALUE_BYTES: usize = 1000;
/// One part of so many of the records is written anew at a time, so that tables of the others, and
/// copies of their blocks, stay.
const PARTS: u64 = 4;
const COPY: &str = "/copy";
const LIVES: &str = "cache-lives.txt";

/// What happens to files of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    /// They are gone.
    Lost,
    /// They are those of some time ago, those that were deleted since included.
    Older,
    /// So is the list of lives.
    OlderLives,
    /// Each has the bytes of the next.
    Swapped,
    /// Each ends in the middle.
    Cut,
    /// Every third page of each was never written.
    Torn,
    /// Those of a checkpoint that has gone on are there in their place, and its list of lives.
    OfCheckpoint,
    /// Those of another database are there beside them.
    OfOther,
}

const HARMS: [Harm; 8] = [
    Harm::Lost,
    Harm::Older,
    Harm::OlderLives,
    Harm::Swapped,
    Harm::Cut,
    Harm::Torn,
    Harm::OfCheckpoint,
    Harm::OfOther,
];

/// A file's name and bytes.
type Files = Vec<(String, Vec<u8>)>;

fn settings(seed: u64) -> Settings {
    let tier = |index: usize, mib| Tier::new(TIERS[index], ByteSize::mib(mib)).driver("memory");
    let draw = |salt, count| mix(seed ^ salt) as usize % count;
    let admissions = [
        Admission::Always,
        Admission::SecondAccess,
        Admission::SimulatedLru,
        Admission::Frequency,
        Admission::SecondAccess,
        Admission::SimulatedLru,
    ];
    let evictions = [Eviction::FifoReinsert, Eviction::FileLru, Eviction::Fifo, Eviction::FileLru];
    Settings {
        preset: Some(Preset::Leveled),
        placement: PlacementChoice::LogOnly,
        tiers: vec![tier(0, 2), tier(1, 256)],
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(64),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::None],
        fast_cache: FastCacheSettings {
            capacity: match draw(0xCA_0014, 2) {
                0 => CacheCapacity::Auto,
                _ => ByteSize::mib(1).into(),
            },
            admission: admissions[draw(0xCA_0011, 6)],
            eviction: evictions[draw(0xCA_0012, 4)],
            layout: [BlockLayout::Packed, BlockLayout::Padded][draw(0xCA_0013, 2)],
            file_size: ByteSize::kib(64),
            batch: ByteSize::kib(16),
            ..FastCacheSettings::default()
        },
        ..Settings::default()
    }
}

/// A database whose cache is in use, and what it should answer.
struct Warm {
    machine: Machine,
    db: Db,
    known: Known,
    /// Numbers the values.
    round: usize,
    /// Numbers of the keys that were written last.
    written: Range<u64>,
}

impl Warm {
    /// A new database, with copies of about all of its blocks.
    fn new(seed: u64) -> Result<Self, Violation> {
        let machine = Machine::empty(seed);
        let db = machine.create(&settings(seed)).map_err(|error| error.to_string())?;
        let mut warm = Self { machine, db, known: Known::new(KEYS), round: 0, written: 0..0 };
        warm.write(1)?;
        warm.compact()?;
        warm.read()?;
        let cache = cache(&warm.db)?;
        if cache.files < 3 || cache.hits == 0 {
            return Err(format!("there is nothing to be harmed: {cache:?}"));
        }
        Ok(warm)
    }

    /// One of so many parts of the records anew, in memory and in the log.
    fn write(&mut self, parts: u64) -> Result<(), Violation> {
        self.round += 1;
        let (part, len) = (self.round as u64 % parts, KEYS / parts);
        self.written = part * len..(part + 1) * len;
        for number in self.written.clone() {
            let key = key(number);
            let value = value(&key, self.round, VALUE_BYTES, false);
            self.known.submit(&[(key.clone(), Some(value.clone()))]);
            self.db.put(&key, &value).map_err(|error| error.to_string())?;
            self.known.acknowledge(false);
        }
        Ok(())
    }

    /// What was written last goes to the deepest level.
    fn compact(&self) -> Result<(), Violation> {
        let (from, to) = (key(self.written.start), key(self.written.end));
        self.db
            .compact_range(Some(&from), Some(&to), &mut |_| {})
            .map_err(|error| error.to_string())?;
        self.db.settle().map_err(|error| error.to_string())
    }

    /// Asks for everything so often that each policy takes the blocks, and reads some of them from
    /// the cache.
    fn read(&self) -> Result<(), Violation> {
        for _ in 0..4 {
            for number in 0..KEYS {
                let key = key(number);
                let found = self.db.get(&key).map_err(|error| error.to_string())?;
                if found.as_deref() != self.known.model().get(&key).map(Vec::as_slice) {
                    return Err(format!("{} is another", key.escape_ascii()));
                }
                if number % 8 == 7 {
                    self.machine.stepper.step();
                }
            }
            self.db.settle().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Closes it, and opens it again.
    fn reopened(self) -> Result<Self, Violation> {
        self.db.close().map_err(|error| error.to_string())?;
        let db = self.machine.open().map_err(|error| error.to_string())?;
        db.settle().map_err(|error| error.to_string())?;
        Ok(Self { db, ..self })
    }

    /// What is there once the process is killed.
    fn killed(self) -> (World, Known) {
        let world = self.machine.devices.look(|world| world.after(Loss::None));
        self.machine.kill(Some(self.db));
        (world, self.known)
    }

    /// What is there after a closing.
    fn closed(self) -> Result<(World, Known), Violation> {
        self.db.close().map_err(|error| error.to_string())?;
        Ok((self.machine.devices.look(|world| world.after(Loss::None)), self.known))
    }
}

fn cache(db: &Db) -> Result<FastCacheStats, Violation> {
    db.stats().fast_cache.ok_or_else(|| "it has no cache".to_owned())
}

fn files_of(world: &World, directory: &Path) -> Files {
    let names = world.list(directory).into_iter().map(|(name, _)| name);
    let names = names.filter(|name| name.ends_with(".cache"));
    names.map(|name| (name.clone(), world.bytes(directory, &name))).collect()
}

/// A closed database whose cache has files, and what it should answer.
pub(crate) fn closed(seed: u64) -> Result<(World, Known), Violation> {
    Warm::new(seed)?.closed()
}

/// What is harmed, and what harms it.
struct Scene {
    seed: u64,
    image: World,
    known: Known,
    /// Files of the cache at an earlier closing, and the list of lives.
    earlier: (Files, Vec<u8>),
    /// The same of a checkpoint that has gone on.
    of_checkpoint: (Files, Vec<u8>),
    of_other: Files,
}

/// Carries out the drill on the database of `seed` in `phase`.
pub(super) fn run(seed: u64, phase: Phase) -> Result<(), Violation> {
    let scene = Scene::new(seed, phase).map_err(|why| format!("before the drill: {why}"))?;
    for harm in HARMS {
        scene.try_harm(harm).map_err(|why| format!("{harm:?}: {why}"))?;
    }
    scene.full().map_err(|why| format!("full: {why}"))
}

impl Scene {
    fn new(seed: u64, phase: Phase) -> Result<Self, Violation> {
        let mut warm = Warm::new(seed)?.reopened()?;
        let bytes_of = |world: &World| {
            (files_of(world, Path::new(TIERS[0])), world.bytes(Path::new(HOME), LIVES))
        };
        let earlier = warm.machine.devices.look(bytes_of);
        warm.db.checkpoint(Path::new(COPY)).map_err(|error| error.to_string())?;
        let begun = warm.machine.devices.look(|world| world.after(Loss::None));
        let of_checkpoint = of_checkpoint(begun, warm.known.clone(), seed)?;
        warm.write(PARTS)?;
        warm.compact()?;
        warm.read()?;
        let (image, known) = match phase {
            Phase::Idle => warm.closed()?,
            Phase::Loaded => {
                warm.write(PARTS)?;
                warm.killed()
            }
            Phase::Compacting => {
                warm.write(PARTS)?;
                warm.db.flush().map_err(|error| error.to_string())?;
                warm.machine.stepper.step();
                warm.killed()
            }
        };
        let (other, _) = Warm::new(mix(seed))?.closed()?;
        let of_other = files_of(&other, Path::new(TIERS[0]));
        let own = files_of(&image, Path::new(TIERS[0])).len();
        if own < 2 || of_other.is_empty() || earlier.0.is_empty() {
            return Err(format!("{own} files are too few to be harmed"));
        }
        Ok(Self { seed, image, known, earlier, of_checkpoint, of_other })
    }

    /// The image after `harm`.
    fn harmed(&self, harm: Harm) -> World {
        let (mut world, fast) = (self.image.clone(), Path::new(TIERS[0]));
        let own = files_of(&world, fast);
        let put = |world: &mut World, files: &Files| {
            files.iter().for_each(|(name, bytes)| world.put(fast, name, bytes));
        };
        let lose = |world: &mut World| own.iter().for_each(|(name, _)| world.remove(fast, name));
        let lives = |world: &mut World, bytes| world.put(Path::new(HOME), LIVES, bytes);
        match harm {
            Harm::Lost => lose(&mut world),
            Harm::Older => put(&mut world, &self.earlier.0),
            Harm::OlderLives => {
                put(&mut world, &self.earlier.0);
                lives(&mut world, &self.earlier.1);
            }
            Harm::Swapped => {
                for (at, (name, _)) in own.iter().enumerate() {
                    world.put(fast, name, &own[(at + 1) % own.len()].1);
                }
            }
            Harm::Cut => {
                own.iter().for_each(|(name, bytes)| world.cut(fast, name, bytes.len() as u64 / 2));
            }
            Harm::Torn => {
                for (name, bytes) in &own {
                    for at in (0..bytes.len().saturating_sub(8192)).step_by(3 * 4096) {
                        world.damage(fast, name, at as u64, &[0; 4096]);
                    }
                }
            }
            Harm::OfCheckpoint => {
                lose(&mut world);
                put(&mut world, &self.of_checkpoint.0);
                lives(&mut world, &self.of_checkpoint.1);
            }
            Harm::OfOther => put(&mut world, &self.of_other),
        }
        world
    }

    /// Opens the image after `harm` and holds it against what is known.
    fn try_harm(&self, harm: Harm) -> Result<(), Violation> {
        let machine = Machine::new(self.harmed(harm), self.seed);
        let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
        // Answers before files are looked at, and of what was taken in then.
        check_answers(&self.known, &db)?;
        db.settle().map_err(|error| error.to_string())?;
        let opened = cache(&db)?;
        check_answers(&self.known, &db)?;
        let cache = cache(&db)?;
        match harm {
            Harm::Lost | Harm::Swapped | Harm::Cut | Harm::OfCheckpoint
                if opened.adopted_files > 0 =>
            {
                return Err(format!("files count that cannot be its own: {opened:?}"));
            }
            Harm::Torn => {}
            _ if cache.failed > 0 => return Err(format!("a wrong copy was believed: {cache:?}")),
            _ => {}
        }
        check_goes_on(&machine, db)
    }

    /// The fast tier has no room for anything more while the cache is filled and records are
    /// written: the cache gives way, and nothing else hears of it.
    fn full(&self) -> Result<(), Violation> {
        let machine = Machine::new(self.image.clone(), self.seed);
        let db = machine.open().map_err(|error| error.to_string())?;
        db.settle().map_err(|error| error.to_string())?;
        let fast = Path::new(TIERS[0]);
        let used = machine.devices.look(|world| world.list(fast)).iter().map(|(_, len)| len).sum();
        machine.devices.set_capacity(fast, Some(used));
        let mut warm = Warm { machine, db, known: self.known.clone(), round: 100, written: 0..0 };
        for _ in 0..2 {
            warm.read()?;
            warm.write(PARTS)?;
            warm.compact()?;
        }
        check_answers(&warm.known, &warm.db)?;
        check_goes_on(&warm.machine, warm.db)
    }
}

fn check_answers(known: &Known, db: &Db) -> Result<(), Violation> {
    let count = known.check_state(db, known.acknowledged)?;
    Ok(known.check_reads(db, count)?)
}

/// Files are accounted for, the bytes of tables verify, and writing goes on.
fn check_goes_on(machine: &Machine, db: Db) -> Result<(), Violation> {
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
    check_bytes(&db)?;
    if let Some(reason) = db.stats().read_only {
        return Err(format!("writing has stopped: {reason}"));
    }
    db.put("after", "the drill").map_err(|error| format!("writing does not go on: {error}"))?;
    db.close().map_err(|error| format!("it does not close: {error}"))
}

/// Files of the cache of the checkpoint in `world`, once it has gone on by itself, and its list of
/// lives. Its tables have the numbers that the original's get.
fn of_checkpoint(world: World, known: Known, seed: u64) -> Result<(Files, Vec<u8>), Violation> {
    let machine = Machine::new(world, seed);
    let db = machine.environment.open(Path::new(COPY)).map_err(|error| error.to_string())?;
    let fast = db.settings().tiers[0].path.clone();
    let mut warm = Warm { machine, db, known, round: 200, written: 0..0 };
    warm.write(PARTS)?;
    warm.compact()?;
    warm.read()?;
    let (world, _) = warm.closed()?;
    let files = files_of(&world, &fast);
    if files.is_empty() {
        return Err("the checkpoint has no copies".to_owned());
    }
    Ok((files, world.bytes(Path::new(COPY), LIVES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/fast_cache.rs` carries the drill out with these seeds.
    #[test]
    fn the_first_six_seeds_have_each_policy() {
        let drawn = (1..7).map(|seed| settings(seed).fast_cache).collect::<Vec<_>>();
        for admission in [
            Admission::Always,
            Admission::SecondAccess,
            Admission::SimulatedLru,
            Admission::Frequency,
        ] {
            assert!(drawn.iter().any(|it| it.admission == admission), "{admission:?}");
        }
        for eviction in [Eviction::FifoReinsert, Eviction::Fifo, Eviction::FileLru] {
            assert!(drawn.iter().any(|it| it.eviction == eviction), "{eviction:?}");
        }
    }
}
