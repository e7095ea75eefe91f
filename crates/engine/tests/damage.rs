//! Damage costs what is damaged: the rest is read, what is damaged is an error that says where, and
//! no older version ever stands for a newer one that cannot be read.
#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Compression, Db, Environment, ErrorKind, HybridSettings, Preset, Settings, Stepper,
    Tier, Workers,
};
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation};

const TIERS: [&str; 2] = ["/fast", "/slow"];
const HOME: &str = "/home";

type Model = BTreeMap<String, Vec<u8>>;
/// Directory, name and bytes of each file.
type Image = Vec<(PathBuf, String, Vec<u8>)>;

fn environment(devices: MemoryDevices) -> Environment {
    Environment {
        devices: Arc::new(devices),
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        ..Environment::default()
    }
}

fn settings() -> Settings {
    let record_compression = Compression::None;
    Settings {
        preset: Some(Preset::Hybrid),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: TIERS.map(|path| Tier::new(path, ByteSize::mib(64)).driver("memory")).to_vec(),
        memory: ByteSize::mib(8),
        ..Settings::default()
    }
}

fn take(devices: &MemoryDevices) -> Image {
    let mut image = Vec::new();
    for path in TIERS.iter().chain([&HOME]).map(PathBuf::from) {
        let driver = devices.home(&path).unwrap();
        for entry in driver.list().unwrap() {
            let file = driver.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(entry.len as usize);
            let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
            image.push((path.clone(), entry.name, read.buffer.to_vec()));
        }
    }
    image
}

fn restore(image: &Image) -> MemoryDevices {
    let devices = MemoryDevices::new();
    for path in TIERS.iter().chain([&HOME]) {
        devices.create_directory(Path::new(path)).unwrap();
    }
    for (path, name, bytes) in image {
        let driver = devices.home(path).unwrap();
        let file = driver.create(name).unwrap();
        let buffer = Buffer::copy_of(bytes);
        driver
            .execute(&file, Operation::Write { offset: 0, buffer, durable: false })
            .result
            .unwrap();
    }
    devices
}

fn put(db: &Db, model: &mut Model, keys: impl Iterator<Item = u32>, round: u32) {
    for number in keys {
        let (key, value) = (format!("key{number:04}"), format!("{round}-{number};").repeat(20));
        db.put(&key, &value).unwrap();
        model.insert(key, value.into_bytes());
    }
}

/// A closed database: 300 keys in tables, of which every third has a newer version in a slot, 30
/// more in slots alone, and 20 of these with a newer one in the log.
fn fixture() -> (Image, Model) {
    let devices = MemoryDevices::new();
    let db = environment(devices.clone()).create(Path::new(HOME), &settings()).unwrap();
    let mut model = Model::new();
    put(&db, &mut model, 0..300, 1);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    put(&db, &mut model, (0..300).step_by(3), 2);
    put(&db, &mut model, 300..330, 2);
    db.flush().unwrap();
    put(&db, &mut model, 310..330, 3);
    db.close().unwrap();
    (take(&devices), model)
}

fn open(image: &Image) -> Db {
    environment(restore(image)).open(Path::new(HOME)).unwrap()
}

/// Files of a kind, by index.
fn of_kind(image: &Image, end: &str) -> Vec<usize> {
    let ends = |index: &usize| image[*index].1.ends_with(end) && image[*index].2.len() > 4096;
    (0..image.len()).filter(ends).collect()
}

/// Where the value of a record lies: file, and offset of its slot.
fn slot_of(image: &Image, key: &str, value: &[u8]) -> (usize, usize) {
    let record = [key.as_bytes(), value].concat();
    let found = of_kind(image, ".slab").into_iter().find_map(|index| {
        let at = image[index].2.windows(record.len()).position(|bytes| bytes == record)?;
        Some((index, at - 20))
    });
    found.unwrap_or_else(|| panic!("no slab has {key}"))
}

