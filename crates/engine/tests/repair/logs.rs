//! Logs that are damaged in the middle: a prefix stays, and each lost key that can be read is
//! named.

use super::PRESETS;
use super::hooked::{Call, HookedDevices};
use super::support::{HOME, Image, Model, environment, of_kind, repair, restore, settings, take};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use thermocline::{Db, Lost, Preset, WriteBatch};
use thermocline_device::MemoryDevices;

/// What a key was given, none for a deletion; the first has the sequence 1.
type Writes = Vec<(String, Option<String>)>;

/// A closed database, and all its writes: 200 records in tables, and behind them overwritten,
/// deleted and new ones in the log alone.
fn fixture(preset: Preset) -> (Image, Writes) {
    let devices = MemoryDevices::new();
    let db =
        environment(Arc::new(devices.clone())).create(Path::new(HOME), &settings(preset)).unwrap();
    let mut writes = Writes::new();
    let write = |db: &Db, writes: &mut Writes, number: u32, round: Option<u32>| {
        let key = format!("key{number:04}");
        let value = round.map(|round| format!("{round}-{number};").repeat(20));
        match &value {
            Some(value) => db.put(&key, value).unwrap(),
            None => db.delete(&key).unwrap(),
        }
        writes.push((key, value));
    };
    (0..200).for_each(|number| write(&db, &mut writes, number, Some(1)));
    db.compact_range(None, None, &mut |_| {}).unwrap();
    for number in 0..150 {
        write(&db, &mut writes, number * 7 % 260, (number % 5 > 0).then_some(2));
    }
    assert_eq!(db.stats().sequence, writes.len() as u64);
    db.close().unwrap();
    (take(&devices), writes)
}

/// The log whose records count: without its first page of them some are lost.
fn log_in_use(image: &Image) -> usize {
    let is_in_use = |index: &usize| {
        let mut damaged = image.clone();
        damaged[*index].2[4096..8192].fill(0);
        let environment = environment(Arc::new(restore(&damaged)));
        let plan = environment.plan_repair(Path::new(HOME), None, &mut |_| {}).unwrap();
        !plan.loses_nothing()
    };
    let mut logs = of_kind(image, ".log").into_iter().filter(|index| image[*index].2.len() > 8192);
    logs.find(is_in_use).unwrap()
}

fn state(writes: &[(String, Option<String>)]) -> BTreeMap<&str, &str> {
    let mut state = BTreeMap::new();
    for (key, value) in writes {
        match value {
            Some(value) => drop(state.insert(&key[..], &value[..])),
            None => drop(state.remove(&key[..])),
        }
    }
    state
}

/// Repairs, and compares: what is left is the state after one of the writes. Says how many keys
/// that changed are named, and how many are not.
fn judge(image: &Image, writes: &Writes) -> (usize, usize) {
    let devices = restore(image);
    let plan = repair(&devices);
    let lost: Vec<_> = plan.steps.iter().flat_map(|step| &step.lost).collect();
    let after = lost.iter().find_map(|lost| match lost {
        Lost::Writes { after } => Some(after.map_or(200, |after| after as usize)),
        _ => None,
    });
    let (before, all) = (state(&writes[..after.unwrap_or(writes.len())]), state(writes));
    let db = environment(Arc::new(devices)).open(Path::new(HOME)).unwrap();
    let mut shown = BTreeMap::new();
    for record in db.scan() {
        let (key, value) = record.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        shown.insert(text(&key), text(&value));
    }
    assert!(shown.iter().map(|(key, value)| (&key[..], &value[..])).eq(before.clone()), "{plan:?}");
    let keys = writes.iter().map(|(key, _)| &key[..]);
    let changed: BTreeSet<_> = keys.filter(|key| before.get(key) != all.get(key)).collect();
    let mut named = BTreeSet::new();
    for lost in lost {
        match lost {
            Lost::Writes { .. } => {}
            Lost::Record { key, sequence, older } => {
                let (written, value) = &writes[*sequence as usize - 1];
                assert_eq!(written.as_bytes(), key);
                let older = older.map(|older| writes[older as usize - 1].1.as_deref());
                assert_eq!(older.flatten(), before.get(&written[..]).copied(), "{written}");
                assert!(value.is_some() || older.is_some(), "{written} was not there");
                named.insert(&written[..]);
            }
            other => panic!("{other:?}"),
        }
    }
    (named.intersection(&changed).count(), changed.difference(&named).count())
}

