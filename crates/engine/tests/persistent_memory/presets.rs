//! A change of preset away from `indexed`, and back: the index, or the region, is left behind, and
//! no crash leaves anything between two presets.

use crate::hooked::{Call, HookedDevices};
use crate::indexed::{State, check, churn, indexed, put};
use crate::regions::{PERSISTENT, ShadowRegions};
use crate::support::{FAST, HOME, Machine, REGION, TIER, copy_of, stepped};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use thermocline::{ByteSize, Db, Preset, Result, Settings, Tier};
use thermocline_device::{Error, ErrorKind};
use thermocline_foundation::random::Random;
use thermocline_pmem::shadow::Model;
use thermocline_pmem::{Circumstances, Medium, Region, RegionIdentity};

const KEYS: u64 = 1000;

/// A file that is no persistent memory.
const ORDINARY: Circumstances =
    Circumstances { is_synchronous: false, boot: [1; 16], dirty_shutdowns: None };

/// Settings of an opening; the region is named where the preset is `indexed`.
fn of(preset: Preset) -> Settings {
    let named = Settings { preset: Some(preset), tiers: Vec::new(), ..indexed() };
    let persistent_memory = named.persistent_memory.clone().filter(|_| preset == Preset::Indexed);
    Settings { persistent_memory, ..named }
}

fn open(machine: &Machine, preset: Preset) -> Result<Db> {
    machine.environment().open_with(Path::new(HOME), &of(preset))
}

/// A machine on two tiers, and a store of the preset `indexed` on it.
fn made(now: Circumstances) -> (Machine, Db) {
    let machine = Machine { regions: Arc::new(ShadowRegions::new(now)), ..Machine::new() };
    let fast = Tier::new(FAST, ByteSize::mib(16)).driver("memory");
    let slow = Tier::new(TIER, ByteSize::mib(256)).driver("memory");
    let settings = Settings { tiers: vec![fast, slow], ..indexed() };
    let db = machine.environment().create(Path::new(HOME), &settings).unwrap();
    (machine, db)
}

/// The machine after the end of its process.
fn after(machine: &Machine, now: Circumstances) -> Machine {
    let regions = if machine.regions.has(REGION) {
        ShadowRegions::with(REGION, &machine.regions.stored(REGION), now)
    } else {
        ShadowRegions::new(now)
    };
    Machine { devices: copy_of(&machine.devices), regions: Arc::new(regions) }
}

/// A store with tables that are entered, and with records that no table has, after the end of its
/// process.
fn killed(now: Circumstances) -> (Machine, State) {
    let (machine, db) = made(now);
    let mut state = State::new();
    churn(&db, &mut state, &mut Random::new(41), 0..3);
    db.settle().unwrap();
    (0..50).for_each(|number| put(&db, &mut state, number, 9));
    std::mem::forget(db);
    (after(&machine, now), state)
}

/// The region has chunks of an index.
fn has_index(machine: &Machine) -> bool {
    let medium = Medium::shadowed(&machine.regions.stored(REGION));
    let found = RegionIdentity::read(&medium).unwrap();
    let RegionIdentity { database, instance, generation, .. } = found;
    let expected = thermocline_pmem::Expected { database, instance, generation };
    Region::look(medium, &expected, &PERSISTENT).unwrap().has_index()
}

/// All presets, one after the other, with writes and merges in each of them.
fn go_through(now: Circumstances, presets: &[Preset]) {
    let (mut machine, mut state) = killed(now);
    let mut random = Random::new(7);
    for (at, preset) in presets.iter().copied().enumerate() {
        let db = open(&machine, preset).unwrap();
        assert_eq!(db.stats().preset, preset);
        check(&db, &state, KEYS);
        let rounds = 10 * (at as u64 + 1);
        churn(&db, &mut state, &mut random, rounds..rounds + 4);
        check(&db, &state, KEYS);
        if at % 2 == 0 {
            db.compact_range(None, None, &mut |_| {}).unwrap();
        }
        db.settle().unwrap();
        check(&db, &state, KEYS);
        assert_eq!(db.left_over().unwrap(), Vec::<String>::new());
        if at % 3 == 0 {
            db.close().unwrap();
        } else {
            std::mem::forget(db);
        }
        machine = after(&machine, now);
        let db = machine.open().unwrap();
        assert_eq!(db.stats().preset, preset, "it is kept");
        check(&db, &state, KEYS);
        db.close().unwrap();
    }
}

#[test]
fn presets_follow_one_another_and_every_answer_stays() {
    use Preset::{Hybrid, Indexed, Leveled};
    let presets = [Leveled, Indexed, Hybrid, Indexed, Leveled, Leveled, Indexed];
    go_through(PERSISTENT, &presets);
    go_through(ORDINARY, &presets);
}

#[test]
fn with_leveled_the_region_keeps_memtables_and_the_room_of_the_index_is_free() {
    let (machine, state) = killed(PERSISTENT);
    assert!(has_index(&machine));
    let db = open(&machine, Preset::Leveled).unwrap();
    check(&db, &state, KEYS);
    let stats = db.stats();
    assert!(stats.region.is_some() && stats.index.is_none());
    db.close().unwrap();
    assert!(!has_index(&machine));
    assert!(machine.database_file().contains(REGION));
}

