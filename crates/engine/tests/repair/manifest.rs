//! A manifest that is cut, of zeros, gone or not one is made anew, of what tables, slots and logs
//! tell. A key that has a value has its newest one; one that was deleted has none, or one that it
//! had.

use crate::PRESETS;
use crate::cut_off::changes;
use crate::hooked::{Call, HookedDevices};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{
    HOME, Image, Model, environment, fixture, load, of_kind, put, restore, restore_on, settings,
    take,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Db, Lost, Preset, RepairPlan, Settings};
use thermocline_device::{Devices, Error, MemoryDevices};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What becomes of the newest manifest.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    Zeros,
    Noise,
    Cut,
    Empty,
    Gone,
}

const HARMS: [Harm; 5] = [Harm::Zeros, Harm::Noise, Harm::Cut, Harm::Empty, Harm::Gone];

pub fn harmed(image: &Image, harm: Harm) -> Image {
    let mut image = image.clone();
    let newest = of_kind(&image, ".manifest").into_iter().max_by_key(|at| image[*at].1.clone());
    let at = newest.unwrap();
    let bytes = &mut image[at].2;
    match harm {
        Harm::Zeros => bytes.fill(0),
        Harm::Noise => bytes.fill(0xa5),
        Harm::Cut => bytes.truncate(700),
        Harm::Empty => bytes.clear(),
        Harm::Gone => drop(image.remove(at)),
    }
    image
}

fn plan(devices: &impl DevicesOfTest) -> thermocline::Result<RepairPlan> {
    environment(devices.shared()).plan_manifest_rebuild(Path::new(HOME), None, &mut |_| {})
}

pub fn rebuild(devices: &impl DevicesOfTest) -> thermocline::Result<RepairPlan> {
    environment(devices.shared()).rebuild_manifest(Path::new(HOME), None, &mut |_| {})
}

pub trait DevicesOfTest {
    fn shared(&self) -> Arc<dyn Devices>;
}

impl<T: Devices + Clone + 'static> DevicesOfTest for T {
    fn shared(&self) -> Arc<dyn Devices> {
        Arc::new(self.clone())
    }
}

/// Plans and rebuilds: what is planned is done, planning changes nothing, and afterwards there is
/// nothing left to do.
pub fn planned_and_done(devices: &MemoryDevices) -> RepairPlan {
    let before = take(devices);
    let planned = plan(devices).unwrap();
    assert!(take(devices) == before, "planning has changed a file");
    let done = rebuild(devices).unwrap();
    let mut as_planned = done.clone();
    as_planned.steps.iter_mut().for_each(|step| step.kept_as = None);
    assert_eq!((as_planned.steps, done.files), (planned.steps, planned.files));
    assert!(!done.loses_nothing(), "{done:?}");
    assert!(plan(devices).unwrap().is_empty());
    done
}

fn returning(plan: &RepairPlan, key: &[u8]) -> bool {
    plan.steps.iter().flat_map(|step| &step.lost).any(|lost| match lost {
        Lost::MayReturn { from, until } => (&from[..]..=&until[..]).contains(&key),
        _ => false,
    })
}

/// Opens what was rebuilt, which must verify, and compares it: the newest value of each key that
/// has one, and of others none, or where the plan says so one that it had. Says how many are back.
pub fn compare(devices: &impl DevicesOfTest, model: &Model, plan: Option<&RepairPlan>) -> usize {
    let environment = environment(devices.shared());
    let db = environment.open(Path::new(HOME)).unwrap();
    let problems = db.verify(&mut |_| {}).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}");
    let mut shown = Model::new();
    for record in db.scan() {
        let (key, value) = record.unwrap();
        let key = String::from_utf8(key.to_vec()).unwrap();
        shown.insert(key, vec![Some(value.to_vec())]);
    }
    let mut returned = 0;
    for (key, values) in model {
        let found = db.get(key).unwrap().map(|value| value.to_vec());
        let of_scan = shown.remove(key).and_then(|mut values| values.pop().flatten());
        assert_eq!(of_scan, found, "scan and get of {key}");
        if values.last() == Some(&found) {
            continue;
        }
        assert_eq!(values.last(), Some(&None), "{key} has not its newest value");
        assert!(values.contains(&found), "{key} has what it never had");
        assert!(plan.is_none_or(|plan| returning(plan, key.as_bytes())), "{key} is not told");
        returned += 1;
    }
    shown.remove("new");
    assert!(shown.is_empty(), "{:?} were never there", shown.keys());
    db.put("new", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    returned
}

fn delete(db: &Db, model: &mut Model, keys: impl Iterator<Item = u32>) {
    for number in keys {
        let key = format!("key{number:04}");
        db.delete(&key).unwrap();
        model.entry(key).or_default().push(None);
    }
}

