//! Golden scripts of the cache of blocks on the fast tier: files of it that are damaged, of another
//! copy of the database, or of a future that was abandoned; and what is left. Each finds the
//! planted bugs beside it.
#![allow(clippy::unwrap_used)]

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    Admission, ByteSize, Compression, Db, FastCacheSettings, FastCacheStats, PlacementChoice,
    Preset, Settings, Tier,
};
use thermocline_foundation::random::{Random, mix};
#[cfg(feature = "planted-bugs")]
use thermocline_foundation::{Planted, planted::with};
use thermocline_simulation::devices::{Fault, FaultKind, Loss, World};
use thermocline_simulation::history::{HOME, Shape, TIERS, has_auto_cache, has_fast_cache};
use thermocline_simulation::life::Life;
use thermocline_simulation::machine::Machine;
use thermocline_simulation::oracle::{Known, check_files};
use thermocline_simulation::{drills, errors, lies, rot};

const KEYS: u64 = 2500;
/// Records that are read: the tier has room for copies of all of them.
const READ: u64 = 250;
/// Records that the whole of a tier of 4 MiB has no room for.
const MANY: u64 = 4500;
const FAST: &str = TIERS[0];
const LIVES: &str = "cache-lives.txt";

type Outcome = Result<(), String>;

/// A test of each script, and one that each finds the bugs beside it; `tests/planted.rs` lists
/// these as found here.
macro_rules! scripts {
    ($($script:ident: $($bug:ident),+;)*) => {
        mod right {
            $(#[test]
            fn $script() {
                super::$script().unwrap();
            })*
        }

        #[cfg(feature = "planted-bugs")]
        #[test]
        fn the_scripts_find_what_is_planted() {
            $($({
                let found = with(Planted::$bug, || std::panic::catch_unwind($script));
                assert!(!matches!(found, Ok(Ok(()))), "{} is not found", stringify!($bug));
            })+)*
        }
    };
}

scripts! {
    a_copy_of_another_block_costs_a_read_of_the_table: CachedBlockNotVerified;
    a_damaged_copy_costs_a_read_of_the_table: CachedBlockNotVerified, CacheErrorFailsRead;
    a_file_whose_directory_is_damaged_is_not_adopted: TornFooterBelieved;
    files_of_the_original_count_for_no_checkpoint: CacheOfOtherInstanceAdopted;
    files_of_an_abandoned_future_count_for_no_restored_database: NewerCacheAdopted;
    files_of_a_past_that_was_left_for_a_newer_backup_count_for_nothing:
        NewerCacheAdopted, CacheOfOtherInstanceAdopted;
    a_file_that_leaves_is_deleted: CacheFileLeaked;
    logs_have_room_beside_a_full_cache: CacheTakesLogRoom;
}

/// A record fills a block, so that blocks of all tables are alike in length.
fn settings(fast: ByteSize) -> Settings {
    let tier = |index: usize, capacity| Tier::new(TIERS[index], capacity).driver("memory");
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![tier(0, fast), tier(1, ByteSize::mib(256))],
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(128),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::None],
        fast_cache: FastCacheSettings {
            capacity: ByteSize::mib(1).into(),
            admission: Admission::SecondAccess,
            file_size: ByteSize::kib(64),
            batch: ByteSize::kib(16),
            ..FastCacheSettings::default()
        },
        ..Settings::default()
    }
}

fn key(number: u64) -> [u8; 8] {
    mix(number).to_be_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = vec![0; 1000];
    Random::new(mix(number) ^ version).fill(&mut value);
    value
}

/// All records in tables, most of them on the slow tier.
fn load(db: &Db, version: u64) -> Outcome {
    load_of(db, KEYS, version)
}

fn load_of(db: &Db, keys: u64, version: u64) -> Outcome {
    for number in 0..keys {
        db.put(key(number), value(number, version)).map_err(|error| error.to_string())?;
    }
    db.compact_range(None, None, &mut |_| {}).map_err(|error| error.to_string())?;
    db.settle().map_err(|error| error.to_string())
}

/// Reads so many records, again and again, so that the cache has them.
fn read(db: &Db, numbers: u64, version: u64) -> Outcome {
    for _ in 0..3 {
        for number in 0..numbers {
            let found = db.get(key(number)).map_err(|error| error.to_string())?;
            if found.as_deref() != Some(&value(number, version)[..]) {
                return Err(format!("record {number} is not that of version {version}"));
            }
            if number % 2 == 0 {
                db.settle().map_err(|error| error.to_string())?;
            }
        }
    }
    db.settle().map_err(|error| error.to_string())
}

