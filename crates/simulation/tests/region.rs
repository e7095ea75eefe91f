//! A store in a region of persistent memory on simulated devices: the power fails, or the process
//! ends, after any of the devices' calls, and the region has what a power cut could have left of it
//! at that moment.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../engine/tests/persistent_memory/regions.rs"]
mod regions;

use parking_lot::Mutex;
use regions::{PERSISTENT, ShadowRegions, last_crash};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thermocline::{
    ByteSize, Db, Durability, PersistentMemory, Preset, Result, Settings, Tier, WriteBatch,
};
use thermocline_foundation::random::{Random, mix};
use thermocline_pmem::shadow::Model;
use thermocline_pmem::{Circumstances, Medium, RegionIdentity};
use thermocline_simulation::devices::{CallKind, Devices, Loss, Watcher, World};
use thermocline_simulation::history::TIERS;
use thermocline_simulation::machine::Machine;

const REGION: &str = "/pmem/region";
const BATCHES: u64 = 60;
const KEYS: u64 = 40;

/// All records.
type State = BTreeMap<Vec<u8>, Vec<u8>>;

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

fn machine(world: World, regions: &Arc<ShadowRegions>, seed: u64) -> Machine {
    let mut machine = Machine::new(world, seed);
    machine.environment.regions = Arc::clone(regions) as _;
    machine
}

/// What the writer knows: the states after each batch, of which the last may not be acknowledged.
#[derive(Debug, Default)]
struct Known {
    states: Vec<State>,
    acknowledged: usize,
    fault: Option<String>,
    images: u64,
}

/// Tries some of the crash points.
struct Crashes {
    regions: Arc<ShadowRegions>,
    media: Circumstances,
    known: Arc<Mutex<Known>>,
    random: Mutex<Random>,
    one_in: u64,
}

impl Watcher for Crashes {
    fn changed(&self, devices: &Devices, _: u64, _: CallKind) {
        let (seed, loss, is_tried) = {
            let mut random = self.random.lock();
            (random.next_u64(), random.below(3), random.below(self.one_in) == 0)
        };
        if !is_tried || self.known.lock().fault.is_some() {
            return;
        }
        let (mut random, world) = (Random::new(seed), devices.world());
        let world = match loss {
            0 => world.after(Loss::None),
            1 => world.after(Loss::All),
            _ => {
                let flags: Vec<_> = world.units().iter().map(|_| random.below(2) == 0).collect();
                world.after(Loss::Kept(&flags))
            }
        };
        let now = match loss {
            0 => self.media,
            _ if self.media.is_synchronous => self.media,
            _ => Circumstances { boot: [2; 16], ..self.media },
        };
        // The end of the process leaves all that was stored.
        let image = self.regions.has(REGION).then(|| match loss {
            0 => self.regions.stored(REGION),
            _ if self.media.is_synchronous => self.image(seed),
            _ => self.pages(seed),
        });
        let fault = self.check(world, image.as_deref(), now, seed);
        let mut known = self.known.lock();
        known.images += 1;
        known.fault = fault.map(|fault| format!("loss {loss}, seed {seed}: {fault}"));
    }
}

impl Crashes {
    fn image(&self, seed: u64) -> Vec<u64> {
        let crash = last_crash(&self.regions.shadow(REGION));
        let model = if seed.is_multiple_of(2) { Model::X86 } else { Model::Words };
        let (mut chosen, mut left) = (Vec::new(), 1 + seed % 4);
        crash.images(model, 4, seed, |image| {
            if left > 0 {
                chosen = image.to_vec();
            }
            left = left.saturating_sub(1);
        });
        chosen
    }

    /// What a file has after a loss of power: pages of now and of when it was made, but for its
    /// identity. What was closed was synced before.
    fn pages(&self, seed: u64) -> Vec<u64> {
        let mut image = self.regions.stored(REGION);
        let identity = RegionIdentity::read(&Medium::shadowed(&image));
        let mut random = Random::new(seed);
        if !identity.is_ok_and(|identity| identity.is_clean) {
            let pages = image[1024..].chunks_mut(512);
            pages.filter(|_| random.below(2) == 0).for_each(|page| page.fill(0));
        }
        image
    }

    /// What is wrong with what a crash left.
    fn check(
        &self,
        world: World,
        image: Option<&[u64]>,
        now: Circumstances,
        seed: u64,
    ) -> Option<String> {
        let with = |image| ShadowRegions::with(REGION, image, now);
        let regions = Arc::new(image.map_or_else(|| ShadowRegions::new(now), with));
        let machine = machine(world, &regions, seed);
        let db = match machine.open() {
            Ok(db) => db,
            Err(error) => return Some(format!("refused: {error}")),
        };
        let found: State = db.scan().into_iter().map(Result::unwrap).map(owned).collect();
        let missed = missed(&db, &found);
        machine.kill(Some(db));
        if missed.is_some() {
            return missed;
        }
        let known = self.known.lock();
        let is_right = known.states[known.acknowledged..].contains(&found);
        (!is_right).then(|| {
            let at = known.states.iter().position(|state| *state == found);
            format!("{} batches are acknowledged, the state is that of {at:?}", known.acknowledged)
        })
    }
}

