//! A host's files, extents and moves on devices that hold their I/O up.

use crate::support::{SteppedClock, class, policy};
use crate::watched::{WatchedDevices, Watcher};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;
use thermocline_device::file_cache::extents::Cached;
use thermocline_device::migration_queue::Thresholds;
use thermocline_device::names::{ExtentSettings, NameSettings};
use thermocline_device::{Buffer, Devices, Driver, NamedFile, Names, Operation, TierSpec};
use thermocline_foundation::ByteSize;

const EXTENT: usize = 4096;
const FAST: &str = "/fast";
const SLOW: &str = "/slow";

/// A test that waits for longer than this hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Reads and writes wait while it is closed.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_closed: bool,
    waiting: u32,
}

impl Watcher for Gate {
    fn see(&self, operation: &Operation) {
        if matches!(operation, Operation::Sync) {
            return;
        }
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.is_closed).unwrap());
    }
}

impl Gate {
    fn set_closed(&self, is_closed: bool) {
        *self.state.lock().unwrap() = GateState { is_closed, waiting: 0 };
        self.changed.notify_all();
    }

    fn wait_for_one(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }
}

/// A host's directory in memory that keeps extents.
struct Scene {
    devices: WatchedDevices,
    fast: Arc<Gate>,
    slow: Arc<Gate>,
    clock: Arc<SteppedClock>,
    names: Names,
}

impl Scene {
    fn new(fast: ByteSize) -> Self {
        let (fast_gate, slow_gate) = (Arc::<Gate>::default(), Arc::<Gate>::default());
        let gates = [(FAST, Arc::clone(&fast_gate)), (SLOW, Arc::clone(&slow_gate))];
        let devices = WatchedDevices::new(1, move |path| {
            let gate = gates.iter().find(|(tier, _)| path.starts_with(tier));
            Arc::clone(&gate.unwrap().1) as _
        });
        let clock = Arc::new(SteppedClock::default());
        for path in ["/db", FAST, SLOW] {
            devices.create_directory(Path::new(path)).unwrap();
        }
        let spec = |path: &str, capacity| TierSpec {
            path: path.into(),
            capacity,
            driver: "memory".to_owned(),
        };
        let tiers = [spec(FAST, fast), spec(SLOW, ByteSize::gib(1))];
        let (all, home) = (Arc::new(devices.clone()), Path::new("/db"));
        let names = Names::make(all, home, &tiers, policy()).unwrap();
        let settings = ExtentSettings { extent_bytes: EXTENT as u64, capacity_bytes: None };
        names.keep_extents(Some(settings), clock.clone(), Arc::new(|| ()));
        Self { devices, fast: fast_gate, slow: slow_gate, clock, names }
    }

    /// A table of so many extents.
    fn table(&self, name: &str, level: u8, extents: usize) -> (Arc<NamedFile>, Vec<u8>) {
        let bytes: Vec<u8> = (0..extents * EXTENT).map(|at| (at / 7) as u8).collect();
        let writer = self.names.create(name, class(name, level)).unwrap();
        let place = writer.place();
        let directory = self.devices.memory.directory(place.parent().unwrap()).unwrap();
        let file = directory.open(place.file_name().unwrap().to_str().unwrap()).unwrap();
        let write = Operation::Write { offset: 0, buffer: Buffer::copy_of(&bytes), durable: false };
        directory.execute(&file, write).result.unwrap();
        writer.synced().unwrap();
        (Arc::clone(writer.file()), bytes)
    }

    /// Reads all of a table as a plugin does, and lets a second pass; how many reads were served.
    fn read(&self, (file, bytes): &(Arc<NamedFile>, Vec<u8>)) -> usize {
        let mut served = 0;
        for at in (0..bytes.len()).step_by(EXTENT) {
            let epoch = file.epoch().load(Acquire);
            let mut to = [0; EXTENT];
            match file.read_cached(epoch, at as u64, &mut to) {
                Cached::Served(len) => {
                    assert_eq!(to[..len], bytes[at..at + len]);
                    served += 1;
                }
                Cached::Missed(None) => {}
                Cached::Missed(Some(wanted)) => {
                    let from = wanted.offset as usize;
                    file.fill(epoch, wanted, &bytes[from..from + wanted.len]);
                    self.tend();
                }
            }
        }
        self.clock.0.fetch_add(1_000_000_000, SeqCst);
        self.tend();
        served
    }

    fn tend(&self) {
        while self.names.tend_extents() {}
    }

    fn extent_bytes(&self) -> u64 {
        self.names.extent_counts().unwrap().bytes
    }
}