#[test]
fn a_region_that_the_preset_does_not_keep_is_removed() {
    for (preset, now) in [(Preset::Hybrid, PERSISTENT), (Preset::Leveled, ORDINARY)] {
        let (machine, state) = killed(now);
        // Opened for reading, nothing changes.
        let settings = of(preset);
        let looking = machine.environment().open_read_only_with(Path::new(HOME), &settings);
        check(&looking.unwrap(), &state, KEYS);
        assert!(machine.regions.has(REGION) && machine.database_file().contains(REGION));
        let db = open(&machine, preset).unwrap();
        check(&db, &state, KEYS);
        assert_eq!(db.stats().region, None);
        db.close().unwrap();
        assert!(!machine.regions.has(REGION) && !machine.database_file().contains("region"));
    }
}

/// Records and look-ups are those of `state`; less than `check`, for many images.
fn holds(db: &Db, state: &State) {
    let scanned = db.scan().into_iter().map(Result::unwrap);
    assert!(scanned.map(|(key, value)| (key.to_vec(), value.to_vec())).eq(state.clone()));
    for (key, value) in state.iter().step_by(9) {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
}

pub fn changes(call: Call) -> bool {
    use Call::{Create, Delete, Rename, Sync, SyncDirectory, Truncate, Write};
    matches!(call, Create | Delete | Rename | Sync | SyncDirectory | Truncate | Write)
}

/// Ends at any call of a device an opening that changes the preset to `preset`. What is left opens
/// as it is, with the preset of before and with the new one.
fn cut_off_anywhere(now: Circumstances, preset: Preset) {
    let (machine, state) = killed(now);
    let mut found = Vec::new();
    for calls in 0.. {
        let machine = after(&machine, now);
        let left = Arc::new(AtomicU64::new(calls));
        let counted = Arc::clone(&left);
        let hook = move |call, _: &Path, _: &str| {
            let over = || counted.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_err();
            if changes(call) && over() {
                return Err(Error::new(ErrorKind::Io, "the process has ended"));
            }
            Ok(())
        };
        let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
        let environment = stepped(Arc::new(devices), &machine.regions);
        let opened = environment.open_with(Path::new(HOME), &of(preset));
        let is_whole = opened.is_ok() && left.load(SeqCst) > 0;
        std::mem::forget(opened);
        let db = after(&machine, now).open().unwrap();
        found.push(db.stats().preset);
        holds(&db, &state);
        for named in [Preset::Indexed, preset] {
            match open(&after(&machine, now), named) {
                Ok(db) => holds(&db, &state),
                // What memtables had is in slots by then.
                Err(error) if preset == Preset::Hybrid && named == Preset::Indexed => {
                    let text = error.to_string();
                    assert!(text.contains("open it with the preset hybrid"), "{calls}: {text}");
                }
                Err(error) => panic!("{calls}: {error}"),
            }
        }
        if is_whole {
            break;
        }
    }
    found.dedup();
    assert_eq!(found, [Preset::Indexed, preset]);
}

#[test]
fn a_change_that_is_cut_off_leaves_one_preset_or_the_other() {
    cut_off_anywhere(PERSISTENT, Preset::Leveled);
    cut_off_anywhere(PERSISTENT, Preset::Hybrid);
    cut_off_anywhere(ORDINARY, Preset::Leveled);
}

#[test]
fn an_index_that_is_half_given_up_when_the_power_fails_is_in_nobodys_way() {
    let (machine, state) = killed(PERSISTENT);
    let (regions, files) = (Arc::clone(&machine.regions), machine.devices.clone());
    // What the directories hold before each call that changes them.
    let before = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&before);
    let hook = move |call, _: &Path, _: &str| {
        if changes(call) {
            let mut kept = kept.lock().unwrap();
            kept.push(copy_of(&files));
            regions.shadow(REGION).mark(kept.len() as u64);
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    let environment = stepped(Arc::new(devices), &machine.regions);
    let db = environment.open_with(Path::new(HOME), &of(Preset::Leveled)).unwrap();
    std::mem::forget(db);
    let before = before.lock().unwrap();
    let mut tried = 0;
    machine.regions.shadow(REGION).crashes(|crash| {
        if crash.mark == 0 {
            return;
        }
        // Stores behind call `mark` and before the next.
        let devices = before.get(crash.mark as usize).unwrap_or(&machine.devices);
        for model in [Model::X86, Model::Words] {
            crash.images(model, 1, tried, |image| {
                tried += 1;
                let db = Machine::of(copy_of(devices), image).open().unwrap();
                assert_eq!(db.stats().preset, Preset::Leveled, "the settings come first");
                holds(&db, &state);
                let db = open(&Machine::of(copy_of(devices), image), Preset::Indexed).unwrap();
                holds(&db, &state);
            });
        }
    });
    assert!(tried > 10, "{tried} images");
}

#[test]
fn a_manifest_that_lost_its_end_is_noticed_before_the_index_is_given_up() {
    let (machine, db) = made(PERSISTENT);
    let mut state = State::new();
    (0..500).for_each(|number| put(&db, &mut state, number, 1));
    db.flush().unwrap();
    db.settle().unwrap();
    let older = copy_of(&machine.devices);
    (500..KEYS).for_each(|number| put(&db, &mut state, number, 2));
    db.flush().unwrap();
    db.settle().unwrap();
    let image = machine.regions.stored(REGION);
    std::mem::forget(db);
    let machine = Machine::of(older, &image);
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let error = open(&machine, preset).unwrap_err();
        assert_eq!(error.kind(), thermocline::ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains("the end of the manifest is lost"), "{error}");
        assert!(machine.regions.has(REGION));
    }
}