fn cache(db: &Db) -> FastCacheStats {
    db.stats().fast_cache.unwrap()
}

/// A store whose cache has something.
fn warm() -> Result<(Machine, Db), String> {
    warm_on(Machine::new(World::new(1), 1))
}

fn warm_on(machine: Machine) -> Result<(Machine, Db), String> {
    let db = machine.create(&settings(ByteSize::mib(2))).map_err(|error| error.to_string())?;
    load(&db, 1)?;
    read(&db, READ, 1)?;
    assert!(cache(&db).hits > 100 && cache(&db).files > 2, "{:?}", cache(&db));
    Ok((machine, db))
}

fn cache_files(world: &World) -> Vec<(String, u64)> {
    let files = world.list(Path::new(FAST)).into_iter();
    files.filter(|(name, _)| name.ends_with(".cache")).collect()
}

/// Flips a bit of each file of the cache at each of the offsets that `places` says for its length.
fn damage(machine: &Machine, places: impl Fn(u64) -> Vec<u64>) {
    machine.devices.meddle(|world| {
        for (name, len) in cache_files(world) {
            let bytes = world.bytes(Path::new(FAST), &name);
            for at in places(len) {
                let flipped = [bytes[at as usize] ^ 4];
                world.damage(Path::new(FAST), &name, at, &flipped);
            }
        }
    });
}

/// Nothing is damaged: with so few bits of a signature one block's copy is found for another.
fn a_copy_of_another_block_costs_a_read_of_the_table() -> Outcome {
    let mut machine = Machine::new(World::new(1), 1);
    machine.environment.experiments.signature_bits = Some(4);
    let (_machine, db) = warm_on(machine)?;
    let cache = cache(&db);
    if cache.failed < 10 {
        return Err(format!("no block was taken for another: {cache:?}"));
    }
    if db.stats().read_only.is_some() {
        return Err("writing has stopped".to_owned());
    }
    db.put("after", "it").map_err(|error| error.to_string())
}

fn a_damaged_copy_costs_a_read_of_the_table() -> Outcome {
    let (machine, db) = warm()?;
    damage(&machine, |len| (0..len / 256).map(|part| part * 256 + 100).collect());
    read(&db, READ, 1)?;
    let cache = cache(&db);
    if cache.failed == 0 {
        return Err(format!("no copy was found to be wrong: {cache:?}"));
    }
    if db.stats().read_only.is_some() {
        return Err("writing has stopped".to_owned());
    }
    db.put("after", "it").map_err(|error| error.to_string())
}

fn a_file_whose_directory_is_damaged_is_not_adopted() -> Outcome {
    let (machine, db) = warm()?;
    db.close().unwrap();
    // The position of the first entry, in the page before the footer.
    damage(&machine, |len| vec![len - 8192 + 4 + 16]);
    let files = machine.devices.look(cache_files).len() as u64;
    let db = machine.open().map_err(|error| error.to_string())?;
    db.settle().unwrap();
    read(&db, READ, 1)?;
    let cache = cache(&db);
    if (cache.adopted_files, cache.refused_files, cache.failed) != (0, files, 0) {
        return Err(format!("of {files} damaged files: {cache:?}"));
    }
    Ok(())
}

/// Opens and closes a database so often that it is of a later generation than others.
fn age(machine: &Machine, home: &Path) {
    for _ in 0..6 {
        machine.environment.open(home).unwrap().close().unwrap();
    }
}

fn put_files(machine: &Machine, from: &World, tier: &Path) {
    machine.devices.meddle(|world| {
        for (name, _) in cache_files(from) {
            world.put(tier, &name, &from.bytes(Path::new(FAST), &name));
        }
    });
}

fn files_of_the_original_count_for_no_checkpoint() -> Outcome {
    let (machine, db) = warm()?;
    let copy_home = Path::new("/copy");
    db.checkpoint(copy_home).unwrap();
    read(&db, READ, 1)?;
    db.close().unwrap();
    // Its life is over, so that its files could count.
    machine.open().unwrap().close().unwrap();
    let original = machine.devices.look(|world| world.after(Loss::None));
    assert!(!cache_files(&original).is_empty());
    let copy = machine.environment.open(copy_home).unwrap();
    let tier = copy.settings().tiers[0].path.clone();
    copy.close().unwrap();
    age(&machine, copy_home);
    // A user copies the home's list, too.
    put_files(&machine, &original, &tier);
    let lives = original.bytes(Path::new(HOME), LIVES);
    machine.devices.meddle(|world| world.put(copy_home, LIVES, &lives));
    let copy = machine.environment.open(copy_home).map_err(|error| error.to_string())?;
    copy.settle().unwrap();
    let adopted = cache(&copy).adopted_files;
    read(&copy, READ, 1)?;
    if adopted > 0 { Err(format!("{adopted} files were adopted")) } else { Ok(()) }
}

