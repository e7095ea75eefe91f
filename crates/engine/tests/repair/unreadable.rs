//! What a device does not give may be whole: a repair ends, and is tried again. Where it is known
//! that the device never gives it, it costs what damage in its place costs.

use crate::PRESETS;
use crate::hooked::{Call, HookedDevices};
use crate::manifest::{self, Harm, harmed};
use crate::support::{
    HOME, Image, Model, compare, environment, fixture, of_kind, repair, restore, settings, take,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Environment, ErrorKind, Lost, Preset, RepairPlan, Unreadable};
use thermocline_device::{Error, ErrorKind as DeviceErrorKind, MemoryDevices};
use thermocline_foundation::random::Random;
use thermocline_foundation::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const PAGE: usize = 4096;

/// An environment in which openings and reads of files fail for a moment, those numbered
/// `failing`, and the count of all.
fn failing(
    devices: &MemoryDevices,
    failing: Range<u64>,
    kind: DeviceErrorKind,
) -> (Environment, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let hook = move |call: Call, _: &Path, name: &str| {
        let is_counted = matches!(call, Call::Open | Call::Read);
        if is_counted && failing.contains(&counted.fetch_add(1, Relaxed)) {
            return Err(Error::new(kind, format!("{name} is not given for a moment")));
        }
        Ok(())
    };
    let hooked = HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook));
    (environment(Arc::new(hooked)), count)
}

/// An environment that never gives the bytes `at` of the file `name`.
fn never_giving(devices: &MemoryDevices, name: &str, at: Range<usize>) -> Environment {
    let (name, at) = (name.to_owned(), at.start as u64..at.end as u64);
    let is_never_given =
        move |of: &str, read: Range<u64>| of == name && read.start < at.end && at.start < read.end;
    let hooked =
        HookedDevices::new(Arc::new(devices.clone()), Arc::new(|_, _: &Path, _: &str| Ok(())));
    environment(Arc::new(hooked.never_giving(Arc::new(is_never_given))))
}

fn skipping(environment: &Environment) -> Environment {
    Environment { unreadable: Unreadable::Skipped, ..environment.clone() }
}

fn planned(environment: &Environment) -> thermocline::Result<RepairPlan> {
    environment.plan_repair(Path::new(HOME), None, &mut |_| {})
}

fn repaired(environment: &Environment) -> thermocline::Result<RepairPlan> {
    environment.repair(Path::new(HOME), None, &mut |_| {})
}

fn is_in_lost(image: &Image) -> bool {
    image.iter().any(|(path, ..)| path.ends_with("lost"))
}

fn lost(plan: &RepairPlan) -> Vec<(&str, &[Lost])> {
    plan.steps.iter().map(|step| (&step.file[..], &step.lost[..])).collect()
}

#[test]
fn a_read_that_fails_for_a_moment_takes_nothing_out_of_use() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let mut ended = 0;
        for at in 0.. {
            let devices = restore(&image);
            let (failing, count) = failing(&devices, at..at + 1, DeviceErrorKind::Io);
            for attempt in [planned, repaired] {
                match attempt(&failing) {
                    Ok(plan) => assert!(plan.is_empty(), "call {at}: {plan:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                        ended += 1;
                    }
                }
            }
            assert!(!is_in_lost(&take(&devices)), "call {at}");
            assert!(compare(&devices, &model, &RepairPlan::default()).is_empty());
            if count.load(Relaxed) <= at {
                break;
            }
        }
        assert!(ended > 20, "{ended}");
    }
}

/// Also where a piece is damaged: what is kept of it must have all that can be read.
#[test]
fn a_read_that_fails_in_the_middle_of_a_repair_loses_nothing_that_is_kept() {
    for preset in PRESETS {
        let (mut image, model) = fixture(preset);
        for kind in [".log", ".table", ".slab"] {
            for index in of_kind(&image, kind) {
                let bytes = &mut image[index].2;
                let at = 4096 + 30;
                if let Some(part) = bytes.get_mut(at..at + 40) {
                    part.fill(0xa5);
                }
            }
        }
        let devices = restore(&image);
        let plan = repair(&devices);
        let kept: Vec<_> =
            take(&devices).into_iter().filter(|(at, ..)| at.ends_with("lost")).collect();
        assert!(!kept.is_empty());
        for kind in [DeviceErrorKind::Io, DeviceErrorKind::TooManyOpenFiles] {
            for at in 0.. {
                let devices = restore(&image);
                let (failing, count) = failing(&devices, at..at + 2, kind);
                match repaired(&failing) {
                    Ok(done) => assert_eq!(lost(&done), lost(&plan), "call {at}"),
                    Err(_) => drop(repaired(&environment(Arc::new(devices.clone()))).unwrap()),
                }
                let after = take(&devices);
                let missing = kept.iter().filter(|file| !after.contains(file)).count();
                assert_eq!(missing, 0, "call {at}: {plan:?}");
                compare(&devices, &model, &plan);
                if count.load(Relaxed) <= at {
                    break;
                }
            }
        }
    }
}

