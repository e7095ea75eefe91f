//! A store in a region of persistent memory on simulated devices: the power fails, or the process
//! ends, after any of the devices' calls and before any fence of the region, and the region has
//! what a power cut could have left of it at that moment (`region/points.rs`).

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "region/points.rs"]
mod points;
#[path = "../../engine/tests/persistent_memory/regions.rs"]
mod regions;

use parking_lot::Mutex;
use points::{Crashes, Effort, Fences, Known, State, WatchedRegions, owned};
use regions::{PERSISTENT, ShadowRegions};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, PersistentMemory, Preset, Regions, Result, Settings, Tier, WriteBatch,
};
use thermocline_foundation::random::{Random, mix};
use thermocline_pmem::Circumstances;
use thermocline_pmem::shadow::FenceWatcher;
use thermocline_simulation::devices::{CallKind, Loss, World};
use thermocline_simulation::history::TIERS;
use thermocline_simulation::machine::Machine;

const REGION: &str = "/pmem/region";
const BATCHES: u64 = 60;
const KEYS: u64 = 40;

/// A file that is no persistent memory, beside which writes go to a log.
const ORDINARY: Circumstances =
    Circumstances { is_synchronous: false, boot: [1; 16], dirty_shutdowns: None };

const CASES: [(Preset, Circumstances); 3] =
    [(Preset::Leveled, PERSISTENT), (Preset::Indexed, PERSISTENT), (Preset::Indexed, ORDINARY)];

fn settings(preset: Preset) -> Settings {
    Settings {
        preset: Some(preset),
        tiers: vec![Tier::new(TIERS[0], ByteSize::mib(64)).driver("memory")],
        memory: ByteSize::mib(1),
        background_threads: 1,
        table_size: ByteSize::kib(64),
        durability: Durability::Sync,
        persistent_memory: Some(PersistentMemory::new(REGION, ByteSize::mib(16))),
        ..Settings::default()
    }
}

fn machine(world: World, regions: Arc<dyn Regions>, seed: u64) -> Machine {
    let mut machine = Machine::new(world, seed);
    machine.environment.regions = regions;
    machine
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// One batch, random; the state with it.
fn batch(random: &mut Random, state: &State, number: u64) -> (WriteBatch, State) {
    let (mut batch, mut state) = (WriteBatch::new(), state.clone());
    for _ in 0..1 + random.below(6) {
        let key = key(random.below(KEYS));
        if random.below(4) == 0 {
            batch.delete(&key);
            state.remove(&key);
        } else {
            let value = vec![number as u8; random.below(9000) as usize];
            batch.put(&key, &value);
            state.insert(key, value);
        }
    }
    (batch, state)
}

fn write(db: &Db, known: &Mutex<Known>, random: &mut Random, number: u64) -> Result<()> {
    let last = known.lock().states.last().cloned().unwrap_or_default();
    let (batch, state) = batch(random, &last, number);
    known.lock().states.push(state);
    at(known, "a write");
    db.write(batch)?;
    known.lock().acknowledged += 1;
    Ok(())
}

/// A bulk load of a few records.
fn load(db: &Db, known: &Mutex<Known>, random: &mut Random, number: u64) -> Result<()> {
    let mut state = known.lock().states.last().cloned().unwrap_or_default();
    let keys = (0..4).map(|_| key(random.below(KEYS))).collect::<BTreeSet<_>>();
    let mut ingest = db.ingest();
    for key in keys {
        let value = vec![number as u8; random.below(3000) as usize];
        ingest.add(&key, &value)?;
        state.insert(key, value);
    }
    known.lock().states.push(state);
    at(known, "a bulk load");
    ingest.finish()?;
    known.lock().acknowledged += 1;
    Ok(())
}

/// Says what the history is at.
fn at(known: &Mutex<Known>, what: &'static str) {
    known.lock().doing = what;
}

/// Looks at a crash at this moment, some times.
fn try_now(machine: &Machine) {
    let watcher = machine.devices.watcher().unwrap();
    for _ in 0..24 {
        watcher.changed(&machine.devices, 0, CallKind::Write);
    }
}

fn flush(db: &Db, known: &Mutex<Known>) -> Result<()> {
    at(known, "a flush");
    db.flush()?;
    at(known, "entering");
    db.settle()
}

fn compact(db: &Db, known: &Mutex<Known>) -> Result<()> {
    at(known, "a merge");
    db.compact_range(None, None, &mut |_| {})
}

/// A third of the batches, with flushes and merges between them.
fn live(
    machine: &Machine,
    db: &Db,
    known: &Mutex<Known>,
    random: &mut Random,
    life: u64,
) -> Result<()> {
    // The first batch of a life is followed by no call of a device before the power fails.
    write(db, known, random, life * (BATCHES / 3))?;
    try_now(machine);
    for number in 1..BATCHES / 3 {
        write(db, known, random, life * (BATCHES / 3) + number)?;
        if random.below(12) == 0 {
            at(known, "a flush");
            db.flush()?;
        }
        if random.below(16) == 0 {
            compact(db, known)?;
        }
    }
    Ok(())
}

/// Few batches of a life and a bulk load, which are flushed, entered and merged with what was
/// before.
fn live_shortly(db: &Db, known: &Mutex<Known>, random: &mut Random, life: u64) -> Result<()> {
    for number in 0..2 {
        write(db, known, random, 10 * life + number)?;
    }
    flush(db, known)?;
    write(db, known, random, 10 * life + 2)?;
    load(db, known, random, 10 * life + 3)?;
    flush(db, known)?;
    compact(db, known)?;
    write(db, known, random, 10 * life + 9)
}

/// What happens in a history.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// The preset of each life.
    presets: [Preset; 3],
    media: Circumstances,
    effort: Effort,
    is_short: bool,
}

