//! A file map that is lost is made anew, of what lies in the tiers. The manifest knows which files
//! count, so no record is lost.

use crate::PRESETS;
use crate::cut_off::changes;
use crate::hooked::{Call, HookedDevices};
use crate::manifest;
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{
    HOME, Image, Model, compare, environment, fixture, of_kind, put, repair, restore, restore_on,
    settings, take,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{ErrorKind, Preset};
use thermocline_device::{Buffer, Devices, Error, MemoryDevices, Operation};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The image with its newest map lost: in four ways.
fn harmed(image: &Image) -> [Image; 4] {
    let newest = of_kind(image, ".map").into_iter().max_by_key(|at| image[*at].1.clone());
    let at = newest.unwrap();
    let [mut zeros, mut noise, mut cut, mut gone] = [0; 4].map(|_| image.clone());
    zeros[at].2.fill(0);
    let bytes = &mut noise[at].2;
    let end = bytes.len().min(1500);
    bytes[600..end].fill(0xa5);
    cut[at].2.truncate(100);
    gone.remove(at);
    [zeros, noise, cut, gone]
}

/// What a process leaves that is killed while it writes.
fn killed(preset: Preset) -> (Image, Model) {
    let devices = MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
    let mut model = Model::new();
    for round in 1..8 {
        put(&db, &mut model, round * 20..round * 20 + 150, round);
        db.flush().unwrap();
        if round % 3 == 0 {
            db.compact_range(None, None, &mut |_| {}).unwrap();
        }
    }
    put(&db, &mut model, 50..90, 8);
    let image = take(&devices);
    drop(db);
    (image, model)
}

#[test]
fn a_map_that_is_lost_in_any_way_is_made_anew_and_costs_nothing() {
    for preset in PRESETS {
        for (image, model) in [fixture(preset), killed(preset)] {
            for image in harmed(&image) {
                let devices = restore(&image);
                let opened = environment(Arc::new(devices.clone())).open(Path::new(HOME));
                assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
                let plan = repair(&devices);
                assert!(plan.steps.len() == 1 && plan.loses_nothing(), "{plan:?}");
                assert!(plan.steps[0].file.ends_with(".map"), "{plan:?}");
                assert!(compare(&devices, &model, &plan).is_empty());
                let files = take(&devices);
                let left = |end| of_kind(&files, end).len();
                assert!(left(".map") <= 1 + usize::from(plan.steps[0].kept_as.is_some()));
            }
        }
    }
}

#[test]
fn a_manifest_that_is_lost_too_is_made_anew_once_there_is_a_map() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        for mut image in harmed(&image) {
            let at = of_kind(&image, ".manifest")[0];
            image[at].2.fill(0);
            let devices = restore(&image);
            let environment = environment(Arc::new(devices.clone()));
            let plan = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
            assert!(plan.steps[0].repair.contains("repair again"), "{plan:?}");
            let refused = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap_err();
            assert!(refused.to_string().contains("--rebuild-manifest"), "{refused}");
            environment.rebuild_manifest(Path::new(HOME), None, &mut |_| {}).unwrap();
            let db = environment.open(Path::new(HOME)).unwrap();
            for (key, values) in &model {
                let found = db.get(key).unwrap().map(|value| value.to_vec());
                let newest = values.last().unwrap();
                assert!(found == *newest || newest.is_none(), "{key}");
            }
            db.close().unwrap();
        }
    }
}

/// What was in logs alone is in them still, and a log or the last closing tells that there was a
/// manifest: it is no checkpoint that was not finished.
#[test]
fn a_map_and_a_manifest_that_are_both_gone_are_made_anew_one_after_the_other() {
    for preset in PRESETS {
        let of_logs = {
            let devices = MemoryDevices::new();
            let environment = environment(Arc::new(devices.clone()));
            let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
            let mut model = Model::new();
            put(&db, &mut model, 0..40, 1);
            (take(&devices), model)
        };
        for (image, model) in [fixture(preset), killed(preset), of_logs] {
            for image in harmed(&image) {
                let image: Image =
                    image.into_iter().filter(|(_, name, _)| !name.ends_with(".manifest")).collect();
                let devices = restore(&image);
                let environment = environment(Arc::new(devices.clone()));
                let plan = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
                assert!(plan.steps[0].repair.contains("repair again"), "{plan:?}");
                let opened = environment.open(Path::new(HOME)).unwrap_err();
                let refused = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap_err();
                assert!(refused.to_string().contains("--rebuild-manifest"), "{refused}");
                for error in [opened, refused] {
                    assert!(!error.to_string().contains("delete"), "{error}");
                }
                let plan = manifest::planned_and_done(&devices);
                manifest::compare(&devices, &model, Some(&plan));
            }
        }
    }
}