/// A table is written anew from what is read of it once more, and its plan says what is lost.
#[test]
fn a_table_of_which_another_page_is_not_given_later_stays_as_it_is() {
    let devices = MemoryDevices::new();
    let db = environment(Arc::new(devices.clone()));
    let db = db.create(Path::new(HOME), &settings(Preset::Leveled)).unwrap();
    let (mut model, mut random) = (Model::new(), Random::new(7));
    for number in 0..400 {
        let mut value = vec![0; 300];
        random.fill(&mut value);
        let key = format!("key{number:04}");
        db.put(&key, &value).unwrap();
        model.insert(key, vec![Some(value)]);
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    db.close().unwrap();
    let image = take(&devices);
    let mut stayed = 0;
    for index in of_kind(&image, ".table") {
        let (_, name, bytes) = &image[index];
        let pages = pages(bytes);
        let [first, second, _, _, ..] = &pages[..] else { continue };
        let devices = restore(&image);
        // A piece is being kept: the look is over.
        let is_looked = Arc::new(AtomicBool::new(false));
        let (seen, name, pages) =
            (Arc::clone(&is_looked), name.clone(), [first.clone(), second.clone()]);
        let hook = move |call: Call, path: &Path, _: &str| {
            if call == Call::SyncDirectory && path.ends_with("lost") {
                is_looked.store(true, Relaxed);
            }
            Ok(())
        };
        let never_given = move |of: &str, read: Range<u64>| {
            let page = &pages[usize::from(seen.load(Relaxed))];
            of == name && read.start < page.end as u64 && (page.start as u64) < read.end
        };
        let hooked = HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook));
        let hooked = hooked.never_giving(Arc::new(never_given));
        let error = match repaired(&skipping(&environment(Arc::new(hooked)))) {
            Err(error) => error,
            Ok(plan) => {
                // A merge has replaced it, and it was not deleted yet.
                assert!(plan.is_empty(), "{plan:?}");
                continue;
            }
        };
        assert!(error.to_string().contains("could not be read as before"), "{error}");
        assert!(compare(&devices, &model, &RepairPlan::default()).is_empty());
        stayed += 1;
    }
    assert!(stayed > 0);
}

#[test]
fn a_read_that_fails_while_a_manifest_is_made_anew_costs_nothing() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let image = harmed(&image, Harm::Zeros);
        let expected = manifest::rebuild(&restore(&image)).unwrap();
        let mut ended = 0;
        for at in 0.. {
            let devices = restore(&image);
            let (failing, count) = failing(&devices, at..at + 1, DeviceErrorKind::Io);
            match failing.rebuild_manifest(Path::new(HOME), None, &mut |_| {}) {
                Ok(done) => {
                    assert_eq!(lost(&done), lost(&expected), "call {at}");
                    assert!(is_in_lost(&take(&devices)), "call {at}: the old one is not kept");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                    manifest::rebuild(&devices).unwrap();
                    ended += 1;
                }
            }
            manifest::compare(&devices, &model, None);
            if count.load(Relaxed) <= at {
                break;
            }
        }
        assert!(ended > 20, "{ended}");
    }
}