/// A database with tables in several levels, records written over and deleted in all of them, and
/// some in logs alone. It was closed, or its process was killed.
fn deep(preset: Preset, is_closed: bool) -> (Image, Model) {
    let devices = MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let settings = Settings { memory: ByteSize::mib(2), ..settings(preset) };
    let db = environment.create(Path::new(HOME), &settings).unwrap();
    let mut model = Model::new();
    for round in 1..12 {
        put(&db, &mut model, (round * 40)..(round * 40 + 300), round);
        delete(&db, &mut model, (round * 50..round * 50 + 120).step_by(3));
        db.flush().unwrap();
        match round {
            4 => db.compact_range(None, None, &mut |_| {}).unwrap(),
            7 | 9 => db.settle().unwrap(),
            _ => {}
        }
    }
    put(&db, &mut model, (100..500).step_by(7), 12);
    delete(&db, &mut model, (100..500).step_by(11));
    if is_closed {
        db.close().unwrap();
        return (take(&devices), model);
    }
    let image = take(&devices);
    drop(db);
    (image, model)
}

#[test]
fn a_manifest_that_is_lost_in_any_way_is_made_anew() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        for harm in HARMS {
            let devices = restore(&harmed(&image, harm));
            let refused = environment(devices.shared()).open(Path::new(HOME)).unwrap_err();
            let error = environment(devices.shared())
                .plan_repair(Path::new(HOME), None, &mut |_| {})
                .unwrap_err();
            assert!(
                error.to_string().contains("--rebuild-manifest"),
                "{harm:?}: {refused} {error}"
            );
            let plan = planned_and_done(&devices);
            compare(&devices, &model, Some(&plan));
            let kept = plan.steps[0].kept_as.is_some();
            assert_eq!(kept, !matches!(harm, Harm::Gone), "{harm:?}: {plan:?}");
        }
    }
}

#[test]
fn tables_of_several_levels_slots_and_logs_are_put_in_order_by_their_sequences() {
    for preset in PRESETS {
        for is_closed in [true, false] {
            let (image, model) = deep(preset, is_closed);
            let tables = of_kind(&image, ".table").len();
            let least = if preset == Preset::Hybrid { 1 } else { 3 };
            assert!(tables >= least, "{preset:?}: {tables} tables");
            for harm in [Harm::Zeros, Harm::Gone] {
                let devices = restore(&harmed(&image, harm));
                let plan = planned_and_done(&devices);
                compare(&devices, &model, Some(&plan));
                // And later, when everything was merged once more.
                let db = environment(devices.shared()).open(Path::new(HOME)).unwrap();
                db.compact_range(None, None, &mut |_| {}).unwrap();
                db.close().unwrap();
                compare(&devices, &model, Some(&plan));
            }
        }
    }
}

#[test]
fn a_manifest_that_can_be_read_is_left_alone() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let devices = restore(&image);
        assert!(plan(&devices).unwrap().is_empty());
        assert!(rebuild(&devices).unwrap().is_empty());
        assert_eq!(compare(&devices, &model, None), 0);
        // A bit of it is turned back.
        let mut flipped = image.clone();
        flipped[of_kind(&image, ".manifest")[0]].2[700] ^= 1;
        assert!(plan(&restore(&flipped)).unwrap().is_empty());
    }
}

/// Recovery would begin with a log that is gone: the manifest is that of an earlier moment.
#[test]
fn a_manifest_that_has_lost_its_end_is_made_anew() {
    let devices = MemoryDevices::new();
    let environment = environment(devices.shared());
    let db = environment.create(Path::new(HOME), &settings(Preset::Leveled)).unwrap();
    let mut model = Model::new();
    put(&db, &mut model, 0..50, 1);
    db.flush().unwrap();
    let before = take(&devices);
    for round in 2..8 {
        put(&db, &mut model, 50..100, round);
        db.flush().unwrap();
    }
    put(&db, &mut model, 100..120, 1);
    let mut image = take(&devices);
    drop(db);
    for index in of_kind(&image, ".manifest") {
        let old = before.iter().find(|(_, name, _)| *name == image[index].1).unwrap();
        image[index].2 = old.2.clone();
    }
    let devices = restore(&image);
    let plan = planned_and_done(&devices);
    assert_eq!(compare(&devices, &model, Some(&plan)), 0);
}