/// The making of a manifest was cut off, so nothing is in it yet, and the map was lost besides.
#[test]
fn a_manifest_whose_making_was_cut_off_does_not_count_in_a_map_made_anew() {
    for preset in PRESETS {
        let (image, model) = killed(preset);
        for (image, unfinished) in harmed(&image)
            .into_iter()
            .flat_map(|image| [vec![], vec![0; 8192]].map(|new| (image.clone(), new)))
        {
            let mut image = image;
            let path = image[of_kind(&image, ".manifest")[0]].0.clone();
            image.push((path.clone(), "00000900.manifest".to_owned(), unfinished));
            let devices = restore(&image);
            let plan = repair(&devices);
            assert!(plan.steps.len() == 1 && plan.loses_nothing(), "{plan:?}");
            assert!(compare(&devices, &model, &plan).is_empty());
            let left = take(&devices);
            let kept = (path.join("lost"), "00000900.manifest");
            let is_kept =
                |(at, name, _): &(PathBuf, String, _)| (at, &name[..]) == (&kept.0, kept.1);
            assert!(left.iter().any(is_kept), "it is kept in lost");
        }
    }
}

/// A copy that was cut off lies beside the file that it was to replace.
#[test]
fn a_file_that_is_on_two_tiers_is_refused_by_name() {
    let (image, _) = fixture(Preset::Leveled);
    let mut image = harmed(&image)[0].clone();
    let (path, name, bytes) = image[of_kind(&image, ".table")[0]].clone();
    let other = if path == Path::new("/fast") { "/slow" } else { "/fast" };
    image.push((other.into(), name.clone(), bytes));
    let environment = environment(Arc::new(restore(&image)));
    let error = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tier);
    assert!(error.to_string().contains(&name), "{error}");
}

/// What a killed process had begun is listed, too: it must be there after loss of power.
#[test]
fn a_map_that_is_made_anew_lists_nothing_that_loss_of_power_would_take() {
    let (image, model) = fixture(Preset::Leveled);
    let devices = SimulatedDevices::new(Fault::None);
    restore_on(&devices, &harmed(&image)[0]);
    let driver = devices.home(Path::new("/fast")).unwrap();
    let file = driver.create("00000900.table").unwrap();
    let buffer = Buffer::zeroed(8192);
    let write = Operation::Write { offset: 0, buffer, durable: false };
    driver.execute(&file, write).result.unwrap();
    let repairs = environment(Arc::new(devices.clone()));
    let plan = repairs.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
    for fate in [Fate::Lost, Fate::Kept, Fate::Any(7)] {
        let left = devices.after_power_cut(fate);
        assert!(compare(&left, &model, &plan).is_empty(), "{fate:?}");
    }
}

#[test]
fn a_map_whose_making_is_cut_off_anywhere_is_made_again() {
    let (image, model) = fixture(Preset::Hybrid);
    let image = harmed(&image)[1].clone();
    for most in 0.. {
        let devices = restore(&image);
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let hook = move |call: Call, _: &Path, name: &str| {
            if changes(call) && counted.fetch_add(1, Relaxed) >= most {
                let text = format!("{call:?} of {name}: cut off");
                return Err(Error::new(thermocline_device::ErrorKind::Io, text));
            }
            Ok(())
        };
        let inner: Arc<dyn Devices> = Arc::new(devices.clone());
        let cut_off = environment(Arc::new(HookedDevices::new(inner, Arc::new(hook))));
        let _ = cut_off.repair(Path::new(HOME), None, &mut |_| {});
        let left = restore(&take(&devices));
        let again = environment(Arc::new(left.clone()));
        let plan = again.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
        assert!(plan.steps.len() <= 1 && plan.loses_nothing(), "{plan:?}");
        assert!(compare(&left, &model, &plan).is_empty(), "after {most} changes");
        if done.load(Relaxed) <= most {
            assert!(most > 4, "{most} places");
            return;
        }
    }
}
