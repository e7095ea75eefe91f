//! Many threads at once: each owner of a key range always reads what it wrote, no reader sees a
//! shared key go back, a snapshot never changes, and readers wait for no other thread.

use crate::closing::close;
use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::*;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use thermocline::{Db, Durability, Settings, WriteBatch};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;
use thermocline_foundation::{Clock, SystemClock};

const THREADS: u64 = 8;
const SHARED: u64 = 20;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One owner of the keys `owner-N/...`, and a writer and reader of the shared ones.
struct Owner<'a> {
    db: &'a Db,
    number: u64,
    random: Random,
    model: Model,
    step: u64,
    /// The largest version seen of each shared key.
    seen: Vec<u64>,
    /// Versions of the shared keys are handed out in the order of the writes.
    shared: &'a [Mutex<u64>],
}

impl Owner<'_> {
    fn key(&mut self) -> Vec<u8> {
        format!("owner-{}/{:04}", self.number, self.random.below(400)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let len =
            self.random.below(if self.step.is_multiple_of(50) { 30_000 } else { 800 }) as usize;
        let mut value = format!("{}-{};", self.number, self.step).into_bytes();
        value.resize(value.len() + len, self.step as u8);
        value
    }

    fn write(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.below(5) {
            let key = self.key();
            if self.random.below(4) == 0 {
                batch.delete(&key);
                self.model.remove(&key);
            } else {
                let value = self.value();
                batch.put(&key, &value);
                self.model.insert(key, value);
            }
        }
        let sync = self.random.below(8) == 0;
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        self.db.write_with(batch, durability).unwrap();
    }

    fn prefix(&self) -> String {
        format!("owner-{}/", self.number)
    }

    fn read(&mut self) {
        let key = self.key();
        assert_eq!(self.db.get(&key).unwrap().as_deref(), self.model.get(&key).map(Vec::as_slice));
        if self.random.below(10) == 0 {
            let keys: Vec<_> = (0..12).map(|_| self.key()).collect();
            for (key, got) in keys.iter().zip(self.db.multi_get(&keys).unwrap()) {
                assert_eq!(got.as_deref(), self.model.get(key).map(Vec::as_slice));
            }
        }
        if self.random.below(100) == 0 {
            let scan = self.db.scan().prefix(self.prefix());
            let reverse = self.random.below(2) == 0;
            let scan = if reverse { scan.reverse() } else { scan };
            let mut shown: Vec<_> = scan.into_iter().map(Result::unwrap).collect();
            if reverse {
                shown.reverse();
            }
            assert_eq!(shown.len(), self.model.len());
            assert!(shown.iter().zip(&self.model).all(|(a, b)| a.0 == b.0 && a.1 == b.1));
        }
    }

    /// Writes the next version of a shared key, and reads one: it never goes back.
    fn share(&mut self) {
        let index = self.random.below(SHARED) as usize;
        let key = format!("shared/{index:02}");
        if self.random.below(3) == 0 {
            let mut version = self.shared[index].lock();
            *version += 1;
            let mut batch = WriteBatch::new();
            batch.put(&key, version.to_string()).put(format!("{key}/twin"), version.to_string());
            self.db.write_with(batch, Durability::Buffered).unwrap();
        }
        let snapshot = self.db.snapshot();
        let number = |value: Option<bytes::Bytes>| -> u64 {
            value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
        };
        let version = number(snapshot.get(&key).unwrap());
        assert_eq!(version, number(snapshot.get(format!("{key}/twin")).unwrap()), "half a batch");
        assert!(version >= self.seen[index], "{key} went from {} to {version}", self.seen[index]);
        self.seen[index] = number(self.db.get(&key).unwrap()).max(version);
        assert!(self.seen[index] >= version);
    }

    fn live(&mut self, stop: &AtomicBool) {
        let mut held: Option<(thermocline::Snapshot, Model)> = None;
        while !stop.load(SeqCst) {
            self.step += 1;
            self.write();
            (0..4).for_each(|_| self.read());
            self.share();
            match self.random.below(200) {
                0 => held = Some((self.db.snapshot(), self.model.clone())),
                1 => {
                    if let Some((snapshot, model)) = held.take() {
                        let scan = snapshot.scan().prefix(self.prefix());
                        let shown: Model = scan
                            .into_iter()
                            .map(|r| r.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap())
                            .collect();
                        assert!(shown == model, "a snapshot changed");
                    }
                }
                2 if self.number == 0 => self.db.flush().unwrap(),
                3 if self.number == 1 => self.db.compact_range(None, None, &mut |_| {}).unwrap(),
                4 if self.number == 2 => {
                    let report = self.db.verify(&mut |_| {}).unwrap();
                    assert!(report.is_ok(), "{:?}", report.problems);
                }
                5 if self.number == 3 => self.ingest(),
                6 => self.db.sync().unwrap(),
                _ => {}
            }
        }
    }

    fn ingest(&mut self) {
        let mut load = self.db.ingest();
        let value = self.value();
        for number in (0..400).step_by(7) {
            let key = format!("owner-{}/{number:04}", self.number).into_bytes();
            load.add(&key, &value).unwrap();
            self.model.insert(key, value.clone());
        }
        load.finish().unwrap();
    }
}

