//! Tables whose dictionary is damaged: one copy costs nothing, both cost what leans on them.

use crate::hooked::{Call, HookedDevices};
use crate::support::{
    HOME, Image, Model, compare, environment, of_kind, repair, restore, settings, take,
};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Compression, ErrorKind, Preset, Settings};
use thermocline_device::MemoryDevices;
use thermocline_foundation::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a dictionary begins with.
const MAGIC: [u8; 4] = 0xec30_a437_u32.to_le_bytes();

/// A closed database of some tables with a dictionary, from a bulk load and from a merge.
fn with_dictionaries() -> (Image, Model) {
    let devices = MemoryDevices::new();
    let settings = Settings {
        memory: ByteSize::mib(64),
        background_threads: 2,
        table_size: ByteSize::kib(64),
        block_size: ByteSize::kib(1),
        compression: vec![Compression::Zstd],
        dictionary_size: ByteSize(1024),
        ..settings(Preset::Leveled)
    };
    let db = environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings).unwrap();
    let mut model = Model::new();
    let record = |number: u32| {
        let hash = number.wrapping_mul(2_654_435_761);
        let (depth, salt) = (hash % 97, hash % 31);
        let value =
            format!("{{\"depth_m\":{depth},\"salt\":{salt},\"measured_by\":\"{hash:08x}\"}}");
        (format!("key{number:06}"), value)
    };
    let mut load = db.ingest();
    for number in 0..4000 {
        let (key, value) = record(number);
        load.add(&key, &value).unwrap();
        model.insert(key, vec![Some(value.into_bytes())]);
    }
    load.finish().unwrap();
    for number in 6000..10_000 {
        let (key, value) = record(number);
        db.put(&key, &value).unwrap();
        model.insert(key, vec![Some(value.into_bytes())]);
    }
    db.flush().unwrap();
    for key in model.keys() {
        assert!(db.get(key).unwrap().is_some());
    }
    let levels = db.stats().levels;
    let with: u64 = levels.iter().map(|level| level.dictionaries).sum();
    let saved: u64 = levels.iter().map(|level| level.dictionary_saved_bytes).sum();
    assert!(levels.len() == 2 && with >= 3 && saved > 0, "{levels:?}");
    db.close().unwrap();
    (take(&devices), model)
}

/// Where the copies of the table's dictionary begin; none where it has none.
fn copies(bytes: &[u8]) -> Vec<usize> {
    let starts = bytes.windows(4).enumerate().filter(|(_, window)| *window == MAGIC);
    starts.map(|(at, _)| at).collect()
}

#[test]
fn a_table_whose_dictionary_lost_one_copy_loses_no_record() {
    let (image, model) = with_dictionaries();
    let mut damaged = image.clone();
    let mut tables = 0;
    for index in of_kind(&image, ".table") {
        let bytes = &mut damaged[index].2;
        if let [first, second] = copies(bytes)[..] {
            let at = if tables % 2 == 0 { first } else { second };
            bytes[at + 8..at + 200].fill(0x5a);
            tables += 1;
        }
    }
    assert!(tables >= 3);
    let devices = restore(&damaged);
    let plan = repair(&devices);
    assert!(plan.loses_nothing() && plan.steps.len() == tables, "{plan:?}");
    assert!(compare(&devices, &model, &plan).is_empty());
}

#[test]
fn a_table_whose_dictionary_is_gone_loses_what_leans_on_it_and_no_more() {
    let (image, model) = with_dictionaries();
    let tables = of_kind(&image, ".table");
    let index = tables.into_iter().find(|index| copies(&image[*index].2).len() == 2).unwrap();
    let mut damaged = image.clone();
    for at in copies(&image[index].2) {
        damaged[index].2[at + 8..at + 200].fill(0x5a);
    }
    let devices = restore(&damaged);
    let plan = repair(&devices);
    assert!(!plan.loses_nothing(), "{plan:?}");
    let lost = compare(&devices, &model, &plan).len();
    assert!(lost > 100 && lost <= model.len() / 2, "{lost} of {}", model.len());
}

/// The image with a table whose dictionary is made of what is left of both copies; its name, and
/// where they lie.
fn with_mendable_dictionary(image: &Image, is_spliced: bool) -> (Image, String, [u64; 2]) {
    let tables = of_kind(image, ".table");
    let index = tables.into_iter().find(|index| copies(&image[*index].2).len() == 2).unwrap();
    let mut damaged = image.clone();
    let (_, name, bytes) = &mut damaged[index];
    let [first, second] = copies(bytes)[..] else { unreachable!("it has two") };
    match is_spliced {
        true => {
            bytes[first + 100..first + 120].fill(0x5a);
            bytes[second + 8..second + 40].fill(0x5a);
        }
        false => {
            bytes[first + 77] ^= 0x04;
            bytes[second + 8..second + 200].fill(0x5a);
        }
    }
    let name = name.clone();
    (damaged, name, [first as u64, second as u64])
}

#[test]
fn a_dictionary_that_is_not_given_for_a_moment_is_not_damaged() {
    let (image, model) = with_dictionaries();
    for is_spliced in [false, true] {
        let (damaged, name, places) = with_mendable_dictionary(&image, is_spliced);
        let mut ended = 0;
        for at in 0.. {
            let devices = restore(&damaged);
            let (count, name) = (Arc::new(AtomicU64::new(0)), name.clone());
            let counted = Arc::clone(&count);
            let fails = move |of: &str, read: Range<u64>| {
                let is_counted = of == name && places.iter().any(|place| read.contains(place));
                is_counted && counted.fetch_add(1, Relaxed) == at
            };
            let inner = Arc::new(devices.clone());
            let hooked = HookedDevices::new(inner, Arc::new(|_: Call, _: &Path, _: &str| Ok(())));
            let failing = environment(Arc::new(hooked.never_giving(Arc::new(fails))));
            let planned = failing.plan_repair(Path::new(HOME), None, &mut |_| {});
            if let Err(error) = &planned {
                assert_eq!(error.kind(), ErrorKind::Io, "read {at}: {error}");
                ended += 1;
            }
            assert!(planned.is_err() || planned.unwrap().loses_nothing(), "read {at}");
            let (is_last, plan) = (count.load(Relaxed) <= at, repair(&devices));
            assert!(plan.loses_nothing(), "read {at}: {plan:?}");
            assert!(compare(&devices, &model, &plan).is_empty(), "read {at}");
            if is_last {
                break;
            }
        }
        assert!(ended > 2, "{ended}");
    }
}