/// The tables of a load do not say when it was: it lies over what was written before, and under
/// what came later.
#[test]
fn a_bulk_load_keeps_its_place_among_what_was_written_before_and_after() {
    let mut told = 0;
    for preset in PRESETS {
        for is_flushed in [true, false] {
            let devices = MemoryDevices::new();
            let db = environment(devices.shared()).create(Path::new(HOME), &settings(preset));
            let (db, mut model) = (db.unwrap(), Model::new());
            put(&db, &mut model, 0..200, 1);
            db.compact_range(None, None, &mut |_| {}).unwrap();
            load(&db, &mut model, 50..150);
            put(&db, &mut model, 100..250, 3);
            if is_flushed {
                db.flush().unwrap();
            }
            let image = take(&devices);
            drop(db);
            let devices = restore(&harmed(&image, Harm::Zeros));
            let plan = planned_and_done(&devices);
            let is_told = plan
                .steps
                .iter()
                .flat_map(|step| &step.lost)
                .any(|lost| matches!(lost, Lost::Loaded { from, until } if from < until));
            told += usize::from(is_told);
            assert_eq!(compare(&devices, &model, Some(&plan)), 0);
        }
    }
    // Where it was not merged yet.
    assert!(told > 0);
}

/// Other damage stays damage: it is told and kept, and the rest of it is saved.
#[test]
fn tables_slabs_and_logs_that_are_damaged_too_cost_what_they_have() {
    let mut logs_told = 0;
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        for (kind, at) in [(".table", None), (".slab", Some(10)), (".log", Some(4096 + 700))] {
            for index in of_kind(&image, kind) {
                let mut damaged = image.clone();
                let bytes = &mut damaged[index].2;
                let at = at.unwrap_or(bytes.len() - 4000).min(bytes.len().saturating_sub(8));
                let end = (at + 600).min(bytes.len());
                bytes[at..end].fill(0xa5);
                let name = damaged[index].1.clone();
                let devices = restore(&harmed(&damaged, Harm::Noise));
                let told = planned_and_done(&devices);
                let is_told = told.steps.iter().any(|step| step.file == name);
                // A log that was flushed before a later one may not count.
                assert!(is_told || kind == ".log", "{name}: {told:?}");
                logs_told += usize::from(is_told && kind == ".log");
                let repaired = environment(devices.shared());
                repaired.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
                let db = repaired.open(Path::new(HOME)).unwrap();
                assert!(db.verify(&mut |_| {}).unwrap().problems.is_empty());
                for (key, values) in &model {
                    let found = db.get(key).unwrap().map(|value| value.to_vec());
                    assert!(found.is_none() || values.contains(&found), "{key} of {name}");
                }
                db.close().unwrap();
            }
        }
    }
    assert!(logs_told > 0);
}

/// Devices that carry out `most` changes and no more, counting what they are asked for.
fn ending_after(devices: &MemoryDevices, most: u64) -> (Arc<dyn Devices>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked);
    let hook = move |call: Call, path: &Path, name: &str| {
        if changes(call) && counted.fetch_add(1, Relaxed) >= most {
            let text = format!("{call:?} of {name} in {}: cut off", path.display());
            return Err(Error::new(thermocline_device::ErrorKind::Io, text));
        }
        Ok(())
    };
    (Arc::new(HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook))), asked)
}

#[test]
fn a_rebuild_that_is_cut_off_anywhere_is_begun_again() {
    for (preset, harm) in PRESETS.into_iter().zip([Harm::Noise, Harm::Gone]) {
        let (image, model) = fixture(preset);
        let image = harmed(&image, harm);
        let (mut places, mut outcomes) = (0, BTreeSet::new());
        for most in 0.. {
            let devices = restore(&image);
            let (ending, asked) = ending_after(&devices, most);
            let _ = environment(ending).rebuild_manifest(Path::new(HOME), None, &mut |_| {});
            let left = restore(&take(&devices));
            let again = rebuild(&left).unwrap_or_else(|error| panic!("after {most}: {error}"));
            outcomes.insert(again.is_empty());
            compare(&left, &model, None);
            if asked.load(Relaxed) <= most {
                break;
            }
            places += 1;
        }
        assert!(places > 20 && outcomes.len() == 2, "{places} places: {outcomes:?}");
    }
}

#[test]
fn loss_of_power_anywhere_in_a_rebuild_takes_nothing() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let image = harmed(&image, Harm::Empty);
        let mut cuts = 0;
        for most in 0.. {
            let devices = SimulatedDevices::new(Fault::None);
            restore_on(&devices, &image);
            let before = devices.changes();
            devices.set_fault(Fault::PowerCut(before + most));
            let _ = rebuild(&devices);
            let is_over = devices.changes() < before + most;
            for fate in [Fate::Kept, Fate::Lost, Fate::Any(most)] {
                let left = devices.after_power_cut(fate);
                rebuild(&left).unwrap_or_else(|error| panic!("{fate:?} of {most}: {error}"));
                compare(&left.after_power_cut(Fate::Lost), &model, None);
            }
            if is_over {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 20, "{cuts} places");
    }
}