/// A page of each file in turn: the repair names it and ends, and goes on without it where it is
/// told to.
#[test]
fn a_page_that_is_never_given_ends_a_repair_that_is_not_told_to_skip_it() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let mut skipped = [0_usize; 3];
        for (kind, count) in [".log", ".table", ".slab"].into_iter().zip(&mut skipped) {
            for index in of_kind(&image, kind) {
                let (_, name, bytes) = &image[index];
                for page in pages(bytes) {
                    let devices = restore(&image);
                    let refusing = never_giving(&devices, name, page.clone());
                    let what = format!("{name} {page:?}");
                    match planned(&refusing) {
                        Ok(plan) => assert!(plan.is_empty(), "{what}: {plan:?}"),
                        Err(error) => {
                            let text = error.to_string();
                            let tells = [name, "never given", "`repair --skip-unreadable`"];
                            assert!(tells.iter().all(|it| text.contains(it)), "{text}");
                            assert_eq!(repaired(&refusing).unwrap_err().kind(), ErrorKind::Io);
                            *count += 1;
                        }
                    }
                    assert!(!is_in_lost(&take(&devices)), "{what}");
                    let told = planned(&skipping(&refusing)).unwrap();
                    let done = repaired(&skipping(&refusing)).unwrap();
                    assert_eq!(lost(&done), lost(&told), "{what}");
                    compare(&devices, &model, &done);
                    if kind != ".table" {
                        let noise = repair(&restore(&with_noise(&image, index, page)));
                        assert_eq!(lost(&done), lost(&noise), "{what}");
                    }
                }
            }
        }
        let least = usize::from(preset == Preset::Hybrid);
        assert!(skipped[..2].iter().all(|count| *count > 0) && skipped[2] >= least, "{skipped:?}");
    }
}

/// Pages of a file that have something, a few of them.
fn pages(bytes: &[u8]) -> Vec<Range<usize>> {
    let pages = (0..bytes.len()).step_by(PAGE).map(|at| at..(at + PAGE).min(bytes.len()));
    let pages: Vec<_> =
        pages.filter(|page| bytes[page.clone()].iter().any(|it| *it != 0)).collect();
    let step = pages.len() / 8 + 1;
    pages.into_iter().step_by(step).collect()
}

fn with_noise(image: &Image, index: usize, page: Range<usize>) -> Image {
    let mut image = image.clone();
    image[index].2[page].fill(0xa5);
    image
}

/// What is wrong with a file.
fn damage<'a>(plan: &'a RepairPlan, name: &str) -> Vec<&'a str> {
    let steps = plan.steps.iter().filter(|step| step.file == name);
    steps.map(|step| &step.damage[..]).collect()
}

/// All records.
fn shown(devices: &MemoryDevices) -> BTreeMap<String, Vec<u8>> {
    let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
    let records = db.scan().into_iter().map(|record| record.unwrap());
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).unwrap();
    records.map(|(key, value)| (text(&key), value.to_vec())).collect()
}

/// The same where the manifest is lost, too.
#[test]
fn a_page_that_is_never_given_costs_a_manifest_made_anew_what_damage_costs_it() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let image = harmed(&image, Harm::Zeros);
        let mut refused = 0;
        for kind in [".log", ".slab", ".manifest"] {
            for index in of_kind(&image, kind) {
                let (_, name, bytes) = &image[index];
                let pages = match kind {
                    ".manifest" => std::iter::once(0..bytes.len().min(PAGE)).collect(),
                    _ => pages(bytes),
                };
                for page in pages {
                    let devices = restore(&image);
                    let refusing = never_giving(&devices, name, page.clone());
                    let rebuilt = |environment: &Environment| {
                        environment.rebuild_manifest(Path::new(HOME), None, &mut |_| {})
                    };
                    let what = format!("{name} {page:?}");
                    if let Err(error) = rebuilt(&refusing) {
                        let text = error.to_string();
                        assert!(
                            text.contains(name) && text.contains("--skip-unreadable"),
                            "{text}"
                        );
                        assert!(!is_in_lost(&take(&devices)), "{what}");
                        refused += 1;
                    } else {
                        continue;
                    }
                    let done = rebuilt(&skipping(&refusing)).unwrap();
                    let noise = restore(&with_noise(&image, index, page.clone()));
                    let expected = manifest::rebuild(&noise).unwrap();
                    assert_eq!(lost(&done), lost(&expected), "{what}");
                    if kind == ".slab" && page.start > 0 {
                        // The same slots, and no others.
                        assert_eq!(damage(&done, name), damage(&expected, name));
                    }
                    let (shown, expected) = (shown(&devices), shown(&noise));
                    assert!(shown == expected, "{what}: not what there is beside damage");
                    for (key, values) in &model {
                        let found = shown.get(key).cloned();
                        assert!(found.is_none() || values.contains(&found), "{key}: {what}");
                    }
                }
            }
        }
        assert!(refused > 3, "{refused}");
    }
}
