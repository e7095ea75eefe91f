//! Work first, lock later: jobs do their work without a lock, take the lock, and ask again whether
//! what they did is still wanted. Here the answer is no: between a job's work and its lock, a hook
//! in the devices overwrites and deletes records, flushes them, and merges some of them into
//! tables.
//!
//! The job waits for the hook, and what the hook wants may have to wait for the job: so it is done
//! on a thread of its own, and the job goes on after a while in any case.

use crate::hooked::{Call, Hook, HookedDevices};
use crate::support::{HOME, hybrid};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use thermocline::{ByteSize, Db, Environment, HybridSettings, Settings};
use thermocline_device::MemoryDevices;
use thermocline_foundation::random::Random;
use thermocline_foundation::threads::spawn;

const KEYS: u64 = 1500;
/// Keys that are read again and again.
const HOT_KEYS: u64 = 700;

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// The longest that a job waits for what interrupts it. The job may hold what that waits for.
const INTERRUPTION_MAX: Duration = Duration::from_millis(300);

/// Interruptions of a kind while records move. Each makes work for the jobs, which are interrupted
/// again: without an end, work might never run out.
const INTERRUPTIONS_MAX: u64 = 25;

/// What a hook needs: the store, what it must show, and what is to come.
struct World {
    /// None once the test is over.
    db: Mutex<Option<Db>>,
    interruptions: Mutex<Vec<JoinHandle<()>>>,
    records: Mutex<(Records, Random)>,
    armed: AtomicBool,
    /// An interruption is at work; calls that it makes itself are let through.
    busy: AtomicBool,
    /// Interruptions between work and lock, by what was interrupted: slots, tables.
    interrupted: [AtomicU64; 2],
    /// Those to come until all have had an end, likewise.
    left: [AtomicU64; 2],
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

impl World {
    fn db(&self) -> Db {
        self.db.lock().unwrap().clone().unwrap()
    }

    /// Overwrites and deletes some keys, hot ones mostly.
    fn write(&self, count: u64, bytes: u64) {
        let (db, mut guard) = (self.db(), self.records.lock().unwrap());
        let (records, random) = &mut *guard;
        for _ in 0..count {
            let among = if random.below(3) == 0 { KEYS } else { HOT_KEYS };
            let key = key(random.below(among));
            if random.below(4) == 0 {
                db.delete(&key).unwrap();
                records.remove(&key);
            } else {
                let mut value = vec![0; (bytes / 2 + random.below(bytes)) as usize];
                random.fill(&mut value);
                db.put(&key, &value).unwrap();
                records.insert(key, value);
            }
        }
    }

    /// Stands between a job's work and its lock.
    fn interrupt(self: &Arc<Self>, call: Call, name: &str) {
        // Jobs sync what they wrote and then take the lock. A merge holds a claim on its range,
        // for which another merge would wait.
        let place = match call {
            Call::Sync if name.ends_with(".slab") => 0,
            Call::Sync if name.ends_with(".table") => 1,
            _ => return,
        };
        if !self.armed.load(SeqCst) || is_upkeep_thread() || self.busy.swap(true, SeqCst) {
            return;
        }
        let take_one = |left: u64| left.checked_sub(1);
        if self.left[place].fetch_update(SeqCst, SeqCst, take_one).is_err() {
            self.busy.store(false, SeqCst);
            return;
        }
        self.interrupted[place].fetch_add(1, SeqCst);
        let (world, (done, is_done)) = (Arc::clone(self), channel::<()>());
        let interruption = spawn("interruption", move || {
            world.write(60, 900);
            world.db().flush().unwrap();
            if place == 0 {
                world.db().compact_range(None, None, &mut |_| {}).unwrap();
            }
            drop(done);
            world.busy.store(false, SeqCst);
        })
        .unwrap();
        // The end of the channel is what is waited for.
        let ended = is_done.recv_timeout(INTERRUPTION_MAX);
        assert!(matches!(ended, Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)));
        self.interruptions.lock().unwrap().push(interruption);
    }

    /// Waits until all interruptions have ended.
    fn end_interruptions(&self) {
        let interruptions = std::mem::take(&mut *self.interruptions.lock().unwrap());
        for interruption in interruptions {
            interruption.join().expect("writing between work and lock succeeds");
        }
    }

