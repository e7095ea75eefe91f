//! Tables whose dictionary is damaged: one copy costs nothing, both cost what leans on them.

use crate::support::{
    HOME, Image, Model, compare, environment, of_kind, repair, restore, settings, take,
};
use std::path::Path;
use std::sync::Arc;
use thermocline::{ByteSize, Compression, Preset, Settings};
use thermocline_device::MemoryDevices;

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
