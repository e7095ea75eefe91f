//! What an opening does with the files of earlier ones: those that have no room any more go unread,
//! and a list of lives that cannot be read or written costs the copies and nothing else.

use super::{Db, HOME, cache, cache_files, check, churn, settings, stats, store, tier};
use crate::support::hooked::{Call, HookedDevices};
use crate::support::stepped_environment;
use crate::{Environment, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use thermocline_device::{Error, ErrorKind, FileKind, MemoryDevices};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn files(db: &Db) -> usize {
    let files = db.engine().shared().files.files().into_iter();
    files.filter(|file| file.kind == FileKind::BlockCache).count()
}

#[test]
fn files_that_have_no_room_any_more_go_unread_the_oldest_first() {
    let opened = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&opened);
    let hook = move |call: Call, _: &Path, name: &str| {
        if call == Call::Open && name.ends_with(".cache") {
            noted.lock().insert(name.to_owned());
        }
        Ok(())
    };
    let memory = MemoryDevices::default();
    let devices = HookedDevices::new(Arc::new(memory.clone()), Arc::new(hook));
    let environment = Environment { devices: Arc::new(devices), ..stepped_environment() };
    let db = store(&environment, cache(2048));
    (0..2).for_each(|_| check(&db, 0..1500));
    db.close().unwrap();
    let there: BTreeMap<_, _> = cache_files(&memory, &tier("/fast", 8)).into_iter().collect();
    assert!(there.len() > 20, "{}", there.len());

    opened.lock().clear();
    let smaller = Settings { tiers: vec![], ..settings(cache(1024)) };
    let db = environment.open_with(Path::new(HOME), &smaller).unwrap();
    db.settle().unwrap();
    let (told, opened) = (stats(&db), opened.lock().clone());
    let newest: BTreeSet<_> = there.keys().rev().take(opened.len()).cloned().collect();
    assert_eq!(opened, newest);
    // A file more than there is room for, which may be one that a crash cut off.
    let bytes: usize = opened.iter().map(|name| there[name].len()).sum();
    let room = told.room_bytes as usize + (64 << 10);
    assert!(bytes > 512 << 10 && bytes <= room, "{bytes} bytes of files were opened: {told:?}");
    assert_eq!(told.adopted_files, opened.len() as u64, "{told:?}");
    assert_eq!(told.evicted_files, there.len() as u64 - told.files, "{told:?}");
    check(&db, 0..200);
}

#[test]
fn lives_that_cannot_be_read_or_written_cost_the_copies_and_no_more() {
    for failing in [Call::Read, Call::Write] {
        let fails = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&fails);
        let hook = move |call: Call, _: &Path, name: &str| {
            if name.starts_with("cache-lives") && call == failing && told.load(Relaxed) {
                return Err(Error::new(ErrorKind::Io, "the test's device fails"));
            }
            Ok(())
        };
        let devices = HookedDevices::new(Arc::new(MemoryDevices::default()), Arc::new(hook));
        let environment = Environment { devices: Arc::new(devices), ..stepped_environment() };
        let db = store(&environment, cache(2048));
        (0..3).for_each(|_| check(&db, 0..200));
        let before = files(&db);
        assert!(before > 2);
        db.close().unwrap();

        fails.store(true, Relaxed);
        let db = environment.open(Path::new(HOME)).unwrap();
        db.settle().unwrap();
        assert_eq!(files(&db), 0, "{failing:?}: none counts, and none takes room");
        let there = db.stats().fast_cache;
        let refused = there.as_ref().map(|cache| (cache.adopted_files, cache.refused_files));
        let cold = (failing == Call::Read).then_some((0, before as u64));
        assert_eq!(refused, cold, "{failing:?}: without a list there is no cache");
        (0..3).for_each(|_| check(&db, 0..200));
        let hits = db.stats().fast_cache.map_or(0, |cache| cache.hits);
        assert_eq!(hits > 0, failing == Call::Read, "{failing:?}");
        assert_eq!(db.stats().read_only, None);
        db.close().unwrap();

        fails.store(false, Relaxed);
        let db = environment.open(Path::new(HOME)).unwrap();
        (0..3).for_each(|_| check(&db, 0..200));
        assert!(stats(&db).hits > 0, "{failing:?}: it comes back");
        db.close().unwrap();
    }
}

