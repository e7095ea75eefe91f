//! What could stand for the newest record of a key where a manifest was made anew: of logs that
//! were flushed, whole or damaged, in slots that are older than a bulk load, and in free slots of a
//! copy.

use crate::PRESETS;
use crate::hooked::{Call, HookedDevices};
use crate::manifest::{Harm, compare, harmed, planned_and_done, rebuild};
use crate::support::{
    HOME, Image, Model, environment, fixture, load, of_kind, put, repair, restore, settings, take,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use thermocline::{ByteSize, Db, ErrorKind, Lost, Preset, Settings};
use thermocline_device::{Devices, Error, MemoryDevices};
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of logs that were flushed the last ones are used again first. Those that still wait have what
/// was written before.
#[test]
fn a_log_that_was_flushed_hides_nothing_that_is_newer() {
    let mut waiting = 0;
    for (preset, rounds) in PRESETS.into_iter().flat_map(|preset| [(preset, 3), (preset, 5)]) {
        let devices = MemoryDevices::new();
        let settings = Settings { memory: ByteSize::mib(1), ..settings(preset) };
        let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings);
        let (db, mut model) = (db.unwrap(), Model::new());
        // More than a memtable has room for.
        (1..=rounds).for_each(|round| put(&db, &mut model, 0..600, round));
        db.flush().unwrap();
        db.settle().unwrap();
        let image = take(&devices);
        drop(db);
        let has_records = |log: &usize| image[*log].2.windows(10).any(|part| part == b"1-50;1-50;");
        waiting += of_kind(&image, ".log").iter().filter(|log| has_records(log)).count();
        let devices = restore(&harmed(&image, Harm::Zeros));
        let plan = planned_and_done(&devices);
        assert_eq!(compare(&devices, &model, Some(&plan)), 0);
    }
    assert!(waiting > 0, "no log is left of the first writes");
}

/// A log that was flushed waits to be used again, and a rebuild begins with it. Where it is
/// damaged, in its header or in the middle, the log behind it counts all the same, and what is left
/// of it hides nothing that is newer.
#[test]
fn damage_of_a_log_that_was_flushed_costs_nothing_of_the_one_behind_it() {
    let places = |preset| [(preset, 0xa5, false), (preset, 0xa5, true), (preset, 0, false)];
    for (preset, byte, is_header) in PRESETS.into_iter().flat_map(places) {
        let devices = MemoryDevices::new();
        let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings(preset));
        let (db, mut model) = (db.unwrap(), Model::new());
        put(&db, &mut model, 0..100, 1);
        put(&db, &mut model, 0..100, 2);
        db.flush().unwrap();
        put(&db, &mut model, 0..50, 3);
        put(&db, &mut model, 100..120, 3);
        let mut image = take(&devices);
        drop(db);
        let (log, at) = log_with(&image, "2-50;2-50;").unwrap();
        // A sector that is lost in the middle may have become zeros.
        let at = if is_header { 0 } else { at.next_multiple_of(512) };
        image[log].2[at..at + 512].fill(byte);
        let devices = restore(&harmed(&image, Harm::Zeros));
        let plan = planned_and_done(&devices);
        let mut of_log = plan.steps.iter().filter(|step| step.file == image[log].1);
        let step = of_log.next().unwrap();
        assert!(step.lost == [Lost::UnknownRecords] && step.kept_as.is_some(), "{step:?}");
        assert!(repair(&devices).is_empty());
        for is_merged in [false, true] {
            let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
            if is_merged {
                db.compact_range(None, None, &mut |_| {}).unwrap();
            }
            db.close().unwrap();
            assert_eq!(compare(&devices, &model, Some(&plan)), 0);
        }
    }
}

