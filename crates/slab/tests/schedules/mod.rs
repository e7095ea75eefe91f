//! Slabs under chosen schedules: see `thermocline_foundation::sync::schedules`.
//!
//! The device below wants aligned requests and carries writes out sector by sector, so that readers
//! meet slots of which half is written, and writers meet each other in sectors that slots share.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use crate::{LiveSlots, Record, RecordKind, Reservation, Slabs, SlotAddress, record_bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_device::driver::{
    Completion, DirectoryLock, Driver, Entry, Handle, Operation, Queue, Request, Space,
};
use thermocline_device::{
    Buffer, ByLevel, Devices, ErrorKind, MemoryDevices, Origin, Result, TierSpec, TieredFiles,
};
use thermocline_foundation::sync::Mutex;
use thermocline_foundation::sync::schedules::{check, yield_now};
use thermocline_foundation::threads::{self, JoinHandle};
use thermocline_foundation::{ByteSize, Sequence};

const SECTOR_BYTES: usize = 512;
const VALUE_BYTES: usize = 700;

#[derive(Clone, Debug, Default)]
struct SectorDevices(MemoryDevices);

#[derive(Debug)]
struct SectorDriver(Arc<dyn Driver>);

#[derive(Debug)]
struct SectorQueue {
    driver: Arc<dyn Driver>,
    finished: Vec<Completion>,
}

impl Devices for SectorDevices {
    fn home(&self, path: &Path) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(SectorDriver(self.0.home(path)?)))
    }

    fn tier(&self, spec: &TierSpec) -> Result<Arc<dyn Driver>> {
        self.home(&spec.path)
    }

    fn create_directory(&self, path: &Path) -> Result<bool> {
        self.0.create_directory(path)
    }

    fn remove_directory_if_empty(&self, path: &Path) -> Result<()> {
        self.0.remove_directory_if_empty(path)
    }

    fn entropy(&self) -> u64 {
        7
    }
}

/// Carries out a write sector by sector, anything else at once.
fn execute(driver: &dyn Driver, file: &Handle, operation: Operation) -> Completion {
    let Operation::Write { offset, buffer, durable } = operation else {
        return driver.execute(file, operation);
    };
    assert!(offset.is_multiple_of(SECTOR_BYTES as u64));
    assert!(buffer.len().is_multiple_of(SECTOR_BYTES));
    for (sector, bytes) in (0..).zip(buffer.chunks(SECTOR_BYTES)) {
        let offset = offset + sector * SECTOR_BYTES as u64;
        let write = Operation::Write { offset, buffer: Buffer::copy_of(bytes), durable };
        driver.execute(file, write).result.unwrap();
    }
    Completion { tag: 0, result: Ok(buffer.len()), buffer }
}

impl Queue for SectorQueue {
    fn submit(&mut self, requests: &mut Vec<Request>) {
        for Request { tag, file, operation } in requests.drain(..) {
            let done = execute(&*self.driver, &file, operation);
            self.finished.push(Completion { tag, ..done });
        }
    }

    fn reap(&mut self, _at_least: usize, completions: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        completions.append(&mut self.finished);
        count
    }

    fn in_flight(&self) -> usize {
        self.finished.len()
    }
}

impl Driver for SectorDriver {
    fn name(&self) -> &'static str {
        "sectors"
    }

    fn describe(&self) -> String {
        "sectors".to_owned()
    }

    fn alignment(&self) -> usize {
        SECTOR_BYTES
    }

    fn create(&self, name: &str) -> Result<Handle> {
        self.0.create(name)
    }

    fn open(&self, name: &str) -> Result<Handle> {
        self.0.open(name)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.0.delete(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.0.rename(from, to)
    }

    fn list(&self) -> Result<Vec<Entry>> {
        self.0.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.0.sync_directory()
    }

    fn space(&self) -> Result<Space> {
        self.0.space()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DirectoryLock>> {
        self.0.lock(name)
    }

    fn queue(&self, _depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(SectorQueue { driver: Arc::clone(&self.0), finished: Vec::new() }))
    }

    fn execute(&self, file: &Handle, operation: Operation) -> Completion {
        execute(&*self.0, file, operation)
    }
}

fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    threads::spawn("test", body).unwrap()
}

fn join<T>(threads: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}

fn value(sequence: u64) -> Vec<u8> {
    vec![sequence as u8; VALUE_BYTES]
}

/// What the engine keeps of each key, one for each thread that writes, and its half of the
/// protocol.
#[derive(Debug)]
struct Store {
    slabs: Arc<Slabs>,
    index: Mutex<BTreeMap<u8, (SlotAddress, u64)>>,
}

