//! What is kept, served, adopted and given up, on a device in memory.

use super::*;
use crate::drivers::MemoryDriver;
use crate::identity::InstanceId;
use crate::{Buffer, Driver, FileStamp, Operation, TierIndex};
use std::time::Duration;
use thermocline_foundation::DatabaseId;
use thermocline_foundation::random::Random;

const EXTENT: u64 = 4096;
const INSTANCE: InstanceId = InstanceId([4; 16]);

/// A second passes with each question.
#[derive(Debug, Default)]
struct Seconds(AtomicU64);

impl Clock for Seconds {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(1_000_000_000, Relaxed)
    }

    fn wall_s(&self) -> u64 {
        0
    }

    fn sleep(&self, _: Duration) {}
}

fn extents(driver: &MemoryDriver, capacity_bytes: u64, generation: u64) -> Extents {
    let tier = Tier::detached(TierIndex(0), Arc::new(driver.clone()));
    let plan = ExtentPlan::new(capacity_bytes, EXTENT);
    let extents = Extents::new(plan, Arc::new(tier), Arc::<Seconds>::default(), Arc::new(|| ()));
    extents.begin(DatabaseId([1; 16]), INSTANCE, generation);
    tend(&extents);
    extents
}

fn tend(extents: &Extents) {
    while extents.step(u64::MAX) {}
}

/// A host's file: its bytes follow from the number.
fn file(number: u64) -> (ExtentFile, Vec<u8>) {
    let mut bytes = vec![0; 30_000];
    Random::new(number).fill(&mut bytes);
    let stamp = FileStamp { number, born_ns: 1, changed_ns: 2, len: bytes.len() as u64 };
    (ExtentFile::new(INSTANCE, 1, "000012.sst", stamp), bytes)
}

/// Reads as a host does; true where it was served.
fn read(extents: &Extents, (file, bytes): &(ExtentFile, Vec<u8>), offset: u64, len: usize) -> bool {
    let mut to = vec![0; len];
    match extents.read(file, offset, &mut to) {
        Cached::Served(got) => {
            let end = (offset as usize + len).min(bytes.len());
            assert_eq!(to[..got], bytes[offset as usize..end], "at {offset}");
            true
        }
        Cached::Missed(None) => false,
        Cached::Missed(Some(wanted)) => {
            let at = wanted.offset as usize;
            extents.fill(file, wanted, &bytes[at..at + wanted.len]);
            tend(extents);
            false
        }
    }
}

/// Reads all of a file, piece by piece; how many pieces were served.
fn read_all(extents: &Extents, file: &(ExtentFile, Vec<u8>)) -> usize {
    (0..30_000).step_by(1000).filter(|at| read(extents, file, *at, 1000)).count()
}

/// Reads all of a file, whatever is served.
fn visit(extents: &Extents, file: &(ExtentFile, Vec<u8>)) {
    let _ = read_all(extents, file);
}