/// The log whose records are nowhere else is damaged: what is intact behind the damage counts.
#[test]
fn of_a_log_that_is_damaged_each_intact_record_counts() {
    for preset in PRESETS {
        let devices = MemoryDevices::new();
        let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings(preset));
        let (db, mut model) = (db.unwrap(), Model::new());
        put(&db, &mut model, 0..200, 1);
        db.flush().unwrap();
        put(&db, &mut model, 0..200, 2);
        let mut image = take(&devices);
        drop(db);
        let (log, at) = log_with(&image, "2-50;2-50;").unwrap();
        image[log].2[at..at + 600].fill(0xa5);
        let devices = restore(&harmed(&image, Harm::Zeros));
        let plan = planned_and_done(&devices);
        assert!(plan.steps.iter().any(|step| step.file == image[log].1), "{plan:?}");
        let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
        let mut older = Vec::new();
        for (key, values) in &model {
            let found = db.get(key).unwrap().map(|value| value.to_vec());
            assert!(values.contains(&found), "{key} is gone");
            if values.last() != Some(&found) {
                older.push(key.clone());
            }
        }
        db.close().unwrap();
        // Those of a page or two.
        assert!((1..80).contains(&older.len()), "{older:?}");
        assert!(older.iter().all(|key| "key0020" < &key[..] && &key[..] < "key0120"), "{older:?}");
    }
}

/// The log and the place in it of the first record with `text`.
fn log_with(image: &Image, text: &str) -> Option<(usize, usize)> {
    let place = |bytes: &[u8]| bytes.windows(text.len()).position(|part| part == text.as_bytes());
    let logs = of_kind(image, ".log");
    logs.into_iter().find_map(|log| Some((log, place(&image[log].2)?)))
}

/// A device that does not give a log for a moment says nothing of what it has.
#[test]
fn a_read_of_a_log_that_fails_ends_the_rebuild_which_is_tried_again() {
    for preset in PRESETS {
        let (image, model) = fixture(preset);
        let image = harmed(&image, Harm::Zeros);
        let (mut failed, mut reads) = (0, 0);
        for failing in 0.. {
            let devices = restore(&image);
            let count = Arc::new(AtomicU64::new(0));
            let counted = Arc::clone(&count);
            let hook = move |call: Call, _: &Path, name: &str| {
                let is_of_log = call == Call::Read && name.ends_with(".log");
                if is_of_log && counted.fetch_add(1, Relaxed) == failing {
                    return Err(Error::new(thermocline_device::ErrorKind::Io, "for a moment"));
                }
                Ok(())
            };
            let hooked = HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook));
            let rebuilt =
                environment(Arc::new(hooked)).rebuild_manifest(Path::new(HOME), None, &mut |_| {});
            if let Err(error) = rebuilt {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                failed += 1;
                rebuild(&devices).unwrap();
            }
            assert!(repair(&devices).is_empty());
            compare(&devices, &model, None);
            if count.load(Relaxed) <= failing {
                break;
            }
            reads += 1;
        }
        assert!(failed > 0 && reads > failed, "{failed} of {reads}");
    }
}

/// Where the log that has the sequence of a load is damaged, that of a later load is not its own:
/// it would hide what was written between them.
#[test]
fn a_bulk_load_does_not_get_the_sequence_of_a_later_one() {
    let mut judged = 0;
    for (preset, rounds) in PRESETS.into_iter().flat_map(|preset| [(preset, 3), (preset, 5)]) {
        let devices = MemoryDevices::new();
        let settings = Settings { memory: ByteSize::mib(1), ..settings(preset) };
        let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings);
        let (db, mut model) = (db.unwrap(), Model::new());
        // More than a memtable has room for: some logs wait to be used again.
        (1..=rounds).for_each(|round| put(&db, &mut model, 0..600, round));
        load(&db, &mut model, 10..20);
        put(&db, &mut model, 15..18, 9);
        load(&db, &mut model, 700..710);
        put(&db, &mut model, 800..803, 3);
        let mut image = take(&devices);
        drop(db);
        let (first, of_load) = (log_with(&image, "1-50;1-50;"), log_with(&image, "9-15;9-15;"));
        let (Some(_), Some((log, _))) = (first, of_load) else { continue };
        judged += 1;
        image[log].2[4096..4096 + 600].fill(0xa5);
        let devices = restore(&harmed(&image, Harm::Zeros));
        let plan = planned_and_done(&devices);
        assert_eq!(compare(&devices, &model, Some(&plan)), 0, "{preset:?}");
    }
    assert!(judged > 0, "the logs are in use again");
}