#[test]
fn a_log_is_made_while_extents_are_written_and_its_room_is_given_back_after_that() {
    let scene = Scene::new(ByteSize::kib(512));
    let (large, small) = (scene.table("1.sst", 6, 118), scene.table("2.sst", 6, 2));
    (0..8).for_each(|_| _ = scene.read(&large));
    (0..5).for_each(|_| _ = scene.read(&small));
    // What 5 % of the tier leave: the log is expected to take 64 KiB of it.
    let room_after = (512 << 10) / 100 * 95 - (64 << 10);
    assert!(scene.extent_bytes() > room_after, "{}", scene.extent_bytes());

    let gate = Arc::clone(&scene.fast);
    gate.set_closed(true);
    let (names, (told, made)) = (scene.names.clone(), mpsc::channel());
    std::thread::scope(|scope| {
        scope.spawn(|| scene.names.write_gathered_extents());
        gate.wait_for_one();
        scope.spawn(move || {
            let log = names.create("3.log", class("3.log", 0)).unwrap();
            told.send(log.place()).unwrap();
            log
        });
        let place = made.recv_timeout(HANGS);
        gate.set_closed(false);
        let place = place.expect("it waits for the fill");
        assert!(place.starts_with(FAST), "{}", place.display());
    });
    scene.tend();
    assert!(scene.extent_bytes() <= room_after, "{}", scene.extent_bytes());
}

/// A slow device answers nothing: what comes from the fast one goes on.
#[test]
fn extents_and_new_files_go_on_while_a_move_to_a_stalled_device_waits() {
    let scene = Scene::new(ByteSize::mib(16));
    let (cold, leaving) = (scene.table("1.sst", 6, 20), scene.table("2.sst", 0, 20));
    for _ in 0..6 {
        scene.read(&cold);
        scene.names.write_gathered_extents();
    }
    assert_eq!(scene.read(&cold), 20);
    let gate = Arc::clone(&scene.slow);
    gate.set_closed(true);
    scene.names.set_level("2.sst", 6);
    let (told, made) = mpsc::channel();
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| scene.names.move_next());
        gate.wait_for_one();
        scope.spawn(|| {
            let log = scene.names.create("3.log", class("3.log", 0)).unwrap();
            told.send((log.place(), scene.read(&cold))).unwrap();
        });
        let (made, there) = (made.recv_timeout(HANGS), leaving.0.place());
        gate.set_closed(false);
        let (place, served) = made.expect("they wait for the slow device");
        assert!(there.starts_with(FAST), "it has moved already");
        assert!(place.starts_with(FAST) && served == 20, "{served} at {}", place.display());
        assert!(moved.join().unwrap().unwrap());
    });
    assert!(leaving.0.place().starts_with(SLOW));
}

/// Two threads that copy to a tier with room for one file.
#[test]
fn copies_that_are_being_made_take_their_room_already() {
    let scene = Scene::new(ByteSize::kib(160));
    let tables = ["1.sst", "2.sst"].map(|name| scene.table(name, 6, 25));
    tables.iter().for_each(|(file, _)| file.was_read());
    scene.names.end_window();
    assert_eq!(scene.names.copy_threads(90), 16, "nothing else writes");
    let gate = Arc::clone(&scene.fast);
    gate.set_closed(true);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| scene.names.copy_next(90).unwrap());
        gate.wait_for_one();
        let threads = scene.names.copy_threads(90);
        gate.set_closed(false);
        assert_eq!(threads, 0, "100 KiB of 152 are on their way, and the other file has as many");
        assert!(first.join().unwrap());
    });
    assert!(!scene.names.copy_next(90).unwrap());
}

#[test]
fn what_a_host_wants_free_of_its_tier_it_does_not_want_of_a_shared_device() {
    let scene = Scene::new(ByteSize::kib(512));
    let thresholds = Thresholds { upper_percent: 50, lower_percent: 40 };
    scene.names.go_by(NameSettings { thresholds, ..NameSettings::default() });
    // Others have 640 of its 1024 KiB.
    let device = scene.devices.memory.directory(&scene.names.tiers()[0].path).unwrap();
    device.set_capacity_bytes(1 << 20);
    let others = device.create("others").unwrap();
    let buffer = Buffer::zeroed(640 << 10);
    let write = Operation::Write { offset: 0, buffer, durable: false };
    device.execute(&others, write).result.unwrap();
    let table = scene.table("1.sst", 6, 25);
    (0..4).for_each(|_| _ = scene.read(&table));
    assert!(scene.extent_bytes() > 0 && scene.read(&table) > 0);
}