/// A key that a look-up answers otherwise than the scan that found these records.
fn missed(db: &Db, found: &State) -> Option<String> {
    let differs = |key: &Vec<u8>| {
        let answer = db.get(key);
        let is_right = answer
            .as_ref()
            .is_ok_and(|answer| answer.as_deref() == found.get(key).map(Vec::as_slice));
        (!is_right).then(|| format!("{:?}: {answer:?}", String::from_utf8_lossy(key)))
    };
    (0..KEYS).map(key).find_map(|key| differs(&key))
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn owned((key, value): (impl AsRef<[u8]>, impl AsRef<[u8]>)) -> (Vec<u8>, Vec<u8>) {
    (key.as_ref().to_vec(), value.as_ref().to_vec())
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
    db.write(batch)?;
    known.lock().acknowledged += 1;
    Ok(())
}

/// Looks at a crash at this moment, some times.
fn try_now(machine: &Machine) {
    let watcher = machine.devices.watcher().unwrap();
    for _ in 0..24 {
        watcher.changed(&machine.devices, 0, CallKind::Write);
    }
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
            db.flush()?;
        }
        if random.below(16) == 0 {
            db.compact_range(None, None, &mut |_| {})?;
        }
    }
    Ok(())
}

/// A history with crashes beside it; the first fault, and how many images were tried.
fn run((preset, media): (Preset, Circumstances), seed: u64, one_in: u64) -> (Option<String>, u64) {
    run_through([preset; 3], media, seed, one_in)
}

/// As [`run`], with a preset for each life.
fn run_through(
    presets: [Preset; 3],
    media: Circumstances,
    seed: u64,
    one_in: u64,
) -> (Option<String>, u64) {
    let mut regions = Arc::new(ShadowRegions::new(media));
    let (mut random, mut world) = (Random::new(seed), World::new(mix(seed)));
    let known = Arc::new(Mutex::new(Known { states: vec![State::new()], ..Known::default() }));
    for (life, preset) in (0..).zip(presets) {
        let machine = machine(world, &regions, mix(seed ^ life));
        let crashes = Crashes {
            regions: Arc::clone(&regions),
            media,
            known: Arc::clone(&known),
            random: Mutex::new(Random::new(mix(seed ^ life))),
            one_in,
        };
        let db = if life == 0 {
            // A creation that is cut off is no database yet.
            let db = machine.create(&settings(preset)).unwrap();
            machine.devices.watch(Some(Arc::new(crashes)));
            db
        } else {
            machine.devices.watch(Some(Arc::new(crashes)));
            let named = Settings { tiers: Vec::new(), ..settings(preset) };
            // A region that is no persistent memory is not named for memtables.
            let has_region = preset == Preset::Indexed || media.is_synchronous;
            let persistent_memory = named.persistent_memory.clone().filter(|_| has_region);
            match machine.open_with(&Settings { persistent_memory, ..named }) {
                Ok(db) => db,
                Err(error) => return (Some(format!("refused: {error}")), known.lock().images),
            }
        };
        if let Err(error) = live(&machine, &db, &known, &mut random, life) {
            machine.kill(Some(db));
            return (Some(format!("refused: {error}")), known.lock().images);
        }
        if life == 1 {
            // The process ends without a close, and what it still does has no effect.
            let image = regions.has(REGION).then(|| regions.stored(REGION));
            world = machine.devices.world().after(Loss::None);
            machine.kill(Some(db));
            let with = |image: Vec<u64>| ShadowRegions::with(REGION, &image, media);
            regions = Arc::new(image.map_or_else(|| ShadowRegions::new(media), with));
        } else {
            db.close().unwrap();
            world = machine.devices.world().after(Loss::None);
        }
    }
    let known = known.lock();
    (known.fault.clone(), known.images)
}

#[test]
fn after_any_call_of_a_device_what_was_acknowledged_is_there_and_nothing_in_part() {
    for case in CASES {
        let mut all = 0;
        for seed in 0..4 {
            let (fault, images) = run(case, seed, 12);
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
            let (fault, images) = run_through(presets, media, seed, 12);
            assert_eq!(fault, None, "{presets:?}, {media:?}, seed {seed}");
            all += images;
        }
    }
    assert!(all > 40, "only {all} images were tried");
}

/// Overwrites and merges while a snapshot is held; what is wrong with what it sees.
fn read_the_past(seed: u64) -> Option<String> {
    let regions = Arc::new(ShadowRegions::new(PERSISTENT));
    let machine = machine(World::new(mix(seed)), &regions, seed);
    let db = machine.create(&settings(Preset::Indexed)).unwrap();
    let known = Mutex::new(Known { states: vec![State::new()], ..Known::default() });
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
    let find = || (0..3).find_map(|seed| run(CASES[2], seed, 2).0);
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
        let case = (preset, PERSISTENT);
        let (found, hits) = with(bug, || ((0..3).find_map(|seed| run(case, seed, 2).0), hits()));
        assert!(found.is_some(), "{bug:?} is not found; its line was passed {hits} times");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_region_that_the_home_does_not_name_durably_is_missed() {
    use thermocline_simulation::syncs::{Change, with};
    for place in ["region/file", "region/name"] {
        let change = Change::parse(place);
        let (found, made) = with(&change, || (0..3).find_map(|seed| run(CASES[0], seed, 2).0));
        assert!(found.is_some(), "nothing objects to {place}, made {made} times");
    }
}

#[test]
fn the_directory_of_the_home_says_where_the_region_is() {
    let regions = Arc::new(ShadowRegions::new(PERSISTENT));
    let machine = machine(World::new(1), &regions, 1);
    let db = machine.create(&settings(Preset::Leveled)).unwrap();
    let region = db.stats().region.unwrap();
    assert_eq!((Path::new(&region.path), region.fences > 0), (Path::new(REGION), true));
}