fn files_of_an_abandoned_future_count_for_no_restored_database() -> Outcome {
    let (machine, db) = warm()?;
    db.close().unwrap();
    let earlier = machine.devices.look(|world| world.after(Loss::None));
    let db = machine.open().unwrap();
    load(&db, 2)?;
    read(&db, READ, 2)?;
    db.close().unwrap();
    let future = machine.devices.look(|world| world.after(Loss::None));
    (1..9).try_for_each(|seed| restored(&Machine::new(earlier.clone(), seed), &future))
}

/// The older files are back on `machine`. The first opening ends before it has looked at the
/// future's files, and makes tables; in some order of background work under their numbers.
fn restored(machine: &Machine, future: &World) -> Outcome {
    let db = machine.open().unwrap();
    load(&db, 3)?;
    db.close().unwrap();
    put_files(machine, future, Path::new(FAST));
    let db = machine.open().map_err(|error| error.to_string())?;
    db.settle().unwrap();
    read(&db, READ, 3)?;
    let cache = cache(&db);
    if cache.failed > 0 { Err(format!("a wrong copy was believed: {cache:?}")) } else { Ok(()) }
}

/// Backups have neither files of the cache nor its list, and a restore leaves those that are there:
/// an older backup is brought back and worked on, and then a newer one of the other future.
fn files_of_a_past_that_was_left_for_a_newer_backup_count_for_nothing() -> Outcome {
    let (machine, db) = warm()?;
    db.close().unwrap();
    let older = machine.devices.look(|world| world.after(Loss::None));
    let future = |begin: &World, version| {
        let machine = Machine::new(begin.clone(), version);
        let db = machine.open().unwrap();
        load(&db, version)?;
        read(&db, READ, version)?;
        db.close().unwrap();
        Ok::<_, String>(machine.devices.look(|world| world.after(Loss::None)))
    };
    // What is drawn at random in one is not what the other draws.
    let (newer, left) = (future(&older, 2)?, future(&older.after(Loss::None), 3)?);
    let lives = left.bytes(Path::new(HOME), LIVES);
    let machine = Machine::new(newer, 1);
    machine.devices.meddle(|world| {
        cache_files(world).iter().for_each(|(name, _)| world.remove(Path::new(FAST), name));
        world.put(Path::new(HOME), LIVES, &lives);
    });
    put_files(&machine, &left, Path::new(FAST));
    let db = machine.open().map_err(|error| error.to_string())?;
    db.settle().unwrap();
    let adopted = cache(&db).adopted_files;
    read(&db, READ, 2)?;
    if adopted > 0 { Err(format!("{adopted} files were adopted")) } else { Ok(()) }
}

/// Reads until the cache is full and files leave it.
fn fill(db: &Db, keys: u64) -> Outcome {
    for _ in 0..10 {
        read(db, keys, 1)?;
        if cache(db).evicted_files > 0 {
            return Ok(());
        }
    }
    Err(format!("nothing has left: {:?}", cache(db)))
}

fn a_file_that_leaves_is_deleted() -> Outcome {
    let (machine, db) = warm()?;
    fill(&db, KEYS)?;
    check_files(&db, |path| machine.devices.look(|world| world.list(path)))
}

/// The cache may have all of the tier that logs leave, and has taken it while the first log since
/// the opening was there. A log has a little more than the twentieth that the watermark leaves.
fn logs_have_room_beside_a_full_cache() -> Outcome {
    let usual = settings(ByteSize::mib(4));
    let fast_cache = FastCacheSettings { capacity: ByteSize::mib(4).into(), ..usual.fast_cache };
    let (placement, memory) = (PlacementChoice::LogOnly, ByteSize::mib(4));
    let settings = Settings { placement, memory, fast_cache, ..usual };
    let machine = Machine::new(World::new(1), 1);
    let db = machine.create(&settings).map_err(|error| error.to_string())?;
    load_of(&db, MANY, 1)?;
    // Logs that wait to be used again go with the opening.
    db.close().map_err(|error| error.to_string())?;
    let db = machine.open().map_err(|error| error.to_string())?;
    fill(&db, MANY)?;
    let logs_below = |world: &World| {
        let names = world.list(Path::new(TIERS[1])).into_iter().map(|(name, _)| name);
        names.filter(|name| name.ends_with(".log")).collect::<Vec<_>>()
    };
    for number in 0..MANY {
        db.put(key(number), value(number, 2)).map_err(|error| format!("a write: {error}"))?;
        let below = machine.devices.look(logs_below);
        if !below.is_empty() {
            return Err(format!("{below:?} found no room above: {:?}", cache(&db)));
        }
    }
    db.settle().map_err(|error| error.to_string())
}