impl Plan {
    /// All lives with one preset, and of the calls of devices one in so many.
    fn of((preset, media): (Preset, Circumstances), calls_one_in: u64) -> Self {
        let effort = Effort { calls_one_in, fences_one_in: u64::MAX, loses_region: false };
        Self { presets: [preset; 3], media, effort, is_short: false }
    }

    fn through(self, presets: [Preset; 3]) -> Self {
        Self { presets, ..self }
    }

    /// And one fence in so many.
    fn fences(self, fences_one_in: u64) -> Self {
        Self { effort: Effort { fences_one_in, ..self.effort }, ..self }
    }

    /// With each image the region is lost.
    fn losing_the_region(self) -> Self {
        Self { effort: Effort { loses_region: true, ..self.effort }, ..self }
    }

    fn short(self) -> Self {
        Self { is_short: true, ..self }
    }
}

/// A history with crashes beside it; the first fault, and how many images were tried.
fn run(plan: Plan, seed: u64) -> (Option<String>, u64) {
    let known = known_of(plan, seed);
    (known.fault, known.images)
}

/// As [`run`], with all that is known at its end.
fn known_of(plan: Plan, seed: u64) -> Known {
    let mut regions = Arc::new(ShadowRegions::new(plan.media));
    let (mut random, mut world) = (Random::new(seed), World::new(mix(seed)));
    let known = Arc::new(Mutex::new(Known::new()));
    for (life, preset) in (0..).zip(plan.presets) {
        let watched = Arc::new(WatchedRegions::new(&regions));
        let machine = machine(world, Arc::clone(&watched) as _, mix(seed ^ life));
        let draws = mix(seed ^ life);
        let crashes = Crashes::new(&regions, plan.media, &known, plan.effort, draws);
        let crashes = Arc::new(crashes);
        let fences = Fences { crashes: Arc::clone(&crashes), devices: machine.devices.clone() };
        let watch = || {
            machine.devices.watch(Some(Arc::clone(&crashes) as _));
            watched.watch(Some(Arc::new(fences) as Arc<dyn FenceWatcher>));
        };
        let opened = if life == 0 {
            // A creation that is cut off is no database yet.
            let db = machine.create(&settings(preset));
            watch();
            db
        } else {
            watch();
            at(&known, "an opening");
            let named = Settings { tiers: Vec::new(), ..settings(preset) };
            // A region that is no persistent memory is not named for memtables.
            let has_region = preset == Preset::Indexed || plan.media.is_synchronous;
            let persistent_memory = named.persistent_memory.clone().filter(|_| has_region);
            machine.open_with(&Settings { persistent_memory, ..named })
        };
        let lived = opened.and_then(|db| {
            let lived = match plan.is_short {
                true => live_shortly(&db, &known, &mut random, life),
                false => live(&machine, &db, &known, &mut random, life),
            };
            if lived.is_ok() && life != 1 {
                at(&known, "a close");
                return db.close();
            }
            // The process ends without a close, and what it still does has no effect.
            watched.watch(None);
            let image = regions.has(REGION).then(|| regions.stored(REGION));
            machine.kill(Some(db));
            let with = |image: Vec<u64>| ShadowRegions::with(REGION, &image, plan.media);
            regions = Arc::new(image.map_or_else(|| ShadowRegions::new(plan.media), with));
            lived
        });
        watched.watch(None);
        machine.devices.watch(None);
        world = machine.devices.world().after(Loss::None);
        if let Err(error) = lived {
            known.lock().fault.get_or_insert_with(|| format!("refused: {error}"));
            break;
        }
    }
    std::mem::take(&mut *known.lock())
}