/// Slots that were written long before a load have larger sequences than all tables, and the log
/// that tells when the load was is in use again.
#[test]
fn a_bulk_load_stays_newer_than_slots_that_were_never_demoted() {
    for preset in PRESETS {
        let devices = MemoryDevices::new();
        let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings(preset));
        let (db, mut model) = (db.unwrap(), Model::new());
        put(&db, &mut model, 0..200, 1);
        db.flush().unwrap();
        load(&db, &mut model, 50..150);
        for round in 2..10 {
            put(&db, &mut model, 140..220, round);
            db.flush().unwrap();
        }
        let image = take(&devices);
        drop(db);
        let slabs = of_kind(&image, ".slab").len();
        assert_eq!(slabs > 0, preset == Preset::Hybrid, "{slabs} slabs");
        let devices = restore(&harmed(&image, Harm::Zeros));
        let plan = planned_and_done(&devices);
        assert_eq!(compare(&devices, &model, Some(&plan)), 0);
    }
}

/// While slabs are copied, later records go to slots that were free at the moment of the copy.
#[test]
fn a_copy_of_a_database_that_was_written_meanwhile_has_no_record_of_later() {
    let devices = MemoryDevices::new();
    // Writes when the first slab is copied; none before and after.
    let writer: Arc<Mutex<Option<Db>>> = Arc::default();
    let taken = Arc::clone(&writer);
    let hook = move |call: Call, path: &Path, name: &str| {
        let is_copied =
            call == Call::Create && path.starts_with("/copy") && name.ends_with(".slab");
        if is_copied && let Some(db) = taken.lock().unwrap().take() {
            put(&db, &mut Model::new(), 0..200, 9);
            db.flush().unwrap();
        }
        Ok(())
    };
    let hooked = HookedDevices::new(Arc::new(devices.clone()), Arc::new(hook));
    let hooked = environment(Arc::new(hooked));
    let db = hooked.create(Path::new(HOME), &settings(Preset::Hybrid)).unwrap();
    let mut model = Model::new();
    for round in 1..4 {
        put(&db, &mut model, 0..200, round);
        db.flush().unwrap();
    }
    let sequence = db.stats().sequence;
    *writer.lock().unwrap() = Some(db.clone());
    db.checkpoint("/copy").unwrap();
    assert!(writer.lock().unwrap().is_none() && db.stats().sequence == sequence + 200);
    db.close().unwrap();
    let tier = devices.home(Path::new("/copy/tier-0")).unwrap();
    let names = tier.list().unwrap().into_iter().map(|entry| entry.name);
    let manifests: Vec<_> = names.filter(|name| name.ends_with(".manifest")).collect();
    assert_eq!(manifests.len(), 1);
    tier.delete(&manifests[0]).unwrap();
    let copies = environment(Arc::new(devices.clone()));
    copies.rebuild_manifest(Path::new("/copy"), None, &mut |_| {}).unwrap();
    let copy = copies.open(Path::new("/copy")).unwrap();
    assert!(copy.verify(&mut |_| {}).unwrap().is_ok());
    for (key, values) in &model {
        let found = copy.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(Some(&found), values.last(), "{key} has what it had later");
    }
    copy.close().unwrap();
}

/// Slots that a crash has torn are common, and slabs are large.
#[test]
fn of_a_slab_with_broken_slots_these_alone_are_kept() {
    let (image, _) = fixture(Preset::Hybrid);
    for slab in of_kind(&image, ".slab") {
        let mut damaged = image.clone();
        let (_, name, bytes) = &mut damaged[slab];
        let len = bytes.len();
        for at in [4096 + 40, len / 2, len / 2 + 40] {
            bytes[at..at + 30].fill(0xa5);
        }
        let (name, bytes) = (name.clone(), bytes.clone());
        let devices = restore(&harmed(&damaged, Harm::Zeros));
        let plan = planned_and_done(&devices);
        let left = take(&devices);
        let (mut kept, mut covered) = (0, 0);
        for step in plan.steps.iter().filter(|step| step.file == name) {
            let place = step.kept_as.as_ref().unwrap();
            let (.., piece) = left.iter().find(|(at, name, _)| at.join(name) == *place).unwrap();
            let at = place.extension().unwrap().to_str().unwrap().parse::<usize>().unwrap();
            assert!(bytes[at..at + piece.len()] == piece[..], "{place:?}");
            covered += bytes[at..at + piece.len()].iter().filter(|byte| **byte == 0xa5).count();
            kept += piece.len();
        }
        assert!(covered >= 90 && kept * 4 < len, "{covered} {kept} of {len}: {plan:?}");
    }
}
