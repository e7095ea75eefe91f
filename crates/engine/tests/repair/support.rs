//! Databases as files in memory: taken, damaged, put back, repaired and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::{
    ByteSize, Compression, Db, Environment, HybridSettings, Lost, Preset, RepairPlan, Settings,
    Stepper, Tier, Workers,
};
use thermocline_device::{Buffer, Devices, MemoryDevices, Operation};

pub const HOME: &str = "/home";
const DIRECTORIES: [&str; 5] = ["/home", "/fast", "/slow", "/fast/lost", "/slow/lost"];

/// All values that a key has had, the newest last; none where it was deleted.
pub type Model = BTreeMap<String, Vec<Option<Vec<u8>>>>;
/// Directory, name and bytes of each file.
pub type Image = Vec<(PathBuf, String, Vec<u8>)>;

pub fn environment(devices: Arc<dyn Devices>) -> Environment {
    let workers = Workers::Stepped(Arc::new(Stepper::new(1)));
    Environment { devices, workers, ..Environment::default() }
}

pub fn settings(preset: Preset) -> Settings {
    let record_compression = Compression::None;
    let tier = |path, mib| Tier::new(path, ByteSize::mib(mib)).driver("memory");
    Settings {
        preset: Some(preset),
        hybrid: HybridSettings { record_compression, ..HybridSettings::default() },
        tiers: vec![tier("/fast", 16), tier("/slow", 64)],
        memory: ByteSize::mib(8),
        ..Settings::default()
    }
}

pub fn take(devices: &dyn Devices) -> Image {
    let mut image = Vec::new();
    for path in DIRECTORIES.map(PathBuf::from) {
        let Ok(driver) = devices.home(&path) else { continue };
        for entry in driver.list().unwrap() {
            let file = driver.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed((entry.len as usize).next_multiple_of(4096));
            let read = driver.execute(&file, Operation::Read { offset: 0, buffer });
            image.push((path.clone(), entry.name, read.buffer[..entry.len as usize].to_vec()));
        }
    }
    image
}

pub fn restore(image: &Image) -> MemoryDevices {
    let devices = MemoryDevices::new();
    restore_on(&devices, image);
    devices
}

/// Puts the files there, durably.
pub fn restore_on(devices: &dyn Devices, image: &Image) {
    for path in &DIRECTORIES[..3] {
        devices.create_directory(Path::new(path)).unwrap();
    }
    for (path, name, bytes) in image {
        devices.create_directory(path).unwrap();
        let driver = devices.home(path).unwrap();
        let file = driver.create(name).unwrap();
        // Whole pages, as drivers want them.
        let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(4096));
        buffer[..bytes.len()].copy_from_slice(bytes);
        let write = Operation::Write { offset: 0, buffer, durable: false };
        driver.execute(&file, write).result.unwrap();
        file.truncate(bytes.len() as u64).unwrap();
        driver.execute(&file, Operation::Sync).result.unwrap();
        driver.sync_directory().unwrap();
    }
}

pub fn put(db: &Db, model: &mut Model, keys: impl Iterator<Item = u32>, round: u32) {
    for number in keys {
        let (key, value) = (format!("key{number:04}"), format!("{round}-{number};").repeat(20));
        db.put(&key, &value).unwrap();
        model.entry(key).or_default().push(Some(value.into_bytes()));
    }
}

/// A bulk load of the keys `numbers`, which ascend.
pub fn load(db: &Db, model: &mut Model, numbers: impl Iterator<Item = u32>) {
    let mut load = db.ingest();
    for number in numbers {
        let (key, value) = (format!("key{number:04}"), format!("loaded {number}"));
        load.add(&key, &value).unwrap();
        model.entry(key).or_default().push(Some(value.into_bytes()));
    }
    load.finish().unwrap();
}

fn delete(db: &Db, model: &mut Model, keys: impl Iterator<Item = u32>) {
    for number in keys {
        let key = format!("key{number:04}");
        db.delete(&key).unwrap();
        model.entry(key).or_default().push(None);
    }
}

