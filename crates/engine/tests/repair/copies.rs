//! Copies on the fast tier of records that tables have lost.

use crate::support::{
    HOME, Image, Model, compare, environment, of_kind, repair, restore, settings, take,
};
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Db, Lost, Preset, RepairPlan, Settings};
use thermocline_device::MemoryDevices;

/// A database with copies of some hundred records on the fast tier.
fn with_copies(devices: &MemoryDevices) -> (Db, Model) {
    let hybrid = Settings { memory: ByteSize::mib(2), ..settings(Preset::Hybrid) };
    let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &hybrid).unwrap();
    let mut model = Model::new();
    // More than memory has room for: the copies of others get slots.
    for number in 0..2_000 {
        let (key, value) = (format!("key{number:04}"), vec![number as u8; 1_500]);
        db.put(&key, &value).unwrap();
        model.insert(key, vec![Some(value)]);
    }
    db.compact_range(None, None, &mut |_| {}).unwrap();
    for _ in 0..8 {
        (0..1_900).for_each(|key| assert!(db.get(format!("key{key:04}")).unwrap().is_some()));
        db.settle().unwrap();
    }
    let fast = db.stats().fast_tier.unwrap();
    assert!(fast.clean_records > 100, "{fast:?}");
    (db, model)
}

fn copied(plan: &RepairPlan) -> u64 {
    plan.steps.iter().flat_map(|step| &step.lost).fold(0, |sum, lost| {
        let Lost::Keys { copied, .. } = lost else { panic!("{lost:?}") };
        sum + copied
    })
}

/// The image with a bit of a table flipped, at places all over the data of each.
fn with_damaged_tables(image: &Image) -> impl Iterator<Item = MemoryDevices> {
    let places = of_kind(image, ".table").into_iter().flat_map(|index| {
        let len = image[index].2.len();
        (100..len * 3 / 4).step_by(len / 40).map(move |at| (index, at))
    });
    places.map(|(index, at)| {
        let mut damaged = image.clone();
        damaged[index].2[at] ^= 1;
        restore(&damaged)
    })
}

/// A copy in a slot says that tables have its record too, so it may be dropped without a trace.
/// Where they have lost it, the copy becomes the record.
#[test]
fn a_copy_stands_for_the_record_that_its_table_has_lost() {
    let devices = MemoryDevices::new();
    let (db, model) = with_copies(&devices);
    db.close().unwrap();
    let image = take(&devices);
    let mut with_copies = 0;
    for devices in with_damaged_tables(&image) {
        let plan = repair(&devices);
        let copied = copied(&plan);
        let older = compare(&devices, &model, &plan).len() as u64;
        let lost = plan.steps.iter().flat_map(|step| &step.lost).map(|lost| {
            let Lost::Keys { after, until, .. } = lost else { return 0 };
            let keys = model.keys().map(|key| key.as_bytes());
            let is_lost = |key: &&[u8]| {
                after.as_ref().is_none_or(|after| *key > &after[..]) && *key <= &until[..]
            };
            keys.filter(is_lost).count() as u64
        });
        assert_eq!(older + copied, lost.sum::<u64>(), "{plan:?}");
        // What was a copy is the one record now, and stays when the fast tier is emptied.
        let db = environment(Arc::new(devices.clone())).open(Path::new(HOME)).unwrap();
        db.compact_range(None, None, &mut |_| {}).unwrap();
        db.close().unwrap();
        assert_eq!(compare(&devices, &model, &plan).len() as u64, older);
        with_copies += u64::from(copied > 0);
    }
    assert!(with_copies > 2, "{with_copies} damages with copies");
}

/// The process was killed, and what it wrote last is torn. What follows such a log does not count,
/// so the copies must not.
#[test]
fn copies_are_found_although_the_log_ends_in_a_torn_write() {
    let devices = MemoryDevices::new();
    let (db, mut model) = with_copies(&devices);
    db.put("log one", vec![1; 5_000]).unwrap();
    model.insert("log one".to_owned(), vec![Some(vec![1; 5_000])]);
    db.put("log two", vec![2; 5_000]).unwrap();
    let mut image = take(&devices);
    drop(db);
    let place = |bytes: &[u8]| bytes.windows(7).position(|part| part == b"log two");
    let logs = of_kind(&image, ".log").into_iter();
    let (log, at) = logs.filter_map(|log| Some((log, place(&image[log].2)?))).next().unwrap();
    let page = (at / 4096 + 1) * 4096;
    image[log].2[page..page + 4096].fill(0);
    let mut with_copies = 0;
    for devices in with_damaged_tables(&image) {
        let plan = repair(&devices);
        compare(&devices, &model, &plan);
        with_copies += u64::from(copied(&plan) > 0);
    }
    assert!(with_copies > 1, "{with_copies} damages with copies");
}