#[test]
fn keys_behind_the_hole_of_a_log_are_named_with_what_they_have_now() {
    for preset in PRESETS {
        let (image, writes) = fixture(preset);
        let index = log_in_use(&image);
        let used = image[index].2.iter().rposition(|byte| *byte != 0).unwrap();
        let (mut most_named, mut holes) = (0, 0);
        for at in (0..used).step_by(512) {
            let mut damaged = image.clone();
            damaged[index].2[at..(at + 512).min(used)].fill(0);
            let (named, unnamed) = judge(&damaged, &writes);
            // At most the records of a page: each has more than 100 bytes.
            assert!(unnamed <= 40, "{unnamed} of the changed keys are not named: {at}");
            most_named = most_named.max(named);
            holes += usize::from(named + unnamed > 0);
        }
        assert!(most_named > 60 && holes > 20, "{most_named} {holes}");
    }
}

#[test]
fn the_end_of_a_log_that_is_gone_is_told() {
    for preset in PRESETS {
        let (image, writes) = fixture(preset);
        let index = log_in_use(&image);
        let used = image[index].2.iter().rposition(|byte| *byte != 0).unwrap();
        let mut most = 0;
        for at in (4096..used).step_by(4096) {
            let mut damaged = image.clone();
            damaged[index].2[at..].fill(0);
            let (named, unnamed) = judge(&damaged, &writes);
            assert_eq!(named, 0, "nothing tells of these keys");
            assert!(unnamed > 0 || at + 4096 > used, "{at} of {used}");
            most = most.max(unnamed);
        }
        assert!(most > 60, "{most}");
    }
}

/// What is on the devices before each write to a manifest that a flush makes: some of it has slots
/// with all that the log has, which still counts.
fn while_flushed() -> (Vec<Image>, Model) {
    let devices = MemoryDevices::new();
    let images: Arc<Mutex<Option<Vec<Image>>>> = Arc::default();
    let (taken, seen) = (Arc::clone(&images), devices.clone());
    let hook = move |call: Call, _: &Path, name: &str| {
        if call == Call::Write
            && name.ends_with(".manifest")
            && let Some(images) = &mut *taken.lock().unwrap()
        {
            images.push(take(&seen));
        }
        Ok(())
    };
    let hooked = HookedDevices::new(Arc::new(devices), Arc::new(hook));
    let environment = environment(Arc::new(hooked));
    let db = environment.create(Path::new(HOME), &settings(Preset::Hybrid)).unwrap();
    let mut model = Model::new();
    for round in 1..4 {
        // Batches in which some of the keys are written again later.
        for number in (0..60).step_by(2) {
            let mut batch = WriteBatch::new();
            let once = 1000 * (round + 1) + number;
            for number in [number, once, number + 1] {
                let (key, value) = (format!("key{number:04}"), format!("{round}-{number};"));
                let value = value.repeat(20);
                batch.put(&key, &value);
                model.entry(key).or_default().push(Some(value.into_bytes()));
            }
            db.write(batch).unwrap();
        }
    }
    *images.lock().unwrap() = Some(Vec::new());
    db.flush().unwrap();
    let images = images.lock().unwrap().take().unwrap();
    (images, model)
}

/// A memtable hides slots, so what is left of the log must not be older than what these have.
#[test]
fn what_is_left_of_a_log_hides_nothing_newer_that_slots_have() {
    let (images, model) = while_flushed();
    let (mut in_slots, mut cut) = (0, 0);
    for image in images {
        for index in of_kind(&image, ".log") {
            let used = image[index].2.iter().rposition(|byte| *byte != 0).unwrap();
            for at in (4096..used).step_by(4096 * 3) {
                let mut damaged = image.clone();
                damaged[index].2[at..(at + 512).min(used)].fill(0xa5);
                let devices = restore(&damaged);
                let environment = environment(Arc::new(devices));
                let plan = environment.repair(Path::new(HOME), None, &mut |_| {}).unwrap();
                let mut lost = plan.steps.iter().flat_map(|step| &step.lost);
                if !lost.any(|lost| matches!(lost, Lost::Writes { .. })) {
                    continue;
                }
                // A reader has the log in memory, and a writer writes it to slots.
                let read = environment.open_read_only(Path::new(HOME)).unwrap();
                let before = shown(&read, &model);
                drop(read);
                let db = environment.open(Path::new(HOME)).unwrap();
                assert_eq!(before, shown(&db, &model), "byte {at} of {}", damaged[index].1);
                db.close().unwrap();
                let newest = |(key, values): (&String, &Vec<_>)| {
                    values.last() == Some(&before.get(key).cloned())
                };
                in_slots += usize::from(model.iter().all(newest));
                cut += 1;
            }
        }
    }
    assert!(in_slots > 2 && cut > in_slots, "{in_slots} of {cut}");
}

/// What look-ups of all keys give.
fn shown(db: &Db, model: &Model) -> BTreeMap<String, Vec<u8>> {
    let get = |key: &String| Some((key.clone(), db.get(key).unwrap()?.to_vec()));
    model.keys().filter_map(get).collect()
}