fn names(driver: &MemoryDriver) -> Vec<String> {
    let mut names: Vec<_> = driver.list().unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

#[test]
fn what_is_read_a_second_time_is_kept_and_served() {
    let extents = extents(&MemoryDriver::new(), 1 << 20, 1);
    let one = file(1);
    assert!(!read(&extents, &one, 5000, 100) && extents.counts().admitted == 0);
    // Two batches of extents and more.
    let files: Vec<_> = (1..20).map(file).collect();
    for _ in 0..2 {
        files.iter().for_each(|file| visit(&extents, file));
    }
    let served: usize = files.iter().take(8).map(|file| read_all(&extents, file)).sum();
    assert_eq!(served, 8 * 30);
    // Two extents at once, the end of the file, beyond it, and what passes by.
    assert!(read(&extents, &files[0], 4000, 200) && read(&extents, &files[0], 29_990, 100));
    assert_eq!(extents.read(&files[0].0, 30_000, &mut [0; 8]), Cached::Missed(None));
    let mut long = vec![0; (READ_EXTENTS_MAX + 1) * EXTENT as usize];
    let stamp = FileStamp { number: 9, born_ns: 0, changed_ns: 0, len: 1 << 20 };
    let large = ExtentFile::new(INSTANCE, 1, "large", stamp);
    for _ in 0..3 {
        assert_eq!(extents.read(&large, 0, &mut long), Cached::Missed(None));
    }
    assert_eq!(extents.counts().damaged, 0);
    // What is less than a batch is written in time.
    extents.write_gathered(u64::MAX);
    let served: usize = files.iter().map(|file| read_all(&extents, file)).sum();
    assert_eq!(served, 19 * 30);
}

#[test]
fn a_first_read_is_enough_while_there_is_room_and_a_second_one_when_there_is_none() {
    let extents = extents(&MemoryDriver::new(), 1 << 20, 1);
    let read_once = |numbers: std::ops::Range<u64>| {
        for file in numbers.map(file) {
            (0..30_000).step_by(EXTENT as usize).for_each(|at| _ = read(&extents, &file, at, 100));
        }
        extents.write_gathered(u64::MAX);
        extents.counts().admitted
    };
    let full = read_once(1..80);
    // Small files have room for ten extents beside their seals.
    let (least, most) = (16 * 9, 16 * 16);
    assert!((least..=most).contains(&full), "{full} of {most}");
    assert_eq!(read_once(80..90), full, "nothing leaves for a first read");
    assert!(read_once(80..90) >= full + 60);
}

#[test]
fn sealed_files_are_warm_after_a_kill_and_all_of_it_after_an_orderly_end() {
    let driver = MemoryDriver::new();
    let files: Vec<_> = (1..20).map(file).collect();
    let first = extents(&driver, 1 << 20, 1);
    for _ in 0..3 {
        files.iter().for_each(|file| visit(&first, file));
    }
    let before = first.counts();
    assert!(before.files > 2, "{before:?}");
    // A kill: what is being filled is not sealed.
    std::mem::forget(first);
    let second = extents(&driver, 1 << 20, 2);
    let served: usize = files.iter().map(|file| read_all(&second, file)).sum();
    let counts = second.counts();
    assert_eq!(counts.adopted_files, before.files - 1, "{counts:?}");
    assert!(served > 19 * 30 / 2 && counts.adopted > 0, "{served}: {counts:?}");
    files.iter().for_each(|file| visit(&second, file));
    drop(second);
    let third = extents(&driver, 1 << 20, 3);
    let served: usize = files.iter().map(|file| read_all(&third, file)).sum();
    assert_eq!((served, third.counts().admitted), (19 * 30, 0));
}

#[test]
fn another_file_and_another_directory_find_nothing() {
    let driver = MemoryDriver::new();
    let first = extents(&driver, 1 << 20, 1);
    let one = file(1);
    (0..3).for_each(|_| visit(&first, &one));
    drop(first);
    let second = extents(&driver, 1 << 20, 2);
    assert_eq!(read_all(&second, &one), 30);
    let other = file(2);
    assert_eq!(read_all(&second, &other), 0, "it has the name of the first");
    drop(second);
    let tier = Tier::detached(TierIndex(0), Arc::new(driver.clone()));
    let plan = ExtentPlan::new(1 << 20, EXTENT);
    let copy = Extents::new(plan, Arc::new(tier), Arc::<Seconds>::default(), Arc::new(|| ()));
    copy.begin(DatabaseId([1; 16]), InstanceId([5; 16]), 3);
    tend(&copy);
    assert_eq!((copy.counts().adopted, names(&driver).len()), (0, 0));
}

#[test]
fn files_with_extents_of_another_size_do_not_count_and_are_no_damage() {
    let driver = MemoryDriver::new();
    let first = extents(&driver, 1 << 20, 1);
    let one = file(1);
    (0..3).for_each(|_| visit(&first, &one));
    drop(first);
    assert_eq!(names(&driver).len(), 1);
    let tier = Tier::detached(TierIndex(0), Arc::new(driver.clone()));
    let plan = ExtentPlan::new(1 << 20, 2 * EXTENT);
    let second = Extents::new(plan, Arc::new(tier), Arc::<Seconds>::default(), Arc::new(|| ()));
    second.begin(DatabaseId([1; 16]), INSTANCE, 2);
    tend(&second);
    visit(&second, &one);
    let counts = second.counts();
    assert_eq!((counts.adopted_files, counts.damaged, names(&driver).len()), (0, 0, 0));
}

#[test]
fn the_oldest_file_leaves_and_what_was_read_of_it_stays() {
    let driver = MemoryDriver::new();
    let extents = extents(&driver, 256 << 10, 1);
    let hot = file(1);
    (0..3).for_each(|_| visit(&extents, &hot));
    for number in 2..60 {
        let cold = file(number);
        (0..2).for_each(|_| visit(&extents, &cold));
        visit(&extents, &hot);
    }
    let counts = extents.counts();
    assert!(counts.kept > 0 && counts.bytes <= (256 << 10) + (64 << 10), "{counts:?}");
    assert!(read_all(&extents, &hot) >= 25, "{counts:?}");
    assert!(names(&driver).len() <= 5, "{:?}", names(&driver));
    // The host's files need the room.
    extents.give_way(128 << 10);
    assert!(extents.counts().bytes <= 128 << 10);
    assert_eq!(extents.off_until_ns.load(Relaxed), 0);
    assert!(extents.clear() && names(&driver).is_empty() && !extents.clear());
    assert!(extents.off_until_ns.load(Relaxed) > 0, "it fills up at once");
}

#[test]
fn a_damaged_extent_is_read_from_its_file_and_sixteen_end_a_file() {
    let driver = MemoryDriver::new();
    let extents = extents(&driver, 1 << 20, 1);
    let files: Vec<_> = (1..20).map(file).collect();
    for _ in 0..3 {
        files.iter().for_each(|file| visit(&extents, file));
    }
    let before = names(&driver);
    let handle = driver.open(&before[0]).unwrap();
    let len = handle.len().unwrap() as usize;
    let write = Operation::Write { offset: 0, buffer: Buffer::zeroed(len), durable: false };
    driver.execute(&handle, write).result.unwrap();
    files.iter().for_each(|file| visit(&extents, file));
    tend(&extents);
    let counts = extents.counts();
    assert!(counts.damaged >= 10, "{counts:?}");
    let is_given_up = !names(&driver).contains(&before[0]);
    assert_eq!(is_given_up, counts.damaged >= 16, "{counts:?}");
    // They are kept anew.
    files.iter().for_each(|file| visit(&extents, file));
    assert!(files.iter().map(|file| read_all(&extents, file)).sum::<usize>() > 19 * 30 / 2);
}

#[test]
fn failures_with_a_million_requests_between_them_end_no_file() {
    let driver = MemoryDriver::new();
    let extents = extents(&driver, 1 << 20, 1);
    let files: Vec<_> = (1..20).map(file).collect();
    for _ in 0..3 {
        files.iter().for_each(|file| visit(&extents, file));
    }
    for name in names(&driver) {
        let handle = driver.open(&name).unwrap();
        let len = handle.len().unwrap() as usize;
        let write = Operation::Write { offset: 0, buffer: Buffer::zeroed(len), durable: false };
        driver.execute(&handle, write).result.unwrap();
    }
    for file in &files {
        for at in (0..30_000).step_by(4096) {
            extents.counts.misses.add(1 << 21);
            read(&extents, file, at, 100);
        }
    }
    assert!(extents.counts().damaged > 40, "{:?}", extents.counts());
    assert!(extents.files.load().list().iter().all(|file| !file.is_retired()));
}

#[test]
fn a_device_that_takes_nothing_switches_the_cache_off_for_a_while() {
    let driver = MemoryDriver::new();
    let extents = extents(&driver, 1 << 20, 1);
    driver.set_capacity_bytes(1000);
    let files: Vec<_> = (1..20).map(file).collect();
    for _ in 0..3 {
        files.iter().for_each(|file| assert_eq!(read_all(&extents, file), 0));
    }
    assert!(extents.counts().dropped > 0 && names(&driver).is_empty());
    driver.set_capacity_bytes(1 << 30);
    for _ in 0..6 {
        files.iter().for_each(|file| visit(&extents, file));
    }
    assert!(extents.counts().hits > 0, "{:?}", extents.counts());
}
