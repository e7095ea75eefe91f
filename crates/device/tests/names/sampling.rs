//! What a host's own traffic shows of a device, and what of it is there at the next opening.

use crate::support::*;
use std::path::Path;
use std::sync::Arc;
use thermocline_device::drivers::MemoryDriver;
use thermocline_device::profile::{Curve, INTERVAL_NS, Point, Source, TierProfile};
use thermocline_device::{
    DeviceCounts, Devices, FileClass, MemoryDevices, Names, TierSpec, Writer,
};
use thermocline_foundation::{ByteSize, SystemClock};

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

    /// Three seconds in which so many writers write so much a second to a busy device.
    fn write(&mut self, writers: u64, mb: u64) {
        let class = |name: &str| FileClass { level: Some(0), ..FileClass::of_name(name) };
        let open: Vec<Writer> = (0..writers)
            .map(|_| {
                self.files += 1;
                let name = format!("{:06}.sst", self.files);
                self.names.create(&name, class(&name)).unwrap()
            })
            .collect();
        for _ in 0..30 {
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