/// Devices that have no descriptor for such a call of a file of the cache, while that is to be.
fn without_descriptors(
    failing: Call,
    fails: &Arc<AtomicBool>,
    memory: &MemoryDevices,
) -> Environment {
    let told = Arc::clone(fails);
    let hook = move |call: Call, _: &Path, name: &str| {
        if call == failing && name.ends_with(".cache") && told.load(Relaxed) {
            return Err(Error::new(ErrorKind::TooManyOpenFiles, "the test has no descriptor"));
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(memory.clone()), Arc::new(hook));
    Environment { devices: Arc::new(devices), ..stepped_environment() }
}

#[test]
fn a_full_cache_keeps_its_files_while_there_is_no_descriptor_for_another() {
    let (fails, memory) = (Arc::new(AtomicBool::new(false)), MemoryDevices::default());
    let environment = without_descriptors(Call::Create, &fails, &memory);
    let db = store(&environment, cache(1024));
    churn(&db);
    let before = stats(&db);
    assert!(before.evicted_files > 3 && before.files > 10, "{before:?}");
    fails.store(true, Relaxed);
    (0..3).for_each(|_| check(&db, 3000..3300));
    let told = stats(&db);
    assert!(told.dropped > before.dropped + 100, "{told:?}");
    assert_eq!((told.files, told.evicted_files), (before.files, before.evicted_files), "{told:?}");
    fails.store(false, Relaxed);
    (0..3).for_each(|_| check(&db, 3300..3500));
    assert!(stats(&db).inserted_blocks > told.inserted_blocks, "{told:?}");
    db.close().unwrap();
}

#[test]
fn files_for_which_there_is_no_descriptor_wait_for_the_next_look() {
    let (fails, memory) = (Arc::new(AtomicBool::new(false)), MemoryDevices::default());
    let environment = without_descriptors(Call::Open, &fails, &memory);
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    let before = files(&db) as u64;
    assert!(before > 2);
    db.close().unwrap();

    fails.store(true, Relaxed);
    let db = environment.open(Path::new(HOME)).unwrap();
    db.settle().unwrap();
    let told = db.stats().fast_cache.unwrap();
    assert_eq!((told.adopted_files, told.refused_files, files(&db) as u64), (0, 0, before));
    fails.store(false, Relaxed);
    db.put("other", "value").unwrap();
    db.flush().unwrap();
    db.settle().unwrap();
    let told = stats(&db);
    assert_eq!((told.adopted_files, told.refused_files), (before, 0), "{told:?}");
    db.close().unwrap();

    fails.store(true, Relaxed);
    let db = environment.open(Path::new(HOME)).unwrap();
    db.engine().shared().cache.set_capacity(0);
    db.settle().unwrap();
    let before = files(&db) as u64;
    assert_eq!(db.stats().fast_cache.unwrap().adopted_files, 0);
    fails.store(false, Relaxed);
    (0..2).for_each(|_| check(&db, 0..400));
    let told = stats(&db);
    assert_eq!(told.adopted_files, before, "a store that is only read looks again: {told:?}");
    assert!(told.hits > 100, "{told:?}");
    db.close().unwrap();
}

#[test]
fn files_are_deleted_also_where_there_is_no_descriptor_to_keep_them_readable() {
    let (fails, memory) = (Arc::new(AtomicBool::new(false)), MemoryDevices::default());
    let environment = without_descriptors(Call::Open, &fails, &memory);
    let db = store(&environment, cache(2048));
    (0..3).for_each(|_| check(&db, 0..200));
    let there = || cache_files(&memory, &tier("/fast", 8)).len();
    assert!(there() > 3, "{}", there());
    db.engine().shared().files.set_open_files_max(2);
    fails.store(true, Relaxed);
    db.clear_fast_cache().unwrap();
    assert_eq!(there(), 0, "they would take room that no account has");
    check(&db, 0..100);
    db.close().unwrap();
}
