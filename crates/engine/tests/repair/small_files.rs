//! The small files: `DATABASE`, `TIER` and `settings.toml`. A flipped bit of any of them keeps no
//! record from being read, or a repair writes the file anew.

use crate::PRESETS;
use crate::support::{HOME, Image, compare, environment, fixture, repair, restore};
use std::path::Path;
use std::sync::Arc;
use thermocline::{ErrorKind, Preset, RepairPlan};
use thermocline_device::tiered_files::Devices;

fn of_name(image: &Image, name: &str) -> Vec<usize> {
    (0..image.len()).filter(|index| image[*index].1 == name).collect()
}

#[test]
fn a_flipped_bit_of_database_or_tier_is_turned_back() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        for name in ["DATABASE", "TIER"] {
            for index in of_name(&image, name) {
                let len = image[index].2.len().min(1024);
                for at in (0..len).step_by(7) {
                    let mut damaged = image.clone();
                    damaged[index].2[at] ^= 1 << (at % 8);
                    let devices = restore(&damaged);
                    let db = environment(Arc::new(devices.clone()));
                    let db = db.open_read_only(Path::new(HOME)).unwrap();
                    let is_reported = !db.verify(&mut |_| {}).unwrap().problems.is_empty();
                    assert_eq!(is_reported, name == "DATABASE", "byte {at} of {name}");
                    db.close().unwrap();
                    let older = compare(&devices, &model, &RepairPlan::default());
                    assert!(older.is_empty(), "byte {at} of {name}: {older:?}");
                }
            }
        }
    }
}

#[test]
fn settings_that_cannot_be_read_are_written_anew_without_the_line_that_is_wrong() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let index = of_name(&image, "settings.toml")[0];
        let mut repaired = 0;
        for at in 0..image[index].2.len() {
            let mut damaged = image.clone();
            damaged[index].2[at] ^= 1 << (at % 8);
            let devices = restore(&damaged);
            let environment = environment(Arc::new(devices.clone()));
            if let Err(error) = environment.open_read_only(Path::new(HOME)) {
                let says = ["settings.toml", "repair"];
                assert!(says.iter().all(|word| error.to_string().contains(word)), "{error}");
                let plan = repair(&devices);
                assert!(plan.steps.len() == 1 && plan.loses_nothing(), "{plan:?}");
                assert_eq!(plan.steps[0].file, "settings.toml");
                repaired += 1;
            }
            let kept = environment.kept_settings(Path::new(HOME)).unwrap();
            assert_eq!(kept.preset, Some(preset), "byte {at}");
            if at % 5 == 0 {
                assert!(compare(&devices, &model, &RepairPlan::default()).is_empty());
            }
        }
        assert!(repaired > 50, "{repaired}");
    }
}

#[test]
fn settings_that_are_gone_or_noise_are_written_anew_with_the_preset_that_slabs_tell() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let index = of_name(&image, "settings.toml")[0];
        for is_gone in [true, false] {
            let mut damaged = image.clone();
            match is_gone {
                true => drop(damaged.remove(index)),
                false => damaged[index].2.fill(0xfe),
            }
            let devices = restore(&damaged);
            let environment = environment(Arc::new(devices.clone()));
            let is_refused = !is_gone || preset == Preset::Hybrid;
            let opened = environment.open_read_only(Path::new(HOME));
            assert_eq!(opened.is_err(), is_refused);
            drop(opened);
            let plan = repair(&devices);
            assert_eq!(plan.steps.len(), usize::from(is_refused), "{plan:?}");
            assert!(compare(&devices, &model, &plan).is_empty());
            let kept = environment.kept_settings(Path::new(HOME)).unwrap();
            assert_eq!(kept.preset, Some(preset));
        }
    }
}

/// Settings that are given stand for those that cannot be read.
#[test]
fn settings_that_are_given_open_a_database_whose_own_cannot_be_read() {
    let (mut image, model) = fixture(Preset::Leveled);
    let index = of_name(&image, "settings.toml")[0];
    image[index].2.fill(b'x');
    let devices = restore(&image);
    let environment = environment(Arc::new(devices.clone()));
    let error = environment.open(Path::new(HOME)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let mut given = crate::support::settings(Preset::Leveled);
    given.tiers.clear();
    environment.open_with(Path::new(HOME), &given).unwrap().close().unwrap();
    let home = Devices::home(&devices, Path::new(HOME)).unwrap();
    let is_kept = |name: &String| name == "settings.toml.damaged";
    assert!(home.list().unwrap().iter().map(|file| &file.name).any(is_kept));
    assert!(compare(&devices, &model, &RepairPlan::default()).is_empty());
}