#[test]
fn after_any_call_of_a_device_what_was_acknowledged_is_there_and_nothing_in_part() {
    for case in CASES {
        let mut all = 0;
        for seed in 0..4 {
            let (fault, images) = run(Plan::of(case, 12).fences(48), seed);
            assert_eq!(fault, None, "{case:?}, seed {seed}");
            all += images;
        }
        assert!(all > 40, "only {all} images were tried");
    }
}

#[test]
fn a_change_of_preset_loses_nothing_after_any_call_of_a_device() {
    use Preset::{Indexed, Leveled};
    let mut all = 0;
    for (presets, media) in [
        ([Indexed, Leveled, Indexed], PERSISTENT),
        ([Leveled, Indexed, Leveled], PERSISTENT),
        ([Indexed, Leveled, Indexed], ORDINARY),
    ] {
        for seed in 0..2 {
            let plan = Plan::of((presets[0], media), 12).fences(48).through(presets);
            let (fault, images) = run(plan, seed);
            assert_eq!(fault, None, "{presets:?}, {media:?}, seed {seed}");
            all += images;
        }
    }
    assert!(all > 40, "only {all} images were tried");
}

/// A short history of a store with an index, with every fence.
fn every_fence(media: Circumstances) -> Plan {
    Plan::of((Preset::Indexed, media), u64::MAX).fences(1).short()
}

#[test]
fn before_every_fence_what_was_acknowledged_is_there_and_nothing_in_part() {
    let known = known_of(every_fence(PERSISTENT), 1);
    assert_eq!(known.fault, None);
    let phases =
        ["a write", "a bulk load", "a flush", "entering", "a merge", "an opening", "a close"];
    let tried = |phase| known.at_fences.get(phase).copied().unwrap_or(0);
    assert!(phases.iter().all(|phase| tried(phase) > 1), "{:?}", known.at_fences);
}

#[test]
fn a_region_that_is_lost_at_any_call_or_fence_costs_memtables_alone_and_beside_a_log_nothing() {
    for case in &CASES[1..] {
        let plan = Plan::of(*case, 24).fences(24).short().losing_the_region();
        let (fault, images) = (0..3).fold((None, 0), |(fault, all), seed| {
            let (of_seed, images) = run(plan, seed);
            (fault.or(of_seed), all + images)
        });
        assert_eq!(fault, None, "{case:?}");
        assert!(images > 12, "only {images} images were tried");
    }
}