    /// Every answer is what it must be; no hook is at work meanwhile.
    fn check(&self, what: &str) {
        let guard = self.records.lock().unwrap();
        let (db, records) = (self.db(), &guard.0);
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        let many = db.multi_get(&keys).unwrap();
        for (key, many) in keys.iter().zip(many) {
            let right = records.get(key).map(Vec::as_slice);
            let name = key.escape_ascii();
            assert!(db.get(key).unwrap().as_deref() == right, "get of {name}, {what}");
            assert!(many.as_deref() == right, "multi_get of {name}, {what}");
        }
        let scanned: Vec<_> = db.scan().into_iter().map(Result::unwrap).collect();
        let scanned = scanned.iter().map(|(key, value)| (&key[..], &value[..]));
        let right = records.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(scanned.eq(right), "a scan, {what}");
    }
}

/// The thread is the store's for flushes, or for logs: what interrupts waits for these.
fn is_upkeep_thread() -> bool {
    let current = std::thread::current();
    matches!(current.name(), Some("thermocline-0" | "thermocline-1"))
}

/// So small that records leave memory for slots, and slots for tables.
fn settings() -> Settings {
    let mut settings = Settings {
        memory: ByteSize::mib(1),
        table_size: ByteSize::kib(64),
        background_threads: 2,
        hybrid: HybridSettings { high_watermark_percent: 30, ..hybrid().hybrid },
        ..hybrid()
    };
    settings.tiers[0].capacity = ByteSize::mib(4);
    settings
}

fn world(seed: u64) -> Arc<World> {
    let world = Arc::new(World {
        db: Mutex::default(),
        interruptions: Mutex::default(),
        records: Mutex::new((Records::new(), Random::new(seed))),
        armed: AtomicBool::new(false),
        busy: AtomicBool::new(false),
        interrupted: [AtomicU64::new(0), AtomicU64::new(0)],
        left: [AtomicU64::new(0), AtomicU64::new(0)],
    });
    let seen = Arc::clone(&world);
    let hook: Hook = Arc::new(move |call: Call, _: &Path, name: &str| {
        seen.interrupt(call, name);
        Ok(())
    });
    let devices = HookedDevices::new(Arc::new(MemoryDevices::new()), hook);
    let environment = Environment { devices: Arc::new(devices), ..Environment::default() };
    let db = environment.create(Path::new(HOME), &settings()).unwrap();
    *world.db.lock().unwrap() = Some(db);
    world
}

/// Reads hot records, so that they move up and others are given up; merges; both are interrupted.
fn move_records(world: &World) {
    let db = world.db();
    world.left.iter().for_each(|left| left.store(INTERRUPTIONS_MAX, SeqCst));
    world.armed.store(true, SeqCst);
    for _ in 0..3 {
        for number in 0..HOT_KEYS {
            db.get(key(number)).unwrap();
        }
        db.settle().unwrap();
    }
    db.compact_range(Some(&key(0)), Some(&key(HOT_KEYS / 2)), &mut |_| {}).unwrap();
    world.armed.store(false, SeqCst);
    world.end_interruptions();
    db.settle().unwrap();
}

#[test]
fn what_was_written_between_a_jobs_work_and_its_lock_stays() {
    let mut interrupted = [0; 2];
    for seed in 1..=3 {
        let world = world(seed);
        let db = world.db();
        for round in 0..9 {
            // Sizes change, so that slabs of one size are in the way of the next.
            world.write(600, [700, 1500, 400][round % 3]);
            db.flush().unwrap();
            move_records(&world);
            world.check(&format!("seed {seed}, round {round}"));
        }
        for (sum, count) in interrupted.iter_mut().zip(&world.interrupted) {
            *sum += count.load(SeqCst);
        }
        let fast = db.stats().fast_tier.unwrap();
        assert!(fast.spilled_records > 0 && fast.promoted_records > 0, "{fast:?}");
        assert!(db.verify(&mut |_| {}).unwrap().is_ok());
        *world.db.lock().unwrap() = None;
        db.close().unwrap();
    }
    assert!(interrupted.iter().all(|count| *count > 5), "{interrupted:?}");
}
