//! What a host's own traffic shows of a device, and what of it is there at the next opening.

use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::profile::{COUNTS_FOR_NS, Curve, INTERVAL_NS, Point, Source, TierProfile};
use thermocline_device::{
    DeviceCounts, Devices, FileClass, HostUse, MemoryDevices, Names, SystemDevices, TierSpec,
    Writer,
};
use thermocline_foundation::{ByteSize, Clock, SystemClock};

const MB: u64 = 1_000_000;

/// A host's directory in memory, of which tier 0 has counts.
struct Rig {
    fast: MemoryDriver,
    names: Names,
    counts: DeviceCounts,
    now_ns: u64,
    files: u64,
}

impl Rig {
    /// Opens the directory, made where it is not there yet.
    fn new(devices: &MemoryDevices) -> Self {
        let (all, home) = (Arc::new(devices.clone()), Path::new("/db"));
        let names = Names::load(all.clone(), home, None, policy()).unwrap_or_else(|_| {
            for path in ["/db", "/fast", "/slow"] {
                devices.create_directory(Path::new(path)).unwrap();
            }
            let spec = |path: &str| TierSpec {
                path: path.into(),
                capacity: ByteSize::gib(1),
                driver: "memory".to_owned(),
            };
            Names::make(all, home, &["/fast", "/slow"].map(spec), policy()).unwrap()
        });
        names.measure_load(Arc::new(SystemClock::new()));
        let fast = devices.directory(&names.tiers()[0].path).unwrap();
        Self { fast, names, counts: DeviceCounts::default(), now_ns: 0, files: 0 }
    }

    /// Four seconds in which so many writers write so much a second to a busy device.
    fn write(&mut self, writers: u64, mb: u64) {
        let class = |name: &str| FileClass { level: Some(0), ..FileClass::of_name(name) };
        let open: Vec<Writer> = (0..writers)
            .map(|_| {
                self.files += 1;
                let name = format!("{:06}.sst", self.files);
                self.names.create(&name, class(&name)).unwrap()
            })
            .collect();
        for _ in 0..40 {
            self.counts.written_bytes += mb * MB / 10;
            self.counts.busy_ns += INTERVAL_NS;
            self.now_ns += INTERVAL_NS;
            self.fast.set_device_counts(self.counts);
            self.names.sample_devices(self.now_ns);
        }
        drop(open);
    }

    fn profile(&self) -> TierProfile {
        self.names.tiers()[0].profile.clone()
    }
}

#[test]
fn a_knee_that_traffic_shows_is_told_and_is_there_at_the_next_opening() {
    let devices = MemoryDevices::new();
    let mut rig = Rig::new(&devices);
    rig.write(1, 210);
    rig.write(4, 500);
    assert_eq!(rig.profile().source, Source::Unknown, "it still rises");
    rig.write(16, 226);
    assert_eq!(
        (rig.profile().source, rig.profile().write.useful_workers()),
        (Source::Online, Some(4))
    );
    rig.names.store_profiles().unwrap();
    drop(rig);
    let rig = Rig::new(&devices);
    assert_eq!(
        (rig.profile().source, rig.profile().write.useful_workers()),
        (Source::Online, Some(4))
    );
}

#[test]
fn a_limit_that_traffic_takes_back_is_gone_here_and_at_the_next_opening() {
    let devices = MemoryDevices::new();
    let mut rig = Rig::new(&devices);
    rig.write(4, 500);
    rig.write(16, 226);
    rig.names.store_profiles().unwrap();
    drop(rig);
    // It is a start, and traffic or an hour later it is none.
    let mut rig = Rig::new(&devices);
    assert_eq!(rig.profile().write.useful_workers(), Some(4));
    rig.write(4, 500);
    assert_eq!(rig.profile().write.useful_workers(), Some(4));
    rig.now_ns += COUNTS_FOR_NS;
    rig.write(4, 500);
    assert_eq!((rig.profile().source, rig.profile().write), (Source::Unknown, Curve::default()));
    rig.write(16, 226);
    assert_eq!(rig.profile().write.useful_workers(), Some(4));
    rig.write(16, 900);
    rig.write(16, 900);
    assert_eq!((rig.profile().source, rig.profile().write), (Source::Unknown, Curve::default()));
    rig.names.store_profiles().unwrap();
    assert_eq!(TierProfile::of(&rig.fast).write, Curve::default());
}

