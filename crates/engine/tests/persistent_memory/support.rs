//! A machine with directories in memory and a region of which every store is remembered.

use crate::hooked::{Call, HookedDevices};
use crate::regions::{PERSISTENT, ShadowRegions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thermocline::{
    ByteSize, Db, Environment, PersistentMemory, Preset, RegionDriver, Regions, Settings, Stepper,
    Tier, Workers,
};
use thermocline_device::{
    Buffer, Devices, Driver, Error, ErrorKind, MemoryDevices, Operation, Result,
};
use thermocline_pmem::{Circumstances, Medium};

pub const HOME: &str = "/home";
pub const TIER: &str = "/disk";
/// A second tier, above the first.
pub const FAST: &str = "/fast";
pub const REGION: &str = "/pmem/region";

/// A copy of the directories, as the end of the process leaves them.
pub fn copy_of(devices: &MemoryDevices) -> MemoryDevices {
    let copy = MemoryDevices::new();
    for path in [HOME, TIER, FAST] {
        let Some(from) = devices.directory(Path::new(path)) else { continue };
        copy.create_directory(Path::new(path)).unwrap();
        let to = copy.directory(Path::new(path)).unwrap();
        for entry in from.list().unwrap() {
            let file = from.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(file.len().unwrap() as usize);
            let read = from.execute(&file, Operation::Read { offset: 0, buffer });
            let made = to.create(&entry.name).unwrap();
            let write = Operation::Write { offset: 0, buffer: read.buffer, durable: false };
            to.execute(&made, write).result.unwrap();
        }
    }
    copy
}

/// All files of the directories, with what they hold.
pub fn contents_of(devices: &MemoryDevices) -> Vec<(&'static str, String, Vec<u8>)> {
    let mut contents = Vec::new();
    for path in [HOME, TIER, FAST] {
        let Some(from) = devices.directory(Path::new(path)) else { continue };
        for entry in from.list().unwrap() {
            let file = from.open(&entry.name).unwrap();
            let buffer = Buffer::zeroed(file.len().unwrap() as usize);
            let read = from.execute(&file, Operation::Read { offset: 0, buffer });
            contents.push((path, entry.name, read.buffer.to_vec()));
        }
    }
    contents.sort();
    contents
}

pub fn settings() -> Settings {
    Settings {
        preset: Some(Preset::Leveled),
        tiers: vec![Tier::new(TIER, ByteSize::mib(256)).driver("memory")],
        memory: ByteSize::mib(3),
        background_threads: 1,
        persistent_memory: Some(PersistentMemory::new(REGION, ByteSize::mib(16))),
        ..Settings::default()
    }
}

/// An environment whose background work is done by the threads that wait for it.
pub fn stepped(devices: Arc<dyn Devices>, regions: &Arc<ShadowRegions>) -> Environment {
    Environment {
        devices,
        workers: Workers::Stepped(Arc::new(Stepper::new(1))),
        regions: Arc::clone(regions) as _,
        ..Environment::default()
    }
}

/// A machine and the database on it.
pub struct Machine {
    pub devices: MemoryDevices,
    pub regions: Arc<ShadowRegions>,
}

impl Machine {
    pub fn new() -> Self {
        let regions = Arc::new(ShadowRegions::new(PERSISTENT));
        Self { devices: MemoryDevices::new(), regions }
    }

    pub fn environment(&self) -> Environment {
        stepped(Arc::new(self.devices.clone()), &self.regions)
    }

    /// The same, and no other region can be made, because of `kind`.
    pub fn without_place(&self, kind: ErrorKind) -> Environment {
        let regions = Arc::new(NoMoreRegions { regions: Arc::clone(&self.regions), kind });
        Environment { regions, ..self.environment() }
    }

    pub fn create(&self) -> Db {
        self.environment().create(Path::new(HOME), &settings()).unwrap()
    }

    /// The machine after its process has ended, with all that it had stored.
    pub fn killed(&self, db: Db) -> Self {
        std::mem::forget(db);
        let image = self.regions.stored(REGION);
        Self::of(copy_of(&self.devices), &image)
    }

    /// A machine with these directories and this region.
    pub fn of(devices: MemoryDevices, image: &[u64]) -> Self {
        let regions = Arc::new(ShadowRegions::with(REGION, image, PERSISTENT));
        Self { devices, regions }
    }

    pub fn open(&self) -> thermocline::Result<Db> {
        self.environment().open(Path::new(HOME))
    }

    /// What the file `DATABASE` says.
    pub fn database_file(&self) -> String {
        let home = self.devices.directory(Path::new(HOME)).unwrap();
        let file = home.open("DATABASE").unwrap();
        let buffer = Buffer::zeroed(file.len().unwrap() as usize);
        let read = home.execute(&file, Operation::Read { offset: 0, buffer });
        String::from_utf8(read.buffer.to_vec()).unwrap()
    }
}

/// An environment of `machine` that counts reads of tables.
pub fn counting_reads(machine: &Machine) -> (Environment, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let hook = move |call: Call, _: &Path, name: &str| {
        if call == Call::Read && name.ends_with(".table") {
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    };
    let devices = HookedDevices::new(Arc::new(machine.devices.clone()), Arc::new(hook));
    (stepped(Arc::new(devices), &machine.regions), reads)
}

/// The same regions, and there is no place for another.
#[derive(Debug)]
struct NoMoreRegions {
    regions: Arc<ShadowRegions>,
    /// Why.
    kind: ErrorKind,
}

impl Regions for NoMoreRegions {
    fn create(&self, path: &Path, bytes: u64, _: RegionDriver) -> Result<(Medium, Circumstances)> {
        Err(Error::new(self.kind, format!("no place for {bytes} bytes at {}", path.display())))
    }

    fn open(&self, path: &Path, driver: RegionDriver) -> Result<(Medium, Circumstances)> {
        self.regions.open(path, driver)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.regions.remove(path)
    }
}
