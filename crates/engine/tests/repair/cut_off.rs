//! A repair that is cut off at any call of a device, by its end or by loss of power, is begun
//! again, and comes to the same.

use crate::hooked::{Call, HookedDevices};
use crate::simulated::{Fate, Fault, SimulatedDevices};
use crate::support::{
    HOME, Image, Model, compare, environment, fixture, of_kind, repair, restore, restore_on, take,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::Preset;
use thermocline_device::{Devices, Error, ErrorKind, MemoryDevices};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The call changes a device.
pub fn changes(call: Call) -> bool {
    use Call::{
        Allocate, Create, CreateDirectory, Delete, Rename, Sync, SyncDirectory, Truncate, Write,
    };
    let changing =
        [Allocate, Create, CreateDirectory, Delete, Rename, Sync, SyncDirectory, Truncate, Write];
    changing.contains(&call)
}

/// Devices that carry out so many changes and no more.
fn ending_after(devices: &MemoryDevices, most: u64) -> Arc<dyn Devices> {
    let done = AtomicU64::new(0);
    let hook = move |call: Call, path: &Path, name: &str| {
        if changes(call) && done.fetch_add(1, Relaxed) >= most {
            let text = format!("{call:?} of {name} in {}: cut off", path.display());
            return Err(Error::new(ErrorKind::Io, text));
        }
        Ok(())
    };
    Arc::new(HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook)))
}

/// A database with something wrong in each of its slabs, tables, logs and manifests.
fn damaged(preset: Preset) -> (Image, Model) {
    let (mut image, model) = fixture(preset);
    for kind in [".slab", ".table", ".log", ".manifest"] {
        for index in of_kind(&image, kind) {
            let at = if kind == ".slab" { 4096 + 30 } else { 4096 + 700 };
            if kind == ".log" {
                image[index].2[at..at + 512].fill(0xa5);
            } else if image[index].2.len() > at {
                image[index].2[at] ^= 1;
            }
        }
    }
    (image, model)
}

#[test]
fn a_repair_that_is_cut_off_anywhere_is_begun_again_and_comes_to_the_same() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let (image, model) = damaged(preset);
        let devices = restore(&image);
        let plan = repair(&devices);
        assert!(plan.steps.len() > 3, "{plan:?}");
        let expected = compare(&devices, &model, &plan);
        let mut cut_off = 0;
        for most in 0.. {
            let devices = restore(&image);
            let ended = environment(ending_after(&devices, most)).repair(
                Path::new(HOME),
                None,
                &mut |_| {},
            );
            let is_done = ended.is_ok();
            let left = restore(&take(&devices));
            let again = environment(Arc::new(left.clone()))
                .repair(Path::new(HOME), None, &mut |_| {})
                .unwrap_or_else(|error| panic!("after {most} changes: {error}"));
            assert_eq!(compare(&left, &model, &plan), expected, "{most}: {again:?}");
            if is_done {
                assert!(again.is_empty());
                break;
            }
            cut_off += 1;
        }
        assert!(cut_off > 20, "{cut_off} places");
    }
}

/// What is in `lost` of each tier: directories and bytes, without those of journals, which an
/// opening writes anew by itself.
fn kept(image: &Image) -> Vec<(PathBuf, Vec<u8>)> {
    let is_kept = |(path, name, _): &&(PathBuf, String, Vec<u8>)| {
        path.ends_with("lost") && ![".map", ".manifest"].iter().any(|kind| name.contains(kind))
    };
    image.iter().filter(is_kept).map(|(path, _, bytes)| (path.clone(), bytes.clone())).collect()
}

#[test]
fn loss_of_power_anywhere_in_a_repair_takes_nothing_that_was_kept() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
        let (image, model) = damaged(preset);
        let devices = restore(&image);
        let plan = repair(&devices);
        let wanted = kept(&take(&devices));
        assert!(wanted.len() > 2, "{plan:?}");
        let expected = compare(&devices, &model, &plan);
        let mut cuts = 0;
        for most in 0.. {
            let devices = SimulatedDevices::new(Fault::None);
            restore_on(&devices, &image);
            devices.set_fault(Fault::PowerCut(devices.changes() + most));
            let repaired = |devices: &SimulatedDevices| {
                let environment = environment(Arc::new(devices.clone()));
                environment.repair(Path::new(HOME), None, &mut |_| {})
            };
            let is_done = repaired(&devices).is_ok();
            for fate in [Fate::Kept, Fate::Lost, Fate::Any(most), Fate::Any(most + 1)] {
                let left = devices.after_power_cut(fate);
                // Begun again, it ends, and loses its power in turn.
                repaired(&left).unwrap_or_else(|error| panic!("{fate:?} of {most}: {error}"));
                let left = left.after_power_cut(Fate::Lost);
                let has = kept(&take(&left));
                let missing = wanted.iter().filter(|file| !has.contains(file)).count();
                assert_eq!(missing, 0, "{fate:?} of {most}: {plan:?}");
                assert_eq!(compare(&left, &model, &plan), expected, "{fate:?} of {most}");
            }
            if is_done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 20, "{cuts} places");
    }
}