/// Every answer is right or an error; the keys of which it is an error.
fn unanswered(db: &Db, model: &Model) -> Vec<String> {
    let snapshot = db.snapshot();
    let mut failed = Vec::new();
    for (key, value) in model {
        let answers = [
            db.get(key),
            snapshot.get(key),
            db.multi_get(&[key]).map(|mut all| all.pop().unwrap()),
        ];
        let errors = answers.iter().filter(|answer| answer.is_err()).count();
        for answer in answers {
            match answer {
                Ok(found) => assert!(found.as_deref() == Some(&value[..]), "{key}: {found:?}"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{key}: {error}"),
            }
        }
        assert!(errors == 0 || errors == 3, "{key}: {errors} of three ways to ask fail");
        failed.extend((errors == 3).then(|| key.clone()));
    }
    failed
}

/// What a scan shows, right or not at all, and its errors.
fn scanned(db: &Db, model: &Model, reverse: bool) -> (Vec<String>, Vec<String>) {
    let (mut keys, mut errors) = (Vec::new(), Vec::new());
    let scan = if reverse { db.scan().reverse() } else { db.scan() };
    for record in scan {
        match record {
            Ok((key, value)) => {
                let key = String::from_utf8(key.to_vec()).unwrap();
                assert!(model.get(&key).is_some_and(|right| value == right[..]), "{key}");
                keys.push(key);
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    if reverse {
        keys.reverse();
    }
    (keys, errors)
}

#[test]
fn a_flipped_bit_of_a_slot_costs_one_record_which_is_named() {
    let (image, model) = fixture();
    assert_eq!(unanswered(&open(&image), &model), [""; 0]);
    for (key, bit) in [("key0003", 3), ("key0003", 21 * 8), ("key0150", 400), ("key0305", 39)] {
        let (index, at) = slot_of(&image, key, &model[key]);
        let mut damaged = image.clone();
        damaged[index].2[at + bit / 8] ^= 1 << (bit % 8);
        let db = open(&damaged);
        assert_eq!(unanswered(&db, &model), [key], "bit {bit}");
        assert_eq!(db.get("key9999").unwrap(), None, "what is nowhere is still known to be");
        let name = &image[index].1;
        let verified = db.verify(&mut |_| {}).unwrap().problems;
        let [problem] = &verified[..] else { panic!("{verified:?}") };
        let asked = db.get(key).unwrap_err().to_string();
        for text in [asked, problem.text.clone()] {
            for part in [key, name, "tier 0", &format!("offset {at}")] {
                assert!(text.contains(part), "{text} lacks {part}");
            }
        }
        for reverse in [false, true] {
            let (keys, errors) = scanned(&db, &model, reverse);
            let others: Vec<_> = model.keys().filter(|other| *other != key).cloned().collect();
            assert_eq!(keys, others, "reverse {reverse}");
            assert!(errors.len() == 1 && errors[0].contains(key), "{errors:?}");
        }
        let error = db.put("new", "value").unwrap_err();
        assert!(error.kind() == ErrorKind::ReadOnly && error.to_string().contains(name), "{error}");
        assert!(db.stats().read_only.is_some());
    }
}

#[test]
fn a_scan_that_begins_or_ends_beside_a_damaged_record_does_not_meet_it() {
    let (image, model) = fixture();
    let (index, at) = slot_of(&image, "key0150", &model["key0150"]);
    let mut damaged = image.clone();
    damaged[index].2[at + 30] ^= 1;
    let db = open(&damaged);
    let count = |from: &str, to: &str, reverse: bool| {
        use std::ops::Bound::Excluded;
        let range = (Excluded(from.as_bytes().to_vec()), Excluded(to.as_bytes().to_vec()));
        let scan = db.scan().range(range);
        let scan = if reverse { scan.reverse() } else { scan };
        let found: Vec<_> = scan.into_iter().collect();
        (found.iter().filter(|found| found.is_ok()).count(), found.len())
    };
    for reverse in [false, true] {
        assert_eq!(count("key0150", "key0160", reverse), (9, 9), "{reverse}");
        assert_eq!(count("key0140", "key0150", reverse), (9, 9), "{reverse}");
        assert_eq!(count("key0140", "key0160", reverse), (18, 19), "{reverse}");
    }
}

#[test]
fn what_an_opening_of_a_damaged_store_leaves_is_what_it_found() {
    let (image, model) = fixture();
    let (index, at) = slot_of(&image, "key0003", &model["key0003"]);
    let mut damaged = image.clone();
    damaged[index].2[at + 30] ^= 1;
    let devices = restore(&damaged);
    for _ in 0..3 {
        let db = environment(devices.clone()).open(Path::new(HOME)).unwrap();
        assert_eq!(unanswered(&db, &model), ["key0003"]);
        db.close().unwrap();
    }
    let mut after = take(&devices);
    let (path, name, _) = image[index].clone();
    let slab = after.iter_mut().find(|file| (&file.0, &file.1) == (&path, &name)).unwrap();
    slab.2[at + 30] ^= 1;
    let db = open(&after);
    assert_eq!(unanswered(&db, &model), [""; 0], "the bit is as it was");
    db.put("new", "value").unwrap();
}

#[test]
fn an_opening_for_reading_only_answers_the_same_and_writes_nothing() {
    let (image, model) = fixture();
    let (index, at) = slot_of(&image, "key0003", &model["key0003"]);
    let mut damaged = image;
    damaged[index].2[at + 30] ^= 1;
    let devices = restore(&damaged);
    let before = take(&devices);
    let db = environment(devices.clone()).open_read_only(Path::new(HOME)).unwrap();
    assert_eq!(unanswered(&db, &model), ["key0003"]);
    db.close().unwrap();
    assert!(take(&devices) == before, "a file has changed");
}

#[test]
fn a_slot_of_an_unknown_key_leaves_no_answer_that_may_be_older() {
    let (image, model) = fixture();
    let kept = |db: &Db| model.len() - unanswered(db, &model).len();
    for key in ["key0000", "key0150", "key0309"] {
        let (index, at) = slot_of(&image, key, &model[key]);
        let mut damaged = image.clone();
        damaged[index].2[at..at + 40].fill(0);
        let db = open(&damaged);
        let failed = unanswered(&db, &model);
        assert!(failed.contains(&key.to_owned()), "{failed:?}");
        // Tables may have an older version; no slot has one, and the log has newer ones.
        assert_eq!(kept(&db), 100 + 30 - 1);
        assert!(db.get("key9999").is_err(), "it may be the one");
        let (keys, errors) = scanned(&db, &model, false);
        assert!(keys.is_empty() && errors.len() == 1, "{errors:?}");
        let problems = db.verify(&mut |_| {}).unwrap().problems;
        assert!(problems.iter().any(|problem| problem.text.contains(&format!("offset {at}"))));
    }
}

/// A page of slots: nothing tells which records they had.
#[test]
fn a_page_of_zeros_leaves_the_slots_of_other_slabs_and_the_log() {
    let devices = MemoryDevices::new();
    let db = environment(devices.clone()).create(Path::new(HOME), &settings()).unwrap();
    let mut model = Model::new();
    for number in 0..200 {
        let (key, value) = (format!("key{number:04}"), vec![7; 100 + number % 7 * 500]);
        db.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    db.flush().unwrap();
    put(&db, &mut model, 0..10, 3);
    db.close().unwrap();
    let image = take(&devices);
    let slabs = of_kind(&image, ".slab");
    assert!(slabs.len() > 3, "{slabs:?}");
    for index in slabs {
        let mut damaged = image.clone();
        damaged[index].2[4096..8192].fill(0);
        let db = open(&damaged);
        let failed = unanswered(&db, &model);
        assert!(!failed.is_empty() && failed.len() < 100, "{failed:?}");
        assert!(db.get("key9999").is_err());
        assert!(!db.verify(&mut |_| {}).unwrap().problems.is_empty());
    }
}

/// A snapshot keeps an older version in a slot, and the newer one is lost: the older one is not
/// given out. Nor is any other then, for it could be older as well.
#[test]
fn an_older_version_that_a_snapshot_kept_does_not_stand_for_a_lost_one() {
    for kept in [false, true] {
        let devices = MemoryDevices::new();
        let db = environment(devices.clone()).create(Path::new(HOME), &settings()).unwrap();
        let mut model = Model::new();
        put(&db, &mut model, 0..20, 1);
        db.flush().unwrap();
        let snapshot = kept.then(|| db.snapshot());
        put(&db, &mut model, 5..7, 2);
        db.flush().unwrap();
        drop(snapshot);
        db.close().unwrap();
        let image = take(&devices);
        let (index, at) = slot_of(&image, "key0005", &model["key0005"]);
        let mut damaged = image.clone();
        damaged[index].2[at..at + 40].fill(0);
        let devices = restore(&damaged);
        for _ in 0..2 {
            let db = environment(devices.clone()).open(Path::new(HOME)).unwrap();
            let failed = unanswered(&db, &model);
            // That of the key 6 is newer than what is lost.
            assert_eq!(failed.len(), if kept { 19 } else { 1 }, "{failed:?}");
            db.close().unwrap();
        }
    }
}

#[test]
fn a_damaged_header_page_of_a_slab_costs_nothing() {
    let (image, model) = fixture();
    for index in of_kind(&image, ".slab") {
        let mut damaged = image.clone();
        damaged[index].2[100] ^= 1;
        let devices = restore(&damaged);
        let db = environment(devices.clone()).open(Path::new(HOME)).unwrap();
        assert_eq!(unanswered(&db, &model), [""; 0]);
        let problems = db.verify(&mut |_| {}).unwrap().problems;
        assert!(problems.len() == 1 && problems[0].file == image[index].1, "{problems:?}");
        let mut written = model.clone();
        put(&db, &mut written, 0..10, 4);
        db.flush().unwrap();
        db.close().unwrap();
        let db = environment(devices).open(Path::new(HOME)).unwrap();
        assert_eq!(unanswered(&db, &written), [""; 0]);
    }
}

/// Of each kind of file but the two that say which database and which tier this is.
#[test]
fn a_flipped_bit_of_any_file_leaves_nearly_everything_readable_and_is_reported() {
    let (image, model) = fixture();
    let kinds = [".slab", ".table", ".log", ".map", ".manifest"];
    let mut reported = BTreeMap::new();
    for (index, (_, name, bytes)) in image.iter().enumerate() {
        let Some(kind) = kinds.into_iter().find(|kind| name.ends_with(kind)) else { continue };
        // Where something is written, and a few places where nothing is.
        let written: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let places = written.iter().copied().step_by(written.len() / 60 + 1);
        for at in places.chain((0..bytes.len()).step_by(bytes.len() / 5 + 1)) {
            let mut damaged = image.clone();
            damaged[index].2[at] ^= 1 << (at % 8);
            let what = format!("bit {} of byte {at} of {name}", at % 8);
            let opened = environment(restore(&damaged)).open(Path::new(HOME));
            let db = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
            let failed = unanswered(&db, &model).len();
            // A block of a table, or all that a page of its index leads to.
            let most = if kind == ".table" { 300 } else { 1 };
            assert!(failed <= most, "{what}: {failed} keys");
            let problems = db.verify(&mut |_| {}).unwrap().problems;
            assert!(failed == 0 || !problems.is_empty(), "{what}: nothing is reported");
            *reported.entry(kind).or_insert(0) += usize::from(!problems.is_empty());
        }
    }
    for kind in kinds {
        let count = reported.get(kind).copied().unwrap_or(0);
        assert!(count > 10, "{kind}: {reported:?}");
    }
}
