//! What can happen to files of the cache of blocks while the store is closed.
//!
//! ```text
//!   lost      some are gone, also the list of lives
//!   torn      cut to a part of their length
//!   aged      as they were in an earlier life, under their present names
//!   swapped   each has another's bytes
//!   filled    bytes that no store has written, in files of their own, too
//!   strange   those of a checkpoint, which goes on with the same numbers
//! ```
//! Nothing of it is an error: the store opens, its answers are those of its tables, writes go on,
//! and no file of a cache stays that the store does not know.

use super::{Phase, SHAPE, life_with};
use crate::devices::{Loss, World};
use crate::history::{HOME, TIERS, fast_cache, key, settings, value};
use crate::machine::Machine;
use crate::oracle::{Known, Violation, check_files};
use parking_lot::RwLock;
use std::path::Path;
use thermocline::{Admission, Db, FastCacheSettings, Settings};
use thermocline_foundation::random::{Random, mix};

const FAST: &str = TIERS[0];
const LIVES: &str = "cache-lives.txt";

/// See the module's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    Lost,
    Torn,
    Aged,
    Swapped,
    Filled,
    Strange,
}

const MISHAPS: [Mishap; 6] =
    [Mishap::Lost, Mishap::Torn, Mishap::Aged, Mishap::Swapped, Mishap::Filled, Mishap::Strange];

/// Each mishap in turn; how many files of a cache they met. A database on one tier has none.
pub(super) fn run(seed: u64, phase: Phase) -> Result<usize, Violation> {
    let usual = settings(seed);
    if usual.tiers.len() == 1 {
        return Ok(0);
    }
    // Histories read little: what memory lacks once is taken.
    let cache = FastCacheSettings { admission: Admission::Always, ..fast_cache(seed) };
    let (mut life, known) = life_with(Settings { fast_cache: cache, ..usual }, seed, phase)?;
    life.close().map_err(|stop| format!("{stop:?}"))?;
    let machine = Machine::new(life.machine.devices.world(), seed);
    let earlier = warmed(&machine, &known, |_| Ok(()))?;
    let copy = Path::new("/copy");
    let later = warmed(&machine, &known, |db| {
        db.checkpoint(copy).map_err(|error| format!("a checkpoint: {error}"))?;
        change(&known, db).map_err(|error| format!("a write: {error}"))
    })?;
    let strange = files_of_copy(&later, seed, copy)?;
    for mishap in MISHAPS {
        let mut world = later.clone();
        happen(mishap, &mut world, (&files(&earlier, FAST), &strange), seed);
        goes_on(world, &known, seed).map_err(|what| format!("files {mishap:?}: {what}"))?;
    }
    Ok(files(&later, FAST).len())
}

/// The world once all has been read in two openings, whose memory is empty at first; `last` is done
/// in the second.
fn warmed(
    machine: &Machine,
    known: &RwLock<Known>,
    last: impl FnOnce(&Db) -> Result<(), Violation>,
) -> Result<World, Violation> {
    let mut last = Some(last);
    for is_last in [false, true] {
        let db = machine.open().map_err(|error| format!("before the drill: {error}"))?;
        shows_all(&db, &known.read_recursive())?;
        if let Some(last) = last.take_if(|_| is_last) {
            last(&db)?;
        }
        db.close().map_err(|error| format!("before the drill: {error}"))?;
    }
    Ok(machine.devices.look(|world| world.after(Loss::None)))
}

/// All is there, also where it is read again; background work ends meanwhile.
fn shows_all(db: &Db, known: &Known) -> Result<(), Violation> {
    db.settle().map_err(|error| error.to_string())?;
    let count = known.check_state(db, known.acknowledged)?;
    known.check_reads(db, count)?;
    db.settle().map_err(|error| error.to_string())
}

/// Tables under numbers that the checkpoint gives out, too.
fn change(known: &RwLock<Known>, db: &Db) -> thermocline::Result<()> {
    for number in 0..SHAPE.keys {
        let key = key(number);
        let value = value(&key, 700_000 + number as usize, 2_000, false);
        known.write().submit(&[(key.clone(), Some(value.clone()))]);
        db.put(&key, &value)?;
        known.write().acknowledge(false);
    }
    db.compact_range(None, None, &mut |_| {})?;
    db.settle()
}