#[test]
fn the_drill_of_the_cache_finds_nothing_wrong_with_each_policy_and_in_each_phase() {
    for seed in 1..7 {
        for phase in drills::PHASES {
            drills::run(seed, drills::Drill::Cache, phase).unwrap_or_else(|why| {
                panic!("seed {seed}, while {phase:?}: {why}");
            });
        }
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_drill_of_the_cache_finds_what_is_planted() {
    for bug in [
        Planted::CachedBlockNotVerified,
        Planted::CacheErrorFailsRead,
        Planted::TornFooterBelieved,
        Planted::CacheFileLeaked,
    ] {
        let found = (1..4).any(|seed| {
            let run = || drills::run(seed, drills::Drill::Cache, drills::Phase::Idle);
            with(bug, || !matches!(std::panic::catch_unwind(run), Ok(Ok(()))))
        });
        assert!(found, "{} is not found", bug.name());
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_copy_that_is_not_verified_gives_another_record() {
    let found =
        with(Planted::CachedBlockNotVerified, a_copy_of_another_block_costs_a_read_of_the_table);
    let why = found.unwrap_err();
    assert!(why.contains("is not that of version"), "{why}");
}

/// Files of the cache that the history of `seed` leaves, and that its rot is tried on.
fn left_by(seed: u64, shape: &Shape) -> usize {
    let known = Arc::new(RwLock::new(Known::new(shape.keys)));
    let mut life = Life::new(seed, shape, known);
    life.run(shape).unwrap();
    let files = life.machine.devices.look(cache_files).len();
    life.kill();
    files
}

/// Every call of a history fails once; some of these are of the cache's files.
#[test]
fn a_fault_of_a_file_of_the_cache_stops_no_store() {
    let leaves = |seed: &u64| has_fast_cache(*seed) && left_by(*seed, &errors::SHAPE) > 0;
    let seed = (0..2048).find(leaves).unwrap();
    let calls = errors::kinds_of(seed, &errors::SHAPE).unwrap().len() as u64;
    let kind = FaultKind::Error(rustix::io::Errno::IO.raw_os_error());
    let mut of_cache = 0;
    for at in 0..calls {
        let fault = Fault { at, sticky: false, kind };
        let known = Arc::new(RwLock::new(Known::new(errors::SHAPE.keys)));
        let mut life = Life::new(seed, &errors::SHAPE, known);
        life.machine.devices.arm(Some(fault.clone()));
        life.run_through(&errors::SHAPE).unwrap();
        if life.machine.devices.has_struck_cache_alone() {
            of_cache += 1;
            errors::run_with_fault(seed, &fault).unwrap_or_else(|why| panic!("{fault:?}: {why}"));
        }
        life.kill();
    }
    assert!(of_cache > 10, "{of_cache} of {calls} calls");
}

#[test]
fn errors_lies_and_rot_meet_files_of_the_cache() {
    for (suite, shape) in [("errors", errors::SHAPE), ("lies", lies::SHAPE)] {
        for has_cache in [has_fast_cache, has_auto_cache] {
            let seeds = (0..2048).filter(|seed| has_cache(*seed));
            let left: Vec<_> = seeds.map(|seed| (seed, left_by(seed, &shape))).collect();
            assert!(left.iter().any(|(_, files)| *files > 0), "{suite}: {left:?}");
        }
    }
    let flips = rot::Fixture::cached(1).unwrap().flips_of_cache();
    let mut of_file = BTreeMap::new();
    flips.iter().for_each(|(place, _)| *of_file.entry(&place.1).or_insert(0) += 1);
    let of_cache = of_file.iter().filter(|(name, _)| name.ends_with(".cache"));
    assert!(of_cache.clone().count() > 3 && of_cache.clone().all(|(_, flips)| *flips > 300));
    assert!(of_file[&LIVES.to_owned()] > 50, "{of_file:?}");
}
