//! Repair: whatever is damaged, the database opens for writing afterwards and verifies; what was
//! not damaged is as it was, and what is lost is said.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

mod copies;
mod cut_off;
mod dictionaries;
#[path = "../reliability/hooked.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod hooked;
mod logs;
mod manifest;
mod map;
mod rebuilt;
#[path = "../../../device/tests/tiers/simulated.rs"]
#[allow(dead_code, reason = "shared with the tests of the device crate")]
mod simulated;
mod small_files;
mod support;
mod unreadable;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{HOME, compare, environment, fixture, of_kind, put, repair, restore, settings, take};
use thermocline::{Lost, Preset};

const PRESETS: [Preset; 2] = [Preset::Leveled, Preset::Hybrid];
const KINDS: [&str; 5] = [".slab", ".table", ".log", ".map", ".manifest"];

#[test]
fn a_database_without_damage_has_nothing_to_repair_and_is_left_as_it_is() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let devices = restore(&image);
        let plan = repair(&devices);
        assert!(plan.is_empty() && plan.loses_nothing() && plan.files > 3, "{plan:?}");
        assert!(compare(&devices, &model, &plan).is_empty());
    }
}

#[test]
fn a_flipped_bit_of_any_file_is_repaired_and_costs_what_it_damaged() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let mut repaired = BTreeMap::new();
        for (index, (_, name, bytes)) in image.iter().enumerate() {
            let Some(kind) = KINDS.into_iter().find(|kind| name.ends_with(kind)) else { continue };
            let written: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
            for at in written.iter().copied().step_by(written.len() / 25 + 1) {
                let mut damaged = image.clone();
                damaged[index].2[at] ^= 1 << (at % 8);
                let devices = restore(&damaged);
                let plan = repair(&devices);
                let older = compare(&devices, &model, &plan);
                let most = if kind == ".table" { 300 } else { usize::from(kind == ".slab") };
                assert!(older.len() <= most, "byte {at} of {name}: {older:?}");
                *repaired.entry(kind).or_insert(0) += plan.steps.len();
            }
        }
        for kind in KINDS.into_iter().filter(|kind| !of_kind(&image, kind).is_empty()) {
            assert!(repaired.get(kind).is_some_and(|count| *count > 5), "{kind}: {repaired:?}");
        }
    }
}

#[test]
fn a_lost_record_of_a_known_key_is_named_with_what_the_key_has_now() {
    let (image, model) = fixture(Preset::Hybrid);
    let mut named = BTreeMap::new();
    for index in of_kind(&image, ".slab") {
        for at in (4096..image[index].2.len()).step_by(330) {
            let mut damaged = image.clone();
            damaged[index].2[at] ^= 4;
            let devices = restore(&damaged);
            let plan = repair(&devices);
            let lost: Vec<_> = plan.steps.iter().flat_map(|step| step.lost.clone()).collect();
            for lost in lost {
                let Lost::Record { key, older, .. } = lost else { panic!("{lost:?}") };
                let key = String::from_utf8(key).unwrap();
                let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
                assert_eq!(db.get(&key).unwrap().is_some(), older.is_some(), "{key}");
                named.insert(key, older.is_some());
            }
            let older = compare(&devices, &model, &plan);
            assert!(older.iter().all(|key| named.contains_key(key)), "{older:?} {plan:?}");
        }
    }
    let (older, gone): (Vec<_>, Vec<_>) = named.iter().partition(|(_, has_older)| **has_older);
    assert!(older.len() > 3 && gone.len() > 3, "{named:?}");
}

/// More than a bit: whole sectors and pages of zeros, and files that end early.
#[test]
fn blocks_of_zeros_and_cut_files_are_repaired() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        for kind in [".slab", ".table", ".log"] {
            for index in of_kind(&image, kind) {
                let len = image[index].2.len();
                let places = (0..len).step_by((len / 12).next_multiple_of(512).max(512));
                for (at, bytes) in places.flat_map(|at| [(at, 512), (at, 4096)]) {
                    let mut damaged = image.clone();
                    let end = (at + bytes).min(len);
                    damaged[index].2[at..end].fill(0);
                    let devices = restore(&damaged);
                    let plan = repair(&devices);
                    compare(&devices, &model, &plan);
                }
            }
        }
        for index in of_kind(&image, ".slab") {
            let mut damaged = image.clone();
            damaged[index].2.truncate(4096 + 64);
            let devices = restore(&damaged);
            let plan = repair(&devices);
            assert!(!plan.is_empty());
            compare(&devices, &model, &plan);
        }
    }
}

#[test]
fn what_is_damaged_is_kept_byte_by_byte() {
    let (image, _) = fixture(Preset::Hybrid);
    for kind in [".slab", ".table"] {
        let index = of_kind(&image, kind)[0];
        let mut damaged = image.clone();
        let at = if kind == ".slab" { 4096 + 30 } else { 30 };
        damaged[index].2[at] ^= 1;
        let devices = restore(&damaged);
        let plan = repair(&devices);
        let [step] = &plan.steps[..] else { panic!("{plan:?}") };
        let kept = step.kept_as.clone().unwrap();
        let after = take(&devices);
        let of_kept = |(path, name, _): &&(PathBuf, String, Vec<u8>)| path.join(name) == kept;
        let bytes = &after.iter().find(of_kept).unwrap().2;
        let whole = &damaged[index].2;
        let has = whole.windows(bytes.len()).any(|window| window == &bytes[..]);
        assert!(has && bytes.len() > 30, "{kept:?} has {} bytes", bytes.len());
    }
}

/// The log that the floor names is gone, and the map does not know it: the manifest has rolled back
/// to what it was before a flush. Its tables would be deleted, so nothing is repaired.
#[test]
fn a_manifest_that_has_lost_its_end_is_refused_and_nothing_is_changed() {
    let devices = thermocline_device::MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let db = environment.create(Path::new(HOME), &settings(Preset::Leveled)).unwrap();
    let mut model = support::Model::new();
    put(&db, &mut model, 0..50, 1);
    db.flush().unwrap();
    let before = take(&devices);
    // Until the log of then is used again, under another number.
    for round in 2..8 {
        put(&db, &mut model, 50..100, round);
        db.flush().unwrap();
    }
    put(&db, &mut model, 100..120, 1);
    // The process ends here, and the last frame of the manifest is zeros.
    let mut image = take(&devices);
    drop(db);
    for index in of_kind(&image, ".manifest") {
        let old = before.iter().find(|(_, name, _)| *name == image[index].1).unwrap();
        image[index].2 = old.2.clone();
    }
    let devices = restore(&image);
    let environment = support::environment(Arc::new(devices.clone()));
    for error in [
        environment.plan_repair(Path::new(HOME), None, &mut |_| {}).unwrap_err(),
        environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap_err(),
    ] {
        assert!(error.to_string().contains("manifest"), "{error}");
    }
    let tables = |image: &support::Image| of_kind(image, ".table").len();
    assert_eq!(tables(&take(&devices)), tables(&image), "no table is taken out");
}