/// Overwrites and merges while a snapshot is held; what is wrong with what it sees.
fn read_the_past(seed: u64) -> Option<String> {
    let regions = Arc::new(ShadowRegions::new(PERSISTENT));
    let machine = machine(World::new(mix(seed)), regions, seed);
    let db = machine.create(&settings(Preset::Indexed)).unwrap();
    let known = Mutex::new(Known::new());
    let mut random = Random::new(seed);
    let mut held = Vec::new();
    let mut fault = None;
    for number in 0..BATCHES * 2 {
        write(&db, &known, &mut random, number).unwrap();
        if random.below(6) == 0 {
            db.flush().unwrap();
            db.settle().unwrap();
        }
        if random.below(20) == 0 {
            held.push((db.snapshot(), known.lock().states.last().cloned().unwrap_or_default()));
        }
        if held.len() > 2 {
            held.remove(random.below(3) as usize);
        }
        for (snapshot, then) in &held {
            let found = snapshot.scan().into_iter().collect::<Result<Vec<_>>>();
            let found = found.map(|found| found.into_iter().map(owned).collect::<State>());
            if found.as_ref().ok() != Some(then) {
                fault.get_or_insert_with(|| format!("batch {number}: another past"));
            }
        }
    }
    drop(held);
    machine.kill(Some(db));
    fault
}

#[test]
fn snapshots_that_are_held_see_their_moment_while_tables_are_merged() {
    assert_eq!((0..6).find_map(read_the_past), None);
}

/// Ordinary files are believed too long after a loss of power.
#[cfg(feature = "planted-bugs")]
#[test]
fn an_index_that_is_believed_after_another_boot_is_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let find = || (0..3).find_map(|seed| run(Plan::of(CASES[2], 2), seed).0);
    assert!(with(Planted::OtherBootBelieved, find).is_some());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_merge_that_forgets_snapshots_is_found() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::with;
    let found = with(Planted::SnapshotSeesLiveAlone, || (0..6).find_map(read_the_past));
    assert!(found.is_some());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found_between_the_region_and_the_manifest() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    for (preset, bug) in [
        (Preset::Leveled, Planted::ArenaFreedBeforeEdit),
        (Preset::Leveled, Planted::GroupBeforeFence),
        (Preset::Indexed, Planted::IndexedBeforeEdit),
        (Preset::Indexed, Planted::LastRecordNotEntered),
        (Preset::Indexed, Planted::TableDroppedWithEntries),
    ] {
        let plan = Plan::of((preset, PERSISTENT), 2);
        let (found, hits) = with(bug, || ((0..3).find_map(|seed| run(plan, seed).0), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}

/// What is wrong in the index alone is found in the store, too.
#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_of_the_index_are_found_before_fences() {
    use thermocline_foundation::Planted;
    use thermocline_foundation::planted::{hits, with};
    for bug in [Planted::NodeBeforeJournal, Planted::RunCountedEarly, Planted::ObjectNotFlushed] {
        let find = || (0..4).find_map(|seed| run(every_fence(PERSISTENT), seed).0);
        let (found, hits) = with(bug, || (find(), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_region_that_the_home_does_not_name_durably_is_missed() {
    use thermocline_simulation::syncs::{Change, with};
    for place in ["region/file", "region/name"] {
        let change = Change::parse(place);
        let (found, made) =
            with(&change, || (0..3).find_map(|seed| run(Plan::of(CASES[0], 2), seed).0));
        assert!(found.is_some(), "nothing objects to {place}, made {made} times");
    }
}

#[test]
fn the_directory_of_the_home_says_where_the_region_is() {
    let regions = Arc::new(ShadowRegions::new(PERSISTENT));
    let machine = machine(World::new(1), regions, 1);
    let db = machine.create(&settings(Preset::Leveled)).unwrap();
    let region = db.stats().region.unwrap();
    assert_eq!((Path::new(&region.path), region.fences > 0), (Path::new(REGION), true));
}