/// A closed database of 300 keys in tables, of which every third has a newer version above and
/// every seventh is deleted there; 30 more above, and 20 of these with a newer one in the log.
pub fn fixture(preset: Preset) -> (Image, Model) {
    let devices = MemoryDevices::new();
    let environment = environment(Arc::new(devices.clone()));
    let db = environment.create(Path::new(HOME), &settings(preset)).unwrap();
    let mut model = Model::new();
    put(&db, &mut model, 0..300, 1);
    db.compact_range(None, None, &mut |_| {}).unwrap();
    put(&db, &mut model, (0..300).step_by(3), 2);
    delete(&db, &mut model, (0..300).step_by(7));
    put(&db, &mut model, 300..330, 2);
    db.flush().unwrap();
    put(&db, &mut model, 310..330, 3);
    db.close().unwrap();
    (take(&devices), model)
}

/// Files whose names end so.
pub fn of_kind(image: &Image, end: &str) -> Vec<usize> {
    (0..image.len()).filter(|index| image[*index].1.ends_with(end)).collect()
}

/// Opens the repaired database, which must verify, and compares it: a key that the plan does not
/// name has its newest value, one that it names may have any that it had. Gives the keys that have
/// not the newest.
pub fn compare(
    devices: &(impl Devices + Clone + 'static),
    model: &Model,
    plan: &RepairPlan,
) -> BTreeSet<String> {
    let environment = environment(Arc::new(devices.clone()));
    let db = environment.open(Path::new(HOME)).unwrap();
    let problems = db.verify(&mut |_| {}).unwrap().problems;
    assert!(problems.is_empty(), "{problems:?}\n{plan:?}");
    let lost: Vec<_> = plan.steps.iter().flat_map(|step| &step.lost).collect();
    let unknown = lost.iter().filter(|lost| ***lost == Lost::UnknownRecord).count();
    let is_any = lost.iter().any(|lost| matches!(lost, Lost::Writes { .. } | Lost::MayBeOlder));
    let is_named = |key: &str| {
        lost.iter().any(|lost| match lost {
            Lost::Record { key: lost, .. } => lost == key.as_bytes(),
            Lost::Keys { after, until, .. } => {
                after.as_ref().is_none_or(|after| key.as_bytes() > &after[..])
                    && key.as_bytes() <= &until[..]
            }
            _ => false,
        })
    };
    let (mut older, mut unnamed) = (BTreeSet::new(), 0);
    let mut shown = BTreeMap::new();
    for record in db.scan() {
        let (key, value) = record.unwrap();
        shown.insert(String::from_utf8(key.to_vec()).unwrap(), value.to_vec());
    }
    for (key, values) in model {
        let found = db.get(key).unwrap().map(|value| value.to_vec());
        assert_eq!(shown.remove(key), found, "scan and get of {key}");
        if Some(&found) == values.last() {
            continue;
        }
        let was = found.is_none() || values.contains(&found);
        assert!(was, "{key} has what it never had\n{plan:?}");
        unnamed += usize::from(!is_named(key));
        older.insert(key.clone());
    }
    // What an earlier comparison wrote.
    shown.remove("new");
    assert!(shown.is_empty(), "keys that were never there: {shown:?}");
    assert!(is_any || unnamed <= unknown, "{older:?} are older or gone\n{plan:?}");
    // It is written again.
    db.put("new", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = environment.open_read_only(Path::new(HOME)).unwrap();
    assert_eq!(db.get("new").unwrap().as_deref(), Some(&b"value"[..]));
    older
}

/// Plans and repairs; what is planned is what is done, and a second repair finds nothing.
pub fn repair(devices: &MemoryDevices) -> RepairPlan {
    let environment = environment(Arc::new(devices.clone()));
    let before = take(devices);
    let planned = environment.plan_repair(Path::new(HOME), None, &mut |_| {}).unwrap();
    assert!(take(devices) == before, "planning has changed a file");
    let done = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
    let mut as_planned = done.clone();
    as_planned.steps.iter_mut().for_each(|step| step.kept_as = None);
    assert_eq!((as_planned.steps, done.files), (planned.steps, planned.files));
    let again = environment.plan_repair(Path::new(HOME), None, &mut |_| {}).unwrap();
    assert!(again.is_empty(), "{again:?}\n{done:?}");
    done
}