impl Store {
    /// A store that has one slab and in it a record of each key, with sequence 1.
    fn new(keys: &[u8]) -> Arc<Self> {
        let devices = SectorDevices::default();
        let spec = TierSpec {
            path: PathBuf::from("/mnt/0"),
            capacity: ByteSize::mib(1),
            driver: "memory".to_owned(),
        };
        let policy = Arc::new(ByLevel::default());
        let files = TieredFiles::create(&devices, Path::new("/db"), &[spec], policy).unwrap();
        let slabs = Slabs::open(Arc::new(files), 64 << 10, &LiveSlots::default()).unwrap();
        slabs.set_limit_bytes(64 << 10);
        let store = Arc::new(Self { slabs, index: Mutex::new(BTreeMap::new()) });
        for key in keys {
            store.put(*key, 1);
        }
        store
    }

    fn reserve(&self, records: usize) -> Reservation {
        let bytes = record_bytes(1, VALUE_BYTES) as u32;
        self.slabs.allocate(&vec![bytes; records], Origin::Flush).unwrap()
    }

    fn write(&self, slot: SlotAddress, key: u8, sequence: u64) {
        let (value, kind) = (value(sequence), RecordKind::Put);
        let sequence = Sequence(sequence);
        let record =
            Record { key: &[key], value: &value, packed: false, sequence, kind, clean: false };
        let touched = self.slabs.write(&[(slot, record)]).unwrap();
        self.slabs.sync(&touched).unwrap();
    }

    fn put(&self, key: u8, sequence: u64) {
        let reservation = self.reserve(1);
        let slot = reservation.slots()[0].unwrap();
        self.write(slot, key, sequence);
        reservation.commit();
        let old = self.index.lock().insert(key, (slot, sequence));
        if let Some((old, _)) = old {
            self.slabs.free(&[old]);
        }
    }

    /// The sequence of a key's record, as a reader finds it.
    fn get(&self, key: u8) -> u64 {
        loop {
            let (slot, sequence) = self.index.lock()[&key];
            match self.slabs.read(slot, 0) {
                Ok(found) if found.key() == [key] && found.sequence().0 == sequence => {
                    assert_eq!(found.stored(), value(sequence));
                    return sequence;
                }
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            }
            let now = self.index.lock()[&key];
            assert_ne!(now, (slot, sequence), "a live slot is not what its writer wrote");
        }
    }
}

fn putter(store: &Arc<Store>, key: u8, sequences: std::ops::Range<u64>) -> JoinHandle<()> {
    let store = Arc::clone(store);
    spawn(move || sequences.for_each(|sequence| store.put(key, sequence)))
}

#[test]
fn readers_find_the_record_of_their_key_while_writers_reuse_slots() {
    check(2000, || {
        let store = Store::new(&[1, 2]);
        let writers = [putter(&store, 1, 2..5), putter(&store, 2, 2..5)];
        let readers = [1, 2].map(|key| {
            let store = Arc::clone(&store);
            spawn(move || {
                let mut last = 0;
                for _ in 0..3 {
                    let found = store.get(key);
                    assert!(found >= last, "time goes one way");
                    last = found;
                }
            })
        });
        join(writers);
        join(readers);
        assert_eq!([store.get(1), store.get(2)], [4, 4]);
        let class = store.slabs.stats().classes[0];
        assert_eq!((class.live, class.reserved, class.held), (2, 0, 0));
        assert_eq!(class.free, class.slots - 2);
    });
}

#[test]
fn writers_of_neighbouring_slots_keep_each_others_records() {
    check(2000, || {
        let store = Store::new(&[]);
        let all = store.reserve(6);
        let slots: Vec<SlotAddress> = all.slots().iter().map(|slot| slot.unwrap()).collect();
        let writers = (0..3).map(|writer| {
            let (store, slots) = (Arc::clone(&store), slots.clone());
            spawn(move || {
                for at in [writer, writer + 3] {
                    store.write(slots[at], at as u8, at as u64);
                }
            })
        });
        join(writers.collect::<Vec<_>>());
        for (at, slot) in (0..).zip(slots) {
            let found = store.slabs.read(slot, 0).unwrap();
            assert_eq!((found.key(), found.sequence().0), (&[at as u8][..], at));
            assert_eq!(found.stored(), value(at));
        }
    });
}