#[test]
fn what_is_measured_while_a_directory_is_open_stays() {
    let devices = MemoryDevices::new();
    let mut rig = Rig::new(&devices);
    rig.write(4, 500);
    rig.write(16, 226);
    let measured = TierProfile { source: Source::Measured, ..TierProfile::default() };
    measured.write(&rig.fast).unwrap();
    rig.names.store_profiles().unwrap();
    assert_eq!(TierProfile::of(&rig.fast), measured);
}

#[test]
fn a_profile_that_was_measured_is_moved_and_stays_on_disk() {
    let devices = MemoryDevices::new();
    let point = |(workers, mb)| Point { workers, bytes_per_s: mb * MB };
    let write = Curve::new([(1, 400), (2, 800), (4, 1600), (8, 800)].map(point).to_vec());
    let measured = TierProfile { source: Source::Measured, write, ..TierProfile::default() };
    measured.write(&Rig::new(&devices).fast).unwrap();
    let mut rig = Rig::new(&devices);
    assert_eq!(rig.profile().write.useful_workers(), Some(4));
    rig.write(8, 2000);
    assert_eq!(rig.profile().source, Source::Online);
    rig.write(4, 800);
    assert_eq!(rig.profile().write.useful_workers(), Some(8));
    rig.names.store_profiles().unwrap();
    assert_eq!(TierProfile::of(&rig.fast), measured);
}

/// Each writer waits for one write after the other, for so many intervals.
fn write_and_sample(names: &Names, clock: &SteppedClock, writers: &[Writer], intervals: u32) {
    let mut due_ns = vec![clock.now_ns(); writers.len()];
    for _ in 0..intervals {
        let end_ns = clock.now_ns() + INTERVAL_NS;
        loop {
            let next = (0..due_ns.len()).min_by_key(|at| due_ns[*at]).unwrap();
            if due_ns[next] >= end_ns {
                break;
            }
            clock.0.fetch_max(due_ns[next], SeqCst);
            let write = HostUse::Write { offset: 0, len: 64 << 10 };
            due_ns[next] = writers[next].book(write).unwrap();
        }
        clock.0.store(end_ns, SeqCst);
        names.sample_devices(end_ns);
    }
}

/// Both tiers lie on one real device.
#[test]
fn an_emulated_tier_knows_its_own_writers_and_keeps_its_own_profile() {
    let (place, clock) = (Place::new(), Arc::new(SteppedClock::default()));
    let devices = || Arc::new(SystemDevices::new(clock.clone()));
    let db = place.path("db");
    let tiers = |devices: [&str; 2]| -> Vec<TierSpec> {
        let spec = |(name, device): (&str, &str)| TierSpec {
            driver: device.to_owned(),
            ..place.spec(name, ByteSize::gib(1))
        };
        ["fast", "slow"].into_iter().zip(devices).map(spec).collect()
    };
    let emulated = tiers(["emulated-dcpmm-tenth", "emulated-tlc-nvme"]);
    let names = Names::make(devices(), &db, &emulated, policy()).unwrap();
    names.measure_load(clock.clone());
    let create = |count: usize, level: u8| -> Vec<Writer> {
        let create = |number| {
            let name = format!("{level}-{count}-{number}.sst");
            names.create(&name, class(&name, level)).unwrap()
        };
        (0..count).map(create).collect()
    };
    let beside = create(3, 6);
    for count in [4, 16] {
        write_and_sample(&names, &clock, &create(count, 0), 40);
    }
    let write = names.tiers()[0].profile.write.clone();
    let workers: Vec<u16> = write.points().iter().map(|point| point.workers).collect();
    assert_eq!((workers, write.useful_workers()), (vec![4, 16], Some(4)));
    names.store_profiles().unwrap();
    drop((beside, names));

    for (drivers, expected) in [
        (["posix"; 2], None),
        (["emulated-tlc-nvme"; 2], None),
        (["emulated-dcpmm-tenth"; 2], Some(4)),
    ] {
        let names = Names::load(devices(), &db, Some(&tiers(drivers)), policy()).unwrap();
        names.measure_load(clock.clone());
        let known = names.tiers()[0].profile.write.useful_workers();
        assert_eq!(known, expected, "{drivers:?}");
    }
}
