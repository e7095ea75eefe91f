//! A repair that is cut off at any call of a device is begun again, and comes to the same.

use crate::hooked::{Call, HookedDevices};
use crate::support::{HOME, compare, environment, fixture, of_kind, repair, restore, take};
use std::path::Path;
use std::sync::Arc;
use thermocline::Preset;
use thermocline_device::{Devices, Error, ErrorKind, MemoryDevices};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn changes(call: Call) -> bool {
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

#[test]
fn a_repair_that_is_cut_off_anywhere_is_begun_again_and_comes_to_the_same() {
    for preset in [Preset::Leveled, Preset::Hybrid] {
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