#[test]
fn threads_read_what_they_wrote_and_never_an_older_version() {
    live_for(&settings(), 5);
}

#[test]
fn threads_read_what_they_wrote_and_never_an_older_version_with_a_fast_tier() {
    live_for(&hybrid_settings(), 4);
}

fn live_for(settings: &Settings, seconds: u64) {
    let devices = MemoryDevices::new();
    let environment = environment(devices.clone());
    let db = environment.create(&home(), settings).unwrap();
    let stop = AtomicBool::new(false);
    let shared: Vec<_> = (0..SHARED).map(|_| Mutex::new(0)).collect();
    let models: Vec<Model> = std::thread::scope(|scope| {
        let (db, stop, shared) = (&db, &stop, &shared);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    let random = Random::new(first_seed() * 100 + number);
                    let seen = vec![0; SHARED as usize];
                    let model = Model::new();
                    let mut owner = Owner { db, number, random, model, step: 0, seen, shared };
                    owner.live(stop);
                    assert!(owner.step > 5, "{} steps", owner.step);
                    owner.model
                })
            })
            .collect();
        // A thread that fails ends the test at the end of the time.
        SystemClock::new().sleep(Duration::from_secs(rounds(seconds)));
        stop.store(true, SeqCst);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    close(db, "all threads have ended");
    let db = environment.open(&home()).unwrap();
    let records = db.scan().prefix("owner-").into_iter().map(Result::unwrap);
    let shown: Model = records.map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
    assert!(shown == models.into_iter().flatten().collect::<Model>());
    assert_eq!(leaks(&devices, &db), None);
}

#[test]
fn readers_answer_while_writers_are_stalled_in_the_log() {
    stall_writers(&settings());
    stall_writers(&hybrid_settings());
}

fn stall_writers(settings: &Settings) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let at_gate = Arc::new(AtomicBool::new(false));
    let (held, waiting) = (Arc::clone(&gate), Arc::clone(&at_gate));
    let hook: Hook = Arc::new(move |call, _, name| {
        if call == Call::Write && name.ends_with(".log") {
            let mut closed = held.0.lock();
            while *closed {
                waiting.store(true, SeqCst);
                held.1.wait(&mut closed);
            }
        }
        Ok(())
    });
    let devices = HookedDevices::new(Arc::new(MemoryDevices::new()), hook);
    let db = environment(devices).create(&home(), settings).unwrap();
    for number in 0..500u32 {
        db.put(format!("key{number:03}"), "before").unwrap();
    }
    db.flush().unwrap();
    db.put("key001", "in memory").unwrap();
    db.settle().unwrap();
    *gate.0.lock() = true;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3).map(|_| scope.spawn(|| db.put("key000", "after"))).collect();
        let clock = SystemClock::new();
        let start_ns = clock.now_ns();
        while !at_gate.load(SeqCst) {
            assert!(clock.now_ns() - start_ns < 60_000_000_000, "no writer came to the gate");
            std::thread::yield_now();
        }
        // All of this would wait for ever if readers waited for writers.
        assert_eq!(db.get("key000").unwrap().as_deref(), Some(&b"before"[..]));
        assert_eq!(db.get("key001").unwrap().as_deref(), Some(&b"in memory"[..]));
        assert_eq!(db.multi_get(&["key002", "none"]).unwrap()[1], None);
        assert_eq!(db.scan().into_iter().count(), 500);
        assert_eq!(db.snapshot().get("key003").unwrap().as_deref(), Some(&b"before"[..]));
        assert!(db.stats().read_only.is_none());
        assert!(!writers.iter().any(|writer| writer.is_finished()), "a writer got past the gate");
        *gate.0.lock() = false;
        gate.1.notify_all();
        writers.into_iter().for_each(|writer| writer.join().unwrap().unwrap());
    });
    assert_eq!(db.get("key000").unwrap().as_deref(), Some(&b"after"[..]));
}