type Files = Vec<(String, Vec<u8>)>;

/// Files of a cache, by name.
fn files(world: &World, tier: impl AsRef<Path>) -> Files {
    let tier = tier.as_ref();
    let names = world.list(tier).into_iter().map(|(name, _)| name);
    names
        .filter(|name| name.ends_with(".cache"))
        .map(|name| (name.clone(), world.bytes(tier, &name)))
        .collect()
}

/// Those of the checkpoint at `copy`, once it has made tables and read them.
fn files_of_copy(world: &World, seed: u64, copy: &Path) -> Result<Files, Violation> {
    let machine = Machine::new(world.clone(), seed);
    let open = || machine.environment.open(copy).map_err(|error| format!("a checkpoint: {error}"));
    let work = |db: &Db| -> thermocline::Result<()> {
        (0..SHAPE.keys).try_for_each(|number| db.put(key(number), [7; 2_000]))?;
        db.compact_range(None, None, &mut |_| {})?;
        db.settle()?;
        db.scan().try_for_each(|record| record.map(drop))?;
        db.settle()
    };
    let db = open()?;
    let tier = db.settings().tiers[0].path.clone();
    work(&db).and_then(|()| db.close()).map_err(|error| format!("a checkpoint: {error}"))?;
    let db = open()?;
    (0..SHAPE.keys)
        .try_for_each(|number| db.get(key(number)).map(drop))
        .and_then(|()| db.close())
        .map_err(|error| format!("a checkpoint: {error}"))?;
    Ok(machine.devices.look(|world| files(world, tier)))
}

/// `mishap` to the files of the cache in `world`.
fn happen(mishap: Mishap, world: &mut World, (earlier, strange): (&Files, &Files), seed: u64) {
    let (fast, mut random) = (Path::new(FAST), Random::new(mix(seed ^ mishap as u64)));
    let present = files(world, fast);
    match mishap {
        Mishap::Lost => {
            let goes = present.iter().filter(|_| random.below(2) == 0);
            goes.for_each(|(name, _)| world.remove(fast, name));
            if seed.is_multiple_of(2) {
                world.remove(Path::new(HOME), LIVES);
            }
        }
        Mishap::Torn => {
            for (name, bytes) in &present {
                world.cut(fast, name, random.below(bytes.len() as u64));
            }
        }
        Mishap::Aged => {
            let old = earlier.iter().cycle();
            present.iter().zip(old).for_each(|((name, _), (_, old))| world.put(fast, name, old));
        }
        Mishap::Swapped => {
            let others = present.iter().cycle().skip(1);
            let pairs = present.iter().zip(others);
            pairs.for_each(|((name, _), (_, other))| world.put(fast, name, other));
        }
        Mishap::Filled => {
            let own = present.iter().map(|(name, bytes)| (name.clone(), bytes.len()));
            for (name, len) in own.chain([("00099999.cache".to_owned(), 65_536)]) {
                let mut bytes = vec![0; len];
                random.fill(&mut bytes);
                world.put(fast, &name, &bytes);
            }
        }
        Mishap::Strange => {
            strange.iter().for_each(|(name, bytes)| world.put(fast, name, bytes));
        }
    }
}

/// The store opens, its answers are right, writes go on, and it knows the files that are there.
fn goes_on(world: World, known: &RwLock<Known>, seed: u64) -> Result<(), Violation> {
    let machine = Machine::new(world, seed);
    let db = machine.open().map_err(|error| format!("it does not open: {error}"))?;
    let known = known.read_recursive();
    for _ in 0..2 {
        shows_all(&db, &known)?;
    }
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))?;
    db.put("after", "the drill").map_err(|error| format!("writing does not resume: {error}"))?;
    db.close().map_err(|error| format!("it does not close: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drill_meets_files_of_caches_and_nothing_comes_of_it() {
        let met: Vec<_> = (1..=12).map(|seed| run(seed, Phase::Idle).unwrap()).collect();
        let warm = met.iter().filter(|files| **files > 1).count();
        assert!(warm >= 3, "{met:?}");
    }
}