#[test]
fn a_slot_is_given_to_one_at_a_time() {
    check(5000, || {
        let store = Store::new(&[1]);
        let owned = Arc::new(Mutex::new(BTreeSet::new()));
        let threads = (0..3).map(|thread| {
            let (store, owned) = (Arc::clone(&store), Arc::clone(&owned));
            spawn(move || {
                for round in 0..3 {
                    let reservation = store.reserve(2);
                    let slots: Vec<_> = reservation.slots().iter().flatten().copied().collect();
                    assert_eq!(slots.len(), 2);
                    let held = (round == 1 && thread == 0).then(|| store.slabs.delay_slot_reuse());
                    for slot in &slots {
                        assert!(owned.lock().insert(*slot), "{slot} is owned already");
                    }
                    if (thread + round) % 3 == 0 {
                        owned.lock().retain(|slot| !slots.contains(slot));
                        drop(reservation);
                        continue;
                    }
                    reservation.commit();
                    owned.lock().retain(|slot| !slots.contains(slot));
                    store.slabs.free(&slots);
                    drop(held);
                }
            })
        });
        join(threads.collect::<Vec<_>>());
        let class = store.slabs.stats().classes[0];
        assert_eq!((class.slabs, class.live, class.reserved, class.held), (1, 1, 0, 0));
        assert_eq!(class.free, class.slots - 1);
    });
}

#[test]
fn what_lived_when_frees_were_held_stays_as_it_was_until_they_are_let_go() {
    check(2000, || {
        let store = Store::new(&[1, 2]);
        let writers = [putter(&store, 1, 2..5), putter(&store, 2, 2..4)];
        let holders = [(); 2].map(|()| {
            let store = Arc::clone(&store);
            spawn(move || {
                let held = store.slabs.delay_slot_reuse();
                let live = store.index.lock().clone();
                for _ in 0..2 {
                    for (key, (slot, sequence)) in &live {
                        let found = store.slabs.read(*slot, 0).unwrap();
                        assert_eq!((found.key(), found.sequence().0), (&[*key][..], *sequence));
                    }
                }
                assert!(store.slabs.take_empty(None, 9).is_empty());
                drop(held);
            })
        });
        join(writers);
        join(holders);
        assert_eq!(store.slabs.stats().classes[0].held, 0);
        assert_eq!([store.get(1), store.get(2)], [4, 3]);
    });
}

#[test]
fn slabs_are_taken_out_between_reservations_and_none_is_lost_or_used() {
    check(5000, || {
        let store = Store::new(&[]);
        // A slab that is empty already, and the files that the manifest lists.
        let first = store.reserve(1);
        let slots: Vec<_> = first.slots().iter().flatten().copied().collect();
        let listed: BTreeSet<_> = first.new_slabs().iter().map(|(file, _)| *file).collect();
        let manifest = Arc::new(Mutex::new(listed));
        first.commit();
        store.slabs.free(&slots);
        let threads = (0..2).map(|_| {
            let (store, manifest) = (Arc::clone(&store), Arc::clone(&manifest));
            spawn(move || {
                for _ in 0..2 {
                    let reservation = store.reserve(1);
                    let Some(slot) = reservation.slots()[0] else { continue };
                    store.write(slot, 1, 9);
                    manifest.lock().extend(reservation.new_slabs().iter().map(|(file, _)| *file));
                    reservation.commit();
                    assert_eq!(store.slabs.read(slot, 0).unwrap().sequence().0, 9);
                    store.slabs.free(&[slot]);
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let remover = {
            let (store, manifest) = (Arc::clone(&store), Arc::clone(&manifest));
            spawn(move || {
                for _ in 0..3 {
                    let taken = store.slabs.take_empty(None, 1);
                    let ids: Vec<_> = taken.iter().map(|(id, _)| *id).collect();
                    manifest.lock().retain(|file| taken.iter().all(|(_, gone)| gone != file));
                    store.slabs.remove(&ids).unwrap();
                }
            })
        };
        let holder = {
            let (store, manifest) = (Arc::clone(&store), Arc::clone(&manifest));
            spawn(move || {
                let _held = store.slabs.delay_slot_reuse();
                let listed = manifest.lock().clone();
                // What is copied before it takes long.
                (0..20).for_each(|_| yield_now());
                let found = |file| store.slabs.files.open_file(file).is_ok();
                assert!(listed.into_iter().all(found), "a copy of the live set has its files");
            })
        };
        join(threads);
        join([remover, holder]);
        let stats = store.slabs.stats();
        assert_eq!(stats.file_bytes, store.slabs.ids().len() as u64 * (64 << 10));
        assert!(stats.classes.iter().all(|class| class.free == class.slots));
        assert_eq!(store.slabs.files.files().len(), store.slabs.ids().len());
    });
}
